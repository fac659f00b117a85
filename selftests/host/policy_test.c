// SPDX-License-Identifier: GPL-2.0
/*
 * Promises of the policy: chains are admitted as a whole, declined blocks are recognized when
 * offered again, budget and priorities hold, hot segments stay. Over whole traces, hits are no
 * fewer than with LRU and writes are bounded.
 *
 * KVBLK_TRACES=DIR (conversation_trace.jsonl of Mooncake, agents_trace.jsonl) adds the targets on
 * these traces.
 */
#include "kvblk_test.h"

#include <errno.h>
#include <limits.h>

#include <linux/array_size.h>

#include "policy/policy.h"
#include "shim.h"

/* simulator and synthetic traffic of `kvblk replay --simulate` */
#include "../../tools/kvblk/replay/simulate.c"
#include "../../tools/kvblk/replay/trace_synth.c"
/* controller of the policy in the daemon */
#include "../../daemon/policy/governor.c"

#define BLOCK		4096ULL
#define SEG_BLOCKS	64
#define SEG_BYTES	(SEG_BLOCKS * BLOCK)
#define NR_SEGS		256
#define CAPACITY	(NR_SEGS * SEG_BYTES)
#define CHAIN_MAX	256

static struct kvblk_policy policy;
static u64 serial;

static int setup(void **state)
{
	serial = 0;
	return kvblk_policy_init(&policy, CAPACITY, NR_SEGS * SEG_BLOCKS);
}

static int teardown(void **state)
{
	kvblk_policy_destroy(&policy);
	return 0;
}

static struct kvblk_id fresh_id(void)
{
	u64 lo = mix(++serial);

	return (struct kvblk_id){ .hi = ~lo, .lo = lo };
}

static void fresh_ids(struct kvblk_id *ids, u32 nr)
{
	while (nr--)
		*ids++ = fresh_id();
}

static u32 offer(const struct kvblk_id *ids, u32 nr, u64 parent)
{
	struct kvblk_policy_chain chain = {
		.ids = ids, .nr = nr, .parent = parent,
		.parent_present = parent != 0, .chain = true,
	};

	return kvblk_policy_admit(&policy.own, &chain);
}

/* Write the log @turns times over. */
static void turn_over(u32 turns)
{
	for (u32 i = 0; i < turns * NR_SEGS; i++)
		kvblk_policy_open(&policy, KVBLK_CLASS_NEW, SEG_BYTES);
}

static void fill(struct kvblk_policy_rec *recs, u32 nr)
{
	for (u32 i = 0; i < nr; i++)
		recs[i] = (struct kvblk_policy_rec){
			.id = fresh_id(), .bytes = BLOCK, .admission = &policy.own,
		};
}

static struct kvblk_policy_seg open_seg(enum kvblk_policy_class class)
{
	return (struct kvblk_policy_seg){
		.stamp = kvblk_policy_open(&policy, class, SEG_BYTES),
		.bytes = SEG_BYTES, .class = class,
	};
}

/*
 * Train the policy: offer @nr chains of @len blocks and reclaim their segments at once. In
 * @hot_body percent of the chains all but the last block is read again, in @hot_last percent the
 * last one.
 */
static void teach(u32 nr, u32 len, u32 hot_body, u32 hot_last)
{
	struct kvblk_policy_seg seg;
	struct kvblk_policy_rec recs[CHAIN_MAX];
	struct kvblk_id ids[CHAIN_MAX];

	for (u32 i = 0; i < nr; i++) {
		seg = open_seg(KVBLK_CLASS_NEW);
		fill(recs, len);
		for (u32 j = 0; j < len; j++)
			ids[j] = recs[j].id;
		u32 n = offer(ids, len, 0);

		for (u32 j = 0; j < len; j++)
			if (i % 100 < (j == len - 1 ? hot_last : hot_body))
				recs[j].heat = kvblk_policy_tick(&policy);
		kvblk_policy_classify(&policy, &seg, recs, n, true);
	}
}

/* Offer a new chain, stored to @ids. Returns whether it is declined as a whole. */
static bool offer_declined(struct kvblk_id *ids, u32 len)
{
	u32 n;

	fresh_ids(ids, len);
	n = offer(ids, len, 0);
	/* a hole would make the following blocks worthless */
	assert_true(n == 0 || n >= len - 1);
	return !n;
}

/* Returns how many of @nr new chains are declined. */
static u32 count_declined(u32 nr, u32 len)
{
	struct kvblk_id ids[CHAIN_MAX];
	u32 declined = 0;

	while (nr--)
		declined += offer_declined(ids, len);
	return declined;
}

#define POLICY_TEST(test)	TEST_WITH(test, setup, teardown)

POLICY_TEST(test_new_pool_admits_all)
{
	struct kvblk_id ids[CHAIN_MAX];

	for (u32 len = 1; len <= CHAIN_MAX; len++) {
		fresh_ids(ids, len);
		assert_int_equal(offer(ids, len, 0), len);
	}
	assert_int_equal(atomic64_read(&policy.own.declined), 0);
}

POLICY_TEST(test_poor_kind_is_declined_whole)
{
	teach(400, 8, 60, 60);
	teach(400, 64, 2, 2);
	assert_in_range(count_declined(100, 64), 90, 100);
	/* chains of the other kind are unaffected */
	assert_int_equal(count_declined(50, 8), 0);
}

/* Blocks that are never requested again are not worth a write, although no kind is worse. */
POLICY_TEST(test_all_poor_are_declined)
{
	teach(400, 8, 0, 0);
	assert_in_range(count_declined(100, 8), 90, 100);
	/* a part is tried, and found good again */
	teach(20000, 8, 60, 60);
	assert_in_range(count_declined(100, 8), 0, 10);
}

POLICY_TEST(test_ghost_remembers)
{
	struct kvblk_id ids[64];
	u32 declined = 0, known = 0;

	teach(400, 8, 60, 60);
	teach(400, 64, 2, 2);
	for (u32 k = 0; k < 50; k++) {
		if (!offer_declined(ids, 64))
			continue;
		declined++;
		/* offer the same prefix with another end */
		fresh_ids(ids + 40, 64 - 40);
		known += offer(ids, 64, 0) >= 63;
	}
	/* repeats are noticed, so fewer and fewer are declined */
	assert_in_range(declined, 10, 49);
	assert_int_equal(known, declined);
	assert_int_equal(atomic64_read(&policy.own.ghost_hits), known);
}

POLICY_TEST(test_last_block)
{
	struct kvblk_id ids[16];
	u32 short_of = 0;

	/* train: bodies are read again, last blocks never */
	teach(400, 16, 50, 0);
	for (u32 k = 0; k < 100; k++) {
		fresh_ids(ids, 16);
		short_of += offer(ids, 16, 0) == 15;
	}
	assert_true(short_of >= 90);
	/* a second offer is written */
	fresh_ids(ids, 16);
	if (offer(ids, 16, 0) == 15)
		assert_int_equal(offer(&ids[15], 1, ids[14].lo), 1);
}

