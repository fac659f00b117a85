// SPDX-License-Identifier: GPL-2.0
/*
 * Drains: KVBLK_IOC_DRAIN waits for operations of an open file in flight at the call, not for
 * later operations.
 *
 * The rules:
 * - An operation counts from allocation to free, in the phase that was current at the start.
 *   The counters are per CPU, so operations without a drain cost almost nothing.
 * - A drain waits until the other phase is empty, makes the empty phase current, and waits
 *   until the previous phase is empty. All earlier operations are complete then.
 * - A drain polls: operations wake no drain.
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
	/* read last, so that starts are never fewer than completions */
	smp_rmb();
	for_each_possible_cpu(cpu)
		begun += READ_ONCE(per_cpu_ptr(flight->counts, cpu)->begun[phase]);
	return begun == over;
}

/* Sleeps for @step and doubles it. Returns 0, -ETIME or -ERESTARTSYS. */
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

	/* a drain after @before sees all earlier starts; pairs with the barrier below */
	smp_mb();
	before = READ_ONCE(flight->drains);
	/* trylock, because a ring's worker is asked to stop without being woken */
	while (!mutex_trylock(&flight->draining)) {
		err = drain_pause(deadline_ns, &step);
		if (err)
			return err;
		/* a drain that started later has waited for all of this one's operations */
		if (smp_load_acquire(&flight->drained) > before)
			return 0;
	}
	number = flight->drains + 1;
	WRITE_ONCE(flight->drains, number);
	/* publishes @number before the counters are read; pairs with the barrier above */
	smp_mb();
	phase = flight->phase;
	err = phase_wait(flight, !phase, deadline_ns);
	if (!err) {
		WRITE_ONCE(flight->phase, !phase);
		err = phase_wait(flight, phase, deadline_ns);
	}
	if (!err) {
		/* pairs with smp_load_acquire() above */
		smp_store_release(&flight->drained, number);
	}
	mutex_unlock(&flight->draining);
	return err;
}
