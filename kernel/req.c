// SPDX-License-Identifier: GPL-2.0
/*
 * One operation, from its parsed request to its result.
 *
 * The rules:
 * - A get reports success only after header and payload have been checked;
 *   whatever else it reports, the destination is zero or untouched.
 * - A put is found by nobody before its record is written, and owns its
 *   WRITING slot meanwhile: the slot carries the record's place, so a put
 *   whose slot was taken over (its member fell silent) notices.
 * - A delete removes the entry first, and is over when the record's header is
 *   overwritten durably.
 * - A record that was written but is not to be found is killed.
 */
#include <linux/slab.h>

#include "kvblk.h"
#include "trace.h"

/* How long a put waits for room, a delete for kills, a ring's operation for memory. */
#define WAIT_MS		10000

static bool req_late(const struct kvblk_req *req)
{
	return req->op.deadline_ns && ktime_get_ns() >= req->op.deadline_ns;
}

static bool slot_expired(const struct kvblk_pool *pool,
			 const struct kvblk_slot *slot)
{
	return slot->expiry && slot->expiry <= kvblk_now(pool);
}

static u64 file_limit(const struct kvblk_req *req)
{
	return READ_ONCE(req->pool->tun.queue_bytes);
}

/*
 * Operations that were detached still hold their memory, as long as their
 * device likes: a caller that cancels and submits in a loop is stopped here.
 */
static bool req_crowded(const struct kvblk_req *req)
{
	return atomic64_read(&req->owner->detached) > (s64)file_limit(req);
}

/* The member that a slot lies on answers. */
static bool slot_served(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	struct kvblk_member *member;
	bool ok;

	rcu_read_lock();
	member = kvblk_member_of(pool, slot->seg);
	ok = member && kvblk_member_ok(member);
	rcu_read_unlock();
	return ok;
}

/* It is a block of his; whether its member answers is another question. */
static bool slot_listed(struct kvblk_pool *pool, u16 tenant,
			const struct kvblk_slot *slot)
{
	return slot->state != KVBLK_SLOT_WRITING && slot->tenant == tenant &&
	       !slot_expired(pool, slot);
}

bool kvblk_slot_present(struct kvblk_pool *pool, u16 tenant,
			const struct kvblk_slot *slot)
{
	return slot_listed(pool, tenant, slot) && slot_served(pool, slot);
}

bool kvblk_block_present(struct kvblk_pool *pool, struct kvblk_id id, u16 tenant,
			 struct kvblk_slot *slot)
{
	return kvblk_index_find(&pool->index, id, slot) &&
	       kvblk_slot_present(pool, tenant, slot);
}

/*
 * A request and a header of 4 KiB, page-aligned, as devices with such a boundary
 * want it. Having a constructor, objects of the cache are left alone by
 * init_on_alloc: what must be zero is made so here. The free pointer lies behind
 * the object, in what is left of the second page.
 */
struct req_object {
	u8 header[KVBLK_UNIT];
	struct kvblk_req req;
};

static_assert(sizeof(struct req_object) <= 2 * KVBLK_UNIT - sizeof(void *));

static struct kmem_cache *req_objects;

static void req_construct(void *object)
{
}

int kvblk_req_init(void)
{
	struct kmem_cache_args args = {
		.align = KVBLK_UNIT,
		.ctor = req_construct,
	};

	req_objects = kmem_cache_create("kvblk_req", sizeof(struct req_object),
					&args, SLAB_ACCOUNT);
	return req_objects ? 0 : -ENOMEM;
}

void kvblk_req_exit(void)
{
	kmem_cache_destroy(req_objects);
}

struct kvblk_req *kvblk_req_alloc(gfp_t gfp)
{
	struct req_object *object = kmem_cache_alloc(req_objects, gfp);

	if (!object)
		return NULL;
	/* room for short ones is written before it is read, and so is the key */
	memset(&object->req, 0, offsetof(struct kvblk_req, mem.few_bv));
	return &object->req;
}

static struct req_object *req_object(struct kvblk_req *req)
{
	return container_of(req, struct req_object, req);
}

/* What is in it is old: a put writes all of it, a get must not take it for read. */
static void *header_alloc(struct kvblk_req *req)
{
	u64 *header = (u64 *)req_object(req)->header;

	if (req->header_units > 1)
		header = (u64 *)__get_free_pages(GFP_KERNEL_ACCOUNT,
						 get_order(req->header_units <<
							   KVBLK_UNIT_SHIFT));
	if (header)
		*header = 0;
	return header;
}

static void header_free(struct kvblk_req *req)
{
	if (req->header && req->header_units > 1)
		free_pages((unsigned long)req->header,
			   get_order(req->header_units << KVBLK_UNIT_SHIFT));
	req->header = NULL;
}

/* Frees the payload's memory. */
static void mem_drop(struct kvblk_req *req)
{
	struct kvblk_file *file = req->owner;

	kvblk_mem_free(&req->mem);
	if (!req->held)
		return;
	atomic64_sub(req->held, &file->held);
	req->held = 0;
	WRITE_ONCE(file->held_moved, jiffies);
	if (wq_has_sleeper(&file->held_wait))
		wake_up_all(&file->held_wait);
	kvblk_file_put(file);
}

/*
 * Kernel memory for the payload. All that operations of rings take is bounded
 * for each file: -EAGAIN, with @wants_memory, unless nothing is held or it @must
 * be. A batch is bounded by itself, and must not wait: the caller may have to
 * reap its ring first.
 */
static int mem_alloc(struct kvblk_req *req, u32 bytes, bool must)
{
	struct kvblk_file *file = req->owner;
	u64 held = atomic64_add_return(bytes, &file->held);
	int err;

	if (req->cmd && !must && held != bytes && held > file_limit(req)) {
		atomic64_sub(bytes, &file->held);
		req->wants_memory = bytes;
		return -EAGAIN;
	}
	refcount_inc(&file->refs);
	req->held = bytes;
	err = kvblk_mem_alloc(&req->mem, bytes);
	if (err)
		mem_drop(req);
	return err;
}

u32 kvblk_req_detach(struct kvblk_req *req)
{
	u32 held = READ_ONCE(req->held);

	if (held)
		atomic64_add(held, &req->owner->detached);
	return held;
}

static void req_release(struct kvblk_req *req)
{
	if (req->seg)
		kvblk_segment_put(req->member, req->seg);
	req->seg = NULL;
}

static void bounce_end(struct kvblk_req *req)
{
	if (!req->bounce)
		return;
	kvblk_bounce_put(req->pool, req->bounce);
	req->bounce = NULL;
	/* it was only to say that the caller's memory is being written */
	req->mem.direct = false;
}

