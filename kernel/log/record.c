// SPDX-License-Identifier: GPL-2.0
/*
 * Records between memory and members, sealed and summed part by part. The rules:
 * - Reading a byte from memory twice costs more than the checksum. So a large payload is split into
 *   parts that fit a CPU's cache. The checksum of a put's part is computed just before submission,
 *   of a get's part on completion, while other parts are in flight.
 * - A header has the checksums of all parts. So it is written last, in one bio with the first part.
 * - A part completed in task context, mostly by a worker of the transport, is summed there, because
 *   that CPU has just copied the data. In an interrupt this would delay others: a work does it, on
 *   any idle CPU that shares the cache.
 * - Several parts in flight let works sum at the same time. In a task this gains nothing, and each
 *   part is a command: if a member's reads complete in tasks, its parts are larger.
 */
#include <linux/slab.h>

#include "log/log.h"
#include "memory/memory.h"

#define PARTS_MAX	16	/* of a payload: more cost other operations more than they gain */
#define TASK_BYTES	(1024u << 10)	/* least part summed in a task (above 16 MiB: 16 parts) */

/* A part of a payload being read. */
struct part {
	struct kvblk_io io;
	struct kvblk_sums *sums;
	struct work_struct work;
	struct bvec_iter iter;
};

/* Checksums of a payload being read. */
struct kvblk_sums {
	struct kvblk_io *io;		/* whole of the parts' I/O */
	const struct bio_vec *bv;
	u32 size;			/* bytes of a part */
	__le32 *crcs;			/* of each chunk */
	struct part parts[];
};

static struct workqueue_struct *sum_wq;

int kvblk_record_init(void)
{
	/* more works at once would only evict each other's data from the caches */
	sum_wq = alloc_workqueue("kvblk-sum", WQ_UNBOUND, num_online_cpus());
	return sum_wq ? 0 : -ENOMEM;
}

void kvblk_record_exit(void)
{
	destroy_workqueue(sum_wq);
}

static u32 part_size(const struct kvblk_mem *mem, u32 least)
{
	return max(least, round_up(mem->bytes / PARTS_MAX, 1u << KVBLK_CHUNK_SHIFT));
}

/* Submits a part at @pos, padded to whole units; the last vector has space for the padding. */
static void part_submit(struct kvblk_io *io, blk_opf_t opf, u64 pos,
			const struct bio_vec *bv, struct bvec_iter part,
			const struct bvec_iter *rest)
{
	part.bi_size = round_up(part.bi_size, KVBLK_UNIT);
	part.bi_sector = pos >> SECTOR_SHIFT;
	/* or else a plug merges the parts, which would then complete together */
	kvblk_io_submit_iter(io, opf | REQ_NOMERGE, bv, &part, rest->bi_idx - part.bi_idx + 1);
}

static void head_submit(struct kvblk_io *io, blk_opf_t opf, u64 pos,
			const struct kvblk_mem *mem, u32 payload, u32 nr)
{
	struct bvec_iter head = {
		.bi_sector = pos >> SECTOR_SHIFT,
		.bi_size = mem->bv[0].bv_len + round_up(payload, KVBLK_UNIT),
	};

	kvblk_io_submit_iter(io, opf, mem->bv, &head, nr);
}

bool kvblk_record_crcs(void *header, u32 length, u8 integrity, const __le32 *crcs)
{
	if (crcs)
		memcpy(kvblk_header_crcs(header), crcs, kvblk_crcs_bytes(length));
	else if (integrity == KVBLK_INTEGRITY_NONE)
		memset(kvblk_header_crcs(header), 0, kvblk_crcs_bytes(length));
	return crcs || integrity == KVBLK_INTEGRITY_NONE;
}

/*
 * Seals the payload, with @crcs, and submits it, at @data, but for its first part.
 * Returns the bytes of that part, and in @nr the vectors up to its end.
 */
static noinline u32 parts_write(struct kvblk_io *io, blk_opf_t opf, u64 data,
				const struct kvblk_mem *mem, const struct kvblk_proof *proof,
				__le32 *crcs, u32 *nr)
{
	struct bvec_iter rest = kvblk_mem_payload(mem), part, first;
	u32 at, size = part_size(mem, KVBLK_PROOF_BYTES);

	first = kvblk_part_next(mem->bv, &rest, size);
	*nr = min(rest.bi_idx + 1, mem->nr);
	for (at = size; rest.bi_size; at += size) {
		part = kvblk_part_next(mem->bv, &rest, size);
		proof->seal(mem->bv, part, true, crcs + (at >> KVBLK_CHUNK_SHIFT));
		part_submit(io, opf, data + at, mem->bv, part, &rest);
		cond_resched();
	}
	proof->seal(mem->bv, first, true, crcs);
	return first.bi_size;
}

