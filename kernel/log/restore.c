// SPDX-License-Identifier: GPL-2.0
/*
 * Warm restart of a member: segment table, summaries, and the headers of what
 * was open.
 *
 * The rules:
 * - A sealed segment's summary is the truth, unless the table says that
 *   records were killed since: then each header is looked at.
 * - In a segment that was open, what the checkpoints list without a gap is
 *   taken; from there on each 4 KiB unit is tried, a valid header (its MAC and
 *   place prove it) is a record, and a hole ends nothing. Then it is sealed.
 * - Of two records of a key the one with the higher seq stays, the other is
 *   killed.
 * - A read that fails is tried again. Then it costs no more than could not be read, and
 *   only for now: a summary is replaced by the headers, a slot of the table by the
 *   other one. A segment of which even that fails is "unread", a member that can't be
 *   reached "unrestored": both stay on media as they are, for another try.
 * - A delete can't know what is unread. The first one that is refused for that gives
 *   up what is unread, durably, so that others succeed.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>

#include "log/log.h"

/* Tenths of a second that a restore waits for what another member has to do. */
#define RESTORE_TRIES	600
/* Seconds that a restore waits for memory. */
#define RESTORE_WAITS	10
/* Seconds since 1970, in 2026; no clock that is set is behind. */
#define NOT_BEFORE	1790000000ll
/* Segments that can't be read, before the member can't. */
#define RESTORE_UNREAD	16u
/* Entries of a summary that the index's lines are prefetched ahead. */
#define RESTORE_AHEAD	16u

struct restore {
	struct kvblk_member *member;
	struct kvblk_d_summary *sums;	/* of one segment, from the last page to page 0 */
	void *headers;			/* of a page of it */
	struct kvblk_walk walk;
	struct bio_vec bv[KVBLK_SUMMARY_ENTRIES];
	u64 blocks;
	u32 tries;			/* see RESTORE_TRIES */
	u32 waits;			/* see RESTORE_WAITS */
};

/* Pages of summary that a segment has at most: a record takes a unit and more. */
static u32 summary_room(const struct kvblk_member *member)
{
	return DIV_ROUND_UP(member->segment_units, KVBLK_SUMMARY_ENTRIES + 1);
}

/*
 * Reads page @page of the table, each of the two @slots for itself. Returns the newer
 * valid one; NULL if there is none. @unread: 0, or why a slot could not be read.
 */
static struct kvblk_d_table *page_read(struct kvblk_member *member, u32 page,
				       struct kvblk_d_table *slots, int *unread)
{
	struct kvblk_d_table *table = NULL;
	int err, i;

	*unread = 0;
	for (i = 0; i < 2; i++) {
		err = kvblk_io_read(member, KVBLK_TABLE_OFFSET +
				    (((u64)page * 2 + i) << KVBLK_UNIT_SHIFT),
				    &slots[i], sizeof(*slots));
		if (err) {
			*unread = err;
			kvblk_member_error(member, KVBLK_ERROR_READ,
					   page * KVBLK_TABLE_ENTRIES);
			continue;
		}
		if (kvblk_table_valid(&slots[i], member->incarnation, page) &&
		    (!table || le64_to_cpu(slots[i].seq) > le64_to_cpu(table->seq)))
			table = &slots[i];
	}
	return table;
}

int kvblk_table_time(struct kvblk_member *member, u32 *time)
{
	struct kvblk_d_table *slots = vmalloc(2 * sizeof(*slots)), *table;
	int unread;

	if (!slots)
		return -ENOMEM;
	table = page_read(member, 0, slots, &unread);
	if (table)
		*time = le32_to_cpu(table->time);
	vfree(slots);
	return table ? 0 : -ENODATA;
}

/*
 * @alone: the other slot can't be read. Earlier versions wrote one slot at a time, so that
 * one may be newer by a change: a kill, or a segment that has been opened.
 */
static void page_load(struct kvblk_member *member, u32 page,
		      const struct kvblk_d_table *table, bool alone)
{
	u32 first = page * KVBLK_TABLE_ENTRIES, i;

	/* others write the page once it is known */
	guard(mutex)(&member->table_lock);
	member->table_seq[page] = le64_to_cpu(table->seq);
	for (i = 0; i < KVBLK_TABLE_ENTRIES && first + i < member->nr_segs; i++) {
		const struct kvblk_d_segment *d = &table->segments[i];
		struct kvblk_segment *seg = &member->segs[first + i];

		seg->gen = le64_to_cpu(d->generation);
		seg->state = d->state;
		seg->class = d->class < KVBLK_NR_CLASSES ? d->class : 0;
		seg->flags = le16_to_cpu(d->flags);
		seg->kills_durable = seg->flags & KVBLK_SEGF_KILLS;
		/* what is free gets a new number */
		seg->opened = d->state == KVBLK_SEG_FREE ? 0 : le64_to_cpu(d->opened);
		seg->unknown = false;
		if (alone && seg->state == KVBLK_SEG_FREE)
			seg->gen++;
		else if (alone)
			seg->flags |= KVBLK_SEGF_KILLS;
		WRITE_ONCE(member->pool->seg_gen[member->seg_base + first + i],
			   (u16)seg->gen);
	}
}

