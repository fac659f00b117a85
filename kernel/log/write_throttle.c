// SPDX-License-Identifier: GPL-2.0
/*
 * Write throttle ("gate" in symbols): reads before writes. A get waits behind all that a device
 * has accepted. So while gets are submitted, a member has at most a window of puts in flight, and
 * further puts are queued here. At least one put is admitted: its completion admits the next.
 *
 * The rules:
 * - No write passes a queued write. But a queued put holds a reservation, and a prefetch memory.
 *   So beyond queue_bytes the throttle is full, and new writes wait before they take either.
 * - A put is counted for a limited time, because the device may not respond, or the cgroup may
 *   exceed its budget (io.max). If the device responds while puts of other cgroups are queued, the
 *   cgroup's puts are admitted uncounted for a while, or else they would delay the others.
 * - Prefetches are throttled, too, to leave bandwidth for later gets. A prefetch passes recent
 *   writes of lower priority, but no write that has waited for GATE_LOOK.
 * - Queued puts are submitted as I/O of their callers' cgroups by work items ("lanes"), each for
 *   one cgroup: io.cost makes a submitter sleep for its cgroup's budget. Cgroups share work items
 *   if there are too many.
 */
#include <linux/cgroup.h>
#include <linux/ioprio.h>
#include <linux/kthread.h>

#include "log/log.h"

#define GATE_TIME	HZ		/* time after a get with throttled puts */
#define GATE_PATIENCE	(HZ / 2)	/* time for which a put is counted, plus */
#define GATE_RATE_SHIFT	26		/* a second for each 64 MiB */
#define GATE_POOR	(4 * HZ)	/* time for which a cgroup counts as over budget */
#define GATE_LOOK	(HZ / 10)	/* interval of checks of queued writes */
#define GATE_IDLE	16		/* put windows of prefetches without gets */

static struct workqueue_struct *gate_wq;

int kvblk_gate_init(void)
{
	gate_wq = alloc_workqueue("kvblk-gate", WQ_UNBOUND | WQ_FREEZABLE, WQ_MAX_ACTIVE);
	return gate_wq ? 0 : -ENOMEM;
}

void kvblk_gate_exit(void)
{
	destroy_workqueue(gate_wq);
}

u64 kvblk_put_window(const struct kvblk_member *member)
{
	u64 window = READ_ONCE(member->pool->tun.put_window_bytes);

	return window && kvblk_member_writable(member) &&
	       time_before(jiffies, READ_ONCE(member->last_get) + GATE_TIME) ?
	       window : U64_MAX;
}

/* Returns the window for @turn: @window, or GATE_IDLE put windows for a prefetch if unlimited. */
static u64 turn_window(const struct kvblk_member *member, const struct kvblk_turn *turn,
		       u64 window)
{
	u64 put = READ_ONCE(member->pool->tun.put_window_bytes);

	return turn->prefetch && window == U64_MAX && put && kvblk_member_ok(member) ?
	       GATE_IDLE * put : window;
}

/* Returns the task's io cgroup: compared, never dereferenced, since no reference is held. */
static const struct cgroup_subsys_state *turn_cgroup(void)
{
#ifdef CONFIG_BLK_CGROUP
	guard(rcu)();
	return task_css(current, io_cgrp_id);
#else
	return NULL;
#endif
}

static struct cgroup_subsys_state *turn_css(void)
{
#ifdef CONFIG_BLK_CGROUP
	return task_get_css(current, io_cgrp_id);
#else
	return NULL;
#endif
}

static void gate_count(struct kvblk_member *member, struct kvblk_turn *turn)
{
	turn->since = jiffies;
	member->gate_bytes += turn->bytes;
	list_add_tail(&turn->counted, &member->gate_counted);
	WRITE_ONCE(turn->member, member);
}

static void gate_uncount(struct kvblk_member *member, struct kvblk_turn *turn)
{
	lockdep_assert_held(&member->gate_lock);
	list_del(&turn->counted);
	member->gate_bytes -= turn->bytes;
	/* last, because the turn may be freed from here on */
	smp_store_release(&turn->member, NULL);
}

static bool gate_late(const struct kvblk_turn *turn)
{
	return time_after_eq(jiffies, turn->since + GATE_PATIENCE +
			     (unsigned long)(turn->bytes * HZ >> GATE_RATE_SHIFT));
}

static bool lane_is_poor(const struct kvblk_lane *lane)
{
	return time_before(jiffies, lane->poor_until);
}

