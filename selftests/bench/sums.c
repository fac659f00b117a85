// SPDX-License-Identifier: GPL-2.0
/*
 * See sums.h. The code is crc/crc32.h, the same file that the benchmarks' kernel is built with,
 * so that both sides of a comparison compute checksums in the same way. The kernel definitions
 * that it uses precede the file.
 */
#include <linux/types.h>
#include <stdio.h>
#include <stdlib.h>

#include "sums.h"

#define __init
#define __initdata
#define __ro_after_init
#define CRC32C_OPTIMIZATION	1
#define panic(...)	(fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
/* unused here */
#define crc32_optimizations_arch __attribute__((__unused__)) crc32_optimizations_arch

/* Bit by bit, as the reference; no inversion at either end. */
static u32 crc32c_base(u32 crc, const u8 *p, size_t len)
{
	for (; len; p++, len--) {
		crc ^= *p;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return crc;
}

#include "crc/crc32.h"

void sums_init(void)
{
	static const u8 check[] = "123456789";

	crc32_mod_init_arch();
	if (~crc32c_arch(~0u, check, 9) != 0xe3069283)
		panic("crc32c: wrong for its check value");
}

static u32 sum_at(const u8 *block, size_t size, size_t at)
{
	return ~crc32c_arch(~0u, block + at, size - at < SUMS_CHUNK ? size - at : SUMS_CHUNK);
}

void sums_compute(const void *block, size_t size, uint32_t *sums)
{
	for (size_t at = 0; at < size; at += SUMS_CHUNK)
		*sums++ = sum_at(block, size, at);
}

bool sums_match(const void *block, size_t size, const uint32_t *sums)
{
	for (size_t at = 0; at < size; at += SUMS_CHUNK) {
		if (*sums++ != sum_at(block, size, at))
			return false;
	}
	return true;
}