/* Both slots say the same, but for what tells which one was written last. */
static bool slots_alike(const struct kvblk_d_table *slots)
{
	size_t from = offsetof(struct kvblk_d_table, incarnation);

	return !memcmp((void *)&slots[0] + from, (void *)&slots[1] + from,
		       sizeof(*slots) - from);
}

/*
 * Reads what is not known of the table yet. Returns 0, though pages may be missing; the
 * error if none can be had.
 */
static int table_read(struct kvblk_member *member)
{
	u32 pages = DIV_ROUND_UP(member->nr_segs, KVBLK_TABLE_ENTRIES), page, known = 0;
	struct kvblk_d_table *slots, *table;
	int err = 0, unread;

	slots = vmalloc(2 * sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	for (page = 0; page < pages; page++) {
		if (!member->segs[page * KVBLK_TABLE_ENTRIES].unknown) {
			known++;
			continue;
		}
		table = page_read(member, page, slots, &unread);
		if (!table && unread && unread != -EIO) {
			err = unread;
			known = 0;
			break;
		}
		if (!table) {
			err = unread ?: -EUCLEAN;
			continue;
		}
		page_load(member, page, table, unread);
		known++;
		/* an error is told, and tried again by the next change */
		if (unread || !slots_alike(slots))
			kvblk_table_write(member, page * KVBLK_TABLE_ENTRIES);
	}
	vfree(slots);
	return known ? 0 : err;
}

static struct kvblk_slot slot_of(struct kvblk_member *member,
				 struct kvblk_segment *seg,
				 const struct kvblk_rec *rec, u32 unit)
{
	return (struct kvblk_slot) {
		.seg = member->seg_base + (seg - member->segs),
		.off = unit,
		.len = rec->length,
		.gen = (u16)seg->gen,
		.tenant = rec->tenant,
		.state = KVBLK_SLOT_LIVE,
		.prio = rec->priority,
		.expiry = rec->expiry,
		.caller_tag = rec->caller_tag,
	};
}

/* The pool has given it to a put: a record that claims a later one is none. */
static bool seq_given(struct kvblk_pool *pool, u64 seq)
{
	return seq <= (u64)atomic64_read(&pool->seq);
}

/*
 * The seq of the record that @slot points to. 0: it is dead; U64_MAX: it can't
 * be read.
 */
static u64 slot_seq(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	struct kvblk_member *member;
	struct kvblk_segment *seg;
	struct kvblk_place place;
	struct kvblk_rec rec;
	u64 gen, seq = U64_MAX;
	void *buf = NULL;
	u32 bytes;

	/* in memory: it was put in this activation */
	if (slot->seg == KVBLK_DRAM_SEG)
		return atomic64_read(&pool->seq);
	seg = kvblk_segment_get(pool, slot, &member, &gen);
	if (!seg)
		return 0;
	bytes = kvblk_header_units(slot->len) << KVBLK_UNIT_SHIFT;
	if (kvblk_member_ok(member))
		buf = (void *)__get_free_pages(GFP_KERNEL | __GFP_NOFAIL, get_order(bytes));
	place = kvblk_place(member, seg - member->segs, gen, slot->off);
	if (buf && !kvblk_io_read(member, kvblk_seg_pos(member, place.segment, place.unit),
				  buf, bytes))
		seq = kvblk_record_decode(buf, bytes, &place, &pool->secret,
					  &rec) == KVBLK_DEC_RECORD &&
		      seq_given(pool, rec.seq) ? rec.seq : 0;
	free_pages((unsigned long)buf, get_order(bytes));
	kvblk_segment_put(member, seg);
	return seq;
}

/* The member or its pool is going: nothing need be restored any more. */
static bool restore_ended(const struct kvblk_member *member)
{
	return READ_ONCE(member->state) > KVBLK_MEMBER_UP ||
	       percpu_ref_is_dying(&member->pool->users);
}

static struct kvblk_id entry_id(const struct kvblk_d_entry *entry)
{
	return (struct kvblk_id) {
		.hi = le64_to_cpu(entry->id_hi),
		.lo = le64_to_cpu(entry->id_lo),
	};
}

/* Brings in what restore_record() of entries behind @i of a summary looks at. */
static void restore_ahead(struct restore *rs, const struct kvblk_d_summary *sum,
			  u32 i)
{
	const struct kvblk_index *idx = &rs->member->pool->index;

	if (i + RESTORE_AHEAD < KVBLK_SUMMARY_ENTRIES)
		kvblk_index_prefetch(idx, entry_id(&sum->entries[i + RESTORE_AHEAD]));
	if (i + RESTORE_AHEAD / 2 < KVBLK_SUMMARY_ENTRIES)
		kvblk_index_prefetch_room(idx, entry_id(&sum->entries[i + RESTORE_AHEAD / 2]));
}

/*
 * Inserts @slot. Returns 0, -EEXIST with the entry in @old, or -ENOSPC. Where nobody
 * knows how many slots the blocks had, nothing is evicted, because that kills on
 * flash: the block stays there, and deletes are not sure.
 */
static int restore_insert(struct kvblk_pool *pool, struct kvblk_id id,
			  const struct kvblk_slot *slot, struct kvblk_slot *old)
{
	int ret;

	if (pool->index_evicts)
		return kvblk_entry_insert(pool, id, slot, old);
	ret = kvblk_index_insert(&pool->index, id, slot, old, false);
	if (ret == -ENOSPC && atomic64_inc_return(&pool->index_lacks) == 1) {
		atomic_inc(&pool->unsure);
		WRITE_ONCE(pool->index_slots, 0);
	}
	return ret;
}

/* Puts a record that was found into the index; 0 or -ENOMEM. */
static int restore_record(struct restore *rs, struct kvblk_segment *seg,
			  const struct kvblk_rec *rec, u32 unit)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_pool *pool = member->pool;
	struct kvblk_slot slot = slot_of(member, seg, rec, unit), old;
	u32 units = kvblk_member_units(member, rec->length);
	int ret;
	u64 seq;

	/* no tenant is in use but the default one */
	if (rec->tenant || !seq_given(pool, rec->seq) ||
	    kvblk_expired(rec->expiry, kvblk_now(pool)))
		return 0;
	if (rec->expiry)
		WRITE_ONCE(pool->expires, true);
	if (rec->caller_tag && kvblk_index_keep_tags(&pool->index))
		return -ENOMEM;
	/* a smaller index than before may take a kill for each insert */
	while (kvblk_kills_full(member) && !restore_ended(member) &&
	       (member->absent || rs->tries++ < RESTORE_TRIES))
		wait_event_timeout(pool->settle_wait, !kvblk_kills_full(member),
				   HZ / 10);
	if (member->absent && kvblk_absent_stale(member->absent, rec->id,
						 seg - member->segs, unit)) {
		kvblk_kill_later(pool, rec->id, &slot);
		return 0;
	}
again:
	ret = restore_insert(pool, rec->id, &slot, &old);
	if (ret == -ENOSPC && !pool->index_evicts)
		return 0;
	if (ret == -EEXIST && kvblk_same_record(&old, &slot)) {
		/* a former try has brought it in */
		atomic_add(units, &seg->live_units);
		return 0;
	}
	if (ret == -EEXIST && old.state == KVBLK_SLOT_MOVING &&
	    !restore_ended(member) && rs->tries++ < RESTORE_TRIES) {
		/* copied, dropped or left where it is: then we compare */
		wait_event_timeout(pool->settle_wait,
				   !kvblk_index_find(&pool->index, rec->id, &old) ||
				   old.state != KVBLK_SLOT_MOVING, HZ / 10);
		goto again;
	}
	if (ret == -EEXIST) {
		/* two lives of a key; one that is being written is the newest */
		seq = old.state == KVBLK_SLOT_LIVE ? slot_seq(pool, &old) : U64_MAX;
		if (seq < rec->seq) {
			if (!kvblk_entry_replace(pool, rec->id, &old, &slot))
				goto again;
			ret = 0;
		} else if (seq == U64_MAX && old.state == KVBLK_SLOT_LIVE &&
			   !kvblk_entry_replace(pool, rec->id, &old, NULL)) {
			/* nobody can tell which is the newer one: neither */
			goto again;
		}
	}
	if (ret) {
		kvblk_kill_later(pool, rec->id, &slot);
		return 0;
	}
	atomic_add(units, &seg->live_units);
	rs->blocks++;
	/* pairs with delete_start(): it was deleted meanwhile, and not found */
	smp_mb();
	if (member->absent && kvblk_absent_stale(member->absent, rec->id,
						 seg - member->segs, unit))
		kvblk_entry_replace(pool, rec->id, &slot, NULL);
	return 0;
}

