/* SPDX-License-Identifier: MIT */
/*
 * The bytes that replay --verify stores: each byte follows from the block's
 * key and its place in the block, so that another block's bytes, old bytes,
 * shifted ones and zeroes are all told apart from the right ones.
 */
#ifndef KVBLK_PATTERN_H
#define KVBLK_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* What the bytes of the block named @key follow from. */
uint64_t pattern_seed(const void *key, size_t key_len);

/* Fills @buf, 8-byte aligned. */
void pattern_fill(uint64_t seed, void *buf, size_t len);

/* Offset of the first wrong byte of @buf (8-byte aligned), @len if none. */
size_t pattern_check(uint64_t seed, const void *buf, size_t len);

/* The right byte at @offset. */
uint8_t pattern_byte(uint64_t seed, size_t offset);

#endif
