// SPDX-License-Identifier: MIT
/* kvblk pool plan, compared with the module's code, which is linked, and known numbers. */
#include <linux/atomic.h>
#include <linux/kvblk.h>

#include "format/geometry.h"
#include "index/index.h"
#include "kvblk_test.h"
#include "log/cursor.h"

#include "pool/sizing.h"

#define KIB	1024ull
#define MIB	(1024 * KIB)
#define GIB	(1024 * MIB)
#define TIB	(1024 * GIB)

static struct plan made(struct plan_ask ask)
{
	struct plan plan;
	char why[256] = "";

	if (!ask.nr_members)
		ask.nr_members = 1;
	if (!plan_make(&ask, &plan, why, sizeof(why)))
		fail_msg("%s", why);
	return plan;
}

static void refused(struct plan_ask ask, const char *part)
{
	struct plan plan;
	char why[256] = "";

	assert_false(plan_make(&ask, &plan, why, sizeof(why)));
	if (!strstr(why, part))
		fail_msg("\"%s\" does not say \"%s\"", why, part);
}

/* Returns the number of blocks that the module's code fits into a segment. */
static uint64_t filled(uint64_t segment, uint32_t block)
{
	atomic64_t cursor = ATOMIC64_INIT(0);
	u32 unit, index;
	uint64_t n = 0;

	while (kvblk_cursor_take(&cursor, kvblk_record_units(false, block, 1),
				 (u32)(segment >> KVBLK_UNIT_SHIFT), &unit, &index))
		n++;
	return n;
}

TEST(segments)
{
	static const uint32_t blocks[] = {
		1, 4096, 4097, 65536, 640 * KIB, 1 * MIB, 5 * MIB + 3, 32 * MIB, 60 * MIB,
	};

	for (size_t i = 0; i < sizeof(blocks) / sizeof(*blocks); i++) {
		for (uint64_t seg = 64 * MIB; seg <= GIB; seg *= 4) {
			struct plan plan = made((struct plan_ask){
				.member_bytes = { 100 * GIB }, .segment_size = seg,
				.block_size = blocks[i] });

			assert_int_equal(plan.nr_segments, kvblk_nr_segments(100 * GIB, seg));
			assert_int_equal(plan.flash_blocks,
					 plan.nr_segments * filled(seg, blocks[i]));
			assert_int_equal(plan.record_bytes % 4096, 0);
			assert_true(plan.record_bytes >= blocks[i] + 4096ull);
		}
	}
}

TEST(members)
{
	struct plan plan = made((struct plan_ask){
		.member_bytes = { 512 * MIB, 100 * GIB }, .nr_members = 2, .block_size = MIB });

	assert_int_equal(plan.capacity, 100 * GIB + 512 * MIB);
	assert_int_equal(plan.segment_min, 8 * MIB);
	assert_int_equal(plan.segment_max, 128 * MIB);
	assert_int_equal(plan.nr_segments, 63 + 799);
}

/* Small blocks: the default index covers a quarter of the flash. */
TEST(small_blocks)
{
	struct plan plan = made((struct plan_ask){
		.member_bytes = { TIB }, .block_size = 64 * KIB });

	assert_int_equal(plan.default_slots, 4 * MIB);
	assert_in_range(plan.default_blocks * 100 / plan.flash_blocks, 20, 25);
	assert_int_equal(plan.blocks, plan.flash_blocks);
	assert_in_range(plan.index_slots, plan.flash_blocks * 117 / 100, plan.flash_blocks * 119 / 100);

	plan = made((struct plan_ask){ .member_bytes = { TIB }, .block_size = 64 * KIB,
				       .index_slots = MIB });
	assert_int_equal(plan.index_slots, MIB);
	assert_int_equal(plan.blocks, MIB * 85 / 100);
	/* the default is enough for large blocks */
	plan = made((struct plan_ask){ .member_bytes = { TIB }, .block_size = 32 * MIB });
	assert_int_equal(plan.index_slots, plan.default_slots);
	assert_int_equal(plan.default_blocks, plan.flash_blocks);
}

