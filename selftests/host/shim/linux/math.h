/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_MATH_H
#define KVBLK_SHIM_LINUX_MATH_H

#include <stdlib.h>

#include <linux/bitops.h>

#define round_mask_(x, y)	((__typeof__(x))((y) - 1))
#define round_up(x, y)		((((x) - 1) | round_mask_(x, y)) + 1)
#define round_down(x, y)	((x) & ~round_mask_(x, y))
#define abs_diff(a, b)		((a) > (b) ? (a) - (b) : (b) - (a))
#define DIV_ROUND_UP_ULL(n, d)	DIV_ROUND_UP((u64)(n), d)

#endif
