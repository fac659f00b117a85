/* SPDX-License-Identifier: MIT */
/*
 * Keys of encrypted tenants. kvblkd keeps them wrapped by a master key of the kernel's keyrings, as
 * keys of the type "encrypted" in files keys/UUID OF THE POOL/TENANT.NUMBER. The rules:
 * - Only the kernel has a key in the clear: kvblkd asks it for a random one, reads the wrapped form,
 *   and passes the serial number to the module. So neither a core dump nor a log has a key.
 * - A key is in the keyring of the calling thread, and only until the module has copied it.
 * - A key is on the disk before a tenant has it.
 */
#ifndef KVBLKD_HOST_TENANT_KEYS_H
#define KVBLKD_HOST_TENANT_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "lib/kvblk_admin.h"

/**
 * struct kept_key - tenant with kept keys
 * @pool_uuid: pool of the tenant
 * @tenant: name of the tenant
 */
struct kept_key {
	uint8_t pool_uuid[16];
	char tenant[KVBLK_NAME_LEN_MAX + 1];
};

/*
 * Make a random key of @key, wrapped by @master ("user:NAME" or "trusted:NAME"), and keep it in
 * place of former ones. Call with the lock of kept.h. Returns the serial number of the kernel's key,
 * for tenant_key_drop(); 0 with a reason in @why, which has @len bytes.
 */
int32_t tenant_key_make(const struct kept_key *key, const char *master, char *why, size_t len);

/* Load the kept key of @key. Returns as tenant_key_make(). */
int32_t tenant_key_load(const struct kept_key *key, char *why, size_t len);

/* Forget the kernel's key @serial, which other processes could not use in any case. */
void tenant_key_drop(int32_t serial);

/* Remove all kept keys of @key from the disk. Call with the lock. Returns 0 or a negative errno. */
int tenant_key_remove(const struct kept_key *key);

/* List the tenants of the pool that have kept keys. Returns 0 or -ENOMEM. */
int tenant_key_list(const uint8_t pool_uuid[16], struct kept_key **list, size_t *nr);

#endif
