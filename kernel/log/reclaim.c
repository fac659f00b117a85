// SPDX-License-Identifier: GPL-2.0
/*
 * Reclaim of whole segments. Live records that the policy or a lease keeps are copied into a
 * segment of class HOT; the victim's other records are dropped. The rule is the order:
 *   slots to keep MOVING -> copies written -> slots to drop MOVING -> copies durable
 *   -> next generation of the victim durable -> slots LIVE at the copies
 *   -> next generation in memory, which ends the dropped records at once
 *   -> last reader gone -> discard -> FREE
 * A get finds a copy only when a crash can't bring the original back. A delete of a MOVING block
 * waits until reclaim has published or reverted. Blocks may be leased meanwhile: those to keep, and
 * until they are MOVING also those to drop, which are then copied, too. A segment stays if leases
 * pin more than LEASED_MOST of it when it is judged, or else reclaim would copy such segments until
 * the leases end.
 */
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "log/log.h"
#include "memory/cipher.h"
#include "memory/memory.h"
#include "trace.h"

struct victim_rec {
	struct kvblk_slot slot;		/* index entry: LIVE, or MOVING once claimed */
	struct kvblk_slot copy;		/* the entry for the copy */
	struct kvblk_id id;
	bool moving;			/* claimed */
	bool tried;			/* copied, if possible, or to be dropped */
	bool copied;			/* @copy is written */
};

#define COPIES		16		/* records copied at once */
#define COPY_BYTES	SZ_8M		/* payload bytes copied at once */

struct copy {
	struct kvblk_io io;
	struct victim *victim;
	struct victim_rec *vrec;
	struct kvblk_mem mem;
	struct kvblk_rec rec;
	struct kvblk_reservation resv;
	void *header;
	int err;
};

struct victim {
	struct kvblk_pool *pool;
	struct kvblk_member *member;
	struct kvblk_segment *seg;
	struct kvblk_place place;	/* of @seg, unit 0 */
	struct victim_rec *recs;
	struct kvblk_policy_rec *classes;
	u32 nr;				/* live records in @recs */
	u32 nr_copied;
	u32 nr_dropped;
	u32 live_units;			/* of the segment, when it was judged */
	int write_errors;		/* of the member, before the first copy was written */
	bool cached;			/* copies were written without FUA */
	struct kvblk_kept *kept;	/* log->kept, or NULL */
	struct copy *copies;		/* array of COPIES */
	atomic_t flying;		/* I/Os in flight, plus one until copies_wait() */
	struct completion completed;
};

/* Loads the summary, the last page first. Returns 0, -EBADMSG if pages are damaged, or an errno. */
static int summary_read(struct victim *v, struct kvblk_d_summary *sums, u32 pages)
{
	struct kvblk_flash *flash = &v->member->flash;
	struct kvblk_sum sum;
	u32 page;
	int err;

	err = kvblk_io_read(flash, kvblk_seg_pos(flash, v->place.segment,
						 flash->segment_units - pages),
			    sums, pages * sizeof(*sums));
	for (page = 0; page < pages && !err; page++)
		/* a checkpoint's summary lacks the later records */
		if (!kvblk_summary_decode(&sums[pages - 1 - page], page, &v->place,
					  &v->pool->secret, &sum) ||
		    (!page && !sum.sealed))
			err = -EBADMSG;
	return err;
}

/* Notes a record if live. Returns 0, or -EAGAIN if that is not known now. */
static int victim_note(struct victim *v, const struct kvblk_rec *entry, u32 unit)
{
	struct kvblk_flash *flash = &v->member->flash;
	struct victim_rec *rec = &v->recs[v->nr];
	struct kvblk_slot *slot = &rec->slot;
	u32 now = kvblk_now(v->pool);

	if (v->nr == v->seg->nr_records)
		return 0;
	rec->id = entry->id;
	if (!kvblk_index_find(&v->pool->index, rec->id, slot) ||
	    slot->seg != flash->seg_base + v->place.segment ||
	    slot->gen != (u16)v->place.generation || slot->off != unit)
		return 0;
	/* a put owns the record and makes it LIVE if it fails: then the record may be leased */
	if (slot->state == KVBLK_SLOT_MOVING)
		return -EAGAIN;
	if (slot->state != KVBLK_SLOT_LIVE || kvblk_expired(slot->expiry, now))
		return 0;
	v->classes[v->nr++] = (struct kvblk_policy_rec) {
		.id = rec->id,
		.bytes = kvblk_slot_units(flash, slot) << KVBLK_UNIT_SHIFT,
		.heat = slot->heat,
		.priority = kvblk_index_retained(&v->pool->index, slot, now) ? KVBLK_PRIORITY_MAX :
									       slot->prio,
		.leased = slot->leased,
		/* the copy of a record in its last minute would expire at once */
		.expires = kvblk_expired(slot->expiry, now + 60),
	};
	return 0;
}

