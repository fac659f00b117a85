// SPDX-License-Identifier: GPL-2.0
/*
 * The index: see index.h for what it promises.
 *
 * An id has two candidate buckets, a and b, with a + b = H(tag) modulo the
 * number of buckets. So the other bucket of a slot follows from its tag alone,
 * and an insert that finds both of its buckets full can move somebody else's
 * slot out of the way without knowing its id.
 *
 * The rule for writers: lock the stripes of all the buckets you look at for a
 * decision, in ascending order; make the seqcounts odd only around the stores,
 * and those of all buckets involved at the same time, so that a reader either
 * sees a moved slot in one of its two places or reads again.
 */
#include <linux/bitfield.h>
#include <linux/bitops.h>
#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/bug.h>
#include <linux/errno.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/prefetch.h>
#include <linux/vmalloc.h>

#include "index.h"

#define BUCKET_SLOTS	3
#define SLOT_WORDS	5
#define TAG_BITS	56
#define BUCKETS_MIN	2ULL
#define STRIPES_MAX	16384ULL
/* Far above what segment numbers can address; keeps sizes from wrapping. */
#define SLOTS_MAX	BIT_ULL(36)
/* Relocations that are begun again because others were faster. */
#define INSERT_TRIES	4

/*
 * A slot packed into 160 bits. The low 22 bits of the length are in @b, the
 * high four where @a had room. SLOT_EXPIRES saves the cache miss on the array
 * of expiries for entries without one.
 */
#define SLOT_TAG	GENMASK_ULL(55, 0)
#define SLOT_STATE	GENMASK_ULL(57, 56)
#define SLOT_LEASED	BIT_ULL(58)
#define SLOT_EXPIRES	BIT_ULL(59)
#define SLOT_LEN_HIGH	GENMASK_ULL(63, 60)

#define SLOT_SEG	GENMASK_ULL(23, 0)
#define SLOT_OFF	GENMASK_ULL(41, 24)
#define SLOT_LEN_LOW	GENMASK_ULL(63, 42)

#define SLOT_GEN	GENMASK(15, 0)
#define SLOT_TENANT	GENMASK(29, 16)
#define SLOT_PRIO	GENMASK(31, 30)

#define LEN_LOW_BITS	22

/**
 * struct packed - a slot in registers
 * @a: tag, state, leased, expires, high bits of length - 1
 * @b: segment, offset, low bits of length - 1
 * @c: generation, tenant, priority
 */
struct packed {
	u64 a;
	u64 b;
	u32 c;
};

/**
 * struct kvblk_bucket - a cache line of slots
 * @words: the slots, packed; written under the stripe, inside its seqcount
 * @heat: ticks of the last touches; bytes of their own, since they are stored
 *	without the lock: such a store can hit the wrong slot, but it cannot
 *	bring back an old one
 * @unused: one byte is left
 */
struct kvblk_bucket {
	u32 words[BUCKET_SLOTS][SLOT_WORDS];
	u8 heat[BUCKET_SLOTS];
	u8 unused;
} __aligned(64);

/**
 * struct kvblk_stripe - lock of every nr_stripes-th bucket, side by side with
 * others: that all of them fit into a cache matters more than sharing lines
 * @lock: protects @seq, slots, expiries and tags of these buckets
 * @seq: odd while they change
 */
struct kvblk_stripe {
	spinlock_t lock;	/* of the stripe */
	seqcount_spinlock_t seq;
};

/**
 * struct place - of a slot
 * @bucket: its bucket
 * @nr: its number in there
 */
struct place {
	u64 bucket;
	unsigned int nr;
};

/**
 * struct home - where an id may be
 * @tag: what its slot carries
 * @bucket: its two candidates, which can be one and the same
 * @nr: different ones
 */
struct home {
	u64 tag;
	u64 bucket[2];
	unsigned int nr;
};

/* Candidates, and the two buckets that a relocation adds. */
#define LOCKED_MAX	4

/**
 * struct locked - the stripes that a writer holds
 * @stripe: in ascending order, each one once
 * @nr: entries of @stripe
 */
struct locked {
	u32 stripe[LOCKED_MAX];
	unsigned int nr;
};

/**
 * struct path - a relocation: each slot moves to the place after it
 * @at: places; the first one is in a candidate bucket, the last one is free
 * @nr: places: 0 for no path, else 2 or 3
 */
struct path {
	struct place at[3];
	unsigned int nr;
};

