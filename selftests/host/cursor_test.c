// SPDX-License-Identifier: GPL-2.0
/*
 * The cursor of an open segment: no two puts get the same units, and the summary of all records
 * still fits.
 */
#include <pthread.h>

#include "format/format.h"
#include "kvblk_test.h"
#include "log/cursor.h"

#define UNITS	2048u	/* 8 MiB */
#define THREADS	4

static atomic64_t cursor;
static u16 owner[UNITS];	/* by unit: 1 + the record's number; 0: free */
static u32 owner_nr;

static bool claim(u32 units)
{
	u32 unit, index;

	if (!kvblk_cursor_take(&cursor, units, UNITS, &unit, &index))
		return false;
	__atomic_add_fetch(&owner_nr, 1, __ATOMIC_RELAXED);
	for (u32 i = unit; i < unit + units; i++) {
		u16 free = 0;

		assert_true(__atomic_compare_exchange_n(&owner[i], &free,
							(u16)(index + 1), false,
							__ATOMIC_RELAXED,
							__ATOMIC_RELAXED));
	}
	return true;
}

static void begin(void)
{
	atomic64_set(&cursor, 0);
	memset(owner, 0, sizeof(owner));
	owner_nr = 0;
}

/* Check a full segment: the cursor counted every record, and their summary has its space. */
static void check_full(u32 least)
{
	s64 end = atomic64_read(&cursor);
	u32 pages = kvblk_summary_pages(kvblk_cursor_nr(end));

	assert_int_equal(kvblk_cursor_nr(end), owner_nr);
	assert_true(kvblk_cursor_unit(end) + pages <= UNITS);
	assert_true(kvblk_cursor_unit(end) + kvblk_summary_pages(owner_nr + 1) +
		    least > UNITS);
	for (u32 i = kvblk_cursor_unit(end); i < UNITS; i++)
		assert_int_equal(owner[i], 0);
}

TEST(every_size_fills_it)
{
	for (u32 units = 2; units < UNITS; units++) {
		begin();
		while (claim(units))
			;
		check_full(units);
	}
	begin();
	assert_false(claim(UNITS));
	assert_true(claim(UNITS - 1));
	assert_false(claim(1));
}

TEST(closed_is_closed)
{
	begin();
	assert_true(claim(2));
	assert_int_equal(kvblk_cursor_nr(atomic64_xchg(&cursor,
						       KVBLK_CURSOR_CLOSED)), 1);
	assert_false(claim(2));
	assert_int_equal(atomic64_read(&cursor), KVBLK_CURSOR_CLOSED);
}

static void *taker(void *arg)
{
	u32 dice = (u32)(uintptr_t)arg;

	do {
		dice = dice * 1664525 + 1013904223;
	} while (claim(2 + (dice >> 24) % 15));
	while (claim(2))
		;
	return NULL;
}

TEST(takers_do_not_meet)
{
	pthread_t threads[THREADS];

	for (u32 round = 0; round < 200; round++) {
		begin();
		for (u32 i = 0; i < THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, taker,
							(void *)(uintptr_t)
							(round * THREADS + i)), 0);
		for (u32 i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		check_full(2);
	}
}

TEST_MAIN("room")
