/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The index: from a block's 128-bit id to where its record lies.
 *
 * A fixed array of cache-line buckets with three 20-byte slots each, two
 * candidate buckets an id, at most two moves an insert. Nothing is allocated
 * after kvblk_index_init() but room for caller tags, when the first of them
 * comes. Readers take no lock: RCU is not needed either, since nothing is freed
 * while the pool lives; a seqcount for each stripe of buckets tells them to
 * read again. Writers lock the one stripe where the id is at home.
 *
 * Context: process context only; none of it sleeps but what says so. A reader
 * that interrupts a writer on its own CPU would wait for it for ever.
 *
 * An index can be listened to: each tagged entry that comes (LIVE) or goes is told,
 * under the lock of its stripe, so that what is told of one id is in order. A dead
 * entry goes when its slot is taken or swept.
 *
 * The rule: a slot in state WRITING or MOVING, and a leased one, leaves the
 * index only by the hand of its owner, who names the exact slot it expects;
 * or by the death of its segment, which takes all but WRITING ones.
 *
 * Pure logic: compiled for user space by selftests/host and `kvblk replay`.
 */
#ifndef KVBLK_INDEX_H
#define KVBLK_INDEX_H

#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/spinlock.h>
#include <linux/seqlock.h>
#include <linux/atomic.h>

#include "format/hash.h"

#define KVBLK_INDEX_SEG_BITS	24	/* pool-wide segment numbers */
#define KVBLK_INDEX_OFF_BITS	18	/* 4 KiB units in a segment: 1 GiB */
#define KVBLK_INDEX_LEN_BITS	26	/* length - 1: 64 MiB */
#define KVBLK_INDEX_TENANT_BITS	14

/**
 * enum kvblk_slot_state - who owns a slot
 * @KVBLK_SLOT_FREE: nobody; any insert may take it
 * @KVBLK_SLOT_WRITING: the put that inserted it, until its I/O is done
 * @KVBLK_SLOT_LIVE: nobody; readable
 * @KVBLK_SLOT_MOVING: reclaim, which copies the record; readable
 */
enum kvblk_slot_state {
	KVBLK_SLOT_FREE,
	KVBLK_SLOT_WRITING,
	KVBLK_SLOT_LIVE,
	KVBLK_SLOT_MOVING,
};

/**
 * struct kvblk_slot - an unpacked slot
 * @seg: pool-wide segment number
 * @off: place of the record in the segment, 4 KiB units
 * @len: payload length in bytes, 1 to 64 MiB
 * @gen: low 16 bits of the segment's generation when the record was written
 * @tenant: tenant id
 * @state: &enum kvblk_slot_state
 * @prio: the put's priority, 0 to 3
 * @leased: a lease pins the entry
 * @heat: tick of the last touch, 0 for never (a copy; see kvblk_index_touch())
 * @expiry: low bits of the pool's clock at which it is gone, 0 for never
 * @caller_tag: the caller's tag; only 0 before kvblk_index_keep_tags()
 * @place: where it was found, for kvblk_index_touch(); of what an insert
 *	evicted and of what is told to listeners, its token
 */
struct kvblk_slot {
	u32 seg;
	u32 off;
	u32 len;
	u16 gen;
	u16 tenant;
	u8 state;
	u8 prio;
	bool leased;
	u8 heat;
	u32 expiry;
	u64 caller_tag;
	u64 place;
};

/* Both are of one record, whatever became of its state meanwhile. */
static inline bool kvblk_same_record(const struct kvblk_slot *a, const struct kvblk_slot *b)
{
	return a->seg == b->seg && a->off == b->off && a->gen == b->gen;
}

/* Longest TTL, seconds: 34 years. What lives longer does not expire. */
#define KVBLK_TTL_MAX		0x40000000u

/*
 * Is it over at @now, the low bits of the pool's clock? That wraps in 136 years, so
 * of two times the earlier one is that which the other follows within 68.
 */
static inline bool kvblk_expired(u32 expiry, u32 now)
{
	return expiry && (s32)(now - expiry) >= 0;
}

