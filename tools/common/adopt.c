// SPDX-License-Identifier: MIT
/* Pools to adopt and their names, see adopt.h. */
#include <string.h>

#include "common/adopt.h"

bool adopt_is_member(const struct kvblk_found *found)
{
	return !found->silent && !found->other_version && !found->former;
}

const struct kvblk_found *adopt_newest(const struct kvblk_found *list, const uint8_t uuid[16])
{
	const struct kvblk_found *best = NULL;

	for (; list; list = list->next) {
		if (adopt_is_member(list) && !memcmp(list->pool_uuid, uuid, 16) &&
		    (!best || list->epoch > best->epoch ||
		     (list->epoch == best->epoch && list->roster_seq > best->roster_seq)))
			best = list;
	}
	return best;
}