/* ---- headers behind a summary that is no longer the truth ---- */

struct verify_io {
	struct kvblk_io io;
	struct completion over;
};

static void verify_wake(struct kvblk_io *io)
{
	complete(&container_of(io, struct verify_io, io)->over);
}

/* Reads one by one what verify_page() could not read together; @unread: those that fail. */
static int verify_read(struct restore *rs, struct kvblk_segment *seg,
		       const struct kvblk_d_summary *sum, u64 *unread)
{
	struct kvblk_member *member = rs->member;
	u32 segment = seg - member->segs, i, unit;
	struct kvblk_rec rec;
	int err;

	for (i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
		if (!kvblk_entry_decode(&sum->entries[i], member->segment_units,
					&rec, &unit))
			continue;
		err = kvblk_io_read(member, kvblk_seg_pos(member, segment, unit),
				    rs->headers + i * KVBLK_UNIT, KVBLK_UNIT);
		if (!err)
			continue;
		kvblk_member_error(member, KVBLK_ERROR_READ, segment);
		if (err != -EIO)
			return err;
		*unread |= BIT_ULL(i);
	}
	return 0;
}

/*
 * Clears the entries of @sum whose headers don't say the same. An entry whose header
 * can't be read stays: a get of it finds out, and a delete kills it.
 */
