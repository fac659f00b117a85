/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_MM_H
#define KVBLK_SHIM_LINUX_MM_H

#include <linux/slab.h>
#include <linux/vmalloc.h>

#ifndef PAGE_SIZE
#define PAGE_SHIFT	12
#define PAGE_SIZE	(1UL << PAGE_SHIFT)
#endif

#endif
