// SPDX-License-Identifier: GPL-2.0
/*
 * Walk over the headers of a segment, for segments without a valid summary.
 *
 * The rule: an unreadable place costs the records that begin there, and nothing else.
 */
#include <linux/vmalloc.h>

#include "log/log.h"

/* Unreadable places that a segment may have. */
#define WALK_UNREAD	64u

int kvblk_walk_begin(struct kvblk_walk *walk, struct kvblk_member *member, gfp_t gfp)
{
	*walk = (struct kvblk_walk) { .member = member };
	walk->buf = __vmalloc(KVBLK_WALK_UNITS << KVBLK_UNIT_SHIFT, gfp);
	return walk->buf ? 0 : -ENOMEM;
}

void kvblk_walk_end(struct kvblk_walk *walk)
{
	vfree(walk->buf);
	walk->buf = NULL;
}

void kvblk_walk_segment(struct kvblk_walk *walk, struct kvblk_segment *seg, u32 unit)
{
	walk->seg = seg;
	walk->unit = unit;
	walk->have_from = 0;
	walk->have_to = 0;
	walk->nr_unread = 0;
	walk->missed = U32_MAX;
}

/* Reads the buffer unit by unit, and zeroes unreadable units so that no header is found there. */
static int walk_read_units(struct kvblk_walk *walk)
{
	struct kvblk_member *member = walk->member;
	u32 segment = walk->seg - member->segs, unit;
	void *buf = walk->buf;
	int err;

	for (unit = walk->have_from; unit < walk->have_to; unit++, buf += KVBLK_UNIT) {
		err = kvblk_io_read(member, kvblk_seg_pos(member, segment, unit), buf,
				    KVBLK_UNIT);
		if (!err)
			continue;
		kvblk_member_error(member, KVBLK_ERROR_READ, segment);
		if (err != -EIO || ++walk->nr_unread > WALK_UNREAD)
			return err;
		memset(buf, 0, KVBLK_UNIT);
		__set_bit(unit - walk->have_from, walk->bad);
	}
	return 0;
}

static int walk_read(struct kvblk_walk *walk)
{
	struct kvblk_member *member = walk->member;
	int err;

	walk->have_from = walk->unit;
	walk->have_to = min(walk->unit + KVBLK_WALK_UNITS, member->segment_units);
	bitmap_zero(walk->bad, KVBLK_WALK_UNITS);
	err = kvblk_io_read(member, kvblk_seg_pos(member, walk->seg - member->segs,
						  walk->have_from),
			    walk->buf,
			    (walk->have_to - walk->have_from) << KVBLK_UNIT_SHIFT);
	cond_resched();
	return err == -EIO ? walk_read_units(walk) : err;
}

int kvblk_walk_next(struct kvblk_walk *walk, struct kvblk_rec *rec, u32 *unit)
{
	struct kvblk_member *member = walk->member;
	u32 align = member->record_align >> KVBLK_UNIT_SHIFT;
	struct kvblk_place place;
	enum kvblk_decoded dec;
	u32 bad;
	int err;

	while (walk->unit < member->segment_units) {
		/* the longest header has two units */
		if (walk->unit < walk->have_from ||
		    min(walk->unit + 2, member->segment_units) > walk->have_to) {
			err = walk_read(walk);
			if (err)
				return err;
		}
		place = kvblk_place(member, walk->seg - member->segs, walk->seg->gen,
				    walk->unit);
		dec = kvblk_record_decode(walk->buf + ((walk->unit - walk->have_from) <<
						       KVBLK_UNIT_SHIFT),
					  (walk->have_to - walk->unit) << KVBLK_UNIT_SHIFT,
					  &place, &member->pool->secret, rec);
		*unit = walk->unit;
		if (dec == KVBLK_DEC_RECORD) {
			walk->unit += kvblk_record_units(rec->length, align);
			return 1;
		}
		bad = walk->have_from + find_next_bit(walk->bad, KVBLK_WALK_UNITS,
						      walk->unit - walk->have_from);
		/* a header that begins here may extend into the unreadable unit */
		if (dec != KVBLK_DEC_FILLER && bad <= walk->unit + 1)
			walk->missed = min(walk->missed, bad);
		/* a filler covers all of the record it has replaced */
		walk->unit += dec == KVBLK_DEC_FILLER ? max(rec->length, 1u) : align;
	}
	return 0;
}
