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

/* Constant after mem_create() or kvblk_mem_alloc(), except @next and @summer. */
struct kvblk_mem {
	struct kvblk_mem *next;	/* in kv->gpus */
	struct kvblk *kv;
	char *addr;		/* address for the caller */
	size_t len;
	enum kvblk_mem_kind kind;
	char *user;		/* address for the kernel; NULL if staged */
	uint32_t region;
	struct kvblk_cuda *cuda;	/* NULL if not CUDA memory */
	struct kvblk_stage *stage;	/* NULL if not staged */
	struct kvblk_summer *summer;	/* made at its first use, under kv->lock */
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

static int mem_options(struct kvblk_mem_options *to, const struct kvblk_mem_options *from)
{
	int err = options_copy(to, sizeof(*to), from, END_OF(struct kvblk_mem_options, block_max));

	if (!err && (to->block_max > KVBLK_VALUE_MAX || to->lanes > KVBLK_MEM_LANES_MAX))
		err = -EINVAL;
	return err;
}

static bool range_is_good(const void *addr, size_t len)
{
	return len && len <= MEM_MAX && (uintptr_t)addr + len >= (uintptr_t)addr;
}

/* Returns true for memory of a GPU that the kernel writes to, so that CUDA has to flush. */
static bool is_mapped_gpu(const struct kvblk_mem *mem)
{
	return mem->kind != KVBLK_MEM_STAGED;
}

static void gpu_add(struct kvblk_mem *mem)
{
	struct kvblk *kv = mem->kv;

	pthread_mutex_lock(&kv->lock);
	mem->next = kv->gpus;
	kv->gpus = mem;
	atomic_fetch_add(&kv->nr_gpus, is_mapped_gpu(mem));
	pthread_mutex_unlock(&kv->lock);
}

static void gpu_remove(struct kvblk_mem *mem)
{
	struct kvblk *kv = mem->kv;
	struct kvblk_mem **m;

	pthread_mutex_lock(&kv->lock);
	for (m = &kv->gpus; *m != mem; m = &(*m)->next)
		;
	*m = mem->next;
	atomic_fetch_sub(&kv->nr_gpus, is_mapped_gpu(mem));
	pthread_mutex_unlock(&kv->lock);
}

int kvblk_flush_gpus(struct kvblk *kv)
{
	const void *flushed = NULL;
	int err = 0;

	if (!atomic_load(&kv->nr_gpus))
		return 0;
	pthread_mutex_lock(&kv->lock);
	for (const struct kvblk_mem *mem = kv->gpus; mem && !err; mem = mem->next) {
		/* flush once for all memory of a context */
		if (!is_mapped_gpu(mem))
			continue;
		if (kvblk_cuda_context(mem->cuda) != flushed)
			err = kvblk_cuda_flush(mem->cuda);
		flushed = kvblk_cuda_context(mem->cuda);
	}
	pthread_mutex_unlock(&kv->lock);
	return err;
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
	if (m->cuda)
		gpu_add(m);
	*mem = m;
	return 0;
}

int kvblk_mem_register(struct kvblk *kv, void *addr, size_t len,
		       const struct kvblk_mem_options *options, struct kvblk_mem **mem)
{
	struct kvblk_mem_options own;
	struct kvblk_cuda *cuda = NULL;
	int err;

	if (!kv || !addr || !mem || !range_is_good(addr, len))
		return -EINVAL;
	err = mem_options(&own, options);
	if (err)
		return err;
	err = kvblk_cuda_attach(addr, len, &cuda);
	if (err && err != -ENXIO)
		return err;
	err = mem_create(kv, addr, len, cuda, &own, mem);
	if (err)
		kvblk_cuda_detach(cuda);
	return err;
}

void kvblk_mem_unregister(struct kvblk_mem *mem)
{
	if (!mem)
		return;
	if (mem->cuda)
		gpu_remove(mem);
	kvblk_summer_put(mem->summer);
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
	struct kvblk_mem_options own;
	char path[128];
	const char *file = path;
	size_t map_len;
	int err, ordinal;
	void *addr = NULL;

	if (!kv || !from || !mem || !range_is_good(NULL, len))
		return -EINVAL;
	err = mem_options(&own, options);
	if (err)
		return err;
	ordinal = cuda_ordinal(from);
	if (ordinal >= 0)
		return alloc_cuda(kv, ordinal, len, &own, mem);
	if (strcmp(from, "host") == 0)
		file = NULL;
	else if (strchr(from, '/'))
		file = from;
	else if (!pci_path(from, path, sizeof(path)))
		return -EINVAL;
	err = map_memory(file, len, &addr, &map_len);
	if (err)
		return err;
	err = mem_create(kv, addr, len, NULL, &own, mem);
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

int kvblk_mem_get_info(const struct kvblk_mem *mem, struct kvblk_mem_info *info)
{
	struct kvblk_mem_info own = {
		.kind = mem->kind,
		.addr = (uintptr_t)mem->addr,
		.length = mem->len,
	};

	if (info->size < END_OF(struct kvblk_mem_info, reserved))
		return -EINVAL;
	if (mem->stage)
		kvblk_stage_info(mem->stage, &own);
	out_copy(info, &own, sizeof(own));
	return 0;
}

int kvblk_mem_piece(const struct kvblk_mem *mem, size_t offset, size_t len,
		    struct kvblk_piece *piece)
{
	if (offset > mem->len || len > mem->len - offset)
		return -EFAULT;
	switch (mem->kind) {
	case KVBLK_MEM_REGISTERED:
		piece_region(piece, mem->region, offset, len);
		return 0;
	case KVBLK_MEM_ADDRESSED:
		piece_user(piece, mem->user + offset, len);
		return 0;
	default:
		kvblk_stage_piece(mem->stage, kvblk_cuda_ptr(mem->cuda) + offset, len, piece);
		return 0;
	}
}

/* Find the GPU memory that a piece is of, or NULL. Caller holds kv->lock. */
static struct kvblk_mem *gpu_of(struct kvblk *kv, const struct kvblk_piece *piece, uint64_t *ptr)
{
	for (struct kvblk_mem *mem = kv->gpus; mem; mem = mem->next) {
		struct kvblk_piece first;

		if (kvblk_mem_piece(mem, 0, 1, &first) || first.type != piece->type ||
		    first.handle != piece->handle || piece->addr < first.addr ||
		    piece->length > mem->len ||
		    piece->addr - first.addr > mem->len - piece->length)
			continue;
		*ptr = kvblk_cuda_ptr(mem->cuda) + (piece->addr - first.addr);
		return mem;
	}
	return NULL;
}

int kvblk_mem_device(struct kvblk *kv, const struct kvblk_piece *piece, uint64_t *ptr,
		     void **context)
{
	const struct kvblk_mem *mem;

	pthread_mutex_lock(&kv->lock);
	mem = gpu_of(kv, piece, ptr);
	if (mem)
		*context = kvblk_cuda_context(mem->cuda);
	pthread_mutex_unlock(&kv->lock);
	return mem ? 0 : -EXDEV;
}

/* Share the summer of other memory in the context, or create one. Caller holds kv->lock. */
static int summer_share(struct kvblk *kv, struct kvblk_mem *mem)
{
	void *context = kvblk_cuda_context(mem->cuda);

	for (const struct kvblk_mem *m = kv->gpus; m && !mem->summer; m = m->next) {
		if (m->summer && kvblk_cuda_context(m->cuda) == context)
			mem->summer = kvblk_summer_hold(m->summer);
	}
	return mem->summer ? 0 : kvblk_summer_create(kv, context, &mem->summer);
}

int kvblk_mem_summer(struct kvblk *kv, const struct kvblk_piece *piece,
		     struct kvblk_summer **summer)
{
	struct kvblk_mem *mem;
	uint64_t ptr;
	int err = -EXDEV;

	pthread_mutex_lock(&kv->lock);
	mem = gpu_of(kv, piece, &ptr);
	if (mem)
		err = summer_share(kv, mem);
	if (!err)
		*summer = kvblk_summer_hold(mem->summer);
	pthread_mutex_unlock(&kv->lock);
	return err;
}
