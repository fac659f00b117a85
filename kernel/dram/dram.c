// SPDX-License-Identifier: GPL-2.0
/*
 * DRAM blocks: blocks in host memory, before or instead of on a member. A put copies the block here
 * and completes. When memory is needed, the coldest blocks leave (demote.c): those requested again
 * to a member, the rest if the policy admits their chain. Most blocks are never written.
 *
 * The rules:
 * - The index decides. A DRAM block is valid only while the entry of the id has the same place:
 *   segment KVBLK_DRAM_SEG and a number that is new with each put. Otherwise the DRAM block is
 *   stale: new gets miss, and the next user frees the memory.
 * - A block without a copy on a member leaves in one way: one task claims the entry and removes it,
 *   or makes it MOVING until LIVE on a member. A leased entry cannot be claimed for removal.
 * - The bytes do not change while a reference is held, even if the block is removed. No reference
 *   is held while waiting for a task or a pager, because it keeps the memory from reclaim.
 * - The shrinker drops, and never writes: no I/O, no allocation. Leased blocks are the work's.
 * - Idle folios, whose blocks have left, have bytes of any tenant. Only a put uses them, because it
 *   overwrites all bytes: a device may write less than it reports.
 *
 * The pool owns the memory, limited by dram_bytes and reported as reclaimable (KReclaimable).
 * Callers' memory cgroups are not charged, because a block outlives its put and serves others.
 */
#include <linux/log2.h>
#include <linux/slab.h>

#include "memory/memory.h"
#include "dram/dram.h"

/* An id is a hash already. */
static u32 id_hash(const void *id, u32 len, u32 seed)
{
	return ((const struct kvblk_id *)id)->lo ^ seed;
}

static const struct rhashtable_params dram_block_params = {
	.hashfn = id_hash,
	.min_size = 4096,
	.key_len = sizeof(struct kvblk_id),
	.key_offset = offsetof(struct kvblk_dram_block, rec.id),
	.head_offset = offsetof(struct kvblk_dram_block, node),
	.automatic_shrinking = true,
};

static void folio_count(struct folio *folio, long sign)
{
	mod_node_page_state(folio_pgdat(folio), NR_KERNEL_MISC_RECLAIMABLE,
			    sign * folio_nr_pages(folio));
}

static void folio_free(struct folio *folio)
{
	folio_count(folio, -1);
	folio_put(folio);
}

/* ---- idle folios: spare the allocator, which may clear what a put overwrites ---- */

static struct folio *idle_pop(struct kvblk_dram *dram, struct kvblk_dram_node *node, u32 order)
{
	struct folio *folio;

	if (list_empty(&node->idle[order]))
		return NULL;
	guard(spinlock_irqsave)(&node->idle_lock);
	folio = list_first_entry_or_null(&node->idle[order], struct folio, lru);
	if (!folio)
		return NULL;
	list_del(&folio->lru);
	WRITE_ONCE(node->idle_bytes, node->idle_bytes - folio_size(folio));
	atomic64_sub(folio_size(folio), &dram->idle);
	return folio;
}

static void idle_push(struct kvblk_dram *dram, struct folio *folio)
{
	struct kvblk_dram_node *node = &dram->nodes[folio_nid(folio)];

	guard(spinlock_irqsave)(&node->idle_lock);
	list_add(&folio->lru, &node->idle[folio_order(folio)]);
	WRITE_ONCE(node->idle_bytes, node->idle_bytes + folio_size(folio));
	atomic64_add(folio_size(folio), &dram->idle);
}

/*
 * Returns the bytes by which idle folios exceed what eviction leaves, or dram_bytes with blocks;
 * within KVBLK_DRAM_BATCH for each CPU: an exact sum would read the counters of all CPUs.
 */
static s64 idle_excess(struct kvblk_pool *pool)
{
	s64 limit = READ_ONCE(pool->tun.dram_bytes), idle = atomic64_read(&pool->dram.idle);

	return idle ? idle + max(percpu_counter_read(&pool->dram.bytes) - limit, -limit / 8) : 0;
}

