// SPDX-License-Identifier: MIT
/* KV events: applying the batches yields the set of blocks that the change feed reports. */
#include <errno.h>
#include <stdbool.h>

#include <mpack.h>

#include "kv_events/block_set.h"
#include "kvblk_test.h"

#define HASHES	200
#define TOKENS	400

/* a subscriber of hashes 1 to HASHES - 1 */

struct subscriber {
	bool stored[HASHES];
	bool tokens[HASHES];
	unsigned int batches, cleared, removed;
};

static struct subscriber sub;

struct cursor {
	const char *at;
	size_t left;
};

static mpack_token_t next(struct cursor *cursor)
{
	mpack_tokbuf_t buf = MPACK_TOKBUF_INITIAL_VALUE;
	mpack_token_t token;

	assert_true(cursor->left > 0);
	assert_int_equal(mpack_read(&buf, &cursor->at, &cursor->left, &token), MPACK_OK);
	return token;
}

static bool text(struct cursor *cursor, const char *want)
{
	struct cursor look = *cursor;
	mpack_token_t token = next(&look);
	bool is = token.type == MPACK_TOKEN_STR && token.length == strlen(want) &&
		  !memcmp(look.at, want, token.length);

	if (is)
		*cursor = (struct cursor){ look.at + token.length, look.left - token.length };
	return is;
}

static void skip_value(struct cursor *cursor)
{
	mpack_token_t token = next(cursor);
	uint32_t nr = token.type == MPACK_TOKEN_ARRAY ? token.length : 0;

	if (token.type == MPACK_TOKEN_STR) {
		cursor->at += token.length;
		cursor->left -= token.length;
	}
	while (nr--)
		skip_value(cursor);
}

static void take_hashes(struct subscriber *to, struct cursor *cursor, bool stored)
{
	uint32_t nr = next(cursor).length;
	uint64_t hash;

	assert_true(nr > 0);
	while (nr--) {
		hash = mpack_unpack_uint(next(cursor));
		assert_in_range(hash, 1, HASHES - 1);
		/* only stored hashes are removed, because this subscriber misses no event */
		assert_true(stored || to->stored[hash]);
		to->stored[hash] = stored;
		to->tokens[hash] = false;
		to->removed += !stored;
		if (stored) {
			assert_true(text(cursor, "parent_block_hash"));
			skip_value(cursor);
			assert_true(text(cursor, "token_ids"));
			to->tokens[hash] = next(cursor).length;
			for (int i = to->tokens[hash]; i > 0; i--)
				skip_value(cursor);
		}
	}
}

static void take_event(struct subscriber *to, struct cursor *cursor)
{
	uint32_t nr = next(cursor).length;
	struct cursor start = *cursor;
	bool stored;

	assert_true(text(cursor, "type"));
	if (text(cursor, "AllBlocksCleared")) {
		memset(to->stored, 0, sizeof(to->stored));
		to->cleared++;
		return;
	}
	stored = text(cursor, "BlockStored");
	assert_true(stored || text(cursor, "BlockRemoved"));
	assert_true(text(cursor, "block_hashes"));
	take_hashes(to, cursor, stored);
	for (*cursor = start; nr--;) {
		skip_value(cursor);
		skip_value(cursor);
	}
}

static const struct kvwire_bytes *last_event;	/* event expected in a batch; NULL: found */

static bool take(void *arg, const struct kvwire_bytes *batch)
{
	struct cursor cursor = { batch->data, batch->len };
	struct subscriber *to = arg;
	uint32_t nr;

	assert_int_equal(next(&cursor).length, 3);
	assert_int_equal(next(&cursor).type, MPACK_TOKEN_FLOAT);
	nr = next(&cursor).length;
	if (last_event && memmem(batch->data, batch->len, last_event->data, last_event->len))
		last_event = NULL;
	while (nr--)
		take_event(to, &cursor);
	assert_int_equal(next(&cursor).type, MPACK_TOKEN_NIL);
	assert_int_equal(cursor.left, 0);
	to->batches++;
	return true;
}

static struct kvevents_rules rules;
static struct kvevents *events;

static size_t learned;	/* memory of the tokens of a learn() */

/* Start with memory for the tokens of @remember hashes. */
static void start(bool hash_only, uint32_t parts, size_t remember)
{
	memset(&sub, 0, sizeof(sub));
	rules = (struct kvevents_rules){ "STORAGE", hash_only, parts, remember * learned };
	events = kvevents_new(&rules, take, &sub);
	assert_non_null(events);
}

