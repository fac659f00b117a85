// SPDX-License-Identifier: MIT
/*
 * Device memory of CUDA, by the driver's own library. Nothing of CUDA is needed
 * to build this, and nothing is loaded until somebody has such memory.
 *
 * Where the kernel can't reach the memory a block takes two steps, through a lane:
 * pinned memory of the host, a stream for the copies, a queue for the parts of a
 * get. While a part is copied into the device the others are still on their way
 * from the drives.
 *
 * Rule: a lane has one user at a time, and is given back when neither the kernel
 * nor the device will touch its memory any more. Nothing is allocated after
 * kvblk_cuda_stage().
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib.h"

#define LANES		2u
#define BLOCK_MAX	(16u << 20)
#define PART_SIZE	(1u << 20)
#define BATCH_PARTS	4u	/* in flight, where there is no queue */

/* As the documentation of the CUDA driver API has them. */
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
};

/* Those of its functions that are used; the last two may be NULL. */
#define NR_OPTIONAL	2

static struct {
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
	int (*fill)(device_ptr to, unsigned char byte, size_t len, void *stream);
	int (*range_handle)(void *handle, device_ptr ptr, size_t len, int type,
			    unsigned long long flags);
	int (*flush)(int target, int scope);
} driver;

static const struct {
	void *function;
	const char *name;
} functions[] = {
	{ &driver.pointer_attribute,	"cuPointerGetAttribute" },
	{ &driver.init,			"cuInit" },
	{ &driver.device_get,		"cuDeviceGet" },
	{ &driver.device_attribute,	"cuDeviceGetAttribute" },
	{ &driver.context_retain,	"cuDevicePrimaryCtxRetain" },
	{ &driver.context_release,	"cuDevicePrimaryCtxRelease_v2" },
	{ &driver.context_push,		"cuCtxPushCurrent_v2" },
	{ &driver.context_pop,		"cuCtxPopCurrent_v2" },
	{ &driver.alloc,		"cuMemAlloc_v2" },
	{ &driver.free,			"cuMemFree_v2" },
	{ &driver.host_register,	"cuMemHostRegister_v2" },
	{ &driver.host_unregister,	"cuMemHostUnregister" },
	{ &driver.stream_create,	"cuStreamCreate" },
	{ &driver.stream_destroy,	"cuStreamDestroy_v2" },
	{ &driver.stream_wait,		"cuStreamSynchronize" },
	{ &driver.to_device,		"cuMemcpyHtoDAsync_v2" },
	{ &driver.to_host,		"cuMemcpyDtoHAsync_v2" },
	{ &driver.fill,			"cuMemsetD8Async" },
	{ &driver.range_handle,		"cuMemGetHandleForAddressRange" },
	{ &driver.flush,		"cuFlushGPUDirectRDMAWrites" },
};

/* -ENXIO: not yet loaded; else final: 0, or -ENOSYS */
static int driver_state = -ENXIO;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;	/* of both */

struct lane {
	struct lane *next;	/* of those that are free */
	char *stage;		/* pinned, stage_size() bytes */
	void *stream;
	struct kvblk_queue *queue;	/* NULL: io_uring is not there for us */
	uint32_t region;	/* of @stage; 0: pinned for each operation */
	struct kvblk_op *ops;	/* one for each part, as are: */
	struct kvblk_piece *pieces;
	struct kvblk_result *results;
};

struct kvblk_cuda {
	device_ptr ptr;
	size_t len;
	int device;
	void *context;
	bool retained;		/* the context, by us */
	bool allocated;		/* the memory, by us */

	struct kvblk *kv;
	size_t block_max;
	size_t part_size;
	struct lane lanes[KVBLK_MEM_LANES_MAX];
	unsigned int nr_lanes;
	pthread_mutex_t lock;	/* protects: */
	pthread_cond_t given;
	struct lane *free;
	unsigned int nr_lost;	/* with operations that nobody hears of any more */
};

/* The kernel's end of a get: what it has found out. */
struct fetch {
	struct kvblk_cuda *cuda;
	struct lane *lane;
	device_ptr to;
	size_t len;
	uint64_t layout_tag;
	bool started;		/* the first part is there */
	int err;
};

static int cuda_errno(int result)
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
 * Whoever has a device pointer has loaded the library: no need to do so for those
 * who have none, which takes long. -ENXIO: it is not there.
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

/* The device of the byte at @ptr. */
static int ordinal_of(device_ptr ptr, int *ordinal)
{
	return driver.pointer_attribute(ordinal, POINTER_DEVICE_ORDINAL, ptr);
}