/* What few have. */
static noinline void req_trim_more(struct kvblk_req *req)
{
	bounce_end(req);
	kvblk_p2p_trial_end(req);
	kfree(req->crcs);
	req->crcs = NULL;
}

void kvblk_req_trim(struct kvblk_req *req)
{
	if (unlikely(req->device || req->crcs))
		req_trim_more(req);
	mem_drop(req);
	header_free(req);
	kvblk_parts_put(req->src.parts, req->src.nr);
	if (req->src.parts != &req->part)
		kvfree(req->src.parts);
	req->src.parts = NULL;
}

void kvblk_req_free(struct kvblk_req *req)
{
	kvblk_req_trim(req);
	kmem_cache_free(req_objects, req_object(req));
}

/* An operation that nobody waits for any more. */
static void req_work(struct work_struct *work)
{
	struct kvblk_req *req = container_of(work, struct kvblk_req, work);
	struct kvblk_pool *pool = req->pool;

	/* what is in flight still has it come again */
	if (!kvblk_req_finish(req, false))
		return;
	if (req->held)
		atomic64_sub(req->held, &req->owner->detached);
	if (req->cmd) {
		kvblk_uring_put(req);
		return;
	}
	kvblk_req_free(req);
	percpu_ref_put(&pool->users);
}

/*
 * ---- the gate ----
 *
 * Reads go before writes: while gets come, a member has no more than a window
 * of puts in flight, for a get waits behind all that a device has got. The
 * others wait here, where they cost gets nothing. One is always let through, so
 * there is always an I/O whose end lets the next ones in; when it does not end,
 * kvblk_member_watch() looks after them.
 */

#define GATE_TIME	HZ		/* gets come: there was one lately */
#define GATE_PATIENCE	HZ		/* for a put that was let through */
#define GATE_SCAN	(HZ / 10)	/* between two searches for canceled puts */

u64 kvblk_put_window(const struct kvblk_member *member)
{
	u64 window = READ_ONCE(member->pool->tun.put_window_bytes);

	return window && kvblk_member_ok(member) &&
	       time_before(jiffies, READ_ONCE(member->last_get) + GATE_TIME) ?
	       window : U64_MAX;
}

static void put_submit(struct kvblk_req *req)
{
	/* O_DIRECT's flags: writeback throttling is not for those who wait */
	if (!READ_ONCE(req->canceled))
		kvblk_io_submit(&req->io, REQ_OP_WRITE | REQ_SYNC | REQ_IDLE,
				kvblk_seg_pos(req->room.member, req->room.segment,
					      req->room.unit),
				req->mem.bv, req->mem.nr);
	kvblk_io_end(&req->io);
}

static bool gate_pass(struct kvblk_member *member, const struct kvblk_req *req,
		      u64 window)
{
	lockdep_assert_held(&member->gate_lock);
	if (!member->gate_bytes)
		member->gate_moved = jiffies;
	if (member->gate_bytes && (req->bytes > window ||
				   member->gate_bytes > window - req->bytes))
		return false;
	member->gate_bytes += req->bytes;
	return true;
}

/* Submits a put, now or in its turn. */
static void gate_enter(struct kvblk_req *req)
{
	struct kvblk_member *member = req->room.member;
	u64 window = kvblk_put_window(member);
	bool pass = true;

	/*
	 * Who is not counted is soon over, and others wait for none of them.
	 * Those that wait have room, which others need: not too many of them,
	 * the rest waits for the device.
	 */
	if (window != U64_MAX) {
		guard(spinlock_irqsave)(&member->gate_lock);
		if (member->gate_waiting <= READ_ONCE(req->pool->tun.queue_bytes)) {
			req->gated = true;
			pass = list_empty(&member->gate) &&
			       gate_pass(member, req, window);
		}
		if (!pass) {
			member->gate_waiting += req->bytes;
			list_add_tail(&req->link, &member->gate);
		}
	}
	if (pass)
		put_submit(req);
}

/* A put that was let through is over; any context. */
static void gate_leave(struct kvblk_req *req)
{
	struct kvblk_member *member = req->room.member;

	guard(spinlock_irqsave)(&member->gate_lock);
	member->gate_bytes -= req->bytes;
	member->gate_moved = jiffies;
	if (!list_empty(&member->gate))
		queue_work(member->pool->wq, &member->gate_work);
}

void kvblk_gate_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member,
						   gate_work);
	u64 window = kvblk_put_window(member);
	struct kvblk_req *req, *next;
	bool full = false, all;
	LIST_HEAD(go);

	scoped_guard(spinlock_irq, &member->gate_lock) {
		if (time_after(jiffies, member->gate_moved + GATE_PATIENCE))
			window = U64_MAX;
		all = time_after_eq(jiffies, member->gate_scanned + GATE_SCAN);
		if (all)
			member->gate_scanned = jiffies;
		list_for_each_entry_safe(req, next, &member->gate, link) {
			if (READ_ONCE(req->canceled)) {
				req->gated = false;
			} else if (full || !gate_pass(member, req, window)) {
				/* nobody overtakes it */
				full = true;
				if (!all)
					break;
				continue;
			}
			member->gate_waiting -= req->bytes;
			list_move_tail(&req->link, &go);
		}
	}
	list_for_each_entry_safe(req, next, &go, link) {
		list_del_init(&req->link);
		put_submit(req);
	}
}

/* All bios are over; any context. */
static void req_io_done(struct kvblk_io *io)
{
	struct kvblk_req *req = container_of(io, struct kvblk_req, io);
	struct kvblk_batch *batch = req->batch;
	unsigned long flags;

	if (req->gated)
		gate_leave(req);
	if (atomic_cmpxchg(&req->state, KVBLK_REQ_INFLIGHT, KVBLK_REQ_DONE) !=
	    KVBLK_REQ_INFLIGHT) {
		INIT_WORK(&req->work, req_work);
		queue_work(req->pool->wq, &req->work);
		return;
	}
	if (req->cmd) {
		kvblk_uring_landed(req);
		return;
	}
	/* the batch can't end before it has taken @req, under this lock */
	spin_lock_irqsave(&batch->wq.lock, flags);
	list_add_tail(&req->link, &batch->done);
	wake_up_locked(&batch->wq);
	spin_unlock_irqrestore(&batch->wq.lock, flags);
}

void kvblk_req_landed(struct kvblk_req *req)
{
	req_io_done(&req->io);
}

static void req_fly(struct kvblk_req *req, struct kvblk_member *member)
{
	kvblk_io_start(&req->io, member, req_io_done);
	/* whoever detaches it sees what memory it has */
	atomic_set_release(&req->state, KVBLK_REQ_INFLIGHT);
}

