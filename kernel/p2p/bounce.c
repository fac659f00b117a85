// SPDX-License-Identifier: GPL-2.0
/*
 * Gets into a device's memory that the member cannot reach, through a chunk of kernel memory. The
 * chunk has two halves: while the CPU copies one, the member fills the other. If several such gets
 * are active, a chunk is filled as a whole, with half the interrupts and wakeups. The rules:
 * - A get has one chunk at a time. No get waits for one: if all are in use, a get of a large block
 *   allocates a smaller chunk of its own, charged to the file's budget. Other gets, and those
 *   without memory for that, read the whole block into kernel memory.
 * - A device may write less than it reports, so a chunk may have bytes of another tenant. Either
 *   they are wiped before the read, or only verified chunks of the payload are copied.
 * - Parts are copied in order. The bytes of a chunk of the payload are copied right after the
 *   chunk's verification, while they are in the cache. An error is returned once no I/O is in
 *   flight. The caller clears the bytes copied so far, because that may need page faults.
 * - Copies use the caller's mapping, mostly write-combining, where string copies stream (Intel SDM
 *   vol. 1, 7.3.9.3). The kernel's is uncached.
 * - Copies take no page faults, because a segment is held. If a fault is needed, the get is
 *   repeated with memory for the whole block.
 */
#include <linux/slab.h>

#include "request.h"

enum half_state {
	HALF_IDLE,			/* owned by the get */
	HALF_FLYING,
	HALF_LANDED,
	HALF_AWAITED,			/* in flight; completion resumes the get */
};

struct half {
	struct kvblk_bounce *bounce;
	struct kvblk_io io;
	struct bio_vec bv;
	atomic_t state;
};

#define OWNER_MIXED	U32_MAX		/* no tenant */

/* A chunk, and the get that uses it. */
struct kvblk_bounce {
	struct page *mem;
	u32 bytes;			/* size of @mem */
	int node;			/* NUMA node of @mem */
	bool busy;			/* in use by a get; pool->bounce.lock */
	u32 owner;			/* tenant of all bytes of @mem, or OWNER_MIXED */
	u32 part;			/* bytes of one I/O, half or all of @mem */
	struct kvblk_req *req;
	void (*completed)(struct kvblk_req *req);	/* resumes @req after I/O; any context */
	const __le32 *crcs;		/* checksums of the block, or NULL */
	u32 at;				/* payload offset of the part to copy next */
	u32 asked;			/* payload offset of the part to read next */
	u32 end;			/* payload offset of the end */
	bool begun;			/* bytes were copied to the caller */
	int err;			/* error to return when no I/O is in flight */
	struct half half[2];
};

static struct kvblk_bounce *bounce_alloc(int node, u32 bytes, gfp_t gfp)
{
	struct kvblk_bounce *b __free(kfree) = kzalloc_node(sizeof(*b), gfp | __GFP_NOWARN, node);

	if (!b)
		return NULL;
	b->mem = alloc_pages_node(node, gfp | __GFP_NOWARN | __GFP_NORETRY, get_order(bytes));
	if (!b->mem)
		return NULL;
	b->bytes = bytes;
	b->node = node;
	b->part = bytes / 2;
	b->owner = OWNER_MIXED;
	b->half[0].bounce = b;
	b->half[1].bounce = b;
	return_ptr(b);
}

static void bounce_free(struct kvblk_bounce *b)
{
	if (!b)
		return;
	__free_pages(b->mem, get_order(b->bytes));
	kfree(b);
}

/* Takes an idle chunk, preferably of @node, or installs @fresh. @room: there is an empty slot. */
static struct kvblk_bounce *bounce_take(struct kvblk_pool *pool, int node,
					struct kvblk_bounce *fresh, bool *room)
{
	u32 i, limit = READ_ONCE(pool->tun.bounce_chunks);
	struct kvblk_bounce *found = NULL, **empty = NULL;
	bool alone = true;

