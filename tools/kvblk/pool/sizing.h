/* SPDX-License-Identifier: MIT */
/*
 * Properties of a pool of given devices and blocks, for kvblk pool plan and create.
 *
 * The rule: no I/O. Segments, records and index are computed by the module's own source
 * files.
 */
#ifndef KVBLK_PLAN_H
#define KVBLK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_MEMBERS_MAX	64

/* share of its slots that an index holds with hardly any eviction, percent */
#define PLAN_INDEX_LOAD		85

/* lifetime that drives are rated for at their rated writes a day, years */
#define PLAN_RATED_YEARS	5

/**
 * struct plan_model - a model whose blocks are stored
 * @name: value of --model
 * @layers: layers with a KV cache
 * @kv_heads: heads of keys and values; 0: one latent vector that every rank holds
 * @dim: elements of a head, or of the latent vector
 */
struct plan_model {
	const char *name;
	unsigned int layers;
	unsigned int kv_heads;
	unsigned int dim;
};

/* table of models; an empty entry ends it */
extern const struct plan_model plan_models[];

/* Returns the model called @name, or NULL. */
const struct plan_model *plan_find_model(const char *name);

/*
 * Returns the bytes that one of @ranks tensor-parallel ranks keeps for @tokens, with
 * @element bytes an element.
 */
uint64_t plan_block_bytes(const struct plan_model *model, unsigned int tokens,
			  unsigned int element, unsigned int ranks);

/**
 * struct plan_ask - given properties of a pool
 * @member_bytes: sizes of the devices
 * @nr_members: entries of @member_bytes
 * @segment_size: bytes of a segment; 0: the module's choice
 * @block_size: bytes of a block
 * @index_slots: entries of the index; 0: as many as the blocks need
 * @dwpd: rated drive writes a day
 * @write_rate: bytes put a second; 0: unknown
 */
struct plan_ask {
	uint64_t member_bytes[PLAN_MEMBERS_MAX];
	size_t nr_members;
	uint64_t segment_size;
	uint32_t block_size;
	uint64_t index_slots;
	double dwpd;
	double write_rate;
};

/**
 * struct plan - computed properties of a pool
 * @capacity: bytes of the devices
 * @record_bytes: bytes of flash that a block takes
 * @segment_min: bytes of the smallest segments
 * @segment_max: bytes of the largest segments
 * @nr_segments: segments of all members
 * @flash_blocks: blocks that the segments hold
 * @default_slots: entries of the module's default index
 * @default_blocks: blocks of @flash_blocks that the default index can hold
 * @index_slots: entries that are needed, or were given
 * @blocks: blocks of @flash_blocks that an index of @index_slots can hold
 * @index_bytes: memory of the index
 * @tag_bytes: additional memory as soon as a block has a caller tag
 * @rated_rate: bytes a second that the devices are rated for
 * @fill_s: seconds until all flash is written once at the rate of the puts, or 0
 * @life_years: years until the devices have written what they are rated for, or 0
 */
struct plan {
	uint64_t capacity;
	uint64_t record_bytes;
	uint64_t segment_min;
	uint64_t segment_max;
	uint64_t nr_segments;
	uint64_t flash_blocks;
	uint64_t default_slots;
	uint64_t default_blocks;
	uint64_t index_slots;
	uint64_t blocks;
	uint64_t index_bytes;
	uint64_t tag_bytes;
	double rated_rate;
	double fill_s;
	double life_years;
};

/* Compute @plan. Returns false, and the reason in @why, if such a pool is impossible. */
bool plan_make(const struct plan_ask *ask, struct plan *plan, char *why, size_t len);

/* Returns the smallest block size that fills @capacity bytes before an index of @slots. */
uint64_t plan_smallest_block(uint64_t capacity, uint64_t slots);

#endif
