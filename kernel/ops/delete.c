// SPDX-License-Identifier: GPL-2.0
/*
 * Deletes: removes the entry, and completes when the record's header is durably overwritten.
 *
 * A foreign record is its owner's to overwrite, who is asked through the pool's daemon. The wait
 * step asks, because a ring's submitter must not wait: its operation is retried from a worker. A
 * delete that was asked for may take place after its caller gave up.
 */
#include "request.h"
#include "trace.h"

bool kvblk_pool_unsure(struct kvblk_pool *pool)
{
	if (!atomic_read(&pool->unsure))
		return false;
	WRITE_ONCE(pool->refused, true);
	return true;
}

/* Counts and traces the end of a delete. Returns its result @err. */
static int delete_report(struct kvblk_req *req, int err)
{
	struct kvblk_pool *pool = req->pool;

	if (!err) {
		kvblk_count(pool, KVBLK_C_DELETES, 1);
		kvblk_hist_add(pool, KVBLK_H_DELETE, req->start);
	}
	trace_kvblk_delete(pool->name, req->id.lo, req->slot.len, err, 0, req->start);
	return err;
}

/* Ends a delete that another node decided, or that nobody could. Returns as kvblk_req_over(). */
static int delete_over(struct kvblk_req *req, int err)
{
	if (err == -EREMOTE)
		kvblk_count(req->pool, KVBLK_C_FOREIGN_DELETES_REFUSED, 1);
	return kvblk_req_over(req, err);
}

/* Decides about a block on another node's member. Returns as &kvblk_op_type.start. */
static int delete_foreign(struct kvblk_req *req)
{
	if (req->erase.own_only || kvblk_slot_expired(req->pool, &req->slot) ||
	    !kvblk_foreign_agrees(req->pool, req->slot.seg, req->slot.tenant))
		return kvblk_req_over(req, -ENOENT);
	if (req->erase.answered)
		return delete_over(req, delete_report(req, req->erase.answer));
	req->erase.asks = !req->erase.refused && kvblk_peers_may_delete(req->pool);
	return req->erase.asks ? -EAGAIN : delete_over(req, -EREMOTE);
}

/* Takes the owner's answer. Returns false if there is none yet. */
static bool delete_answered(struct kvblk_req *req)
{
	if (!kvblk_question_over(req->question))
		return false;
	req->erase.answer = kvblk_question_result(req->question);
	req->erase.answered = true;
	if (!req->erase.answer)
		kvblk_count(req->pool, KVBLK_C_FOREIGN_DELETES, 1);
	kvblk_question_drop(req->question);
	req->question = NULL;
	return true;
}

/* Returns whether the owner has no record of a foreign block any more. */
static bool delete_is_gone(const struct kvblk_req *req)
{
	return req->erase.answered && (!req->erase.answer || req->erase.answer == -ENOENT);
}

/* Returns whether the entry that was found is one that the request may delete. */
static bool delete_may(const struct kvblk_req *req)
{
	const struct kvblk_pool *pool = req->pool;
	const u16 tenant = req->slot.tenant;

	/* no other node has blocks of encrypted tenants */
	return req->erase.own_only ? test_bit(tenant, pool->tenants.live) &&
				     !kvblk_tenant_encrypted(pool, tenant) :
				     tenant == req->tenant;
}

static int delete_begun(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	/* a copy, because the request may be freed before its DRAM block is removed */
	const struct kvblk_id id = req->id;
	/* read before the lookup, because restore may add entries after it */
	bool unsure = kvblk_pool_unsure(pool);
	unsigned long moved;
	int err;

	req->erase.asks = false;
	if (req->question && !delete_answered(req))
		return -EAGAIN;
	/* pairs with restore_use() */
	smp_rmb();
again:
	if (!kvblk_index_find(&pool->index, req->id, &req->slot) || !delete_may(req)) {
		/* evicted, or lost with its member: may the record come back? */
		err = kvblk_kill_barrier(pool, req->id);
		if (err == 1)
			return -EAGAIN;
		if (!err && (unsure || kvblk_pool_unsure(pool)))
			err = -EIO;
		/* for members that went missing since */
		kvblk_missing_note(pool, req->id);
		kvblk_dram_forget(pool, req->id);
		if (req->erase.answered)
			return delete_over(req, delete_report(req, err ?: req->erase.answer));
		return kvblk_req_over(req, err ?: -ENOENT);
	}
	if (kvblk_slot_foreign(&req->slot)) {
		if (!delete_is_gone(req))
			return delete_foreign(req);
		/* a poll may have entered another place of the block meanwhile */
		kvblk_index_replace(&pool->index, req->id, &req->slot, NULL);
		goto again;
	}
	if (req->slot.state == KVBLK_SLOT_WRITING)
		return kvblk_req_over(req, -EBUSY);
	if (req->slot.state == KVBLK_SLOT_MOVING)
		return kvblk_slot_served(pool, &req->slot) ? -EAGAIN : kvblk_req_over(req, -EIO);
	if (kvblk_slot_expired(pool, &req->slot)) {
		kvblk_entry_expire(pool, req->id, &req->slot);
		goto again;
	}
	if (!kvblk_slot_served(pool, &req->slot))
		return kvblk_req_over(req, -EIO);
	/* wait for an older record first: a later one would change the entry */
	err = kvblk_slot_deletes_full(pool, &req->slot, &moved) ? 1 :
							 kvblk_kill_barrier(pool, req->id);
	if (err == 1)
		return -EAGAIN;
	req->erase.stale = unsure || err < 0;
	/* the media half, and the pool with it, may end before the DRAM block is looked up */
	percpu_ref_get(&pool->users);
	kvblk_media_submit(req, NULL);
	err = kvblk_entry_delete(pool, req->id, &req->slot, &req->media.io);
	if (!err)
		kvblk_dram_forget(pool, id);
	percpu_ref_put(&pool->users);
	if (!err)
		return 0;
	if (atomic_cmpxchg(&req->ownership.state, KVBLK_REQ_INFLIGHT, KVBLK_REQ_NEW) !=
	    KVBLK_REQ_INFLIGHT) {
		/* a cancel has detached the request */
		req->media.io.status = BLK_STS_IOERR;
		kvblk_io_end(&req->media.io);
		return 0;
	}
	if (err == -EAGAIN)
		goto again;
	return kvblk_req_over(req, err);
}

