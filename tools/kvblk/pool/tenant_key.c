// SPDX-License-Identifier: MIT
/*
 * Keys of tenants. The rule: the module copies a key from the keyring of this process, which ends
 * with it. So no other process can use the key there, and none is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli/cli.h"
#include "pool/tenant_key.h"

#define KEY_BYTES	32

/* Read up to @size bytes to the end of @fd. Returns their number, or -1 with errno. */
static ssize_t read_all(int fd, unsigned char *buf, size_t size)
{
	size_t have = 0;
	ssize_t got;

	do {
		got = read(fd, buf + have, size - have);
		if (got < 0 && errno != EINTR)
			return -1;
		have += got > 0 ? (size_t)got : 0;
	} while (got && have < size);
	return (ssize_t)have;
}

static int read_file(const char *file, unsigned char key[KEY_BYTES])
{
	int fd = open(file, O_RDONLY | O_CLOEXEC), ret = CLI_OK;
	unsigned char bytes[KEY_BYTES + 1];
	struct stat st;
	ssize_t have;

	if (fd < 0 || fstat(fd, &st)) {
		ret = cli_fail("%s: %s", file, strerror(errno));
	} else if (S_ISREG(st.st_mode) && st.st_mode & (S_IRWXG | S_IRWXO)) {
		ret = cli_fail("%s: others may use the key; run: chmod 600 %s", file, file);
	} else {
		have = read_all(fd, bytes, sizeof(bytes));
		if (have < 0)
			ret = cli_fail("%s: %s", file, strerror(errno));
		else if (have != KEY_BYTES)
			ret = cli_fail("%s: a key has 32 bytes; make one with: (umask 77; head -c 32 /dev/urandom > %s)",
				       file, file);
		else
			memcpy(key, bytes, KEY_BYTES);
		explicit_bzero(bytes, sizeof(bytes));
	}
	if (fd >= 0)
		close(fd);
	return ret;
}

int32_t tenant_key_add(const char *file)
{
	unsigned char key[KEY_BYTES];
	long serial;

	if (!file && getrandom(key, sizeof(key), 0) != sizeof(key)) {
		cli_fail("no random bytes: %s", strerror(errno));
		return 0;
	}
	if (file && read_file(file, key) != CLI_OK)
		return 0;
	/* no library: keyutils wraps no more than this call */
	serial = syscall(SYS_add_key, "logon", "kvblk:tenant", key, sizeof(key),
			 KEY_SPEC_PROCESS_KEYRING);
	explicit_bzero(key, sizeof(key));
	if (serial > 0)
		return (int32_t)serial;
	cli_fail("the kernel takes no key: %s%s", strerror(errno),
		 errno == EDQUOT ? "; see /proc/key-users" : "");
	return 0;
}
