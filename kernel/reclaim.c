// SPDX-License-Identifier: GPL-2.0
/*
 * Room: kills of single records, reclaim of whole segments.
 *
 * A victim's live records are dropped, but for those that the policy or a
 * lease keeps: they are copied into a segment of class HOT first. The order
 * is the whole point:
 *
 *   slots MOVING -> copies written -> next generation of the victim durable
 *   -> slots LIVE at the copies -> generation moves on in memory: what was
 *   dropped is dead at once -> last reader gone -> discard -> FREE
 *
 * so a copy can be found only when its original can't come back, and whoever
 * deletes a MOVING block waits for the end.
 *
 * Kills: a record that leaves the index while its segment lives (deleted,
 * thrown out of a full index, not acknowledged) has its header overwritten,
 * durably; a summary that may list it is marked as no longer the truth first
 * (KVBLK_SEGF_KILLS), so a restart looks at the headers.
 */
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "kvblk.h"
#include "trace.h"

/* ---- kills ---- */

/*
 * From now on a restart looks at the headers of @seg. Durable when it returns
 * 0; every kill of a record that a summary may list comes behind it.
 */
int kvblk_kill_mark(struct kvblk_member *member, struct kvblk_segment *seg,
		    u64 gen)
{
	int err;

	scoped_guard(spinlock, &member->lock) {
		/* durable, not only set: another kill may be writing the table */
		if (seg->kills_durable || seg->gen != gen)
			return 0;
		seg->flags |= KVBLK_SEGF_KILLS;
	}
	err = kvblk_table_write(member, seg - member->segs);
	if (err)
		return err;
	guard(spinlock)(&member->lock);
	if (seg->gen == gen)
		seg->kills_durable = true;
	return 0;
}

/* Kills under way at once. */
#define KILL_BATCH	32

struct kill_batch {
	struct kvblk_kill *kills[KILL_BATCH];
	atomic_t left;
	struct completion over;
};

static struct hlist_head *kill_bucket(struct kvblk_pool *pool, struct kvblk_id id)
{
	return &pool->kills[id.lo % KVBLK_KILL_BUCKETS];
}

/* A member on its way out is behind the others' epoch: nothing comes back. */
static bool kill_needless(const struct kvblk_kill *kill)
{
	return READ_ONCE(kill->member->state) > KVBLK_MEMBER_UP ||
	       (kill->failed && percpu_ref_is_dying(&kill->member->pool->users));
}

static void kill_written(struct kvblk_io *io)
{
	struct kill_batch *batch = container_of(io, struct kvblk_kill, io)->batch;

	if (atomic_dec_and_test(&batch->left))
		complete(&batch->over);
}

/* Puts the write of a kill under way, if there is one to be done. */
static void kill_start(struct kvblk_kill *kill, struct kill_batch *batch)
{
	struct kvblk_member *member = kill->member;
	u32 segment = kill->seg - member->segs;
	struct kvblk_place place = kvblk_place(member, segment, kill->gen,
					       kill->unit);

	kill->batch = batch;
	kvblk_io_start(&kill->io, member, kill_written);
	if (kill_needless(kill)) {
		/* until the others have the new epoch, nobody can be sure */
		if (atomic_read(&member->pool->unsure))
			kill->io.status = BLK_STS_OFFLINE;
	} else if (kvblk_kill_mark(member, kill->seg, kill->gen)) {
		kill->io.status = BLK_STS_IOERR;
	} else {
		kill->filler = (void *)__get_free_page(GFP_NOIO | __GFP_NOFAIL);
		kvblk_filler_encode(kill->filler, kill->units, &place,
				    &member->pool->secret);
		bvec_set_virt(&kill->bv, kill->filler, KVBLK_UNIT);
		kvblk_io_submit(&kill->io, REQ_OP_WRITE | REQ_META | REQ_FUA,
				kvblk_seg_pos(member, segment, kill->unit),
				&kill->bv, 1);
	}
	kvblk_io_end(&kill->io);
}

static void kill_unlist(struct kvblk_kill *kill)
{
	struct kvblk_pool *pool = kill->member->pool;

	spin_lock(&pool->kill_lock);
	list_del(&kill->link);
	hlist_del(&kill->node);
	spin_unlock(&pool->kill_lock);
	atomic_dec(&pool->nr_kills);
	wake_up_all(&pool->settle_wait);
	kvblk_segment_put(kill->member, kill->seg);
	kfree(kill);
	percpu_ref_put(&pool->users);
}

