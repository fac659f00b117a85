/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The policy for space on flash: admission of chains, choice of the segment to reclaim, choice
 * of its blocks to write again.
 *
 * The rule: a hole in a chain makes all later blocks worthless. So a leading part of a chain
 * is admitted, or nothing, and a prefix is not dropped before the blocks that depend on it.
 *
 * Time is counted in ticks. The tick advances each time segments worth 1/KVBLK_POLICY_TURN of
 * the pool have been opened, so that the whole log turns over in that many ticks. A block's
 * heat is the tick of its last touch folded to 1..255, 0 if not touched since it was put.
 *
 * Pure logic: compiled for user space by `kvblk replay --simulate` and selftests/host, so
 * that a policy is evaluated on traces before it is shipped.
 */
#ifndef KVBLK_POLICY_H
#define KVBLK_POLICY_H

#include <linux/minmax.h>
#include <linux/types.h>
#include <linux/atomic.h>
#include <linux/spinlock.h>

#include "format/hash.h"

#define KVBLK_POLICY_TURN	64	/* ticks in which the log turns over */

#define KVBLK_POLICY_KINDS	18	/* number of chain kinds; see policy.c */
#define KVBLK_POLICY_FORKS	4096	/* parents whose children are counted */

/*
 * Defaults and limits of the tunables.
 *
 * admit_permille: decline a kind of chain that is requested again less than
 * (1485 - admit_permille) permille of the average. KVBLK_POLICY_ADMIT costs no hits;
 * KVBLK_POLICY_ADMIT_SPARING trades hits for fewer writes; 0 admits little but second offers;
 * KVBLK_POLICY_ADMIT_MAX admits all.
 *
 * first_permille: share of chains, among those not declined, that are admitted with blocks
 * offered for the first time. Others are admitted up to their first new block: this writes
 * less than any choice of kinds. second_permille: share of those others that are remembered,
 * so that a second offer is admitted. With both at 0, next to nothing is written.
 */
#define KVBLK_POLICY_ADMIT	700
#define KVBLK_POLICY_ADMIT_MAX	1000
#define KVBLK_POLICY_ADMIT_SPARING	400	/* saves wear of the flash */
#define KVBLK_POLICY_FIRST	1000
#define KVBLK_POLICY_SECOND	1000
#define KVBLK_POLICY_REINSERT	1000
#define KVBLK_POLICY_REINSERT_MAX	4000

/**
 * enum kvblk_policy_class - contents of a segment
 * @KVBLK_CLASS_NEW: puts
 * @KVBLK_CLASS_HOT: records that reclaim wrote again
 * @KVBLK_NR_CLASSES: number of classes
 */
enum kvblk_policy_class {
	KVBLK_CLASS_NEW,
	KVBLK_CLASS_HOT,
	KVBLK_NR_CLASSES,
};

/**
 * struct kvblk_policy_chain - the absent blocks of a put batch
 * @ids: ids of the absent blocks, in prefix order (not in the order of writing)
 * @nr: entries of @ids, at least 1
 * @parent: id.lo of the block before @ids[0]: a present one of the batch, or the first put's
 *	parent; 0 if unknown
 * @parent_present: the parent is in the index
 * @priority: the highest of the puts, 0 to 3
 * @chain: the batch is flagged as one chain; else a single put
 * @goes_on: the chain's next blocks come in another batch
 * @wanted: the blocks have been requested before
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
 * @stamp: result of kvblk_policy_open() or of the last kvblk_policy_classify(); unique, the
 *	smallest is the oldest
 * @bytes: size of the segment
 * @live_bytes: estimate of the bytes that the index still refers to; at most @bytes
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
 * @id: the block's id
 * @parent: id.lo of its parent, 0 if unknown
 * @bytes: size on media, header included
 * @heat: the index entry's heat
 * @priority: 0 to 3
 * @leased: pinned by a lease: kept, outside the budget
 * @expires: expires within about a turn of the log: not worth a copy
 * @keep: result: write the record again to a KVBLK_CLASS_HOT segment
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
 * @kept: kept by kvblk_policy_classify(), leased ones not counted
 * @kept_bytes: bytes of @kept
 * @dropped: dropped by kvblk_policy_classify()
 * @over_budget: dropped only because the reinsertion budget was used up
 * @renewed: segments that kvblk_policy_classify() left in place
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
 * struct kvblk_policy_rate - how often blocks are requested again; racy
 * @seen: observations
 * @again: observations that ended with another request
 */
struct kvblk_policy_rate {
	u32 seen;
	u32 again;
};

