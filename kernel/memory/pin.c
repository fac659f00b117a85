// SPDX-License-Identifier: GPL-2.0
/*
 * Callers' memory as a device sees it: user pages, registered regions and fixed buffers of a
 * ring where the device can transfer them, kernel pages otherwise.
 *
 * The rule: vector 0 is for the record's header; the others are one stretch of media, a multiple of
 * 4 KiB. An end of the payload that fills no logical block goes through a kernel page, so that no
 * byte after the caller's memory is read or written. A vector may span contiguous pages: without
 * high memory they are linear in the kernel, too.
 */
#include <linux/io.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "memory/memory.h"

#ifdef CONFIG_HIGHMEM
#error kvblk needs a kernel without high memory
#endif

#define COPY_BYTES	(512ull << 10)	/* copied between two calls of cond_resched() */
#define BOUNCE_ORDER	(KVBLK_CHUNK_SHIFT - PAGE_SHIFT)	/* a checksum's chunk */

/* ---- what an operation names ---- */

/* Iterator over the contiguous stretches of a part that is no user memory. */
struct stretch {
	const struct kvblk_src *src;
	const struct kvblk_part *part;
	struct bvec_iter fixed;
	u64 at;
};

static void stretch_begin(struct stretch *s, const struct kvblk_src *src,
			  const struct kvblk_part *part)
{
	*s = (struct stretch) { .src = src, .part = part, .at = part->addr };
	if (part->kind != KVBLK_PART_FIXED)
		return;
	s->fixed.bi_size = iov_iter_count(src->fixed) + src->fixed->iov_offset;
	bvec_iter_advance(src->fixed->bvec, &s->fixed, src->fixed->iov_offset);
}

/* Returns up to @most contiguous bytes and advances. */
static struct bio_vec stretch_next(struct stretch *s, u32 most)
{
	struct bio_vec bv;

	if (s->part->kind == KVBLK_PART_FIXED) {
		bv = mp_bvec_iter_bvec(s->src->fixed->bvec, s->fixed);
		bv.bv_len = min(bv.bv_len, most);
		bvec_iter_advance(s->src->fixed->bvec, &s->fixed, bv.bv_len);
		return bv;
	}
	bv = kvblk_region_stretch(s->part->region, s->at, most);
	s->at += bv.bv_len;
	return bv;
}

bool kvblk_fixed_whole(struct kvblk_src *src)
{
	u32 len = src->parts[0].length;
	struct bio_vec bv;
	struct stretch s;
	bool first = true;

	src->first = *src->fixed->bvec;
	src->first.bv_len -= src->fixed->iov_offset;
	src->first.bv_offset += src->fixed->iov_offset;
	if (src->first.bv_len >= len) {
		/* the operation may name less than the buffer */
		src->first.bv_len = len;
		return true;
	}
	stretch_begin(&s, src, &src->parts[0]);
	for (; len; len -= bv.bv_len, first = false) {
		bv = stretch_next(&s, len);
		if ((!first && offset_in_page(bv.bv_offset)) ||
		    (len != bv.bv_len && offset_in_page(bv.bv_offset + bv.bv_len)))
			return false;
	}
	return true;
}

/* Returns the offset of the part in its first page, in the low bits. */
static u64 part_offset(const struct kvblk_src *src, const struct kvblk_part *part)
{
	if (part->kind == KVBLK_PART_USER)
		return part->addr;
	if (part->kind == KVBLK_PART_REGION)
		return part->region->addr + part->addr;
	return src->first.bv_offset;
}

bool kvblk_parts_fit(const struct kvblk_src *src, u32 bytes, struct kvblk_align align)
{
	u32 i;

	for (i = 0; i < src->nr && bytes; i++) {
		u32 len = min_t(u64, src->parts[i].length, bytes);

		if (part_offset(src, &src->parts[i]) & align.addr_mask)
			return false;
		bytes -= len;
		/* only the end of the payload may be unaligned, because other bytes follow */
		if (bytes && (len & (align.len_mask | align.addr_mask)))
			return false;
	}
	return true;
}

