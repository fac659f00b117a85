// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks in the host's memory, before they are on a member or instead of that.
 *
 * A put lands here and is done. What is needed again is written to a member when it
 * is the coldest one and memory is wanted for another; what nobody came back for goes
 * by the policy's admission, chain by chain, and most of it is never written.
 *
 * The rules:
 * - The index decides. An object counts only while the entry of its id says the same
 *   place (segment KVBLK_DRAM_SEG, and a number that is new with each put); one that
 *   does not is stale: no get finds it, and it goes when it is met.
 * - A block that is only here has one way out: its entry, claimed by one task, becomes
 *   none, or MOVING until it is LIVE on a member. What a lease pins can't be claimed.
 * - Who has a reference finds the bytes unchanged, though the block may have gone.
 * - Memory pressure drops and never writes: the shrinker does no I/O and takes no
 *   memory. What it drops is a miss.
 *
 * Who owns the memory: the pool. dram_bytes bounds it, callers' memory cgroups are not
 * charged, for a block outlives the task that put it and serves other cgroups. It is
 * reported as reclaimable (KReclaimable).
 */
#include <linux/log2.h>
#include <linux/shrinker.h>
#include <linux/slab.h>

#include "log.h"
#include "mem.h"

/* A folio is at most what a huge page is on most machines. */
#define FOLIO_BYTES	SZ_2M
/* Objects looked at together: a chain is put by one batch. */
#define RUN		KVBLK_OPS_MAX
/* Of those of no chain: no more than have to go. */
#define RUN_SINGLE	16
/* Of those that are written, so many at once, and bytes. */
#define WRITES		16
#define WRITE_BYTES	SZ_8M
/* How long blocks wait for room on the members, in one go of the work. */
#define ROOM_WAIT	(5 * HZ)
/* How long a pool that is going writes: what is left then is dropped. */
#define CLOSE_TIME	(10 * HZ)

static const struct rhashtable_params object_params = {
	.key_len = sizeof(struct kvblk_id),
	.key_offset = offsetof(struct kvblk_object, rec.id),
	.head_offset = offsetof(struct kvblk_object, node),
	.automatic_shrinking = true,
};

/* ---- memory ---- */

/* What it is counted as: whole pages. */
static u64 object_bytes(u32 length)
{
	return round_up((u64)length, PAGE_SIZE);
}

static void folio_count(struct folio *folio, long sign)
{
	mod_node_page_state(folio_pgdat(folio), NR_KERNEL_MISC_RECLAIMABLE,
			    sign * folio_nr_pages(folio));
}

static void folios_free(struct list_head *folios)
{
	struct folio *folio, *next;

	list_for_each_entry_safe(folio, next, folios, lru) {
		list_del(&folio->lru);
		folio_put(folio);
	}
}

/* As large ones as there are: large ones are not worth a wait. Their number, or 0. */
static u32 folios_alloc(struct list_head *folios, u32 bytes)
{
	u32 left = DIV_ROUND_UP(bytes, PAGE_SIZE), nr = 0;
	u32 order = min_t(u32, get_order(FOLIO_BYTES), MAX_PAGE_ORDER);
	struct folio *folio;

	while (left) {
		gfp_t gfp = GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY;

		order = min_t(u32, order, ilog2(left));
		if (order)
			gfp &= ~__GFP_DIRECT_RECLAIM;
		folio = folio_alloc(gfp, order);
		if (!folio && order) {
			order--;
			continue;
		}
		if (!folio) {
			folios_free(folios);
			return 0;
		}
		list_add_tail(&folio->lru, folios);
		left -= 1u << order;
		nr++;
	}
	return nr;
}

/* False: no memory. What is behind @bytes in the last unit is zero. */
static bool object_fill(struct kvblk_object *obj, u32 bytes)
{
	u32 left = round_up(bytes, KVBLK_UNIT);
	struct folio *folio, *next;
	struct bio_vec *bv;
	LIST_HEAD(folios);

	obj->nr = folios_alloc(&folios, bytes);
	if (!obj->nr)
		return false;
	obj->bv = kvmalloc_array(obj->nr + 1, sizeof(*bv), GFP_KERNEL | __GFP_NOWARN);
	if (!obj->bv) {
		folios_free(&folios);
		return false;
	}
	bv = obj->bv;
	list_for_each_entry_safe(folio, next, &folios, lru) {
		u32 part = min_t(size_t, left, folio_size(folio));

		list_del(&folio->lru);
		folio_count(folio, 1);
		bvec_set_folio(++bv, folio, part, 0);
		left -= part;
	}
	memset(bvec_virt(bv) + bv->bv_len - (round_up(bytes, KVBLK_UNIT) - bytes), 0,
	       round_up(bytes, KVBLK_UNIT) - bytes);
	return true;
}

/* Its pool is there: whoever may hold an object holds the pool, or runs on its queue. */
static void object_free(struct kvblk_object *obj)
{
	u32 i;

	atomic64_sub(object_bytes(obj->rec.length), &obj->pool->dram.bytes);
	for (i = 1; obj->bv && i <= obj->nr; i++) {
		struct folio *folio = page_folio(obj->bv[i].bv_page);

		folio_count(folio, -1);
		folio_put(folio);
	}
	kvfree(obj->bv);
	kfree(obj->rec.crcs);
	kfree_rcu(obj, rcu);
}

