// SPDX-License-Identifier: GPL-2.0
/*
 * Write throttle: reads before writes. A get waits behind all that a device has accepted. So while
 * gets are submitted, a member has at most a window of puts in flight, and further puts are queued
 * here. At least one put is admitted: its completion admits the next. The window has about as many
 * bytes as a request gets, so that puts about double its time. The rules:
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
#define THROTTLE_LEAST_SHIFT	2	/* least window, of put_window_bytes */
#define THROTTLE_PATIENCE	(HZ / 2)	/* time for which a put is counted, plus */
#define THROTTLE_RATE_SHIFT	26	/* a second for each 64 MiB */
#define THROTTLE_POOR	(4 * HZ)	/* time for which a cgroup counts as over budget */
#define THROTTLE_LOOK	(HZ / 10)	/* interval of checks of queued writes */
#define THROTTLE_IDLE	16		/* put windows of prefetches without gets */
#define HOLD_MOST	64		/* I/Os examined in one hold of the lock */

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
	const struct kvblk_flash *flash = &member->flash;
	u64 most = READ_ONCE(flash->pool->tun.put_window_bytes);

	if (!most || !kvblk_flash_may_write(flash) ||
	    time_after_eq(jiffies, READ_ONCE(flash->last_get) + THROTTLE_TIME))
		return U64_MAX;
	return clamp(max(READ_ONCE(flash->burst), READ_ONCE(flash->burst_before)),
		     most >> THROTTLE_LEAST_SHIFT, most);
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

static struct kvblk_queued_io *first_queued(struct list_head *queued_ios)
{
	return list_first_entry_or_null(queued_ios, struct kvblk_queued_io, link);
}

/*
 * Returns the I/O to release next, or NULL. Puts and prefetches of priority 0 take turns by
 * arrival. A prefetch of higher priority passes those that arrived up to THROTTLE_LOOK before it.
 */
static struct kvblk_queued_io *throttle_next(struct kvblk_write_throttle *throttle)
{
	struct kvblk_queued_io *next = first_queued(&throttle->puts), *prefetch;
	unsigned long oldest = next ? next->since : 0;
	bool passes;
	u32 i;

	lockdep_assert_held(&throttle->lock);
	for (i = 0; i <= KVBLK_PRIORITY_MAX; i++) {
		prefetch = first_queued(&throttle->prefetches[i]);
		if (!prefetch)
			continue;
		passes = !next || !time_after(prefetch->since, oldest + (i ? THROTTLE_LOOK : 0));
		if (!next || time_before(prefetch->since, oldest))
			oldest = prefetch->since;
		if (passes)
			next = prefetch;
	}
	return next;
}

/*
 * Stops counting puts after too long. @answers: the device responds, so a cgroup is over budget.
 * @mixed: I/Os of several cgroups wait.
 */
static void throttle_forget(struct kvblk_member *member, bool answers, bool mixed)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_queued_io *queued, *next, *first = throttle_next(throttle);
	struct kvblk_cgroup_queue *queue;

	list_for_each_entry_safe(queued, next, &throttle->counted, counted) {
		/* the oldest is first */
		if (time_before(jiffies, queued->since + THROTTLE_PATIENCE))
			break;
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

static noinline bool throttle_enter(struct kvblk_member *member, struct kvblk_queued_io *queued,
				    u64 window)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;

	queued->cgroup = current_cgroup();
	guard(spinlock_irqsave)(&throttle->lock);
	if (!throttle_next(throttle) && throttle_pass(member, queued, window))
		return true;
	queued->css = current_css();
	queued->ioprio = get_current_ioprio();
	queued->since = jiffies;
	throttle_account(member, queued->bytes);
	list_add_tail(&queued->link, queued->prefetch ? &throttle->prefetches[queued->priority] :
							&throttle->puts);
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
	if (throttle_next(&member->log.throttle))
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

	list_move_tail(&queued->link, &queue->queued_ios);
	queue->busy = true;
	queue_work(throttle_wq, &queue->work);
}

static void throttle_drop(struct kvblk_member *member, struct kvblk_queued_io *queued,
			  struct list_head *go)
{
	lockdep_assert_held(&member->log.throttle.lock);
	if (!READ_ONCE(*queued->given_up))
		return;
	throttle_account(member, -(s64)queued->bytes);
	list_move_tail(&queued->link, go);
}

