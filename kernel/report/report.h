/* SPDX-License-Identifier: GPL-2.0 */
/* Counters, events, the changelog, and queries of members for all layers. */
#ifndef KVBLK_REPORT_H
#define KVBLK_REPORT_H

#include <linux/netlink.h>

#include "kvblk.h"

/* ---- stats.c ---- */

/* Add @n to a counter of the pool itself; any context. */
#define kvblk_count(pool, counter, n) \
	this_cpu_add((pool)->stats->own.counters[counter], n)
/* Add @n to a member's counter; any context. @stats outlive the member, as its I/O may. */
#define kvblk_count_at(stats, counter, n) \
	this_cpu_add((stats)->counters[counter], n)
/* Record a latency of the pool itself, or a member's put or get of @bytes; any context. */
void kvblk_hist_add(struct kvblk_pool *pool, enum kvblk_hist hist, ktime_t start);
void kvblk_hist_add_at(struct kvblk_pool *pool, struct kvblk_stats __percpu *stats,
		       enum kvblk_hist hist, u32 bytes, ktime_t start);
int kvblk_stats_init(struct kvblk_pool *pool);
void kvblk_stats_exit(struct kvblk_pool *pool);
/* Give the member its slot's counters, or @fresh, which is taken. pool->admin held. */
void kvblk_stats_join(struct kvblk_member *member, struct kvblk_stats __percpu *fresh);
/* Sum up all CPUs and all members, former ones included. May sleep. */
void kvblk_stats_pool(const struct kvblk_pool *pool, struct kvblk_stats *sum);
void kvblk_stats_size(const struct kvblk_pool *pool, enum kvblk_hist hist, u32 size,
		      struct kvblk_size_stats *sum);
/* Sum up all CPUs. Does not sleep. */
void kvblk_stats_tenant(const struct kvblk_account *account, struct kvblk_tenant_counters *sum);
u64 kvblk_stats_counter(const struct kvblk_pool *pool, enum kvblk_counter counter);
/* Begin to count errors anew. May sleep. */
void kvblk_stats_clear(struct kvblk_pool *pool);
/* Return the increase of a clearable counter since the pool was assembled or cleared. */
u64 kvblk_stats_errors(const struct kvblk_pool *pool, u32 clearable);
/* Sum up all CPUs since the member was added. */
void kvblk_stats_member(const struct kvblk_member *member, struct kvblk_stats *sum);

/* ---- event.c ---- */

struct genl_family;

/* Set family, multicast group and recipients of events, before the first event. */
void kvblk_events_begin(struct genl_family *family, unsigned int group, netlink_filter_fn filter);
/* Wait until queued events are sent. The caller ensures that no new event is reported. */
void kvblk_events_end(void);
/* Report an event, or drop it if memory is short; any context. @flash may be NULL. */
void kvblk_event(struct kvblk_pool *pool, const struct kvblk_flash *flash,
		 enum kvblk_event type, u64 value);
/* Report the end of a request. @member: its name, or "". */
void kvblk_event_request(const char *pool, const char *member, u64 request, int err);

/* ---- changelog.c ---- */

struct poll_table_struct;

/* Set up the changelog of a new pool, with a new key of tokens. */
void kvblk_changes_init(struct kvblk_pool *pool);
/* &kvblk_index.notify of a pool's index. */
void kvblk_changes_notify(struct kvblk_index *idx, const struct kvblk_index_entry *entry,
			  bool came);
/* Make @filp a reader that is not started. Returns 0 or -ENOMEM. May sleep. */
int kvblk_changes_open(struct kvblk_pool *pool, struct file *filp);
/*
 * Start a reader; the caller has checked @arg. Returns 0, -EBUSY it is started, -ENODEV the pool is
 * destroyed, -EMFILE too many readers, or -ENOMEM. May sleep.
 */
int kvblk_changes_start(struct file *filp, const struct kvblk_changes *arg);
/* File operations of a reader. */
ssize_t kvblk_changes_read(struct file *filp, char __user *buf, size_t len, loff_t *pos);
__poll_t kvblk_changes_poll(struct file *filp, struct poll_table_struct *table);
int kvblk_changes_release(struct inode *inode, struct file *filp);
/* Report the pool's end to all readers and refuse new ones. */
void kvblk_changes_end(struct kvblk_pool *pool);

/* ---- member_errors.c ---- */

/*
 * Return the pool's clock, seconds. It advances while the pool is up, whatever the host's clock is
 * set to. Tables (see kvblk_checkpoint_work()) and superblocks save it while blocks expire.
 */
u64 kvblk_clock(const struct kvblk_pool *pool);
#define KVBLK_CLOCK_SAVE_S	10		/* interval in tables */
#define KVBLK_CLOCK_SUPER_S	(24 * 3600)	/* interval in superblocks */
/* Return the low bits of the clock, for kvblk_expired(). */
static inline u32 kvblk_now(const struct kvblk_pool *pool)
{
	return kvblk_clock(pool);
}

/* Return the member at position @n modulo their number. RCU. */
struct kvblk_member *kvblk_member_nth(struct kvblk_pool *pool, u32 n);
/* Return the restoring or UP member of segment @seg with member->flash.ref, or NULL. */
struct kvblk_member *kvblk_member_get(struct kvblk_pool *pool, u32 seg);
static inline void kvblk_member_put(struct kvblk_member *member)
{
	percpu_ref_put(&member->flash.ref);
}

/* Mark the member DEAD, because its device is unusable. Any context that may take a spinlock. */
void kvblk_member_dies(struct kvblk_member *member);
/* Count an error. Report the first at once, those of the next minute together. Any context. */
void kvblk_flash_error(struct kvblk_flash *flash, enum kvblk_member_error error, u32 segment);
/* Report the collected errors of one kind if a report is due. */
void kvblk_flash_report(struct kvblk_flash *flash, enum kvblk_member_error error);

#endif
