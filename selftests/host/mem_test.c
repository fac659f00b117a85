// SPDX-License-Identifier: MIT
/*
 * Memory of all kinds in libkvblk: host memory, mappings of PCI memory, and device pointers.
 * Staged transfers are complete or fail, keep their order and their deadlines, and overlap with
 * copies; no failure leaves anything behind. The module is simulated here, CUDA by fake_cuda.c.
 */
#include "kvblk_test.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

static void *limited_calloc(size_t nr, size_t size);
static void *older_dlsym(void *library, const char *name);
static int simulated_ioctl(int fd, unsigned long request, void *arg);

#define calloc		limited_calloc
#define dlsym		older_dlsym
#include <sys/ioctl.h>
#define ioctl		simulated_ioctl
#include "../../tools/lib/data.c"
#undef ioctl
#include "../../tools/lib/mem.c"
#include "../../tools/lib/cuda.c"
#include "../../tools/lib/stage.c"
#include "../../tools/lib/checksums.c"
#undef calloc
#undef dlsym

#define MIB	(1u << 20)
#define UNIT	65536u

static void (*fake_fail)(const char *name, int nth, int result);
static void (*fake_mmap)(int mode);
static void (*fake_managed)(uint64_t ptr, bool managed);
static int (*fake_leaks)(void);
static int (*fake_copies)(void);
static int (*fake_launches)(void);
static unsigned char *(*fake_bytes)(uint64_t ptr);

static int fail_alloc;		/* allocations that succeed before one fails; -1: none fails */
static const char *missing;	/* function that the simulated driver lacks */

static void *limited_calloc(size_t nr, size_t size)
{
	if (fail_alloc >= 0 && !fail_alloc--)
		return NULL;
	return calloc(nr, size);
}

static void *older_dlsym(void *library, const char *name)
{
	return missing && !strcmp(name, missing) ? NULL : dlsym(library, name);
}

/* The simulated module: blocks with one-byte keys, and regions. */

struct block {
	unsigned char *data;
	uint32_t len;
	uint64_t layout_tag;
	uint32_t sums[64], nr_sums;	/* of its producer; or @nr_sums is 0 */
};

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;	/* protects all of the pool */
static pthread_cond_t pool_changed = PTHREAD_COND_INITIALIZER;
static struct block blocks[256];
static struct { char *addr; size_t len; } regions[65];
static int nr_regions, region_error, info_error;
static bool gate;			/* batches wait */
static unsigned int nr_at_gate;
static uint64_t ops_seen;
static unsigned int submits_seen, batch_sizes[64];	/* batches */
static int copies_seen[64];		/* by batch: copies to the device before */
static unsigned int end_at;		/* countdown to the operation with @end_result */
static int end_result = -ECANCELED;
static int torn;			/* gets that deliver a wrong byte */
static int submit_error;		/* a batch fails with this */
static uint32_t value_max = 8 * MIB;
static uint32_t hints_seen[64];		/* by batch: hints of the first operation */
static uint8_t parents_seen[64];	/* by batch: key of its parent, 0: none */
static struct kvblk pool = { .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER };
static struct kvblk *const kv = &pool;

static void *memory_of(const struct kvblk_piece *piece)
{
	if (piece->type == KVBLK_PIECE_USER)
		return (void *)(uintptr_t)piece->addr;
	assert_int_equal(piece->type, KVBLK_PIECE_REGISTERED);
	assert_true(piece->handle > 0 && piece->handle < 65);
	assert_non_null(regions[piece->handle].addr);
	assert_true(piece->addr + piece->length <= regions[piece->handle].len);
	return regions[piece->handle].addr + piece->addr;
}

/* Bit by bit, from the definition. */
static uint32_t crc32c(const unsigned char *p, size_t len)
{
	uint32_t crc = ~0u;

	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return ~crc;
}

/* Returns whether the block's checksums match, chunk by chunk. */
static bool matches(const unsigned char *p, size_t len, const uint32_t *sums)
{
	for (size_t at = 0; at < len; at += UNIT) {
		if (*sums++ != crc32c(p + at, len - at < UNIT ? len - at : UNIT))
			return false;
	}
	return true;
}

/*
 * Run an operation. Gets go directly to the memory of a device, unverified, unless a hard deadline
 * requires kernel memory.
 */
static void run(const struct kvblk_op *op, struct kvblk_result *result)
{
	const struct kvblk_piece *piece = (void *)(uintptr_t)op->pieces;
	const struct kvblk_op_ext *ext = (void *)(uintptr_t)op->ext;
	struct block *block = &blocks[*(unsigned char *)(uintptr_t)op->key];
	uint32_t from = op->flags & KVBLK_OPF_PARTIAL ? op->offset : 0, len;

	ops_seen++;
	*result = (struct kvblk_result){ .cookie = op->cookie };
	assert_int_equal(op->nr_pieces, 1);
	if (op->opcode == KVBLK_OP_PUT) {
		if (block->data) {
			result->res = -EEXIST;
			return;
		}
		block->len = (uint32_t)piece->length;
		block->data = malloc(block->len);
		block->layout_tag = ext ? ext->layout_tag : 0;
		memcpy(block->data, memory_of(piece), block->len);
		block->nr_sums = ext ? ext->nr_checksums : 0;
		if (block->nr_sums)
			memcpy(block->sums, (void *)(uintptr_t)ext->checksums, block->nr_sums * 4);
		result->res = (int)block->len;
		result->flags = KVBLK_RES_DIRECT;
		return;
	}
	result->value_len = block->len;
	if (!block->data || (op->flags & KVBLK_OPF_LAYOUT && ext->layout_tag != block->layout_tag)) {
		result->res = -ENOENT;
	} else if (block->nr_sums && op->flags & KVBLK_OPF_HARD_DEADLINE &&
		   !matches(block->data, block->len, block->sums)) {
		result->res = -ENOENT;
	} else if (from >= block->len) {
		result->res = -ERANGE;
	} else if (!(op->flags & KVBLK_OPF_PARTIAL) && piece->length < block->len) {
		result->res = -EMSGSIZE;
	} else {
		len = block->len - from < piece->length ? block->len - from : (uint32_t)piece->length;
		memcpy(memory_of(piece), block->data + from, len);
		result->res = (int)len;
		result->flags = KVBLK_RES_DIRECT;
		result->layout_tag = block->layout_tag;
		if (block->nr_sums && ext && ext->checksums) {
			memcpy((void *)(uintptr_t)ext->checksums, block->sums + from / UNIT,
			       (len + UNIT - 1) / UNIT * 4);
			result->flags |= KVBLK_RES_CHECKSUMS;
		}
		if (torn) {
			*(char *)memory_of(piece) ^= 1;
			torn--;
		}
	}
}

static int simulated_submit(const struct kvblk_submit_arg *s)
{
	const struct kvblk_op *ops = (void *)(uintptr_t)s->ops;
	struct kvblk_result *results = (void *)(uintptr_t)s->results;
	const struct kvblk_op_ext *ext = s->nr_ops ? (void *)(uintptr_t)ops->ext : NULL;

	assert_int_equal(s->result_size, sizeof(*results));
	while (gate) {
		nr_at_gate++;
		pthread_cond_broadcast(&pool_changed);
		pthread_cond_wait(&pool_changed, &pool_lock);
		nr_at_gate--;
	}
	if (submits_seen < 64) {
		batch_sizes[submits_seen] = s->nr_ops;
		copies_seen[submits_seen] = fake_copies();
		hints_seen[submits_seen] = ext ? ext->hints : 0;
		parents_seen[submits_seen] = ext && ext->parent_len ? *(uint8_t *)(uintptr_t)ext->parent : 0;
	}
	submits_seen++;
	for (unsigned int i = 0; i < s->nr_ops && !submit_error; i++) {
		if (end_at && !--end_at)
			results[i] = (struct kvblk_result){ .cookie = ops[i].cookie, .res = end_result };
		else
			run(&ops[i], &results[i]);
	}
	return submit_error;
}

