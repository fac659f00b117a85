// SPDX-License-Identifier: GPL-2.0
/*
 * A lease promises that found blocks stay readable for a while. It pins index entries, not
 * segments: reclaim copies a leased block forward. It belongs to an open file and ends with the
 * file, by deadline, or when released.
 *
 * The rules, all under pool->lease.lock:
 * - An id counts the files that hold it; a hold counts the leases of its file that list the id.
 *   Both may outlive the entry, whose leased bit never outlives the counts.
 * - The lock is held for LEASE_STEP keys at most, or else a caller could delay others for long.
 * - lease_permille of each member's bytes, and of DRAM, may be leased, so reclaim always finds
 *   blocks to drop. A new key may take a file to half of the share that other files leave, so no
 *   file makes other files' leases fail. An id that is leased already costs nothing.
 * - A leased DRAM block may be written to any member. So the lease must also fit, with all other
 *   leases, into lease_permille of the members' bytes.
 * - A foreign block is not charged, and its owner does not know of the lease. So the lease ends
 *   when the block's read would need a proof, see pool/follow.c; a lookup then leases it again.
 * - A file is charged once per id, at the place of the block at the time. The pool is charged at
 *   the current place: a block that leaves DRAM is charged to the member within a second.
 */
#include <linux/slab.h>

#include "request.h"

struct lease_key {
	struct rhash_head node;		/* in pool->lease.keys, by @id */
	struct list_head memory;	/* in pool->lease.in_memory if @at is KVBLK_LEASE_MEMORY */
	struct kvblk_id id;
	u32 count;			/* files that hold the id */
	u32 len;			/* bytes charged */
	u8 at;				/* place where the pool is charged, see place_of() */
};

struct hold_name {
	struct kvblk_id id;
	const struct kvblk_file *file;
};

/* A leased id of an open file. */
struct lease_hold {
	struct rhash_head node;		/* in pool->lease.holds, by @name */
	struct hold_name name;
	struct lease_key *key;
	u32 count;			/* leases of the file that list the id */
	u8 place;			/* place where the file is charged, see place_of() */
};

static_assert(sizeof(struct hold_name) == sizeof(struct kvblk_id) + sizeof(void *));

struct lease {
	struct rb_node node;		/* in pool->lease.by_end, by @end_ns */
	struct kvblk_file *file;	/* charged for @holds, with a reference */
	u64 id;				/* index in file->leases */
	u64 end_ns;			/* time of ktime_get() */
	u64 foreign_ns;			/* end of the promise of foreign blocks, or U64_MAX */
	u32 nr;				/* entries of @holds */
	struct lease_hold *holds[];
};

#define LEASE_STEP	64u		/* keys processed under one hold of the lock */
#define LEASE_LOOK	65536u		/* leased DRAM blocks checked in a second, others later */

static const struct rhashtable_params lease_params = {
	.key_len = sizeof(struct kvblk_id),
	.key_offset = offsetof(struct lease_key, id),
	.head_offset = offsetof(struct lease_key, node),
	.automatic_shrinking = true,
};

static const struct rhashtable_params hold_params = {
	.key_len = sizeof(struct hold_name),
	.key_offset = offsetof(struct lease_hold, name),
	.head_offset = offsetof(struct lease_hold, node),
	.automatic_shrinking = true,
};

struct lease_fresh {
	struct lease_key *key;
	struct lease_hold *hold;
};

static int fresh_fill(struct lease_fresh *fresh, u32 nr)
{
	for (; nr--; fresh++) {
		if (!fresh->key)
			fresh->key = kzalloc(sizeof(*fresh->key), GFP_KERNEL_ACCOUNT);
		if (!fresh->hold)
			fresh->hold = kzalloc(sizeof(*fresh->hold), GFP_KERNEL_ACCOUNT);
		if (!fresh->key || !fresh->hold)
			return -ENOMEM;
	}
	return 0;
}

static u8 place_of(const struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	return kvblk_slot_foreign(slot) ? KVBLK_LEASE_FOREIGN :
	       READ_ONCE(pool->granule[slot->seg >> KVBLK_GRANULE_SHIFT]);
}

static u32 key_bytes(const struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	/* this node keeps an entry of the index for a foreign block, and no space */
	if (kvblk_slot_foreign(slot))
		return 1;
	return kvblk_record_units(slot->len, READ_ONCE(pool->align_units)) << KVBLK_UNIT_SHIFT;
}

static u64 share_of(struct kvblk_pool *pool, u64 bytes)
{
	return div_u64(bytes, 1000) * READ_ONCE(pool->tun.lease_permille);
}

