/* SPDX-License-Identifier: GPL-2.0 */
/* Allocation flags; only __GFP_ZERO has an effect. */
#ifndef KVBLK_SHIM_LINUX_GFP_H
#define KVBLK_SHIM_LINUX_GFP_H

#include <linux/types.h>

#define GFP_KERNEL		0u
#define GFP_NOIO		0u
#define GFP_KERNEL_ACCOUNT	0u
#define __GFP_NOWARN		0u
#define __GFP_RETRY_MAYFAIL	0u
#define __GFP_ZERO		1u

#endif
