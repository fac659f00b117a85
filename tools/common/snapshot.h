/* SPDX-License-Identifier: MIT */
/* The state of pools at one time, and rates between two times. */
#ifndef KVBLK_SNAPSHOT_H
#define KVBLK_SNAPSHOT_H

#include <string.h>

#include "lib/kvblk.h"

/**
 * struct snapshot - state of pools at one time
 * @pools: the pools
 * @members: members of the pools
 * @stats: statistics of the pools
 * @member_stats: statistics of the members; snapshot_get_parts() only
 * @size_stats: latencies of puts and gets by size class; snapshot_get_parts() only
 * @ns: time of the snapshot, CLOCK_MONOTONIC nanoseconds
 */
struct snapshot {
	struct kvblk_pool_state *pools;
	struct kvblk_member_state *members;
	struct kvblk_stats *stats;
	struct kvblk_stats *member_stats;
	struct kvblk_stats *size_stats;
	uint64_t ns;
};

/*
 * Take a snapshot of @pool, or of all pools if NULL. Returns 0 or a negative errno; call
 * snapshot_free() in both cases.
 */
int snapshot_get(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
/* Like snapshot_get(), with the statistics of members and size classes. */
int snapshot_get_parts(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
/* Like snapshot_get(), but prints errors. Returns CLI_OK or CLI_ERROR. */
int snapshot_take(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
void snapshot_free(struct snapshot *snapshot);

/*
 * Find the statistics of @pool's @member in @stats ("": of the pool itself). Returns NULL if
 * missing.
 */
static inline const struct kvblk_stats *snapshot_stats(const struct kvblk_stats *stats,
							const char *pool, const char *member)
{
	while (stats && (strcmp(stats->pool, pool) != 0 || strcmp(stats->member, member) != 0))
		stats = stats->next;
	return stats;
}

/*
 * Returns "suspect", "failing" or "read-only", or NULL if the member works. NULL, too, for a
 * dead or departing member: its state says more than old failures.
 */
static inline const char *snapshot_trouble(const struct kvblk_member_state *member)
{
	if (member->state > KVBLK_MEMBER_STATUS_UP)
		return NULL;
	if (member->suspect)
		return "suspect";
	return member->read_only ? "read-only" : member->failing ? "failing" : NULL;
}

/* Returns CLOCK_MONOTONIC in nanoseconds, the clock of snapshot.ns. */
uint64_t snapshot_clock(void);

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
 * Defined in stat.c. Returns an upper bound in ns of quantile @q of the operations between
 * @then and @now.
 */
uint64_t stat_quantile(const struct kvblk_stats *now, const struct kvblk_stats *then,
		       unsigned int latency, double q);

#endif
