// SPDX-License-Identifier: MIT
/*
 * peer: what runtimes do with a file system instead of kvblk, and the limits of a device and of
 * io_uring, for comparison. Shapes:
 *
 * file - one file per block. A put writes a temporary name and renames it, a get
 *	opens, reads and closes, existence is a stat.
 * slot - one preallocated file of equal slots, and an index in memory.
 * memory - blocks in the process's own memory, without an index: a put and a get
 *	are a memcpy, the lower bound of any copy.
 * raw - a get is a read of the block device DIR into registered memory.
 * nop - a get is a request that does nothing, the lower bound of any ring operation.
 *
 * All I/O is O_DIRECT, by pread and pwrite (psync, one operation at a time per thread) or
 * io_uring (depth operations in flight per thread; a file's open, transfer, close and rename are
 * linked requests).
 *
 * With --sums a put computes the block's checksums and keeps them in memory, and a get computes
 * and compares them.
 *
 * The rule is that of kvblk bench: memory and, for gets, blocks exist before the clock starts,
 * and any failure ends the run.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../tools/kvblk/bench/clock.h"
#include "../../tools/kvblk/bench/histogram.h"
#include "../../tools/kvblk/bench/pattern.h"
#include "sums.h"

#define KEY_LEN		36
#define TMP_LEN		(KEY_LEN + 32)
#define NS_PER_S	1000000000ull

enum op { PUT, GET, EXISTS };
enum shape { FILES, SLOTS, MEMORY, RAW, NOP };
enum engine { PSYNC, URING };

static const char *const op_names[] = { "put", "get", "exists", NULL };
static const char *const shape_names[] = { "file", "slot", "memory", "raw", "nop", NULL };
static const char *const engine_names[] = { "psync", "io_uring", NULL };

/* slot's index: chains of slots; lock protects it */
struct index {
	pthread_mutex_t lock;
	uint32_t mask;
	uint32_t *head;		/* slot + 1, 0: none */
	uint32_t *next;
	char (*key)[KEY_LEN];	/* key of each slot, "" if free */
};

static struct {
	/* options */
	const char *dir;
	enum op op;
	enum shape shape;
	enum engine engine;
	bool sums;
	size_t size;
	unsigned int depth;
	unsigned int threads;
	double seconds;
	uint64_t count;
	uint64_t blocks;

	int dir_fd;
	int store_fd;
	unsigned char *store;
	struct index index;
	uint32_t *block_sums;	/* by block number, with --sums */
	pthread_barrier_t ready;
	_Atomic uint64_t start_ns;
} peer = { .size = 64 << 10, .depth = 8, .threads = 1, .seconds = 2, .blocks = 1000 };

struct worker {
	pthread_t thread;
	unsigned int number;
	struct io_uring ring;
	struct io_uring_cqe **ended;
	unsigned char *buffer;
	char (*tmp)[TMP_LEN];
	char (*name)[KEY_LEN + 1];
	uint64_t *start_ns;
	unsigned int *idle;
	unsigned int nr_idle;
	uint64_t random;
	uint64_t nr_wanted;
	uint64_t nr_started;
	uint64_t nr_ops;
	uint64_t end_ns;
	struct hist time;
};

static void die(const char *what, int err)
{
	fprintf(stderr, "peer: %s: %s\n", what, strerror(err < 0 ? -err : err));
	exit(1);
}

static void name_block(char name[KEY_LEN + 1], uint64_t number)
{
	unsigned int i;

	memcpy(name, "peer/--------/--------/-------------", KEY_LEN + 1);
	for (i = 0; i < KEY_LEN; i++) {
		if (name[i] == '/')
			name[i] = '.';
	}
	for (i = KEY_LEN; name[i - 1] == '-'; i--) {
		name[i - 1] = "0123456789abcdef"[number & 15];
		number >>= 4;
	}
}

static uint64_t draw(struct worker *w, uint64_t below)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random % below;
}

static unsigned char *buffer_at(const struct worker *w, unsigned int slot)
{
	return w->buffer + slot * peer.size;
}

