/* SPDX-License-Identifier: MIT */
/*
 * Requests in JSON: the body of POST /l2/prefetch, the payload of a hint, the keys of a session.
 * Unknown fields are rejected.
 */
#ifndef KVBLKD_PRESTAGE_HINT_JSON_H
#define KVBLKD_PRESTAGE_HINT_JSON_H

#include "prestage/sessions.h"

#define WANTS_WHY_LEN	200

/**
 * struct want - a request
 * @pool: pool, "": not given
 * @session: session id, "": not given
 * @chain: keys; @nr 0: not given
 * @lease_ms: duration of the lease, 0: no lease
 * @max_bytes: limit of bytes to load, 0: none
 * @deadline_ns: deadline in CLOCK_MONOTONIC, 0: none
 * @priority: 0 to KVBLK_PRIORITY_MAX; higher ones go first
 * @stop_at_miss: skip all keys after the first miss
 * @retain_s: seconds for which the pool is to retain the blocks
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
	uint64_t retain_s;
};

/*
 * Read @json; a lease may last @lease_ms. Returns false with a sentence in @why if @json is
 * invalid. want_free() is needed in any case.
 */
bool want_read(const json_t *json, uint32_t lease_ms, struct want *want, char why[WANTS_WHY_LEN]);
/* Read an object of pool and keys only; otherwise as want_read(). */
bool want_read_keys(const json_t *json, struct want *want, char why[WANTS_WHY_LEN]);
/*
 * Read an object of pool, keys and session_id and, if @retains, seconds; otherwise as want_read().
 */
bool want_read_hint(const json_t *json, bool retains, struct want *want, char why[WANTS_WHY_LEN]);
void want_free(struct want *want);

/* Check that @json is a complete KvHints envelope. Returns false with a sentence in @why if not. */
bool hints_check(const json_t *json, char why[WANTS_WHY_LEN]);

#endif
