// SPDX-License-Identifier: MIT
/*
 * How a node learns of the others' blocks.
 *
 * Following: one array for all nodes has the log in which others see a block, and since when.
 * A real index for each node would have the same entries, and N times the memory.
 *
 * Directory: the segment of each anchor is published. Anchors are the first block of each run of
 * puts, the last block of a segment, and each pod_opts.span-th one. A node that misses a block
 * asks for the missing blocks of the chain, reads the summaries of the segments, and enters all
 * of their blocks into a bounded index, the module's own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "replay/pod_node.h"

/* ---- none ---- */

static int none_init(struct pod *pod)
{
	return 0;
}

static void none_destroy(struct pod *pod)
{
}

static struct pod_node *none_owner(struct pod_node *node, uint32_t name)
{
	return NULL;
}

static void none_ask(struct pod_node *node, struct pod_chain *chain, uint32_t at)
{
}

static void none_written(struct pod_node *node, uint32_t name, uint32_t seg, bool came)
{
}

static void none_restart(struct pod_node *node)
{
}

const struct pod_sharing_ops pod_none = {
	.init = none_init,
	.destroy = none_destroy,
	.owner = none_owner,
	.ask = none_ask,
	.written = none_written,
	.restart = none_restart,
};

/* ---- follow ---- */

/**
 * struct pod_holder - log in which others see a block; of two, the first one
 * @node: number of the node; POD_NOBODY: none
 * @since_s: time of the put
 */
struct pod_holder {
	uint32_t node;
	double since_s;
};

static int follow_init(struct pod *pod)
{
	size_t bytes = ((size_t)pod->n.nr + 1) * sizeof(*pod->holders);

	pod->holders = malloc(bytes);
	if (!pod->holders)
		return -ENOMEM;
	memset(pod->holders, 0xff, bytes);
	return 0;
}

static void follow_destroy(struct pod *pod)
{
	free(pod->holders);
}

static struct pod_node *follow_owner(struct pod_node *node, uint32_t name)
{
	const struct pod *pod = node->pod;
	const struct pod_holder *h = &pod->holders[name];
	struct kvblk_slot slot;

	if (h->node == POD_NOBODY || h->node == node->nr ||
	    pod->now_s < h->since_s + pod->o->fresh_s ||
	    pod->now_s < node->blind_until_s || !sim_find(pod->nodes[h->node].log, name, &slot))
		return NULL;
	return &pod->nodes[h->node];
}

static void follow_written(struct pod_node *node, uint32_t name, uint32_t seg, bool came)
{
	struct pod *pod = node->pod;
	struct pod_holder *h = &pod->holders[name];
	struct kvblk_slot slot;

	/* a copy by reclaim stays visible: its old segment is readable until the next poll */
	if (!came || (h->node != POD_NOBODY && h->node != node->nr &&
		      sim_find(pod->nodes[h->node].log, name, &slot)))
		return;
	*h = (struct pod_holder){ .node = node->nr, .since_s = pod->now_s };
}

/* Make others' blocks invisible until the tables and summaries are read. */
static void follow_restart(struct pod_node *node)
{
	node->blind_until_s = node->pod->now_s + node->pod->r->restart_s;
}

const struct pod_sharing_ops pod_follow = {
	.init = follow_init,
	.destroy = follow_destroy,
	.owner = follow_owner,
	.ask = none_ask,
	.written = follow_written,
	.restart = follow_restart,
};

/* ---- directory ---- */

#define ASK_MOST	64	/* blocks in a question */

/**
 * struct pod_key - a key of the directory: an anchor
 * @seg: segment of the log
 * @node: number of the node
 * @gen: generation of the segment
 * @since_s: time of the write
 */
struct pod_key {
	uint32_t seg;
	uint16_t node;
	uint16_t gen;
	double since_s;
};

static int hints_init(struct pod_node *node)
{
	const struct pod *pod = node->pod;
	uint64_t slots = (uint64_t)(pod->o->hints * (double)node->r.capacity_blocks);

	return kvblk_index_init(&node->hints, slots ? slots : 1, pod->gens,
				pod->stride * pod->o->nr_nodes);
}

static int directory_init(struct pod *pod)
{
	size_t nr = (size_t)pod->n.nr + 1;
	int ret = 0;

	pod->places = malloc(nr * sizeof(*pod->places));
	if (!pod->places)
		return -ENOMEM;
	memset(pod->places, 0xff, nr * sizeof(*pod->places));
	for (uint32_t i = 0; !ret && i < pod->o->nr_nodes; i++) {
		pod->nodes[i].filled = calloc(pod->stride, sizeof(*pod->nodes[i].filled));
		ret = pod->nodes[i].filled ? hints_init(&pod->nodes[i]) : -ENOMEM;
	}
	return ret;
}