/* Check the first and last byte: a pipe accepts them if they can be read. */
static bool reachable(const char *addr, size_t len)
{
	int fds[2];
	bool yes;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	yes = write(fds[1], addr, 1) == 1 && write(fds[1], addr + len - 1, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return yes;
}

static int simulated_reg_buf(struct kvblk_reg_buf_arg *reg)
{
	char *addr = (char *)(uintptr_t)reg->addr;

	if (region_error)
		return region_error;
	if (!reachable(addr, reg->length))
		return -EFAULT;
	for (reg->handle = 1; regions[reg->handle].addr; reg->handle++)
		assert_true(reg->handle < 64);
	regions[reg->handle].addr = addr;
	regions[reg->handle].len = reg->length;
	nr_regions++;
	return 0;
}

static int simulated_unreg_buf(const struct kvblk_unreg_buf_arg *unreg)
{
	assert_non_null(regions[unreg->handle].addr);
	regions[unreg->handle].addr = NULL;
	nr_regions--;
	return 0;
}

static int simulated_ioctl(int fd, unsigned long request, void *arg)
{
	int err = -ENOENT;

	pthread_mutex_lock(&pool_lock);
	if (request == KVBLK_IOC_SUBMIT) {
		err = simulated_submit(arg);
	} else if (request == KVBLK_IOC_INFO) {
		((struct kvblk_info *)arg)->value_max = value_max;
		((struct kvblk_info *)arg)->chunk_size = UNIT;
		((struct kvblk_info *)arg)->checksum = KVBLK_CHECKSUM_CRC32C;
		err = info_error;
	} else if (request == KVBLK_IOC_REG_BUF) {
		err = simulated_reg_buf(arg);
	} else if (request == KVBLK_IOC_UNREG_BUF) {
		err = simulated_unreg_buf(arg);
	}
	pthread_mutex_unlock(&pool_lock);
	errno = -err;
	return err ? -1 : 0;
}

static int mem_put(struct kvblk_mem *mem, size_t offset, size_t len, const void *key, uint32_t *flags)
{
	struct kvblk_result result = { 0 };
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err = kvblk_prep_piece(&piece, mem, offset, len);

	if (err)
		return err;
	kvblk_prep_put(&op, key, 1, &piece, 1);
	err = kvblk_submit(kv, &op, 1, &result, 0);
	if (flags)
		*flags = result.flags;
	return err ? err : result.res < 0 ? result.res : 0;
}

static int mem_get(struct kvblk_mem *mem, size_t offset, size_t *len, const void *key, uint32_t *flags)
{
	struct kvblk_result result = { 0 };
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err = kvblk_prep_piece(&piece, mem, offset, *len);

	if (err)
		return err;
	kvblk_prep_get(&op, key, 1, &piece, 1);
	err = kvblk_submit(kv, &op, 1, &result, 0);
	if (!err && result.res < 0)
		err = result.res;
	if (!err || err == -EMSGSIZE)
		*len = result.value_len;
	if (flags)
		*flags = result.flags;
	return err;
}

static int setup(void **state)
{
	fail_alloc = -1;
	missing = NULL;
	region_error = info_error = 0;
	ops_seen = submits_seen = end_at = 0;
	end_result = -ECANCELED;
	submit_error = torn = 0;
	fake_fail("", 0, 0);
	fake_mmap(0);
	unsetenv("KVBLK_FAKE_CUDA_NO_CONTEXT");
	driver_state = -ENXIO;
	return 0;
}

static int teardown(void **state)
{
	for (int i = 0; i < 256; i++) {
		free(blocks[i].data);
		blocks[i].data = NULL;
	}
	return fake_leaks() || nr_regions || kv->gpus;
}

static void pattern(unsigned char *p, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)(i * 31 + i / 251 + seed);
}

static void block_set(unsigned char key, uint32_t len)
{
	free(blocks[key].data);
	blocks[key].data = malloc(len);
	blocks[key].len = len;
	blocks[key].layout_tag = 5;
	pattern(blocks[key].data, len, key);
}

static unsigned char *device(const struct kvblk_mem *mem)
{
	return fake_bytes((uintptr_t)kvblk_mem_addr(mem));
}

static bool all_are(const unsigned char *p, size_t len, unsigned char byte)
{
	while (len && *p == byte) {
		p++;
		len--;
	}
	return !len;
}

static const struct kvblk_mem_options small = { .size = sizeof(small), .block_max = 20 * UNIT, .lanes = 2 };

static struct kvblk_mem *vram(size_t len)
{
	struct kvblk_mem *mem;

	assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", len, &small, &mem), 0);
	return mem;
}

/* Returns how operations reach the memory. */
static enum kvblk_mem_kind kind_of(const struct kvblk_mem *mem)
{
	struct kvblk_mem_info info = { .size = sizeof(info) };

	assert_int_equal(kvblk_mem_get_info(mem, &info), 0);
	return info.kind;
}

#define MEM_TEST(test)	TEST_WITH(test, setup, teardown)

MEM_TEST(test_host)
{
	static unsigned char bytes[3 * MIB];
	struct kvblk_piece piece;
	struct kvblk_mem *mem;
	uint32_t flags;
	size_t len;

	assert_int_equal(kvblk_mem_register(kv, bytes + 3, sizeof(bytes) - 3, NULL, &mem), 0);
	assert_int_equal(kind_of(mem), KVBLK_MEM_REGISTERED);
	assert_ptr_equal(kvblk_mem_addr(mem), bytes + 3);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 10, 20), 0);
	assert_int_equal(piece.type, KVBLK_PIECE_REGISTERED);
	assert_int_equal(piece.addr, 10);
	assert_int_equal(piece.length, 20);
	pattern(bytes, MIB, 1);
	assert_int_equal(mem_put(mem, 97, MIB - 100, "a", &flags), 0);
	assert_int_equal(flags, KVBLK_RES_DIRECT);
	assert_int_equal(mem_put(mem, 97, MIB - 100, "a", NULL), -EEXIST);
	len = 2 * MIB - 3;
	assert_int_equal(mem_get(mem, MIB, &len, "a", &flags), 0);
	assert_int_equal(len, MIB - 100);
	assert_memory_equal(bytes + 3 + MIB, bytes + 100, MIB - 100);
	len = 5;
	assert_int_equal(mem_get(mem, 0, &len, "a", NULL), -EMSGSIZE);
	assert_int_equal(len, MIB - 100);
	assert_int_equal(mem_get(mem, 0, &len, "b", NULL), -ENOENT);
	kvblk_mem_unregister(mem);
	kvblk_mem_unregister(NULL);

	assert_int_equal(kvblk_mem_alloc(kv, "host", 5000, NULL, &mem), 0);
	memset(kvblk_mem_addr(mem), 1, 5000);
	kvblk_mem_unregister(mem);
}

MEM_TEST(test_bad_input)
{
	static char bytes[MIB];
	static const struct kvblk_mem_options bad[] = {
		{ .size = sizeof(bad[0]), .block_max = KVBLK_VALUE_MAX + 1 },
		{ .size = sizeof(bad[0]), .lanes = KVBLK_MEM_LANES_MAX + 1 },
		{ .size = sizeof(bad[0]) - 1 },
	};
	struct kvblk_mem *mem = NULL;
	struct kvblk_piece piece;
	size_t len = 1;

	assert_int_equal(kvblk_mem_register(NULL, bytes, 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, NULL, 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, bytes, 0, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, bytes, 1, NULL, NULL), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, bytes, (64ull << 30) + 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, (void *)(UINTPTR_MAX - 10), 20, NULL, &mem), -EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(kvblk_mem_register(kv, bytes, 1, &bad[i], &mem), -EINVAL);
		assert_int_equal(kvblk_mem_alloc(kv, "host", 1, &bad[i], &mem), -EINVAL);
	}
	assert_int_equal(kvblk_mem_alloc(NULL, "host", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, NULL, 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "host", 0, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "host", 1, NULL, NULL), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:0x", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:1", 1, NULL, &mem), -ENODEV);
	assert_int_equal(kvblk_mem_alloc(kv, "00:01", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "00:01.0x", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "fffe:ff:1f.7", 1, NULL, &mem), -ENOENT);
	assert_int_equal(kvblk_mem_alloc(kv, "ff:1f.7", 1, NULL, &mem), -ENOENT);
	assert_int_equal(kvblk_mem_alloc(kv, "/nowhere", 1, NULL, &mem), -ENOENT);
	assert_int_equal(kvblk_mem_alloc(kv, "/dev/null", 1, NULL, &mem), -ENODEV);
	assert_null(mem);

	assert_int_equal(kvblk_mem_register(kv, bytes, 100, NULL, &mem), 0);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 0, 0), -EINVAL);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 0, 101), -EFAULT);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 101, 1), -EFAULT);
	assert_int_equal(kvblk_prep_piece(&piece, mem, SIZE_MAX, 1), -EFAULT);
	assert_int_equal(mem_put(mem, 0, 101, "a", NULL), -EFAULT);
	assert_int_equal(mem_get(mem, 100, &len, "a", NULL), -EFAULT);
	assert_int_equal(ops_seen, 0);
	kvblk_mem_unregister(mem);
}