/* Loads the live records from headers. An unreadable header drops its block. */
static int victim_walk(struct victim *v)
{
	const struct kvblk_reader reader = kvblk_flash_reader(&v->member->flash);
	struct kvblk_walk walk;
	struct kvblk_rec rec;
	u32 unit;
	int ret;

	if (kvblk_walk_begin(&walk, &reader, GFP_KERNEL | __GFP_NOWARN))
		return -ENOMEM;
	kvblk_walk_segment(&walk, &v->place);
	while ((ret = kvblk_walk_next(&walk, &rec, &unit)) > 0) {
		ret = victim_note(v, &rec, unit);
		if (ret)
			break;
	}
	kvblk_walk_end(&walk);
	/* gets of the unreadable records would fail, too; leased ones are tried again */
	return ret == -EIO && !atomic64_read(&v->pool->lease.total) ? 0 : ret;
}

#define LEASED_MOST	750		/* permille of a segment */
#define LEASED_REST	HZ		/* until it is judged again: a read of its summary */

/* Finds the live records. Returns 0, or an errno if not known: the victim must stay. */
static int victim_load(struct victim *v)
{
	u32 nr = v->seg->nr_records, pages = kvblk_summary_pages(nr), page, i, unit;
	const gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;	/* reclaim tries again */
	struct kvblk_d_summary *sums __free(kvfree) = NULL;
	const struct kvblk_d_summary *sum;
	struct kvblk_rec entry;
	int err = 0;

	if (!nr)
		return 0;
	sums = __vmalloc(array_size(pages, sizeof(*sums)), gfp);
	v->recs = kvcalloc(nr, sizeof(*v->recs), gfp);
	v->classes = kvcalloc(nr, sizeof(*v->classes), gfp);
	if (!sums || !v->recs || !v->classes)
		return -ENOMEM;
	/* if the seal failed, the summary is in memory */
	if (!v->seg->open)
		err = summary_read(v, sums, pages);
	if (err == -EBADMSG || err == -EIO)
		return victim_walk(v);
	for (page = 0; page < pages; page++) {
		sum = v->seg->open ? v->seg->open->pages[page] : &sums[pages - 1 - page];
		for (i = 0; sum && i < KVBLK_SUMMARY_ENTRIES && !err; i++)
			if (kvblk_entry_decode(&sum->entries[i], v->member->flash.segment_units,
					       &entry, &unit))
				err = victim_note(v, &entry, unit);
	}
	return err;
}

static int copy_reserve(struct kvblk_member *member, u32 units, struct kvblk_reservation *resv)
{
	int err = 0;

	while (!err && kvblk_member_reserve(member, KVBLK_CLASS_HOT, units, resv))
		err = kvblk_segment_open(member, KVBLK_CLASS_HOT);
	return err;
}

static void copy_completed(struct kvblk_io *io)
{
	struct victim *v = container_of(io, struct copy, io)->victim;

	if (atomic_dec_and_test(&v->flying))
		complete(&v->completed);
}

static void copies_wait(struct victim *v)
{
	copy_completed(&v->copies[0].io);
	wait_for_completion_state(&v->completed, TASK_IDLE);
	reinit_completion(&v->completed);
	atomic_set(&v->flying, 1);
}

static void copy_read(struct copy *copy, bool alone)
{
	atomic_inc(&copy->victim->flying);
	kvblk_io_start(&copy->io, &copy->victim->member->flash, copy_completed);
	copy->io.alone = alone;
	kvblk_record_read(&copy->io, &copy->vrec->slot, copy->header, &copy->mem, 0, false);
	kvblk_io_end(&copy->io);
}

