// SPDX-License-Identifier: GPL-2.0
/*
 * Write throttle: reads before writes, and shares of tenants. A get waits behind all that a device
 * has accepted. So while gets are submitted, a member has at most a window of puts in flight, and
 * further puts are queued here. At least one put is admitted: its completion admits the next. The
 * window has about as many bytes as a request gets, so that puts about double its time. The rules:
 * - No write passes a queued write. But a queued put holds a reservation, and a prefetch memory.
 *   So beyond queue_bytes the throttle is full, and new writes wait before they take either.
 * - A put is counted for a limited time, because the device may not respond, or the cgroup may
 *   exceed its budget (io.max). If the device responds while puts of other cgroups are queued, the
 *   cgroup's puts are admitted uncounted for a while, or else they would delay the others.
 * - Prefetches are throttled, too, to leave bandwidth for later gets. A prefetch passes recent
 *   writes of lower priority, but no write that has waited for THROTTLE_LOOK.
 * - Queued I/O is submitted as I/O of its callers' cgroups by work items, each for one cgroup
 *   unless there are too many: io.cost makes a submitter sleep for its cgroup's budget.
 *
 * While several tenants have I/O on a member, it is shared. All of their I/O has one window, gets
 * too, so that the device's own queue is short, and what is beyond waits in queues by tenant. They
 * are served by weight, see log/share.h. The rules:
 * - A tenant alone never waits, and costs a get one comparison: flash->payer.
 * - A tenant's gets pass its puts and prefetches, but at least every second I/O is one of these
 *   while none is in flight.
 * - A get that is canceled or late, or whose member does not respond, completes without I/O.
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
#define SHARE_TIME	HZ		/* time after I/O of another tenant with shares */
#define SHARE_RATE_SHIFT	9	/* window of shares: two milliseconds of the bandwidth */
#define SHARE_LEAST	SZ_256K	/* least window of shares, bytes */
#define SHARE_MOST	SZ_16M
#define SHARE_UNKNOWN	SZ_1M	/* while the bandwidth is unknown */

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
	if (queued->share) {
		member->log.throttle.shared_bytes -= queued->bytes;
		queued->share->counted--;
		queued->share->writes -= !queued->get;
	} else {
		member->log.throttle.bytes -= queued->bytes;
	}
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

/* Returns the share to serve next, or NULL. */
static struct kvblk_share *share_next(struct kvblk_write_throttle *throttle)
{
	struct kvblk_share *share, *next, *first = NULL;

	lockdep_assert_held(&throttle->lock);
	list_for_each_entry_safe(share, next, &throttle->waiting_shares, link) {
		/* served, or all canceled */
		if (list_empty(&share->gets) && list_empty(&share->writes_queued))
			list_del_init(&share->link);
		else if (!first || kvblk_share_behind(share->clock, first->clock))
			first = share;
	}
	return first;
}

/* Returns the I/O to serve next: a get, unless no write is in flight, which gets would starve. */
static struct kvblk_queued_io *share_first(struct kvblk_share *share)
{
	struct kvblk_queued_io *get = first_queued(&share->gets);
	struct kvblk_queued_io *write = first_queued(&share->writes_queued);

	return get && (share->writes || share->wrote || !write) ? get : write;
}

/* Returns an I/O that waits, or NULL. */
static struct kvblk_queued_io *throttle_any(struct kvblk_write_throttle *throttle)
{
	struct kvblk_share *share = share_next(throttle);

	return throttle_next(throttle) ?: share ? share_first(share) : NULL;
}

/*
 * Stops counting I/O after too long. @answers: the device responds, so a cgroup is over budget.
 * @mixed: I/Os of several cgroups wait.
 */
