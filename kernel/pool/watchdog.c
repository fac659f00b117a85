// SPDX-License-Identifier: GPL-2.0
/*
 * The watchdog marks members as suspect (no I/O completes), failing or read-only (too many errors),
 * and clears the marks. It runs each second and takes no lock held across I/O. Whether a member is
 * fenced is up to fence.c.
 */
#include "pool/pool.h"

#define FAILING_LEAST	16		/* errors per second; fewer are too few for a rate */
#define PROBES_WELL	3		/* successes in a row, a second apart, that end a mark */
/* longest gap between failed probes, and between a recovery and a failure that doubles the gap */
#define PROBE_GAP_MAX	(32ul * HZ)

/* Probe whether the device reads and writes. The watchdog evaluates the result. */
static void flash_probe(struct work_struct *work)
{
	struct kvblk_flash *flash = container_of(work, struct kvblk_flash, watchdog.probe);
	struct kvblk_watchdog *wd = &flash->watchdog;
	void *page = (void *)__get_free_page(GFP_KERNEL | __GFP_NOFAIL);
	int err = 0, i;

	/* either superblock may be on a bad sector */
	for (i = 0; i < 2 && (!i || err); i++)
		err = kvblk_io_sync(flash, REQ_OP_READ | REQ_META, KVBLK_SB_OFFSET(i),
				    page, KVBLK_UNIT);
	/* devices may read and still hang on writes */
	if (!err && flash->ops->write_probe && !READ_ONCE(flash->fenced))
		err = flash->ops->write_probe(flash);
	/* a suspect member only has to complete the probe */
	if (READ_ONCE(wd->failing_reported) || READ_ONCE(wd->read_only_reported)) {
		if (err)
			wd->probe_gap = min(2 * wd->probe_gap, PROBE_GAP_MAX);
		wd->probe_next = jiffies + (err ? wd->probe_gap : HZ);
		wd->probes_well = err ? 0 : wd->probes_well + 1;
	}
	free_page((unsigned long)page);
	percpu_ref_put(&flash->ref);
}

static void watch_probe(struct kvblk_flash *flash)
{
	if (!work_busy(&flash->watchdog.probe) && percpu_ref_tryget_live(&flash->ref) &&
	    !queue_work(flash->foreign ? flash->pool->foreign.wq : flash->pool->wq,
			&flash->watchdog.probe))
		percpu_ref_put(&flash->ref);
}

/* Report a new failing or read-only state, or probe the member when due. */
static void watch_failing(struct kvblk_flash *flash, u64 failed)
{
	struct kvblk_watchdog *wd = &flash->watchdog;
	bool failing = READ_ONCE(flash->failing), recent;
	bool *reported = failing ? &wd->failing_reported : &wd->read_only_reported;
	struct kvblk_pool *pool = flash->pool;

	if (*reported) {
		if (!time_before(jiffies, wd->probe_next))
			watch_probe(flash);
		return;
	}
	*reported = true;
	dev_warn(&pool->dev, "member %s: %llu I/O errors in the last second; %s until it recovers\n",
		 flash->name, failed, failing ? "gets of its blocks miss" :
		 "reads succeed, so its blocks are served, but puts use other members");
	kvblk_event(pool, flash, failing ? KVBLK_EVENT_MEMBER_FAILING :
					   KVBLK_EVENT_MEMBER_READ_ONLY, failed);
	wake_up_all(&pool->settle_wait);
	/* failed again soon after the last time: probe later */
	recent = time_before(jiffies, wd->probe_next + PROBE_GAP_MAX);
	wd->probe_gap = recent ? min(2 * wd->probe_gap, PROBE_GAP_MAX) : HZ;
	wd->probe_next = jiffies + wd->probe_gap;
	wd->probes_well = 0;
}

static void watch_well(struct kvblk_flash *flash)
{
	struct kvblk_pool *pool = flash->pool;

	dev_info(&pool->dev, "member %s: responds again\n", flash->name);
	kvblk_event(pool, flash, KVBLK_EVENT_MEMBER_ANSWERS, 0);
	flash->ops->responds(flash);
	/* another node may have taken a member that was out of reach */
	flash->fence.next = jiffies;
}

