/* SPDX-License-Identifier: GPL-2.0 */
/* User space has the same errno values. */
#ifndef KVBLK_SHIM_LINUX_ERRNO_H
#define KVBLK_SHIM_LINUX_ERRNO_H

#include_next <linux/errno.h>
#include <errno.h>

#endif
