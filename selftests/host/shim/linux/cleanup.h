/* SPDX-License-Identifier: GPL-2.0 */
/* Locks released at the end of a scope. */
#ifndef KVBLK_SHIM_LINUX_CLEANUP_H
#define KVBLK_SHIM_LINUX_CLEANUP_H

#include <linux/compiler.h>

#define SHIM_PASTE_(a, b)	a##b
#define SHIM_PASTE(a, b)	SHIM_PASTE_(a, b)

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
