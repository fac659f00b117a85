// SPDX-License-Identifier: GPL-2.0
/*
 * DRAM as the source of a block. Only the task of a get takes a reference on the DRAM block, or
 * else memory would be held until the task runs. So a get that starts and finds the block here
 * completes its media half at once, and its task finds the block again.
 */
#include <linux/slab.h>

#include "read/read.h"

static int recall_hold(struct kvblk_req *req)
{
	return kvblk_dram_holds(req->pool, req->id, &req->slot) ? 0 : -ESTALE;
}

static int recall_start(struct kvblk_req *req)
{
	req->read.state = KVBLK_READ_RECALL;
	req->src.fault = false;
	kvblk_media_submit(req, NULL);
	kvblk_io_end(&req->media.io);
	return 0;
}

const struct kvblk_source kvblk_source_recall = {
	.hold = recall_hold,
	.start = recall_start,
};

static int dram_hold(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;

	req->block = kvblk_dram_block_get(pool, req->id, &req->slot);
	/* integrity=full must not serve a block that was loaded without checksums */
	if (req->block && kvblk_dram_block_judge(pool, req->block) == KVBLK_REFUSE)
		kvblk_req_mem_drop(req);
	return req->block ? 0 : -ESTALE;
}

static bool dram_verifies(const struct kvblk_req *req)
{
	const struct kvblk_dram_block *obj = req->block;

	/* a caller that takes checksums, of CRC32C, compares them or gets a verified block */
	if (req->crcs_addr && kvblk_proofs[obj->rec.integrity].crc32c)
		return !kvblk_read_caller_checks(req);
	return kvblk_dram_block_judge(req->pool, obj) == KVBLK_VERIFY;
}

static int dram_copy_out(struct kvblk_req *req)
{
	struct kvblk_dram_block *obj = req->block;
	bool fault = req->src.fault;
	int err;

	req->src.fault = false;
	if (dram_verifies(req))
		err = kvblk_vectors_open_out(obj->rec.integrity, &obj->bv[1], obj->rec.length,
					     req->op.offset, req->read.want, &req->src, 0,
					     obj->rec.crcs);
	else
		err = kvblk_vectors_copy(&obj->bv[1], req->op.offset, req->read.want, &req->src,
					 false);
	req->src.fault = fault;
	return err;
}

/* Copies a DRAM block to kernel memory, because the caller's pages do not stay resident. */
static int dram_copy(struct kvblk_req *req)
{
	struct kvblk_dram_block *obj = req->block;
	u32 bytes = kvblk_read_end(req) - req->read.from, i;
	struct iov_iter from;
	int err;

	req->read.sink = &kvblk_sink_copy;
	err = kvblk_req_mem_alloc(req, bytes, true);
	/* a failure has dropped the DRAM block, too */
	if (err)
		return err;
	iov_iter_bvec(&from, ITER_SOURCE, &obj->bv[1], obj->nr, obj->rec.length);
	iov_iter_advance(&from, req->read.from);
	for (i = 1; i < req->mem.nr; i++)
		bytes -= copy_from_iter(bvec_virt(&req->mem.bv[i]),
					min(req->mem.bv[i].bv_len, bytes), &from);
	return !dram_verifies(req) ||
	       kvblk_payload_open(&req->mem, NULL, req->integrity, kvblk_read_crcs(req)) ?
	       0 : -EBADMSG;
}

static int dram_damaged(struct kvblk_req *req)
{
	kvblk_dram_block_damaged(req->pool, req->block);
	kvblk_dram_block_spoil(req->pool, req->block);
	kvblk_req_mem_drop(req);
	req->read.state = KVBLK_READ_AGAIN;
	if (!kvblk_slot_in_dram(&req->slot))
		return -EAGAIN;
	return kvblk_read_over(req, kvblk_read_miss(req, KVBLK_C_MISS_DAMAGED));
}

/* Returns 1, or -EAGAIN to continue at @state without the DRAM block. */
static int dram_start(struct kvblk_req *req)
{
	u32 bytes = kvblk_crcs_bytes(kvblk_read_end(req) - req->read.from);
	int err = kvblk_read_match(req, &req->block->rec);

	if (err)
		return kvblk_read_over(req, err);
	/* or else the DRAM block would be held until the page for the checksums is resident */
	if (req->crcs_addr && kvblk_proofs[req->integrity].crc32c && !req->crcs) {
		req->crcs = kmemdup(kvblk_read_crcs(req), bytes, GFP_KERNEL_ACCOUNT);
		if (!req->crcs)
			return kvblk_read_over(req, -ENOMEM);
	}
	err = dram_copy_out(req);
	if (err)
		kvblk_read_dirty(req);
	if (err == -EFAULT && !req->src.fault) {
		kvblk_req_mem_drop(req);
		req->wants_fault = true;
		return -EAGAIN;
	}
	req->read.state = err ? KVBLK_READ_COPY : KVBLK_READ_SUMS;
	/* the caller's pages were evicted again after the page fault */
	if (err == -EFAULT)
		err = dram_copy(req);
	if (err == -EBADMSG)
		return dram_damaged(req);
	if (err)
		return kvblk_read_over(req, err);
	kvblk_req_dram_block_drop(req);
	kvblk_block_touch(req->pool, req->id, &req->slot);
	kvblk_count(req->pool, KVBLK_C_DRAM_GETS, 1);
	req->result.flags |= KVBLK_RES_MEMORY;
	if (req->read.state == KVBLK_READ_SUMS)
		kvblk_req_count_way(req, KVBLK_C_GET_DIRECT);
	return -EAGAIN;
}

const struct kvblk_source kvblk_source_dram = {
	.hold = dram_hold,
	.start = dram_start,
};
