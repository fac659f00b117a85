/* SPDX-License-Identifier: MIT */
/* Pools of this host in pods. */
#ifndef KVBLKD_POD_OWN_POOLS_H
#define KVBLKD_POD_OWN_POOLS_H

#include "lib/kvblk_admin.h"

#define OWN_POOLS	64

/**
 * struct own_pool - a pool
 * @name: name
 * @uuid: identity
 * @pod: identity of its pod
 */
struct own_pool {
	char name[KVBLK_NAME_LEN_MAX + 1];
	uint8_t uuid[16];
	uint8_t pod[16];
};

/**
 * struct own_pools - the pools
 * @pools: pools
 * @nr: entries of @pools in use
 */
struct own_pools {
	struct own_pool pools[OWN_POOLS];
	size_t nr;
};

/* Set @pools to those of @list that are in pods, of which at most OWN_POOLS count. */
void own_pools_set(struct own_pools *pools, const struct kvblk_pool_state *list);

/* Returns the pool with @uuid, or NULL. */
const struct own_pool *own_pools_find(const struct own_pools *pools, const uint8_t uuid[16]);

#endif