/* One line of memory. Slots are packed by hand: bitfields would not be atomic. */
struct kvblk_bucket;
struct kvblk_stripe;

/**
 * struct kvblk_index - the index of a pool
 * @buckets: nr_buckets lines, vmalloc: slots under the stripe, and their heat
 *	in bytes that are written without a lock
 * @expiry: a u32 for each slot, under the stripe; only those of slots that
 *	have one are valid
 * @tags: a u64 for each slot, under the stripe; NULL while all of them are 0.
 *	Set once, by kvblk_index_keep_tags(), read with READ_ONCE()
 * @tags_lock: protects the making of @tags
 * @nr_buckets: whole stripes of them
 * @stripes: locks and seqcounts
 * @nr_stripes: of them
 * @stripe_shift: binary logarithm of @stripe_buckets
 * @stripe_buckets: in a stripe, at least 2
 * @seg_gen: low 16 bits of each segment's current generation, by segment
 *	number; owned by the pool, read with READ_ONCE(). A LIVE or MOVING slot
 *	whose generation differs is dead: not found, and free for inserts
 * @nr_segs: entries of @seg_gen; a slot with a larger number is dead
 * @pinned: for each 2^@pinned_shift segments: inserts evict nothing that lies
 *	there. Owned by the pool, read with READ_ONCE(); NULL: none
 * @pinned_shift: see @pinned
 * @nr_evicted: live entries that inserts threw out
 * @listened: @told is called, read with READ_ONCE(). Set before
 *	kvblk_index_tagged() is called, it lets nothing slip through between the two
 * @told: set before anybody uses the index: an entry with a caller tag has come, or
 *	has gone, under its stripe's lock: does not sleep, takes no stripe. One that is
 *	moved may come again
 * @expired: set before anybody uses the index, or NULL: the sweep has freed an expired
 *	entry; called as @told is
 */
struct kvblk_index {
	struct kvblk_bucket *buckets;
	u32 *expiry;
	u64 *tags;
	struct mutex tags_lock;	/* making of tags */
	u64 nr_buckets;
	struct kvblk_stripe *stripes;
	u32 nr_stripes;
	u32 stripe_shift;
	u32 stripe_buckets;
	const u16 *seg_gen;
	u32 nr_segs;
	const bool *pinned;
	u32 pinned_shift;
	atomic64_t nr_evicted;
	bool listened;
	void (*told)(struct kvblk_index *idx, const struct kvblk_slot *slot, bool came);
	void (*expired)(struct kvblk_index *idx, const struct kvblk_slot *slot);
};

/* What kvblk_index_init() makes of @nr_slots, as far as kvblk_index_bytes() needs it. */
void kvblk_index_shape(struct kvblk_index *idx, u64 nr_slots);

/* Makes an index with room for @nr_slots; 0 or -ENOMEM. May sleep. */
int kvblk_index_init(struct kvblk_index *idx, u64 nr_slots, const u16 *seg_gen,
		     u32 nr_segs);

/*
 * Makes room for caller tags, once: to be called before the first entry with a tag
 * is inserted, so that a pool without tags does not pay for them.
 * 0 or -ENOMEM. May sleep.
 */
int kvblk_index_keep_tags(struct kvblk_index *idx);
/* True: it has that room. */
bool kvblk_index_keeps_tags(const struct kvblk_index *idx);

/* Frees it; also one whose init failed, or that is all zero. */
void kvblk_index_destroy(struct kvblk_index *idx);

/* Most entries that kvblk_index_tagged() finds in a bucket. */
#define KVBLK_INDEX_BUCKET	3

/*
 * Copies what has a caller tag in @bucket, and is LIVE or MOVING, neither dead nor
 * expired at @now, to @slots; returns how many. Walked from bucket 0 to the last one
 * of &kvblk_index.nr_buckets, while listened to: nothing is missed.
 */
unsigned int kvblk_index_tagged(struct kvblk_index *idx, u64 bucket, u32 now,
				struct kvblk_slot slots[KVBLK_INDEX_BUCKET]);

