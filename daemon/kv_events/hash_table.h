/* SPDX-License-Identifier: MIT */
/*
 * Hash table of entries that begin with a key: words of 64 bits, the first not 0. Entries are
 * stored in one array and move: a pointer to an entry is valid until the next table_add() or
 * table_remove().
 */
#ifndef KVBLKD_KV_EVENTS_HASH_TABLE_H
#define KVBLKD_KV_EVENTS_HASH_TABLE_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct table - a hash table, empty if only @size and @words are set
 * @entries: array of @room entries
 * @size: bytes of an entry, a multiple of 8
 * @words: words of a key
 * @nr: entries in use
 * @room: slots, a power of two, or 0
 * @shift: right shift of a mixed key that yields the preferred slot
 * @seed: random seed of mix()
 */
struct table {
	char *entries;
	size_t size;
	size_t words;
	size_t nr;
	size_t room;
	unsigned int shift;
	uint64_t seed;
};

/* Returns the entry of @key, or NULL. */
void *table_find(const struct table *table, const uint64_t *key);

/*
 * Returns the entry of @key, a new zeroed one if there was none; NULL without memory or seed.
 * @key must not be in the table's array.
 */
void *table_add(struct table *table, const uint64_t *key);

void table_remove(struct table *table, void *entry);

/* Returns the entry after @entry, the first for NULL; NULL at the end. */
void *table_next(const struct table *table, const void *entry);

typedef void table_fn(void *arg, const void *entry);

/* Call @fn for the entries of a share. The share of a key depends only on the key and @shares. */
void table_share(const struct table *table, uint64_t share, uint64_t shares, table_fn *fn, void *arg);

void table_free(struct table *table);

#endif
