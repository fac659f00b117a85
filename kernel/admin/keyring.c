// SPDX-License-Identifier: GPL-2.0
/*
 * Keys of the kernel's keyrings. The rule: a key is copied once, in the request of the task that
 * may search it, and no reference is kept. Types are compared by name, because those of trusted and
 * encrypted keys are in modules of their own.
 */
#include <keys/encrypted-type.h>
#include <keys/trusted-type.h>
#include <keys/user-type.h>
#include <linux/key-type.h>
#include <linux/key.h>
#include <linux/string.h>

#include "admin/netlink.h"
#include "memory/cipher.h"

struct payload {
	const u8 *bytes;
	u32 len;
};

/* Returns the payload, valid under key->sem; empty if revoked or of another type. */
static struct payload key_payload(const struct key *key)
{
	const void *data = key->payload.data[0];
	const struct encrypted_key_payload *encrypted = data;
	const struct trusted_key_payload *trusted = data;
	const struct user_key_payload *user = data;
	const char *type = key->type->name;

	if (!data)
		return (struct payload) {};
	if (!strcmp(type, "logon") || !strcmp(type, "user"))
		return (struct payload) { user->data, user->datalen };
	if (!strcmp(type, "encrypted"))
		return (struct payload) { encrypted->decrypted_data, encrypted->decrypted_datalen };
	if (!strcmp(type, "trusted"))
		return (struct payload) { trusted->key, trusted->key_len };
	return (struct payload) {};
}

int kvblk_keyring_read(s32 serial, u8 *bytes, struct netlink_ext_ack *extack)
{
	key_ref_t ref = lookup_user_key(serial, 0, KEY_NEED_SEARCH);
	struct payload payload;
	struct key *key;
	int err = 0;

	if (IS_ERR(ref))
		return kvblk_refuse(extack, PTR_ERR(ref), "no key %d can be used: see keyctl(1), \"keyctl show\"",
				    serial);
	key = key_ref_to_ptr(ref);
	down_read(&key->sem);
	payload = key_payload(key);
	if (payload.len == KVBLK_KEY_BYTES)
		memcpy(bytes, payload.bytes, KVBLK_KEY_BYTES);
	else if (payload.bytes)
		err = kvblk_refuse(extack, -EINVAL, "the key has %u bytes, but must have 32",
				   payload.len);
	else
		err = kvblk_refuse(extack, -EINVAL, "the key's type must be logon, user, trusted or encrypted");
	up_read(&key->sem);
	key_ref_put(ref);
	return err;
}
