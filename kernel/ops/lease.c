// SPDX-License-Identifier: GPL-2.0
/*
 * A lease promises that found blocks stay readable for a while. It pins index entries, not
 * segments: reclaim copies a leased block forward. It belongs to an open file and ends with the
 * file, by deadline, or when released.
 *
 * The rules:
 * - An id counts the files that hold it; a hold counts the leases of its file that list the id.
 *   Both may outlive the entry, whose leased bit never outlives the counts. All three change
 *   together, under the id's lock, key_lock().
 * - A file's lock is held for LEASE_STEP keys at most, an id's lock for one: callers with other
 *   files do not wait for each other.
 * - A lease is in pool->lease.by_end until it ends. The task that removes a lease frees it.
 * - lease_permille of each member's bytes, and of DRAM, may be leased, so reclaim always finds
 *   blocks to drop. A new key may take a file to half of the share that other files leave, so no
 *   file makes other files' leases fail. An id that is leased already costs nothing.
 * - A leased DRAM block may be written to any member. So the lease must also fit, with all other
 *   leases, into lease_permille of the members' bytes.
 * - A foreign block is not charged, and its owner does not know of the lease. So the lease ends
 *   when the block's read would need a proof, see pool/follow.c; a lookup then leases it again.
 * - A step charges the pool for all keys of a place at once if the file may have all, and returns
 *   unused bytes at the end. So during a lookup the pool may be charged for LEASE_STEP blocks more
 *   than the file leases, but never beyond a limit.
 * - A file is charged once per id, at the place of the block at the time. The pool is charged at
 *   the current place: a block that leaves DRAM is charged to the member within a second.
 */
#include <linux/slab.h>

#include "request.h"

struct lease_key;

/* An id leased by an open file; under key_lock(). */
struct lease_hold {
	struct rb_node node;		/* in key->holds, by @file; unused in key->first */
	struct kvblk_file *file;	/* NULL: not in use */
	struct lease_key *key;
	u32 count;			/* leases of the file that list the id */
	u8 place;			/* place where the file is charged, see place_of() */
};

/* A leased id; under key_lock(). */
struct lease_key {
	struct hlist_node node;		/* in its list's @keys */
	struct list_head memory;	/* in pool->lease.in_memory if @at is KVBLK_LEASE_MEMORY */
	struct kvblk_id id;
	struct rb_root holds;		/* all but @first */
	struct lease_hold first;	/* hold of one file, because most ids are leased by one */
	u32 count;			/* files that hold the id */
	u32 len;			/* bytes charged */
	u8 at;				/* place where the pool is charged, see place_of() */
};

/* Leased ids with the same hash. */
struct kvblk_lease_list {
	spinlock_t lock;		/* protects @keys and all about the ids, see key_lock() */
	struct hlist_head keys;
};

struct lease {
	struct rb_node node;		/* in pool->lease.by_end, by @end_ns; empty: being ended */
	struct kvblk_file *file;	/* charged for @holds, with a reference */
	u64 id;				/* index in file->leases */
	u64 end_ns;			/* time of ktime_get() */
	u64 foreign_ns;			/* end of the promise of foreign blocks, or U64_MAX */
	u32 nr;				/* entries of @holds */
	struct lease_hold *holds[];
};

#define LEASE_STEP	64u		/* keys processed under one hold of file->lease_lock */
#define LEASE_SPARES	16		/* places for which a step charges at once */
#define LEASE_LOOK	65536u		/* leased DRAM blocks checked in a second, others later */
#define LEASE_CHAIN	16		/* index slots for each of pool->lease.lists */
#define LEASE_LISTS_MIN	64u
#define LEASE_LISTS_MAX	BIT(20)

/* Memory and limits for one step of a lease, because nothing is allocated under locks. */
struct lease_step {
	struct lease_key *keys[LEASE_STEP];	/* to use or to free */
	u32 nr;				/* entries of @keys */
	struct lease_hold *hold;	/* to use, or NULL */
	const struct kvblk_entry *end;	/* end of the entries to lease */
	bool singly;			/* charge for one key at a time */
	u16 used;			/* bitmap of the used @spare and @place */
	u64 spare[LEASE_SPARES];	/* bytes charged to the pool for no key, by place */
	u8 place[LEASE_SPARES];		/* place of each @spare */
};

static struct kmem_cache *lease_keys;

