// SPDX-License-Identifier: GPL-2.0
/*
 * The duel of duel.h. A miniature has a log whose segments hold a block each, a memory in front of
 * it in proportion to the pool's, and a table to find blocks. It does as log/reclaim.c and
 * dram/demote.c do.
 *
 * A miniature may lack a block that the pool has. A runtime would then put the block again, in a
 * chain that is not known here, so that the miniature does not judge the chain's kind.
 */
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/math.h>
#include <linux/math64.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "policy/duel.h"

#define BLOCKS		384	/* of the log, at most */
#define BLOCKS_MIN	64
#define SCALE		8	/* blocks of a small pool for each block of its miniature */
#define MEMORY		1536	/* blocks in memory, at most: behind more, the log matters little */
#define HEADS		512	/* lists of blocks with the same hash */
#define NONE		0xffff
#define FIT_PERMILLE	300	/* change of the pool's size that makes new miniatures */

#define HOLD		32	/* requests for which the lock is held at once */
#define WARM_UP		1024	/* requests before the first verdict */
#define RECENT		8192	/* requests that a verdict remembers */
#define MARGIN_PERMILLE	10	/* of the requests: hits that first offers must have more */

struct mini_block {
	u64 lo;
	u16 next;	/* with the same hash */
	u8 heat;	/* in the log: as in the index */
	u8 kind;	/* in memory, as what follows: see struct kvblk_policy_chain */
	bool goes_on;
	bool wanted;
	bool touched;	/* requested since it was last at the cold end */
	bool needed;	/* requested since it was put */
};

struct kvblk_mini {
	struct kvblk_policy policy;
	u32 size;			/* capacity of the log */
	u32 nr_written;			/* used places of the log, up to @size */
	u32 memory;			/* capacity of the memory */
	u32 nr_memory;
	u32 cold;			/* the coldest place of the memory's ring */
	struct kvblk_policy_seg segs[BLOCKS];		/* one for each block of the log */
	u16 order[BLOCKS];		/* a heap of used places of the log, oldest stamp first */
	struct mini_block blocks[BLOCKS + MEMORY];	/* the log, then the ring */
	u16 heads[HEADS];
};

static u16 *mini_head(struct kvblk_mini *m, u64 lo)
{
	return &m->heads[(lo >> 32) % HEADS];
}

static struct mini_block *mini_find(struct kvblk_mini *m, u64 lo)
{
	u32 at;

	for (at = *mini_head(m, lo); at != NONE; at = m->blocks[at].next)
		if (m->blocks[at].lo == lo)
			return &m->blocks[at];
	return NULL;
}

static void mini_link(struct kvblk_mini *m, u32 at, const struct mini_block *block)
{
	u16 *head = mini_head(m, block->lo);

	m->blocks[at] = *block;
	m->blocks[at].next = *head;
	*head = at;
}

static void mini_unlink(struct kvblk_mini *m, u32 at)
{
	u16 *link = mini_head(m, m->blocks[at].lo);

	while (*link != at)
		link = &m->blocks[*link].next;
	*link = m->blocks[at].next;
}

static void seg_open(struct kvblk_mini *m, u32 at, enum kvblk_policy_class class)
{
	m->segs[at] = (struct kvblk_policy_seg) {
		.stamp = kvblk_policy_open(&m->policy, class, 1),
		.bytes = 1,
		.class = class,
	};
}

/* Restore the heap after the stamp of its first place, the oldest, grew. */
static void mini_sift(struct kvblk_mini *m)
{
	u32 at = 0, child;

	while ((child = 2 * at + 1) < m->nr_written) {
		if (child + 1 < m->nr_written &&
		    m->segs[m->order[child + 1]].stamp < m->segs[m->order[child]].stamp)
			child++;
		if (m->segs[m->order[at]].stamp < m->segs[m->order[child]].stamp)
			return;
		swap(m->order[at], m->order[child]);
		at = child;
	}
}

/* Drop a block of the full log. Returns its place. */
static u32 mini_reclaim(struct kvblk_mini *m)
{
	u32 tries = 0;

	/* ends, because copies use up the budget */
	while (true) {
		u32 at = m->order[0];	/* none is dead, so the oldest is next */
		struct kvblk_policy_rec rec = {
			.id.lo = m->blocks[at].lo,
			.admission = &m->policy.own,
			.bytes = 1,
			.heat = m->blocks[at].heat,
		};

		kvblk_policy_classify(&m->policy, &m->segs[at], &rec, 1,
				      tries >= kvblk_policy_tries(m->size));
		if (!rec.keep) {
			mini_unlink(m, at);
			return at;
		}
		/* left in place, or copied there */
		if (tries++ >= kvblk_policy_tries(m->size))
			seg_open(m, at, KVBLK_CLASS_HOT);
		mini_sift(m);
	}
}

