// SPDX-License-Identifier: MIT
/*
 * The statements of kvblk_lifetimes(7), by their marks, on the pool of libkvblk-fake or of the module.
 * Each test runs with a ring and with threads.
 *
 * The fake has a copy of the pool in each process, cancels nothing when a thread exits, and its rings
 * ignore signals. So some statements are tested on the module alone, see on_module().
 *
 * usage: lifetimes_test [POOL DELAY]
 * The command DELAY MILLISECONDS sets the latency of the pool's device, and completes the I/O delayed
 * so far. The pool's lease_permille must not allow a file to lease 20 blocks of 64 KiB.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kvblk.h>

#include "kvblk_test.h"

#define LEN		(64u << 10)
#define MANY		32u
#define THREADS		4u
#define KEYS		40u
#define KEY_LEN		18u
#define MS		1000000ull
#define PATIENCE_MS	120000u
/* bytes in memory of completed operations, and of gets before the submission */
#define MINE		0x5a
#define UNREAD		0xaa

static const char *pool = "fake", *delay_command;
static struct kvblk *kv;
static bool delayed;

static bool on_module(void)
{
	return delay_command;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static uint64_t after_ms(unsigned int ms)
{
	return now_ns() + ms * MS;
}

/* Let each operation take @ms milliseconds. */
static void slow(unsigned int ms)
{
	char text[256];

	delayed = ms;
	if (on_module()) {
		snprintf(text, sizeof(text), "%s %u", delay_command, ms);
		assert_int_equal(system(text), 0);
	} else {
		snprintf(text, sizeof(text), "%u", ms);
		setenv("KVBLK_FAKE_DELAY_MS", text, 1);
	}
}

/* Complete the operations delayed by slow() or hold(), and do not delay later operations. */
static void fast(void)
{
	if (!delayed)
		return;
	if (on_module())
		slow(0);
	else
		unsetenv("KVBLK_FAKE_DELAY_MS");
	delayed = false;
}

/* Keep operations in flight until fast(); on the fake, for a short time. */
static void hold(void)
{
	slow(on_module() ? 600000 : 20);
}

/* ---- blocks ---- */

/* An operation with its key, piece and memory. */
struct block {
	char key[24];
	struct kvblk_piece piece;
	struct kvblk_op op;
	unsigned char *data;	/* NULL after the completion of a put */
};

static unsigned char *memory_new(int flags)
{
	unsigned char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static bool is_filled(const unsigned char *memory, int with)
{
	for (unsigned int i = 0; i < LEN; i++) {
		if (memory[i] != (unsigned char)with)
			return false;
	}
	return true;
}

static void block_init(struct block *block, unsigned int number)
{
	snprintf(block->key, sizeof(block->key), "lifetimes/%d/%u", (int)getpid(), number);
	block->data = memory_new(MAP_PRIVATE);
	memset(block->data, (int)number, LEN);
	assert_int_equal(kvblk_prep_piece(&block->piece, NULL, (uintptr_t)block->data, LEN), 0);
	kvblk_prep_put(&block->op, block->key, strlen(block->key), &block->piece, 1);
}

static void memory_free(struct block *block)
{
	munmap(block->data, LEN);
	block->data = NULL;
}

static void block_free(struct block *block)
{
	if (block->data)
		memory_free(block);
	kvblk_delete(kv, block->key, strlen(block->key));
}

static void blocks_free(struct block *blocks, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		block_free(&blocks[i]);
}

/* Prepare puts, or store blocks and prepare gets. */
static void blocks_init(struct block *blocks, unsigned int nr, uint8_t opcode)
{
	for (unsigned int i = 0; i < nr; i++) {
		struct block *block = &blocks[i];

		block_init(block, i);
		if (opcode != KVBLK_OP_GET)
			continue;
		assert_int_equal(kvblk_put(kv, block->key, strlen(block->key), block->data, LEN, NULL), 0);
		memset(block->data, UNREAD, LEN);
		kvblk_prep_get(&block->op, block->key, strlen(block->key), &block->piece, 1);
	}
}

static struct kvblk_queue *queue_of(struct kvblk *of, unsigned int threads, uint32_t flags)
{
	const struct kvblk_queue_options options = {
		.size = sizeof(options), .depth = MANY, .threads = threads, .flags = flags,
	};
	struct kvblk_queue *queue;

	assert_int_equal(kvblk_queue_create(of, &options, &queue), 0);
	return queue;
}

static struct kvblk_queue *queue_new(unsigned int threads, uint32_t flags)
{
	return queue_of(kv, threads, flags);
}

static void submit_all(struct kvblk_queue *queue, struct block *blocks, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		assert_int_equal(kvblk_queue_submit(queue, &blocks[i].op, 1, 0, &blocks[i]), 0);
}

/* Results that collect_all() accepts. */
enum wanted { WANT_WORK, WANT_WORK_OR_CANCEL, WANT_CANCEL };

/* Check a completion, then use the memory of the operation for something else. */
static void completed(struct block *block, unsigned int number, int res, enum wanted wanted)
{
	bool canceled = res == -ECANCELED;

	if ((canceled && wanted == WANT_WORK) || (!canceled && (res != (int)LEN || wanted == WANT_CANCEL)))
		fail_msg("block %u: %d", number, res);
	if (block->op.opcode != KVBLK_OP_GET) {
		memory_free(block);
		return;
	}
	if (!canceled)
		assert_true(is_filled(block->data, (int)number));
	memset(block->data, MINE, LEN);
}

/* Collect @nr completions, one for each of @blocks. Returns how many operations were canceled. */
static unsigned int collect_all(struct kvblk_queue *queue, struct block *blocks, unsigned int nr, enum wanted wanted)
{
	struct kvblk_completion done[8];
	bool seen[MANY] = { false };
	unsigned int nr_canceled = 0;

	for (unsigned int left = nr; left;) {
		int got = kvblk_queue_wait(queue, done, 8, 1, after_ms(PATIENCE_MS));

		assert_in_range(got, 1, left);
		left -= (unsigned int)got;
		for (int i = 0; i < got; i++) {
			size_t number = (size_t)((struct block *)done[i].tag - blocks);

			assert_in_range(number, 0, nr - 1);
			assert_false(seen[number]);
			seen[number] = true;
			assert_int_equal(done[i].left, 0);
			nr_canceled += done[i].res == -ECANCELED;
			completed(&blocks[number], (unsigned int)number, done[i].res, wanted);
		}
	}
	assert_int_equal(kvblk_queue_wait(queue, done, 8, 0, 0), 0);
	return nr_canceled;
}

/* Check that no device wrote to memory after the completion. */
static void check_mine(struct block *blocks, unsigned int nr)
{
	/* time for late writes; if too short, the test only proves less */
	usleep(100000);
	for (unsigned int i = 0; i < nr; i++) {
		if (blocks[i].data && !is_filled(blocks[i].data, MINE))
			fail_msg("block %u: its memory was written after the completion", i);
	}
}

/* ---- processes ---- */

/* Wait until a child exits, and check the status. */
static void child_ends(pid_t child, int wanted)
{
	int status;

	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, wanted);
}

/* Wait in a child until the parent writes or closes the pipe. */
static void child_waits(const int *pipe_ends)
{
	char byte;

	close(pipe_ends[1]);
	while (read(pipe_ends[0], &byte, 1) < 0 && errno == EINTR)
		;
}

/* ---- handles ---- */

static void in_thread(void *(*function)(void *arg), void *arg)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, function, arg), 0);
	pthread_join(thread, NULL);
}

