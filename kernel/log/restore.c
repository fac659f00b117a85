// SPDX-License-Identifier: GPL-2.0
/*
 * Warm restart of a member from what scan.c finds. The rules:
 * - A segment that was open is sealed.
 * - Of two records of a key the newer one, by seq, stays; the older is invalidated.
 * - A failed read is retried. Then only the unreadable part is lost, and only for now: if both
 *   slots of the table, or summary and headers, fail, the segment is "unread"; a member out of
 *   reach is "unrestored". Both stay unchanged on media for another try.
 * - A delete cannot know the records of unread segments. The first delete refused for this reason
 *   has unread segments given up, durably, so that later deletes succeed.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>

#include "log/log.h"

#define RESTORE_TRIES	600		/* waits for other members, tenths of a second */
#define RESTORE_WAITS	10		/* waits for memory, seconds */
#define RESTORE_UNREAD	16u		/* unreadable segments before the restore fails */
#define RESTORE_AHEAD	16u		/* entries between prefetch and use of index lines */
#define NOT_BEFORE	1790000000ll	/* Unix time in 2026: earlier than any clock that is set */

struct restore {
	struct kvblk_scan scan;
	struct kvblk_member *member;
	struct kvblk_segment *seg;	/* segment that is scanned */
	struct kvblk_open *open;	/* summary that @seg lacks, or NULL */
	u64 blocks;
	u32 tries;
	u32 waits;
};

static struct restore *restore_of(struct kvblk_scan *scan)
{
	return container_of(scan, struct restore, scan);
}

int kvblk_table_time(struct kvblk_member *member, u32 *time)
{
	struct kvblk_d_table *slots = vmalloc(2 * sizeof(*slots)), *table;
	const struct kvblk_reader reader = kvblk_flash_reader(&member->flash);
	int unread;

	if (!slots)
		return -ENOMEM;
	table = kvblk_scan_page(&reader, 0, slots, &unread);
	if (table)
		*time = le32_to_cpu(table->time);
	vfree(slots);
	return table ? 0 : -ENODATA;
}

static u32 table_end(const struct kvblk_member *member, u32 first)
{
	return min(first + KVBLK_TABLE_ENTRIES, member->flash.nr_segs);
}

static bool restore_page_known(struct kvblk_scan *scan, u32 page)
{
	return !restore_of(scan)->member->log.segs[page * KVBLK_TABLE_ENTRIES].unknown;
}

static void restore_page(struct kvblk_scan *scan, u32 page, const struct kvblk_d_table *table,
			 bool alone, bool differs)
{
	struct kvblk_member *member = restore_of(scan)->member;
	const struct kvblk_d_segment *d = table->segments;
	u32 nr = page * KVBLK_TABLE_ENTRIES, end = table_end(member, nr);

	/* once a page is known, other tasks may write it */
	mutex_lock(&member->log.table_lock);
	member->log.table_seq[page] = le64_to_cpu(table->seq);
	for (; nr < end; nr++, d++) {
		struct kvblk_segment *seg = &member->log.segs[nr];

		seg->gen = le64_to_cpu(d->generation);
		seg->state = d->state;
		seg->class = d->class < KVBLK_NR_CLASSES ? d->class : 0;
		seg->flags = le16_to_cpu(d->flags);
		seg->kills_durable = seg->flags & KVBLK_SEGF_KILLS;
		seg->opened = d->state == KVBLK_SEG_FREE ? 0 : le64_to_cpu(d->opened);
		seg->unknown = false;
		/* earlier versions wrote one slot at a time, so the unreadable one may be newer */
		if (alone && seg->state == KVBLK_SEG_FREE)
			seg->gen++;
		else if (alone)
			seg->flags |= KVBLK_SEGF_KILLS;
		kvblk_segment_gen_set(member->flash.pool, member->flash.seg_base + nr,
				      (u16)seg->gen);
	}
	mutex_unlock(&member->log.table_lock);
	/* repair the other slot; if this fails the next change of the page does */
	if (differs)
		kvblk_table_write(member, page * KVBLK_TABLE_ENTRIES);
}