/* The last block of a batch is not a last block if the chain continues. */
POLICY_TEST(test_chain_in_batches)
{
	struct kvblk_id ids[16];
	struct kvblk_policy_chain part = {
		.ids = ids, .nr = 16, .chain = true, .goes_on = true,
	};
	u32 short_of = 0, whole = 0;

	teach(400, 16, 50, 0);
	for (u32 k = 0; k < 100; k++) {
		u32 n;

		fresh_ids(ids, 16);
		n = kvblk_policy_admit(&policy.own, &part);
		short_of += n == 15;
		whole += n == 16;
	}
	assert_int_equal(short_of, 0);
	assert_true(whole >= 90);
}

POLICY_TEST(test_last_block_that_is_full)
{
	struct kvblk_id ids[16];

	teach(400, 16, 50, 0);
	/* train: sessions continue behind the block that was declined as the last */
	for (u32 k = 0; k < 400; k++) {
		struct kvblk_policy_chain chain = {
			.ids = ids, .nr = 16, .chain = true,
		};

		chain.parent = ids[15].lo;
		fresh_ids(ids, 16);
		kvblk_policy_admit(&policy.own, &chain);
	}
	fresh_ids(ids, 16);
	assert_int_equal(offer(ids, 16, 0), 16);
}

/* Offer @nr chains of eight with parent @parent; they are read again or not. */
static void teach_forks(u32 nr, bool again)
{
	struct kvblk_policy_rec recs[8];
	struct kvblk_id ids[8], parent = fresh_id();
	struct kvblk_policy_seg seg;

	for (u32 i = 0; i < nr; i++) {
		seg = open_seg(KVBLK_CLASS_NEW);
		fill(recs, 8);
		for (u32 j = 0; j < 8; j++) {
			ids[j] = recs[j].id;
			recs[j].heat = again ? kvblk_policy_tick(&policy) : 0;
		}
		offer(ids, 8, parent.lo);
		kvblk_policy_classify(&policy, &seg, recs, 8, true);
	}
}

/*
 * A parent with many children is a shared prompt; one child offered many times does not make one.
 */
POLICY_TEST(test_offered_again_is_one_child)
{
	struct kvblk_id ids[8], parent;
	u32 declined = 0;

	/* train: continuations are read again, new chains are not */
	for (u32 i = 0; i < 200; i++)
		teach_forks(1, true);
	teach_forks(400, false);
	for (u32 k = 0; k < 100; k++) {
		parent = fresh_id();
		fresh_ids(ids, 8);
		for (u32 i = 0; i < 10; i++)
			assert_int_equal(offer(ids, 8, parent.lo), 8);
	}
	/* from the fourth child on, children count as new chains, which are declined */
	parent = fresh_id();
	for (u32 k = 0; k < 20; k++) {
		fresh_ids(ids, 8);
		declined += !offer(ids, 8, parent.lo);
		assert_true(k >= 3 || !declined);
	}
	assert_in_range(declined, 14, 17);
}

POLICY_TEST(test_admit_everything)
{
	struct kvblk_id ids[64];

	policy.admit_permille = KVBLK_POLICY_ADMIT_MAX;
	teach(400, 8, 60, 60);
	teach(400, 64, 0, 0);
	for (u32 k = 0; k < 100; k++) {
		fresh_ids(ids, 64);
		assert_int_equal(offer(ids, 64, 0), 64);
	}
}

/* Offer chains of a poor kind that must be admitted nevertheless. */
static void all_get_in(struct kvblk_policy_chain *chain)
{
	struct kvblk_id ids[64];

	chain->ids = ids;
	chain->nr = 64;
	chain->chain = true;
	teach(400, 8, 60, 60);
	teach(400, 64, 0, 0);
	for (u32 k = 0; k < 50; k++) {
		fresh_ids(ids, 64);
		assert_int_equal(kvblk_policy_admit(&policy.own, chain), 64);
	}
}

POLICY_TEST(test_priority_is_admitted)
{
	all_get_in(&(struct kvblk_policy_chain){ .priority = 1 });
}

POLICY_TEST(test_wanted_is_admitted)
{
	all_get_in(&(struct kvblk_policy_chain){ .wanted = true });
}

POLICY_TEST(test_single_puts)
{
	struct kvblk_id id;
	struct kvblk_policy_chain one = { .ids = &id, .nr = 1 };
	u32 admitted = 0;

	teach(400, 8, 60, 0);
	for (u32 i = 0; i < 1000; i++) {
		id = fresh_id();
		assert_int_equal(kvblk_policy_admit(&policy.own, &one), 1);
	}
	policy.admit_permille = KVBLK_POLICY_ADMIT / 4;
	for (u32 i = 0; i < 1000; i++) {
		id = fresh_id();
		admitted += kvblk_policy_admit(&policy.own, &one);
	}
	assert_in_range(admitted, 200, 300);
	/* declined once, admitted the second time; its continuation, too */
	policy.admit_permille = 0;
	id = fresh_id();
	assert_int_equal(kvblk_policy_admit(&policy.own, &one), 0);
	assert_int_equal(kvblk_policy_admit(&policy.own, &one), 1);
	one.parent = id.lo;
	one.parent_present = true;
	id = fresh_id();
	assert_int_equal(kvblk_policy_admit(&policy.own, &one), 1);

	/* the answer does not depend on the number of offers */
	one.parent_present = false;
	admitted = 0;
	policy.admit_permille = KVBLK_POLICY_ADMIT / 2;
	for (u32 i = 0; i < 1000; i++) {
		id = fresh_id();
		admitted += kvblk_policy_admit(&policy.own, &one);
		/* declined before, so this is a second offer */
		for (int again = 0; again < 3; again++)
			assert_int_equal(kvblk_policy_admit(&policy.own, &one), 1);
	}
	assert_in_range(admitted, 450, 550);
	policy.admit_permille = 0;
	assert_int_equal(kvblk_policy_set_first(&policy, 0), 0);
	id = fresh_id();
	assert_int_equal(kvblk_policy_admit(&policy.own, &one), 0);
	policy.admit_permille = KVBLK_POLICY_ADMIT;
	for (int i = 0; i < 3; i++)
		assert_int_equal(kvblk_policy_admit(&policy.own, &one), 1);
}

/* A pool that is not full yet and gets only single puts. */
POLICY_TEST(test_single_puts_before_reclaim)
{
	struct kvblk_id id;
	struct kvblk_policy_chain one = { .ids = &id, .nr = 1 };
	struct kvblk_policy_seg seg = { .bytes = 1 };

	policy.admit_permille = 0;
	assert_int_equal(kvblk_policy_set_first(&policy, 0), 0);
	id = fresh_id();
	assert_int_equal(kvblk_policy_admit(&policy.own, &one), 1);
	seg.stamp = kvblk_policy_open(&policy, KVBLK_CLASS_NEW, 1);
	assert_int_equal(kvblk_policy_classify(&policy, &seg, NULL, 0, true), 0);
	id = fresh_id();
	assert_int_equal(kvblk_policy_admit(&policy.own, &one), 0);
	id = fresh_id();
	one.wanted = true;
	assert_int_equal(kvblk_policy_admit(&policy.own, &one), 1);
}

