// SPDX-License-Identifier: MIT
/*
 * Registered memory of the host, a PCI device or a GPU.
 *
 * The kind is decided once, at registration: memory that the kernel can pin long-term is
 * registered; memory that it can pin only briefly is pinned for each operation; memory
 * that only CUDA can reach is staged through host memory (stage.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib.h"

#define MEM_MAX		(64ull << 30)	/* limit of KVBLK_IOC_REG_BUF */

/* Constant after mem_create() or kvblk_mem_alloc(). */
struct kvblk_mem {
	struct kvblk *kv;
	char *addr;		/* address for the caller */
	size_t len;
	enum kvblk_mem_kind kind;
	char *user;		/* address for the kernel; NULL if staged */
	uint32_t region;
	struct kvblk_cuda *cuda;	/* NULL if not CUDA memory */
	struct kvblk_stage *stage;	/* NULL if not staged */
	void *map;		/* mapping to remove at the end, or NULL */
	size_t map_len;
};

/* Register the @mem->len bytes at @user, or mark them as pinned for each operation. */
static int reach(struct kvblk_mem *mem, char *user)
{
	int err = kvblk_region_register(mem->kv, user, mem->len, &mem->region);

	if (err && err != -EXDEV)
		return err;
	mem->kind = err ? KVBLK_MEM_ADDRESSED : KVBLK_MEM_REGISTERED;
	mem->user = user;
	return 0;
}

/* Use CUDA memory through a mapping if the kernel can pin it, otherwise stage it. */
static int reach_cuda(struct kvblk_mem *mem, const struct kvblk_mem_options *options)
{
	void *map, *user;
	size_t map_len;

	if (!kvblk_cuda_map(mem->cuda, &map, &map_len, &user)) {
		if (!reach(mem, user)) {
			mem->map = map;
			mem->map_len = map_len;
			return 0;
		}
		munmap(map, map_len);
	}
	mem->kind = KVBLK_MEM_STAGED;
	return kvblk_stage_open(mem->kv, kvblk_cuda_context(mem->cuda), options, &mem->stage);
}

static bool options_are_good(const struct kvblk_mem_options *options)
{
	if (!options)
		return true;
	return options->part_size % KVBLK_MEM_PART_UNIT == 0 &&
	       options->part_size <= KVBLK_VALUE_MAX &&
	       options->block_max <= KVBLK_VALUE_MAX &&
	       options->lanes <= KVBLK_MEM_LANES_MAX;
}

static bool range_is_good(const void *addr, size_t len)
{
	return len && len <= MEM_MAX && (uintptr_t)addr + len >= (uintptr_t)addr;
}

/* Create the handle, which takes over @cuda. @cuda is NULL for memory that is not CUDA's. */
static int mem_create(struct kvblk *kv, void *addr, size_t len, struct kvblk_cuda *cuda,
		      const struct kvblk_mem_options *options, struct kvblk_mem **mem)
{
	struct kvblk_mem *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->kv = kv;
	m->addr = addr;
	m->len = len;
	m->cuda = cuda;
	err = cuda ? reach_cuda(m, options) : reach(m, addr);
	if (err) {
		free(m);
		return err;
	}
	*mem = m;
	return 0;
}

int kvblk_mem_register(struct kvblk *kv, void *addr, size_t len,
		       const struct kvblk_mem_options *options, struct kvblk_mem **mem)
{
	struct kvblk_cuda *cuda = NULL;
	int err;

	if (!kv || !addr || !mem || !range_is_good(addr, len) || !options_are_good(options))
		return -EINVAL;
	err = kvblk_cuda_attach(addr, len, &cuda);
	if (err && err != -ENXIO)
		return err;
	err = mem_create(kv, addr, len, cuda, options, mem);
	if (err)
		kvblk_cuda_detach(cuda);
	return err;
}

void kvblk_mem_unregister(struct kvblk_mem *mem)
{
	if (!mem)
		return;
	if (mem->kind == KVBLK_MEM_REGISTERED)
		kvblk_region_unregister(mem->kv, mem->region);
	if (mem->map)
		munmap(mem->map, mem->map_len);
	kvblk_stage_close(mem->stage);
	kvblk_cuda_detach(mem->cuda);
	free(mem);
}

