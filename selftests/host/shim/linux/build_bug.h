/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_SHIM_LINUX_BUILD_BUG_H
#define KVBLK_SHIM_LINUX_BUILD_BUG_H

#include <assert.h>

/* The C library's static_assert() requires a message. */
#undef static_assert
#define static_assert(expr, ...) _Static_assert(expr, #expr)
#define BUILD_BUG_ON(cond)	_Static_assert(!(cond), #cond)

#endif
