/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The index: maps a block's 128-bit id to the place of its record.
 *
 * A fixed array of cache-line buckets with three 20-byte slots each; two candidate buckets
 * an id; at most two moves an insert. After kvblk_index_init() nothing is allocated but the
 * array of caller tags. Readers take no lock, and no RCU, because nothing is freed while the
 * pool exists: a seqcount for each stripe of buckets makes them retry. Writers lock the
 * stripe of the id.
 *
 * Context: process context only, or else a reader that interrupts a writer on its own CPU
 * spins for ever. Functions do not sleep unless noted.
 *
 * Listeners are notified of each tagged entry that becomes LIVE or leaves, under the lock of
 * its stripe, so that the changes of one id are in order. A dead entry leaves when its slot
 * is reused or swept.
 *
 * The rule: a WRITING, MOVING or leased slot is removed only by its owner, who names the
 * exact slot that it expects, or by the death of its segment (not of a WRITING one).
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
 * @KVBLK_SLOT_FREE: no owner; any insert may take it
 * @KVBLK_SLOT_WRITING: owned by the put that inserted it, until its I/O completes
 * @KVBLK_SLOT_LIVE: no owner; readable
 * @KVBLK_SLOT_MOVING: owned by reclaim, which copies the record; readable
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
 * @off: offset of the record in the segment, 4 KiB units
 * @len: payload length in bytes, 1 to 64 MiB
 * @gen: low 16 bits of the segment's generation when the record was written
 * @tenant: tenant id
 * @state: &enum kvblk_slot_state
 * @prio: the put's priority, 0 to 3
 * @leased: a lease pins the entry
 * @heat: tick of the last touch, 0 for never (a copy; see kvblk_index_touch())
 * @expiry: low bits of the pool's clock when the block expires, 0 for never
 * @caller_tag: the caller's tag; only 0 before kvblk_index_keep_tags()
 * @place: slot position, for kvblk_index_touch(); in evicted slots and in notifications, the
 *	token (see kvblk_index_token())
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

/* Return whether both slots are of the same record, in whatever states. */
static inline bool kvblk_same_record(const struct kvblk_slot *a, const struct kvblk_slot *b)
{
	return a->seg == b->seg && a->off == b->off && a->gen == b->gen;
}

/* Longest TTL, seconds: 34 years. Blocks with a longer one do not expire. */
#define KVBLK_TTL_MAX		0x40000000u

/*
 * Return whether @expiry has passed at @now, the low bits of the pool's clock. The clock wraps in
 * 136 years: a time up to 68 years ahead is the later one.
 */
static inline bool kvblk_expired(u32 expiry, u32 now)
{
	return expiry && (s32)(now - expiry) >= 0;
}

/* packed by hand, because bitfields are not accessed atomically */
struct kvblk_bucket;
struct kvblk_stripe;

/**
 * struct kvblk_index - the index of a pool
 * @buckets: nr_buckets cache lines, vmalloc; slots under the stripe's lock, heat bytes
 *	written without a lock
 * @expiry: a u32 for each slot, under the stripe's lock; valid if the slot expires
 * @tags: a u64 for each slot, under the stripe's lock; NULL while all tags are 0. Set once by
 *	kvblk_index_keep_tags(), read with READ_ONCE()
 * @tags_lock: protects the allocation of @tags
 * @nr_buckets: number of buckets, a multiple of @stripe_buckets
 * @stripes: locks and seqcounts
 * @nr_stripes: number of @stripes
 * @stripe_shift: binary logarithm of @stripe_buckets
 * @stripe_buckets: buckets in a stripe, at least 2
 * @seg_gen: low 16 bits of each segment's current generation, by segment number; owned by the
 *	pool, read with READ_ONCE(). A LIVE or MOVING slot whose generation differs is
 *	dead: not found, and free for inserts
 * @nr_segs: entries of @seg_gen; a slot with a larger segment number is dead
 * @pinned: for each 2^@pinned_shift segments, whether inserts must not evict entries there.
 *	Owned by the pool, read with READ_ONCE(); NULL: evict anywhere
 * @pinned_shift: see @pinned
 * @nr_evicted: live entries that inserts evicted
 * @listened: whether to call @notify; read with READ_ONCE(). Set it before
 *	kvblk_index_tagged(), or else changes between the two are missed
 * @notify: called with the stripe's lock held when an entry with a caller tag is added or
 *	removed; must not sleep or take a stripe's lock. Moved entries may be added twice.
 *	Set before the index is used
 * @expired: called like @notify when the sweep frees an expired entry, or NULL. Set before the
 *	index is used
 */
struct kvblk_index {
	struct kvblk_bucket *buckets;
	u32 *expiry;
	u64 *tags;
	struct mutex tags_lock;	/* allocation of tags */
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
	void (*notify)(struct kvblk_index *idx, const struct kvblk_slot *slot, bool came);
	void (*expired)(struct kvblk_index *idx, const struct kvblk_slot *slot);
};

/* Set the sizes for @nr_slots, as kvblk_index_init() and kvblk_index_bytes() use them. */
void kvblk_index_shape(struct kvblk_index *idx, u64 nr_slots);