MEM_TEST(test_what_cannot_be_pinned)
{
	char *hole = mmap(NULL, 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static char bytes[4096];
	struct kvblk_mem *mem = NULL;

	mprotect(hole, 4096, PROT_READ | PROT_WRITE);
	assert_int_equal(kvblk_mem_register(kv, hole, 2 * 4096, NULL, &mem), -EFAULT);
	assert_int_equal(kvblk_mem_register(kv, hole + 4096, 4096, NULL, &mem), -EFAULT);
	munmap(hole, 2 * 4096);
	for (const int *err = (const int[]){ -EFAULT, -ENOMEM, -ENOSPC, -ENODEV, 0 }; *err; err++) {
		region_error = *err;
		assert_int_equal(kvblk_mem_register(kv, bytes, 4096, NULL, &mem), *err);
		assert_int_equal(kvblk_mem_alloc(kv, "host", 4096, NULL, &mem), *err);
	}
	region_error = 0;
	fail_alloc = 0;
	assert_int_equal(kvblk_mem_register(kv, bytes, 4096, NULL, &mem), -ENOMEM);
}

/* Memory that the kernel does not pin for long: pinned for each operation. */
MEM_TEST(test_pinned_each_time)
{
	char path[] = "/tmp/kvblk-mem-test-XXXXXX";
	int fd = mkstemp(path);
	struct kvblk_piece piece;
	struct kvblk_mem *mem;
	uint32_t flags;
	size_t len = 4;

	assert_int_equal(ftruncate(fd, 8192), 0);
	region_error = -EXDEV;
	assert_int_equal(kvblk_mem_alloc(kv, path, 5000, NULL, &mem), 0);
	assert_int_equal(kind_of(mem), KVBLK_MEM_ADDRESSED);
	memcpy(kvblk_mem_addr(mem), "abcdefgh", 8);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 2, 3), 0);
	assert_int_equal(piece.type, KVBLK_PIECE_USER);
	assert_memory_equal((char *)(uintptr_t)piece.addr, "cde", 3);
	assert_int_equal(mem_put(mem, 4, 4, "a", &flags), 0);
	assert_int_equal(mem_get(mem, 4000, &len, "a", &flags), 0);
	assert_int_equal(flags, KVBLK_RES_DIRECT);
	assert_memory_equal((char *)kvblk_mem_addr(mem) + 4000, "efgh", 4);
	kvblk_mem_unregister(mem);
	close(fd);
	unlink(path);
}

MEM_TEST(test_staged)
{
	static const size_t lens[] = { 1, 4095, UNIT, UNIT + 1, 3 * UNIT - 1, 20 * UNIT };
	struct kvblk_mem *mem = vram(3 * MIB);
	struct kvblk_piece piece;
	uint32_t flags;
	char key = 'a';

	assert_int_equal(kind_of(mem), KVBLK_MEM_STAGED);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 3 * MIB - 1, 2), -EFAULT);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 0, 1), 0);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++, key++) {
		size_t len = lens[i] + 5;

		pattern(device(mem) + 11, lens[i], (unsigned int)i);
		assert_int_equal(mem_put(mem, 11, lens[i], &key, &flags), 0);
		assert_int_equal(flags, KVBLK_RES_BOUNCED);
		assert_int_equal(blocks[(int)key].len, lens[i]);
		assert_memory_equal(blocks[(int)key].data, device(mem) + 11, lens[i]);
		memset(device(mem), 0xee, 3 * MIB);
		flags = 0;
		assert_int_equal(mem_get(mem, 77, &len, &key, &flags), 0);
		assert_int_equal(flags, KVBLK_RES_BOUNCED);
		assert_int_equal(len, lens[i]);
		assert_memory_equal(device(mem) + 77, blocks[(int)key].data, len);
		assert_true(all_are(device(mem), 77, 0xee));
		assert_true(all_are(device(mem) + 77 + len, 3 * MIB - 77 - len, 0xee));
	}
	kvblk_mem_unregister(mem);
}

MEM_TEST(test_staged_limits)
{
	struct kvblk_mem *mem = vram(3 * MIB);
	size_t len = 3 * MIB;

	assert_int_equal(mem_put(mem, 0, 20 * UNIT + 1, "a", NULL), -EFBIG);
	block_set('b', 20 * UNIT + 1);
	assert_int_equal(mem_get(mem, 0, &len, "b", NULL), -EFBIG);
	assert_int_equal(len, 3 * MIB);
	len = UNIT;
	assert_int_equal(mem_get(mem, 0, &len, "b", NULL), -EMSGSIZE);
	assert_int_equal(len, 20 * UNIT + 1);
	assert_int_equal(mem_get(mem, 0, &len, "c", NULL), -ENOENT);
	assert_true(all_are(device(mem), 3 * MIB, 0xdd));
	kvblk_mem_unregister(mem);
}

/* Batches: each block has three pieces, of two memories in turn. */

#define NR	12u

struct scattered {
	struct kvblk_mem *mems[2];
	struct kvblk_op ops[NR];
	struct kvblk_piece pieces[NR][3];
	struct kvblk_result results[NR];
	uint8_t keys[NR];
};

static const uint32_t piece_lens[3] = { 3 * UNIT, 1, UNIT + 77 };
#define LEN	((int)(4 * UNIT + 78))	/* four fit in half a lane */

/* Return the offset of piece @j of block @i; pieces do not touch. */
static size_t place(unsigned int i, unsigned int j)
{
	return (i * 3 + j) * (3 * UNIT + 100) + 5;
}

static void scatter(struct scattered *s, uint8_t opcode)
{
	memset(s->results, 0xaa, sizeof(s->results));
	for (unsigned int i = 0; i < NR; i++) {
		s->keys[i] = (uint8_t)(1 + i);
		for (unsigned int j = 0; j < 3; j++)
			assert_int_equal(kvblk_prep_piece(&s->pieces[i][j], s->mems[(i + j) % 2],
							  place(i, j), piece_lens[j]), 0);
		kvblk_prep_put(&s->ops[i], &s->keys[i], 1, s->pieces[i], 3);
		s->ops[i].opcode = opcode;
		s->ops[i].cookie = 100 + i;
	}
}

static void scattered_setup(struct scattered *s)
{
	for (unsigned int i = 0; i < 2; i++)
		s->mems[i] = vram(8 * MIB);
	/* both memories share one stage */
	assert_int_equal(nr_regions, 2);
	for (unsigned int i = 0; i < 2; i++)
		pattern(device(s->mems[i]), 8 * MIB, i);
}

static void scattered_end(struct scattered *s)
{
	for (unsigned int i = 0; i < 2; i++)
		kvblk_mem_unregister(s->mems[i]);
}

/* Check that block @i is in the pool and equal to the pieces; else the pieces must have @otherwise. */
static void check_pieces(const struct scattered *s, unsigned int i, bool there, unsigned char otherwise)
{
	const struct block *block = &blocks[s->keys[i]];
	size_t at = 0;

	for (unsigned int j = 0; j < 3; j++) {
		const unsigned char *p = device(s->mems[(i + j) % 2]) + place(i, j);

		if (there)
			assert_memory_equal(p, block->data + at, piece_lens[j]);
		else
			assert_true(all_are(p, piece_lens[j], otherwise));
		at += piece_lens[j];
	}
}

