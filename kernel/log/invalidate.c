// SPDX-License-Identifier: GPL-2.0
/*
 * Invalidation of stale records ("kills" in symbols). A restart could find a record that has left
 * the index while its segment lives: deleted, evicted, superseded, or not acknowledged. So the
 * header is overwritten, durably. The segment is marked before (KVBLK_SEGF_KILLS), or else a
 * restart trusts the summary, which may list the record. The rules:
 * - An invalidation is queued before the entry leaves the index, so that a delete finds either. An
 *   eviction knows its victim only afterwards: pool->kill_order makes deletes wait meanwhile.
 * - If a member does not respond, waiting deletes fail with -EIO, and invalidations stay queued
 *   until the member responds or leaves the pool: about KVBLK_KILLS_MAX. At this limit puts skip
 *   the member and may not supersede its entries, and none is evicted. Deletes may use half of it,
 *   and wait for space as long as invalidations of the member complete.
 * - The index distinguishes ids by token only, and so do invalidations.
 */
#include <linux/slab.h>

#include "log/log.h"
#include "trace.h"

int kvblk_kill_mark(struct kvblk_member *member, struct kvblk_segment *seg, u64 gen)
{
	int err;

	scoped_guard(spinlock, &member->log.lock) {
		/* check kills_durable, because another task may still be writing the flag */
		if (seg->kills_durable || seg->gen != gen)
			return 0;
		seg->flags |= KVBLK_SEGF_KILLS;
	}
	err = kvblk_table_write(member, seg - member->log.segs);
	if (err)
		return err;
	guard(spinlock)(&member->log.lock);
	if (seg->gen == gen)
		seg->kills_durable = true;
	return 0;
}

/* ---- queues ---- */

static struct hlist_head *kill_bucket(struct kvblk_pool *pool, u64 token)
{
	return &pool->kills[token % KVBLK_KILL_BUCKETS];
}

static u64 id_token(const struct kvblk_pool *pool, struct kvblk_id id)
{
	return kvblk_index_token(&pool->index, id);
}

/* If @full, the index evicts no entry of @member. */
static void kills_full(struct kvblk_member *member, bool full)
{
	struct kvblk_pool *pool = member->flash.pool;
	u32 first = member->flash.seg_base >> KVBLK_GRANULE_SHIFT, i;

	lockdep_assert_held(&pool->kill_lock);
	WRITE_ONCE(member->log.kills.full, full);
	for (i = 0; i < DIV_ROUND_UP(member->flash.nr_segs, 1u << KVBLK_GRANULE_SHIFT); i++)
		WRITE_ONCE(pool->pinned[first + i], full);
	if (full)
		return;
	kvblk_space_appears(pool);
}

static void kills_count(struct kvblk_member *member, int more)
{
	struct kvblk_pool *pool = member->flash.pool;

	lockdep_assert_held(&pool->kill_lock);
	WRITE_ONCE(member->log.kills.nr, member->log.kills.nr + more);
	if (member->log.kills.nr >= KVBLK_KILLS_MAX && !member->log.kills.full)
		kills_full(member, true);
	else if (member->log.kills.nr < KVBLK_KILLS_MAX * 3 / 4 && member->log.kills.full)
		kills_full(member, false);
	if (member->log.kills.nr >= KVBLK_KILLS_DELETES) {
		WRITE_ONCE(member->log.kills.deletes_full, true);
	} else if (member->log.kills.nr < KVBLK_KILLS_DELETES * 3 / 4 &&
		   member->log.kills.deletes_full) {
		WRITE_ONCE(member->log.kills.deletes_full, false);
		wake_up_all(&pool->delete_wait);
	}
}

bool kvblk_slot_kills_full(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	struct kvblk_member *member;

	guard(rcu)();
	member = kvblk_member_of(pool, slot->seg);
	return member && kvblk_kills_full(member);
}

