// SPDX-License-Identifier: MIT
/* Threads of the daemon, see thread.h. */
#include <pthread.h>

#include "common/thread.h"

#define STACK_BYTES	(1u << 20)

int thread_start(void *(*work)(void *arg), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &attr, work, arg);
	pthread_attr_destroy(&attr);
	return -err;
}