static void check_scattered(bool by_batch)
{
	struct scattered s;
	int copies_before;

	scattered_setup(&s);
	if (!by_batch)
		kvblk_cu.batch = NULL;
	scatter(&s, KVBLK_OP_PUT);
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	assert_int_equal(submits_seen, 3);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(batch_sizes[i], 4);
	for (unsigned int i = 0; i < NR; i++) {
		assert_int_equal(s.results[i].res, LEN);
		assert_int_equal(s.results[i].flags, KVBLK_RES_BOUNCED);
		assert_int_equal(s.results[i].cookie, 100 + i);
		assert_int_equal(blocks[s.keys[i]].len, LEN);
		check_pieces(&s, i, true, 0);
	}
	for (unsigned int i = 0; i < 2; i++)
		memset(device(s.mems[i]), 0xee, 8 * MIB);
	/* a missing block, and two of other lengths */
	free(blocks[3].data);
	blocks[3].data = NULL;
	block_set(6, LEN + 1);
	block_set(9, LEN - UNIT);
	scatter(&s, KVBLK_OP_GET);
	copies_before = fake_copies();
	submits_seen = 0;
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	/* the first load is copied to the device while the module works on the second */
	assert_int_equal(copies_seen[0], copies_before);
	assert_true(copies_seen[1] > copies_before);
	for (unsigned int i = 0; i < NR; i++) {
		int expected = i == 2 ? -ENOENT : i == 5 ? -EMSGSIZE : i == 8 ? LEN - (int)UNIT : LEN;

		assert_int_equal(s.results[i].res, expected);
		assert_int_equal(s.results[i].cookie, 100 + i);
		if (i == 8)
			continue;
		check_pieces(&s, i, expected > 0, 0xee);
	}
	/* a block shorter than its buffer fills the first pieces only */
	assert_memory_equal(device(s.mems[0]) + place(8, 0), blocks[9].data, 3 * UNIT);
	assert_memory_equal(device(s.mems[1]) + place(8, 1), blocks[9].data + 3 * UNIT, 1);
	assert_memory_equal(device(s.mems[0]) + place(8, 2), blocks[9].data + 3 * UNIT + 1, 77);
	assert_true(all_are(device(s.mems[0]) + place(8, 2) + 77, UNIT, 0xee));
	scatter(&s, KVBLK_OP_GET);
	s.ops[0].flags = KVBLK_OPF_PARTIAL;
	s.ops[0].offset = 100;
	memset(device(s.mems[0]), 0xee, 8 * MIB);
	s.ops[0].nr_pieces = 1;
	assert_int_equal(kvblk_submit(kv, s.ops, 1, s.results, 0), 0);
	assert_int_equal(s.results[0].res, 3 * UNIT);
	assert_memory_equal(device(s.mems[0]) + place(0, 0), blocks[1].data + 100, 3 * UNIT);
	assert_true(all_are(device(s.mems[0]) + place(0, 0) + 3 * UNIT, 100, 0xee));
	scattered_end(&s);
}

MEM_TEST(test_scattered)
{
	check_scattered(true);
}

/* Drivers before CUDA 12.8 have no batch copy. */
MEM_TEST(test_scattered_singly)
{
	check_scattered(false);
}

/* More pieces than one copy call takes. */
MEM_TEST(test_many_pieces)
{
	static struct kvblk_piece pieces[2][1000];
	struct kvblk_mem *mem = vram(2 * MIB);
	struct kvblk_result results[2];
	struct kvblk_op ops[2];

	pattern(device(mem), 2 * MIB, 3);
	for (unsigned int i = 0; i < 2000; i++)
		assert_int_equal(kvblk_prep_piece(&pieces[i % 2][i / 2], mem, i * 1000 + i % 7, 600 + i % 300), 0);
	for (unsigned int i = 0; i < 2; i++)
		kvblk_prep_put(&ops[i], i ? "b" : "a", 1, pieces[i], 1000);
	assert_int_equal(kvblk_submit(kv, ops, 2, results, 0), 0);
	memset(device(mem), 0, 2 * MIB);
	for (unsigned int i = 0; i < 2; i++) {
		size_t at = 0;

		assert_true(results[i].res > 600 * 1000);
		ops[i].opcode = KVBLK_OP_GET;
		for (unsigned int j = 0; j < 1000; j++)
			at += pieces[i][j].length;
		assert_int_equal(results[i].res, at);
	}
	assert_int_equal(kvblk_submit(kv, ops, 2, results, 0), 0);
	for (unsigned int i = 0; i < 2; i++) {
		const unsigned char *data = blocks[i ? 'b' : 'a'].data;

		for (unsigned int j = 0; j < 1000; j++) {
			assert_memory_equal(fake_bytes(pieces[i][j].addr), data, pieces[i][j].length);
			data += pieces[i][j].length;
		}
	}
	kvblk_mem_unregister(mem);
}

/* Puts, gets, and operations without device memory, interleaved. */
MEM_TEST(test_mixed_batch)
{
	static unsigned char bytes[100];
	static const uint8_t other = 'x';
	struct kvblk_piece host;
	struct scattered s;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	for (unsigned int i = 0; i < NR; i += 2) {
		s.ops[i].opcode = KVBLK_OP_GET;
		block_set(s.keys[i], LEN);
	}
	kvblk_prep_piece(&host, NULL, (uintptr_t)bytes, sizeof(bytes));
	kvblk_prep_put(&s.ops[7], &other, 1, &host, 1);
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	for (unsigned int i = 0; i < NR; i++) {
		assert_int_equal(s.results[i].res, i == 7 ? (int)sizeof(bytes) : LEN);
		if (i != 7)
			check_pieces(&s, i, true, 0);
	}
	assert_int_equal(blocks['x'].len, sizeof(bytes));
	/* a batch without device memory is passed to kvblk_submit() */
	submits_seen = 0;
	submit_error = -EINTR;
	assert_int_equal(kvblk_submit(kv, &s.ops[7], 1, s.results, 0), -EINTR);
	assert_int_equal(kvblk_submit(kv, s.ops, 0, s.results, 0), -EINTR);
	assert_int_equal(submits_seen, 2);
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	for (unsigned int i = 0; i < NR; i++)
		assert_int_equal(s.results[i].res, -EINTR);
	scattered_end(&s);
}

MEM_TEST(test_refused_in_batch)
{
	static unsigned char bytes[100];
	struct kvblk_mem *other;
	struct kvblk_piece late;
	struct scattered s;

	scattered_setup(&s);
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", MIB, NULL, &other), 0);
	for (unsigned int good = 0; good < NR; good++) {
		scatter(&s, KVBLK_OP_PUT);
		/* make all but one invalid, in six ways */
		for (unsigned int i = 0; i < NR; i++) {
			if (i == good)
				continue;
			switch (i % 6) {
			case 0:
				s.pieces[i][1].length = 0;
				break;
			case 1:
				kvblk_prep_piece(&s.pieces[i][2], NULL, (uintptr_t)bytes, sizeof(bytes));
				break;
			case 2:
				assert_int_equal(kvblk_prep_piece(&s.pieces[i][0], other, 0, 1), 0);
				assert_int_equal(kvblk_prep_piece(&s.pieces[i][1], s.mems[0], 0, 1), 0);
				break;
			case 3:
				s.pieces[i][0].length = 20 * UNIT;
				break;
			case 4:
				s.ops[i].opcode = KVBLK_OP_DELETE;
				break;
			case 5:
				s.pieces[i][0].handle = 12345;
				break;
			}
		}
		assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
		for (unsigned int i = 0; i < NR; i++) {
			static const int errs[] = { -EINVAL, -EXDEV, -EXDEV, -EFBIG, -EINVAL, -EINVAL };

			assert_int_equal(s.results[i].res, i == good ? LEN : errs[i % 6]);
			assert_int_equal(s.results[i].cookie, 100 + i);
		}
		free(blocks[s.keys[good]].data);
		blocks[s.keys[good]].data = NULL;
	}
	/* memory that was unregistered */
	assert_int_equal(kvblk_prep_piece(&late, other, 0, 1), 0);
	kvblk_mem_unregister(other);
	s.pieces[0][0] = late;
	assert_int_equal(kvblk_submit(kv, s.ops, 1, s.results, 0), 0);
	assert_int_equal(s.results[0].res, -EINVAL);
	scattered_end(&s);
}

/* A chain is kept when the batch is split into loads. */
MEM_TEST(test_chain)
{
	struct kvblk_op_ext ext, longer[2] = { { .size = sizeof(longer) } };
	struct scattered s;

	scattered_setup(&s);
	for (int with = 0; with < 3; with++) {
		scatter(&s, KVBLK_OP_PUT);
		if (with) {
			kvblk_prep_ext(&s.ops[0], &ext);
			ext.parent = (uintptr_t)"p";
			ext.parent_len = 1;
			ext.hints = KVBLK_HINT_MISSED;
		}
		/* an extension larger than this library's is passed unchanged */
		if (with == 2)
			s.ops[4].ext = (uintptr_t)longer;
		submits_seen = 0;
		assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, KVBLK_SUBMIT_CHAIN), 0);
		assert_int_equal(submits_seen, 3);
		assert_int_equal(parents_seen[0], with ? 'p' : 0);
		assert_int_equal(hints_seen[0], KVBLK_HINT_CONTINUES | (with ? KVBLK_HINT_MISSED : 0));
		assert_int_equal(parents_seen[1], with == 2 ? 0 : s.keys[3]);
		assert_int_equal(hints_seen[1], with == 2 ? 0 : hints_seen[0]);
		assert_int_equal(parents_seen[2], s.keys[7]);
		/* the hint of one put applies to all */
		assert_int_equal(hints_seen[2], with ? KVBLK_HINT_MISSED : 0);
		assert_true(!with || ext.hints == KVBLK_HINT_MISSED);
	}
	scattered_end(&s);
}