static void directory_destroy(struct pod *pod)
{
	for (uint32_t i = 0; i < pod->o->nr_nodes; i++) {
		kvblk_index_destroy(&pod->nodes[i].hints);
		free(pod->nodes[i].filled);
	}
	free(pod->keys);
	free(pod->places);
}

static struct pod_node *directory_owner(struct pod_node *node, uint32_t name)
{
	const struct pod *pod = node->pod;
	struct kvblk_slot slot;

	if (!kvblk_index_find(&node->hints, renamed_id(&pod->n, name), &slot))
		return NULL;
	kvblk_index_touch(&node->hints, &slot, sim_tick(node->log));
	return &pod->nodes[slot.seg / pod->stride];
}

/**
 * struct hinted - a segment to enter
 * @node: node that was told of it
 * @owner: its owner
 */
struct hinted {
	struct pod_node *node;
	const struct pod_node *owner;
};

static void enter_block(void *data, uint32_t name, const struct kvblk_slot *found)
{
	const struct hinted *h = data;
	struct kvblk_slot slot = *found, old;

	slot.seg += h->owner->nr * h->node->pod->stride;
	slot.heat = sim_tick(h->node->log);
	kvblk_index_insert(&h->node->hints, renamed_id(&h->node->pod->n, name), &slot, &old, true);
}

/* Take the answer for an anchor, and read the summaries of the segment that it names. */
static void read_key(struct pod_node *node, uint32_t name)
{
	struct pod *pod = node->pod;
	const struct pod_key *k = &pod->keys[pod->places[name]];
	struct hinted h = { .node = node };

	if (pod->places[name] == POD_NOBODY || k->node == node->nr ||
	    pod->now_s < k->since_s + pod->o->fresh_s)
		return;
	h.owner = &pod->nodes[k->node];
	if (*pod_gen(h.owner, k->seg) != k->gen) {
		pod->r->stale++;
		return;
	}
	pod->r->pages += sim_visit(h.owner->log, k->seg, enter_block, &h) / KVBLK_SUMMARY_ENTRIES + 1;
}

/* Ask for the missing blocks of the chain in one question. */
static void directory_ask(struct pod_node *node, struct pod_chain *chain, uint32_t at)
{
	struct pod *pod = node->pod;
	struct kvblk_slot slot;
	uint32_t asked = 0;

	for (; at < chain->nr && asked < ASK_MOST; at++) {
		uint32_t name = chain->names[at];

		if (sim_find(node->log, name, &slot) || directory_owner(node, name))
			continue;
		asked++;
		read_key(node, name);
	}
	pod->r->questions += !!asked;
	pod->r->keys += asked;
}

/* Returns the key @name, which is added if there is none; NULL: no memory. */
static struct pod_key *key_get(struct pod *pod, uint32_t name)
{
	uint64_t nr = pod->r->directory_keys, max = pod->max_keys ? 2 * pod->max_keys : 1024;
	struct pod_key *keys = pod->keys;

	if (pod->places[name] != POD_NOBODY)
		return &keys[pod->places[name]];
	if (nr == pod->max_keys) {
		keys = reallocarray(pod->keys, max, sizeof(*keys));
		if (!keys)
			return NULL;
		pod->keys = keys;
		pod->max_keys = max;
	}
	pod->places[name] = (uint32_t)nr;
	pod->r->directory_keys++;
	return &keys[nr];
}

/*
 * Returns whether a block that was written is an anchor. A chain is written last block first, so
 * that the first block of a run ends it. A copy stays an anchor.
 */
static bool is_anchor(struct pod_node *node, uint32_t name, uint32_t seg, bool came)
{
	const struct pod *pod = node->pod;
	uint32_t blocks = (uint32_t)(node->r.capacity_blocks / pod->stride);

	if (++node->filled[seg] > blocks)
		node->filled[seg] = 1;
	return node->filled[seg] == blocks || !(node->filled[seg] % pod->o->span) ||
	       (came ? name == node->chain.names[node->chain.missed] :
		       pod->places[name] != POD_NOBODY);
}

static void directory_written(struct pod_node *node, uint32_t name, uint32_t seg, bool came)
{
	struct pod *pod = node->pod;
	struct pod_key *k;

	if (!is_anchor(node, name, seg, came))
		return;
	k = key_get(pod, name);
	if (!k) {
		pod->err = -ENOMEM;
		return;
	}
	pod->r->published++;
	*k = (struct pod_key){
		.seg = seg, .node = (uint16_t)node->nr, .gen = *pod_gen(node, seg),
		.since_s = pod->now_s,
	};
}

/* Forget all answers. */
static void directory_restart(struct pod_node *node)
{
	kvblk_index_destroy(&node->hints);
	if (hints_init(node))
		node->pod->err = -ENOMEM;
}

const struct pod_sharing_ops pod_directory = {
	.init = directory_init,
	.destroy = directory_destroy,
	.owner = directory_owner,
	.ask = directory_ask,
	.written = directory_written,
	.restart = directory_restart,
};
