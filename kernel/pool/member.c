// SPDX-License-Identifier: GPL-2.0
/*
 * Members: the block devices of a pool, from open to removal.
 *
 *   RESTORING -> UP -> REMOVING -> gone
 *           \     \-> DEAD (device gone) -> REMOVING
 *            \-> UNRESTORED (can't be read now) -> REMOVING, DEAD
 *
 * - A member holds its device exclusively from open to free. The device is overwritten only
 *   if it is blank, or if the administrator passed "format".
 * - A member that missed an activation, or a sibling's removal or death, has an older epoch:
 *   deletes may have missed its blocks. It is rejected unless a filter recorded those deletes
 *   (log/missing.c). An unreadable member is current until a delete must know its blocks.
 * - Members do not wait for each other: each has its own background work.
 */
#include <linux/ctype.h>
#include <linux/netlink.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "pool/pool.h"
#include "p2p/p2p.h"

/* ---- the device ---- */

static void member_mark_dead(struct block_device *bdev, bool surprise)
{
	lockdep_assert_held(&bdev->bd_holder_lock);
	/* the lock keeps the member alive: its free begins with bdev_fput(), which needs it */
	kvblk_missing_dies(bdev->bd_holder);
	kvblk_member_dies(bdev->bd_holder);
	mutex_unlock(&bdev->bd_holder_lock);
}

static const struct blk_holder_ops member_holder_ops = {
	.mark_dead = member_mark_dead,
};

static void member_dead_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(to_delayed_work(work),
						   struct kvblk_member, dead);
	struct kvblk_pool *pool = member->flash.pool;

	/* do not block on the mutex, because kvblk_member_free() waits for this work */
	if (READ_ONCE(pool->dying) || !mutex_trylock(&pool->admin)) {
		queue_delayed_work(pool->wq, &member->dead, HZ / 10);
		return;
	}
	dev_warn(&pool->dev, "member %s: device %s lost; gets of its blocks miss; reconnect the device (%s), then run: kvblk member add\n",
		 member->flash.name, member->flash.device,
		 member->flash.place[0] ? member->flash.place : member->flash.path);
	kvblk_event(pool, &member->flash, KVBLK_EVENT_MEMBER_DEAD, 0);
	kvblk_kill_retry(pool);
	/* deletes no longer reach this member: make its recorded epoch an old one */
	WRITE_ONCE(pool->epoch, pool->epoch + 1);
	member->outdated = true;
	kvblk_pool_write_epoch(pool);
	mutex_unlock(&pool->admin);
}

static void flash_ref_release(struct percpu_ref *ref)
{
	complete(&container_of(ref, struct kvblk_flash, ref)->ref_done);
}

int kvblk_flash_init(struct kvblk_flash *flash, struct kvblk_pool *pool,
		     const struct kvblk_flash_ops *ops, struct kvblk_member_spec *spec)
{
	int err;

	flash->pool = pool;
	flash->ops = ops;
	flash->path = no_free_ptr(spec->path);
	strscpy(flash->place, spec->place);
	init_completion(&flash->ref_done);
	atomic_set(&flash->write_errors, 1);
	INIT_WORK(&flash->p2p.work, kvblk_p2p_work);
	flash->p2p.next = jiffies;
	kvblk_watch_init(flash);
	flash->last_get = jiffies - HZ;
	flash->burst_since = jiffies;
	flash->stats = &pool->stats->own;
	err = kvblk_io_flash_init(flash);
	if (err)
		return err;
	flash->ios = alloc_percpu(struct kvblk_ios);
	return flash->ios && !percpu_ref_init(&flash->ref, flash_ref_release, 0, GFP_KERNEL) ?
	       0 : -ENOMEM;
}

static void flash_name(struct kvblk_flash *flash, const char *given)
{
	const char *last = kbasename(flash->path);
	char *c = flash->name;

	if (given[0]) {
		strscpy(flash->name, given);
	} else if (kvblk_name_valid((const u8 *)last, sizeof(flash->name))) {
		strscpy(flash->name, last);
	} else {
		strscpy(flash->name, flash->device);
		for (; *c; c++)
			if (!isascii(*c) || (!isalnum(*c) && *c != '-' && *c != '.'))
				*c = '_';
		if (!isalnum(flash->name[0]))
			flash->name[0] = 'd';
	}
}

void kvblk_flash_open(struct kvblk_flash *flash, struct file *file, const char *name)
{
	struct block_device *bdev = file_bdev(file);

	flash->bdev_file = file;
	flash->bdev = bdev;
	flash->dev = bdev->bd_dev;
	snprintf(flash->device, sizeof(flash->device), "%pg", bdev);
	flash_name(flash, name);
	flash->size = round_down(bdev_nr_bytes(bdev), KVBLK_UNIT);
}

void kvblk_flash_exit(struct kvblk_flash *flash)
{
	kvblk_io_flash_exit(flash);
	percpu_ref_exit(&flash->ref);
	free_percpu(flash->ios);
	kfree(flash->path);
}

