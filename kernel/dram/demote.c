// SPDX-License-Identifier: GPL-2.0
/* Eviction of DRAM blocks: to a member, or for good. See dram.c. */
#include <linux/shrinker.h>
#include <linux/slab.h>

#include "memory/memory.h"
#include "dram/dram.h"

#define RUN		KVBLK_OPS_MAX	/* DRAM blocks decided on together: a batch of a chain */
#define RUN_SINGLE	16		/* outside chains: few, so that no more than needed go */
#define WRITES		16		/* most blocks written at once */
#define WRITE_BYTES	SZ_8M		/* most bytes written at once */
#define STAGE_TRIES	3		/* failed writes that drop a block no task waits for */
#define LOOK		(HZ / 10)	/* interval of checks for completed writes and for space */
#define SPACE_WAIT	(5 * HZ)	/* longest wait for space in one run of the work */
#define CLOSE_TIME	(10 * HZ)	/* of writes for a pool that is going away */

struct stage {
	struct kvblk_io io;
	struct kvblk_queued_io queued;
	struct stages *all;
	struct kvblk_dram_block *obj;
	struct kvblk_slot slot;		/* the entry, MOVING */
	struct kvblk_reservation resv;
	struct kvblk_rec rec;
	void *header;
	bool never;			/* queued.given_up; always false */
	bool completed;
	bool damaged;			/* the checksums do not match */
	bool ended;
	bool urgent;			/* a task waits for a durable record */
	u32 quota;			/* units reserved in the tenant's account, or 0 */
	struct kvblk_mem mem;
};

enum stages_state {
	STAGES_INFLIGHT,
	STAGES_LEFT,			/* only silent members' writes are left; no task waits */
	STAGES_COMPLETED,
};

struct stages {
	struct kvblk_pool *pool;
	struct delayed_work work;	/* for STAGES_LEFT */
	atomic_t state;
	atomic_t inflight;
	struct completion completed;
	u32 nr;
	u64 bytes;
	bool hopeless;			/* no space, and none is expected */
	struct stage stage[WRITES];
};

static void stage_completed(struct kvblk_io *io)
{
	struct stage *stage = container_of(io, struct stage, io);
	struct stages *all = stage->all;

	kvblk_throttle_leave(&stage->queued);
	/* pairs with stages_end() */
	smp_store_release(&stage->completed, true);
	/* once COMPLETED, the batch's own work may free the batch */
	if (atomic_dec_and_test(&all->inflight) &&
	    atomic_xchg(&all->state, STAGES_COMPLETED) == STAGES_INFLIGHT)
		complete(&all->completed);
}

static void stage_submit(struct kvblk_queued_io *queued)
{
	struct stage *stage = container_of(queued, struct stage, queued);

	kvblk_record_write(&stage->io, 0, &stage->resv, &stage->rec, stage->header, &stage->mem,
			   false);
	kvblk_io_end(&stage->io);
}

static void stage_rec(struct stage *stage)
{
	u32 policy = READ_ONCE(stage->all->pool->tun.integrity);
	const struct kvblk_dram_block *obj = stage->obj;

	stage->rec = obj->rec;
	stage->rec.seq = stage->resv.seq;
	/* a hint may have changed it since the put */
	stage->rec.priority = stage->slot.prio;
	/* a record without checksums is discarded after a crash */
	if (!obj->rec.crcs)
		stage->rec.integrity = kvblk_proof_choose(stage->urgent ? KVBLK_CHECK_FULL : policy,
							  false, false);
	stage->rec.durable = kvblk_reservation_durable(&stage->resv, stage->rec.integrity,
						       stage->urgent);
}

