/* SPDX-License-Identifier: GPL-2.0 */
/* Callers' memory: budgets, registered regions, what an operation names and maps. */
#ifndef KVBLK_MEMORY_H
#define KVBLK_MEMORY_H

#include "kvblk.h"
#include "memory/proof.h"

/* Memory charged to an open file. */
struct kvblk_budget {
	atomic64_t held;	/* bytes that outlive the bios of operations, or need none */
	atomic64_t detached;	/* bytes in @held of detached operations */
	unsigned long moved;	/* jiffies of the last return of bytes */
	wait_queue_head_t wait;	/* operations that wait for the budget */
};

static inline void kvblk_budget_init(struct kvblk_budget *budget)
{
	budget->moved = jiffies;
	init_waitqueue_head(&budget->wait);
}

/* Returns whether @bytes more fit @limit; the first ones always do. */
static inline bool kvblk_budget_fits(const struct kvblk_budget *budget, u64 bytes, u64 limit)
{
	u64 held = atomic64_read(&budget->held);

	return !held || held + bytes <= limit;
}

/* Charges @bytes regardless of the limit. */
static inline void kvblk_budget_add(struct kvblk_budget *budget, u64 bytes)
{
	atomic64_add(bytes, &budget->held);
}

/* Charges @bytes. Returns false, with nothing charged, if they exceed @limit. */
static inline bool kvblk_budget_take(struct kvblk_budget *budget, u64 bytes, u64 limit)
{
	u64 held = atomic64_add_return(bytes, &budget->held);

	if (held == bytes || held <= limit)
		return true;
	atomic64_sub(bytes, &budget->held);
	return false;
}

/* Returns @bytes to the budget and wakes operations that wait for it. Any context. */
static inline void kvblk_budget_give(struct kvblk_budget *budget, u64 bytes)
{
	atomic64_sub(bytes, &budget->held);
	WRITE_ONCE(budget->moved, jiffies);
	if (wq_has_sleeper(&budget->wait))
		wake_up_all(&budget->wait);
}

/* ---- region.c ---- */

#define KVBLK_REGION_MAX	(64ull << 30)
#define KVBLK_REGIONS_MAX	65536
#define KVBLK_REGIONS_NEAR	16

/* Regions of an open file. */
struct kvblk_regions {
	struct xarray all;		/* by handle */
	/* regions of the first handles, found in fewer steps; RCU, all.xa_lock */
	struct kvblk_region __rcu *near[KVBLK_REGIONS_NEAR];
};

struct kvblk_region {
	refcount_t __percpu *users; /* operations, by the CPU that began them; see region.c */
	bool device;		/* memory of a PCI device */
	bool private;		/* all of it is anonymous memory of @mm */
	bool gone;		/* the device mapping was removed */
	bool closing;		/* a task waits: no operation may begin to use the region */
	bool waiting;		/* a task is in kvblk_region_wait(); xa_lock */
	u32 nr_pages;
	u64 addr;		/* in @mm */
	u64 length;
	struct mm_struct *mm;	/* address space that the memory was registered from */
	u32 *run;		/* contiguous pages, from each page on */
	refcount_t refs;	/* one for the file, one for each CPU until its @users is 0 */
	struct rcu_head rcu;
	struct user_struct *user;	/* host memory: user charged for locked memory */
	u64 charged;		/* pages charged to @user */
	refcount_t pins;	/* device memory: pins @pages; one until @gone, one for each user */
#ifdef CONFIG_MMU_NOTIFIER
	struct mmu_interval_notifier notifier;	/* device memory: called when the mapping changes */
#endif
	struct page *pages[];
};

/*
 * Registers and pins @length bytes at @addr; host memory is charged to RLIMIT_MEMLOCK.
 * Returns 0, -EINVAL, -ENOMEM (also for that limit), -EFAULT, -EXDEV (neither all host memory
 * nor all of one device), -ENOSPC (too many regions), -EINTR. May sleep.
 */
int kvblk_region_add(struct kvblk_regions *regions, u64 addr, u64 length, u32 *handle);
/* Unregisters a region; operations keep a reference. Returns 0 or -ENOENT. May sleep. */
int kvblk_region_remove(struct kvblk_regions *regions, u32 handle);
/*
 * Prevents new uses, waits until a region is unused, then removes it. Returns 0; -ENOENT;
 * -ERESTARTSYS: still registered; -EBUSY: another task waits.
 */