/* Check the device's limits, and choose the alignment of records. */
static int member_suits(struct kvblk_member *member, struct netlink_ext_ack *extack)
{
	struct block_device *bdev = member->flash.bdev;
	u32 align;

	if (bdev_read_only(bdev))
		return kvblk_refuse(extack, -EACCES, "%s is read-only", member->flash.name);
	if (bdev_logical_block_size(bdev) > KVBLK_UNIT)
		return kvblk_refuse(extack, -EINVAL, "%.16s has logical blocks over 4 KiB: choose another LBA format",
				    member->flash.name);
	if (bdev_is_zoned(bdev))
		return kvblk_refuse(extack, -EINVAL, "%s is zoned, which is not supported",
				    member->flash.name);
	align = max3(KVBLK_UNIT, bdev_physical_block_size(bdev), (u32)bdev_io_min(bdev));
	/* io_min may be a RAID's stripe size, which is only a preference */
	if (!is_power_of_2(align) || align > 65536)
		align = KVBLK_UNIT;
	member->flash.record_align = align;
	return 0;
}

struct kvblk_member *kvblk_member_open(struct kvblk_pool *pool, struct kvblk_member_spec *spec,
				       struct netlink_ext_ack *extack)
{
	struct kvblk_member *member;
	struct file *file;
	int err;

	member = kzalloc(sizeof(*member), GFP_KERNEL);
	if (!member)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&member->log.lock);
	mutex_init(&member->log.table_lock);
	INIT_LIST_HEAD(&member->log.ready);
	INIT_LIST_HEAD(&member->log.free);
	member->log.sealed = RB_ROOT_CACHED;
	INIT_LIST_HEAD(&member->log.failed);
	INIT_LIST_HEAD(&member->log.resting);
	INIT_LIST_HEAD(&member->log.retiring);
	INIT_LIST_HEAD(&member->log.closing);
	INIT_LIST_HEAD(&member->log.kills.list);
	kvblk_throttle_member_init(member);
	INIT_WORK(&member->log.work, kvblk_log_work);
	INIT_WORK(&member->log.reclaim_work, kvblk_reclaim_work);
	INIT_WORK(&member->log.restore, kvblk_member_restore);
	INIT_WORK(&member->log.kills.work, kvblk_kill_work);
	INIT_WORK(&member->log.super_work, kvblk_super_work);
	INIT_WORK(&member->flash.fence.work, kvblk_fence_work);
	INIT_DELAYED_WORK(&member->dead, member_dead_work);
	INIT_DELAYED_WORK(&member->log.checkpoint, kvblk_checkpoint_work);
	member->log.kills.retry = jiffies;
	/* first, because kvblk_member_free() ends the works that are initialized here */
	err = kvblk_flash_init(&member->flash, pool, &kvblk_log_flash_ops, spec);
	if (err)
		goto free;
	member->log.super = vzalloc(sizeof(*member->log.super));
	err = -ENOMEM;
	if (!member->log.super)
		goto free;

	file = bdev_file_open_by_dev(spec->dev, BLK_OPEN_READ | BLK_OPEN_WRITE,
				     member, &member_holder_ops);
	if (IS_ERR(file)) {
		err = PTR_ERR(file);
		if (err == -EBUSY)
			NL_SET_ERR_MSG_FMT(extack, "%.32s is in use (mounted, or held by another driver)",
					   kbasename(member->flash.path));
		else
			NL_SET_ERR_MSG_FMT(extack, "%.32s cannot be opened for writing (error %d)",
					   kbasename(member->flash.path), err);
		goto free;
	}
	kvblk_flash_open(&member->flash, file, spec->name);
	err = member_suits(member, extack);
	if (err)
		goto free;
	err = kvblk_super_read(member);
	if (!err)
		return member;
	NL_SET_ERR_MSG_FMT(extack, "the superblocks of %.28s cannot be read (error %d)",
			   member->flash.name, err);
free:
	kvblk_member_free(member);
	return ERR_PTR(err);
}

void kvblk_member_free(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;
	u32 i;

	/* no mark_dead callback runs after bdev_fput() */
	if (member->flash.bdev_file) {
		kvblk_fence_drop(&member->flash);
		bdev_fput(member->flash.bdev_file);
	}
	cancel_delayed_work_sync(&member->dead);
	/* member_mark_dead() counted a member that never joined the pool */
	if (member->unsure && !member->removing)
		atomic_dec(&pool->unsure);
	cancel_work_sync(&member->log.work);
	cancel_work_sync(&member->log.reclaim_work);
	cancel_work_sync(&member->log.kills.work);
	kvblk_throttle_member_exit(member);
	kvblk_flash_exit(&member->flash);
	for (i = 0; member->log.segs && i < member->flash.nr_segs; i++)
		kvblk_open_free(member->log.segs[i].open);
	if (member->flash.slot) {
		guard(mutex)(&pool->admin);
		memset(&pool->granule[member->flash.seg_base >> KVBLK_GRANULE_SHIFT], 0,
		       DIV_ROUND_UP(member->flash.nr_segs, 1u << KVBLK_GRANULE_SHIFT));
	}
	kvfree(member->log.segs);
	kvfree(member->log.table_seq);
	kvfree(member->log.anchors_due);
	kvfree(member->log.anchors);
	vfree(member->log.super);
	free_page((unsigned long)member->log.table_buf);
	free_page((unsigned long)member->log.change_page);
	free_page((unsigned long)member->log.change_page_buf);
	kfree(member);
}

