/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An operation has two halves. The media half, struct kvblk_media, belongs to a member: segment,
 * reservation, WRITING slot, bios. It ends soon after the bios complete, whatever the caller does
 * meanwhile. The caller half is the rest: memory, copies, result. It may take as long as the caller
 * likes, and holds nothing that other operations need.
 *
 *   parse ─► start ─► bios ─► finish ─► result
 *            │  ▲               │  ▲
 *            ▼  │ kvblk_req_wait│  │ bios again, or a second call:
 *           -EAGAIN             ▼  │ the media half, then the caller half
 *
 * Puts, gets and deletes differ in struct kvblk_op_type; batches and rings in the callbacks
 * @completed and @release.
 */
#ifndef KVBLK_REQUEST_H
#define KVBLK_REQUEST_H

#include <linux/fs.h>
#include <linux/kvblk.h>

#include "memory/memory.h"
#include "ops/ownership.h"
#include "ops/put_judge.h"
#include "p2p/p2p.h"
#include "pool/pool.h"

struct kvblk_file {
	/* operations only read the first fields, so the others have lines of their own */
	struct kvblk_pool *pool;
	fmode_t mode;			/* open for FMODE_READ, FMODE_WRITE */
	u16 tenant;
	struct kvblk_account *account;	/* of @tenant */
	siphash_key_t key;
	struct kvblk_drainer *drainer;	/* drain counters of the file's operations */
	struct kvblk_regions regions;
	/* the open file, operations that hold some of @budget */
	refcount_t refs ____cacheline_aligned_in_smp;
	struct kvblk_budget budget;	/* memory charged to this file, see kvblk_file_limit() */
	/* protects reqs */
	spinlock_t lock ____cacheline_aligned_in_smp;
	struct list_head reqs;		/* operations with a cookie that have not completed */
	struct mutex lease_lock;	/* protects the fields below, up to leased_bytes */
	struct xarray leases;		/* by id */
	u64 next_lease;
	u32 nr_leased;
	u64 leased[KVBLK_LEASE_PLACES];	/* bytes by place, see ops/lease.c */
	u64 leased_bytes;
	struct kvblk_opener opener;
};

/* Returns whether the file's pool goes away, or its tenant was removed: calls return -ENODEV. */
static inline bool kvblk_file_ended(const struct kvblk_file *file)
{
	return percpu_ref_is_dying(&file->pool->users) || READ_ONCE(file->opener.ended);
}

/* Returns the limit of file->budget, which is what one batch may have in flight. */
static inline u64 kvblk_file_limit(const struct kvblk_file *file)
{
	return READ_ONCE(file->pool->tun.queue_bytes);
}

struct kvblk_drainer_count {
	u64 started[2];			/* number of operations, by phase */
	u64 completed[2];
};

/* Drain counters of an open file; see ops/drain.c. */
struct kvblk_drainer {
	refcount_t refs;		/* the file; detached operations, which may outlive it */
	struct mutex draining;		/* held while a task drains; phase, drains, drained */
	u8 phase;			/* phase in which new operations are counted */
	u64 drains;			/* number of drains that started */
	u64 drained;			/* number of the last drain that succeeded */
	struct kvblk_drainer_count __percpu *counts;
};

/* Context that finishes an operation. */
enum kvblk_by {
	KVBLK_BY_CALLER,		/* the caller's task; may touch the caller's memory */
	KVBLK_BY_MEMBER,		/* a work, as the caller's task does not run: media half */
	KVBLK_BY_NOBODY,		/* a work, as the caller exited or detached the operation */
};

/*
 * The next step of a get:
 *
 *   FIND ─┬─► INFLIGHT ─► CHECKED ─► COPY or SUMS ─► DONE
 *         └─► RECALL ─► COPY or SUMS, from DRAM; INFLIGHT if DRAM dropped the block
 *
 * An unusable read leads from CHECKED to AGAIN, then INFLIGHT or, from DRAM, COPY or SUMS.
 */
enum kvblk_read_state {
	KVBLK_READ_FIND,		/* find the block and start the read */
	KVBLK_READ_INFLIGHT,		/* verify what was read, once the bios have completed */
	KVBLK_READ_CHECKED,		/* end the read; a bounce may be in flight again */
	KVBLK_READ_RECALL,		/* find the block in DRAM again, see read/source_dram.c */
	KVBLK_READ_AGAIN,		/* find and read the block again, through kernel memory */
	KVBLK_READ_COPY,		/* copy the verified block to the caller */
	KVBLK_READ_SUMS,		/* copy the checksums, the payload is delivered */
	KVBLK_READ_DONE,		/* nothing, the get has its result */
};