static int verify_page(struct restore *rs, struct kvblk_segment *seg,
		       struct kvblk_d_summary *sum)
{
	struct kvblk_member *member = rs->member;
	u32 segment = seg - member->segs, i, unit;
	struct kvblk_rec rec, header;
	struct verify_io verify;
	struct kvblk_place place;
	enum kvblk_decoded dec;
	u64 unread = 0;
	void *buf;
	int err;

	static_assert(KVBLK_SUMMARY_ENTRIES <= 64);
	init_completion(&verify.over);
	kvblk_io_start(&verify.io, member, verify_wake);
	for (i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
		if (!kvblk_entry_decode(&sum->entries[i], member->segment_units,
					&rec, &unit))
			continue;
		buf = rs->headers + i * KVBLK_UNIT;
		bvec_set_page(&rs->bv[i], vmalloc_to_page(buf), KVBLK_UNIT,
			      offset_in_page(buf));
		kvblk_io_submit(&verify.io, REQ_OP_READ | REQ_META,
				kvblk_seg_pos(member, segment, unit), &rs->bv[i], 1);
	}
	kvblk_io_end(&verify.io);
	wait_for_completion_state(&verify.over, TASK_IDLE);
	if (verify.io.status) {
		err = verify_read(rs, seg, sum, &unread);
		if (err)
			return err;
	}
	for (i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
		buf = rs->headers + i * KVBLK_UNIT;
		if (unread & BIT_ULL(i) ||
		    !kvblk_entry_decode(&sum->entries[i], member->segment_units,
					&rec, &unit))
			continue;
		place = kvblk_place(member, segment, seg->gen, unit);
		dec = kvblk_record_decode(buf, KVBLK_UNIT, &place,
					  &member->pool->secret, &header);
		/* a filler is one unit long, so a longer header is no filler */
		if (dec == KVBLK_DEC_MORE ||
		    (dec == KVBLK_DEC_RECORD && header.seq == rec.seq))
			continue;
		sum->entries[i].flags = KVBLK_ENTF_HOLE;
		sum->entries[i].length =
			cpu_to_le32(kvblk_member_units(member, rec.length));
	}
	return 0;
}

/* ---- segments ---- */

static struct kvblk_d_summary *sums_page(struct restore *rs, u32 page)
{
	return rs->sums - page;
}

/*
 * Reads summary pages @from to @to (excluded) to their places in rs->sums. A page that
 * can't be read is zeroed, and so is none.
 */
static int sums_read(struct restore *rs, struct kvblk_segment *seg, u32 from, u32 to)
{
	struct kvblk_member *member = rs->member;
	u32 segment = seg - member->segs, page;
	int err;

	if (from == to)
		return 0;
	err = kvblk_io_read(member, kvblk_seg_pos(member, segment,
						  member->segment_units - to),
			    sums_page(rs, to - 1), (to - from) * sizeof(*rs->sums));
	for (page = from; err == -EIO && page < to; page++) {
		err = kvblk_io_read(member, kvblk_seg_pos(member, segment,
							  member->segment_units - 1 - page),
				    sums_page(rs, page), sizeof(*rs->sums));
		if (err)
			kvblk_member_error(member, KVBLK_ERROR_READ, segment);
		if (err == -EIO)
			memset(sums_page(rs, page), 0, sizeof(*rs->sums));
		else if (!err)
			err = -EIO;
	}
	return err == -EIO ? 0 : err;
}

/*
 * The end of the room that @entry tells of: of a record, which @rec and @unit tell, or
 * of none (@rec->length is 0). 0: the entry can't be believed. Room was given out in
 * the order of the entries and in front of the summary, so each entry's room begins at
 * @from or behind, where that of the one before ends, and ends at @limit at most.
 */
static u32 entry_end(const struct kvblk_member *member,
		     const struct kvblk_d_entry *entry, u32 from, u32 limit,
		     struct kvblk_rec *rec, u32 *unit)
{
	u64 end;

	if (kvblk_entry_decode(entry, member->segment_units, rec, unit)) {
		end = *unit + kvblk_member_units(member, rec->length);
	} else if (entry->flags == KVBLK_ENTF_HOLE && entry->length) {
		rec->length = 0;
		*unit = le32_to_cpu(entry->unit);
		end = (u64)*unit + le32_to_cpu(entry->length);
	} else {
		return 0;
	}
	return *unit >= from && end <= limit ? end : 0;
}

/* All pages of the summary are there and valid: -EBADMSG. */
static int sums_load(struct restore *rs, struct kvblk_segment *seg, u32 pages)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_place place = kvblk_place(member, seg - member->segs,
					       seg->gen, 0);
	struct kvblk_sum sum;
	int err = sums_read(rs, seg, 1, pages);
	u32 page;

	for (page = 1; page < pages && !err; page++)
		if (!kvblk_summary_decode(sums_page(rs, page), page, &place,
					  &member->pool->secret, &sum))
			err = -EBADMSG;
	return err;
}

