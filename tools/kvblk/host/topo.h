/* SPDX-License-Identifier: MIT */
/*
 * kvblk topo: whose memory members can reach without the host's. topo.c parses
 * options, asks the module for routes and prints, topo_scan.c reads sysfs,
 * topo_text.c says what it means.
 *
 * The rule: everything here is what the kernel tells; nothing is opened, mapped
 * or tried out. So anybody may ask, and without the module, too.
 */
#ifndef KVBLK_TOPO_H
#define KVBLK_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "host/sysroot.h"
#include "lib/kvblk.h"

#define TOPO_NAME	TREE_NAME

/**
 * struct topo_device - a PCI device whose memory others might be let at
 * @address: "0000:81:00.0"
 * @driver: that is bound to it, or ""
 * @class: of PCI, 24 bits
 * @vendor: of PCI
 * @device: of PCI
 * @numa_node: -1: not told
 * @provider: it has P2P memory; the rest is about it
 * @published: its driver lets others allocate of it
 * @size: bytes
 * @available: bytes that nobody has
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
 * @name: its name
 * @transport: "pcie", "tcp", "rdma", ... of an NVMe namespace; "md", "dm"; or ""
 * @multipath: an NVMe multipath head
 * @gone: it is dead or being removed, and has no routes
 * @routes: what the module tells, or NULL
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
 * @name: its name
 * @integrity: "full", "header", "producer"
 * @strict: all goes through kernel memory
 * @members: array of @nr_members
 * @nr_members: its length
 */
struct topo_pool {
	char name[TOPO_NAME];
	char integrity[TOPO_NAME];
	bool strict;
	struct topo_member *members;
	size_t nr_members;
};

/**
 * struct topo - all of it
 * @module: kvblk is loaded
 * @p2pdma: the kernel has CONFIG_PCI_P2PDMA: 1, 0, or -1: can't be told
 * @devices: array of @nr_devices, those with P2P memory first
 * @nr_devices: its length
 * @pools: array of @nr_pools
 * @nr_pools: its length
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
 * Reads what there is below @root, "" for that of this host: all but the routes.
 * 0 or -ENOMEM; what can't be read is as if it were not there. topo_free() in both
 * cases, also for routes that were added.
 */
int topo_scan(const char *root, struct topo *topo);
void topo_free(struct topo *topo);

/*
 * The route between the two. Where the module tells of none, its @why is a word of
 * ours: "gone" (the member is), or "taken": nobody went to the device yet, and it
 * gives no memory to try the way with.
 */
struct kvblk_route_state topo_route(const struct topo_device *device,
				    const struct topo_member *member);

bool topo_is_drive(const struct topo_device *device);

/* "NVIDIA GPU", "NVMe drive": to @buf, which is returned */
char *topo_kind(const struct topo_device *device, char *buf, size_t len);

/* Why there is no P2P memory, or that nobody is let at it; "": all is well */
char *topo_device_words(const struct topo *topo,
			const struct topo_device *device, char *buf, size_t len);

/* What a route means, when blocks do not simply go straight; else "" */
const char *topo_route_words(const struct topo_pool *pool,
			     const struct topo_member *member,
			     const struct kvblk_route_state *route);

#endif
