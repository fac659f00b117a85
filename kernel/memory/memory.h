/* SPDX-License-Identifier: GPL-2.0 */
/* A caller's memory: what was registered, what an operation names, what it may hold. */
#ifndef KVBLK_MEM_H
#define KVBLK_MEM_H

#include "kvblk.h"

/* ---- budget ---- */

/**
 * struct kvblk_budget - memory that an open file keeps from others
 * @held: bytes of all that outlives the bios of operations or does without any
 * @detached: bytes in @held of operations that were given up while their device goes on
 * @moved: time of the last return of bytes, jiffies
 * @wait: queue of operations that wait for room in the budget
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

/* Returns whether @bytes more are within @limit; the first ones always are. */
static inline bool kvblk_budget_fits(const struct kvblk_budget *budget, u64 bytes, u64 limit)
{
	u64 held = atomic64_read(&budget->held);

	return !held || held + bytes <= limit;
}

/* Takes @bytes, whatever the limit is. */
static inline void kvblk_budget_add(struct kvblk_budget *budget, u64 bytes)
{
	atomic64_add(bytes, &budget->held);
}

/* Takes @bytes. Returns false, with nothing taken, if they are beyond @limit. */
static inline bool kvblk_budget_take(struct kvblk_budget *budget, u64 bytes, u64 limit)
{
	u64 held = atomic64_add_return(bytes, &budget->held);

	if (held == bytes || held <= limit)
		return true;
	atomic64_sub(bytes, &budget->held);
	return false;
}

/* Returns @bytes to the budget and wakes operations that wait for them. Any context. */
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
 * @refs: the file's, and of operations
 * @rcu: frees it
 * @device: it is a PCI device's
 * @private: of the host's: all of it is anonymous memory of @mm
 * @gone: it can't be used any more, for its mapping has gone
 * @closing: it is not used by operations from now on, for somebody is
 * @waiting: until it is used by none, or was; the array's lock
 * @nr_pages: in @pages
 * @mm: whose memory it is
 * @user: of the host's: whose locked memory,
 * @charged: pages
 * @addr: where the caller has mapped it, or had
 * @length: bytes
 * @pins: of a device's: why pages are pinned: it is not gone, and uses
 * @notifier: of a device's, tells when the mapping goes
 * @run: pages side by side, from each one on
 * @pages: pinned
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
 * Pins @length bytes at @addr of the caller; the host's count as locked memory of
 * its user. -EINVAL, -ENOMEM (RLIMIT_MEMLOCK too), -EFAULT, -EXDEV (not all of the
 * host or of one device), -ENOSPC (too many regions), -EINTR. May sleep.
 */
int kvblk_region_add(struct xarray *regions, u64 addr, u64 length, u32 *handle);
/* -ENOENT. Operations under way keep it. May sleep. */
int kvblk_region_remove(struct xarray *regions, u32 handle);
/*
 * The same when no operation uses it: none begins to. -ERESTARTSYS: it is still there;
 * -EBUSY: somebody waits already.
 */
int kvblk_region_wait(struct xarray *regions, u32 handle);
void kvblk_region_remove_all(struct xarray *regions);
void kvblk_region_put(struct kvblk_region *region);
/* The page at @user is a device's, which GUP finds with FOLL_ flags @gup: at @addr. */
bool kvblk_user_device(u64 user, unsigned int gup, phys_addr_t *addr);
/* A device's: its pages stay pinned until kvblk_region_unuse(). False: it is gone. */
bool kvblk_region_use(struct kvblk_region *region);
void kvblk_region_unuse(struct kvblk_region *region);

enum kvblk_part_kind {
	KVBLK_PART_USER,
	KVBLK_PART_REGION,
	KVBLK_PART_FIXED,		/* a buffer of the ring's: kvblk_src.fixed */
};

/**
 * struct kvblk_part - a &struct kvblk_piece, resolved
 * @kind: &enum kvblk_part_kind
 * @region: with its ref, or NULL
 * @addr: a user's address, or the offset in the region
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
 * Makes @nr parts, which are zero, of pieces, which have been checked. -ENXIO: no
 * such region; -EFAULT: not within it. To be put in any case.
 */
int kvblk_parts_resolve(struct xarray *regions, const struct kvblk_piece *pieces,
			struct kvblk_part *parts, u32 nr);
void kvblk_parts_put(struct kvblk_part *parts, u32 nr);

/* ---- pin.c ---- */

/*
 * struct kvblk_src - the memory that an operation names
 * @parts: nr of them
 * @fixed: of a KVBLK_PART_FIXED, as io_uring_cmd_import_fixed() made it
 * @fault: page faults may be taken; without, what is not resident is -EFAULT
 */
struct kvblk_src {
	struct kvblk_part *parts;
	const struct iov_iter *fixed;
	u32 nr;
	bool fault;
};

