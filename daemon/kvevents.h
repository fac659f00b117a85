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

#include "kvwire.h"

#define KVEVENTS_POOLS	64

/**
 * struct kvevents_rules - how it tells
 * @medium: that events name
 * @hash_only: blocks whose tokens are not known are told as stored, too, by their hash
 * @parts: blocks that a hash must have to be stored, as one of each rank of an engine
 * @remember: hashes that have no block in a pool, whose tokens are kept
 */
struct kvevents_rules {
	const char *medium;
	bool hash_only;
	uint32_t parts;
	size_t remember;
};

/**
 * struct kvevents_counts - what it has done
 * @stored: hashes that were told as stored
 * @removed: likewise
 * @lost: journals that lost records
 * @hashes: that are stored now
 */
struct kvevents_counts {
	uint64_t stored;
	uint64_t removed;
	uint64_t lost;
	uint64_t hashes;
};

struct kvevents;

/* false: it takes no more, and kvevents_dump() ends. */
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

/* An engine told the tokens of a block. 0 or -ENOMEM. */
int kvevents_learn(struct kvevents *events, const struct kvwire_block *block);

/* Publishes what is pending. 0 or -ENOMEM. */
int kvevents_flush(struct kvevents *events);

/* Calls @publish with batches that make the set from nothing. 0, -ENOMEM or -ECANCELED: it took no more. */
int kvevents_dump(const struct kvevents *events, kvevents_publish_fn *publish, void *arg);

const struct kvevents_counts *kvevents_counts(const struct kvevents *events);

#endif
