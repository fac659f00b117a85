// SPDX-License-Identifier: GPL-2.0
/*
 * The policy of policy.h: CLOCK over segments, admission by chain.
 *
 * Admission learns how often chains of each kind are requested again. It watches one block of each
 * chain put, by a ghost that ends with a later put of the block (the chain had been declined) or
 * with reclaim (it had been written). A kind that is requested less than average is not written
 * until its second offer. Nothing is declined until reclaim has begun, because nothing is known.
 *
 * Reclaim takes segments in order of age. A block is written again if it was touched in the later
 * part of its segment's stay and the budget permits. A mostly hot segment stays in place, with the
 * age of its youngest part's touches: LRU without writes if segments are hot or cold as a whole.
 *
 * Ghosts, rates and forks are a tenant's own; the log's clock and its budget are the pool's.
 * Ghosts, rates and forks are hints, shared by CPUs without a lock: a lost store costs a decision.
 */
#include <linux/bitfield.h>
#include <linux/bitops.h>
#include <linux/cleanup.h>
#include <linux/errno.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "policy/policy.h"

#define GHOST_WAYS	16	/* a cache line */
#define GHOST_MIN	1024
#define GHOST_MAX	BIT(30)
#define BLOCKS_PER_GHOST	2
#define GHOSTS_PER_MINI	2	/* for each block of a miniature, because each is watched */
#define OFFER_LINE	32	/* a cache line: the position of the oldest print, then prints */
#define OFFER_WAYS	(OFFER_LINE - 1)
#define OFFERS_PER_BLOCK	6	/* about what comes in a turn if few are admitted */
/* Fewer, because a chain is admitted only as far as all its blocks are remembered. */
#define OFFERS_PER_MINI	3
#define STALE_PERMILLE	150	/* first part of a segment's stay: touches do not earn a copy */
#define RENEW_PERMILLE	500	/* share of hot bytes above which a segment is left in place */
#define YOUNG_PERMILLE	250	/* share whose touches give the new age; at most RENEW_PERMILLE */
#define BUDGET_SHIFT	4	/* largest part of the pool that the budget saves up */
#define FORKS		4096	/* parents whose children are counted */
#define FORKS_SHARED	3	/* number of children that make a parent a shared prompt */
/* A fork: upper bits of the parent, and prints of its first children, 0 for none. */
#define FORK_CHILD_BITS	13
#define FORK_CHILD	GENMASK_ULL(FORK_CHILD_BITS - 1, 0)
#define FORK_PARENT	GENMASK_ULL(63, FORKS_SHARED * FORK_CHILD_BITS)
/* Admissions of tenants other than "default", compared with that one's. */
#define TENANT_SHARE	16
#define TENANT_GHOSTS_MIN	4096
#define TENANT_GHOSTS_MAX	BIT(20)
#define RATE_MEMORY	4096	/* verdicts that a kind's rate remembers */
#define ALL_MEMORY	(32 * RATE_MEMORY)	/* blocks that the rate of all kinds remembers */
#define LEARN_SEEN	20	/* verdicts needed before a kind is judged */
#define POOR_PERMILLE	485	/* see poor_permille() */
#define POOR_FLOOR	30	/* permille of requests again below which every kind is poor */
#define CROWDED_PERMILLE	300	/* largest effect of requests for dropped blocks */
#define SALT_ADMIT	0x9e3779b9U
#define SALT_FIRST	0x7f4a7c15U
#define PROBE_PERMILLE	20	/* share of poor chains that is written nevertheless */

/* Kinds of chains: by length (powers of two), and whether the chain continues another one. */
#define KIND_LENGTHS	8
/* Last blocks of chains: runtimes do not request partly filled blocks again. */
#define KIND_LAST	(2 * KIND_LENGTHS)
#define KIND_DROPPED	(KIND_LAST + 1)

/* A ghost is a fingerprint of a block, 0 for none. */
#define GHOST_PRINT	GENMASK(31, 15)
#define GHOST_DECLINED	BIT(14)	/* admits its block at the next offer */
#define GHOST_WATCHED	BIT(13)	/* measures how often its kind is requested again */
#define GHOST_KIND	GENMASK(12, 8)
#define GHOST_TICK	GENMASK(7, 0)

