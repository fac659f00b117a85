/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Names of blocks: a key and its tenant give a 128-bit id by SipHash-2-4 under
 * keys derived from the pool's secret, so that nobody outside can choose keys
 * that collide. The id finds an entry; the full key on media decides.
 */
#ifndef KVBLK_HASH_H
#define KVBLK_HASH_H

#include <linux/types.h>
#include <linux/siphash.h>

struct kvblk_id {
	u64 hi;
	u64 lo;
};

/**
 * struct kvblk_secret - what a pool derives from the 32 random bytes in its
 * superblocks
 * @id: keys from which the two words of each tenant's key come
 * @mac: key of record and summary MACs
 */
struct kvblk_secret {
	siphash_key_t id[2];
	siphash_key_t mac;
};

/* Derives @secret from the pool's 32 random bytes. */
void kvblk_secret_derive(struct kvblk_secret *secret, const u8 seed[32]);

/* Derives @key of @tenant: half of the cost of an id, so do it once. */
void kvblk_tenant_key_derive(siphash_key_t *key, const struct kvblk_secret *secret,
			     u16 tenant);
/* Id of @name (a key, 1 to KVBLK_KEY_MAX bytes) under a tenant's @key. Any context. */
struct kvblk_id kvblk_tenant_hash(const siphash_key_t *key, const void *name,
				  unsigned int len);

/* Id of @key of @tenant, where there is no place to keep the tenant's. */
struct kvblk_id kvblk_hash_key(const struct kvblk_secret *secret, u16 tenant,
			       const void *key, unsigned int len);

#endif
