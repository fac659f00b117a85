/* SPDX-License-Identifier: MIT */
/*
 * kvblk replay --simulate --ttft: a model of the time to first token, from the hits that the
 * simulation counts for each request.
 *
 * Requests wait for one of several servers, in order of arrival. A server loads the blocks
 * found, one tier after the other, then computes the remaining tokens of the prompt. The
 * first token is then complete, and the server is free.
 */
#ifndef KVBLK_REPLAY_TTFT_H
#define KVBLK_REPLAY_TTFT_H

#include <jansson.h>

#include "cli/options.h"
#include "replay/simulate.h"
#include "replay/trace.h"

/**
 * struct ttft_load - speed at which a server loads blocks of a tier
 * @bytes_s: bytes a second; 0: not given
 * @latency_s: time until the first block, once a request
 */
struct ttft_load {
	double bytes_s;
	double latency_s;
};

/**
 * struct ttft_opts - options of the model
 * @model: entry of the table in ttft.c; NULL: no model
 * @gpu: entry of the table in ttft.c
 * @nr_gpus: GPUs of each server
 * @nr_servers: number of servers
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
 * struct ttft_row - results of one case
 * @name: name in JSON
 * @title: name in text
 * @mean_s: mean time to first token, from arrival
 * @p50_s: median time to first token
 * @p99_s: 99th percentile of the time to first token
 * @load: work for the servers in a second of the trace, as a share of their capacity
 * @writes_per_block: of struct sim_result
 */
struct ttft_row {
	const char *name;
	const char *title;
	double mean_s;
	double p50_s;
	double p99_s;
	double load;
	double writes_per_block;
};

/**
 * struct ttft - results of all cases
 * @rows: the cases
 * @nr: entries of @rows
 */
struct ttft {
	struct ttft_row rows[TTFT_ROWS];
	size_t nr;
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
