// SPDX-License-Identifier: GPL-2.0
/*
 * The index; index.h describes the interface.
 *
 * Both candidate buckets of an id are in the same stripe (run of buckets). Each follows from the
 * other and the tag alone, so an insert can move another entry without its id, within the stripe.
 *
 * The rule for writers: hold the stripe's lock, and make its seqcount odd only around all stores
 * that belong together. A reader then sees a moved slot in one of its two places, or retries.
 */
#include <linux/bitfield.h>
#include <linux/bitops.h>
#include <linux/build_bug.h>
#include <linux/bug.h>
#include <linux/errno.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/prefetch.h>
#include <linux/vmalloc.h>
#include <asm/byteorder.h>

#include "index/index.h"

#define BUCKET_SLOTS	KVBLK_INDEX_BUCKET
#define SLOT_BITS	160
#define HOME_SLOTS	(2 * BUCKET_SLOTS)
#define TAG_BITS	56
#define PATHS_AHEAD	6	/* prefetched buckets of a search for two moves */
#define PLACE_SHIFT	2	/* bits of the slot number in &kvblk_slot.place */
#define PLACE_MASK	(BIT(PLACE_SHIFT) - 1)
/*
 * Buckets in a stripe, unless the index is smaller. In small stripes inserts need fewer page table
 * entries, but more evict: at load 0.85, 0.13 % with one stripe, 0.19 % with 4096, 0.36 % with 512.
 */
#define STRIPE_BUCKETS	4096ULL
#define BUCKETS_MIN	2ULL
#define SLOTS_MAX	BIT_ULL(36)	/* far above the reach of segment numbers: no overflows */

/* A slot packed into 160 bits. SLOT_EXPIRES saves others a miss on the array of expiries. */
#define SLOT_TAG_HIGH	GENMASK_ULL(39, 0)
#define SLOT_STATE	GENMASK_ULL(41, 40)
#define SLOT_LEASED	BIT_ULL(42)
#define SLOT_EXPIRES	BIT_ULL(43)
#define SLOT_LEN_HIGH	GENMASK_ULL(47, 44)
#define SLOT_GEN	GENMASK_ULL(63, 48)

#define SLOT_SEG	GENMASK_ULL(23, 0)
#define SLOT_OFF	GENMASK_ULL(41, 24)
#define SLOT_LEN_LOW	GENMASK_ULL(63, 42)

#define SLOT_TENANT	GENMASK(13, 0)
#define SLOT_PRIO	GENMASK(15, 14)

/* bits in &kvblk_bucket.marks of the slots that are not FREE, and of the retained ones */
#define MARK_USED(nr)		(BIT(0) << (nr))
#define MARK_RETAINED(nr)	(BIT(4) << (nr))
#define MARKS_USED		GENMASK(BUCKET_SLOTS - 1, 0)
#define MARKS_RETAINED		(MARKS_USED << 4)

#define LEN_LOW_BITS	22
#define TAG_LOW_BITS	16

/* A slot in registers: the groups of SLOT_* are fields of @a, @b and @c; @tag: low bits. */
struct packed {
	u64 a;
	u64 b;
	u16 c;
	u16 tag;
};

/*
 * Slots in a cache line, packed by hand, because bitfields are not atomic. Written in the stripe's
 * seqcount; heat without the lock: maybe to a wrong slot, but such a store brings no old slot back.
 */
struct kvblk_bucket {
	union {
		__le64 tags;			/* low bits of all tags and two bytes behind */
		struct {
			__le16 tag[BUCKET_SLOTS];	/* low bits of each slot's tag */
			u16 c[BUCKET_SLOTS];
			u8 heat[BUCKET_SLOTS];	/* ticks of the last touches */
			u8 marks;	/* MARK_* bits; under the stripe's lock */
		};
	};
	u64 a[BUCKET_SLOTS];
	u64 b[BUCKET_SLOTS];
} __aligned(64);

/* Lock of a run of buckets. Unpadded: a fit of all into a cache matters more than false sharing. */
struct kvblk_stripe {
	spinlock_t lock;	/* the stripe and its buckets */
	seqcount_spinlock_t seq;	/* odd during changes */
	u32 nr_used;			/* slots that are not FREE; read without the lock */
};

struct place {
	u64 bucket;
	unsigned int nr;
};

/*
 * Where an id may be: the tag that its slot carries, and both candidate buckets. No array, because
 * compilers would guard the stack of each function that has one.
 */
struct home {
	u64 tag;
	u64 bucket;
	u64 second;
};

/* A relocation: each slot moves to the next place, from a candidate bucket to a vacant place. */
struct path {
	struct place at[3];
	unsigned int nr;
};

/* Return the slot's number in its bucket. The mask changes nothing; it spares checks of bounds. */
static __always_inline unsigned int place_nr(struct place at)
{
	return at.nr & PLACE_MASK;
}

static __always_inline struct packed slot_load(const struct kvblk_index *idx, struct place at)
{
	const struct kvblk_bucket *bucket = &idx->buckets[at.bucket];
	unsigned int nr = place_nr(at);

	return (struct packed) {
		.a = READ_ONCE(bucket->a[nr]),
		.b = READ_ONCE(bucket->b[nr]),
		.c = READ_ONCE(bucket->c[nr]),
		.tag = le16_to_cpu(READ_ONCE(bucket->tag[nr])),
	};
}

/* Stripe's lock held, inside the seqcount. */
static __always_inline void slot_store(struct kvblk_index *idx, struct place at, struct packed p)
{
	struct kvblk_bucket *bucket = &idx->buckets[at.bucket];
	unsigned int nr = place_nr(at);

	WRITE_ONCE(bucket->a[nr], p.a);
	WRITE_ONCE(bucket->b[nr], p.b);
	WRITE_ONCE(bucket->c[nr], p.c);
	WRITE_ONCE(bucket->tag[nr], cpu_to_le16(p.tag));
}

/* As slot_store(), but only the part with the state. */
static __always_inline void slot_store_state(struct kvblk_index *idx, struct place at,
					     struct packed p)
{
	WRITE_ONCE(idx->buckets[at.bucket].a[place_nr(at)], p.a);
}

static u8 *slot_heat(const struct kvblk_index *idx, struct place at)
{
	return &idx->buckets[at.bucket].heat[place_nr(at)];
}

static bool slot_retained(const struct kvblk_index *idx, struct place at)
{
	return READ_ONCE(idx->buckets[at.bucket].marks) & MARK_RETAINED(place_nr(at));
}

