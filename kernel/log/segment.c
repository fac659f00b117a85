// SPDX-License-Identifier: GPL-2.0
/*
 * Segments of the log: reservations, the segment table, sealing and checkpoints.
 *
 *   FREE -> OPEN (table durable) -> takes records -> closed -> last writer done
 *   -> SEALED (flush, summary with FUA) -> retired (table durable with the next
 *   generation) -> last reader done -> discarded -> FREE
 *
 * A record belongs to (segment, generation). The table's generation is durable before the first
 * record is acknowledged and before a byte of the former generation is overwritten. seg->writers
 * counts reservations, plus one while the segment is open; at zero the segment is sealed.
 */
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "log/log.h"
#include "trace.h"

#define RESERVED_SEGMENTS	1	/* free ones that puts leave to reclaim, for copies */
#define SUMMARY_BATCH		16u
#define OPENS_SHIFT		8	/* fraction of log->opens */
#define CHECKPOINT_UNIT_SHIFT	12	/* data until a checkpoint is due at once: 16 MiB */

/* Writes both slots; one is enough. Out of reach, a slot may be torn: the next try begins there. */
static int table_write_slots(struct kvblk_member *member, u32 page)
{
	struct kvblk_d_table *table = member->log.table_buf;
	u64 seq = member->log.table_seq[page];
	bool written = false;
	u32 slot;
	int err;

	lockdep_assert_held(&member->log.table_lock);
	for (slot = 0; slot < 2; slot++) {
		table->seq = cpu_to_le64(++seq);
		kvblk_table_seal(table);
		/* a restart would reject this page */
		if (!kvblk_table_within(table, member->flash.incarnation, page, KVBLK_COUNT_MAX))
			return -ERANGE;
		err = kvblk_io_sync(&member->flash, REQ_OP_WRITE | REQ_META | REQ_FUA,
				    KVBLK_TABLE_OFFSET +
				    (((u64)page * 2 + (seq & 1)) << KVBLK_UNIT_SHIFT),
				    table, sizeof(*table));
		if (err && err != -EIO)
			break;
		/* after two failures either slot may have arrived: make the next two newer */
		if (!err || (slot && !written))
			member->log.table_seq[page] = seq;
		written |= !err;
	}
	return written ? 0 : err;
}

/* Notes that a page of the table was written. Under log->table_lock. */
static void change_note(struct kvblk_d_change_page *changes, u32 page)
{
	u64 nr = le64_to_cpu(changes->nr);

	changes->pages[nr % KVBLK_CHANGES] = cpu_to_le32(page);
	changes->nr = cpu_to_le64(nr + 1);
}

int kvblk_table_write(struct kvblk_member *member, u32 segment)
{
	struct kvblk_d_table *table = member->log.table_buf;
	u32 page = segment / KVBLK_TABLE_ENTRIES, i;
	int err;

	guard(mutex)(&member->log.table_lock);
	/* segments of an unread page do not change, and a write would lose its contents */
	if (member->log.segs[page * KVBLK_TABLE_ENTRIES].unknown)
		return 0;
	memset(table, 0, sizeof(*table));
	table->magic = cpu_to_le32(KVBLK_TABLE_MAGIC);
	table->incarnation = cpu_to_le64(member->flash.incarnation);
	table->page = cpu_to_le32(page);
	table->time = cpu_to_le32(kvblk_now(member->flash.pool));
	scoped_guard(spinlock, &member->log.lock) {
		for (i = 0; i < KVBLK_TABLE_ENTRIES; i++) {
			u32 n = page * KVBLK_TABLE_ENTRIES + i;
			struct kvblk_segment *seg = &member->log.segs[n];
			struct kvblk_d_segment *d = &table->segments[i];

			if (n >= member->flash.nr_segs)
				break;
			d->generation = cpu_to_le64(seg->gen + seg->retiring);
			d->state = seg->state;
			d->class = seg->class;
			d->flags = cpu_to_le16(seg->flags);
			d->nr_records = cpu_to_le32(seg->nr_records);
			d->opened = cpu_to_le64(seg->opened);
		}
	}
	err = table_write_slots(member, page);
	if (!err && !page)
		member->log.time_saved = jiffies;
	/* even a failed write may have arrived */
	if (member->log.change_page)
		change_note(member->log.change_page, page);
	return err;
}

