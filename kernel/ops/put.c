// SPDX-License-Identifier: GPL-2.0
/*
 * Puts. The rules:
 * - A block is visible only after its record was written. Until then the put owns a WRITING slot
 *   with the record's place, so it notices if another put takes the slot over. A record that was
 *   written but not published is invalidated.
 * - The caller's memory is pinned or copied before space is reserved. A put that may take page
 *   faults ends the media half before.
 * - A put that replaces an older block (&enum kvblk_older) removes the block only when nothing but
 *   the members can fail the put, or the pool's end during the wait for the invalidation. To check
 *   for one, look up the entry first: an invalidation is listed before the entry is removed.
 * - A put takes over the entry of the same block if the member does not respond or a crash may lose
 *   the block. The older record, maybe of a durable put, stays MOVING until the new one is written
 *   past the caches.
 * - The payload of an encrypted tenant is copied, and encrypted in place once for a reservation,
 *   whose seq is the nonce. A reservation that is not used, or fails, leaves nothing to try again
 *   with: the payload is copied again. An entry is taken over only after the encryption, which may
 *   fail; a put that removes a block before is of an NVMe command, whose tenant is not encrypted.
 */
#include "memory/cipher.h"
#include "request.h"
#include "trace.h"

/* Next step: a later one or STEP_LOOK. The first three are results of &kvblk_op_type.start. */
enum put_step {
	STEP_WAIT = -EAGAIN,
	STEP_INFLIGHT = 0,		/* the request may be freed */
	STEP_DONE = 1,
	STEP_LOOK,			/* look up the entry and act on the verdict */
	STEP_KEEP,			/* put the block into DRAM */
	STEP_ADMIT,			/* ask the admission policy */
	STEP_FETCH,			/* pin or copy the caller's memory */
	STEP_CLEAR,			/* remove an older block */
	STEP_ENTER,			/* reserve space and an entry, and submit the write */
};

static struct kvblk_rec put_rec(const struct kvblk_req *req)
{
	return (struct kvblk_rec) {
		.id = req->id,
		.seq = req->media.resv.seq,
		.layout_tag = req->write.layout_tag,
		.caller_tag = req->write.caller_tag,
		.parent = req->write.parent.lo,
		.length = req->bytes,
		.expiry = req->expiry,
		.tenant = req->tenant,
		.key_len = req->op.key_len,
		.priority = req->op.priority,
		.integrity = req->integrity,
		.activation = req->pool->activation,
		.durable = req->media.durable,
		.key = req->key,
	};
}

/* Returns whether the record must survive a crash: durable, or in place of a durable record. */
static bool put_lasts(const struct kvblk_req *req)
{
	return req->op.flags & KVBLK_OPF_DURABLE || req->write.replaces;
}

/* A crash discards records without checksums, so a record that must survive has them. */
static u32 put_policy(const struct kvblk_req *req)
{
	return put_lasts(req) ? KVBLK_CHECK_FULL : READ_ONCE(req->pool->tun.integrity);
}

static u8 put_integrity(const struct kvblk_req *req, u32 policy)
{
	if (kvblk_req_encrypted(req))
		return KVBLK_INTEGRITY_AES_GCM;
	return kvblk_proof_choose(policy, req->crcs, req->mem.p2p);
}

/* Returns whether device memory is copied: the CPU must seal it, or no member reaches it. */
static bool put_bounces(const struct kvblk_req *req, u32 policy)
{
	return kvblk_proofs[kvblk_proof_choose(policy, req->crcs, true)].seal || req->write.no_p2p;
}

static bool put_reachable(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	struct kvblk_member *member;
	u32 i;

	guard(rcu)();
	for (i = 0; i < READ_ONCE(pool->nr_members); i++) {
		member = kvblk_member_nth(pool, i);
		if (member && kvblk_member_is_up(member) && !kvblk_p2p_route(req, &member->flash))
			return true;
	}
	return false;
}

/* Copies the payload to kernel memory and, if the CPU seals it, its checksums to the header. */
static int put_copy_in(struct kvblk_req *req, u32 policy)
{
	u8 integrity = put_integrity(req, policy);
	/* a retry must not wait for the file's budget */
	int err = kvblk_req_mem_alloc(req, req->bytes, req->write.tries);

	if (!err && kvblk_proofs[integrity].seal)
		err = kvblk_vectors_seal_in(integrity, &req->mem.bv[1], req->bytes, &req->src,
					    kvblk_header_crcs(req->header));
	else if (!err)
		err = kvblk_vectors_copy(&req->mem.bv[1], 0, req->bytes, &req->src, true);
	/* now, because these checksums are of the plaintext */
	if (!err && kvblk_proofs[integrity].tags && req->crcs &&
	    !kvblk_proof_open(KVBLK_INTEGRITY_PRODUCER, req->mem.bv, kvblk_mem_payload(&req->mem),
			      req->crcs))
		err = -EBADMSG;
	if (!err && req->device)
		kvblk_count(req->pool, KVBLK_C_DEVICE_READ_BYTES, req->bytes);
	return err;
}

