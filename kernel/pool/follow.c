// SPDX-License-Identifier: GPL-2.0
/*
 * Foreign members: devices that other nodes of the pod own, and this node only reads. Each second a
 * poll reads a member's segment table and the summaries of new records, and enters the records into
 * the index. The rules:
 * - The table proves the contents of a segment: an owner writes the next generation to the table,
 *   waits for the grace of its superblock, and only then overwrites the segment. A read is believed
 *   if it completed within the grace after the submission of a table read that showed the block's
 *   generation. Any other read needs a table read after it (read/source_foreign.c).
 * - The change page saves table reads: it names the pages that were written. The owner notes a page
 *   before the grace begins. A change page whose beat is higher by two than the beat of an
 *   earlier read was composed after that read, and so proves all pages that it does not name for
 *   the time of that read. Without new beats, as of a dead owner, all pages are read.
 * - The grace counts by CLOCK_BOOTTIME of each node. An eighth is left for unlike clocks. An owner
 *   keeps a lowered grace's former value for KVBLK_FOLLOW_SUPER_MS longer. So a proof needs a
 *   superblock read that is not older.
 * - Own blocks have precedence over foreign blocks. Of two records of a foreign member the later
 *   counts, of two foreign members the record found first.
 * - Of a hinted member only segments that a hint named are scanned. A hint counts for a generation.
 *   A segment that was scanned is scanned again, because its entries may have been evicted.
 * - No write reaches a foreign member (io_refuse()). So its entries leave without invalidation.
 */
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>

#include "p2p/p2p.h"
#include "pool/pool.h"

#define SUPER_NS	(KVBLK_FOLLOW_SUPER_MS * NSEC_PER_MSEC)	/* of a superblock's validity */
#define BEAT_NS		(2 * NSEC_PER_SEC)	/* longest wait for the next beat of a live owner */
#define FOLLOW_STEP	HZ		/* longest scan before the table is read again */
#define FOLLOW_AHEAD	16u		/* entries between prefetch and use of index lines */

struct follow {
	struct kvblk_scan scan;
	struct kvblk_foreign *foreign;
	struct kvblk_foreign_segment *seg;
	u64 blocks;
	u32 lacks;		/* of @seg */
};

/* ---- the segment table ---- */

const struct kvblk_d_table *kvblk_foreign_table(const struct kvblk_foreign *foreign, u32 page,
						const struct kvblk_d_table slots[2])
{
	const struct kvblk_d_table *table = NULL, *slot;

	for (slot = slots; slot < slots + 2; slot++)
		if (kvblk_table_valid(slot, foreign->flash.incarnation, page) &&
		    (!table || le64_to_cpu(slot->seq) > le64_to_cpu(table->seq)))
			table = slot;
	return table;
}

/* Returns until when, of CLOCK_BOOTTIME, reads of @segment are believed. */
static u64 believed_until(const struct kvblk_foreign *foreign, u32 segment)
{
	u64 page, all;

	/* pairs with poll_page(): a new time comes with the new generations */
	page = smp_load_acquire(&foreign->until[segment / KVBLK_TABLE_ENTRIES]);
	/* pairs with poll_changes() */
	all = smp_load_acquire(&foreign->all_until);
	return max(page, all);
}

bool kvblk_foreign_believed(const struct kvblk_foreign *foreign, u32 segment, u64 gen)
{
	u64 until = believed_until(foreign, segment);

	return READ_ONCE(foreign->segs[segment].gen) == gen && ktime_get_boottime_ns() < until;
}

u64 kvblk_foreign_until(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	/* this clock first: a delay between the two must not make the promise longer */
	u64 from = ktime_get_ns(), now = ktime_get_boottime_ns(), until = now;
	const struct kvblk_foreign *foreign;
	u32 segment;

	guard(rcu)();
	foreign = kvblk_foreign_of(pool, slot->seg);
	segment = foreign ? kvblk_slot_segment(&foreign->flash, slot) : 0;
	if (foreign && segment < foreign->flash.nr_segs) {
		until = believed_until(foreign, segment);
		/* since the lookup a poll may have seen the end of the block's generation */
		if ((u16)READ_ONCE(foreign->segs[segment].gen) != slot->gen)
			until = now;
	}
	return from + (until > now ? until - now : 0);
}

static u64 table_mark(const struct kvblk_d_table *table)
{
	return le64_to_cpu(table->seq) << 32 ^ le32_to_cpu(table->crc);
}

static void segment_lacks(struct kvblk_foreign *foreign, struct kvblk_foreign_segment *seg,
			  u32 lacks)
{
	WRITE_ONCE(foreign->lacks, foreign->lacks + lacks - seg->lacks);
	seg->lacks = lacks;
}

/* Has all records entered that were not, although their summaries were read. */
static void segments_rescan(struct kvblk_foreign *foreign)
{
	u32 i;

	for (i = 0; i < foreign->flash.nr_segs; i++) {
		foreign->segs[i].whole = false;
		foreign->segs[i].settled = 0;
	}
}

/*
 * Determines clock_lead: too long expires blocks early, too short would expire them late. The owner
 * saves its clock in superblocks and in page 0 of the table, which are older than their reads.
 * - So of one clock's tables the longest lead is right. Only an import sets the clock back: the
 *   next table has an earlier time, and its lead replaces the former one.
 * - An owner that is down writes no table. So the last superblock counts, too, with the time since
 *   it by both hosts' clocks. As they may be wrong for a while, each read counts anew.
 */