static bool is_device_memory(device_ptr ptr)
{
	uint32_t type = 0, managed = 0;

	if (!driver.pointer_attribute ||
	    driver.pointer_attribute(&type, POINTER_MEMORY_TYPE, ptr))
		return false;
	/* may be anywhere at any time: only CUDA knows */
	if (driver.pointer_attribute(&managed, POINTER_IS_MANAGED, ptr))
		managed = 0;
	return type == MEMORY_TYPE_DEVICE || managed;
}

static int enter(struct kvblk_cuda *cuda)
{
	return cuda_errno(driver.context_push(cuda->context));
}

static void leave(void)
{
	void *context;

	driver.context_pop(&context);
}

static struct kvblk_cuda *cuda_create(device_ptr ptr, size_t len)
{
	struct kvblk_cuda *cuda = calloc(1, sizeof(*cuda));

	if (!cuda)
		return NULL;
	cuda->ptr = ptr;
	cuda->len = len;
	pthread_mutex_init(&cuda->lock, NULL);
	pthread_cond_init(&cuda->given, NULL);
	return cuda;
}

/* The context that all of CUDA's runtime shares. */
static int retain(struct kvblk_cuda *cuda)
{
	int err = cuda_errno(driver.context_retain(&cuda->context, cuda->device));

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
	err = cuda_errno(driver.device_get(&c->device, first));
	/* memory that was mapped by hand has no context of its own */
	if (!err && (driver.pointer_attribute(&c->context, POINTER_CONTEXT, ptr) || !c->context))
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
	err = cuda_errno(driver.init(0));
	if (err)
		return err;
	c = cuda_create(0, len);
	if (!c)
		return -ENOMEM;
	err = cuda_errno(driver.device_get(&c->device, ordinal));
	if (!err)
		err = retain(c);
	if (!err)
		err = enter(c);
	if (!err) {
		err = cuda_errno(driver.alloc(&c->ptr, len));
		c->allocated = !err;
		leave();
	}
	if (err) {
		kvblk_cuda_detach(c);
		return err;
	}
	*addr = (void *)(uintptr_t)c->ptr;
	*cuda = c;
	return 0;
}

/* With room to notice that a block is longer than it was. */
static size_t stage_size(const struct kvblk_cuda *cuda)
{
	return cuda->block_max + (size_t)sysconf(_SC_PAGESIZE);
}

static void lane_destroy(struct kvblk_cuda *cuda, struct lane *lane)
{
	kvblk_queue_destroy(lane->queue);
	if (lane->region)
		kvblk_region_unregister(cuda->kv, lane->region);
	if (lane->stream)
		driver.stream_destroy(lane->stream);
	if (lane->stage) {
		driver.host_unregister(lane->stage);
		munmap(lane->stage, stage_size(cuda));
	}
	free(lane->ops);
	free(lane->pieces);
	free(lane->results);
}

void kvblk_cuda_detach(struct kvblk_cuda *cuda)
{
	if (!cuda)
		return;
	if (cuda->nr_lanes || cuda->allocated) {
		bool inside = !enter(cuda);

		for (unsigned int i = 0; i < cuda->nr_lanes; i++)
			lane_destroy(cuda, &cuda->lanes[i]);
		if (cuda->allocated)
			driver.free(cuda->ptr);
		if (inside)
			leave();
	}
	if (cuda->retained)
		driver.context_release(cuda->device);
	pthread_cond_destroy(&cuda->given);
	pthread_mutex_destroy(&cuda->lock);
	free(cuda);
}

/*
 * The documented way: a dma-buf of the memory, and a mapping of that, on drivers
 * that say they have it. Whether the kernel can pin its pages is another question.
 */
int kvblk_cuda_map(struct kvblk_cuda *cuda, void **map, size_t *map_len, void **addr)
{
	device_ptr page = (device_ptr)sysconf(_SC_PAGESIZE);
	device_ptr start = cuda->ptr & ~(page - 1);
	size_t len = ((cuda->ptr + cuda->len + page - 1) & ~(page - 1)) - start;
	int supported = 0, fd = -1, err;
	void *p;

	if (!driver.range_handle ||
	    driver.device_attribute(&supported, DEVICE_DMA_BUF_MMAP_SUPPORTED, cuda->device) ||
	    !supported)
		return -EOPNOTSUPP;
	err = enter(cuda);
	if (err)
		return err;
	err = driver.range_handle(&fd, start, len, RANGE_DMA_BUF_FD, RANGE_BY_PCIE);
	if (err)
		err = driver.range_handle(&fd, start, len, RANGE_DMA_BUF_FD, 0);
	leave();
	if (err)
		return cuda_errno(err);
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
	int err = enter(cuda);

	if (err)
		return err;
	err = driver.flush ? driver.flush(FLUSH_CURRENT_CONTEXT, FLUSH_TO_OWNER) : 0;
	leave();
	/* where it is not supported, it is not needed */
	return err == CUDA_NOT_SUPPORTED ? 0 : cuda_errno(err);
}

