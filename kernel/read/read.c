// SPDX-License-Identifier: GPL-2.0
/*
 * Gets. A get succeeds only after header and payload were verified. On any other result the
 * destination is zero or untouched, unless the caller has exited: its memory may be another
 * task's by then.
 */
#include <linux/slab.h>

#include "read/read.h"
#include "trace.h"

static_assert(KVBLK_COUNTERS <= U8_MAX);

/* Records why the get missed. Returns -ENOENT. */
static int get_miss(struct kvblk_req *req, enum kvblk_counter why)
{
	req->miss = why;
	return -ENOENT;
}

static void get_count_failed(struct kvblk_req *req, int err)
{
	struct kvblk_pool *pool = req->pool;

	if (err == -ENOENT) {
		kvblk_count(pool, KVBLK_C_GET_MISSES, 1);
		kvblk_count(pool, req->miss, 1);
	} else if (err == -ETIME) {
		kvblk_count(pool, KVBLK_C_DEADLINES, 1);
		kvblk_count(pool, KVBLK_C_GET_DEADLINES, 1);
	} else if (err == -EINTR && !READ_ONCE(req->canceled) && kvblk_req_late(req)) {
		/* detached because it was late, and reported as -ETIME */
		kvblk_count(pool, KVBLK_C_GET_DEADLINES, 1);
	} else if (err == -ENOMEM) {
		kvblk_count(pool, KVBLK_C_GET_NOMEM, 1);
	} else {
		kvblk_count(pool, KVBLK_C_GET_ERRORS, 1);
	}
}

/* Completes a get that failed before any I/O was submitted. Returns 1. */
static int get_fail(struct kvblk_req *req, int err)
{
	get_count_failed(req, err);
	return kvblk_req_over(req, err);
}

/*
 * Returns whether to compute checksums as parts of the payload complete: not for a short one,
 * which is still in the cache later, nor if the policy is not to verify.
 */
static bool get_sums(const struct kvblk_req *req)
{
	return req->mem.bytes > 1u << KVBLK_CHUNK_SHIFT && req->sink->cpu_sees &&
	       (READ_ONCE(req->pool->tun.integrity) != KVBLK_CHECK_HEADER ||
		kvblk_must_check(req->pool, req->media.seg));
}

/* Submits header and first part as one request. Not inlined: other gets need no plug. */
static noinline void get_submit_bounce(struct kvblk_req *req, u64 pos)
{
	struct blk_plug plug;

	blk_start_plug(&plug);
	kvblk_io_submit(&req->media.io, REQ_OP_READ, pos, req->mem.bv, 1);
	kvblk_bounce_submit(req->media.bounce, kvblk_read_end(req));
	blk_finish_plug(&plug);
}

static u64 get_pos(const struct kvblk_req *req)
{
	const struct kvblk_media *media = &req->media;

	return kvblk_seg_pos(media->member, media->seg - media->member->segs, req->slot.off);
}

void kvblk_read_submit(struct kvblk_req *req)
{
	u64 pos = get_pos(req);

	if (req->media.bounce)
		get_submit_bounce(req, pos);
	else
		req->media.sums = kvblk_payload_read(&req->media.io, pos, &req->mem,
						     req->from, get_sums(req));
}

static void get_submit(struct kvblk_req *req)
{
	unsigned long now = jiffies;

	WARN_ON_ONCE(req->from + req->mem.bytes > req->slot.len);
	if (req->phase == KVBLK_GET_HERE)
		req->phase = KVBLK_GET_LANDED;
	/* no page fault while others of the batch are in flight */
	req->src.fault = false;
	bvec_set_virt(&req->mem.bv[0], req->header,
		      req->header_units << KVBLK_UNIT_SHIFT);
	if (READ_ONCE(req->media.member->last_get) != now)
		WRITE_ONCE(req->media.member->last_get, now);
	kvblk_media_submit(req, req->media.member);
	kvblk_read_submit(req);
	kvblk_io_end(&req->media.io);
}

