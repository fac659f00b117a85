// SPDX-License-Identifier: GPL-2.0
/*
 * Put and get: a get returns what the put stored, at any length, alignment and scatter. Each
 * operation of a batch has the result that it would have alone.
 *
 * usage: guest_put_get NODE [TEST...]
 */
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/wait.h>

#include "kv_test.h"
#include "kv_io.h"

#define GUARD	64u

static int fd;
static struct kvblk_info info;
static uint64_t next_key = 1000000;	/* next unused key: tests share none */
static uint8_t *memory;			/* scratch */
static size_t memory_len;

static uint64_t new_keys(unsigned int nr)
{
	next_key += nr;
	return next_key - nr;
}

/* Return the scratch area at @at; one half is for puts, the other for gets. */
static uint8_t *put_area(size_t at)
{
	return memory + at;
}

static uint8_t *get_area(size_t at)
{
	return memory + memory_len / 2 + at;
}

/* Return the result flag promised by INFO for @pieces, 0: either flag. */
static uint32_t expected_way(const struct kvblk_piece *pieces, unsigned int nr)
{
	/* KV_WAY: expected path of device memory, "bounced" or "any"; unset: as for host memory */
	const char *way = getenv("KV_WAY");
	uint64_t mask = info.dma_align - 1;

	if (info.pool_flags & KVBLK_POOL_STRICT || (way && !strcmp(way, "bounced")))
		return KVBLK_RES_BOUNCED;
	if (way && !strcmp(way, "any"))
		return 0;
	for (unsigned int i = 0; i < nr; i++) {
		if (pieces[i].addr & mask ||
		    (i + 1 < nr && pieces[i].length & mask))
			return 0;	/* unaligned: the member may still accept it */
	}
	return KVBLK_RES_DIRECT;
}

static void check_way(const struct kvblk_result *res,
		      const struct kvblk_piece *pieces, unsigned int nr,
		      const char *what, size_t len)
{
	uint32_t way = res->flags & (KVBLK_RES_DIRECT | KVBLK_RES_BOUNCED);
	uint32_t want = expected_way(pieces, nr);

	EXPECT(way == KVBLK_RES_DIRECT || way == KVBLK_RES_BOUNCED,
	       "%s of %zu bytes: flags %#x tell no single way", what, len,
	       res->flags);
	if (want)
		EXPECT_EQ(way, want,
			  "%s of %zu bytes in %u pieces, first at %#llx, dma_align %u",
			  what, len, nr, (unsigned long long)pieces[0].addr,
			  info.dma_align);
}

/* Cut [base, base + len) into pieces of @each bytes; the last one takes the rest. */
static unsigned int cut(struct kvblk_piece *pieces, unsigned int nr,
			uint8_t *base, size_t len, size_t each, size_t gap)
{
	unsigned int n = 0;

	while (len) {
		size_t this = n + 1 == nr || each > len ? len : each;

		pieces[n++] = kv_piece(base, this);
		base += this + gap;
		len -= this;
	}
	return n;
}

static void fill_pieces(uint64_t seed, const struct kvblk_piece *pieces,
			unsigned int nr)
{
	uint64_t at = 0;

	for (unsigned int i = 0; i < nr; i++) {
		kv_fill(seed, at, (void *)(uintptr_t)pieces[i].addr,
			pieces[i].length);
		at += pieces[i].length;
	}
}

/* Check that @pieces have @len bytes of the block from @from on, and are untouched behind that. */
static void check_pieces(uint64_t seed, uint64_t from, size_t len,
			 const struct kvblk_piece *pieces, unsigned int nr,
			 const char *what)
{
	for (unsigned int i = 0; i < nr; i++) {
		const uint8_t *p = (const void *)(uintptr_t)pieces[i].addr;
		size_t good = pieces[i].length < len ? pieces[i].length : len;
		ssize_t wrong = kv_wrong(seed, from, p, good);

		if (!EXPECT_EQ(wrong, -1,
			       "%s: wrong byte in piece %u of %u, %zu bytes at %p",
			       what, i, nr, good, p))
			return;
		wrong = kv_other_than(KV_UNTOUCHED, p + good,
				      pieces[i].length - good);
		EXPECT_EQ(wrong, -1, "%s: touched behind the block's end", what);
		from += good;
		len -= good;
	}
}

/*
 * Put a block of @len bytes from @put pieces and get it into @get pieces. The latter lie in
 * [@area, @area + @area_len); bytes outside of them must stay untouched.
 */
static void round_trip(uint64_t nr, size_t len, struct kvblk_piece *put,
		       unsigned int nr_put, struct kvblk_piece *get,
		       unsigned int nr_get, uint8_t *area, size_t area_len)
{
	struct kv_key key = kv_key(nr);
	uint64_t seed = kv_seed(nr, 0);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, put, (uint16_t)nr_put);
	struct kvblk_result res;
	uint8_t *at = area;

	fill_pieces(seed, put, nr_put);
	op.cookie = nr;
	res = kv_one(fd, &op);
	if (!EXPECT_EQ(res.res, len, "put of %zu bytes from %u pieces", len,
		       nr_put))
		return;
	EXPECT_EQ(res.cookie, nr, "cookie of a put");
	check_way(&res, put, nr_put, "put", len);

	memset(area, KV_UNTOUCHED, area_len);
	op = kv_op(KVBLK_OP_GET, &key, get, (uint16_t)nr_get);
	op.cookie = ~nr;
	res = kv_one(fd, &op);
	if (!EXPECT_EQ(res.res, len, "get of %zu bytes into %u pieces", len,
		       nr_get))
		return;
	EXPECT_EQ(res.cookie, ~nr, "cookie of a get");
	EXPECT_EQ(res.value_len, len, "value_len of a get");
	check_way(&res, get, nr_get, "get", len);
	check_pieces(seed, 0, len, get, nr_get, "get");
	for (unsigned int i = 0; i < nr_get; i++) {
		uint8_t *p = (void *)(uintptr_t)get[i].addr;

		if (p < at)	/* unordered pieces: no gaps to check */
			return;
		EXPECT_EQ(kv_other_than(KV_UNTOUCHED, at, (size_t)(p - at)), -1,
			  "a get of %zu bytes wrote in front of piece %u of %u",
			  len, i, nr_get);
		at = p + get[i].length;
	}
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, at, (size_t)(area + area_len - at)),
		  -1, "a get of %zu bytes wrote behind its last piece", len);
}

TEST(info)
{
	static const char zeroes[16];

	EXPECT_EQ(info.size, sizeof(info), "size");
	EXPECT_EQ(info.pool_flags & ~KVBLK_POOL_STRICT, 0, "flags of the pool");
	EXPECT(info.integrity <= KVBLK_CHECK_PRODUCER, "integrity %u", info.integrity);
	EXPECT(!(info.features & ~(KVBLK_FEAT_P2P | KVBLK_FEAT_URING | KVBLK_FEAT_DRAM |
				   KVBLK_FEAT_HINT | KVBLK_FEAT_TIMES |
				   KVBLK_FEAT_CALLER_CHECKS)),
	       "features of later versions");
	EXPECT(info.features & KVBLK_FEAT_HINT, "no hints");
	EXPECT(info.features & KVBLK_FEAT_TIMES, "no predicted times");
	EXPECT(info.features & KVBLK_FEAT_CALLER_CHECKS, "no checks by callers");
	EXPECT(info.features & KVBLK_FEAT_URING, "no io_uring");
	EXPECT_EQ(info.tenant, 0, "tenant of the default node");
	EXPECT_EQ(info.key_max, KVBLK_KEY_MAX, "key_max");
	EXPECT_EQ(info.pieces_max, KVBLK_PIECES_MAX, "pieces_max");
	EXPECT_EQ(info.ops_max, KVBLK_OPS_MAX, "ops_max");
	EXPECT_EQ(info.lookup_max, KVBLK_LOOKUP_MAX, "lookup_max");
	EXPECT_EQ(info.lease_ms_max, KVBLK_LEASE_MS_MAX, "lease_ms_max");
	EXPECT_EQ(info.chunk_size, 65536, "chunk_size");
	EXPECT(info.dma_align && !(info.dma_align & (info.dma_align - 1)),
	       "dma_align %u is no power of two", info.dma_align);
	EXPECT(info.value_max >= 4096 && info.value_max <= KVBLK_VALUE_MAX,
	       "value_max %u", info.value_max);
	EXPECT(info.capacity >= 64 << 20, "capacity %llu",
	       (unsigned long long)info.capacity);
	EXPECT(memcmp(info.pool_uuid, zeroes, 16), "the pool has no uuid");
	EXPECT(strnlen(info.pool_name, sizeof(info.pool_name)) > 0 &&
	       strnlen(info.pool_name, sizeof(info.pool_name)) < 32,
	       "the pool has no name");
	PASSED("pool %s, value_max %u, dma_align %u, features %#llx",
	       info.pool_name, info.value_max, info.dma_align,
	       (unsigned long long)info.features);
}