void kvblk_object_put(struct kvblk_object *obj)
{
	if (refcount_dec_and_test(&obj->refs))
		object_free(obj);
}

/* So much is left to puts when it begins to make room, and when it stops. */
static u64 room_low(u64 limit)
{
	return limit - limit / 16;
}

static u64 room_high(u64 limit)
{
	return limit - limit / 8;
}

/* A pool that is going makes no room: kvblk_dram_close() does what is left to do. */
static void dram_kick(struct kvblk_pool *pool)
{
	if (!percpu_ref_tryget_live(&pool->users))
		return;
	queue_work(pool->wq, &pool->dram.work);
	percpu_ref_put(&pool->users);
}

/* There is too much, and it is worth a look. */
static void dram_crowded(struct kvblk_pool *pool)
{
	if (time_after_eq(jiffies, READ_ONCE(pool->dram.rest)))
		dram_kick(pool);
}

bool kvblk_dram_has_room(struct kvblk_pool *pool, u64 bytes)
{
	return atomic64_read(&pool->dram.bytes) + bytes <= READ_ONCE(pool->tun.dram_bytes);
}

struct kvblk_object *kvblk_object_new(struct kvblk_pool *pool, u32 length, u32 key_len)
{
	u64 limit = READ_ONCE(pool->tun.dram_bytes), bytes = object_bytes(length);
	s64 now = atomic64_add_return(bytes, &pool->dram.bytes);
	struct kvblk_object *obj = NULL;

	if (now > (s64)room_low(limit))
		dram_crowded(pool);
	if (now <= (s64)limit)
		obj = kzalloc(struct_size(obj, key, key_len), GFP_KERNEL | __GFP_NOWARN);
	if (obj && !object_fill(obj, length)) {
		kfree(obj);
		obj = NULL;
	}
	if (!obj) {
		atomic64_sub(bytes, &pool->dram.bytes);
		return NULL;
	}
	refcount_set(&obj->refs, 1);
	INIT_LIST_HEAD(&obj->lru);
	INIT_LIST_HEAD(&obj->urgent);
	obj->pool = pool;
	obj->rec.length = length;
	obj->rec.key_len = key_len;
	obj->rec.key = obj->key;
	obj->nid = page_to_nid(obj->bv[1].bv_page);
	return obj;
}

/* ---- lists: the coldest first ---- */

static struct kvblk_dram_node *node_of(struct kvblk_pool *pool,
				       const struct kvblk_object *obj)
{
	return &pool->dram.nodes[obj->nid];
}

static void list_in(struct kvblk_pool *pool, struct kvblk_object *obj)
{
	struct kvblk_dram_node *node = node_of(pool, obj);

	guard(spinlock)(&node->lock);
	if (obj->dead)
		return;
	list_add_tail(&obj->lru, &node->lru);
	WRITE_ONCE(node->bytes, node->bytes + object_bytes(obj->rec.length));
}

static void list_out(struct kvblk_dram_node *node, struct kvblk_object *obj)
{
	lockdep_assert_held(&node->lock);
	if (list_empty(&obj->lru))
		return;
	list_del_init(&obj->lru);
	WRITE_ONCE(node->bytes, node->bytes - object_bytes(obj->rec.length));
}

/* No get finds it any more. The caller has a reference. No sleep. */
static void object_remove(struct kvblk_pool *pool, struct kvblk_object *obj)
{
	struct kvblk_dram_node *node = node_of(pool, obj);

	scoped_guard(spinlock, &node->lock) {
		if (obj->dead)
			return;
		WRITE_ONCE(obj->dead, true);
		list_out(node, obj);
		/* at once: object_list() waits for it */
		rhashtable_remove_fast(&pool->dram.objects, &obj->node, object_params);
	}
	kvblk_object_put(obj);
}

static bool object_is(const struct kvblk_object *obj, const struct kvblk_slot *slot)
{
	return obj->seg == slot->seg && obj->off == slot->off && obj->gen == slot->gen &&
	       obj->rec.length == slot->len;
}

struct kvblk_object *kvblk_object_get(struct kvblk_pool *pool, struct kvblk_id id,
				      const struct kvblk_slot *slot)
{
	struct kvblk_object *obj;

	guard(rcu)();
	obj = rhashtable_lookup(&pool->dram.objects, &id, object_params);
	if (!obj || !object_is(obj, slot) || !refcount_inc_not_zero(&obj->refs))
		return NULL;
	if (!READ_ONCE(obj->touched))
		WRITE_ONCE(obj->touched, true);
	return obj;
}

