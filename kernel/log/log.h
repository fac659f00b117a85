/* SPDX-License-Identifier: GPL-2.0 */
/* The log: segments, records' I/O, what makes room, what must not come back. */
#ifndef KVBLK_LOG_H
#define KVBLK_LOG_H

#include "report/report.h"

struct kvblk_req;

/* ---- bio.c ---- */

/*
 * Reads or writes @len bytes at @pos from or to @buf (page-aligned, kmalloc
 * or vmalloc) and waits. @opf: REQ_OP_* and flags. Returns 0; -EIO if the place is to
 * blame; another errno if the device could not be reached.
 */
int kvblk_io_sync(struct kvblk_member *member, blk_opf_t opf, u64 pos,
		  void *buf, size_t len);
/*
 * Reads as kvblk_io_sync() does, and again if that fails. Returns 0; -EIO if the place
 * can't be read; another errno if the device could not be reached, or memory was short.
 */
int kvblk_io_read(struct kvblk_member *member, u64 pos, void *buf, size_t len);
int kvblk_io_flush(struct kvblk_member *member);
/* Discards what the device can, and waits. An error means nothing. */
void kvblk_io_discard(struct kvblk_member *member, u64 pos, u32 bytes);

/*
 * Around submissions in a task's own context: a target that dies must not kill
 * it by SIGPIPE.
 */
struct kvblk_sigpipe {
	sigset_t saved;
	bool was_pending;
	bool masked;			/* by us; @saved is what it was */
};

void kvblk_sigpipe_block(struct kvblk_sigpipe *shield);
void kvblk_sigpipe_out(struct kvblk_sigpipe *shield);

static inline void kvblk_sigpipe_restore(struct kvblk_sigpipe *shield)
{
	if (shield->masked || sigismember(&current->pending.signal, SIGPIPE))
		kvblk_sigpipe_out(shield);
}

int kvblk_io_init(void);
void kvblk_io_exit(void);
/* What it keeps in a new member: 0 or -ENOMEM. */
int kvblk_io_member_init(struct kvblk_member *member);
/* The device's limits, as they are now. */
void kvblk_io_limits(struct kvblk_member *member);
/* No bio is under way. */
void kvblk_io_member_exit(struct kvblk_member *member);

/* Bios submitted and not completed, of all CPUs; in @ios (or NULL) the sums. */
u64 kvblk_member_inflight(const struct kvblk_member *member, struct kvblk_ios *ios);

/**
 * struct kvblk_io - bios in flight for one purpose
 * @member: their device
 * @whole: what they are a part of, or NULL
 * @pending: bios, plus one while they are being submitted
 * @status: the first error
 * @ioprio: of its bios; 0: that of the task which submits them
 * @p2p: there are pages of PCI devices in it
 * @done: called when all are over, in any context
 */
struct kvblk_io {
	struct kvblk_member *member;
	struct kvblk_io *whole;
	atomic_t pending;
	blk_status_t status;
	u16 ioprio;
	bool p2p;
	void (*done)(struct kvblk_io *io);
};

void kvblk_io_start(struct kvblk_io *io, struct kvblk_member *member,
		    void (*done)(struct kvblk_io *io));
/*
 * Submits bios over @nr vectors, one stretch of media from @pos on. @bv stays as
 * it is until @done. Waits for memory and for the budget of the caller's cgroup
 * (io.cost), and for no device.
 */
void kvblk_io_submit(struct kvblk_io *io, blk_opf_t opf, u64 pos,
		     const struct bio_vec *bv, u32 nr);
/* The same over what @iter says, which is in no more than @nr vectors. */
void kvblk_io_submit_iter(struct kvblk_io *io, blk_opf_t opf, u64 pos,
			  const struct bio_vec *bv, struct bvec_iter iter, u32 nr);
/*
 * A part of @whole, which @done, in any context, lets go on by kvblk_io_end(). Errors
 * are those of @whole.
 */
void kvblk_io_start_part(struct kvblk_io *io, struct kvblk_io *whole,
			 void (*done)(struct kvblk_io *io));
/* No more bios come. @done is called from here when all are over. */
void kvblk_io_end(struct kvblk_io *io);

/* ---- payload.c ---- */

struct kvblk_mem;
struct kvblk_sums;

int kvblk_payload_init(void);
void kvblk_payload_exit(void);
/* Sums the chunks of @mem into @crcs. May sleep. */
void kvblk_payload_sum(const struct kvblk_mem *mem, __le32 *crcs);
/*
 * Sums the chunks of @mem into @crcs, and submits what kvblk_payload_write_head()
 * leaves. @pos: of the payload. May sleep, as kvblk_io_submit() does.
 */