static void trip_at(size_t len, size_t put_at, size_t get_at)
{
	struct kvblk_piece put = kv_piece(put_area(put_at), len);
	struct kvblk_piece get = kv_piece(get_area(get_at), len);

	round_trip(new_keys(1), len, &put, 1, &get, 1, get_area(get_at) - GUARD,
		   len + 2 * GUARD);
}

TEST(sizes)
{
	static const size_t sizes[] = {
		1, 2, 3, 511, 512, 513, 4095, 4096, 4097, 8191, 12288, 65535,
		65536, 65537, 131072, 655360, (1 << 20) + 3, 7 << 20,
	};
	/* page, device block, dword, odd; never 0, because guard bytes precede */
	static const size_t starts[] = { 4096, 4608, 4100, 4097, 8191 };
	unsigned int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(starts); j++) {
			/* two alignments suffice for the large sizes */
			if (sizes[i] > info.value_max ||
			    (sizes[i] > 1 << 20 && j % 3))
				continue;
			trip_at(sizes[i], starts[j],
				starts[(j + i) % ARRAY_SIZE(starts)]);
			n++;
		}
	}
	PASSED("%u blocks of %zu lengths at %zu alignments", n,
	       ARRAY_SIZE(sizes), ARRAY_SIZE(starts));
}

/* All structures have the same layout for 32-bit and 64-bit callers. */
TEST(callers_of_32_bits)
{
	struct low {
		struct kvblk_submit_arg submit;
		struct kvblk_lookup lookup;
		struct kvblk_op op;
		struct kvblk_piece pieces[2];
		struct kvblk_result result;
		struct kv_key key;
		uint32_t size;
		uint8_t data[3 * PAGE];
	} *low = kv_alloc_low(sizeof(*low));

	low->key = kv_key(next_key++);
	low->op = (struct kvblk_op){
		.opcode = KVBLK_OP_PUT,
		.key_len = low->key.len,
		.nr_pieces = 2,
		.key = kv_addr(low->key.bytes),
		.pieces = kv_addr(low->pieces),
	};
	low->pieces[0] = (struct kvblk_piece){ .addr = kv_addr(low->data), .length = PAGE };
	low->pieces[1] = (struct kvblk_piece){ .addr = kv_addr(low->data + 2 * PAGE), .length = 77 };
	low->submit = (struct kvblk_submit_arg){
		.size = sizeof(low->submit),
		.nr_ops = 1,
		.op_size = sizeof(low->op),
		.result_size = sizeof(low->result),
		.ops = kv_addr(&low->op),
		.results = kv_addr(&low->result),
	};
	low->lookup = (struct kvblk_lookup){
		.size = sizeof(low->lookup),
		.nr_keys = 1,
		.key_stride = low->key.len,
		.keys = kv_addr(low->key.bytes),
		.sizes = kv_addr(&low->size),
	};
	kv_fill(5, 0, low->data, sizeof(low->data));
	if (kv_ioctl32(fd, KVBLK_IOC_SUBMIT, &low->submit) == -ENOSYS)
		SKIP("this kernel has no programs of 32 bits");
	EXPECT_EQ(low->result.res, PAGE + 77, "put");
	EXPECT_EQ(kv_ioctl32(fd, KVBLK_IOC_LOOKUP, &low->lookup), 0, "lookup");
	EXPECT_EQ(low->lookup.nr_present, 1, "lookup");
	EXPECT_EQ(low->size, PAGE + 77, "its size");
	memset(low->data, KV_UNTOUCHED, sizeof(low->data));
	low->op.opcode = KVBLK_OP_GET;
	EXPECT_EQ(kv_ioctl32(fd, KVBLK_IOC_SUBMIT, &low->submit), 0, "get");
	EXPECT_EQ(low->result.res, PAGE + 77, "get");
	EXPECT_EQ(kv_wrong(5, 0, low->data, PAGE), -1, "the first piece");
	EXPECT_EQ(kv_wrong(5, 2 * PAGE, low->data + 2 * PAGE, 77), -1, "the second piece");
	EXPECT_EQ(kv_ioctl32(fd, 0x1234, &low->submit), -ENOTTY, "no such command");
	munmap(low, (sizeof(*low) + PAGE - 1) / PAGE * PAGE);
}

TEST(aligned_is_direct)
{
	struct kvblk_piece piece = kv_piece(put_area(0), 65536);
	struct kv_key key = kv_key(new_keys(1));
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
	struct kvblk_result res;
	uint32_t want = info.pool_flags & KVBLK_POOL_STRICT ? KVBLK_RES_BOUNCED :
							   KVBLK_RES_DIRECT;

	res = kv_one(fd, &op);
	ASSERT_EQ(res.res, 65536, "put");
	EXPECT_EQ(res.flags, want, "way of a page-aligned put");
	op.opcode = KVBLK_OP_GET;
	res = kv_one(fd, &op);
	ASSERT_EQ(res.res, 65536, "get");
	EXPECT_EQ(res.flags, want, "way of a page-aligned get");
	piece = kv_piece(put_area(1), 65536);
	res = kv_one(fd, &op);
	ASSERT_EQ(res.res, 65536, "get to an odd address");
	if (info.dma_align > 1)
		EXPECT_EQ(res.flags, KVBLK_RES_BOUNCED,
			  "way of a get to an odd address");
	PASSED("aligned ones %s, odd ones bounced",
	       want == KVBLK_RES_DIRECT ? "direct" : "bounced (strict)");
}

TEST(largest)
{
	size_t len = info.value_max;
	struct kv_key key = kv_key(new_keys(1));
	struct kvblk_piece piece;
	struct kvblk_op op;
	uint8_t *put, *get;

	put = kv_alloc(len + 2 * PAGE);
	get = kv_alloc(len + 2 * PAGE);
	for (unsigned int odd = 0; odd < 2; odd++) {
		struct kvblk_piece from = kv_piece(put + odd, len);
		struct kvblk_piece to = kv_piece(get + PAGE + odd * 3, len);

		round_trip(new_keys(1), len, &from, 1, &to, 1, get, len + 2 * PAGE);
	}
	if (len < KVBLK_VALUE_MAX) {
		piece = kv_piece(put, len + 1);
		op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
		EXPECT_EQ(kv_one(fd, &op).res, -EFBIG,
			  "put of value_max + 1 = %zu bytes", len + 1);
	}
	munmap(put, len + 2 * PAGE);
	munmap(get, len + 2 * PAGE);
	PASSED("%zu bytes, direct and from odd addresses", len);
}

static void trip_pieces(size_t len, unsigned int nr_put, size_t each_put,
			size_t gap_put, unsigned int nr_get, size_t each_get,
			size_t gap_get, size_t shift)
{
	static struct kvblk_piece put[KVBLK_PIECES_MAX], get[KVBLK_PIECES_MAX];
	size_t room = len + nr_get * gap_get + 2 * PAGE;

	if (len > info.value_max)
		return;
	nr_put = cut(put, nr_put, put_area(shift), len, each_put, gap_put);
	nr_get = cut(get, nr_get, get_area(PAGE + shift), len, each_get, gap_get);
	round_trip(new_keys(1), len, put, nr_put, get, nr_get, get_area(0), room);
}

