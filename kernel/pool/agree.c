// SPDX-License-Identifier: GPL-2.0
/*
 * Tenants of a pod. Each pool has a table of tenants of its own, and an id of a block is a hash of
 * key and tenant id. So two nodes share the blocks of a tenant only if they agree: both tables have
 * it by the same name and the same id. The rules:
 * - A follower keeps a copy of the owner's table, as of the last read of the owner's superblock.
 *   Each poll compares the tables if one has changed.
 * - The same name with two ids, or the same id with two names, is a conflict. A member whose table
 *   has one is not followed. A later conflict ends nothing: only blocks of tenants that agree are
 *   entered, served and deleted, and the kernel log names the first tenant that does not.
 * - An old copy is safe, because no node gives an id again: an id that agreed once means the same
 *   tenant on both nodes, or none.
 * - A new tenant gets the id that it has elsewhere, or else one that no followed node has given.
 *   Ids of other nodes count in the lower half of all ids only, or else a broken node could use up
 *   the ids of its followers. In the upper half tenants of two nodes may be in conflict.
 */
#include <linux/netlink.h>
#include <linux/slab.h>

#include "pool/pool.h"

#define REFRESH_TIME	(2 * HZ)	/* longest wait for the tables of other nodes */
#define ID_FOLLOWED	(KVBLK_TENANT_IDS / 2)	/* ids below follow those of other nodes */

struct comparison {
	u64 seq;			/* member_list_seq of @own */
	struct kvblk_d_tenant own[KVBLK_SB_TENANTS];
	DECLARE_BITMAP(agreed, KVBLK_TENANT_IDS);
	/* the first conflict, or NULL */
	const struct kvblk_d_tenant *here;
	const struct kvblk_d_tenant *there;
};

static bool same_name(const struct kvblk_d_tenant *a, const struct kvblk_d_tenant *b)
{
	return !strcmp((const char *)a->name, (const char *)b->name);
}

static bool entry_plain(const struct kvblk_d_tenant *entry)
{
	return le16_to_cpu(entry->flags) == KVBLK_TENANTF_USED;
}

/* ---- the owner's table ---- */

int kvblk_agree_note(struct kvblk_foreign *foreign, const struct kvblk_d_super *sb)
{
	struct kvblk_d_tenant *copy = NULL, *old = foreign->tenants;
	u32 nr = 0, i;

	/* not the first slot, "default" */
	for (i = 1; i < KVBLK_SB_TENANTS; i++)
		nr += sb->tenants[i].flags != 0;
	if (nr) {
		copy = kvmalloc_array(nr, sizeof(*copy), GFP_KERNEL);
		if (!copy)
			return -ENOMEM;
	}
	for (i = 1, nr = 0; i < KVBLK_SB_TENANTS; i++)
		if (sb->tenants[i].flags)
			copy[nr++] = sb->tenants[i];
	if (nr != foreign->nr_tenants || (nr && memcmp(copy, old, nr * sizeof(*copy))))
		foreign->agreed_seq = 0;
	scoped_guard(spinlock, &foreign->flash.pool->member_list_lock) {
		foreign->tenants = copy;
		foreign->nr_tenants = nr;
		foreign->next_tenant = le32_to_cpu(sb->next_tenant);
	}
	kvfree(old);
	return 0;
}

/* ---- comparing ---- */

static void entry_compare(struct comparison *cmp, const struct kvblk_d_tenant *here,
			  const struct kvblk_d_tenant *there)
{
	bool id = here->id == there->id, name = same_name(here, there);

	if (id != name) {
		if (cmp->here)
			return;
		cmp->here = here;
		cmp->there = there;
	} else if (name && entry_plain(here) && entry_plain(there)) {
		__set_bit(le16_to_cpu(here->id), cmp->agreed);
	}
}

/* Compares the tables of both nodes. Returns the result, or NULL without memory. Only poll. */
static struct comparison *tables_compare(const struct kvblk_foreign *foreign)
{
	struct comparison *cmp = kvzalloc(sizeof(*cmp), GFP_KERNEL);
	struct kvblk_pool *pool = foreign->flash.pool;
	const struct kvblk_d_tenant *here;
	u32 i;

