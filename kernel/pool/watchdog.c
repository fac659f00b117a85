// SPDX-License-Identifier: GPL-2.0
/*
 * The watchdog marks members as suspect (no I/O completes), failing or read-only (too many
 * errors), and clears the marks. It runs each second and takes no lock held across I/O.
 */
#include "pool/pool.h"

/* Fewer errors per second than this are too few for a rate. */
#define FAILING_LEAST	16
/* Successful probes in a row, a second apart, that end "failing" and "read-only". */
#define PROBES_WELL	3
/* Longest gap between failed probes, and between a recovery and a failure that doubles the gap. */
#define PROBE_GAP_MAX	(32ul * HZ)

/*
 * Probe whether the device reads and writes, with a superblock and a known page of the segment
 * table, which may be rewritten at any time. The watchdog evaluates the result.
 */
static void member_probe(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member, flash.watchdog.probe);
	void *page = (void *)__get_free_page(GFP_KERNEL | __GFP_NOFAIL);
	u32 known = 0;
	int err = 0, i;

	/* either superblock may be on a bad sector */
	for (i = 0; i < 2 && (!i || err); i++)
		err = kvblk_io_sync(&member->flash, REQ_OP_READ | REQ_META, KVBLK_SB_OFFSET(i),
				    page, KVBLK_UNIT);
	/* writing an unread page would destroy its contents */
	while (known < member->flash.nr_segs && member->log.segs[known].unknown)
		known += KVBLK_TABLE_ENTRIES;
	/* devices may read and still hang on writes */
	if (!err && kvblk_member_is_up(member))
		err = kvblk_table_write(member, known);
	if (!READ_ONCE(member->flash.watchdog.failing_reported) &&
	    !READ_ONCE(member->flash.watchdog.read_only_reported)) {
		/* a suspect member only has to complete the probe */
	} else if (!err) {
		member->flash.watchdog.probe_next = jiffies + HZ;
		member->flash.watchdog.probes_well++;
	} else {
		member->flash.watchdog.probes_well = 0;
		member->flash.watchdog.probe_gap =
			min(2 * member->flash.watchdog.probe_gap, PROBE_GAP_MAX);
		member->flash.watchdog.probe_next = jiffies + member->flash.watchdog.probe_gap;
	}
	free_page((unsigned long)page);
	kvblk_member_put(member);
}

static void watch_probe(struct kvblk_member *member)
{
	if (!work_busy(&member->flash.watchdog.probe) &&
	    percpu_ref_tryget_live(&member->flash.ref) &&
	    !queue_work(member->flash.pool->wq, &member->flash.watchdog.probe))
		kvblk_member_put(member);
}

/* Report a new failing or read-only state, or probe the member when due. */
static void watch_failing(struct kvblk_member *member, u64 failed)
{
	bool *reported = READ_ONCE(member->flash.failing) ?
				 &member->flash.watchdog.failing_reported :
				 &member->flash.watchdog.read_only_reported;
	struct kvblk_pool *pool = member->flash.pool;
	bool recent;

	if (!*reported) {
		*reported = true;
		dev_warn(&pool->dev, "member %s: %llu I/O errors in the last second; %s until it recovers\n",
			 member->flash.name, failed,
			 reported == &member->flash.watchdog.failing_reported ?
			 "gets of its blocks miss" :
			 "reads succeed, so its blocks are served, but puts use other members");
		kvblk_event(pool, &member->flash,
			    reported == &member->flash.watchdog.failing_reported ?
			    KVBLK_EVENT_MEMBER_FAILING : KVBLK_EVENT_MEMBER_READ_ONLY, failed);
		wake_up_all(&pool->settle_wait);
		/* failed again soon after the last time: probe later */
		recent = time_before(jiffies, member->flash.watchdog.probe_next + PROBE_GAP_MAX);
		member->flash.watchdog.probe_gap =
			recent ? min(2 * member->flash.watchdog.probe_gap, PROBE_GAP_MAX) : HZ;
		member->flash.watchdog.probe_next = jiffies + member->flash.watchdog.probe_gap;
		member->flash.watchdog.probes_well = 0;
		return;
	}
	if (!time_before(jiffies, member->flash.watchdog.probe_next))
		watch_probe(member);
}

static void watch_well(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;

	dev_info(&pool->dev, "member %s: responds again\n", member->flash.name);
	kvblk_event(pool, &member->flash, KVBLK_EVENT_MEMBER_ANSWERS, 0);
	kvblk_log_kick(member);
	/* due now: kvblk_kill_retry() follows in this tick */
	WRITE_ONCE(member->log.kills.retry, jiffies);
}

