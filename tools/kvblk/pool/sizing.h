/* SPDX-License-Identifier: MIT */
/*
 * What a pool of given devices and blocks will be: for kvblk pool plan and create.
 *
 * The rule: no I/O, and no formula of its own where the module has one: segments,
 * records and index are computed by the module's own source files.
 */
#ifndef KVBLK_PLAN_H
#define KVBLK_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAN_MEMBERS_MAX	64

/* Share of the slots that an index holds with hardly any eviction, in percent. */
#define PLAN_INDEX_LOAD		85

/* Years that drives are rated for, with so many writes of their capacity a day. */
#define PLAN_RATED_YEARS	5

/**
 * struct plan_model - a model whose blocks are stored
 * @name: as given to --model
 * @layers: layers with a KV cache
 * @kv_heads: heads of keys and values, 0: one latent vector, which every rank has
 * @dim: elements of a head, or of the latent vector
 */
struct plan_model {
	const char *name;
	unsigned int layers;
	unsigned int kv_heads;
	unsigned int dim;
};

/* The models; an empty one ends it. */
extern const struct plan_model plan_models[];

/* NULL: there is no such model. */
const struct plan_model *plan_find_model(const char *name);

/* Bytes that one of @ranks tensor-parallel ranks keeps for @tokens, @element bytes each. */
uint64_t plan_block_bytes(const struct plan_model *model, unsigned int tokens,
			  unsigned int element, unsigned int ranks);

/**
 * struct plan_ask - what is given
 * @member_bytes: sizes of the devices
 * @nr_members: entries of @member_bytes
 * @segment_size: bytes, 0: the module's choice
 * @block_size: bytes of a block
 * @index_slots: entries of the index, 0: as many as the blocks need
 * @dwpd: writes of its capacity a day that a device is rated for
 * @write_rate: bytes that are put in a second, 0: not known
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
 * struct plan - what comes of it
 * @capacity: bytes of the devices
 * @record_bytes: of flash that a block takes
 * @segment_min: bytes of the smallest segments
 * @segment_max: bytes of the largest ones
 * @nr_segments: of all members
 * @flash_blocks: that the segments hold
 * @default_slots: entries that the module's default gives the index
 * @default_blocks: of @flash_blocks, those that such an index can hold
 * @index_slots: entries that are needed, or were given
 * @blocks: of @flash_blocks, those that this index can hold
 * @index_bytes: memory that it takes
 * @tag_bytes: memory that it takes beside, once a block has a caller tag
 * @rated_rate: bytes a second that the devices are rated for
 * @fill_s: seconds until they are written once at the rate of the puts, or 0
 * @life_years: years until they have written what they are rated for, or 0
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

/* False, and why in @why: no such pool is possible. */
bool plan_make(const struct plan_ask *ask, struct plan *plan, char *why, size_t len);

/* The smallest blocks that fill @capacity bytes before they fill an index of @slots. */
uint64_t plan_smallest_block(uint64_t capacity, uint64_t slots);

#endif
