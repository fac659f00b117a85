// SPDX-License-Identifier: GPL-2.0
/*
 * Callers whose memory faults: a user-space pager (userfaultfd) delays its answer. Such a caller
 * delays only itself, and can be killed.
 *
 * usage: guest_pager_stall NODE [TEST...] | guest_pager_stall NODE hold lookup|results|put|landed|things
 *
 * storm_of_deletes: KV_STORMS threads delete KV_STORM_BLOCKS times 1024 blocks each. "hold"
 * stalls one caller, prints "holding", and continues at SIGUSR1.
 */
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kv_test.h"
#include "kv_io.h"

#define LEN	65536u
#define ODD	50001u
#define FIRST	6000000ull	/* first key */

static const char *node;
static int fd, pager;
static uint8_t *absent;		/* 4 * LEN bytes that fault */
static uint8_t *bytes;

static void pager_start(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	pager = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (pager < 0 || ioctl(pager, UFFDIO_API, &api))
		kv_die("userfaultfd");
	absent = mmap(NULL, 4 * LEN, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = kv_addr(absent);
	reg.range.len = 4 * LEN;
	if (absent == MAP_FAILED || ioctl(pager, UFFDIO_REGISTER, &reg))
		kv_die("UFFDIO_REGISTER");
}

/* Provide the faulting memory: @bytes, repeated. */
static void pager_answer(void)
{
	for (size_t i = 0; i < 4; i++) {
		struct uffdio_copy copy = {
			.dst = kv_addr(absent + i * LEN),
			.src = kv_addr(bytes),
			.len = LEN,
		};

		if (ioctl(pager, UFFDIO_COPY, &copy))
			kv_die("UFFDIO_COPY");
	}
}

static void pager_stop(void)
{
	munmap(absent, 4 * LEN);
	close(pager);
}

static struct batch {
	pthread_t thread;
	struct kv_key keys[8];
	struct kvblk_piece pieces[8];
	struct kvblk_op ops[8];
	struct kvblk_result res[8];
	unsigned int nr;
	int err;
	atomic_bool over;
} batch;

static void batch_op(uint8_t opcode, unsigned int nr, const void *buf, size_t len)
{
	unsigned int i = batch.nr++;

	batch.keys[i] = kv_key(FIRST + nr);
	batch.pieces[i] = kv_piece(buf, len);
	batch.ops[i] = kv_op(opcode, &batch.keys[i], buf ? &batch.pieces[i] : NULL,
			     !!buf);
}

static void *batch_run(void *arg)
{
	batch.err = kv_submit(fd, batch.ops, batch.res, batch.nr, 0);
	batch.over = true;
	return NULL;
}

static void batch_start(void)
{
	batch.over = false;
	if (pthread_create(&batch.thread, NULL, batch_run, NULL))
		kv_die("pthread_create");
}

/* Join the thread; check that each result is the operation's length, 0 for deletes. */
static void batch_check(void)
{
	pthread_join(batch.thread, NULL);
	ASSERT_EQ(batch.err, 0, "the batch");
	for (unsigned int i = 0; i < batch.nr; i++)
		EXPECT_EQ(batch.res[i].res,
			  batch.pieces[i].addr ? batch.pieces[i].length : 0,
			  "operation %u", i);
	batch.nr = 0;
}

static void put_all(const unsigned int *nrs, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		ASSERT_EQ(kv_put(fd, FIRST + nrs[i], bytes, LEN).res, LEN, "put");
}

/* Get block @nr while another caller is stalled. Returns true on a hit. */
static bool there(unsigned int nr, uint8_t *buf)
{
	return kv_get(fd, FIRST + nr, buf, LEN).res >= (int)ODD;
}

static bool becomes_there(unsigned int nr)
{
	uint64_t end = kv_now_ms() + 60000 * kv_slow();
	uint8_t *buf = kv_alloc(LEN);

	while (!there(nr, buf))
		if (kv_now_ms() > end)
			return false;
	return true;
}

/* Operations submitted before the faulting one are visible to all callers. */
TEST(stalled_put)
{
	static const unsigned int old[] = { 10, 11, 12, 13 };
	uint8_t *buf = kv_alloc(2 * LEN);

	put_all(old, 4);
	pager_start();
	batch_op(KVBLK_OP_PUT, 0, bytes, LEN);
	batch_op(KVBLK_OP_PUT, 1, bytes, ODD);
	batch_op(KVBLK_OP_PUT, 2, absent, LEN);
	batch_op(KVBLK_OP_PUT, 3, absent + LEN + 1, ODD);
	batch_op(KVBLK_OP_GET, 10, absent + 2 * LEN, LEN);
	batch_op(KVBLK_OP_GET, 11, buf, LEN);
	batch_op(KVBLK_OP_DELETE, 12, NULL, 0);
	batch_start();
	EXPECT(becomes_there(0), "a put before the stall is found");
	EXPECT(becomes_there(1), "a bounced put before the stall is found");
	EXPECT(there(13, buf + LEN), "others' blocks are found");
	EXPECT_EQ(kv_put(fd, FIRST + 20, bytes, LEN).res, LEN, "another's put");
	EXPECT_EQ(kv_delete(fd, FIRST + 13).res, 0, "another's delete");
	EXPECT(!batch.over, "the batch is stalled meanwhile");
	pager_answer();
	batch_check();
	EXPECT(!memcmp(absent + 2 * LEN, bytes, LEN), "bytes of a get into it");
	EXPECT(becomes_there(2), "a put out of it");
	EXPECT_EQ(kv_size(fd, FIRST + 12), 0, "the delete behind it");
	pager_stop();
	for (unsigned int i = 0; i < 21; i++)
		kv_delete(fd, FIRST + i);
}

/* Only the final copy of a bounced get faults. */
TEST(stalled_get)
{
	static const unsigned int old[] = { 10, 11 };

	put_all(old, 2);
	pager_start();
	batch_op(KVBLK_OP_GET, 10, absent + 1, LEN);
	batch_op(KVBLK_OP_PUT, 0, bytes, LEN);
	batch_op(KVBLK_OP_DELETE, 11, NULL, 0);
	batch_start();
	EXPECT(becomes_there(0), "a put of the same batch is found");
	for (uint64_t end = kv_now_ms() + 60000 * kv_slow();
	     kv_size(fd, FIRST + 11) && kv_now_ms() < end;)
		;
	EXPECT_EQ(kv_size(fd, FIRST + 11), 0, "a delete of the same batch");
	EXPECT_EQ(kv_delete(fd, FIRST + 10).res, 0, "a delete of what it got");
	EXPECT(!batch.over, "the batch is stalled meanwhile");
	pager_answer();
	batch_check();
	EXPECT(!memcmp(absent + 1, bytes, LEN), "bytes of the get");
	pager_stop();
	kv_delete(fd, FIRST);
}

/*
 * A get's copy is cut short by a fault, and the block is deleted before it is looked up again:
 * the miss leaves none of the block's bytes. With KV_DRAM the copy is from DRAM, which is when a
 * get is looked up again.
 */
TEST(stalled_copy)
{
	uint8_t *block = kv_alloc_host(LEN);
	struct uffdio_copy first = { .src = kv_addr(block), .len = PAGE };
	struct uffdio_zeropage rest = { .range.len = 4 * LEN - PAGE };
	struct pollfd fault = { .events = POLLIN };
	struct uffd_msg msg;
	int res;

	kv_fill(kv_seed(FIRST + 10, 0), 0, block, LEN);
	if (!kv_size(fd, FIRST + 10))
		ASSERT_EQ(kv_put(fd, FIRST + 10, block, LEN).res, LEN, "put");
	pager_start();
	memset(block, KV_UNTOUCHED, PAGE);
	first.dst = kv_addr(absent);
	ASSERT(!ioctl(pager, UFFDIO_COPY, &first), "a first page");
	batch_op(KVBLK_OP_GET, 10, absent, LEN);
	batch_start();
	fault.fd = pager;
	ASSERT_EQ(poll(&fault, 1, (int)(60000 * kv_slow())), 1, "a fault");
	ASSERT_EQ(read(pager, &msg, sizeof(msg)), sizeof(msg), "its message");
	EXPECT_EQ(kv_delete(fd, FIRST + 10).res, 0, "delete of what is copied");
	rest.range.start = kv_addr(absent + PAGE);
	ASSERT(!ioctl(pager, UFFDIO_ZEROPAGE, &rest), "the other pages");
	pthread_join(batch.thread, NULL);
	batch.nr = 0;
	res = batch.res[0].res;
	EXPECT(res == -ENOENT || (res == (int)LEN && !getenv("KV_DRAM")), "the get: %d", res);
	if (res == (int)LEN)
		EXPECT_EQ(kv_wrong(kv_seed(FIRST + 10, 0), 0, absent, LEN), -1, "its bytes");
	else
		EXPECT_EQ(kv_leaked(absent, LEN), -1, "bytes of a miss");
	pager_stop();
	munmap(block, LEN);
}

TEST(killed)
{
	static const unsigned int old[] = { 10 };

	put_all(old, 1);
	for (unsigned int round = 0; round < 4; round++) {
		uint64_t end;
		pid_t child = fork();
		int status;

		if (!child) {
			fd = kv_open(node);
			kv_ring_forget();
			/* a write to a page shared by fork() faults, too */
			bytes = kv_alloc(LEN);
			pager_start();
			batch_op(KVBLK_OP_PUT, 0, bytes, LEN);
			if (round & 1)
				batch_op(KVBLK_OP_GET, 10, absent + 1, LEN);
			else
				batch_op(KVBLK_OP_GET, 10, absent, LEN);
			if (round & 2)
				batch_op(KVBLK_OP_PUT, 1, absent, LEN);
			batch_run(NULL);
			_exit(1);
		}
		EXPECT(becomes_there(0), "the stalled one's put");
		usleep(50000);
		kill(child, SIGKILL);
		for (end = kv_now_ms() + 60000 * kv_slow();
		     !waitpid(child, &status, WNOHANG) && kv_now_ms() < end;)
			usleep(1000);
		ASSERT(kv_now_ms() < end, "the killed one is gone");
		EXPECT(WIFSIGNALED(status), "it was killed, not over: %#x", status);
		EXPECT_EQ(kv_delete(fd, FIRST).res, 0, "nothing holds its block");
	}
	EXPECT_EQ(kv_delete(fd, FIRST + 10).res, 0, "nor what it got");
}

/* Operations of a ring that have completed, while their task does not reap. */

static struct landed {
	struct kv_key keys[5];
	struct kvblk_piece pieces[5];
	struct kvblk_op ops[5];
	struct kvblk_result res[5];
	uint8_t *room;		/* 4 * LEN bytes */
} landed;

/*
 * Submit puts of blocks 0 and 1 and three gets of block 10. Their task work runs when the ring is
 * reaped.
 */
static struct io_uring landed_submit(unsigned int setup)
{
	struct landed *l = &landed;
	struct io_uring ring;
	unsigned int i;

	if (io_uring_queue_init(8, &ring, IORING_SETUP_SQE128 | IORING_SETUP_CQE32 | setup))
		kv_die("io_uring_queue_init");
	l->room = kv_alloc(4 * LEN);
	memset(l->room, KV_UNTOUCHED, 4 * LEN);
	l->pieces[0] = kv_piece(bytes, LEN);
	l->pieces[1] = kv_piece(bytes, ODD);
	l->pieces[2] = kv_piece(l->room, LEN);
	l->pieces[3] = kv_piece(l->room + LEN + 1, LEN);
	l->pieces[4] = kv_piece(l->room + 3 * LEN, LEN);
	for (i = 0; i < 5; i++) {
		l->keys[i] = kv_key(FIRST + (i < 2 ? i : 10));
		l->ops[i] = kv_op(i < 2 ? KVBLK_OP_PUT : KVBLK_OP_GET, &l->keys[i],
				  &l->pieces[i], 1);
	}
	/* a get with a hard deadline is bounced */
	l->ops[4].flags = KVBLK_OPF_HARD_DEADLINE;
	l->ops[4].deadline_ns = (kv_now_ms() + 3600000) * 1000000;
	for (i = 0; i < 5; i++)
		kv_sqe_op(&ring, fd, &l->ops[i], &l->res[i], i);
	io_uring_submit(&ring);
	return ring;
}

/*
 * Reap and check the five results. A get that has to be read again, such as one in parts into
 * device memory, may miss if its block was deleted meanwhile.
 */
static bool landed_right(struct io_uring *ring)
{
	const struct landed *l = &landed;
	bool right = true;

	for (unsigned int n = 0; n < 5; n++) {
		struct kv_cqe cqe = kv_cqe(ring, NULL);
		unsigned int i = (unsigned int)cqe.user_data;
		const void *room = (const void *)(uintptr_t)l->pieces[i].addr;
		bool missed = kv_memory() && i >= 2 && cqe.res == -ENOENT;

		right &= cqe.res == l->res[i].res &&
			 (missed || cqe.res == (int)l->pieces[i].length);
		if (i >= 2)
			right &= missed ? kv_leaked(room, LEN) < 0 : !memcmp(room, bytes, LEN);
	}
	return right && l->room[LEN] == KV_UNTOUCHED && l->room[2 * LEN + 1] == KV_UNTOUCHED;
}

/* A task that is stopped or does not reap holds no key, segment or member. */
TEST(stopped_ring)
{
	static const unsigned int old[] = { 10 }, setups[] = {
		0, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(setups); i++) {
		struct io_uring ring;
		pid_t child;
		int status;

		put_all(old, 1);
		child = fork();
		if (!child) {
			fd = kv_open(node);
			kv_ring_forget();
			ring = landed_submit(setups[i]);
			raise(SIGSTOP);
			_exit(!landed_right(&ring));
		}
		waitpid(child, &status, WUNTRACED);
		ASSERT(WIFSTOPPED(status), "the caller is stopped: %#x", status);
		EXPECT(becomes_there(0), "the put of a stopped task is found");
		EXPECT(becomes_there(1), "its other put");
		EXPECT_EQ(kv_delete(fd, FIRST).res, 0, "nothing holds its block");
		EXPECT_EQ(kv_delete(fd, FIRST + 1).res, 0, "nor the other one");
		EXPECT_EQ(kv_delete(fd, FIRST + 10).res, 0, "nor what it got");
		kill(child, SIGCONT);
		waitpid(child, &status, 0);
		EXPECT_EQ(status, 0, "its results, when it goes on");
	}
}

/* Operations stalled in one process, up to the limit, do not delay another process. */
TEST(stalled_rings)
{
	enum { NR = 1500 };
	static const unsigned int old[] = { 10 };
	struct kv_key key = kv_key(FIRST + 10);
	struct __kernel_timespec patience = { .tv_sec = 60 * kv_slow() };
	uint8_t *fresh = kv_map(2 * LEN, 0);
	struct kvblk_piece piece = kv_piece(fresh + 1, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &piece, 1);
	struct kvblk_result res;
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	pid_t child;

	put_all(old, 1);
	child = fork();
	if (!child) {
		struct kvblk_result *results = calloc(NR, sizeof(*results));

		fd = kv_open(node);
		pager_start();
		piece = kv_piece(absent + 1, 16);
		op.flags = KVBLK_OPF_PARTIAL;
		if (!results || io_uring_queue_init(2048, &ring, IORING_SETUP_SQE128 |
							       IORING_SETUP_CQE32))
			kv_die("a ring");
		for (unsigned int i = 0; i < NR; i++)
			kv_sqe_op(&ring, fd, &op, &results[i], i);
		io_uring_submit(&ring);
		kv_cqe(&ring, NULL);
		_exit(0);
	}
	/* time to stall; if the time is too short, the test only proves less */
	usleep(1000000 * kv_slow());
	if (io_uring_queue_init(2, &ring, IORING_SETUP_SQE128 | IORING_SETUP_CQE32))
		kv_die("a ring");
	kv_sqe_op(&ring, fd, &op, &res, 0);
	io_uring_submit(&ring);
	EXPECT_EQ(io_uring_wait_cqe_timeout(&ring, &cqe, &patience), 0,
		  "another's get into fresh memory");
	EXPECT(!memcmp(fresh + 1, bytes, LEN), "its bytes");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	io_uring_queue_exit(&ring);
	EXPECT_EQ(kv_delete(fd, FIRST + 10).res, 0, "delete");
}

/* A batch in a ring that faults stalls neither its submitter nor the next commands. */
TEST(stalled_batches)
{
	static const char *const what[] = { "structure", "operations", "results" };

	for (unsigned int i = 0; i < ARRAY_SIZE(what); i++) {
		uint64_t end = kv_now_ms() + 20000 * kv_slow();
		pid_t child = fork(), done;
		int status = 0;

		if (!child) {
			struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 1 };
			struct kv_key key = kv_key(FIRST);
			struct kvblk_op op = kv_op(KVBLK_OP_DELETE, &key, NULL, 0);
			struct kvblk_result res;
			struct kvblk_submit_arg submit = {
				.size = sizeof(submit), .nr_ops = 1, .op_size = sizeof(op),
				.result_size = sizeof(res), .ops = kv_addr(&op),
				.results = kv_addr(&res),
			};
			struct io_uring ring;

			fd = kv_open(node);
			pager_start();
			if (i == 1)
				submit.ops = kv_addr(absent);
			if (i == 2)
				submit.results = kv_addr(absent);
			if (io_uring_queue_init(8, &ring, IORING_SETUP_SQE128 | IORING_SETUP_CQE32))
				kv_die("a ring");
			kv_sqe_addr(&ring, fd, KVBLK_URING_SUBMIT,
				    i ? (void *)&submit : absent, 1);
			kv_sqe_addr(&ring, fd, KVBLK_URING_CANCEL, &cancel, 2);
			io_uring_submit(&ring);
			_exit(kv_cqe(&ring, NULL).user_data != 2);
		}
		do
			usleep(1000);
		while (!(done = waitpid(child, &status, WNOHANG)) && kv_now_ms() < end);
		EXPECT(done && !status, "a cancel beside a batch whose %s faults: %#x", what[i],
		       status);
		if (!done) {
			kill(child, SIGKILL);
			waitpid(child, NULL, 0);
		}
	}
}

