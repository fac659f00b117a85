/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The index: maps a block's 128-bit id to the place of its record. A fixed array of cache-line
 * buckets with three 20-byte slots each; two candidate buckets an id; at most two moves an insert.
 * After kvblk_index_init() nothing is allocated but the array of caller tags.
 *
 * Readers take no lock, and no RCU, because nothing is freed while the pool exists: a seqcount for
 * each stripe of buckets makes them retry. Writers lock the stripe of the id. Process context only,
 * or else a reader that interrupts a writer on its own CPU spins for ever. Functions do not sleep
 * unless noted.
 *
 * A LIVE or MOVING slot whose generation is not its segment's is dead: not found, free for inserts.
 * The rule: a WRITING, MOVING or leased slot is removed only by its owner, who names the exact slot
 * that it expects, or by the death of its segment (not of a WRITING one).
 *
 * Listeners are notified of each entry that becomes LIVE or leaves, under the lock of its stripe,
 * so that the changes of one id are in order. A dead entry leaves when its slot is reused or swept.
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
#define KVBLK_INDEX_BUCKET	3	/* slots in a bucket */

enum kvblk_slot_state {
	KVBLK_SLOT_FREE,	/* no owner; any insert may take it */
	KVBLK_SLOT_WRITING,	/* owned by the put that inserted it, until its I/O completes */
	KVBLK_SLOT_LIVE,	/* no owner; readable */
	KVBLK_SLOT_MOVING,	/* owned by reclaim, which copies the record; readable */
};

struct kvblk_slot {
	u32 seg;	/* pool-wide segment number */
	u32 off;	/* of the record in the segment, 4 KiB units */
	u32 len;	/* payload length in bytes, 1 to 64 MiB */
	u16 gen;	/* low 16 bits of the segment's generation when written */
	u16 tenant;
	u8 state;	/* enum kvblk_slot_state */
	u8 prio;	/* the put's priority, 0 to 3 */
	bool leased;	/* a lease pins the entry */
	u8 heat;	/* tick of the last touch, 0: never (a copy; see kvblk_index_touch()) */
	u32 expiry;	/* low bits of the pool's clock at the expiry, 0: never */
	u64 caller_tag;	/* only 0 before kvblk_index_keep_tags() */
	u64 place;	/* last known position; in evicted slots and walks, kvblk_index_token() */
};

/* An entry as walks and listeners get it. */
struct kvblk_index_entry {
	struct kvblk_slot slot;
	struct kvblk_id name;	/* stored bits of the id, unique at a time; @hi: bucket */
};

static inline bool kvblk_same_record(const struct kvblk_slot *a, const struct kvblk_slot *b)
{
	return a->seg == b->seg && a->off == b->off && a->gen == b->gen;
}

/* Return whether @expiry has passed at @now, which wraps: up to 68 years ahead count as later. */
static inline bool kvblk_expired(u32 expiry, u32 now)
{
	return expiry && (s32)(now - expiry) >= 0;
}

struct kvblk_bucket;
struct kvblk_stripe;

