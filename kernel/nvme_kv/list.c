// SPDX-License-Identifier: GPL-2.0
/*
 * The List command: the index has the tenant of each block, the block's header has the key. Keys
 * are ordered by stripe of the index, then by token: constant while the pool is up, so a list may
 * continue from any key, even a removed one. The rules:
 * - A call reads at most LIST_KEYS headers, but may scan the whole index. It stops if the task is
 *   killed or the deadline passes.
 * - The headers of a page are read together. If a call gives up, their bios free them; until then
 *   they count as detached in the file's budget.
 * - The entries of a stripe are pinned before the next stripe is scanned, because a moving block
 *   could be missed in both places.
 */
#include <linux/slab.h>
#include <linux/unaligned.h>

#include "nvme_kv/nvme_kv.h"

#define PAGE_KEYS	64	/* headers read together */
#define LIST_KEYS	1024	/* headers read by one call */

/* Position of a walk: in @stripe, at entries with @token or a higher token. */
struct walk {
	u32 stripe;
	u64 token;
};

struct header_read {
	struct key_page *page;
	struct kvblk_io io;
	struct kvblk_member *member;
	struct kvblk_segment *seg;	/* reference held, or NULL: not to be read, or complete */
	u64 gen;
	struct kvblk_place place;
	struct bio_vec bv;
	void *data;			/* NULL if not read */
};

/* Headers read together. */
struct key_page {
	refcount_t refs;			/* the walk's, and one for each header in flight */
	atomic_t pending;	/* headers in flight, plus one while headers are being submitted */
	struct completion completed;		/* no header is in flight */
	struct kvblk_file *file;		/* with a reference, and one to file->pool->users */
	u32 given_up;				/* bytes counted as detached in the file's budget */
	u32 nr;
	struct kvblk_slot slots[PAGE_KEYS];	/* entries found in the index, in order */
	struct header_read headers[PAGE_KEYS];	/* of each slot */
};

static void header_unpin(struct header_read *header)
{
	if (header->seg)
		kvblk_segment_put(header->member, header->seg);
	header->seg = NULL;
}

/* Drops a reference; the last one frees the page. Any context. */
static void page_put(struct key_page *page)
{
	struct kvblk_file *file = page->file;
	struct kvblk_pool *pool = file->pool;
	u32 i;

	if (!refcount_dec_and_test(&page->refs))
		return;
	for (i = 0; i < page->nr; i++) {
		header_unpin(&page->headers[i]);
		kvblk_header_free(page->headers[i].data, false, page->slots[i].len);
	}
	atomic64_sub(page->given_up, &file->budget.detached);
	kfree(page);
	kvblk_file_put(file);
	percpu_ref_put(&pool->users);
}

static void page_completed(struct key_page *page)
{
	if (atomic_dec_and_test(&page->pending))
		complete(&page->completed);
	page_put(page);
}

static void header_completed(struct kvblk_io *io)
{
	struct header_read *header = container_of(io, struct header_read, io);

	header_unpin(header);
	page_completed(header->page);
}

/* Inserts @slot in order, from @base on, unless behind the end of a full page. */
static void page_take(struct key_page *page, u32 base, const struct kvblk_slot *slot)
{
	u32 i = page->nr;

	if (i == PAGE_KEYS && slot->place >= page->slots[i - 1].place)
		return;
	while (i > base && slot->place <= page->slots[i - 1].place)
		i--;
	/* a block that has moved is found twice: the later place is newer */
	if (i < page->nr && slot->place == page->slots[i].place) {
		page->slots[i] = *slot;
		return;
	}
	page->nr = min(page->nr + 1, PAGE_KEYS);
	memmove(&page->slots[i + 1], &page->slots[i], (page->nr - i - 1) * sizeof(*slot));
	page->slots[i] = *slot;
}