/* Takes page faults before pinning, or else a pager could hold up pinned device memory. */
static int put_map(struct kvblk_req *req)
{
	int err = kvblk_mem_map(&req->mem, &req->src, req->bytes, false, req->write.align);

	if (err != -EFAULT || !req->src.fault)
		return err;
	err = kvblk_src_fault_in(&req->src, req->bytes, false);
	if (!err)
		err = kvblk_mem_map(&req->mem, &req->src, req->bytes, false, req->write.align);
	/* fall back to a copy */
	return err == -EFAULT ? 0 : err;
}

/* Pins the caller's memory, or copies it to kernel memory. */
static int put_pin(struct kvblk_req *req, u32 policy)
{
	phys_addr_t addr;
	int err;

	/* a cancel may assume kernel memory of a retried put, so do not map the ring's */
	if (req->pool->flags & KVBLK_POOL_STRICT || req->write.stable || kvblk_req_encrypted(req) ||
	    (req->write.tries && req->cmd) ||
	    !kvblk_src_fits(&req->src, req->bytes, req->write.align) ||
	    (put_bounces(req, policy) && kvblk_req_known_device(req, &addr))) {
		req->device = kvblk_src_device(&req->src, false, &addr);
		return put_copy_in(req, policy);
	}
	err = put_map(req);
	if (err)
		return err;
	if (req->mem.p2p) {
		kvblk_req_saw_device(req);
		if (!put_bounces(req, policy) && !put_reachable(req))
			req->write.no_p2p = true;
		if (put_bounces(req, policy))
			kvblk_req_mem_drop(req);
	}
	return req->mem.direct ? 0 : put_copy_in(req, policy);
}

/* Copies the payload into req->block, NULL if DRAM has no space. Returns 0, -EINTR or -EFAULT. */
static int put_fill(struct kvblk_req *req)
{
	struct kvblk_dram_block *obj;
	struct kvblk_rec rec = put_rec(req);
	bool fault = req->src.fault;
	int err;

	/* before DRAM is allocated, because a pager may take any time */
	if (fault && kvblk_src_fault_in(&req->src, req->bytes, false))
		return -EINTR;
	err = kvblk_req_dram_block(req, req->bytes);
	/* do not wait for memory here: the write to a member does if it must */
	req->wants_memory = 0;
	if (err)
		return 0;
	obj = req->block;
	obj->chain = req->write.chain;
	obj->continues = req->write.continues;
	obj->goes_on = req->write.hints & KVBLK_HINT_CONTINUES;
	obj->needed = req->write.hints & KVBLK_HINT_MISSED;
	obj->offer_parent = req->write.chain ? req->write.offer_parent : req->write.parent.lo;
	rec.crcs = req->crcs;
	/* the bytes may stay in DRAM for hours before a member has them */
	rec.integrity = kvblk_proof_choose(put_policy(req), req->crcs, true);
	req->src.fault = false;
	/* without memory for checksums, write the block to a member */
	if (!kvblk_dram_block_describe(obj, &rec))
		err = -ENOMEM;
	else if (kvblk_proofs[rec.integrity].seal)
		err = kvblk_vectors_seal_in(rec.integrity, &obj->bv[1], req->bytes, &req->src,
					    (__le32 *)obj->rec.crcs);
	else
		err = kvblk_vectors_copy(&obj->bv[1], 0, req->bytes, &req->src, true);
	req->src.fault = fault;
	if (err)
		kvblk_req_mem_drop(req);
	/* pages evicted again after the page fault are copied on the way to a member */
	return err == -ENOMEM || (err == -EFAULT && fault) ? 0 : err;
}

/* Returns whether DRAM may keep blocks: ask before kvblk_put_stays() or kvblk_put_copies(). */
static bool dram_takes(const struct kvblk_req *req)
{
	return READ_ONCE(req->pool->tun.dram_bytes);
}

static int put_memory(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	u32 policy = put_policy(req);
	struct kvblk_align align = kvblk_pool_align(pool);
	int err;

	/* kept during a wait for space: reuse it unless what determines it has changed */
	if (req->header && !req->write.sealed && req->write.align.both == align.both &&
	    req->write.stable == READ_ONCE(pool->stable_writes) &&
	    req->integrity == put_integrity(req, policy) &&
	    !(req->mem.p2p && put_bounces(req, policy)))
		return 0;
	if (req->header || req->held)
		kvblk_req_buffers_drop(req);
	/* a pager may take any time */
	if (req->src.fault)
		kvblk_req_pass(req);
	req->write.align = align;
	req->write.stable = READ_ONCE(pool->stable_writes);
	req->write.sealed = false;
	err = kvblk_req_header_alloc(req, req->bytes);
	if (!err && dram_takes(req) && kvblk_put_copies(req))
		err = put_fill(req);
	if (!err && !req->block)
		err = put_pin(req, policy);
	if (err) {
		/* or else the next call would take the header for that of a prepared put */
		kvblk_req_buffers_drop(req);
		return err;
	}
	/* without known ones, checksums are computed for the write */
	req->integrity = put_integrity(req, policy);
	kvblk_record_crcs(req->header, req->bytes, req->integrity,
			  req->block ? req->block->rec.crcs : req->crcs);
	return 0;
}

