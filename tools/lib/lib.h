/* SPDX-License-Identifier: MIT */
/* Declarations shared by the library's files and not exported. */
#ifndef LIBKVBLK_LIB_H
#define LIBKVBLK_LIB_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "kvblk.h"

/* @fd is constant. */
struct kvblk {
	int fd;
	pthread_mutex_t lock;	/* protects @gpus and their links; held during a flush */
	struct kvblk_mem *gpus;	/* memory of GPUs */
	atomic_uint nr_gpus;	/* GPUs that the kernel reaches through a mapping; written under @lock */
};

#define NS_PER_S	1000000000ull

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline void cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* Wait for a condition of cond_init() until @deadline_ns; 0: no deadline. */
static inline void cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / NS_PER_S),
		.tv_nsec = (long)(deadline_ns % NS_PER_S),
	};

	if (deadline_ns)
		pthread_cond_timedwait(cond, lock, &until);
	else
		pthread_cond_wait(cond, lock);
}

/* Offset of the end of a field: the size of a structure in version 1.0. */
#define END_OF(type, field)	(offsetof(type, field) + sizeof(((type *)0)->field))

/*
 * Copy options of the caller, which begin with their size, to the @known bytes at @to.
 * NULL: all zero. Returns 0, -EINVAL if there are fewer than @least bytes, -E2BIG if
 * fields are set that the library does not know.
 */
static inline int options_copy(void *to, size_t known, const void *from, size_t least)
{
	const unsigned char *bytes = (const unsigned char *)from;
	uint32_t size;

	memset(to, 0, known);
	if (!from)
		return 0;
	memcpy(&size, from, sizeof(size));
	if (size < least)
		return -EINVAL;
	if (size > KVBLK_STRUCT_MAX)
		return -E2BIG;
	for (size_t i = known; i < size; i++) {
		/* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): in the caller's size */
		if (bytes[i])
			return -E2BIG;
	}
	memcpy(to, from, size < known ? size : known);
	return 0;
}

/*
 * Copy the @known bytes at @from to a structure of the caller, as far as both know it, and set its
 * size to that number. The caller has checked that the size is at least that of version 1.0.
 */
static inline void out_copy(void *to, const void *from, size_t known)
{
	uint32_t size;

	memcpy(&size, to, sizeof(size));
	if (size > known)
		size = (uint32_t)known;
	memcpy(to, from, size);
	memcpy(to, &size, sizeof(size));
}

/* Copy an element of an array of the caller; @stride bytes are the caller's. */
static inline void element_copy(void *to, size_t stride, const void *from, size_t known)
{
	memcpy(to, from, stride < known ? stride : known);
	if (stride > known)
		memset((char *)to + known, 0, stride - known);
}

/* Returns number @i of results that are @size bytes apart. */
static inline struct kvblk_result *result_at(struct kvblk_result *results, size_t size,
					     unsigned int i)
{
	return (struct kvblk_result *)((char *)results + i * size);
}

/* Run a batch by one ioctl, without staged memory. Returns an errno of the whole ioctl. */
int kvblk_batch(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		struct kvblk_result *results, size_t result_size, unsigned int flags);

/* Register or unregister a buffer with the kernel (KVBLK_IOC_REG_BUF). */
int kvblk_region_register(struct kvblk *kv, void *addr, size_t len, uint32_t *region);
int kvblk_region_unregister(struct kvblk *kv, uint32_t region);

/* Describe @len bytes, 1 to UINT32_MAX, at a user address. */
static inline void piece_user(struct kvblk_piece *piece, const void *addr, size_t len)
{
	memset(piece, 0, sizeof(*piece));
	piece->type = KVBLK_PIECE_USER;
	piece->addr = (uintptr_t)addr;
	piece->length = (uint32_t)len;
}

static inline void piece_region(struct kvblk_piece *piece, uint32_t region, uint64_t offset,
				size_t len)
{
	piece_user(piece, NULL, len);
	piece->type = KVBLK_PIECE_REGISTERED;
	piece->handle = region;
	piece->addr = offset;
}

