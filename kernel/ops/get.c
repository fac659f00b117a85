// SPDX-License-Identifier: GPL-2.0
/*
 * A get: success only after header and payload have been checked; whatever else
 * it reports, the destination is zero or untouched. If its caller has gone, the
 * destination is left as it is, because it may be somebody else's by now.
 */
#include <linux/ioprio.h>
#include <linux/slab.h>

#include "request.h"
#include "trace.h"

static_assert(KVBLK_COUNTERS <= U8_MAX);

/* It only brings the block into the host's memory. */
static bool get_prefetches(const struct kvblk_req *req)
{
	return unlikely(req->op.opcode == KVBLK_OP_PREFETCH);
}

/* It is a miss, of the reason that this counter counts. */
static int get_miss(struct kvblk_req *req, enum kvblk_counter why)
{
	req->miss = why;
	return -ENOENT;
}

static void get_count_failed(struct kvblk_req *req, int err)
{
	struct kvblk_pool *pool = req->pool;

	if (get_prefetches(req))
		return;
	if (err == -ENOENT) {
		kvblk_count(pool, KVBLK_C_GET_MISSES, 1);
		kvblk_count(pool, req->miss, 1);
	} else if (err == -ETIME) {
		kvblk_count(pool, KVBLK_C_DEADLINES, 1);
		kvblk_count(pool, KVBLK_C_GET_DEADLINES, 1);
	} else if (err == -EINTR && !READ_ONCE(req->canceled) && kvblk_req_late(req)) {
		/* detached when it was late, and told so */
		kvblk_count(pool, KVBLK_C_GET_DEADLINES, 1);
	} else if (err == -ENOMEM) {
		kvblk_count(pool, KVBLK_C_GET_NOMEM, 1);
	} else {
		kvblk_count(pool, KVBLK_C_GET_ERRORS, 1);
	}
}

/* It has failed before anything was in flight: 1. */
static int get_fail(struct kvblk_req *req, int err)
{
	get_count_failed(req, err);
	return kvblk_req_over(req, err);
}

/* What a get of whole chunks reads, behind req->from. */
static u32 get_end(const struct kvblk_req *req)
{
	return min_t(u64, round_up((u64)req->op.offset + req->want,
				   1u << KVBLK_CHUNK_SHIFT), req->slot.len);
}

/*
 * Is it worth it to sum the payload as it lands? A short one's bytes are in a cache
 * yet when it is looked at; and blocks have checksums, unless the policy is to have
 * none.
 */
static bool get_sums(const struct kvblk_req *req)
{
	return req->mem.bytes > 1u << KVBLK_CHUNK_SHIFT && !req->mem.p2p &&
	       (READ_ONCE(req->pool->tun.integrity) != KVBLK_CHECK_HEADER ||
		kvblk_must_check(req->pool, req->media.seg));
}

/* Header and first part become one request. Not inlined: others need no plug. */
static noinline void get_submit_bounce(struct kvblk_req *req, u64 pos)
{
	struct blk_plug plug;

	blk_start_plug(&plug);
	kvblk_io_submit(&req->media.io, REQ_OP_READ, pos, req->mem.bv, 1);
	kvblk_bounce_submit(req->media.bounce, get_end(req));
	blk_finish_plug(&plug);
}

static u64 get_pos(const struct kvblk_req *req)
{
	const struct kvblk_media *media = &req->media;

	return kvblk_seg_pos(media->member, media->seg - media->member->segs, req->slot.off);
}

/* When puts would be let through, it is: gets go first. */
static void prefetch_submit(struct kvblk_turn *turn)
{
	struct kvblk_req *req = container_of(turn, struct kvblk_req, media.turn);
	struct kvblk_io *io = &req->media.io;

	if (!READ_ONCE(req->canceled))
		req->media.sums = kvblk_payload_read(io, get_pos(req), &req->mem, 0,
						     get_sums(req));
	kvblk_io_end(io);
}

