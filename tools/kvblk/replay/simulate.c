// SPDX-License-Identifier: MIT
/*
 * The simulated log under the module's own policy and index, and the caches it is compared
 * with.
 *
 * All of them get a trace whose ids are renamed 0, 1, 2 ... in order of first use, so that
 * state of a block lies in an array. Hits of a request are its leading blocks that are
 * present. Hits are touched, and so are blocks behind a hole, because the runtime offers
 * them again, and a put of an existing block touches it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../../../daemon/policy/governor.h"
#include "index/index.h"
#include "policy/duel.h"
#include "policy/policy.h"
#include "replay/sim_log.h"
#include "replay/simulate.h"

#define BLOCK_BYTES	4096ULL
#define NR_SEGMENTS	1024
#define FREE_SEGMENTS	2	/* free segments that reclaim maintains */
#define SLOTS_PER_BLOCK	2	/* large enough that the index never evicts */
#define NOWHERE		UINT32_MAX
/* batch sizes of kernel/dram/demote.c: blocks of one chain, or blocks without a chain */
#define RUN		1024
#define RUN_SINGLE	16

static uint64_t spread(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

int rename_ids(const struct trace *t, uint64_t salt, struct renamed *n)
{
	size_t slots = 16, s;
	uint32_t *table;

	if (t->nr_refs >= NOWHERE / 2)
		return -EINVAL;
	while (slots < 2 * t->nr_refs)
		slots *= 2;
	n->names = calloc(t->nr_refs + 1, sizeof(*n->names));
	n->hashes = calloc(t->nr_refs + 1, sizeof(*n->hashes));
	table = calloc(slots, sizeof(*table));
	if (!n->names || !n->hashes || !table) {
		free(table);
		return -ENOMEM;
	}
	for (uint64_t i = 0; i < t->nr_refs; i++) {
		/* a bijection for every salt */
		uint64_t hash = spread(t->ids[i] ^ (salt ? spread(salt) : 0));

		for (s = hash & (slots - 1);
		     table[s] && n->hashes[table[s] - 1] != hash;
		     s = (s + 1) & (slots - 1))
			;
		if (!table[s]) {
			n->hashes[n->nr++] = hash;
			table[s] = n->nr;
		}
		n->names[i] = table[s] - 1;
	}
	free(table);
	for (size_t i = 0; i < t->nr_reqs; i++)
		if (n->longest < t->reqs[i].nr)
			n->longest = t->reqs[i].nr;
	return 0;
}

void renamed_free(struct renamed *n)
{
	free(n->names);
	free(n->hashes);
}

struct kvblk_id renamed_id(const struct renamed *n, uint32_t name)
{
	uint64_t lo = n->hashes[name];

	return (struct kvblk_id){ .hi = spread(lo), .lo = lo };
}

/**
 * struct ring - ordered names, linked by number; the head is no name
 * @prev: predecessor of each name; NOWHERE: not in the ring
 * @next: successor of each name
 * @head: before the first and behind the last name
 */
struct ring {
	uint32_t *prev;
	uint32_t *next;
	uint32_t head;
};

static int ring_init(struct ring *ring, uint32_t nr)
{
	ring->prev = malloc((nr + 1) * sizeof(*ring->prev));
	ring->next = malloc((nr + 1) * sizeof(*ring->next));
	if (!ring->prev || !ring->next)
		return -ENOMEM;
	memset(ring->prev, 0xff, nr * sizeof(*ring->prev));
	ring->head = nr;
	ring->prev[nr] = nr;
	ring->next[nr] = nr;
	return 0;
}

static void ring_free(struct ring *ring)
{
	free(ring->prev);
	free(ring->next);
}

static bool ring_has(const struct ring *ring, uint32_t name)
{
	return ring->prev[name] != NOWHERE;
}

static void ring_add(struct ring *ring, uint32_t name)
{
	ring->prev[name] = ring->prev[ring->head];
	ring->next[name] = ring->head;
	ring->next[ring->prev[name]] = name;
	ring->prev[ring->head] = name;
}

static void ring_remove(struct ring *ring, uint32_t name)
{
	ring->next[ring->prev[name]] = ring->next[name];
	ring->prev[ring->next[name]] = ring->prev[name];
	ring->prev[name] = NOWHERE;
}

/**
 * struct seg - a segment of the simulated log
 * @blocks: names of the blocks written, in order
 * @nr: entries of @blocks
 * @stamp: the policy's stamp; 0: free
 * @class: &enum kvblk_policy_class
 */
struct seg {
	uint32_t *blocks;
	uint32_t nr;
	uint64_t stamp;
	uint8_t class;
};

/**
 * struct object - a block in host memory, like struct kvblk_dram_block
 * @parent: hash of the chain's parent
 * @seg: segment of its index entry, if the entry is current
 * @off: offset of that entry
 * @gen: generation of that entry
 * @chain: request that put the block; 0: a copy
 * @heat: heat of the entry when the block was last at the cold end
 * @continues: @parent was present
 * @goes_on: the next blocks of the chain came in another batch
 * @touched: a get has found the block since
 * @needed: the block was requested since the put
 */
struct object {
	uint64_t parent;
	uint32_t seg;
	uint32_t off;
	uint32_t chain;
	uint16_t gen;
	uint8_t heat;
	bool continues;
	bool goes_on;
	bool touched;
	bool needed;
};

/* action for a block at the cold end */
enum fate {
	FATE_STAYS,
	FATE_STALE,
	FATE_DROP,
	FATE_WRITE,
	FATE_ASK,
};

/**
 * struct run - blocks that are decided together
 * @nr: number of blocks
 * @names: names, the coldest first, so a chain's last block first
 * @slots: index entries
 * @fates: &enum fate
 * @ask: indexes of blocks with FATE_ASK, in prefix order
 * @ids: ids of these blocks
 */
struct run {
	uint32_t nr;
	uint32_t names[RUN];
	struct kvblk_slot slots[RUN];
	enum fate fates[RUN];
	uint32_t ask[RUN];
	struct kvblk_id ids[RUN];
};

/**
 * struct dram - host memory in front of the log
 * @limit: capacity in blocks; 0: no such tier
 * @used: blocks in memory
 * @mode: &enum sim_dram_mode
 * @promote: keep a copy of blocks read from flash
 * @lru: names, the coldest first
 * @objects: by name
 * @chains: number of the last chain
 * @run: current batch
 */
struct dram {
	uint64_t limit;
	uint64_t used;
	enum sim_dram_mode mode;
	bool promote;
	struct ring lru;
	struct object *objects;
	uint32_t chains;
	struct run run;
};

/**
 * struct sim - a simulation
 * @policy: the module's policy
 * @duel: the module's choice between first and second offers
 * @index: the module's index
 * @gens: generation of each segment, for @index
 * @n: names of the trace
 * @segs: the log
 * @nr_segs: entries of @segs
 * @seg_blocks: blocks in each segment
 * @nr_free: free segments
 * @open: open segment of each class; NOWHERE: none
 * @recs: buffer for the records of a segment
 * @slots: index entries of @recs
 * @names: names of @recs
 * @missing: buffer for the missing names of a request
 * @ids: ids of @missing
 * @dram: host memory
 * @batch: puts of a request offered together; 0: all
 * @peers: the other logs of a pod
 * @node: first argument of the functions of @peers
 * @r: the result
 */
struct sim {
	struct kvblk_policy policy;
	struct kvblk_duel duel;
	struct kvblk_index index;
	uint16_t *gens;
	const struct renamed *n;
	struct seg *segs;
	uint32_t nr_segs;
	uint32_t seg_blocks;
	uint32_t nr_free;
	uint32_t open[KVBLK_NR_CLASSES];
	struct kvblk_policy_rec *recs;
	struct kvblk_slot *slots;
	uint32_t *names;
	uint32_t *missing;
	struct kvblk_id *ids;
	struct dram dram;
	uint32_t batch;
	const struct sim_peers *peers;
	void *node;
	struct sim_result *r;
};

static bool no_get(void *node, const uint32_t *names, uint32_t nr)
{
	return false;
}

static bool no_exists(void *node, uint32_t name)
{
	return false;
}

static void no_written(void *node, uint32_t name, uint32_t seg, bool came)
{
}

static void no_dropped(void *node, uint32_t name)
{
}

static void no_retired(void *node, uint32_t seg)
{
}

static const struct sim_peers no_peers = {
	.get = no_get,
	.exists = no_exists,
	.written = no_written,
	.dropped = no_dropped,
	.retired = no_retired,
};

static struct kvblk_id id_of(const struct sim *s, uint32_t name)
{
	return renamed_id(s->n, name);
}

static bool present(const struct sim *s, uint32_t name, struct kvblk_slot *slot)
{
	return kvblk_index_find(&s->index, id_of(s, name), slot);
}

/* Returns whether memory has the only copy of the block. */
static bool in_memory_only(const struct sim *s, const struct kvblk_slot *slot)
{
	return slot->seg == s->nr_segs;
}

static void open_segment(struct sim *s, enum kvblk_policy_class class)
{
	uint32_t i = 0;

	while (s->segs[i].stamp)
		i++;
	s->nr_free--;
	s->segs[i].nr = 0;
	s->segs[i].class = class;
	s->segs[i].stamp = kvblk_policy_open(&s->policy, class,
					     s->seg_blocks * BLOCK_BYTES);
	s->open[class] = i;
}

/*
 * Set the entry of @name to @slot. @old: the current entry; NULL: none. Returns 0 or a
 * negative errno.
 */
static int enter(struct sim *s, uint32_t name, const struct kvblk_slot *old,
		 struct kvblk_slot *slot)
{
	struct kvblk_slot victim;
	int ret;

	if (old) {
		kvblk_index_replace(&s->index, id_of(s, name), old, slot);
		return 0;
	}
	ret = kvblk_index_insert(&s->index, id_of(s, name), slot, &victim, true);
	return ret < 0 ? ret : 0;
}

/*
 * Write @name to the log. @old: the current entry; NULL: none. Returns 0 or a negative
 * errno.
 */
static int append(struct sim *s, uint32_t name, enum kvblk_policy_class class,
		  const struct kvblk_slot *old)
{
	struct kvblk_slot slot = { .len = BLOCK_BYTES, .state = KVBLK_SLOT_LIVE };
	struct seg *seg;
	int ret;

	if (s->open[class] == NOWHERE)
		open_segment(s, class);
	seg = &s->segs[s->open[class]];
	slot.seg = s->open[class];
	slot.gen = s->gens[slot.seg];
	slot.off = seg->nr;
	seg->blocks[seg->nr++] = name;
	s->r->writes++;
	if (seg->nr == s->seg_blocks)
		s->open[class] = NOWHERE;
	ret = enter(s, name, old, &slot);
	s->peers->written(s->node, name, slot.seg, !old || in_memory_only(s, old));
	return ret;
}

/*
 * Find the sealed segment to reclaim next, NOWHERE if there is none. Returns the number of
 * sealed segments.
 */
static uint32_t pick_sealed(const struct sim *s, uint32_t *pick)
{
	uint64_t rank, best = UINT64_MAX;
	uint32_t nr = 0;

	*pick = NOWHERE;
	for (uint32_t i = 0; i < s->nr_segs; i++) {
		const struct seg *seg = &s->segs[i];

		if (!seg->stamp || seg->nr < s->seg_blocks)
			continue;
		nr++;
		rank = kvblk_policy_rank(seg->stamp, false);
		if (rank < best) {
			best = rank;
			*pick = i;
		}
	}
	return nr;
}

/* Fill @s->recs with the live blocks of segment @index. Returns their number. */
static uint32_t list_live(struct sim *s, uint32_t index)
{
	const struct seg *seg = &s->segs[index];
	uint32_t nr = 0;

	for (uint32_t i = 0; i < seg->nr; i++) {
		uint32_t name = seg->blocks[i];
		struct kvblk_slot *slot = &s->slots[nr];

		if (!kvblk_index_find(&s->index, id_of(s, name), slot) ||
		    slot->seg != index || slot->off != i)
			continue;
		s->names[nr] = name;
		s->recs[nr++] = (struct kvblk_policy_rec){
			.id = id_of(s, name),
			.admission = &s->policy.own,
			.bytes = BLOCK_BYTES,
			.heat = slot->heat,
		};
	}
	return nr;
}

/* Returns whether blocks are put to memory, and to the log when they leave it. */
static bool memory_first(const struct sim *s)
{
	return s->dram.mode == SIM_DRAM_EVICT || s->dram.mode == SIM_DRAM_TOUCHED;
}

static int reclaim(struct sim *s)
{
	uint32_t nr, index, sealed, tries = 0;
	struct kvblk_policy_seg victim;
	int ret;

	do {
		sealed = pick_sealed(s, &index);
		if (index == NOWHERE)
			return -EINVAL;
		victim = (struct kvblk_policy_seg){
			.stamp = s->segs[index].stamp,
			.bytes = s->seg_blocks * BLOCK_BYTES,
			.class = s->segs[index].class,
		};
		nr = list_live(s, index);
		ret = kvblk_policy_classify(&s->policy, &victim, s->recs, nr,
					    tries++ >= kvblk_policy_tries(sealed));
		s->segs[index].stamp = victim.stamp;
	} while (ret == -EAGAIN);
	kvblk_duel_judge(&s->duel, memory_first(s) ? s->dram.limit * BLOCK_BYTES : 0);
	for (uint32_t i = 0; i < nr; i++) {
		if (!s->recs[i].keep) {
			s->peers->dropped(s->node, s->names[i]);
			continue;
		}
		append(s, s->names[i], KVBLK_CLASS_HOT, &s->slots[i]);
		s->r->copies++;
	}
	s->gens[index]++;	/* invalidates the blocks that were not copied */
	s->peers->retired(s->node, index);
	s->segs[index].stamp = 0;
	s->nr_free++;
	return 0;
}

/*
 * Write a put to the log, or a block that leaves memory (@old: its entry). Returns 0 or a
 * negative errno.
 */
static int put(struct sim *s, uint32_t name, const struct kvblk_slot *old)
{
	s->r->admitted++;
	while (s->open[KVBLK_CLASS_NEW] == NOWHERE &&
	       s->nr_free <= FREE_SEGMENTS) {
		int ret = reclaim(s);

		if (ret)
			return ret;
	}
	return append(s, name, KVBLK_CLASS_NEW, old);
}

static bool user_has(const struct dram *d, uint32_t name)
{
	return d->limit && d->mode == SIM_DRAM_USER && ring_has(&d->lru, name);
}

/* Keep a request's blocks in the runtime's own memory, the first block for longest. */
static void user_keep(struct dram *d, const uint32_t *names, uint32_t nr)
{
	while (nr-- > 0) {
		if (ring_has(&d->lru, names[nr]))
			ring_remove(&d->lru, names[nr]);
		else if (d->used == d->limit)
			ring_remove(&d->lru, d->lru.next[d->lru.head]);
		else
			d->used++;
		ring_add(&d->lru, names[nr]);
	}
}

static bool object_is(const struct object *obj, const struct kvblk_slot *slot)
{
	return obj->seg == slot->seg && obj->off == slot->off && obj->gen == slot->gen;
}

/* Returns whether the block of @slot, or a copy, is in memory. */
static bool in_memory(const struct sim *s, uint32_t name, const struct kvblk_slot *slot)
{
	return s->dram.limit && ring_has(&s->dram.lru, name) &&
	       object_is(&s->dram.objects[name], slot);
}

static void touch(struct sim *s, uint32_t name, const struct kvblk_slot *slot)
{
	if (kvblk_index_touch(&s->index, slot, kvblk_policy_tick(&s->policy)))
		kvblk_duel_touch(&s->duel, id_of(s, name));
}

/* Touch the leading blocks of @names that are present. Returns their number. */
static uint32_t lookup(struct sim *s, const uint32_t *names, uint32_t nr)
{
	struct kvblk_slot slot;
	uint32_t lead;

	for (lead = 0; lead < nr; lead++) {
		if (user_has(&s->dram, names[lead]))
			s->r->dram_hits++;
		else if (present(s, names[lead], &slot))
			touch(s, names[lead], &slot);
		else if (!s->peers->get(s->node, names + lead, nr - lead))
			break;
	}
	return lead;
}

static void dram_remove(struct sim *s, uint32_t name)
{
	ring_remove(&s->dram.lru, name);
	s->dram.used--;
}

/* Returns whether the block was requested since the last call, and resets that state. */
static bool object_hot(struct object *obj, const struct kvblk_slot *slot)
{
	bool hot = obj->touched || slot->heat != obj->heat;

	obj->touched = false;
	obj->heat = slot->heat;
	obj->needed |= hot;
	return hot;
}

static enum fate object_fate(const struct sim *s, uint32_t name, struct kvblk_slot *slot)
{
	struct object *obj = &s->dram.objects[name];

	if (!present(s, name, slot) || !object_is(obj, slot))
		return FATE_STALE;
	if (object_hot(obj, slot))
		return FATE_STAYS;
	if (!in_memory_only(s, slot))
		return FATE_STALE;
	if (obj->needed)
		return FATE_WRITE;
	return s->dram.mode == SIM_DRAM_TOUCHED ? FATE_DROP : FATE_ASK;
}

/* Take the coldest blocks: of one chain, or without a chain. */
static void run_take(struct dram *d)
{
	const struct ring *lru = &d->lru;
	uint32_t chain = d->objects[lru->next[lru->head]].chain, name;
	struct run *run = &d->run;

	for (run->nr = 0; run->nr < (chain ? RUN : RUN_SINGLE); run->nr++) {
		name = lru->next[lru->head];
		if (name == lru->head || d->objects[name].chain != chain)
			break;
		ring_remove(&d->lru, name);
		run->names[run->nr] = name;
	}
}

/* Let the policy decide on the blocks with FATE_ASK. */
static void run_ask(struct sim *s)
{
	struct run *run = &s->dram.run;
	struct kvblk_policy_chain chain = { .ids = run->ids, .chain = true };
	const struct object *first;
	uint32_t admitted, i;

	for (i = run->nr; i-- > 0;) {
		if (run->fates[i] != FATE_ASK)
			continue;
		run->ids[chain.nr] = id_of(s, run->names[i]);
		run->ask[chain.nr++] = i;
	}
	if (!chain.nr)
		return;
	first = &s->dram.objects[run->names[run->ask[0]]];
	chain.parent = first->parent;
	chain.parent_present = first->continues;
	chain.goes_on = first->goes_on;
	admitted = kvblk_policy_admit(&s->policy.own, &chain);
	for (i = 0; i < chain.nr; i++)
		run->fates[run->ask[i]] = i < admitted ? FATE_WRITE : FATE_DROP;
}

/* Carry out @fate. Returns 0 or a negative errno. */
static int object_go(struct sim *s, uint32_t name, const struct kvblk_slot *slot,
		     enum fate fate)
{
	if (fate == FATE_STAYS) {
		ring_add(&s->dram.lru, name);
		return 0;
	}
	s->dram.used--;
	if (fate == FATE_WRITE) {
		s->r->dram_writes++;
		return put(s, name, slot);
	}
	if (fate == FATE_DROP) {
		s->r->dram_drops++;
		s->r->declined++;
		return enter(s, name, slot, NULL);
	}
	return 0;
}

/* Once memory is 15/16 full, evict down to 7/8. Returns 0 or a negative errno. */
static int dram_shrink(struct sim *s)
{
	struct dram *d = &s->dram;
	struct run *run = &d->run;
	int ret = 0;
	uint32_t i;

	if (d->used * 16 <= d->limit * 15)
		return 0;
	while (!ret && d->used * 8 > d->limit * 7) {
		run_take(d);
		for (i = 0; i < run->nr; i++)
			run->fates[i] = object_fate(s, run->names[i], &run->slots[i]);
		run_ask(s);
		for (i = 0; !ret && i < run->nr; i++)
			ret = object_go(s, run->names[i], &run->slots[i], run->fates[i]);
	}
	return ret;
}

/* Put the block of @slot into memory, instead of a stale one. */
static void dram_add(struct sim *s, uint32_t name, const struct kvblk_slot *slot,
		     const struct object *as)
{
	struct object *obj = &s->dram.objects[name];

	if (ring_has(&s->dram.lru, name))
		dram_remove(s, name);
	*obj = *as;
	obj->seg = slot->seg;
	obj->off = slot->off;
	obj->gen = slot->gen;
	ring_add(&s->dram.lru, name);
	s->dram.used++;
}

/* Get blocks that are present. All may stay in memory, because the lookup has touched them. */
static int get(struct sim *s, const uint32_t *names, uint32_t nr)
{
	const struct object copy = { .touched = true };
	struct kvblk_slot slot;
	int ret = 0;
	uint32_t i;

	/* mark all before any can be evicted: the runtime has a lease */
	for (i = 0; i < nr; i++) {
		if (!present(s, names[i], &slot) || !in_memory(s, names[i], &slot))
			continue;
		s->dram.objects[names[i]].touched = true;
		s->r->dram_hits++;
	}
	for (i = 0; s->dram.promote && !ret && i < nr; i++) {
		if (s->dram.used >= s->dram.limit || !present(s, names[i], &slot) ||
		    in_memory(s, names[i], &slot))
			continue;
		s->r->dram_copies++;
		dram_add(s, names[i], &slot, &copy);
		ret = dram_shrink(s);
	}
	return ret;
}

/* Put a chain into memory; the policy decides at eviction. Returns 0 or a negative errno. */
static int put_to_memory(struct sim *s, const struct kvblk_policy_chain *chain)
{
	const struct object as = {
		.chain = ++s->dram.chains,
		.parent = chain->parent,
		.continues = chain->parent_present,
		.goes_on = chain->goes_on,
	};
	struct kvblk_slot slot = {
		.seg = s->nr_segs, .gen = s->gens[s->nr_segs],
		.len = BLOCK_BYTES, .state = KVBLK_SLOT_LIVE,
	};
	int ret = 0;

	for (uint32_t i = chain->nr; !ret && i-- > 0;) {
		slot.off = i;
		ret = enter(s, s->missing[i], NULL, &slot);
		dram_add(s, s->missing[i], &slot, &as);
	}
	return ret ?: dram_shrink(s);
}

/* Put the admitted part of a chain into the log. Returns as put_chain() does. */
static int put_to_flash(struct sim *s, const struct kvblk_policy_chain *chain)
{
	uint32_t admitted = kvblk_policy_admit(&s->policy.own, chain);
	bool declined = admitted < chain->nr;
	const struct object copy = { 0 };
	struct kvblk_slot slot;
	int ret = 0;

	s->r->declined += chain->nr - admitted;
	/* last first, so that a block is reclaimed after the blocks that depend on it */
	while (!ret && admitted--) {
		uint32_t name = s->missing[admitted];

		ret = put(s, name, NULL);
		if (ret || s->dram.mode != SIM_DRAM_THROUGH ||
		    s->dram.used >= s->dram.limit || !present(s, name, &slot))
			continue;
		dram_add(s, name, &slot, &copy);
		ret = dram_shrink(s);
	}
	return ret ?: declined;
}

/*
 * A batch of puts: blocks [@from, @from + @nr) of a request. @goes_on: more blocks of the
 * request follow.
 */
struct offer {
	const uint32_t *names;
	uint32_t from;
	uint32_t nr;
	bool goes_on;
};

/*
 * Returns 1 if blocks were declined, so that the rest is not offered; 0; or a negative
 * errno.
 */
static int put_chain(struct sim *s, const struct offer *o)
{
	struct kvblk_policy_chain chain = {
		.ids = s->ids, .chain = true, .goes_on = o->goes_on,
	};
	uint32_t before = o->from, i;
	struct kvblk_slot slot;

	for (i = o->from; i < o->from + o->nr; i++) {
		if (present(s, o->names[i], &slot)) {
			/* the block exists behind a hole that this request fills */
			touch(s, o->names[i], &slot);
			continue;
		}
		if (user_has(&s->dram, o->names[i]) || s->peers->exists(s->node, o->names[i]))
			continue;
		if (!chain.nr)
			before = i;
		s->missing[chain.nr] = o->names[i];
		s->ids[chain.nr++] = id_of(s, o->names[i]);
	}
	if (!chain.nr)
		return 0;
	chain.parent_present = before && (present(s, o->names[before - 1], &slot) ||
					  s->peers->exists(s->node, o->names[before - 1]));
	chain.parent = before ? s->n->hashes[o->names[before - 1]] : 0;
	s->r->puts += chain.nr;
	if (kvblk_duel_samples_any(&s->duel, &chain)) {
		chain.kind = kvblk_policy_kind(&s->policy.own, &chain);
		kvblk_duel_offer(&s->duel, &chain);
	}
	if (memory_first(s) && s->dram.used + chain.nr <= s->dram.limit)
		return put_to_memory(s, &chain);
	return put_to_flash(s, &chain);
}

int sim_request(struct sim *s, const uint32_t *names, uint32_t nr)
{
	uint32_t lead = lookup(s, names, nr);
	struct offer o = { .names = names, .from = lead };
	bool user = s->dram.limit && s->dram.mode == SIM_DRAM_USER;
	int ret = 0;

	s->r->hits += lead;
	if (s->dram.limit && !user)
		ret = get(s, names, lead);
	for (; !ret && o.from < nr; o.from += o.nr) {
		o.nr = s->batch && s->batch < nr - o.from ? s->batch : nr - o.from;
		o.goes_on = o.from + o.nr < nr;
		ret = put_chain(s, &o);
	}
	/* blocks that are not offered count as declined */
	s->r->puts += nr - o.from;
	s->r->declined += nr - o.from;
	if (user)
		user_keep(&s->dram, names, nr);
	return ret < 0 ? ret : 0;
}

static int dram_init(struct sim *s, const struct sim_opts *o)
{
	struct dram *d = &s->dram;

	d->limit = s->r->dram_blocks;
	d->mode = o->dram_mode;
	d->promote = o->dram_promote;
	if (!d->limit)
		return 0;
	d->objects = calloc(s->n->nr + 1, sizeof(*d->objects));
	return d->objects ? ring_init(&d->lru, s->n->nr) : -ENOMEM;
}

static int sim_init(struct sim *s, const struct sim_opts *o)
{
	uint64_t cap = s->r->capacity_blocks;
	uint32_t most = o->nr_segments ? o->nr_segments : NR_SEGMENTS;
	uint32_t i;

	s->batch = o->batch;
	if (most <= FREE_SEGMENTS + KVBLK_NR_CLASSES ||
	    cap < FREE_SEGMENTS + KVBLK_NR_CLASSES + 1)
		return -EINVAL;
	s->seg_blocks = cap > most ? cap / most : 1;
	s->nr_segs = cap / s->seg_blocks;
	s->nr_free = s->nr_segs;
	s->open[KVBLK_CLASS_NEW] = NOWHERE;
	s->open[KVBLK_CLASS_HOT] = NOWHERE;
	s->segs = calloc(s->nr_segs, sizeof(*s->segs));
	/* one more generation, for blocks in memory only */
	s->gens = calloc(s->nr_segs + 1, sizeof(*s->gens));
	s->recs = calloc(s->seg_blocks, sizeof(*s->recs));
	s->slots = calloc(s->seg_blocks, sizeof(*s->slots));
	s->names = calloc(s->seg_blocks, sizeof(*s->names));
	s->missing = calloc(s->n->longest + 1, sizeof(*s->missing));
	s->ids = calloc(s->n->longest + 1, sizeof(*s->ids));
	if (!s->segs || !s->gens || !s->recs || !s->slots ||
	    !s->names || !s->missing || !s->ids)
		return -ENOMEM;
	for (i = 0; i < s->nr_segs; i++) {
		s->segs[i].blocks = calloc(s->seg_blocks,
					   sizeof(*s->segs[i].blocks));
		if (!s->segs[i].blocks)
			return -ENOMEM;
	}
	if (kvblk_index_init(&s->index, SLOTS_PER_BLOCK * (cap + s->r->dram_blocks),
			     s->gens, s->nr_segs + 1))
		return -ENOMEM;
	if (dram_init(s, o))
		return -ENOMEM;
	if (kvblk_policy_init(&s->policy,
			      s->nr_segs * s->seg_blocks * BLOCK_BYTES, cap))
		return -ENOMEM;
	kvblk_duel_init(&s->duel, &s->policy);
	kvblk_duel_set(&s->duel, o->first_permille < 0);
	if (o->admit_permille >= 0)
		s->policy.admit_permille = o->admit_permille;
	if (o->first_permille >= 0 &&
	    kvblk_policy_set_first(&s->policy, o->first_permille))
		return -ENOMEM;
	if (o->reinsert_permille >= 0)
		s->policy.reinsert_permille = o->reinsert_permille;
	return 0;
}

/* Free what sim_init() allocated, also after a failure. */
static void sim_destroy(struct sim *s)
{
	kvblk_duel_destroy(&s->duel);
	kvblk_policy_destroy(&s->policy);
	kvblk_index_destroy(&s->index);
	for (uint32_t i = 0; s->segs && i < s->nr_segs; i++)
		free(s->segs[i].blocks);
	free(s->segs);
	free(s->gens);
	free(s->recs);
	free(s->slots);
	free(s->names);
	free(s->missing);
	free(s->ids);
	free(s->dram.objects);
	ring_free(&s->dram.lru);
}

int sim_open(struct sim **log, const struct renamed *n, const struct sim_opts *o,
	     const struct sim_peers *peers, void *node, struct sim_result *r)
{
	struct sim *s = calloc(1, sizeof(*s));
	int ret;

	*log = s;
	if (!s)
		return -ENOMEM;
	*s = (struct sim){ .n = n, .r = r, .peers = peers, .node = node };
	ret = sim_init(s, o);
	if (ret) {
		sim_close(s);
		*log = NULL;
	}
	return ret;
}

void sim_close(struct sim *s)
{
	if (s)
		sim_destroy(s);
	free(s);
}

uint32_t sim_segments(const struct sim *s)
{
	return s->nr_segs;
}

uint64_t sim_written(const struct sim *s)
{
	uint64_t nr = 0;

	for (uint32_t i = 0; i < s->nr_segs; i++)
		nr += s->segs[i].stamp ? s->segs[i].nr : 0;
	return nr;
}

uint8_t sim_tick(const struct sim *s)
{
	return kvblk_policy_tick(&s->policy);
}

bool sim_find(const struct sim *s, uint32_t name, struct kvblk_slot *slot)
{
	return present(s, name, slot) && !in_memory_only(s, slot);
}

void sim_touch(struct sim *s, uint32_t name)
{
	struct kvblk_slot slot;

	if (present(s, name, &slot))
		touch(s, name, &slot);
}

uint32_t sim_visit(struct sim *s, uint32_t seg, sim_visitor *visit, void *data)
{
	uint32_t nr = s->segs[seg].stamp ? list_live(s, seg) : 0;

	for (uint32_t i = 0; i < nr; i++)
		visit(data, s->names[i], &s->slots[i]);
	return nr ? s->segs[seg].nr : 0;
}

void sim_walk(struct sim *s, sim_visitor *visit, void *data)
{
	for (uint32_t i = 0; i < s->nr_segs; i++)
		sim_visit(s, i, visit, data);
}

/* Run the governor's decisions that were due by @now_s. Returns 0 or a negative errno. */
static int govern(struct sim *s, struct governor *g, double budget,
		  unsigned int most, double *next_s, double now_s)
{
	struct governor_look look = {
		.bytes = s->r->writes * BLOCK_BYTES,
		.budget = budget * s->r->capacity_blocks * BLOCK_BYTES,
		.admit_most = most,
	};
	struct governor_setting set;
	int ret = 0;

	for (; !ret && *next_s <= now_s; *next_s += GOVERNOR_STEP) {
		look.now_s = *next_s;
		look.now = (struct governor_setting){
			s->policy.admit_permille, s->policy.first_permille,
			s->policy.second_permille,
		};
		set = governor_decide(g, &look).set;
		s->policy.admit_permille = set.admit;
		s->policy.second_permille = set.second;
		ret = kvblk_policy_set_first(&s->policy, set.first);
	}
	return ret;
}

/* Add a request of @refs blocks to its day. @hits, @writes: totals before the request. */
static void count_day(const struct sim *s, double now_s, uint32_t refs,
		      uint64_t hits, uint64_t writes)
{
	uint32_t day = now_s / GOVERNOR_DAY;
	struct sim_day *d = &s->r->days[day];

	if (day >= SIM_DAYS_MAX)
		return;
	s->r->nr_days = day + 1;
	d->refs += refs;
	d->hits += s->r->hits - hits;
	d->writes += s->r->writes - writes;
	d->admit_permille = s->policy.admit_permille;
	d->first_permille = s->policy.first_permille;
	d->second_permille = s->policy.second_permille;
}

static int simulate_policy(const struct trace *t, const struct renamed *n,
			   const struct sim_opts *o, struct sim_result *r)
{
	struct sim s = { .n = n, .r = r, .peers = &no_peers };
	const uint32_t *names = n->names;
	struct governor governor = { 0 };
	double next_s = 0;
	unsigned int most;
	int ret;

	ret = sim_init(&s, o);
	most = s.policy.admit_permille;
	for (size_t i = 0; !ret && i < t->nr_reqs; i++) {
		double now_s = t->reqs[i].timestamp_ms / 1000.0;
		uint64_t hits = r->hits, dram_hits = r->dram_hits, writes = r->writes;

		if (o->budget)
			ret = govern(&s, &governor, o->budget, most, &next_s, now_s);
		ret = ret ?: sim_request(&s, names, t->reqs[i].nr);
		names += t->reqs[i].nr;
		if (o->found)
			o->found[i] = (struct sim_found){ r->hits - hits, r->dram_hits - dram_hits };
		if (o->budget)
			count_day(&s, now_s, t->reqs[i].nr, hits, writes);
	}
	r->copies = r->writes - r->admitted;
	sim_destroy(&s);
	return ret;
}

/* Simulate FIFO or LRU: evict the oldest block. */
static int simulate_queue(const struct trace *t, const struct renamed *n,
			  bool lru, struct sim_result *r)
{
	const uint32_t *names = n->names;
	struct ring ring = { 0 };
	uint64_t used = 0;
	int ret;

	ret = ring_init(&ring, n->nr);
	for (size_t i = 0; !ret && i < t->nr_reqs; names += t->reqs[i++].nr) {
		bool lead = true;

		for (uint32_t j = 0; j < t->reqs[i].nr; j++) {
			bool hit = ring_has(&ring, names[j]);

			lead &= hit;
			r->hits += lead;
			if (hit && !lru)
				continue;
			if (hit)
				ring_remove(&ring, names[j]);
			ring_add(&ring, names[j]);
			if (hit)
				continue;
			r->puts++;
			if (used == r->capacity_blocks)
				ring_remove(&ring, ring.next[ring.head]);
			else
				used++;
		}
	}
	r->admitted = r->puts;
	r->writes = r->puts;
	ring_free(&ring);
	return ret;
}

/**
 * struct farthest - a heap of names, farthest next use first
 * @key: next use; stale if it differs from the name's current one
 * @name: the name
 * @nr: number of entries
 */
struct farthest {
	uint32_t *key;
	uint32_t *name;
	uint64_t nr;
};

static void farthest_push(struct farthest *f, uint32_t key, uint32_t name)
{
	uint64_t i = f->nr++;

	for (; i && f->key[(i - 1) / 2] < key; i = (i - 1) / 2) {
		f->key[i] = f->key[(i - 1) / 2];
		f->name[i] = f->name[(i - 1) / 2];
	}
	f->key[i] = key;
	f->name[i] = name;
}

static void farthest_pop(struct farthest *f)
{
	uint32_t key = f->key[--f->nr], name = f->name[f->nr];
	uint64_t i = 0, kid;

	while ((kid = 2 * i + 1) < f->nr) {
		if (kid + 1 < f->nr && f->key[kid + 1] > f->key[kid])
			kid++;
		if (f->key[kid] <= key)
			break;
		f->key[i] = f->key[kid];
		f->name[i] = f->name[kid];
		i = kid;
	}
	f->key[i] = key;
	f->name[i] = name;
}

/*
 * Simulate the offline optimum: keep the blocks that are used again soonest, write no
 * others.
 */
static int simulate_optimum(const struct trace *t, const struct renamed *n,
			    struct sim_result *r)
{
	uint32_t *next = malloc((t->nr_refs + 1) * sizeof(*next));
	uint32_t *last = malloc((n->nr + 1) * sizeof(*last));
	uint32_t *cached = malloc((n->nr + 1) * sizeof(*cached));
	struct farthest f = {
		.key = malloc((t->nr_refs + 1) * sizeof(*f.key)),
		.name = malloc((t->nr_refs + 1) * sizeof(*f.name)),
	};
	uint64_t used = 0, i, j, k = 0;
	int ret = -ENOMEM;

	if (!next || !last || !cached || !f.key || !f.name)
		goto out;
	for (i = 0; i < n->nr; i++) {
		last[i] = NOWHERE;
		cached[i] = NOWHERE;
	}
	for (i = t->nr_refs; i--; last[n->names[i]] = i)
		next[i] = last[n->names[i]];
	for (i = 0; i < t->nr_reqs; i++) {
		bool lead = true;

		for (j = 0; j < t->reqs[i].nr; j++, k++) {
			uint32_t b = n->names[k];
			bool hit = cached[b] != NOWHERE;

			lead &= hit;
			r->hits += lead;
			r->puts += !hit;
			used += !hit;
			cached[b] = next[k];
			if (next[k] == NOWHERE) {
				used--;
				continue;
			}
			r->writes += !hit;
			farthest_push(&f, next[k], b);
			while (used > r->capacity_blocks) {
				b = f.name[0];
				if (cached[b] == f.key[0]) {
					cached[b] = NOWHERE;
					used--;
				}
				farthest_pop(&f);
			}
		}
	}
	r->admitted = r->writes;
	ret = 0;
out:
	free(next);
	free(last);
	free(cached);
	free(f.key);
	free(f.name);
	return ret;
}

void sim_finish(struct sim_result *r)
{
	r->hit_ratio = (double)r->hits / r->refs;
	r->writes_per_hit = r->writes / (double)(r->hits ? r->hits : 1);
	r->writes_per_block = (double)r->writes / r->refs;
}

int simulate(const struct trace *t, const struct sim_opts *o,
	     struct sim_result *r)
{
	struct renamed n = { 0 };
	int ret;

	*r = (struct sim_result){
		.requests = t->nr_reqs,
		.refs = t->nr_refs,
		.capacity_blocks = o->capacity_blocks,
	};
	if (!r->capacity_blocks)
		r->capacity_blocks = o->capacity * t->nr_distinct;
	r->dram_blocks = o->dram * t->nr_distinct;
	if (!r->capacity_blocks || o->capacity < 0 || !t->nr_refs)
		return -EINVAL;
	ret = rename_ids(t, o->salt, &n);
	if (!ret) {
		switch (o->cache) {
		case SIM_POLICY:
			ret = simulate_policy(t, &n, o, r);
			break;
		case SIM_FIFO:
		case SIM_LRU:
			ret = simulate_queue(t, &n, o->cache == SIM_LRU, r);
			break;
		case SIM_OPTIMUM:
			ret = simulate_optimum(t, &n, r);
			break;
		default:
			ret = -EINVAL;
		}
	}
	renamed_free(&n);
	if (o->cache != SIM_POLICY)
		r->declined = r->puts - r->admitted;
	sim_finish(r);
	return ret;
}
