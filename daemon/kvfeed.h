/* SPDX-License-Identifier: MIT */
/*
 * The exporter of KV events: follows the journals of pools and publishes, in a thread of
 * its own. Rule: the daemon's loop never waits for it, and it keeps its own copy of the
 * configuration.
 */
#ifndef KVBLKD_KVFEED_H
#define KVBLKD_KVFEED_H

#include <stdbool.h>

#include "config.h"
#include "kvevents.h"

/* This is the configuration from now on. What fails is logged, and tried again. */
void kvfeed_configure(const struct config *config);

/* Pools may have come: it looks at once. */
void kvfeed_wake(void);

/* What it has done since it began, or false: it does not run. */
bool kvfeed_counts(struct kvevents_counts *counts);

#endif