struct kvblk_read {
	const struct kvblk_source *source; /* where the block is, see read/read.h */
	const struct kvblk_sink *sink;	/* where the payload goes */
	u32 from;			/* first payload byte read, a multiple of the chunk size */
	u32 want;			/* bytes to deliver to the caller */
	u64 layout_tag;			/* with KVBLK_OPF_LAYOUT: tag that the block must have */
	u8 state;			/* &enum kvblk_read_state */
	u8 miss;			/* reason of a miss, &enum kvblk_counter */
	bool alone;			/* read it in requests of its own */
	bool unread;			/* dropped while waiting for its tenant's share */
	bool shared;			/* looks for the shared tenant's block: req->id, ->tenant */
};

/* A table page that is to prove a read of a foreign member. */
struct kvblk_table_proof {
	struct bio_vec bv;
	struct kvblk_d_table *slots;	/* both */
};

struct kvblk_media {
	struct kvblk_io io;
	bool begun;			/* the media half is active and holds pool->users */
	struct kvblk_flash *flash;	/* get: the block's, referenced while @begun */
	struct kvblk_member *member;	/* get, put: the block's, referenced while @begun */
	struct kvblk_segment *seg;	/* of @member, or NULL */
	struct kvblk_foreign *foreign;	/* get: of @flash if foreign, or NULL */
	struct kvblk_table_proof *proof; /* get: proves a read of @foreign, or NULL */
	u64 gen;			/* of the block's segment */
	struct kvblk_stats __percpu *stats; /* the member's, valid even after its removal */
	struct kvblk_reservation resv;	/* put: reservation in an open segment */
	struct kvblk_queued_io queued;	/* put: queued write; get: read waiting for a share */
	bool durable;			/* put: written past volatile write caches */
	struct kvblk_sums *sums;	/* get: checksums of what was read, or NULL */
	struct kvblk_bounce *bounce;	/* get: chunk of an incremental bounce, or NULL */
	struct kvblk_trial *trial;	/* get: trial of a P2P route, see p2p/route.c */
	struct list_head sharing;	/* entry of completions->sharing */
	u64 number;			/* position in completions->sharing */
	const void *files;		/* submitter's files_struct while @sharing, or NULL */
};

struct kvblk_req;

struct kvblk_op_type {
	u32 flags;			/* supported KVBLK_OPF_* */
	fmode_t mode;			/* FMODE_* that the node must be open for */
	bool reads;			/* reads the caller's memory */
	bool writes;			/* writes the caller's memory */
	bool commits;			/* takes place once in flight: too late to cancel */
	/*
	 * Returns 0: in flight; 1: complete, see req->result; -EAGAIN: must wait for space, another
	 * operation or memory, then be started again. Unless 0, the caller ends the media half
	 */
	int (*start)(struct kvblk_req *req);
	/* waits after -EAGAIN, unless for memory, at most @step jiffies; < 0: task killed */
	long (*wait)(struct kvblk_req *req, long step);
	int (*give_up)(struct kvblk_req *req); /* result after too long a wait; NULL: -EIO */
	/*
	 * after the bios; task context. Returns 1: complete; 0: in flight again, owned by the bios;
	 * -EAGAIN: finish the caller half, too, with req->src.fault if @wants_fault
	 */
	int (*finish)(struct kvblk_req *req, enum kvblk_by by);
};

extern const struct kvblk_op_type kvblk_op_put;
extern const struct kvblk_op_type kvblk_op_get;
extern const struct kvblk_op_type kvblk_op_delete;
extern const struct kvblk_op_type kvblk_op_prefetch;
extern const struct kvblk_op_type kvblk_op_hint;

/* Flags that ask for a hint. */
#define KVBLK_OPF_HINTS	(KVBLK_OPF_PRIORITY | KVBLK_OPF_RETAIN | KVBLK_OPF_DEMOTE | \
				 KVBLK_OPF_RELEASE)

