/* SPDX-License-Identifier: MIT */
/*
 * KV events as vLLM and SGLang send them: a batch is the msgpack array [time, [event,
 * ...], rank], an event is a map whose "type" says what it is. Rule: bytes in, bytes
 * out; what is read comes from the network and may be anything.
 */
#ifndef KVBLKD_KVWIRE_H
#define KVBLKD_KVWIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct kvwire_bytes - bytes that are written
 * @data: allocated
 * @len: of them
 * @room: allocated
 * @failed: no memory: something is missing
 */
struct kvwire_bytes {
	char *data;
	size_t len;
	size_t room;
	bool failed;
};

/* A value of msgpack as it stands in a batch. @at is NULL: there is none. */
struct kvwire_value {
	const char *at;
	size_t len;
};

/**
 * struct kvwire_block - a block whose tokens are known
 * @hash: that the engine gives it
 * @parent: likewise, of the block before it
 * @has_parent: it is not the first of its prompt
 * @nr_tokens: how many it has
 * @tokens: so many values of an array
 * @lora_id: as the engine sent it, or none
 * @lora_name: likewise
 * @cache_salt: likewise
 * @extra_keys: likewise, the one of this block
 */
struct kvwire_block {
	uint64_t hash;
	uint64_t parent;
	bool has_parent;
	uint32_t nr_tokens;
	struct kvwire_value tokens;
	struct kvwire_value lora_id;
	struct kvwire_value lora_name;
	struct kvwire_value cache_salt;
	struct kvwire_value extra_keys;
};

/* Events, at the end of @to. One whose @block has no tokens tells its hash alone. */
void kvwire_stored(struct kvwire_bytes *to, const struct kvwire_block *block, const char *medium);
void kvwire_removed(struct kvwire_bytes *to, const uint64_t *hashes, size_t nr, const char *medium);
void kvwire_cleared(struct kvwire_bytes *to);
/* One that was written before. */
void kvwire_append(struct kvwire_bytes *to, const void *data, size_t len);

/* A batch of @nr events, which are the bytes in @events. */
void kvwire_batch(struct kvwire_bytes *to, double seconds, const struct kvwire_bytes *events, size_t nr);

/* Forgets what was written, and keeps the memory. */
void kvwire_reset(struct kvwire_bytes *bytes);
void kvwire_free(struct kvwire_bytes *bytes);

typedef void kvwire_block_fn(void *arg, const struct kvwire_block *block);

/*
 * Calls @fn for each block that a batch tells with its tokens; what @block points to is
 * in @data. Blocks without tokens and other events are skipped, and so are blocks with
 * more than 64 KiB of tokens or 4 KiB of other values, an @lora_id that is no number or
 * an @lora_name or @cache_salt that is no text. 0; -EBADMSG: what comes from there on is
 * no batch.
 */
int kvwire_read(const void *data, size_t len, kvwire_block_fn *fn, void *arg);

#endif
