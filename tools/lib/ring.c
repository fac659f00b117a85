// SPDX-License-Identifier: MIT
/*
 * The io_uring of a queue. A command is stored in its SQE, a result in its CQE. CQEs with user
 * data 0 are of a poll of an eventfd, with which other threads end a wait.
 */
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "lib.h"
#include "ring.h"

struct ring {
	struct io_uring uring;
	int kick;
	bool polls;	/* a poll of @kick is in the ring */
};

static int poll_kick(struct ring *ring)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

	if (!sqe)
		return -EBUSY;
	io_uring_prep_poll_multishot(sqe, ring->kick, POLLIN);
	sqe->user_data = 0;
	ring->polls = true;
	return 0;
}

static int start(void *handle)
{
	struct ring *ring = handle;
	int err = 0;

	/*
	 * With one thread the system call also posts what has completed, so that reap() needs none;
	 * else the kernel does that in any system call.
	 */
	while (io_uring_sq_ready(&ring->uring) && (err >= 0 || err == -EINTR))
		err = ring->uring.flags & IORING_SETUP_DEFER_TASKRUN ?
			      io_uring_submit_and_get_events(&ring->uring) :
			      io_uring_submit(&ring->uring);
	return io_uring_sq_ready(&ring->uring) ? err : 0;
}

static void ring_free(void *handle)
{
	struct ring *ring = handle;

	/* now, because the kernel frees the ring later and would keep the node open until then */
	io_uring_unregister_files(&ring->uring);
	io_uring_queue_exit(&ring->uring);
	close(ring->kick);
	free(ring);
}

static int ring_new(int fd, unsigned int depth, bool one_thread, void **handle)
{
	struct io_uring_params params = { .flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32 };
	struct ring *ring = calloc(1, sizeof(*ring));
	int err;

	if (!ring)
		return -ENOMEM;
	/* without one_thread no flag defers completions to a thread that may not wait for them */
	if (one_thread)
		params.flags |= IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
				IORING_SETUP_TASKRUN_FLAG;
	ring->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ring->kick < 0) {
		err = -errno;
		goto free_ring;
	}
	/* add an entry for the poll */
	err = io_uring_queue_init_params(depth + 1, &ring->uring, &params);
	if (err)
		goto close_kick;
	/* a registered file saves the lookup in the task's file table */
	err = io_uring_register_files(&ring->uring, &fd, 1);
	if (!err)
		err = poll_kick(ring);
	if (!err)
		err = start(ring);
	if (err)
		goto exit_uring;
	*handle = ring;
	return 0;

exit_uring:
	io_uring_queue_exit(&ring->uring);
close_kick:
	close(ring->kick);
free_ring:
	free(ring);
	return err;
}

static void add(void *handle, uint32_t cmd_op, const void *arg, size_t len, uint64_t user_data)
{
	struct ring *ring = handle;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->uring);

	/* create() has made an entry for each command */
	if (!sqe)
		abort();
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	/* index of the registered file */
	sqe->fd = 0;
	sqe->flags = IOSQE_FIXED_FILE;
	sqe->cmd_op = cmd_op;
	sqe->user_data = user_data;
	memcpy((char *)sqe + offsetof(struct io_uring_sqe, cmd), arg, len);
}

static unsigned int reap(void *handle, struct ring_end *ends, unsigned int max)
{
	struct ring *ring = handle;
	struct io_uring_cqe *cqe;
	unsigned int head, nr = 0;
	eventfd_t count;

	/* task work is not run, and overflown completions are not posted, without a system call */
	if (IO_URING_READ_ONCE(*ring->uring.sq.kflags) &
	    (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW))
		io_uring_get_events(&ring->uring);
	io_uring_for_each_cqe(&ring->uring, head, cqe) {
		if (nr == max)
			break;
		if (!cqe->user_data) {
			eventfd_read(ring->kick, &count);
			ring->polls = cqe->flags & IORING_CQE_F_MORE;
		}
		ends[nr++] = (struct ring_end){
			.user_data = cqe->user_data,
			.res = cqe->res,
			.flags = (uint32_t)cqe->big_cqe[0],
			.value_len = (uint32_t)(cqe->big_cqe[0] >> 32),
		};
	}
	io_uring_cq_advance(&ring->uring, nr);
	if (!ring->polls)
		poll_kick(ring);
	/* the next call tries again what fails now */
	start(ring);
	return nr;
}

static struct __kernel_timespec time_left(uint64_t deadline_ns)
{
	uint64_t now = now_ns(), ns = deadline_ns > now ? deadline_ns - now : 0;

	return (struct __kernel_timespec){
		.tv_sec = (long long)(ns / NS_PER_S),
		.tv_nsec = (long long)(ns % NS_PER_S),
	};
}

static int wait_for(void *handle, unsigned int least, uint64_t deadline_ns)
{
	struct ring *ring = handle;
	struct io_uring_getevents_arg arg = { 0 };
	struct __kernel_timespec left;
	int ret;

	if (deadline_ns) {
		left = time_left(deadline_ns);
		arg.ts = (uintptr_t)&left;
	}
	/* io_uring_wait_cqes() would sleep again after wake() if another thread reaps */
	ret = io_uring_enter2((unsigned int)ring->uring.ring_fd, 0, least,
			      IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, (sigset_t *)&arg,
			      sizeof(arg));
	return ret < 0 ? ret : 0;
}

static int start_and_wait(void *handle, unsigned int least, uint64_t deadline_ns)
{
	struct io_uring *uring = &((struct ring *)handle)->uring;
	struct __kernel_timespec left;
	struct io_uring_cqe *cqe;
	int ret;

	if (deadline_ns) {
		left = time_left(deadline_ns);
		ret = io_uring_submit_and_wait_timeout(uring, &cqe, least, &left, NULL);
	} else {
		ret = io_uring_submit_and_wait(uring, least);
	}
	if (ret < 0)
		return ret;
	if (io_uring_sq_ready(uring))
		return -EAGAIN;
	/* if commands were started, the system call does not return what ended its wait early */
	if (io_uring_cq_ready(uring) >= least)
		return 0;
	return deadline_ns && now_ns() >= deadline_ns ? -ETIME : -EINTR;
}

static void wake(void *handle)
{
	struct ring *ring = handle;

	eventfd_write(ring->kick, 1);
}

static int notify(void *handle, int fd)
{
	struct ring *ring = handle;

	return io_uring_register_eventfd(&ring->uring, fd);
}

const struct ring_type kvblk_io_uring = {
	.create = ring_new,
	.destroy = ring_free,
	.add = add,
	.start = start,
	.reap = reap,
	.wait = wait_for,
	.start_and_wait = start_and_wait,
	.wake = wake,
	.notify = notify,
};