/* ---- format and superblocks ---- */

int kvblk_found_unfit(struct kvblk_member *member, u32 add_flags, struct netlink_ext_ack *extack)
{
	const struct kvblk_d_super *sb = member->log.super;
	u8 found = member->found;

	if ((found == KVBLK_FOUND_MEMBER || found == KVBLK_FOUND_FORMER) &&
	    kvblk_member_active(sb->member_uuid))
		return kvblk_refuse(extack, -EEXIST, "%.24s is another path to a member in use, or a copy of it",
				    member->flash.name);
	if (add_flags & KVBLK_ADD_FORMAT)
		return 0;
	if (found == KVBLK_FOUND_FORMER)
		return kvblk_refuse(extack, -ENOTEMPTY, "%.16s was a member, but holds other data now: check with \"wipefs -n\"",
				    member->flash.name);
	if (found == KVBLK_FOUND_SHRUNK)
		return kvblk_refuse(extack, -ENOSPC, "%.18s has %llu MiB, had %llu as a member: enlarge it",
				    member->flash.name, member->flash.size >> 20,
				    le64_to_cpu(sb->size) >> 20);
	if (found == KVBLK_FOUND_DAMAGED)
		return kvblk_refuse(extack, -EUCLEAN, "%.16s has damaged superblocks: check the device; \"format\" erases it",
				    member->flash.name);
	if (found == KVBLK_FOUND_NEWER)
		return kvblk_refuse(extack, -EPROTONOSUPPORT, "%.24s is of another version of kvblk: use that version",
				    member->flash.name);
	return 0;
}

/* Take a slot and segment numbers. */
static int member_place(struct kvblk_member *member, struct netlink_ext_ack *extack)
{
	struct kvblk_stats __percpu *stats = alloc_percpu(struct kvblk_stats);
	struct kvblk_pool *pool = member->flash.pool;
	u32 want = DIV_ROUND_UP(member->flash.nr_segs, 1u << KVBLK_GRANULE_SHIFT);
	u32 slot, at, run = 0;

	if (!stats)
		return kvblk_refuse(extack, -ENOMEM, "no memory for the member's counters");
	guard(mutex)(&pool->admin);
	for (slot = 0; slot < KVBLK_MEMBERS_MAX; slot++)
		if (!memchr(pool->granule, slot + 1, KVBLK_GRANULES))
			break;
	for (at = 0; at < KVBLK_GRANULES && run < want; at++)
		run = pool->granule[at] ? 0 : run + 1;
	if (slot == KVBLK_MEMBERS_MAX || run < want) {
		free_percpu(stats);
		if (slot == KVBLK_MEMBERS_MAX)
			return kvblk_refuse(extack, -ENOSPC, "the pool is full: it has 64 members; remove one");
		return kvblk_refuse(extack, -ENOSPC, "the pool cannot take %u more segments: pass a larger segment size",
				    member->flash.nr_segs);
	}
	member->flash.slot = slot + 1;
	member->flash.seg_base = (at - want) << KVBLK_GRANULE_SHIFT;
	kvblk_stats_join(member, stats);
	memset(&pool->granule[at - want], member->flash.slot, want);
	return 0;
}

int kvblk_member_setup(struct kvblk_member *member, bool new, u32 segment_size,
		       struct netlink_ext_ack *extack)
{
	struct kvblk_d_super *sb = member->log.super;
	struct kvblk_pool *pool = member->flash.pool;
	u64 seg = segment_size, nr, least;
	u32 i;