static bool copy_encrypted(const struct copy *copy)
{
	return kvblk_tenant_encrypted(copy->victim->pool, copy->vrec->slot.tenant);
}

static void copy_begin(struct copy *copy)
{
	u32 len = copy->vrec->slot.len;

	copy->header = kvblk_header_alloc(copy_encrypted(copy), len, GFP_KERNEL);
	if (!copy->header || kvblk_mem_alloc(&copy->mem, len, false))
		copy->err = -ENOMEM;
	else
		copy_read(copy, false);
}

/* Waits for all reads. A medium error may be of a neighbour that was read by the same request. */
static void copies_wait_reads(struct victim *v, u32 nr)
{
	u32 i;

	copies_wait(v);
	for (i = 0; i < nr; i++)
		if (v->copies[i].io.status == BLK_STS_MEDIUM)
			copy_read(&v->copies[i], true);
	copies_wait(v);
}

/*
 * Decrypts a payload, and encrypts it again, which gives the same bytes. Only a match proves the
 * payload of a segment that was open at a crash, and puts take copies for proven. Returns 0,
 * -EBADMSG, or -ENODATA if nothing is known now, as without the key.
 */
static int copy_prove(struct copy *copy)
{
	const struct bvec_iter payload = kvblk_mem_payload(&copy->mem);
	const struct kvblk_rec *rec = &copy->rec;
	u8 *tags = kvblk_header_tags(copy->header);
	struct kvblk_cipher *cipher;
	int err;

	cipher = kvblk_keys_cipher(&copy->victim->pool->tenants.keys, rec->tenant, rec->activation,
				   rec->key_epoch);
	if (IS_ERR(cipher))
		return -ENODATA;
	err = kvblk_cipher_open(cipher, rec, 0, copy->mem.bv, payload, tags) ?:
	      kvblk_cipher_seal(cipher, rec, 0, copy->mem.bv, payload, tags);
	kvblk_cipher_put(cipher);
	return err && err != -EBADMSG ? -ENODATA : err;
}

static int copy_check(struct copy *copy)
{
	struct victim *v = copy->victim;
	struct kvblk_flash *flash = &v->member->flash;
	const struct kvblk_slot *slot = &copy->vrec->slot;
	struct kvblk_place place = kvblk_slot_place(flash, slot, v->seg->gen);
	enum kvblk_verdict verdict;
	int err;

	if (copy->io.status) {
		kvblk_flash_error(flash, KVBLK_ERROR_READ, place.segment);
		return -EIO;
	}
	/* or else a damaged record would get a valid new header */
	if (!kvblk_record_identify(&place, copy_encrypted(copy), slot->len, copy->header,
				   &v->pool->secret, &copy->rec) ||
	    copy->rec.tenant != slot->tenant)
		goto damaged;
	verdict = kvblk_segment_judge(v->pool, v->seg, (struct kvblk_proof_case) {
		.integrity = copy->rec.integrity,
		.seen = true,
	});
	/* no get would trust the copy */
	if (verdict == KVBLK_REFUSE)
		return -ENODATA;
	/* elsewhere, ciphertext and tags are copied as they are, because the key may be missing */
	if (kvblk_rec_encrypted(&copy->rec)) {
		err = v->seg->flags & KVBLK_SEGF_UNPROVEN ? copy_prove(copy) : 0;
		if (err == -EBADMSG)
			goto damaged;
		return err;
	}
	if (verdict == KVBLK_SERVE ||
	    kvblk_payload_open(&copy->mem, NULL, copy->rec.integrity, copy->rec.crcs))
		return 0;
	if (kvblk_proofs[copy->rec.integrity].by_caller) {
		/* the caller put other bytes than its checksums say: not the member's error */
		kvblk_count_at(flash->stats, KVBLK_C_PRODUCER_MISMATCHES, 1);
		return -EBADMSG;
	}
damaged:
	kvblk_flash_error(flash, KVBLK_ERROR_CHECKSUM, place.segment);
	return -EBADMSG;
}

