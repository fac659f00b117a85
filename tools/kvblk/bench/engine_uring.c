// SPDX-License-Identifier: MIT
/*
 * The io_uring engines: a queue of the library, always filled to its depth. The thread that
 * runs operations creates the queue with its first one, because such a queue belongs to its
 * creator; the pool may have been filled by another thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "bench/bench.h"

struct bench_queue {
	struct kvblk *kv;
	struct kvblk_queue *queue;
	pthread_t thread;	/* creator of @queue */
	unsigned int depth;
	unsigned int nr;	/* entries of @ops to submit */
	/* arrays of @depth entries */
	struct kvblk_op *ops;
	struct kvblk_completion *completions;
	struct kvblk_result results[];
};

static void uring_destroy(struct bench_queue *queue)
{
	kvblk_queue_destroy(queue->queue);
	free(queue->completions);
	free(queue->ops);
	free(queue);
}

static int uring_create(struct kvblk *kv, unsigned int depth, struct bench_queue **queue)
{
	struct bench_queue *q;

	q = calloc(1, sizeof(*q) + depth * sizeof(q->results[0]));
	if (!q)
		return -ENOMEM;
	q->kv = kv;
	q->depth = depth;
	q->ops = calloc(depth, sizeof(*q->ops));
	q->completions = calloc(depth, sizeof(*q->completions));
	if (!q->ops || !q->completions) {
		uring_destroy(q);
		return -ENOMEM;
	}
	*queue = q;
	return 0;
}

static int uring_start(struct bench_queue *queue, const struct kvblk_op *op)
{
	queue->ops[queue->nr++] = *op;
	return 0;
}

static int uring_ready(struct bench_queue *queue)
{
	const struct kvblk_queue_options options = {
		.size = sizeof(options),
		.depth = queue->depth,
		.flags = KVBLK_QUEUE_ONE_THREAD | KVBLK_QUEUE_UNCANCELABLE | KVBLK_QUEUE_DEFER,
	};

	if (queue->queue && !pthread_equal(queue->thread, pthread_self())) {
		kvblk_queue_destroy(queue->queue);
		queue->queue = NULL;
	}
	if (queue->queue)
		return 0;
	queue->thread = pthread_self();
	return kvblk_queue_create(queue->kv, &options, &queue->queue);
}

static int uring_reap(struct bench_queue *queue,
		      const struct kvblk_result **results)
{
	int err = uring_ready(queue), nr;

	if (!err && queue->nr)
		err = kvblk_queue_submit(queue->queue, queue->ops, queue->nr, 0, NULL);
	queue->nr = 0;
	if (err)
		return err;
	nr = kvblk_queue_wait(queue->queue, queue->completions, queue->depth, 1, 0);
	for (int i = 0; i < nr; i++) {
		const struct kvblk_completion *from = &queue->completions[i];

		queue->results[i] = (struct kvblk_result){
			.cookie = from->cookie, .res = from->res, .flags = from->flags,
		};
	}
	*results = queue->results;
	return nr;
}

const struct bench_engine bench_uring = {
	.name = "uring",
	.create = uring_create,
	.destroy = uring_destroy,
	.start = uring_start,
	.reap = uring_reap,
};

const struct bench_engine bench_uring_fixed = {
	.name = "uring-fixed",
	.registers = true,
	.create = uring_create,
	.destroy = uring_destroy,
	.start = uring_start,
	.reap = uring_reap,
};
