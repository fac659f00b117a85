// SPDX-License-Identifier: GPL-2.0
/* Computations of proofs. Other work on each byte, such as encryption, belongs here. */
#include <linux/cache.h>
#include <linux/crc32c.h>

#include "memory/memory.h"

#ifdef CONFIG_X86_64
#include <asm/cpufeature.h>

/*
 * Returns whether crc32c() sums three streams at once: the hardware does not foresee their reads.
 * With fast AVX-512 a newer kernel folds a single stream. An older one sums streams without loads.
 */
static bool crc32c_streams(void)
{
#ifdef X86_FEATURE_PREFER_YMM
	if (boot_cpu_has(X86_FEATURE_PREFER_YMM))
		return true;
#endif
	return !boot_cpu_has(X86_FEATURE_VPCLMULQDQ) || !boot_cpu_has(X86_FEATURE_AVX512BW);
}
#else
static bool crc32c_streams(void)
{
	return false;
}
#endif

/* Bytes summed while as many more are loaded into the cache. */
#define AHEAD_BYTES	4096u

/*
 * Loads the next bytes of @part into the cache. Not prefetch(): on x86 it bypasses L2, where a copy
 * finds the bytes. One line at a time: CPUs drop prefetches of an unrolled loop.
 */
static void crc32c_ahead(const struct bio_vec *bv, struct bvec_iter part)
{
	struct bio_vec next;
	void *at, *end;

	if (!part.bi_size)
		return;
	next = mp_bvec_iter_bvec(bv, part);
	at = bvec_virt(&next);
	for (end = at + min(next.bv_len, AHEAD_BYTES); at < end; at += L1_CACHE_BYTES)
		__builtin_prefetch(at);
}

/*
 * Removes the first chunk from @part. Returns the chunk's checksum. Streams of cold bytes are in
 * small pieces, each summed while the next one is loaded. Bytes in the cache gain nothing by loads.
 * Inline: @part stays in registers.
 */
static __always_inline __le32 crc32c_chunk(const struct bio_vec *bv, struct bvec_iter *part,
					   bool cold)
{
	u32 left = min(part->bi_size, 1u << KVBLK_CHUNK_SHIFT), crc = KVBLK_CRC_INIT, len;
	bool ahead = cold && crc32c_streams();

	for (; left; left -= len) {
		struct bio_vec here = mp_bvec_iter_bvec(bv, *part);

		len = min3(here.bv_len, left, ahead ? AHEAD_BYTES : left);
		bvec_iter_advance_single(bv, part, len);
		if (ahead)
			crc32c_ahead(bv, *part);
		crc = crc32c(crc, bvec_virt(&here), len);
	}
	return cpu_to_le32(~crc);
}

static void crc32c_seal(const struct bio_vec *bv, struct bvec_iter part, bool cold, __le32 *crcs)
{
	while (part.bi_size)
		*crcs++ = crc32c_chunk(bv, &part, cold);
}

static bool crc32c_open(const struct bio_vec *bv, struct bvec_iter part, const __le32 *crcs)
{
	while (part.bi_size)
		if (*crcs++ != crc32c_chunk(bv, &part, false))
			return false;
	return true;
}

const struct kvblk_proof kvblk_proofs[KVBLK_INTEGRITIES] = {
	[KVBLK_INTEGRITY_NONE] = {},
	[KVBLK_INTEGRITY_CRC32C] = { .seal = crc32c_seal, .open = crc32c_open, .crc32c = true },
	[KVBLK_INTEGRITY_AES_GCM] = { .tags = true },
	[KVBLK_INTEGRITY_PRODUCER] = { .open = crc32c_open, .crc32c = true, .by_caller = true },
};

void kvblk_mem_seal(const struct kvblk_mem *mem, u8 integrity, __le32 *crcs)
{
	struct bvec_iter rest = kvblk_mem_payload(mem);

	for (; rest.bi_size; crcs += KVBLK_PROOF_BYTES >> KVBLK_CHUNK_SHIFT) {
		struct bvec_iter part = kvblk_part_next(mem->bv, &rest, KVBLK_PROOF_BYTES);

		kvblk_proofs[integrity].seal(mem->bv, part, true, crcs);
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
