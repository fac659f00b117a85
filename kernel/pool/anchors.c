// SPDX-License-Identifier: GPL-2.0
/*
 * Anchors: records of own members that a directory names to other nodes, see pool/peers.c. Rules:
 * - Each second a pass reads what followers read, the summaries of new records, so an anchor is
 *   reported when other nodes can find the block. A daemon's first pass reads all summaries.
 * - A hint leads to all of a segment, so each run of puts needs one anchor there. A chain is
 *   written last block first: a record whose parent is not the next record begins a run, and the
 *   last record may. Each span-th record is an anchor, too, for when those are deleted or evicted.
 * - A daemon that does not read stops the pass, which goes on at the same record.
 * - A pass visits only segments that were opened or restored and not yet wholly read, because a
 *   member may have hundreds of thousands.
 */
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "log/log.h"
#include "log/scan.h"
#include "pool/pool.h"

struct pass {
	struct kvblk_scan scan;
	struct kvblk_member *member;
	struct kvblk_anchor_segment *at; /* progress in the segment being read */
	u32 segment;
	u32 span;
	bool found;			/* the fields below are of the last record */
	struct kvblk_id id;
	u64 parent;
	u32 unit;
};

/* Reports the last record, unless its block is gone. Returns 0, or -EAGAIN: no room. */
static int anchor_report(const struct pass *pass)
{
	struct kvblk_flash *flash = &pass->member->flash;
	struct kvblk_anchor anchor = {
		.generation = pass->at->gen,
		.segment = pass->segment,
	};
	struct kvblk_slot slot;

	if (!kvblk_index_find(&flash->pool->index, pass->id, &slot) ||
	    slot.seg != flash->seg_base + pass->segment || slot.off != pass->unit ||
	    !test_bit(slot.tenant, flash->pool->tenants.live) ||
	    kvblk_expired(slot.expiry, kvblk_now(flash->pool)))
		return 0;
	kvblk_id_pack(anchor.id, pass->id);
	export_uuid(anchor.member, &flash->uuid);
	return kvblk_peers_note(flash->pool, &anchor);
}

/* Decides about the last record. @begins: it begins a run. Returns as anchor_report(). */
static int anchor_decide(struct pass *pass, bool begins)
{
	int err = begins || !(pass->at->nr % pass->span) ? anchor_report(pass) : 0;

	if (err)
		return err;
	pass->at->nr++;
	pass->at->end = pass->unit + 1;
	return 0;
}

static void anchor_ahead(struct kvblk_scan *scan, const struct kvblk_d_summary *sum, u32 i)
{
}

static int anchor_record(struct kvblk_scan *scan, const struct kvblk_rec *rec, u32 unit)
{
	struct pass *pass = container_of(scan, struct pass, scan);
	int err;

	if (kvblk_flash_leaves(&pass->member->flash) ||
	    !kvblk_peers_span(pass->member->flash.pool))
		return -ENODEV;
	if (unit < pass->at->end)
		return 0;
	err = pass->found ? anchor_decide(pass, rec->id.lo != pass->parent) : 0;
	if (err)
		return err;
	pass->found = true;
	pass->id = rec->id;
	pass->parent = rec->parent;
	pass->unit = unit;
	return 0;
}

static const struct kvblk_scan_ops anchor_ops = {
	.ahead = anchor_ahead,
	.record = anchor_record,
};

static int segment_pass(struct pass *pass, const struct kvblk_segment *seg)
{
	struct kvblk_anchor_segment *at = pass->at;
	struct kvblk_scan_segment found = {
		.place = kvblk_place(&pass->member->flash, pass->segment, at->gen, 0),
		.flags = &seg->flags,
		.settled = at->settled,
	};
	bool sealed = READ_ONCE(seg->state) == KVBLK_SEG_SEALED;
	int err;

	pass->found = false;
	err = kvblk_scan_segment(&pass->scan, &found);
	/* damaged summaries are skipped, as other nodes cannot read them either */
	if (err && err != -EIO)
		return err;
	err = pass->found ? anchor_decide(pass, true) : 0;
	if (err)
		return err;
	at->settled = found.settled;
	at->whole = sealed;
	return 0;
}