static bool part_is_device(const struct kvblk_part *part)
{
	return part->kind == KVBLK_PART_REGION && part->region->device;
}

static bool part_gone(const struct kvblk_part *part)
{
	return part_is_device(part) && READ_ONCE(part->region->gone);
}

/* Returns whether the CPU copies through the caller's mapping, at @addr; see p2p/bounce.c. */
static bool part_user(const struct kvblk_part *part, u64 *addr)
{
	*addr = part->addr;
	if (part->kind == KVBLK_PART_USER)
		return true;
	if (!part_is_device(part) || part->region->mm != current->mm)
		return false;
	*addr += part->region->addr;
	return true;
}

bool kvblk_src_device(const struct kvblk_src *src, bool write, phys_addr_t *addr)
{
	unsigned int gup = (write ? FOLL_WRITE : 0) | FOLL_NOFAULT;
	struct stretch s;
	u32 i;

	for (i = 0; IS_ENABLED(CONFIG_PCI_P2PDMA) && i < src->nr; i++) {
		const struct kvblk_part *part = &src->parts[i];

		if (part_is_device(part)) {
			stretch_begin(&s, src, part);
			*addr = page_to_phys(stretch_next(&s, 1).bv_page);
			return true;
		}
		if (part->kind == KVBLK_PART_USER && kvblk_user_device(part->addr, gup, addr))
			return true;
	}
	return false;
}

int kvblk_src_fault_in(const struct kvblk_src *src, u32 bytes, bool write)
{
	size_t left = 0;
	u32 i;

	for (i = 0; i < src->nr && bytes && !left; i++) {
		u64 addr, len = min_t(u64, src->parts[i].length, bytes);

		bytes -= len;
		if (!part_user(&src->parts[i], &addr))
			continue;
		if (fatal_signal_pending(current))
			return -EINTR;
		left = write ? fault_in_safe_writeable(u64_to_user_ptr(addr), len) :
			       fault_in_readable(u64_to_user_ptr(addr), len);
		cond_resched();
	}
	return 0;
}

/* ---- vectors ---- */

