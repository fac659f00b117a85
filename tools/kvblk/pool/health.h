/* SPDX-License-Identifier: MIT */
/*
 * What is wrong with a pool, and what to do: for kvblk status and top. A function of
 * what the module tells, without I/O.
 */
#ifndef KVBLK_HEALTH_H
#define KVBLK_HEALTH_H

#include "cli/cli.h"

/**
 * enum health - from good to bad
 * @HEALTH_OK: all of it serves
 * @HEALTH_NOTE: so it does, but something is worth to look at
 * @HEALTH_DEGRADED: a part of it does not serve
 * @HEALTH_DOWN: nothing of it serves
 */
enum health {
	HEALTH_OK,
	HEALTH_NOTE,
	HEALTH_DEGRADED,
	HEALTH_DOWN,
};

/**
 * struct finding - one thing that is wrong
 * @health: how bad that makes the pool
 * @member: the member's name, or ""
 * @what: it is
 * @act: what to do
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
 * struct health_report - of a pool
 * @health: the worst of its findings
 * @nr_members: members of the pool, those that are missing too
 * @nr_up: those that serve
 * @nr_findings: in @findings
 * @findings: what is wrong
 */
struct health_report {
	enum health health;
	unsigned int nr_members;
	unsigned int nr_up;
	size_t nr_findings;
	struct finding findings[HEALTH_FINDINGS_MAX];
};

/* Index slots with which all blocks of @pool that were found fit, with room to spare. */
uint64_t index_needs(const struct kvblk_pool_state *pool);

/* Of @pool; @members and @stats may have others', too. */
void health_of(const struct kvblk_pool_state *pool, const struct kvblk_member_state *members,
	       const struct kvblk_stats *stats, struct health_report *report);

/* "ok", "note", "degraded", "down" */
const char *health_name(enum health health);

/* What a pool of this health makes the command exit with. */
enum cli_exit health_exit(enum health health);

#endif
