/* SPDX-License-Identifier: MIT */
/*
 * Brings the host to what the configuration describes: reads the state, makes the plan,
 * carries its steps out, and again until nothing more can be done now. The rules: a
 * step that failed is tried again later and later; it is told once, and again when it
 * fails otherwise. What is remembered may be forgotten at any time: then things are
 * told and tried once more.
 */
#ifndef KVBLKD_APPLY_H
#define KVBLKD_APPLY_H

#include "apply/plan.h"

/* What became of a step. */
enum apply_outcome {
	APPLY_NOTE,	/* it is a note */
	APPLY_PLANNED,	/* it was not to be carried out */
	APPLY_DONE,
	APPLY_FAILED,	/* and it says why */
};

/**
 * struct apply - what is remembered from one time to the next
 * @told: is called for each step that there is something new about
 * @arg: for it
 * @patience: for so many seconds after a connection no note is told, for the kernel
 *	looks for namespaces after it has answered; 0: the caller hears of them
 * @connected: when the last connection was made, seconds
 * @settled: pools and controllers that are set as the file has it
 * @since: when each pool of the configuration was waited for first, seconds
 * @nr_since: of them
 * @known: steps that failed, and notes
 */
struct apply {
	void (*told)(void *arg, const struct step *step, enum apply_outcome outcome,
		     const char *why);
	void *arg;
	int64_t patience;
	int64_t connected;
	struct texts settled;
	int64_t *since;
	size_t nr_since;
	struct apply_known *known;
};

/**
 * struct apply_result - how far it came
 * @nr_failed: steps that failed, or wait for their next turn
 * @nr_notes: what is left to others
 * @next: seconds until something is to be tried again; -1: nothing is
 */
struct apply_result {
	unsigned int nr_failed;
	unsigned int nr_notes;
	int64_t next;
};

/* Takes some time. 0 or a negative errno: the state can't be read. */
int apply(struct apply *apply, const struct config *config, bool dry_run,
	  struct apply_result *result);

/* Forgets it all: what the file has is set again. */
void apply_forget(struct apply *apply);

/* Forgets that this pool is set. */
void apply_unsettle(struct apply *apply, const char *pool);

#endif