struct kvblk_index {
	struct kvblk_bucket *buckets;	/* slots under the stripe's lock, heat without */
	u32 *expiry;		/* by slot, under the stripe's lock; of slots that expire or stay */
	u64 *tags;		/* as @expiry; NULL while all are 0; set once, READ_ONCE() */
	struct mutex tags_lock;	/* allocation of tags */
	u64 nr_buckets;		/* a multiple of @stripe_buckets */
	struct kvblk_stripe *stripes;
	u32 nr_stripes;
	u32 stripe_shift;	/* binary logarithm of @stripe_buckets */
	u32 stripe_buckets;	/* buckets in a stripe, at least 2 */
	const u16 *seg_gen;	/* the pool's: generations by segment, low bits; READ_ONCE() */
	u32 nr_segs;		/* entries of @seg_gen; slots of larger segments are dead */
	u32 own_segs;		/* from here on: other nodes'; evicted first, never pinned */
	const bool *pinned;	/* the pool's: granules without eviction, or NULL; READ_ONCE() */
	u32 pinned_shift;	/* log2 of the segments in a granule */
	atomic64_t nr_evicted;	/* live entries that inserts evicted */
	/* bit of each tenant whose entries live, NULL: all; READ_ONCE() of bits; set before use */
	const unsigned long *tenants;
	/* another node's entries of @tenant in @seg are dead, or NULL; must not sleep */
	bool (*unshared)(const struct kvblk_index *idx, u32 seg, u16 tenant);
	bool listened;	/* call @notify; READ_ONCE(); set before a walk by kvblk_index_entries() */
	/* set before use; entry added, moved or removed; must not sleep: stripe's lock held */
	void (*notify)(struct kvblk_index *idx, const struct kvblk_index_entry *entry, bool came);
	/* as @notify, when the sweep frees an expired entry or a removed tenant's, or NULL */
	void (*expired)(struct kvblk_index *idx, const struct kvblk_slot *slot);
	/*
	 * As @notify, always, or NULL: record @slot became readable, or an entry left that was
	 * readable and maybe has died since. Not called for entries that stay, nor for dead ones.
	 */
	void (*account)(struct kvblk_index *idx, const struct kvblk_slot *slot, bool came);
};

/* An entry that may be dropped to make room in a tenant's quota. */
struct kvblk_index_cold {
	struct kvblk_slot slot;
	struct kvblk_id id;	/* has the entry's stored bits: stands for its id in all calls */
	u32 rank;		/* the lower, the earlier inserts would evict it */
};

#define KVBLK_INDEX_RANKS	1024	/* &kvblk_index_cold.rank is less */

/*
 * Allocate a zeroed array, from all NUMA nodes if the caller is a kernel thread. Returns NULL
 * without memory. May sleep. Free with vfree().
 */
void *kvblk_index_array(u64 nr, size_t size);
void kvblk_index_shape(struct kvblk_index *idx, u64 nr_slots);	/* set the sizes */
/* Initialize an index of at least @nr_slots. Returns 0 or -ENOMEM. May sleep. */
int kvblk_index_init(struct kvblk_index *idx, u64 nr_slots, const u16 *seg_gen, u32 nr_segs);
/* Allocate the caller tags, before the first insert with one. Returns 0 or -ENOMEM. May sleep. */
int kvblk_index_keep_tags(struct kvblk_index *idx);
bool kvblk_index_keeps_tags(const struct kvblk_index *idx);
void kvblk_index_destroy(struct kvblk_index *idx);	/* safe after a failed init and if zeroed */
/*
 * Copy the LIVE and MOVING entries of @bucket that are neither dead nor expired at @now to
 * @entries. Returns their number. A walk over all buckets while @listened is set misses no entry.
 */
unsigned int kvblk_index_entries(struct kvblk_index *idx, u64 bucket, u32 now,
				 struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET]);
/*
 * Copy the LIVE entries of @tenant in @bucket that are own, neither leased nor dead, to @colds.
 * @tick: the current one. Returns their number.
 */
unsigned int kvblk_index_colds(struct kvblk_index *idx, u64 bucket, u16 tenant, u8 tick,
			       struct kvblk_index_cold colds[KVBLK_INDEX_BUCKET]);
u64 kvblk_index_bytes(const struct kvblk_index *idx);
u64 kvblk_index_slots(const struct kvblk_index *idx);	/* @nr_slots of the init, or more */
u64 kvblk_index_used(const struct kvblk_index *idx);	/* not FREE: with dead ones until swept */
void kvblk_index_prefetch(const struct kvblk_index *idx, struct kvblk_id id);
/* Prefetch what else an insert reads. Call it half as far ahead as kvblk_index_prefetch(). */
void kvblk_index_prefetch_room(const struct kvblk_index *idx, struct kvblk_id id);
/* Copy the entry of @id, in any state, to @slot. Returns false if none or dead; may write @slot. */
bool kvblk_index_find(const struct kvblk_index *idx, struct kvblk_id id, struct kvblk_slot *slot);
/* kvblk_index_find() for up to 64 prefetched ids. Returns a bit for each id found, lowest first. */
u64 kvblk_index_find_many(const struct kvblk_index *idx, const struct kvblk_id *ids,
			  unsigned int nr, struct kvblk_slot *slots);
