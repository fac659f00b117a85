/* SPDX-License-Identifier: GPL-2.0 */
/* kmalloc() and kvmalloc(). */
#ifndef KVBLK_SHIM_LINUX_SLAB_H
#define KVBLK_SHIM_LINUX_SLAB_H

#include <linux/gfp.h>
#include <linux/overflow.h>

void *shim_alloc(size_t bytes, gfp_t gfp);
void shim_free(const void *p);

#define kmalloc(bytes, gfp)	shim_alloc(bytes, gfp)
#define kzalloc(bytes, gfp)	shim_alloc(bytes, (gfp) | __GFP_ZERO)
#define kcalloc(n, each, gfp)	kzalloc(size_mul(n, each), gfp)
#define kmalloc_array(n, each, gfp) kmalloc(size_mul(n, each), gfp)
#define kvmalloc(bytes, gfp)	kmalloc(bytes, gfp)
#define kvzalloc(bytes, gfp)	kzalloc(bytes, gfp)
#define kvcalloc(n, each, gfp)	kcalloc(n, each, gfp)
#define kvmalloc_array(n, each, gfp) kmalloc_array(n, each, gfp)
#define kfree(p)		shim_free(p)
#define kvfree(p)		shim_free(p)

#endif