void kvblk_payload_write(struct kvblk_io *io, blk_opf_t opf, u64 pos,
			 const struct kvblk_mem *mem, __le32 *crcs);
/* The header, at @pos, and what follows it: @all of it, or the first part. */
void kvblk_payload_write_head(struct kvblk_io *io, blk_opf_t opf, u64 pos,
			      const struct kvblk_mem *mem, bool all);
/*
 * The header, at @pos, and the payload's bytes from @from on; @sum: they are likely
 * to be checked. Returns what kvblk_payload_check() takes and kvblk_sums_free() frees
 * when @io is over, or NULL. Submits before the caller's kvblk_io_end(). May sleep.
 */
struct kvblk_sums *kvblk_payload_read(struct kvblk_io *io, u64 pos,
				      const struct kvblk_mem *mem, u32 from, bool sum);
void kvblk_sums_free(struct kvblk_sums *sums);
/* All chunks agree with @crcs. @sums: as they have landed, or NULL. */
bool kvblk_payload_check(const struct kvblk_mem *mem, const struct kvblk_sums *sums,
			 const __le32 *crcs);
/* The same of @bytes in the kernel. */
bool kvblk_data_check(const void *data, u32 bytes, const __le32 *crcs);

/*
 * Is a record of this integrity to be written past the member's volatile cache? What
 * gets are to believe unseen must not be lost by that cache, while its header is
 * not: a host that goes on is not told of that. Gets trust rec->durable, which says
 * how it was, and not the policy, which may change.
 */
static inline bool kvblk_durable(const struct kvblk_member *member, u8 integrity)
{
	return integrity == KVBLK_INTEGRITY_NONE ||
	       READ_ONCE(member->pool->tun.integrity) != KVBLK_CHECK_FULL ||
	       !bdev_write_cache(member->bdev);
}

/*
 * REQ_FUA is one step of the member. Else it is a write and a flush behind it, and what
 * the cache loses in between may be told to another write.
 */
static inline bool kvblk_fua(const struct kvblk_member *member)
{
	return !bdev_write_cache(member->bdev) || bdev_fua(member->bdev);
}

/*
 * Whether writes have failed since member->write_errors was @errors. A volatile cache may
 * then have lost some of what was written, even if a flush succeeds: another write may
 * have been told.
 */
static inline bool kvblk_writes_failed(const struct kvblk_member *member, int errors)
{
	return atomic_read(&member->write_errors) != errors;
}

/* ---- segment.c ---- */

/**
 * enum kvblk_safety - what a crash does to a record that can be got
 * @KVBLK_SAFE: nothing
 * @KVBLK_CACHED: nothing, after a flush of the member that succeeds
 * @KVBLK_BARE: it may have no checksums, and is a miss then, until its segment is sealed
 * @KVBLK_DOUBTFUL: it may be lost, whatever is flushed: it was, or its segment was open
 *	when a write failed
 */
enum kvblk_safety {
	KVBLK_SAFE,
	KVBLK_CACHED,
	KVBLK_BARE,
	KVBLK_DOUBTFUL,
};

static inline u64 kvblk_seg_pos(const struct kvblk_member *member, u32 segment,
				u32 unit)
{
	return member->data_start +
	       (((u64)segment * member->segment_units + unit) << KVBLK_UNIT_SHIFT);
}

/* A payload in @seg is checked, or not served. */
static inline bool kvblk_must_check(const struct kvblk_pool *pool,
				    const struct kvblk_segment *seg)
{
	return READ_ONCE(pool->tun.integrity) == KVBLK_CHECK_FULL ||
	       READ_ONCE(seg->flags) & KVBLK_SEGF_UNPROVEN;
}

static inline struct kvblk_place kvblk_place(const struct kvblk_member *member,
					     u32 segment, u64 gen, u32 unit)
{
	return (struct kvblk_place) {
		.incarnation = member->incarnation,
		.generation = gen,
		.segment = segment,
		.unit = unit,
	};
}

/* Persists the table page of @segment with what is in memory. May sleep. */
int kvblk_table_write(struct kvblk_member *member, u32 segment);
/*
 * Takes room for @units in the current segment of @class. 0, or -EAGAIN: the
 * segment is full and the next is not ready; kvblk_log_kick() was called.
 */
