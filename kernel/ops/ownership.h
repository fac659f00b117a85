/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ownership of a request: which context may finish the request. The bios, the task, a work
 * for a task that does not run, or a cancel.
 *
 *         submit           bios complete
 *   NEW --------> INFLIGHT --------------> DONE, on a completion list
 *                  |    ^                  |                |
 *                  |    +--- read again ---+ task           | work
 *     cancel, kill |                       v                v
 *                  v                     result       given back to the task
 *               DETACHED --> finished by a separate work
 *
 * The rules:
 * - One context at a time finishes a request: the task that claims the request, the work that
 *   takes the request, or, once detached, the separate work.
 * - The task's work is queued at most once. While queued, the request cannot be detached, or
 *   else the command would complete twice.
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
 * enum kvblk_req_state - owner of a request
 * @KVBLK_REQ_NEW: the submitter
 * @KVBLK_REQ_INFLIGHT: the bios; the submitter may only detach the request
 * @KVBLK_REQ_DONE: the submitter; for a ring's once kvblk_handover_claim() succeeds
 * @KVBLK_REQ_DETACHED: the bios, then a work that frees the request, because the submitter
 *	was killed or does not wait
 */
enum kvblk_req_state {
	KVBLK_REQ_NEW,
	KVBLK_REQ_INFLIGHT,
	KVBLK_REQ_DONE,
	KVBLK_REQ_DETACHED,
};

/* Completion list of ring operations submitted on one CPU. */
struct kvblk_landing {
	spinlock_t lock;		/* protects the list and its handovers; any context */
	struct list_head waiting;	/* completed requests, oldest first */
	unsigned long pages;		/* pages that those keep pinned */
	struct list_head sharing;	/* &kvblk_media.sharing, oldest first */
	u64 nr_shared;			/* number of the last one in sharing */
};

/**
 * struct kvblk_handover - ownership of a request
 * @link: in landing->waiting
 * @landing: completion list for the task; unused by a batch
 * @state: &enum kvblk_req_state
 * @since: jiffies of the completion
 * @pages: pinned pages counted in landing->pages
 * @coming: the task's work is queued
 * @rescued: the media half was ended for the task
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

/* Hands the request to the submitter. Returns false if it was detached. Any context. */
static inline bool kvblk_handover_done(struct kvblk_handover *hand)
{
	return atomic_cmpxchg(&hand->state, KVBLK_REQ_INFLIGHT, KVBLK_REQ_DONE) ==
	       KVBLK_REQ_INFLIGHT;
}

/*
 * Puts the request on the completion list at @now, with @pages pinned. Returns whether the
 * task must be notified.
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

static inline void handover_take_off(struct kvblk_handover *hand)
{
	list_del_init(&hand->link);
	hand->landing->pages -= hand->pages;
}

/* Claims the request for its task. Returns false if the task will be notified again. */
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
 * Detaches a request in flight, under landing->lock, so that it is not submitted again
 * meanwhile. Returns whether the caller owns the command; the bios own the rest.
 */
static inline bool kvblk_handover_detach(struct kvblk_handover *hand)
{
	lockdep_assert_held(&hand->landing->lock);
	return !hand->coming &&
	       atomic_cmpxchg(&hand->state, KVBLK_REQ_INFLIGHT,
			      KVBLK_REQ_DETACHED) == KVBLK_REQ_INFLIGHT;
}

/*
 * Takes the first request for the work if it completed at @then or before, or if more than
 * @limit pages are pinned. Returns it, or NULL.
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

/* Gives a request back to its task after the work. Returns whether to notify the task. */
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
