// SPDX-License-Identifier: MIT
/*
 * The io_uring engines: a queue of the library, always filled to its depth. The thread that
 * runs operations creates the queue with its first one, because a queue belongs to its
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
	struct iovec memory;	/* memory to register, or no bytes */
	struct kvblk_result results[];
};

static int uring_create(struct kvblk *kv, unsigned int depth,
			const struct iovec *memory, struct bench_queue **queue)
{
	struct bench_queue *q;

	q = calloc(1, sizeof(*q) + depth * sizeof(q->results[0]));
	if (!q)
		return -ENOMEM;
	q->kv = kv;
	q->depth = depth;
	*queue = q;
	return 0;
}

static int fixed_create(struct kvblk *kv, unsigned int depth,
			const struct iovec *memory, struct bench_queue **queue)
{
	int err = uring_create(kv, depth, memory, queue);

	if (!err)
		(*queue)->memory = *memory;
	return err;
}

static void uring_destroy(struct bench_queue *queue)
{
	kvblk_queue_destroy(queue->queue);
	free(queue);
}

static int uring_ready(struct bench_queue *queue)
{
	int err = 0;

	if (queue->queue && !pthread_equal(queue->thread, pthread_self())) {
		kvblk_queue_destroy(queue->queue);
		queue->queue = NULL;
	}
	if (!queue->queue) {
		queue->thread = pthread_self();
		err = kvblk_queue_create(queue->kv, queue->depth, 0, &queue->queue);
		if (!err && queue->memory.iov_len)
			err = kvblk_queue_register(queue->queue, &queue->memory, 1);
	}
	return err;
}

static int uring_start(struct bench_queue *queue, const struct kvblk_op *op)
{
	int err = uring_ready(queue);

	return err ? err : kvblk_queue_add(queue->queue, op);
}

static int fixed_start(struct bench_queue *queue, const struct kvblk_op *op)
{
	const struct kvblk_piece *piece = (const void *)(uintptr_t)op->pieces;
	struct kvblk_op fixed = *op;
	int err = uring_ready(queue);

	/* a ring cannot register device memory */
	if (piece->type == KVBLK_PIECE_REGISTERED)
		return err ? err : kvblk_queue_add(queue->queue, op);
	fixed.nr_pieces = 0;
	fixed.pieces = piece->addr;
	fixed.length = (uint32_t)piece->length;
	return err ? err : kvblk_queue_add_fixed(queue->queue, &fixed, 0);
}

static int uring_reap(struct bench_queue *queue,
		      const struct kvblk_result **results)
{
	*results = queue->results;
	return kvblk_queue_wait(queue->queue, queue->results, queue->depth, 1, -1);
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
	.create = fixed_create,
	.destroy = uring_destroy,
	.start = fixed_start,
	.reap = uring_reap,
};