/* Writes the change page once a second. A page that is not written costs followers time only. */
static void change_beat(struct kvblk_member *member)
{
	struct kvblk_d_change_page *changes = member->log.change_page;
	struct kvblk_d_change_page *buf = member->log.change_page_buf;
	int err;

	if (!changes || time_before(jiffies, member->log.beaten + HZ) ||
	    !kvblk_flash_may_write(&member->flash))
		return;
	member->log.beaten = jiffies;
	scoped_guard(mutex, &member->log.table_lock)
		memcpy(buf, changes, sizeof(*buf));
	kvblk_change_page_seal(buf);
	/* FUA, or else a crash of the target brings a former beat back */
	err = kvblk_io_sync(&member->flash, REQ_OP_WRITE | REQ_META | REQ_FUA,
			    kvblk_change_page_pos(&member->flash), buf, sizeof(*buf));
	/* repeat a beat that may not have arrived: followers count beats */
	if (!err)
		le64_add_cpu(&changes->beat, 1);
}

int kvblk_change_page_init(struct kvblk_member *member)
{
	struct kvblk_d_change_page *changes;

	if (!kvblk_pool_in_pod(member->flash.pool))
		return 0;
	member->log.change_page = (void *)get_zeroed_page(GFP_KERNEL);
	member->log.change_page_buf = (void *)get_zeroed_page(GFP_KERNEL);
	changes = member->log.change_page;
	if (!changes || !member->log.change_page_buf)
		return -ENOMEM;
	changes->magic = cpu_to_le32(KVBLK_CHANGES_MAGIC);
	changes->incarnation = cpu_to_le64(member->flash.incarnation);
	changes->beat = cpu_to_le64(member->flash.pool->epoch << 32);
	changes->nr = changes->beat;
	member->log.beaten = jiffies - HZ;
	return 0;
}

/* ---- summaries of open segments ---- */

DEFINE_FREE(kvblk_open_free, struct kvblk_open *, kvblk_open_free(_T))

struct kvblk_open *kvblk_open_alloc(struct kvblk_member *member)
{
	/* a segment has no more records than units */
	u32 nr = DIV_ROUND_UP(member->flash.segment_units, KVBLK_SUMMARY_ENTRIES + 1);
	struct kvblk_open *open __free(kvblk_open_free) =
		kvzalloc(struct_size(open, pages, nr), GFP_KERNEL);

	if (!open)
		return NULL;
	open->durable = kvcalloc(BITS_TO_LONGS(member->flash.segment_units), sizeof(long),
				 GFP_KERNEL);
	if (!open->durable)
		return NULL;
	spin_lock_init(&open->lock);
	open->nr_pages = nr;
	return no_free_ptr(open);
}

void kvblk_open_free(struct kvblk_open *open)
{
	u32 i;

	if (!open)
		return;
	for (i = 0; i < open->nr_pages; i++)
		free_page((unsigned long)open->pages[i]);
	kvfree(open->durable);
	kvfree(open);
}

static noinline struct kvblk_d_summary *open_page_new(struct kvblk_open *open, u32 page)
{
	struct kvblk_d_summary *sum = (void *)get_zeroed_page(GFP_NOIO | __GFP_NOFAIL);

	if (!cmpxchg(&open->pages[page], NULL, sum))
		return sum;
	free_page((unsigned long)sum);
	return open->pages[page];
}

struct kvblk_d_entry *kvblk_open_entry(struct kvblk_open *open, u32 index)
{
	u32 page = index / KVBLK_SUMMARY_ENTRIES, at = index - page * KVBLK_SUMMARY_ENTRIES;
	struct kvblk_d_summary *sum;

	if (WARN_ON_ONCE(page >= open->nr_pages))
		return NULL;
	sum = READ_ONCE(open->pages[page]) ?: open_page_new(open, page);
	return &sum->entries[at];
}

/* Writes pages @from to @to - 1, at most SUMMARY_BATCH. @buf: the last page first, as on media. */
static int summary_write(struct kvblk_member *member, struct kvblk_segment *seg,
			 u32 from, u32 to, const struct kvblk_sum *sum,
			 struct kvblk_d_summary *buf, blk_opf_t opf)
{
	struct kvblk_place place = kvblk_place(&member->flash, seg - member->log.segs, seg->gen, 0);
	u32 page;

