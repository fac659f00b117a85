// SPDX-License-Identifier: GPL-2.0
/* Ioctls. Structures and pointers to arrays are checked first, so a bad ioctl has no effect. */
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "chardev/chardev.h"
#include "trace.h"

#define LOOKUP_STEP	64u		/* keys in one step of a lookup */
#define LOOKUP_TOGETHER	8		/* keys hashed before a prefetch: page walks overlap */
#define LOOKUP_SOURCES	128		/* members with a sum of their own in predicted times */

/* ---- lookups ---- */

/* Predicted times of a lookup's blocks, if they are all read now, in order. */
struct lookup_times {
	u32 latest;			/* time of the last block so far, us */
	u32 nr_sources;
	struct lookup_source {
		const void *flash;	/* compared only: no reference is held */
		u64 bytes;		/* of the blocks so far */
	} sources[LOOKUP_SOURCES];
	u32 us[LOOKUP_STEP];		/* of this step */
};

/* The other tenant whose blocks a lookup finds. */
struct lookup_shared {
	siphash_key_t key;		/* of the tenant */
	u16 tenant;
	bool asks;			/* a daemon may know of missing blocks of the tenant */
	struct kvblk_id picked[LOOKUP_STEP]; /* of each key in this step: the id to look up */
	struct kvblk_id ids[];		/* as &lookup.ids, of the tenant */
};

struct lookup {
	struct kvblk_file *file;
	struct kvblk_lookup *arg;	/* the caller's structure */
	u8 __user *keys;		/* the next keys */
	u8 *blob;			/* keys of this step */
	u32 blob_bytes;			/* size of @blob */
	struct kvblk_slot *slots;	/* entries of this step; in one allocation with: */
	struct kvblk_id *ids;		/* ids of this step, of all keys if @asks */
	struct lookup_shared *shared;	/* NULL: lookups find blocks of no other tenant */
	unsigned long *found;		/* a bit for each key */
	struct kvblk_entry *wanted;	/* entries to lease; charged to the file's budget */
	u32 nr_wanted;
	u32 room;			/* entries allocated in @wanted */
	bool hole;			/* a key was not present */
	bool full;			/* the file's budget is used up: lease no more entries */
	u32 unserved;			/* keys whose member does not respond */
	u32 foreign;			/* hits on other nodes' members */
	bool asks;			/* a daemon may know of missing blocks, also if shared */
	u32 hashed;			/* keys whose ids are in @ids */
	struct kvblk_id *missing;	/* the first ones, KVBLK_ASK_IDS at most, if @asks */
	u32 nr_missing;
	struct lookup_times *times;	/* NULL: not asked for */
};

static int lookup_want(struct lookup *lu, struct kvblk_id id, const struct kvblk_slot *slot)
{
	struct kvblk_budget *budget = &lu->file->budget;
	struct kvblk_entry *more;
	u32 add = lu->room ?: min(lu->arg->nr_keys, LOOKUP_STEP);

	if (lu->full)
		return 0;
	if (lu->nr_wanted == lu->room) {
		lu->full = !kvblk_budget_take(budget, array_size(add, sizeof(*more)),
					      kvblk_file_limit(lu->file));
		if (lu->full)
			return 0;
		more = kvrealloc(lu->wanted, array_size(lu->room + add, sizeof(*more)),
				 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!more) {
			kvblk_budget_give(budget, array_size(add, sizeof(*more)));
			return -ENOMEM;
		}
		lu->wanted = more;
		lu->room += add;
	}
	lu->wanted[lu->nr_wanted++] = (struct kvblk_entry) { .id = id, .slot = *slot };
	return 0;
}

struct lookup_answer {
	u64 tags[LOOKUP_STEP];
	u32 sizes[LOOKUP_STEP];
	u8 tiers[LOOKUP_STEP];
};

static bool lookup_present(const struct lookup *lu, const struct kvblk_slot *slot)
{
	const struct lookup_shared *shared = lu->shared;

	const u16 tenant = unlikely(shared) && slot->tenant == shared->tenant ? shared->tenant :
										lu->file->tenant;

	return kvblk_slot_present(lu->file->pool, tenant, slot);
}

