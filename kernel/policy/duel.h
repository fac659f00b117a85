/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The choice between first and second offers, by a duel: two miniature pools get a sample of the
 * requests. One admits first offers as the pool's tunable says, the other only second offers, both
 * under the policy of policy.h. The pool does as the miniature with more hits. If both have about
 * as many, the pool takes second offers, because they write less.
 *
 * The rule: the id alone decides whether a block belongs to the sample. So a miniature compares
 * with its requests as the pool does with all requests, and has the same share of hits.
 *
 * Pure logic: compiled for user space by `kvblk replay --simulate` and selftests/host.
 */
#ifndef KVBLK_DUEL_H
#define KVBLK_DUEL_H

#include <linux/mutex.h>
#include <linux/spinlock.h>

#include "policy/policy.h"

enum kvblk_duel_side {
	KVBLK_DUEL_FIRST,
	KVBLK_DUEL_SECOND,
	KVBLK_DUEL_SIDES,
};

struct kvblk_mini;

/* Requests of blocks in the sample, and which of them each side had. */
struct kvblk_duel_score {
	u64 refs;
	u64 hits[KVBLK_DUEL_SIDES];
};

struct kvblk_duel {
	struct kvblk_policy *policy;	/* of the pool */

	/* protects @off to @pool_memory, and the choice of the pool; outside @lock */
	struct mutex judge;
	bool off;
	u64 pool_blocks;		/* sizes of the pool and its memory, for the miniatures */
	u64 pool_memory;

	/* protects what follows; requests only try it, because the sample may lose some; a leaf */
	spinlock_t lock;
	u32 sampled;	/* the sample has a smaller id.hi >> 32; 0: no sample; read anywhere */
	struct kvblk_mini *minis;	/* one for each side; NULL: none */
	struct kvblk_duel_score recent;	/* decays; decides */
	struct kvblk_duel_score all;	/* since kvblk_duel_init(); read anywhere */
};

void kvblk_duel_init(struct kvblk_duel *d, struct kvblk_policy *p);
void kvblk_duel_destroy(struct kvblk_duel *d);
/*
 * Turn the duel on, as it is from the beginning, or off: then first_permille counts as it is. May
 * sleep.
 */
void kvblk_duel_set(struct kvblk_duel *d, bool on);
/*
 * Fit the miniatures to the pool, with @memory bytes of memory in front of it, and let the pool do
 * as the side that is ahead. Call it once for each reclaimed segment. May sleep.
 */
void kvblk_duel_judge(struct kvblk_duel *d, u64 memory);

void __kvblk_duel_touch(struct kvblk_duel *d, struct kvblk_id id);

static inline bool kvblk_duel_samples(const struct kvblk_duel *d, struct kvblk_id id)
{
	return (u32)(id.hi >> 32) < READ_ONCE(d->sampled);
}

/* Account for a request of a block that is present. Process context. */
static inline void kvblk_duel_touch(struct kvblk_duel *d, struct kvblk_id id)
{
	if (unlikely(kvblk_duel_samples(d, id)))
		__kvblk_duel_touch(d, id);
}

/* Return whether @chain has a block of the sample, so that the duel needs kvblk_duel_offer(). */
bool kvblk_duel_samples_any(const struct kvblk_duel *d, const struct kvblk_policy_chain *chain);
/*
 * Account for a put of absent blocks, and so for their requests. The chain's @kind must be known.
 * Process context.
 */
void kvblk_duel_offer(struct kvblk_duel *d, const struct kvblk_policy_chain *chain);

#endif