/* Mark the slot as FREE or not, and as retained or not. Stripe's lock held. */
static __always_inline void slot_mark(struct kvblk_index *idx, struct place at, bool used,
				      bool retained)
{
	u8 mark = used * MARK_USED(0) | retained * MARK_RETAINED(0);
	u8 *marks = &idx->buckets[at.bucket].marks;
	unsigned int nr = place_nr(at);

	WRITE_ONCE(*marks, (*marks & ~(MARK_USED(nr) | MARK_RETAINED(nr))) | mark << nr);
}

/* Stripe's lock held, and the slot is not FREE. */
static void slot_set_retained(struct kvblk_index *idx, struct place at, bool retained)
{
	slot_mark(idx, at, true, retained);
}

static u64 slot_number(struct place at)
{
	return at.bucket * BUCKET_SLOTS + at.nr;
}

static u64 place_pack(struct place at)
{
	return at.bucket << PLACE_SHIFT | at.nr;
}

static struct place place_unpack(u64 place)
{
	return (struct place) { place >> PLACE_SHIFT, place & PLACE_MASK };
}

static unsigned int slot_state(struct packed p)
{
	return FIELD_GET(SLOT_STATE, p.a);
}

/* Return whether the time of the slot in the array has passed: of its expiry, or its retention. */
static bool slot_expired(const struct kvblk_index *idx, struct place at, u32 now)
{
	return kvblk_expired(READ_ONCE(idx->expiry[slot_number(at)]), now);
}

/* Return whether the entry's segment was reclaimed or removed. WRITING slots have no segment. */
static bool entry_dead(const struct kvblk_index *idx, u8 state, u32 seg, u16 gen)
{
	return (state == KVBLK_SLOT_LIVE || state == KVBLK_SLOT_MOVING) &&
	       (seg >= idx->nr_segs || READ_ONCE(idx->seg_gen[seg]) != gen);
}

static bool slot_dead(const struct kvblk_index *idx, struct packed p)
{
	return entry_dead(idx, slot_state(p), FIELD_GET(SLOT_SEG, p.b), FIELD_GET(SLOT_GEN, p.a));
}

static __always_inline struct packed slot_pack(u64 tag, const struct kvblk_slot *slot)
{
	u32 len = slot->len - 1;

	return (struct packed) {
		.a = FIELD_PREP(SLOT_TAG_HIGH, tag >> TAG_LOW_BITS) |
		     FIELD_PREP(SLOT_STATE, slot->state) |
		     FIELD_PREP(SLOT_LEASED, slot->leased) |
		     FIELD_PREP(SLOT_EXPIRES, !!slot->expiry) |
		     FIELD_PREP(SLOT_LEN_HIGH, len >> LEN_LOW_BITS) |
		     FIELD_PREP(SLOT_GEN, slot->gen),
		.b = FIELD_PREP(SLOT_SEG, slot->seg) |
		     FIELD_PREP(SLOT_OFF, slot->off) |
		     FIELD_PREP(SLOT_LEN_LOW, len),
		.c = FIELD_PREP(SLOT_TENANT, slot->tenant) |
		     FIELD_PREP(SLOT_PRIO, slot->prio),
		.tag = tag,
	};
}

/* Unpack @p of @at. By fields, because a whole struct would need too many registers. */
static __always_inline void slot_unpack(const struct kvblk_index *idx, struct place at,
					struct packed p, struct kvblk_slot *slot)
{
	const u64 *tags = READ_ONCE(idx->tags);
	u64 nr = slot_number(at);

	slot->heat = READ_ONCE(*slot_heat(idx, at));
	slot->place = place_pack(at);
	slot->expiry = 0;
	if (p.a & SLOT_EXPIRES)
		slot->expiry = READ_ONCE(idx->expiry[nr]);
	slot->caller_tag = tags ? READ_ONCE(tags[nr]) : 0;
	slot->seg = FIELD_GET(SLOT_SEG, p.b);
	slot->off = FIELD_GET(SLOT_OFF, p.b);
	slot->len = (FIELD_GET(SLOT_LEN_HIGH, p.a) << LEN_LOW_BITS |
		     FIELD_GET(SLOT_LEN_LOW, p.b)) + 1;
	slot->gen = FIELD_GET(SLOT_GEN, p.a);
	slot->tenant = FIELD_GET(SLOT_TENANT, p.c);
	slot->state = slot_state(p);
	slot->prio = FIELD_GET(SLOT_PRIO, p.c);
	slot->leased = FIELD_GET(SLOT_LEASED, p.a);
}

/* Write a slot, except its heat and its retention. Inside the seqcount. */
static __always_inline void slot_write(struct kvblk_index *idx, struct place at,
				       struct packed p, u32 expiry, u64 caller_tag)
{
	u64 *tags = READ_ONCE(idx->tags);
	u64 nr = slot_number(at);

	slot_store(idx, at, p);
	if (p.a & SLOT_EXPIRES)
		WRITE_ONCE(idx->expiry[nr], expiry);
	/* an array that is being allocated is zeroed, which means no tag for this slot */
	if (tags)
		WRITE_ONCE(tags[nr], caller_tag);
	else
		WARN_ON_ONCE(caller_tag);
}

/* Copy a slot; the caller overwrites the old place. Inside the seqcount. */
static void slot_move(struct kvblk_index *idx, struct place from, struct place to)
{
	const u64 *tags = READ_ONCE(idx->tags);
	struct packed p = slot_load(idx, from);
	u64 nr = slot_number(from);

	slot_write(idx, to, p, p.a & SLOT_EXPIRES ? READ_ONCE(idx->expiry[nr]) : 0,
		   tags ? READ_ONCE(tags[nr]) : 0);
	WRITE_ONCE(*slot_heat(idx, to), READ_ONCE(*slot_heat(idx, from)));
	slot_mark(idx, to, true, slot_retained(idx, from));
	if (slot_retained(idx, from) && !(p.a & SLOT_EXPIRES))
		WRITE_ONCE(idx->expiry[slot_number(to)], READ_ONCE(idx->expiry[nr]));
}

/* Return the other candidate bucket of a slot in @bucket. The distance is odd, so never 0. */
static u64 other_bucket(const struct kvblk_index *idx, u64 tag, u64 bucket)
{
	return bucket ^ ((tag | 1) & (idx->stripe_buckets - 1));
}

static u64 place_other(const struct kvblk_index *idx, struct place at)
{
	__le16 tag = READ_ONCE(idx->buckets[at.bucket].tag[at.nr]);

	BUILD_BUG_ON(STRIPE_BUCKETS >> TAG_LOW_BITS);
	return other_bucket(idx, le16_to_cpu(tag), at.bucket);
}