/* Returns whether to keep the folios of a block of @bytes that leaves. */
static bool idle_wanted(struct kvblk_pool *pool, u64 bytes)
{
	/* init_on_free: the administrator wants no bytes to stay in free memory */
	return atomic64_read(&pool->dram.idle) + bytes <= READ_ONCE(pool->tun.dram_bytes) / 8 &&
	       idle_excess(pool) <= 0 && !want_init_on_free() && !READ_ONCE(pool->dram.closing);
}

u64 kvblk_dram_idle_free(struct kvblk_pool *pool, int nid, u64 bytes)
{
	struct kvblk_dram_node *node = &pool->dram.nodes[nid];
	u32 order = KVBLK_DRAM_ORDER;
	struct folio *folio;
	u64 freed = 0;

	while (freed < bytes) {
		folio = idle_pop(&pool->dram, node, order);
		if (!folio && !order--)
			break;
		if (!folio)
			continue;
		freed += folio_size(folio);
		folio_free(folio);
	}
	return freed;
}

bool kvblk_dram_idle_trim(struct kvblk_pool *pool, u64 most)
{
	s64 left = min_t(s64, idle_excess(pool), most);
	int nid;

	for (nid = 0; nid < nr_node_ids && left > 0; nid++)
		left -= kvblk_dram_idle_free(pool, nid, left);
	return idle_excess(pool) > 0;
}

/* ---- blocks ---- */

/* Returns the preferred node of the task's blocks, or NUMA_NO_NODE if a memory policy chooses. */
static int block_node(const struct kvblk_pool *pool)
{
	int nid = READ_ONCE(pool->tun.dram_node);

	/* the node's memory may have been removed since the tunable was set */
	if (nid != NUMA_NO_NODE && node_state(nid, N_NORMAL_MEMORY))
		return nid;
#ifdef CONFIG_NUMA
	if (current->mempolicy)
		return NUMA_NO_NODE;
#endif
	return numa_mem_id();
}

/*
 * Allocates folios, large ones only without a wait. @recycle: also idle ones, and as they are;
 * otherwise cleared. Returns their number; 0 if some are missing.
 */
static u32 folios_alloc(struct kvblk_pool *pool, struct list_head *folios, u32 bytes, bool recycle)
{
	u32 left = DIV_ROUND_UP(bytes, PAGE_SIZE), nr = 0;
	u32 order = min_t(u32, KVBLK_DRAM_ORDER, MAX_PAGE_ORDER);
	struct kvblk_dram *dram = &pool->dram;
	int nid = block_node(pool);
	struct folio *folio;

	while (left) {
		gfp_t gfp = GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY |
			    (recycle ? 0 : __GFP_ZERO);

		order = min_t(u32, order, ilog2(left));
		if (order)
			gfp &= ~__GFP_DIRECT_RECLAIM;
		folio = NULL;
		if (recycle && nid != NUMA_NO_NODE)
			folio = idle_pop(dram, &dram->nodes[nid], order);
		if (!folio) {
			folio = nid == NUMA_NO_NODE ? folio_alloc(gfp, order) :
						      __folio_alloc_node(gfp, order, nid);
			if (folio)
				folio_count(folio, 1);
		}
		if (!folio && !order)
			return 0;
		if (!folio) {
			order--;
			continue;
		}
		list_add_tail(&folio->lru, folios);
		left -= 1u << order;
		nr++;
	}
	return nr;
}

/* Allocates the payload, zeroed after @bytes. Returns false without memory. */
static bool object_fill(struct kvblk_pool *pool, struct kvblk_dram_block *obj, u32 bytes,
			bool recycle)
{
	u32 left = round_up(bytes, KVBLK_UNIT), padding = left - bytes;
	struct folio *folio, *next;
	struct bio_vec *bv;
	LIST_HEAD(folios);

	obj->nr = folios_alloc(pool, &folios, bytes, recycle);
	if (obj->nr)
		obj->bv = kvmalloc_array(obj->nr + 1, sizeof(*bv), GFP_KERNEL | __GFP_NOWARN);
	bv = obj->bv;
	list_for_each_entry_safe(folio, next, &folios, lru) {
		u32 part = min_t(size_t, left, folio_size(folio));

		list_del(&folio->lru);
		if (!obj->bv) {
			folio_free(folio);
			continue;
		}
		bvec_set_folio(++bv, folio, part, 0);
		left -= part;
	}
	if (!obj->bv)
		return false;
	memset(bvec_virt(bv) + bv->bv_len - padding, 0, padding);
	return true;
}