	if (!cmp)
		return NULL;
	/* a copy, because hundreds of tenants are too many to compare under a spinlock */
	scoped_guard(spinlock, &pool->member_list_lock) {
		cmp->seq = pool->member_list_seq;
		memcpy(cmp->own, pool->tenants.table, sizeof(cmp->own));
	}
	for (here = cmp->own + 1; here < cmp->own + KVBLK_SB_TENANTS; here++) {
		for (i = 0; here->flags && i < foreign->nr_tenants; i++)
			entry_compare(cmp, here, &foreign->tenants[i]);
		cond_resched();
	}
	return cmp;
}

/* Returns whether the log has the news @conflict, 0: none, by another member of the same pool. */
static bool conflict_known(const struct kvblk_foreign *foreign, u16 conflict)
{
	struct kvblk_pool *pool = foreign->flash.pool;
	const struct kvblk_foreign *other;

	lockdep_assert_held(&pool->member_list_lock);
	guard(rcu)();
	list_for_each_entry_rcu(other, &pool->foreign.list, link)
		if (other != foreign && uuid_equal(&other->pool_uuid, &foreign->pool_uuid) &&
		    (conflict ? other->conflict == conflict : other->conflict))
			return true;
	return false;
}

static void conflict_log(struct kvblk_foreign *foreign, const struct comparison *cmp)
{
	u16 conflict = cmp->here ? le16_to_cpu(cmp->here->id) : 0;
	struct kvblk_pool *pool = foreign->flash.pool;
	bool known;

	scoped_guard(spinlock, &pool->member_list_lock) {
		known = foreign->conflict == conflict || conflict_known(foreign, conflict);
		foreign->conflict = conflict;
	}
	if (known)
		return;
	if (!conflict)
		dev_info(&pool->dev, "the tenants agree with those of node %s again\n",
			 foreign->owner);
	else if (cmp->here->id == cmp->there->id)
		dev_warn(&pool->dev, "id %u is tenant %s here and %s on node %s; their blocks are not shared; run on one of the nodes: kvblk tenant clear\n",
			 conflict, cmp->here->name, cmp->there->name, foreign->owner);
	else
		dev_warn(&pool->dev, "tenant %s has id %u here and %u on node %s; its blocks are not shared; run where the id is less: kvblk tenant clear\n",
			 cmp->here->name, conflict, le16_to_cpu(cmp->there->id), foreign->owner);
}

bool kvblk_agree_conflict(const struct kvblk_foreign *foreign, char name[KVBLK_NAME_MAX])
{
	struct kvblk_pool *pool = foreign->flash.pool;
	const struct kvblk_d_tenant *entry = pool->tenants.table;

	guard(spinlock)(&pool->member_list_lock);
	for (; foreign->conflict && entry < pool->tenants.table + KVBLK_SB_TENANTS; entry++)
		if (entry->flags && le16_to_cpu(entry->id) == foreign->conflict) {
			strscpy(name, entry->name, KVBLK_NAME_MAX);
			return true;
		}
	return false;
}

bool kvblk_agree_update(struct kvblk_foreign *foreign)
{
	struct kvblk_pool *pool = foreign->flash.pool;
	struct comparison *cmp __free(kvfree) = NULL;
	bool gained = false;
	u32 id;

	if (READ_ONCE(pool->member_list_seq) == foreign->agreed_seq)
		return false;
	cmp = tables_compare(foreign);
	/* the next poll tries again */
	if (!cmp)
		return false;
	foreign->agreed_seq = cmp->seq;
	for_each_set_bit(id, foreign->agreed, KVBLK_TENANT_IDS)
		if (!test_bit(id, cmp->agreed))
			clear_bit(id, foreign->agreed);
	for_each_andnot_bit(id, cmp->agreed, foreign->agreed, KVBLK_TENANT_IDS) {
		set_bit(id, foreign->agreed);
		set_bit(id, pool->foreign.agreed);
		gained = true;
	}
	conflict_log(foreign, cmp);
	return gained;
}

