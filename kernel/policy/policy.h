/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is worth room on flash: admission of chains, choice of the segment to
 * reclaim, choice of the blocks in it to write again.
 *
 * The rule: a hole in a chain makes all that follows it worthless, so blocks
 * are admitted as a leading part of their chain or not at all, and a prefix
 * is not dropped before what depends on it.
 *
 * Time is counted in ticks of the log: the tick advances each time segments
 * worth 1/KVBLK_POLICY_TURN of the pool have been opened, so that the whole
 * log turns over in that many ticks. A block's heat is the tick of its last
 * touch folded to 1..255, 0 for never touched since it was put.
 *
 * Pure logic: compiled for user space by `kvblk replay --simulate` and
 * selftests/host, so that a policy is judged on traces before it is shipped.
 */
#ifndef KVBLK_POLICY_H
#define KVBLK_POLICY_H

#include <linux/minmax.h>
#include <linux/types.h>
#include <linux/atomic.h>
#include <linux/spinlock.h>

#include "format/hash.h"

#define KVBLK_POLICY_TURN	64	/* ticks in which the log turns over */

#define KVBLK_POLICY_KINDS	18	/* of chains; see policy.c */
#define KVBLK_POLICY_FORKS	4096	/* parents whose children are counted */

/*
 * Defaults and limits of the tunables. How generous admission is: a kind of
 * chain is declined while it comes again less than (1485 - admit_permille) in a
 * thousand of what is usual. KVBLK_POLICY_ADMIT costs no hits;
 * KVBLK_POLICY_ADMIT_SPARING gives up some to save writes; at 0 little more
 * than what is offered a second time gets in; at KVBLK_POLICY_ADMIT_MAX all.
 *
 * KVBLK_POLICY_FIRST: of the chains that admission does not decline, how many in a
 * thousand get in with blocks that were not offered before. The others get in as
 * far as they were: less than any choice of kinds writes. KVBLK_POLICY_SECOND: of
 * those, how many are remembered, so that they get in when they are offered again.
 * With both at 0, next to nothing is written.
 */
#define KVBLK_POLICY_ADMIT	700
#define KVBLK_POLICY_ADMIT_MAX	1000
#define KVBLK_POLICY_ADMIT_SPARING	400	/* for the wear of the flash */
#define KVBLK_POLICY_FIRST	1000
#define KVBLK_POLICY_SECOND	1000
#define KVBLK_POLICY_REINSERT	1000
#define KVBLK_POLICY_REINSERT_MAX	4000

/**
 * enum kvblk_policy_class - what a segment is filled with
 * @KVBLK_CLASS_NEW: puts
 * @KVBLK_CLASS_HOT: records that reclaim wrote again
 * @KVBLK_NR_CLASSES: how many there are
 */
enum kvblk_policy_class {
	KVBLK_CLASS_NEW,
	KVBLK_CLASS_HOT,
	KVBLK_NR_CLASSES,
};

/**
 * struct kvblk_policy_chain - the blocks of one put batch that are absent
 * @ids: the absent ones, in prefix order (not in the order of writing)
 * @nr: entries of @ids, at least 1
 * @parent: id.lo of the block before @ids[0]: a present one of the batch, or
 *	the first put's parent; 0 if not known
 * @parent_present: that block is in the index
 * @priority: the highest of the puts, 0 to 3
 * @chain: the batch is flagged as one chain; else it is a single put
 * @goes_on: the chain's next blocks come in another batch
 * @wanted: the blocks have been asked for before
 */
struct kvblk_policy_chain {
	const struct kvblk_id *ids;
	u32 nr;
	u64 parent;
	bool parent_present;
	u8 priority;
	bool chain;
	bool goes_on;
	bool wanted;
};

/**
 * struct kvblk_policy_seg - a sealed segment that could be reclaimed
 * @stamp: what kvblk_policy_open() or the last kvblk_policy_sift() gave it;
 *	unique; the least of them is the oldest
 * @bytes: its size
 * @live_bytes: estimate of what is still found in it; at most @bytes
 * @class: &enum kvblk_policy_class
 */
