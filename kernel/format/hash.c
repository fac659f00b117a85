// SPDX-License-Identifier: GPL-2.0
/*
 * Ids of blocks. The rule: everything here is part of the on-media format: with another label, word
 * order or key, every pool is empty after an import. selftests/host/hash_test.c holds vectors.
 *
 * The seed is two SipHash keys, A (bytes 0 to 15) and B (16 to 31). Word i of a derived key is
 * SipHash_A(label, i) ^ SipHash_B(label, i), pseudorandom as long as one half of the seed is
 * secret. No two words come from the same message, because each key has its label.
 *
 * The tenant selects a key, K = SipHash_id0(tenant), SipHash_id1(tenant); the id is
 * SipHash-2-4-128_K(key). K hashes keys of one tenant only, so no two pairs of tenant and key
 * have the same encoding, whatever the lengths. Every id may occur, all zeroes included.
 */
#include <linux/siphash.h>
#include <linux/types.h>
#include <linux/unaligned.h>

#include "format/hash.h"

/* ASCII, so that a memory dump shows what the messages are */
#define KVBLK_LABEL_ID0		0x3064692d6b6c6276ULL	/* "vblk-id0" */
#define KVBLK_LABEL_ID1		0x3164692d6b6c6276ULL	/* "vblk-id1" */
#define KVBLK_LABEL_MAC		0x63616d2d6b6c6276ULL	/* "vblk-mac" */

#define SIPROUND	SIPHASH_PERMUTATION(v0, v1, v2, v3)

static void siphash_key_derive(siphash_key_t *key, u64 label,
			       const siphash_key_t *a, const siphash_key_t *b)
{
	unsigned int i;

	for (i = 0; i < 2; i++)
		key->key[i] = siphash_2u64(label, i, a) ^ siphash_2u64(label, i, b);
}

void kvblk_secret_derive(struct kvblk_secret *secret, const u8 seed[32])
{
	siphash_key_t a = {{ get_unaligned_le64(seed), get_unaligned_le64(seed + 8) }};
	siphash_key_t b = {{ get_unaligned_le64(seed + 16), get_unaligned_le64(seed + 24) }};

	siphash_key_derive(&secret->id[0], KVBLK_LABEL_ID0, &a, &b);
	siphash_key_derive(&secret->id[1], KVBLK_LABEL_ID1, &a, &b);
	siphash_key_derive(&secret->mac, KVBLK_LABEL_MAC, &a, &b);
}

void kvblk_tenant_key_derive(siphash_key_t *key, const struct kvblk_secret *secret, u16 tenant)
{
	key->key[0] = siphash_1u64(tenant, &secret->id[0]);
	key->key[1] = siphash_1u64(tenant, &secret->id[1]);
}

/* Return the last @left bytes of @name, which begin at @at, as a number. */
static __always_inline u64 tail_word(const u8 *name, const u8 *at, unsigned int left)
{
	u64 word = 0;

	if (!left)
		return 0;
	/* the word may begin before @at, but not before @name */
	if (at != name)
		return get_unaligned_le64(at + left - 8) >> 8 * (8 - left);
	while (left--)
		word = word << 8 | at[left];
	return word;
}

/* SipHash-2-4-128. The kernel's siphash() has 64 bits; two calls cost nearly twice as much. */
struct kvblk_id kvblk_tenant_hash(const siphash_key_t *key, const void *name, unsigned int len)
{
	u64 v0 = SIPHASH_CONST_0 ^ key->key[0];
	u64 v1 = SIPHASH_CONST_1 ^ key->key[1] ^ 0xee;
	u64 v2 = SIPHASH_CONST_2 ^ key->key[0];
	u64 v3 = SIPHASH_CONST_3 ^ key->key[1];
	u64 last = (u64)len << 56, word;
	const u8 *at = name;
	struct kvblk_id id;
	unsigned int i;

	for (i = len / 8; i; i--, at += 8) {
		word = get_unaligned_le64(at);
		v3 ^= word;
		SIPROUND;
		SIPROUND;
		v0 ^= word;
	}
	last |= tail_word(name, at, len % 8);
	v3 ^= last;
	SIPROUND;
	SIPROUND;
	v0 ^= last;

	/* unrolled, because compilers keep the loops */
	v2 ^= 0xee;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	id.hi = v0 ^ v1 ^ v2 ^ v3;
	v1 ^= 0xdd;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	id.lo = v0 ^ v1 ^ v2 ^ v3;
	return id;
}