int kvblk_region_wait(struct kvblk_regions *regions, u32 handle);
void kvblk_region_remove_all(struct kvblk_regions *regions);
/* Returns whether the page at @user, looked up with FOLL flags @gup, is a device's, at @addr. */
bool kvblk_user_device(u64 user, unsigned int gup, phys_addr_t *addr);
/* Keeps a device region pinned until kvblk_region_unuse(). Returns false if it is gone. */
bool kvblk_region_use(struct kvblk_region *region);
void kvblk_region_unuse(struct kvblk_region *region);

enum kvblk_part_kind {
	KVBLK_PART_USER,
	KVBLK_PART_REGION,
	KVBLK_PART_FIXED,		/* registered buffer of a ring: kvblk_src.fixed */
};

/* A resolved struct kvblk_piece. */
struct kvblk_part {
	enum kvblk_part_kind kind;
	u32 length;
	struct kvblk_region *region;	/* with a reference, or NULL */
	refcount_t *users;		/* the one of region->users that counts the reference */
	u64 addr;			/* user address, or offset in @region */
};

struct kvblk_piece;

/* Memory that an operation names. */
struct kvblk_src {
	struct kvblk_part *parts;
	const struct iov_iter *fixed;	/* of io_uring_cmd_import_fixed(), for KVBLK_PART_FIXED */
	struct bio_vec first;	/* first stretch of the first part; empty: user or device memory */
	u32 nr;				/* entries of @parts */
	bool fault;	/* page faults are allowed; otherwise non-resident memory is -EFAULT */
};

/* Returns at most @most contiguous bytes at byte @at of a region. */
static inline struct bio_vec kvblk_region_stretch(const struct kvblk_region *region, u64 at,
						  u32 most)
{
	struct bio_vec bv;

	at += offset_in_page(region->addr);
	bvec_set_page(&bv, region->pages[at >> PAGE_SHIFT],
		      min_t(u64, ((u64)region->run[at >> PAGE_SHIFT] << PAGE_SHIFT) -
				 offset_in_page(at), most),
		      offset_in_page(at));
	return bv;
}

/*
 * Resolves checked pieces to src->parts, which are zero, to be put even after an error. Returns 0,
 * -ENXIO: no such region, -EFAULT: outside of it.
 */
int kvblk_src_resolve(struct kvblk_regions *regions, const struct kvblk_piece *pieces,
		      struct kvblk_src *src);
void kvblk_parts_put(struct kvblk_part *parts, u32 nr);

/* ---- pin.c ---- */

/*
 * Finds the first stretch of a ring's buffer. Returns whether the buffer has gaps at page
 * boundaries only; a block driver's may not.
 */
bool kvblk_fixed_whole(struct kvblk_src *src);

#define KVBLK_FEW_PAGES	80	/* 256 KiB at any offset; a request and a header fill 8 KiB */

/* Payload of an operation as the device sees it. */
struct kvblk_mem {
	struct bio_vec *bv;		/* @nr vectors; bv[0] is for the record's header */
	/* pages to unpin; NULL: one stretch of a region or a ring's buffer, nothing to free */
	struct page **pages;
	struct page *tail;	/* kernel page for an end that is no multiple of a logical block */
	/* the caller's memory for the bytes in @tail: less than a logical block, so in one page */
	struct bio_vec tail_user;
	const struct kvblk_src *used;	/* has device regions in use, in its first @nr_used parts */
	u32 nr_used;
	u32 nr;
	u32 nr_pages;
	u32 media_bytes;		/* bytes in bv[1..], a multiple of 4 KiB */
	u32 bytes;			/* payload bytes in bv[1..]; the rest is padding */
	bool direct;	/* the caller's memory; otherwise kernel pages, one run per vector */
	bool dirty;
	bool p2p;	/* some pages are a PCI device's, which the CPU must not touch */
	bool shared;	/* the device writes memory that others may use; see kvblk_mem_map() */
	struct bio_vec few_bv[KVBLK_FEW_PAGES + 2];
	struct page *few_pages[KVBLK_FEW_PAGES];
};

/* Returns the vectors of the payload. */
static inline struct bvec_iter kvblk_mem_payload(const struct kvblk_mem *mem)
{
	return (struct bvec_iter) { .bi_idx = 1, .bi_size = mem->bytes };
}

/* Removes at most @size bytes from @rest. Returns these. */
static inline struct bvec_iter kvblk_part_next(const struct bio_vec *bv, struct bvec_iter *rest,
					       u32 size)
{
	struct bvec_iter part = *rest;

	part.bi_size = min(rest->bi_size, size);
	bvec_iter_advance(bv, rest, part.bi_size);
	return part;
}

