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

static struct table table = { .size = sizeof(struct entry), .words = 1 };
static uint64_t values[KEYS];	/* 0: not in the table */

static void *find(const struct table *in, uint64_t key)
{
	return table_find(in, &key);
}

static void *add(struct table *to, uint64_t key)
{
	return table_add(to, &key);
}

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
		entry = find(&table, key_of(i));
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

	assert_null(find(&table, 1));
	assert_null(table_next(&table, NULL));
	for (int i = 0; i < 20000; i++) {
		size_t n = (size_t)random() % KEYS;

		if (values[n] && random() % 2) {
			table_remove(&table, find(&table, key_of(n)));
			values[n] = 0;
		} else {
			entry = add(&table, key_of(n));
			assert_int_equal(entry->value, values[n]);
			values[n] = (uint64_t)i + 1;
			entry->value = values[n];
		}
		if (i % 100 == 0)
			check_all();
	}
	check_all();
	table_free(&table);
	assert_null(find(&table, key_of(0)));
	assert_non_null(add(&table, key_of(0)));
	table_free(&table);
}

/* Keys of two words are different if one of the words is. */
TEST(test_wide_keys)
{
	struct table wide = { .size = 3 * sizeof(uint64_t), .words = 2 };
	uint64_t key[2];
	size_t nr = 0;

	for (int turn = 0; turn < 2; turn++) {
		for (key[0] = 1; key[0] <= 20; key[0]++) {
			for (key[1] = 0; key[1] < 20; key[1]++, nr++) {
				uint64_t *entry = turn ? table_find(&wide, key) : table_add(&wide, key);

				assert_memory_equal(entry, key, sizeof(key));
				assert_int_equal(entry[2], turn ? nr - 400 : 0);
				entry[2] = nr;
			}
		}
		assert_int_equal(wide.nr, 400);
	}
	table_remove(&wide, table_find(&wide, (uint64_t[]){ 7, 7 }));
	assert_null(table_find(&wide, (uint64_t[]){ 7, 7 }));
	assert_non_null(table_find(&wide, (uint64_t[]){ 7, 8 }));
	table_free(&wide);
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
	struct table moving = { .size = sizeof(struct entry), .words = 1 };

	table_share(&moving, 0, 1, visit, visits);
	for (uint64_t shares = 1; shares < 10000; shares = shares * 3 + 1) {
		for (size_t i = 0; i < KEYS; i++)
			((struct entry *)add(&moving, key_of(i)))->value = i;
		memset(visits, 0, sizeof(visits));
		for (uint64_t share = 0; share < shares; share++) {
			table_share(&moving, share, shares, visit, visits);
			/* half of the keys change and the table grows, the first half stays */
			for (size_t n = 0; n < 3; n++) {
				size_t i = KEYS / 2 + (size_t)random() % (KEYS / 2);
				struct entry *entry = find(&moving, key_of(i));

				if (entry)
					table_remove(&moving, entry);
				else
					((struct entry *)add(&moving, key_of(i)))->value = i;
			}
			if (share % 8 == 0 && shares < 200)
				for (uint64_t i = 0; i < 100; i++)
					((struct entry *)add(&moving, (share * 100 + i + 1) << 20))->value = KEYS - 1;
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
		assert_non_null(add(chosen, i * 0xf1de83e19937733dull));
	for (size_t i = 0; i < chosen->room; i++) {
		run = ((struct entry *)(void *)chosen->entries)[i].key ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	return longest;
}

/* Clients cannot choose slots by choosing keys: each table has its own seed. */
TEST(test_chosen_keys)
{
	struct table a = { .size = sizeof(struct entry), .words = 1 }, b = a;

	assert_in_range(longest_run(&a), 1, CHOSEN / 4);
	assert_in_range(longest_run(&b), 1, CHOSEN / 4);
	assert_int_equal(a.room, b.room);
	assert_memory_not_equal(a.entries, b.entries, a.room * a.size);
	table_free(&a);
	table_free(&b);
}

TEST_MAIN("table")
