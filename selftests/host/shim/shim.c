// SPDX-License-Identifier: GPL-2.0
/* Implementation of the shim headers: memory, locks, SipHash-2-4, CRC-32C. */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <linux/bitops.h>
#include <linux/bug.h>
#include <linux/crc32c.h>
#include <linux/siphash.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/unaligned.h>
#include <linux/vmalloc.h>

#include "shim.h"

int shim_fail_alloc = -1;

void *shim_alloc(size_t bytes, gfp_t gfp)
{
	void *p;

	if (shim_fail_alloc >= 0 && shim_fail_alloc-- == 0)
		return NULL;
	/* aligned like the kernel's: slab for small sizes, vmalloc() for large ones */
	if (posix_memalign(&p, bytes < 4096 ? 64 : 4096, bytes))
		return NULL;
	if (gfp & __GFP_ZERO)
		memset(p, 0, bytes);
	return p;
}

/* Allocate with huge pages if the system has any. */
void *shim_alloc_huge(size_t bytes, gfp_t gfp)
{
	const size_t huge = 2 << 20;
	void *p;

	if (bytes < huge)
		return shim_alloc(bytes, gfp);
	if (shim_fail_alloc >= 0 && shim_fail_alloc-- == 0)
		return NULL;
	if (posix_memalign(&p, huge, bytes))
		return NULL;
	madvise(p, bytes, MADV_HUGEPAGE);
	if (gfp & __GFP_ZERO)
		memset(p, 0, bytes);
	return p;
}

void shim_free(const void *p)
{
	free((void *)p);
}

bool shim_jitter;

/* Yield one time in eight: other threads often intervene, but not always. */
void shim_yield(void)
{
	static __thread unsigned int random = 1;

	random = random * 1103515245 + 12345;
	if (random >> 29 == 0)
		sched_yield();
}

/* Lock of the same class as one already held: they must be taken in address order. */
void spin_lock_nested(spinlock_t *lock, unsigned int subclass)
{
	static __thread spinlock_t *before;

	WARN_ON(subclass >= MAX_LOCKDEP_SUBCLASSES);
	WARN_ON(subclass && lock <= before);
	spin_lock(lock);
	before = lock;
}

struct sip {
	u64 v[4];
};

static inline void sip_rounds(struct sip *s, int n)
{
	u64 *v = s->v;

	while (n--) {
		v[0] += v[1];
		v[1] = rol64(v[1], 13) ^ v[0];
		v[0] = rol64(v[0], 32);
		v[2] += v[3];
		v[3] = rol64(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = rol64(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = rol64(v[1], 17) ^ v[2];
		v[2] = rol64(v[2], 32);
	}
}

static inline void sip_word(struct sip *s, u64 word)
{
	s->v[3] ^= word;
	sip_rounds(s, 2);
	s->v[0] ^= word;
}

u64 siphash(const void *data, size_t len, const siphash_key_t *key)
{
	struct sip s = { {
		0x736f6d6570736575ULL ^ key->key[0],
		0x646f72616e646f6dULL ^ key->key[1],
		0x6c7967656e657261ULL ^ key->key[0],
		0x7465646279746573ULL ^ key->key[1],
	} };
	u64 last = (u64)len << 56;
	const u8 *p = data;

	for (; len >= 8; p += 8, len -= 8)
		sip_word(&s, get_unaligned_le64(p));
	while (len--)
		last |= (u64)p[len] << (8 * len);
	sip_word(&s, last);
	s.v[2] ^= 0xff;
	sip_rounds(&s, 4);
	return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}

static u64 sip_words(const u64 *words, int n, const siphash_key_t *key)
{
	__le64 le[4];

	for (int i = 0; i < n; i++)
		le[i] = cpu_to_le64(words[i]);
	return siphash(le, n * sizeof(le[0]), key);
}

u64 siphash_1u64(u64 a, const siphash_key_t *key)
{
	return sip_words((const u64[]){ a }, 1, key);
}

u64 siphash_2u64(u64 a, u64 b, const siphash_key_t *key)
{
	return sip_words((const u64[]){ a, b }, 2, key);
}

u64 siphash_3u64(u64 a, u64 b, u64 c, const siphash_key_t *key)
{
	return sip_words((const u64[]){ a, b, c }, 3, key);
}

u64 siphash_4u64(u64 a, u64 b, u64 c, u64 d, const siphash_key_t *key)
{
	return sip_words((const u64[]){ a, b, c, d }, 4, key);
}

/* Eight tables for speed: a test checksums megabytes under a sanitizer. */
static u32 crc_table[8][256];

__attribute__((constructor))
static void crc_table_init(void)
{
	for (u32 i = 0; i < 256; i++) {
		u32 crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
		crc_table[0][i] = crc;
	}
	for (u32 i = 0; i < 256; i++)
		for (int t = 1; t < 8; t++)
			crc_table[t][i] = crc_table[t - 1][i] >> 8 ^
				crc_table[0][crc_table[t - 1][i] & 0xff];
}

u32 crc32c(u32 crc, const void *data, size_t len)
{
	const u8 *p = data;

	for (; len >= 8; p += 8, len -= 8) {
		u64 word = get_unaligned_le64(p) ^ crc;

		crc = 0;
		for (int t = 0; t < 8; t++)
			crc ^= crc_table[7 - t][word >> (8 * t) & 0xff];
	}
	while (len--)
		crc = crc >> 8 ^ crc_table[0][(crc ^ *p++) & 0xff];
	return crc;
}
