// SPDX-License-Identifier: GPL-2.0
/*
 * The member list of a pool, and the blocks of missing members. The rules:
 * - Superblocks carry the member list, so that a pool is assembled as a whole, or degraded if an
 *   administrator asks. A member leaves the list by removal, not by being missing.
 * - A member keeps its name from format to removal, and no two members share a name: to operators
 *   a name must mean one drive. Kernel names of devices may change with each boot.
 * - A member that returns while the pool is up keeps the blocks neither put nor deleted
 *   meanwhile. A Bloom filter (Bloom 1970) has the ids of the other blocks: a false positive is a
 *   miss. The filter exists before anybody can see that the member is missing.
 * - The filter is in memory only: a member that returns after the pool was down is out of date.
 */
#include <linux/jhash.h>
#include <linux/log2.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "log/log.h"

#define FILTER_BITS	8		/* for each index slot */
#define FILTER_HASHES	4		/* for each id: at most 2.4 % false positives if full */
#define FILTER_MIN	BIT_ULL(19)
#define FILTER_MAX	BIT_ULL(29)

/* ---- the list ---- */

static struct kvblk_d_member *member_list_find(struct kvblk_pool *pool, const uuid_t *uuid)
{
	u32 i;

	lockdep_assert_held(&pool->member_list_lock);
	for (i = 0; i < pool->member_list_nr; i++)
		if (!memcmp(pool->member_list[i].uuid, uuid, UUID_SIZE))
			return &pool->member_list[i];
	return NULL;
}

static bool name_taken(struct kvblk_pool *pool, const char *name, const void *uuid)
{
	struct kvblk_member *member;
	u32 i;

	lockdep_assert_held(&pool->member_list_lock);
	for (i = 0; i < pool->member_list_nr; i++)
		if (!strcmp(pool->member_list[i].name, name) &&
		    memcmp(pool->member_list[i].uuid, uuid, UUID_SIZE))
			return true;
	/* a leaving member is no longer listed, but still has the name */
	guard(rcu)();
	kvblk_for_each_member(pool, member)
		if (!strcmp(member->flash.name, name) &&
		    memcmp(&member->flash.uuid, uuid, UUID_SIZE))
			return true;
	return false;
}

static void name_unique(struct kvblk_pool *pool, char name[KVBLK_NAME_MAX], const void *uuid)
{
	char base[KVBLK_NAME_MAX], number[12];
	u32 n;

	strscpy(base, name, KVBLK_NAME_MAX);
	for (n = 2; name_taken(pool, name, uuid); n++) {
		int len = scnprintf(number, sizeof(number), "-%u", n);

		snprintf(name, KVBLK_NAME_MAX, "%.*s%s", KVBLK_NAME_MAX - 1 - len, base, number);
	}
}

void kvblk_member_list_load(struct kvblk_pool *pool, const struct kvblk_d_super *sb)
{
	struct kvblk_d_member *entry;
	u32 i;

	guard(spinlock)(&pool->member_list_lock);
	/* numbers of different activations are never compared */
	pool->member_list_seq = 1;
	for (i = 0; i < KVBLK_SB_TENANTS; i++)
		if (sb->tenants[i].flags)
			pool->tenants.table[i] = sb->tenants[i];
	memcpy(pool->places, sb->places, sizeof(sb->places));
	pool->tenants.next_id = le32_to_cpu(sb->next_tenant) ?: 1;
	pool->tenants.encrypts = le32_to_cpu(sb->incompat) & KVBLK_SB_IN_ENCRYPTED;
	/* earlier versions listed names of devices, which two members may share */
	for (entry = pool->member_list;
	     pool->member_list_nr < le32_to_cpu(sb->nr_members); entry++) {
		*entry = sb->members[pool->member_list_nr];
		/* the name becomes a directory in sysfs */
		strreplace(entry->name, '/', '_');
		if (entry->name[0] == '.')
			entry->name[0] = '_';
		name_unique(pool, entry->name, entry->uuid);
		pool->member_list_nr++;
	}
}

u64 kvblk_member_list_changed(struct kvblk_pool *pool)
{
	lockdep_assert_held(&pool->member_list_lock);
	WRITE_ONCE(pool->member_list_seq, pool->member_list_seq + 1);
	return pool->member_list_seq;
}