static void dram_charge(struct kvblk_dram *dram, s64 bytes)
{
	percpu_counter_add_batch(&dram->bytes, bytes, KVBLK_DRAM_BATCH);
}

static void account_charge(struct kvblk_account *account, s64 bytes)
{
	percpu_counter_add_batch(&account->dram, bytes, KVBLK_DRAM_BATCH);
}

static bool block_put(struct kvblk_dram_block *obj, bool keep)
{
	u64 bytes = kvblk_dram_block_bytes(obj->rec.length);
	struct kvblk_pool *pool = obj->pool;
	u32 i;

	if (!refcount_dec_and_test(&obj->refs))
		return false;
	/* the pool exists: references are held only with pool->users, or on pool->wq */
	keep = keep && idle_wanted(pool, bytes);
	dram_charge(&pool->dram, -(s64)bytes);
	account_charge(obj->account, -(s64)bytes);
	for (i = 1; i <= obj->nr; i++) {
		struct folio *folio = page_folio(obj->bv[i].bv_page);

		/* a network driver may still refer to it, to send it again */
		if (keep && folio_ref_count(folio) == 1 && !folio_contain_hwpoisoned_page(folio))
			idle_push(&pool->dram, folio);
		else
			folio_free(folio);
	}
	kvfree(obj->bv);
	kfree(obj->rec.crcs);
	kfree_rcu(obj, rcu);
	return true;
}

bool kvblk_dram_block_put(struct kvblk_dram_block *obj)
{
	return block_put(obj, true);
}

bool kvblk_dram_block_free(struct kvblk_dram_block *obj)
{
	return block_put(obj, false);
}

/* Starts eviction, unless the last run found nothing to evict, or kvblk_dram_close() will evict. */
static void dram_crowded(struct kvblk_pool *pool)
{
	/* work_pending() only reads the line that all puts into a full DRAM share */
	if (time_before(jiffies, READ_ONCE(pool->dram.rest)) || work_pending(&pool->dram.work) ||
	    !kvblk_pool_enter(pool))
		return;
	queue_work(pool->wq, &pool->dram.work);
	kvblk_pool_leave(pool);
}

void kvblk_dram_tick(struct kvblk_pool *pool)
{
	u64 limit = READ_ONCE(pool->tun.dram_bytes);

	if (kvblk_dram_compare(&pool->dram, kvblk_dram_low(limit)) > 0 || idle_excess(pool) > 0)
		dram_crowded(pool);
}

bool kvblk_dram_has_space(struct kvblk_pool *pool, u64 bytes)
{
	u64 limit = READ_ONCE(pool->tun.dram_bytes);

	return bytes <= limit && kvblk_dram_compare(&pool->dram, limit - bytes) <= 0;
}

struct kvblk_dram_block *kvblk_dram_block_new(struct kvblk_pool *pool,
					      struct kvblk_account *account, u32 length,
					      u32 key_len, bool recycle)
{
	u64 limit = READ_ONCE(pool->tun.dram_bytes), bytes = kvblk_dram_block_bytes(length);
	struct kvblk_dram_block *obj __free(kfree) = NULL;
	bool full = false;

	/* first, so that of two puts that exceed the limit together one sees both */
	dram_charge(&pool->dram, bytes);
	account_charge(account, bytes);
	if (!READ_ONCE(pool->dram.used))
		WRITE_ONCE(pool->dram.used, true);
	if (kvblk_dram_compare(&pool->dram, kvblk_dram_low(limit)) > 0) {
		dram_crowded(pool);
		/* here only, because near the value it adds up the bytes of all CPUs */
		full = kvblk_dram_compare(&pool->dram, limit) > 0;
	}
	if (!full && kvblk_dram_quota_fits(account, 0))
		obj = kzalloc(struct_size(obj, key, key_len), GFP_KERNEL | __GFP_NOWARN);
	if (!obj || !object_fill(pool, obj, length, recycle)) {
		dram_charge(&pool->dram, -(s64)bytes);
		account_charge(account, -(s64)bytes);
		return NULL;
	}
	kvblk_dram_idle_trim(pool, bytes);
	refcount_set(&obj->refs, 1);
	INIT_LIST_HEAD(&obj->lru);
	INIT_LIST_HEAD(&obj->urgent);
	obj->pool = pool;
	obj->account = account;
	obj->rec.length = length;
	obj->rec.key_len = key_len;
	obj->rec.key = obj->key;
	obj->nid = page_to_nid(obj->bv[1].bv_page);
	return no_free_ptr(obj);
}