/* Returns whether DRAM has the block. Only the task takes a reference: @block. */
static bool get_is_here(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;

	if (!atomic64_read(&pool->dram.bytes))
		return false;
	if (!kvblk_read_restarted(req) && !kvblk_read_prefetches(req)) {
		if (!kvblk_dram_holds(pool, req->id, &req->slot))
			return false;
		req->phase = KVBLK_GET_HERE;
		return true;
	}
	req->block = kvblk_dram_block_get(pool, req->id, &req->slot);
	/* integrity=full must not serve a block that was loaded without checksums */
	if (req->block && req->block->unproven &&
	    READ_ONCE(pool->tun.integrity) == KVBLK_CHECK_FULL)
		kvblk_req_mem_drop(req);
	return req->block;
}

int kvblk_read_find(struct kvblk_req *req)
{
	struct kvblk_media *media = &req->media;
	struct kvblk_pool *pool = req->pool;
	u32 tries;

	media->stats = &pool->stats->own;
	/* an earlier lookup found the block in DRAM, and req->slot is its entry */
	if (req->phase == KVBLK_GET_HERE && !kvblk_slot_expired(pool, &req->slot) &&
	    get_is_here(req))
		return 0;
	/* an entry that moves is LIVE at its new place after a retry */
	for (tries = 0; tries < 4 && !media->seg; tries++) {
		if (!kvblk_index_find(&pool->index, req->id, &req->slot))
			return get_miss(req, KVBLK_C_MISS_ABSENT);
		if (!kvblk_slot_listed(pool, req->tenant, &req->slot))
			return get_miss(req, kvblk_slot_expired(pool, &req->slot) ?
					     KVBLK_C_MISS_EXPIRED : KVBLK_C_MISS_ABSENT);
		if (get_is_here(req))
			return 0;
		media->seg = kvblk_segment_get(pool, &req->slot, &media->member,
					       &media->gen);
	}
	if (!media->seg)
		return get_miss(req, kvblk_slot_served(pool, &req->slot) ?
				     KVBLK_C_MISS_MOVED : KVBLK_C_MISS_MEMBER);
	if (!kvblk_member_ok(media->member))
		return get_miss(req, KVBLK_C_MISS_MEMBER);
	media->stats = media->member->stats;
	return 0;
}

/* Returns 0, -ERANGE or -EMSGSIZE. */
static int get_range(struct kvblk_req *req)
{
	struct kvblk_op *op = &req->op;
	u32 len = req->slot.len;

	req->result.value_len = len;
	if (op->flags & KVBLK_OPF_PARTIAL) {
		if (op->offset >= len)
			return -ERANGE;
		req->want = min3(len - op->offset, op->length ?: req->bytes,
				 req->bytes);
	} else {
		if (req->bytes < len)
			return -EMSGSIZE;
		req->want = len;
	}
	/* read whole chunks, because checksums cover chunks */
	req->from = round_down(op->offset, 1u << KVBLK_CHUNK_SHIFT);
	if (unlikely(req->crcs_addr) &&
	    kvblk_nr_chunks(kvblk_read_end(req) - req->from) * sizeof(__le32) > req->crcs_room)
		return -EMSGSIZE;
	return 0;
}

/* Remembers how many bytes of the caller's memory to clear if the get fails. */
static void get_partly(struct kvblk_req *req)
{
	req->partly = max(req->partly, req->want);
}

static int get_over(struct kvblk_req *req, int err)
{
	struct kvblk_pool *pool = req->pool;

	if (!err) {
		kvblk_count_at(req->media.stats, KVBLK_C_GETS, 1);
		kvblk_count_at(req->media.stats, KVBLK_C_GET_BYTES, req->want);
		kvblk_hist_add_at(pool, req->media.stats, KVBLK_H_GET, req->want,
				  req->start);
		err = req->want;
	} else {
		req->result.flags = 0;
		get_count_failed(req, err);
	}
	trace_kvblk_get(pool->name, req->id.lo, req->slot.len, err,
			req->result.flags, req->start);
	req->phase = KVBLK_GET_OVER;
	return kvblk_req_over(req, err);
}

static int get_check_object(struct kvblk_req *req)
{
	const struct kvblk_dram_block *obj = req->block;

	if (obj->rec.tenant != req->tenant || obj->rec.key_len != req->op.key_len ||
	    memcmp(obj->key, req->key, obj->rec.key_len))
		return get_miss(req, KVBLK_C_MISS_ABSENT);
	if ((req->op.flags & KVBLK_OPF_LAYOUT) && obj->rec.layout_tag != req->op.layout_tag)
		return get_miss(req, KVBLK_C_MISS_LAYOUT);
	req->result.layout_tag = obj->rec.layout_tag;
	req->result.caller_tag = obj->rec.caller_tag;
	req->integrity = obj->rec.integrity;
	return 0;
}

