/* SPDX-License-Identifier: MIT */
/*
 * Capabilities that kvblkd keeps: CAP_SYS_ADMIN, for the module's netlink commands and the log
 * pages of discovery controllers, and CAP_SYS_MODULE. File ownership covers the rest:
 * /dev/nvme-fabrics, devices, sysfs files and secrets belong to root.
 */
#ifndef KVBLKD_HOST_CAPABILITIES_H
#define KVBLKD_HOST_CAPABILITIES_H

/* Drop all other capabilities. Returns 0 or a negative errno. */
int rights_drop(void);

#endif
