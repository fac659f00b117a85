// SPDX-License-Identifier: GPL-2.0
/*
 * Pools: made of members, found by name, gone without a trace.
 *
 * The rules:
 * - A pool is made as a whole or not at all.
 * - Members that carry the pool's superblock make it come back warm; the one
 *   with the highest epoch says what the pool is, an older one comes back
 *   empty (see member.c).
 * - Destroy kills pool->users and drains it, stops background work, and leaves
 *   superblocks that say "clean". Memory goes with the last open file.
 */
#include <linux/ctype.h>
#include <linux/idr.h>
#include <linux/netlink.h>
#include <linux/slab.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>

#include "handover.h"
#include "p2p.h"
#include "pool.h"

#define POOL_MINORS	256

static DEFINE_IDA(pool_minors);
static dev_t pools_devt;

/* ---- the clock ---- */

static void pool_tick(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(to_delayed_work(work),
					       struct kvblk_pool, tick);
	struct kvblk_member *member;
	u64 reclaimed = 0;
	int i, cpu;

	kvblk_now_raise(pool, kvblk_now(pool));
	/* no lock that is held across I/O: this is the watchdog */
	rcu_read_lock();
	kvblk_for_each_member(pool, member, i)
		kvblk_member_watch(member);
	rcu_read_unlock();
	kvblk_pool_tell_epoch(pool);
	kvblk_kill_retry(pool);

	for_each_possible_cpu(cpu)
		reclaimed += per_cpu_ptr(pool->stats, cpu)->counters[KVBLK_C_SEGMENTS_RECLAIMED];
	if (reclaimed - pool->reclaimed_last > READ_ONCE(pool->tun.reclaim_event_rate))
		kvblk_event(pool, NULL, KVBLK_EVENT_RECLAIM_RATE,
			    reclaimed - pool->reclaimed_last);
	pool->reclaimed_last = reclaimed;
	queue_work(pool->wq, &pool->lease_work);
	queue_work(pool->wq, &pool->sweep_work);
	queue_work(pool->wq, &pool->rescue_work);
	queue_delayed_work(pool->wq, &pool->tick, HZ);
}

/* Buckets swept between two looks whether somebody else wants the CPU. */
#define SWEEP_STEP	4096ull

/* Frees dead and expired entries; half a minute a pass. */
static void pool_sweep_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, sweep_work);
	u64 left = pool->index.nr_buckets / 32 + 1, dropped = 0, step;

	for (; left; left -= step) {
		step = min(left, SWEEP_STEP);
		pool->sweep_at = kvblk_index_sweep(&pool->index, pool->sweep_at,
						   step, kvblk_now(pool), &dropped);
		if (!pool->sweep_at)
			break;
		cond_resched();
	}
	if (!pool->sweep_at)
		WRITE_ONCE(pool->sweep_pass, pool->sweep_pass + 1);
}

/* ---- coming ---- */

static char *pool_devnode(const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0660;
	return kasprintf(GFP_KERNEL, "kvblk/%s/default", dev_name(dev));
}

static struct class pools_class = {
	.name = "kvblk",
	.devnode = pool_devnode,
};

static void users_release(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct kvblk_pool, users)->users_done);
}

/* The last reference is gone: destroyed, and no file is open. */
static void pool_release(struct device *dev)
{
	struct kvblk_pool *pool = kvblk_dev_pool(dev);

	ida_free(&pool_minors, MINOR(dev->devt));
	kvblk_above->pool_exit(pool);
	kvblk_bounce_trim(pool, 0);
	kvblk_index_destroy(&pool->index);
	kvblk_policy_destroy(&pool->policy);
	vfree(pool->seg_gen);
	free_percpu(pool->landings);
	free_percpu(pool->stats);
	percpu_ref_exit(&pool->users);
	memzero_explicit(&pool->secret, sizeof(pool->secret));
	memzero_explicit(pool->seed, sizeof(pool->seed));
	kfree(pool);
	module_put(THIS_MODULE);
}

static struct kvblk_pool *pool_alloc(const char *name)
{
	struct kvblk_pool *pool;
	int minor, cpu;