/* It is over: the record is dead, or can't come back, or is tried again later. */
static void kill_end(struct kvblk_kill *kill)
{
	struct kvblk_member *member = kill->member;
	struct kvblk_pool *pool = member->pool;
	blk_status_t status = kill->io.status;
	struct kvblk_io *waiter = kill->waiter;

	kill->waiter = NULL;
	free_page((unsigned long)kill->filler);
	if (kill->filler && !status) {
		kvblk_count(pool, KVBLK_C_KILLS, 1);
		trace_kvblk_kill(pool->name, member->slot, kill->seg - member->segs,
				 kill->gen, kill->unit);
	}
	kill->filler = NULL;
	if (status && !kill_needless(kill)) {
		kvblk_count(pool, KVBLK_C_WRITE_ERRORS, 1);
		kvblk_event(pool, member, KVBLK_EV_WRITE_ERROR,
			    member->seg_base + (kill->seg - member->segs));
		WRITE_ONCE(kill->failed, true);
		kill = NULL;
		wake_up_all(&pool->settle_wait);
	}
	if (waiter) {
		waiter->status = status;
		kvblk_io_end(waiter);
	}
	if (kill)
		kill_unlist(kill);
}

void kvblk_kill_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member,
						   kill_work);
	struct kvblk_pool *pool = member->pool;
	struct kvblk_kill *each;
	struct kill_batch batch;
	u32 nr, i;

	for (;;) {
		nr = 0;
		spin_lock(&pool->kill_lock);
		list_for_each_entry(each, &member->kills, link) {
			if (each->held || each->writer ||
			    (each->failed && !kill_needless(each)))
				continue;
			batch.kills[nr++] = each;
			if (nr == KILL_BATCH)
				break;
		}
		spin_unlock(&pool->kill_lock);
		if (!nr)
			break;
		atomic_set(&batch.left, nr);
		init_completion(&batch.over);
		for (i = 0; i < nr; i++)
			kill_start(batch.kills[i], &batch);
		wait_for_completion_state(&batch.over, TASK_IDLE);
		/* the last one may give up the last hold on the member */
		for (i = 0; i < nr; i++)
			kill_end(batch.kills[i]);
	}
}

void kvblk_kill_retry(struct kvblk_pool *pool)
{
	struct kvblk_member *member;
	struct kvblk_kill *kill;
	int i;

	guard(rcu)();
	guard(spinlock)(&pool->kill_lock);
	kvblk_for_each_member(pool, member, i) {
		list_for_each_entry(kill, &member->kills, link)
			if (!kill_needless(kill))
				WRITE_ONCE(kill->failed, false);
		if (!list_empty(&member->kills))
			queue_work(pool->wq, &member->kill_work);
	}
}

/*
 * Lists a kill that is held back until kill_go(). NULL: there is nothing to be
 * killed, or (@lost) no memory to remember it.
 */
static struct kvblk_kill *kill_list(struct kvblk_pool *pool, struct kvblk_id id,
				    const struct kvblk_slot *slot, gfp_t gfp,
				    bool *lost)
{
	struct kvblk_kill *kill = NULL;
	struct kvblk_member *member;
	struct kvblk_segment *seg;
	u64 gen;

	*lost = false;
	/* a dead generation or a removed member can't come back */
	seg = kvblk_segment_get(pool, slot, &member, &gen);
	if (!seg)
		return NULL;
	if (percpu_ref_tryget(&pool->users)) {
		kill = kzalloc(sizeof(*kill), gfp | __GFP_NOWARN);
		if (!kill)
			percpu_ref_put(&pool->users);
	}
	if (!kill) {
		*lost = true;
		kvblk_segment_put(member, seg);
		return NULL;
	}
	kill->id = id;
	kill->member = member;
	kill->seg = seg;
	kill->gen = gen;
	kill->unit = slot->off;
	kill->units = kvblk_member_units(member, slot->len);
	kill->held = true;
	atomic_inc(&pool->nr_kills);
	spin_lock(&pool->kill_lock);
	list_add_tail(&kill->link, &member->kills);
	hlist_add_head(&kill->node, kill_bucket(pool, id));
	spin_unlock(&pool->kill_lock);
	return kill;
}