static void clock_note(struct kvblk_foreign *foreign)
{
	s64 lead = max(foreign->super_lead, foreign->table_lead);

	/* records that seemed expired were not entered */
	if (lead + KVBLK_CLOCK_SAVE_S < foreign->clock_lead)
		segments_rescan(foreign);
	WRITE_ONCE(foreign->clock_lead, lead);
}

static void clock_table(struct kvblk_foreign *foreign, u32 time)
{
	s64 lead = (s32)(time - kvblk_now(foreign->flash.pool));

	if ((s32)(time - foreign->table_time) >= 0)
		lead = max(lead, foreign->table_lead);
	foreign->table_lead = lead;
	foreign->table_time = time;
	clock_note(foreign);
}

static void poll_entries(struct kvblk_foreign *foreign, u32 page,
			 const struct kvblk_d_table *table)
{
	u32 nr = page * KVBLK_TABLE_ENTRIES, end = min(nr + KVBLK_TABLE_ENTRIES,
						       foreign->flash.nr_segs);
	const struct kvblk_d_segment *d = table->segments;
	struct kvblk_pool *pool = foreign->flash.pool;

	for (; nr < end; nr++, d++) {
		struct kvblk_foreign_segment *seg = &foreign->segs[nr];

		if (seg->gen != le64_to_cpu(d->generation)) {
			seg->whole = false;
			seg->damaged = false;
			seg->settled = 0;
			segment_lacks(foreign, seg, 0);
			WRITE_ONCE(seg->gen, le64_to_cpu(d->generation));
			WRITE_ONCE(pool->seg_gen[foreign->flash.seg_base + nr], (u16)seg->gen);
		}
		seg->opened = le64_to_cpu(d->opened);
		WRITE_ONCE(seg->flags, le16_to_cpu(d->flags));
		WRITE_ONCE(seg->state, d->state);
	}
	foreign->table_mark[page] = table_mark(table);
	if (!page)
		clock_table(foreign, le32_to_cpu(table->time));
}

/* Returns whether the superblock was read recently enough to know the grace at @time. */
static bool grace_known(const struct kvblk_foreign *foreign, u64 time)
{
	return time < foreign->super_read + SUPER_NS;
}

/* Reads a page. A torn page, as during a write of the owner, proves nothing. */
static int poll_page(struct kvblk_foreign *foreign, u32 page, struct kvblk_d_table slots[2])
{
	u64 since = ktime_get_boottime_ns();
	const struct kvblk_d_table *table;
	int err;

	err = kvblk_io_sync(&foreign->flash, REQ_OP_READ | REQ_META, kvblk_table_pos(page), slots,
			    2 * sizeof(*slots));
	if (err)
		return err;
	table = kvblk_foreign_table(foreign, page, slots);
	if (!table)
		return -EUCLEAN;
	/* the owner repeats a failed write under the same seq, with other contents */
	if (table_mark(table) != foreign->table_mark[page])
		poll_entries(foreign, page, table);
	if (grace_known(foreign, since))
		/* pairs with believed_until() */
		smp_store_release(&foreign->until[page], since + foreign->grace);
	return 0;
}

/* ---- the superblock ---- */

/*
 * Returns the newest superblock of @copies, or an ERR_PTR(): of -EPROTONOSUPPORT if any copy is of
 * another version, because the owner may have changed the format already.
 */
static const struct kvblk_d_super *super_newest(struct kvblk_flash *flash,
						struct kvblk_d_super copies[2])
{
	const struct kvblk_d_super *newest = NULL;
	int i, err, why = -ENODATA;

	for (i = 0; i < 2; i++) {
		err = kvblk_io_sync(flash, REQ_OP_READ | REQ_META, KVBLK_SB_OFFSET(i), &copies[i],
				    sizeof(*copies)) ?:
		      kvblk_super_check(&copies[i], flash->size);
		/* a reader may ignore unknown ro_compat bits */
		if (err == -EPROTONOSUPPORT)
			return ERR_PTR(err);
		if (err && err != -EROFS)
			why = err == -ENODATA ? why : err;
		else if (!newest || le64_to_cpu(copies[i].seq) > le64_to_cpu(newest->seq))
			newest = &copies[i];
	}
	return newest ?: ERR_PTR(why);
}

static void super_note(struct kvblk_foreign *foreign, const struct kvblk_d_super *sb)
{
	u64 grace = (u64)le32_to_cpu(sb->reuse_grace) * NSEC_PER_MSEC;
	s64 lead = le64_to_cpu(sb->time) - kvblk_clock(foreign->flash.pool);
	s64 since = ktime_get_real_seconds() - (s64)le64_to_cpu(sb->wall);

	foreign->grace = grace - grace / 8;
	foreign->super_lead = lead + max_t(s64, since, 0);
	clock_note(foreign);
	memcpy(foreign->node, sb->node, sizeof(foreign->node));
	strscpy(foreign->owner, sb->owner);
}

/* Returns whether the member still is what was opened. */
static bool super_same(const struct kvblk_foreign *foreign, const struct kvblk_d_super *sb)
{
	return le64_to_cpu(sb->incarnation) == foreign->flash.incarnation &&
	       kvblk_super_in_pod(sb) && !memcmp(sb->pod_uuid, foreign->flash.pool->pod, UUID_SIZE);
}

/*
 * Reads the superblock if it is due. Returns 0, -ESTALE: formatted anew, -EPROTONOSUPPORT: used
 * by another version, or an errno.
 */
