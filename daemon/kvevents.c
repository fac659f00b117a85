// SPDX-License-Identifier: MIT
/*
 * KV events of pools, see kvevents.h. Two tables: the blocks that are in the pools, by
 * token, and the hashes that these blocks have, or whose tokens engines told. A journal
 * that lost records is opened again, and what the new one does not have is removed: so
 * no subscriber needs to know.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kvevents.h"
#include "table.h"

#define BATCH_EVENTS	1024

/**
 * struct block - that is in a pool
 * @token: of the journal, mixed with @pool
 * @hash: the caller's tag
 * @pool: which one
 * @pass: of its journal: the number of the one that told of the block last
 */
struct block {
	uint64_t token;
	uint64_t hash;
	uint32_t pool;
	uint32_t pass;
};

/* An event BlockStored as it is published. */
struct stored {
	size_t len;
	char data[];
};

/**
 * struct hash - that has blocks, or whose tokens are known
 * @hash: the engine's
 * @stored: NULL: the tokens are not known
 * @blocks: that are in the pools
 * @turn: in &struct kvevents.ring, if it has no blocks
 */
struct hash {
	uint64_t hash;
	struct stored *stored;
	uint32_t blocks;
	uint32_t turn;
};

/* Events of a batch; hashes that were removed one after the other are one event. */
struct pending {
	struct kvwire_bytes events;
	size_t nr;
	uint64_t removed[BATCH_EVENTS];
	size_t nr_removed;
};

/**
 * struct kvevents - all of it
 * @blocks: &struct block
 * @hashes: &struct hash
 * @pass: of each pool's journal
 * @ring: hashes that have no block, in the order in which they are forgotten
 * @turn: next place in it
 * @pending: not published
 */
struct kvevents {
	const struct kvevents_rules *rules;
	kvevents_publish_fn *publish;
	void *arg;
	struct table blocks;
	struct table hashes;
	uint32_t pass[KVEVENTS_POOLS];
	uint64_t *ring;
	size_t turn;
	struct pending pending;
	struct kvevents_counts counts;
};

/* ---- batches ---- */

static void close_removed(struct pending *pending, const struct kvevents_rules *rules)
{
	if (!pending->nr_removed)
		return;
	kvwire_removed(&pending->events, pending->removed, pending->nr_removed, rules->medium);
	pending->nr++;
	pending->nr_removed = 0;
}

static int publish(struct pending *pending, const struct kvevents_rules *rules,
		   kvevents_publish_fn *to, void *arg)
{
	struct kvwire_bytes batch = { 0 };
	struct timespec ts;
	int err = -ENOMEM;

	close_removed(pending, rules);
	if (!pending->nr)
		return 0;
	clock_gettime(CLOCK_REALTIME, &ts);
	kvwire_batch(&batch, (double)ts.tv_sec + (double)ts.tv_nsec / 1e9, &pending->events, pending->nr);
	kvwire_reset(&pending->events);
	pending->nr = 0;
	if (!batch.failed)
		err = to(arg, &batch) ? 0 : -ECANCELED;
	kvwire_free(&batch);
	return err;
}

int kvevents_flush(struct kvevents *events)
{
	return publish(&events->pending, events->rules, events->publish, events->arg);
}

static int flush_full(struct kvevents *events)
{
	const struct pending *pending = &events->pending;

	return pending->nr + pending->nr_removed >= BATCH_EVENTS ? kvevents_flush(events) : 0;
}

/* Whether there is an event for it. */
static bool write_stored(struct pending *pending, const struct hash *hash,
			 const struct kvevents_rules *rules)
{
	if (!hash->stored && !rules->hash_only)
		return false;
	close_removed(pending, rules);
	pending->nr++;
	if (hash->stored)
		kvwire_append(&pending->events, hash->stored->data, hash->stored->len);
	else
		kvwire_stored(&pending->events, &(struct kvwire_block){ .hash = hash->hash },
			      rules->medium);
	return true;
}

