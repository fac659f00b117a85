// SPDX-License-Identifier: GPL-2.0
/*
 * The gate. Reads go before writes: while gets come, a member has no more than a
 * window of puts in flight, for a get waits behind all that a device has got. The
 * others wait here, where they cost gets nothing. One is always let through, so
 * there is always an I/O whose end lets the next ones in; when it does not end,
 * kvblk_member_watch() has the gate looked at.
 */
#include "log.h"

#define GATE_TIME	HZ		/* gets come: there was one lately */
#define GATE_PATIENCE	HZ		/* for a put that was let through */
#define GATE_SCAN	(HZ / 10)	/* between two searches for those given up */

u64 kvblk_put_window(const struct kvblk_member *member)
{
	u64 window = READ_ONCE(member->pool->tun.put_window_bytes);

	return window && kvblk_member_ok(member) &&
	       time_before(jiffies, READ_ONCE(member->last_get) + GATE_TIME) ?
	       window : U64_MAX;
}

static bool gate_pass(struct kvblk_member *member, const struct kvblk_turn *turn,
		      u64 window)
{
	lockdep_assert_held(&member->gate_lock);
	if (!member->gate_bytes)
		member->gate_moved = jiffies;
	if (member->gate_bytes && (turn->bytes > window ||
				   member->gate_bytes > window - turn->bytes))
		return false;
	member->gate_bytes += turn->bytes;
	return true;
}

void kvblk_turn_enter(struct kvblk_turn *turn, struct kvblk_member *member)
{
	u64 window = kvblk_put_window(member);
	bool pass = true;

	turn->member = NULL;
	/*
	 * A put that is not counted ends soon, and no put waits for it. Puts that
	 * wait hold room, which others need: so only so many wait here, the rest
	 * waits for the device.
	 */
	if (window != U64_MAX) {
		guard(spinlock_irqsave)(&member->gate_lock);
		if (member->gate_waiting <= READ_ONCE(member->pool->tun.queue_bytes)) {
			turn->member = member;
			pass = list_empty(&member->gate) &&
			       gate_pass(member, turn, window);
		}
		if (!pass) {
			member->gate_waiting += turn->bytes;
			list_add_tail(&turn->link, &member->gate);
		}
	}
	if (pass)
		turn->submit(turn);
}

void kvblk_turn_over(struct kvblk_turn *turn)
{
	struct kvblk_member *member = turn->member;

	guard(spinlock_irqsave)(&member->gate_lock);
	turn->member = NULL;
	member->gate_bytes -= turn->bytes;
	member->gate_moved = jiffies;
	if (!list_empty(&member->gate))
		queue_work(member->pool->wq, &member->gate_work);
}

void kvblk_gate_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member,
						   gate_work);
	u64 window = kvblk_put_window(member);
	struct kvblk_turn *turn, *next;
	bool full = false, all;
	LIST_HEAD(go);

	scoped_guard(spinlock_irq, &member->gate_lock) {
		if (time_after(jiffies, member->gate_moved + GATE_PATIENCE))
			window = U64_MAX;
		all = time_after_eq(jiffies, member->gate_scanned + GATE_SCAN);
		if (all)
			member->gate_scanned = jiffies;
		list_for_each_entry_safe(turn, next, &member->gate, link) {
			if (READ_ONCE(*turn->given_up)) {
				turn->member = NULL;
			} else if (full || !gate_pass(member, turn, window)) {
				/* nobody overtakes it */
				full = true;
				if (!all)
					break;
				continue;
			}
			member->gate_waiting -= turn->bytes;
			list_move_tail(&turn->link, &go);
		}
	}
	/*
	 * As the root cgroup's I/O: that of a caller which is over its budget would
	 * sleep here, before what others wait for.
	 */
	list_for_each_entry_safe(turn, next, &go, link)
		turn->submit(turn);
}
