// SPDX-License-Identifier: GPL-2.0
/*
 * Assembly of pools: create, import, destroy. The rules:
 * - A pool is created or imported as a whole, or not at all. Create takes blank devices, and
 *   others only with "format". Import formats nothing.
 * - The newest life (highest epoch) counts; of its superblocks, the one with the newest member
 *   list defines the pool. Import leaves out outdated (older epoch) and missing (listed, no device)
 *   members only with "degraded". So a bad superblock costs at most its own member's blocks.
 * - The pool's clock resumes where it stopped, plus the time that passed on the host's clock.
 *   Expired blocks must not come back.
 * - Destroy drains pool->users, stops background work and writes "clean" to the superblocks. An
 *   open file then keeps struct kvblk_pool, its counters and idle requests only.
 */
#include <linux/netlink.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "p2p/p2p.h"
#include "pool/pool.h"

/* ---- the clock ---- */

#define NOSPACE_GAP	(60 * HZ)	/* least time between two "no space" events */

static void report_nospace(struct kvblk_pool *pool)
{
	u64 nr = kvblk_stats_counter(pool, KVBLK_C_PUT_NOSPACE);

	if (nr == pool->nospace_reported ||
	    (pool->nospace_reported && time_before(jiffies, pool->nospace_next)))
		return;
	kvblk_event(pool, NULL, KVBLK_EVENT_NO_SPACE, nr - pool->nospace_reported);
	pool->nospace_reported = nr;
	pool->nospace_next = jiffies + NOSPACE_GAP;
}

static void pool_tick(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(to_delayed_work(work), struct kvblk_pool, tick);
	struct kvblk_foreign *foreign;
	struct kvblk_member *member;
	u64 reclaimed;
	u32 period;

	/* take no lock that is held across I/O, or else the watchdog hangs with the I/O */
	rcu_read_lock();
	kvblk_for_each_member(pool, member)
		kvblk_flash_watch(&member->flash);
	list_for_each_entry_rcu(foreign, &pool->foreign.list, link)
		kvblk_flash_watch(&foreign->flash);
	rcu_read_unlock();
	kvblk_pool_seq(pool);
	kvblk_pool_grace(pool);
	kvblk_pool_give_up(pool);
	kvblk_pool_write_epoch(pool);
	kvblk_kill_retry(pool);
	kvblk_dram_tick(pool);

	reclaimed = kvblk_stats_counter(pool, KVBLK_C_SEGMENTS_RECLAIMED);
	if (reclaimed - pool->reclaimed_last > READ_ONCE(pool->tun.reclaim_event_rate))
		kvblk_event(pool, NULL, KVBLK_EVENT_RECLAIM_RATE, reclaimed - pool->reclaimed_last);
	pool->reclaimed_last = reclaimed;
	report_nospace(pool);
	period = READ_ONCE(pool->tun.stats_seconds);
	if (++pool->stats_age >= period && period) {
		pool->stats_age = 0;
		queue_work(pool->wq, &pool->stats_work);
	}
	queue_work(pool->wq, &pool->lease.work);
	queue_work(pool->wq, &pool->sweep_work);
	queue_work(pool->wq, &pool->rescue_work);
	queue_delayed_work(pool->wq, &pool->tick, HZ);
}

#define SWEEP_STEP	4096ull		/* buckets between two calls of cond_resched() */

/* Free dead and expired entries: 1/32 of the index each second. */
static void pool_sweep_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, sweep_work);
	u64 left = pool->index.nr_buckets / 32 + 1, dropped = 0, step;

	for (; left; left -= step) {
		step = min(left, SWEEP_STEP);
		pool->sweep_at = kvblk_index_sweep(&pool->index, pool->sweep_at,
						   step, kvblk_now(pool), &dropped);
		if (!pool->sweep_at) {
			WRITE_ONCE(pool->sweep_pass, pool->sweep_pass + 1);
			return;
		}
		cond_resched();
	}
}

/* ---- creation ---- */

static char *pool_devnode(const struct device *dev, umode_t *mode);

/* Each kind has a class: devices of the first are pools. */
static struct class classes[KVBLK_NODES] = {
	[KVBLK_NODE_BLOCKS] = { .name = "kvblk", .devnode = pool_devnode },
	[KVBLK_NODE_NVME] = { .name = "kvblk-nvme", .devnode = pool_devnode },
	[KVBLK_NODE_CHANGES] = { .name = "kvblk-changes", .devnode = pool_devnode },
	[KVBLK_NODE_PEERS] = { .name = "kvblk-peers", .devnode = pool_devnode },
};

static char *pool_devnode(const struct device *dev, umode_t *mode)
{
	static const struct {
		const char *name;
		umode_t mode;
	} nodes[KVBLK_NODES] = {
		[KVBLK_NODE_BLOCKS] = { "default", 0660 },
		[KVBLK_NODE_NVME] = { "nvme-kv", 0660 },
		[KVBLK_NODE_CHANGES] = { "changes", 0640 },
		[KVBLK_NODE_PEERS] = { "peers", 0600 },
	};
	u32 node = dev->class - classes;

	if (mode)
		*mode = nodes[node].mode;
	return kasprintf(GFP_KERNEL, "kvblk/%s/%s", dev_name(dev), nodes[node].name);
}

static int node_add(struct kvblk_pool *pool, u32 node)
{
	dev_t devt = kvblk_number_devt(pool->number, node);
	struct cdev *cdev = &pool->cdevs[node];
	int err;

	/* an open node keeps struct kvblk_pool */
	cdev_set_parent(cdev, &pool->dev.kobj);
	err = cdev_add(cdev, devt, 1);
	if (err)
		return err;
	err = node == KVBLK_NODE_BLOCKS ? device_add(&pool->dev) :
	      PTR_ERR_OR_ZERO(device_create(&classes[node], NULL, devt, NULL, "%s", pool->name));
	if (err)
		cdev_del(cdev);
	return err;
}

