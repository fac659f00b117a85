/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_BITMAP_H
#define KVBLK_SHIM_LINUX_BITMAP_H

#include <string.h>

#include <linux/bitops.h>

#define DECLARE_BITMAP(name, bits) unsigned long name[BITS_TO_LONGS(bits)]

static inline void bitmap_zero(unsigned long *map, unsigned int bits)
{
	memset(map, 0, BITS_TO_LONGS(bits) * sizeof(long));
}

static inline void __set_bit(unsigned int nr, unsigned long *map)
{
	map[nr / BITS_PER_LONG] |= BIT(nr % BITS_PER_LONG);
}

static inline unsigned long find_next_bit(const unsigned long *map, unsigned long bits,
					  unsigned long from)
{
	while (from < bits && !(map[from / BITS_PER_LONG] & BIT(from % BITS_PER_LONG)))
		from++;
	return from < bits ? from : bits;
}

#endif