static void step_init(struct lease_step *step)
{
	step->nr = 0;
	step->hold = NULL;
	step->used = 0;
}

/* Returns the unused bytes of spare[@i] to the pool. */
static void spare_return(struct kvblk_pool *pool, struct lease_step *step, u32 i)
{
	u64 spare = step->spare[i];

	step->spare[i] = 0;
	if (!spare)
		return;
	atomic64_sub(spare, &pool->lease.bytes[step->place[i]]);
	atomic64_sub(spare, &pool->lease.total);
}

/* Returns the bytes charged at @place for no key. */
static u64 *spare_of(struct kvblk_pool *pool, struct lease_step *step, u8 place)
{
	u32 i = place % LEASE_SPARES;

	if (!(step->used & BIT(i))) {
		step->spare[i] = 0;
	} else if (step->place[i] != place) {
		/* or else alternating places would be charged for all keys with each key */
		step->singly = true;
		spare_return(pool, step, i);
	}
	step->used |= BIT(i);
	step->place[i] = place;
	return &step->spare[i];
}

/* Prepares @step for @nr more keys. Returns 0 or -ENOMEM. */
static int step_fill(struct lease_step *step, u32 nr)
{
	u32 more = nr - min(nr, step->nr);

	if (more && !kmem_cache_alloc_bulk(lease_keys, GFP_KERNEL, more,
					   (void **)step->keys + step->nr))
		return -ENOMEM;
	step->nr += more;
	return 0;
}

static void spares_return(struct kvblk_pool *pool, struct lease_step *step)
{
	unsigned long used = step->used;
	u32 i;

	for_each_set_bit(i, &used, LEASE_SPARES)
		spare_return(pool, step, i);
	step->used = 0;
}

static void step_free(struct kvblk_pool *pool, struct lease_step *step)
{
	spares_return(pool, step);
	if (step->nr)
		kmem_cache_free_bulk(lease_keys, step->nr, (void **)step->keys);
	step->nr = 0;
}

/* Returns the list of @id. An id is a keyed hash, so callers cannot choose its list. */
static struct kvblk_lease_list *key_list(const struct kvblk_pool *pool, struct kvblk_id id)
{
	return &pool->lease.lists[id.lo & pool->lease.list_mask];
}

/* Returns the lock of @id, in the cache line of the list. */
static spinlock_t *key_lock(const struct kvblk_pool *pool, struct kvblk_id id)
{
	return &key_list(pool, id)->lock;
}

static struct lease_key *key_find(struct kvblk_pool *pool, struct kvblk_id id)
{
	struct lease_key *key;