	/* followers rely on what the device says, until it is written and longer */
	if (kvblk_super_in_pod(sb))
		WRITE_ONCE(pool->grace, max3(pool->grace, le32_to_cpu(sb->reuse_grace),
					     le32_to_cpu(sb->held_grace)));
	if (!new) {
		member->flash.segment_units = le32_to_cpu(sb->segment_units);
		member->flash.nr_segs = le32_to_cpu(sb->nr_segments);
		member->flash.data_start = le64_to_cpu(sb->data_start);
		member->flash.record_align = le32_to_cpu(sb->record_align);
		member->flash.short_crc = le32_to_cpu(sb->incompat) & KVBLK_SB_IN_SHORT_CRC;
		member->flash.incarnation = le64_to_cpu(sb->incarnation);
		member->log.epoch = le64_to_cpu(sb->epoch);
		member->log.activation = le64_to_cpu(sb->activation);
		member->log.sb_seq = le64_to_cpu(sb->seq);
		import_uuid(&member->flash.uuid, sb->member_uuid);
	} else {
		if (seg && (!is_power_of_2(seg) || seg < KVBLK_SEGMENT_MIN ||
			    seg > KVBLK_SEGMENT_MAX))
			return kvblk_refuse(extack, -EINVAL, "invalid segment size: a power of two from 8 MiB to 1 GiB");
		if (!seg)
			seg = kvblk_default_segment(member->flash.size);
		member->flash.data_start = kvblk_data_start(member->flash.size, seg);
		nr = kvblk_nr_segments(member->flash.size, seg);
		if (nr < KVBLK_MEMBER_SEGS_MIN) {
			least = KVBLK_MEMBER_SEGS_MIN * seg + member->flash.data_start;
			return kvblk_refuse(extack, -EINVAL, "%.17s is too small (%llu MiB): %u segments need %llu MiB",
					    member->flash.name, member->flash.size >> 20,
					    KVBLK_MEMBER_SEGS_MIN, least >> 20);
		}
		if (nr > KVBLK_SEGS_MAX)
			return kvblk_refuse(extack, -EINVAL, "%.20s would have over 2^20 segments: pass a larger segment size",
					    member->flash.name);
		member->flash.nr_segs = nr;
		member->flash.segment_units = seg >> KVBLK_UNIT_SHIFT;
		member->flash.incarnation = get_random_u64();
		member->flash.short_crc = true;
		member->log.formatted = true;
		uuid_gen(&member->flash.uuid);
		/* a returning member's super preserves the fields of later versions */
		memset(sb, 0, sizeof(*sb));
	}
	if (member->flash.nr_segs > KVBLK_SEGS_MAX)
		return kvblk_refuse(extack, -EINVAL, "%.20s has over 2^20 segments, more than this version supports",
				    member->flash.name);
	member->log.nr_logs = clamp(min(member->flash.nr_segs / 32, num_possible_cpus()), 1u,
				    (u32)KVBLK_LOGS_NEW);
	member->log.segs = kvcalloc(member->flash.nr_segs, sizeof(*member->log.segs), GFP_KERNEL);
	member->log.table_seq = kvcalloc(DIV_ROUND_UP(member->flash.nr_segs, KVBLK_TABLE_ENTRIES),
					 sizeof(u64), GFP_KERNEL);
	member->log.table_buf = (void *)get_zeroed_page(GFP_KERNEL);
	if (!member->log.segs || !member->log.table_seq || !member->log.table_buf ||
	    kvblk_change_page_init(member))
		return -ENOMEM;
	for (i = 0; i < member->flash.nr_segs; i++) {
		INIT_LIST_HEAD(&member->log.segs[i].link);
		member->log.segs[i].gen = 1;
	}
	return member_place(member, extack) ?:
	       kvblk_accounts_grow(pool, member->flash.seg_base, member->flash.nr_segs);
}

/* ---- addition ---- */

int kvblk_member_list(struct kvblk_member *member, const struct kvblk_member_spec *spec,
		      struct netlink_ext_ack *extack)
{
	int err = kvblk_member_list_add(member->flash.pool, member, spec->name[0]);

	if (!err)
		return 0;
	if (err == -EEXIST)
		return kvblk_refuse(extack, err, "the pool has a member %.18s, present or missing: pass another name",
				    member->flash.name);
	return kvblk_refuse(extack, err, "the pool is full: it lists 64 members, missing ones included; remove one");
}

int kvblk_member_prepare(struct kvblk_member *member, u16 state, struct netlink_ext_ack *extack)
{
	struct kvblk_pool *pool = member->flash.pool;
	int err = 0;
	u32 i;

	if (member->log.formatted) {
		/* wipe first, or else a crash leaves old superblocks over new contents */
		err = kvblk_super_wipe_all(member) ? 0 : -EIO;
		for (i = 0; !err && i < member->flash.nr_segs; i += KVBLK_TABLE_ENTRIES)
			err = kvblk_table_write(member, i);
		for (i = 0; !err && i < member->flash.nr_segs; i++) {
			kvblk_segment_gen_set(pool, member->flash.seg_base + i,
					      (u16)member->log.segs[i].gen);
			cond_resched();
		}
	}
	/* a returning member's superblock must stay outdated until restore_settle() */
	if (!err && !member->log.missing)
		err = kvblk_super_write(member, state, READ_ONCE(pool->epoch));
	if (!err)
		return 0;
	return kvblk_refuse(extack, err, "%s cannot be written (error %d)",
			    member->flash.name, err);
}

