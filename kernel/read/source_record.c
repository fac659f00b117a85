// SPDX-License-Identifier: GPL-2.0
/* A record on a member as the source of a block. Its segment is held during the read. */
#include "read/read.h"

static int record_hold(struct kvblk_req *req)
{
	struct kvblk_media *media = &req->media;

	media->seg = kvblk_segment_get(req->pool, &req->slot, &media->member, &media->gen);
	if (!media->seg)
		return -ESTALE;
	media->flash = &media->member->flash;
	if (!kvblk_flash_may_read(media->flash))
		return kvblk_read_miss(req, KVBLK_C_MISS_MEMBER);
	media->stats = media->flash->stats;
	return 0;
}

/* Returns whether to compute checksums on arrival: a short payload is in the cache later, too. */
static bool record_sums(const struct kvblk_req *req)
{
	return req->mem.bytes > 1u << KVBLK_CHUNK_SHIFT && kvblk_read_sees(req) &&
	       !kvblk_req_encrypted(req) &&
	       (READ_ONCE(req->pool->tun.integrity) != KVBLK_CHECK_HEADER ||
		READ_ONCE(req->media.seg->flags) & KVBLK_SEGF_UNPROVEN);
}

/* Submits header and first part as one request. noinline: other gets need no plug. */
static noinline void record_submit_bounce(struct kvblk_req *req)
{
	struct blk_plug plug;

	blk_start_plug(&plug);
	/* the header alone: @mem has no payload */
	kvblk_record_read(&req->media.io, &req->slot, req->header, &req->mem, 0, false);
	kvblk_bounce_submit(req->media.bounce, kvblk_read_end(req));
	blk_finish_plug(&plug);
}

static void record_submit(struct kvblk_req *req)
{
	if (req->media.bounce)
		record_submit_bounce(req);
	else
		req->media.sums = kvblk_record_read(&req->media.io, &req->slot, req->header,
						    &req->mem, req->read.from, record_sums(req));
}

/*
 * Tells the write throttle that a get of @bytes comes. A request's gets come together, so what a
 * CPU's gets ask for within a jiffy is an estimate of a request's bytes.
 */
static void record_tell_throttle(struct kvblk_flash *flash, u32 bytes)
{
	unsigned long now = jiffies, since;
	u64 burst;

	if (this_cpu_read(flash->ios->get_at) != now) {
		this_cpu_write(flash->ios->get_at, now);
		this_cpu_write(flash->ios->get_bytes, 0);
		if (READ_ONCE(flash->last_get) != now)
			WRITE_ONCE(flash->last_get, now);
		since = now - READ_ONCE(flash->burst_since);
		if (since > HZ) {
			WRITE_ONCE(flash->burst_since, now);
			WRITE_ONCE(flash->burst_before,
				   since < 2 * HZ ? READ_ONCE(flash->burst) : 0);
			WRITE_ONCE(flash->burst, 0);
		}
	}
	burst = this_cpu_add_return(flash->ios->get_bytes, bytes);
	if (burst > READ_ONCE(flash->burst))
		WRITE_ONCE(flash->burst, burst);
}

static void record_go(struct kvblk_queued_io *queued)
{
	struct kvblk_req *req = container_of(queued, struct kvblk_req, media.queued);
	struct kvblk_io *io = &req->media.io;

	io->ioprio = queued->ioprio;
	/* after a wait nobody may want the bytes, or the member may not respond */
	req->read.unread = READ_ONCE(req->canceled) || kvblk_req_late(req) ||
			   !kvblk_flash_may_read(req->media.flash);
	if (req->read.unread)
		io->status = BLK_STS_OFFLINE;
	else
		req->read.source->submit(req);
	kvblk_io_end(io);
}

/* Submits the read when its tenant's share permits. The request may be freed. */
static noinline void record_enter(struct kvblk_req *req)
{
	struct kvblk_queued_io *queued = &req->media.queued;

	*queued = (struct kvblk_queued_io) {
		.account = req->account,
		.bytes = kvblk_read_end(req) - req->read.from + req->header_bytes,
		.deadline_ns = req->op.deadline_ns,
		.get = true,
		.given_up = &req->canceled,
		.submit = record_go,
	};
	kvblk_throttle_enter(queued, req->media.member);
}

/*
 * Returns whether the read waits for its tenant's share: not of a foreign member, which has no
 * throttle, nor of bounces and trials, which read on in the caller's task.
 */
