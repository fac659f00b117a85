/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What KASAN and kmemleak remember the stack of an allocation with, in the
 * debug kernel: see vm/built-kernel. User-mode Linux looks at each word of the
 * stack whether it is an address of code, which takes 86 % of the time of a
 * test; frame pointers tell the same at once.
 *
 * The rule: a frame is taken where it lies above the one before, in the same
 * stack, which is aligned to its size.
 */
#ifndef KVBLK_STACK_H
#define KVBLK_STACK_H

#include <linux/stacktrace.h>
#include <linux/thread_info.h>

static inline unsigned int kvblk_stack_save(unsigned long *store,
					    unsigned int size,
					    unsigned int skip)
{
	unsigned long *frame = __builtin_frame_address(0), *next;
	unsigned long top = ((unsigned long)frame | (THREAD_SIZE - 1)) -
			    2 * sizeof(long);
	unsigned int nr = 0;

	while (nr < size) {
		if (skip)
			skip--;
		else
			store[nr++] = frame[1];
		next = (unsigned long *)frame[0];
		if (next <= frame || (unsigned long)next > top)
			break;
		frame = next;
	}
	return nr;
}

#define stack_trace_save kvblk_stack_save

#endif /* KVBLK_STACK_H */
