// SPDX-License-Identifier: MIT
/*
 * Queues: operations in flight while the caller does other work.
 *
 * A submission is a copy of the caller's operations, in one allocation with their results. It is
 * run by commands of a ring (ring.h), or as a batch by a thread of the queue: without a ring, and
 * for staged memory, which takes CPU time. Each operation ends in the list of finished ones, from
 * which kvblk_queue_wait() takes it. The last one taken frees the submission.
 *
 * The leader, one waiting thread at a time, sleeps in the ring. Other waiting threads, and all of
 * a queue without a ring, sleep until @seq changes.
 */
#include <linux/futex.h>
#include <linux/time_types.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib.h"
#include "ring.h"

#define DEPTH		1024u
#define STAGE_THREADS	16u	/* of a ring; waiting for a lane keeps deadlines */
#define ENDS		64u
#define CANCEL_TRIES	100
#define CANCEL_WAIT_NS	100000u
#define STOP_WAIT_NS	10000000u
#define START_WAIT_NS	1000000u
#ifndef SYS_futex_time64	/* 64-bit systems have SYS_futex alone */
#define SYS_futex_time64	SYS_futex
#endif
#define BATCH		1u	/* bit of ring_end.user_data: a submission, else an operation */

/* An operation in flight. */
struct item {
	STAILQ_ENTRY(item) next;	/* in queue->finished */
	struct submission *of;
	uint64_t cookie;	/* the caller's */
};

enum submission_state {
	SUBMISSION_WAITS,	/* in queue->todo */
	SUBMISSION_RUNS,	/* in a thread */
	SUBMISSION_ISSUED,	/* in the ring */
	SUBMISSION_OVER,	/* all operations have ended */
};

struct submission {
	TAILQ_ENTRY(submission) live;	/* in queue->live */
	STAILQ_ENTRY(submission) next;	/* in queue->todo */
	enum submission_state state;
	bool batch;		/* operations begin and end together */
	bool canceled;		/* the kernel has found all operations that have not ended */
	void *tag;
	uint64_t number;
	uint64_t cookie;	/* of all its operations in the kernel; 0: they can't be canceled */
	unsigned int nr, flags;
	unsigned int nr_running;	/* operations that have not ended */
	unsigned int left;	/* operations that kvblk_queue_wait() has not returned */
	struct kvblk_submit_arg submit;	/* argument of KVBLK_URING_SUBMIT; size 0: canceled */
	struct kvblk_op *ops;
	struct kvblk_result *results;
	struct item items[];
};

STAILQ_HEAD(items, item);

struct kvblk_queue {
	struct kvblk *kv;
	const struct ring_type *type;	/* NULL: no ring */
	void *ring;
	unsigned int depth, flags;
	pthread_t owner;	/* the thread that made the queue */
	atomic_uint_fast64_t next_cookie;
	pthread_mutex_t lock;	/* protects the fields below, and all submissions */
	pthread_cond_t work;	/* signaled when @todo grows or @stop is set */
	TAILQ_HEAD(, submission) live;	/* all submissions, oldest first */
	STAILQ_HEAD(, submission) todo;
	struct items finished;
	uint64_t last_number;
	unsigned int inflight;	/* submitted, completion not collected */
	unsigned int nr_finished;
	unsigned int nr_commands;	/* in the ring */
	unsigned int nr_batches;	/* commands KVBLK_URING_SUBMIT */
	unsigned int nr_todo, nr_idle, nr_threads, max_threads;
	unsigned int nr_waiters;	/* sleeping threads */
	bool leader;		/* a waiter sleeps in the ring */
	bool deferred;		/* commands were added for the next wait to start */
	bool unstarted;		/* commands were added and could not be started */
	bool stop;
	uint32_t seq;		/* futex: changes when waiters have to look again */
	int event;		/* eventfd, or -1 */
	pthread_t threads[KVBLK_QUEUE_THREADS_MAX];
};