static __always_inline struct home home_of(const struct kvblk_index *idx, struct kvblk_id id)
{
	u64 tag = id.lo >> (64 - TAG_BITS);
	u64 bucket = mul_u64_u64_shr(id.hi, idx->nr_buckets, 64);

	return (struct home) { tag, bucket, other_bucket(idx, tag, bucket) };
}

static struct kvblk_stripe *stripe_of(const struct kvblk_index *idx, u64 bucket)
{
	/* the mask spares a check of the shift */
	return &idx->stripes[bucket >> (idx->stripe_shift & 63)];
}

/* Return the slots that may have @tag, as the top bit of each 16; branch-free: unpredictable. */
static __always_inline u64 bucket_match(const struct kvblk_index *idx, u64 bucket, u64 tag)
{
	const u64 ones = 0x000100010001ULL;
	u64 differ = le64_to_cpu(READ_ONCE(idx->buckets[bucket].tags)) ^ (u16)tag * ones;

	BUILD_BUG_ON(BUCKET_SLOTS * TAG_LOW_BITS != 48);
	/* a zero field borrows; a 1 above it then looks like a zero, too */
	return (differ - ones) & ~differ & ones << (TAG_LOW_BITS - 1);
}

/* Return the FREE slots of @bucket as bits. */
static __always_inline unsigned int bucket_free(const struct kvblk_index *idx, u64 bucket)
{
	return ~READ_ONCE(idx->buckets[bucket].marks) & MARKS_USED;
}

/* Return the number of bits of @mask: a table in a constant, two bits for each mask. */
static unsigned int mask_weight(unsigned int mask)
{
	BUILD_BUG_ON(BUCKET_SLOTS != 3);
	return 0xe994 >> 2 * mask & 3;
}

static __always_inline bool slot_is_home(const struct home *home, struct packed p)
{
	return FIELD_GET(SLOT_TAG_HIGH, p.a) == home->tag >> TAG_LOW_BITS &&
	       p.tag == (u16)home->tag && slot_state(p) != KVBLK_SLOT_FREE;
}

/* Return a place in the first or the @second bucket. */
static __always_inline struct place home_at(const struct home *home, bool second, unsigned int nr)
{
	return (struct place) { second ? home->second : home->bucket, nr };
}

/* Find @home's slot, dead or alive. Without the lock, the result may be torn. */
static __always_inline bool home_find(const struct kvblk_index *idx, const struct home *home,
				      struct place *at, struct packed *p)
{
	u64 match = bucket_match(idx, home->bucket, home->tag) >> 1 |
		    bucket_match(idx, home->second, home->tag);

	for (; match; match &= match - 1) {
		unsigned int bit = __ffs64(match);

		*at = home_at(home, bit & 1, bit / TAG_LOW_BITS);
		*p = slot_load(idx, *at);
		/* bucket_match() may report a tag that differs in bit 0 */
		if (slot_is_home(home, *p))
			return true;
	}
	return false;
}

static bool bucket_dead(const struct kvblk_index *idx, u64 bucket, struct place *at)
{
	*at = (struct place) { .bucket = bucket };
	for (; at->nr < BUCKET_SLOTS; at->nr++)
		if (slot_dead(idx, slot_load(idx, *at)))
			return true;
	return false;
}

static bool bucket_room(const struct kvblk_index *idx, u64 bucket, struct place *at)
{
	unsigned int room = bucket_free(idx, bucket);

	if (!room)
		return bucket_dead(idx, bucket, at);
	*at = (struct place) { bucket, __ffs(room) };
	return true;
}

/* Find @home's slot at @place, unless an insert has moved it, or @place is none of @home. */
static __always_inline bool home_find_at(const struct kvblk_index *idx, const struct home *home,
					 u64 place, struct place *at, struct packed *p)
{
	*at = place_unpack(place);
	if ((at->bucket != home->bucket && at->bucket != home->second) ||
	    at->nr >= BUCKET_SLOTS)
		return false;
	*p = slot_load(idx, *at);
	return slot_is_home(home, *p);
}

/*
 * Return the place of @home's slot after a move, or slot BUCKET_SLOTS of a bucket without one.
 * noinline: few slots move while a caller knows their place.
 */
static noinline struct place home_find_moved(const struct kvblk_index *idx, struct home home)
{
	struct packed p;
	struct place at;

	return home_find(idx, &home, &at, &p) ? at : home_at(&home, false, BUCKET_SLOTS);
}

/* Find @home's slot if it has the record of @old. Stripe's lock held. */
static __always_inline bool home_find_same(const struct kvblk_index *idx, const struct home *home,
					   const struct kvblk_slot *old, struct place *at,
					   struct packed *p)
{
	if (unlikely(!home_find_at(idx, home, old->place, at, p))) {
		*at = home_find_moved(idx, *home);
		if (at->nr == BUCKET_SLOTS)
			return false;
		*p = slot_load(idx, *at);
	}
	return FIELD_GET(SLOT_SEG, p->b) == old->seg && FIELD_GET(SLOT_OFF, p->b) == old->off &&
	       FIELD_GET(SLOT_GEN, p->a) == old->gen;
}

/* Find a FREE slot in the emptier bucket of @home: saves a fifth of the evictions at load 0.85. */
static __always_inline bool home_free(const struct kvblk_index *idx, const struct home *home,
				      struct place *at)
{
	unsigned int free = bucket_free(idx, home->bucket);
	unsigned int free2 = bucket_free(idx, home->second);
	bool second = mask_weight(free2) > mask_weight(free);

	if (second)
		free = free2;
	if (!free)
		return false;
	*at = home_at(home, second, __ffs(free));
	return true;
}

static struct place home_place(const struct home *home, unsigned int nr)
{
	bool second = nr >= BUCKET_SLOTS;

	return home_at(home, second, nr - BUCKET_SLOTS * second);
}

/* Compute where the slots of @home's full buckets could move; prefetch. */
static __always_inline void home_others(const struct kvblk_index *idx, const struct home *home,
					u64 other[HOME_SLOTS])
{
	unsigned int i;

	for (i = 0; i < HOME_SLOTS; i++) {
		other[i] = place_other(idx, home_place(home, i));
		prefetch(&idx->buckets[other[i]]);
	}
}

/* Find a single move, to a FREE slot in one of @other, that frees a slot of @home. */
static bool path_short(const struct kvblk_index *idx, const struct home *home,
		       const u64 other[HOME_SLOTS], struct path *path)
{
	unsigned int room = 0, i;

	/* branch-free, because which bucket has space is unpredictable */
	for (i = 0; i < HOME_SLOTS; i++)
		room |= !!bucket_free(idx, other[i]) << i;
	if (!room)
		return false;
	i = __ffs(room);
	path->at[0] = home_place(home, i);
	/* do not move a dead slot: sweepers have seen it here */
	if (slot_dead(idx, slot_load(idx, path->at[0])))
		return true;
	path->at[1] = (struct place) { other[i], __ffs(bucket_free(idx, other[i])) };
	path->nr = 2;
	return true;
}

