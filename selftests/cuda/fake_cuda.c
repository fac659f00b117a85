// SPDX-License-Identifier: MIT
/*
 * A CUDA driver with one device, with the calls that libkvblk uses: libcuda.so.1 for tests on
 * machines without a GPU. It is stricter than a real one.
 *
 * The CPU cannot access device memory: its addresses are mapped without permissions, and its
 * content is elsewhere. Copies are done only when their stream is synchronized, so a missing wait
 * yields wrong bytes; destroying a stream with pending copies aborts. Host memory of copies must
 * be pinned, and calls that need a context fail without one.
 *
 * The only code of a GPU is crc32c.cu of the library, compiled for the CPU. Its threads run one
 * after the other, all up to the barrier first.
 *
 * KVBLK_FAKE_CUDA_MMAP: the mode of fake_cuda_mmap()
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define INVALID_VALUE	1
#define NOT_INITIALIZED	3
#define INVALID_DEVICE	101
#define INVALID_CONTEXT	201
#define NOT_SUPPORTED	801

#define PAGE		4096ull

static struct {
	unsigned int thread, block, blocks;
	bool at_barrier;	/* threads stop at the barrier */
	jmp_buf stop;
} gpu;

#define CRC_KERNEL	static
#define CRC_SHARED	static
#define CRC_THREAD	gpu.thread
#define CRC_BLOCK	gpu.block
#define CRC_BLOCKS	gpu.blocks
#define CRC_BARRIER()	do { if (gpu.at_barrier) longjmp(gpu.stop, 1); } while (0)
#define CRC_ADD(to, x)	(*(to) ^= (x))
#include "../../tools/lib/crc32c.cu"

struct range {
	struct range *next;
	uint64_t addr;
	size_t len;
	char *bytes;	/* content of device memory; NULL: pinned host memory */
	int fd;
	bool managed;
};

struct copy {
	struct copy *next;
	void *to;
	const void *from;	/* NULL: fill */
	size_t len;
	unsigned char byte;
	struct crc_part *parts;	/* not NULL: a launch, with @len parts */
	unsigned int blocks, *columns, *sums;
};

struct stream {
	struct copy *first, **last;
};

/* protects everything below */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static bool ready;
static int nr_streams, nr_retained, nr_copies, nr_modules, nr_launches, mmap_mode = -1;
static char fail_name[64];
static int fail_after, fail_result;

static __thread int depth;	/* contexts pushed */
static int the_context;

/* Make the @nth call of function @name from now on (1: the next one) return @result. */
void fake_cuda_fail(const char *name, int nth, int result)
{
	pthread_mutex_lock(&lock);
	snprintf(fail_name, sizeof(fail_name), "%s", name);
	fail_after = nth;
	fail_result = result;
	pthread_mutex_unlock(&lock);
}

/*
 * Set the state of dma-bufs. 0: not supported; 1: can be mapped and pinned; 2: cannot be mapped;
 * 3: can be mapped, but not pinned.
 */
void fake_cuda_mmap(int mode)
{
	mmap_mode = mode;
}

/* Return the number of objects that were not released. */
int fake_cuda_leaks(void)
{
	int nr = nr_streams + nr_retained + nr_modules + depth;

	for (struct range *r = ranges; r; r = r->next)
		nr++;
	return nr;
}

/* Return the number of copies to the device requested so far. */
int fake_cuda_copies(void)
{
	int nr;

	pthread_mutex_lock(&lock);
	nr = nr_copies;
	pthread_mutex_unlock(&lock);
	return nr;
}

/* Return the number of launches so far. */
int fake_cuda_launches(void)
{
	return nr_launches;
}

/* Return the content of device memory at @ptr. */
void *fake_cuda_bytes(uint64_t ptr)
{
	for (struct range *r = ranges; r; r = r->next) {
		if (r->bytes && ptr >= r->addr && ptr < r->addr + r->len)
			return r->bytes + (ptr - r->addr);
	}
	return NULL;
}

/* Make the device memory at @ptr managed or not. */
void fake_cuda_managed(uint64_t ptr, bool managed)
{
	for (struct range *r = ranges; r; r = r->next) {
		if (r->addr == ptr)
			r->managed = managed;
	}
}

/* Return the result of a call that must fail, else 0. Caller holds lock. */
static int failing(const char *name)
{
	if (!fail_after || strcmp(name, fail_name) != 0 || --fail_after)
		return 0;
	return fail_result;
}

