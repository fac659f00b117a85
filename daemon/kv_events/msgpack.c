// SPDX-License-Identifier: MIT
/* KV events, see msgpack.h. If an engine sends a hash as bytes, the last 8 are the number. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <mpack.h>

#include "kv_events/msgpack.h"

#define TOKEN_LEN	MPACK_MAX_TOKEN_LEN
/* Limits of a block's values and tokens. Values are limited because many blocks may share them. */
#define VALUES_BYTES	4096
#define TOKENS_BYTES	65536

void kvwire_append(struct kvwire_bytes *to, const void *data, size_t len)
{
	size_t room = to->room ? to->room : 4096;
	char *more;

	while (room < to->len + len)
		room *= 2;
	if (room != to->room) {
		more = realloc(to->data, room);
		if (!more) {
			to->failed = true;
			return;
		}
		to->data = more;
		to->room = room;
	}
	memcpy(to->data + to->len, data, len);
	to->len += len;
}

static void put(struct kvwire_bytes *to, mpack_token_t token)
{
	mpack_tokbuf_t buf = MPACK_TOKBUF_INITIAL_VALUE;
	char bytes[TOKEN_LEN], *end = bytes;
	size_t left = sizeof(bytes);

	mpack_write(&buf, &end, &left, &token);
	kvwire_append(to, bytes, (size_t)(end - bytes));
}

static void put_text(struct kvwire_bytes *to, const char *text)
{
	put(to, mpack_pack_str((uint32_t)strlen(text)));
	kvwire_append(to, text, strlen(text));
}

static void put_value(struct kvwire_bytes *to, const struct kvwire_value *value)
{
	if (value->at)
		kvwire_append(to, value->at, value->len);
	else
		put(to, mpack_pack_nil());
}

static void put_hashes(struct kvwire_bytes *to, const uint64_t *hashes, size_t nr)
{
	put_text(to, "block_hashes");
	put(to, mpack_pack_array((uint32_t)nr));
	for (size_t i = 0; i < nr; i++)
		put(to, mpack_pack_uint(hashes[i]));
}

static void put_type(struct kvwire_bytes *to, uint32_t nr, const char *type)
{
	put(to, mpack_pack_map(nr));
	put_text(to, "type");
	put_text(to, type);
}

void kvwire_stored(struct kvwire_bytes *to, const struct kvwire_block *block, const char *medium)
{
	uint32_t more = !!block->cache_salt.at + !!block->extra_keys.at;

	put_type(to, 8 + more, "BlockStored");
	put_hashes(to, &block->hash, 1);
	put_text(to, "parent_block_hash");
	put(to, block->has_parent ? mpack_pack_uint(block->parent) : mpack_pack_nil());
	put_text(to, "token_ids");
	if (block->nr_tokens) {
		put(to, mpack_pack_array(block->nr_tokens));
		kvwire_append(to, block->tokens.at, block->tokens.len);
	} else {
		put(to, mpack_pack_array(0));
	}
	put_text(to, "block_size");
	put(to, mpack_pack_uint(block->nr_tokens));
	put_text(to, "lora_id");
	put_value(to, &block->lora_id);
	put_text(to, "medium");
	put_text(to, medium);
	put_text(to, "lora_name");
	put_value(to, &block->lora_name);
	if (block->cache_salt.at) {
		put_text(to, "cache_salt");
		put_value(to, &block->cache_salt);
	}
	if (block->extra_keys.at) {
		put_text(to, "extra_keys");
		put(to, mpack_pack_array(1));
		put_value(to, &block->extra_keys);
	}
}

void kvwire_removed(struct kvwire_bytes *to, const uint64_t *hashes, size_t nr, const char *medium)
{
	put_type(to, 3, "BlockRemoved");
	put_hashes(to, hashes, nr);
	put_text(to, "medium");
	put_text(to, medium);
}

void kvwire_cleared(struct kvwire_bytes *to)
{
	put_type(to, 1, "AllBlocksCleared");
}

void kvwire_batch(struct kvwire_bytes *to, double seconds, const struct kvwire_bytes *events, size_t nr)
{
	put(to, mpack_pack_array(3));
	put(to, mpack_pack_float(seconds));
	put(to, mpack_pack_array((uint32_t)nr));
	if (nr)
		kvwire_append(to, events->data, events->len);
	/* no rank: subscribers know it from their configuration */
	put(to, mpack_pack_nil());
	to->failed |= events->failed;
}

void kvwire_reset(struct kvwire_bytes *bytes)
{
	bytes->len = 0;
	bytes->failed = false;
}

void kvwire_free(struct kvwire_bytes *bytes)
{
	free(bytes->data);
	*bytes = (struct kvwire_bytes){ 0 };
}

