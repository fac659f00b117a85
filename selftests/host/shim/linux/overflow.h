/* SPDX-License-Identifier: GPL-2.0 */
/* Sizes that saturate instead of wrapping. */
#ifndef KVBLK_SHIM_LINUX_OVERFLOW_H
#define KVBLK_SHIM_LINUX_OVERFLOW_H

#include <linux/types.h>

#define check_add_overflow(a, b, d)	__builtin_add_overflow(a, b, d)
#define check_mul_overflow(a, b, d)	__builtin_mul_overflow(a, b, d)

static inline size_t size_mul(size_t a, size_t b)
{
	size_t bytes;

	return check_mul_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

static inline size_t size_add(size_t a, size_t b)
{
	size_t bytes;

	return check_add_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

#define array_size(a, b)	size_mul(a, b)
#define struct_size(p, member, n) \
	size_add(sizeof(*(p)), size_mul(sizeof(*(p)->member), n))

#endif
