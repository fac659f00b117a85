// SPDX-License-Identifier: GPL-2.0
/*
 * Touches: gets on one node of a pod that count as hits on another. Reclaim knows the gets of its
 * own node only, and would drop blocks that other nodes get. So each pool remembers the foreign
 * blocks that it got, until kvblkd fetches their ids and sends them to the owners' kvblkd, which
 * passes them to kvblk_touch().
 *
 * The rule: a touch is a hint, and may be lost. The memory is fixed, a block takes one slot however
 * often it is got, and a block without a free slot is counted as lost. Gets of own blocks do not
 * come here.
 */
#include <linux/slab.h>

#include "pool/pool.h"

#define TOUCH_PARTS	64	/* each with a lock of its own */
#define TOUCH_LINES	32	/* in a part */
#define TOUCH_WAYS	8	/* slots in a line */

struct touch {
	struct kvblk_id id;
	u32 seg;			/* pool-wide segment number of the block, 0: free */
};

struct touch_part {
	spinlock_t lock;		/* protects @slots; a leaf */
	u32 nr;				/* slots in use; READ_ONCE without @lock */
	struct touch slots[TOUCH_LINES * TOUCH_WAYS];
} ____cacheline_aligned_in_smp;

struct kvblk_touches {
	struct touch_part parts[TOUCH_PARTS];
};

int kvblk_touches_init(struct kvblk_pool *pool)
{
	struct kvblk_touches *touches;
	u32 i;

	lockdep_assert_held(&pool->admin);
	if (pool->foreign.touches)
		return 0;
	touches = kvzalloc(sizeof(*touches), GFP_KERNEL);
	if (!touches)
		return -ENOMEM;
	for (i = 0; i < TOUCH_PARTS; i++)
		spin_lock_init(&touches->parts[i].lock);
	/* pairs with kvblk_touches_take() */
	smp_store_release(&pool->foreign.touches, touches);
	return 0;
}

void kvblk_touches_exit(struct kvblk_pool *pool)
{
	kvfree(pool->foreign.touches);
}

void kvblk_touch_note(struct kvblk_pool *pool, struct kvblk_id id, u32 seg)
{
	/* a foreign member is listed after the allocation */
	struct touch_part *part = &pool->foreign.touches->parts[id.lo % TOUCH_PARTS];
	struct touch *slot = part->slots + (id.lo >> 32) % TOUCH_LINES * TOUCH_WAYS;
	struct touch *end = slot + TOUCH_WAYS, *free = NULL;

	guard(spinlock)(&part->lock);
	for (; slot < end; slot++) {
		if (!slot->seg) {
			free = slot;
		} else if (slot->id.lo == id.lo && slot->id.hi == id.hi) {
			slot->seg = seg;
			return;
		}
	}
	if (!free) {
		kvblk_count(pool, KVBLK_C_TOUCHES_LOST, 1);
		return;
	}
	*free = (struct touch) { .id = id, .seg = seg };
	WRITE_ONCE(part->nr, part->nr + 1);
}

/* Takes the blocks of @take's owner, or of any owner if it has no blocks yet, out of @part. */
static void part_take(struct kvblk_pool *pool, struct touch_part *part,
		      struct kvblk_touches_taken *take)
{
	const struct kvblk_foreign *foreign;
	struct touch *slot = part->slots;

	guard(rcu)();
	guard(spinlock)(&part->lock);
	for (; slot < part->slots + ARRAY_SIZE(part->slots) && take->nr < take->room; slot++) {
		if (!slot->seg)
			continue;
		foreign = kvblk_foreign_of(pool, slot->seg);
		if (foreign && !take->nr) {
			take->pool = foreign->pool_uuid;
			memcpy(take->node, foreign->node, sizeof(take->node));
		}
		if (!foreign)
			/* the member is followed no longer */
			kvblk_count(pool, KVBLK_C_TOUCHES_LOST, 1);
		else if (uuid_equal(&take->pool, &foreign->pool_uuid))
			kvblk_id_pack(take->ids + KVBLK_ID_BYTES * take->nr++, slot->id);
		else
			continue;
		slot->seg = 0;
		WRITE_ONCE(part->nr, part->nr - 1);
	}
}

void kvblk_touches_take(struct kvblk_pool *pool, struct kvblk_touches_taken *take)
{
	/* pairs with kvblk_touches_init() */
	struct kvblk_touches *touches = smp_load_acquire(&pool->foreign.touches);
	u32 i;

	take->nr = 0;
	for (i = 0; touches && i < TOUCH_PARTS; i++)
		if (READ_ONCE(touches->parts[i].nr))
			part_take(pool, &touches->parts[i], take);
}

static bool touch_block(struct kvblk_pool *pool, struct kvblk_id id)
{
	struct kvblk_dram_block *obj = NULL;
	struct kvblk_slot slot;

	if (!kvblk_index_find(&pool->index, id, &slot) || slot.state == KVBLK_SLOT_WRITING ||
	    kvblk_slot_foreign(&slot) || kvblk_expired(slot.expiry, kvblk_now(pool)))
		return false;
	kvblk_block_touch(pool, id, &slot);
	if (READ_ONCE(pool->dram.used))
		obj = kvblk_dram_block_get(pool, id, &slot);
	if (obj)
		kvblk_dram_block_put(obj);
	return true;
}

void kvblk_touch(struct kvblk_pool *pool, const u8 *ids, u32 nr)
{
	u32 hits = 0;

	for (; nr; nr--, ids += KVBLK_ID_BYTES)
		hits += touch_block(pool, kvblk_id_unpack(ids));
	kvblk_count(pool, KVBLK_C_TOUCHES, hits);
}
