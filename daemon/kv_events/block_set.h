/* SPDX-License-Identifier: MIT */
/*
 * What subscribers to KV events are told: journals of pools in, batches out. Rule: a
 * function of what it is given, but for the time in a batch; applied in order, the
 * batches make the set of hashes whose blocks are in the pools.
 */
#ifndef KVBLKD_KVEVENTS_H
#define KVBLKD_KVEVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/kvblk.h>

#include "kv_events/msgpack.h"

#define KVEVENTS_POOLS	64
#define KVEVENTS_BATCH_BYTES	((size_t)64 << 10)	/* a batch of so many is full */

/**
 * struct kvevents_rules - how it tells
 * @medium: that events name
 * @hash_only: blocks whose tokens are not known are told as stored, too, by their hash
 * @parts: blocks that a hash must have to be stored, as one of each rank of an engine
 * @token_bytes: memory for tokens; those of hashes that have no block in a pool go first,
 *	and then no more are taken
 */
struct kvevents_rules {
	const char *medium;
	bool hash_only;
	uint32_t parts;
	size_t token_bytes;
};

/**
 * struct kvevents_counts - what it has done
 * @stored: hashes that were told as stored
 * @removed: likewise
 * @lost: journals that lost records
 * @untold: blocks whose tokens found no room
 * @hashes: that are stored now
 * @token_bytes: memory that tokens take
 */
struct kvevents_counts {
	uint64_t stored;
	uint64_t removed;
	uint64_t lost;
	uint64_t untold;
	uint64_t hashes;
	uint64_t token_bytes;
};

struct kvevents;

/* Returns whether it took the batch. */
typedef bool kvevents_publish_fn(void *arg, const struct kvwire_bytes *batch);

/*
 * @rules, and what it points to, must stay. The first batch begins with the event that
 * all is cleared: what an earlier one told is void. NULL: no memory.
 */
struct kvevents *kvevents_new(const struct kvevents_rules *rules, kvevents_publish_fn *publish, void *arg);
void kvevents_free(struct kvevents *events);

/* A journal of @pool, 0 to KVEVENTS_POOLS - 1, begins, with all that is there. */
void kvevents_begin(struct kvevents *events, unsigned int pool);

/*
 * The journal's next record. 0; -ENOBUFS: records are lost, a new journal is due;
 * -ENOMEM: nothing is right any more.
 */
int kvevents_record(struct kvevents *events, unsigned int pool, const struct kvblk_journal_record *record);

/* The pool is gone, and so are its blocks. 0 or -ENOMEM. */
int kvevents_end(struct kvevents *events, unsigned int pool);

/* An engine told the tokens of a block. Of two that differ the later one counts. 0 or -ENOMEM. */
int kvevents_learn(struct kvevents *events, const struct kvwire_block *block);

/* Publishes what is pending. 0 or -ENOMEM. */
int kvevents_flush(struct kvevents *events);

/* Into how many batches all that is stored should be divided. */
size_t kvevents_shares(const struct kvevents *events);

/*
 * Calls @publish with the batch @number of @shares, from 0 on, which together make the
 * set from nothing: what does not change meanwhile is in one of them, and changes are
 * published as ever. 0, -ENOMEM, or -ECANCELED: it was not taken.
 */
int kvevents_share(const struct kvevents *events, size_t number, size_t shares, kvevents_publish_fn *publish, void *arg);

const struct kvevents_counts *kvevents_counts(const struct kvevents *events);

#endif