static void admission_destroy(struct kvblk_admission *a)
{
	kvfree(a->offers);
	kvfree(a->ghost);
	kvfree(a->forks);
	a->offers = NULL;
	a->ghost = NULL;
	a->forks = NULL;
}

static int admission_init(struct kvblk_admission *a, struct kvblk_policy *p, u64 nr_ghosts,
			  u64 nr_offers, u32 nr_forks)
{
	a->policy = p;
	a->nr_ghosts = roundup_pow_of_two((unsigned long)nr_ghosts);
	a->nr_offers = round_up(nr_offers, OFFER_LINE);
	a->nr_forks = nr_forks;
	a->ghost = kvcalloc(a->nr_ghosts, sizeof(*a->ghost), GFP_KERNEL);
	a->forks = kvcalloc(a->nr_forks, sizeof(*a->forks), GFP_KERNEL);
	if (a->ghost && a->forks)
		return 0;
	admission_destroy(a);
	return -ENOMEM;
}

/* Allocate the memory of offers, unless it exists, under admissions_lock. Returns 0 or -ENOMEM. */
static int admission_offers(struct kvblk_admission *a)
{
	u16 *offers;

	if (a->offers)
		return 0;
	offers = kvcalloc(a->nr_offers, sizeof(*offers), GFP_KERNEL | __GFP_NOWARN);
	if (!offers)
		return -ENOMEM;
	/* pairs with admit_first() */
	smp_store_release(&a->offers, offers);
	return 0;
}

struct kvblk_admission *kvblk_admission_new(struct kvblk_policy *p)
{
	struct kvblk_admission *a = kzalloc(sizeof(*a), GFP_KERNEL);
	const u32 whole = p->own.nr_ghosts;
	const u64 nr_ghosts = clamp_t(u32, whole / TENANT_SHARE, min(whole, TENANT_GHOSTS_MIN),
				      TENANT_GHOSTS_MAX);

	if (!a || admission_init(a, p, nr_ghosts, nr_ghosts * BLOCKS_PER_GHOST * OFFERS_PER_BLOCK,
				 FORKS / TENANT_SHARE)) {
		kfree(a);
		return NULL;
	}
	guard(mutex)(&p->admissions_lock);
	if (p->own.offers && admission_offers(a)) {
		admission_destroy(a);
		kfree(a);
		return NULL;
	}
	list_add_tail(&a->link, &p->admissions);
	return a;
}

void kvblk_admission_free(struct kvblk_admission *a)
{
	if (!a)
		return;
	mutex_lock(&a->policy->admissions_lock);
	list_del_init(&a->link);
	mutex_unlock(&a->policy->admissions_lock);
	admission_destroy(a);
	kfree(a);
}

static int policy_init(struct kvblk_policy *p, u64 capacity, u64 nr_offers, u64 nr_ghosts)
{
	memset(p, 0, sizeof(*p));
	p->admit_permille = KVBLK_POLICY_ADMIT;
	p->first_permille = KVBLK_POLICY_FIRST;
	p->second_permille = KVBLK_POLICY_SECOND;
	p->reinsert_permille = KVBLK_POLICY_REINSERT;
	spin_lock_init(&p->lock);
	p->capacity = capacity;
	p->now = 1;
	mutex_init(&p->admissions_lock);
	INIT_LIST_HEAD(&p->admissions);
	list_add_tail(&p->own.link, &p->admissions);
	return admission_init(&p->own, p, nr_ghosts, nr_offers, FORKS);
}

int kvblk_policy_init(struct kvblk_policy *p, u64 capacity, u64 nr_blocks)
{
	return policy_init(p, capacity, max(nr_blocks, GHOST_MIN) * OFFERS_PER_BLOCK,
			   clamp_t(u64, nr_blocks / BLOCKS_PER_GHOST, GHOST_MIN, GHOST_MAX));
}

int kvblk_policy_init_mini(struct kvblk_policy *p, u32 nr_blocks, bool second_only)
{
	int err = policy_init(p, nr_blocks, nr_blocks * OFFERS_PER_MINI,
			      nr_blocks * GHOSTS_PER_MINI);

	if (err)
		return err;
	p->mini = true;
	err = kvblk_policy_set_second_only(p, second_only);
	if (err)
		kvblk_policy_destroy(p);
	return err;
}

