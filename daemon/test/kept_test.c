// SPDX-License-Identifier: MIT
/*
 * What kvblkd keeps over restarts: files, keys of tenants, and newest states of pools. The kernel's
 * keyrings are played by the test.
 */
#include <errno.h>
#include <linux/keyctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "apply/newest.h"
#include "host/tenant_keys.h"
#include "kvblk_test.h"

#define POOL_UUID	{ 0x8a, 0xde, [15] = 1 }
#define UUID_TEXT	"8ade0000-0000-0000-0000-000000000001"
#define MEMBER(n)	{ [0] = (n), [15] = (n) }

static char directory[] = "/tmp/kept_test.XXXXXX";
static const struct kept_key blue = { POOL_UUID, "blue" }, blues = { POOL_UUID, "blue.1" };

/* The keyring has one key at most. */
static int add_errno, read_errno;
static char added[256];
static unsigned int nr_keys;

long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	va_list args;
	long ret = 7;

	va_start(args, number);
	if (number == SYS_add_key) {
		const char *type = va_arg(args, const char *);
		const char *name = va_arg(args, const char *);
		const char *payload = va_arg(args, const char *);
		size_t len = va_arg(args, size_t);

		assert_string_equal(type, "encrypted");
		assert_string_equal(name, "kvblk:tenant");
		assert_int_equal(va_arg(args, int), KEY_SPEC_THREAD_KEYRING);
		snprintf(added, sizeof(added), "%.*s", (int)len, payload);
		errno = add_errno;
		nr_keys += !add_errno;
		ret = add_errno ? -1 : 7;
	} else {
		int command = va_arg(args, int);

		assert_int_equal(va_arg(args, int32_t), 7);
		if (command == KEYCTL_READ) {
			errno = read_errno;
			ret = read_errno ? -1 : 22;
			memcpy(va_arg(args, char *), "default user:m 32 0a0b", 22);
		} else {
			assert_int_equal(command, KEYCTL_INVALIDATE);
			nr_keys--;
			ret = 0;
		}
	}
	va_end(args);
	return ret;
}

static int begin(void **state)
{
	memset(directory + sizeof(directory) - 7, 'X', 6);
	assert_non_null(mkdtemp(directory));
	/* a directory that is still to be made */
	snprintf(added, sizeof(added), "%s/a", directory);
	assert_int_equal(setenv("STATE_DIRECTORY", added, 1), 0);
	add_errno = 0;
	read_errno = 0;
	nr_keys = 0;
	return 0;
}

static int end(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", directory);
	return system(command);
}

static mode_t mode_of(const char *name)
{
	char path[KEPT_PATH_LEN];
	struct stat st;

	assert_int_equal(stat(kept_path(name, path), &st), 0);
	return st.st_mode & 07777;
}

TEST_WITH(test_files, begin, end)
{
	char text[8], path[KEPT_PATH_LEN];
	mode_t mask = umask(0);
	int lock = kept_lock();

	assert_true(lock >= 0);
	close(lock);
	assert_int_equal(kept_read("b/c", text, sizeof(text)), -ENOENT);
	assert_int_equal(kept_write("b/c", "1234567"), 0);
	assert_int_equal(kept_read("b/c", text, sizeof(text)), 0);
	assert_string_equal(text, "1234567");
	assert_int_equal(mode_of("b/c"), 0600);
	assert_int_equal(mode_of("b"), 0700);
	assert_int_equal(mode_of(""), 0700);
	assert_int_equal(kept_write("b/c", "12345678"), 0);
	assert_int_equal(kept_read("b/c", text, sizeof(text)), -EFBIG);
	/* a write that fails leaves the former file */
	assert_int_equal(mkdir(kept_path("b/c~", path), 0700), 0);
	assert_int_equal(kept_write("b/c", "9"), -EISDIR);
	assert_int_equal(kept_read("b/c", text, sizeof(text)), -EFBIG);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(kept_remove("b/c"), 0);
	assert_int_equal(kept_remove("b/c"), 0);
	assert_int_equal(kept_read("b/c", text, sizeof(text)), -ENOENT);
	umask(mask);
}

static size_t nr_listed(void)
{
	static const uint8_t uuid[16] = POOL_UUID;
	struct kept_key *list = NULL;
	size_t nr = 0;

	assert_int_equal(tenant_key_list(uuid, &list, &nr), 0);
	free(list);
	return nr;
}

