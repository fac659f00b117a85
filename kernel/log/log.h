/* SPDX-License-Identifier: GPL-2.0 */
/* The log: I/O, segments, restore, reclaim, invalidation, write throttle. */
#ifndef KVBLK_LOG_H
#define KVBLK_LOG_H

#include "log/scan.h"
#include "report/report.h"

struct kvblk_req;

/* ---- bio.c ---- */

/*
 * Reads or writes @len bytes at @pos and waits. @buf: page-aligned, from kmalloc or vmalloc.
 * Returns 0, -EIO if the place is bad, or another errno if the device was not reached.
 */
int kvblk_io_sync(struct kvblk_flash *flash, blk_opf_t opf, u64 pos, void *buf, size_t len);
/* Reads and returns as kvblk_io_sync(), with retries. */
int kvblk_io_read(struct kvblk_flash *flash, u64 pos, void *buf, size_t len);
/* Returns a reader of @flash's log: reads are retried, bad places reported. */
struct kvblk_reader kvblk_flash_reader(struct kvblk_flash *flash);
int kvblk_io_flush(struct kvblk_flash *flash);
/* Discards @bytes at @pos if the device supports it, and waits. Errors are ignored. */
void kvblk_io_discard(struct kvblk_flash *flash, u64 pos, u32 bytes);