/**
 * struct kvblk_policy - admission and reclaim policy of a pool
 * @admit_permille: see KVBLK_POLICY_ADMIT; tunable, any time, WRITE_ONCE()
 * @first_permille: see KVBLK_POLICY_FIRST; changed by kvblk_policy_set_first()
 * @second_permille: see KVBLK_POLICY_SECOND; tunable, any time, WRITE_ONCE()
 * @reinsert_permille: bytes reclaim may write again for each 1000 bytes put;
 *	tunable, any time, WRITE_ONCE()
 * @stats: counters
 * @lock: protects @capacity, @opened_bytes, @budget, @seq; leaf, bh-safe, taken once a
 *	segment, never in the lookup or put path
 * @capacity: bytes of all segments
 * @opened_bytes: bytes of the segments opened since the last tick
 * @budget: bytes that reclaim may still write again
 * @seq: low half of the last stamp
 * @now: ticks since init, starts at 1; written under @lock, read anywhere
 * @reclaims: reclaim has begun, so that a put displaces other blocks
 * @dice: state of the admission's random numbers; racy
 * @ghost: fingerprints of declined blocks, and of admitted ones that are watched; racy, lossy
 * @nr_ghosts: entries of @ghost, a power of two
 * @offers: fingerprints of blocks declined at their first offer; NULL while @first_permille
 *	was never below 1000; racy, lossy
 * @nr_offers: entries of @offers
 * @kinds: rate of each kind of chain; racy
 * @all: rate of all kinds, by blocks; racy
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
 * kvblk_policy_init - initialize a pool's policy with default tunables
 * @p: the policy, any content
 * @capacity: bytes of all segments of the pool
 * @nr_blocks: expected number of blocks (slots of the index); sizes the ghost, two to four
 *	bytes for each
 *
 * May sleep. The policy's only allocation but for kvblk_policy_set_first().
 *
 * Return: 0 or -ENOMEM.
 */
int kvblk_policy_init(struct kvblk_policy *p, u64 capacity, u64 nr_blocks);

void kvblk_policy_destroy(struct kvblk_policy *p);

void kvblk_policy_resize(struct kvblk_policy *p, u64 capacity);

/**
 * kvblk_policy_set_first - change @first_permille
 * @p: the policy
 * @permille: 0 to 1000
 *
 * The first value below 1000 allocates the memory of offers, 12 bytes for each block of the
 * pool, for good. May sleep; the caller serializes calls.
 *
 * Return: 0, or -ENOMEM with nothing changed.
 */
int kvblk_policy_set_first(struct kvblk_policy *p, u32 permille);

/* Fold a tick to a heat, 1..255. */
static inline u8 kvblk_policy_heat(u32 tick)
{
	return tick % 255 + 1;
}

/* Return the heat of a block that is touched now. Any context, no lock. */
static inline u8 kvblk_policy_tick(const struct kvblk_policy *p)
{
	return kvblk_policy_heat(READ_ONCE(p->now));
}

/**
 * kvblk_policy_open - account for a segment opened for writing
 * @p: the policy
 * @class: &enum kvblk_policy_class
 * @bytes: the segment's size
 *
 * Advances the tick and the reinsertion budget. After a restart, call it for each segment
 * found, in the order of their opening. Any context.
 *
 * Return: the segment's &kvblk_policy_seg.stamp.
 */
u64 kvblk_policy_open(struct kvblk_policy *p, enum kvblk_policy_class class,
		      u64 bytes);

/**
 * kvblk_policy_admit - decide which absent blocks to write
 * @p: the policy
 * @chain: the blocks
 *
 * Call it once for each put batch flagged as a chain, and for each other put. A single put
 * may be asked about again and gets the same answer. Remembers declined blocks. Any context;
 * takes no lock.
 *
 * Return: the number of leading blocks of @chain->ids to write, 0 to @chain->nr; the rest is
 * declined.
 */
u32 kvblk_policy_admit(struct kvblk_policy *p,
		       const struct kvblk_policy_chain *chain);

/**
 * kvblk_policy_pick - choose the segment to reclaim next
 * @p: the policy
 * @segs: the sealed segments of one member, any order
 * @nr: entries of @segs
 *
 * Any context; takes no lock.
 *
 * Return: index into @segs, or -1 if @nr is 0.
 */
int kvblk_policy_pick(const struct kvblk_policy *p,
		      const struct kvblk_policy_seg *segs, u32 nr);

/*
 * Return how many of @nr sealed segments may be left in place in a row. More would, in a small
 * pool, evict young segments before their blocks can be requested.
 */
static inline u32 kvblk_policy_tries(u32 nr)
{
	return min(nr / 4, 32U);
}

/**
 * kvblk_policy_classify - decide which records of a victim to write again
 * @p: the policy
 * @seg: the victim
 * @recs: its live records, in the order of their offsets; sets @keep in each
 * @nr: entries of @recs
 * @force: reclaim the segment in any case
 *
 * A segment that is mostly hot is better left in place. It then counts as opened when it was
 * last in use: store the new @seg->stamp and pick again, with @force after
 * kvblk_policy_tries() attempts.
 *
 * Write kept records again in the order of @recs, because a block's dependents lie before
 * it, in the copy, too. A copy keeps its heat. Charges the budget. Process context; takes
 * @p->lock briefly.
 *
 * Return: the number of records with @keep set, or -EAGAIN to leave the segment in place.
 */
int kvblk_policy_classify(struct kvblk_policy *p, struct kvblk_policy_seg *seg,
			  struct kvblk_policy_rec *recs, u32 nr, bool force);

#endif
