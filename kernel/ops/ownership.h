/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ownership of a request, which decides who may finish it: the bios, the task, a work for a task
 * that does not run, or a cancel.
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
 * - One context at a time finishes a request: the task that claims it, the work that takes it, or,
 *   once detached, the separate work.
 * - The task's work is queued at most once. While queued, the request cannot be detached, or else
 *   the command would complete twice.
 *
 * Pure logic: compiled for user space by selftests/host, which tries all orders.
 */
#ifndef KVBLK_OWNERSHIP_H
#define KVBLK_OWNERSHIP_H

#include <linux/atomic.h>
#include <linux/cleanup.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/* Owner of a request. */
enum kvblk_req_state {
	KVBLK_REQ_NEW,			/* the submitter */
	KVBLK_REQ_INFLIGHT,		/* the bios; the submitter may only detach the request */
	KVBLK_REQ_DONE,	/* the submitter; for a ring's once kvblk_ownership_claim() succeeds */
	/* the bios, then a work that frees it: the submitter was killed or does not wait */
	KVBLK_REQ_DETACHED,
};

/* Completion list of ring operations submitted on one CPU. */
struct kvblk_completion_list {
	spinlock_t lock;		/* protects the lists and their entries; any context */
	struct list_head waiting;	/* completed requests, oldest first */
	unsigned long pages;		/* pages that those keep pinned */
	struct list_head sharing;	/* &kvblk_media.sharing, oldest first */
	u64 nr_shared;			/* number of the last one in sharing */
};

struct kvblk_ownership {
	struct list_head link;		/* in completions->waiting */
	struct kvblk_completion_list *completions;	/* for the task; unused by a batch */
	atomic_t state;			/* enum kvblk_req_state */
	unsigned long since;		/* jiffies of the completion */
	unsigned long pages;		/* pinned pages counted in completions->pages */
	bool coming;			/* the task's work is queued */
	bool rescued;			/* the media half was ended for the task */
};

/* Hands the request to the submitter. Returns false if it was detached. Any context. */
static inline bool kvblk_ownership_done(struct kvblk_ownership *ownership)
{
	return atomic_cmpxchg(&ownership->state, KVBLK_REQ_INFLIGHT, KVBLK_REQ_DONE) ==
	       KVBLK_REQ_INFLIGHT;
}

/* Lists the completed request at @now, with @pages pinned. Returns whether to notify the task. */
static inline bool kvblk_ownership_queue(struct kvblk_ownership *ownership, unsigned long now,
					 unsigned long pages)
{
	bool notify;

	guard(spinlock_irqsave)(&ownership->completions->lock);
	ownership->since = now;
	ownership->rescued = false;
	ownership->pages = pages;
	ownership->completions->pages += pages;
	list_add_tail(&ownership->link, &ownership->completions->waiting);
	notify = !ownership->coming;
	ownership->coming = true;
	return notify;
}

static inline void ownership_unlist(struct kvblk_ownership *ownership)
{
	list_del_init(&ownership->link);
	ownership->completions->pages -= ownership->pages;
}

/*
 * Claims the request for its task. Returns false if the task will be notified again. Task context
 * with interrupts enabled.
 */
static inline bool kvblk_ownership_claim(struct kvblk_ownership *ownership)
{
	guard(spinlock_irq)(&ownership->completions->lock);
	ownership->coming = false;
	if (list_empty(&ownership->link))
		return ownership->rescued;
	ownership_unlist(ownership);
	return true;
}

/*
 * Detaches a request in flight; a ring's under completions->lock, so that it is not submitted again
 * meanwhile. Returns whether the caller owns the result; the bios own the rest.
 */
static inline bool kvblk_ownership_detach(struct kvblk_ownership *ownership)
{
	if (ownership->completions)
		lockdep_assert_held(&ownership->completions->lock);
	return !ownership->coming &&
	       atomic_cmpxchg(&ownership->state, KVBLK_REQ_INFLIGHT,
			      KVBLK_REQ_DETACHED) == KVBLK_REQ_INFLIGHT;
}

/* Takes the first request if done by @then or with over @limit pages pinned. Returns it or NULL. */
static inline struct kvblk_ownership *
kvblk_ownership_take(struct kvblk_completion_list *completions,
		     unsigned long then, unsigned long limit)
{
	struct kvblk_ownership *ownership;

	guard(spinlock_irqsave)(&completions->lock);
	ownership = list_first_entry_or_null(&completions->waiting, struct kvblk_ownership, link);
	if (!ownership || ((long)(then - ownership->since) < 0 && completions->pages <= limit))
		return NULL;
	ownership_unlist(ownership);
	return ownership;
}

/* Gives a request back to its task after the work. Returns whether to notify the task. */
static inline bool kvblk_ownership_give_back(struct kvblk_ownership *ownership)
{
	bool notify;

	guard(spinlock_irqsave)(&ownership->completions->lock);
	ownership->rescued = true;
	notify = !ownership->coming;
	ownership->coming = true;
	return notify;
}

#endif