/* Writes a DRAM block to the reservation, unless memory is short or the bytes are damaged. */
static void stage_write(struct stage *stage)
{
	struct kvblk_pool *pool = stage->all->pool;
	struct kvblk_dram_block *obj = stage->obj;

	memset(&stage->mem, 0, offsetof(struct kvblk_mem, few_bv));
	stage->mem.bv = obj->bv;
	stage->mem.nr = obj->nr + 1;
	stage->mem.bytes = obj->rec.length;
	stage->mem.media_bytes = round_up(obj->rec.length, KVBLK_UNIT);
	stage->damaged = kvblk_dram_block_judge(pool, obj) == KVBLK_VERIFY &&
			 !kvblk_payload_open(&stage->mem, NULL, obj->rec.integrity, obj->rec.crcs);
	if (!stage->damaged)
		stage->header = kvblk_header_alloc(false, obj->rec.length,
						   GFP_KERNEL | __GFP_NOWARN);
	stage->completed = !stage->header;
	if (!stage->header)
		return;
	stage_rec(stage);
	if (!kvblk_record_crcs(stage->header, obj->rec.length, stage->rec.integrity, obj->rec.crcs))
		kvblk_mem_seal(&stage->mem, stage->rec.integrity, kvblk_header_crcs(stage->header));
	atomic_inc(&stage->all->inflight);
	kvblk_io_start(&stage->io, &stage->resv.member->flash, stage_completed);
	stage->queued = (struct kvblk_queued_io) {
		.account = obj->account,
		.bytes = (u64)stage->resv.units << KVBLK_UNIT_SHIFT,
		.given_up = &stage->never,
		.submit = stage_submit,
	};
	kvblk_throttle_enter(&stage->queued, stage->resv.member);
}

/* Ends a write that has completed or was never submitted. */
static void stage_end(struct stage *stage)
{
	struct kvblk_pool *pool = stage->all->pool;
	struct kvblk_reservation *resv = &stage->resv;
	struct kvblk_dram_block *obj = stage->obj;
	struct kvblk_slot live = stage->slot;
	bool written = stage->header && !stage->io.status, stays;
	struct kvblk_flash *flash = &resv->member->flash;

	live.state = KVBLK_SLOT_LIVE;
	kvblk_reservation_slot(resv, &live);
	if (stage->header && !written) {
		kvblk_flash_error(flash, KVBLK_ERROR_WRITE, resv->segment);
		obj->avoid = READ_ONCE(pool->nr_members) > 1 ? flash->slot : 0;
	}
	/* invalidates older records on missing members */
	kvblk_missing_note(pool, obj->rec.id);
	written = written && kvblk_index_replace(&pool->index, obj->rec.id, &stage->slot, &live);
	/* before a delete can find the entry */
	if (stage->header && !written)
		kvblk_kill_later(pool, obj->rec.id, &live);
	live = stage->slot;
	live.state = KVBLK_SLOT_LIVE;
	if (stage->damaged)
		kvblk_dram_block_damaged(pool, obj);
	/* the payload is intact: another member may take it */
	stays = !written && !stage->damaged && (stage->urgent || ++obj->tries < STAGE_TRIES) &&
		kvblk_index_replace(&pool->index, obj->rec.id, &stage->slot, &live);
	kvblk_reservation_release(resv, written ? stage->header : NULL);
	kvblk_account_release(pool, obj->account, &stage->quota);
	if (!written && !stays)
		kvblk_index_replace(&pool->index, obj->rec.id, &stage->slot, NULL);
	if (stays) {
		kvblk_dram_block_queue(pool, obj);
	} else {
		kvblk_count(pool, written ? KVBLK_C_DRAM_WRITES : KVBLK_C_DRAM_DROPS, 1);
		kvblk_dram_block_remove(pool, obj);
	}
	kvblk_header_free(stage->header, false, obj->rec.length);
	kvblk_dram_block_put(obj);
}

/* Ends completed writes. Returns whether only those of silent members are left. */
static bool stages_end(struct stages *all)
{
	bool over = true, any = false;
	u32 i;

	for (i = 0; i < all->nr; i++) {
		struct stage *stage = &all->stage[i];

		if (stage->ended)
			continue;
		/* pairs with stage_completed() */
		stage->ended = smp_load_acquire(&stage->completed);
		any |= stage->ended;
		if (stage->ended)
			stage_end(stage);
		else
			over &= !kvblk_flash_may_read(&stage->resv.member->flash);
	}
	if (any)
		wake_up_all(&all->pool->settle_wait);
	return over;
}

