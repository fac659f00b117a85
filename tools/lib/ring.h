/* SPDX-License-Identifier: MIT */
/* Rings, which run the commands of a queue without threads: an io_uring, or libkvblk-fake. */
#ifndef LIBKVBLK_RING_H
#define LIBKVBLK_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct ring_end - completion of a command
 * @user_data: as given to add(); 0: not of a command, but of a wake()
 * @res: result of the operation or of the whole batch
 * @flags: KVBLK_URING_OP: as in &struct kvblk_result
 * @value_len: likewise
 */
struct ring_end {
	uint64_t user_data;
	int32_t res;
	uint32_t flags;
	uint32_t value_len;
};

/**
 * struct ring_type - a kind of ring
 * @create: make a ring for commands on @fd, of which at most @depth are in flight
 * @destroy: free the ring; commands in flight are canceled
 * @add: add a command, @len bytes at @arg; @user_data is not 0
 * @start: start the added commands. An error means that some were not started: call again
 * @reap: return up to @max completions
 * @wait: sleep until @least completions can be reaped, or @deadline_ns passes (-ETIME; 0: no
 *	deadline); -EINTR after a signal. Completions of wake() count
 * @start_and_wait: start() and wait() in one call, for rings with @one_thread. An error other
 *	than wait()'s means that some commands were not started: call start()
 * @wake: add a completion with user_data 0
 * @notify: make the eventfd @fd readable whenever there are new completions
 *
 * The caller serializes all calls but wait(), start_and_wait() and wake(). With @one_thread the
 * thread that called create() makes all calls but wake().
 */
struct ring_type {
	int (*create)(int fd, unsigned int depth, bool one_thread, void **ring);
	void (*destroy)(void *ring);
	void (*add)(void *ring, uint32_t cmd_op, const void *arg, size_t len, uint64_t user_data);
	int (*start)(void *ring);
	unsigned int (*reap)(void *ring, struct ring_end *ends, unsigned int max);
	int (*wait)(void *ring, unsigned int least, uint64_t deadline_ns);
	int (*start_and_wait)(void *ring, unsigned int least, uint64_t deadline_ns);
	void (*wake)(void *ring);
	int (*notify)(void *ring, int fd);
};

extern const struct ring_type kvblk_io_uring;

/*
 * libkvblk-fake exports the function KVBLK_FAKE_RING: it returns the kind of ring for @fd, or NULL
 * if the descriptor is not of a fake pool.
 */
#define KVBLK_FAKE_RING	"kvblk_fake_ring"
typedef const struct ring_type *(*fake_ring_fn)(int fd);

#endif