static void stripe_take(struct key_page *page, const struct walk *walk)
{
	struct kvblk_file *file = page->file;
	struct kvblk_index *idx = &file->pool->index;
	u64 bucket = (u64)walk->stripe * idx->stripe_buckets;
	u64 end = bucket + idx->stripe_buckets;
	struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET];
	u32 now = kvblk_now(file->pool), base = page->nr;
	unsigned int i, nr;

	for (; bucket < end; bucket++) {
		nr = kvblk_index_entries(idx, bucket, now, entries);
		for (i = 0; i < nr; i++)
			/* a foreign header is not read here */
			if (entries[i].slot.tenant == file->tenant &&
			    !kvblk_slot_foreign(&entries[i].slot) &&
			    entries[i].slot.place >= walk->token)
				page_take(page, base, &entries[i].slot);
	}
}

/* References the segment of slot @i. Returns false if the block has moved. */
static bool header_pin(struct key_page *page, u32 i)
{
	struct header_read *header = &page->headers[i];

	header->seg = kvblk_segment_get(page->file->pool, &page->slots[i], &header->member,
					&header->gen);
	return header->seg;
}

/* Adds the pinned entries of the walk's stripe, as far as there is space. */
static void page_stripe(struct key_page *page, const struct walk *walk)
{
	u32 base = page->nr, tries = 4, i;
	bool moved;

	for (;;) {
		page->nr = base;
		stripe_take(page, walk);
		moved = false;
		for (i = base; i < page->nr; i++)
			moved |= !header_pin(page, i);
		/* after the last try, a member leaves: keep what is left of the stripe */
		if (!moved || !--tries)
			return;
		/* retry as gets do, because a moved block is found at its new place */
		for (i = base; i < page->nr; i++)
			header_unpin(&page->headers[i]);
	}
}

/* Finds the next entries and advances @walk. Returns 0, -EINTR, -ETIME or -ENODEV. */
static int page_find(struct key_page *page, struct walk *walk, u64 deadline)
{
	struct kvblk_pool *pool = page->file->pool;
	bool full;

	while (walk->stripe < pool->index.nr_stripes) {
		page_stripe(page, walk);
		full = page->nr == PAGE_KEYS;
		walk->token = full ? page->slots[PAGE_KEYS - 1].place + 1 : 0;
		if (!walk->token)
			walk->stripe++;
		if (full)
			return 0;
		cond_resched();
		if (percpu_ref_is_dying(&pool->users))
			return -ENODEV;
		if (kvblk_interrupted())
			return -EINTR;
		if (deadline && ktime_get_ns() >= deadline)
			return -ETIME;
	}
	return 0;
}

/* Submits the read of a header, unless the member is unreadable. Returns 0 or -ENOMEM. */
static int header_submit(struct key_page *page, u32 i)
{
	struct header_read *header = &page->headers[i];
	const struct kvblk_slot *slot = &page->slots[i];
	struct kvblk_member *member = header->member;

	if (!header->seg || !kvblk_flash_may_read(&member->flash))
		return 0;
	header->data = kvblk_header_alloc(false, slot->len, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!header->data)
		return -ENOMEM;
	bvec_set_virt(&header->bv, header->data, kvblk_header_bytes(false, slot->len));
	header->page = page;
	header->place = kvblk_slot_place(&member->flash, slot, header->gen);
	refcount_inc(&page->refs);
	atomic_inc(&page->pending);
	kvblk_io_start(&header->io, &member->flash, header_completed);
	kvblk_io_submit(&header->io, REQ_OP_READ, kvblk_slot_pos(&member->flash, slot),
			&header->bv, 1);
	kvblk_io_end(&header->io);
	return 0;
}

/* Submits all reads. Returns 0, or -ENOMEM with some reads in flight. */
static int page_submit(struct key_page *page)
{
	struct kvblk_sigpipe sigpipe;
	int err = 0;
	u32 i;

	atomic_set(&page->pending, 1);
	kvblk_sigpipe_block(&sigpipe);
	for (i = 0; i < page->nr && !err; i++)
		err = header_submit(page, i);
	kvblk_sigpipe_restore(&sigpipe);
	refcount_inc(&page->refs);
	page_completed(page);
	return err;
}