static void stages_work(struct work_struct *work)
{
	struct stages *all = container_of(to_delayed_work(work), struct stages, work);
	struct kvblk_pool *pool = all->pool;
	bool over = atomic_read_acquire(&all->state) == STAGES_COMPLETED;

	stages_end(all);
	if (!over) {
		queue_delayed_work(pool->wq, &all->work, LOOK);
		return;
	}
	kvfree(all);
	/* after blocks were queued again; pairs with kvblk_dram_close() */
	atomic_dec_return_release(&pool->dram.left);
	wake_up_all(&pool->settle_wait);
}

static struct stages *stages_new(struct kvblk_pool *pool)
{
	struct stages *all = kvzalloc(sizeof(*all), GFP_KERNEL | __GFP_NOWARN);

	if (!all)
		return NULL;
	all->pool = pool;
	INIT_DELAYED_WORK(&all->work, stages_work);
	atomic_set(&all->inflight, 1);
	init_completion(&all->completed);
	return all;
}

/* Leaves the batch to a work and begins a new one. Returns false if the batch must be awaited. */
static bool stages_leave(struct stages *all)
{
	struct kvblk_dram *dram = &all->pool->dram;
	struct stages *next __free(kvfree) = NULL;

	if (atomic_read(&dram->left) < KVBLK_MEMBERS_MAX)
		next = stages_new(all->pool);
	if (!next ||
	    atomic_cmpxchg(&all->state, STAGES_INFLIGHT, STAGES_LEFT) != STAGES_INFLIGHT)
		return false;
	next->hopeless = all->hopeless;
	dram->stages = no_free_ptr(next);
	atomic_inc(&dram->left);
	queue_delayed_work(all->pool->wq, &all->work, LOOK);
	return true;
}

/* Waits for the batch while its members respond; otherwise dram->stages is a new batch. */
static void stages_flush(struct kvblk_pool *pool)
{
	struct stages *all = pool->dram.stages;

	if (!all->nr)
		return;
	/* inflight was 1 before the first write */
	if (!atomic_dec_and_test(&all->inflight))
		while (!wait_for_completion_timeout(&all->completed, LOOK))
			if (stages_end(all) && stages_leave(all))
				return;
	stages_end(all);
	all->nr = 0;
	all->bytes = 0;
	atomic_set(&all->state, STAGES_INFLIGHT);
	atomic_set(&all->inflight, 1);
	reinit_completion(&all->completed);
}

static bool stage_suits(void *what, struct kvblk_member *member)
{
	const struct kvblk_dram_block *obj = what;

	return member->flash.slot != obj->avoid;
}

/* Reserves space on a member; only the first futile wait takes long. */
static bool stage_reserve(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
			  struct kvblk_reservation *resv)
{
	struct kvblk_dram *dram = &pool->dram;
	unsigned long end = jiffies + SPACE_WAIT;
	int seen = atomic_read(&pool->space_seq), err;

	while ((err = kvblk_pool_reserve(pool, obj->rec.tenant, obj->rec.length, stage_suits, obj,
					 resv)) == -EAGAIN) {
		/* finish the batch first, because a segment may wait for its last record */
		stages_flush(pool);
		if (dram->stages->hopeless || time_after(jiffies, end))
			break;
		wait_event_idle_timeout(pool->space_wait,
					atomic_read(&pool->space_seq) != seen, LOOK);
		seen = atomic_read(&pool->space_seq);
	}
	/* -ENOSPC concerns the block, which may be too long for the members */
	dram->stages->hopeless |= err == -EAGAIN;
	return !err;
}

enum demote_action {
	DEMOTE_KEEP,			/* move to the hot end */
	DEMOTE_EVICT,			/* drop the memory: stale, or a copy of a member's block */
	DEMOTE_DROP,
	DEMOTE_WRITE,
	DEMOTE_ASK,
};

/* Returns whether the block was requested since it was last at the cold end. */
static bool block_hot(struct kvblk_dram_block *obj, const struct kvblk_slot *slot)
{
	bool hot = READ_ONCE(obj->touched) || slot->heat != obj->heat;

	if (READ_ONCE(obj->released)) {
		hot = READ_ONCE(obj->touched) || slot->heat;
		WRITE_ONCE(obj->released, !hot);
		obj->needed = false;
	}
	WRITE_ONCE(obj->touched, false);
	obj->heat = slot->heat;
	obj->needed |= hot;
	return hot;
}

