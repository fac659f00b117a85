// SPDX-License-Identifier: MIT
/* kvblk pool plan: the properties of a pool before its creation. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"
#include "pool/pool.h"
#include "pool/sizing.h"

#define TOKENS_DEFAULT	256

struct plan_args {
	struct cli_list list;
	const struct plan_model *model;
	unsigned int tokens;
	unsigned int type;	/* index in element_types */
	unsigned int ranks;
	uint64_t capacity;
	uint64_t write_rate;
	unsigned int members;
	struct pool_devices devices;
	struct plan_ask ask;
};

static const char *const element_types[] = { "fp16", "bf16", "fp8", NULL };
static const unsigned int element_bytes[] = { 2, 2, 1 };

#define AT(field) CLI_FIELD(struct plan_args, field)

static const struct cli_option plan_options[] = {
	{ .help = "Blocks:" },
	{ "model", 0, CLI_ROW, AT(model), "NAME", "KV cache of this model; for another model give --block-size",
	  .words = &plan_models[0].name, .stride = sizeof(plan_models[0]), .without = "block-size" },
	{ "tokens", 0, CLI_NUMBER, AT(tokens), "N", "Tokens in a block (256)", 1, 1 << 20,
	  .with = "model" },
	{ "dtype", 0, CLI_WORD, AT(type), "TYPE", "Type of an element: fp16 (the default), bf16 or fp8",
	  .words = element_types, .with = "model" },
	{ "ranks", 0, CLI_NUMBER, AT(ranks), "N", "Tensor-parallel ranks; a block belongs to one of them (1)", 1, 1024,
	  .with = "model" },
	{ "block-size", 0, CLI_SIZE, AT(ask.block_size), "BYTES", "Size of a block",
	  1, KVBLK_VALUE_MAX },
	{ .help = "Flash:" },
	{ "capacity", 0, CLI_SIZE, AT(capacity), "BYTES",
	  "Capacity of all devices together; or give DEVICEs", 64u << 20, 1ull << 60, .without = "DEVICE" },
	{ "members", 0, CLI_NUMBER, AT(members), "N", "Number of devices, of the same size (1)",
	  1, PLAN_MEMBERS_MAX, .with = "capacity" },
	{ "segment-size", 0, CLI_SEGMENT_SIZE, AT(ask.segment_size), "BYTES", "Size of the segments, as for pool create" },
	{ "index-slots", 0, CLI_NUMBER, AT(ask.index_slots), "N", "Use this number of index slots",
	  1, POOL_INDEX_MAX },
	{ "dwpd", 0, CLI_REAL, AT(ask.dwpd), "X",
	  "Drive writes a day that the devices are rated for (1)", 0.01, 1000 },
	{ "write-rate", 0, CLI_SIZE, AT(write_rate), "BYTES", "Bytes put a second, to estimate the wear",
	  1, 1ull << 50 },
	{ 0 },
};

static const struct cli_option plan_arguments[] = {
	{ "DEVICE", 0, CLI_CALL, AT(devices), .take = pool_take_device, .repeat = true },
	{ 0 },
};

static void check_plan(const struct argp_state *state, void *values)
{
	struct plan_args *args = values;

	if (!args->model && !args->ask.block_size)
		cli_usage(state, "missing --model or --block-size");
	if (!args->capacity && !args->devices.nr)
		cli_usage(state, "missing --capacity or DEVICE");
	args->ask.write_rate = (double)args->write_rate;
}

static const struct cli_syntax plan_syntax = {
	.options = plan_options,
	.arguments = plan_arguments,
	.check = check_plan,
	.usage = "{--model NAME | --block-size BYTES} {--capacity BYTES | DEVICE...}",
	.doc = "Compute the properties of a pool for these blocks: index slots, segments, memory, wear. Changes nothing and needs no module.\v"
	       "Example:\n  kvblk pool plan --model llama-3.1-70b --ranks 8 --capacity 14T --members 4",
};

static int take_flash(struct plan_args *args)
{
	unsigned int members = args->members ? args->members : 1;

	for (size_t i = 0; i < args->devices.nr; i++) {
		const char *path = args->devices.specs[i].path;

		if (!pool_device_size(path, &args->ask.member_bytes[i]))
			return cli_fail("%s: %s", path, strerror(errno));
	}
	args->ask.nr_members = args->devices.nr ? args->devices.nr : members;
	for (unsigned int i = 0; args->capacity && i < members; i++)
		args->ask.member_bytes[i] = args->capacity / members;
	return CLI_OK;
}