static __always_inline struct packed slot_load(const struct kvblk_index *idx, struct place at)
{
	const u32 *w = idx->buckets[at.bucket].words[at.nr];

	return (struct packed) {
		.a = READ_ONCE(w[0]) | (u64)READ_ONCE(w[1]) << 32,
		.b = READ_ONCE(w[2]) | (u64)READ_ONCE(w[3]) << 32,
		.c = READ_ONCE(w[4]),
	};
}

/* Under the stripe and inside its seqcount. */
static void slot_store(struct kvblk_index *idx, struct place at,
		       struct packed p)
{
	u32 *w = idx->buckets[at.bucket].words[at.nr];

	WRITE_ONCE(w[0], (u32)p.a);
	WRITE_ONCE(w[1], (u32)(p.a >> 32));
	WRITE_ONCE(w[2], (u32)p.b);
	WRITE_ONCE(w[3], (u32)(p.b >> 32));
	WRITE_ONCE(w[4], p.c);
}

static u8 *slot_heat(const struct kvblk_index *idx, struct place at)
{
	return &idx->buckets[at.bucket].heat[at.nr];
}

/* Number of a slot in the arrays that run beside the buckets. */
static u64 slot_number(struct place at)
{
	return at.bucket * BUCKET_SLOTS + at.nr;
}

static unsigned int slot_state(struct packed p)
{
	return FIELD_GET(SLOT_STATE, p.a);
}

/* True: its segment has moved on, or is gone. WRITING has no segment yet. */
static bool slot_dead(const struct kvblk_index *idx, struct packed p)
{
	u32 seg = FIELD_GET(SLOT_SEG, p.b);

	switch (slot_state(p)) {
	case KVBLK_SLOT_LIVE:
	case KVBLK_SLOT_MOVING:
		return seg >= idx->nr_segs ||
		       READ_ONCE(idx->seg_gen[seg]) != FIELD_GET(SLOT_GEN, p.c);
	default:
		return false;
	}
}

/* True: an insert may take it. */
static bool slot_vacant(const struct kvblk_index *idx, struct packed p)
{
	return slot_state(p) == KVBLK_SLOT_FREE || slot_dead(idx, p);
}

static struct packed slot_pack(u64 tag, const struct kvblk_slot *slot)
{
	u32 len = slot->len - 1;

	return (struct packed) {
		.a = FIELD_PREP(SLOT_TAG, tag) |
		     FIELD_PREP(SLOT_STATE, slot->state) |
		     FIELD_PREP(SLOT_LEASED, slot->leased) |
		     FIELD_PREP(SLOT_EXPIRES, !!slot->expiry) |
		     FIELD_PREP(SLOT_LEN_HIGH, len >> LEN_LOW_BITS),
		.b = FIELD_PREP(SLOT_SEG, slot->seg) |
		     FIELD_PREP(SLOT_OFF, slot->off) |
		     FIELD_PREP(SLOT_LEN_LOW, len),
		.c = FIELD_PREP(SLOT_GEN, slot->gen) |
		     FIELD_PREP(SLOT_TENANT, slot->tenant) |
		     FIELD_PREP(SLOT_PRIO, slot->prio),
	};
}

/* Unpacks @p, which was loaded from @at. */
static void slot_unpack(const struct kvblk_index *idx, struct place at,
			struct packed p, struct kvblk_slot *slot)
{
	const u64 *tags = READ_ONCE(idx->tags);
	u64 nr = slot_number(at);

	*slot = (struct kvblk_slot) {
		.seg = FIELD_GET(SLOT_SEG, p.b),
		.off = FIELD_GET(SLOT_OFF, p.b),
		.len = (FIELD_GET(SLOT_LEN_HIGH, p.a) << LEN_LOW_BITS |
			FIELD_GET(SLOT_LEN_LOW, p.b)) + 1,
		.gen = FIELD_GET(SLOT_GEN, p.c),
		.tenant = FIELD_GET(SLOT_TENANT, p.c),
		.state = slot_state(p),
		.prio = FIELD_GET(SLOT_PRIO, p.c),
		.leased = FIELD_GET(SLOT_LEASED, p.a),
		.heat = READ_ONCE(*slot_heat(idx, at)),
		.expiry = p.a & SLOT_EXPIRES ? READ_ONCE(idx->expiry[nr]) : 0,
		.caller_tag = tags ? READ_ONCE(tags[nr]) : 0,
	};
}