static int tell_stored(struct kvevents *events, const struct hash *hash)
{
	events->counts.stored += write_stored(&events->pending, hash, events->rules);
	return flush_full(events);
}

static int tell_removed(struct kvevents *events, uint64_t hash)
{
	events->pending.removed[events->pending.nr_removed++] = hash;
	events->counts.removed++;
	return flush_full(events);
}

int kvevents_dump(const struct kvevents *events, kvevents_publish_fn *to, void *arg)
{
	struct pending pending = { .nr = 1 };
	const struct hash *hash = NULL;
	int err = 0;

	kvwire_cleared(&pending.events);
	while (!err && (hash = table_next(&events->hashes, hash))) {
		if (hash->blocks < events->rules->parts)
			continue;
		write_stored(&pending, hash, events->rules);
		if (pending.nr >= BATCH_EVENTS)
			err = publish(&pending, events->rules, to, arg);
	}
	if (!err)
		err = publish(&pending, events->rules, to, arg);
	kvwire_free(&pending.events);
	return err;
}

/* ---- hashes ---- */

static bool is_stored(const struct kvevents *events, const struct hash *hash)
{
	return hash->blocks >= events->rules->parts;
}

static void forget(struct kvevents *events, struct hash *hash)
{
	free(hash->stored);
	table_remove(&events->hashes, hash);
}

/* It has no block: it takes the place of the one that has waited longest. */
static void park(struct kvevents *events, uint64_t key)
{
	struct hash *hash = table_find(&events->hashes, key), *oldest;
	size_t turn = events->turn;

	if (!events->rules->remember || !hash->stored) {
		forget(events, hash);
		return;
	}
	hash->turn = (uint32_t)turn;
	oldest = events->ring[turn] != key ? table_find(&events->hashes, events->ring[turn]) : NULL;
	if (oldest && !oldest->blocks && oldest->turn == turn)
		forget(events, oldest);
	events->ring[turn] = key;
	events->turn = (turn + 1) % events->rules->remember;
}

static int add_to_hash(struct kvevents *events, uint64_t key)
{
	struct hash *hash = table_add(&events->hashes, key);

	if (!hash)
		return -ENOMEM;
	hash->blocks++;
	if (hash->blocks != events->rules->parts)
		return 0;
	events->counts.hashes++;
	return tell_stored(events, hash);
}

static int take_from_hash(struct kvevents *events, uint64_t key)
{
	struct hash *hash = table_find(&events->hashes, key);
	bool was_stored = is_stored(events, hash), goes;

	hash->blocks--;
	goes = was_stored && !is_stored(events, hash);
	events->counts.hashes -= goes;
	if (!hash->blocks)
		park(events, key);
	return goes ? tell_removed(events, key) : 0;
}

int kvevents_learn(struct kvevents *events, const struct kvwire_block *block)
{
	struct kvwire_bytes bytes = { 0 };
	struct stored *stored;
	struct hash *hash;

	/* no caller tag is 0 */
	if (!block->hash)
		return 0;
	hash = table_add(&events->hashes, block->hash);
	if (!hash)
		return -ENOMEM;
	if (hash->stored)
		return 0;
	kvwire_stored(&bytes, block, events->rules->medium);
	stored = bytes.failed ? NULL : malloc(sizeof(*stored) + bytes.len);
	if (stored) {
		stored->len = bytes.len;
		memcpy(stored->data, bytes.data, bytes.len);
	}
	kvwire_free(&bytes);
	hash->stored = stored;
	if (stored && is_stored(events, hash))
		return tell_stored(events, hash);
	if (!hash->blocks)
		park(events, block->hash);
	return stored ? 0 : -ENOMEM;
}

/* ---- blocks ---- */

static uint64_t token_of(unsigned int pool, uint64_t token)
{
	uint64_t mixed = token ^ (pool + 1) * 0x9e3779b97f4a7c15ull;

	return mixed ? mixed : 1;
}

