/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_LOG2_H
#define KVBLK_SHIM_LINUX_LOG2_H

#include <linux/bitops.h>

#define ilog2(n)		(fls64(n) - 1)
#define roundup_pow_of_two(n)	(1UL << fls64((u64)(n) - 1))

#endif
