/* SPDX-License-Identifier: MIT */
/* Log pools and events: one line for each event, with advice if the operator has to act. */
#ifndef KVBLKD_LOG_EVENT_LOG_H
#define KVBLKD_LOG_EVENT_LOG_H

#include "log/ratelimit.h"

/* Log the present state of all pools: at the start, and after events were lost. */
void report_pools(void);

/* Log @notice, unless the rate limit holds it back. */
void report_event(struct limit *limit, const struct kvblk_notice *notice, int64_t now);

/* Log a summary of each held-back kind of event whose interval has ended. */
void report_storms(struct limit *limit, int64_t now);

#endif
