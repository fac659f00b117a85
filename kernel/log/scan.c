// SPDX-License-Identifier: GPL-2.0
/*
 * Scan of a member's log. The rules:
 * - The summary of a sealed segment is trusted. If the table states invalidations
 *   (KVBLK_SEGF_KILLS) each header is read, and an entry without a matching one is a hole.
 * - In a segment that was open, entries listed without a gap by checkpoints are taken. Behind
 *   them each unit is tried: a header with valid MAC and place is a record.
 * - If a read fails, only the unreadable part is lost: headers replace a summary, one slot of the
 *   table the other.
 */
#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/errno.h>
#include <linux/math.h>
#include <linux/minmax.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <asm/byteorder.h>

#include "log/scan.h"

/* Returns the most pages of a segment's summary: a record takes at least two units. */
static u32 summary_room(const struct kvblk_reader *reader)
{
	return DIV_ROUND_UP(reader->segment_units, KVBLK_SUMMARY_ENTRIES + 1);
}

int kvblk_scan_begin(struct kvblk_scan *scan)
{
	u32 pages = summary_room(&scan->reader);

	scan->memory = vmalloc(size_mul(pages, sizeof(*scan->sums)));
	scan->headers = vmalloc(size_mul(KVBLK_SUMMARY_ENTRIES, KVBLK_UNIT));
	if (!scan->memory || !scan->headers ||
	    (scan->ops->entry && kvblk_walk_begin(&scan->walk, &scan->reader, GFP_KERNEL)))
		return -ENOMEM;
	/* page 0 is last in memory, as on media */
	scan->sums = scan->memory + (pages - 1) * sizeof(*scan->sums);
	return 0;
}

void kvblk_scan_end(struct kvblk_scan *scan)
{
	kvblk_walk_end(&scan->walk);
	vfree(scan->headers);
	vfree(scan->memory);
}

struct kvblk_d_table *kvblk_scan_page(const struct kvblk_reader *reader, u32 page,
				      struct kvblk_d_table *slots, int *unread)
{
	struct kvblk_d_table *table = NULL;
	int err, i;

	*unread = 0;
	for (i = 0; i < 2; i++) {
		err = reader->ops->read(reader, KVBLK_TABLE_OFFSET +
					(((u64)page * 2 + i) << KVBLK_UNIT_SHIFT),
					&slots[i], sizeof(*slots));
		if (err) {
			*unread = err;
			reader->ops->bad(reader, page * KVBLK_TABLE_ENTRIES);
			continue;
		}
		if (kvblk_table_valid(&slots[i], reader->incarnation, page) &&
		    (!table || le64_to_cpu(slots[i].seq) > le64_to_cpu(table->seq)))
			table = &slots[i];
	}
	return table;
}

