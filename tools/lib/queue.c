// SPDX-License-Identifier: MIT
/*
 * Asynchronous operations on an io_uring of the caller. An operation is stored in its
 * SQE, a result in its CQE. After creation the queue allocates nothing and takes no lock.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kvblk.h"

struct kvblk_queue {
	struct io_uring ring;
	int event;		/* eventfd, or -1 */
	unsigned int flags;
	unsigned int depth;
	unsigned int inflight;	/* added, and result not collected */
};

int kvblk_queue_create(struct kvblk *kv, unsigned int depth, unsigned int flags,
		       struct kvblk_queue **queue)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32 |
			 IORING_SETUP_TASKRUN_FLAG,
	};
	struct kvblk_queue *q;
	int err;

	if (!depth || depth > KVBLK_QUEUE_DEPTH_MAX ||
	    flags & ~(KVBLK_QUEUE_CANCELABLE | KVBLK_QUEUE_ANY_THREAD))
		return -EINVAL;
	if (flags & KVBLK_QUEUE_ANY_THREAD)
		params.flags |= IORING_SETUP_COOP_TASKRUN;
	else
		params.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	err = io_uring_queue_init_params(depth, &q->ring, &params);
	if (err) {
		free(q);
		return err;
	}
	/* a registered file saves the lookup in the task's file table */
	err = io_uring_register_files(&q->ring, (const int[]){ kvblk_fd(kv) }, 1);
	if (err) {
		io_uring_queue_exit(&q->ring);
		free(q);
		return err;
	}
	q->event = -1;
	q->flags = flags;
	q->depth = depth;
	*queue = q;
	return 0;
}

void kvblk_queue_destroy(struct kvblk_queue *queue)
{
	if (!queue)
		return;
	/*
	 * Unregister the file now, because the kernel frees the ring later and would keep
	 * the node open until then. With operations in flight Linux 6.12 would wait for
	 * them here.
	 */
	if (!queue->inflight)
		io_uring_unregister_files(&queue->ring);
	io_uring_queue_exit(&queue->ring);
	if (queue->event >= 0)
		close(queue->event);
	free(queue);
}

int kvblk_queue_register(struct kvblk_queue *queue, const struct iovec *buffers,
			 unsigned int nr)
{
	return io_uring_register_buffers(&queue->ring, buffers, nr);
}

static int queue_add(struct kvblk_queue *q, const struct kvblk_op *op,
		     int buffer)
{
	struct io_uring_sqe *sqe;
	struct kvblk_op *cmd;

	if (q->inflight == q->depth)
		return -EAGAIN;
	sqe = io_uring_get_sqe(&q->ring);
	if (!sqe)
		return -EAGAIN;
	memset(sqe, 0, offsetof(struct io_uring_sqe, cmd));
	sqe->opcode = IORING_OP_URING_CMD;
	/* index of the registered file */
	sqe->fd = 0;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->cmd_op = KVBLK_URING_OP;
	sqe->user_data = op->cookie;
	if (buffer >= 0) {
		sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
		sqe->buf_index = (uint16_t)buffer;
	}
	/* second half of the 128-byte SQE */
	cmd = (void *)((char *)sqe + offsetof(struct io_uring_sqe, cmd));
	*cmd = *op;
	/* without a cookie the kernel need not list the operation for cancellation */
	if (!(q->flags & KVBLK_QUEUE_CANCELABLE))
		cmd->cookie = 0;
	q->inflight++;
	return 0;
}

int kvblk_queue_add(struct kvblk_queue *queue, const struct kvblk_op *op)
{
	return queue_add(queue, op, -1);
}

int kvblk_queue_add_fixed(struct kvblk_queue *queue, const struct kvblk_op *op,
			  unsigned int buffer)
{
	return buffer > UINT16_MAX ? -EINVAL : queue_add(queue, op, (int)buffer);
}

int kvblk_queue_submit(struct kvblk_queue *queue)
{
	int err = 0;

	while (!err && io_uring_sq_ready(&queue->ring)) {
		err = io_uring_submit(&queue->ring);
		if (err > 0 || err == -EINTR)
			err = 0;
	}
	return err;
}

static void result_of(const struct io_uring_cqe *cqe, struct kvblk_result *result)
{
	uint64_t extra = cqe->big_cqe[0];

	*result = (struct kvblk_result){
		.cookie = cqe->user_data,
		.res = cqe->res,
		.flags = extra & 0xffff,
	};
	if (cqe->res < 0)
		result->value_len = (uint32_t)(extra >> 16);
	else
		result->layout_tag = extra >> 16;
}

int kvblk_queue_wait(struct kvblk_queue *queue, struct kvblk_result *results,
		     unsigned int max, unsigned int least, int timeout_ms)
{
	struct __kernel_timespec limit = {
		.tv_sec = timeout_ms / 1000,
		.tv_nsec = timeout_ms % 1000 * 1000000ll,
	};
	struct io_uring_cqe *cqe;
	unsigned int head, nr = 0;
	int err;

	if (!max || least > max)
		return -EINVAL;
	if (least > queue->inflight)
		least = queue->inflight;
	err = io_uring_submit_and_wait_timeout(&queue->ring, &cqe, least,
					       timeout_ms < 0 ? NULL : &limit, NULL);
	if (err < 0 && err != -ETIME && err != -EINTR && err != -EAGAIN)
		return err;
	/* without a wait the call above runs no task work, so no completion would be posted */
	if (!least && IO_URING_READ_ONCE(*queue->ring.sq.kflags) & IORING_SQ_TASKRUN)
		io_uring_get_events(&queue->ring);
	io_uring_for_each_cqe(&queue->ring, head, cqe) {
		if (nr == max)
			break;
		result_of(cqe, &results[nr++]);
	}
	io_uring_cq_advance(&queue->ring, nr);
	queue->inflight -= nr;
	if (!nr && err == -EINTR)
		return -EINTR;
	return (int)nr;
}

unsigned int kvblk_queue_inflight(const struct kvblk_queue *queue)
{
	return queue->inflight;
}

int kvblk_queue_eventfd(struct kvblk_queue *queue)
{
	int err;

	if (queue->event >= 0)
		return queue->event;
	queue->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (queue->event < 0)
		return -errno;
	err = io_uring_register_eventfd(&queue->ring, queue->event);
	if (err) {
		close(queue->event);
		queue->event = -1;
		return err;
	}
	return queue->event;
}
