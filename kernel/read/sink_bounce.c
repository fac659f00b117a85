// SPDX-License-Identifier: GPL-2.0
/* A chunk of kernel memory as a sink, for devices that the member does not reach. */
#include "read/read.h"

/* Returns whether a record would be served unverified: the caller checks, or the policy trusts. */
static bool bounce_trusts(const struct kvblk_req *req)
{
	return kvblk_read_caller_checks(req) ||
	       kvblk_read_judge(req, KVBLK_INTEGRITY_NONE, true, true) != KVBLK_REFUSE;
}

/* Takes a chunk of the pool's, or if all are in use, one within the file's budget. */
static void bounce_chunk(struct kvblk_req *req)
{
	bool wipe = bounce_trusts(req);
	struct kvblk_bounce *own;

	req->media.bounce = kvblk_bounce_get(req, wipe, kvblk_req_completed);
	if (req->media.bounce || kvblk_read_end(req) - req->read.from <= KVBLK_BOUNCE_OWN_BYTES)
		return;
	own = kvblk_bounce_own(req, wipe, kvblk_req_completed);
	/* last, because what is given back counts as progress for those that wait for the budget */
	if (own && kvblk_req_hold(req, KVBLK_BOUNCE_OWN_BYTES, kvblk_read_restarted(req))) {
		kvblk_bounce_put(req->pool, own);
		own = NULL;
	}
	req->media.bounce = own;
	/* the next sink waits if it must */
	req->wants_memory = 0;
}

static int bounce_prepare(struct kvblk_req *req)
{
	phys_addr_t addr;

	req->device |= kvblk_src_device(&req->src, true, &addr);
	/* of a foreign block no part may reach the caller before all of it is proven */
	if (!req->device || req->op.flags & KVBLK_OPF_HARD_DEADLINE || req->media.foreign)
		return -EREMOTEIO;
	bounce_chunk(req);
	if (!req->media.bounce)
		return -EREMOTEIO;
	req->mem.bv = req->mem.few_bv;
	req->mem.nr = 1;
	/* a part may have reached the caller, so the get must not be detached quietly */
	req->mem.direct = true;
	return 0;
}

static int bounce_check(struct kvblk_req *req)
{
	kvblk_bounce_check(req->media.bounce, kvblk_header_crcs(req->header));
	return 0;
}

static noinline int bounce_finish(struct kvblk_req *req, enum kvblk_by by, int err)
{
	struct kvblk_sigpipe sigpipe;
	int why = err;

	kvblk_sigpipe_block(&sigpipe);
	/* -EINTR: leave the task's memory alone, now and later */
	err = kvblk_bounce_run(req->media.bounce, by == KVBLK_BY_CALLER ? err : -EINTR);
	kvblk_sigpipe_restore(&sigpipe);
	if (err == -EINPROGRESS)
		return err;
	kvblk_req_bounce_end(req);
	if (err == -EFAULT)
		return -EAGAIN;
	return err == -EINTR && by != KVBLK_BY_NOBODY ? why ?: -EAGAIN : err;
}

const struct kvblk_sink kvblk_sink_bounce = {
	.cpu_sees = true,
	.prepare = bounce_prepare,
	.check = bounce_check,
	.finish = bounce_finish,
};