	for (page = from; page < to; page++) {
		struct kvblk_d_summary *copy = &buf[to - 1 - page];

		/* write a copy, because puts fill in entries meanwhile */
		kvblk_open_entry(seg->open, page * KVBLK_SUMMARY_ENTRIES);
		scoped_guard(spinlock, &seg->open->lock)
			memcpy(copy, seg->open->pages[page], sizeof(*copy));
		kvblk_summary_encode(copy, page, sum, &place, &member->flash.pool->secret);
	}
	return kvblk_io_sync(&member->flash, REQ_OP_WRITE | REQ_META | opf,
			     kvblk_seg_pos(&member->flash, place.segment,
					   member->flash.segment_units - to),
			     buf, (to - from) * sizeof(*buf));
}

static bool segment_lossy(const struct kvblk_member *member, const struct kvblk_segment *seg)
{
	int cached = READ_ONCE(seg->cached);

	return cached && kvblk_writes_failed(&member->flash, cached);
}

/* Makes all pages but page 0 durable, and all that the member has cached. */
static int summary_flush(struct kvblk_member *member, struct kvblk_segment *seg,
			 const struct kvblk_sum *sum, struct kvblk_d_summary *buf)
{
	u32 tries = 3, from, to;
	int err = -EIO, errors;

	/* retry, because the loss of cached pages may be reported to another write */
	while (err && tries--) {
		errors = atomic_read(&member->flash.write_errors);
		err = 0;
		for (to = kvblk_summary_pages(seg->nr_records); to > 1 && !err; to = from) {
			from = to > SUMMARY_BATCH ? to - SUMMARY_BATCH : 1;
			err = summary_write(member, seg, from, to, sum, buf, 0);
		}
		if (!err)
			err = kvblk_io_flush(&member->flash);
		if (err)
			return err;
		if (bdev_write_cache(member->flash.bdev) &&
		    kvblk_writes_failed(&member->flash, errors))
			err = -EIO;
	}
	return err;
}

static bool rank_before(struct rb_node *a, const struct rb_node *b)
{
	const struct kvblk_segment *l = rb_entry(a, struct kvblk_segment, node);
	const struct kvblk_segment *r = rb_entry(b, struct kvblk_segment, node);

	return kvblk_policy_rank(l->stamp, l->empty) < kvblk_policy_rank(r->stamp, r->empty);
}

void kvblk_segment_rank(struct kvblk_member *member, struct kvblk_segment *seg)
{
	lockdep_assert_held(&member->log.lock);
	seg->empty = atomic_read(&seg->live_units) <= 0;
	seg->ranked = true;
	rb_add_cached(&seg->node, &member->log.sealed, rank_before);
}

void kvblk_segment_shrink(struct kvblk_member *member, struct kvblk_segment *seg, u32 units)
{
	/* reclaim takes the segment from the list before it reads live_units */
	if (atomic_sub_return(units, &seg->live_units) <= 0 && !xchg(&seg->in_emptied, true))
		llist_add(&seg->emptied, &member->log.emptied);
}

void kvblk_segment_doubt(struct kvblk_member *member, struct kvblk_segment *seg)
{
	guard(spinlock)(&member->log.lock);
	seg->flags |= KVBLK_SEGF_UNPROVEN;
}

/* Page 0, which states "sealed", is written after the flush of payloads and other pages. */
int kvblk_segment_seal(struct kvblk_member *member, struct kvblk_segment *seg)
{
	struct kvblk_sum sum = { .nr_records = seg->nr_records, .sealed = true };
	u32 segment = seg - member->log.segs;
	struct kvblk_open *open = seg->open;
	struct kvblk_d_summary *buf;
	u64 gen = seg->gen;
	bool doubtful;
	int err;

	buf = kvmalloc_array(SUMMARY_BATCH, sizeof(*buf), GFP_NOIO | __GFP_NOFAIL);
	err = summary_flush(member, seg, &sum, buf);
	doubtful = err || segment_lossy(member, seg);
	if (doubtful)
		kvblk_segment_doubt(member, seg);
	/* a restart trusts a sealed segment unless the table marks it unproven */
	if (!err && doubtful)
		err = kvblk_table_write(member, segment);
	if (!err)
		err = summary_write(member, seg, 0, 1, &sum, buf, REQ_FUA);
	kvfree(buf);
	/* a restart walks the headers; until then reclaim reads @open */
	if (err)
		kvblk_flash_error(&member->flash, KVBLK_ERROR_WRITE, segment);

	kvblk_count_at(member->flash.stats, KVBLK_C_SEGMENTS_SEALED, 1);
	spin_lock(&member->log.lock);
	if (!err)
		seg->open = NULL;
	seg->state = KVBLK_SEG_SEALED;
	kvblk_segment_rank(member, seg);
	member->log.nr_open--;
	member->log.nr_sealed++;
	spin_unlock(&member->log.lock);
	trace_kvblk_segment(member->flash.pool->name, member->flash.slot, segment, gen,
			    KVBLK_SEG_SEALED);
	if (!err)
		kvblk_open_free(open);
	return err;
}