/* Encrypts the payload for the reservation. Returns 0, -ENOKEY, -ENOMEM or -EIO. */
static noinline int put_encrypt(struct kvblk_req *req)
{
	const struct kvblk_rec rec = put_rec(req);
	struct kvblk_cipher *cipher;
	int err;

	cipher = kvblk_tenant_cipher(req->pool, req->tenant, rec.activation, rec.key_epoch);
	err = PTR_ERR_OR_ZERO(cipher);
	if (!err) {
		/* even after an error, because some of the payload may be encrypted */
		req->write.sealed = true;
		err = kvblk_cipher_seal(cipher, &rec, 0, req->mem.bv, kvblk_mem_payload(&req->mem),
					kvblk_header_tags(req->header));
		kvblk_cipher_put(cipher);
	}
	/* errnos of the crypto layer mean something else to callers, as -ENOENT */
	return err && err != -ENOKEY && err != -ENOMEM ? -EIO : err;
}

static void put_submit(struct kvblk_queued_io *queued)
{
	struct kvblk_req *req = container_of(queued, struct kvblk_req, media.queued);
	struct kvblk_io *io = &req->media.io;

	io->ioprio = queued->ioprio;
	if (!READ_ONCE(req->canceled)) {
		const struct kvblk_rec rec = put_rec(req);

		/* REQ_SYNC, as O_DIRECT: writeback throttling (wbt) delays background writes */
		kvblk_record_write(io, REQ_SYNC, &req->media.resv, &rec, req->header, &req->mem,
				   !req->write.summed);
	}
	kvblk_io_end(io);
}

static void put_write(struct kvblk_req *req)
{
	struct kvblk_reservation *resv = &req->media.resv;
	struct kvblk_queued_io *queued = &req->media.queued;
	/* copies have been sealed, but in DRAM not if the policy leaves that to producers */
	bool seals = kvblk_proofs[req->integrity].seal &&
		     (req->mem.direct || (req->block && !req->block->rec.crcs));

	req->write.write_errors = atomic_read(&resv->member->flash.write_errors);
	req->media.durable = kvblk_reservation_durable(resv, req->integrity, put_lasts(req));
	/* if the put may be queued, its task computes checksums, not the throttle's work */
	req->write.summed = !seals || kvblk_put_window(resv->member) != U64_MAX ||
			    kvblk_flash_shares(&resv->member->flash, req->account);
	if (req->write.summed && seals)
		kvblk_mem_seal(&req->mem, req->integrity, kvblk_header_crcs(req->header));
	kvblk_media_submit(req, &resv->member->flash);
	queued->account = req->account;
	queued->bytes = (u64)resv->units << KVBLK_UNIT_SHIFT;
	queued->given_up = &req->canceled;
	queued->submit = put_submit;
	kvblk_throttle_enter(queued, resv->member);
}

static bool put_suits(void *what, struct kvblk_member *member)
{
	struct kvblk_req *req = what;

	if (member->flash.slot == req->write.avoid ||
	    (req->mem.p2p && kvblk_p2p_route(req, &member->flash)))
		return false;
	/* a retried put does not wait again */
	if (req->write.tries || !kvblk_throttle_full(member))
		return true;
	req->throttled = true;
	return false;
}

static enum put_step put_exists(struct kvblk_req *req, const struct kvblk_slot *slot)
{
	req->result.value_len = slot->len;
	if (slot->len != req->bytes)
		req->result.flags |= KVBLK_RES_LEN_DIFFERS;
	kvblk_block_touch(req->pool, req->id, slot);
	kvblk_count(req->pool, KVBLK_C_PUT_EXISTS, 1);
	kvblk_count(req->pool, KVBLK_C_PUT_EXISTS_BYTES, req->bytes);
	if (kvblk_slot_foreign(slot))
		kvblk_count(req->pool, KVBLK_C_FOREIGN_PUT_EXISTS, 1);
	return kvblk_req_over(req, -EEXIST);
}

static struct kvblk_put_case put_case(const struct kvblk_req *req, const struct kvblk_slot *old)
{
	bool found = old->state != KVBLK_SLOT_FREE;

	return (struct kvblk_put_case) {
		.state = old->state,
		.served = found && kvblk_slot_served(req->pool, old),
		.expired = found && kvblk_slot_expired(req->pool, old),
		.foreign = old->tenant != req->tenant,
		.in_dram = kvblk_slot_in_dram(old),
		.same_length = old->len == req->bytes,
		.durable = req->op.flags & KVBLK_OPF_DURABLE,
		.retried = req->write.tries,
		.older = req->write.older,
	};
}

static bool put_clears(const struct kvblk_req *req)
{
	return kvblk_put_clears(req->write.older, req->write.tries);
}

/* Returns whether the put runs in the issuing context, which must not wait. */
static bool put_inline(const struct kvblk_req *req)
{
	return req->cmd && !req->src.fault;
}

