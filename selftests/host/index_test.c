// SPDX-License-Identifier: GPL-2.0
/*
 * The index against a trivial model, from two buckets to a million slots; the rate of evictions
 * at a given load; and readers that must never miss an entry while other threads move it.
 *
 * A block's place is a function of its key: the index reports only a victim's place, and the test
 * computes the key from it.
 */
#include <pthread.h>
#include <sched.h>

#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/kvblk.h>
#include <linux/math64.h>
#include <linux/seqlock.h>

#include "index/index.h"
#include "kvblk_test.h"
#include "shim.h"

#define SEGS	16

/* Generations of the segments; LIVE entries of another generation are dead. */
static u16 seg_gen[SEGS];

static u64 mix(u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static u64 next_random(u64 *seed)
{
	return mix(++*seed);
}

static u64 below(u64 *seed, u64 limit)
{
	return mul_u64_u64_shr(next_random(seed), limit, 64);
}

static struct kvblk_id id_of(u64 key)
{
	return (struct kvblk_id) {
		.hi = mix(2 * key),
		.lo = mix(2 * key + 1),
	};
}

/* Return an id that fits both buckets of an index of two: those with the top bit of lo set do. */
static struct kvblk_id id_both(u64 key)
{
	struct kvblk_id id = id_of(key);

	id.lo |= 1ULL << 63;
	return id;
}

static struct kvblk_slot slot_of(u64 key, u8 state, u64 *seed)
{
	u32 seg = key % SEGS;

	return (struct kvblk_slot) {
		.seg = seg,
		.off = key / SEGS,
		.len = 1 + below(seed, 64 << 20),
		.gen = seg_gen[seg],
		.tenant = below(seed, 1 << KVBLK_INDEX_TENANT_BITS),
		.state = state,
		.prio = below(seed, 4),
		.heat = below(seed, 100),
		.expiry = below(seed, 3) ? 0 : 1 + below(seed, 1000),
		.caller_tag = next_random(seed),
	};
}

static u64 key_of(const struct kvblk_slot *slot)
{
	return (u64)slot->off * SEGS + slot->seg;
}

static void assert_slot(const struct kvblk_slot *is, const struct kvblk_slot *be)
{
	assert_int_equal(is->seg, be->seg);
	assert_int_equal(is->off, be->off);
	assert_int_equal(is->len, be->len);
	assert_int_equal(is->gen, be->gen);
	assert_int_equal(is->tenant, be->tenant);
	assert_int_equal(is->state, be->state);
	assert_int_equal(is->prio, be->prio);
	assert_int_equal(is->leased, be->leased);
	assert_int_equal(is->heat, be->heat);
	assert_int_equal(is->expiry, be->expiry);
	assert_int_equal(is->caller_tag, be->caller_tag);
}

static void assert_entry(const struct kvblk_index *idx, struct kvblk_id id,
			 const struct kvblk_slot *be)
{
	struct kvblk_slot is;

	assert_true(kvblk_index_find(idx, id, &is));
	assert_slot(&is, be);
}

static void assert_no_entry(const struct kvblk_index *idx, struct kvblk_id id)
{
	struct kvblk_slot is;

	assert_false(kvblk_index_find(idx, id, &is));
}

/* Sweep the whole index, @step buckets at a time. Returns the number of dropped entries. */
static u64 sweep_all(struct kvblk_index *idx, u64 step, u32 now)
{
	u64 at = 0, dropped = 0;

	do
		at = kvblk_index_sweep(idx, at, step, now, &dropped);
	while (at);
	return dropped;
}

/**
 * struct entry - expected state of a key
 * @slot: the entry, if @there
 * @there: inserted, neither removed nor evicted; may be dead, and the index may then have dropped
 *     it
 */
struct entry {
	struct kvblk_slot slot;
	bool there;
};

/* Counts of a segment's generation in an account. */
struct usage {
	u64 blocks;
	u64 bytes;
	u16 gen;
};

struct model {
	struct kvblk_index idx;
	struct entry *keys;
	u64 nr_keys;
	u64 seed;
	u64 evicted;
	u64 full;	/* inserts that failed with -ENOSPC */
	u64 *heard;	/* caller tag of each key as reported to a listener; 0: none */
	struct usage usage[SEGS];
};

/* Check that the name is the id's tag and its lower bucket: no two entries have the same. */
static void assert_name(const struct kvblk_index *idx, const struct kvblk_index_entry *entry,
			u64 key)
{
	struct kvblk_id id = id_of(key);
	u64 bucket = (unsigned __int128)id.hi * idx->nr_buckets >> 64, tag = id.lo >> 8;
	u64 other = bucket ^ ((tag | 1) & (idx->stripe_buckets - 1));

	assert_int_equal(entry->name.lo, tag);
	assert_int_equal(entry->name.hi, min(bucket, other));
	assert_int_equal(entry->slot.place, kvblk_index_token(idx, id));
}

/* kvblk_index.notify: check that a removal matches the last insertion that was reported. */
static void model_told(struct kvblk_index *idx, const struct kvblk_index_entry *entry, bool came)
{
	struct model *m = container_of(idx, struct model, idx);
	u64 key = key_of(&entry->slot);

	assert_true(key < m->nr_keys);
	assert_name(idx, entry, key);
	if (!came || m->heard[key])
		assert_int_equal(m->heard[key], entry->slot.caller_tag);
	m->heard[key] = came ? entry->slot.caller_tag : 0;
}

/* After a sweep of dead entries, the listener knows exactly the present entries. */
static void model_heard(struct model *m)
{
	struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET];
	u64 there = 0, walked = 0;

	for (u64 key = 0; key < m->nr_keys; key++) {
		const struct entry *e = &m->keys[key];
		bool visible = e->there && e->slot.state != KVBLK_SLOT_WRITING;

		assert_int_equal(m->heard[key], visible ? e->slot.caller_tag : 0);
		there += visible;
	}
	for (u64 bucket = 0; bucket < m->idx.nr_buckets; bucket++) {
		u64 found = kvblk_index_entries(&m->idx, bucket, 0, entries);

		for (u64 i = 0; i < found; i++) {
			u64 key = key_of(&entries[i].slot);

			assert_int_equal(m->heard[key], entries[i].slot.caller_tag);
			/* wherever the entry was moved: lists rely on stripe and token */
			assert_int_equal(kvblk_index_stripe(&m->idx, id_of(key)),
					 bucket >> m->idx.stripe_shift);
			assert_name(&m->idx, &entries[i], key);
		}
		walked += found;
	}
	assert_int_equal(walked, there);
}

/* Return a random entry that fits @m's index. */
static struct kvblk_slot model_slot(struct model *m, u64 key, u8 state)
{
	struct kvblk_slot slot = slot_of(key, state, &m->seed);

	if (!m->idx.tags)
		slot.caller_tag = 0;
	return slot;
}

static bool entry_dead(const struct entry *e)
{
	return e->there && e->slot.state != KVBLK_SLOT_WRITING &&
	       e->slot.gen != seg_gen[e->slot.seg];
}

static bool entry_live(const struct entry *e)
{
	return e->there && !entry_dead(e);
}

/* kvblk_index.account: count records and bytes by segment, as an account of the kernel counts. */
static void model_account(struct kvblk_index *idx, const struct kvblk_slot *slot, bool came)
{
	struct model *m = container_of(idx, struct model, idx);
	struct usage *usage = &m->usage[slot->seg];

	assert_true(slot->seg < SEGS);
	if (usage->gen != slot->gen)
		return;
	assert_true(came || (usage->blocks && usage->bytes >= slot->len));
	usage->blocks += came ? 1 : -1;
	usage->bytes += came ? slot->len : -(u64)slot->len;
}

/* Compare each segment's account with a count over the model's entries, before or after a sweep. */
static void model_accounted(const struct model *m)
{
	struct usage are[SEGS] = {};

	for (u64 key = 0; key < m->nr_keys; key++) {
		const struct entry *e = &m->keys[key];

		if (!entry_live(e) || e->slot.state == KVBLK_SLOT_WRITING)
			continue;
		are[e->slot.seg].blocks++;
		are[e->slot.seg].bytes += e->slot.len;
	}
	for (int i = 0; i < SEGS; i++) {
		assert_int_equal(m->usage[i].blocks, are[i].blocks);
		assert_int_equal(m->usage[i].bytes, are[i].bytes);
	}
}

