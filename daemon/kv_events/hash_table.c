// SPDX-License-Identifier: MIT
/* The hash table, see hash_table.h: open addressing, linear probing, at most 3/4 full. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "kv_events/hash_table.h"

#define ROOM_FIRST	64
#define SHIFT_FIRST	(64 - 6)

static uint64_t *at(const struct table *table, size_t i)
{
	return (uint64_t *)(void *)(table->entries + i * table->size);
}

static bool same(const struct table *table, const uint64_t *a, const uint64_t *b)
{
	return !memcmp(a, b, table->words * sizeof(*a));
}

/* Hash a key with the seed, because clients choose keys. */
static uint64_t mix(const struct table *table, const uint64_t *key)
{
	uint64_t mixed = table->seed;

	for (size_t i = 0; i < table->words; i++) {
		mixed = (mixed ^ key[i]) * 0x9e3779b97f4a7c15ull;
		mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93ull;
		mixed ^= mixed >> 32;
	}
	return mixed;
}

/* Returns the preferred slot of @key. */
static size_t home(const struct table *table, const uint64_t *key)
{
	return mix(table, key) >> table->shift;
}

/* Returns the slot of @key, or the free slot where to add it. */
static size_t place(const struct table *table, const uint64_t *key)
{
	size_t i = home(table, key);

	while (*at(table, i) && !same(table, at(table, i), key))
		i = (i + 1) & (table->room - 1);
	return i;
}

void *table_find(const struct table *table, const uint64_t *key)
{
	uint64_t *entry = table->room ? at(table, place(table, key)) : NULL;

	return entry && *entry ? entry : NULL;
}

static int grow(struct table *table)
{
	struct table old = *table;

	if (!old.room && getrandom(&table->seed, sizeof(table->seed), 0) != sizeof(table->seed))
		return -EIO;
	table->room = old.room ? old.room * 2 : ROOM_FIRST;
	table->shift = old.room ? old.shift - 1 : SHIFT_FIRST;
	table->entries = calloc(table->room, table->size);
	if (!table->entries) {
		*table = old;
		return -ENOMEM;
	}
	for (size_t i = 0; i < old.room; i++) {
		if (*at(&old, i))
			memcpy(at(table, place(table, at(&old, i))), at(&old, i), old.size);
	}
	free(old.entries);
	return 0;
}

void *table_add(struct table *table, const uint64_t *key)
{
	uint64_t *entry = table_find(table, key);

	if (entry)
		return entry;
	if (table->nr + 1 > table->room / 4 * 3 && grow(table))
		return NULL;
	entry = at(table, place(table, key));
	memcpy(entry, key, table->words * sizeof(*key));
	table->nr++;
	return entry;
}

/* Remove an entry. Later entries move up, unless they would move ahead of their home. */
void table_remove(struct table *table, void *entry)
{
	size_t hole = (size_t)((char *)entry - table->entries) / table->size;
	size_t mask = table->room - 1, i = hole;

	table->nr--;
	for (;;) {
		i = (i + 1) & mask;
		if (!*at(table, i))
			break;
		if (((i - home(table, at(table, i))) & mask) < ((i - hole) & mask))
			continue;
		memcpy(at(table, hole), at(table, i), table->size);
		hole = i;
	}
	memset(at(table, hole), 0, table->size);
}

void *table_next(const struct table *table, const void *entry)
{
	size_t i = entry ? (size_t)((const char *)entry - table->entries) / table->size + 1 : 0;

	for (; i < table->room; i++) {
		if (*at(table, i))
			return at(table, i);
	}
	return NULL;
}

/* Visit the entries whose home is @place: they lie between it and the next free slot. */
static void visit_home(const struct table *table, size_t place, uint64_t first, uint64_t last, table_fn *fn,
		       void *arg)
{
	for (size_t i = place; *at(table, i); i = (i + 1) & (table->room - 1)) {
		uint64_t mixed = mix(table, at(table, i));

		if (mixed >> table->shift == place && mixed >= first && mixed <= last)
			fn(arg, at(table, i));
	}
}

void table_share(const struct table *table, uint64_t share, uint64_t shares, table_fn *fn, void *arg)
{
	uint64_t first = (uint64_t)(((unsigned __int128)share << 64) / shares);
	uint64_t last = (uint64_t)((((unsigned __int128)share + 1) << 64) / shares - 1);

	if (!table->room)
		return;
	for (size_t i = first >> table->shift; i <= last >> table->shift; i++)
		visit_home(table, i, first, last, fn, arg);
}

void table_free(struct table *table)
{
	free(table->entries);
	*table = (struct table){ .size = table->size, .words = table->words };
}
