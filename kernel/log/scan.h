/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Scan of a member's log: reads segment table, summaries and headers, and reports what it finds.
 * A scan may sleep and never writes. Pure logic: compiled for user space by selftests.
 */
#ifndef KVBLK_SCAN_H
#define KVBLK_SCAN_H

#include <linux/bitmap.h>
#include <linux/gfp.h>
#include <linux/types.h>

#include "format/geometry.h"
#include "format/record.h"

struct kvblk_reader;

struct kvblk_reader_ops {
	/* returns 0, -EIO if the place is bad, or another errno if the device was not reached */
	int (*read)(const struct kvblk_reader *reader, u64 pos, void *buf, size_t len);
	/* reads @nr units of @segment together, and returns as @read */
	int (*read_units)(const struct kvblk_reader *reader, u32 segment, const u32 *units,
			  u32 nr, void *buf);
	/* counts an unreadable place of @segment */
	void (*bad)(const struct kvblk_reader *reader, u32 segment);
};

/* A member's log. */
struct kvblk_reader {
	const struct kvblk_reader_ops *ops;
	void *device;			/* for @ops */
	const struct kvblk_secret *secret;
	u64 incarnation;
	u64 data_start;			/* byte offset of segment 0 */
	u32 segment_units;
	u32 nr_segs;
	u32 align_units;		/* of records */
};

static inline u64 kvblk_reader_pos(const struct kvblk_reader *reader, u32 segment, u32 unit)
{
	return kvblk_unit_pos(reader->data_start, reader->segment_units, segment, unit);
}

/* Returns the position of a table page's two slots. */
static inline u64 kvblk_table_pos(u32 page)
{
	return KVBLK_TABLE_OFFSET + ((u64)page * 2 << KVBLK_UNIT_SHIFT);
}

/* Reads a unit as @read. If that fails, calls @bad and zeroes @buf: no header is found there. */
int kvblk_reader_unit(const struct kvblk_reader *reader, u32 segment, u32 unit, void *buf);

/* ---- walk.c ---- */

#define KVBLK_WALK_UNITS	256u

/* Reads the headers of a segment one after the other. */
struct kvblk_walk {
	const struct kvblk_reader *reader;
	struct kvblk_place place;	/* where the next header may begin */
	u32 have_from;			/* first unit in @buf */
	u32 have_to;			/* unit behind the last one in @buf */
	u32 nr_unread;			/* units that cannot be read */
	u32 missed;			/* first of these where a header may be, or U32_MAX */
	DECLARE_BITMAP(bad, KVBLK_WALK_UNITS);	/* unreadable units in @buf */
	void *buf;
	/* in @buf, of the record that kvblk_walk_next() has found, until the next call */
	const struct kvblk_d_record *header;
};

int kvblk_walk_begin(struct kvblk_walk *walk, const struct kvblk_reader *reader, gfp_t gfp);
void kvblk_walk_end(struct kvblk_walk *walk);
void kvblk_walk_segment(struct kvblk_walk *walk, const struct kvblk_place *place);
/*
 * Finds the next record: @rec, which points into the walk, at @unit. Returns 1; 0 at the end; -EIO
 * after too many unreadable units; or an errno of @read.
 */
int kvblk_walk_next(struct kvblk_walk *walk, struct kvblk_rec *rec, u32 *unit);

/* ---- scan.c ---- */

struct kvblk_scan;

/* A segment, and what a scan finds in it. */
struct kvblk_scan_segment {
	struct kvblk_place place;	/* unit 0, in the generation of the table */
	const u16 *flags;		/* of the table; may get KVBLK_SEGF_KILLS meanwhile */
	bool sealed;			/* all records are durable, by table or summary */
	bool whole;			/* the summary on media lists all records */
	bool missed;			/* unless @whole: an unreadable unit may have a record */
	u32 nr;				/* records and holes */
	u32 settled;			/* pages before this one are skipped unless @whole */
};

/* Visitor of a scan; an error ends the scan of a segment. */
struct kvblk_scan_ops {
	/* returns whether a page of the table need not be read */
	bool (*page_known)(struct kvblk_scan *scan, u32 page);
	/* newer slot of a page; the other is unreadable (@alone), must be written (@differs) */
	void (*page)(struct kvblk_scan *scan, u32 page, const struct kvblk_d_table *table,
		     bool alone, bool differs);
	/* prepares for @entry, because the segment has no whole summary */
	int (*no_summary)(struct kvblk_scan *scan, const struct kvblk_scan_segment *seg);
	/* prefetches what @record needs for entries behind @i */
	void (*ahead)(struct kvblk_scan *scan, const struct kvblk_d_summary *sum, u32 i);
	int (*record)(struct kvblk_scan *scan, const struct kvblk_rec *rec, u32 unit);
	/* entry @index of the summary that the segment lacks; NULL: report listed records only */
	void (*entry)(struct kvblk_scan *scan, u32 index, const struct kvblk_d_entry *entry);
};

struct kvblk_scan {
	const struct kvblk_scan_ops *ops;
	struct kvblk_reader reader;
	void *memory;			/* pages of a summary */
	struct kvblk_d_summary *sums;	/* page 0; page i is i pages before it, as on media */
	void *headers;			/* first units of headers that a summary page lists */
	u32 units[KVBLK_SUMMARY_ENTRIES];	/* places of @headers */
	struct kvblk_walk walk;
};

/* Allocates the buffers of @scan, whose @ops and @reader are set. Returns 0 or -ENOMEM. */
int kvblk_scan_begin(struct kvblk_scan *scan);
void kvblk_scan_end(struct kvblk_scan *scan);
/* Reads both slots of a page. Returns the newer valid one, or NULL. @unread: 0, or a read error. */
struct kvblk_d_table *kvblk_scan_page(const struct kvblk_reader *reader, u32 page,
				      struct kvblk_d_table *slots, int *unread);
/* Reads unknown pages. Returns 0 if any is known, -ENOMEM, a read's errno, or -EUCLEAN. */
int kvblk_scan_table(struct kvblk_scan *scan);
/* Finds records. Returns 0, a visitor's or read's errno, or -EIO: too many unreadable units. */
int kvblk_scan_segment(struct kvblk_scan *scan, struct kvblk_scan_segment *seg);

#endif
