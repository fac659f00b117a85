// SPDX-License-Identifier: MIT
/* Pools of this host in pods, see own_pools.h. */
#include <string.h>

#include "pod/own_pools.h"

void own_pools_set(struct own_pools *pools, const struct kvblk_pool_state *list)
{
	static const uint8_t no_pod[16];

	pools->nr = 0;
	for (; list && pools->nr < OWN_POOLS; list = list->next) {
		struct own_pool *pool = &pools->pools[pools->nr];

		if (!memcmp(list->pod_uuid, no_pod, sizeof(no_pod)))
			continue;
		memcpy(pool->name, list->name, sizeof(pool->name));
		memcpy(pool->uuid, list->uuid, sizeof(pool->uuid));
		memcpy(pool->pod, list->pod_uuid, sizeof(pool->pod));
		pools->nr++;
	}
}

const struct own_pool *own_pools_find(const struct own_pools *pools, const uint8_t uuid[16])
{
	for (size_t i = 0; i < pools->nr; i++) {
		if (!memcmp(pools->pools[i].uuid, uuid, 16))
			return &pools->pools[i];
	}
	return NULL;
}