static void prefetch_enter(struct kvblk_req *req)
{
	struct kvblk_turn *turn = &req->media.turn;

	kvblk_media_submit(req, req->media.member);
	req->media.io.ioprio = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, IOPRIO_NR_LEVELS - 1 -
						 req->op.priority);
	turn->priority = req->op.priority;
	turn->prefetch = true;
	turn->bytes = req->mem.bytes + (req->header_units << KVBLK_UNIT_SHIFT);
	turn->given_up = &req->canceled;
	turn->submit = prefetch_submit;
	kvblk_turn_enter(turn, req->media.member);
}

/* Memory and bios of a get whose entry and segment are at hand. */
static int get_submit(struct kvblk_req *req)
{
	u32 end = req->from + req->mem.bytes;
	u64 pos = get_pos(req);
	unsigned long now = jiffies;

	WARN_ON_ONCE(end > req->slot.len);
	if (req->phase == KVBLK_GET_HERE)
		req->phase = KVBLK_GET_LANDED;
	/* others of its batch are in flight: only when they are not */
	req->src.fault = false;
	bvec_set_virt(&req->mem.bv[0], req->header,
		      req->header_units << KVBLK_UNIT_SHIFT);
	if (get_prefetches(req)) {
		prefetch_enter(req);
		return 0;
	}
	if (READ_ONCE(req->media.member->last_get) != now)
		WRITE_ONCE(req->media.member->last_get, now);
	kvblk_media_submit(req, req->media.member);
	if (req->media.bounce) {
		get_submit_bounce(req, pos);
	} else if (req->from || get_sums(req)) {
		req->media.sums = kvblk_payload_read(&req->media.io, pos, &req->mem,
						     req->from, get_sums(req));
	} else {
		kvblk_io_submit(&req->media.io, REQ_OP_READ, pos, req->mem.bv,
				req->mem.nr);
	}
	kvblk_io_end(&req->media.io);
	return 0;
}

/* The task has come for the get, and does not wait for others of its file. */
static bool get_comes(const struct kvblk_req *req)
{
	return req->phase != KVBLK_GET_LANDED;
}

/* Kernel memory for it: a chunk, if a device's is behind it, or for all of it. */
static int get_bounce(struct kvblk_req *req, bool device)
{
	if (device && !(req->op.flags & KVBLK_OPF_HARD_DEADLINE))
		req->media.bounce = kvblk_bounce_get(req, kvblk_req_landed);
	if (!req->media.bounce)
		return kvblk_req_mem_alloc(req, get_end(req) - req->from, get_comes(req));
	req->mem.bv = req->mem.few_bv;
	req->mem.nr = 1;
	/* a part may have reached the caller: nobody may think that it is quiet */
	req->mem.direct = true;
	return 0;
}

/* What comes straight into a device's memory is for the caller to check. */
static bool get_caller_checks(const struct kvblk_req *req)
{
	return req->crcs_addr && req->mem.p2p &&
	       !(READ_ONCE(req->media.seg->flags) & KVBLK_SEGF_UNPROVEN);
}

/* It goes to a device's memory, and not directly. */
static bool get_known_bounce(struct kvblk_req *req)
{
	phys_addr_t addr;

	if (!kvblk_req_known_device(req, &addr))
		return false;
	return kvblk_p2p_bounces(addr, req->media.member) ||
	       (kvblk_must_check(req->pool, req->media.seg) && !req->crcs_addr);
}

/*
 * Is the block in the host's memory? Until its task comes that is all that is to be known,
 * then @object is it.
 */
static bool get_is_here(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;

	if (!atomic64_read(&pool->dram.bytes))
		return false;
	if (!get_comes(req) && !get_prefetches(req)) {
		if (!kvblk_dram_holds(pool, req->id, &req->slot))
			return false;
		req->phase = KVBLK_GET_HERE;
		return true;
	}
	req->object = kvblk_object_get(pool, req->id, &req->slot);
	/* a copy that nobody has checked is not for who checks */
	if (req->object && req->object->unproven &&
	    READ_ONCE(pool->tun.integrity) == KVBLK_CHECK_FULL)
		kvblk_req_mem_drop(req);
	return req->object;
}