/* Reader of a batch. An error sticks, so callers test @bad once, before using the results. */
struct reader {
	const char *at;
	size_t left;
	bool bad;
};

/* Read the next token. For a text or bytes the content follows, see take_bytes(). */
static mpack_token_t next(struct reader *reader)
{
	mpack_tokbuf_t buf = MPACK_TOKBUF_INITIAL_VALUE;
	mpack_token_t token = { .type = MPACK_TOKEN_NIL };

	/* mpack_read() reads a byte before it checks the length */
	reader->bad |= !reader->left;
	if (!reader->bad)
		reader->bad = mpack_read(&buf, &reader->at, &reader->left, &token) != MPACK_OK;
	if (reader->bad)
		token = (mpack_token_t){ .type = MPACK_TOKEN_NIL };
	return token;
}

static const char *take_bytes(struct reader *reader, size_t len)
{
	const char *bytes = reader->at;

	reader->bad |= len > reader->left;
	if (reader->bad)
		return NULL;
	reader->at += len;
	reader->left -= len;
	return bytes;
}

static struct kvwire_value take_value(struct reader *reader)
{
	struct kvwire_value value = { .at = reader->at };
	uint64_t values = 1;

	while (values && !reader->bad) {
		mpack_token_t token = next(reader);

		values--;
		if (token.type == MPACK_TOKEN_ARRAY)
			values += token.length;
		else if (token.type == MPACK_TOKEN_MAP)
			values += 2ull * token.length;
		else if (token.type >= MPACK_TOKEN_BIN)
			take_bytes(reader, token.length);
		/* a value takes at least one byte: reject impossible counts */
		reader->bad |= values > reader->left;
	}
	value.len = (size_t)(reader->at - value.at);
	return reader->bad ? (struct kvwire_value){ 0 } : value;
}

static struct reader reader_of(const struct kvwire_value *value)
{
	return (struct reader){ .at = value->at, .left = value->len, .bad = !value->at };
}

static bool is_nil(const struct kvwire_value *value)
{
	struct reader reader = reader_of(value);

	return next(&reader).type == MPACK_TOKEN_NIL;
}

/* Read the start of an array. Returns its length, 0 on error. */
static uint32_t take_array(struct reader *reader)
{
	mpack_token_t token = next(reader);

	reader->bad |= token.type != MPACK_TOKEN_ARRAY || token.length > reader->left;
	return reader->bad ? 0 : token.length;
}

static uint64_t take_hash(struct reader *reader)
{
	mpack_token_t token = next(reader);
	const unsigned char *bytes;
	uint64_t hash = 0;

	if (token.type == MPACK_TOKEN_UINT)
		return mpack_unpack_uint(token);
	if (token.type == MPACK_TOKEN_SINT)
		return (uint64_t)mpack_unpack_sint(token);
	bytes = token.type == MPACK_TOKEN_BIN && token.length >= 8 ?
		(const unsigned char *)take_bytes(reader, token.length) : NULL;
	if (!bytes) {
		reader->bad = true;
		return 0;
	}
	for (uint32_t i = token.length - 8; i < token.length; i++)
		hash = hash << 8 | bytes[i];
	return hash;
}

static bool is_number_or_nil(const struct kvwire_value *value)
{
	struct reader reader = reader_of(value);
	mpack_token_type_t type = next(&reader).type;

	return type == MPACK_TOKEN_UINT || type == MPACK_TOKEN_SINT || type == MPACK_TOKEN_NIL;
}

static bool is_text_or_nil(const struct kvwire_value *value)
{
	struct reader reader = reader_of(value);
	mpack_token_type_t type = next(&reader).type;

	return type == MPACK_TOKEN_STR || type == MPACK_TOKEN_NIL;
}

static uint32_t number(const struct kvwire_value *value)
{
	struct reader reader = reader_of(value);
	mpack_token_t token = next(&reader);
	uint64_t number = token.type == MPACK_TOKEN_UINT ? mpack_unpack_uint(token) : 0;

	return number <= UINT32_MAX ? (uint32_t)number : 0;
}

static bool is_text(const struct kvwire_value *value, const char *text)
{
	struct reader reader = reader_of(value);
	mpack_token_t token = next(&reader);

	return token.type == MPACK_TOKEN_STR && token.length == strlen(text) &&
	       token.length == reader.left && !memcmp(reader.at, text, token.length);
}

enum field {
	FIELD_TYPE,
	FIELD_HASHES,
	FIELD_PARENT,
	FIELD_TOKENS,
	FIELD_BLOCK_SIZE,
	FIELD_LORA_ID,
	FIELD_LORA_NAME,
	FIELD_SALT,
	FIELD_EXTRA_KEYS,
	FIELDS,
};