int kvblk_member_start(struct kvblk_member *member, struct netlink_ext_ack *extack)
{
	struct kvblk_pool *pool = member->flash.pool;
	bool active = false;
	u64 epoch;
	int err;

	err = kvblk_upper_ops->member_up(member);
	if (err)
		return kvblk_refuse(extack, err, "the member's sysfs entry cannot be created (error %d)",
				    err);
	mutex_lock(&pool->admin);
	/* epoch and list may change during the write: publish only with the current ones */
	while (!member->log.missing &&
	       (member->log.epoch != pool->epoch || !active ||
		member->log.member_list_seq != READ_ONCE(pool->member_list_seq))) {
		epoch = pool->epoch;
		mutex_unlock(&pool->admin);
		err = kvblk_super_write(member, KVBLK_SB_ACTIVE, epoch);
		if (err) {
			kvblk_upper_ops->member_down(member);
			return kvblk_refuse(extack, err, "%s cannot be written (error %d)",
					    member->flash.name, err);
		}
		active = true;
		mutex_lock(&pool->admin);
	}
	/* name the drive once, because other messages have the member's name only */
	dev_info(&pool->dev, "member %s: on %s, %s, uuid %pUb\n", member->flash.name,
		 member->flash.device,
		 member->flash.place[0] ? member->flash.place : member->flash.path,
		 &member->flash.uuid);
	/* deletes need not wait for a returning member, see restore_record() */
	if (!member->log.missing)
		atomic_inc(&pool->restoring);
	/* followers may read what former owners or contents of the device had here */
	if (!member->log.formatted || member->found != KVBLK_FOUND_BLANK)
		WRITE_ONCE(member->log.reuse_from, kvblk_grace_end(pool));
	percpu_ref_get(&pool->users);
	rcu_assign_pointer(pool->members[member->flash.slot - 1], member);
	rcu_assign_pointer(pool->dense[pool->nr_members], member);
	WRITE_ONCE(pool->nr_members, pool->nr_members + 1);
	kvblk_pool_limits(pool);
	queue_work(pool->wq, &member->log.restore);
	/* count the member, perhaps the first to know the epoch */
	kvblk_pool_settle(pool);
	mutex_unlock(&pool->admin);
	return 0;
}

/* ---- removal ---- */

void kvblk_member_withdraw(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;
	u32 last = pool->nr_members - 1, i = 0;

	lockdep_assert_held(&pool->admin);
	RCU_INIT_POINTER(pool->members[member->flash.slot - 1], NULL);
	while (rcu_access_pointer(pool->dense[i]) != member)
		i++;
	/* puts meanwhile may find a member twice, or the last one not at all */
	rcu_assign_pointer(pool->dense[i],
			   rcu_dereference_protected(pool->dense[last], true));
	WRITE_ONCE(pool->nr_members, last);
	RCU_INIT_POINTER(pool->dense[last], NULL);
}

void kvblk_member_stop(struct kvblk_member *member)
{
	struct kvblk_segment *seg, *next;

	WRITE_ONCE(member->flash.state, member->flash.state == KVBLK_MEMBER_DEAD ?
		   KVBLK_MEMBER_DEAD : KVBLK_MEMBER_REMOVING);
	flush_work(&member->log.restore);
	/* p2p_work, probe and fence hold member->flash.ref */
	flush_work(&member->flash.p2p.work);
	flush_work(&member->flash.watchdog.probe);
	flush_work(&member->flash.fence.work);
	flush_work(&member->log.work);
	cancel_work_sync(&member->log.reclaim_work);
	cancel_delayed_work_sync(&member->log.checkpoint);
	kvblk_log_close(member);
	flush_work(&member->log.work);
	cancel_work_sync(&member->log.reclaim_work);
	cancel_delayed_work_sync(&member->log.checkpoint);
	list_for_each_entry_safe(seg, next, &member->log.ready, link) {
		seg->state = KVBLK_SEG_FREE;
		list_del_init(&seg->link);
		if (member->flash.state != KVBLK_MEMBER_DEAD)
			kvblk_table_write(member, seg - member->log.segs);
	}
}