/* Completes the read at once, because the block is in DRAM; the task continues the get. */
static int get_here(struct kvblk_req *req)
{
	req->src.fault = false;
	kvblk_media_submit(req, NULL);
	kvblk_io_end(&req->media.io);
	return 0;
}

/* Copies a DRAM block to kernel memory, because the caller's pages do not stay resident. */
static int get_copy_object(struct kvblk_req *req)
{
	struct kvblk_dram_block *obj = req->block;
	u32 bytes = kvblk_read_end(req) - req->from, i;
	struct iov_iter from;
	int err;

	req->sink = &kvblk_sink_copy;
	err = kvblk_req_mem_alloc(req, bytes, true);
	/* a failure has dropped the DRAM block, too */
	if (err)
		return err;
	iov_iter_bvec(&from, ITER_SOURCE, &obj->bv[1], obj->nr, obj->rec.length);
	iov_iter_advance(&from, req->from);
	for (i = 1; i < req->mem.nr; i++)
		bytes -= copy_from_iter(bvec_virt(&req->mem.bv[i]),
					min(req->mem.bv[i].bv_len, bytes), &from);
	return !kvblk_dram_block_checks(req->pool, obj) ||
	       kvblk_payload_check(&req->mem, NULL, kvblk_read_crcs(req)) ? 0 : -EBADMSG;
}

static int get_copy_out(struct kvblk_req *req)
{
	struct kvblk_dram_block *obj = req->block;
	bool fault = req->src.fault;
	int err;

	req->src.fault = false;
	if (kvblk_dram_block_checks(req->pool, obj))
		err = kvblk_vectors_check_out(&obj->bv[1], obj->rec.length, req->op.offset,
					      req->want, &req->src, obj->rec.crcs);
	else
		err = kvblk_vectors_copy(&obj->bv[1], req->op.offset, req->want, &req->src,
					 false);
	req->src.fault = fault;
	return err;
}

/* Drops a damaged DRAM block. Returns 1, or -EAGAIN if a member has the block. */
static int get_object_damaged(struct kvblk_req *req)
{
	kvblk_dram_block_damaged(req->pool, req->block);
	kvblk_dram_block_spoil(req->pool, req->block);
	kvblk_req_mem_drop(req);
	req->phase = KVBLK_GET_AGAIN;
	return req->slot.seg != KVBLK_DRAM_SEG ? -EAGAIN :
	       get_over(req, get_miss(req, KVBLK_C_MISS_DAMAGED));
}

/* Continues a get with a DRAM block. Returns 1, or -EAGAIN to continue at @phase without it. */
static int get_object(struct kvblk_req *req)
{
	int err = get_check_object(req);

	if (err)
		return get_over(req, err);
	/* or else the DRAM block would be held until the page for the checksums is resident */
	if (req->crcs_addr && req->integrity != KVBLK_INTEGRITY_NONE && !req->crcs) {
		req->crcs = kmemdup(kvblk_read_crcs(req), kvblk_nr_chunks(kvblk_read_end(req) - req->from) *
				    sizeof(*req->crcs), GFP_KERNEL_ACCOUNT);
		if (!req->crcs)
			return get_over(req, -ENOMEM);
	}
	err = get_copy_out(req);
	if (err)
		get_partly(req);
	if (err == -EFAULT && !req->src.fault) {
		kvblk_req_mem_drop(req);
		req->wants_fault = true;
		return -EAGAIN;
	}
	req->phase = err ? KVBLK_GET_COPY : KVBLK_GET_SUMS;
	/* the caller's pages were evicted again after the page fault */
	if (err == -EFAULT)
		err = get_copy_object(req);
	if (err == -EBADMSG)
		return get_object_damaged(req);
	if (err)
		return get_over(req, err);
	kvblk_req_dram_block_drop(req);
	kvblk_index_touch(&req->pool->index, &req->slot,
			  kvblk_policy_tick(&req->pool->policy));
	kvblk_count(req->pool, KVBLK_C_DRAM_GETS, 1);
	req->result.flags |= KVBLK_RES_MEMORY;
	if (req->phase == KVBLK_GET_SUMS)
		kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
	return -EAGAIN;
}