	lockdep_assert_held(key_lock(pool, id));
	hlist_for_each_entry(key, &key_list(pool, id)->keys, node)
		if (key->id.lo == id.lo && key->id.hi == id.hi)
			return key;
	return NULL;
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
	return kvblk_record_units(kvblk_tenant_encrypted(pool, slot->tenant), slot->len,
				  READ_ONCE(pool->align_units)) << KVBLK_UNIT_SHIFT;
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

/*
 * Returns whether the charge covers the block. After a delete, a larger one may have been put, or
 * one here that was charged as a foreign one, for seconds.
 */
static bool key_covers(const struct kvblk_pool *pool, const struct lease_key *key,
		       const struct kvblk_slot *slot)
{
	return key_bytes(pool, slot) <= key->len &&
	       (key->at != KVBLK_LEASE_FOREIGN || kvblk_slot_foreign(slot));
}

/* Lists a charged key, for memory_look(). */
static void memory_add(struct kvblk_pool *pool, struct lease_key *key)
{
	if (key->at != KVBLK_LEASE_MEMORY)
		return;
	guard(spinlock)(&pool->lease.lock);
	list_add_tail(&key->memory, &pool->lease.in_memory);
	pool->lease.nr_in_memory++;
}

static void memory_del(struct kvblk_pool *pool, struct lease_key *key)
{
	if (key->at != KVBLK_LEASE_MEMORY)
		return;
	guard(spinlock)(&pool->lease.lock);
	list_del(&key->memory);
	pool->lease.nr_in_memory--;
}

/* Adds @bytes to @sum if the result is at most @most. Returns success. */
static bool sum_add(atomic64_t *sum, s64 bytes, s64 most)
{
	s64 old = atomic64_read(sum);

	do {
		if (old + bytes > most)
			return false;
	} while (!atomic64_try_cmpxchg(sum, &old, old + bytes));
	return true;
}

/*
 * Charges the pool for new keys of @file at @place. @held: bytes to add to the file's, because the
 * last key counts after the others. Returns false at a limit.
 */
static bool pool_charge(const struct kvblk_file *file, u8 place, s64 bytes, s64 held)
{
	struct kvblk_pool *pool = file->pool;
	struct kvblk_leases *lease = &pool->lease;
	s64 all;

	if (!sum_add(&lease->bytes[place], bytes,
		     (s64)place_most(pool, place) - (s64)file->leased[place] - held))
		return false;
	if (place != KVBLK_LEASE_MEMORY) {
		atomic64_add(bytes, &lease->total);
		return true;
	}
	all = share_of(pool, kvblk_pool_space(pool).bytes);
	if (sum_add(&lease->total, bytes, all - (s64)file->leased_bytes - held))
		return true;
	atomic64_sub(bytes, &lease->bytes[place]);
	return false;
}

/* Charges for the new @key of @entry and, if possible, for the step's next keys of the place. */
static bool key_charge(const struct kvblk_file *file, const struct lease_key *key,
		       const struct kvblk_entry *entry, struct lease_step *step)
{
	struct kvblk_pool *pool = file->pool;
	u64 *spare = spare_of(pool, step, key->at), need, more = 0;

	if (*spare < key->len) {
		need = key->len - *spare;
		while (++entry < step->end && !step->singly)
			if (place_of(pool, &entry->slot) == key->at)
				more += key_bytes(pool, &entry->slot);
		if (more && !pool_charge(file, key->at, need + more, key->len + more)) {
			step->singly = true;
			more = 0;
		}
		if (!more && !pool_charge(file, key->at, need, 0))
			return false;
		*spare += need + more;
	}
	*spare -= key->len;
	return true;
}

static void key_free(struct kvblk_pool *pool, struct lease_key *key, struct lease_step *step)
{
	*spare_of(pool, step, key->at) += key->len;
	memory_del(pool, key);
	hlist_del(&key->node);
	step->keys[step->nr++] = key;
}

/* Returns the key of @entry, maybe a new one without holds, or NULL at the file's limit. */
static struct lease_key *key_need(const struct kvblk_file *file, const struct kvblk_entry *entry,
				  struct lease_step *step)
{
	struct kvblk_pool *pool = file->pool;
	struct lease_key *key = key_find(pool, entry->id);

	if (key)
		return key_covers(pool, key, &entry->slot) ? key : NULL;
	key = step->keys[step->nr - 1];
	key->id = entry->id;
	key->holds = RB_ROOT;
	key->first.file = NULL;
	key->count = 0;
	key->len = key_bytes(pool, &entry->slot);
	key->at = place_of(pool, &entry->slot);
	if (!key_charge(file, key, entry, step))
		return NULL;
	step->nr--;
	hlist_add_head(&key->node, &key_list(pool, key->id)->keys);
	memory_add(pool, key);
	return key;
}

static int hold_compare(const void *file, const struct rb_node *node)
{
	const struct kvblk_file *other = rb_entry(node, struct lease_hold, node)->file;

	return (const struct kvblk_file *)file < other ? -1 : file != other;
}

static bool hold_before(struct rb_node *a, const struct rb_node *b)
{
	return hold_compare(rb_entry(a, struct lease_hold, node)->file, b) < 0;
}

static struct lease_hold *hold_find(struct lease_key *key, const struct kvblk_file *file)
{
	struct rb_node *node;

	if (key->first.file == file)
		return &key->first;
	node = rb_find(file, &key->holds, hold_compare);
	return node ? rb_entry(node, struct lease_hold, node) : NULL;
}

/* Adds a hold. Returns ERR_PTR(-EAGAIN) if the step needs memory for one. */
static struct lease_hold *hold_add(struct kvblk_file *file, struct lease_key *key, u8 place,
				   struct lease_step *step)
{
	struct lease_hold *hold = key->first.file ? step->hold : &key->first;

