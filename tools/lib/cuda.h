/* SPDX-License-Identifier: MIT */
/* The part of the CUDA driver API that cuda.c, stage.c and checksums.c use. */
#ifndef LIBKVBLK_CUDA_H
#define LIBKVBLK_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* Types and constants from the documentation of the CUDA driver API. */
typedef uint64_t device_ptr;

enum {
	CUDA_SUCCESS			= 0,
	CUDA_INVALID_VALUE		= 1,
	CUDA_OUT_OF_MEMORY		= 2,
	CUDA_NOT_INITIALIZED		= 3,
	CUDA_DEINITIALIZED		= 4,
	CUDA_NO_DEVICE			= 100,
	CUDA_INVALID_DEVICE		= 101,
	CUDA_CONTEXT_IS_DESTROYED	= 709,
	CUDA_NOT_PERMITTED		= 800,
	CUDA_NOT_SUPPORTED		= 801,

	POINTER_CONTEXT			= 1,
	POINTER_MEMORY_TYPE		= 2,
	POINTER_IS_MANAGED		= 8,
	POINTER_DEVICE_ORDINAL		= 9,
	MEMORY_TYPE_DEVICE		= 2,

	DEVICE_DMA_BUF_MMAP_SUPPORTED	= 152,
	RANGE_DMA_BUF_FD		= 1,
	RANGE_BY_PCIE			= 1,

	STREAM_NON_BLOCKING		= 1,
	HOST_REGISTER_PORTABLE		= 1,
	FLUSH_CURRENT_CONTEXT		= 0,
	FLUSH_TO_OWNER			= 100,

	COPY_IN_STREAM_ORDER		= 1,
};

/* layout of CUmemcpyAttributes */
struct copy_attributes {
	int order;
	int from[2], to[2];	/* hints for managed memory */
	unsigned int flags;
};

/* Functions of the driver, NULL until it is loaded. The last NR_OPTIONAL ones may stay NULL. */
#define NR_OPTIONAL	7

struct kvblk_cu {
	int (*init)(unsigned int flags);
	int (*device_get)(int *device, int ordinal);
	int (*device_attribute)(int *value, int attribute, int device);
	int (*context_retain)(void **context, int device);
	int (*context_release)(int device);
	int (*context_push)(void *context);
	int (*context_pop)(void **context);
	int (*pointer_attribute)(void *value, int attribute, device_ptr ptr);
	int (*alloc)(device_ptr *ptr, size_t len);
	int (*free)(device_ptr ptr);
	int (*host_register)(void *addr, size_t len, unsigned int flags);
	int (*host_unregister)(void *addr);
	int (*stream_create)(void **stream, unsigned int flags);
	int (*stream_destroy)(void *stream);
	int (*stream_wait)(void *stream);
	int (*to_device)(device_ptr to, const void *from, size_t len, void *stream);
	int (*to_host)(void *to, device_ptr from, size_t len, void *stream);
	/* optional, CUDA 12.8 or later */
	int (*batch)(device_ptr *to, device_ptr *from, size_t *lens, size_t nr,
		     struct copy_attributes *attributes, size_t *first_of, size_t nr_attributes,
		     size_t *failed, void *stream);
	int (*range_handle)(void *handle, device_ptr ptr, size_t len, int type,
			    unsigned long long flags);
	int (*flush)(int target, int scope);
	int (*module_load)(void **module, const void *image);
	int (*module_unload)(void *module);
	int (*module_function)(void **function, void *module, const char *name);
	int (*launch)(void *function, unsigned int blocks, unsigned int blocks_y,
		      unsigned int blocks_z, unsigned int threads, unsigned int threads_y,
		      unsigned int threads_z, unsigned int shared, void *stream,
		      void **arguments, void **extra);
};

extern struct kvblk_cu kvblk_cu;

/* Translate the return value of a driver function to an errno. */
int kvblk_cu_errno(int result);

/* Make @context the calling thread's current context until kvblk_cu_leave(). */
int kvblk_cu_enter(void *context);
void kvblk_cu_leave(void);

#endif