TEST(pieces)
{
	trip_pieces(8192, 2, 4096, 4096, 2, 4096, 8192, 0);
	/* a real worst case: 16 tokens of 80 layers, K and V */
	trip_pieces(655360, 160, 4096, 4096, 160, 4096, 8192, 0);
	trip_pieces(655360, 1, 655360, 0, 160, 4096, 4096, 0);
	trip_pieces(655360, 160, 4096, 4096, 1, 655360, 0, 0);
	trip_pieces(1024 * 4096, 1024, 4096, 4096, 1024, 4096, 4096, 0);
	trip_pieces(1024 * 512, 1024, 512, 512, 1024, 512, 1536, 0);
	trip_pieces(1024 * 512 + 5, 1024, 512, 0, 1024, 512, 512, 512);
	/* lengths and alignments that no device accepts */
	trip_pieces(1024, 1024, 1, 3, 1024, 1, 1, 1);
	trip_pieces(1024 * 13 + 7, 1024, 13, 5, 1024, 13, 51, 3);
	trip_pieces(160 * 4097, 160, 4097, 13, 160, 4097, 4095, 2);
	trip_pieces(300001, 7, 50001, 1, 3, 111111, 77, 5);
	trip_pieces(65536 + 4, 2, 4, 4092, 2, 65536, 4092, 4);
	PASSED("1, 2, 160 and 1024 pieces; 1, 4, 13, 512, 4096 and 4097 bytes each");
}

TEST(mixed_pieces)
{
	static struct kvblk_piece put[64], get[64];
	uint64_t dice = 42, total = 0;
	const unsigned int rounds = 40;

	for (unsigned int i = 0; i < rounds; i++) {
		size_t len = 0, left, at = PAGE;
		unsigned int nr_put = 1 + (unsigned int)kv_below(&dice, 64);
		unsigned int nr_get = 0;

		for (unsigned int j = 0; j < nr_put; j++) {
			size_t this = 1 + kv_below(&dice, 10000);

			put[j] = kv_piece(put_area(len + j * kv_below(&dice, 9)),
					  this);
			if (j)
				put[j].addr = put[j - 1].addr +
					      put[j - 1].length +
					      kv_below(&dice, 3) * 511;
			len += this;
		}
		for (left = len; left; nr_get++) {
			size_t this = 1 + kv_below(&dice, 30000);

			if (this > left || nr_get == 63)
				this = left;
			get[nr_get] = kv_piece(get_area(at), this);
			at += this + kv_below(&dice, 700);
			left -= this;
		}
		round_trip(new_keys(1), len, put, nr_put, get, nr_get,
			   get_area(0), at + PAGE);
		total += len;
	}
	PASSED("%u blocks, %llu bytes", rounds, (unsigned long long)total);
}

/* A put that uses one page many times, and pieces in reverse order. */
TEST(overlapping_and_reversed_pieces)
{
	struct kvblk_piece pieces[16];
	uint64_t nr = new_keys(1);
	struct kv_key key = kv_key(nr);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, pieces, 16);
	uint64_t seed = kv_seed(nr, 0);

	kv_fill(seed, 0, put_area(0), PAGE);
	for (unsigned int i = 0; i < 16; i++)
		pieces[i] = kv_piece(put_area(0), PAGE);
	ASSERT_EQ(kv_one(fd, &op).res, 16 * PAGE, "put of one page 16 times");
	op.opcode = KVBLK_OP_GET;
	for (unsigned int i = 0; i < 16; i++)
		pieces[i] = kv_piece(get_area((15 - i) * PAGE), PAGE);
	ASSERT_EQ(kv_one(fd, &op).res, 16 * PAGE, "get");
	for (unsigned int i = 0; i < 16; i++)
		EXPECT_EQ(kv_wrong(seed, 0, get_area(i * PAGE), PAGE), -1,
			  "copy %u", i);
	PASSED("one page 16 times");
}

TEST(kinds_of_memory)
{
	size_t len = 2 << 20;
	uint64_t nr = new_keys(3);
	char stack[9000];
	FILE *file = tmpfile();
	uint8_t *shared, *readonly, *fresh;

	ASSERT(file && !ftruncate(fileno(file), (off_t)len), "a file");
	shared = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED,
		      fileno(file), 0);
	readonly = mmap(NULL, len, PROT_READ, MAP_SHARED, fileno(file), 0);
	fresh = mmap(NULL, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT(shared != MAP_FAILED && readonly != MAP_FAILED &&
	       fresh != MAP_FAILED, "mmap");
	kv_fill(kv_seed(nr, 0), 0, shared, len);
	EXPECT_EQ(kv_put(fd, nr, readonly, len).res, len,
		  "put from a read-only mapping");
	EXPECT_EQ(kv_get(fd, nr, fresh, len).res, len,
		  "get into memory that was never touched");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, fresh, len), -1, "its bytes");
	EXPECT_EQ(kv_get(fd, nr, readonly, len).res, -EFAULT,
		  "get into a read-only mapping");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, shared, len), -1,
		  "a refused get wrote");
	memset(shared, KV_UNTOUCHED, len);
	EXPECT_EQ(kv_get(fd, nr, shared, len).res, len, "get into a shared file");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, shared, len), -1, "its bytes");
	kv_fill(kv_seed(nr + 1, 0), 0, stack, sizeof(stack));
	EXPECT_EQ(kv_put(fd, nr + 1, stack, sizeof(stack)).res, sizeof(stack),
		  "put from the stack");
	memset(stack, KV_UNTOUCHED, sizeof(stack));
	EXPECT_EQ(kv_get(fd, nr + 1, stack, sizeof(stack)).res, sizeof(stack),
		  "get to the stack");
	EXPECT_EQ(kv_wrong(kv_seed(nr + 1, 0), 0, stack, sizeof(stack)), -1,
		  "bytes on the stack");
	munmap(fresh, len);
	fresh = mmap(NULL, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT(fresh != MAP_FAILED, "mmap");
	EXPECT_EQ(kv_put(fd, nr + 2, fresh, 65536).res, 65536,
		  "put of untouched memory");
	EXPECT_EQ(kv_get(fd, nr + 2, shared, 65536).res, 65536, "get of it");
	EXPECT_EQ(kv_other_than(0, shared, 65536), -1, "it is all zero");
	munmap(fresh, len);
	munmap(shared, len);
	munmap(readonly, len);
	fclose(file);
	PASSED("read-only, shared, stack, never touched");
}

TEST(too_small)
{
	static const size_t sizes[] = { 2, 4096, 65537, 300000 };
	uint8_t *buf = get_area(0);

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		size_t len = sizes[i];
		uint64_t nr = new_keys(1);
		struct kvblk_result res;

		kv_fill(kv_seed(nr, 0), 0, put_area(0), len);
		ASSERT_EQ(kv_put(fd, nr, put_area(0), len).res, len, "put");
		memset(buf, KV_UNTOUCHED, 2 * len + PAGE);
		res = kv_get(fd, nr, buf, len - 1);
		EXPECT_EQ(res.res, -EMSGSIZE, "get of %zu bytes into one less",
			  len);
		EXPECT_EQ(res.value_len, len, "the length that is told");
		EXPECT_EQ(kv_other_than(KV_UNTOUCHED, buf, 2 * len), -1,
			  "-EMSGSIZE touched the buffer");
		res = kv_get(fd, nr, buf, 2 * len + 5);
		EXPECT_EQ(res.res, len, "get into too much room");
		EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, buf, len), -1, "bytes");
		EXPECT_EQ(kv_other_than(KV_UNTOUCHED, buf + len, len + PAGE), -1,
			  "bytes behind a block of %zu are touched", len);
	}
	PASSED("the real length is told, the buffer is untouched");
}

static struct kvblk_result get_part(uint64_t nr, void *buf, size_t room,
				    uint32_t offset, uint32_t length)
{
	struct kv_key key = kv_key(nr);
	struct kvblk_piece piece = kv_piece(buf, room);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &piece, 1);

	op.flags = KVBLK_OPF_PARTIAL;
	op.offset = offset;
	op.length = length;
	return kv_one(fd, &op);
}

/* A get of a small block into a large buffer must not fault in the whole buffer. */
TEST(more_room_than_block)
{
	enum { ROOM = 128 << 20, MOST = 16 };
	static unsigned char there[ROOM / PAGE];
	uint8_t *room = kv_map(ROOM, 0);
	uint64_t nr = new_keys(1);
	unsigned int pages = 0;

	madvise(room, ROOM, MADV_NOHUGEPAGE);
	kv_fill(kv_seed(nr, 0), 0, put_area(0), 5000);
	ASSERT_EQ(kv_put(fd, nr, put_area(0), 5000).res, 5000, "put");
	EXPECT_EQ(kv_get(fd, nr, room, ROOM).res, 5000, "get into 128 MiB");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, room, 5000), -1, "bytes");
	EXPECT_EQ(get_part(nr, room + ROOM / 2, ROOM / 2, 1000, 0).res, 4000,
		  "get of a part into 64 MiB");
	ASSERT_EQ(mincore(room, ROOM, there), 0, "mincore");
	for (size_t i = 0; i < sizeof(there); i++)
		pages += there[i] & 1;
	EXPECT(pages <= MOST, "%u pages of the room were brought in", pages);
	munmap(room, ROOM);
	PASSED("%u pages for two gets", pages);
}

