/* SPDX-License-Identifier: MIT */
/*
 * The endurance governor: keeps the bytes written to a pool's flash within a budget, only by
 * moving admission. Puts are never delayed; a chain that is not admitted misses later. The
 * governor first rejects more kinds of chains (admit_permille), then first offers
 * (first_permille), then a part of repeated offers (second_permille).
 *
 * The governor is a pure function: time, bytes written and present setting in; new setting and
 * reason out. kvblkd and "kvblk replay --simulate" therefore share it.
 */
#ifndef KVBLKD_POLICY_GOVERNOR_H
#define KVBLKD_POLICY_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#define GOVERNOR_DAY	86400.0
/* seconds between decisions; long enough for a meaningful write rate */
#define GOVERNOR_STEP	300.0

/**
 * struct governor - state of a pool; zero-initialised
 * @last_s: time of the last decision, seconds of any clock that does not jump
 * @last_bytes: bytes written up to then
 * @rate: bytes a second, mean of about six hours
 * @saved: unused bytes of the budget, negative: debt
 * @started: there was a decision
 */
struct governor {
	double last_s;
	double last_bytes;
	double rate;
	double saved;
	bool started;
};

/**
 * struct governor_setting - tunables of a pool that the governor moves
 * @admit: admit_permille
 * @first: first_permille
 * @second: second_permille
 */
struct governor_setting {
	unsigned int admit;
	unsigned int first;
	unsigned int second;
};

/**
 * struct governor_look - inputs of a decision
 * @now_s: time, see &governor.last_s
 * @bytes: bytes written to the members so far, reclaim's copies included. A lower value than
 *	before, as after the module was loaded again, restarts the count
 * @budget: bytes a day, more than 0
 * @now: present setting
 * @admit_most: upper limit of admit_permille, set by the operator
 */
struct governor_look {
	double now_s;
	double bytes;
	double budget;
	struct governor_setting now;
	unsigned int admit_most;
};

/**
 * enum governor_reason - reason for the setting
 * @GOVERNOR_WAITS: there is no rate yet
 * @GOVERNOR_KEEPS: the rate matches the budget
 * @GOVERNOR_LOWERS: the rate is above the budget
 * @GOVERNOR_RAISES: the rate is below the budget, and more can be admitted
 * @GOVERNOR_OPEN: the rate is below the budget, and admission is at the operator's limit
 * @GOVERNOR_AT_FLOOR: the rate is above the budget, and only blocks with a priority are admitted
 */
enum governor_reason {
	GOVERNOR_WAITS,
	GOVERNOR_KEEPS,
	GOVERNOR_LOWERS,
	GOVERNOR_RAISES,
	GOVERNOR_OPEN,
	GOVERNOR_AT_FLOOR,
};

/**
 * struct governor_verdict - decision
 * @set: new setting
 * @reason: reason for it
 * @rate: bytes a day being written
 * @allowed: bytes a day allowed now: the budget, plus or minus a share of &governor.saved
 */
struct governor_verdict {
	struct governor_setting set;
	enum governor_reason reason;
	double rate;
	double allowed;
};

/**
 * governor_decide - decide on the setting
 * @g: state of the pool
 * @look: inputs; not more often than each GOVERNOR_STEP seconds
 *
 * Return: the decision.
 */
struct governor_verdict governor_decide(struct governor *g,
					const struct governor_look *look);

/**
 * governor_life_budget - daily budget for a drive to last a number of days
 * @written: bytes written in the drive's life, from its SMART log
 * @used_percent: "percentage used" of the same log; may exceed 100
 * @days: days to last from now on, more than 0
 *
 * Return: bytes a day; 0 if the drive is worn out; infinity if no percent is used.
 */
double governor_life_budget(double written, unsigned int used_percent, double days);

/* Returns the reason in words for the log, such as "admits less". */
const char *governor_words(enum governor_reason reason);

#endif
