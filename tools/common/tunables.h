/* SPDX-License-Identifier: MIT */
/*
 * A pool's tunables, generated from kernel/tunables.h, for the command and kvblkd. The module
 * accepts every value that is accepted here, unless it depends on another tunable.
 */
#ifndef KVBLK_TUNABLES_ROWS_H
#define KVBLK_TUNABLES_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct tunable - a row of kernel/tunables.h
 * @name: name of the file in sysfs
 * @standard: value in a new pool
 * @least: smallest allowed value
 * @most: largest allowed value
 */
struct tunable {
	const char *name;
	int64_t standard;
	int64_t least;
	int64_t most;
};

#define TUNABLES_MAX	32
/* Size of a value's text. */
#define TUNABLE_LEN	24

extern const struct tunable tunables[];
extern const size_t nr_tunables;

/* Find a tunable by name. Returns NULL if there is none. */
const struct tunable *tunable_find(const char *name);

/*
 * Convert @text to the form that sysfs shows. Milliseconds may have a suffix ms, s, min or h,
 * other numbers those of tunable_number(). Returns false if the value is not allowed.
 */
bool tunable_parse(const struct tunable *tunable, const char *text,
		   char value[TUNABLE_LEN]);

/* Format @number as sysfs shows it. */
void tunable_show(const struct tunable *tunable, int64_t number, char value[TUNABLE_LEN]);

/* Describe the allowed values in @buf. Returns @buf. */
char *tunable_allowed(const struct tunable *tunable, char *buf, size_t len);

/*
 * Parse a number, decimal or 0x..., with an optional suffix K, M, G or T, a power of 1024, and
 * an optional B or iB. Parses all sizes of the command and of kvblkd.conf.
 */
bool tunable_number(const char *text, uint64_t *value);

/* Returns "bytes", "ms" or "permille"; "" for words and numbers without a unit. */
const char *tunable_unit(const struct tunable *tunable);

#endif