void kvblk_policy_destroy(struct kvblk_policy *p)
{
	admission_destroy(&p->own);
}

/* Allocate the memory of all tenants' offers, unless it exists. Returns 0 or -ENOMEM. */
static int offers_init(struct kvblk_policy *p)
{
	struct kvblk_admission *a;

	guard(mutex)(&p->admissions_lock);
	list_for_each_entry(a, &p->admissions, link)
		if (admission_offers(a))
			return -ENOMEM;
	return 0;
}

int kvblk_policy_set_first(struct kvblk_policy *p, u32 permille)
{
	int err = permille < KVBLK_POLICY_FIRST ? offers_init(p) : 0;

	if (!err)
		WRITE_ONCE(p->first_permille, permille);
	return err;
}

int kvblk_policy_set_second_only(struct kvblk_policy *p, bool only)
{
	int err = only ? offers_init(p) : 0;

	if (!err)
		WRITE_ONCE(p->second_only, only);
	return err;
}

void kvblk_policy_resize(struct kvblk_policy *p, u64 capacity)
{
	spin_lock_bh(&p->lock);
	p->capacity = capacity;
	spin_unlock_bh(&p->lock);
}

/* Return a unique stamp, ordered by time: the tick, @age ticks ago, in the high half. */
static u64 next_stamp(struct kvblk_policy *p, u32 age)
{
	lockdep_assert_held(&p->lock);
	return ((u64)(p->now - age) << 32) | ++p->seq;
}

static u32 stamp_tick(u64 stamp)
{
	return stamp >> 32;
}

u64 kvblk_policy_open(struct kvblk_policy *p, enum kvblk_policy_class class, u64 bytes)
{
	u64 step, ticks, stamp;

	spin_lock_bh(&p->lock);
	step = max_t(u64, div_u64(p->capacity, KVBLK_POLICY_TURN), 1);
	p->opened_bytes += bytes;
	ticks = div64_u64(p->opened_bytes, step);
	p->opened_bytes -= ticks * step;
	WRITE_ONCE(p->now, p->now + (u32)ticks);
	if (class == KVBLK_CLASS_NEW) {
		p->budget += div_u64(bytes * READ_ONCE(p->reinsert_permille), 1000);
		p->budget = min(p->budget, (s64)(p->capacity >> BUDGET_SHIFT));
	}
	stamp = next_stamp(p, 0);
	spin_unlock_bh(&p->lock);
	return stamp;
}

/* Return the ticks since @heat was set; wraps with the heat. */
static u32 heat_age(const struct kvblk_policy *p, u8 heat)
{
	u8 now = kvblk_policy_tick(p);

	return now >= heat ? now - heat : now + 255 - heat;
}

static void rate_add(struct kvblk_policy_rate *rate, u32 seen, u32 again, u32 memory)
{
	u32 s = READ_ONCE(rate->seen) + seen, a = READ_ONCE(rate->again) + again;

	if (s > memory) {
		s /= 2;
		a /= 2;
	}
	WRITE_ONCE(rate->seen, s);
	WRITE_ONCE(rate->again, a);
}

/* Record whether a watched block was requested again in time, which ends the watch. */
static void ghost_verdict(struct kvblk_admission *a, u32 ghost, bool again)
{
	u32 kind = FIELD_GET(GHOST_KIND, ghost);
	u32 blocks = a->policy->mini ? 1 : 1 << (kind % KIND_LENGTHS);

	if (!(ghost & GHOST_WATCHED) || kind > KIND_DROPPED)
		return;
	/* rec_verdict() counted the drop already, because most verdicts on drops are late */
	rate_add(&a->kinds[kind], kind != KIND_DROPPED, again, RATE_MEMORY);
	if (kind < KIND_LAST)
		rate_add(&a->all, blocks, again * blocks, ALL_MEMORY);
}

static u32 *ghost_line(const struct kvblk_admission *a, u64 lo)
{
	return a->ghost + ((u32)lo & (a->nr_ghosts - 1) & ~(GHOST_WAYS - 1));
}

static u32 ghost_print(u64 lo)
{
	return (u32)(lo >> 32) & GHOST_PRINT;
}

