/* SPDX-License-Identifier: GPL-2.0 */
/* Gets and prefetches: what their files share. */
#ifndef KVBLK_READ_H
#define KVBLK_READ_H

#include <linux/unaligned.h>

#include "request.h"

/**
 * struct kvblk_source - where the bytes of a block are
 * @hold: holds what the index entry req->slot names until the media half ends. Returns 0;
 *	-ESTALE: not here, try the next source; -ENOENT with req->read.miss
 * @start: starts the read. Returns as &kvblk_op_type.start
 * @submit: submits reads into the sink, between kvblk_media_submit() and kvblk_io_end()
 * @prove: finds out whether what was read is of one generation. Returns 0; -EINPROGRESS: in
 *	flight again, called again after it; -ENOENT. NULL: it is
 * @identify: verifies that what was read is the block. Returns 1: the payload must be
 *	verified, too; 0: it need not; -ENOENT
 * @failed: handles a read error if the block is not read again. Returns -ENOENT
 * @damaged: handles a payload that differs from its checksums. Returns -ENOENT
 *
 * Sources without bios have only @hold and @start.
 */
struct kvblk_source {
	int (*hold)(struct kvblk_req *req);
	int (*start)(struct kvblk_req *req);
	void (*submit)(struct kvblk_req *req);
	int (*prove)(struct kvblk_req *req);
	int (*identify)(struct kvblk_req *req);
	int (*failed)(struct kvblk_req *req);
	int (*damaged)(struct kvblk_req *req);
};

extern const struct kvblk_source kvblk_source_recall;
extern const struct kvblk_source kvblk_source_dram;
extern const struct kvblk_source kvblk_source_record;
extern const struct kvblk_source kvblk_source_foreign;
/* In order of preference, for a task that may hold a DRAM block; ends with NULL. */
extern const struct kvblk_source *const kvblk_read_sources[];

/**
 * struct kvblk_sink - where the payload of a read goes
 * @cpu_sees: the CPU can verify the payload
 * @prepare: prepares @mem. Returns 0; -EREMOTEIO: try the next sink; -EFAULT: needs a page
 *	fault; -EAGAIN: wait for memory; -ENOMEM; -ENXIO: the region is gone
 * @describe: notes the verified header @rec, or NULL
 * @failed: handles a failed read that the sink may have caused. Returns -EAGAIN, or -EIO.
 *	NULL: no sink's fault
 * @check: verifies the payload against the header. Returns 0; -EAGAIN; -EBADMSG; -ENOMEM;
 *	-ENOENT with req->read.miss
 * @finish: ends the read, with @err or 0 if it was verified. NULL: nothing to do. Returns @err;
 *	-EINPROGRESS: in flight again; -EAGAIN; -EIO or -EBADMSG: a part is unreadable or damaged
 * @deliver: copies the payload to the caller. Returns 0, -EFAULT or -ENXIO. NULL: already there
 *
 * After a read, -EAGAIN means: read again through kernel memory.
 */
struct kvblk_sink {
	bool cpu_sees;
	int (*prepare)(struct kvblk_req *req);
	void (*describe)(struct kvblk_req *req, const struct kvblk_rec *rec);
	int (*failed)(struct kvblk_req *req);
	int (*check)(struct kvblk_req *req);
	int (*finish)(struct kvblk_req *req, enum kvblk_by by, int err);
	int (*deliver)(struct kvblk_req *req);
};

extern const struct kvblk_sink kvblk_sink_dram;
extern const struct kvblk_sink kvblk_sink_direct;
extern const struct kvblk_sink kvblk_sink_device;
extern const struct kvblk_sink kvblk_sink_bounce;
extern const struct kvblk_sink kvblk_sink_copy;

/* Records why the read missed. Returns -ENOENT. */
static inline int kvblk_read_miss(struct kvblk_req *req, enum kvblk_counter why)
{
	req->read.miss = why;
	return -ENOENT;
}