static unsigned int number(const char *name, unsigned int otherwise)
{
	const char *value = getenv(name);

	return value ? (unsigned int)atoi(value) : otherwise;
}

/* first key of the storm; operations of a batch */
enum { STORM = 100000, CHUNK = 1024 };

/* Submit a batch of @opcode. Returns the number of unexpected results. */
static unsigned int storm_batch(uint8_t opcode, uint64_t first, unsigned int nr)
{
	struct kv_key *keys = calloc(nr, sizeof(*keys));
	struct kvblk_op *ops = calloc(nr, sizeof(*ops));
	struct kvblk_result *res = calloc(nr, sizeof(*res));
	struct kvblk_piece piece = kv_piece(bytes, 1);
	unsigned int wrong = 0;

	if (!keys || !ops || !res)
		kv_die("no memory");
	for (unsigned int i = 0; i < nr; i++) {
		keys[i] = kv_key(FIRST + STORM + first + i);
		ops[i] = kv_op(opcode, &keys[i], opcode == KVBLK_OP_PUT ? &piece : NULL,
			       opcode == KVBLK_OP_PUT);
	}
	if (kv_submit(fd, ops, res, nr, 0))
		kv_die("submit");
	/* -ENOENT is fine: with a full index one put evicts the block of another */
	for (unsigned int i = 0; i < nr; i++)
		wrong += opcode == KVBLK_OP_PUT ? res[i].res != 1 :
						  res[i].res && res[i].res != -ENOENT;
	free(keys);
	free(ops);
	free(res);
	return wrong;
}

