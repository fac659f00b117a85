// SPDX-License-Identifier: MIT
/*
 * libkvblk-fake: a pool without the module, for tests. The library answers the ioctls on
 * /dev/kvblk/fake/default from memory, and runs the rings of libkvblk's queues (ring.c). It
 * replaces open(2), close(2) and ioctl(2): load it with LD_PRELOAD, or link the library before
 * the C library.
 *
 * KVBLK_FAKE_STORE names a file that several processes share: each sees the puts and deletes of all
 * processes at once, killed ones included. Without a file blocks end with the process.
 *
 * Environment:
 * KVBLK_FAKE_ADMIT=N		admit the first N puts of each chain, decline the others
 * KVBLK_FAKE_ARRIVALS=FD	a batch writes a byte to FD before waiting at the gate
 * KVBLK_FAKE_BUSY=1		another caller's put of each key is in flight
 * KVBLK_FAKE_CORRUPT=N		flip a bit of the Nth get
 * KVBLK_FAKE_DECLINE=N		decline every Nth batch of puts
 * KVBLK_FAKE_DELAY_MS=N	a batch takes N ms, unless all its operations are
 *				canceled or past their deadlines before
 * KVBLK_FAKE_DRAM=BYTES	memory for prefetched blocks; default none
 * KVBLK_FAKE_FAIL=N		every Nth get and put fails
 * KVBLK_FAKE_GATE=FD		a batch waits for a byte from FD
 * KVBLK_FAKE_HINTS=FILE	append a line for each hint
 * KVBLK_FAKE_INTEGRITY=N	the pool's policy for checksums; default 0
 * KVBLK_FAKE_LEASE=1		a get misses unless a lease is held; the last close
 *				reports leases not released
 * KVBLK_FAKE_LEASE_KEYS=N	a lookup leases at most N keys
 * KVBLK_FAKE_LOG=FILE		append a line for each put
 * KVBLK_FAKE_LOOKUPS=FILE	append a line for each lookup
 * KVBLK_FAKE_LOSE=N		every Nth get of a present block misses
 * KVBLK_FAKE_MEMLOCK=1		no memory can be registered
 * KVBLK_FAKE_NO_RING=1		the module has no io_uring commands
 * KVBLK_FAKE_RATE=N		lookups predict N bytes a second; default: unknown
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/kvblk.h>

#include "fake.h"

#define NODE		"/dev/kvblk/fake/default"
#define MAX_BLOCKS	65536
#define MAX_REGIONS	64
#define MAX_FDS		1024
#define MAX_LEASES	65536
#define VALUE_MAX	(8u << 20)
#define CHUNK_SIZE	65536u
#define DMA_ALIGN	4096u
#define DELETED		UINT32_MAX

struct block {
	struct block *next;
	uint32_t key_len;
	uint32_t len;
	uint64_t layout_tag;
	uint64_t caller_tag;
	bool in_memory;		/* in this process's KVBLK_FAKE_DRAM */
	uint32_t nr_sums;	/* checksums of the producer, or 0 */
	unsigned char bytes[];	/* key, data, checksums */
};

/* protects the variables below */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *buckets[MAX_BLOCKS];
/* by descriptor: access mode of a node, plus 1 */
static int modes[MAX_FDS];
static int nr_nodes;
static uint64_t nr_gets, nr_puts, nr_put_batches, nr_leases, nr_held, dram_used;
static uint64_t nr_kept;	/* leases that ended with their handles */
/* held leases by id modulo MAX_LEASES, with the handles that took them; id 0: unused */
static struct { uint64_t id; int fd; } leases[MAX_LEASES];
static unsigned int nr_running;	/* batches */
/* batches delayed by KVBLK_FAKE_DELAY_MS; a negative result is final */
static struct batch {
	struct batch *next;
	int fd;
	const struct kvblk_op *ops;
	struct kvblk_result *results;
	uint32_t nr;
} *waiting;
static pthread_cond_t changed;	/* signaled when a batch ends or a result is final */
/* the file of KVBLK_FAKE_STORE, and the offset up to which this process has read */
static int store = -1;
static off_t store_read;
/* registered memory, indexed by number, with the handles that own it; length 0: unused */
static struct { char *addr; uint64_t length; int fd; } regions[MAX_REGIONS];

uint64_t fake_setting(const char *name)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : 0;
}

/* Returns true for every Nth @number, where the setting @name is N. */
static bool nth(uint64_t number, const char *name)
{
	uint64_t every = fake_setting(name);

	return every && number % every == 0;
}