	pool = kzalloc(sizeof(*pool), GFP_KERNEL);
	if (!pool)
		return ERR_PTR(-ENOMEM);
	strscpy(pool->name, name, sizeof(pool->name));
	init_completion(&pool->users_done);
	mutex_init(&pool->admin);
	init_waitqueue_head(&pool->restore_wait);
	init_waitqueue_head(&pool->space_wait);
	init_waitqueue_head(&pool->settle_wait);
	spin_lock_init(&pool->bounce_lock);
	spin_lock_init(&pool->kill_gate);
	spin_lock_init(&pool->kill_lock);
	INIT_LIST_HEAD(&pool->link);
	INIT_LIST_HEAD(&pool->coming);
	INIT_DELAYED_WORK(&pool->tick, pool_tick);
	INIT_WORK(&pool->sweep_work, pool_sweep_work);
	INIT_WORK(&pool->rescue_work, kvblk_above->rescue);
	pool->tun = (struct kvblk_tunables) {
#define X(name, type, standard, least, most)	.name = (standard),
		KVBLK_TUNABLES(X)
#undef X
	};

	minor = ida_alloc_max(&pool_minors, POOL_MINORS - 1, GFP_KERNEL);
	if (minor < 0)
		goto free;
	pool->stats = alloc_percpu(struct kvblk_stats);
	pool->seg_gen = vzalloc(KVBLK_SEGS_MAX * sizeof(*pool->seg_gen));
	pool->landings = alloc_percpu(struct kvblk_landing);
	if (!pool->stats || !pool->seg_gen || !pool->landings)
		goto minor;
	for_each_possible_cpu(cpu) {
		struct kvblk_landing *landing = per_cpu_ptr(pool->landings, cpu);

		spin_lock_init(&landing->lock);
		INIT_LIST_HEAD(&landing->waiting);
	}
	if (percpu_ref_init(&pool->users, users_release, 0, GFP_KERNEL))
		goto minor;
	if (kvblk_above->pool_init(pool))
		goto users;
	/* until all members are there */
	pool->dying = true;
	__module_get(THIS_MODULE);
	device_initialize(&pool->dev);
	pool->dev.class = &pools_class;
	pool->dev.groups = kvblk_above->groups;
	pool->dev.release = pool_release;
	pool->dev.devt = MKDEV(MAJOR(pools_devt), minor);
	cdev_init(&pool->cdev, kvblk_above->fops);
	pool->cdev.owner = THIS_MODULE;
	return pool;

users:
	percpu_ref_exit(&pool->users);
minor:
	vfree(pool->seg_gen);
	free_percpu(pool->landings);
	free_percpu(pool->stats);
	ida_free(&pool_minors, minor);
free:
	kfree(pool);
	return ERR_PTR(-ENOMEM);
}

static bool name_valid(const char *name)
{
	const char *c;

	if (!isalnum(name[0]) || strlen(name) >= KVBLK_NAME_MAX)
		return false;
	for (c = name; *c; c++)
		if (!isalnum(*c) && *c != '_' && *c != '-' && *c != '.')
			return false;
	return true;
}

/* Members on their way into a new pool. */
struct pool_parts {
	struct kvblk_member *members[KVBLK_MEMBERS_MAX];
	struct kvblk_d_super *supers[KVBLK_MEMBERS_MAX];
	enum kvblk_found found[KVBLK_MEMBERS_MAX];
	struct kvblk_d_super *newest;	/* of this pool, NULL: a new one */
	u64 epoch;			/* the largest */
};

/*
 * The life that a member's blocks are of: what it was last active in. An
 * activation that got no further than superblocks is none.
 */
struct life {
	u64 epoch;
	u64 activation;
};

static struct life super_life(const struct kvblk_d_super *sb)
{
	bool prev = le16_to_cpu(sb->state) == KVBLK_SB_ACTIVATING;

	return (struct life) {
		.epoch = le64_to_cpu(prev ? sb->prev_epoch : sb->epoch),
		.activation = le64_to_cpu(prev ? sb->prev_activation :
						 sb->activation),
	};
}

