/* SPDX-License-Identifier: MIT */
/* Pools to adopt and their names, for the command and the daemon. */
#ifndef KVBLK_ADOPT_H
#define KVBLK_ADOPT_H

#include <stdbool.h>

#include "lib/kvblk_admin.h"

/* limit of the number behind a name that is taken */
#define ADOPT_NAMES	1000

/* Returns whether the device is a member now, of a pool that this version can read. */
bool adopt_is_member(const struct kvblk_found *found);

/* Returns the member of pool @uuid in @list with the most recent member list, or NULL. */
const struct kvblk_found *adopt_newest(const struct kvblk_found *list, const uint8_t uuid[16]);

/*
 * Write the default name of an adopted pool, POOL-NODE, to @name; from @nr 2 on with "-@nr"
 * at the end, for the case that the shorter name is taken.
 */
void adopt_name(const struct kvblk_found *pool, unsigned int nr,
		char name[KVBLK_NAME_LEN_MAX + 1]);

/*
 * Returns whether a pool of @up has the name, or one in @list that is not another node's: an
 * import by this name would mean two pools.
 */
bool adopt_taken(const struct kvblk_pool_state *up, const struct kvblk_found *list,
		 const char *name);

#endif