static struct {
	struct kvblk *kv;
	struct kvblk_mem *mem;
	struct kvblk_queue *queue;
	unsigned char *memory;
	unsigned int threads;
} moving;

static void *create(void *arg)
{
	moving.memory = memory_new(MAP_PRIVATE);
	assert_int_equal(kvblk_open(pool, 0, &moving.kv), 0);
	assert_int_equal(kvblk_mem_register(moving.kv, moving.memory, LEN, NULL, &moving.mem), 0);
	moving.queue = queue_of(moving.kv, moving.threads, 0);
	return NULL;
}

/* Put and get a block in registered memory. */
static void use_mem(struct kvblk *of, struct kvblk_mem *mem, unsigned char *at, int with)
{
	const struct kvblk_put_options put = { .size = sizeof(put), .mem = mem };
	const struct kvblk_get_options get = { .size = sizeof(get), .mem = mem };
	size_t len = LEN;
	char key[24];

	snprintf(key, sizeof(key), "memory/%d/%d", (int)getpid(), with);
	memset(at, with, LEN);
	assert_int_equal(kvblk_put(of, key, strlen(key), at, LEN, &put), 0);
	memset(at, UNREAD, LEN);
	assert_int_equal(kvblk_get(of, key, strlen(key), at, &len, &get), 0);
	assert_int_equal(len, LEN);
	assert_true(is_filled(at, with));
	assert_int_equal(kvblk_delete(of, key, strlen(key)), 0);
}

