// SPDX-License-Identifier: MIT
/*
 * The GPU's code of checksums.c. "make -C tools ptx" compiles it to crc32c.ptx.inc, which
 * the library contains; tests compile it as C.
 *
 * A block of CRC_THREADS threads sums a part of a chunk as rows of one word for each thread, so
 * that the loads of a warp coalesce. A thread multiplies its register by x^(32 * CRC_THREADS)
 * for each row, by a table for each byte of the register, and at the end by what its column
 * lacks. The first row is filled up with zeroes in front, which change no remainder.
 */
#include "crc32c.h"

#define ROW		(4 * (int)CRC_THREADS)

/* Return the word at @at, which may begin before the part: zeroes. */
CRC_CALL unsigned int word_of_bytes(const unsigned char *bytes, int at)
{
	unsigned int word = 0;

	for (int i = 0; i < 4; i++)
		word |= at + i < 0 ? 0 : (unsigned int)bytes[at + i] << 8 * i;
	return word;
}

/* Return @crc times x^(32 * CRC_THREADS). */
CRC_CALL unsigned int next_row(unsigned int (*table)[256], unsigned int crc)
{
	return table[0][crc & 255] ^ table[1][crc >> 8 & 255] ^ table[2][crc >> 16 & 255] ^
	       table[3][crc >> 24];
}

/* Sum the words of column @column. */
CRC_CALL unsigned int sum_column(const struct crc_part *part, unsigned int (*table)[256],
				 unsigned int column)
{
	const unsigned char *bytes = (const unsigned char *)part->ptr;
	int len = (int)part->len, at = (int)column * 4 - (ROW - 1 - (len + ROW - 1) % ROW);
	unsigned int crc = word_of_bytes(bytes, at);

	at += ROW;
	if ((part->ptr + part->len) % 4) {
		for (; at < len; at += ROW)
			crc = next_row(table, crc) ^ word_of_bytes(bytes, at);
		return crc;
	}
#ifdef __clang__
#pragma unroll 8
#endif
	for (; at < len; at += ROW)
		crc = next_row(table, crc) ^ *(const unsigned int *)(bytes + at);
	return crc;
}

/*
 * Add the remainders of @nr parts to @sums. @columns: factors of the columns, the first of which
 * is that of a row: x^(32 * (CRC_THREADS - column)).
 */
CRC_KERNEL void kvblk_crc32c(const struct crc_part *parts, unsigned int nr,
			     const unsigned int *columns, unsigned int *sums)
{
	CRC_SHARED unsigned int table[4][256];
	unsigned int thread = CRC_THREAD, crc;

	for (unsigned int i = 0; i < 4; i++)
		table[i][thread] = crc_times(thread << 8 * i, columns[0]);
	CRC_BARRIER();
	for (unsigned int i = CRC_BLOCK; i < nr; i += CRC_BLOCKS) {
		crc = crc_times(sum_column(&parts[i], table, thread), columns[thread]);
		if (parts[i].power != CRC_ONE)
			crc = crc_times(crc, parts[i].power);
		CRC_ADD(&sums[parts[i].sum], crc);
	}
}
