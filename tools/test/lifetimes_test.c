// SPDX-License-Identifier: MIT
/*
 * The statements of kvblk_lifetimes(7), by their marks, on the pool of libkvblk-fake or another one.
 * Each test runs with a ring and with threads.
 *
 * usage: lifetimes_test [POOL]
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
#define MANY		64u
#define THREADS		4u

static const char *pool = "fake";
static struct kvblk *kv;

/* An operation with all that it points to. */
struct block {
	char key[24];
	struct kvblk_piece piece;
	struct kvblk_op op;
	unsigned char *data;
};

static void block_init(struct block *block, unsigned int number, uint8_t opcode)
{
	snprintf(block->key, sizeof(block->key), "lifetimes/%d/%u", (int)getpid(), number);
	block->data = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(block->data, MAP_FAILED);
	memset(block->data, (int)number, LEN);
	assert_int_equal(kvblk_prep_piece(&block->piece, NULL, (uintptr_t)block->data, LEN), 0);
	kvblk_prep_put(&block->op, block->key, strlen(block->key), &block->piece, 1);
	block->op.opcode = opcode;
}

static void block_free(struct block *block)
{
	munmap(block->data, LEN);
	kvblk_delete(kv, block->key, strlen(block->key));
}

static struct kvblk_queue *queue_new(unsigned int threads, uint32_t flags)
{
	const struct kvblk_queue_options options = {
		.size = sizeof(options), .depth = MANY, .threads = threads, .flags = flags,
	};
	struct kvblk_queue *queue;

	assert_int_equal(kvblk_queue_create(kv, &options, &queue), 0);
	return queue;
}

static void submit_all(struct kvblk_queue *queue, struct block *blocks, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		assert_int_equal(kvblk_queue_submit(queue, &blocks[i].op, 1, 0, &blocks[i]), 0);
}

/* Collect @nr completions, one for each of @blocks; free the memory of each at once. */
static void collect_all(struct kvblk_queue *queue, struct block *blocks, unsigned int nr, bool canceled)
{
	struct kvblk_completion done[8];
	bool seen[MANY] = { false };

	for (unsigned int left = nr; left;) {
		int got = kvblk_queue_wait(queue, done, 8, 1, 0);

		assert_in_range(got, 1, left);
		left -= (unsigned int)got;
		for (int i = 0; i < got; i++) {
			size_t number = (size_t)((struct block *)done[i].tag - blocks);

			assert_in_range(number, 0, nr - 1);
			assert_false(seen[number]);
			seen[number] = true;
			assert_int_equal(done[i].left, 0);
			if (done[i].res != (int)LEN && !(canceled && done[i].res == -ECANCELED))
				fail_msg("block %zu: %d", number, done[i].res);
			block_free(&blocks[number]);
		}
	}
	assert_int_equal(kvblk_queue_wait(queue, done, 8, 0, 0), 0);
}

static void blocks_init(struct block *blocks, unsigned int nr, uint8_t opcode)
{
	for (unsigned int i = 0; i < nr; i++)
		block_init(&blocks[i], i, opcode);
}

static void slow(const char *ms)
{
	setenv("KVBLK_FAKE_DELAY_MS", ms, 1);
}

static void fast(void)
{
	unsetenv("KVBLK_FAKE_DELAY_MS");
}

/* ---- handles ---- */

static struct kvblk_queue *moving;

static void *create(void *arg)
{
	moving = queue_new((unsigned int)(uintptr_t)arg, 0);
	return NULL;
}

static void *destroy(void *arg)
{
	kvblk_queue_destroy(moving);
	return NULL;
}

static void in_thread(void *(*function)(void *arg), void *arg)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, function, arg), 0);
	pthread_join(thread, NULL);
}

/* L1, L3: three threads create, use and destroy a queue; then the handle is closed. */
TEST(test_moves)
{
	static struct block blocks[MANY];

	for (uintptr_t threads = 0; threads <= THREADS; threads += THREADS) {
		in_thread(create, (void *)threads);
		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		submit_all(moving, blocks, MANY);
		collect_all(moving, blocks, MANY, false);
		in_thread(destroy, NULL);
	}
}

/* L2, F1: the child's close ends no lease; a released one has ended. */
TEST(test_leases)
{
	struct kvblk_prefix prefix = { .size = sizeof(prefix) };
	struct block block;
	int status;

	block_init(&block, 1, KVBLK_OP_PUT);
	assert_int_equal(kvblk_put(kv, block.key, strlen(block.key), block.data, LEN, NULL), 0);
	assert_int_equal(kvblk_lookup_prefix(kv, block.key, strlen(block.key), 1, 60000, &prefix), 0);
	assert_int_equal(prefix.nr_leading, 1);
	assert_int_equal(prefix.nr_leased, 1);
	if (!fork()) {
		size_t len = LEN;
		int err = kvblk_get(kv, block.key, strlen(block.key), block.data, &len, NULL);

		kvblk_close(kv);
		_exit(err || len != LEN);
	}
	wait(&status);
	assert_int_equal(status, 0);
	assert_int_equal(kvblk_lease_release(kv, prefix.lease), 0);
	assert_int_equal(kvblk_lease_release(kv, prefix.lease), -ENOENT);
	assert_int_equal(kvblk_lease_release(kv, 0), 0);
	block_free(&block);
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
		collect_all(queue, blocks, MANY, false);
		kvblk_queue_destroy(queue);
	}
}

