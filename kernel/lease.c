// SPDX-License-Identifier: GPL-2.0
/*
 * Leases: a promise that found blocks stay readable for a while.
 *
 * A lease pins index entries, not segments: reclaim copies a leased block
 * forward. Many leases may hold one entry, so the pool counts them by id, and
 * the entry's leased bit is set while the count is not zero. A lease belongs to
 * an open file and ends with it, by its deadline, or when released.
 *
 * The rules:
 * - The count of an id is the number of leases that list it; it may outlive the
 *   entry, never the other way round. All under pool->lease_lock.
 * - The lock is held for LEASE_STEP keys at most, and memory for keys is
 *   allocated outside, so that no caller's lease delays another's for long.
 */
#include <linux/slab.h>

#include "op.h"

struct lease_key {
	struct rhash_head node;
	struct kvblk_id id;
	u32 count;
	u32 len;
};

/**
 * struct lease - keys leased together
 * @node: in pool->leases, by @expires
 * @file: its owner, until it is taken out of there and of file->leases
 * @id: its index in file->leases
 * @expires: jiffies
 * @bytes: of the blocks
 * @nr: of @keys
 * @keys: leased
 */
struct lease {
	struct rb_node node;
	struct kvblk_file *file;
	u64 id;
	unsigned long expires;
	u64 bytes;
	u32 nr;
	struct lease_key *keys[];
};

/* Keys taken or dropped in one go. */
#define LEASE_STEP	64u

static const struct rhashtable_params lease_params = {
	.key_len = sizeof(struct kvblk_id),
	.key_offset = offsetof(struct lease_key, id),
	.head_offset = offsetof(struct lease_key, node),
	.automatic_shrinking = true,
};

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

/*
 * Leases an entry if it is still there, with *@fresh, which is used up when the
 * id is not leased yet. NULL: the entry has gone.
 */
static struct lease_key *key_take(struct kvblk_pool *pool, struct kvblk_id id,
				  struct kvblk_slot *slot, struct lease_key **fresh)
{
	struct lease_key *key;
	int tries;