static void *use(void *arg)
{
	use_mem(moving.kv, moving.mem, moving.memory, 1);
	submit_all(moving.queue, arg, MANY);
	collect_all(moving.queue, arg, MANY, WANT_WORK);
	return NULL;
}

static void *destroy(void *arg)
{
	kvblk_queue_destroy(moving.queue);
	kvblk_mem_unregister(moving.mem);
	kvblk_close(moving.kv);
	munmap(moving.memory, LEN);
	return NULL;
}

/* L1, L3: a first thread creates handles, a second thread uses, and a third thread frees the handles in order. */
TEST(test_moves)
{
	static struct block blocks[MANY];

	for (moving.threads = 0; moving.threads <= THREADS; moving.threads += THREADS) {
		in_thread(create, NULL);
		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		in_thread(use, blocks);
		in_thread(destroy, NULL);
		blocks_free(blocks, MANY);
	}
}

static char keys[KEYS * KEY_LEN + 1];

/* Store the blocks of @keys. */
static int leases_setup(void **state)
{
	unsigned char *data = memory_new(MAP_PRIVATE);

	for (unsigned int i = 0; i < KEYS; i++) {
		snprintf(&keys[i * KEY_LEN], KEY_LEN + 1, "lease-%05u-%06u", (unsigned int)getpid() % 100000, i);
		assert_int_equal(kvblk_put(kv, &keys[i * KEY_LEN], KEY_LEN, data, LEN, NULL), 0);
	}
	munmap(data, LEN);
	return 0;
}

static int leases_teardown(void **state)
{
	for (unsigned int i = 0; i < KEYS; i++)
		kvblk_delete(kv, &keys[i * KEY_LEN], KEY_LEN);
	return 0;
}

/* Lease the first half of @keys. Returns the lease, or 0. */
static uint64_t lease(struct kvblk *of, unsigned int ms)
{
	struct kvblk_prefix prefix = { .size = sizeof(prefix) };

	if (kvblk_lookup_prefix(of, keys, KEY_LEN, KEYS / 2, ms, &prefix) || !prefix.nr_leased)
		return 0;
	return prefix.lease;
}

/*
 * Returns how many blocks of the other half another open file can lease: on the module fewer while
 * there are other leases.
 */
static unsigned int leasable(void)
{
	struct kvblk_prefix prefix = { .size = sizeof(prefix) };
	struct kvblk *other;

	assert_int_equal(kvblk_open(pool, 0, &other), 0);
	assert_int_equal(kvblk_lookup_prefix(other, &keys[KEYS / 2 * KEY_LEN], KEY_LEN, KEYS / 2, 60000, &prefix), 0);
	kvblk_close(other);
	return prefix.nr_leased;
}

/* L2: a lease ends by release, by time, and with the last handle of the open file. */
TEST_WITH(test_leases, leases_setup, leases_teardown)
{
	const unsigned int all = leasable();
	int pipe_ends[2];
	struct kvblk *own;
	uint64_t id;
	pid_t child;

	assert_true(all);
	id = lease(kv, 60000);
	assert_true(id);
	assert_true(leasable() < all || !on_module());
	assert_int_equal(kvblk_lease_release(kv, id), 0);
	assert_int_equal(leasable(), all);
	assert_int_equal(kvblk_lease_release(kv, id), -ENOENT);
	assert_int_equal(kvblk_lease_release(kv, 0), 0);

	id = lease(kv, 100);
	assert_true(id);
	usleep(150000);
	/* the fake's leases have no time */
	assert_int_equal(kvblk_lease_release(kv, id), on_module() ? -ENOENT : 0);

	assert_int_equal(kvblk_open(pool, 0, &own), 0);
	assert_true(lease(own, 60000));
	assert_int_equal(pipe(pipe_ends), 0);
	child = fork();
	if (!child) {
		child_waits(pipe_ends);
		_exit(0);
	}
	kvblk_close(own);
	/* the child has the file open */
	assert_true(leasable() < all || !on_module());
	close(pipe_ends[1]);
	child_ends(child, 0);
	close(pipe_ends[0]);
	assert_int_equal(leasable(), all);
}

