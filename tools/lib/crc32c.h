/* SPDX-License-Identifier: MIT */
/*
 * CRC32C as arithmetic of polynomials over GF(2), shared by checksums.c and the GPU's code
 * (crc32c.cu).
 *
 * The CRC of a message m of n bytes is ~(R(m) ^ ones * x^8n) mod P: R(m) = m * x^32 mod P is
 * the remainder, P the polynomial, ones the initial register. R is linear: for a message of
 * two parts, R(ab) = R(a) * x^(8 * length of b) ^ R(b). So parts of a chunk can be summed by
 * different threads, in any order. See Kadatch and Jenkins, "Everything we know about CRC but
 * afraid to forget", 2010, on which the crc32.c of zlib is based, too.
 *
 * A polynomial of degree below 32 is a word whose bit 31 is the coefficient of x^0.
 */
#ifndef LIBKVBLK_CRC32C_H
#define LIBKVBLK_CRC32C_H

#define CRC_POLY	0x82f63b78u
#define CRC_ONE		0x80000000u	/* x^0 */
#define CRC_X32		CRC_POLY	/* x^32 mod P, as P without its first term */
#define CRC_THREADS	256u		/* threads of a block of the GPU */

#ifdef __CUDA__
#define CRC_CALL	static __attribute__((device))
#define CRC_KERNEL	extern "C" __attribute__((global))
#define CRC_SHARED	static __attribute__((shared))
#define CRC_THREAD	__nvvm_read_ptx_sreg_tid_x()
#define CRC_BLOCK	__nvvm_read_ptx_sreg_ctaid_x()
#define CRC_BLOCKS	__nvvm_read_ptx_sreg_nctaid_x()
#define CRC_BARRIER()	__nvvm_bar_sync(0)
#define CRC_ADD(to, x)	__nvvm_atom_xor_gen_i((int *)(to), (int)(x))
#else
#define CRC_CALL	static inline
#endif

/* A part of a chunk, contiguous in the memory of a GPU, for the GPU's code. */
struct crc_part {
	unsigned long long ptr;
	unsigned int len;
	unsigned int power;	/* x^(8 * bytes of the chunk behind the part) */
	unsigned int sum;	/* index of the chunk's checksum */
	unsigned int reserved;
};

/* Return a * b mod P. */
CRC_CALL unsigned int crc_times(unsigned int a, unsigned int b)
{
	unsigned int product = 0;

	for (int i = 0; i < 32; i++) {
		product ^= b & -(a >> 31);
		a <<= 1;
		b = b >> 1 ^ (CRC_POLY & -(b & 1));
	}
	return product;
}

#endif
