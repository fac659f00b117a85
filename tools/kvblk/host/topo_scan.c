// SPDX-License-Identifier: MIT
/* Read devices, pools and members from sysfs, see topo.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/sysroot.h"
#include "host/topo.h"

#define CLASS_DISPLAY		0x03
#define CLASS_ACCELERATOR	0x12

static size_t nr_names(char **names)
{
	size_t nr = 0;

	while (names && names[nr])
		nr++;
	return nr;
}

static void copy_name(char to[TOPO_NAME], const char *name)
{
	size_t len = strnlen(name, TOPO_NAME - 1);

	memcpy(to, name, len);
	to[len] = '\0';
}

/* ---- devices ---- */

static void read_driver(const char *root, struct topo_device *device)
{
	char path[PATH_MAX], target[PATH_MAX];
	const char *name;
	ssize_t len;

	tree_path(path, root, "/sys/bus/pci/devices/%s/driver", device->address);
	len = readlink(path, target, sizeof(target) - 1);
	if (len < 0)
		return;
	target[len] = '\0';
	name = strrchr(target, '/');
	copy_name(device->driver, name ? name + 1 : target);
}

/* Read a device. Returns whether kvblk topo shows this kind of device. */
static bool read_device(const char *root, const char *address,
			struct topo_device *device)
{
	char path[PATH_MAX];
	uint32_t base;

	*device = (struct topo_device){ .numa_node = -1 };
	copy_name(device->address, address);
	tree_path(path, root, "/sys/bus/pci/devices/%s/p2pmem", address);
	device->provider = !access(path, F_OK);
	tree_path(path, root, "/sys/bus/pci/devices/%s/class", address);
	device->class = (uint32_t)tree_number(path, 16);
	base = device->class >> 16;
	if (!device->provider && base != CLASS_DISPLAY &&
	    base != CLASS_ACCELERATOR)
		return false;

	tree_path(path, root, "/sys/bus/pci/devices/%s/vendor", address);
	device->vendor = (uint16_t)tree_number(path, 16);
	tree_path(path, root, "/sys/bus/pci/devices/%s/device", address);
	device->device = (uint16_t)tree_number(path, 16);
	tree_path(path, root, "/sys/bus/pci/devices/%s/numa_node", address);
	device->numa_node = tree_int(path, -1);
	read_driver(root, device);
	if (!device->provider)
		return true;
	tree_path(path, root, "/sys/bus/pci/devices/%s/p2pmem/size", address);
	device->size = tree_number(path, 10);
	tree_path(path, root, "/sys/bus/pci/devices/%s/p2pmem/available", address);
	device->available = tree_number(path, 10);
	tree_path(path, root, "/sys/bus/pci/devices/%s/p2pmem/published", address);
	device->published = tree_int(path, 0) != 0;
	return true;
}

static int providers_first(const void *a, const void *b)
{
	const struct topo_device *one = a, *other = b;

	if (one->provider != other->provider)
		return other->provider - one->provider;
	return strcmp(one->address, other->address);
}

static int scan_devices(const char *root, struct topo *topo)
{
	char path[PATH_MAX];
	char **names;

	tree_path(path, root, "/sys/bus/pci/devices");
	names = tree_names(path);
	topo->devices = calloc(nr_names(names) + 1, sizeof(*topo->devices));
	for (char **name = names; topo->devices && name && *name; name++)
		topo->nr_devices += read_device(root, *name,
						&topo->devices[topo->nr_devices]);
	tree_free_names(names);
	if (!topo->devices)
		return -ENOMEM;
	qsort(topo->devices, topo->nr_devices, sizeof(*topo->devices),
	      providers_first);
	return 0;
}

/*
 * Returns topo->p2pdma. Looks for a function, because the kernel's configuration is not
 * always readable.
 */