/* With the whole summary in rs->sums. */
static int restore_sealed(struct restore *rs, struct kvblk_segment *seg, u32 nr)
{
	struct kvblk_member *member = rs->member;
	u32 pages = kvblk_summary_pages(nr), from = 0, end, page, i, unit;
	struct kvblk_rec rec;
	int err = 0;

	for (page = 0; page < pages && !err; page++) {
		struct kvblk_d_summary *buf = sums_page(rs, page);

		if (seg->flags & KVBLK_SEGF_KILLS)
			err = verify_page(rs, seg, buf);
		for (i = 0; i < KVBLK_SUMMARY_ENTRIES && !err; i++) {
			restore_ahead(rs, buf, i);
			end = entry_end(member, &buf->entries[i], from,
					member->segment_units - pages, &rec, &unit);
			if (!end)
				continue;
			from = end;
			if (rec.length)
				err = restore_record(rs, seg, &rec, unit);
		}
		cond_resched();
	}
	seg->nr_records = nr;
	return err;
}

/*
 * What the checkpoints list without a gap: copies it to @open, and tells where
 * the walk is to begin. No more is taken than @open has room for: as for puts, what
 * is listed leaves room for the pages that list it.
 */
static int restore_listed(struct restore *rs, struct kvblk_segment *seg,
			  struct kvblk_open *open, u32 *nr, u32 *walk_from)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_place place = kvblk_place(member, seg - member->segs,
					       seg->gen, 0);
	u32 page, i, unit, end;
	struct kvblk_d_summary *buf;
	struct kvblk_sum sum;
	struct kvblk_rec rec;
	int err;

	for (page = 0; page < open->nr_pages; page++) {
		buf = sums_page(rs, page);
		err = page ? sums_read(rs, seg, page, page + 1) : 0;
		if (err)
			return err;
		if (!kvblk_summary_decode(buf, page, &place, &member->pool->secret,
					  &sum))
			return 0;
		if (seg->flags & KVBLK_SEGF_KILLS) {
			err = verify_page(rs, seg, buf);
			if (err)
				return err;
		}
		for (i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
			end = entry_end(member, &buf->entries[i], *walk_from,
					member->segment_units -
					kvblk_summary_pages(*nr + 1), &rec, &unit);
			if (!end)
				return 0;
			if (rec.length) {
				err = restore_record(rs, seg, &rec, unit);
				if (err)
					return err;
			}
			*kvblk_open_entry(open, *nr) = buf->entries[i];
			*nr += 1;
			*walk_from = end;
		}
	}
	return 0;
}

/* Tries each unit from @unit on for a header. */
static int restore_walk(struct restore *rs, struct kvblk_segment *seg,
			struct kvblk_open *open, u32 *nr, u32 unit)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_rec rec;
	u32 units;
	int ret;

	kvblk_walk_segment(&rs->walk, seg, unit);
	while ((ret = kvblk_walk_next(&rs->walk, &rec, &unit)) > 0) {
		units = kvblk_member_units(member, rec.length);
		if (units + unit > member->segment_units ||
		    kvblk_summary_pages(*nr + 1) + unit + units > member->segment_units)
			return 0;
		ret = restore_record(rs, seg, &rec, unit);
		if (ret)
			return ret;
		kvblk_entry_encode(kvblk_open_entry(open, *nr), &rec, unit);
		*nr += 1;
	}
	return ret;
}

/* A fresh life, when the gets and kills of the former one are over. */
static void segment_restart(struct kvblk_member *member, struct kvblk_segment *seg)
{
	guard(spinlock)(&member->lock);
	WRITE_ONCE(seg->retired, true);
	WRITE_ONCE(seg->gen, seg->gen + 1);
	WRITE_ONCE(member->pool->seg_gen[member->seg_base + (seg - member->segs)],
		   (u16)seg->gen);
	/* pairs with kvblk_segment_get(), as in reclaim */
	smp_mb();
	seg->state = KVBLK_SEG_FREE;
	list_add_tail(&seg->link, &member->retiring);
	member->nr_retiring++;
}

/* The segment is on the list of sealed ones. With @open its summary is in memory only. */
static void segment_sealed(struct kvblk_member *member, struct kvblk_segment *seg,
			   struct kvblk_open *open)
{
	guard(spinlock)(&member->lock);
	seg->open = open;
	seg->state = KVBLK_SEG_SEALED;
	list_add_tail(&seg->link, &member->sealed);
	member->nr_sealed++;
}

/*
 * Finds the records without a whole summary. @sealed: there was one, so the payloads
 * have arrived.
 */