/*
 * Collects the missing ones of keys @from to @n - 1, looked up by @ids in an entered pool. Key 0 is
 * key @first of all.
 */
static void lookup_miss(struct lookup *lu, const struct kvblk_id *ids, u64 entries, u32 first,
			u32 from, u32 n)
{
	const struct lookup_shared *shared = lu->shared;
	u32 i;

	for (i = from; i < n && lu->nr_missing < KVBLK_ASK_IDS; i++) {
		if (entries & BIT_ULL(i) && lookup_present(lu, &lu->slots[i]))
			continue;
		lu->missing[lu->nr_missing++] = ids[i];
		if (unlikely(shared) && shared->asks && lu->nr_missing < KVBLK_ASK_IDS)
			lu->missing[lu->nr_missing++] = shared->ids[first + i];
	}
}

/* Looks up the @n keys of @ids, from key @first on, in an entered pool. Returns 0 or -ENOMEM. */
static int lookup_find(struct lookup *lu, const struct kvblk_id *ids, u32 first, u32 n,
		       struct lookup_answer *answer)
{
	struct kvblk_lookup *arg = lu->arg;
	struct kvblk_pool *pool = lu->file->pool;
	u64 entries;
	u32 i;

	BUILD_BUG_ON(LOOKUP_STEP > 64);

	memset(answer->tags, 0, n * sizeof(*answer->tags));
	memset(answer->sizes, 0, n * sizeof(*answer->sizes));
	memset(answer->tiers, 0, n * sizeof(*answer->tiers));
	entries = kvblk_index_find_many(&pool->index, ids, n, lu->slots);
	for (i = 0; i < n; i++) {
		struct kvblk_slot *slot = &lu->slots[i];

		if (!(entries & BIT_ULL(i)) || !lookup_present(lu, slot)) {
			lu->unserved += entries & BIT_ULL(i) &&
					kvblk_slot_listed(pool, lu->file->tenant, slot);
			lu->hole = true;
			if (arg->flags & KVBLK_LOOKUP_PREFIX)
				break;
			continue;
		}
		__set_bit(first + i, lu->found);
		answer->sizes[i] = slot->len;
		answer->tags[i] = slot->caller_tag;
		if (arg->tiers)
			answer->tiers[i] = kvblk_slot_foreign(slot) ? KVBLK_TIER_FOREIGN :
					   kvblk_dram_holds(pool, ids[i], slot) ?
					   KVBLK_TIER_MEMORY : KVBLK_TIER_MEMBER;
		arg->nr_present++;
		lu->foreign += kvblk_slot_foreign(slot);
		if (!lu->hole) {
			arg->nr_leading++;
			if (!(arg->flags & KVBLK_LOOKUP_QUIET))
				kvblk_block_touch(pool, ids[i], slot);
		}
		if (arg->flags & KVBLK_LOOKUP_LEASE && lookup_want(lu, ids[i], slot))
			return -ENOMEM;
	}
	if (lu->asks && lu->hole)
		lookup_miss(lu, ids, entries, first, arg->flags & KVBLK_LOOKUP_PREFIX ? i : 0, n);
	return 0;
}

/* Copies @n results of @size bytes, or zeroes without @from, to the caller's array, if any. */
static int array_out(u64 to, u32 first, u32 n, size_t size, const void *from)
{
	void __user *at = u64_to_user_ptr(to) + first * size;

	if (!to)
		return 0;
	return (from ? copy_to_user(at, from, n * size) : clear_user(at, n * size)) ? -EFAULT : 0;
}

