/* SPDX-License-Identifier: MIT */
/*
 * Rate limit of events, by type, pool and member. The first event is logged at once. Events
 * of the next LIMIT_SECONDS are counted, then reported as the last one and a number.
 */
#ifndef KVBLKD_LOG_RATELIMIT_H
#define KVBLKD_LOG_RATELIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/kvblk_admin.h"

#define LIMIT_SECONDS	60
#define LIMIT_KINDS	256

struct limit {
	struct limit_kind {
		uint32_t type;
		char pool[KVBLK_NAME_LEN_MAX + 1];
		char member[KVBLK_NAME_LEN_MAX + 1];
		bool used;
		int64_t told;		/* time of the last log line, seconds */
		uint64_t more;
		int level;
		char text[768];		/* text of the last event */
	} kinds[LIMIT_KINDS];
};

/* Returns true if the event is to be logged @now; otherwise counts it for limit_next(). */
bool limit_take(struct limit *limit, const struct kvblk_notice *notice, int level,
		const char *text, int64_t now);

/* Returns the next kind whose held-back events are due, and their number in @more; or NULL. */
const struct limit_kind *limit_next(struct limit *limit, int64_t now, uint64_t *more);

/* Returns the seconds until limit_next() has a kind to report, -1 if no event is held back. */
int64_t limit_due(const struct limit *limit, int64_t now);

#endif