static struct kvblk_slot slot_of(const struct restore *rs, const struct kvblk_rec *rec, u32 unit)
{
	return (struct kvblk_slot) {
		.seg = kvblk_segment_number(rs->member, rs->seg),
		.off = unit,
		.len = rec->length,
		.gen = (u16)rs->seg->gen,
		.tenant = rec->tenant,
		.state = KVBLK_SLOT_LIVE,
		.prio = rec->priority,
		.expiry = rec->expiry,
		.caller_tag = rec->caller_tag,
	};
}

/* A record with a later seq than the pool has issued is not valid. */
static bool seq_given(struct kvblk_pool *pool, u64 seq)
{
	return seq <= (u64)atomic64_read(&pool->seq);
}

/* Returns the seq of the record of @slot; 0: stale, U64_MAX: unreadable. */
static u64 slot_seq(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	bool encrypted = kvblk_tenant_encrypted(pool, slot->tenant);
	u32 bytes = kvblk_header_bytes(encrypted, slot->len);
	struct kvblk_member *member;
	struct kvblk_segment *seg;
	struct kvblk_place place;
	struct kvblk_rec rec;
	u64 gen, seq = U64_MAX;
	void *header;

	/* a block in DRAM was put in the current activation, hence later */
	if (kvblk_slot_in_dram(slot))
		return atomic64_read(&pool->seq);
	seg = kvblk_segment_get(pool, slot, &member, &gen);
	if (!seg)
		return 0;
	if (kvblk_flash_may_read(&member->flash)) {
		/* up to five pages, which need not be contiguous */
		header = kvmalloc(bytes, GFP_KERNEL | __GFP_NOFAIL);
		place = kvblk_slot_place(&member->flash, slot, gen);
		if (!kvblk_io_read(&member->flash, kvblk_slot_pos(&member->flash, slot), header,
				   bytes))
			seq = kvblk_record_identify(&place, encrypted, slot->len, header,
						    &pool->secret, &rec) &&
			      seq_given(pool, rec.seq) ? rec.seq : 0;
		kvfree(header);
	}
	kvblk_segment_put(member, seg);
	return seq;
}

static struct kvblk_id entry_id(const struct kvblk_d_entry *entry)
{
	return (struct kvblk_id) {
		.hi = le64_to_cpu(entry->id_hi),
		.lo = le64_to_cpu(entry->id_lo),
	};
}

static void restore_ahead(struct kvblk_scan *scan, const struct kvblk_d_summary *sum, u32 i)
{
	const struct kvblk_index *idx = &restore_of(scan)->member->flash.pool->index;

	if (i + RESTORE_AHEAD < KVBLK_SUMMARY_ENTRIES)
		kvblk_index_prefetch(idx, entry_id(&sum->entries[i + RESTORE_AHEAD]));
	if (i + RESTORE_AHEAD / 2 < KVBLK_SUMMARY_ENTRIES)
		kvblk_index_prefetch_room(idx, entry_id(&sum->entries[i + RESTORE_AHEAD / 2]));
}

/*
 * Returns 0, -EEXIST with the entry in @old, or -ENOSPC. Evicts, which invalidates blocks on flash,
 * only if the former number of slots is known. Else deletes, which cannot find the block, fail.
 */
static int restore_insert(struct kvblk_pool *pool, struct kvblk_id id,
			  struct kvblk_slot *slot, struct kvblk_slot *old)
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