struct kvblk_write {
	struct kvblk_id parent;		/* id of the block before this one, or 0 */
	u64 layout_tag;
	u64 caller_tag;
	u32 hints;			/* &enum kvblk_hints */
	u32 chain;			/* @chain to @continues: see struct kvblk_dram_block */
	u64 offer_parent;
	bool continues;
	bool asked;			/* the admission policy was asked */
	bool declined;			/* the policy declined */
	u8 older;			/* &enum kvblk_older */
	bool cleared;			/* an older block was removed */
	bool stable;			/* pool->stable_writes when the memory was prepared */
	struct kvblk_align align;	/* pool->align when the memory was prepared */
	bool no_p2p;			/* do not transfer from device memory directly */
	bool summed;			/* the header has the payload's checksums, if any */
	bool sealed;			/* the memory is encrypted, with the tags in the header */
	bool replaces;			/* the put takes over the entry of the same block, @old */
	struct kvblk_slot old;		/* replaces: the entry replaced, MOVING; else scratch */
	struct kvblk_segment *old_seg;	/* segment of @old, with a reference, or NULL */
	struct kvblk_member *old_member; /* of @old_seg */
	int write_errors;		/* member->flash.write_errors before the write */
	u32 quota;			/* units reserved in the tenant's account, or 0 */
	bool failed;			/* the write failed; the put's task may retry */
	u8 tries;			/* number of failed writes */
	u8 avoid;			/* slot of the member that failed the last write */
};

struct kvblk_erase {
	bool stale;			/* an older record may come back */
	bool own_only;			/* another node asked: its block is here or nowhere */
	bool asks;			/* the block is foreign: the wait step asks the owner */
	bool refused;			/* the owner cannot be asked */
	bool answered;			/* the owner was asked, and @answer is the result */
	int answer;
};

struct kvblk_batch;

/* Completion of a ring's operation; small enough for registers. */
struct kvblk_completion {
	s32 res;
	u64 extra;			/* extra word of a large one */
};

struct kvblk_req {
	struct list_head file_link;	/* file->reqs; initialized by req_construct() */
	struct kvblk_ownership ownership;
	struct kvblk_media media;
	const struct kvblk_op_type *type;
	struct kvblk_pool *pool;
	struct kvblk_account *account;	/* of @tenant */
	struct kvblk_batch *batch;	/* NULL for a ring's operation */
	struct io_uring_cmd *cmd;
	/* notifies the submitter, which has to finish the request; any context */
	void (*completed)(struct kvblk_req *req);
	void (*release)(struct kvblk_req *req);	/* frees a detached request after its bios */
	/* under file->lock, with @canceled set: completes now if its memory is the kernel's */
	void (*cancel)(struct kvblk_req *req);
	/* cmd: returns the completion that reports @result. @user: may touch the caller's memory */
	struct kvblk_completion (*fill_result)(const struct kvblk_req *req,
					       const struct kvblk_result *result, bool user);
	refcount_t refs;		/* cmd: one for the command, one for its bios */
	struct kvblk_file *owner;	/* valid while open, or while @held is not 0 */
	struct kvblk_drainer *drainer;	/* NULL: only carries a result */
	struct list_head link;		/* batch->done, batch->faulting */
	struct work_struct work;
	bool canceled;			/* set with WRITE_ONCE() by KVBLK_IOC_CANCEL */
	/* memory is not resident; hold nothing during src.fault, as a pager may take any time */
	bool wants_fault;
	u16 tenant;
	u32 header_bytes;
	u32 bytes;			/* length of all pieces */
	u32 partly;			/* get: bytes at @src that its task clears if it fails */
	u32 expiry;
	u32 charged;			/* bytes in batch->bytes_inflight */
	u32 held;			/* bytes in owner->budget, with a reference */
	u32 wants_memory;		/* bytes to wait for in owner->budget */
	u8 integrity;
	bool device;			/* some of the memory is a device's */
	bool revocable;			/* get: may be detached, must not map shared memory */
	bool coming;			/* @block is not in the pool's table yet */
	bool parks;			/* prefetch: keep @block until the batch is submitted */
	bool parked;			/* prefetch: kept, not evictable; holds pool->users */
	u8 drain_phase;			/* phase of @drainer that counts it */
	ktime_t start;
	struct kvblk_op op;		/* cmd: @result is 0 if it cannot be written */
	struct kvblk_result result;
	struct kvblk_id id;
	struct kvblk_src src;
	struct iov_iter fixed;
	struct delayed_work deadline;
	void *header;			/* header_bytes, physically contiguous */
	struct kvblk_slot slot;		/* index entry found (get, delete) or made (put) */
	struct kvblk_part part;		/* src.parts of a single part */
	u64 crcs_addr;			/* caller's array of checksums, or 0 */
	u32 crcs_room;			/* bytes of that array */
	u32 space_seq;
	bool throttled;			/* put, prefetch: waits for a member's write throttle */
	bool woken;			/* by new space: call kvblk_space_passes() unless short */
	union {				/* by @type, private to its files */
		struct kvblk_read read;	/* get, prefetch */
		struct kvblk_write write;	/* put */
		struct kvblk_erase erase;	/* delete */
	};
	struct kvblk_question *question; /* delete: to the block's owner, or NULL */
	struct kvblk_dram_block *block;	/* DRAM block with a reference, or NULL */
	__le32 *crcs;			/* put: the caller's checksums; get: those to return */
	ktime_t waiting;		/* start of the wait, or 0 */
	struct kvblk_mem mem;		/* not zeroed from few_bv on */
	u8 key[KVBLK_KEY_MAX];
};