bool kvblk_slot_deletes_full(struct kvblk_pool *pool, const struct kvblk_slot *slot,
			     unsigned long *moved)
{
	struct kvblk_member *member;

	guard(rcu)();
	member = kvblk_member_of(pool, slot->seg);
	if (!member || !READ_ONCE(member->log.kills.deletes_full))
		return false;
	*moved = READ_ONCE(member->log.kills.moved);
	return true;
}

/* Queues @kill, held until kill_go(). Frees @kill and returns false if record or pool is gone. */
static bool kill_list(struct kvblk_pool *pool, struct kvblk_kill *kill, u64 token,
		      const struct kvblk_slot *slot)
{
	kill->seg = kvblk_segment_get(pool, slot, &kill->member, &kill->gen);
	if (kill->seg && !percpu_ref_tryget(&pool->users)) {
		kvblk_segment_put(kill->member, kill->seg);
		kill->seg = NULL;
	}
	if (!kill->seg) {
		kfree(kill);
		return false;
	}
	kill->token = token;
	kill->unit = slot->off;
	kill->units = kvblk_slot_units(&kill->member->flash, slot);
	kill->held = true;
	guard(spinlock)(&pool->kill_lock);
	list_add_tail(&kill->link, &kill->member->log.kills.list);
	hlist_add_head(&kill->node, kill_bucket(pool, token));
	kills_count(kill->member, 1);
	return true;
}

static void kill_unlist(struct kvblk_kill *kill)
{
	struct kvblk_member *member = kill->member;
	struct kvblk_pool *pool = member->flash.pool;

	scoped_guard(spinlock, &pool->kill_lock) {
		list_del(&kill->link);
		hlist_del(&kill->node);
		kills_count(member, -1);
		WRITE_ONCE(member->log.kills.moved, jiffies);
	}
	wake_up_all(&pool->settle_wait);
	kvblk_segment_put(member, kill->seg);
	kfree(kill);
	percpu_ref_put(&pool->users);
}

static void kill_report(struct kvblk_kill *kill, blk_status_t status)
{
	struct kvblk_io *waiter = xchg(&kill->waiter, NULL);

	if (!waiter)
		return;
	waiter->status = status;
	kvblk_io_end(waiter);
}

/* ---- writes ---- */

#define KILLS_INFLIGHT	32
#define KILL_GAP_MAX	(64ul * HZ)	/* between two tries; doubles after each failure */

struct kill_run {
	struct llist_head written;	/* with a complete write */
	struct completion over;		/* once for each entry of @written */
};

/*
 * Returns whether the record cannot come back, as its segment is retired or its member leaves with
 * an outdated epoch, or the pool is destroyed and the write is impossible.
 */
static bool kill_needless(const struct kvblk_kill *kill)
{
	const struct kvblk_member *member = kill->member;

	return READ_ONCE(kill->seg->gen) != kill->gen || !kvblk_flash_in_use(&member->flash) ||
	       (percpu_ref_is_dying(&member->flash.pool->users) &&
		(kill->failed || !kvblk_flash_may_write(&member->flash)));
}

/* Counts one given up with the pool, because deletes must fail while the record stays. */
static void kill_forget(const struct kvblk_kill *kill)
{
	if (kvblk_flash_in_use(&kill->member->flash) && READ_ONCE(kill->seg->gen) == kill->gen)
		atomic_inc(&kill->member->flash.pool->unsure);
}

static void kill_written(struct kvblk_io *io)
{
	struct kvblk_kill *kill = container_of(io, struct kvblk_kill, io);
	struct kill_run *run = kill->run;

	llist_add(&kill->written, &run->written);
	complete(&run->over);
}

