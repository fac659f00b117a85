/* SPDX-License-Identifier: GPL-2.0 */
/* Kernel types used by memory/, in the place of kernel/kvblk.h. */
#ifndef KVBLK_SHIM_KVBLK_H
#define KVBLK_SHIM_KVBLK_H

#include <asm/byteorder.h>
#include <linux/atomic.h>
#include <linux/bvec.h>
#include <linux/errno.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

typedef u64 phys_addr_t;
typedef atomic_t refcount_t;
typedef struct {
} wait_queue_head_t;

struct rcu_head {
};

struct xarray {
};

#define PAGE_MASK		(~(PAGE_SIZE - 1))
#define offset_in_page(p)	((unsigned long)(p) & ~PAGE_MASK)
#define atomic64_sub(i, v)	atomic64_add(-(i), v)
#define jiffies			0ul
#define init_waitqueue_head(wait) ((void)(wait))
#define wq_has_sleeper(wait)	((void)(wait), false)
#define wake_up_all(wait)	((void)(wait))

struct iov_iter {
	size_t iov_offset;
	size_t count;
	const struct bio_vec *bvec;
};

static inline size_t iov_iter_count(const struct iov_iter *iter)
{
	return iter->count;
}

struct kvblk_align {
	u32 addr_mask;
	u32 len_mask;
};

#endif