	lockdep_assert_held(&pool->lease_lock);
	key = rhashtable_lookup_fast(&pool->lease_keys, &id, lease_params);
	if (!key) {
		key = *fresh;
		key->id = id;
		key->count = 0;
		key->len = kvblk_record_units(slot->len, pool->align_units) <<
			KVBLK_UNIT_SHIFT;
		if (rhashtable_insert_fast(&pool->lease_keys, &key->node,
					   lease_params))
			return NULL;
		*fresh = NULL;
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

/* Drops the keys of a lease that is in no list, and frees it. */
static void lease_free(struct kvblk_pool *pool, struct lease *lease)
{
	u32 end;

	while (lease->nr) {
		end = lease->nr - min(lease->nr, LEASE_STEP);
		scoped_guard(mutex, &pool->lease_lock)
			while (lease->nr > end)
				key_drop(pool, lease->keys[--lease->nr]);
		cond_resched();
	}
	kvfree(lease);
}

/* Leases @nr @entries. False: not all of them. */
static bool lease_step(struct kvblk_pool *pool, struct lease *lease,
		       struct kvblk_entry *entries, u32 nr, struct lease_key **fresh)
{
	/* reclaim must always find room that is not leased */
	u64 pool_max = kvblk_pool_capacity(pool) / 4;
	struct kvblk_file *file = lease->file;
	struct lease_key *key;

	guard(mutex)(&pool->lease_lock);
	for (; nr; nr--, entries++) {
		if (file->nr_leased >= READ_ONCE(pool->tun.lease_keys_max) ||
		    pool->leased_bytes > pool_max)
			return false;
		key = key_take(pool, entries->id, &entries->slot, &fresh[nr - 1]);
		if (!key)
			return false;
		lease->keys[lease->nr++] = key;
		lease->bytes += entries->slot.len;
		file->nr_leased++;
		file->leased_bytes += entries->slot.len;
	}
	return true;
}

static bool lease_before(struct rb_node *a, const struct rb_node *b)
{
	return time_before(rb_entry(a, struct lease, node)->expires,
			   rb_entry(b, struct lease, node)->expires);
}

/* Takes a lease from its file; under the lock. */
static void lease_hide(struct lease *lease)
{
	struct kvblk_file *file = lease->file;
	struct kvblk_pool *pool = file->pool;

	lockdep_assert_held(&pool->lease_lock);
	file->nr_leased -= lease->nr;
	file->leased_bytes -= lease->bytes;
	if (xa_erase(&file->leases, lease->id))
		rb_erase_cached(&lease->node, &pool->leases);
	lease->file = NULL;
}

u32 kvblk_lease_take(struct kvblk_file *file, struct kvblk_entry *entries, u32 nr, u32 ms,
		     u64 *lease_id)
{
	u32 left = nr, taken, step, n;
	struct lease_key *fresh[LEASE_STEP] = {};
	struct kvblk_pool *pool = file->pool;
	struct lease *lease;

	*lease_id = 0;
	lease = kvzalloc(struct_size(lease, keys, nr),
			 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!lease)
		return 0;
	lease->file = file;
	for (; left; left -= step, entries += step) {
		step = min(left, LEASE_STEP);
		for (n = 0; n < step; n++) {
			if (!fresh[n])
				fresh[n] = kzalloc(sizeof(*fresh[n]), GFP_KERNEL_ACCOUNT);
			if (!fresh[n])
				break;
		}
		if (n < step ||
		    !lease_step(pool, lease, entries, step, fresh))
			break;
	}
	for (n = 0; n < LEASE_STEP; n++)
		kfree(fresh[n]);

	taken = lease->nr;
	mutex_lock(&pool->lease_lock);
	lease->expires = jiffies + msecs_to_jiffies(ms);
	lease->id = ++file->next_lease;
	if (taken && !xa_err(xa_store(&file->leases, lease->id, lease,
				      GFP_KERNEL_ACCOUNT))) {
		rb_add_cached(&lease->node, &pool->leases, lease_before);
		*lease_id = lease->id;
		kvblk_count(pool, KVBLK_C_LEASES, 1);
		mutex_unlock(&pool->lease_lock);
		return taken;
	}
	lease_hide(lease);
	mutex_unlock(&pool->lease_lock);
	lease_free(pool, lease);
	return 0;
}

int kvblk_lease_drop(struct kvblk_file *file, u64 id)
{
	struct lease *lease;

	scoped_guard(mutex, &file->pool->lease_lock) {
		lease = id <= ULONG_MAX ? xa_load(&file->leases, id) : NULL;
		if (!lease)
			return -ENOENT;
		lease_hide(lease);
	}
	lease_free(file->pool, lease);
	return 0;
}

void kvblk_lease_drop_all(struct kvblk_file *file)
{
	struct lease *lease;
	unsigned long id;

	xa_for_each(&file->leases, id, lease)
		kvblk_lease_drop(file, id);
	/* a holder of the lock that took the last lease away is done with the file */
	mutex_lock(&file->pool->lease_lock);
	mutex_unlock(&file->pool->lease_lock);
	xa_destroy(&file->leases);
}

static struct lease *lease_expired(struct kvblk_pool *pool)
{
	struct rb_node *node;
	struct lease *lease;

	guard(mutex)(&pool->lease_lock);
	node = rb_first_cached(&pool->leases);
	if (!node)
		return NULL;
	lease = rb_entry(node, struct lease, node);
	if (time_before(jiffies, lease->expires))
		return NULL;
	lease_hide(lease);
	return lease;
}

static void lease_expire_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, lease_work);
	struct lease *lease;

	while ((lease = lease_expired(pool)))
		lease_free(pool, lease);
}

int kvblk_lease_init(struct kvblk_pool *pool)
{
	mutex_init(&pool->lease_lock);
	pool->leases = RB_ROOT_CACHED;
	INIT_WORK(&pool->lease_work, lease_expire_work);
	return rhashtable_init(&pool->lease_keys, &lease_params);
}

void kvblk_lease_exit(struct kvblk_pool *pool)
{
	WARN_ON_ONCE(!RB_EMPTY_ROOT(&pool->leases.rb_root));
	rhashtable_destroy(&pool->lease_keys);
}
