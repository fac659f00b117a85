/* SPDX-License-Identifier: MIT */
/*
 * The exporter of KV events: follows the journals of pools and publishes, in a thread of
 * its own. Rule: the daemon's loop never waits for it, and it keeps its own copy of the
 * configuration.
 */
#ifndef KVBLKD_KVFEED_H
#define KVBLKD_KVFEED_H

#include <stdbool.h>

#include "config/config.h"
#include "kv_events/block_set.h"

#define KVFEED_ENDPOINT_LEN	272

/* This is the configuration from now on. What fails is logged, and tried again. */
void kvfeed_configure(const struct config *config);

/* Pools may have come: it looks at once. */
void kvfeed_wake(void);

/* What it has done since it began, or false: it does not run. */
bool kvfeed_counts(struct kvevents_counts *counts);

/**
 * struct kvfeed_source - an engine that tells its KV events
 * @endpoint: of the configuration
 * @connected: it is connected now
 */
struct kvfeed_source {
	char endpoint[KVFEED_ENDPOINT_LEN];
	bool connected;
};

/* The sources as they are now, to @sources, of which there are @most. Returns how many there are. */
size_t kvfeed_sources(struct kvfeed_source *sources, size_t most);

#endif