static void copy_write(struct copy *copy)
{
	struct kvblk_member *member = copy->victim->member;
	struct kvblk_rec *rec = &copy->rec;

	if (!copy->err)
		copy->err = copy_check(copy);
	if (!copy->err)
		copy->err = copy_reserve(member, kvblk_slot_units(&member->flash,
								  &copy->vrec->slot), &copy->resv);
	if (copy->err)
		return;
	/* the victim's seal proves the payload; the new segment's may be lost in a crash */
	if (rec->integrity == KVBLK_INTEGRITY_NONE) {
		rec->integrity = KVBLK_INTEGRITY_CRC32C;
		kvblk_mem_seal(&copy->mem, rec->integrity, kvblk_header_crcs(copy->header));
	}
	/* the copy keeps its seq: a copy is no newer than its original */
	rec->durable = kvblk_durable(&member->flash, rec->integrity);
	atomic_inc(&copy->victim->flying);
	kvblk_io_start(&copy->io, &member->flash, copy_completed);
	kvblk_record_write(&copy->io, 0, &copy->resv, rec, copy->header, &copy->mem, false);
	kvblk_io_end(&copy->io);
}

static void copy_end(struct copy *copy)
{
	struct victim *v = copy->victim;
	struct victim_rec *vrec = copy->vrec;

	if (copy->resv.seg) {
		v->cached |= !copy->rec.durable || !kvblk_fua(&v->member->flash);
		vrec->copy = vrec->slot;
		kvblk_reservation_slot(&copy->resv, &vrec->copy);
		vrec->copy.state = KVBLK_SLOT_LIVE;
	}
	if (copy->resv.seg && copy->io.status) {
		copy->err = -EIO;
		kvblk_flash_error(&v->member->flash, KVBLK_ERROR_WRITE, copy->resv.segment);
		kvblk_kill_later(v->pool, vrec->id, &vrec->copy);
		kvblk_reservation_release(&copy->resv, NULL);
	} else if (copy->resv.seg) {
		vrec->copied = true;
		v->nr_copied++;
		kvblk_count_at(v->member->flash.stats, KVBLK_C_REINSERTS, 1);
		kvblk_count_at(v->member->flash.stats, KVBLK_C_REINSERT_BYTES,
			       (u64)copy->resv.units << KVBLK_UNIT_SHIFT);
		kvblk_reservation_release(&copy->resv, copy->header);
	}
	kvblk_mem_free(&copy->mem);
	kvblk_header_free(copy->header, copy_encrypted(copy), vrec->slot.len);
}

/* Makes a slot MOVING. Returns success: not with @unleased if it is leased. */
static bool rec_claim(struct victim *v, struct victim_rec *rec, bool unleased)
{
	struct kvblk_index *idx = &v->pool->index;
	struct kvblk_slot moving = rec->slot;

	moving.state = KVBLK_SLOT_MOVING;
	if (!(unleased ? kvblk_index_claim(idx, rec->id, &rec->slot, &moving) :
			 kvblk_index_replace(idx, rec->id, &rec->slot, &moving)))
		return false;
	rec->moving = true;
	rec->slot.state = KVBLK_SLOT_MOVING;
	return true;
}

/* Claims a record to keep, for victim_copy(): it may be leased, as before. Returns success. */
static bool rec_keep(struct victim *v, struct victim_rec *rec)
{
	if (v->kept)
		set_bit(rec->slot.off, v->kept->units);
	return rec_claim(v, rec, false);
}

static void rec_unkeep(struct victim *v, const struct victim_rec *rec)
{
	if (v->kept)
		clear_bit(rec->slot.off, v->kept->units);
}

/* Claims a record to drop, from now on not to be leased. Returns false if it is leased, or gone. */
static bool rec_drop(struct victim *v, struct victim_rec *rec)
{
	rec_unkeep(v, rec);
	return rec_claim(v, rec, true);
}

/* Returns whether the entry is still the record's, in any state, with the entry in @now. */
static bool rec_find(const struct victim *v, const struct victim_rec *rec, struct kvblk_slot *now)
{
	return kvblk_index_find(&v->pool->index, rec->id, now) &&
	       kvblk_same_record(now, &rec->slot);
}

