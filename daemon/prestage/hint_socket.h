/* SPDX-License-Identifier: MIT */
/* The socket for prefetch hints, if configured. */
#ifndef KVBLKD_PRESTAGE_HINT_SOCKET_H
#define KVBLKD_PRESTAGE_HINT_SOCKET_H

#include <systemd/sd-event.h>

#include "config/config.h"
#include "prestage/prefetcher.h"

/* Outcomes of a request, in KvHints' words. */
#define PRESTAGE_OUTCOME_TABLE(X)	\
	X(ACCEPTED, "accepted")		\
	X(CLIPPED, "clipped")		\
	X(DEFERRED, "deferred")		\
	X(REJECTED, "rejected")		\
	X(MISSING, "missing")

enum prestage_outcome {
#define X(NAME, name)	PRESTAGE_##NAME,
	PRESTAGE_OUTCOME_TABLE(X)
#undef X
	PRESTAGE_OUTCOMES,
};

/**
 * struct prestage_counts - counters of requests and prefetches
 * @requests: requests by &enum prestage_outcome
 * @sessions: sessions stored
 * @prefetches: counters of the prefetcher
 */
struct prestage_counts {
	uint64_t requests[PRESTAGE_OUTCOMES];
	uint64_t sessions;
	struct prefetcher_counts prefetches;
};

/* Create the socket while the capability to set its group is held. Errors are logged. */
void prestage_listen(const struct config *config);

/* Serve the socket according to @config, which must stay valid. Returns 0 or a negative errno. */
int prestage_follow(sd_event *event, const struct config *config);

/* Read the counters. Returns false if there is no socket. */
bool prestage_counts(struct prestage_counts *counts);

#endif
