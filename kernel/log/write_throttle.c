// SPDX-License-Identifier: GPL-2.0
/*
 * Write throttle: reads before writes. A get waits behind all that a device has accepted. So while
 * gets are submitted, a member has at most a window of puts in flight, and further puts are queued
 * here. At least one put is admitted: its completion admits the next.
 *
 * The rules:
 * - No write passes a queued write. But a queued put holds a reservation, and a prefetch memory.
 *   So beyond queue_bytes the throttle is full, and new writes wait before they take either.
 * - A put is counted for a limited time, because the device may not respond, or the cgroup may
 *   exceed its budget (io.max). If the device responds while puts of other cgroups are queued, the
 *   cgroup's puts are admitted uncounted for a while, or else they would delay the others.
 * - Prefetches are throttled, too, to leave bandwidth for later gets. A prefetch passes recent
 *   writes of lower priority, but no write that has waited for THROTTLE_LOOK.
 * - Queued puts are submitted as I/O of their callers' cgroups by work items, each for one cgroup
 *   unless there are too many: io.cost makes a submitter sleep for its cgroup's budget.
 */
#include <linux/cgroup.h>
#include <linux/ioprio.h>
#include <linux/kthread.h>

#include "log/log.h"

#define THROTTLE_TIME	HZ		/* time after a get with throttled puts */
#define THROTTLE_PATIENCE	(HZ / 2)	/* time for which a put is counted, plus */
#define THROTTLE_RATE_SHIFT	26	/* a second for each 64 MiB */
#define THROTTLE_POOR	(4 * HZ)	/* time for which a cgroup counts as over budget */
#define THROTTLE_LOOK	(HZ / 10)	/* interval of checks of queued writes */
#define THROTTLE_IDLE	16		/* put windows of prefetches without gets */

static struct workqueue_struct *throttle_wq;

int kvblk_throttle_init(void)
{
	throttle_wq = alloc_workqueue("kvblk-throttle", WQ_UNBOUND | WQ_FREEZABLE, WQ_MAX_ACTIVE);
	return throttle_wq ? 0 : -ENOMEM;
}

void kvblk_throttle_exit(void)
{
	destroy_workqueue(throttle_wq);
}

u64 kvblk_put_window(const struct kvblk_member *member)
{
	u64 window = READ_ONCE(member->flash.pool->tun.put_window_bytes);

	return window && kvblk_flash_may_write(&member->flash) &&
	       time_before(jiffies, READ_ONCE(member->flash.last_get) + THROTTLE_TIME) ?
	       window : U64_MAX;
}

/* Returns @window; for a prefetch THROTTLE_IDLE put windows if unlimited. */
static u64 queued_window(const struct kvblk_member *member, const struct kvblk_queued_io *queued,
			 u64 window)
{
	u64 put = READ_ONCE(member->flash.pool->tun.put_window_bytes);

	return queued->prefetch && window == U64_MAX && put &&
	       kvblk_flash_may_read(&member->flash) ? THROTTLE_IDLE * put : window;
}

/* Returns the task's io cgroup: compared, never dereferenced, since no reference is held. */
static const struct cgroup_subsys_state *current_cgroup(void)
{
#ifdef CONFIG_BLK_CGROUP
	guard(rcu)();
	return task_css(current, io_cgrp_id);
#else
	return NULL;
#endif
}

static struct cgroup_subsys_state *current_css(void)
{
#ifdef CONFIG_BLK_CGROUP
	return task_get_css(current, io_cgrp_id);
#else
	return NULL;
#endif
}

static void throttle_count(struct kvblk_member *member, struct kvblk_queued_io *queued)
{
	queued->since = jiffies;
	member->log.throttle.bytes += queued->bytes;
	list_add_tail(&queued->counted, &member->log.throttle.counted);
	WRITE_ONCE(queued->member, member);
}

static void throttle_uncount(struct kvblk_member *member, struct kvblk_queued_io *queued)
{
	lockdep_assert_held(&member->log.throttle.lock);
	list_del(&queued->counted);
	member->log.throttle.bytes -= queued->bytes;
	/* last, because @queued may be freed from here on */
	smp_store_release(&queued->member, NULL);
}

static bool throttle_late(const struct kvblk_queued_io *queued)
{
	return time_after_eq(jiffies, queued->since + THROTTLE_PATIENCE +
			     (unsigned long)(queued->bytes * HZ >> THROTTLE_RATE_SHIFT));
}

static bool cgroup_queue_is_poor(const struct kvblk_cgroup_queue *queue)
{
	return time_before(jiffies, queue->poor_until);
}

/* Returns the queue of @cgroup; if there is none and @take is set, a free queue, else NULL. */
static struct kvblk_cgroup_queue *cgroup_queue_of(struct kvblk_member *member, const void *cgroup,
						  bool take)
{
	struct kvblk_cgroup_queue *queue, *spare = NULL;

	lockdep_assert_held(&member->log.throttle.lock);
	for (queue = member->log.throttle.cgroup_queues;
	     queue < member->log.throttle.cgroup_queues + KVBLK_CGROUP_QUEUES; queue++) {
		if (queue->cgroup == cgroup)
			return queue;
		if (take && !queue->busy && !cgroup_queue_is_poor(queue))
			spare = queue;
	}
	if (spare)
		spare->cgroup = cgroup;
	return spare;
}

