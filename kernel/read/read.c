// SPDX-License-Identifier: GPL-2.0
/*
 * Gets: from a source, which has the block (source_*.c), to a sink, which takes it (sink*.c).
 *
 * The rule: a get succeeds only after header and payload were verified, the payload unless the
 * policy trusts it or the caller checks. On any other result the destination is zero or untouched,
 * unless the caller has exited: the memory may be another task's.
 */
#include <linux/slab.h>

#include "read/read.h"

static const struct kvblk_source *const start_sources[] = {
	&kvblk_source_recall, &kvblk_source_record, &kvblk_source_foreign, NULL
};

const struct kvblk_source *const kvblk_read_sources[] = {
	&kvblk_source_dram, &kvblk_source_record, &kvblk_source_foreign, NULL
};

static int read_hold(struct kvblk_req *req, const struct kvblk_source *const *source)
{
	int err;

	/* the first one is DRAM: a pool without needs no indirect call to miss there */
	if (!READ_ONCE(req->pool->dram.used))
		source++;
	do {
		req->read.source = *source;
		err = req->read.source->hold(req);
	} while (err == -ESTALE && *++source);
	return err;
}

/* Returns whether DRAM still holds the block: an earlier lookup has set req->slot to its entry. */
static noinline bool read_recalls(struct kvblk_req *req)
{
	req->read.source = &kvblk_source_dram;
	return !kvblk_slot_expired(req->pool, &req->slot) && !req->read.source->hold(req);
}

/* Finds the block among those of req->tenant. Returns as kvblk_read_find(). */
static int read_find(struct kvblk_req *req, const struct kvblk_source *const *sources)
{
	struct kvblk_pool *pool = req->pool;
	int err, tries;

	req->media.stats = &pool->stats->own;
	if (kvblk_req_encrypted(req) && kvblk_tenant_locked(pool, req->tenant))
		return kvblk_read_miss(req, KVBLK_C_MISS_UNPROVEN);
	if (unlikely(req->read.state == KVBLK_READ_RECALL) && read_recalls(req))
		return 0;
	/* an entry that moves is LIVE at its new place after a retry */
	for (tries = 0; tries < 4; tries++) {
		if (!kvblk_index_find(&pool->index, req->id, &req->slot))
			return kvblk_read_miss(req, KVBLK_C_MISS_ABSENT);
		if (!kvblk_slot_listed(pool, req->tenant, &req->slot))
			return kvblk_read_miss(req, kvblk_slot_expired(pool, &req->slot) ?
						    KVBLK_C_MISS_EXPIRED :
						    KVBLK_C_MISS_ABSENT);
		err = read_hold(req, sources);
		if (err != -ESTALE)
			return err;
	}
	return kvblk_read_miss(req, kvblk_slot_served(pool, &req->slot) ? KVBLK_C_MISS_MOVED :
									  KVBLK_C_MISS_MEMBER);
}

/* Has the read look for the shared tenant's block from here on. Returns false if there is none. */
static noinline bool read_share(struct kvblk_req *req)
{
	struct kvblk_id id;
	int shared = req->read.shared ? -1 : kvblk_req_shared(req, &id);

	if (shared < 0)
		return false;
	req->read.shared = true;
	req->tenant = shared;
	req->id = id;
	return true;
}

int kvblk_read_find(struct kvblk_req *req, const struct kvblk_source *const *sources)
{
	int err;

	/* entries of a shared tenant that was removed since an earlier try remain a while */
	if (unlikely(req->read.shared) && !test_bit(req->tenant, req->pool->tenants.live))
		return kvblk_read_miss(req, KVBLK_C_MISS_ABSENT);
	err = read_find(req, sources);
	return unlikely(err == -ENOENT) && read_share(req) ? read_find(req, sources) : err;
}

static int get_range(struct kvblk_req *req)
{
	struct kvblk_op *op = &req->op;
	u32 len = req->slot.len;

	req->result.value_len = len;
	if (op->flags & KVBLK_OPF_PARTIAL) {
		if (op->offset >= len)
			return -ERANGE;
		req->read.want = min3(len - op->offset, op->length ?: req->bytes, req->bytes);
	} else {
		if (req->bytes < len)
			return -EMSGSIZE;
		req->read.want = len;
	}
	/* read whole chunks, because checksums cover chunks */
	req->read.from = round_down(op->offset, 1u << KVBLK_CHUNK_SHIFT);
	if (unlikely(req->crcs_addr) &&
	    kvblk_crcs_bytes(kvblk_read_end(req) - req->read.from) > req->crcs_room)
		return -EMSGSIZE;
	return 0;
}