static void mini_write(struct kvblk_mini *m, u64 lo)
{
	const struct mini_block block = { .lo = lo };
	u32 at = m->nr_written;

	if (at < m->size)
		/* the newest stamp belongs at the heap's end */
		m->order[m->nr_written++] = at;
	else
		at = mini_reclaim(m);
	seg_open(m, at, KVBLK_CLASS_NEW);
	mini_sift(m);
	mini_link(m, at, &block);
}

/* Write @block to the log if the policy admits it. */
static void mini_offer(struct kvblk_mini *m, const struct mini_block *block)
{
	const struct kvblk_id id = { .lo = block->lo };
	const struct kvblk_policy_chain chain = {
		.ids = &id,
		.nr = 1,
		.chain = true,
		.goes_on = block->goes_on,
		.wanted = block->wanted,
		.kind = block->kind,
	};

	if (kvblk_policy_admit(&m->policy.own, &chain))
		mini_write(m, block->lo);
}

/* Make room in the full memory: the coldest block that was not requested lately leaves it. */
static void mini_evict(struct kvblk_mini *m)
{
	struct mini_block block;
	u32 at;

	do {
		at = m->size + m->cold;
		block = m->blocks[at];
		mini_unlink(m, at);
		/* the place of the coldest block is the next one of the hottest */
		m->cold = (m->cold + 1) % m->memory;
		block.needed |= block.touched;
		if (!block.touched)
			break;
		block.touched = false;
		mini_link(m, at, &block);
	} while (true);
	m->nr_memory--;
	if (block.needed)
		mini_write(m, block.lo);
	else
		mini_offer(m, &block);
}

/* Request @block, and put it if it is absent. Returns whether it was present. */
static bool mini_request(struct kvblk_mini *m, const struct mini_block *block)
{
	struct mini_block *found = mini_find(m, block->lo);

	if (found) {
		found->heat = kvblk_policy_tick(&m->policy);
		found->touched = true;
		return true;
	}
	if (!m->memory) {
		mini_offer(m, block);
		return false;
	}
	if (m->nr_memory == m->memory)
		mini_evict(m);
	mini_link(m, m->size + (m->cold + m->nr_memory++) % m->memory, block);
	return false;
}

static void score_add(struct kvblk_duel_score *score, const bool *hits)
{
	u32 side;

	WRITE_ONCE(score->refs, score->refs + 1);
	for (side = 0; side < KVBLK_DUEL_SIDES; side++)
		WRITE_ONCE(score->hits[side], score->hits[side] + hits[side]);
}

static void duel_request(struct kvblk_duel *d, const struct mini_block *block)
{
	bool hits[KVBLK_DUEL_SIDES];
	u32 side;

	lockdep_assert_held(&d->lock);
	for (side = 0; side < KVBLK_DUEL_SIDES; side++)
		hits[side] = mini_request(&d->minis[side], block);
	score_add(&d->all, hits);
	/* both have all blocks until one is full */
	if (!d->minis[KVBLK_DUEL_FIRST].policy.reclaims)
		return;
	score_add(&d->recent, hits);
	if (d->recent.refs < RECENT)
		return;
	WRITE_ONCE(d->recent.refs, d->recent.refs / 2);
	for (side = 0; side < KVBLK_DUEL_SIDES; side++)
		WRITE_ONCE(d->recent.hits[side], d->recent.hits[side] / 2);
}

void __kvblk_duel_touch(struct kvblk_duel *d, struct kvblk_id id)
{
	const struct mini_block block = {
		.lo = id.lo, .kind = KVBLK_POLICY_ANY, .goes_on = true,
	};

	if (!spin_trylock(&d->lock))
		return;
	if (d->minis)
		duel_request(d, &block);
	spin_unlock(&d->lock);
}

bool kvblk_duel_samples_any(const struct kvblk_duel *d, const struct kvblk_policy_chain *chain)
{
	u32 i;

	if (!READ_ONCE(d->sampled))
		return false;
	for (i = 0; i < chain->nr; i++)
		if (kvblk_duel_samples(d, chain->ids[i]))
			return true;
	return false;
}

void kvblk_duel_offer(struct kvblk_duel *d, const struct kvblk_policy_chain *chain)
{
	struct mini_block block = {
		.kind = chain->chain ? chain->kind : KVBLK_POLICY_ANY,
		.wanted = chain->wanted || chain->priority,
	};
	u32 i, locked = 0;

	/* in the order of writing */
	for (i = chain->nr; i--; ) {
		if (!kvblk_duel_samples(d, chain->ids[i]))
			continue;
		if (!locked && !spin_trylock(&d->lock))
			return;
		block.lo = chain->ids[i].lo;
		block.goes_on = !chain->chain || chain->goes_on || i + 1 < chain->nr;
		if (d->minis)
			duel_request(d, &block);
		if (++locked < HOLD)
			continue;
		spin_unlock(&d->lock);
		locked = 0;
		cond_resched();
	}
	if (locked)
		spin_unlock(&d->lock);
}