int kvblk_room_reserve(struct kvblk_member *member, u8 class, u32 units,
		       struct kvblk_room *room);
/*
 * Room for a block of @length bytes on the next member that answers, has some, and (if
 * that is not NULL) is one that @suits says suits @what. 0; -ENOSPC: there is none;
 * -EAGAIN: there may be some soon.
 */
int kvblk_room_find(struct kvblk_pool *pool, u32 length,
		    bool (*suits)(void *what, struct kvblk_member *member), void *what,
		    struct kvblk_room *room);
/* What a crash could do to the record that is about to be written there. */
void kvblk_room_note(struct kvblk_room *room, u8 integrity, bool durable);
/* Of the record at @unit, which can be got. The segment is held. */
enum kvblk_safety kvblk_segment_safety(struct kvblk_member *member,
				       const struct kvblk_segment *seg, u32 unit);
/*
 * Gives room back when the record's I/O is over. @rec: what became LIVE there,
 * NULL: nothing, the room is a hole.
 */
void kvblk_room_release(struct kvblk_room *room, const struct kvblk_rec *rec);
/* Subtracts from its segment's live units a record that no entry points to and no kill counts. */
void kvblk_segment_forget(struct kvblk_pool *pool, const struct kvblk_slot *slot);
/* &kvblk_index.expired of a pool. */
void kvblk_index_expired(struct kvblk_index *idx, const struct kvblk_slot *slot);
/* Opens a free segment now; reclaim's way to KVBLK_CLASS_HOT. May sleep. */
int kvblk_segment_open(struct kvblk_member *member, u8 class);
int kvblk_segment_seal(struct kvblk_member *member, struct kvblk_segment *seg);
/* Its payloads may be lost: from now on they are checked. kvblk_table_write() is due. */
void kvblk_segment_doubt(struct kvblk_member *member, struct kvblk_segment *seg);
struct kvblk_open *kvblk_open_alloc(struct kvblk_member *member);
void kvblk_open_free(struct kvblk_open *open);
/* The entry of record @index; allocates its page. May sleep. */
struct kvblk_d_entry *kvblk_open_entry(struct kvblk_open *open, u32 index);
void kvblk_log_kick(struct kvblk_member *member);
void kvblk_log_work(struct work_struct *work);
void kvblk_checkpoint_work(struct work_struct *work);
/* Closes all that take records; they are sealed when their writers are gone. */
void kvblk_log_close(struct kvblk_member *member);
/* Free segments, ready ones included. */
static inline u32 kvblk_member_avail(const struct kvblk_member *member)
{
	return READ_ONCE(member->nr_free) + READ_ONCE(member->nr_ready);
}

/*
 * Takes seg->refs of the segment that @slot lies in, if it is still of the
 * slot's generation and its member is up; @member gets its ref too.
 */
struct kvblk_segment *kvblk_segment_get(struct kvblk_pool *pool,
					const struct kvblk_slot *slot,
					struct kvblk_member **member, u64 *gen);
void kvblk_segment_put(struct kvblk_member *member, struct kvblk_segment *seg);

/* ---- restore.c ---- */

/* The low bits of the pool's clock when the member's table was written last. */
int kvblk_table_time(struct kvblk_member *member, u32 *time);
void kvblk_member_restore(struct work_struct *work);

/* ---- walk.c ---- */

/* Units that are read at once. */
#define KVBLK_WALK_UNITS	256u

/**
 * struct kvblk_walk - headers of a segment, one after the other
 * @member: whose
 * @seg: of it
 * @unit: where the next header may be
 * @have_from: unit of the first byte in @buf
 * @have_to: unit behind the last one
 * @nr_unread: units that can't be read
 * @missed: the first of them where a header may be; U32_MAX: there is none
 * @bad: of the units in @buf, those that can't be read
 * @buf: what was read last
 */
struct kvblk_walk {
	struct kvblk_member *member;
	struct kvblk_segment *seg;
	u32 unit;
	u32 have_from;
	u32 have_to;
	u32 nr_unread;
	u32 missed;
	DECLARE_BITMAP(bad, KVBLK_WALK_UNITS);
	void *buf;
};

/* Memory for walks of @member's segments. Returns 0 or -ENOMEM. */
int kvblk_walk_begin(struct kvblk_walk *walk, struct kvblk_member *member, gfp_t gfp);
void kvblk_walk_end(struct kvblk_walk *walk);
/* Goes to @unit of @seg. */
void kvblk_walk_segment(struct kvblk_walk *walk, struct kvblk_segment *seg, u32 unit);
/*
 * Finds the next record. Returns 1 with @rec, which points into the walk, and @unit; 0
 * at the segment's end; -EIO if most of the segment can't be read; another errno if the
 * device can't be reached. May sleep.
 */