static int scan_p2pdma(const char *root, const struct topo *topo)
{
	char path[PATH_MAX], *line = NULL;
	size_t room = 0, nr = 0;
	bool found = false;
	FILE *file;

	if (topo->nr_devices && topo->devices[0].provider)
		return 1;
	tree_path(path, root, "/proc/kallsyms");
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (!found && getline(&line, &room, file) > 0) {
		found = strstr(line, " pci_p2pdma_add_resource\n");
		nr++;
	}
	free(line);
	fclose(file);
	return found ? 1 : nr ? 0 : -1;
}

/* ---- members ---- */

/* Set the transport of an NVMe multipath head to that of its paths. */
static void read_head(const char *root, const char *block,
		      struct topo_member *member)
{
	char path[PATH_MAX];
	char **names;

	tree_path(path, root, "/sys/class/block/%s/device", block);
	names = tree_names(path);
	for (char **name = names; name && *name && !*member->transport; name++) {
		if (strncmp(*name, "nvme", 4) != 0)
			continue;
		tree_path(path, root, "/sys/class/block/%s/device/%s/transport",
			block, *name);
		tree_text(path, member->transport,
			  sizeof(member->transport));
		member->multipath = *member->transport;
	}
	tree_free_names(names);
}

static void read_transport(const char *root, const char *pool,
			   struct topo_member *member)
{
	static const char *const stacked[] = { "md", "dm" };
	char path[PATH_MAX], block[TREE_NAME];

	tree_member_block(root, pool, member->name, block);
	if (!*block)
		return;
	tree_path(path, root, "/sys/class/block/%s/device/transport", block);
	tree_text(path, member->transport, sizeof(member->transport));
	if (!*member->transport)
		read_head(root, block, member);
	for (size_t i = 0; i < 2 && !*member->transport; i++) {
		tree_path(path, root, "/sys/class/block/%s/%s", block, stacked[i]);
		if (!access(path, F_OK))
			copy_name(member->transport, stacked[i]);
	}
}

static int read_pool(const char *root, const char *name, struct topo_pool *pool)
{
	char path[PATH_MAX];
	char **names;
	int err = 0;

	copy_name(pool->name, name);
	tree_path(path, root, "/sys/class/kvblk/%s/integrity", name);
	tree_text(path, pool->integrity, sizeof(pool->integrity));
	tree_path(path, root, "/sys/class/kvblk/%s/strict", name);
	pool->strict = tree_int(path, 0) != 0;
	tree_path(path, root, "/sys/class/kvblk/%s/members", name);
	names = tree_names(path);
	pool->members = calloc(nr_names(names) + 1, sizeof(*pool->members));
	if (!pool->members)
		err = -ENOMEM;
	for (char **member = names; !err && member && *member; member++) {
		copy_name(pool->members[pool->nr_members].name, *member);
		read_transport(root, name, &pool->members[pool->nr_members++]);
	}
	tree_free_names(names);
	return err;
}

static int scan_pools(const char *root, struct topo *topo)
{
	char path[PATH_MAX];
	char **names;
	int err = 0;

	tree_path(path, root, "/sys/module/kvblk");
	topo->module = !access(path, F_OK);
	tree_path(path, root, "/sys/class/kvblk");
	names = tree_names(path);
	topo->pools = calloc(nr_names(names) + 1, sizeof(*topo->pools));
	if (!topo->pools)
		err = -ENOMEM;
	for (char **name = names; !err && name && *name; name++)
		err = read_pool(root, *name, &topo->pools[topo->nr_pools++]);
	tree_free_names(names);
	return err;
}

int topo_scan(const char *root, struct topo *topo)
{
	int err;

	*topo = (struct topo){ 0 };
	err = scan_devices(root, topo);
	if (err)
		return err;
	topo->p2pdma = scan_p2pdma(root, topo);
	return scan_pools(root, topo);
}

void topo_free(struct topo *topo)
{
	for (size_t i = 0; i < topo->nr_pools; i++) {
		struct topo_pool *pool = &topo->pools[i];

		for (size_t j = 0; j < pool->nr_members; j++)
			kvblk_list_free(pool->members[j].routes);
		free(pool->members);
	}
	free(topo->pools);
	free(topo->devices);
}
