// SPDX-License-Identifier: MIT
/* All that the module tells of pools at one time. */
#include <string.h>
#include <time.h>

#include "snapshot.h"

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

int snapshot_take(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot)
{
	int err;

	*snapshot = (struct snapshot){ 0 };
	err = kvblk_pool_get(admin, pool, &snapshot->pools);
	if (!err)
		err = kvblk_member_get(admin, pool, &snapshot->members);
	if (!err)
		err = kvblk_stats_get(admin, pool, &snapshot->stats);
	snapshot->ns = now_ns();
	return err ? cli_admin_fail(admin, err, pool ? pool : "pools") : CLI_OK;
}

void snapshot_free(struct snapshot *snapshot)
{
	kvblk_pool_free(snapshot->pools);
	kvblk_member_free(snapshot->members);
	kvblk_stats_free(snapshot->stats);
	*snapshot = (struct snapshot){ 0 };
}
