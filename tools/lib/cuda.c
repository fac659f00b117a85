// SPDX-License-Identifier: MIT
/*
 * CUDA device memory, through the driver's own library. Needs nothing of CUDA to build;
 * loads the library only for a process that uses such memory. stage.c transfers blocks if
 * the kernel cannot reach the memory.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"
#include "lib.h"

struct kvblk_cu kvblk_cu;

static const struct {
	void *function;
	const char *name;
} functions[] = {
	{ &kvblk_cu.pointer_attribute,	"cuPointerGetAttribute" },
	{ &kvblk_cu.init,		"cuInit" },
	{ &kvblk_cu.device_get,		"cuDeviceGet" },
	{ &kvblk_cu.device_attribute,	"cuDeviceGetAttribute" },
	{ &kvblk_cu.context_retain,	"cuDevicePrimaryCtxRetain" },
	{ &kvblk_cu.context_release,	"cuDevicePrimaryCtxRelease_v2" },
	{ &kvblk_cu.context_push,	"cuCtxPushCurrent_v2" },
	{ &kvblk_cu.context_pop,	"cuCtxPopCurrent_v2" },
	{ &kvblk_cu.alloc,		"cuMemAlloc_v2" },
	{ &kvblk_cu.free,		"cuMemFree_v2" },
	{ &kvblk_cu.host_register,	"cuMemHostRegister_v2" },
	{ &kvblk_cu.host_unregister,	"cuMemHostUnregister" },
	{ &kvblk_cu.stream_create,	"cuStreamCreate" },
	{ &kvblk_cu.stream_destroy,	"cuStreamDestroy_v2" },
	{ &kvblk_cu.stream_wait,	"cuStreamSynchronize" },
	{ &kvblk_cu.to_device,		"cuMemcpyHtoDAsync_v2" },
	{ &kvblk_cu.to_host,		"cuMemcpyDtoHAsync_v2" },
	{ &kvblk_cu.batch,		"cuMemcpyBatchAsync" },
	{ &kvblk_cu.range_handle,	"cuMemGetHandleForAddressRange" },
	{ &kvblk_cu.flush,		"cuFlushGPUDirectRDMAWrites" },
	{ &kvblk_cu.module_load,	"cuModuleLoadData" },
	{ &kvblk_cu.module_unload,	"cuModuleUnload" },
	{ &kvblk_cu.module_function,	"cuModuleGetFunction" },
	{ &kvblk_cu.launch,		"cuLaunchKernel" },
};

/* -ENXIO: not loaded yet; 0 or -ENOSYS are final */
static int driver_state = -ENXIO;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;	/* protects both */

struct kvblk_cuda {
	device_ptr ptr;
	size_t len;
	int device;
	void *context;
	bool retained;		/* @context must be released */
	bool allocated;		/* @ptr must be freed */
};