/* L4: no descriptor survives an exec. */
TEST(test_descriptors)
{
	struct kvblk_queue *queues[] = { queue_new(0, 0), queue_new(THREADS, 0) };
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	unsigned int nr = 0;
	char link[64], target[256];
	ssize_t len;

	for (int i = 0; i < 2; i++)
		assert_true(kvblk_queue_eventfd(queues[i]) >= 0);
	assert_true(fcntl(kvblk_fd(kv), F_GETFD) & FD_CLOEXEC);
	while ((entry = readdir(dir))) {
		snprintf(link, sizeof(link), "/proc/self/fd/%.16s", entry->d_name);
		len = readlink(link, target, sizeof(target) - 1);
		if (len < 0)
			continue;
		target[len] = '\0';
		if (!strstr(target, "io_uring") && !strstr(target, "eventfd"))
			continue;
		assert_true(fcntl(atoi(entry->d_name), F_GETFD) & FD_CLOEXEC);
		nr++;
	}
	closedir(dir);
	assert_true(nr >= 2);
	for (int i = 0; i < 2; i++)
		kvblk_queue_destroy(queues[i]);
}

/* ---- memory ---- */

/* M1: operations are copied. */
TEST(test_copies)
{
	static struct block blocks[MANY];

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);

		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		for (unsigned int i = 0; i < MANY; i++) {
			struct kvblk_op op = blocks[i].op;

			assert_int_equal(kvblk_queue_submit(queue, &op, 1, 0, &blocks[i]), 0);
			memset(&op, 0xff, sizeof(op));
		}
		collect_all(queue, blocks, MANY, WANT_WORK);
		kvblk_queue_destroy(queue);
		blocks_free(blocks, MANY);
	}
}

static void cancel_half(unsigned int threads, uint8_t opcode)
{
	struct kvblk_queue *queue = queue_new(threads, 0);
	static struct block blocks[MANY];
	unsigned int nr_found = 0;

	blocks_init(blocks, MANY, opcode);
	hold();
	submit_all(queue, blocks, MANY);
	for (unsigned int i = 0; i < MANY; i += 2) {
		int err = kvblk_queue_cancel(queue, &blocks[i]);

		assert_true(!err || err == -ENOENT);
		nr_found += !err;
	}
	assert_int_equal(kvblk_queue_cancel(queue, &queue), -ENOENT);
	assert_true(nr_found == MANY / 2 || !on_module());
	if (on_module())
		fast();
	assert_in_range(collect_all(queue, blocks, MANY, WANT_WORK_OR_CANCEL), 0, MANY / 2);
	fast();
	check_mine(blocks, MANY);
	kvblk_queue_destroy(queue);
	blocks_free(blocks, MANY);
}

/* M2, M4: each operation completes once, canceled or not; then no device uses the memory. */
TEST(test_cancels)
{
	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		cancel_half(threads, KVBLK_OP_PUT);
		cancel_half(threads, KVBLK_OP_GET);
	}
}

/* M3, M4: stop and destroy a queue with operations in flight. */
TEST(test_stops)
{
	static struct block blocks[MANY], late;

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);

		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		block_init(&late, MANY);
		hold();
		submit_all(queue, blocks, MANY);
		kvblk_queue_stop(queue);
		assert_int_equal(kvblk_queue_submit(queue, &late.op, 1, 0, &late), -ECANCELED);
		if (on_module())
			fast();
		collect_all(queue, blocks, MANY, WANT_WORK_OR_CANCEL);
		fast();
		kvblk_queue_destroy(queue);
		blocks_free(blocks, MANY);
		block_free(&late);

		queue = queue_new(threads, 0);
		blocks_init(blocks, MANY, KVBLK_OP_GET);
		slow(50);
		submit_all(queue, blocks, MANY);
		kvblk_queue_destroy(queue);
		for (unsigned int i = 0; i < MANY; i++)
			memset(blocks[i].data, MINE, LEN);
		check_mine(blocks, MANY);
		fast();
		blocks_free(blocks, MANY);
	}
	kvblk_queue_destroy(NULL);
}

/* ---- threads ---- */

struct crowd {
	struct kvblk_queue *queue;
	struct kvblk_mem *mem;
	unsigned char *memory;	/* of this thread, in @mem */
	unsigned int first;
	atomic_uint *nr_done;
};