static int stop(void **state)
{
	kvevents_free(events);
	events = NULL;
	return 0;
}

static int record(unsigned int pool, uint8_t op, uint64_t token, uint64_t hash)
{
	struct kvblk_change r = { .op = op, .token = { token, 1 }, .caller_tag = hash, .length = 1 };

	return kvevents_record(events, pool, &r);
}

static void stored(uint64_t token, uint64_t hash)
{
	assert_int_equal(record(0, KVBLK_CHANGE_STORED, token, hash), 0);
}

static void removed(uint64_t token)
{
	/* the record's hash is ignored: the block's own counts */
	assert_int_equal(record(0, KVBLK_CHANGE_REMOVED, token, 12345), 0);
}

static void learn(uint64_t hash)
{
	struct kvwire_block block = { .hash = hash, .tokens = { "\x01", 1 }, .nr_tokens = 1 };

	assert_int_equal(kvevents_learn(events, &block), 0);
}

static void flush(void)
{
	assert_int_equal(kvevents_flush(events), 0);
}

static unsigned int callocs = UINT_MAX;	/* number of calls before failure */

void *__real_calloc(size_t nr, size_t size);
void *__wrap_calloc(size_t nr, size_t size);

void *__wrap_calloc(size_t nr, size_t size)
{
	return callocs && callocs-- ? __real_calloc(nr, size) : NULL;
}

TEST_WITH(test_coming_and_going, NULL, stop)
{
	start(true, 1, 10);
	flush();
	assert_int_equal(sub.cleared, 1);
	kvevents_begin(events, 0);
	stored(7, 1);
	stored(8, 2);
	stored(8, 2);
	stored(9, 2);
	flush();
	assert_true(sub.stored[1] && sub.stored[2]);
	assert_int_equal(kvevents_counts(events)->stored, 2);
	removed(9);
	removed(9);
	removed(7);
	flush();
	assert_true(!sub.stored[1] && sub.stored[2]);
	assert_int_equal(sub.removed, 1);
	/* within a batch, in order; then the key gets another block */
	stored(7, 1);
	removed(7);
	stored(7, 3);
	stored(7, 4);
	flush();
	assert_true(!sub.stored[1] && !sub.stored[3] && sub.stored[4]);
	assert_int_equal(kvevents_counts(events)->hashes, 2);
	flush();
	assert_int_equal(sub.batches, 4);
	assert_int_equal(sub.cleared, 1);
}

/* Both words of a block's token count. */
TEST_WITH(test_wide_tokens, NULL, stop)
{
	struct kvblk_change r = { .op = KVBLK_CHANGE_STORED, .token = { 5, 1 }, .caller_tag = 1 };

	start(true, 1, 10);
	assert_int_equal(kvevents_record(events, 0, &r), 0);
	r.token[1] = r.caller_tag = 2;
	assert_int_equal(kvevents_record(events, 0, &r), 0);
	r.op = KVBLK_CHANGE_REMOVED;
	assert_int_equal(kvevents_record(events, 0, &r), 0);
	flush();
	assert_true(sub.stored[1] && !sub.stored[2]);
}

/* Tokens known before the block, after it, or never. */
TEST_WITH(test_tokens, NULL, stop)
{
	start(false, 1, 10);
	learn(0);
	learn(1);
	stored(7, 1);
	stored(8, 2);
	stored(9, 3);
	flush();
	assert_true(sub.stored[1] && sub.tokens[1] && !sub.stored[2]);
	learn(2);
	learn(2);
	flush();
	assert_true(sub.stored[2] && sub.tokens[2]);
	assert_int_equal(kvevents_counts(events)->stored, 2);
	/* report a removal even if the store was never reported: an engine may have */
	sub.stored[3] = true;
	removed(9);
	removed(7);
	flush();
	assert_int_equal(sub.removed, 2);
	stored(7, 1);
	flush();
	assert_true(sub.stored[1] && sub.tokens[1]);
}

