// SPDX-License-Identifier: MIT
/* Take a snapshot, with a message on failure; compute rates between two snapshots. */
#include <string.h>

#include "cli/cli.h"
#include "common/snapshot.h"

int snapshot_take(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot)
{
	int err = snapshot_get(admin, pool, snapshot);

	return err ? cli_admin_fail(admin, err, pool ? pool : "pools") : CLI_OK;
}

bool snapshot_rates(const struct snapshot *now, const struct snapshot *then,
		    const char *pool, struct rates *rates)
{
	const struct kvblk_stats *new = snapshot_stats(now->stats, pool, "");
	const struct kvblk_stats *old = snapshot_stats(then->stats, pool, "");
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
