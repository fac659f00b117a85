// SPDX-License-Identifier: GPL-2.0
/*
 * The member list of a pool, and the blocks of missing members.
 *
 * The rules:
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

/* Bits of a filter for each index slot, and for an id: at most 2.4 % false positives if full. */
#define FILTER_BITS	8
#define FILTER_HASHES	4
#define FILTER_MIN	BIT_ULL(19)
#define FILTER_MAX	BIT_ULL(29)

/* ---- the list ---- */

static struct kvblk_d_member *roster_find(struct kvblk_pool *pool, const uuid_t *uuid)
{
	u32 i;

	lockdep_assert_held(&pool->roster_lock);
	for (i = 0; i < pool->roster_nr; i++)
		if (!memcmp(pool->roster[i].uuid, uuid, UUID_SIZE))
			return &pool->roster[i];
	return NULL;
}

static bool name_taken(struct kvblk_pool *pool, const char *name, const u8 *uuid)
{
	struct kvblk_member *member;
	u32 i;
	int m;

	lockdep_assert_held(&pool->roster_lock);
	for (i = 0; i < pool->roster_nr; i++)
		if (!strcmp(pool->roster[i].name, name) &&
		    memcmp(pool->roster[i].uuid, uuid, UUID_SIZE))
			return true;
	/* a leaving member is no longer listed, but still has the name */
	guard(rcu)();
	kvblk_for_each_member(pool, member, m)
		if (!strcmp(member->name, name) &&
		    memcmp(&member->uuid, uuid, UUID_SIZE))
			return true;
	return false;
}

/* Appends a number to @name if another member than @uuid has that name. */
static void name_unique(struct kvblk_pool *pool, char name[KVBLK_NAME_MAX],
			const u8 *uuid)
{
	char base[KVBLK_NAME_MAX], number[12];
	u32 n;

	strscpy(base, name, KVBLK_NAME_MAX);
	for (n = 2; name_taken(pool, name, uuid); n++) {
		int len = scnprintf(number, sizeof(number), "-%u", n);

		snprintf(name, KVBLK_NAME_MAX, "%.*s%s", KVBLK_NAME_MAX - 1 - len, base,
			 number);
	}
}

void kvblk_roster_load(struct kvblk_pool *pool, const struct kvblk_d_super *sb)
{
	struct kvblk_d_member *entry;

	guard(spinlock)(&pool->roster_lock);
	/* numbers of different activations are never compared */
	pool->roster_seq = 1;
	memcpy(pool->places, sb->places, sizeof(sb->places));
	/* earlier versions listed names of devices, which two members may share */
	for (entry = pool->roster; pool->roster_nr < le32_to_cpu(sb->nr_members); entry++) {
		*entry = sb->members[pool->roster_nr];
		/* the name becomes a directory in sysfs */
		strreplace(entry->name, '/', '_');
		if (entry->name[0] == '.')
			entry->name[0] = '_';
		name_unique(pool, entry->name, entry->uuid);
		pool->roster_nr++;
	}
}

u64 kvblk_roster_store(struct kvblk_pool *pool, struct kvblk_d_super *sb)
{
	guard(spinlock)(&pool->roster_lock);
	sb->nr_members = cpu_to_le32(pool->roster_nr);
	sb->list_seq = cpu_to_le64(pool->roster_seq);
	memcpy(sb->members, pool->roster, pool->roster_nr * sizeof(*pool->roster));
	memset(&sb->members[pool->roster_nr], 0,
	       (KVBLK_SB_MEMBERS - pool->roster_nr) * sizeof(*pool->roster));
	memcpy(sb->places, pool->places, pool->roster_nr * sizeof(*pool->places));
	memset(&sb->places[pool->roster_nr], 0,
	       (KVBLK_SB_MEMBERS - pool->roster_nr) * sizeof(*pool->places));
	return pool->roster_seq;
}

