/* SPDX-License-Identifier: MIT */
/*
 * Block devices and NVMe controllers that come, go and change: the kernel's own
 * messages, so that no udev is needed, and udev's, for the links in /dev/disk.
 */
#ifndef KVBLKD_UEVENTS_H
#define KVBLKD_UEVENTS_H

#include <stdbool.h>

/* A descriptor that is readable when there are messages, or a negative errno. */
int uevents_open(void);

/* Reads all that there are now: whether one was about such a device, or some were lost. */
bool uevents_read(int fd);

#endif
