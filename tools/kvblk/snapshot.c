// SPDX-License-Identifier: MIT
/* All that the module tells of pools at one time, and rates between two times. */
#include <string.h>
#include <time.h>

#include "snapshot.h"

uint64_t snapshot_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

int snapshot_get(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot)
{
	int err;

	*snapshot = (struct snapshot){ 0 };
	err = kvblk_pool_get(admin, pool, &snapshot->pools);
	if (!err)
		err = kvblk_member_get(admin, pool, &snapshot->members);
	if (!err)
		err = kvblk_stats_get(admin, pool, &snapshot->stats);
	snapshot->ns = snapshot_clock();
	return err;
}

int snapshot_take(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot)
{
	int err = snapshot_get(admin, pool, snapshot);

	return err ? cli_admin_fail(admin, err, pool ? pool : "pools") : CLI_OK;
}

void snapshot_free(struct snapshot *snapshot)
{
	kvblk_pool_free(snapshot->pools);
	kvblk_member_free(snapshot->members);
	kvblk_stats_free(snapshot->stats);
	*snapshot = (struct snapshot){ 0 };
}

static const struct kvblk_stats *stats_of(const struct snapshot *snapshot, const char *pool)
{
	const struct kvblk_stats *stats = snapshot->stats;

	while (stats && strcmp(stats->pool, pool) != 0)
		stats = stats->next;
	return stats;
}

bool snapshot_rates(const struct snapshot *now, const struct snapshot *then,
		    const char *pool, struct rates *rates)
{
	const struct kvblk_stats *new = stats_of(now, pool), *old = stats_of(then, pool);
	double d[KVBLK_STATS_COUNTERS], keys, hits;

	if (!new || !old || now->ns <= then->ns)
		return false;
	rates->seconds = (double)(now->ns - then->ns) / 1e9;
	for (unsigned int i = 0; i < KVBLK_STATS_COUNTERS; i++) {
		if (new->counter[i] < old->counter[i])
			return false;
		d[i] = (double)(new->counter[i] - old->counter[i]) / rates->seconds;
	}
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