static int restore_record(struct kvblk_scan *scan, const struct kvblk_rec *rec, u32 unit)
{
	struct restore *rs = restore_of(scan);
	struct kvblk_member *member = rs->member;
	struct kvblk_segment *seg = rs->seg;
	struct kvblk_pool *pool = member->flash.pool;
	struct kvblk_slot slot = slot_of(rs, rec, unit), old;
	u32 units = kvblk_flash_units(&member->flash, rec->tenant, rec->length);
	bool newer;
	u64 seq;
	int ret;

	/* of another kind than its tenant, a record would be read with the wrong header */
	if (!test_bit(rec->tenant, pool->tenants.live) ||
	    kvblk_tenant_encrypted(pool, rec->tenant) != kvblk_rec_encrypted(rec) ||
	    !seq_given(pool, rec->seq) ||
	    kvblk_expired(rec->expiry, kvblk_now(pool)))
		return 0;
	if (rec->expiry)
		WRITE_ONCE(pool->expires, true);
	if (rec->caller_tag && kvblk_index_keep_tags(&pool->index))
		return -ENOMEM;
	/* with a smaller index than before each insert may queue an invalidation */
	while (kvblk_kills_full(member) && !kvblk_flash_leaves(&member->flash) &&
	       (member->log.missing || rs->tries++ < RESTORE_TRIES))
		wait_event_timeout(pool->settle_wait, !kvblk_kills_full(member), HZ / 10);
	if (kvblk_missing_stale(member->log.missing, rec->id, seg - member->log.segs, unit)) {
		kvblk_kill_later(pool, rec->id, &slot);
		return 0;
	}
	while ((ret = restore_insert(pool, rec->id, &slot, &old)) == -EEXIST) {
		if (kvblk_same_record(&old, &slot)) {
			/* an earlier try inserted this record */
			atomic_add(units, &seg->live_units);
			return 0;
		}
		if (old.state == KVBLK_SLOT_MOVING && !kvblk_flash_leaves(&member->flash) &&
		    rs->tries++ < RESTORE_TRIES) {
			/* compare once reclaim has copied, dropped or kept the other record */
			wait_event_timeout(pool->settle_wait,
					   !kvblk_index_find(&pool->index, rec->id, &old) ||
					   old.state != KVBLK_SLOT_MOVING, HZ / 10);
			continue;
		}
		/* two records of the key: a WRITING entry is the newest */
		seq = old.state == KVBLK_SLOT_LIVE ? slot_seq(pool, &old) : U64_MAX;
		newer = seq < rec->seq;
		/* if neither is known to be newer, drop both */
		if (!newer && (seq != U64_MAX || old.state != KVBLK_SLOT_LIVE))
			break;
		if (kvblk_entry_replace(pool, rec->id, &old, newer ? &slot : NULL)) {
			ret = newer ? 0 : -EEXIST;
			break;
		}
	}
	if (ret == -ENOSPC && !pool->index_evicts)
		return 0;
	if (ret) {
		kvblk_kill_later(pool, rec->id, &slot);
		return 0;
	}
	atomic_add(units, &seg->live_units);
	rs->blocks++;
	/* pairs with delete_start(): a delete may have noted the id and found no entry */
	smp_mb();
	if (kvblk_missing_stale(member->log.missing, rec->id, seg - member->log.segs, unit))
		kvblk_entry_replace(pool, rec->id, &slot, NULL);
	return 0;
}

/* @open: the summary if only in memory, or NULL. */
static void segment_sealed(struct kvblk_member *member, struct kvblk_segment *seg,
			   struct kvblk_open *open)
{
	guard(spinlock)(&member->log.lock);
	seg->open = open;
	seg->state = KVBLK_SEG_SEALED;
	kvblk_segment_rank(member, seg);
	kvblk_anchors_look(member, seg);
	member->log.nr_sealed++;
}

static int restore_no_summary(struct kvblk_scan *scan, const struct kvblk_scan_segment *found)
{
	struct restore *rs = restore_of(scan);

	rs->open = kvblk_open_alloc(rs->member);
	if (!rs->open)
		return -ENOMEM;
	/* headers prove that payloads were written, not that they arrived: gets must verify */
	if (!found->sealed)
		kvblk_segment_doubt(rs->member, rs->seg);
	return 0;
}

static void restore_entry(struct kvblk_scan *scan, u32 index, const struct kvblk_d_entry *entry)
{
	*kvblk_open_entry(restore_of(scan)->open, index) = *entry;
}

static const struct kvblk_scan_ops restore_ops = {
	.page_known = restore_page_known,
	.page = restore_page,
	.no_summary = restore_no_summary,
	.ahead = restore_ahead,
	.record = restore_record,
	.entry = restore_entry,
};