/* Returns STEP_KEEP if no older block can come back after this put, except for the one in @old. */
static noinline enum put_step put_older(struct kvblk_req *req, const struct kvblk_slot *old)
{
	struct kvblk_pool *pool = req->pool;
	int err;

	/* restoring members may still bring older records back */
	if (atomic_read(&pool->restoring))
		return STEP_WAIT;
	if (kvblk_pool_unsure(pool))
		return kvblk_req_over(req, -EIO);
	if (old->state != KVBLK_SLOT_FREE)
		return old->state == KVBLK_SLOT_MOVING || put_inline(req) ||
		       kvblk_slot_kills_full(pool, old) ? STEP_WAIT : STEP_KEEP;
	if (req->write.older == KVBLK_OLDER_MUST && !req->write.cleared)
		return kvblk_req_over(req, -ENOENT);
	err = kvblk_kill_barrier(pool, req->id);
	if (err)
		return err == 1 ? STEP_WAIT : kvblk_req_over(req, -EIO);
	return STEP_KEEP;
}

/* Returns whether the put may not write, and is complete. */
static bool put_refused(struct kvblk_req *req)
{
	if (kvblk_pool_too_long(req->pool, kvblk_req_encrypted(req), req->bytes))
		return kvblk_req_over(req, -EFBIG);
	if (kvblk_req_late(req))
		return kvblk_req_expire(req);
	if (kvblk_req_crowded(req))
		return kvblk_req_over(req, -ENOMEM);
	return false;
}

/* Checks whether the put may write. @replaces: in place of the same block in @old. */
static enum put_step put_check(struct kvblk_req *req, const struct kvblk_slot *old, bool replaces)
{
	enum put_step step = STEP_KEEP;

	req->write.replaces = replaces && old->state == KVBLK_SLOT_LIVE;
	if (put_refused(req))
		return STEP_DONE;
	if (put_clears(req))
		step = put_older(req, old);
	if (step != STEP_KEEP || old->state == KVBLK_SLOT_FREE)
		return step;
	/* a block that is present was admitted before */
	return req->write.replaces ? STEP_FETCH : STEP_ADMIT;
}

/* Begins the media half unless it has begun. Returns false if the pool is going away. */
static __always_inline bool put_begin(struct kvblk_req *req)
{
	return req->media.begun || kvblk_media_begin(req);
}

/* Flushes a block that only a volatile cache may have, or writes it again if no flush helps. */
static enum put_step put_flush(struct kvblk_req *req, const struct kvblk_slot *slot)
{
	struct kvblk_media *media = &req->media;
	/* a retried put continues in its task */
	bool waits = put_inline(req) && !req->write.tries;
	enum kvblk_safety safety;

	if (kvblk_req_late(req))
		return kvblk_req_expire(req);
	/* a foreign block may be in a volatile cache, which this node cannot flush */
	if (kvblk_slot_foreign(slot))
		return put_check(req, slot, true);
	media->seg = kvblk_segment_get(req->pool, slot, &media->member, &media->gen);
	/* the member is being removed, which may take long */
	if (!media->seg)
		return slot->state == KVBLK_SLOT_MOVING ? STEP_WAIT : STEP_LOOK;
	safety = kvblk_segment_safety(media->member, media->seg, slot->off);
	if (safety == KVBLK_CACHED && !waits && !kvblk_req_crowded(req)) {
		/* memory kept while the put waited for space */
		kvblk_req_buffers_drop(req);
		req->slot = *slot;
		kvblk_media_submit(req, &media->member->flash);
		kvblk_io_submit(&media->io, REQ_OP_WRITE | REQ_SYNC | REQ_IDLE | REQ_PREFLUSH,
				0, NULL, 0);
		kvblk_io_end(&media->io);
		return STEP_INFLIGHT;
	}
	kvblk_segment_put(media->member, media->seg);
	media->seg = NULL;
	switch (safety) {
	case KVBLK_SAFE:
		return put_exists(req, slot);
	case KVBLK_CACHED:
		return waits ? STEP_WAIT : kvblk_req_over(req, -ENOMEM);
	default:
		return slot->state == KVBLK_SLOT_MOVING ? STEP_WAIT : put_check(req, slot, true);
	}
}

static int put_over(struct kvblk_req *req, int res)
{
	trace_kvblk_put(req->pool->name, req->id.lo, req->bytes, res, req->result.flags,
			req->start);
	return kvblk_req_over(req, res);
}

/* Completes a put after its flush. @reported: the put was detached and reported. */
static noinline int put_flushed(struct kvblk_req *req, bool reported)
{
	struct kvblk_media *media = &req->media;
	struct kvblk_member *member = media->member;
	/* another write may have failed and lost cached records of the segment */
	bool failed = media->io.status ||
		      kvblk_segment_safety(member, media->seg, req->slot.off) == KVBLK_DOUBTFUL;

	if (media->io.status)
		kvblk_flash_error(&member->flash, KVBLK_ERROR_WRITE, media->seg - member->log.segs);
	if (!failed)
		put_exists(req, &req->slot);
	kvblk_media_end(req);
	if (!failed)
		return 1;
	if (!reported)
		kvblk_count(req->pool, KVBLK_C_PUT_ERRORS, 1);
	return put_over(req, -EIO);
}