void kvblk_dram_urge(struct kvblk_pool *pool, struct kvblk_id id,
		     const struct kvblk_slot *slot)
{
	struct kvblk_object *obj;

	/* once the pool is going nobody looks at the list any more */
	if (!percpu_ref_tryget_live(&pool->users))
		return;
	obj = kvblk_object_get(pool, id, slot);
	scoped_guard(spinlock, &pool->dram.lock) {
		if (obj && list_empty(&obj->urgent)) {
			list_add_tail(&obj->urgent, &pool->dram.urgent);
			obj = NULL;
		}
	}
	if (obj)
		kvblk_object_put(obj);
	queue_work(pool->wq, &pool->dram.work);
	percpu_ref_put(&pool->users);
}

bool kvblk_dram_holds(struct kvblk_pool *pool, struct kvblk_id id,
		      const struct kvblk_slot *slot)
{
	const struct kvblk_object *obj;

	if (slot->seg == KVBLK_DRAM_SEG)
		return true;
	if (!atomic64_read(&pool->dram.bytes))
		return false;
	guard(rcu)();
	obj = rhashtable_lookup(&pool->dram.objects, &id, object_params);
	return obj && object_is(obj, slot);
}

/* Whatever object @id has, with a reference, or NULL. */
static struct kvblk_object *object_find(struct kvblk_pool *pool, struct kvblk_id id)
{
	struct kvblk_object *obj;

	guard(rcu)();
	obj = rhashtable_lookup(&pool->dram.objects, &id, object_params);
	return obj && refcount_inc_not_zero(&obj->refs) ? obj : NULL;
}

/* The entry of its id says the same place. */
static bool object_current(struct kvblk_pool *pool, const struct kvblk_object *obj)
{
	struct kvblk_slot slot;

	return kvblk_index_find(&pool->index, obj->rec.id, &slot) && object_is(obj, &slot);
}

void kvblk_dram_forget(struct kvblk_pool *pool, struct kvblk_id id)
{
	struct kvblk_object *obj = object_find(pool, id);

	if (!obj)
		return;
	if (!object_current(pool, obj))
		object_remove(pool, obj);
	kvblk_object_put(obj);
}

/* One walk, which may miss what is behind one that it removes: how many it removed. */
static u32 forget_segments(struct kvblk_pool *pool, u32 first, u32 nr)
{
	struct rhashtable_iter iter;
	struct kvblk_object *obj;
	u32 removed = 0;

	rhashtable_walk_enter(&pool->dram.objects, &iter);
	rhashtable_walk_start(&iter);
	while ((obj = rhashtable_walk_next(&iter))) {
		/* the table has grown: some come again */
		if (IS_ERR(obj))
			continue;
		if (obj->seg - first >= nr || !refcount_inc_not_zero(&obj->refs))
			continue;
		rhashtable_walk_stop(&iter);
		object_remove(pool, obj);
		kvblk_object_put(obj);
		removed++;
		cond_resched();
		rhashtable_walk_start(&iter);
	}
	rhashtable_walk_stop(&iter);
	rhashtable_walk_exit(&iter);
	return removed;
}

void kvblk_dram_forget_segments(struct kvblk_pool *pool, u32 first, u32 nr)
{
	while (forget_segments(pool, first, nr))
		;
}

/* ---- coming ---- */

/*
 * In place of a stale one; of one that counts, too, if the entry is the caller's
 * (@owner), else -EEXIST. 0 or an error.
 */
static int object_list(struct kvblk_pool *pool, struct kvblk_object *obj, bool owner)
{
	struct kvblk_object *old;
	bool stays;

	for (;;) {
		scoped_guard(rcu) {
			old = rhashtable_lookup_get_insert_fast(&pool->dram.objects,
								&obj->node, object_params);
			if (IS_ERR_OR_NULL(old))
				return PTR_ERR_OR_ZERO(old);
			if (!refcount_inc_not_zero(&old->refs))
				old = NULL;
		}
		if (!old)
			continue;
		/* a stale one never counts again */
		stays = !owner && object_current(pool, old);
		if (!stays)
			object_remove(pool, old);
		kvblk_object_put(old);
		if (stays)
			return -EEXIST;
	}
}

int kvblk_object_enter(struct kvblk_pool *pool, struct kvblk_object *obj,
		       const struct kvblk_slot *old)
{
	struct kvblk_slot slot = {
		.seg = KVBLK_DRAM_SEG,
		.off = (u32)atomic_inc_return(&pool->dram.serial) &
		       (BIT(KVBLK_INDEX_OFF_BITS) - 1),
		.len = obj->rec.length,
		.gen = pool->seg_gen[KVBLK_DRAM_SEG],
		.tenant = obj->rec.tenant,
		.state = KVBLK_SLOT_WRITING,
		.prio = obj->rec.priority,
		.expiry = obj->rec.expiry,
		.caller_tag = obj->rec.caller_tag,
	}, live = slot, victim;
	int err;

	live.state = KVBLK_SLOT_LIVE;
	obj->seg = slot.seg;
	obj->off = slot.off;
	obj->gen = slot.gen;
	/* the entry first: it is the right to the id's object */
	if (old)
		err = kvblk_entry_replace(pool, obj->rec.id, old, &slot) ? 0 : -EEXIST;
	else
		err = kvblk_entry_insert(pool, obj->rec.id, &slot, &victim);
	if (err)
		goto drop;
	err = object_list(pool, obj, true);
	if (err) {
		kvblk_index_replace(&pool->index, obj->rec.id, &slot, NULL);
		goto drop;
	}
	refcount_inc(&obj->refs);
	kvblk_index_replace(&pool->index, obj->rec.id, &slot, &live);
	kvblk_absent_note(pool, obj->rec.id);
	list_in(pool, obj);
	kvblk_object_put(obj);
	return 0;
drop:
	kvblk_object_put(obj);
	return err;
}