static void check_part(uint64_t nr, size_t size, uint32_t offset,
		       uint32_t length, size_t shift)
{
	size_t room = length ? length : 3000;
	size_t want = offset + room > size ? size - offset : room;
	uint8_t *buf = get_area(PAGE + shift);
	struct kvblk_result res;

	memset(buf - GUARD, KV_UNTOUCHED, room + 2 * GUARD);
	res = get_part(nr, buf, room, offset, length);
	if (!EXPECT_EQ(res.res, want, "%u bytes from %u of a block of %zu",
		       length, offset, size))
		return;
	EXPECT_EQ(res.value_len, size, "value_len of a part");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), offset, buf, want), -1,
		  "a byte of the %zu from %u", want, offset);
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, buf + want, room - want + GUARD),
		  -1, "bytes behind %u bytes from %u are touched", length,
		  offset);
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, buf - GUARD, GUARD), -1,
		  "bytes before %u bytes from %u are touched", length, offset);
}

TEST(partial)
{
	const size_t size = 3 * 65536 + 777;
	static const uint32_t offsets[] = {
		0, 1, 511, 4095, 4096, 65535, 65536, 65537, 131072, 196607,
		196608, 196608 + 776,
	};
	static const uint32_t lengths[] = {
		0, 1, 2, 512, 4096, 65535, 65536, 65537, 131072, 400000,
	};
	uint64_t nr = new_keys(1), dice = 7;
	unsigned int n = 0;

	kv_fill(kv_seed(nr, 0), 0, put_area(0), size);
	ASSERT_EQ(kv_put(fd, nr, put_area(0), size).res, size, "put");
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(lengths); j++, n++)
			check_part(nr, size, offsets[i], lengths[j], (i + j) % 5);
	}
	for (unsigned int i = 0; i < 60; i++, n++) {
		uint32_t offset = (uint32_t)kv_below(&dice, size);

		check_part(nr, size, offset,
			   1 + (uint32_t)kv_below(&dice, size), i % 3 * 512);
	}
	PASSED("%u ranges of a block of 4 chunks", n);
}

TEST(partial_limits)
{
	const size_t size = 70000;
	uint64_t nr = new_keys(1);
	uint8_t *buf = get_area(0);
	struct kvblk_result res;

	kv_fill(kv_seed(nr, 0), 0, put_area(0), size);
	ASSERT_EQ(kv_put(fd, nr, put_area(0), size).res, size, "put");
	memset(buf, KV_UNTOUCHED, 2 * PAGE);
	EXPECT_EQ(get_part(nr, buf, 10, size + 1, 10).res, -ERANGE,
		  "offset behind the end");
	EXPECT_EQ(get_part(nr, buf, 10, size, 10).res, -ERANGE,
		  "offset at the end, where no byte is");
	EXPECT_EQ(get_part(nr, buf, 10, UINT32_MAX, 10).res, -ERANGE,
		  "the largest offset");
	EXPECT_EQ(get_part(nr, buf, 10, UINT32_MAX, UINT32_MAX).res, -ERANGE,
		  "the largest offset and length");
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, buf, 2 * PAGE), -1,
		  "a refused get touched the buffer");
	res = get_part(nr, buf, PAGE, 100, 50);
	EXPECT_EQ(res.res, 50, "less wanted than there is room for");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 100, buf, 50), -1, "bytes");
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, buf + 50, PAGE), -1,
		  "more was written than was wanted");
	EXPECT_EQ(get_part(new_keys(1), buf, 10, 0, 10).res, -ENOENT,
		  "part of an absent block");
	PASSED("behind the end, absent, less than there is room");
}

struct with_sums {
	struct kv_key key;
	struct kvblk_piece piece;
	struct kvblk_op_ext ext;
	uint32_t sums[KVBLK_VALUE_MAX >> 16];
};

static struct with_sums ws;

/* Return an operation with space for @nr_sums checksums. */
static struct kvblk_op sums_op(uint8_t opcode, uint64_t nr, void *p, size_t len,
			       size_t nr_sums)
{
	struct kvblk_op op;

	ws.key = kv_key(nr);
	ws.piece = kv_piece(p, len);
	ws.ext = (struct kvblk_op_ext){
		.size = sizeof(ws.ext),
		.checksums = kv_addr(ws.sums),
		.nr_checksums = (uint32_t)nr_sums,
	};
	op = kv_op(opcode, &ws.key, &ws.piece, 1);
	op.ext = kv_addr(&ws.ext);
	return op;
}

static size_t sums_of(const uint8_t *p, size_t len, uint32_t *sums)
{
	size_t nr = 0;

	for (size_t at = 0; at < len; at += info.chunk_size, nr++)
		sums[nr] = kv_crc32c(p + at, len - at < info.chunk_size ? len - at : info.chunk_size);
	return nr;
}

static void check_sums(const struct kvblk_result *res, const uint32_t *want, size_t nr,
		       size_t room, const char *what)
{
	if (!EXPECT(res->flags & KVBLK_RES_CHECKSUMS, "%s: no checksums came", what))
		return;
	EXPECT(!memcmp(ws.sums, want, nr * sizeof(*want)), "%s: wrong checksums", what);
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, ws.sums + nr, (room - nr) * sizeof(*want)), -1,
		  "%s: touched behind the checksums", what);
}

static void sums_trip(size_t len, bool producer)
{
	static uint8_t bytes[300000];
	static uint32_t want[8];
	uint64_t nr = new_keys(1);
	struct kvblk_result res;
	struct kvblk_op op;
	size_t n, room;

	kv_fill(kv_seed(nr, 0), 0, bytes, len);
	memcpy(put_area(0), bytes, len);
	n = sums_of(bytes, len, want);
	memcpy(ws.sums, want, sizeof(want));
	op = sums_op(KVBLK_OP_PUT, nr, put_area(0), len, n);
	op.ext = producer ? op.ext : 0;
	ASSERT_EQ(kv_one(fd, &op).res, len, "put of %zu bytes", len);

	for (room = n; room < n + 3; room += 2) {
		memset(ws.sums, KV_UNTOUCHED, sizeof(ws.sums));
		memset(get_area(0), KV_UNTOUCHED, len);
		op = sums_op(KVBLK_OP_GET, nr, get_area(0), len, room);
		res = kv_one(fd, &op);
		ASSERT_EQ(res.res, len, "get of %zu bytes", len);
		EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, get_area(0), len), -1, "bytes");
		if (producer || info.integrity != KVBLK_CHECK_HEADER)
			check_sums(&res, want, n, room, "a whole block");
	}
	if (n == 1)
		return;
	op = sums_op(KVBLK_OP_GET, nr, get_area(0), len, n - 1);
	memset(get_area(0), KV_UNTOUCHED, len);
	EXPECT_EQ(kv_one(fd, &op).res, -EMSGSIZE, "get with room for too few checksums");
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, get_area(0), len), -1, "bytes of a refused get");
	/* bytes of the second chunk: one checksum is returned */
	for (uint32_t at = info.chunk_size; at < info.chunk_size + 2 && at < len; at++) {
		memset(ws.sums, KV_UNTOUCHED, sizeof(ws.sums));
		op = sums_op(KVBLK_OP_GET, nr, get_area(0), len, 1);
		op.flags = KVBLK_OPF_PARTIAL;
		op.offset = at;
		op.length = 1;
		res = kv_one(fd, &op);
		ASSERT_EQ(res.res, 1, "get of a byte of the second chunk");
		if (producer || info.integrity != KVBLK_CHECK_HEADER)
			check_sums(&res, want + 1, 1, 1, "the second chunk");
	}
}

