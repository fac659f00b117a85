/* SPDX-License-Identifier: MIT */
/* Rates and latencies of pools between two snapshots. */
#ifndef KVBLK_RATES_H
#define KVBLK_RATES_H

#include "common/snapshot.h"

#define NS_PER_S	1000000000ull

/* Take a snapshot, see snapshot_get(), and print errors. Returns CLI_OK or CLI_ERROR. */
int snapshot_take(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);

/* Advance *@ns by @seconds and sleep until then, on the clock of snapshot_clock(). */
void interval_wait(uint64_t *ns, double seconds);

/* Returns whether counters restarted after @then: the pool was destroyed and created again. */
bool stat_restarted(const struct kvblk_stats *now, const struct kvblk_stats *then);

/**
 * struct rates - activity of a pool between two snapshots
 * @seconds: time between the snapshots
 * @put_s: blocks put per second
 * @put_bytes_s: bytes put per second
 * @get_s: blocks fetched per second
 * @get_bytes_s: bytes fetched per second
 * @miss_s: gets that missed, per second
 * @declined_s: puts that admission declined, per second
 * @reclaimed_s: segments reclaimed per second
 * @hit_ratio: found share of the keys looked up, or of the gets if there were no lookups;
 *	negative if there were neither
 * @put_p50_ns: median put latency. An upper bound, at most twice too high, like the other
 *	percentiles
 * @put_p99_ns: 99th percentile of put latency
 * @get_p50_ns: median get latency
 * @get_p99_ns: 99th percentile of get latency
 */
struct rates {
	double seconds;
	double put_s;
	double put_bytes_s;
	double get_s;
	double get_bytes_s;
	double miss_s;
	double declined_s;
	double reclaimed_s;
	double hit_ratio;
	uint64_t put_p50_ns;
	uint64_t put_p99_ns;
	uint64_t get_p50_ns;
	uint64_t get_p99_ns;
};

/* Compute @rates. Returns false if @pool is not in both snapshots, or its counters restarted. */
bool snapshot_rates(const struct snapshot *now, const struct snapshot *then,
		    const char *pool, struct rates *rates);

/*
 * Returns an upper bound in ns of the quantile @q of what was counted between @then and @now;
 * @then NULL: since the start. Buckets are powers of two, so the bound is at most twice too
 * high.
 */
uint64_t stat_quantile(const struct kvblk_stats *now, const struct kvblk_stats *then,
		       unsigned int latency, double q);

#endif
