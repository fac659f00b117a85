// SPDX-License-Identifier: MIT
/* Files that are kept over restarts, see kept.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/kept.h"

char *kept_path(const char *name, char buf[KEPT_PATH_LEN])
{
	const char *directory = getenv("STATE_DIRECTORY");

	snprintf(buf, KEPT_PATH_LEN, "%s/%s", directory ? directory : KEPT_DIRECTORY, name);
	return buf;
}

/* Write the entry of the file @path in its directory to the disk. Returns 0 or a negative errno. */
static int sync_entry(const char *path)
{
	char directory[KEPT_PATH_LEN];
	int fd, err = 0;

	snprintf(directory, sizeof(directory), "%.*s", (int)(strrchr(path, '/') - path), path);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd))
		err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

/* Make the directories of the file @name. Returns 0 or a negative errno. */
static int make_directories(const char *name)
{
	char path[KEPT_PATH_LEN];
	char *slash;

	kept_path(name, path);
	slash = path + strlen(path) - strlen(name);
	for (slash--; slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (!mkdir(path, 0700)) {
			int err = strchr(path + 1, '/') ? sync_entry(path) : 0;

			if (err)
				return err;
		} else if (errno != EEXIST) {
			return -errno;
		}
		*slash = '/';
	}
	return 0;
}

int kept_lock(void)
{
	char path[KEPT_PATH_LEN];
	int err = make_directories("lock");
	int fd;

	if (err)
		return err;
	fd = open(kept_path("lock", path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (!flock(fd, LOCK_EX))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/* Write a new file @path. Returns 0 or a negative errno. */
static int write_file(const char *path, const char *text)
{
	const size_t len = strlen(text);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;
	int err = 0;

	if (fd < 0)
		return -errno;
	n = write(fd, text, len);
	if (n != (ssize_t)len)
		err = n < 0 ? -errno : -ENOSPC;
	else if (fchmod(fd, 0600) || fsync(fd))
		err = -errno;
	close(fd);
	return err;
}

int kept_write(const char *name, const char *text)
{
	char path[KEPT_PATH_LEN], temporary[KEPT_PATH_LEN + 1];
	int err = make_directories(name);

	if (err)
		return err;
	/* no tenant and no pool has such a name */
	snprintf(temporary, sizeof(temporary), "%s~", kept_path(name, path));
	err = write_file(temporary, text);
	if (!err && rename(temporary, path))
		err = -errno;
	if (err)
		unlink(temporary);
	return err ? err : sync_entry(path);
}

int kept_read(const char *name, char *buf, size_t size)
{
	char path[KEPT_PATH_LEN];
	FILE *file = fopen(kept_path(name, path), "re");
	int err = 0;
	size_t n;

	if (!file)
		return -errno;
	n = fread(buf, 1, size, file);
	if (ferror(file))
		err = -EIO;
	else if (n == size)
		err = -EFBIG;
	else
		buf[n] = '\0';
	fclose(file);
	return err;
}

int kept_remove(const char *name)
{
	char path[KEPT_PATH_LEN];

	if (unlink(kept_path(name, path)))
		return errno == ENOENT ? 0 : -errno;
	return sync_entry(path);
}

DIR *kept_list(const char *name)
{
	char path[KEPT_PATH_LEN];

	return opendir(kept_path(name, path));
}