static bool watch_rate(const struct kvblk_flash *flash, u64 done, u64 failed)
{
	u32 limit = READ_ONCE(flash->pool->tun.failing_permille);

	return limit && failed >= FAILING_LEAST && failed * 1000 >= done * limit;
}

/* Update the error state. @since: I/O since the last tick. */
static void watch_errors(struct kvblk_flash *flash, const struct kvblk_ios *since)
{
	u64 failed = since->failed - since->writes_failed;
	struct kvblk_watchdog *wd = &flash->watchdog;
	enum kvblk_member_error error;

	for (error = 0; error < KVBLK_ERRORS; error++)
		if (atomic_read(&flash->reports[error].nr))
			kvblk_flash_report(flash, error);
	if ((wd->failing_reported || wd->read_only_reported) &&
	    !work_busy(&wd->probe) && wd->probes_well >= PROBES_WELL) {
		wd->failing_reported = false;
		wd->read_only_reported = false;
		atomic_set(&flash->error_run[0], 0);
		atomic_set(&flash->error_run[1], 0);
		WRITE_ONCE(flash->failing, false);
		WRITE_ONCE(flash->read_only, false);
		if (!wd->suspect_reported)
			watch_well(flash);
		return;
	}
	if (watch_rate(flash, since->done - since->writes, failed))
		WRITE_ONCE(flash->failing, true);
	if (watch_rate(flash, since->writes, since->writes_failed))
		WRITE_ONCE(flash->read_only, true);
	if (READ_ONCE(flash->failing) || READ_ONCE(flash->read_only))
		watch_failing(flash, since->failed);
}

void kvblk_flash_watch(struct kvblk_flash *flash)
{
	struct kvblk_watchdog *wd = &flash->watchdog;
	struct kvblk_pool *pool = flash->pool;
	struct kvblk_ios ios, since;
	u64 inflight = kvblk_flash_inflight(flash, &ios);
	unsigned long silent, limit;
	bool suspect;

	since = (struct kvblk_ios) {
		.done = ios.done - wd->seen.done,
		.failed = ios.failed - wd->seen.failed,
		.writes = ios.writes - wd->seen.writes,
		.writes_failed = ios.writes_failed - wd->seen.writes_failed,
	};
	if (kvblk_flash_in_use(flash)) {
		watch_errors(flash, &since);
		kvblk_fence_watch(flash);
	}
	/* a member that was idle at the last tick has not been silent since */
	if (!inflight || !wd->seen_inflight || since.done)
		wd->last_done = jiffies;
	wd->seen_inflight = inflight;
	wd->seen = ios;
	kvblk_flash_look(flash, ktime_get_ns());
	silent = jiffies - wd->last_done;
	limit = msecs_to_jiffies(READ_ONCE(pool->tun.suspect_ms));
	/* I/O may wait for a cgroup's budget: a probe must hang, too, unless a removal stops it */
	suspect = inflight && silent > limit &&
		  (work_busy(&wd->probe) || percpu_ref_is_dying(&flash->ref));
	if (inflight && silent > limit / 2)
		watch_probe(flash);
	/* recomputed each second, because a completion may pass between check and store */
	WRITE_ONCE(flash->suspect, suspect);
	if (suspect == wd->suspect_reported)
		return;
	wd->suspect_reported = suspect;
	if (suspect) {
		dev_warn(&pool->dev, "member %s: no I/O completed for %u ms; gets of its blocks miss until it responds\n",
			 flash->name, jiffies_to_msecs(silent));
		kvblk_event(pool, flash, KVBLK_EVENT_MEMBER_SUSPECT, jiffies_to_msecs(silent));
		wake_up_all(&pool->settle_wait);
	} else if (!wd->failing_reported && !wd->read_only_reported) {
		watch_well(flash);
	}
}

void kvblk_watch_init(struct kvblk_flash *flash)
{
	struct kvblk_watchdog *wd = &flash->watchdog;
	enum kvblk_member_error error;

	INIT_WORK(&wd->probe, flash_probe);
	wd->last_done = jiffies;
	wd->probe_gap = HZ;
	wd->probe_next = jiffies - 2 * PROBE_GAP_MAX;
	for (error = 0; error < KVBLK_ERRORS; error++)
		flash->reports[error].next = jiffies;
}
