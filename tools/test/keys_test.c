// SPDX-License-Identifier: MIT
/* libkvblk-keys as a runtime uses it, with the test vectors of Documentation/keys.rst. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvblk_keys.h>

#include "kvblk_test.h"

static const struct kvblk_keyspace_spec example = {
	.size = sizeof(example),
	.runtime = "example/1",
	.model = "tiny",
	.dtype = "float16",
	.layout = "LKTHD",
	.block_tokens = 64,
};

/* Compare @bytes with the hexadecimal @text. */
static void assert_hex(const uint8_t *bytes, size_t len, const char *text)
{
	char hex[KVBLK_KEY_MAX * 2 + 1];

	for (size_t i = 0; i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, text);
}

TEST(test_spaces)
{
	const struct kvblk_keyspace_spec other = {
		.size = sizeof(other),
		.runtime = "vllm-offload/1",
		.model = "meta-llama/Llama-3.1-8B@d04e592",
		.tokenizer = "llama-3.1",
		.dtype = "bfloat16",
		.layout = "32x2x16x8x128",
		.salt = "tenant-7",
		.block_tokens = 16,
		.tp_rank = 3,
		.tp_size = 8,
		.pp_rank = 1,
		.pp_size = 2,
	};
	struct kvblk_keyspace space;

	assert_int_equal(kvblk_keyspace_init(&space, &example), 0);
	assert_hex(space.digest, 16, "e7940858f1756b790e5d78b122ca70f1");
	assert_int_equal(kvblk_keyspace_init(&space, &other), 0);
	assert_hex(space.digest, 16, "d577bf42b1a739d4f899025fd276a19a");
}

TEST(test_keys)
{
	uint8_t id[KVBLK_BLOCK_ID_LEN], key[KVBLK_KEY_MAX];
	struct kvblk_keyspace space;
	uint32_t tokens[128];
	size_t len = 52;

	for (uint32_t i = 0; i < 128; i++)
		tokens[i] = i;
	assert_int_equal(kvblk_keyspace_init(&space, &example), 0);
	kvblk_block_id(NULL, tokens, 64, NULL, 0, id);
	assert_hex(id, 32, "b31003adecd2f3f3f642002cd91d93c8cfe37080230027887ca70c22ca578ee6");
	assert_int_equal(kvblk_keyspace_key(&space, id, sizeof(id), key, &len), 0);
	assert_int_equal(len, 52);
	assert_hex(key, len, "6b766231e7940858f1756b790e5d78b122ca70f1"
			     "b31003adecd2f3f3f642002cd91d93c8cfe37080230027887ca70c22ca578ee6");
	kvblk_block_id(id, tokens + 64, 64, "picture", 7, key);
	assert_hex(key, 32, "878c98ba4f20051de973b1c109e200b0a9da6759608a8be236e1f99e2af9b2bb");
	kvblk_block_id(id, tokens + 64, 64, NULL, 0, id);
	assert_hex(id, 32, "c644ae874c9d3f3f8aa6cd3539b743c9b37d125608c330405646971387367fd4");
	len = 51;
	assert_int_equal(kvblk_keyspace_key(&space, id, sizeof(id), key, &len), -EMSGSIZE);
	len = sizeof(key);
	assert_int_equal(kvblk_keyspace_key(&space, id, 0, key, &len), -EINVAL);
	assert_int_equal(kvblk_keyspace_key(&space, key, KVBLK_KEY_MAX - KVBLK_KEYSPACE_LEN + 1,
					    key, &len), -EINVAL);
}

static const char known[] = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/* The salt is a line of its own; an empty one is none. */
TEST(test_secret)
{
	struct kvblk_keyspace_spec spec = example;
	struct kvblk_keyspace space;

	spec.secret = "";
	assert_int_equal(kvblk_keyspace_init(&space, &spec), 0);
	assert_hex(space.digest, 16, "e7940858f1756b790e5d78b122ca70f1");
	spec.secret = known;
	assert_int_equal(kvblk_keyspace_init(&space, &spec), 0);
	assert_hex(space.digest, 16, "1a472cdbe252ef85e250a7f4bc9872c3");
}

static uid_t owner = (uid_t)-1;		/* owner in the result of fstat(); -1: the file's */

/* replaces libc's, in the library, too */
int fstat(int fd, struct stat *st)
{
	char path[32];
	int ret;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ret = stat(path, st);
	if (owner != (uid_t)-1)
		st->st_uid = owner;
	return ret;
}