/* Whether its bytes went straight, for its result and the counters. */
static void count_way(struct kvblk_req *req)
{
	bool put = req->op.opcode == KVBLK_OP_PUT, direct = req->mem.direct;

	if (put)
		kvblk_count(req->pool, direct ? KVBLK_C_PUT_DIRECT : KVBLK_C_PUT_BOUNCED, 1);
	else
		kvblk_count(req->pool, direct ? KVBLK_C_GET_DIRECT : KVBLK_C_GET_BOUNCED, 1);
	req->result.flags |= direct ? KVBLK_RES_DIRECT : KVBLK_RES_BOUNCED;
	if (!req->device)
		return;
	kvblk_count(req->pool, direct ? KVBLK_C_DEVICE_DIRECT :
					KVBLK_C_DEVICE_BOUNCED, 1);
	if (put && !direct)
		req->result.flags |= KVBLK_RES_DEVICE_READ;
}

/*
 * A device's memory is behind it; @addr: where. Asked before all of it is pinned,
 * which takes longer than the instructions of a copy that comes of it.
 */
static bool req_known_device(struct kvblk_req *req, bool write, phys_addr_t *addr)
{
	return READ_ONCE(req->pool->device_seen) &&
	       kvblk_src_device(&req->src, write, addr);
}

/* It is mapped, and a device's: from now on it is worth asking. */
static void req_saw_device(struct kvblk_req *req)
{
	req->device = true;
	if (!READ_ONCE(req->pool->device_seen))
		WRITE_ONCE(req->pool->device_seen, true);
}

/* ---- get ---- */

static int get_miss(struct kvblk_req *req)
{
	kvblk_count(req->pool, KVBLK_C_GET_MISSES, 1);
	return kvblk_req_over(req, -ENOENT);
}

/* What a get of whole chunks reads, behind req->from. */
static u32 get_end(const struct kvblk_req *req)
{
	return min_t(u64, round_up((u64)req->op.offset + req->want,
				   1u << KVBLK_CHUNK_SHIFT), req->slot.len);
}

/* Memory and bios of a get whose entry and segment are at hand. */
static int get_submit(struct kvblk_req *req)
{
	u32 end = req->from + req->mem.bytes;
	u64 pos = kvblk_seg_pos(req->member, req->seg - req->member->segs,
				req->slot.off);
	u32 header = req->header_units << KVBLK_UNIT_SHIFT;
	unsigned long now = jiffies;
	struct blk_plug plug;

	WARN_ON_ONCE(end > req->slot.len);
	/* others of its batch are in flight: only when they are not */
	req->src.fault = false;
	bvec_set_virt(&req->mem.bv[0], req->header, header);
	if (READ_ONCE(req->member->last_get) != now)
		WRITE_ONCE(req->member->last_get, now);
	req_fly(req, req->member);
	req->io.p2p = req->mem.p2p;
	if (req->bounce) {
		/* header and first part become one request */
		blk_start_plug(&plug);
		kvblk_io_submit(&req->io, REQ_OP_READ, pos, req->mem.bv, 1);
		kvblk_bounce_submit(req->bounce, get_end(req));
		blk_finish_plug(&plug);
	} else if (!req->from) {
		kvblk_io_submit(&req->io, REQ_OP_READ, pos, req->mem.bv,
				req->mem.nr);
	} else {
		kvblk_io_submit(&req->io, REQ_OP_READ, pos, req->mem.bv, 1);
		kvblk_io_submit(&req->io, REQ_OP_READ, pos + header + req->from,
				req->mem.bv + 1, req->mem.nr - 1);
	}
	kvblk_io_end(&req->io);
	return 0;
}

/* Kernel memory for it: a chunk, if a device's is behind it, or for all of it. */
static int get_bounce(struct kvblk_req *req, bool device)
{
	if (device && !(req->op.flags & KVBLK_OPF_HARD_DEADLINE))
		req->bounce = kvblk_bounce_get(req);
	if (!req->bounce)
		return mem_alloc(req, get_end(req) - req->from, false);
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
	       !(READ_ONCE(req->seg->flags) & KVBLK_SEGF_UNPROVEN);
}

/* It goes to a device's memory, and not directly. */
static bool get_known_bounce(struct kvblk_req *req)
{
	phys_addr_t addr;

	if (!req_known_device(req, true, &addr))
		return false;
	return kvblk_p2p_bounces(addr, req->member) ||
	       (kvblk_must_check(req->pool, req->seg) && !req->crcs_addr);
}

static int get_start(struct kvblk_req *req)
{
	const u32 chunk = 1u << KVBLK_CHUNK_SHIFT;
	struct kvblk_pool *pool = req->pool;
	struct kvblk_op *op = &req->op;
	struct kvblk_align align = kvblk_pool_align(pool);
	u32 end, tries, len;
	phys_addr_t addr;
	int err;

	if (req_late(req)) {
		kvblk_count(pool, KVBLK_C_DEADLINES, 1);
		return kvblk_req_over(req, -ETIME);
	}
	if (req_crowded(req))
		return kvblk_req_over(req, -ENOMEM);

	/* a block that moves is found at its new place the next time */
	for (tries = 0; !req->seg; tries++) {
		if (tries == 4 ||
		    !kvblk_index_find(&pool->index, req->id, &req->slot) ||
		    !slot_listed(pool, req->tenant, &req->slot))
			return get_miss(req);
		req->seg = kvblk_segment_get(pool, &req->slot, &req->member,
					     &req->gen);
	}
	if (!kvblk_member_ok(req->member)) {
		req_release(req);
		return get_miss(req);
	}

	len = req->slot.len;
	req->result.value_len = len;
	if (op->flags & KVBLK_OPF_PARTIAL) {
		if (op->offset >= len) {
			err = -ERANGE;
			goto out;
		}
		req->want = min3(len - op->offset, op->length ?: req->bytes,
				 req->bytes);
	} else {
		if (req->bytes < len) {
			err = -EMSGSIZE;
			goto out;
		}
		req->want = len;
	}
	/* whole chunks are read, for they carry the checksums */
	req->from = round_down(op->offset, chunk);
	end = get_end(req);
	if (unlikely(req->crcs_addr) &&
	    kvblk_nr_chunks(end - req->from) * sizeof(__le32) > req->crcs_room) {
		err = -EMSGSIZE;
		goto out;
	}

	req->header_units = kvblk_header_units(len);
	req->header = header_alloc(req);
	if (!req->header) {
		err = -ENOMEM;
		goto out;
	}
	if (!(pool->flags & KVBLK_POOL_STRICT) &&
	    !(op->flags & KVBLK_OPF_HARD_DEADLINE) &&
	    req->from == op->offset && end == op->offset + req->want &&
	    kvblk_src_fits(&req->src, req->want, align) && !get_known_bounce(req))
		/* no fault: a segment is held */
		err = kvblk_mem_map(&req->mem, &req->src, req->want, true, align);
	else
		err = -EREMOTEIO;
	if (!err && req->mem.p2p) {
		req_saw_device(req);
		err = kvblk_must_check(pool, req->seg) && !get_caller_checks(req) ?
		      -EREMOTEIO : kvblk_p2p_route(req, req->member);
		if (err)
			mem_drop(req);
	}
	if (err == -EREMOTEIO || (err == -EFAULT && req->src.fault)) {
		req->device |= kvblk_src_device(&req->src, true, &addr);
		err = get_bounce(req, req->device);
	}
	if (!err)
		return get_submit(req);
	if (err == -EFAULT || err == -EAGAIN) {
		req->wants_fault = err == -EFAULT;
		header_free(req);
		req_release(req);
		return -EAGAIN;
	}
out:
	req_release(req);
	return kvblk_req_over(req, err);
}

