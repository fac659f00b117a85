/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's errno values are user space's. */
#ifndef KVBLK_SHIM_LINUX_ERRNO_H
#define KVBLK_SHIM_LINUX_ERRNO_H

#include_next <linux/errno.h>
#include <errno.h>

#endif
