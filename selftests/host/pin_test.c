// SPDX-License-Identifier: GPL-2.0
/*
 * Copies between kernel memory and a caller, with a proof of each chunk. A range may begin and end
 * within a chunk. Only bytes of chunks with matching checksums reach the caller.
 */
#include <linux/crc32c.h>

#include "kvblk_test.h"
#include "memory/memory.h"

/* stand-ins for pinning and mapping, not tested here */
#define __GFP_NORETRY		0u
#define __force
#define __iomem
#define FOLL_WRITE		1u
#define FOLL_NOFAULT		2u
#define FOLL_PCI_P2PDMA		4u
#define IS_ENABLED(option)	0
#define page_to_phys(page)	((phys_addr_t)(uintptr_t)(page))
#define u64_to_user_ptr(x)	((void *)(uintptr_t)(x))
#define fatal_signal_pending(task)	((void)(task), false)
#define memcpy_fromio		memcpy
#define memcpy_toio		memcpy
#define memset_io		memset
#define pagefault_disable()	((void)0)
#define pagefault_enable()	((void)0)
#define get_order(size)		((size) > PAGE_SIZE)
#define alloc_page(gfp)		((void)(gfp), (struct page *)NULL)
#define alloc_pages(gfp, order)	((void)(gfp), (void)(order), (struct page *)NULL)
#define __free_page(page)	((void)(page))
#define __free_pages(page, order) ((void)(page), (void)(order))
#define zone_device_pages_have_same_pgmap(a, b) ((void)(a), (void)(b), true)
#define is_pci_p2pdma_page(page) ((void)(page), false)
#define pin_user_pages_fast(addr, n, gup, pages) \
	((void)(addr), (void)(n), (void)(gup), (void)(pages), -EFAULT)
#define unpin_user_pages_dirty_lock(pages, n, dirty) ((void)(pages), (void)(n), (void)(dirty))
#define page_folio(page)	((struct folio *)(page))
#define folio_nr_pages(folio)	((void)(folio), 1ul)
#define folio_page_idx(folio, page) ((void)(folio), (void)(page), 0ul)
#define folio_test_anon(folio)	((void)(folio), true)
#define ZERO_PAGE(addr)		(&zero_page)

struct folio;

struct mm_struct {
	atomic_t mm_users;
};

static struct mm_struct mm;
static struct {
	atomic_t live;
} signal_of_task;
static struct {
	struct mm_struct *mm;
	typeof(signal_of_task) *signal;
} task = { &mm, &signal_of_task }, *current = &task;
static struct page zero_page;

static size_t fault_in_safe_writeable(const void *user, size_t len)
{
	return 0;
}

static size_t fault_in_readable(const void *user, size_t len)
{
	return 0;
}

bool kvblk_user_device(u64 user, unsigned int gup, phys_addr_t *addr)
{
	return false;
}

bool kvblk_region_use(struct kvblk_region *region)
{
	return false;
}

void kvblk_region_unuse(struct kvblk_region *region)
{
}

/* Bytes to copy before a fault. */
static u64 copies_left;

static unsigned long copy_from_user(void *to, const void *from, unsigned long len)
{
	unsigned long n = min(len, copies_left);

	copies_left -= n;
	memcpy(to, from, n);
	return len - n;
}

static unsigned long copy_to_user(void *to, const void *from, unsigned long len)
{
	return copy_from_user(to, from, len);
}

#include "../../kernel/memory/pin.c"

#define CHUNK		(1u << KVBLK_CHUNK_SHIFT)
#define CHUNKS		4
#define SHORT		1111u			/* bytes of the last chunk */
#define LEN		((CHUNKS - 1) * CHUNK + SHORT)
#define UNTOUCHED	0xa5

/* A payload in vectors, and a caller's memory in parts. Each ends at the end of an allocation. */
struct fixture {
	u8 bytes[LEN];				/* the payload as put */
	__le32 crcs[CHUNKS];
	struct bio_vec bv[64];
	unsigned int nr;
	struct kvblk_part parts[4];
	u8 *user[4];
	struct kvblk_src src;
};

/* Lengths of vectors, in pages, used in turn: chunks end within, at and between vectors. */
static const unsigned int folios[][4] = {
	{ 16, 16, 16, 16 }, { 1, 1, 1, 1 }, { 3, 8, 16, 1 }, { 64, 64, 64, 64 }, { 7, 32, 2, 5 },
};
static const u32 user_parts[][4] = {
	{ U32_MAX }, { 1, 4095, 65537, U32_MAX }, { CHUNK, CHUNK, CHUNK, U32_MAX },
};