static void *work(void *arg)
{
	const struct crowd *crowd = arg;
	struct block blocks[MANY / THREADS];
	struct kvblk_completion done;

	for (unsigned int i = 0; i < MANY / THREADS; i++)
		block_init(&blocks[i], crowd->first + i);
	for (unsigned int i = 0; i < 4; i++)
		use_mem(kv, crowd->mem, crowd->memory, (int)(crowd->first + i));
	submit_all(crowd->queue, blocks, MANY / THREADS);
	/* stay until all are complete, because an exit would cancel operations */
	while (atomic_load(crowd->nr_done) < MANY) {
		int got = kvblk_queue_wait(crowd->queue, &done, 1, 1, 0);

		if (got == 1 && done.res == (int)LEN)
			atomic_fetch_add(crowd->nr_done, 1);
		else if (got)
			fail_msg("wait: %d, result %d", got, done.res);
	}
	for (unsigned int i = 0; i < MANY / THREADS; i++)
		block_free(&blocks[i]);
	return NULL;
}

/* T1: many threads share a handle, registered memory and a queue. */
TEST(test_crowd)
{
	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);
		atomic_uint nr_done = 0;
		struct crowd crowds[THREADS];
		pthread_t ids[THREADS];
		struct kvblk_mem *mem;

		assert_int_equal(kvblk_mem_alloc(kv, "host", THREADS * LEN, NULL, &mem), 0);
		for (unsigned int i = 0; i < THREADS; i++) {
			crowds[i] = (struct crowd){
				.queue = queue, .mem = mem, .first = i * (MANY / THREADS), .nr_done = &nr_done,
				.memory = (unsigned char *)kvblk_mem_addr(mem) + i * LEN,
			};
			assert_int_equal(pthread_create(&ids[i], NULL, work, &crowds[i]), 0);
		}
		for (unsigned int i = 0; i < THREADS; i++)
			pthread_join(ids[i], NULL);
		assert_int_equal(nr_done, MANY);
		kvblk_queue_destroy(queue);
		kvblk_mem_unregister(mem);
	}
}

struct intruder {
	struct kvblk_queue *queue;
	struct block *blocks;	/* MANY in flight */
	bool deferred;		/* @blocks have not begun */
};

static void *intrude(void *arg)
{
	const struct intruder *intruder = arg;
	struct kvblk_queue *queue = intruder->queue;
	struct kvblk_completion done;
	struct block block;
	int err;

	block_init(&block, MANY);
	assert_int_equal(kvblk_queue_submit(queue, &block.op, 1, 0, NULL), -EEXIST);
	assert_int_equal(kvblk_queue_wait(queue, &done, 1, 0, 0), -EEXIST);
	assert_int_equal(kvblk_queue_drain(queue, 0), -EEXIST);
	assert_int_equal(kvblk_queue_eventfd(queue), -EEXIST);
	memory_free(&block);
	assert_int_equal(kvblk_queue_cancel(queue, &block), -ENOENT);
	err = kvblk_queue_cancel(queue, &intruder->blocks[MANY - 1]);
	assert_true(!err || (err == -ENOENT && (!on_module() || intruder->deferred)));
	kvblk_queue_stop(queue);
	return NULL;
}

static void one_thread(unsigned int threads, uint32_t flags)
{
	static struct block blocks[MANY];
	struct kvblk_queue *queue = queue_new(threads, KVBLK_QUEUE_ONE_THREAD | flags);
	struct intruder intruder = { queue, blocks, .deferred = flags && !threads };
	unsigned int nr_canceled;

	blocks_init(blocks, MANY, KVBLK_OP_PUT);
	hold();
	submit_all(queue, blocks, MANY);
	in_thread(intrude, &intruder);
	/* what the stop has missed is canceled as soon as it begins */
	if (intruder.deferred)
		kvblk_queue_drain(queue, after_ms(50));
	if (on_module())
		fast();
	nr_canceled = collect_all(queue, blocks, MANY, WANT_WORK_OR_CANCEL);
	assert_true(nr_canceled || !on_module());
	fast();
	/* the other thread has stopped the queue */
	block_init(&blocks[0], 0);
	assert_int_equal(kvblk_queue_submit(queue, &blocks[0].op, 1, 0, NULL), -ECANCELED);
	kvblk_queue_destroy(queue);
	blocks_free(blocks, MANY);
}

/* T2: other threads may only cancel and stop a queue with KVBLK_QUEUE_ONE_THREAD. */
TEST(test_one_thread)
{
	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		one_thread(threads, 0);
		one_thread(threads, KVBLK_QUEUE_DEFER);
	}
}

struct leaver {
	struct kvblk_queue *queue;
	struct block *blocks;
};