/* The entry is gone: the kill may begin, unless a @writer is not done. */
static void kill_go(struct kvblk_pool *pool, struct kvblk_kill *kill, bool lost,
		    const struct kvblk_slot *old, bool writer,
		    struct kvblk_io *waiter)
{
	/* deletes of what is not found can't be sure any more */
	if (lost)
		atomic_inc(&pool->unsure);
	if (!kill) {
		if (!waiter)
			return;
		waiter->status = atomic_read(&pool->unsure) ? BLK_STS_OFFLINE :
							      BLK_STS_OK;
		kvblk_io_end(waiter);
		return;
	}
	/* what is being written gives its room back itself */
	if (old->state == KVBLK_SLOT_LIVE)
		atomic_sub(kill->units, &kill->seg->live_units);
	kill->waiter = waiter;
	spin_lock(&pool->kill_lock);
	kill->held = false;
	kill->writer = writer && !kill->settled;
	if (!kill->writer)
		queue_work(pool->wq, &kill->member->kill_work);
	spin_unlock(&pool->kill_lock);
}

/*
 * A kill is listed before its entry leaves the index, so that there is no
 * moment at which a delete could find neither. An insert does not know who has
 * to go for it: then the gate keeps deletes from looking.
 */
int kvblk_entry_insert(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *slot, struct kvblk_slot *old)
{
	struct kvblk_kill *kill;
	bool lost;
	int ret;

	ret = kvblk_index_insert(&pool->index, id, slot, old, false);
	if (ret != -ENOSPC)
		return ret;
	guard(spinlock)(&pool->kill_gate);
	ret = kvblk_index_insert(&pool->index, id, slot, old, true);
	if (ret != 1)
		return ret;
	kvblk_count(pool, KVBLK_C_EVICTED, 1);
	/* the index does not know its id */
	kill = kill_list(pool, (struct kvblk_id) {}, old, GFP_ATOMIC, &lost);
	kill_go(pool, kill, lost, old, false, NULL);
	return 0;
}

bool kvblk_entry_replace(struct kvblk_pool *pool, struct kvblk_id id,
			 const struct kvblk_slot *old,
			 const struct kvblk_slot *new)
{
	struct kvblk_kill *kill;
	bool lost;

	kill = kill_list(pool, id, old, GFP_NOIO, &lost);
	if (!kvblk_index_replace(&pool->index, id, old, new)) {
		if (kill)
			kill_unlist(kill);
		return false;
	}
	/* a put that is still writing must be over before its record is killed */
	kill_go(pool, kill, lost, old, new && old->state == KVBLK_SLOT_WRITING,
		NULL);
	return true;
}

int kvblk_entry_delete(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *old, struct kvblk_io *waiter)
{
	struct kvblk_kill *kill;
	bool lost;

	kill = kill_list(pool, id, old, GFP_KERNEL_ACCOUNT, &lost);
	if (lost)
		return -ENOMEM;
	if (!kvblk_index_replace(&pool->index, id, old, NULL)) {
		if (kill)
			kill_unlist(kill);
		return -EAGAIN;
	}
	kill_go(pool, kill, false, old, false, waiter);
	return 0;
}

void kvblk_kill_later(struct kvblk_pool *pool, struct kvblk_id id,
		      const struct kvblk_slot *slot)
{
	struct kvblk_slot stale = *slot;
	struct kvblk_kill *kill;
	bool lost;

	/* never an entry, so never counted */
	stale.state = KVBLK_SLOT_WRITING;
	kill = kill_list(pool, id, &stale, GFP_NOIO, &lost);
	kill_go(pool, kill, lost, &stale, false, NULL);
}

void kvblk_kill_settle(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *slot)
{
	struct kvblk_kill *kill;
	bool found = false;

	scoped_guard(spinlock, &pool->kill_lock) {
		hlist_for_each_entry(kill, kill_bucket(pool, id), node) {
			if (!(kill->held || kill->writer) ||
			    kill->unit != slot->off ||
			    (u16)kill->gen != slot->gen ||
			    kill->member->seg_base +
			    (kill->seg - kill->member->segs) != slot->seg)
				continue;
			/* held: whoever took the slot over is about to go on */
			kill->settled = true;
			kill->writer = false;
			found = true;
			queue_work(pool->wq, &kill->member->kill_work);
		}
	}
	if (!found)
		kvblk_kill_later(pool, id, slot);
}

/* The kills of @id; zero: those whose id is not known. */
static int kill_look(struct kvblk_pool *pool, struct kvblk_id id)
{
	struct kvblk_kill *kill;
	int ret = 0;

	hlist_for_each_entry(kill, kill_bucket(pool, id), node) {
		if (kill->id.lo != id.lo || kill->id.hi != id.hi)
			continue;
		if (READ_ONCE(kill->failed) || READ_ONCE(kill->member->suspect))
			return -EIO;
		ret = 1;
	}
	return ret;
}

