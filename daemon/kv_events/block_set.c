// SPDX-License-Identifier: MIT
/*
 * KV events of pools, see block_set.h. One table has the blocks in the pools, by token. Another
 * has the hashes of these blocks, and hashes whose tokens engines published. After lost records
 * the change feed is opened again, and blocks that it no longer reports are removed. Subscribers
 * therefore never see a loss.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kv_events/block_set.h"
#include "kv_events/hash_table.h"

#define BATCH_EVENTS	1024
/* of a batch that answers a replay request with all stored hashes */
#define SHARE_BYTES	((size_t)256 << 10)
#define HASH_BYTES	32			/* approximate size of an event without tokens */

/* Token of a change feed, mixed with the number of the pool. */
struct token {
	uint64_t word[2];
};

/**
 * struct block - a block in a pool
 * @token: identity of the block
 * @hash: caller tag of the block
 * @pool: number of the pool
 * @pass: number of the last change feed that reported the block
 */
struct block {
	struct token token;
	uint64_t hash;
	uint32_t pool;
	uint32_t pass;
};

/**
 * struct stored - an encoded BlockStored event
 * @older: next older hash in the eviction list, if the hash has no block; 0: none
 * @newer: next newer hash in the eviction list; 0: none
 * @sum: checksum of the tokens
 * @len: bytes of @data
 */
struct stored {
	uint64_t older;
	uint64_t newer;
	uint64_t sum;
	size_t len;
	char data[];
};

/**
 * struct hash - a hash that has blocks or known tokens
 * @hash: the engine's hash
 * @stored: encoded event, NULL: tokens unknown
 * @blocks: number of blocks in the pools
 */
struct hash {
	uint64_t hash;
	struct stored *stored;
	uint32_t blocks;
};

/* Events of a batch. Consecutive removed hashes are collected for a single event. */
struct pending {
	struct kvwire_bytes events;
	size_t nr;
	uint64_t removed[BATCH_EVENTS];
	size_t nr_removed;
};

/**
 * struct kvevents - KV events of all pools
 * @blocks: table of &struct block
 * @hashes: table of &struct hash
 * @pass: number of each pool's present change feed
 * @oldest: hash without a block that is evicted next; 0: none
 * @newest: hash without a block that is evicted last; 0: none
 * @pending: events not yet published
 */
struct kvevents {
	const struct kvevents_rules *rules;
	kvevents_publish_fn *publish;
	void *arg;
	struct table blocks;
	struct table hashes;
	uint32_t pass[KVEVENTS_POOLS];
	uint64_t oldest;
	uint64_t newest;
	struct pending pending;
	struct kvevents_counts counts;
};

static void close_removed(struct pending *pending, const struct kvevents_rules *rules)
{
	if (!pending->nr_removed)
		return;
	kvwire_removed(&pending->events, pending->removed, pending->nr_removed, rules->medium);
	pending->nr++;
	pending->nr_removed = 0;
}

static int publish_all(struct pending *pending, const struct kvevents_rules *rules,
		       kvevents_publish_fn *to, void *arg)
{
	struct kvwire_bytes batch = { 0 };
	struct timespec ts;
	int err = -ENOMEM;

	close_removed(pending, rules);
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
	struct pending *pending = &events->pending;

	if (!pending->nr && !pending->nr_removed)
		return 0;
	return publish_all(pending, events->rules, events->publish, events->arg);
}

static int flush_full(struct kvevents *events)
{
	const struct pending *pending = &events->pending;

	return pending->nr + pending->nr_removed >= BATCH_EVENTS || pending->events.len >= KVEVENTS_BATCH_BYTES ?
		       kvevents_flush(events) : 0;
}

/* Returns false if no event is written: the tokens are unknown, and hash_only is off. */
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

static bool is_stored(const struct kvevents *events, const struct hash *hash)
{
	return hash->blocks >= events->rules->parts;
}

size_t kvevents_shares(const struct kvevents *events)
{
	return 1 + (size_t)(events->counts.token_bytes + events->counts.hashes * HASH_BYTES) / SHARE_BYTES;
}

/* A replay batch under construction. */
struct share {
	const struct kvevents *events;
	struct pending pending;
};