int kvblk_roster_add(struct kvblk_pool *pool, struct kvblk_member *member, bool given)
{
	struct kvblk_d_member *entry;
	struct kvblk_d_place place, *was;
	bool news = false;

	kvblk_place_set(&place, member->place);
	guard(spinlock)(&pool->roster_lock);
	entry = roster_find(pool, &member->uuid);
	if (!entry) {
		if (pool->roster_nr == KVBLK_SB_MEMBERS)
			return -ENOSPC;
		if (given && name_taken(pool, member->name, (const u8 *)&member->uuid))
			return -EEXIST;
		name_unique(pool, member->name, (const u8 *)&member->uuid);
		entry = &pool->roster[pool->roster_nr++];
		memset(entry, 0, sizeof(*entry));
		memset(&pool->places[entry - pool->roster], 0, sizeof(place));
		export_uuid(entry->uuid, &member->uuid);
		strscpy(entry->name, member->name);
		news = true;
	}
	strscpy(member->name, entry->name);
	news |= entry->incarnation != cpu_to_le64(member->incarnation);
	entry->incarnation = cpu_to_le64(member->incarnation);
	was = &pool->places[entry - pool->roster];
	if (member->place[0] && memcmp(was, &place, sizeof(place))) {
		*was = place;
		news = true;
	}
	if (news)
		WRITE_ONCE(pool->roster_seq, pool->roster_seq + 1);
	return 0;
}

void kvblk_roster_renew(struct kvblk_pool *pool)
{
	guard(spinlock)(&pool->roster_lock);
	WRITE_ONCE(pool->roster_seq, pool->roster_seq + 1);
}

static void absent_free(struct kvblk_absent *absent)
{
	if (!absent)
		return;
	vfree(absent->bits);
	kfree(absent);
}

static struct kvblk_absent *absent_find(struct kvblk_pool *pool, const uuid_t *uuid)
{
	struct kvblk_absent *absent;

	lockdep_assert_held(&pool->roster_lock);
	list_for_each_entry(absent, &pool->absents, link)
		if (uuid_equal(&absent->uuid, uuid))
			return absent;
	return NULL;
}

void kvblk_absent_end(struct kvblk_pool *pool, const uuid_t *uuid)
{
	struct kvblk_absent *absent;

	scoped_guard(spinlock, &pool->roster_lock) {
		absent = absent_find(pool, uuid);
		if (absent)
			list_del_rcu(&absent->link);
	}
	if (absent)
		synchronize_rcu();
	absent_free(absent);
}

bool kvblk_roster_del(struct kvblk_pool *pool, const uuid_t *uuid)
{
	struct kvblk_d_member *entry;

	guard(spinlock)(&pool->roster_lock);
	entry = roster_find(pool, uuid);
	if (!entry)
		return false;
	pool->places[entry - pool->roster] = pool->places[--pool->roster_nr];
	*entry = pool->roster[pool->roster_nr];
	WRITE_ONCE(pool->roster_seq, pool->roster_seq + 1);
	return true;
}

static bool member_there(struct kvblk_pool *pool, const struct kvblk_d_member *entry)
{
	struct kvblk_member *member;
	int i;

	guard(rcu)();
	kvblk_for_each_member(pool, member, i)
		if (!memcmp(&member->uuid, entry->uuid, UUID_SIZE))
			return true;
	return false;
}

bool kvblk_roster_missing(struct kvblk_pool *pool, u32 i, struct kvblk_d_member *entry,
			  char place[KVBLK_PLACE_MAX])
{
	scoped_guard(spinlock, &pool->roster_lock) {
		if (i >= pool->roster_nr)
			return false;
		*entry = pool->roster[i];
		if (place)
			kvblk_place_get(&pool->places[i], place);
	}
	return !member_there(pool, entry);
}

/* ---- missing members ---- */

static struct kvblk_absent *absent_alloc(struct kvblk_pool *pool, const uuid_t *uuid)
{
	u64 bits = roundup_pow_of_two(clamp(kvblk_index_slots(&pool->index) * FILTER_BITS,
					    FILTER_MIN, FILTER_MAX));
	/* memory reclaim must not wait for the dying device */
	unsigned int flags = memalloc_noio_save();
	struct kvblk_absent *absent = kzalloc(sizeof(*absent), GFP_KERNEL);

