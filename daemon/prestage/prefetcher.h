/* SPDX-License-Identifier: MIT */
/*
 * Prefetches in the background: orders wait in a queue for a thread that brings their
 * blocks into memory. Rule: what is under way is bounded, in orders, bytes and bytes a
 * second, and what waits by user, in orders and bytes; nobody who orders waits.
 */
#ifndef KVBLKD_PREFETCHER_H
#define KVBLKD_PREFETCHER_H

#include "lib/kvblk.h"
#include "prestage/hint_json.h"

#define PREFETCHER_ID_LEN	17	/* 16 hex digits and a 0 */
#define PREFETCHER_STATES	(KVBLK_PREFETCH_EXPIRED + 1)

/**
 * struct prefetcher_rules - how much at a time
 * @parallel: orders
 * @waiting: orders of a user that wait or hold a lease; as many that are over are
 *	remembered
 * @bytes: memory of a user's orders; more than 8 users share eight times that
 * @bandwidth: bytes a second, 0: any
 */
struct prefetcher_rules {
	unsigned int parallel;
	unsigned int waiting;
	uint64_t bytes;
	uint64_t bandwidth;
};

/**
 * struct prefetcher_counts - what it has done
 * @blocks: by &enum kvblk_prefetch_state
 * @bytes: brought into memory
 * @waiting: orders that wait now
 */
struct prefetcher_counts {
	uint64_t blocks[PREFETCHER_STATES];
	uint64_t bytes;
	uint64_t waiting;
};

void prefetcher_configure(const struct prefetcher_rules *rules);

/* Makes room for an order of @chain, which the caller has not copied yet. Returns 0 or an error of prefetcher_order(). */
int prefetcher_room(const struct chain *chain, uid_t uid);

/*
 * Takes over @want's chain; @uid is whose order it is. Returns 0, and its @id; -EAGAIN:
 * too many of this user wait; -E2BIG: it is more than may wait; -ENOMEM, or that no thread
 * could be made.
 */
int prefetcher_order(struct want *want, uid_t uid, char id[PREFETCHER_ID_LEN]);

/* How the order is, for its user alone; NULL: there is none (any more). */
json_t *prefetcher_tell(const char *id, uid_t uid);

/*
 * Cancels an order, or ends its lease and forgets it if it is over. NULL: there is none;
 * else what was done, "canceled" or "released".
 */
const char *prefetcher_drop(const char *id, uid_t uid);

void prefetcher_counts(struct prefetcher_counts *counts);

#endif