/* Only a leading part of a chain is admitted, however it is split; gets are not part of it. */
MEM_TEST(test_declined_chain)
{
	struct scattered s;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	for (unsigned int i = 1; i < NR; i += 3) {
		s.ops[i].opcode = KVBLK_OP_GET;
		block_set(s.keys[i], LEN);
	}
	/* put, get, two puts, get, ... */
	end_at = 4;
	end_result = -ENOBUFS;
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, KVBLK_SUBMIT_CHAIN), 0);
	for (unsigned int i = 0; i < NR; i++) {
		if (i % 3 == 1 || i < 3)
			assert_int_equal(s.results[i].res, LEN);
		else
			assert_int_equal(s.results[i].res, -ENOBUFS);
		if (s.results[i].res == LEN)
			check_pieces(&s, i, true, 0);
	}
	/* a get between two puts is not a parent */
	assert_int_equal(parents_seen[2], s.keys[0]);
	scattered_end(&s);
}

/* A get's buffer may be larger than a lane, and than any block. */
MEM_TEST(test_much_room)
{
	struct kvblk_mem *mem = vram(3 * MIB);
	struct kvblk_result result;
	struct kvblk_piece piece;
	struct kvblk_op op;

	assert_int_equal(kvblk_prep_piece(&piece, mem, 0, 3 * MIB), 0);
	kvblk_prep_get(&op, "a", 1, &piece, 1);
	for (int longer = 0; longer < 2; longer++) {
		block_set('a', 20 * UNIT + (uint32_t)longer);
		assert_int_equal(kvblk_submit(kv, &op, 1, &result, 0), 0);
		assert_int_equal(result.res, longer ? -EFBIG : 20 * (int)UNIT);
		assert_int_equal(result.value_len, 20 * UNIT + (uint32_t)longer);
		if (!longer)
			assert_memory_equal(device(mem), blocks['a'].data, 20 * UNIT);
	}
	block_set('a', 21 * UNIT);
	op.flags = KVBLK_OPF_PARTIAL;
	op.offset = 3;
	assert_int_equal(kvblk_submit(kv, &op, 1, &result, 0), 0);
	assert_int_equal(result.res, -EFBIG);
	op.length = 5 * UNIT;
	assert_int_equal(kvblk_submit(kv, &op, 1, &result, 0), 0);
	assert_int_equal(result.res, 5 * UNIT);
	assert_memory_equal(device(mem), blocks['a'].data + 3, 5 * UNIT);
	op.opcode = KVBLK_OP_PUT;
	assert_int_equal(kvblk_submit(kv, &op, 1, &result, 0), 0);
	assert_int_equal(result.res, -EFBIG);
	kvblk_mem_unregister(mem);
}

/* Memory with equal options shares one stage, even if the pool's value_max changes. */
MEM_TEST(test_one_stage)
{
	struct kvblk_mem *mems[2];

	for (unsigned int i = 0; i < 2; i++) {
		value_max = i ? 4 * MIB : 8 * MIB;
		assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", MIB, NULL, &mems[i]), 0);
		assert_int_equal(nr_regions, 2);
	}
	kvblk_mem_unregister(mems[0]);
	assert_int_equal(nr_regions, 2);
	kvblk_mem_unregister(mems[1]);
	value_max = 8 * MIB;
}

/* After a cancel in the kernel, later loads are not submitted, except for other cookies. */
MEM_TEST(test_canceled_batch)
{
	struct scattered s;
	unsigned int nr = 0;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	for (unsigned int i = 0; i < NR; i++)
		s.ops[i].cookie = i == 11 ? 8 : 7;
	/* fail in the first of three loads; the second has been copied by then */
	end_at = 2;
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	for (unsigned int i = 0; i < NR; i++)
		nr += s.results[i].res == -ECANCELED;
	assert_int_equal(nr, 8);
	for (unsigned int i = 4; i < 11; i++)
		assert_int_equal(s.results[i].res, -ECANCELED);
	assert_int_equal(s.results[3].res, LEN);
	assert_int_equal(s.results[11].res, LEN);
	assert_null(blocks[s.keys[4]].data);
	assert_null(blocks[s.keys[10]].data);
	scattered_end(&s);
}

/* CUDA fails at every call: no get succeeds without its bytes, no put with wrong ones. */
MEM_TEST(test_batch_failures)
{
	static const char *const names[] = { "cuMemcpyBatchAsync", "cuStreamSynchronize", "cuCtxPushCurrent_v2",
					     "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2" };
	unsigned int nr_failed = 0, nr_good = 0;
	struct scattered s;

	scattered_setup(&s);
	for (size_t name = 0; name < sizeof(names) / sizeof(names[0]); name++) {
		/* without batch copy, the driver uses the last two */
		if (name == 3)
			kvblk_cu.batch = NULL;
		for (int nth = 1; nth < 40; nth++) {
			scatter(&s, KVBLK_OP_PUT);
			for (unsigned int i = 0; i < NR; i++) {
				if (i / 4 % 2 != (unsigned int)nth % 2) {
					s.ops[i].opcode = KVBLK_OP_GET;
					block_set(s.keys[i], LEN);
				} else {
					free(blocks[s.keys[i]].data);
					blocks[s.keys[i]].data = NULL;
				}
			}
			fake_fail(names[name], nth, 999);
			assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
			fake_fail("", 0, 0);
			for (unsigned int i = 0; i < NR; i++) {
				assert_true(s.results[i].res == LEN || s.results[i].res == -EIO);
				if (s.results[i].res == LEN)
					check_pieces(&s, i, true, 0);
				else if (s.ops[i].opcode == KVBLK_OP_PUT)
					assert_null(blocks[s.keys[i]].data);
				nr_failed += s.results[i].res != LEN;
				nr_good += s.results[i].res == LEN;
			}
		}
	}
	assert_true(nr_failed > 100 && nr_good > 100);
	scattered_end(&s);
}

/* No permission to lock memory. */
MEM_TEST(test_without_region)
{
	struct kvblk_mem *mem;
	size_t len = 3 * MIB;

	region_error = -ENOMEM;
	mem = vram(3 * MIB);
	block_set('a', 19 * UNIT + 3);
	assert_int_equal(mem_get(mem, 0, &len, "a", NULL), 0);
	assert_memory_equal(device(mem), blocks['a'].data, len);
	assert_int_equal(mem_put(mem, 0, 100, "b", NULL), 0);
	kvblk_mem_unregister(mem);
}

/* A copy still running disables only the lane of the copy. */
MEM_TEST(test_lost_lanes)
{
	struct kvblk_mem *mem = vram(3 * MIB);
	size_t len = 3 * MIB;

	block_set('a', 20 * UNIT);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(mem_get(mem, 0, &len, "a", NULL), 0);
		/* the last wait of a batch of one load */
		fake_fail("cuStreamSynchronize", 3, 999);
		assert_int_equal(mem_get(mem, 0, &len, "a", NULL), -EIO);
		fake_fail("", 0, 0);
	}
	assert_int_equal(mem_get(mem, 0, &len, "a", NULL), -EIO);
	assert_int_equal(mem_put(mem, 0, 1, "b", NULL), -EIO);
	kvblk_mem_unregister(mem);
}

/* A batch of two gets, run by a thread. */
struct runner {
	pthread_t id;
	struct kvblk_piece piece;
	struct kvblk_op ops[2];
	struct kvblk_result results[2];
	uint64_t end;
};

static void *run_batch(void *arg)
{
	struct runner *r = arg;

	assert_int_equal(kvblk_submit(kv, r->ops, 2, r->results, 0), 0);
	r->end = now_ns();
	return NULL;
}

static void runner_start(struct runner *r, struct kvblk_mem *mem, uint64_t cookie)
{
	*r = (struct runner){ 0 };
	assert_int_equal(kvblk_prep_piece(&r->piece, mem, 0, 20 * UNIT), 0);
	for (int i = 0; i < 2; i++) {
		kvblk_prep_get(&r->ops[i], "a", 1, &r->piece, 1);
		r->ops[i].cookie = cookie + (uint64_t)i;
	}
	assert_int_equal(pthread_create(&r->id, NULL, run_batch, r), 0);
}

