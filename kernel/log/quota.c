// SPDX-License-Identifier: GPL-2.0
/*
 * Soft quotas: a work drops the coldest blocks of each tenant above its soft limit, in the order in
 * which inserts would evict them, until a sixteenth of the limit is free. The rule: only LIVE
 * blocks of that tenant that no lease pins. A walk over the index counts what there is by rank, and
 * a second one drops the ranks that must go.
 */
#include <linux/slab.h>

#include "log/log.h"

#define QUOTA_STEP	1024		/* buckets between two looks at the pool's end */
#define QUOTA_PASSES	8		/* of a run: puts go on meanwhile */
#define QUOTA_WAIT	HZ		/* for invalidations of a member to complete */

struct quota {
	struct kvblk_pool *pool;
	struct kvblk_account *account;
	u16 id;				/* of the tenant */
	u64 ranks[KVBLK_INDEX_RANKS][KVBLK_ACCOUNT_KINDS]; /* usage by rank */
	u32 last;			/* last rank to drop, and how much of it */
	u64 some[KVBLK_ACCOUNT_KINDS];
	u64 dropped;
};

/* Returns by how much the tenant is above what the run shall leave. */
static u64 quota_excess(const struct quota *q, enum kvblk_account_kind kind)
{
	u64 soft = READ_ONCE(q->account->soft[kind]);
	u64 used = kvblk_account_used(q->account, kind);

	if (soft == U64_MAX)
		return 0;
	soft -= soft / 16;
	return used > soft ? used - soft : 0;
}

static bool quota_met(const struct quota *q)
{
	return !quota_excess(q, KVBLK_ACCOUNT_UNITS) && !quota_excess(q, KVBLK_ACCOUNT_BLOCKS);
}

/* Returns false if the walk shall end: the pool goes away, or the tenant is another one. */
static bool quota_enter(const struct quota *q)
{
	if (!kvblk_pool_enter(q->pool))
		return false;
	if (READ_ONCE(q->account->id) == q->id && READ_ONCE(q->account->limited))
		return true;
	kvblk_pool_leave(q->pool);
	return false;
}

static u32 quota_units(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	const struct kvblk_member *member;

	guard(rcu)();
	member = kvblk_member_of(pool, slot->seg);
	return member ? kvblk_slot_units(&member->flash, slot) : 0;
}

/* Waits, without the pool, while a member has many invalidations. Returns as quota_enter(). */
static bool quota_wait(const struct quota *q, const struct kvblk_slot *slot)
{
	struct kvblk_pool *pool = q->pool;
	unsigned long moved;

	kvblk_pool_leave(pool);
	wait_event_idle_timeout(pool->delete_wait, percpu_ref_is_dying(&pool->users) ||
				!kvblk_slot_deletes_full(pool, slot, &moved), QUOTA_WAIT);
	return quota_enter(q);
}

/* Drops a block unless invalidations of its member are stuck. Returns as quota_enter(). */
static bool quota_drop(struct quota *q, const struct kvblk_index_cold *cold)
{
	struct kvblk_pool *pool = q->pool;
	unsigned long moved;

	if (kvblk_slot_deletes_full(pool, &cold->slot, &moved) && !quota_wait(q, &cold->slot))
		return false;
	/* put again, touched, or leased meanwhile: the next walk decides */
	if (kvblk_slot_deletes_full(pool, &cold->slot, &moved) ||
	    !kvblk_entry_drop(pool, cold->id, &cold->slot))
		return true;
	q->dropped++;
	this_cpu_inc(q->account->counters->quota_drops);
	return true;
}