u64 kvblk_member_list_store(struct kvblk_pool *pool, struct kvblk_d_super *sb)
{
	guard(spinlock)(&pool->member_list_lock);
	sb->nr_members = cpu_to_le32(pool->member_list_nr);
	sb->list_seq = cpu_to_le64(pool->member_list_seq);
	memset(sb->members, 0, sizeof(sb->members));
	memcpy(sb->members, pool->member_list, pool->member_list_nr * sizeof(*sb->members));
	memset(sb->places, 0, sizeof(sb->places));
	memcpy(sb->places, pool->places, pool->member_list_nr * sizeof(*sb->places));
	memcpy(sb->tenants, pool->tenants.table, sizeof(sb->tenants));
	/* for good: a member that an earlier version adds would not know which ids were given */
	if (pool->tenants.next_id > 1 || sb->next_tenant) {
		sb->next_tenant = cpu_to_le32(pool->tenants.next_id);
		sb->incompat |= cpu_to_le32(KVBLK_SB_IN_TENANTS);
	}
	/* for good, too: segments keep records of tenants that were removed */
	if (pool->tenants.encrypts)
		sb->incompat |= cpu_to_le32(KVBLK_SB_IN_ENCRYPTED);
	return pool->member_list_seq;
}

int kvblk_member_list_add(struct kvblk_pool *pool, struct kvblk_member *member, bool given)
{
	struct kvblk_d_member *entry;
	struct kvblk_d_place place, *was;
	bool news = false;

	kvblk_place_set(&place, member->flash.place);
	guard(spinlock)(&pool->member_list_lock);
	entry = member_list_find(pool, &member->flash.uuid);
	if (!entry) {
		if (pool->member_list_nr == KVBLK_SB_MEMBERS)
			return -ENOSPC;
		if (given && name_taken(pool, member->flash.name, &member->flash.uuid))
			return -EEXIST;
		name_unique(pool, member->flash.name, &member->flash.uuid);
		entry = &pool->member_list[pool->member_list_nr++];
		memset(entry, 0, sizeof(*entry));
		memset(&pool->places[entry - pool->member_list], 0, sizeof(place));
		export_uuid(entry->uuid, &member->flash.uuid);
		strscpy(entry->name, member->flash.name);
		news = true;
	}
	strscpy(member->flash.name, entry->name);
	news |= entry->incarnation != cpu_to_le64(member->flash.incarnation);
	entry->incarnation = cpu_to_le64(member->flash.incarnation);
	was = &pool->places[entry - pool->member_list];
	if (member->flash.place[0] && memcmp(was, &place, sizeof(place))) {
		*was = place;
		news = true;
	}
	if (news)
		kvblk_member_list_changed(pool);
	return 0;
}

void kvblk_member_list_renew(struct kvblk_pool *pool)
{
	guard(spinlock)(&pool->member_list_lock);
	kvblk_member_list_changed(pool);
}

static void missing_free(struct kvblk_missing *missing)
{
	vfree(missing->bits);
	kfree(missing);
}

static struct kvblk_missing *missing_find(struct kvblk_pool *pool, const uuid_t *uuid)
{
	struct kvblk_missing *missing;

	lockdep_assert_held(&pool->member_list_lock);
	list_for_each_entry(missing, &pool->missing_members, link)
		if (uuid_equal(&missing->uuid, uuid))
			return missing;
	return NULL;
}

void kvblk_missing_end(struct kvblk_pool *pool, const uuid_t *uuid)
{
	struct kvblk_missing *missing;

	scoped_guard(spinlock, &pool->member_list_lock) {
		missing = missing_find(pool, uuid);
		if (missing)
			list_del_rcu(&missing->link);
	}
	if (!missing)
		return;
	synchronize_rcu();
	missing_free(missing);
}

bool kvblk_member_list_del(struct kvblk_pool *pool, const uuid_t *uuid)
{
	struct kvblk_d_member *entry;

	guard(spinlock)(&pool->member_list_lock);
	entry = member_list_find(pool, uuid);
	if (!entry)
		return false;
	pool->places[entry - pool->member_list] = pool->places[--pool->member_list_nr];
	*entry = pool->member_list[pool->member_list_nr];
	kvblk_member_list_changed(pool);
	return true;
}

struct kvblk_member *kvblk_member_named(struct kvblk_pool *pool, const char *name,
					const uuid_t *uuid)
{
	struct kvblk_member *member;

	kvblk_for_each_member(pool, member)
		if (uuid ? uuid_equal(&member->flash.uuid, uuid) :
			   !strcmp(member->flash.name, name))
			return member;
	return NULL;
}

bool kvblk_member_list_missing(struct kvblk_pool *pool, u32 i, struct kvblk_d_member *entry,
			       char place[KVBLK_PLACE_MAX])
{
	uuid_t uuid;

	scoped_guard(spinlock, &pool->member_list_lock) {
		if (i >= pool->member_list_nr)
			return false;
		*entry = pool->member_list[i];
		if (place)
			kvblk_place_get(&pool->places[i], place);
	}
	import_uuid(&uuid, entry->uuid);
	guard(rcu)();
	return !kvblk_member_named(pool, NULL, &uuid);
}

/* ---- missing members ---- */

