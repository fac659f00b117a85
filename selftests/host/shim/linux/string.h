/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_STRING_H
#define KVBLK_SHIM_LINUX_STRING_H

#include <string.h>

#include <linux/types.h>

#endif
