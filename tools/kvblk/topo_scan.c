// SPDX-License-Identifier: MIT
/* What sysfs tells of devices, pools and members, see topo.h. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topo.h"

#define CLASS_DISPLAY		0x03
#define CLASS_ACCELERATOR	0x12

/* A path of @root's tree; one that is too long is that of nothing. */
static void path_of(char path[PATH_MAX], const char *root, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void path_of(char path[PATH_MAX], const char *root, const char *format, ...)
{
	size_t len = strlen(root);
	va_list args;
	int more = -1;

	va_start(args, format);
	if (len < PATH_MAX) {
		memcpy(path, root, len + 1);
		more = vsnprintf(path + len, PATH_MAX - len, format, args);
	}
	va_end(args);
	if (more < 0 || len + (size_t)more >= PATH_MAX)
		path[0] = '\0';
}

/* The file's first line; "" when there is none. */
static void read_text(const char *path, char *text, size_t len)
{
	FILE *file = fopen(path, "re");
	size_t nr = file ? fread(text, 1, len - 1, file) : 0;

	if (file)
		fclose(file);
	text[nr] = '\0';
	text[strcspn(text, "\n")] = '\0';
}

static uint64_t read_number(const char *path, int base)
{
	char text[TOPO_NAME];

	read_text(path, text, sizeof(text));
	return strtoull(text, NULL, base);
}

static int read_int(const char *path, int otherwise)
{
	char text[TOPO_NAME], *end;
	long value;

	read_text(path, text, sizeof(text));
	value = strtol(text, &end, 10);
	return end == text ? otherwise : (int)value;
}

static int visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && strlen(entry->d_name) < TOPO_NAME;
}

/* The names in a directory, in the order that people expect; NULL: none */
static char **names_in(const char *path)
{
	struct dirent **entries;
	char **names;
	int nr = scandir(path, &entries, visible, versionsort);

	if (nr < 0)
		return NULL;
	names = calloc((size_t)nr + 1, sizeof(*names));
	for (int i = 0; i < nr; i++) {
		if (names)
			names[i] = strdup(entries[i]->d_name);
		free(entries[i]);
	}
	free(entries);
	return names;
}

static void free_names(char **names)
{
	for (char **name = names; name && *name; name++)
		free(*name);
	free(names);
}

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

	path_of(path, root, "/sys/bus/pci/devices/%s/driver", device->address);
	len = readlink(path, target, sizeof(target) - 1);
	if (len < 0)
		return;
	target[len] = '\0';
	name = strrchr(target, '/');
	copy_name(device->driver, name ? name + 1 : target);
}

/* Whether it is one that people ask about. */
static bool read_device(const char *root, const char *address,
			struct topo_device *device)
{
	char path[PATH_MAX];
	uint32_t base;

	*device = (struct topo_device){ .numa_node = -1 };
	copy_name(device->address, address);
	path_of(path, root, "/sys/bus/pci/devices/%s/p2pmem", address);
	device->provider = !access(path, F_OK);
	path_of(path, root, "/sys/bus/pci/devices/%s/class", address);
	device->class = (uint32_t)read_number(path, 16);
	base = device->class >> 16;
	if (!device->provider && base != CLASS_DISPLAY &&
	    base != CLASS_ACCELERATOR)
		return false;

	path_of(path, root, "/sys/bus/pci/devices/%s/vendor", address);
	device->vendor = (uint16_t)read_number(path, 16);
	path_of(path, root, "/sys/bus/pci/devices/%s/device", address);
	device->device = (uint16_t)read_number(path, 16);
	path_of(path, root, "/sys/bus/pci/devices/%s/numa_node", address);
	device->numa_node = read_int(path, -1);
	read_driver(root, device);
	if (!device->provider)
		return true;
	path_of(path, root, "/sys/bus/pci/devices/%s/p2pmem/size", address);
	device->size = read_number(path, 10);
	path_of(path, root, "/sys/bus/pci/devices/%s/p2pmem/available", address);
	device->available = read_number(path, 10);
	path_of(path, root, "/sys/bus/pci/devices/%s/p2pmem/published", address);
	device->published = read_int(path, 0) != 0;
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