/* ---- lists: the coldest first ---- */

static struct kvblk_dram_node *node_of(struct kvblk_pool *pool, const struct kvblk_dram_block *obj)
{
	return &pool->dram.nodes[obj->nid];
}

void kvblk_dram_block_queue(struct kvblk_pool *pool, struct kvblk_dram_block *obj)
{
	struct kvblk_dram_node *node = node_of(pool, obj);

	guard(spinlock)(&node->lock);
	if (obj->dead || !list_empty(&obj->lru))
		return;
	list_add_tail(&obj->lru, &node->lru);
	WRITE_ONCE(node->bytes, node->bytes + kvblk_dram_block_bytes(obj->rec.length));
}

void kvblk_dram_block_unqueue(struct kvblk_dram_node *node, struct kvblk_dram_block *obj)
{
	lockdep_assert_held(&node->lock);
	if (list_empty(&obj->lru))
		return;
	list_del_init(&obj->lru);
	WRITE_ONCE(node->bytes, node->bytes - kvblk_dram_block_bytes(obj->rec.length));
}

void kvblk_dram_block_remove(struct kvblk_pool *pool, struct kvblk_dram_block *obj)
{
	struct kvblk_dram_node *node = node_of(pool, obj);

	scoped_guard(spinlock, &node->lock) {
		if (obj->dead)
			return;
		WRITE_ONCE(obj->dead, true);
		kvblk_dram_block_unqueue(node, obj);
		/* under the lock, because dram_block_list() waits for the removal */
		rhashtable_remove_fast(&pool->dram.blocks, &obj->node, dram_block_params);
	}
	kvblk_dram_block_put(obj);
}

static bool dram_block_is(const struct kvblk_dram_block *obj, const struct kvblk_slot *slot)
{
	return obj->seg == slot->seg && obj->off == slot->off && obj->gen == slot->gen &&
	       obj->rec.length == slot->len;
}

bool kvblk_dram_block_current(struct kvblk_pool *pool, const struct kvblk_dram_block *obj,
			      struct kvblk_slot *slot)
{
	return kvblk_index_find(&pool->index, obj->rec.id, slot) && dram_block_is(obj, slot);
}

/* As kvblk_dram_block_get(), but not a request for the block. */
static struct kvblk_dram_block *dram_block_peek(struct kvblk_pool *pool, struct kvblk_id id,
						const struct kvblk_slot *slot)
{
	struct kvblk_dram_block *obj;

	guard(rcu)();
	obj = rhashtable_lookup(&pool->dram.blocks, &id, dram_block_params);
	return obj && dram_block_is(obj, slot) && refcount_inc_not_zero(&obj->refs) ? obj : NULL;
}

struct kvblk_dram_block *kvblk_dram_block_get(struct kvblk_pool *pool, struct kvblk_id id,
					      const struct kvblk_slot *slot)
{
	struct kvblk_dram_block *obj = dram_block_peek(pool, id, slot);

	if (obj && !READ_ONCE(obj->touched))
		WRITE_ONCE(obj->touched, true);
	return obj;
}