int kvblk_kill_barrier(struct kvblk_pool *pool, struct kvblk_id id)
{
	int ret;

	/* whoever made room in the index has also listed it */
	spin_lock(&pool->kill_gate);
	spin_unlock(&pool->kill_gate);
	guard(spinlock)(&pool->kill_lock);
	ret = kill_look(pool, id);
	return ret < 0 ? ret : kill_look(pool, (struct kvblk_id) {}) ?: ret;
}

/* ---- reclaim ---- */

/* A live record of the victim. */
struct victim_rec {
	struct kvblk_slot slot;		/* as found; LIVE, or MOVING by us */
	struct kvblk_slot copy;
	struct kvblk_id id;
	bool moving;
	bool copied;
};

/* Records copied at once, and bytes. */
#define COPIES		16
#define COPY_BYTES	SZ_8M

/* A record on its way: read, checked, written. */
struct copy {
	struct kvblk_io io;
	struct victim *victim;
	struct victim_rec *vrec;
	struct kvblk_mem mem;
	struct kvblk_rec rec;
	struct kvblk_room room;
	void *buf;			/* header */
	u32 header;			/* its bytes */
	int err;
};

/* What one reclaim of a segment works with. */
struct victim {
	struct kvblk_member *member;
	struct kvblk_segment *seg;
	struct victim_rec *recs;
	struct kvblk_policy_rec *sift;
	u32 nr;
	u32 nr_copied;
	struct copy *copies;		/* COPIES of them */
	atomic_t flying;
	struct completion landed;
};

/* Reads the victim's summary and finds which of its records are still live. */
static int victim_load(struct victim *v)
{
	struct kvblk_member *member = v->member;
	struct kvblk_pool *pool = member->pool;
	struct kvblk_segment *seg = v->seg;
	u32 segment = seg - member->segs;
	u32 pages = kvblk_summary_pages(seg->nr_records);
	struct kvblk_place place = kvblk_place(member, segment, seg->gen, 0);
	u32 align = member->record_align >> KVBLK_UNIT_SHIFT;
	const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;	/* it is tried again */
	u32 now = kvblk_now(pool), page, i;
	struct kvblk_d_summary *sums, *buf;
	struct kvblk_sum sum;
	bool bad = false;
	int err;

	if (!seg->nr_records)
		return 0;
	sums = __vmalloc(array_size(pages, sizeof(*sums)), gfp);
	v->recs = kvcalloc(seg->nr_records, sizeof(*v->recs), gfp);
	v->sift = kvcalloc(seg->nr_records, sizeof(*v->sift), gfp);
	err = -ENOMEM;
	if (!sums || !v->recs || !v->sift)
		goto out;
	err = kvblk_io_sync(member, REQ_OP_READ | REQ_META,
			    kvblk_seg_pos(member, segment,
					  member->segment_units - pages),
			    sums, pages * sizeof(*sums));
	if (err)
		goto out;
	for (page = 0; page < pages; page++) {
		buf = &sums[pages - 1 - page];
		if (!kvblk_summary_decode(buf, page, &place, &pool->secret, &sum)) {
			bad = true;
			continue;
		}
		/* a checkpoint's: the seal failed */
		bad |= !page && !sum.sealed;
		for (i = 0; i < KVBLK_SUMMARY_ENTRIES; i++) {
			struct victim_rec *rec = &v->recs[v->nr];
			struct kvblk_policy_rec *sift = &v->sift[v->nr];
			struct kvblk_rec entry;
			u32 unit;

			if (!kvblk_entry_decode(&buf->entries[i],
						member->segment_units, &entry, &unit) ||
			    v->nr == seg->nr_records)
				continue;
			rec->id = entry.id;
			if (!kvblk_index_find(&pool->index, rec->id, &rec->slot) ||
			    rec->slot.state != KVBLK_SLOT_LIVE ||
			    rec->slot.seg != member->seg_base + segment ||
			    rec->slot.gen != (u16)seg->gen ||
			    rec->slot.off != unit)
				continue;
			if (rec->slot.expiry && rec->slot.expiry <= now)
				continue;
			sift->id = rec->id;
			sift->parent = entry.parent;
			sift->bytes = kvblk_record_units(rec->slot.len, align) <<
				KVBLK_UNIT_SHIFT;
			sift->heat = rec->slot.heat;
			sift->priority = rec->slot.prio;
			sift->leased = rec->slot.leased;
			/* in its last minute: a copy would be for nothing */
			sift->expires = rec->slot.expiry &&
					rec->slot.expiry < now + 60;
			v->nr++;
		}
	}
	err = bad ? -EBADMSG : 0;
out:
	vfree(sums);
	return err;
}