static u64 place_most(struct kvblk_pool *pool, u8 place)
{
	u64 bytes = READ_ONCE(pool->tun.dram_bytes);
	struct kvblk_member *member;

	if (place == KVBLK_LEASE_FOREIGN)
		return share_of(pool, kvblk_index_slots(&pool->index));
	if (place != KVBLK_LEASE_MEMORY) {
		guard(rcu)();
		member = rcu_dereference(pool->members[place - 1]);
		bytes = member ? member->flash.nr_segs *
				 kvblk_flash_segment_bytes(&member->flash) : 0;
	}
	return share_of(pool, bytes);
}

/* Returns whether the block has come here since it was charged as a foreign one, for seconds. */
static bool key_came(const struct lease_key *key, const struct kvblk_slot *slot)
{
	return key->at == KVBLK_LEASE_FOREIGN && !kvblk_slot_foreign(slot);
}

static bool place_fits(const struct kvblk_file *file, u8 place, struct kvblk_id id,
		       const struct kvblk_slot *slot)
{
	struct kvblk_pool *pool = file->pool;
	const struct lease_key *key;
	u64 bytes = key_bytes(pool, slot);

	key = rhashtable_lookup_fast(&pool->lease.keys, &id, lease_params);
	if (key)
		return !key_came(key, slot);
	if (file->leased[place] + pool->lease.bytes[place] + bytes > place_most(pool, place))
		return false;
	return place != KVBLK_LEASE_MEMORY ||
	       file->leased_bytes + pool->lease.total + bytes <=
		       share_of(pool, kvblk_pool_space(pool).bytes);
}

static void key_charge(struct kvblk_pool *pool, struct lease_key *key, u8 at)
{
	key->at = at;
	pool->lease.bytes[at] += key->len;
	pool->lease.total += key->len;
	if (at != KVBLK_LEASE_MEMORY)
		return;
	list_add_tail(&key->memory, &pool->lease.in_memory);
	pool->lease.nr_in_memory++;
}

static void key_uncharge(struct kvblk_pool *pool, struct lease_key *key)
{
	pool->lease.bytes[key->at] -= key->len;
	pool->lease.total -= key->len;
	if (key->at != KVBLK_LEASE_MEMORY)
		return;
	list_del(&key->memory);
	pool->lease.nr_in_memory--;
}

static void key_drop(struct kvblk_pool *pool, struct lease_key *key)
{
	struct kvblk_slot slot;

	if (--key->count)
		return;
	/* the entry may be removed or moved concurrently */
	while (!pool->lease.over && kvblk_index_find(&pool->index, key->id, &slot) &&
	       slot.leased && !kvblk_index_lease(&pool->index, key->id, &slot, false))
		cpu_relax();
	key_uncharge(pool, key);
	rhashtable_remove_fast(&pool->lease.keys, &key->node, lease_params);
	kfree(key);
}

/* Takes a reference on the key of @id, or inserts @fresh->key. Returns NULL without memory. */
static struct lease_key *key_join(struct kvblk_pool *pool, struct kvblk_id id,
				  const struct kvblk_slot *slot, struct lease_fresh *fresh)
{
	struct lease_key *key;

	key = rhashtable_lookup_fast(&pool->lease.keys, &id, lease_params);
	if (key) {
		key->count++;
		return key;
	}
	key = fresh->key;
	key->id = id;
	key->count = 1;
	key->len = key_bytes(pool, slot);
	if (rhashtable_insert_fast(&pool->lease.keys, &key->node, lease_params))
		return NULL;
	fresh->key = NULL;
	key_charge(pool, key, place_of(pool, slot));
	return key;
}

static void hold_drop(struct kvblk_file *file, struct lease_hold *hold)
{
	struct kvblk_pool *pool = file->pool;

	if (--hold->count)
		return;
	file->leased[hold->place] -= hold->key->len;
	file->leased_bytes -= hold->key->len;
	key_drop(pool, hold->key);
	rhashtable_remove_fast(&pool->lease.holds, &hold->node, hold_params);
	kfree(hold);
}