/* Returns the progress in the segments of @member, anew for a new @session; or NULL: no memory. */
static struct kvblk_anchor_segment *segments_of(struct kvblk_member *member, u64 session)
{
	u32 nr = member->flash.nr_segs;
	struct kvblk_log *log = &member->log;
	unsigned long *due = log->anchors_due;

	if (log->anchors && log->anchors_session == session)
		return log->anchors;
	if (!log->anchors)
		log->anchors = kvcalloc(nr, sizeof(*log->anchors), GFP_KERNEL);
	else
		memset(log->anchors, 0, array_size(nr, sizeof(*log->anchors)));
	if (!due)
		due = kvcalloc(BITS_TO_LONGS(nr), sizeof(*due), GFP_KERNEL);
	if (due) {
		guard(spinlock)(&log->lock);
		bitmap_fill(due, nr);
		log->anchors_due = due;
	}
	if (!log->anchors || !due)
		return NULL;
	log->anchors_session = session;
	return log->anchors;
}

/* Leaves the segment out of later passes if all of it was read, or if it is FREE. */
static void segment_settle(const struct pass *pass, const struct kvblk_segment *seg)
{
	struct kvblk_log *log = &pass->member->log;

	guard(spinlock)(&log->lock);
	if (seg->state == KVBLK_SEG_FREE ? !seg->retiring :
					   pass->at->whole && pass->at->gen == seg->gen)
		__clear_bit(pass->segment, log->anchors_due);
}

/* Reads new summaries. Returns 0; -EAGAIN: the daemon must read first; or an errno. */
static int member_pass(struct kvblk_member *member, u64 session, u32 span)
{
	struct pass pass = { .scan.ops = &anchor_ops, .member = member, .span = span };
	struct kvblk_anchor_segment *segments = segments_of(member, session);
	int err;

	if (!segments)
		return -ENOMEM;
	pass.scan.reader = kvblk_flash_reader(&member->flash);
	err = kvblk_scan_begin(&pass.scan);
	for_each_set_bit(pass.segment, member->log.anchors_due, member->flash.nr_segs) {
		const struct kvblk_segment *seg = &member->log.segs[pass.segment];
		u64 gen = READ_ONCE(seg->gen);

		if (err)
			break;
		/* a restore may still read it, and then find blocks in it */
		if (READ_ONCE(seg->unread))
			continue;
		pass.at = &segments[pass.segment];
		if (pass.at->gen != gen)
			*pass.at = (struct kvblk_anchor_segment) { .gen = gen };
		/* a first pass visits all */
		cond_resched();
		if (!pass.at->whole && READ_ONCE(seg->state) != KVBLK_SEG_FREE)
			err = segment_pass(&pass, seg);
		segment_settle(&pass, seg);
	}
	kvblk_scan_end(&pass.scan);
	return err;
}

/* Returns the member in @slot, with a reference, if it is up; or NULL. */
static struct kvblk_member *member_in(struct kvblk_pool *pool, u32 slot)
{
	struct kvblk_member *member;

	guard(rcu)();
	member = rcu_dereference(pool->members[slot]);
	return member && READ_ONCE(member->flash.state) == KVBLK_MEMBER_UP &&
	       percpu_ref_tryget_live_rcu(&member->flash.ref) ? member : NULL;
}

void kvblk_anchors_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(to_delayed_work(work), struct kvblk_pool,
					       peers.anchors);
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);
	u64 session = READ_ONCE(pool->peers.session);
	u32 span = kvblk_peers_span(pool), slot;
	struct kvblk_member *member;
	bool failed = false;
	int err = 0;

	if (!entered || !span)
		return;
	for (slot = 0; slot < KVBLK_MEMBERS_MAX && err != -EAGAIN; slot++) {
		member = member_in(pool, slot);
		if (!member)
			continue;
		err = member_pass(member, session, span);
		percpu_ref_put(&member->flash.ref);
		failed |= err && err != -ENODEV;
	}
	if (!failed)
		kvblk_peers_caught_up(pool, session);
	queue_delayed_work(pool->foreign.wq, &pool->peers.anchors,
			   err == -EAGAIN ? HZ / 20 : HZ);
}