TEST(checksums)
{
	static const size_t sizes[] = { 1, 4096, 65536, 65537, 300000 };
	uint64_t nr = new_keys(1);
	struct kvblk_result res, again;
	struct kvblk_op op;
	uint32_t wrong;

	EXPECT_EQ(kv_crc32c("123456789", 9), 0xe3069283, "check value of CRC32C");
	EXPECT_EQ(info.checksum, KVBLK_CHECKSUM_CRC32C, "kind of checksum");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		sums_trip(sizes[i], true);
		sums_trip(sizes[i], false);
	}
	/* wrong checksums from the caller: a miss if they are verified, else returned unchanged */
	kv_fill(kv_seed(nr, 0), 0, put_area(0), 100000);
	op = sums_op(KVBLK_OP_PUT, nr, put_area(0), 100000, 2);
	ws.sums[0] = 1;
	ws.sums[1] = 2;
	wrong = ws.sums[0];
	ASSERT_EQ(kv_one(fd, &op).res, 100000, "put with wrong checksums");
	memset(get_area(0), KV_UNTOUCHED, 100000);
	op = sums_op(KVBLK_OP_GET, nr, get_area(0), 100000, 2);
	res = kv_one(fd, &op);
	if (res.res == -ENOENT) {
		EXPECT_EQ(kv_leaked(get_area(0), 100000), -1, "bytes of a miss");
		EXPECT_EQ(kv_size(fd, nr), 0, "lookup of it");
		EXPECT_EQ(kv_put(fd, nr, put_area(0), 100000).res, 100000, "put of it anew");
		EXPECT_EQ(kv_get(fd, nr, get_area(0), 100000).res, 100000, "get of that");
	} else {
		EXPECT(getenv("KV_MEMORY") || info.integrity == KVBLK_CHECK_HEADER,
		       "wrong checksums went unseen: %d", res.res);
		EXPECT_EQ(ws.sums[0], wrong, "the producer's word");
		/* the kernel verifies bytes that pass through its memory */
		memset(get_area(0), KV_UNTOUCHED, 100000);
		op.flags = KVBLK_OPF_HARD_DEADLINE;
		op.deadline_ns = UINT64_MAX;
		again = kv_one(fd, &op);
		EXPECT_EQ(again.res, -ENOENT, "get of it through kernel memory");
	}
	PASSED("the kernel's and producers', whole and in part; wrong ones: %s",
	       res.res == -ENOENT ? "a miss" : "for the caller to see");
}

/*
 * Producers' checksums are of the plaintext: a put checks them, and a get returns none.
 * KV_ENCRYPTED: the node's tenant is encrypted.
 */
TEST(checksums_of_an_encrypted_tenant)
{
	static const size_t sizes[] = { 1, 65536, 100000 };

	if (!getenv("KV_ENCRYPTED"))
		SKIP("the node's tenant is not encrypted");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		uint64_t nr = new_keys(1);
		struct kvblk_result res;
		struct kvblk_op op;
		size_t n;

		kv_fill(kv_seed(nr, 0), 0, put_area(0), sizes[i]);
		n = sums_of(put_area(0), sizes[i], ws.sums);
		op = sums_op(KVBLK_OP_PUT, nr, put_area(0), sizes[i], n);
		/* of the last chunk */
		ws.sums[n - 1] ^= 1;
		EXPECT_EQ(kv_one(fd, &op).res, -EBADMSG, "put with a wrong checksum");
		EXPECT_EQ(kv_size(fd, nr), 0, "lookup of it");
		ws.sums[n - 1] ^= 1;
		EXPECT_EQ(kv_one(fd, &op).res, sizes[i], "put with checksums");
		memset(ws.sums, KV_UNTOUCHED, sizeof(ws.sums));
		op = sums_op(KVBLK_OP_GET, nr, get_area(0), sizes[i], n);
		res = kv_one(fd, &op);
		EXPECT_EQ(res.res, sizes[i], "get");
		EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, get_area(0), sizes[i]), -1, "bytes");
		EXPECT(!(res.flags & KVBLK_RES_CHECKSUMS), "the get has checksums");
	}
	PASSED("checked, and not stored");
}

/* A block whose checksums are wrong: only a get whose caller checks has it, in whole chunks. */
TEST(caller_checks)
{
	static const uint32_t wrong[] = { 0xbad, 0xbad2 };
	uint64_t nr = new_keys(1);
	struct kvblk_result res;
	struct kvblk_op op;

	kv_fill(kv_seed(nr, 0), 0, put_area(0), 100000);
	op = sums_op(KVBLK_OP_PUT, nr, put_area(0), 100000, 2);
	memcpy(ws.sums, wrong, sizeof(wrong));
	ASSERT_EQ(kv_one(fd, &op).res, 100000, "put with wrong checksums");
	for (uint32_t first = 0; first < 2; first++) {
		memset(ws.sums, KV_UNTOUCHED, sizeof(ws.sums));
		memset(get_area(0), KV_UNTOUCHED, 100000);
		op = sums_op(KVBLK_OP_GET, nr, get_area(0), 100000, 2);
		op.flags = KVBLK_OPF_CALLER_CHECKS | (first ? KVBLK_OPF_PARTIAL : 0);
		op.offset = first * info.chunk_size;
		res = kv_one(fd, &op);
		ASSERT_EQ(res.res, 100000 - op.offset, "get from chunk %u, checked by its caller",
			  first);
		EXPECT_EQ(kv_wrong(kv_seed(nr, 0), op.offset, get_area(0), (size_t)res.res), -1,
			  "bytes");
		check_sums(&res, wrong + first, 2 - first, 2, "for the caller to check");
	}
	/* a caller cannot check a part of a chunk */
	memset(get_area(0), KV_UNTOUCHED, 100000);
	op = sums_op(KVBLK_OP_GET, nr, get_area(0), 100000, 2);
	op.flags = KVBLK_OPF_CALLER_CHECKS | KVBLK_OPF_PARTIAL;
	op.offset = 1;
	res = kv_one(fd, &op);
	if (info.integrity != KVBLK_CHECK_FULL && res.res == 99999) {
		PASSED("bytes and checksums come unchecked; also a part of a chunk");
		return;
	}
	EXPECT_EQ(res.res, -ENOENT, "get of a part of a chunk");
	EXPECT_EQ(kv_leaked(get_area(0), 100000), -1, "bytes of a miss");
	EXPECT_EQ(kv_size(fd, nr), 0, "lookup after the kernel's check");
	PASSED("bytes and checksums come unchecked; a part of a chunk is checked");
}

TEST(layout_tag)
{
	struct kv_key key = kv_key(new_keys(1));
	struct kvblk_piece piece = kv_piece(put_area(0), 5000);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
	struct kvblk_op_ext ext;
	struct kvblk_result res;

	kv_tags(&op, &ext, 0x1122334455667788, 0xfedcba9876543210);
	ASSERT_EQ(kv_one(fd, &op).res, 5000, "put");

	piece = kv_piece(get_area(0), 5000);
	memset(get_area(0), KV_UNTOUCHED, 5000);
	op = kv_op(KVBLK_OP_GET, &key, &piece, 1);
	op.flags = KVBLK_OPF_LAYOUT;
	kv_tags(&op, &ext, 1, 0);
	EXPECT_EQ(kv_one(fd, &op).res, -ENOENT, "get with another layout tag");
	EXPECT_EQ(kv_leaked(get_area(0), 5000), -1,
		  "a get with another layout tag delivered bytes");
	ext.layout_tag = 0x1122334455667788;
	EXPECT_EQ(kv_one(fd, &op).res, 5000, "get with the right layout tag");
	op.flags = 0;
	op.ext = 0;
	res = kv_one(fd, &op);
	EXPECT_EQ(res.res, 5000, "get that does not ask");
	EXPECT_EQ(res.layout_tag, 0x1122334455667788, "layout tag told");
	EXPECT_EQ(res.caller_tag, (long long)0xfedcba9876543210,
		  "caller tag told");
	PASSED("another layout is a miss; both tags come back");
}

