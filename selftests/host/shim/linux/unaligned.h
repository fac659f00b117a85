/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_UNALIGNED_H
#define KVBLK_SHIM_LINUX_UNALIGNED_H

#include <asm/byteorder.h>
#include <linux/string.h>

#define get_unaligned(p) \
	(((const struct { __typeof__(*(p)) x; } __packed *)(p))->x)

#define SHIM_UNALIGNED_LE(bits)						\
static inline u##bits get_unaligned_le##bits(const void *p)		\
{									\
	__le##bits val;							\
									\
	memcpy(&val, p, sizeof(val));					\
	return le##bits##_to_cpu(val);					\
}									\
									\
static inline void put_unaligned_le##bits(u##bits val, void *p)		\
{									\
	__le##bits le = cpu_to_le##bits(val);				\
									\
	memcpy(p, &le, sizeof(le));					\
}

SHIM_UNALIGNED_LE(16)
SHIM_UNALIGNED_LE(32)
SHIM_UNALIGNED_LE(64)

#endif