static bool record_shares(const struct kvblk_req *req)
{
	const struct kvblk_media *media = &req->media;

	return unlikely(kvblk_flash_shares(media->flash, req->account)) && !media->foreign &&
	       !media->bounce && !media->trial;
}

int kvblk_record_start(struct kvblk_req *req)
{
	int err = kvblk_req_header_alloc(req, req->slot.len);

	if (!err)
		err = kvblk_sink_prepare(req);
	if (err) {
		kvblk_req_buffers_drop(req);
		req->wants_fault = err == -EFAULT;
		return req->wants_fault || err == -EAGAIN ? -EAGAIN :
							    kvblk_read_fail(req, err);
	}
	WARN_ON_ONCE(req->read.from + req->mem.bytes > req->slot.len);
	req->read.state = KVBLK_READ_INFLIGHT;
	/* no page fault while others of the batch are in flight */
	req->src.fault = false;
	record_tell_throttle(req->media.flash, req->read.want);
	kvblk_media_submit(req, req->media.flash);
	req->media.io.alone = req->read.alone;
	req->read.unread = false;
	if (record_shares(req)) {
		record_enter(req);
		return 0;
	}
	req->read.source->submit(req);
	kvblk_io_end(&req->media.io);
	return 0;
}

static bool record_drop(struct kvblk_req *req)
{
	struct kvblk_slot now;

	return !kvblk_kills_full(req->media.member) &&
	       kvblk_index_find(&req->pool->index, req->id, &now) &&
	       now.state == KVBLK_SLOT_LIVE && kvblk_same_record(&now, &req->slot) &&
	       kvblk_entry_replace(req->pool, req->id, &now, NULL);
}

/*
 * Removes the entry and reports damage, unless it changed: the block was deleted or moved. A
 * @producer's wrong checksums count apart, because the flash is not to blame. Returns -ENOENT.
 */
static int record_wrong(struct kvblk_req *req, bool producer)
{
	if (!record_drop(req))
		return kvblk_read_miss(req, KVBLK_C_MISS_MOVED);
	if (producer)
		kvblk_count_at(req->media.stats, KVBLK_C_PRODUCER_MISMATCHES, 1);
	else
		kvblk_flash_error(req->media.flash, KVBLK_ERROR_CHECKSUM,
				  kvblk_slot_segment(req->media.flash, &req->slot));
	return kvblk_read_miss(req, KVBLK_C_MISS_DAMAGED);
}

static int record_damaged(struct kvblk_req *req)
{
	return record_wrong(req, kvblk_proofs[req->integrity].by_caller);
}

/* noinline: a record in memory costs all gets the copies of fields that they need not */
static noinline void record_describe(struct kvblk_req *req)
{
	struct kvblk_rec rec = kvblk_record_unpack(req->header);

	req->read.sink->describe(req, &rec);
}

static int record_identify(struct kvblk_req *req)
{
	const struct kvblk_media *media = &req->media;
	enum kvblk_verdict verdict;
	struct kvblk_rec rec;
	int err;

	if (!kvblk_record_named(req->header,
				kvblk_slot_place(media->flash, &req->slot, media->gen), req->id,
				kvblk_req_encrypted(req), req->slot.len))
		return record_wrong(req, false);
	rec = kvblk_record_unpack(req->header);
	err = kvblk_read_match(req, &rec);
	if (err)
		return err;
	if (unlikely(req->read.sink->describe))
		record_describe(req);
	verdict = kvblk_read_judge(req, rec.integrity, rec.durable, kvblk_read_sees(req));
	if (verdict != KVBLK_REFUSE)
		return verdict == KVBLK_VERIFY;
	/* remove the entry so that the block can be put again */
	record_drop(req);
	return kvblk_read_miss(req, KVBLK_C_MISS_UNPROVEN);
}

static int record_failed(struct kvblk_req *req)
{
	/* the error is permanent: remove the entry, so that the block can be put again */
	if (kvblk_read_bad_medium(req))
		record_drop(req);
	kvblk_flash_error(req->media.flash, KVBLK_ERROR_READ,
			  kvblk_slot_segment(req->media.flash, &req->slot));
	return kvblk_read_miss(req, KVBLK_C_MISS_READ_ERROR);
}

const struct kvblk_source kvblk_source_record = {
	.hold = record_hold,
	.start = kvblk_record_start,
	.submit = record_submit,
	.identify = record_identify,
	.failed = record_failed,
	.damaged = record_damaged,
};