/*
 * Returns the boottime ns at which followers' reads of a segment end that is retired now. The table
 * shows its next generation already.
 */
u64 kvblk_grace_end(const struct kvblk_pool *pool)
{
	u32 ms = READ_ONCE(pool->grace);

	if (kvblk_pool_in_pod(pool))
		ms = max(ms, READ_ONCE(pool->tun.reuse_grace_ms));
	return ms ? ktime_get_boottime_ns() + (u64)ms * NSEC_PER_MSEC : 0;
}

void kvblk_segment_retire(struct kvblk_member *member, struct kvblk_segment *seg)
{
	u32 number = kvblk_segment_number(member, seg);

	lockdep_assert_held(&member->log.lock);
	WRITE_ONCE(seg->retired, true);
	WRITE_ONCE(seg->gen, seg->gen + 1);
	kvblk_segment_gen_set(member->flash.pool, number, (u16)seg->gen);
	/* pairs with kvblk_segment_get(): a later reference sees the generation */
	smp_mb();
	/* kvblk_segment_open() resets the rest, because readers still use it */
	seg->retiring = false;
	seg->state = KVBLK_SEG_FREE;
	seg->reuse_from = kvblk_grace_end(member->flash.pool);
	list_add_tail(&seg->link, &member->log.retiring);
	member->log.nr_retiring++;
}

/* ---- opening ---- */

static struct kvblk_segment **log_empty(struct kvblk_member *member, u8 class)
{
	u32 log = class == KVBLK_CLASS_HOT ? KVBLK_LOG_HOT : 0;
	u32 end = class == KVBLK_CLASS_HOT ? KVBLK_LOGS : member->log.nr_logs;

	for (; log < end; log++)
		if (!READ_ONCE(member->log.current_seg[log]))
			return &member->log.current_seg[log];
	return NULL;
}

int kvblk_segment_open(struct kvblk_member *member, u8 class)
{
	struct kvblk_open *open __free(kvblk_open_free) = kvblk_open_alloc(member);
	struct kvblk_pool *pool = member->flash.pool;
	struct kvblk_segment *seg, **place;
	u32 segment;
	int err;

	if (!open)
		return -ENOMEM;
	spin_lock(&member->log.lock);
	if ((class == KVBLK_CLASS_NEW && member->log.nr_free <= RESERVED_SEGMENTS) ||
	    !kvblk_grace_over(READ_ONCE(member->log.reuse_from)))
		seg = NULL;
	else
		seg = list_first_entry_or_null(&member->log.free, struct kvblk_segment, link);
	if (seg) {
		list_del_init(&seg->link);
		member->log.nr_free--;
		member->log.nr_open++;
		seg->state = KVBLK_SEG_OPEN;
		seg->class = class;
		seg->flags = 0;
		seg->kills_durable = false;
		seg->unsaved = false;
		seg->bare = false;
		seg->cached = 0;
		seg->nr_records = 0;
		seg->opened = ++member->log.opened;
		kvblk_anchors_look(member, seg);
	}
	spin_unlock(&member->log.lock);
	if (!seg)
		return -ENOSPC;

	segment = seg - member->log.segs;
	seg->stamp = kvblk_policy_open(&pool->policy, class,
				       kvblk_flash_segment_bytes(&member->flash));
	atomic_set(&seg->live_units, 0);
	atomic64_set(&seg->cursor, 0);
	err = kvblk_table_write(member, segment);
	if (err) {
		spin_lock(&member->log.lock);
		seg->state = KVBLK_SEG_FREE;
		list_add_tail(&seg->link, &member->log.free);
		member->log.nr_free++;
		member->log.nr_open--;
		spin_unlock(&member->log.lock);
		kvblk_flash_error(&member->flash, KVBLK_ERROR_WRITE, segment);
		return err;
	}

	seg->open = no_free_ptr(open);
	kvblk_count_at(member->flash.stats, KVBLK_C_SEGMENTS_OPENED, 1);
	trace_kvblk_segment(pool->name, member->flash.slot, segment, seg->gen, KVBLK_SEG_OPEN);
	spin_lock(&member->log.lock);
	atomic_set_release(&seg->writers, 1);
	place = log_empty(member, class);
	if (place) {
		WRITE_ONCE(*place, seg);
	} else {
		list_add_tail(&seg->link, &member->log.ready);
		member->log.nr_ready++;
	}
	spin_unlock(&member->log.lock);
	kvblk_space_appears(pool);
	return 0;
}

