// SPDX-License-Identifier: MIT
/*
 * Rings of the fake pool: libkvblk asks kvblk_fake_ring() before making an io_uring. A command
 * ends when started; if batches take time (KVBLK_FAKE_DELAY_MS, KVBLK_FAKE_GATE), each has a
 * thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include <linux/kvblk.h>

#include "fake.h"
#include "lib/ring.h"

struct command {
	struct command *next;
	struct ring *ring;
	uint32_t cmd_op;
	struct kvblk_op op;	/* or an address in the first 8 bytes */
	struct ring_end end;
};

struct ring {
	int fd;
	pthread_mutex_t lock;	/* protects the fields below */
	pthread_cond_t changed;	/* signaled when @ended grows, and when @nr_running becomes 0 */
	struct command *added, **added_end;
	struct command *ended, **ended_end;
	unsigned int nr_running, nr_ended;
	int event;		/* eventfd of the queue, or -1 */
};

/* Add a command to the ended ones. Called with the lock held. */
static void append(struct ring *ring, struct command *command)
{
	command->next = NULL;
	*ring->ended_end = command;
	ring->ended_end = &command->next;
	ring->nr_ended++;
	if (ring->event >= 0)
		eventfd_write(ring->event, 1);
	pthread_cond_broadcast(&ring->changed);
}

/* Run one operation as a batch, and report as the module does. */
static void run_op(struct command *command)
{
	struct kvblk_op op = command->op;
	struct kvblk_result result;
	struct kvblk_submit_arg submit = {
		.size = sizeof(submit),
		.nr_ops = 1,
		.op_size = sizeof(op),
		.result_size = sizeof(result),
		.ops = (uintptr_t)&op,
		.results = (uintptr_t)&result,
	};
	void *to = (void *)(uintptr_t)op.result;
	size_t size = op.result_size;
	int err;

	op.result = 0;
	op.result_size = 0;
	if ((to || size) && (!to || size < KVBLK_RESULT_SIZE_VER0 || size > KVBLK_STRUCT_MAX)) {
		command->end.res = -EINVAL;
		return;
	}
	err = fake_ioctl(command->ring->fd, KVBLK_IOC_SUBMIT, &submit);
	if (err)
		result = (struct kvblk_result){ .cookie = op.cookie, .res = err };
	if (to) {
		memset(to, 0, size);
		memcpy(to, &result, size < sizeof(result) ? size : sizeof(result));
	}
	command->end.res = result.res;
	command->end.flags = result.flags;
	command->end.value_len = result.value_len;
}

static void *run(void *arg)
{
	struct command *command = arg;
	struct ring *ring = command->ring;
	uint64_t addr;

	memcpy(&addr, &command->op, sizeof(addr));
	if (command->cmd_op == KVBLK_URING_OP)
		run_op(command);
	else
		command->end.res = fake_ioctl(ring->fd, command->cmd_op == KVBLK_URING_SUBMIT ?
					      KVBLK_IOC_SUBMIT : KVBLK_IOC_CANCEL,
					      (void *)(uintptr_t)addr);
	pthread_mutex_lock(&ring->lock);
	ring->nr_running--;
	append(ring, command);
	pthread_mutex_unlock(&ring->lock);
	return NULL;
}

static int create(int fd, unsigned int depth, bool one_thread, void **handle)
{
	struct ring *ring;
	pthread_condattr_t attr;

	(void)depth;
	(void)one_thread;
	if (fake_setting("KVBLK_FAKE_NO_RING"))
		return -ENOSYS;
	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	ring->fd = fd;
	ring->event = -1;
	ring->added_end = &ring->added;
	ring->ended_end = &ring->ended;
	pthread_mutex_init(&ring->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&ring->changed, &attr);
	pthread_condattr_destroy(&attr);
	*handle = ring;
	return 0;
}

static void commands_free(struct command *command)
{
	struct command *next;

	for (; command; command = next) {
		next = command->next;
		free(command);
	}
}

