/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The policy for space on flash: admission of chains, choice of the segment to reclaim, choice
 * of its blocks to write again.
 *
 * The rule: a hole in a chain makes all later blocks worthless. So a leading part of a chain
 * is admitted, or nothing, and a prefix is not dropped before the blocks that depend on it.
 *
 * Time is counted in ticks: the whole log turns over in KVBLK_POLICY_TURN of them. A block's heat
 * is the tick of its last touch folded to 1..255, 0 if not touched since it was put.
 *
 * Pure logic: compiled for user space by `kvblk replay --simulate` and selftests/host.
 */
#ifndef KVBLK_POLICY_H
#define KVBLK_POLICY_H

#include <linux/bits.h>
#include <linux/cache.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/atomic.h>
#include <linux/spinlock.h>

#include "format/hash.h"

#define KVBLK_POLICY_TURN	64	/* ticks in which the log turns over */

#define KVBLK_POLICY_ANY	18	/* a chain of an unknown kind, which is never judged */
#define KVBLK_POLICY_KINDS	19	/* number of chain kinds; see policy.c */

/*
 * Defaults and limits of the tunables.
 *
 * admit_permille: decline a kind of chain that is requested again less than
 * (1485 - admit_permille) permille of the average; 0 admits little but second offers.
 *
 * first_permille: share of chains, among those not declined, that are admitted with blocks
 * offered for the first time. Others are admitted up to their first new block.
 * second_permille: share of those others that are remembered, so that a second offer is admitted.
 */
#define KVBLK_POLICY_ADMIT	700		/* costs no hits */
#define KVBLK_POLICY_ADMIT_MAX	1000		/* admits all */
#define KVBLK_POLICY_ADMIT_SPARING	400	/* trades hits for less wear of the flash */
#define KVBLK_POLICY_FIRST	1000
#define KVBLK_POLICY_SECOND	1000
#define KVBLK_POLICY_REINSERT	1000
#define KVBLK_POLICY_REINSERT_MAX	4000

enum kvblk_policy_class {
	KVBLK_CLASS_NEW,		/* puts */
	KVBLK_CLASS_HOT,		/* records that reclaim wrote again */
	KVBLK_NR_CLASSES,
};

/* The absent blocks of a put batch. */
struct kvblk_policy_chain {
	const struct kvblk_id *ids; /* absent ones, in prefix order (not in the order of writing) */
	u32 nr;				/* entries of @ids, at least 1 */
	u64 parent;	/* id.lo before @ids[0]: of the batch, or the first put's parent, or 0 */
	bool parent_present;		/* the parent is in the index */
	u8 priority;			/* the highest of the puts, 0 to 3 */
	bool chain;			/* flagged as one chain; otherwise a single put */
	bool goes_on;			/* the chain's next blocks come in another batch */
	bool wanted;			/* the blocks have been requested before */
	u8 kind;	/* for @mini and the duel: kvblk_policy_kind() of the whole chain */
};

/* A sealed segment that could be reclaimed. */
struct kvblk_policy_seg {
	u64 stamp;	/* of kvblk_policy_open() or the last renewal; unique, smallest: oldest */
	u64 bytes;	/* size */
	u8 class;	/* enum kvblk_policy_class */
};

/* A live record of the segment being reclaimed. */
struct kvblk_policy_rec {
	struct kvblk_id id;
	struct kvblk_admission *admission; /* of the record's tenant, or NULL */
	u32 bytes;	/* size on media, header included */
	u8 heat;	/* the index entry's heat */
	u8 priority;	/* 0 to 3 */
	bool leased;	/* pinned by a lease: kept, outside the budget */
	bool expires;	/* expires within about a turn of the log: not worth a copy */
	bool keep;	/* result: write the record again to a KVBLK_CLASS_HOT segment */
};