/* Removes the older block in @old, and looks up again until none is left, nor an invalidation. */
static noinline enum put_step put_clear(struct kvblk_req *req, const struct kvblk_slot *old)
{
	struct kvblk_pool *pool = req->pool;

	/* after page faults it has not begun */
	if (!put_begin(req))
		return kvblk_req_over(req, -ENODEV);
	if (old->state == KVBLK_SLOT_FREE)
		return kvblk_kill_barrier(pool, req->id) ? STEP_LOOK : STEP_ENTER;
	/* before the removal, or else the put fails and neither block is left */
	if (percpu_ref_is_dying(&pool->users))
		return kvblk_req_over(req, -ENODEV);
	req->write.cleared |= kvblk_entry_replace(pool, req->id, old, NULL);
	return STEP_LOOK;
}

static noinline enum put_step put_judged(struct kvblk_req *req, struct kvblk_slot *old)
{
	const struct kvblk_put_case put = put_case(req, old);
	enum kvblk_put_verdict verdict = kvblk_put_judge(&put);
	struct kvblk_pool *pool = req->pool;

	switch (verdict) {
	case KVBLK_PUT_EXPIRE:
		if (!kvblk_entry_expire(pool, req->id, old))
			return STEP_LOOK;
		old->state = KVBLK_SLOT_FREE;
		fallthrough;
	case KVBLK_PUT_WRITE:
	case KVBLK_PUT_TAKE_OVER:
	case KVBLK_PUT_REPLACE:
		/* the owner's record would come back */
		if (old->state != KVBLK_SLOT_FREE && put_clears(req) && kvblk_slot_foreign(old))
			return kvblk_req_over(req, -EREMOTE);
		return put_check(req, old, verdict == KVBLK_PUT_TAKE_OVER);
	case KVBLK_PUT_DEMOTE:
		if (put_refused(req))
			return STEP_DONE;
		kvblk_dram_flush(pool, req->id, old);
		return STEP_WAIT;
	case KVBLK_PUT_FLUSH:
		return put_flush(req, old);
	case KVBLK_PUT_EXISTS:
		return put_exists(req, old);
	case KVBLK_PUT_BUSY:
		kvblk_count(pool, KVBLK_C_PUT_BUSY, 1);
		return kvblk_req_over(req, -EALREADY);
	case KVBLK_PUT_FAIL:
		return put_refused(req) ? STEP_DONE : kvblk_req_over(req, -EIO);
	case KVBLK_PUT_WAIT:
		break;
	}
	return STEP_WAIT;
}

/*
 * Looks up the entry, into @old, and decides whether to write: in place of @old unless FREE. Begins
 * the media half, or else the index could be freed.
 */
static enum put_step put_look(struct kvblk_req *req, struct kvblk_slot *old)
{
	struct kvblk_pool *pool = req->pool;

	if (!put_begin(req))
		return kvblk_req_over(req, -ENODEV);
	/* even if the block is present, because without the key no get returns it */
	if (kvblk_req_encrypted(req) && kvblk_tenant_locked(pool, req->tenant))
		return kvblk_req_over(req, -ENOKEY);
	req->throttled = false;
	req->write.replaces = false;
	req->space_seq = atomic_read(&pool->space_seq);
	if (kvblk_index_find(&pool->index, req->id, old))
		return put_judged(req, old);
	/* KVBLK_PUT_WRITE, as for most puts */
	old->state = KVBLK_SLOT_FREE;
	if (put_refused(req))
		return STEP_DONE;
	return put_clears(req) ? put_older(req, old) : STEP_KEEP;
}

static enum put_step put_admit(struct kvblk_req *req)
{
	if (kvblk_put_admit(req))
		return STEP_FETCH;
	kvblk_count(req->pool, KVBLK_C_PUT_DECLINED, 1);
	return kvblk_req_over(req, -ENOBUFS);
}

static noinline int put_tag(struct kvblk_req *req)
{
	struct kvblk_pool *pool __free(kvblk_pool_leave) = NULL;

	if (kvblk_index_keeps_tags(&req->pool->index))
		return 0;
	/* the first tag allocates memory for all entries, which takes as long as a page fault */
	req->wants_fault = !req->src.fault;
	if (req->wants_fault)
		return -EAGAIN;
	pool = kvblk_pool_enter(req->pool);
	return pool ? kvblk_index_keep_tags(&pool->index) : -ENODEV;
}

/* Returns the step if memory cannot be prepared: a wait, perhaps for a page fault, or the end. */
static noinline enum put_step put_unfetched(struct kvblk_req *req, int err)
{
	bool fault = err == -EFAULT && !req->src.fault;

	req->wants_fault |= fault;
	if (err == -EAGAIN || fault)
		return STEP_WAIT;
	/* a page fault ended because the task is killed */
	return kvblk_req_over(req, err == -EINTR ? -ECANCELED : err);
}

static enum put_step put_fetch(struct kvblk_req *req)
{
	int err = req->write.caller_tag ? put_tag(req) : 0;

	if (!err)
		err = put_memory(req);
	if (err)
		return put_unfetched(req, err);
	return put_clears(req) ? STEP_CLEAR : STEP_ENTER;
}

static void put_let_go(struct kvblk_req *req)
{
	if (req->write.old_seg)
		kvblk_segment_put(req->write.old_member, req->write.old_seg);
	req->write.old_seg = NULL;
}