static void kill_start(struct kvblk_kill *kill)
{
	struct kvblk_member *member = kill->member;
	u32 segment = kill->seg - member->log.segs;
	struct kvblk_place place = kvblk_place(&member->flash, segment, kill->gen, kill->unit);

	kill->write_errors = atomic_read(&member->flash.write_errors);
	kvblk_io_start(&kill->io, &member->flash, kill_written);
	if (kill_needless(kill)) {
		kill_forget(kill);
		/* deletes must fail until the other members have the new epoch */
		if (atomic_read(&member->flash.pool->unsure))
			kill->io.status = BLK_STS_OFFLINE;
	} else if (kvblk_kill_mark(member, kill->seg, kill->gen)) {
		kill->io.status = BLK_STS_IOERR;
	} else {
		kill->filler = (void *)__get_free_page(GFP_NOIO | __GFP_NOFAIL);
		kvblk_filler_encode(kill->filler, kill->units, &place, &member->flash.pool->secret);
		bvec_set_virt(&kill->bv, kill->filler, KVBLK_UNIT);
		kvblk_io_submit(&kill->io, REQ_OP_WRITE | REQ_META | REQ_FUA,
				kvblk_seg_pos(&member->flash, segment, kill->unit), &kill->bv, 1);
	}
	kvblk_io_end(&kill->io);
}

static bool kill_end(struct kvblk_kill *kill)
{
	struct kvblk_member *member = kill->member;
	blk_status_t status = kill->io.status;
	bool again;

	/* the cache has lost the filler, as reported to another write */
	if (!status && kill->filler && !kvblk_fua(&member->flash) &&
	    kvblk_writes_failed(&member->flash, kill->write_errors))
		status = BLK_STS_IOERR;
	again = status && !kill_needless(kill);

	/* note the record of a leaving member, in case the member returns */
	if (!again && (status || !kill->filler))
		kvblk_missing_note_place(member, kill->seg - member->log.segs, kill->unit);
	free_page((unsigned long)kill->filler);
	if (kill->filler && !status) {
		kvblk_count_at(member->flash.stats, KVBLK_C_KILLS, 1);
		trace_kvblk_kill(member->flash.pool->name, member->flash.slot,
				 kill->seg - member->log.segs, kill->gen, kill->unit);
	}
	kill->filler = NULL;
	if (again) {
		kvblk_flash_error(&member->flash, KVBLK_ERROR_WRITE, kill->seg - member->log.segs);
		WRITE_ONCE(kill->failed, true);
	} else if (status) {
		kill_forget(kill);
	}
	kill_report(kill, status);
	if (!again)
		kill_unlist(kill);
	else
		WRITE_ONCE(kill->run, NULL);
	return !again;
}

/* Returns an invalidation to write now, a needless one, or NULL. */
static struct kvblk_kill *kill_take(struct kvblk_member *member, struct kill_run *run)
{
	bool ok = kvblk_flash_may_write(&member->flash);
	struct kvblk_kill *kill;

	guard(spinlock)(&member->flash.pool->kill_lock);
	list_for_each_entry(kill, &member->log.kills.list, link) {
		if (kill->run || kill->held || kill->writer ||
		    ((kill->failed || !ok) && !kill_needless(kill)))
			continue;
		kill->run = run;
		/* move invalidations in flight out of the way of the next search */
		list_move_tail(&kill->link, &member->log.kills.list);
		return kill;
	}
	return NULL;
}

void kvblk_kill_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member, log.kills.work);
	bool tried = false, failed = false;
	struct llist_node *rest = NULL;
	struct kvblk_kill *kill;
	struct kill_run run;
	u32 inflight = 0;

	init_llist_head(&run.written);
	init_completion(&run.over);
	for (;;) {
		while (inflight < KILLS_INFLIGHT && (kill = kill_take(member, &run))) {
			inflight++;
			kill_start(kill);
		}
		if (!inflight)
			break;
		tried = true;
		wait_for_completion_state(&run.over, TASK_IDLE);
		if (!rest)
			rest = llist_del_all(&run.written);
		kill = llist_entry(rest, struct kvblk_kill, written);
		rest = rest->next;
		/* may drop the last member reference; kvblk_member_free() waits for the work */
		failed |= !kill_end(kill);
		inflight--;
		cond_resched();
	}
	if (!tried)
		return;
	member->log.kills.gap = failed ? clamp(2 * member->log.kills.gap, (unsigned long)HZ,
					       KILL_GAP_MAX) : 0;
	if (!failed)
		return;
	WRITE_ONCE(member->log.kills.retry, jiffies + member->log.kills.gap);
	wake_up_all(&member->flash.pool->settle_wait);
}