/* Return slot @nr of all in the buckets @other. */
static struct place other_place(const u64 other[HOME_SLOTS], unsigned int nr)
{
	return (struct place) { other[nr / BUCKET_SLOTS], nr % BUCKET_SLOTS };
}

/* Find two moves, or one to a dead slot. @home has no dead slots, so no path leads back to it. */
static bool path_long(const struct kvblk_index *idx, const struct home *home,
		      const u64 other[HOME_SLOTS], struct path *path)
{
	unsigned int i;

	for (i = 0; i < HOME_SLOTS; i++) {
		path->at[0] = home_place(home, i);
		path->nr = 2;
		if (bucket_dead(idx, other[i], &path->at[1]))
			return true;
	}
	/* prefetch only PATHS_AHEAD, because the first third of the buckets mostly has space */
	for (i = 0; i < HOME_SLOTS * BUCKET_SLOTS + PATHS_AHEAD; i++) {
		if (i < HOME_SLOTS * BUCKET_SLOTS)
			prefetch(&idx->buckets[place_other(idx, other_place(other, i))]);
		if (i < PATHS_AHEAD)
			continue;
		path->at[0] = home_place(home, (i - PATHS_AHEAD) / BUCKET_SLOTS);
		path->at[1] = other_place(other, i - PATHS_AHEAD);
		path->nr = 3;
		if (bucket_room(idx, place_other(idx, path->at[1]), &path->at[2]))
			return true;
	}
	return false;
}

static bool slot_foreign(const struct kvblk_index *idx, struct packed p)
{
	return FIELD_GET(SLOT_SEG, p.b) >= idx->own_segs;
}

static unsigned int slot_prio(const struct kvblk_index *idx, struct place at, struct packed p)
{
	return slot_retained(idx, at) ? FIELD_GET(SLOT_PRIO, SLOT_PRIO) : FIELD_GET(SLOT_PRIO, p.c);
}

static bool goes_first(const struct kvblk_index *idx, struct place at_a,
		       struct packed a, struct place at_b, struct packed b)
{
	u8 heat_a = READ_ONCE(*slot_heat(idx, at_a));
	u8 heat_b = READ_ONCE(*slot_heat(idx, at_b));

	/* a foreign block stays on its owner's member */
	if (slot_foreign(idx, a) != slot_foreign(idx, b))
		return slot_foreign(idx, a);
	if (slot_prio(idx, at_a, a) != slot_prio(idx, at_b, b))
		return slot_prio(idx, at_a, a) < slot_prio(idx, at_b, b);
	if (!heat_a || !heat_b)
		return !heat_a && heat_b;
	/* ticks wrap, so compare their distance */
	return (s8)(heat_a - heat_b) < 0;
}

static bool slot_pinned(const struct kvblk_index *idx, struct packed p)
{
	return idx->pinned && !slot_foreign(idx, p) &&
	       READ_ONCE(idx->pinned[FIELD_GET(SLOT_SEG, p.b) >> idx->pinned_shift]);
}

static bool victim_find(const struct kvblk_index *idx, const struct home *home,
			struct place *victim, struct packed *p)
{
	/* or else, of entries of one heat, the newest would be the next victim */
	unsigned int i, first = (u32)home->tag % HOME_SLOTS;
	bool found = false;

	for (i = 0; i < HOME_SLOTS; i++) {
		struct place at = home_place(home, (first + i) % HOME_SLOTS);
		struct packed look = slot_load(idx, at);

		if (slot_state(look) != KVBLK_SLOT_LIVE || look.a & SLOT_LEASED ||
		    slot_pinned(idx, look) || (found && !goes_first(idx, at, look, *victim, *p)))
			continue;
		*victim = at;
		*p = look;
		found = true;
	}
	return found;
}

/* Find a foreign entry to evict, where a slot of @home can move. An own one stays for it. */
static bool path_foreign(const struct kvblk_index *idx, const struct home *home,
			 struct path *path, struct packed *p)
{
	u64 other[HOME_SLOTS];
	struct place at;
	unsigned int i;

	home_others(idx, home, other);
	for (i = 0; i < HOME_SLOTS; i++) {
		for (at = (struct place) { .bucket = other[i] }; at.nr < BUCKET_SLOTS; at.nr++) {
			struct packed look = slot_load(idx, at);

			if (slot_state(look) != KVBLK_SLOT_LIVE || look.a & SLOT_LEASED ||
			    !slot_foreign(idx, look))
				continue;
			path->at[0] = home_place(home, i);
			path->at[1] = at;
			path->nr = 2;
			*p = look;
			return true;
		}
	}
	return false;
}

static u64 home_token(struct home home)
{
	return home.tag << (64 - TAG_BITS) ^ min(home.bucket, home.second);
}

u64 kvblk_index_token(const struct kvblk_index *idx, struct kvblk_id id)
{
	return home_token(home_of(idx, id));
}

u32 kvblk_index_stripe(const struct kvblk_index *idx, struct kvblk_id id)
{
	return home_of(idx, id).bucket >> idx->stripe_shift;
}

static struct home place_home(const struct kvblk_index *idx, struct place at, struct packed p)
{
	u64 tag = FIELD_GET(SLOT_TAG_HIGH, p.a) << TAG_LOW_BITS | p.tag;

	return (struct home) { tag, at.bucket, other_bucket(idx, tag, at.bucket) };
}

static bool entry_copy(const struct kvblk_index *idx, struct place at,
		       struct kvblk_index_entry *entry)
{
	struct packed p = slot_load(idx, at);
	const struct home home = place_home(idx, at, p);

	if (slot_state(p) != KVBLK_SLOT_LIVE && slot_state(p) != KVBLK_SLOT_MOVING)
		return false;
	slot_unpack(idx, at, p, &entry->slot);
	entry->slot.place = home_token(home);
	entry->name.hi = min(home.bucket, home.second);
	entry->name.lo = home.tag;
	return true;
}

static noinline void slot_notify_now(struct kvblk_index *idx, struct place at, bool came)
{
	struct kvblk_index_entry entry;

	if (entry_copy(idx, at, &entry))
		idx->notify(idx, &entry, came);
}

/* Notify the listener: the entry at @at was added, or is about to be removed. */
static void slot_notify(struct kvblk_index *idx, struct place at, bool came)
{
	if (unlikely(READ_ONCE(idx->listened)))
		slot_notify_now(idx, at, came);
}

