/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who owns an operation, and so may finish it: its bios, its task, the work that
 * ends it for a task that does not come, or a cancel.
 *
 *         submit             bios over
 *   NEW --------> INFLIGHT --------------> DONE, on a landing: of who takes it off
 *                  |    ^                  |                |
 *                  |    +--- read again ---+ task           | work
 *     cancel, kill |                       v                v
 *                  v                     result       given back: the task's
 *               DETACHED --> a work of its own ends it
 *
 * The rules:
 * - One at a time finishes it: the task that claims it, the work that takes it,
 *   or, once it is detached, its own work.
 * - Its task's work is queued once at most, and nothing is detached meanwhile: the
 *   command would be completed under it.
 *
 * Pure logic: compiled for user space by selftests/host, which tries all orders.
 */
#ifndef KVBLK_HANDOVER_H
#define KVBLK_HANDOVER_H

#include <linux/atomic.h>
#include <linux/cleanup.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/**
 * enum kvblk_req_state - who owns an operation
 * @KVBLK_REQ_NEW: the submitter
 * @KVBLK_REQ_INFLIGHT: its bios; the submitter may only detach it
 * @KVBLK_REQ_DONE: the submitter again; a ring's, when kvblk_handover_claim() says so
 * @KVBLK_REQ_DETACHED: its bios, then a work of its own, which frees it: the
 *	submitter was killed or would not wait
 */
enum kvblk_req_state {
	KVBLK_REQ_NEW,
	KVBLK_REQ_INFLIGHT,
	KVBLK_REQ_DONE,
	KVBLK_REQ_DETACHED,
};

/* Operations of rings that one CPU has submitted. */
struct kvblk_landing {
	spinlock_t lock;		/* all below and in their handovers; any context */
	struct list_head waiting;	/* those that have landed, oldest first, */
	unsigned long pages;		/* and what they keep pinned */
	struct list_head sharing;	/* &kvblk_media.sharing, oldest first, */
	u64 nr_shared;			/* and the last one's number */
};

/**
 * struct kvblk_handover - an operation's
 * @link: landing->waiting
 * @landing: where it waits for its task; a batch's need none
 * @state: &enum kvblk_req_state
 * @since: when it landed there
 * @pages: pinned pages counted in landing->pages
 * @coming: its task's work is queued
 * @rescued: its media half was ended for its task
 */
struct kvblk_handover {
	struct list_head link;
	struct kvblk_landing *landing;
	atomic_t state;
	unsigned long since;
	unsigned long pages;
	bool coming;
	bool rescued;
};

/* Its bios are over. False: it was detached. Any context, as all of these. */
static inline bool kvblk_handover_done(struct kvblk_handover *hand)
{
	return atomic_cmpxchg(&hand->state, KVBLK_REQ_INFLIGHT, KVBLK_REQ_DONE) ==
	       KVBLK_REQ_INFLIGHT;
}

/*
 * The operation waits for its task from @now on, with @pages pinned. Returns whether the
 * task is to be told.
 */
static inline bool kvblk_handover_land(struct kvblk_handover *hand, unsigned long now,
				       unsigned long pages)
{
	bool tell;

	guard(spinlock_irqsave)(&hand->landing->lock);
	hand->since = now;
	hand->rescued = false;
	hand->pages = pages;
	hand->landing->pages += pages;
	list_add_tail(&hand->link, &hand->landing->waiting);
	tell = !hand->coming;
	hand->coming = true;
	return tell;
}

/* Under the landing's lock. */
static inline void handover_take_off(struct kvblk_handover *hand)
{
	list_del_init(&hand->link);
	hand->landing->pages -= hand->pages;
}

/* The task comes. True: it is its own. False: it will be told again. */
static inline bool kvblk_handover_claim(struct kvblk_handover *hand)
{
	guard(spinlock_irqsave)(&hand->landing->lock);
	hand->coming = false;
	if (list_empty(&hand->link))
		return hand->rescued;
	handover_take_off(hand);
	return true;
}

/*
 * Somebody gives it up, under landing->lock: an operation in flight is not put in flight
 * anew meanwhile. True: the command is theirs, the rest its bios'.
 */
static inline bool kvblk_handover_detach(struct kvblk_handover *hand)
{
	lockdep_assert_held(&hand->landing->lock);
	return !hand->coming &&
	       atomic_cmpxchg(&hand->state, KVBLK_REQ_INFLIGHT,
			      KVBLK_REQ_DETACHED) == KVBLK_REQ_INFLIGHT;
}

/*
 * The first one is the work's if it has waited since @then at the latest, or if more
 * than @limit pages are pinned there; else NULL.
 */
static inline struct kvblk_handover *kvblk_handover_take(struct kvblk_landing *landing,
							 unsigned long then,
							 unsigned long limit)
{
	struct kvblk_handover *hand;

	guard(spinlock_irqsave)(&landing->lock);
	hand = list_first_entry_or_null(&landing->waiting, struct kvblk_handover, link);
	if (!hand || ((long)(then - hand->since) < 0 && landing->pages <= limit))
		return NULL;
	handover_take_off(hand);
	return hand;
}

/* The work has done its part. True: the task is to be told. */
static inline bool kvblk_handover_give_back(struct kvblk_handover *hand)
{
	bool tell;

	guard(spinlock_irqsave)(&hand->landing->lock);
	hand->rescued = true;
	tell = !hand->coming;
	hand->coming = true;
	return tell;
}

#endif