static int page_wait(struct key_page *page, u64 deadline)
{
	long left;

	/* poll, because io_uring asks a worker to exit without a wakeup */
	do {
		left = wait_for_completion_killable_timeout(&page->completed, HZ / 10);
		if (left < 0 || kvblk_interrupted())
			return -EINTR;
		if (!left && deadline && ktime_get_ns() >= deadline)
			return -ETIME;
	} while (!left);
	return 0;
}

static int page_read(struct key_page *page, u64 deadline)
{
	int err = page_submit(page) ?: page_wait(page, deadline);

	if (err) {
		page->given_up = page->nr * kvblk_header_bytes(false, KVBLK_VALUE_MAX);
		atomic64_add(page->given_up, &page->file->budget.detached);
	}
	return err;
}

/* Returns whether header @i is valid and has a key of these commands; sets @rec. */
static bool header_decode(const struct key_page *page, u32 i, struct kvblk_rec *rec)
{
	const struct header_read *header = &page->headers[i];
	const struct kvblk_slot *slot = &page->slots[i];
	struct kvblk_pool *pool = page->file->pool;

	return header->data && !header->io.status &&
	       kvblk_record_identify(&header->place, false, slot->len, header->data,
				     &pool->secret, rec) &&
	       rec->tenant == page->file->tenant && rec->key_len <= KVBLK_NVME_KEY_MAX &&
	       kvblk_index_token(&pool->index, rec->id) == slot->place;
}

/* Appends the keys of a page at @to + @used. Returns true if there is no space for a key. */
static bool page_list(const struct key_page *page, u8 *to, u32 size, u32 *used)
{
	struct kvblk_rec rec;
	u32 i, need;

	for (i = 0; i < page->nr; i++) {
		if (!header_decode(page, i, &rec))
			continue;
		need = round_up(sizeof(__le16) + rec.key_len, sizeof(__le32));
		if (*used + need > size)
			return true;
		put_unaligned_le16(rec.key_len, to + *used);
		memcpy(to + *used + sizeof(__le16), rec.key, rec.key_len);
		*used += need;
		le32_add_cpu((__le32 *)to, 1);
	}
	return false;
}

static struct key_page *page_new(struct kvblk_file *file)
{
	struct key_page *page __free(kfree) = kzalloc(sizeof(*page), GFP_KERNEL_ACCOUNT);

	if (!page)
		return ERR_PTR(-ENOMEM);
	if (!percpu_ref_tryget_live(&file->pool->users))
		return ERR_PTR(-ENODEV);
	refcount_set(&page->refs, 1);
	init_completion(&page->completed);
	page->file = file;
	refcount_inc(&file->refs);
	return_ptr(page);
}

int kvblk_nvme_list(struct kvblk_file *file, const struct kvblk_id *from, u64 deadline,
		    void *to, u32 size)
{
	struct kvblk_index *idx = &file->pool->index;
	u32 looked, used = sizeof(__le32);
	struct walk walk = {};
	bool full = false;
	int err = 0;

	/* as kvblk_req_crowded() for operations */
	if (atomic64_read(&file->budget.detached) > (s64)kvblk_file_limit(file))
		return -ENOMEM;
	if (from) {
		walk.stripe = kvblk_index_stripe(idx, *from);
		walk.token = kvblk_index_token(idx, *from);
	}
	for (looked = 0; !err && !full && walk.stripe < idx->nr_stripes; looked += PAGE_KEYS) {
		struct key_page *page;

		/* go on while the start is the only key, because such a list means the end */
		if (looked >= LIST_KEYS && le32_to_cpu(*(__le32 *)to) > 1)
			break;
		page = page_new(file);
		if (IS_ERR(page))
			return PTR_ERR(page);
		err = page_find(page, &walk, deadline) ?: page_read(page, deadline);
		if (!err)
			full = page_list(page, to, size, &used);
		page_put(page);
	}
	return err ?: used;
}
