// SPDX-License-Identifier: MIT
/* Keys of encrypted tenants, see tenant_keys.h. */
#include <ctype.h>
#include <errno.h>
#include <linux/keyctl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/uuid.h"
#include "host/kept.h"
#include "host/tenant_keys.h"

/* Room for the wrapped form: "default", the name of the master key, "32", and 81 bytes in hex. */
#define BLOB_LEN	1024
#define NAME_LEN	(40 + sizeof("keys/") + KVBLK_NAME_LEN_MAX + 8)

/* Number of a tenant's key. A tenant has one key now; files of more would have other numbers. */
#define KEY_NUMBER	0

static char *pool_name(const uint8_t pool_uuid[16], char name[NAME_LEN])
{
	char uuid[40];

	snprintf(name, NAME_LEN, "keys/%s", uuid_format(pool_uuid, uuid));
	return name;
}

static char *file_name(const struct kept_key *key, char name[NAME_LEN])
{
	char uuid[40];

	snprintf(name, NAME_LEN, "keys/%s/%s.%d", uuid_format(key->pool_uuid, uuid), key->tenant,
		 KEY_NUMBER);
	return name;
}

/* Split "TENANT.NUMBER". Returns false for another file, such as one that was being written. */
static bool parse_name(const char *name, char tenant[KVBLK_NAME_LEN_MAX + 1])
{
	const char *dot = strrchr(name, '.');
	const char *digits = dot ? dot + 1 : "";

	if (!*digits || digits[strspn(digits, "0123456789")] || dot == name ||
	    dot - name > KVBLK_NAME_LEN_MAX)
		return false;
	snprintf(tenant, KVBLK_NAME_LEN_MAX + 1, "%.*s", (int)(dot - name), name);
	return true;
}

static void describe(int err, char *why, size_t len)
{
	if (err == ENODEV)
		snprintf(why, len, "the kernel has no keys of the type encrypted: load the module encrypted-keys, or set CONFIG_ENCRYPTED_KEYS");
	else if (err == ENOKEY)
		snprintf(why, len, "the master key is not in a keyring of kvblkd: see \"Encryption\" in the administrator's guide");
	else if (err == EINVAL)
		snprintf(why, len, "the kernel refuses the wrapped key: it was changed, or the master key is another one");
	else
		snprintf(why, len, "the kernel takes no key: %s", strerror(err));
}

/* Add a key of the type "encrypted" to the thread's keyring. Returns its serial, or 0. */
static int32_t add(const char *command, char *why, size_t len)
{
	/* no library: keyutils wraps no more than this call */
	long serial = syscall(SYS_add_key, "encrypted", "kvblk:tenant", command, strlen(command),
			      KEY_SPEC_THREAD_KEYRING);

	if (serial > 0)
		return (int32_t)serial;
	describe(errno, why, len);
	return 0;
}

/* Read the wrapped form of @serial. Returns false with a reason in @why. */
static bool read_wrapped(int32_t serial, char blob[BLOB_LEN], char *why, size_t len)
{
	/* the length of all of it, also if there is no room */
	long n = syscall(SYS_keyctl, KEYCTL_READ, serial, blob, BLOB_LEN - 1);

	if (n >= 0 && n < BLOB_LEN) {
		blob[n] = '\0';
		return true;
	}
	describe(n < 0 ? errno : EFBIG, why, len);
	return false;
}

/* Keep @blob in place of former keys. Returns false with a reason in @why. */
static bool keep(const struct kept_key *key, const char *blob, char *why, size_t len)
{
	char name[NAME_LEN], path[KEPT_PATH_LEN];
	int err = tenant_key_remove(key);

	file_name(key, name);
	if (!err)
		err = kept_write(name, blob);
	if (err)
		snprintf(why, len, "%s: %s", kept_path(name, path), strerror(-err));
	return !err;
}

void tenant_key_drop(int32_t serial)
{
	/* at once, also for a reference that another task may hold */
	if (syscall(SYS_keyctl, KEYCTL_INVALIDATE, serial))
		syscall(SYS_keyctl, KEYCTL_UNLINK, serial, KEY_SPEC_THREAD_KEYRING);
}

int32_t tenant_key_make(const struct kept_key *key, const char *master, char *why, size_t len)
{
	char command[256], blob[BLOB_LEN];
	int32_t serial;

	snprintf(command, sizeof(command), "new default %s 32", master);
	serial = add(command, why, len);
	if (!serial || (read_wrapped(serial, blob, why, len) && keep(key, blob, why, len)))
		return serial;
	tenant_key_drop(serial);
	return 0;
}

int32_t tenant_key_load(const struct kept_key *key, char *why, size_t len)
{
	char command[BLOB_LEN + 8], blob[BLOB_LEN], name[NAME_LEN], path[KEPT_PATH_LEN];
	int err = kept_read(file_name(key, name), blob, sizeof(blob));

	if (err == -ENOENT) {
		snprintf(why, len, "kvblkd has no key of this tenant; if you have it, run: kvblk tenant key");
		return 0;
	}
	if (err) {
		snprintf(why, len, "%s: %s", kept_path(name, path), strerror(-err));
		return 0;
	}
	snprintf(command, sizeof(command), "load %s", blob);
	return add(command, why, len);
}

int tenant_key_remove(const struct kept_key *key)
{
	char tenant[KVBLK_NAME_LEN_MAX + 1], folder[NAME_LEN], name[KEPT_PATH_LEN];
	DIR *directory = kept_list(pool_name(key->pool_uuid, folder));
	const struct dirent *entry;
	int err = 0;

	while (directory && !err && (entry = readdir(directory))) {
		if (!parse_name(entry->d_name, tenant) || strcmp(tenant, key->tenant) != 0)
			continue;
		snprintf(name, sizeof(name), "%s/%s", folder, entry->d_name);
		err = kept_remove(name);
	}
	if (directory)
		closedir(directory);
	return err;
}

static bool is_listed(const struct kept_key *list, size_t nr, const char *tenant)
{
	for (size_t i = 0; i < nr; i++) {
		if (!strcmp(list[i].tenant, tenant))
			return true;
	}
	return false;
}

int tenant_key_list(const uint8_t pool_uuid[16], struct kept_key **list, size_t *nr)
{
	char tenant[KVBLK_NAME_LEN_MAX + 1], name[NAME_LEN];
	const struct dirent *entry;
	struct kept_key *more;
	DIR *directory = kept_list(pool_name(pool_uuid, name));
	const size_t first = *nr;
	int err = 0;

	while (directory && !err && (entry = readdir(directory))) {
		if (!parse_name(entry->d_name, tenant) ||
		    (*list && is_listed(*list + first, *nr - first, tenant)))
			continue;
		more = reallocarray(*list, *nr + 1, sizeof(*more));
		if (!more) {
			err = -ENOMEM;
			continue;
		}
		*list = more;
		more += (*nr)++;
		memcpy(more->pool_uuid, pool_uuid, sizeof(more->pool_uuid));
		memcpy(more->tenant, tenant, sizeof(more->tenant));
	}
	if (directory)
		closedir(directory);
	return err;
}
