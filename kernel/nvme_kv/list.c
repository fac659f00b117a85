// SPDX-License-Identifier: GPL-2.0
/*
 * Keys of the node for NVMe commands, for the List command.
 *
 * The index does not store keys, but has the tenant of each block. The block's header has the key.
 *
 * The order of keys is by stripe of the index, then by token. Both are constant while the pool is
 * up, so a list may continue from any key, even a removed one.
 *
 * The rules:
 * - A call reads at most LIST_KEYS headers, but may scan the whole index. It stops if the task is
 *   killed or the deadline passes.
 * - The headers of a page are read together. A call that gives up leaves them to their bios,
 *   which free them. Until then they count as detached in the file's budget.
 * - The entries of a stripe are pinned before the next stripe is scanned, because a moving block
 *   could be missed in both places.
 */
#include <linux/slab.h>
#include <linux/unaligned.h>

#include "nvme_kv/nvme_kv.h"

/* Headers read together, and by one call. */
#define PAGE_KEYS	64
#define LIST_KEYS	1024

/* Position of a walk: in @stripe, at entries with @token or a higher token. */
struct walk {
	u32 stripe;
	u64 token;
};

struct key_page;

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
	struct kvblk_pool *pool;		/* with a reference to pool->users */
	struct kvblk_file *file;		/* with a reference */
	u32 given_up;				/* bytes counted as detached in the file's budget */
	u32 nr;					/* valid @slots and @headers */
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
	struct kvblk_pool *pool = page->pool;
	u32 i;

	if (!refcount_dec_and_test(&page->refs))
		return;
	for (i = 0; i < page->nr; i++) {
		header_unpin(&page->headers[i]);
		kvblk_header_free(page->headers[i].data, page->slots[i].len);
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

static void stripe_take(struct key_page *page, struct kvblk_file *file, const struct walk *walk)
{
	struct kvblk_index *idx = &file->pool->index;
	u64 bucket = (u64)walk->stripe * idx->stripe_buckets;
	u64 end = bucket + idx->stripe_buckets;
	struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET];
	u32 now = kvblk_now(file->pool), base = page->nr;
	unsigned int i, nr;

	for (; bucket < end; bucket++) {
		nr = kvblk_index_entries(idx, bucket, now, entries);
		for (i = 0; i < nr; i++)
			if (entries[i].slot.tenant == file->tenant &&
			    entries[i].slot.place >= walk->token)
				page_take(page, base, &entries[i].slot);
	}
}

/* References the segments from @base on. Returns false, without any, if a block has moved. */
static bool page_pin(struct key_page *page, u32 base)
{
	u32 i;

	for (i = base; i < page->nr; i++) {
		struct header_read *header = &page->headers[i];

		header->seg = kvblk_segment_get(page->pool, &page->slots[i],
						&header->member, &header->gen);
		if (header->seg)
			continue;
		while (i-- > base)
			header_unpin(&page->headers[i]);
		return false;
	}
	return true;
}

/* Adds the pinned entries of the walk's stripe, as far as there is space. */
static void page_stripe(struct key_page *page, struct kvblk_file *file, const struct walk *walk)
{
	u32 base = page->nr, tries;

	/* retry as gets do, because a moved block is found at its new place */
	for (tries = 0; tries < 4; tries++) {
		page->nr = base;
		stripe_take(page, file, walk);
		if (page_pin(page, base))
			return;
	}
	/* a member leaves: take what is left of the stripe */
	for (; base < page->nr; base++) {
		struct header_read *header = &page->headers[base];

		header->seg = kvblk_segment_get(page->pool, &page->slots[base],
						&header->member, &header->gen);
	}
}

/* Finds the next entries and advances @walk. Returns 0, -EINTR, -ETIME or -ENODEV. */
static int page_find(struct key_page *page, struct kvblk_file *file, struct walk *walk,
		     u64 deadline)
{
	bool full;

	while (walk->stripe < file->pool->index.nr_stripes) {
		page_stripe(page, file, walk);
		full = page->nr == PAGE_KEYS;
		walk->token = full ? page->slots[PAGE_KEYS - 1].place + 1 : 0;
		if (!walk->token)
			walk->stripe++;
		if (full)
			return 0;
		cond_resched();
		if (percpu_ref_is_dying(&page->pool->users))
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
	header->data = kvblk_header_alloc(slot->len, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	if (!header->data)
		return -ENOMEM;
	bvec_set_virt(&header->bv, header->data, kvblk_header_bytes(slot->len));
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

/* Waits for all headers. Returns 0, -EINTR or -ETIME. */
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
	int err = page_submit(page);

	if (!err)
		err = page_wait(page, deadline);
	if (!err)
		return 0;
	/* a header has two units at most */
	page->given_up = page->nr * 2 * KVBLK_UNIT;
	atomic64_add(page->given_up, &page->file->budget.detached);
	return err;
}

/* Returns the length of the key in the header, or 0 if the header is invalid. */
static u32 header_key(struct kvblk_file *file, const struct kvblk_slot *slot,
		      const struct header_read *header, const u8 **key)
{
	struct kvblk_pool *pool = file->pool;
	struct kvblk_rec rec;

	if (!header->data || header->io.status ||
	    !kvblk_record_identify(&header->place, slot->len, header->data,
				   kvblk_trust_mac(&pool->secret), &rec))
		return 0;
	if (rec.tenant != file->tenant || rec.key_len > KVBLK_NVME_KEY_MAX ||
	    kvblk_index_token(&pool->index, rec.id) != slot->place)
		return 0;
	*key = rec.key;
	return rec.key_len;
}

/* Appends the keys of a page at @to + @used. Returns true if there is no space for a key. */
static bool page_list(struct key_page *page, struct kvblk_file *file, u8 *to, u32 size, u32 *used)
{
	const u8 *key;
	u32 i, len, need;

	for (i = 0; i < page->nr; i++) {
		len = header_key(file, &page->slots[i], &page->headers[i], &key);
		if (!len)
			continue;
		need = round_up(sizeof(__le16) + len, sizeof(__le32));
		if (*used + need > size)
			return true;
		put_unaligned_le16(len, to + *used);
		memcpy(to + *used + sizeof(__le16), key, len);
		*used += need;
		le32_add_cpu((__le32 *)to, 1);
	}
	return false;
}

static struct key_page *page_new(struct kvblk_file *file)
{
	struct kvblk_pool *pool = file->pool;
	struct key_page *page __free(kfree) = kzalloc(sizeof(*page), GFP_KERNEL_ACCOUNT);

	if (!page)
		return ERR_PTR(-ENOMEM);
	if (!percpu_ref_tryget_live(&pool->users))
		return ERR_PTR(-ENODEV);
	refcount_set(&page->refs, 1);
	init_completion(&page->completed);
	page->pool = pool;
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
		err = page_find(page, file, &walk, deadline);
		if (!err)
			err = page_read(page, deadline);
		if (!err)
			full = page_list(page, file, to, size, &used);
		page_put(page);
	}
	return err ?: used;
}
