/* SPDX-License-Identifier: MIT */
/*
 * A hash table of entries that begin with their key, 64 bits that are not 0. Rule:
 * entries lie in one array and move: a pointer to one is good until the next
 * table_add() or table_remove().
 */
#ifndef KVBLKD_TABLE_H
#define KVBLKD_TABLE_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct table - empty if @size alone is set
 * @entries: @room of them
 * @size: bytes of an entry, a multiple of 8
 * @nr: entries in use
 * @room: a power of two, or 0
 * @shift: of a key's mix, whose highest bits are the place that it would like
 * @seed: of the places of entries: random
 */
struct table {
	char *entries;
	size_t size;
	size_t nr;
	size_t room;
	unsigned int shift;
	uint64_t seed;
};

/* NULL: there is none. */
void *table_find(const struct table *table, uint64_t key);

/* The entry of @key, a zeroed new one if there was none; NULL: no memory, or no seed. */
void *table_add(struct table *table, uint64_t key);

void table_remove(struct table *table, void *entry);

/* The entry after @entry, or the first one for NULL; NULL: that was the last one. */
void *table_next(const struct table *table, const void *entry);

typedef void table_fn(void *arg, const void *entry);

/*
 * Calls @fn for the entries of a share of all keys, the @share th of @shares: each key is
 * in one of them and stays there, whatever is added or removed meanwhile.
 */
void table_share(const struct table *table, uint64_t share, uint64_t shares, table_fn *fn, void *arg);

void table_free(struct table *table);

#endif
