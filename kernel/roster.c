// SPDX-License-Identifier: GPL-2.0
/*
 * The roster: which members a pool has, those that are away too, and what
 * becomes of the blocks of those meanwhile.
 *
 * The rules:
 * - Superblocks carry the roster, so that a pool is put together as a whole or by
 *   an administrator's word. A member leaves it when it is removed, not when it is
 *   away.
 * - A member that comes back while its pool is up keeps the blocks that were
 *   neither put again nor deleted meanwhile. Their ids are in a Bloom filter (Bloom
 *   1970): what it has not seen is as it was, and what it takes for seen by chance
 *   is a miss. A filter is there before anybody can see that its member is away.
 * - The filter is memory: a member that comes back after its pool was down is out of
 *   date.
 */
#include <linux/jhash.h>
#include <linux/log2.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "log.h"

/*
 * Bits of a filter for each slot of the index, and those that an id sets: 2.4 % by
 * chance once as many ids were seen as there are slots.
 */
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

static void roster_entry(struct kvblk_d_member *entry, const struct kvblk_member *member)
{
	export_uuid(entry->uuid, &member->uuid);
	strscpy_pad(entry->name, member->name);
	kvblk_text_clean(entry->name);
	entry->incarnation = cpu_to_le64(member->incarnation);
}

void kvblk_roster_load(struct kvblk_pool *pool, const struct kvblk_d_super *sb)
{
	guard(spinlock)(&pool->roster_lock);
	pool->roster_nr = le32_to_cpu(sb->nr_members);
	/* numbers of a life that is over are compared with none of this one */
	pool->roster_seq = 1;
	memcpy(pool->roster, sb->members, sizeof(pool->roster));
}

u64 kvblk_roster_store(struct kvblk_pool *pool, struct kvblk_d_super *sb)
{
	guard(spinlock)(&pool->roster_lock);
	sb->nr_members = cpu_to_le32(pool->roster_nr);
	sb->list_seq = cpu_to_le64(pool->roster_seq);
	memcpy(sb->members, pool->roster, pool->roster_nr * sizeof(*pool->roster));
	memset(&sb->members[pool->roster_nr], 0,
	       (KVBLK_SB_MEMBERS - pool->roster_nr) * sizeof(*pool->roster));
	return pool->roster_seq;
}

int kvblk_roster_add(struct kvblk_pool *pool, const struct kvblk_member *member)
{
	struct kvblk_d_member *entry, was;

	guard(spinlock)(&pool->roster_lock);
	entry = roster_find(pool, &member->uuid);
	if (!entry) {
		if (pool->roster_nr == KVBLK_SB_MEMBERS)
			return -ENOSPC;
		entry = &pool->roster[pool->roster_nr++];
		memset(entry, 0, sizeof(*entry));
	}
	was = *entry;
	roster_entry(entry, member);
	if (memcmp(&was, entry, sizeof(was)))
		WRITE_ONCE(pool->roster_seq, pool->roster_seq + 1);
	return 0;
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
	*entry = pool->roster[--pool->roster_nr];
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

bool kvblk_roster_missing(struct kvblk_pool *pool, u32 i, struct kvblk_d_member *entry)
{
	scoped_guard(spinlock, &pool->roster_lock) {
		if (i >= pool->roster_nr)
			return false;
		*entry = pool->roster[i];
	}
	return !member_there(pool, entry);
}

/* ---- those that are away ---- */

static struct kvblk_absent *absent_alloc(struct kvblk_pool *pool, const uuid_t *uuid)
{
	u64 bits = roundup_pow_of_two(clamp(kvblk_index_slots(&pool->index) * FILTER_BITS,
					    FILTER_MIN, FILTER_MAX));
	/* a device that dies while memory is written back to it can't be waited for */
	unsigned int flags = memalloc_noio_save();
	struct kvblk_absent *absent = kzalloc(sizeof(*absent), GFP_KERNEL);

	if (absent) {
		uuid_copy(&absent->uuid, uuid);
		absent->mask = bits - 1;
		/* without memory it will be out of date */
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

/* If it is on the roster: true. One that is listed already has seen more. */
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
	/* pairs with kvblk_member_dies(): it was dead before, when nobody took notes */
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

/* Bit @i of what hashes to @a and @b (Kirsch and Mitzenmacher 2006). */
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