/* Waits for a put that owns the record, a second at most. Returns whether the record stays. */
static bool rec_stays(const struct victim *v, const struct victim_rec *rec)
{
	struct kvblk_slot now;

	return !wait_event_idle_timeout(v->pool->settle_wait, !rec_find(v, rec, &now), HZ);
}

/* Copies claimed records, if intact. Returns 0, or -EAGAIN if a leased one can't be copied now. */
static int victim_copy(struct victim *v)
{
	u32 i, n, nr, bytes;
	int err = 0;

	for (i = 0; i < v->nr && !err;) {
		u64 most = min_t(u64, COPY_BYTES, kvblk_put_window(v->member));

		bytes = 0;
		for (nr = 0; nr < COPIES && i < v->nr; i++) {
			if (!v->recs[i].moving || v->recs[i].tried)
				continue;
			if (nr && bytes + v->recs[i].slot.len > most)
				break;
			bytes += v->recs[i].slot.len;
			v->recs[i].tried = true;
			v->copies[nr] = (struct copy) { .victim = v, .vrec = &v->recs[i] };
			copy_begin(&v->copies[nr++]);
		}
		if (!nr)
			break;
		copies_wait_reads(v, nr);
		for (n = 0; n < nr; n++)
			copy_write(&v->copies[n]);
		copies_wait(v);
		for (n = 0; n < nr; n++) {
			struct copy *copy = &v->copies[n];

			copy_end(copy);
			if (copy->err && !rec_drop(v, copy->vrec) && copy->err != -EBADMSG)
				err = -EAGAIN;
		}
		cond_resched();
	}
	return err;
}

static void copy_kill(struct victim *v, const struct victim_rec *rec)
{
	kvblk_segment_forget(v->pool, &rec->copy);
	kvblk_kill_later(v->pool, rec->id, &rec->copy);
}

static void victim_revert(struct victim *v)
{
	u32 i;

	for (i = 0; i < v->nr; i++) {
		struct victim_rec *rec = &v->recs[i];
		struct kvblk_slot live = rec->slot;

		/* before the slot is LIVE, and may be dropped by another try */
		rec_unkeep(v, rec);
		if (rec->copied)
			copy_kill(v, rec);
		live.state = KVBLK_SLOT_LIVE;
		if (rec->moving)
			kvblk_index_replace(&v->pool->index, rec->id, &rec->slot, &live);
	}
	wake_up_all(&v->pool->settle_wait);
}

static struct kvblk_policy_seg policy_view(const struct kvblk_member *member,
					   const struct kvblk_segment *seg)
{
	return (struct kvblk_policy_seg) {
		.stamp = seg->stamp,
		.bytes = kvblk_flash_segment_bytes(&member->flash),
		.class = seg->class,
	};
}

/* Lets the policy decide which records to keep. Returns as kvblk_policy_classify(). */
static int victim_classify(struct victim *v, struct kvblk_policy_seg *pseg, bool force)
{
	u32 i;

	guard(rcu)();
	for (i = 0; i < v->nr; i++)
		v->classes[i].admission = kvblk_admission_of(v->pool, v->recs[i].slot.tenant);
	return kvblk_policy_classify(&v->pool->policy, pseg, v->classes, v->nr, force);
}

/*
 * Finds the live records and what the policy keeps. Returns 0; 1 if the policy renewed the segment,
 * unless @force; -EAGAIN if records are not known now or leases pin too many.
 */
static int victim_judge(struct victim *v, struct kvblk_policy_seg *pseg, bool force)
{
	struct kvblk_segment *seg = v->seg;
	u64 leased = 0;
	u32 i;

	if (victim_load(v))
		return -EAGAIN;
	v->live_units = atomic_read(&seg->live_units);
	for (i = 0; i < v->nr; i++)
		leased += v->classes[i].leased ? v->classes[i].bytes : 0;
	seg->rests = leased * 1000 > pseg->bytes * LEASED_MOST;
	if (seg->rests) {
		seg->rests_until = jiffies + LEASED_REST;
		return -EAGAIN;
	}
	if (v->nr && victim_classify(v, pseg, force) == -EAGAIN) {
		seg->stamp = pseg->stamp;
		return 1;
	}
	for (i = 0; i < v->nr; i++) {
		/* above a soft quota a copy would only be dropped later */
		v->classes[i].keep &= !kvblk_tenant_over(v->pool, v->recs[i].slot.tenant);
		v->classes[i].keep |= v->classes[i].leased;
	}
	return 0;
}