/* Signal state of a task that submits: a dying target must not kill it by SIGPIPE. */
struct kvblk_sigpipe {
	sigset_t saved;
	bool was_pending;
	bool masked;			/* we blocked SIGPIPE; @saved: the old mask */
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
int kvblk_io_flash_init(struct kvblk_flash *flash);
void kvblk_io_limits(struct kvblk_flash *flash);
/* Frees the bio part of a flash that has no bio in flight. */
void kvblk_io_flash_exit(struct kvblk_flash *flash);

/* Returns the number of bios in flight. Stores the sums of all CPUs in @ios unless NULL. */
u64 kvblk_flash_inflight(const struct kvblk_flash *flash, struct kvblk_ios *ios);

/**
 * struct kvblk_io - bios in flight for one purpose
 * @flash: device of the bios
 * @whole: larger I/O with @io as a part, or NULL
 * @pending: bios in flight, plus one while bios are being submitted
 * @status: first error of a bio
 * @ioprio: priority of the bios; 0: priority of the submitting task
 * @p2p: pages of PCI devices are among the vectors
 * @done: called when all bios are complete, in any context
 */
struct kvblk_io {
	struct kvblk_flash *flash;
	struct kvblk_io *whole;
	atomic_t pending;
	blk_status_t status;
	u16 ioprio;
	bool p2p;
	void (*done)(struct kvblk_io *io);
};

void kvblk_io_start(struct kvblk_io *io, struct kvblk_flash *flash,
		    void (*done)(struct kvblk_io *io));
/*
 * Submits bios over @nr vectors, contiguous on media from @pos on. @bv must not change before
 * @done. Sleeps for memory or the io.cost budget of the caller's cgroup, never for a device.
 */
void kvblk_io_submit(struct kvblk_io *io, blk_opf_t opf, u64 pos,
		     const struct bio_vec *bv, u32 nr);
/* Submits the range @iter of @bv, at most @nr vectors, as kvblk_io_submit() does. */
void kvblk_io_submit_iter(struct kvblk_io *io, blk_opf_t opf, u64 pos,
			  const struct bio_vec *bv, struct bvec_iter iter, u32 nr);
/*
 * Starts @io as a part of @whole, which collects its errors and stays in flight until @done, in
 * any context, calls kvblk_io_end(@whole).
 */
void kvblk_io_start_part(struct kvblk_io *io, struct kvblk_io *whole,
			 void (*done)(struct kvblk_io *io));
/* Ends the submission of bios, or a part of @io. Calls @done if everything is complete. */
void kvblk_io_end(struct kvblk_io *io);

/* ---- payload.c ---- */

struct kvblk_mem;
struct kvblk_sums;

int kvblk_payload_init(void);
void kvblk_payload_exit(void);
void kvblk_payload_sum(const struct kvblk_mem *mem, __le32 *crcs);
/*
 * Sets the checksums in a header for @length bytes: @crcs unless NULL, or none as @integrity says.
 * Returns false if they must be computed.
 */
bool kvblk_record_crcs(void *header, u32 length, u8 integrity, const __le32 *crcs);
/*
 * Encodes and submits the record @rec at @resv, before the caller's kvblk_io_end(). @opf: further
 * flags. @header: its memory, with the checksums unless @sum: compute these. May sleep as
 * kvblk_io_submit().
 */
void kvblk_record_write(struct kvblk_io *io, blk_opf_t opf, const struct kvblk_reservation *resv,
			const struct kvblk_rec *rec, void *header, const struct kvblk_mem *mem,
			bool sum);
/*
 * Submits reads of the record at @slot, of its payload from byte @from on, before the caller's
 * kvblk_io_end(). @header: memory for the header. @sum: compute checksums on arrival. Returns
 * these or NULL; free them with kvblk_sums_free() when @io is complete. May sleep.
 */
struct kvblk_sums *kvblk_record_read(struct kvblk_io *io, const struct kvblk_slot *slot,
				     void *header, const struct kvblk_mem *mem, u32 from,
				     bool sum);
/*
 * Returns whether the @header that was read at @place is of a record of @length bytes, as @trust
 * proves. Sets @rec, which points into @header. The caller verifies the payload.
 */
bool kvblk_record_identify(const struct kvblk_place *place, u32 length, const void *header,
			   struct kvblk_trust trust, struct kvblk_rec *rec);
void kvblk_sums_free(struct kvblk_sums *sums);
/* Returns whether all chunks match @crcs. @sums: checksums computed on arrival, or NULL. */
bool kvblk_payload_check(const struct kvblk_mem *mem, const struct kvblk_sums *sums,
			 const __le32 *crcs);
/* Returns whether the chunks of @bytes at @data, in kernel memory, match @crcs. */
bool kvblk_data_check(const void *data, u32 bytes, const __le32 *crcs);

/*
 * Returns whether a record must be written past the member's volatile cache, which may lose a
 * payload but keep its header. A running host is not notified of the loss, and a get without
 * verification would return garbage. Gets rely on rec->durable: the policy may change.
 */
static inline bool kvblk_durable(const struct kvblk_flash *flash, u8 integrity)
{
	return integrity == KVBLK_INTEGRITY_NONE ||
	       READ_ONCE(flash->pool->tun.integrity) != KVBLK_CHECK_FULL ||
	       !bdev_write_cache(flash->bdev);
}

/*
 * Returns whether REQ_FUA is one step of the member. Otherwise it is a write and a flush, and a
 * loss in between may be reported to another write.
 */
static inline bool kvblk_fua(const struct kvblk_flash *flash)
{
	return !bdev_write_cache(flash->bdev) || bdev_fua(flash->bdev);
}

/*
 * Returns whether a write has failed since flash->write_errors was @errors. The cache may then
 * have lost other writes, although a flush succeeds.
 */
static inline bool kvblk_writes_failed(const struct kvblk_flash *flash, int errors)
{
	return atomic_read(&flash->write_errors) != errors;
}

/* ---- segment.c ---- */

/**
 * enum kvblk_safety - what a crash does to a record that gets can find
 * @KVBLK_SAFE: the record survives
 * @KVBLK_CACHED: the record survives if a flush of the member succeeds first
 * @KVBLK_BARE: the record is lost until its segment is sealed, if without checksums
 * @KVBLK_DOUBTFUL: the record may be lost even after a flush, because a write of its
 *	segment, or of the segment's table entry, has failed
 */
enum kvblk_safety {
	KVBLK_SAFE,
	KVBLK_CACHED,
	KVBLK_BARE,
	KVBLK_DOUBTFUL,
};

static inline u64 kvblk_seg_pos(const struct kvblk_flash *flash, u32 segment, u32 unit)
{
	return kvblk_unit_pos(flash->data_start, flash->segment_units, segment, unit);
}

/* Returns whether a payload in @seg must be verified before it is served. */
static inline bool kvblk_must_check(const struct kvblk_pool *pool,
				    const struct kvblk_segment *seg)
{
	return READ_ONCE(pool->tun.integrity) == KVBLK_CHECK_FULL ||
	       READ_ONCE(seg->flags) & KVBLK_SEGF_UNPROVEN;
}

static inline u64 kvblk_slot_pos(const struct kvblk_flash *flash, const struct kvblk_slot *slot)
{
	return kvblk_seg_pos(flash, slot->seg - flash->seg_base, slot->off);
}

static inline struct kvblk_place kvblk_place(const struct kvblk_flash *flash, u32 segment,
					     u64 gen, u32 unit)
{
	return (struct kvblk_place) {
		.incarnation = flash->incarnation,
		.generation = gen,
		.segment = segment,
		.unit = unit,
	};
}

/* Returns the place of the record at @slot, whose segment has generation @gen. */
static inline struct kvblk_place kvblk_slot_place(const struct kvblk_flash *flash,
						  const struct kvblk_slot *slot, u64 gen)
{
	return kvblk_place(flash, slot->seg - flash->seg_base, gen, slot->off);
}

/* Allocates the header of a record of @length bytes. Returns NULL if memory is short. */
static inline void *kvblk_header_alloc(u32 length, gfp_t gfp)
{
	return (void *)__get_free_pages(gfp, get_order(kvblk_header_bytes(length)));
}

static inline void kvblk_header_free(void *header, u32 length)
{
	free_pages((unsigned long)header, get_order(kvblk_header_bytes(length)));
}

/* Writes the table page of @segment from memory to media. Returns 0 or an errno. May sleep. */
int kvblk_table_write(struct kvblk_member *member, u32 segment);
/* Reserves @units in an open segment of @class. Returns 0 or, after kvblk_log_kick(), -EAGAIN. */
int kvblk_member_reserve(struct kvblk_member *member, u8 class, u32 units,
			 struct kvblk_reservation *resv);
/*
 * Reserves space for a block of @length bytes on the next responding member that passes @suits,
 * unless NULL. Returns 0, -ENOSPC if no member is suitable, or -EAGAIN if space may appear soon.
 */
int kvblk_pool_reserve(struct kvblk_pool *pool, u32 length,
		       bool (*suits)(void *what, struct kvblk_member *member), void *what,
		       struct kvblk_reservation *resv);
/*
 * Returns whether to write the record at @resv past the cache, always if it @lasts, and notes in
 * the segment how a crash could harm it.
 */
bool kvblk_reservation_durable(struct kvblk_reservation *resv, u8 integrity, bool lasts);
/* Sets the place of @slot to that of the reservation. */
void kvblk_reservation_slot(const struct kvblk_reservation *resv, struct kvblk_slot *slot);
/* Returns the safety of the live record at @unit. The caller holds the segment. */
enum kvblk_safety kvblk_segment_safety(struct kvblk_member *member,
				       const struct kvblk_segment *seg, u32 unit);
/* Ends a reservation whose I/O is complete. @rec: the record LIVE there now, or NULL for a hole. */
void kvblk_reservation_release(struct kvblk_reservation *resv, const struct kvblk_rec *rec);
/* Subtracts a record from live_units if it leaves the index without an invalidation. */
void kvblk_segment_forget(struct kvblk_pool *pool, const struct kvblk_slot *slot);
void kvblk_index_expired(struct kvblk_index *idx, const struct kvblk_slot *slot);
/*
 * Ends the generation of @seg in memory, once it is over on media: dropped records are gone at
 * once, and the segment is freed when nobody holds it. Under log->lock.
 */
void kvblk_segment_retire(struct kvblk_member *member, struct kvblk_segment *seg);
/* Opens a free segment now. Returns 0, -ENOMEM, -ENOSPC, or a write error. May sleep. */
int kvblk_segment_open(struct kvblk_member *member, u8 class);
int kvblk_segment_seal(struct kvblk_member *member, struct kvblk_segment *seg);
/* Marks @seg as unproven, so that gets verify its payloads. Call kvblk_table_write() next. */
void kvblk_segment_doubt(struct kvblk_member *member, struct kvblk_segment *seg);
struct kvblk_open *kvblk_open_alloc(struct kvblk_member *member);
void kvblk_open_free(struct kvblk_open *open);
/* Returns the summary entry of record @index; allocates its page. May sleep. */
struct kvblk_d_entry *kvblk_open_entry(struct kvblk_open *open, u32 index);
extern const struct kvblk_flash_ops kvblk_log_flash_ops;
void kvblk_log_kick(struct kvblk_member *member);
void kvblk_log_work(struct work_struct *work);
void kvblk_checkpoint_work(struct work_struct *work);
/* Closes all segments that take records. The last writer of each has it sealed. */
void kvblk_log_close(struct kvblk_member *member);
static inline u32 kvblk_member_avail(const struct kvblk_member *member)
{
	return READ_ONCE(member->log.nr_free) + READ_ONCE(member->log.nr_ready);
}

/*
 * References the segment of @slot and its @member. Returns NULL if the segment has another
 * generation or the member is not up.
 */
struct kvblk_segment *kvblk_segment_get(struct kvblk_pool *pool,
					const struct kvblk_slot *slot,
					struct kvblk_member **member, u64 *gen);
void kvblk_segment_put(struct kvblk_member *member, struct kvblk_segment *seg);

/* ---- restore.c ---- */

/* Reads the low bits of the clock saved in table page 0. Returns 0, -ENOMEM, or -ENODATA. */
int kvblk_table_time(struct kvblk_member *member, u32 *time);
void kvblk_member_restore(struct work_struct *work);

/* ---- reclaim.c ---- */

void kvblk_reclaim_work(struct work_struct *work);

/* ---- write_throttle.c: reads before writes ---- */

/**
 * struct kvblk_queued_io - a queued write: a put or prefetch at its member's write throttle
 * @link: entry in the throttle's or in a cgroup's queue; throttle->lock
 * @counted: entry in throttle->counted; throttle->lock
 * @member: member whose window counts @bytes, or NULL
 * @bytes: size of the write
 * @priority: priority of a prefetch, else 0
 * @prefetch: true for a prefetch
 * @since: time of queueing, then of counting, jiffies
 * @given_up: pointer to a flag that is true once the operation was canceled
 * @cgroup: cgroup of the I/O; only compared, since no reference is held
 * @ioprio: priority of the submitting task if queued, else 0
 * @css: @cgroup with a reference, if queued
 * @submit: submits the write, or completes it if canceled; called where it may sleep
 */
struct kvblk_queued_io {
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
	void (*submit)(struct kvblk_queued_io *queued);
};

int kvblk_throttle_init(void);
void kvblk_throttle_exit(void);
void kvblk_throttle_member_init(struct kvblk_member *member);
/* Frees the throttle of a member that has no put in flight. May sleep. */
void kvblk_throttle_member_exit(struct kvblk_member *member);
/* Returns whether new puts must wait, on pool->space_wait, before they reserve space. */
static inline bool kvblk_throttle_full(const struct kvblk_member *member)
{
	return READ_ONCE(member->log.throttle.full);
}

/* Submits @queued now, or queues it. */
void kvblk_throttle_enter(struct kvblk_queued_io *queued, struct kvblk_member *member);
void __kvblk_throttle_leave(struct kvblk_queued_io *queued, struct kvblk_member *member);
/* Notifies the throttle of completed I/O, unless @queued was never entered (zero). Any context. */
static inline void kvblk_throttle_leave(struct kvblk_queued_io *queued)
{
	/* pairs with throttle_uncount(), which clears @member when done with @queued */
	struct kvblk_member *member = smp_load_acquire(&queued->member);

	if (member)
		__kvblk_throttle_leave(queued, member);
}

/* Returns the bytes of puts that @member may have in flight now; U64_MAX: unlimited. */
u64 kvblk_put_window(const struct kvblk_member *member);

/* ---- missing.c ---- */

/**
 * struct kvblk_missing - a member that is missing while its pool is up
 * @link: entry in pool->missing_members; RCU, changed under pool->member_list_lock
 * @uuid: uuid of the member
 * @incarnation: incarnation of the member's format
 * @epoch: epoch in the member's superblock
 * @activation: activation in the member's superblock
 * @clean: the other members of the activation were stopped cleanly
 * @taken: a member is returning with this entry; under pool->admin
 * @mask: number of bits in @bits, less one
 * @bits: Bloom filter of changed ids, and of places whose records were to be invalidated
 */
struct kvblk_missing {
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

/* Load the member list from @sb, or store it in @sb. Storing returns the number of the list. */
void kvblk_member_list_load(struct kvblk_pool *pool, const struct kvblk_d_super *sb);
u64 kvblk_member_list_store(struct kvblk_pool *pool, struct kvblk_d_super *sb);
/* Gives the member list a newer number, though no member has changed. */
void kvblk_member_list_renew(struct kvblk_pool *pool);
/*
 * Lists @member and sets its name: a listed member gets the listed name. Another member's name
 * gets a number appended or, if @given, is rejected. Returns 0, -EEXIST (@given name taken) or
 * -ENOSPC.
 */
int kvblk_member_list_add(struct kvblk_pool *pool, struct kvblk_member *member, bool given);
bool kvblk_member_list_del(struct kvblk_pool *pool, const uuid_t *uuid);
/*
 * Returns whether the member at entry @i is missing, with copies of its entry and (unless NULL)
 * its place. Context: any that does not hold RCU.
 */
bool kvblk_member_list_missing(struct kvblk_pool *pool, u32 i, struct kvblk_d_member *entry,
			       char place[KVBLK_PLACE_MAX]);

/* Starts the filter of a dying member, before its death is visible. May sleep, does no I/O. */
void kvblk_missing_dies(struct kvblk_member *member);
/* Starts at assembly the filter of a missing member, last active in @epoch and @activation. */
void kvblk_missing_left_out(struct kvblk_pool *pool, const struct kvblk_d_member *entry,
			    u64 epoch, u64 activation, bool clean);
/* Frees the filter of a member that is back or was removed. May sleep. */
void kvblk_missing_end(struct kvblk_pool *pool, const uuid_t *uuid);
void kvblk_missing_exit(struct kvblk_pool *pool);
/* Returns the entry of a missing member or NULL; valid until restore calls kvblk_missing_end(). */
struct kvblk_missing *kvblk_missing_get(struct kvblk_pool *pool, const uuid_t *uuid);
void kvblk_missing_note_id(struct kvblk_pool *pool, struct kvblk_id id);
/* Notes that the record at this place of a dead member was to be invalidated. */
void kvblk_missing_note_place(struct kvblk_member *member, u32 segment, u32 unit);
/* Returns whether this record of a returning member may be out of date. */
bool kvblk_missing_stale(const struct kvblk_missing *missing, struct kvblk_id id,
			 u32 segment, u32 unit);

/* Notes a put or delete of block @id for all missing members. Any context. */
static inline void kvblk_missing_note(struct kvblk_pool *pool, struct kvblk_id id)
{
	if (unlikely(!list_empty(&pool->missing_members)))
		kvblk_missing_note_id(pool, id);
}

/* ---- invalidate.c ---- */

/* Limit of queued invalidations of a member; see invalidate.c. */
#define KVBLK_KILLS_MAX		4096
/* Limit at which deletes wait: the rest is for puts and evictions. */
#define KVBLK_KILLS_DELETES	(KVBLK_KILLS_MAX / 2)

/*
 * struct kvblk_kill - invalidation of a stale record that no restart may find
 * @link: entry in log->kills.list until the header is overwritten
 * @node: entry in pool->kills, by @token, for as long
 * @io: write of @filler
 * @token: token of the block's id; see kvblk_index_token()
 * @waiter: I/O of a waiting delete, completed after the first try or when the member stops
 *	responding; taken by xchg()
 * @run: run that writes the filler, or NULL; set under pool->kill_lock
 * @written: entry in @run's list once the write is complete
 * @held: the entry is still being removed: not to be written yet
 * @writer: the record's put is in flight: not to be written before kvblk_kill_settle()
 * @settled: that put is complete
 * @failed: the last try failed; cleared by kvblk_kill_retry()
 */
struct kvblk_kill {
	struct list_head link;
	struct hlist_node node;
	struct kvblk_io io;
	u64 token;
	struct kvblk_member *member;	/* reference held */
	struct kvblk_segment *seg;	/* reference held */
	struct kvblk_io *waiter;
	struct kill_run *run;
	struct llist_node written;
	void *filler;
	struct bio_vec bv;
	u64 gen;
	u32 unit;
	u32 units;
	int write_errors;		/* member->flash.write_errors before the write */
	bool held;
	bool writer;
	bool settled;
	bool failed;
};

/* Marks @seg durably before a record in its summary is invalidated. Returns 0 or an errno. */
int kvblk_kill_mark(struct kvblk_member *member, struct kvblk_segment *seg,
		    u64 gen);
/*
 * Change an entry, and queue the invalidation of the record that becomes stale; deletes of its id
 * wait. Return as the functions of index/index.h do. May sleep for memory.
 */
int kvblk_entry_insert(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *slot, struct kvblk_slot *old);
bool kvblk_entry_replace(struct kvblk_pool *pool, struct kvblk_id id,
			 const struct kvblk_slot *old,
			 const struct kvblk_slot *new);
/* Removes an expired entry, without invalidation. Returns false if @old is outdated. */
bool kvblk_entry_expire(struct kvblk_pool *pool, struct kvblk_id id,
			const struct kvblk_slot *old);
/*
 * Removes an entry. Completes @waiter, which the caller has started, when the record is
 * invalidated or cannot be. Returns 0, -EAGAIN if @old is outdated, or -ENOMEM. May sleep.
 */
int kvblk_entry_delete(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *old, struct kvblk_io *waiter);
/* Queues the invalidation of a record that no entry points to. */
void kvblk_kill_later(struct kvblk_pool *pool, struct kvblk_id id,
		      const struct kvblk_slot *slot);
/* Permits the invalidation of a record whose put is complete and whose slot was taken over. */
void kvblk_kill_settle(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *slot);
/*
 * Returns 0 if no stale record of @id is left, 1 if an invalidation is pending (it wakes
 * pool->settle_wait), or -EIO if a record cannot be invalidated now.
 */
int kvblk_kill_barrier(struct kvblk_pool *pool, struct kvblk_id id);
void kvblk_kill_work(struct work_struct *work);
/*
 * Each second, and when members leave: retries failed invalidations that are due, drops needless
 * ones, and fails deletes that wait for a member that does not respond. Does not sleep.
 */
void kvblk_kill_retry(struct kvblk_pool *pool);
static inline bool kvblk_kills_full(const struct kvblk_member *member)
{
	return READ_ONCE(member->log.kills.full);
}

bool kvblk_slot_kills_full(struct kvblk_pool *pool, const struct kvblk_slot *slot);
/*
 * Returns whether a delete must wait for space in its member's queue of invalidations, on
 * pool->delete_wait. @moved: jiffies of the last completion.
 */
bool kvblk_slot_deletes_full(struct kvblk_pool *pool, const struct kvblk_slot *slot,
			     unsigned long *moved);

#endif