/* Writes all of a slot but its heat. Inside the seqcount. */
static void slot_write(struct kvblk_index *idx, struct place at,
		       struct packed p, u32 expiry, u64 caller_tag)
{
	u64 *tags = READ_ONCE(idx->tags);
	u64 nr = slot_number(at);

	slot_store(idx, at, p);
	if (p.a & SLOT_EXPIRES)
		WRITE_ONCE(idx->expiry[nr], expiry);
	/* An array that is made right now is all zero for this slot. */
	if (tags)
		WRITE_ONCE(tags[nr], caller_tag);
	else
		WARN_ON_ONCE(caller_tag);
}

/* Moves a slot; its old place is as good as free. Inside both seqcounts. */
static void slot_move(struct kvblk_index *idx, struct place from,
		      struct place to)
{
	const u64 *tags = READ_ONCE(idx->tags);
	struct packed p = slot_load(idx, from);
	u64 nr = slot_number(from);

	slot_write(idx, to, p,
		   p.a & SLOT_EXPIRES ? READ_ONCE(idx->expiry[nr]) : 0,
		   tags ? READ_ONCE(tags[nr]) : 0);
	WRITE_ONCE(*slot_heat(idx, to), READ_ONCE(*slot_heat(idx, from)));
}

/* The other candidate of a slot with @tag that is in @bucket. */
static u64 other_bucket(const struct kvblk_index *idx, u64 tag, u64 bucket)
{
	u64 sum = mul_u64_u64_shr(tag << (64 - TAG_BITS), idx->nr_buckets, 64);

	return sum >= bucket ? sum - bucket : sum + idx->nr_buckets - bucket;
}

static u64 slot_other(const struct kvblk_index *idx, struct packed p,
		      u64 bucket)
{
	return other_bucket(idx, FIELD_GET(SLOT_TAG, p.a), bucket);
}

static struct home home_of(const struct kvblk_index *idx, struct kvblk_id id)
{
	struct home home = { .tag = id.lo >> (64 - TAG_BITS) };

	home.bucket[0] = mul_u64_u64_shr(id.hi, idx->nr_buckets, 64);
	home.bucket[1] = other_bucket(idx, home.tag, home.bucket[0]);
	home.nr = home.bucket[0] == home.bucket[1] ? 1 : 2;
	return home;
}

static u32 stripe_of(const struct kvblk_index *idx, u64 bucket)
{
	return bucket & (idx->nr_stripes - 1);
}

/*
 * Slots of @bucket that may have @tag: a bit each. No branch depends on which
 * one it is, for nobody could foresee that; no loop, for compilers keep it.
 */
static unsigned int bucket_match(const struct kvblk_index *idx, u64 bucket,
				 u64 tag)
{
	const u32 (*w)[SLOT_WORDS] = idx->buckets[bucket].words;

	BUILD_BUG_ON(BUCKET_SLOTS != 3);
	return (READ_ONCE(w[0][0]) == (u32)tag) |
	       (READ_ONCE(w[1][0]) == (u32)tag) << 1 |
	       (READ_ONCE(w[2][0]) == (u32)tag) << 2;
}

/* FREE slots of @bucket, likewise. */
static unsigned int bucket_free(const struct kvblk_index *idx, u64 bucket)
{
	const u32 (*w)[SLOT_WORDS] = idx->buckets[bucket].words;
	const u32 state = SLOT_STATE >> 32;

	return ((READ_ONCE(w[0][1]) & state) == 0) |
	       ((READ_ONCE(w[1][1]) & state) == 0) << 1 |
	       ((READ_ONCE(w[2][1]) & state) == 0) << 2;
}

static unsigned int mask_weight(unsigned int mask)
{
	return (mask & 1) + (mask >> 1 & 1) + (mask >> 2);
}

/*
 * Looks for @home's slot, dead or alive. Without the stripes, what it finds may
 * be torn.
 */
static __always_inline bool home_find(const struct kvblk_index *idx,
				      const struct home *home,
				      struct place *at, struct packed *p)
{
	unsigned int match, nr;

