/* SPDX-License-Identifier: MIT */
/*
 * The policy of all pools, in a thread with its own copy of the configuration: looks, decides,
 * sets tunables, logs. The main loop never waits for the thread.
 */
#ifndef KVBLKD_POLICY_POLICY_THREAD_H
#define KVBLKD_POLICY_POLICY_THREAD_H

#include <sys/types.h>

#include "config/config.h"

/*
 * Lock this host for kvblkd. @group may read the files; -1: root only. Returns -EBUSY if another
 * runs, otherwise 0; logs other errors.
 */
int policy_open(gid_t group);

/* Start the thread, once, after policy_open(). */
void policy_start(void);

/* Set the configuration. */
void policy_configure(const struct config *config);

/* Returns the bytes written to the pool as a share of its budget; negative: no budget. */
double policy_budget_ratio(const char *pool);

/* Look at the pools at once, because some may have appeared. */
void policy_wake(void);

#endif
