// SPDX-License-Identifier: GPL-2.0
/* Queries of members by all layers, their errors and death, and the pool's clock. */
#include <linux/cleanup.h>

#include "report/report.h"

const char *const kvblk_member_state_names[] = {
#define X(name, NAME)	\
	[KVBLK_MEMBER_##NAME] = name,
	KVBLK_MEMBER_STATUS_TABLE(X)
#undef X
};

u64 kvblk_clock(const struct kvblk_pool *pool)
{
	return pool->clock + div_u64(ktime_get_coarse_boottime_ns() - pool->clock_boot,
				     NSEC_PER_SEC);
}

struct kvblk_member *kvblk_member_nth(struct kvblk_pool *pool, u32 n)
{
	u32 nr = READ_ONCE(pool->nr_members);

	return nr ? rcu_dereference(pool->dense[n % nr]) : NULL;
}

struct kvblk_member *kvblk_member_get(struct kvblk_pool *pool, u32 seg)
{
	struct kvblk_member *member;

	guard(rcu)();
	member = kvblk_member_of(pool, seg);
	return member && kvblk_flash_in_use(&member->flash) &&
	       percpu_ref_tryget_live_rcu(&member->flash.ref) ? member : NULL;
}

void kvblk_member_dies(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;
	u32 state = READ_ONCE(member->flash.state);

	/* count before the state is visible, because a delete would not know the member's blocks */
	atomic_inc(&pool->unsure);
	do {
		if (state == KVBLK_MEMBER_DEAD || state == KVBLK_MEMBER_REMOVING) {
			atomic_dec(&pool->unsure);
			return;
		}
	} while (!try_cmpxchg(&member->flash.state, &state, KVBLK_MEMBER_DEAD));
	WRITE_ONCE(member->unsure, true);
	queue_delayed_work(pool->wq, &member->dead, 0);
}

/* ---- errors ---- */

#define REPORT_GAP	(60 * HZ)

static const struct {
	enum kvblk_counter counter;
	enum kvblk_event event;
	const char *what;
} member_errors[] = {
	[KVBLK_ERROR_READ] = { KVBLK_C_READ_ERRORS, KVBLK_EVENT_READ_ERROR, "read error" },
	[KVBLK_ERROR_WRITE] = { KVBLK_C_WRITE_ERRORS, KVBLK_EVENT_WRITE_ERROR, "write error" },
	[KVBLK_ERROR_CHECKSUM] = {
		KVBLK_C_CHECKSUM_FAILURES, KVBLK_EVENT_CHECKSUM, "damaged block" },
};

void kvblk_flash_report(struct kvblk_flash *flash, enum kvblk_member_error error)
{
	struct kvblk_report *report = &flash->reports[error];
	unsigned long next = READ_ONCE(report->next);
	u32 segment, nr;

	if (time_before(jiffies, next) ||
	    cmpxchg(&report->next, next, jiffies + REPORT_GAP) != next)
		return;
	nr = atomic_xchg(&report->nr, 0);
	segment = READ_ONCE(report->segment);
	dev_err(&flash->pool->dev, "member %s: %u %s%s, the last in segment %u\n",
		flash->name, nr, member_errors[error].what, nr == 1 ? "" : "s", segment);
	kvblk_event(flash->pool, flash, member_errors[error].event, segment);
}

void kvblk_flash_error(struct kvblk_flash *flash, enum kvblk_member_error error, u32 segment)
{
	struct kvblk_report *report = &flash->reports[error];

	/* do not count errors that a reported death or fence explains: the drive may be healthy */
	if (READ_ONCE(flash->state) == KVBLK_MEMBER_DEAD ||
	    (error == KVBLK_ERROR_WRITE && READ_ONCE(flash->fenced)))
		return;
	kvblk_count_at(flash->stats, member_errors[error].counter, 1);
	WRITE_ONCE(report->segment, segment);
	atomic_inc(&report->nr);
	kvblk_flash_report(flash, error);
}
