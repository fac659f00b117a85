// SPDX-License-Identifier: MIT
/*
 * An emulated pool: an LD_PRELOAD library that serves the ioctls on /dev/kvblk/fake/default
 * from memory, to test the command without the module. KVBLK_FAKE_STORE names a file that
 * several processes share: each sees the puts and deletes of the others at once, even of killed
 * ones. Without it blocks end with the process.
 *
 * Environment:
 * KVBLK_FAKE_ARRIVALS=FD	a batch writes a byte to FD before it waits at the gate
 * KVBLK_FAKE_BUSY=1		another caller's put of each key is in flight
 * KVBLK_FAKE_CORRUPT=N		flip a bit of the Nth get
 * KVBLK_FAKE_DECLINE=N		decline every Nth batch of puts
 * KVBLK_FAKE_DELAY_MS=N	a batch takes N ms, unless all its operations are
 *				canceled or past their deadlines before
 * KVBLK_FAKE_DRAM=BYTES	memory for prefetched blocks; default none
 * KVBLK_FAKE_FAIL=N		every Nth get and put fails
 * KVBLK_FAKE_GATE=FD		a batch waits for a byte from FD
 * KVBLK_FAKE_LEASE=1		a get misses unless a lease is held; the last close
 *				reports leases that were not released
 * KVBLK_FAKE_LOG=FILE		append a line for each put
 * KVBLK_FAKE_LOSE=N		every Nth get of a present block misses
 * KVBLK_FAKE_MEMLOCK=1		no memory can be registered
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

#define NODE		"/dev/kvblk/fake/default"
#define MAX_BLOCKS	65536
#define MAX_REGIONS	64
#define MAX_FDS		1024
#define DELETED		UINT32_MAX

struct block {
	struct block *next;
	uint32_t key_len;
	uint32_t len;
	uint64_t layout_tag;
	uint64_t caller_tag;
	bool in_memory;		/* in this process's KVBLK_FAKE_DRAM */
	unsigned char bytes[];	/* key, then data */
};

/* protects the variables below */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *buckets[MAX_BLOCKS];
static bool is_node[MAX_FDS];
static int nr_nodes;
static uint64_t nr_gets, nr_puts, nr_put_batches, nr_leases, nr_held, dram_used;
/* batches delayed by KVBLK_FAKE_DELAY_MS; a negative result is final */
static struct batch {
	struct batch *next;
	const struct kvblk_submit *submit;
} *waiting;
static pthread_cond_t changed;	/* signaled when a waiting batch gets a final result */
/* the file of KVBLK_FAKE_STORE, and the offset up to which this process has read it */
static int store = -1;
static off_t store_read;
/* registered memory, indexed by handle; length 0: unused */
static struct { char *addr; uint64_t length; } regions[MAX_REGIONS];

static uint64_t setting(const char *name)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : 0;
}

/* Returns true for every Nth @number, where the setting @name is N. */
static bool nth(uint64_t number, const char *name)
{
	uint64_t every = setting(name);

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
		{ (void *)block->bytes, block->key_len + (len == DELETED ? 0 : len) },
	};

	head.len = len;
	head.in_memory = false;
	if (store >= 0 && writev(store, parts, 2) != (ssize_t)(parts[0].iov_len + parts[1].iov_len))
		abort();
}