/* Room for a copy; opens segments of class HOT as needed. */
static int copy_room(struct kvblk_member *member, u32 units,
		     struct kvblk_room *room)
{
	int err;

	while ((err = kvblk_room_reserve(member, KVBLK_CLASS_HOT, units, room))) {
		err = kvblk_segment_open(member, KVBLK_CLASS_HOT);
		if (err)
			return err;
	}
	return 0;
}

static void copy_landed(struct kvblk_io *io)
{
	struct victim *v = container_of(io, struct copy, io)->victim;

	if (atomic_dec_and_test(&v->flying))
		complete(&v->landed);
}

static void copy_fly(struct copy *copy, blk_opf_t opf, u32 segment, u32 unit)
{
	struct kvblk_member *member = copy->victim->member;

	atomic_inc(&copy->victim->flying);
	kvblk_io_start(&copy->io, member, copy_landed);
	kvblk_io_submit(&copy->io, opf | REQ_IDLE,
			kvblk_seg_pos(member, segment, unit), copy->mem.bv,
			copy->mem.nr);
	kvblk_io_end(&copy->io);
}

/* @flying was 1 when the first one took off. */
static void copies_wait(struct victim *v)
{
	copy_landed(&v->copies[0].io);
	wait_for_completion_state(&v->landed, TASK_IDLE);
	reinit_completion(&v->landed);
	atomic_set(&v->flying, 1);
}

static void copy_read(struct copy *copy)
{
	struct victim *v = copy->victim;
	const struct kvblk_slot *slot = &copy->vrec->slot;

	copy->header = kvblk_header_units(slot->len) << KVBLK_UNIT_SHIFT;
	copy->err = -ENOMEM;
	copy->buf = (void *)__get_free_pages(GFP_KERNEL, get_order(copy->header));
	if (!copy->buf || kvblk_mem_alloc(&copy->mem, slot->len))
		return;
	bvec_set_virt(&copy->mem.bv[0], copy->buf, copy->header);
	copy->err = 0;
	copy_fly(copy, REQ_OP_READ, v->seg - v->member->segs, slot->off);
}

static void copy_damaged(struct copy *copy)
{
	struct victim *v = copy->victim;
	struct kvblk_member *member = v->member;

	kvblk_count(member->pool, KVBLK_C_CHECKSUM_FAILURES, 1);
	kvblk_event(member->pool, member, KVBLK_EV_CHECKSUM,
		    member->seg_base + (v->seg - member->segs));
	copy->err = -EBADMSG;
}

/* Was read: checks it, and writes it to its new place. */
static void copy_write(struct copy *copy)
{
	struct victim *v = copy->victim;
	struct victim_rec *vrec = copy->vrec;
	struct kvblk_member *member = v->member;
	struct kvblk_pool *pool = member->pool;
	u32 segment = v->seg - member->segs;
	struct kvblk_place place = kvblk_place(member, segment, v->seg->gen,
					       vrec->slot.off);

	if (copy->err)
		return;
	if (copy->io.status) {
		kvblk_count(pool, KVBLK_C_READ_ERRORS, 1);
		kvblk_event(pool, member, KVBLK_EV_READ_ERROR,
			    member->seg_base + segment);
		copy->err = -EIO;
		return;
	}
	/* damage must not spread */
	if (kvblk_record_decode(copy->buf, copy->header, &place, &pool->secret,
				&copy->rec) != KVBLK_DEC_RECORD ||
	    copy->rec.length != vrec->slot.len) {
		copy_damaged(copy);
		return;
	}
	if (copy->rec.integrity != KVBLK_INTEGRITY_NONE &&
	    !kvblk_mem_check(&copy->mem, copy->rec.crcs)) {
		if (copy->rec.integrity != KVBLK_INTEGRITY_PRODUCER) {
			copy_damaged(copy);
			return;
		}
		/* what somebody put wrong is no fault of the flash */
		kvblk_count(pool, KVBLK_C_PRODUCER_MISMATCHES, 1);
		copy->err = -EBADMSG;
		return;
	}
	if (copy->rec.integrity == KVBLK_INTEGRITY_NONE &&
	    kvblk_must_check(pool, v->seg)) {
		/* no get would believe it, as things are */
		copy->err = -ENODATA;
		return;
	}
	copy->err = copy_room(member, kvblk_member_units(member, vrec->slot.len),
			      &copy->room);
	if (copy->err)
		return;
	/* it keeps its seq: a copy is no newer than its original */
	place = kvblk_place(member, copy->room.segment, copy->room.gen,
			    copy->room.unit);
	kvblk_record_encode(copy->buf, &copy->rec, &place, &pool->secret);
	copy_fly(copy, REQ_OP_WRITE, place.segment, place.unit);
}

