/* SPDX-License-Identifier: MIT */
/* Nodes that the directory lists, which are peers like those of the configuration. */
#ifndef KVBLKD_POD_MEMBERS_H
#define KVBLKD_POD_MEMBERS_H

#include <stdbool.h>

#include "config/config.h"
#include "pod/directory.h"
#include "pod/own_pools.h"

/**
 * members_tick() - announce this host in the pods of its pools, and learn the other nodes
 * @dir: the directory
 * @own: the pools
 * @listen: endpoint to announce; one of all addresses is of no use to others: nothing is done
 * @live: endpoints of the other nodes
 *
 * To be called each second.
 *
 * Return: true if @live has changed.
 */
bool members_tick(struct directory *dir, const struct own_pools *own, const char *listen,
		  struct texts *live);

#endif