/* Compare the cold entries of @tenant with the model's LIVE and unleased entries. */
static void model_colds(struct model *m, u16 tenant, u8 tick)
{
	struct kvblk_index_cold colds[KVBLK_INDEX_BUCKET];
	u64 there = 0, walked = 0;
	struct kvblk_slot found;

	for (u64 key = 0; key < m->nr_keys; key++) {
		const struct entry *e = &m->keys[key];

		there += entry_live(e) && e->slot.state == KVBLK_SLOT_LIVE && !e->slot.leased &&
			 e->slot.tenant == tenant;
	}
	for (u64 bucket = 0; bucket < m->idx.nr_buckets; bucket++) {
		unsigned int nr = kvblk_index_colds(&m->idx, bucket, tenant, tick, colds);

		for (unsigned int i = 0; i < nr; i++) {
			const struct kvblk_slot *slot = &colds[i].slot;
			u8 age = tick - slot->heat;

			assert_int_equal(slot->tenant, tenant);
			assert_int_equal(kvblk_index_token(&m->idx, colds[i].id),
					 kvblk_index_token(&m->idx, id_of(key_of(slot))));
			assert_true(kvblk_index_find(&m->idx, colds[i].id, &found));
			assert_slot(&found, slot);
			assert_int_equal(colds[i].rank, slot->prio * 256 +
					 (!slot->heat ? 0 : age < 255 ? 255 - age : 1));
		}
		walked += nr;
	}
	assert_int_equal(walked, there);
}

static void model_insert(struct model *m, u64 key)
{
	static const u8 states[] = {
		KVBLK_SLOT_WRITING, KVBLK_SLOT_LIVE, KVBLK_SLOT_LIVE,
		KVBLK_SLOT_LIVE, KVBLK_SLOT_LIVE, KVBLK_SLOT_MOVING,
	};
	struct kvblk_slot slot = model_slot(m, key, states[below(&m->seed, 6)]);
	struct entry *e = &m->keys[key], *victim;
	struct kvblk_slot old;
	u64 pinned = 0;

	switch (kvblk_index_insert(&m->idx, id_of(key), &slot, &old, true)) {
	case -EEXIST:
		assert_true(entry_live(e));
		assert_slot(&old, &e->slot);
		return;
	case -ENOSPC:
		/* -ENOSPC requires at least three slots that cannot be evicted. */
		for (u64 i = 0; i < m->nr_keys && pinned < 3; i++)
			pinned += entry_live(&m->keys[i]) &&
				  (m->keys[i].slot.leased ||
				   m->keys[i].slot.state != KVBLK_SLOT_LIVE);
		assert_int_equal(pinned, 3);
		assert_false(entry_live(e));
		m->full++;
		return;
	case 1:
		assert_true(key_of(&old) < m->nr_keys);
		victim = &m->keys[key_of(&old)];
		assert_true(entry_live(victim));
		assert_int_equal(victim->slot.state, KVBLK_SLOT_LIVE);
		assert_false(victim->slot.leased);
		assert_slot(&old, &victim->slot);
		assert_int_equal(old.place, kvblk_index_token(&m->idx,
							      id_of(key_of(&old))));
		victim->there = false;
		m->evicted++;
		break;
	case 0:
		break;
	default:
		fail();
	}
	assert_false(entry_live(e));
	e->there = true;
	e->slot = slot;
}

static void model_replace(struct model *m, u64 key)
{
	struct entry *e = &m->keys[key];
	struct kvblk_slot old = e->slot, new;
	bool remove = below(&m->seed, 3) == 0, wrong = true;

	new = model_slot(m, key, 1 + below(&m->seed, 3));
	switch (below(&m->seed, 12)) {
	case 0:
		old.gen ^= 1 << below(&m->seed, 16);
		break;
	case 1:
		old.off ^= 1 << below(&m->seed, KVBLK_INDEX_OFF_BITS);
		break;
	case 2:
		old.seg ^= 1 << below(&m->seed, KVBLK_INDEX_SEG_BITS);
		break;
	case 3:
		old.state = 1 + old.state % 3;
		break;
	default:
		wrong = false;
	}
	if (!kvblk_index_replace(&m->idx, id_of(key), &old,
				 remove ? NULL : &new)) {
		assert_true(wrong || !entry_live(e));
		return;
	}
	assert_true(e->there && !wrong);
	new.leased = e->slot.leased;
	new.heat = e->slot.heat;
	e->slot = new;
	e->there = !remove;
}

static void model_publish(struct model *m, u64 key)
{
	struct entry *e = &m->keys[key];
	struct kvblk_slot slot = e->slot;
	bool wrong = below(&m->seed, 8) == 0;

	if (wrong)
		slot.off ^= 1;
	assert_int_equal(kvblk_index_publish(&m->idx, id_of(key), &slot),
			 e->there && !wrong && slot.state == KVBLK_SLOT_WRITING);
	if (e->there && !wrong && slot.state == KVBLK_SLOT_WRITING)
		e->slot.state = KVBLK_SLOT_LIVE;
}

static void model_lease(struct model *m, u64 key)
{
	struct entry *e = &m->keys[key];
	/* Lease only an entry in four, or else everything is leased in the end. */
	bool leased = below(&m->seed, 4) == 0, done;
	const unsigned long kept = below(&m->seed, 2) << 5;
	struct kvblk_slot old = e->slot;

	if (below(&m->seed, 8) == 0) {
		old.off ^= 1;
		assert_false(kvblk_index_lease(&m->idx, id_of(key), &old, &kept, 5));
		return;
	}
	if (!leased) {
		kvblk_index_unlease(&m->idx, id_of(key));
		e->slot.leased = false;
		return;
	}
	old.state = KVBLK_SLOT_LIVE;	/* a move may be in progress */
	done = kvblk_index_lease(&m->idx, id_of(key), &old, &kept, 5);
	assert_int_equal(done, entry_live(e) &&
			 (e->slot.state == KVBLK_SLOT_LIVE ||
			  (e->slot.state == KVBLK_SLOT_MOVING && (kept || e->slot.leased))));
	if (done)
		e->slot.leased = true;
}

/* Claim an entry for a move, as reclaim does: fails if it is leased. */
static void model_claim(struct model *m, u64 key)
{
	struct entry *e = &m->keys[key];
	struct kvblk_slot new = e->slot;
	bool done;

	new.state = KVBLK_SLOT_MOVING;
	done = kvblk_index_claim(&m->idx, id_of(key), &e->slot, &new);
	if (entry_live(e))
		assert_int_equal(done, !e->slot.leased);
	else
		assert_false(done && (!e->there || e->slot.leased));
	if (done)
		e->slot.state = KVBLK_SLOT_MOVING;
}

static void model_sweep(struct model *m)
{
	u32 now = below(&m->seed, 300);
	u64 expired = 0, dead = 0, live = 0, dropped;

	for (u64 key = 0; key < m->nr_keys; key++) {
		struct entry *e = &m->keys[key];

		if (entry_dead(e)) {
			dead++;
			e->there = false;
		} else if (entry_live(e) && e->slot.expiry &&
			   e->slot.expiry <= now &&
			   e->slot.state == KVBLK_SLOT_LIVE) {
			expired++;
			e->there = false;
		}
		live += e->there;
	}
	dropped = sweep_all(&m->idx, 1 + below(&m->seed, 100), now);
	assert_in_range(dropped, expired, expired + dead);
	assert_int_equal(kvblk_index_used(&m->idx), live);
}

static void model_check(struct model *m, u64 key)
{
	struct entry *e = &m->keys[key];

	if (entry_live(e))
		assert_entry(&m->idx, id_of(key), &e->slot);
	else
		assert_no_entry(&m->idx, id_of(key));
}

/* A lookup of many ids gives the results of single lookups. */
static void model_find_many(struct model *m)
{
	struct kvblk_slot slots[64], alone;
	unsigned int nr = below(&m->seed, 65);
	struct kvblk_id ids[64] = {};
	u64 found;

	for (unsigned int i = 0; i < nr; i++) {
		ids[i] = id_of(below(&m->seed, m->nr_keys));
		kvblk_index_prefetch(&m->idx, ids[i]);
	}
	found = kvblk_index_find_many(&m->idx, ids, nr, slots);
	for (unsigned int i = 0; i < nr; i++) {
		assert_int_equal(found >> i & 1,
				 kvblk_index_find(&m->idx, ids[i], &alone));
		if (found >> i & 1)
			assert_slot(&slots[i], &alone);
	}
	assert_true(nr == 64 || !(found >> nr));
}

