/* SPDX-License-Identifier: MIT */
/*
 * kvblk replay --simulate --ttft: a model of the time to first token, for what the
 * simulation says that each request finds.
 *
 * Requests wait for one of some servers, in order of arrival. A server loads the
 * blocks that were found, one tier after the other, then computes the other tokens of
 * the prompt; with that the first token is there, and the next request's turn comes.
 */
#ifndef KVBLK_REPLAY_TTFT_H
#define KVBLK_REPLAY_TTFT_H

#include <jansson.h>

#include "cli/options.h"
#include "replay/simulate.h"
#include "replay/trace.h"

/**
 * struct ttft_load - how blocks of a tier come to a server
 * @bytes_s: bytes in a second; 0: not given
 * @latency_s: until the first ones come, once for each request
 */
struct ttft_load {
	double bytes_s;
	double latency_s;
};

/**
 * struct ttft_opts - what is modelled
 * @model: of the table in ttft.c; NULL: nothing is
 * @gpu: likewise
 * @nr_gpus: of each server
 * @nr_servers: that requests wait for
 * @tokens: of a block
 * @mfu: share of its peak that a GPU computes at
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
 * struct ttft_row - what comes of it in one case
 * @name: in JSON
 * @title: in text
 * @mean_s: time to first token, from arrival
 * @p50_s: the same
 * @p99_s: the same
 * @load: work for the servers in a second of the trace, as a share of what they can do
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
 * struct ttft - all cases
 * @rows: the cases
 * @nr: entries of @rows
 */
struct ttft {
	struct ttft_row rows[TTFT_ROWS];
	size_t nr;
};

/* Options of a struct ttft_opts, which ttft_defaults() fills before. */
extern const struct cli_option ttft_options[];
void ttft_defaults(struct ttft_opts *o);

/* Simulates each case of @sim's pool. 0, -EINVAL or -ENOMEM. */
int ttft_run(const struct ttft_opts *o, const struct trace *t,
	     const struct sim_opts *sim, struct ttft *ttft);

json_t *ttft_json(const struct ttft_opts *o, const struct ttft *ttft);
void ttft_print(const struct ttft_opts *o, const struct ttft *ttft);

#endif
