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
 * @seed: of the places of entries: random
 */
struct table {
	char *entries;
	size_t size;
	size_t nr;
	size_t room;
	uint64_t seed;
};

/* NULL: there is none. */
void *table_find(const struct table *table, uint64_t key);

/* The entry of @key, a zeroed new one if there was none; NULL: no memory, or no seed. */
void *table_add(struct table *table, uint64_t key);

void table_remove(struct table *table, void *entry);

/* The entry after @entry, or the first one for NULL; NULL: that was the last one. */
void *table_next(const struct table *table, const void *entry);

void table_free(struct table *table);

#endif