/* Drops the entry, if it is still what it was. */
static bool get_drop(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	struct kvblk_slot now;

	return !kvblk_kills_full(req->member) &&
	       kvblk_index_find(&pool->index, req->id, &now) &&
	       now.state == KVBLK_SLOT_LIVE && now.seg == req->slot.seg &&
	       now.off == req->slot.off && now.gen == req->slot.gen &&
	       kvblk_entry_replace(pool, req->id, &now, NULL);
}

/*
 * What was read is not the block. When the entry is still what it was, that is
 * damage: tell, and drop it. Else it was deleted or moved meanwhile. A @producer
 * whose checksums are wrong must not make an operator look for broken flash.
 */
static void get_damaged(struct kvblk_req *req, bool producer)
{
	struct kvblk_pool *pool = req->pool;

	if (!get_drop(req))
		return;
	if (producer) {
		kvblk_count(pool, KVBLK_C_PRODUCER_MISMATCHES, 1);
		return;
	}
	kvblk_member_error(req->member, KVBLK_ERROR_CHECKSUM,
			   req->slot.seg - req->member->seg_base);
}

/* The header: 0, with @rec, or -ENOENT. */
static int get_check_header(struct kvblk_req *req, struct kvblk_rec *rec)
{
	struct kvblk_place place = kvblk_place(req->member,
					       req->seg - req->member->segs,
					       req->gen, req->slot.off);

	if (kvblk_record_decode(req->header, req->header_units << KVBLK_UNIT_SHIFT,
				&place, NULL, rec) != KVBLK_DEC_RECORD ||
	    rec->id.hi != req->id.hi || rec->id.lo != req->id.lo ||
	    rec->length != req->slot.len) {
		get_damaged(req, false);
		return -ENOENT;
	}
	/* another key with the same id: a miss, and nothing is wrong */
	if (rec->tenant != req->tenant || rec->key_len != req->op.key_len ||
	    memcmp(rec->key, req->key, rec->key_len))
		return -ENOENT;
	if ((req->op.flags & KVBLK_OPF_LAYOUT) &&
	    rec->layout_tag != req->op.layout_tag)
		return -ENOENT;
	if (rec->expiry && rec->expiry <= kvblk_now(req->pool))
		return -ENOENT;
	req->result.layout_tag = rec->layout_tag;
	req->result.caller_tag = rec->caller_tag;
	req->integrity = rec->integrity;
	return 0;
}

/* Is the payload to be checked? 0, 1, -ENOENT: it can't be and must be. */
static int get_must_check(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;

	if (!kvblk_must_check(pool, req->seg))
		return READ_ONCE(pool->tun.integrity) != KVBLK_CHECK_HEADER &&
		       req->integrity != KVBLK_INTEGRITY_NONE && !req->mem.p2p;
	if (req->integrity != KVBLK_INTEGRITY_NONE)
		return !get_caller_checks(req);
	/* so that it can be put anew */
	get_drop(req);
	return -ENOENT;
}

static const __le32 *get_crcs(const struct kvblk_req *req)
{
	return req->header + KVBLK_HDR_CRCS +
	       (req->from >> KVBLK_CHUNK_SHIFT) * sizeof(__le32);
}

/* 0, -ENOENT, or -EAGAIN: to be read again through kernel memory. */
static int get_check(struct kvblk_req *req)
{
	struct kvblk_rec rec;
	int err = get_check_header(req, &rec);

	if (!err)
		err = get_must_check(req);
	if (err <= 0)
		return err;
	/* a device's: the policy has changed meanwhile */
	if (req->mem.p2p) {
		kvblk_p2p_trial_end(req);
		return -EAGAIN;
	}
	if (kvblk_mem_check(&req->mem, get_crcs(req)))
		return 0;
	if (req->mem.direct) {
		/* the caller may have scribbled: decide by a copy of our own */
		kvblk_count(req->pool, KVBLK_C_REREADS, 1);
		return -EAGAIN;
	}
	get_damaged(req, req->integrity == KVBLK_INTEGRITY_PRODUCER);
	return -ENOENT;
}

/* Bounced and checked: to the caller. It holds no segment while it does. */
static int get_copy_out(struct kvblk_req *req)
{
	int err;

	req_release(req);
	err = kvblk_mem_copy_out(&req->mem, req->op.offset - req->from, req->want,
				 &req->src);
	req->wants_fault = err == -EFAULT && !req->src.fault;
	if (req->wants_fault)
		return -EAGAIN;
	if (err) {
		/* what was copied before goes */
		kvblk_src_zero(&req->src, req->want);
	}
	return err;
}

/* What the caller wants of the block's checksums, last. */
static int get_crcs_out(struct kvblk_req *req)
{
	u32 bytes;

	req->wants_fault = false;
	if (!req->crcs_addr || req->integrity == KVBLK_INTEGRITY_NONE)
		return 0;
	bytes = kvblk_nr_chunks(get_end(req) - req->from) * sizeof(__le32);
	if (!kvblk_user_write(req->crcs_addr, get_crcs(req), bytes, req->src.fault)) {
		req->result.flags |= KVBLK_RES_CHECKSUMS;
		return 0;
	}
	if (req->src.fault)
		return -EFAULT;
	/* nobody waits for a pager with a device's memory pinned */
	req_release(req);
	mem_drop(req);
	req->wants_fault = true;
	return -EAGAIN;
}

