/* SPDX-License-Identifier: MIT */
/* NVMe and NVMe-oF, through libnvme 1.x. Only fabrics.c uses that library. */
#ifndef KVBLKD_HOST_FABRICS_H
#define KVBLKD_HOST_FABRICS_H

#include <stddef.h>

#include "config/config.h"
#include "host/smart.h"

/* Connect to @fabric; may block. Returns 0, even if connected already; or -1 with @why. */
int fabrics_connect(struct config_fabric *fabric, char *why, size_t len);

#define FABRICS_IPS	8

/* Resolve @name to at most FABRICS_IPS addresses. Returns their number; 0 on failure, with @why. */
size_t fabrics_resolve(const char *name, char ips[FABRICS_IPS][CONFIG_IP_LEN], char *why,
		       size_t len);

/*
 * Read the log page of the live discovery controller @name, which was connected as @by. Append a
 * copy of @by with NQN and address of each entry to *@list. Returns 0 or -1.
 */
int fabrics_discover(const char *name, const struct config_fabric *by,
		     struct config_fabric **list, size_t *nr);

/* Read the health of the NVMe drive at @path; may block. Leaves @smart unchanged on failure. */
void fabrics_smart(const char *path, struct smart *smart);

/* Free a list from fabrics_discover(). */
void fabrics_free(struct config_fabric *list, size_t nr);

#endif