void kvblk_object_keep(struct kvblk_pool *pool, struct kvblk_object *obj,
		       const struct kvblk_slot *slot)
{
	obj->seg = slot->seg;
	obj->off = slot->off;
	obj->gen = slot->gen;
	/* the table's */
	refcount_inc(&obj->refs);
	if (object_list(pool, obj, false)) {
		kvblk_object_put(obj);
		return;
	}
	list_in(pool, obj);
	/* it was deleted meanwhile */
	kvblk_dram_forget(pool, obj->rec.id);
}

/* ---- going ---- */

/* One that is written to a member. */
struct stage {
	struct kvblk_io io;
	struct kvblk_turn turn;
	struct stages *all;
	struct kvblk_object *obj;
	struct kvblk_slot slot;		/* MOVING */
	struct kvblk_room room;
	struct kvblk_rec rec;
	void *header;
	u32 header_bytes;
	bool never;			/* turn.given_up */
	bool urgent;			/* somebody waits for it to be durable */
	struct kvblk_mem mem;
};

struct stages {
	struct kvblk_pool *pool;
	atomic_t flying;
	struct completion landed;
	u32 nr;
	u64 bytes;
	bool hopeless;			/* there is no room, and there will be none */
	struct stage stage[WRITES];
};

static void stage_landed(struct kvblk_io *io)
{
	struct stage *stage = container_of(io, struct stage, io);

	kvblk_turn_leave(&stage->turn);
	if (atomic_dec_and_test(&stage->all->flying))
		complete(&stage->all->landed);
}

static void stage_submit(struct kvblk_turn *turn)
{
	struct stage *stage = container_of(turn, struct stage, turn);
	const struct kvblk_room *room = &stage->room;
	blk_opf_t opf = REQ_OP_WRITE | REQ_IDLE | (stage->rec.durable ? REQ_FUA : 0);

	kvblk_payload_write_head(&stage->io, opf,
				 kvblk_seg_pos(room->member, room->segment, room->unit),
				 &stage->mem, true);
	kvblk_io_end(&stage->io);
}

/* Room on some member: 0; -ENOSPC: none answers, or has any; -EAGAIN: there may be some soon. */
static int room_find(struct kvblk_pool *pool, u32 length, struct kvblk_room *room)
{
	u32 first = this_cpu_inc_return(pool->stats->next_member), i, units;
	struct kvblk_member *member;
	int err = -ENOSPC, ret;

	for (i = 0; i < READ_ONCE(pool->nr_members); i++) {
		rcu_read_lock();
		member = kvblk_member_nth(pool, first + i);
		if (member && (READ_ONCE(member->state) != KVBLK_MEMBER_UP ||
			       !kvblk_member_ok(member) ||
			       !percpu_ref_tryget_live(&member->ref)))
			member = NULL;
		rcu_read_unlock();
		if (!member)
			continue;
		units = kvblk_member_units(member, length);
		ret = -ENOSPC;
		if (kvblk_kills_full(member))
			ret = -EAGAIN;
		else if (units + 1 <= member->segment_units)
			ret = kvblk_room_reserve(member, KVBLK_CLASS_NEW, units, room);
		kvblk_member_put(member);
		if (!ret)
			return 0;
		if (ret == -EAGAIN)
			err = ret;
	}
	return err;
}

static void stage_rec(struct stage *stage)
{
	const struct kvblk_object *obj = stage->obj;

	stage->rec = obj->rec;
	stage->rec.seq = stage->room.seq;
	stage->rec.integrity = KVBLK_INTEGRITY_CRC32C;
	if (obj->rec.crcs)
		stage->rec.integrity = KVBLK_INTEGRITY_PRODUCER;
	else if (READ_ONCE(stage->all->pool->tun.integrity) == KVBLK_CHECK_HEADER)
		stage->rec.integrity = KVBLK_INTEGRITY_NONE;
	stage->rec.durable = stage->urgent ||
			     kvblk_durable(stage->room.member, stage->rec.integrity);
}

