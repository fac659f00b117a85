/* SPDX-License-Identifier: MIT */
/*
 * Run a trace through the module's own policy and index over a simulated log, without I/O,
 * and count hits and writes.
 *
 * A request looks up all its blocks, which touches the leading blocks that are present, then
 * puts the others as one chain, as a runtime does. Such a put touches a block that exists
 * behind a hole.
 *
 * Host memory in front of the log behaves as kernel/dram/demote.c, without leases, nodes and
 * memory pressure, and with a writer that never lags.
 */
#ifndef KVBLK_SIMULATE_H
#define KVBLK_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "replay/trace.h"

/**
 * enum sim_cache - simulated caches
 * @SIM_POLICY: the module's policy, on a log of segments
 * @SIM_FIFO: for comparison, block by block
 * @SIM_LRU: for comparison, block by block
 * @SIM_OPTIMUM: the offline optimum, block by block
 */
enum sim_cache {
	SIM_POLICY,
	SIM_FIFO,
	SIM_LRU,
	SIM_OPTIMUM,
};

/**
 * enum sim_dram_mode - treatment of puts by host memory: the module's modes, and one more
 * @SIM_DRAM_THROUGH: write puts to flash, keep a copy
 * @SIM_DRAM_EVICT: keep puts until space is needed, then let the policy decide
 * @SIM_DRAM_TOUCHED: like @SIM_DRAM_EVICT, but write only requested blocks to flash
 * @SIM_DRAM_USER: for comparison: a runtime's own LRU memory; misses are looked up in the
 *	pool, and new blocks are put to both
 */
enum sim_dram_mode {
	SIM_DRAM_THROUGH,
	SIM_DRAM_EVICT,
	SIM_DRAM_TOUCHED,
	SIM_DRAM_USER,
};

/**
 * struct sim_found - result of a request's lookup
 * @lead: blocks of the leading run
 * @dram: blocks of the leading run that were in memory
 */
struct sim_found {
	uint32_t lead;
	uint32_t dram;
};

/**
 * struct sim_opts - options of a simulation; all but the capacity may be 0
 * @cache: &enum sim_cache
 * @capacity: blocks that the cache holds, as a share of the trace's distinct blocks; used if
 *	@capacity_blocks is 0
 * @capacity_blocks: blocks that the cache holds
 * @dram: blocks that host memory holds, as a share of the trace's distinct blocks; 0: no
 *	such tier
 * @dram_mode: &enum sim_dram_mode
 * @dram_promote: keep a copy of blocks read from flash
 * @nr_segments: segments of the log; 0: 1024
 * @admit_permille: of struct kvblk_policy; negative: the default
 * @first_permille: of struct kvblk_policy, without the duel; negative: by duel
 * @reinsert_permille: of struct kvblk_policy; negative: the default
 * @budget: writes allowed in a day of the trace, in capacities of the cache: the daemon's
 *	governor then lowers @admit_permille from its value, and moves @first_permille. 0:
 *	none
 * @batch: blocks put together; 0: all of a request
 * @salt: changes all ids, to show the influence of chance
 * @found: array for the result of each request, with the module's policy; or NULL
 */
struct sim_opts {
	enum sim_cache cache;
	double capacity;
	uint64_t capacity_blocks;
	double dram;
	enum sim_dram_mode dram_mode;
	bool dram_promote;
	uint32_t nr_segments;
	int admit_permille;
	int first_permille;
	int reinsert_permille;
	double budget;
	uint32_t batch;
	uint64_t salt;
	struct sim_found *found;
};

/* options with the policy's defaults */
#define SIM_OPTS_DEFAULT {						\
	.capacity = 0.05,						\
	.dram_mode = SIM_DRAM_EVICT,					\
	.admit_permille = -1, .first_permille = -1,			\
	.reinsert_permille = -1,					\
}

#define SIM_DAYS_MAX	31

/**
 * struct sim_day - a day of the trace
 * @refs: referenced blocks
 * @hits: referenced blocks found in a request's leading run
 * @writes: written blocks, copies included
 * @admit_permille: value at the end of the day
 * @first_permille: value at the end of the day
 * @second_permille: value at the end of the day
 */
struct sim_day {
	uint64_t refs;
	uint64_t hits;
	uint64_t writes;
	unsigned int admit_permille;
	unsigned int first_permille;
	unsigned int second_permille;
};

/**
 * struct sim_result - result of a simulation
 * @capacity_blocks: simulated capacity
 * @dram_blocks: simulated capacity of memory
 * @requests: requests
 * @refs: referenced blocks
 * @hits: referenced blocks found in a request's leading run
 * @dram_hits: hits in memory
 * @puts: blocks offered by puts
 * @admitted: blocks of @puts that were written
 * @declined: blocks of @puts that were not; the difference to @puts is in memory at the end
 * @dram_writes: blocks of @admitted that left memory for flash
 * @dram_drops: blocks of @declined that left memory
 * @dram_copies: blocks read from flash that were copied to memory
 * @copies: blocks rewritten by reclaim
 * @writes: @admitted + @copies
 * @hit_ratio: @hits / @refs
 * @writes_per_hit: @writes / @hits
 * @writes_per_block: @writes / @refs
 * @days: with a budget: the first SIM_DAYS_MAX days of the trace
 * @nr_days: entries of @days
 */
struct sim_result {
	uint64_t capacity_blocks;
	uint64_t dram_blocks;
	uint64_t requests;
	uint64_t refs;
	uint64_t hits;
	uint64_t dram_hits;
	uint64_t puts;
	uint64_t admitted;
	uint64_t declined;
	uint64_t dram_writes;
	uint64_t dram_drops;
	uint64_t dram_copies;
	uint64_t copies;
	uint64_t writes;
	double hit_ratio;
	double writes_per_hit;
	double writes_per_block;
	struct sim_day days[SIM_DAYS_MAX];
	uint32_t nr_days;
};

/* Simulate @t. Returns 0, -EINVAL or -ENOMEM. */
int simulate(const struct trace *t, const struct sim_opts *o,
	     struct sim_result *r);

#endif