static struct block **place_of(const void *key, size_t len)
{
	const unsigned char *p = key;
	uint32_t hash = 2166136261u;
	struct block **place;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ p[i]) * 16777619u;
	place = &buckets[hash % MAX_BLOCKS];
	while (*place && ((*place)->key_len != len ||
			  memcmp((*place)->bytes, key, len) != 0))
		place = &(*place)->next;
	return place;
}

static void forget(struct block **place)
{
	struct block *block = *place;

	if (block) {
		*place = block->next;
		dram_used -= block->in_memory ? block->len : 0;
	}
	free(block);
}

/* Append a block to the store, or a deletion if @len is DELETED. */
static void record(const struct block *block, uint32_t len)
{
	struct block head = *block;
	struct iovec parts[] = {
		{ &head, sizeof(head) },
		{ (void *)block->bytes, block->key_len + (len == DELETED ? 0 : len + 4 * block->nr_sums) },
	};

	head.len = len;
	head.in_memory = false;
	if (store >= 0 && writev(store, parts, 2) != (ssize_t)(parts[0].iov_len + parts[1].iov_len))
		abort();
}

/* Apply the entries appended to the store since the last call. */
static void replay(void)
{
	struct block head;

	while (store >= 0 && pread(store, &head, sizeof(head), store_read) == sizeof(head)) {
		size_t len = head.key_len + (head.len == DELETED ? 0 : head.len + 4 * head.nr_sums);
		struct block *block = malloc(sizeof(*block) + len);
		struct block **place;

		*block = head;
		if (pread(store, block->bytes, len, store_read + (off_t)sizeof(head)) != (ssize_t)len)
			abort();
		store_read += (off_t)(sizeof(head) + len);
		place = place_of(block->bytes, block->key_len);
		if (head.len == DELETED) {
			forget(place);
			free(block);
		} else if (*place) {
			free(block);
		} else {
			block->next = NULL;
			*place = block;
		}
	}
}

static void enter(void)
{
	pthread_mutex_lock(&lock);
	if (store >= 0)
		flock(store, LOCK_EX);
	replay();
}

static void leave(void)
{
	if (store >= 0)
		flock(store, LOCK_UN);
	pthread_mutex_unlock(&lock);
}

static uint64_t room_of(const struct kvblk_op *op)
{
	const struct kvblk_piece *piece = (void *)(uintptr_t)op->pieces;
	uint64_t room = 0;

	for (int i = 0; i < op->nr_pieces; i++)
		room += piece[i].length;
	return room;
}

/* Returns whether the handle @fd has registered memory number @i. */
static bool is_region(uint32_t i, int fd)
{
	return i < MAX_REGIONS && regions[i].length && regions[i].fd == fd;
}

/* Returns the errno with which the module refuses pieces, else 0. */
static int check_pieces(const struct kvblk_op *op, int fd)
{
	const struct kvblk_piece *piece = (void *)(uintptr_t)op->pieces;

	for (int i = 0; i < op->nr_pieces; i++, piece++) {
		if (piece->type > KVBLK_PIECE_REGISTERED || piece->flags)
			return -EOPNOTSUPP;
		if ((piece->type == KVBLK_PIECE_USER) == !!piece->handle || !piece->length ||
		    piece->reserved)
			return -EINVAL;
		if (piece->type == KVBLK_PIECE_USER)
			continue;
		if (!is_region(piece->handle, fd))
			return -ENXIO;
		if (piece->addr > regions[piece->handle].length ||
		    piece->length > regions[piece->handle].length - piece->addr)
			return -EFAULT;
	}
	return room_of(op) > (op->opcode == KVBLK_OP_PUT ? KVBLK_VALUE_MAX : UINT32_MAX) ?
	       -EINVAL : 0;
}

static const struct kvblk_op_ext *ext_of(const struct kvblk_op *op)
{
	static const struct kvblk_op_ext none;

	return op->ext ? (const struct kvblk_op_ext *)(uintptr_t)op->ext : &none;
}

static uint64_t chunks_in(uint64_t len)
{
	return (len + CHUNK_SIZE - 1) / CHUNK_SIZE;
}