static void gate_wait(unsigned int nr)
{
	pthread_mutex_lock(&pool_lock);
	while (nr_at_gate < nr)
		pthread_cond_wait(&pool_changed, &pool_lock);
	pthread_mutex_unlock(&pool_lock);
}

static void gate_open(void)
{
	pthread_mutex_lock(&pool_lock);
	gate = false;
	pthread_cond_broadcast(&pool_changed);
	pthread_mutex_unlock(&pool_lock);
}

/* Cancel operations in a stage, as soon as there are any. */
static void cancel_waiting(uint64_t cookie)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	unsigned int nr = 77;

	while (kvblk_cancel(kv, cookie, &nr)) {
		assert_int_equal(nr, 0);
		nanosleep(&pause, NULL);
	}
	assert_int_equal(nr, 1);
}

/* All lanes are busy: operations keep their deadlines, and can be canceled. */
MEM_TEST(test_wait_for_lane)
{
	struct kvblk_mem *mem = vram(3 * MIB);
	struct runner busy[2], waiting;
	struct kvblk_result results[3];
	struct kvblk_op ops[3];
	uint64_t start;

	block_set('a', 20 * UNIT);
	gate = true;
	runner_start(&busy[0], mem, 10);
	runner_start(&busy[1], mem, 20);
	gate_wait(2);
	start = now_ns();
	for (unsigned int i = 0; i < 3; i++) {
		ops[i] = busy[0].ops[0];
		ops[i].flags = KVBLK_OPF_HARD_DEADLINE;
		ops[i].deadline_ns = start + (2 - i) * 20000000ull;
	}
	assert_int_equal(kvblk_submit(kv, ops, 3, results, 0), 0);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(results[i].res, -ETIME);
	assert_true(now_ns() - start >= 40000000 && now_ns() - start < 5000000000);
	/* of two operations, cancel the second */
	runner_start(&waiting, mem, 30);
	cancel_waiting(31);
	/* of the busy ones, the second operation has not been submitted */
	cancel_waiting(11);
	gate_open();
	for (int i = 0; i < 2; i++)
		pthread_join(busy[i].id, NULL);
	pthread_join(waiting.id, NULL);
	assert_int_equal(busy[0].results[0].res, 20 * UNIT);
	assert_int_equal(busy[0].results[1].res, -ECANCELED);
	assert_int_equal(busy[1].results[1].res, 20 * UNIT);
	assert_int_equal(waiting.results[0].res, 20 * UNIT);
	assert_int_equal(waiting.results[1].res, -ECANCELED);
	kvblk_mem_unregister(mem);
}

/* A signal ends an interruptible batch, also the loads not yet submitted. */
MEM_TEST(test_interrupted_batch)
{
	struct scattered s;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	end_at = 2;
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, KVBLK_SUBMIT_INTERRUPTIBLE), 0);
	for (unsigned int i = 0; i < NR; i++)
		assert_int_equal(s.results[i].res, i == 1 || i >= 4 ? -ECANCELED : LEN);
	scattered_end(&s);
}

/* Results of a program built with a longer structure. */
MEM_TEST(test_longer_results)
{
	struct { struct kvblk_result result; uint64_t more; } results[NR];
	struct scattered s;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	memset(results, 0xaa, sizeof(results));
	assert_int_equal(kvblk_submit_sized(kv, s.ops, NR, &results[0].result, sizeof(results[0]), 0), 0);
	for (unsigned int i = 0; i < NR; i++) {
		assert_int_equal(results[i].result.res, LEN);
		assert_int_equal(results[i].result.cookie, 100 + i);
		assert_int_equal(results[i].more, 0);
	}
	scattered_end(&s);
}

/* A pointer allocated by the caller, with and without a context of its own. */
MEM_TEST(test_register_pointer)
{
	struct kvblk_mem *owner = vram(2 * MIB), *mem = NULL;
	char *ptr = kvblk_mem_addr(owner);
	size_t len = MIB;

	block_set('a', 3 * UNIT + 1);
	for (int i = 0; i < 3; i++) {
		if (i == 1)
			setenv("KVBLK_FAKE_CUDA_NO_CONTEXT", "1", 1);
		fake_managed((uintptr_t)ptr, i == 2);
		assert_int_equal(kvblk_mem_register(kv, ptr + 100, MIB, NULL, &mem), 0);
		assert_int_equal(kind_of(mem), KVBLK_MEM_STAGED);
		memset(device(owner), 0xee, 2 * MIB);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", NULL), 0);
		assert_memory_equal(device(owner) + 100, blocks['a'].data, len);
		kvblk_mem_unregister(mem);
	}
	fake_managed((uintptr_t)ptr, false);
	mem = NULL;
	assert_int_equal(kvblk_mem_register(kv, ptr + MIB, MIB + 1, NULL, &mem), -EFAULT);
	assert_null(mem);
	kvblk_mem_unregister(owner);
}

MEM_TEST(test_mapped)
{
	struct kvblk_piece piece;
	struct kvblk_mem *mem;
	uint32_t flags;
	size_t len;

	fake_mmap(1);
	block_set('a', 3 * UNIT + 1);
	for (int mixed = 0; mixed < 2; mixed++) {
		region_error = mixed ? -EXDEV : 0;
		mem = vram(MIB);
		assert_int_equal(kind_of(mem), mixed ? KVBLK_MEM_ADDRESSED : KVBLK_MEM_REGISTERED);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", &flags), 0);
		assert_int_equal(flags, KVBLK_RES_DIRECT);
		assert_memory_equal(device(mem), blocks['a'].data, len);
		assert_int_equal(kvblk_prep_piece(&piece, mem, 5, 6), 0);
		/* a failed flush fails the get, because the device may not see the data */
		fake_fail("cuFlushGPUDirectRDMAWrites", 1, 999);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", &flags), -EIO);
		fake_fail("cuFlushGPUDirectRDMAWrites", 1, CUDA_NOT_SUPPORTED);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", &flags), 0);
		kvblk_mem_unregister(mem);
	}
	region_error = 0;
	/* a bad mapping is treated as none */
	for (int mode = 2; mode <= 3; mode++) {
		fake_mmap(mode);
		mem = vram(MIB);
		assert_int_equal(kind_of(mem), KVBLK_MEM_STAGED);
		/* staged memory needs no flush */
		fake_fail("cuFlushGPUDirectRDMAWrites", 1, 999);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", NULL), 0);
		fake_fail("cuFlushGPUDirectRDMAWrites", 0, 0);
		kvblk_mem_unregister(mem);
	}
	fake_mmap(1);
	for (int nth = 1; nth <= 2; nth++) {
		fake_fail(nth == 1 ? "cuDeviceGetAttribute" : "cuCtxPushCurrent_v2", nth, 999);
		mem = vram(MIB);
		assert_int_equal(kind_of(mem), KVBLK_MEM_STAGED);
		kvblk_mem_unregister(mem);
	}
}

MEM_TEST(test_old_drivers)
{
	struct kvblk_mem *owner = vram(MIB), *mem = NULL;
	size_t nr = sizeof(functions) / sizeof(functions[0]);

	for (size_t i = 0; i < nr; i++) {
		bool needed = i < nr - NR_OPTIONAL;

		missing = functions[i].name;
		driver_state = -ENXIO;
		if (i)
			assert_int_equal(kvblk_mem_register(kv, kvblk_mem_addr(owner), MIB, &small, &mem),
					 needed ? -ENOSYS : 0);
		if (!needed) {
			kvblk_mem_unregister(mem);
			continue;
		}
		assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", MIB, &small, &mem), -ENOSYS);
		/* host memory does not depend on CUDA */
		assert_int_equal(kvblk_mem_alloc(kv, "host", MIB, &small, &mem), 0);
		kvblk_mem_unregister(mem);
	}
	missing = NULL;
	driver_state = -ENXIO;
	assert_int_equal(driver_get(false), 0);
	kvblk_mem_unregister(owner);
}

