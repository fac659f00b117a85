/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Cursor of an open segment: one atomic has the next free unit (upper half) and the number of
 * records (lower half), or -1 once closed. Pure logic: compiled for user space by selftests/host.
 */
#ifndef KVBLK_CURSOR_H
#define KVBLK_CURSOR_H

#include <linux/types.h>
#include <linux/atomic.h>

#include "format/record.h"

#define KVBLK_CURSOR_CLOSED	(-1LL)

static inline u32 kvblk_cursor_unit(s64 cursor)
{
	return (u64)cursor >> 32;
}

static inline u32 kvblk_cursor_nr(s64 cursor)
{
	return cursor;
}

/*
 * Reserves @units at @unit for record @index, and leaves space for the summary. Returns false if
 * the segment is closed or full. Any context.
 */
static inline bool kvblk_cursor_take(atomic64_t *cursor, u32 units,
				     u32 segment_units, u32 *unit, u32 *index)
{
	s64 old = atomic64_read(cursor), new;

	do {
		if (old == KVBLK_CURSOR_CLOSED ||
		    kvblk_cursor_unit(old) + units +
		    kvblk_summary_pages(kvblk_cursor_nr(old) + 1) > segment_units)
			return false;
		new = old + ((s64)units << 32) + 1;
	} while (!atomic64_try_cmpxchg(cursor, &old, new));
	*unit = kvblk_cursor_unit(old);
	*index = kvblk_cursor_nr(old);
	return true;
}

#endif
