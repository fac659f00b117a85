/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ids of blocks: SipHash of key and tenant under keys derived from the pool's secret, so that
 * nobody outside can choose colliding keys. The id finds an entry; the full key on media decides.
 */
#ifndef KVBLK_HASH_H
#define KVBLK_HASH_H

#include <linux/types.h>
#include <linux/siphash.h>

struct kvblk_id {
	u64 hi;
	u64 lo;
};

/* Keys derived from the 32 random bytes in the superblocks. */
struct kvblk_secret {
	siphash_key_t id[2];	/* for the two words of each tenant's key */
	siphash_key_t mac;	/* of records and summary pages */
};

void kvblk_secret_derive(struct kvblk_secret *secret, const u8 seed[32]);

/* Derive @key of @tenant. Keep it, because this is half of the cost of an id. */
void kvblk_tenant_key_derive(siphash_key_t *key, const struct kvblk_secret *secret, u16 tenant);
/* Return the id of @name (a key, 1 to KVBLK_KEY_MAX bytes) under a tenant's @key. Any context. */
struct kvblk_id kvblk_tenant_hash(const siphash_key_t *key, const void *name, unsigned int len);

#endif