/* Returns whether keys of @len bytes are equal: by words, because memcmp() is a call per get. */
static inline bool kvblk_keys_equal(const void *a, const void *b, u32 len)
{
	u32 at;

	if (unlikely(len < sizeof(u64)))
		return !memcmp(a, b, len);
	/* the last word may overlap the one before it */
	len -= sizeof(u64);
	for (at = 0; at < len; at += sizeof(u64))
		if (get_unaligned((const u64 *)(a + at)) != get_unaligned((const u64 *)(b + at)))
			return false;
	return get_unaligned((const u64 *)(a + len)) == get_unaligned((const u64 *)(b + len));
}

/*
 * Notes @rec, if it is of the requested block. Returns 0, or -ENOENT with req->read.miss. Inline:
 * most of a record just unpacked is then in registers, or unread.
 */
static __always_inline int kvblk_read_match(struct kvblk_req *req, const struct kvblk_rec *rec)
{
	/* another key with the same id: a miss, no damage */
	if (rec->tenant != req->tenant || rec->key_len != req->op.key_len ||
	    !kvblk_keys_equal(rec->key, req->key, rec->key_len))
		return kvblk_read_miss(req, KVBLK_C_MISS_ABSENT);
	if ((req->op.flags & KVBLK_OPF_LAYOUT) && rec->layout_tag != req->read.layout_tag)
		return kvblk_read_miss(req, KVBLK_C_MISS_LAYOUT);
	/* most blocks never expire: read the clock for others only */
	if (rec->expiry && kvblk_expired(rec->expiry, kvblk_now(req->pool)))
		return kvblk_read_miss(req, KVBLK_C_MISS_EXPIRED);
	req->result.layout_tag = rec->layout_tag;
	req->result.caller_tag = rec->caller_tag;
	req->integrity = rec->integrity;
	return 0;
}

/* Remembers how many bytes of the caller's memory to clear if the get fails. */
static inline void kvblk_read_dirty(struct kvblk_req *req)
{
	req->partly = max(req->partly, req->read.want);
}

/* Returns whether the task restarts the get, which must not wait for its file's budget. */
static inline bool kvblk_read_restarted(const struct kvblk_req *req)
{
	return req->read.state != KVBLK_READ_FIND;
}

static inline u32 kvblk_read_end(const struct kvblk_req *req)
{
	return min_t(u64, round_up((u64)req->op.offset + req->read.want,
				   1u << KVBLK_CHUNK_SHIFT), req->slot.len);
}

static inline const __le32 *kvblk_read_crcs(const struct kvblk_req *req)
{
	const __le32 *crcs = req->header ? kvblk_header_crcs(req->header) : req->block->rec.crcs;

	return crcs + (req->read.from >> KVBLK_CHUNK_SHIFT);
}

/* Returns whether the segment may have other payloads: of before a crash, or of another owner. */
static inline bool kvblk_read_unproven(const struct kvblk_req *req)
{
	const struct kvblk_foreign *foreign = req->media.foreign;
	const struct kvblk_foreign_segment *seg;

	if (!foreign)
		return READ_ONCE(req->media.seg->flags) & KVBLK_SEGF_UNPROVEN ||
		       READ_ONCE(req->media.flash->fenced);
	seg = &foreign->segs[kvblk_slot_segment(&foreign->flash, &req->slot)];
	/* nobody tells this node of a crash of the target before the segment is sealed */
	return READ_ONCE(seg->flags) & KVBLK_SEGF_UNPROVEN || !READ_ONCE(seg->whole);
}

/*
 * Returns whether the caller verifies a payload whose checksums callers get (kvblk_proof.crc32c).
 * A copy in DRAM is for others, too; a foreign block may be overwritten during the read; and a
 * caller cannot verify a part of a chunk.
 */
