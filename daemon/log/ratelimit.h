/* SPDX-License-Identifier: MIT */
/*
 * Storms are counted. An event of one type, pool and member is told when it comes, and
 * not again for a minute; what came meanwhile is told as its last one and a number.
 */
#ifndef KVBLKD_LIMIT_H
#define KVBLKD_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "kvblk.h"

#define LIMIT_SECONDS	60
#define LIMIT_KINDS	256

struct limit {
	struct limit_kind {
		uint32_t type;
		char pool[KVBLK_NAME_LEN_MAX + 1];
		char member[KVBLK_NAME_LEN_MAX + 1];
		bool used;
		int64_t told;		/* seconds */
		uint64_t more;
		int level;
		char text[768];		/* of the last one */
	} kinds[LIMIT_KINDS];
};

/*
 * Whether the event, which is @text at @level, is to be told @now. If not, it is
 * counted, and limit_next() is due when a minute is over.
 */
bool limit_take(struct limit *limit, const struct kvblk_notice *notice, int level,
		const char *text, int64_t now);

/* The next one that was counted and whose minute is over; NULL: none now. */
const struct limit_kind *limit_next(struct limit *limit, int64_t now, uint64_t *more);

/* Seconds until limit_next() has one; -1: nothing was counted. */
int64_t limit_due(const struct limit *limit, int64_t now);

#endif
