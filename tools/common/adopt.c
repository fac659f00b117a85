// SPDX-License-Identifier: MIT
/* Pools to adopt and their names, see adopt.h. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/adopt.h"

/* letters of a pool's name that a long name of a node leaves */
#define POOL_LETTERS	8

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

void adopt_name(const struct kvblk_found *pool, unsigned int nr,
		char name[KVBLK_NAME_LEN_MAX + 1])
{
	char both[sizeof(pool->pool) + sizeof(pool->owner)], suffix[16] = "";
	int room, letters;

	if (nr >= 2)
		snprintf(suffix, sizeof(suffix), "-%u", nr);
	room = KVBLK_NAME_LEN_MAX - (int)strlen(suffix);
	/* shorten the pool's name first, which may be the name of all nodes' pools */
	letters = room - 1 - (int)strlen(pool->owner);
	if (letters < POOL_LETTERS)
		letters = POOL_LETTERS;
	snprintf(both, sizeof(both), "%.*s-%s", letters, pool->pool, pool->owner);
	for (char *c = both; *c; c++) {
		if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
			*c = '-';
	}
	snprintf(name, KVBLK_NAME_LEN_MAX + 1, "%.*s%s", room, both, suffix);
}

bool adopt_taken(const struct kvblk_pool_state *up, const struct kvblk_found *list,
		 const char *name)
{
	for (; up; up = up->next) {
		if (!strcmp(up->name, name))
			return true;
	}
	for (; list; list = list->next) {
		if (adopt_is_member(list) && (list->own || !*list->pod) && !strcmp(list->pool, name))
			return true;
	}
	return false;
}