static bool is_foreign(const struct kvblk_queue *q)
{
	return q->flags & KVBLK_QUEUE_ONE_THREAD && !pthread_equal(pthread_self(), q->owner);
}

/* ---- waiters ---- */

static void futex_wake(uint32_t *word)
{
	syscall(SYS_futex_time64, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Sleep until @word is not @seen. Returns 0, -ETIME or -EINTR. */
static int futex_wait(uint32_t *word, uint32_t seen, uint64_t deadline_ns)
{
	struct __kernel_timespec until = {
		.tv_sec = (long long)(deadline_ns / NS_PER_S),
		.tv_nsec = (long long)(deadline_ns % NS_PER_S),
	};

	if (!syscall(SYS_futex_time64, word, FUTEX_WAIT_BITSET_PRIVATE, seen,
		     deadline_ns ? &until : NULL, NULL, FUTEX_BITSET_MATCH_ANY) || errno == EAGAIN)
		return 0;
	return errno == ETIMEDOUT ? -ETIME : -errno;
}

/* Make all waiting threads look again. */
static void wake_waiters(struct kvblk_queue *q)
{
	if (!q->nr_waiters)
		return;
	__atomic_add_fetch(&q->seq, 1, __ATOMIC_SEQ_CST);
	futex_wake(&q->seq);
	if (q->leader)
		q->type->wake(q->ring);
}

/*
 * Start deferred commands, and sleep, without the lock, until something may have changed. Returns
 * 0, -ETIME, -EINTR, an errno.
 */
static int queue_sleep(struct kvblk_queue *q, unsigned int least, uint64_t deadline_ns)
{
	bool lead = q->type && !q->leader, start = q->deferred;
	uint32_t seen = q->seq;
	int err;

	q->leader |= lead;
	q->nr_waiters++;
	q->deferred = false;
	pthread_mutex_unlock(&q->lock);
	if (start)
		err = q->type->start_and_wait(q->ring, least, deadline_ns);
	else if (lead)
		err = q->type->wait(q->ring, least, deadline_ns);
	else
		err = futex_wait(&q->seq, seen, deadline_ns);
	pthread_mutex_lock(&q->lock);
	q->nr_waiters--;
	if (start && err && err != -ETIME && err != -EINTR) {
		q->unstarted = true;
		err = 0;
	}
	if (lead) {
		q->leader = false;
		/* make another waiter the leader */
		wake_waiters(q);
	}
	return err;
}

static void event_set(struct kvblk_queue *q)
{
	if (q->event >= 0)
		eventfd_write(q->event, 1);
}

/* ---- ends of operations; called with the lock held ---- */

/* @flush_err: a get has failed with this, unless 0, because a GPU may not see its data */
static void item_end(struct kvblk_queue *q, struct item *item, int flush_err)
{
	struct submission *s = item->of;
	unsigned int i = (unsigned int)(item - s->items);

	if (flush_err && s->ops[i].opcode == KVBLK_OP_GET && s->results[i].res >= 0)
		s->results[i].res = flush_err;
	STAILQ_INSERT_TAIL(&q->finished, item, next);
	q->nr_finished++;
	if (!--s->nr_running)
		s->state = SUBMISSION_OVER;
}

/* End all operations of a submission; @err: instead of the results, unless 0. */
static void submission_end(struct kvblk_queue *q, struct submission *s, int err, int flush_err)
{
	for (unsigned int i = 0; i < s->nr; i++) {
		if (err)
			s->results[i] = (struct kvblk_result){ .res = err };
		item_end(q, &s->items[i], flush_err);
	}
}

/* Write the result of a command to its operation. */
static void end_result(const struct ring_end *end)
{
	const struct item *item = (const struct item *)(uintptr_t)end->user_data;
	struct kvblk_result *result = &item->of->results[item - item->of->items];

	result->res = end->res;
	result->flags = end->flags;
	result->value_len = end->value_len;
}

/* End a batch of the ring with the result of its command. */
static void batch_end(struct kvblk_queue *q, struct submission *s, int res, int flush_err)
{
	/* the batch was canceled before it began */
	if (res == -EINVAL && !s->submit.size)
		res = -ECANCELED;
	submission_end(q, s, res, flush_err);
}

/* Take the completions of the ring. */
static void reap(struct kvblk_queue *q)
{
	struct ring_end ends[ENDS];
	bool woken = false;
	unsigned int nr;
	int flush_err;

	if (!q->type || is_foreign(q))
		return;
	if (q->deferred || q->unstarted) {
		q->deferred = false;
		q->unstarted = q->type->start(q->ring);
	}
	do {
		nr = q->type->reap(q->ring, ends, ENDS);
		/* before any get is reported, because its data may be in memory of a GPU */
		flush_err = nr ? kvblk_flush_gpus(q->kv) : 0;
		for (unsigned int i = 0; i < nr; i++) {
			uintptr_t data = (uintptr_t)ends[i].user_data;

			if (!data) {
				woken = true;
				continue;
			}
			q->nr_commands--;
			if (data & BATCH) {
				q->nr_batches--;
				batch_end(q, (struct submission *)(data - BATCH), ends[i].res,
					  flush_err);
			} else {
				end_result(&ends[i]);
				item_end(q, (struct item *)data, flush_err);
			}
		}
	} while (nr == ENDS);
	/* wake the leader again, because the leader may not have slept yet */
	if (woken && q->leader)
		q->type->wake(q->ring);
}

/* ---- threads ---- */

static void *work(void *arg)
{
	struct kvblk_queue *q = arg;
	struct submission *s;
	int err;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		q->nr_idle++;
		while (STAILQ_EMPTY(&q->todo) && !q->stop)
			pthread_cond_wait(&q->work, &q->lock);
		q->nr_idle--;
		s = STAILQ_FIRST(&q->todo);
		/* stopped: kvblk_queue_stop() has emptied the list */
		if (!s)
			break;
		STAILQ_REMOVE_HEAD(&q->todo, next);
		q->nr_todo--;
		s->state = SUBMISSION_RUNS;
		pthread_mutex_unlock(&q->lock);
		err = kvblk_submit(q->kv, s->ops, s->nr, s->results, s->flags);
		pthread_mutex_lock(&q->lock);
		submission_end(q, s, err, 0);
		event_set(q);
		wake_waiters(q);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

/* Start a thread, with the lock held. All signals are blocked, because they are for the runtime. */
static int add_thread(struct kvblk_queue *q)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&q->threads[q->nr_threads], NULL, work, q);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		q->nr_threads++;
	return -err;
}

/* Returns -ENOMEM if there is no thread and none can be created. */
static int run_by_thread(struct kvblk_queue *q, struct submission *s)
{
	if (q->nr_todo + 1 > q->nr_idle && q->nr_threads < q->max_threads)
		add_thread(q);
	/* with other threads, the submission waits for one of them */
	if (!q->nr_threads)
		return -ENOMEM;
	s->batch = true;
	STAILQ_INSERT_TAIL(&q->todo, s, next);
	q->nr_todo++;
	pthread_cond_signal(&q->work);
	return 0;
}

/* ---- submissions ---- */

static void run_by_ring(struct kvblk_queue *q, struct submission *s)
{
	s->state = SUBMISSION_ISSUED;
	s->batch = s->flags & KVBLK_SUBMIT_CHAIN;
	if (s->batch) {
		const uint64_t addr = (uintptr_t)&s->submit;

		q->type->add(q->ring, KVBLK_URING_SUBMIT, &addr, sizeof(addr),
			     (uintptr_t)s | BATCH);
		q->nr_commands++;
		q->nr_batches++;
	} else {
		for (unsigned int i = 0; i < s->nr; i++) {
			struct kvblk_op op = s->ops[i];

			/* the completion has all of the result but a get's tags */
			if (op.opcode == KVBLK_OP_GET) {
				op.result = (uintptr_t)&s->results[i];
				op.result_size = sizeof(s->results[i]);
			}
			q->type->add(q->ring, KVBLK_URING_OP, &op, sizeof(op),
				     (uintptr_t)&s->items[i]);
		}
		q->nr_commands += s->nr;
	}
	if (q->flags & KVBLK_QUEUE_DEFER)
		q->deferred = true;
	else
		q->unstarted = q->type->start(q->ring);
	/* make the eventfd readable, or else an event loop would not call again */
	if (q->deferred || q->unstarted)
		event_set(q);
}

/* Copy operations of the caller. */
static struct submission *submission_create(const struct kvblk_op *ops, unsigned int nr,
					    unsigned int flags, void *tag)
{
	size_t items = sizeof(struct submission) + nr * sizeof(struct item);
	struct submission *s = calloc(1, items + nr * (sizeof(*s->ops) + sizeof(*s->results)));

	if (!s)
		return NULL;
	s->ops = (struct kvblk_op *)((char *)s + items);
	s->results = (struct kvblk_result *)(s->ops + nr);
	s->nr = s->nr_running = s->left = nr;
	s->flags = flags;
	s->tag = tag;
	s->submit = (struct kvblk_submit_arg){
		.size = sizeof(s->submit),
		.flags = flags,
		.nr_ops = nr,
		.op_size = sizeof(*s->ops),
		.result_size = sizeof(*s->results),
		.ops = (uintptr_t)s->ops,
		.results = (uintptr_t)s->results,
	};
	memcpy(s->ops, ops, nr * sizeof(*ops));
	for (unsigned int i = 0; i < nr; i++) {
		s->items[i].of = s;
		s->items[i].cookie = ops[i].cookie;
	}
	return s;
}

/* Name the operations for kvblk_cancel(). */
static void submission_name(struct kvblk_queue *q, struct submission *s)
{
	/* the upper half of the numbers, because callers count from 1 */
	if (!(q->flags & KVBLK_QUEUE_UNCANCELABLE))
		s->cookie = (1ull << 63) | atomic_fetch_add(&q->next_cookie, 1);
	for (unsigned int i = 0; i < s->nr; i++)
		s->ops[i].cookie = s->cookie;
}

int kvblk_queue_submit(struct kvblk_queue *q, const struct kvblk_op *ops, unsigned int nr_ops,
		       unsigned int flags, void *tag)
{
	struct submission *s;
	int err = 0;

	if (is_foreign(q))
		return -EEXIST;
	if (!nr_ops || nr_ops > KVBLK_OPS_MAX || nr_ops > q->depth ||
	    flags & ~(unsigned int)KVBLK_SUBMIT_CHAIN)
		return -EINVAL;
	s = submission_create(ops, nr_ops, flags, tag);
	if (!s)
		return -ENOMEM;
	submission_name(q, s);
	pthread_mutex_lock(&q->lock);
	if (q->stop)
		err = -ECANCELED;
	else if (q->inflight + nr_ops > q->depth)
		err = -EAGAIN;
	else if (!q->type || kvblk_is_staged(s->ops, nr_ops))
		err = run_by_thread(q, s);
	else
		run_by_ring(q, s);
	if (!err) {
		s->number = ++q->last_number;
		TAILQ_INSERT_TAIL(&q->live, s, live);
		q->inflight += nr_ops;
	}
	pthread_mutex_unlock(&q->lock);
	if (err)
		free(s);
	return err;
}

/* ---- looks at the queue ---- */

/*
 * Let the kernel reject a batch that has not begun, because a worker of the ring reads the
 * structure when it begins, and does not know the batch until then. Returns false if there is none.
 */
static bool batch_revoke(struct submission *s)
{
	if (s->state != SUBMISSION_ISSUED || !s->batch)
		return false;
	__atomic_store_n(&s->submit.size, 0, __ATOMIC_RELAXED);
	return true;
}

/*
 * Cancel submissions with @tag, or all. Returns the number of those found; sets @missed if a
 * submission has operations that the kernel does not know, because they are about to begin or to
 * end.
 */
static unsigned int cancel_pass(struct kvblk_queue *q, const void *tag, bool all, bool *missed)
{
	unsigned int nr = 0, nr_found;
	struct submission *s;

	*missed = false;
	reap(q);
	TAILQ_FOREACH(s, &q->live, live) {
		if (s->state == SUBMISSION_OVER || (!all && s->tag != tag))
			continue;
		if (s->state == SUBMISSION_WAITS) {
			STAILQ_REMOVE(&q->todo, s, submission, next);
			q->nr_todo--;
			submission_end(q, s, -ECANCELED, 0);
			nr++;
		} else if (s->cookie && !s->canceled) {
			if (!kvblk_cancel(q->kv, s->cookie, &nr_found) || batch_revoke(s))
				nr++;
			/* not again, because each cancel searches all operations of the open file */
			s->canceled = nr_found >= s->nr_running;
			*missed |= !nr_found || (!s->batch && !s->canceled);
		}
	}
	return nr;
}

/* Take completions. Deferred commands that another thread's stop has missed are canceled. */
static void look(struct kvblk_queue *q)
{
	bool missed;

	if (q->stop && q->flags & KVBLK_QUEUE_DEFER)
		cancel_pass(q, NULL, true, &missed);
	else
		reap(q);
}

/* ---- completions ---- */

/* Move an operation from the list of finished ones to the caller. */
static void take_first(struct kvblk_queue *q, struct kvblk_completion *c)
{
	struct item *item = STAILQ_FIRST(&q->finished);
	struct submission *s = item->of;
	unsigned int i = (unsigned int)(item - s->items);
	const struct kvblk_result *result = &s->results[i];

	STAILQ_REMOVE_HEAD(&q->finished, next);
	q->nr_finished--;
	q->inflight--;
	*c = (struct kvblk_completion){
		.tag = s->tag,
		.cookie = item->cookie,
		.res = result->res,
		.flags = result->flags,
		.value_len = result->value_len,
		.index = i,
		.left = --s->left,
		.layout_tag = result->layout_tag,
		.caller_tag = result->caller_tag,
	};
	if (!s->left) {
		TAILQ_REMOVE(&q->live, s, live);
		free(s);
	}
}

/* Make the eventfd readable if there are completions, and only then. */
static void event_update(struct kvblk_queue *q)
{
	eventfd_t count;

	if (q->event < 0)
		return;
	/* a foreign thread does not see the completions in the ring */
	if (!q->nr_finished && !q->unstarted && !is_foreign(q)) {
		eventfd_read(q->event, &count);
		/* the count may have been of a completion since the last look */
		reap(q);
	}
	if (q->nr_finished || q->unstarted)
		eventfd_write(q->event, 1);
}

/* Release the lock, after completions were moved. */
static void leave(struct kvblk_queue *q)
{
	event_update(q);
	/* wake threads that wait for what was taken here, or for what was left */
	if (!q->inflight || q->nr_finished)
		wake_waiters(q);
	pthread_mutex_unlock(&q->lock);
}

/* Returns how many completions of the ring to sleep for. */
static unsigned int sleep_for(const struct kvblk_queue *q, unsigned int missing)
{
	/* with one thread nobody else takes them; a batch has one completion for many operations */
	if (q->flags & KVBLK_QUEUE_ONE_THREAD && !q->nr_batches && !q->nr_threads &&
	    q->nr_commands >= missing)
		return missing;
	return 1;
}

/* Returns the time until which to sleep: soon, if commands could not be started. */
static uint64_t sleep_until(const struct kvblk_queue *q, uint64_t deadline_ns)
{
	uint64_t soon;

	/* before the clock is read, because on some machines that is a system call */
	if (!q->unstarted)
		return deadline_ns;
	soon = now_ns() + START_WAIT_NS;
	return !deadline_ns || deadline_ns > soon ? soon : deadline_ns;
}

static bool is_past(uint64_t deadline_ns)
{
	return deadline_ns && now_ns() >= deadline_ns;
}

int kvblk_queue_wait_sized(struct kvblk_queue *q, struct kvblk_completion *completions, size_t size,
			   unsigned int max, unsigned int least, uint64_t deadline_ns)
{
	struct kvblk_completion own;
	unsigned int nr = 0;
	bool over = !least;
	int err = 0;

	if (!max || least > max || size > KVBLK_STRUCT_MAX ||
	    size < END_OF(struct kvblk_completion, caller_tag))
		return -EINVAL;
	if (is_foreign(q))
		return -EEXIST;
	pthread_mutex_lock(&q->lock);
	for (;;) {
		/* leave deferred commands to queue_sleep(), which starts them by the same system call */
		if (over || q->stop || !q->deferred)
			look(q);
		for (; nr < max && q->nr_finished; nr++) {
			take_first(q, &own);
			element_copy((char *)completions + nr * size, size, &own, sizeof(own));
		}
		over = nr >= least || !q->inflight || err || is_past(deadline_ns);
		if (over) {
			if (!q->deferred)
				break;
			continue;
		}
		err = queue_sleep(q, sleep_for(q, least - nr), sleep_until(q, deadline_ns));
		if (err == -ETIME)
			err = 0;
	}
	leave(q);
	return nr ? (int)nr : err;
}

int kvblk_queue_eventfd(struct kvblk_queue *q)
{
	int err = 0;

	if (is_foreign(q))
		return -EEXIST;
	pthread_mutex_lock(&q->lock);
	if (q->event < 0) {
		q->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (q->event < 0)
			err = -errno;
		else if (q->type)
			err = q->type->notify(q->ring, q->event);
		if (err && q->event >= 0) {
			close(q->event);
			q->event = -1;
		}
	}
	leave(q);
	return err ? err : q->event;
}

/* ---- cancel and end ---- */

static unsigned int cancel(struct kvblk_queue *q, const void *tag, bool all)
{
	const struct timespec pause = { .tv_nsec = CANCEL_WAIT_NS };
	unsigned int nr = 0;
	bool missed = true;

	for (int i = 0; missed && i < CANCEL_TRIES; i++) {
		if (i)
			nanosleep(&pause, NULL);
		pthread_mutex_lock(&q->lock);
		nr += cancel_pass(q, tag, all, &missed);
		leave(q);
	}
	return nr;
}

int kvblk_queue_cancel(struct kvblk_queue *q, void *tag)
{
	return cancel(q, tag, false) ? 0 : -ENOENT;
}

/* Returns true if a submission up to @number has operations in flight. */
static bool is_running(const struct kvblk_queue *q, uint64_t number)
{
	const struct submission *s;

	TAILQ_FOREACH(s, &q->live, live) {
		if (s->number > number)
			break;
		if (s->state != SUBMISSION_OVER)
			return true;
	}
	return false;
}

int kvblk_queue_drain(struct kvblk_queue *q, uint64_t deadline_ns)
{
	uint64_t number;
	int err = 0;

	if (is_foreign(q))
		return -EEXIST;
	pthread_mutex_lock(&q->lock);
	number = q->last_number;
	for (;;) {
		look(q);
		if (!is_running(q, number)) {
			err = 0;
			break;
		}
		if (!err && is_past(deadline_ns))
			err = -ETIME;
		if (err)
			break;
		err = queue_sleep(q, 1, sleep_until(q, deadline_ns));
		if (err == -ETIME)
			err = 0;
	}
	leave(q);
	return err;
}

void kvblk_queue_stop(struct kvblk_queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_broadcast(&q->work);
	pthread_mutex_unlock(&q->lock);
	cancel(q, NULL, true);
}

void kvblk_queue_destroy(struct kvblk_queue *q)
{
	struct submission *s;
	bool missed;
	int err = 0;

	if (!q)
		return;
	kvblk_queue_stop(q);
	pthread_mutex_lock(&q->lock);
	while (!is_foreign(q) && (!err || err == -ETIME || err == -EINTR)) {
		/* cancel again, because a batch may have been about to begin */
		cancel_pass(q, NULL, true, &missed);
		if (!is_running(q, UINT64_MAX))
			break;
		err = queue_sleep(q, 1, now_ns() + STOP_WAIT_NS);
	}
	pthread_mutex_unlock(&q->lock);
	for (unsigned int i = 0; i < q->nr_threads; i++)
		pthread_join(q->threads[i], NULL);
	if (q->type)
		q->type->destroy(q->ring);
	while ((s = TAILQ_FIRST(&q->live))) {
		TAILQ_REMOVE(&q->live, s, live);
		free(s);
	}
	if (q->event >= 0)
		close(q->event);
	pthread_cond_destroy(&q->work);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

/*
 * Returns a random number, because queues count their cookies from there: the queues of all
 * processes that share the open file must not find each other's operations.
 */
static uint64_t first_cookie(void)
{
	uint64_t first;

	return getrandom(&first, sizeof(first), GRND_NONBLOCK) == sizeof(first) ? first :
									       now_ns() << 20;
}

static const struct ring_type *ring_type(const struct kvblk *kv)
{
	fake_ring_fn fake;
	const struct ring_type *type = NULL;

	*(void **)&fake = dlsym(RTLD_DEFAULT, KVBLK_FAKE_RING);
	if (fake)
		type = fake(kv->fd);
	return type ? type : &kvblk_io_uring;
}

int kvblk_queue_create(struct kvblk *kv, const struct kvblk_queue_options *options,
		       struct kvblk_queue **queue)
{
	struct kvblk_queue_options o;
	struct kvblk_queue *q;
	int err = options_copy(&o, sizeof(o), options, END_OF(struct kvblk_queue_options, flags));

	if (err)
		return err;
	if (o.depth > KVBLK_QUEUE_DEPTH_MAX || o.threads > KVBLK_QUEUE_THREADS_MAX ||
	    o.flags & ~(unsigned int)(KVBLK_QUEUE_ONE_THREAD | KVBLK_QUEUE_UNCANCELABLE |
				      KVBLK_QUEUE_DEFER) ||
	    (o.flags & KVBLK_QUEUE_DEFER && !(o.flags & KVBLK_QUEUE_ONE_THREAD)))
		return -EINVAL;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->kv = kv;
	q->depth = o.depth ? o.depth : DEPTH;
	q->flags = o.flags;
	q->owner = pthread_self();
	atomic_init(&q->next_cookie, first_cookie());
	q->max_threads = o.threads ? o.threads : STAGE_THREADS;
	q->event = -1;
	TAILQ_INIT(&q->live);
	STAILQ_INIT(&q->todo);
	STAILQ_INIT(&q->finished);
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->work, NULL);
	if (o.threads) {
		/* start a thread now, so that no submission can fail for want of a thread */
		pthread_mutex_lock(&q->lock);
		err = add_thread(q);
		pthread_mutex_unlock(&q->lock);
	} else {
		q->type = ring_type(kv);
		err = q->type->create(kv->fd, q->depth, o.flags & KVBLK_QUEUE_ONE_THREAD, &q->ring);
	}
	if (err) {
		pthread_cond_destroy(&q->work);
		pthread_mutex_destroy(&q->lock);
		free(q);
		return err;
	}
	*queue = q;
	return 0;
}