/* Copies @n results, or zeroes without @answer, to the caller. */
static inline int lookup_out(const struct lookup *lu, u32 first, u32 n,
			     const struct lookup_answer *answer)
{
	const struct kvblk_lookup *arg = lu->arg;

	return array_out(arg->sizes, first, n, 4, answer ? answer->sizes : NULL) ?:
	       array_out(arg->caller_tags, first, n, 8, answer ? answer->tags : NULL) ?:
	       array_out(arg->tiers, first, n, 1, answer ? answer->tiers : NULL) ?:
	       array_out(arg->times, first, n, 4, answer && lu->times ? lu->times->us : NULL);
}

/* Adds the bytes of a block to its member's. Returns the sum. */
static u64 lookup_source(struct lookup_times *times, const void *flash, u32 bytes)
{
	struct lookup_source *source = times->sources;

	while (source < times->sources + times->nr_sources && source->flash != flash)
		source++;
	/* members beyond the last have one sum: late rather than early */
	if (source == times->sources + LOOKUP_SOURCES)
		source--;
	else if (source == times->sources + times->nr_sources)
		times->sources[times->nr_sources++] = (struct lookup_source) { .flash = flash };
	source->bytes += bytes;
	return source->bytes;
}

/* Returns when a present block of an entered pool has come with all before it, us. */
static u32 lookup_time(struct lookup *lu, struct kvblk_id id, const struct kvblk_slot *slot,
		       u64 now)
{
	struct kvblk_pool *pool = lu->file->pool;
	struct lookup_times *times = lu->times;
	struct kvblk_foreign *foreign;
	struct kvblk_member *member;
	struct kvblk_flash *flash;
	u64 bytes;

	guard(rcu)();
	if (kvblk_slot_foreign(slot)) {
		foreign = kvblk_foreign_of(pool, slot->seg);
		flash = foreign ? &foreign->flash : NULL;
	} else {
		member = kvblk_dram_holds(pool, id, slot) ? NULL :
			 kvblk_member_of(pool, slot->seg);
		flash = member ? &member->flash : NULL;
	}
	if (flash) {
		kvblk_flash_look(flash, now);
		bytes = lookup_source(times, flash, slot->len);
		times->latest = max(times->latest,
				    kvblk_bandwidth_us(&flash->bandwidth, now, bytes));
	}
	return times->latest;
}

/* Predicts the times of the @n keys of @ids, from key @first on, in an entered pool. */
static noinline void lookup_predict(struct lookup *lu, const struct kvblk_id *ids, u32 first,
				    u32 n)
{
	u64 now = ktime_get_ns();
	u32 i;

	for (i = 0; i < n; i++)
		lu->times->us[i] = test_bit(first + i, lu->found) ?
				   lookup_time(lu, ids[i], &lu->slots[i], now) : 0;
}

/* Reads the @n keys from key @first on. Returns 0 or an error. */
static int lookup_read(struct lookup *lu, u32 first, u32 n, u16 lens[LOOKUP_STEP])
{
	const struct kvblk_lookup *arg = lu->arg;
	u32 bytes = 0, i;

	if (arg->key_lens) {
		if (copy_from_user(lens, u64_to_user_ptr(arg->key_lens) + first * 2ul, n * 2ul))
			return -EFAULT;
	} else {
		for (i = 0; i < n; i++)
			lens[i] = arg->key_stride;
	}
	for (i = 0; i < n; i++) {
		if (!lens[i] || lens[i] > KVBLK_KEY_MAX)
			return -EINVAL;
		bytes += lens[i];
	}
	/* by the keys' real size, because the allocator may clear all of it */
	if (bytes > lu->blob_bytes) {
		kvfree(lu->blob);
		lu->blob_bytes = 0;
		lu->blob = kvmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
		if (!lu->blob)
			return -ENOMEM;
		lu->blob_bytes = bytes;
	}
	if (copy_from_user(lu->blob, lu->keys, bytes))
		return -EFAULT;
	lu->keys += bytes;
	return 0;
}

/*
 * Enters the pool and prefetches the entries of the @n keys from key @first on, which are read and
 * hashed once. Returns their ids, or an ERR_PTR() with the pool not entered.
 */