/* Takes over the entry @old. Returns false if the entry has changed. */
static noinline bool put_take(struct kvblk_req *req, const struct kvblk_slot *old)
{
	struct kvblk_write *write = &req->write;
	u64 gen;

	write->old = *old;
	write->old.state = KVBLK_SLOT_MOVING;
	/* while the segment is held, its place cannot be reused for another record */
	if (write->replaces)
		write->old_seg = kvblk_segment_get(req->pool, old, &write->old_member, &gen);
	write->replaces = write->old_seg;
	/* being written, or on a member that is being removed: replace the entry now */
	if (!write->replaces)
		return kvblk_entry_replace(req->pool, req->id, old, &req->slot);
	if (kvblk_index_replace(&req->pool->index, req->id, old, &write->old))
		return true;
	put_let_go(req);
	return false;
}

static enum put_step put_full(struct kvblk_req *req)
{
	/* put_finish() counts a retried put as an error */
	if (!req->write.tries)
		kvblk_count(req->pool, KVBLK_C_PUT_NOSPACE, 1);
	return kvblk_req_over(req, -ENOSPC);
}

/* Returns the step after a reservation failed with @err. */
static noinline enum put_step put_unreserved(struct kvblk_req *req, int err)
{
	if (err == -ENOSPC && req->throttled)
		err = -EAGAIN;
	/* members that reach the memory may get space: wait for that, but only once */
	if (req->mem.p2p && (err != -EAGAIN || req->waiting)) {
		req->write.no_p2p = true;
		return STEP_LOOK;
	}
	/* other puts would not find space either: smaller puts look again within a step */
	if (err == -EAGAIN && req->bytes <= SZ_4M)
		req->woken = false;
	return err == -EAGAIN ? STEP_WAIT : put_full(req);
}

static noinline enum put_step put_over_quota(struct kvblk_req *req)
{
	this_cpu_inc(req->account->counters->over_quota);
	return kvblk_req_over(req, -EDQUOT);
}

/* Writes in reserved space, with an entry in place of @old or (FREE) a new one. */
static enum put_step put_reserve(struct kvblk_req *req, const struct kvblk_slot *old)
{
	bool taken = old->state != KVBLK_SLOT_FREE;
	struct kvblk_reservation *resv = &req->media.resv;
	struct kvblk_pool *pool = req->pool;
	int err;

	/* the old record could not be invalidated, and might come back after a restart */
	if (taken && kvblk_slot_kills_full(pool, old))
		return kvblk_slot_served(pool, old) ? STEP_WAIT : put_full(req);
	if (kvblk_account_reserve(pool, req->account, req->bytes, &req->write.quota))
		return put_over_quota(req);
	err = kvblk_pool_reserve(pool, req->tenant, req->bytes, put_suits, req, resv);
	if (err)
		return put_unreserved(req, err);
	if (req->mem.p2p && kvblk_p2p_route(req, &resv->member->flash)) {
		kvblk_reservation_release(resv, NULL);
		req->write.no_p2p = true;
		return STEP_LOOK;
	}
	err = kvblk_req_encrypted(req) ? put_encrypt(req) : 0;
	if (err) {
		kvblk_reservation_release(resv, NULL);
		return kvblk_req_over(req, err);
	}
	req->media.stats = resv->member->flash.stats;
	req->slot = (struct kvblk_slot) {
		.len = req->bytes,
		.tenant = req->tenant,
		.state = KVBLK_SLOT_WRITING,
		.prio = req->op.priority,
		.expiry = req->expiry,
		.caller_tag = req->write.caller_tag,
	};
	kvblk_reservation_slot(resv, &req->slot);
	if (taken)
		err = put_take(req, old) ? 0 : -EEXIST;
	else
		/* an evicted entry is of no interest */
		err = kvblk_entry_insert(pool, req->id, &req->slot, &req->write.old);
	if (!err) {
		put_write(req);
		return STEP_INFLIGHT;
	}
	kvblk_reservation_release(resv, NULL);
	return err == -EEXIST ? STEP_LOOK : put_full(req);
}

static enum put_step put_enter(struct kvblk_req *req, const struct kvblk_slot *old)
{
	return put_begin(req) ? put_reserve(req, old) : kvblk_req_over(req, -ENODEV);
}

static int put_done(struct kvblk_req *req)
{
	req->result.value_len = req->bytes;
	kvblk_count_at(req->media.stats, KVBLK_C_PUTS, 1);
	kvblk_count_at(req->media.stats, KVBLK_C_PUT_BYTES, req->bytes);
	this_cpu_inc(req->account->counters->puts);
	this_cpu_add(req->account->counters->put_bytes, req->bytes);
	kvblk_req_count_way(req, KVBLK_C_PUT_DIRECT);
	kvblk_hist_add_at(req->pool, req->media.stats, KVBLK_H_PUT, req->bytes, req->start);
	return req->bytes;
}