/* It has room. Without memory it is not written. */
static void stage_write(struct stage *stage)
{
	struct kvblk_pool *pool = stage->all->pool;
	struct kvblk_object *obj = stage->obj;
	u32 sums = kvblk_nr_chunks(obj->rec.length) * sizeof(__le32);
	struct kvblk_place place;
	__le32 *crcs;

	stage->header_bytes = kvblk_header_units(obj->rec.length) << KVBLK_UNIT_SHIFT;
	stage->header = (void *)__get_free_pages(GFP_KERNEL | __GFP_NOWARN,
						 get_order(stage->header_bytes));
	if (!stage->header)
		return;
	memset(&stage->mem, 0, offsetof(struct kvblk_mem, few_bv));
	stage->mem.bv = obj->bv;
	stage->mem.nr = obj->nr + 1;
	stage->mem.bytes = obj->rec.length;
	stage->mem.media_bytes = round_up(obj->rec.length, KVBLK_UNIT);
	bvec_set_virt(&obj->bv[0], stage->header, stage->header_bytes);
	stage_rec(stage);
	crcs = stage->header + KVBLK_HDR_CRCS;
	if (obj->rec.crcs)
		memcpy(crcs, obj->rec.crcs, sums);
	else if (stage->rec.integrity == KVBLK_INTEGRITY_NONE)
		memset(crcs, 0, sums);
	else
		kvblk_payload_sum(&stage->mem, crcs);
	place = kvblk_place(stage->room.member, stage->room.segment, stage->room.gen,
			    stage->room.unit);
	kvblk_record_encode(stage->header, &stage->rec, &place, &pool->secret);
	atomic_inc(&stage->all->flying);
	kvblk_io_start(&stage->io, stage->room.member, stage_landed);
	stage->turn = (struct kvblk_turn) {
		.bytes = (u64)stage->room.units << KVBLK_UNIT_SHIFT,
		.given_up = &stage->never,
		.submit = stage_submit,
	};
	kvblk_turn_enter(&stage->turn, stage->room.member);
}

/* The write is over, or never began. */
static void stage_end(struct stage *stage)
{
	struct kvblk_pool *pool = stage->all->pool;
	struct kvblk_room *room = &stage->room;
	struct kvblk_object *obj = stage->obj;
	struct kvblk_slot live = stage->slot;
	bool written = stage->header && !stage->io.status, stays;

	live.state = KVBLK_SLOT_LIVE;
	live.seg = room->member->seg_base + room->segment;
	live.gen = (u16)room->gen;
	live.off = room->unit;
	if (stage->header && !written)
		kvblk_member_error(room->member, KVBLK_ERROR_WRITE, room->segment);
	/* for a member that is away, should it be back with an older record */
	kvblk_absent_note(pool, obj->rec.id);
	written = written &&
		  kvblk_index_replace(&pool->index, obj->rec.id, &stage->slot, &live);
	/* before a delete can find the entry */
	if (stage->header && !written)
		kvblk_kill_later(pool, obj->rec.id, &live);
	live = stage->slot;
	live.state = KVBLK_SLOT_LIVE;
	/* what somebody wants to be durable is no worse than before */
	stays = !written && stage->urgent &&
		kvblk_index_replace(&pool->index, obj->rec.id, &stage->slot, &live);
	kvblk_room_release(room, written ? &stage->rec : NULL);
	if (!written && !stays)
		kvblk_index_replace(&pool->index, obj->rec.id, &stage->slot, NULL);
	if (!stays) {
		kvblk_count(pool, written ? KVBLK_C_DRAM_WRITES : KVBLK_C_DRAM_DROPS, 1);
		object_remove(pool, obj);
	}
	kvblk_object_put(obj);
	free_pages((unsigned long)stage->header, get_order(stage->header_bytes));
}

/* Waits for those under way. */
static void stages_flush(struct stages *all)
{
	u32 i;

	if (!all->nr)
		return;
	/* it was 1 before the first one */
	if (!atomic_dec_and_test(&all->flying))
		wait_for_completion_state(&all->landed, TASK_IDLE);
	for (i = 0; i < all->nr; i++)
		stage_end(&all->stage[i]);
	all->nr = 0;
	all->bytes = 0;
	atomic_set(&all->flying, 1);
	reinit_completion(&all->landed);
	wake_up_all(&all->pool->settle_wait);
}

/* As room_find(), with a wait, which is in vain only once. */
static bool stage_room(struct stages *all, u32 length, struct kvblk_room *room)
{
	struct kvblk_pool *pool = all->pool;
	unsigned long end = jiffies + ROOM_WAIT;
	int seen = atomic_read(&pool->space_seq), err;

	while ((err = room_find(pool, length, room)) == -EAGAIN) {
		/* nobody waits for what waits, and a segment may wait for its last record */
		stages_flush(all);
		if (all->hopeless || time_after(jiffies, end))
			break;
		wait_event_idle_timeout(pool->space_wait,
					atomic_read(&pool->space_seq) != seen, HZ / 10);
		seen = atomic_read(&pool->space_seq);
	}
	all->hopeless |= err;
	return !err;
}

/* What becomes of an object that is met at the cold end of its list. */
enum fate {
	FATE_STAYS,			/* at the other end */
	FATE_STALE,			/* or a copy: it is nobody's block */
	FATE_DROP,
	FATE_WRITE,
	FATE_ASK,			/* the policy */
};

/* Has it been asked for since it was met last? */
static bool object_hot(struct kvblk_object *obj, const struct kvblk_slot *slot)
{
	bool hot = READ_ONCE(obj->touched) || slot->heat != obj->heat;

	WRITE_ONCE(obj->touched, false);
	obj->heat = slot->heat;
	obj->needed |= hot;
	return hot;
}

