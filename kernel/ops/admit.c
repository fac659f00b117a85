// SPDX-License-Identifier: GPL-2.0
/*
 * Admission: which puts DRAM keeps, and which ones members may write, as the policy says. A chain
 * is asked about as a whole before its first put, and admitted up to some block; blocks in DRAM
 * when they leave it (dram/demote.c).
 */
#include <linux/slab.h>

#include "request.h"

/* Returns whether the settings admit all puts that are in no chain. */
static bool admits_all(const struct kvblk_policy *p)
{
	return READ_ONCE(p->admit_permille) >= KVBLK_POLICY_ADMIT &&
	       READ_ONCE(p->first_permille) == KVBLK_POLICY_FIRST;
}

static noinline void put_ask(struct kvblk_req *req)
{
	struct kvblk_pool *pool __free(kvblk_pool_leave) = kvblk_pool_enter(req->pool);
	struct kvblk_policy_chain single = {
		.ids = &req->id,
		.nr = 1,
		.parent = req->write.parent.lo,
		.priority = req->op.priority,
		.wanted = req->write.hints & KVBLK_HINT_MISSED,
	};
	struct kvblk_slot slot;

	if (pool)
		kvblk_duel_touch(&pool->duel, req->id);
	if (!pool || admits_all(&pool->policy))
		return;
	/* a parent that is being written counts, too */
	single.parent_present = single.parent &&
				kvblk_index_find(&pool->index, req->write.parent, &slot) &&
				slot.tenant == req->tenant;
	guard(rcu)();
	req->write.declined = !kvblk_policy_admit(kvblk_admission_of(pool, req->tenant), &single);
}

bool kvblk_put_admit(struct kvblk_req *req)
{
	if (!req->write.asked) {
		req->write.asked = true;
		if (!admits_all(&req->pool->policy) ||
		    kvblk_duel_samples(&req->pool->duel, req->id))
			put_ask(req);
	}
	return !req->write.declined;
}

/*
 * Returns whether DRAM may keep the block: not from device memory, which is slow to read, nor if
 * NVMe lists must find the block on media, nor after a failed write, nor above the tenant's quota.
 * Not of an encrypted tenant, because plaintext would outlive its key there.
 */
static bool dram_suits(const struct kvblk_req *req)
{
	phys_addr_t addr;

	return READ_ONCE(req->pool->tun.dram_bytes) && !req->write.tries &&
	       req->write.older == KVBLK_OLDER_STAYS && req->tenant != KVBLK_NVME_TENANT &&
	       kvblk_dram_quota_fits(req->account, kvblk_dram_block_bytes(req->bytes)) &&
	       !kvblk_req_encrypted(req) &&
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

/* Prepares a chain for DRAM. Returns false unless all @puts suit, and fit. */
static bool chain_to_dram(struct kvblk_pool *pool, struct kvblk_req **puts, u32 nr,
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

/* Asks about the @nr absent @puts that follow the present block of @before, if not NULL. */
static void chain_admit(struct kvblk_pool *pool, struct kvblk_req **puts, u32 nr,
			const struct kvblk_req *before, struct kvblk_policy_chain *chain)
{
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	const struct kvblk_id parent = before ? before->id : puts[0]->write.parent;
	const u16 tenant = puts[0]->tenant;
	struct kvblk_slot slot;
	u32 admitted = nr;

	chain->nr = nr;
	chain->parent = parent.lo;
	chain->parent_present = before ||
		(parent.lo && kvblk_block_present(pool, parent, tenant, &slot));
	if (entered && kvblk_duel_samples_any(&pool->duel, chain)) {
		scoped_guard(rcu)
			chain->kind = kvblk_policy_kind(kvblk_admission_of(pool, tenant), chain);
		kvblk_duel_offer(&pool->duel, chain);
	}
	if (!chain_to_dram(pool, puts, nr, chain) && entered) {
		guard(rcu)();
		admitted = kvblk_policy_admit(kvblk_admission_of(pool, tenant), chain);
	}
	while (admitted < nr)
		puts[admitted++]->write.declined = true;
}

int kvblk_puts_admit(struct kvblk_pool *pool, struct kvblk_req *const *reqs, u32 nr)
{
	struct kvblk_policy_chain chain = { .chain = true };
	struct kvblk_id *ids __free(kvfree) =
		kvmalloc_array(nr, sizeof(*ids), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	struct kvblk_req **absent __free(kvfree) =
		kvmalloc_array(nr, sizeof(*absent), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	struct kvblk_req *before = NULL, *last = NULL, *req;
	struct kvblk_slot slot;
	u32 i, nr_absent = 0;

	if (!ids || !absent)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		req = reqs[i];
		if (req->result.res || !req->type->reads)
			continue;
		req->write.asked = true;
		/* for anchors, see pool/anchors.c */
		if (last && !req->write.parent.lo)
			req->write.parent = last->id;
		last = req;
		chain.goes_on |= !!(req->write.hints & KVBLK_HINT_CONTINUES);
		chain.wanted |= !!(req->write.hints & KVBLK_HINT_MISSED);
		if (!kvblk_block_present(pool, req->id, req->tenant, &slot)) {
			chain.priority = max(chain.priority, req->op.priority);
			ids[nr_absent] = req->id;
			absent[nr_absent++] = req;
		} else if (!nr_absent) {
			before = req;
		}
	}
	chain.ids = ids;
	if (nr_absent)
		chain_admit(pool, absent, nr_absent, before, &chain);
	return 0;
}