/* Decides the action for @obj. @all: keep no hot blocks; @spare: bytes of leased copies to keep. */
static enum demote_action block_action(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
				       struct kvblk_slot *slot, bool all, u64 *spare)
{
	u64 bytes = kvblk_dram_block_bytes(obj->rec.length);

	if (!kvblk_dram_block_current(pool, obj, slot))
		return DEMOTE_EVICT;
	if (block_hot(obj, slot) && !all)
		return DEMOTE_KEEP;
	/* entry and lease belong to the member's block; leased copies go last */
	if (!kvblk_dram_block_is_home(obj)) {
		if (!slot->leased || !spare || *spare < bytes)
			return DEMOTE_EVICT;
		*spare -= bytes;
		return DEMOTE_KEEP;
	}
	/* expires within a minute: a write would be wasted */
	if (kvblk_expired(slot->expiry, kvblk_now(pool) + 60))
		return DEMOTE_DROP;
	/* a lease moves with the entry */
	if (obj->needed || slot->prio >= 2 || slot->leased ||
	    kvblk_index_retained(&pool->index, slot, kvblk_now(pool)))
		return DEMOTE_WRITE;
	if (READ_ONCE(obj->released))
		return DEMOTE_DROP;
	return READ_ONCE(pool->tun.dram_mode) == KVBLK_DRAM_TOUCHED ? DEMOTE_DROP : DEMOTE_ASK;
}

struct run {
	u32 nr;
	struct kvblk_dram_block *objs[RUN];	/* coldest first: a chain's end */
	struct kvblk_slot slots[RUN];
	enum demote_action actions[RUN];
	struct kvblk_id ids[RUN];
	u32 ask[RUN];
};

/* Takes the coldest blocks: of one chain, or outside chains. */
static void run_take(struct kvblk_dram_node *node, struct run *run)
{
	struct kvblk_dram_block *obj, *next;
	u32 most = 1;

	run->nr = 0;
	guard(spinlock)(&node->lock);
	list_for_each_entry_safe(obj, next, &node->lru, lru) {
		if (!run->nr)
			most = obj->chain ? RUN : RUN_SINGLE;
		if (run->nr == most || (run->nr && obj->chain != run->objs[0]->chain))
			return;
		kvblk_dram_block_unqueue(node, obj);
		refcount_inc(&obj->refs);
		run->objs[run->nr++] = obj;
	}
}

/* Asks the policy about the @nr blocks at run->ask, of a chain in its order. */
static void run_ask_chain(struct kvblk_pool *pool, struct run *run, u32 nr)
{
	const struct kvblk_dram_block *first = run->objs[run->ask[0]];
	struct kvblk_policy_chain chain = {
		.ids = run->ids,
		.nr = nr,
		.parent = first->offer_parent,
		.parent_present = first->continues,
		.chain = first->chain,
	};
	u32 i;

	for (i = 0; i < nr; i++) {
		const struct kvblk_dram_block *obj = run->objs[run->ask[i]];

		run->ids[i] = obj->rec.id;
		chain.priority = max(chain.priority, run->slots[run->ask[i]].prio);
		chain.goes_on |= obj->goes_on;
	}
	scoped_guard(rcu)
		nr = kvblk_policy_admit(kvblk_admission_of(pool, first->rec.tenant), &chain);
	for (i = 0; i < chain.nr; i++)
		run->actions[run->ask[i]] = i < nr ? DEMOTE_WRITE : DEMOTE_DROP;
}

static void run_ask(struct kvblk_pool *pool, struct run *run)
{
	u32 i, nr = 0;

	for (i = run->nr; i-- > 0;) {
		if (run->actions[i] != DEMOTE_ASK)
			continue;
		run->ask[nr++] = i;
		if (run->objs[i]->chain)
			continue;
		run_ask_chain(pool, run, 1);
		nr = 0;
	}
	if (nr)
		run_ask_chain(pool, run, nr);
}