static void vectors_init(struct fixture *f, const unsigned int *pages)
{
	u32 left = LEN, i;

	for (i = 0; left; i++) {
		unsigned int len = pages[i % 4] * PAGE_SIZE, n = min(left, len);
		struct page *page = NULL;

		assert_true(i < sizeof(f->bv) / sizeof(f->bv[0]));
		/* nothing behind the payload, or else AddressSanitizer would miss an overrun */
		assert_int_equal(posix_memalign((void **)&page, PAGE_SIZE, n), 0);
		bvec_set_page(&f->bv[i], page, n, 0);
		left -= n;
	}
	f->nr = i;
}

static void vectors_write(struct fixture *f, u32 at, u8 xor)
{
	u32 i = 0;

	for (; at >= f->bv[i].bv_len; i++)
		at -= f->bv[i].bv_len;
	*((u8 *)bvec_virt(&f->bv[i]) + at) ^= xor;
}

static void vectors_fill(struct fixture *f)
{
	u32 i, at = 0;

	for (i = 0; i < f->nr; at += f->bv[i++].bv_len)
		memcpy(bvec_virt(&f->bv[i]), f->bytes + at, f->bv[i].bv_len);
}

static void user_init(struct fixture *f, const u32 *parts, u32 bytes)
{
	u32 i;

	for (i = 0; bytes; bytes -= f->parts[i++].length) {
		f->parts[i].length = min(parts[i], bytes);
		f->user[i] = malloc(f->parts[i].length);
		memset(f->user[i], UNTOUCHED, f->parts[i].length);
		f->parts[i].addr = (uintptr_t)f->user[i];
	}
	f->src = (struct kvblk_src) { .parts = f->parts, .nr = i };
}

static void user_free(struct fixture *f)
{
	while (f->src.nr)
		free(f->user[--f->src.nr]);
}

/* Returns the number of bytes copied from payload offset @at on. The rest must be untouched. */
static u32 user_matches(const struct fixture *f, u32 at)
{
	bool done = false;
	u32 i, n, same = 0;

	for (i = 0; i < f->src.nr; i++)
		for (n = 0; n < f->parts[i].length; n++) {
			done |= f->user[i][n] != f->bytes[at + same];
			if (done)
				assert_int_equal(f->user[i][n], UNTOUCHED);
			else
				same++;
		}
	return same;
}

static struct fixture *fixture_new(unsigned int shape)
{
	struct fixture *f = calloc(1, sizeof(*f));
	u32 i;

	/* never UNTOUCHED, or else a copied byte would look untouched */
	for (i = 0; i < LEN; i++)
		f->bytes[i] = (i * 2654435761u >> 13) % UNTOUCHED;
	for (i = 0; i < CHUNKS; i++)
		f->crcs[i] = cpu_to_le32(~crc32c(KVBLK_CRC_INIT, f->bytes + i * CHUNK,
						 min(CHUNK, LEN - i * CHUNK)));
	vectors_init(f, folios[shape]);
	copies_left = U64_MAX;
	return f;
}

static void fixture_free(struct fixture *f)
{
	user_free(f);
	while (f->nr)
		free(f->bv[--f->nr].bv_page);
	free(f);
}

static const struct {
	u32 skip, bytes;
} ranges[] = {
	{ 0, LEN },				/* all */
	{ 0, CHUNK },				/* one whole chunk */
	{ 0, 1 },
	{ CHUNK - 1, 2 },			/* the end of one, the begin of the next */
	{ 5000, 100 },				/* within one */
	{ 5000, CHUNK },			/* the end of one, most of the next */
	{ CHUNK, 2 * CHUNK },			/* whole chunks in the middle */
	{ CHUNK + 4097, CHUNK + 1 },
	{ 1234, LEN - 1234 },			/* up to the end of the short one */
	{ 4096, 3 * CHUNK - 4096 },		/* up to the begin of the short one */
	{ 3 * CHUNK, SHORT },			/* the short one */
	{ 3 * CHUNK + 7, 11 },			/* within the short one */
	{ LEN - 1, 1 },
};

/* @wrong: chunk with a damaged byte, at its begin (@where 0) or end, or CHUNKS. */
static void open_out(struct fixture *f, u32 skip, u32 bytes, u32 wrong, bool begin)
{
	u32 bad = wrong * CHUNK + (begin ? 0 : min(CHUNK, LEN - wrong * CHUNK) - 1);
	bool reads = wrong < CHUNKS && wrong >= skip / CHUNK && wrong <= (skip + bytes - 1) / CHUNK;
	u32 good = reads ? max(wrong * CHUNK, skip) - skip : bytes;
	int err;

	if (wrong < CHUNKS)
		vectors_write(f, bad, 0x80);
	err = kvblk_vectors_open_out(KVBLK_INTEGRITY_CRC32C, f->bv, LEN, skip, bytes, &f->src, 0,
				     f->crcs);
	if (wrong < CHUNKS)
		vectors_write(f, bad, 0x80);
	assert_int_equal(err, reads ? -EBADMSG : 0);
	assert_int_equal(user_matches(f, skip), good);
}