static int poll_super(struct kvblk_foreign *foreign)
{
	struct kvblk_d_super *copies __free(kvfree) = NULL;
	u64 now = ktime_get_boottime_ns();
	const struct kvblk_d_super *sb;
	int err;

	if (foreign->super_read && now < foreign->super_read + SUPER_NS / 2 &&
	    foreign->super_read >= READ_ONCE(foreign->flash.pool->foreign.super_wanted))
		return 0;
	copies = vmalloc(2 * sizeof(*copies));
	if (!copies)
		return -ENOMEM;
	sb = super_newest(&foreign->flash, copies);
	if (IS_ERR(sb))
		return PTR_ERR(sb);
	if (!super_same(foreign, sb))
		return -ESTALE;
	err = kvblk_agree_note(foreign, sb);
	if (err)
		return err;
	super_note(foreign, sb);
	WRITE_ONCE(foreign->super_read, now);
	wake_up_all(&foreign->flash.pool->peers.wait);
	return 0;
}

/* ---- records ---- */

static struct follow *follow_of(struct kvblk_scan *scan)
{
	return container_of(scan, struct follow, scan);
}

u32 kvblk_foreign_expiry(const struct kvblk_foreign *foreign, u32 expiry)
{
	/* early rather than late, because owners seldom save their clocks */
	return expiry ? expiry - (u32)READ_ONCE(foreign->clock_lead) - KVBLK_CLOCK_SAVE_S ?: 1 : 0;
}

static void follow_ahead(struct kvblk_scan *scan, const struct kvblk_d_summary *sum, u32 i)
{
	const struct kvblk_index *idx = &follow_of(scan)->foreign->flash.pool->index;
	const struct kvblk_d_entry *entry = sum->entries + i + FOLLOW_AHEAD;

	if (i + FOLLOW_AHEAD < KVBLK_SUMMARY_ENTRIES)
		kvblk_index_prefetch(idx, (struct kvblk_id) {
			.hi = le64_to_cpu(entry->id_hi), .lo = le64_to_cpu(entry->id_lo) });
}

static int follow_record(struct kvblk_scan *scan, const struct kvblk_rec *rec, u32 unit)
{
	struct follow *follow = follow_of(scan);
	struct kvblk_foreign *foreign = follow->foreign;
	struct kvblk_pool *pool = foreign->flash.pool;
	struct kvblk_slot old, slot = {
		.seg = foreign->flash.seg_base + (follow->seg - foreign->segs),
		.off = unit,
		.len = rec->length,
		.gen = (u16)follow->seg->gen,
		.tenant = rec->tenant,
		.state = KVBLK_SLOT_LIVE,
		.prio = rec->priority,
		/* or else the entries of one hint would evict those of the last */
		.heat = foreign->hinted ? kvblk_policy_tick(&pool->policy) : 0,
		.expiry = kvblk_foreign_expiry(foreign, rec->expiry),
		.caller_tag = rec->caller_tag,
	};
	int ret;

	if (kvblk_flash_leaves(&foreign->flash))
		return -ENODEV;
	if (!kvblk_tenant_followed(foreign, rec->tenant) ||
	    kvblk_expired(slot.expiry, kvblk_now(pool)))
		return 0;
	if (rec->caller_tag && kvblk_index_keep_tags(&pool->index))
		return -ENOMEM;
	ret = kvblk_index_insert(&pool->index, rec->id, &slot, &old, foreign->hinted);
	if (ret == -EEXIST && kvblk_slot_foreign(&old) &&
	    (!kvblk_same_record(&old, &slot) || old.expiry != slot.expiry)) {
		guard(rcu)();
		/* also in place of an entry that is not served, or else this one would be lost */
		if (kvblk_foreign_of(pool, old.seg) == foreign ||
		    !kvblk_foreign_agrees(pool, old.seg, old.tenant))
			kvblk_index_replace(&pool->index, rec->id, &old, &slot);
	}
	follow->blocks += ret == 0 || ret == 1;
	follow->lacks += ret == -ENOSPC;
	return 0;
}

static const struct kvblk_scan_ops follow_ops = {
	.ahead = follow_ahead,
	.record = follow_record,
};

static int by_opened(const void *a, const void *b)
{
	const struct kvblk_foreign_segment *const *l = a, *const *r = b;

	return (*l)->opened < (*r)->opened ? -1 : (*l)->opened > (*r)->opened;
}

/* Returns whether @seg may have records to enter. @again: try damaged summaries; @room: lacks. */
static bool segment_due(const struct kvblk_foreign *foreign,
			const struct kvblk_foreign_segment *seg, bool again, bool room)
{
	if (seg->state == KVBLK_SEG_FREE ||
	    (foreign->hinted && READ_ONCE(seg->hinted) != seg->gen))
		return false;
	return READ_ONCE(seg->again) || (!seg->whole && (!seg->damaged || again)) ||
	       (seg->lacks && room);
}

/* Returns whether most records would find an index slot. */
static bool index_has_room(const struct kvblk_index *idx)
{
	u64 slots = kvblk_index_slots(idx);

	return kvblk_index_used(idx) < slots - slots / 8;
}

