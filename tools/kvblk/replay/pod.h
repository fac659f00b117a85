/* SPDX-License-Identifier: MIT */
/*
 * kvblk replay --simulate --pod: nodes of a pod, each with a log of its own under the module's
 * policy and index, that share one trace.
 *
 * pod.c runs the nodes and the events, pod_route.c chooses the node of a request,
 * pod_sharing.c has the ways in which a node learns of the others' blocks, pod_report.c has
 * options and output.
 */
#ifndef KVBLK_POD_H
#define KVBLK_POD_H

#include <jansson.h>

#include "cli/options.h"
#include "replay/simulate.h"
#include "replay/trace.h"

#define POD_NODES_MAX	1024
#define POD_PHASES_MAX	8

/**
 * enum pod_route - choice of a request's node
 * @POD_ROUND_ROBIN: each node in turn
 * @POD_SESSION: the node of the session's first request
 * @POD_PREFIX: the node with the least work: blocks not in its log, here and recently
 */
enum pod_route {
	POD_ROUND_ROBIN,
	POD_SESSION,
	POD_PREFIX,
};

/**
 * enum pod_sharing - what a node knows of the other logs
 * @POD_NONE: nothing
 * @POD_FOLLOW: all of their blocks
 * @POD_DIRECTORY: what it asked a directory for
 */
enum pod_sharing {
	POD_NONE,
	POD_FOLLOW,
	POD_DIRECTORY,
};

/**
 * struct pod_event - something that happens to nodes
 * @first: first node
 * @last: last node
 * @at_s: time, from the start of the trace
 * @given: it happens
 */
struct pod_event {
	uint32_t first;
	uint32_t last;
	double at_s;
	bool given;
};

/**
 * struct pod_opts - options of a pod
 * @nr_nodes: number of nodes; 0: no pod
 * @route: &enum pod_route
 * @sharing: &enum pod_sharing
 * @fresh_s: time until the others see a block
 * @span: one of so many blocks of a segment is published in the directory
 * @hints: entries of a node's index for blocks found by the directory, in blocks of its log
 * @kill: nodes that serve and put no more
 * @adopt_s: time until other hosts run the logs of @kill; negative: never
 * @restart: nodes that forget all other logs
 * @bandwidth: bytes a second at which such a node reads tables and summaries
 */
struct pod_opts {
	uint32_t nr_nodes;
	enum pod_route route;
	enum pod_sharing sharing;
	double fresh_s;
	uint32_t span;
	double hints;
	struct pod_event kill;
	double adopt_s;
	struct pod_event restart;
	uint64_t bandwidth;
};

/**
 * struct pod_phase - the time between two events
 * @name: event that begins it
 * @from_s: time of that event
 * @refs: referenced blocks
 * @hits: referenced blocks found in a request's leading run
 * @puts: blocks put
 * @writes: @puts and the copies by reclaim
 * @duplicates: blocks of @puts that another log had
 */
struct pod_phase {
	const char *name;
	double from_s;
	uint64_t refs;
	uint64_t hits;
	uint64_t puts;
	uint64_t writes;
	uint64_t duplicates;
};

/**
 * struct pod_result - result of a pod
 * @all: sums over all nodes
 * @seconds: duration of the trace
 * @phases: between the events
 * @nr_phases: entries of @phases
 * @foreign_hits: hits in another node's log
 * @touches: touches that owners were told
 * @duplicates: blocks put that another log had
 * @busiest_reads: blocks read from the busiest log, in means of all logs
 * @busiest_writes: blocks written to the busiest log, in means of all logs
 * @index_entries: entries of node 0's index at the end
 * @index_bytes: size of an index for all entries that node 0 may have
 * @index_find_ns: mean time of a lookup in that index
 * @refresh_bytes: metadata of others that a node read, mean
 * @questions: questions to the directory
 * @keys: keys of all questions
 * @pages: summary pages that were read because of an answer
 * @stale: answers that named a segment which was reused since
 * @published: entries written to the directory
 * @directory_keys: keys in the directory at the end
 * @restart_bytes: tables and summaries that a restarted node reads
 * @restart_s: time for that
 */
struct pod_result {
	struct sim_result all;
	double seconds;
	struct pod_phase phases[POD_PHASES_MAX];
	uint32_t nr_phases;
	uint64_t foreign_hits;
	uint64_t touches;
	uint64_t duplicates;
	double busiest_reads;
	double busiest_writes;
	uint64_t index_entries;
	uint64_t index_bytes;
	double index_find_ns;
	double refresh_bytes;
	uint64_t questions;
	uint64_t keys;
	uint64_t pages;
	uint64_t stale;
	uint64_t published;
	uint64_t directory_keys;
	uint64_t restart_bytes;
	double restart_s;
};

#define POD_OPTS_DEFAULT {						\
	.sharing = POD_FOLLOW, .fresh_s = 2, .span = 16, .hints = 4,	\
	.adopt_s = -1, .bandwidth = 1ULL << 30,				\
}

/* bytes of a key (an id) and of a value (member, segment, generation) of the directory */
#define POD_PUBLISHED_BYTES	32

/* options of a struct pod_opts, which holds POD_OPTS_DEFAULT before */
extern const struct cli_option pod_options[];
/* End the process if options of a pod do not fit together. */
void pod_check(const struct argp_state *state, const struct pod_opts *o);

/*
 * Simulate @t on a pod whose nodes together have the capacity of @sim. Returns 0, -EINVAL or
 * -ENOMEM.
 */
int pod_simulate(const struct trace *t, const struct sim_opts *sim,
		 const struct pod_opts *o, struct pod_result *r);

json_t *pod_json(const struct pod_opts *o, const struct trace *t, const struct pod_result *r);
void pod_print(const struct pod_opts *o, const struct trace *t, const struct pod_result *r);

#endif
