// SPDX-License-Identifier: GPL-2.0
/* Puts into DRAM: blocks that stay until evicted (dram/demote.c), or copies of members' blocks. */
#include "request.h"

/*
 * Returns whether DRAM may keep the block: not from device memory, which is slow to read, nor if
 * NVMe lists must find the block on media, nor after a failed write.
 */
static bool dram_suits(const struct kvblk_req *req)
{
	phys_addr_t addr;

	return READ_ONCE(req->pool->tun.dram_bytes) && !req->write.tries &&
	       req->write.older == KVBLK_OLDER_STAYS && req->tenant != KVBLK_NVME_TENANT &&
	       !kvblk_src_device(&req->src, false, &addr);
}

/* Returns whether a put completes only when a member has the block. */
static bool dram_copies(const struct kvblk_req *req)
{
	return req->op.flags & KVBLK_OPF_DURABLE ||
	       READ_ONCE(req->pool->tun.dram_mode) == KVBLK_DRAM_THROUGH;
}

bool kvblk_put_stays(const struct kvblk_req *req)
{
	return !dram_copies(req) && dram_suits(req);
}

bool kvblk_put_copies(const struct kvblk_req *req)
{
	return dram_copies(req) && dram_suits(req);
}

bool kvblk_puts_to_dram(struct kvblk_pool *pool, struct kvblk_req **puts, u32 nr,
			const struct kvblk_policy_chain *chain)
{
	struct kvblk_write *write;
	u64 bytes = 0;
	u32 i, number;

	for (i = 0; i < nr; i++)
		bytes += kvblk_dram_block_bytes(puts[i]->bytes);
	if (!kvblk_dram_has_space(pool, bytes))
		return false;
	for (i = 0; i < nr; i++)
		if (!kvblk_put_stays(puts[i]))
			return false;
	number = (u32)atomic_inc_return(&pool->dram.chains) ?: 1;
	for (i = 0; i < nr; i++) {
		write = &puts[i]->write;
		write->asked = false;
		write->chain = number;
		write->continues = chain->parent_present;
		write->hints |= (chain->wanted ? KVBLK_HINT_MISSED : 0) |
				(chain->goes_on ? KVBLK_HINT_CONTINUES : 0);
		write->offer_parent = chain->parent;
	}
	return true;
}

int kvblk_put_fill(struct kvblk_req *req, const struct kvblk_rec *rec)
{
	struct kvblk_dram_block *obj;
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
	req->src.fault = false;
	/* without memory for checksums, write the block to a member */
	if (!kvblk_dram_block_describe(obj, rec))
		err = -ENOMEM;
	else if (kvblk_proofs[rec->integrity].seal)
		err = kvblk_vectors_seal_in(rec->integrity, &obj->bv[1], req->bytes, &req->src,
					    (__le32 *)obj->rec.crcs);
	else
		err = kvblk_vectors_copy(&obj->bv[1], 0, req->bytes, &req->src, true);
	req->src.fault = fault;
	if (err)
		kvblk_req_mem_drop(req);
	/* pages evicted again after the page fault are copied on the way to a member */
	return err == -ENOMEM || (err == -EFAULT && fault) ? 0 : err;
}
