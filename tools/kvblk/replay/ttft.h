/* SPDX-License-Identifier: MIT */
/*
 * kvblk replay --simulate --ttft: a model of the time to first token, from the hits that the
 * simulation counts for each request.
 *
 * Requests wait for one of several servers, in order of arrival. A server loads the blocks
 * found, one tier after the other, then computes the remaining tokens of the prompt. The
 * first token is then complete, and the server is free. See ttft_queue.h.
 *
 * If the servers are nearly busy, the queue decides, and small differences look large. So each
 * case is run twice, the second time with twice as many servers.
 */
#ifndef KVBLK_REPLAY_TTFT_H
#define KVBLK_REPLAY_TTFT_H

#include <jansson.h>

#include "cli/options.h"
#include "replay/simulate.h"
#include "replay/trace.h"
#include "replay/ttft_queue.h"

/**
 * struct ttft_opts - options of the model
 * @model: entry of the table in ttft.c; NULL: no model
 * @gpu: entry of the table in ttft.c
 * @nr_gpus: GPUs of each server
 * @nr_servers: number of servers under the heavy load
 * @tokens: tokens in a block
 * @mfu: share of the GPU's peak that a server reaches
 * @flash: loads from flash
 * @dram: loads from memory
 */
struct ttft_opts {
	const struct ttft_model *model;
	const struct ttft_gpu *gpu;
	unsigned int nr_gpus;
	unsigned int nr_servers;
	unsigned int tokens;
	double mfu;
	struct ttft_load flash;
	struct ttft_load dram;
};

#define TTFT_ROWS	5

/**
 * enum ttft_load_case - loads of the servers
 * @TTFT_HEAVY: the servers of the options
 * @TTFT_LIGHT: twice as many
 * @TTFT_LOADS: number of loads
 */
enum ttft_load_case {
	TTFT_HEAVY,
	TTFT_LIGHT,
	TTFT_LOADS,
};

/**
 * struct ttft_times - times to first token, from arrival
 * @mean_s: mean
 * @p50_s: median
 * @p99_s: 99th percentile
 * @load: work for the servers in a second of the trace, as a share of their capacity
 */
struct ttft_times {
	double mean_s;
	double p50_s;
	double p99_s;
	double load;
};

/**
 * struct ttft_row - results of one case
 * @name: name in JSON
 * @title: name in text
 * @times: by &enum ttft_load_case
 * @writes_per_block: of struct sim_result
 */
struct ttft_row {
	const char *name;
	const char *title;
	struct ttft_times times[TTFT_LOADS];
	double writes_per_block;
};

/**
 * struct ttft - results of all cases
 * @rows: the cases
 * @nr: entries of @rows
 * @clock_step_s: step of the trace's clock; 0: no steps
 */
struct ttft {
	struct ttft_row rows[TTFT_ROWS];
	size_t nr;
	double clock_step_s;
};

/* options of a struct ttft_opts; ttft_defaults() fills the struct before */
extern const struct cli_option ttft_options[];
void ttft_defaults(struct ttft_opts *o);

/* Simulate each case of @sim's pool. Returns 0, -EINVAL or -ENOMEM. */
int ttft_run(const struct ttft_opts *o, const struct trace *t,
	     const struct sim_opts *sim, struct ttft *ttft);

json_t *ttft_json(const struct ttft_opts *o, const struct ttft *ttft);
void ttft_print(const struct ttft_opts *o, const struct ttft *ttft);

#endif