static int restore_open(struct restore *rs, const struct kvblk_scan_segment *found)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_segment *seg = rs->seg;
	int err;

	if (!found->nr) {
		kvblk_open_free(rs->open);
		if (found->missed)
			return -EIO;
		/* the table is written when the segment is opened */
		guard(spinlock)(&member->log.lock);
		kvblk_segment_retire(member, seg);
		return 0;
	}
	seg->nr_records = found->nr;
	if (found->sealed && !found->missed) {
		segment_sealed(member, seg, rs->open);
		return 0;
	}
	err = kvblk_table_write(member, seg - member->log.segs);
	if (err) {
		kvblk_open_free(rs->open);
		return err;
	}
	seg->open = rs->open;
	scoped_guard(spinlock, &member->log.lock)
		member->log.nr_open++;
	/* the next restart walks again, and may find a record that deletes do not know now */
	if (kvblk_segment_seal(member, seg) && found->missed)
		atomic_inc(&member->flash.pool->unsure);
	return 0;
}

static int restore_segment(struct restore *rs, struct kvblk_segment *seg)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_scan_segment found = {
		.place = kvblk_place(&member->flash, seg - member->log.segs, seg->gen, 0),
		.flags = &seg->flags,
		.sealed = seg->state == KVBLK_SEG_SEALED,
	};
	int err;

	seg->stamp = kvblk_policy_open(&member->flash.pool->policy, seg->class,
				       kvblk_flash_segment_bytes(&member->flash));
	atomic_set(&seg->live_units, 0);
	rs->seg = seg;
	rs->open = NULL;
	err = kvblk_scan_segment(&rs->scan, &found);
	if (found.whole)
		seg->nr_records = found.nr;
	if (err)
		kvblk_open_free(rs->open);
	else if (found.whole)
		segment_sealed(member, seg, NULL);
	else
		err = restore_open(rs, &found);
	return err;
}

static int by_opened(const void *a, const void *b)
{
	const struct kvblk_segment *const *l = a, *const *r = b;

	return (*l)->opened < (*r)->opened ? -1 : (*l)->opened > (*r)->opened;
}

/* Sorts by the order of opening. Replaces numbers too large to grow: only their order counts. */
static void restore_order(struct kvblk_member *member, struct kvblk_segment **order, u32 nr)
{
	u32 i;

	sort(order, nr, sizeof(*order), by_opened, NULL);
	if (nr && order[nr - 1]->opened > KVBLK_COUNT_FOUND_MAX)
		for (i = 0; i < nr; i++)
			order[i]->opened = i + 1;
	if (nr)
		member->log.opened = max(member->log.opened, order[nr - 1]->opened);
}

static bool restore_patience(struct restore *rs)
{
	if (rs->waits++ == RESTORE_WAITS || kvblk_flash_leaves(&rs->member->flash))
		return false;
	wait_event_timeout(rs->member->flash.pool->settle_wait,
			   kvblk_flash_leaves(&rs->member->flash), HZ);
	return true;
}

static int restore_unread(struct restore *rs, struct kvblk_segment **order)
{
	struct kvblk_member *member = rs->member;
	u32 i, nr = 0, unread = 0;
	int err;

	for (i = 0; i < member->flash.nr_segs; i++)
		if (member->log.segs[i].unread && !member->log.segs[i].unknown &&
		    member->log.segs[i].state != KVBLK_SEG_FREE)
			order[nr++] = &member->log.segs[i];
	/* oldest first, as the policy's clock and reclaim expect */
	restore_order(member, order, nr);
	for (i = 0; i < nr; i++) {
		if (kvblk_flash_leaves(&member->flash))
			return -ENODEV;
		do {
			err = restore_segment(rs, order[i]);
		} while (err == -ENOMEM && restore_patience(rs));
		if (err && (err != -EIO || ++unread > RESTORE_UNREAD))
			return err;
		WRITE_ONCE(order[i]->unread, err);
	}
	return 0;
}

static int restore_all(struct restore *rs)
{
	struct kvblk_member *member = rs->member;
	struct kvblk_segment **order __free(kvfree) =
		kvmalloc_array(member->flash.nr_segs, sizeof(*order), GFP_KERNEL);
	int err;

	if (!order)
		return -ENOMEM;
	rs->scan.ops = &restore_ops;
	rs->scan.reader = kvblk_flash_reader(&member->flash);
	err = kvblk_scan_begin(&rs->scan) ?: kvblk_scan_table(&rs->scan) ?:
	      restore_unread(rs, order);
	kvblk_scan_end(&rs->scan);
	WRITE_ONCE(member->log.restored, member->log.restored + rs->blocks);
	kvblk_count_at(member->flash.stats, KVBLK_C_RESTORED, rs->blocks);
	return err;
}

