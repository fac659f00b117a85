/* SPDX-License-Identifier: MIT */
/*
 * Touches between the nodes of a pod: this host publishes which blocks it got from other nodes'
 * members, and passes to the module which of its blocks other nodes got. Touches are hints: any
 * may be lost, none is repeated. All functions belong to the pod's thread.
 */
#ifndef KVBLKD_POD_TOUCHES_H
#define KVBLKD_POD_TOUCHES_H

#include "lib/kvblk_admin.h"
#include "pod/bus.h"
#include "pod/touch_wire.h"

/* Fetch the touches of all pools from the module, and publish. Returns 0 or a negative errno. */
int touches_publish(struct kvblk_admin *admin, struct bus *bus);

/*
 * Pass touches of peer number @peer to the module, for the pool with this name. Returns 0 or a
 * negative errno of the module.
 */
int touches_take(struct kvblk_admin *admin, const char *pool, unsigned int peer,
		 const struct touchwire *touches);

/* Admit BUS_QUEUED messages of each peer again. */
void touches_admit(void);

#endif