static const struct kvblk_id *lookup_enter(struct lookup *lu, u32 first, u32 n)
{
	struct kvblk_id *ids = lu->ids + (lu->asks ? first : 0);
	struct kvblk_pool *pool = lu->file->pool;
	bool hash = first + n > lu->hashed;
	u32 at = 0, i, j, end;
	u16 lens[LOOKUP_STEP];
	int err;

	err = hash ? lookup_read(lu, first, n, lens) : 0;
	if (err)
		return ERR_PTR(err);
	/* not held across copies, which may wait for the caller's pager */
	if (!kvblk_pool_enter(pool))
		return ERR_PTR(-ENODEV);
	for (i = 0; i < n; i = end) {
		end = min(i + LOOKUP_TOGETHER, n);
		for (j = i; j < end && hash; j++) {
			ids[j] = kvblk_tenant_hash(&lu->file->key, lu->blob + at, lens[j]);
			if (unlikely(lu->shared))
				lu->shared->ids[ids + j - lu->ids] =
					kvblk_tenant_hash(&lu->shared->key, lu->blob + at, lens[j]);
			at += lens[j];
		}
		for (j = i; j < end; j++)
			kvblk_index_prefetch(&pool->index, ids[j]);
	}
	lu->hashed = max(lu->hashed, first + n);
	return ids;
}

/* Returns the ids to look up: those of the shared tenant for keys that only that one has. */
static noinline const struct kvblk_id *lookup_pick(struct lookup *lu, const struct kvblk_id *ids,
						   u32 n)
{
	struct lookup_shared *shared = lu->shared;
	const struct kvblk_id *theirs = shared->ids + (ids - lu->ids);
	struct kvblk_pool *pool = lu->file->pool;
	struct kvblk_slot slot;
	u32 i;

	/* the tenant may have been removed during a long lookup */
	if (!test_bit(shared->tenant, pool->tenants.live))
		return ids;
	for (i = 0; i < n; i++)
		shared->picked[i] = kvblk_block_present(pool, ids[i], lu->file->tenant, &slot) ||
				    !kvblk_block_present(pool, theirs[i], shared->tenant, &slot) ?
				    ids[i] : theirs[i];
	return shared->picked;
}

static int lookup_step(struct lookup *lu, u32 first, u32 n)
{
	const struct kvblk_id *ids = lookup_enter(lu, first, n);
	struct lookup_answer answer;
	int err;

	if (IS_ERR(ids))
		return PTR_ERR(ids);
	if (unlikely(lu->shared))
		ids = lookup_pick(lu, ids, n);
	err = lookup_find(lu, ids, first, n, &answer);
	if (!err && lu->times)
		lookup_predict(lu, ids, first, n);
	kvblk_pool_leave(lu->file->pool);
	return err ?: lookup_out(lu, first, n, &answer);
}

/* Collects missing keys from key @first on, behind the hole of a prefix. Errors end it. */
static void lookup_beyond(struct lookup *lu, u32 first)
{
	struct kvblk_pool *pool = lu->file->pool;
	const struct kvblk_id *ids;
	u32 n;

	for (; first < lu->arg->nr_keys && lu->nr_missing < KVBLK_ASK_IDS; first += n) {
		n = min(lu->arg->nr_keys - first, LOOKUP_STEP);
		ids = lookup_enter(lu, first, n);
		if (IS_ERR(ids))
			return;
		if (unlikely(lu->shared))
			ids = lookup_pick(lu, ids, n);
		lookup_miss(lu, ids, kvblk_index_find_many(&pool->index, ids, n, lu->slots), first,
			    0, n);
		kvblk_pool_leave(pool);
		cond_resched();
	}
}

