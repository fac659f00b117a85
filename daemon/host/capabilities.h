/* SPDX-License-Identifier: MIT */
/*
 * What stays privileged: CAP_SYS_ADMIN, for the module's netlink and the log pages of
 * discovery controllers, and CAP_SYS_MODULE. The rest is done with the rights of a
 * file's owner: /dev/nvme-fabrics, the devices, sysfs and the secrets are root's.
 */
#ifndef KVBLKD_RIGHTS_H
#define KVBLKD_RIGHTS_H

/* Gives up all other capabilities: 0 or a negative errno. */
int rights_drop(void);

#endif