/* Stops counting puts after too long. @answers: the device responds, so a cgroup is over budget. */
static void throttle_forget(struct kvblk_member *member, bool answers)
{
	struct kvblk_queued_io *queued, *next, *first, *other;
	struct kvblk_cgroup_queue *queue;

	first = list_first_entry(&member->log.throttle.queue, struct kvblk_queued_io, link);
	list_for_each_entry(other, &member->log.throttle.queue, link)
		if (other->cgroup != first->cgroup)
			break;
	list_for_each_entry_safe(queued, next, &member->log.throttle.counted, counted) {
		if (!throttle_late(queued))
			continue;
		queue = NULL;
		if (answers && !list_empty(&member->log.throttle.queue) &&
		    (first->cgroup != queued->cgroup ||
		     !list_entry_is_head(other, &member->log.throttle.queue, link)))
			queue = cgroup_queue_of(member, queued->cgroup, true);
		if (queue)
			queue->poor_until = jiffies + THROTTLE_POOR;
		throttle_uncount(member, queued);
	}
}

static bool throttle_pass(struct kvblk_member *member, struct kvblk_queued_io *queued, u64 window)
{
	const struct kvblk_cgroup_queue *queue = cgroup_queue_of(member, queued->cgroup, false);

	if (queue && cgroup_queue_is_poor(queue))
		return true;
	if (member->log.throttle.bytes && (queued->bytes > window ||
					   member->log.throttle.bytes > window - queued->bytes))
		return false;
	throttle_count(member, queued);
	return true;
}

/* Adds @bytes to the queue's total. A full queue accepts writes again at three quarters. */
static void throttle_account(struct kvblk_member *member, s64 bytes)
{
	u64 limit = READ_ONCE(member->flash.pool->tun.queue_bytes);
	struct kvblk_pool *pool = member->flash.pool;

	lockdep_assert_held(&member->log.throttle.lock);
	member->log.throttle.waiting += bytes;
	if (member->log.throttle.waiting > limit) {
		WRITE_ONCE(member->log.throttle.full, true);
	} else if (member->log.throttle.full && member->log.throttle.waiting <= limit - limit / 4) {
		WRITE_ONCE(member->log.throttle.full, false);
		atomic_inc(&pool->space_seq);
		wake_up_all(&pool->space_wait);
	}
}

/* Queues @queued behind writes of its priority, and behind those queued for THROTTLE_LOOK. */
static void throttle_enqueue(struct kvblk_member *member, struct kvblk_queued_io *queued)
{
	struct kvblk_queued_io *other;

	queued->since = jiffies;
	list_for_each_entry_reverse(other, &member->log.throttle.queue, link)
		if (other->priority >= queued->priority ||
		    time_after(jiffies, other->since + THROTTLE_LOOK))
			break;
	list_add(&queued->link, &other->link);
	member->log.throttle.puts += !queued->prefetch;
}

static bool throttle_enter(struct kvblk_member *member, struct kvblk_queued_io *queued, u64 window)
{
	queued->cgroup = current_cgroup();
	guard(spinlock_irqsave)(&member->log.throttle.lock);
	if (list_empty(&member->log.throttle.queue) && throttle_pass(member, queued, window))
		return true;
	queued->css = current_css();
	queued->ioprio = get_current_ioprio();
	throttle_account(member, queued->bytes);
	throttle_enqueue(member, queued);
	queue_delayed_work(member->flash.pool->wq, &member->log.throttle.work, THROTTLE_LOOK);
	return false;
}

void kvblk_throttle_enter(struct kvblk_queued_io *queued, struct kvblk_member *member)
{
	u64 window = queued_window(member, queued, kvblk_put_window(member));

	queued->member = NULL;
	queued->ioprio = 0;
	/* an uncounted put completes soon, and no other put waits for its completion */
	if (window == U64_MAX || throttle_enter(member, queued, window))
		queued->submit(queued);
}

void __kvblk_throttle_leave(struct kvblk_queued_io *queued, struct kvblk_member *member)
{
	guard(spinlock_irqsave)(&member->log.throttle.lock);
	if (!queued->member)
		return;
	throttle_uncount(member, queued);
	if (!list_empty(&member->log.throttle.queue))
		mod_delayed_work(member->flash.pool->wq, &member->log.throttle.work, 0);
}

static void throttle_submit(struct kvblk_queued_io *queued)
{
	struct cgroup_subsys_state *css = queued->css;

	kthread_associate_blkcg(css);
	queued->submit(queued);
	kthread_associate_blkcg(NULL);
	if (css)
		css_put(css);
}

