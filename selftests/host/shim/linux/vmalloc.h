/* SPDX-License-Identifier: GPL-2.0 */
/* Large allocations, page-aligned as in the kernel. */
#ifndef KVBLK_SHIM_LINUX_VMALLOC_H
#define KVBLK_SHIM_LINUX_VMALLOC_H

#include <linux/slab.h>

void *shim_alloc_huge(size_t bytes, gfp_t gfp);

#define vmalloc(bytes)		shim_alloc(bytes, GFP_KERNEL)
#define vmalloc_huge(bytes, gfp) shim_alloc_huge(bytes, gfp)
#define __vmalloc(bytes, gfp)	shim_alloc(bytes, gfp)
#define vfree(p)		shim_free(p)

#endif
