/* SPDX-License-Identifier: MIT */
/* Pools to adopt and their names, for the command and the daemon. */
#ifndef KVBLK_ADOPT_H
#define KVBLK_ADOPT_H

#include <stdbool.h>

#include "lib/kvblk_admin.h"

/* Returns whether the device is a member now, of a pool that this version can read. */
bool adopt_is_member(const struct kvblk_found *found);

/* Returns the member of pool @uuid in @list with the most recent member list, or NULL. */
const struct kvblk_found *adopt_newest(const struct kvblk_found *list, const uint8_t uuid[16]);

#endif
