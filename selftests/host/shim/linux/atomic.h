/* SPDX-License-Identifier: GPL-2.0 */
/* atomic_t and atomic64_t, with stronger ordering than the kernel's where that is simpler. */
#ifndef KVBLK_SHIM_LINUX_ATOMIC_H
#define KVBLK_SHIM_LINUX_ATOMIC_H

#include <linux/types.h>

#define ATOMIC64_INIT(i)	{ (i) }

#define xchg(p, v)		__atomic_exchange_n(p, v, __ATOMIC_SEQ_CST)
#define cmpxchg(p, o, n) ({						\
	__typeof__(*(p)) cmpxchg_ = (o);				\
									\
	__atomic_compare_exchange_n(p, &cmpxchg_, n, false,		\
				    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
	cmpxchg_;							\
})
#define try_cmpxchg(p, o, n)						\
	__atomic_compare_exchange_n(p, o, n, false, __ATOMIC_SEQ_CST,	\
				    __ATOMIC_SEQ_CST)

#define SHIM_ATOMIC(name, type)						\
static inline type name##_read(const name##_t *v)			\
{									\
	return READ_ONCE(v->counter);					\
}									\
									\
static inline void name##_set(name##_t *v, type i)			\
{									\
	WRITE_ONCE(v->counter, i);					\
}									\
									\
static inline type name##_add_return(type i, name##_t *v)		\
{									\
	return __atomic_add_fetch(&v->counter, i, __ATOMIC_SEQ_CST);	\
}									\
									\
static inline void name##_add(type i, name##_t *v)			\
{									\
	__atomic_fetch_add(&v->counter, i, __ATOMIC_RELAXED);		\
}									\
									\
static inline void name##_inc(name##_t *v)				\
{									\
	name##_add(1, v);						\
}									\
									\
static inline void name##_dec(name##_t *v)				\
{									\
	name##_add(-1, v);						\
}									\
									\
static inline type name##_inc_return(name##_t *v)			\
{									\
	return name##_add_return(1, v);					\
}									\
									\
static inline type name##_xchg(name##_t *v, type i)			\
{									\
	return xchg(&v->counter, i);					\
}									\
									\
static inline type name##_cmpxchg(name##_t *v, type old, type i)	\
{									\
	return cmpxchg(&v->counter, old, i);				\
}									\
									\
static inline bool name##_try_cmpxchg(name##_t *v, type *old, type i)	\
{									\
	return try_cmpxchg(&v->counter, old, i);			\
}

SHIM_ATOMIC(atomic, int)
SHIM_ATOMIC(atomic64, s64)

#endif