/* Remove the first @nr nodes. */
static void nodes_del(struct kvblk_pool *pool, u32 nr)
{
	while (nr--) {
		if (nr == KVBLK_NODE_BLOCKS)
			device_del(&pool->dev);
		else
			device_destroy(&classes[nr], kvblk_number_devt(pool->number, nr));
		cdev_del(&pool->cdevs[nr]);
	}
	kvblk_number_drop(pool->number);
}

static int nodes_add(struct kvblk_pool *pool)
{
	u32 node;
	int err;

	pool->number = kvblk_number_take(&pool->uuid, 0);
	if (IS_ERR(pool->number))
		return PTR_ERR(pool->number);
	pool->dev.devt = kvblk_number_devt(pool->number, KVBLK_NODE_BLOCKS);
	for (node = 0, err = 0; !err && node < KVBLK_NODES; node++) {
		err = node_add(pool, node);
		if (err)
			nodes_del(pool, node);
	}
	return err;
}

static void users_release(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct kvblk_pool, users)->users_done);
}

/* Free what only holders of pool->users access, once those are drained. */
static void pool_memory_free(struct kvblk_pool *pool)
{
	if (!pool->seg_gen)
		return;
	kvblk_bounce_trim(pool, 0);
	kvblk_missing_exit(pool);
	kvblk_dram_exit(pool);
	kvblk_index_destroy(&pool->index);
	kvblk_duel_destroy(&pool->duel);
	kvblk_admissions_exit(pool);
	kvblk_policy_destroy(&pool->policy);
	kvblk_touches_exit(pool);
	vfree(pool->seg_gen);
	pool->seg_gen = NULL;
}

static void pool_release(struct device *dev)
{
	struct kvblk_pool *pool = kvblk_dev_pool(dev);

	pool_memory_free(pool);
	/* an operation that completed after pool_memory_free() may have returned a chunk */
	kvblk_bounce_trim(pool, 0);
	WARN_ON_ONCE(percpu_counter_sum(&pool->dram.bytes));
	percpu_counter_destroy(&pool->dram.bytes);
	kvblk_upper_ops->pool_exit(pool);
	kvfree(pool->places);
	kvblk_tenants_exit(pool);
	kvblk_stats_exit(pool);
	percpu_ref_exit(&pool->users);
	memzero_explicit(&pool->secret, sizeof(pool->secret));
	memzero_explicit(pool->seed, sizeof(pool->seed));
	kfree(pool);
	module_put(THIS_MODULE);
}

static struct kvblk_pool *pool_alloc(const char *name)
{
	struct kvblk_pool *pool = kzalloc(sizeof(*pool), GFP_KERNEL);
	u32 node;

	if (!pool)
		return ERR_PTR(-ENOMEM);
	strscpy(pool->name, name);
	init_completion(&pool->users_done);
	mutex_init(&pool->admin);
	init_waitqueue_head(&pool->restore_wait);
	init_waitqueue_head(&pool->space_wait);
	init_waitqueue_head(&pool->settle_wait);
	init_waitqueue_head(&pool->delete_wait);
	spin_lock_init(&pool->bounce.lock);
	spin_lock_init(&pool->kill_order);
	spin_lock_init(&pool->kill_lock);
	spin_lock_init(&pool->member_list_lock);
	spin_lock_init(&pool->openers_lock);
	INIT_LIST_HEAD(&pool->openers);
	INIT_LIST_HEAD(&pool->missing_members);
	INIT_LIST_HEAD(&pool->coming);
	INIT_LIST_HEAD(&pool->foreign.list);
	xa_init(&pool->foreign.granules);
	kvblk_changes_init(pool);
	kvblk_peers_init(pool);
	INIT_DELAYED_WORK(&pool->peers.anchors, kvblk_anchors_work);
	INIT_DELAYED_WORK(&pool->tick, pool_tick);
	INIT_WORK(&pool->sweep_work, pool_sweep_work);
	INIT_WORK(&pool->rescue_work, kvblk_upper_ops->rescue);
	INIT_WORK(&pool->stats_work, kvblk_upper_ops->report_stats);
	pool->tun = (struct kvblk_tunables) {
#define X(name, type, standard, least, most)	.name = (standard),
		KVBLK_TUNABLES(X)
#undef X
	};

	kvblk_duel_init(&pool->duel, &pool->policy);
	pool->seg_gen = kvblk_index_array(KVBLK_OWN_SEGS, sizeof(*pool->seg_gen));
	pool->places = kvcalloc(KVBLK_SB_MEMBERS, sizeof(*pool->places), GFP_KERNEL);
	if (kvblk_stats_init(pool) || !pool->seg_gen || !pool->places || kvblk_tenants_init(pool) ||
	    percpu_counter_init(&pool->dram.bytes, 0, GFP_KERNEL) ||
	    percpu_ref_init(&pool->users, users_release, 0, GFP_KERNEL) || kvblk_dram_init(pool))
		goto free;
	if (kvblk_upper_ops->pool_init(pool))
		goto dram;
	/* reject users until all members are started */
	pool->dying = true;
	__module_get(THIS_MODULE);
	device_initialize(&pool->dev);
	pool->dev.class = &classes[KVBLK_NODE_BLOCKS];
	pool->dev.groups = kvblk_upper_ops->groups;
	pool->dev.release = pool_release;
	for (node = 0; node < KVBLK_NODES; node++) {
		cdev_init(&pool->cdevs[node], kvblk_upper_ops->fops[node]);
		pool->cdevs[node].owner = THIS_MODULE;
	}
	return pool;

dram:
	kvblk_dram_exit(pool);
free:
	percpu_ref_exit(&pool->users);
	percpu_counter_destroy(&pool->dram.bytes);
	vfree(pool->seg_gen);
	kvfree(pool->places);
	kvblk_tenants_exit(pool);
	kvblk_stats_exit(pool);
	kfree(pool);
	return ERR_PTR(-ENOMEM);
}

