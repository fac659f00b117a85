// SPDX-License-Identifier: MIT
/* Opens the node of a pool's change feed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib.h"

int kvblk_changes_open(const char *pool, int flags, const struct kvblk_changes *changes)
{
	char path[KVBLK_PATH_LEN_MAX + 1];
	int n, fd, err;

	if (!pool || !*pool || !changes || flags & ~O_NONBLOCK)
		return -EINVAL;
	n = snprintf(path, sizeof(path), strchr(pool, '/') ? "%s" : "/dev/kvblk/%s/changes", pool);
	if ((size_t)n >= sizeof(path))
		return -ENAMETOOLONG;
	/* O_NONBLOCK, or else open() of a FIFO would block */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ENXIO ? -ENODEV : -errno;
	if (!ioctl(fd, KVBLK_IOC_CHANGES, changes) &&
	    (flags & O_NONBLOCK || !fcntl(fd, F_SETFL, O_RDONLY)))
		return fd;
	err = -errno;
	close(fd);
	return err;
}
