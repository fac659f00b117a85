/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Operations: what one is, and what each side does of it.
 *
 * An operation has two halves. The media half, struct kvblk_media, belongs to a
 * member: segment, room, WRITING slot, bios. It ends soon after its bios do,
 * whatever the caller does meanwhile. The caller half is the rest: memory,
 * copies, result. It may take as long as the caller likes, and holds nothing
 * that others need.
 *
 *   parse ─► start ─► bios ─► finish ─► result
 *            │  ▲               │  ▲
 *            ▼  │ kvblk_req_wait│  │ in flight again, or by the next one:
 *           -EAGAIN             ▼  │ the member's end, then the caller's
 *
 * What differs between puts, gets and deletes is in struct kvblk_op_type; what
 * differs between batches and rings is behind @landed and @gone.
 */
#ifndef KVBLK_OP_H
#define KVBLK_OP_H

#include <linux/fs.h>
#include <linux/kvblk.h>

#include "memory/memory.h"
#include "ops/ownership.h"
#include "p2p/p2p.h"
#include "pool/pool.h"

/*
 * struct kvblk_file - an open node
 * @refs: the file's, and of operations that hold some of its budget
 * @budget: memory that it keeps from others, see kvblk_file_limit()
 * @flight: operations under way
 */
struct kvblk_file {
	refcount_t refs;
	struct kvblk_budget budget;
	struct kvblk_pool *pool;
	fmode_t mode;			/* FMODE_READ, FMODE_WRITE: how it is open */
	u16 tenant;
	siphash_key_t key;
	struct xarray regions;
	struct kvblk_flight *flight;
	spinlock_t lock;		/* reqs */
	struct list_head reqs;		/* under way, with a cookie */
	struct xarray leases;		/* by id; pool->lease_lock, as are */
	u64 next_lease;
	u32 nr_leased;
	u64 leased[KVBLK_LEASE_PLACES];	/* bytes by place, see ops/lease.c, and */
	u64 leased_bytes;		/* the sum */
	struct kvblk_opener opener;
};

/* Returns the most that file->budget may hold: what one batch may have in flight. */
static inline u64 kvblk_file_limit(const struct kvblk_file *file)
{
	return READ_ONCE(file->pool->tun.queue_bytes);
}

/* Operations that began in each phase, and those of them that are over. */
struct kvblk_flight_count {
	u64 begun[2];
	u64 over[2];
};

/**
 * struct kvblk_flight - operations of an open file in flight; see ops/drain.c
 * @refs: the file's, and of operations that were given up: they may outlive it
 * @draining: somebody waits for them
 * @phase: that operations begin in; written under @draining, as are
 * @drains: how often somebody did, and
 * @drained: which of these was the last not in vain
 * @counts: each CPU's own
 */
struct kvblk_flight {
	refcount_t refs;
	struct mutex draining;		/* phase, drains, drained */
	u8 phase;
	u64 drains;
	u64 drained;
	struct kvblk_flight_count __percpu *counts;
};

/**
 * enum kvblk_by - who finishes an operation
 * @KVBLK_BY_CALLER: it does, and its memory can be touched
 * @KVBLK_BY_MEMBER: a work, for the caller does not come: the media half only
 * @KVBLK_BY_NOBODY: a work; the caller has gone, or given it up
 */
enum kvblk_by {
	KVBLK_BY_CALLER,
	KVBLK_BY_MEMBER,
	KVBLK_BY_NOBODY,
};

/**
 * enum kvblk_get_phase - where a get is
 * @KVBLK_GET_LANDED: it is to be read, or has been, and is to be looked at
 * @KVBLK_GET_HERE: its block is in the host's memory, or was: its task looks for it
 *	there, so that nobody's memory is held until the task comes
 * @KVBLK_GET_AGAIN: it is to be read again, through kernel memory
 * @KVBLK_GET_COPY: it is right, and to be copied to the caller
 * @KVBLK_GET_SUMS: all but the checksums is there
 * @KVBLK_GET_OVER: it has its result
 */
enum kvblk_get_phase {
	KVBLK_GET_LANDED,
	KVBLK_GET_HERE,
	KVBLK_GET_AGAIN,
	KVBLK_GET_COPY,
	KVBLK_GET_SUMS,
	KVBLK_GET_OVER,
};

/**
 * enum kvblk_older - what a put does about older blocks of its key
 * @KVBLK_OLDER_STAYS: one that is there ends it; that one may be found later which is
 *	not there now: blocks of a key are the same
 * @KVBLK_OLDER_NONE: one that is there ends it, and none comes back behind it
 * @KVBLK_OLDER_GOES: it replaces one that is there, and none comes back behind it
 * @KVBLK_OLDER_MUST: the same, and it is -ENOENT that there is none
 */