static void throttle_forget(struct kvblk_member *member, bool answers, bool mixed)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_queued_io *queued, *next, *first = throttle_any(throttle);
	/* all I/O waits while that of an exhausted cgroup fills the window of shares */
	bool answered = time_before(jiffies, throttle->answered + 2 * THROTTLE_PATIENCE);
	struct kvblk_cgroup_queue *queue;

	list_for_each_entry_safe(queued, next, &throttle->counted, counted) {
		/* the oldest is first */
		if (time_before(jiffies, queued->since + THROTTLE_PATIENCE))
			break;
		if (time_before(jiffies, queued->since + THROTTLE_PATIENCE +
				(unsigned long)(queued->bytes * HZ >> THROTTLE_RATE_SHIFT)))
			continue;
		if ((answers || (queued->share && answered)) && first &&
		    (mixed || first->cgroup != queued->cgroup)) {
			queue = cgroup_queue_of(member, queued->cgroup, true);
			if (queue)
				queue->poor_until = jiffies + THROTTLE_POOR;
		}
		throttle_uncount(member, queued);
	}
}

/* Returns whether I/O of the cgroup is not counted: it exceeds its budget. */
static bool cgroup_poor(struct kvblk_member *member, const void *cgroup)
{
	const struct kvblk_cgroup_queue *queue = cgroup_queue_of(member, cgroup, false);

	return queue && time_before(jiffies, queue->poor_until);
}

/* Counts a released I/O in the window whose total is @bytes. */
static void throttle_count(struct kvblk_member *member, struct kvblk_queued_io *queued, u64 *bytes)
{
	queued->since = jiffies;
	*bytes += queued->bytes;
	list_add_tail(&queued->counted, &member->log.throttle.counted);
	WRITE_ONCE(queued->member, member);
}

static bool throttle_pass(struct kvblk_member *member, struct kvblk_queued_io *queued, u64 window)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;

	if (cgroup_poor(member, queued->cgroup))
		return true;
	if (throttle->bytes &&
	    (queued->bytes > window || throttle->bytes > window - queued->bytes))
		return false;
	throttle_count(member, queued, &throttle->bytes);
	return true;
}

/* Notes that a write waits or no longer does. A full queue accepts writes at three quarters. */
static void throttle_account(struct kvblk_member *member, const struct kvblk_queued_io *queued,
			     bool waits)
{
	u64 bytes = queued->get ? 0 : queued->bytes;
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_pool *pool = member->flash.pool;
	u64 limit = READ_ONCE(pool->tun.queue_bytes);

	lockdep_assert_held(&throttle->lock);
	throttle->waiting += waits ? bytes : -bytes;
	throttle->nr_waiting += waits ? 1 : -1;
	if (throttle->waiting > limit) {
		WRITE_ONCE(throttle->full, true);
	} else if (throttle->full && throttle->waiting <= limit - limit / 4) {
		WRITE_ONCE(throttle->full, false);
		kvblk_space_appears(pool);
	}
}

/* Adds an I/O of the current task to a queue. */
static void throttle_wait(struct kvblk_member *member, struct kvblk_queued_io *queued,
			  struct list_head *queued_ios)
{
	queued->css = current_css();
	queued->ioprio = get_current_ioprio();
	queued->since = jiffies;
	throttle_account(member, queued, true);
	list_add_tail(&queued->link, queued_ios);
	queue_delayed_work(member->flash.pool->wq, &member->log.throttle.work, THROTTLE_LOOK);
}

static noinline bool throttle_enter(struct kvblk_member *member, struct kvblk_queued_io *queued,
				    u64 window)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;

	queued->cgroup = current_cgroup();
	guard(spinlock_irqsave)(&throttle->lock);
	if (!throttle_next(throttle) && throttle_pass(member, queued, window))
		return true;
	throttle_wait(member, queued, queued->prefetch ? &throttle->prefetches[queued->priority] :
							 &throttle->puts);
	return false;
}

static void cgroup_queue_add(struct kvblk_member *member, struct kvblk_queued_io *queued)
{
	struct kvblk_cgroup_queue *queue = cgroup_queue_of(member, queued->cgroup, true) ?:
					   member->log.throttle.cgroup_queues;

	list_move_tail(&queued->link, &queue->queued_ios);
	queue->busy = true;
	queue_work(throttle_wq, &queue->work);
}

/* ---- shares ---- */

/*
 * Returns whether several tenants have I/O, of which @account has the next. Without a lock, because
 * a race only begins or ends shares a little late.
 */