	match = bucket_match(idx, home->bucket[0], home->tag) |
		bucket_match(idx, home->bucket[1], home->tag) << BUCKET_SLOTS;
	for (; match; match &= match - 1) {
		nr = __ffs(match);
		at->bucket = home->bucket[nr >= BUCKET_SLOTS];
		at->nr = nr >= BUCKET_SLOTS ? nr - BUCKET_SLOTS : nr;
		*p = slot_load(idx, *at);
		if (FIELD_GET(SLOT_TAG, p->a) == home->tag &&
		    slot_state(*p) != KVBLK_SLOT_FREE)
			return true;
	}
	return false;
}

/* FREE slots in @bucket, or else dead ones; the first of them in @at. */
static unsigned int bucket_room(const struct kvblk_index *idx, u64 bucket,
				struct place *at)
{
	struct place look = { .bucket = bucket };
	unsigned int room = bucket_free(idx, bucket);

	if (room) {
		*at = (struct place) { bucket, __ffs(room) };
		return mask_weight(room);
	}
	for (; look.nr < BUCKET_SLOTS; look.nr++)
		if (slot_vacant(idx, slot_load(idx, look)) && !room++)
			*at = look;
	return room;
}

/* Adds the stripe of @bucket to those that are to be locked. */
static void locked_add(const struct kvblk_index *idx, struct locked *locked,
		       u64 bucket)
{
	u32 stripe = stripe_of(idx, bucket);
	unsigned int i = locked->nr, j;

	while (i && locked->stripe[i - 1] > stripe)
		i--;
	if (i && locked->stripe[i - 1] == stripe)
		return;
	for (j = locked->nr++; j > i; j--)
		locked->stripe[j] = locked->stripe[j - 1];
	locked->stripe[i] = stripe;
}

/* Locks the stripes of @home, and those of @path unless it is NULL. */
static void stripes_lock(struct kvblk_index *idx, struct locked *locked,
			 const struct home *home, const struct path *path)
{
	u32 a = stripe_of(idx, home->bucket[0]);
	u32 b = stripe_of(idx, home->bucket[1]);
	unsigned int i;

	/* Which one is the first nobody could foresee: no branch. */
	locked->stripe[0] = min(a, b);
	locked->stripe[1] = max(a, b);
	locked->nr = 1 + (a != b);
	for (i = 0; path && i < path->nr; i++)
		locked_add(idx, locked, path->at[i].bucket);
	BUILD_BUG_ON(LOCKED_MAX > MAX_LOCKDEP_SUBCLASSES);
	for (i = 0; i < locked->nr; i++) {
		spin_lock_nested(&idx->stripes[locked->stripe[i]].lock, i);
		/* sparse counts locks, and a loop has no fixed number. */
		__release(&idx->stripes[locked->stripe[i]].lock);
	}
}

static void stripes_unlock(struct kvblk_index *idx,
			   const struct locked *locked)
{
	unsigned int i = locked->nr;

	while (i--) {
		__acquire(&idx->stripes[locked->stripe[i]].lock);
		spin_unlock(&idx->stripes[locked->stripe[i]].lock);
	}
}

/* Around stores: sends away the readers of all stripes in @locked. */
static void stripes_write_begin(struct kvblk_index *idx,
				const struct locked *locked)
{
	unsigned int i;

	for (i = 0; i < locked->nr; i++)
		write_seqcount_begin_nested(&idx->stripes[locked->stripe[i]].seq,
					    i);
}

static void stripes_write_end(struct kvblk_index *idx,
			      const struct locked *locked)
{
	unsigned int i = locked->nr;

	while (i--)
		write_seqcount_end(&idx->stripes[locked->stripe[i]].seq);
}

/* Around stores to one bucket only. */
static void bucket_write_begin(struct kvblk_index *idx, u64 bucket)
{
	write_seqcount_begin(&idx->stripes[stripe_of(idx, bucket)].seq);
}

static void bucket_write_end(struct kvblk_index *idx, u64 bucket)
{
	write_seqcount_end(&idx->stripes[stripe_of(idx, bucket)].seq);
}

/* The same if it is at @old's place under @old's generation. */
static bool home_find_same(const struct kvblk_index *idx,
			   const struct home *home,
			   const struct kvblk_slot *old, struct place *at,
			   struct packed *p)
{
	return home_find(idx, home, at, p) &&
	       FIELD_GET(SLOT_SEG, p->b) == old->seg &&
	       FIELD_GET(SLOT_OFF, p->b) == old->off &&
	       FIELD_GET(SLOT_GEN, p->c) == old->gen;
}

static bool home_has(const struct home *home, u64 bucket)
{
	return bucket == home->bucket[0] || bucket == home->bucket[1];
}

