/* SPDX-License-Identifier: GPL-2.0 */
/* SipHash-2-4, with the kernel's results. */
#ifndef KVBLK_SHIM_LINUX_SIPHASH_H
#define KVBLK_SHIM_LINUX_SIPHASH_H

#include <linux/types.h>

typedef struct {
	u64 key[2];
} siphash_key_t;

#define SIPHASH_CONST_0 0x736f6d6570736575ULL
#define SIPHASH_CONST_1 0x646f72616e646f6dULL
#define SIPHASH_CONST_2 0x6c7967656e657261ULL
#define SIPHASH_CONST_3 0x7465646279746573ULL
#define SIPHASH_ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define SIPHASH_PERMUTATION(a, b, c, d) ( \
	(a) += (b), (b) = SIPHASH_ROTL(b, 13), (b) ^= (a), (a) = SIPHASH_ROTL(a, 32), \
	(c) += (d), (d) = SIPHASH_ROTL(d, 16), (d) ^= (c), \
	(a) += (d), (d) = SIPHASH_ROTL(d, 21), (d) ^= (a), \
	(c) += (b), (b) = SIPHASH_ROTL(b, 17), (b) ^= (c), (c) = SIPHASH_ROTL(c, 32))

u64 siphash(const void *data, size_t len, const siphash_key_t *key);
u64 siphash_1u64(u64 a, const siphash_key_t *key);
u64 siphash_2u64(u64 a, u64 b, const siphash_key_t *key);
u64 siphash_3u64(u64 a, u64 b, u64 c, const siphash_key_t *key);
u64 siphash_4u64(u64 a, u64 b, u64 c, u64 d, const siphash_key_t *key);

#endif