/* Return whether a slot of @state has a readable record. */
static bool state_settled(u8 state)
{
	return state == KVBLK_SLOT_LIVE || state == KVBLK_SLOT_MOVING;
}

static __always_inline void slot_account(struct kvblk_index *idx, const struct kvblk_slot *slot,
					 bool came)
{
	if (idx->account)
		idx->account(idx, slot, came);
}

/* Write @slot to a place that is FREE, or whose entry is dead, evicted or moved. */
static __always_inline void slot_put(struct kvblk_index *idx, struct kvblk_stripe *stripe,
				     struct place at, u64 tag, const struct kvblk_slot *slot)
{
	const struct packed p = slot_pack(tag, slot);
	bool free = bucket_free(idx, at.bucket) >> place_nr(at) & 1;

	/* an overwritten slot is counted already */
	WRITE_ONCE(stripe->nr_used, stripe->nr_used + free);
	write_seqcount_begin(&stripe->seq);
	slot_write(idx, at, p, slot->expiry, slot->caller_tag);
	WRITE_ONCE(*slot_heat(idx, at), slot->heat);
	slot_mark(idx, at, true, false);
	write_seqcount_end(&stripe->seq);
	slot_notify(idx, at, true);
	if (state_settled(slot->state))
		slot_account(idx, slot, true);
}

/* Carry out the moves of @path. Its first slot is then in two places until it is overwritten. */
static void path_move(struct kvblk_index *idx, struct kvblk_stripe *stripe, const struct path *path)
{
	struct place last = path->at[path->nr - 1];
	bool free = bucket_free(idx, last.bucket) >> place_nr(last) & 1;
	unsigned int i;

	WRITE_ONCE(stripe->nr_used, stripe->nr_used + free);
	slot_notify(idx, last, false);
	/* nothing to move: readers need not retry */
	if (path->nr == 1)
		return;
	write_seqcount_begin(&stripe->seq);
	for (i = path->nr - 1; i; i--)
		slot_move(idx, path->at[i - 1], path->at[i]);
	write_seqcount_end(&stripe->seq);
	/* report moved entries, too: a walk may have passed their new places */
	for (i = 1; i < path->nr; i++)
		slot_notify(idx, path->at[i], true);
}

/* Find room for @home, whose buckets are full. */
static bool home_crowded(const struct kvblk_index *idx, const struct home *home,
			 struct path *path)
{
	u64 other[HOME_SLOTS];

	path->nr = 1;
	home_others(idx, home, other);
	/* dead slots last, because each costs a look at its generation */
	return path_short(idx, home, other, path) ||
	       bucket_dead(idx, home->bucket, &path->at[0]) ||
	       bucket_dead(idx, home->second, &path->at[0]) ||
	       path_long(idx, home, other, path);
}

/* Choose the live entry that @slot replaces. Returns 1 with the entry in @old, or -ENOSPC. */
static int home_evict(struct kvblk_index *idx, const struct home *home, struct path *path,
		      const struct kvblk_slot *slot, struct kvblk_slot *old)
{
	struct packed p = {};
	struct place at;
	bool found;

	path->nr = 1;
	found = victim_find(idx, home, &path->at[0], &p);
	if ((!found || !slot_foreign(idx, p)) && !path_foreign(idx, home, path, &p) &&
	    (!found || slot->seg >= idx->own_segs))
		return -ENOSPC;
	atomic64_inc(&idx->nr_evicted);
	at = path->at[path->nr - 1];
	slot_unpack(idx, at, p, old);
	slot_account(idx, old, false);
	old->place = home_token(place_home(idx, at, p));
	return 1;
}

/*
 * Insert @slot where both buckets are full. noinline: most inserts need no path. Returns as
 * kvblk_index_insert(). Stripe's lock held.
 */
static noinline int insert_crowded(struct kvblk_index *idx, struct home home,
				   struct kvblk_slot *slot, struct kvblk_slot *old, bool evict)
{
	struct kvblk_stripe *stripe = stripe_of(idx, home.bucket);
	struct path path;
	int ret = 0;

	if (!home_crowded(idx, &home, &path))
		ret = evict ? home_evict(idx, &home, &path, slot, old) : -ENOSPC;
	if (ret < 0)
		return ret;
	path_move(idx, stripe, &path);
	slot_put(idx, stripe, path.at[0], home.tag, slot);
	slot->place = place_pack(path.at[0]);
	return ret;
}

/* Copy the entry that an insert found to @old. Returns -EEXIST. */
static noinline int insert_exists(const struct kvblk_index *idx, struct place at,
				  struct kvblk_slot *old)
{
	slot_unpack(idx, at, slot_load(idx, at), old);
	return -EEXIST;
}

int kvblk_index_insert(struct kvblk_index *idx, struct kvblk_id id, struct kvblk_slot *slot,
		       struct kvblk_slot *old, bool evict)
{
	const struct home home = home_of(idx, id);
	struct kvblk_stripe *stripe = stripe_of(idx, home.bucket);
	struct packed p;
	struct place at;

	guard(spinlock)(&stripe->lock);
	if (home_find(idx, &home, &at, &p)) {
		if (!slot_dead(idx, p))
			return insert_exists(idx, at, old);
		/* reuse the id's own dead slot: an id never has two slots */
		slot_notify(idx, at, false);
	} else if (!home_free(idx, &home, &at)) {
		return insert_crowded(idx, home, slot, old, evict);
	}
	slot_put(idx, stripe, at, home.tag, slot);
	slot->place = place_pack(at);
	return 0;
}

/* Return whether @new changes nothing for listeners. False if dead: a walk may have skipped it. */
static bool slot_same(const struct kvblk_index *idx, struct place at, const struct kvblk_slot *new)
{
	struct kvblk_index_entry is;

	return READ_ONCE(idx->listened) && new && new->state != KVBLK_SLOT_WRITING &&
	       entry_copy(idx, at, &is) && is.slot.caller_tag == new->caller_tag &&
	       is.slot.len == new->len && is.slot.expiry == new->expiry &&
	       !slot_dead(idx, slot_load(idx, at));
}

/* Account for the change of an entry that was @old to @new, or (NULL) its end. */
static void slot_changed(struct kvblk_index *idx, const struct kvblk_slot *old,
			 const struct kvblk_slot *new)
{
	bool was = state_settled(old->state), is = new && state_settled(new->state);

	if (was && is && kvblk_same_record(old, new) && old->len == new->len)
		return;
	/* the new one first, or else a put could pass a hard limit between the two */
	if (is)
		slot_account(idx, new, true);
	if (was)
		slot_account(idx, old, false);
}