/* Takes the file's hold on @id, or @fresh->hold. Returns NULL at the limit, or ERR_PTR(-ENOMEM). */
static struct lease_hold *hold_get(struct kvblk_file *file, struct kvblk_id id,
				   const struct kvblk_slot *slot, struct lease_fresh *fresh)
{
	struct kvblk_pool *pool = file->pool;
	const struct hold_name name = { .id = id, .file = file };
	struct lease_hold *hold;

	hold = rhashtable_lookup_fast(&pool->lease.holds, &name, hold_params);
	if (hold) {
		if (key_came(hold->key, slot))
			return NULL;
		hold->count++;
		return hold;
	}
	hold = fresh->hold;
	hold->name = name;
	hold->count = 1;
	hold->place = place_of(pool, slot);
	if (!place_fits(file, hold->place, id, slot))
		return NULL;
	hold->key = key_join(pool, id, slot, fresh);
	if (!hold->key)
		return ERR_PTR(-ENOMEM);
	if (rhashtable_insert_fast(&pool->lease.holds, &hold->node, hold_params)) {
		key_drop(pool, hold->key);
		return ERR_PTR(-ENOMEM);
	}
	fresh->hold = NULL;
	file->leased[hold->place] += hold->key->len;
	file->leased_bytes += hold->key->len;
	return hold;
}

/* Leases an entry. Returns NULL if removed or at the file's limit, or ERR_PTR(-ENOMEM). */
static struct lease_hold *hold_take(struct kvblk_file *file, struct kvblk_id id,
				    struct kvblk_slot *slot, struct lease_fresh *fresh)
{
	struct kvblk_pool *pool = file->pool;
	struct lease_hold *hold;
	int tries;

	lockdep_assert_held(&pool->lease.lock);
	hold = hold_get(file, id, slot, fresh);
	if (IS_ERR_OR_NULL(hold))
		return hold;
	/* not while the entry moves, because it may be evicted; a new entry needs the bit, too */
	for (tries = 0; tries < 8; tries++) {
		if (!kvblk_block_present(pool, id, slot->tenant, slot) || key_came(hold->key, slot))
			break;
		if (kvblk_index_lease(&pool->index, id, slot, true))
			return hold;
	}
	hold_drop(file, hold);
	return NULL;
}

/* Drops the holds of a lease that is on no list. */
static void lease_free(struct kvblk_pool *pool, struct lease *lease)
{
	struct kvblk_file *file = lease->file;
	u32 end;

	while (lease->nr) {
		end = lease->nr - min(lease->nr, LEASE_STEP);
		scoped_guard(mutex, &pool->lease.lock) {
			file->nr_leased -= lease->nr - end;
			while (lease->nr > end)
				hold_drop(file, lease->holds[--lease->nr]);
		}
		cond_resched();
	}
	kvblk_file_put(file);
	kvfree(lease);
}

/* Leases @entries. Returns 1 for all, 0 for fewer, or -ENOMEM. */
static int lease_step(struct kvblk_pool *pool, struct lease *lease,
		      struct kvblk_entry *entries, u32 nr, struct lease_fresh *fresh)
{
	struct kvblk_file *file = lease->file;
	struct lease_hold *hold;

	guard(mutex)(&pool->lease.lock);
	for (; nr; nr--, entries++) {
		if (pool->lease.over || file->nr_leased >= READ_ONCE(pool->tun.lease_keys_max))
			return 0;
		hold = hold_take(file, entries->id, &entries->slot, &fresh[nr - 1]);
		if (IS_ERR_OR_NULL(hold))
			return PTR_ERR(hold);
		lease->holds[lease->nr++] = hold;
		file->nr_leased++;
		if (kvblk_slot_foreign(&entries->slot))
			lease->foreign_ns = min(lease->foreign_ns,
						kvblk_foreign_until(pool, &entries->slot));
	}
	return 1;
}

static bool lease_before(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct lease, node)->end_ns < rb_entry(b, struct lease, node)->end_ns;
}

static bool lease_over(const struct lease *lease)
{
	return ktime_get_ns() >= lease->end_ns;
}

static void lease_hide(struct lease *lease)
{
	struct kvblk_file *file = lease->file;

	lockdep_assert_held(&file->pool->lease.lock);
	xa_erase(&file->leases, lease->id);
	rb_erase_cached(&lease->node, &file->pool->lease.by_end);
}