/* M2, M4: each operation completes once, canceled or not; memory is freed at the completion. */
TEST(test_cancels)
{
	static struct block blocks[MANY];

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);

		slow("20");
		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		submit_all(queue, blocks, MANY);
		for (unsigned int i = 0; i < MANY; i += 2) {
			int err = kvblk_queue_cancel(queue, &blocks[i]);

			assert_true(!err || err == -ENOENT);
		}
		assert_int_equal(kvblk_queue_cancel(queue, &queue), -ENOENT);
		collect_all(queue, blocks, MANY, true);
		fast();
		kvblk_queue_destroy(queue);
	}
}

/* M3, M4: a queue that is stopped or destroyed under way. */
TEST(test_stops)
{
	static struct block blocks[MANY], late;

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);

		slow("20");
		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		submit_all(queue, blocks, MANY);
		kvblk_queue_stop(queue);
		block_init(&late, MANY, KVBLK_OP_PUT);
		assert_int_equal(kvblk_queue_submit(queue, &late.op, 1, 0, &late), -ECANCELED);
		collect_all(queue, blocks, MANY, true);
		kvblk_queue_destroy(queue);

		queue = queue_new(threads, 0);
		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		submit_all(queue, blocks, MANY);
		kvblk_queue_destroy(queue);
		fast();
		for (unsigned int i = 0; i < MANY; i++)
			block_free(&blocks[i]);
		block_free(&late);
	}
	kvblk_queue_destroy(NULL);
}

/* ---- threads ---- */

struct crowd {
	struct kvblk_queue *queue;
	unsigned int first;
	atomic_uint *nr_done;
};

static void *work(void *arg)
{
	const struct crowd *crowd = arg;
	struct block blocks[MANY / THREADS];
	struct kvblk_completion done;

	for (unsigned int i = 0; i < MANY / THREADS; i++)
		block_init(&blocks[i], crowd->first + i, KVBLK_OP_PUT);
	submit_all(crowd->queue, blocks, MANY / THREADS);
	/* collect anybody's completions: all threads stay until all are there */
	while (atomic_load(crowd->nr_done) < MANY) {
		int got = kvblk_queue_wait(crowd->queue, &done, 1, 0, 0);

		if (got == 1 && done.res == (int)LEN)
			atomic_fetch_add(crowd->nr_done, 1);
		else if (got)
			fail_msg("wait: %d, result %d", got, done.res);
	}
	for (unsigned int i = 0; i < MANY / THREADS; i++)
		block_free(&blocks[i]);
	return NULL;
}

/* T1: many threads on one queue. */
TEST(test_crowd)
{
	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);
		atomic_uint nr_done = 0;
		struct crowd crowds[THREADS];
		pthread_t ids[THREADS];

		for (unsigned int i = 0; i < THREADS; i++) {
			crowds[i] = (struct crowd){ queue, i * (MANY / THREADS), &nr_done };
			assert_int_equal(pthread_create(&ids[i], NULL, work, &crowds[i]), 0);
		}
		for (unsigned int i = 0; i < THREADS; i++)
			pthread_join(ids[i], NULL);
		assert_int_equal(nr_done, MANY);
		kvblk_queue_destroy(queue);
	}
}

static void *intrude(void *arg)
{
	struct kvblk_completion done;
	struct block block;

	block_init(&block, 0, KVBLK_OP_PUT);
	assert_int_equal(kvblk_queue_submit(arg, &block.op, 1, 0, NULL), -EEXIST);
	assert_int_equal(kvblk_queue_wait(arg, &done, 1, 0, 0), -EEXIST);
	block_free(&block);
	return NULL;
}

/* T2: a queue of one thread. */
TEST(test_one_thread)
{
	struct kvblk_queue *queue = queue_new(0, KVBLK_QUEUE_ONE_THREAD);

	in_thread(intrude, queue);
	kvblk_queue_destroy(queue);
}

static struct block left_behind[MANY];

static void *leave(void *arg)
{
	submit_all(arg, left_behind, MANY);
	return NULL;
}

