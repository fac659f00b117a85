/* SPDX-License-Identifier: GPL-2.0 */
/* Default sizes of segments and index, shared with `kvblk pool plan`, which predicts them. */
#ifndef KVBLK_GEOMETRY_H
#define KVBLK_GEOMETRY_H

#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/sizes.h>
#include <linux/types.h>

#include "format/format.h"

#define KVBLK_INDEX_SEGS	0x1000000	/* pool-wide segment numbers of an index entry */

/* Members get pool-wide segment numbers in granules: a small array maps a segment to its member. */
#define KVBLK_GRANULE_SHIFT	10
#define KVBLK_GRANULES		1024
#define KVBLK_SEGS_MAX		(KVBLK_GRANULES << KVBLK_GRANULE_SHIFT)
#define KVBLK_DRAM_SEG		KVBLK_SEGS_MAX	/* of blocks in DRAM only, above members' numbers */
#define KVBLK_OWN_SEGS		(KVBLK_DRAM_SEG + 1)
#define KVBLK_FOREIGN_SEG	(KVBLK_SEGS_MAX + (1 << KVBLK_GRANULE_SHIFT)) /* first of others' */
#define KVBLK_FOREIGN_GRANULES	((KVBLK_INDEX_SEGS - KVBLK_FOREIGN_SEG) >> KVBLK_GRANULE_SHIFT)
#define KVBLK_SEGMENT_MIN	SZ_8M
#define KVBLK_SEGMENT_MAX	SZ_1G
#define KVBLK_SEGMENT_DEFAULT	SZ_256M
#define KVBLK_SEGMENT_FEW	SZ_128M	/* policy's lower bound: three common 32 MiB blocks */
#define KVBLK_MEMBER_SEGS_MIN	8

/* Return the segment size for a member of @size bytes. */
static inline u64 kvblk_default_segment(u64 size)
{
	u64 seg = KVBLK_SEGMENT_DEFAULT;

	/* about 1024 segments are as good as more: see policy.rst */
	while (seg > KVBLK_SEGMENT_FEW && size / seg < 1024)
		seg /= 2;
	/* smaller segments suit no large blocks: small members get about 64 segments */
	while (seg > KVBLK_SEGMENT_MIN && size / seg < 64)
		seg /= 2;
	while (size / seg > KVBLK_SEGS_MAX / 4 && seg < KVBLK_SEGMENT_MAX)
		seg *= 2;
	return seg;
}

/* Return the offset of the first segment, after superblocks, table and change page. */
static inline u64 kvblk_data_start(u64 size, u64 seg)
{
	u64 pages = DIV_ROUND_UP_ULL(size / seg, KVBLK_TABLE_ENTRIES);

	return round_up(KVBLK_TABLE_OFFSET + (2ull * pages + 1) * KVBLK_UNIT,
			(u64)KVBLK_DATA_ALIGN);
}

static inline u64 kvblk_nr_segments(u64 size, u64 seg)
{
	u64 start = kvblk_data_start(size, seg);

	return size > start ? (size - start) / seg : 0;
}

/* Return the byte offset of unit @unit of a segment. */
static inline u64 kvblk_unit_pos(u64 data_start, u32 segment_units, u32 segment, u32 unit)
{
	return data_start + (((u64)segment * segment_units + unit) << KVBLK_UNIT_SHIFT);
}

/* Return slots for small blocks in small pools, for 1 MiB blocks in large ones. */
static inline u64 kvblk_default_slots(u64 capacity)
{
	return max3(min(capacity >> 14, 1ull << 22), capacity >> 20, 1ull << 12);
}

#endif