/* Scans @seg, whose records are entered. */
static int follow_segment(struct follow *follow, struct kvblk_foreign_segment *seg)
{
	struct kvblk_foreign *foreign = follow->foreign;
	struct kvblk_scan_segment found = {
		.place = kvblk_place(&foreign->flash, seg - foreign->segs, seg->gen, 0),
		.flags = &seg->flags,
		.settled = seg->settled,
	};
	bool again = READ_ONCE(seg->again);
	int err;

	if (again) {
		WRITE_ONCE(seg->again, false);
		found.settled = 0;
	}
	follow->seg = seg;
	follow->lacks = 0;
	WRITE_ONCE(seg->scanned, (u32)jiffies);
	err = kvblk_scan_segment(&follow->scan, &found);
	if (err && err != -EIO) {
		if (again)
			WRITE_ONCE(seg->again, true);
		return err;
	}
	segment_lacks(foreign, seg, follow->lacks);
	seg->settled = seg->lacks ? 0 : found.settled;
	seg->whole = found.whole;
	seg->damaged = !found.whole && seg->state == KVBLK_SEG_SEALED;
	return 0;
}

/* Enters new records, oldest segments first. Returns 0; 1: more are left; or an errno. */
static int poll_records(struct kvblk_foreign *foreign)
{
	struct follow follow = { .scan.ops = &follow_ops, .foreign = foreign };
	struct kvblk_foreign_segment **order __free(kvfree) = NULL;
	/* about as often as the superblock is read */
	bool again = foreign->super_read + NSEC_PER_SEC > ktime_get_boottime_ns();
	bool room = again && index_has_room(&foreign->flash.pool->index);
	unsigned long end = jiffies + FOLLOW_STEP;
	u32 i, nr = 0, most;
	int err;

	/* a restore that may not evict would find no slots for own blocks */
	if (!foreign->flash.pool->index_evicts && atomic_read(&foreign->flash.pool->restoring))
		return -EAGAIN;
	for (i = 0; i < foreign->flash.nr_segs; i++)
		nr += segment_due(foreign, &foreign->segs[i], again, room);
	if (!nr)
		return 0;
	order = kvmalloc_array(nr, sizeof(*order), GFP_KERNEL);
	if (!order)
		return -ENOMEM;
	/* no more than were counted: hints may come meanwhile, and another poll with them */
	for (i = 0, most = nr, nr = 0; i < foreign->flash.nr_segs && nr < most; i++)
		if (segment_due(foreign, &foreign->segs[i], again, room))
			order[nr++] = &foreign->segs[i];
	sort(order, nr, sizeof(*order), by_opened, NULL);

	follow.scan.reader = kvblk_flash_reader(&foreign->flash);
	err = kvblk_scan_begin(&follow.scan);
	for (i = 0; i < nr && !err; i++) {
		if (time_after(jiffies, end))
			err = 1;
		else if (kvblk_flash_leaves(&foreign->flash))
			err = -ENODEV;
		else
			err = follow_segment(&follow, order[i]);
	}
	kvblk_scan_end(&follow.scan);
	WRITE_ONCE(foreign->blocks, foreign->blocks + follow.blocks);
	return err;
}

/* ---- the poll ---- */

/* Reads pages @from to @to - 1 of @pages, or of all if NULL. Returns 0, or an errno of any. */
static int poll_pages(struct kvblk_foreign *foreign, const __le32 *pages, u64 from, u64 to)
{
	u32 nr = DIV_ROUND_UP(foreign->flash.nr_segs, KVBLK_TABLE_ENTRIES), page;
	struct kvblk_d_table *slots = (void *)__get_free_pages(GFP_KERNEL, 1);
	int err = slots ? 0 : -ENOMEM, torn = 0;

	for (; from < to && !err; from++) {
		page = pages ? le32_to_cpu(pages[from % KVBLK_CHANGES]) : from;
		/* a member that leaves must not wait for the whole table */
		if (kvblk_flash_leaves(&foreign->flash))
			err = -ENODEV;
		else
			err = page < nr ? poll_page(foreign, page, slots) : -EUCLEAN;
		if (err != -EUCLEAN)
			continue;
		/* look at once whether the table is another format's */
		WRITE_ONCE(foreign->super_read, 0);
		torn = err;
		err = 0;
		cond_resched();
	}
	free_pages((unsigned long)slots, 1);
	return err ?: torn;
}

static int poll_all(struct kvblk_foreign *foreign)
{
	return poll_pages(foreign, NULL, 0,
			  DIV_ROUND_UP(foreign->flash.nr_segs, KVBLK_TABLE_ENTRIES));
}

/* Notes the time of the newest beat's read, for which a later beat proves pages. */
static void beat_proves(struct kvblk_foreign *foreign, u64 since)
{
	foreign->beats[1].until = grace_known(foreign, since) ? since + foreign->grace : 0;
}

/* Reads pages that changed, after a change page with a new beat, read at @since. */
static int poll_changes(struct kvblk_foreign *foreign, const struct kvblk_d_change_page *page,
			u64 since)
{
	u64 beat = le64_to_cpu(page->beat), nr = le64_to_cpu(page->nr), proof = 0;
	int i, err;

	/* the beat before @beat was written after the read, @beat composed after that write */
	for (i = 0; i < 2; i++)
		if (foreign->beats[i].beat + 2 <= beat &&
		    foreign->beats[i].beat >> 32 == beat >> 32)
			proof = foreign->beats[i].until;
	if (!foreign->beats[1].beat || nr < foreign->changes_nr ||
	    nr - foreign->changes_nr > KVBLK_CHANGES)
		err = poll_all(foreign);
	else
		err = poll_pages(foreign, page->pages, foreign->changes_nr, nr);
	if (err)
		return err;
	foreign->changes_nr = nr;
	foreign->advanced = since;
	foreign->beats[0] = foreign->beats[1];
	foreign->beats[1].beat = beat;
	beat_proves(foreign, since);
	/* pairs with believed_until() */
	smp_store_release(&foreign->all_until, proof);
	return 0;
}

