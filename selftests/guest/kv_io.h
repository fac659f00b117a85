/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared by the test programs: raw ioctls, numbered keys, and block contents that can be checked
 * without a copy.
 *
 * The rule: a block's length and bytes follow from its key's number and its caller tag. A get is
 * therefore checked against its own result, and a byte of any other block, version or offset
 * counts as wrong.
 */
#ifndef KV_IO_H
#define KV_IO_H

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <liburing.h>
#include <pthread.h>

#include <linux/kvblk.h>

#include "kv_crc32c.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define KV_UNTOUCHED	0xa5	/* fill of a get's buffer before the get */
#define PAGE		4096ul

/* Exit with 1: the environment of the test is broken. */
static inline void __attribute__((format(printf, 1, 2), noreturn))
kv_die(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf(": %s\n", strerror(errno));
	exit(1);
}

static inline uint64_t kv_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* Return the next random number; each thread has its own @state. */
static inline uint64_t kv_random(uint64_t *state)
{
	return kv_mix(++*state);
}

static inline uint64_t kv_below(uint64_t *state, uint64_t below)
{
	return kv_random(state) % below;
}

static inline uint64_t kv_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Return and print the seed of the run: KV_SEED if given, to repeat a run, else random. */
static inline uint64_t kv_run_seed(void)
{
	const char *given = getenv("KV_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) :
			kv_mix(kv_now_ms() ^ (uint64_t)getpid() << 32) >> 32;

	fprintf(stderr, "KV_SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

/*
 * Return the factor for time limits from KVBLK_SLOW: above 1 where the VM is slow, as the debug
 * kernel in QEMU is.
 */
static inline unsigned int kv_slow(void)
{
	const char *slow = getenv("KVBLK_SLOW");

	return slow && atoi(slow) > 0 ? (unsigned int)atoi(slow) : 1;
}

struct kv_key {
	uint16_t len;
	uint8_t bytes[KVBLK_KEY_MAX];
};

/* Return the key of number @nr: 16 bytes long, but one key in 8 has up to 512. */
static inline struct kv_key kv_key(uint64_t nr)
{
	struct kv_key key = { .len = 16 };
	uint64_t mixed = kv_mix(nr);

	if (nr % 8 == 7)
		key.len = (uint16_t)(16 + mixed % (KVBLK_KEY_MAX - 15));
	memcpy(key.bytes, &nr, 8);
	memcpy(key.bytes + 8, &mixed, 8);
	for (unsigned int i = 16; i < key.len; i++)
		key.bytes[i] = (uint8_t)(mixed >> (i % 8 * 8)) ^ (uint8_t)i;
	return key;
}

static inline uint64_t kv_seed(uint64_t nr, uint64_t tag)
{
	return kv_mix(kv_mix(nr) ^ tag);
}

/*
 * Return the first word of page @page. Each page starts from its own number, so that no two pages
 * of any blocks are equal; the words within a page differ by KV_STEP.
 */
static inline uint64_t kv_page_word(uint64_t seed, uint64_t page)
{
	return kv_mix(seed ^ page * 0xd1342543de82ef95ull);
}

#define KV_STEP		0x9e3779b97f4a7c15ull
#define KV_PAGE_WORDS	(PAGE / 8)

static inline uint8_t kv_byte(uint64_t seed, uint64_t at)
{
	uint64_t word = kv_page_word(seed, at / PAGE) +
			at % PAGE / 8 * KV_STEP;

	return (uint8_t)(word >> (at % 8 * 8));
}

static inline void kv_page(uint64_t seed, uint64_t page, uint64_t *words)
{
	uint64_t word = kv_page_word(seed, page);

	for (unsigned int i = 0; i < KV_PAGE_WORDS; i++, word += KV_STEP)
		words[i] = word;
}

/* Fill @buf with bytes @from to @from + @len of the block with seed @seed. */
static inline void kv_fill(uint64_t seed, uint64_t from, void *buf, size_t len)
{
	uint64_t words[KV_PAGE_WORDS];
	uint8_t *p = buf;

	while (len) {
		size_t start = from % PAGE, n = PAGE - start;

		if (n > len)
			n = len;
		kv_page(seed, from / PAGE, words);
		memcpy(p, (uint8_t *)words + start, n);
		p += n;
		from += n;
		len -= n;
	}
}

/*
 * Return the offset in @buf of the first byte that differs from the block with seed @seed, or -1.
 */
static inline ssize_t kv_wrong(uint64_t seed, uint64_t from, const void *buf,
			       size_t len)
{
	uint64_t words[KV_PAGE_WORDS];
	const uint8_t *p = buf;
	size_t at = 0;

	while (at < len) {
		const uint8_t *want = (uint8_t *)words + from % PAGE;
		size_t n = PAGE - from % PAGE;

		if (n > len - at)
			n = len - at;
		kv_page(seed, from / PAGE, words);
		for (size_t i = 0; memcmp(p + at, want, n) && i < n; i++) {
			if (p[at + i] != want[i])
				return (ssize_t)(at + i);
		}
		at += n;
		from += n;
	}
	return -1;
}

/* Return the offset of the first byte that is not @value, or -1. */
static inline ssize_t kv_other_than(uint8_t value, const void *buf, size_t len)
{
	const uint8_t *p = buf;
	uint64_t word = value * 0x0101010101010101ull, x;

	for (size_t i = 0; i < len;) {
		if (len - i >= 8) {
			memcpy(&x, p + i, 8);
			if (x == word) {
				i += 8;
				continue;
			}
		}
		if (p[i] != value)
			return (ssize_t)i;
		i++;
	}
	return -1;
}

/*
 * Check the buffer of a failed get. Returns the offset of the first byte that is neither zero nor
 * KV_UNTOUCHED, or -1.
 */
static inline ssize_t kv_leaked(const void *buf, size_t len)
{
	const uint8_t *p = buf;

	if (kv_other_than(KV_UNTOUCHED, buf, len) < 0)
		return -1;
	for (size_t i = 0; i < len; i++) {
		if (p[i] && p[i] != KV_UNTOUCHED)
			return (ssize_t)i;
	}
	return -1;
}

/*
 * KV_MEMORY="FILE,FILE...": kv_alloc() maps buffers stripe by stripe from the files in turn; the
 * name "host" stands for anonymous memory.
 */
#define KV_STRIPE	(256ul << 10)

static inline const char *kv_memory(void)
{
	return getenv("KV_MEMORY");
}

static inline void kv_stripes(uint8_t *p, size_t len, const char *kinds)
{
	size_t stripe = strchr(kinds, ',') ? KV_STRIPE : len;
	const char *kind = kinds;

	for (size_t at = 0; at < len; at += stripe) {
		size_t name = strcspn(kind, ","), n = len - at < stripe ? len - at : stripe;
		char path[256];
		int fd;

		snprintf(path, sizeof(path), "%.*s", (int)name, kind);
		kind = kind[name] ? kind + name + 1 : kinds;
		if (!strcmp(path, "host"))
			continue;
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0 || mmap(p + at, n, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
			kv_die("%s: no %zu bytes", path, n);
		close(fd);
	}
}

static inline void *kv_map(size_t len, int flags)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (p == MAP_FAILED)
		kv_die("no memory for a buffer of %zu bytes", len);
	return p;
}

/* Allocate page-aligned host memory. Never freed. */
static inline void *kv_alloc_host(size_t len)
{
	return kv_map((len + PAGE - 1) / PAGE * PAGE, MAP_POPULATE);
}

/* Allocate page-aligned host memory below 4 GiB, for kv_ioctl32(). Never freed. */
static inline void *kv_alloc_low(size_t len)
{
#ifdef MAP_32BIT
	return kv_map((len + PAGE - 1) / PAGE * PAGE, MAP_32BIT | MAP_POPULATE);
#else
	return kv_alloc_host(len);
#endif
}

/*
 * KV_REGISTER: buffers of kv_alloc() are registered with the file opened first, and pieces within
 * are passed by handle. All operations must then use that file.
 */
static struct {
	uintptr_t addr;
	size_t len;
	uint32_t handle;
} kv_buffers[64];
static unsigned int kv_nr_buffers;
static int kv_first_fd = -1;

/* Allocate a page-aligned buffer, of the memory that KV_MEMORY names. Never freed. */
static inline void *kv_alloc(size_t len)
{
	size_t whole = (len + PAGE - 1) / PAGE * PAGE;
	void *p;

	if (kv_memory()) {
		p = kv_map(whole, 0);
		kv_stripes(p, whole, kv_memory());
	} else {
		p = kv_alloc_host(len);
	}
	if (getenv("KV_REGISTER")) {
		if (kv_nr_buffers == sizeof(kv_buffers) / sizeof(kv_buffers[0]))
			kv_die("too many buffers");
		kv_buffers[kv_nr_buffers].addr = (uintptr_t)p;
		kv_buffers[kv_nr_buffers++].len = whole;
	}
	return p;
}

static inline int kv_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		kv_die("can't open %s", path);
	if (kv_first_fd < 0)
		kv_first_fd = fd;
	return fd;
}

/* Open the node that a test program is called with: PROGRAM NODE [TEST...]. */
static inline int kv_open_node(int argc, char **argv)
{
	if (argc < 2)
		kv_die("usage: %s NODE [TEST...]", argv[0]);
	return kv_open(argv[1]);
}

/*
 * KV_ENGINE=uring: everything is submitted through a ring, one per thread; each operation of a
 * batch is a command of its own. With KV_ASYNC the ring's workers issue the commands.
 */
#define KV_RING_ENTRIES	1024u

static pthread_key_t kv_ring_key;
static pthread_once_t kv_ring_once = PTHREAD_ONCE_INIT;

static void kv_ring_end(void *ring)
{
	io_uring_queue_exit(ring);
	free(ring);
}

static void kv_ring_begin(void)
{
	pthread_key_create(&kv_ring_key, kv_ring_end);
}

static inline bool kv_uses_rings(void)
{
	const char *engine = getenv("KV_ENGINE");

	return engine && !strcmp(engine, "uring");
}

static inline struct io_uring *kv_ring(void)
{
	struct io_uring *ring;
	int err;

	pthread_once(&kv_ring_once, kv_ring_begin);
	ring = pthread_getspecific(kv_ring_key);
	if (ring)
		return ring;
	ring = calloc(1, sizeof(*ring));
	err = ring ? io_uring_queue_init(KV_RING_ENTRIES, ring,
					 IORING_SETUP_SQE128 | IORING_SETUP_CQE32) :
		     -ENOMEM;
	if (err) {
		errno = -err;
		kv_die("io_uring_queue_init");
	}
	pthread_setspecific(kv_ring_key, ring);
	return ring;
}

/* Drop the parent's ring in a child process, because a ring belongs to its creator. */
static inline void kv_ring_forget(void)
{
	if (kv_uses_rings())
		pthread_setspecific(kv_ring_key, NULL);
}

/*
 * Return an SQE for command @command on @fd, with a zeroed command area. Not inline, or else the
 * compiler takes a 128-byte entry for one of 64 bytes.
 */
static __attribute__((noinline)) struct io_uring_sqe *kv_sqe(struct io_uring *ring, int fd,
					  unsigned long command, uint64_t user_data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (!sqe)
		kv_die("no room in the ring");
	memset(sqe, 0, sizeof(*sqe) << !!(ring->flags & IORING_SETUP_SQE128));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = (uint32_t)command;
	sqe->user_data = user_data;
	if (getenv("KV_ASYNC"))
		sqe->flags = IOSQE_ASYNC;
	return sqe;
}

/* Return an SQE whose command area holds the address of its argument. */
static inline struct io_uring_sqe *kv_sqe_addr(struct io_uring *ring, int fd,
					       unsigned long command, const void *arg,
					       uint64_t user_data)
{
	struct io_uring_sqe *sqe = kv_sqe(ring, fd, command, user_data);
	uint64_t addr = (uintptr_t)arg;

	memcpy(sqe->cmd, &addr, sizeof(addr));
	return sqe;
}

struct kv_cqe {
	uint64_t user_data;
	int res;
};

/* Wait for the next completion and return a copy. Exits on an error. */
static inline struct kv_cqe kv_cqe(struct io_uring *ring, uint64_t *extra)
{
	struct io_uring_cqe *cqe;
	struct kv_cqe copy;
	int err;

	do
		err = io_uring_wait_cqe(ring, &cqe);
	while (err == -EINTR);
	if (err) {
		errno = -err;
		kv_die("io_uring_wait_cqe");
	}
	copy = (struct kv_cqe){ cqe->user_data, cqe->res };
	if (extra) {
		*extra = cqe->big_cqe[0];
		if (cqe->big_cqe[1])
			kv_die("the second extra word is not 0");
	}
	io_uring_cqe_seen(ring, cqe);
	return copy;
}

/* Submit; retry on -EAGAIN, because a test may make the allocation of requests fail. */
static inline int kv_ring_send(struct io_uring *ring)
{
	int n;

	do
		n = io_uring_submit(ring);
	while (n == -EAGAIN);
	return n;
}

/* Run KVBLK_URING_SUBMIT or KVBLK_URING_CANCEL on @arg. Returns the completion's res. */
static inline int kv_ring_call(int fd, unsigned long command, void *arg)
{
	struct io_uring *ring = kv_ring();

	kv_sqe_addr(ring, fd, command, arg, 0);
	kv_ring_send(ring);
	return kv_cqe(ring, NULL).res;
}

/* Call ioctl(2), or use the ring for what it can do. Returns 0 or a negative errno. */
static inline int kv_ioctl(int fd, unsigned long command, void *arg)
{
	if (kv_uses_rings() && command == KVBLK_IOC_SUBMIT)
		return kv_ring_call(fd, KVBLK_URING_SUBMIT, arg);
	if (kv_uses_rings() && command == KVBLK_IOC_CANCEL)
		return kv_ring_call(fd, KVBLK_URING_CANCEL, arg);
	return ioctl(fd, command, arg) < 0 ? -errno : 0;
}

#ifdef __x86_64__
static sigjmp_buf kv_no_int80;

static inline void kv_int80_fault(int signal)
{
	siglongjmp(kv_no_int80, signal);
}

/*
 * Make system call @nr through int $0x80, as a 32-bit program does. Returns its result, or
 * -ENOSYS if the instruction faults.
 */
static inline int kv_int80(unsigned int nr, unsigned int a, unsigned int b, unsigned int c)
{
	struct sigaction action = { .sa_handler = kv_int80_fault }, before;
	volatile int ret = -ENOSYS;
	int answer;

	sigaction(SIGSEGV, &action, &before);
	if (!sigsetjmp(kv_no_int80, 1)) {
		asm volatile("int $0x80" : "=a" (answer) :
			     "a" (nr), "b" (a), "c" (b), "d" (c) :
			     "memory", "r8", "r9", "r10", "r11");
		ret = answer;
	}
	sigaction(SIGSEGV, &before, NULL);
	return ret;
}
#endif

/*
 * Call ioctl(2) as a 32-bit program does; all memory involved must be below 4 GiB
 * (kv_alloc_low()). Returns 0 or a negative errno, -ENOSYS if this kernel does not run 32-bit
 * programs.
 */
static inline int kv_ioctl32(int fd, unsigned long command, void *arg)
{
#ifdef __x86_64__
	/* Probe with getpid(2): without 32-bit entry, calls 20 and 54 are other system calls. */
	if (kv_int80(20, ~0u, 0, 0) == getpid())
		return kv_int80(54, (unsigned int)fd, (unsigned int)command,
				(unsigned int)(uintptr_t)arg);
#endif
	return -ENOSYS;
}

static inline struct kvblk_info kv_info(int fd)
{
	struct kvblk_info info = { .size = sizeof(info) };

	if (kv_ioctl(fd, KVBLK_IOC_INFO, &info))
		kv_die("KVBLK_IOC_INFO");
	return info;
}

static inline uint64_t kv_addr(const void *p)
{
	return (uintptr_t)p;
}

static inline struct kvblk_piece kv_piece(const void *p, size_t len)
{
	return (struct kvblk_piece){ .addr = kv_addr(p), .length = (uint32_t)len };
}

/* Turn an address within a registered buffer into handle and offset, or back if @back. */
static inline void kv_use_region(struct kvblk_piece *piece, bool back)
{
	for (unsigned int i = 0; i < kv_nr_buffers; i++) {
		struct kvblk_reg_buf_arg arg = {
			.size = sizeof(arg),
			.addr = kv_buffers[i].addr,
			.length = kv_buffers[i].len,
		};
		uint64_t at = piece->addr - arg.addr;

		if (back && piece->type == KVBLK_PIECE_REGISTERED &&
		    piece->handle == kv_buffers[i].handle) {
			*piece = (struct kvblk_piece){
				.addr = arg.addr + piece->addr, .length = piece->length,
			};
			return;
		}
		if (back || piece->type != KVBLK_PIECE_USER || at >= arg.length ||
		    piece->length > arg.length - at)
			continue;
		if (!kv_buffers[i].handle) {
			if (ioctl(kv_first_fd, KVBLK_IOC_REG_BUF, &arg))
				kv_die("can't register a buffer");
			kv_buffers[i].handle = arg.handle;
		}
		*piece = (struct kvblk_piece){
			.type = KVBLK_PIECE_REGISTERED, .handle = kv_buffers[i].handle,
			.addr = at, .length = piece->length,
		};
		return;
	}
}

static inline void kv_use_regions(const struct kvblk_op *ops, uint32_t nr, bool back)
{
	for (uint32_t i = 0; kv_nr_buffers && i < nr; i++) {
		struct kvblk_piece *pieces = (void *)(uintptr_t)ops[i].pieces;

		for (unsigned int j = 0; j < ops[i].nr_pieces; j++)
			kv_use_region(&pieces[j], back);
	}
}

/* Return an operation. @key and @pieces must outlive it. */
static inline struct kvblk_op kv_op(uint8_t opcode, const struct kv_key *key,
				    const struct kvblk_piece *pieces,
				    uint16_t nr_pieces)
{
	return (struct kvblk_op){
		.opcode = opcode,
		.key_len = key->len,
		.nr_pieces = nr_pieces,
		.key = kv_addr(key->bytes),
		.pieces = kv_addr(pieces),
	};
}

/* Give @op tags by means of @ext, which must outlive it. */
static inline void kv_tags(struct kvblk_op *op, struct kvblk_op_ext *ext, uint64_t layout,
			   uint64_t caller)
{
	*ext = (struct kvblk_op_ext){
		.size = sizeof(*ext), .layout_tag = layout, .caller_tag = caller,
	};
	op->ext = kv_addr(ext);
}

/* Exit unless the extra word of a completion agrees with its result. */
static inline void kv_check_extra(uint64_t extra, const struct kvblk_result *res)
{
	if (extra != (res->flags | (uint64_t)res->value_len << 32)) {
		printf("# extra word %#llx: flags %#x, res %d, length %u\n",
		       (unsigned long long)extra, res->flags, res->res, res->value_len);
		exit(1);
	}
}

/*
 * Queue @op in a ring with 128-byte entries. @result (NULL: none) must outlive the command. Returns
 * the entry.
 */
static inline struct io_uring_sqe *kv_sqe_op(struct io_uring *ring, int fd,
					     const struct kvblk_op *op,
					     struct kvblk_result *result, uint64_t user_data)
{
	struct io_uring_sqe *sqe = kv_sqe(ring, fd, KVBLK_URING_OP, user_data);
	uint8_t *area = (uint8_t *)sqe + offsetof(struct io_uring_sqe, cmd);
	struct kvblk_op with = *op;

	if (result) {
		with.result = kv_addr(result);
		with.result_size = sizeof(*result);
	}
	/* continues into the second 64 bytes */
	memcpy(area, &with, sizeof(with));
	return sqe;
}

static inline int kv_ring_submit(int fd, const struct kvblk_op *ops,
				 struct kvblk_result *results, uint32_t nr)
{
	struct io_uring *ring = kv_ring();
	uint32_t i;

	for (i = 0; i < nr; i++)
		kv_sqe_op(ring, fd, &ops[i], &results[i], i);
	for (i = 0; i < nr;) {
		int n = kv_ring_send(ring);

		if (n < 0) {
			errno = -n;
			kv_die("io_uring_submit");
		}
		i += (uint32_t)n;
	}
	for (i = 0; i < nr; i++) {
		uint64_t extra;
		struct kv_cqe cqe = kv_cqe(ring, &extra);
		struct kvblk_result *res = &results[cqe.user_data];

		/*
		 * A command rejected before an operation exists fills no result; an earlier try of
		 * it may have set the result to zero.
		 */
		if (cqe.res < 0 && cqe.res != -1 &&
		    (res->res == -1 || (!res->res && !res->cookie)))
			*res = (struct kvblk_result){
				.cookie = ops[cqe.user_data].cookie,
				.res = cqe.res,
			};
		else
			kv_check_extra(extra, res);
		if (res->res != cqe.res)
			kv_die("a completion says %d, the result %d", cqe.res,
			       res->res);
	}
	return 0;
}

static inline int kv_submit(int fd, const struct kvblk_op *ops,
			    struct kvblk_result *results, uint32_t nr,
			    uint32_t flags)
{
	struct kvblk_submit_arg submit = {
		.size = sizeof(submit),
		.flags = flags,
		.nr_ops = nr,
		.op_size = sizeof(*ops),
		.result_size = sizeof(*results),
		.ops = kv_addr(ops),
		.results = kv_addr(results),
	};
	int err;

	memset(results, 0xff, nr * sizeof(*results));
	kv_use_regions(ops, nr, false);
	if (kv_uses_rings() && !flags && nr && nr <= KV_RING_ENTRIES)
		err = kv_ring_submit(fd, ops, results, nr);
	else
		err = kv_ioctl(fd, KVBLK_IOC_SUBMIT, &submit);
	kv_use_regions(ops, nr, true);
	return err;
}

/* Submit one operation and return its result. Exits if the ioctl itself fails. */
static inline struct kvblk_result kv_one(int fd, const struct kvblk_op *op)
{
	struct kvblk_result result;
	int err = kv_submit(fd, op, &result, 1, 0);

	if (err) {
		errno = -err;
		kv_die("KVBLK_IOC_SUBMIT");
	}
	return result;
}

static inline struct kvblk_result kv_put_tagged(int fd, uint64_t nr,
						const void *buf, size_t len,
						uint64_t tag)
{
	struct kv_key key = kv_key(nr);
	struct kvblk_piece piece = kv_piece(buf, len);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
	struct kvblk_op_ext ext;

	if (tag)
		kv_tags(&op, &ext, 0, tag);
	return kv_one(fd, &op);
}

static inline struct kvblk_result kv_put(int fd, uint64_t nr, const void *buf,
					 size_t len)
{
	return kv_put_tagged(fd, nr, buf, len, 0);
}

static inline struct kvblk_result kv_get(int fd, uint64_t nr, void *buf,
					 size_t room)
{
	struct kv_key key = kv_key(nr);
	struct kvblk_piece piece = kv_piece(buf, room);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &piece, 1);

	return kv_one(fd, &op);
}

static inline struct kvblk_result kv_delete(int fd, uint64_t nr)
{
	struct kv_key key = kv_key(nr);
	struct kvblk_op op = kv_op(KVBLK_OP_DELETE, &key, NULL, 0);

	return kv_one(fd, &op);
}

/* Look up key number @nr. Returns the length of its block, 0 if not present. */
static inline uint32_t kv_size(int fd, uint64_t nr)
{
	struct kv_key key = kv_key(nr);
	uint32_t size = 0;
	struct kvblk_lookup lookup = {
		.size = sizeof(lookup),
		.nr_keys = 1,
		.key_stride = key.len,
		.keys = kv_addr(key.bytes),
		.sizes = kv_addr(&size),
	};

	if (kv_ioctl(fd, KVBLK_IOC_LOOKUP, &lookup))
		kv_die("KVBLK_IOC_LOOKUP");
	return size;
}

#endif