static struct kvblk_missing *missing_alloc(struct kvblk_pool *pool, const void *uuid)
{
	u64 bits = roundup_pow_of_two(clamp(kvblk_index_slots(&pool->index) * FILTER_BITS,
					    FILTER_MIN, FILTER_MAX));
	/* memory reclaim must not wait for the dying device */
	unsigned int flags = memalloc_noio_save();
	struct kvblk_missing *missing __free(kfree) = kzalloc(sizeof(*missing), GFP_KERNEL);

	if (missing)
		missing->bits = __vmalloc(bits / 8, GFP_KERNEL | __GFP_ZERO |
					  __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
	memalloc_noio_restore(flags);
	/* without a filter the member will be out of date */
	if (!missing || !missing->bits)
		return NULL;
	import_uuid(&missing->uuid, uuid);
	missing->mask = bits - 1;
	return no_free_ptr(missing);
}

/* Frees @missing and returns false if not listed, or if an older filter has more ids. */
static bool missing_list(struct kvblk_pool *pool, struct kvblk_missing *missing)
{
	scoped_guard(spinlock, &pool->member_list_lock) {
		if (member_list_find(pool, &missing->uuid) && !missing_find(pool, &missing->uuid)) {
			list_add_rcu(&missing->link, &pool->missing_members);
			return true;
		}
	}
	missing_free(missing);
	return false;
}

void kvblk_missing_dies(struct kvblk_member *member)
{
	struct kvblk_missing *missing = missing_alloc(member->flash.pool, &member->flash.uuid);

	if (!missing)
		return;
	missing->incarnation = member->flash.incarnation;
	missing->life.epoch = READ_ONCE(member->log.epoch);
	missing->life.activation = READ_ONCE(member->log.activation);
	if (!missing_list(member->flash.pool, missing))
		return;
	/* pairs with kvblk_member_dies(): notes were missed if the member was dead before */
	smp_mb();
	if (!kvblk_flash_in_use(&member->flash))
		kvblk_missing_end(member->flash.pool, &member->flash.uuid);
}

void kvblk_missing_left_out(struct kvblk_pool *pool, const struct kvblk_d_member *entry,
			    struct kvblk_life life, bool clean)
{
	struct kvblk_missing *missing = missing_alloc(pool, entry->uuid);

	if (!missing)
		return;
	missing->incarnation = le64_to_cpu(entry->incarnation);
	missing->life = life;
	missing->clean = clean;
	missing_list(pool, missing);
}

void kvblk_missing_exit(struct kvblk_pool *pool)
{
	struct kvblk_missing *missing, *next;

	list_for_each_entry_safe(missing, next, &pool->missing_members, link)
		missing_free(missing);
}

struct kvblk_missing *kvblk_missing_get(struct kvblk_pool *pool, const uuid_t *uuid)
{
	guard(spinlock)(&pool->member_list_lock);
	return missing_find(pool, uuid);
}

/* Returns bit @i of the two hashes that are @id (Kirsch and Mitzenmacher 2006). */
static u64 filter_bit(const struct kvblk_missing *missing, struct kvblk_id id, u32 i)
{
	return (id.hi + i * (id.lo | 1)) & missing->mask;
}

static void filter_add(struct kvblk_missing *missing, struct kvblk_id id)
{
	u32 i;

	for (i = 0; i < FILTER_HASHES; i++)
		set_bit(filter_bit(missing, id, i), missing->bits);
}

static bool filter_has(const struct kvblk_missing *missing, struct kvblk_id id)
{
	u32 i;

	for (i = 0; i < FILTER_HASHES; i++)
		if (!test_bit(filter_bit(missing, id, i), missing->bits))
			return false;
	return true;
}

void kvblk_missing_note_id(struct kvblk_pool *pool, struct kvblk_id id)
{
	struct kvblk_missing *missing;

	guard(rcu)();
	list_for_each_entry_rcu(missing, &pool->missing_members, link)
		filter_add(missing, id);
}

static struct kvblk_id place_id(u32 segment, u32 unit)
{
	return (struct kvblk_id) {
		.hi = jhash_2words(segment, unit, 0),
		.lo = jhash_2words(segment, unit, 1),
	};
}

void kvblk_missing_note_place(struct kvblk_member *member, u32 segment, u32 unit)
{
	struct kvblk_missing *missing;

	guard(rcu)();
	list_for_each_entry_rcu(missing, &member->flash.pool->missing_members, link)
		if (uuid_equal(&missing->uuid, &member->flash.uuid))
			filter_add(missing, place_id(segment, unit));
}

bool kvblk_missing_stale(const struct kvblk_missing *missing, struct kvblk_id id,
			 u32 segment, u32 unit)
{
	return missing && (filter_has(missing, id) || filter_has(missing, place_id(segment, unit)));
}