/* The block's entry and its segment, held, unless it is here. 0 or -ENOENT. */
static int get_find(struct kvblk_req *req)
{
	struct kvblk_media *media = &req->media;
	struct kvblk_pool *pool = req->pool;
	u32 tries;

	media->stats = &pool->stats->own;
	/* looked up before the task came: the object is of that entry, or there is none */
	if (req->phase == KVBLK_GET_HERE && !kvblk_slot_expired(pool, &req->slot) &&
	    get_is_here(req))
		return 0;
	/* a block that moves is found at its new place the next time */
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

/* What of the block is read, and is there room for it? 0, -ERANGE, -EMSGSIZE. */
static int get_range(struct kvblk_req *req)
{
	struct kvblk_op *op = &req->op;
	u32 len = req->slot.len;

	req->result.value_len = len;
	if (get_prefetches(req)) {
		req->want = len;
		return 0;
	}
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
	/* whole chunks are read, for they carry the checksums */
	req->from = round_down(op->offset, 1u << KVBLK_CHUNK_SHIFT);
	if (unlikely(req->crcs_addr) &&
	    kvblk_nr_chunks(get_end(req) - req->from) * sizeof(__le32) > req->crcs_room)
		return -EMSGSIZE;
	return 0;
}

/*
 * A block that is asked for again comes by memory that stays: the next get finds it
 * there. Not if that is for less than all of it, or for a device.
 */
static bool get_promotes(struct kvblk_req *req)
{
	const struct kvblk_tunables *tun = &req->pool->tun;
	phys_addr_t addr;

	if (!READ_ONCE(tun->dram_bytes) || !READ_ONCE(tun->dram_promote) ||
	    get_comes(req) || !req->slot.heat || req->want != req->slot.len)
		return false;
	return !kvblk_src_device(&req->src, true, &addr);
}

/*
 * Where it goes: 0, -EFAULT: not without page faults, -EAGAIN, -ENOMEM, -ENXIO;
 * of a prefetch -ENOSPC, -EOPNOTSUPP.
 */
static int get_memory(struct kvblk_req *req)
{
	struct kvblk_align align = kvblk_pool_align(req->pool);
	struct kvblk_pool *pool = req->pool;
	int err = -EREMOTEIO;
	phys_addr_t addr;

	if (get_prefetches(req) && !READ_ONCE(pool->tun.dram_bytes))
		return -EOPNOTSUPP;
	if (get_prefetches(req)) {
		req->gated = kvblk_gate_full(req->media.member);
		return req->gated ? -EAGAIN : kvblk_req_object(req, req->want);
	}
	if (get_promotes(req) && !kvblk_req_object(req, req->want))
		return 0;
	req->wants_memory = 0;
	if (req->phase == KVBLK_GET_AGAIN)
		return kvblk_req_mem_alloc(req, get_end(req) - req->from, true);
	/* a cancel that saw a ring's get without memory must not meet the caller's after all */
	if (!(pool->flags & KVBLK_POOL_STRICT) && !(req->cmd && get_comes(req)) &&
	    !(req->op.flags & KVBLK_OPF_HARD_DEADLINE) &&
	    req->from == req->op.offset && get_end(req) == req->op.offset + req->want &&
	    kvblk_src_fits(&req->src, req->want, align) && !get_known_bounce(req))
		/* no fault: a segment is held */
		err = kvblk_mem_map(&req->mem, &req->src, req->want, true, align);
	if (!err && req->mem.p2p)
		kvblk_req_saw_device(req);
	if (!err && req->mem.shared && req->revocable) {
		/* before a trial of the route begins: nothing will go there */
		kvblk_req_mem_drop(req);
		err = -EREMOTEIO;
	} else if (!err && req->mem.p2p) {
		err = kvblk_must_check(pool, req->media.seg) && !get_caller_checks(req) ?
		      -EREMOTEIO : kvblk_p2p_route(req, req->media.member);
		if (err)
			kvblk_req_mem_drop(req);
	}
	if (err == -EREMOTEIO || (err == -EFAULT && req->src.fault)) {
		req->device |= kvblk_src_device(&req->src, true, &addr);
		err = get_bounce(req, req->device);
	}
	return err;
}

static const __le32 *get_crcs(const struct kvblk_req *req)
{
	const __le32 *crcs = req->header ? req->header + KVBLK_HDR_CRCS :
					   req->object->rec.crcs;

	return crcs + (req->from >> KVBLK_CHUNK_SHIFT);
}

/* So much of the caller's memory may have been written, for nothing. */
static void get_partly(struct kvblk_req *req)
{
	req->partly = max(req->partly, req->want);
}

static int get_over(struct kvblk_req *req, int err)
{
	struct kvblk_pool *pool = req->pool;

	if (!err && get_prefetches(req)) {
		kvblk_count(pool, KVBLK_C_PREFETCHES, 1);
		req->result.flags = KVBLK_RES_MEMORY | KVBLK_RES_BOUNCED;
		err = req->want;
	} else if (!err) {
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
	/* a prefetch's task may not come for it, and others want the memory */
	if (get_prefetches(req) && !req->parked)
		kvblk_req_mem_drop(req);
	return kvblk_req_over(req, err);
}

/* Is what is in the host's memory the block that is asked for? 0 or -ENOENT. */
static int get_check_object(struct kvblk_req *req)
{
	const struct kvblk_object *obj = req->object;

	/* another key with the same id */
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

/* A block in the host's memory is not read: the get lands at once, for its task. */
static int get_here(struct kvblk_req *req)
{
	req->looked = true;
	req->src.fault = false;
	kvblk_media_submit(req, NULL);
	kvblk_io_end(&req->media.io);
	return 0;
}

/* Copies a block in memory for a caller whose pages do not stay: 0, -ENOMEM, -EBADMSG. */
static int get_copy_object(struct kvblk_req *req)
{
	struct kvblk_object *obj = req->object;
	u32 bytes = get_end(req) - req->from, i;
	struct iov_iter from;
	int err;

	err = kvblk_req_mem_alloc(req, bytes, true);
	/* it has dropped the object, too */
	if (err)
		return err;
	iov_iter_bvec(&from, ITER_SOURCE, &obj->bv[1], obj->nr, obj->rec.length);
	iov_iter_advance(&from, req->from);
	for (i = 1; i < req->mem.nr; i++)
		bytes -= copy_from_iter(bvec_virt(&req->mem.bv[i]),
					min(req->mem.bv[i].bv_len, bytes), &from);
	return !kvblk_object_checks(req->pool, obj) ||
	       kvblk_payload_check(&req->mem, NULL, get_crcs(req)) ? 0 : -EBADMSG;
}

/* From the object to the caller, without a page fault. */
static int get_copy_out(struct kvblk_req *req)
{
	struct kvblk_object *obj = req->object;
	bool fault = req->src.fault;
	int err;

	req->src.fault = false;
	if (kvblk_object_checks(req->pool, obj))
		err = kvblk_vectors_check_out(&obj->bv[1], obj->rec.length, req->op.offset,
					      req->want, &req->src, obj->rec.crcs);
	else
		err = kvblk_vectors_copy(&obj->bv[1], req->op.offset, req->want, &req->src,
					 false);
	req->src.fault = fault;
	return err;
}

/* The object's bytes are not the block's. 1, or -EAGAIN: a member has the block. */
static int get_object_damaged(struct kvblk_req *req)
{
	kvblk_object_damaged(req->pool, req->object);
	kvblk_object_spoil(req->pool, req->object);
	kvblk_req_mem_drop(req);
	req->phase = KVBLK_GET_AGAIN;
	return req->slot.seg != KVBLK_DRAM_SEG ? -EAGAIN :
	       get_over(req, get_miss(req, KVBLK_C_MISS_DAMAGED));
}

/*
 * The task has come, and has found the object. 1: it is over; -EAGAIN: it is to go on
 * with what @phase says, and holds no object.
 */
static int get_object(struct kvblk_req *req)
{
	int err = get_check_object(req);

	if (err)
		return get_over(req, err);
	/* or the object would be held until the page for them is there */
	if (req->crcs_addr && req->integrity != KVBLK_INTEGRITY_NONE && !req->crcs) {
		req->crcs = kmemdup(get_crcs(req), kvblk_nr_chunks(get_end(req) - req->from) *
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
	/* they were brought in, and went out again */
	if (err == -EFAULT)
		err = get_copy_object(req);
	if (err == -EBADMSG)
		return get_object_damaged(req);
	if (err)
		return get_over(req, err);
	kvblk_req_object_drop(req);
	kvblk_index_touch(&req->pool->index, &req->slot,
			  kvblk_policy_tick(&req->pool->policy));
	kvblk_count(req->pool, KVBLK_C_DRAM_GETS, 1);
	req->result.flags |= KVBLK_RES_MEMORY;
	if (req->phase == KVBLK_GET_SUMS)
		kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
	return -EAGAIN;
}

/* With the media half begun; it goes on when 0 is returned. */
static int get_begun(struct kvblk_req *req)
{
	bool comes = get_comes(req);
	struct kvblk_slot was;
	int err;

	if (unlikely(req->media.trial))
		was = req->slot;
	err = get_find(req);

	if (err)
		return get_fail(req, err);
	/* a trial is of one record */
	if (unlikely(req->media.trial) &&
	    (was.seg != req->slot.seg || was.off != req->slot.off ||
	     was.gen != req->slot.gen))
		kvblk_p2p_trial_end(req);
	err = get_range(req);
	if (err)
		return get_fail(req, err);
	if (req->object && get_prefetches(req)) {
		kvblk_req_mem_drop(req);
		req->result.flags |= KVBLK_RES_MEMORY;
		return kvblk_req_over(req, 0);
	}
	if (req->object)
		return get_object(req);
	if (!comes && get_comes(req))
		return get_here(req);
	req->header_units = kvblk_header_units(req->slot.len);
	err = kvblk_req_header_alloc(req);
	if (!err)
		err = get_memory(req);
	if (!err) {
		get_submit(req);
		return 0;
	}
	kvblk_req_header_free(req);
	req->wants_fault = err == -EFAULT;
	return req->wants_fault || err == -EAGAIN ? -EAGAIN : get_fail(req, err);
}

static int get_start(struct kvblk_req *req)
{
	int ret;

	req->space_seq = atomic_read(&req->pool->space_seq);
	if (kvblk_req_late(req))
		return get_fail(req, -ETIME);
	if (kvblk_req_crowded(req))
		return get_fail(req, -ENOMEM);
	if (!kvblk_media_begin(req))
		return get_fail(req, -ENODEV);
	ret = get_begun(req);
	if (ret)
		kvblk_media_end(req);
	return ret;
}

/*
 * Looks the block up again and begins anew. 0: in flight; 1: over; -EAGAIN: a page fault
 * is wanted, or @phase says that the block has been copied.
 */
static noinline int get_again(struct kvblk_req *req)
{
	struct kvblk_sigpipe sigpipe;
	int ret;

	kvblk_req_mem_drop(req);
	kvblk_req_header_free(req);
	kfree(req->crcs);
	req->crcs = NULL;
	/* while nothing is held: a pager may take its time */
	if (req->src.fault && kvblk_src_fault_in(&req->src, req->want, true))
		return get_over(req, -EINTR);
	req->looked = false;
	kvblk_sigpipe_block(&sigpipe);
	ret = get_start(req);
	kvblk_sigpipe_restore(&sigpipe);
	/* what is left then is to clear the caller's memory */
	if (ret == 1)
		req->phase = KVBLK_GET_OVER;
	return ret;
}

/* Drops the entry, if it is still what it was. */
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
 * What was read is not the block. When the entry is still what it was, that is
 * damage: tell, and drop it. Else it was deleted or moved meanwhile. A @producer
 * whose checksums are wrong must not make an operator look for broken flash. -ENOENT.
 */
static int get_damaged(struct kvblk_req *req, bool producer)
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

/* It has landed, and is right: it stays in memory. False: there was none for its sums. */
static bool get_keep(struct kvblk_req *req)
{
	struct kvblk_object *obj = req->object;

	if (obj->rec.integrity != KVBLK_INTEGRITY_NONE && !obj->rec.crcs)
		return false;
	req->coming = false;
	WRITE_ONCE(obj->touched, true);
	if (!kvblk_object_keep(req->pool, obj, &req->slot))
		return true;
	/* what a batch brings in stays, within its file's budget */
	req->parked = req->parks && kvblk_budget_fits(&req->owner->budget, 0,
						      kvblk_file_limit(req->owner));
	if (req->parked)
		percpu_ref_get(&req->pool->users);
	else
		kvblk_object_queue(req->pool, obj);
	return true;
}

/* The header: 0, with @rec, or -ENOENT. */
static int get_check_header(struct kvblk_req *req, struct kvblk_rec *rec)
{
	struct kvblk_place place = kvblk_place(req->media.member,
					       req->media.seg - req->media.member->segs,
					       req->media.gen, req->slot.off);

	if (kvblk_record_decode(req->header, req->header_units << KVBLK_UNIT_SHIFT,
				&place, NULL, rec) != KVBLK_DEC_RECORD ||
	    rec->id.hi != req->id.hi || rec->id.lo != req->id.lo ||
	    rec->length != req->slot.len)
		return get_damaged(req, false);
	/* another key with the same id: a miss, and nothing is wrong */
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
	if (unlikely(req->coming)) {
		req->object->unproven = rec->integrity == KVBLK_INTEGRITY_NONE;
		kvblk_object_describe(req->object, rec);
	}
	return 0;
}

/* Is the payload to be checked? 0, 1, -ENOENT: it can't be and must be. */
static int get_must_check(struct kvblk_req *req, const struct kvblk_rec *rec)
{
	struct kvblk_pool *pool = req->pool;

	if (!kvblk_must_check(pool, req->media.seg))
		return req->integrity != KVBLK_INTEGRITY_NONE &&
		       !(req->mem.p2p && (rec->durable || get_caller_checks(req)));
	if (req->integrity != KVBLK_INTEGRITY_NONE)
		return !get_caller_checks(req);
	/* so that it can be put anew */
	get_drop(req);
	return get_miss(req, KVBLK_C_MISS_UNPROVEN);
}

/* 0, -ENOENT, or -EAGAIN: to be read again through kernel memory. */
static int get_check(struct kvblk_req *req)
{
	struct kvblk_rec rec;
	int err = get_check_header(req, &rec);

	if (!err)
		err = get_must_check(req, &rec);
	if (err <= 0)
		return err;
	/* a device's: the policy has changed meanwhile, or since it was put */
	if (req->mem.p2p) {
		kvblk_p2p_trial_end(req);
		return -EAGAIN;
	}
	if (kvblk_payload_check(&req->mem, req->media.sums, get_crcs(req)))
		return 0;
	if (req->mem.direct) {
		/* the caller may have scribbled: decide by a copy of our own */
		kvblk_count_at(req->media.stats, KVBLK_C_REREADS, 1);
		return -EAGAIN;
	}
	return get_damaged(req, req->integrity == KVBLK_INTEGRITY_PRODUCER);
}

/* What the caller wants of the block's checksums, last. */
static int get_crcs_out(struct kvblk_req *req)
{
	u32 bytes;

	if (!req->crcs_addr || req->integrity == KVBLK_INTEGRITY_NONE)
		return 0;
	bytes = kvblk_nr_chunks(get_end(req) - req->from) * sizeof(__le32);
	if (kvblk_user_write(req->crcs_addr, req->crcs ?: get_crcs(req), bytes,
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

/* Looks at what has landed. 0, -ENOENT, or -EAGAIN as of get_check(). */
static int get_look(struct kvblk_req *req)
{
	struct kvblk_rec rec;
	int err;

	/* then it may not have been read */
	if (get_prefetches(req) && READ_ONCE(req->canceled))
		return -ECANCELED;
	if (req->media.io.status && req->mem.p2p) {
		kvblk_p2p_failed(req, req->media.member);
		kvblk_count(req->pool, KVBLK_C_DEVICE_FALLBACKS, 1);
		return -EAGAIN;
	}
	if (req->media.io.status) {
		/* it will not come back, and can be put anew elsewhere */
		if (req->media.io.status == BLK_STS_MEDIUM)
			get_drop(req);
		return get_read_error(req);
	}
	if (!req->media.bounce)
		return get_check(req);
	err = get_check_header(req, &rec);
	if (!err)
		err = get_must_check(req, &rec);
	if (err > 0)
		kvblk_bounce_check(req->media.bounce, req->header + KVBLK_HDR_CRCS);
	return min(err, 0);
}

/* Goes on with it. 0, -ENOENT, -EINPROGRESS, or -EAGAIN as of get_check(). */
static noinline int get_bounce_run(struct kvblk_req *req, int err)
{
	struct kvblk_sigpipe sigpipe;

	kvblk_sigpipe_block(&sigpipe);
	err = kvblk_bounce_run(req->media.bounce, err);
	kvblk_sigpipe_restore(&sigpipe);
	if (err == -EINPROGRESS)
		return err;
	kvblk_req_bounce_end(req);
	if (err == -EIO)
		return get_read_error(req);
	if (err == -EBADMSG)
		return get_damaged(req, req->integrity == KVBLK_INTEGRITY_PRODUCER);
	return err == -EFAULT ? -EAGAIN : err;
}

/* Returns whether the pages go before the task has copied the tail that belongs to them. */
static bool get_loses_tail(const struct kvblk_req *req, enum kvblk_by by)
{
	return by == KVBLK_BY_MEMBER && req->phase == KVBLK_GET_SUMS &&
	       req->mem.tail_user.bv_len;
}

/*
 * The media half: looks at what has landed. 0: the block is in the caller's memory
 * or, with phase COPY, in the kernel's; -EINPROGRESS: in flight again; -EAGAIN: to
 * be read again through kernel memory; or an error, and the caller's memory is zero, or
 * has @partly bytes that the caller is to clear. Without the caller the CPU does not
 * write to that memory: the task may be dead by now, and the memory another one's.
 */
static int get_land(struct kvblk_req *req, enum kvblk_by by)
{
	bool streamed = req->media.bounce;
	int err = 0;

	if (!req->looked)
		err = get_look(req);
	req->looked = true;
	/* a copy that has begun is ended, for it must not stay half a block */
	if (by == KVBLK_BY_NOBODY)
		err = -EINTR;
	else if (READ_ONCE(req->canceled))
		err = -ECANCELED;
	else if (kvblk_req_late(req))
		err = -ETIME;

	if (streamed) {
		int why = err;

		/* -EINTR: none of the task's memory is touched, now or later */
		err = get_bounce_run(req, by == KVBLK_BY_CALLER ? err : -EINTR);
		if (err == -EINPROGRESS)
			return err;
		if (err == -EINTR && by != KVBLK_BY_NOBODY)
			err = why ?: -EAGAIN;
	} else if (!err && req->media.trial) {
		err = -EAGAIN;
		if (by == KVBLK_BY_CALLER)
			err = kvblk_p2p_trial(req);
		else
			kvblk_p2p_trial_end(req);
	}
	if (!err && req->coming && !get_keep(req) && get_prefetches(req))
		err = -ENOMEM;
	if (err) {
		if (req->mem.direct && by == KVBLK_BY_CALLER)
			kvblk_mem_zero(&req->mem);
		else if (req->mem.direct)
			get_partly(req);
	} else if (req->mem.direct || streamed) {
		req->phase = KVBLK_GET_SUMS;
		/* or a get that is read again would count twice */
		if (!get_loses_tail(req, by))
			kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
	} else if (req->phase != KVBLK_GET_HERE) {
		req->phase = KVBLK_GET_COPY;
	}
	/* here, because the pool's index may go once the media half has ended */
	if (!err && !get_prefetches(req) && req->phase != KVBLK_GET_HERE)
		kvblk_index_touch(&req->pool->index, &req->slot,
				  kvblk_policy_tick(&req->pool->policy));
	/* a trial goes on with what is read again */
	if (unlikely(req->device) && err != -EAGAIN)
		kvblk_p2p_trial_end(req);
	kvblk_media_end(req);
	return err;
}

/* The caller half: 0, -EFAULT: a page fault is wanted, or took its time for nothing. */
static int get_deliver(struct kvblk_req *req)
{
	int err = 0;

	if (req->mem.direct)
		kvblk_mem_tail_out(&req->mem);
	if (req->phase == KVBLK_GET_COPY) {
		if (req->object)
			err = kvblk_vectors_copy(&req->object->bv[1], req->op.offset,
						 req->want, &req->src, false);
		else
			err = kvblk_mem_copy_out(&req->mem, req->op.offset - req->from,
						 req->want, &req->src);
		if (err)
			return err;
		kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
		req->phase = KVBLK_GET_SUMS;
	}
	return get_crcs_out(req);
}

/*
 * Lets go of pinned pages and of the pool's memory while the task, or a pager, takes its
 * time.
 */
static int get_pause(struct kvblk_req *req, enum kvblk_by by)
{
	if (req->object && req->phase == KVBLK_GET_COPY)
		req->phase = KVBLK_GET_HERE;
	if (get_loses_tail(req, by)) {
		req->phase = KVBLK_GET_AGAIN;
		get_partly(req);
	}
	if (req->object || req->mem.direct)
		kvblk_req_mem_drop(req);
	return -EAGAIN;
}

/* As far as it comes. 0, 1 or -EAGAIN, as of kvblk_req_finish(). */
static int get_go_on(struct kvblk_req *req, enum kvblk_by by)
{
	int err = 0;

	if (req->media.begun) {
		err = get_land(req, by);
		if (err == -EINPROGRESS)
			return 0;
		if (err == -EAGAIN)
			req->phase = KVBLK_GET_AGAIN;
		else if (err || get_prefetches(req))
			return get_over(req, err);
	}
	if (req->phase == KVBLK_GET_OVER)
		return 1;
	/* the sums may be all that is left, and nobody wants them */
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

/*
 * Clears what was written to the caller's memory before the get failed. 1, or -EAGAIN:
 * some of it is not resident.
 */
static int get_clear(struct kvblk_req *req)
{
	bool cleared = true;

	/* a batch may have others in flight */
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

/* The gate has not moved for as long as a prefetch waits. */
static int prefetch_give_up(struct kvblk_req *req)
{
	return -ENOSPC;
}

const struct kvblk_op_type kvblk_op_prefetch = {
	.flags = KVBLK_OPF_LAYOUT,
	.mode = FMODE_READ,
	.start = get_start,
	.wait = kvblk_req_wait_space,
	.give_up = prefetch_give_up,
	.finish = get_finish,
};

const struct kvblk_op_type kvblk_op_get = {
	.flags = KVBLK_OPF_PARTIAL | KVBLK_OPF_LAYOUT | KVBLK_OPF_HARD_DEADLINE,
	.mode = FMODE_READ,
	.writes = true,
	.start = get_start,
	.finish = get_finish,
};