static void copy_end(struct copy *copy)
{
	struct victim *v = copy->victim;
	struct victim_rec *vrec = copy->vrec;
	struct kvblk_pool *pool = v->member->pool;

	if (copy->room.seg) {
		vrec->copy = vrec->slot;
		vrec->copy.seg = v->member->seg_base + copy->room.segment;
		vrec->copy.gen = (u16)copy->room.gen;
		vrec->copy.off = copy->room.unit;
		vrec->copy.state = KVBLK_SLOT_LIVE;
	}
	if (copy->room.seg && copy->io.status) {
		copy->err = -EIO;
		kvblk_count(pool, KVBLK_C_WRITE_ERRORS, 1);
		kvblk_kill_later(pool, vrec->id, &vrec->copy);
		kvblk_room_release(&copy->room, NULL);
	} else if (copy->room.seg) {
		vrec->copied = true;
		v->nr_copied++;
		kvblk_count(pool, KVBLK_C_REINSERTS, 1);
		kvblk_count(pool, KVBLK_C_REINSERT_BYTES,
			    (u64)copy->room.units << KVBLK_UNIT_SHIFT);
		kvblk_room_release(&copy->room, &copy->rec);
	}
	kvblk_mem_free(&copy->mem);
	free_pages((unsigned long)copy->buf, get_order(copy->header));
}

/*
 * Copies what is kept; the slots are MOVING. -EAGAIN: something leased could
 * not be copied now. What can't be read, or is damaged, is dropped.
 */
static int victim_copy(struct victim *v)
{
	u32 i, n, nr, bytes;
	int err = 0;

	for (i = 0; i < v->nr && !err;) {
		u64 most = min_t(u64, COPY_BYTES, kvblk_put_window(v->member));

		bytes = 0;
		for (nr = 0; nr < COPIES && i < v->nr; i++) {
			struct copy *copy = &v->copies[nr];

			if (!v->recs[i].moving || !v->sift[i].keep)
				continue;
			if (nr && bytes + v->recs[i].slot.len > most)
				break;
			bytes += v->recs[i].slot.len;
			memset(copy, 0, sizeof(*copy));
			copy->victim = v;
			copy->vrec = &v->recs[i];
			copy_read(copy);
			nr++;
		}
		if (!nr)
			break;
		copies_wait(v);
		for (n = 0; n < nr; n++)
			copy_write(&v->copies[n]);
		copies_wait(v);
		for (n = 0; n < nr; n++) {
			struct copy *copy = &v->copies[n];

			copy_end(copy);
			if (copy->err && copy->err != -EBADMSG &&
			    v->sift[copy->vrec - v->recs].leased)
				err = -EAGAIN;
		}
		cond_resched();
	}
	return err;
}

/*
 * Takes back what victim_copy() did for a victim that stays: slots are LIVE
 * again, copies are killed.
 */
static void victim_revert(struct victim *v)
{
	struct kvblk_pool *pool = v->member->pool;
	u32 i;

	for (i = 0; i < v->nr; i++) {
		struct victim_rec *rec = &v->recs[i];
		struct kvblk_slot live = rec->slot;

		if (rec->copied)
			kvblk_kill_later(pool, rec->id, &rec->copy);
		live.state = KVBLK_SLOT_LIVE;
		if (rec->moving)
			kvblk_index_replace(&pool->index, rec->id, &rec->slot, &live);
	}
	wake_up_all(&pool->settle_wait);
}

static struct kvblk_policy_seg policy_view(const struct kvblk_member *member,
					   const struct kvblk_segment *seg)
{
	return (struct kvblk_policy_seg) {
		.stamp = seg->stamp,
		.bytes = (u64)member->segment_units << KVBLK_UNIT_SHIFT,
		.live_bytes = (u64)max(atomic_read(&seg->live_units), 0) <<
			KVBLK_UNIT_SHIFT,
		.class = seg->class,
	};
}