static struct storm {
	pthread_t thread;
	unsigned int first, wrong;
} *storms;

static unsigned int storm_blocks;	/* per thread */

static void *storm_run(void *arg)
{
	struct storm *storm = arg;

	for (unsigned int at = 0; at < storm_blocks; at += CHUNK)
		storm->wrong += storm_batch(KVBLK_OP_DELETE, storm->first + at, CHUNK);
	return NULL;
}

static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* Time sequential puts: @most of them, or fewer if *@left becomes 0. Returns the p99 in us. */
static uint64_t puts_p99(uint64_t first, unsigned int most, atomic_uint *left, unsigned int *nr)
{
	uint64_t *us = calloc(most, sizeof(*us)), p99;

	for (*nr = 0; *nr < most && (!left || *left); ++*nr) {
		struct timespec from, to;

		clock_gettime(CLOCK_MONOTONIC, &from);
		EXPECT_EQ(kv_put(fd, FIRST + first + *nr, bytes, PAGE).res, PAGE,
			  "put %u of one beside them", *nr);
		clock_gettime(CLOCK_MONOTONIC, &to);
		us[*nr] = (uint64_t)((to.tv_sec - from.tv_sec) * 1000000 +
				     (to.tv_nsec - from.tv_nsec) / 1000);
	}
	qsort(us, *nr, sizeof(*us), by_number);
	p99 = us[*nr - 1 - *nr / 100];
	free(us);
	return p99;
}