/* Map @len bytes of the driver node @file, or of anonymous host memory if @file is NULL. */
static int map_memory(const char *file, size_t len, void **map, size_t *map_len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int flags = MAP_SHARED, fd = -1;
	void *p;

	*map_len = (len + page - 1) & ~(page - 1);
	if (!file) {
		flags = MAP_PRIVATE | MAP_ANONYMOUS;
	} else {
		fd = open(file, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -errno;
	}
	p = mmap(NULL, *map_len, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (p == MAP_FAILED) {
		int err = -errno;

		if (file)
			close(fd);
		return err;
	}
	if (file)
		close(fd);
	*map = p;
	return 0;
}

/* Translate a PCI address, "0000:03:00.0" or "03:00.0", to the path of its p2pmem/allocate file. */
static bool pci_path(const char *from, char *path, size_t len)
{
	unsigned int domain = 0, bus, slot, function;
	int end = 0;

	if (sscanf(from, "%5x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &end) < 4 ||
	    from[end]) {
		domain = 0;
		end = 0;
		if (sscanf(from, "%2x:%2x.%1x%n", &bus, &slot, &function, &end) < 3 || from[end])
			return false;
	}
	snprintf(path, len, "/sys/bus/pci/devices/%04x:%02x:%02x.%x/p2pmem/allocate",
		 domain, bus, slot, function);
	return true;
}

/* Returns N for "cuda:N", otherwise -1. */
static int cuda_ordinal(const char *from)
{
	unsigned int ordinal;
	int end = 0;

	if (sscanf(from, "cuda:%3u%n", &ordinal, &end) < 1 || from[end])
		return -1;
	return (int)ordinal;
}

static int alloc_cuda(struct kvblk *kv, int ordinal, size_t len,
		      const struct kvblk_mem_options *options, struct kvblk_mem **mem)
{
	struct kvblk_cuda *cuda;
	void *addr;
	int err = kvblk_cuda_alloc(ordinal, len, &addr, &cuda);

	if (err)
		return err;
	err = mem_create(kv, addr, len, cuda, options, mem);
	if (err)
		kvblk_cuda_detach(cuda);
	return err;
}

int kvblk_mem_alloc(struct kvblk *kv, const char *from, size_t len,
		    const struct kvblk_mem_options *options, struct kvblk_mem **mem)
{
	char path[128];
	const char *file = path;
	size_t map_len;
	int err, ordinal;
	void *addr = NULL;

	if (!kv || !from || !mem || !range_is_good(NULL, len) || !options_are_good(options))
		return -EINVAL;
	ordinal = cuda_ordinal(from);
	if (ordinal >= 0)
		return alloc_cuda(kv, ordinal, len, options, mem);
	if (strcmp(from, "host") == 0)
		file = NULL;
	else if (strchr(from, '/'))
		file = from;
	else if (!pci_path(from, path, sizeof(path)))
		return -EINVAL;
	err = map_memory(file, len, &addr, &map_len);
	if (err)
		return err;
	err = mem_create(kv, addr, len, NULL, options, mem);
	if (err) {
		munmap(addr, map_len);
		return err;
	}
	(*mem)->map = addr;
	(*mem)->map_len = map_len;
	return 0;
}

void *kvblk_mem_addr(const struct kvblk_mem *mem)
{
	return mem->addr;
}

unsigned int kvblk_mem_kind(const struct kvblk_mem *mem)
{
	return mem->kind;
}

static bool is_within(const struct kvblk_mem *mem, size_t offset, size_t len)
{
	return len && offset <= mem->len && len <= mem->len - offset;
}

int kvblk_mem_piece(const struct kvblk_mem *mem, size_t offset, size_t len,
		    struct kvblk_piece *piece)
{
	if (!is_within(mem, offset, len))
		return -EFAULT;
	switch (mem->kind) {
	case KVBLK_MEM_REGISTERED:
		region_piece(piece, mem->region, offset, len);
		return 0;
	case KVBLK_MEM_ADDRESSED:
		kvblk_piece_user(piece, mem->user + offset, len);
		return 0;
	default:
		kvblk_stage_piece(mem->stage, kvblk_cuda_ptr(mem->cuda) + offset, len, piece);
		return 0;
	}
}

int kvblk_mem_flush(const struct kvblk_mem *mem)
{
	/* no flush for staged memory: CUDA itself has copied the data */
	if (!mem->cuda || mem->kind == KVBLK_MEM_STAGED)
		return 0;
	return kvblk_cuda_flush(mem->cuda);
}

int kvblk_mem_put(struct kvblk_mem *mem, size_t offset, size_t len, const void *key,
		  size_t key_len, const struct kvblk_put_options *options,
		  uint32_t *flags)
{
	struct kvblk_result result = { 0 };
	struct kvblk_op_ext ext;
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err;

	if (!key_len || key_len > KVBLK_KEY_MAX)
		return -EINVAL;
	if (!is_within(mem, offset, len))
		return -EFAULT;
	kvblk_prep_put(&op, key, key_len, &piece, 1);
	err = put_options(&op, &ext, options);
	if (err)
		return err;
	err = kvblk_mem_piece(mem, offset, len, &piece);
	if (!err)
		err = kvblk_mem_submit(mem->kv, &op, 1, &result, 0);
	if (!err && result.res < 0)
		err = result.res;
	if (flags)
		*flags = result.flags;
	return err;
}

int kvblk_mem_get(struct kvblk_mem *mem, size_t offset, size_t *len, const void *key,
		  size_t key_len, uint32_t *flags)
{
	struct kvblk_result result = { 0 };
	struct kvblk_piece piece;
	struct kvblk_op op;
	int err;

	if (!is_within(mem, offset, *len))
		return -EFAULT;
	if (mem->kind == KVBLK_MEM_STAGED) {
		err = kvblk_stage_fetch(mem->stage, kvblk_cuda_ptr(mem->cuda) + offset, key, key_len, len);
		if (!err)
			result.flags = KVBLK_RES_BOUNCED;
	} else {
		err = kvblk_mem_piece(mem, offset, *len, &piece);
		if (err)
			return err;
		kvblk_prep_get(&op, key, key_len, &piece, 1);
		err = submit_one(mem->kv, &op, &result);
		if (!err || err == -EMSGSIZE)
			*len = result.value_len;
		if (!err && mem->cuda)
			err = kvblk_cuda_flush(mem->cuda);
	}
	if (flags)
		*flags = result.flags;
	return err;
}