static int poll_table(struct kvblk_foreign *foreign)
{
	struct kvblk_d_change_page *page __free(kfree) = kmalloc(sizeof(*page), GFP_KERNEL);
	u64 since = ktime_get_boottime_ns();
	int err;

	if (!page)
		return -ENOMEM;
	err = kvblk_io_sync(&foreign->flash, REQ_OP_READ | REQ_META,
			    kvblk_change_page_pos(&foreign->flash), page, sizeof(*page));
	if (err)
		return err;
	if (!kvblk_change_page_valid(page, foreign->flash.incarnation) ||
	    le64_to_cpu(page->beat) < foreign->beats[1].beat) {
		memset(foreign->beats, 0, sizeof(foreign->beats));
		return poll_all(foreign);
	}
	if (le64_to_cpu(page->beat) > foreign->beats[1].beat)
		return poll_changes(foreign, page, since);
	beat_proves(foreign, since);
	/* polls may be faster than beats, but not for long */
	return since < foreign->advanced + BEAT_NS ? 0 : poll_all(foreign);
}

/* Voids all entries: they are another format's. */
static void foreign_void(struct kvblk_foreign *foreign)
{
	struct kvblk_pool *pool = foreign->flash.pool;
	u32 i;

	for (i = 0; i < foreign->flash.nr_segs; i++) {
		WRITE_ONCE(foreign->segs[i].gen, foreign->segs[i].gen + 1);
		WRITE_ONCE(pool->seg_gen[foreign->flash.seg_base + i], (u16)foreign->segs[i].gen);
	}
}

static void foreign_poll(struct work_struct *work)
{
	struct kvblk_foreign *foreign = container_of(to_delayed_work(work), struct kvblk_foreign,
						     poll);
	struct kvblk_pool *pool = foreign->flash.pool;
	/* pairs with kvblk_foreign_hint(): what it marked is scanned by this poll */
	u64 hint = smp_load_acquire(&foreign->hint);
	int err;

	if (kvblk_flash_leaves(&foreign->flash))
		return;
	err = kvblk_flash_may_read(&foreign->flash) ? poll_super(foreign) : -ENODEV;
	if (!err && kvblk_agree_update(foreign))
		segments_rescan(foreign);
	if (!err)
		err = poll_table(foreign);
	/* a torn page is read again by the next poll */
	if (!err || err == -EUCLEAN)
		err = poll_records(foreign);
	if (err != 1) {
		/* pairs with kvblk_foreign_polled(): the entries come first */
		smp_store_release(&foreign->polled, hint);
		wake_up_all(&pool->peers.wait);
	}
	if (err == -ESTALE || err == -EPROTONOSUPPORT) {
		foreign_void(foreign);
		cmpxchg(&foreign->flash.state, KVBLK_MEMBER_UP, KVBLK_MEMBER_UNRESTORED);
		cmpxchg(&foreign->flash.state, KVBLK_MEMBER_RESTORING, KVBLK_MEMBER_UNRESTORED);
		if (err == -ESTALE)
			dev_warn(&pool->dev, "member %s: formatted anew by its owner; gets of its blocks miss; run: kvblk member follow\n",
				 foreign->flash.name);
		else
			dev_warn(&pool->dev, "member %s: its owner uses another version of kvblk; gets of its blocks miss; update this node, then run: kvblk member follow\n",
				 foreign->flash.name);
		return;
	}
	if (!err && cmpxchg(&foreign->flash.state, KVBLK_MEMBER_RESTORING, KVBLK_MEMBER_UP) ==
		    KVBLK_MEMBER_RESTORING)
		dev_info(&pool->dev, "member %s: follows node %s, %llu blocks\n",
			 foreign->flash.name, foreign->owner, foreign->blocks);
	queue_delayed_work(pool->foreign.wq, &foreign->poll, err == 1 ? 0 : HZ);
}

static void foreign_responds(struct kvblk_flash *flash)
{
	struct kvblk_foreign *foreign = container_of(flash, struct kvblk_foreign, flash);

	mod_delayed_work(flash->pool->foreign.wq, &foreign->poll, 0);
}

void kvblk_foreign_poll_now(struct kvblk_foreign *foreign)
{
	foreign_responds(&foreign->flash);
}

u32 kvblk_foreign_hint(struct kvblk_pool *pool, const struct kvblk_anchor *anchor, u64 hint)
{
	struct kvblk_foreign_segment *seg;
	struct kvblk_foreign *foreign;
	uuid_t uuid;

	import_uuid(&uuid, anchor->member);
	guard(rcu)();
	foreign = kvblk_foreign_named(pool, NULL, &uuid);
	if (!foreign || !kvblk_flash_in_use(&foreign->flash) ||
	    anchor->segment >= foreign->flash.nr_segs)
		return 0;
	seg = &foreign->segs[anchor->segment];
	if (anchor->generation < READ_ONCE(seg->gen))
		return 0;
	if (foreign->hinted && (seg->hinted != anchor->generation ||
				(u32)jiffies - READ_ONCE(seg->scanned) >= HZ)) {
		WRITE_ONCE(seg->hinted, anchor->generation);
		WRITE_ONCE(seg->again, true);
	}
	/* pairs with foreign_poll() */
	smp_store_release(&foreign->hint, hint);
	kvblk_foreign_poll_now(foreign);
	return foreign->flash.seg_base;
}

