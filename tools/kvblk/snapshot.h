/* SPDX-License-Identifier: MIT */
/* All that the module tells of pools at one time, and rates between two times. */
#ifndef KVBLK_SNAPSHOT_H
#define KVBLK_SNAPSHOT_H

#include "cli.h"

/**
 * struct snapshot - what the module told
 * @pools: the pools
 * @members: theirs
 * @stats: theirs
 * @ns: when, of the monotonic clock
 */
struct snapshot {
	struct kvblk_pool_state *pools;
	struct kvblk_member_state *members;
	struct kvblk_stats *stats;
	uint64_t ns;
};

/* Of @pool, or of all (NULL): CLI_OK, or CLI_ERROR and a message. Free it either way. */
int snapshot_take(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot);
void snapshot_free(struct snapshot *snapshot);

#endif