/* Returns the errno with which the module refuses an extension, else 0. */
static int check_ext(const struct kvblk_op *op)
{
	const struct kvblk_op_ext *ext = ext_of(op);
	bool put = op->opcode == KVBLK_OP_PUT;

	if (!op->ext)
		return op->flags & (KVBLK_OPF_LAYOUT | KVBLK_OPF_CALLER_CHECKS) ? -EINVAL : 0;
	if (ext->size < KVBLK_OP_EXT_SIZE_VER0)
		return -EINVAL;
	if (ext->flags || ext->hints & ~(uint32_t)(KVBLK_HINT_CONTINUES | KVBLK_HINT_MISSED))
		return -EOPNOTSUPP;
	if (!put && (ext->parent || ext->hints || ext->caller_tag ||
		     (ext->layout_tag && !(op->flags & KVBLK_OPF_LAYOUT))))
		return -EINVAL;
	if (!ext->parent != !ext->parent_len || ext->parent_len > KVBLK_KEY_MAX ||
	    !ext->checksums != !ext->nr_checksums || ext->nr_checksums > KVBLK_CHECKSUMS_MAX ||
	    (put && ext->checksums && ext->nr_checksums != chunks_in(room_of(op))) ||
	    (op->flags & KVBLK_OPF_CALLER_CHECKS && !ext->checksums) || ext->reserved)
		return -EINVAL;
	return 0;
}

#define HINTS	(KVBLK_OPF_PRIORITY | KVBLK_OPF_RETAIN | KVBLK_OPF_DEMOTE | KVBLK_OPF_RELEASE)

/* Returns the errno with which the module refuses an operation, else 0. */
static int check(const struct kvblk_op *op, int fd)
{
	static const uint32_t flags[] = {
		[KVBLK_OP_PUT] = KVBLK_OPF_DURABLE,
		[KVBLK_OP_GET] = KVBLK_OPF_PARTIAL | KVBLK_OPF_LAYOUT | KVBLK_OPF_HARD_DEADLINE |
				 KVBLK_OPF_CALLER_CHECKS,
		[KVBLK_OP_DELETE] = 0,
		[KVBLK_OP_PREFETCH] = KVBLK_OPF_LAYOUT,
		[KVBLK_OP_HINT] = HINTS,
	};
	bool hints = op->opcode == KVBLK_OP_HINT;
	bool put = op->opcode == KVBLK_OP_PUT, get = op->opcode == KVBLK_OP_GET;
	bool reads = get || op->opcode == KVBLK_OP_PREFETCH;
	int err, mode = modes[fd] - 1;

	if (op->opcode < KVBLK_OP_PUT || op->opcode > KVBLK_OP_HINT ||
	    op->flags & ~(uint32_t)(KVBLK_OPF_PARTIAL | KVBLK_OPF_LAYOUT | KVBLK_OPF_HARD_DEADLINE |
				    KVBLK_OPF_DURABLE | HINTS | KVBLK_OPF_CALLER_CHECKS))
		return -EOPNOTSUPP;
	if (mode == (reads ? O_WRONLY : O_RDONLY))
		return -EBADF;
	if (!op->key_len || op->key_len > KVBLK_KEY_MAX || op->flags & ~flags[op->opcode] ||
	    (op->priority && !put && op->opcode != KVBLK_OP_PREFETCH &&
	     !(op->flags & KVBLK_OPF_PRIORITY)) ||
	    (op->ttl_s && !put && !(op->flags & KVBLK_OPF_RETAIN)) ||
	    (hints && (!op->flags || op->ttl_s > KVBLK_RETAIN_MAX ||
		      (op->flags & KVBLK_OPF_RELEASE && op->flags != KVBLK_OPF_RELEASE))) ||
	    op->priority > KVBLK_PRIORITY_MAX || op->ttl_s > KVBLK_TTL_MAX || op->reserved ||
	    op->reserved2 || op->result || op->result_size ||
	    (!(op->flags & KVBLK_OPF_PARTIAL) && (op->offset || op->length)) ||
	    (op->flags & KVBLK_OPF_HARD_DEADLINE && !op->deadline_ns))
		return -EINVAL;
	if (put || get ? !op->nr_pieces || op->nr_pieces > KVBLK_PIECES_MAX :
			 op->nr_pieces || op->pieces)
		return -EINVAL;
	err = check_ext(op);
	return err ? err : check_pieces(op, fd);
}

/* Copy between the pieces and @data. */
static void move(const struct kvblk_op *op, unsigned char *data, uint64_t len,
		 bool to_pieces)
{
	const struct kvblk_piece *piece = (void *)(uintptr_t)op->pieces;

	for (; len; piece++) {
		uint64_t n = piece->length < len ? piece->length : len;
		char *memory = (void *)(uintptr_t)piece->addr;

		if (piece->type == KVBLK_PIECE_REGISTERED)
			memory = regions[piece->handle].addr + piece->addr;
		memcpy(to_pieces ? memory : (char *)data, to_pieces ? (char *)data : memory, n);
		data += n;
		len -= n;
	}
}

static void log_put(const struct kvblk_op *op)
{
	const char *path = getenv("KVBLK_FAKE_LOG");
	const struct kvblk_op_ext *ext = ext_of(op);
	FILE *file = path ? fopen(path, "a") : NULL;

	if (!file)
		return;
	fprintf(file, "%.*s parent=%.*s priority=%u ttl=%u\n",
		op->key_len, (char *)(uintptr_t)op->key,
		(int)ext->parent_len, ext->parent ? (char *)(uintptr_t)ext->parent : "",
		op->priority, op->ttl_s);
	fclose(file);
}

