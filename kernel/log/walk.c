// SPDX-License-Identifier: GPL-2.0
/*
 * Walk over the headers of a segment without a valid summary. An unreadable place costs the records
 * that begin there, and nothing else.
 */
#include <linux/errno.h>
#include <linux/limits.h>
#include <linux/minmax.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "log/scan.h"

#define WALK_UNREAD	64u	/* unreadable places that a segment may have */

int kvblk_walk_begin(struct kvblk_walk *walk, const struct kvblk_reader *reader, gfp_t gfp)
{
	*walk = (struct kvblk_walk) { .reader = reader };
	walk->buf = __vmalloc(KVBLK_WALK_UNITS << KVBLK_UNIT_SHIFT, gfp);
	return walk->buf ? 0 : -ENOMEM;
}

void kvblk_walk_end(struct kvblk_walk *walk)
{
	vfree(walk->buf);
	walk->buf = NULL;
}

void kvblk_walk_segment(struct kvblk_walk *walk, const struct kvblk_place *place)
{
	walk->place = *place;
	walk->have_from = 0;
	walk->have_to = 0;
	walk->nr_unread = 0;
	walk->missed = U32_MAX;
}

int kvblk_reader_unit(const struct kvblk_reader *reader, u32 segment, u32 unit, void *buf)
{
	int err = reader->ops->read(reader, kvblk_reader_pos(reader, segment, unit), buf,
				    KVBLK_UNIT);

	if (err) {
		reader->ops->bad(reader, segment);
		memset(buf, 0, KVBLK_UNIT);
	}
	return err;
}

static int walk_read_units(struct kvblk_walk *walk)
{
	void *buf = walk->buf;
	u32 unit;
	int err;

	for (unit = walk->have_from; unit < walk->have_to; unit++, buf += KVBLK_UNIT) {
		err = kvblk_reader_unit(walk->reader, walk->place.segment, unit, buf);
		if (!err)
			continue;
		if (err != -EIO || ++walk->nr_unread > WALK_UNREAD)
			return err;
		__set_bit(unit - walk->have_from, walk->bad);
	}
	return 0;
}

static int walk_read(struct kvblk_walk *walk)
{
	const struct kvblk_reader *reader = walk->reader;
	u64 pos = kvblk_reader_pos(reader, walk->place.segment, walk->place.unit);
	int err;

	walk->have_from = walk->place.unit;
	walk->have_to = min(walk->place.unit + KVBLK_WALK_UNITS, reader->segment_units);
	bitmap_zero(walk->bad, KVBLK_WALK_UNITS);
	err = reader->ops->read(reader, pos, walk->buf,
				(walk->have_to - walk->have_from) << KVBLK_UNIT_SHIFT);
	cond_resched();
	return err == -EIO ? walk_read_units(walk) : err;
}

int kvblk_walk_next(struct kvblk_walk *walk, struct kvblk_rec *rec, u32 *unit)
{
	const struct kvblk_reader *reader = walk->reader;
	u32 align = reader->align_units, bad;
	u32 *at = &walk->place.unit;
	enum kvblk_decoded dec;
	int err;

	while (*at < reader->segment_units) {
		if (*at < walk->have_from ||
		    min(*at + KVBLK_HDR_UNITS_MAX, reader->segment_units) > walk->have_to) {
			err = walk_read(walk);
			if (err)
				return err;
		}
		walk->header = walk->buf + ((*at - walk->have_from) << KVBLK_UNIT_SHIFT);
		dec = kvblk_record_decode(walk->header, (walk->have_to - *at) << KVBLK_UNIT_SHIFT,
					  &walk->place, reader->secret, rec);
		*unit = *at;
		if (dec == KVBLK_DEC_RECORD) {
			*at += kvblk_rec_units(rec, align);
			return 1;
		}
		bad = walk->have_from + find_next_bit(walk->bad, KVBLK_WALK_UNITS,
						      *at - walk->have_from);
		/* a header that begins here may extend into the unreadable unit */
		if (dec != KVBLK_DEC_FILLER && bad < *at + KVBLK_HDR_UNITS_MAX)
			walk->missed = min(walk->missed, bad);
		/* a filler covers all of the record it has replaced */
		*at += dec == KVBLK_DEC_FILLER ? max(rec->length, 1u) : align;
	}
	return 0;
}
