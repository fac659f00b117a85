// SPDX-License-Identifier: MIT
/*
 * Names of devices and routes, and reasons why a block does not move directly, see topo.h.
 * Documentation/p2p.rst explains the reasons at more length.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "host/topo.h"

static const struct {
	uint16_t vendor;
	const char *name;
} vendors[] = {
	{ 0x10de, "NVIDIA" },
	{ 0x1002, "AMD" },
	{ 0x8086, "Intel" },
	{ 0x1da3, "Habana" },
};

static const struct {
	uint32_t class;
	const char *name;
} kinds[] = {
	{ 0x03, "GPU" },
	{ 0x12, "accelerator" },
};

#define CLASS_NVME	0x0108

bool topo_is_drive(const struct topo_device *device)
{
	return device->class >> 8 == CLASS_NVME;
}

char *topo_kind(const struct topo_device *device, char *buf, size_t len)
{
	const char *kind = topo_is_drive(device) ? "NVMe drive" : "device";
	char vendor[16];

	snprintf(vendor, sizeof(vendor), "%04x:%04x", device->vendor,
		 device->device);
	for (size_t i = 0; i < ARRAY_SIZE(vendors); i++) {
		if (vendors[i].vendor == device->vendor)
			snprintf(vendor, sizeof(vendor), "%s", vendors[i].name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (kinds[i].class == device->class >> 16)
			kind = kinds[i].name;
	}
	snprintf(buf, len, "%s %s", vendor, kind);
	return buf;
}

char *topo_device_words(const struct topo *topo,
			const struct topo_device *device, char *buf, size_t len)
{
	*buf = '\0';
	if (device->provider && !device->published)
		snprintf(buf, len, "not published: its driver keeps it to itself");
	if (device->provider)
		return buf;
	if (!topo->p2pdma)
		snprintf(buf, len, "no P2P memory: this kernel is built without CONFIG_PCI_P2PDMA");
	else if (!*device->driver)
		snprintf(buf, len, "no P2P memory: no driver is bound to it");
	else if (!strcmp(device->driver, "nvidia"))
		snprintf(buf, len, "no P2P memory: nvidia publishes it only with the open driver and a static BAR1, see p2p.rst");
	else
		snprintf(buf, len, "no P2P memory: its driver, %s, does not publish any",
			 device->driver);
	return buf;
}

struct kvblk_route_state topo_route(const struct topo_device *device,
				    const struct topo_member *member)
{
	struct kvblk_route_state none = { .distance = -1 };
	const struct kvblk_route_state *route;

	for (route = member->routes; route; route = route->next) {
		if (!strcmp(route->device, device->address))
			return *route;
	}
	snprintf(none.why, sizeof(none.why), member->gone ? "gone" : "taken");
	return none;
}

/* Returns why the member's queue refuses pages of device memory. */
static const char *queue_words(const struct topo_member *member)
{
	if (!strcmp(member->transport, "tcp"))
		return "NVMe/TCP: the CPU moves the bytes, and keeps off devices' memory";
	if (!strcmp(member->transport, "rdma"))
		return "NVMe/RDMA takes devices' memory from Linux 7.1 on, with a network card that is not software";
	if (!strcmp(member->transport, "md") || !strcmp(member->transport, "dm"))
		return "md and device-mapper take no devices' memory: make their parts members";
	if (!strcmp(member->transport, "pcie") && member->multipath)
		return "NVMe multipath takes devices' memory from Linux 7.2 on; before: nvme_core.multipath=N";
	return "the member's driver takes no devices' memory";
}

const char *topo_route_words(const struct topo_pool *pool,
			     const struct topo_member *member,
			     const struct kvblk_route_state *route)
{
	static const struct {
		const char *why;
		const char *words;
	} reasons[] = {
		{ "unreachable", "PCI has no way between them: no common switch, or ACS is on there, and no trusted host bridge" },
		{ "gone", "the member is dead or being removed: it serves nothing" },
		{ "taken", "nothing was put from there or got to there yet, and the device gives no memory to try it with" },
		{ "probe", "tried out, and refused or wrong; not again before the device's driver is bound again" },
		{ "error", "transfers failed; tried out again after the first, after the second not before the device's driver is bound again" },
	};

	if (!strcmp(route->why, "queue"))
		return queue_words(member);
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		if (!strcmp(route->why, reasons[i].why))
			return reasons[i].words;
	}
	if (*route->why)
		return route->why;
	if (pool->strict)
		return "not used: the pool is strict, all goes through kernel memory";
	if (!strcmp(pool->integrity, "full"))
		return "the pool's integrity is full: only blocks whose callers deal with checksums go straight";
	switch (route->state) {
	case KVBLK_ROUTE_STATUS_UNKNOWN:
		return "nothing was put from there or got to there yet";
	case KVBLK_ROUTE_STATUS_TRIAL:
		return "on trial with callers' memory, for the device gives none to try it with";
	case KVBLK_ROUTE_STATUS_DIRECT:
		return "";
	default:
		return "no word for this: the module is newer than the command";
	}
}