int kvblk_lease_take(struct kvblk_file *file, struct kvblk_entry *entries, u32 nr, u32 ms,
		     u64 *lease_id, u64 *end_ns)
{
	struct lease_fresh *fresh __free(kfree) =
		kcalloc(min(nr, LEASE_STEP), sizeof(*fresh), GFP_KERNEL_ACCOUNT);
	struct kvblk_pool *pool = file->pool;
	u32 left = nr, taken, step, n;
	struct lease *lease;
	int err = 0;

	*lease_id = 0;
	lease = kvzalloc(struct_size(lease, holds, nr), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!lease || !fresh) {
		kvfree(lease);
		return -ENOMEM;
	}
	refcount_inc(&file->refs);
	lease->file = file;
	lease->foreign_ns = U64_MAX;
	for (; left; left -= step, entries += step) {
		step = min(left, LEASE_STEP);
		err = fresh_fill(fresh, step) ?: lease_step(pool, lease, entries, step, fresh);
		if (err <= 0)
			break;
		err = 0;
	}
	for (n = 0; n < min(nr, LEASE_STEP); n++) {
		kfree(fresh[n].key);
		kfree(fresh[n].hold);
	}

	taken = lease->nr;
	scoped_guard(mutex, &pool->lease.lock) {
		lease->end_ns = min(ktime_get_ns() + (u64)ms * NSEC_PER_MSEC, lease->foreign_ns);
		lease->id = ++file->next_lease;
		if (taken && !err)
			err = xa_err(xa_store(&file->leases, lease->id, lease, GFP_KERNEL_ACCOUNT));
		if (taken && !err) {
			rb_add_cached(&lease->node, &pool->lease.by_end, lease_before);
			*lease_id = lease->id;
			*end_ns = lease->end_ns;
			kvblk_count(pool, KVBLK_C_LEASES, 1);
			return taken;
		}
	}
	lease_free(pool, lease);
	return err;
}

int kvblk_lease_drop(struct kvblk_file *file, u64 id)
{
	struct lease *lease;
	bool over;

	scoped_guard(mutex, &file->pool->lease.lock) {
		lease = id <= ULONG_MAX ? xa_load(&file->leases, id) : NULL;
		if (!lease)
			return -ENOENT;
		/* the tick frees it up to a second later, but its promise has ended */
		over = lease_over(lease);
		lease_hide(lease);
	}
	lease_free(file->pool, lease);
	return over ? -ENOENT : 0;
}

void kvblk_lease_drop_all(struct kvblk_file *file)
{
	struct lease *lease;
	unsigned long id;

	xa_for_each(&file->leases, id, lease)
		kvblk_lease_drop(file, id);
	/* waits for lease_expired(), which may still use the file */
	mutex_lock(&file->pool->lease.lock);
	mutex_unlock(&file->pool->lease.lock);
	xa_destroy(&file->leases);
}

static struct lease *lease_expired(struct kvblk_pool *pool)
{
	struct lease *lease;

	guard(mutex)(&pool->lease.lock);
	lease = rb_entry_safe(rb_first_cached(&pool->lease.by_end), struct lease, node);
	if (!lease || !lease_over(lease))
		return NULL;
	lease_hide(lease);
	return lease;
}

/* Charges up to LEASE_STEP blocks that have left DRAM to their members. */
static void memory_step(struct kvblk_pool *pool)
{
	struct lease_key *key, *next;
	struct kvblk_slot slot;
	LIST_HEAD(seen);
	u32 left = LEASE_STEP;

	guard(mutex)(&pool->lease.lock);
	list_for_each_entry_safe(key, next, &pool->lease.in_memory, memory) {
		if (!left--)
			break;
		list_move_tail(&key->memory, &seen);
		if (!kvblk_index_find(&pool->index, key->id, &slot) ||
		    place_of(pool, &slot) == KVBLK_LEASE_MEMORY)
			continue;
		key_uncharge(pool, key);
		key_charge(pool, key, place_of(pool, &slot));
	}
	list_splice_tail(&seen, &pool->lease.in_memory);
}

static void lease_expire_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, lease.work);
	struct lease *lease;
	u32 left;

	while ((lease = lease_expired(pool)))
		lease_free(pool, lease);
	for (left = min(READ_ONCE(pool->lease.nr_in_memory), LEASE_LOOK); left;
	     left -= min(left, LEASE_STEP)) {
		memory_step(pool);
		cond_resched();
	}
}

int kvblk_lease_init(struct kvblk_pool *pool)
{
	mutex_init(&pool->lease.lock);
	pool->lease.by_end = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&pool->lease.in_memory);
	INIT_WORK(&pool->lease.work, lease_expire_work);
	if (rhashtable_init(&pool->lease.keys, &lease_params))
		return -ENOMEM;
	if (!rhashtable_init(&pool->lease.holds, &hold_params))
		return 0;
	rhashtable_destroy(&pool->lease.keys);
	return -ENOMEM;
}

void kvblk_lease_exit(struct kvblk_pool *pool)
{
	WARN_ON_ONCE(!RB_EMPTY_ROOT(&pool->lease.by_end.rb_root));
	rhashtable_destroy(&pool->lease.holds);
	rhashtable_destroy(&pool->lease.keys);
}
