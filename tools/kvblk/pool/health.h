/* SPDX-License-Identifier: MIT */
/*
 * Findings about a pool and remedies, for kvblk status, top and doctor: computed from the
 * module's answers, without I/O.
 */
#ifndef KVBLK_HEALTH_H
#define KVBLK_HEALTH_H

#include "cli/cli.h"
#include "common/snapshot.h"

/**
 * enum health - state of a pool, from good to bad
 * @HEALTH_OK: all of the pool serves
 * @HEALTH_NOTE: all of the pool serves, but there is a finding
 * @HEALTH_DEGRADED: a part of the pool does not serve
 * @HEALTH_DOWN: nothing of the pool serves
 */
enum health {
	HEALTH_OK,
	HEALTH_NOTE,
	HEALTH_DEGRADED,
	HEALTH_DOWN,
};

/**
 * struct finding - one finding
 * @health: resulting health of the pool
 * @member: name of the member, or ""
 * @what: the fault
 * @act: the remedy
 */
struct finding {
	enum health health;
	char member[KVBLK_NAME_LEN_MAX + 1];
	char what[192];
	char act[768];
};

/* a few for each member, a few for the pool */
#define HEALTH_FINDINGS_MAX	160

/**
 * struct health_report - health of a pool
 * @health: worst health of the findings
 * @nr_members: members of the pool, missing ones included
 * @nr_up: members that serve
 * @nr_foreign: members of other nodes that the pool follows
 * @nr_foreign_up: of these, members that serve
 * @nr_findings: entries of @findings
 * @findings: the findings
 */
struct health_report {
	enum health health;
	unsigned int nr_members;
	unsigned int nr_up;
	unsigned int nr_foreign;
	unsigned int nr_foreign_up;
	size_t nr_findings;
	struct finding findings[HEALTH_FINDINGS_MAX];
};

/* Returns the index slots that hold all blocks found on media, with a reserve. */
uint64_t index_needs(const struct kvblk_pool_state *pool);

/* Fill @report about @pool of @snapshot. */
void health_of(const struct kvblk_pool_state *pool, const struct snapshot *snapshot,
	       struct health_report *report);

/* Returns "ok", "note", "degraded" or "down". */
const char *health_name(enum health health);

/* Returns the exit code for a pool of this health. */
enum cli_exit health_exit(enum health health);

#endif