TEST(open_out_copies_only_chunks_that_match)
{
	for (size_t shape = 0; shape < ARRAY_SIZE(folios); shape++) {
		struct fixture *f = fixture_new(shape);

		vectors_fill(f);
		for (size_t n = 0; n < ARRAY_SIZE(ranges) * ARRAY_SIZE(user_parts); n++)
			for (u32 wrong = 0; wrong <= 2 * CHUNKS; wrong++) {
				size_t r = n / ARRAY_SIZE(user_parts);

				user_init(f, user_parts[n % ARRAY_SIZE(user_parts)],
					  ranges[r].bytes);
				open_out(f, ranges[r].skip, ranges[r].bytes, wrong / 2, wrong & 1);
				user_free(f);
			}
		fixture_free(f);
	}
}

/* A wrong checksum, rather than a wrong byte, of each chunk. */
TEST(open_out_reads_the_checksum_of_each_chunk)
{
	struct fixture *f = fixture_new(2);

	vectors_fill(f);
	for (u32 wrong = 0; wrong < CHUNKS; wrong++) {
		user_init(f, user_parts[1], LEN - 1);
		f->crcs[wrong] ^= cpu_to_le32(1);
		assert_int_equal(kvblk_vectors_open_out(KVBLK_INTEGRITY_PRODUCER, f->bv, LEN, 1,
							LEN - 1, &f->src, 0, f->crcs), -EBADMSG);
		f->crcs[wrong] ^= cpu_to_le32(1);
		assert_int_equal(user_matches(f, 1), wrong ? wrong * CHUNK - 1 : 0);
		user_free(f);
	}
	fixture_free(f);
}

/* In pieces, as a bounced get copies what its device has read. */
TEST(open_out_writes_at_an_offset)
{
	static const u32 pieces[] = { 5000, CHUNK, CHUNK + 1, 2 * CHUNK };

	for (size_t n = 0; n < ARRAY_SIZE(pieces) * ARRAY_SIZE(user_parts); n++) {
		u32 piece = pieces[n / ARRAY_SIZE(user_parts)], at, len;
		struct fixture *f = fixture_new(2);

		vectors_fill(f);
		user_init(f, user_parts[n % ARRAY_SIZE(user_parts)], LEN);
		for (at = 0; at < LEN; at += len) {
			len = min(piece, LEN - at);
			assert_int_equal(kvblk_vectors_open_out(KVBLK_INTEGRITY_CRC32C, f->bv, LEN,
								at, len, &f->src, at, f->crcs), 0);
			assert_int_equal(user_matches(f, 0), at + len);
		}
		fixture_free(f);
	}
}

TEST(open_out_ends_at_a_fault)
{
	struct fixture *f = fixture_new(4);

	vectors_fill(f);
	for (u64 left = 0; left < LEN; left += 30011) {
		user_init(f, user_parts[1], LEN);
		copies_left = left;
		assert_int_equal(kvblk_vectors_open_out(KVBLK_INTEGRITY_CRC32C, f->bv, LEN, 0, LEN,
							&f->src, 0, f->crcs), -EFAULT);
		assert_int_equal(user_matches(f, 0), left);
		user_free(f);
	}
	fixture_free(f);
}

TEST(seal_in)
{
	for (size_t n = 0; n < ARRAY_SIZE(folios) * ARRAY_SIZE(user_parts); n++) {
		struct fixture *f = fixture_new(n / ARRAY_SIZE(user_parts));
		__le32 crcs[CHUNKS] = {};
		u32 i, at = 0;

		user_init(f, user_parts[n % ARRAY_SIZE(user_parts)], LEN);
		for (i = 0; i < f->src.nr; at += f->parts[i++].length)
			memcpy(f->user[i], f->bytes + at, f->parts[i].length);
		assert_int_equal(kvblk_vectors_seal_in(KVBLK_INTEGRITY_CRC32C, f->bv, LEN, &f->src,
						       crcs), 0);
		assert_memory_equal(crcs, f->crcs, sizeof(crcs));
		for (i = at = 0; i < f->nr; at += f->bv[i++].bv_len)
			assert_memory_equal(bvec_virt(&f->bv[i]), f->bytes + at, f->bv[i].bv_len);
		fixture_free(f);
	}
}