int kvblk_agree_check(const struct kvblk_foreign *foreign, struct netlink_ext_ack *extack)
{
	struct comparison *cmp __free(kvfree) = tables_compare(foreign);

	if (!cmp)
		return -ENOMEM;
	if (!cmp->here)
		return 0;
	if (cmp->here->id == cmp->there->id)
		return kvblk_refuse(extack, -ENOTUNIQ, "id %u is tenant %.17s here, %.17s there: clear one",
				    le16_to_cpu(cmp->here->id), cmp->here->name, cmp->there->name);
	return kvblk_refuse(extack, -ENOTUNIQ, "tenant %.19s has id %u here, %u there: remove it on one",
			    cmp->here->name, le16_to_cpu(cmp->here->id),
			    le16_to_cpu(cmp->there->id));
}

bool kvblk_foreign_agrees(struct kvblk_pool *pool, u32 seg, u16 tenant)
{
	const struct kvblk_foreign *foreign;

	guard(rcu)();
	foreign = kvblk_foreign_of(pool, seg);
	return foreign && kvblk_tenant_followed(foreign, tenant);
}

bool kvblk_index_unshared(const struct kvblk_index *idx, u32 seg, u16 tenant)
{
	struct kvblk_pool *pool = container_of(idx, struct kvblk_pool, index);

	/* a sweep asks about each foreign entry, and most are of these tenants */
	return tenant && tenant != KVBLK_NVME_TENANT && !kvblk_foreign_agrees(pool, seg, tenant);
}

/* ---- ids of new tenants ---- */

/* Returns whether each foreign member that can be read has read its superblock since @since. */
static bool supers_read(struct kvblk_pool *pool, u64 since)
{
	const struct kvblk_foreign *foreign;

	guard(rcu)();
	list_for_each_entry_rcu(foreign, &pool->foreign.list, link)
		if (kvblk_flash_may_read(&foreign->flash) &&
		    READ_ONCE(foreign->super_read) < since)
			return false;
	return true;
}

/* Reads the tables of other nodes anew. What does not respond in time stays as it was. */
static void tables_refresh(struct kvblk_pool *pool)
{
	struct kvblk_foreign *foreign;
	u64 since = ktime_get_boottime_ns();

	WRITE_ONCE(pool->foreign.super_wanted, since);
	scoped_guard(rcu)
		list_for_each_entry_rcu(foreign, &pool->foreign.list, link)
			/* polls of a member that was formatted anew have ended */
			if (kvblk_flash_may_read(&foreign->flash))
				mod_delayed_work(pool->foreign.wq, &foreign->poll, 0);
	wait_event_timeout(pool->peers.wait, supers_read(pool, since), REFRESH_TIME);
}

/* Returns the id of tenant @name on the foreign member's node, or 0. */
static u32 id_there(const struct kvblk_foreign *foreign, const char *name)
{
	u32 i;

	for (i = 0; i < foreign->nr_tenants; i++)
		if (!strcmp((const char *)foreign->tenants[i].name, name))
			return le16_to_cpu(foreign->tenants[i].id);
	return 0;
}

int kvblk_agree_id(struct kvblk_pool *pool, const char *name, bool clear,
		   struct netlink_ext_ack *extack)
{
	const struct kvblk_foreign *foreign, *where = NULL;
	u32 next, given = 0, id;

	lockdep_assert_held(&pool->tenants.lock);
	tables_refresh(pool);
	guard(rcu)();
	guard(spinlock)(&pool->member_list_lock);
	next = pool->tenants.next_id;
	list_for_each_entry_rcu(foreign, &pool->foreign.list, link) {
		id = id_there(foreign, name);
		if (id > given) {
			given = id;
			where = foreign;
		}
	}
	if (given >= next && (given < ID_FOLLOWED || given == next))
		return given;
	if (given > next && !clear)
		return kvblk_refuse(extack, -ENOTUNIQ, "%.19s gave it id %u, too far from %u: use another name",
				    where->flash.name, given, next);
	if (given && !clear)
		return kvblk_refuse(extack, -ENOTUNIQ, "%.19s has it with id %u, given here before: clear it there",
				    where->flash.name, given);
	list_for_each_entry_rcu(foreign, &pool->foreign.list, link)
		if (foreign->next_tenant <= ID_FOLLOWED)
			next = max(next, foreign->next_tenant);
	return next;
}