static void put(const struct kvblk_op *op, struct kvblk_result *result)
{
	struct block **place = place_of((void *)(uintptr_t)op->key, op->key_len);
	uint64_t len = room_of(op);
	struct block *block = *place;

	log_put(op);
	nr_puts++;
	if (nth(nr_puts, "KVBLK_FAKE_FAIL")) {
		result->res = -EIO;
		return;
	}
	if (len > VALUE_MAX) {
		result->res = -EFBIG;
		return;
	}
	if (block) {
		result->res = -EEXIST;
		result->value_len = block->len;
		if (block->len != len)
			result->flags = KVBLK_RES_LEN_DIFFERS;
		return;
	}
	if (fake_setting("KVBLK_FAKE_BUSY")) {
		result->res = -EALREADY;
		return;
	}
	block = malloc(sizeof(*block) + op->key_len + len + 4 * ext_of(op)->nr_checksums);
	*block = (struct block){
		.key_len = op->key_len,
		.len = (uint32_t)len,
		.layout_tag = ext_of(op)->layout_tag,
		.caller_tag = ext_of(op)->caller_tag,
		.nr_sums = ext_of(op)->nr_checksums,
	};
	memcpy(block->bytes, (void *)(uintptr_t)op->key, op->key_len);
	move(op, block->bytes + op->key_len, len, false);
	if (block->nr_sums)
		memcpy(block->bytes + op->key_len + len,
		       (void *)(uintptr_t)ext_of(op)->checksums, 4 * block->nr_sums);
	*place = block;
	record(block, block->len);
	result->res = (int)len;
	result->value_len = (uint32_t)len;
	result->flags = KVBLK_RES_DIRECT;
}

static void get(const struct kvblk_op *op, struct kvblk_result *result)
{
	struct block *block = *place_of((void *)(uintptr_t)op->key, op->key_len);
	uint64_t len, from = 0;

	nr_gets++;
	if (nth(nr_gets, "KVBLK_FAKE_FAIL")) {
		result->res = -EIO;
		return;
	}
	if (!block || nth(nr_gets, "KVBLK_FAKE_LOSE") ||
	    ((op->flags & KVBLK_OPF_LAYOUT) && ext_of(op)->layout_tag != block->layout_tag) ||
	    (fake_setting("KVBLK_FAKE_LEASE") && !nr_held)) {
		result->res = -ENOENT;
		return;
	}
	result->value_len = block->len;
	result->layout_tag = block->layout_tag;
	result->caller_tag = block->caller_tag;
	len = block->len;
	if (op->flags & KVBLK_OPF_PARTIAL) {
		from = op->offset;
		if (from >= len) {
			result->res = -ERANGE;
			return;
		}
		len -= from;
		if (op->length && len > op->length)
			len = op->length;
		if (len > room_of(op))
			len = room_of(op);
	}
	if (len > room_of(op)) {
		result->res = -EMSGSIZE;
		return;
	}
	if (ext_of(op)->checksums &&
	    ext_of(op)->nr_checksums < chunks_in(from + len) - from / CHUNK_SIZE) {
		result->res = -EMSGSIZE;
		return;
	}
	if (nr_gets == fake_setting("KVBLK_FAKE_CORRUPT"))
		block->bytes[block->key_len + len / 2] ^= 4;
	move(op, block->bytes + block->key_len + from, len, true);
	result->res = (int)len;
	result->flags = block->in_memory ? KVBLK_RES_BOUNCED | KVBLK_RES_MEMORY : KVBLK_RES_DIRECT;
	if (!block->nr_sums || !ext_of(op)->checksums)
		return;
	memcpy((void *)(uintptr_t)ext_of(op)->checksums,
	       block->bytes + block->key_len + block->len + 4 * (from / CHUNK_SIZE),
	       4 * (chunks_in(from + len) - from / CHUNK_SIZE));
	result->flags |= KVBLK_RES_CHECKSUMS;
}

static void prefetch(const struct kvblk_op *op, struct kvblk_result *result)
{
	struct block *block = *place_of((void *)(uintptr_t)op->key, op->key_len);

	if (!block)
		result->res = -ENOENT;
	else if (!fake_setting("KVBLK_FAKE_DRAM"))
		result->res = -EOPNOTSUPP;
	else if (block->in_memory)
		result->res = 0;
	else if (dram_used + block->len > fake_setting("KVBLK_FAKE_DRAM"))
		result->res = -ENOSPC;
	else
		result->res = (int)block->len;
	if (result->res <= 0)
		return;
	block->in_memory = true;
	dram_used += block->len;
}