void kvblk_log_kick(struct kvblk_member *member)
{
	if (kvblk_member_is_up(member))
		queue_work(member->flash.pool->wq, &member->log.work);
}

static void writer_drop(struct kvblk_member *member, struct kvblk_segment *seg)
{
	if (!atomic_dec_and_test(&seg->writers))
		return;
	scoped_guard(spinlock, &member->log.lock)
		list_add_tail(&seg->link, &member->log.closing);
	queue_work(member->flash.pool->wq, &member->log.work);
}

static noinline void segment_rotate(struct kvblk_member *member, struct kvblk_segment *old, u32 log)
{
	struct kvblk_segment *next;
	bool closed = false;

	spin_lock(&member->log.lock);
	if (old && member->log.current_seg[log] == old) {
		old->nr_records = kvblk_cursor_nr(atomic64_xchg(&old->cursor, KVBLK_CURSOR_CLOSED));
		WRITE_ONCE(member->log.current_seg[log], NULL);
		closed = true;
	}
	if (!member->log.current_seg[log] && log != KVBLK_LOG_HOT && kvblk_member_is_up(member)) {
		next = list_first_entry_or_null(&member->log.ready, struct kvblk_segment, link);
		if (next) {
			list_del_init(&next->link);
			member->log.nr_ready--;
			WRITE_ONCE(member->log.current_seg[log], next);
		}
	}
	spin_unlock(&member->log.lock);
	if (closed)
		writer_drop(member, old);
}

void kvblk_log_close(struct kvblk_member *member)
{
	u32 log;

	for (log = 0; log < KVBLK_LOGS; log++)
		segment_rotate(member, READ_ONCE(member->log.current_seg[log]), log);
}

static __always_inline bool segment_reserve(struct kvblk_member *member, struct kvblk_segment *seg,
					    u32 units, struct kvblk_reservation *resv)
{
	u32 index;

	/* closed and drained since it was read */
	if (!atomic_inc_not_zero(&seg->writers))
		return false;
	if (!kvblk_cursor_take(&seg->cursor, units, member->flash.segment_units,
			       &resv->unit, &index)) {
		writer_drop(member, seg);
		return false;
	}
	resv->seg = seg;
	resv->gen = seg->gen;
	resv->segment = seg - member->log.segs;
	resv->units = units;
	resv->member = member;
	resv->seq = atomic64_inc_return(&member->flash.pool->seq);
	resv->entry = kvblk_open_entry(seg->open, index);
	atomic_add(units, &seg->live_units);
	if (((resv->unit + units) ^ resv->unit) >> CHECKPOINT_UNIT_SHIFT)
		mod_delayed_work(member->flash.pool->wq, &member->log.checkpoint, 0);
	return true;
}

/* Reserves units in another segment than @seg, which has none left for @log, or is NULL. */
static noinline int member_reserve_next(struct kvblk_member *member, struct kvblk_segment *seg,
					u8 class, u32 log, u32 units,
					struct kvblk_reservation *resv)
{
	u32 tries;

	for (tries = 0; tries < 3; tries++) {
		segment_rotate(member, seg, log);
		kvblk_log_kick(member);
		seg = READ_ONCE(member->log.current_seg[log]);
		/* no segment is ready */
		if (!seg)
			break;
		if (segment_reserve(member, seg, units, resv))
			return 0;
	}
	/* use space left in the other open segments before the put has to wait */
	for (log = 0; class == KVBLK_CLASS_NEW && log < member->log.nr_logs; log++) {
		seg = READ_ONCE(member->log.current_seg[log]);
		if (seg && segment_reserve(member, seg, units, resv))
			return 0;
	}
	return -EAGAIN;
}

