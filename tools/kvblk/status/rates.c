// SPDX-License-Identifier: MIT
/* Take a snapshot, with a message on failure; compute rates between two snapshots. */
#include <errno.h>
#include <time.h>

#include "cli/cli.h"
#include "status/rates.h"

int snapshot_take(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot)
{
	int err = snapshot_get(admin, pool, snapshot);

	return err ? cli_admin_fail(admin, err, pool ? pool : "pools") : CLI_OK;
}

void interval_wait(uint64_t *ns, double seconds)
{
	struct timespec until;

	*ns += (uint64_t)(seconds * (double)NS_PER_S);
	until.tv_sec = (time_t)(*ns / NS_PER_S);
	until.tv_nsec = (long)(*ns % NS_PER_S);
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

uint64_t stat_quantile(const struct kvblk_stats *now, const struct kvblk_stats *then,
		       unsigned int latency, double q)
{
	uint64_t total = 0, seen = 0, rank, n[KVBLK_STATS_BUCKETS] = { 0 };

	for (uint32_t i = 0; i < now->nr_buckets[latency]; i++) {
		n[i] = now->latency[latency][i];
		if (then)
			n[i] -= then->latency[latency][i];
		total += n[i];
	}
	if (!total)
		return 0;
	rank = (uint64_t)(q * (double)total);
	if (rank >= total)
		rank = total - 1;
	for (uint32_t i = 0; i < KVBLK_STATS_BUCKETS; i++) {
		seen += n[i];
		if (seen > rank)
			return i < 63 ? 2ull << i : UINT64_MAX;
	}
	return 0;
}

bool stat_restarted(const struct kvblk_stats *now, const struct kvblk_stats *then)
{
	for (unsigned int i = 0; i < KVBLK_STATS_COUNTERS; i++) {
		if (now->counter[i] < then->counter[i])
			return true;
	}
	return false;
}

bool snapshot_rates(const struct snapshot *now, const struct snapshot *then,
		    const char *pool, struct rates *rates)
{
	const struct kvblk_stats *new = snapshot_stats(now->stats, pool, "");
	const struct kvblk_stats *old = snapshot_stats(then->stats, pool, "");
	double d[KVBLK_STATS_COUNTERS], keys, hits;

	if (!new || !old || now->ns <= then->ns || stat_restarted(new, old))
		return false;
	rates->seconds = (double)(now->ns - then->ns) / 1e9;
	for (unsigned int i = 0; i < KVBLK_STATS_COUNTERS; i++)
		d[i] = (double)(new->counter[i] - old->counter[i]) / rates->seconds;
	rates->put_s = d[KVBLK_A_COUNTER_PUTS];
	rates->put_bytes_s = d[KVBLK_A_COUNTER_PUT_BYTES];
	rates->get_s = d[KVBLK_A_COUNTER_GETS];
	rates->get_bytes_s = d[KVBLK_A_COUNTER_GET_BYTES];
	rates->miss_s = d[KVBLK_A_COUNTER_GET_MISSES];
	rates->declined_s = d[KVBLK_A_COUNTER_PUT_DECLINED];
	rates->reclaimed_s = d[KVBLK_A_COUNTER_SEGMENTS_RECLAIMED];
	keys = d[KVBLK_A_COUNTER_LOOKUP_KEYS];
	hits = d[KVBLK_A_COUNTER_LOOKUP_HITS];
	if (!(keys > 0)) {
		keys = rates->get_s + rates->miss_s;
		hits = rates->get_s;
	}
	rates->hit_ratio = keys > 0 ? hits / keys : -1;
	rates->put_p50_ns = stat_quantile(new, old, KVBLK_A_LATENCY_PUT, 0.5);
	rates->put_p99_ns = stat_quantile(new, old, KVBLK_A_LATENCY_PUT, 0.99);
	rates->get_p50_ns = stat_quantile(new, old, KVBLK_A_LATENCY_GET, 0.5);
	rates->get_p99_ns = stat_quantile(new, old, KVBLK_A_LATENCY_GET, 0.99);
	return true;
}