/*
 * Vacant slot in the emptier of @home's buckets: keeping them even saves a
 * quarter of the later moves at load 0.67, a fifth of the evictions at 0.85.
 * Dead ones, which need another look each, come last.
 */
static bool home_room(const struct kvblk_index *idx, const struct home *home,
		      struct place *at)
{
	unsigned int free[2], room, most = 0, i;
	struct place found;

	for (i = 0; i < 2; i++)
		free[i] = bucket_free(idx, home->bucket[i]);
	i = mask_weight(free[1]) > mask_weight(free[0]);
	if (free[i]) {
		*at = (struct place) { home->bucket[i], __ffs(free[i]) };
		return true;
	}

	for (i = 0; i < home->nr; i++) {
		room = bucket_room(idx, home->bucket[i], &found);
		if (room > most) {
			most = room;
			*at = found;
		}
	}
	return most;
}

/* Where the slots of @bucket could move to. */
static void moves_prefetch(const struct kvblk_index *idx, u64 bucket)
{
	struct place at = { .bucket = bucket };

	for (; at.nr < BUCKET_SLOTS; at.nr++)
		prefetch(&idx->buckets[slot_other(idx, slot_load(idx, at),
						  bucket)]);
}

/*
 * Looks for the shortest path out of @home's buckets, which are full and
 * locked. The other buckets are not: the path is a proposal.
 */
static bool path_find(const struct kvblk_index *idx, const struct home *home,
		      struct path *path)
{
	struct place at, next, room;
	struct place step[2 * BUCKET_SLOTS][2];
	unsigned int nr = 0, i, j;

	for (i = 0; i < home->nr; i++) {
		at.bucket = home->bucket[i];
		for (at.nr = 0; at.nr < BUCKET_SLOTS; at.nr++) {
			next.bucket = slot_other(idx, slot_load(idx, at),
						 at.bucket);
			next.nr = 0;
			if (home_has(home, next.bucket))
				continue;
			prefetch(&idx->buckets[next.bucket]);
			step[nr][0] = at;
			step[nr][1] = next;
			nr++;
		}
	}

	for (i = 0; i < nr; i++) {
		if (bucket_room(idx, step[i][1].bucket, &room)) {
			path->at[0] = step[i][0];
			path->at[1] = room;
			path->nr = 2;
			return true;
		}
	}

	for (i = 0; i < nr; i++)
		moves_prefetch(idx, step[i][1].bucket);
	for (i = 0; i < nr; i++) {
		next = step[i][1];
		for (j = 0; j < BUCKET_SLOTS; j++) {
			next.nr = j;
			at.bucket = slot_other(idx, slot_load(idx, next),
					       next.bucket);
			if (at.bucket == next.bucket ||
			    home_has(home, at.bucket) ||
			    !bucket_room(idx, at.bucket, &room))
				continue;
			path->at[0] = step[i][0];
			path->at[1] = next;
			path->at[2] = room;
			path->nr = 3;
			return true;
		}
	}
	return false;
}

/*
 * True: @path, whose stripes are locked now, still leads to a vacant slot.
 * That may be another one of the same bucket than before.
 */
static bool path_valid(const struct kvblk_index *idx, struct path *path)
{
	unsigned int last = path->nr - 1, i;
	struct packed p;

	for (i = 0; i < last; i++) {
		p = slot_load(idx, path->at[i]);
		if (slot_state(p) == KVBLK_SLOT_FREE ||
		    slot_other(idx, p, path->at[i].bucket) !=
		    path->at[i + 1].bucket)
			return false;
	}
	return bucket_room(idx, path->at[last].bucket, &path->at[last]);
}

/* True: @a goes before @b when one of them has to. */
static bool goes_first(const struct kvblk_index *idx, struct place at_a,
		       struct packed a, struct place at_b, struct packed b)
{
	u8 heat_a = READ_ONCE(*slot_heat(idx, at_a));
	u8 heat_b = READ_ONCE(*slot_heat(idx, at_b));

	if (FIELD_GET(SLOT_PRIO, a.c) != FIELD_GET(SLOT_PRIO, b.c))
		return FIELD_GET(SLOT_PRIO, a.c) < FIELD_GET(SLOT_PRIO, b.c);
	if (!heat_a || !heat_b)
		return !heat_a && heat_b;
	/* Ticks wrap, so only their distance says which one is older. */
	return (s8)(heat_a - heat_b) < 0;
}