/* Write @text to the file @path, read the salt, and remove the file. Returns the result of the read. */
static int salt_of(const char *path, const char *text, mode_t mode, char salt[KVBLK_SALT_LEN + 1])
{
	FILE *file = fopen(path, "w");
	const char *why;
	int err;

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
	err = kvblk_keyspace_salt(path, salt, &why);
	assert_int_equal(!err, !why);
	assert_int_equal(kvblk_keyspace_salt(path, salt, NULL), err);
	unlink(path);
	return err;
}

TEST(test_salts)
{
	char dir[] = "/tmp/kvblk-keys-test-XXXXXX", path[64], text[80], wrong[96];
	char salt[KVBLK_SALT_LEN + 1] = "old";
	const char *why;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/salt", dir);
	snprintf(text, sizeof(text), "%s\n", known);
	assert_int_equal(kvblk_keyspace_salt(path, salt, &why), -ENOENT);
	assert_string_equal(why, "No such file or directory");
	assert_string_equal(salt, "");
	assert_int_equal(kvblk_keyspace_salt("", salt, NULL), -ENOENT);
	assert_int_equal(kvblk_keyspace_salt(dir, salt, NULL), -EBADMSG);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(kvblk_keyspace_salt(path, salt, NULL), -EBADMSG);
	unlink(path);
	assert_int_equal(salt_of(path, text, 0644, salt), -EKEYREJECTED);
	assert_int_equal(salt_of(path, text, 0660, salt), -EKEYREJECTED);
	assert_int_equal(salt_of(path, "", 0640, salt), -EBADMSG);
	assert_int_equal(salt_of(path, known, 0640, salt), -EBADMSG);
	assert_int_equal(salt_of(path, text + 1, 0640, salt), -EBADMSG);
	snprintf(wrong, sizeof(wrong), "%s\n", text);
	assert_int_equal(salt_of(path, wrong, 0640, salt), -EBADMSG);
	snprintf(wrong, sizeof(wrong), "A%s", text + 1);
	assert_int_equal(salt_of(path, wrong, 0640, salt), -EBADMSG);
	assert_string_equal(salt, "");
	assert_int_equal(salt_of(path, text, 0640, salt), 0);
	assert_string_equal(salt, known);
	rmdir(dir);
}

/* A file of another user than root and the caller is no secret. */
TEST(test_salt_owner)
{
	char dir[] = "/tmp/kvblk-keys-test-XXXXXX", path[64], text[80];
	char salt[KVBLK_SALT_LEN + 1] = "old";

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/salt", dir);
	snprintf(text, sizeof(text), "%s\n", known);
	owner = geteuid() + 1;
	assert_int_equal(salt_of(path, text, 0400, salt), -EKEYREJECTED);
	assert_string_equal(salt, "");
	owner = geteuid();
	assert_int_equal(salt_of(path, text, 0400, salt), 0);
	owner = 0;
	assert_int_equal(salt_of(path, text, 0640, salt), 0);
	assert_string_equal(salt, known);
	owner = (uid_t)-1;
	rmdir(dir);
}

static void rejects(const struct kvblk_keyspace_spec *spec)
{
	struct kvblk_keyspace space;

	assert_int_equal(kvblk_keyspace_init(&space, spec), -EINVAL);
}

TEST(test_incomplete)
{
	struct kvblk_keyspace_spec spec = example;

	spec.tp_rank = 1;
	rejects(&spec);
	spec = example;
	spec.model = "";
	rejects(&spec);
	spec.model = NULL;
	rejects(&spec);
	spec = example;
	spec.size = 0;
	rejects(&spec);
}

/* A program of another version has a shorter or a longer spec. */
TEST(test_sizes)
{
	struct {
		struct kvblk_keyspace_spec known;
		uint64_t more;
	} later = { example, 0 };
	struct kvblk_keyspace space;

	later.known.size = offsetof(struct kvblk_keyspace_spec, cp_rank);
	/* not of the shorter spec, or else it would be rejected */
	later.known.cp_rank = 7;
	assert_int_equal(kvblk_keyspace_init(&space, &later.known), 0);
	assert_hex(space.digest, 16, "e7940858f1756b790e5d78b122ca70f1");
	later.known.cp_rank = 0;
	later.known.size = sizeof(later);
	assert_int_equal(kvblk_keyspace_init(&space, &later.known), 0);
	assert_hex(space.digest, 16, "e7940858f1756b790e5d78b122ca70f1");
	later.more = 1;
	assert_int_equal(kvblk_keyspace_init(&space, &later.known), -E2BIG);
	later.more = 0;
	later.known.size = UINT32_MAX;
	assert_int_equal(kvblk_keyspace_init(&space, &later.known), -E2BIG);
}

TEST_MAIN("keys")