static void model_step(struct model *m)
{
	u64 key = below(&m->seed, m->nr_keys);
	struct kvblk_slot found;

	switch (below(&m->seed, 16)) {
	case 0 ... 5:
		model_insert(m, key);
		break;
	case 6 ... 7:
		model_replace(m, key);
		break;
	case 8:
		model_publish(m, key);
		break;
	case 9:
		model_lease(m, key);
		break;
	case 11:
		model_claim(m, key);
		break;
	case 10:
		if (!kvblk_index_find(&m->idx, id_of(key), &found))
			break;
		m->keys[key].slot.heat = 1 + below(&m->seed, 255);
		kvblk_index_touch(&m->idx, &found, m->keys[key].slot.heat);
		break;
	case 12:
		model_find_many(m);
		break;
	default:
		kvblk_index_prefetch(&m->idx, id_of(key));
		kvblk_index_prefetch_room(&m->idx, id_of(key));
		break;
	}
	model_check(m, key);
}

/*
 * Run @steps operations on an index of at least @slots, with @crowd times as many keys. If @tags,
 * caller tags begin halfway.
 */
static void model_run(u64 slots, bool tags, unsigned int crowd, u64 steps,
		      u64 seed)
{
	struct model m = { .seed = seed };
	u64 pass;

	for (int i = 0; i < SEGS; i++)
		seg_gen[i] = next_random(&m.seed);
	assert_int_equal(kvblk_index_init(&m.idx, slots, seg_gen, SEGS), 0);
	assert_true(kvblk_index_slots(&m.idx) >= slots);
	slots = kvblk_index_slots(&m.idx);
	pass = max(2000, slots * 2);
	m.nr_keys = slots * crowd;
	m.keys = calloc(m.nr_keys, sizeof(*m.keys));
	m.heard = calloc(m.nr_keys, sizeof(*m.heard));
	assert_true(m.keys && m.heard);
	m.idx.notify = model_told;
	m.idx.listened = true;
	m.idx.account = model_account;
	for (int i = 0; i < SEGS; i++)
		m.usage[i].gen = seg_gen[i];

	for (u64 i = 1; i <= steps; i++) {
		model_step(&m);
		if (tags && i == steps / 2)
			assert_int_equal(kvblk_index_keep_tags(&m.idx), 0);
		if (i % (pass / 4) == 0) {
			u64 seg = below(&m.seed, SEGS);

			m.usage[seg] = (struct usage) { .gen = ++seg_gen[seg] };
		}
		if (i % pass)
			continue;
		model_accounted(&m);
		model_sweep(&m);
		model_accounted(&m);
		model_colds(&m, m.keys[below(&m.seed, m.nr_keys)].slot.tenant,
			    1 + below(&m.seed, 255));
		model_heard(&m);
		for (u64 key = 0; key < m.nr_keys; key++)
			model_check(&m, key);
	}
	assert_int_equal(atomic64_read(&m.idx.nr_evicted), m.evicted);
	assert_true(m.evicted);

	model_sweep(&m);
	for (u64 key = 0; key < m.nr_keys; key++)
		assert_int_equal(kvblk_index_replace(&m.idx, id_of(key),
						     &m.keys[key].slot, NULL),
				 m.keys[key].there);
	assert_int_equal(kvblk_index_used(&m.idx), 0);
	for (u64 key = 0; key < m.nr_keys; key++)
		assert_int_equal(m.heard[key], 0);
	for (int i = 0; i < SEGS; i++)
		assert_int_equal(m.usage[i].blocks + m.usage[i].bytes, 0);
	kvblk_index_destroy(&m.idx);
	free(m.keys);
	free(m.heard);
}

TEST(model_two_buckets)
{
	model_run(6, true, 4, 600000, 1);
}

TEST(model_three_buckets)
{
	model_run(9, false, 4, 600000, 2);
}

TEST(model_small)
{
	model_run(300, true, 3, 600000, 3);
}

TEST(model_large)
{
	model_run(40000, true, 2, 800000, 4);
}

TEST(keeps_every_field)
{
	struct kvblk_slot none = { .state = KVBLK_SLOT_WRITING, .len = 1 };
	struct kvblk_slot all = {
		.seg = (1 << KVBLK_INDEX_SEG_BITS) - 1,
		.off = (1 << KVBLK_INDEX_OFF_BITS) - 1,
		.len = 1 << KVBLK_INDEX_LEN_BITS,
		.gen = U16_MAX,
		.tenant = (1 << KVBLK_INDEX_TENANT_BITS) - 1,
		.state = KVBLK_SLOT_WRITING,
		.prio = 3,
		.leased = true,
		.heat = U8_MAX,
		.expiry = U32_MAX,
		.caller_tag = U64_MAX,
	};
	struct kvblk_slot old, now;
	struct kvblk_index idx;
	u64 key;

	assert_int_equal(kvblk_index_init(&idx, 6, seg_gen, SEGS), 0);
	assert_int_equal(kvblk_index_keep_tags(&idx), 0);
	/* Full slots between empty ones: no field may overflow into another. */
	for (key = 0; key < 6; key++)
		assert_int_equal(kvblk_index_insert(&idx, id_both(key),
						    key & 1 ? &all : &none,
						    &old, true), 0);
	for (key = 0; key < 6; key++)
		assert_entry(&idx, id_both(key), key & 1 ? &all : &none);

	/* A replace by the owner keeps the leased bit and the heat. */
	assert_true(kvblk_index_replace(&idx, id_both(0), &none, &all));
	now = all;
	now.leased = false;
	now.heat = 0;
	assert_entry(&idx, id_both(0), &now);
	assert_true(kvblk_index_replace(&idx, id_both(1), &all, &none));
	now = none;
	now.leased = true;
	now.heat = U8_MAX;
	assert_entry(&idx, id_both(1), &now);
	kvblk_index_destroy(&idx);
}

/* Fill both buckets of @idx with LIVE entries made of @slots[0 .. 5]. */
static void fill_six(struct kvblk_index *idx, struct kvblk_slot *slots)
{
	struct kvblk_slot old;

	assert_int_equal(kvblk_index_init(idx, 6, seg_gen, SEGS), 0);
	for (u64 key = 0; key < 6; key++) {
		slots[key].seg = key % SEGS;
		slots[key].off = key / SEGS;
		slots[key].len = 1;
		slots[key].gen = seg_gen[slots[key].seg];
		assert_int_equal(kvblk_index_insert(idx, id_both(key),
						    &slots[key], &old, true), 0);
	}
}

/* Insert until -ENOSPC; check that the victims are those in @order. */
static void assert_victims(struct kvblk_slot *slots, const int *order, int nr)
{
	struct kvblk_slot new, old;
	struct kvblk_index idx;

	fill_six(&idx, slots);
	for (int i = 0; i < nr; i++) {
		new = (struct kvblk_slot) {
			.state = KVBLK_SLOT_WRITING,
			.len = 1,
		};
		assert_int_equal(kvblk_index_insert(&idx, id_both(10 + i),
						    &new, &old, true), 1);
		assert_int_equal(key_of(&old), order[i]);
		assert_slot(&old, &slots[order[i]]);
		assert_int_equal(old.place, kvblk_index_token(&idx, id_both(order[i])));
		assert_no_entry(&idx, id_both(order[i]));
	}
	assert_int_equal(atomic64_read(&idx.nr_evicted), nr);
	assert_int_equal(kvblk_index_used(&idx), 6);
	assert_int_equal(kvblk_index_insert(&idx, id_both(20), &new, &old, true),
			 -ENOSPC);
	kvblk_index_destroy(&idx);
}

TEST(evicts_in_order)
{
	struct kvblk_slot slots[6] = {
		{ .state = KVBLK_SLOT_LIVE, .prio = 1, .heat = 0 },
		{ .state = KVBLK_SLOT_LIVE, .prio = 0, .heat = 20 },
		{ .state = KVBLK_SLOT_LIVE, .prio = 0, .heat = 250 },
		{ .state = KVBLK_SLOT_LIVE, .prio = 3, .heat = 0 },
		{ .state = KVBLK_SLOT_LIVE, .prio = 0, .heat = 0 },
		{ .state = KVBLK_SLOT_LIVE, .prio = 1, .heat = 9 },
	};
	/* 250 is older than 20: ticks wrap. */
	static const int order[] = { 4, 2, 1, 0, 5, 3 };

	assert_victims(slots, order, 6);
}

