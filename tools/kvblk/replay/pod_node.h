/* SPDX-License-Identifier: MIT */
/* The nodes of a simulated pod, for pod.c, pod_route.c and pod_sharing.c. */
#ifndef KVBLK_POD_NODE_H
#define KVBLK_POD_NODE_H

#include "replay/pod.h"
#include "replay/sim_log.h"

#define POD_NOBODY	UINT32_MAX

/**
 * struct pod_chain - the blocks of a request
 * @names: the blocks
 * @nr: entries of @names
 * @missed: leading run that the lookup found
 */
struct pod_chain {
	const uint32_t *names;
	uint32_t nr;
	uint32_t missed;
};

/**
 * struct pod_node - a node and its log
 * @pod: the pod
 * @nr: number in the pod
 * @down: killed and not adopted: no requests, no puts, no touches
 * @chain: the current request
 * @log: the log
 * @r: result of @log
 * @foreign_hits: hits of the node's requests in other logs
 * @lent: hits of other nodes' requests in this log
 * @duplicates: blocks put that another log had
 * @entries: summary entries written
 * @table_pages: table pages written, once in each poll
 * @polls: poll in which each table page was written last
 * @blind_until_s: other logs' blocks are invisible before, after a restart
 * @hints: index of blocks that the directory's answers named
 * @filled: directory: blocks written to each segment
 */
struct pod_node {
	struct pod *pod;
	uint32_t nr;
	bool down;
	struct pod_chain chain;
	struct sim *log;
	struct sim_result r;
	uint64_t foreign_hits;
	uint64_t lent;
	uint64_t duplicates;
	uint64_t entries;
	uint64_t table_pages;
	uint64_t *polls;
	double blind_until_s;
	struct kvblk_index hints;
	uint32_t *filled;
};

/**
 * struct pod_sharing_ops - a way to learn of the others' blocks
 * @init: allocate; returns 0 or -ENOMEM
 * @destroy: free, also after a failed @init
 * @owner: return the other node that has a block, as far as the node knows, or NULL
 * @ask: learn more, because the block at @at is missing
 * @written: a node has written a block; @came: it had none before
 * @restart: the node forgets
 */
struct pod_sharing_ops {
	int (*init)(struct pod *pod);
	void (*destroy)(struct pod *pod);
	struct pod_node *(*owner)(struct pod_node *node, uint32_t name);
	void (*ask)(struct pod_node *node, struct pod_chain *chain, uint32_t at);
	void (*written)(struct pod_node *node, uint32_t name, uint32_t seg, bool came);
	void (*restart)(struct pod_node *node);
};

extern const struct pod_sharing_ops pod_none, pod_follow, pod_directory;

struct pod_holder;
struct pod_key;
struct pod_touch;

/**
 * struct pod_touches - touches on the way to owners, in order of time
 * @ring: the touches
 * @size: entries of @ring, a power of two
 * @first: number of the oldest one
 * @next: number of the next one
 */
struct pod_touches {
	struct pod_touch *ring;
	uint64_t size;
	uint64_t first;
	uint64_t next;
};

/**
 * struct pod_router - state of the choice of nodes
 * @turn: requests or sessions so far
 * @session: session that used each name first
 * @children: different blocks seen behind each name, up to 255
 * @home: node of each session
 * @nr_sessions: entries of @home
 * @work: recent work of each node, in blocks
 * @work_s: time of @work
 */
struct pod_router {
	uint64_t turn;
	uint32_t *session;
	uint8_t *children;
	uint32_t *home;
	uint32_t nr_sessions;
	double *work;
	double work_s;
};

/**
 * enum pod_event_kind - events
 * @POD_KILL: nodes go down
 * @POD_ADOPT: other hosts run their logs
 * @POD_RESTART: nodes forget all other logs
 * @POD_REFILLED: these nodes have read tables and summaries
 * @POD_NR_EVENTS: number of kinds
 */
enum pod_event_kind {
	POD_KILL,
	POD_ADOPT,
	POD_RESTART,
	POD_REFILLED,
	POD_NR_EVENTS,
};

/**
 * struct pod_node_event - an event to come
 * @name: name of the phase that it begins
 * @at_s: time; INFINITY: never
 * @run: carry out
 */
struct pod_node_event {
	const char *name;
	double at_s;
	void (*run)(struct pod *pod);
};

/**
 * struct pod - a simulated pod
 * @o: options
 * @t: the trace
 * @n: names of the trace
 * @sharing: how nodes learn of others' blocks
 * @nodes: the nodes
 * @stride: segments of a log
 * @gens: generation of each segment, by node * @stride + segment
 * @copies: logs that have each name
 * @now_s: time
 * @events: events to come, by kind
 * @touches: touches on the way
 * @router: state of the routing
 * @holders: following: log in which others see a name, by name
 * @keys: directory: the keys; @r->directory_keys are in use
 * @max_keys: allocated entries of @keys
 * @places: directory: entry of @keys of each name; POD_NOBODY: none
 * @err: -ENOMEM in a function that returns nothing
 * @r: the result
 */
struct pod {
	const struct pod_opts *o;
	const struct trace *t;
	struct renamed n;
	const struct pod_sharing_ops *sharing;
	struct pod_node *nodes;
	uint32_t stride;
	uint16_t *gens;
	uint16_t *copies;
	double now_s;
	struct pod_node_event events[POD_NR_EVENTS];
	struct pod_touches touches;
	struct pod_router router;
	struct pod_holder *holders;
	struct pod_key *keys;
	uint64_t max_keys;
	uint32_t *places;
	int err;
	struct pod_result *r;
};

/* Returns the generation of a segment of @node. */
static inline uint16_t *pod_gen(const struct pod_node *node, uint32_t seg)
{
	return &node->pod->gens[(uint64_t)node->nr * node->pod->stride + seg];
}

/* Allocate the state of the routing. Returns 0 or -ENOMEM; destroy in any case. */
int pod_router_init(struct pod *pod, size_t nr_reqs);
void pod_router_destroy(struct pod *pod);
/* Returns the node of a request; one is up. */
struct pod_node *pod_route(struct pod *pod, const uint32_t *names, uint32_t nr);

#endif