void kvblk_duel_init(struct kvblk_duel *d, struct kvblk_policy *p)
{
	memset(d, 0, sizeof(*d));
	d->policy = p;
	spin_lock_init(&d->lock);
	mutex_init(&d->judge);
}

static void minis_free(struct kvblk_mini *minis)
{
	u32 side;

	for (side = 0; minis && side < KVBLK_DUEL_SIDES; side++)
		kvblk_policy_destroy(&minis[side].policy);
	kvfree(minis);
}

static struct kvblk_mini *minis_new(u32 size, u32 memory)
{
	struct kvblk_mini *minis = kvcalloc(KVBLK_DUEL_SIDES, sizeof(*minis),
					    GFP_KERNEL | __GFP_NOWARN);
	u32 side;

	for (side = 0; minis && side < KVBLK_DUEL_SIDES; side++) {
		struct kvblk_mini *m = &minis[side];

		m->size = size;
		m->memory = memory;
		memset(m->heads, 0xff, sizeof(m->heads));
		if (!kvblk_policy_init_mini(&m->policy, size, side == KVBLK_DUEL_SECOND))
			continue;
		minis_free(minis);
		return NULL;
	}
	return minis;
}

void kvblk_duel_destroy(struct kvblk_duel *d)
{
	minis_free(d->minis);
	d->minis = NULL;
}

/* Exchange the miniatures for @minis, or for none, and forget the requests so far. */
static void duel_exchange(struct kvblk_duel *d, struct kvblk_mini *minis, u32 sampled)
{
	spin_lock(&d->lock);
	swap(d->minis, minis);
	WRITE_ONCE(d->sampled, sampled);
	memset(&d->recent, 0, sizeof(d->recent));
	spin_unlock(&d->lock);
	minis_free(minis);
}

/*
 * Begin anew, for a pool of @blocks with @memory blocks in front of it. If the allocation fails, go
 * on as before.
 */
static void duel_fit(struct kvblk_duel *d, u64 blocks, u64 memory)
{
	u32 size = clamp_t(u64, div_u64(blocks, SCALE), BLOCKS_MIN, BLOCKS);
	u64 ring = div64_u64(min(memory, MEMORY * blocks) * size, blocks);
	struct kvblk_mini *minis = minis_new(size, min(ring, MEMORY));

	if (!minis)
		return;
	duel_exchange(d, minis, min(div64_u64((u64)size << 32, blocks), U32_MAX));
	d->pool_blocks = blocks;
	d->pool_memory = memory;
}

/* Return whether @now and @then differ too much for the same miniatures. */
static bool unfit(u64 now, u64 then)
{
	return abs_diff(now, then) * 1000 > then * FIT_PERMILLE;
}

/* Let the miniatures have the pool's tunables. */
static void duel_tune(struct kvblk_duel *d)
{
	const struct kvblk_policy *from = d->policy;
	u32 side;

	for (side = 0; side < KVBLK_DUEL_SIDES; side++) {
		struct kvblk_policy *p = &d->minis[side].policy;

		WRITE_ONCE(p->admit_permille, READ_ONCE(from->admit_permille));
		WRITE_ONCE(p->second_permille, READ_ONCE(from->second_permille));
		WRITE_ONCE(p->reinsert_permille, READ_ONCE(from->reinsert_permille));
	}
	/* a failed allocation leaves the former value */
	kvblk_policy_set_first(&d->minis[KVBLK_DUEL_FIRST].policy,
			       READ_ONCE(from->first_permille));
}

void kvblk_duel_judge(struct kvblk_duel *d, u64 memory)
{
	struct kvblk_policy *p = d->policy;
	u32 bytes = READ_ONCE(p->rec_bytes);
	u64 blocks, refs, first, second;

	/* another reclaim judges */
	if (!bytes || !mutex_trylock(&d->judge))
		return;
	blocks = div_u64(READ_ONCE(p->capacity), bytes);
	memory = div_u64(memory, bytes);
	if (!d->off && blocks >= BLOCKS_MIN &&
	    (unfit(blocks, d->pool_blocks) || unfit(memory, d->pool_memory)))
		duel_fit(d, blocks, memory);
	refs = READ_ONCE(d->recent.refs);
	first = READ_ONCE(d->recent.hits[KVBLK_DUEL_FIRST]);
	second = READ_ONCE(d->recent.hits[KVBLK_DUEL_SECOND]);
	if (!d->off && refs >= WARM_UP) {
		duel_tune(d);
		kvblk_policy_set_second_only(p, first * 1000 <=
					     second * 1000 + refs * MARGIN_PERMILLE);
	}
	mutex_unlock(&d->judge);
}

void kvblk_duel_set(struct kvblk_duel *d, bool on)
{
	guard(mutex)(&d->judge);
	d->off = !on;
	if (on)
		return;
	duel_exchange(d, NULL, 0);
	d->pool_blocks = 0;
	kvblk_policy_set_second_only(d->policy, false);
}