enum kvblk_older {
	KVBLK_OLDER_STAYS,
	KVBLK_OLDER_NONE,
	KVBLK_OLDER_GOES,
	KVBLK_OLDER_MUST,
};

/**
 * struct kvblk_media - an operation's media half
 * @io: its bios
 * @begun: it is under way: pool->users is held
 * @member: a get's or a delete's, with its ref while it is under way
 * @seg: with its ref, likewise
 * @gen: of @seg
 * @stats: of the member, to count at when it may be gone
 * @room: a put's
 * @turn: a put's
 * @fua: a put's: REQ_FUA or 0
 * @sums: a get's, as its payload has landed, or NULL
 * @bounce: a get's part by part, or NULL
 * @trial: a get's; p2p/route.c's
 * @sharing: landing->sharing
 * @number: there
 * @files: the submitter's files_struct while it is there, else NULL
 */
struct kvblk_media {
	struct kvblk_io io;
	bool begun;
	struct kvblk_member *member;
	struct kvblk_segment *seg;
	u64 gen;
	struct kvblk_stats __percpu *stats;
	struct kvblk_room room;
	struct kvblk_turn turn;
	blk_opf_t fua;
	struct kvblk_sums *sums;
	struct kvblk_bounce *bounce;
	struct kvblk_trial *trial;
	struct list_head sharing;
	u64 number;
	const void *files;
};

struct kvblk_req;

/**
 * struct kvblk_op_type - what an opcode does
 * @flags: KVBLK_OPF_* that it takes
 * @mode: how the node must be open
 * @reads: the caller's memory is read
 * @writes: the caller's memory is written
 * @start: 0: in flight; 1: over, see req->result; -EAGAIN: must wait for room,
 *	for another operation or for memory, then be started again
 * @wait: after -EAGAIN, but not for memory: until it may go on, or for @step
 *	jiffies. Less than 0: killed
 * @give_up: it has waited for too long: its result
 * @finish: see kvblk_req_finish()
 */
struct kvblk_op_type {
	u32 flags;
	fmode_t mode;
	bool reads;
	bool writes;
	int (*start)(struct kvblk_req *req);
	long (*wait)(struct kvblk_req *req, long step);
	int (*give_up)(struct kvblk_req *req);
	int (*finish)(struct kvblk_req *req, enum kvblk_by by);
};

/* NULL: there is no such opcode. */
const struct kvblk_op_type *kvblk_op_type(u32 opcode);
extern const struct kvblk_op_type kvblk_op_put;
extern const struct kvblk_op_type kvblk_op_get;
extern const struct kvblk_op_type kvblk_op_delete;
extern const struct kvblk_op_type kvblk_op_prefetch;

/*
 * A put that is done when the pool's memory has it, if there is room. May look at its
 * caller's page tables, but takes no fault.
 */
bool kvblk_put_stays(const struct kvblk_req *req);

struct kvblk_batch;

/*
 * struct kvblk_req - one operation
 * @media: its media half
 * @landed: its bios are over: has it finished; any context
 * @ended: the same, after kvblk_rescue_work() has ended its media half
 * @gone: it was detached, and is finished: frees it
 * @said: cmd: what its completion says of a result: res, and the extra word of a large
 *	one. @user: the caller's memory may be touched
 * @cancel: under file->lock, with @canceled set: ends it now, with -ECANCELED, if
 *	its memory is the kernel's. Else it ends when its bios do
 * @hand: whose it is
 * @canceled: WRITE_ONCE by KVBLK_IOC_CANCEL
 * @wants_fault: the caller's memory is not resident. It may stay so for as long
 *	as a user-space pager likes, so nothing is held when src.fault is set
 * @header: of the record, header_units of 4 KiB, physically contiguous
 * @slot: the entry found (get, delete) or made (put)
 * @from: get: first payload byte read, a multiple of the chunk size
 * @want: get: bytes for the caller
 */