/* Finds the entry of @home's full buckets that has to go; false: none may. */
static bool victim_find(const struct kvblk_index *idx, const struct home *home,
			struct place *victim, struct packed *p)
{
	bool found = false;
	struct packed look;
	struct place at;
	unsigned int i;

	for (i = 0; i < home->nr; i++) {
		at.bucket = home->bucket[i];
		for (at.nr = 0; at.nr < BUCKET_SLOTS; at.nr++) {
			look = slot_load(idx, at);
			if (slot_state(look) != KVBLK_SLOT_LIVE ||
			    look.a & SLOT_LEASED)
				continue;
			if (found && !goes_first(idx, at, look, *victim, *p))
				continue;
			*victim = at;
			*p = look;
			found = true;
		}
	}
	return found;
}

/* Puts @slot at @at, which is vacant or a victim. */
static void entry_write(struct kvblk_index *idx, struct place at, u64 tag,
			const struct kvblk_slot *slot)
{
	slot_write(idx, at, slot_pack(tag, slot), slot->expiry,
		   slot->caller_tag);
	WRITE_ONCE(*slot_heat(idx, at), slot->heat);
}

/* Puts @slot into a place of its own buckets. */
static void entry_put(struct kvblk_index *idx, struct place at, u64 tag,
		      const struct kvblk_slot *slot)
{
	/* A dead one that is written over was counted already. */
	if (slot_state(slot_load(idx, at)) == KVBLK_SLOT_FREE)
		atomic64_inc(&idx->nr_used);
	bucket_write_begin(idx, at.bucket);
	entry_write(idx, at, tag, slot);
	bucket_write_end(idx, at.bucket);
}

/* Makes room along @path, which is valid, and puts @slot there. */
static void entry_put_path(struct kvblk_index *idx, const struct path *path,
			   const struct locked *locked, u64 tag,
			   const struct kvblk_slot *slot)
{
	unsigned int i = path->nr - 1;

	if (slot_state(slot_load(idx, path->at[i])) == KVBLK_SLOT_FREE)
		atomic64_inc(&idx->nr_used);
	stripes_write_begin(idx, locked);
	for (; i; i--)
		slot_move(idx, path->at[i - 1], path->at[i]);
	entry_write(idx, path->at[0], tag, slot);
	stripes_write_end(idx, locked);
}

/*
 * kvblk_index_insert() under the stripes in @locked. -EAGAIN: @path says what
 * else has to be locked.
 */
static int insert_locked(struct kvblk_index *idx, const struct home *home,
			 const struct locked *locked, struct path *path,
			 bool last_try, const struct kvblk_slot *slot,
			 struct kvblk_slot *old, bool evict)
{
	struct packed p = {};
	struct place at = {};

	if (home_find(idx, home, &at, &p)) {
		if (!slot_dead(idx, p)) {
			slot_unpack(idx, at, p, old);
			return -EEXIST;
		}
		/* Its own dead slot comes first: an id never has two. */
		entry_put(idx, at, home->tag, slot);
		return 0;
	}
	if (home_room(idx, home, &at)) {
		entry_put(idx, at, home->tag, slot);
		return 0;
	}
	if (path->nr && path_valid(idx, path)) {
		entry_put_path(idx, path, locked, home->tag, slot);
		return 0;
	}
	if (!last_try && path_find(idx, home, path))
		return -EAGAIN;
	if (!evict || !victim_find(idx, home, &at, &p))
		return -ENOSPC;
	slot_unpack(idx, at, p, old);
	entry_put(idx, at, home->tag, slot);
	atomic64_inc(&idx->nr_evicted);
	return 1;
}

int kvblk_index_insert(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *slot, struct kvblk_slot *old,
		       bool evict)
{
	const struct home home = home_of(idx, id);
	struct path path = { .nr = 0 };
	unsigned int try = 0;
	struct locked locked;
	int ret;

	do {
		stripes_lock(idx, &locked, &home, &path);
		ret = insert_locked(idx, &home, &locked, &path,
				    ++try > INSERT_TRIES, slot, old, evict);
		stripes_unlock(idx, &locked);
	} while (ret == -EAGAIN);
	return ret;
}