POLICY_TEST(test_first_offers)
{
	struct kvblk_id ids[24];
	struct kvblk_policy_chain chain = {
		.ids = ids, .nr = 8, .chain = true, .priority = 1,
	};

	fresh_ids(ids, 24);
	assert_int_equal(kvblk_policy_set_first(&policy, 0), 0);
	/* everything is admitted before the first reclaim */
	assert_int_equal(offer(ids, 8, 0), 8);
	teach(50, 8, 60, 60);
	assert_int_equal(offer(ids, 8, 0), 0);
	/* the part offered before is admitted, the rest is noted and admitted next */
	assert_int_equal(offer(ids, 16, 0), 8);
	assert_int_equal(offer(ids + 8, 16, ids[7].lo), 8);
	/* declined, because a hole would make the blocks behind it worthless */
	assert_int_equal(offer(ids + 15, 9, 0), 0);
	assert_int_equal(kvblk_policy_admit(&policy.own, &chain), 8);
	/* nothing is remembered, so no offer counts as the second */
	policy.second_permille = 0;
	fresh_ids(ids, 24);
	assert_int_equal(offer(ids, 24, 0), 0);
	assert_int_equal(offer(ids, 24, 0), 0);
	assert_int_equal(kvblk_policy_set_first(&policy, 1000), 0);
	assert_int_equal(offer(ids, 24, 0), 24);
}

#define ROUNDS		600
#define ROUND_MAX	32		/* blocks of a chain */

/* Name the blocks of a round: a chain and a single block. Returns the chain's length. */
static u32 round_ids(struct kvblk_id ids[ROUND_MAX + 1], u32 round)
{
	for (u32 i = 0; i <= ROUND_MAX; i++) {
		ids[i].lo = mix(round * 64 + i + 1);
		ids[i].hi = ~ids[i].lo;
	}
	return 1 << round % 6;
}

static u32 round_chain(struct kvblk_admission *a, u32 round)
{
	struct kvblk_id ids[ROUND_MAX + 1];
	struct kvblk_policy_chain chain = {
		.ids = ids, .nr = round_ids(ids, round), .chain = true, .goes_on = round % 5 == 0,
		/* few parents have many children, and so are shared prompts */
		.parent = round % 3 ? mix(round / 30) : 0, .parent_present = true,
	};

	return kvblk_policy_admit(a, &chain);
}

static u32 round_single(struct kvblk_admission *a, u32 round)
{
	struct kvblk_id ids[ROUND_MAX + 1];
	struct kvblk_policy_chain one = { .ids = &ids[ROUND_MAX], .nr = 1 };

	round_ids(ids, round);
	return kvblk_policy_admit(a, &one);
}

/* Put the blocks of near rounds, twenty before and after, and many others. */
static void round_hostile(struct kvblk_admission *a, u32 round)
{
	for (u32 i = round < 20 ? 0 : round - 20; i < round + 20; i++) {
		round_chain(a, i);
		round_single(a, i);
	}
	for (u32 i = 0; i < 100; i++)
		round_single(a, ROUNDS + round * 100 + i);
}

/*
 * Play a tenant's puts and the reclaim of the blocks. Each answer goes to @answers. If @other is
 * not NULL, another tenant puts the same keys meanwhile, and requests the opposite blocks.
 */
static void play(u8 answers[ROUNDS][4], struct kvblk_admission *a, struct kvblk_admission *other)
{
	struct kvblk_policy_rec recs[2 * ROUND_MAX];
	struct kvblk_id ids[ROUND_MAX + 1];

	for (u32 round = 0; round < ROUNDS; round++) {
		struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_NEW);
		u32 len = round_ids(ids, round), nr = 0;

		if (other)
			round_hostile(other, round);
		answers[round][0] = round_chain(a, round);
		answers[round][1] = round_single(a, round);
		/* second offers, of the declined and of the others */
		answers[round][2] = round_chain(a, round < 7 ? 0 : round - 7);
		answers[round][3] = round_single(a, round < 7 ? 0 : round - 7);
		for (u32 i = 0; i < (other ? 2 : 1) * len; i++)
			recs[nr++] = (struct kvblk_policy_rec){
				.id = ids[i % len], .bytes = BLOCK,
				.admission = i < len ? a : other,
				.heat = (i < len) == (round % 6 < 3) ? kvblk_policy_tick(&policy) : 0,
			};
		kvblk_policy_classify(&policy, &seg, recs, nr, true);
	}
}

/* Play with a new policy that declines much, in each way. @shared: both tenants are one. */
static void play_new(u8 answers[ROUNDS][4], bool first, bool hostile, bool shared)
{
	struct kvblk_admission *a = &policy.own, *b;

	teardown(NULL);
	assert_int_equal(setup(NULL), 0);
	b = kvblk_admission_new(&policy);
	assert_non_null(b);
	if (!first)
		swap(a, b);
	policy.admit_permille = KVBLK_POLICY_ADMIT_SPARING;
	policy.second_permille = 800;
	/* a short budget of the pool would change answers, too */
	policy.reinsert_permille = KVBLK_POLICY_REINSERT_MAX;
	assert_int_equal(kvblk_policy_set_first(&policy, 500), 0);
	play(answers, a, !hostile ? NULL : shared ? a : b);
	kvblk_admission_free(first ? b : a);
}

/* Puts, requests and declined blocks of another tenant change no answer. */
POLICY_TEST(test_tenants_apart)
{
	static u8 alone[ROUNDS][4], beside[ROUNDS][4];

	for (int first = 0; first < 2; first++) {
		play_new(alone, first, false, false);
		play_new(beside, first, true, false);
		assert_memory_equal(alone, beside, sizeof(alone));
		/* within one tenant the same puts change answers */
		play_new(beside, first, true, true);
		for (u32 i = 0, differ = 0; i < 4; i++, differ = 0) {
			for (u32 round = 0; round < ROUNDS; round++)
				differ += alone[round][i] != beside[round][i];
			print_message("  %u of %u answers would differ\n", differ, ROUNDS);
			assert_true(differ > ROUNDS / 50);
		}
	}
}

/* A tenant's own blocks are declined and remembered. */
POLICY_TEST(test_tenant_has_a_memory)
{
	struct kvblk_admission *a = kvblk_admission_new(&policy);
	struct kvblk_id id = fresh_id();
	struct kvblk_policy_chain one = { .ids = &id, .nr = 1 };

	assert_non_null(a);
	policy.reclaims = true;
	policy.admit_permille = 0;
	assert_int_equal(kvblk_policy_admit(a, &one), 0);
	assert_int_equal(kvblk_policy_admit(&policy.own, &one), 0);
	assert_int_equal(kvblk_policy_admit(a, &one), 1);
	assert_int_equal(atomic64_read(&a->declined), 1);
	assert_int_equal(atomic64_read(&a->ghost_hits), 1);
	assert_int_equal(atomic64_read(&policy.own.ghost_hits), 0);
	/* a removed tenant */
	id = fresh_id();
	assert_int_equal(kvblk_policy_admit(NULL, &one), 1);
	assert_int_equal(kvblk_policy_kind(NULL, &one), KVBLK_POLICY_ANY);
	kvblk_admission_free(a);
	kvblk_admission_free(NULL);
}

