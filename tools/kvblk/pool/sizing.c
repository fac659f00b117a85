// SPDX-License-Identifier: MIT
/* Arithmetic of a future pool, with the module's own formulas. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include <linux/atomic.h>
#include <linux/kvblk.h>

#include "format/geometry.h"
#include "index/index.h"
#include "log/cursor.h"

#include "pool/sizing.h"

#define SECONDS_A_DAY	86400.0

/*
 * Source: the config.json that each model is published with: num_hidden_layers,
 * num_key_value_heads and head_dim (or hidden_size / num_attention_heads); for models with
 * latent attention kv_lora_rank + qk_rope_head_dim.
 */
const struct plan_model plan_models[] = {
	{ "llama-3.2-3b", 28, 8, 128 },		/* meta-llama/Llama-3.2-3B */
	{ "llama-3.1-8b", 32, 8, 128 },		/* meta-llama/Llama-3.1-8B */
	{ "llama-3.1-70b", 80, 8, 128 },	/* meta-llama/Llama-3.1-70B; 3.3 is the same */
	{ "llama-3.1-405b", 126, 8, 128 },	/* meta-llama/Llama-3.1-405B */
	{ "mistral-7b", 32, 8, 128 },		/* mistralai/Mistral-7B-v0.1 */
	{ "mixtral-8x7b", 32, 8, 128 },		/* mistralai/Mixtral-8x7B-v0.1 */
	{ "qwen2.5-7b", 28, 4, 128 },		/* Qwen/Qwen2.5-7B: 3584 / 28 */
	{ "qwen3-30b-a3b", 48, 4, 128 },	/* Qwen/Qwen3-30B-A3B */
	{ "qwen3-32b", 64, 8, 128 },		/* Qwen/Qwen3-32B */
	{ "qwen3-235b-a22b", 94, 4, 128 },	/* Qwen/Qwen3-235B-A22B */
	{ "deepseek-v3", 61, 0, 512 + 64 },	/* deepseek-ai/DeepSeek-V3; R1 is the same */
	{ 0 },
};

const struct plan_model *plan_find_model(const char *name)
{
	const struct plan_model *model = plan_models;

	while (model->name && strcasecmp(model->name, name) != 0)
		model++;
	return model->name ? model : NULL;
}

uint64_t plan_block_bytes(const struct plan_model *model, unsigned int tokens,
			  unsigned int element, unsigned int ranks)
{
	uint64_t elements = model->dim;

	/* each rank holds at least one head */
	if (model->kv_heads)
		elements *= 2ull * DIV_ROUND_UP(model->kv_heads, ranks);
	return elements * model->layers * element * tokens;
}

/*
 * Returns how many blocks of @units fit into a segment of @segment bytes next to its
 * summary.
 */
static uint64_t segment_blocks(uint64_t segment, u32 units)
{
	uint64_t room = segment >> KVBLK_UNIT_SHIFT, n = room / units;

	while (n && n * units + kvblk_summary_pages((u32)n) > room)
		n--;
	return n;
}

/* Returns how many of @blocks an index of @slots can hold. */
static uint64_t index_blocks(uint64_t blocks, uint64_t slots)
{
	uint64_t most = slots / 100 * PLAN_INDEX_LOAD + slots % 100 * PLAN_INDEX_LOAD / 100;

	return blocks < most ? blocks : most;
}

__attribute__((format(printf, 3, 4)))
static bool refuse(char *why, size_t len, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, len, format, args);
	va_end(args);
	return false;
}

