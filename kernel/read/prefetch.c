// SPDX-License-Identifier: GPL-2.0
/*
 * Prefetches: reads into DRAM, for later gets. Gets have priority, so a prefetch waits at the write
 * throttle of its member. There is nothing to deliver, so one read decides.
 */
#include <linux/ioprio.h>

#include "read/read.h"
#include "trace.h"

static int prefetch_over(struct kvblk_req *req, int err)
{
	if (!err) {
		kvblk_count(req->pool, KVBLK_C_PREFETCHES, 1);
		req->result.flags = KVBLK_RES_MEMORY | KVBLK_RES_BOUNCED;
		err = req->read.want;
	} else {
		req->result.flags = 0;
	}
	trace_kvblk_get(req->pool->name, req->id.lo, req->slot.len, err, req->result.flags,
			req->start);
	/* the task may be late, and others need the memory */
	if (!req->parked)
		kvblk_req_mem_drop(req);
	return kvblk_req_over(req, err == -EINTR ? -ECANCELED : err);
}

static int prefetch_memory(struct kvblk_req *req)
{
	/* plaintext of an encrypted tenant would outlive its key in DRAM */
	if (!READ_ONCE(req->pool->tun.dram_bytes) || kvblk_req_encrypted(req))
		return -EOPNOTSUPP;
	if (req->media.foreign)
		return -EREMOTE;
	req->read.sink = &kvblk_sink_dram;
	req->throttled = kvblk_throttle_full(req->media.member);
	return req->throttled ? -EAGAIN : kvblk_req_dram_block(req, req->read.want);
}

static void prefetch_submit(struct kvblk_queued_io *queued)
{
	struct kvblk_req *req = container_of(queued, struct kvblk_req, media.queued);

	if (!READ_ONCE(req->canceled))
		req->read.source->submit(req);
	kvblk_io_end(&req->media.io);
}

static void prefetch_enter(struct kvblk_req *req)
{
	struct kvblk_queued_io *queued = &req->media.queued;

	kvblk_media_submit(req, req->media.flash);
	req->media.io.ioprio = IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, IOPRIO_NR_LEVELS - 1 -
						 req->op.priority);
	queued->priority = req->op.priority;
	queued->prefetch = true;
	queued->account = req->account;
	queued->bytes = req->mem.bytes + req->header_bytes;
	queued->given_up = &req->canceled;
	queued->submit = prefetch_submit;
	kvblk_throttle_enter(queued, req->media.member);
}

static int prefetch_start(struct kvblk_req *req)
{
	int err;

	req->space_seq = atomic_read(&req->pool->space_seq);
	err = kvblk_read_begin(req) ?: kvblk_read_find(req, kvblk_read_sources);
	if (err)
		return kvblk_req_over(req, err);
	req->read.want = req->slot.len;
	req->result.value_len = req->read.want;
	if (req->block) {
		kvblk_req_mem_drop(req);
		req->result.flags |= KVBLK_RES_MEMORY;
		return kvblk_req_over(req, 0);
	}
	err = kvblk_req_header_alloc(req, req->read.want);
	if (!err)
		err = prefetch_memory(req);
	if (!err) {
		prefetch_enter(req);
		return 0;
	}
	kvblk_req_buffers_drop(req);
	return err == -EAGAIN ? err : kvblk_req_over(req, err);
}

static int prefetch_give_up(struct kvblk_req *req)
{
	return -ENOSPC;
}

/* Returns 1. A work item may keep the block, too, because no caller's memory is involved. */
static int prefetch_finish(struct kvblk_req *req, enum kvblk_by by)
{
	int err;

	/* finished before, for a task that did not run */
	if (!req->media.begun)
		return 1;
	/* a canceled prefetch may not have been read */
	err = READ_ONCE(req->canceled) ? -ECANCELED : kvblk_read_check(req);
	err = kvblk_read_stops(req, by) ?: err;
	if (!err && !kvblk_sink_keep(req))
		err = -ENOMEM;
	kvblk_media_end(req);
	return prefetch_over(req, err);
}

const struct kvblk_op_type kvblk_op_prefetch = {
	.flags = KVBLK_OPF_LAYOUT,
	.mode = FMODE_READ,
	.start = prefetch_start,
	.wait = kvblk_req_wait_space,
	.give_up = prefetch_give_up,
	.finish = prefetch_finish,
};