/* Restarts the segments of an unreadable page in generations never reached: 2^40 and above. */
static void page_forfeit(struct kvblk_member *member, u32 first)
{
	u32 end = table_end(member, first), i;
	int err;

	scoped_guard(mutex, &member->log.table_lock) {
		/* newer than an unreadable slot that also rejects writes, even without a clock */
		member->log.table_seq[first / KVBLK_TABLE_ENTRIES] =
			max(ktime_get_real_seconds(), NOT_BEFORE) << 15;
		for (i = first; i < end; i++) {
			struct kvblk_segment *seg = &member->log.segs[i];

			seg->gen = BIT_ULL(40) + (get_random_u64() >> 18);
			seg->state = KVBLK_SEG_FREE;
			seg->unknown = false;
			kvblk_segment_gen_set(member->flash.pool, member->flash.seg_base + i,
					      (u16)seg->gen);
		}
	}
	err = kvblk_table_write(member, first);
	/* unlike retired ones, these segments are free at once */
	WRITE_ONCE(member->log.reuse_from, kvblk_grace_end(member->flash.pool));
	guard(mutex)(&member->log.table_lock);
	for (i = first; i < end; i++)
		member->log.segs[i].unknown = err;
}

static void segment_forfeit(struct kvblk_member *member, struct kvblk_segment *seg)
{
	u8 state = seg->state;
	int err;

	scoped_guard(spinlock, &member->log.lock) {
		seg->retiring = true;
		seg->state = KVBLK_SEG_FREE;
	}
	err = kvblk_table_write(member, seg - member->log.segs);
	guard(spinlock)(&member->log.lock);
	if (err) {
		seg->retiring = false;
		seg->state = state;
		return;
	}
	kvblk_segment_retire(member, seg);
	WRITE_ONCE(seg->unread, false);
}

static void unread_forfeit(struct kvblk_member *member)
{
	struct kvblk_segment *seg = member->log.segs, *end = seg + member->flash.nr_segs;

	for (; seg < end; seg++) {
		if (seg->unknown && (seg - member->log.segs) % KVBLK_TABLE_ENTRIES == 0)
			page_forfeit(member, seg - member->log.segs);
		if (seg->unread && !seg->unknown && seg->state != KVBLK_SEG_FREE)
			segment_forfeit(member, seg);
	}
}

static void restore_use(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;
	u32 i, unread = 0;

	for (i = 0; i < member->flash.nr_segs; i++) {
		struct kvblk_segment *seg = &member->log.segs[i];

		if (!seg->unread)
			continue;
		if (seg->unknown || seg->state != KVBLK_SEG_FREE) {
			unread++;
			continue;
		}
		WRITE_ONCE(seg->unread, false);
		guard(spinlock)(&member->log.lock);
		list_add_tail(&seg->link, &member->log.free);
		member->log.nr_free++;
	}
	WRITE_ONCE(member->log.nr_unread, unread);
	/* pairs with delete_begun(): index entries before nr_unread and pool->unsure */
	smp_wmb();
	guard(mutex)(&pool->admin);
	/* deletes cannot know unread blocks; death and removal have counts of their own */
	if (!kvblk_member_stays(member))
		return;
	atomic_add(!!unread - member->unread_unsure, &pool->unsure);
	member->unread_unsure = unread;
}

static void restore_rest(struct kvblk_member *member)
{
	struct restore rs = { .member = member };
	bool forfeit = READ_ONCE(member->log.forfeit);
	u32 before = READ_ONCE(member->log.nr_unread);

	restore_all(&rs);
	if (forfeit)
		unread_forfeit(member);
	restore_use(member);
	dev_info(&member->flash.pool->dev, "member %s: %u of %u unread segments %s, %llu blocks restored\n",
		 member->flash.name, before - READ_ONCE(member->log.nr_unread), before,
		 forfeit ? "given up, so that deletes succeed" : "read", rs.blocks);
	kvblk_log_kick(member);
}