/*
 * Claims what is kept, or leased by now: before the copy, which a delete would not know of. Returns
 * the number, or -EAGAIN if a put owns such a record.
 */
static int victim_claim(struct victim *v)
{
	struct kvblk_slot now;
	int nr = 0;
	u32 i;

	for (i = 0; i < v->nr; i++) {
		struct victim_rec *rec = &v->recs[i];

		if (rec->moving ||
		    !(v->classes[i].keep || (rec_find(v, rec, &now) && now.leased)))
			continue;
		if (rec_keep(v, rec))
			nr++;
		else if (rec_stays(v, rec))
			return -EAGAIN;
	}
	return nr;
}

/* Claims the others, to be dropped unless leased by now. Returns as victim_claim(). */
static int victim_close(struct victim *v)
{
	int nr = 0;
	u32 i;

	for (i = 0; i < v->nr; i++) {
		struct victim_rec *rec = &v->recs[i];

		if (rec->moving)
			continue;
		rec->tried = rec_drop(v, rec);
		if (!rec->tried && rec_keep(v, rec))
			nr++;
		else if (!rec->tried && rec_stays(v, rec))
			return -EAGAIN;
	}
	return nr;
}

#define LEASE_PASSES	4		/* copies of what is leased meanwhile */

/* Claims all records, and copies those to keep. Returns 0 or -EAGAIN. */
static int victim_move(struct victim *v)
{
	int nr, pass, err = 0;

	for (pass = 0; pass < LEASE_PASSES && !err; pass++) {
		nr = victim_claim(v);
		if (!nr)
			break;
		err = nr < 0 ? nr : victim_copy(v);
	}
	if (err)
		return err;
	nr = victim_close(v);
	return nr > 0 ? victim_copy(v) : nr;
}

static void victim_kept_begin(struct victim *v)
{
	v->kept = kvzalloc(struct_size(v->kept, units,
				       BITS_TO_LONGS(v->member->flash.segment_units)),
			   GFP_KERNEL | __GFP_NOWARN);
	if (!v->kept)
		return;
	v->kept->segment = v->place.segment;
	rcu_assign_pointer(v->member->log.kept, v->kept);
}

static void victim_kept_end(struct victim *v)
{
	if (!v->kept)
		return;
	RCU_INIT_POINTER(v->member->log.kept, NULL);
	kvfree_rcu_mightsleep(v->kept);
}

static int victim_flush(struct victim *v)
{
	if (v->nr_copied && kvblk_io_flush(&v->member->flash))
		return -EAGAIN;
	/* the device may have reported to another write that its cache lost the copies */
	return v->cached && kvblk_writes_failed(&v->member->flash, v->write_errors) ? -EAGAIN : 0;
}

/* Ends the generation on media. Returns 0; -EAGAIN if that failed: the segment stays sealed. */
static int victim_retire(struct victim *v)
{
	struct kvblk_member *member = v->member;
	struct kvblk_segment *seg = v->seg;
	int err;

	scoped_guard(spinlock, &member->log.lock) {
		member->log.nr_sealed--;
		seg->retiring = true;
		seg->state = KVBLK_SEG_FREE;
	}
	if (!kvblk_table_write(member, v->place.segment))
		return 0;
	scoped_guard(spinlock, &member->log.lock) {
		seg->state = KVBLK_SEG_SEALED;
		seg->retiring = false;
		member->log.nr_sealed++;
	}
	kvblk_flash_error(&member->flash, KVBLK_ERROR_WRITE, v->place.segment);
	/* the failed write may have reached the media: overwrite it with the old generation */
	err = kvblk_table_write(member, v->place.segment);
	scoped_guard(spinlock, &member->log.lock)
		seg->unsaved = err;
	return -EAGAIN;
}