/* The tokens of present blocks and of the latest others are kept. */
TEST_WITH(test_remember, NULL, stop)
{
	start(false, 1, 4);
	stored(1, 100);
	for (uint64_t i = 1; i <= 6; i++)
		learn(i);
	learn(100);
	for (uint64_t i = 1; i <= 6; i++)
		stored(i + 1, i);
	flush();
	for (uint64_t i = 1; i <= 6; i++)
		assert_int_equal(sub.stored[i], i > 3);
	assert_true(sub.stored[100]);
	/* 4 returned and left meanwhile: it is the last to be evicted */
	removed(5);
	stored(5, 4);
	removed(6);
	removed(7);
	removed(5);
	learn(7);
	assert_int_equal(kvevents_counts(events)->token_bytes, 4 * learned);
	stored(5, 4);
	stored(6, 5);
	stored(7, 6);
	flush();
	assert_true(sub.stored[4] && !sub.stored[5] && sub.stored[6]);
	/* tokens of present blocks stay, and new ones do not fit */
	stored(8, 7);
	learn(8);
	assert_int_equal(kvevents_counts(events)->untold, 1);
	assert_int_equal(kvevents_counts(events)->token_bytes, 4 * learned);
	stored(9, 8);
	flush();
	assert_true(sub.stored[7] && !sub.stored[8]);
	stop(NULL);
	start(false, 1, 0);
	learn(1);
	stored(7, 1);
	flush();
	assert_false(sub.stored[1]);
	assert_int_equal(kvevents_counts(events)->token_bytes, 0);
}

/* After an engine was wrong about a hash, subscribers get the latest tokens. */
TEST_WITH(test_corrected, NULL, stop)
{
	struct kvwire_block wrong = { .hash = 1, .tokens = { "\x02", 1 }, .nr_tokens = 1 };
	struct kvwire_bytes event = { 0 };

	for (int hash_only = 0; hash_only < 2; hash_only++) {
		start(hash_only, 1, 10);
		assert_int_equal(kvevents_learn(events, &wrong), 0);
		stored(7, 1);
		flush();
		assert_int_equal(sub.removed, 0);
		learn(1);
		learn(1);
		flush();
		assert_true(sub.stored[1] && sub.tokens[1]);
		assert_int_equal(sub.removed, 1);
		assert_int_equal(kvevents_counts(events)->stored, 2);
		assert_int_equal(kvevents_counts(events)->token_bytes, learned);
		/* the hash is in no pool */
		removed(7);
		assert_int_equal(kvevents_learn(events, &wrong), 0);
		kvwire_stored(&event, &wrong, "STORAGE");
		last_event = &event;
		stored(7, 1);
		flush();
		assert_null(last_event);
		kvwire_free(&event);
		stop(NULL);
	}
}

TEST_WITH(test_parts, NULL, stop)
{
	start(true, 2, 10);
	stored(7, 1);
	flush();
	assert_false(sub.stored[1]);
	stored(8, 1);
	stored(9, 1);
	flush();
	assert_true(sub.stored[1]);
	removed(7);
	flush();
	assert_true(sub.stored[1]);
	removed(8);
	flush();
	assert_false(sub.stored[1]);
	removed(9);
	flush();
	assert_int_equal(sub.removed, 1);
}

TEST_WITH(test_lost, NULL, stop)
{
	start(true, 1, 10);
	kvevents_begin(events, 0);
	kvevents_begin(events, 1);
	stored(7, 1);
	stored(8, 2);
	assert_int_equal(record(1, KVBLK_CHANGE_STORED, 7, 3), 0);
	assert_int_equal(record(0, KVBLK_CHANGE_CAUGHT_UP, 0, 0), 0);
	assert_int_equal(record(0, 99, 0, 0), 0);
	assert_int_equal(record(0, KVBLK_CHANGE_LOST, 5, 0), -ENOBUFS);
	kvevents_begin(events, 0);
	stored(8, 2);
	stored(9, 4);
	flush();
	assert_true(sub.stored[1]);
	assert_int_equal(record(0, KVBLK_CHANGE_CAUGHT_UP, 0, 0), 0);
	flush();
	assert_true(!sub.stored[1] && sub.stored[2] && sub.stored[3] && sub.stored[4]);
	assert_int_equal(kvevents_counts(events)->lost, 1);
	assert_int_equal(kvevents_end(events, 0), 0);
	flush();
	assert_true(!sub.stored[2] && sub.stored[3] && !sub.stored[4]);
	assert_int_equal(sub.cleared, 1);
}

/* A block whose hash cannot be added is dropped. */
TEST_WITH(test_no_memory, NULL, stop)
{
	start(true, 1, 10);
	callocs = 1;
	assert_int_equal(record(0, KVBLK_CHANGE_STORED, 7, 1), -ENOMEM);
	callocs = UINT_MAX;
	removed(7);
	assert_int_equal(kvevents_counts(events)->hashes, 0);
	stored(7, 1);
	flush();
	assert_true(sub.stored[1]);
}

/* Returns the result of a replay in @shares batches. */
static struct subscriber all_of(size_t shares)
{
	struct subscriber all = { 0 };