static void get_read_error(struct kvblk_req *req)
{
	kvblk_member_error(req->member, KVBLK_ERROR_READ,
			   req->slot.seg - req->member->seg_base);
}

/* Looks at what has landed. 0, -ENOENT, or -EAGAIN as of get_check(). */
static int get_look(struct kvblk_req *req)
{
	struct kvblk_rec rec;
	int err;

	if (req->io.status && req->mem.p2p) {
		kvblk_p2p_failed(req, req->member);
		kvblk_count(req->pool, KVBLK_C_DEVICE_FALLBACKS, 1);
		return -EAGAIN;
	}
	if (req->io.status) {
		get_read_error(req);
		/* it will not come back, and can be put anew elsewhere */
		if (req->io.status == BLK_STS_MEDIUM)
			get_drop(req);
		return -ENOENT;
	}
	if (!req->bounce)
		return get_check(req);
	err = get_check_header(req, &rec);
	if (!err)
		err = get_must_check(req);
	if (err > 0)
		kvblk_bounce_check(req->bounce, req->header + KVBLK_HDR_CRCS);
	return min(err, 0);
}

/* Goes on with it. 0, -ENOENT, -EINPROGRESS, or -EAGAIN as of get_check(). */
static int get_bounce_run(struct kvblk_req *req, int err)
{
	struct kvblk_sigpipe sigpipe;

	kvblk_sigpipe_block(&sigpipe);
	err = kvblk_bounce_run(req->bounce, err);
	kvblk_sigpipe_restore(&sigpipe);
	if (err == -EINPROGRESS)
		return err;
	bounce_end(req);
	if (err == -EIO)
		get_read_error(req);
	else if (err == -EBADMSG)
		get_damaged(req, req->integrity == KVBLK_INTEGRITY_PRODUCER);
	else
		return err == -EFAULT ? -EAGAIN : err;
	return -ENOENT;
}

/* Once more, by a copy that nobody else can reach. */
static int get_again(struct kvblk_req *req)
{
	struct kvblk_sigpipe sigpipe;
	int err;

	kvblk_mem_zero(&req->mem);
	mem_drop(req);
	err = mem_alloc(req, get_end(req) - req->from, true);
	if (err)
		return err;
	req->looked = false;
	kvblk_sigpipe_block(&sigpipe);
	get_submit(req);
	kvblk_sigpipe_restore(&sigpipe);
	return 0;
}

static bool get_finish(struct kvblk_req *req, bool user)
{
	struct kvblk_pool *pool = req->pool;
	bool streamed = false;
	int err = 0;

	if (!req->wants_fault && !req->looked)
		err = get_look(req);
	req->looked = true;
	/* a copy that has begun is ended, for it must not stay half a block */
	if (!user)
		err = -EINTR;
	else if (!req->wants_fault && READ_ONCE(req->canceled))
		err = -ECANCELED;
	else if (!req->wants_fault && req_late(req))
		err = -ETIME;

	if (req->bounce) {
		err = get_bounce_run(req, err);
		if (err == -EINPROGRESS)
			return false;
		streamed = true;
	}
	if (!err && req->trial)
		err = kvblk_p2p_trial(req);
	if (err == -EAGAIN) {
		if (!get_again(req))
			return false;
		err = -ENOENT;
	}
	if (err) {
		if (req->mem.direct)
			kvblk_mem_zero(&req->mem);
	} else if (!req->delivered) {
		if (req->mem.direct)
			kvblk_mem_tail_out(&req->mem);
		else if (!streamed)
			err = get_copy_out(req);
		if (err == -EAGAIN)
			return false;
		count_way(req);
		req->delivered = true;
	}
	if (!err)
		err = get_crcs_out(req);
	if (err == -EAGAIN)
		return false;

	if (!err) {
		kvblk_index_touch(&pool->index, &req->slot,
				  kvblk_policy_tick(&pool->policy));
		kvblk_count(pool, KVBLK_C_GETS, 1);
		kvblk_count(pool, KVBLK_C_GET_BYTES, req->want);
		kvblk_hist_add(pool, KVBLK_H_GET, req->start);
		err = req->want;
	} else {
		req->result.flags = 0;
		if (err == -ENOENT)
			kvblk_count(pool, KVBLK_C_GET_MISSES, 1);
	}
	trace_kvblk_get(pool->name, req->id.lo, req->slot.len, err,
			req->result.flags, req->start);
	kvblk_req_over(req, err);
	req_release(req);
	return true;
}

/* ---- put ---- */

static void put_rec(const struct kvblk_req *req, struct kvblk_rec *rec)
{
	*rec = (struct kvblk_rec) {
		.id = req->id,
		.seq = req->room.seq,
		.layout_tag = req->op.layout_tag,
		.caller_tag = req->op.caller_tag,
		.parent = req->op.parent_len ? req->parent.lo : 0,
		.length = req->bytes,
		.expiry = req->expiry,
		.tenant = req->tenant,
		.key_len = req->op.key_len,
		.priority = req->op.priority,
		.integrity = req->integrity,
		.key = req->key,
	};
}

/* What the record of the caller's memory at hand gets. */
static u8 put_integrity(const struct kvblk_req *req, u32 policy)
{
	if (req->crcs)
		return KVBLK_INTEGRITY_PRODUCER;
	return policy == KVBLK_CHECK_HEADER ||
	       (policy == KVBLK_CHECK_PRODUCER && req->mem.p2p) ?
	       KVBLK_INTEGRITY_NONE : KVBLK_INTEGRITY_CRC32C;
}

/* Who has the kernel check all has it read all, if he can't tell the checksums. */
static bool put_wants_crcs(const struct kvblk_req *req, u32 policy)
{
	return policy == KVBLK_CHECK_FULL && !req->crcs;
}

static bool put_bounces(const struct kvblk_req *req, u32 policy)
{
	return put_wants_crcs(req, policy) || req->no_p2p;
}

static void put_crcs(struct kvblk_req *req, u32 policy)
{
	u32 bytes = kvblk_nr_chunks(req->bytes) * sizeof(__le32);
	void *crcs = req->header + KVBLK_HDR_CRCS;

	req->integrity = put_integrity(req, policy);
	switch (req->integrity) {
	case KVBLK_INTEGRITY_CRC32C:
		kvblk_mem_crcs(&req->mem, crcs);
		break;
	case KVBLK_INTEGRITY_PRODUCER:
		memcpy(crcs, req->crcs, bytes);
		break;
	default:
		memset(crcs, 0, bytes);
	}
}