	if (!hold)
		return ERR_PTR(-EAGAIN);
	hold->file = file;
	hold->key = key;
	hold->count = 0;
	hold->place = place;
	if (hold == step->hold) {
		rb_add(&hold->node, &key->holds, hold_before);
		step->hold = NULL;
	}
	key->count++;
	file->leased[place] += key->len;
	file->leased_bytes += key->len;
	return hold;
}

/* Ends one use of @hold. @entered: the index exists. Leaves a key without holds in @step. */
static void hold_drop(struct lease_hold *hold, bool entered, struct lease_step *step)
{
	struct kvblk_file *file = hold->file;
	struct lease_key *key = hold->key;

	if (--hold->count)
		return;
	file->leased[hold->place] -= key->len;
	file->leased_bytes -= key->len;
	if (hold == &key->first) {
		hold->file = NULL;
	} else {
		rb_erase(&hold->node, &key->holds);
		kfree(hold);
	}
	if (--key->count)
		return;
	if (entered)
		kvblk_index_unlease(&file->pool->index, key->id);
	key_free(file->pool, key, step);
}

/* Leases an entry in the index, also a MOVING one unless its owner may drop the block. */
static bool entry_lease(struct kvblk_pool *pool, const struct kvblk_entry *entry)
{
	static const unsigned long always = 1;
	const struct kvblk_slot *slot = &entry->slot;
	const struct kvblk_member *member;
	const struct kvblk_kept *kept;

	/* demotion drops no block, leased or not, except after several failed writes */
	if (kvblk_slot_in_dram(slot))
		return kvblk_index_lease(&pool->index, entry->id, slot, &always, 0);
	guard(rcu)();
	member = kvblk_member_of(pool, slot->seg);
	kept = member ? rcu_dereference(member->log.kept) : NULL;
	if (kept && kept->segment != kvblk_slot_segment(&member->flash, slot))
		kept = NULL;
	return kvblk_index_lease(&pool->index, entry->id, slot, kept ? kept->units : NULL,
				 slot->off);
}

/*
 * Leases an entry of an entered pool. Returns NULL if it was removed or the file is at its limit,
 * or ERR_PTR(-EAGAIN) if the step needs memory for a hold.
 */
static struct lease_hold *hold_take(struct kvblk_file *file, struct kvblk_entry *entry,
				    struct lease_step *step)
{
	struct kvblk_pool *pool = file->pool;
	struct kvblk_slot *slot = &entry->slot;
	struct lease_hold *hold;
	struct lease_key *key;
	int tries;

	lockdep_assert_held(&file->lease_lock);
	guard(spinlock)(key_lock(pool, entry->id));
	key = key_need(file, entry, step);
	if (!key)
		return NULL;
	hold = hold_find(key, file) ?: hold_add(file, key, place_of(pool, slot), step);
	if (IS_ERR(hold))
		return hold;
	hold->count++;
	/* the entry may have moved meanwhile, and a new entry needs the bit, too */
	for (tries = 0; tries < 8; tries++) {
		if (entry_lease(pool, entry))
			return hold;
		if (!kvblk_block_present(pool, entry->id, slot->tenant, slot) ||
		    !key_covers(pool, key, slot))
			break;
	}
	hold_drop(hold, true, step);
	return NULL;
}

/* Drops the holds of a lease that is on no list. */
static void lease_free(struct kvblk_pool *pool, struct lease *lease)
{
	struct kvblk_file *file = lease->file;
	struct lease_step step;
	struct lease_hold *hold;
	bool entered;
	u32 end;

	step_init(&step);
	while (lease->nr) {
		end = lease->nr - min(lease->nr, LEASE_STEP);
		/* also while the pool goes away, because a member's removal may wait for leases */
		entered = percpu_ref_tryget(&pool->users);
		scoped_guard(mutex, &file->lease_lock) {
			file->nr_leased -= lease->nr - end;
			while (lease->nr > end) {
				hold = lease->holds[--lease->nr];
				guard(spinlock)(key_lock(pool, hold->key->id));
				hold_drop(hold, entered, &step);
			}
		}
		if (entered)
			kvblk_pool_leave(pool);
		step_free(pool, &step);
		cond_resched();
	}
	kvblk_file_put(file);
	kvfree(lease);
}

/*
 * Leases the next LEASE_STEP of @entries. Returns 0 for all, 1 if one cannot be leased, or -EAGAIN
 * if the step needs memory for a hold.
 */
static int lease_add(struct lease *lease, struct kvblk_entry *entries, u32 nr,
		     struct lease_step *step)
{
	struct kvblk_file *file = lease->file;
	struct kvblk_pool *pool = file->pool;
	struct kvblk_entry *entry;
	struct lease_hold *hold;
	u32 end = min(nr, lease->nr + LEASE_STEP);