static bool slot_replace(struct kvblk_index *idx, struct kvblk_id id, const struct kvblk_slot *old,
			 const struct kvblk_slot *new, bool unleased)
{
	const struct home home = home_of(idx, id);
	struct kvblk_stripe *stripe = stripe_of(idx, home.bucket);
	struct packed p, packed = { .a = 0 };
	struct place at;
	bool same;

	guard(spinlock)(&stripe->lock);
	if (!home_find_same(idx, &home, old, &at, &p) ||
	    slot_state(p) != old->state || (unleased && FIELD_GET(SLOT_LEASED, p.a)))
		return false;
	if (new) {
		packed = slot_pack(home.tag, new);
		packed.a = (packed.a & ~SLOT_LEASED) | (p.a & SLOT_LEASED);
		if (new->prio == old->prio)
			packed.c = (packed.c & ~SLOT_PRIO) | (p.c & SLOT_PRIO);
	} else {
		WRITE_ONCE(stripe->nr_used, stripe->nr_used - 1);
	}
	same = slot_same(idx, at, new);
	if (!same)
		slot_notify(idx, at, false);
	/* the array's time is another block's from now on, so no longer that of a hint */
	if (new && new->expiry != (p.a & SLOT_EXPIRES ? idx->expiry[slot_number(at)] : 0))
		slot_set_retained(idx, at, false);
	write_seqcount_begin(&stripe->seq);
	slot_write(idx, at, packed, new ? new->expiry : 0, new ? new->caller_tag : 0);
	if (!new)
		slot_mark(idx, at, false, false);
	write_seqcount_end(&stripe->seq);
	if (!same)
		slot_notify(idx, at, true);
	slot_changed(idx, old, new);
	return true;
}

bool kvblk_index_replace(struct kvblk_index *idx, struct kvblk_id id, const struct kvblk_slot *old,
			 const struct kvblk_slot *new)
{
	return slot_replace(idx, id, old, new, false);
}

bool kvblk_index_claim(struct kvblk_index *idx, struct kvblk_id id, const struct kvblk_slot *old,
		       const struct kvblk_slot *new)
{
	return slot_replace(idx, id, old, new, true);
}

bool kvblk_index_publish(struct kvblk_index *idx, struct kvblk_id id,
			 const struct kvblk_slot *slot)
{
	const struct home home = home_of(idx, id);
	struct kvblk_stripe *stripe = stripe_of(idx, home.bucket);
	struct packed p;
	struct place at;

	guard(spinlock)(&stripe->lock);
	if (!home_find_same(idx, &home, slot, &at, &p) || slot_state(p) != KVBLK_SLOT_WRITING)
		return false;
	p.a ^= FIELD_PREP(SLOT_STATE, KVBLK_SLOT_WRITING ^ KVBLK_SLOT_LIVE);
	write_seqcount_begin(&stripe->seq);
	slot_store_state(idx, at, p);
	write_seqcount_end(&stripe->seq);
	slot_notify(idx, at, true);
	slot_account(idx, slot, true);
	return true;
}

/* Set or clear the leased bit of the slot @p at @at. Stripe's lock held. */
static void slot_lease(struct kvblk_index *idx, struct kvblk_stripe *stripe, struct place at,
		       struct packed p, bool leased)
{
	p.a = (p.a & ~SLOT_LEASED) | FIELD_PREP(SLOT_LEASED, leased);
	write_seqcount_begin(&stripe->seq);
	slot_store_state(idx, at, p);
	write_seqcount_end(&stripe->seq);
}

bool kvblk_index_lease(struct kvblk_index *idx, struct kvblk_id id, const struct kvblk_slot *old,
		       const unsigned long *kept, u32 nr)
{
	const struct home home = home_of(idx, id);
	struct kvblk_stripe *stripe = stripe_of(idx, home.bucket);
	struct packed p;
	struct place at;

	guard(spinlock)(&stripe->lock);
	if (!home_find_same(idx, &home, old, &at, &p) || slot_dead(idx, p))
		return false;
	if (slot_state(p) != KVBLK_SLOT_LIVE &&
	    (slot_state(p) != KVBLK_SLOT_MOVING ||
	     !(p.a & SLOT_LEASED || (kept && test_bit(nr, kept)))))
		return false;
	slot_lease(idx, stripe, at, p, true);
	return true;
}

void kvblk_index_unlease(struct kvblk_index *idx, struct kvblk_id id)
{
	const struct home home = home_of(idx, id);
	struct kvblk_stripe *stripe = stripe_of(idx, home.bucket);
	struct packed p;
	struct place at;

	guard(spinlock)(&stripe->lock);
	if (home_find(idx, &home, &at, &p))
		slot_lease(idx, stripe, at, p, false);
}

static __always_inline bool find_any(const struct kvblk_index *idx, struct kvblk_id id,
				     struct kvblk_slot *slot)
{
	const struct home home = home_of(idx, id);
	const seqcount_spinlock_t *seq = &stripe_of(idx, home.bucket)->seq;
	unsigned int start;
	struct packed p;
	struct place at;
	bool found;

	do {
		start = read_seqcount_begin(seq);
		found = home_find(idx, &home, &at, &p);
		if (found)
			slot_unpack(idx, at, p, slot);
	} while (read_seqcount_retry(seq, start));
	return found;
}

/* Look again after a dead entry, until it repeats: reclaim may have moved the block meanwhile. */
static noinline bool find_again(const struct kvblk_index *idx,
				struct kvblk_id id, struct kvblk_slot *slot)
{
	struct kvblk_slot last;

	do {
		last = *slot;
		/* pairs with kvblk_segment_retire(): entries are updated before the generation */
		smp_rmb();
		if (!find_any(idx, id, slot))
			return false;
		if (!entry_dead(idx, slot->state, slot->seg, slot->gen))
			return true;
	} while (!kvblk_same_record(slot, &last));
	return false;
}

bool kvblk_index_find(const struct kvblk_index *idx, struct kvblk_id id, struct kvblk_slot *slot)
{
	return find_any(idx, id, slot) &&
	       (!entry_dead(idx, slot->state, slot->seg, slot->gen) || find_again(idx, id, slot));
}

u64 kvblk_index_find_many(const struct kvblk_index *idx, const struct kvblk_id *ids,
			  unsigned int nr, struct kvblk_slot *slots)
{
	u64 found = 0, look;
	unsigned int i;

	for (i = 0; i < nr; i++) {
		if (!find_any(idx, ids[i], &slots[i]))
			continue;
		found |= BIT_ULL(i);
		prefetch(&idx->seg_gen[slots[i].seg]);
	}
	/* the generations are prefetched by now */
	for (look = found; look; look &= look - 1) {
		i = __ffs64(look);
		if (entry_dead(idx, slots[i].state, slots[i].seg, slots[i].gen) &&
		    !find_again(idx, ids[i], &slots[i]))
			found &= ~BIT_ULL(i);
	}
	return found;
}

