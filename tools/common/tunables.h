/* SPDX-License-Identifier: MIT */
/*
 * A pool's tunables as the module has them: the rows are made from
 * kernel/tunables.h, for the command and for kvblkd. Rule: what is taken here
 * the module takes, but for what one tunable demands of another one.
 */
#ifndef KVBLK_TUNABLES_ROWS_H
#define KVBLK_TUNABLES_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct tunable - a row
 * @name: of its file in sysfs
 * @standard: its value in a new pool
 * @least: allowed
 * @most: allowed
 */
struct tunable {
	const char *name;
	uint64_t standard;
	uint64_t least;
	uint64_t most;
};

#define TUNABLES_MAX	32
/* Room for a value. */
#define TUNABLE_LEN	24

extern const struct tunable tunables[];
extern const size_t nr_tunables;

/* Its row; NULL: there is no such tunable. */
const struct tunable *tunable_find(const char *name);

/*
 * Brings @text to the form that sysfs shows; false: it is not allowed. A number of
 * milliseconds may have one of the suffixes ms, s, min and h, another one those of
 * tunable_number(). A word is as it is.
 */
bool tunable_parse(const struct tunable *tunable, const char *text,
		   char value[TUNABLE_LEN]);

/* The form of @number that sysfs shows. */
void tunable_show(const struct tunable *tunable, uint64_t number, char value[TUNABLE_LEN]);

/* What is allowed, in words: to @buf, which is returned. */
char *tunable_allowed(const struct tunable *tunable, char *buf, size_t len);

/*
 * A number, decimal or 0x..., with or without one of the suffixes K, M, G, T, powers of
 * 1024, which B or iB may follow: all sizes of the command and of kvblkd.conf are read
 * here.
 */
bool tunable_number(const char *text, uint64_t *value);

/* "bytes", "ms", "permille", or "" for a number of something else, and for a word. */
const char *tunable_unit(const struct tunable *tunable);

#endif