static u64 less(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

/* Returns whether a block of @units must go. */
static bool quota_takes(struct quota *q, u32 rank, u32 units)
{
	if (rank != q->last)
		return rank < q->last;
	if (!q->some[KVBLK_ACCOUNT_UNITS] && !q->some[KVBLK_ACCOUNT_BLOCKS])
		return false;
	q->some[KVBLK_ACCOUNT_UNITS] = less(q->some[KVBLK_ACCOUNT_UNITS], units);
	q->some[KVBLK_ACCOUNT_BLOCKS] = less(q->some[KVBLK_ACCOUNT_BLOCKS], 1);
	return true;
}

/* Counts the tenant's blocks in a bucket, or drops what must go. Returns as quota_enter(). */
static bool quota_bucket(struct quota *q, u64 bucket, bool drop)
{
	struct kvblk_index_cold colds[KVBLK_INDEX_BUCKET];
	struct kvblk_pool *pool = q->pool;
	unsigned int nr = kvblk_index_colds(&pool->index, bucket, q->id,
					    kvblk_policy_tick(&pool->policy), colds), i;
	u32 units;

	for (i = 0; i < nr; i++) {
		if (kvblk_slot_in_dram(&colds[i].slot))
			continue;
		units = quota_units(pool, &colds[i].slot);
		if (!drop) {
			q->ranks[colds[i].rank][KVBLK_ACCOUNT_UNITS] += units;
			q->ranks[colds[i].rank][KVBLK_ACCOUNT_BLOCKS]++;
		} else if (!quota_met(q) && quota_takes(q, colds[i].rank, units) &&
			   !quota_drop(q, &colds[i])) {
			return false;
		}
	}
	return true;
}

/* Walks the index. Returns as quota_enter(). */
static bool quota_walk(struct quota *q, bool drop)
{
	u64 bucket = 0, end;
	bool stays;

	while (bucket < q->pool->index.nr_buckets && !(drop && quota_met(q))) {
		if (!quota_enter(q))
			return false;
		stays = true;
		end = min(bucket + QUOTA_STEP, q->pool->index.nr_buckets);
		for (; bucket < end && stays; bucket++)
			stays = quota_bucket(q, bucket, drop);
		if (!stays)
			return false;
		kvblk_pool_leave(q->pool);
		cond_resched();
	}
	return true;
}

/* Decides which ranks must go, so that there are q->some less. */
static void quota_judge(struct quota *q)
{
	u32 i;

	for (q->last = 0; q->last < KVBLK_INDEX_RANKS; q->last++) {
		const u64 *rank = q->ranks[q->last];

		if (q->some[KVBLK_ACCOUNT_UNITS] <= rank[KVBLK_ACCOUNT_UNITS] &&
		    q->some[KVBLK_ACCOUNT_BLOCKS] <= rank[KVBLK_ACCOUNT_BLOCKS])
			return;
		for (i = 0; i < KVBLK_ACCOUNT_KINDS; i++)
			q->some[i] = less(q->some[i], rank[i]);
	}
}

static void quota_run(struct kvblk_pool *pool, struct quota *q, u16 id)
{
	u32 pass, i;

	scoped_guard(rcu)
		q->account = rcu_dereference(pool->tenants.account[id]);
	if (!q->account || !READ_ONCE(q->account->limited) || !kvblk_account_over(q->account))
		return;
	q->pool = pool;
	q->id = id;
	for (pass = 0; pass < QUOTA_PASSES && !quota_met(q); pass++) {
		memset(q->ranks, 0, sizeof(q->ranks));
		q->dropped = 0;
		/* before the walk, which may miss what is put meanwhile: hot blocks must not pay */
		for (i = 0; i < KVBLK_ACCOUNT_KINDS; i++)
			q->some[i] = quota_excess(q, i);
		if (!quota_walk(q, false))
			return;
		quota_judge(q);
		if (!quota_walk(q, true) || !q->dropped)
			return;
	}
}

void kvblk_quota_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, tenants.quota_work);
	struct quota *q = kvmalloc(sizeof(*q), GFP_KERNEL);
	u32 id;

	/* the next put tries again */
	if (!q)
		return;
	for_each_set_bit(id, pool->tenants.live, KVBLK_TENANT_IDS)
		quota_run(pool, q, id);
	kvfree(q);
}