static noinline enum put_step put_keep(struct kvblk_req *req)
{
	struct kvblk_slot slot;
	int err;

	/* if the policy was asked already, a member must take the block */
	if (req->write.asked || !kvblk_put_stays(req))
		return STEP_ADMIT;
	err = req->write.caller_tag ? put_tag(req) : 0;
	if (err)
		return put_unfetched(req, err);
	kvblk_req_buffers_drop(req);
	if (!req->write.chain)
		req->write.continues = req->write.parent.lo &&
				       kvblk_block_present(req->pool, req->write.parent,
							   req->tenant, &slot);
	err = put_fill(req);
	if (err)
		return put_unfetched(req, err);
	if (!req->block)
		return STEP_ADMIT;
	if (!put_begin(req))
		return kvblk_req_over(req, -ENODEV);
	/* for kvblk_dram_block_enter() */
	refcount_inc(&req->block->refs);
	err = kvblk_dram_block_enter(req->pool, req->block);
	if (!err && !req->write.chain)
		kvblk_duel_touch(&req->pool->duel, req->id);
	kvblk_req_mem_drop(req);
	kvblk_media_end(req);
	/* the write to a member meets any other error, too */
	if (err)
		return err == -EEXIST ? STEP_LOOK : STEP_ADMIT;
	req->media.stats = &req->pool->stats->own;
	req->result.flags |= KVBLK_RES_MEMORY;
	kvblk_count(req->pool, KVBLK_C_DRAM_PUTS, 1);
	return put_over(req, put_done(req));
}

static int put_try(struct kvblk_req *req)
{
	struct kvblk_slot old;
	enum put_step step;

	do {
		step = put_look(req, &old);
		/* a pager may take any time, and the pool's end waits for media halves */
		if (step != STEP_INFLIGHT && req->src.fault)
			kvblk_media_end(req);
		if (step == STEP_KEEP)
			step = dram_takes(req) ? put_keep(req) : STEP_ADMIT;
		if (step == STEP_ADMIT)
			step = put_admit(req);
		if (step == STEP_FETCH)
			step = put_fetch(req);
		if (step == STEP_CLEAR)
			step = put_clear(req, &old);
		if (step == STEP_ENTER)
			step = put_enter(req, &old);
		/*
		 * With its media half begun, the put would not see that the pool is going away,
		 * which waits for it. After the removal of an older block only a wait, which ends
		 * the media half, may fail the put.
		 */
		if (step == STEP_LOOK && !req->write.cleared &&
		    percpu_ref_is_dying(&req->pool->users))
			step = kvblk_req_over(req, -ENODEV);
	} while (step == STEP_LOOK);
	if (step != STEP_INFLIGHT) {
		kvblk_account_release(req->pool, req->account, &req->write.quota);
		kvblk_media_end(req);
	}
	return step;
}

static int put_start(struct kvblk_req *req)
{
	int ret = put_try(req);

	/* a waiting put holds no device memory, nor budget unless an older block was removed */
	if (ret == -EAGAIN && (req->mem.p2p || (req->cmd && req->held && !req->write.cleared)))
		kvblk_req_buffers_drop(req);
	return ret;
}

static bool put_ready(struct kvblk_req *req)
{
	struct kvblk_pool *pool __free(kvblk_pool_leave) = kvblk_pool_enter(req->pool);
	struct kvblk_put_case put;
	struct kvblk_slot slot;

	if (!pool)
		return true;
	if (!kvblk_index_find(&pool->index, req->id, &slot))
		return req->write.older == KVBLK_OLDER_STAYS ||
		       kvblk_kill_barrier(pool, req->id) != 1;
	put = put_case(req, &slot);
	return slot.state != KVBLK_SLOT_MOVING && !kvblk_put_undurable(&put);
}

static long put_wait(struct kvblk_req *req, long step)
{
	struct kvblk_pool *pool = req->pool;

	if (req->write.older != KVBLK_OLDER_STAYS && atomic_read(&pool->restoring))
		return kvblk_req_wait_restore(req, step);
	if (!put_ready(req))
		return wait_event_killable_timeout(pool->settle_wait, put_ready(req), step);
	return kvblk_req_wait_space(req, step);
}

static int put_give_up(struct kvblk_req *req)
{
	/* an older block cannot be invalidated or keeps moving */
	if (req->write.older != KVBLK_OLDER_STAYS && !put_ready(req))
		return -EIO;
	kvblk_count(req->pool, KVBLK_C_PUT_NOSPACE, 1);
	return -ENOSPC;
}

#define PUT_TRIES	3

/* Retries a write, without P2P or on another member. Returns 0: in flight; 1: complete; -EIO. */
static noinline int put_elsewhere(struct kvblk_req *req)
{
	struct kvblk_sigpipe sigpipe;
	int ret;

	if (req->write.tries++ == PUT_TRIES ||
	    (req->write.avoid && READ_ONCE(req->pool->nr_members) < 2))
		return -EIO;
	req->src.fault = false;
	kvblk_sigpipe_block(&sigpipe);
	ret = put_try(req);
	kvblk_sigpipe_restore(&sigpipe);
	if (!ret)
		return 0;
	req->wants_fault = false;
	req->wants_memory = 0;
	return ret == 1 && req->result.res != -ENOSPC ? 1 : -EIO;
}