/* T3: a thread that exits with operations in flight. */
TEST(test_exits)
{
	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);

		slow("5");
		blocks_init(left_behind, MANY, KVBLK_OP_PUT);
		in_thread(leave, queue);
		collect_all(queue, left_behind, MANY, !threads);
		fast();
		kvblk_queue_destroy(queue);
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

	slow("20");
	blocks_init(blocks, MANY, KVBLK_OP_PUT);
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
	collect_all(queue, blocks, MANY, false);
	fast();
	kvblk_queue_destroy(queue);
}

/* ---- fork ---- */

/* F2, F3: a child exits while operations of its parent are in flight. */
TEST(test_forks)
{
	static struct block blocks[MANY];
	struct kvblk_completion done;
	size_t len = LEN;
	int status;

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);

		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		submit_all(queue, blocks, 1);
		assert_int_equal(kvblk_queue_wait(queue, &done, 1, 1, 0), 1);
		memset(blocks[0].data, 0xaa, LEN);
		blocks[0].op.opcode = KVBLK_OP_GET;
		slow("20");
		submit_all(queue, blocks, MANY);
		if (!fork()) {
			/* the parent's get may have completed, but writes nothing here later */
			unsigned char first = blocks[0].data[0];

			usleep(100000);
			_exit(blocks[0].data[0] != first);
		}
		/* the get came to the parent's memory */
		while (kvblk_queue_drain(queue, 0) == -EINTR)
			;
		assert_int_equal(blocks[0].data[0], 0);
		assert_int_equal(blocks[0].data[LEN - 1], 0);
		collect_all(queue, blocks, MANY, false);
		fast();
		wait(&status);
		assert_int_equal(status, 0);
		kvblk_queue_destroy(queue);
	}
	/* the child's handle works, the parent's does after it */
	block_init(&blocks[0], 7, KVBLK_OP_PUT);
	if (!fork())
		_exit(kvblk_put(kv, blocks[0].key, strlen(blocks[0].key), blocks[0].data, LEN, NULL));
	wait(&status);
	assert_int_equal(status, 0);
	/* a fake pool has no blocks in common with its child */
	if (strcmp(pool, "fake") != 0)
		assert_int_equal(kvblk_get(kv, blocks[0].key, strlen(blocks[0].key), blocks[0].data, &len, NULL), 0);
	block_free(&blocks[0]);
}

/* ---- signals ---- */

static atomic_uint alarms;

static void on_alarm(int number)
{
	atomic_fetch_add(&alarms, 1);
}

static void alarms_on(void)
{
	const struct itimerval each = { { 0, 5000 }, { 0, 5000 } };
	const struct sigaction action = { .sa_handler = on_alarm };

	alarms = 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
}

static void alarms_off(void)
{
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };

	while (!alarms)
		pause();
	setitimer(ITIMER_REAL, &never, NULL);
}

/* S1: calls that wait for their own operations go on after a handler. */
TEST(test_uninterrupted)
{
	struct block blocks[4];
	struct kvblk_result results[4];
	struct kvblk_op ops[4];
	size_t len = LEN;

	blocks_init(blocks, 4, KVBLK_OP_PUT);
	for (int i = 0; i < 4; i++)
		ops[i] = blocks[i].op;
	slow("30");
	alarms_on();
	assert_int_equal(kvblk_submit(kv, ops, 4, results, 0), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(results[i].res, LEN);
	assert_int_equal(kvblk_get(kv, blocks[0].key, strlen(blocks[0].key), blocks[0].data, &len, NULL), 0);
	alarms_off();
	fast();
	for (int i = 0; i < 4; i++)
		block_free(&blocks[i]);
}

/* S2: a wait that a signal interrupts loses nothing. */
TEST(test_interrupted)
{
	static struct block blocks[MANY];
	struct kvblk_completion done[MANY];

	for (unsigned int threads = 0; threads <= THREADS; threads += THREADS) {
		struct kvblk_queue *queue = queue_new(threads, 0);
		unsigned int nr = 0;

		slow("30");
		blocks_init(blocks, MANY, KVBLK_OP_PUT);
		submit_all(queue, blocks, MANY);
		alarms_on();
		while (nr < MANY) {
			int got = kvblk_queue_wait(queue, done, MANY, MANY - nr, 0);

			if (got < 0)
				assert_int_equal(got, -EINTR);
			nr += got > 0 ? (unsigned int)got : 0;
		}
		alarms_off();
		fast();
		for (unsigned int i = 0; i < MANY; i++)
			block_free(&blocks[i]);
		kvblk_queue_destroy(queue);
	}
}

int main(int argc, char **argv)
{
	int failed;

	if (argc > 1)
		pool = argv[1];
	if (kvblk_open(pool, 0, &kv)) {
		fprintf(stderr, "no pool %s\n", pool);
		return 1;
	}
	failed = RUN_TESTS("lifetimes");
	kvblk_close(kv);
	return failed;
}