int kvblk_cu_errno(int result)
{
	switch (result) {
	case CUDA_SUCCESS:
		return 0;
	case CUDA_INVALID_VALUE:
		return -EINVAL;
	case CUDA_OUT_OF_MEMORY:
		return -ENOMEM;
	case CUDA_NOT_INITIALIZED:
	case CUDA_DEINITIALIZED:
	case CUDA_NO_DEVICE:
	case CUDA_INVALID_DEVICE:
	case CUDA_CONTEXT_IS_DESTROYED:
		return -ENODEV;
	case CUDA_NOT_PERMITTED:
		return -EPERM;
	case CUDA_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

static int find_functions(void *library)
{
	size_t nr = sizeof(functions) / sizeof(functions[0]);
	int err = 0;

	for (size_t i = 0; i < nr; i++) {
		void *found = dlsym(library, functions[i].name);

		if (!found && i < nr - NR_OPTIONAL)
			err = -ENOSYS;
		memcpy(functions[i].function, &found, sizeof(found));
	}
	return err;
}

/*
 * Find the driver's library. Without @load only if the process has loaded it, which any
 * owner of a device pointer has done; loading is slow. Returns -ENXIO if it is not there.
 */
static int driver_get(bool load)
{
	void *library;
	int state;

	pthread_mutex_lock(&driver_lock);
	if (driver_state == -ENXIO) {
		library = dlopen("libcuda.so.1", RTLD_NOW | (load ? 0 : RTLD_NOLOAD));
		if (library)
			driver_state = find_functions(library);
	}
	state = driver_state;
	pthread_mutex_unlock(&driver_lock);
	return state;
}

/* Get the ordinal of the device that holds @ptr. */
static int ordinal_of(device_ptr ptr, int *ordinal)
{
	return kvblk_cu.pointer_attribute(ordinal, POINTER_DEVICE_ORDINAL, ptr);
}

static bool is_device_memory(device_ptr ptr)
{
	uint32_t type = 0, managed = 0;

	if (!kvblk_cu.pointer_attribute ||
	    kvblk_cu.pointer_attribute(&type, POINTER_MEMORY_TYPE, ptr))
		return false;
	/* managed memory migrates, so only CUDA can access it reliably */
	if (kvblk_cu.pointer_attribute(&managed, POINTER_IS_MANAGED, ptr))
		managed = 0;
	return type == MEMORY_TYPE_DEVICE || managed;
}

int kvblk_cu_enter(void *context)
{
	return kvblk_cu_errno(kvblk_cu.context_push(context));
}

void kvblk_cu_leave(void)
{
	void *context;

	kvblk_cu.context_pop(&context);
}

static struct kvblk_cuda *cuda_create(device_ptr ptr, size_t len)
{
	struct kvblk_cuda *cuda = calloc(1, sizeof(*cuda));

	if (!cuda)
		return NULL;
	cuda->ptr = ptr;
	cuda->len = len;
	return cuda;
}

/* Use the primary context, which CUDA's runtime API shares. */
static int retain(struct kvblk_cuda *cuda)
{
	int err = kvblk_cu_errno(kvblk_cu.context_retain(&cuda->context, cuda->device));

	cuda->retained = !err;
	return err;
}

int kvblk_cuda_attach(void *addr, size_t len, struct kvblk_cuda **cuda)
{
	device_ptr ptr = (uintptr_t)addr;
	int state = driver_get(false), first = -1, last = -1, err;
	struct kvblk_cuda *c;

	if (state == -ENXIO || !is_device_memory(ptr))
		return -ENXIO;
	if (state)
		return state;
	if (ordinal_of(ptr, &first) || ordinal_of(ptr + len - 1, &last) || first != last ||
	    !is_device_memory(ptr + len - 1))
		return -EFAULT;
	c = cuda_create(ptr, len);
	if (!c)
		return -ENOMEM;
	err = kvblk_cu_errno(kvblk_cu.device_get(&c->device, first));
	/* memory mapped with the virtual memory API has no context */
	if (!err && (kvblk_cu.pointer_attribute(&c->context, POINTER_CONTEXT, ptr) || !c->context))
		err = retain(c);
	if (err) {
		kvblk_cuda_detach(c);
		return err;
	}
	*cuda = c;
	return 0;
}

int kvblk_cuda_alloc(int ordinal, size_t len, void **addr, struct kvblk_cuda **cuda)
{
	int err = driver_get(true);
	struct kvblk_cuda *c;

	if (err)
		return err == -ENXIO ? -ELIBACC : err;
	err = kvblk_cu_errno(kvblk_cu.init(0));
	if (err)
		return err;
	c = cuda_create(0, len);
	if (!c)
		return -ENOMEM;
	err = kvblk_cu_errno(kvblk_cu.device_get(&c->device, ordinal));
	if (!err)
		err = retain(c);
	if (!err)
		err = kvblk_cu_enter(c->context);
	if (!err) {
		err = kvblk_cu_errno(kvblk_cu.alloc(&c->ptr, len));
		c->allocated = !err;
		kvblk_cu_leave();
	}
	if (err) {
		kvblk_cuda_detach(c);
		return err;
	}
	*addr = (void *)(uintptr_t)c->ptr;
	*cuda = c;
	return 0;
}

void kvblk_cuda_detach(struct kvblk_cuda *cuda)
{
	if (!cuda)
		return;
	if (cuda->allocated && !kvblk_cu_enter(cuda->context)) {
		kvblk_cu.free(cuda->ptr);
		kvblk_cu_leave();
	}
	if (cuda->retained)
		kvblk_cu.context_release(cuda->device);
	free(cuda);
}

/*
 * Map a dma-buf of the memory, on drivers that report support for it. The mapping may
 * still be one that the kernel cannot pin.
 */
int kvblk_cuda_map(struct kvblk_cuda *cuda, void **map, size_t *map_len, void **addr)
{
	device_ptr page = (device_ptr)sysconf(_SC_PAGESIZE);
	device_ptr start = cuda->ptr & ~(page - 1);
	size_t len = ((cuda->ptr + cuda->len + page - 1) & ~(page - 1)) - start;
	int supported = 0, fd = -1, err;
	void *p;

	if (!kvblk_cu.range_handle ||
	    kvblk_cu.device_attribute(&supported, DEVICE_DMA_BUF_MMAP_SUPPORTED, cuda->device) ||
	    !supported)
		return -EOPNOTSUPP;
	err = kvblk_cu_enter(cuda->context);
	if (err)
		return err;
	err = kvblk_cu.range_handle(&fd, start, len, RANGE_DMA_BUF_FD, RANGE_BY_PCIE);
	if (err)
		err = kvblk_cu.range_handle(&fd, start, len, RANGE_DMA_BUF_FD, 0);
	kvblk_cu_leave();
	if (err)
		return kvblk_cu_errno(err);
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (p == MAP_FAILED)
		return -EOPNOTSUPP;
	*map = p;
	*map_len = len;
	*addr = (char *)p + (cuda->ptr - start);
	return 0;
}

int kvblk_cuda_flush(struct kvblk_cuda *cuda)
{
	int err = kvblk_cu_enter(cuda->context);

	if (err)
		return err;
	err = kvblk_cu.flush ? kvblk_cu.flush(FLUSH_CURRENT_CONTEXT, FLUSH_TO_OWNER) : 0;
	kvblk_cu_leave();
	/* without support there is nothing to flush */
	return err == CUDA_NOT_SUPPORTED ? 0 : kvblk_cu_errno(err);
}

void *kvblk_cuda_context(const struct kvblk_cuda *cuda)
{
	return cuda->context;
}

uint64_t kvblk_cuda_ptr(const struct kvblk_cuda *cuda)
{
	return cuda->ptr;
}