static void log_hint(const struct kvblk_op *op)
{
	const unsigned char *key = (void *)(uintptr_t)op->key;
	const char *path = getenv("KVBLK_FAKE_HINTS");
	FILE *file = path ? fopen(path, "a") : NULL;

	if (!file)
		return;
	for (unsigned int i = 0; i < op->key_len; i++)
		fprintf(file, "%02x", key[i]);
	if (op->flags & KVBLK_OPF_PRIORITY)
		fprintf(file, " priority=%u", op->priority);
	if (op->flags & KVBLK_OPF_RETAIN)
		fprintf(file, " retain=%u", op->ttl_s);
	fprintf(file, "%s%s\n", op->flags & KVBLK_OPF_DEMOTE ? " demote" : "",
		op->flags & KVBLK_OPF_RELEASE ? " release" : "");
	fclose(file);
}

static void hint(const struct kvblk_op *op, struct kvblk_result *result)
{
	struct block *block = *place_of((void *)(uintptr_t)op->key, op->key_len);

	result->res = block ? 0 : -ENOENT;
	if (!block)
		return;
	result->value_len = block->len;
	log_hint(op);
	if (op->flags & KVBLK_OPF_DEMOTE && block->in_memory) {
		block->in_memory = false;
		dram_used -= block->len;
	}
}

static void delete(const struct kvblk_op *op, struct kvblk_result *result)
{
	struct block **place = place_of((void *)(uintptr_t)op->key, op->key_len);
	struct block *block = *place;

	if (fake_setting("KVBLK_FAKE_BUSY")) {
		result->res = -EBUSY;
		return;
	}
	result->res = block ? 0 : -ENOENT;
	if (block)
		record(block, DELETED);
	forget(place);
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* At run time, because no static initializer selects CLOCK_MONOTONIC. */
__attribute__((constructor)) static void init_changed(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&changed, &attr);
	pthread_condattr_destroy(&attr);
}

/*
 * Complete operations past their deadline with -ETIME. Returns the next deadline of the batch,
 * or 0 if no operation is left.
 */
static uint64_t next_deadline(const struct batch *b, uint64_t end)
{
	uint64_t next = 0, now = now_ns();

	for (uint32_t i = 0; i < b->nr; i++) {
		uint64_t until = b->ops[i].deadline_ns ? b->ops[i].deadline_ns : end;

		if (b->results[i].res < 0)
			continue;
		if (b->ops[i].deadline_ns && b->ops[i].deadline_ns <= now)
			b->results[i].res = -ETIME;
		else if (!next || until < next)
			next = until;
	}
	return next > end ? end : next;
}

static void wait_changed(uint64_t until_ns)
{
	struct timespec until = { (time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000) };

	if (until_ns)
		pthread_cond_timedwait(&changed, &lock, &until);
	else
		pthread_cond_wait(&changed, &lock);
}

static void delay(struct batch *batch)
{
	uint64_t end = now_ns() + fake_setting("KVBLK_FAKE_DELAY_MS") * 1000000, next;
	struct batch **place;

	batch->next = waiting;
	waiting = batch;
	while ((next = next_deadline(batch, end)) && now_ns() < end)
		wait_changed(next);
	for (place = &waiting; *place != batch; place = &(*place)->next)
		;
	*place = batch->next;
}

static int cancel(struct kvblk_cancel_arg *c, int fd)
{
	if (c->size < KVBLK_CANCEL_SIZE_VER0 || !c->cookie || c->reserved)
		return -EINVAL;
	if (c->flags)
		return -EOPNOTSUPP;
	c->nr_found = 0;
	for (const struct batch *b = waiting; b; b = b->next) {
		for (uint32_t i = 0; i < b->nr; i++) {
			if (b->fd != fd || b->ops[i].cookie != c->cookie || b->results[i].res < 0)
				continue;
			b->results[i].res = -ECANCELED;
			c->nr_found++;
		}
	}
	pthread_cond_broadcast(&changed);
	return c->nr_found ? 0 : -ENOENT;
}

/* Run an operation; a put takes one of @puts_left, or is declined if there is none. */
static void run(const struct kvblk_op *op, struct kvblk_result *result, uint64_t *puts_left)
{
	switch (op->opcode) {
	case KVBLK_OP_PREFETCH:
		prefetch(op, result);
		break;
	case KVBLK_OP_GET:
		get(op, result);
		break;
	case KVBLK_OP_DELETE:
		delete(op, result);
		break;
	case KVBLK_OP_HINT:
		hint(op, result);
		break;
	default:
		if (*puts_left) {
			(*puts_left)--;
			put(op, result);
		} else {
			result->res = -ENOBUFS;
		}
	}
}

