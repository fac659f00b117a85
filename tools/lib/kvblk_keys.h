/* SPDX-License-Identifier: MIT */
/*
 * libkvblk-keys: keys that no two runtimes, models or parallel layouts share.
 *
 * The first put of a key decides its bytes: anybody who can open a pool's node and guess a
 * key can store a wrong block for others. Only a secret in the keys prevents that, the
 * deployment's salt.
 *
 * A library of its own, because only this part needs SHA-256 (libmd): a runtime that has
 * keys does not load it, and a router that only computes keys does not load io_uring.
 *
 * No call allocates memory or has state.
 */
#ifndef LIBKVBLK_KVBLK_KEYS_H
#define LIBKVBLK_KVBLK_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include <linux/kvblk.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVBLK_KEYSPACE_LEN	20	/* bytes of a key that precede the block's id */
#define KVBLK_BLOCK_ID_LEN	32	/* length of kvblk_block_id()'s result */
#define KVBLK_SALT_FILE		"/etc/kvblk/salt"	/* made by kvblkd(8) */
#define KVBLK_SALT_LEN		64	/* hex digits of a deployment's salt */

/**
 * struct kvblk_keyspace - common prefix of the keys of one origin
 * @digest: first half of the SHA-256 of the origin's description
 */
struct kvblk_keyspace {
	uint8_t digest[16];
};

/**
 * struct kvblk_keyspace_spec - everything the bytes of a block depend on, except its
 * tokens
 * @size: sizeof(struct kvblk_keyspace_spec)
 * @block_tokens: tokens in a block, not 0
 * @runtime: program that defines the block layout, and the layout's version:
 *	"vllm-offload/1"
 * @model: the model and its revision, including adapters such as LoRA
 * @tokenizer: the tokenizer and its revision; NULL: the model's own
 * @dtype: element type of the cache: "bfloat16", "fp8_e4m3"
 * @layout: order and shape of a block's elements, in the runtime's notation
 * @salt: separates users that must not share blocks, such as tenants; may be NULL
 * @secret: the deployment's salt, from kvblk_keyspace_salt(); NULL or "": none
 * @tp_rank: rank among the tensor-parallel processes
 * @tp_size: number of tensor-parallel processes; 0 means 1. If all hold the same bytes
 *	(MLA), use rank 0 of 1
 * @pp_rank: pipeline stage
 * @pp_size: number of pipeline stages; 0 means 1
 * @cp_rank: rank among the context-parallel processes
 * @cp_size: number of context-parallel processes; 0 means 1
 *
 * Strings are compared byte by byte. Documentation/keys.rst describes the scheme and has
 * test vectors.
 */
struct kvblk_keyspace_spec {
	uint32_t size;
	uint32_t block_tokens;
	const char *runtime;
	const char *model;
	const char *tokenizer;
	const char *dtype;
	const char *layout;
	const char *salt;
	const char *secret;
	uint32_t tp_rank, tp_size;
	uint32_t pp_rank, pp_size;
	uint32_t cp_rank, cp_size;
};

/**
 * kvblk_keyspace_init() - compute the key space of an origin
 * @space: filled in
 * @spec: the origin
 *
 * Context: any thread.
 * Return: 0; -EINVAL if size, runtime, model, dtype, layout or block_tokens is missing, or
 * a rank is not below its size; -E2BIG if @spec sets a field that this library does not
 * know.
 */
int kvblk_keyspace_init(struct kvblk_keyspace *space,
			const struct kvblk_keyspace_spec *spec);

/**
 * kvblk_keyspace_salt() - read the deployment's salt
 * @path: the file, usually KVBLK_SALT_FILE
 * @salt: filled in for kvblk_keyspace_spec.secret, with "" on failure
 * @why: filled in with the reason of a failure, static text; may be NULL
 *
 * Keys without a salt are a fallback for -ENOENT only.
 *
 * Context: any thread.
 * Return: 0; -ENOENT without a file; -EACCES if the caller may not read it; -EBADMSG if it
 * is not 64 hex digits in lower case and a newline; -EKEYREJECTED if others may read it, its
 * group may change it, or neither root nor the caller (geteuid()) owns it; another error of
 * open(2) or read(2).
 */
int kvblk_keyspace_salt(const char *path, char salt[KVBLK_SALT_LEN + 1], const char **why);

/**
 * kvblk_keyspace_key() - compute the key of a block
 * @space: the key space
 * @id: id of the block, from the runtime or kvblk_block_id(); must identify the block's
 *	tokens and all preceding tokens
 * @id_len: 1 to KVBLK_KEY_MAX - KVBLK_KEYSPACE_LEN
 * @key: filled in
 * @key_len: in: size of @key; out: length of the key, KVBLK_KEYSPACE_LEN + @id_len
 *
 * Context: any thread.
 * Return: 0; -EINVAL for a wrong @id_len; -EMSGSIZE if @key is too short.
 */
int kvblk_keyspace_key(const struct kvblk_keyspace *space, const void *id, size_t id_len,
		       uint8_t *key, size_t *key_len);

/**
 * kvblk_block_id() - compute a block's id from its tokens, for runtimes without block ids
 * @parent: id of the preceding block of the prompt; NULL for the first block
 * @tokens: the block's tokens
 * @nr_tokens: number of tokens
 * @extra: further input that the block depends on, such as the hash of an image; may be
 *	NULL
 * @extra_len: length of @extra, or 0
 * @id: filled in; may be @parent
 *
 * The id is the SHA-256 of @parent (32 zeroes for NULL), @nr_tokens (64 bits, little
 * endian), the tokens (32 bits each, little endian) and @extra.
 *
 * Context: any thread.
 */
void kvblk_block_id(const uint8_t *parent, const uint32_t *tokens, size_t nr_tokens,
		    const void *extra, size_t extra_len, uint8_t id[KVBLK_BLOCK_ID_LEN]);

#ifdef __cplusplus
}
#endif

#endif
