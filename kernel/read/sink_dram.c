// SPDX-License-Identifier: GPL-2.0
/* A DRAM block as a sink: promotion of a block that is requested again, and prefetches. */
#include "read/read.h"

static bool dram_promotes(struct kvblk_req *req)
{
	const struct kvblk_tunables *tun = &req->pool->tun;
	phys_addr_t addr;

	/* the owner of a foreign block may delete it, and tells nobody */
	return READ_ONCE(tun->dram_promote) && !req->media.foreign &&
	       !kvblk_read_restarted(req) && req->slot.heat && req->read.want == req->slot.len &&
	       !kvblk_src_device(&req->src, true, &addr);
}

static int dram_prepare(struct kvblk_req *req)
{
	if (dram_promotes(req) && !kvblk_req_dram_block(req, req->read.want))
		return 0;
	/* serving the get matters more than promotion */
	req->wants_memory = 0;
	return -EREMOTEIO;
}

static void dram_describe(struct kvblk_req *req, const struct kvblk_rec *rec)
{
	req->block->unproven = rec->integrity == KVBLK_INTEGRITY_NONE;
	kvblk_dram_block_describe(req->block, rec);
}

bool kvblk_sink_keep(struct kvblk_req *req)
{
	struct kvblk_dram_block *obj = req->block;

	if (obj->rec.integrity != KVBLK_INTEGRITY_NONE && !obj->rec.crcs)
		return false;
	req->coming = false;
	WRITE_ONCE(obj->touched, true);
	if (!kvblk_dram_block_keep(req->pool, obj, &req->slot))
		return true;
	/* keep the blocks of a batch until all are submitted, within the file's budget */
	req->parked = req->parks && kvblk_budget_fits(&req->owner->budget, 0,
						      kvblk_file_limit(req->owner));
	if (req->parked)
		percpu_ref_get(&req->pool->users);
	else
		kvblk_dram_block_queue(req->pool, obj);
	return true;
}

static int dram_finish(struct kvblk_req *req, enum kvblk_by by, int err)
{
	/* without a copy for later gets this one succeeds nevertheless */
	if (!err)
		kvblk_sink_keep(req);
	return err;
}

static int dram_deliver(struct kvblk_req *req)
{
	return kvblk_vectors_copy(&req->block->bv[1], req->op.offset, req->read.want, &req->src,
				  false);
}

const struct kvblk_sink kvblk_sink_dram = {
	.cpu_sees = true,
	.prepare = dram_prepare,
	.describe = dram_describe,
	.check = kvblk_sink_check,
	.finish = dram_finish,
	.deliver = dram_deliver,
};