/* Returns the number of puts that the pool admits of a batch. */
static uint64_t admitted(const struct kvblk_submit_arg *s)
{
	const struct kvblk_op *first = (void *)(uintptr_t)s->ops;
	uint64_t most = fake_setting("KVBLK_FAKE_ADMIT");

	if (first->opcode == KVBLK_OP_PUT && nth(++nr_put_batches, "KVBLK_FAKE_DECLINE"))
		return 0;
	return s->flags & KVBLK_SUBMIT_CHAIN && most ? most : s->nr_ops;
}

static int submit(const struct kvblk_submit_arg *s, int fd)
{
	struct batch b = { .fd = fd, .ops = (void *)(uintptr_t)s->ops, .nr = s->nr_ops };
	uint64_t puts_left;

	/* atomic: a queue sets the size of a batch that has not begun to 0 */
	if (__atomic_load_n(&s->size, __ATOMIC_RELAXED) < KVBLK_SUBMIT_SIZE_VER0 ||
	    !s->nr_ops || s->nr_ops > KVBLK_OPS_MAX ||
	    s->op_size != sizeof(*b.ops) || s->result_size < sizeof(*b.results) ||
	    s->result_size > KVBLK_STRUCT_MAX || s->reserved)
		return -EINVAL;
	if (s->flags & ~(uint32_t)(KVBLK_SUBMIT_CHAIN | KVBLK_SUBMIT_INTERRUPTIBLE))
		return -EOPNOTSUPP;
	b.results = calloc(b.nr, sizeof(*b.results));
	if (!b.results)
		return -ENOMEM;
	puts_left = admitted(s);
	for (uint32_t i = 0; i < b.nr; i++)
		b.results[i] = (struct kvblk_result){
			.cookie = b.ops[i].cookie,
			.res = check(&b.ops[i], fd),
		};
	nr_running++;
	if (fake_setting("KVBLK_FAKE_DELAY_MS"))
		delay(&b);
	for (uint32_t i = 0; i < b.nr; i++) {
		char *to = (char *)(uintptr_t)s->results + (size_t)i * s->result_size;

		if (b.results[i].res >= 0)
			run(&b.ops[i], &b.results[i], &puts_left);
		memset(to, 0, s->result_size);
		memcpy(to, &b.results[i], sizeof(b.results[i]));
	}
	nr_running--;
	pthread_cond_broadcast(&changed);
	free(b.results);
	return 0;
}

static int drain(const struct kvblk_drain_arg *d)
{
	if (d->size < KVBLK_DRAIN_SIZE_VER0 || d->flags)
		return -EINVAL;
	while (nr_running) {
		if (d->deadline_ns && now_ns() >= d->deadline_ns)
			return -ETIME;
		wait_changed(d->deadline_ns);
	}
	return 0;
}

static void lease(struct kvblk_lookup *l, int fd)
{
	uint64_t most = fake_setting("KVBLK_FAKE_LEASE_KEYS");

	l->nr_leased = most && most < l->nr_present ? (uint32_t)most : l->nr_present;
	l->lease = ++nr_leases;
	l->lease_end_ns = now_ns() + l->lease_ms * 1000000ull;
	leases[l->lease % MAX_LEASES].id = l->lease;
	leases[l->lease % MAX_LEASES].fd = fd;
	nr_held++;
}

static int release(const struct kvblk_lease_release_arg *r, int fd)
{
	uint32_t i = r->lease % MAX_LEASES;

	if (r->size < KVBLK_LEASE_RELEASE_SIZE_VER0 || r->flags || !r->lease)
		return -EINVAL;
	if (leases[i].id != r->lease || leases[i].fd != fd)
		return -ENOENT;
	leases[i].id = 0;
	nr_held--;
	return 0;
}

static void log_lookup(const struct kvblk_lookup *l)
{
	const char *path = getenv("KVBLK_FAKE_LOOKUPS");
	FILE *file = path ? fopen(path, "a") : NULL;

	if (!file)
		return;
	fprintf(file, "keys=%u lease_ms=%u%s%s\n", l->nr_keys, l->lease_ms,
		l->flags & KVBLK_LOOKUP_PREFIX ? " prefix" : "",
		l->flags & KVBLK_LOOKUP_QUIET ? " quiet" : "");
	fclose(file);
}

