// SPDX-License-Identifier: MIT
/* The deployment's salt, see salt.h. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/salt.h"
#include "lib/kvblk_keys.h"

#define RANDOM_LEN	(KVBLK_SALT_LEN / 2)

gid_t salt_group(void)
{
	/* another user can usually not give a file to the group */
	const struct group *group = geteuid() ? NULL : getgrnam("kvblk");

	return group ? group->gr_gid : (gid_t)-1;
}

/* Write a new salt to @fd. Returns 0 or a negative errno. */
static int write_salt(int fd, gid_t group)
{
	uint8_t random[RANDOM_LEN];
	char text[KVBLK_SALT_LEN + 2];
	ssize_t n = getrandom(random, sizeof(random), 0);

	if (n != sizeof(random))
		return n < 0 ? -errno : -EIO;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	text[KVBLK_SALT_LEN] = '\n';
	if (group != (gid_t)-1 && (fchown(fd, (uid_t)-1, group) || fchmod(fd, 0640)))
		return -errno;
	n = write(fd, text, KVBLK_SALT_LEN + 1);
	if (n != KVBLK_SALT_LEN + 1)
		return n < 0 ? -errno : -ENOSPC;
	/* a crash must not leave an empty file, which runtimes would refuse */
	return fsync(fd) ? -errno : 0;
}

/* Open the directory of the file @path. Returns a descriptor or -1. */
static int open_directory(const char *path, int flags)
{
	char *copy = strdup(path);
	int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags) : -1;

	free(copy);
	return fd;
}

/* Make the directory of the file @path, searchable for the readers of the file. */
static void make_directory(const char *path)
{
	char *copy = strdup(path);
	int fd;

	/* an error shows when the file is made */
	if (copy && !mkdir(dirname(copy), 0755)) {
		/* not chmod(), because another user may have replaced the directory by a link */
		fd = open_directory(path, O_NOFOLLOW);
		if (fd >= 0) {
			fchmod(fd, 0755);
			close(fd);
		}
	}
	free(copy);
}

/* Write the name of the file @path to the disk: after a crash there must be no other salt. */
static int sync_name(const char *path)
{
	int fd = open_directory(path, 0), err = 0;

	if (fd < 0 || fsync(fd))
		err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

/* Make the file @path. Returns 0, -EEXIST, or another negative errno. */
static int make_file(const char *path, gid_t group)
{
	char *temporary = NULL;
	int fd, err;

	make_directory(path);
	if (asprintf(&temporary, "%s.XXXXXX", path) < 0)
		return -ENOMEM;
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0) {
		err = -errno;
		goto free_name;
	}
	err = write_salt(fd, group);
	close(fd);
	/* not rename(), because a faster process must not lose its salt */
	if (!err && link(temporary, path))
		err = -errno;
	unlink(temporary);
	if (!err)
		err = sync_name(path);
free_name:
	free(temporary);
	return err;
}

int salt_make(const char *path, gid_t group, const char **why)
{
	char salt[KVBLK_SALT_LEN + 1];
	int err = kvblk_keyspace_salt(path, salt, why);
	bool made;

	if (err != -ENOENT)
		return err;
	err = make_file(path, group);
	made = !err;
	if (err && err != -EEXIST) {
		*why = strerrordesc_np(-err);
		return err;
	}
	err = kvblk_keyspace_salt(path, salt, why);
	return err ? err : made;
}

void salt_print(const char *salt, char print[SALT_PRINT_LEN + 1])
{
	const struct kvblk_keyspace_spec spec = {
		.size = sizeof(spec),
		.runtime = "kvblk",
		.model = "fingerprint",
		.dtype = "none",
		.layout = "none",
		.secret = salt,
		.block_tokens = 1,
	};
	struct kvblk_keyspace space;

	kvblk_keyspace_init(&space, &spec);
	for (size_t i = 0; i < SALT_PRINT_LEN / 2; i++)
		snprintf(print + 2 * i, 3, "%02x", space.digest[i]);
}
