/* SPDX-License-Identifier: MIT */
/*
 * Newest states of pools with encrypted tenants, kept in files pools/UUID, off the members, to notice
 * when a drive or its target is rolled back. The rule: an absent member raises no alarm on return,
 * because the superblock of a member is compared with former superblocks of the same member.
 */
#ifndef KVBLKD_APPLY_NEWEST_H
#define KVBLKD_APPLY_NEWEST_H

#include "apply/plan.h"
#include "host/kept.h"

/* Format the path of the file of the pool. Returns @buf. */
char *newest_path(const uint8_t pool_uuid[16], char buf[KEPT_PATH_LEN]);

/* Read the kept state of the pool. Returns 0, -ENOENT, or another negative errno. */
int newest_read(const uint8_t pool_uuid[16], struct state_newest *newest);

/*
 * Raise the kept state of the pool to that of @state->found. Not for pools that were rolled back.
 * Returns 0 or a negative errno.
 */
int newest_keep(const uint8_t pool_uuid[16], const struct state *state);

#endif