TEST_WITH(test_keys, begin, end)
{
	char why[512], text[64];

	assert_int_equal(nr_listed(), 0);
	assert_int_equal(tenant_key_load(&blue, why, sizeof(why)), 0);
	assert_string_equal(why, "kvblkd has no key of this tenant; if you have it, run: kvblk tenant key");
	assert_int_equal(tenant_key_make(&blue, "user:m", why, sizeof(why)), 7);
	assert_string_equal(added, "new default user:m 32");
	assert_int_equal(kept_read("keys/" UUID_TEXT "/blue.0", text, sizeof(text)), 0);
	assert_string_equal(text, "default user:m 32 0a0b");
	assert_int_equal(mode_of("keys/" UUID_TEXT "/blue.0"), 0600);
	tenant_key_drop(7);
	assert_int_equal(nr_keys, 0);
	assert_int_equal(tenant_key_load(&blue, why, sizeof(why)), 7);
	assert_string_equal(added, "load default user:m 32 0a0b");
	tenant_key_drop(7);
	/* a tenant's name may end as a number of a key does */
	assert_int_equal(tenant_key_make(&blues, "trusted:m", why, sizeof(why)), 7);
	assert_int_equal(kept_write("keys/" UUID_TEXT "/blue.12", "another key"), 0);
	assert_int_equal(kept_write("keys/" UUID_TEXT "/blue.0~", "left by a crash"), 0);
	assert_int_equal(nr_listed(), 2);
	assert_int_equal(tenant_key_remove(&blue), 0);
	assert_int_equal(nr_listed(), 1);
	assert_int_equal(kept_read("keys/" UUID_TEXT "/blue.12", text, sizeof(text)), -ENOENT);
	assert_int_equal(tenant_key_load(&blues, why, sizeof(why)), 7);
}

TEST_WITH(test_key_errors, begin, end)
{
	static const struct {
		int err;
		const char *why;
	} errors[] = {
		{ ENOKEY, "the master key is not in a keyring of kvblkd" },
		{ ENODEV, "the kernel has no keys of the type encrypted: load the module encrypted-keys" },
		{ EINVAL, "the kernel refuses the wrapped key" },
		{ EDQUOT, "the kernel takes no key: Disk quota exceeded" },
	};
	char why[512], text[64], path[KEPT_PATH_LEN];

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		add_errno = errors[i].err;
		assert_int_equal(tenant_key_make(&blue, "user:m", why, sizeof(why)), 0);
		assert_memory_equal(why, errors[i].why, strlen(errors[i].why));
		add_errno = 0;
		read_errno = errors[i].err;
		assert_int_equal(tenant_key_make(&blue, "user:m", why, sizeof(why)), 0);
		assert_memory_equal(why, errors[i].why, strlen(errors[i].why));
		read_errno = 0;
	}
	assert_int_equal(nr_listed(), 0);
	/* a key that cannot be kept is not given away */
	assert_int_equal(kept_write("keys/" UUID_TEXT, "a file instead of the directory"), 0);
	assert_int_equal(tenant_key_make(&blue, "user:m", why, sizeof(why)), 0);
	snprintf(text, sizeof(text), "keys/%s/blue.0", UUID_TEXT);
	snprintf(added, sizeof(added), "%.200s: Not a directory", kept_path(text, path));
	assert_string_equal(why, added);
	assert_int_equal(nr_keys, 0);
}

bool plan_is_older(uint64_t epoch, uint64_t list_seq, uint64_t other_epoch,
		   uint64_t other_list_seq)
{
	return epoch < other_epoch || (epoch == other_epoch && list_seq < other_list_seq);
}

bool plan_is_usable(const struct kvblk_found *found)
{
	return !found->silent;
}

TEST_WITH(test_newest, begin, end)
{
	static const uint8_t uuid[16] = POOL_UUID, first[16] = MEMBER(1);
	static struct kvblk_found silent = {
		.pool_uuid = POOL_UUID, .uuid = MEMBER(4), .epoch = 9, .seq = 99, .silent = true,
	};
	static struct kvblk_found other = {
		.next = &silent, .pool_uuid = MEMBER(7), .uuid = MEMBER(3), .epoch = 9, .seq = 99,
	};
	static struct kvblk_found two = {
		.next = &other, .pool_uuid = POOL_UUID, .uuid = MEMBER(2), .epoch = 4, .roster_seq = 2, .seq = 10,
	};
	static struct kvblk_found one = {
		.next = &two, .pool_uuid = POOL_UUID, .uuid = MEMBER(1), .epoch = 3, .roster_seq = 9, .seq = 20,
	};
	struct state state = { .found = &one };
	struct state_newest newest;

	assert_int_equal(newest_read(uuid, &newest), -ENOENT);
	assert_int_equal(newest_keep(uuid, &state), 0);
	assert_int_equal(newest_read(uuid, &newest), 0);
	assert_int_equal(newest.epoch, 4);
	assert_int_equal(newest.list_seq, 2);
	assert_int_equal(newest.nr_members, 2);
	assert_memory_equal(newest.members[0].uuid, first, 16);
	assert_int_equal(newest.members[0].seq, 20);
	/* nothing goes back */
	one.seq = 21;
	two.epoch = 2;
	two.seq = 3;
	assert_int_equal(newest_keep(uuid, &state), 0);
	assert_int_equal(newest_read(uuid, &newest), 0);
	assert_int_equal(newest.epoch, 4);
	assert_int_equal(newest.members[0].seq, 21);
	assert_int_equal(newest.members[1].seq, 10);
	/* a damaged file is not replaced, or else any state would do from then on */
	assert_int_equal(kept_write("pools/" UUID_TEXT, "epoch 4\nlist"), 0);
	assert_int_equal(newest_read(uuid, &newest), -EBADMSG);
	assert_int_equal(newest_keep(uuid, &state), -EBADMSG);
}

TEST_MAIN("kept")