	guard(spinlock)(&pool->bounce.lock);
	for (i = 0; i < limit; i++) {
		struct kvblk_bounce *b = pool->bounce.chunks[i];

		if (!b)
			empty = &pool->bounce.chunks[i];
		else if (b->busy)
			alone = false;
		else if (!found || b->node == node)
			found = b;
	}
	*room = empty;
	if (fresh && empty)
		*empty = found = fresh;
	else if (!fresh && empty && found && found->node != node)
		found = NULL;
	if (found) {
		found->busy = true;
		found->part = KVBLK_BOUNCE_BYTES / (alone ? 2 : 1);
	}
	return found;
}

static struct kvblk_bounce *bounce_begin(struct kvblk_bounce *b, struct kvblk_req *req, bool wipe,
					 void (*completed)(struct kvblk_req *req))
{
	if (!b)
		return NULL;
	if (b->owner != req->tenant) {
		if (wipe)
			memset(page_address(b->mem), 0, b->bytes);
		b->owner = wipe ? req->tenant : OWNER_MIXED;
	}
	b->req = req;
	b->completed = completed;
	return b;
}

static int bounce_node(const struct kvblk_req *req)
{
	return bdev_get_queue(req->media.flash->bdev)->node;
}

struct kvblk_bounce *kvblk_bounce_get(struct kvblk_req *req, bool wipe,
				      void (*completed)(struct kvblk_req *req))
{
	struct kvblk_pool *pool = req->pool;
	struct kvblk_bounce *b, *fresh;
	int node = bounce_node(req);
	bool room;

	b = bounce_take(pool, node, NULL, &room);
	if (!b && room) {
		fresh = bounce_alloc(node, KVBLK_BOUNCE_BYTES, GFP_KERNEL);
		b = bounce_take(pool, node, fresh, &room);
		if (b != fresh)
			bounce_free(fresh);
	}
	return bounce_begin(b, req, wipe, completed);
}

struct kvblk_bounce *kvblk_bounce_own(struct kvblk_req *req, bool wipe,
				      void (*completed)(struct kvblk_req *req))
{
	/* without a wait: memory for the whole block, in small pieces, is easier to find */
	return bounce_begin(bounce_alloc(bounce_node(req), KVBLK_BOUNCE_OWN_BYTES,
					 GFP_KERNEL_ACCOUNT & ~__GFP_DIRECT_RECLAIM),
			    req, wipe, completed);
}

void kvblk_bounce_put(struct kvblk_pool *pool, struct kvblk_bounce *b)
{
	if (b->bytes == KVBLK_BOUNCE_OWN_BYTES)
		return bounce_free(b);
	guard(spinlock)(&pool->bounce.lock);
	b->busy = false;
}

void kvblk_bounce_trim(struct kvblk_pool *pool, u32 keep)
{
	struct kvblk_bounce *b;
	u32 i;

	for (i = keep; i < KVBLK_BOUNCES_MAX; i++) {
		scoped_guard(spinlock, &pool->bounce.lock) {
			b = pool->bounce.chunks[i];
			if (b && !b->busy)
				pool->bounce.chunks[i] = NULL;
			else
				b = NULL;
		}
		bounce_free(b);
	}
}

static void half_done(struct kvblk_io *io)
{
	struct half *half = container_of(io, struct half, io);
	struct kvblk_bounce *b = half->bounce;

	if (atomic_cmpxchg(&half->state, HALF_FLYING, HALF_LANDED) == HALF_AWAITED) {
		atomic_set(&half->state, HALF_LANDED);
		b->completed(b->req);
	}
}

static struct half *half_of(struct kvblk_bounce *b, u32 at)
{
	return &b->half[(at - b->req->read.from) / b->part % (b->bytes / b->part)];
}

static void *half_data(struct kvblk_bounce *b, const struct half *half)
{
	return page_address(b->mem) + (half - b->half) * b->part;
}

