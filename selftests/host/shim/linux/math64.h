/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_MATH64_H
#define KVBLK_SHIM_LINUX_MATH64_H

#include <linux/math.h>
#include <linux/types.h>

static inline u64 div_u64(u64 a, u32 b)
{
	return a / b;
}

static inline u64 div64_u64(u64 a, u64 b)
{
	return a / b;
}

static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int shift)
{
	return (unsigned __int128)a * b >> shift;
}

#endif
