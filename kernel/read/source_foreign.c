// SPDX-License-Identifier: GPL-2.0
/*
 * A record on another node's member as the source of a block. Nothing keeps the owner from reusing
 * the segment during the read. So a read is believed only if it completed in time, see
 * pool/follow.c, and if the payload is verified, because a hypervisor may have stopped the clock.
 * The segment table, read after the block, proves all other reads. A record of another block is a
 * miss and no damage: the owner has moved or dropped the block.
 */
#include <linux/slab.h>

#include "read/read.h"

static int foreign_miss(struct kvblk_req *req, enum kvblk_counter why)
{
	if (req->media.foreign)
		this_cpu_inc(req->media.foreign->stats->misses);
	return kvblk_read_miss(req, why);
}

/* Removes the entry, so that the block can be put here. Returns -ENOENT. */
static int foreign_drop(struct kvblk_req *req, enum kvblk_counter why)
{
	struct kvblk_slot now;

	if (kvblk_index_find(&req->pool->index, req->id, &now) &&
	    kvblk_same_record(&now, &req->slot))
		kvblk_index_replace(&req->pool->index, req->id, &now, NULL);
	return foreign_miss(req, why);
}

static u32 foreign_segment(const struct kvblk_req *req)
{
	return kvblk_slot_segment(req->media.flash, &req->slot);
}

static int foreign_hold(struct kvblk_req *req)
{
	struct kvblk_media *media = &req->media;

	if (!kvblk_slot_foreign(&req->slot))
		return -ESTALE;
	media->foreign = kvblk_foreign_get(req->pool, req->slot.seg);
	if (!media->foreign)
		return foreign_miss(req, KVBLK_C_MISS_FOREIGN_MEMBER);
	media->flash = &media->foreign->flash;
	/* since the entry was made, the tenant was cleared or removed on the other node */
	if (!kvblk_tenant_followed(media->foreign, req->slot.tenant))
		return foreign_drop(req, KVBLK_C_MISS_ABSENT);
	media->gen = READ_ONCE(media->foreign->segs[foreign_segment(req)].gen);
	if ((u16)media->gen != req->slot.gen)
		return foreign_miss(req, KVBLK_C_MISS_FOREIGN_MOVED);
	return kvblk_flash_may_read(media->flash) ? 0 :
	       foreign_miss(req, KVBLK_C_MISS_FOREIGN_MEMBER);
}

static void foreign_submit(struct kvblk_req *req)
{
	req->media.sums = kvblk_record_read(&req->media.io, &req->slot, req->header, &req->mem,
					    req->read.from, req->read.sink->cpu_sees &&
					    req->mem.bytes > 1u << KVBLK_CHUNK_SHIFT);
}

/* Returns whether the payload will be verified, and was read in time. */
static bool foreign_timely(const struct kvblk_req *req)
{
	const struct kvblk_d_record *header = req->header;

	return header->integrity < KVBLK_INTEGRITIES &&
	       kvblk_read_judge(req, header->integrity, true,
				req->read.sink->cpu_sees) == KVBLK_VERIFY &&
	       kvblk_foreign_believed(req->media.foreign, foreign_segment(req), req->media.gen);
}

/* Reads the table page after the block. Returns -EINPROGRESS, or -ENOENT without memory. */
static int foreign_ask(struct kvblk_req *req)
{
	struct kvblk_table_proof *proof = kzalloc(sizeof(*proof), GFP_KERNEL);
	u32 page = foreign_segment(req) / KVBLK_TABLE_ENTRIES;

	if (proof)
		proof->slots = (void *)__get_free_pages(GFP_KERNEL, 1);
	if (!proof || !proof->slots) {
		kfree(proof);
		return foreign_miss(req, KVBLK_C_MISS_FOREIGN_LATE);
	}
	kvblk_count(req->pool, KVBLK_C_FOREIGN_PROOFS, 1);
	req->media.proof = proof;
	bvec_set_virt(&proof->bv, proof->slots, 2 * sizeof(*proof->slots));
	kvblk_media_submit(req, req->media.flash);
	req->media.io.p2p = false;
	kvblk_io_submit(&req->media.io, REQ_OP_READ | REQ_META, kvblk_table_pos(page), &proof->bv,
			1);
	kvblk_io_end(&req->media.io);
	return -EINPROGRESS;
}

static int foreign_answer(struct kvblk_req *req)
{
	u32 segment = foreign_segment(req), page = segment / KVBLK_TABLE_ENTRIES;
	const struct kvblk_table_proof *proof = req->media.proof;
	const struct kvblk_d_table *table;

	if (req->media.io.status)
		return foreign_miss(req, KVBLK_C_MISS_FOREIGN_MEMBER);
	table = kvblk_foreign_table(req->media.foreign, page, proof->slots);
	if (table && le64_to_cpu(table->segments[segment % KVBLK_TABLE_ENTRIES].generation) ==
		     req->media.gen)
		return 0;
	kvblk_foreign_poll_now(req->media.foreign);
	return foreign_miss(req, KVBLK_C_MISS_FOREIGN_LATE);
}

static int foreign_prove(struct kvblk_req *req)
{
	struct kvblk_sigpipe sigpipe;
	int ret;

	if (req->media.proof)
		return foreign_answer(req);
	if (req->media.io.status || foreign_timely(req))
		return 0;
	kvblk_sigpipe_block(&sigpipe);
	ret = foreign_ask(req);
	kvblk_sigpipe_restore(&sigpipe);
	return ret;
}

static int foreign_moved(struct kvblk_req *req)
{
	return foreign_drop(req, KVBLK_C_MISS_FOREIGN_MOVED);
}

static int foreign_identify(struct kvblk_req *req)
{
	struct kvblk_place place = kvblk_slot_place(req->media.flash, &req->slot, req->media.gen);
	enum kvblk_verdict verdict;
	struct kvblk_rec rec;
	int err;

	/*
	 * The MAC, because only the owner knows where records begin. Encrypted tenants are not
	 * followed.
	 */
	if (!kvblk_record_identify(&place, false, req->slot.len, req->header,
				   &req->pool->secret, &rec))
		return foreign_moved(req);
	rec.expiry = kvblk_foreign_expiry(req->media.foreign, rec.expiry);
	err = kvblk_read_match(req, &rec);
	if (err)
		return err;
	verdict = kvblk_read_judge(req, rec.integrity, rec.durable, req->read.sink->cpu_sees);
	if (verdict == KVBLK_REFUSE)
		return foreign_drop(req, KVBLK_C_MISS_UNPROVEN);
	req->result.flags |= KVBLK_RES_FOREIGN;
	return verdict == KVBLK_VERIFY;
}

static int foreign_failed(struct kvblk_req *req)
{
	if (kvblk_read_bad_medium(req))
		return foreign_drop(req, KVBLK_C_MISS_FOREIGN_MEMBER);
	return foreign_miss(req, KVBLK_C_MISS_FOREIGN_MEMBER);
}

const struct kvblk_source kvblk_source_foreign = {
	.hold = foreign_hold,
	.start = kvblk_record_start,
	.submit = foreign_submit,
	.prove = foreign_prove,
	.identify = foreign_identify,
	.failed = foreign_failed,
	.damaged = foreign_moved,
};
