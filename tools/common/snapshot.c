// SPDX-License-Identifier: MIT
/* The state of pools at one time. Shared with the daemon: do not use the command's code here. */
#include <errno.h>
#include <time.h>

#include "common/snapshot.h"

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
	err = kvblk_pool_list(admin, pool, &snapshot->pools);
	if (!err)
		err = kvblk_member_list(admin, pool, &snapshot->members);
	if (!err)
		err = kvblk_foreign_list(admin, pool, &snapshot->foreign);
	/* an older module has no pods */
	if (err == -EOPNOTSUPP)
		err = 0;
	if (!err)
		err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_POOL, pool, &snapshot->stats);
	snapshot->ns = snapshot_clock();
	return err;
}

int snapshot_get_parts(struct kvblk_admin *admin, const char *pool, struct snapshot *snapshot)
{
	int err = snapshot_get(admin, pool, snapshot);

	if (!err)
		err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_MEMBER, pool,
				       &snapshot->member_stats);
	if (!err)
		err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_SIZE, pool,
				       &snapshot->size_stats);
	if (!err)
		err = kvblk_tenant_list(admin, pool, &snapshot->tenants);
	/* an older module has no tenants */
	return err == -EOPNOTSUPP ? 0 : err;
}

void snapshot_free(struct snapshot *snapshot)
{
	kvblk_list_free(snapshot->pools);
	kvblk_list_free(snapshot->members);
	kvblk_list_free(snapshot->foreign);
	kvblk_list_free(snapshot->stats);
	kvblk_list_free(snapshot->member_stats);
	kvblk_list_free(snapshot->size_stats);
	kvblk_list_free(snapshot->tenants);
	*snapshot = (struct snapshot){ 0 };
}