static int restore_open(struct restore *rs, struct kvblk_segment *seg, bool sealed)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_open *open = kvblk_open_alloc(member);
	u32 nr = 0, unit = 0;
	bool missed;
	int err;

	if (!open)
		return -ENOMEM;
	/*
	 * Headers prove that payloads were written, not that they arrived: gets check them
	 * whatever "integrity" says, from the first entry on until the segment is reclaimed.
	 */
	if (!sealed)
		kvblk_segment_doubt(member, seg);
	err = restore_listed(rs, seg, open, &nr, &unit);
	if (!err)
		err = restore_walk(rs, seg, open, &nr, unit);
	if (err)
		goto free;
	/* in the room of records, and not of the pages that list them */
	missed = rs->walk.missed < member->segment_units - kvblk_summary_pages(max(nr, 1u));
	if (!nr && missed) {
		err = -EIO;
		goto free;
	}
	if (!nr) {
		kvblk_open_free(open);
		/* never used, or nothing in it survived; told when it is opened */
		segment_restart(member, seg);
		return 0;
	}
	seg->nr_records = nr;
	if (sealed && !missed) {
		segment_sealed(member, seg, open);
		return 0;
	}
	err = kvblk_table_write(member, seg - member->segs);
	if (err)
		goto free;
	seg->open = open;
	spin_lock(&member->lock);
	member->nr_open++;
	spin_unlock(&member->lock);
	/*
	 * A failed seal is reported there, and the next restart walks again: it may find a
	 * record that can't be read now and that no delete knows of.
	 */
	if (kvblk_segment_seal(member, seg) && missed)
		atomic_inc(&member->pool->unsure);
	return 0;
free:
	kvblk_open_free(open);
	return err;
}

static int restore_segment(struct restore *rs, struct kvblk_segment *seg)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_pool *pool = member->pool;
	struct kvblk_place place = kvblk_place(member, seg - member->segs,
					       seg->gen, 0);
	/* the summary knows better than the table whether it is sealed */
	bool sealed = seg->state == KVBLK_SEG_SEALED;
	struct kvblk_sum sum = {};
	int err;

	seg->stamp = kvblk_policy_open(&pool->policy, seg->class,
				       (u64)member->segment_units << KVBLK_UNIT_SHIFT);
	atomic_set(&seg->live_units, 0);
	err = sums_read(rs, seg, 0, 1);
	if (err)
		return err;
	if (!kvblk_summary_decode(sums_page(rs, 0), 0, &place, &pool->secret, &sum) ||
	    !sum.sealed || kvblk_summary_pages(sum.nr_records) > summary_room(member))
		return restore_open(rs, seg, sealed);
	err = sums_load(rs, seg, kvblk_summary_pages(sum.nr_records));
	if (err == -EBADMSG)
		return restore_open(rs, seg, true);
	if (!err)
		err = restore_sealed(rs, seg, sum.nr_records);
	if (!err)
		segment_sealed(member, seg, NULL);
	return err;
}

static int by_opened(const void *a, const void *b)
{
	const struct kvblk_segment *const *l = a, *const *r = b;

	return (*l)->opened < (*r)->opened ? -1 : (*l)->opened > (*r)->opened;
}

/*
 * The member's order of opening goes on from the last segment of @order, or from where an
 * earlier try has left it. Numbers that leave no room to grow are replaced, because only
 * their order counts.
 */
static void restore_order(struct kvblk_member *member, struct kvblk_segment **order, u32 nr)
{
	u32 i;

	sort(order, nr, sizeof(*order), by_opened, NULL);
	if (nr && order[nr - 1]->opened > KVBLK_COUNT_FOUND_MAX)
		for (i = 0; i < nr; i++)
			order[i]->opened = i + 1;
	if (nr)
		member->opened = max(member->opened, order[nr - 1]->opened);
}

/* Waits a second for memory, a few times. */
static bool restore_patience(struct restore *rs)
{
	if (rs->waits++ == RESTORE_WAITS || restore_ended(rs->member))
		return false;
	wait_event_timeout(rs->member->pool->settle_wait, restore_ended(rs->member), HZ);
	return true;
}

/* All segments that are unread and not unknown, but for those that can't be read. */
static int restore_unread(struct restore *rs, struct kvblk_segment **order)
{
	struct kvblk_member *member = rs->member;
	u32 i, nr = 0, unread = 0;
	int err;

	for (i = 0; i < member->nr_segs; i++)
		if (member->segs[i].unread && !member->segs[i].unknown &&
		    member->segs[i].state != KVBLK_SEG_FREE)
			order[nr++] = &member->segs[i];
	/* oldest first, as the policy's clock and reclaim want it */
	restore_order(member, order, nr);
	for (i = 0; i < nr; i++) {
		if (restore_ended(member))
			return -ENODEV;
		do {
			err = restore_segment(rs, order[i]);
		} while (err == -ENOMEM && restore_patience(rs));
		if (err && (err != -EIO || ++unread > RESTORE_UNREAD))
			return err;
		order[i]->unread = err;
	}
	return 0;
}