/* Looks up all keys. Returns 0 with results in the caller's memory, or an error. */
static int lookup_pass(struct lookup *lu)
{
	struct kvblk_lookup *arg = lu->arg;
	u32 nr = arg->nr_keys, i, n;
	int err = 0;

	arg->nr_leading = 0;
	arg->nr_present = 0;
	lu->hole = false;
	lu->full = false;
	lu->unserved = 0;
	lu->foreign = 0;
	lu->nr_wanted = 0;
	lu->nr_missing = 0;
	if (lu->times) {
		lu->times->latest = 0;
		lu->times->nr_sources = 0;
	}
	bitmap_zero(lu->found, nr);
	for (i = 0; i < nr && !err; i += n) {
		n = min(nr - i, LOOKUP_STEP);
		err = lookup_step(lu, i, n);
		cond_resched();
		if (!lu->hole || !(arg->flags & KVBLK_LOOKUP_PREFIX))
			continue;
		if (!err && i + n < nr)
			err = lookup_out(lu, i + n, nr - i - n, NULL);
		if (!err && lu->asks)
			lookup_beyond(lu, i + n);
		break;
	}
	return err;
}

/*
 * Asks for missing blocks, and looks up all keys again, as long as that finds more: a chain that
 * several nodes put has a run of each.
 */
static int lookup_ask(struct lookup *lu)
{
	struct kvblk_pool *pool = lu->file->pool;
	ktime_t end = ktime_add_ms(ktime_get(), READ_ONCE(pool->peers.ask_ms));
	u32 present;
	int ret;

	do {
		present = lu->arg->nr_present;
		if (!lu->nr_missing || ktime_after(ktime_get(), end))
			return 0;
		ret = kvblk_peers_ask(pool, lu->missing, lu->nr_missing, end);
		if (ret <= 0)
			return ret;
		ret = lookup_pass(lu);
	} while (!ret && lu->arg->nr_present > present);
	return ret;
}

static int ioctl_lookup(struct kvblk_file *file, void *data)
{
	struct kvblk_lookup *arg = data;
	struct kvblk_pool *pool = file->pool;
	bool lease = arg->flags & KVBLK_LOOKUP_LEASE, shared_asks;
	struct lookup lu = { .file = file, .arg = arg };
	ktime_t start = ktime_get();
	u32 nr = arg->nr_keys, nr_slots = min(nr, LOOKUP_STEP), nr_ids, i;
	u64 end_ns;
	gfp_t gfp = GFP_KERNEL_ACCOUNT | __GFP_NOWARN;
	int err = -ENOMEM, shared;

	if (arg->flags & ~(KVBLK_LOOKUP_LEASE | KVBLK_LOOKUP_PREFIX | KVBLK_LOOKUP_QUIET))
		return -EOPNOTSUPP;
	if (!nr || nr > KVBLK_LOOKUP_MAX ||
	    !arg->key_lens == !arg->key_stride || arg->key_stride > KVBLK_KEY_MAX ||
	    !arg->lease_ms == lease || arg->lease_ms > KVBLK_LEASE_MS_MAX)
		return -EINVAL;
	arg->nr_leased = 0;
	arg->lease = 0;
	arg->lease_end_ns = 0;

	lu.keys = u64_to_user_ptr(arg->keys);
	shared = kvblk_tenant_shared(pool, file->tenant);
	shared_asks = shared >= 0 && kvblk_tenant_in_pod(pool, shared);
	lu.asks = kvblk_peers_span(pool) &&
		  (shared_asks || kvblk_tenant_in_pod(pool, file->tenant));
	if (lu.asks)
		lu.missing = kmalloc_array(KVBLK_ASK_IDS, sizeof(*lu.missing), gfp);
	nr_ids = lu.asks ? nr : nr_slots;
	if (arg->times)
		lu.times = kmalloc(sizeof(*lu.times), gfp);
	if (unlikely(shared >= 0)) {
		lu.shared = kvmalloc(struct_size(lu.shared, ids, nr_ids), gfp);
		if (!lu.shared)
			goto out;
		lu.shared->tenant = shared;
		lu.shared->asks = shared_asks;
		kvblk_tenant_key_derive(&lu.shared->key, &pool->secret, shared);
	}
	/* lookup_pass() clears @found */
	lu.slots = kvmalloc(nr_slots * sizeof(*lu.slots) + nr_ids * sizeof(*lu.ids) +
			    BITS_TO_LONGS(nr) * sizeof(*lu.found), gfp);
	if (!lu.slots || (lu.asks && !lu.missing) || !lu.times != !arg->times)
		goto out;
	lu.ids = (struct kvblk_id *)(lu.slots + nr_slots);
	lu.found = (unsigned long *)(lu.ids + nr_ids);
	err = lookup_pass(&lu);
	if (!err && lu.asks)
		err = lookup_ask(&lu);
	/* little endian by bytes, as the ABI requires */
	for (i = 0; arg->bitmap && i < DIV_ROUND_UP(nr, 8) && !err; i++)
		if (put_user((u8)bitmap_get_value8(lu.found, i * 8),
			     (u8 __user *)u64_to_user_ptr(arg->bitmap) + i))
			err = -EFAULT;
	if (err)
		goto out;
	kvblk_count(pool, KVBLK_C_LOOKUPS, 1);
	kvblk_count(pool, KVBLK_C_LOOKUP_KEYS, nr);
	kvblk_count(pool, KVBLK_C_LOOKUP_HITS, arg->nr_present);
	kvblk_count(pool, KVBLK_C_LOOKUP_UNSERVED, lu.unserved);
	kvblk_count(pool, KVBLK_C_FOREIGN_LOOKUP_HITS, lu.foreign);
	if (lu.nr_wanted)
		err = kvblk_lease_take(file, lu.wanted, lu.nr_wanted, arg->lease_ms, &arg->lease,
				       &end_ns);
	if (err > 0) {
		arg->nr_leased = err;
		arg->lease_end_ns = kvblk_time_out(end_ns);
		err = 0;
	}
	kvblk_hist_add(pool, KVBLK_H_LOOKUP, start);
	trace_kvblk_lookup(pool->name, nr, arg->nr_leading);
out:
	kfree(lu.missing);
	kfree(lu.times);
	kvfree(lu.shared);
	kvfree(lu.blob);
	kvfree(lu.slots);
	kvfree(lu.wanted);
	if (lu.room)
		kvblk_budget_give(&file->budget, array_size(lu.room, sizeof(*lu.wanted)));
	return err;
}