/* Tenants' memories are a part of the pool's, but neither tiny nor huge. */
TEST(test_tenant_sizes)
{
	static const struct {
		u64 blocks;
		u32 ghosts;
	} sizes[] = {
		{ 64, 1024 }, { 1 << 14, 4096 }, { 1 << 20, 1 << 15 }, { 1 << 26, 1 << 20 },
	};

	for (u32 i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct kvblk_admission *a;
		struct kvblk_policy p;

		assert_int_equal(kvblk_policy_init(&p, CAPACITY, sizes[i].blocks), 0);
		a = kvblk_admission_new(&p);
		assert_non_null(a);
		assert_int_equal(a->nr_ghosts, sizes[i].ghosts);
		assert_in_range(a->nr_offers, sizes[i].ghosts * 12, sizes[i].ghosts * 12 + 31);
		kvblk_admission_free(a);
		kvblk_policy_destroy(&p);
	}
}

TEST(test_tenants_without_memory)
{
	struct kvblk_admission *a, *late;
	struct kvblk_policy p;

	assert_int_equal(kvblk_policy_init(&p, CAPACITY, 1000), 0);
	for (int i = 0; i < 3; i++) {
		shim_fail_alloc = i;
		assert_null(kvblk_admission_new(&p));
		shim_fail_alloc = -1;
	}
	a = kvblk_admission_new(&p);
	assert_non_null(a);
	/* the offers of the second one */
	shim_fail_alloc = 1;
	assert_int_equal(kvblk_policy_set_first(&p, 0), -ENOMEM);
	shim_fail_alloc = -1;
	assert_int_equal(p.first_permille, KVBLK_POLICY_FIRST);
	assert_int_equal(kvblk_policy_set_first(&p, 0), 0);
	assert_non_null(a->offers);
	/* a later tenant has offers from the beginning */
	shim_fail_alloc = 3;
	assert_null(kvblk_admission_new(&p));
	shim_fail_alloc = -1;
	late = kvblk_admission_new(&p);
	assert_non_null(late);
	assert_non_null(late->offers);
	kvblk_admission_free(a);
	kvblk_admission_free(late);
	kvblk_policy_destroy(&p);
}

POLICY_TEST(test_tick)
{
	u8 before, heat;

	assert_int_not_equal(kvblk_policy_tick(&policy), 0);
	before = kvblk_policy_tick(&policy);
	turn_over(1);
	heat = kvblk_policy_tick(&policy);
	assert_int_equal(heat - before, KVBLK_POLICY_TURN);
	for (u32 i = 0; i < 5 * NR_SEGS; i++) {
		kvblk_policy_open(&policy, KVBLK_CLASS_HOT, SEG_BYTES);
		assert_int_not_equal(kvblk_policy_tick(&policy), 0);
	}
	/* after growth, ticks advance more slowly */
	kvblk_policy_resize(&policy, 2 * CAPACITY);
	before = kvblk_policy_tick(&policy);
	turn_over(1);
	heat = kvblk_policy_tick(&policy);
	assert_int_equal((heat - before + 255U) % 255, KVBLK_POLICY_TURN / 2);
}

POLICY_TEST(test_stamps_are_ordered)
{
	u64 last = 0, stamp;

	for (u32 i = 0; i < 4 * NR_SEGS; i++) {
		stamp = kvblk_policy_open(&policy, i % 2, SEG_BYTES);
		assert_true(stamp > last);
		last = stamp;
	}
}

POLICY_TEST(test_sift_keeps_what_is_hot)
{
	struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_NEW);
	struct kvblk_policy_rec recs[SEG_BLOCKS];

	fill(recs, SEG_BLOCKS);
	recs[1].heat = kvblk_policy_tick(&policy);	/* touched too long ago */
	turn_over(1);
	recs[2].heat = kvblk_policy_tick(&policy);
	recs[3].heat = kvblk_policy_tick(&policy);
	recs[3].expires = true;
	recs[4].leased = true;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS,
					       false), 2);
	for (u32 i = 0; i < SEG_BLOCKS; i++)
		assert_int_equal(recs[i].keep, i == 2 || i == 4);
	assert_int_equal(atomic64_read(&policy.stats.kept), 1);
	assert_int_equal(atomic64_read(&policy.stats.kept_bytes), BLOCK);
	assert_int_equal(atomic64_read(&policy.stats.dropped), SEG_BLOCKS - 2);
}

POLICY_TEST(test_heat_wraps)
{
	struct kvblk_policy_rec recs[2];

	/* at any tick: a late touch counts, an early one does not */
	for (u32 i = 0; i < 300; i++) {
		struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_NEW);

		fill(recs, 2);
		recs[0].heat = kvblk_policy_tick(&policy);
		turn_over(1);
		recs[1].heat = kvblk_policy_tick(&policy);
		for (u32 j = 0; j < NR_SEGS / 4; j++)
			kvblk_policy_open(&policy, KVBLK_CLASS_NEW, SEG_BYTES);
		assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, 2, true), 1);
		assert_true(recs[1].keep);
	}
}

POLICY_TEST(test_priority_is_kept)
{
	struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_NEW);
	struct kvblk_policy_rec recs[8];
	u8 early = kvblk_policy_tick(&policy);

	turn_over(1);
	for (int hot = 0; hot < 2; hot++) {
		seg.class = hot ? KVBLK_CLASS_HOT : KVBLK_CLASS_NEW;
		fill(recs, 8);
		for (u32 i = 0; i < 8; i++) {
			recs[i].priority = i / 2;
			recs[i].heat = i % 2 ? early : 0;
		}
		kvblk_policy_classify(&policy, &seg, recs, 8, true);
		assert_false(recs[0].keep);	/* priority 0, not touched */
		assert_false(recs[1].keep);	/* priority 0, touched too early */
		assert_false(recs[2].keep);	/* priority 1, not touched */
		assert_true(recs[3].keep);	/* priority 1, touched at any time */
		assert_int_equal(recs[4].keep, !hot);	/* 2, untouched: not in a hot segment */
		assert_true(recs[5].keep);
		assert_true(recs[6].keep);	/* priority 3: always kept */
		assert_true(recs[7].keep);
	}
}