TEST(ttl)
{
	struct kv_key key = kv_key(next_key);
	uint64_t nr = new_keys(2), start = kv_now_ms();
	struct kvblk_piece piece = kv_piece(put_area(0), 5000);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
	uint64_t stored, before, gone;
	struct kvblk_result res;

	kv_fill(kv_seed(nr, 0), 0, put_area(0), 5000);
	op.ttl_s = 3;
	ASSERT_EQ(kv_one(fd, &op).res, 5000, "put for 3 s");
	stored = kv_now_ms();
	op.ttl_s = KVBLK_TTL_MAX;
	key = kv_key(nr + 1);
	op.key_len = key.len;
	EXPECT_EQ(kv_one(fd, &op).res, 5000, "put for 34 years");
	res = kv_get(fd, nr, get_area(0), 5000);
	gone = kv_now_ms() - start;
	/* if this process was delayed by 3 s, the block may have expired */
	if (res.res != -ENOENT || gone < 3000) {
		EXPECT_EQ(res.res, 5000, "get before it expires, after %llu ms",
			  (unsigned long long)gone);
		EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, get_area(0), 5000), -1,
			  "bytes");
	}
	do {
		usleep(20000);
		before = kv_now_ms() - stored;
		gone = kv_size(fd, nr) ? 0 : kv_now_ms() - start;
		/* expiry has a resolution of 1 s */
	} while (!gone && before < 4000);
	EXPECT(gone >= 3000, "gone after %llu ms, there after %llu, of 3000 to 4000",
	       (unsigned long long)gone, (unsigned long long)before);
	EXPECT_EQ(kv_get(fd, nr, get_area(0), 5000).res, -ENOENT,
		  "get of an expired block");
	EXPECT_EQ(kv_delete(fd, nr).res, -ENOENT, "delete of an expired block");
	EXPECT_EQ(kv_put(fd, nr, put_area(0), 5000).res, 5000,
		  "put of an expired key");
	EXPECT_EQ(kv_get(fd, nr + 1, get_area(0), 5000).res, 5000,
		  "get of the one with the longest time");
	PASSED("gone after %llu ms of 3 s", (unsigned long long)gone);
}

TEST(delete)
{
	uint64_t nr = new_keys(1);

	EXPECT_EQ(kv_delete(fd, nr).res, -ENOENT, "delete of an absent block");
	kv_fill(kv_seed(nr, 1), 0, put_area(0), 9000);
	ASSERT_EQ(kv_put_tagged(fd, nr, put_area(0), 9000, 1).res, 9000, "put");
	EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	EXPECT_EQ(kv_size(fd, nr), 0, "lookup after a delete");
	memset(get_area(0), KV_UNTOUCHED, 9000);
	EXPECT_EQ(kv_get(fd, nr, get_area(0), 9000).res, -ENOENT,
		  "get after a delete");
	EXPECT_EQ(kv_leaked(get_area(0), 9000), -1, "deleted bytes");
	EXPECT_EQ(kv_delete(fd, nr).res, -ENOENT, "second delete");
	kv_fill(kv_seed(nr, 2), 0, put_area(0), 7000);
	EXPECT_EQ(kv_put_tagged(fd, nr, put_area(0), 7000, 2).res, 7000,
		  "put of something else after a delete");
	EXPECT_EQ(kv_get(fd, nr, get_area(0), 9000).res, 7000, "get of that");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 2), 0, get_area(0), 7000), -1, "bytes");
	PASSED("gone at once; the key can be used again");
}

TEST(keys)
{
	uint8_t bytes[2 * KVBLK_KEY_MAX];
	struct kvblk_piece piece = kv_piece(put_area(0), 100);
	struct kv_key key = { .len = 1 };
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);

	/* keys of zeroes, each a prefix of the next: the length must count */
	memset(bytes, 0, sizeof(bytes));
	op.key = kv_addr(bytes);
	for (uint16_t len = 1; len <= KVBLK_KEY_MAX; len += len < 32 ? 1 : 60) {
		memset(put_area(0), len & 0xff, 100);
		op.key_len = len;
		EXPECT_EQ(kv_one(fd, &op).res, 100, "put of key of %u zeroes",
			  len);
	}
	op.opcode = KVBLK_OP_GET;
	piece = kv_piece(get_area(0), 100);
	for (uint16_t len = 1; len <= KVBLK_KEY_MAX; len += len < 32 ? 1 : 60) {
		op.key = kv_addr(bytes + 1);
		op.key_len = len;
		EXPECT_EQ(kv_one(fd, &op).res, 100, "get of key of %u zeroes",
			  len);
		EXPECT_EQ(kv_other_than(len & 0xff, get_area(0), 100), -1,
			  "the bytes of key %u", len);
	}
	PASSED("1 to %d bytes, each the start of the next", KVBLK_KEY_MAX);
}

TEST(dedupe)
{
	uint64_t nr = new_keys(1);
	struct kvblk_result res;

	kv_fill(kv_seed(nr, 0), 0, put_area(0), 6000);
	ASSERT_EQ(kv_put(fd, nr, put_area(0), 6000).res, 6000, "put");
	memset(put_area(0), 0x77, 7000);
	res = kv_put(fd, nr, put_area(0), 6000);
	EXPECT_EQ(res.res, -EEXIST, "second put");
	EXPECT_EQ(res.flags & KVBLK_RES_LEN_DIFFERS, 0, "same length");
	res = kv_put(fd, nr, put_area(0), 7000);
	EXPECT_EQ(res.res, -EEXIST, "second put of another length");
	EXPECT(res.flags & KVBLK_RES_LEN_DIFFERS, "another length is not told");
	EXPECT_EQ(res.value_len, 6000, "value_len with -EEXIST");
	EXPECT_EQ(kv_get(fd, nr, get_area(0), 7000).res, 6000, "get");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, get_area(0), 6000), -1,
		  "the first put's bytes");
	PASSED("the first put stays; another length is told");
}

#define PUTTERS	6

static pthread_barrier_t barrier;

struct putter {
	uint64_t nr;
	unsigned int id;
	int res;
};

static void *put_once(void *arg)
{
	struct putter *p = arg;
	uint8_t *buf = put_area(p->id * 128 * 1024ul);

	/* all threads use one key with different bytes */
	kv_fill(kv_seed(p->nr, p->id), 0, buf, 100000);
	pthread_barrier_wait(&barrier);
	p->res = kv_put_tagged(fd, p->nr, buf, 100000, p->id).res;
	return NULL;
}

TEST(concurrent_puts)
{
	pthread_t threads[PUTTERS];
	struct putter putters[PUTTERS];
	const unsigned int rounds = 25;
	unsigned int busy = 0;

	for (unsigned int i = 0; i < rounds; i++) {
		uint64_t nr = new_keys(1);
		unsigned int winners = 0, winner = 0;
		struct kvblk_result res;

		pthread_barrier_init(&barrier, NULL, PUTTERS);
		for (unsigned int j = 0; j < PUTTERS; j++) {
			putters[j] = (struct putter){ .nr = nr, .id = j };
			pthread_create(&threads[j], NULL, put_once, &putters[j]);
		}
		for (unsigned int j = 0; j < PUTTERS; j++) {
			pthread_join(threads[j], NULL);
			busy += putters[j].res == -EALREADY;
			if (putters[j].res == 100000) {
				winners++;
				winner = j;
			} else {
				EXPECT(putters[j].res == -EEXIST ||
				       putters[j].res == -EALREADY,
				       "putter %u got %d", j, putters[j].res);
			}
		}
		pthread_barrier_destroy(&barrier);
		ASSERT_EQ(winners, 1, "puts of one key that stored it");
		res = kv_get(fd, nr, get_area(0), 100000);
		EXPECT_EQ(res.res, 100000, "get");
		EXPECT_EQ(res.caller_tag, winner, "tag of the winner");
		EXPECT_EQ(kv_wrong(kv_seed(nr, winner), 0, get_area(0), 100000),
			  -1, "bytes of the winner");
	}
	PASSED("%u rounds of %d threads, one winner each; %u were told -EALREADY",
	       rounds, PUTTERS, busy);
}