/* Waits until all outdated records are invalidated: then the superblock may state "current". */
static void restore_settle(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;

	do {
		/* the member or its pool leaves: the member stays outdated */
		if (!kvblk_member_is_up(member) || percpu_ref_is_dying(&pool->users))
			return;
	} while (!wait_event_timeout(pool->settle_wait, !READ_ONCE(member->log.kills.nr), HZ) ||
		 !kvblk_member_is_up(member));
	WRITE_ONCE(member->log.missing, NULL);
	kvblk_missing_end(pool, &member->flash.uuid);
}

/* Saves the index size once all members are restored, unless blocks did not fit. */
static void restore_index(struct kvblk_pool *pool)
{
	u64 lacks = atomic64_read(&pool->index_lacks), slots = kvblk_index_slots(&pool->index);

	if (!lacks) {
		/* the number of blocks in unread segments is unknown */
		if (!atomic_read(&pool->unsure))
			WRITE_ONCE(pool->index_slots, min(slots, KVBLK_SLOTS_MAX));
		return;
	}
	dev_err(&pool->dev, "%llu blocks do not fit into %llu index slots; gets of them miss, and deletes fail; destroy the pool and import it with %llu slots\n",
		lacks, slots, slots + lacks + (slots + lacks) / 8);
}

static void restore_failed(struct kvblk_member *member, int err)
{
	struct kvblk_pool *pool = member->flash.pool;

	if (kvblk_flash_leaves(&member->flash))
		return;
	dev_err(&pool->dev, "member %s: cannot restore its blocks (error %d); gets of them miss; to retry, import the pool again or run: kvblk member add\n",
		member->flash.name, err);
	/* before the state is visible, because puts and deletes then bypass the member */
	if (!member->log.missing)
		kvblk_missing_dies(member);
	scoped_guard(mutex, &pool->admin) {
		/* a second try, a death and a removal are counted already */
		if (kvblk_member_stays(member) && !member->unread_unsure) {
			atomic_inc(&pool->unsure);
			member->unread_unsure = true;
		}
		cmpxchg(&member->flash.state, KVBLK_MEMBER_RESTORING, KVBLK_MEMBER_UNRESTORED);
	}
	kvblk_event(pool, &member->flash, KVBLK_EVENT_RESTORE_FAILED, -err);
}

void kvblk_member_restore(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member, log.restore);
	struct kvblk_pool *pool = member->flash.pool;
	struct restore rs = { .member = member };
	int err = 0;
	u32 i;

	if (kvblk_member_is_up(member)) {
		restore_rest(member);
		goto out;
	}
	for (i = 0; i < member->flash.nr_segs; i++) {
		member->log.segs[i].unknown = !member->log.formatted;
		member->log.segs[i].unread = true;
	}
	if (!member->log.formatted)
		err = restore_all(&rs);
	if (err) {
		restore_failed(member, err);
	} else {
		restore_use(member);
		if (cmpxchg(&member->flash.state, KVBLK_MEMBER_RESTORING,
			    KVBLK_MEMBER_UP) == KVBLK_MEMBER_RESTORING) {
			if (member->log.nr_unread) {
				dev_err(&pool->dev, "member %s: cannot read %u segments; gets of their blocks miss; to retry, run: kvblk member add\n",
					member->flash.name, member->log.nr_unread);
				kvblk_event(pool, &member->flash, KVBLK_EVENT_RESTORE_FAILED, EIO);
			}
			dev_info(&pool->dev, "member %s: up, %llu blocks\n",
				 member->flash.name, rs.blocks);
			kvblk_event(pool, &member->flash, KVBLK_EVENT_MEMBER_UP, rs.blocks);
			/* otherwise puts kick the log, because a restart must not evict blocks */
			if (member->log.nr_free > member->flash.nr_segs / 2)
				kvblk_log_kick(member);
			queue_delayed_work(pool->wq, &member->log.checkpoint, HZ);
		}
	}
	/* all records were compared with later puts; deletes and replacing puts were refused */
	if (!err && member->log.retry)
		kvblk_missing_end(pool, &member->flash.uuid);
	if (member->log.missing) {
		restore_settle(member);
	} else {
		if (atomic_dec_and_test(&pool->restoring))
			restore_index(pool);
		wake_up_all(&pool->restore_wait);
	}
out:
	percpu_ref_put(&pool->users);
}
