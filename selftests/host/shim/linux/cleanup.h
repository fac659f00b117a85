/* SPDX-License-Identifier: GPL-2.0 */
/* Locks and memory released at the end of a scope. */
#ifndef KVBLK_SHIM_LINUX_CLEANUP_H
#define KVBLK_SHIM_LINUX_CLEANUP_H

#include <linux/compiler.h>

#define SHIM_PASTE_(a, b)	a##b
#define SHIM_PASTE(a, b)	SHIM_PASTE_(a, b)

#define DEFINE_FREE(name, type, free)					\
static inline void __free_##name(void *p)				\
{									\
	type _T = *(type *)p;						\
									\
	free;								\
}
#define __free(name)		__attribute__((__cleanup__(__free_##name)))
#define no_free_ptr(p) ({						\
	__auto_type kept_ = (p);					\
	(p) = NULL;							\
	kept_;								\
})
#define return_ptr(p)		return no_free_ptr(p)

#define DEFINE_GUARD(name, type, lock, unlock)				\
static inline type shim_guard_##name(type _T)				\
{									\
	lock;								\
	return _T;							\
}									\
									\
static inline void shim_unguard_##name(type *p)				\
{									\
	type _T = *p;							\
									\
	unlock;								\
}
#define guard(name)							\
	__attribute__((__cleanup__(shim_unguard_##name), __unused__))	\
	__auto_type SHIM_PASTE(guard_, __COUNTER__) = shim_guard_##name

#endif