/* Finds the block of a trial, which is valid for one record only, and ends it for another one. */
static noinline int get_find_again(struct kvblk_req *req, const struct kvblk_source *const *sources)
{
	struct kvblk_slot was = req->slot;
	int err = kvblk_read_find(req, sources);

	if (!err && !kvblk_same_record(&was, &req->slot))
		kvblk_p2p_trial_end(req);
	return err;
}

static int get_start(struct kvblk_req *req)
{
	const struct kvblk_source *const *sources;
	int err = kvblk_read_begin(req);

	if (err)
		return kvblk_read_fail(req, err);
	sources = kvblk_read_restarted(req) ? kvblk_read_sources : start_sources;
	err = unlikely(req->media.trial) ? get_find_again(req, sources) :
					   kvblk_read_find(req, sources);
	if (err)
		return kvblk_read_fail(req, err);
	err = get_range(req);
	return err ? kvblk_read_fail(req, err) : req->read.source->start(req);
}

/* Starts the get again. Returns as &kvblk_op_type.start; -EAGAIN also if copied as @state says. */
static noinline int get_again(struct kvblk_req *req)
{
	struct kvblk_sigpipe sigpipe;
	int ret;

	kvblk_req_buffers_drop(req);
	kfree(req->crcs);
	req->crcs = NULL;
	req->result.flags &= ~KVBLK_RES_FOREIGN;
	/* a canceled get must not wait for a pager, nor be in flight again */
	if (READ_ONCE(req->canceled))
		return kvblk_read_over(req, -ECANCELED);
	/* before anything is held, because a pager may take any time */
	if (req->src.fault && kvblk_src_fault_in(&req->src, req->read.want, true))
		return kvblk_read_over(req, -EINTR);
	kvblk_sigpipe_block(&sigpipe);
	ret = get_start(req);
	kvblk_sigpipe_restore(&sigpipe);
	if (ret)
		kvblk_media_end(req);
	/* only the caller's memory is left to clear */
	if (ret == 1)
		req->read.state = KVBLK_READ_DONE;
	return ret;
}

static int get_crcs_out(struct kvblk_req *req)
{
	u32 bytes;

	if (!req->crcs_addr || !kvblk_proofs[req->integrity].crc32c)
		return 0;
	bytes = kvblk_crcs_bytes(kvblk_read_end(req) - req->read.from);
	if (kvblk_user_write(req->crcs_addr, req->crcs ?: kvblk_read_crcs(req), bytes,
			     req->src.fault))
		return -EFAULT;
	req->result.flags |= KVBLK_RES_CHECKSUMS;
	return 0;
}

/*
 * Handles a read error. Returns -ENOENT, or -EAGAIN: the bad place may be in another block that was
 * read by the same request, so read once more in requests of its own.
 */
static noinline int read_failed(struct kvblk_req *req)
{
	if (req->media.io.status == BLK_STS_MEDIUM && req->op.opcode == KVBLK_OP_GET &&
	    !req->read.alone && !READ_ONCE(req->canceled) && !kvblk_req_late(req)) {
		req->read.alone = true;
		return -EAGAIN;
	}
	return req->read.source->failed(req);
}

int kvblk_read_check(struct kvblk_req *req)
{
	int err;

	if (req->media.io.status)
		return req->read.unread ? kvblk_read_miss(req, KVBLK_C_MISS_MEMBER) :
					  (req->read.sink->failed ?: read_failed)(req);
	err = req->read.source->identify(req);
	if (err <= 0)
		return err;
	err = req->read.sink->check(req);
	return err == -EBADMSG ? req->read.source->damaged(req) : err;
}

/* Returns whether the pages are unpinned before the task has copied the tail to them. */
static bool get_loses_tail(const struct kvblk_req *req, enum kvblk_by by)
{
	return by == KVBLK_BY_MEMBER && req->read.state == KVBLK_READ_SUMS &&
	       req->mem.tail_user.bv_len;
}

/*
 * Verifies the read, ends the media half. Returns 0: the caller or, with state COPY, the kernel has
 * the block; -EINPROGRESS: in flight again; -EAGAIN; or an error, with user memory zero or @partly
 * bytes to clear. The CPU writes there only for KVBLK_BY_CALLER: later, another task may own it.
 */