	path_of(path, root, "/sys/bus/pci/devices");
	names = names_in(path);
	topo->devices = calloc(nr_names(names) + 1, sizeof(*topo->devices));
	for (char **name = names; topo->devices && name && *name; name++)
		topo->nr_devices += read_device(root, *name,
						&topo->devices[topo->nr_devices]);
	free_names(names);
	if (!topo->devices)
		return -ENOMEM;
	qsort(topo->devices, topo->nr_devices, sizeof(*topo->devices),
	      providers_first);
	return 0;
}

/* A kernel's options can't be asked for everywhere; its functions can. */
static int scan_p2pdma(const char *root, const struct topo *topo)
{
	char path[PATH_MAX], *line = NULL;
	size_t room = 0, nr = 0;
	bool found = false;
	FILE *file;

	if (topo->nr_devices && topo->devices[0].provider)
		return 1;
	path_of(path, root, "/proc/kallsyms");
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

/* Of an NVMe multipath head the transport is that of its paths. */
static void read_head(const char *root, const char *block,
		      struct topo_member *member)
{
	char path[PATH_MAX];
	char **names;

	path_of(path, root, "/sys/class/block/%s/device", block);
	names = names_in(path);
	for (char **name = names; name && *name && !*member->transport; name++) {
		if (strncmp(*name, "nvme", 4) != 0)
			continue;
		path_of(path, root, "/sys/class/block/%s/device/%s/transport",
			block, *name);
		read_text(path, member->transport,
			  sizeof(member->transport));
		member->multipath = *member->transport;
	}
	free_names(names);
}

static void read_transport(const char *root, const char *pool,
			   struct topo_member *member)
{
	static const char *const stacked[] = { "md", "dm" };
	char path[PATH_MAX], device[PATH_MAX], real[PATH_MAX], block[TOPO_NAME];
	const char *name;

	path_of(path, root, "/sys/class/kvblk/%s/members/%s/path", pool,
		member->name);
	read_text(path, device, sizeof(device));
	name = realpath(device, real) ? real : device;
	name = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	copy_name(block, name);
	if (!*block)
		return;
	path_of(path, root, "/sys/class/block/%s/device/transport", block);
	read_text(path, member->transport, sizeof(member->transport));
	if (!*member->transport)
		read_head(root, block, member);
	for (size_t i = 0; i < 2 && !*member->transport; i++) {
		path_of(path, root, "/sys/class/block/%s/%s", block, stacked[i]);
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
	path_of(path, root, "/sys/class/kvblk/%s/integrity", name);
	read_text(path, pool->integrity, sizeof(pool->integrity));
	path_of(path, root, "/sys/class/kvblk/%s/strict", name);
	pool->strict = read_int(path, 0) != 0;
	path_of(path, root, "/sys/class/kvblk/%s/members", name);
	names = names_in(path);
	pool->members = calloc(nr_names(names) + 1, sizeof(*pool->members));
	if (!pool->members)
		err = -ENOMEM;
	for (char **member = names; !err && member && *member; member++) {
		copy_name(pool->members[pool->nr_members].name, *member);
		read_transport(root, name, &pool->members[pool->nr_members++]);
	}
	free_names(names);
	return err;
}

static int scan_pools(const char *root, struct topo *topo)
{
	char path[PATH_MAX];
	char **names;
	int err = 0;

	path_of(path, root, "/sys/module/kvblk");
	topo->module = !access(path, F_OK);
	path_of(path, root, "/sys/class/kvblk");
	names = names_in(path);
	topo->pools = calloc(nr_names(names) + 1, sizeof(*topo->pools));
	if (!topo->pools)
		err = -ENOMEM;
	for (char **name = names; !err && name && *name; name++)
		err = read_pool(root, *name, &topo->pools[topo->nr_pools++]);
	free_names(names);
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
			kvblk_route_free(pool->members[j].routes);
		free(pool->members);
	}
	free(topo->pools);
	free(topo->devices);
}