void kvblk_dram_flush(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot)
{
	struct kvblk_dram_block *obj;

	/* the list is not processed once the pool is going away */
	if (!kvblk_pool_enter(pool))
		return;
	obj = kvblk_dram_block_get(pool, id, slot);
	if (obj) {
		kvblk_dram_block_flush(pool, obj);
		kvblk_dram_block_put(obj);
	}
	queue_work(pool->wq, &pool->dram.work);
	kvblk_pool_leave(pool);
}

void kvblk_dram_block_flush(struct kvblk_pool *pool, struct kvblk_dram_block *obj)
{
	guard(spinlock)(&pool->dram.lock);
	if (!list_empty(&obj->urgent))
		return;
	refcount_inc(&obj->refs);
	list_add_tail(&obj->urgent, &pool->dram.urgent);
}

void kvblk_dram_demote(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot)
{
	struct kvblk_dram_block *obj = dram_block_peek(pool, id, slot);

	if (!obj)
		return;
	if (kvblk_dram_block_is_home(obj)) {
		kvblk_dram_block_flush(pool, obj);
		queue_work(pool->wq, &pool->dram.work);
	} else {
		kvblk_dram_block_remove(pool, obj);
	}
	kvblk_dram_block_put(obj);
}

void kvblk_dram_release(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot)
{
	struct kvblk_dram_block *obj = dram_block_peek(pool, id, slot);
	struct kvblk_dram_node *node;

	if (!obj)
		return;
	node = node_of(pool, obj);
	WRITE_ONCE(obj->released, true);
	WRITE_ONCE(obj->touched, false);
	scoped_guard(spinlock, &node->lock)
		if (!list_empty(&obj->lru))
			list_move(&obj->lru, &node->lru);
	kvblk_dram_block_put(obj);
}

void kvblk_dram_cancel_release(struct kvblk_pool *pool, struct kvblk_id id,
			       const struct kvblk_slot *slot)
{
	struct kvblk_dram_block *obj = dram_block_peek(pool, id, slot);

	if (!obj)
		return;
	WRITE_ONCE(obj->released, false);
	kvblk_dram_block_put(obj);
}

bool kvblk_dram_holds(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot)
{
	const struct kvblk_dram_block *obj;

	if (kvblk_slot_in_dram(slot))
		return true;
	if (!READ_ONCE(pool->dram.used))
		return false;
	guard(rcu)();
	obj = rhashtable_lookup(&pool->dram.blocks, &id, dram_block_params);
	return obj && dram_block_is(obj, slot);
}

enum kvblk_verdict kvblk_dram_block_judge(const struct kvblk_pool *pool,
					  const struct kvblk_dram_block *obj)
{
	return kvblk_proof_judge_dram(&kvblk_proofs[obj->rec.integrity],
				      READ_ONCE(pool->tun.integrity), obj->rec.integrity,
				      obj->unproven);
}

#define REPORT_GAP	(60 * HZ)

void kvblk_dram_block_damaged(struct kvblk_pool *pool, const struct kvblk_dram_block *obj)
{
	struct kvblk_report *report = &pool->dram.report;
	unsigned long next = READ_ONCE(report->next);
	u32 nr;

	/* a producer's checksums may have been wrong when put */
	if (kvblk_proofs[obj->rec.integrity].by_caller) {
		kvblk_count(pool, KVBLK_C_PRODUCER_MISMATCHES, 1);
		return;
	}
	kvblk_count(pool, KVBLK_C_CHECKSUM_FAILURES, 1);
	atomic_inc(&report->nr);
	if (time_before(jiffies, next) ||
	    cmpxchg(&report->next, next, jiffies + REPORT_GAP) != next)
		return;
	nr = atomic_xchg(&report->nr, 0);
	dev_err(&pool->dev,
		"%u damaged block%s in host memory; check the host for memory errors (EDAC)\n",
		nr, nr == 1 ? "" : "s");
	kvblk_event(pool, NULL, KVBLK_EVENT_CHECKSUM, KVBLK_DRAM_SEG);
}