/* Claims the entry for @next, with its leases, or (NULL) for good, if unleased. Returns success. */
static bool block_claim(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
			const struct kvblk_slot *slot, const struct kvblk_slot *next)
{
	/* removed: its number may be another block's place by now */
	if (slot->state != KVBLK_SLOT_LIVE || READ_ONCE(obj->dead))
		return false;
	return next || READ_ONCE(pool->dram.closing) ?
	       kvblk_index_replace(&pool->index, obj->rec.id, slot, next) :
	       kvblk_index_claim(&pool->index, obj->rec.id, slot, next);
}

/* Evicts the block for good, counted by @counter. Returns false if the block stays. */
static bool block_drop(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
		       const struct kvblk_slot *slot, enum kvblk_counter counter)
{
	if (!block_claim(pool, obj, slot, NULL))
		return false;
	kvblk_count(pool, counter, 1);
	kvblk_dram_block_remove(pool, obj);
	return true;
}

/* Writes the block to a member, durably if @urgent. Returns false if the block stays. */
static bool block_write(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
			const struct kvblk_slot *slot, bool urgent)
{
	struct kvblk_slot moving = *slot;
	struct kvblk_reservation resv = {};
	struct stages *all;
	struct stage *stage;
	u32 quota = 0;

	if (slot->state != KVBLK_SLOT_LIVE)
		return false;
	if (READ_ONCE(pool->dram.closing) && time_after(jiffies, pool->dram.rest))
		return block_drop(pool, obj, slot, KVBLK_C_DRAM_DROPS);
	/* a durable put of the block finds none then, and fails as any put above the quota */
	if (kvblk_account_reserve(pool, obj->account, obj->rec.length, &quota)) {
		if (!block_drop(pool, obj, slot, KVBLK_C_DRAM_DROPS))
			return false;
		this_cpu_inc(obj->account->counters->quota_drops);
		return true;
	}
	/* before the claim, so that others wait for the entry no longer than for a write */
	if (!stage_reserve(pool, obj, &resv)) {
		kvblk_account_release(pool, obj->account, &quota);
		/* no other member has space: allow the avoided member next time */
		if (!urgent && !obj->avoid)
			return block_drop(pool, obj, slot, KVBLK_C_DRAM_DROPS);
		obj->avoid = 0;
		return false;
	}
	moving.state = KVBLK_SLOT_MOVING;
	if (!block_claim(pool, obj, slot, &moving)) {
		kvblk_reservation_release(&resv, NULL);
		kvblk_account_release(pool, obj->account, &quota);
		return false;
	}
	all = pool->dram.stages;
	stage = &all->stage[all->nr++];
	memset(stage, 0, offsetof(struct stage, mem));
	stage->all = all;
	refcount_inc(&obj->refs);
	stage->obj = obj;
	stage->slot = moving;
	stage->resv = resv;
	stage->urgent = urgent;
	stage->quota = quota;
	all->bytes += obj->rec.length;
	stage_write(stage);
	if (all->nr == WRITES || all->bytes >= WRITE_BYTES)
		stages_flush(pool);
	return true;
}

/* Carries out @action. Returns false if the block stays. */
static bool block_demote(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
			 const struct kvblk_slot *slot, enum demote_action action)
{
	switch (action) {
	case DEMOTE_KEEP:
		return false;
	case DEMOTE_WRITE:
		return block_write(pool, obj, slot, false);
	case DEMOTE_DROP:
		return block_drop(pool, obj, slot, KVBLK_C_DRAM_DROPS);
	default:
		kvblk_dram_block_remove(pool, obj);
		return true;
	}
}

static struct kvblk_dram_block *urgent_take(struct kvblk_dram *dram)
{
	struct kvblk_dram_block *obj;

	guard(spinlock)(&dram->lock);
	obj = list_first_entry_or_null(&dram->urgent, struct kvblk_dram_block, urgent);
	if (obj)
		list_del_init(&obj->urgent);
	return obj;
}

static void dram_urgent(struct kvblk_pool *pool)
{
	struct kvblk_dram_block *obj;
	struct kvblk_slot slot;
	u32 most = RUN;

	/* limited, so that eviction proceeds; waiting tasks ask again */
	while (most-- && (obj = urgent_take(&pool->dram))) {
		if (kvblk_dram_block_current(pool, obj, &slot) && kvblk_dram_block_is_home(obj))
			block_write(pool, obj, &slot, true);
		kvblk_dram_block_put(obj);
	}
	stages_flush(pool);
}