/*
 * Returns whether the first @bytes are one stretch of a region or a ring's buffer, of whole units,
 * that every member of the pool can transfer directly: the usual case.
 */
static inline bool kvblk_src_single(const struct kvblk_src *src, u32 bytes,
				    struct kvblk_align align)
{
	return bytes && bytes <= src->first.bv_len &&
	       !(bytes & (align.len_mask | (KVBLK_UNIT - 1))) &&
	       !(src->first.bv_offset & align.addr_mask);
}

/* Implements kvblk_src_fits() for any parts. */
bool kvblk_parts_fit(const struct kvblk_src *src, u32 bytes, struct kvblk_align align);
/* Returns whether every member of the pool can transfer the caller's memory directly. */
static inline bool kvblk_src_fits(const struct kvblk_src *src, u32 bytes, struct kvblk_align align)
{
	return kvblk_src_single(src, bytes, align) || kvblk_parts_fit(src, bytes, align);
}

/*
 * Faults in the first @bytes, without touching a byte; a user-space pager may take any time.
 * Returns 0, even if some are left, or -EINTR.
 */
int kvblk_src_fault_in(const struct kvblk_src *src, u32 bytes, bool write);
/*
 * Pins and maps the first @bytes of the caller's memory, without page faults. Returns 0, -EFAULT:
 * not resident, -ENXIO: region gone, -ENOMEM.
 *
 * A detached operation may leave anonymous pages to its device: a fork copies pages that are pinned
 * for writing, so no other task gets them before they are unpinned. All other memory that a device
 * writes is @mem->shared: files, shmem, devices, regions of another address space, rings' buffers,
 * shared address spaces. Its operation must not be reported as complete before its bios are.
 */
int kvblk_mem_map(struct kvblk_mem *mem, const struct kvblk_src *src, u32 bytes,
		  bool write, struct kvblk_align align);
/*
 * Allocates kernel memory for a payload. @whole: the caller overwrites all @bytes, so only the
 * padding is cleared. Returns 0 or -ENOMEM. May sleep.
 */
int kvblk_mem_alloc(struct kvblk_mem *mem, u32 bytes, bool whole);
/* Copies @bytes at byte @skip of @bv from (@in) or to the caller. Returns 0, -EFAULT or -ENXIO. */
int kvblk_vectors_copy(const struct bio_vec *bv, u32 skip, u32 bytes,
		       const struct kvblk_src *src, bool in);
/* Copies @len bytes in and seals their chunks. Returns as kvblk_vectors_copy(). */
int kvblk_vectors_seal_in(u8 integrity, const struct bio_vec *bv, u32 len,
			  const struct kvblk_src *src, __le32 *crcs);
/*
 * Opens chunks of a payload of @len, each before its bytes are copied out, to byte @to of the
 * caller's memory. Returns 0, or -EFAULT, -ENXIO or -EBADMSG with some of it copied.
 */
int kvblk_vectors_open_out(u8 integrity, const struct bio_vec *bv, u32 len, u32 skip, u32 bytes,
			   const struct kvblk_src *src, u32 to, const __le32 *crcs);
/* Writes @bytes at byte @skip of the caller's memory. Returns 0, -EFAULT or -ENXIO. */
int kvblk_src_write(const struct kvblk_src *src, u32 skip, void *from, u32 bytes);
/* Clears the first @bytes, as far as accessible. Returns whether all were. */
bool kvblk_src_zero(const struct kvblk_src *src, u32 bytes);
/* Copies to a user address; takes page faults only if @fault. Returns 0 or -EFAULT. */
int kvblk_user_write(u64 addr, const void *from, u32 bytes, bool fault);
/* Returns whether the first page of a part is a device's, and its address @addr. */
bool kvblk_src_device(const struct kvblk_src *src, bool write, phys_addr_t *addr);
/* Copies the tail to the caller after a direct read. */
void kvblk_mem_tail_out(struct kvblk_mem *mem);
void kvblk_mem_zero(struct kvblk_mem *mem);
void __kvblk_mem_free(struct kvblk_mem *mem);
static inline void kvblk_mem_free(struct kvblk_mem *mem)
{
	if (mem->pages) {
		__kvblk_mem_free(mem);
		return;
	}
	/* of one stretch nothing else was set */
	mem->nr = 0;
	mem->media_bytes = 0;
	mem->bytes = 0;
	mem->direct = false;
	mem->shared = false;
}

#endif