	lockdep_assert_held(&file->lease_lock);
	step->end = entries + end;
	step->singly = false;
	while (lease->nr < end) {
		if (file->nr_leased >= READ_ONCE(pool->tun.lease_keys_max))
			return 1;
		entry = &entries[lease->nr];
		hold = hold_take(file, entry, step);
		if (IS_ERR_OR_NULL(hold))
			return hold ? PTR_ERR(hold) : 1;
		lease->holds[lease->nr++] = hold;
		file->nr_leased++;
		if (kvblk_slot_foreign(&entry->slot))
			lease->foreign_ns = min(lease->foreign_ns,
						kvblk_foreign_until(pool, &entry->slot));
	}
	return 0;
}

/* Leases @entries, in order, until one cannot be leased. Returns 0 or -ENOMEM. */
static int lease_add_all(struct lease *lease, struct kvblk_entry *entries, u32 nr)
{
	struct kvblk_file *file = lease->file;
	struct lease_step step;
	int err = 0;

	step_init(&step);
	while (lease->nr < nr && !err) {
		err = step_fill(&step, min(nr - lease->nr, LEASE_STEP));
		if (err)
			break;
		scoped_guard(mutex, &file->lease_lock) {
			err = lease_add(lease, entries, nr, &step);
			/* the limit of the file, which has other threads, does not count them */
			spares_return(file->pool, &step);
		}
		if (err != -EAGAIN)
			continue;
		step.hold = kmalloc(sizeof(*step.hold), GFP_KERNEL_ACCOUNT);
		err = step.hold ? 0 : -ENOMEM;
	}
	step_free(file->pool, &step);
	kfree(step.hold);
	return min(err, 0);
}

/* Allocates the lists of leased ids of an entered pool. Returns 0 or -ENOMEM. */
static int lists_need(struct kvblk_pool *pool)
{
	struct kvblk_lease_list *lists;
	u32 nr, i;

	/* pairs with cmpxchg() below */
	if (smp_load_acquire(&pool->lease.lists))
		return 0;
	nr = roundup_pow_of_two(clamp(kvblk_index_slots(&pool->index) / LEASE_CHAIN,
				      LEASE_LISTS_MIN, LEASE_LISTS_MAX));
	lists = kvcalloc(nr, sizeof(*lists), GFP_KERNEL | __GFP_NOWARN);
	if (!lists)
		return -ENOMEM;
	for (i = 0; i < nr; i++)
		spin_lock_init(&lists[i].lock);
	/* each caller stores the same value */
	WRITE_ONCE(pool->lease.list_mask, nr - 1);
	if (cmpxchg(&pool->lease.lists, NULL, lists))
		kvfree(lists);
	return 0;
}

static bool lease_before(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct lease, node)->end_ns < rb_entry(b, struct lease, node)->end_ns;
}

static bool lease_over(const struct lease *lease)
{
	return ktime_get_ns() >= lease->end_ns;
}

/* Removes a lease from by_end, for the caller to free. Returns false if already removed. */
static bool lease_end(struct kvblk_pool *pool, struct lease *lease)
{
	lockdep_assert_held(&pool->lease.lock);
	if (RB_EMPTY_NODE(&lease->node))
		return false;
	rb_erase_cached(&lease->node, &pool->lease.by_end);
	RB_CLEAR_NODE(&lease->node);
	return true;
}

int kvblk_lease_take(struct kvblk_file *file, struct kvblk_entry *entries, u32 nr, u32 ms,
		     u64 *lease_id, u64 *end_ns)
{
	struct kvblk_pool *pool __free(kvblk_pool_leave) = kvblk_pool_enter(file->pool);
	struct lease *lease;
	u32 taken;
	int err;

	*lease_id = 0;
	if (!pool)
		return 0;
	lease = kvzalloc(struct_size(lease, holds, nr), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!lease)
		return -ENOMEM;
	refcount_inc(&file->refs);
	lease->file = file;
	lease->foreign_ns = U64_MAX;
	err = lists_need(pool) ?: lease_add_all(lease, entries, nr);
	taken = lease->nr;
	scoped_guard(mutex, &file->lease_lock) {
		lease->end_ns = min(ktime_get_ns() + (u64)ms * NSEC_PER_MSEC, lease->foreign_ns);
		lease->id = ++file->next_lease;
		if (taken && !err)
			err = xa_err(xa_store(&file->leases, lease->id, lease, GFP_KERNEL_ACCOUNT));
		if (taken && !err) {
			*lease_id = lease->id;
			*end_ns = lease->end_ns;
			kvblk_count(pool, KVBLK_C_LEASES, 1);
			guard(spinlock)(&pool->lease.lock);
			rb_add_cached(&lease->node, &pool->lease.by_end, lease_before);
			return taken;
		}
	}
	lease_free(pool, lease);
	return err;
}