static bool slot_replace(struct kvblk_index *idx, struct kvblk_id id,
			 const struct kvblk_slot *old,
			 const struct kvblk_slot *new, bool unleased)
{
	const struct home home = home_of(idx, id);
	struct packed p, packed = { .a = 0 };
	struct locked locked;
	struct place at;
	bool same;

	stripes_lock(idx, &locked, &home, NULL);
	same = home_find_same(idx, &home, old, &at, &p) &&
	       slot_state(p) == old->state &&
	       !(unleased && FIELD_GET(SLOT_LEASED, p.a));
	if (same) {
		if (new) {
			packed = slot_pack(home.tag, new);
			packed.a &= ~SLOT_LEASED;
			packed.a |= p.a & SLOT_LEASED;
		} else {
			atomic64_dec(&idx->nr_used);
		}
		bucket_write_begin(idx, at.bucket);
		slot_write(idx, at, packed, new ? new->expiry : 0,
			   new ? new->caller_tag : 0);
		bucket_write_end(idx, at.bucket);
	}
	stripes_unlock(idx, &locked);
	return same;
}

bool kvblk_index_replace(struct kvblk_index *idx, struct kvblk_id id,
			 const struct kvblk_slot *old,
			 const struct kvblk_slot *new)
{
	return slot_replace(idx, id, old, new, false);
}

bool kvblk_index_claim(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *old,
		       const struct kvblk_slot *new)
{
	return slot_replace(idx, id, old, new, true);
}

bool kvblk_index_lease(struct kvblk_index *idx, struct kvblk_id id,
		       const struct kvblk_slot *old, bool leased)
{
	const struct home home = home_of(idx, id);
	struct locked locked;
	struct packed p;
	struct place at;
	bool same;

	stripes_lock(idx, &locked, &home, NULL);
	same = home_find_same(idx, &home, old, &at, &p) &&
	       !(leased && (slot_state(p) != KVBLK_SLOT_LIVE ||
			    slot_dead(idx, p)));
	if (same) {
		p.a &= ~SLOT_LEASED;
		p.a |= FIELD_PREP(SLOT_LEASED, leased);
		bucket_write_begin(idx, at.bucket);
		slot_store(idx, at, p);
		bucket_write_end(idx, at.bucket);
	}
	stripes_unlock(idx, &locked);
	return same;
}

bool kvblk_index_find(const struct kvblk_index *idx, struct kvblk_id id,
		      struct kvblk_slot *slot)
{
	const struct home home = home_of(idx, id);
	const seqcount_spinlock_t *seq[2];
	unsigned int start[2], i;
	struct packed p;
	struct place at;
	bool found;

	for (i = 0; i < 2; i++)
		seq[i] = &idx->stripes[stripe_of(idx, home.bucket[i])].seq;
	/* Both at the same time: it may move from one to the other. */
	do {
		for (i = 0; i < 2; i++)
			start[i] = read_seqcount_begin(seq[i]);
		found = home_find(idx, &home, &at, &p);
		if (found)
			slot_unpack(idx, at, p, slot);
	} while (read_seqcount_retry(seq[0], start[0]) ||
		 read_seqcount_retry(seq[1], start[1]));
	return found && !slot_dead(idx, p);
}

void kvblk_index_touch(struct kvblk_index *idx, struct kvblk_id id, u8 tick)
{
	const struct home home = home_of(idx, id);
	struct packed p;
	struct place at;
	u8 *heat;

	if (!home_find(idx, &home, &at, &p))
		return;
	heat = slot_heat(idx, at);
	/* Most touches of a hot block are in the same tick: leave its line. */
	if (READ_ONCE(*heat) != tick)
		WRITE_ONCE(*heat, tick);
}

void kvblk_index_prefetch(const struct kvblk_index *idx, struct kvblk_id id)
{
	const struct home home = home_of(idx, id);

	prefetch(&idx->buckets[home.bucket[0]]);
	prefetch(&idx->buckets[home.bucket[1]]);
	prefetch(&idx->stripes[stripe_of(idx, home.bucket[0])]);
	prefetch(&idx->stripes[stripe_of(idx, home.bucket[1])]);
}

/* True: the sweeper is to free the slot at @at. */
static bool slot_over(const struct kvblk_index *idx, struct place at,
		      struct packed p, u32 now)
{
	if (slot_dead(idx, p))
		return true;
	return slot_state(p) == KVBLK_SLOT_LIVE && p.a & SLOT_EXPIRES &&
	       READ_ONCE(idx->expiry[slot_number(at)]) <= now;
}