/* Tries to find all that is not found yet. An error: the member can't be restored now. */
static int restore_all(struct restore *rs)
{
	struct kvblk_member *member = rs->member;
	u32 pages = summary_room(member);
	struct kvblk_segment **order;
	void *sums;
	int err;

	order = kvmalloc_array(member->nr_segs, sizeof(*order), GFP_KERNEL);
	sums = vmalloc(array_size(pages, sizeof(*rs->sums)));
	rs->headers = vmalloc(array_size(KVBLK_SUMMARY_ENTRIES, KVBLK_UNIT));
	err = kvblk_walk_begin(&rs->walk, member, GFP_KERNEL);
	if (order && sums && rs->headers && !err) {
		/* page 0 is the last one in memory, as on media */
		rs->sums = sums + (pages - 1) * sizeof(*rs->sums);
		err = table_read(member);
		if (!err)
			err = restore_unread(rs, order);
	} else {
		err = -ENOMEM;
	}
	kvblk_walk_end(&rs->walk);
	vfree(rs->headers);
	vfree(sums);
	kvfree(order);
	return err;
}

/* ---- what can't be read ---- */

/*
 * A page of the table that nobody can read: its segments begin anew. In generations that
 * none of them has reached, for none has been retired 2^40 times.
 */
static void page_forfeit(struct kvblk_member *member, u32 page)
{
	u32 first = page * KVBLK_TABLE_ENTRIES, i;
	int err;

	scoped_guard(mutex, &member->table_lock) {
		/* newer than a slot that takes no writes either, even if no clock is set */
		member->table_seq[page] = max(ktime_get_real_seconds(), NOT_BEFORE) << 15;
		for (i = 0; i < KVBLK_TABLE_ENTRIES && first + i < member->nr_segs; i++) {
			struct kvblk_segment *seg = &member->segs[first + i];

			seg->gen = BIT_ULL(40) + (get_random_u64() >> 18);
			seg->state = KVBLK_SEG_FREE;
			seg->unknown = false;
			WRITE_ONCE(member->pool->seg_gen[member->seg_base + first + i],
				   (u16)seg->gen);
		}
	}
	err = kvblk_table_write(member, first);
	scoped_guard(mutex, &member->table_lock)
		for (i = 0; i < KVBLK_TABLE_ENTRIES && first + i < member->nr_segs; i++)
			member->segs[first + i].unknown = err;
}

/* A segment that can't be read: the next generation, durably. */
static void segment_forfeit(struct kvblk_member *member, struct kvblk_segment *seg)
{
	u8 state = seg->state;
	int err;

	scoped_guard(spinlock, &member->lock) {
		seg->retiring_gen = seg->gen + 1;
		seg->state = KVBLK_SEG_FREE;
	}
	err = kvblk_table_write(member, seg - member->segs);
	scoped_guard(spinlock, &member->lock) {
		seg->retiring_gen = 0;
		seg->state = state;
	}
	if (err)
		return;
	segment_restart(member, seg);
	seg->unread = false;
}

/* Gives up what is unread, durably. */
static void unread_forfeit(struct kvblk_member *member)
{
	struct kvblk_segment *seg = member->segs, *end = seg + member->nr_segs;

	for (; seg < end; seg++) {
		if (seg->unknown && (seg - member->segs) % KVBLK_TABLE_ENTRIES == 0)
			page_forfeit(member, (seg - member->segs) / KVBLK_TABLE_ENTRIES);
		if (seg->unread && !seg->unknown && seg->state != KVBLK_SEG_FREE)
			segment_forfeit(member, seg);
	}
}

/* Counts the member in pool->unsure as long as a delete can't know all of its blocks. */
static void restore_count(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->pool;
	bool unsure;

	guard(mutex)(&pool->admin);
	/* a member that has died or leaves ends its counts */
	if (!kvblk_member_stays(member))
		return;
	unsure = READ_ONCE(member->nr_unread);
	atomic_add(unsure - member->unread_unsure, &pool->unsure);
	member->unread_unsure = unsure;
}

/* Puts segments that were read to use. */
static void restore_use(struct kvblk_member *member)
{
	u32 i, unread = 0;

	for (i = 0; i < member->nr_segs; i++) {
		struct kvblk_segment *seg = &member->segs[i];

		if (!seg->unread)
			continue;
		if (seg->unknown || seg->state != KVBLK_SEG_FREE) {
			unread++;
			continue;
		}
		seg->unread = false;
		guard(spinlock)(&member->lock);
		list_add_tail(&seg->link, &member->free);
		member->nr_free++;
	}
	WRITE_ONCE(member->nr_unread, unread);
	/* pairs with delete_begun(): entries first */
	smp_wmb();
	restore_count(member);
}

/* A member that is up: what it has unread is tried again, or given up. */
static void restore_rest(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->pool;
	struct restore rs = { .member = member };
	bool forfeit = READ_ONCE(member->forfeit);
	u32 before = READ_ONCE(member->nr_unread);

	/* a path that was away for a moment may be back */
	restore_all(&rs);
	if (forfeit)
		unread_forfeit(member);
	restore_use(member);
	WRITE_ONCE(member->restored, member->restored + rs.blocks);
	kvblk_count_at(member->stats, KVBLK_C_RESTORED, rs.blocks);
	dev_info(&pool->dev, "member %s: of %u unread segments %u are %s, %llu blocks\n",
		 member->name, before, before - READ_ONCE(member->nr_unread),
		 forfeit ? "given up, for a delete" : "restored", rs.blocks);
	kvblk_log_kick(member);
}