/* Some member that may get it reaches the caller's memory. */
static bool put_reachable(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	struct kvblk_member *member;
	bool any = false;
	int i;

	guard(rcu)();
	kvblk_for_each_member(pool, member, i)
		any |= READ_ONCE(member->state) == KVBLK_MEMBER_UP &&
		       !kvblk_p2p_route(req, member);
	return any;
}

/* What the CPU does to a device's memory is told. */
static int put_copy_in(struct kvblk_req *req, bool must)
{
	int err = mem_alloc(req, req->bytes, must);

	if (!err)
		err = kvblk_mem_copy_in(&req->mem, &req->src);
	if (!err && req->device)
		kvblk_count(req->pool, KVBLK_C_DEVICE_READ_BYTES, req->bytes);
	return err;
}

/* Nobody waits for a pager with a device's memory pinned: faults come before. */
static int put_map(struct kvblk_req *req, struct kvblk_align align)
{
	int err = kvblk_mem_map(&req->mem, &req->src, req->bytes, false, align);

	if (err != -EFAULT || !req->src.fault)
		return err;
	err = kvblk_src_fault_in(&req->src, false);
	if (!err)
		err = kvblk_mem_map(&req->mem, &req->src, req->bytes, false, align);
	/* what can be copied will be */
	return err == -EFAULT ? 0 : err;
}

/* The caller's bytes and their checksums. */
static int put_memory(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	u32 policy = READ_ONCE(pool->tun.integrity);
	struct kvblk_align align;
	phys_addr_t addr;
	int err;

	/* it waited for room: is it still as the members want it? */
	if (req->header && req->align == READ_ONCE(pool->align) &&
	    req->stable == READ_ONCE(pool->stable_writes) &&
	    req->integrity == put_integrity(req, policy) &&
	    !(req->mem.p2p && put_bounces(req, policy)))
		return 0;
	header_free(req);
	mem_drop(req);
	req->align = READ_ONCE(pool->align);
	req->stable = READ_ONCE(pool->stable_writes);
	align = (struct kvblk_align) { req->align >> 32, req->align };
	if (!(pool->flags & KVBLK_POOL_STRICT) && !req->stable &&
	    kvblk_src_fits(&req->src, req->bytes, align) &&
	    !(put_bounces(req, policy) && req_known_device(req, false, &addr))) {
		err = put_map(req, align);
		if (err)
			return err;
		if (req->mem.p2p) {
			req_saw_device(req);
			if (!put_bounces(req, policy) && !put_reachable(req))
				req->no_p2p = true;
			if (put_bounces(req, policy))
				mem_drop(req);
		}
	} else {
		req->device = kvblk_src_device(&req->src, false, &addr);
	}
	if (!req->mem.direct) {
		err = put_copy_in(req, false);
		if (err)
			return err;
	}
	req->header_units = kvblk_header_units(req->bytes);
	req->header = header_alloc(req);
	if (!req->header)
		return -ENOMEM;
	put_crcs(req, policy);
	return 0;
}

/*
 * Room on the next member that answers and has some; for a device's memory, one
 * that reaches it.
 */
static int put_reserve(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	u32 first = this_cpu_inc_return(pool->stats->next_member), i, units;
	struct kvblk_member *member;
	int err = -ENOSPC;

	for (i = 0; i < READ_ONCE(pool->nr_members); i++) {
		rcu_read_lock();
		member = kvblk_member_nth(pool, first + i);
		if (member && (READ_ONCE(member->state) != KVBLK_MEMBER_UP ||
			       !kvblk_member_ok(member) || member->slot == req->avoid ||
			       !percpu_ref_tryget_live(&member->ref)))
			member = NULL;
		rcu_read_unlock();
		if (!member)
			continue;
		units = kvblk_member_units(member, req->bytes);
		/* any -EAGAIN: it is worth waiting */
		if (kvblk_kills_full(member))
			err = -EAGAIN;
		else if (units + 1 <= member->segment_units &&
			 !(req->mem.p2p && kvblk_p2p_route(req, member)))
			err = kvblk_room_reserve(member, KVBLK_CLASS_NEW, units,
						 &req->room);
		kvblk_member_put(member);
		if (!err)
			return 0;
	}
	return err;
}

static int put_exists(struct kvblk_req *req, const struct kvblk_slot *slot)
{
	req->result.value_len = slot->len;
	if (slot->len != req->bytes)
		req->result.flags |= KVBLK_RES_LEN_DIFFERS;
	kvblk_index_touch(&req->pool->index, slot,
			  kvblk_policy_tick(&req->pool->policy));
	kvblk_count(req->pool, KVBLK_C_PUT_EXISTS, 1);
	return kvblk_req_over(req, -EEXIST);
}

