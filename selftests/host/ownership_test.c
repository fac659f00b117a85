// SPDX-License-Identifier: GPL-2.0
/*
 * Ownership of a ring's operation: its bios, its task, the work that finishes it for a task that
 * does not respond, cancels (ioctl, deadline, end of the ring), and its own work once it is
 * detached. Tries all orders of their steps, with the module's own functions; the code between
 * those is a step, too.
 */
#include <stdio.h>

#include "kvblk_test.h"
#include "ops/ownership.h"

#define FLIGHTS		5u	/* a get may be read again, or in parts */
#define STEPS_MAX	128u

static struct model {
	struct kvblk_completion_list completions;
	struct kvblk_ownership ownership;
	unsigned int flights;	/* submissions of bios so far */
	bool flying;
	bool media;		/* the media half is in progress */
	bool busy;		/* task, rescue or work is finishing the operation */
	bool told;		/* task work is queued */
	bool working;		/* work of the detached operation is queued */
	bool canceled;
	unsigned int completed;	/* number of completions of the command */
	/* Next step of the task and of the rescuing work. */
	enum at { IDLE, FINISH, AGAIN, GIVE_BACK } task, rescue;
} m;

enum step {
	BIOS_OVER, TASK_COMES, TASK_OVER, TASK_AGAIN, TASK_FLIES, RESCUE_TAKES,
	RESCUE_ENDS, RESCUE_AGAIN, RESCUE_FLIES, RESCUE_GIVES_BACK, CANCEL,
	WORK_OVER, WORK_AGAIN, STEPS,
};

static void begin(void)
{
	memset(&m, 0, sizeof(m));
	INIT_LIST_HEAD(&m.completions.waiting);
	INIT_LIST_HEAD(&m.ownership.link);
	m.ownership.completions = &m.completions;
	atomic_set(&m.ownership.state, KVBLK_REQ_INFLIGHT);
	m.flights = 1;
	m.flying = true;
	m.media = true;
}

static bool may(enum step step, bool task_comes, bool cancels)
{
	switch (step) {
	case BIOS_OVER:
		return m.flying;
	case TASK_COMES:
		return task_comes && m.told && m.task == IDLE;
	case TASK_OVER:
		return m.task == FINISH;
	case TASK_AGAIN:
		return m.task == FINISH && m.flights < FLIGHTS;
	case TASK_FLIES:
		return m.task == AGAIN;
	case RESCUE_TAKES:
		return m.rescue == IDLE && !list_empty(&m.completions.waiting);
	case RESCUE_ENDS:
		return m.rescue == FINISH;
	case RESCUE_AGAIN:
		/* only operations with a media half have I/O in flight */
		return m.rescue == FINISH && m.media && m.flights < FLIGHTS;
	case RESCUE_FLIES:
		return m.rescue == AGAIN;
	case RESCUE_GIVES_BACK:
		return m.rescue == GIVE_BACK;
	case CANCEL:
		return cancels && !m.canceled && !m.completed;
	case WORK_OVER:
		return m.working;
	case WORK_AGAIN:
		return m.working && m.flights < FLIGHTS;
	default:
		return false;
	}
}

static void finish_begin(enum at *who)
{
	assert_false(m.busy);
	m.busy = true;
	*who = FINISH;
}

/* Resubmit: the state becomes INFLIGHT before the bios are submitted. */
static void again(enum at *who)
{
	atomic_cmpxchg(&m.ownership.state, KVBLK_REQ_DONE, KVBLK_REQ_INFLIGHT);
	m.media = true;
	m.flights++;
	*who = AGAIN;
}

static void fly(enum at *who)
{
	assert_false(m.flying);
	m.busy = false;
	m.flying = true;
	*who = IDLE;
}

static void tell(void)
{
	assert_false(m.told);
	m.told = true;
}

static void complete_command(void)
{
	/* no task work may be queued for a completed command */
	assert_false(m.told);
	assert_int_equal(m.completed++, 0);
}

