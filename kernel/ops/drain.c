// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of an open file that are in flight, for KVBLK_IOC_DRAIN to wait for
 * those that it meets, not for those that come later.
 *
 * The rules:
 * - An operation counts from when it is made until it is freed, in the phase that
 *   was the current one then. Each CPU has counters of its own, so that operations
 *   pay next to nothing for who may wait one day.
 * - Whoever waits does so until the other phase is over, makes that the current one,
 *   and waits until the one before it is over. What began before is then.
 * - Who waits looks from time to time: nobody wakes it.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "request.h"

void kvblk_flight_put(struct kvblk_flight *flight)
{
	if (!refcount_dec_and_test(&flight->refs))
		return;
	free_percpu(flight->counts);
	kfree(flight);
}

struct kvblk_flight *kvblk_flight_new(void)
{
	struct kvblk_flight *flight = kzalloc(sizeof(*flight), GFP_KERNEL_ACCOUNT);

	if (!flight)
		return NULL;
	flight->counts = alloc_percpu_gfp(struct kvblk_flight_count, GFP_KERNEL_ACCOUNT);
	if (!flight->counts) {
		kfree(flight);
		return NULL;
	}
	refcount_set(&flight->refs, 1);
	mutex_init(&flight->draining);
	return flight;
}

static bool phase_over(struct kvblk_flight *flight, u8 phase)
{
	u64 begun = 0, over = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		over += READ_ONCE(per_cpu_ptr(flight->counts, cpu)->over[phase]);
	/* what began is no less than what is over */
	smp_rmb();
	for_each_possible_cpu(cpu)
		begun += READ_ONCE(per_cpu_ptr(flight->counts, cpu)->begun[phase]);
	return begun == over;
}

/* It was in vain: sleeps a little. 0, -ETIME, -ERESTARTSYS. */
static int drain_pause(u64 deadline_ns, unsigned long *step)
{
	u64 now = ktime_get_ns();
	unsigned long left = *step;

	if (deadline_ns && now >= deadline_ns)
		return -ETIME;
	if (deadline_ns)
		left = min(left, nsecs_to_jiffies(deadline_ns - now) + 1);
	if (signal_pending(current))
		return -ERESTARTSYS;
	schedule_timeout_interruptible(left);
	*step = min(2 * *step, msecs_to_jiffies(20) + 1);
	return 0;
}

static int phase_wait(struct kvblk_flight *flight, u8 phase, u64 deadline_ns)
{
	unsigned long step = 1;
	int err = 0;

	while (!err && !phase_over(flight, phase))
		err = drain_pause(deadline_ns, &step);
	return err;
}

int kvblk_flight_drain(struct kvblk_flight *flight, u64 deadline_ns)
{
	unsigned long step = 1;
	u64 before, number;
	u8 phase;
	int err;

	/* a drain behind @before sees what began until here; pairs with the one below */
	smp_mb();
	before = READ_ONCE(flight->drains);
	/* not a sleeping lock: a ring's worker is told to give up and not woken */
	while (!mutex_trylock(&flight->draining)) {
		err = drain_pause(deadline_ns, &step);
		if (err)
			return err;
		/* one that began later has waited for more */
		if (smp_load_acquire(&flight->drained) > before)
			return 0;
	}
	number = flight->drains + 1;
	WRITE_ONCE(flight->drains, number);
	/* @number is told before the counts are read; pairs with the one above */
	smp_mb();
	phase = flight->phase;
	err = phase_wait(flight, !phase, deadline_ns);
	if (!err) {
		WRITE_ONCE(flight->phase, !phase);
		err = phase_wait(flight, phase, deadline_ns);
	}
	if (!err) {
		/* pairs with the acquire of those that wait for the lock */
		smp_store_release(&flight->drained, number);
	}
	mutex_unlock(&flight->draining);
	return err;
}
