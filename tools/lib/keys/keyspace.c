// SPDX-License-Identifier: MIT
/*
 * Keys that no two runtimes, models or parallel layouts share.
 *
 * A key is the scheme's name, a digest and the block's id. The digest covers everything a
 * block's bytes depend on except its tokens; the id identifies its tokens and all
 * preceding ones. The digest's input has the name and length of each field, so two
 * different specs never have equal input. A change of either needs a scheme with a new
 * name.
 *
 * A process that can make a key can store a wrong block before the runtime does. The
 * deployment's salt, a secret, limits this to the readers of the salt's file.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sha2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/kvblk_keys.h"

static const char scheme[] = { 'k', 'v', 'b', '1' };

_Static_assert(sizeof(scheme) + sizeof(struct kvblk_keyspace) == KVBLK_KEYSPACE_LEN, "documented");

static void add_text(SHA2_CTX *hash, const char *name, const char *text)
{
	size_t len = text ? strlen(text) : 0;
	char head[64];
	int n = snprintf(head, sizeof(head), "%s=%zu:", name, len);

	SHA256Update(hash, (const uint8_t *)head, (size_t)n);
	if (len)
		SHA256Update(hash, (const uint8_t *)text, len);
	SHA256Update(hash, (const uint8_t *)"\n", 1);
}

static void add_number(SHA2_CTX *hash, const char *name, uint32_t number)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", number);
	add_text(hash, name, text);
}

static bool is_set(const char *text)
{
	return text && *text;
}

/* Copy @spec, of the size that its caller knows, zero-extended. Returns 0, -EINVAL or -E2BIG. */
static int read_spec(struct kvblk_keyspace_spec *to, const struct kvblk_keyspace_spec *spec)
{
	const char *bytes = (const char *)spec;
	size_t len = spec->size;

	if (len < sizeof(spec->size))
		return -EINVAL;
	if (len > KVBLK_STRUCT_MAX)
		return -E2BIG;
	for (size_t i = sizeof(*to); i < len; i++) {
		if (bytes[i])
			return -E2BIG;
	}
	memset(to, 0, sizeof(*to));
	memcpy(to, spec, len < sizeof(*to) ? len : sizeof(*to));
	return 0;
}

int kvblk_keyspace_init(struct kvblk_keyspace *space,
			const struct kvblk_keyspace_spec *callers)
{
	struct kvblk_keyspace_spec copy, *const spec = &copy;
	uint8_t digest[SHA256_DIGEST_LENGTH];
	uint32_t tp_size, pp_size, cp_size;
	SHA2_CTX hash;
	int err = read_spec(spec, callers);

	if (err)
		return err;
	tp_size = spec->tp_size ? spec->tp_size : 1;
	pp_size = spec->pp_size ? spec->pp_size : 1;
	cp_size = spec->cp_size ? spec->cp_size : 1;
	if (!is_set(spec->runtime) || !is_set(spec->model) || !is_set(spec->dtype) ||
	    !is_set(spec->layout) || !spec->block_tokens || spec->tp_rank >= tp_size ||
	    spec->pp_rank >= pp_size || spec->cp_rank >= cp_size)
		return -EINVAL;
	SHA256Init(&hash);
	add_text(&hash, "scheme", "kvb1");
	/* no line without a salt, so that such keys stay as they were before salts */
	if (is_set(spec->secret))
		add_text(&hash, "secret", spec->secret);
	add_text(&hash, "runtime", spec->runtime);
	add_text(&hash, "model", spec->model);
	add_text(&hash, "tokenizer", spec->tokenizer);
	add_text(&hash, "dtype", spec->dtype);
	add_text(&hash, "layout", spec->layout);
	add_text(&hash, "salt", spec->salt);
	add_number(&hash, "block_tokens", spec->block_tokens);
	add_number(&hash, "tp_rank", spec->tp_rank);
	add_number(&hash, "tp_size", tp_size);
	add_number(&hash, "pp_rank", spec->pp_rank);
	add_number(&hash, "pp_size", pp_size);
	add_number(&hash, "cp_rank", spec->cp_rank);
	add_number(&hash, "cp_size", cp_size);
	SHA256Final(digest, &hash);
	memcpy(space->digest, digest, sizeof(space->digest));
	return 0;
}