static int print_json(const struct plan_args *args, const struct plan *plan)
{
	return cli_print_json(json_pack("{s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
					" s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
		"model", args->model ? args->model->name : NULL,
		"block_size", (json_int_t)args->ask.block_size,
		"record_bytes", (json_int_t)plan->record_bytes,
		"capacity", (json_int_t)plan->capacity,
		"segment_min", (json_int_t)plan->segment_min,
		"segment_max", (json_int_t)plan->segment_max,
		"nr_segments", (json_int_t)plan->nr_segments,
		"flash_blocks", (json_int_t)plan->flash_blocks,
		"default_slots", (json_int_t)plan->default_slots,
		"default_blocks", (json_int_t)plan->default_blocks,
		"index_slots", (json_int_t)plan->index_slots,
		"blocks", (json_int_t)plan->blocks,
		"index_bytes", (json_int_t)plan->index_bytes,
		"tag_bytes", (json_int_t)plan->tag_bytes,
		"rated_mib_s", cli_mib(plan->rated_rate),
		"fill_s", plan->fill_s, "life_years", plan->life_years));
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_blocks(const struct plan_args *args, const struct plan *plan)
{
	char bytes[32], more[32], min[32], max[32];

	printf("block      %s", cli_format_bytes(args->ask.block_size, bytes, sizeof(bytes)));
	if (args->model)
		printf(": %u tokens of %s, %u byte%s an element, one of %u rank%s",
		       args->tokens, args->model->name, element_bytes[args->type],
		       element_bytes[args->type] > 1 ? "s" : "", args->ranks, args->ranks > 1 ? "s" : "");
	printf("\nrecord     %s of flash, %.1f %% of it header and padding\n",
	       cli_format_bytes(plan->record_bytes, bytes, sizeof(bytes)),
	       100 - percent(args->ask.block_size, plan->record_bytes));
	printf("segments   %" PRIu64 " of %s%s%s\n", plan->nr_segments,
	       cli_format_bytes(plan->segment_min, min, sizeof(min)),
	       plan->segment_min < plan->segment_max ? " to " : "",
	       plan->segment_min < plan->segment_max ?
	       cli_format_bytes(plan->segment_max, max, sizeof(max)) : "");
	printf("flash      holds %" PRIu64 " blocks, %s of %s\n", plan->flash_blocks,
	       cli_format_bytes(plan->flash_blocks * args->ask.block_size, bytes, sizeof(bytes)),
	       cli_format_bytes(plan->capacity, more, sizeof(more)));
}

static void print_plan(const struct plan_args *args, const struct plan *plan)
{
	char bytes[32], more[32];

	print_blocks(args, plan);
	printf("index      --index-slots %" PRIu64 " holds %.0f %% of them; the default, %" PRIu64 ", %.0f %%\n",
	       plan->index_slots, percent(plan->blocks, plan->flash_blocks),
	       plan->default_slots, percent(plan->default_blocks, plan->flash_blocks));
	printf("memory     %s for the index, %s more with caller tags\n",
	       cli_format_bytes(plan->index_bytes, bytes, sizeof(bytes)),
	       cli_format_bytes(plan->tag_bytes, more, sizeof(more)));
	printf("wear       %g drive write%s a day, which devices are rated for %d years with: %.1f MiB/s\n",
	       args->ask.dwpd, args->ask.dwpd == 1 ? "" : "s", PLAN_RATED_YEARS,
	       cli_mib(plan->rated_rate));
	if (plan->fill_s > 0)
		printf("           puts of %.1f MiB/s fill the flash in %.1f hours and wear it out in %.1f years\n",
		       cli_mib(args->ask.write_rate), plan->fill_s / 3600, plan->life_years);
}

int pool_plan_main(int argc, char **argv)
{
	struct plan_args args = {
		.tokens = TOKENS_DEFAULT,
		.ranks = 1,
		.ask = { .dwpd = 1 },
	};
	struct plan plan;
	uint64_t block;
	char why[256];
	int ret;

	cli_parse(&plan_syntax, argc, argv, &args);
	if (args.model) {
		block = plan_block_bytes(args.model, args.tokens, element_bytes[args.type],
					 args.ranks);
		if (block > KVBLK_VALUE_MAX)
			return cli_fail("%u tokens of %s make blocks of %" PRIu64 " MiB, and a block has at most %u MiB: choose fewer --tokens or more --ranks",
					args.tokens, args.model->name, block >> 20,
					KVBLK_VALUE_MAX >> 20);
		args.ask.block_size = (uint32_t)block;
	}
	ret = take_flash(&args);
	if (ret == CLI_OK && !plan_make(&args.ask, &plan, why, sizeof(why)))
		ret = cli_fail("%s", why);
	free(args.devices.specs);
	if (ret != CLI_OK)
		return ret;
	if (args.list.json)
		return print_json(&args, &plan);
	print_plan(&args, &plan);
	return cli_flush();
}
