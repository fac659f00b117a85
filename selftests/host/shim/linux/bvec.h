/* SPDX-License-Identifier: GPL-2.0 */
/* Vectors of pages, where a page is its bytes: contiguous pages are an array. */
#ifndef KVBLK_SHIM_LINUX_BVEC_H
#define KVBLK_SHIM_LINUX_BVEC_H

#include <linux/bug.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/types.h>

struct page {
	u8 bytes[PAGE_SIZE];
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

struct bvec_iter {
	u64 bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
} __packed;

static inline void *page_address(const struct page *page)
{
	return (void *)page->bytes;
}

static inline void *bvec_virt(const struct bio_vec *bv)
{
	return page_address(bv->bv_page) + bv->bv_offset;
}

static inline void bvec_set_page(struct bio_vec *bv, struct page *page, unsigned int len,
				 unsigned int offset)
{
	*bv = (struct bio_vec) { .bv_page = page, .bv_len = len, .bv_offset = offset };
}

/* The rest of the vector at @iter; may be longer than a page. */
static inline struct bio_vec mp_bvec_iter_bvec(const struct bio_vec *bv, struct bvec_iter iter)
{
	struct bio_vec here = bv[iter.bi_idx];

	here.bv_offset += iter.bi_bvec_done;
	here.bv_len = min(here.bv_len - iter.bi_bvec_done, iter.bi_size);
	here.bv_page += here.bv_offset / PAGE_SIZE;
	here.bv_offset %= PAGE_SIZE;
	return here;
}

static inline bool bvec_iter_advance(const struct bio_vec *bv, struct bvec_iter *iter,
				     unsigned int bytes)
{
	unsigned int idx = iter->bi_idx;

	if (WARN_ON(bytes > iter->bi_size)) {
		iter->bi_size = 0;
		return false;
	}
	iter->bi_size -= bytes;
	bytes += iter->bi_bvec_done;
	while (bytes && bytes >= bv[idx].bv_len)
		bytes -= bv[idx++].bv_len;
	iter->bi_idx = idx;
	iter->bi_bvec_done = bytes;
	return true;
}

/* bvec_iter_advance() within one vector, as mp_bvec_iter_bvec() returned it. */
static inline void bvec_iter_advance_single(const struct bio_vec *bv, struct bvec_iter *iter,
					    unsigned int bytes)
{
	unsigned int done = iter->bi_bvec_done + bytes;

	WARN_ON(done > bv[iter->bi_idx].bv_len);
	if (done == bv[iter->bi_idx].bv_len) {
		done = 0;
		iter->bi_idx++;
	}
	iter->bi_bvec_done = done;
	iter->bi_size -= bytes;
}

#endif