static void undo_lookup(struct kvblk_file *file, const void *data)
{
	const struct kvblk_lookup *arg = data;

	if (arg->lease)
		kvblk_lease_drop(file, arg->lease);
}

/* ---- other ioctls ---- */

static int ioctl_info(struct kvblk_file *file, void *data)
{
	struct kvblk_info *info = data;
	struct kvblk_pool *pool = file->pool;
	struct kvblk_align align = kvblk_pool_align(pool);

	if (info->flags)
		return -EOPNOTSUPP;
	*info = (struct kvblk_info) {
		.tenant = file->tenant,
		.pool_flags = pool->flags & KVBLK_POOL_STRICT,
		.features = KVBLK_FEAT_HINT | KVBLK_FEAT_TIMES | KVBLK_FEAT_CALLER_CHECKS |
			    (IS_ENABLED(CONFIG_PCI_P2PDMA) ? KVBLK_FEAT_P2P : 0) |
			    (IS_ENABLED(CONFIG_IO_URING) ? KVBLK_FEAT_URING : 0) |
			    (READ_ONCE(pool->tun.dram_bytes) ? KVBLK_FEAT_DRAM : 0),
		.value_max = kvblk_pool_value_max(pool, kvblk_tenant_encrypted(pool, file->tenant)),
		.key_max = KVBLK_KEY_MAX,
		.pieces_max = KVBLK_PIECES_MAX,
		.ops_max = KVBLK_OPS_MAX,
		.lookup_max = KVBLK_LOOKUP_MAX,
		.dma_align = (align.addr_mask | align.len_mask) + 1,
		.chunk_size = 1u << KVBLK_CHUNK_SHIFT,
		.lease_ms_max = KVBLK_LEASE_MS_MAX,
		.capacity = kvblk_pool_space(pool).bytes,
		.checksum = KVBLK_CHECKSUM_CRC32C,
		.integrity = READ_ONCE(pool->tun.integrity),
	};
	memcpy(info->pool_uuid, &pool->uuid, sizeof(info->pool_uuid));
	strscpy(info->pool_name, pool->name, sizeof(info->pool_name));
	return 0;
}

