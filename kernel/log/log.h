/* SPDX-License-Identifier: GPL-2.0 */
/* The log: I/O, segments, restore, reclaim, invalidation, write throttle. */
#ifndef KVBLK_LOG_H
#define KVBLK_LOG_H

#include "log/scan.h"
#include "memory/proof.h"
#include "report/report.h"

struct kvblk_req;

/* ---- bio.c ---- */

/* Waits. @buf: page-aligned. Returns 0, -EIO if the place is bad, or an errno if out of reach. */
int kvblk_io_sync(struct kvblk_flash *flash, blk_opf_t opf, u64 pos, void *buf, size_t len);
int kvblk_io_read(struct kvblk_flash *flash, u64 pos, void *buf, size_t len);	/* with retries */
struct kvblk_reader kvblk_flash_reader(struct kvblk_flash *flash);
int kvblk_io_flush(struct kvblk_flash *flash);
void kvblk_io_discard(struct kvblk_flash *flash, u64 pos, u32 bytes);	/* waits; ignores errors */

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
void kvblk_io_flash_exit(struct kvblk_flash *flash);	/* needs no bio in flight */

/* Returns the number of bios in flight, and in @ios, unless NULL, the sums of all CPUs. */
u64 kvblk_flash_inflight(const struct kvblk_flash *flash, struct kvblk_ios *ios);
/* Takes a sample of the flash's bandwidth if one is due at @now. Process context. */
void kvblk_flash_look(struct kvblk_flash *flash, u64 now);

/* Bios in flight for one purpose. */
struct kvblk_io {
	struct kvblk_flash *flash;
	struct kvblk_io *whole;		/* larger I/O of which this is a part, or NULL */
	atomic_t pending;		/* bios in flight, plus one while some are submitted */
	blk_status_t status;		/* first error of a bio */
	u16 ioprio;			/* 0: that of the submitting task */
	bool p2p;			/* pages of PCI devices are among the vectors */
	bool alone;			/* not merged with other I/O, whose errors it would get */
	void (*done)(struct kvblk_io *io);	/* all bios are complete; any context */
};

static inline void kvblk_io_start(struct kvblk_io *io, struct kvblk_flash *flash,
				  void (*done)(struct kvblk_io *io))
{
	*io = (struct kvblk_io) { .flash = flash, .pending = ATOMIC_INIT(1), .done = done };
}

/*
 * Submits bios over @nr vectors, which must not change before @done. May sleep for memory or the
 * cgroup's io.cost budget, never for a device.
 */
void kvblk_io_submit(struct kvblk_io *io, blk_opf_t opf, u64 pos, const struct bio_vec *bv, u32 nr);
/* kvblk_io_submit() for the range @iter of @bv, at most @nr vectors, and of the device. */
void kvblk_io_submit_iter(struct kvblk_io *io, blk_opf_t opf, const struct bio_vec *bv,
			  const struct bvec_iter *iter, u32 nr);
/* Starts @io as a part of @whole, which gets its errors. @done must call kvblk_io_end(@whole). */
void kvblk_io_start_part(struct kvblk_io *io, struct kvblk_io *whole,
			 void (*done)(struct kvblk_io *io));
/* Ends the submission of bios, or a part of @io. Calls @done if everything is complete. */
static inline void kvblk_io_end(struct kvblk_io *io)
{
	if (atomic_dec_and_test(&io->pending))
		io->done(io);
}

/* ---- record.c ---- */

struct kvblk_mem;
struct kvblk_sums;

int kvblk_record_init(void);
void kvblk_record_exit(void);

static inline void *kvblk_header_alloc(bool encrypted, u32 length, gfp_t gfp)
{
	return (void *)__get_free_pages(gfp, get_order(kvblk_header_bytes(encrypted, length)));
}

static inline void kvblk_header_free(void *header, bool encrypted, u32 length)
{
	free_pages((unsigned long)header, get_order(kvblk_header_bytes(encrypted, length)));
}