/* Remove and return the ghost of @lo; 0 if there is none. */
static u32 ghost_take(struct kvblk_admission *a, u64 lo)
{
	u32 *line = ghost_line(a, lo);
	int i;

	for (i = 0; i < GHOST_WAYS; i++) {
		u32 ghost = READ_ONCE(line[i]);

		if (!ghost || (ghost & GHOST_PRINT) != ghost_print(lo))
			continue;
		WRITE_ONCE(line[i], 0);
		return ghost;
	}
	return 0;
}

/* Add a ghost of @lo, maybe for the oldest one. Declined ones get their verdict after a turn. */
static void ghost_put(struct kvblk_admission *a, u64 lo, u32 flags, u32 kind)
{
	u32 *line = ghost_line(a, lo), now = kvblk_policy_tick(a->policy);
	u32 best = 0, victim = 0, ghost, i;

	for (i = 0; i < GHOST_WAYS; i++) {
		u32 age, rank;

		ghost = READ_ONCE(line[i]);
		age = (now - ghost) & GHOST_TICK;
		if ((ghost & GHOST_DECLINED) && age > KVBLK_POLICY_TURN) {
			ghost_verdict(a, ghost, false);
			WRITE_ONCE(line[i], ghost & ~GHOST_WATCHED);
		}
		if ((ghost & GHOST_PRINT) == ghost_print(lo))
			rank = 1000;
		else
			rank = ghost ? 1 + age : 999;
		if (rank > best) {
			best = rank;
			victim = i;
		}
	}
	ghost = READ_ONCE(line[victim]);
	if (ghost & GHOST_DECLINED)
		ghost_verdict(a, ghost, false);
	WRITE_ONCE(line[victim], ghost_print(lo) | flags | FIELD_PREP(GHOST_KIND, kind) | now);
}

/* Count @parent's children before @child, to FORKS_SHARED at most; repeated children count once. */
static u32 fork_count(struct kvblk_admission *a, u64 parent, u64 child)
{
	u64 *slot = &a->forks[(u32)parent & (a->nr_forks - 1)];
	u64 parent_print = parent & FORK_PARENT, fork = READ_ONCE(*slot);
	u64 child_print = (child >> (64 - FORK_CHILD_BITS)) ?: 1;
	u32 i;

	if ((fork & FORK_PARENT) != parent_print)
		fork = parent_print;
	for (i = 0; i < FORKS_SHARED; i++) {
		u64 known = fork >> (i * FORK_CHILD_BITS) & FORK_CHILD;

		if (known == child_print)
			return i;
		if (!known) {
			WRITE_ONCE(*slot, fork | child_print << (i * FORK_CHILD_BITS));
			break;
		}
	}
	return i;
}

u32 kvblk_policy_kind(struct kvblk_admission *a, const struct kvblk_policy_chain *chain)
{
	u32 kind = min(fls(chain->nr) - 1, KIND_LENGTHS - 1);

	if (!a)
		return KVBLK_POLICY_ANY;
	/* chains behind a shared prompt are new chains */
	if (chain->parent && chain->parent_present &&
	    fork_count(a, chain->parent, chain->ids[0].lo) < FORKS_SHARED)
		kind += KIND_LENGTHS;
	return kind;
}

/* Return the permille of the average rate below which a kind is poor. */
static u32 poor_permille(const struct kvblk_admission *a)
{
	const struct kvblk_policy_rate *dropped = &a->kinds[KIND_DROPPED];
	u64 lost = (u64)READ_ONCE(dropped->again) * READ_ONCE(a->all.seen);
	u64 used = (u64)READ_ONCE(dropped->seen) * READ_ONCE(a->all.again);
	u64 crowded = used ? div64_u64(lost * CROWDED_PERMILLE, used) : 0;

	/* the more dropped blocks are requested, the more a longer stay of the rest would pay */
	return 1000 + POOR_PERMILLE - READ_ONCE(a->policy->admit_permille) +
	       min_t(u64, crowded, CROWDED_PERMILLE);
}

