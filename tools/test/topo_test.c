// SPDX-License-Identifier: MIT
/*
 * kvblk topo on an emulated host: a tree of files like sysfs, routes as the module reports
 * them, and the printed text. 47-topo.sh tests a real host in a VM.
 */
#include "host/topo.h"
#include "tree.h"

#define DEVICES	"/sys/bus/pci/devices/"
#define POOL	"/sys/class/kvblk/kv0/"
#define MEMBER	POOL "members/"

static void make_attribute(const char *address, const char *name, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), DEVICES "%s/%s", address, name);
	make(path, text);
}

static void make_device(const char *address, const char *vendor,
			const char *class, const char *driver)
{
	char path[256], link[512];

	make_attribute(address, "vendor", vendor);
	make_attribute(address, "device", "0x2330\n");
	make_attribute(address, "class", class);
	make_attribute(address, "numa_node", "-1\n");
	if (!driver)
		return;
	snprintf(path, sizeof(path), "../../../bus/pci/drivers/%s", driver);
	snprintf(link, sizeof(link), "%s" DEVICES "%s/driver", root, address);
	assert_int_equal(symlink(path, link), 0);
}

static void make_p2pmem(const char *address, const char *size,
			const char *available, const char *published)
{
	make_attribute(address, "p2pmem/size", size);
	make_attribute(address, "p2pmem/available", available);
	make_attribute(address, "p2pmem/published", published);
}

TEST_WITH(devices, tree_make, tree_remove)
{
	struct topo topo;
	char buf[160];

	make_device("0000:81:00.0", "0x10de\n", "0x030200\n", "nvidia");
	make_p2pmem("0000:81:00.0", "85899345920\n", "85899341824\n", "1\n");
	make_device("0000:02:00.0", "0x8086\n", "0x010802\n", "nvme");
	make_device("0000:03:00.0", "0x144d\n", "0x010802\n", "nvme");
	make_p2pmem("0000:03:00.0", "67108864\n", "0\n", "0\n");
	make_device("0000:01:00.0", "0x1002\n", "0x038000\n", "amdgpu");
	make_device("0000:c1:00.0", "0x10de\n", "0x030200\n", "nvidia");
	make_device("0000:c2:00.0", "0x1da3\n", "0x120000\n", NULL);
	make_device("0000:c3:00.0", "0x10ec\n", "0x020000\n", "r8169");

	assert_int_equal(topo_scan(root, &topo), 0);
	assert_int_equal(topo.p2pdma, 1);
	assert_false(topo.module);
	assert_int_equal(topo.nr_pools, 0);
	assert_int_equal(topo.nr_devices, 5);
	/* providers first, then by address */
	assert_string_equal(topo.devices[0].address, "0000:03:00.0");
	assert_string_equal(topo.devices[1].address, "0000:81:00.0");
	assert_string_equal(topo.devices[2].address, "0000:01:00.0");
	assert_true(topo.devices[1].provider && topo.devices[1].published);
	assert_true(topo.devices[1].size == 85899345920u);
	assert_true(topo.devices[1].available == 85899341824u);
	assert_int_equal(topo.devices[1].numa_node, -1);
	assert_string_equal(topo.devices[1].driver, "nvidia");
	assert_string_equal(topo_kind(&topo.devices[0], buf, sizeof(buf)),
			    "144d:2330 NVMe drive");
	assert_string_equal(topo_kind(&topo.devices[1], buf, sizeof(buf)),
			    "NVIDIA GPU");
	assert_string_equal(topo_kind(&topo.devices[4], buf, sizeof(buf)),
			    "Habana accelerator");
	assert_non_null(strstr(topo_device_words(&topo, &topo.devices[0], buf,
						 sizeof(buf)), "not published"));
	assert_string_equal(topo_device_words(&topo, &topo.devices[1], buf,
					      sizeof(buf)), "");
	assert_non_null(strstr(topo_device_words(&topo, &topo.devices[2], buf,
						 sizeof(buf)), "amdgpu"));
	assert_non_null(strstr(topo_device_words(&topo, &topo.devices[3], buf,
						 sizeof(buf)), "static BAR1"));
	assert_non_null(strstr(topo_device_words(&topo, &topo.devices[4], buf,
						 sizeof(buf)), "no driver"));
	topo_free(&topo);
}

TEST_WITH(kernel_options, tree_make, tree_remove)
{
	static const char without[] =
		"0000000000000000 T pci_enable_device\n"
		"0000000000000000 t pci_p2pdma_add_resource_late\n";
	struct topo topo;
	char buf[160];

	make_device("0000:81:00.0", "0x10de\n", "0x030200\n", "nvidia");
	assert_int_equal(topo_scan(root, &topo), 0);
	assert_int_equal(topo.p2pdma, -1);
	topo_free(&topo);

	make("/proc/kallsyms", without);
	assert_int_equal(topo_scan(root, &topo), 0);
	assert_int_equal(topo.p2pdma, 0);
	assert_non_null(strstr(topo_device_words(&topo, &topo.devices[0], buf,
						 sizeof(buf)),
			       "CONFIG_PCI_P2PDMA"));
	topo_free(&topo);

	make("/proc/kallsyms", "0000000000000000 T pci_p2pdma_add_resource\n");
	assert_int_equal(topo_scan(root, &topo), 0);
	assert_int_equal(topo.p2pdma, 1);
	topo_free(&topo);
}