/* Sets a header's checksums to @crcs, or to none. Returns false if they must be computed. */
bool kvblk_record_crcs(void *header, u32 length, u8 integrity, const __le32 *crcs);
/*
 * Encodes @rec into @header and submits header and payload, before the caller's kvblk_io_end(). May
 * sleep. @opf: further flags. @sum: compute the header's checksums, only with &kvblk_proof.seal.
 */
void kvblk_record_write(struct kvblk_io *io, blk_opf_t opf, const struct kvblk_reservation *resv,
			const struct kvblk_rec *rec, void *header, const struct kvblk_mem *mem,
			bool sum);
/*
 * Submits reads of @slot's record, of its payload from @from on, before kvblk_io_end(). May sleep.
 * @sum: compute checksums on arrival. Returns these, for kvfree() when @io is complete, or NULL.
 */
struct kvblk_sums *kvblk_record_read(struct kvblk_io *io, const struct kvblk_slot *slot,
				     void *header, const struct kvblk_mem *mem, u32 from, bool sum);
/*
 * Returns whether @header, read at @place, is of such a record of @length bytes, by its MAC. Sets
 * @rec, which points into @header. The caller verifies the payload.
 */
static inline bool kvblk_record_identify(const struct kvblk_place *place, bool encrypted,
					 u32 length, const void *header,
					 const struct kvblk_secret *secret, struct kvblk_rec *rec)
{
	return kvblk_record_decode(header, kvblk_header_bytes(encrypted, length), place, secret,
				   rec) == KVBLK_DEC_RECORD &&
	       rec->length == length && kvblk_rec_encrypted(rec) == encrypted;
}

/* Returns whether all chunks match @crcs. @sums: computed on arrival, or NULL. */
bool kvblk_payload_open(const struct kvblk_mem *mem, const struct kvblk_sums *sums, u8 integrity,
			const __le32 *crcs);

/*
 * Returns whether to write a record past the volatile cache, which may lose only the payload: a get
 * that does not verify returns garbage. Gets rely on rec->durable, because the policy may change.
 */
static inline bool kvblk_durable(const struct kvblk_flash *flash, u8 integrity)
{
	return integrity == KVBLK_INTEGRITY_NONE ||
	       READ_ONCE(flash->pool->tun.integrity) != KVBLK_CHECK_FULL ||
	       !bdev_write_cache(flash->bdev);
}

/* Returns whether REQ_FUA is one step: of write and flush, another write may get the error. */
static inline bool kvblk_fua(const struct kvblk_flash *flash)
{
	return !bdev_write_cache(flash->bdev) || bdev_fua(flash->bdev);
}

/* Returns whether the cache may have lost writes since write_errors was @errors, flush or not. */
static inline bool kvblk_writes_failed(const struct kvblk_flash *flash, int errors)
{
	return atomic_read(&flash->write_errors) != errors;
}

/* ---- segment.c ---- */

/* Effects of a crash on a record that gets can find. */
enum kvblk_safety {
	KVBLK_SAFE,			/* survives */
	KVBLK_CACHED,			/* survives if a flush of the member succeeds first */
	KVBLK_BARE,			/* if without checksums: lost until the segment is sealed */
	KVBLK_DOUBTFUL,			/* flush or not: a write of its segment or table failed */
};

static inline u64 kvblk_seg_pos(const struct kvblk_flash *flash, u32 segment, u32 unit)
{
	return kvblk_unit_pos(flash->data_start, flash->segment_units, segment, unit);
}

/* Returns the verdict about a payload in @seg. @get: facts about its record and reader. */
static inline enum kvblk_verdict kvblk_segment_judge(const struct kvblk_pool *pool,
						     const struct kvblk_segment *seg,
						     struct kvblk_proof_case get)
{
	get.policy = READ_ONCE(pool->tun.integrity);
	get.unproven = READ_ONCE(seg->flags) & KVBLK_SEGF_UNPROVEN;
	return kvblk_proof_judge(&kvblk_proofs[get.integrity], &get);
}