static uint64_t number_of(const struct worker *w, unsigned int slot)
{
	return strtoull(w->name[slot] + 23, NULL, 16);
}

/* Return the number of the next block: puts cycle through the blocks, which the threads share. */
static uint64_t next_number(struct worker *w)
{
	uint64_t n = w->nr_started++;

	if (peer.op == PUT)
		return (n * peer.threads + w->number) % peer.blocks;
	return draw(w, peer.blocks);
}

/* Checksums of puts and gets. */

static size_t nr_sums(uint64_t blocks)
{
	return blocks * ((peer.size + SUMS_CHUNK - 1) / SUMS_CHUNK);
}

static void init_sums(void)
{
	sums_init();
	peer.block_sums = calloc(nr_sums(peer.blocks), sizeof(*peer.block_sums));
	if (!peer.block_sums)
		die("checksums", ENOMEM);
}

static void keep_sums(const void *block, uint64_t number)
{
	if (peer.sums)
		sums_compute(block, peer.size, &peer.block_sums[nr_sums(number)]);
}

static void check_sums(const void *block, uint64_t number)
{
	if (peer.sums &&
	    !sums_match(block, peer.size, &peer.block_sums[nr_sums(number)]))
		die("get: wrong checksum", EBADMSG);
}

static void index_init(void)
{
	uint32_t buckets = 1;

	while (buckets < 2 * peer.blocks)
		buckets *= 2;
	peer.index.mask = buckets - 1;
	peer.index.head = calloc(buckets, sizeof(*peer.index.head));
	peer.index.next = calloc(peer.blocks, sizeof(*peer.index.next));
	peer.index.key = calloc(peer.blocks, sizeof(*peer.index.key));
	if (!peer.index.head || !peer.index.next || !peer.index.key)
		die("index", ENOMEM);
	pthread_mutex_init(&peer.index.lock, NULL);
}

static uint32_t *bucket_of(const char *key)
{
	return &peer.index.head[pattern_seed(key, KEY_LEN) & peer.index.mask];
}

static void index_insert(const char *key, uint32_t slot)
{
	uint32_t *place;

	pthread_mutex_lock(&peer.index.lock);
	if (peer.index.key[slot][0]) {
		place = bucket_of(peer.index.key[slot]);
		while (*place != slot + 1)
			place = &peer.index.next[*place - 1];
		*place = peer.index.next[slot];
	}
	memcpy(peer.index.key[slot], key, KEY_LEN);
	place = bucket_of(key);
	peer.index.next[slot] = *place;
	*place = slot + 1;
	pthread_mutex_unlock(&peer.index.lock);
}

static uint32_t index_find(const char *key)
{
	uint32_t slot;

	pthread_mutex_lock(&peer.index.lock);
	slot = *bucket_of(key);
	while (slot && memcmp(peer.index.key[slot - 1], key, KEY_LEN) != 0)
		slot = peer.index.next[slot - 1];
	pthread_mutex_unlock(&peer.index.lock);
	if (!slot)
		die("get: not in the index", ENOENT);
	return slot - 1;
}

static void transfer(int fd, bool put, void *buf, off_t offset)
{
	ssize_t n = put ? pwrite(fd, buf, peer.size, offset) :
			  pread(fd, buf, peer.size, offset);

	if (n != (ssize_t)peer.size)
		die(put ? "pwrite" : "pread", n < 0 ? errno : EIO);
}

static void put_file(struct worker *w, const char *name)
{
	char tmp[TMP_LEN];
	int fd;

	snprintf(tmp, sizeof(tmp), "%s.%u.tmp", name, w->number);
	fd = openat(peer.dir_fd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);
	if (fd < 0)
		die(tmp, errno);
	transfer(fd, true, w->buffer, 0);
	close(fd);
	if (renameat(peer.dir_fd, tmp, peer.dir_fd, name))
		die(name, errno);
}

static void get_file(struct worker *w, const char *name)
{
	int fd = openat(peer.dir_fd, name, O_RDONLY | O_DIRECT);

	if (fd < 0)
		die(name, errno);
	transfer(fd, false, w->buffer, 0);
	close(fd);
}