static void share_hash(void *arg, const void *entry)
{
	struct share *share = arg;

	if (is_stored(share->events, entry))
		write_stored(&share->pending, entry, share->events->rules);
}

int kvevents_share(const struct kvevents *events, size_t number, size_t shares, kvevents_publish_fn *to, void *arg)
{
	struct share share = { .events = events };
	int err;

	if (!number) {
		kvwire_cleared(&share.pending.events);
		share.pending.nr = 1;
	}
	table_share(&events->hashes, number, shares, share_hash, &share);
	err = publish_all(&share.pending, events->rules, to, arg);
	kvwire_free(&share.pending.events);
	return err;
}

static size_t bytes_of(const struct stored *stored)
{
	return sizeof(*stored) + stored->len;
}

static struct stored *parked(const struct kvevents *events, uint64_t key)
{
	return ((struct hash *)table_find(&events->hashes, &key))->stored;
}

static void forget_tokens(struct kvevents *events, struct hash *hash)
{
	if (hash->stored)
		events->counts.token_bytes -= bytes_of(hash->stored);
	free(hash->stored);
	hash->stored = NULL;
}

/* Append a hash without blocks to the eviction list; drop it if its tokens are unknown. */
static void park(struct kvevents *events, uint64_t key)
{
	struct hash *hash = table_find(&events->hashes, &key);

	if (!hash->stored) {
		table_remove(&events->hashes, hash);
		return;
	}
	hash->stored->older = events->newest;
	hash->stored->newer = 0;
	if (events->newest)
		parked(events, events->newest)->newer = key;
	else
		events->oldest = key;
	events->newest = key;
}

/* Remove a hash from the eviction list. */
static void unpark(struct kvevents *events, const struct stored *stored)
{
	if (stored->older)
		parked(events, stored->older)->newer = stored->newer;
	else
		events->oldest = stored->newer;
	if (stored->newer)
		parked(events, stored->newer)->older = stored->older;
	else
		events->newest = stored->older;
}

/* Evict hashes without blocks until @bytes fit. Returns false if they do not fit. */
static bool make_room(struct kvevents *events, size_t bytes)
{
	struct hash *hash;

	while (events->oldest && events->counts.token_bytes + bytes > events->rules->token_bytes) {
		hash = table_find(&events->hashes, &events->oldest);
		unpark(events, hash->stored);
		forget_tokens(events, hash);
		table_remove(&events->hashes, hash);
	}
	return events->counts.token_bytes + bytes <= events->rules->token_bytes;
}

static int add_to_hash(struct kvevents *events, uint64_t key)
{
	struct hash *hash = table_add(&events->hashes, &key);

	if (!hash)
		return -ENOMEM;
	if (!hash->blocks && hash->stored)
		unpark(events, hash->stored);
	hash->blocks++;
	if (hash->blocks != events->rules->parts)
		return 0;
	events->counts.hashes++;
	return tell_stored(events, hash);
}

static int take_from_hash(struct kvevents *events, uint64_t key)
{
	struct hash *hash = table_find(&events->hashes, &key);
	bool was_stored = is_stored(events, hash), goes;

	hash->blocks--;
	goes = was_stored && !is_stored(events, hash);
	events->counts.hashes -= goes;
	if (!hash->blocks)
		park(events, key);
	return goes ? tell_removed(events, key) : 0;
}

/* Returns the FNV-1a checksum of the tokens only: engines may differ in other values. */
static uint64_t sum_of(const struct kvwire_block *block)
{
	uint64_t sum = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < block->tokens.len; i++)
		sum = (sum ^ (unsigned char)block->tokens.at[i]) * 0x100000001b3ull;
	return sum;
}

/* Encode the event of @block. Returns NULL without memory. */
static struct stored *stored_new(const struct kvwire_block *block, const char *medium)
{
	struct kvwire_bytes bytes = { 0 };
	struct stored *stored = NULL;

	kvwire_stored(&bytes, block, medium);
	if (!bytes.failed)
		stored = calloc(1, sizeof(*stored) + bytes.len);
	if (stored) {
		stored->sum = sum_of(block);
		stored->len = bytes.len;
		memcpy(stored->data, bytes.data, bytes.len);
	}
	kvwire_free(&bytes);
	return stored;
}