int kvblk_lease_drop(struct kvblk_file *file, u64 id)
{
	struct kvblk_pool *pool = file->pool;
	struct lease *lease;
	bool over;

	scoped_guard(mutex, &file->lease_lock) {
		lease = id <= ULONG_MAX ? xa_load(&file->leases, id) : NULL;
		if (!lease)
			return -ENOENT;
		/* the tick frees it up to a second later, but its promise has ended */
		over = lease_over(lease);
		scoped_guard(spinlock, &pool->lease.lock)
			if (!lease_end(pool, lease))
				return -ENOENT;
		xa_erase(&file->leases, id);
	}
	lease_free(pool, lease);
	return over ? -ENOENT : 0;
}

void kvblk_lease_drop_all(struct kvblk_file *file)
{
	struct lease *lease;
	unsigned long id;

	xa_for_each(&file->leases, id, lease)
		kvblk_lease_drop(file, id);
	/* the tick may still end leases, each with a reference to the file */
	xa_destroy(&file->leases);
}

static struct lease *lease_expired(struct kvblk_pool *pool)
{
	struct lease *lease;

	guard(spinlock)(&pool->lease.lock);
	lease = rb_entry_safe(rb_first_cached(&pool->lease.by_end), struct lease, node);
	return lease && lease_over(lease) && lease_end(pool, lease) ? lease : NULL;
}

/* Charges the next leased block to a member if the block has left DRAM. */
static void memory_look(struct kvblk_pool *pool)
{
	struct lease_key *key;
	struct kvblk_slot slot;
	struct kvblk_id id;

	scoped_guard(spinlock, &pool->lease.lock) {
		key = list_first_entry_or_null(&pool->lease.in_memory, struct lease_key, memory);
		if (!key)
			return;
		list_move_tail(&key->memory, &pool->lease.in_memory);
		id = key->id;
	}
	/* the id's lock is taken first, so the key may be freed meanwhile */
	guard(spinlock)(key_lock(pool, id));
	key = key_find(pool, id);
	if (!key || key->at != KVBLK_LEASE_MEMORY || !kvblk_index_find(&pool->index, id, &slot) ||
	    place_of(pool, &slot) == KVBLK_LEASE_MEMORY)
		return;
	memory_del(pool, key);
	atomic64_sub(key->len, &pool->lease.bytes[KVBLK_LEASE_MEMORY]);
	key->at = place_of(pool, &slot);
	atomic64_add(key->len, &pool->lease.bytes[key->at]);
	memory_add(pool, key);
}

static void lease_expire_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, lease.work);
	struct lease *lease;
	u32 left;

	while ((lease = lease_expired(pool))) {
		scoped_guard(mutex, &lease->file->lease_lock)
			xa_erase(&lease->file->leases, lease->id);
		lease_free(pool, lease);
	}
	for (left = min(READ_ONCE(pool->lease.nr_in_memory), LEASE_LOOK); left; left--) {
		memory_look(pool);
		cond_resched();
	}
}

void kvblk_lease_pool_init(struct kvblk_pool *pool)
{
	spin_lock_init(&pool->lease.lock);
	pool->lease.by_end = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&pool->lease.in_memory);
	INIT_WORK(&pool->lease.work, lease_expire_work);
}

void kvblk_lease_pool_exit(struct kvblk_pool *pool)
{
	WARN_ON_ONCE(!RB_EMPTY_ROOT(&pool->lease.by_end.rb_root));
	WARN_ON_ONCE(atomic64_read(&pool->lease.total));
	kvfree(pool->lease.lists);
}

int kvblk_lease_init(void)
{
	/* aligned, because adjacent keys may be of files on different CPUs */
	lease_keys = KMEM_CACHE(lease_key, SLAB_ACCOUNT | SLAB_HWCACHE_ALIGN);
	return lease_keys ? 0 : -ENOMEM;
}

void kvblk_lease_exit(void)
{
	kmem_cache_destroy(lease_keys);
}
