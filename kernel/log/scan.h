/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Scan of a member's log. A scan reads the segment table, summaries and headers, and reports
 * what it finds; it never writes. restore.c repairs what a scan reports.
 *
 * Pure logic: compiled for user space by selftests.
 */
#ifndef KVBLK_SCAN_H
#define KVBLK_SCAN_H

#include <linux/bitmap.h>
#include <linux/gfp.h>
#include <linux/types.h>

#include "format/geometry.h"
#include "format/record.h"

struct kvblk_reader;

/**
 * struct kvblk_reader_ops - access to a device, or to an image of one
 * @read: reads @len bytes at @pos. Returns 0, -EIO if the place is bad, or another errno if the
 *	device was not reached
 * @read_units: reads the @nr units at @units of @segment together, and returns as @read
 * @bad: counts an unreadable place of @segment
 */
struct kvblk_reader_ops {
	int (*read)(const struct kvblk_reader *reader, u64 pos, void *buf, size_t len);
	int (*read_units)(const struct kvblk_reader *reader, u32 segment, const u32 *units,
			  u32 nr, void *buf);
	void (*bad)(const struct kvblk_reader *reader, u32 segment);
};

/**
 * struct kvblk_reader - a member's log as its superblock describes it
 * @ops: access to the device
 * @device: argument for @ops
 * @secret: secret of the pool
 * @incarnation: incarnation of the member's format
 * @data_start: byte offset of segment 0
 * @segment_units: units of a segment
 * @nr_segs: number of segments
 * @align_units: alignment of records, in units
 */
struct kvblk_reader {
	const struct kvblk_reader_ops *ops;
	void *device;
	const struct kvblk_secret *secret;
	u64 incarnation;
	u64 data_start;
	u32 segment_units;
	u32 nr_segs;
	u32 align_units;
};

static inline u64 kvblk_reader_pos(const struct kvblk_reader *reader, u32 segment, u32 unit)
{
	return kvblk_unit_pos(reader->data_start, reader->segment_units, segment, unit);
}

/* ---- walk.c ---- */

#define KVBLK_WALK_UNITS	256u

/**
 * struct kvblk_walk - reads the headers of a segment one after the other
 * @reader: member of the segment
 * @place: where the next header may begin
 * @have_from: unit of the first byte in @buf
 * @have_to: unit behind the last byte in @buf
 * @nr_unread: number of units that cannot be read
 * @missed: first unreadable unit where a header may be, or U32_MAX
 * @bad: bitmap of the unreadable units in @buf
 * @buf: units read last
 */
struct kvblk_walk {
	const struct kvblk_reader *reader;
	struct kvblk_place place;
	u32 have_from;
	u32 have_to;
	u32 nr_unread;
	u32 missed;
	DECLARE_BITMAP(bad, KVBLK_WALK_UNITS);
	void *buf;
};

/* Allocates a walk over @reader's segments. Returns 0 or -ENOMEM. */
int kvblk_walk_begin(struct kvblk_walk *walk, const struct kvblk_reader *reader, gfp_t gfp);
void kvblk_walk_end(struct kvblk_walk *walk);
/* Continues with the segment of @place, at its unit. */
void kvblk_walk_segment(struct kvblk_walk *walk, const struct kvblk_place *place);
/*
 * Finds the next record: @rec, which points into the walk, at @unit. Returns 1; 0 at the end;
 * -EIO after too many unreadable units; or an errno of @read. May sleep.
 */
int kvblk_walk_next(struct kvblk_walk *walk, struct kvblk_rec *rec, u32 *unit);

/* ---- scan.c ---- */

struct kvblk_scan;

/**
 * struct kvblk_scan_segment - a segment, and what a scan finds in it
 * @place: the segment, in the generation of the table; unit 0
 * @flags: KVBLK_SEGF_* of the table, which may change during the scan. With KVBLK_SEGF_KILLS
 *	entries without a matching header are holes
 * @sealed: all records are durable, by the table or by the segment's summary
 * @whole: the summary on media lists all records
 * @missed: a record may begin at a unit that cannot be read; unless @whole
 * @nr: number of records and holes
 */
struct kvblk_scan_segment {
	struct kvblk_place place;
	const u16 *flags;
	bool sealed;
	bool whole;
	bool missed;
	u32 nr;
};

/**
 * struct kvblk_scan_ops - visitor of a scan; an error ends the scan of a segment
 * @page_known: returns whether a page of the table need not be read
 * @page: takes the newer slot of a page of the table; @alone if the other slot cannot be read,
 *	@differs if that slot must be written, too
 * @no_summary: prepares for @entry, because the segment has no whole summary
 * @ahead: prefetches what @record needs for the entries of @sum behind entry @i
 * @record: takes a record
 * @entry: takes entry @index of the summary that the segment lacks
 */
struct kvblk_scan_ops {
	bool (*page_known)(struct kvblk_scan *scan, u32 page);
	void (*page)(struct kvblk_scan *scan, u32 page, const struct kvblk_d_table *table,
		     bool alone, bool differs);
	int (*no_summary)(struct kvblk_scan *scan, const struct kvblk_scan_segment *seg);
	void (*ahead)(struct kvblk_scan *scan, const struct kvblk_d_summary *sum, u32 i);
	int (*record)(struct kvblk_scan *scan, const struct kvblk_rec *rec, u32 unit);
	void (*entry)(struct kvblk_scan *scan, u32 index, const struct kvblk_d_entry *entry);
};

/**
 * struct kvblk_scan - a scan of @reader
 * @ops: visitor
 * @reader: the log
 * @memory: pages of a summary
 * @sums: page 0 of a summary; page i is i pages before it, as on media
 * @headers: first units of the headers that a page of a summary lists
 * @units: places of @headers
 * @walk: walk over headers
 */
struct kvblk_scan {
	const struct kvblk_scan_ops *ops;
	struct kvblk_reader reader;
	void *memory;
	struct kvblk_d_summary *sums;
	void *headers;
	u32 units[KVBLK_SUMMARY_ENTRIES];
	struct kvblk_walk walk;
};

/* Allocates the buffers of @scan, whose @ops and @reader are set. Returns 0 or -ENOMEM. */
int kvblk_scan_begin(struct kvblk_scan *scan);
void kvblk_scan_end(struct kvblk_scan *scan);
/*
 * Reads both slots of page @page of the table. Returns the newer valid one, or NULL. @unread: 0,
 * or a slot's read error. May sleep.
 */
struct kvblk_d_table *kvblk_scan_page(const struct kvblk_reader *reader, u32 page,
				      struct kvblk_d_table *slots, int *unread);
/*
 * Reads the pages of the table that are not known. Returns 0 if any page is known, -ENOMEM, the
 * error of a read, or -EUCLEAN. May sleep.
 */
int kvblk_scan_table(struct kvblk_scan *scan);
/*
 * Finds the records of a segment and sets what the scan finds in @seg. Returns 0, an error of
 * the visitor, -EIO after too many unreadable units, or another errno of @read. May sleep.
 */
int kvblk_scan_segment(struct kvblk_scan *scan, struct kvblk_scan_segment *seg);

#endif
