/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a new member is cut into segments, and how large a new index is.
 *
 * The rule: what `kvblk pool plan` foretells is what the module does, since both
 * ask here.
 *
 * Pure logic: compiled for user space by `kvblk pool plan`.
 */
#ifndef KVBLK_GEOMETRY_H
#define KVBLK_GEOMETRY_H

#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/sizes.h>
#include <linux/types.h>

#include "format/format.h"

/*
 * Pool-wide segment numbers are handed to members in granules, so that the
 * member of a segment is found with one small array.
 */
#define KVBLK_GRANULE_SHIFT	10
#define KVBLK_GRANULES		1024
#define KVBLK_SEGS_MAX		(KVBLK_GRANULES << KVBLK_GRANULE_SHIFT)
/* Where entries of blocks point to that are in the host's memory only: behind all members. */
#define KVBLK_DRAM_SEG		KVBLK_SEGS_MAX
#define KVBLK_SEGMENT_MIN	SZ_8M
#define KVBLK_SEGMENT_MAX	SZ_1G
#define KVBLK_SEGMENT_DEFAULT	SZ_256M
/* Not less for the sake of the policy: of blocks of 32 MiB, which are common, three fit. */
#define KVBLK_SEGMENT_FEW	SZ_128M
#define KVBLK_MEMBER_SEGS_MIN	8

/*
 * Of a member of @size bytes: some 1024 segments, which is as good as more (policy.rst),
 * unless they would be too small for large blocks; small ones have some 64, large ones few
 * enough.
 */
static inline u64 kvblk_default_segment(u64 size)
{
	u64 seg = KVBLK_SEGMENT_DEFAULT;

	while (seg > KVBLK_SEGMENT_FEW && size / seg < 1024)
		seg /= 2;
	while (seg > KVBLK_SEGMENT_MIN && size / seg < 64)
		seg /= 2;
	while (size / seg > KVBLK_SEGS_MAX / 4 && seg < KVBLK_SEGMENT_MAX)
		seg *= 2;
	return seg;
}

/* Where the segments of a member of @size bytes begin: behind superblocks and table. */
static inline u64 kvblk_data_start(u64 size, u64 seg)
{
	u64 pages = DIV_ROUND_UP_ULL(size / seg, KVBLK_TABLE_ENTRIES);

	return round_up(KVBLK_TABLE_OFFSET + 2ull * KVBLK_UNIT * pages,
			(u64)KVBLK_DATA_ALIGN);
}

/* Segments of @seg bytes that a member of @size bytes has. */
static inline u64 kvblk_nr_segments(u64 size, u64 seg)
{
	u64 start = kvblk_data_start(size, seg);

	return size > start ? (size - start) / seg : 0;
}

/* Small pools may hold small blocks; large ones pay for 1 MiB ones. */
static inline u64 kvblk_default_slots(u64 capacity)
{
	return max3(min(capacity >> 14, 1ull << 22), capacity >> 20, 1ull << 12);
}

#endif