/* Return the stored bits of @id. Ids with equal ones share an entry; headers have the full key. */
u64 kvblk_index_token(const struct kvblk_index *idx, struct kvblk_id id);
u32 kvblk_index_stripe(const struct kvblk_index *idx, struct kvblk_id id);	/* never changes */
/*
 * Insert @slot (any state but FREE, every field in its range) for @id. Returns 0; -EEXIST with
 * the present entry in @old; -ENOSPC if every candidate is WRITING, MOVING, leased or pinned, or
 * (without @evict) live; 1 with an evicted live entry in @old, whose record the caller must
 * invalidate. Victims: lowest prio first (retained: as the highest), then never touched, then the
 * oldest touch. A foreign @slot evicts only foreign entries, which need no invalidation. Sets
 * @slot->place.
 */
int kvblk_index_insert(struct kvblk_index *idx, struct kvblk_id id, struct kvblk_slot *slot,
		       struct kvblk_slot *old, bool evict);
/*
 * Replace the entry of @id by @new (NULL: remove it), dead or not, if record and state are those of
 * @old. Returns whether it did. Keeps the leased bit, the heat and, unless the expiry changes, the
 * retention. Keeps the prio, which may have been set since, if that of @new is @old's.
 */
bool kvblk_index_replace(struct kvblk_index *idx, struct kvblk_id id, const struct kvblk_slot *old,
			 const struct kvblk_slot *new);
/* Make the WRITING entry of @slot LIVE. Returns success: false if its owner lost it. */
bool kvblk_index_publish(struct kvblk_index *idx, struct kvblk_id id,
			 const struct kvblk_slot *slot);
/* kvblk_index_replace() unless leased. Reclaim makes what it drops MOVING: not to be leased. */
bool kvblk_index_claim(struct kvblk_index *idx, struct kvblk_id id, const struct kvblk_slot *old,
		       const struct kvblk_slot *new);
/*
 * Set the leased bit of @old's record if not dead, and LIVE, or MOVING and either leased already or
 * with bit @nr of @kept (may be NULL) set. Who clears that bit before kvblk_index_claim() sees each
 * such lease. Returns success.
 */
bool kvblk_index_lease(struct kvblk_index *idx, struct kvblk_id id, const struct kvblk_slot *old,
		       const unsigned long *kept, u32 nr);
/* Clear the leased bit of the entry of @id, if any, in any state. */
void kvblk_index_unlease(struct kvblk_index *idx, struct kvblk_id id);
/*
 * Touch the entry of a found @slot at @tick, 1 to 255; 0: as if never. Without a lock: may touch
 * another entry.
 */
bool kvblk_index_touch(struct kvblk_index *idx, const struct kvblk_slot *slot, u8 tick);
/* Set the prio of @id's LIVE or MOVING entry. Returns false if it has none. */
bool kvblk_index_prioritize(struct kvblk_index *idx, struct kvblk_id id, u8 prio);
/*
 * Retain @id's LIVE or MOVING entry until the pool's clock is @until, or until its expiry if it has
 * one; 0: no longer. Inserts see the end after a sweep. Returns false if there is no such entry.
 */
bool kvblk_index_retain(struct kvblk_index *idx, struct kvblk_id id, u32 until);
/* Return whether the entry of a found @slot is retained at @now. As kvblk_index_touch(). */
bool kvblk_index_retained(const struct kvblk_index *idx, const struct kvblk_slot *slot, u32 now);
/*
 * Free dead slots, and LIVE ones that are expired, unshared or of a removed tenant, even if leased,
 * of @nr buckets from @start on. Add their number to @dropped. End what was retained until @now.
 * Returns the bucket to continue with, 0 after the last one.
 */
u64 kvblk_index_sweep(struct kvblk_index *idx, u64 start, u64 nr, u32 now, u64 *dropped);

#endif