/* Apply the entries that were appended to the store since the last call. */
static void replay(void)
{
	struct block head;

	while (store >= 0 && pread(store, &head, sizeof(head), store_read) == sizeof(head)) {
		size_t len = head.key_len + (head.len == DELETED ? 0 : head.len);
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

/* Check that each piece of registered memory lies within it. */
static bool within_regions(const struct kvblk_op *op)
{
	const struct kvblk_piece *piece = (void *)(uintptr_t)op->pieces;

	for (int i = 0; i < op->nr_pieces; i++) {
		if (piece[i].type == KVBLK_PIECE_REGISTERED &&
		    (piece[i].handle >= MAX_REGIONS ||
		     piece[i].addr + piece[i].length > regions[piece[i].handle].length))
			return false;
	}
	return true;
}

static uint64_t room_of(const struct kvblk_op *op)
{
	const struct kvblk_piece *piece = (void *)(uintptr_t)op->pieces;
	uint64_t room = 0;

	for (int i = 0; i < op->nr_pieces; i++)
		room += piece[i].length;
	return room;
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
	const struct kvblk_op_ext *ext = (void *)(uintptr_t)op->ext;
	FILE *file = path ? fopen(path, "a") : NULL;

	if (!file)
		return;
	fprintf(file, "%.*s parent=%.*s priority=%u ttl=%u\n",
		op->key_len, (char *)(uintptr_t)op->key,
		ext ? (int)ext->parent_len : 0,
		ext ? (char *)(uintptr_t)ext->parent : "",
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
	if (block) {
		result->res = -EEXIST;
		result->value_len = block->len;
		if (block->len != len)
			result->flags = KVBLK_RES_LEN_DIFFERS;
		return;
	}
	if (setting("KVBLK_FAKE_BUSY")) {
		result->res = -EALREADY;
		return;
	}
	block = malloc(sizeof(*block) + op->key_len + len);
	*block = (struct block){
		.key_len = op->key_len,
		.len = (uint32_t)len,
		.layout_tag = op->layout_tag,
		.caller_tag = op->caller_tag,
	};
	memcpy(block->bytes, (void *)(uintptr_t)op->key, op->key_len);
	move(op, block->bytes + op->key_len, len, false);
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
	    ((op->flags & KVBLK_OPF_LAYOUT) && op->layout_tag != block->layout_tag) ||
	    (setting("KVBLK_FAKE_LEASE") && !nr_held)) {
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
		if (len > room_of(op))
			len = room_of(op);
	}
	if (len > room_of(op)) {
		result->res = -EMSGSIZE;
		return;
	}
	if (nr_gets == setting("KVBLK_FAKE_CORRUPT"))
		block->bytes[block->key_len + len / 2] ^= 4;
	move(op, block->bytes + block->key_len + from, len, true);
	result->res = (int)len;
	result->flags = block->in_memory ? KVBLK_RES_BOUNCED | KVBLK_RES_MEMORY : KVBLK_RES_DIRECT;
}

static void prefetch(const struct kvblk_op *op, struct kvblk_result *result)
{
	struct block *block = *place_of((void *)(uintptr_t)op->key, op->key_len);

	if (!block)
		result->res = -ENOENT;
	else if (!setting("KVBLK_FAKE_DRAM"))
		result->res = -EOPNOTSUPP;
	else if (block->in_memory)
		result->res = 0;
	else if (dram_used + block->len > setting("KVBLK_FAKE_DRAM"))
		result->res = -ENOSPC;
	else
		result->res = (int)block->len;
	if (result->res <= 0)
		return;
	block->in_memory = true;
	dram_used += block->len;
}

static void delete(const struct kvblk_op *op, struct kvblk_result *result)
{
	struct block **place = place_of((void *)(uintptr_t)op->key, op->key_len);
	struct block *block = *place;

	if (setting("KVBLK_FAKE_BUSY")) {
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
static uint64_t next_deadline(const struct kvblk_submit *s, uint64_t end)
{
	const struct kvblk_op *ops = (void *)(uintptr_t)s->ops;
	struct kvblk_result *results = (void *)(uintptr_t)s->results;
	uint64_t next = 0, now = now_ns();

	for (uint32_t i = 0; i < s->nr_ops; i++) {
		uint64_t until = ops[i].deadline_ns ? ops[i].deadline_ns : end;

		if (results[i].res < 0)
			continue;
		if (ops[i].deadline_ns && ops[i].deadline_ns <= now)
			results[i].res = -ETIME;
		else if (!next || until < next)
			next = until;
	}
	return next > end ? end : next;
}

static void delay(const struct kvblk_submit *s)
{
	uint64_t end = now_ns() + setting("KVBLK_FAKE_DELAY_MS") * 1000000, next;
	struct batch batch = { .next = waiting, .submit = s }, **place;

	waiting = &batch;
	while ((next = next_deadline(s, end)) && now_ns() < end) {
		struct timespec until = { next / 1000000000, next % 1000000000 };

		pthread_cond_timedwait(&changed, &lock, &until);
	}
	for (place = &waiting; *place != &batch; place = &(*place)->next)
		;
	*place = batch.next;
}

static int cancel(struct kvblk_cancel *c)
{
	c->nr_found = 0;
	for (const struct batch *b = waiting; b && c->cookie; b = b->next) {
		const struct kvblk_op *ops = (void *)(uintptr_t)b->submit->ops;
		struct kvblk_result *results = (void *)(uintptr_t)b->submit->results;

		for (uint32_t i = 0; i < b->submit->nr_ops; i++) {
			if (ops[i].cookie != c->cookie || results[i].res < 0)
				continue;
			results[i].res = -ECANCELED;
			c->nr_found++;
		}
	}
	pthread_cond_broadcast(&changed);
	if (!c->cookie)
		return -EINVAL;
	return c->nr_found ? 0 : -ENOENT;
}

static int submit(const struct kvblk_submit *s)
{
	const struct kvblk_op *ops = (void *)(uintptr_t)s->ops;
	struct kvblk_result *results = (void *)(uintptr_t)s->results;
	bool declined = false;

	if (s->size != sizeof(*s) || !s->nr_ops || s->nr_ops > KVBLK_OPS_MAX ||
	    s->op_size != sizeof(*ops) || s->result_size != sizeof(*results))
		return -EINVAL;
	if (ops->opcode == KVBLK_OP_PUT)
		declined = nth(++nr_put_batches, "KVBLK_FAKE_DECLINE");
	for (uint32_t i = 0; i < s->nr_ops; i++)
		results[i] = (struct kvblk_result){ .cookie = ops[i].cookie };
	if (setting("KVBLK_FAKE_DELAY_MS"))
		delay(s);
	for (uint32_t i = 0; i < s->nr_ops; i++) {
		if (results[i].res < 0)
			continue;
		if (ops[i].opcode == KVBLK_OP_PREFETCH)
			prefetch(&ops[i], &results[i]);
		else if (!within_regions(&ops[i]))
			results[i].res = -EFAULT;
		else if (ops[i].opcode == KVBLK_OP_GET)
			get(&ops[i], &results[i]);
		else if (ops[i].opcode == KVBLK_OP_DELETE)
			delete(&ops[i], &results[i]);
		else if (declined)
			results[i].res = -ENOBUFS;
		else
			put(&ops[i], &results[i]);
	}
	return 0;
}

static int lookup(struct kvblk_lookup *l)
{
	const char *key = (void *)(uintptr_t)l->keys;
	const uint16_t *lens = (void *)(uintptr_t)l->key_lens;
	uint32_t *sizes = (void *)(uintptr_t)l->sizes;
	uint64_t *tags = (void *)(uintptr_t)l->caller_tags;
	unsigned char *bitmap = (void *)(uintptr_t)l->bitmap, *tiers = (void *)(uintptr_t)l->tiers;
	bool hole = false;

	if (l->size != sizeof(*l) || !l->nr_keys || !l->key_stride == !lens ||
	    !!l->lease_ms != !!(l->flags & KVBLK_LOOKUP_LEASE))
		return -EINVAL;
	l->nr_leading = 0;
	l->nr_present = 0;
	l->nr_leased = 0;
	l->lease = 0;
	if (bitmap)
		memset(bitmap, 0, (l->nr_keys + 7) / 8);
	for (uint32_t i = 0; i < l->nr_keys; i++) {
		size_t len = lens ? lens[i] : l->key_stride;
		const struct block *block = *place_of(key, len);

		key += len;
		if (sizes)
			sizes[i] = block ? block->len : 0;
		if (tags)
			tags[i] = block ? block->caller_tag : 0;
		if (tiers)
			tiers[i] = !block ? KVBLK_TIER_NONE :
				   block->in_memory ? KVBLK_TIER_MEMORY : KVBLK_TIER_MEMBER;
		if (bitmap && block)
			bitmap[i / 8] |= 1 << i % 8;
		hole = hole || !block;
		if (block)
			l->nr_present++;
		if (!hole)
			l->nr_leading++;
		else if (l->flags & KVBLK_LOOKUP_PREFIX)
			break;
	}
	if (l->lease_ms && l->nr_present) {
		l->lease = ++nr_leases;
		l->nr_leased = l->nr_present;
		nr_held++;
	}
	return 0;
}

static int reg_buf(struct kvblk_reg_buf *reg)
{
	if (setting("KVBLK_FAKE_MEMLOCK"))
		return -ENOMEM;
	for (int i = 1; i < MAX_REGIONS; i++) {
		if (!regions[i].length) {
			regions[i].addr = (void *)(uintptr_t)reg->addr;
			regions[i].length = reg->length;
			reg->handle = i;
			return 0;
		}
	}
	return -ENOSPC;
}

static int unreg_buf(const struct kvblk_unreg_buf *unreg)
{
	if (unreg->handle >= MAX_REGIONS || !regions[unreg->handle].length)
		return -ENOENT;
	regions[unreg->handle].length = 0;
	return 0;
}

static int answer(unsigned long request, void *arg)
{
	struct kvblk_info *info = arg;

	switch (request) {
	case KVBLK_IOC_INFO:
		*info = (struct kvblk_info){
			.size = sizeof(*info),
			.value_max = 8 << 20,
			.key_max = KVBLK_KEY_MAX,
			.pieces_max = KVBLK_PIECES_MAX,
			.ops_max = KVBLK_OPS_MAX,
			.lookup_max = KVBLK_LOOKUP_MAX,
			.capacity = 1 << 30,
			.pool_name = "fake",
		};
		return 0;
	case KVBLK_IOC_SUBMIT:
		return submit(arg);
	case KVBLK_IOC_LOOKUP:
		return lookup(arg);
	case KVBLK_IOC_LEASE_RELEASE:
		nr_held--;
		return 0;
	case KVBLK_IOC_CANCEL:
		return cancel(arg);
	case KVBLK_IOC_REG_BUF:
		return reg_buf(arg);
	case KVBLK_IOC_UNREG_BUF:
		return unreg_buf(arg);
	case KVBLK_IOC_DRAIN:
		return 0;
	default:
		return -ENOTTY;
	}
}

int open(const char *path, int flags, ...)
{
	static int (*next)(const char *path, int flags, ...);
	mode_t mode = 0;
	va_list args;

	if (!next)
		next = dlsym(RTLD_NEXT, "open");
	if (!strcmp(path, NODE)) {
		int fd = next("/dev/null", flags);

		if (fd < 0 || fd >= MAX_FDS)
			return fd;
		pthread_mutex_lock(&lock);
		is_node[fd] = true;
		nr_nodes++;
		if (store < 0 && getenv("KVBLK_FAKE_STORE"))
			store = next(getenv("KVBLK_FAKE_STORE"), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
		pthread_mutex_unlock(&lock);
		return fd;
	}
	if (flags & O_CREAT) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	return next(path, flags, mode);
}

int close(int fd)
{
	static int (*next)(int fd);

	if (!next)
		next = dlsym(RTLD_NEXT, "close");
	if (fd >= 0 && fd < MAX_FDS && is_node[fd]) {
		pthread_mutex_lock(&lock);
		is_node[fd] = false;
		if (!--nr_nodes && setting("KVBLK_FAKE_LEASE") && nr_held)
			fprintf(stderr, "fake pool: %llu leases held\n", (unsigned long long)nr_held);
		pthread_mutex_unlock(&lock);
	}
	return next(fd);
}

int ioctl(int fd, unsigned long request, ...)
{
	static int (*next)(int fd, unsigned long request, ...);
	va_list args;
	void *arg;
	int ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (fd < 0 || fd >= MAX_FDS || !is_node[fd]) {
		if (!next)
			next = dlsym(RTLD_NEXT, "ioctl");
		return next(fd, request, arg);
	}
	if (request == KVBLK_IOC_SUBMIT && setting("KVBLK_FAKE_GATE")) {
		if (setting("KVBLK_FAKE_ARRIVALS"))
			(void)!write((int)setting("KVBLK_FAKE_ARRIVALS"), "", 1);
		(void)!read((int)setting("KVBLK_FAKE_GATE"), &(char){ 0 }, 1);
	}
	enter();
	ret = answer(request, arg);
	leave();
	if (ret < 0) {
		errno = -ret;
		return -1;
	}
	return ret;
}
