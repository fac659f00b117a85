/* SPDX-License-Identifier: MIT */
/* Pools and events in the log: a change is one line that tells what to do about it. */
#ifndef KVBLKD_REPORT_H
#define KVBLKD_REPORT_H

#include "log/ratelimit.h"

/* What there is now: at the start, and after events were lost. */
void report_pools(void);

/* An event, unless it is one of a storm. */
void report_event(struct limit *limit, const struct kvblk_notice *notice, int64_t now);

/* Storms whose minute is over. */
void report_storms(struct limit *limit, int64_t now);

#endif
