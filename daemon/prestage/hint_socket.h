/* SPDX-License-Identifier: MIT */
/* The socket that takes hints of what will be wanted, where the configuration has it. */
#ifndef KVBLKD_PRESTAGE_H
#define KVBLKD_PRESTAGE_H

#include <systemd/sd-event.h>

#include "config/config.h"
#include "prestage/prefetcher.h"

/* What a request is told: in KvHints' words. */
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
 * struct prestage_counts - what callers were told, and what came of it
 * @requests: by &enum prestage_outcome
 * @sessions: that are remembered
 * @prefetches: what was brought in
 */
struct prestage_counts {
	uint64_t requests[PRESTAGE_OUTCOMES];
	uint64_t sessions;
	struct prefetcher_counts prefetches;
};

/* Makes the socket, while there is the right to set its group. What is wrong is logged. */
void prestage_listen(const struct config *config);

/* Answers at the socket, as @config has it now; it must stay. 0 or a negative errno. */
int prestage_follow(sd_event *event, const struct config *config);

/* false: there is no socket. */
bool prestage_counts(struct prestage_counts *counts);

#endif