bool kvblk_foreign_polled(struct kvblk_pool *pool, u32 seg_base, u64 hint)
{
	const struct kvblk_foreign *foreign;

	guard(rcu)();
	foreign = kvblk_foreign_of(pool, seg_base);
	if (!foreign || !kvblk_flash_in_use(&foreign->flash))
		return true;
	/* pairs with foreign_poll() */
	return smp_load_acquire(&foreign->polled) >= hint;
}

static const struct kvblk_flash_ops foreign_flash_ops = {
	.responds = foreign_responds,
};

/* ---- following ---- */

static void foreign_mark_dead(struct block_device *bdev, bool surprise)
{
	struct kvblk_foreign *foreign = bdev->bd_holder;
	struct kvblk_flash *flash = &foreign->flash;

	lockdep_assert_held(&bdev->bd_holder_lock);
	cmpxchg(&flash->state, KVBLK_MEMBER_RESTORING, KVBLK_MEMBER_DEAD);
	if (cmpxchg(&flash->state, KVBLK_MEMBER_UP, KVBLK_MEMBER_DEAD) == KVBLK_MEMBER_UP)
		dev_warn(&flash->pool->dev, "member %s: device %s lost; gets of its blocks miss\n",
			 flash->name, flash->device);
	wake_up_all(&flash->pool->peers.wait);
	mutex_unlock(&bdev->bd_holder_lock);
}

static const struct blk_holder_ops foreign_holder_ops = {
	.mark_dead = foreign_mark_dead,
};

static void foreign_free(struct kvblk_foreign *foreign)
{
	if (foreign->flash.bdev_file)
		bdev_fput(foreign->flash.bdev_file);
	kvblk_flash_exit(&foreign->flash);
	kvfree(foreign->segs);
	kvfree(foreign->tenants);
	kvfree(foreign->until);
	kvfree(foreign->table_mark);
	free_percpu(foreign->stats);
	kfree(foreign);
}

static struct kvblk_foreign *foreign_open(struct kvblk_pool *pool, struct kvblk_member_spec *spec,
					  struct netlink_ext_ack *extack)
{
	struct kvblk_foreign *foreign = kzalloc(sizeof(*foreign), GFP_KERNEL);
	struct file *file;
	int err;

	if (!foreign)
		return ERR_PTR(-ENOMEM);
	foreign->flash.foreign = true;
	foreign->hinted = spec->hinted;
	foreign->clock_lead = S64_MIN;
	foreign->table_lead = S64_MIN;
	INIT_DELAYED_WORK(&foreign->poll, foreign_poll);
	err = kvblk_flash_init(&foreign->flash, pool, &foreign_flash_ops, spec);
	if (err)
		goto free;
	file = bdev_file_open_by_dev(spec->dev, BLK_OPEN_READ, foreign, &foreign_holder_ops);
	/* another pool of this host owns the device */
	if (PTR_ERR_OR_ZERO(file) == -EBUSY)
		file = bdev_file_open_by_dev(spec->dev, BLK_OPEN_READ, NULL, NULL);
	if (IS_ERR(file)) {
		err = PTR_ERR(file);
		NL_SET_ERR_MSG_FMT(extack, "%.32s cannot be opened (error %d)",
				   kbasename(foreign->flash.path), err);
		goto free;
	}
	kvblk_flash_open(&foreign->flash, file, spec->name);
	return foreign;
free:
	foreign_free(foreign);
	return ERR_PTR(err);
}

void kvblk_foreign_share(dev_t dev)
{
	struct file *held = NULL, *shared = bdev_file_open_by_dev(dev, BLK_OPEN_READ, NULL, NULL);
	struct kvblk_foreign *foreign, *holder = NULL;
	struct kvblk_pool *pool;

	if (IS_ERR(shared))
		return;
	scoped_guard(mutex, &kvblk_pools_lock) {
		guard(rcu)();
		list_for_each_entry(pool, &kvblk_pools, link)
			list_for_each_entry_rcu(foreign, &pool->foreign.list, link)
				if (READ_ONCE(file_bdev(shared)->bd_holder) == foreign &&
				    percpu_ref_tryget_live_rcu(&foreign->flash.ref))
					holder = foreign;
		if (holder)
			held = xchg(&holder->flash.bdev_file, shared);
	}
	bdev_fput(held ?: shared);
	/* last, because a loss of the device accesses the holder until then */
	if (holder)
		percpu_ref_put(&holder->flash.ref);
}

/* Returns 0 if @sb is of a member to follow, or an error with a message. */
static int foreign_fits(const struct kvblk_foreign *foreign, const struct kvblk_d_super *sb,
			struct netlink_ext_ack *extack)
{
	const struct kvblk_pool *pool = foreign->flash.pool;
	const char *name = foreign->flash.name;