static const char *const field_names[FIELDS] = {
	[FIELD_TYPE] = "type",
	[FIELD_HASHES] = "block_hashes",
	[FIELD_PARENT] = "parent_block_hash",
	[FIELD_TOKENS] = "token_ids",
	[FIELD_BLOCK_SIZE] = "block_size",
	[FIELD_LORA_ID] = "lora_id",
	[FIELD_LORA_NAME] = "lora_name",
	[FIELD_SALT] = "cache_salt",
	[FIELD_EXTRA_KEYS] = "extra_keys",
};

/* Read @nr elements of an array: the tokens of one block. */
static struct kvwire_value take_tokens(struct reader *reader, uint32_t nr)
{
	struct kvwire_value tokens = { .at = reader->at };

	for (uint32_t i = 0; i < nr; i++)
		reader->bad |= next(reader).type != MPACK_TOKEN_UINT;
	tokens.len = (size_t)(reader->at - tokens.at);
	return tokens;
}

static bool is_small(const struct kvwire_block *block)
{
	return block->lora_id.len + block->lora_name.len + block->cache_salt.len + block->extra_keys.len <=
	       VALUES_BYTES && block->tokens.len <= TOKENS_BYTES;
}

/*
 * Read a BlockStored, which has the tokens of all its blocks in sequence. If their number does
 * not match, as with overlapping blocks or with hashes only, the event is skipped.
 */
static bool read_stored(const struct kvwire_value *fields, kvwire_block_fn *fn, void *arg)
{
	struct reader hashes = reader_of(&fields[FIELD_HASHES]), parent = reader_of(&fields[FIELD_PARENT]);
	struct reader tokens = reader_of(&fields[FIELD_TOKENS]), extra = reader_of(&fields[FIELD_EXTRA_KEYS]);
	uint32_t nr = take_array(&hashes), nr_tokens = take_array(&tokens), nr_extra = take_array(&extra);
	struct kvwire_block block = {
		.nr_tokens = number(&fields[FIELD_BLOCK_SIZE]),
		.lora_id = fields[FIELD_LORA_ID],
		.lora_name = fields[FIELD_LORA_NAME],
		.cache_salt = is_nil(&fields[FIELD_SALT]) ? (struct kvwire_value){ 0 } : fields[FIELD_SALT],
	};

	if (hashes.bad || tokens.bad)
		return false;
	if (!block.nr_tokens || (uint64_t)nr * block.nr_tokens != nr_tokens)
		return true;
	if (!is_number_or_nil(&block.lora_id) || !is_text_or_nil(&block.lora_name) ||
	    !is_text_or_nil(&block.cache_salt))
		return true;
	block.has_parent = fields[FIELD_PARENT].at && !is_nil(&fields[FIELD_PARENT]);
	if (block.has_parent)
		block.parent = take_hash(&parent);
	for (uint32_t i = 0; i < nr; i++) {
		block.hash = take_hash(&hashes);
		block.tokens = take_tokens(&tokens, block.nr_tokens);
		block.extra_keys = i < nr_extra ? take_value(&extra) : (struct kvwire_value){ 0 };
		if (hashes.bad || tokens.bad || (block.has_parent && parent.bad))
			return false;
		if (is_small(&block))
			fn(arg, &block);
		block.parent = block.hash;
		block.has_parent = true;
		parent.bad = false;
	}
	return true;
}

static bool read_event(struct reader *reader, kvwire_block_fn *fn, void *arg)
{
	struct kvwire_value fields[FIELDS] = { 0 }, name, value;
	mpack_token_t token = next(reader);

	if (token.type != MPACK_TOKEN_MAP)
		return false;
	for (uint32_t i = 0; i < token.length && !reader->bad; i++) {
		name = take_value(reader);
		value = take_value(reader);
		for (int f = 0; f < FIELDS && !reader->bad; f++) {
			if (is_text(&name, field_names[f]))
				fields[f] = value;
		}
	}
	return !reader->bad && (!is_text(&fields[FIELD_TYPE], "BlockStored") ||
				read_stored(fields, fn, arg));
}

int kvwire_read(const void *data, size_t len, kvwire_block_fn *fn, void *arg)
{
	struct reader reader = { .at = data, .left = len };
	uint32_t nr;

	if (take_array(&reader) < 2)
		return -EBADMSG;
	take_value(&reader);
	nr = take_array(&reader);
	for (uint32_t i = 0; i < nr; i++) {
		if (!read_event(&reader, fn, arg))
			return -EBADMSG;
	}
	return reader.bad ? -EBADMSG : 0;
}