#define CLOCK_LAG_S	(3 * KVBLK_CLOCK_SAVE_S)	/* longest lag of a table after a crash */
#define CLOCK_DOWN_S	(90 * 24 * 3600)	/* most downtime: the host's clock may be wrong */
#define CLOCK_SKEW_S	(2 * KVBLK_CLOCK_SUPER_S) /* supers of one life record the time each day */

struct pool_parts {
	u32 nr;
	struct kvblk_member *members[KVBLK_MEMBERS_MAX];
	struct kvblk_life life;			/* the pool's last activation */
	bool clean;				/* import_clean() of all devices */
	const struct kvblk_d_super *newest;	/* defines the pool; NULL: a new pool */
	bool anew;				/* a new pool with the old segment sizes */
	const u8 *preempt;			/* as in &struct kvblk_pool_spec */
};

static int parts_open(struct kvblk_pool *pool, struct pool_parts *parts,
		      struct kvblk_member_spec *specs, u32 nr, struct netlink_ext_ack *extack)
{
	struct kvblk_member *member;
	u32 i;

	for (; parts->nr < nr; parts->nr++) {
		for (i = 0; i < parts->nr; i++)
			if (specs[i].dev == specs[parts->nr].dev)
				return kvblk_refuse(extack, -EEXIST, "%s is named twice",
						    parts->members[i]->flash.name);
		member = kvblk_member_open(pool, &specs[parts->nr], extack);
		if (IS_ERR(member))
			return PTR_ERR(member);
		parts->members[parts->nr] = member;
	}
	return 0;
}

/* Free a stopped member; pool->users is drained. */
static void member_end(struct kvblk_pool *pool, struct kvblk_member *member)
{
	kvblk_upper_ops->member_down(member);
	/* a removal may still compare members' epochs */
	scoped_guard(mutex, &pool->admin)
		kvblk_member_withdraw(member);
	synchronize_rcu();
	kvblk_member_free(member);
}

static void part_free(struct kvblk_pool *pool, struct kvblk_member *member)
{
	if (!member->flash.slot ||
	    rcu_access_pointer(pool->members[member->flash.slot - 1]) != member) {
		kvblk_member_free(member);
	} else {
		kvblk_member_stop(member);
		member_end(pool, member);
	}
}

static void parts_free(struct kvblk_pool *pool, struct pool_parts *parts)
{
	u32 i;

	for (i = 0; i < parts->nr; i++)
		part_free(pool, parts->members[i]);
	parts->nr = 0;
}

/* Returns the part whose uuid is the next one after @last's (NULL: the first), or NULL. */
static struct kvblk_member *part_after(const struct pool_parts *parts,
				       const struct kvblk_member *last)
{
	struct kvblk_member *next = NULL, *member;
	u32 i;

	for (i = 0; i < parts->nr; i++) {
		member = parts->members[i];
		if ((!last || memcmp(&member->flash.uuid, &last->flash.uuid, UUID_SIZE) > 0) &&
		    (!next || memcmp(&member->flash.uuid, &next->flash.uuid, UUID_SIZE) < 0))
			next = member;
	}
	return next;
}

/*
 * Takes all reservations before the first write, because a member that is refused must change no
 * other. In one order on all nodes, or else of two that adopt a pool at once, both could fail.
 */
static int parts_fence(const struct pool_parts *parts, u32 flags, struct netlink_ext_ack *extack)
{
	struct kvblk_member *member = NULL;
	int err = 0;

	while (!err && (member = part_after(parts, member)))
		err = kvblk_fence_take(member, flags, parts->preempt, extack);
	return err;
}

static int new_survey(struct pool_parts *parts, u32 flags, struct netlink_ext_ack *extack)
{
	u32 i;
	int err;

	for (i = 0; i < parts->nr; i++) {
		struct kvblk_member *member = parts->members[i];

		err = kvblk_found_unfit(member, flags, extack);
		if (err)
			return err;
		if (flags & KVBLK_ADD_FORMAT || member->found == KVBLK_FOUND_BLANK)
			continue;
		if (member->found == KVBLK_FOUND_MEMBER)
			return kvblk_refuse(extack, -ENOTEMPTY, "%.17s is of pool %.18s: import it; \"format\" erases it",
					    member->flash.name, member->log.super->pool_name);
		return kvblk_refuse(extack, -ENOTEMPTY, "%.16s holds other data: use another device; \"format\" erases this one",
				    member->flash.name);
	}
	return 0;
}

static struct kvblk_member *part_of(const struct pool_parts *parts, u32 nr, const u8 *uuid)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (!memcmp(parts->members[i]->log.super->member_uuid, uuid, UUID_SIZE))
			return parts->members[i];
	return NULL;
}

static int import_fits(struct kvblk_pool *pool, const struct pool_parts *parts, u32 i,
		       u32 flags, struct netlink_ext_ack *extack)
{
	struct kvblk_member *member = parts->members[i], *other;
	const struct kvblk_d_super *sb = member->log.super;

	switch (member->found) {
	case KVBLK_FOUND_MEMBER:
		break;
	case KVBLK_FOUND_DAMAGED:
		return kvblk_refuse(extack, -EUCLEAN, "%s has damaged superblocks: leave it out",
				    member->flash.name);
	case KVBLK_FOUND_NEWER:
		return kvblk_refuse(extack, -EPROTONOSUPPORT, "%.20s was written by another version of kvblk: use that version",
				    member->flash.name);
	case KVBLK_FOUND_FORMER:
	case KVBLK_FOUND_SHRUNK:
		return kvblk_found_unfit(member, flags, extack);
	default:
		return kvblk_refuse(extack, -ENODATA, "%s is not a member of a pool",
				    member->flash.name);
	}
	if ((!(flags & KVBLK_ADD_RENAME) && strcmp(sb->pool_name, pool->name)) ||
	    memcmp(sb->pool_uuid, parts->members[0]->log.super->pool_uuid, UUID_SIZE))
		return kvblk_refuse(extack, -EXDEV, "%.24s is a member of another pool, %.24s",
				    member->flash.name, sb->pool_name);
	if (kvblk_member_active(sb->member_uuid))
		return kvblk_refuse(extack, -EEXIST, "%s is a copy of an active member",
				    member->flash.name);
	other = part_of(parts, i, sb->member_uuid);
	if (other)
		return kvblk_refuse(extack, -EEXIST, "%.24s is a copy of %.23s: use one of them",
				    member->flash.name, other->flash.name);
	return kvblk_super_owned(member, flags, parts->preempt, extack);
}

