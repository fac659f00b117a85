/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What lib/crc/crc32-main.c takes for an architecture's part when the benchmarks' kernel is built, see vm/built-kernel.
 *
 * user-mode Linux computes CRC32C byte by byte from a table, some twenty times slower than any kernel that kvblk is for. Here it
 * has the instruction, in three streams at once as crc32c-3way.S of the x86 kernel, for its result is there three cycles later. What
 * the streams give is joined by a table where that has a carryless multiplication, once in 4 KiB. Kernels with AVX-512 are faster
 * still.
 *
 * Rule: it is compared with the bytewise table at boot, before anything relies on it.
 */
#include <linux/unaligned.h>

/* three of them are what 24 bytes a turn take of a page */
#define CRC32C_STREAM	1360

/* [i][b]: what byte b at place i of a CRC is CRC32C_STREAM zeroes later; the CRC is the XOR of its bytes' */
static u32 crc32c_later[4][256] __ro_after_init;
static bool crc32c_later_known __ro_after_init;

static inline u64 crc32c_word(u64 crc, const u8 *p)
{
	asm("crc32q %1, %0" : "+r" (crc) : "r" (get_unaligned((const u64 *)p)));
	return crc;
}

static inline u32 crc32c_join(u32 before, u32 after)
{
	return crc32c_later[0][before & 255] ^ crc32c_later[1][before >> 8 & 255] ^ crc32c_later[2][before >> 16 & 255] ^
	       crc32c_later[3][before >> 24] ^ after;
}

static u32 crc32c_arch(u32 crc, const u8 *p, size_t len)
{
	u64 a = crc;

	for (; crc32c_later_known && len >= 3 * CRC32C_STREAM; len -= 3 * CRC32C_STREAM) {
		const u8 *end = p + CRC32C_STREAM;
		u64 b = 0, c = 0;

		for (; p < end; p += 8) {
			a = crc32c_word(a, p);
			b = crc32c_word(b, p + CRC32C_STREAM);
			c = crc32c_word(c, p + 2 * CRC32C_STREAM);
		}
		a = crc32c_join(crc32c_join(a, b), c);
		p += 2 * CRC32C_STREAM;
	}
	for (; len >= 8; p += 8, len -= 8)
		a = crc32c_word(a, p);
	crc = a;
	for (; len; p++, len--)
		asm("crc32b %1, %0" : "+r" (crc) : "rm" (*p));
	return crc;
}

static u8 crc32c_sample[7 * CRC32C_STREAM] __initdata;

#define crc32_mod_init_arch crc32_mod_init_arch
static void __init crc32_mod_init_arch(void)
{
	u32 i, b, len;

	/* the sample is zeroes yet */
	for (i = 0; i < 4; i++)
		for (b = 0; b < 256; b++)
			crc32c_later[i][b] = crc32c_base(b << 8 * i, crc32c_sample, CRC32C_STREAM);
	crc32c_later_known = true;
	for (i = 0; i < sizeof(crc32c_sample); i++)
		crc32c_sample[i] = i * i * 2654435761u >> 13;
	for (len = 0, i = 0; i + len <= sizeof(crc32c_sample); len += 1 + len / 8, i = len % 16)
		if (crc32c_arch(~i, crc32c_sample + i, len) != crc32c_base(~i, crc32c_sample + i, len))
			panic("crc32c: wrong for %u bytes", len);
}

#define crc32_le_arch crc32_le_base
#define crc32_be_arch crc32_be_base

static u32 crc32_optimizations_arch(void)
{
	return CRC32C_OPTIMIZATION;
}