void kvblk_dram_block_spoil(struct kvblk_pool *pool, struct kvblk_dram_block *obj)
{
	struct kvblk_slot slot;

	if (kvblk_dram_block_current(pool, obj, &slot) && kvblk_dram_block_is_home(obj) &&
	    slot.state == KVBLK_SLOT_LIVE && !READ_ONCE(obj->dead))
		kvblk_index_replace(&pool->index, obj->rec.id, &slot, NULL);
	kvblk_dram_block_remove(pool, obj);
}

void kvblk_dram_forget(struct kvblk_pool *pool, struct kvblk_id id)
{
	struct kvblk_dram_block *obj;
	struct kvblk_slot slot;

	scoped_guard(rcu) {
		obj = rhashtable_lookup(&pool->dram.blocks, &id, dram_block_params);
		if (!obj || !refcount_inc_not_zero(&obj->refs))
			return;
	}
	if (!kvblk_dram_block_current(pool, obj, &slot))
		kvblk_dram_block_remove(pool, obj);
	kvblk_dram_block_put(obj);
}

/* Walks the table once. Returns whether blocks may have been missed after one that was removed. */
static bool forget_segments(struct kvblk_pool *pool, u32 first, u32 nr)
{
	struct kvblk_dram_block *obj, *held = NULL;
	struct rhashtable_iter iter;
	bool missed = false;

	rhashtable_walk_enter(&pool->dram.blocks, &iter);
	rhashtable_walk_start(&iter);
	while ((obj = rhashtable_walk_next(&iter))) {
		/* the table was resized: some blocks are seen again */
		if (IS_ERR(obj))
			continue;
		if ((obj->seg - first >= nr && !need_resched()) ||
		    !refcount_inc_not_zero(&obj->refs))
			continue;
		rhashtable_walk_stop(&iter);
		/* outside the walk, because the last reference may vfree() */
		if (held)
			kvblk_dram_block_put(held);
		held = obj;
		if (obj->seg - first < nr)
			kvblk_dram_block_remove(pool, obj);
		cond_resched();
		rhashtable_walk_start(&iter);
		/* the walk resumes only at a block that is still in the table */
		missed |= READ_ONCE(obj->dead);
	}
	rhashtable_walk_stop(&iter);
	rhashtable_walk_exit(&iter);
	if (held)
		kvblk_dram_block_put(held);
	return missed;
}

void kvblk_dram_forget_segments(struct kvblk_pool *pool, u32 first, u32 nr)
{
	while (forget_segments(pool, first, nr))
		;
}

/* Inserts @obj at @slot, with a reference. Replaces a stale block; any if @owner of the entry. */
static int dram_block_list(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
			   const struct kvblk_slot *slot, bool owner)
{
	struct kvblk_dram_block *old;
	struct kvblk_slot now;
	int err;

	obj->seg = slot->seg;
	obj->off = slot->off;
	obj->gen = slot->gen;
	/* first, because the block may be removed once it is in the table */
	refcount_inc(&obj->refs);
	do {
		scoped_guard(rcu) {
			old = rhashtable_lookup_get_insert_fast(&pool->dram.blocks,
								&obj->node, dram_block_params);
			if (!old)
				return 0;
			err = PTR_ERR_OR_ZERO(old);
			if (!err && !refcount_inc_not_zero(&old->refs))
				old = NULL;
		}
		if (err || !old)
			continue;
		/* a stale block never becomes valid again */
		if (!owner && kvblk_dram_block_current(pool, old, &now))
			err = -EEXIST;
		else
			kvblk_dram_block_remove(pool, old);
		kvblk_dram_block_put(old);
	} while (!err);
	kvblk_dram_block_put(obj);
	return err;
}

/* Puts all blocks of a chain on one list, so that the policy judges them together. */
static void chain_home(struct kvblk_dram *dram, struct kvblk_dram_block *obj)
{
	u64 *home = &dram->homes[obj->chain % ARRAY_SIZE(dram->homes)];

	/* one task puts the chain, block after block */
	if (READ_ONCE(*home) >> 32 == obj->chain)
		obj->nid = (u32)READ_ONCE(*home);
	else
		WRITE_ONCE(*home, (u64)obj->chain << 32 | obj->nid);
}