TEST(mixed_batch)
{
	uint64_t nr = new_keys(12);
	struct kv_key keys[12];
	struct kvblk_piece pieces[12];
	struct kvblk_op ops[12];
	struct kvblk_result res[12];
	static const int want[12] = {
		3000, -EEXIST, 3000, -ENOENT, -EOPNOTSUPP, 0, -ENOENT, -EMSGSIZE,
		-EFAULT, -EOPNOTSUPP, 3000, -EINVAL,
	};

	for (unsigned int i = 0; i < 12; i++) {
		keys[i] = kv_key(nr + i);
		kv_fill(kv_seed(nr + i, 0), 0, put_area(i * 2 * PAGE), 3000);
		pieces[i] = kv_piece(put_area(i * 2 * PAGE), 3000);
		ops[i] = kv_op(KVBLK_OP_PUT, &keys[i], &pieces[i], 1);
		if (i == 1 || i == 2 || i == 5 || i == 7)
			ASSERT_EQ(kv_one(fd, &ops[i]).res, 3000, "put %u", i);
	}
	for (unsigned int i = 0; i < 12; i++)
		ops[i].cookie = 0xabcdef0000 + i * i;
	memset(put_area(2 * 2 * PAGE), KV_UNTOUCHED, 3000);
	ops[2].opcode = KVBLK_OP_GET;			/* hit */
	ops[3].opcode = KVBLK_OP_GET;			/* miss */
	ops[4].opcode = 77;				/* unknown opcode */
	ops[5] = kv_op(KVBLK_OP_DELETE, &keys[5], NULL, 0);
	ops[5].cookie = 0xabcdef0000 + 25;
	ops[6] = kv_op(KVBLK_OP_DELETE, &keys[6], NULL, 0);	/* not present */
	ops[6].cookie = 0xabcdef0000 + 36;
	ops[7].opcode = KVBLK_OP_GET;			/* buffer too small */
	pieces[7].length = 100;
	ops[8].key = 0;					/* unreadable key */
	pieces[9].type = 2;				/* unknown type */
	ops[11].key_len = 0;
	ASSERT_EQ(kv_submit(fd, ops, res, 12, 0), 0, "the batch");
	for (unsigned int i = 0; i < 12; i++) {
		EXPECT_EQ(res[i].res, want[i], "operation %u", i);
		EXPECT_EQ(res[i].cookie, 0xabcdef0000 + i * i, "cookie %u", i);
		EXPECT_EQ(res[i].reserved, 0, "reserved of result %u", i);
	}
	EXPECT_EQ(kv_wrong(kv_seed(nr + 2, 0), 0, put_area(2 * 2 * PAGE), 3000),
		  -1, "bytes of the hit");
	EXPECT_EQ(kv_size(fd, nr), 3000, "first put");
	EXPECT_EQ(kv_size(fd, nr + 10), 3000, "put behind the bad ones");
	for (unsigned int i = 8; i < 12; i++)
		EXPECT_EQ(kv_size(fd, nr + i), i == 10 ? 3000 : 0,
			  "key of operation %u", i);
	PASSED("hit, miss, exists, deleted, bad ones in the middle");
}

#define BATCH	KVBLK_OPS_MAX

static void large_batch(uint32_t flags, size_t len, bool order)
{
	static struct kv_key keys[BATCH];
	static struct kvblk_piece pieces[BATCH];
	static struct kvblk_op ops[BATCH];
	static struct kvblk_result res[BATCH];
	static struct kvblk_op_ext exts[BATCH];
	uint64_t nr = new_keys(BATCH);
	unsigned int stored = 0;

	for (unsigned int i = 0; i < BATCH; i++) {
		uint8_t *p = put_area(i * len);

		keys[i] = kv_key(nr + i);
		kv_fill(kv_seed(nr + i, 0), 0, p, len);
		pieces[i] = kv_piece(p, len);
		ops[i] = kv_op(KVBLK_OP_PUT, &keys[i], &pieces[i], 1);
		ops[i].cookie = i;
		if (order && i) {
			exts[i] = (struct kvblk_op_ext){
				.size = sizeof(exts[i]),
				.parent = kv_addr(keys[i - 1].bytes),
				.parent_len = keys[i - 1].len,
				.hints = KVBLK_HINT_CONTINUES | KVBLK_HINT_MISSED,
			};
			ops[i].ext = kv_addr(&exts[i]);
		}
	}
	ASSERT_EQ(kv_submit(fd, ops, res, BATCH, flags), 0, "batch of puts");
	for (unsigned int i = 0; i < BATCH; i++) {
		if (EXPECT_EQ(res[i].res, len, "put %u of %u", i, BATCH))
			stored++;
	}
	memset(put_area(0), KV_UNTOUCHED, BATCH * len);
	for (unsigned int i = 0; i < BATCH; i++)
		ops[i] = kv_op(KVBLK_OP_GET, &keys[i], &pieces[i], 1);
	ASSERT_EQ(kv_submit(fd, ops, res, BATCH, 0), 0, "batch of gets");
	for (unsigned int i = 0; i < BATCH; i++) {
		if (EXPECT_EQ(res[i].res, len, "get %u of %u", i, BATCH))
			EXPECT_EQ(kv_wrong(kv_seed(nr + i, 0), 0,
					   put_area(i * len), len), -1,
				  "bytes of block %u", i);
	}
	for (unsigned int i = 0; i < BATCH; i++)
		ops[i] = kv_op(KVBLK_OP_DELETE, &keys[i], NULL, 0);
	ASSERT_EQ(kv_submit(fd, ops, res, BATCH, 0), 0, "batch of deletes");
	for (unsigned int i = 0; i < BATCH; i++)
		EXPECT_EQ(res[i].res, 0, "delete %u of %u", i, BATCH);
	PASSED("%u puts, gets and deletes of %zu bytes at once", stored, len);
}

TEST(batch_of_1024)
{
	large_batch(0, 4000, false);
}

TEST(chain_of_1024)
{
	large_batch(KVBLK_SUBMIT_CHAIN, 4096, true);
}

TEST(duplicates_in_a_batch)
{
	uint64_t nr = new_keys(1);
	struct kv_key key = kv_key(nr);
	struct kvblk_piece pieces[40];
	struct kvblk_op_ext exts[40];
	struct kvblk_op ops[40];
	struct kvblk_result res[40];
	unsigned int stored = 0, winner = 0;

	for (unsigned int i = 0; i < 40; i++) {
		uint8_t *p = put_area(i * 2 * PAGE);

		kv_fill(kv_seed(nr, i), 0, p, 5000);
		pieces[i] = kv_piece(p, 5000);
		ops[i] = kv_op(KVBLK_OP_PUT, &key, &pieces[i], 1);
		kv_tags(&ops[i], &exts[i], 0, i);
	}
	ASSERT_EQ(kv_submit(fd, ops, res, 40, 0), 0, "the batch");
	for (unsigned int i = 0; i < 40; i++) {
		if (res[i].res == 5000) {
			stored++;
			winner = i;
		} else {
			EXPECT(res[i].res == -EEXIST || res[i].res == -EALREADY,
			       "operation %u got %d", i, res[i].res);
		}
	}
	ASSERT_EQ(stored, 1, "puts of one key in a batch that stored it");
	for (unsigned int i = 0; i < 40; i++)
		ops[i] = kv_op(KVBLK_OP_GET, &key, &pieces[i], 1);
	ASSERT_EQ(kv_submit(fd, ops, res, 40, 0), 0, "40 gets of one key");
	for (unsigned int i = 0; i < 40; i++) {
		EXPECT_EQ(res[i].res, 5000, "get %u", i);
		EXPECT_EQ(kv_wrong(kv_seed(nr, winner), 0,
				   put_area(i * 2 * PAGE), 5000), -1,
			  "bytes of get %u", i);
	}
	for (unsigned int i = 0; i < 40; i++)
		ops[i] = kv_op(KVBLK_OP_DELETE, &key, NULL, 0);
	ASSERT_EQ(kv_submit(fd, ops, res, 40, 0), 0, "40 deletes of one key");
	for (unsigned int i = 0, deleted = 0; i < 40; i++) {
		deleted += res[i].res == 0;
		EXPECT(!res[i].res || res[i].res == -ENOENT,
		       "delete %u got %d", i, res[i].res);
		if (i == 39)
			EXPECT_EQ(deleted, 1, "deletes that found it");
	}
	PASSED("one of 40 puts stored it, one of 40 deletes removed it");
}