static void import_life(struct pool_parts *parts)
{
	struct kvblk_life life;
	u32 i;

	for (i = 0; i < parts->nr; i++) {
		life = kvblk_super_life(parts->members[i]->log.super);
		if (!i || life.epoch > parts->life.epoch)
			parts->life = life;
	}
}

/* Return whether the pool stopped cleanly: superblocks with the newest member list decide. */
static bool import_clean(const struct pool_parts *parts)
{
	const struct kvblk_d_super *sb;
	u64 newest = 0, list;
	bool clean = false;
	u32 i;

	for (i = 0; i < parts->nr; i++) {
		sb = parts->members[i]->log.super;
		list = le64_to_cpu(sb->list_seq);
		if (!kvblk_super_lived(sb, &parts->life) || list < newest)
			continue;
		clean = le16_to_cpu(sb->state) == KVBLK_SB_CLEAN || (clean && list == newest);
		newest = list;
	}
	return clean;
}

/* Return whether a device may be an old copy: active, although the pool was stopped cleanly. */
static bool import_doubtful(const struct pool_parts *parts, const struct kvblk_d_super *sb,
			    u32 flags)
{
	return le16_to_cpu(sb->state) == KVBLK_SB_ACTIVE && !(flags & KVBLK_ADD_FORCE) &&
	       parts->clean;
}

static void import_newest(struct pool_parts *parts, u32 flags)
{
	const struct kvblk_d_super *sb;
	u32 i;

	for (i = 0; i < parts->nr; i++) {
		sb = parts->members[i]->log.super;
		if (kvblk_super_lived(sb, &parts->life) && !import_doubtful(parts, sb, flags) &&
		    (!parts->newest || le64_to_cpu(sb->list_seq) >
				       le64_to_cpu(parts->newest->list_seq)))
			parts->newest = sb;
	}
}

static bool member_list_has(const struct kvblk_d_super *member_list, const struct kvblk_d_super *sb)
{
	u32 i;

	for (i = 0; i < le32_to_cpu(member_list->nr_members); i++)
		if (!memcmp(member_list->members[i].uuid, sb->member_uuid, UUID_SIZE) &&
		    member_list->members[i].incarnation == sb->incarnation)
			return true;
	return false;
}

/* Return why the member must be left out, or NULL. Always NULL for @parts->newest. */
static const char *import_stale(const struct pool_parts *parts, const struct kvblk_d_super *sb,
				u32 flags)
{
	const struct kvblk_d_super *newest = parts->newest;

	if (!kvblk_super_lived(sb, &parts->life))
		return "is out of date";
	if (import_doubtful(parts, sb, flags))
		return "may be an old copy (\"force\" uses it)";
	if (!member_list_has(newest, sb))
		return "is no longer a member";
	/* a wrong value could corrupt records, expire other members' blocks or exhaust epochs */
	if (memcmp(sb->seed, newest->seed, sizeof(sb->seed)) ||
	    sb->birth != newest->birth || sb->pool_flags != newest->pool_flags ||
	    abs_diff(le64_to_cpu(sb->time), le64_to_cpu(newest->time)) > CLOCK_SKEW_S ||
	    le64_to_cpu(sb->epoch) > parts->life.epoch + KVBLK_EPOCH_LEAD)
		return "contradicts the other members";
	return NULL;
}

static int import_current(struct kvblk_pool *pool, struct pool_parts *parts, u32 flags,
			  struct netlink_ext_ack *extack)
{
	struct kvblk_member *member;
	u32 i, nr = 0;
	const char *why;

	for (i = 0; i < parts->nr; i++) {
		member = parts->members[i];
		why = import_stale(parts, member->log.super, flags);
		if (!why) {
			parts->members[nr++] = member;
			continue;
		}
		if (!(flags & KVBLK_ADD_DEGRADED))
			return kvblk_refuse(extack, -ESTALE, "%.14s %.36s: pass \"degraded\" to omit it",
					    member->flash.name, why);
		dev_warn(&pool->dev, "member %s: left out because it %s\n",
			 member->flash.name, why);
		part_free(pool, member);
	}
	parts->nr = nr;
	return 0;
}

static int import_whole(struct kvblk_pool *pool, const struct pool_parts *parts,
			u32 flags, struct netlink_ext_ack *extack)
{
	const struct kvblk_d_member *entry = parts->newest->members;
	u32 nr = le32_to_cpu(parts->newest->nr_members);

	for (; nr--; entry++)
		if (!(flags & KVBLK_ADD_DEGRADED) && !part_of(parts, parts->nr, entry->uuid))
			return kvblk_refuse(extack, -ENODEV, "member %.24s is missing: connect it, or pass \"degraded\"",
					    entry->name);
	return 0;
}

static void pod_take(struct kvblk_pool *pool, const struct kvblk_d_super *sb)
{
	if (!kvblk_super_in_pod(sb))
		return;
	memcpy(pool->pod, sb->pod_uuid, sizeof(pool->pod));
	strscpy(pool->pod_name, sb->pod_name);
	memcpy(pool->seed, sb->seed, sizeof(pool->seed));
	pool->tun.reuse_grace_ms = le32_to_cpu(sb->reuse_grace);
}

static int import_survey(struct kvblk_pool *pool, struct pool_parts *parts, u32 flags,
			 struct netlink_ext_ack *extack)
{
	int err;
	u32 i;