static atomic_uint storms_left;

static void *storm_thread(void *arg)
{
	/* be nice: the test is about sharing the member, not the CPU */
	setpriority(PRIO_PROCESS, (id_t)gettid(), 15);
	storm_run(arg);
	storms_left--;
	return NULL;
}

/*
 * Many threads delete on a member with slow writes. No delete fails, and another caller's puts
 * take at most four times as long as alone, plus an allowance for a busy host.
 */
TEST(storm_of_deletes)
{
	unsigned int threads = number("KV_STORMS", 8), nr, wrong = 0;
	uint64_t alone, beside;
	pthread_attr_t attr;

	if (!getenv("KV_STORMS"))
		SKIP("this is for a member whose writes take some 10 ms");
	storm_blocks = number("KV_STORM_BLOCKS", 2) * CHUNK;
	storms = calloc(threads, sizeof(*storms));
	for (unsigned int at = 0; at < threads * storm_blocks; at += CHUNK)
		ASSERT_EQ(storm_batch(KVBLK_OP_PUT, at, CHUNK), 0, "puts at %u", at);
	alone = puts_p99(1000, 100, NULL, &nr);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 18);
	storms_left = threads;
	for (unsigned int i = 0; i < threads; i++) {
		storms[i].first = i * storm_blocks;
		ASSERT_EQ(pthread_create(&storms[i].thread, &attr, storm_thread, &storms[i]), 0,
			  "a thread");
	}
	beside = puts_p99(2000, 10000, &storms_left, &nr);
	for (unsigned int i = 0; i < threads; i++) {
		pthread_join(storms[i].thread, NULL);
		wrong += storms[i].wrong;
	}
	EXPECT_EQ(wrong, 0, "deletes that failed");
	EXPECT(nr >= 20, "%u puts beside %u deletes", nr, threads * storm_blocks);
	EXPECT(beside <= 4 * alone + 100000 * (uint64_t)kv_slow(), "p99 of a put: %llu us, alone %llu us",
	       (unsigned long long)beside, (unsigned long long)alone);
	PASSED("p99 of a put: %llu us of %u, alone %llu us", (unsigned long long)beside, nr,
	       (unsigned long long)alone);
	free(storms);
}

