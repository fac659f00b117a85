/* SPDX-License-Identifier: MIT */
/*
 * Requests to bring blocks into memory, as JSON has them: the body of POST /l2/prefetch,
 * the payload of a hint, a session's keys. Rule: what is not known is refused, never
 * passed over.
 */
#ifndef KVBLKD_WANTS_H
#define KVBLKD_WANTS_H

#include "prestage/sessions.h"

#define WANTS_WHY_LEN	200

/**
 * struct want - a request
 * @pool: "": not named
 * @session: "": not named
 * @chain: @nr 0: not given
 * @lease_ms: 0: no lease
 * @max_bytes: 0: no limit
 * @deadline_ns: of CLOCK_MONOTONIC, 0: none
 * @priority: 0 to KVBLK_PRIORITY_MAX; more goes before less
 * @stop_at_miss: what is behind the first miss is of no use
 */
struct want {
	char pool[CHAINS_POOL_LEN];
	char session[CHAINS_SESSION_MAX + 1];
	struct chain chain;
	uint32_t lease_ms;
	uint64_t max_bytes;
	uint64_t deadline_ns;
	uint64_t priority;
	bool stop_at_miss;
};

/*
 * Reads @json; a lease may take @lease_ms. false: @why has a sentence. want_free() is due
 * in any case.
 */
bool want_read(const json_t *json, uint32_t lease_ms, struct want *want, char why[WANTS_WHY_LEN]);
/* The same of {"pool", "keys"} alone. */
bool want_read_keys(const json_t *json, struct want *want, char why[WANTS_WHY_LEN]);
void want_free(struct want *want);

/* Whether @json is a KvHints envelope, all of it; false: @why has a sentence. */
bool hints_check(const json_t *json, char why[WANTS_WHY_LEN]);

#endif