static int ioctl_lease_release(struct kvblk_file *file, void *data)
{
	struct kvblk_lease_release_arg *arg = data;

	if (arg->flags)
		return -EOPNOTSUPP;
	return arg->lease ? kvblk_lease_drop(file, arg->lease) : -EINVAL;
}

static int ioctl_reg_buf(struct kvblk_file *file, void *data)
{
	struct kvblk_reg_buf_arg *arg = data;

	if (arg->flags || arg->type != KVBLK_BUF_USER)
		return -EOPNOTSUPP;
	if (arg->reserved || arg->reserved2 || arg->handle)
		return -EINVAL;
	return kvblk_region_add(&file->regions, arg->addr, arg->length, &arg->handle);
}

static void undo_reg_buf(struct kvblk_file *file, const void *data)
{
	const struct kvblk_reg_buf_arg *arg = data;

	kvblk_region_remove(&file->regions, arg->handle);
}

static int ioctl_unreg_buf(struct kvblk_file *file, void *data)
{
	struct kvblk_unreg_buf_arg *arg = data;

	if (arg->flags & ~KVBLK_UNREG_WAIT)
		return -EOPNOTSUPP;
	if (arg->reserved)
		return -EINVAL;
	return arg->flags & KVBLK_UNREG_WAIT ?
	       kvblk_region_wait(&file->regions, arg->handle) :
	       kvblk_region_remove(&file->regions, arg->handle);
}

static int ioctl_drain(struct kvblk_file *file, void *data)
{
	const struct kvblk_drain_arg *arg = data;
	u64 deadline = arg->deadline_ns ? kvblk_deadline(arg->deadline_ns) : 0;

	return arg->flags ? -EOPNOTSUPP : kvblk_drainer_wait(file->drainer, deadline);
}

#define CANCEL_STEP	256		/* operations checked before others get the lock */

static int ioctl_cancel(struct kvblk_file *file, void *data)
{
	struct kvblk_cancel_arg *arg = data;
	struct kvblk_req *req, *next, *here;
	u32 seen = 0;

	if (arg->flags)
		return -EOPNOTSUPP;
	if (arg->reserved || !arg->cookie)
		return -EINVAL;
	arg->nr_found = 0;
	/* marks the place in the list; has no cookie, so other cancels skip it */
	here = kvblk_req_alloc(file->pool, GFP_KERNEL_ACCOUNT | __GFP_NOFAIL);
	spin_lock(&file->lock);
	list_for_each_entry_safe(req, next, &file->reqs, file_link) {
		if (req->op.cookie == arg->cookie && !req->canceled &&
		    atomic_read(&req->ownership.state) != KVBLK_REQ_DONE) {
			WRITE_ONCE(req->canceled, true);
			arg->nr_found++;
			req->cancel(req);
		}
		if (++seen % CANCEL_STEP)
			continue;
		list_add(&here->file_link, &req->file_link);
		cond_resched_lock(&file->lock);
		next = list_next_entry(here, file_link);
		list_del_init(&here->file_link);
	}
	spin_unlock(&file->lock);
	kvblk_req_free(here);
	kvblk_count(file->pool, KVBLK_C_CANCELS, arg->nr_found);
	return arg->nr_found ? 0 : -ENOENT;
}

struct ioctl_def {
	unsigned int size;		/* of the structure */
	unsigned int least;		/* accepted size */
	bool out;			/* copy the structure back, also with -ENOENT */
	fmode_t mode;			/* FMODE_* that the node must be open for */
	bool ends;			/* releases what the file holds: run while the pool goes */
	int (*run)(struct kvblk_file *file, void *arg);
	/* reverts @run if the structure cannot be copied back; or NULL */
	void (*undo)(struct kvblk_file *file, const void *arg);
};