/*
 * Retires @seg: what is worth it is copied, the rest is dropped. 1: it is so
 * hot that the policy wants it left alone, unless @force. -EAGAIN: a leased
 * record can't be copied now, or the device would not. It stays then.
 */
static int segment_reclaim(struct kvblk_member *member, struct kvblk_segment *seg,
			   bool force)
{
	struct kvblk_pool *pool = member->pool;
	struct kvblk_policy_seg pseg = policy_view(member, seg);
	struct victim v = { .member = member, .seg = seg };
	u32 segment = seg - member->segs, i;
	bool blind;
	int err;

	/* an unreadable summary: all is dropped, unless something is promised */
	init_completion(&v.landed);
	atomic_set(&v.flying, 1);
	v.copies = kvcalloc(COPIES, sizeof(*v.copies), GFP_KERNEL | __GFP_NOWARN);
	err = v.copies ? victim_load(&v) : -ENOMEM;
	if (err == -ENOMEM || (err && READ_ONCE(pool->leased_bytes))) {
		err = -EAGAIN;
		goto out;
	}
	blind = err;
	if (v.nr && kvblk_policy_sift(&pool->policy, &pseg, v.sift, v.nr,
				      force) == -EAGAIN) {
		seg->stamp = pseg.stamp;
		err = 1;
		goto out;
	}
	for (i = 0; i < v.nr; i++) {
		struct victim_rec *rec = &v.recs[i];
		struct kvblk_slot moving = rec->slot;

		v.sift[i].keep |= v.sift[i].leased;
		/* MOVING, the doomed too: nobody leases or deletes them now */
		moving.state = KVBLK_SLOT_MOVING;
		rec->moving = !v.sift[i].leased &&
			      kvblk_index_claim(&pool->index, rec->id, &rec->slot,
						&moving);
		if (!rec->moving) {
			/* leased, since we looked too, or gone */
			v.sift[i].leased = true;
			v.sift[i].keep = true;
			rec->moving = kvblk_index_replace(&pool->index, rec->id,
							  &rec->slot, &moving);
		}
		if (rec->moving)
			rec->slot.state = KVBLK_SLOT_MOVING;
	}
	err = victim_copy(&v);
	if (err)
		goto revert;

	/* the copies, and then the end of the original, are there for good */
	err = v.nr_copied ? kvblk_io_flush(member) : 0;
	if (err)
		goto revert;
	/* what could not be seen may have been leased meanwhile */
	if (blind && READ_ONCE(pool->leased_bytes))
		goto revert;
	spin_lock(&member->lock);
	list_del_init(&seg->link);
	member->nr_sealed--;
	seg->retiring_gen = seg->gen + 1;
	seg->state = KVBLK_SEG_FREE;
	spin_unlock(&member->lock);
	err = kvblk_table_write(member, segment);
	if (err) {
		spin_lock(&member->lock);
		seg->state = KVBLK_SEG_SEALED;
		seg->retiring_gen = 0;
		list_add(&seg->link, &member->sealed);
		member->nr_sealed++;
		spin_unlock(&member->lock);
		kvblk_count(pool, KVBLK_C_WRITE_ERRORS, 1);
		goto revert;
	}
	for (i = 0; i < v.nr; i++)
		if (v.recs[i].copied &&
		    !kvblk_index_replace(&pool->index, v.recs[i].id,
					 &v.recs[i].slot, &v.recs[i].copy))
			WARN_ON_ONCE(READ_ONCE(member->state) == KVBLK_MEMBER_UP);

	if (!(seg->gen & 0x3fff))
		seg->sweep_mark = READ_ONCE(pool->sweep_pass) + 2;
	spin_lock(&member->lock);
	WRITE_ONCE(seg->retired, true);
	WRITE_ONCE(seg->gen, seg->gen + 1);
	/* after the entries that moved: pairs with find_again() of the index */
	smp_store_release(&pool->seg_gen[member->seg_base + segment], (u16)seg->gen);
	/* pairs with kvblk_segment_get(): who comes later sees the generation */
	smp_mb();
	seg->retiring_gen = 0;
	/* readers of its former life go on: kvblk_segment_open() resets the rest */
	list_add_tail(&seg->link, &member->retiring);
	member->nr_retiring++;
	spin_unlock(&member->lock);
	wake_up_all(&pool->settle_wait);

	kvblk_count(pool, KVBLK_C_SEGS_RECLAIMED, 1);
	kvblk_count(pool, KVBLK_C_DROPPED, v.nr - v.nr_copied);
	trace_kvblk_reclaim(pool->name, member->slot, segment, seg->gen, v.nr,
			    v.nr_copied, v.nr - v.nr_copied);
	err = 0;
	goto out;

revert:
	victim_revert(&v);
	err = -EAGAIN;
out:
	kvfree(v.recs);
	kvfree(v.sift);
	kvfree(v.copies);
	return err;
}

