/* SPDX-License-Identifier: MIT */
/*
 * The exporter of KV events: reads the change feeds of pools and publishes events, in a thread
 * with its own copy of the configuration. The daemon's main loop never waits for the thread.
 */
#ifndef KVBLKD_KV_EVENTS_PUBLISHER_H
#define KVBLKD_KV_EVENTS_PUBLISHER_H

#include <stdbool.h>

#include "config/config.h"
#include "kv_events/block_set.h"

#define KVFEED_ENDPOINT_LEN	272

/* Set the configuration. Errors are logged, and the failed action is retried. */
void kvfeed_configure(const struct config *config);

/* Look for pools at once, because some may have appeared. */
void kvfeed_wake(void);

/* Read the counters. Returns false if the exporter does not run. */
bool kvfeed_counts(struct kvevents_counts *counts);

/**
 * struct kvfeed_source - state of an engine that publishes KV events
 * @endpoint: endpoint from the configuration
 * @connected: connected at present
 */
struct kvfeed_source {
	char endpoint[KVFEED_ENDPOINT_LEN];
	bool connected;
};

/* Copy the states of at most @most sources to @sources. Returns the number copied. */
size_t kvfeed_sources(struct kvfeed_source *sources, size_t most);

#endif