	for (size_t i = 0; i < shares; i++)
		assert_int_equal(kvevents_share(events, i, shares, take, &all), 0);
	assert_int_equal(all.batches, shares);
	assert_int_equal(all.cleared, 1);
	return all;
}

static bool take_any(void *arg, const struct kvwire_bytes *batch)
{
	size_t *longest = arg;

	*longest = batch->len > *longest ? batch->len : *longest;
	return true;
}

static bool take_none(void *arg, const struct kvwire_bytes *batch)
{
	return false;
}

/* No batch is long, published or replayed, however much is stored. */
TEST_WITH(test_bytes, NULL, stop)
{
	static char tokens[5 * 4096];
	struct kvwire_block block = { .tokens = { tokens, sizeof(tokens) }, .nr_tokens = sizeof(tokens) / 5 };
	size_t longest = 0, shares;

	/* numbers of 32 bits */
	for (size_t i = 0; i < sizeof(tokens); i += 5)
		tokens[i] = '\xce';
	rules = (struct kvevents_rules){ "STORAGE", true, 1, 1 << 30 };
	events = kvevents_new(&rules, take_any, &longest);
	for (block.hash = 1; block.hash <= 1000; block.hash++) {
		assert_int_equal(record(0, KVBLK_CHANGE_STORED, block.hash, block.hash), 0);
		assert_int_equal(kvevents_learn(events, &block), 0);
	}
	assert_in_range(longest, 64 << 10, 128 << 10);
	assert_in_range(kvevents_counts(events)->token_bytes, 1000 * sizeof(tokens), 1010 * sizeof(tokens));
	shares = kvevents_shares(events);
	assert_in_range(shares, 70, 100);
	for (size_t i = 0; i < shares; i++)
		assert_int_equal(kvevents_share(events, i, shares, take_any, &longest), 0);
	assert_in_range(longest, 128 << 10, 1 << 20);
	assert_int_equal(kvevents_share(events, 0, shares, take_none, NULL), -ECANCELED);
}

static void check_model(const uint64_t *hash_of, uint32_t parts)
{
	struct subscriber dump;
	uint32_t blocks[HASHES] = { 0 };

	for (int i = 0; i < TOKENS; i++)
		blocks[hash_of[i]]++;
	flush();
	dump = all_of(1 + (size_t)random() % 5);
	for (int i = 1; i < HASHES; i++) {
		assert_int_equal(sub.stored[i], blocks[i] >= parts);
		assert_int_equal(dump.stored[i], sub.stored[i]);
		assert_int_equal(dump.tokens[i], sub.tokens[i]);
	}
}

/* Two pools, occasional losses, and two subscribers. */
TEST_WITH(test_random, NULL, stop)
{
	uint64_t hash_of[TOKENS] = { 0 };

	start(true, 2, 20);
	for (int i = 0; i < 100000; i++) {
		int n = (int)(random() % TOKENS);
		unsigned int pool = (unsigned int)n % 2;

		if (random() % 2) {
			hash_of[n] = 1 + (uint64_t)random() % (HASHES - 1);
			assert_int_equal(record(pool, KVBLK_CHANGE_STORED, (uint64_t)n / 2, hash_of[n]), 0);
		} else {
			hash_of[n] = 0;
			assert_int_equal(record(pool, KVBLK_CHANGE_REMOVED, (uint64_t)n / 2, 0), 0);
		}
		if (i % 7 == 0)
			learn(1 + (uint64_t)random() % (HASHES - 1));
		if (i % 5000 != 0)
			continue;
		/* pool 0 loses records, and its change feed starts again */
		for (int lost = 0; lost < TOKENS; lost += 14)
			hash_of[lost] = 1 + (uint64_t)random() % (HASHES - 1);
		for (int lost = 2; lost < TOKENS; lost += 14)
			hash_of[lost] = 0;
		kvevents_begin(events, 0);
		for (int there = 0; there < TOKENS; there += 2) {
			if (hash_of[there])
				record(0, KVBLK_CHANGE_STORED, (uint64_t)there / 2, hash_of[there]);
		}
		record(0, KVBLK_CHANGE_CAUGHT_UP, 0, 0);
		check_model(hash_of, 2);
	}
	check_model(hash_of, 2);
}

int main(void)
{
	start(false, 1, SIZE_MAX);
	rules.token_bytes = SIZE_MAX;
	learn(1);
	learned = kvevents_counts(events)->token_bytes;
	stop(NULL);
	return RUN_TESTS("kvevents");
}