POLICY_TEST(test_budget)
{
	struct kvblk_policy_seg seg;
	struct kvblk_policy_rec recs[SEG_BLOCKS];
	u64 kept = 0, most = CAPACITY / 16 / BLOCK;

	policy.reinsert_permille = 250;
	for (u32 round = 0; round < 40; round++) {
		seg = open_seg(KVBLK_CLASS_NEW);
		fill(recs, SEG_BLOCKS);
		for (u32 i = 0; i < SEG_BLOCKS; i++)
			recs[i].heat = kvblk_policy_tick(&policy);
		kept += kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS, true);
	}
	/* a quarter of the bytes put; the budget began at 0 */
	assert_int_equal(kept, 40 * SEG_BLOCKS / 4);
	assert_int_equal(atomic64_read(&policy.stats.over_budget),
			 40 * SEG_BLOCKS - kept);

	/* the budget that accumulates is bounded */
	turn_over(3);
	seg = open_seg(KVBLK_CLASS_HOT);
	for (kept = 0;;) {
		u32 n;

		fill(recs, SEG_BLOCKS);
		for (u32 i = 0; i < SEG_BLOCKS; i++)
			recs[i].heat = kvblk_policy_tick(&policy);
		n = kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS, true);
		kept += n;
		if (!n)
			break;
	}
	assert_int_equal(kept, most);

	/* leases are kept regardless of the budget and are not charged to it */
	fill(recs, SEG_BLOCKS);
	recs[7].leased = true;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS,
					       true), 1);
}

POLICY_TEST(test_budget_goes_to_priority_then_root)
{
	struct kvblk_policy_seg seg;
	struct kvblk_policy_rec recs[8];

	policy.reinsert_permille = 1;
	seg = open_seg(KVBLK_CLASS_NEW);
	policy.budget = 3 * BLOCK;
	fill(recs, 8);
	for (u32 i = 0; i < 8; i++)
		recs[i].heat = kvblk_policy_tick(&policy);
	recs[2].priority = 1;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, 8, true), 3);
	assert_true(recs[2].keep);
	/* written last, so nearest to the root */
	assert_true(recs[6].keep);
	assert_true(recs[7].keep);

	/* a permille of 0 keeps nothing, whatever has accumulated */
	policy.budget = 3 * BLOCK;
	policy.reinsert_permille = 0;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, 8, true), 0);
	assert_int_equal(policy.budget, 3 * BLOCK);
}

POLICY_TEST(test_hot_segment_stays)
{
	struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_HOT);
	struct kvblk_policy_rec recs[SEG_BLOCKS];
	u64 stamp = seg.stamp, later;
	s64 budget;

	fill(recs, SEG_BLOCKS);
	turn_over(1);
	later = kvblk_policy_open(&policy, KVBLK_CLASS_NEW, SEG_BYTES);
	for (u32 i = 0; i < SEG_BLOCKS * 3 / 4; i++)
		recs[i].heat = kvblk_policy_tick(&policy);
	budget = policy.budget;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS,
					       false), -EAGAIN);
	assert_true(seg.stamp > later);
	assert_true(policy.budget == budget);
	assert_int_equal(atomic64_read(&policy.stats.renewed), 1);
	/* unless the segment must be reclaimed */
	seg.stamp = stamp;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS,
					       true), SEG_BLOCKS * 3 / 4);
	/* a segment with few hot records is reclaimed, however hot they are */
	fill(recs, 4);
	for (u32 i = 0; i < 4; i++)
		recs[i].heat = kvblk_policy_tick(&policy);
	seg.stamp = stamp;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, 4, false), 4);
}

/* A hot segment ranks after segments older than its touches, and before younger ones. */
POLICY_TEST(test_hot_segment_is_as_old_as_its_touches)
{
	struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_NEW), before, after;
	struct kvblk_policy_rec recs[SEG_BLOCKS];
	u64 stamp = seg.stamp;

	fill(recs, SEG_BLOCKS);
	for (u32 i = 0; i < NR_SEGS / 2; i++)
		before = open_seg(KVBLK_CLASS_NEW);
	for (u32 i = 0; i < SEG_BLOCKS * 3 / 4; i++)
		recs[i].heat = kvblk_policy_tick(&policy);
	for (u32 i = 0; i < NR_SEGS / 8; i++)
		after = open_seg(KVBLK_CLASS_NEW);
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS, false), -EAGAIN);
	assert_true(seg.stamp > before.stamp);
	assert_true(seg.stamp < after.stamp);

	/* the rank follows the touches of a quarter of the records, not of one or two */
	recs[0].heat = kvblk_policy_tick(&policy);
	recs[1].heat = kvblk_policy_tick(&policy);
	seg.stamp = stamp;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS, false), -EAGAIN);
	assert_true(seg.stamp < after.stamp);
	for (u32 i = 2; i <= SEG_BLOCKS / 4; i++)
		recs[i].heat = kvblk_policy_tick(&policy);
	seg.stamp = stamp;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS, false), -EAGAIN);
	assert_true(seg.stamp > after.stamp);

	/*
	 * priority keeps untouched records: rank the segment as new, or it is scanned again and
	 * again
	 */
	fill(recs, SEG_BLOCKS);
	for (u32 i = 0; i < SEG_BLOCKS; i++)
		recs[i].priority = 3;
	seg.stamp = stamp;
	assert_int_equal(kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS, false), -EAGAIN);
	assert_true(seg.stamp > after.stamp);
}

POLICY_TEST(test_empty_victim)
{
	struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_NEW);

	assert_int_equal(kvblk_policy_classify(&policy, &seg, NULL, 0, false), 0);
}

POLICY_TEST(test_rank)
{
	struct kvblk_policy_seg old = open_seg(KVBLK_CLASS_NEW), new = open_seg(KVBLK_CLASS_HOT);

	assert_true(kvblk_policy_rank(old.stamp, false) < kvblk_policy_rank(new.stamp, false));
	assert_true(kvblk_policy_rank(old.stamp, true) < kvblk_policy_rank(new.stamp, true));
	/* empty: costs no copy */
	assert_true(kvblk_policy_rank(new.stamp, true) < kvblk_policy_rank(old.stamp, false));
}

TEST(test_no_memory)
{
	struct kvblk_policy p;

	for (int i = 0; i < 2; i++) {
		shim_fail_alloc = i;
		assert_int_equal(kvblk_policy_init(&p, CAPACITY, 1000), -ENOMEM);
		shim_fail_alloc = -1;
	}
	kvblk_policy_destroy(&p);
	memset(&p, 0, sizeof(p));
	kvblk_policy_destroy(&p);

	assert_int_equal(kvblk_policy_init(&p, CAPACITY, 1000), 0);
	shim_fail_alloc = 0;
	assert_int_equal(kvblk_policy_set_first(&p, 999), -ENOMEM);
	shim_fail_alloc = -1;
	assert_int_equal(p.first_permille, KVBLK_POLICY_FIRST);
	kvblk_policy_destroy(&p);
}

/* Reference implementation of LRU. Returns the number of hits of the requests' blocks. */
static u64 plain_lru(const struct trace *t, u64 capacity)
{
	u64 *cached = calloc(capacity + 1, sizeof(*cached)), used = 0, hits = 0;

	assert_non_null(cached);
	for (size_t i = 0; i < t->nr_reqs; i++) {
		bool lead = true;

		for (u32 j = 0; j < t->reqs[i].nr; j++) {
			u64 id = t->reqs[i].ids[j], at = 0;

			/* oldest first */
			while (at < used && cached[at] != id)
				at++;
			lead &= at < used;
			hits += lead;
			if (at == used && used == capacity)
				at = 0;
			else if (at == used)
				used++;
			memmove(&cached[at], &cached[at + 1],
				(used - at - 1) * sizeof(*cached));
			cached[used - 1] = id;
		}
	}
	free(cached);
	return hits;
}