static void victim_publish(struct victim *v)
{
	struct kvblk_segment *seg = v->seg;
	struct kvblk_open *open = NULL;
	struct victim_rec *rec;

	for (rec = v->recs; rec < v->recs + v->nr; rec++) {
		v->nr_dropped += rec->moving && !rec->copied;
		if (rec->copied &&
		    !kvblk_index_replace(&v->pool->index, rec->id, &rec->slot, &rec->copy)) {
			WARN_ON_ONCE(kvblk_member_is_up(v->member));
			copy_kill(v, rec);
		}
	}

	if (!(seg->gen & 0x3fff))
		seg->sweep_mark = READ_ONCE(v->pool->sweep_pass) + 2;
	scoped_guard(spinlock, &v->member->log.lock) {
		swap(open, seg->open);
		kvblk_segment_retire(v->member, seg);
	}
	kvblk_open_free(open);
	wake_up_all(&v->pool->settle_wait);
}

static void victim_count(const struct victim *v, u64 bytes)
{
	const struct kvblk_flash *flash = &v->member->flash;

	kvblk_count_at(flash->stats, KVBLK_C_SEGMENTS_RECLAIMED, 1);
	kvblk_count_at(flash->stats, KVBLK_C_RECLAIMED_BYTES, bytes);
	kvblk_count_at(flash->stats, KVBLK_C_DROPPED, v->nr_dropped);
	trace_kvblk_reclaim(v->pool->name, flash->slot, v->place.segment, v->seg->gen, v->nr,
			    v->live_units, v->nr_copied, v->nr_dropped);
}

/* Returns as victim_judge(). */
static int segment_reclaim(struct kvblk_member *member, struct kvblk_segment *seg, bool force)
{
	struct kvblk_policy_seg pseg = policy_view(member, seg);
	struct victim v = {
		.pool = member->flash.pool,
		.member = member,
		.seg = seg,
		.place = kvblk_place(&member->flash, seg - member->log.segs, seg->gen, 0),
		.write_errors = atomic_read(&member->flash.write_errors),
		.copies = kvcalloc(COPIES, sizeof(*v.copies), GFP_KERNEL | __GFP_NOWARN),
	};
	int err;

	init_completion(&v.completed);
	atomic_set(&v.flying, 1);
	err = v.copies ? victim_judge(&v, &pseg, force) : -EAGAIN;
	if (!err) {
		victim_kept_begin(&v);
		/* the order that the file opens with */
		err = victim_move(&v) ?: victim_flush(&v) ?: victim_retire(&v);
		if (err) {
			victim_revert(&v);
		} else {
			victim_publish(&v);
			victim_count(&v, pseg.bytes);
		}
		victim_kept_end(&v);
	}
	kvfree(v.recs);
	kvfree(v.classes);
	kvfree(v.copies);
	return err;
}

static void retired_free(struct kvblk_member *member)
{
	struct kvblk_pool *pool = member->flash.pool;
	struct kvblk_segment *seg, *next;
	bool freed = false;
	LIST_HEAD(over);

	scoped_guard(spinlock, &member->log.lock)
		list_for_each_entry_safe(seg, next, &member->log.retiring, link) {
			/* in order of retirement, or nearly */
			if (!kvblk_grace_over(seg->reuse_from))
				break;
			if (!atomic_read_acquire(&seg->refs) &&
			    READ_ONCE(pool->sweep_pass) >= seg->sweep_mark)
				list_move_tail(&seg->link, &over);
		}
	list_for_each_entry_safe(seg, next, &over, link) {
		if (READ_ONCE(pool->tun.discard))
			kvblk_io_discard(&member->flash,
					 kvblk_seg_pos(&member->flash, seg - member->log.segs, 0),
					 kvblk_flash_segment_bytes(&member->flash));
		freed = true;
		guard(spinlock)(&member->log.lock);
		WRITE_ONCE(seg->retired, false);
		list_move_tail(&seg->link, &member->log.free);
		member->log.nr_retiring--;
		member->log.nr_free++;
	}
	if (freed)
		kvblk_log_kick(member);
}