static int get_begun(struct kvblk_req *req)
{
	bool comes = kvblk_read_restarted(req);
	struct kvblk_slot was;
	int err;

	if (unlikely(req->media.trial))
		was = req->slot;
	err = kvblk_read_find(req);
	if (err)
		return get_fail(req, err);
	/* a trial is valid for one record only */
	if (unlikely(req->media.trial) &&
	    (was.seg != req->slot.seg || was.off != req->slot.off ||
	     was.gen != req->slot.gen))
		kvblk_p2p_trial_end(req);
	err = get_range(req);
	if (err)
		return get_fail(req, err);
	if (req->block)
		return get_object(req);
	if (!comes && kvblk_read_restarted(req))
		return get_here(req);
	req->header_units = kvblk_header_units(req->slot.len);
	err = kvblk_req_header_alloc(req);
	if (!err)
		err = kvblk_sink_prepare(req);
	if (!err) {
		get_submit(req);
		return 0;
	}
	kvblk_req_header_free(req);
	req->wants_fault = err == -EFAULT;
	return req->wants_fault || err == -EAGAIN ? -EAGAIN : get_fail(req, err);
}

int kvblk_read_begin(struct kvblk_req *req)
{
	if (kvblk_req_late(req))
		return -ETIME;
	if (kvblk_req_crowded(req))
		return -ENOMEM;
	return kvblk_media_begin(req) ? 0 : -ENODEV;
}

static int get_start(struct kvblk_req *req)
{
	int ret = kvblk_read_begin(req);

	if (ret)
		return get_fail(req, ret);
	ret = get_begun(req);
	if (ret)
		kvblk_media_end(req);
	return ret;
}

/*
 * Restarts the get from the index lookup. Returns 0: in flight; 1: complete; -EAGAIN: needs a
 * page fault, or the block was copied as @phase says.
 */
static noinline int get_again(struct kvblk_req *req)
{
	struct kvblk_sigpipe sigpipe;
	int ret;

	kvblk_req_mem_drop(req);
	kvblk_req_header_free(req);
	kfree(req->crcs);
	req->crcs = NULL;
	/* before anything is held, because a pager may take any time */
	if (req->src.fault && kvblk_src_fault_in(&req->src, req->want, true))
		return get_over(req, -EINTR);
	req->looked = false;
	kvblk_sigpipe_block(&sigpipe);
	ret = get_start(req);
	kvblk_sigpipe_restore(&sigpipe);
	/* only the caller's memory is left to clear */
	if (ret == 1)
		req->phase = KVBLK_GET_OVER;
	return ret;
}

static bool get_drop(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	struct kvblk_slot now;

	return !kvblk_kills_full(req->media.member) &&
	       kvblk_index_find(&pool->index, req->id, &now) &&
	       now.state == KVBLK_SLOT_LIVE && kvblk_same_record(&now, &req->slot) &&
	       kvblk_entry_replace(pool, req->id, &now, NULL);
}

/*
 * Handles a record that is not the requested block. If the entry is unchanged, that is
 * damage: report it and remove the entry. Otherwise the block was deleted or moved. A
 * @producer's wrong checksums are counted apart, because the flash is not to blame. Returns
 * -ENOENT.
 */
static int get_damaged_by(struct kvblk_req *req, bool producer)
{
	if (!get_drop(req))
		return get_miss(req, KVBLK_C_MISS_MOVED);
	if (producer)
		kvblk_count_at(req->media.stats, KVBLK_C_PRODUCER_MISMATCHES, 1);
	else
		kvblk_member_error(req->media.member, KVBLK_ERROR_CHECKSUM,
				   req->slot.seg - req->media.member->seg_base);
	return get_miss(req, KVBLK_C_MISS_DAMAGED);
}

static int get_damaged(struct kvblk_req *req)
{
	return get_damaged_by(req, req->integrity == KVBLK_INTEGRITY_PRODUCER);
}