/* @slot: as found; @all: none stays for being hot. */
static enum fate object_fate(struct kvblk_pool *pool, struct kvblk_object *obj,
			     struct kvblk_slot *slot, bool all)
{
	if (!kvblk_index_find(&pool->index, obj->rec.id, slot) || !object_is(obj, slot))
		return FATE_STALE;
	if (object_hot(obj, slot) && !all)
		return FATE_STAYS;
	/* a copy: the entry is the member's block's. Who prefetched it may have a lease */
	if (slot->seg != KVBLK_DRAM_SEG)
		return slot->leased && !all ? FATE_STAYS : FATE_STALE;
	/* in its last minute: a write would be for nothing */
	if (kvblk_expired(slot->expiry, kvblk_now(pool) + 60))
		return FATE_DROP;
	if (obj->needed || obj->rec.priority >= 2)
		return FATE_WRITE;
	return READ_ONCE(pool->tun.dram_mode) == KVBLK_DRAM_TOUCHED ? FATE_DROP : FATE_ASK;
}

/* Objects of one list that go, or not, together. */
struct run {
	u32 nr;
	struct kvblk_object *objs[RUN];	/* the coldest first: a chain's last */
	struct kvblk_slot slots[RUN];
	enum fate fates[RUN];
	struct kvblk_id ids[RUN];
	u32 ask[RUN];
};

/* Takes the coldest ones: of one chain, or of none. */
static void run_take(struct kvblk_dram_node *node, struct run *run)
{
	struct kvblk_object *obj, *next;
	u32 most = 1;

	run->nr = 0;
	guard(spinlock)(&node->lock);
	list_for_each_entry_safe(obj, next, &node->lru, lru) {
		if (!run->nr)
			most = obj->chain ? RUN : RUN_SINGLE;
		if (run->nr == most || (run->nr && obj->chain != run->objs[0]->chain))
			return;
		list_out(node, obj);
		refcount_inc(&obj->refs);
		run->objs[run->nr++] = obj;
	}
}

/* What the policy says of those at @ask, which are @nr of a chain in its order. */
static void run_ask_chain(struct kvblk_pool *pool, struct run *run, const u32 *ask, u32 nr)
{
	const struct kvblk_object *first = run->objs[ask[0]];
	struct kvblk_policy_chain chain = {
		.ids = run->ids,
		.nr = nr,
		.parent = first->offer_parent,
		.parent_present = first->continues,
		.chain = first->chain,
	};
	u32 i;

	for (i = 0; i < nr; i++) {
		run->ids[i] = run->objs[ask[i]]->rec.id;
		chain.priority = max(chain.priority, run->objs[ask[i]]->rec.priority);
		chain.goes_on |= run->objs[ask[i]]->goes_on;
	}
	nr = kvblk_policy_admit(&pool->policy, &chain);
	for (i = 0; i < chain.nr; i++)
		run->fates[ask[i]] = i < nr ? FATE_WRITE : FATE_DROP;
}

static void run_ask(struct kvblk_pool *pool, struct run *run)
{
	u32 i, nr = 0;

	for (i = run->nr; i-- > 0;) {
		if (run->fates[i] != FATE_ASK)
			continue;
		run->ask[nr++] = i;
		if (run->objs[i]->chain)
			continue;
		run_ask_chain(pool, run, run->ask, 1);
		nr = 0;
	}
	if (nr)
		run_ask_chain(pool, run, run->ask, nr);
}

/*
 * Takes the block out of the index, for @next (NULL: for good). False: somebody has
 * it. @pinned: by leases, too.
 */
static bool object_claim(struct kvblk_pool *pool, struct kvblk_object *obj,
			 const struct kvblk_slot *slot, const struct kvblk_slot *next,
			 bool pinned)
{
	/* one that was removed since: the number of its place may be another block's */
	if (slot->state != KVBLK_SLOT_LIVE || READ_ONCE(obj->dead))
		return false;
	return pinned ? kvblk_index_claim(&pool->index, obj->rec.id, slot, next) :
			kvblk_index_replace(&pool->index, obj->rec.id, slot, next);
}

/* It goes for good. False: it stays. */
static bool object_forgo(struct kvblk_pool *pool, struct kvblk_object *obj,
			 const struct kvblk_slot *slot)
{
	if (!object_claim(pool, obj, slot, NULL, !READ_ONCE(pool->dram.closing)))
		return false;
	kvblk_count(pool, KVBLK_C_DRAM_DROPS, 1);
	object_remove(pool, obj);
	kvblk_object_put(obj);
	return true;
}

/*
 * It goes to a member, where there is room before it is claimed: nobody waits for it
 * longer than for a write. False: it stays. @urgent: leased or not, and durably.
 */
