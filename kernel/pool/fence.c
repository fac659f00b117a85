// SPDX-License-Identifier: GPL-2.0
/*
 * Fencing: the nodes of a pod share their devices, so a member's owner holds a Write Exclusive
 * reservation, and the device rejects all other writers. The rules:
 * - The reservation is taken before the first write and dropped after the last one. A node is
 *   preempted only if the administrator named it as dead; its commands in flight are aborted first.
 * - Without its reservation a member is fenced: blocks are served, and bio.c refuses each write,
 *   because a device that lost the reservation accepts it. A target does so silently when it
 *   disables a namespace: hence the checks.
 * - A lost reservation is taken again if nobody holds one, and if the superblock is of this
 *   activation before and after: another owner may have come and gone.
 */
#include <linux/netlink.h>
#include <linux/pr.h>
#include <linux/unaligned.h>
#include <linux/vmalloc.h>

#include "pool/pool.h"

#define CHECK_GAP	(10ul * HZ)
/* longest gap between a reservation taken again and a check because of a rejected write */
#define EARLY_GAP_MAX	(640ul * HZ)

static const struct pr_ops *fence_ops(const struct kvblk_flash *flash)
{
	const struct pr_ops *ops = flash->bdev->bd_disk->fops->pr_ops;

	/* as blkdev_pr_allowed(): a reservation covers a whole disk */
	return ops && ops->pr_register && ops->pr_reserve && ops->pr_release && ops->pr_preempt &&
	       ops->pr_read_reservation && !bdev_is_partition(flash->bdev) ? ops : NULL;
}

/* Return the errno of a status of pr_ops: -EOPNOTSUPP no reservations, -EBUSY another holder. */
static int fence_errno(int status)
{
	if (status == PR_STS_RESERVATION_CONFLICT)
		return -EBUSY;
	/* nvme returns -EINVAL if the target does not know the command */
	if (status == -EINVAL || status == -ENOTTY)
		return -EOPNOTSUPP;
	return status > 0 ? -EIO : status;
}

/* Read the reservation to @held, all zero if nobody holds one. */
static int fence_read(const struct kvblk_flash *flash, struct pr_held_reservation *held)
{
	const struct pr_ops *ops = fence_ops(flash);

	*held = (struct pr_held_reservation) {};
	return fence_errno(ops ? ops->pr_read_reservation(flash->bdev, held) : -EOPNOTSUPP);
}

/* Take the reservation, from the holder with the key @victim unless 0. */
static int fence_acquire(const struct kvblk_flash *flash, u64 victim)
{
	const struct pr_ops *ops = fence_ops(flash);
	u64 key = flash->fence.key;
	int err = ops->pr_register(flash->bdev, 0, key, 0);

	/* this host has another key, perhaps 0: nvmet keeps the registration of a host that left */
	if (err == PR_STS_RESERVATION_CONFLICT)
		err = ops->pr_register(flash->bdev, 1, key, PR_FL_IGNORE_KEY);
	/* drivers take the own key first, as nfsd passes it, whatever "old_key" suggests */
	if (!err && victim && victim != key)
		err = ops->pr_preempt(flash->bdev, key, victim, PR_WRITE_EXCLUSIVE, true);
	/* also after a preemption: another node may have been faster, and have the same victim */
	return fence_errno(err ?: ops->pr_reserve(flash->bdev, key, PR_WRITE_EXCLUSIVE, 0));
}

static void fence_release(const struct kvblk_flash *flash)
{
	const struct pr_ops *ops = fence_ops(flash);

	ops->pr_release(flash->bdev, flash->fence.key, PR_WRITE_EXCLUSIVE);
	ops->pr_register(flash->bdev, flash->fence.key, 0, 0);
}

/* ---- activation ---- */

/* Return 0 if the device still has the superblock that kvblk_member_open() read, or an errno. */
static int fence_unchanged(struct kvblk_member *member)
{
	struct kvblk_d_super *sb __free(kvfree) = vmalloc(sizeof(*sb));
	int err = sb ? kvblk_super_peek(member, sb) : -ENOMEM;

	return err ?: memcmp(sb, member->log.super, sizeof(*sb)) ? -ESTALE : 0;
}

/* Return the key of a node: as the first digits of its id; 0 is no key. */
static u64 fence_key(const u8 *node)
{
	return get_unaligned_be64(node) ?: 1;
}

int kvblk_fence_take(struct kvblk_member *member, u32 add_flags, const u8 *preempt,
		     struct netlink_ext_ack *extack)
{
	struct kvblk_flash *flash = &member->flash;
	const struct kvblk_pool *pool = flash->pool;
	u64 key = fence_key(pool->node), victim = preempt ? fence_key(preempt) : 0;
	struct kvblk_fence *fence = &flash->fence;
	struct pr_held_reservation held;
	int err;

	if (!kvblk_pool_in_pod(pool))
		return 0;
	err = fence_read(flash, &held);
	if (err == -EOPNOTSUPP && add_flags & KVBLK_ADD_FORCE) {
		dev_warn(&pool->dev, "member %s: no reservations: nothing fences a second writer\n",
			 flash->name);
		return 0;
	}
	if (err == -EOPNOTSUPP)
		return kvblk_refuse(extack, err, "%.12s has no reservations to fence other writers: pass \"force\" to use it",
				    flash->name);
	/* register only if the reservation may be had, because nvmet never forgets a host */
	if (!err && held.type && held.key != key && held.key != victim)
		err = -EBUSY;
	if (!err) {
		fence->key = key;
		fence->next = jiffies + CHECK_GAP;
		fence->early = jiffies - EARLY_GAP_MAX;
		err = fence_acquire(flash, held.type ? victim : 0);
		if (err == -EBUSY)
			fence_read(flash, &held);
	}
	if (!err && !member->log.formatted)
		err = fence_unchanged(member);
	if (!err)
		return 0;
	kvblk_fence_drop(flash);
	if (err == -EBUSY)
		return kvblk_refuse(extack, err, "%.23s is reserved by another node with key 0x%016llx",
				    flash->name, held.key);
	if (err == -ESTALE)
		return kvblk_refuse(extack, err, "%.30s was written by another node meanwhile: try again",
				    flash->name);
	return kvblk_refuse(extack, err, "%.31s cannot be reserved (error %d)", flash->name, err);
}

