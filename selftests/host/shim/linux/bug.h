/* SPDX-License-Identifier: GPL-2.0 */
/* A warning aborts, so that the test fails. */
#ifndef KVBLK_SHIM_LINUX_BUG_H
#define KVBLK_SHIM_LINUX_BUG_H

#include <stdio.h>
#include <stdlib.h>

#include <linux/build_bug.h>
#include <linux/compiler.h>

#define WARN_ON(cond) ({						\
	bool warn_ = !!(cond);						\
	if (unlikely(warn_)) {						\
		fprintf(stderr, "%s:%d: WARN_ON(%s)\n", __FILE__,	\
			__LINE__, #cond);				\
		abort();						\
	}								\
	warn_;								\
})
#define WARN_ON_ONCE(cond)	WARN_ON(cond)
#define WARN(cond, ...)		WARN_ON(cond)
#define BUG()			abort()

#endif