void kvblk_record_write(struct kvblk_io *io, blk_opf_t opf, const struct kvblk_reservation *resv,
			const struct kvblk_rec *rec, void *header, const struct kvblk_mem *mem,
			bool sum)
{
	struct kvblk_place place = kvblk_place(io->flash, resv->segment, resv->gen, resv->unit);
	u64 pos = kvblk_seg_pos(io->flash, resv->segment, resv->unit);
	u32 bytes = kvblk_header_bytes(kvblk_rec_encrypted(rec), rec->length);
	u32 first = mem->bytes, nr = mem->nr;

	/* the block layer clears REQ_FUA for devices without a volatile cache */
	opf |= REQ_OP_WRITE | REQ_IDLE | (rec->durable ? REQ_FUA : 0);
	bvec_set_virt(&mem->bv[0], header, bytes);
	if (sum)
		first = parts_write(io, opf, pos + bytes, mem, &kvblk_proofs[rec->integrity],
				    kvblk_header_crcs(header), &nr);
	kvblk_record_encode(header, rec, &place, &io->flash->pool->secret, io->flash->short_crc);
	head_submit(io, opf, pos, mem, first, nr);
}

static void part_sum(struct part *part, bool cold)
{
	struct kvblk_sums *sums = part->sums;
	u32 at = (part - sums->parts) * sums->size;

	kvblk_proofs[KVBLK_INTEGRITY_CRC32C].seal(sums->bv, part->iter, cold,
						  sums->crcs + (at >> KVBLK_CHUNK_SHIFT));
	/* @part may be freed from here on */
	kvblk_io_end(sums->io);
}

static void part_work(struct work_struct *work)
{
	part_sum(container_of(work, struct part, work), true);
}

static void part_completed(struct kvblk_io *io)
{
	struct part *part = container_of(io, struct part, io);
	struct kvblk_flash *flash = io->flash;
	bool task = in_task() && !irqs_disabled();

	/* write only changes, because all CPUs read the line */
	if (unlikely(READ_ONCE(flash->reads_in_task) != task))
		WRITE_ONCE(flash->reads_in_task, task);
	/* after an error of any part the checksums are not used */
	if (part->sums->io->status) {
		kvblk_io_end(part->sums->io);
	} else if (task) {
		part_sum(part, false);
	} else {
		INIT_WORK(&part->work, part_work);
		queue_work(sum_wq, &part->work);
	}
}

static struct kvblk_sums *sums_alloc(struct kvblk_io *io, const struct kvblk_mem *mem)
{
	bool task = READ_ONCE(io->flash->reads_in_task);
	u32 size = part_size(mem, task ? TASK_BYTES : KVBLK_PROOF_BYTES);
	u32 parts = DIV_ROUND_UP(mem->bytes, size);
	struct kvblk_sums *sums;

	sums = kvmalloc(struct_size(sums, parts, parts) + kvblk_crcs_bytes(mem->bytes),
			GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!sums)
		return NULL;
	sums->io = io;
	sums->bv = mem->bv;
	sums->size = size;
	sums->crcs = (__le32 *)(sums->parts + parts);
	return sums;
}

/* Submits reads of the payload, at @data. @header: the first part has the header, too. */
static void parts_read(struct kvblk_sums *sums, const struct kvblk_mem *mem, u64 data, bool header)
{
	struct bvec_iter rest = kvblk_mem_payload(mem);
	struct part *part;

	for (part = sums->parts; rest.bi_size; part++, data += sums->size) {
		part->sums = sums;
		part->iter = kvblk_part_next(mem->bv, &rest, sums->size);
		kvblk_io_start_part(&part->io, sums->io, part_completed);
		if (header && part == sums->parts)
			head_submit(&part->io, REQ_OP_READ, data - mem->bv[0].bv_len, mem,
				    part->iter.bi_size, rest.bi_idx + 1);
		else
			part_submit(&part->io, REQ_OP_READ, data, mem->bv, part->iter, &rest);
		kvblk_io_end(&part->io);
		cond_resched();
	}
}

/* Submits reads of a header, at @pos, and a payload. noinline: most gets need one bio. */
static noinline struct kvblk_sums *record_read_apart(struct kvblk_io *io, u64 pos,
						     const struct kvblk_mem *mem, u32 from,
						     bool sum)
{
	struct kvblk_sums *sums = sum ? sums_alloc(io, mem) : NULL;
	u64 data = pos + mem->bv[0].bv_len + from;

	if (from)
		kvblk_io_submit(io, REQ_OP_READ, pos, mem->bv, 1);
	if (sums)
		parts_read(sums, mem, data, !from);
	else if (from)
		kvblk_io_submit(io, REQ_OP_READ, data, mem->bv + 1, mem->nr - 1);
	else
		head_submit(io, REQ_OP_READ, pos, mem, mem->bytes, mem->nr);
	return sums;
}

struct kvblk_sums *kvblk_record_read(struct kvblk_io *io, const struct kvblk_slot *slot,
				     void *header, const struct kvblk_mem *mem, u32 from, bool sum)
{
	u64 pos = kvblk_slot_pos(io->flash, slot);

	bvec_set_virt(&mem->bv[0], header, kvblk_slot_header_bytes(io->flash->pool, slot));
	if (from || sum)
		return record_read_apart(io, pos, mem, from, sum);
	head_submit(io, REQ_OP_READ, pos, mem, mem->bytes, mem->nr);
	return NULL;
}

bool kvblk_payload_open(const struct kvblk_mem *mem, const struct kvblk_sums *sums, u8 integrity,
			const __le32 *crcs)
{
	if (sums && kvblk_proofs[integrity].crc32c)
		return !memcmp(sums->crcs, crcs, kvblk_crcs_bytes(mem->bytes));
	return kvblk_proof_open(integrity, mem->bv, kvblk_mem_payload(mem), crcs);
}
