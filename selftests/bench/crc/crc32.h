/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What lib/crc/crc32-main.c takes for an architecture's part when the benchmarks' kernel is built, see uml-kernel.
 *
 * user-mode Linux computes CRC32C byte by byte from a table, some twenty times slower than any kernel that kvblk is for. Here it
 * has the instruction, one stream of it, which is still slower than the x86 kernel's three.
 */
#include <linux/unaligned.h>

static u32 crc32c_arch(u32 crc, const u8 *p, size_t len)
{
	u64 wide = crc;

	for (; len >= 8; p += 8, len -= 8)
		asm("crc32q %1, %0" : "+r" (wide) : "r" (get_unaligned((const u64 *)p)));
	crc = wide;
	for (; len; p++, len--)
		asm("crc32b %1, %0" : "+r" (crc) : "rm" (*p));
	return crc;
}

#define crc32_le_arch crc32_le_base
#define crc32_be_arch crc32_be_base

static u32 crc32_optimizations_arch(void)
{
	return CRC32C_OPTIMIZATION;
}
