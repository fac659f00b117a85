/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Proofs: how a payload is known to be what was put. A record's header names its proof, &enum
 * kvblk_integrity, and has the checksums of its chunks. Decisions are pure logic: selftests/host.
 */
#ifndef KVBLK_PROOF_H
#define KVBLK_PROOF_H

#include <linux/types.h>

#include <linux/kvblk.h>

#include "format/format.h"

struct bio_vec;
struct bvec_iter;

/* Functions of a proof, for whole chunks of memory that the CPU may read. */
struct kvblk_proof {
	/*
	 * compute the checksums of a part's chunks; NULL: the module does not.
	 * @cold: no CPU has just copied the bytes, so load them into the cache in advance
	 */
	void (*seal)(const struct bio_vec *bv, struct bvec_iter part, bool cold, __le32 *crcs);
	/* return whether a part's chunks match their checksums; NULL: there are none */
	bool (*open)(const struct bio_vec *bv, struct bvec_iter part, const __le32 *crcs);
	bool crc32c;		/* the checksums, also for callers, are CRC32C of the payload */
	bool by_caller;		/* the caller computed the checksums: a mismatch may be its error */
	bool tags;		/* tags of memory/cipher.h: the payload is encrypted */
};

/* By &enum kvblk_integrity. No payload of a kind without a row is served. */
extern const struct kvblk_proof kvblk_proofs[KVBLK_INTEGRITIES];

/*
 * Returns the proof of a new record. @given: the caller gave checksums. @unseen: the CPU would read
 * the payload for nothing else.
 */
static inline u8 kvblk_proof_choose(u32 policy, bool given, bool unseen)
{
	if (given)
		return KVBLK_INTEGRITY_PRODUCER;
	return policy == KVBLK_CHECK_HEADER || (policy == KVBLK_CHECK_PRODUCER && unseen) ?
	       KVBLK_INTEGRITY_NONE : KVBLK_INTEGRITY_CRC32C;
}

/* Verdicts about a payload. */
enum kvblk_verdict {
	KVBLK_SERVE,			/* deliver it unverified */
	KVBLK_VERIFY,			/* deliver it if it matches its checksums */
	KVBLK_REFUSE,			/* miss: it must be verified, but has no checksums */
};

/* Facts about a payload on a member. */
struct kvblk_proof_case {
	u32 policy;			/* KVBLK_CHECK_* of the pool */
	u8 integrity;			/* of the record, &enum kvblk_integrity */
	bool durable;			/* the record was written past volatile caches */
	bool unproven;			/* a crash may have lost payloads of the segment */
	bool seen;			/* the CPU sees the payload, and the caller verifies none */
	bool returned;			/* the caller gets CRC32Cs, and verifies if not @seen */
};

/* Returns what to do with a payload. @proof: the row of get->integrity. */
static inline enum kvblk_verdict kvblk_proof_judge(const struct kvblk_proof *proof,
						   const struct kvblk_proof_case *get)
{
	bool must = get->policy == KVBLK_CHECK_FULL || get->unproven;

	if (get->integrity == KVBLK_INTEGRITY_NONE)
		return must ? KVBLK_REFUSE : KVBLK_SERVE;
	/* by the tenant's cipher: the payload is unreadable before */
	if (proof->tags)
		return KVBLK_VERIFY;
	/* or else a medium with a kind that this module lacks would cause a NULL call */
	if (!proof->open)
		return KVBLK_REFUSE;
	if (get->returned && !get->seen && !get->unproven)
		return KVBLK_SERVE;
	return must || get->seen || !get->durable ? KVBLK_VERIFY : KVBLK_SERVE;
}

/* kvblk_proof_judge() in DRAM. @unproven: read from a member, without verification. */
static inline enum kvblk_verdict kvblk_proof_judge_dram(const struct kvblk_proof *proof,
							u32 policy, u8 integrity, bool unproven)
{
	if (integrity == KVBLK_INTEGRITY_NONE)
		return policy == KVBLK_CHECK_FULL && unproven ? KVBLK_REFUSE : KVBLK_SERVE;
	if (!proof->open)
		return KVBLK_REFUSE;
	return policy == KVBLK_CHECK_FULL ||
	       (policy == KVBLK_CHECK_PRODUCER && integrity == KVBLK_INTEGRITY_PRODUCER) ?
	       KVBLK_VERIFY : KVBLK_SERVE;
}

/* Bytes to seal or open at once: fit an L2 cache together with the destination of a copy. */
#define KVBLK_PROOF_BYTES	(256u << 10)

struct kvblk_mem;

/* Seals a whole payload. May sleep. */
void kvblk_mem_seal(const struct kvblk_mem *mem, u8 integrity, __le32 *crcs);
/* Opens any number of chunks. May sleep. */
bool kvblk_proof_open(u8 integrity, const struct bio_vec *bv, struct bvec_iter rest,
		      const __le32 *crcs);

#endif