/* Callers' hints decide over put and touches, until a sweep finds that their time has passed. */
TEST(evicts_by_hints)
{
	struct kvblk_slot slots[6] = {
		{ .state = KVBLK_SLOT_LIVE, .heat = 1 },
		{ .state = KVBLK_SLOT_LIVE, .heat = 2 },
		{ .state = KVBLK_SLOT_LIVE, .heat = 3 },
		{ .state = KVBLK_SLOT_LIVE, .heat = 4, .expiry = 90 },
		{ .state = KVBLK_SLOT_LIVE, .heat = 5, .prio = 2 },
		{ .state = KVBLK_SLOT_WRITING, .heat = 6 },
	};
	struct kvblk_slot new = { .state = KVBLK_SLOT_WRITING, .len = 1 };
	static const int order[] = { 4, 1, 0, 2, 3 };
	struct kvblk_slot old, now;
	struct kvblk_index idx;
	u64 dropped = 0;

	fill_six(&idx, slots);
	assert_true(kvblk_index_prioritize(&idx, id_both(0), 3));
	assert_true(kvblk_index_prioritize(&idx, id_both(1), 1));
	assert_true(kvblk_index_retain(&idx, id_both(2), 80));
	assert_true(kvblk_index_retain(&idx, id_both(3), 10));
	assert_true(kvblk_index_retain(&idx, id_both(4), 80));
	assert_true(kvblk_index_retain(&idx, id_both(4), 0));
	assert_true(kvblk_index_prioritize(&idx, id_both(4), 0));
	assert_false(kvblk_index_prioritize(&idx, id_both(5), 1));
	assert_false(kvblk_index_retain(&idx, id_both(5), 80));
	assert_false(kvblk_index_retain(&idx, id_both(7), 80));

	/* an owner that keeps the priority keeps a hint that came meanwhile, too */
	assert_true(kvblk_index_find(&idx, id_both(2), &old));
	now = old;
	now.off++;
	assert_true(kvblk_index_prioritize(&idx, id_both(2), 2));
	assert_true(kvblk_index_replace(&idx, id_both(2), &old, &now));
	assert_true(kvblk_index_find(&idx, id_both(2), &old));
	assert_int_equal(old.prio, 2);
	assert_true(kvblk_index_retained(&idx, &old, 79));
	assert_false(kvblk_index_retained(&idx, &old, 80));
	/* an expiring entry has no room for another time */
	assert_true(kvblk_index_find(&idx, id_both(3), &old));
	assert_int_equal(old.expiry, 90);
	assert_true(kvblk_index_retained(&idx, &old, 80));

	assert_int_equal(kvblk_index_sweep(&idx, 0, 2, 79, &dropped), 0);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(kvblk_index_insert(&idx, id_both(10 + i), &new, &old, true), 1);
		assert_int_equal(old.heat, order[i] + 1);
		/* the slot's retention ends with its entry */
		assert_true(kvblk_index_find(&idx, id_both(10 + i), &now));
		assert_false(kvblk_index_retained(&idx, &now, 1));
	}
	kvblk_index_destroy(&idx);

	fill_six(&idx, slots);
	assert_true(kvblk_index_retain(&idx, id_both(0), 80));
	assert_int_equal(kvblk_index_sweep(&idx, 0, 2, 80, &dropped), 0);
	assert_int_equal(dropped, 0);
	assert_int_equal(kvblk_index_insert(&idx, id_both(10), &new, &old, true), 1);
	assert_int_equal(old.heat, 1);
	kvblk_index_destroy(&idx);

	/* another block, with a time to live, takes the entry over */
	fill_six(&idx, slots);
	assert_true(kvblk_index_retain(&idx, id_both(0), 80));
	assert_true(kvblk_index_find(&idx, id_both(0), &old));
	now = old;
	now.expiry = 1000;
	assert_true(kvblk_index_replace(&idx, id_both(0), &old, &now));
	assert_true(kvblk_index_find(&idx, id_both(0), &old));
	assert_false(kvblk_index_retained(&idx, &old, 1));
	kvblk_index_destroy(&idx);
}

/* A retention moves with its entry, and with no other. */
TEST(retentions_move)
{
	const u64 nr = 40000;
	struct kvblk_slot slot, old;
	struct kvblk_index idx;
	u64 seed = 1;

	assert_int_equal(kvblk_index_init(&idx, nr, seg_gen, SEGS), 0);
	for (u64 key = 0; key < nr * 3 / 4; key++) {
		slot = slot_of(key, KVBLK_SLOT_LIVE, &seed);
		slot.caller_tag = 0;
		assert_true(kvblk_index_insert(&idx, id_of(key), &slot, &old, true) >= 0);
		if (key % 3 == 0)
			assert_true(kvblk_index_retain(&idx, id_of(key), 2000 + key));
	}
	for (u64 key = 0; key < nr * 3 / 4; key++) {
		if (!kvblk_index_find(&idx, id_of(key), &slot))
			continue;
		assert_int_equal(kvblk_index_retained(&idx, &slot, 1999 + key), key % 3 == 0);
		if (!slot.expiry)
			assert_false(kvblk_index_retained(&idx, &slot, 2000 + key));
	}
	kvblk_index_destroy(&idx);
}

TEST(evicts_no_pinned)
{
	struct kvblk_slot slots[6] = {
		{ .state = KVBLK_SLOT_WRITING },
		{ .state = KVBLK_SLOT_MOVING },
		{ .state = KVBLK_SLOT_LIVE, .leased = true },
		{ .state = KVBLK_SLOT_LIVE, .prio = 3, .heat = 9 },
		{ .state = KVBLK_SLOT_MOVING, .leased = true },
		{ .state = KVBLK_SLOT_LIVE, .leased = true, .heat = 5 },
	};
	static const int order[] = { 3 };

	assert_victims(slots, order, 1);
}

/* Entries in segments that the owner pins are not evicted. */
TEST(evicts_not_from_pinned_segments)
{
	static bool pinned[SEGS / 2 + 1];
	struct kvblk_slot slots[6] = {
		{ .state = KVBLK_SLOT_LIVE }, { .state = KVBLK_SLOT_LIVE },
		{ .state = KVBLK_SLOT_LIVE }, { .state = KVBLK_SLOT_LIVE },
		{ .state = KVBLK_SLOT_LIVE }, { .state = KVBLK_SLOT_LIVE },
	};
	struct kvblk_slot new = { .state = KVBLK_SLOT_WRITING, .len = 1 }, old;
	struct kvblk_index idx;
	unsigned int nr = 0;

	fill_six(&idx, slots);
	idx.pinned = pinned;
	idx.pinned_shift = 1;
	for (unsigned int i = 0; i < ARRAY_SIZE(pinned); i++)
		pinned[i] = i != 1;
	/* entries in segments 2 and 3, without a pin */
	for (u64 key = 0; key < 6; key++)
		nr += slots[key].seg >> 1 == 1;
	assert_in_range(nr, 1, 5);
	for (unsigned int i = 0; i < nr; i++) {
		assert_int_equal(kvblk_index_insert(&idx, id_both(10 + i), &new,
						    &old, true), 1);
		assert_int_equal(old.seg >> 1, 1);
	}
	assert_int_equal(kvblk_index_insert(&idx, id_both(20), &new, &old, true),
			 -ENOSPC);
	pinned[0] = false;
	assert_int_equal(kvblk_index_insert(&idx, id_both(20), &new, &old, true), 1);
	kvblk_index_destroy(&idx);
}

/* Entries of other nodes go first, pinned or not, and do not index the pins. */
TEST(evicts_foreign_first)
{
	static bool pinned[2] = { true, true };
	struct kvblk_slot slots[6] = {
		{ .state = KVBLK_SLOT_LIVE, .prio = 3, .heat = 9 },
		{ .state = KVBLK_SLOT_LIVE }, { .state = KVBLK_SLOT_LIVE },
		{ .state = KVBLK_SLOT_LIVE }, { .state = KVBLK_SLOT_LIVE },
		{ .state = KVBLK_SLOT_LIVE, .leased = true },
	};
	struct kvblk_slot new = { .state = KVBLK_SLOT_WRITING, .len = 1 }, old;
	struct kvblk_index idx;
	unsigned int nr = 0;

	fill_six(&idx, slots);
	idx.own_segs = 3;
	for (unsigned int key = 0; key < 6; key++)
		nr += slots[key].seg >= 3 && !slots[key].leased;
	assert_in_range(nr, 1, 5);
	for (unsigned int i = 0; i < nr; i++) {
		assert_int_equal(kvblk_index_insert(&idx, id_both(10 + i), &new,
						    &old, true), 1);
		assert_true(old.seg >= 3);
	}
	/* then own entries */
	assert_int_equal(kvblk_index_insert(&idx, id_both(20), &new, &old, true), 1);
	assert_true(old.seg < 3);
	idx.pinned = pinned;
	idx.pinned_shift = 1;
	assert_int_equal(kvblk_index_insert(&idx, id_both(21), &new, &old, true),
			 -ENOSPC);
	kvblk_index_destroy(&idx);
}