static bool add_member(uint64_t size, uint64_t segment, u32 units, struct plan *plan,
		       char *why, size_t len)
{
	uint64_t seg = segment ? segment : kvblk_default_segment(size);
	uint64_t nr = kvblk_nr_segments(size, seg);

	if (nr < KVBLK_MEMBER_SEGS_MIN)
		return refuse(why, len, "a device of %llu MiB is too small: %u segments of %llu MiB take %llu MiB",
			      (unsigned long long)size >> 20, KVBLK_MEMBER_SEGS_MIN,
			      (unsigned long long)seg >> 20,
			      (unsigned long long)(KVBLK_MEMBER_SEGS_MIN * seg +
						   kvblk_data_start(size, seg)) >> 20);
	if (plan->nr_segments + nr > KVBLK_SEGS_MAX)
		return refuse(why, len, "a pool has at most %u segments: choose a larger segment size",
			      KVBLK_SEGS_MAX);
	if (!segment_blocks(seg, units))
		return refuse(why, len, "a block does not fit into a segment of %llu MiB: choose a larger segment size",
			      (unsigned long long)seg >> 20);
	plan->capacity += size;
	plan->nr_segments += nr;
	plan->flash_blocks += nr * segment_blocks(seg, units);
	if (!plan->segment_min || seg < plan->segment_min)
		plan->segment_min = seg;
	if (seg > plan->segment_max)
		plan->segment_max = seg;
	return true;
}

static void plan_index(const struct plan_ask *ask, struct plan *plan)
{
	struct kvblk_index idx = { 0 };

	plan->default_slots = kvblk_default_slots(plan->capacity);
	plan->default_blocks = index_blocks(plan->flash_blocks, plan->default_slots);
	plan->index_slots = ask->index_slots ? ask->index_slots :
			    plan->flash_blocks / PLAN_INDEX_LOAD * 100 + 100;
	/* never below the module's default */
	if (!ask->index_slots && plan->index_slots < plan->default_slots)
		plan->index_slots = plan->default_slots;
	plan->blocks = index_blocks(plan->flash_blocks, plan->index_slots);
	kvblk_index_shape(&idx, plan->index_slots);
	plan->index_bytes = kvblk_index_bytes(&idx);
	plan->tag_bytes = kvblk_index_slots(&idx) * sizeof(*idx.tags);
}

static void plan_wear(const struct plan_ask *ask, struct plan *plan)
{
	/* each block written takes a whole record */
	double rate = ask->write_rate * (double)plan->record_bytes / ask->block_size;

	plan->rated_rate = (double)plan->capacity * ask->dwpd / SECONDS_A_DAY;
	if (!(rate > 0))
		return;
	plan->fill_s = (double)plan->flash_blocks * (double)plan->record_bytes / rate;
	plan->life_years = PLAN_RATED_YEARS * plan->rated_rate / rate;
}

bool plan_make(const struct plan_ask *ask, struct plan *plan, char *why, size_t len)
{
	u32 units;

	*plan = (struct plan){ 0 };
	if (!ask->block_size || ask->block_size > KVBLK_VALUE_MAX)
		return refuse(why, len, "a block has 1 byte to %u MiB", KVBLK_VALUE_MAX >> 20);
	if (!ask->nr_members || ask->nr_members > PLAN_MEMBERS_MAX)
		return refuse(why, len, "a pool has 1 to %u members", PLAN_MEMBERS_MAX);
	units = kvblk_record_units(false, ask->block_size, 1);
	plan->record_bytes = (uint64_t)units << KVBLK_UNIT_SHIFT;
	for (size_t i = 0; i < ask->nr_members; i++) {
		if (!add_member(ask->member_bytes[i], ask->segment_size, units, plan, why, len))
			return false;
	}
	plan_index(ask, plan);
	plan_wear(ask, plan);
	return true;
}

uint64_t plan_smallest_block(uint64_t capacity, uint64_t slots)
{
	uint64_t most = index_blocks(UINT64_MAX, slots), record;

	if (!most)
		return UINT64_MAX;
	/* subtract the record's header */
	record = DIV_ROUND_UP(DIV_ROUND_UP(capacity, most), KVBLK_UNIT);
	return record > 1 ? (record - 1) * KVBLK_UNIT : 1;
}
