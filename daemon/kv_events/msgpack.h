/* SPDX-License-Identifier: MIT */
/*
 * KV events in the format of vLLM and SGLang. A batch is the msgpack array [time, [event, ...],
 * rank], an event is a map with a "type". Input is from the network and is not trusted.
 */
#ifndef KVBLKD_KV_EVENTS_MSGPACK_H
#define KVBLKD_KV_EVENTS_MSGPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct kvwire_bytes - output buffer
 * @data: allocated buffer
 * @len: bytes written
 * @room: bytes allocated
 * @failed: an allocation failed, so the output is incomplete
 */
struct kvwire_bytes {
	char *data;
	size_t len;
	size_t room;
	bool failed;
};

/* An encoded msgpack value within a batch. @at is NULL if there is none. */
struct kvwire_value {
	const char *at;
	size_t len;
};

/**
 * struct kvwire_block - a block with known tokens
 * @hash: the engine's hash of the block
 * @parent: the engine's hash of the preceding block
 * @has_parent: false for the first block of a prompt
 * @nr_tokens: number of tokens
 * @tokens: @nr_tokens encoded elements of an array
 * @lora_id: value from the engine, or none
 * @lora_name: value from the engine, or none
 * @cache_salt: value from the engine, or none
 * @extra_keys: value from the engine for this block, or none
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

/* Append an event. A @block without tokens is reported by its hash only. */
void kvwire_stored(struct kvwire_bytes *to, const struct kvwire_block *block, const char *medium);
void kvwire_removed(struct kvwire_bytes *to, const uint64_t *hashes, size_t nr, const char *medium);
void kvwire_cleared(struct kvwire_bytes *to);
/* Append an encoded event. */
void kvwire_append(struct kvwire_bytes *to, const void *data, size_t len);

/* Append a batch of the @nr encoded events in @events. */
void kvwire_batch(struct kvwire_bytes *to, double seconds, const struct kvwire_bytes *events, size_t nr);

/* Empty the buffer, keep its memory. */
void kvwire_reset(struct kvwire_bytes *bytes);
void kvwire_free(struct kvwire_bytes *bytes);

typedef void kvwire_block_fn(void *arg, const struct kvwire_block *block);

/*
 * Call @fn for each block with tokens in a batch; @block points into @data. Skipped are: other
 * events, blocks without tokens, with more than 64 KiB of tokens or more than 4 KiB of other
 * values, and blocks whose lora_id is no number or whose lora_name or cache_salt is no text.
 * Returns 0, or -EBADMSG if the rest of @data is not a batch.
 */
int kvwire_read(const void *data, size_t len, kvwire_block_fn *fn, void *arg);

#endif