static int lookup(struct kvblk_lookup *l, int fd)
{
	const char *key = (void *)(uintptr_t)l->keys;
	const uint16_t *lens = (void *)(uintptr_t)l->key_lens;
	uint32_t *sizes = (void *)(uintptr_t)l->sizes;
	uint64_t *tags = (void *)(uintptr_t)l->caller_tags;
	unsigned char *bitmap = (void *)(uintptr_t)l->bitmap, *tiers = (void *)(uintptr_t)l->tiers;
	uint32_t *times = l->size > KVBLK_LOOKUP_SIZE_VER0 ? (void *)(uintptr_t)l->times : NULL;
	uint64_t rate = fake_setting("KVBLK_FAKE_RATE"), bytes = 0;
	bool hole = false;

	if (modes[fd] - 1 == O_WRONLY)
		return -EBADF;
	if (l->flags & ~(uint32_t)(KVBLK_LOOKUP_LEASE | KVBLK_LOOKUP_PREFIX | KVBLK_LOOKUP_QUIET))
		return -EOPNOTSUPP;
	if (l->size < KVBLK_LOOKUP_SIZE_VER0 || !l->nr_keys || l->nr_keys > KVBLK_LOOKUP_MAX ||
	    !l->key_stride == !lens || l->key_stride > KVBLK_KEY_MAX ||
	    l->lease_ms > KVBLK_LEASE_MS_MAX ||
	    !!l->lease_ms != !!(l->flags & KVBLK_LOOKUP_LEASE))
		return -EINVAL;
	log_lookup(l);
	if (l->size > sizeof(*l))
		l->size = sizeof(*l);
	l->nr_leading = 0;
	l->nr_present = 0;
	l->nr_leased = 0;
	l->lease = 0;
	l->lease_end_ns = 0;
	if (bitmap)
		memset(bitmap, 0, (l->nr_keys + 7) / 8);
	for (uint32_t i = 0; i < l->nr_keys; i++) {
		size_t len = lens ? lens[i] : l->key_stride;
		const struct block *block = *place_of(key, len);

		key += len;
		/* behind the first hole of a prefix nothing is reported */
		if (hole && l->flags & KVBLK_LOOKUP_PREFIX)
			block = NULL;
		if (sizes)
			sizes[i] = block ? block->len : 0;
		if (tags)
			tags[i] = block ? block->caller_tag : 0;
		if (tiers)
			tiers[i] = !block ? KVBLK_TIER_NONE :
				   block->in_memory ? KVBLK_TIER_MEMORY : KVBLK_TIER_MEMBER;
		bytes += block && !block->in_memory ? block->len : 0;
		if (times)
			times[i] = block && rate ? (uint32_t)(bytes * 1000000 / rate) : 0;
		if (bitmap && block)
			bitmap[i / 8] |= 1 << i % 8;
		hole = hole || !block;
		l->nr_present += !!block;
		l->nr_leading += !hole;
	}
	if (l->lease_ms && l->nr_present)
		lease(l, fd);
	return 0;
}

static int reg_buf(struct kvblk_reg_buf_arg *reg, int fd)
{
	if (reg->size < KVBLK_REG_BUF_SIZE_VER0 || reg->reserved || reg->reserved2 || reg->handle ||
	    !reg->length)
		return -EINVAL;
	if (reg->flags || reg->type != KVBLK_BUF_USER)
		return -EOPNOTSUPP;
	if (fake_setting("KVBLK_FAKE_MEMLOCK"))
		return -ENOMEM;
	for (int i = 1; i < MAX_REGIONS; i++) {
		if (!regions[i].length) {
			regions[i].addr = (void *)(uintptr_t)reg->addr;
			regions[i].length = reg->length;
			regions[i].fd = fd;
			reg->handle = i;
			return 0;
		}
	}
	return -ENOSPC;
}

static int unreg_buf(const struct kvblk_unreg_buf_arg *unreg, int fd)
{
	if (!is_region(unreg->handle, fd))
		return -ENOENT;
	regions[unreg->handle].length = 0;
	return 0;
}

static int info(struct kvblk_info *to)
{
	uint32_t size = to->size;
	struct kvblk_info own = {
		.features = KVBLK_FEAT_HINT | KVBLK_FEAT_TIMES | KVBLK_FEAT_CALLER_CHECKS |
			    (fake_setting("KVBLK_FAKE_NO_RING") ? 0 : KVBLK_FEAT_URING) |
			    (fake_setting("KVBLK_FAKE_DRAM") ? KVBLK_FEAT_DRAM : 0),
		.value_max = VALUE_MAX,
		.key_max = KVBLK_KEY_MAX,
		.pieces_max = KVBLK_PIECES_MAX,
		.ops_max = KVBLK_OPS_MAX,
		.lookup_max = KVBLK_LOOKUP_MAX,
		.dma_align = DMA_ALIGN,
		.chunk_size = CHUNK_SIZE,
		.lease_ms_max = KVBLK_LEASE_MS_MAX,
		.capacity = 1 << 30,
		.pool_uuid = "libkvblk-fake",
		.pool_name = "fake",
		.checksum = KVBLK_CHECKSUM_CRC32C,
		.integrity = (uint32_t)fake_setting("KVBLK_FAKE_INTEGRITY"),
	};

	if (size < KVBLK_INFO_SIZE_VER0)
		return -EINVAL;
	if (to->flags)
		return -EOPNOTSUPP;
	own.size = size < sizeof(own) ? size : sizeof(own);
	memcpy(to, &own, own.size);
	return 0;
}

