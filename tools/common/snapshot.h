/* SPDX-License-Identifier: MIT */
/* The state of pools at one time, for the command and the daemon. */
#ifndef KVBLK_SNAPSHOT_H
#define KVBLK_SNAPSHOT_H

#include <string.h>

#include "lib/kvblk_admin.h"

/**
 * struct snapshot - state of pools at one time
 * @pools: the pools
 * @members: members of the pools
 * @foreign: members of other nodes that the pools follow
 * @stats: statistics of the pools
 * @member_stats: statistics of the members; snapshot_get_parts() only
 * @size_stats: latencies of puts and gets by size class; snapshot_get_parts() only
 * @tenants: tenants of the pools; snapshot_get_parts() only
 * @ns: time of the snapshot, CLOCK_MONOTONIC nanoseconds
 */
struct snapshot {
	struct kvblk_pool_state *pools;
	struct kvblk_member_state *members;
	struct kvblk_member_state *foreign;
	struct kvblk_stats *stats;
	struct kvblk_stats *member_stats;
	struct kvblk_stats *size_stats;
	struct kvblk_tenant_state *tenants;
	uint64_t ns;
};

/*
 * Take a snapshot of @pool, or of all pools if NULL. Returns 0 or a negative errno; call
 * snapshot_free() in both cases.
 */
int snapshot_get(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
/* Like snapshot_get(), with the statistics of members and size classes, and with tenants. */
int snapshot_get_parts(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
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
 * Returns "suspect", "failing", "fenced" or "read-only", or NULL if the member works. NULL, too,
 * for a dead or departing member: its state says more than old failures.
 */
static inline const char *snapshot_trouble(const struct kvblk_member_state *member)
{
	if (member->state > KVBLK_MEMBER_STATUS_UP)
		return NULL;
	if (member->suspect)
		return "suspect";
	if (member->fenced)
		return "fenced";
	return member->read_only ? "read-only" : member->failing ? "failing" : NULL;
}

/* Returns CLOCK_MONOTONIC in nanoseconds, the clock of snapshot.ns. */
uint64_t snapshot_clock(void);

#endif