/*
 * Of the newest life, or about to be when that began. Deletes may have passed
 * by any other member, so it gets a new life.
 */
static bool super_current(const struct kvblk_d_super *sb,
			  const struct kvblk_d_super *newest)
{
	struct life life = super_life(sb), now = super_life(newest);

	return (life.epoch == now.epoch && life.activation == now.activation) ||
	       (le64_to_cpu(sb->epoch) == now.epoch &&
		le64_to_cpu(sb->activation) == now.activation);
}

/* Opens the devices and finds out what the pool is. Changes nothing on them. */
static int pool_survey(struct kvblk_pool *pool, struct pool_parts *parts,
		       const struct kvblk_member_spec *specs, u32 nr, u32 flags,
		       struct netlink_ext_ack *extack)
{
	u32 i, j;

	for (i = 0; i < nr; i++) {
		struct kvblk_d_super *sb = vmalloc(sizeof(*sb));
		struct kvblk_member *member;

		parts->supers[i] = sb;
		if (!sb)
			return -ENOMEM;
		for (j = 0; j < i; j++)
			if (!strcmp(parts->members[j]->name, kbasename(specs[i].path))) {
				NL_SET_ERR_MSG_FMT(extack, "%s is named twice",
						   parts->members[j]->name);
				return -EEXIST;
			}
		member = kvblk_member_open(pool, &specs[i], sb, &parts->found[i],
					   extack);
		if (IS_ERR(member))
			return PTR_ERR(member);
		parts->members[i] = member;
		if (flags & KVBLK_ADD_FORMAT)
			continue;
		if (parts->found[i] == KVBLK_FOUND_DAMAGED) {
			NL_SET_ERR_MSG_FMT(extack, "%s has damaged superblocks: say \"format\" to overwrite it",
					   member->name);
			return -EUCLEAN;
		}
		if (parts->found[i] == KVBLK_FOUND_OTHER ||
		    (parts->found[i] == KVBLK_FOUND_MEMBER &&
		     strcmp(sb->pool_name, pool->name))) {
			NL_SET_ERR_MSG_FMT(extack, "%s holds other data: say \"format\" to overwrite it",
					   member->name);
			return -ENOTEMPTY;
		}
		if (parts->found[i] != KVBLK_FOUND_MEMBER)
			continue;
		if (kvblk_member_active(sb->member_uuid)) {
			NL_SET_ERR_MSG_FMT(extack, "%s is a copy of an active member: say \"format\" to make it a new one",
					   member->name);
			return -EEXIST;
		}
		for (j = 0; j < i; j++)
			if (parts->found[j] == KVBLK_FOUND_MEMBER &&
			    !memcmp(parts->supers[j]->member_uuid, sb->member_uuid, 16)) {
				NL_SET_ERR_MSG_FMT(extack, "%s is a copy of %s: take one of them",
						   member->name, parts->members[j]->name);
				return -EEXIST;
			}
		if (kvblk_super_owned(member, sb, flags, extack))
			return -EREMOTE;
		if (!parts->newest || super_life(sb).epoch >
				      super_life(parts->newest).epoch)
			parts->newest = sb;
		parts->epoch = max(parts->epoch, le64_to_cpu(sb->epoch));
	}
	for (i = 0; i < nr; i++)
		if (parts->newest && parts->found[i] == KVBLK_FOUND_MEMBER &&
		    memcmp(parts->supers[i]->pool_uuid, parts->newest->pool_uuid, 16)) {
			NL_SET_ERR_MSG_FMT(extack, "%s belongs to another pool of this name",
					   parts->members[i]->name);
			return -ENOTEMPTY;
		}
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
		pool->epoch = parts->epoch + 1;
		pool->prev_epoch = super_life(sb).epoch;
		pool->prev_activation = super_life(sb).activation;
		pool->flags = le32_to_cpu(sb->pool_flags) & KVBLK_POOL_STRICT;
	} else {
		uuid_gen(&pool->uuid);
		get_random_bytes(pool->seed, sizeof(pool->seed));
		pool->birth = ktime_get_real_seconds();
		pool->epoch = 1;
	}
	/*
	 * Newer than all that any member holds, without having looked: seqs of an
	 * activation begin with its epoch.
	 */
	atomic64_set(&pool->seq, pool->epoch << KVBLK_SEQ_EPOCH_SHIFT);
	kvblk_secret_derive(&pool->secret, pool->seed);
}

