/* SPDX-License-Identifier: MIT */
/* NVMe and NVMe-oF, through libnvme 1.x: fabrics.c alone knows that library. */
#ifndef KVBLKD_FABRICS_H
#define KVBLKD_FABRICS_H

#include <stddef.h>

#include "config/config.h"
#include "host/smart.h"

/*
 * Connects, which takes as long as the driver likes: 0, also if somebody else has;
 * else -1, and the reason is in @why.
 */
int fabrics_connect(struct config_fabric *fabric, char *why, size_t len);

#define FABRICS_IPS	8

/* The first addresses that @name leads to now. Returns how many; 0: none, and @why. */
size_t fabrics_resolve(const char *name, char ips[FABRICS_IPS][CONFIG_IP_LEN], char *why,
		       size_t len);

/*
 * What the discovery controller @name, which is live and was connected to as @by says,
 * tells of: copies of @by with other names and addresses are appended to *@list.
 * 0 or -1.
 */
int fabrics_discover(const char *name, const struct config_fabric *by,
		     struct config_fabric **list, size_t *nr);

/*
 * What the drive at @path tells of its health, which takes as long as it likes: @smart
 * is left alone if it is no NVMe drive, or does not tell.
 */
void fabrics_smart(const char *path, struct smart *smart);

/* Frees what fabrics_discover() has made. */
void fabrics_free(struct config_fabric *list, size_t nr);

#endif