/* Return whether @kind is requested too little by more than chance, about a count's square root. */
static bool kind_poor(const struct kvblk_admission *a, u32 kind)
{
	u32 seen = READ_ONCE(a->kinds[kind].seen);
	u64 again = READ_ONCE(a->kinds[kind].again);
	u64 all = max(READ_ONCE(a->all.seen), 1U);
	u64 need = div64_u64((u64)seen * READ_ONCE(a->all.again) * poor_permille(a), 1000 * all);

	/* if all are poor, none is poorer than the average */
	need = max(need, div_u64((u64)seen * POOR_FLOOR, 1000));
	return seen >= LEARN_SEEN && again < need && (need - again) * (need - again) > need;
}

static bool below(u32 x, u32 permille)
{
	x *= 0x61c88647U;
	x = (x ^ (x >> 15)) * 0x2c1b3c6dU;
	x ^= x >> 13;
	return ((u64)x * 1000) >> 32 < permille;
}

/* Return true @permille times in a thousand; the sequence is deterministic. */
static bool chance(struct kvblk_admission *a, u32 permille)
{
	return below(atomic_inc_return(&a->dice), permille);
}

/* Return chance() by @lo and @salt alone, because a ring's put that had to wait is begun anew. */
static bool chance_of(u64 lo, u32 salt, u32 permille)
{
	return below((u32)(lo >> 32) ^ (u32)lo ^ salt, permille);
}

/* Return the place of @print in a line of offers, or NULL if the block was not offered before. */
static u16 *offer_find(u16 *line, u16 print)
{
	int i;

	for (i = 1; i <= OFFER_WAYS; i++)
		if (READ_ONCE(line[i]) == print)
			return &line[i];
	return NULL;
}

/* Return how many leading blocks of @chain were offered before; remember the others. */
static u32 second_offers(struct kvblk_admission *a, u16 *offers,
			 const struct kvblk_policy_chain *chain)
{
	bool note = chance(a, READ_ONCE(a->policy->second_permille));
	u32 i, lead = 0;

	for (i = 0; i < chain->nr; i++) {
		u64 lo = chain->ids[i].lo, nr = (u32)lo * (a->nr_offers / OFFER_LINE) >> 32;
		u16 *line = &offers[nr * OFFER_LINE], print = (u16)(lo >> 48) ?: 1;
		u16 *before = offer_find(line, print), oldest;

		if (before && lead == i) {
			/* keep a single put's print, because admission may be asked again */
			if (chain->chain)
				WRITE_ONCE(*before, 0);
			lead++;
		} else if (!before && note) {
			oldest = READ_ONCE(line[0]) % OFFER_WAYS;
			WRITE_ONCE(line[0], oldest + 1);
			WRITE_ONCE(line[1 + oldest], print);
		}
	}
	return lead;
}

static bool decline(struct kvblk_admission *a, u32 kind)
{
	return READ_ONCE(a->policy->admit_permille) < KVBLK_POLICY_ADMIT_MAX &&
	       kind_poor(a, kind) && !chance(a, PROBE_PERMILLE);
}

/* Admit all blocks of a chain but the last, or none; decide on the last, if any, separately. */
static u32 admit_chain(struct kvblk_admission *a, const struct kvblk_policy_chain *chain)
{
	u32 nr = chain->nr, last = nr - 1, declined = 0, i;
	u32 kind = a->policy->mini ? chain->kind : kvblk_policy_kind(a, chain);
	/* a single block of a miniature is the chain's last one, or an inner one */
	u32 inner = a->policy->mini && chain->goes_on ? nr : last;
	bool known = chain->priority || chain->wanted, known_last = known;

	for (i = 0; i < chain->nr; i++) {
		u32 ghost = ghost_take(a, chain->ids[i].lo);

		if (!(ghost & GHOST_DECLINED))
			continue;
		ghost_verdict(a, ghost, true);
		atomic64_add(!known, &a->ghost_hits);
		known = true;
		known_last |= i == last;
	}
	/* a declined last block turned out to have a successor */
	if (chain->parent && !chain->parent_present)
		ghost_verdict(a, ghost_take(a, chain->parent), true);

	if (!known && decline(a, kind)) {
		nr = 0;
		declined = GHOST_DECLINED;
		ghost_put(a, chain->ids[0].lo, declined, 0);
	}
	if (inner)
		ghost_put(a, chain->ids[(inner - 1) / 2].lo, GHOST_WATCHED | declined, kind);
	if (chain->goes_on)
		return nr;
	if (nr && !known_last && decline(a, KIND_LAST)) {
		nr--;
		declined = GHOST_DECLINED;
	}
	ghost_put(a, chain->ids[last].lo, GHOST_WATCHED | declined, KIND_LAST);
	return nr;
}