/* Small pools may hold small blocks; large ones pay for 1 MiB ones. */
static u64 default_slots(u64 capacity)
{
	return max3(min(capacity >> 14, 1ull << 22), capacity >> 20, 1ull << 12);
}

static int pool_index(struct kvblk_pool *pool, struct pool_parts *parts, u32 nr,
		      u64 slots, struct netlink_ext_ack *extack)
{
	u64 capacity = 0;
	u32 i;

	for (i = 0; i < nr; i++)
		capacity += parts->members[i]->size;
	if (!slots)
		slots = default_slots(capacity);
	if (slots < 64 || slots > 1ull << 36) {
		NL_SET_ERR_MSG(extack, "index slots must be 64 to 2^36");
		return -EINVAL;
	}
	if (kvblk_index_init(&pool->index, slots, pool->seg_gen, KVBLK_SEGS_MAX) ||
	    kvblk_policy_init(&pool->policy, capacity, slots)) {
		NL_SET_ERR_MSG(extack, "no memory for the index: ask for fewer index slots");
		return -ENOMEM;
	}
	pool->index.pinned = pool->pinned;
	pool->index.pinned_shift = KVBLK_GRANULE_SHIFT;
	return 0;
}

/* Removes what kvblk_member_start() made visible, and frees the rest. */
static void parts_free(struct kvblk_pool *pool, struct pool_parts *parts, u32 nr,
		       bool failed)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		struct kvblk_member *member = parts->members[i];

		vfree(parts->supers[i]);
		if (!failed || IS_ERR_OR_NULL(member))
			continue;
		if (member->slot &&
		    rcu_access_pointer(pool->members[member->slot - 1]) == member) {
			kvblk_member_stop(member);
			kvblk_above->member_down(member);
			RCU_INIT_POINTER(pool->members[member->slot - 1], NULL);
			synchronize_rcu();
		}
		kvblk_member_free(member);
	}
	kfree(parts);
}

/* Pools being made, whose names are taken. Under kvblk_pools_lock. */
static LIST_HEAD(pools_coming);

static bool pool_listed(const struct list_head *list, const char *name)
{
	struct kvblk_pool *pool;

	lockdep_assert_held(&kvblk_pools_lock);
	list_for_each_entry(pool, list, link)
		if (!strcmp(pool->name, name))
			return true;
	return false;
}

/* 0: the name is the pool's. */
static int pool_reserve(struct kvblk_pool *pool, struct netlink_ext_ack *extack)
{
	guard(mutex)(&kvblk_pools_lock);
	if (pool_listed(&pools_coming, pool->name)) {
		NL_SET_ERR_MSG_FMT(extack, "a pool %s is being created already",
				   pool->name);
		return -EEXIST;
	}
	if (pool_listed(&kvblk_pools, pool->name)) {
		NL_SET_ERR_MSG_FMT(extack, "there is a pool %s already", pool->name);
		return -EEXIST;
	}
	list_add_tail(&pool->link, &pools_coming);
	return 0;
}

static void pool_unlist(struct kvblk_pool *pool)
{
	guard(mutex)(&kvblk_pools_lock);
	list_del(&pool->link);
}