bool kvblk_index_touch(struct kvblk_index *idx, const struct kvblk_slot *slot, u8 tick)
{
	struct place at = place_unpack(slot->place);

	/* most touches of a hot block have the same tick: do not dirty its line */
	if (slot->heat == tick)
		return false;
	WRITE_ONCE(*slot_heat(idx, at), tick);
	return true;
}

/* Find @home's LIVE or MOVING slot. Stripe's lock held. */
static bool home_find_settled(const struct kvblk_index *idx, const struct home *home,
			      struct place *at, struct packed *p)
{
	return home_find(idx, home, at, p) && slot_state(*p) != KVBLK_SLOT_WRITING &&
	       !slot_dead(idx, *p);
}

bool kvblk_index_prioritize(struct kvblk_index *idx, struct kvblk_id id, u8 prio)
{
	const struct home home = home_of(idx, id);
	struct kvblk_stripe *stripe = stripe_of(idx, home.bucket);
	struct packed p;
	struct place at;

	guard(spinlock)(&stripe->lock);
	if (!home_find_settled(idx, &home, &at, &p))
		return false;
	p.c = (p.c & ~SLOT_PRIO) | FIELD_PREP(SLOT_PRIO, prio);
	write_seqcount_begin(&stripe->seq);
	slot_store(idx, at, p);
	write_seqcount_end(&stripe->seq);
	return true;
}

bool kvblk_index_retain(struct kvblk_index *idx, struct kvblk_id id, u32 until)
{
	const struct home home = home_of(idx, id);
	struct packed p;
	struct place at;

	guard(spinlock)(&stripe_of(idx, home.bucket)->lock);
	if (!home_find_settled(idx, &home, &at, &p))
		return false;
	/* a slot that expires has no room for a second time */
	if (!(p.a & SLOT_EXPIRES))
		WRITE_ONCE(idx->expiry[slot_number(at)], until);
	slot_set_retained(idx, at, until);
	return true;
}

bool kvblk_index_retained(const struct kvblk_index *idx, const struct kvblk_slot *slot, u32 now)
{
	struct place at = place_unpack(slot->place);

	return slot_retained(idx, at) &&
	       (slot->expiry || !slot_expired(idx, at, now));
}

void kvblk_index_prefetch(const struct kvblk_index *idx, struct kvblk_id id)
{
	const struct home home = home_of(idx, id);

	prefetch(&idx->buckets[home.bucket]);
	prefetch(&idx->buckets[home.second]);
	prefetch(stripe_of(idx, home.bucket));
}

void kvblk_index_prefetch_room(const struct kvblk_index *idx, struct kvblk_id id)
{
	const struct home home = home_of(idx, id);
	u64 other[HOME_SLOTS];

	if (!(bucket_free(idx, home.bucket) | bucket_free(idx, home.second)))
		home_others(idx, &home, other);
}

static bool slot_over(const struct kvblk_index *idx, struct place at, struct packed p, u32 now)
{
	return slot_dead(idx, p) ||
	       (slot_state(p) == KVBLK_SLOT_LIVE &&
		((p.a & SLOT_EXPIRES && slot_expired(idx, at, now)) ||
		 (idx->tenants && !test_bit(FIELD_GET(SLOT_TENANT, p.c), idx->tenants)) ||
		 (idx->unshared && slot_foreign(idx, p) &&
		  idx->unshared(idx, FIELD_GET(SLOT_SEG, p.b), FIELD_GET(SLOT_TENANT, p.c)))));
}

/* End what was retained until @now. */
static void bucket_release(struct kvblk_index *idx, u64 bucket, u32 now)
{
	struct place at = { .bucket = bucket };

	if (likely(!(READ_ONCE(idx->buckets[bucket].marks) & MARKS_RETAINED)))
		return;
	guard(spinlock)(&stripe_of(idx, bucket)->lock);
	for (; at.nr < BUCKET_SLOTS; at.nr++)
		if (slot_retained(idx, at) && slot_expired(idx, at, now))
			slot_set_retained(idx, at, false);
}

static unsigned int bucket_sweep(struct kvblk_index *idx, u64 bucket, u32 now)
{
	struct kvblk_stripe *stripe = stripe_of(idx, bucket);
	struct place at = { .bucket = bucket };
	struct kvblk_slot slot;
	unsigned int nr = 0;
	struct packed p;

	guard(spinlock)(&stripe->lock);
	for (; at.nr < BUCKET_SLOTS; at.nr++) {
		p = slot_load(idx, at);
		if (!slot_over(idx, at, p, now))
			continue;
		slot_notify(idx, at, false);
		if (!slot_dead(idx, p)) {
			slot_unpack(idx, at, p, &slot);
			slot_account(idx, &slot, false);
			if (idx->expired)
				idx->expired(idx, &slot);
		}
		write_seqcount_begin(&stripe->seq);
		slot_store(idx, at, (struct packed) { .a = 0 });
		slot_mark(idx, at, false, false);
		write_seqcount_end(&stripe->seq);
		nr++;
	}
	WRITE_ONCE(stripe->nr_used, stripe->nr_used - nr);
	return nr;
}

u64 kvblk_index_sweep(struct kvblk_index *idx, u64 start, u64 nr, u32 now, u64 *dropped)
{
	u64 end = min(idx->nr_buckets, start + min(nr, idx->nr_buckets));
	struct place at;

	for (at.bucket = start; at.bucket < end; at.bucket++) {
		bucket_release(idx, at.bucket, now);
		/* most buckets have nothing to free: check before locking */
		for (at.nr = 0; at.nr < BUCKET_SLOTS; at.nr++) {
			if (!slot_over(idx, at, slot_load(idx, at), now))
				continue;
			*dropped += bucket_sweep(idx, at.bucket, now);
			break;
		}
	}
	return end < idx->nr_buckets ? end : 0;
}

unsigned int kvblk_index_entries(struct kvblk_index *idx, u64 bucket, u32 now,
				 struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET])
{
	struct place at = { .bucket = bucket };
	unsigned int nr = 0;

	guard(spinlock)(&stripe_of(idx, bucket)->lock);
	for (; at.nr < BUCKET_SLOTS; at.nr++)
		if (!slot_over(idx, at, slot_load(idx, at), now) &&
		    entry_copy(idx, at, &entries[nr]))
			nr++;
	return nr;
}