	for (i = 0; i < parts->nr; i++) {
		err = import_fits(pool, parts, i, flags, extack);
		if (err)
			return err;
	}
	import_life(parts);
	parts->clean = import_clean(parts);
	import_newest(parts, flags);
	err = import_current(pool, parts, flags, extack) ?:
	      import_whole(pool, parts, flags, extack);
	if (err)
		return err;
	pod_take(pool, parts->newest);
	if (parts->life.epoch < KVBLK_EPOCH_UP_MAX)
		return 0;
	/* no block can return without a new epoch */
	if (!(flags & KVBLK_ADD_FORCE))
		return kvblk_refuse(extack, -EOVERFLOW, "no epoch is left: \"force\" makes a new pool and drops all blocks");
	pool->flags = le32_to_cpu(parts->newest->pool_flags);
	parts->anew = true;
	parts->newest = NULL;
	return 0;
}

static void import_missing(struct kvblk_pool *pool, const struct pool_parts *parts)
{
	const struct kvblk_d_member *entry = parts->newest->members;
	u32 nr = le32_to_cpu(parts->newest->nr_members);

	for (; nr--; entry++)
		if (!part_of(parts, parts->nr, entry->uuid))
			kvblk_missing_left_out(pool, entry, parts->life, import_clean(parts));
}

/* Use the latest host time: a false superblock's old one would add downtime and expire blocks. */
static void import_clock(struct kvblk_pool *pool, const struct pool_parts *parts)
{
	u64 time = 0, wall = 0, recorded, now = ktime_get_real_seconds();
	bool clean = true;
	u32 low, i;
	s64 down;

	for (i = 0; i < parts->nr; i++) {
		const struct kvblk_d_super *sb = parts->members[i]->log.super;

		clean &= le16_to_cpu(sb->state) == KVBLK_SB_CLEAN;
		time = max(time, le64_to_cpu(sb->time));
		wall = max(wall, min(le64_to_cpu(sb->wall), now));
	}
	recorded = time;
	for (i = 0; i < parts->nr; i++)
		if (!kvblk_table_time(parts->members[i], &low) &&
		    low - (u32)recorded <= 2 * KVBLK_CLOCK_SUPER_S)
			recorded += low - (u32)recorded;
	down = now - (wall + recorded - time);
	pool->clock = recorded + clamp(down, 0, CLOCK_DOWN_S);
	if (!clean)
		pool->clock = max(pool->clock, recorded + CLOCK_LAG_S);
}

/* Return the newest of the superblocks @copies of @dev, or an ERR_PTR() with a message. */
static struct kvblk_d_super *pod_super(dev_t dev, struct kvblk_d_super copies[2],
				       struct netlink_ext_ack *extack)
{
	struct file *file = bdev_file_open_by_dev(dev, BLK_OPEN_READ, NULL, NULL);
	struct kvblk_d_super *newest = NULL;
	int i, err, why = -ENODATA;

	if (IS_ERR(file)) {
		NL_SET_ERR_MSG_FMT(extack, "the pod's device cannot be opened (error %ld)",
				   PTR_ERR(file));
		return ERR_CAST(file);
	}
	/* the page cache may predate what another node wrote */
	invalidate_bdev(file_bdev(file));
	for (i = 0; i < 2; i++) {
		loff_t pos = KVBLK_SB_OFFSET(i);

		err = kernel_read(file, &copies[i], sizeof(*copies), &pos);
		if (err >= 0)
			err = kvblk_super_check(&copies[i], bdev_nr_bytes(file_bdev(file)));
		/* a reader may skip unknown ro_compat bits */
		if (!err || err == -EROFS) {
			if (!newest || le64_to_cpu(copies[i].seq) > le64_to_cpu(newest->seq))
				newest = &copies[i];
		} else if (err != -ENODATA && why != -EPROTONOSUPPORT) {
			why = err;
		}
	}
	bdev_fput(file);
	if (why == -EPROTONOSUPPORT)
		err = kvblk_refuse(extack, why, "the pod's device was written by another version of kvblk: update this node");
	else if (newest)
		return newest;
	else if (why == -ENODATA)
		err = kvblk_refuse(extack, why, "the pod's device is not a member of a pool");
	else
		err = kvblk_refuse(extack, -EUCLEAN, "the pod's device has bad superblocks (error %d): pass another member",
				   why);
	return ERR_PTR(err);
}

/* Join the pod of @spec->pod_of, or begin one. Returns 0, or an error with a message. */
static int pool_pod(struct kvblk_pool *pool, const struct kvblk_pool_spec *spec,
		    struct netlink_ext_ack *extack)
{
	struct kvblk_d_super *copies __free(kvfree) = NULL;
	const struct kvblk_d_super *sb;

	if (!spec->pod[0] && !kvblk_pool_in_pod(pool))
		return 0;
	if (!memchr_inv(pool->node, 0, sizeof(pool->node)))
		return kvblk_refuse(extack, -EINVAL, "a pool in a pod needs this host's id: run systemd-machine-id-setup");
	if (kvblk_pool_in_pod(pool))
		return 0;
	strscpy(pool->pod_name, spec->pod);
	generate_random_uuid(pool->pod);
	get_random_bytes(pool->seed, sizeof(pool->seed));
	if (!spec->pod_of)
		return 0;
	copies = kvcalloc(2, sizeof(*copies), GFP_KERNEL);
	sb = copies ? pod_super(spec->pod_of, copies, extack) : ERR_PTR(-ENOMEM);
	if (IS_ERR(sb))
		return PTR_ERR(sb);
	if (!kvblk_super_in_pod(sb))
		return kvblk_refuse(extack, -EXDEV, "the pod's device is of pool %.31s, which is in no pod",
				    sb->pool_name);
	if (strcmp(sb->pod_name, spec->pod))
		return kvblk_refuse(extack, -EXDEV, "the pod's device is of pod %.31s: pass that name",
				    sb->pod_name);
	pod_take(pool, sb);
	return 0;
}