void kvblk_kill_retry(struct kvblk_pool *pool)
{
	struct kvblk_member *member;
	struct kvblk_kill *kill;
	bool ok, due;

	guard(rcu)();
	guard(spinlock)(&pool->kill_lock);
	kvblk_for_each_member(pool, member) {
		if (list_empty(&member->log.kills.list))
			continue;
		ok = kvblk_flash_may_write(&member->flash);
		due = time_after_eq(jiffies, READ_ONCE(member->log.kills.retry));
		list_for_each_entry(kill, &member->log.kills.list, link) {
			if (!ok && (kvblk_flash_in_use(&member->flash) ||
				    READ_ONCE(member->flash.suspect)))
				kill_report(kill, BLK_STS_IOERR);
			if (ok && due)
				WRITE_ONCE(kill->failed, false);
		}
		queue_work(pool->wq, &member->log.kills.work);
	}
}

/* ---- changes of the index ---- */

/* Starts an invalidation once the entry is removed, unless the @writer is in flight. */
static void kill_go(struct kvblk_pool *pool, struct kvblk_kill *kill,
		    const struct kvblk_slot *old, bool writer, struct kvblk_io *waiter)
{
	/* kvblk_reservation_release() subtracts the units of a put in flight */
	if (old->state != KVBLK_SLOT_WRITING)
		kvblk_segment_shrink(kill->member, kill->seg, kill->units);
	guard(spinlock)(&pool->kill_lock);
	kill->waiter = waiter;
	kill->held = false;
	kill->writer = writer && !kill->settled;
	if (!kill->writer)
		queue_work(pool->wq, &kill->member->log.kills.work);
}

int kvblk_entry_insert(struct kvblk_pool *pool, struct kvblk_id id,
		       struct kvblk_slot *slot, struct kvblk_slot *old)
{
	struct kvblk_kill *kill;
	int ret;

	ret = kvblk_index_insert(&pool->index, id, slot, old, false);
	if (ret != -ENOSPC)
		return ret;
	/* allocate before the eviction, which cannot be undone */
	kill = kzalloc(sizeof(*kill), GFP_NOIO | __GFP_NOWARN);
	if (!kill)
		return -ENOSPC;
	guard(spinlock)(&pool->kill_order);
	ret = kvblk_index_insert(&pool->index, id, slot, old, true);
	if (ret != 1) {
		kfree(kill);
		return ret;
	}
	kvblk_count(pool, KVBLK_C_EVICTED, 1);
	if (kill_list(pool, kill, old->place, old))
		kill_go(pool, kill, old, false, NULL);
	return 0;
}

/*
 * Consumes @kill. Returns 0 with it queued, 1 without a record, or -EAGAIN: @old is outdated, or
 * leased although @unleased.
 */
static int entry_change(struct kvblk_pool *pool, struct kvblk_kill *kill, struct kvblk_id id,
			const struct kvblk_slot *old, const struct kvblk_slot *new,
			struct kvblk_io *waiter, bool unleased)
{
	bool listed = kill_list(pool, kill, id_token(pool, id), old);

	if (!(unleased ? kvblk_index_claim : kvblk_index_replace)(&pool->index, id, old, new)) {
		if (listed)
			kill_unlist(kill);
		return -EAGAIN;
	}
	/* a put in flight must complete before its record is invalidated */
	if (listed)
		kill_go(pool, kill, old, new && old->state == KVBLK_SLOT_WRITING, waiter);
	return !listed;
}

