// SPDX-License-Identifier: MIT
/*
 * The ioctl engine: all started operations are one batch. A batch ends as a whole, so the
 * queue runs empty after each batch.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench/bench.h"

struct bench_queue {
	struct kvblk *kv;
	struct kvblk_result *results;
	unsigned int nr;
	struct kvblk_op ops[];
};

static int ioctl_create(struct kvblk *kv, unsigned int depth, struct bench_queue **queue)
{
	struct bench_queue *q;

	q = calloc(1, sizeof(*q) + depth * sizeof(q->ops[0]));
	if (!q)
		return -ENOMEM;
	q->kv = kv;
	q->results = calloc(depth, sizeof(*q->results));
	if (!q->results) {
		free(q);
		return -ENOMEM;
	}
	*queue = q;
	return 0;
}

static void ioctl_destroy(struct bench_queue *queue)
{
	free(queue->results);
	free(queue);
}

static int ioctl_start(struct bench_queue *queue, const struct kvblk_op *op)
{
	queue->ops[queue->nr++] = *op;
	return 0;
}

static int ioctl_reap(struct bench_queue *queue,
		      const struct kvblk_result **results)
{
	unsigned int nr = queue->nr;
	int err = kvblk_submit(queue->kv, queue->ops, nr, queue->results, 0);

	queue->nr = 0;
	*results = queue->results;
	return err ? err : (int)nr;
}

const struct bench_engine bench_ioctl = {
	.name = "ioctl",
	.create = ioctl_create,
	.destroy = ioctl_destroy,
	.start = ioctl_start,
	.reap = ioctl_reap,
};