/* A chunk with a fault gets no checksum. */
TEST(seal_in_ends_at_a_fault)
{
	struct fixture *f = fixture_new(3);
	__le32 crcs[CHUNKS] = {};

	user_init(f, user_parts[0], LEN);
	memcpy(f->user[0], f->bytes, LEN);
	copies_left = 2 * CHUNK + 1;
	assert_int_equal(kvblk_vectors_seal_in(KVBLK_INTEGRITY_CRC32C, f->bv, LEN, &f->src, crcs),
			 -EFAULT);
	assert_memory_equal(crcs, f->crcs, 2 * sizeof(*crcs));
	assert_int_equal(crcs[2], 0);
	fixture_free(f);
}

/* A region of two runs of pages that are not contiguous. */
#define RUN_PAGES	4u

static struct kvblk_region *region_new(struct page *pages)
{
	struct kvblk_region *region = calloc(1, sizeof(*region) + 2 * RUN_PAGES * sizeof(pages));
	u32 i;

	region->mm = &mm;
	region->private = true;
	region->run = calloc(2 * RUN_PAGES, sizeof(*region->run));
	for (i = 0; i < 2 * RUN_PAGES; i++) {
		region->pages[i] = pages + i + i / RUN_PAGES;
		region->run[i] = RUN_PAGES - i % RUN_PAGES;
	}
	return region;
}

/* One vector maps a stretch; several map a range of two stretches. */
TEST(map_of_a_region)
{
	static const struct {
		u32 addr, bytes, nr;
	} cases[] = {
		{ 0, RUN_PAGES * PAGE_SIZE, 1 },
		{ PAGE_SIZE, PAGE_SIZE, 1 },
		{ 512, 2 * PAGE_SIZE, 1 },
		{ 2 * PAGE_SIZE, 2 * PAGE_SIZE, 1 },
		{ 2 * PAGE_SIZE, 3 * PAGE_SIZE, 2 },
		{ 4096 - 512, RUN_PAGES * PAGE_SIZE, 2 },
		{ 0, 2 * RUN_PAGES * PAGE_SIZE, 2 },
	};
	const struct kvblk_align align = { .addr_mask = 511, .len_mask = 511 };
	struct page *pages = aligned_alloc(PAGE_SIZE, (2 * RUN_PAGES + 1) * sizeof(*pages));
	struct kvblk_region *region = region_new(pages);
	struct kvblk_mem *mem = calloc(1, sizeof(*mem));
	u32 i, n, at;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct kvblk_part part = { .kind = KVBLK_PART_REGION, .region = region,
					   .addr = cases[i].addr, .length = cases[i].bytes };
		struct kvblk_src src = { .parts = &part, .nr = 1 };

		src.first = kvblk_region_stretch(region, part.addr, part.length);
		assert_true(kvblk_src_fits(&src, part.length, align));
		assert_int_equal(kvblk_src_single(&src, part.length, align), cases[i].nr == 1);
		assert_int_equal(kvblk_mem_map(mem, &src, part.length, i & 1, align), 0);
		assert_int_equal(mem->nr, 1 + cases[i].nr);
		assert_int_equal(mem->bytes, part.length);
		assert_int_equal(mem->media_bytes, part.length);
		assert_true(mem->direct && !mem->p2p && !mem->shared);
		for (n = 1, at = part.addr; n < mem->nr; at += mem->bv[n++].bv_len)
			assert_ptr_equal(bvec_virt(&mem->bv[n]),
					 region->pages[at / PAGE_SIZE]->bytes + at % PAGE_SIZE);
		assert_int_equal(at, part.addr + part.length);
		kvblk_mem_free(mem);
		assert_true(!mem->nr && !mem->bytes && !mem->media_bytes && !mem->direct);
	}
	free(mem);
	free(region->run);
	free(region);
	free(pages);
}

/* No single vector: an empty or too long range, a part of a unit, an unaligned address. */
TEST(single_is_refused)
{
	const struct kvblk_align align = { .addr_mask = 511, .len_mask = 511 };
	struct kvblk_part part = { .kind = KVBLK_PART_FIXED, .length = 2 * KVBLK_UNIT };
	struct kvblk_src src = { .parts = &part, .nr = 1,
				 .first = { .bv_len = 2 * KVBLK_UNIT, .bv_offset = 1024 } };

	assert_true(kvblk_src_single(&src, 2 * KVBLK_UNIT, align));
	assert_false(kvblk_src_single(&src, 3 * KVBLK_UNIT, align));
	assert_false(kvblk_src_single(&src, KVBLK_UNIT + 512, align));
	assert_false(kvblk_src_single(&src, 0, align));
	src.first.bv_offset = 256;
	assert_false(kvblk_src_single(&src, KVBLK_UNIT, align));
	assert_false(kvblk_src_fits(&src, KVBLK_UNIT, align));
	/* user and device memory */
	src.first.bv_len = 0;
	assert_false(kvblk_src_single(&src, KVBLK_UNIT, align));
	assert_false(kvblk_src_single(&src, 0, align));
}

TEST_MAIN("pin")