static void pool_identity(struct kvblk_pool *pool, const struct pool_parts *parts)
{
	const struct kvblk_d_super *sb = parts->newest;

	pool->activation = get_random_u64();
	if (sb) {
		import_uuid(&pool->uuid, sb->pool_uuid);
		memcpy(pool->seed, sb->seed, sizeof(pool->seed));
		pool->birth = le64_to_cpu(sb->birth);
		/* a new epoch, because seqs begin with it: no seq is assigned twice */
		pool->epoch = parts->life.epoch + 1;
		pool->prev_life = parts->life;
		pool->flags = le32_to_cpu(sb->pool_flags);
		kvblk_member_list_load(pool, sb);
	} else {
		uuid_gen(&pool->uuid);
		if (!kvblk_pool_in_pod(pool))
			get_random_bytes(pool->seed, sizeof(pool->seed));
		pool->birth = ktime_get_real_seconds();
		pool->epoch = 1;
	}
	/* in step with the host's seconds: a restart loses no fraction; coarse as kvblk_clock() */
	pool->clock_boot = ktime_get_coarse_boottime_ns() -
			   ktime_get_coarse_real_ns() % NSEC_PER_SEC;
	atomic64_set(&pool->seq, pool->epoch << KVBLK_SEQ_EPOCH_SHIFT);
	kvblk_secret_derive(&pool->secret, pool->seed);
}

/* Makes room for segments of other nodes. Returns 0 or -ENOMEM. */
static int pool_foreign(struct kvblk_pool *pool)
{
	u16 *gens;

	if (!kvblk_pool_in_pod(pool))
		return 0;
	gens = kvblk_index_array(KVBLK_INDEX_SEGS, sizeof(*gens));
	/* polls of members that do not respond must not use up the pool's works */
	pool->foreign.wq = alloc_workqueue("kvblk-%s-follow", WQ_UNBOUND | WQ_FREEZABLE,
					   WQ_MAX_ACTIVE, pool->name);
	if (!gens || !pool->foreign.wq) {
		vfree(gens);
		return -ENOMEM;
	}
	gens[KVBLK_DRAM_SEG] = pool->seg_gen[KVBLK_DRAM_SEG];
	vfree(pool->seg_gen);
	pool->seg_gen = gens;
	return 0;
}

static int pool_index(struct kvblk_pool *pool, struct pool_parts *parts, u64 slots,
		      u32 flags, struct netlink_ext_ack *extack)
{
	u64 capacity = 0, recorded = 0;
	u32 i;

	for (i = 0; i < parts->nr; i++) {
		capacity += parts->members[i]->flash.size;
		if (parts->newest)
			recorded = max(recorded,
				       le64_to_cpu(parts->members[i]->log.super->index_slots));
	}
	/* a false number must not cost memory */
	recorded = min(recorded, max(capacity >> KVBLK_UNIT_SHIFT, KVBLK_SLOTS_MIN));
	if (!slots)
		slots = recorded ?: kvblk_default_slots(capacity);
	if (slots < KVBLK_SLOTS_MIN || slots > KVBLK_SLOTS_MAX)
		return kvblk_refuse(extack, -EINVAL, "index slots must be 64 to 2^36");
	if (pool_foreign(pool) || kvblk_index_init(&pool->index, slots, pool->seg_gen,
						   kvblk_pool_in_pod(pool) ? KVBLK_INDEX_SEGS :
									     KVBLK_OWN_SEGS) ||
	    kvblk_policy_init(&pool->policy, capacity, slots))
		return kvblk_refuse(extack, -ENOMEM, "no memory for an index of %llu slots: pass fewer",
				    slots);
	slots = min(kvblk_index_slots(&pool->index), KVBLK_SLOTS_MAX);
	if (slots < recorded && !(flags & KVBLK_ADD_FORCE))
		return kvblk_refuse(extack, -ENOSPC, "the index had %llu slots: pass as many, or \"force\" to drop blocks",
				    recorded);
	/* evict only if the former size is known, or the caller accepts losses */
	pool->index_evicts = recorded || !parts->newest || flags & KVBLK_ADD_FORCE;
	if (pool->index_evicts)
		pool->index_slots = slots;
	pool->index.own_segs = KVBLK_OWN_SEGS;
	pool->index.tenants = pool->tenants.live;
	pool->index.unshared = kvblk_index_unshared;
	pool->index.pinned = pool->pinned;
	pool->index.pinned_shift = KVBLK_GRANULE_SHIFT;
	pool->index.notify = kvblk_changes_notify;
	pool->index.expired = kvblk_index_expired;
	pool->index.account = kvblk_account_entry;
	return 0;
}

static LIST_HEAD(pools_coming);		/* reserves names; under kvblk_pools_lock */

static int pool_reserve(struct kvblk_pool *pool, struct netlink_ext_ack *extack)
{
	guard(mutex)(&kvblk_pools_lock);
	if (kvblk_pool_named(&pools_coming, pool->name))
		return kvblk_refuse(extack, -EEXIST, "a pool %s is being created already",
				    pool->name);
	if (kvblk_pool_named(&kvblk_pools, pool->name))
		return kvblk_refuse(extack, -EEXIST, "there is a pool %s already", pool->name);
	list_add_tail(&pool->link, &pools_coming);
	return 0;
}

static int parts_setup(struct kvblk_pool *pool, struct pool_parts *parts,
		       const struct kvblk_member_spec *specs, struct netlink_ext_ack *extack)
{
	u32 i, size;
	int err;

	for (i = 0; i < parts->nr; i++) {
		struct kvblk_member *member = parts->members[i];

		size = parts->anew ? le32_to_cpu(member->log.super->segment_units) <<
				     KVBLK_UNIT_SHIFT : specs[i].segment_size;
		err = kvblk_member_setup(member, !parts->newest, size, extack) ?:
		      kvblk_member_list(member, &specs[i], extack);
		if (err)
			return err;
	}
	if (parts->newest) {
		import_clock(pool, parts);
		import_missing(pool, parts);
	}
	return 0;
}