bool kvblk_entry_replace(struct kvblk_pool *pool, struct kvblk_id id,
			 const struct kvblk_slot *old, const struct kvblk_slot *new)
{
	struct kvblk_kill *kill = kzalloc(sizeof(*kill), GFP_NOIO | __GFP_NOFAIL | __GFP_NOWARN);

	return entry_change(pool, kill, id, old, new, NULL, false) >= 0;
}

bool kvblk_entry_drop(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *old)
{
	struct kvblk_kill *kill = kzalloc(sizeof(*kill), GFP_NOIO | __GFP_NOFAIL | __GFP_NOWARN);

	return entry_change(pool, kill, id, old, NULL, NULL, true) >= 0;
}

bool kvblk_entry_expire(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *old)
{
	if (!kvblk_index_replace(&pool->index, id, old, NULL))
		return false;
	kvblk_segment_forget(pool, old);
	kvblk_count(pool, KVBLK_C_EXPIRED, 1);
	return true;
}

int kvblk_entry_delete(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *old, struct kvblk_io *waiter)
{
	struct kvblk_kill *kill = kzalloc(sizeof(*kill), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	int ret;

	if (!kill)
		return -ENOMEM;
	ret = entry_change(pool, kill, id, old, NULL, waiter, false);
	if (ret <= 0)
		return ret;
	waiter->status = atomic_read(&pool->unsure) ? BLK_STS_OFFLINE : BLK_STS_OK;
	kvblk_io_end(waiter);
	return 0;
}

void kvblk_kill_later(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot)
{
	struct kvblk_kill *kill = kzalloc(sizeof(*kill), GFP_NOIO | __GFP_NOFAIL | __GFP_NOWARN);
	struct kvblk_slot stale = *slot;

	/* live_units does not count a record that never was an entry */
	stale.state = KVBLK_SLOT_WRITING;
	if (kill_list(pool, kill, id_token(pool, id), &stale))
		kill_go(pool, kill, &stale, false, NULL);
}

void kvblk_kill_settle(struct kvblk_pool *pool, struct kvblk_id id, const struct kvblk_slot *slot)
{
	struct kvblk_kill *kill;
	bool found = false;

	scoped_guard(spinlock, &pool->kill_lock) {
		hlist_for_each_entry(kill, kill_bucket(pool, id_token(pool, id)), node) {
			if (!(kill->held || kill->writer) || kill->unit != slot->off ||
			    (u16)kill->gen != slot->gen ||
			    kvblk_segment_number(kill->member, kill->seg) != slot->seg)
				continue;
			/* if @held is set, the task that took over the slot will call kill_go() */
			kill->settled = true;
			kill->writer = false;
			found = true;
			queue_work(pool->wq, &kill->member->log.kills.work);
		}
	}
	if (!found)
		kvblk_kill_later(pool, id, slot);
}

static bool kill_stuck(const struct kvblk_kill *kill)
{
	return READ_ONCE(kill->failed) ||
	       (kvblk_flash_in_use(&kill->member->flash) &&
		!kvblk_flash_may_write(&kill->member->flash));
}

int kvblk_kill_barrier(struct kvblk_pool *pool, struct kvblk_id id)
{
	u64 token = id_token(pool, id);
	struct kvblk_kill *kill;
	int ret = 0;

	/* wait for an eviction that has removed an entry but not queued its invalidation */
	spin_lock(&pool->kill_order);
	spin_unlock(&pool->kill_order);
	guard(spinlock)(&pool->kill_lock);
	hlist_for_each_entry(kill, kill_bucket(pool, token), node) {
		if (kill->token != token)
			continue;
		if (kill_stuck(kill))
			return -EIO;
		ret = 1;
	}
	return ret;
}