static void *leave(void *arg)
{
	const struct leaver *leaver = arg;

	submit_all(leaver->queue, leaver->blocks, MANY);
	return NULL;
}

static void exit_early(unsigned int threads, uint8_t opcode)
{
	struct kvblk_queue *queue = queue_new(threads, 0);
	static struct block blocks[MANY];
	struct leaver leaver = { queue, blocks };
	struct kvblk_completion done;

	blocks_init(blocks, MANY, opcode);
	hold();
	in_thread(leave, &leaver);
	if (!on_module()) {
		collect_all(queue, blocks, MANY, WANT_WORK);
		fast();
	} else if (threads) {
		/* a queue with threads is not affected */
		assert_int_equal(kvblk_queue_wait(queue, &done, 1, 0, 0), 0);
		fast();
		collect_all(queue, blocks, MANY, WANT_WORK);
	} else {
		/* a drain waits for canceled operations, too */
		assert_int_equal(kvblk_drain(kv, after_ms(20)), -ETIME);
		fast();
		for (unsigned int i = 0; i < MANY; i++) {
			assert_int_equal(kvblk_queue_wait(queue, &done, 1, 1, after_ms(PATIENCE_MS)), 1);
			assert_int_equal(done.res, -ECANCELED);
		}
		assert_int_equal(kvblk_drain(kv, 0), 0);
		for (unsigned int i = 0; i < MANY; i++)
			memset(blocks[i].data, MINE, LEN);
		check_mine(blocks, MANY);
	}
	kvblk_queue_destroy(queue);
	blocks_free(blocks, MANY);
}

/* T3: a thread exits with operations in flight. */
TEST(test_exits)
{
	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		exit_early(threads, KVBLK_OP_PUT);
		exit_early(threads, KVBLK_OP_GET);
	}
}