static void *hold_run(void *arg)
{
	const char *what = arg;
	struct kv_key key = kv_key(FIRST);
	struct kvblk_piece piece = kv_piece(absent, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
	struct kvblk_result res;
	struct kvblk_submit_arg submit = {
		.size = sizeof(submit), .nr_ops = 1, .op_size = sizeof(op),
		.result_size = sizeof(res), .ops = kv_addr(&op), .results = kv_addr(absent),
	};
	struct kvblk_lookup lookup = {
		.size = sizeof(lookup), .nr_keys = 1, .keys = kv_addr(absent), .key_stride = 16,
	};

	if (!strcmp(what, "lookup")) {
		batch.err = ioctl(fd, KVBLK_IOC_LOOKUP, &lookup) ? -errno : 0;
	} else if (!strcmp(what, "results")) {
		batch.err = ioctl(fd, KVBLK_IOC_SUBMIT, &submit) ? -errno : 0;
	} else {
		batch.err = kv_submit(fd, &op, &res, 1, 0) ?: res.res;
	}
	return NULL;
}

/* Held to prove that buffers and leases can be released after the pool is destroyed. */
static struct kvblk_unreg_buf_arg held_buf = { .size = sizeof(held_buf), .flags = KVBLK_UNREG_WAIT };
static struct kvblk_lease_release_arg held_lease = { .size = sizeof(held_lease) };

static void hold_things(void)
{
	struct kv_key key = kv_key(FIRST + 10);
	struct kvblk_reg_buf_arg reg = {
		.size = sizeof(reg), .addr = kv_addr(bytes), .length = LEN,
	};
	struct kvblk_lookup lookup = {
		.size = sizeof(lookup), .flags = KVBLK_LOOKUP_LEASE, .nr_keys = 1,
		.keys = kv_addr(key.bytes), .key_stride = key.len, .lease_ms = 3600000,
	};

	kv_put(fd, FIRST + 10, bytes, LEN);
	if (ioctl(fd, KVBLK_IOC_REG_BUF, &reg) || ioctl(fd, KVBLK_IOC_LOOKUP, &lookup) ||
	    !lookup.nr_leased)
		kv_die("things to hold");
	held_buf.handle = reg.handle;
	held_lease.lease = lookup.lease;
}

static bool give_back_things(void)
{
	struct kvblk_drain_arg drain = { .size = sizeof(drain) };
	struct kvblk_info info = { .size = sizeof(info) };
	bool right = true;

	right &= EXPECT_EQ(ioctl(fd, KVBLK_IOC_DRAIN, &drain), 0, "drain");
	right &= EXPECT_EQ(ioctl(fd, KVBLK_IOC_UNREG_BUF, &held_buf), 0, "unregister");
	right &= EXPECT_EQ(ioctl(fd, KVBLK_IOC_LEASE_RELEASE, &held_lease), 0, "release");
	right &= EXPECT(ioctl(fd, KVBLK_IOC_INFO, &info) && errno == ENODEV, "the pool is gone");
	return right;
}

static int hold(const char *what)
{
	struct pollfd faulted;
	struct io_uring ring;
	sigset_t go_on;
	int nr;

	sigemptyset(&go_on);
	sigaddset(&go_on, SIGUSR1);
	sigprocmask(SIG_BLOCK, &go_on, NULL);
	if (!strcmp(what, "landed")) {
		kv_put(fd, FIRST + 10, bytes, LEN);
		ring = landed_submit(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	} else if (!strcmp(what, "things")) {
		hold_things();
	} else {
		pager_start();
		if (pthread_create(&batch.thread, NULL, hold_run, (void *)(uintptr_t)what))
			kv_die("pthread_create");
		faulted = (struct pollfd){ .fd = pager, .events = POLLIN };
		if (poll(&faulted, 1, -1) != 1)
			kv_die("poll");
	}
	puts("holding");
	fflush(stdout);
	sigwait(&go_on, &nr);
	if (!strcmp(what, "landed")) {
		if (!landed_right(&ring))
			return KSFT_FAIL;
	} else if (!strcmp(what, "things")) {
		if (!give_back_things())
			return KSFT_FAIL;
	} else {
		pager_answer();
		pthread_join(batch.thread, NULL);
		printf("%s: %d\n", what, batch.err);
	}
	return KSFT_PASS;
}

int main(int argc, char **argv)
{
	fd = kv_open_node(argc, argv);
	node = argv[1];
	bytes = kv_alloc(LEN + PAGE);
	kv_fill(kv_seed(FIRST, 0), 0, bytes, LEN);
	if (argc == 4 && !strcmp(argv[2], "hold"))
		return hold(argv[3]);
	return kv_run_tests(argc - 2, argv + 2);
}