int kvblk_pool_create(const char *name, u32 pool_flags, u64 index_slots,
		      const struct kvblk_member_spec *specs, u32 nr_specs,
		      u32 add_flags, struct netlink_ext_ack *extack)
{
	struct pool_parts *parts;
	struct kvblk_pool *pool;
	int err;
	u32 i;

	if (!name_valid(name)) {
		NL_SET_ERR_MSG(extack, "pool names are 1 to 31 of A-Z a-z 0-9 _ - . and begin with a letter or digit");
		return -EINVAL;
	}
	if (!nr_specs || nr_specs > KVBLK_MEMBERS_MAX) {
		NL_SET_ERR_MSG(extack, "a pool needs 1 to 64 members");
		return -EINVAL;
	}
	parts = kzalloc(sizeof(*parts), GFP_KERNEL);
	if (!parts)
		return -ENOMEM;
	pool = pool_alloc(name);
	if (IS_ERR(pool)) {
		kfree(parts);
		return PTR_ERR(pool);
	}
	err = pool_reserve(pool, extack);
	if (err)
		goto put;
	/*
	 * A few works for each member, none of which may wait for another one.
	 * Freezable: what is written behind a hibernation image would contradict
	 * the image.
	 */
	pool->wq = alloc_workqueue("kvblk-%s", WQ_UNBOUND | WQ_FREEZABLE,
				   8 * KVBLK_MEMBERS_MAX, name);
	if (!pool->wq) {
		err = -ENOMEM;
		goto unlist;
	}

	err = pool_survey(pool, parts, specs, nr_specs, add_flags, extack);
	if (!err) {
		pool_identity(pool, parts);
		pool->flags |= pool_flags;
		err = pool_index(pool, parts, nr_specs, index_slots, extack);
	}
	for (i = 0; i < nr_specs && !err; i++) {
		bool ours = parts->newest &&
			    parts->found[i] == KVBLK_FOUND_MEMBER &&
			    super_current(parts->supers[i], parts->newest);

		err = kvblk_member_setup(parts->members[i],
					 ours ? parts->supers[i] : NULL,
					 specs[i].segment_size, extack);
	}
	if (err)
		goto free;

	err = dev_set_name(&pool->dev, "%s", name);
	if (!err)
		err = cdev_device_add(&pool->cdev, &pool->dev);
	if (err) {
		NL_SET_ERR_MSG(extack, "the pool's device node can't be made");
		goto free;
	}
	err = kvblk_above->pool_up(pool);
	if (err)
		goto del;
	/* a crash between the two passes leaves no member of the past behind */
	for (i = 0; i < nr_specs && !err; i++) {
		err = kvblk_member_place(parts->members[i], extack);
		if (!err)
			err = kvblk_member_prepare(parts->members[i],
						   KVBLK_SB_ACTIVATING, extack);
	}
	for (i = 0; i < nr_specs && !err; i++)
		err = kvblk_member_start(parts->members[i], extack);
	if (err)
		goto sysfs;
	queue_delayed_work(pool->wq, &pool->tick, HZ);
	/* from now on it may be destroyed */
	get_device(&pool->dev);
	mutex_lock(&kvblk_pools_lock);
	list_move_tail(&pool->link, &kvblk_pools);
	WRITE_ONCE(pool->dying, false);
	mutex_unlock(&kvblk_pools_lock);
	parts_free(pool, parts, nr_specs, false);
	dev_info(&pool->dev, "up, %u members, epoch %llu\n", pool->nr_members,
		 pool->epoch);
	kvblk_event(pool, NULL, KVBLK_EVENT_POOL_UP, 0);
	put_device(&pool->dev);
	return 0;

sysfs:
	percpu_ref_kill(&pool->users);
	/* those that have failed are needless now */
	kvblk_kill_retry(pool);
	wait_for_completion_state(&pool->users_done, TASK_IDLE);
	parts_free(pool, parts, nr_specs, true);
	parts = NULL;
	kvblk_above->pool_down(pool);
del:
	cdev_device_del(&pool->cdev, &pool->dev);
free:
	if (parts)
		parts_free(pool, parts, nr_specs, true);
	parts = NULL;
	destroy_workqueue(pool->wq);
unlist:
	pool_unlist(pool);
put:
	kfree(parts);
	put_device(&pool->dev);
	return err;
}

/* ---- going ---- */