int kvblk_scan_table(struct kvblk_scan *scan)
{
	u32 pages = DIV_ROUND_UP(scan->reader.nr_segs, KVBLK_TABLE_ENTRIES), page, known = 0;
	const size_t head = offsetof(struct kvblk_d_table, incarnation);
	struct kvblk_d_table *slots, *table;
	int err = 0, unread;

	slots = vmalloc(2 * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (page = 0; page < pages; page++) {
		if (scan->ops->page_known(scan, page)) {
			known++;
			continue;
		}
		table = kvblk_scan_page(&scan->reader, page, slots, &unread);
		if (!table && unread && unread != -EIO) {
			err = unread;
			known = 0;
			break;
		}
		if (!table) {
			err = unread ?: -EUCLEAN;
			continue;
		}
		scan->ops->page(scan, page, table, unread, unread ||
				memcmp((void *)&slots[0] + head, (void *)&slots[1] + head,
				       sizeof(*slots) - head));
		known++;
	}
	vfree(slots);
	return known ? 0 : err;
}

/* Reads headers one by one. @unread: bitmap of unreadable ones. */
static int headers_read(struct kvblk_scan *scan, u32 segment, u32 nr, u64 *unread)
{
	int err;
	u32 i;

	for (i = 0; i < nr; i++) {
		err = kvblk_reader_unit(&scan->reader, segment, scan->units[i],
					scan->headers + i * KVBLK_UNIT);
		if (err && err != -EIO)
			return err;
		if (err)
			*unread |= BIT_ULL(i);
	}
	return 0;
}

/*
 * If records were invalidated, turns entries with a different header into holes. With an unreadable
 * header an entry stays: gets of the block fail, and a delete invalidates the record.
 */
static int sum_verify(struct kvblk_scan *scan, const struct kvblk_scan_segment *seg,
		      struct kvblk_d_summary *sum)
{
	const struct kvblk_reader *reader = &scan->reader;
	u32 align = reader->align_units, i, nr = 0, unit;
	struct kvblk_place place = seg->place;
	struct kvblk_rec rec, header;
	void *buf = scan->headers;
	enum kvblk_decoded dec;
	u64 unread = 0;
	int err;

	static_assert(KVBLK_SUMMARY_ENTRIES <= 64);
	if (!(READ_ONCE(*seg->flags) & KVBLK_SEGF_KILLS))
		return 0;
	for (i = 0; i < KVBLK_SUMMARY_ENTRIES; i++)
		if (kvblk_entry_decode(&sum->entries[i], reader->segment_units, &rec, &unit))
			scan->units[nr++] = unit;
	if (reader->ops->read_units(reader, place.segment, scan->units, nr, buf)) {
		err = headers_read(scan, place.segment, nr, &unread);
		if (err)
			return err;
	}
	for (i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
		if (!kvblk_entry_decode(&sum->entries[i], reader->segment_units, &rec, &place.unit))
			continue;
		dec = unread & 1 ? KVBLK_DEC_MORE :
		      kvblk_record_decode(buf, KVBLK_UNIT, &place,
					  reader->secret, &header);
		unread >>= 1;
		buf += KVBLK_UNIT;
		/* fillers have a single unit, so a longer header is a record */
		if (dec == KVBLK_DEC_MORE || (dec == KVBLK_DEC_RECORD && header.seq == rec.seq))
			continue;
		sum->entries[i].flags = KVBLK_ENTF_HOLE;
		sum->entries[i].length = cpu_to_le32(kvblk_rec_units(&rec, align));
	}
	return 0;
}

/* Reads summary pages @from to @to - 1. Zeroes, and so voids, unreadable pages. */
static int sums_read(struct kvblk_scan *scan, u32 segment, u32 from, u32 to)
{
	const struct kvblk_reader *reader = &scan->reader;
	u32 units = reader->segment_units, page;
	int err;

	if (from == to)
		return 0;
	err = reader->ops->read(reader, kvblk_reader_pos(reader, segment, units - to),
				scan->sums - (to - 1), (to - from) * sizeof(*scan->sums));
	if (err != -EIO)
		return err;
	for (page = from; page < to; page++) {
		err = kvblk_reader_unit(reader, segment, units - 1 - page, scan->sums - page);
		if (err && err != -EIO)
			return err;
	}
	return 0;
}

/*
 * Reports the record of @entry, if any. Returns 0, a visitor's errno, or 1 if @entry is
 * implausible: reservations are in the order of entries, from @from, the former end, to @limit.
 */
static int entry_report(struct kvblk_scan *scan, const struct kvblk_d_entry *entry,
			u32 limit, u32 *from)
{
	struct kvblk_rec rec;
	u32 unit;
	u64 end;

	if (kvblk_entry_decode(entry, scan->reader.segment_units, &rec, &unit)) {
		end = unit + kvblk_rec_units(&rec, scan->reader.align_units);
	} else if (entry->flags == KVBLK_ENTF_HOLE && entry->length) {
		rec.length = 0;
		unit = le32_to_cpu(entry->unit);
		end = (u64)unit + le32_to_cpu(entry->length);
	} else {
		return 1;
	}
	if (unit < *from || end > limit)
		return 1;
	*from = end;
	return rec.length ? scan->ops->record(scan, &rec, unit) : 0;
}

static int scan_whole(struct kvblk_scan *scan, const struct kvblk_scan_segment *seg)
{
	u32 pages = kvblk_summary_pages(seg->nr), from = 0, page, i;
	int err = 0;

	for (page = 0; page < pages && err >= 0; page++) {
		struct kvblk_d_summary *buf = scan->sums - page;

		err = sum_verify(scan, seg, buf);
		for (i = 0; i < KVBLK_SUMMARY_ENTRIES && err >= 0; i++) {
			scan->ops->ahead(scan, buf, i);
			err = entry_report(scan, &buf->entries[i],
					   scan->reader.segment_units - pages, &from);
		}
		cond_resched();
	}
	return min(err, 0);
}

/* Reports entries listed without a gap by checkpoints. Leaves space for a summary, as puts do. */
static int scan_listed(struct kvblk_scan *scan, struct kvblk_scan_segment *seg, u32 *walk_from)
{
	u32 room = summary_room(&scan->reader), page, i;
	struct kvblk_d_summary *buf;
	struct kvblk_sum sum;
	int err = 0;

	seg->nr = seg->settled * KVBLK_SUMMARY_ENTRIES;
	for (page = seg->settled; page < room && !err; page++) {
		seg->settled = page;
		buf = scan->sums - page;
		err = page ? sums_read(scan, seg->place.segment, page, page + 1) : 0;
		if (err)
			break;
		if (!kvblk_summary_decode(buf, page, &seg->place, scan->reader.secret, &sum))
			break;
		err = sum_verify(scan, seg, buf);
		for (i = 0; i < KVBLK_SUMMARY_ENTRIES && !err; i++) {
			err = entry_report(scan, &buf->entries[i], scan->reader.segment_units -
					   kvblk_summary_pages(seg->nr + 1), walk_from);
			if (!err && scan->ops->entry)
				scan->ops->entry(scan, seg->nr, &buf->entries[i]);
			seg->nr += !err;
		}
	}
	return min(err, 0);
}

static int scan_headers(struct kvblk_scan *scan, struct kvblk_scan_segment *seg, u32 unit)
{
	struct kvblk_place from = seg->place;
	struct kvblk_d_entry entry;
	struct kvblk_rec rec;
	u32 end;
	int ret;

	from.unit = unit;
	kvblk_walk_segment(&scan->walk, &from);
	while ((ret = kvblk_walk_next(&scan->walk, &rec, &unit)) > 0) {
		end = unit + kvblk_rec_units(&rec, scan->reader.align_units);
		if (end + kvblk_summary_pages(seg->nr + 1) > scan->reader.segment_units)
			return 0;
		ret = scan->ops->record(scan, &rec, unit);
		if (ret)
			return ret;
		kvblk_entry_of_header(&entry, scan->walk.header);
		scan->ops->entry(scan, seg->nr++, &entry);
	}
	return ret;
}

static int scan_open(struct kvblk_scan *scan, struct kvblk_scan_segment *seg)
{
	u32 walk_from = 0;
	int err;

	if (!scan->ops->entry)
		return scan_listed(scan, seg, &walk_from);
	err = scan->ops->no_summary(scan, seg) ?: scan_listed(scan, seg, &walk_from) ?:
	      scan_headers(scan, seg, walk_from);
	/* unreadable among the records, not in the summary */
	seg->missed = !err && scan->walk.missed < scan->reader.segment_units -
						  kvblk_summary_pages(max(seg->nr, 1u));
	return err;
}

int kvblk_scan_segment(struct kvblk_scan *scan, struct kvblk_scan_segment *seg)
{
	u32 segment = seg->place.segment, page, pages;
	struct kvblk_sum sum, rest;
	int err;

	err = sums_read(scan, segment, 0, 1);
	if (err)
		return err;
	if (!kvblk_summary_decode(scan->sums, 0, &seg->place, scan->reader.secret, &sum) ||
	    !sum.sealed)
		return scan_open(scan, seg);
	pages = kvblk_summary_pages(sum.nr_records);
	if (pages > summary_room(&scan->reader))
		return scan_open(scan, seg);
	seg->sealed = true;
	err = sums_read(scan, segment, 1, pages);
	if (err)
		return err;
	for (page = 1; page < pages; page++)
		if (!kvblk_summary_decode(scan->sums - page, page, &seg->place,
					  scan->reader.secret, &rest))
			return scan_open(scan, seg);
	seg->whole = true;
	seg->nr = sum.nr_records;
	return scan_whole(scan, seg);
}