struct kvblk_policy_seg {
	u64 stamp;
	u64 bytes;
	u64 live_bytes;
	u8 class;
};

/**
 * struct kvblk_policy_rec - a live record of the segment being reclaimed
 * @id: its id
 * @parent: id.lo of its parent, 0 if not known
 * @bytes: what it takes on media, header included
 * @heat: the index entry's heat
 * @priority: 0 to 3
 * @leased: a lease pins it: it is kept, outside the budget
 * @expires: it is gone within about a turn of the log, not worth a copy
 * @keep: the answer: write it again to a KVBLK_CLASS_HOT segment
 */
struct kvblk_policy_rec {
	struct kvblk_id id;
	u64 parent;
	u32 bytes;
	u8 heat;
	u8 priority;
	bool leased;
	bool expires;
	bool keep;
};

/**
 * struct kvblk_policy_stats - counts since kvblk_policy_init(), in blocks
 * @admitted: offered and admitted
 * @declined: offered and declined
 * @ghost_hits: chains admitted because they had been declined before
 * @kept: kvblk_policy_sift() said write again (leased ones not counted)
 * @kept_bytes: the same in bytes
 * @dropped: kvblk_policy_sift() said drop
 * @over_budget: dropped only for want of reinsertion budget
 * @renewed: segments that kvblk_policy_sift() left as they are
 */
struct kvblk_policy_stats {
	atomic64_t admitted;
	atomic64_t declined;
	atomic64_t ghost_hits;
	atomic64_t kept;
	atomic64_t kept_bytes;
	atomic64_t dropped;
	atomic64_t over_budget;
	atomic64_t renewed;
};

/**
 * struct kvblk_policy_rate - how often something comes again; racy
 * @seen: observations
 * @again: of those, asked for again
 */
struct kvblk_policy_rate {
	u32 seen;
	u32 again;
};

/**
 * struct kvblk_policy - one for each pool
 * @admit_permille: see KVBLK_POLICY_ADMIT; tunable, any time, WRITE_ONCE()
 * @first_permille: see KVBLK_POLICY_FIRST; kvblk_policy_set_first() changes it
 * @second_permille: see KVBLK_POLICY_SECOND; tunable, any time, WRITE_ONCE()
 * @reinsert_permille: bytes reclaim may write again for each 1000 bytes put;
 *	tunable, any time, WRITE_ONCE()
 * @stats: counters
 * @lock: protects @capacity, @opened_bytes, @budget, @seq; leaf, bh-safe, taken
 *	once a segment, never in the lookup or put path
 * @capacity: bytes of all segments
 * @opened_bytes: bytes of the segments opened since the last tick
 * @budget: bytes that reclaim may still write again
 * @seq: of the stamp given last
 * @now: ticks since init, starts at 1; written under @lock, read anywhere
 * @reclaims: reclaim has begun, so that a put costs the blocks of others
 * @dice: state of the admission's random numbers; racy
 * @ghost: fingerprints of blocks declined, or admitted and watched; racy,
 *	lossy
 * @nr_ghosts: entries of @ghost, a power of two
 * @offers: fingerprints of blocks that were offered and not admitted because it was
 *	the first time; NULL while @first_permille was never below 1000; racy, lossy
 * @nr_offers: entries of @offers
 * @kinds: how often each kind of chain comes again; racy
 * @all: the same for all of them, by blocks; racy
 * @forks: parents and the first children of each; racy, lossy
 */
struct kvblk_policy {
	u32 admit_permille;
	u32 first_permille;
	u32 second_permille;
	u32 reinsert_permille;
	struct kvblk_policy_stats stats;

	spinlock_t lock;	/* see @lock above */
	u64 capacity;
	u64 opened_bytes;
	s64 budget;
	u32 seq;
	u32 now;

	bool reclaims;
	atomic_t dice;
	u32 *ghost;
	u32 nr_ghosts;
	u16 *offers;
	u64 nr_offers;

	struct kvblk_policy_rate kinds[KVBLK_POLICY_KINDS];
	struct kvblk_policy_rate all;
	u64 *forks;
};