TEST(large_operations_and_results)
{
	struct { struct kvblk_op op; uint64_t more[3]; } ops[3];
	struct { struct kvblk_result res; uint64_t more; } res[3];
	struct kv_key keys[3];
	struct kvblk_piece piece = kv_piece(put_area(0), 4000);
	uint64_t nr = new_keys(3);
	struct kvblk_submit_arg submit = {
		.size = sizeof(submit),
		.nr_ops = 3,
		.op_size = sizeof(ops[0]),
		.result_size = sizeof(res[0]),
		.ops = kv_addr(ops),
		.results = kv_addr(res),
	};

	memset(ops, 0, sizeof(ops));
	memset(res, 0xee, sizeof(res));
	for (unsigned int i = 0; i < 3; i++) {
		keys[i] = kv_key(nr + i);
		ops[i].op = kv_op(KVBLK_OP_PUT, &keys[i], &piece, 1);
		ops[i].op.cookie = i;
	}
	ASSERT_EQ(kv_ioctl(fd, KVBLK_IOC_SUBMIT, &submit), 0, "longer structures");
	for (unsigned int i = 0; i < 3; i++) {
		EXPECT_EQ(res[i].res.res, 4000, "put %u", i);
		EXPECT_EQ(res[i].res.cookie, i, "cookie %u", i);
	}
	PASSED("structures of a later version are taken");
}

TEST(deadlines)
{
	uint64_t nr = new_keys(2);
	struct kv_key key = kv_key(nr);
	struct kvblk_piece piece = kv_piece(put_area(0), 4000);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	kv_fill(kv_seed(nr, 0), 0, put_area(0), 4000);
	op.deadline_ns = 1;
	EXPECT_EQ(kv_one(fd, &op).res, -ETIME, "put that is late");
	EXPECT_EQ(kv_size(fd, nr), 0, "a late put is stored");
	op.deadline_ns = (uint64_t)(now.tv_sec + 100) * 1000000000;
	ASSERT_EQ(kv_one(fd, &op).res, 4000, "put with time");
	op.opcode = KVBLK_OP_GET;
	for (unsigned int i = 0; i < 2; i++) {
		op.flags = i ? KVBLK_OPF_HARD_DEADLINE : 0;
		memset(get_area(0), KV_UNTOUCHED, PAGE);
		piece = kv_piece(get_area(0), 4000);
		op.deadline_ns = 1;
		EXPECT_EQ(kv_one(fd, &op).res, -ETIME, "get that is late");
		EXPECT_EQ(kv_leaked(get_area(0), 4000), -1,
			  "a late get delivered bytes");
		op.deadline_ns = (uint64_t)(now.tv_sec + 100) * 1000000000;
		EXPECT_EQ(kv_one(fd, &op).res, 4000, "get with time, flags %#x",
			  op.flags);
		EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, get_area(0), 4000), -1,
			  "bytes");
	}
	PASSED("late ones end with -ETIME, others are served");
}

/* Put with deadlines in a time namespace that is 1000 s ahead. */
static int child_of_namespace(uint64_t nr)
{
	static uint8_t host[4000];
	struct kv_key key = kv_key(nr);
	struct kvblk_piece piece = kv_piece(host, 4000);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
	struct timespec now;

	kv_ring_forget();
	clock_gettime(CLOCK_MONOTONIC, &now);
	/* past in this namespace, future for the kernel */
	op.deadline_ns = (uint64_t)(now.tv_sec - 1) * 1000000000;
	if (kv_one(fd, &op).res != -ETIME)
		return 1;
	op.deadline_ns = 1;
	if (kv_one(fd, &op).res != -ETIME)
		return 2;
	op.deadline_ns = UINT64_MAX;
	if (kv_one(fd, &op).res != 4000 || kv_delete(fd, nr).res)
		return 3;
	op.deadline_ns = (uint64_t)(now.tv_sec + 100) * 1000000000;
	return kv_one(fd, &op).res == 4000 ? 0 : 4;
}

TEST(deadlines_of_a_time_namespace)
{
	uint64_t nr = new_keys(1);
	int file, status = 0;
	pid_t pid;

	pid = fork();
	if (!pid) {
		file = open("/proc/self/timens_offsets", O_WRONLY);
		if (file < 0 || unshare(CLONE_NEWTIME))
			_exit(77);
		if (write(file, "monotonic 1000 0", 16) != 16)
			_exit(78);
		/* unshare() applies to the next child */
		pid = fork();
		if (!pid)
			_exit(child_of_namespace(nr));
		waitpid(pid, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 79);
	}
	waitpid(pid, &status, 0);
	if (status == 77 << 8)
		SKIP("no time namespaces to be had");
	ASSERT_EQ(status, 0, "a child whose clock is 1000 s ahead");
	EXPECT_EQ(kv_size(fd, nr), 4000, "what it put in time");
	PASSED("deadlines are by the caller's clock");
}

TEST(cancel_what_is_not_there)
{
	struct { struct kvblk_cancel_arg io; uint64_t more; } cancel = {
		.io = { .size = sizeof(cancel), .cookie = 1, .nr_found = 77 },
	};

	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &cancel), -ENOENT,
		  "cancel of an unknown cookie");
	EXPECT_EQ(cancel.io.nr_found, 0, "found");
	EXPECT_EQ(cancel.io.size, sizeof(cancel.io), "size that a cancel writes back");
	PASSED("-ENOENT, and none found");
}

static atomic_bool stop;

static void *cancel_all(void *arg)
{
	unsigned int *found = arg;

	while (!stop) {
		struct kvblk_cancel_arg cancel = {
			.size = sizeof(cancel), .cookie = 0xcacece1
		};
		int err = kv_ioctl(fd, KVBLK_IOC_CANCEL, &cancel);

		EXPECT(!err || err == -ENOENT, "cancel: %d", err);
		if (!err)
			*found += cancel.nr_found;
	}
	return NULL;
}

/* A canceled put is stored as a whole or not at all; a canceled get is right or canceled. */
TEST(cancel_in_flight)
{
	enum { NR = 64, LEN = 16384 };
	static struct kv_key keys[NR];
	struct kvblk_piece pieces[NR];
	struct kvblk_op ops[NR];
	struct kvblk_result res[NR];
	unsigned int found = 0, canceled = 0;
	pthread_t thread;

	stop = false;
	pthread_create(&thread, NULL, cancel_all, &found);
	for (unsigned int round = 0; round < 20; round++) {
		uint64_t nr = new_keys(NR);
		bool stored[NR];

		for (unsigned int i = 0; i < NR; i++) {
			keys[i] = kv_key(nr + i);
			kv_fill(kv_seed(nr + i, 0), 0, put_area(i * LEN), LEN);
			pieces[i] = kv_piece(put_area(i * LEN), LEN);
			ops[i] = kv_op(KVBLK_OP_PUT, &keys[i], &pieces[i], 1);
			ops[i].cookie = 0xcacece1;
		}
		ASSERT_EQ(kv_submit(fd, ops, res, NR, 0), 0, "puts");
		for (unsigned int i = 0; i < NR; i++) {
			stored[i] = res[i].res == LEN;
			canceled += res[i].res == -ECANCELED;
			EXPECT(stored[i] || res[i].res == -ECANCELED,
			       "put %u got %d", i, res[i].res);
			EXPECT_EQ(kv_size(fd, nr + i), stored[i] ? LEN : 0,
				  "lookup after a put that got %d", res[i].res);
		}
		memset(put_area(0), KV_UNTOUCHED, NR * LEN);
		for (unsigned int i = 0; i < NR; i++)
			ops[i].opcode = KVBLK_OP_GET;
		ASSERT_EQ(kv_submit(fd, ops, res, NR, 0), 0, "gets");
		for (unsigned int i = 0; i < NR; i++) {
			uint8_t *p = put_area(i * LEN);

			if (res[i].res == LEN) {
				EXPECT_EQ(kv_wrong(kv_seed(nr + i, 0), 0, p, LEN),
					  -1, "bytes of get %u", i);
				continue;
			}
			canceled += res[i].res == -ECANCELED;
			EXPECT(res[i].res == -ECANCELED ||
			       (res[i].res == -ENOENT && !stored[i]),
			       "get %u got %d", i, res[i].res);
			EXPECT_EQ(kv_leaked(p, LEN), -1,
				  "get %u got %d and bytes", i, res[i].res);
		}
	}
	stop = true;
	pthread_join(thread, NULL);
	PASSED("%u found in flight, %u ended with -ECANCELED", found, canceled);
}

int main(int argc, char **argv)
{
	fd = kv_open_node(argc, argv);
	info = kv_info(fd);
	memory_len = 40 << 20;
	memory = kv_alloc(memory_len);
	return kv_run_tests(argc - 2, argv + 2);
}