/* Memory that it takes. */
u64 kvblk_index_bytes(const struct kvblk_index *idx);

/* Room: at least what init was asked for. */
u64 kvblk_index_slots(const struct kvblk_index *idx);

/* Slots not FREE (dead ones count until they are swept). */
u64 kvblk_index_used(const struct kvblk_index *idx);

/* Brings the lines of @id into the cache; a batch calls it ahead. */
void kvblk_index_prefetch(const struct kvblk_index *idx, struct kvblk_id id);

/*
 * Brings in what else an insert of @id looks at. Its own lines are in the cache
 * by now: a batch of inserts calls it half as far ahead as kvblk_index_prefetch().
 */
void kvblk_index_prefetch_room(const struct kvblk_index *idx, struct kvblk_id id);

/*
 * Copies the entry of @id to @slot, whatever its state. False: none, or dead;
 * @slot may have been written all the same.
 */
bool kvblk_index_find(const struct kvblk_index *idx, struct kvblk_id id,
		      struct kvblk_slot *slot);

/*
 * The same for @nr ids, at most 64, whose lines are in the cache: a bit in the
 * result for each one that is found, from the lowest on.
 */
u64 kvblk_index_find_many(const struct kvblk_index *idx,
			  const struct kvblk_id *ids, unsigned int nr,
			  struct kvblk_slot *slots);

/*
 * What the index knows of @id. Ids with the same token are one id to the index;
 * the full key in the record's header tells them apart.
 */
u64 kvblk_index_token(const struct kvblk_index *idx, struct kvblk_id id);

/*
 * The stripe where @id is at home: wherever its entry moves, it stays in these
 * &kvblk_index.stripe_buckets.
 */
u32 kvblk_index_stripe(const struct kvblk_index *idx, struct kvblk_id id);

/*
 * Inserts @slot (any state but FREE, every field in its range) for @id.
 * Returns 0; -EEXIST with the present entry in @old; -ENOSPC when every
 * candidate is WRITING, MOVING, leased or pinned, or (without @evict) live. When a
 * live entry had to go for it, returns 1 with the victim in @old: its record must be
 * killed on media by the caller, since it could come back after a restart
 * otherwise. Victims: lowest prio first, then never touched, then oldest touch.
 */
int kvblk_index_insert(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *slot, struct kvblk_slot *old,
		       bool evict);

/*
 * Replaces the entry of @id by @new (NULL: removes it) if it is still the one
 * in @old: same segment, offset, generation and state. False: it is not.
 * The leased bit and the heat of the entry stay as they are. A dead entry that
 * matches is replaced all the same (its owner may be cleaning up).
 */
bool kvblk_index_replace(struct kvblk_index *idx, struct kvblk_id id,
			 const struct kvblk_slot *old,
			 const struct kvblk_slot *new);

/*
 * kvblk_index_replace(), but only if no lease pins the entry. How reclaim takes
 * a block that it is going to drop: made MOVING, it can't be leased any more.
 */
bool kvblk_index_claim(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *old,
		       const struct kvblk_slot *new);

/*
 * Sets or clears the leased bit, if @id is still at @old's place (same segment,
 * offset and generation). Only a LIVE entry that is not dead takes a lease.
 */
bool kvblk_index_lease(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *old, bool leased);

/*
 * Notes a touch of @slot, as kvblk_index_find() told it, at @tick (1 to 255).
 * Lockless, racy, harmless: if the entry has gone elsewhere since then, whatever
 * is in its place now counts as touched.
 */
void kvblk_index_touch(struct kvblk_index *idx, const struct kvblk_slot *slot,
		       u8 tick);

/*
 * Frees dead and expired slots of @nr buckets from @start on; returns the
 * bucket to go on with, 0 when a pass is complete. @now: low bits of the
 * pool's clock. Expired ones go when they are LIVE, leased or not; a MOVING
 * one is its owner's. Adds to @dropped what was freed.
 */
u64 kvblk_index_sweep(struct kvblk_index *idx, u64 start, u64 nr, u32 now,
		      u64 *dropped);

#endif