static bool object_write(struct kvblk_pool *pool, struct kvblk_object *obj,
			 const struct kvblk_slot *slot, bool urgent)
{
	struct stages *all = pool->dram.stages;
	struct kvblk_slot moving = *slot;
	struct kvblk_room room = {};
	struct stage *stage;

	if (slot->state != KVBLK_SLOT_LIVE ||
	    (slot->leased && !urgent && !READ_ONCE(pool->dram.closing)))
		return false;
	if (READ_ONCE(pool->dram.closing) && time_after(jiffies, pool->dram.rest))
		return object_forgo(pool, obj, slot);
	if (!stage_room(all, obj->rec.length, &room))
		return !urgent && object_forgo(pool, obj, slot);
	moving.state = KVBLK_SLOT_MOVING;
	if (!object_claim(pool, obj, slot, &moving,
			  !urgent && !READ_ONCE(pool->dram.closing))) {
		/* nothing was written there */
		kvblk_room_release(&room, NULL);
		return false;
	}
	stage = &all->stage[all->nr++];
	memset(stage, 0, offsetof(struct stage, mem));
	stage->all = all;
	stage->obj = obj;
	stage->slot = moving;
	stage->room = room;
	stage->urgent = urgent;
	all->bytes += obj->rec.length;
	stage_write(stage);
	if (all->nr == WRITES || all->bytes >= WRITE_BYTES)
		stages_flush(all);
	return true;
}

/* False: it stays, at the other end of its list. Else the reference is given back. */
static bool object_go(struct kvblk_pool *pool, struct kvblk_object *obj,
		      const struct kvblk_slot *slot, enum fate fate)
{
	switch (fate) {
	case FATE_STAYS:
		return false;
	case FATE_WRITE:
		return object_write(pool, obj, slot, false);
	case FATE_DROP:
		return object_forgo(pool, obj, slot);
	default:
		object_remove(pool, obj);
		kvblk_object_put(obj);
		return true;
	}
}

static struct kvblk_object *urgent_take(struct kvblk_dram *dram)
{
	struct kvblk_object *obj;

	guard(spinlock)(&dram->lock);
	obj = list_first_entry_or_null(&dram->urgent, struct kvblk_object, urgent);
	if (obj)
		list_del_init(&obj->urgent);
	return obj;
}

/* What somebody waits for. Leases go with the entry, so they are no hindrance. */
static void dram_urgent(struct kvblk_pool *pool)
{
	struct kvblk_object *obj;
	struct kvblk_slot slot;
	u32 most = RUN;

	/* others have their turn, too: who waits comes again */
	while (most-- && (obj = urgent_take(&pool->dram)))
		if (!kvblk_index_find(&pool->index, obj->rec.id, &slot) || !object_is(obj, &slot) ||
		    slot.seg != KVBLK_DRAM_SEG || !object_write(pool, obj, &slot, true))
			kvblk_object_put(obj);
	stages_flush(pool->dram.stages);
}

/* The list with most in it, or another one if those of that must stay. */
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

/* A run of @node's coldest. Bytes that stay. */
static u64 dram_evict_run(struct kvblk_pool *pool, struct kvblk_dram_node *node, bool all)
{
	struct run *run = pool->dram.run;
	u64 stayed = 0;
	u32 i;

	run_take(node, run);
	for (i = 0; i < run->nr; i++)
		run->fates[i] = object_fate(pool, run->objs[i], &run->slots[i], all);
	run_ask(pool, run);
	for (i = 0; i < run->nr; i++) {
		struct kvblk_object *obj = run->objs[i];

		if (object_go(pool, obj, &run->slots[i], run->fates[i]))
			continue;
		stayed += object_bytes(obj->rec.length);
		list_in(pool, obj);
		kvblk_object_put(obj);
	}
	stages_flush(pool->dram.stages);
	return stayed;
}

/* Goes on until no more than @target bytes are left, or what is left must stay. */
static void dram_shrink_to(struct kvblk_pool *pool, u64 target, bool all)
{
	struct kvblk_dram *dram = &pool->dram;
	struct kvblk_dram_node *node;
	DECLARE_BITMAP(stay, MAX_NUMNODES) = {};
	int nid;

	for (nid = 0; nid < nr_node_ids; nid++)
		dram->nodes[nid].stayed = 0;
	while (atomic64_read(&dram->bytes) > (s64)target) {
		node = node_pick(dram, stay);
		if (!node)
			break;
		/* each one may be met twice: as a hot one, and as one that is not any more */
		node->stayed += dram_evict_run(pool, node, all);
		if (node->stayed > 2 * READ_ONCE(node->bytes))
			__set_bit(node - dram->nodes, stay);
		dram_urgent(pool);
		cond_resched();
	}
	if (atomic64_read(&dram->bytes) > (s64)target)
		WRITE_ONCE(dram->rest, jiffies + HZ / 10);
}

static void dram_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, dram.work);
	u64 limit = READ_ONCE(pool->tun.dram_bytes);

	pool->dram.stages->hopeless = false;
	dram_urgent(pool);
	if (atomic64_read(&pool->dram.bytes) > (s64)room_low(limit))
		dram_shrink_to(pool, room_high(limit), !limit);
}