/* Admit an even share of the puts outside chains. */
static u32 admit_single(struct kvblk_admission *a, const struct kvblk_policy_chain *chain)
{
	u64 lo = chain->ids[0].lo;
	u32 share = READ_ONCE(a->policy->admit_permille) * 1000 / KVBLK_POLICY_ADMIT;
	bool again = ghost_take(a, lo) & GHOST_DECLINED;

	if (!again && (chain->parent_present || chain->priority || chain->wanted ||
		       !READ_ONCE(a->policy->reclaims) || chance_of(lo, SALT_ADMIT, share)))
		return chain->nr;
	/* keep the ghost of an admitted block, because admission may be asked again at once */
	ghost_put(a, lo, GHOST_DECLINED, 0);
	atomic64_add(again, &a->ghost_hits);
	return again ? chain->nr : 0;
}

/* Return how many leading blocks of @chain the memory of offers permits. */
static u32 admit_first(struct kvblk_admission *a, const struct kvblk_policy_chain *chain)
{
	const struct kvblk_policy *p = a->policy;
	/* about puts outside chains too little is known to decline them by default */
	u32 first = chain->chain && READ_ONCE(p->second_only) ? 0 : READ_ONCE(p->first_permille);
	u64 lo = chain->ids[0].lo;
	/* pairs with admission_offers() */
	u16 *offers = smp_load_acquire(&a->offers);

	/* nothing is declined until reclaim has begun */
	if (first == KVBLK_POLICY_FIRST || !offers || chain->priority ||
	    chain->wanted || !READ_ONCE(p->reclaims) ||
	    (chain->chain ? chance(a, first) : chance_of(lo, SALT_FIRST, first)))
		return chain->nr;
	return second_offers(a, offers, chain);
}

u32 kvblk_policy_admit(struct kvblk_admission *a, const struct kvblk_policy_chain *chain)
{
	u32 nr;

	if (!a)
		return chain->nr;
	nr = admit_first(a, chain);
	/* where a block of a miniature is a second offer, the whole chain has new ones, too */
	if (nr == chain->nr && !(a->policy->mini && a->policy->second_only))
		nr = chain->chain ? admit_chain(a, chain) : admit_single(a, chain);
	atomic64_add(chain->nr - nr, &a->declined);
	return nr;
}

/* Return whether @r is worth a copy, subject to the budget. */
static bool rec_hot(const struct kvblk_policy *p, const struct kvblk_policy_seg *seg,
		    const struct kvblk_policy_rec *r)
{
	u32 stay = READ_ONCE(p->now) - stamp_tick(seg->stamp);
	u32 limit = max(stay * (1000 - STALE_PERMILLE) / 1000, 1U);

	if (r->expires)
		return false;
	if (r->priority >= 3 || (r->priority == 2 && seg->class == KVBLK_CLASS_NEW))
		return true;
	if (r->priority)
		limit = stay + 1;
	return r->heat && heat_age(p, r->heat) < limit;
}

/* Clear @keep of records that exceed the budget, lowest priorities first. */
static void budget_charge(struct kvblk_policy *p, struct kvblk_policy_rec *recs, u32 nr)
{
	s64 left = 0;
	int priority;
	u32 i;

	for (i = 0; i < nr; i++)
		if (recs[i].keep && !recs[i].leased)
			left += recs[i].bytes;
	/* reserve for the whole segment, so that the lock is not held during the loops */
	spin_lock_bh(&p->lock);
	/* at 0, do not use up savings either */
	left = READ_ONCE(p->reinsert_permille) ? min(left, max(p->budget, 0)) : 0;
	p->budget -= left;
	spin_unlock_bh(&p->lock);

	for (priority = 3; priority >= 0; priority--) {
		/* blocks at larger offsets are nearer to the root of their chain */
		for (i = nr; i--; ) {
			struct kvblk_policy_rec *r = &recs[i];

			if (!r->keep || r->leased || r->priority != priority)
				continue;
			r->keep = left >= r->bytes;
			if (r->keep)
				left -= r->bytes;
			else
				atomic64_inc(&p->stats.over_budget);
		}
	}
	if (!left)
		return;
	spin_lock_bh(&p->lock);
	p->budget = min(p->budget + left, (s64)(p->capacity >> BUDGET_SHIFT));
	spin_unlock_bh(&p->lock);
}