/* T4: a signal reaches only the program's threads. */
TEST(test_masks)
{
	struct kvblk_queue *queue = queue_new(THREADS, 0);
	static struct block blocks[MANY];
	const struct dirent *entry;
	unsigned int nr = 0;
	char path[64], line[128];
	unsigned long long blocked;
	DIR *dir;

	blocks_init(blocks, MANY, KVBLK_OP_PUT);
	hold();
	submit_all(queue, blocks, MANY);
	dir = opendir("/proc/self/task");
	while ((entry = readdir(dir))) {
		FILE *file;

		if (entry->d_name[0] == '.' || atoi(entry->d_name) == (int)getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%.16s/status", entry->d_name);
		file = fopen(path, "re");
		while (file && fgets(line, sizeof(line), file)) {
			if (sscanf(line, "SigBlk: %llx", &blocked) != 1)
				continue;
			assert_true(blocked >> (SIGTERM - 1) & 1 && blocked >> (SIGALRM - 1) & 1);
			nr++;
		}
		if (file)
			fclose(file);
	}
	closedir(dir);
	/* a sanitizer may have a thread of its own */
	assert_true(nr);
	if (on_module())
		fast();
	collect_all(queue, blocks, MANY, WANT_WORK);
	fast();
	kvblk_queue_destroy(queue);
	blocks_free(blocks, MANY);
}

/* ---- fork ---- */

/* A batch with a cookie, submitted by another thread. */
struct named {
	struct block block;
	struct kvblk_result result;
	int err;
};

static void *submit_named(void *arg)
{
	struct named *named = arg;

	named->err = kvblk_submit(kv, &named->block.op, 1, &named->result, 0);
	return NULL;
}

/* Cancel the operations with @cookie as soon as there are any. Returns how many there were. */
static unsigned int child_cancels(uint64_t cookie)
{
	uint64_t end = after_ms(PATIENCE_MS);
	unsigned int nr = 0;

	while (!nr && now_ns() < end)
		kvblk_cancel(kv, cookie, &nr);
	return nr;
}

/* F1: a child shares the blocks, leases and cookies of the parent, and closes the handle without effect. */
TEST_WITH(test_children, leases_setup, leases_teardown)
{
	const unsigned int all = leasable();
	struct named named = { 0 };
	struct block block;
	pthread_t thread;
	size_t len = LEN;
	uint64_t id;
	pid_t child;

	id = lease(kv, 60000);
	assert_true(id);
	child = fork();
	if (!child) {
		unsigned char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		int err = kvblk_get(kv, keys, KEY_LEN, memory, &len, NULL);

		kvblk_close(kv);
		_exit(err || len != LEN);
	}
	child_ends(child, 0);
	assert_true(leasable() < all || !on_module());
	if (on_module()) {
		child = fork();
		if (!child)
			_exit(kvblk_lease_release(kv, id) != 0);
		child_ends(child, 0);
		assert_int_equal(kvblk_lease_release(kv, id), -ENOENT);
	} else {
		assert_int_equal(kvblk_lease_release(kv, id), 0);
	}
	assert_int_equal(leasable(), all);

	/* the handle works in the child, and later in the parent */
	block_init(&block, 7);
	child = fork();
	if (!child)
		_exit(kvblk_put(kv, block.key, strlen(block.key), block.data, LEN, NULL) != 0);
	child_ends(child, 0);
	assert_int_equal(kvblk_get(kv, block.key, strlen(block.key), block.data, &len, NULL), on_module() ? 0 : -ENOENT);
	block_free(&block);
	if (!on_module())
		return;

	blocks_init(&named.block, 1, KVBLK_OP_GET);
	named.block.op.cookie = 4711;
	hold();
	assert_int_equal(pthread_create(&thread, NULL, submit_named, &named), 0);
	child = fork();
	if (!child)
		_exit(child_cancels(4711) != 1);
	child_ends(child, 0);
	fast();
	pthread_join(thread, NULL);
	assert_int_equal(named.err, 0);
	assert_true(named.result.res == -ECANCELED || named.result.res == (int)LEN);
	block_free(&named.block);
}

/* F2, F3: children exit and exec while gets of their parent are in flight. */
TEST(test_forks)
{
	static struct block blocks[MANY];

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);
		struct kvblk_completion done;
		pid_t copy, child;
		int pipe_ends[2];

		blocks_init(blocks, MANY, KVBLK_OP_GET);
		assert_int_equal(pipe(pipe_ends), 0);
		hold();
		submit_all(queue, blocks, MANY);
		copy = fork();
		if (!copy) {
			/* a get of the fake may have completed, but writes nothing here later */
			unsigned char first = on_module() ? UNREAD : blocks[MANY - 1].data[0];

			child_waits(pipe_ends);
			_exit(blocks[MANY - 1].data[0] != first || blocks[MANY - 1].data[LEN - 1] != first);
		}
		child = fork();
		if (!child)
			_exit(0);
		child_ends(child, 0);
		child = fork();
		if (!child) {
			execl("/bin/sh", "sh", "-c", "exit 3", NULL);
			_exit(1);
		}
		child_ends(child, 3 << 8);
		if (on_module()) {
			/* the children neither ended the gets, nor waited for the device */
			assert_int_equal(kvblk_queue_wait(queue, &done, 1, 0, 0), 0);
			fast();
		}
		/* completed() checks the data in the parent's memory */
		collect_all(queue, blocks, MANY, WANT_WORK);
		fast();
		close(pipe_ends[1]);
		child_ends(copy, 0);
		close(pipe_ends[0]);
		kvblk_queue_destroy(queue);
		blocks_free(blocks, MANY);
	}
}

/* ---- signals ---- */

static atomic_uint alarms;

static void on_alarm(int number)
{
	atomic_fetch_add(&alarms, 1);
}

/* Interrupt this process each 10 ms. */
static void alarms_on(void)
{
	const struct itimerval each = { { 0, 10000 }, { 0, 10000 } };
	const struct sigaction action = { .sa_handler = on_alarm };

	alarms = 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
}

static void alarms_off(void)
{
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };

	setitimer(ITIMER_REAL, &never, NULL);
	assert_true(alarms);
}

/* S1: signals do not end calls early. */
TEST(test_uninterrupted)
{
	struct block blocks[5];
	struct kvblk_result results[4];
	struct kvblk_op ops[4];
	size_t len = LEN;
	uint64_t start;

	blocks_init(blocks, 5, KVBLK_OP_PUT);
	for (int i = 0; i < 4; i++)
		ops[i] = blocks[i].op;
	slow(100);
	start = now_ns();
	alarms_on();
	assert_int_equal(kvblk_submit(kv, ops, 4, results, 0), 0);
	alarms_off();
	assert_true(now_ns() - start >= 100 * MS);
	for (int i = 0; i < 4; i++)
		assert_int_equal(results[i].res, LEN);

	alarms_on();
	assert_int_equal(kvblk_put(kv, blocks[4].key, strlen(blocks[4].key), blocks[4].data, LEN, NULL), 0);
	alarms_off();

	start = now_ns();
	alarms_on();
	assert_int_equal(kvblk_get(kv, blocks[0].key, strlen(blocks[0].key), blocks[1].data, &len, NULL), 0);
	alarms_off();
	assert_true(now_ns() - start >= 100 * MS);
	assert_true(is_filled(blocks[1].data, 0));
	fast();
	blocks_free(blocks, 5);
}

