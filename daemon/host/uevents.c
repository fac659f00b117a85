// SPDX-License-Identifier: MIT
/*
 * Uevents, see uevents.h. sd_device_monitor of libsystemd receives udevd's messages or the
 * kernel's, not both, and a host may run without udevd.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/uevents.h"

#define GROUP_KERNEL	1
#define GROUP_UDEV	2

int uevents_open(void)
{
	struct sockaddr_nl address = {
		.nl_family = AF_NETLINK,
		.nl_groups = GROUP_KERNEL | GROUP_UDEV,
	};
	int fd, err;

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, sizeof(address))) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

/* Returns true if a zero-terminated text of the message names the subsystem block or nvme. */
static bool is_about(const char *message, size_t len)
{
	static const char block[] = "SUBSYSTEM=block", nvme[] = "SUBSYSTEM=nvme";

	return memmem(message, len, block, sizeof(block)) ||
	       memmem(message, len, nvme, sizeof(nvme));
}

bool uevents_read(int fd)
{
	bool found = false;
	struct sockaddr_nl from = { 0 };
	char message[8192];
	ssize_t len;

	for (;;) {
		len = recvfrom(fd, message, sizeof(message), 0, (struct sockaddr *)&from,
			       &(socklen_t){ sizeof(from) });
		/* multicast only: any user may send to the socket, only root to a group */
		if (len >= 0)
			found |= from.nl_groups && is_about(message, (size_t)len);
		else if (errno == ENOBUFS)
			found = true;
		else if (errno != EINTR)
			return found;
	}
}
