// SPDX-License-Identifier: MIT
/* KV events on the wire: the bytes that subscribers expect, and hostile input. */
#include <errno.h>

#include "kv_events/msgpack.h"
#include "kvblk_test.h"

#define TEXT(s)		s, sizeof(s) - 1

static struct kvwire_bytes out, events;
static struct kvwire_block seen[8];
static size_t nr_seen;

static int begin(void **state)
{
	kvwire_reset(&out);
	kvwire_reset(&events);
	nr_seen = 0;
	return 0;
}

static int end(void **state)
{
	kvwire_free(&out);
	kvwire_free(&events);
	return 0;
}

static void see(void *arg, const struct kvwire_block *block)
{
	assert_ptr_equal(arg, &nr_seen);
	seen[nr_seen++ % 8] = *block;
}

/* Read from an exact allocation, so that sanitizers detect an overrun. */
static int read_it(const void *data, size_t len)
{
	void *copy = malloc(len ? len : 1);
	int err;

	memcpy(copy, data, len);
	nr_seen = 0;
	err = kvwire_read(copy, len, see, &nr_seen);
	free(copy);
	return err;
}

static void expect_bytes(const struct kvwire_bytes *bytes, const char *want, size_t len)
{
	assert_false(bytes->failed);
	assert_int_equal(bytes->len, len);
	assert_memory_equal(bytes->data, want, len);
}

/* Python's msgspec encodes the same bytes. */
TEST_WITH(test_bytes, begin, NULL)
{
	const uint64_t hashes[] = { 1, 0xffffffffffffffff };
	const struct kvwire_block block = {
		.hash = 0x1234567890, .parent = 7, .has_parent = true,
		.tokens = { "\x01\xcd\x03\xe8", 4 }, .nr_tokens = 2, .extra_keys = { "\xc0", 1 },
	};

	kvwire_removed(&events, hashes, 2, "STORAGE");
	expect_bytes(&events, TEXT("\x83\xa4type\xac" "BlockRemoved\xac" "block_hashes\x92\x01\xcf\xff\xff\xff\xff\xff\xff\xff\xff"
				   "\xa6medium\xa7STORAGE"));
	kvwire_reset(&events);
	kvwire_cleared(&events);
	expect_bytes(&events, TEXT("\x81\xa4type\xb0" "AllBlocksCleared"));
	kvwire_batch(&out, 1.1, &events, 1);
	expect_bytes(&out, TEXT("\x93\xcb\x3f\xf1\x99\x99\x99\x99\x99\x9a\x91\x81\xa4type\xb0" "AllBlocksCleared\xc0"));
	kvwire_reset(&events);
	kvwire_stored(&events, &block, "CPU");
	expect_bytes(&events, TEXT("\x89\xa4type\xab" "BlockStored\xac" "block_hashes\x91\xcf\x00\x00\x00\x12\x34\x56\x78\x90"
				   "\xb1parent_block_hash\x07\xa9token_ids\x92\x01\xcd\x03\xe8\xaa" "block_size\x02"
				   "\xa7lora_id\xc0\xa6medium\xa3" "CPU\xa9lora_name\xc0\xaa" "extra_keys\x91\xc0"));
	kvwire_reset(&events);
	kvwire_stored(&events, &(struct kvwire_block){ .hash = 3 }, "CPU");
	expect_bytes(&events, TEXT("\x88\xa4type\xab" "BlockStored\xac" "block_hashes\x91\x03\xb1parent_block_hash\xc0"
				   "\xa9token_ids\x90\xaa" "block_size\x00\xa7lora_id\xc0\xa6medium\xa3" "CPU\xa9lora_name\xc0"));
}

#define STORED_AND_MORE \
	"\x93\xca\x3f\x80\x00\x00\x93" \
	"\x81\xa4type\xb0" "AllBlocksCleared" \
	"\x8a\xa9token_ids\x94\x01\x02\x03\x04\xa4type\xab" "BlockStored\xaa" "block_size\x02" \
	"\xac" "block_hashes\x92\xd3\xff\xff\xff\xff\xff\xff\xff\xfe\xc4\x0a" "aa\x00\x00\x00\x00\x00\x00\x01\x02" \
	"\xb1parent_block_hash\x09\xa9lora_name\xa1x\xa7lora_id\x05\xaa" "cache_salt\xc0\xa6medium\xa3GPU" \
	"\xaa" "extra_keys\x92\x91\xa1k\xc0" \
	"\x83\xa4type\xac" "BlockRemoved\xac" "block_hashes\x91\x01\xa6medium\xa3GPU\xc0"

TEST_WITH(test_read, begin, NULL)
{
	const struct kvwire_block *block = seen;

	assert_int_equal(read_it(TEXT(STORED_AND_MORE)), 0);
	assert_int_equal(nr_seen, 2);
	assert_int_equal(block->hash, 0xfffffffffffffffe);
	assert_true(block->has_parent);
	assert_int_equal(block->parent, 9);
	assert_int_equal(block->nr_tokens, 2);
	assert_int_equal(block->tokens.len, 2);
	assert_int_equal(block->lora_name.len, 2);
	assert_int_equal(block->lora_id.len, 1);
	assert_null(block->cache_salt.at);
	assert_int_equal(block->extra_keys.len, 3);
	assert_int_equal(block[1].hash, 0x102);
	assert_int_equal(block[1].parent, 0xfffffffffffffffe);
	assert_int_equal(block[1].extra_keys.len, 1);
}

static void write_again(void *arg, const struct kvwire_block *block)
{
	kvwire_stored(arg, block, "GPU");
}