/* Retired segments that nobody reads any more become free. */
static void retired_free(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->pool;
	struct kvblk_segment *seg, *next;
	bool freed = false;
	LIST_HEAD(over);

	spin_lock(&member->lock);
	list_for_each_entry_safe(seg, next, &member->retiring, link)
		if (!atomic_read_acquire(&seg->refs) &&
		    READ_ONCE(pool->sweep_pass) >= seg->sweep_mark)
			list_move_tail(&seg->link, &over);
	spin_unlock(&member->lock);
	list_for_each_entry_safe(seg, next, &over, link) {
		if (READ_ONCE(pool->tun.discard) &&
		    bdev_max_discard_sectors(member->bdev))
			blkdev_issue_discard(member->bdev,
					     kvblk_seg_pos(member, seg - member->segs, 0) >>
					     SECTOR_SHIFT,
					     (sector_t)member->segment_units <<
					     (KVBLK_UNIT_SHIFT - SECTOR_SHIFT), GFP_NOIO);
		spin_lock(&member->lock);
		WRITE_ONCE(seg->retired, false);
		list_move_tail(&seg->link, &member->free);
		member->nr_retiring--;
		member->nr_free++;
		spin_unlock(&member->lock);
		freed = true;
	}
	if (freed)
		kvblk_log_kick(member);
}

/* The next victim, or NULL. */
static struct kvblk_segment *victim_pick(struct kvblk_member *member,
					 u64 not_before)
{
	struct kvblk_segment *seg, *victim = NULL, **map;
	struct kvblk_policy_seg *segs;
	u32 nr = 0, room;
	int pick;

	room = READ_ONCE(member->nr_sealed);
	segs = kvmalloc_array(room + 1, sizeof(*segs), GFP_KERNEL | __GFP_NOWARN);
	map = kvmalloc_array(room + 1, sizeof(struct kvblk_segment *),
			     GFP_KERNEL | __GFP_NOWARN);
	if (!segs || !map)
		goto out;
	spin_lock(&member->lock);
	list_for_each_entry(seg, &member->sealed, link) {
		if (nr == room)
			break;
		if (seg->opened <= not_before)
			continue;
		map[nr] = seg;
		segs[nr++] = policy_view(member, seg);
	}
	spin_unlock(&member->lock);
	pick = kvblk_policy_pick(&member->pool->policy, segs, nr);
	if (pick >= 0)
		victim = map[pick];
out:
	kvfree(segs);
	kvfree(map);
	return victim;
}

static u32 watermark(const struct kvblk_member *member, u32 permille, u32 least)
{
	return max_t(u32, least, (u64)member->nr_segs * permille / 1000);
}

void kvblk_reclaim_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member,
						   reclaim_work);
	struct kvblk_pool *pool = member->pool;
	u32 low = watermark(member, READ_ONCE(pool->tun.low_permille), 2);
	u32 high = watermark(member, READ_ONCE(pool->tun.high_permille), 3);
	struct kvblk_segment *seg;
	u64 not_before = 0;
	u32 tries = 0;
	int ret;

	retired_free(member);
	if (kvblk_member_avail(member) > low) {
		member->low_told = false;
		return;
	}
	if (!member->low_told) {
		member->low_told = true;
		kvblk_event(pool, member, KVBLK_EV_LOW_SPACE,
			    kvblk_member_avail(member));
	}
	while (READ_ONCE(member->state) == KVBLK_MEMBER_UP &&
	       !READ_ONCE(member->suspect) &&
	       kvblk_member_avail(member) + READ_ONCE(member->nr_retiring) < high) {
		seg = victim_pick(member, not_before);
		if (!seg)
			break;
		ret = segment_reclaim(member, seg, tries >=
				      kvblk_policy_tries(READ_ONCE(member->nr_sealed)));
		tries = ret > 0 ? tries + 1 : 0;
		/* a victim that can't go now: try younger ones */
		if (ret < 0)
			not_before = max(not_before, seg->opened);
		retired_free(member);
		cond_resched();
	}
	wake_up_all(&pool->space_wait);
}