/* A ring's buffer has gaps at page boundaries only: a block driver's may have others. */
bool kvblk_fixed_whole(const struct kvblk_src *src);

/* 256 KiB, wherever they begin; a request and a header fill 8 KiB */
#define KVBLK_FEW_PAGES		80

/*
 * struct kvblk_mem - the payload of an operation as the device sees it
 * @bv: vectors, @nr of them; bv[0] is left free for the record's header
 * @media_bytes: bytes in bv[1..], a multiple of 4 KiB
 * @bytes: payload bytes in them; the rest is padding
 * @pages: pinned, to be unpinned
 * @direct: the caller's memory; else kernel pages, one run for each vector
 * @p2p: some of it is a PCI device's: the CPU keeps off it
 * @shared: the device writes to it, and others may use it when its caller has gone:
 *	see kvblk_mem_map()
 * @tail: a kernel page for the end that is no multiple of a logical block
 * @tail_user: where the payload bytes in @tail belong
 * @used: those of the first @nr_used parts that are a device's regions are in use
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
	struct bio_vec few_bv[KVBLK_FEW_PAGES + 2];	/* room for short ones */
	struct page *few_pages[KVBLK_FEW_PAGES];
};

/* The caller's memory lets every member of the pool transfer directly. */
bool kvblk_src_fits(const struct kvblk_src *src, u32 bytes, struct kvblk_align align);
/*
 * Brings in what of the first @bytes is user memory, as far as it is there, and
 * touches no byte. May take as long as a user-space pager likes. 0 or -EINTR.
 */
int kvblk_src_fault_in(const struct kvblk_src *src, u32 bytes, bool write);
/*
 * The first @bytes of the caller's memory, pinned. 0; -EFAULT: it is not there, or
 * not now; -ENXIO: its region is gone; -ENOMEM. Takes no page faults.
 *
 * Anonymous pages that were pinned for writing are private to the address space of
 * the caller: after a fork the child has copies. When the caller has gone, nobody
 * else can have them before they are unpinned, so an operation that was given up may
 * leave them to its device. All other memory that is written is @mem->shared: of a
 * file, of shmem, of a device, of a region that another address space registered, of
 * a ring, of an address space that processes share. Nobody may believe that such an
 * operation is over before its bios are.
 */
int kvblk_mem_map(struct kvblk_mem *mem, const struct kvblk_src *src, u32 bytes,
		  bool write, struct kvblk_align align);
/* Allocates kernel pages for @bytes. */
int kvblk_mem_alloc(struct kvblk_mem *mem, u32 bytes);
/*
 * Copies @bytes, from byte @skip of the kernel's memory in @bv on, from (@in) or to the
 * caller's. 0, -EFAULT, -ENXIO.
 */
int kvblk_vectors_copy(struct bio_vec *bv, u32 skip, u32 bytes,
		       const struct kvblk_src *src, bool in);
/* Copies a payload of @len bytes in, and sums its chunks into @crcs. 0, -EFAULT, -ENXIO. */
int kvblk_vectors_sum_in(struct bio_vec *bv, u32 len, const struct kvblk_src *src,
			 __le32 *crcs);
/*
 * Copies @bytes from byte @skip of a payload of @len on out, and compares the chunks that
 * they lie in with @crcs. 0; -EFAULT, -ENXIO, -EBADMSG: some of it has been copied.
 */
int kvblk_vectors_check_out(struct bio_vec *bv, u32 len, u32 skip, u32 bytes,
			    const struct kvblk_src *src, const __le32 *crcs);
/* The same of bounce pages, without sums, as kvblk_vectors_copy(). */
int kvblk_mem_copy_in(struct kvblk_mem *mem, const struct kvblk_src *src);
/* Writes @bytes from byte @skip of the caller's memory on. 0, -EFAULT, -ENXIO. */
int kvblk_src_write(const struct kvblk_src *src, u32 skip, void *from, u32 bytes);
/* Clears what can be reached of the first @bytes. Returns whether that is all of them. */
bool kvblk_src_zero(const struct kvblk_src *src, u32 bytes);
/* The same at a user address; without @fault, no page fault is taken. */
int kvblk_user_write(u64 addr, const void *from, u32 bytes, bool fault);
/* A device's memory is in it, as far as the parts' first pages tell: at @addr. */
bool kvblk_src_device(const struct kvblk_src *src, bool write, phys_addr_t *addr);
int kvblk_mem_copy_out(struct kvblk_mem *mem, u32 skip, u32 bytes,
		       const struct kvblk_src *src);
/* After a direct read: copies the tail to where it belongs. */
void kvblk_mem_tail_out(struct kvblk_mem *mem);
void kvblk_mem_zero(struct kvblk_mem *mem);
void kvblk_mem_free(struct kvblk_mem *mem);

#endif
