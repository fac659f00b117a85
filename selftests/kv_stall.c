// SPDX-License-Identifier: GPL-2.0
/*
 * Callers whose memory is not there: a user-space pager (userfaultfd) takes
 * its time. They hold up nobody but themselves, and a kill ends them.
 *
 * usage: kv_stall NODE [TEST...]
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "kv_test.h"
#include "kv_io.h"

#define LEN	65536u
#define ODD	50001u
#define FIRST	6000000ull	/* keys */

static const char *node;
static int fd, pager;
static uint8_t *absent;		/* 4 * LEN bytes that fault */
static uint8_t *bytes;		/* of what is put */

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

/* The absent memory is there, and holds @bytes again and again. */
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

/* A batch in a thread of its own. */
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
	(void)arg;
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

/* All results are what was asked for, deletes (0) too. */
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

/* Gets block @nr while somebody else is stalled. */
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

/* What was submitted before the memory that faults is acknowledged to all. */
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

/* Only the last copy of a bounced get meets the memory that faults. */
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
			/* pages that a fork shares are as good as absent */
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

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s NODE [TEST...]\n", argv[0]);
		return KSFT_FAIL;
	}
	node = argv[1];
	fd = kv_open(node);
	bytes = kv_alloc(LEN + PAGE);
	kv_fill(kv_seed(FIRST, 0), 0, bytes, LEN);
	return kv_run_tests(argc - 2, argv + 2);
}