/* Drops canceled I/Os of a queue. Returns whether there are some of another cgroup than @first. */
static bool queue_look(struct kvblk_member *member, struct list_head *queued_ios,
		       const struct cgroup_subsys_state *first, struct list_head *go)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_queued_io *queued, *next;
	bool mixed = false;
	u32 nr = 0;

	spin_lock_irq(&throttle->lock);
	list_for_each_entry_safe(queued, next, queued_ios, link) {
		mixed |= queued->cgroup != first;
		throttle_drop(member, queued, go);
		if (++nr % HOLD_MOST)
			continue;
		/* @next stays: only this work removes I/Os */
		spin_unlock_irq(&throttle->lock);
		cond_resched();
		spin_lock_irq(&throttle->lock);
	}
	spin_unlock_irq(&throttle->lock);
	return mixed;
}

/* Drops canceled I/Os of a cgroup's queue, which the queue's work shortens meanwhile. */
static void cgroup_queue_look(struct kvblk_member *member, struct kvblk_cgroup_queue *queue,
			      struct list_head *go)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_queued_io *queued;
	LIST_HEAD(rest);
	u32 nr;

	scoped_guard(spinlock_irq, &throttle->lock)
		list_splice_init(&queue->queued_ios, &rest);
	while (!list_empty(&rest)) {
		scoped_guard(spinlock_irq, &throttle->lock) {
			for (nr = 0; nr < HOLD_MOST && (queued = first_queued(&rest)); nr++) {
				list_move_tail(&queued->link, &queue->queued_ios);
				throttle_drop(member, queued, go);
			}
			queue->busy = true;
			queue_work(throttle_wq, &queue->work);
		}
		cond_resched();
	}
}

static void throttle_look(struct kvblk_member *member, struct list_head *go)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	bool recent = time_before(jiffies, throttle->looked + 3 * THROTTLE_LOOK), mixed;
	const struct cgroup_subsys_state *cgroup = NULL;
	struct kvblk_queued_io *first;
	struct kvblk_ios ios;
	u32 i;

	scoped_guard(spinlock_irq, &throttle->lock) {
		first = throttle_next(throttle);
		if (first)
			cgroup = first->cgroup;
	}
	mixed = queue_look(member, &throttle->puts, cgroup, go);
	for (i = 0; i <= KVBLK_PRIORITY_MAX; i++)
		mixed |= queue_look(member, &throttle->prefetches[i], cgroup, go);
	for (i = 0; i < KVBLK_CGROUP_QUEUES; i++)
		cgroup_queue_look(member, &throttle->cgroup_queues[i], go);
	kvblk_flash_inflight(&member->flash, &ios);
	guard(spinlock_irq)(&throttle->lock);
	throttle_forget(member, recent && ios.done != throttle->done, first && mixed);
	throttle->done = ios.done;
	throttle->looked = jiffies;
}

/* Releases up to HOLD_MOST I/Os. Returns whether there may be more to release. */
static bool throttle_release(struct kvblk_member *member, u64 window)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_queued_io *queued;
	bool puts_only = false;
	u32 nr;

	guard(spinlock_irq)(&throttle->lock);
	for (nr = 0; nr < HOLD_MOST; nr++) {
		/* keep the order, except that puts pass prefetches while no gets are submitted */
		queued = puts_only ? first_queued(&throttle->puts) : throttle_next(throttle);
		if (!queued)
			break;
		if (throttle_pass(member, queued, queued_window(member, queued, window)))
			cgroup_queue_add(member, queued);
		else if (window == U64_MAX && !puts_only)
			puts_only = true;
		else
			break;
	}
	return nr == HOLD_MOST;
}

static void throttle_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(to_delayed_work(work),
						   struct kvblk_member, log.throttle.work);
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	u64 window = kvblk_put_window(member);
	struct kvblk_queued_io *queued, *next;
	LIST_HEAD(go);

	if (time_after_eq(jiffies, throttle->looked + THROTTLE_LOOK))
		throttle_look(member, &go);
	while (throttle_release(member, window))
		cond_resched();
	scoped_guard(spinlock_irq, &throttle->lock)
		if (throttle->waiting)
			queue_delayed_work(member->flash.pool->wq, &throttle->work, THROTTLE_LOOK);
	/* canceled writes submit no I/O */
	list_for_each_entry_safe(queued, next, &go, link)
		throttle_submit(queued);
}

void kvblk_throttle_member_init(struct kvblk_member *member)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	u32 i;

	spin_lock_init(&throttle->lock);
	INIT_LIST_HEAD(&throttle->puts);
	for (i = 0; i <= KVBLK_PRIORITY_MAX; i++)
		INIT_LIST_HEAD(&throttle->prefetches[i]);
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
