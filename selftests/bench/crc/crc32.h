/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What lib/crc/crc32-main.c takes for an architecture's part when the benchmarks' kernel is built, see vm/built-kernel.
 *
 * user-mode Linux computes CRC32C byte by byte from a table, some twenty times slower than any kernel that kvblk is for. Here it
 * does what an x86 kernel does on the same CPU:
 * - with VPCLMULQDQ and AVX-512, it folds 256 bytes at a time, as crc-pclmul-template.S;
 * - else it has the instruction, in three streams at once as crc32c-3way.S, for its result is there three cycles later. What the
 *   streams give is joined by a table where that has a carryless multiplication, once in 4 KiB.
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

typedef long long crc32c_vec __attribute__((vector_size(64)));
typedef crc32c_vec crc32c_unaligned_vec __attribute__((aligned(1), may_alias));
#define CRC32C_FOLD_MIN	512
static bool crc32c_folds __ro_after_init;

/* @acc, 64 bytes of a message, moved on by what @by is for, where they are added to @next; @by: see crc-pclmul-consts.h. */
#define CRC32C_FOLD(acc, by, next)									\
	(__builtin_ia32_vpclmulqdq_v8di(acc, by, 0x00) ^ __builtin_ia32_vpclmulqdq_v8di(acc, by, 0x11) ^ (next))

/* Of all but the last @len % 256 bytes; @len: CRC32C_FOLD_MIN or more. */
__attribute__((target("avx512f,vpclmulqdq"))) static u32 crc32c_fold(u32 crc, const u8 *p, size_t len)
{
	/* x^2079 and x^2015, x^543 and x^479, each times x^32 modulo the polynomial */
	const crc32c_vec by2048 = { 0xdcb17aa4, 0xb9e02b86, 0xdcb17aa4, 0xb9e02b86, 0xdcb17aa4, 0xb9e02b86, 0xdcb17aa4, 0xb9e02b86 };
	const crc32c_vec by512 = { 0x740eef02, 0x9e4addf8, 0x740eef02, 0x9e4addf8, 0x740eef02, 0x9e4addf8, 0x740eef02, 0x9e4addf8 };
	const crc32c_unaligned_vec *in = (const crc32c_unaligned_vec *)p;
	crc32c_vec a = in[0] ^ (crc32c_vec){ crc }, b = in[1], c = in[2], d = in[3];

	for (in += 4; len >= 512; len -= 256, in += 4) {
		a = CRC32C_FOLD(a, by2048, in[0]);
		b = CRC32C_FOLD(b, by2048, in[1]);
		c = CRC32C_FOLD(c, by2048, in[2]);
		d = CRC32C_FOLD(d, by2048, in[3]);
	}
	b = CRC32C_FOLD(a, by512, b);
	c = CRC32C_FOLD(b, by512, c);
	d = CRC32C_FOLD(c, by512, d);
	/* 64 bytes are left that have the CRC of all */
	for (crc = 0, len = 0; len < 8; len++)
		crc = crc32c_word(crc, (const u8 *)&d + 8 * len);
	return crc;
}

/* What crc32_mod_init_arch() of the x86 kernel asks for. */
static bool __init crc32c_can_fold(void)
{
	u32 a = 1, b, c = 0, d;

	asm("cpuid" : "+a" (a), "=b" (b), "+c" (c), "=d" (d));
	if (!(c & 1u << 27))		/* OSXSAVE */
		return false;
	asm("xgetbv" : "=a" (a), "=d" (d) : "c" (0));
	if ((a & 0xe6) != 0xe6)		/* SSE, AVX, AVX-512 */
		return false;
	a = 7;
	c = 0;
	asm("cpuid" : "+a" (a), "=b" (b), "+c" (c), "=d" (d));
	/* AVX512F, BW, VL; VPCLMULQDQ */
	return (b >> 16 & 1) && (b >> 30 & 1) && b >> 31 && (c >> 10 & 1);
}

static u32 crc32c_arch(u32 crc, const u8 *p, size_t len)
{
	u64 a;

	if (crc32c_folds && len >= CRC32C_FOLD_MIN) {
		crc = crc32c_fold(crc, p, len);
		p += len - len % 256;
		len %= 256;
	}
	a = crc;

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
	u32 i, b, len, way;

	/* the sample is zeroes yet */
	for (i = 0; i < 4; i++)
		for (b = 0; b < 256; b++)
			crc32c_later[i][b] = crc32c_base(b << 8 * i, crc32c_sample, CRC32C_STREAM);
	crc32c_later_known = true;
	for (i = 0; i < sizeof(crc32c_sample); i++)
		crc32c_sample[i] = i * i * 2654435761u >> 13;
	for (way = 0; way <= crc32c_can_fold(); way++) {
		crc32c_folds = way;
		for (len = 0, i = 0; i + len <= sizeof(crc32c_sample); len += 1 + len / 8, i = len % 16)
			if (crc32c_arch(~i, crc32c_sample + i, len) != crc32c_base(~i, crc32c_sample + i, len))
				panic("crc32c: wrong for %u bytes", len);
	}
}

#define crc32_le_arch crc32_le_base
#define crc32_be_arch crc32_be_base

static u32 crc32_optimizations_arch(void)
{
	return CRC32C_OPTIMIZATION;
}