int kvblk_pool_assemble(const struct kvblk_pool_spec *spec, u32 add_flags,
			struct netlink_ext_ack *extack)
{
	struct pool_parts *parts __free(kfree) = kzalloc(sizeof(*parts), GFP_KERNEL);
	struct kvblk_member_spec *specs = spec->members;
	const u32 nr_specs = spec->nr_members;
	const char *name = spec->name;
	struct kvblk_pool *pool;
	int err;
	u32 i;

	if (!kvblk_name_valid((const u8 *)name, KVBLK_NAME_MAX))
		return kvblk_refuse(extack, -EINVAL, "invalid pool name: 1 to 31 of A-Z a-z 0-9 . _ -, the first a letter or digit");
	if (spec->pod[0] && !kvblk_name_valid((const u8 *)spec->pod, KVBLK_NAME_MAX))
		return kvblk_refuse(extack, -EINVAL, "invalid pod name: 1 to 31 of A-Z a-z 0-9 . _ -, the first a letter or digit");
	if (!nr_specs || nr_specs > KVBLK_MEMBERS_MAX)
		return kvblk_refuse(extack, -EINVAL, "a pool needs 1 to 64 members");
	for (i = 0; spec->import && i < nr_specs; i++)
		if (specs[i].name[0])
			return kvblk_refuse(extack, -EINVAL, "returning members keep their names: pass none");
	if (!parts)
		return -ENOMEM;
	pool = pool_alloc(name);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	memcpy(pool->node, spec->node, sizeof(pool->node));
	parts->preempt = spec->preempt;
	for (i = 0; spec->import && i < nr_specs; i++)
		kvblk_foreign_share(specs[i].dev);
	err = dev_set_name(&pool->dev, "%s", name) ?: pool_reserve(pool, extack);
	if (err)
		goto put;
	/* 8 works a member: none waits for another. Frozen: a hibernation image must stay true */
	pool->wq = alloc_workqueue("kvblk-%s", WQ_UNBOUND | WQ_FREEZABLE,
				   8 * KVBLK_MEMBERS_MAX, name);
	err = pool->wq ? parts_open(pool, parts, specs, nr_specs, extack) : -ENOMEM;
	if (!err)
		err = spec->import ? import_survey(pool, parts, add_flags, extack) :
				     new_survey(parts, add_flags, extack);
	if (!err)
		err = pool_pod(pool, spec, extack);
	if (!err) {
		pool_identity(pool, parts);
		pool->flags |= spec->pool_flags;
		err = pool_index(pool, parts, spec->index_slots, add_flags, extack);
	}
	if (!err)
		err = parts_setup(pool, parts, specs, extack);
	err = err ?: parts_fence(parts, add_flags, extack);
	if (err)
		goto free;

	err = nodes_add(pool);
	if (err) {
		if (err == -ENOSPC)
			NL_SET_ERR_MSG(extack, "no device number is left: reload the module");
		else
			NL_SET_ERR_MSG_FMT(extack, "the pool's device nodes cannot be created (error %d)",
					   err);
		goto free;
	}
	err = kvblk_upper_ops->pool_up(pool);
	if (err)
		goto del;
	/* before restore, which skips records of other tenants */
	err = kvblk_tenants_add(pool, extack);
	if (err)
		goto sysfs;
	/* ACTIVATING first: a crash between the two passes leaves no outdated member */
	for (i = 0; i < parts->nr && !err; i++)
		err = kvblk_member_prepare(parts->members[i], KVBLK_SB_ACTIVATING, extack);
	for (i = 0; i < parts->nr && !err; i++)
		err = kvblk_member_start(parts->members[i], extack);
	if (err)
		goto sysfs;
	queue_delayed_work(pool->wq, &pool->tick, HZ);
	/* keep the pool's memory: once listed, the pool may be destroyed */
	get_device(&pool->dev);
	mutex_lock(&kvblk_pools_lock);
	list_move_tail(&pool->link, &kvblk_pools);
	scoped_guard(spinlock, &pool->openers_lock)
		WRITE_ONCE(pool->dying, false);
	mutex_unlock(&kvblk_pools_lock);
	dev_info(&pool->dev, "up, %u members, epoch %llu\n", pool->nr_members, pool->epoch);
	kvblk_event(pool, NULL, KVBLK_EVENT_POOL_UP, 0);
	put_device(&pool->dev);
	return 0;

sysfs:
	percpu_ref_kill(&pool->users);
	/* drop failed kills, because no pool remains to need them */
	kvblk_kill_retry(pool);
	wait_for_completion_state(&pool->users_done, TASK_IDLE);
	parts_free(pool, parts);
	kvblk_tenants_del(pool);
	kvblk_upper_ops->pool_down(pool);
del:
	nodes_del(pool, KVBLK_NODES);
free:
	parts_free(pool, parts);
	if (pool->foreign.wq)
		destroy_workqueue(pool->foreign.wq);
	if (pool->wq)
		destroy_workqueue(pool->wq);
	scoped_guard(mutex, &kvblk_pools_lock)
		list_del(&pool->link);
put:
	put_device(&pool->dev);
	return err;
}

/* ---- destruction ---- */

#define STOP_TRIES	3		/* attempts to write a superblock at stop */
#define STOP_GAP	(HZ / 2)	/* time between the attempts */

/* Write @state to all superblocks except @but's. Returns the first failed member, or NULL. */
static struct kvblk_member *members_write_state(struct kvblk_pool *pool, u16 state,
						const struct kvblk_member *but)
{
	struct kvblk_member *member, *failed = NULL;
	u32 tries;
	int err;

	kvblk_for_each_member(pool, member) {
		/* a returning member is outdated until restore_settle() */
		if (member == but || member->flash.state == KVBLK_MEMBER_DEAD ||
		    member->outdated || member->log.missing)
			continue;
		err = READ_ONCE(member->flash.fenced) ? -EBUSY : -ETIMEDOUT;
		for (tries = 0; tries < STOP_TRIES && err && !member->flash.suspect &&
		     !READ_ONCE(member->flash.fenced); tries++) {
			if (tries)
				schedule_timeout_uninterruptible(STOP_GAP);
			err = kvblk_super_write(member, state, pool->epoch);
		}
		if (!err)
			continue;
		dev_err(&pool->dev, "member %s: cannot write superblock (error %d)\n",
			member->flash.name, err);
		failed = failed ?: member;
	}
	return failed;
}

