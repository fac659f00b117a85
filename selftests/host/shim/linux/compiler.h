/* SPDX-License-Identifier: GPL-2.0 */
/* Annotations without effect in user space, and memory accesses. */
#ifndef KVBLK_SHIM_LINUX_COMPILER_H
#define KVBLK_SHIM_LINUX_COMPILER_H

#include <stddef.h>
#include <stdbool.h>

#define likely(x)		__builtin_expect(!!(x), 1)
#define unlikely(x)		__builtin_expect(!!(x), 0)

#undef __always_inline
#define __always_inline		inline __attribute__((__always_inline__))
#define noinline		__attribute__((__noinline__))
#define __packed		__attribute__((__packed__))
#define __aligned(x)		__attribute__((__aligned__(x)))
#define __user
#define __init
#define __exit
#define __rcu
#define __percpu

#define barrier()		__asm__ __volatile__("" : : : "memory")

/* Atomic instead of volatile, because ThreadSanitizer understands only that. */
#define READ_ONCE(x)		__atomic_load_n(&(x), __ATOMIC_RELAXED)
#define WRITE_ONCE(x, val)	__atomic_store_n(&(x), (val), __ATOMIC_RELAXED)

#define smp_mb()		__atomic_thread_fence(__ATOMIC_SEQ_CST)
#define smp_rmb()		__atomic_thread_fence(__ATOMIC_ACQUIRE)
#define smp_wmb()		__atomic_thread_fence(__ATOMIC_RELEASE)
#define smp_load_acquire(p)	__atomic_load_n(p, __ATOMIC_ACQUIRE)
#define smp_store_release(p, v)	__atomic_store_n(p, v, __ATOMIC_RELEASE)

#endif