static int get_land(struct kvblk_req *req, enum kvblk_by by)
{
	int err = 0;

	if (req->read.state == KVBLK_READ_INFLIGHT) {
		if (unlikely(req->read.source->prove) && !kvblk_read_stops(req, by))
			err = req->read.source->prove(req);
		if (err == -EINPROGRESS)
			return err;
		err = err ?: kvblk_read_check(req);
	}
	req->read.state = KVBLK_READ_CHECKED;
	err = kvblk_read_stops(req, by) ?: err;
	if (req->read.sink->finish)
		err = req->read.sink->finish(req, by, err);
	if (err == -EINPROGRESS)
		return err;
	if (err == -EIO)
		err = read_failed(req);
	else if (err == -EBADMSG)
		err = req->read.source->damaged(req);

	if (!err) {
		/* before kvblk_media_end(), because the index may be freed afterwards */
		kvblk_block_touch(req->pool, req->id, &req->slot);
		req->read.state = req->read.sink->deliver ? KVBLK_READ_COPY : KVBLK_READ_SUMS;
		/* count later, or else a get that is read again would count twice */
		if (!req->read.sink->deliver && !get_loses_tail(req, by))
			kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
		if (unlikely(req->media.foreign))
			kvblk_touch_note(req->pool, req->id, req->slot.seg);
	} else if (req->mem.direct && by == KVBLK_BY_CALLER) {
		kvblk_mem_zero(&req->mem);
	} else if (req->mem.direct) {
		kvblk_read_dirty(req);
	}
	/* a trial continues with the second read */
	if (unlikely(req->device) && err != -EAGAIN)
		kvblk_p2p_trial_end(req);
	kvblk_media_end(req);
	return err;
}

/* Delivers payload and checksums. Returns -EFAULT if a page fault is needed or did not help. */
static int get_deliver(struct kvblk_req *req)
{
	int err = 0;

	if (req->mem.tail_user.bv_len)
		kvblk_mem_tail_out(&req->mem);
	if (req->read.state == KVBLK_READ_COPY) {
		err = req->read.sink->deliver(req);
		if (err)
			return err;
		kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
		req->read.state = KVBLK_READ_SUMS;
	}
	return get_crcs_out(req);
}

/* Drops pinned pages and DRAM, because the task or a pager may take any time. */
static int get_pause(struct kvblk_req *req, enum kvblk_by by)
{
	if (req->block && req->read.state == KVBLK_READ_COPY)
		req->read.state = KVBLK_READ_RECALL;
	if (get_loses_tail(req, by)) {
		req->read.state = KVBLK_READ_AGAIN;
		kvblk_read_dirty(req);
	}
	if (req->block || req->mem.direct)
		kvblk_req_mem_drop(req);
	return -EAGAIN;
}

static int get_go_on(struct kvblk_req *req, enum kvblk_by by)
{
	int err = 0;

	if (req->media.begun) {
		if (req->read.state == KVBLK_READ_RECALL) {
			err = kvblk_read_stops(req, by);
			kvblk_media_end(req);
		} else {
			err = get_land(req, by);
		}
		if (err == -EINPROGRESS)
			return 0;
		if (err == -EAGAIN)
			req->read.state = KVBLK_READ_AGAIN;
		else if (err)
			return kvblk_read_over(req, err);
	}
	if (req->read.state == KVBLK_READ_DONE)
		return 1;
	/* if only checksums are left and the caller wants none, the get is complete */
	if (by == KVBLK_BY_MEMBER && (req->read.state != KVBLK_READ_SUMS || req->crcs_addr ||
				      req->mem.tail_user.bv_len))
		return get_pause(req, by);
	if (by == KVBLK_BY_NOBODY)
		return kvblk_read_over(req, -EINTR);
	if (req->read.state == KVBLK_READ_AGAIN || req->read.state == KVBLK_READ_RECALL) {
		err = get_again(req);
		if (err != -EAGAIN || (req->read.state != KVBLK_READ_COPY &&
				       req->read.state != KVBLK_READ_SUMS))
			return err;
	}
	err = get_deliver(req);
	if (err)
		kvblk_read_dirty(req);
	req->wants_fault = err == -EFAULT && !req->src.fault;
	if (req->wants_fault)
		return get_pause(req, by);
	return kvblk_read_over(req, err);
}

/* Clears what a failed get wrote to the caller. Returns 1, or -EAGAIN if some is not resident. */
static int get_clear(struct kvblk_req *req)
{
	bool cleared = true;

	/* a batch may have others in flight, so only a ring's get takes page faults */
	req->src.fault |= !!req->cmd;
	if (req->mem.direct)
		kvblk_mem_zero(&req->mem);
	else
		cleared = kvblk_src_zero(&req->src, req->partly);
	req->wants_fault = !cleared && !req->src.fault;
	if (req->wants_fault)
		return -EAGAIN;
	req->partly = 0;
	return 1;
}

static int get_finish(struct kvblk_req *req, enum kvblk_by by)
{
	int ret = get_go_on(req, by);

	return ret == 1 && req->partly && req->result.res < 0 && by == KVBLK_BY_CALLER ?
	       get_clear(req) : ret;
}

const struct kvblk_op_type kvblk_op_get = {
	.flags = KVBLK_OPF_PARTIAL | KVBLK_OPF_LAYOUT | KVBLK_OPF_HARD_DEADLINE |
		 KVBLK_OPF_CALLER_CHECKS,
	.mode = FMODE_READ,
	.writes = true,
	.start = get_start,
	.finish = get_finish,
};
