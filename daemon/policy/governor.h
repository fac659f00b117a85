/* SPDX-License-Identifier: MIT */
/*
 * The endurance governor: keeps what is written to a pool's flash within a
 * budget, by how generous admission is and by nothing else. Puts are never
 * held back for it; a chain that is not admitted is a miss later. At first it
 * declines more kinds of chains (admit_permille), then what is offered for the
 * first time (first_permille), then some of what is offered again
 * (second_permille).
 *
 * Rule: a pure function of what it is given. Time, bytes written and the setting
 * that is in force come in, the setting to have comes out, with its reason. So it
 * runs in the daemon and in "kvblk replay --simulate" alike.
 */
#ifndef KVBLKD_GOVERNOR_H
#define KVBLKD_GOVERNOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GOVERNOR_DAY	86400.0
/* seconds between two looks: several of a pool's, so that a rate is one */
#define GOVERNOR_STEP	300.0

/**
 * struct governor - one for each pool; begins zeroed
 * @last_s: time of the last look, seconds of any clock that does not jump
 * @last_bytes: written by then
 * @rate: bytes a second, the mean of about the last six hours
 * @saved: bytes of the budget that were not used, negative for a debt
 * @started: there was a look
 */
struct governor {
	double last_s;
	double last_bytes;
	double rate;
	double saved;
	bool started;
};

/**
 * struct governor_setting - a pool's tunables that it moves
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
 * struct governor_look - what the governor is given
 * @now_s: time, see &governor.last_s
 * @bytes: written to the members so far, reclaim's copies included. When it goes
 *	back, as after the module was loaded anew, the look begins a new count
 * @budget: bytes a day, more than 0
 * @now: what is set
 * @admit_most: the most that admit_permille may be: what the operator set
 */
struct governor_look {
	double now_s;
	double bytes;
	double budget;
	struct governor_setting now;
	unsigned int admit_most;
};

/**
 * enum governor_reason - why the setting is what it is
 * @GOVERNOR_WAITS: it is too soon to tell
 * @GOVERNOR_KEEPS: the rate is what the budget allows
 * @GOVERNOR_LOWERS: more is written than the budget allows
 * @GOVERNOR_RAISES: less is written, and more could be admitted
 * @GOVERNOR_OPEN: less is written, and all is admitted that the operator allows
 * @GOVERNOR_AT_FLOOR: more is written than the budget allows, and nothing is
 *	admitted any more but what has a priority
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
 * struct governor_verdict - what the governor decides
 * @set: what is to be set
 * @reason: why
 * @rate: bytes a day that are being written
 * @allowed: bytes a day that are allowed now: the budget, and a share of what was
 *	saved or is owed
 */
struct governor_verdict {
	struct governor_setting set;
	enum governor_reason reason;
	double rate;
	double allowed;
};

/**
 * governor_decide - looks, and decides
 * @g: what it remembers
 * @look: what there is now, not more often than each GOVERNOR_STEP seconds
 *
 * Return: the verdict.
 */
struct governor_verdict governor_decide(struct governor *g,
					const struct governor_look *look);

/**
 * governor_life_budget - bytes a day with which a drive lasts as long as it is to
 * @written: bytes written to it in its life, of its SMART log
 * @used_percent: of its life, of the same log ("percentage used"); may be over 100
 * @days: that it is to last from now on, more than 0
 *
 * Return: bytes a day; 0 when its life is over; infinity when none of it is used.
 */
double governor_life_budget(double written, unsigned int used_percent, double days);

/* A sentence for a log: "writes 1.2 of 1.0 GiB a day: admits less (...)". */
char *governor_words(const struct governor_verdict *verdict, char *buf, size_t len);

#endif