static void stat_file(const char *name)
{
	struct stat st;

	if (fstatat(peer.dir_fd, name, &st, 0))
		die(name, errno);
}

static void psync_one(struct worker *w, enum op op, uint64_t number)
{
	char name[KEY_LEN + 1];
	off_t size = (off_t)peer.size;

	name_block(name, number);
	if (op == EXISTS) {
		if (peer.shape == SLOTS)
			index_find(name);
		else
			stat_file(name);
	} else if (op == PUT) {
		keep_sums(w->buffer, number);
		if (peer.shape == SLOTS) {
			transfer(peer.store_fd, true, w->buffer, (off_t)number * size);
			index_insert(name, (uint32_t)number);
		} else {
			put_file(w, name);
		}
	} else {
		if (peer.shape == SLOTS)
			transfer(peer.store_fd, false, w->buffer, index_find(name) * size);
		else
			get_file(w, name);
		check_sums(w->buffer, number);
	}
}

static void copy_one(struct worker *w, uint64_t number)
{
	unsigned char *block = peer.store + number * peer.size;

	if (peer.op == PUT)
		memcpy(block, w->buffer, peer.size);
	else
		memcpy(w->buffer, block, peer.size);
}

static void run_psync(struct worker *w, uint64_t now, uint64_t deadline)
{
	while (now < deadline && w->nr_started < w->nr_wanted) {
		uint64_t then = now, number = next_number(w);

		if (peer.shape == MEMORY)
			copy_one(w, number);
		else
			psync_one(w, peer.op, number);
		now = clock_ns();
		hist_add(&w->time, now - then, 1);
		w->nr_ops++;
	}
	w->end_ns = now;
}

static struct io_uring_sqe *request(struct worker *w)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);

	if (!sqe)
		die("io_uring: no room in the queue", ENOSPC);
	return sqe;
}

/* Link the next request to this one, which completes silently unless it fails. */
static void link_on(struct io_uring_sqe *sqe, unsigned int slot, unsigned int more)
{
	sqe->flags |= (__u8)(IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS | more);
	io_uring_sqe_set_data64(sqe, slot);
}

static void start_file(struct worker *w, unsigned int slot, uint64_t number)
{
	bool put = peer.op == PUT;
	struct io_uring_sqe *sqe;
	char *name = w->name[slot], *tmp = w->tmp[slot];

	name_block(name, number);
	snprintf(tmp, sizeof(w->tmp[0]), "%s.%u.%u.tmp", name, w->number, slot);

	sqe = request(w);
	io_uring_prep_openat_direct(sqe, peer.dir_fd, put ? tmp : name,
				    put ? O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT :
					  O_RDONLY | O_DIRECT, 0600, slot);
	link_on(sqe, slot, 0);
	sqe = request(w);
	if (put)
		io_uring_prep_write(sqe, (int)slot, buffer_at(w, slot),
				    (unsigned int)peer.size, 0);
	else
		io_uring_prep_read(sqe, (int)slot, buffer_at(w, slot),
				   (unsigned int)peer.size, 0);
	link_on(sqe, slot, IOSQE_FIXED_FILE);
	sqe = request(w);
	io_uring_prep_close_direct(sqe, slot);
	if (put) {
		link_on(sqe, slot, 0);
		sqe = request(w);
		io_uring_prep_renameat(sqe, peer.dir_fd, tmp, peer.dir_fd, name, 0);
	}
	io_uring_sqe_set_data64(sqe, slot);
}

static void start_slot(struct worker *w, unsigned int slot, uint64_t number)
{
	struct io_uring_sqe *sqe = request(w);
	char *name = w->name[slot];

	name_block(name, number);
	if (peer.op == PUT)
		io_uring_prep_write(sqe, peer.store_fd, buffer_at(w, slot),
				    (unsigned int)peer.size, number * peer.size);
	else
		io_uring_prep_read(sqe, peer.store_fd, buffer_at(w, slot),
				   (unsigned int)peer.size,
				   index_find(name) * peer.size);
	io_uring_sqe_set_data64(sqe, slot);
}