/* Every CUDA function fails once, at every call. */
MEM_TEST(test_every_failure)
{
	static const int results[] = { 999, CUDA_OUT_OF_MEMORY, CUDA_INVALID_VALUE, CUDA_DEINITIALIZED,
				       CUDA_NOT_PERMITTED, CUDA_NOT_SUPPORTED };
	static const char *const undo[] = { "cuDevicePrimaryCtxRelease_v2", "cuCtxPopCurrent_v2",
					    "cuMemFree_v2", "cuMemHostUnregister", "cuStreamDestroy_v2" };
	unsigned int nr_failed = 0;

	block_set('a', 5 * UNIT);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		/* the fifth call is part of the teardown */
		int end = !strcmp(functions[i].name, "cuCtxPushCurrent_v2") ? 5 : 12;
		bool is_undo = false;

		for (size_t j = 0; j < sizeof(undo) / sizeof(undo[0]); j++)
			is_undo |= !strcmp(undo[j], functions[i].name);
		if (is_undo)
			continue;
		for (int nth = 1; nth < end; nth++) {
			struct kvblk_mem *mem = NULL;
			size_t len = MIB;
			int err;

			fake_fail(functions[i].name, nth, results[nth % 6]);
			err = kvblk_mem_alloc(kv, "cuda:0", MIB, &small, &mem);
			if (!err) {
				err = mem_put(mem, 0, UNIT, "b", NULL);
				assert_true(!err == !!blocks['b'].data);
				err |= mem_get(mem, 0, &len, "a", NULL);
			} else {
				assert_null(mem);
			}
			nr_failed += !!err;
			kvblk_mem_unregister(mem);
			fake_fail("", 0, 0);
			assert_int_equal(fake_leaks() + nr_regions, 0);
			free(blocks['b'].data);
			blocks['b'].data = NULL;
		}
	}
	assert_true(nr_failed >= 15);
}

MEM_TEST(test_no_memory)
{
	struct kvblk_mem *mem = NULL;
	int nr = 0;

	for (;; nr++) {
		fail_alloc = nr;
		if (!kvblk_mem_alloc(kv, "cuda:0", MIB, &small, &mem))
			break;
		assert_null(mem);
		assert_int_equal(fake_leaks() + nr_regions, 0);
	}
	assert_true(nr > 5);
	fail_alloc = -1;
	kvblk_mem_unregister(mem);
	info_error = -ENODEV;
	mem = NULL;
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", MIB, &small, &mem), -ENODEV);
}

#define THREADS	8

static struct kvblk_mem *shared;

static void *worker(void *arg)
{
	unsigned int id = (unsigned int)(uintptr_t)arg;
	unsigned char key = (unsigned char)(100 + id);
	size_t at = (size_t)id * 4 * UNIT, len;
	long wrong = 0;

	for (unsigned int i = 0; i < 40; i++) {
		wrong += mem_put(shared, at, 4 * UNIT - 7, &key, NULL) != (i ? -EEXIST : 0);
		len = 4 * UNIT;
		wrong += !!mem_get(shared, at, &len, &key, NULL);
		wrong += len != 4 * UNIT - 7 || memcmp(device(shared) + at, blocks[key].data, len) != 0;
	}
	return (void *)wrong;
}

MEM_TEST(test_threads)
{
	pthread_t threads[THREADS];

	shared = vram((size_t)THREADS * 4 * UNIT);
	pattern(device(shared), (size_t)THREADS * 4 * UNIT, 3);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)i);
	for (unsigned int i = 0; i < THREADS; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		assert_ptr_equal(wrong, NULL);
	}
	kvblk_mem_unregister(shared);
}

/* An operation with checksums. */
struct summed {
	struct kvblk_op op;
	struct kvblk_op_ext ext;
	struct kvblk_piece piece;
	uint32_t sums[64];
};

static void summed(struct summed *s, uint8_t opcode, const void *key, struct kvblk_mem *mem, size_t at,
		   size_t len)
{
	assert_int_equal(kvblk_prep_piece(&s->piece, mem, at, len), 0);
	kvblk_prep_put(&s->op, key, 1, &s->piece, 1);
	s->op.opcode = opcode;
	s->op.flags = opcode == KVBLK_OP_GET ? KVBLK_OPF_CALLER_CHECKS : 0;
	kvblk_prep_ext(&s->op, &s->ext);
	s->ext.checksums = (uintptr_t)s->sums;
	s->ext.nr_checksums = (uint32_t)((len + UNIT - 1) / UNIT);
	memset(s->sums, 0xee, sizeof(s->sums));
}

MEM_TEST(test_gpu_checksums)
{
	static const size_t lens[] = { 1, 2, 3, 4, 5, 1023, 1024, 1025, 4096, 65535, 65536, 65537, 99999, 2 * MIB };
	struct summed s;

	for (int mode = 0; mode < 2; mode++) {
		struct kvblk_mem *mem;

		fake_mmap(mode);
		mem = vram(2 * MIB + 8);
		assert_int_equal(kind_of(mem), mode ? KVBLK_MEM_REGISTERED : KVBLK_MEM_STAGED);
		pattern(device(mem), 2 * MIB + 8, 1);
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			/* any alignment of begin and end */
			for (size_t at = 0; at < (lens[i] < MIB ? 5 : 2); at++) {
				summed(&s, KVBLK_OP_PUT, "a", mem, at, lens[i]);
				assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, NULL), 0);
				assert_true(matches(device(mem) + at, lens[i], s.sums));
				assert_int_equal(s.sums[s.ext.nr_checksums], 0xeeeeeeee);
			}
		}
		kvblk_mem_unregister(mem);
	}
}

/* Many pieces of two registrations, chunks of many pieces, and more than fit into a round. */
MEM_TEST(test_gpu_checksums_of_pieces)
{
	static struct kvblk_piece pieces[10][1000];
	static unsigned char bytes[200000];
	struct kvblk_mem *mems[2] = { vram(MIB), vram(MIB) };
	struct kvblk_op ops[10];
	struct kvblk_op_ext exts[10];
	uint32_t sums[10][4];
	int launches = fake_launches();

	pattern(device(mems[0]), MIB, 1);
	pattern(device(mems[1]), MIB, 2);
	for (unsigned int i = 0; i < 10; i++) {
		for (unsigned int j = 0; j < 1000; j++)
			assert_int_equal(kvblk_prep_piece(&pieces[i][j], mems[j % 2], i * 1000 + j * 7,
							  1 + (i + j) % 150), 0);
		kvblk_prep_put(&ops[i], "a", 1, pieces[i], 1000);
		kvblk_prep_ext(&ops[i], &exts[i]);
		exts[i].checksums = (uintptr_t)sums[i];
		exts[i].nr_checksums = (uint32_t)((length_of(&ops[i]) + UNIT - 1) / UNIT);
	}
	assert_int_equal(kvblk_gpu_checksums(kv, ops, 10, NULL), 0);
	assert_int_equal(fake_launches() - launches, 2);
	for (unsigned int i = 0; i < 10; i++) {
		size_t len = 0;

		for (unsigned int j = 0; j < 1000; j++) {
			memcpy(bytes + len, device(mems[j % 2]) + i * 1000 + j * 7, pieces[i][j].length);
			len += pieces[i][j].length;
		}
		assert_true(matches(bytes, len, sums[i]));
	}
	kvblk_mem_unregister(mems[0]);
	kvblk_mem_unregister(mems[1]);
}

/* Puts with the GPU's checksums, gets that the GPU verifies: damage is a miss, whoever did it. */
MEM_TEST(test_gpu_verify)
{
	struct kvblk_result results[3];
	struct summed put, gets[3];
	struct kvblk_op ops[3];

	for (int mode = 0; mode < 2; mode++) {
		struct kvblk_mem *mem;

		fake_mmap(mode);
		mem = vram(4 * MIB);
		pattern(device(mem), MIB, 1);
		for (int i = 0; i < 3; i++) {
			summed(&put, KVBLK_OP_PUT, &"abc"[i], mem, (size_t)i, 100000);
			assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), 0);
			assert_int_equal(kvblk_submit(kv, &put.op, 1, results, 0), 0);
			assert_int_equal(results[0].res, 100000);
		}
		for (int i = 0; i < 3; i++) {
			summed(&gets[i], KVBLK_OP_GET, &"abc"[i], mem, MIB + (size_t)i * 128 * 1024, 100000);
			ops[i] = gets[i].op;
		}
		/* wrong in the pool; wrong in the first transfer only */
		blocks['b'].data[99999] ^= 1;
		torn = 1;
		assert_int_equal(kvblk_submit(kv, ops, 3, results, 0), 0);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(results[i].res, 100000);
			assert_true(results[i].flags & KVBLK_RES_CHECKSUMS);
		}
		submits_seen = 0;
		assert_int_equal(kvblk_gpu_verify(kv, ops, 3, results, sizeof(results[0]), NULL), 0);
		assert_int_equal(submits_seen, 1);
		assert_int_equal(results[0].res, 100000);
		assert_int_equal(results[1].res, -ENOENT);
		assert_int_equal(results[2].res, 100000);
		assert_memory_equal(device(mem) + MIB, device(mem), 100000);
		assert_memory_equal(device(mem) + MIB + 2 * 128 * 1024, device(mem) + 2, 100000);
		/* the second chunk; then bytes that the kernel has checked */
		ops[2].flags |= KVBLK_OPF_PARTIAL;
		ops[2].offset = UNIT;
		blocks['c'].data[UNIT] ^= 1;
		assert_int_equal(kvblk_submit(kv, &ops[2], 1, results, 0), 0);
		assert_int_equal(results[0].res, 100000 - UNIT);
		assert_int_equal(kvblk_gpu_verify(kv, &ops[2], 1, results, sizeof(results[0]), NULL), 0);
		assert_int_equal(results[0].res, -ENOENT);
		ops[2].offset = UNIT + 1;
		assert_int_equal(kvblk_submit(kv, &ops[2], 1, results, 0), 0);
		assert_int_equal(kvblk_gpu_verify(kv, &ops[2], 1, results, sizeof(results[0]), NULL), 0);
		assert_int_equal(results[0].res, 100000 - UNIT - 1);
		kvblk_mem_unregister(mem);
		for (int i = 0; i < 3; i++) {
			free(blocks[(int)"abc"[i]].data);
			blocks[(int)"abc"[i]].data = NULL;
		}
	}
}

