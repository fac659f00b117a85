// SPDX-License-Identifier: GPL-2.0
/* The caller's pinned pages as a sink: host memory, or a device's that the member reaches. */
#include "read/read.h"

/* noinline: an address on the stack costs all gets a stack protector */
static noinline bool direct_known_bounce(struct kvblk_req *req)
{
	phys_addr_t addr;

	return kvblk_req_known_device(req, &addr) &&
	       (kvblk_p2p_bounces(addr, req->media.flash) || kvblk_read_must_see(req));
}

/* Returns whether the caller gets all that is read: the whole block, or whole chunks of it. */
static bool direct_whole(const struct kvblk_req *req)
{
	return req->read.want == req->slot.len ||
	       (req->read.from == req->op.offset &&
		kvblk_read_end(req) == req->op.offset + req->read.want);
}

static bool direct_suits(struct kvblk_req *req, struct kvblk_align align)
{
	/*
	 * A cancel may assume kernel memory of a restarted get, so do not map the caller's. A read
	 * that is not in time may bring another block, which no caller may see.
	 */
	return !(req->pool->flags & KVBLK_POOL_STRICT) &&
	       (!req->media.foreign ||
		kvblk_foreign_believed(req->media.foreign,
				       kvblk_slot_segment(req->media.flash, &req->slot),
				       req->media.gen)) &&
	       !(req->cmd && kvblk_read_restarted(req)) &&
	       !(req->op.flags & KVBLK_OPF_HARD_DEADLINE) && direct_whole(req) &&
	       kvblk_src_fits(&req->src, req->read.want, align) &&
	       !(READ_ONCE(req->pool->device_seen) && direct_known_bounce(req));
}

static int direct_prepare(struct kvblk_req *req)
{
	struct kvblk_align align = kvblk_pool_align(req->pool);
	int err;

	if (!direct_suits(req, align))
		return -EREMOTEIO;
	/* takes no page fault, because a segment is held */
	err = kvblk_mem_map(&req->mem, &req->src, req->read.want, true, align);
	if (err)
		return err == -EFAULT && req->src.fault ? -EREMOTEIO : err;
	if (req->mem.p2p) {
		kvblk_req_saw_device(req);
		req->read.sink = &kvblk_sink_device;
	}
	/* before a trial of the route begins, because shared memory is not used */
	if ((req->mem.shared && req->revocable) || (req->mem.p2p && kvblk_read_must_see(req)))
		err = -EREMOTEIO;
	else if (req->mem.p2p)
		err = kvblk_p2p_route(req, req->media.flash);
	if (err)
		kvblk_req_mem_drop(req);
	return err;
}

static int direct_check(struct kvblk_req *req)
{
	if (!kvblk_sink_check(req))
		return 0;
	/* the caller may have modified the payload, so decide by a private copy */
	kvblk_count_at(req->media.stats, KVBLK_C_REREADS, 1);
	return -EAGAIN;
}

const struct kvblk_sink kvblk_sink_direct = {
	.cpu_sees = true,
	.prepare = direct_prepare,
	.check = direct_check,
};

static int device_failed(struct kvblk_req *req)
{
	kvblk_p2p_failed(req, req->media.flash);
	kvblk_count(req->pool, KVBLK_C_DEVICE_FALLBACKS, 1);
	return -EAGAIN;
}

/* The CPU cannot verify device memory; the policy changed since the read or the put. */
static int device_check(struct kvblk_req *req)
{
	kvblk_p2p_trial_end(req);
	return -EAGAIN;
}

int kvblk_sink_try(struct kvblk_req *req, enum kvblk_by by, int err)
{
	if (err || !req->media.trial)
		return err;
	if (by == KVBLK_BY_CALLER)
		return kvblk_p2p_trial(req);
	kvblk_p2p_trial_end(req);
	return -EAGAIN;
}

const struct kvblk_sink kvblk_sink_device = {
	.failed = device_failed,
	.check = device_check,
	.finish = kvblk_sink_try,
};