/* Returns the node with most bytes that is not in @stay, or NULL. */
static struct kvblk_dram_node *node_pick(struct kvblk_dram *dram, unsigned long *stay)
{
	struct kvblk_dram_node *most = NULL;
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		if (!test_bit(nid, stay) && READ_ONCE(dram->nodes[nid].bytes) &&
		    (!most || READ_ONCE(dram->nodes[nid].bytes) > READ_ONCE(most->bytes)))
			most = &dram->nodes[nid];
	return most;
}

/* Evicts a run of @node's coldest blocks. Returns the bytes that stay. */
static u64 dram_evict_run(struct kvblk_pool *pool, struct kvblk_dram_node *node, bool all,
			  u64 *spare)
{
	struct run *run = pool->dram.run;
	u64 stayed = 0;
	u32 i;

	run_take(node, run);
	for (i = 0; i < run->nr; i++)
		run->actions[i] = block_action(pool, run->objs[i], &run->slots[i], all, spare);
	run_ask(pool, run);
	for (i = 0; i < run->nr; i++) {
		struct kvblk_dram_block *obj = run->objs[i];

		if (!block_demote(pool, obj, &run->slots[i], run->actions[i])) {
			stayed += kvblk_dram_block_bytes(obj->rec.length);
			kvblk_dram_block_queue(pool, obj);
		}
		kvblk_dram_block_put(obj);
	}
	stages_flush(pool);
	return stayed;
}

/* Evicts until @target bytes are left, or until the rest must stay. */
static void dram_shrink_to(struct kvblk_pool *pool, u64 target, bool all)
{
	/* leased copies may stay, but each is met only twice, so leases pin no memory */
	u64 spare = all ? 0 : READ_ONCE(pool->tun.dram_bytes) / 2;
	struct kvblk_dram *dram = &pool->dram;
	struct kvblk_dram_node *node;
	DECLARE_BITMAP(stay, MAX_NUMNODES) = {};
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		dram->nodes[nid].stayed = 0;
	while (kvblk_dram_compare(dram, target) > 0) {
		node = node_pick(dram, stay);
		if (!node)
			break;
		/* each block may be met twice: hot, then no longer hot */
		node->stayed += dram_evict_run(pool, node, all, &spare);
		if (node->stayed > 2 * READ_ONCE(node->bytes))
			__set_bit(node - dram->nodes, stay);
		dram_urgent(pool);
		cond_resched();
	}
	if (kvblk_dram_compare(dram, target) > 0 && !READ_ONCE(dram->closing))
		WRITE_ONCE(dram->rest, jiffies + HZ / 10);
}

static void dram_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, dram.work);
	u64 limit = READ_ONCE(pool->tun.dram_bytes);

	while (kvblk_dram_idle_trim(pool, SZ_64M))
		cond_resched();
	pool->dram.stages->hopeless = false;
	dram_urgent(pool);
	if (kvblk_dram_compare(&pool->dram, kvblk_dram_low(limit)) > 0)
		dram_shrink_to(pool, limit - limit / 8, !limit);
	/* process the rest, because blocks on the list are referenced */
	if (!list_empty(&pool->dram.urgent))
		queue_work(pool->wq, work);
}

/* ---- memory pressure ---- */

static unsigned long dram_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct kvblk_pool *pool = shrinker->private_data;
	const struct kvblk_dram_node *node = &pool->dram.nodes[sc->nid];

	return (READ_ONCE(node->bytes) + READ_ONCE(node->idle_bytes)) >> PAGE_SHIFT ?: SHRINK_EMPTY;
}

static struct kvblk_dram_block *node_coldest(struct kvblk_dram_node *node)
{
	struct kvblk_dram_block *obj;

	guard(spinlock)(&node->lock);
	obj = list_first_entry_or_null(&node->lru, struct kvblk_dram_block, lru);
	if (!obj)
		return NULL;
	kvblk_dram_block_unqueue(node, obj);
	refcount_inc(&obj->refs);
	return obj;
}