/* Events read and written again read the same. */
TEST_WITH(test_round, begin, NULL)
{
	struct kvwire_bytes again = { 0 }, batch = { 0 };

	assert_int_equal(kvwire_read(TEXT(STORED_AND_MORE), write_again, &events), 0);
	kvwire_batch(&out, 1, &events, 2);
	assert_int_equal(kvwire_read(out.data, out.len, write_again, &again), 0);
	kvwire_batch(&batch, 1, &again, 2);
	expect_bytes(&batch, out.data, out.len);
	kvwire_free(&again);
	kvwire_free(&batch);
}

/* A truncated or modified batch is rejected or read, without any other effect. */
TEST_WITH(test_damage, begin, NULL)
{
	char bytes[sizeof(STORED_AND_MORE) - 1];

	for (size_t len = 0; len < sizeof(bytes) - 1; len++)
		assert_int_equal(read_it(STORED_AND_MORE, len), -EBADMSG);
	for (int i = 0; i < 200000; i++) {
		memcpy(bytes, STORED_AND_MORE, sizeof(bytes));
		for (long n = random() % 3; n >= 0; n--)
			bytes[random() % (long)sizeof(bytes)] = (char)random();
		read_it(bytes, sizeof(bytes));
	}
}

TEST_WITH(test_strange, begin, NULL)
{
	/* no batch; no array of events; an event as an array, the format before maps */
	assert_int_equal(read_it(TEXT("\x01")), -EBADMSG);
	assert_int_equal(read_it(TEXT("\x92\x01\xc0")), -EBADMSG);
	assert_int_equal(read_it(TEXT("\x92\x01\x91\x92\xac" "BlockRemoved\x91\x01")), -EBADMSG);
	/* an unknown type, or none; no events */
	assert_int_equal(read_it(TEXT("\x92\x01\x92\x81\xa4type\xa3new\x80")), 0);
	assert_int_equal(read_it(TEXT("\x92\x01\x90")), 0);
	/* nested arrays that claim the greatest length */
	assert_int_equal(read_it(TEXT("\x92\xdd\xff\xff\xff\xff\xdd\xff\xff\xff\xff\x90")), -EBADMSG);
	/* a hash only; too many tokens; too short a hash; a token that is a text */
	assert_int_equal(read_it(TEXT("\x92\x01\x91\x84\xa4type\xab" "BlockStored\xac" "block_hashes\x91\x01\xa9token_ids\x90\xaa" "block_size\x00")), 0);
	assert_int_equal(nr_seen, 0);
	assert_int_equal(read_it(TEXT("\x92\x01\x91\x84\xa4type\xab" "BlockStored\xac" "block_hashes\x91\x01\xa9token_ids\x93\x01\x02\x03\xaa" "block_size\x02")), 0);
	assert_int_equal(nr_seen, 0);
	assert_int_equal(read_it(TEXT("\x92\x01\x91\x84\xa4type\xab" "BlockStored\xac" "block_hashes\x91\xc4\x02xx\xa9token_ids\x91\x01\xaa" "block_size\x01")), -EBADMSG);
	assert_int_equal(read_it(TEXT("\x92\x01\x91\x84\xa4type\xab" "BlockStored\xac" "block_hashes\x91\x01\xa9token_ids\x91\xa1x\xaa" "block_size\x01")), -EBADMSG);
	assert_int_equal(nr_seen, 0);
}

/* An event with one block: @nr tokens, @len bytes of @name, 4 of extra_keys and a nil. */
static size_t blocks_of(uint32_t nr, uint32_t len, const char *name)
{
	char *text = calloc(1, len), *tokens = calloc(nr, 9);
	struct kvwire_block block = {
		.hash = 1, .tokens = { tokens, nr * 9ul }, .nr_tokens = nr,
		.lora_name = { text, len }, .extra_keys = { "\xa3key", 4 },
	};

	memcpy(text, name, 3);
	/* numbers of 64 bits */
	for (uint32_t i = 0; i < nr; i++) {
		tokens[i * 9ul] = '\xcf';
		tokens[i * 9ul + 8] = 1;
	}
	begin(NULL);
	kvwire_stored(&events, &block, "GPU");
	kvwire_batch(&out, 1, &events, 1);
	assert_int_equal(read_it(out.data, out.len), 0);
	free(text);
	free(tokens);
	return nr_seen;
}

/* Values kept for each block are limited, because an event's blocks may share them. */
TEST_WITH(test_large, begin, NULL)
{
	assert_int_equal(blocks_of(1, 4091, "\xda\x0f\xf8"), 1);
	assert_int_equal(blocks_of(1, 4092, "\xda\x0f\xf9"), 0);
	assert_int_equal(blocks_of(7281, 3, "\xa2xy"), 1);
	assert_int_equal(blocks_of(7282, 3, "\xa2xy"), 0);
	/* values of other types */
	assert_int_equal(blocks_of(1, 3, "\x92\1\1"), 0);
	assert_int_equal(read_it(TEXT("\x92\x01\x91\x85\xa4type\xab" "BlockStored\xac" "block_hashes\x91\x01\xa9token_ids\x91\x01\xaa" "block_size\x01\xa7lora_id\x90")), 0);
	assert_int_equal(read_it(TEXT("\x92\x01\x91\x85\xa4type\xab" "BlockStored\xac" "block_hashes\x91\x01\xa9token_ids\x91\x01\xaa" "block_size\x01\xaa" "cache_salt\x01")), 0);
	assert_int_equal(nr_seen, 0);
	assert_int_equal(read_it(TEXT("\x92\x01\x91\x85\xa4type\xab" "BlockStored\xac" "block_hashes\x91\x01\xa9token_ids\x91\x01\xaa" "block_size\x01\xa7lora_id\xff")), 0);
	assert_int_equal(nr_seen, 1);
}

int main(void)
{
	return kvblk_run_tests("kvwire", NULL, end);
}