static inline u64 kvblk_slot_pos(const struct kvblk_flash *flash, const struct kvblk_slot *slot)
{
	return kvblk_seg_pos(flash, kvblk_slot_segment(flash, slot), slot->off);
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

static inline struct kvblk_place kvblk_slot_place(const struct kvblk_flash *flash,
						  const struct kvblk_slot *slot, u64 gen)
{
	return kvblk_place(flash, kvblk_slot_segment(flash, slot), gen, slot->off);
}

/* Writes the table's page with @segment. Returns 0 or an errno. May sleep. */
int kvblk_table_write(struct kvblk_member *member, u32 segment);
/* Reserves @units in an open segment of @class. Returns 0 or, after kvblk_log_kick(), -EAGAIN. */
int kvblk_member_reserve(struct kvblk_member *member, u8 class, u32 units,
			 struct kvblk_reservation *resv);
/*
 * Reserves space for a block of @length bytes on the next responding member that passes @suits,
 * unless NULL. Returns 0, -ENOSPC if no member is suitable, or -EAGAIN if space may appear soon.
 */
int kvblk_pool_reserve(struct kvblk_pool *pool, u16 tenant, u32 length,
		       bool (*suits)(void *what, struct kvblk_member *member), void *what,
		       struct kvblk_reservation *resv);
/* Returns whether to write past the cache, always if @lasts. Notes what a crash may do. */
bool kvblk_reservation_durable(struct kvblk_reservation *resv, u8 integrity, bool lasts);

static inline void kvblk_reservation_slot(const struct kvblk_reservation *resv,
					  struct kvblk_slot *slot)
{
	slot->seg = resv->member->flash.seg_base + resv->segment;
	slot->gen = (u16)resv->gen;
	slot->off = resv->unit;
}

/* The caller holds the segment. */
enum kvblk_safety kvblk_segment_safety(struct kvblk_member *member,
				       const struct kvblk_segment *seg, u32 unit);
/* Ends a reservation without I/O in flight. @header: of the record LIVE there; NULL: for a hole. */
void kvblk_reservation_release(struct kvblk_reservation *resv,
			       const struct kvblk_d_record *header);
/*
 * Wake a few of the operations that wait on pool->space_wait: _appears at new space, _passes by one
 * that was woken, unless it lacks space still. So as many try as find space, and not all. Any
 * context.
 */
static inline void kvblk_space_passes(struct kvblk_pool *pool)
{
	/* two, so that an operation which found space wakes more than took its place */
	wake_up_nr(&pool->space_wait, 2);
}

static inline void kvblk_space_appears(struct kvblk_pool *pool)
{
	atomic_inc(&pool->space_seq);
	kvblk_space_passes(pool);
}

/* Gives a sealed segment its place in the order of reclaim. Under log->lock. */
void kvblk_segment_rank(struct kvblk_member *member, struct kvblk_segment *seg);

/* Have pool/anchors.c read @seg, which is no longer FREE. log->lock is held. */
static inline void kvblk_anchors_look(struct kvblk_member *member, struct kvblk_segment *seg)
{
	if (member->log.anchors_due)
		__set_bit(seg - member->log.segs, member->log.anchors_due);
}

/* Subtracts @units from live_units, and notes a segment that becomes empty. Any context. */
void kvblk_segment_shrink(struct kvblk_member *member, struct kvblk_segment *seg, u32 units);
/* Subtracts a record from live_units if it leaves the index without an invalidation. */
void kvblk_segment_forget(struct kvblk_pool *pool, const struct kvblk_slot *slot);
void kvblk_index_expired(struct kvblk_index *idx, const struct kvblk_slot *slot);
/* Returns segments that puts need during a grace: 0 in no pod, at most half of the member. */
u32 kvblk_log_stock(const struct kvblk_member *member);
u64 kvblk_grace_end(const struct kvblk_pool *pool);
/* Returns whether the grace that ends at @end, of kvblk_grace_end(), is over. */
static inline bool kvblk_grace_over(u64 end)
{
	/* coarse, because it lags */
	return !end || ktime_get_coarse_boottime_ns() >= end;
}

/* Ends the generation of @seg in memory: ended on media, or without a record. Under log->lock. */
void kvblk_segment_retire(struct kvblk_member *member, struct kvblk_segment *seg);
/* Returns 0, -ENOMEM, -ENOSPC, or a write error. May sleep. */
int kvblk_segment_open(struct kvblk_member *member, u8 class);
int kvblk_segment_seal(struct kvblk_member *member, struct kvblk_segment *seg);
/* Has gets verify the payloads of @seg. Call kvblk_table_write() next. */
void kvblk_segment_doubt(struct kvblk_member *member, struct kvblk_segment *seg);
struct kvblk_open *kvblk_open_alloc(struct kvblk_member *member);
void kvblk_open_free(struct kvblk_open *open);
struct kvblk_d_entry *kvblk_open_entry(struct kvblk_open *open, u32 index);	/* may sleep */
extern const struct kvblk_flash_ops kvblk_log_flash_ops;
void kvblk_log_kick(struct kvblk_member *member);
void kvblk_log_work(struct work_struct *work);
void kvblk_checkpoint_work(struct work_struct *work);
int kvblk_change_page_init(struct kvblk_member *member);	/* 0 or -ENOMEM */
static inline u64 kvblk_change_page_pos(const struct kvblk_flash *flash)
{
	return flash->data_start - KVBLK_UNIT;
}

void kvblk_log_close(struct kvblk_member *member);	/* last writers have segments sealed */
static inline u32 kvblk_member_avail(const struct kvblk_member *member)
{
	return READ_ONCE(member->log.nr_free) + READ_ONCE(member->log.nr_ready);
}

/* References segment and @member of @slot. Returns NULL if retired or not kvblk_flash_in_use(). */
struct kvblk_segment *kvblk_segment_get(struct kvblk_pool *pool, const struct kvblk_slot *slot,
					struct kvblk_member **member, u64 *gen);
void kvblk_segment_put(struct kvblk_member *member, struct kvblk_segment *seg);

/* ---- account.c, quota.c ---- */

#define KVBLK_TENANT_WEIGHT	100	/* weight of a tenant unless set */

/* &kvblk_index.account of a pool's index. */
void kvblk_account_entry(struct kvblk_index *idx, const struct kvblk_slot *slot, bool came);
/* Sets the generation of segment number @seg, which ends another one's records. Any context. */
void kvblk_segment_gen_set(struct kvblk_pool *pool, u32 seg, u16 gen);
/* Allocates the accounts of "default" and of NVMe commands. Returns 0 or -ENOMEM. */
int kvblk_accounts_init(struct kvblk_pool *pool);
void kvblk_accounts_exit(struct kvblk_pool *pool);	/* nothing refers to an account */
/* Prepares all accounts for a new member's segments. Returns 0 or -ENOMEM. May sleep. */
int kvblk_accounts_grow(struct kvblk_pool *pool, u32 seg_base, u32 nr_segs);
/*
 * Under tenants.lock. Open: before tenant @id is in use; NULL: without limits. Returns 0 or
 * -ENOMEM. Close: when no file of the tenant may be opened; may sleep. Set: change all limits.
 */
int kvblk_account_open(struct kvblk_pool *pool, u16 id, const struct kvblk_tenant_limits *limits);
void kvblk_account_close(struct kvblk_pool *pool, struct kvblk_account *account);
void kvblk_account_set(struct kvblk_pool *pool, struct kvblk_account *account,
		       const struct kvblk_tenant_limits *limits);
u64 kvblk_account_used(const struct kvblk_account *account, enum kvblk_account_kind kind);
/* Returns whether a limited tenant uses more than a soft limit. */
bool kvblk_account_over(const struct kvblk_account *account);
/* Returns whether a tenant uses more than a soft limit. Does not sleep. */
bool kvblk_tenant_over(struct kvblk_pool *pool, u16 id);
/* Has blocks dropped if the tenant uses more than a soft limit. Does not sleep. */
void kvblk_account_check(struct kvblk_pool *pool, const struct kvblk_account *account);
void kvblk_quota_work(struct work_struct *work);
int __kvblk_account_reserve(struct kvblk_pool *pool, struct kvblk_account *account, u32 length,
			    u32 *held);
void __kvblk_account_release(struct kvblk_pool *pool, struct kvblk_account *account, u32 *held);
/*
 * Reserves space for a block of @length bytes in the tenant's quota, unless @held already, until
 * kvblk_account_release(). Returns 0 or -EDQUOT. Any context.
 */
static inline int kvblk_account_reserve(struct kvblk_pool *pool, struct kvblk_account *account,
					u32 length, u32 *held)
{
	return likely(!READ_ONCE(account->limited)) || *held ? 0 :
	       __kvblk_account_reserve(pool, account, length, held);
}

/* Ends a reservation, if any, after its record was counted or has failed. Any context. */
static inline void kvblk_account_release(struct kvblk_pool *pool, struct kvblk_account *account,
					 u32 *held)
{
	if (unlikely(*held))
		__kvblk_account_release(pool, account, held);
}

/* Returns the share of tenant @id of a member's bandwidth, 1 to 10000. Any context. */
static inline u32 kvblk_tenant_weight(const struct kvblk_pool *pool, u16 id)
{
	const struct kvblk_account *account;

	guard(rcu)();
	account = rcu_dereference(pool->tenants.account[id]);
	return account ? READ_ONCE(account->limits.weight) : KVBLK_TENANT_WEIGHT;
}

/* ---- restore.c, reclaim.c ---- */

/* Reads the low bits of the clock saved on media. Returns 0, -ENOMEM, or -ENODATA. */
int kvblk_table_time(struct kvblk_member *member, u32 *time);
void kvblk_member_restore(struct work_struct *work);
void kvblk_reclaim_work(struct work_struct *work);

/* ---- write_throttle.c: reads before writes, shares of tenants ---- */

/* A put, prefetch or demotion at its member's write throttle, or a get that waits for a share. */
struct kvblk_queued_io {
	struct list_head link;		/* in the throttle's or a cgroup's queue; throttle->lock */
	struct list_head counted;	/* in throttle->counted; throttle->lock */
	struct kvblk_member *member;	/* counts @bytes in its window, or NULL */
	const struct kvblk_account *account;	/* of the tenant */
	struct kvblk_share *share;	/* whose window counts it; NULL: the throttle's */
	u64 bytes;
	u64 deadline_ns;		/* of a get, in time of ktime_get_ns(), or 0 */
	u8 priority;			/* of a prefetch, else 0 */
	bool prefetch;
	bool get;
	unsigned long since;		/* jiffies of queueing, then of counting */
	const bool *given_up;		/* true once the operation was canceled */
	const struct cgroup_subsys_state *cgroup;	/* compared only: no reference is held */
	u16 ioprio;			/* of the submitting task if queued, else 0 */
	struct cgroup_subsys_state *css;	/* @cgroup with a reference, if queued */
	void (*submit)(struct kvblk_queued_io *queued);	/* or completes if canceled; may sleep */
};

int kvblk_throttle_init(void);
void kvblk_throttle_exit(void);
void kvblk_throttle_member_init(struct kvblk_member *member);
void kvblk_throttle_member_exit(struct kvblk_member *member);	/* no put in flight; may sleep */
/* Returns whether new puts must wait, on pool->space_wait, before they reserve space. */
static inline bool kvblk_throttle_full(const struct kvblk_member *member)
{
	return READ_ONCE(member->log.throttle.full);
}

/* Returns whether I/O of the tenant must enter the throttle, even a get: for its share. */
static inline bool kvblk_flash_shares(const struct kvblk_flash *flash,
				      const struct kvblk_account *account)
{
	return READ_ONCE(flash->payer) != account;
}

void kvblk_throttle_enter(struct kvblk_queued_io *queued, struct kvblk_member *member);
void __kvblk_throttle_leave(struct kvblk_queued_io *queued, struct kvblk_member *member);
/* Notifies the throttle of completed I/O. @queued may be zero: never entered. Any context. */
static inline void kvblk_throttle_leave(struct kvblk_queued_io *queued)
{
	/* pairs with throttle_uncount(), which clears @member when done with @queued */
	struct kvblk_member *member = smp_load_acquire(&queued->member);

	if (member)
		__kvblk_throttle_leave(queued, member);
}

u64 kvblk_put_window(const struct kvblk_member *member);	/* bytes allowed, or U64_MAX */

/* ---- missing.c ---- */

/* A member that is missing while its pool is up. */
struct kvblk_missing {
	struct list_head link;		/* pool->missing_members; RCU, pool->member_list_lock */
	uuid_t uuid;
	u64 incarnation;
	struct kvblk_life life;		/* in its superblock */
	bool clean;			/* others of the activation were stopped cleanly */
	bool taken;			/* a member returns with this entry; pool->admin */
	u64 mask;			/* number of bits in @bits, less one */
	unsigned long *bits;		/* Bloom filter of changed ids and invalid places */
};

/* Finds a member by @uuid or, if NULL, by @name. RCU or pool->admin. */
struct kvblk_member *kvblk_member_named(struct kvblk_pool *pool, const char *name,
					const uuid_t *uuid);
void kvblk_member_list_load(struct kvblk_pool *pool, const struct kvblk_d_super *sb);
/* Returns the number of the list that is stored. */
u64 kvblk_member_list_store(struct kvblk_pool *pool, struct kvblk_d_super *sb);
/* Count a change of the list or of the tenants. Returns its number. member_list_lock. */
u64 kvblk_member_list_changed(struct kvblk_pool *pool);
void kvblk_member_list_renew(struct kvblk_pool *pool);	/* newer number, same members */
/* Sets the listed name, or a unique one unless @given. Returns 0, -EEXIST (taken) or -ENOSPC. */
int kvblk_member_list_add(struct kvblk_pool *pool, struct kvblk_member *member, bool given);
bool kvblk_member_list_del(struct kvblk_pool *pool, const uuid_t *uuid);
/* Returns whether the member at @i is missing; copies entry and place (or NULL). Not under RCU. */
bool kvblk_member_list_missing(struct kvblk_pool *pool, u32 i, struct kvblk_d_member *entry,
			       char place[KVBLK_PLACE_MAX]);

/* Starts the filter of a dying member, before its death is visible. May sleep; no I/O. */
void kvblk_missing_dies(struct kvblk_member *member);
/* Starts the filter of a member missing at assembly, last active in @life. */
void kvblk_missing_left_out(struct kvblk_pool *pool, const struct kvblk_d_member *entry,
			    struct kvblk_life life, bool clean);
/* Frees the filter of a member that is back or was removed. May sleep. */
void kvblk_missing_end(struct kvblk_pool *pool, const uuid_t *uuid);
void kvblk_missing_exit(struct kvblk_pool *pool);
/* Returns an entry or NULL; valid until restore calls kvblk_missing_end(). */
struct kvblk_missing *kvblk_missing_get(struct kvblk_pool *pool, const uuid_t *uuid);
void kvblk_missing_note_id(struct kvblk_pool *pool, struct kvblk_id id);
/* Notes a record of a dead member that was to be invalidated. */
void kvblk_missing_note_place(struct kvblk_member *member, u32 segment, u32 unit);
/* Returns whether this record of a member that returns with @missing, or NULL, may be stale. */
bool kvblk_missing_stale(const struct kvblk_missing *missing, struct kvblk_id id,
			 u32 segment, u32 unit);

/* Notes a put or delete of block @id for all missing members. Any context. */
static inline void kvblk_missing_note(struct kvblk_pool *pool, struct kvblk_id id)
{
	if (unlikely(!list_empty(&pool->missing_members)))
		kvblk_missing_note_id(pool, id);
}

/* ---- invalidate.c ---- */

/* Limits of queued invalidations of a member, and of those by deletes; see invalidate.c. */
#define KVBLK_KILLS_MAX		4096
#define KVBLK_KILLS_DELETES	(KVBLK_KILLS_MAX / 2)

/* Invalidation of a stale record that no restart may find. */
struct kvblk_kill {
	struct list_head link;		/* log->kills.list until the header is overwritten */
	struct hlist_node node;		/* pool->kills, by @token, for as long */
	struct kvblk_io io;		/* write of @filler */
	u64 token;			/* of the block's id; see kvblk_index_token() */
	struct kvblk_member *member;	/* reference held */
	struct kvblk_segment *seg;	/* reference held */
	/* of a delete, ended by the first try or if the member stops responding; by xchg() */
	struct kvblk_io *waiter;
	struct kill_run *run;		/* writes @filler, or NULL; pool->kill_lock */
	struct llist_node written;	/* in @run's list once the write is complete */
	void *filler;
	struct bio_vec bv;
	u64 gen;
	u32 unit;
	u32 units;
	int write_errors;		/* member->flash.write_errors before the write */
	bool held;			/* the entry is being removed: do not write yet */
	bool writer;			/* the put is in flight: wait for kvblk_kill_settle() */
	bool settled;			/* the put of @writer is complete */
	bool failed;			/* the last try; cleared by kvblk_kill_retry() */
};

/* Marks @seg durably, before a record in its summary is invalidated. Returns 0 or an errno. */
int kvblk_kill_mark(struct kvblk_member *member, struct kvblk_segment *seg, u64 gen);
/* Change an entry as the index does, and queue the stale record's invalidation. May sleep. */
int kvblk_entry_insert(struct kvblk_pool *pool, struct kvblk_id id,
		       struct kvblk_slot *slot, struct kvblk_slot *old);
bool kvblk_entry_replace(struct kvblk_pool *pool, struct kvblk_id id,
			 const struct kvblk_slot *old, const struct kvblk_slot *new);
/* Removes an entry unless it is leased. Returns false if it is, or if @old is outdated. */
bool kvblk_entry_drop(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *old);
/* Removes an expired entry, without invalidation. Returns false if @old is outdated. */
bool kvblk_entry_expire(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *old);
/*
 * Removes an entry. Ends @waiter, which the caller has started, once the record is invalidated or
 * cannot be. Returns 0, -EAGAIN if @old is outdated, or -ENOMEM. May sleep.
 */
int kvblk_entry_delete(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *old, struct kvblk_io *waiter);
/* Queues the invalidation of a record that no entry points to. */
void kvblk_kill_later(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot);
/* Permits to invalidate a record whose put is complete and whose slot was taken over. */
void kvblk_kill_settle(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot);
/* Returns 0 if @id has no stale record, 1 to wait on pool->settle_wait, or -EIO if one is stuck. */
int kvblk_kill_barrier(struct kvblk_pool *pool, struct kvblk_id id);
void kvblk_kill_work(struct work_struct *work);
/* Called each second and when members leave. Also fails stuck deletes. Does not sleep. */
void kvblk_kill_retry(struct kvblk_pool *pool);
static inline bool kvblk_kills_full(const struct kvblk_member *member)
{
	return READ_ONCE(member->log.kills.full);
}

bool kvblk_slot_kills_full(struct kvblk_pool *pool, const struct kvblk_slot *slot);
/* Returns whether a delete must wait, on pool->delete_wait. @moved: last completion, jiffies. */
bool kvblk_slot_deletes_full(struct kvblk_pool *pool, const struct kvblk_slot *slot,
			     unsigned long *moved);

#endif
