/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is counted and told, and what all rooms ask: stats.c, event.c,
 * changelog.c, member_errors.c.
 */
#ifndef KVBLK_REPORT_H
#define KVBLK_REPORT_H

#include "kvblk.h"

/* ---- stats.c ---- */

/*
 * What is counted at members (the set member-counter of the spec) is counted there
 * only: a pool's number is the sum.
 */

/* Adds @n to a counter that is no member's; any context. */
#define kvblk_count(pool, counter, n) \
	this_cpu_add((pool)->stats->own.counters[counter], n)
/*
 * Adds @n to a counter of the member with these @stats, which are there as long as
 * the pool: an operation may be over later than its member. Any context.
 */
#define kvblk_count_at(stats, counter, n) \
	this_cpu_add((stats)->counters[counter], n)
/* Notes the latency of what is no member's; any context. */
void kvblk_hist_add(struct kvblk_pool *pool, enum kvblk_hist hist, ktime_t start);
/* That of a put or get of @bytes at the member with these @stats; any context. */
void kvblk_hist_add_at(struct kvblk_pool *pool, struct kvblk_stats __percpu *stats,
		       enum kvblk_hist hist, u32 bytes, ktime_t start);
/* 0 or -ENOMEM. */
int kvblk_stats_init(struct kvblk_pool *pool);
void kvblk_stats_exit(struct kvblk_pool *pool);
/* The member has a slot. Takes @fresh; pool->admin held. */
void kvblk_stats_join(struct kvblk_member *member, struct kvblk_stats __percpu *fresh);
/* Sums of all CPUs, and of all members there are and were. May sleep. */
void kvblk_stats_pool(const struct kvblk_pool *pool, struct kvblk_stats *sum);
/* Of a class of puts or gets. */
void kvblk_stats_size(const struct kvblk_pool *pool, enum kvblk_hist hist, u32 size,
		      struct kvblk_size_stats *sum);
u64 kvblk_stats_counter(const struct kvblk_pool *pool, enum kvblk_counter counter);
/* Counts what kvblk_stats_errors() returns from now on. May sleep. */
void kvblk_stats_clear(struct kvblk_pool *pool);
/* Returns the counter since the pool was assembled or cleared. */
u64 kvblk_stats_errors(const struct kvblk_pool *pool, u32 clearable);
/* Sums of all CPUs since it came. */
void kvblk_stats_member(const struct kvblk_member *member, struct kvblk_stats *sum);

/* ---- event.c ---- */

struct genl_family;

/* From here on events go to @family's listeners; none did before. */
void kvblk_events_begin(struct genl_family *family);
/* None comes any more: waits for those under way. */
void kvblk_events_end(void);
/* Sends an event; @member may be NULL. Any context; drops it when short of memory. */
void kvblk_event(struct kvblk_pool *pool, struct kvblk_member *member,
		 enum kvblk_event type, u64 value);
/* The same of a request that has ended; what it named may be gone; @member: or "". */
void kvblk_event_request(const char *pool, const char *member, u64 request, int err);

/* ---- changelog.c ---- */

/* &kvblk_index.told of a pool's index. */
void kvblk_journal_told(struct kvblk_index *idx, const struct kvblk_slot *slot,
			bool came);
/* Opens a journal, whose argument was checked. The descriptor or an error. May sleep. */
int kvblk_journal_open(struct kvblk_pool *pool, const struct kvblk_journal *arg);
/* The pool goes: readers are told, and no more may come. */
void kvblk_journals_end(struct kvblk_pool *pool);

/* ---- member_errors.c ---- */

/*
 * The pool's clock, seconds. It runs while the pool is up, whatever the host's clock
 * is set to, and is told by superblocks and tables (see pool/assemble.c).
 */
u64 kvblk_clock(const struct kvblk_pool *pool);
/* A table tells it so often while blocks expire, see kvblk_checkpoint_work(). */
#define KVBLK_CLOCK_SAVE_S	10
/* And its superblock so often. */
#define KVBLK_CLOCK_TELL_S	(24 * 3600)
/* As blocks expire by it, see kvblk_expired(). */
static inline u32 kvblk_now(const struct kvblk_pool *pool)
{
	return kvblk_clock(pool);
}

/* Member @n, counted round and round. RCU. */
struct kvblk_member *kvblk_member_nth(struct kvblk_pool *pool, u32 n);
/* Member that is restoring or up, with its ref (kvblk_member_put()), or NULL. */
struct kvblk_member *kvblk_member_get(struct kvblk_pool *pool, u32 seg);
static inline void kvblk_member_put(struct kvblk_member *member)
{
	percpu_ref_put(&member->ref);
}

/* The device is gone, or can't be used. Any context that may take a spinlock. */
void kvblk_member_dies(struct kvblk_member *member);
/*
 * Counts an error in @segment of the member. The first one is reported by an
 * event and a line in the log, those of the next minute by one more. Any context.
 */
void kvblk_member_error(struct kvblk_member *member, enum kvblk_member_error error,
			u32 segment);
/* Tells what has come together of one kind, if its time has come. */
void kvblk_member_report(struct kvblk_member *member, enum kvblk_member_error error);

#endif