	if (IS_ERR(sb) && PTR_ERR(sb) == -ENODATA)
		return kvblk_refuse(extack, -ENODATA, "%s is not a member of a pool", name);
	if (IS_ERR(sb) && PTR_ERR(sb) == -EPROTONOSUPPORT)
		return kvblk_refuse(extack, -EPROTONOSUPPORT, "%.20s was written by another version of kvblk: update this node",
				    name);
	if (IS_ERR(sb))
		return kvblk_refuse(extack, PTR_ERR(sb), "%.24s has no superblock that can be used (error %ld)",
				    name, PTR_ERR(sb));
	if (!kvblk_super_in_pod(sb) || memcmp(sb->pod_uuid, pool->pod, UUID_SIZE))
		return kvblk_refuse(extack, -EXDEV, "%.20s is of pool %.20s, which is not in this pod",
				    name, sb->pool_name);
	if (memcmp(sb->seed, pool->seed, sizeof(sb->seed)))
		return kvblk_refuse(extack, -EXDEV, "%s has another seed than the pod", name);
	if (!memcmp(sb->pool_uuid, &pool->uuid, UUID_SIZE))
		return kvblk_refuse(extack, -EEXIST, "%s is a member of this pool, not of another node's",
				    name);
	if (bdev_logical_block_size(foreign->flash.bdev) > KVBLK_UNIT)
		return kvblk_refuse(extack, -EINVAL, "%.16s has logical blocks over 4 KiB", name);
	if (le32_to_cpu(sb->nr_segments) > KVBLK_SEGS_MAX)
		return kvblk_refuse(extack, -EINVAL, "%.20s has over 2^20 segments, more than this version supports",
				    name);
	return 0;
}

static int foreign_setup(struct kvblk_foreign *foreign, const struct kvblk_d_super *sb)
{
	struct kvblk_flash *flash = &foreign->flash;
	u32 pages;

	flash->segment_units = le32_to_cpu(sb->segment_units);
	flash->nr_segs = le32_to_cpu(sb->nr_segments);
	flash->data_start = le64_to_cpu(sb->data_start);
	flash->record_align = le32_to_cpu(sb->record_align);
	flash->incarnation = le64_to_cpu(sb->incarnation);
	import_uuid(&flash->uuid, sb->member_uuid);
	import_uuid(&foreign->pool_uuid, sb->pool_uuid);
	super_note(foreign, sb);
	pages = DIV_ROUND_UP(flash->nr_segs, KVBLK_TABLE_ENTRIES);
	foreign->segs = kvcalloc(flash->nr_segs, sizeof(*foreign->segs), GFP_KERNEL);
	foreign->until = kvcalloc(pages, sizeof(*foreign->until), GFP_KERNEL);
	foreign->table_mark = kvcalloc(pages, sizeof(*foreign->table_mark), GFP_KERNEL);
	foreign->stats = alloc_percpu(struct kvblk_foreign_stats);
	if (!foreign->segs || !foreign->until || !foreign->table_mark || !foreign->stats)
		return -ENOMEM;
	return kvblk_agree_note(foreign, sb);
}

struct kvblk_foreign *kvblk_foreign_named(struct kvblk_pool *pool, const char *name,
					  const uuid_t *uuid)
{
	struct kvblk_foreign *foreign;

	list_for_each_entry_rcu(foreign, &pool->foreign.list, link, lockdep_is_held(&pool->admin))
		if (uuid ? uuid_equal(&foreign->flash.uuid, uuid) :
			   !strcmp(foreign->flash.name, name))
			return foreign;
	return NULL;
}

static void granules_clear(struct kvblk_foreign *foreign, u32 nr)
{
	u32 first = (foreign->flash.seg_base - KVBLK_FOREIGN_SEG) >> KVBLK_GRANULE_SHIFT;

	while (nr--)
		xa_erase(&foreign->flash.pool->foreign.granules, first + nr);
}

static u32 granules_of(const struct kvblk_foreign *foreign)
{
	return DIV_ROUND_UP(foreign->flash.nr_segs, 1u << KVBLK_GRANULE_SHIFT);
}

/* Stops and frees an unlisted foreign member. Waits for I/O. */
static void foreign_end(struct kvblk_foreign *foreign)
{
	struct kvblk_pool *pool = foreign->flash.pool;

	WRITE_ONCE(foreign->flash.state, KVBLK_MEMBER_REMOVING);
	wake_up_all(&pool->settle_wait);
	wake_up_all(&pool->peers.wait);
	percpu_ref_kill(&foreign->flash.ref);
	wait_for_completion_state(&foreign->flash.ref_done, TASK_IDLE);
	/* not cancel: a tick that has just found the member may still call foreign_responds() */
	disable_delayed_work_sync(&foreign->poll);
	flush_work(&foreign->flash.p2p.work);
	flush_work(&foreign->flash.watchdog.probe);
	foreign_void(foreign);
	/* the segment numbers are reused, unless the index is freed next */
	if (!percpu_ref_is_dying(&pool->users))
		kvblk_pool_sweep(pool);
	scoped_guard(mutex, &pool->admin) {
		granules_clear(foreign, granules_of(foreign));
		kvblk_pool_limits(pool);
	}
	synchronize_rcu();
	foreign_free(foreign);
}

/* Ends lost or newly formatted members of @dev or @uuid (or NULL). */
static void former_end(struct kvblk_pool *pool, dev_t dev, const uuid_t *uuid)
{
	struct kvblk_foreign *former;

	for (;;) {
		scoped_guard(mutex, &pool->admin) {
			list_for_each_entry(former, &pool->foreign.list, link)
				if (!kvblk_flash_in_use(&former->flash) &&
				    (former->flash.dev == dev ||
				     (uuid && uuid_equal(&former->flash.uuid, uuid))))
					break;
			if (list_entry_is_head(former, &pool->foreign.list, link))
				return;
			list_del_rcu(&former->link);
		}
		foreign_end(former);
	}
}

