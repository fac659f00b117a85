// SPDX-License-Identifier: GPL-2.0
/*
 * Gets into a device's memory that the member can't reach: through a chunk of
 * kernel memory, in halves. While the CPU copies one, the member fills the other.
 * Among other such gets there is always one to copy and one to fill: then a
 * chunk is filled as a whole, with half the interrupts and wakeups.
 *
 * The rules:
 * - One get has a chunk at a time. A get that finds none takes memory for the
 *   whole block, so no get waits for one. What another tenant left is wiped.
 * - Parts come in their order, each is checked before it is copied. What went
 *   wrong is told when no I/O is left, and what was copied is the caller's to clear:
 *   page faults may be needed for that, too.
 * - Copies go through the caller's mapping: it has the memory type that the
 *   device's driver chose, mostly write-combining, where string copies stream
 *   (Intel SDM vol. 1, 7.3.9.3), while the kernel's own is uncached.
 * - They take no page faults, since a segment is held. Where one is needed, the
 *   get is done again with memory for the whole block.
 */
#include <linux/slab.h>

#include "request.h"

enum half_state {
	HALF_IDLE,			/* the get's */
	HALF_FLYING,
	HALF_LANDED,
	HALF_AWAITED,			/* flying, and its end is the get's turn */
};

struct half {
	struct kvblk_bounce *bounce;
	struct kvblk_io io;
	struct bio_vec bv;
	atomic_t state;
};

/*
 * struct kvblk_bounce - a chunk and what a get does with it
 * @mem: KVBLK_BOUNCE_BYTES
 * @node: where that is
 * @landed: what @req waited for is over; any context
 * @busy: under pool->bounce_lock
 * @part: what one I/O reads, a half or all of @mem
 * @tenant: of the last get that had it
 * @at: byte of the payload whose turn it is, where a part begins
 * @asked: the first that no I/O was started for
 * @end: behind the last
 * @begun: something was copied
 * @err: why it fails, when its I/O is over
 */
struct kvblk_bounce {
	struct page *mem;
	int node;
	bool busy;
	u16 tenant;
	u32 part;
	struct kvblk_req *req;
	void (*landed)(struct kvblk_req *req);
	const __le32 *crcs;		/* of the block, or NULL */
	u32 at;
	u32 asked;
	u32 end;
	bool begun;
	int err;
	struct half half[2];
};

/* ---- the set ---- */

static struct kvblk_bounce *bounce_alloc(int node)
{
	struct kvblk_bounce *b = kzalloc_node(sizeof(*b), GFP_KERNEL, node);

	if (!b)
		return NULL;
	b->mem = alloc_pages_node(node, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN |
				  __GFP_NORETRY,
				  get_order(KVBLK_BOUNCE_BYTES));
	if (!b->mem) {
		kfree(b);
		return NULL;
	}
	b->node = node;
	b->half[0].bounce = b;
	b->half[1].bounce = b;
	return b;
}

static void bounce_free(struct kvblk_bounce *b)
{
	if (!b)
		return;
	__free_pages(b->mem, get_order(KVBLK_BOUNCE_BYTES));
	kfree(b);
}

/* An idle one, of @node if there is; else @fresh, if there is room for it. */
static struct kvblk_bounce *bounce_take(struct kvblk_pool *pool, int node,
					struct kvblk_bounce *fresh, bool *room)
{
	u32 i, limit = READ_ONCE(pool->tun.bounce_chunks);
	struct kvblk_bounce *found = NULL, **empty = NULL;
	bool alone = true;