/* Returns as kvblk_member_reserve(), but takes no reference on @member. */
static __always_inline int member_reserve(struct kvblk_member *member, u8 class, u32 units,
					  struct kvblk_reservation *resv)
{
	u32 log = class == KVBLK_CLASS_HOT ? KVBLK_LOG_HOT :
		raw_smp_processor_id() % member->log.nr_logs;
	struct kvblk_segment *seg = READ_ONCE(member->log.current_seg[log]);

	if (likely(seg && segment_reserve(member, seg, units, resv)))
		return 0;
	return member_reserve_next(member, seg, class, log, units, resv);
}

int kvblk_member_reserve(struct kvblk_member *member, u8 class, u32 units,
			 struct kvblk_reservation *resv)
{
	int err = member_reserve(member, class, units, resv);

	/* a reservation keeps the member alive, but a member without one may be ending */
	if (!err)
		percpu_ref_get(&member->flash.ref);
	return err;
}

int kvblk_pool_reserve(struct kvblk_pool *pool, u16 tenant, u32 length,
		       bool (*suits)(void *what, struct kvblk_member *member), void *what,
		       struct kvblk_reservation *resv)
{
	u32 first = this_cpu_inc_return(pool->stats->next_member), i, units;
	u32 nr = READ_ONCE(pool->nr_members);
	struct kvblk_member *member;
	int err = -ENOSPC;

	for (i = 0; i < nr; i++) {
		rcu_read_lock();
		member = kvblk_member_nth(pool, first + i);
		if (member && (!kvblk_member_is_up(member) ||
			       !kvblk_flash_may_write(&member->flash) ||
			       !percpu_ref_tryget_live_rcu(&member->flash.ref)))
			member = NULL;
		rcu_read_unlock();
		if (!member)
			continue;
		units = kvblk_flash_units(&member->flash, tenant, length);
		if (units + 1 <= member->flash.segment_units && (!suits || suits(what, member)))
			err = kvblk_kills_full(member) ? -EAGAIN :
			      member_reserve(member, KVBLK_CLASS_NEW, units, resv);
		/* the reservation keeps the reference */
		if (!err)
			return 0;
		kvblk_member_put(member);
	}
	/* a member may have taken the place of another, which was removed, during the walk */
	return err == -ENOSPC && nr != READ_ONCE(pool->nr_members) ? -EAGAIN : err;
}

bool kvblk_reservation_durable(struct kvblk_reservation *resv, u8 integrity, bool lasts)
{
	const struct kvblk_flash *flash = &resv->member->flash;
	struct kvblk_segment *seg = resv->seg;
	bool durable = lasts || kvblk_durable(flash, integrity);
	bool safe = durable && kvblk_fua(flash);

	if (integrity == KVBLK_INTEGRITY_NONE && !READ_ONCE(seg->bare))
		WRITE_ONCE(seg->bare, true);
	if (!safe && !READ_ONCE(seg->cached))
		cmpxchg(&seg->cached, 0, atomic_read(&flash->write_errors));
	if (integrity != KVBLK_INTEGRITY_NONE && safe)
		set_bit(resv->unit, seg->open->durable);
	return durable;
}

enum kvblk_safety kvblk_segment_safety(struct kvblk_member *member,
				       const struct kvblk_segment *seg, u32 unit)
{
	guard(spinlock)(&member->log.lock);
	/* the seal flushed all records */
	if (!seg->open)
		return seg->unsaved || seg->flags & KVBLK_SEGF_UNPROVEN ?
		       KVBLK_DOUBTFUL : KVBLK_SAFE;
	if (test_bit(unit, seg->open->durable))
		return KVBLK_SAFE;
	if (seg->flags & KVBLK_SEGF_UNPROVEN || segment_lossy(member, seg))
		return KVBLK_DOUBTFUL;
	/* the record at @unit may be the one without checksums */
	if (READ_ONCE(seg->bare))
		return KVBLK_BARE;
	return READ_ONCE(seg->cached) ? KVBLK_CACHED : KVBLK_SAFE;
}

