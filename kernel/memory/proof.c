// SPDX-License-Identifier: GPL-2.0
/* Computations of proofs. Other work on each byte, such as encryption, belongs here. */
#include <linux/crc32c.h>

#include "memory/memory.h"

/* Removes the first chunk from @part. Returns its checksum. Inline: @part stays in registers. */
static __always_inline __le32 chunk_crc(const struct bio_vec *bv, struct bvec_iter *part)
{
	u32 left = min(part->bi_size, 1u << KVBLK_CHUNK_SHIFT), crc = KVBLK_CRC_INIT, len;

	for (; left; left -= len) {
		struct bio_vec here = mp_bvec_iter_bvec(bv, *part);

		len = min(here.bv_len, left);
		crc = crc32c(crc, bvec_virt(&here), len);
		bvec_iter_advance_single(bv, part, len);
	}
	return cpu_to_le32(~crc);
}

static void crc32c_seal(const struct bio_vec *bv, struct bvec_iter part, __le32 *crcs)
{
	while (part.bi_size)
		*crcs++ = chunk_crc(bv, &part);
}

static bool crc32c_open(const struct bio_vec *bv, struct bvec_iter part, const __le32 *crcs)
{
	while (part.bi_size)
		if (*crcs++ != chunk_crc(bv, &part))
			return false;
	return true;
}

const struct kvblk_proof kvblk_proofs[KVBLK_INTEGRITIES] = {
	[KVBLK_INTEGRITY_NONE] = {},
	[KVBLK_INTEGRITY_CRC32C] = { .seal = crc32c_seal, .open = crc32c_open, .crc32c = true },
	[KVBLK_INTEGRITY_PRODUCER] = { .open = crc32c_open, .crc32c = true, .by_caller = true },
};

void kvblk_mem_seal(const struct kvblk_mem *mem, u8 integrity, __le32 *crcs)
{
	struct bvec_iter rest = kvblk_mem_payload(mem);

	for (; rest.bi_size; crcs += KVBLK_PROOF_BYTES >> KVBLK_CHUNK_SHIFT) {
		kvblk_proofs[integrity].seal(mem->bv, kvblk_part_next(mem->bv, &rest,
								      KVBLK_PROOF_BYTES), crcs);
		cond_resched();
	}
}

/* noinline: most payloads are smaller */
static noinline bool proof_open_parts(const struct kvblk_proof *proof, const struct bio_vec *bv,
				      struct bvec_iter rest, const __le32 *crcs)
{
	for (; rest.bi_size > KVBLK_PROOF_BYTES; crcs += KVBLK_PROOF_BYTES >> KVBLK_CHUNK_SHIFT) {
		if (!proof->open(bv, kvblk_part_next(bv, &rest, KVBLK_PROOF_BYTES), crcs))
			return false;
		cond_resched();
	}
	return proof->open(bv, rest, crcs);
}

bool kvblk_proof_open(u8 integrity, const struct bio_vec *bv, struct bvec_iter rest,
		      const __le32 *crcs)
{
	const struct kvblk_proof *proof = &kvblk_proofs[integrity];

	return rest.bi_size > KVBLK_PROOF_BYTES ? proof_open_parts(proof, bv, rest, crcs) :
						  proof->open(bv, rest, crcs);
}
