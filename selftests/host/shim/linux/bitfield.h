/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_BITFIELD_H
#define KVBLK_SHIM_LINUX_BITFIELD_H

#include <linux/bits.h>

#define FIELD_SHIFT_(mask)	__builtin_ctzll(mask)
#define FIELD_PREP(mask, val) \
	((((__typeof__(mask))(val)) << FIELD_SHIFT_(mask)) & (mask))
#define FIELD_GET(mask, reg) \
	((__typeof__(mask))(((reg) & (mask)) >> FIELD_SHIFT_(mask)))

#endif