static void take_step(enum step step)
{
	bool detached;

	switch (step) {
	case BIOS_OVER:
		m.flying = false;
		if (!kvblk_ownership_done(&m.ownership))
			m.working = true;
		else if (kvblk_ownership_queue(&m.ownership, 0, 3))
			tell();
		break;
	case TASK_COMES:
		m.told = false;
		if (kvblk_ownership_claim(&m.ownership))
			finish_begin(&m.task);
		break;
	case TASK_OVER:
		m.busy = false;
		m.media = false;
		m.task = IDLE;
		complete_command();
		break;
	case TASK_AGAIN:
		again(&m.task);
		break;
	case TASK_FLIES:
		fly(&m.task);
		break;
	case RESCUE_TAKES:
		assert_ptr_equal(kvblk_ownership_take(&m.completions, 0, 8), &m.ownership);
		finish_begin(&m.rescue);
		break;
	case RESCUE_ENDS:
		m.busy = false;
		m.media = false;
		m.rescue = GIVE_BACK;
		break;
	case RESCUE_AGAIN:
		again(&m.rescue);
		break;
	case RESCUE_FLIES:
		fly(&m.rescue);
		break;
	case RESCUE_GIVES_BACK:
		m.rescue = IDLE;
		if (kvblk_ownership_give_back(&m.ownership))
			tell();
		break;
	case CANCEL:
		m.canceled = true;
		spin_lock(&m.completions.lock);
		detached = kvblk_ownership_detach(&m.ownership);
		spin_unlock(&m.completions.lock);
		if (detached)
			complete_command();
		break;
	case WORK_OVER:
		assert_false(m.busy);
		m.working = false;
		m.media = false;
		break;
	case WORK_AGAIN:
		assert_false(m.busy);
		m.working = false;
		m.flights++;
		m.flying = true;
		break;
	default:
		break;
	}
}

/* Run all orders of steps. Returns their number. */
static unsigned long all_orders(bool task_comes, bool cancels)
{
	static enum step tried[STEPS_MAX];
	unsigned int depth = 0, prefix = 0;
	unsigned long orders = 0;

	for (;;) {
		begin();
		for (depth = 0;; depth++) {
			enum step step = depth < prefix ? tried[depth] : 0;

			assert_true(depth < STEPS_MAX);
			while (step < STEPS && !may(step, task_comes, cancels))
				step++;
			if (step == STEPS)
				break;
			tried[depth] = step;
			take_step(step);
		}
		/* no step is possible: check the end state */
		orders++;
		assert_false(m.busy || m.flying || m.working);
		assert_false(m.media);
		assert_true(list_empty(&m.completions.waiting));
		assert_int_equal(m.completions.pages, 0);
		if (task_comes) {
			assert_false(m.told);
			assert_int_equal(m.completed, 1);
		}
		/* go back to the last step that has an untried alternative */
		while (depth) {
			enum step next;

			begin();
			for (prefix = 0; prefix + 1 < depth; prefix++)
				take_step(tried[prefix]);
			next = tried[--depth] + 1;
			while (next < STEPS && !may(next, task_comes, cancels))
				next++;
			if (next < STEPS) {
				tried[depth] = next;
				prefix = depth + 1;
				break;
			}
			prefix = 0;
		}
		if (!prefix)
			return orders;
	}
}

TEST(every_order_ends_it_once)
{
	unsigned long orders = all_orders(true, true);

	print_message("%lu orders\n", orders);
	/* fewer would mean that some step was never possible */
	assert_true(orders > 10000);
}

TEST(a_task_that_never_comes_holds_no_media)
{
	assert_true(all_orders(false, false) > 1);
	assert_true(all_orders(false, true) > 1);
}

/* The work takes operations that wait too long, or pin too many pages. */
TEST(the_work_takes_what_is_late_or_too_much)
{
	struct kvblk_completion_list completions = {};
	struct kvblk_ownership hands[3] = {};

	spin_lock_init(&completions.lock);
	INIT_LIST_HEAD(&completions.waiting);
	for (int i = 0; i < 3; i++) {
		INIT_LIST_HEAD(&hands[i].link);
		hands[i].completions = &completions;
		kvblk_ownership_queue(&hands[i], 10 + i, 4);
	}
	/* too long */
	assert_null(kvblk_ownership_take(&completions, 9, 12));
	assert_ptr_equal(kvblk_ownership_take(&completions, 10, 12), &hands[0]);
	/* too many pages; taking one operation ends the excess */
	assert_ptr_equal(kvblk_ownership_take(&completions, 9, 7), &hands[1]);
	assert_null(kvblk_ownership_take(&completions, 9, 7));
	assert_true(kvblk_ownership_claim(&hands[2]));
	assert_int_equal(completions.pages, 0);
}

TEST_MAIN("handover")