/* Drops a block in memory reclaim: must not sleep. Returns false if hot, moving or leased. */
static bool block_squeeze(struct kvblk_pool *pool, struct kvblk_dram_block *obj)
{
	struct kvblk_slot slot;

	switch (block_action(pool, obj, &slot, false, NULL)) {
	case DEMOTE_KEEP:
		return false;
	case DEMOTE_EVICT:
		kvblk_dram_block_remove(pool, obj);
		return true;
	default:
		if (block_drop(pool, obj, &slot, KVBLK_C_DRAM_SQUEEZED))
			return true;
		/* to be written, because leases must not pin memory */
		if (slot.leased && slot.state == KVBLK_SLOT_LIVE)
			kvblk_dram_block_flush(pool, obj);
		return false;
	}
}

static unsigned long dram_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct kvblk_pool *pool = shrinker->private_data;
	u64 want = (u64)sc->nr_to_scan << PAGE_SHIFT;
	u64 freed = kvblk_dram_idle_free(pool, sc->nid, want), seen = freed;
	struct kvblk_dram_block *obj;

	while (seen < want) {
		u64 bytes;

		obj = node_coldest(&pool->dram.nodes[sc->nid]);
		if (!obj)
			break;
		bytes = kvblk_dram_block_bytes(obj->rec.length);
		seen += bytes;
		if (!block_squeeze(pool, obj))
			kvblk_dram_block_queue(pool, obj);
		/* another task may be copying from the block */
		if (kvblk_dram_block_free(obj))
			freed += bytes;
	}
	if (!list_empty(&pool->dram.urgent))
		queue_work(pool->wq, &pool->dram.work);
	sc->nr_scanned = seen >> PAGE_SHIFT;
	return seen ? freed >> PAGE_SHIFT : SHRINK_STOP;
}

static void demote_free(struct kvblk_dram *dram)
{
	shrinker_free(dram->shrinker);
	kvfree(dram->stages);
	kvfree(dram->run);
}

int kvblk_dram_init(struct kvblk_pool *pool)
{
	struct kvblk_dram *dram = &pool->dram;

	INIT_WORK(&dram->work, dram_work);
	dram->stages = stages_new(pool);
	dram->run = kvzalloc(sizeof(*dram->run), GFP_KERNEL);
	dram->shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE, "kvblk-dram:%s", pool->name);
	if (!dram->stages || !dram->run || !dram->shrinker || kvblk_dram_blocks_init(pool)) {
		demote_free(dram);
		return -ENOMEM;
	}
	dram->shrinker->count_objects = dram_count;
	dram->shrinker->scan_objects = dram_scan;
	dram->shrinker->private_data = pool;
	shrinker_register(dram->shrinker);
	return 0;
}

void kvblk_dram_close(struct kvblk_pool *pool)
{
	int left;

	/* before the rest, or else the shrinker could queue a block again */
	shrinker_free(pool->dram.shrinker);
	pool->dram.shrinker = NULL;
	WRITE_ONCE(pool->dram.rest, jiffies + CLOSE_TIME);
	/* after rest, which the work reads, too */
	smp_store_release(&pool->dram.closing, true);
	cancel_work_sync(&pool->dram.work);
	WRITE_ONCE(pool->dram.rest, jiffies + CLOSE_TIME);
	pool->dram.stages->hopeless = false;
	while (!list_empty(&pool->dram.urgent))
		dram_urgent(pool);
	/* repeat: left batches of silent members may queue blocks again */
	do {
		left = atomic_read_acquire(&pool->dram.left);
		dram_shrink_to(pool, 0, true);
		wait_event_idle(pool->settle_wait, !atomic_read_acquire(&pool->dram.left));
	} while (left);
	/* drop blocks that no member took, or else their memory would leak */
	WRITE_ONCE(pool->dram.rest, jiffies - 1);
	dram_shrink_to(pool, 0, true);
}

void kvblk_dram_exit(struct kvblk_pool *pool)
{
	demote_free(&pool->dram);
	kvblk_dram_blocks_exit(pool);
}