static void member_remove_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member, remove);
	struct kvblk_pool *pool = member->flash.pool;
	/* do not wipe a member that may return (dead or still listed) */
	bool keep = member->flash.state == KVBLK_MEMBER_DEAD || !member->delisted, wiped;
	struct file *file;
	u32 i;

	/* finish restore, needless kills and reclaim: they hold or take member->flash.ref */
	flush_work(&member->log.restore);
	kvblk_kill_retry(pool);
	cancel_work_sync(&member->log.reclaim_work);
	percpu_ref_kill(&member->flash.ref);
	wait_for_completion_state(&member->flash.ref_done, TASK_IDLE);
	kvblk_member_stop(member);
	for (i = 0; i < member->flash.nr_segs; i++) {
		kvblk_segment_gen_set(pool, member->flash.seg_base + i,
				      (u16)(member->log.segs[i].gen + 1));
		cond_resched();
	}
	/* the segment numbers are reused */
	kvblk_pool_sweep(pool);
	kvblk_dram_forget_segments(pool, member->flash.seg_base, member->flash.nr_segs);
	wiped = !keep && kvblk_super_wipe(member);
	kvblk_fence_drop(&member->flash);

	kvblk_upper_ops->member_down(member);
	scoped_guard(mutex, &pool->admin) {
		file = member->flash.bdev_file;
		member->flash.bdev_file = NULL;
	}
	synchronize_rcu();
	/* close while the member is listed, because an unlisted device may be added again */
	bdev_fput(file);
	/* lock after the close, which tasks that open the disk can delay */
	mutex_lock(&pool->admin);
	if (member->delisted)
		kvblk_missing_end(pool, &member->flash.uuid);
	if (wiped)
		atomic_sub(kvblk_member_unsure_end(member), &pool->unsure);
	else
		pool->nr_lost += kvblk_member_unsure_end(member);
	kvblk_pool_settle(pool);
	if (!member->delisted && member->log.missing)
		member->log.missing->taken = false;
	kvblk_member_withdraw(member);
	kvblk_pool_limits(pool);
	mutex_unlock(&pool->admin);
	wake_up_all(&pool->settle_wait);
	synchronize_rcu();
	dev_info(&pool->dev, "member %s: removed\n", member->flash.name);
	kvblk_event(pool, &member->flash, KVBLK_EVENT_MEMBER_DOWN, 0);
	kvblk_member_free(member);
	percpu_ref_put(&pool->users);
}

/* Start to remove a member. @delist: for good, else its device is returning. */
static int leave_begin(struct kvblk_member *member, bool delist, struct netlink_ext_ack *extack)
{
	struct kvblk_pool *pool = member->flash.pool;

	lockdep_assert_held(&pool->admin);
	if (!percpu_ref_tryget_live(&pool->users))
		return kvblk_refuse(extack, -ENODEV, "the pool is being destroyed");
	member->removing = true;
	member->delisted = delist && kvblk_member_list_del(pool, &member->flash.uuid);
	/* count before the blocks become misses; a dead member is counted already */
	atomic_inc(&pool->unsure);
	/* in this order, because a restore may end between the two */
	if (cmpxchg(&member->flash.state, KVBLK_MEMBER_RESTORING, KVBLK_MEMBER_REMOVING) ==
	    KVBLK_MEMBER_RESTORING ||
	    cmpxchg(&member->flash.state, KVBLK_MEMBER_UP, KVBLK_MEMBER_REMOVING) ==
	    KVBLK_MEMBER_UP)
		member->unsure = true;
	else
		atomic_dec(&pool->unsure);
	WRITE_ONCE(pool->epoch, pool->epoch + 1);
	member->outdated = true;
	INIT_WORK(&member->remove, member_remove_work);
	queue_work(pool->wq, &member->remove);
	return 0;
}

/* A device that is being added; in pool->coming, under pool->admin. */
struct coming {
	struct list_head link;
	dev_t dev;
	uuid_t uuid;			/* of the member; zero until known */
};

static bool is_coming(struct kvblk_pool *pool, const uuid_t *uuid)
{
	struct coming *coming;

	lockdep_assert_held(&pool->admin);
	list_for_each_entry(coming, &pool->coming, link)
		if (uuid_equal(&coming->uuid, uuid))
			return true;
	return false;
}

static int remove_missing(struct kvblk_pool *pool, const char *name,
			  const uuid_t *uuid, struct netlink_ext_ack *extack)
{
	struct kvblk_d_member entry;
	struct kvblk_missing *missing;
	uuid_t own;
	u32 i;

	for (i = 0; i < KVBLK_SB_MEMBERS; i++) {
		if (!kvblk_member_list_missing(pool, i, &entry, NULL))
			continue;
		import_uuid(&own, entry.uuid);
		if (uuid ? !uuid_equal(&own, uuid) : strcmp(entry.name, name))
			continue;
		missing = kvblk_missing_get(pool, &own);
		if ((missing && missing->taken) || is_coming(pool, &own))
			return kvblk_refuse(extack, -EALREADY, "%s is being added", entry.name);
		kvblk_member_list_del(pool, &own);
		kvblk_missing_end(pool, &own);
		return 0;
	}
	if (uuid)
		return kvblk_refuse(extack, -ENOENT, "the pool has no member of this uuid");
	return kvblk_refuse(extack, -ENOENT, "the pool has no member %s", name);
}

static int remove_begin(struct kvblk_pool *pool, const char *name,
			const uuid_t *uuid, struct netlink_ext_ack *extack)
{
	struct kvblk_member *member;

	if (READ_ONCE(pool->dying))
		return kvblk_refuse(extack, -ENODEV, "the pool is being destroyed");
	member = kvblk_member_named(pool, name, uuid);
	if (!member)
		return remove_missing(pool, name, uuid, extack);
	if (member->removing)
		return kvblk_refuse(extack, -EALREADY, "%s is being removed already",
				    member->flash.name);
	return leave_begin(member, true, extack);
}