/* Counts since kvblk_policy_init(), in blocks. */
struct kvblk_policy_stats {
	atomic64_t kept;	/* by kvblk_policy_classify(), leased ones not counted */
	atomic64_t kept_bytes;
	atomic64_t dropped;	/* by kvblk_policy_classify() */
	atomic64_t over_budget;	/* dropped only because the reinsertion budget was used up */
	atomic64_t renewed;	/* segments that kvblk_policy_classify() left in place */
};

/* How often blocks are requested again; racy. */
struct kvblk_policy_rate {
	u32 seen;			/* observations */
	u32 again;			/* observations that ended with another request */
};

/*
 * The knowledge that admission has of one tenant's chains. No other tenant's puts, gets or
 * reclaimed blocks change it, or else a tenant could learn of others' blocks by what is declined.
 */
struct kvblk_admission {
	struct kvblk_policy *policy;	/* tunables and clock */
	struct list_head link;		/* in policy->admissions; policy->admissions_lock */
	u32 *ghost;		/* prints of declined and of watched blocks; racy, lossy */
	u32 nr_ghosts;		/* entries of @ghost, a power of two */
	u32 nr_forks;		/* entries of @forks, a power of two */
	u64 *forks;		/* parents and their first children; racy, lossy */
	u16 *offers;	/* of blocks declined at first offer; NULL if never used; racy, lossy */
	u64 nr_offers;		/* entries of @offers */

	/* puts write the fields below */
	atomic64_t declined ____cacheline_aligned_in_smp;	/* blocks */
	atomic64_t ghost_hits;	/* chains admitted because they had been declined before */
	atomic_t dice;		/* state of the random numbers; racy */
	struct kvblk_policy_rate kinds[KVBLK_POLICY_KINDS];	/* of each kind of chain; racy */
	struct kvblk_policy_rate all;	/* rate of all kinds, by blocks; racy */
};

struct kvblk_policy {
	u32 admit_permille;	/* see KVBLK_POLICY_ADMIT; tunable, any time, WRITE_ONCE() */
	u32 first_permille;	/* see KVBLK_POLICY_FIRST; set by kvblk_policy_set_first() */
	u32 second_permille;	/* see KVBLK_POLICY_SECOND; tunable, any time, WRITE_ONCE() */
	u32 reinsert_permille;	/* bytes written again for each 1000 put; tunable, WRITE_ONCE() */
	bool reclaims;		/* reclaim has begun, so that a put displaces other blocks */
	bool mini;		/* of a miniature, whose chains are single blocks of a whole one */
	bool second_only;	/* @first_permille counts as 0; kvblk_policy_set_second_only() */
	u32 rec_bytes;		/* mean size of the records that reclaim saw; racy */

	/* protects @admissions; held while the memory of offers is allocated; a leaf */
	struct mutex admissions_lock;
	struct list_head admissions;	/* of all tenants, @own is the first */

	/* protects @capacity to @now; leaf, bh-safe; taken once a segment, never by a put or get */
	spinlock_t lock;
	u64 capacity;		/* bytes of all segments */
	u64 opened_bytes;	/* of the segments opened since the last tick */
	s64 budget;		/* bytes that reclaim may still write again */
	u32 seq;		/* low half of the last stamp */
	u32 now;		/* ticks since init, starts at 1; read anywhere */

	/* puts write the fields below; gets read only those above */
	struct kvblk_policy_stats stats ____cacheline_aligned_in_smp;
	struct kvblk_admission own;	/* admission of the tenant "default" */
} ____cacheline_aligned_in_smp;

/*
 * Initialize a policy with default tunables, for @capacity bytes of segments and about @nr_blocks
 * blocks, for two to four bytes each. Returns 0 or -ENOMEM. May sleep.
 */