/* Least sizes are version 2's. If a structure grows, compare the offset of its first new field. */
static_assert(sizeof(struct kvblk_info) == KVBLK_INFO_SIZE_VER0);
static_assert(sizeof(struct kvblk_submit_arg) == KVBLK_SUBMIT_SIZE_VER0);
static_assert(offsetof(struct kvblk_lookup, times) == KVBLK_LOOKUP_SIZE_VER0);
static_assert(sizeof(struct kvblk_lease_release_arg) == KVBLK_LEASE_RELEASE_SIZE_VER0);
static_assert(sizeof(struct kvblk_cancel_arg) == KVBLK_CANCEL_SIZE_VER0);
static_assert(sizeof(struct kvblk_reg_buf_arg) == KVBLK_REG_BUF_SIZE_VER0);
static_assert(sizeof(struct kvblk_unreg_buf_arg) == KVBLK_UNREG_BUF_SIZE_VER0);
static_assert(sizeof(struct kvblk_drain_arg) == KVBLK_DRAIN_SIZE_VER0);

#define IOCTL(name, arg, ...)					\
	[_IOC_NR(KVBLK_IOC_##name)] = {				\
		.size = sizeof(struct arg),			\
		.least = KVBLK_##name##_SIZE_VER0,		\
		__VA_ARGS__					\
	}

static const struct ioctl_def ioctls[] = {
	IOCTL(INFO, kvblk_info, .run = ioctl_info, .out = true),
	IOCTL(SUBMIT, kvblk_submit_arg, .run = kvblk_batch_submit),
	IOCTL(LOOKUP, kvblk_lookup, .run = ioctl_lookup, .undo = undo_lookup, .out = true,
	      .mode = FMODE_READ),
	IOCTL(LEASE_RELEASE, kvblk_lease_release_arg, .run = ioctl_lease_release, .ends = true,
	      .mode = FMODE_READ),
	IOCTL(CANCEL, kvblk_cancel_arg, .run = ioctl_cancel, .out = true),
	IOCTL(REG_BUF, kvblk_reg_buf_arg, .run = ioctl_reg_buf, .undo = undo_reg_buf, .out = true),
	IOCTL(UNREG_BUF, kvblk_unreg_buf_arg, .run = ioctl_unreg_buf, .ends = true),
	IOCTL(DRAIN, kvblk_drain_arg, .run = ioctl_drain, .ends = true),
};

union ioctl_arg {
	u32 size;
	struct kvblk_info info;
	struct kvblk_submit_arg submit;
	struct kvblk_lookup lookup;
	struct kvblk_lease_release_arg lease_release;
	struct kvblk_cancel_arg cancel;
	struct kvblk_reg_buf_arg reg_buf;
	struct kvblk_unreg_buf_arg unreg_buf;
	struct kvblk_drain_arg drain;
};

long kvblk_call(struct kvblk_file *file, unsigned int cmd, void __user *uarg)
{
	unsigned int nr = _IOC_NR(cmd);
	const struct ioctl_def *def;
	union ioctl_arg arg = {};
	u32 size;
	long ret;

	if (nr >= ARRAY_SIZE(ioctls) || cmd != _IO(KVBLK_IOC_TYPE, nr))
		return -ENOTTY;
	def = &ioctls[array_index_nospec(nr, ARRAY_SIZE(ioctls))];
	if (def->mode & ~file->mode)
		return -EBADF;
	ret = kvblk_struct_read(&arg, def->size, def->least, uarg);
	if (ret)
		return ret;
	size = min(arg.size, def->size);
	/* the open file pins the struct only; a handler that needs more enters the pool itself */
	if (kvblk_file_ended(file) && !def->ends)
		return -ENODEV;
	ret = def->run(file, &arg);
	arg.size = size;
	if (def->out && (!ret || ret == -ENOENT) && copy_to_user(uarg, &arg, size)) {
		if (!ret && def->undo)
			def->undo(file, &arg);
		ret = -EFAULT;
	}
	return ret;
}