int kvblk_member_remove(struct kvblk_pool *pool, const char *name,
			const uuid_t *uuid, struct netlink_ext_ack *extack)
{
	int err;

	scoped_guard(mutex, &pool->admin)
		err = remove_begin(pool, name, uuid, extack);
	if (err)
		return err;
	kvblk_pool_write_supers(pool);
	guard(mutex)(&pool->admin);
	if (kvblk_pool_settle(pool) && atomic_read(&pool->unsure))
		NL_SET_ERR_MSG(extack, "member removed, but deletes fail until the other members can be written");
	return 0;
}

/* ---- addition to a running pool ---- */

/* Register the addition of a device. On success, the caller holds pool->users. */
static int add_begin(struct kvblk_pool *pool, struct coming *coming, struct netlink_ext_ack *extack)
{
	struct kvblk_member *member;
	struct coming *other;

	guard(mutex)(&pool->admin);
	/* check before the open, which the device's driver may block */
	kvblk_for_each_member(pool, member)
		if (member->flash.bdev_file && member->flash.bdev->bd_dev == coming->dev &&
		    READ_ONCE(member->flash.state) != KVBLK_MEMBER_DEAD)
			return kvblk_refuse(extack, -EEXIST, "the device is member %s of the pool already",
					    member->flash.name);
	list_for_each_entry(other, &pool->coming, link)
		if (other->dev == coming->dev)
			return kvblk_refuse(extack, -EALREADY, "the device is being added already");
	if (READ_ONCE(pool->dying) || !percpu_ref_tryget_live(&pool->users))
		return kvblk_refuse(extack, -ENODEV, "the pool is being destroyed");
	list_add(&coming->link, &pool->coming);
	return 0;
}

static bool add_former_gone(struct kvblk_pool *pool, const uuid_t *uuid)
{
	const struct kvblk_member *former;

	guard(rcu)();
	former = kvblk_member_named(pool, NULL, uuid);
	/* not removing: the former is a copy that was added first */
	return !former || !READ_ONCE(former->removing);
}

/* Return a returning member's filter, NULL: outdated. @former: its dead predecessor, or NULL. */
static struct kvblk_missing *add_known(const struct kvblk_member *member, const uuid_t *uuid,
				       const struct kvblk_member *former)
{
	const struct kvblk_d_super *sb = member->log.super;
	struct kvblk_pool *pool = member->flash.pool;
	struct kvblk_missing *missing;

	lockdep_assert_held(&pool->admin);
	/* RCU, because a restore may free @missing: see kvblk_missing_end() */
	guard(rcu)();
	missing = kvblk_missing_get(pool, uuid);
	if (!missing || (missing->taken && !former) ||
	    missing->incarnation != le64_to_cpu(sb->incarnation))
		return NULL;
	return kvblk_super_lived(sb, &missing->life) ? missing : NULL;
}

static int add_stale(const struct kvblk_member *member, struct netlink_ext_ack *extack)
{
	return kvblk_refuse(extack, -ESTALE, "%.18s is out of date: its blocks are stale; \"format\" adds it empty",
			    member->flash.name);
}

static int add_back(struct kvblk_member *member, u32 add_flags, struct netlink_ext_ack *extack)
{
	const struct kvblk_d_super *sb = member->log.super;
	struct kvblk_pool *pool = member->flash.pool;
	struct kvblk_missing *missing;
	struct kvblk_member *former;
	uuid_t uuid;
	int err = 0;

	import_uuid(&uuid, sb->member_uuid);
	scoped_guard(mutex, &pool->admin) {
		former = kvblk_member_named(pool, NULL, &uuid);
		missing = add_known(member, &uuid, former);
		if (!missing)
			return add_stale(member, extack);
		if (missing->clean && le16_to_cpu(sb->state) == KVBLK_SB_ACTIVE &&
		    !(add_flags & KVBLK_ADD_FORCE))
			return kvblk_refuse(extack, -ESTALE, "%.20s may be an old copy: add the newer one, or pass \"force\"",
					    member->flash.name);
		if (former && !former->removing)
			err = leave_begin(former, false, extack);
	}
	if (err)
		return err;
	/* wait for the former member's free, or else its sysfs name is still taken */
	wait_event_idle(pool->settle_wait, add_former_gone(pool, &uuid));
	guard(mutex)(&pool->admin);
	/* look again: the member may have been delisted, or a copy added, without the lock */
	member->log.missing = add_known(member, &uuid, NULL);
	if (!member->log.missing)
		return add_stale(member, extack);
	member->log.missing->taken = true;
	return 0;
}

