/* SPDX-License-Identifier: MIT */
/* Readiness of the host's pools, computed from a snapshot and the configuration, without I/O. */
#ifndef KVBLKD_METRICS_READINESS_H
#define KVBLKD_METRICS_READINESS_H

#include "common/snapshot.h"
#include "config/config.h"

/* Returns the condition of a member: snapshot_trouble(), or the name of its status. */
const char *ready_condition(const struct kvblk_member_state *member);

/* All conditions, with a NULL at the end. */
extern const char *const ready_conditions[];

/* Returns true if gets of the member's blocks hit: up, not suspect, failing for writes at most. */
bool ready_serves(const struct kvblk_member_state *member);

/*
 * Write each reason why the host is not ready as a line to @to, which may be NULL. All pools
 * count, or those of @config if it has any. @err: error of the snapshot, or 0. Returns the
 * number of reasons.
 */
unsigned int ready_reasons(const struct config *config, const struct snapshot *snapshot,
			   int err, FILE *to);

/* Write a line for each member of the counted pools that does not serve or is read-only. */
void ready_notes(const struct config *config, const struct snapshot *snapshot, FILE *to);

#endif