/* Add the module's report on the member's route to the device. */
static void add_route(struct topo_member *member, const char *device,
		      unsigned int state, const char *why)
{
	struct kvblk_route_state *route = calloc(1, sizeof(*route));

	assert_non_null(route);
	snprintf(route->device, sizeof(route->device), "%s", device);
	snprintf(route->why, sizeof(route->why), "%s", why);
	route->distance = *why ? -1 : 4;
	route->state = state;
	route->next = member->routes;
	member->routes = route;
}

static void make_pool(const char *integrity)
{
	make("/sys/module/kvblk/refcnt", "1\n");
	make(POOL "integrity", integrity);
	make(POOL "strict", "0\n");
	make(POOL "counters/puts", "0\n");
	make(MEMBER "nvme0n1/path", "/nowhere/nvme0n1\n");
	make("/sys/class/block/nvme0n1/device/transport", "pcie\n");
	make(MEMBER "nvme10n1/path", "/nowhere/nvme10n1\n");
	make("/sys/class/block/nvme10n1/device/nvme3/transport", "pcie\n");
	make(MEMBER "nvme9n1/path", "/nowhere/nvme9n1\n");
	make("/sys/class/block/nvme9n1/device/nvme9/transport", "tcp\n");
	make(MEMBER "x/path", "/nowhere/md5\n");
	make("/sys/class/block/md5/md/level", "raid0\n");
}

static void scan_pool(const char *integrity, struct topo *topo)
{
	struct topo_member *members;

	make_pool(integrity);
	assert_int_equal(topo_scan(root, topo), 0);
	assert_int_equal(topo->nr_pools, 1);
	assert_int_equal(topo->pools[0].nr_members, 4);
	members = topo->pools[0].members;
	add_route(&members[0], "0000:81:00.0", KVBLK_ROUTE_STATUS_DIRECT, "");
	add_route(&members[0], "0000:82:00.0", KVBLK_ROUTE_STATUS_TRIAL, "");
	add_route(&members[0], "0000:83:00.0", KVBLK_ROUTE_STATUS_UNKNOWN, "");
	add_route(&members[0], "0000:84:00.0", 99, "");
	add_route(&members[1], "0000:81:00.0", KVBLK_ROUTE_STATUS_BOUNCE, "queue");
	add_route(&members[1], "0000:82:00.0", KVBLK_ROUTE_STATUS_BOUNCE, "moon");
	add_route(&members[2], "0000:81:00.0", KVBLK_ROUTE_STATUS_BOUNCE,
		  "unreachable");
	members[3].gone = true;
}

static const char *words(const struct topo *topo, size_t member,
			 const char *address)
{
	/* static, because an unknown reason is returned as a pointer into the route */
	static struct kvblk_route_state route;
	const struct topo_pool *pool = &topo->pools[0];
	struct topo_device device = { .provider = true };

	snprintf(device.address, sizeof(device.address), "%s", address);
	route = topo_route(&device, &pool->members[member]);
	return topo_route_words(pool, &pool->members[member], &route);
}

TEST_WITH(pools, tree_make, tree_remove)
{
	const struct topo_member *members;
	struct topo topo;

	scan_pool("header\n", &topo);
	assert_true(topo.module);
	assert_string_equal(topo.pools[0].name, "kv0");
	assert_string_equal(topo.pools[0].integrity, "header");
	members = topo.pools[0].members;
	assert_string_equal(members[1].name, "nvme9n1");
	assert_string_equal(members[2].name, "nvme10n1");
	assert_string_equal(members[0].transport, "pcie");
	assert_false(members[0].multipath);
	assert_string_equal(members[1].transport, "tcp");
	assert_true(members[2].multipath);
	assert_string_equal(members[3].transport, "md");

	assert_string_equal(words(&topo, 0, "0000:81:00.0"), "");
	assert_non_null(strstr(words(&topo, 0, "0000:82:00.0"), "on trial"));
	assert_non_null(strstr(words(&topo, 0, "0000:83:00.0"), "yet"));
	assert_non_null(strstr(words(&topo, 0, "0000:84:00.0"), "newer"));
	assert_non_null(strstr(words(&topo, 1, "0000:81:00.0"), "NVMe/TCP"));
	assert_non_null(strstr(words(&topo, 2, "0000:81:00.0"), "no way"));
	/* an unknown reason is printed unchanged */
	assert_string_equal(words(&topo, 1, "0000:82:00.0"), "moon");
	/* routes that the module does not report */
	assert_non_null(strstr(words(&topo, 2, "0000:82:00.0"), "gives no memory"));
	assert_non_null(strstr(words(&topo, 3, "0000:81:00.0"), "dead"));
	topo_free(&topo);
}

TEST_WITH(policies, tree_make, tree_remove)
{
	struct topo topo;

	scan_pool("full\n", &topo);
	assert_non_null(strstr(words(&topo, 0, "0000:81:00.0"), "integrity is full"));
	assert_non_null(strstr(words(&topo, 1, "0000:81:00.0"), "NVMe/TCP"));
	topo.pools[0].strict = true;
	assert_non_null(strstr(words(&topo, 0, "0000:81:00.0"), "strict"));
	topo_free(&topo);
	make(POOL "integrity", "producer\n");
	make(POOL "strict", "1\n");
	assert_int_equal(topo_scan(root, &topo), 0);
	assert_string_equal(topo.pools[0].integrity, "producer");
	assert_true(topo.pools[0].strict);
	topo_free(&topo);
}

TEST_WITH(nothing, tree_make, tree_remove)
{
	struct topo topo;

	assert_int_equal(topo_scan(root, &topo), 0);
	assert_int_equal(topo.nr_devices + topo.nr_pools, 0);
	assert_false(topo.module);
	topo_free(&topo);
}

TEST_MAIN("topo")