struct kvblk_req {
	struct list_head file_link;	/* file->reqs; constructed, as is what follows */
	struct kvblk_handover hand;
	struct kvblk_media media;
	const struct kvblk_op_type *type;
	struct kvblk_pool *pool;
	struct kvblk_batch *batch;	/* or */
	struct io_uring_cmd *cmd;
	void (*landed)(struct kvblk_req *req);
	void (*ended)(struct kvblk_req *req);
	void (*gone)(struct kvblk_req *req);
	void (*cancel)(struct kvblk_req *req);
	s32 (*said)(const struct kvblk_req *req, const struct kvblk_result *result,
		    bool user, u64 *extra);
	refcount_t refs;		/* cmd: the command's, and its bios' */
	struct kvblk_file *owner;	/* is there while it is open, or @held */
	struct kvblk_flight *flight;	/* or NULL: it only tells a result */
	struct kvblk_file *file;	/* cmd: while on file->reqs */
	struct list_head link;		/* batch->done */
	struct work_struct work;
	bool canceled;
	bool wants_fault;
	bool asked;			/* a put: the policy knows of it, */
	bool declined;			/* and said no */
	u16 tenant;
	u32 header_units;
	u32 bytes;			/* of all pieces */
	u32 from;
	u32 want;
	u32 partly;			/* a get: bytes of the caller's it may have written: if */
					/* it fails, they are cleared in its task, through @src */
	u32 expiry;
	u32 charged;			/* in batch->bytes_inflight */
	u32 held;			/* in owner->budget, with a reference to it */
	u32 wants_memory;		/* more than owner->budget has room for */
	struct kvblk_align align;	/* put: pool->align that @mem is for, */
	bool stable;			/* and pool->stable_writes */
	u8 integrity;			/* of the record */
	bool summed;			/* a put: its header has the payload's sums */
	bool no_p2p;			/* a put: not straight from a device's memory */
	bool stale;			/* a delete: an older record may come back */
	bool failed;			/* a put: by the member, and its task may try anew */
	u8 older;			/* a put: &enum kvblk_older */
	bool cleared;			/* a put: it has removed an older block */
	bool replaces;			/* a put: the block's entry, which is @old meanwhile */
	u8 tries;			/* a put: writes that failed, */
	u8 avoid;			/* the last one by the member in this slot */
	u8 phase;			/* a get: &enum kvblk_get_phase */
	u8 miss;			/* a get: why it is one, &enum kvblk_counter */
	bool looked;			/* a get: its header is the block's */
	bool device;			/* a device's memory is in it */
	bool revocable;			/* a get: may be detached: not into shared memory */
	bool coming;			/* @object is not the pool's yet */
	bool parks;			/* a prefetch: @object stays while others are begun: it */
	bool parked;			/* is not queued, and holds pool->users */
	bool continues;			/* a put: &kvblk_object.continues */
	u8 flight_phase;		/* that it began in */
	ktime_t start;
	struct kvblk_op op;
	struct kvblk_result result;
	struct kvblk_id id;
	struct kvblk_id parent;
	struct kvblk_src src;
	struct iov_iter fixed;
	struct delayed_work deadline;	/* cmd: HARD_DEADLINE */
	u64 result_addr;		/* cmd: where the result goes, or 0 */
	void *header;
	struct kvblk_slot slot;
	struct kvblk_slot old;		/* of a put that replaces: MOVING, in */
	struct kvblk_segment *old_seg;	/* which is held, with its */
	struct kvblk_member *old_member;
	int write_errors;		/* a put: the member's, before its own */
	struct kvblk_part part;		/* src.parts, when it is one */
	u64 crcs_addr;			/* where the caller has checksums, or 0 */
	u32 crcs_room;			/* bytes there */
	u32 space_seq;
	bool gated;			/* a put or prefetch: it waits for a member's gate */
	u32 hints;			/* a put: &enum kvblk_hints */
	u32 chain;			/* a put: &kvblk_object.chain */
	u64 offer_parent;		/* likewise */
	struct kvblk_object *object;	/* with a reference, or NULL */
	__le32 *crcs;			/* a put: what was there; a get: what is to go there */
	ktime_t waiting;		/* since, 0: not yet */
	struct kvblk_mem mem;		/* its few_bv and what follows: not zeroed */
	u8 key[KVBLK_KEY_MAX];
};

/* ---- chardev/parse.c -------------------------------------------------- */

/*
 * A caller's time of CLOCK_MONOTONIC as ktime_get() has it: time namespaces shift
 * that clock. Neither is 0.
 */
u64 kvblk_deadline(u64 theirs);
/*
 * A structure that begins with its size, at least @least bytes, into the @size
 * bytes at @to: 0, -EFAULT, -EINVAL: too short, -E2BIG: more than is known.
 */
int kvblk_struct_read(void *to, size_t size, size_t least, const void __user *from);
/*
 * A new operation, as @op says; @cmd: for a ring, with its buffer where it has
 * IORING_URING_CMD_FIXED. NULL: no memory. What is wrong with it is in
 * req->result.res. May sleep.
 */