/* S2: interrupted waits lose no completion. */
TEST(test_interrupted)
{
	static struct block blocks[MANY];
	struct kvblk_completion done[MANY];

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);
		unsigned int nr = 0;

		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		if (on_module())
			hold();
		else
			slow(50);
		submit_all(queue, blocks, MANY);
		alarms_on();
		/* rings of the fake ignore signals */
		if (threads || on_module()) {
			int got = kvblk_queue_wait(queue, done, MANY, MANY, 0);

			assert_true(got == -EINTR || (got > 0 && got < (int)MANY && !on_module()));
			nr += got > 0 ? (unsigned int)got : 0;
			assert_int_equal(kvblk_queue_drain(queue, 0), -EINTR);
		}
		if (on_module()) {
			assert_int_equal(kvblk_drain(kv, 0), -EINTR);
			alarms_off();
			/* a command's process is not started while signals come */
			fast();
			alarms_on();
		}
		while (nr < MANY) {
			int got = kvblk_queue_wait(queue, done, MANY, MANY - nr, 0);

			if (got < 0)
				assert_int_equal(got, -EINTR);
			for (int i = 0; i < got; i++)
				assert_int_equal(done[i].res, LEN);
			nr += got > 0 ? (unsigned int)got : 0;
		}
		while (!alarms)
			pause();
		alarms_off();
		fast();
		assert_int_equal(kvblk_queue_drain(queue, 0), 0);
		assert_int_equal(kvblk_drain(kv, 0), 0);
		kvblk_queue_destroy(queue);
		blocks_free(blocks, MANY);
	}
}

/* Lease blocks, get a block into shared memory, and wait for SIGKILL. Returns 1 after an error. */
static int child_gets(struct block *block, unsigned int threads, int ready)
{
	const struct kvblk_queue_options options = { .size = sizeof(options), .threads = threads };
	struct kvblk_queue *queue;
	struct kvblk *own;

	if (kvblk_open(pool, 0, &own) || !lease(own, 60000) || kvblk_queue_create(own, &options, &queue))
		return 1;
	/* map the pages in this process, or else a fault would delay the get */
	memset(block->data, UNREAD, LEN);
	if (kvblk_queue_submit(queue, &block->op, 1, 0, NULL) || write(ready, "", 1) != 1)
		return 1;
	for (;;)
		pause();
}

/* S3: a killed process leaves no lease, and no device writes to shared memory. */
TEST_WITH(test_kills, leases_setup, leases_teardown)
{
	const unsigned int all = leasable();

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		uint64_t end = after_ms(PATIENCE_MS);
		struct block block;
		int pipe_ends[2];
		pid_t child;
		char byte;

		blocks_init(&block, 1, KVBLK_OP_GET);
		memory_free(&block);
		block.data = memory_new(MAP_SHARED);
		kvblk_prep_piece(&block.piece, NULL, (uintptr_t)block.data, LEN);
		assert_int_equal(pipe(pipe_ends), 0);
		slow(500);
		child = fork();
		if (!child) {
			close(pipe_ends[0]);
			_exit(child_gets(&block, threads, pipe_ends[1]));
		}
		close(pipe_ends[1]);
		assert_int_equal(read(pipe_ends[0], &byte, 1), 1);
		assert_true(leasable() < all || !on_module());
		kill(child, SIGKILL);
		child_ends(child, SIGKILL);
		close(pipe_ends[0]);
		memset(block.data, MINE, LEN);
		/* complete a get still in flight */
		fast();
		check_mine(&block, 1);
		/* wait, because the kernel frees a ring and the files registered there after the exit */
		while (leasable() != all) {
			assert_true(now_ns() < end);
			usleep(10000);
		}
		block_free(&block);
	}
}

int main(int argc, char **argv)
{
	int failed;

	if (argc > 2) {
		pool = argv[1];
		delay_command = argv[2];
	}
	if (kvblk_open(pool, 0, &kv)) {
		fprintf(stderr, "no pool %s\n", pool);
		return 1;
	}
	failed = RUN_TESTS("lifetimes");
	kvblk_close(kv);
	return failed;
}