/* Mark all members clean or none, because a member without the mark looks like an old copy. */
static void members_stop(struct kvblk_pool *pool, struct netlink_ext_ack *extack)
{
	struct kvblk_member *failed = members_write_state(pool, KVBLK_SB_CLEAN, NULL);

	if (!failed)
		return;
	/* a newer list marks the rest active, because the failed write may have arrived */
	kvblk_member_list_renew(pool);
	members_write_state(pool, KVBLK_SB_ACTIVE, failed);
	NL_SET_ERR_MSG_FMT(extack, "pool down as after a crash: %.19s %s", failed->flash.name,
			   READ_ONCE(failed->flash.fenced) ? "is fenced by another node" :
			   "cannot be written, see dmesg");
}

static void pool_teardown(struct kvblk_pool *pool, struct netlink_ext_ack *extack)
{
	struct kvblk_member *member;
	int i;

	kvblk_event(pool, NULL, KVBLK_EVENT_POOL_DOWN, 0);
	/* wait for holders of the lock that have not seen pool->dying */
	mutex_lock(&pool->admin);
	mutex_unlock(&pool->admin);
	percpu_ref_kill(&pool->users);
	kvblk_peers_end(pool);
	/* wait for operations (detached ones, too), kills and member removals */
	wait_for_completion_state(&pool->users_done, TASK_IDLE);
	cancel_delayed_work_sync(&pool->tick);
	cancel_work_sync(&pool->stats_work);
	cancel_work_sync(&pool->lease.work);
	cancel_work_sync(&pool->sweep_work);
	cancel_work_sync(&pool->tenants.quota_work);
	kvblk_tenants_del(pool);
	kvblk_upper_ops->pool_down(pool);
	nodes_del(pool, KVBLK_NODES);
	kvblk_dram_close(pool);
	kvblk_changes_end(pool);
	kvblk_for_each_member(pool, member) {
		/* remaining callers may still probe a P2P route, which takes member->flash.ref */
		cmpxchg(&member->flash.state, KVBLK_MEMBER_UP, KVBLK_MEMBER_REMOVING);
		cancel_work_sync(&member->log.reclaim_work);
		percpu_ref_kill(&member->flash.ref);
		wait_for_completion_state(&member->flash.ref_done, TASK_IDLE);
		kvblk_member_stop(member);
		cancel_delayed_work_sync(&member->dead);
	}
	members_stop(pool, extack);
	/* after the own members' clean mark: this waits for devices that others control */
	kvblk_unfollow_all(pool);
	/* not kvblk_for_each_member(), which continues from the member that is freed here */
	for (i = 0; i < KVBLK_MEMBERS_MAX; i++) {
		member = rcu_dereference_protected(pool->members[i], true);
		if (member)
			member_end(pool, member);
	}
	if (pool->foreign.wq)
		destroy_workqueue(pool->foreign.wq);
	destroy_workqueue(pool->wq);
	pool_memory_free(pool);
	/* last, because the list reserves the name */
	scoped_guard(mutex, &kvblk_pools_lock)
		list_del(&pool->link);
	put_device(&pool->dev);
}

/* Refuse new openers. Returns 0, or with a message -EALREADY, or -EBUSY if open without @force. */
static int destroy_begin(struct kvblk_pool *pool, bool force, struct netlink_ext_ack *extack)
{
	const struct kvblk_opener *opener;

	if (pool->dying)
		return kvblk_refuse(extack, -EALREADY, "the pool is being destroyed already");
	guard(spinlock)(&pool->openers_lock);
	if (!list_empty(&pool->openers) && !force) {
		opener = list_first_entry(&pool->openers, struct kvblk_opener, link);
		if (list_is_singular(&pool->openers))
			return kvblk_refuse(extack, -EBUSY, "%.15s (%d) has the node open: close it, or pass \"force\"",
					    opener->comm, pid_nr(opener->pid));
		return kvblk_refuse(extack, -EBUSY, "%.12s (%d) and others have the node open: close it, or pass \"force\"",
				    opener->comm, pid_nr(opener->pid));
	}
	WRITE_ONCE(pool->dying, true);
	return 0;
}

int kvblk_pool_destroy(const char *name, bool force, struct netlink_ext_ack *extack)
{
	struct kvblk_pool *pool = kvblk_pool_find(name);
	int err;

	if (pool && !force)
		wait_event_timeout(pool->settle_wait, READ_ONCE(pool->dying) ||
				   list_empty_careful(&pool->openers), KVBLK_CLOSE_TIME);
	if (pool)
		put_device(&pool->dev);
	scoped_guard(mutex, &kvblk_pools_lock) {
		/* look again: the pool may have been destroyed and recreated meanwhile */
		pool = kvblk_pool_named(&kvblk_pools, name);
		err = pool ? destroy_begin(pool, force, extack) :
			     kvblk_refuse(extack, -ENOENT, "there is no pool %s", name);
		if (err)
			return err;
	}
	pool_teardown(pool, extack);
	return 0;
}

/* ---- module ---- */

int kvblk_pools_init(const struct kvblk_upper_ops *upper_ops)
{
	int err = kvblk_numbers_init();
	u32 i;

	if (err)
		return err;
	kvblk_upper_ops = upper_ops;
	for (i = 0; i < KVBLK_NODES; i++) {
		err = class_register(&classes[i]);
		if (err)
			goto classes;
	}
	err = kvblk_tenants_class_init();
	if (err)
		goto classes;
	return 0;

classes:
	while (i--)
		class_unregister(&classes[i]);
	kvblk_numbers_exit();
	return err;
}

void kvblk_pools_exit(void)
{
	u32 i;

	kvblk_tenants_class_exit();
	for (i = 0; i < KVBLK_NODES; i++)
		class_unregister(&classes[i]);
	kvblk_numbers_exit();
}
