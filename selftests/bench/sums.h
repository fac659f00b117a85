/* SPDX-License-Identifier: MIT */
/* The peer's checksums: CRC32C of each 64 KiB of a block; the last chunk may be shorter. */
#ifndef SUMS_H
#define SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUMS_CHUNK	(64u << 10)

/* Call this first; exits if the sums are wrong. */
void sums_init(void);
void sums_compute(const void *block, size_t size, uint32_t *sums);
bool sums_match(const void *block, size_t size, const uint32_t *sums);

#endif
