/* SPDX-License-Identifier: MIT */
/*
 * Policy of a pool: how much is admitted, so that writes stay within the budget (governor.h),
 * and how many segments are kept free, so that puts find space at the peak write rate.
 *
 * The policy is a pure function: a look at the pool in; settings and log lines out. Its state is
 * a struct per pool, which can be saved and restored.
 *
 * Operators set the bounds: admit_permille, first_permille and second_permille never rise above
 * the value of the file or operator, low_permille and high_permille never fall below it.
 */
#ifndef KVBLKD_POLICY_POLICY_H
#define KVBLKD_POLICY_POLICY_H

#include "config/config.h"
#include "host/smart.h"
#include "policy/governor.h"

#define POLICY_NAME_LEN	32
#define POLICY_MEMBERS	64
#define POLICY_LINES	12
#define POLICY_TEXT_LEN	320
/* seconds between looks; fewer if the budget's interval is shorter */
#define POLICY_TICK	10

/* Tunables that the policy moves. */
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
 * struct policy_member - state of a member
 * @name: name in the pool
 * @up: the member takes puts
 * @size: bytes of the device
 * @segment_size: bytes of a segment
 * @nr_segments: number of segments
 * @free_segments: segments that can be written to
 * @written: bytes written since the member was added
 * @reclaimed: bytes of reclaimed segments since then
 * @smart: health of the drive
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
 * struct policy_look - inputs of a decision
 * @now_s: seconds of a clock that does not jump and survives a restart of the daemon
 * @pool: configuration of the pool
 * @assembly: number that changes whenever the pool is assembled
 * @written: bytes written to all members since the assembly
 * @now: present settings
 * @members: the members
 * @nr_members: entries of @members
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
 * struct policy_flow - traffic of a member
 * @name: name of the member
 * @written: bytes written up to the last look
 * @reclaimed: bytes reclaimed up to the last look
 * @rate: bytes written a second, mean of 72 of the budget's intervals
 * @write_peak: peak of bytes written a second; decays over an hour
 * @reclaim_peak: peak of bytes reclaimed a second; decays over an hour
 * @short_of_room: the alert was reported
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

/* Last report about a budget. */
enum policy_budget_told {
	POLICY_NOT_TOLD,
	POLICY_UNKNOWN,	/* only life_days is set, and no drive reports its wear */
	POLICY_KNOWN,
};

/**
 * struct policy_memory - state of a pool; zero-initialised
 * @pool: name of the pool
 * @lost: the saved state was unusable. The present settings may be the daemon's own, so the
 *	bounds are the file's values, or else the module's defaults
 * @seen: there was a look
 * @governed: the pool had a budget at the last look
 * @reserved: the pool had a reserve at the last look
 * @assembly: assembly number at the last look
 * @last_s: time of the last look
 * @written: bytes written up to the last look
 * @next_s: time of the governor's next decision
 * @governor: state of the governor in stretched time, see policy.c
 * @stretch: stretched seconds per second
 * @set: settings after the last look
 * @bound: settings of the file or the operator
 * @hands: low_permille or high_permille was set by hand; both are left alone
 * @told: governor's reason in the last log line
 * @told_set: settings in the last log line
 * @budget_told: last report about the budget
 * @reserve_told: the alert that the reserve is out of reach was reported
 * @flows: traffic of the members
 * @nr_flows: entries of @flows
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
 * struct policy_line - a log line about a decision, or an alert
 * @kind: "budget", "reserve", "operator", "alert"
 * @warning: the operator has to act
 * @measured: bytes a day being written, 0: not applicable
 * @budget: bytes a day allowed
 * @moves: first tunable of the line
 * @nr_moves: number of tunables of the line
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
 * struct policy_verdict - result of a decision
 * @from: settings at the last log line
 * @to: new settings
 * @lines: lines to log
 * @nr_lines: entries of @lines
 */
struct policy_verdict {
	unsigned int from[POLICY_TUNABLES];
	unsigned int to[POLICY_TUNABLES];
	struct policy_line lines[POLICY_LINES];
	size_t nr_lines;
};

/**
 * policy_decide - decide on a pool's settings
 * @memory: state of the pool
 * @look: inputs
 * @verdict: result
 *
 * If the caller cannot set a tunable, the caller stores its actual value in @memory->set.
 */
void policy_decide(struct policy_memory *memory, const struct policy_look *look,
		   struct policy_verdict *verdict);

/* Use the values of the file as bounds after a reload, instead of those set by hand. */
void policy_reread(struct policy_memory *memory, const struct config_pool *pool);

/**
 * policy_budget - daily budget of a pool
 * @memory: state, with each member's share of the writes
 * @look: inputs
 * @why: description of the member that determines the budget
 * @len: size of @why
 *
 * Return: bytes a day; infinity if the budget is unknown.
 */
double policy_budget(const struct policy_memory *memory, const struct policy_look *look,
		     char *why, size_t len);

#endif
