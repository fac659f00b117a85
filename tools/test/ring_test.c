// SPDX-License-Identifier: MIT
/*
 * Queues on a real io_uring, without the module: /dev/null completes each command with 0. Waiting
 * threads are woken, whoever takes the completions. Skipped where io_uring is forbidden.
 */
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>

#include "../lib/queue.c"	/* NOLINT(bugprone-suspicious-include) */
#include "kvblk_test.h"

#define DEPTH_HERE	64u
#define NR_WAITERS	3

static struct kvblk pool = { .lock = PTHREAD_MUTEX_INITIALIZER };
static struct kvblk_op ops[DEPTH_HERE];

static struct kvblk_queue *queue_new(unsigned int depth, uint32_t flags)
{
	const struct kvblk_queue_options options = { .size = sizeof(options), .depth = depth, .flags = flags };
	struct kvblk_queue *q = NULL;
	int err = kvblk_queue_create(&pool, &options, &q);

	if (err == -ENOSYS || err == -EPERM)
		skip();
	assert_int_equal(err, 0);
	return q;
}

/* Take completions in an event loop, five at a time. */
static void collect(struct kvblk_queue *q, unsigned int left, const void *tag)
{
	struct pollfd ready = { .fd = kvblk_queue_eventfd(q), .events = POLLIN };
	struct kvblk_completion c[5];

	while (left) {
		int nr;

		assert_int_equal(poll(&ready, 1, 10000), 1);
		nr = kvblk_queue_wait(q, c, 5, 0, 0);
		assert_in_range(nr, 0, left);
		left -= (unsigned int)nr;
		while (nr--) {
			assert_int_equal(c[nr].res, 0);
			assert_ptr_equal(c[nr].tag, tag);
		}
	}
	assert_int_equal(poll(&ready, 1, 0), 0);
}

TEST(test_flow)
{
	struct kvblk_completion c[DEPTH_HERE];

	const uint32_t all = KVBLK_QUEUE_ONE_THREAD | KVBLK_QUEUE_UNCANCELABLE | KVBLK_QUEUE_DEFER;

	for (uint32_t flags = 0; flags <= all; flags++) {
		struct kvblk_queue *q;

		if (flags & KVBLK_QUEUE_DEFER && !(flags & KVBLK_QUEUE_ONE_THREAD))
			continue;
		q = queue_new(DEPTH_HERE, flags);
		for (int round = 0; round < 100; round++) {
			assert_int_equal(kvblk_queue_submit(q, ops, 32, 0, &c[round % 64]), 0);
			assert_int_equal(kvblk_queue_submit(q, ops, 32, KVBLK_SUBMIT_CHAIN, &c[round % 64]), 0);
			assert_int_equal(kvblk_queue_submit(q, ops, 1, 0, NULL), -EAGAIN);
			collect(q, 64, &c[round % 64]);
			assert_int_equal(kvblk_queue_submit(q, ops, 16, 0, NULL), 0);
			assert_int_equal(kvblk_queue_wait(q, c, DEPTH_HERE, 16, 0), 16);
		}
		assert_int_equal(kvblk_queue_wait(q, c, 1, 1, 0), 0);
		assert_int_equal(kvblk_queue_submit(q, ops, 16, 0, NULL), 0);
		kvblk_queue_destroy(q);
	}
}

static unsigned int nr_starts, nr_starts_and_waits;
static bool fails;	/* the next count_start_and_wait() starts nothing */

static int count_start(void *ring)
{
	nr_starts++;
	return kvblk_io_uring.start(ring);
}

static int count_start_and_wait(void *ring, unsigned int least, uint64_t deadline_ns)
{
	nr_starts_and_waits++;
	/* no other call has started the commands; struct ring begins with the ring of liburing */
	assert_true(io_uring_sq_ready(ring));
	if (fails) {
		fails = false;
		return -EAGAIN;
	}
	return kvblk_io_uring.start_and_wait(ring, least, deadline_ns);
}

static void no_action(int sig)
{
	(void)sig;
}

/* One call starts deferred commands and waits for them; without a wait, another one starts them. */
TEST(test_deferred)
{
	/* again and again, because the first signal may be too early */
	const struct itimerval soon = { .it_value.tv_usec = 50000, .it_interval.tv_usec = 50000 }, never = { 0 };
	const struct sigaction action = { .sa_handler = no_action };
	struct kvblk_queue *q = queue_new(8, KVBLK_QUEUE_ONE_THREAD | KVBLK_QUEUE_DEFER);
	struct ring_type counting = kvblk_io_uring;
	struct kvblk_completion c[8];

	counting.start = count_start;
	counting.start_and_wait = count_start_and_wait;
	q->type = &counting;
	nr_starts = nr_starts_and_waits = 0;
	for (int i = 0; i < 2; i++)
		assert_int_equal(kvblk_queue_submit(q, ops, 4, i ? KVBLK_SUBMIT_CHAIN : 0, NULL), 0);
	assert_int_equal(kvblk_queue_wait(q, c, 8, 8, 0), 8);
	assert_int_equal(nr_starts, 0);
	assert_int_equal(nr_starts_and_waits, 1);

	/* nothing to wait for, no time to wait, and finished ones that are enough */
	nr_starts_and_waits = 0;
	assert_int_equal(kvblk_queue_submit(q, ops, 2, 0, NULL), 0);
	assert_int_equal(kvblk_queue_wait(q, c, 1, 0, 0), 1);
	assert_int_equal(kvblk_queue_submit(q, ops, 1, 0, NULL), 0);
	assert_int_equal(kvblk_queue_wait(q, c, 1, 1, 0), 1);
	assert_int_equal(kvblk_queue_wait(q, c, 8, 1, 1), 1);
	assert_int_equal(nr_starts, 2);
	assert_int_equal(nr_starts_and_waits, 0);
	assert_int_equal(kvblk_queue_submit(q, ops, 1, 0, NULL), 0);
	assert_int_equal(kvblk_queue_wait(q, c, 8, 1, 1), 1);
	assert_int_equal(nr_starts, 3);

	fails = true;
	assert_int_equal(kvblk_queue_submit(q, ops, 4, 0, NULL), 0);
	assert_int_equal(kvblk_queue_wait(q, c, 8, 4, 0), 4);
	assert_false(fails);
	assert_int_equal(nr_starts, 4);

	/* what ended a wait is told, although commands were started */
	q->type->add(q->ring, KVBLK_URING_OP, ops, sizeof(*ops), 0);
	assert_int_equal(q->type->start_and_wait(q->ring, 2, now_ns() + 1000000), -ETIME);
	sigaction(SIGALRM, &action, NULL);
	for (int i = 0; i < 2; i++) {
		q->type->add(q->ring, KVBLK_URING_OP, ops, sizeof(*ops), 0);
		setitimer(ITIMER_REAL, &soon, NULL);
		assert_int_equal(q->type->start_and_wait(q->ring, 8, i ? now_ns() + 60 * NS_PER_S : 0), -EINTR);
		setitimer(ITIMER_REAL, &never, NULL);
	}
	kvblk_queue_destroy(q);
}