/* Frees what is over in @bucket; returns how many. */
static unsigned int bucket_sweep(struct kvblk_index *idx, u64 bucket, u32 now)
{
	struct kvblk_stripe *stripe = &idx->stripes[stripe_of(idx, bucket)];
	struct place at = { .bucket = bucket };
	unsigned int nr = 0;

	spin_lock(&stripe->lock);
	write_seqcount_begin(&stripe->seq);
	for (; at.nr < BUCKET_SLOTS; at.nr++) {
		if (!slot_over(idx, at, slot_load(idx, at), now))
			continue;
		slot_store(idx, at, (struct packed) { .a = 0 });
		nr++;
	}
	write_seqcount_end(&stripe->seq);
	spin_unlock(&stripe->lock);
	atomic64_sub(nr, &idx->nr_used);
	return nr;
}

u64 kvblk_index_sweep(struct kvblk_index *idx, u64 start, u64 nr, u32 now,
		      u64 *dropped)
{
	u64 end = min(idx->nr_buckets, start + min(nr, idx->nr_buckets));
	struct place at;

	for (at.bucket = start; at.bucket < end; at.bucket++) {
		/* Most buckets have nothing to free: look before locking. */
		for (at.nr = 0; at.nr < BUCKET_SLOTS; at.nr++)
			if (slot_over(idx, at, slot_load(idx, at), now))
				break;
		if (at.nr < BUCKET_SLOTS)
			*dropped += bucket_sweep(idx, at.bucket, now);
	}
	return end < idx->nr_buckets ? end : 0;
}

u64 kvblk_index_slots(const struct kvblk_index *idx)
{
	return idx->nr_buckets * BUCKET_SLOTS;
}

u64 kvblk_index_bytes(const struct kvblk_index *idx)
{
	u64 beside = sizeof(*idx->expiry) +
		     (READ_ONCE(idx->tags) ? sizeof(*idx->tags) : 0);

	return idx->nr_buckets * sizeof(*idx->buckets) +
	       idx->nr_stripes * sizeof(*idx->stripes) +
	       kvblk_index_slots(idx) * beside;
}

/* Huge pages where there are any: every look-up is a miss of the TLB, too. */
static void *array_alloc(u64 nr, size_t size)
{
	/* whoever asks for too much is told so, and nobody is killed for it */
	return vmalloc_huge(nr * size, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN |
			    __GFP_RETRY_MAYFAIL);
}

int kvblk_index_init(struct kvblk_index *idx, u64 nr_slots, const u16 *seg_gen,
		     u32 nr_segs)
{
	u32 i;

	BUILD_BUG_ON(sizeof(struct kvblk_bucket) != 64);
	BUILD_BUG_ON(KVBLK_INDEX_SEG_BITS + KVBLK_INDEX_OFF_BITS +
		     KVBLK_INDEX_LEN_BITS + KVBLK_INDEX_TENANT_BITS +
		     TAG_BITS + 16 + 6 != 32 * SLOT_WORDS);

	*idx = (struct kvblk_index) {
		.seg_gen = seg_gen,
		.nr_segs = nr_segs,
	};
	mutex_init(&idx->tags_lock);
	if (nr_slots > SLOTS_MAX)
		return -ENOMEM;
	idx->nr_buckets = max(BUCKETS_MIN, div_u64(nr_slots + BUCKET_SLOTS - 1,
						   BUCKET_SLOTS));
	idx->nr_stripes = rounddown_pow_of_two(min(idx->nr_buckets,
						   STRIPES_MAX));

	idx->buckets = array_alloc(idx->nr_buckets, sizeof(*idx->buckets));
	idx->expiry = array_alloc(kvblk_index_slots(idx),
				  sizeof(*idx->expiry));
	idx->stripes = array_alloc(idx->nr_stripes, sizeof(*idx->stripes));
	if (!idx->buckets || !idx->expiry || !idx->stripes) {
		kvblk_index_destroy(idx);
		return -ENOMEM;
	}

	for (i = 0; i < idx->nr_stripes; i++) {
		struct kvblk_stripe *stripe = &idx->stripes[i];

		spin_lock_init(&stripe->lock);
		seqcount_spinlock_init(&stripe->seq, &stripe->lock);
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
	tags = array_alloc(kvblk_index_slots(idx), sizeof(*tags));
	if (!tags)
		return -ENOMEM;
	/* Zeroes first: writers that know nothing of it had no tags. */
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