int kvblk_walk_next(struct kvblk_walk *walk, struct kvblk_rec *rec, u32 *unit);

/* ---- reclaim.c ---- */

void kvblk_reclaim_work(struct work_struct *work);

/* ---- dram/demote.c ---- */

/* 0 or -ENOMEM. */
int kvblk_dram_init(struct kvblk_pool *pool);
/* No operation is under way: what is needed is written, the rest is dropped. May sleep. */
void kvblk_dram_close(struct kvblk_pool *pool);
void kvblk_dram_exit(struct kvblk_pool *pool);

/* ---- dram/dram.c ---- */

/* Each second: makes room, if the limit is another one now. No sleep. */
void kvblk_dram_tick(struct kvblk_pool *pool);
/* So many bytes more would not be too many, now. */
bool kvblk_dram_has_room(struct kvblk_pool *pool, u64 bytes);
/*
 * Memory for a block of @length bytes; the caller fills in what is in the record, and
 * the payload from @bv[1] on. NULL: there is no room, or no memory. May sleep.
 */
struct kvblk_object *kvblk_object_new(struct kvblk_pool *pool, u32 length, u32 key_len);
/*
 * Makes @obj its id's block. Takes it in any case. 0; -EEXIST: there is one; -ENOSPC;
 * -ENOMEM. May sleep.
 */
int kvblk_object_enter(struct kvblk_pool *pool, struct kvblk_object *obj);
/*
 * The block at @slot, which a member has, stays in @obj too, unless (false) there is one
 * that counts. Takes a reference of its own. kvblk_object_queue() is to follow, until
 * when nobody takes the memory away. May sleep.
 */
bool kvblk_object_keep(struct kvblk_pool *pool, struct kvblk_object *obj,
		       const struct kvblk_slot *slot);
/* To the hot end of its list, unless it was removed. No sleep. */
void kvblk_object_queue(struct kvblk_pool *pool, struct kvblk_object *obj);
/* The object with the block that @slot is the entry of, with a reference, or NULL. */
struct kvblk_object *kvblk_object_get(struct kvblk_pool *pool, struct kvblk_id id,
				      const struct kvblk_slot *slot);
/* The block, which is in memory only, is to go to a member now, and durably. */
void kvblk_dram_urge(struct kvblk_pool *pool, struct kvblk_id id,
		     const struct kvblk_slot *slot);
/* Is there one? */
bool kvblk_dram_holds(struct kvblk_pool *pool, struct kvblk_id id,
		      const struct kvblk_slot *slot);
/* Returns whether it was the last reference, so that the memory is free. Any context. */
bool kvblk_object_put(struct kvblk_object *obj);
/* Is the object's payload to be compared with its checksums? */
bool kvblk_object_checks(const struct kvblk_pool *pool, const struct kvblk_object *obj);
/* Counts and reports that @obj no longer holds the bytes that were put. Any context. */
void kvblk_object_damaged(struct kvblk_pool *pool, const struct kvblk_object *obj);
/* No get finds the object any more, nor its block, if that is nowhere else. */
void kvblk_object_spoil(struct kvblk_pool *pool, struct kvblk_object *obj);
/* The entry of @id has gone, or is another one: so does its object. */
void kvblk_dram_forget(struct kvblk_pool *pool, struct kvblk_id id);
/* The numbers of these segments are given away again, and no copy of them comes. May sleep. */
void kvblk_dram_forget_segments(struct kvblk_pool *pool, u32 first, u32 nr);

/* ---- write_throttle.c: reads go before writes ---- */

/**
 * struct kvblk_turn - a put's or a prefetch's at its member's gate
 * @link: member->gate, or a lane's
 * @counted: member->gate_counted
 * @member: that counts it, or NULL
 * @bytes: of it
 * @priority: of a prefetch, else 0
 * @prefetch: it is one
 * @since: when it came or, later, was counted, jiffies
 * @given_up: what it points to is true once nobody wants it any more
 * @cgroup: whose I/O it is; not held
 * @ioprio: of its task if it waits, else 0
 * @css: @cgroup with a reference, if it waits
 * @submit: it is its turn, or it was given up; any context that may sleep
 */