/* Operations that the pool refused, with more pieces than a round has parts, are skipped. */
MEM_TEST(test_gpu_verify_refused)
{
	static struct kvblk_piece pieces[UINT16_MAX];
	struct kvblk_mem *mem = vram(MIB);
	struct kvblk_result results[2];
	struct summed put, gets[2];
	struct kvblk_op ops[2];

	summed(&put, KVBLK_OP_PUT, "a", mem, 0, 5000);
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), 0);
	assert_int_equal(kvblk_submit(kv, &put.op, 1, results, 0), 0);
	for (int i = 0; i < 2; i++) {
		summed(&gets[i], KVBLK_OP_GET, "a", mem, 8192, 5000);
		ops[i] = gets[i].op;
		assert_int_equal(kvblk_submit(kv, &ops[i], 1, &results[i], 0), 0);
	}
	ops[1].pieces = (uintptr_t)pieces;
	ops[1].nr_pieces = UINT16_MAX;
	results[1].res = -EINVAL;
	assert_int_equal(kvblk_gpu_verify(kv, ops, 2, results, sizeof(results[0]), NULL), 0);
	assert_int_equal(results[0].res, 5000);
	assert_int_equal(results[1].res, -EINVAL);
	kvblk_mem_unregister(mem);
}

/* Registrations of the same memory share a summer; the end of the first does not free the summer. */
MEM_TEST(test_gpu_checksums_overlap)
{
	struct kvblk_mem *mem = vram(MIB), *over[2];
	struct summed s;

	pattern(device(mem), MIB, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kvblk_mem_register(kv, kvblk_mem_addr(mem), MIB, &small, &over[i]), 0);
		summed(&s, KVBLK_OP_PUT, "a", over[i], 0, 5000);
		assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, NULL), 0);
	}
	assert_ptr_equal(over[0]->summer, over[1]->summer);
	for (int i = 0; i < 2; i++) {
		summed(&s, KVBLK_OP_PUT, "a", over[i], 0, 5000);
		assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, NULL), 0);
		assert_true(matches(device(mem), 5000, s.sums));
		kvblk_mem_unregister(over[i]);
	}
	kvblk_mem_unregister(mem);
}

/* A caller's stream is none of the other callers' business. */
MEM_TEST(test_gpu_checksums_stream)
{
	struct kvblk_mem *mem = vram(MIB);
	struct summed s;
	void *stream;

	pattern(device(mem), MIB, 1);
	summed(&s, KVBLK_OP_PUT, "a", mem, 0, 5000);
	assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, NULL), 0);
	assert_int_equal(kvblk_cu_enter(mem->summer->context), 0);
	assert_int_equal(kvblk_cu.stream_create(&stream, STREAM_NON_BLOCKING), 0);
	kvblk_cu_leave();
	for (int i = 0; i < 3; i++) {
		memset(s.sums, 0, sizeof(s.sums));
		fake_fail(i == 1 ? "cuStreamSynchronize" : "", 1, 999);
		assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, stream), i == 1 ? -EIO : 0);
		assert_int_equal(matches(device(mem), 5000, s.sums), i != 1);
	}
	assert_int_equal(kvblk_cu_enter(mem->summer->context), 0);
	kvblk_cu.stream_destroy(stream);
	kvblk_cu_leave();
	kvblk_mem_unregister(mem);
}

/* Whatever CUDA refuses: puts go without checksums, and the kernel verifies gets. */
MEM_TEST(test_gpu_checksums_fail)
{
	static const char *const calls[] = { "cuCtxPushCurrent_v2", "cuMemHostRegister_v2", "cuModuleLoadData",
					     "cuModuleGetFunction", "cuMemAlloc_v2", "cuStreamCreate",
					     "cuMemcpyHtoDAsync_v2",
					     "cuLaunchKernel", "cuMemcpyDtoHAsync_v2" };
	static unsigned char bytes[4096];
	struct kvblk_result result;
	struct kvblk_mem *mem, *host;
	struct summed put, get;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		fake_mmap(1);
		mem = vram(MIB);
		memset(device(mem), 7, MIB);
		summed(&put, KVBLK_OP_PUT, "a", mem, 0, 4096);
		fake_fail(calls[i], 1, 999);
		assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EIO);
		assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), 0);
		assert_int_equal(kvblk_submit(kv, &put.op, 1, &result, 0), 0);
		kvblk_mem_unregister(mem);

		mem = vram(MIB);
		summed(&get, KVBLK_OP_GET, "a", mem, 4096, 4096);
		for (int good = 0; good < 2; good++) {
			torn = 1;
			assert_int_equal(kvblk_submit(kv, &get.op, 1, &result, 0), 0);
			fake_fail(good ? "" : calls[i], 1, 999);
			assert_int_equal(kvblk_gpu_verify(kv, &get.op, 1, &result, sizeof(result), NULL), 0);
			assert_int_equal(result.res, 4096);
			assert_true(all_are(device(mem) + 4096, 4096, 7));
		}
		kvblk_mem_unregister(mem);
		free(blocks['a'].data);
		blocks['a'].data = NULL;
	}
	missing = "cuLaunchKernel";
	driver_state = -ENXIO;
	mem = vram(MIB);
	summed(&put, KVBLK_OP_PUT, "a", mem, 0, 4096);
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EOPNOTSUPP);
	kvblk_mem_unregister(mem);

	missing = NULL;
	driver_state = -ENXIO;
	mem = vram(MIB);
	assert_int_equal(kvblk_mem_register(kv, bytes, sizeof(bytes), NULL, &host), 0);
	summed(&put, KVBLK_OP_PUT, "a", host, 0, 4096);
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EXDEV);
	summed(&put, KVBLK_OP_PUT, "a", mem, 0, 4096);
	put.ext.nr_checksums = 2;
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EINVAL);
	put.op.ext = 0;
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EINVAL);
	kvblk_mem_unregister(mem);
	kvblk_mem_unregister(host);
}

/* Without CUDA, host memory works and "cuda:0" returns -ELIBACC. */
static int without_cuda(void)
{
	static char bytes[4096];
	struct kvblk_mem *mem = NULL;
	int good;

	fail_alloc = -1;
	good = kvblk_mem_alloc(kv, "cuda:0", 1, NULL, &mem) == -ELIBACC &&
	       !kvblk_mem_register(kv, bytes, sizeof(bytes), NULL, &mem);
	if (good)
		kvblk_mem_unregister(mem);
	return good;
}

int main(void)
{
	void *library;

	if (!without_cuda()) {
		printf("not ok - memory without CUDA\n");
		return 1;
	}
	library = dlopen(FAKE_CUDA, RTLD_NOW);
	if (!library) {
		printf("%s\n", dlerror());
		return 1;
	}
	*(void **)&fake_fail = dlsym(library, "fake_cuda_fail");
	*(void **)&fake_mmap = dlsym(library, "fake_cuda_mmap");
	*(void **)&fake_managed = dlsym(library, "fake_cuda_managed");
	*(void **)&fake_leaks = dlsym(library, "fake_cuda_leaks");
	*(void **)&fake_copies = dlsym(library, "fake_cuda_copies");
	*(void **)&fake_launches = dlsym(library, "fake_cuda_launches");
	*(void **)&fake_bytes = dlsym(library, "fake_cuda_bytes");
	return RUN_TESTS("mem_test");
}