/* An index that others' entries fill takes own ones, up to half of it, without the loss of one. */
TEST(foreign_never_displace_own)
{
	struct kvblk_slot slot = { .state = KVBLK_SLOT_LIVE, .len = 1 }, old;
	u64 slots, key, own = 0, foreign = 0, evicted = 0;
	struct kvblk_index idx;
	int ret;

	assert_int_equal(kvblk_index_init(&idx, 100000, seg_gen, SEGS), 0);
	slots = kvblk_index_slots(&idx);
	idx.own_segs = SEGS / 2;
	for (key = 0; key < 2 * slots; key++) {
		slot.seg = SEGS / 2 + key % (SEGS / 2);
		slot.gen = seg_gen[slot.seg];
		foreign += !kvblk_index_insert(&idx, id_of(key), &slot, &old, false);
	}
	assert_in_range(foreign, slots * 9 / 10, slots);
	for (; own < slots / 2; own++, key++) {
		slot.seg = key % (SEGS / 2);
		slot.gen = seg_gen[slot.seg];
		ret = kvblk_index_insert(&idx, id_of(key), &slot, &old, true);
		assert_in_range(ret, 0, 1);
		assert_true(!ret || old.seg >= SEGS / 2);
	}
	/* foreign entries evict each other only */
	for (u64 more = 0; more < slots; more++) {
		slot.seg = SEGS / 2 + more % (SEGS / 2);
		slot.gen = seg_gen[slot.seg];
		ret = kvblk_index_insert(&idx, id_of(key + more), &slot, &old, true);
		assert_true(!ret || ret == -ENOSPC || (ret == 1 && old.seg >= SEGS / 2));
		evicted += ret == 1;
	}
	assert_in_range(evicted, 1, slots);
	/* no own entry was lost, moved or not */
	for (u64 i = 1; i <= own; i++)
		assert_true(kvblk_index_find(&idx, id_of(key - i), &old) &&
			    old.seg < SEGS / 2);
	kvblk_index_destroy(&idx);
}

/* Entries of one heat take turns: of as many new ones as the index has slots, most are found. */
TEST(new_foreign_displace_old)
{
	struct kvblk_slot slot = { .state = KVBLK_SLOT_LIVE, .len = 1, .heat = 7 }, old;
	u64 slots, key, found = 0;
	struct kvblk_index idx;

	assert_int_equal(kvblk_index_init(&idx, 100000, seg_gen, SEGS), 0);
	slots = kvblk_index_slots(&idx);
	idx.own_segs = 0;
	for (key = 0; key < 3 * slots; key++) {
		slot.seg = key % SEGS;
		slot.gen = seg_gen[slot.seg];
		assert_in_range(kvblk_index_insert(&idx, id_of(key), &slot, &old, true), 0, 1);
	}
	for (u64 i = 1; i <= slots; i++)
		found += kvblk_index_find(&idx, id_of(key - i), &old);
	assert_in_range(found, slots / 2, slots);
	kvblk_index_destroy(&idx);
}

TEST(dead_are_vacant)
{
	struct kvblk_slot slots[6] = {
		{ .state = KVBLK_SLOT_LIVE },
		{ .state = KVBLK_SLOT_MOVING },
		{ .state = KVBLK_SLOT_LIVE, .leased = true },
		{ .state = KVBLK_SLOT_WRITING },
		{ .state = KVBLK_SLOT_LIVE },
		{ .state = KVBLK_SLOT_LIVE },
	};
	struct kvblk_slot new = { .state = KVBLK_SLOT_WRITING, .len = 1 };
	struct kvblk_slot old;
	struct kvblk_index idx;
	u64 dropped = 0;

	fill_six(&idx, slots);
	for (int seg = 0; seg < 5; seg++)
		seg_gen[seg]++;
	for (u64 key = 0; key < 6; key++) {
		if (key == 3 || key == 5)
			assert_entry(&idx, id_both(key), &slots[key]);
		else
			assert_no_entry(&idx, id_both(key));
	}
	assert_false(kvblk_index_lease(&idx, id_both(0), &slots[0], NULL, 0));

	/* An id reuses its own dead slot, so that it never has two. */
	assert_int_equal(kvblk_index_insert(&idx, id_both(4), &new, &old, true), 0);
	assert_int_equal(kvblk_index_used(&idx), 6);
	assert_false(kvblk_index_replace(&idx, id_both(4), &slots[4], NULL));
	assert_entry(&idx, id_both(4), &new);
	assert_true(kvblk_index_replace(&idx, id_both(1), &slots[1], NULL));
	assert_int_equal(kvblk_index_used(&idx), 5);
	/* New entries take the free slot and two dead ones. */
	for (u64 key = 10; key < 13; key++)
		assert_int_equal(kvblk_index_insert(&idx, id_both(key), &new,
						    &old, true), 0);
	assert_int_equal(kvblk_index_used(&idx), 6);
	assert_int_equal(atomic64_read(&idx.nr_evicted), 0);

	/* An entry whose segment no longer exists is dead at once. */
	assert_true(kvblk_index_replace(&idx, id_both(10), &new, NULL));
	slots[0].seg = SEGS;
	assert_int_equal(kvblk_index_insert(&idx, id_both(10), &slots[0],
					    &old, true), 0);
	assert_no_entry(&idx, id_both(10));
	assert_int_equal(kvblk_index_sweep(&idx, 0, U64_MAX, 0, &dropped), 0);
	assert_int_equal(dropped, 1);
	assert_int_equal(kvblk_index_used(&idx), 5);
	kvblk_index_destroy(&idx);
}

static unsigned int nr_expired;

static void count_expired(struct kvblk_index *idx, const struct kvblk_slot *slot)
{
	assert_true(slot->expiry || slot->tenant);
	nr_expired++;
}

/* The sweep has freed the LIVE entries, of keys 0 and 2, and none of the other @slots. */
static void assert_swept(struct kvblk_index *idx, const struct kvblk_slot slots[6])
{
	for (u64 key = 0; key < 6; key++) {
		if (key == 0 || key == 2)
			assert_no_entry(idx, id_both(key));
		else
			assert_entry(idx, id_both(key), &slots[key]);
	}
}

TEST(sweeps_expired)
{
	struct kvblk_slot slots[6] = {
		{ .state = KVBLK_SLOT_LIVE, .expiry = 100 },
		{ .state = KVBLK_SLOT_MOVING, .expiry = 100 },
		{ .state = KVBLK_SLOT_LIVE, .expiry = 100, .leased = true },
		{ .state = KVBLK_SLOT_WRITING, .expiry = 100 },
		{ .state = KVBLK_SLOT_LIVE },
		{ .state = KVBLK_SLOT_LIVE, .expiry = 101 },
	};
	struct kvblk_index idx;
	u64 dropped = 0;

	fill_six(&idx, slots);
	idx.expired = count_expired;
	nr_expired = 0;
	assert_int_equal(sweep_all(&idx, 1, 99), 0);
	assert_int_equal(sweep_all(&idx, 1, 100), 2);
	assert_int_equal(nr_expired, 2);
	assert_swept(&idx, slots);
	assert_int_equal(kvblk_index_sweep(&idx, 0, 1, 9999, &dropped), 1);
	assert_int_equal(kvblk_index_sweep(&idx, 1, 1, 9999, &dropped), 0);
	assert_int_equal(dropped, 1);
	assert_int_equal(kvblk_index_sweep(&idx, 7, 1, 9999, &dropped), 0);
	assert_int_equal(nr_expired, 3);
	kvblk_index_destroy(&idx);
}

/* Entries of three tenants, of which sweeps free the first and the third if tenant 7 ends. */
static const struct kvblk_slot of_tenants[6] = {
	{ .state = KVBLK_SLOT_LIVE, .tenant = 7 },
	{ .state = KVBLK_SLOT_MOVING, .tenant = 7 },
	{ .state = KVBLK_SLOT_LIVE, .tenant = 7, .leased = true },
	{ .state = KVBLK_SLOT_WRITING, .tenant = 7 },
	{ .state = KVBLK_SLOT_LIVE },
	{ .state = KVBLK_SLOT_LIVE, .tenant = 8, .expiry = 9 },
};

