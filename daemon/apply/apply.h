/* SPDX-License-Identifier: MIT */
/*
 * Apply the configuration to the host: read the state, plan, carry out the steps, and
 * repeat until no step is left to do now. A failed step is retried with growing delays. Its
 * failure is reported once, and again if the reason changes. All memory of earlier passes
 * may be dropped at any time: steps are then reported and tried once more.
 */
#ifndef KVBLKD_APPLY_APPLY_H
#define KVBLKD_APPLY_APPLY_H

#include "apply/plan.h"

#define APPLY_LONGEST_GAP	60	/* longest delay between retries of a step, seconds */

/* Outcome of a step. */
enum apply_outcome {
	APPLY_NOTE,	/* a note, nothing to carry out */
	APPLY_PLANNED,	/* not carried out: dry run */
	APPLY_DONE,
	APPLY_FAILED,	/* failed; why is passed along */
};

/**
 * struct apply - state kept between passes
 * @told: callback for each step with news
 * @arg: argument of @told
 * @patience: seconds after a connection during which notes are held back, because the
 *	kernel looks for namespaces only after connecting; 0: the caller is notified of new
 *	devices
 * @connected: time of the last connection, seconds
 * @settled: pools, controllers, modules and foreign members whose settings have been applied
 * @follows: a pool follows others, as of the last pass
 * @since: for each pool of the configuration, when it was first found missing, seconds; or
 *	0
 * @nr_since: entries of @since
 * @silences: pools of other nodes, and when their owners wrote last
 * @known: notes that were reported, and steps that failed
 */
struct apply {
	void (*told)(void *arg, const struct step *step, enum apply_outcome outcome,
		     const char *why);
	void *arg;
	int64_t patience;
	int64_t connected;
	struct texts settled;
	bool follows;
	int64_t *since;
	size_t nr_since;
	struct silence *silences;
	struct apply_known *known;
};

/**
 * struct apply_result - result of a pass
 * @nr_failed: steps that failed or wait for a retry
 * @nr_notes: notes in the plan
 * @next: seconds until the next retry; -1: none
 */
struct apply_result {
	unsigned int nr_failed;
	unsigned int nr_notes;
	int64_t next;
};

/* Run one pass; may block. Returns 0, or a negative errno if the host state cannot be read. */
int apply(struct apply *apply, const struct config *config, bool dry_run,
	  struct apply_result *result);

/* Drop all state, so that the next pass applies every setting again. */
void apply_forget(struct apply *apply);

/* Make the next pass apply the settings of @pool again, and follow what it follows by them. */
void apply_unsettle(struct apply *apply, const char *pool);

#endif