struct kvblk_req *kvblk_req_new(struct kvblk_file *file, const struct kvblk_op *op,
				struct io_uring_cmd *cmd, unsigned int issue_flags);
/*
 * The same of an operation that the kernel has put together: @key and @pieces are its
 * own, whatever op->key and op->pieces say, the deadline is ktime_get()'s, there is no
 * extension and no TTL, and the caller may do it.
 */
struct kvblk_req *kvblk_req_own(struct kvblk_file *file, const struct kvblk_op *op,
				const void *key, const struct kvblk_piece *pieces,
				struct io_uring_cmd *cmd, unsigned int issue_flags);

/* ---- ops/request.c: what all operations have in common ------------------ */

int kvblk_req_init(void);
void kvblk_req_exit(void);
/* A request that is all zero, lists empty. NULL: no memory. May sleep, if @gfp says so. */
struct kvblk_req *kvblk_req_alloc(gfp_t gfp);
void kvblk_req_free(struct kvblk_req *req);
/* Gives memory back as soon as it is over; a batch may be long. */
void kvblk_req_trim(struct kvblk_req *req);
/* As type->start, whose rules it keeps. */
int kvblk_req_start(struct kvblk_req *req);
/* After -EAGAIN, with nothing of the batch in flight. 0 or -EINTR. */
int kvblk_req_wait(struct kvblk_req *req);
/*
 * In task context, after the bios: checks, copies, index. 1: over; 0: in flight
 * again, and somebody else's; -EAGAIN: the media half is over, and what is left
 * is the caller's, with req->src.fault where @wants_fault says so.
 */
static inline int kvblk_req_finish(struct kvblk_req *req, enum kvblk_by by)
{
	return req->type->finish(req, by);
}

/* What kvblk_req_finish() left in flight is over; any context. */
void kvblk_req_landed(struct kvblk_req *req);
/*
 * It is about to be given up: adds what it holds, which is returned, to its
 * file's budget.detached until it is over, and lets it outlive its file. Any context.
 */
u32 kvblk_req_detach(struct kvblk_req *req);
/* It was not, after all. */
void kvblk_req_keep(struct kvblk_req *req, u32 held);
/*
 * Waits until no device writes to shared memory for operations that this files_struct's
 * owner submitted to a ring before the call. As long as the devices like, killed or not.
 */
void kvblk_file_quiesce(struct kvblk_file *file, const void *files);
void kvblk_file_put(struct kvblk_file *file);

/*
 * Ends the media halves of what rings have landed, and whose tasks do not come,
 * being stopped, frozen or busy: a second later, or at once when they keep much pinned.
 */
void kvblk_rescue_work(struct work_struct *work);
/* A ring's operation waits for its task from now on. True: that is to be told. */
bool kvblk_req_land(struct kvblk_req *req);

/*
 * Returns whether a record may come back: of a lost member, or because it could not be
 * read. kvblk_pool_give_up() ends the latter, so that the caller's next try succeeds.
 */
bool kvblk_pool_unsure(struct kvblk_pool *pool);
/* The block is in the index, and a get would find it. Process context. */
bool kvblk_block_present(struct kvblk_pool *pool, struct kvblk_id id, u16 tenant,
			 struct kvblk_slot *slot);
/* An entry that the index told: a get of this tenant would find it. Any context. */
bool kvblk_slot_present(struct kvblk_pool *pool, u16 tenant,
			const struct kvblk_slot *slot);

/* ---- inside of operations ---- */

/* False: the pool is going. */
static inline bool kvblk_media_begin(struct kvblk_req *req)
{
	req->media.begun = percpu_ref_tryget_live(&req->pool->users);
	return req->media.begun;
}

void kvblk_media_end(struct kvblk_req *req);
/* It is in flight: bios to @member (or NULL) may be submitted to media.io. */
void kvblk_media_submit(struct kvblk_req *req, struct kvblk_member *member);
int kvblk_req_header_alloc(struct kvblk_req *req);
void kvblk_req_header_free(struct kvblk_req *req);
/*
 * Kernel memory for the payload. All that operations of rings take is bounded
 * for each file: -EAGAIN, with @wants_memory, unless nothing is held or it @must
 * be. A batch is bounded by itself, and must not wait: the caller may have to
 * reap its ring first.
 */