struct kvblk_turn {
	struct list_head link;
	struct list_head counted;
	struct kvblk_member *member;
	u64 bytes;
	u8 priority;
	bool prefetch;
	unsigned long since;
	const bool *given_up;
	const struct cgroup_subsys_state *cgroup;
	u16 ioprio;
	struct cgroup_subsys_state *css;
	void (*submit)(struct kvblk_turn *turn);
};

int kvblk_gate_init(void);
void kvblk_gate_exit(void);
void kvblk_gate_member_init(struct kvblk_member *member);
/* No put of the member is under way. May sleep. */
void kvblk_gate_member_exit(struct kvblk_member *member);
/* So much waits there that new ones are to wait before: pool->space_wait tells. */
static inline bool kvblk_gate_full(const struct kvblk_member *member)
{
	return READ_ONCE(member->gate_full);
}

/* Submits it, now or later. */
void kvblk_turn_enter(struct kvblk_turn *turn, struct kvblk_member *member);
void kvblk_turn_over(struct kvblk_turn *turn, struct kvblk_member *member);
/* What was submitted is over; any context. One that never entered is all zero. */
static inline void kvblk_turn_leave(struct kvblk_turn *turn)
{
	/* pairs with gate_uncount(): once it is NULL, the gate has let go of the turn */
	struct kvblk_member *member = smp_load_acquire(&turn->member);

	if (member)
		kvblk_turn_over(turn, member);
}

/* Bytes of puts that @member may have in flight now; U64_MAX: any. */
u64 kvblk_put_window(const struct kvblk_member *member);

/* ---- missing.c ---- */

/**
 * struct kvblk_absent - a member that is away while its pool goes on
 * @link: pool->absents; RCU, changed under pool->roster_lock
 * @uuid: of the member
 * @incarnation: of the member, as are
 * @epoch: what its superblock says, and
 * @activation: likewise
 * @clean: the others of that activation were stopped in good order
 * @taken: a member is coming back with it; under pool->admin
 * @mask: bits of @bits, less one
 * @bits: a Bloom filter of ids that were put or deleted, and of places whose
 *	records were to be killed
 */
struct kvblk_absent {
	struct list_head link;
	uuid_t uuid;
	u64 incarnation;
	u64 epoch;
	u64 activation;
	bool clean;
	bool taken;
	u64 mask;
	unsigned long *bits;
};

/* The roster out of @sb, and into it: its number. */
void kvblk_roster_load(struct kvblk_pool *pool, const struct kvblk_d_super *sb);
u64 kvblk_roster_store(struct kvblk_pool *pool, struct kvblk_d_super *sb);
/* Gives the roster a newer number, though no member has changed. */
void kvblk_roster_renew(struct kvblk_pool *pool);
/*
 * Lists a member and sets its name: the listed one, or for a new member
 * member->name, which unless it is @given gets a number if another member has it.
 * Returns 0, -EEXIST if another member has the @given name, or -ENOSPC.
 */
int kvblk_roster_add(struct kvblk_pool *pool, struct kvblk_member *member, bool given);
/* False: it is not there. */
bool kvblk_roster_del(struct kvblk_pool *pool, const uuid_t *uuid);
/*
 * Copies entry @i and its place (unless that is NULL) if that member is away. Returns
 * whether it is. Context: any that does not hold RCU.
 */
bool kvblk_roster_missing(struct kvblk_pool *pool, u32 i, struct kvblk_d_member *entry,
			  char place[KVBLK_PLACE_MAX]);

/* Before it is seen that @member is dead. May sleep, does no I/O. */
void kvblk_absent_dies(struct kvblk_member *member);
/* The pool comes up without that one, which was there in this epoch and activation. */
void kvblk_absent_left_out(struct kvblk_pool *pool, const struct kvblk_d_member *entry,
			   u64 epoch, u64 activation, bool clean);
/* It is back, or will never be. May sleep. */
void kvblk_absent_end(struct kvblk_pool *pool, const uuid_t *uuid);
/* All of them, with the pool. */
void kvblk_absent_exit(struct kvblk_pool *pool);
/* It is there until kvblk_absent_end(), which is the returning member's. */
struct kvblk_absent *kvblk_absent_get(struct kvblk_pool *pool, const uuid_t *uuid);
void kvblk_absent_note_id(struct kvblk_pool *pool, struct kvblk_id id);
/* What is at this place of a dead member was to be killed. */
void kvblk_absent_note_place(struct kvblk_member *member, u32 segment, u32 unit);
/* Such a record of a member that is back may be out of date. */
bool kvblk_absent_stale(const struct kvblk_absent *absent, struct kvblk_id id,
			u32 segment, u32 unit);