int kvblk_policy_init(struct kvblk_policy *p, u64 capacity, u64 nr_blocks);
/* Likewise, a policy with @mini for @nr_blocks of size 1; see kvblk_policy_set_second_only(). */
int kvblk_policy_init_mini(struct kvblk_policy *p, u32 nr_blocks, bool second_only);
/* Free @p's memory. The admissions of other tenants must be freed before. */
void kvblk_policy_destroy(struct kvblk_policy *p);
/*
 * Allocate the admission of a tenant other than "default", a sixteenth as large: at most 4 MiB, and
 * 24 MiB of offers once @first_permille or the duel need them. Returns NULL without memory. May
 * sleep.
 */
struct kvblk_admission *kvblk_admission_new(struct kvblk_policy *p);
void kvblk_admission_free(struct kvblk_admission *a);	/* NULL: no effect; may sleep */
void kvblk_policy_resize(struct kvblk_policy *p, u64 capacity);
/*
 * Change @first_permille, 0 to 1000. The first value below 1000 allocates the offers of all
 * tenants, those of "default" with 12 bytes for each block, for good. Returns 0, or -ENOMEM with
 * nothing changed. May sleep; the caller serializes calls.
 */
int kvblk_policy_set_first(struct kvblk_policy *p, u32 permille);
/*
 * Let @first_permille count as 0, or as it is. The first call with @only allocates as above.
 * Returns 0, or -ENOMEM with nothing changed. May sleep.
 */
int kvblk_policy_set_second_only(struct kvblk_policy *p, bool only);
/* Return the heat of a block that is touched now, 1 to 255. Any context, no lock. */
static inline u8 kvblk_policy_tick(const struct kvblk_policy *p)
{
	return READ_ONCE(p->now) % 255 + 1;
}

/*
 * Account for @bytes of a segment opened for writing: advance the tick and the reinsertion budget.
 * After a restart, call it for each segment in the order of opening. Returns its stamp.
 */
u64 kvblk_policy_open(struct kvblk_policy *p, enum kvblk_policy_class class, u64 bytes);
/*
 * Return how many leading blocks to write; the rest is declined, and remembered in the tenant's @a.
 * Without @a, because the tenant was removed, all are admitted. Call it once for each put batch
 * flagged as a chain, and for each other put: a second call gives the same answer for it. Any
 * context; takes no lock.
 */
u32 kvblk_policy_admit(struct kvblk_admission *a, const struct kvblk_policy_chain *chain);
/*
 * Return the rank of a sealed segment in its member's order of reclaim, which begins with the
 * smallest rank. @stamp: &kvblk_policy_seg.stamp. @empty: no live bytes, so no record to copy.
 */
static inline u64 kvblk_policy_rank(u64 stamp, bool empty)
{
	/* stamps begin with a tick, which stays below 2^31 */
	return empty ? stamp : stamp | BIT_ULL(63);
}

/*
 * Return the kind of @chain, below KVBLK_POLICY_KINDS; a second call returns the same. Without @a
 * it is KVBLK_POLICY_ANY.
 */
u32 kvblk_policy_kind(struct kvblk_admission *a, const struct kvblk_policy_chain *chain);
/* Return how many of @nr sealed segments may be left in place in a row, to spare young ones. */
static inline u32 kvblk_policy_tries(u32 nr)
{
	return min(nr / 4, 32U);
}

/*
 * Decide which records of the victim @seg to write again: set @keep in each of @recs, which are in
 * the order of their offsets. Returns the number with @keep set, or -EAGAIN, unless @force, to
 * leave a mostly hot segment in place: then store the new @seg->stamp, and pick again, with @force
 * after kvblk_policy_tries() attempts. Charges the budget, and updates the tenants' admissions.
 * Process context; does not sleep.
 *
 * Write kept records again in the order of @recs, because a block's dependents lie before it, in
 * the copy, too. A copy keeps its heat.
 */
int kvblk_policy_classify(struct kvblk_policy *p, struct kvblk_policy_seg *seg,
			  struct kvblk_policy_rec *recs, u32 nr, bool force);

#endif