/* Returns the queue of @cgroup; if there is none and @take is set, a free queue, else NULL. */
static struct kvblk_lane *lane_of(struct kvblk_member *member, const void *cgroup,
				  bool take)
{
	struct kvblk_lane *lane, *spare = NULL;

	lockdep_assert_held(&member->gate_lock);
	for (lane = member->lanes; lane < member->lanes + KVBLK_LANES; lane++) {
		if (lane->cgroup == cgroup)
			return lane;
		if (take && !lane->busy && !lane_is_poor(lane))
			spare = lane;
	}
	if (spare)
		spare->cgroup = cgroup;
	return spare;
}

/* Stops counting puts after too long. @answers: the device responds, so a cgroup is over budget. */
static void gate_forget(struct kvblk_member *member, bool answers)
{
	struct kvblk_turn *turn, *next, *first, *other;
	struct kvblk_lane *lane;

	first = list_first_entry(&member->gate, struct kvblk_turn, link);
	list_for_each_entry(other, &member->gate, link)
		if (other->cgroup != first->cgroup)
			break;
	list_for_each_entry_safe(turn, next, &member->gate_counted, counted) {
		if (!gate_late(turn))
			continue;
		lane = NULL;
		if (answers && !list_empty(&member->gate) &&
		    (first->cgroup != turn->cgroup ||
		     !list_entry_is_head(other, &member->gate, link)))
			lane = lane_of(member, turn->cgroup, true);
		if (lane)
			lane->poor_until = jiffies + GATE_POOR;
		gate_uncount(member, turn);
	}
}

static bool gate_pass(struct kvblk_member *member, struct kvblk_turn *turn, u64 window)
{
	const struct kvblk_lane *lane = lane_of(member, turn->cgroup, false);

	if (lane && lane_is_poor(lane))
		return true;
	if (member->gate_bytes && (turn->bytes > window ||
				   member->gate_bytes > window - turn->bytes))
		return false;
	gate_count(member, turn);
	return true;
}

/* Adds @bytes to the queue's total. A full queue accepts writes again at three quarters. */
static void gate_wait(struct kvblk_member *member, s64 bytes)
{
	u64 limit = READ_ONCE(member->pool->tun.queue_bytes);
	struct kvblk_pool *pool = member->pool;

	lockdep_assert_held(&member->gate_lock);
	member->gate_waiting += bytes;
	if (member->gate_waiting > limit) {
		WRITE_ONCE(member->gate_full, true);
	} else if (member->gate_full && member->gate_waiting <= limit - limit / 4) {
		WRITE_ONCE(member->gate_full, false);
		atomic_inc(&pool->space_seq);
		wake_up_all(&pool->space_wait);
	}
}

/* Queues @turn behind writes of its priority, and behind those queued for GATE_LOOK. */
static void gate_queue(struct kvblk_member *member, struct kvblk_turn *turn)
{
	struct kvblk_turn *other;

	turn->since = jiffies;
	list_for_each_entry_reverse(other, &member->gate, link)
		if (other->priority >= turn->priority ||
		    time_after(jiffies, other->since + GATE_LOOK))
			break;
	list_add(&turn->link, &other->link);
	member->gate_puts += !turn->prefetch;
}

static bool gate_enter(struct kvblk_member *member, struct kvblk_turn *turn, u64 window)
{
	turn->cgroup = turn_cgroup();
	guard(spinlock_irqsave)(&member->gate_lock);
	if (list_empty(&member->gate) && gate_pass(member, turn, window))
		return true;
	turn->css = turn_css();
	turn->ioprio = get_current_ioprio();
	gate_wait(member, turn->bytes);
	gate_queue(member, turn);
	queue_delayed_work(member->pool->wq, &member->gate_work, GATE_LOOK);
	return false;
}

void kvblk_turn_enter(struct kvblk_turn *turn, struct kvblk_member *member)
{
	u64 window = turn_window(member, turn, kvblk_put_window(member));

	turn->member = NULL;
	turn->ioprio = 0;
	/* an uncounted put completes soon, and no other put waits for its completion */
	if (window == U64_MAX || gate_enter(member, turn, window))
		turn->submit(turn);
}

void kvblk_turn_over(struct kvblk_turn *turn, struct kvblk_member *member)
{
	guard(spinlock_irqsave)(&member->gate_lock);
	if (!turn->member)
		return;
	gate_uncount(member, turn);
	if (!list_empty(&member->gate))
		mod_delayed_work(member->pool->wq, &member->gate_work, 0);
}

