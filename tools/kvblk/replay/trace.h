/* SPDX-License-Identifier: MIT */
/*
 * Traces of chat requests: the blocks of each request's prompt, in prefix order. A trace is
 * read from a file in the format of the Mooncake traces (one JSON object a line: timestamp
 * in ms, hash_ids), or synthetic.
 */
#ifndef KVBLK_TRACE_H
#define KVBLK_TRACE_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct trace_req - a request
 * @timestamp_ms: arrival, from the start of the trace
 * @nr: number of blocks
 * @ids: ids of the blocks, in prefix order; equal ids are equal prefixes
 */
struct trace_req {
	uint64_t timestamp_ms;
	uint32_t nr;
	const uint64_t *ids;
};

/**
 * struct trace - requests in order of arrival
 * @reqs: the requests
 * @nr_reqs: entries of @reqs
 * @nr_refs: blocks of all requests
 * @nr_distinct: number of different ids
 * @ids: array that @ids of the requests point into
 */
struct trace {
	struct trace_req *reqs;
	size_t nr_reqs;
	uint64_t nr_refs;
	uint64_t nr_distinct;
	uint64_t *ids;
};

/**
 * struct trace_builder - a trace under construction; starts zeroed
 * @reqs: requests so far
 * @nr_reqs: entries of @reqs
 * @max_reqs: allocated entries of @reqs
 * @ids: ids so far
 * @nr_ids: entries of @ids
 * @max_ids: allocated entries of @ids
 * @nr_taken: ids that belong to a complete request
 */
struct trace_builder {
	struct trace_req *reqs;
	size_t nr_reqs;
	size_t max_reqs;
	uint64_t *ids;
	size_t nr_ids;
	size_t max_ids;
	size_t nr_taken;
};

/* Add a block to the request that trace_add_req() will complete. Returns 0 or -ENOMEM. */
int trace_add_id(struct trace_builder *b, uint64_t id);
/* Complete a request from the blocks added since the last call. Returns 0, -EINVAL or -ENOMEM. */
int trace_add_req(struct trace_builder *b, uint64_t timestamp_ms);
/* Move everything added to @t and empty @b, also on error. Returns 0 or -ENOMEM. */
int trace_finish(struct trace_builder *b, struct trace *t);
/* Free everything added. */
void trace_discard(struct trace_builder *b);

/**
 * struct trace_synthetic_opts - properties of synthetic traffic
 * @seed: same seed and options, same trace
 * @nr_reqs: number of requests
 * @nr_prompts: different system prompts, shared by Zipf's law; 0: none
 * @prompt_blocks: blocks of each system prompt
 * @first_blocks: mean new blocks of a session's first turn
 * @turn_blocks: mean new blocks of each later turn
 * @continue_permille: probability that a turn is followed by another one
 * @think_ms: mean time to the next turn
 * @gap_ms: mean time between arrivals of new sessions, for each of @nr_nodes
 * @nr_nodes: nodes that serve such traffic; 0: one
 * @popular: shared documents that sessions ask about, by Zipf's law; 0: none
 * @popular_permille: share of first turns that open such a document
 * @scan_permille: share of first turns that are a batch job of eight times @first_blocks,
 *	never used again
 * @daily_permille: deviation of the rate of new sessions from the mean, up by day and down
 *	by night, below 1000
 */
struct trace_synthetic_opts {
	uint64_t seed;
	uint32_t nr_reqs;
	uint32_t nr_prompts;
	uint32_t prompt_blocks;
	uint32_t first_blocks;
	uint32_t turn_blocks;
	uint32_t continue_permille;
	uint32_t think_ms;
	uint32_t gap_ms;
	uint32_t nr_nodes;
	uint32_t popular;
	uint32_t popular_permille;
	uint32_t scan_permille;
	uint32_t daily_permille;
};

/* chat like that of the conversation trace */
#define TRACE_SYNTHETIC_CHAT {						\
	.seed = 1, .nr_reqs = 12000, .nr_prompts = 8, .prompt_blocks = 2, \
	.first_blocks = 14, .turn_blocks = 5, .continue_permille = 500,	\
	.think_ms = 120000, .gap_ms = 600,				\
}

/*
 * Set @o to a named kind: "chat" (the default), "prompts" (long shared system prompts),
 * "long" (sessions of many turns), "once" (hardly any block is used again), "scan" (chat
 * with batch jobs in between), "documents" (questions about popular documents), "week" (a
 * week, busy by day). Returns 0 or -ENOENT.
 */
int trace_synthetic_preset(const char *name, struct trace_synthetic_opts *o);

/**
 * struct trace_error - a line that is no request
 * @line: number of the line, from 1
 * @why: what is wrong with the line
 */
struct trace_error {
	size_t line;
	char why[160];
};

/*
 * Read @path ("-": stdin) to @t. Blank lines are skipped. Returns 0 or a negative errno;
 * -EBADMSG: @e describes the first line that is no request.
 */
int trace_load(const char *path, struct trace *t, struct trace_error *e);

/* Generate the trace that @o describes. Returns 0, -EINVAL or -ENOMEM. */
int trace_synthetic(const struct trace_synthetic_opts *o, struct trace *t);

/* Free a trace; a zeroed @t is allowed. */
void trace_free(struct trace *t);

#endif
