/* SPDX-License-Identifier: MIT */
/*
 * The policy of all pools, in a thread of its own: looks, decides, sets tunables, logs.
 * Rule: the loop never waits for it, and it keeps its own copy of the configuration.
 */
#ifndef KVBLKD_POLICY_RUN_H
#define KVBLKD_POLICY_RUN_H

#include "config/config.h"

/*
 * Takes the lock of this host's kvblkd, once. Returns 0, or -EBUSY: another kvblkd runs.
 * Other failures are logged, and then there is no policy.
 */
int policy_open(void);

/* Starts it, once, after policy_open(). */
void policy_start(void);

/* This is the configuration from now on. */
void policy_configure(const struct config *config);

/* Bytes written to the pool as a share of its budget; negative: it has none. */
double policy_budget_ratio(const char *pool);

/* Pools may have come: it looks at once. */
void policy_wake(void);

#endif
