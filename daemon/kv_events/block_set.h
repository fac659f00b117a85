/* SPDX-License-Identifier: MIT */
/*
 * KV events for subscribers: change feeds of pools in, batches out. Applied in order, the
 * batches yield the set of hashes whose blocks are in the pools. Except for the time in a batch,
 * the output depends on the input only.
 */
#ifndef KVBLKD_KV_EVENTS_BLOCK_SET_H
#define KVBLKD_KV_EVENTS_BLOCK_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/kvblk.h>

#include "config/config.h"
#include "kv_events/msgpack.h"

#define KVEVENTS_BATCH_BYTES	((size_t)64 << 10)	/* size at which a batch is published */

/**
 * struct kvevents_rules - settings
 * @medium: medium that the events name
 * @hash_only: report blocks without known tokens, too, by their hash
 * @parts: blocks that a hash needs to count as stored, such as one for each rank of an engine
 * @token_bytes: memory for tokens; if it is full, hashes without blocks are evicted first, then
 *	new tokens are rejected
 */
struct kvevents_rules {
	const char *medium;
	bool hash_only;
	uint32_t parts;
	size_t token_bytes;
};

/**
 * struct kvevents_counts - counters
 * @stored: hashes reported as stored
 * @removed: hashes reported as removed
 * @lost: change feeds that lost records
 * @untold: blocks whose tokens did not fit into memory
 * @hashes: hashes stored now
 * @token_bytes: memory of the tokens, bytes
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

/* Publish @batch. Returns false if it was not accepted. */
typedef bool kvevents_publish_fn(void *arg, const struct kvwire_bytes *batch);

/*
 * Allocate the state. @rules and its strings must outlive it. The first batch begins with
 * AllBlocksCleared, because earlier batches are void. Returns NULL without memory.
 */
struct kvevents *kvevents_new(const struct kvevents_rules *rules, kvevents_publish_fn *publish, void *arg);
void kvevents_free(struct kvevents *events);

/* Start a new change feed of @pool (0 to KVEVENTS_POOLS - 1), which reports all blocks again. */
void kvevents_begin(struct kvevents *events, unsigned int pool);

/*
 * Handle the next record of the change feed. Returns 0; -ENOBUFS if records were lost and the
 * feed must be opened again; -ENOMEM if the state is no longer correct.
 */
int kvevents_record(struct kvevents *events, unsigned int pool, const struct kvblk_change *record);

/* Remove all blocks of a destroyed pool. Returns 0 or -ENOMEM. */
int kvevents_end(struct kvevents *events, unsigned int pool);

/* Store tokens that an engine published; they replace differing ones. Returns 0 or -ENOMEM. */
int kvevents_learn(struct kvevents *events, const struct kvwire_block *block);

/* Publish the pending events. Returns 0 or -ENOMEM. */
int kvevents_flush(struct kvevents *events);

/* Returns the number of batches into which a replay of all stored hashes should be divided. */
size_t kvevents_shares(const struct kvevents *events);

/*
 * Publish batch @number (from 0) of a replay in @shares batches. Together they yield the set
 * from nothing: each hash that does not change meanwhile is in exactly one, and changes are
 * published as usual. Returns 0, -ENOMEM, or -ECANCELED if @publish did not accept the batch.
 */
int kvevents_share(const struct kvevents *events, size_t number, size_t shares, kvevents_publish_fn *publish, void *arg);

const struct kvevents_counts *kvevents_counts(const struct kvevents *events);

#endif