/* ---- chardev/parse.c -------------------------------------------------- */

/* Converts a deadline, not 0, of CLOCK_MONOTONIC, which time namespaces shift, to ktime_get(). */
u64 kvblk_deadline(u64 theirs);
/* Converts a time of ktime_get() to the caller's CLOCK_MONOTONIC. */
u64 kvblk_time_out(u64 ns);
/* copy_struct_from_user() with the size that @from begins with. Returns -EINVAL if below @least. */
int kvblk_struct_read(void *to, size_t size, size_t least, const void __user *from);
/* Makes a request, with any error in req->result.res. Returns NULL without memory. May sleep. */
struct kvblk_req *kvblk_req_new(struct kvblk_file *file, const struct kvblk_op *op,
				struct io_uring_cmd *cmd, unsigned int issue_flags);
/*
 * kvblk_req_new() for the kernel itself: @key and @pieces replace op->key and op->pieces, the
 * deadline is ktime_get()'s, extension, TTL and rights are not looked at.
 */
struct kvblk_req *kvblk_req_own(struct kvblk_file *file, const struct kvblk_op *op,
				const void *key, const struct kvblk_piece *pieces,
				struct io_uring_cmd *cmd, unsigned int issue_flags);
/* Makes a request of the kernel itself to delete an own block, or returns NULL. May sleep. */
struct kvblk_req *kvblk_req_delete(struct kvblk_file *file, struct kvblk_id id, u64 deadline_ns);

/* ---- ops/request.c: shared by all operations ---------------------------- */

int kvblk_req_init(void);
void kvblk_req_exit(void);
int kvblk_req_pool_init(struct kvblk_pool *pool);
void kvblk_req_pool_exit(struct kvblk_pool *pool);
/* Returns a request of zeroes but for @pool and empty lists, or NULL. May sleep if @gfp allows. */
struct kvblk_req *kvblk_req_alloc(struct kvblk_pool *pool, gfp_t gfp);
/* Frees a request and its memory. Task context. */
void kvblk_req_free(struct kvblk_req *req);
/* Frees the memory of a complete request early, because a batch may be long. */
void kvblk_req_trim(struct kvblk_req *req);
/* Returns as &kvblk_op_type.start, with the media half ended unless in flight. */
int kvblk_req_start(struct kvblk_req *req);
/* Waits after -EAGAIN; the batch has no I/O in flight. Returns 0: retry; -EINTR; or the result. */
int kvblk_req_wait(struct kvblk_req *req);
/* Called when bios submitted by &kvblk_op_type.finish have completed; any context. */
void kvblk_req_completed(struct kvblk_req *req);
/* Detaches a request: it may outlive the file. Returns as kvblk_ownership_detach(). Any context. */
bool kvblk_req_detach(struct kvblk_req *req);
/* Waits, killed or not, until no earlier ring operation of @files' owner writes shared memory. */
void kvblk_file_quiesce(struct kvblk_file *file, const void *files);
void kvblk_file_put(struct kvblk_file *file);

/* Ends media halves for tasks that do not run: after a second, or if much memory is pinned. */
void kvblk_rescue_work(struct work_struct *work);
/* Excludes the time since the bios' completion, in jiffies, from the latency of the request. */
void kvblk_req_waited(struct kvblk_req *req, unsigned long waited);
/* Excludes the time since the bios' completion from the latency of a claimed or taken request. */
static inline void kvblk_req_resume(struct kvblk_req *req)
{
	unsigned long waited = jiffies - req->ownership.since;

	/* the first tick may have begun long before */
	if (unlikely(waited >= 2))
		kvblk_req_waited(req, waited);
}

