// SPDX-License-Identifier: GPL-2.0
/*
 * KVBLK_IOC_DRAIN waits for operations of an open file in flight at the call, not for later ones.
 * It polls: operations count per CPU, and wake no drain, so that they cost almost nothing. Each
 * counts from allocation until its memory is released, in the phase that was current at its start.
 * A drain waits until the other phase is empty, makes it current, and waits until the previous
 * phase is empty.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "request.h"

void kvblk_drainer_put(struct kvblk_drainer *drainer)
{
	if (!refcount_dec_and_test(&drainer->refs))
		return;
	free_percpu(drainer->counts);
	kfree(drainer);
}

struct kvblk_drainer *kvblk_drainer_new(void)
{
	struct kvblk_drainer *drainer __free(kfree) = kzalloc(sizeof(*drainer), GFP_KERNEL_ACCOUNT);

	if (!drainer)
		return NULL;
	drainer->counts = alloc_percpu_gfp(struct kvblk_drainer_count, GFP_KERNEL_ACCOUNT);
	if (!drainer->counts)
		return NULL;
	refcount_set(&drainer->refs, 1);
	mutex_init(&drainer->draining);
	return_ptr(drainer);
}

static bool phase_completed(struct kvblk_drainer *drainer, u8 phase)
{
	u64 started = 0, completed = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		completed += READ_ONCE(per_cpu_ptr(drainer->counts, cpu)->completed[phase]);
	/* read last, so that starts are never fewer than completions */
	smp_rmb();
	for_each_possible_cpu(cpu)
		started += READ_ONCE(per_cpu_ptr(drainer->counts, cpu)->started[phase]);
	return started == completed;
}

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

static int phase_wait(struct kvblk_drainer *drainer, u8 phase, u64 deadline_ns)
{
	unsigned long step = 1;
	int err = 0;

	while (!err && !phase_completed(drainer, phase))
		err = drain_pause(deadline_ns, &step);
	return err;
}

int kvblk_drainer_wait(struct kvblk_drainer *drainer, u64 deadline_ns)
{
	unsigned long step = 1;
	u64 before, number;
	u8 phase;
	int err;

	/* a drain after @before sees all earlier starts; pairs with the barrier below */
	smp_mb();
	before = READ_ONCE(drainer->drains);
	/* trylock, because a ring's worker is asked to stop without being woken */
	while (!mutex_trylock(&drainer->draining)) {
		err = drain_pause(deadline_ns, &step);
		if (err)
			return err;
		/* a drain that started later has waited for this one's operations */
		if (smp_load_acquire(&drainer->drained) > before)
			return 0;
	}
	number = drainer->drains + 1;
	WRITE_ONCE(drainer->drains, number);
	/* publishes @number before the counters are read; pairs with the barrier above */
	smp_mb();
	phase = drainer->phase;
	err = phase_wait(drainer, !phase, deadline_ns);
	if (!err) {
		WRITE_ONCE(drainer->phase, !phase);
		err = phase_wait(drainer, phase, deadline_ns);
	}
	if (!err) {
		/* pairs with smp_load_acquire() above */
		smp_store_release(&drainer->drained, number);
	}
	mutex_unlock(&drainer->draining);
	return err;
}