static void cgroup_queue_work(struct work_struct *work)
{
	struct kvblk_cgroup_queue *queue = container_of(work, struct kvblk_cgroup_queue, work);
	struct kvblk_member *member = queue->member;
	struct kvblk_queued_io *queued;

	for (;;) {
		scoped_guard(spinlock_irq, &member->log.throttle.lock) {
			queued = list_first_entry_or_null(&queue->queued_ios,
							  struct kvblk_queued_io, link);
			if (queued) {
				throttle_account(member, -(s64)queued->bytes);
				list_del(&queued->link);
			}
			queue->busy = !!queued;
		}
		if (!queued)
			return;
		throttle_submit(queued);
		cond_resched();
	}
}

static void cgroup_queue_add(struct kvblk_member *member, struct kvblk_queued_io *queued)
{
	struct kvblk_cgroup_queue *queue =
		cgroup_queue_of(member, queued->cgroup, true) ?:
			member->log.throttle.cgroup_queues;

	member->log.throttle.puts -= !queued->prefetch;
	list_move_tail(&queued->link, &queue->queued_ios);
	queue->busy = true;
	queue_work(throttle_wq, &queue->work);
}

static void throttle_drop(struct kvblk_member *member, struct list_head *queued_ios,
			  struct list_head *go)
{
	struct kvblk_queued_io *queued, *next;

	list_for_each_entry_safe(queued, next, queued_ios, link) {
		if (!READ_ONCE(*queued->given_up))
			continue;
		throttle_account(member, -(s64)queued->bytes);
		if (queued_ios == &member->log.throttle.queue)
			member->log.throttle.puts -= !queued->prefetch;
		list_move_tail(&queued->link, go);
	}
}

static void throttle_look(struct kvblk_member *member, struct list_head *go)
{
	bool recent = time_before(jiffies, member->log.throttle.looked + 3 * THROTTLE_LOOK);
	struct kvblk_cgroup_queue *queue;
	struct kvblk_ios ios;

	kvblk_flash_inflight(&member->flash, &ios);
	throttle_forget(member, recent && ios.done != member->log.throttle.done);
	member->log.throttle.done = ios.done;
	member->log.throttle.looked = jiffies;
	throttle_drop(member, &member->log.throttle.queue, go);
	for (queue = member->log.throttle.cgroup_queues;
	     queue < member->log.throttle.cgroup_queues + KVBLK_CGROUP_QUEUES; queue++)
		throttle_drop(member, &queue->queued_ios, go);
}

static void throttle_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(to_delayed_work(work),
						   struct kvblk_member, log.throttle.work);
	u64 window = kvblk_put_window(member);
	struct kvblk_queued_io *queued, *next;
	bool prefetch_waits = false;
	LIST_HEAD(go);

	scoped_guard(spinlock_irq, &member->log.throttle.lock) {
		if (time_after_eq(jiffies, member->log.throttle.looked + THROTTLE_LOOK))
			throttle_look(member, &go);
		/* keep the order, except that puts pass prefetches while no gets are submitted */
		list_for_each_entry_safe(queued, next, &member->log.throttle.queue, link) {
			/* or else each completion would walk all prefetches under the lock */
			if (prefetch_waits && !member->log.throttle.puts)
				break;
			if (prefetch_waits && queued->prefetch)
				continue;
			if (throttle_pass(member, queued, queued_window(member, queued, window)))
				cgroup_queue_add(member, queued);
			else if (window == U64_MAX)
				prefetch_waits = true;
			else
				break;
		}
		if (member->log.throttle.waiting)
			queue_delayed_work(member->flash.pool->wq, &member->log.throttle.work,
					   THROTTLE_LOOK);
	}
	/* canceled writes submit no I/O */
	list_for_each_entry_safe(queued, next, &go, link)
		throttle_submit(queued);
}

void kvblk_throttle_member_init(struct kvblk_member *member)
{
	struct kvblk_cgroup_queue *queue;

	spin_lock_init(&member->log.throttle.lock);
	INIT_LIST_HEAD(&member->log.throttle.queue);
	INIT_LIST_HEAD(&member->log.throttle.counted);
	INIT_DELAYED_WORK(&member->log.throttle.work, throttle_work);
	for (queue = member->log.throttle.cgroup_queues;
	     queue < member->log.throttle.cgroup_queues + KVBLK_CGROUP_QUEUES; queue++) {
		queue->member = member;
		queue->poor_until = jiffies;
		INIT_LIST_HEAD(&queue->queued_ios);
		INIT_WORK(&queue->work, cgroup_queue_work);
	}
}

void kvblk_throttle_member_exit(struct kvblk_member *member)
{
	struct kvblk_cgroup_queue *queue;

	cancel_delayed_work_sync(&member->log.throttle.work);
	for (queue = member->log.throttle.cgroup_queues;
	     queue < member->log.throttle.cgroup_queues + KVBLK_CGROUP_QUEUES; queue++)
		cancel_work_sync(&queue->work);
}