static int get_check_header(struct kvblk_req *req, struct kvblk_rec *rec)
{
	struct kvblk_place place = kvblk_place(req->media.member,
					       req->media.seg - req->media.member->segs,
					       req->media.gen, req->slot.off);

	if (kvblk_record_decode(req->header, req->header_units << KVBLK_UNIT_SHIFT,
				&place, kvblk_trust_entry(req->id, req->slot.len),
				rec) != KVBLK_DEC_RECORD)
		return get_damaged_by(req, false);
	/* another key with the same id: a miss, no damage */
	if (rec->tenant != req->tenant || rec->key_len != req->op.key_len ||
	    memcmp(rec->key, req->key, rec->key_len))
		return get_miss(req, KVBLK_C_MISS_ABSENT);
	if ((req->op.flags & KVBLK_OPF_LAYOUT) &&
	    rec->layout_tag != req->op.layout_tag)
		return get_miss(req, KVBLK_C_MISS_LAYOUT);
	if (rec->expiry && kvblk_expired(rec->expiry, kvblk_now(req->pool)))
		return get_miss(req, KVBLK_C_MISS_EXPIRED);
	req->result.layout_tag = rec->layout_tag;
	req->result.caller_tag = rec->caller_tag;
	req->integrity = rec->integrity;
	if (unlikely(req->sink->describe))
		req->sink->describe(req, rec);
	return 0;
}

/* Returns 1: verify the payload; 0: do not; -ENOENT: no checksums, but it must be verified. */
static int get_must_check(struct kvblk_req *req, const struct kvblk_rec *rec)
{
	struct kvblk_pool *pool = req->pool;
	bool caller = !req->sink->cpu_sees && kvblk_read_caller_checks(req);

	if (!kvblk_must_check(pool, req->media.seg))
		return req->integrity != KVBLK_INTEGRITY_NONE && !caller &&
		       (req->sink->cpu_sees || !rec->durable);
	if (req->integrity != KVBLK_INTEGRITY_NONE)
		return !caller;
	/* remove the entry so that the block can be put again */
	get_drop(req);
	return get_miss(req, KVBLK_C_MISS_UNPROVEN);
}

static int get_crcs_out(struct kvblk_req *req)
{
	u32 bytes;

	if (!req->crcs_addr || req->integrity == KVBLK_INTEGRITY_NONE)
		return 0;
	bytes = kvblk_nr_chunks(kvblk_read_end(req) - req->from) * sizeof(__le32);
	if (kvblk_user_write(req->crcs_addr, req->crcs ?: kvblk_read_crcs(req), bytes,
			     req->src.fault))
		return -EFAULT;
	req->result.flags |= KVBLK_RES_CHECKSUMS;
	return 0;
}

static int get_read_error(struct kvblk_req *req)
{
	kvblk_member_error(req->media.member, KVBLK_ERROR_READ,
			   req->slot.seg - req->media.member->seg_base);
	return get_miss(req, KVBLK_C_MISS_READ_ERROR);
}

int kvblk_read_check(struct kvblk_req *req)
{
	struct kvblk_rec rec;
	int err;

	if (req->media.io.status) {
		if (req->sink->failed)
			return req->sink->failed(req);
		/*
		 * a medium error is permanent: remove the entry, so that the block can be put
		 * again
		 */
		if (req->media.io.status == BLK_STS_MEDIUM)
			get_drop(req);
		return get_read_error(req);
	}
	err = get_check_header(req, &rec);
	if (!err)
		err = get_must_check(req, &rec);
	if (err <= 0)
		return err;
	err = req->sink->check(req);
	return err == -EBADMSG ? get_damaged(req) : err;
}

/* Returns whether the pages are unpinned before the task has copied the tail to them. */
static bool get_loses_tail(const struct kvblk_req *req, enum kvblk_by by)
{
	return by == KVBLK_BY_MEMBER && req->phase == KVBLK_GET_SUMS &&
	       req->mem.tail_user.bv_len;
}

/*
 * Ends the media half: verifies the read. Returns 0: the block is in the caller's memory or,
 * with phase COPY, in the kernel's; -EINPROGRESS: in flight again; -EAGAIN: read again
 * through kernel memory; or an error, with the caller's memory zero or @partly bytes to
 * clear. Unless @by is KVBLK_BY_CALLER the CPU does not write there, because the memory may
 * be another task's.
 */
