// SPDX-License-Identifier: GPL-2.0
/*
 * Keys of encrypted tenants. The rules:
 * - Keys are in memory only. Superblocks have 8 bytes of a hash, to refuse another key.
 * - A key is forgotten with its tenant and with its pool; operations hold it only while they
 *   seal or open.
 */
#include "memory/cipher.h"
#include "pool/pool.h"

/* Input of the HMAC in kvblk_d_tenant.key_check. */
struct check_input {
	char label[16];
	u8 pool[16];
	u8 name[KVBLK_NAME_MAX];
} __packed;

bool kvblk_tenant_locked(struct kvblk_pool *pool, u16 tenant)
{
	return kvblk_tenant_encrypted(pool, tenant) && !xa_load(&pool->tenants.keys, tenant);
}

struct kvblk_cipher *kvblk_tenant_cipher(struct kvblk_pool *pool, u16 tenant, u64 activation,
					 u16 epoch)
{
	return kvblk_keys_cipher(&pool->tenants.keys, tenant, activation, epoch);
}

/* Returns a key of @bytes for new records of @entry, or an ERR_PTR() with a message. */
static struct kvblk_key *key_new(struct kvblk_pool *pool, const u8 *bytes,
				 const struct kvblk_d_tenant *entry, struct netlink_ext_ack *extack)
{
	struct kvblk_key *key = kvblk_key_new(bytes, pool->activation,
					      le16_to_cpu(entry->key_epoch));

	if (key == ERR_PTR(-ENOENT))
		return ERR_PTR(kvblk_refuse(extack, -EOPNOTSUPP,
					    "the kernel lacks gcm(aes) or hmac(sha256)"));
	if (IS_ERR(key))
		return ERR_PTR(kvblk_refuse(extack, PTR_ERR(key),
					    "the key cannot be set up (error %ld)", PTR_ERR(key)));
	return key;
}

static int key_check(const struct kvblk_pool *pool, const u8 *bytes,
		     const struct kvblk_d_tenant *entry, __le64 *check)
{
	struct check_input input = { .label = "kvblk key check" };

	static_assert(sizeof(input.name) == sizeof(entry->name));
	memcpy(input.pool, &pool->uuid, sizeof(input.pool));
	memcpy(input.name, entry->name, sizeof(input.name));
	return kvblk_key_check(bytes, &input, sizeof(input), check);
}

int kvblk_tenant_key_set(struct kvblk_pool *pool, const u8 *bytes, struct kvblk_d_tenant *entry,
			 bool new, struct netlink_ext_ack *extack)
{
	const u16 id = le16_to_cpu(entry->id);
	struct kvblk_key *key, *old;
	__le64 check;
	int err;

	lockdep_assert_held(&pool->tenants.lock);
	key = key_new(pool, bytes, entry, extack);
	if (IS_ERR(key))
		return PTR_ERR(key);
	err = key_check(pool, bytes, entry, &check);
	if (err)
		err = kvblk_refuse(extack, err, "the key cannot be checked (error %d)", err);
	else if (new)
		entry->key_check = check;
	else if (entry->key_check != check)
		err = kvblk_refuse(extack, -EKEYREJECTED, "this is not the key of tenant %.31s",
				   (const char *)entry->name);
	old = err ? NULL : xa_store(&pool->tenants.keys, id, key, GFP_KERNEL);
	if (xa_is_err(old))
		err = kvblk_refuse(extack, xa_err(old), "no memory for the key");
	if (err)
		kvblk_key_put(key);
	else
		kvblk_key_put(old);
	return err;
}

void kvblk_tenant_key_drop(struct kvblk_pool *pool, u16 tenant)
{
	kvblk_key_put(xa_erase(&pool->tenants.keys, tenant));
}

void kvblk_tenant_key_move(struct kvblk_pool *pool, u16 from, u16 to)
{
	struct kvblk_key *key = xa_erase(&pool->tenants.keys, from);

	/* without memory the tenant is locked */
	if (key && xa_is_err(xa_store(&pool->tenants.keys, to, key, GFP_KERNEL)))
		kvblk_key_put(key);
}

void kvblk_tenant_keys_drop(struct kvblk_pool *pool)
{
	unsigned long tenant;
	struct kvblk_key *key;

	xa_for_each(&pool->tenants.keys, tenant, key)
		kvblk_tenant_key_drop(pool, tenant);
}