TEST(sweeps_removed_tenants)
{
	struct kvblk_slot slots[6];
	unsigned long tenants[BITS_TO_LONGS(1 << KVBLK_INDEX_TENANT_BITS)] = {
		BIT(0) | BIT(7) | BIT(8)
	};
	struct kvblk_index idx;

	memcpy(slots, of_tenants, sizeof(slots));
	fill_six(&idx, slots);
	idx.expired = count_expired;
	idx.tenants = tenants;
	nr_expired = 0;
	assert_int_equal(sweep_all(&idx, 1, 1), 0);
	tenants[0] &= ~BIT(7);
	assert_int_equal(sweep_all(&idx, 1, 1), 2);
	assert_int_equal(nr_expired, 2);
	assert_swept(&idx, slots);
	kvblk_index_destroy(&idx);
}

static bool unshared(const struct kvblk_index *idx, u32 seg, u16 tenant)
{
	assert_true(seg >= idx->own_segs);
	return tenant == 7;
}

TEST(sweeps_unshared_foreign_entries)
{
	struct kvblk_slot slots[6];
	struct kvblk_index idx;

	memcpy(slots, of_tenants, sizeof(slots));
	fill_six(&idx, slots);
	idx.unshared = unshared;
	idx.own_segs = SEGS;
	assert_int_equal(sweep_all(&idx, 1, 1), 0);
	idx.own_segs = 0;
	assert_int_equal(sweep_all(&idx, 1, 1), 2);
	assert_swept(&idx, slots);
	kvblk_index_destroy(&idx);
}

TEST(the_clock_wraps)
{
	assert_false(kvblk_expired(0, 0));
	assert_false(kvblk_expired(0, U32_MAX));
	for (u64 now = 0; now <= 1ull << 33; now += 1u << 29) {
		/* 0 means no expiry */
		u32 at = (u32)now ?: 1;

		assert_true(kvblk_expired(at, at));
		assert_true(kvblk_expired(at, at + 1));
		assert_true(kvblk_expired(at, at + S32_MAX));
		assert_false(kvblk_expired(at, at - 1));
		assert_false(kvblk_expired(at, at - KVBLK_TTL_MAX - 1));
	}
}

TEST(init_fails_whole)
{
	struct kvblk_index idx;

	for (int nr = 0; nr < 3; nr++) {
		shim_fail_alloc = nr;
		assert_int_equal(kvblk_index_init(&idx, 1000, seg_gen, SEGS),
				 -ENOMEM);
		assert_int_equal(shim_fail_alloc, -1);
	}
	kvblk_index_destroy(&idx);
	assert_int_equal(kvblk_index_init(&idx, U64_MAX, seg_gen, SEGS),
			 -ENOMEM);
	kvblk_index_destroy(&idx);
	assert_int_equal(kvblk_index_init(&idx, 0, seg_gen, SEGS), 0);
	assert_int_equal(kvblk_index_slots(&idx), 6);
	kvblk_index_destroy(&idx);
}

/* Entries inserted before the first tag have tag 0, and so have reused slots. */
TEST(tags_come_late)
{
	struct kvblk_slot plain = { .state = KVBLK_SLOT_LIVE, .len = 1 };
	struct kvblk_slot tagged = plain, old;
	struct kvblk_index idx;
	u64 bytes;

	plain.gen = seg_gen[0];
	tagged.gen = seg_gen[0];
	tagged.caller_tag = U64_MAX;
	assert_int_equal(kvblk_index_init(&idx, 6, seg_gen, SEGS), 0);
	for (u64 key = 0; key < 6; key++)
		assert_int_equal(kvblk_index_insert(&idx, id_both(key), &plain,
						    &old, false), 0);
	bytes = kvblk_index_bytes(&idx);
	shim_fail_alloc = 0;
	assert_int_equal(kvblk_index_keep_tags(&idx), -ENOMEM);
	assert_int_equal(kvblk_index_bytes(&idx), bytes);
	assert_int_equal(kvblk_index_keep_tags(&idx), 0);
	assert_int_equal(kvblk_index_bytes(&idx), bytes + 6 * sizeof(u64));
	shim_fail_alloc = 0;
	assert_int_equal(kvblk_index_keep_tags(&idx), 0);
	shim_fail_alloc = -1;

	for (u64 key = 0; key < 6; key++)
		assert_entry(&idx, id_both(key), &plain);
	assert_true(kvblk_index_replace(&idx, id_both(0), &plain, &tagged));
	assert_entry(&idx, id_both(0), &tagged);
	assert_true(kvblk_index_replace(&idx, id_both(0), &tagged, NULL));
	assert_int_equal(kvblk_index_insert(&idx, id_both(6), &plain, &old,
					    false), 0);
	assert_entry(&idx, id_both(6), &plain);
	kvblk_index_destroy(&idx);
}

/* The design allows 32 bytes an entry. A pool plans for a load of 0.85 without caller tags. */
TEST(fits_its_budget)
{
	struct kvblk_index idx;
	u64 slots = 3000000;

	assert_int_equal(kvblk_index_init(&idx, slots, seg_gen, SEGS), 0);
	assert_true(kvblk_index_bytes(&idx) <= slots * 85 / 100 * 32);
	kvblk_index_destroy(&idx);
}

/*
 * Keep an index of at least @slots at @percent load while random entries are replaced. Check that
 * at most @limit of a million inserts evict.
 */
static void assert_evictions(u64 slots, u64 percent, u64 limit)
{
	u64 seed = percent, next = 0, nr, i, at, evicted, victim;
	struct kvblk_slot slot, old;
	struct kvblk_index idx;
	u64 *keys, *place;

	memset(seg_gen, 0, sizeof(seg_gen));
	assert_int_equal(kvblk_index_init(&idx, slots, seg_gen, SEGS), 0);
	slots = kvblk_index_slots(&idx);
	nr = slots * percent / 100;
	/* Present keys in any order, and the position of each in that array. */
	keys = calloc(nr, sizeof(*keys));
	place = calloc(1ULL << 22, sizeof(*place));
	assert_non_null(keys);
	assert_non_null(place);

	for (i = 0, evicted = 0; next < 3 * nr; next++) {
		if (i == nr) {
			at = below(&seed, nr);
			slot = (struct kvblk_slot) {
				.seg = keys[at] % SEGS,
				.off = keys[at] / SEGS,
				.len = 1,
				.state = KVBLK_SLOT_LIVE,
			};
			assert_true(kvblk_index_replace(&idx, id_of(keys[at]),
							&slot, NULL));
			i--;
			keys[at] = keys[i];
			place[keys[at]] = at;
		}
		slot = (struct kvblk_slot) {
			.seg = next % SEGS,
			.off = next / SEGS,
			.len = 1,
			.state = KVBLK_SLOT_LIVE,
		};
		switch (kvblk_index_insert(&idx, id_of(next), &slot, &old, true)) {
		case 1:
			victim = key_of(&old);
			assert_int_equal(keys[place[victim]], victim);
			i--;
			keys[place[victim]] = keys[i];
			place[keys[i]] = place[victim];
			evicted += next >= 2 * nr;
			break;
		case 0:
			break;
		default:
			fail();
		}
		keys[i] = next;
		place[next] = i++;
	}
	evicted = evicted * 1000000 / nr;
	printf("  %llu slots at load 0.%llu: %llu of a million inserts evict\n",
	       slots, percent, evicted);
	assert_true(evicted <= limit);
	assert_int_equal(kvblk_index_used(&idx), i);
	free(place);
	free(keys);
	kvblk_index_destroy(&idx);
}

TEST(evictions_at_67)
{
	assert_evictions(200000, 67, 10);
}

TEST(evictions_at_85)
{
	assert_evictions(1000000, 85, 5000);
}

TEST(evictions_at_95)
{
	assert_evictions(100000, 95, 250000);
}

struct walk {
	struct kvblk_index idx;
	u64 tag[3000];	/* by key, as reported; 0: none */
};

static void walk_told(struct kvblk_index *idx, const struct kvblk_index_entry *entry, bool came)
{
	container_of(idx, struct walk, idx)->tag[key_of(&entry->slot)] =
		came ? entry->slot.caller_tag : 0;
}

