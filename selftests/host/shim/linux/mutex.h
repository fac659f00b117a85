/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_MUTEX_H
#define KVBLK_SHIM_LINUX_MUTEX_H

#include <pthread.h>

#include <linux/cleanup.h>

struct mutex {
	pthread_mutex_t mutex;
};

static inline void mutex_init(struct mutex *lock)
{
	pthread_mutex_init(&lock->mutex, NULL);
}

static inline void mutex_lock(struct mutex *lock)
{
	pthread_mutex_lock(&lock->mutex);
}

static inline int mutex_trylock(struct mutex *lock)
{
	return !pthread_mutex_trylock(&lock->mutex);
}

static inline void mutex_unlock(struct mutex *lock)
{
	pthread_mutex_unlock(&lock->mutex);
}

DEFINE_GUARD(mutex, struct mutex *, mutex_lock(_T), mutex_unlock(_T))

#endif