int kvblk_req_mem_alloc(struct kvblk_req *req, u32 bytes, bool must);
void kvblk_req_mem_drop(struct kvblk_req *req);
/*
 * An object for the operation's block, as its memory and with its key, which is bounded
 * as by kvblk_req_mem_alloc(). The operation has it until it is dropped, or taken.
 * Returns 0, -EAGAIN with @wants_memory, or -ENOSPC.
 */
int kvblk_req_object(struct kvblk_req *req, u32 length);
struct kvblk_object *kvblk_req_object_take(struct kvblk_req *req);
/* Drops the object, and no other memory. */
void kvblk_req_object_drop(struct kvblk_req *req);
/*
 * Fills the object's record from @rec, with memory for checksums and those of @rec.
 * Returns false if there is no memory.
 */
bool kvblk_object_describe(struct kvblk_object *obj, const struct kvblk_rec *rec);
void kvblk_req_bounce_end(struct kvblk_req *req);
/*
 * Operations that were detached still hold their memory, as long as their
 * device likes: a caller that cancels and submits in a loop is stopped here.
 */
bool kvblk_req_crowded(const struct kvblk_req *req);
static inline bool kvblk_req_late(const struct kvblk_req *req)
{
	return req->op.deadline_ns && ktime_get_ns() >= req->op.deadline_ns;
}

/* As type->wait: until segments or gates have room. */
long kvblk_req_wait_space(struct kvblk_req *req, long step);
/* It was late before it began: 1. */
int kvblk_req_expire(struct kvblk_req *req);
bool kvblk_slot_expired(const struct kvblk_pool *pool, const struct kvblk_slot *slot);
/* It is a block of the tenant; whether its member answers is another question. */
bool kvblk_slot_listed(struct kvblk_pool *pool, u16 tenant,
		       const struct kvblk_slot *slot);
/* The member that a slot lies on answers. */
bool kvblk_slot_served(struct kvblk_pool *pool, const struct kvblk_slot *slot);
/*
 * Whether its bytes went straight, for its result and the counters: @to is the one of
 * those that did, the next one that of the others.
 */
void kvblk_req_count_way(struct kvblk_req *req, enum kvblk_counter to);
/*
 * A device's memory is behind it; @addr: where. Asked before all of it is pinned,
 * which takes longer than the instructions of a copy that comes of it.
 */
bool kvblk_req_known_device(struct kvblk_req *req, phys_addr_t *addr);
/* It is mapped, and a device's: from now on it is worth asking. */
void kvblk_req_saw_device(struct kvblk_req *req);

/* Ends an operation that has no result yet. */
static inline int kvblk_req_over(struct kvblk_req *req, int res)
{
	req->result.res = res;
	return 1;
}

/* The task is to stop waiting: killed, or a worker of a ring that goes. */
static inline bool kvblk_interrupted(void)
{
	return fatal_signal_pending(current) ||
	       ((current->flags & PF_IO_WORKER) &&
		test_thread_flag(TIF_NOTIFY_SIGNAL));
}

/* ---- ops/drain.c -------------------------------------------------------- */

/* NULL: no memory. */
struct kvblk_flight *kvblk_flight_new(void);
void kvblk_flight_put(struct kvblk_flight *flight);
/* Waits for what is in flight: 0, -ETIME, -ERESTARTSYS. */
int kvblk_flight_drain(struct kvblk_flight *flight, u64 deadline_ns);

/* Until kvblk_req_free(). */
static inline void kvblk_flight_enter(struct kvblk_req *req)
{
	req->flight = req->owner->flight;
	req->flight_phase = READ_ONCE(req->flight->phase);
	this_cpu_inc(req->flight->counts->begun[req->flight_phase]);
}

static inline void kvblk_flight_leave(struct kvblk_flight *flight, u8 phase)
{
	/* whoever sees it sees what the operation did; pairs with phase_over() */
	smp_mb__before_atomic();
	this_cpu_inc(flight->counts->over[phase]);
}

/* ---- ops/lease.c ------------------------------------------------------- */

int kvblk_lease_init(struct kvblk_pool *pool);
void kvblk_lease_exit(struct kvblk_pool *pool);
/* An entry that was found, by the id of its block. */
struct kvblk_entry {
	struct kvblk_id id;
	struct kvblk_slot slot;
};

/*
 * Leases the @nr @entries under a new id, from the first one on until one can't be
 * leased. Returns how many, or -ENOMEM. May sleep.
 */
int kvblk_lease_take(struct kvblk_file *file, struct kvblk_entry *entries, u32 nr, u32 ms,
		     u64 *lease);
int kvblk_lease_drop(struct kvblk_file *file, u64 lease);
void kvblk_lease_drop_all(struct kvblk_file *file);

#endif
