// SPDX-License-Identifier: MIT
/*
 * Verifiable bytes, see pattern.h. The first word of a page is mixed from the seed and the
 * page's number; each further word is the previous word plus an odd constant. Filling runs
 * at the speed of memory, and no word appears twice in a page.
 */
#include <endian.h>
#include <string.h>

#include "bench/pattern.h"

#define PAGE		4096u
#define PAGE_WORDS	(PAGE / sizeof(uint64_t))
#define STEP		0x9e3779b97f4a7c15ull

static uint64_t mix(uint64_t x)
{
	x += STEP;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint64_t pattern_seed(const void *key, size_t key_len)
{
	const unsigned char *p = key;
	uint64_t hash = 0xcbf29ce484222325ull;	/* FNV-1a */

	while (key_len--)
		hash = (hash ^ *p++) * 0x100000001b3ull;
	return mix(hash);
}

static uint64_t word_at(uint64_t seed, size_t index)
{
	return mix(seed ^ (index / PAGE_WORDS)) + (index % PAGE_WORDS) * STEP;
}

uint8_t pattern_byte(uint64_t seed, size_t offset)
{
	return (uint8_t)(word_at(seed, offset / 8) >> (offset % 8 * 8));
}

void pattern_fill(uint64_t seed, void *buf, size_t len)
{
	size_t words = len / 8;
	uint64_t *word = buf;

	for (size_t i = 0; i < words; i += PAGE_WORDS) {
		size_t n = words - i < PAGE_WORDS ? words - i : PAGE_WORDS;
		uint64_t first = word_at(seed, i);

		for (size_t j = 0; j < n; j++)
			word[i + j] = htole64(first + j * STEP);
	}
	for (size_t i = words * 8; i < len; i++)
		((uint8_t *)buf)[i] = pattern_byte(seed, i);
}

static size_t first_wrong(uint64_t seed, const uint8_t *byte, size_t from,
			  size_t len)
{
	while (from < len && byte[from] == pattern_byte(seed, from))
		from++;
	return from;
}

size_t pattern_check(uint64_t seed, const void *buf, size_t len)
{
	size_t words = len / 8;
	const uint64_t *word = buf;

	for (size_t i = 0; i < words; i += PAGE_WORDS) {
		size_t n = words - i < PAGE_WORDS ? words - i : PAGE_WORDS;
		uint64_t first = word_at(seed, i);
		uint64_t differ = 0;

		for (size_t j = 0; j < n; j++)
			differ |= word[i + j] ^ htole64(first + j * STEP);
		if (differ)
			return first_wrong(seed, buf, i * 8, len);
	}
	return first_wrong(seed, buf, words * 8, len);
}