TEST(smallest_block)
{
	for (uint64_t slots = 4096; slots <= 1 << 24; slots *= 8) {
		uint64_t block = plan_smallest_block(TIB, slots);
		struct plan_ask ask = { .member_bytes = { TIB }, .index_slots = slots };
		struct plan plan;

		if (block > KVBLK_VALUE_MAX)
			continue;
		ask.block_size = (uint32_t)block;
		plan = made(ask);
		assert_int_equal(plan.blocks, plan.flash_blocks);
		ask.block_size = (uint32_t)(block / 10 * 9);
		plan = made(ask);
		assert_true(plan.blocks < plan.flash_blocks);
	}
	assert_true(plan_smallest_block(GIB, 1 << 22) <= 4096);
	assert_int_equal(plan_smallest_block(GIB, 0), UINT64_MAX);
}

TEST(memory)
{
	static u16 gens[16];
	struct kvblk_index idx;
	struct plan plan;

	for (uint64_t slots = 64; slots < 1 << 21; slots = slots * 7 + 13) {
		plan = made((struct plan_ask){ .member_bytes = { GIB }, .block_size = 4096,
					       .index_slots = slots });
		assert_int_equal(kvblk_index_init(&idx, slots, gens, 16), 0);
		assert_int_equal(plan.index_bytes, kvblk_index_bytes(&idx));
		assert_int_equal(kvblk_index_keep_tags(&idx), 0);
		assert_int_equal(plan.index_bytes + plan.tag_bytes, kvblk_index_bytes(&idx));
		kvblk_index_destroy(&idx);
	}
}

TEST(wear)
{
	/* 86400 MiB, once a day, are 1 MiB a second */
	struct plan plan = made((struct plan_ask){
		.member_bytes = { 86400 * MIB }, .block_size = 64 * KIB - 4096, .dwpd = 1,
		.write_rate = 0.5 * MIB * 15 / 16 });

	assert_true(plan.rated_rate > 0.999 * MIB && plan.rated_rate < 1.001 * MIB);
	/* including headers, half of the drive's rated writes */
	assert_true(plan.life_years > 9.99 && plan.life_years < 10.01);
	assert_true(plan.fill_s > 0.98 * 2 * 86400 && plan.fill_s < 2 * 86400);
	plan = made((struct plan_ask){ .member_bytes = { 86400 * MIB }, .block_size = 64 * KIB,
				       .dwpd = 3 });
	assert_true(plan.rated_rate > 2.999 * MIB && plan.rated_rate < 3.001 * MIB);
	assert_true(plan.life_years == 0 && plan.fill_s == 0);
}

TEST(models)
{
	/* 70B on 8 ranks, 16 tokens; 8B, 256 tokens */
	assert_int_equal(plan_block_bytes(plan_find_model("llama-3.1-70b"), 16, 2, 8), 640 * KIB);
	assert_int_equal(plan_block_bytes(plan_find_model("Llama-3.1-8B"), 256, 2, 1), 32 * MIB);
	assert_int_equal(plan_block_bytes(plan_find_model("llama-3.1-8b"), 256, 1, 1), 16 * MIB);
	/* 4 heads on 8 ranks: each has one */
	assert_int_equal(plan_block_bytes(plan_find_model("qwen2.5-7b"), 1, 2, 8), 28 * 2 * 128 * 2);
	/* each rank stores the whole latent vector */
	assert_int_equal(plan_block_bytes(plan_find_model("deepseek-v3"), 64, 2, 8), 61 * 576 * 2 * 64);
	assert_null(plan_find_model("gpt"));
	assert_null(plan_find_model(""));
}

TEST(refusals)
{
	refused((struct plan_ask){ .member_bytes = { GIB }, .nr_members = 1 }, "64 MiB");
	refused((struct plan_ask){ .member_bytes = { GIB }, .nr_members = 1,
				   .block_size = 65 * MIB }, "64 MiB");
	refused((struct plan_ask){ .block_size = MIB }, "1 to 64 members");
	refused((struct plan_ask){ .member_bytes = { 40 * MIB }, .nr_members = 1,
				   .block_size = MIB }, "40 MiB is too small: 8 segments of 8 MiB take 65 MiB");
	refused((struct plan_ask){ .member_bytes = { GIB }, .nr_members = 1, .block_size = 8 * MIB,
				   .segment_size = 8 * MIB }, "does not fit into a segment of 8 MiB");
	refused((struct plan_ask){ .member_bytes = { 100 * TIB }, .nr_members = 1, .block_size = MIB,
				   .segment_size = 8 * MIB }, "at most 1048576 segments");
}

TEST_MAIN("plan")