	if (absent) {
		uuid_copy(&absent->uuid, uuid);
		absent->mask = bits - 1;
		/* without a filter the member will be out of date */
		absent->bits = __vmalloc(bits / 8, GFP_KERNEL | __GFP_ZERO |
					 __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
		if (!absent->bits) {
			kfree(absent);
			absent = NULL;
		}
	}
	memalloc_noio_restore(flags);
	return absent;
}

/*
 * Lists @absent. Frees @absent and returns false if the member is not listed, or if an older
 * filter exists, which has more ids.
 */
static bool absent_list(struct kvblk_pool *pool, struct kvblk_absent *absent)
{
	scoped_guard(spinlock, &pool->roster_lock) {
		if (roster_find(pool, &absent->uuid) && !absent_find(pool, &absent->uuid)) {
			list_add_rcu(&absent->link, &pool->absents);
			return true;
		}
	}
	absent_free(absent);
	return false;
}

void kvblk_absent_dies(struct kvblk_member *member)
{
	struct kvblk_absent *absent = absent_alloc(member->pool, &member->uuid);

	if (!absent)
		return;
	absent->incarnation = member->incarnation;
	absent->epoch = READ_ONCE(member->epoch);
	absent->activation = READ_ONCE(member->activation);
	if (!absent_list(member->pool, absent))
		return;
	/* pairs with kvblk_member_dies(): notes were missed if the member was dead before */
	smp_mb();
	if (READ_ONCE(member->state) > KVBLK_MEMBER_UP)
		kvblk_absent_end(member->pool, &member->uuid);
}

void kvblk_absent_left_out(struct kvblk_pool *pool, const struct kvblk_d_member *entry,
			   u64 epoch, u64 activation, bool clean)
{
	struct kvblk_absent *absent;
	uuid_t uuid;

	import_uuid(&uuid, entry->uuid);
	absent = absent_alloc(pool, &uuid);
	if (!absent)
		return;
	absent->incarnation = le64_to_cpu(entry->incarnation);
	absent->epoch = epoch;
	absent->activation = activation;
	absent->clean = clean;
	absent_list(pool, absent);
}

void kvblk_absent_exit(struct kvblk_pool *pool)
{
	struct kvblk_absent *absent, *next;

	list_for_each_entry_safe(absent, next, &pool->absents, link)
		absent_free(absent);
}

struct kvblk_absent *kvblk_absent_get(struct kvblk_pool *pool, const uuid_t *uuid)
{
	guard(spinlock)(&pool->roster_lock);
	return absent_find(pool, uuid);
}

/* Returns bit @i for hashes @a and @b (Kirsch and Mitzenmacher 2006). */
static u64 filter_bit(const struct kvblk_absent *absent, u64 a, u64 b, u32 i)
{
	return (a + i * (b | 1)) & absent->mask;
}

static void filter_add(struct kvblk_absent *absent, u64 a, u64 b)
{
	u32 i;

	for (i = 0; i < FILTER_HASHES; i++)
		set_bit(filter_bit(absent, a, b, i), absent->bits);
}

static bool filter_has(const struct kvblk_absent *absent, u64 a, u64 b)
{
	u32 i;

	for (i = 0; i < FILTER_HASHES; i++)
		if (!test_bit(filter_bit(absent, a, b, i), absent->bits))
			return false;
	return true;
}

void kvblk_absent_note_id(struct kvblk_pool *pool, struct kvblk_id id)
{
	struct kvblk_absent *absent;

	guard(rcu)();
	list_for_each_entry_rcu(absent, &pool->absents, link)
		filter_add(absent, id.hi, id.lo);
}

static void place_hash(u32 segment, u32 unit, u64 *a, u64 *b)
{
	*a = jhash_2words(segment, unit, 0);
	*b = jhash_2words(segment, unit, 1);
}

void kvblk_absent_note_place(struct kvblk_member *member, u32 segment, u32 unit)
{
	struct kvblk_absent *absent;
	u64 a, b;

	place_hash(segment, unit, &a, &b);
	guard(rcu)();
	list_for_each_entry_rcu(absent, &member->pool->absents, link)
		if (uuid_equal(&absent->uuid, &member->uuid))
			filter_add(absent, a, b);
}

bool kvblk_absent_stale(const struct kvblk_absent *absent, struct kvblk_id id,
			u32 segment, u32 unit)
{
	u64 a, b;

	place_hash(segment, unit, &a, &b);
	return filter_has(absent, id.hi, id.lo) ||
	       filter_has(absent, a, b);
}
