/* SPDX-License-Identifier: MIT */
/* All that the module tells of pools at one time, and rates between two times. */
#ifndef KVBLK_SNAPSHOT_H
#define KVBLK_SNAPSHOT_H

#include <string.h>

#include "lib/kvblk.h"

/**
 * struct snapshot - what the module told
 * @pools: the pools
 * @members: theirs
 * @stats: the pools'
 * @member_stats: of snapshot_get_parts(): the members', as is
 * @size_stats: the latencies of puts and gets by class of sizes
 * @ns: when, of the monotonic clock
 */
struct snapshot {
	struct kvblk_pool_state *pools;
	struct kvblk_member_state *members;
	struct kvblk_stats *stats;
	struct kvblk_stats *member_stats;
	struct kvblk_stats *size_stats;
	uint64_t ns;
};

/* Of @pool, or of all (NULL): 0 or a negative errno. Free it either way. */
int snapshot_get(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
/* The same with the statistics of what pools consist of. */
int snapshot_get_parts(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
/* As snapshot_get(): CLI_OK, or CLI_ERROR and a message. */
int snapshot_take(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
void snapshot_free(struct snapshot *snapshot);

/* In the list @stats those of @member of @pool, "": of the pool itself; or NULL. */
static inline const struct kvblk_stats *snapshot_stats(const struct kvblk_stats *stats,
							const char *pool, const char *member)
{
	while (stats && (strcmp(stats->pool, pool) != 0 || strcmp(stats->member, member) != 0))
		stats = stats->next;
	return stats;
}

/*
 * What @member does wrong: "suspect", "failing" or "read-only"; NULL: nothing, or its state
 * says all: one that is dead or on its way out may have failed before.
 */
static inline const char *snapshot_trouble(const struct kvblk_member_state *member)
{
	if (member->state > KVBLK_MEMBER_STATUS_UP)
		return NULL;
	if (member->suspect)
		return "suspect";
	return member->read_only ? "read-only" : member->failing ? "failing" : NULL;
}

/* Nanoseconds of the clock that @ns is of. */
uint64_t snapshot_clock(void);

/**
 * struct rates - of a pool, between two snapshots
 * @seconds: between them
 * @put_s: blocks put a second
 * @put_bytes_s: their bytes
 * @get_s: blocks got a second
 * @get_bytes_s: their bytes
 * @miss_s: gets that missed
 * @declined_s: puts that were declined
 * @reclaimed_s: segments reclaimed
 * @hit_ratio: of the keys that lookups asked for, those found; without lookups of the
 *	gets; negative: nothing was asked for
 * @put_p50_ns: and so on: upper bounds, at most twice too high
 * @put_p99_ns: as @put_p50_ns
 * @get_p50_ns: as @put_p50_ns
 * @get_p99_ns: as @put_p50_ns
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

/* False: @pool came in between, or was made anew. */
bool snapshot_rates(const struct snapshot *now, const struct snapshot *then,
		    const char *pool, struct rates *rates);

/* stat.c's: upper bound in ns of quantile @q of what @now has more than @then. */
uint64_t stat_quantile(const struct kvblk_stats *now, const struct kvblk_stats *then,
		       unsigned int latency, double q);

#endif
