/* SPDX-License-Identifier: MIT */
/*
 * Traces of chat requests: the blocks that each request's prompt is made of,
 * in prefix order. Read from a file in the format of the Mooncake traces (one
 * JSON object a line: timestamp in ms, hash_ids), or made up.
 */
#ifndef KVBLK_TRACE_H
#define KVBLK_TRACE_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct trace_req - a request
 * @timestamp_ms: arrival, from the start of the trace
 * @nr: blocks
 * @ids: their names, in prefix order; equal ids are equal prefixes
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
 * @nr_distinct: different ids among them
 * @ids: what the @ids of the requests point into
 */
struct trace {
	struct trace_req *reqs;
	size_t nr_reqs;
	uint64_t nr_refs;
	uint64_t nr_distinct;
	uint64_t *ids;
};

/**
 * struct trace_builder - a trace being built; begins zeroed
 * @reqs: requests so far
 * @nr_reqs: entries of @reqs
 * @max_reqs: room in @reqs
 * @ids: ids so far
 * @nr_ids: entries of @ids
 * @max_ids: room in @ids
 * @nr_taken: of @ids, those that belong to a request
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

/* Adds a block to the request that trace_add_req() will end. 0 or -ENOMEM. */
int trace_add_id(struct trace_builder *b, uint64_t id);
/* Ends a request: its blocks are those added since the last one. */
int trace_add_req(struct trace_builder *b, uint64_t timestamp_ms);
/* Makes @t of what was added and leaves @b empty, also on error. */
int trace_finish(struct trace_builder *b, struct trace *t);
/* Frees what was added. */
void trace_discard(struct trace_builder *b);

/**
 * struct trace_synthetic_opts - character of made-up traffic
 * @seed: same seed and options, same trace
 * @nr_reqs: requests to make
 * @nr_prompts: different system prompts, shared by Zipf's law; 0 for none
 * @prompt_blocks: blocks of each system prompt
 * @first_blocks: mean new blocks of a session's first turn
 * @turn_blocks: mean new blocks of each later turn
 * @continue_permille: chance that a turn is followed by another one
 * @think_ms: mean time to the next turn
 * @gap_ms: mean time between arrivals of new sessions
 * @popular: sessions that are asked again by Zipf's law (shared documents);
 *	0 for none
 * @popular_permille: share of first turns that open one of them
 * @scan_permille: share of first turns that are a one-touch batch job of
 *	eight times @first_blocks
 * @daily_permille: how much more and fewer sessions begin by day and by night than
 *	the mean, below 1000
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
	uint32_t popular;
	uint32_t popular_permille;
	uint32_t scan_permille;
	uint32_t daily_permille;
};

/* Chat like the conversation trace's. Change fields, then make the trace. */
#define TRACE_SYNTHETIC_CHAT {						\
	.seed = 1, .nr_reqs = 12000, .nr_prompts = 8, .prompt_blocks = 2, \
	.first_blocks = 14, .turn_blocks = 5, .continue_permille = 500,	\
	.think_ms = 120000, .gap_ms = 600,				\
}

/*
 * Named characters: "chat" (the default), "prompts" (long shared system
 * prompts), "long" (sessions of many turns), "once" (hardly anything comes
 * again), "scan" (chat with batch jobs in between), "documents" (popular
 * documents asked about), "week" (a week of it, busy by day). Fills @o; 0 or
 * -ENOENT.
 */
int trace_synthetic_preset(const char *name, struct trace_synthetic_opts *o);

/**
 * struct trace_error - a line that is no request
 * @line: its number, from 1
 * @why: what is wrong with it
 */
struct trace_error {
	size_t line;
	char why[160];
};

/*
 * Reads @path ("-": stdin) to @t. 0 or a negative errno; on -EBADMSG @e tells
 * the first line that is not a request. Blank lines are skipped.
 */
int trace_load(const char *path, struct trace *t, struct trace_error *e);

/* Makes the trace that @o describes. 0, -EINVAL or -ENOMEM. */
int trace_synthetic(const struct trace_synthetic_opts *o, struct trace *t);

/* Frees what trace_load() or trace_synthetic() made; harmless on a zeroed @t. */
void trace_free(struct trace *t);

#endif