/* Read the salt from @fd. Returns as kvblk_keyspace_salt() does. */
static int read_salt(int fd, char salt[KVBLK_SALT_LEN + 1], const char **why)
{
	/* the salt, the newline, and a byte more to reveal a longer file */
	char text[KVBLK_SALT_LEN + 2];
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		*why = "it is not a regular file";
		return -EBADMSG;
	}
	if (st.st_mode & (S_IWGRP | S_IRWXO)) {
		*why = "others may read it or its group may change it; replace it, or chmod 0640 it if nobody has read it";
		return -EKEYREJECTED;
	}
	/* because the owner can change the file, and its mode, at any time */
	if (st.st_uid && st.st_uid != geteuid()) {
		*why = "neither root nor the caller owns it; replace it, or chown it to root if nobody else has read it";
		return -EKEYREJECTED;
	}
	n = read(fd, text, sizeof(text));
	if (n < 0) {
		*why = strerrordesc_np(errno);
		return -errno;
	}
	if (n != KVBLK_SALT_LEN + 1 || text[KVBLK_SALT_LEN] != '\n' ||
	    strspn(text, "0123456789abcdef") != KVBLK_SALT_LEN) {
		*why = "it is not 64 hex digits in lower case and a newline";
		return -EBADMSG;
	}
	memcpy(salt, text, KVBLK_SALT_LEN);
	salt[KVBLK_SALT_LEN] = '\0';
	*why = NULL;
	return 0;
}

int kvblk_keyspace_salt(const char *path, char salt[KVBLK_SALT_LEN + 1], const char **why)
{
	/* O_NONBLOCK: a FIFO must not block the caller */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	const char *reason = NULL;
	int err = fd < 0 ? -errno : 0;

	salt[0] = '\0';
	if (fd >= 0) {
		err = read_salt(fd, salt, &reason);
		close(fd);
	} else {
		reason = strerrordesc_np(-err);
	}
	if (why)
		*why = reason;
	return err;
}

int kvblk_keyspace_key(const struct kvblk_keyspace *space, const void *id, size_t id_len,
		       uint8_t *key, size_t *key_len)
{
	size_t len = KVBLK_KEYSPACE_LEN + id_len;

	if (!id_len || id_len > KVBLK_KEY_MAX - KVBLK_KEYSPACE_LEN)
		return -EINVAL;
	if (*key_len < len)
		return -EMSGSIZE;
	memcpy(key, scheme, sizeof(scheme));
	memcpy(key + sizeof(scheme), space->digest, sizeof(space->digest));
	memcpy(key + KVBLK_KEYSPACE_LEN, id, id_len);
	*key_len = len;
	return 0;
}

void kvblk_block_id(const uint8_t *parent, const uint32_t *tokens, size_t nr_tokens,
		    const void *extra, size_t extra_len, uint8_t id[KVBLK_BLOCK_ID_LEN])
{
	static const uint8_t none[KVBLK_BLOCK_ID_LEN];
	uint64_t nr = htole64(nr_tokens);
	SHA2_CTX hash;

	SHA256Init(&hash);
	SHA256Update(&hash, parent ? parent : none, KVBLK_BLOCK_ID_LEN);
	SHA256Update(&hash, (const uint8_t *)&nr, sizeof(nr));
	for (size_t i = 0; i < nr_tokens; i++) {
		uint32_t token = htole32(tokens[i]);

		SHA256Update(&hash, (const uint8_t *)&token, sizeof(token));
	}
	if (extra_len)
		SHA256Update(&hash, extra, extra_len);
	SHA256Final(id, &hash);
}