/*
 * Drop the tokens of @key because an engine published others. Either engine may be wrong: the
 * next event of the right one corrects the tokens. Returns 0 or -ENOMEM.
 */
static int drop_tokens(struct kvevents *events, uint64_t key)
{
	struct hash *hash = table_find(&events->hashes, &key);
	bool was_stored = is_stored(events, hash);

	if (!hash->blocks)
		unpark(events, hash->stored);
	forget_tokens(events, hash);
	return was_stored ? tell_removed(events, key) : 0;
}

int kvevents_learn(struct kvevents *events, const struct kvwire_block *block)
{
	struct stored *stored;
	bool changed = false;
	struct hash *hash;
	int err = 0;

	/* no caller tag is 0 */
	if (!block->hash)
		return 0;
	hash = table_add(&events->hashes, &block->hash);
	if (!hash)
		return -ENOMEM;
	if (hash->stored && hash->stored->sum == sum_of(block))
		return 0;
	if (hash->stored) {
		err = drop_tokens(events, block->hash);
		changed = true;
	}
	stored = stored_new(block, events->rules->medium);
	/* may evict hashes, but not this one, which is not in the eviction list */
	if (stored && !make_room(events, bytes_of(stored))) {
		events->counts.untold++;
		free(stored);
		stored = NULL;
	} else if (!stored) {
		err = -ENOMEM;
	}
	hash = table_find(&events->hashes, &block->hash);
	hash->stored = stored;
	if (stored)
		events->counts.token_bytes += bytes_of(stored);
	if ((stored || changed) && is_stored(events, hash))
		return tell_stored(events, hash) ?: err;
	if (!hash->blocks)
		park(events, block->hash);
	return err;
}

static struct token token_of(unsigned int pool, const struct kvblk_change *record)
{
	uint64_t mixed = record->token[0] ^ (pool + 1) * 0x9e3779b97f4a7c15ull;

	return (struct token){ { mixed ? mixed : 1, record->token[1] } };
}

static int remove_block(struct kvevents *events, struct block *block)
{
	uint64_t hash = block->hash;

	table_remove(&events->blocks, block);
	return take_from_hash(events, hash);
}

static int store(struct kvevents *events, unsigned int pool, struct token token, uint64_t hash)
{
	struct block *block = table_find(&events->blocks, token.word);
	int err = 0;

	/* the initial scan may report the new block while the old one's REMOVED is still queued */
	if (block && block->hash != hash) {
		err = remove_block(events, block);
		block = NULL;
	}
	if (block) {
		block->pass = events->pass[pool];
		return err;
	}
	block = table_add(&events->blocks, token.word);
	if (!block)
		return -ENOMEM;
	*block = (struct block){ token, hash, pool, events->pass[pool] };
	if (add_to_hash(events, hash))
		err = -ENOMEM;
	/* drop the block if its hash could not be added, because take_from_hash() needs the hash */
	if (!table_find(&events->hashes, &hash))
		table_remove(&events->blocks, block);
	return err;
}

/*
 * Remove the pool's blocks that the change feed has not reported since kvevents_begin(), or with
 * @all every block. Returns 0 or -ENOMEM.
 */
static int sweep(struct kvevents *events, unsigned int pool, bool all)
{
	struct token *tokens = malloc((events->blocks.nr + 1) * sizeof(*tokens));
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
		err = remove_block(events, table_find(&events->blocks, tokens[i].word));
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

int kvevents_record(struct kvevents *events, unsigned int pool, const struct kvblk_change *record)
{
	const struct token token = token_of(pool, record);
	struct block *block;

	switch (record->op) {
	case KVBLK_CHANGE_STORED:
		return record->caller_tag ? store(events, pool, token, record->caller_tag) : 0;
	case KVBLK_CHANGE_REMOVED:
		block = table_find(&events->blocks, token.word);
		return block ? remove_block(events, block) : 0;
	case KVBLK_CHANGE_CAUGHT_UP:
		return sweep(events, pool, false);
	case KVBLK_CHANGE_LOST:
		events->counts.lost++;
		return -ENOBUFS;
	default:
		return 0;
	}
}

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
	events->blocks = (struct table){ .size = sizeof(struct block), .words = 2 };
	events->hashes = (struct table){ .size = sizeof(struct hash), .words = 1 };
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
	free(events);
}