/* End what belongs to a handle that is closed. */
static void handle_end(int fd)
{
	for (uint32_t i = 0; i < MAX_REGIONS; i++) {
		if (is_region(i, fd))
			regions[i].length = 0;
	}
	for (uint32_t i = 0; i < MAX_LEASES; i++) {
		if (!leases[i].id || leases[i].fd != fd)
			continue;
		leases[i].id = 0;
		nr_held--;
		nr_kept++;
	}
}

static int answer(unsigned long request, void *arg, int fd)
{
	switch (request) {
	case KVBLK_IOC_INFO:
		return info(arg);
	case KVBLK_IOC_SUBMIT:
		return submit(arg, fd);
	case KVBLK_IOC_LOOKUP:
		return lookup(arg, fd);
	case KVBLK_IOC_LEASE_RELEASE:
		return release(arg, fd);
	case KVBLK_IOC_CANCEL:
		return cancel(arg, fd);
	case KVBLK_IOC_REG_BUF:
		return reg_buf(arg, fd);
	case KVBLK_IOC_UNREG_BUF:
		return unreg_buf(arg, fd);
	case KVBLK_IOC_DRAIN:
		return drain(arg);
	default:
		return -ENOTTY;
	}
}

bool fake_is_node(int fd)
{
	return fd >= 0 && fd < MAX_FDS && modes[fd];
}

int fake_ioctl(int fd, unsigned long request, void *arg)
{
	int err;

	if (request == KVBLK_IOC_SUBMIT && fake_setting("KVBLK_FAKE_GATE")) {
		if (fake_setting("KVBLK_FAKE_ARRIVALS"))
			(void)!write((int)fake_setting("KVBLK_FAKE_ARRIVALS"), "", 1);
		(void)!read((int)fake_setting("KVBLK_FAKE_GATE"), &(char){ 0 }, 1);
	}
	enter();
	err = answer(request, arg, fd);
	leave();
	return err;
}

static int open_node(const char *path, int flags, mode_t mode)
{
	static int (*next)(const char *path, int flags, ...);
	int fd;

	if (!next)
		next = dlsym(RTLD_NEXT, "open");
	if (strcmp(path, NODE) != 0)
		return next(path, flags, mode);
	fd = next("/dev/null", flags);
	if (fd < 0 || fd >= MAX_FDS)
		return fd;
	pthread_mutex_lock(&lock);
	modes[fd] = (flags & O_ACCMODE) + 1;
	nr_nodes++;
	if (store < 0 && getenv("KVBLK_FAKE_STORE"))
		store = next(getenv("KVBLK_FAKE_STORE"), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	pthread_mutex_unlock(&lock);
	return fd;
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (flags & (O_CREAT | __O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return open_node(path, flags, mode);
}

/* The names of open() for programs with large files, or with _FORTIFY_SOURCE. */
int open64(const char *path, int flags, ...) __attribute__((alias("open")));
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags) __attribute__((alias("__open_2")));

int __open_2(const char *path, int flags)
{
	return open_node(path, flags, 0);
}

int close(int fd)
{
	static int (*next)(int fd);

	if (!next)
		next = dlsym(RTLD_NEXT, "close");
	if (fake_is_node(fd)) {
		pthread_mutex_lock(&lock);
		modes[fd] = 0;
		handle_end(fd);
		if (!--nr_nodes && fake_setting("KVBLK_FAKE_LEASE") && nr_kept)
			fprintf(stderr, "fake pool: %llu leases held\n", (unsigned long long)nr_kept);
		pthread_mutex_unlock(&lock);
	}
	return next(fd);
}

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int fd, unsigned long request, ...);
	va_list args;
	void *arg;
	int err;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (!fake_is_node(fd)) {
		if (!next)
			next = dlsym(RTLD_NEXT, "ioctl");
		return next(fd, request, arg);
	}
	err = fake_ioctl(fd, request, arg);
	if (err < 0) {
		errno = -err;
		return -1;
	}
	return err;
}