/* Initialize an index of at least @nr_slots. Returns 0 or -ENOMEM. May sleep. */
int kvblk_index_init(struct kvblk_index *idx, u64 nr_slots, const u16 *seg_gen,
		     u32 nr_segs);

/*
 * Allocate the array of caller tags, once. Call it before the first insert with a tag, so that a
 * pool without tags does not pay for it. Returns 0 or -ENOMEM. May sleep.
 */
int kvblk_index_keep_tags(struct kvblk_index *idx);
bool kvblk_index_keeps_tags(const struct kvblk_index *idx);

/* Free the index; safe after a failed init and on a zeroed struct. */
void kvblk_index_destroy(struct kvblk_index *idx);

/* Largest result of kvblk_index_tagged(). */
#define KVBLK_INDEX_BUCKET	3

/*
 * Copy the entries of @bucket that have a caller tag, are LIVE or MOVING, and neither dead nor
 * expired at @now, to @slots. Returns their number. A walk over all buckets while @listened is
 * set misses no entry.
 */
unsigned int kvblk_index_tagged(struct kvblk_index *idx, u64 bucket, u32 now,
				struct kvblk_slot slots[KVBLK_INDEX_BUCKET]);

/* Return the index's memory in bytes. */
u64 kvblk_index_bytes(const struct kvblk_index *idx);

/* Return the number of slots, at least what kvblk_index_init() was given. */
u64 kvblk_index_slots(const struct kvblk_index *idx);

/* Return the number of slots that are not FREE; dead ones count until they are swept. */
u64 kvblk_index_used(const struct kvblk_index *idx);

/* Prefetch the cache lines of @id, ahead of a batch. */
void kvblk_index_prefetch(const struct kvblk_index *idx, struct kvblk_id id);

/*
 * Prefetch the other lines that an insert of @id reads. Its own lines must be in the cache: call
 * this half as far ahead as kvblk_index_prefetch().
 */
void kvblk_index_prefetch_room(const struct kvblk_index *idx, struct kvblk_id id);

/*
 * Copy the entry of @id to @slot, whatever its state. Returns false if there is no live one;
 * @slot may have been written nevertheless.
 */
bool kvblk_index_find(const struct kvblk_index *idx, struct kvblk_id id,
		      struct kvblk_slot *slot);

/*
 * kvblk_index_find() for @nr ids, at most 64, whose lines are prefetched. Returns a bit for each
 * id that is found, the lowest for the first.
 */
u64 kvblk_index_find_many(const struct kvblk_index *idx,
			  const struct kvblk_id *ids, unsigned int nr,
			  struct kvblk_slot *slots);

/*
 * Return the bits of @id that the index stores. Ids with the same token share an entry: the full
 * key in the record's header tells them apart.
 */
u64 kvblk_index_token(const struct kvblk_index *idx, struct kvblk_id id);

/* Return the stripe of @id. Its entry never leaves this stripe. */
u32 kvblk_index_stripe(const struct kvblk_index *idx, struct kvblk_id id);

/*
 * Insert @slot (any state but FREE, every field in its range) for @id. Returns 0; -EEXIST with
 * the present entry in @old; -ENOSPC if every candidate is WRITING, MOVING, leased or pinned, or
 * (without @evict) live; 1 with an evicted live entry in @old. The caller must then invalidate
 * the evicted record on media, or else it could come back after a restart. Victims: lowest prio
 * first, then never touched, then oldest touch.
 */
int kvblk_index_insert(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *slot, struct kvblk_slot *old,
		       bool evict);

/*
 * Replace the entry of @id by @new (NULL: remove it) if segment, offset, generation and state are
 * as in @old. Returns false if they differ. Keeps the leased bit and the heat. Replaces a dead
 * entry, too, because its owner may be cleaning up.
 */
bool kvblk_index_replace(struct kvblk_index *idx, struct kvblk_id id,
			 const struct kvblk_slot *old,
			 const struct kvblk_slot *new);

/*
 * kvblk_index_replace() unless a lease pins the entry. Reclaim thus makes a block MOVING that it
 * drops, because a MOVING one can't be leased.
 */
bool kvblk_index_claim(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *old,
		       const struct kvblk_slot *new);

/*
 * Set or clear the leased bit if segment, offset and generation are as in @old. Only a LIVE entry
 * that is not dead takes a lease. Returns whether the bit was written.
 */
bool kvblk_index_lease(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *old, bool leased);

/*
 * Record a touch of @slot, from kvblk_index_find(), at @tick (1 to 255). Lockless: if the entry
 * has moved, another one is touched, which is harmless.
 */
void kvblk_index_touch(struct kvblk_index *idx, const struct kvblk_slot *slot,
		       u8 tick);

/*
 * Free dead and expired slots of @nr buckets from @start on, and add their number to @dropped.
 * @now: low bits of the pool's clock. Expired LIVE entries are freed even if leased; MOVING ones
 * belong to their owner. Returns the bucket to continue with, 0 after the last one.
 */
u64 kvblk_index_sweep(struct kvblk_index *idx, u64 start, u64 nr, u32 now,
		      u64 *dropped);

#endif