/* Returns whether an older record may come back, from a lost member or an unread segment. */
bool kvblk_pool_unsure(struct kvblk_pool *pool);
/* Return whether a get of @tenant would find the block; the second in any context. */
bool kvblk_block_present(struct kvblk_pool *pool, struct kvblk_id id, u16 tenant,
			 struct kvblk_slot *slot);
bool kvblk_slot_present(struct kvblk_pool *pool, u16 tenant, const struct kvblk_slot *slot);
/* Sets @id of the shared tenant's block of the key. Returns the tenant, or -1: none is shared. */
int kvblk_req_shared(const struct kvblk_req *req, struct kvblk_id *id);

/* ---- for implementations of operations ---- */

/* Returns whether payloads of the tenant are encrypted on members. */
static inline bool kvblk_req_encrypted(const struct kvblk_req *req)
{
	return unlikely(kvblk_tenant_encrypted(req->pool, req->tenant));
}

/* Returns false if the pool is going away. */
static inline bool kvblk_media_begin(struct kvblk_req *req)
{
	req->media.begun = percpu_ref_tryget_live(&req->pool->users);
	return req->media.begun;
}

void kvblk_media_end(struct kvblk_req *req);
/* Marks the request as in flight; bios to @flash (or NULL) may be submitted to media.io. */
void kvblk_media_submit(struct kvblk_req *req, struct kvblk_flash *flash);
/* Allocates the header of a record of @length bytes. Returns 0 or -ENOMEM. May sleep. */
int kvblk_req_header_alloc(struct kvblk_req *req, u32 length);
/*
 * Charges @bytes to the file's budget. Returns 0, or -EAGAIN with @wants_memory if a ring's
 * operation exceeds the budget, unless nothing is held or @must. Batches bound themselves and must
 * not wait, because the caller may have to reap its ring first.
 */
int kvblk_req_hold(struct kvblk_req *req, u32 bytes, bool must);
/* Allocates kernel memory for the payload. Returns as kvblk_req_hold(), or -ENOMEM. */
int kvblk_req_mem_alloc(struct kvblk_req *req, u32 bytes, bool must);
void kvblk_req_mem_drop(struct kvblk_req *req);
void kvblk_req_buffers_drop(struct kvblk_req *req);	/* header and payload memory */
/* As kvblk_req_mem_alloc(), but allocates a DRAM block, and returns -ENOSPC without memory. */
int kvblk_req_dram_block(struct kvblk_req *req, u32 length);
void kvblk_req_dram_block_drop(struct kvblk_req *req);
/* Copies @rec with its checksums, if any, into the block. Returns false without memory. */
bool kvblk_dram_block_describe(struct kvblk_dram_block *obj, const struct kvblk_rec *rec);
void kvblk_req_bounce_end(struct kvblk_req *req);
/* Returns whether the file's detached operations hold too much memory, as of a loop of cancels. */
static inline bool kvblk_req_crowded(const struct kvblk_req *req)
{
	return atomic64_read(&req->owner->budget.detached) > (s64)kvblk_file_limit(req->owner);
}

static inline bool kvblk_req_late(const struct kvblk_req *req)
{
	return req->op.deadline_ns && ktime_get_ns() >= req->op.deadline_ns;
}

/* Let others look for the space that woke @req, before it takes long or if it needs none. */
void kvblk_req_pass(struct kvblk_req *req);
/* Implement type->wait: until segments or write throttles have space, or members are restored. */
long kvblk_req_wait_space(struct kvblk_req *req, long step);
long kvblk_req_wait_restore(struct kvblk_req *req, long step);
int kvblk_req_expire(struct kvblk_req *req);
bool kvblk_slot_expired(const struct kvblk_pool *pool, const struct kvblk_slot *slot);
/* Returns whether @slot is a block of the tenant, even if its member does not respond. */
bool kvblk_slot_listed(struct kvblk_pool *pool, u16 tenant, const struct kvblk_slot *slot);
bool kvblk_slot_served(struct kvblk_pool *pool, const struct kvblk_slot *slot);
/* Counts a transfer of device memory, for kvblk_req_count_way(). */
void kvblk_req_count_device(struct kvblk_req *req);

