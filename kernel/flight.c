// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of an open file that are in flight, in generations: KVBLK_IOC_DRAIN
 * ends one and begins another, so that it waits for what it has met, not for what
 * comes later.
 *
 * The rules:
 * - An operation belongs to the newest generation when it is made, until it is
 *   freed; a file to its newest one.
 * - A file has two of them at most: the one that is ended is over before the next
 *   one is ended.
 */
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "op.h"

static void flight_put(struct kvblk_flight *flight)
{
	if (!flight || !refcount_dec_and_test(&flight->refs))
		return;
	percpu_ref_exit(&flight->ops);
	kfree(flight);
}

/* Any context. */
static void flight_over(struct percpu_ref *ops)
{
	struct kvblk_flight *flight = container_of(ops, struct kvblk_flight, ops);

	complete_all(&flight->over);
	flight_put(flight);
}

static struct kvblk_flight *flight_new(void)
{
	struct kvblk_flight *flight = kzalloc(sizeof(*flight), GFP_KERNEL_ACCOUNT);

	if (!flight)
		return NULL;
	if (percpu_ref_init(&flight->ops, flight_over, 0, GFP_KERNEL_ACCOUNT)) {
		kfree(flight);
		return NULL;
	}
	init_completion(&flight->over);
	refcount_set(&flight->refs, 1);
	return flight;
}

int kvblk_flight_init(struct kvblk_file *file)
{
	struct kvblk_flight *flight = flight_new();

	rcu_assign_pointer(file->flight, flight);
	return flight ? 0 : -ENOMEM;
}

void kvblk_flight_exit(struct kvblk_file *file)
{
	struct kvblk_flight *flight = rcu_dereference_protected(file->flight, true);

	flight_put(file->ending);
	percpu_ref_kill(&flight->ops);
}

void kvblk_flight_enter(struct kvblk_req *req)
{
	guard(rcu)();
	req->flight = rcu_dereference(req->owner->flight);
	/* it is not over: that takes a grace period from its end on */
	percpu_ref_get(&req->flight->ops);
}

/*
 * The newest one is ended, and @fresh begun, if none is ending; the one that is
 * ending, to be put. True: it was begun.
 */
static bool flight_end(struct kvblk_file *file, struct kvblk_flight *fresh,
		       struct kvblk_flight **ending)
{
	struct kvblk_flight *before;

	guard(spinlock)(&file->lock);
	before = file->ending;
	if (before && !completion_done(&before->over)) {
		refcount_inc(&before->refs);
		*ending = before;
		return false;
	}
	flight_put(before);
	*ending = rcu_dereference_protected(file->flight, lockdep_is_held(&file->lock));
	/* the file's, and our caller's */
	refcount_add(2, &(*ending)->refs);
	file->ending = *ending;
	rcu_assign_pointer(file->flight, fresh);
	percpu_ref_kill(&(*ending)->ops);
	return true;
}

/* 0, -ETIME, -ERESTARTSYS. */
static int flight_wait(struct kvblk_flight *flight, u64 deadline_ns)
{
	long step, left;
	u64 now;

	do {
		/* a ring's worker is told to give up in a way that wakes nobody */
		step = current->flags & PF_IO_WORKER ? HZ / 10 : MAX_SCHEDULE_TIMEOUT;
		now = ktime_get_ns();
		if (deadline_ns && now >= deadline_ns)
			return completion_done(&flight->over) ? 0 : -ETIME;
		if (deadline_ns)
			step = min_t(u64, step, nsecs_to_jiffies64(deadline_ns - now) + 1);
		left = wait_for_completion_interruptible_timeout(&flight->over, step);
	} while (!left);
	return left < 0 ? left : 0;
}

int kvblk_flight_drain(struct kvblk_file *file, u64 deadline_ns)
{
	struct kvblk_flight *fresh = flight_new(), *ending;
	bool begun;
	int err;

	if (!fresh)
		return -ENOMEM;
	do {
		begun = flight_end(file, fresh, &ending);
		err = flight_wait(ending, deadline_ns);
		flight_put(ending);
	} while (!err && !begun);
	if (!begun)
		flight_put(fresh);
	return err;
}