/* An event loop learns of deferred commands, or else it would never start them. */
TEST(test_deferred_event)
{
	struct kvblk_queue *q = queue_new(8, KVBLK_QUEUE_ONE_THREAD | KVBLK_QUEUE_DEFER);
	struct pollfd ready = { .fd = kvblk_queue_eventfd(q), .events = POLLIN };
	struct kvblk_completion c;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(poll(&ready, 1, 0), 0);
		assert_int_equal(kvblk_queue_submit(q, ops, 1, 0, NULL), 0);
		assert_int_equal(poll(&ready, 1, 0), 1);
		assert_int_equal(kvblk_queue_wait(q, &c, 1, 0, 0), 1);
	}
	kvblk_queue_destroy(q);
}

static sem_t begun;	/* posted by each submitter, after its first submission */

static void *submitter(void *arg)
{
	struct kvblk_completion c[4];
	long nr = 0;
	int err;

	do {
		err = kvblk_queue_submit(arg, ops, 1, 0, NULL);
		if (!err && !nr++)
			sem_post(&begun);
		while (kvblk_queue_wait(arg, c, 4, 1, now_ns() + 1000000) > 0)
			;
	} while (!err || err == -EAGAIN);
	return (void *)(err == -ECANCELED ? nr : -1);
}

TEST(test_many_threads)
{
	struct kvblk_queue *q = queue_new(8, 0);
	pthread_t ids[4];
	void *nr;

	sem_init(&begun, 0, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, submitter, q), 0);
	for (int i = 0; i < 4; i++)
		sem_wait(&begun);
	kvblk_queue_stop(q);
	for (int i = 0; i < 4; i++) {
		pthread_join(ids[i], &nr);
		assert_true((long)nr > 0);
	}
	assert_int_equal(kvblk_queue_drain(q, 0), 0);
	kvblk_queue_destroy(q);
}

static void *waiter(void *arg)
{
	struct kvblk_completion c;

	return (void *)(long)kvblk_queue_wait(arg, &c, 1, 1, 0);
}

/* An operation is in flight until another thread has taken the completion: all waits return. */
TEST(test_waiters)
{
	for (int round = 0; round < 100; round++) {
		struct kvblk_queue *q = queue_new(8, 0);
		pthread_t ids[NR_WAITERS];
		void *nr;

		q->inflight = 1;
		for (int i = 0; i < NR_WAITERS; i++)
			assert_int_equal(pthread_create(&ids[i], NULL, waiter, q), 0);
		if (round % 2)
			usleep(1000);
		/* wake and reap as other threads do */
		for (int i = 0; i <= 20; i++) {
			pthread_mutex_lock(&q->lock);
			if (i == 20)
				q->inflight = 0;
			wake_waiters(q);
			reap(q);
			pthread_mutex_unlock(&q->lock);
		}
		for (int i = 0; i < NR_WAITERS; i++) {
			pthread_join(ids[i], &nr);
			assert_null(nr);
		}
		kvblk_queue_destroy(q);
	}
}

static uint64_t cookie_of(struct kvblk_queue *q)
{
	assert_int_equal(kvblk_queue_submit(q, ops, 1, 0, NULL), 0);
	return TAILQ_FIRST(&q->live)->cookie;
}

/* Processes that share an open file do not cancel each other's operations. */
TEST(test_cookies)
{
	struct kvblk_queue *q = queue_new(8, 0);
	uint64_t other, own = cookie_of(q);
	int ends[2];

	kvblk_queue_destroy(q);
	assert_int_equal(pipe(ends), 0);
	if (!fork()) {
		other = cookie_of(queue_new(8, 0));
		_exit(write(ends[1], &other, sizeof(other)) != sizeof(other));
	}
	close(ends[1]);
	assert_int_equal(read(ends[0], &other, sizeof(other)), sizeof(other));
	close(ends[0]);
	q = queue_new(8, 0);
	assert_int_not_equal(cookie_of(q), other);
	assert_int_not_equal(own, other);
	kvblk_queue_destroy(q);
}

int main(void)
{
	pool.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (unsigned int i = 0; i < DEPTH_HERE; i++)
		kvblk_prep_delete(&ops[i], "key", 3);
	return RUN_TESTS("ring_test");
}
