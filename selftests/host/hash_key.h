/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_HASH_KEY_H
#define KVBLK_HASH_KEY_H

#include "format/hash.h"

/* Return the id of @key of @tenant, for callers that do not keep the tenant's key. */
static inline struct kvblk_id kvblk_hash_key(const struct kvblk_secret *secret, u16 tenant,
					     const void *key, unsigned int len)
{
	siphash_key_t tenant_key;

	kvblk_tenant_key_derive(&tenant_key, secret, tenant);
	return kvblk_tenant_hash(&tenant_key, key, len);
}

#endif