/* A block of this id was put or deleted; any context. */
static inline void kvblk_absent_note(struct kvblk_pool *pool, struct kvblk_id id)
{
	if (unlikely(!list_empty(&pool->absents)))
		kvblk_absent_note_id(pool, id);
}

/* ---- invalidate.c ---- */

/* Kills that a member lists before it is left alone; see invalidate.c. */
#define KVBLK_KILLS_MAX		4096
/* Deletes wait at so many: the rest is for puts and evictions. */
#define KVBLK_KILLS_DELETES	(KVBLK_KILLS_MAX / 2)

/*
 * struct kvblk_kill - a stale record that must not be found at a restart
 * @link: in member->kills until the header is overwritten
 * @node: in pool->kills, by @token, as long
 * @io: its write
 * @token: of its block's id; see kvblk_index_token()
 * @waiter: a delete's, ends with the first try or when the member stops
 *	answering; taken by xchg()
 * @run: its write is under way; set under pool->kill_lock
 * @written: in @run, when the write is over
 * @held: its entry is about to leave the index, or not
 * @writer: its put is still under way, and lets it go (kvblk_kill_settle())
 * @settled: that put is over
 * @failed: the last try failed; the clock tries again
 */
struct kvblk_kill {
	struct list_head link;
	struct hlist_node node;
	struct kvblk_io io;
	u64 token;
	struct kvblk_member *member;	/* with its ref */
	struct kvblk_segment *seg;	/* with its ref */
	struct kvblk_io *waiter;
	struct kill_run *run;
	struct llist_node written;
	void *filler;
	struct bio_vec bv;		/* of @filler */
	u64 gen;
	u32 unit;
	u32 units;
	int write_errors;		/* the member's, before it was written */
	bool held;
	bool writer;
	bool settled;
	bool failed;
};

/* The durable mark that comes before a kill of what a summary may list. */
int kvblk_kill_mark(struct kvblk_member *member, struct kvblk_segment *seg,
		    u64 gen);
/*
 * Changes to the index that leave a stale record behind, and have it killed in
 * the background. Deletes of its id wait for that. Return as the functions of
 * index/index.h do. May sleep for memory.
 */
int kvblk_entry_insert(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *slot, struct kvblk_slot *old);
bool kvblk_entry_replace(struct kvblk_pool *pool, struct kvblk_id id,
			 const struct kvblk_slot *old,
			 const struct kvblk_slot *new);
/* Removes an expired entry. Its record needs no kill. Returns false if it is another one. */
bool kvblk_entry_expire(struct kvblk_pool *pool, struct kvblk_id id,
			const struct kvblk_slot *old);
/*
 * Removes the entry; @waiter (kvblk_io_start() was called) ends when its record
 * is killed, or could not be. -EAGAIN: the entry is not @old any more; -ENOMEM.
 * May sleep.
 */
int kvblk_entry_delete(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *old, struct kvblk_io *waiter);
/* A record that never was an entry, or is none any more. */
void kvblk_kill_later(struct kvblk_pool *pool, struct kvblk_id id,
		      const struct kvblk_slot *slot);
/* The put whose slot was taken over is done, and its record is to be killed. */
void kvblk_kill_settle(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *slot);
/*
 * 0: no stale record of @id is left; 1: one waits for its kill
 * (pool->settle_wait tells); -EIO: it can't be killed now.
 */
int kvblk_kill_barrier(struct kvblk_pool *pool, struct kvblk_id id);
void kvblk_kill_work(struct work_struct *work);
/*
 * Each second, and when members leave: retries failed kills whose time has
 * come, gives up needless ones, and fails deletes that wait for a member that
 * does not answer. No sleep.
 */
void kvblk_kill_retry(struct kvblk_pool *pool);
/* The member lists as many kills as it may. */
static inline bool kvblk_kills_full(const struct kvblk_member *member)
{
	return READ_ONCE(member->kills_full);
}

/* The same of the member that @slot lies on. */
bool kvblk_slot_kills_full(struct kvblk_pool *pool, const struct kvblk_slot *slot);
/*
 * Must a delete of the entry wait until its member lists fewer? @moved: when one of them
 * ended, jiffies. pool->delete_wait tells.
 */
bool kvblk_slot_deletes_full(struct kvblk_pool *pool, const struct kvblk_slot *slot,
			     unsigned long *moved);

#endif