static noinline bool share_look(struct kvblk_member *member, const struct kvblk_account *account)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	const struct kvblk_account *last = READ_ONCE(throttle->account);

	if (last != account) {
		if (last)
			WRITE_ONCE(throttle->mixed, jiffies);
		WRITE_ONCE(throttle->account, account);
	}
	if (time_before(jiffies, READ_ONCE(throttle->mixed) + SHARE_TIME) ||
	    !list_empty_careful(&throttle->waiting_shares)) {
		if (READ_ONCE(member->flash.payer))
			WRITE_ONCE(member->flash.payer, NULL);
		return true;
	}
	WRITE_ONCE(member->flash.payer, account);
	return false;
}

/* Returns the share of a tenant. If all are in use, tenants have one together. */
static struct kvblk_share *share_of(struct kvblk_write_throttle *throttle,
				    const struct kvblk_account *account)
{
	u32 first = READ_ONCE(account->id) % KVBLK_SHARES, i;
	struct kvblk_share *share, *spare = NULL;

	lockdep_assert_held(&throttle->lock);
	for (i = 0; i < KVBLK_SHARES; i++) {
		share = &throttle->shares[(first + i) % KVBLK_SHARES];
		if (share->account == account)
			return share;
		if (!spare && !share->counted && list_empty(&share->link))
			spare = share;
		if (!share->account)
			break;
	}
	if (!spare)
		return &throttle->shares[first];
	spare->account = account;
	spare->clock = throttle->clock;
	return spare;
}

static u64 share_window(const struct kvblk_member *member)
{
	u64 rate = READ_ONCE(member->flash.bandwidth.rate);

	return rate ? clamp_t(u64, rate >> SHARE_RATE_SHIFT, SHARE_LEAST, SHARE_MOST) :
		      SHARE_UNKNOWN;
}

/* Serves an I/O of @share unless the window is full. A device that does not respond has none. */
static bool share_pass(struct kvblk_member *member, struct kvblk_share *share,
		       struct kvblk_queued_io *queued)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	bool poor = cgroup_poor(member, queued->cgroup);

	if (!poor && throttle->shared_bytes && kvblk_flash_may_read(&member->flash) &&
	    throttle->shared_bytes + queued->bytes > share_window(member))
		return false;
	kvblk_share_serve(&share->clock, &throttle->clock, queued->bytes,
			  max(READ_ONCE(queued->account->limits.weight), 1u));
	share->wrote = !queued->get;
	if (poor)
		return true;
	queued->share = share;
	share->counted++;
	share->writes += !queued->get;
	throttle_count(member, queued, &throttle->shared_bytes);
	return true;
}

/* Has the tenant's clock begin, unless it runs. */
static void share_begin(struct kvblk_write_throttle *throttle, struct kvblk_share *share)
{
	if (list_empty(&share->link))
		kvblk_share_begin(&share->clock, throttle->clock);
}

/* Has a write that waits for gets wait for its tenant's share instead. */
static void share_move(struct kvblk_write_throttle *throttle, struct kvblk_queued_io *queued)
{
	struct kvblk_share *share = share_of(throttle, queued->account);

	share_begin(throttle, share);
	list_move_tail(&queued->link, &share->writes_queued);
	if (list_empty(&share->link))
		list_add_tail(&share->link, &throttle->waiting_shares);
}

static bool share_enter(struct kvblk_member *member, struct kvblk_queued_io *queued)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_share *share;
	bool waits;

	queued->cgroup = current_cgroup();
	guard(spinlock_irqsave)(&throttle->lock);
	share = share_of(throttle, queued->account);
	waits = share_next(throttle);
	share_begin(throttle, share);
	if (!waits && share_pass(member, share, queued))
		return true;
	throttle_wait(member, queued, queued->get ? &share->gets : &share->writes_queued);
	if (list_empty(&share->link))
		list_add_tail(&share->link, &throttle->waiting_shares);
	WRITE_ONCE(member->flash.limited, true);
	return false;
}

