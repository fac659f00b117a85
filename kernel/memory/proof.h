/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Proofs: how a payload is known to be what was put. The header of a record names its proof,
 * &enum kvblk_integrity, and has the checksums of its chunks. proof.c has the computations.
 */
#ifndef KVBLK_PROOF_H
#define KVBLK_PROOF_H

#include <linux/types.h>

#include "format/format.h"

struct bio_vec;
struct bvec_iter;

/* Functions of a proof, for whole chunks of memory that the CPU may read. */
struct kvblk_proof {
	/* compute the checksums of a part's chunks; NULL: the module does not */
	void (*seal)(const struct bio_vec *bv, struct bvec_iter part, __le32 *crcs);
	/* return whether a part's chunks match their checksums; NULL: there are none */
	bool (*open)(const struct bio_vec *bv, struct bvec_iter part, const __le32 *crcs);
	bool crc32c;		/* the checksums are CRC32C of the bytes that callers see */
	bool by_caller;		/* the caller computed the checksums: a mismatch may be its error */
};

/* By &enum kvblk_integrity. */
extern const struct kvblk_proof kvblk_proofs[KVBLK_INTEGRITIES];

/* Bytes to seal or open at once: fit an L2 cache together with the destination of a copy. */
#define KVBLK_PROOF_BYTES	(256u << 10)

struct kvblk_mem;

/* Seals a whole payload. May sleep. */
void kvblk_mem_seal(const struct kvblk_mem *mem, u8 integrity, __le32 *crcs);
/* Opens any number of chunks. May sleep. */
bool kvblk_proof_open(u8 integrity, const struct bio_vec *bv, struct bvec_iter rest,
		      const __le32 *crcs);

#endif