/* A walk plus the reports miss no entry, although inserts move entries behind the walk. */
TEST(a_walk_misses_nothing)
{
	struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET];
	struct kvblk_slot slot, old;
	static struct walk w;
	u64 seed = 5, next = 0, there = 0;

	memset(seg_gen, 0, sizeof(seg_gen));
	assert_int_equal(kvblk_index_init(&w.idx, 3000, seg_gen, SEGS), 0);
	assert_int_equal(kvblk_index_keep_tags(&w.idx), 0);
	w.idx.notify = walk_told;
	for (; next < 2400; next++) {
		slot = slot_of(next, KVBLK_SLOT_LIVE, &seed);
		assert_int_equal(kvblk_index_insert(&w.idx, id_of(next), &slot,
						    &old, false), 0);
	}
	w.idx.listened = true;
	for (u64 bucket = 0; bucket < w.idx.nr_buckets; bucket++) {
		u64 found = kvblk_index_entries(&w.idx, bucket, 0, entries);

		for (u64 i = 0; i < found; i++)
			walk_told(&w.idx, &entries[i], true);
		if (bucket % 2 == 0 && next < ARRAY_SIZE(w.tag)) {
			slot = slot_of(next, KVBLK_SLOT_LIVE, &seed);
			kvblk_index_insert(&w.idx, id_of(next++), &slot, &old, false);
		}
	}
	for (u64 key = 0; key < next; key++) {
		if (!kvblk_index_find(&w.idx, id_of(key), &slot))
			slot.caller_tag = 0;
		assert_int_equal(w.tag[key], slot.caller_tag);
		there += !!slot.caller_tag;
	}
	assert_true(there > 2500);
	kvblk_index_destroy(&w.idx);
}

/* A walk omits dead and expired entries; their replacement is reported. */
TEST(what_was_over_comes_back)
{
	struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET];
	struct kvblk_slot slot, new;
	static struct walk w;
	u64 seed = 6;

	for (int expired = 0; expired < 2; expired++) {
		memset(&w, 0, sizeof(w));
		memset(seg_gen, 0, sizeof(seg_gen));
		assert_int_equal(kvblk_index_init(&w.idx, 6, seg_gen, SEGS), 0);
		assert_int_equal(kvblk_index_keep_tags(&w.idx), 0);
		w.idx.notify = walk_told;
		slot = slot_of(1, KVBLK_SLOT_LIVE, &seed);
		slot.expiry = expired ? 100 : 0;
		assert_int_equal(kvblk_index_insert(&w.idx, id_of(1), &slot, &new, false),
				 0);
		if (!expired)
			seg_gen[slot.seg]++;
		w.idx.listened = true;
		for (u64 bucket = 0; bucket < w.idx.nr_buckets; bucket++)
			assert_int_equal(kvblk_index_entries(&w.idx, bucket, 100, entries),
					 0);
		new = slot;
		new.gen = seg_gen[slot.seg];
		new.expiry = 0;
		assert_true(kvblk_index_replace(&w.idx, id_of(1), &slot, &new));
		assert_int_equal(w.tag[1], slot.caller_tag);
		kvblk_index_destroy(&w.idx);
	}
}

#define THREADS		5
#define WRITERS		2
#define MOVED		64

/**
 * struct crowd - threads on one index
 * @idx: the index
 * @fixed: keys below are leased and must always be found
 * @churn: keys from @fixed to here are inserted and removed
 * @rounds: operations of each writer
 * @running: writers that are not done yet
 * @faults: number of errors, since a thread cannot fail a test
 * @owned: for each churning key, whether a thread believes to own its entry
 */
struct crowd {
	struct kvblk_index idx;
	u64 fixed;
	u64 churn;
	u64 rounds;
	atomic_t running;
	atomic_t faults;
	atomic_t *owned;
	atomic_t next_thread;
	pthread_mutex_t hearing;
	struct told *told;
	u64 nr_told;
	u64 nr_walked;
};

#define TOLD_MAX	8000000

/**
 * struct told - record of a listener: first the walk, then the reports
 * @token: token of the entry
 * @caller_tag: tag of the entry; 0: removed
 */
struct told {
	u64 token;
	u64 caller_tag;
};

/* Return an entry whose fields follow from the key and @version, so that a torn slot shows. */
static struct kvblk_slot crowd_slot(u64 key, u32 version, u8 state)
{
	u64 random = mix(key << 32 | version);

	return (struct kvblk_slot) {
		.seg = key % SEGS,
		.off = version,
		.len = 1 + (random & 0x3ffffff),
		.tenant = random >> 32 & 0x3fff,
		.state = state,
		.prio = random >> 50 & 3,
		.expiry = 1 + (random >> 40 & 0xff),
		.caller_tag = version & 1 ? random : 0,
	};
}

static bool crowd_slot_whole(u64 key, const struct kvblk_slot *slot)
{
	struct kvblk_slot be = crowd_slot(key, slot->off, slot->state);

	return slot->seg == be.seg && slot->len == be.len && !slot->gen &&
	       slot->tenant == be.tenant && slot->prio == be.prio &&
	       slot->expiry == be.expiry && slot->caller_tag == be.caller_tag;
}

static void *crowd_reader(void *arg)
{
	struct crowd *c = arg;
	u64 seed = atomic_inc_return(&c->next_thread);
	struct kvblk_slot slot;
	struct kvblk_id id;
	u64 key;

	while (atomic_read(&c->running)) {
		/* Yield, or else writers that yield wait for whole time slices. */
		if (below(&seed, 64) == 0)
			sched_yield();
		key = below(&seed, c->fixed);
		if (!kvblk_index_find(&c->idx, id_of(key), &slot) ||
		    !crowd_slot_whole(key, &slot) || !slot.leased)
			atomic_inc(&c->faults);
		key = below(&seed, c->churn);
		id = id_of(key);
		if (!kvblk_index_find_many(&c->idx, &id, 1, &slot))
			continue;
		if (!crowd_slot_whole(key, &slot))
			atomic_inc(&c->faults);
		kvblk_index_touch(&c->idx, &slot, 1 + below(&seed, 255));
	}
	return NULL;
}

/* Allocate the tags if needed; the first ones of all threads race here. */
static void crowd_tag(struct crowd *c, const struct kvblk_slot *slot)
{
	if (slot->caller_tag && kvblk_index_keep_tags(&c->idx))
		atomic_inc(&c->faults);
}

/* Put: only one thread may own a key's WRITING entry. */
static void crowd_put(struct crowd *c, u64 key, u64 *seed)
{
	struct kvblk_slot slot, live, old;
	bool stays = below(seed, 4);
	int ret;

	slot = crowd_slot(key, below(seed, 256), KVBLK_SLOT_WRITING);
	crowd_tag(c, &slot);
	ret = kvblk_index_insert(&c->idx, id_of(key), &slot, &old, true);
	if (ret == -EEXIST) {
		if (!crowd_slot_whole(key, &old))
			atomic_inc(&c->faults);
		/* Remove the entry; fails if it is owned, or already removed. */
		if (old.state == KVBLK_SLOT_LIVE && below(seed, 2))
			kvblk_index_replace(&c->idx, id_of(key), &old, NULL);
		return;
	}
	if (ret == -ENOSPC)
		return;
	if (ret == 1 && (old.leased || old.state != KVBLK_SLOT_LIVE))
		atomic_inc(&c->faults);
	if (atomic_xchg(&c->owned[key], 1))
		atomic_inc(&c->faults);
	if (below(seed, 16) == 0)
		sched_yield();
	atomic_xchg(&c->owned[key], 0);
	if (below(seed, 2)) {
		if (!kvblk_index_publish(&c->idx, id_of(key), &slot))
			atomic_inc(&c->faults);
		return;
	}
	live = crowd_slot(key, below(seed, 256), KVBLK_SLOT_LIVE);
	crowd_tag(c, &live);
	if (!kvblk_index_replace(&c->idx, id_of(key), &slot,
				 stays ? &live : NULL))
		atomic_inc(&c->faults);
}

static void *crowd_writer(void *arg)
{
	struct crowd *c = arg;
	u64 seed = atomic_inc_return(&c->next_thread);
	struct kvblk_slot slot;
	u64 dropped;
	u64 key;

	for (u64 i = 0; i < c->rounds; i++) {
		/*
		 * wait for the listener, which must see the second half even if its thread starts
		 * late
		 */
		while (i == c->rounds / 2 && !READ_ONCE(c->idx.listened))
			sched_yield();
		crowd_put(c, c->fixed + below(&seed, c->churn - c->fixed),
			  &seed);
		key = below(&seed, c->fixed);
		slot = crowd_slot(key, 0, KVBLK_SLOT_LIVE);
		if (!kvblk_index_lease(&c->idx, id_of(key), &slot, NULL, 0))
			atomic_inc(&c->faults);
		if (i % 64 == 0)
			kvblk_index_sweep(&c->idx, below(&seed, 64), 4, 0,
					  &dropped);
	}
	atomic_dec(&c->running);
	return NULL;
}

