// SPDX-License-Identifier: GPL-2.0
/* The choice of a get's sink, and the last resort: kernel memory for the whole payload. */
#include "read/read.h"

static int copy_prepare(struct kvblk_req *req)
{
	return kvblk_req_mem_alloc(req, kvblk_read_end(req) - req->read.from,
				   kvblk_read_restarted(req));
}

static int copy_deliver(struct kvblk_req *req)
{
	return kvblk_vectors_copy(&req->mem.bv[1], req->op.offset - req->read.from, req->read.want,
				  &req->src, false);
}

const struct kvblk_sink kvblk_sink_copy = {
	.cpu_sees = true,
	.prepare = copy_prepare,
	.check = kvblk_sink_check,
	.finish = kvblk_sink_try,	/* for the second read of a trial */
	.deliver = copy_deliver,
};

/* In order of preference. Each but the last may be unsuitable. */
static const struct kvblk_sink *const sinks[] = {
	&kvblk_sink_dram,
	&kvblk_sink_direct,
	&kvblk_sink_bounce,
	&kvblk_sink_copy,
};

int kvblk_sink_prepare(struct kvblk_req *req)
{
	/* the first one is DRAM: a pool without needs no indirect call to find it unsuitable */
	u32 i = !READ_ONCE(req->pool->tun.dram_bytes);
	int err;

	if (req->read.state == KVBLK_READ_AGAIN)
		i = ARRAY_SIZE(sinks) - 1;
	do {
		req->read.sink = sinks[i];
		err = req->read.sink->prepare(req);
	} while (err == -EREMOTEIO && ++i < ARRAY_SIZE(sinks));
	return err;
}