static int delete_start(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;

	if (kvblk_req_late(req))
		return kvblk_req_expire(req);
	if (!kvblk_media_begin(req))
		return kvblk_req_over(req, -ENODEV);
	/* for missing and returning members; before the lookup */
	kvblk_missing_note(pool, req->id);
	/* pairs with restore_record(), which checks the notes after its insert */
	smp_mb();
	/* restoring members may still bring the record back */
	return atomic_read(&pool->restoring) ? -EAGAIN : delete_begun(req);
}

static bool delete_ready(struct kvblk_req *req)
{
	struct kvblk_pool *pool __free(kvblk_pool_leave) = kvblk_pool_enter(req->pool);
	struct kvblk_slot slot;

	/* the next start returns -ENODEV if the pool is going away */
	if (!pool)
		return true;
	if (kvblk_index_find(&pool->index, req->id, &slot) && slot.state == KVBLK_SLOT_MOVING)
		return false;
	return kvblk_kill_barrier(pool, req->id) != 1;
}

/* Returns whether the invalidation must wait for others. Their progress restarts the timeout. */
static bool delete_crowded(struct kvblk_req *req)
{
	struct kvblk_pool *pool __free(kvblk_pool_leave) = kvblk_pool_enter(req->pool);
	struct kvblk_slot slot;
	unsigned long moved;

	if (!pool || !kvblk_index_find(&pool->index, req->id, &slot) ||
	    !kvblk_slot_deletes_full(pool, &slot, &moved))
		return false;
	if (time_before(jiffies, moved + HZ))
		req->waiting = ktime_get();
	return true;
}

static long delete_wait(struct kvblk_req *req, long step)
{
	struct kvblk_pool *pool = req->pool;

	if (req->erase.asks) {
		/* the next start may not get as far as to decide again */
		req->erase.asks = false;
		req->question = kvblk_peers_delete(pool, req->id, req->slot.seg);
		req->erase.refused = !req->question;
	}
	if (req->question && !kvblk_question_over(req->question)) {
		/* the question has a limit of its own */
		req->waiting = ktime_get();
		return kvblk_question_wait(req->question, step);
	}
	if (atomic_read(&pool->restoring))
		return kvblk_req_wait_restore(req, step);
	/* no daemon, too many questions, or an answer: the next start reports it */
	if (req->question || req->erase.refused)
		return 1;
	if (delete_crowded(req))
		return wait_event_killable_timeout(pool->delete_wait, !delete_crowded(req), step);
	return wait_event_killable_timeout(pool->settle_wait, delete_ready(req), step);
}

static int delete_finish(struct kvblk_req *req, enum kvblk_by by)
{
	struct kvblk_pool *pool = req->pool;
	int err = req->media.io.status ? -EIO : 0;

	/* kvblk_rescue_work() has finished the delete */
	if (!req->media.begun)
		return 1;
	/* for members that went missing before the invalidation was written */
	kvblk_missing_note(pool, req->id);
	/* an older record cannot be invalidated now, or was not read by restore */
	if (!err && (req->erase.stale || kvblk_kill_barrier(pool, req->id) < 0 ||
		     kvblk_pool_unsure(pool)))
		err = -EIO;
	delete_report(req, err);
	kvblk_media_end(req);
	return kvblk_req_over(req, err);
}

const struct kvblk_op_type kvblk_op_delete = {
	.mode = FMODE_WRITE,
	.commits = true,
	.start = delete_start,
	.wait = delete_wait,
	.finish = delete_finish,
};