#define SERIALS	BIT(KVBLK_INDEX_OFF_BITS)
#define BATCH	64			/* numbers that a CPU takes from dram->serial at once */

/*
 * Returns a number. It comes again only after dram->serial has advanced by SERIALS / 2: no task
 * still holds a block of the same number and id then.
 */
static u32 serial_next(struct kvblk_dram *dram)
{
	u32 *next = get_cpu_ptr(dram->serials), number;

	/* a CPU may hold numbers for so long that others return the same ones again */
	if (*next % BATCH == 0 || (u32)atomic_read(&dram->serial) - *next > SERIALS / 2)
		*next = atomic_fetch_add(BATCH, &dram->serial);
	number = (*next)++;
	put_cpu_ptr(dram->serials);
	return number % SERIALS;
}

int kvblk_dram_block_enter(struct kvblk_pool *pool, struct kvblk_dram_block *obj)
{
	struct kvblk_slot slot = {
		.seg = KVBLK_DRAM_SEG,
		.off = serial_next(&pool->dram),
		.len = obj->rec.length,
		.gen = pool->seg_gen[KVBLK_DRAM_SEG],
		.tenant = obj->rec.tenant,
		.state = KVBLK_SLOT_WRITING,
		.prio = obj->rec.priority,
		.expiry = obj->rec.expiry,
		.caller_tag = obj->rec.caller_tag,
	}, victim;
	int err;

	if (obj->chain)
		chain_home(&pool->dram, obj);
	/* the entry first, because its owner may replace the id's DRAM block */
	err = kvblk_entry_insert(pool, obj->rec.id, &slot, &victim);
	if (!err) {
		err = dram_block_list(pool, obj, &slot, true);
		if (err)
			kvblk_index_replace(&pool->index, obj->rec.id, &slot, NULL);
		else
			kvblk_index_publish(&pool->index, obj->rec.id, &slot);
	}
	if (!err) {
		kvblk_missing_note(pool, obj->rec.id);
		kvblk_dram_block_queue(pool, obj);
	}
	kvblk_dram_block_put(obj);
	return err;
}

bool kvblk_dram_block_keep(struct kvblk_pool *pool, struct kvblk_dram_block *obj,
			   const struct kvblk_slot *slot)
{
	if (dram_block_list(pool, obj, slot, false))
		return false;
	/* if the entry was removed meanwhile */
	kvblk_dram_forget(pool, obj->rec.id);
	return true;
}

int kvblk_dram_blocks_init(struct kvblk_pool *pool)
{
	struct kvblk_dram *dram = &pool->dram;
	int nid, order;

	spin_lock_init(&dram->lock);
	INIT_LIST_HEAD(&dram->urgent);
	dram->rest = jiffies;
	dram->report.next = jiffies;
	/* a segment without reclaim */
	pool->seg_gen[KVBLK_DRAM_SEG] = 1;
	dram->nodes = kcalloc(nr_node_ids, sizeof(*dram->nodes), GFP_KERNEL);
	dram->serials = alloc_percpu(u32);
	if (!dram->nodes || !dram->serials)
		goto fail;
	for (nid = 0; nid < nr_node_ids; nid++) {
		spin_lock_init(&dram->nodes[nid].lock);
		INIT_LIST_HEAD(&dram->nodes[nid].lru);
		spin_lock_init(&dram->nodes[nid].idle_lock);
		for (order = 0; order <= KVBLK_DRAM_ORDER; order++)
			INIT_LIST_HEAD(&dram->nodes[nid].idle[order]);
	}
	if (!rhashtable_init(&dram->blocks, &dram_block_params))
		return 0;
fail:
	free_percpu(dram->serials);
	kfree(dram->nodes);
	return -ENOMEM;
}

void kvblk_dram_blocks_exit(struct kvblk_pool *pool)
{
	int nid;

	rhashtable_destroy(&pool->dram.blocks);
	for (nid = 0; nid < nr_node_ids; nid++)
		kvblk_dram_idle_free(pool, nid, U64_MAX);
	free_percpu(pool->dram.serials);
	kfree(pool->dram.nodes);
}
