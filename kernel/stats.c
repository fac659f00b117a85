// SPDX-License-Identifier: GPL-2.0
/*
 * Counters and latencies, for each CPU. The rule: a CPU writes its own copy only.
 * A reader adds the copies up and may miss what happens meanwhile, but no number
 * ever goes back.
 */
#include <linux/bitops.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <linux/percpu.h>
#include <linux/string.h>

#include "report.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

void kvblk_hist_add(struct kvblk_pool *pool, enum kvblk_hist hist,
		    ktime_t start)
{
	s64 ns = ktime_to_ns(ktime_sub(ktime_get(), start));
	int bucket = ns > 1 ? ilog2((u64)ns) : 0;

	bucket = min(bucket, KVBLK_HIST_BUCKETS - 1);
	this_cpu_inc(pool->stats->hists[hist][bucket]);
}

void kvblk_stats_sum(struct kvblk_pool *pool, struct kvblk_stats *sum)
{
	int cpu, hist, i;

	memset(sum, 0, sizeof(*sum));
	for_each_possible_cpu(cpu) {
		const struct kvblk_stats *s = per_cpu_ptr(pool->stats, cpu);

		for (i = 0; i < KVBLK_COUNTERS; i++)
			sum->counters[i] += READ_ONCE(s->counters[i]);
		for (hist = 0; hist < KVBLK_HISTS; hist++)
			for (i = 0; i < KVBLK_HIST_BUCKETS; i++)
				sum->hists[hist][i] +=
					READ_ONCE(s->hists[hist][i]);
	}
}
