// SPDX-License-Identifier: MIT
/* Devices of a pool, as given to create, import and plan. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "pool/pool.h"

void pool_take_device(struct argp_state *state, const char *device, void *field)
{
	struct pool_devices *devices = field;
	struct kvblk_member_spec *more;

	if (devices->nr == POOL_MEMBERS_MAX)
		cli_usage(state, "device %s: a pool has at most %d members", device,
			  POOL_MEMBERS_MAX);
	cli_check_device(state, device);
	for (size_t i = 0; i < devices->nr; i++) {
		if (!strcmp(devices->specs[i].path, device))
			cli_usage(state, "device %s is given twice", device);
	}
	more = reallocarray(devices->specs, devices->nr + 1, sizeof(*more));
	if (!more)
		exit(cli_fail("no memory for the list of devices"));
	devices->specs = more;
	devices->specs[devices->nr++] = (struct kvblk_member_spec){ .size = sizeof(*more), .path = device };
}

void pool_take_name(struct argp_state *state, const char *name, void *field)
{
	struct pool_devices *devices = field;

	cli_check_name(state, "member", name);
	if (devices->nr_names == POOL_MEMBERS_MAX)
		cli_usage(state, "name %s: a pool has at most %d members", name, POOL_MEMBERS_MAX);
	devices->names[devices->nr_names++] = name;
}

bool pool_device_size(const char *path, uint64_t *size)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	int err = errno;

	if (fd >= 0)
		close(fd);
	errno = err;
	*size = end > 0 ? (uint64_t)end : 0;
	return end >= 0;
}
