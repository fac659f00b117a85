// SPDX-License-Identifier: MIT
/* The hash table compared with a plain array, with colliding keys. */
#include <stdbool.h>

#include "kv_events/hash_table.h"
#include "kvblk_test.h"

#define KEYS	300

struct entry {
	uint64_t key;
	uint64_t value;
};

static struct table table = { .size = sizeof(struct entry) };
static uint64_t values[KEYS];	/* 0: not in the table */

/* Returns keys that collide; the last ones' neighbours wrap around. */
static uint64_t key_of(size_t i)
{
	return i % 3 ? i + 1 : (i + 1) << 40;
}

static void check_all(void)
{
	const struct entry *entry = NULL;
	size_t nr = 0, seen = 0;

	for (size_t i = 0; i < KEYS; i++) {
		entry = table_find(&table, key_of(i));
		assert_int_equal(!!entry, !!values[i]);
		if (entry)
			assert_int_equal(entry->value, values[i]);
		nr += !!values[i];
	}
	for (entry = NULL; (entry = table_next(&table, entry));)
		seen++;
	assert_int_equal(table.nr, nr);
	assert_int_equal(seen, nr);
}

TEST(test_random)
{
	struct entry *entry;

	assert_null(table_find(&table, 1));
	assert_null(table_next(&table, NULL));
	for (int i = 0; i < 20000; i++) {
		size_t n = (size_t)random() % KEYS;

		if (values[n] && random() % 2) {
			table_remove(&table, table_find(&table, key_of(n)));
			values[n] = 0;
		} else {
			entry = table_add(&table, key_of(n));
			assert_int_equal(entry->value, values[n]);
			values[n] = (uint64_t)i + 1;
			entry->value = values[n];
		}
		if (i % 100 == 0)
			check_all();
	}
	check_all();
	table_free(&table);
	assert_null(table_find(&table, key_of(0)));
	assert_non_null(table_add(&table, key_of(0)));
	table_free(&table);
}

static unsigned int visits[KEYS];

static void visit(void *arg, const void *entry)
{
	assert_ptr_equal(arg, visits);
	visits[((const struct entry *)entry)->value]++;
}

/*
 * Entries present all the time are visited exactly once, however the table changes between
 * shares.
 */
TEST(test_shares)
{
	struct table moving = { .size = sizeof(struct entry) };

	table_share(&moving, 0, 1, visit, visits);
	for (uint64_t shares = 1; shares < 10000; shares = shares * 3 + 1) {
		for (size_t i = 0; i < KEYS; i++)
			((struct entry *)table_add(&moving, key_of(i)))->value = i;
		memset(visits, 0, sizeof(visits));
		for (uint64_t share = 0; share < shares; share++) {
			table_share(&moving, share, shares, visit, visits);
			/* half of the keys change and the table grows, the first half stays */
			for (size_t n = 0; n < 3; n++) {
				size_t i = KEYS / 2 + (size_t)random() % (KEYS / 2);
				struct entry *entry = table_find(&moving, key_of(i));

				if (entry)
					table_remove(&moving, entry);
				else
					((struct entry *)table_add(&moving, key_of(i)))->value = i;
			}
			if (share % 8 == 0 && shares < 200)
				for (uint64_t i = 0; i < 100; i++)
					((struct entry *)table_add(&moving, (share * 100 + i + 1) << 20))->value = KEYS - 1;
		}
		for (size_t i = 0; i < KEYS / 2; i++)
			assert_int_equal(visits[i], 1);
	}
	table_free(&moving);
}

#define CHOSEN	2100

/* Longest run of occupied slots, with keys that collide under a plain multiplication. */
static size_t longest_run(struct table *chosen)
{
	size_t run = 0, longest = 0;

	for (uint64_t i = 1; i <= CHOSEN; i++)
		assert_non_null(table_add(chosen, i * 0xf1de83e19937733dull));
	for (size_t i = 0; i < chosen->room; i++) {
		run = ((struct entry *)(void *)chosen->entries)[i].key ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	return longest;
}

/* Clients cannot choose slots by choosing keys: each table has its own seed. */
TEST(test_chosen_keys)
{
	struct table a = { .size = sizeof(struct entry) }, b = a;

	assert_in_range(longest_run(&a), 1, CHOSEN / 4);
	assert_in_range(longest_run(&b), 1, CHOSEN / 4);
	assert_int_equal(a.room, b.room);
	assert_memory_not_equal(a.entries, b.entries, a.room * a.size);
	table_free(&a);
	table_free(&b);
}

TEST_MAIN("table")