static int get_land(struct kvblk_req *req, enum kvblk_by by)
{
	int err = 0;

	if (!req->looked)
		err = kvblk_read_check(req);
	req->looked = true;
	err = kvblk_read_stops(req, by) ?: err;
	if (req->sink->finish)
		err = req->sink->finish(req, by, err);
	if (err == -EINPROGRESS)
		return err;
	if (err == -EIO)
		err = get_read_error(req);
	else if (err == -EBADMSG)
		err = get_damaged(req);

	if (err) {
		if (req->mem.direct && by == KVBLK_BY_CALLER)
			kvblk_mem_zero(&req->mem);
		else if (req->mem.direct)
			get_partly(req);
	} else if (req->sink->delivers) {
		req->phase = KVBLK_GET_SUMS;
		/* count later, or else a get that is read again would count twice */
		if (!get_loses_tail(req, by))
			kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
	} else {
		req->phase = KVBLK_GET_COPY;
	}
	/* before kvblk_media_end(), because the index may be freed afterwards */
	if (!err)
		kvblk_index_touch(&req->pool->index, &req->slot,
				  kvblk_policy_tick(&req->pool->policy));
	/* a trial continues with the second read */
	if (unlikely(req->device) && err != -EAGAIN)
		kvblk_p2p_trial_end(req);
	kvblk_media_end(req);
	return err;
}

/* Ends the media half of a get that found the block in DRAM. Returns 0 or an error. */
static int get_found_here(struct kvblk_req *req, enum kvblk_by by)
{
	int err = kvblk_read_stops(req, by);

	kvblk_media_end(req);
	return err;
}

/* Delivers payload and checksums. Returns -EFAULT if a page fault is needed or did not help. */
static int get_deliver(struct kvblk_req *req)
{
	int err = 0;

	if (req->mem.direct)
		kvblk_mem_tail_out(&req->mem);
	if (req->phase == KVBLK_GET_COPY) {
		err = req->sink->deliver(req);
		if (err)
			return err;
		kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
		req->phase = KVBLK_GET_SUMS;
	}
	return get_crcs_out(req);
}

/* Drops pinned pages and DRAM, because the task or a pager may take any time. */
static int get_pause(struct kvblk_req *req, enum kvblk_by by)
{
	if (req->block && req->phase == KVBLK_GET_COPY)
		req->phase = KVBLK_GET_HERE;
	if (get_loses_tail(req, by)) {
		req->phase = KVBLK_GET_AGAIN;
		get_partly(req);
	}
	if (req->block || req->mem.direct)
		kvblk_req_mem_drop(req);
	return -EAGAIN;
}

static int get_go_on(struct kvblk_req *req, enum kvblk_by by)
{
	int err = 0;

	if (req->media.begun) {
		err = req->phase == KVBLK_GET_HERE ? get_found_here(req, by) : get_land(req, by);
		if (err == -EINPROGRESS)
			return 0;
		if (err == -EAGAIN)
			req->phase = KVBLK_GET_AGAIN;
		else if (err)
			return get_over(req, err);
	}
	if (req->phase == KVBLK_GET_OVER)
		return 1;
	/* if only checksums are left and the caller wants none, the get is complete */
	if (by == KVBLK_BY_MEMBER && (req->phase != KVBLK_GET_SUMS || req->crcs_addr ||
				      req->mem.tail_user.bv_len))
		return get_pause(req, by);
	if (by == KVBLK_BY_NOBODY)
		return get_over(req, -EINTR);
	if (req->phase == KVBLK_GET_AGAIN || req->phase == KVBLK_GET_HERE) {
		err = get_again(req);
		if (err != -EAGAIN || (req->phase != KVBLK_GET_COPY &&
				       req->phase != KVBLK_GET_SUMS))
			return err;
	}
	err = get_deliver(req);
	if (err)
		get_partly(req);
	req->wants_fault = err == -EFAULT && !req->src.fault;
	if (req->wants_fault)
		return get_pause(req, by);
	return get_over(req, err);
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
	.flags = KVBLK_OPF_PARTIAL | KVBLK_OPF_LAYOUT | KVBLK_OPF_HARD_DEADLINE,
	.mode = FMODE_READ,
	.writes = true,
	.start = get_start,
	.finish = get_finish,
};