static int remove_block(struct kvevents *events, struct block *block)
{
	uint64_t hash = block->hash;

	table_remove(&events->blocks, block);
	return take_from_hash(events, hash);
}

static int store(struct kvevents *events, unsigned int pool, uint64_t token, uint64_t hash)
{
	struct block *block = table_find(&events->blocks, token);
	int err = 0;

	/* its removal, and another block under its key, may both be untold yet */
	if (block && block->hash != hash) {
		err = remove_block(events, block);
		block = NULL;
	}
	if (block) {
		block->pass = events->pass[pool];
		return err;
	}
	block = table_add(&events->blocks, token);
	if (!block)
		return -ENOMEM;
	*block = (struct block){ token, hash, pool, events->pass[pool] };
	if (add_to_hash(events, hash))
		err = -ENOMEM;
	/* a block has a hash: one for which there was no room is not there */
	if (!table_find(&events->hashes, hash))
		table_remove(&events->blocks, block);
	return err;
}

/* Those of the pool that no journal told of since kvevents_begin(); @all: or did. */
static int sweep(struct kvevents *events, unsigned int pool, bool all)
{
	uint64_t *tokens = malloc((events->blocks.nr + 1) * sizeof(*tokens));
	const struct block *block = NULL;
	size_t nr = 0;
	int err = 0;

	if (!tokens)
		return -ENOMEM;
	while ((block = table_next(&events->blocks, block))) {
		if (block->pool == pool && (all || block->pass != events->pass[pool]))
			tokens[nr++] = block->token;
	}
	for (size_t i = 0; i < nr && !err; i++)
		err = remove_block(events, table_find(&events->blocks, tokens[i]));
	free(tokens);
	return err;
}

void kvevents_begin(struct kvevents *events, unsigned int pool)
{
	events->pass[pool]++;
}

int kvevents_end(struct kvevents *events, unsigned int pool)
{
	return sweep(events, pool, true);
}

int kvevents_record(struct kvevents *events, unsigned int pool, const struct kvblk_journal_record *record)
{
	uint64_t token = token_of(pool, record->token);
	struct block *block;

	switch (record->op) {
	case KVBLK_JOURNAL_STORED:
		return record->caller_tag ? store(events, pool, token, record->caller_tag) : 0;
	case KVBLK_JOURNAL_REMOVED:
		block = table_find(&events->blocks, token);
		return block ? remove_block(events, block) : 0;
	case KVBLK_JOURNAL_CAUGHT_UP:
		return sweep(events, pool, false);
	case KVBLK_JOURNAL_LOST:
		events->counts.lost++;
		return -ENOBUFS;
	default:
		return 0;
	}
}

/* ---- all of it ---- */

const struct kvevents_counts *kvevents_counts(const struct kvevents *events)
{
	return &events->counts;
}

struct kvevents *kvevents_new(const struct kvevents_rules *rules, kvevents_publish_fn *publish_fn, void *arg)
{
	struct kvevents *events = calloc(1, sizeof(*events));

	if (!events)
		return NULL;
	events->rules = rules;
	events->publish = publish_fn;
	events->arg = arg;
	events->blocks.size = sizeof(struct block);
	events->hashes.size = sizeof(struct hash);
	events->ring = calloc(rules->remember + 1, sizeof(*events->ring));
	if (!events->ring) {
		free(events);
		return NULL;
	}
	kvwire_cleared(&events->pending.events);
	events->pending.nr = 1;
	return events;
}

void kvevents_free(struct kvevents *events)
{
	const struct hash *hash = NULL;

	if (!events)
		return;
	while ((hash = table_next(&events->hashes, hash)))
		free(hash->stored);
	table_free(&events->hashes);
	table_free(&events->blocks);
	kvwire_free(&events->pending.events);
	free(events->ring);
	free(events);
}