/* Start a get of a shape that has no names. */
static void start_get(struct worker *w, unsigned int slot, uint64_t number)
{
	struct io_uring_sqe *sqe = request(w);

	if (peer.shape == RAW)
		io_uring_prep_read_fixed(sqe, peer.store_fd, buffer_at(w, slot),
					 (unsigned int)peer.size,
					 number * peer.size, 0);
	else
		io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, slot);
}

static void check_result(struct worker *w, const struct io_uring_cqe *cqe)
{
	unsigned int slot = (unsigned int)io_uring_cqe_get_data64(cqe);

	if (cqe->res < 0)
		die(op_names[peer.op], cqe->res);
	if ((peer.shape == SLOTS || peer.shape == RAW) && cqe->res != (int)peer.size)
		die("short transfer", EIO);
	if (peer.op == GET)
		check_sums(buffer_at(w, slot), number_of(w, slot));
}

static void finish(struct worker *w, const struct io_uring_cqe *cqe, uint64_t now)
{
	unsigned int slot = (unsigned int)io_uring_cqe_get_data64(cqe);

	if (peer.shape == SLOTS && peer.op == PUT)
		index_insert(w->name[slot], (uint32_t)number_of(w, slot));
	hist_add(&w->time, now - w->start_ns[slot], 1);
	w->nr_ops++;
	w->idle[w->nr_idle++] = slot;
}

static void run_uring(struct worker *w, uint64_t now, uint64_t deadline)
{
	unsigned int nr;
	int err;

	for (;;) {
		while (w->nr_idle && now < deadline && w->nr_started < w->nr_wanted) {
			unsigned int slot = w->idle[--w->nr_idle];
			uint64_t number = next_number(w);

			w->start_ns[slot] = now;
			if (peer.op == PUT)
				keep_sums(buffer_at(w, slot), number);
			if (peer.shape == SLOTS)
				start_slot(w, slot, number);
			else if (peer.shape == RAW || peer.shape == NOP)
				start_get(w, slot, number);
			else
				start_file(w, slot, number);
		}
		if (w->nr_idle == peer.depth)
			break;
		err = io_uring_submit_and_wait(&w->ring, 1);
		if (err < 0 && err != -EINTR)
			die("io_uring_submit_and_wait", err);
		nr = io_uring_peek_batch_cqe(&w->ring, w->ended, peer.depth);
		/* include the checksums in the time of a get */
		for (unsigned int i = 0; i < nr; i++)
			check_result(w, w->ended[i]);
		now = clock_ns();
		for (unsigned int i = 0; i < nr; i++)
			finish(w, w->ended[i], now);
		io_uring_cq_advance(&w->ring, nr);
	}
	w->end_ns = now;
}

static void *worker_thread(void *arg)
{
	struct worker *w = arg;
	uint64_t start, deadline = UINT64_MAX;

	pthread_barrier_wait(&peer.ready);
	if (!w->number)
		atomic_store(&peer.start_ns, clock_ns());
	pthread_barrier_wait(&peer.ready);
	start = atomic_load(&peer.start_ns);
	if (peer.seconds > 0)
		deadline = start + (uint64_t)(peer.seconds * (double)NS_PER_S);
	if (peer.engine == URING && peer.op != EXISTS)
		run_uring(w, start, deadline);
	else
		run_psync(w, start, deadline);
	return NULL;
}