static void destroy(void *handle)
{
	struct ring *ring = handle;

	pthread_mutex_lock(&ring->lock);
	while (ring->nr_running)
		pthread_cond_wait(&ring->changed, &ring->lock);
	pthread_mutex_unlock(&ring->lock);
	commands_free(ring->added);
	commands_free(ring->ended);
	pthread_cond_destroy(&ring->changed);
	pthread_mutex_destroy(&ring->lock);
	free(ring);
}

static void add(void *handle, uint32_t cmd_op, const void *arg, size_t len, uint64_t user_data)
{
	struct ring *ring = handle;
	struct command *command = calloc(1, sizeof(*command));

	if (!command)
		abort();
	command->ring = ring;
	command->cmd_op = cmd_op;
	memcpy(&command->op, arg, len);
	command->end.user_data = user_data;
	*ring->added_end = command;
	ring->added_end = &command->next;
}

static int start(void *handle)
{
	bool slow = fake_setting("KVBLK_FAKE_DELAY_MS") || fake_setting("KVBLK_FAKE_GATE");
	struct ring *ring = handle;
	pthread_t thread;

	while (ring->added) {
		struct command *command = ring->added;

		ring->added = command->next;
		if (!ring->added)
			ring->added_end = &ring->added;
		pthread_mutex_lock(&ring->lock);
		ring->nr_running++;
		pthread_mutex_unlock(&ring->lock);
		if (slow && !pthread_create(&thread, NULL, run, command))
			pthread_detach(thread);
		else
			run(command);
	}
	return 0;
}

static unsigned int reap(void *handle, struct ring_end *ends, unsigned int max)
{
	struct ring *ring = handle;
	unsigned int nr = 0;

	pthread_mutex_lock(&ring->lock);
	while (ring->ended && nr < max) {
		struct command *command = ring->ended;

		ends[nr++] = command->end;
		ring->ended = command->next;
		free(command);
	}
	if (!ring->ended)
		ring->ended_end = &ring->ended;
	ring->nr_ended -= nr;
	pthread_mutex_unlock(&ring->lock);
	return nr;
}

static int wait(void *handle, unsigned int least, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / 1000000000),
		.tv_nsec = (long)(deadline_ns % 1000000000),
	};
	struct ring *ring = handle;
	int err = 0;

	pthread_mutex_lock(&ring->lock);
	while (ring->nr_ended < least && !err) {
		if (deadline_ns)
			err = pthread_cond_timedwait(&ring->changed, &ring->lock, &until);
		else
			pthread_cond_wait(&ring->changed, &ring->lock);
	}
	pthread_mutex_unlock(&ring->lock);
	return err ? -ETIME : 0;
}

static int start_and_wait(void *handle, unsigned int least, uint64_t deadline_ns)
{
	int err = start(handle);

	return err ? err : wait(handle, least, deadline_ns);
}

static void wake(void *handle)
{
	struct ring *ring = handle;
	struct command *command = calloc(1, sizeof(*command));

	if (!command)
		abort();
	pthread_mutex_lock(&ring->lock);
	append(ring, command);
	pthread_mutex_unlock(&ring->lock);
}

static int notify(void *handle, int fd)
{
	struct ring *ring = handle;

	pthread_mutex_lock(&ring->lock);
	ring->event = fd;
	pthread_mutex_unlock(&ring->lock);
	return 0;
}

static const struct ring_type fake_ring = {
	.create = create,
	.destroy = destroy,
	.add = add,
	.start = start,
	.reap = reap,
	.wait = wait,
	.start_and_wait = start_and_wait,
	.wake = wake,
	.notify = notify,
};

const struct ring_type *kvblk_fake_ring(int fd);

const struct ring_type *kvblk_fake_ring(int fd)
{
	return fake_is_node(fd) ? &fake_ring : NULL;
}
