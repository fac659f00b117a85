/* SPDX-License-Identifier: MIT */
/*
 * Uevents of block devices and NVMe controllers: the kernel's messages, so that udev is not
 * needed, and udevd's, for the links in /dev/disk.
 */
#ifndef KVBLKD_HOST_UEVENTS_H
#define KVBLKD_HOST_UEVENTS_H

#include <stdbool.h>

/* Returns a descriptor that is readable if there are messages, or a negative errno. */
int uevents_open(void);

/* Read all pending messages. Returns true if one is about such a device, or if some were lost. */
bool uevents_read(int fd);

#endif
