/* SPDX-License-Identifier: MIT */
/*
 * Whether the pools of this host are ready: a function of what the module tells and of
 * the configuration, without I/O.
 */
#ifndef KVBLKD_READY_H
#define KVBLKD_READY_H

#include "common/snapshot.h"
#include "config/config.h"

/* The condition of a member: as snapshot_trouble(), or a &enum kvblk_member_status. */
const char *ready_condition(const struct kvblk_member_state *member);

/* All conditions, and NULL at the end. */
extern const char *const ready_conditions[];

/* The member's blocks are hits: it is up, and neither suspect nor failing, but for writes. */
bool ready_serves(const struct kvblk_member_state *member);

/* Percent of the pool's room that reclaim can't have now; 0 without @stats. */
double ready_held(const struct kvblk_pool_state *pool, const struct kvblk_stats *stats);

/*
 * Why the host is not ready: so many reasons, each a line to @to, which
 * may be NULL. Pools that count are
 * those of @config; if it has none, all that there are. @err: @snapshot could not be
 * taken.
 */
unsigned int ready_reasons(const struct config *config, const struct snapshot *snapshot,
			   int err, FILE *to);

/* A line to @to for each member of the pools that count which is not up, or is read-only. */
void ready_notes(const struct config *config, const struct snapshot *snapshot, FILE *to);

#endif
