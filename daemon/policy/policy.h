/* SPDX-License-Identifier: MIT */
/*
 * What kvblkd decides for a pool: how much it admits, so that its flash is written no
 * more than the budget says (governor.h), and how many segments it keeps free, so that
 * puts find room at the peak of what is written.
 *
 * Rule: a pure function. A look at the pool comes in, settings and lines for the log
 * come out. What it remembers is one struct for each pool, which may be saved and
 * brought back.
 *
 * What an operator set counts: admit_permille, first_permille and second_permille never
 * go above what the file or an operator has set, low_permille and high_permille never
 * below.
 */
#ifndef KVBLKD_POLICY_H
#define KVBLKD_POLICY_H

#include "config/config.h"
#include "host/smart.h"
#include "policy/governor.h"

#define POLICY_NAME_LEN	32
#define POLICY_MEMBERS	64
#define POLICY_LINES	12
#define POLICY_TEXT_LEN	320
/* seconds between two looks, or less if the budget's interval is */
#define POLICY_TICK	10

/* The tunables that it moves. */
enum policy_tunable {
	POLICY_ADMIT,
	POLICY_FIRST,
	POLICY_SECOND,
	POLICY_LOW,
	POLICY_HIGH,
	POLICY_TUNABLES,
};

extern const char *const policy_tunables[POLICY_TUNABLES];

/**
 * struct policy_member - a member, as it is
 * @name: in the pool
 * @up: it takes puts
 * @size: bytes of its device
 * @segment_size: bytes
 * @nr_segments: of it
 * @free_segments: that can be written to
 * @written: bytes written to it since it came
 * @reclaimed: bytes of segments reclaimed since
 * @smart: what its drive tells
 */
struct policy_member {
	char name[POLICY_NAME_LEN];
	bool up;
	double size;
	double segment_size;
	unsigned int nr_segments;
	unsigned int free_segments;
	double written;
	double reclaimed;
	struct smart smart;
};

/**
 * struct policy_look - what a decision is made from
 * @now_s: seconds of a clock that does not jump and outlives the daemon
 * @pool: what the file says of the pool
 * @assembly: a number that is another one when the pool is assembled anew
 * @written: bytes written to all members since its assembly
 * @now: what is set
 * @members: of the pool
 * @nr_members: how many
 */
struct policy_look {
	double now_s;
	const struct config_pool *pool;
	uint64_t assembly;
	double written;
	unsigned int now[POLICY_TUNABLES];
	struct policy_member members[POLICY_MEMBERS];
	size_t nr_members;
};

/**
 * struct policy_flow - what flows through a member
 * @name: of the member
 * @written: at the last look
 * @reclaimed: at the last look
 * @rate: bytes written a second, the mean of 72 of the budget's intervals
 * @write_peak: bytes written a second at the most; fades within an hour
 * @reclaim_peak: bytes that reclaim freed a second, likewise
 * @short_of_room: an alert was told
 */
struct policy_flow {
	char name[POLICY_NAME_LEN];
	double written;
	double reclaimed;
	double rate;
	double write_peak;
	double reclaim_peak;
	bool short_of_room;
};

/* What is to be told of a budget when it changes. */
enum policy_budget_told {
	POLICY_NOT_TOLD,
	POLICY_UNKNOWN,	/* life_days alone, and no drive tells how worn it is */
	POLICY_KNOWN,
};

/**
 * struct policy_memory - what is remembered of a pool; begins zeroed
 * @pool: its name
 * @lost: what was remembered is lost: what is set may be the daemon's own, so that the
 *	file's values count, and where it has none the module's
 * @seen: there was a look
 * @governed: it had a budget then
 * @reserved: it had a reserve then
 * @assembly: of that look
 * @last_s: of that look
 * @written: of that look
 * @next_s: when the governor looks again
 * @governor: what it remembers, in its own time: see policy.c
 * @stretch: seconds of that time in one
 * @set: what was set after that look
 * @bound: that the file or an operator has set
 * @hands: low_permille or high_permille were set by hand, and are left alone
 * @told: the governor's reason that was logged last
 * @told_set: and what was set then
 * @budget_told: what was logged of the budget
 * @reserve_told: that the reserve can't be kept was logged
 * @flows: of the members
 * @nr_flows: how many
 */
struct policy_memory {
	char pool[POLICY_NAME_LEN];
	bool lost;
	bool seen;
	bool governed;
	bool reserved;
	uint64_t assembly;
	double last_s;
	double written;
	double next_s;
	struct governor governor;
	double stretch;
	unsigned int set[POLICY_TUNABLES];
	unsigned int bound[POLICY_TUNABLES];
	bool hands;
	enum governor_reason told;
	unsigned int told_set[POLICY_LOW];
	enum policy_budget_told budget_told;
	bool reserve_told;
	struct policy_flow flows[POLICY_MEMBERS];
	size_t nr_flows;
};

/**
 * struct policy_line - a decision, or an alert
 * @kind: "budget", "reserve", "operator", "alert"
 * @warning: something is to be done about it
 * @measured: bytes a day that are written, 0: it is not about that
 * @budget: bytes a day that are allowed
 * @moves: the first of the tunables that it is about
 * @nr_moves: how many of them
 * @text: a sentence
 */
struct policy_line {
	const char *kind;
	bool warning;
	double measured;
	double budget;
	enum policy_tunable moves;
	int nr_moves;
	char text[POLICY_TEXT_LEN];
};

/**
 * struct policy_verdict - what comes of a look
 * @from: what was set when a line was last told of it
 * @to: what is to be set
 * @lines: to be told
 * @nr_lines: how many
 */
struct policy_verdict {
	unsigned int from[POLICY_TUNABLES];
	unsigned int to[POLICY_TUNABLES];
	struct policy_line lines[POLICY_LINES];
	size_t nr_lines;
};

/**
 * policy_decide - looks at a pool, and decides
 * @memory: of this pool
 * @look: how it is now
 * @verdict: what is to be done
 *
 * When a tunable could not be set, the caller puts what it is into @memory->set.
 */
void policy_decide(struct policy_memory *memory, const struct policy_look *look,
		   struct policy_verdict *verdict);

/*
 * The file was read again: what it says of @pool counts from now on, and not what was
 * set by hand.
 */
void policy_reread(struct policy_memory *memory, const struct config_pool *pool);

/**
 * policy_budget - bytes a day that may be written to the pool
 * @memory: what each member's share of the writes was
 * @look: how the pool is
 * @why: which member's budget it comes from, in words
 * @len: of @why
 *
 * Return: bytes a day; infinity: none is known.
 */
double policy_budget(const struct policy_memory *memory, const struct policy_look *look,
		     char *why, size_t len);

#endif
