/* SPDX-License-Identifier: MIT */
/*
 * Capabilities that kvblkd keeps: CAP_SYS_ADMIN, for the module's netlink commands and the log
 * pages of discovery controllers, and CAP_SYS_MODULE. File ownership covers the rest:
 * /dev/nvme-fabrics, devices, sysfs files and secrets belong to root.
 */
#ifndef KVBLKD_HOST_CAPABILITIES_H
#define KVBLKD_HOST_CAPABILITIES_H

#include <sys/types.h>

/*
 * Join @group, so that kvblkd may give files to the group after rights_drop(). Returns the
 * group's number; -1 if the group is missing, or if kvblkd may not join it.
 */
gid_t rights_join(const char *group);

/* Drop all other capabilities. Returns 0 or a negative errno. */
int rights_drop(void);

#endif