TEST(test_simulated_lru_is_lru)
{
	struct trace_synthetic_opts so = TRACE_SYNTHETIC_CHAT;
	struct sim_opts o = SIM_OPTS_DEFAULT;
	struct sim_result r;
	struct trace t;

	so.nr_reqs = 400;
	assert_int_equal(trace_synthetic(&so, &t), 0);
	o.cache = SIM_LRU;
	o.capacity_blocks = 800;
	assert_int_equal(simulate(&t, &o, &r), 0);
	assert_int_equal(r.hits, plain_lru(&t, 800));
	assert_int_equal(r.writes, r.puts);
	trace_free(&t);
}

/* A block behind a hole is offered again, and counts as used. */
TEST(test_existing_block_is_touched)
{
	uint32_t names[] = { 0, 1, 2, 3 };
	uint64_t hashes[] = { 11, 22, 33, 44 };
	const struct renamed n = { .names = names, .hashes = hashes, .nr = 4, .longest = 4 };
	struct sim_opts o = SIM_OPTS_DEFAULT;
	struct sim_result r = { .capacity_blocks = 1024 };
	struct sim s = { .n = &n, .r = &r, .peers = &no_peers };
	struct kvblk_slot slot;

	assert_int_equal(sim_init(&s, &o), 0);
	assert_int_equal(sim_request(&s, names, 4), 0);
	assert_true(present(&s, 1, &slot));
	assert_true(kvblk_index_replace(&s.index, id_of(&s, 1), &slot, NULL));
	assert_int_equal(sim_request(&s, names, 4), 0);
	assert_int_equal(r.hits, 1);
	/* the hole is filled by a block not used since */
	assert_true(present(&s, 1, &slot));
	assert_int_equal(slot.heat, 0);
	for (uint32_t name = 2; name < 4; name++) {
		assert_true(present(&s, name, &slot));
		assert_int_equal(slot.heat, kvblk_policy_tick(&s.policy));
	}
	sim_destroy(&s);
}

#define DUEL_CAPACITY	4096
#define DUEL_CHAIN	5
#define DUEL_REQS	48000

/* Add requests for a set that fits the pool, among three times as many that come once. */
static void add_flood(struct trace_builder *b, u64 *fresh)
{
	for (u32 i = 0; i < DUEL_REQS; i++) {
		u64 first = i % 4 ? (*fresh += DUEL_CHAIN) : (i / 4 % 500 + 1) * DUEL_CHAIN;

		for (u32 j = 0; j < DUEL_CHAIN; j++)
			assert_int_equal(trace_add_id(b, first + j), 0);
		assert_int_equal(trace_add_req(b, 0), 0);
	}
}

/* Add chains that are requested twice, the second time 100 requests later. */
static void add_pairs(struct trace_builder *b, u64 *fresh)
{
	u64 start = *fresh;

	for (u32 i = 0; i < DUEL_REQS; i++) {
		u64 nr = i / 200 * 100 + i % 100;

		for (u32 j = 0; j < DUEL_CHAIN; j++)
			assert_int_equal(trace_add_id(b, start + nr * DUEL_CHAIN + j), 0);
		assert_int_equal(trace_add_req(b, 0), 0);
	}
	*fresh += DUEL_REQS * DUEL_CHAIN;
}

/* The duel finds the better side, and changes its mind with the traffic. */
TEST(test_duel)
{
	static const bool floods[] = { true, false, true, false };
	struct trace_builder b = { 0 };
	struct renamed n = { 0 };
	struct sim_opts o = SIM_OPTS_DEFAULT;
	/* by duel, and by hand */
	static const int fixed[] = { -1, 1000, 0 };
	struct sim_result r[3] = {};
	struct sim *s[3];
	u64 fresh = 1 << 20;
	const u32 *names;
	struct trace t;

	for (u32 i = 0; i < ARRAY_SIZE(floods); i++)
		(floods[i] ? add_flood : add_pairs)(&b, &fresh);
	assert_int_equal(trace_finish(&b, &t), 0);
	assert_int_equal(rename_ids(&t, 0, &n), 0);
	for (u32 i = 0; i < 3; i++) {
		o.first_permille = fixed[i];
		r[i].capacity_blocks = DUEL_CAPACITY;
		assert_int_equal(sim_open(&s[i], &n, &o, &no_peers, NULL, &r[i]), 0);
	}
	names = n.names;
	for (u32 phase = 0; phase < ARRAY_SIZE(floods); phase++) {
		u64 before[3], better;

		for (u32 i = 0; i < DUEL_REQS; i++, names += DUEL_CHAIN) {
			for (u32 k = 0; k < 3; k++) {
				/* the last quarter shows the verdict */
				if (i == DUEL_REQS / 4 * 3)
					before[k] = r[k].hits;
				assert_int_equal(sim_request(s[k], names, DUEL_CHAIN), 0);
			}
		}
		for (u32 k = 0; k < 3; k++)
			before[k] = r[k].hits - before[k];
		better = floods[phase] ? before[2] : before[1];
		print_message("  %s: hits %llu by duel, %llu first, %llu second\n",
			      floods[phase] ? "flood" : "pairs", before[0], before[1], before[2]);
		assert_true(2 * better > 3 * (floods[phase] ? before[1] : before[2]));
		assert_true(before[0] * 10 >= better * 8);
		assert_int_equal(s[0]->policy.second_only, floods[phase]);
		assert_false(s[1]->policy.second_only);
	}
	/* nothing is sampled if the tunable is fixed by hand */
	assert_true(s[0]->duel.all.refs > 1000);
	assert_int_equal(s[1]->duel.all.refs, 0);
	for (u32 k = 0; k < 3; k++)
		sim_close(s[k]);
	renamed_free(&n);
	trace_free(&t);
}

/* Offer @nr blocks that never come again. */
static void duel_flood(struct kvblk_duel *d, u32 nr)
{
	struct kvblk_policy_chain chain = { .nr = 1, .chain = true };
	struct kvblk_id id;

	chain.ids = &id;
	while (nr--) {
		id = fresh_id();
		kvblk_duel_offer(d, &chain);
	}
}