/* Begin a call and take the lock, which end() drops. Returns 0 or the error to return. */
static int begin(const char *name, bool in_context)
{
	int result;

	pthread_mutex_lock(&lock);
	result = failing(name);
	if (!result && !ready)
		result = NOT_INITIALIZED;
	if (!result && in_context && !depth)
		result = INVALID_CONTEXT;
	return result;
}

static int end(int result)
{
	pthread_mutex_unlock(&lock);
	return result;
}

static struct range *find(uint64_t addr, size_t len, bool device)
{
	for (struct range *r = ranges; r; r = r->next) {
		if (!!r->bytes == device && addr >= r->addr && addr - r->addr < r->len &&
		    len <= r->len - (addr - r->addr))
			return r;
	}
	return NULL;
}

static int forget(uint64_t addr, bool device)
{
	for (struct range **r = &ranges; *r; r = &(*r)->next) {
		struct range *gone = *r;

		if (gone->addr != addr || !!gone->bytes != device)
			continue;
		*r = gone->next;
		if (device) {
			size_t room = (gone->len + PAGE - 1) & ~(PAGE - 1);

			munmap((void *)(uintptr_t)addr, room);
			munmap(gone->bytes, room);
			close(gone->fd);
		}
		free(gone);
		return 0;
	}
	return INVALID_VALUE;
}

int cuInit(unsigned int flags)
{
	pthread_mutex_lock(&lock);
	int result = failing("cuInit");

	if (!result && flags)
		result = INVALID_VALUE;
	if (!result)
		ready = true;
	if (mmap_mode < 0)
		mmap_mode = atoi(getenv("KVBLK_FAKE_CUDA_MMAP") ?: "0");
	return end(result);
}

int cuDeviceGet(int *device, int ordinal)
{
	int result = begin("cuDeviceGet", false);

	if (!result && ordinal)
		result = INVALID_DEVICE;
	if (!result)
		*device = 7;
	return end(result);
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	int result = begin("cuDeviceGetAttribute", false);

	if (!result && (device != 7 || attribute != 152))
		result = INVALID_VALUE;
	if (!result)
		*value = mmap_mode != 0;
	return end(result);
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	int result = begin("cuDevicePrimaryCtxRetain", false);

	if (!result && device != 7)
		result = INVALID_DEVICE;
	if (!result) {
		*context = &the_context;
		nr_retained++;
	}
	return end(result);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	int result = begin("cuDevicePrimaryCtxRelease_v2", false);

	if (device == 7)
		nr_retained--;
	return end(result);
}

int cuCtxPushCurrent_v2(void *context)
{
	int result = begin("cuCtxPushCurrent_v2", false);

	if (!result && context != &the_context)
		result = INVALID_CONTEXT;
	if (!result)
		depth++;
	return end(result);
}

int cuCtxPopCurrent_v2(void **context)
{
	int result = begin("cuCtxPopCurrent_v2", true);

	if (!result) {
		*context = &the_context;
		depth--;
	}
	return end(result);
}

int cuMemAlloc_v2(uint64_t *ptr, size_t len)
{
	int result = begin("cuMemAlloc_v2", true);
	size_t room = (len + PAGE - 1) & ~(PAGE - 1);
	struct range *r;

	if (result)
		return end(result);
	r = calloc(1, sizeof(*r));
	r->len = len;
	r->fd = memfd_create("device", MFD_CLOEXEC);
	if (ftruncate(r->fd, (off_t)room))
		abort();
	r->bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	r->addr = (uintptr_t)mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* fresh device memory has undefined content */
	memset(r->bytes, 0xdd, len);
	r->next = ranges;
	ranges = r;
	*ptr = r->addr;
	return end(0);
}

int cuMemFree_v2(uint64_t ptr)
{
	int result = begin("cuMemFree_v2", true);

	return end(result ? result : forget(ptr, true));
}

int cuPointerGetAttribute(void *value, int attribute, uint64_t ptr)
{
	int result = begin("cuPointerGetAttribute", false);
	struct range *r;
	bool device;

	if (result)
		return end(result);
	r = find(ptr, 1, true);
	device = r != NULL;
	if (!r)
		r = find(ptr, 1, false);
	if (!r)
		return end(INVALID_VALUE);
	switch (attribute) {
	case 1:
		*(void **)value = getenv("KVBLK_FAKE_CUDA_NO_CONTEXT") ? NULL : &the_context;
		break;
	case 2:
		*(unsigned int *)value = device && !r->managed ? 2 : 1;
		break;
	case 8:
		*(unsigned int *)value = r->managed;
		break;
	case 9:
		*(int *)value = 0;
		break;
	default:
		result = INVALID_VALUE;
	}
	return end(result);
}