static_assert(KVBLK_C_GET_BOUNCED - KVBLK_C_GET_DIRECT == 1);
static_assert(KVBLK_C_PUT_BOUNCED - KVBLK_C_PUT_DIRECT == 1);

/* Counts and notes how the payload moved. @to: counter of direct transfers, others are next. */
static inline void kvblk_req_count_way(struct kvblk_req *req, enum kvblk_counter to)
{
	/* a constant counter in each branch, because an array's bounds are checked */
	if (req->mem.direct) {
		kvblk_count_at(req->media.stats, to, 1);
		req->result.flags |= KVBLK_RES_DIRECT;
	} else {
		kvblk_count_at(req->media.stats, to + 1, 1);
		req->result.flags |= KVBLK_RES_BOUNCED;
	}
	if (unlikely(req->device))
		kvblk_req_count_device(req);
}

/* Returns whether the memory is a device's, at @addr. Cheaper than to pin all before a copy. */
bool kvblk_req_known_device(struct kvblk_req *req, phys_addr_t *addr);
/* Notes that device memory was mapped, so that kvblk_req_known_device() looks for it. */
void kvblk_req_saw_device(struct kvblk_req *req);

/* Completes an operation that has no result yet. Returns 1. */
static inline int kvblk_req_over(struct kvblk_req *req, int res)
{
	req->result.res = res;
	return 1;
}

/* Returns whether the task must stop waiting: killed, or a worker of a ring that exits. */
static inline bool kvblk_interrupted(void)
{
	return fatal_signal_pending(current) ||
	       ((current->flags & PF_IO_WORKER) && test_thread_flag(TIF_NOTIFY_SIGNAL));
}

/* ---- ops/admit.c -------------------------------------------------------- */

/* Has the policy admit a part of a chain, the puts among @reqs. Returns 0 or -ENOMEM. May sleep. */
int kvblk_puts_admit(struct kvblk_pool *pool, struct kvblk_req *const *reqs, u32 nr);
/* Returns whether a member may write the put's block. Asks the policy, unless it was asked. */
bool kvblk_put_admit(struct kvblk_req *req);

/*
 * Return whether, if there is space, a put completes once DRAM has its block, or DRAM gets a copy
 * before a member has it. May walk the caller's page tables, but take no page fault.
 */
bool kvblk_put_stays(const struct kvblk_req *req);
bool kvblk_put_copies(const struct kvblk_req *req);

/* ---- ops/drain.c -------------------------------------------------------- */

struct kvblk_drainer *kvblk_drainer_new(void);
void kvblk_drainer_put(struct kvblk_drainer *drainer);
/* Waits for operations in flight. Returns 0, -ETIME or -ERESTARTSYS. */
int kvblk_drainer_wait(struct kvblk_drainer *drainer, u64 deadline_ns);

static inline void kvblk_drainer_enter(struct kvblk_req *req)
{
	req->drainer = req->owner->drainer;
	req->drain_phase = READ_ONCE(req->drainer->phase);
	this_cpu_inc(req->drainer->counts->started[req->drain_phase]);
}

static inline void kvblk_drainer_leave(struct kvblk_drainer *drainer, u8 phase)
{
	/* publishes the operation's effects before its completion; pairs with phase_completed() */
	smp_mb__before_atomic();
	this_cpu_inc(drainer->counts->completed[phase]);
}

/* ---- ops/lease.c ------------------------------------------------------- */

int kvblk_lease_init(void);
void kvblk_lease_exit(void);
void kvblk_lease_pool_init(struct kvblk_pool *pool);
void kvblk_lease_pool_exit(struct kvblk_pool *pool);

struct kvblk_entry {
	struct kvblk_id id;
	struct kvblk_slot slot;
};

/*
 * Leases @entries under a new id, in order, until one cannot be leased, for @ms, until @end_ns of
 * ktime_get(). Returns the number of leased entries, or -ENOMEM. May sleep.
 */
int kvblk_lease_take(struct kvblk_file *file, struct kvblk_entry *entries, u32 nr, u32 ms,
		     u64 *lease, u64 *end_ns);
/* Ends a lease. Returns 0, or -ENOENT if there is none or its time is over. May sleep. */
int kvblk_lease_drop(struct kvblk_file *file, u64 lease);
void kvblk_lease_drop_all(struct kvblk_file *file);

#endif