static inline bool kvblk_read_caller_checks(const struct kvblk_req *req)
{
	return unlikely(req->op.flags & KVBLK_OPF_CALLER_CHECKS) && !req->media.foreign &&
	       req->read.sink != &kvblk_sink_dram && req->read.from == req->op.offset &&
	       kvblk_read_end(req) == req->op.offset + req->read.want;
}

/* Returns whether the kernel verifies the payload, unless the policy can do without. */
static inline bool kvblk_read_sees(const struct kvblk_req *req)
{
	return req->read.sink->cpu_sees && !kvblk_read_caller_checks(req);
}

/* Returns the verdict about a record in the held segment. @seen: the CPU sees the payload. */
static inline enum kvblk_verdict kvblk_read_judge(const struct kvblk_req *req, u8 integrity,
						  bool durable, bool seen)
{
	return kvblk_proof_judge(&kvblk_proofs[integrity], &(struct kvblk_proof_case) {
		.policy = READ_ONCE(req->pool->tun.integrity),
		.unproven = kvblk_read_unproven(req),
		.integrity = integrity,
		.durable = durable,
		.seen = seen,
		.returned = req->crcs_addr,
	});
}

/* Returns whether the CPU must see the payload, even with the best checksums. */
static inline bool kvblk_read_must_see(const struct kvblk_req *req)
{
	return kvblk_read_judge(req, KVBLK_INTEGRITY_CRC32C, true, false) != KVBLK_SERVE;
}

static inline int kvblk_sink_check(struct kvblk_req *req)
{
	return kvblk_payload_open(&req->mem, req->media.sums, req->integrity,
				  kvblk_read_crcs(req)) ? 0 : -EBADMSG;
}

/*
 * Returns whether the block itself has a medium error. Only a read alone proves that: another one
 * may have been merged with a read of a bad neighbour.
 */
static inline bool kvblk_read_bad_medium(const struct kvblk_req *req)
{
	return req->media.io.status == BLK_STS_MEDIUM && req->read.alone;
}

static inline int kvblk_read_stops(const struct kvblk_req *req, enum kvblk_by by)
{
	/* also a bounce that is partly copied: the caller must not keep half a block */
	if (by == KVBLK_BY_NOBODY)
		return -EINTR;
	if (READ_ONCE(req->canceled))
		return -ECANCELED;
	return kvblk_req_late(req) ? -ETIME : 0;
}

/* Begins the media half of a read. Returns 0, -ETIME, -ENOMEM or -ENODEV. */
static inline int kvblk_read_begin(struct kvblk_req *req)
{
	if (kvblk_req_late(req))
		return -ETIME;
	if (kvblk_req_crowded(req))
		return -ENOMEM;
	return kvblk_media_begin(req) ? 0 : -ENODEV;
}

/* Implements &kvblk_source.start for records. */
int kvblk_record_start(struct kvblk_req *req);
/* Finds and holds the block. Returns 0 with req->read.source, or -ENOENT with req->read.miss. */
int kvblk_read_find(struct kvblk_req *req, const struct kvblk_source *const *sources);
/* Complete a get: failed before any I/O; with @err or its number of bytes. Return 1. */
int kvblk_read_fail(struct kvblk_req *req, int err);
int kvblk_read_over(struct kvblk_req *req, int err);
/* Verifies a completed read. Returns 0, -ENOENT, or of gets only -EAGAIN: read again. */
int kvblk_read_check(struct kvblk_req *req);

/* Prepares the first suitable sink. Returns as &kvblk_sink.prepare, but never -EREMOTEIO. */
int kvblk_sink_prepare(struct kvblk_req *req);
/* Implements &kvblk_sink.finish for a get that may be a trial of a P2P route. */
int kvblk_sink_try(struct kvblk_req *req, enum kvblk_by by, int err);
/* Keeps a verified block in DRAM. Returns false if its checksum array was not allocated. */
bool kvblk_sink_keep(struct kvblk_req *req);

#endif