static bool slot_cold(const struct kvblk_index *idx, struct packed p, u16 tenant)
{
	return slot_state(p) == KVBLK_SLOT_LIVE && FIELD_GET(SLOT_TENANT, p.c) == tenant &&
	       !(p.a & SLOT_LEASED) && !slot_foreign(idx, p) && !slot_dead(idx, p);
}

/* Return the place in the order of goes_first(). */
static u32 slot_rank(const struct kvblk_index *idx, struct place at, struct packed p, u8 tick)
{
	u8 heat = READ_ONCE(*slot_heat(idx, at));

	BUILD_BUG_ON(KVBLK_INDEX_RANKS != 4 << 8);
	return slot_prio(idx, at, p) << 8 | (heat ? max(255 - (u8)(tick - heat), 1) : 0);
}

/* Return an id that has the stored bits of the slot's id. */
static struct kvblk_id slot_id(const struct kvblk_index *idx, struct place at, struct packed p)
{
	const struct home home = place_home(idx, at, p);
	const u64 span = BIT_ULL(64 - idx->stripe_shift);	/* of a bucket, times nr_stripes */
	const u64 whole = div_u64(span, idx->nr_stripes);
	const u64 rest = span - whole * idx->nr_stripes;

	/* the least one that home_of() maps to the bucket; without 128 bits */
	return (struct kvblk_id) {
		.hi = home.bucket * whole + div_u64(home.bucket * rest + idx->nr_stripes - 1,
						    idx->nr_stripes),
		.lo = home.tag << (64 - TAG_BITS),
	};
}

unsigned int kvblk_index_colds(struct kvblk_index *idx, u64 bucket, u16 tenant, u8 tick,
			       struct kvblk_index_cold colds[KVBLK_INDEX_BUCKET])
{
	struct place at = { .bucket = bucket };
	unsigned int nr = 0;
	struct packed p;

	/* most buckets have none: check before locking */
	while (at.nr < BUCKET_SLOTS && !slot_cold(idx, slot_load(idx, at), tenant))
		at.nr++;
	if (at.nr == BUCKET_SLOTS)
		return 0;
	guard(spinlock)(&stripe_of(idx, bucket)->lock);
	for (; at.nr < BUCKET_SLOTS; at.nr++) {
		p = slot_load(idx, at);
		if (!slot_cold(idx, p, tenant))
			continue;
		slot_unpack(idx, at, p, &colds[nr].slot);
		colds[nr].id = slot_id(idx, at, p);
		colds[nr++].rank = slot_rank(idx, at, p, tick);
	}
	return nr;
}

u64 kvblk_index_slots(const struct kvblk_index *idx)
{
	return idx->nr_buckets * BUCKET_SLOTS;
}

u64 kvblk_index_used(const struct kvblk_index *idx)
{
	u64 used = 0;
	u32 i;

	for (i = 0; i < idx->nr_stripes; i++)
		used += READ_ONCE(idx->stripes[i].nr_used);
	return used;
}

u64 kvblk_index_bytes(const struct kvblk_index *idx)
{
	u64 beside = sizeof(*idx->expiry) + (READ_ONCE(idx->tags) ? sizeof(*idx->tags) : 0);

	return idx->nr_buckets * sizeof(*idx->buckets) +
	       idx->nr_stripes * sizeof(*idx->stripes) + kvblk_index_slots(idx) * beside;
}

void kvblk_index_shape(struct kvblk_index *idx, u64 nr_slots)
{
	u64 buckets = max(BUCKETS_MIN, div_u64(nr_slots + BUCKET_SLOTS - 1, BUCKET_SLOTS));

	idx->stripe_shift = ilog2(min(roundup_pow_of_two(buckets), STRIPE_BUCKETS));
	idx->stripe_buckets = 1U << idx->stripe_shift;
	idx->nr_stripes = (buckets + idx->stripe_buckets - 1) >> idx->stripe_shift;
	idx->nr_buckets = (u64)idx->nr_stripes << idx->stripe_shift;
}

int kvblk_index_init(struct kvblk_index *idx, u64 nr_slots, const u16 *seg_gen, u32 nr_segs)
{
	u32 i;

	BUILD_BUG_ON(sizeof(struct kvblk_bucket) != 64);
	BUILD_BUG_ON(KVBLK_INDEX_SEG_BITS + KVBLK_INDEX_OFF_BITS +
		     KVBLK_INDEX_LEN_BITS + KVBLK_INDEX_TENANT_BITS +
		     TAG_BITS + 16 + 6 != SLOT_BITS);

	*idx = (struct kvblk_index) {
		.seg_gen = seg_gen,
		.nr_segs = nr_segs,
		.own_segs = nr_segs,
	};
	mutex_init(&idx->tags_lock);
	if (nr_slots > SLOTS_MAX)
		return -ENOMEM;
	kvblk_index_shape(idx, nr_slots);

	/* largest first, so that an impossible size fails early */
	idx->buckets = kvblk_index_array(idx->nr_buckets, sizeof(*idx->buckets));
	if (idx->buckets)
		idx->expiry = kvblk_index_array(kvblk_index_slots(idx), sizeof(*idx->expiry));
	if (idx->expiry)
		idx->stripes = kvblk_index_array(idx->nr_stripes, sizeof(*idx->stripes));
	if (!idx->stripes) {
		kvblk_index_destroy(idx);
		return -ENOMEM;
	}

	for (i = 0; i < idx->nr_stripes; i++) {
		spin_lock_init(&idx->stripes[i].lock);
		seqcount_spinlock_init(&idx->stripes[i].seq, &idx->stripes[i].lock);
	}
	return 0;
}

int kvblk_index_keep_tags(struct kvblk_index *idx)
{
	u64 *tags;

	if (kvblk_index_keeps_tags(idx))
		return 0;
	guard(mutex)(&idx->tags_lock);
	if (idx->tags)
		return 0;
	tags = kvblk_index_array(kvblk_index_slots(idx), sizeof(*tags));
	if (!tags)
		return -ENOMEM;
	/* zeroes must be visible first, because writers that still see NULL had no tags */
	smp_store_release(&idx->tags, tags);
	return 0;
}

bool kvblk_index_keeps_tags(const struct kvblk_index *idx)
{
	return READ_ONCE(idx->tags);
}

void kvblk_index_destroy(struct kvblk_index *idx)
{
	vfree(idx->tags);
	vfree(idx->stripes);
	vfree(idx->expiry);
	vfree(idx->buckets);
	*idx = (struct kvblk_index) { .nr_buckets = 0 };
}