POLICY_TEST(test_duel_fits_the_pool)
{
	struct kvblk_policy_rec recs[SEG_BLOCKS];
	struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_NEW);
	const u32 blocks = NR_SEGS * SEG_BLOCKS;
	struct kvblk_duel d;
	struct kvblk_id id;
	u32 sampled, nr = 0;

	kvblk_duel_init(&d, &policy);
	/* the size of records is not known before the first reclaim */
	kvblk_duel_judge(&d, 0);
	assert_int_equal(d.sampled, 0);
	fill(recs, SEG_BLOCKS);
	kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS, true);
	shim_fail_alloc = 0;
	kvblk_duel_judge(&d, 0);
	shim_fail_alloc = -1;
	assert_int_equal(d.sampled, 0);
	for (int i = 0; i < 7; i++) {
		shim_fail_alloc = i;
		kvblk_duel_judge(&d, 0);
		shim_fail_alloc = -1;
		if (d.sampled)
			break;
	}
	/* a few hundred blocks, in proportion to the pool */
	for (u32 i = 0; i < blocks; i++) {
		id = fresh_id();
		nr += kvblk_duel_samples(&d, id);
	}
	assert_in_range(nr, 300, 500);
	sampled = d.sampled;

	/* a pool keeps its miniatures; with memory or another size it gets new ones */
	duel_flood(&d, 100 * blocks / 10);
	assert_true(d.recent.refs > 0);
	kvblk_duel_judge(&d, 0);
	assert_int_equal(d.sampled, sampled);
	assert_true(policy.second_only);
	kvblk_duel_judge(&d, CAPACITY / 2);
	assert_int_equal(d.recent.refs, 0);
	kvblk_policy_resize(&policy, CAPACITY / 2);
	kvblk_duel_judge(&d, CAPACITY / 2);
	assert_in_range(d.sampled / 2, sampled - sampled / 10, sampled + sampled / 10);
	/* requests in memory of the miniature, too */
	duel_flood(&d, 100 * blocks / 10);
	assert_int_equal(d.all.hits[KVBLK_DUEL_FIRST], 0);

	/* off: the tunable counts as it is, and nothing is sampled */
	kvblk_duel_set(&d, false);
	assert_false(policy.second_only);
	kvblk_duel_judge(&d, 0);
	assert_int_equal(d.sampled, 0);
	duel_flood(&d, 1000);
	kvblk_duel_set(&d, true);
	kvblk_duel_judge(&d, 0);
	assert_int_not_equal(d.sampled, 0);
	kvblk_duel_destroy(&d);
}

/* Offer @nr chains of a block twice, the second time after @apart others. */
static void duel_pairs(struct kvblk_duel *d, u32 nr, u32 apart)
{
	struct kvblk_policy_chain chain = { .nr = 1, .chain = true };
	struct kvblk_id id;

	chain.ids = &id;
	for (u64 first = serial; nr--; ) {
		id = fresh_id();
		kvblk_duel_offer(d, &chain);
		if (serial <= first + apart)
			continue;
		id.lo = mix(serial - apart);
		id.hi = ~id.lo;
		kvblk_duel_offer(d, &chain);
	}
}

/* A verdict holds for a size of the pool: another one begins a new duel, with another winner. */
POLICY_TEST(test_duel_follows_the_size)
{
	const u32 blocks = NR_SEGS * SEG_BLOCKS, apart = blocks / 4;
	struct kvblk_policy_rec recs[SEG_BLOCKS];
	struct kvblk_policy_seg seg = open_seg(KVBLK_CLASS_NEW);
	/* the second offers come too late, in time, and too late */
	static const u32 shares[] = { 8, 1, 8 };
	struct kvblk_duel d;
	u32 sampled = 0;

	kvblk_duel_init(&d, &policy);
	fill(recs, SEG_BLOCKS);
	kvblk_policy_classify(&policy, &seg, recs, SEG_BLOCKS, true);
	for (u32 i = 0; i < ARRAY_SIZE(shares); i++) {
		kvblk_policy_resize(&policy, CAPACITY / shares[i]);
		kvblk_duel_judge(&d, 0);
		assert_int_not_equal(d.sampled, sampled);
		sampled = d.sampled;
		duel_pairs(&d, 16 * blocks, apart);
		kvblk_duel_judge(&d, 0);
		assert_int_equal(d.sampled, sampled);
		assert_int_equal(policy.second_only, shares[i] > 1);
	}
	kvblk_duel_destroy(&d);
}

static struct sim_result run(const struct trace *t, const struct sim_opts *o)
{
	struct sim_result r;

	assert_int_equal(simulate(t, o, &r), 0);
	assert_int_equal(r.refs, t->nr_refs);
	assert_int_equal(r.writes, r.admitted + r.copies);
	assert_int_equal(r.puts, r.admitted + r.declined);
	return r;
}

/* Check hits and writes, as shares of LRU's and the mean of @salts, against the two bounds. */
static void check_against_lru(const struct trace *t, struct sim_opts o, u32 salts,
			      double least_hits, double most_writes)
{
	double hits = 0, writes = 0;
	struct sim_result lru;

	o.cache = SIM_LRU;
	lru = run(t, &o);
	o.cache = SIM_POLICY;
	for (o.salt = 0; o.salt < salts; o.salt++) {
		struct sim_result r = run(t, &o);

		hits += (double)r.hits / lru.hits / salts;
		writes += (double)r.writes / lru.writes / salts;
	}
	print_message("  capacity %.2f: %.3f of LRU's hits, %.3f of its writes\n",
		      o.capacity, hits, writes);
	assert_true(hits >= least_hits);
	assert_true(writes <= most_writes);
}

static const double capacities[] = { 0.02, 0.05, 0.1, 0.2 };

/* Bounds of shares of LRU's hits and writes, for each of the capacities. */
struct targets {
	const char *name;
	double hits[ARRAY_SIZE(capacities)];
	double writes[ARRAY_SIZE(capacities)];
};

static void check_targets(const struct trace *t, const struct targets *targets)
{
	struct sim_opts o = SIM_OPTS_DEFAULT;

	print_message("%s:\n", targets->name);
	for (size_t i = 0; i < ARRAY_SIZE(capacities); i++) {
		o.capacity = capacities[i];
		/* in the smallest pool, the time of the duel's verdict depends on the ids */
		check_against_lru(t, o, i ? 1 : 4, targets->hits[i], targets->writes[i]);
	}
}

TEST(test_made_up_traffic)
{
	static const struct targets kinds[] = {
		{ "chat", { 0.985, 0.985, 0.985, 0.985 }, { 1, 1.1, 1.1, 1.1 } },
		{ "prompts", { 1.1, 1.03, 0.99, 0.985 }, { 0.35, 0.45, 1, 1.1 } },
		{ "long", { 0.985, 0.985, 0.985, 0.985 }, { 0.35, 0.5, 0.8, 1 } },
		{ "once", { 0.985, 0.985, 0.985, 0.985 }, { 1, 1, 1, 1 } },
		{ "scan", { 1.02, 1.05, 1.03, 1 }, { 0.7, 0.95, 1, 1 } },
		{ "documents", { 0.985, 0.985, 0.985, 0.985 }, { 0.7, 1.05, 1.05, 1.05 } },
	};
	struct trace_synthetic_opts so;
	struct trace t;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		assert_int_equal(trace_synthetic_preset(kinds[i].name, &so), 0);
		assert_int_equal(trace_synthetic(&so, &t), 0);
		check_targets(&t, &kinds[i]);
		trace_free(&t);
	}
	assert_int_equal(trace_synthetic_preset("nonsense", &so), -ENOENT);
}