static void crowd_tell(struct crowd *c, const struct kvblk_slot *slot, bool came)
{
	pthread_mutex_lock(&c->hearing);
	if (c->nr_told < TOLD_MAX)
		c->told[c->nr_told++] = (struct told) {
			slot->place, came ? slot->caller_tag : 0,
		};
	pthread_mutex_unlock(&c->hearing);
}

static void crowd_told(struct kvblk_index *idx, const struct kvblk_index_entry *entry, bool came)
{
	crowd_tell(container_of(idx, struct crowd, idx), &entry->slot, came);
}

/* Start to listen during the run, then walk the entries that are present. */
static void *crowd_listener(void *arg)
{
	struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET];
	struct crowd *c = arg;
	struct told *walked = calloc(c->idx.nr_buckets * KVBLK_INDEX_BUCKET,
				     sizeof(*walked));
	u64 nr = 0;

	for (int i = 0; i < 1000; i++)
		sched_yield();
	WRITE_ONCE(c->idx.listened, true);
	for (u64 bucket = 0; walked && bucket < c->idx.nr_buckets; bucket++) {
		u64 found = kvblk_index_entries(&c->idx, bucket, 0, entries);

		for (u64 i = 0; i < found; i++)
			walked[nr++] = (struct told) {
				entries[i].slot.place, entries[i].slot.caller_tag,
			};
		sched_yield();
	}
	/* sort the walk before the reports, although these came meanwhile */
	pthread_mutex_lock(&c->hearing);
	memmove(c->told + nr, c->told, c->nr_told * sizeof(*c->told));
	memcpy(c->told, walked, nr * sizeof(*c->told));
	c->nr_told += nr;
	c->nr_walked = nr;
	pthread_mutex_unlock(&c->hearing);
	free(walked);
	return NULL;
}

static int by_token(const void *a, const void *b)
{
	const struct told *x = a, *y = b;

	return x->token < y->token ? -1 : x->token > y->token;
}

/* Check that the last report of each key is its state. */
static void crowd_heard(struct crowd *c)
{
	struct told *keys = calloc(c->churn, sizeof(*keys)), *key;
	struct kvblk_slot slot;

	assert_true(keys && c->nr_told < TOLD_MAX && c->nr_told > c->nr_walked);
	for (u64 i = 0; i < c->churn; i++)
		keys[i].token = kvblk_index_token(&c->idx, id_of(i));
	qsort(keys, c->churn, sizeof(*keys), by_token);
	for (u64 i = 0; i < c->nr_told; i++) {
		key = bsearch(&c->told[i], keys, c->churn, sizeof(*keys), by_token);
		assert_non_null(key);
		key->caller_tag = c->told[i].caller_tag;
	}
	for (u64 i = 0; i < c->churn; i++) {
		struct told is = { .token = kvblk_index_token(&c->idx, id_of(i)) };

		key = bsearch(&is, keys, c->churn, sizeof(*keys), by_token);
		if (!kvblk_index_find(&c->idx, id_of(i), &slot))
			slot.caller_tag = 0;
		assert_int_equal(key->caller_tag, slot.caller_tag);
	}
	free(keys);
}

static void crowd_run(u64 slots, u64 fixed, u64 churn, u64 rounds)
{
	struct crowd c = {
		.fixed = fixed, .churn = churn, .rounds = rounds,
		.hearing = PTHREAD_MUTEX_INITIALIZER,
	};
	pthread_t threads[THREADS];
	struct kvblk_slot slot, old;
	u64 live = 0;

	memset(seg_gen, 0, sizeof(seg_gen));
	c.owned = calloc(churn, sizeof(*c.owned));
	c.told = calloc(TOLD_MAX + 2 * slots, sizeof(*c.told));
	assert_true(c.owned && c.told);
	assert_int_equal(kvblk_index_init(&c.idx, slots, seg_gen, SEGS), 0);
	c.idx.notify = crowd_told;
	for (u64 key = 0; key < fixed; key++) {
		slot = crowd_slot(key, 0, KVBLK_SLOT_LIVE);
		slot.leased = true;
		assert_int_equal(kvblk_index_insert(&c.idx, id_of(key), &slot,
						    &old, true), 0);
	}
	shim_jitter = true;
	atomic_set(&c.running, WRITERS);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL,
						i < WRITERS ? crowd_writer :
						i == WRITERS ? crowd_listener :
						crowd_reader, &c), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	shim_jitter = false;
	assert_int_equal(atomic_read(&c.faults), 0);

	for (u64 key = 0; key < churn; key++)
		live += kvblk_index_find(&c.idx, id_of(key), &old);
	assert_int_equal(kvblk_index_used(&c.idx), live);
	crowd_heard(&c);
	kvblk_index_destroy(&c.idx);
	free(c.owned);
	free(c.told);
}

/* 15 slots in five buckets: every operation races with every other. */
TEST(crowd_small)
{
	crowd_run(15, 4, 24, 250000);
}

TEST(crowd_large)
{
	crowd_run(3000, 1200, 6000, 100000);
}

/* Blocks that reclaim moves: after the move their old segment's generation changes. */
struct move {
	struct kvblk_index idx;
	struct kvblk_id ids[MOVED];
	bool over;
	u64 missed;
};

static void *move_reader(void *arg)
{
	struct move *m = arg;
	struct kvblk_slot slots[MOVED];
	u64 missed = 0;

	while (!READ_ONCE(m->over)) {
		missed += MOVED - __builtin_popcountll(kvblk_index_find_many(&m->idx,
									     m->ids, MOVED,
									     slots));
		for (int i = 0; i < MOVED; i++)
			missed += !kvblk_index_find(&m->idx, m->ids[i], slots);
	}
	__atomic_fetch_add(&m->missed, missed, __ATOMIC_RELAXED);
	return NULL;
}

TEST(moved_is_never_missed)
{
	struct move m = { .over = false };
	struct kvblk_slot old, new;
	pthread_t readers[2];

	memset(seg_gen, 0, sizeof(seg_gen));
	assert_int_equal(kvblk_index_init(&m.idx, 1000, seg_gen, SEGS), 0);
	for (int i = 0; i < MOVED; i++) {
		m.ids[i] = id_of(i);
		new = (struct kvblk_slot) {
			.len = 1, .off = i, .state = KVBLK_SLOT_LIVE,
		};
		assert_int_equal(kvblk_index_insert(&m.idx, m.ids[i], &new, &old,
						    false), 0);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&readers[i], NULL, move_reader, &m), 0);
	for (u32 round = 0; round < 30000; round++) {
		u32 from = round % SEGS, to = (round + 1) % SEGS;

		for (int i = 0; i < MOVED; i++) {
			assert_true(kvblk_index_find(&m.idx, m.ids[i], &old));
			new = old;
			new.seg = to;
			new.gen = seg_gen[to];
			assert_true(kvblk_index_replace(&m.idx, m.ids[i], &old, &new));
		}
		__atomic_store_n(&seg_gen[from], seg_gen[from] + 1, __ATOMIC_RELEASE);
	}
	WRITE_ONCE(m.over, true);
	for (int i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
	assert_int_equal(m.missed, 0);
	kvblk_index_destroy(&m.idx);
}

/* Tags that differ in the last bit share both buckets. The second entry fills the other bucket. */
TEST(neighbours_are_others)
{
	const struct kvblk_id present[] = {
		{ 1, 0xaa00000000123400 }, { 1, 0xcc00000000777700 },
		{ 1, 0xbb00000000123500 },
	};
	const struct kvblk_id absent = { 1, 0xbb00000000123400 };
	struct kvblk_slot slot = { .len = 1, .state = KVBLK_SLOT_LIVE }, old;
	struct kvblk_index idx;

	memset(seg_gen, 0, sizeof(seg_gen));
	assert_int_equal(kvblk_index_init(&idx, 6, seg_gen, SEGS), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(kvblk_index_insert(&idx, present[i], &slot, &old,
						    false), 0);
	assert_false(kvblk_index_find(&idx, absent, &old));
	assert_false(kvblk_index_replace(&idx, absent, &slot, NULL));
	for (int i = 0; i < 3; i++)
		assert_true(kvblk_index_find(&idx, present[i], &old));
	kvblk_index_destroy(&idx);
}

TEST_MAIN("index")