/* Takes segment numbers, and publishes the member. */
static int foreign_place(struct kvblk_foreign *foreign, struct netlink_ext_ack *extack)
{
	struct kvblk_pool *pool = foreign->flash.pool;
	u32 want = granules_of(foreign), at, run = 0, i;

	former_end(pool, foreign->flash.dev, &foreign->flash.uuid);
	guard(mutex)(&pool->admin);
	if (kvblk_foreign_named(pool, NULL, &foreign->flash.uuid) ||
	    kvblk_member_named(pool, NULL, &foreign->flash.uuid))
		return kvblk_refuse(extack, -EEXIST, "%s is followed already", foreign->flash.name);
	if (kvblk_member_named(pool, foreign->flash.name, NULL) ||
	    kvblk_foreign_named(pool, foreign->flash.name, NULL))
		return kvblk_refuse(extack, -EEXIST, "the pool has a member %.18s: pass another name",
				    foreign->flash.name);
	for (at = 0; at < KVBLK_FOREIGN_GRANULES && run < want; at++)
		run = xa_load(&pool->foreign.granules, at) ? 0 : run + 1;
	if (run < want)
		return kvblk_refuse(extack, -ENOSPC, "the pool cannot follow %u more segments",
				    foreign->flash.nr_segs);
	if (kvblk_touches_init(pool))
		return -ENOMEM;
	foreign->flash.seg_base = KVBLK_FOREIGN_SEG + ((at - want) << KVBLK_GRANULE_SHIFT);
	for (i = 0; i < want; i++)
		if (xa_err(xa_store(&pool->foreign.granules, at - want + i, foreign, GFP_KERNEL))) {
			granules_clear(foreign, i);
			return -ENOMEM;
		}
	list_add_tail_rcu(&foreign->link, &pool->foreign.list);
	kvblk_pool_limits(pool);
	queue_delayed_work(pool->foreign.wq, &foreign->poll, 0);
	return 0;
}

int kvblk_follow(struct kvblk_pool *pool, struct kvblk_member_spec *spec,
		 struct netlink_ext_ack *extack)
{
	struct kvblk_d_super *copies __free(kvfree) = vmalloc(2 * sizeof(*copies));
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	const struct kvblk_d_super *sb;
	struct kvblk_foreign *foreign;
	int err;

	if (!entered)
		return kvblk_refuse(extack, -ENODEV, "the pool is being destroyed");
	if (!kvblk_pool_in_pod(pool))
		return kvblk_refuse(extack, -EINVAL, "the pool is in no pod: create it with --pod");
	if (!copies)
		return -ENOMEM;
	/* before the open, which is exclusive */
	former_end(pool, spec->dev, NULL);
	foreign = foreign_open(pool, spec, extack);
	if (IS_ERR(foreign))
		return PTR_ERR(foreign);
	sb = super_newest(&foreign->flash, copies);
	err = foreign_fits(foreign, sb, extack) ?: foreign_setup(foreign, sb) ?:
	      kvblk_agree_check(foreign, extack) ?: foreign_place(foreign, extack);
	if (err)
		foreign_free(foreign);
	return err;
}

int kvblk_unfollow(struct kvblk_pool *pool, const char *name, const uuid_t *uuid)
{
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	struct kvblk_foreign *foreign;

	if (!entered)
		return -ENOENT;
	scoped_guard(mutex, &pool->admin) {
		foreign = kvblk_foreign_named(pool, name, uuid);
		if (!foreign)
			return -ENOENT;
		list_del_rcu(&foreign->link);
	}
	dev_info(&pool->dev, "member %s: no longer followed\n", foreign->flash.name);
	foreign_end(foreign);
	return 0;
}

void kvblk_unfollow_all(struct kvblk_pool *pool)
{
	struct kvblk_foreign *foreign, *next;

	list_for_each_entry_safe(foreign, next, &pool->foreign.list, link) {
		scoped_guard(mutex, &pool->admin)
			list_del_rcu(&foreign->link);
		foreign_end(foreign);
	}
}

struct kvblk_foreign *kvblk_foreign_get(struct kvblk_pool *pool, u32 seg)
{
	struct kvblk_foreign *foreign;

	guard(rcu)();
	foreign = kvblk_foreign_of(pool, seg);
	/* since the lookup, another member may have taken the segment numbers */
	return foreign && seg - foreign->flash.seg_base < foreign->flash.nr_segs &&
	       kvblk_flash_in_use(&foreign->flash) &&
	       percpu_ref_tryget_live_rcu(&foreign->flash.ref) ? foreign : NULL;
}

bool kvblk_foreign_served(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	const struct kvblk_foreign *foreign;

	guard(rcu)();
	foreign = kvblk_foreign_of(pool, slot->seg);
	return foreign && kvblk_tenant_followed(foreign, slot->tenant) &&
	       kvblk_flash_may_read(&foreign->flash);
}

void kvblk_foreign_stats(const struct kvblk_foreign *foreign, struct kvblk_foreign_stats *sum)
{
	const struct kvblk_foreign_stats *stats;
	int cpu;

	memset(sum, 0, sizeof(*sum));
	for_each_possible_cpu(cpu) {
		stats = per_cpu_ptr(foreign->stats, cpu);
		sum->gets += READ_ONCE(stats->gets);
		sum->get_bytes += READ_ONCE(stats->get_bytes);
		sum->misses += READ_ONCE(stats->misses);
	}
}