static void pool_teardown(struct kvblk_pool *pool)
{
	struct kvblk_member *member;
	int i;

	kvblk_event(pool, NULL, KVBLK_EVENT_POOL_DOWN, 0);
	/* every holder of the lock that has not seen pool->dying is done after this */
	mutex_lock(&pool->admin);
	mutex_unlock(&pool->admin);
	percpu_ref_kill(&pool->users);
	/* operations, detached ones too, kills and member removals */
	wait_for_completion_state(&pool->users_done, TASK_IDLE);
	cancel_delayed_work_sync(&pool->tick);
	cancel_work_sync(&pool->lease_work);
	cancel_work_sync(&pool->sweep_work);
	cdev_device_del(&pool->cdev, &pool->dev);
	for (i = 0; i < KVBLK_MEMBERS_MAX; i++) {
		member = rcu_dereference_protected(pool->members[i], true);
		if (!member)
			continue;
		/* callers that are still there may look for a way to their memory */
		cmpxchg(&member->state, KVBLK_MEMBER_UP, KVBLK_MEMBER_REMOVING);
		cancel_work_sync(&member->reclaim_work);
		percpu_ref_kill(&member->ref);
		wait_for_completion_state(&member->ref_done, TASK_IDLE);
		kvblk_member_stop(member);
		cancel_delayed_work_sync(&member->dead);
	}
	for (i = 0; i < KVBLK_MEMBERS_MAX; i++) {
		member = rcu_dereference_protected(pool->members[i], true);
		if (!member)
			continue;
		if (member->state != KVBLK_MEMBER_DEAD && !member->suspect &&
		    kvblk_super_write(member, KVBLK_SB_CLEAN, pool->epoch))
			dev_err(&pool->dev, "member %s: superblock can't be written\n",
				member->name);
	}
	for (i = 0; i < KVBLK_MEMBERS_MAX; i++) {
		member = rcu_dereference_protected(pool->members[i], true);
		if (!member)
			continue;
		kvblk_above->member_down(member);
		/* a removal may still look at which members know the epoch */
		mutex_lock(&pool->admin);
		RCU_INIT_POINTER(pool->members[i], NULL);
		mutex_unlock(&pool->admin);
		synchronize_rcu();
		kvblk_member_free(member);
	}
	kvblk_above->pool_down(pool);
	destroy_workqueue(pool->wq);
	/* the name stays taken until now */
	pool_unlist(pool);
	put_device(&pool->dev);
}

int kvblk_pool_destroy(const char *name, bool force, struct netlink_ext_ack *extack)
{
	struct kvblk_pool *pool = NULL, *each;

	mutex_lock(&kvblk_pools_lock);
	list_for_each_entry(each, &kvblk_pools, link)
		if (!strcmp(each->name, name))
			pool = each;
	if (!pool) {
		mutex_unlock(&kvblk_pools_lock);
		NL_SET_ERR_MSG_FMT(extack, "there is no pool %s", name);
		return -ENOENT;
	}
	if (pool->dying) {
		mutex_unlock(&kvblk_pools_lock);
		NL_SET_ERR_MSG(extack, "the pool is being destroyed already");
		return -EALREADY;
	}
	WRITE_ONCE(pool->dying, true);
	smp_mb(); /* pairs with kvblk_open_node() */
	if (atomic_read(&pool->open_files) && !force) {
		WRITE_ONCE(pool->dying, false);
		mutex_unlock(&kvblk_pools_lock);
		NL_SET_ERR_MSG(extack, "the pool's device node is open: close it, or say \"force\"");
		return -EBUSY;
	}
	mutex_unlock(&kvblk_pools_lock);

	pool_teardown(pool);
	return 0;
}

/* ---- the module's ---- */

int kvblk_pools_init(const struct kvblk_above *above)
{
	int err = alloc_chrdev_region(&pools_devt, 0, POOL_MINORS, "kvblk");

	if (err)
		return err;
	kvblk_above = above;
	err = class_register(&pools_class);
	if (err)
		unregister_chrdev_region(pools_devt, POOL_MINORS);
	return err;
}

void kvblk_pools_exit(void)
{
	class_unregister(&pools_class);
	unregister_chrdev_region(pools_devt, POOL_MINORS);
}
