/* SPDX-License-Identifier: MIT */
/* Pools found on devices by kvblk_scan(), for import and adopt. */
#ifndef KVBLK_POOL_FOUND_H
#define KVBLK_POOL_FOUND_H

#include "cli/cli.h"

/* Returns whether two members are of the same pool. False for former members. */
bool found_same_pool(const struct kvblk_found *a, const struct kvblk_found *b);

/*
 * Returns the first member in @list of the pool after @pool; NULL at the end. @pool NULL:
 * the first pool.
 */
const struct kvblk_found *found_next_pool(const struct kvblk_found *list,
					  const struct kvblk_found *pool);

/* Returns the member of the pool with the most recent member list. */
const struct kvblk_found *found_newest(const struct kvblk_found *pool);

/* Returns the member @uuid of the pool, or NULL. */
const struct kvblk_found *found_member(const struct kvblk_found *pool, const uint8_t uuid[16]);

/* Returns whether another node of a pod owns the pool: import by name skips such pools. */
bool found_foreign(const struct kvblk_found *pool);

/* Report devices that do not respond, and former or newer members. */
void found_tell_others(const struct kvblk_found *list);

/* Report the members that were not found, and their last place. */
void found_tell_missing(const struct kvblk_found *pool);

/*
 * Import @pool with the parameters @devices, from all found members unless @devices lists
 * members; with @devices->preempt, from the preempted node's members. Returns an enum cli_exit.
 */
int found_import(struct kvblk_admin *admin, const struct kvblk_found *pool,
		 const struct kvblk_pool_spec *devices);

#endif
