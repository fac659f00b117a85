/* SPDX-License-Identifier: GPL-2.0 */
/* Nothing is a module in user space. */
#ifndef KVBLK_SHIM_LINUX_MODULE_H
#define KVBLK_SHIM_LINUX_MODULE_H

#include <linux/export.h>

#define MODULE_LICENSE(s)
#define MODULE_DESCRIPTION(s)

#endif
