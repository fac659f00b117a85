/* SPDX-License-Identifier: MIT */
/*
 * kvblk topo: which device memory members can reach without host memory. topo.c parses
 * options, queries the module for routes and prints; topo_scan.c reads sysfs; topo_text.c
 * explains.
 *
 * The rule: everything comes from the kernel's files and answers; nothing is opened, mapped
 * or tried. So any user may run it, also without the module.
 */
#ifndef KVBLK_TOPO_H
#define KVBLK_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/sysroot.h"
#include "lib/kvblk_admin.h"

#define TOPO_NAME	TREE_NAME

/**
 * struct topo_device - a PCI device whose memory other devices might access
 * @address: "0000:81:00.0"
 * @driver: name of the bound driver, or ""
 * @class: PCI class, 24 bits
 * @vendor: PCI vendor
 * @device: PCI device
 * @numa_node: NUMA node; -1: unknown
 * @provider: the device has P2P memory; the remaining fields describe the memory
 * @published: the driver lets other drivers allocate from the memory
 * @size: bytes
 * @available: free bytes
 */
struct topo_device {
	char address[TOPO_NAME];
	char driver[TOPO_NAME];
	uint32_t class;
	uint16_t vendor;
	uint16_t device;
	int numa_node;
	bool provider;
	bool published;
	uint64_t size;
	uint64_t available;
};

/**
 * struct topo_member - a member
 * @name: name of the member
 * @transport: "pcie", "tcp", "rdma", ... of an NVMe namespace; "md", "dm"; or ""
 * @multipath: an NVMe multipath head
 * @gone: the member is dead or being removed, and has no routes
 * @routes: routes that the module reports, or NULL
 */
struct topo_member {
	char name[TOPO_NAME];
	char transport[TOPO_NAME];
	bool multipath;
	bool gone;
	struct kvblk_route_state *routes;
};

/**
 * struct topo_pool - a pool
 * @name: name of the pool
 * @integrity: "full", "header" or "producer"
 * @strict: all transfers go through kernel memory
 * @members: array of @nr_members
 * @nr_members: length of @members
 */
struct topo_pool {
	char name[TOPO_NAME];
	char integrity[TOPO_NAME];
	bool strict;
	struct topo_member *members;
	size_t nr_members;
};

/**
 * struct topo - devices and pools of the host
 * @module: kvblk is loaded
 * @p2pdma: the kernel has CONFIG_PCI_P2PDMA: 1, 0, or -1 if unknown
 * @devices: array of @nr_devices; devices with P2P memory first
 * @nr_devices: length of @devices
 * @pools: array of @nr_pools
 * @nr_pools: length of @pools
 */
struct topo {
	bool module;
	int p2pdma;
	struct topo_device *devices;
	size_t nr_devices;
	struct topo_pool *pools;
	size_t nr_pools;
};

/*
 * Read everything below @root, "" for this host, but the routes. Returns 0 or -ENOMEM; an
 * unreadable file counts as missing. The caller calls topo_free() in both cases; topo_free()
 * frees routes, too.
 */
int topo_scan(const char *root, struct topo *topo);
void topo_free(struct topo *topo);

/*
 * Returns the route between the two. If the module reports none, @why is "gone" (the member
 * is dead or being removed) or "taken" (no operation has used the device yet, and the device
 * provides no memory for a trial).
 */
struct kvblk_route_state topo_route(const struct topo_device *device,
				    const struct topo_member *member);

bool topo_is_drive(const struct topo_device *device);

/* Write "NVIDIA GPU" or "NVMe drive" to @buf. Returns @buf. */
char *topo_kind(const struct topo_device *device, char *buf, size_t len);

/*
 * Write why there is no P2P memory, or why nobody may use it; "" if all is well. Returns
 * @buf.
 */
char *topo_device_words(const struct topo *topo,
			const struct topo_device *device, char *buf, size_t len);

/* Returns why blocks do not move directly on this route; "": they do. */
const char *topo_route_words(const struct topo_pool *pool,
			     const struct topo_member *member,
			     const struct kvblk_route_state *route);

#endif
