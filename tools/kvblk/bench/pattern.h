/* SPDX-License-Identifier: MIT */
/*
 * Bytes that replay --verify stores: each byte follows from the block's key and the offset
 * in the block. Bytes of other blocks, old or shifted bytes and zeroes are all detected.
 */
#ifndef KVBLK_PATTERN_H
#define KVBLK_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Returns the seed of the bytes of the block called @key. */
uint64_t pattern_seed(const void *key, size_t key_len);

/* Fill @buf, 8-byte aligned. */
void pattern_fill(uint64_t seed, void *buf, size_t len);

/*
 * Returns the offset of the first wrong byte of @buf, 8-byte aligned; @len: all bytes are
 * right.
 */
size_t pattern_check(uint64_t seed, const void *buf, size_t len);

/* Returns the right byte at @offset. */
uint8_t pattern_byte(uint64_t seed, size_t offset);

#endif