void kvblk_reservation_release(struct kvblk_reservation *resv,
			       const struct kvblk_d_record *header)
{
	struct kvblk_member *member = resv->member;
	struct kvblk_segment *seg = resv->seg;
	struct kvblk_d_entry *entry = resv->entry;

	spin_lock(&seg->open->lock);
	if (header) {
		kvblk_entry_of_header(entry, header);
	} else {
		memset(entry, 0, sizeof(*entry));
		entry->unit = cpu_to_le32(resv->unit);
		entry->length = cpu_to_le32(resv->units);
		entry->flags = KVBLK_ENTF_HOLE;
		atomic_sub(resv->units, &seg->live_units);
	}
	spin_unlock(&seg->open->lock);
	resv->seg = NULL;
	writer_drop(member, seg);
	kvblk_member_put(member);
}

void kvblk_segment_forget(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	struct kvblk_member *member;
	struct kvblk_segment *seg;

	guard(rcu)();
	member = kvblk_member_of(pool, slot->seg);
	if (!member)
		return;
	seg = &member->log.segs[kvblk_slot_segment(&member->flash, slot)];
	if ((u16)READ_ONCE(seg->gen) == slot->gen)
		kvblk_segment_shrink(member, seg, kvblk_slot_units(&member->flash, slot));
}

void kvblk_index_expired(struct kvblk_index *idx, const struct kvblk_slot *slot)
{
	kvblk_segment_forget(container_of(idx, struct kvblk_pool, index), slot);
}

/* ---- background: ready segments, seals, checkpoints ---- */

void kvblk_log_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member, log.work);
	u32 stock = member->flash.nr_segs >= 32 ? member->log.nr_logs + 1 : 1;
	struct kvblk_segment *seg;

	for (;;) {
		spin_lock(&member->log.lock);
		seg = list_first_entry_or_null(&member->log.closing, struct kvblk_segment, link);
		if (seg)
			list_del_init(&seg->link);
		spin_unlock(&member->log.lock);
		/* open before sealing: puts may wait for space, but nothing waits for a seal */
		while (kvblk_member_is_up(member) &&
		       (log_empty(member, KVBLK_CLASS_NEW) ||
			READ_ONCE(member->log.nr_ready) < stock))
			if (kvblk_segment_open(member, KVBLK_CLASS_NEW))
				break;
		if (!seg)
			break;
		kvblk_segment_seal(member, seg);
	}
	if (kvblk_member_is_up(member))
		queue_work(member->flash.pool->wq, &member->log.reclaim_work);
}

/* Writes changed pages, so that a restart need not walk the open segment. */
static void checkpoint_segment(struct kvblk_member *member, struct kvblk_segment *seg,
			       struct kvblk_d_summary *buf)
{
	struct kvblk_open *open = seg->open;
	s64 cursor = atomic64_read(&seg->cursor);
	struct kvblk_sum sum = {};
	u32 page, i, from, to;
	bool complete = true;

	if (cursor == KVBLK_CURSOR_CLOSED || kvblk_cursor_nr(cursor) == open->listed)
		return;
	sum.nr_records = kvblk_cursor_nr(cursor);
	for (from = open->settled / KVBLK_SUMMARY_ENTRIES;
	     from < kvblk_summary_pages(sum.nr_records); from = to) {
		to = min(from + SUMMARY_BATCH, kvblk_summary_pages(sum.nr_records));
		if (summary_write(member, seg, from, to, &sum, buf, 0))
			return;
		for (page = from; page < to; page++) {
			const struct kvblk_d_entry *entries = buf[to - 1 - page].entries;

			for (i = 0; i < KVBLK_SUMMARY_ENTRIES && entries[i].flags; i++)
				;
			/* the next checkpoint repeats a page with a record in flight */
			if (page * KVBLK_SUMMARY_ENTRIES + i < sum.nr_records &&
			    i < KVBLK_SUMMARY_ENTRIES)
				complete = false;
			else if (complete && i == KVBLK_SUMMARY_ENTRIES)
				open->settled += i;
		}
	}
	if (complete)
		open->listed = sum.nr_records;
}

/* In a pod: keeps segments in stock for a grace of puts, and uses those whose grace has ended. */
static void log_grace(struct kvblk_member *member)
{
	struct kvblk_log *log = &member->log;
	u64 opened = READ_ONCE(log->opened), more = log->opens_seen ? opened - log->opened_seen : 0;
	u64 from = READ_ONCE(log->reuse_from);

	if (from && kvblk_grace_over(from)) {
		/* restore may set a later one meanwhile */
		cmpxchg(&log->reuse_from, from, 0);
		kvblk_log_kick(member);
	}
	if (!kvblk_pool_in_pod(member->flash.pool) ||
	    (log->opens_seen && time_before(jiffies, log->opens_seen + HZ)))
		return;
	/* half of the average is of the last three seconds */
	WRITE_ONCE(log->opens, (3 * log->opens + (more << OPENS_SHIFT)) / 4);
	log->opened_seen = opened;
	log->opens_seen = jiffies;
	if (READ_ONCE(log->nr_retiring))
		kvblk_log_kick(member);
}