static int put_start(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	struct kvblk_slot old, slot;
	struct kvblk_place place;
	struct kvblk_rec rec;
	bool taken;
	int err;

again:
	req->space_seq = atomic_read(&pool->space_seq);
	taken = kvblk_index_find(&pool->index, req->id, &old);
	if (taken && old.state == KVBLK_SLOT_MOVING && slot_expired(pool, &old))
		return -EAGAIN;
	if (taken && (slot_served(pool, &old) || old.state == KVBLK_SLOT_MOVING)) {
		if (old.state == KVBLK_SLOT_WRITING) {
			kvblk_count(pool, KVBLK_C_PUT_BUSY, 1);
			return kvblk_req_over(req, -EALREADY);
		}
		if (!slot_expired(pool, &old))
			return put_exists(req, &old);
		if (!kvblk_index_replace(&pool->index, req->id, &old, NULL))
			goto again;
		kvblk_count(pool, KVBLK_C_EXPIRED, 1);
		taken = false;
	}
	if (req->declined) {
		kvblk_count(pool, KVBLK_C_PUT_DECLINED, 1);
		return kvblk_req_over(req, -ENOBUFS);
	}
	/* a short one fits into every segment */
	if (req->bytes > SZ_4M && req->bytes > kvblk_pool_value_max(pool))
		return kvblk_req_over(req, -EFBIG);
	if (req_late(req)) {
		kvblk_count(pool, KVBLK_C_DEADLINES, 1);
		return kvblk_req_over(req, -ETIME);
	}
	if (req_crowded(req))
		return kvblk_req_over(req, -ENOMEM);
	if (req->op.caller_tag && !kvblk_index_keeps_tags(&pool->index)) {
		/* the first one: may take as long as a page fault */
		if (!req->src.fault) {
			req->wants_fault = true;
			return -EAGAIN;
		}
		err = kvblk_index_keep_tags(&pool->index);
		if (err)
			return kvblk_req_over(req, err);
	}
	err = put_memory(req);
	if (err == -EFAULT && !req->src.fault) {
		req->wants_fault = true;
		return -EAGAIN;
	}
	if (err == -EAGAIN)
		return err;
	if (err)
		return kvblk_req_over(req, err);
	/* its old record could not be killed, and come back one day */
	if (taken && kvblk_slot_kills_full(pool, &old))
		goto nospace;
	err = put_reserve(req);
	/* others may have room: for those that reach it, wait but once */
	if (err && req->mem.p2p && (err != -EAGAIN || req->waiting)) {
		req->no_p2p = true;
		goto again;
	}
	if (err == -EAGAIN)
		return err;
	if (err)
		goto nospace;
	if (req->mem.p2p && kvblk_p2p_route(req, req->room.member)) {
		/* nothing was written there: a hole */
		kvblk_room_release(&req->room, NULL);
		req->no_p2p = true;
		goto again;
	}

	slot = (struct kvblk_slot) {
		.seg = req->room.member->seg_base + req->room.segment,
		.off = req->room.unit,
		.len = req->bytes,
		.gen = (u16)req->room.gen,
		.tenant = req->tenant,
		.state = KVBLK_SLOT_WRITING,
		.prio = req->op.priority,
		.expiry = req->expiry,
		.caller_tag = req->op.caller_tag,
	};
	req->slot = slot;
	if (taken) {
		/* on a member that does not answer: the block moves here */
		err = kvblk_entry_replace(pool, req->id, &old, &slot) ? 0 : -EEXIST;
	} else {
		err = kvblk_entry_insert(pool, req->id, &slot, &old);
	}
	if (err) {
		/* nothing was written there: a hole */
		kvblk_room_release(&req->room, NULL);
		if (err == -EEXIST)
			goto again;
		goto nospace;
	}

	put_rec(req, &rec);
	place = kvblk_place(req->room.member, req->room.segment, req->room.gen,
			    req->room.unit);
	kvblk_record_encode(req->header, &rec, &place, &pool->secret);
	bvec_set_virt(&req->mem.bv[0], req->header,
		      req->header_units << KVBLK_UNIT_SHIFT);
	req_fly(req, req->room.member);
	req->io.p2p = req->mem.p2p;
	gate_enter(req);
	return 0;

nospace:
	/* put_elsewhere() counts an error */
	if (!req->tries)
		kvblk_count(pool, KVBLK_C_PUT_NOSPACE, 1);
	return kvblk_req_over(req, -ENOSPC);
}

/* A device's memory could not be reached: the same again through kernel memory. */
static bool put_again(struct kvblk_req *req)
{
	struct kvblk_member *member = req->room.member;
	struct kvblk_sigpipe sigpipe;
	struct kvblk_place place;
	struct kvblk_rec rec;

	kvblk_p2p_failed(req, member);
	kvblk_count(req->pool, KVBLK_C_DEVICE_FALLBACKS, 1);
	mem_drop(req);
	req->src.fault = false;
	if (put_copy_in(req, true)) {
		/* put_memory() must not take what is left for the payload */
		header_free(req);
		return false;
	}
	put_crcs(req, READ_ONCE(req->pool->tun.integrity));
	put_rec(req, &rec);
	place = kvblk_place(member, req->room.segment, req->room.gen, req->room.unit);
	kvblk_record_encode(req->header, &rec, &place, &req->pool->secret);
	bvec_set_virt(&req->mem.bv[0], req->header,
		      req->header_units << KVBLK_UNIT_SHIFT);
	req->gated = false;
	req_fly(req, member);
	kvblk_sigpipe_block(&sigpipe);
	put_submit(req);
	kvblk_sigpipe_restore(&sigpipe);
	return true;
}

/* Members that a put tries after the first one fails it. */
#define PUT_TRIES	3

/*
 * The member failed the write, and its room has been given back: once more, on
 * another one. 0: in flight; 1: over; else why not.
 */
static int put_elsewhere(struct kvblk_req *req)
{
	struct kvblk_sigpipe sigpipe;
	int ret;

	if (req->tries++ == PUT_TRIES || READ_ONCE(req->pool->nr_members) < 2)
		return -EIO;
	req->gated = false;
	req->src.fault = false;
	kvblk_sigpipe_block(&sigpipe);
	ret = put_start(req);
	kvblk_sigpipe_restore(&sigpipe);
	req->wants_fault = false;
	req->wants_memory = 0;
	return ret == 1 && req->result.res == -ENOSPC ? -EIO : ret;
}

static bool put_finish(struct kvblk_req *req, bool user)
{
	struct kvblk_pool *pool = req->pool;
	struct kvblk_member *member = req->room.member;
	struct kvblk_slot live = req->slot;
	struct kvblk_rec rec;
	int err = 0, ret;

	if (req->io.status && req->mem.p2p && user && put_again(req))
		return false;
	live.state = KVBLK_SLOT_LIVE;
	if (req->io.status) {
		kvblk_member_error(member, KVBLK_ERROR_WRITE, req->room.segment);
		err = -EIO;
	} else if (READ_ONCE(req->canceled)) {
		err = -ECANCELED;
	} else if (!kvblk_index_replace(&pool->index, req->id, &req->slot, &live)) {
		/* another put took the key while this member was silent, or going */
		kvblk_count(pool, KVBLK_C_PUT_BUSY, 1);
		err = -EALREADY;
	}

	if (err) {
		/* a delete finds the entry, or waits for the kill */
		if (!kvblk_entry_replace(pool, req->id, &req->slot, NULL))
			kvblk_kill_settle(pool, req->id, &req->slot);
		req->avoid = member->slot;
		kvblk_room_release(&req->room, NULL);
		ret = err == -EIO && user ? put_elsewhere(req) : err;
		if (!ret)
			return false;
		if (ret == 1)
			err = req->result.res;
		else if (err == -EIO)
			kvblk_count(pool, KVBLK_C_PUT_ERRORS, 1);
	} else {
		put_rec(req, &rec);
		kvblk_room_release(&req->room, &rec);
		req->result.value_len = req->bytes;
		kvblk_count(pool, KVBLK_C_PUTS, 1);
		kvblk_count(pool, KVBLK_C_PUT_BYTES, req->bytes);
		count_way(req);
		kvblk_hist_add(pool, KVBLK_H_PUT, req->start);
		err = req->bytes;
	}
	trace_kvblk_put(pool->name, req->id.lo, req->bytes, err,
			req->result.flags, req->start);
	kvblk_req_over(req, err);
	return true;
}

/* ---- delete ---- */