/* Blames the P2P route or the member for the failed write. @again: the put may retry. */
static noinline void put_failed(struct kvblk_req *req, bool again)
{
	struct kvblk_reservation *resv = &req->media.resv;

	if (req->mem.p2p && again) {
		kvblk_p2p_failed(req, &resv->member->flash);
		kvblk_count(req->pool, KVBLK_C_DEVICE_FALLBACKS, 1);
		req->write.no_p2p = true;
		req->write.avoid = 0;
		return;
	}
	kvblk_flash_error(&resv->member->flash, KVBLK_ERROR_WRITE, resv->segment);
	req->write.avoid = resv->member->flash.slot;
}

static struct kvblk_slot put_live(const struct kvblk_req *req)
{
	struct kvblk_slot live = req->slot;

	live.state = KVBLK_SLOT_LIVE;
	return live;
}

/*
 * Publishes the new record in place of the one that the put replaces. Returns false if another put
 * owns the key by now.
 */
static noinline bool put_replace(struct kvblk_req *req)
{
	struct kvblk_slot live = put_live(req), victim;
	struct kvblk_pool *pool = req->pool;

	/* the older record's segment may have been reclaimed */
	return kvblk_entry_replace(pool, req->id, &req->write.old, &live) ||
	       !kvblk_entry_insert(pool, req->id, &live, &victim);
}

/* Has DRAM serve the published block, too. */
static noinline void put_came(struct kvblk_req *req)
{
	struct kvblk_slot live = put_live(req);

	req->coming = false;
	if (kvblk_dram_block_keep(req->pool, req->block, &live))
		kvblk_dram_block_queue(req->pool, req->block);
}

/* Invalidates the record. A concurrent delete finds the entry or the pending invalidation. */
static noinline void put_revert(struct kvblk_req *req)
{
	struct kvblk_slot live = req->write.old;
	struct kvblk_pool *pool = req->pool;

	live.state = KVBLK_SLOT_LIVE;
	if (req->write.replaces) {
		kvblk_kill_later(pool, req->id, &req->slot);
		kvblk_index_replace(&pool->index, req->id, &req->write.old, &live);
	} else if (!kvblk_entry_replace(pool, req->id, &req->slot, NULL)) {
		kvblk_kill_settle(pool, req->id, &req->slot);
	}
}

/* Returns whether another write's failure may have lost this durable record. */
static bool put_lossy(const struct kvblk_req *req)
{
	const struct kvblk_member *member = req->media.resv.member;

	return put_lasts(req) && !kvblk_fua(&member->flash) &&
	       kvblk_writes_failed(&member->flash, req->write.write_errors);
}

/* Ends the media half. Returns 0 if the block is published, -EIO, -ECANCELED or -EALREADY. */
static int put_settle(struct kvblk_req *req, bool again)
{
	struct kvblk_pool *pool = req->pool;
	int err = 0;

	if (req->media.io.status || put_lossy(req)) {
		put_failed(req, again);
		err = -EIO;
	} else if (READ_ONCE(req->canceled)) {
		err = -ECANCELED;
	} else if (!(req->write.replaces ? put_replace(req) :
		     kvblk_index_publish(&pool->index, req->id, &req->slot))) {
		/* another put took the key while this member was silent or being removed */
		kvblk_count(pool, KVBLK_C_PUT_BUSY, 1);
		err = -EALREADY;
	}
	/* after a failure the retry needs the DRAM block */
	if (req->coming && !err)
		put_came(req);
	if (err)
		put_revert(req);
	/* after a failed takeover the older record must stay valid, on missing members, too */
	if (!err || !req->write.replaces)
		kvblk_missing_note(pool, req->id);
	if (req->write.replaces) {
		put_let_go(req);
		wake_up_all(&pool->settle_wait);
	}
	kvblk_reservation_release(&req->media.resv, err ? NULL : req->header);
	kvblk_account_release(req->pool, req->account, &req->write.quota);
	kvblk_media_end(req);
	return err;
}

static int put_finish(struct kvblk_req *req, enum kvblk_by by)
{
	int err = -EIO;

	/* kvblk_rescue_work() has finished the put */
	if (!req->media.begun && !req->write.failed)
		return 1;
	req->write.failed = false;
	if (req->media.seg)
		return put_flushed(req, by == KVBLK_BY_NOBODY);
	if (req->media.begun)
		err = put_settle(req, by != KVBLK_BY_NOBODY);
	if (!err) {
		err = put_done(req);
	} else if (err == -EIO && by == KVBLK_BY_MEMBER) {
		req->write.failed = true;
		/* the task may never run, and can provide the payload again */
		if (req->mem.direct || req->block || req->write.sealed)
			kvblk_req_buffers_drop(req);
		return -EAGAIN;
	} else if (err == -EIO && by == KVBLK_BY_CALLER) {
		/* a detached put was reported and counted already */
		err = put_elsewhere(req);
		if (!err)
			return 0;
		if (err == 1)
			err = req->result.res;
		else
			kvblk_count(req->pool, KVBLK_C_PUT_ERRORS, 1);
	}
	return put_over(req, err);
}

const struct kvblk_op_type kvblk_op_put = {
	.flags = KVBLK_OPF_DURABLE,
	.mode = FMODE_WRITE,
	.reads = true,
	.start = put_start,
	.wait = put_wait,
	.give_up = put_give_up,
	.finish = put_finish,
};
