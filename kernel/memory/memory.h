/* SPDX-License-Identifier: GPL-2.0 */
/* Callers' memory: budgets, registered regions, what an operation names and maps. */
#ifndef KVBLK_MEMORY_H
#define KVBLK_MEMORY_H

#include "kvblk.h"

/* ---- budget ---- */

/**
 * struct kvblk_budget - memory charged to an open file
 * @held: bytes that outlive the bios of operations, or need none
 * @detached: bytes in @held of detached operations
 * @moved: jiffies of the last return of bytes
 * @wait: operations that wait for the budget
 */
struct kvblk_budget {
	atomic64_t held;
	atomic64_t detached;
	unsigned long moved;
	wait_queue_head_t wait;
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

/**
 * struct kvblk_region - memory that a file has registered; see region.c
 * @refs: one for the file, one for each operation
 * @rcu: frees the region
 * @device: memory of a PCI device
 * @private: all of it is anonymous memory of @mm
 * @gone: the device mapping was removed, the region cannot be used
 * @closing: no operation may start to use the region, because a task waits
 * @waiting: a task waits until no operation uses the region; xa_lock
 * @nr_pages: number of @pages
 * @mm: address space that the memory was registered from
 * @user: host memory: user whose locked memory is charged
 * @charged: pages charged to @user
 * @addr: address in @mm
 * @length: bytes
 * @pins: device memory: keeps @pages pinned; one until @gone, one for each user
 * @notifier: device memory: called when the mapping changes
 * @run: number of contiguous pages, from each page on
 * @pages: pinned pages
 */
struct kvblk_region {
	refcount_t refs;
	struct rcu_head rcu;
	bool device;
	bool private;
	bool gone;
	bool closing;
	bool waiting;
	u32 nr_pages;
	u64 addr;
	u64 length;
	struct mm_struct *mm;
	struct user_struct *user;
	u64 charged;
	refcount_t pins;
#ifdef CONFIG_MMU_NOTIFIER
	struct mmu_interval_notifier notifier;
#endif
	u32 *run;
	struct page *pages[];
};

/*
 * Registers and pins @length bytes at @addr; host memory is charged to RLIMIT_MEMLOCK.
 * Returns 0, -EINVAL, -ENOMEM (also for that limit), -EFAULT, -EXDEV (neither all host memory
 * nor all of one device), -ENOSPC (too many regions), -EINTR. May sleep.
 */
int kvblk_region_add(struct xarray *regions, u64 addr, u64 length, u32 *handle);
/* Unregisters a region; operations keep a reference. Returns 0 or -ENOENT. May sleep. */
int kvblk_region_remove(struct xarray *regions, u32 handle);
/*
 * Unregisters a region when no operation uses it, and prevents new ones. Returns 0; -ENOENT;
 * -ERESTARTSYS: still registered; -EBUSY: another task waits.
 */
int kvblk_region_wait(struct xarray *regions, u32 handle);
void kvblk_region_remove_all(struct xarray *regions);
void kvblk_region_put(struct kvblk_region *region);
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

/**
 * struct kvblk_part - a resolved &struct kvblk_piece
 * @kind: &enum kvblk_part_kind
 * @region: region with a reference, or NULL
 * @addr: user address, or offset in @region
 * @length: bytes
 */
struct kvblk_part {
	enum kvblk_part_kind kind;
	struct kvblk_region *region;
	u64 addr;
	u64 length;
};

struct kvblk_piece;

/*
 * Resolves checked pieces to @nr zeroed parts. Returns 0, -ENXIO: no such region, -EFAULT:
 * outside of it. The parts must be put in any case.
 */
int kvblk_parts_resolve(struct xarray *regions, const struct kvblk_piece *pieces,
			struct kvblk_part *parts, u32 nr);
void kvblk_parts_put(struct kvblk_part *parts, u32 nr);

/* ---- pin.c ---- */

/*
 * struct kvblk_src - memory that an operation names
 * @parts: array of @nr
 * @fixed: iterator of io_uring_cmd_import_fixed(), for a KVBLK_PART_FIXED
 * @fault: page faults are allowed; otherwise non-resident memory is -EFAULT
 */
struct kvblk_src {
	struct kvblk_part *parts;
	const struct iov_iter *fixed;
	u32 nr;
	bool fault;
};

/* Returns whether a ring's buffer has gaps at page boundaries only; a block driver's may not. */
bool kvblk_fixed_whole(const struct kvblk_src *src);

/* 256 KiB at any offset; a request and a header fill 8 KiB */
#define KVBLK_FEW_PAGES		80

/*
 * struct kvblk_mem - payload of an operation as the device sees it
 * @bv: @nr vectors; bv[0] is for the record's header
 * @media_bytes: bytes in bv[1..], a multiple of 4 KiB
 * @bytes: payload bytes in bv[1..]; the rest is padding
 * @pages: pages to unpin
 * @direct: the vectors are the caller's memory; otherwise kernel pages, one run per vector
 * @p2p: some pages are a PCI device's, which the CPU must not touch
 * @shared: the device writes to memory that others may use when the caller has exited, see
 *	kvblk_mem_map()
 * @tail: kernel page for an end that is no multiple of a logical block
 * @tail_user: the caller's memory for the payload bytes in @tail
 * @used: source of the device regions in use, among its first @nr_used parts
 */
struct kvblk_mem {
	struct bio_vec *bv;
	struct page **pages;
	struct page *tail;
	struct bio_vec tail_user;
	const struct kvblk_src *used;
	u32 nr_used;
	u32 nr;
	u32 nr_pages;
	u32 media_bytes;
	u32 bytes;
	bool direct;
	bool dirty;
	bool p2p;
	bool shared;
	struct bio_vec few_bv[KVBLK_FEW_PAGES + 2];
	struct page *few_pages[KVBLK_FEW_PAGES];
};

/* Returns whether every member of the pool can transfer the caller's memory directly. */
bool kvblk_src_fits(const struct kvblk_src *src, u32 bytes, struct kvblk_align align);
/*
 * Takes page faults for user memory in the first @bytes, without touching a byte. A
 * user-space pager may take any time. Returns 0, even if not all became resident, or -EINTR.
 */
int kvblk_src_fault_in(const struct kvblk_src *src, u32 bytes, bool write);
/*
 * Pins and maps the first @bytes of the caller's memory, without page faults. Returns 0,
 * -EFAULT: not resident, -ENXIO: region gone, -ENOMEM.
 *
 * Anonymous pages that were pinned for writing are private to the caller's address space: a
 * fork copies them. After the caller has exited, no other task can get them before they are
 * unpinned. So a detached operation may leave such pages to its device. All other memory that
 * a device writes is @mem->shared: files, shmem, devices, regions of another address space,
 * buffers of rings, address spaces that processes share. Such an operation must not be
 * reported as complete before its bios are.
 */
int kvblk_mem_map(struct kvblk_mem *mem, const struct kvblk_src *src, u32 bytes,
		  bool write, struct kvblk_align align);
int kvblk_mem_alloc(struct kvblk_mem *mem, u32 bytes);
/*
 * Copies @bytes, from byte @skip of the vectors @bv on, from (@in) or to the caller. Returns
 * 0, -EFAULT or -ENXIO.
 */
int kvblk_vectors_copy(struct bio_vec *bv, u32 skip, u32 bytes,
		       const struct kvblk_src *src, bool in);
/* Copies @len bytes in and sums their chunks to @crcs. Returns 0, -EFAULT or -ENXIO. */
int kvblk_vectors_sum_in(struct bio_vec *bv, u32 len, const struct kvblk_src *src,
			 __le32 *crcs);
/*
 * Copies @bytes from byte @skip of a payload of @len out, and verifies their chunks against
 * @crcs. Returns 0, or -EFAULT, -ENXIO or -EBADMSG with some of it copied.
 */
int kvblk_vectors_check_out(struct bio_vec *bv, u32 len, u32 skip, u32 bytes,
			    const struct kvblk_src *src, const __le32 *crcs);
/* Copies the payload in; returns as kvblk_vectors_copy(). */
int kvblk_mem_copy_in(struct kvblk_mem *mem, const struct kvblk_src *src);
/* Writes @bytes at byte @skip of the caller's memory. Returns 0, -EFAULT or -ENXIO. */
int kvblk_src_write(const struct kvblk_src *src, u32 skip, void *from, u32 bytes);
/* Clears the first @bytes, as far as accessible. Returns whether all were. */
bool kvblk_src_zero(const struct kvblk_src *src, u32 bytes);
/* Copies to a user address; takes page faults only if @fault. Returns 0 or -EFAULT. */
int kvblk_user_write(u64 addr, const void *from, u32 bytes, bool fault);
/* Returns whether the first page of a part is a device's, and its address @addr. */
bool kvblk_src_device(const struct kvblk_src *src, bool write, phys_addr_t *addr);
int kvblk_mem_copy_out(struct kvblk_mem *mem, u32 skip, u32 bytes,
		       const struct kvblk_src *src);
/* Copies the tail to the caller after a direct read. */
void kvblk_mem_tail_out(struct kvblk_mem *mem);
void kvblk_mem_zero(struct kvblk_mem *mem);
void kvblk_mem_free(struct kvblk_mem *mem);

#endif
