/* SPDX-License-Identifier: MIT */
/* Threads of the daemon. */
#ifndef KVBLKD_THREAD_H
#define KVBLKD_THREAD_H

/**
 * thread_start() - start a detached thread with a small stack
 * @work: function of the thread
 * @arg: argument of @work
 *
 * Returns 0, or a negative errno: no thread was started. Callable from any thread.
 */
int thread_start(void *(*work)(void *arg), void *arg);

#endif