u32 kvblk_log_stock(const struct kvblk_member *member)
{
	u64 ms = READ_ONCE(member->flash.pool->tun.reuse_grace_ms);

	return min(READ_ONCE(member->log.opens) * ms / 1000 >> OPENS_SHIFT,
		   member->flash.nr_segs / 2);
}

void kvblk_checkpoint_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(to_delayed_work(work),
						   struct kvblk_member, log.checkpoint);
	struct kvblk_d_summary *buf;
	struct kvblk_segment *seg;
	u32 log;

	if (!kvblk_member_is_up(member))
		return;
	buf = kvmalloc_array(SUMMARY_BATCH, sizeof(*buf), GFP_KERNEL);
	for (log = 0; buf && log < KVBLK_LOGS; log++) {
		seg = READ_ONCE(member->log.current_seg[log]);
		if (!seg || !atomic_inc_not_zero(&seg->writers))
			continue;
		/* hold a reference as a writer, or else a seal would write the pages meanwhile */
		checkpoint_segment(member, seg, buf);
		writer_drop(member, seg);
	}
	kvfree(buf);
	change_beat(member);
	log_grace(member);
	/* save the clock, or else expired blocks would be back after a crash with a late clock */
	if (READ_ONCE(member->flash.pool->expires) &&
	    time_after_eq(jiffies, member->log.time_saved + KVBLK_CLOCK_SAVE_S * HZ))
		kvblk_table_write(member, 0);
	queue_delayed_work(member->flash.pool->wq, &member->log.checkpoint, HZ);
}

/* ---- what the flash asks ---- */

/* Pages of the segment table may be rewritten at any time. */
static int log_write_probe(struct kvblk_flash *flash)
{
	struct kvblk_member *member = kvblk_flash_member(flash);
	u32 known = 0;

	if (!kvblk_member_is_up(member))
		return 0;
	/* writing an unread page would destroy its contents */
	while (known < flash->nr_segs && member->log.segs[known].unknown)
		known += KVBLK_TABLE_ENTRIES;
	/* all unknown: a restore in progress, whose state a CPU may have read too late */
	return known < flash->nr_segs ? kvblk_table_write(member, known) : 0;
}

static int log_reserve(struct kvblk_flash *flash, u32 units, struct kvblk_reservation *resv)
{
	return kvblk_member_reserve(kvblk_flash_member(flash), KVBLK_CLASS_NEW, units, resv);
}

static void log_responds(struct kvblk_flash *flash)
{
	struct kvblk_member *member = kvblk_flash_member(flash);

	kvblk_log_kick(member);
	/* due now: kvblk_kill_retry() follows in this tick */
	WRITE_ONCE(member->log.kills.retry, jiffies);
}

const struct kvblk_flash_ops kvblk_log_flash_ops = {
	.write_probe = log_write_probe,
	.reserve = log_reserve,
	.responds = log_responds,
};

/* ---- readers ---- */

struct kvblk_segment *kvblk_segment_get(struct kvblk_pool *pool, const struct kvblk_slot *slot,
					struct kvblk_member **memberp, u64 *gen)
{
	struct kvblk_member *member = kvblk_member_get(pool, slot->seg);
	struct kvblk_segment *seg;

	if (!member)
		return NULL;
	seg = &member->log.segs[kvblk_slot_segment(&member->flash, slot)];
	atomic_inc(&seg->refs);
	/* pairs with kvblk_segment_retire(): the generation changes before refs are read there */
	smp_mb__after_atomic();
	*gen = READ_ONCE(seg->gen);
	if ((u16)*gen == slot->gen) {
		*memberp = member;
		return seg;
	}
	kvblk_segment_put(member, seg);
	return NULL;
}

void kvblk_segment_put(struct kvblk_member *member, struct kvblk_segment *seg)
{
	if (atomic_dec_return(&seg->refs) == 0 && READ_ONCE(seg->retired))
		queue_work(member->flash.pool->wq, &member->log.reclaim_work);
	kvblk_member_put(member);
}
