/* SPDX-License-Identifier: MIT */
/*
 * Background prefetches: orders queue for a thread that loads their blocks into memory. Limited
 * are the running orders, their bytes and bandwidth, and for each user the number and memory of
 * queued orders. Callers never block.
 */
#ifndef KVBLKD_PRESTAGE_PREFETCHER_H
#define KVBLKD_PRESTAGE_PREFETCHER_H

#include "lib/kvblk.h"
#include "prestage/hint_json.h"

#define PREFETCHER_ID_LEN	17	/* 16 hex digits and a terminating 0 */
#define PREFETCHER_STATES	(KVBLK_PRESTAGE_EXPIRED + 1)

/**
 * struct prefetcher_rules - limits
 * @parallel: running orders
 * @waiting: orders of a user that wait or hold a lease; as many complete ones are kept
 * @bytes: memory of a user's orders; more than 8 users share eight times as much
 * @bandwidth: bytes a second, 0: no limit
 */
struct prefetcher_rules {
	unsigned int parallel;
	unsigned int waiting;
	uint64_t bytes;
	uint64_t bandwidth;
};

/**
 * struct prefetcher_counts - counters
 * @blocks: blocks by &enum kvblk_prestage_state
 * @bytes: bytes loaded
 * @waiting: orders waiting now
 */
struct prefetcher_counts {
	uint64_t blocks[PREFETCHER_STATES];
	uint64_t bytes;
	uint64_t waiting;
};

void prefetcher_configure(const struct prefetcher_rules *rules);

/* Make space for an order of @chain. Returns 0 or an error of prefetcher_order(). */
int prefetcher_room(const struct chain *chain, uid_t uid);

/*
 * Queue an order of user @uid. Takes ownership of @want's chain. Returns 0 and the order's @id;
 * -EAGAIN if too many orders of the user wait; -E2BIG if the order exceeds the user's memory;
 * -ENOMEM; or the error of creating a thread.
 */
int prefetcher_order(struct want *want, uid_t uid, char id[PREFETCHER_ID_LEN]);

/* Returns the state of an order of user @uid, NULL if there is none (any more). */
json_t *prefetcher_tell(const char *id, uid_t uid);

/* Cancel an order, or forget a complete one. Returns "canceled", "released", or NULL: not found. */
const char *prefetcher_drop(const char *id, uid_t uid);

void prefetcher_counts(struct prefetcher_counts *counts);

#endif
