// SPDX-License-Identifier: GPL-2.0
/*
 * Run fuzz_record.c without libFuzzer, on inputs that a seed determines.
 *
 * usage: fuzz_record_test [SEED [ITERATIONS]]
 */
#include "fuzz_record.c"

#include "kvblk_test.h"

#define INPUT_MAX	(2 + 2 * KVBLK_UNIT)

static u64 seed = 1;
static unsigned long iterations = 40000;

/* xorshift64*: reproducible, which is all that matters */
static u32 random_below(u32 limit)
{
	static u64 x;

	if (!x)
		x = seed * 0x9e3779b97f4a7c15 | 1;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	return (x * 0x2545f4914f6cdd1d >> 32) % limit;
}

/* Return a structure; only an input in 64 is a superblock, because its check is slow. */
static enum target random_target(void)
{
	return random_below(64) ? random_below(SUPER) : SUPER;
}

/* Return an offset, most often near the front of a structure, where the fields are. */
static u32 random_offset(void)
{
	static const u32 spans[] = { 64, 128, 600, 1100, 4200, 8192, 65536 };

	return random_below(spans[random_below(7)]);
}

static u8 random_byte(void)
{
	switch (random_below(3)) {
	case 0:
		return 1 << random_below(8);
	case 1:
		return 0xff;
	default:
		return random_below(256);
	}
}

static size_t patches(u8 *input)
{
	u32 nr = random_below(4);

	for (u32 i = 0; i < nr; i++) {
		u32 at = random_offset();

		*input++ = at;
		*input++ = at >> 8;
		*input++ = random_byte();
		*input++ = random_below(4) ? 0 : random_below(256);
	}
	return 4 * nr;
}

/* Fill @input with garbage, or with an image that is cut off and has a flipped bit. */
static size_t raw_bytes(u8 *input, enum target target)
{
	size_t size = image_sizes[target];

	if (size > 2 * KVBLK_UNIT)
		size = 2 * KVBLK_UNIT;
	if (random_below(4)) {
		memcpy(input, images[target], size);
		if (random_below(2))
			size = random_below(size) & ~(random_below(2) * 511);
		if (size)
			input[random_below(size)] ^= 1 << random_below(8);
		return size;
	}
	size = random_below(size);
	for (size_t i = 0; i < size; i++)
		input[i] = random_below(256);
	return size;
}

TEST(decoders_keep_their_promise)
{
	static u8 input[INPUT_MAX];

	printf("seed %llu, %lu iterations\n", (unsigned long long)seed,
	       iterations);
	images_make();
	for (unsigned long i = 0; i < iterations; i++) {
		enum target target = random_target();
		enum damage damage = random_below(DAMAGES);
		size_t size;

		input[0] = target;
		input[1] = damage;
		size = 2 + (damage == RAW ? raw_bytes(input + 2, target) :
					    patches(input + 2));
		LLVMFuzzerTestOneInput(input, size);
	}
	for (int i = 0; i < TARGETS; i++)
		free(images[i]);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		iterations = strtoul(argv[2], NULL, 0);
	return RUN_TESTS("fuzz_record");
}