static void gate_submit(struct kvblk_turn *turn)
{
	struct cgroup_subsys_state *css = turn->css;

	kthread_associate_blkcg(css);
	turn->submit(turn);
	kthread_associate_blkcg(NULL);
	if (css)
		css_put(css);
}

static void gate_lane_work(struct work_struct *work)
{
	struct kvblk_lane *lane = container_of(work, struct kvblk_lane, work);
	struct kvblk_member *member = lane->member;
	struct kvblk_turn *turn;

	for (;;) {
		scoped_guard(spinlock_irq, &member->gate_lock) {
			turn = list_first_entry_or_null(&lane->turns, struct kvblk_turn,
							link);
			if (turn) {
				gate_wait(member, -(s64)turn->bytes);
				list_del(&turn->link);
			}
			lane->busy = !!turn;
		}
		if (!turn)
			return;
		gate_submit(turn);
		cond_resched();
	}
}

static void lane_enter(struct kvblk_member *member, struct kvblk_turn *turn)
{
	struct kvblk_lane *lane = lane_of(member, turn->cgroup, true) ?: member->lanes;

	member->gate_puts -= !turn->prefetch;
	list_move_tail(&turn->link, &lane->turns);
	lane->busy = true;
	queue_work(gate_wq, &lane->work);
}

static void gate_drop(struct kvblk_member *member, struct list_head *turns,
		      struct list_head *go)
{
	struct kvblk_turn *turn, *next;

	list_for_each_entry_safe(turn, next, turns, link) {
		if (!READ_ONCE(*turn->given_up))
			continue;
		gate_wait(member, -(s64)turn->bytes);
		if (turns == &member->gate)
			member->gate_puts -= !turn->prefetch;
		list_move_tail(&turn->link, go);
	}
}

static void gate_look(struct kvblk_member *member, struct list_head *go)
{
	bool recent = time_before(jiffies, member->gate_looked + 3 * GATE_LOOK);
	struct kvblk_lane *lane;
	struct kvblk_ios ios;

	kvblk_member_inflight(member, &ios);
	gate_forget(member, recent && ios.done != member->gate_done);
	member->gate_done = ios.done;
	member->gate_looked = jiffies;
	gate_drop(member, &member->gate, go);
	for (lane = member->lanes; lane < member->lanes + KVBLK_LANES; lane++)
		gate_drop(member, &lane->turns, go);
}

static void gate_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(to_delayed_work(work),
						   struct kvblk_member, gate_work);
	u64 window = kvblk_put_window(member);
	struct kvblk_turn *turn, *next;
	bool prefetch_waits = false;
	LIST_HEAD(go);

	scoped_guard(spinlock_irq, &member->gate_lock) {
		if (time_after_eq(jiffies, member->gate_looked + GATE_LOOK))
			gate_look(member, &go);
		/* keep the order, except that puts pass prefetches while no gets are submitted */
		list_for_each_entry_safe(turn, next, &member->gate, link) {
			/* or else each completion would walk all prefetches under the lock */
			if (prefetch_waits && !member->gate_puts)
				break;
			if (prefetch_waits && turn->prefetch)
				continue;
			if (gate_pass(member, turn, turn_window(member, turn, window)))
				lane_enter(member, turn);
			else if (window == U64_MAX)
				prefetch_waits = true;
			else
				break;
		}
		if (member->gate_waiting)
			queue_delayed_work(member->pool->wq, &member->gate_work,
					   GATE_LOOK);
	}
	/* canceled writes submit no I/O */
	list_for_each_entry_safe(turn, next, &go, link)
		gate_submit(turn);
}

void kvblk_gate_member_init(struct kvblk_member *member)
{
	struct kvblk_lane *lane;

	spin_lock_init(&member->gate_lock);
	INIT_LIST_HEAD(&member->gate);
	INIT_LIST_HEAD(&member->gate_counted);
	INIT_DELAYED_WORK(&member->gate_work, gate_work);
	for (lane = member->lanes; lane < member->lanes + KVBLK_LANES; lane++) {
		lane->member = member;
		lane->poor_until = jiffies;
		INIT_LIST_HEAD(&lane->turns);
		INIT_WORK(&lane->work, gate_lane_work);
	}
}

void kvblk_gate_member_exit(struct kvblk_member *member)
{
	struct kvblk_lane *lane;

	cancel_delayed_work_sync(&member->gate_work);
	for (lane = member->lanes; lane < member->lanes + KVBLK_LANES; lane++)
		cancel_work_sync(&lane->work);
}