/**
 * kvblk_policy_init - make a pool's policy with default tunables
 * @p: the policy, any content
 * @capacity: bytes of all segments of the pool
 * @nr_blocks: blocks the pool is expected to hold (the index's slots); sizes
 *	the ghost, two to four bytes for each
 *
 * May sleep. The only allocation of the policy.
 *
 * Return: 0 or -ENOMEM.
 */
int kvblk_policy_init(struct kvblk_policy *p, u64 capacity, u64 nr_blocks);

/* Frees what kvblk_policy_init() allocated; harmless on a zeroed @p. */
void kvblk_policy_destroy(struct kvblk_policy *p);

/* Members came or went: the pool's segments are @capacity bytes now. */
void kvblk_policy_resize(struct kvblk_policy *p, u64 capacity);

/**
 * kvblk_policy_set_first - change @first_permille
 * @p: the policy
 * @permille: 0 to 1000
 *
 * Below 1000 it needs a memory of offers, 12 bytes for each block of the pool. That is
 * allocated the first time, and stays. May sleep; the caller keeps others out.
 *
 * Return: 0, or -ENOMEM, and nothing has changed.
 */
int kvblk_policy_set_first(struct kvblk_policy *p, u32 permille);

/* Folds a tick to a heat, 1..255. */
static inline u8 kvblk_policy_heat(u32 tick)
{
	return tick % 255 + 1;
}

/* The heat to give a block that is touched now. Any context, no lock. */
static inline u8 kvblk_policy_tick(const struct kvblk_policy *p)
{
	return kvblk_policy_heat(READ_ONCE(p->now));
}

/**
 * kvblk_policy_open - a segment is opened for writing
 * @p: the policy
 * @class: &enum kvblk_policy_class
 * @bytes: the segment's size
 *
 * Advances the tick and the reinsertion budget. After a restart it is called
 * for each segment found, in the order of their opening. Any context.
 *
 * Return: what to remember as the segment's &kvblk_policy_seg.stamp.
 */
u64 kvblk_policy_open(struct kvblk_policy *p, enum kvblk_policy_class class,
		      u64 bytes);

/**
 * kvblk_policy_admit - which of these absent blocks to write
 * @p: the policy
 * @chain: the blocks
 *
 * Called once for each put batch flagged as a chain, and for each other put, for
 * that perhaps more than once, with the same answer.
 * Remembers what it declines. Any context; takes no lock.
 *
 * Return: how many of @chain->ids, counted from the first, to write; the rest
 * is declined. 0 to @chain->nr.
 */
u32 kvblk_policy_admit(struct kvblk_policy *p,
		       const struct kvblk_policy_chain *chain);

/**
 * kvblk_policy_pick - which segment to reclaim next
 * @p: the policy
 * @segs: the sealed segments of one member, any order
 * @nr: entries of @segs
 *
 * Any context; takes no lock.
 *
 * Return: index into @segs, or -1 when @nr is 0.
 */
int kvblk_policy_pick(const struct kvblk_policy *p,
		      const struct kvblk_policy_seg *segs, u32 nr);

/*
 * How many of @nr sealed segments may be left alone in a row. In a small pool
 * the young ones would have to go for them before anybody could ask for them.
 */
static inline u32 kvblk_policy_tries(u32 nr)
{
	return min(nr / 4, 32U);
}

/**
 * kvblk_policy_sift - which records of a victim to write again
 * @p: the policy
 * @seg: the victim
 * @recs: its live records, in the order they lie in it; @keep is set in each
 * @nr: entries of @recs
 * @force: reclaim it in any case
 *
 * So much of a segment may be hot that it is better left alone. It is then
 * as good as one opened when it was last in use: remember its new @seg->stamp and
 * pick again, with @force after kvblk_policy_tries().
 *
 * Records kept are to be written again in the order they lie in @recs: what
 * depends on a block lies before it, in the copy too. A copy keeps its heat.
 * Charges the budget. Process context; takes @p->lock for a moment.
 *
 * Return: the number of records with @keep set, or -EAGAIN: leave it alone.
 */
int kvblk_policy_sift(struct kvblk_policy *p, struct kvblk_policy_seg *seg,
		      struct kvblk_policy_rec *recs, u32 nr, bool force);

#endif
