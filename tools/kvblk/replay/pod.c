// SPDX-License-Identifier: MIT
/*
 * The nodes of a simulated pod; pod.h has the map. The rule: each node's log is that of
 * simulate.c, so that a pod of one node that shares nothing is the plain simulation.
 *
 * A foreign block that is found is read from its owner's log, and the owner's entry is touched
 * TELL_S later. A block that reclaim dropped is a miss at once: a reader finds the segment's
 * next generation.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "format/format.h"
#include "pool/sizing.h"
#include "replay/pod_node.h"

#define TELL_S		1.0

/* ---- touches on the way to owners ---- */

/**
 * struct pod_touch - a touch that the owner of a block will be told
 * @due_s: time of that
 * @node: the owner
 * @name: the block
 */
struct pod_touch {
	double due_s;
	uint32_t node;
	uint32_t name;
};

static int touches_grow(struct pod_touches *t)
{
	uint64_t size = t->size ? 2 * t->size : 4096;
	struct pod_touch *ring = malloc(size * sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	for (uint64_t i = t->first; i < t->next; i++)
		ring[i & (size - 1)] = t->ring[i & (t->size - 1)];
	free(t->ring);
	t->ring = ring;
	t->size = size;
	return 0;
}

static void tell(struct pod *pod, const struct pod_node *owner, uint32_t name)
{
	struct pod_touches *t = &pod->touches;

	if (t->next - t->first == t->size && touches_grow(t)) {
		pod->err = -ENOMEM;
		return;
	}
	t->ring[t->next++ & (t->size - 1)] = (struct pod_touch){
		.due_s = pod->now_s + TELL_S, .node = owner->nr, .name = name,
	};
	pod->r->touches++;
}

/* Deliver the touches that are due. Those of a node that is down are lost. */
static void touches_deliver(struct pod *pod)
{
	struct pod_touches *t = &pod->touches;

	for (; t->first < t->next; t->first++) {
		const struct pod_touch *touch = &t->ring[t->first & (t->size - 1)];
		const struct pod_node *owner = &pod->nodes[touch->node];

		if (touch->due_s > pod->now_s)
			return;
		if (!owner->down)
			sim_touch(owner->log, touch->name);
	}
}

/* ---- calls of a node's log ---- */

static bool node_get(void *data, const uint32_t *names, uint32_t nr)
{
	struct pod_node *node = data, *owner;
	const struct pod_sharing_ops *sharing = node->pod->sharing;

	node->chain.missed = node->chain.nr - nr;
	owner = sharing->owner(node, names[0]);
	if (!owner) {
		sharing->ask(node, &node->chain, node->chain.missed);
		owner = sharing->owner(node, names[0]);
	}
	if (!owner)
		return false;
	node->foreign_hits++;
	owner->lent++;
	tell(node->pod, owner, names[0]);
	return true;
}

static bool node_exists(void *data, uint32_t name)
{
	struct pod_node *node = data;
	const struct pod_node *owner = node->pod->sharing->owner(node, name);

	if (owner)
		tell(node->pod, owner, name);
	return owner;
}

/* Count the table page of @seg, which is written once in each poll. */
static void table_changed(struct pod_node *node, uint32_t seg)
{
	const struct pod *pod = node->pod;
	uint64_t *poll = &node->polls[seg / KVBLK_TABLE_ENTRIES];
	uint64_t now = 1 + (uint64_t)(pod->now_s / (pod->o->fresh_s > 0 ? pod->o->fresh_s : 1e-3));

	node->table_pages += *poll != now;
	*poll = now;
}

static void node_written(void *data, uint32_t name, uint32_t seg, bool came)
{
	struct pod_node *node = data;
	struct pod *pod = node->pod;

	if (came)
		node->duplicates += pod->copies[name]++ > 0;
	node->entries++;
	table_changed(node, seg);
	pod->sharing->written(node, name, seg, came);
}

static void node_dropped(void *data, uint32_t name)
{
	struct pod_node *node = data;

	node->pod->copies[name]--;
}

static void node_retired(void *data, uint32_t seg)
{
	struct pod_node *node = data;

	++*pod_gen(node, seg);
	table_changed(node, seg);
}

static const struct sim_peers peers = {
	.get = node_get,
	.exists = node_exists,
	.written = node_written,
	.dropped = node_dropped,
	.retired = node_retired,
};

/* ---- events ---- */

/* Set the phase's counts to the sums over all nodes. */
static void phase_sum(const struct pod *pod, struct pod_phase *phase)
{
	for (uint32_t i = 0; i < pod->o->nr_nodes; i++) {
		const struct pod_node *node = &pod->nodes[i];

		phase->hits += node->r.hits;
		phase->puts += node->r.admitted;
		phase->writes += node->r.writes;
		phase->duplicates += node->duplicates;
	}
}

/* End the current phase and begin another one, whose counts are negative sums until it ends. */
static void phase_begin(struct pod *pod, const char *name, double from_s)
{
	struct pod_phase *phase = &pod->r->phases[pod->r->nr_phases++], sum = { 0 };

	phase_sum(pod, &sum);
	*phase = (struct pod_phase){
		.name = name, .from_s = from_s, .hits = -sum.hits, .puts = -sum.puts,
		.writes = -sum.writes, .duplicates = -sum.duplicates,
	};
	if (pod->r->nr_phases > 1)
		phase_sum(pod, phase - 1);
}

static void set_down(struct pod *pod, bool down)
{
	for (uint32_t i = pod->o->kill.first; i <= pod->o->kill.last; i++)
		pod->nodes[i].down = down;
}

/* Returns the bytes of tables and summaries that a restarted node reads: of all logs it knows. */
static uint64_t restart_bytes(const struct pod *pod)
{
	uint64_t pages = (pod->stride + KVBLK_TABLE_ENTRIES - 1) / KVBLK_TABLE_ENTRIES;
	uint32_t first = pod->o->restart.first, last = first;
	uint64_t bytes = 0;

	if (pod->o->sharing == POD_FOLLOW) {
		first = 0;
		last = pod->o->nr_nodes - 1;
	}
	for (uint32_t i = first; i <= last; i++)
		bytes += pages * KVBLK_UNIT +
			 sim_written(pod->nodes[i].log) * sizeof(struct kvblk_d_entry);
	return bytes;
}

static void run_kill(struct pod *pod)
{
	set_down(pod, true);
}

static void run_adopt(struct pod *pod)
{
	set_down(pod, false);
}

static void run_restart(struct pod *pod)
{
	const struct pod_event *e = &pod->o->restart;
	double read_s;

	pod->r->restart_bytes = restart_bytes(pod);
	read_s = (double)pod->r->restart_bytes / (double)pod->o->bandwidth;
	pod->r->restart_s = read_s > pod->o->fresh_s ? read_s : pod->o->fresh_s;
	for (uint32_t i = e->first; i <= e->last; i++)
		pod->sharing->restart(&pod->nodes[i]);
	pod->events[POD_REFILLED].at_s = pod->now_s + pod->r->restart_s;
}

static void run_refilled(struct pod *pod)
{
}

static void events_init(struct pod *pod)
{
	const struct pod_opts *o = pod->o;
	bool adopt = o->kill.given && o->adopt_s >= 0;

	pod->events[POD_KILL] = (struct pod_node_event){
		"kill", o->kill.given ? o->kill.at_s : INFINITY, run_kill,
	};
	pod->events[POD_ADOPT] = (struct pod_node_event){
		"adopt", adopt ? o->kill.at_s + o->adopt_s : INFINITY, run_adopt,
	};
	pod->events[POD_RESTART] = (struct pod_node_event){
		"restart", o->restart.given ? o->restart.at_s : INFINITY, run_restart,
	};
	pod->events[POD_REFILLED] = (struct pod_node_event){ "refilled", INFINITY, run_refilled };
}

/* Run the events that are due, in order of time. */
static void events_run(struct pod *pod)
{
	struct pod_node_event *next;

	for (;;) {
		next = &pod->events[0];
		for (int i = 1; i < POD_NR_EVENTS; i++)
			if (pod->events[i].at_s < next->at_s)
				next = &pod->events[i];
		if (next->at_s > pod->now_s)
			return;
		phase_begin(pod, next->name, next->at_s);
		next->at_s = INFINITY;
		next->run(pod);
	}
}

/* ---- the run ---- */

static int run(struct pod *pod)
{
	const struct trace *t = pod->t;
	const uint32_t *names = pod->n.names;
	uint64_t start_ms = t->reqs[0].timestamp_ms;
	int ret = 0;

	phase_begin(pod, "start", 0);
	for (size_t i = 0; !ret && i < t->nr_reqs; names += t->reqs[i++].nr) {
		double now_s = ((double)t->reqs[i].timestamp_ms - (double)start_ms) / 1000;
		struct pod_node *node;

		if (now_s > pod->now_s)
			pod->now_s = now_s;
		events_run(pod);
		touches_deliver(pod);
		node = pod_route(pod, names, t->reqs[i].nr);
		node->chain = (struct pod_chain){ .names = names, .nr = t->reqs[i].nr };
		ret = sim_request(node->log, names, t->reqs[i].nr) ?: pod->err;
		pod->r->phases[pod->r->nr_phases - 1].refs += t->reqs[i].nr;
	}
	phase_sum(pod, &pod->r->phases[pod->r->nr_phases - 1]);
	pod->r->seconds = pod->now_s;
	return ret;
}

/* ---- results ---- */

/**
 * struct measured - an index like node 0's, with real entries
 * @pod: the pod
 * @node: log that is visited
 * @index: the index
 * @names: blocks of the entries
 * @nr: entries of @names
 * @most: limit of @nr
 */
struct measured {
	const struct pod *pod;
	uint32_t node;
	struct kvblk_index index;
	uint32_t *names;
	uint64_t nr;
	uint64_t most;
};

static void measure_entry(void *data, uint32_t name, const struct kvblk_slot *slot)
{
	struct measured *m = data;
	struct kvblk_slot entry = *slot, old;

	entry.seg += m->node * m->pod->stride;
	entry.gen = *pod_gen(&m->pod->nodes[m->node], slot->seg);
	if (m->nr < m->most &&
	    !kvblk_index_insert(&m->index, renamed_id(&m->pod->n, name), &entry, &old, false))
		m->names[m->nr++] = name;
}

static double measure_finds(const struct measured *m)
{
	uint64_t rounds = 1 + 1000000 / (m->nr + 1), found = 0;
	struct timespec begin, end;
	struct kvblk_slot slot;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (uint64_t i = 0; i < rounds; i++)
		for (uint64_t j = 0; j < m->nr; j++)
			found += kvblk_index_find(&m->index, renamed_id(&m->pod->n, m->names[j]),
						  &slot);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return ((double)(end.tv_sec - begin.tv_sec) * 1e9 +
		(double)(end.tv_nsec - begin.tv_nsec)) / (double)(found ? found : 1);
}

/* Measure an index for what node 0 may know, filled with what it knows. Returns 0 or -ENOMEM. */
static int measure(const struct pod *pod)
{
	const struct pod_node *node = &pod->nodes[0];
	uint64_t own = node->r.capacity_blocks, blocks = own, hints = 0;
	struct measured m = { .pod = pod };
	int ret;

	if (pod->o->sharing == POD_FOLLOW)
		blocks = own * pod->o->nr_nodes;
	if (pod->o->sharing == POD_DIRECTORY) {
		blocks += kvblk_index_slots(&node->hints);
		hints = kvblk_index_used(&node->hints);
	}
	ret = kvblk_index_init(&m.index, blocks * 100 / PLAN_INDEX_LOAD + 1, pod->gens,
			       pod->stride * pod->o->nr_nodes);
	m.names = malloc((blocks + 1) * sizeof(*m.names));
	if (ret || !m.names) {
		ret = -ENOMEM;
		goto out;
	}
	m.most = own;
	sim_walk(pod->nodes[0].log, measure_entry, &m);
	m.most = pod->o->sharing == POD_FOLLOW ? blocks : m.nr + hints;
	while (++m.node < pod->o->nr_nodes && m.nr < m.most)
		sim_walk(pod->nodes[m.node].log, measure_entry, &m);
	pod->r->index_entries = m.nr;
	pod->r->index_bytes = kvblk_index_bytes(&m.index);
	pod->r->index_find_ns = measure_finds(&m);
out:
	kvblk_index_destroy(&m.index);
	free(m.names);
	return ret;
}

static void add_node(const struct pod_node *node, struct sim_result *all)
{
	all->capacity_blocks += node->r.capacity_blocks;
	all->hits += node->r.hits;
	all->puts += node->r.puts;
	all->admitted += node->r.admitted;
	all->declined += node->r.declined;
	all->writes += node->r.writes;
	all->copies += node->r.writes - node->r.admitted;
	all->dram_blocks += node->r.dram_blocks;
	all->dram_hits += node->r.dram_hits;
	all->dram_writes += node->r.dram_writes;
	all->dram_drops += node->r.dram_drops;
}

static void sum_up(const struct pod *pod)
{
	double nr = pod->o->nr_nodes, reads = 0, writes = 0;
	struct pod_result *r = pod->r;
	uint64_t followed = 0;

	for (uint32_t i = 0; i < pod->o->nr_nodes; i++) {
		const struct pod_node *node = &pod->nodes[i];

		add_node(node, &r->all);
		r->foreign_hits += node->foreign_hits;
		r->duplicates += node->duplicates;
		followed += node->entries * sizeof(struct kvblk_d_entry) +
			    node->table_pages * KVBLK_UNIT;
		reads = fmax(reads, (double)(node->r.hits - node->foreign_hits + node->lent));
		writes = fmax(writes, (double)node->r.writes);
	}
	r->busiest_reads = r->all.hits ? reads * nr / (double)r->all.hits : 0;
	r->busiest_writes = r->all.writes ? writes * nr / (double)r->all.writes : 0;
	if (pod->o->sharing == POD_FOLLOW)
		r->refresh_bytes = (double)followed * (nr - 1) / nr;
	if (pod->o->sharing == POD_DIRECTORY)
		r->refresh_bytes = (double)r->pages * KVBLK_UNIT / nr;
	sim_finish(&r->all);
}

/* ---- set-up ---- */

static const struct pod_sharing_ops *const sharings[] = {
	[POD_NONE] = &pod_none,
	[POD_FOLLOW] = &pod_follow,
	[POD_DIRECTORY] = &pod_directory,
};

static int node_init(struct pod *pod, uint32_t nr, const struct sim_opts *sim, uint64_t capacity)
{
	struct pod_node *node = &pod->nodes[nr];
	int ret;

	node->pod = pod;
	node->nr = nr;
	node->r.capacity_blocks = capacity / pod->o->nr_nodes;
	node->r.dram_blocks = (uint64_t)(sim->dram * (double)pod->t->nr_distinct) / pod->o->nr_nodes;
	ret = sim_open(&node->log, &pod->n, sim, &peers, node, &node->r);
	if (ret)
		return ret;
	pod->stride = sim_segments(node->log);
	node->polls = calloc(pod->stride / KVBLK_TABLE_ENTRIES + 1, sizeof(*node->polls));
	return node->polls ? 0 : -ENOMEM;
}

static int pod_init(struct pod *pod, const struct sim_opts *sim)
{
	uint64_t capacity = sim->capacity_blocks ?: sim->capacity * pod->t->nr_distinct;
	int ret;

	pod->sharing = sharings[pod->o->sharing];
	events_init(pod);
	pod->nodes = calloc(pod->o->nr_nodes, sizeof(*pod->nodes));
	pod->copies = calloc((size_t)pod->n.nr + 1, sizeof(*pod->copies));
	ret = pod->nodes && pod->copies ? pod_router_init(pod, pod->t->nr_reqs) : -ENOMEM;
	for (uint32_t i = 0; !ret && i < pod->o->nr_nodes; i++)
		ret = node_init(pod, i, sim, capacity);
	if (ret)
		return ret;
	if ((uint64_t)pod->stride * pod->o->nr_nodes >= 1 << KVBLK_INDEX_SEG_BITS)
		return -EINVAL;
	pod->gens = calloc((size_t)pod->stride * pod->o->nr_nodes + 1, sizeof(*pod->gens));
	return pod->gens ? pod->sharing->init(pod) : -ENOMEM;
}

/* Free what pod_init() allocated, also after a failure. */
static void pod_destroy(struct pod *pod)
{
	if (pod->nodes)
		pod->sharing->destroy(pod);
	for (uint32_t i = 0; pod->nodes && i < pod->o->nr_nodes; i++) {
		sim_close(pod->nodes[i].log);
		free(pod->nodes[i].polls);
	}
	pod_router_destroy(pod);
	free(pod->touches.ring);
	free(pod->nodes);
	free(pod->copies);
	free(pod->gens);
	renamed_free(&pod->n);
}

int pod_simulate(const struct trace *t, const struct sim_opts *sim,
		 const struct pod_opts *o, struct pod_result *r)
{
	struct pod pod = { .o = o, .t = t, .sharing = &pod_none, .r = r };
	int ret;

	*r = (struct pod_result){ .all = { .requests = t->nr_reqs, .refs = t->nr_refs } };
	ret = rename_ids(t, sim->salt, &pod.n);
	ret = ret ?: pod_init(&pod, sim);
	ret = ret ?: run(&pod);
	ret = ret ?: measure(&pod);
	if (!ret)
		sum_up(&pod);
	pod_destroy(&pod);
	return ret;
}