static void prepare_worker(struct worker *w, unsigned int number)
{
	struct iovec buffers = { .iov_len = peer.depth * peer.size };
	int err;

	w->number = number;
	w->random = (number + 1) * 0x9e3779b97f4a7c15ull;
	w->nr_wanted = UINT64_MAX;
	if (peer.count)
		w->nr_wanted = peer.count / peer.threads +
			       (number < peer.count % peer.threads);
	w->buffer = mmap(NULL, peer.depth * peer.size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	w->ended = calloc(peer.depth, sizeof(struct io_uring_cqe *));
	w->tmp = calloc(peer.depth, sizeof(*w->tmp));
	w->name = calloc(peer.depth, sizeof(*w->name));
	w->start_ns = calloc(peer.depth, sizeof(*w->start_ns));
	w->idle = calloc(peer.depth, sizeof(*w->idle));
	if (w->buffer == MAP_FAILED || !w->ended || !w->tmp || !w->name ||
	    !w->start_ns || !w->idle)
		die("buffers", ENOMEM);
	for (unsigned int i = 0; i < peer.depth; i++) {
		pattern_fill(w->random + i, buffer_at(w, i), peer.size);
		w->idle[w->nr_idle++] = i;
	}
	if (peer.engine != URING)
		return;
	buffers.iov_base = w->buffer;
	err = io_uring_queue_init(4 * peer.depth, &w->ring, 0);
	if (!err)
		err = io_uring_register_files_sparse(&w->ring, peer.depth);
	if (!err && peer.shape == RAW)
		err = io_uring_register_buffers(&w->ring, &buffers, 1);
	if (err)
		die("io_uring", err);
}

/*
 * Put the blocks for gets and lookups, untimed. With --sums blocks of earlier runs are put again,
 * because their checksums are not in memory.
 */
static void put_blocks(struct worker *w)
{
	char name[KEY_LEN + 1];
	struct stat st;

	for (uint64_t i = 0; i < peer.blocks; i++) {
		name_block(name, i);
		if (peer.shape != SLOTS && !peer.sums &&
		    !fstatat(peer.dir_fd, name, &st, 0) && st.st_size == (off_t)peer.size)
			continue;
		psync_one(w, PUT, i);
	}
}

/* Write the whole store once, because fallocate alone leaves extents unwritten. */
static void open_store(void *buf)
{
	off_t len = (off_t)(peer.blocks * peer.size);
	struct stat st;

	peer.store_fd = openat(peer.dir_fd, "store", O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (peer.store_fd < 0 || fstat(peer.store_fd, &st))
		die("store", errno);
	index_init();
	if (st.st_size >= len)
		return;
	if (fallocate(peer.store_fd, 0, 0, len))
		die("fallocate", errno);
	for (off_t at = 0; at < len; at += (off_t)peer.size)
		transfer(peer.store_fd, true, buf, at);
	if (fsync(peer.store_fd))
		die("fsync", errno);
}

/* Map the blocks' memory with huge pages if possible, and fault it in. */
static void map_memory(void)
{
	size_t length = peer.blocks * peer.size;

	peer.store = mmap(NULL, length, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (peer.store == MAP_FAILED)
		die("memory", errno);
	madvise(peer.store, length, MADV_HUGEPAGE);
	memset(peer.store, 1, length);
}

static void report(const struct worker *workers)
{
	static struct hist time;
	uint64_t nr = 0, end = 0;
	double seconds;

	for (unsigned int i = 0; i < peer.threads; i++) {
		nr += workers[i].nr_ops;
		hist_merge(&time, &workers[i].time);
		if (workers[i].end_ns > end)
			end = workers[i].end_ns;
	}
	seconds = (double)(end - peer.start_ns) / (double)NS_PER_S;
	printf("{\"op\": \"%s\", \"shape\": \"%s\", \"engine\": \"%s\", \"sums\": %s, \"size\": %zu, \"depth\": %u, \"threads\": %u, "
	       "\"seconds\": %.6f, \"ops\": %llu, \"ops_s\": %.3f, \"mib_s\": %.3f, \"p50_ns\": %llu, \"p99_ns\": %llu}\n",
	       op_names[peer.op], shape_names[peer.shape], engine_names[peer.engine],
	       peer.sums ? "true" : "false", peer.size, peer.depth, peer.threads, seconds,
	       (unsigned long long)nr, (double)nr / seconds,
	       (double)nr * (double)peer.size / seconds / 1048576.0,
	       (unsigned long long)hist_quantile(&time, 0.5),
	       (unsigned long long)hist_quantile(&time, 0.99));
}

static void usage(void)
{
	fputs("usage: peer --dir DIR --op put|get|exists [--shape file|slot|memory|raw|nop] [--engine psync|io_uring] [--size BYTES]\n"
	      "	[--depth N] [--threads N] [--seconds S] [--count N] [--blocks N] [--sums]; memory: put or get by psync, no --sums\n"
	      "raw, nop: get by io_uring, no --sums; raw: DIR is a block device\n"
	      "BYTES must be a multiple of 4096. Puts go round N blocks, gets and exists take one of them at random.\n", stderr);
	exit(2);
}

/* Return the index of @word in @names; exits if it is not found. */
static unsigned int name_of(const char *word, const char *const names[])
{
	unsigned int i;

	for (i = 0; names[i] && strcmp(word, names[i]) != 0; i++)
		;
	if (!names[i])
		usage();
	return i;
}

static void parse(int argc, char **argv)
{
	static const struct option options[] = {
		{ "dir", 1, NULL, 'd' }, { "op", 1, NULL, 'o' },
		{ "shape", 1, NULL, 's' }, { "engine", 1, NULL, 'e' },
		{ "size", 1, NULL, 'b' }, { "depth", 1, NULL, 'q' },
		{ "threads", 1, NULL, 't' }, { "seconds", 1, NULL, 'T' },
		{ "count", 1, NULL, 'c' }, { "blocks", 1, NULL, 'n' },
		{ "sums", 0, NULL, 'C' }, { 0 },
	};
	bool op_given = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			peer.dir = optarg;
			break;
		case 'o':
			peer.op = (enum op)name_of(optarg, op_names);
			op_given = true;
			break;
		case 's':
			peer.shape = (enum shape)name_of(optarg, shape_names);
			break;
		case 'e':
			peer.engine = (enum engine)name_of(optarg, engine_names);
			break;
		case 'b':
			peer.size = strtoul(optarg, NULL, 10);
			break;
		case 'q':
			peer.depth = (unsigned int)strtoul(optarg, NULL, 10);
			break;
		case 't':
			peer.threads = (unsigned int)strtoul(optarg, NULL, 10);
			break;
		case 'T':
			peer.seconds = strtod(optarg, NULL);
			break;
		case 'c':
			peer.count = strtoull(optarg, NULL, 10);
			peer.seconds = 0;
			break;
		case 'n':
			peer.blocks = strtoull(optarg, NULL, 10);
			break;
		case 'C':
			peer.sums = true;
			break;
		default:
			usage();
		}
	}
	if (!peer.dir || !op_given || !peer.size || peer.size % 4096 || !peer.depth ||
	    !peer.threads || !peer.blocks || optind < argc ||
	    (peer.shape == MEMORY && (peer.op == EXISTS || peer.engine == URING || peer.sums)) ||
	    (peer.shape >= RAW && (peer.op != GET || peer.engine != URING || peer.sums)))
		usage();
	if (peer.engine != URING)
		peer.depth = 1;
}

int main(int argc, char **argv)
{
	struct worker *workers;

	parse(argc, argv);
	clock_init();
	if (peer.sums)
		init_sums();
	workers = calloc(peer.threads, sizeof(*workers));
	peer.dir_fd = open(peer.dir, O_RDONLY | (peer.shape == RAW ? O_DIRECT : O_DIRECTORY));
	if (!workers || peer.dir_fd < 0)
		die(peer.dir, errno);
	if (peer.shape == RAW)
		peer.store_fd = peer.dir_fd;
	for (unsigned int i = 0; i < peer.threads; i++)
		prepare_worker(&workers[i], i);
	if (peer.shape == SLOTS)
		open_store(workers[0].buffer);
	if (peer.shape == MEMORY)
		map_memory();
	if (peer.op != PUT && peer.shape < MEMORY)
		put_blocks(&workers[0]);
	pthread_barrier_init(&peer.ready, NULL, peer.threads);
	for (unsigned int i = 0; i < peer.threads; i++) {
		int err = pthread_create(&workers[i].thread, NULL, worker_thread,
					 &workers[i]);

		if (err)
			die("pthread_create", err);
	}
	for (unsigned int i = 0; i < peer.threads; i++)
		pthread_join(workers[i].thread, NULL);
	report(workers);
	free(workers);
	return 0;
}