static void part_submit(struct kvblk_bounce *b)
{
	struct half *half = half_of(b, b->asked);
	u32 bytes = min(b->end - b->asked, b->part);
	struct kvblk_req *req = b->req;
	u64 pos = kvblk_slot_pos(req->media.flash, &req->slot) + req->header_bytes +
		  b->asked;

	/* bytes behind the payload's end are padding on media */
	bvec_set_virt(&half->bv, half_data(b, half), round_up(bytes, KVBLK_UNIT));
	b->asked += bytes;
	atomic_set(&half->state, HALF_FLYING);
	kvblk_io_start(&half->io, req->media.flash, half_done);
	kvblk_io_submit(&half->io, REQ_OP_READ, pos, &half->bv, 1);
	kvblk_io_end(&half->io);
}

void kvblk_bounce_submit(struct kvblk_bounce *b, u32 end)
{
	b->crcs = NULL;
	b->at = b->req->read.from;
	b->asked = b->at;
	b->end = end;
	b->begun = false;
	b->err = 0;
	part_submit(b);
	if (b->asked < end && b->part < b->bytes)
		part_submit(b);
}

void kvblk_bounce_check(struct kvblk_bounce *b, const __le32 *crcs)
{
	b->crcs = crcs;
}

/* Returns whether the half is complete. Otherwise the get is in flight again. */
static bool half_completed(struct kvblk_bounce *b, struct half *half)
{
	struct kvblk_req *req = b->req;

	if (atomic_read_acquire(&half->state) != HALF_FLYING) {
		atomic_set(&half->state, HALF_IDLE);
		return true;
	}
	/* a detached request stays detached */
	atomic_cmpxchg(&req->ownership.state, KVBLK_REQ_DONE, KVBLK_REQ_INFLIGHT);
	/* from here on another context may own the get */
	if (atomic_cmpxchg(&half->state, HALF_FLYING, HALF_AWAITED) == HALF_LANDED)
		b->completed(req);
	return false;
}

/* Copies what the caller wants of the @bytes in @half, each chunk after its verification. */
static int part_copy(struct kvblk_bounce *b, const struct half *half, u32 bytes)
{
	const struct kvblk_req *req = b->req;
	u32 from = max(b->at, req->op.offset), to = from - req->op.offset;
	u32 end = min(b->at + bytes, req->op.offset + req->read.want);

	if (!b->crcs) {
		/* the policy has changed during the read: the device may have left others' bytes */
		if (b->owner != req->tenant)
			return -EFAULT;
		return kvblk_src_write(&req->src, to, half_data(b, half) + (from - b->at),
				       end - from);
	}
	return kvblk_vectors_open_out(req->integrity, &half->bv, bytes, from - b->at, end - from,
				      &req->src, to, b->crcs + (b->at >> KVBLK_CHUNK_SHIFT));
}

int kvblk_bounce_run(struct kvblk_bounce *b, int err)
{
	struct kvblk_req *req = b->req;

	/* without the caller end at once; otherwise finish a copy that has begun */
	if (err == -EINTR || (!b->err && !b->begun))
		b->err = err;
	while (!b->err && b->at < b->end) {
		struct half *half = half_of(b, b->at);
		u32 bytes = min(b->end - b->at, b->part);

		if (!half_completed(b, half))
			return -EINPROGRESS;
		if (half->io.status) {
			/* a medium error removes the entry, see kvblk_read_bad_medium() */
			req->media.io.status = half->io.status;
			b->err = -EIO;
			break;
		}
		/* before the copy, which may fail half-way */
		b->begun = true;
		b->err = part_copy(b, half, bytes);
		b->at += bytes;
		if (!b->err && b->asked < b->end)
			part_submit(b);
	}
	if (!half_completed(b, &b->half[0]) || !half_completed(b, &b->half[1]))
		return -EINPROGRESS;
	if (b->err && b->begun)
		req->partly = max(req->partly, req->read.want);
	return b->err;
}