/* A week of traffic, in seconds: from the third day on, the writes equal the budget. */
TEST(test_budget_of_a_week)
{
	static const double budgets[] = { 2, 1, 0.3, 0.1 };
	struct trace_synthetic_opts so;
	double hits = 1;
	struct trace t;

	assert_int_equal(trace_synthetic_preset("week", &so), 0);
	so.nr_reqs /= 4;
	so.gap_ms *= 4;
	assert_int_equal(trace_synthetic(&so, &t), 0);
	for (size_t i = 0; i < ARRAY_SIZE(budgets); i++) {
		struct sim_opts o = SIM_OPTS_DEFAULT;
		struct sim_result r;

		o.budget = budgets[i];
		assert_int_equal(simulate(&t, &o, &r), 0);
		assert_in_range(r.nr_days, 7, 8);
		for (u32 day = 2; day < 6; day++) {
			double share = r.days[day].writes / o.budget / r.capacity_blocks;

			print_message("  budget %.1f, day %u: %.2f of it\n", o.budget,
				      day + 1, share);
			assert_true(share < 1.15);
			assert_true(share > 0.85);
		}
		print_message("  budget %.1f: hit ratio %.3f\n", o.budget, r.hit_ratio);
		assert_true(r.hit_ratio < hits);
		hits = r.hit_ratio;
	}
	trace_free(&t);
}

TEST(test_governor)
{
	struct governor g = { 0 };
	struct governor_look look = {
		.now_s = 1000, .bytes = 5e9, .budget = GOVERNOR_DAY,
		.now = { .admit = 700, .first = 1000, .second = 1000 },
		.admit_most = 700,
	};
	struct governor_verdict v = governor_decide(&g, &look);

	assert_int_equal(v.reason, GOVERNOR_WAITS);
	assert_int_equal(v.set.admit, 700);
	/* without writes, everything is admitted */
	for (u32 i = 0; i < 100; i++) {
		look.now_s += GOVERNOR_STEP;
		v = governor_decide(&g, &look);
	}
	assert_int_equal(v.reason, GOVERNOR_OPEN);
	/* a clock that stands still, or a counter that restarts: no verdict */
	look.bytes = 0;
	v = governor_decide(&g, &look);
	assert_int_equal(v.reason, GOVERNOR_WAITS);
	v = governor_decide(&g, &look);
	assert_int_equal(v.reason, GOVERNOR_WAITS);
	/* ten times the budget, until everything is at its floor */
	for (u32 i = 0; i < 1000; i++) {
		look.now_s += GOVERNOR_STEP;
		look.bytes += 10 * GOVERNOR_STEP;
		v = governor_decide(&g, &look);
		assert_true(v.set.admit <= look.now.admit);
		assert_true(v.set.first <= look.now.first);
		assert_true(v.set.second <= look.now.second);
		look.now = v.set;
	}
	assert_int_equal(v.reason, GOVERNOR_AT_FLOOR);
	assert_int_equal(v.set.admit, 400);
	assert_int_equal(v.set.first, 0);
	assert_int_equal(v.set.second, 0);
	assert_non_null(strstr(governor_words(v.reason), "admission at its lower limit"));
	/* no writes for days: raise everything to its limit, and no further */
	look.admit_most = 300;
	for (u32 i = 0; i < 2000; i++) {
		look.now_s += GOVERNOR_STEP;
		v = governor_decide(&g, &look);
		look.now = v.set;
	}
	assert_int_equal(v.reason, GOVERNOR_OPEN);
	assert_int_equal(v.set.admit, 300);
	assert_int_equal(v.set.first, 1000);

	assert_true(isinf(governor_life_budget(1e12, 0, 100)));
	assert_true(governor_life_budget(1e12, 50, 100) == 1e10);
	assert_true(governor_life_budget(1e12, 100, 100) == 0);
	assert_true(governor_life_budget(1e12, 255, 100) == 0);
}

TEST(test_same_seed_same_trace)
{
	struct trace_synthetic_opts so = TRACE_SYNTHETIC_CHAT;
	struct trace a, b;

	so.nr_reqs = 500;
	assert_int_equal(trace_synthetic(&so, &a), 0);
	assert_int_equal(trace_synthetic(&so, &b), 0);
	assert_int_equal(a.nr_refs, b.nr_refs);
	assert_memory_equal(a.ids, b.ids, a.nr_refs * sizeof(*a.ids));
	trace_free(&b);
	so.seed++;
	assert_int_equal(trace_synthetic(&so, &b), 0);
	assert_int_not_equal(a.ids[0], b.ids[0]);
	trace_free(&a);
	trace_free(&b);
	so.nr_reqs = 0;
	assert_int_equal(trace_synthetic(&so, &a), -EINVAL);
}

/* Read only the part of the Mooncake format that the test needs. */
static void load_ids(const char *path, struct trace *t)
{
	FILE *f = fopen(path, "re");
	struct trace_builder b = { 0 };
	char *line = NULL, *at;
	size_t room = 0;

	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	while (getline(&line, &room, f) > 0) {
		at = strstr(line, "\"hash_ids\"");
		assert_non_null(at);
		at = strchr(at, '[');
		assert_non_null(at);
		do {
			assert_int_equal(trace_add_id(&b, strtoull(at + 1, &at, 10)), 0);
		} while (*at == ',');
		assert_int_equal(trace_add_req(&b, 0), 0);
	}
	free(line);
	fclose(f);
	assert_int_equal(trace_finish(&b, t), 0);
}

/* Second offers alone get 98 % of the hits for 0.2 writes per referenced block. */
static void check_sparing(const struct trace *t)
{
	struct sim_opts o = SIM_OPTS_DEFAULT;
	struct sim_result shipped, r;

	o.nr_segments = 256;
	shipped = run(t, &o);
	o.admit_permille = KVBLK_POLICY_ADMIT_SPARING;
	check_against_lru(t, o, 1, 0.95, 0.45);
	o.capacity = 0.1;
	check_against_lru(t, o, 1, 0.85, 0.7);
	o = (struct sim_opts)SIM_OPTS_DEFAULT;
	o.first_permille = 0;
	r = run(t, &o);
	print_message("second offers: %.3f of the hits, %.3f writes for each block referenced\n",
		      r.hit_ratio / shipped.hit_ratio, (double)r.writes / r.refs);
	assert_true(r.hit_ratio >= 0.98 * shipped.hit_ratio);
	assert_true(r.writes <= 0.2 * r.refs);
}

/* Targets of Documentation/policy.rst, which has the means of four salts. */
TEST(test_targets_on_traces)
{
	static const struct targets targets[] = {
		{ "conversation_trace.jsonl",
		  { 1.7, 1.06, 1.01, 0.995 }, { 0.2, 0.5, 0.95, 1 } },
		{ "agents_trace.jsonl",
		  { 1.5, 1, 0.99, 0.998 }, { 0.3, 0.65, 1.1, 1.1 } },
	};
	const char *dir = getenv("KVBLK_TRACES");
	char path[PATH_MAX];
	struct trace t;

	if (!dir) {
		print_message("KVBLK_TRACES does not name the traces' folder\n");
		skip();
	}
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, targets[i].name);
		load_ids(path, &t);
		check_targets(&t, &targets[i]);
		if (!i)
			check_sparing(&t);
		trace_free(&t);
	}
}

TEST_MAIN("policy_test")
