// SPDX-License-Identifier: GPL-2.0
/*
 * Counters and latencies, per CPU. The rules: a CPU writes its own copy only. Readers sum them up
 * and may miss updates, but no value ever decreases. A pool's values are its own plus those of its
 * member slots, which keep the counts of removed members; a new member of a slot reports the
 * increase since it was added.
 */
#include <linux/bitops.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/percpu.h>
#include <linux/string.h>

#include "report/report.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

#define NR_NUMBERS	(sizeof(struct kvblk_stats) / sizeof(u64))

/* Makes the compiler warn of a result flag that the tracepoints do not name. Never called. */
static void __maybe_unused result_flags_named(enum kvblk_result_flags flag)
{
#define NAMED(flag, name)	case flag: break;
	switch (flag) {
	KVBLK_TRACE_RESULTS(NAMED, NAMED)
	}
#undef NAMED
}

static u64 ns_since(ktime_t start)
{
	return ktime_to_ns(ktime_sub(ktime_get(), start));
}

static u32 hist_bucket(u64 ns)
{
	return min(ilog2(ns | 1), KVBLK_HIST_BUCKETS - 1);
}

/* Return the smallest size class for @bytes, which is not 0. */
static u32 size_of(u32 bytes)
{
	return ((u32)ilog2((bytes - 1) | (KVBLK_UNIT - 1)) + 2 - KVBLK_UNIT_SHIFT) / 2;
}

void kvblk_hist_add(struct kvblk_pool *pool, enum kvblk_hist hist, ktime_t start)
{
	this_cpu_inc(pool->stats->own.hists[hist][hist_bucket(ns_since(start))]);
}

void kvblk_hist_add_at(struct kvblk_pool *pool, struct kvblk_stats __percpu *stats,
		       enum kvblk_hist hist, u32 bytes, ktime_t start)
{
	/* first, or else more would have to be saved across the call */
	u64 ns = ns_since(start);
	struct kvblk_size_stats __percpu *size = &pool->stats->sizes[hist][size_of(bytes)];
	u32 bucket = hist_bucket(ns);

	this_cpu_inc(stats->hists[hist][bucket]);
	this_cpu_inc(size->hist[bucket]);
	this_cpu_add(size->ns, ns);
}

int kvblk_stats_init(struct kvblk_pool *pool)
{
	pool->stats = alloc_percpu(struct kvblk_pool_stats);
	return pool->stats ? 0 : -ENOMEM;
}

void kvblk_stats_exit(struct kvblk_pool *pool)
{
	int slot;

	for (slot = 0; slot < KVBLK_MEMBERS_MAX; slot++)
		free_percpu(pool->slots[slot]);
	free_percpu(pool->stats);
}

/* Add all CPUs' copies of @nr numbers, the fields of a structure of u64, to @sum. */
static void numbers_add(const u64 __percpu *numbers, int nr, u64 *sum)
{
	int cpu, i;

	for_each_possible_cpu(cpu) {
		const u64 *from = per_cpu_ptr(numbers, cpu);

		for (i = 0; i < nr; i++)
			sum[i] += READ_ONCE(from[i]);
	}
}

/* Add all CPUs' copies of @stats (may be NULL) to @sum. */
static void stats_add(const struct kvblk_stats __percpu *stats, struct kvblk_stats *sum)
{
	if (stats)
		numbers_add((const u64 __percpu *)stats, NR_NUMBERS, (u64 *)sum);
}

void kvblk_stats_join(struct kvblk_member *member, struct kvblk_stats __percpu *fresh)
{
	struct kvblk_pool *pool = member->flash.pool;
	int slot = member->flash.slot - 1;

	lockdep_assert_held(&pool->admin);
	if (pool->slots[slot])
		free_percpu(fresh);
	else
		/* publish zeroed counters: readers take no lock */
		smp_store_release(&pool->slots[slot], fresh);
	member->flash.stats = pool->slots[slot];
	stats_add(member->flash.stats, &member->flash.stats_before);
}

void kvblk_stats_pool(const struct kvblk_pool *pool, struct kvblk_stats *sum)
{
	int slot;

	memset(sum, 0, sizeof(*sum));
	stats_add(&pool->stats->own, sum);
	for (slot = 0; slot < KVBLK_MEMBERS_MAX; slot++) {
		stats_add(READ_ONCE(pool->slots[slot]), sum);
		cond_resched();
	}
}

void kvblk_stats_member(const struct kvblk_member *member, struct kvblk_stats *sum)
{
	const u64 *before = (const u64 *)&member->flash.stats_before;
	u64 *to = (u64 *)sum;
	int i;

	memset(sum, 0, sizeof(*sum));
	stats_add(member->flash.stats, sum);
	for (i = 0; i < NR_NUMBERS; i++)
		to[i] -= before[i];
}

/* In the order of the attributes from KVBLK_A_POOL_CHECKSUM_FAILURES on. */
static const enum kvblk_counter clearable[KVBLK_CLEARABLE] = {
	KVBLK_C_CHECKSUM_FAILURES,
	KVBLK_C_READ_ERRORS,
	KVBLK_C_WRITE_ERRORS,
	KVBLK_C_PUT_NOSPACE,
};

void kvblk_stats_clear(struct kvblk_pool *pool)
{
	int i;

	for (i = 0; i < KVBLK_CLEARABLE; i++)
		WRITE_ONCE(pool->cleared[i], kvblk_stats_counter(pool, clearable[i]));
	WRITE_ONCE(pool->cleared_at, ktime_get_real_seconds());
}

u64 kvblk_stats_errors(const struct kvblk_pool *pool, u32 i)
{
	u64 seen = READ_ONCE(pool->cleared[i]);

	return kvblk_stats_counter(pool, clearable[i]) - seen;
}

void kvblk_stats_size(const struct kvblk_pool *pool, enum kvblk_hist hist, u32 size,
		      struct kvblk_size_stats *sum)
{
	memset(sum, 0, sizeof(*sum));
	numbers_add((const u64 __percpu *)&pool->stats->sizes[hist][size],
		    sizeof(*sum) / sizeof(u64), (u64 *)sum);
}

void kvblk_stats_tenant(const struct kvblk_account *account, struct kvblk_tenant_counters *sum)
{
	memset(sum, 0, sizeof(*sum));
	numbers_add((const u64 __percpu *)account->counters, sizeof(*sum) / sizeof(u64),
		    (u64 *)sum);
}

u64 kvblk_stats_counter(const struct kvblk_pool *pool, enum kvblk_counter counter)
{
	const struct kvblk_stats __percpu *stats = &pool->stats->own;
	u64 sum = 0;
	int slot;

	numbers_add(&stats->counters[counter], 1, &sum);
	for (slot = 0; slot < KVBLK_MEMBERS_MAX; slot++) {
		stats = READ_ONCE(pool->slots[slot]);
		if (stats)
			numbers_add(&stats->counters[counter], 1, &sum);
	}
	return sum;
}
