/* SPDX-License-Identifier: MIT */
/*
 * Runs a trace through the module's own policy and index over a simulated
 * log, without any I/O: what would be hit, what would be written.
 *
 * One request looks up all its blocks, which touches the leading ones that
 * are present, then puts the others as one chain, as a runtime does. A block of
 * these that is present, behind a hole, is touched by its put.
 *
 * The host's memory in front of the log is kernel/dram/demote.c without its leases,
 * nodes and memory pressure, and with a writer that is always done in time.
 */
#ifndef KVBLK_SIMULATE_H
#define KVBLK_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "replay/trace.h"

/**
 * enum sim_cache - what is simulated
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
 * enum sim_dram_mode - what the host's memory does with puts; the module's, and one more
 * @SIM_DRAM_THROUGH: they go to flash, and a copy stays
 * @SIM_DRAM_EVICT: they stay until room is wanted, then go as the policy says
 * @SIM_DRAM_TOUCHED: likewise, but only what was asked for goes to flash
 * @SIM_DRAM_USER: for comparison: it is a runtime's own, LRU; what it lacks is asked of
 *	the pool, and what is new is put to both
 */
enum sim_dram_mode {
	SIM_DRAM_THROUGH,
	SIM_DRAM_EVICT,
	SIM_DRAM_TOUCHED,
	SIM_DRAM_USER,
};

/**
 * struct sim_found - what a request found
 * @lead: blocks of its leading run
 * @dram: of those, in memory
 */
struct sim_found {
	uint32_t lead;
	uint32_t dram;
};

/**
 * struct sim_opts - how to simulate; all 0 but the capacity is fine
 * @cache: &enum sim_cache
 * @capacity: blocks that the cache holds, as a share of the trace's distinct
 *	blocks; used when @capacity_blocks is 0
 * @capacity_blocks: the same as a number of blocks
 * @dram: blocks that the host's memory holds, as @capacity; 0: no such tier
 * @dram_mode: &enum sim_dram_mode
 * @dram_promote: of what is read from flash a copy stays in memory
 * @nr_segments: segments of the log, 0 for 256
 * @admit_permille: of struct kvblk_policy; negative for its default
 * @first_permille: of struct kvblk_policy; negative for its default
 * @reinsert_permille: of struct kvblk_policy; negative for its default
 * @budget: writes allowed in a day of the trace, in capacities of the cache; the
 *	daemon's governor then moves @admit_permille, from there downwards, and
 *	@first_permille. 0: none
 * @batch: blocks that are put together, 0: all of a request
 * @salt: another number gives the blocks other ids, which shows what is chance
 * @found: room for what each request found, with the module's policy; or NULL
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

/* Options with the policy's defaults */
#define SIM_OPTS_DEFAULT {						\
	.capacity = 0.05,						\
	.dram_mode = SIM_DRAM_EVICT,					\
	.admit_permille = -1, .first_permille = -1,			\
	.reinsert_permille = -1,					\
}

#define SIM_DAYS_MAX	31

/**
 * struct sim_day - a day of the trace
 * @refs: blocks referenced
 * @hits: of those, found in a request's leading run
 * @writes: blocks written, copies included
 * @admit_permille: at its end
 * @first_permille: at its end
 * @second_permille: at its end
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
 * struct sim_result - what came of it
 * @capacity_blocks: what was simulated
 * @dram_blocks: likewise
 * @requests: requests
 * @refs: blocks referenced
 * @hits: of those, found in a request's leading run
 * @dram_hits: of @hits, found in memory
 * @puts: blocks offered by puts
 * @admitted: of those, written
 * @declined: of those, not; what is left is in memory at the end
 * @dram_writes: of @admitted, those that left memory for flash
 * @dram_drops: of @declined, those that left memory
 * @dram_copies: blocks read from flash of which a copy stayed in memory
 * @copies: blocks written again by reclaim
 * @writes: @admitted + @copies
 * @hit_ratio: @hits / @refs
 * @writes_per_hit: @writes / @hits
 * @writes_per_block: @writes / @refs
 * @days: with a budget: each day of the trace, the first SIM_DAYS_MAX of them
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

/* Simulates @t. 0, -EINVAL or -ENOMEM. */
int simulate(const struct trace *t, const struct sim_opts *o,
	     struct sim_result *r);

#endif