static int mem_vectors(struct kvblk_mem *mem, u32 bytes, u32 max_vecs, u32 max_pages)
{
	mem->bytes = bytes;
	mem->media_bytes = round_up(bytes, KVBLK_UNIT);
	mem->bv = mem->few_bv;
	if (max_vecs + 2 > ARRAY_SIZE(mem->few_bv))
		mem->bv = kvmalloc_array(max_vecs + 2, sizeof(*mem->bv),
					 GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	mem->pages = mem->few_pages;
	if (max_pages > ARRAY_SIZE(mem->few_pages))
		mem->pages = kvmalloc_array(max_pages, sizeof(*mem->pages),
					    GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	mem->nr = 1;
	if (mem->bv && mem->pages)
		return 0;
	__kvblk_mem_free(mem);
	return -ENOMEM;
}

/* Adds a stretch; bytes after the @left payload bytes belong to the tail. */
static void mem_add(struct kvblk_mem *mem, struct page *page, u32 len, u32 off, u32 *left)
{
	struct bio_vec *last = &mem->bv[mem->nr - 1];
	u32 part = min(len, *left);

	*left -= part;
	if (part && mem->nr > 1 && !off &&
	    zone_device_pages_have_same_pgmap(last->bv_page, page) &&
	    !offset_in_page(last->bv_offset + last->bv_len) &&
	    last->bv_page + ((last->bv_offset + last->bv_len) >> PAGE_SHIFT) == page)
		last->bv_len += part;
	else if (part)
		bvec_set_page(&mem->bv[mem->nr++], page, part, off);
	if (part < len)
		bvec_set_page(&mem->tail_user, page + ((off + part) >> PAGE_SHIFT),
			      len - part, offset_in_page(off + part));
}

static void page_copy(void *kernel, struct bio_vec *bv, bool in)
{
	void *there = bvec_virt(bv);

	if (!is_pci_p2pdma_page(bv->bv_page))
		memcpy(in ? kernel : there, in ? there : kernel, bv->bv_len);
	else if (in)
		memcpy_fromio(kernel, (void __force __iomem *)there, bv->bv_len);
	else
		memcpy_toio((void __force __iomem *)there, kernel, bv->bv_len);
}

/* Returns how many of @pages, from the first on, are contiguous in one folio. */
static u32 pages_run(struct page **pages, u32 nr)
{
	const struct folio *folio = page_folio(*pages);
	u32 most = min_t(unsigned long, nr,
			 folio_nr_pages(folio) - folio_page_idx(folio, *pages)), i = 1;

	while (i < most && pages[i] == *pages + i)
		i++;
	return i;
}

/* Pins and adds @len bytes at @addr. Not inlined, because the caller is out of registers. */
static noinline int mem_add_user(struct kvblk_mem *mem, u64 addr, u32 len,
				 unsigned int gup, u32 *left)
{
	u32 off = offset_in_page(addr), n = DIV_ROUND_UP(off + len, PAGE_SIZE);
	struct page **pages = mem->pages + mem->nr_pages;
	u32 i, run, here, done = 0;

	while (done < n) {
		int got = pin_user_pages_fast((addr & PAGE_MASK) + ((u64)done << PAGE_SHIFT),
					      n - done, gup, pages + done);

		if (got <= 0)
			return got == -ENOMEM ? -ENOMEM : -EFAULT;
		done += got;
		mem->nr_pages += got;
	}
	for (i = 0; i < n; i += run, off = 0) {
		run = pages_run(pages + i, n - i);
		here = min(len, run * (u32)PAGE_SIZE - off);
		mem->p2p |= is_pci_p2pdma_page(pages[i]);
		mem->shared |= mem->dirty && !folio_test_anon(page_folio(pages[i]));
		mem_add(mem, pages[i], here, off, left);
		len -= here;
	}
	return 0;
}

/* Returns whether others may use the part, which is no user memory, after the caller has exited. */
static bool part_shared(const struct kvblk_part *part)
{
	return part->kind == KVBLK_PART_FIXED || !part->region->private ||
	       part->region->mm != current->mm;
}

static noinline int mem_add_region(struct kvblk_mem *mem, const struct kvblk_src *src,
				   const struct kvblk_part *part, u32 len, u32 *left)
{
	struct bio_vec bv;
	struct stretch s;

	mem->shared |= mem->dirty && part_shared(part);
	if (part_is_device(part)) {
		if (!kvblk_region_use(part->region))
			return -ENXIO;
		mem->used = src;
		mem->nr_used = part - src->parts + 1;
		mem->p2p = true;
	}
	stretch_begin(&s, src, part);
	for (; len; len -= bv.bv_len) {
		bv = stretch_next(&s, len);
		mem_add(mem, bv.bv_page, bv.bv_len, bv.bv_offset, left);
	}
	return 0;
}

/* Returns the pages of the first @bytes of @src; @pinned: those to pin. */
static noinline u32 mem_count(const struct kvblk_src *src, u32 bytes, u32 *pinned)
{
	u32 i, len, pages, all = 0;

	*pinned = 0;
	for (i = 0; i < src->nr && bytes; i++, bytes -= len) {
		const struct kvblk_part *part = &src->parts[i];

		len = min_t(u64, part->length, bytes);
		pages = DIV_ROUND_UP(offset_in_page(part_offset(src, part)) + len, PAGE_SIZE);
		all += pages;
		*pinned += part->kind == KVBLK_PART_USER ? pages : 0;
	}
	return all;
}

/* Returns whether another process uses the caller's address space, by vfork() or CLONE_VM. */
static bool mm_is_shared(void)
{
	/* exited threads are in neither count: a leader that waits for others has no mm any more */
	return current->mm && atomic_read(&current->mm->mm_users) >
			      atomic_read(&current->signal->live);
}

static noinline int mem_map_any(struct kvblk_mem *mem, const struct kvblk_src *src, u32 bytes,
				bool write, struct kvblk_align align)
{
	unsigned int gup = (write ? FOLL_WRITE : 0) | FOLL_NOFAULT |
			   (IS_ENABLED(CONFIG_PCI_P2PDMA) ? FOLL_PCI_P2PDMA : 0);
	u32 tail = bytes & align.len_mask, left = bytes - tail;
	u32 i, rest, max_vecs, max_pages;
	int err;

	/* each part may begin and end within a page */
	max_vecs = (bytes + src->nr * 2 * (PAGE_SIZE - 1)) >> PAGE_SHIFT;
	max_pages = max_vecs;
	if (max_vecs > KVBLK_FEW_PAGES)
		max_vecs = mem_count(src, bytes, &max_pages);
	err = mem_vectors(mem, bytes, max_vecs, max_pages);
	if (err)
		return err;
	mem->direct = true;
	mem->dirty = write;
	mem->shared = write && mm_is_shared();

	rest = bytes;
	for (i = 0; i < src->nr && rest; i++) {
		const struct kvblk_part *part = &src->parts[i];
		u32 len = min_t(u64, part->length, rest);

		rest -= len;
		err = part->kind == KVBLK_PART_USER ?
		      mem_add_user(mem, part->addr, len, gup, &left) :
		      mem_add_region(mem, src, part, len, &left);
		if (err)
			goto fail;
	}
	rest = mem->media_bytes - (bytes - tail);
	if (rest) {
		/* zeroed: the padding goes to media */
		mem->tail = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		err = -ENOMEM;
		if (!mem->tail)
			goto fail;
		bvec_set_page(&mem->bv[mem->nr++], mem->tail, rest, 0);
	}
	if (!write && mem->tail_user.bv_len)
		page_copy(page_address(mem->tail), &mem->tail_user, true);
	return 0;
fail:
	kvblk_mem_free(mem);
	return err;
}

int kvblk_mem_map(struct kvblk_mem *mem, const struct kvblk_src *src, u32 bytes,
		  bool write, struct kvblk_align align)
{
	if (!kvblk_src_single(src, bytes, align))
		return mem_map_any(mem, src, bytes, write, align);
	mem->bytes = bytes;
	mem->media_bytes = bytes;
	mem->direct = true;
	mem->shared = write && (part_shared(src->parts) || mm_is_shared());
	mem->bv = mem->few_bv;
	mem->nr = 2;
	bvec_set_page(&mem->few_bv[1], src->first.bv_page, bytes, src->first.bv_offset);
	return 0;
}

int kvblk_mem_alloc(struct kvblk_mem *mem, u32 bytes, bool whole)
{
	const gfp_t gfp = GFP_KERNEL_ACCOUNT | (whole ? 0 : __GFP_ZERO);
	u32 left = round_up(bytes, KVBLK_UNIT), padding = left - bytes;
	struct bio_vec *last;
	int err = mem_vectors(mem, bytes, DIV_ROUND_UP(left, PAGE_SIZE), 0);

	if (err)
		return err;
	while (left) {
		u32 part, order = min_t(u32, get_order(left), BOUNCE_ORDER);
		struct page *page = order ? alloc_pages(gfp | __GFP_NOWARN | __GFP_NORETRY,
							order) : NULL;

		if (!page) {
			order = 0;
			page = alloc_page(gfp);
		}
		if (!page) {
			kvblk_mem_free(mem);
			return -ENOMEM;
		}
		part = min_t(u32, left, PAGE_SIZE << order);
		bvec_set_page(&mem->bv[mem->nr++], page, part, 0);
		left -= part;
	}
	last = &mem->bv[mem->nr - 1];
	memset(bvec_virt(last) + last->bv_len - padding, 0, padding);
	return 0;
}

void __kvblk_mem_free(struct kvblk_mem *mem)
{
	u32 i;

	if (mem->nr_pages)
		unpin_user_pages_dirty_lock(mem->pages, mem->nr_pages, mem->dirty);
	for (i = 0; i < mem->nr_used; i++)
		if (part_is_device(&mem->used->parts[i]))
			kvblk_region_unuse(mem->used->parts[i].region);
	for (i = 1; !mem->direct && i < mem->nr; i++)
		__free_pages(mem->bv[i].bv_page, get_order(mem->bv[i].bv_len));
	if (mem->tail)
		__free_page(mem->tail);
	if (mem->pages != mem->few_pages)
		kvfree(mem->pages);
	if (mem->bv != mem->few_bv)
		kvfree(mem->bv);
	memset(mem, 0, offsetof(struct kvblk_mem, few_bv));
}

/* ---- copies ---- */

/* Copies from or to user space; takes page faults only if @fault. */
static unsigned long user_copy(void *kernel, void __user *user, u32 len, bool in, bool fault)
{
	unsigned long left;

	if (!fault)
		pagefault_disable();
	left = in ? copy_from_user(kernel, user, len) : copy_to_user(user, kernel, len);
	if (!fault)
		pagefault_enable();
	return left;
}

struct walk {
	const struct kvblk_src *src;
	u32 part;
	u64 at;
	struct stretch s;
};

static void walk_begin(struct walk *w, const struct kvblk_src *src, u32 part, u32 skip)
{
	w->src = src;
	w->part = part;
	w->at = skip;
	while (w->at >= src->parts[w->part].length)
		w->at -= src->parts[w->part++].length;
	if (src->parts[w->part].kind == KVBLK_PART_USER || !w->at)
		return;
	stretch_begin(&w->s, src, &src->parts[w->part]);
	w->s.at += w->at;
	if (w->s.part->kind == KVBLK_PART_FIXED)
		bvec_iter_advance(src->fixed->bvec, &w->s.fixed, w->at);
}

/* Copies @bytes between @kernel and the iterator, which must have as many. */
static int walk_copy(struct walk *w, void *kernel, u32 bytes, bool in)
{
	struct bio_vec bv;
	u64 addr;
	u32 n;

	for (; bytes; bytes -= n, kernel += n, w->at += n) {
		const struct kvblk_part *part = &w->src->parts[w->part];

		if (w->at == part->length) {
			part = &w->src->parts[++w->part];
			w->at = 0;
		}
		n = min3(part->length - w->at, (u64)bytes, COPY_BYTES);
		if (part_user(part, &addr)) {
			unsigned long left;

			/* a kernel worker has no mm, or another task's */
			if (WARN_ON_ONCE(!current->mm))
				return -EFAULT;
			if (part_gone(part))
				return -ENXIO;
			left = user_copy(kernel, u64_to_user_ptr(addr + w->at), n,
					 in, w->src->fault);
			/* the region may have gone during the copy */
			if (part_gone(part))
				return -ENXIO;
			if (left)
				return -EFAULT;
		} else {
			if (!w->at)
				stretch_begin(&w->s, w->src, part);
			bv = stretch_next(&w->s, n);
			n = bv.bv_len;
			if (part_is_device(part) && !kvblk_region_use(part->region))
				return -ENXIO;
			page_copy(kernel, &bv, in);
			if (part_is_device(part))
				kvblk_region_unuse(part->region);
		}
		cond_resched();
	}
	return 0;
}

static int walk_copy_part(struct walk *w, const struct bio_vec *bv, struct bvec_iter part, bool in)
{
	int err = 0;

	while (part.bi_size && !err) {
		struct bio_vec here = mp_bvec_iter_bvec(bv, part);

		err = walk_copy(w, bvec_virt(&here), here.bv_len, in);
		bvec_iter_advance_single(bv, &part, here.bv_len);
	}
	return err;
}

int kvblk_vectors_copy(const struct bio_vec *bv, u32 skip, u32 bytes,
		       const struct kvblk_src *src, bool in)
{
	struct bvec_iter part = { .bi_size = skip + bytes };
	struct walk w;

	bvec_iter_advance(bv, &part, skip);
	walk_begin(&w, src, 0, 0);
	return walk_copy_part(&w, bv, part, in);
}

/* The next two: chunk by chunk, so that the second pass finds the bytes in the cache. */
int kvblk_vectors_seal_in(u8 integrity, const struct bio_vec *bv, u32 len,
			  const struct kvblk_src *src, __le32 *crcs)
{
	struct bvec_iter rest = { .bi_size = len }, part;
	struct walk w;
	int err = 0;

	walk_begin(&w, src, 0, 0);
	while (rest.bi_size && !err) {
		part = kvblk_part_next(bv, &rest, 1u << KVBLK_CHUNK_SHIFT);
		err = walk_copy_part(&w, bv, part, true);
		if (!err)
			kvblk_proofs[integrity].seal(bv, part, false, crcs++);
	}
	return err;
}

int kvblk_vectors_open_out(u8 integrity, const struct bio_vec *bv, u32 len, u32 skip, u32 bytes,
			   const struct kvblk_src *src, u32 to, const __le32 *crcs)
{
	u32 at = round_down(skip, 1u << KVBLK_CHUNK_SHIFT), end = skip + bytes;
	struct bvec_iter rest = { .bi_size = len }, part;
	struct walk w;
	int err = 0;

	bvec_iter_advance(bv, &rest, at);
	crcs += at >> KVBLK_CHUNK_SHIFT;
	walk_begin(&w, src, 0, to);
	while (at < end && !err) {
		part = kvblk_part_next(bv, &rest, 1u << KVBLK_CHUNK_SHIFT);
		if (!kvblk_proofs[integrity].open(bv, part, crcs++))
			return -EBADMSG;
		bvec_iter_advance(bv, &part, skip - at);
		part.bi_size = min(part.bi_size, end - skip);
		err = walk_copy_part(&w, bv, part, false);
		at += 1u << KVBLK_CHUNK_SHIFT;
		skip = at;
	}
	return err;
}

int kvblk_src_write(const struct kvblk_src *src, u32 skip, void *from, u32 bytes)
{
	struct walk w;

	walk_begin(&w, src, 0, skip);
	return walk_copy(&w, from, bytes, false);
}

bool kvblk_src_zero(const struct kvblk_src *src, u32 bytes)
{
	u32 i, n, left, failed = 0;
	struct walk w;

	/* continue with the next part after a failure */
	for (i = 0; i < src->nr && bytes; i++, failed += left) {
		left = min_t(u64, src->parts[i].length, bytes);
		bytes -= left;
		walk_begin(&w, src, i, 0);
		for (; left; left -= n) {
			n = min_t(u32, left, PAGE_SIZE);
			if (walk_copy(&w, page_address(ZERO_PAGE(0)), n, false))
				break;
		}
	}
	return !failed;
}

int kvblk_user_write(u64 addr, const void *from, u32 bytes, bool fault)
{
	u8 part[256];
	u32 n;

	/* through the stack, because hardened usercopy may not allow the slab */
	for (; bytes; bytes -= n, from += n, addr += n) {
		n = min_t(u32, bytes, sizeof(part));
		memcpy(part, from, n);
		if (user_copy(part, u64_to_user_ptr(addr), n, false, fault))
			return -EFAULT;
	}
	return 0;
}

void kvblk_mem_tail_out(struct kvblk_mem *mem)
{
	if (mem->tail_user.bv_len)
		page_copy(page_address(mem->tail), &mem->tail_user, false);
}

void kvblk_mem_zero(struct kvblk_mem *mem)
{
	u32 i;

	for (i = 1; i < mem->nr; i++) {
		struct bio_vec *bv = &mem->bv[i];

		if (is_pci_p2pdma_page(bv->bv_page))
			memset_io((void __force __iomem *)bvec_virt(bv), 0, bv->bv_len);
		else
			memset(bvec_virt(bv), 0, bv->bv_len);
	}
	/* the tail's kernel page is zero now */
	kvblk_mem_tail_out(mem);
}