int cuMemHostRegister_v2(void *addr, size_t len, unsigned int flags)
{
	int result = begin("cuMemHostRegister_v2", true);
	struct range *r;

	if (result)
		return end(result);
	if (!len || flags & ~1u || find((uintptr_t)addr, 1, false))
		return end(INVALID_VALUE);
	r = calloc(1, sizeof(*r));
	r->addr = (uintptr_t)addr;
	r->len = len;
	r->next = ranges;
	ranges = r;
	return end(0);
}

int cuMemHostUnregister(void *addr)
{
	int result = begin("cuMemHostUnregister", true);

	return end(result ? result : forget((uintptr_t)addr, false));
}

int cuStreamCreate(void **stream, unsigned int flags)
{
	int result = begin("cuStreamCreate", true);
	struct stream *s;

	if (!result && flags & ~1u)
		result = INVALID_VALUE;
	if (!result) {
		s = calloc(1, sizeof(*s));
		s->last = &s->first;
		*stream = s;
		nr_streams++;
	}
	return end(result);
}

int cuStreamDestroy_v2(void *stream)
{
	struct stream *s = stream;
	int result = begin("cuStreamDestroy_v2", true);

	if (!result) {
		if (s->first)
			abort();
		free(s);
		nr_streams--;
	}
	return end(result);
}

static void run_threads(const struct copy *c, bool at_barrier)
{
	gpu.at_barrier = at_barrier;
	for (gpu.thread = 0; gpu.thread < CRC_THREADS; gpu.thread++) {
		if (!setjmp(gpu.stop))
			kvblk_crc32c(c->parts, (unsigned int)c->len, c->columns, c->sums);
	}
}

static void run_launch(struct copy *c)
{
	struct crc_part *parts = malloc(c->len * sizeof(*parts));

	memcpy(parts, c->parts, c->len * sizeof(*parts));
	c->parts = parts;
	for (size_t i = 0; i < c->len; i++) {
		struct range *r = find(parts[i].ptr, parts[i].len, true);

		if (!r || !parts[i].len)
			abort();
		parts[i].ptr = (uintptr_t)r->bytes + (parts[i].ptr - r->addr);
	}
	gpu.blocks = c->blocks;
	for (gpu.block = 0; gpu.block < gpu.blocks; gpu.block++) {
		run_threads(c, true);
		run_threads(c, false);
	}
	free(parts);
}

int cuStreamSynchronize(void *stream)
{
	struct stream *s = stream;
	int result = begin("cuStreamSynchronize", true);

	while (s->first) {
		struct copy *c = s->first;

		s->first = c->next;
		if (result)
			;	/* lost */
		else if (c->parts)
			run_launch(c);
		else if (c->from)
			memcpy(c->to, c->from, c->len);
		else
			memset(c->to, c->byte, c->len);
		free(c);
	}
	s->last = &s->first;
	return end(result);
}

static void append(struct stream *s, struct copy copy)
{
	struct copy *c = malloc(sizeof(*c));

	*c = copy;
	*s->last = c;
	s->last = &c->next;
}

static void enqueue(struct stream *s, void *to, const void *from, size_t len, unsigned char byte)
{
	append(s, (struct copy){ .to = to, .from = from, .len = len, .byte = byte });
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t len, void *stream)
{
	int result = begin("cuMemcpyHtoDAsync_v2", true);
	struct range *r = find(to, len, true);

	if (!result && (!r || !find((uintptr_t)from, len, false)))
		result = INVALID_VALUE;
	if (!result) {
		enqueue(stream, r->bytes + (to - r->addr), from, len, 0);
		nr_copies++;
	}
	return end(result);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, void *stream)
{
	int result = begin("cuMemcpyDtoHAsync_v2", true);
	struct range *r = find(from, len, true);

	if (!result && (!r || !find((uintptr_t)to, len, false)))
		result = INVALID_VALUE;
	if (!result)
		enqueue(stream, to, r->bytes + (from - r->addr), len, 0);
	return end(result);
}

/* Layout of CUmemcpyAttributes as documented. */
struct copy_attributes {
	int order, from[2], to[2];
	unsigned int flags;
};

