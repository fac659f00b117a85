// SPDX-License-Identifier: GPL-2.0
/*
 * Hints: what the caller knows of a block's future. Hints change the fields of the index entry by
 * which eviction and reclaim choose, and the block's place in DRAM; no I/O, and nothing waits.
 */
#include "request.h"

static void hint_entry(struct kvblk_req *req)
{
	struct kvblk_index *idx = &req->pool->index;
	const struct kvblk_op *op = &req->op;

	/* if the entry was removed meanwhile, there is nothing to hint at */
	if (op->flags & (KVBLK_OPF_PRIORITY | KVBLK_OPF_RELEASE))
		kvblk_index_prioritize(idx, req->id, op->priority);
	if (op->flags & (KVBLK_OPF_RETAIN | KVBLK_OPF_RELEASE))
		kvblk_index_retain(idx, req->id,
				   op->ttl_s ? kvblk_now(req->pool) + op->ttl_s + 1 ?: 1 : 0);
	if (op->flags & KVBLK_OPF_RELEASE)
		kvblk_index_touch(idx, &req->slot, 0);
}

static int hint_start(struct kvblk_req *req)
{
	struct kvblk_pool *pool = req->pool;

	if (kvblk_req_late(req))
		return kvblk_req_expire(req);
	if (!kvblk_media_begin(req))
		return kvblk_req_over(req, -ENODEV);
	if (!kvblk_index_find(&pool->index, req->id, &req->slot) ||
	    !kvblk_slot_present(pool, req->tenant, &req->slot))
		return kvblk_req_over(req, -ENOENT);
	req->result.value_len = req->slot.len;
	hint_entry(req);
	if (req->op.flags & KVBLK_OPF_RELEASE)
		kvblk_dram_release(pool, req->id, &req->slot);
	else if (req->op.flags & ~KVBLK_OPF_DEMOTE)
		kvblk_dram_cancel_release(pool, req->id, &req->slot);
	if (req->op.flags & KVBLK_OPF_DEMOTE)
		kvblk_dram_demote(pool, req->id, &req->slot);
	return kvblk_req_over(req, 0);
}

const struct kvblk_op_type kvblk_op_hint = {
	.flags = KVBLK_OPF_HINTS,
	.mode = FMODE_WRITE,
	.start = hint_start,
};