static inline const struct kvblk_piece *pieces_of(const struct kvblk_op *op)
{
	return (const struct kvblk_piece *)(uintptr_t)op->pieces;
}

static inline size_t length_of(const struct kvblk_op *op)
{
	size_t len = 0;

	for (unsigned int i = 0; i < op->nr_pieces; i++)
		len += pieces_of(op)[i].length;
	return len;
}

/* Describe a piece of registered memory, mem.c. Returns 0 or -EFAULT. */
int kvblk_mem_piece(const struct kvblk_mem *mem, size_t offset, size_t len,
		    struct kvblk_piece *piece);

/*
 * Make what completed gets wrote through mappings of GPU memory visible to GPU work that starts
 * after the call, mem.c. Does nothing without such memory. Returns 0, or an errno of CUDA.
 */
int kvblk_flush_gpus(struct kvblk *kv);

/* Checksums by a GPU, checksums.c. */
struct kvblk_summer;

int kvblk_summer_create(struct kvblk *kv, void *context, struct kvblk_summer **summer);
struct kvblk_summer *kvblk_summer_hold(struct kvblk_summer *summer);
/* End a use; the last one frees the summer. */
void kvblk_summer_put(struct kvblk_summer *summer);

/* Find the device pointer and CUDA context of a piece of GPU memory, mem.c. Returns 0 or -EXDEV. */
int kvblk_mem_device(struct kvblk *kv, const struct kvblk_piece *piece, uint64_t *ptr,
		     void **context);
/*
 * Hold the summer of the GPU memory that a piece is of; create it if there is none. Pair with
 * kvblk_summer_put(), because another thread may unregister overlapping memory.
 */
int kvblk_mem_summer(struct kvblk *kv, const struct kvblk_piece *piece,
		     struct kvblk_summer **summer);

/* CUDA device memory, cuda.c. Calls return 0 or a negative errno. */
struct kvblk_cuda;

/* Find the device memory at @addr. Returns -ENXIO if CUDA does not know the address. */
int kvblk_cuda_attach(void *addr, size_t len, struct kvblk_cuda **cuda);
void kvblk_cuda_detach(struct kvblk_cuda *cuda);

/* Allocate memory of device number @ordinal; kvblk_cuda_detach() frees the memory. */
int kvblk_cuda_alloc(int ordinal, size_t len, void **addr, struct kvblk_cuda **cuda);

/* Map the memory for the CPU, if the driver can: @map_len bytes at @map, the memory at @addr. */
int kvblk_cuda_map(struct kvblk_cuda *cuda, void **map, size_t *map_len, void **addr);

/* Make data that other devices wrote visible to GPU work that starts after the call. */
int kvblk_cuda_flush(struct kvblk_cuda *cuda);

void *kvblk_cuda_context(const struct kvblk_cuda *cuda);
uint64_t kvblk_cuda_ptr(const struct kvblk_cuda *cuda);

/* Staging: copies between CUDA memory and the pool through host memory, stage.c. */
struct kvblk_stage;

#define PIECE_STAGED	0x8000u	/* internal: @handle is a stage, @addr a device pointer */

/* Get the stage of @kv, @context and @options; create the stage if there is none. */
int kvblk_stage_open(struct kvblk *kv, void *context, const struct kvblk_mem_options *options,
		     struct kvblk_stage **stage);
void kvblk_stage_close(struct kvblk_stage *stage);
void kvblk_stage_info(const struct kvblk_stage *stage, struct kvblk_mem_info *info);
void kvblk_stage_piece(const struct kvblk_stage *stage, uint64_t ptr, size_t len,
		       struct kvblk_piece *piece);

/* Returns true if an operation has a staged piece. */
bool kvblk_is_staged(const struct kvblk_op *ops, unsigned int nr_ops);

/* Run a batch with staged pieces. All errors are in @results. */
void kvblk_stage_submit(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
			struct kvblk_result *results, unsigned int flags);

/* Cancel operations that have not been submitted to the kernel. Returns their number. */
unsigned int kvblk_stage_cancel(struct kvblk *kv, uint64_t cookie);

#endif