int cuMemcpyBatchAsync(uint64_t *to, uint64_t *from, size_t *lens, size_t nr,
		       struct copy_attributes *attributes, size_t *first_of, size_t nr_attributes,
		       size_t *failed, void *stream)
{
	int result = begin("cuMemcpyBatchAsync", true);

	if (!result && (!stream || !nr || nr_attributes != 1 || *first_of || attributes->order != 1 ||
			attributes->flags))
		result = INVALID_VALUE;
	for (size_t i = 0; i < nr && !result; i++) {
		struct range *t = find(to[i], lens[i], true), *f = find(from[i], lens[i], true);

		/* the copies before the failed one may have been started */
		if (!t == !f || !find(t ? from[i] : to[i], lens[i], false)) {
			*failed = i;
			result = INVALID_VALUE;
		} else if (t) {
			enqueue(stream, t->bytes + (to[i] - t->addr), (void *)(uintptr_t)from[i], lens[i], 0);
			nr_copies++;
		} else {
			enqueue(stream, (void *)(uintptr_t)to[i], f->bytes + (from[i] - f->addr), lens[i], 0);
		}
	}
	return end(result);
}

int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t len, void *stream)
{
	int result = begin("cuMemsetD8Async", true);
	struct range *r = find(to, len, true);

	if (!result && !r)
		result = INVALID_VALUE;
	if (!result)
		enqueue(stream, r->bytes + (to - r->addr), NULL, len, byte);
	return end(result);
}

int cuMemGetHandleForAddressRange(void *handle, uint64_t ptr, size_t len, int type,
				  unsigned long long flags)
{
	int result = begin("cuMemGetHandleForAddressRange", true);
	struct range *r = find(ptr, 1, true);
	int fd = -1;

	if (!result && (!r || ptr != r->addr || len % PAGE || type != 1 || flags > 1))
		result = INVALID_VALUE;
	if (!result && !mmap_mode)
		result = NOT_SUPPORTED;
	if (result)
		return end(result);
	if (mmap_mode == 1)
		fd = fcntl(r->fd, F_DUPFD_CLOEXEC, 0);
	else if (mmap_mode == 2)
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	else	/* access behind the end of a file raises SIGBUS */
		fd = memfd_create("nothing", MFD_CLOEXEC);
	memcpy(handle, &fd, sizeof(fd));
	return end(0);
}

int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	int result = begin("cuFlushGPUDirectRDMAWrites", true);

	if (!result && (target || scope != 100))
		result = INVALID_VALUE;
	return end(result);
}

int cuModuleLoadData(void **module, const void *image)
{
	int result = begin("cuModuleLoadData", true);

	if (!result && strncmp(image, ".version ", 9) != 0)
		result = INVALID_VALUE;
	if (!result) {
		*module = &nr_modules;
		nr_modules++;
	}
	return end(result);
}

int cuModuleUnload(void *module)
{
	int result = begin("cuModuleUnload", true);

	if (!result && module != &nr_modules)
		result = INVALID_VALUE;
	if (!result)
		nr_modules--;
	return end(result);
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	int result = begin("cuModuleGetFunction", true);

	if (!result && (module != &nr_modules || strcmp(name, "kvblk_crc32c") != 0))
		result = INVALID_VALUE;
	if (!result)
		*function = &nr_launches;
	return end(result);
}

/* Return the content of an argument that is an array in device memory, or NULL. */
static void *array_at(const void *argument, size_t len)
{
	uint64_t ptr = *(const uint64_t *)argument;
	struct range *r = find(ptr, len, true);

	return r ? r->bytes + (ptr - r->addr) : NULL;
}

int cuLaunchKernel(void *function, unsigned int blocks, unsigned int blocks_y, unsigned int blocks_z,
		   unsigned int threads, unsigned int threads_y, unsigned int threads_z,
		   unsigned int shared, void *stream, void **arguments, void **extra)
{
	int result = begin("cuLaunchKernel", true);
	struct copy c = { .blocks = blocks };

	if (!result && (!stream || function != &nr_launches || !blocks || blocks_y != 1 || blocks_z != 1 ||
			threads != CRC_THREADS || threads_y != 1 || threads_z != 1 || shared || extra))
		result = INVALID_VALUE;
	if (!result) {
		c.len = *(unsigned int *)arguments[1];
		c.parts = array_at(arguments[0], c.len * sizeof(*c.parts));
		c.columns = array_at(arguments[2], CRC_THREADS * sizeof(*c.columns));
		c.sums = array_at(arguments[3], sizeof(*c.sums));
		if (!c.len || !c.parts || !c.columns || !c.sums)
			result = INVALID_VALUE;
	}
	if (!result) {
		append(stream, c);
		nr_launches++;
	}
	return end(result);
}