static int lane_create(struct kvblk_cuda *cuda, struct lane *lane)
{
	size_t nr = (cuda->block_max + cuda->part_size - 1) / cuda->part_size;
	void *p;
	int err;

	lane->ops = calloc(nr, sizeof(*lane->ops));
	lane->pieces = calloc(nr, sizeof(*lane->pieces));
	lane->results = calloc(nr, sizeof(*lane->results));
	if (!lane->ops || !lane->pieces || !lane->results)
		return -ENOMEM;
	p = mmap(NULL, stage_size(cuda), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	err = cuda_errno(driver.host_register(p, stage_size(cuda), HOST_REGISTER_PORTABLE));
	if (err) {
		munmap(p, stage_size(cuda));
		return err;
	}
	lane->stage = p;
	err = cuda_errno(driver.stream_create(&lane->stream, STREAM_NON_BLOCKING));
	if (err) {
		lane->stream = NULL;
		return err;
	}
	/* both make it faster, and may not be allowed */
	if (kvblk_region_register(cuda->kv, p, stage_size(cuda), &lane->region))
		lane->region = 0;
	if (kvblk_queue_create(cuda->kv, (unsigned int)nr, KVBLK_QUEUE_ANY_THREAD, &lane->queue))
		lane->queue = NULL;
	return 0;
}

int kvblk_cuda_stage(struct kvblk_cuda *cuda, struct kvblk *kv,
		     const struct kvblk_mem_options *options)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned int lanes = LANES;
	struct kvblk_info info;
	int err;

	err = kvblk_info(kv, &info);
	if (err)
		return err;
	cuda->kv = kv;
	cuda->block_max = cuda->len;
	if (info.value_max && cuda->block_max > info.value_max)
		cuda->block_max = info.value_max;
	if (cuda->block_max > BLOCK_MAX)
		cuda->block_max = BLOCK_MAX;
	cuda->part_size = PART_SIZE;
	if (options && options->block_max)
		cuda->block_max = options->block_max;
	if (options && options->part_size)
		cuda->part_size = options->part_size;
	if (options && options->lanes)
		lanes = options->lanes;
	cuda->block_max = (cuda->block_max + page - 1) & ~(page - 1);

	err = enter(cuda);
	if (err)
		return err;
	while (!err && cuda->nr_lanes < lanes) {
		struct lane *lane = &cuda->lanes[cuda->nr_lanes++];

		err = lane_create(cuda, lane);
		lane->next = cuda->free;
		cuda->free = lane;
	}
	leave();
	return err;
}

/* NULL: all are lost */
static struct lane *lane_take(struct kvblk_cuda *cuda)
{
	struct lane *lane;

	pthread_mutex_lock(&cuda->lock);
	while (!cuda->free && cuda->nr_lost < cuda->nr_lanes)
		pthread_cond_wait(&cuda->given, &cuda->lock);
	lane = cuda->free;
	if (lane)
		cuda->free = lane->next;
	pthread_mutex_unlock(&cuda->lock);
	return lane;
}

static void lane_give(struct kvblk_cuda *cuda, struct lane *lane)
{
	pthread_mutex_lock(&cuda->lock);
	if (lane->queue && kvblk_queue_inflight(lane->queue)) {
		cuda->nr_lost++;
		pthread_cond_broadcast(&cuda->given);
	} else {
		lane->next = cuda->free;
		cuda->free = lane;
		pthread_cond_signal(&cuda->given);
	}
	pthread_mutex_unlock(&cuda->lock);
}

static void stage_piece(const struct lane *lane, size_t offset, size_t len,
			struct kvblk_piece *piece)
{
	if (lane->region)
		region_piece(piece, lane->region, offset, len);
	else
		kvblk_piece_user(piece, lane->stage + offset, len);
}

static int stream_wait(const struct lane *lane)
{
	return cuda_errno(driver.stream_wait(lane->stream));
}

int kvblk_cuda_put(struct kvblk_cuda *cuda, size_t offset, size_t len,
		   struct kvblk_op *op, struct kvblk_result *result)
{
	struct lane *lane;
	int err, wait_err;

	if (len > cuda->block_max)
		return -EFBIG;
	lane = lane_take(cuda);
	if (!lane)
		return -EIO;
	err = enter(cuda);
	if (!err) {
		err = cuda_errno(driver.to_host(lane->stage, cuda->ptr + offset, len,
						lane->stream));
		wait_err = stream_wait(lane);
		if (!err)
			err = wait_err;
		leave();
	}
	if (!err) {
		stage_piece(lane, 0, len, &lane->pieces[0]);
		op->pieces = (uintptr_t)lane->pieces;
		op->nr_pieces = 1;
		err = submit_one(cuda->kv, op, result);
	}
	lane_give(cuda, lane);
	return err;
}