/*
 * The member is back. What is out of date on it is killed durably before its
 * superblock may say that nothing is.
 */
static void restore_settle(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->pool;

	for (;;) {
		/* it goes, or the pool: it stays out of date */
		if (READ_ONCE(member->state) != KVBLK_MEMBER_UP ||
		    percpu_ref_is_dying(&pool->users))
			return;
		if (wait_event_timeout(pool->settle_wait, !READ_ONCE(member->nr_kills), HZ) &&
		    READ_ONCE(member->state) == KVBLK_MEMBER_UP)
			break;
	}
	WRITE_ONCE(member->absent, NULL);
	kvblk_absent_end(pool, &member->uuid);
}

/* All members have been restored: the index's size may be told, unless it is too small. */
static void restore_index(struct kvblk_pool *pool)
{
	u64 lacks = atomic64_read(&pool->index_lacks), slots = kvblk_index_slots(&pool->index);

	/* nobody knows how many blocks there are in what could not be read */
	if (!lacks && atomic_read(&pool->unsure))
		return;
	if (!lacks) {
		WRITE_ONCE(pool->index_slots, min(slots, KVBLK_SLOTS_MAX));
		return;
	}
	dev_err(&pool->dev, "%llu blocks do not fit into %llu index slots: they are misses, and deletes fail, until the pool is destroyed and imported with %llu slots\n",
		lacks, slots, slots + lacks + (slots + lacks) / 8);
}

/* The member stays as it is on media, for another try. */
static void restore_failed(struct kvblk_member *member, int err)
{
	struct kvblk_pool *pool = member->pool;

	if (restore_ended(member))
		return;
	if (err == -ENOMEM)
		dev_err(&pool->dev, "member %s: no memory to restore it; its blocks are misses until it is added again (kvblk member add)\n",
			member->name);
	else
		dev_err(&pool->dev, "member %s: can't be restored now (%d); its blocks are misses until it is added again (kvblk member add), or the pool imported\n",
			member->name, err);
	/* before anybody sees it: from now on puts and deletes pass it by */
	if (!member->absent)
		kvblk_absent_dies(member);
	scoped_guard(mutex, &pool->admin) {
		/* a member that has died or leaves is counted; a second try counts no more */
		if (kvblk_member_stays(member) && !member->unread_unsure) {
			atomic_inc(&pool->unsure);
			member->unread_unsure = true;
		}
		cmpxchg(&member->state, KVBLK_MEMBER_RESTORING, KVBLK_MEMBER_UNRESTORED);
	}
	wake_up_all(&pool->space_wait);
	kvblk_event(pool, member, KVBLK_EVENT_RESTORE_FAILED, -err);
}

void kvblk_member_restore(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member, restore);
	struct kvblk_pool *pool = member->pool;
	struct restore rs = { .member = member };
	int err = 0;
	u32 i;

	if (READ_ONCE(member->state) == KVBLK_MEMBER_UP) {
		restore_rest(member);
		goto out;
	}
	for (i = 0; i < member->nr_segs; i++) {
		member->segs[i].unknown = !member->formatted;
		member->segs[i].unread = true;
	}
	if (!member->formatted)
		err = restore_all(&rs);
	WRITE_ONCE(member->restored, member->restored + rs.blocks);
	kvblk_count_at(member->stats, KVBLK_C_RESTORED, rs.blocks);
	if (err) {
		restore_failed(member, err);
	} else {
		restore_use(member);
		if (cmpxchg(&member->state, KVBLK_MEMBER_RESTORING,
			    KVBLK_MEMBER_UP) == KVBLK_MEMBER_RESTORING) {
			if (member->nr_unread) {
				dev_err(&pool->dev, "member %s: %u segments can't be read; add it again to try once more (kvblk member add)\n",
					member->name, member->nr_unread);
				kvblk_event(pool, member, KVBLK_EVENT_RESTORE_FAILED, EIO);
			}
			dev_info(&pool->dev, "member %s: up, %llu blocks\n",
				 member->name, rs.blocks);
			kvblk_event(pool, member, KVBLK_EVENT_MEMBER_UP, rs.blocks);
			/* where room is short puts do it: to come back costs no block */
			if (member->nr_free > member->nr_segs / 2)
				kvblk_log_kick(member);
			queue_delayed_work(pool->wq, &member->checkpoint, HZ);
		}
	}
	/* all is compared with what was put since; deletes and replacing puts were refused */
	if (!err && member->retry)
		kvblk_absent_end(pool, &member->uuid);
	if (member->absent) {
		restore_settle(member);
	} else {
		if (atomic_dec_and_test(&pool->restoring))
			restore_index(pool);
		wake_up_all(&pool->restore_wait);
	}
out:
	percpu_ref_put(&pool->users);
}
