/* SPDX-License-Identifier: MIT */
/* Declarations shared by the library's files and not exported. */
#ifndef LIBKVBLK_LIB_H
#define LIBKVBLK_LIB_H

#include <errno.h>
#include <time.h>

#include "kvblk.h"

static inline int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Write the place of the block device at @path, as "NQN nsid N" or by its serial number;
 * "" if unknown.
 */
void kvblk_place_of(const char *path, char place[KVBLK_PLACE_LEN_MAX + 1]);

/* Register or unregister a buffer with the kernel (KVBLK_IOC_REG_BUF). */
int kvblk_region_register(struct kvblk *kv, void *addr, size_t len, uint32_t *region);
int kvblk_region_unregister(struct kvblk *kv, uint32_t region);

static inline void region_piece(struct kvblk_piece *piece, uint32_t region,
				uint64_t offset, size_t len)
{
	kvblk_piece_user(piece, NULL, len);
	piece->type = KVBLK_PIECE_REGISTERED;
	piece->handle = region;
	piece->addr = offset;
}

/* Apply the caller's options to a put. NULL: none. Returns 0 or -EINVAL. */
static inline int put_options(struct kvblk_op *op, struct kvblk_op_ext *ext,
			      const struct kvblk_put_options *options)
{
	if (!options)
		return 0;
	if (options->parent_len > KVBLK_KEY_MAX)
		return -EINVAL;
	op->priority = options->priority;
	op->ttl_s = options->ttl_s;
	op->layout_tag = options->layout_tag;
	op->caller_tag = options->caller_tag;
	op->deadline_ns = options->deadline_ns;
	if (!options->parent_len)
		return 0;
	kvblk_prep_ext(op, ext);
	ext->parent = (uintptr_t)options->parent;
	ext->parent_len = (uint32_t)options->parent_len;
	return 0;
}

/* Check the key of one operation, submit the operation by ioctl and wait. Returns 0 or an errno. */
static inline int submit_one(struct kvblk *kv, const struct kvblk_op *op,
			     struct kvblk_result *result)
{
	int err = op->key_len && op->key_len <= KVBLK_KEY_MAX ? 0 : -EINVAL;

	if (!err)
		err = kvblk_submit(kv, op, 1, result, 0);
	if (err)
		return err;
	return result->res < 0 ? result->res : 0;
}

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
void kvblk_stage_piece(const struct kvblk_stage *stage, uint64_t ptr, size_t len,
		       struct kvblk_piece *piece);

/* Fetch one block to @ptr in parts. */
int kvblk_stage_fetch(struct kvblk_stage *stage, uint64_t ptr, const void *key, size_t key_len,
		      size_t *len);

#endif
