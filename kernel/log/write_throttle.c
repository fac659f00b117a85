// SPDX-License-Identifier: GPL-2.0
/*
 * Write throttle: reads before writes. A get waits behind all that a device has accepted. So while
 * gets are submitted, a member has at most a window of puts in flight, and further puts are queued
 * here. At least one put is admitted: its completion admits the next. The rules:
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

static u64 queued_window(const struct kvblk_member *member, const struct kvblk_queued_io *queued,
			 u64 window)
{
	u64 put = READ_ONCE(member->flash.pool->tun.put_window_bytes);

	return queued->prefetch && window == U64_MAX && put &&
	       kvblk_flash_may_read(&member->flash) ? THROTTLE_IDLE * put : window;
}

#ifdef CONFIG_BLK_CGROUP
/* Returns the task's io cgroup: compared, never dereferenced, since no reference is held. */
static const struct cgroup_subsys_state *current_cgroup(void)
{
	guard(rcu)();
	return task_css(current, io_cgrp_id);
}

static struct cgroup_subsys_state *current_css(void)
{
	return task_get_css(current, io_cgrp_id);
}
#else
static const struct cgroup_subsys_state *current_cgroup(void) { return NULL; }
static struct cgroup_subsys_state *current_css(void) { return NULL; }
#endif

static void throttle_uncount(struct kvblk_member *member, struct kvblk_queued_io *queued)
{
	lockdep_assert_held(&member->log.throttle.lock);
	list_del(&queued->counted);
	member->log.throttle.bytes -= queued->bytes;
	/* last, because @queued may be freed from here on */
	smp_store_release(&queued->member, NULL);
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
		if (take && !queue->busy && !time_before(jiffies, queue->poor_until))
			spare = queue;
	}
	if (spare)
		spare->cgroup = cgroup;
	return spare;
}

/* Stops counting puts after too long. @answers: the device responds, so a cgroup is over budget. */
static void throttle_forget(struct kvblk_member *member, bool answers)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_queued_io *queued, *next, *first;
	struct kvblk_cgroup_queue *queue;
	bool mixed = false;

	first = list_first_entry_or_null(&throttle->queue, struct kvblk_queued_io, link);
	list_for_each_entry(queued, &throttle->queue, link)
		mixed |= queued->cgroup != first->cgroup;
	list_for_each_entry_safe(queued, next, &throttle->counted, counted) {
		if (time_before(jiffies, queued->since + THROTTLE_PATIENCE +
				(unsigned long)(queued->bytes * HZ >> THROTTLE_RATE_SHIFT)))
			continue;
		if (answers && first && (mixed || first->cgroup != queued->cgroup)) {
			queue = cgroup_queue_of(member, queued->cgroup, true);
			if (queue)
				queue->poor_until = jiffies + THROTTLE_POOR;
		}
		throttle_uncount(member, queued);
	}
}

static bool throttle_pass(struct kvblk_member *member, struct kvblk_queued_io *queued, u64 window)
{
	const struct kvblk_cgroup_queue *queue = cgroup_queue_of(member, queued->cgroup, false);
	struct kvblk_write_throttle *throttle = &member->log.throttle;

	if (queue && time_before(jiffies, queue->poor_until))
		return true;
	if (throttle->bytes &&
	    (queued->bytes > window || throttle->bytes > window - queued->bytes))
		return false;
	queued->since = jiffies;
	throttle->bytes += queued->bytes;
	list_add_tail(&queued->counted, &throttle->counted);
	WRITE_ONCE(queued->member, member);
	return true;
}

/* Adds @bytes to the queue's total. A full queue accepts writes again at three quarters. */
static void throttle_account(struct kvblk_member *member, s64 bytes)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_pool *pool = member->flash.pool;
	u64 limit = READ_ONCE(pool->tun.queue_bytes);

	lockdep_assert_held(&throttle->lock);
	throttle->waiting += bytes;
	if (throttle->waiting > limit) {
		WRITE_ONCE(throttle->full, true);
	} else if (throttle->full && throttle->waiting <= limit - limit / 4) {
		WRITE_ONCE(throttle->full, false);
		kvblk_space_appears(pool);
	}
}

static bool throttle_enter(struct kvblk_member *member, struct kvblk_queued_io *queued, u64 window)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_queued_io *other;

	queued->cgroup = current_cgroup();
	guard(spinlock_irqsave)(&throttle->lock);
	if (list_empty(&throttle->queue) && throttle_pass(member, queued, window))
		return true;
	queued->css = current_css();
	queued->ioprio = get_current_ioprio();
	queued->since = jiffies;
	throttle_account(member, queued->bytes);
	list_for_each_entry_reverse(other, &throttle->queue, link)
		if (other->priority >= queued->priority ||
		    time_after(jiffies, other->since + THROTTLE_LOOK))
			break;
	list_add(&queued->link, &other->link);
	throttle->puts += !queued->prefetch;
	queue_delayed_work(member->flash.pool->wq, &throttle->work, THROTTLE_LOOK);
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
	struct kvblk_cgroup_queue *queue = cgroup_queue_of(member, queued->cgroup, true) ?:
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
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	bool recent = time_before(jiffies, throttle->looked + 3 * THROTTLE_LOOK);
	struct kvblk_ios ios;
	u32 i;

	kvblk_flash_inflight(&member->flash, &ios);
	throttle_forget(member, recent && ios.done != throttle->done);
	throttle->done = ios.done;
	throttle->looked = jiffies;
	throttle_drop(member, &throttle->queue, go);
	for (i = 0; i < KVBLK_CGROUP_QUEUES; i++)
		throttle_drop(member, &throttle->cgroup_queues[i].queued_ios, go);
}

static void throttle_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(to_delayed_work(work),
						   struct kvblk_member, log.throttle.work);
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	u64 window = kvblk_put_window(member);
	struct kvblk_queued_io *queued, *next;
	bool prefetch_waits = false;
	LIST_HEAD(go);

	scoped_guard(spinlock_irq, &throttle->lock) {
		if (time_after_eq(jiffies, throttle->looked + THROTTLE_LOOK))
			throttle_look(member, &go);
		/* keep the order, except that puts pass prefetches while no gets are submitted */
		list_for_each_entry_safe(queued, next, &throttle->queue, link) {
			/* or else each completion would walk all prefetches under the lock */
			if (prefetch_waits && !throttle->puts)
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
		if (throttle->waiting)
			queue_delayed_work(member->flash.pool->wq, &throttle->work, THROTTLE_LOOK);
	}
	/* canceled writes submit no I/O */
	list_for_each_entry_safe(queued, next, &go, link)
		throttle_submit(queued);
}

void kvblk_throttle_member_init(struct kvblk_member *member)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	u32 i;

	spin_lock_init(&throttle->lock);
	INIT_LIST_HEAD(&throttle->queue);
	INIT_LIST_HEAD(&throttle->counted);
	INIT_DELAYED_WORK(&throttle->work, throttle_work);
	for (i = 0; i < KVBLK_CGROUP_QUEUES; i++) {
		struct kvblk_cgroup_queue *queue = &throttle->cgroup_queues[i];

		queue->member = member;
		queue->poor_until = jiffies;
		INIT_LIST_HEAD(&queue->queued_ios);
		INIT_WORK(&queue->work, cgroup_queue_work);
	}
}

void kvblk_throttle_member_exit(struct kvblk_member *member)
{
	u32 i;

	cancel_delayed_work_sync(&member->log.throttle.work);
	for (i = 0; i < KVBLK_CGROUP_QUEUES; i++)
		cancel_work_sync(&member->log.throttle.cgroup_queues[i].work);
}
