/* SPDX-License-Identifier: GPL-2.0 */
/* Spinlocks that yield while they wait, because the holder may be preempted. */
#ifndef KVBLK_SHIM_LINUX_SPINLOCK_H
#define KVBLK_SHIM_LINUX_SPINLOCK_H

#include <sched.h>

#include <linux/cleanup.h>
#include <linux/lockdep.h>
#include <linux/types.h>

typedef struct {
	bool locked;
} spinlock_t;

static inline void spin_lock_init(spinlock_t *lock)
{
	lock->locked = false;
}

static inline bool spin_trylock(spinlock_t *lock)
{
	return !__atomic_exchange_n(&lock->locked, true, __ATOMIC_ACQUIRE);
}

/* Set by tests: yield at random before a lock is taken. */
extern bool shim_jitter;
void shim_yield(void);

static inline void spin_lock(spinlock_t *lock)
{
	if (unlikely(shim_jitter))
		shim_yield();
	while (!spin_trylock(lock))
		sched_yield();
}

/* Warns about a wrong order even if no deadlock follows: see shim.c. */
void spin_lock_nested(spinlock_t *lock, unsigned int subclass);

static inline void spin_unlock(spinlock_t *lock)
{
	smp_store_release(&lock->locked, false);
}

static inline bool spin_is_locked(spinlock_t *lock)
{
	return READ_ONCE(lock->locked);
}

#define spin_lock_bh(lock)			spin_lock(lock)
#define spin_unlock_bh(lock)			spin_unlock(lock)

DEFINE_GUARD(spinlock, spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD(spinlock_irq, spinlock_t *, spin_lock(_T), spin_unlock(_T))
DEFINE_GUARD(spinlock_irqsave, spinlock_t *, spin_lock(_T), spin_unlock(_T))

#endif