/* Ranks segments again whose live records have all gone: these are next. */
static void emptied_rank(struct kvblk_member *member)
{
	struct kvblk_segment *seg, *next;

	llist_for_each_entry_safe(seg, next, llist_del_all(&member->log.emptied), emptied) {
		/* before live_units is read, or else a later decrement would be missed */
		xchg(&seg->in_emptied, false);
		scoped_guard(spinlock, &member->log.lock)
			if (seg->ranked && !seg->empty) {
				rb_erase_cached(&seg->node, &member->log.sealed);
				kvblk_segment_rank(member, seg);
			}
		cond_resched();
	}
}

/* Takes the next victim, or NULL, from the sealed segments. victim_put() puts it back. */
static struct kvblk_segment *victim_take(struct kvblk_member *member)
{
	struct kvblk_segment *seg;
	struct rb_node *first;

	emptied_rank(member);
	guard(spinlock)(&member->log.lock);
	first = rb_first_cached(&member->log.sealed);
	if (!first)
		return NULL;
	rb_erase_cached(first, &member->log.sealed);
	seg = rb_entry(first, struct kvblk_segment, node);
	seg->ranked = false;
	seg->rests = false;
	return seg;
}

/* @ret: of segment_reclaim(), not 0. */
static void victim_put(struct kvblk_member *member, struct kvblk_segment *seg, int ret)
{
	guard(spinlock)(&member->log.lock);
	if (ret > 0)
		kvblk_segment_rank(member, seg);
	else
		list_add_tail(&seg->link, seg->rests ? &member->log.resting : &member->log.failed);
}

/* Ranks segments again that may be reclaimed now, unlike in an earlier run. */
static void aside_rank(struct kvblk_member *member)
{
	struct kvblk_log *log = &member->log;
	struct kvblk_segment *seg;

	do {
		scoped_guard(spinlock, &log->lock) {
			seg = list_first_entry_or_null(&log->failed, struct kvblk_segment, link) ?:
			      list_first_entry_or_null(&log->resting, struct kvblk_segment, link);
			/* runs may be weeks apart, in which 32 bits of jiffies wrap */
			if (seg && seg->rests &&
			    time_between32((u32)jiffies, seg->rests_until - LEASED_REST,
					   seg->rests_until))
				seg = NULL;
			if (seg) {
				list_del(&seg->link);
				kvblk_segment_rank(member, seg);
			}
		}
		cond_resched();
	} while (seg);
}

static u32 watermark(const struct kvblk_member *member, u32 permille, u32 least)
{
	return max_t(u32, least, (u64)member->flash.nr_segs * permille / 1000);
}

void kvblk_reclaim_work(struct work_struct *work)
{
	struct kvblk_member *member = container_of(work, struct kvblk_member, log.reclaim_work);
	struct kvblk_pool *pool = member->flash.pool;
	u32 stock = kvblk_log_stock(member);
	u32 low = watermark(member, READ_ONCE(pool->tun.low_permille), 2) + stock;
	u32 high = watermark(member, READ_ONCE(pool->tun.high_permille), 3) + stock;
	struct kvblk_segment *seg;
	u32 tries = 0;
	int ret;

	retired_free(member);
	/* copies need a segment, too: until one may be opened, nothing is short */
	if (kvblk_member_avail(member) > low ||
	    !kvblk_grace_over(READ_ONCE(member->log.reuse_from)))
		return;
	if (!member->log.low_reported) {
		member->log.low_reported = true;
		kvblk_event(pool, &member->flash, KVBLK_EVENT_LOW_SPACE,
			    kvblk_member_avail(member));
	}
	aside_rank(member);
	while (kvblk_member_is_up(member) && kvblk_flash_may_write(&member->flash) &&
	       kvblk_member_avail(member) + READ_ONCE(member->log.nr_retiring) < high) {
		seg = victim_take(member);
		if (!seg)
			break;
		ret = segment_reclaim(member, seg, tries >=
				      kvblk_policy_tries(READ_ONCE(member->log.nr_sealed)));
		tries = ret > 0 ? tries + 1 : 0;
		kvblk_duel_judge(&pool->duel, READ_ONCE(pool->tun.dram_mode) == KVBLK_DRAM_THROUGH ?
					      0 : READ_ONCE(pool->tun.dram_bytes));
		if (ret)
			victim_put(member, seg, ret);
		retired_free(member);
		cond_resched();
	}
}