static bool watch_rate(const struct kvblk_member *member, u64 done, u64 failed)
{
	u32 limit = READ_ONCE(member->flash.pool->tun.failing_permille);

	return limit && failed >= FAILING_LEAST && failed * 1000 >= done * limit;
}

/* Update the error state. @since: I/O since the last tick. */
static void watch_errors(struct kvblk_member *member, const struct kvblk_ios *since)
{
	u64 failed = since->failed - since->writes_failed;
	enum kvblk_member_error error;

	for (error = 0; error < KVBLK_ERRORS; error++)
		if (atomic_read(&member->flash.reports[error].nr))
			kvblk_flash_report(&member->flash, error);
	if ((member->flash.watchdog.failing_reported ||
	     member->flash.watchdog.read_only_reported) &&
	    !work_busy(&member->flash.watchdog.probe) &&
	    member->flash.watchdog.probes_well >= PROBES_WELL) {
		member->flash.watchdog.failing_reported = false;
		member->flash.watchdog.read_only_reported = false;
		atomic_set(&member->flash.error_run[0], 0);
		atomic_set(&member->flash.error_run[1], 0);
		WRITE_ONCE(member->flash.failing, false);
		WRITE_ONCE(member->flash.read_only, false);
		if (!member->flash.watchdog.suspect_reported)
			watch_well(member);
		return;
	}
	if (watch_rate(member, since->done - since->writes, failed))
		WRITE_ONCE(member->flash.failing, true);
	if (watch_rate(member, since->writes, since->writes_failed))
		WRITE_ONCE(member->flash.read_only, true);
	if (READ_ONCE(member->flash.failing) || READ_ONCE(member->flash.read_only))
		watch_failing(member, since->failed);
}

void kvblk_member_watch(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;
	struct kvblk_ios ios, since;
	u64 inflight = kvblk_flash_inflight(&member->flash, &ios);
	unsigned long silent, limit;
	bool suspect;

	since = (struct kvblk_ios) {
		.done = ios.done - member->flash.watchdog.seen.done,
		.failed = ios.failed - member->flash.watchdog.seen.failed,
		.writes = ios.writes - member->flash.watchdog.seen.writes,
		.writes_failed = ios.writes_failed - member->flash.watchdog.seen.writes_failed,
	};
	if (kvblk_flash_in_use(&member->flash))
		watch_errors(member, &since);
	/* a member that was idle at the last tick has not been silent since */
	if (!inflight || !member->flash.watchdog.seen_inflight || since.done)
		member->flash.watchdog.last_done = jiffies;
	member->flash.watchdog.seen_inflight = inflight;
	member->flash.watchdog.seen = ios;
	silent = jiffies - member->flash.watchdog.last_done;
	limit = msecs_to_jiffies(READ_ONCE(pool->tun.suspect_ms));
	/*
	 * I/O waiting for its cgroup's budget is not silence, so a probe must hang, too. A member
	 * cannot be probed during removal. Recompute each second, because a completion may pass
	 * between check and store.
	 */
	suspect = inflight && silent > limit &&
		  (work_busy(&member->flash.watchdog.probe) ||
		   percpu_ref_is_dying(&member->flash.ref));
	if (inflight && silent > limit / 2)
		watch_probe(member);
	WRITE_ONCE(member->flash.suspect, suspect);
	if (suspect == member->flash.watchdog.suspect_reported)
		return;
	member->flash.watchdog.suspect_reported = suspect;
	if (suspect) {
		dev_warn(&pool->dev, "member %s: no I/O completed for %u ms; gets of its blocks miss until it responds\n",
			 member->flash.name, jiffies_to_msecs(silent));
		kvblk_event(pool, &member->flash, KVBLK_EVENT_MEMBER_SUSPECT,
			    jiffies_to_msecs(silent));
		wake_up_all(&pool->settle_wait);
	} else if (!member->flash.watchdog.failing_reported &&
		   !member->flash.watchdog.read_only_reported) {
		watch_well(member);
	}
}

void kvblk_watch_init(struct kvblk_member *member)
{
	enum kvblk_member_error error;

	INIT_WORK(&member->flash.watchdog.probe, member_probe);
	member->flash.watchdog.last_done = jiffies;
	member->flash.watchdog.probe_gap = HZ;
	member->flash.watchdog.probe_next = jiffies - 2 * PROBE_GAP_MAX;
	for (error = 0; error < KVBLK_ERRORS; error++)
		member->flash.reports[error].next = jiffies;
}