/* Record whether @r was requested again, for the rate of its kind. */
static void rec_verdict(const struct kvblk_policy_rec *r)
{
	struct kvblk_admission *a = r->admission;
	u32 ghost = a ? ghost_take(a, r->id.lo) : 0;

	if (!ghost)
		return;
	ghost_verdict(a, ghost, r->heat);
	if (r->keep || !(ghost & GHOST_WATCHED) || FIELD_GET(GHOST_KIND, ghost) >= KIND_LAST)
		return;
	rate_add(&a->kinds[KIND_DROPPED], 1, 0, RATE_MEMORY);
	ghost_put(a, r->id.lo, GHOST_WATCHED | GHOST_DECLINED, KIND_DROPPED);
}

static u64 young_bytes(const struct kvblk_policy *p, const struct kvblk_policy_rec *recs,
		       u32 nr, u32 age)
{
	const struct kvblk_policy_rec *r;
	u64 bytes = 0;

	/* records with a lease or a priority stay, whatever their touches */
	for (r = recs; r < recs + nr; r++)
		if (r->keep && (r->leased || r->priority || heat_age(p, r->heat) <= age))
			bytes += r->bytes;
	return bytes;
}

/*
 * Leave a mostly hot segment in place, with the stamp of the time when its youngest YOUNG_PERMILLE
 * were touched: after the old stamp, but not so late that its cold blocks outlive new writes.
 */
static void seg_renew(struct kvblk_policy *p, struct kvblk_policy_seg *seg,
		      const struct kvblk_policy_rec *recs, u32 nr)
{
	u32 low = 0, high = 255;	/* the oldest heat */

	while (low < high) {
		u32 age = (low + high) / 2;

		if (young_bytes(p, recs, nr, age) * 1000 > seg->bytes * YOUNG_PERMILLE)
			high = age;
		else
			low = age + 1;
	}
	atomic64_inc(&p->stats.renewed);
	spin_lock_bh(&p->lock);
	seg->stamp = next_stamp(p, min(low, p->now - stamp_tick(seg->stamp)));
	spin_unlock_bh(&p->lock);
}

int kvblk_policy_classify(struct kvblk_policy *p, struct kvblk_policy_seg *seg,
			  struct kvblk_policy_rec *recs, u32 nr, bool force)
{
	u32 kept = 0, i;
	u64 hot = 0, bytes = 0;

	if (!READ_ONCE(p->reclaims))
		WRITE_ONCE(p->reclaims, true);
	for (i = 0; i < nr; i++) {
		recs[i].keep = recs[i].leased || rec_hot(p, seg, &recs[i]);
		hot += recs[i].keep ? recs[i].bytes : 0;
		bytes += recs[i].bytes;
	}
	if (nr) {
		u64 old = READ_ONCE(p->rec_bytes) ?: div_u64(bytes, nr);

		/* of many segments, or else one with odd records would begin a duel anew */
		WRITE_ONCE(p->rec_bytes, div_u64(old * RATE_MEMORY + bytes, RATE_MEMORY + nr));
	}
	if (!force && hot * 1000 > seg->bytes * RENEW_PERMILLE) {
		seg_renew(p, seg, recs, nr);
		return -EAGAIN;
	}

	budget_charge(p, recs, nr);
	for (i = 0; i < nr; i++) {
		const struct kvblk_policy_rec *r = &recs[i];

		rec_verdict(r);
		kept += r->keep;
		if (!r->keep) {
			atomic64_inc(&p->stats.dropped);
		} else if (!r->leased) {
			atomic64_inc(&p->stats.kept);
			atomic64_add(r->bytes, &p->stats.kept_bytes);
		}
	}
	return kept;
}