static int delete_start(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	int err;

	if (req_late(req)) {
		kvblk_count(pool, KVBLK_C_DEADLINES, 1);
		return kvblk_req_over(req, -ETIME);
	}
	/* what a member still brings back would escape */
	if (atomic_read(&pool->restoring))
		return -EAGAIN;
again:
	if (!kvblk_index_find(&pool->index, req->id, &req->slot) ||
	    req->slot.tenant != req->tenant) {
		/* thrown out lately, or lost with its member: can it come back? */
		err = kvblk_kill_barrier(pool, req->id);
		if (err == 1)
			return -EAGAIN;
		if (!err && atomic_read(&pool->unsure))
			err = -EIO;
		return kvblk_req_over(req, err ?: -ENOENT);
	}
	if (req->slot.state == KVBLK_SLOT_WRITING)
		return kvblk_req_over(req, -EBUSY);
	if (req->slot.state == KVBLK_SLOT_MOVING)
		return slot_served(pool, &req->slot) ? -EAGAIN :
						       kvblk_req_over(req, -EIO);
	if (slot_expired(pool, &req->slot)) {
		if (kvblk_index_replace(&pool->index, req->id, &req->slot, NULL))
			kvblk_count(pool, KVBLK_C_EXPIRED, 1);
		goto again;
	}
	if (!slot_served(pool, &req->slot))
		return kvblk_req_over(req, -EIO);
	/* an older record of the key first: who adds one changes the entry */
	err = kvblk_slot_kills_full(pool, &req->slot) ? 1 :
						       kvblk_kill_barrier(pool, req->id);
	if (err == 1)
		return -EAGAIN;
	req->stale = err < 0;
	/* from here on it is a miss; it is over when it is durable */
	req_fly(req, NULL);
	err = kvblk_entry_delete(pool, req->id, &req->slot, &req->io);
	if (!err)
		return 0;
	if (atomic_cmpxchg(&req->state, KVBLK_REQ_INFLIGHT, KVBLK_REQ_NEW) !=
	    KVBLK_REQ_INFLIGHT) {
		/* canceled meanwhile, and detached */
		req->io.status = BLK_STS_IOERR;
		kvblk_io_end(&req->io);
		return 0;
	}
	if (err == -EAGAIN)
		goto again;
	return kvblk_req_over(req, err);
}

static bool delete_finish(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	int err = req->io.status ? -EIO : 0;

	/* an older record that can't be killed now, or that nobody knows of */
	if (!err && (req->stale || kvblk_kill_barrier(pool, req->id) < 0 ||
		     atomic_read(&pool->unsure)))
		err = -EIO;
	if (!err) {
		kvblk_count(pool, KVBLK_C_DELETES, 1);
		kvblk_hist_add(pool, KVBLK_H_DELETE, req->start);
	}
	trace_kvblk_delete(pool->name, req->id.lo, req->slot.len, err, 0,
			   req->start);
	kvblk_req_over(req, err);
	return true;
}

/* ---- all of them ---- */

int kvblk_req_start(struct kvblk_req *req)
{
	int ret;

	if (READ_ONCE(req->canceled))
		return kvblk_req_over(req, -ECANCELED);
	if (req->op.opcode == KVBLK_OP_PUT) {
		ret = put_start(req);
		/*
		 * While it waits no device's memory is pinned, and none of the
		 * kernel's is held that others of its file wait for.
		 */
		if (ret == -EAGAIN && (req->mem.p2p || (req->cmd && req->held))) {
			header_free(req);
			mem_drop(req);
		}
		return ret;
	}
	if (req->op.opcode == KVBLK_OP_GET)
		return get_start(req);
	return delete_start(req);
}

/* What the operation had to wait for may be over. */
static bool req_ready(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;
	struct kvblk_slot slot;

	bool delete = req->op.opcode == KVBLK_OP_DELETE;

	if (kvblk_index_find(&pool->index, req->id, &slot) &&
	    (slot.state == KVBLK_SLOT_MOVING ||
	     (delete && kvblk_slot_kills_full(pool, &slot))))
		return false;
	return !delete || kvblk_kill_barrier(pool, req->id) != 1;
}

static bool file_has_memory(const struct kvblk_req *req)
{
	u64 held = atomic64_read(&req->owner->held);

	return !held || held + req->wants_memory <= file_limit(req);
}

/* It has waited for long, and so have those that hold the memory of its file. */
static bool req_stuck(const struct kvblk_req *req)
{
	return ktime_ms_delta(ktime_get(), req->waiting) > WAIT_MS &&
	       time_after(jiffies, READ_ONCE(req->owner->held_moved) +
				   msecs_to_jiffies(WAIT_MS));
}

/*
 * In steps, so that deadlines, CANCEL and a member that turns suspect are seen
 * by the next kvblk_req_start().
 */
int kvblk_req_wait(struct kvblk_req *req)
{
	const long step = msecs_to_jiffies(100);
	struct kvblk_pool *pool = req->pool;
	long left = 0;

	if (req->wants_fault) {
		/* whatever happens in it, the next try says so */
		req->wants_fault = false;
		req->src.fault = true;
		return 0;
	}
	if (!req->waiting)
		req->waiting = ktime_get();
	if (req->wants_memory) {
		left = wait_event_killable_timeout(req->owner->held_wait,
						   file_has_memory(req), step);
		req->wants_memory = 0;
		if (left < 0)
			return -EINTR;
		return req_stuck(req) ? -ENOMEM : 0;
	}

	if (req->op.opcode == KVBLK_OP_DELETE && atomic_read(&pool->restoring)) {
		req->waiting = ktime_get();
		left = wait_event_killable_timeout(pool->restore_wait,
						   !atomic_read(&pool->restoring),
						   step);
	} else if (!req_ready(req)) {
		left = wait_event_killable_timeout(pool->settle_wait,
						   req_ready(req), step);
	} else if (req->op.opcode == KVBLK_OP_PUT) {
		left = wait_event_killable_timeout(pool->space_wait,
						   atomic_read(&pool->space_seq) !=
						   req->space_seq, step);
	}
	if (left < 0)
		return -EINTR;
	if (ktime_ms_delta(ktime_get(), req->waiting) <= WAIT_MS)
		return 0;
	if (req->op.opcode == KVBLK_OP_DELETE)
		return -EIO;
	kvblk_count(pool, KVBLK_C_PUT_NOSPACE, 1);
	return -ENOSPC;
}

bool kvblk_req_finish(struct kvblk_req *req, bool user)
{
	if (req->op.opcode == KVBLK_OP_PUT)
		return put_finish(req, user);
	if (req->op.opcode == KVBLK_OP_GET)
		return get_finish(req, user);
	return delete_finish(req);
}
