/* SPDX-License-Identifier: GPL-2.0 */
/* SipHash-2-4, the same results as the kernel's. */
#ifndef KVBLK_SHIM_LINUX_SIPHASH_H
#define KVBLK_SHIM_LINUX_SIPHASH_H

#include <linux/types.h>

typedef struct {
	u64 key[2];
} siphash_key_t;

u64 siphash(const void *data, size_t len, const siphash_key_t *key);
u64 siphash_1u64(u64 a, const siphash_key_t *key);
u64 siphash_2u64(u64 a, u64 b, const siphash_key_t *key);
u64 siphash_3u64(u64 a, u64 b, u64 c, const siphash_key_t *key);
u64 siphash_4u64(u64 a, u64 b, u64 c, u64 d, const siphash_key_t *key);

#endif
