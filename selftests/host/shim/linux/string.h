/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_STRING_H
#define KVBLK_SHIM_LINUX_STRING_H

#include <string.h>

#include <linux/types.h>

static inline void *memchr_inv(const void *start, int c, size_t bytes)
{
	const u8 *p = start;

	for (; bytes; p++, bytes--)
		if (*p != (u8)c)
			return (void *)p;
	return NULL;
}

static inline void memzero_explicit(void *p, size_t bytes)
{
	memset(p, 0, bytes);
	__asm__ __volatile__("" : : "r"(p) : "memory");
}

#endif