/* Releases up to HOLD_MOST I/Os by shares. Returns whether there may be more to release. */
static bool share_release(struct kvblk_member *member)
{
	struct kvblk_write_throttle *throttle = &member->log.throttle;
	struct kvblk_queued_io *queued;
	struct kvblk_share *share;
	u32 nr;

	guard(spinlock_irq)(&throttle->lock);
	for (nr = 0; nr < HOLD_MOST; nr++) {
		share = share_next(throttle);
		queued = share ? share_first(share) : NULL;
		if (!queued || !share_pass(member, share, queued))
			break;
		cgroup_queue_add(member, queued);
	}
	return nr == HOLD_MOST;
}

/* ---- entering, leaving and release ---- */

void kvblk_throttle_enter(struct kvblk_queued_io *queued, struct kvblk_member *member)
{
	u64 window;
	bool pass;

	queued->member = NULL;
	queued->share = NULL;
	queued->ioprio = 0;
	if (unlikely(kvblk_flash_shares(&member->flash, queued->account)) &&
	    share_look(member, queued->account)) {
		pass = share_enter(member, queued);
	} else {
		window = queued->get ? U64_MAX :
				       queued_window(member, queued, kvblk_put_window(member));
		/* an uncounted put completes soon, and no other put waits for its completion */
		pass = window == U64_MAX || throttle_enter(member, queued, window);
	}
	if (pass)
		queued->submit(queued);
}

void __kvblk_throttle_leave(struct kvblk_queued_io *queued, struct kvblk_member *member)
{
	guard(spinlock_irqsave)(&member->log.throttle.lock);
	if (!queued->member)
		return;
	throttle_uncount(member, queued);
	if (throttle_any(&member->log.throttle))
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
				throttle_account(member, queued, false);
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

static void throttle_drop(struct kvblk_member *member, struct kvblk_queued_io *queued,
			  struct list_head *go)
{
	lockdep_assert_held(&member->log.throttle.lock);
	if (!READ_ONCE(*queued->given_up) &&
	    (!queued->deadline_ns || ktime_get_ns() < queued->deadline_ns))
		return;
	throttle_account(member, queued, false);
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
		first = throttle_any(throttle);
		if (first)
			cgroup = first->cgroup;
	}
	mixed = queue_look(member, &throttle->puts, cgroup, go);
	for (i = 0; i <= KVBLK_PRIORITY_MAX; i++)
		mixed |= queue_look(member, &throttle->prefetches[i], cgroup, go);
	for (i = 0; i < KVBLK_SHARES && !list_empty_careful(&throttle->waiting_shares); i++) {
		mixed |= queue_look(member, &throttle->shares[i].gets, cgroup, go);
		mixed |= queue_look(member, &throttle->shares[i].writes_queued, cgroup, go);
	}
	for (i = 0; i < KVBLK_CGROUP_QUEUES; i++)
		cgroup_queue_look(member, &throttle->cgroup_queues[i], go);
	kvblk_flash_inflight(&member->flash, &ios);
	guard(spinlock_irq)(&throttle->lock);
	if (ios.done != throttle->done)
		throttle->answered = jiffies;
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
		if (!READ_ONCE(member->flash.payer))
			share_move(throttle, queued);
		else if (throttle_pass(member, queued, queued_window(member, queued, window)))
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
	bool shares;

	if (time_after_eq(jiffies, throttle->looked + THROTTLE_LOOK))
		throttle_look(member, &go);
	while (throttle_release(member, window))
		cond_resched();
	while (share_release(member))
		cond_resched();
	scoped_guard(spinlock_irq, &throttle->lock) {
		shares = share_next(throttle);
		WRITE_ONCE(member->flash.limited, shares);
		if (throttle->nr_waiting)
			queue_delayed_work(member->flash.pool->wq, &throttle->work, THROTTLE_LOOK);
	}
	/* the window follows the bandwidth */
	if (shares)
		kvblk_flash_look(&member->flash, ktime_get_ns());
	/* canceled and late I/Os are not submitted */
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
	INIT_LIST_HEAD(&throttle->waiting_shares);
	throttle->mixed = jiffies - SHARE_TIME;
	for (i = 0; i < KVBLK_SHARES; i++) {
		INIT_LIST_HEAD(&throttle->shares[i].link);
		INIT_LIST_HEAD(&throttle->shares[i].gets);
		INIT_LIST_HEAD(&throttle->shares[i].writes_queued);
	}
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
