// SPDX-License-Identifier: GPL-2.0
/*
 * Leases: a promise that found blocks stay readable for a while.
 *
 * A lease pins index entries, not segments: reclaim copies a leased block
 * forward. Many leases may hold one entry, so the pool counts them by id, and
 * the entry's leased bit is set while the count is not zero. A lease belongs to
 * an open file and ends with it, by its deadline, or when released.
 *
 * The rule: the count of an id is the number of leases that list it; it may
 * outlive the entry, never the other way round. All under pool->lease_lock.
 */
#include <linux/slab.h>

#include "kvblk.h"

struct lease_key {
	struct rhash_head node;
	struct kvblk_id id;
	u32 count;
	u32 len;
};

struct lease {
	struct list_head link;		/* file->leases */
	struct list_head pool_link;	/* pool->leases */
	struct kvblk_file *file;
	u64 id;
	unsigned long expires;		/* jiffies */
	u64 bytes;
	u32 nr;
	struct lease_key *keys[];
};

static const struct rhashtable_params lease_params = {
	.key_len = sizeof(struct kvblk_id),
	.key_offset = offsetof(struct lease_key, id),
	.head_offset = offsetof(struct lease_key, node),
	.automatic_shrinking = true,
};

int kvblk_lease_init(struct kvblk_pool *pool)
{
	mutex_init(&pool->lease_lock);
	INIT_LIST_HEAD(&pool->leases);
	return rhashtable_init(&pool->lease_keys, &lease_params);
}

void kvblk_lease_exit(struct kvblk_pool *pool)
{
	WARN_ON_ONCE(!list_empty(&pool->leases));
	rhashtable_destroy(&pool->lease_keys);
}

static void key_drop(struct kvblk_pool *pool, struct lease_key *key)
{
	struct kvblk_slot slot;

	if (--key->count)
		return;
	/* the entry may have gone, or be moved just now */
	while (kvblk_index_find(&pool->index, key->id, &slot) && slot.leased &&
	       !kvblk_index_lease(&pool->index, key->id, &slot, false))
		cpu_relax();
	pool->leased_bytes -= key->len;
	rhashtable_remove_fast(&pool->lease_keys, &key->node, lease_params);
	kfree(key);
}

static struct lease_key *key_take(struct kvblk_pool *pool, struct kvblk_id id,
				  struct kvblk_slot *slot)
{
	struct lease_key *key;
	int tries;

	key = rhashtable_lookup_fast(&pool->lease_keys, &id, lease_params);
	if (!key) {
		key = kzalloc(sizeof(*key), GFP_KERNEL_ACCOUNT);
		if (!key)
			return NULL;
		key->id = id;
		key->len = kvblk_record_units(slot->len, pool->align_units) <<
			KVBLK_UNIT_SHIFT;
		if (rhashtable_insert_fast(&pool->lease_keys, &key->node,
					   lease_params)) {
			kfree(key);
			return NULL;
		}
		pool->leased_bytes += key->len;
	}
	key->count++;
	/*
	 * Not while it moves: it may be on its way out. A new entry of an old
	 * id wants the bit too.
	 */
	for (tries = 0; tries < 8; tries++) {
		if (!kvblk_block_present(pool, id, slot->tenant, slot))
			break;
		if (kvblk_index_lease(&pool->index, id, slot, true))
			return key;
	}
	key_drop(pool, key);
	return NULL;
}

static void lease_end(struct lease *lease)
{
	struct kvblk_file *file = lease->file;
	u32 i;

	for (i = 0; i < lease->nr; i++)
		key_drop(file->pool, lease->keys[i]);
	file->nr_leased -= lease->nr;
	file->leased_bytes -= lease->bytes;
	list_del(&lease->link);
	list_del(&lease->pool_link);
	kvfree(lease);
}

u32 kvblk_lease_take(struct kvblk_file *file, const struct kvblk_id *ids,
		     struct kvblk_slot *slots, unsigned long *take, u32 nr,
		     u32 ms, u64 *lease_id)
{
	struct kvblk_pool *pool = file->pool;
	/* reclaim must always find room that is not leased */
	u64 pool_max = kvblk_pool_capacity(pool) / 4;
	struct lease *lease;
	u32 i;

	*lease_id = 0;
	lease = kvzalloc(struct_size(lease, keys, nr), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!lease) {
		bitmap_zero(take, nr);
		return 0;
	}
	guard(mutex)(&pool->lease_lock);
	for_each_set_bit(i, take, nr) {
		struct lease_key *key = NULL;

		if (file->nr_leased + lease->nr < READ_ONCE(pool->tun.lease_keys_max) &&
		    pool->leased_bytes <= pool_max)
			key = key_take(pool, ids[i], &slots[i]);
		if (!key) {
			__clear_bit(i, take);
			continue;
		}
		lease->keys[lease->nr++] = key;
		lease->bytes += slots[i].len;
	}
	if (!lease->nr) {
		kvfree(lease);
		return 0;
	}
	lease->file = file;
	lease->id = ++file->next_lease;
	lease->expires = jiffies + msecs_to_jiffies(ms);
	file->nr_leased += lease->nr;
	file->leased_bytes += lease->bytes;
	list_add_tail(&lease->link, &file->leases);
	list_add_tail(&lease->pool_link, &pool->leases);
	kvblk_count(pool, KVBLK_C_LEASES, 1);
	*lease_id = lease->id;
	return lease->nr;
}

int kvblk_lease_drop(struct kvblk_file *file, u64 id)
{
	struct lease *lease;

	guard(mutex)(&file->pool->lease_lock);
	list_for_each_entry(lease, &file->leases, link) {
		if (lease->id != id)
			continue;
		lease_end(lease);
		return 0;
	}
	return -ENOENT;
}

void kvblk_lease_drop_all(struct kvblk_file *file)
{
	struct lease *lease, *next;

	guard(mutex)(&file->pool->lease_lock);
	list_for_each_entry_safe(lease, next, &file->leases, link)
		lease_end(lease);
}

void kvblk_lease_expire(struct kvblk_pool *pool)
{
	struct lease *lease, *next;

	guard(mutex)(&pool->lease_lock);
	list_for_each_entry_safe(lease, next, &pool->leases, pool_link)
		if (time_after_eq(jiffies, lease->expires))
			lease_end(lease);
}