/* Part number @i. */
static size_t part_len(const struct fetch *fetch, size_t i)
{
	size_t left = fetch->len - i * fetch->cuda->part_size;

	return left < fetch->cuda->part_size ? left : fetch->cuda->part_size;
}

static void part_prepare(struct fetch *fetch, size_t i, const void *key, size_t key_len)
{
	struct lane *lane = fetch->lane;
	struct kvblk_op *op = &lane->ops[i];
	size_t at = i * fetch->cuda->part_size, len = part_len(fetch, i);

	/* room for a byte more: of a block that has become longer it comes, too */
	stage_piece(lane, at, at + len == fetch->len ? len + 1 : len, &lane->pieces[i]);
	kvblk_prep_get(op, key, key_len, &lane->pieces[i], 1);
	op->flags = KVBLK_OPF_PARTIAL;
	op->offset = (uint32_t)at;
	op->cookie = i;
}

/* A part has come from the drives: on to the device, unless the get has failed. */
static void part_arrived(struct fetch *fetch, const struct kvblk_result *result)
{
	size_t i = result->cookie, at = i * fetch->cuda->part_size;
	struct lane *lane = fetch->lane;

	if (fetch->err)
		return;
	if (result->res < 0 && result->res != -ERANGE) {
		fetch->err = result->res;
		return;
	}
	/* another block has taken the key meanwhile */
	if (result->res != (int)part_len(fetch, i) ||
	    (fetch->started && result->layout_tag != fetch->layout_tag)) {
		fetch->err = -ENOENT;
		return;
	}
	fetch->layout_tag = result->layout_tag;
	fetch->started = true;
	fetch->err = cuda_errno(driver.to_device(fetch->to + at, lane->stage + at,
						 part_len(fetch, i), lane->stream));
}

/* All parts in flight at once, each copied when it is there. */
static void fetch_queued(struct fetch *fetch, size_t nr)
{
	struct lane *lane = fetch->lane;
	int err = 0;

	for (size_t i = 0; i < nr && !err; i++)
		err = kvblk_queue_add(lane->queue, &lane->ops[i]);
	if (err)
		fetch->err = err;
	while (kvblk_queue_inflight(lane->queue)) {
		int got = kvblk_queue_wait(lane->queue, lane->results, (unsigned int)nr, 1, -1);

		if (got == -EINTR)
			continue;
		if (got < 0) {
			if (!fetch->err)
				fetch->err = got;
			return;
		}
		for (int i = 0; i < got; i++)
			part_arrived(fetch, &lane->results[i]);
	}
}

/* Some parts by an ioctl, while those before them are copied. */
static void fetch_batched(struct fetch *fetch, size_t nr)
{
	struct lane *lane = fetch->lane;

	for (size_t i = 0; i < nr && !fetch->err;) {
		size_t n = nr - i < BATCH_PARTS ? nr - i : BATCH_PARTS;

		fetch->err = kvblk_submit(fetch->cuda->kv, &lane->ops[i], (unsigned int)n,
					  &lane->results[i], 0);
		for (; n && !fetch->err; n--)
			part_arrived(fetch, &lane->results[i++]);
	}
}

/* The device holds the whole block, or zeroes where it got a part of it. */
static int fetch_end(struct fetch *fetch)
{
	struct lane *lane = fetch->lane;
	int err = stream_wait(lane);

	if (!fetch->err && !err)
		return 0;
	if (fetch->started && !err) {
		err = cuda_errno(driver.fill(fetch->to, 0, fetch->len, lane->stream));
		if (!err)
			err = stream_wait(lane);
	}
	return err ? err : fetch->err;
}

int kvblk_cuda_get(struct kvblk_cuda *cuda, size_t offset, const void *key,
		   size_t key_len, size_t *len)
{
	struct fetch fetch = { .cuda = cuda, .to = cuda->ptr + offset };
	uint32_t size = 0;
	size_t nr;
	int err;

	err = kvblk_exists(cuda->kv, key, key_len, &size);
	if (err)
		return err;
	if (size > *len) {
		*len = size;
		return -EMSGSIZE;
	}
	if (size > cuda->block_max)
		return -EFBIG;
	fetch.len = size;
	fetch.lane = lane_take(cuda);
	if (!fetch.lane)
		return -EIO;
	nr = (size + cuda->part_size - 1) / cuda->part_size;
	for (size_t i = 0; i < nr; i++)
		part_prepare(&fetch, i, key, key_len);
	err = enter(cuda);
	if (!err) {
		if (fetch.lane->queue)
			fetch_queued(&fetch, nr);
		else
			fetch_batched(&fetch, nr);
		err = fetch_end(&fetch);
		leave();
	}
	lane_give(cuda, fetch.lane);
	if (!err)
		*len = size;
	return err;
}