	guard(spinlock)(&pool->bounce_lock);
	for (i = 0; i < limit; i++) {
		struct kvblk_bounce *b = pool->bounces[i];

		if (!b)
			empty = &pool->bounces[i];
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

struct kvblk_bounce *kvblk_bounce_get(struct kvblk_req *req,
				      void (*landed)(struct kvblk_req *req))
{
	int node = bdev_get_queue(req->media.member->bdev)->node;
	struct kvblk_pool *pool = req->pool;
	struct kvblk_bounce *b, *fresh;
	bool room;

	b = bounce_take(pool, node, NULL, &room);
	if (!b && room) {
		fresh = bounce_alloc(node);
		b = bounce_take(pool, node, fresh, &room);
		if (b != fresh)
			bounce_free(fresh);
	}
	if (!b)
		return NULL;
	if (b->tenant != req->tenant)
		memset(page_address(b->mem), 0, KVBLK_BOUNCE_BYTES);
	b->tenant = req->tenant;
	b->req = req;
	b->landed = landed;
	return b;
}

void kvblk_bounce_put(struct kvblk_pool *pool, struct kvblk_bounce *b)
{
	guard(spinlock)(&pool->bounce_lock);
	b->busy = false;
}

void kvblk_bounce_trim(struct kvblk_pool *pool, u32 keep)
{
	struct kvblk_bounce *b;
	u32 i;

	for (i = keep; i < KVBLK_BOUNCES_MAX; i++) {
		scoped_guard(spinlock, &pool->bounce_lock) {
			b = pool->bounces[i];
			if (b && !b->busy)
				pool->bounces[i] = NULL;
			else
				b = NULL;
		}
		bounce_free(b);
	}
}

/* ---- a get ---- */

static void half_done(struct kvblk_io *io)
{
	struct half *half = container_of(io, struct half, io);
	struct kvblk_bounce *b = half->bounce;

	if (atomic_cmpxchg(&half->state, HALF_FLYING, HALF_LANDED) == HALF_AWAITED) {
		atomic_set(&half->state, HALF_LANDED);
		b->landed(b->req);
	}
}

static struct half *half_of(struct kvblk_bounce *b, u32 at)
{
	return &b->half[(at - b->req->from) / b->part % (KVBLK_BOUNCE_BYTES / b->part)];
}

static void *half_data(struct kvblk_bounce *b, const struct half *half)
{
	return page_address(b->mem) + (half - b->half) * b->part;
}

/* Starts to read the next part. */
static void part_submit(struct kvblk_bounce *b)
{
	struct half *half = half_of(b, b->asked);
	u32 bytes = min(b->end - b->asked, b->part);
	struct kvblk_req *req = b->req;
	u64 pos = kvblk_seg_pos(req->media.member, req->media.seg - req->media.member->segs,
				req->slot.off + req->header_units) + b->asked;

	/* what is read behind the payload's end is padding */
	bvec_set_virt(&half->bv, half_data(b, half), round_up(bytes, KVBLK_UNIT));
	b->asked += bytes;
	atomic_set(&half->state, HALF_FLYING);
	kvblk_io_start(&half->io, req->media.member, half_done);
	kvblk_io_submit(&half->io, REQ_OP_READ, pos, &half->bv, 1);
	kvblk_io_end(&half->io);
}

void kvblk_bounce_submit(struct kvblk_bounce *b, u32 end)
{
	b->crcs = NULL;
	b->at = b->req->from;
	b->asked = b->at;
	b->end = end;
	b->begun = false;
	b->err = 0;
	part_submit(b);
	if (b->asked < end && b->part < KVBLK_BOUNCE_BYTES)
		part_submit(b);
}

void kvblk_bounce_check(struct kvblk_bounce *b, const __le32 *crcs)
{
	b->crcs = crcs;
}

/* It is over, or (false) the get is in flight again and comes back when it is. */
static bool half_landed(struct kvblk_bounce *b, struct half *half)
{
	struct kvblk_req *req = b->req;

	if (atomic_read_acquire(&half->state) != HALF_FLYING) {
		atomic_set(&half->state, HALF_IDLE);
		return true;
	}
	/* what was detached stays so */
	atomic_cmpxchg(&req->hand.state, KVBLK_REQ_DONE, KVBLK_REQ_INFLIGHT);
	/* from here on it may be somebody else's turn */
	if (atomic_cmpxchg(&half->state, HALF_FLYING, HALF_AWAITED) == HALF_LANDED)
		b->landed(req);
	return false;
}

/* Copies out what the caller wants of @bytes at @data, the payload's from @at on. */
static int part_copy(struct kvblk_req *req, u32 at, void *data, u32 bytes)
{
	u32 from = max(at, req->op.offset);
	u32 end = min(at + bytes, req->op.offset + req->want);

	return from >= end ? 0 :
	       kvblk_src_write(&req->src, from - req->op.offset,
			       data + (from - at), end - from);
}

int kvblk_bounce_run(struct kvblk_bounce *b, int err)
{
	struct kvblk_req *req = b->req;

	/* without the caller it ends at once; else a copy that has begun goes on */
	if (err == -EINTR || (!b->err && !b->begun))
		b->err = err;
	while (!b->err && b->at < b->end) {
		struct half *half = half_of(b, b->at);
		void *data = half_data(b, half);
		u32 bytes = min(b->end - b->at, b->part);

		if (!half_landed(b, half))
			return -EINPROGRESS;
		if (half->io.status) {
			b->err = -EIO;
			break;
		}
		if (b->crcs &&
		    !kvblk_data_check(data, bytes,
				      b->crcs + (b->at >> KVBLK_CHUNK_SHIFT))) {
			b->err = -EBADMSG;
			break;
		}
		/* with the part that fails half-way */
		b->begun = true;
		b->err = part_copy(req, b->at, data, bytes);
		b->at += bytes;
		if (!b->err && b->asked < b->end)
			part_submit(b);
	}
	if (!half_landed(b, &b->half[0]) || !half_landed(b, &b->half[1]))
		return -EINPROGRESS;
	if (b->err && b->begun)
		req->partly = max(req->partly, req->want);
	return b->err;
}