static int add_check(struct kvblk_member *member, const struct kvblk_member_spec *spec,
		     u32 add_flags, struct netlink_ext_ack *extack)
{
	int err = kvblk_found_unfit(member, add_flags, extack);

	if (err || add_flags & KVBLK_ADD_FORMAT || member->found == KVBLK_FOUND_BLANK)
		return err;
	if (member->found != KVBLK_FOUND_MEMBER ||
	    memcmp(member->log.super->pool_uuid, &member->flash.pool->uuid, UUID_SIZE))
		return kvblk_refuse(extack, -ENOTEMPTY, "%.16s holds other data: use another device; \"format\" erases this one",
				    member->flash.name);
	if (spec->name[0])
		return kvblk_refuse(extack, -EINVAL, "%.24s is a returning member, which keeps its name: pass none",
				    kbasename(member->flash.path));
	return kvblk_super_owned(member, add_flags, NULL, extack) ?:
	       add_back(member, add_flags, extack);
}

/* Delist a missing member whose device was overwritten. */
static void add_overwrote(struct kvblk_pool *pool, const uuid_t *uuid)
{
	const struct kvblk_missing *missing;

	guard(mutex)(&pool->admin);
	missing = kvblk_missing_get(pool, uuid);
	/* present or being added: the overwritten device was a copy */
	if (kvblk_member_named(pool, NULL, uuid) || (missing && missing->taken))
		return;
	if (kvblk_member_list_del(pool, uuid))
		kvblk_missing_end(pool, uuid);
}

/* Open, check and start a member. No lock is held, because its I/O may take long. */
static int add_device(struct kvblk_pool *pool, struct kvblk_member_spec *spec,
		      struct coming *coming, u32 add_flags, struct netlink_ext_ack *extack)
{
	struct kvblk_member *member;
	bool overwrote;
	uuid_t before;
	int err;

	member = kvblk_member_open(pool, spec, extack);
	if (IS_ERR(member))
		return PTR_ERR(member);
	import_uuid(&before, member->log.super->member_uuid);
	err = add_check(member, spec, add_flags, extack) ?:
	      kvblk_member_setup(member, !member->log.missing, spec->segment_size, extack);
	scoped_guard(mutex, &pool->admin)
		uuid_copy(&coming->uuid, &member->flash.uuid);
	/* forced: the administrator says that the former owner of a returning member is down */
	if (!err)
		err = kvblk_fence_take(member, add_flags, member->log.missing &&
				       add_flags & KVBLK_ADD_FORCE ? member->log.super->node : NULL,
				       extack) ?:
		      kvblk_member_list(member, spec, extack) ?:
		      kvblk_member_prepare(member, KVBLK_SB_ACTIVE, extack);
	/* read first: once started, the member may be removed and freed */
	overwrote = member->log.formatted && member->found == KVBLK_FOUND_MEMBER;
	if (!err)
		err = kvblk_member_start(member, extack);
	if (!err && overwrote)
		add_overwrote(pool, &before);
	if (err) {
		if (member->log.formatted) {
			kvblk_member_list_del(pool, &member->flash.uuid);
			/* end the filter of a death since kvblk_member_list() */
			kvblk_missing_end(pool, &member->flash.uuid);
		}
		scoped_guard(mutex, &pool->admin)
			if (member->log.missing)
				member->log.missing->taken = false;
		kvblk_member_free(member);
	}
	return err;
}

/* Retry the restore of an unreadable member. Returns 1 if begun, 0: add the device, or an errno. */
static int add_again(struct kvblk_pool *pool, dev_t dev, struct netlink_ext_ack *extack)
{
	struct kvblk_member *member;
	int err = 0;
	uuid_t uuid;

	scoped_guard(mutex, &pool->admin) {
		kvblk_for_each_member(pool, member)
			if (member->flash.dev == dev)
				break;
		if (member && READ_ONCE(member->log.nr_unread) && kvblk_member_is_up(member)) {
			kvblk_member_reread(member, false);
			return 1;
		}
		if (!member || READ_ONCE(member->flash.state) != KVBLK_MEMBER_UNRESTORED)
			return 0;
		if (kvblk_member_retry(member))
			return 1;
		if (!member->outdated && !kvblk_missing_get(pool, &member->flash.uuid))
			return kvblk_refuse(extack, -ENOMEM, "no memory to track what the member missed: destroy and import the pool");
		if (!member->removing)
			err = leave_begin(member, false, extack);
		uuid_copy(&uuid, &member->flash.uuid);
	}
	if (!err)
		wait_event_idle(pool->settle_wait, add_former_gone(pool, &uuid));
	return err;
}

int kvblk_member_add(struct kvblk_pool *pool, struct kvblk_member_spec *spec,
		     u32 add_flags, struct netlink_ext_ack *extack)
{
	struct coming coming = { .dev = spec->dev };
	int err;

	err = add_flags & KVBLK_ADD_FORMAT ? 0 : add_again(pool, spec->dev, extack);
	if (err)
		return min(err, 0);
	err = add_begin(pool, &coming, extack);
	if (err)
		return err;
	err = add_device(pool, spec, &coming, add_flags, extack);
	scoped_guard(mutex, &pool->admin)
		list_del(&coming.link);
	percpu_ref_put(&pool->users);
	kvblk_pool_write_epoch(pool);
	return err;
}
