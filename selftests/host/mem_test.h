/* SPDX-License-Identifier: MIT */
/*
 * Shared by mem_test.c and gpu_sums_test.c: the library's memory with a simulated module, and with
 * CUDA simulated by fake_cuda.c.
 */
#ifndef KVBLK_MEM_TEST_H
#define KVBLK_MEM_TEST_H

#include "kvblk_test.h"

#include "../guest/kv_crc32c.h"

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

/* Returns whether the block's checksums match, chunk by chunk. */
static bool matches(const unsigned char *p, size_t len, const uint32_t *sums)
{
	for (size_t at = 0; at < len; at += UNIT) {
		if (*sums++ != kv_crc32c(p + at, len - at < UNIT ? len - at : UNIT))
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
		result->flags = op->flags & KVBLK_OPF_HARD_DEADLINE ? KVBLK_RES_BOUNCED : KVBLK_RES_DIRECT;
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

static inline int mem_put(struct kvblk_mem *mem, size_t offset, size_t len, const void *key, uint32_t *flags)
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

static inline int mem_get(struct kvblk_mem *mem, size_t offset, size_t *len, const void *key, uint32_t *flags)
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

static inline void pattern(unsigned char *p, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)(i * 31 + i / 251 + seed);
}

static inline void block_set(unsigned char key, uint32_t len)
{
	free(blocks[key].data);
	blocks[key].data = malloc(len);
	blocks[key].len = len;
	blocks[key].layout_tag = 5;
	pattern(blocks[key].data, len, key);
}

static inline unsigned char *device(const struct kvblk_mem *mem)
{
	return fake_bytes((uintptr_t)kvblk_mem_addr(mem));
}

static inline bool all_are(const unsigned char *p, size_t len, unsigned char byte)
{
	while (len && *p == byte) {
		p++;
		len--;
	}
	return !len;
}

static const struct kvblk_mem_options small = { .size = sizeof(small), .block_max = 20 * UNIT, .lanes = 2 };

static inline struct kvblk_mem *vram(size_t len)
{
	struct kvblk_mem *mem;

	assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", len, &small, &mem), 0);
	return mem;
}

/* Returns how operations reach the memory. */
static inline enum kvblk_mem_kind kind_of(const struct kvblk_mem *mem)
{
	struct kvblk_mem_info info = { .size = sizeof(info) };

	assert_int_equal(kvblk_mem_get_info(mem, &info), 0);
	return info.kind;
}

#define MEM_TEST(test)	TEST_WITH(test, setup, teardown)

/* Run all tests. Returns the exit status. */
static int mem_tests_run(const char *name)
{
	void *library = dlopen(FAKE_CUDA, RTLD_NOW);

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
	return RUN_TESTS(name);
}

#endif