void kvblk_fence_drop(struct kvblk_flash *flash)
{
	/* a device that does not respond keeps the reservation; the next activation finds it */
	if (flash->fence.key && READ_ONCE(flash->state) != KVBLK_MEMBER_DEAD &&
	    !READ_ONCE(flash->suspect))
		fence_release(flash);
	flash->fence.key = 0;
}

/* ---- checks ---- */

/* Read the superblock to @sb. Returns 0 if of this activation, -ESTALE if not, or an errno. */
static int fence_own(struct kvblk_member *member, struct kvblk_d_super *sb)
{
	int err = kvblk_super_peek(member, sb);
	u64 activation = le64_to_cpu(sb->activation);

	if (err)
		return err == -ENODATA ? -ESTALE : err;
	/* a returning member's is of an earlier one until it is restored */
	return le64_to_cpu(sb->incarnation) == member->flash.incarnation &&
	       (activation == member->flash.pool->activation ||
		activation == READ_ONCE(member->log.activation)) ? 0 : -ESTALE;
}

static int fence_again(struct kvblk_member *member, struct kvblk_d_super *sb)
{
	int err = fence_own(member, sb) ?: fence_acquire(&member->flash, 0);

	if (err)
		return err;
	err = fence_own(member, sb);
	if (err)
		fence_release(&member->flash);
	return err;
}

static void fence_clear(struct kvblk_flash *flash)
{
	struct kvblk_fence *fence = &flash->fence;
	bool recent = time_before(jiffies, fence->early + EARLY_GAP_MAX);

	dev_warn(&flash->pool->dev, "member %s: reserved again, because its device had lost the reservation\n",
		 flash->name);
	if (fence->reported)
		kvblk_event(flash->pool, flash, KVBLK_EVENT_MEMBER_ANSWERS, 0);
	/* a device that rejects writes in spite of the reservation is checked less often */
	fence->gap = recent ? clamp(2 * fence->gap, CHECK_GAP, EARLY_GAP_MAX) : 0;
	WRITE_ONCE(fence->early, jiffies + fence->gap);
	WRITE_ONCE(fence->reported, false);
	WRITE_ONCE(flash->fenced, false);
	flash->ops->responds(flash);
}

static void fence_report(struct kvblk_flash *flash)
{
	if (flash->fence.reported)
		return;
	WRITE_ONCE(flash->fence.reported, true);
	kvblk_event(flash->pool, flash, KVBLK_EVENT_MEMBER_FENCED, 0);
	wake_up_all(&flash->pool->settle_wait);
}

static void fence_check(struct kvblk_member *member)
{
	struct kvblk_d_super *sb __free(kvfree) = vzalloc(sizeof(*sb));
	struct kvblk_flash *flash = &member->flash;
	struct kvblk_pool *pool = flash->pool;
	struct kvblk_fence *fence = &flash->fence;
	struct pr_held_reservation held = {};
	int err = sb ? fence_read(flash, &held) : -ENOMEM;
	bool own = held.type == PR_WRITE_EXCLUSIVE && held.key == fence->key;
	const char *owner = "";

	/* an unreachable device is written by nobody through this path */
	if ((own || (err && err != -EOPNOTSUPP)) && !READ_ONCE(flash->fenced))
		return;
	/* first, because another node may write from now on */
	WRITE_ONCE(flash->fenced, true);
	if (!err && held.type && held.key != fence->key) {
		err = -EBUSY;
	} else if (!err) {
		err = fence_again(member, sb);
		if (err == -EBUSY)
			fence_read(flash, &held);
	}
	if (!err) {
		fence_clear(flash);
		return;
	}
	if (err == -EBUSY || err == -ESTALE) {
		WRITE_ONCE(fence->lost, true);
		if (fence_own(member, sb) == -ESTALE)
			owner = sb->owner;
		dev_warn(&pool->dev, "member %s: fenced by key 0x%016llx%s%.63s; its blocks are served, nothing is written until the pool is destroyed and imported\n",
			 flash->name, held.key, *owner ? " of node " : "", owner);
	} else if (!fence->reported) {
		dev_warn(&pool->dev, "member %s: fenced: the reservation is lost and cannot be taken again (error %d), retrying; its blocks are served, puts use other members\n",
			 flash->name, err);
	}
	fence_report(flash);
}

void kvblk_fence_work(struct work_struct *work)
{
	struct kvblk_flash *flash = container_of(work, struct kvblk_flash, fence.work);

	fence_check(kvblk_flash_member(flash));
	percpu_ref_put(&flash->ref);
}

void kvblk_fence_watch(struct kvblk_flash *flash)
{
	struct kvblk_fence *fence = &flash->fence;
	bool rejected = READ_ONCE(flash->fenced) && !READ_ONCE(fence->reported);

	if (!fence->key || READ_ONCE(fence->lost) ||
	    time_before(jiffies, rejected ? READ_ONCE(fence->early) : fence->next))
		return;
	fence->next = jiffies + CHECK_GAP;
	if (percpu_ref_tryget_live(&flash->ref) && !queue_work(flash->pool->wq, &fence->work))
		percpu_ref_put(&flash->ref);
}