void kvblk_dram_tick(struct kvblk_pool *pool)
{
	if (atomic64_read(&pool->dram.bytes) > (s64)room_low(READ_ONCE(pool->tun.dram_bytes)))
		dram_crowded(pool);
}

/* ---- memory pressure ---- */

static unsigned long dram_count(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct kvblk_pool *pool = shrinker->private_data;

	return READ_ONCE(pool->dram.nodes[sc->nid].bytes) >> PAGE_SHIFT ?: SHRINK_EMPTY;
}

static struct kvblk_object *node_coldest(struct kvblk_dram_node *node)
{
	struct kvblk_object *obj;

	guard(spinlock)(&node->lock);
	obj = list_first_entry_or_null(&node->lru, struct kvblk_object, lru);
	if (!obj)
		return NULL;
	list_out(node, obj);
	refcount_inc(&obj->refs);
	return obj;
}

/* False: it stays, being hot, leased or on its way. No sleep. */
static bool object_squeeze(struct kvblk_pool *pool, struct kvblk_object *obj)
{
	struct kvblk_slot slot;

	switch (object_fate(pool, obj, &slot, false)) {
	case FATE_STAYS:
		return false;
	case FATE_STALE:
		break;
	default:
		if (!object_claim(pool, obj, &slot, NULL, true))
			return false;
		kvblk_count(pool, KVBLK_C_DRAM_SQUEEZED, 1);
	}
	object_remove(pool, obj);
	return true;
}

static unsigned long dram_scan(struct shrinker *shrinker, struct shrink_control *sc)
{
	struct kvblk_pool *pool = shrinker->private_data;
	u64 want = (u64)sc->nr_to_scan << PAGE_SHIFT, seen = 0, freed = 0;
	struct kvblk_object *obj;

	while (seen < want) {
		u64 bytes;

		obj = node_coldest(&pool->dram.nodes[sc->nid]);
		if (!obj)
			break;
		bytes = object_bytes(obj->rec.length);
		seen += bytes;
		if (object_squeeze(pool, obj))
			freed += bytes;
		else
			list_in(pool, obj);
		kvblk_object_put(obj);
	}
	sc->nr_scanned = seen >> PAGE_SHIFT;
	return seen ? freed >> PAGE_SHIFT : SHRINK_STOP;
}

/* ---- with its pool ---- */

int kvblk_dram_init(struct kvblk_pool *pool)
{
	struct kvblk_dram *dram = &pool->dram;
	int nid;

	INIT_WORK(&dram->work, dram_work);
	spin_lock_init(&dram->lock);
	INIT_LIST_HEAD(&dram->urgent);
	dram->nodes = kcalloc(nr_node_ids, sizeof(*dram->nodes), GFP_KERNEL);
	dram->stages = kvzalloc(sizeof(*dram->stages), GFP_KERNEL);
	dram->run = kvzalloc(sizeof(*dram->run), GFP_KERNEL);
	dram->shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE, "kvblk-dram:%s", pool->name);
	if (!dram->nodes || !dram->stages || !dram->run || !dram->shrinker ||
	    rhashtable_init(&dram->objects, &object_params)) {
		if (dram->shrinker)
			shrinker_free(dram->shrinker);
		kfree(dram->nodes);
		kvfree(dram->stages);
		kvfree(dram->run);
		return -ENOMEM;
	}
	for (nid = 0; nid < nr_node_ids; nid++) {
		spin_lock_init(&dram->nodes[nid].lock);
		INIT_LIST_HEAD(&dram->nodes[nid].lru);
	}
	dram->rest = jiffies;
	dram->stages->pool = pool;
	atomic_set(&dram->stages->flying, 1);
	init_completion(&dram->stages->landed);
	/* a segment that never goes */
	pool->seg_gen[KVBLK_DRAM_SEG] = 1;
	dram->shrinker->count_objects = dram_count;
	dram->shrinker->scan_objects = dram_scan;
	dram->shrinker->private_data = pool;
	shrinker_register(dram->shrinker);
	return 0;
}

void kvblk_dram_close(struct kvblk_pool *pool)
{
	/* it would list what it has taken */
	shrinker_free(pool->dram.shrinker);
	pool->dram.shrinker = NULL;
	WRITE_ONCE(pool->dram.rest, jiffies + CLOSE_TIME);
	/* behind it; the work sees it, too */
	smp_store_release(&pool->dram.closing, true);
	cancel_work_sync(&pool->dram.work);
	WRITE_ONCE(pool->dram.rest, jiffies + CLOSE_TIME);
	pool->dram.stages->hopeless = false;
	while (!list_empty(&pool->dram.urgent))
		dram_urgent(pool);
	dram_shrink_to(pool, 0, true);
}

void kvblk_dram_exit(struct kvblk_pool *pool)
{
	struct kvblk_dram *dram = &pool->dram;

	if (dram->shrinker)
		shrinker_free(dram->shrinker);
	WARN_ON_ONCE(atomic64_read(&dram->bytes));
	rhashtable_destroy(&dram->objects);
	kfree(dram->nodes);
	kvfree(dram->stages);
	kvfree(dram->run);
}
