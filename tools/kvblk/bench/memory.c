// SPDX-License-Identifier: MIT
/*
 * Memory of a bench's blocks: host memory, or memory of a PCI device, mapped from a file
 * (p2pmem/allocate in sysfs, or a node of the device's driver).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "bench/bench.h"
#include "cli/cli.h"

#define DEVICES		"/sys/bus/pci/devices"

/*
 * Find the first device with @bytes left; NVMe drives come last. Sets @file. Returns an enum
 * cli_exit.
 */
static int find_file(uint64_t bytes, char *file, size_t len)
{
	const struct topo_device *best = NULL;
	bool any = false;
	struct topo topo;
	char text[32];
	int ret = CLI_OK;

	if (topo_scan("", &topo)) {
		topo_free(&topo);
		return cli_fail("no memory for what sysfs tells");
	}
	for (size_t i = 0; i < topo.nr_devices; i++) {
		const struct topo_device *device = &topo.devices[i];

		any |= device->provider;
		if (!device->provider || device->available < bytes)
			continue;
		if (!best || (topo_is_drive(best) && !topo_is_drive(device)))
			best = device;
	}
	if (best)
		snprintf(file, len, DEVICES "/%s/p2pmem/allocate", best->address);
	else if (any)
		ret = cli_fail("no device has %s of P2P memory left; choose less --depth, --size or --threads, and see: kvblk topo",
			       cli_format_bytes(bytes, text, sizeof(text)));
	else
		ret = cli_fail("no PCI device has P2P memory; see: kvblk topo");
	topo_free(&topo);
	return ret;
}

/*
 * Returns the address of the PCI device that @file belongs to, within @path; NULL: no such
 * device.
 */
static const char *device_of(const char *file, char path[PATH_MAX])
{
	static const char tail[] = "/p2pmem/allocate";
	char node[64], memory[PATH_MAX + sizeof(tail)];
	struct stat st;
	size_t len;

	if (stat(file, &st))
		return NULL;
	if (S_ISCHR(st.st_mode)) {
		snprintf(node, sizeof(node), "/sys/dev/char/%u:%u/device",
			 major(st.st_rdev), minor(st.st_rdev));
		if (!realpath(node, path))
			return NULL;
		snprintf(memory, sizeof(memory), "%s%s", path, tail);
		return access(memory, F_OK) ? NULL : strrchr(path, '/') + 1;
	}
	if (!realpath(file, path) || strncmp(path, "/sys/", 5) != 0)
		return NULL;
	len = strlen(path);
	if (len < sizeof(tail) || strcmp(path + len - strlen(tail), tail) != 0)
		return NULL;
	path[len - strlen(tail)] = '\0';
	return strrchr(path, '/') + 1;
}

int bench_mem_open(const struct bench_opts *opts, uint64_t bytes,
		   struct bench_mem *mem)
{
	char file[PATH_MAX], path[PATH_MAX];
	const char *device;
	int ret;

	mem->fd = -1;
	mem->device[0] = '\0';
	if (!opts->gpu)
		return CLI_OK;
	if (opts->mem_file) {
		snprintf(file, sizeof(file), "%s", opts->mem_file);
	} else {
		ret = find_file(bytes, file, sizeof(file));
		if (ret)
			return ret;
	}
	mem->fd = open(file, O_RDWR | O_CLOEXEC);
	if (mem->fd < 0)
		return cli_fail("%s: %s%s", file, strerror(errno),
				errno == EACCES || errno == EPERM ?
					"; run as root" : "");
	device = device_of(file, path);
	if (!device)
		return cli_fail("%s: gives no memory of a PCI device with P2P memory; see: kvblk topo",
				file);
	snprintf(mem->device, sizeof(mem->device), "%.31s", device);
	return CLI_OK;
}

void bench_mem_close(struct bench_mem *mem)
{
	if (mem->fd >= 0)
		close(mem->fd);
}

/* Print why @len bytes could not be mapped. Returns NULL. */
static void *map_failed(const struct bench_mem *mem, size_t len, int err)
{
	char text[3][32];
	struct topo topo;

	if (mem->fd < 0) {
		cli_fail("no memory for %s of blocks; choose less --depth or --threads",
			 cli_format_bytes(len, text[0], sizeof(text[0])));
		return NULL;
	}
	if (err != ENOMEM || topo_scan("", &topo)) {
		cli_fail("cannot map memory of %s: %s", mem->device,
			 strerror(err));
		return NULL;
	}
	for (size_t i = 0; i < topo.nr_devices; i++) {
		const struct topo_device *device = &topo.devices[i];

		if (strcmp(device->address, mem->device) != 0)
			continue;
		cli_fail("%s has no room for %s: it has %s of P2P memory, %s of it left; choose less --depth, --size or --threads",
			 mem->device,
			 cli_format_bytes(len, text[0], sizeof(text[0])),
			 cli_format_bytes(device->size, text[1], sizeof(text[1])),
			 cli_format_bytes(device->available, text[2],
					  sizeof(text[2])));
	}
	topo_free(&topo);
	return NULL;
}

void *bench_mem_map(const struct bench_mem *mem, size_t len)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
	void *p;

	if (mem->fd >= 0)
		flags = MAP_SHARED;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, mem->fd, 0);
	return p == MAP_FAILED ? map_failed(mem, len, errno) : p;
}
