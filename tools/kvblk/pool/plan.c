// SPDX-License-Identifier: MIT
/* kvblk pool plan: what a pool will be, before there is one. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/member.h"
#include "pool/pool.h"
#include "pool/sizing.h"

enum {
	OPT_MODEL = CLI_OPT_FIRST,
	OPT_TOKENS,
	OPT_DTYPE,
	OPT_RANKS,
	OPT_BLOCK_SIZE,
	OPT_CAPACITY,
	OPT_MEMBERS,
	OPT_SEGMENT_SIZE,
	OPT_INDEX_SLOTS,
	OPT_DWPD,
	OPT_WRITE_RATE,
};

#define TOKENS_DEFAULT	256

struct plan_args {
	bool json;
	const struct plan_model *model;
	/* an option that is for --model alone, or NULL */
	const char *of_model;
	unsigned int tokens;
	unsigned int element;
	unsigned int ranks;
	uint64_t capacity;
	unsigned int members;
	struct pool_devices devices;
	struct plan_ask ask;
};

static void take_model(const struct argp_state *state, struct plan_args *args, const char *name)
{
	char names[512] = "";

	args->model = plan_find_model(name);
	if (args->model)
		return;
	for (const struct plan_model *m = plan_models; m->name; m++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
			 m == plan_models ? "" : ", ", m->name);
	cli_usage(state, "--model %s: is not known; give --block-size, or one of %s", name, names);
}

static void check(const struct argp_state *state, const struct plan_args *args)
{
	if (!!args->model + !!args->ask.block_size != 1)
		cli_usage(state, "which blocks? Give --model or --block-size");
	if (args->of_model && !args->model)
		cli_usage(state, "%s is for --model", args->of_model);
	if (!!args->capacity + !!args->devices.nr != 1)
		cli_usage(state, "how much flash? Give --capacity or DEVICEs");
	if (args->members && !args->capacity)
		cli_usage(state, "--members is for --capacity");
}

static error_t parse_model(int key, char *arg, struct argp_state *state)
{
	struct plan_args *args = state->input;

	switch (key) {
	case OPT_MODEL:
		take_model(state, args, arg);
		return 0;
	case OPT_TOKENS:
		args->tokens = (unsigned int)cli_number(state, "--tokens", arg, 1, 1 << 20);
		args->of_model = "--tokens";
		return 0;
	case OPT_DTYPE:
		if (strcmp(arg, "fp16") != 0 && strcmp(arg, "bf16") != 0 && strcmp(arg, "fp8") != 0)
			cli_usage(state, "--dtype %s: must be fp16, bf16 or fp8", arg);
		args->element = strcmp(arg, "fp8") ? 2 : 1;
		args->of_model = "--dtype";
		return 0;
	case OPT_RANKS:
		args->ranks = (unsigned int)cli_number(state, "--ranks", arg, 1, 1024);
		args->of_model = "--ranks";
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_plan(int key, char *arg, struct argp_state *state)
{
	struct plan_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->json;
		return 0;
	case OPT_BLOCK_SIZE:
		args->ask.block_size = (uint32_t)cli_size(state, "--block-size", arg, 1,
							  KVBLK_VALUE_MAX);
		return 0;
	case OPT_CAPACITY:
		args->capacity = cli_size(state, "--capacity", arg, 64u << 20, 1ull << 60);
		return 0;
	case OPT_MEMBERS:
		args->members = (unsigned int)cli_number(state, "--members", arg, 1,
							 PLAN_MEMBERS_MAX);
		return 0;
	case OPT_SEGMENT_SIZE:
		args->ask.segment_size = member_segment_size(state, arg);
		return 0;
	case OPT_INDEX_SLOTS:
		args->ask.index_slots = pool_index_slots(state, arg);
		return 0;
	case OPT_DWPD:
		args->ask.dwpd = cli_real(state, "--dwpd", arg, 0.01, 1000);
		return 0;
	case OPT_WRITE_RATE:
		args->ask.write_rate = (double)cli_size(state, "--write-rate", arg, 1, 1ull << 50);
		return 0;
	case ARGP_KEY_ARG:
		pool_take_device(state, &args->devices, arg);
		return 0;
	case ARGP_KEY_END:
		check(state, args);
		return 0;
	default:
		return parse_model(key, arg, state);
	}
}

static const struct argp_option plan_options[] = {
	{ "model", OPT_MODEL, "NAME", 0, "Blocks are the KV cache of this model", 0 },
	{ "tokens", OPT_TOKENS, "N", 0, "of so many tokens (256)", 0 },
	{ "dtype", OPT_DTYPE, "TYPE", 0, "fp16 (the default), bf16 or fp8", 0 },
	{ "ranks", OPT_RANKS, "N", 0, "of one of N tensor-parallel ranks (1)", 0 },
	{ "block-size", OPT_BLOCK_SIZE, "BYTES", 0, "Blocks have this size", 0 },
	{ "capacity", OPT_CAPACITY, "BYTES", 0, "of all devices together; or give DEVICEs", 1 },
	{ "members", OPT_MEMBERS, "N", 0, "so many devices of the same size (1)", 1 },
	{ "segment-size", OPT_SEGMENT_SIZE, "BYTES", 0, "as of pool create", 1 },
	{ "index-slots", OPT_INDEX_SLOTS, "N", 0, "look at this many", 1 },
	{ "dwpd", OPT_DWPD, "X", 0, "Writes of their capacity a day that the devices are rated for (1)", 1 },
	{ "write-rate", OPT_WRITE_RATE, "BYTES", 0, "Bytes put a second, for the wear", 1 },
	{ 0 },
};

static const struct argp plan_argp = {
	.options = plan_options,
	.parser = parse_plan,
	.args_doc = "{--model NAME | --block-size BYTES} {--capacity BYTES | DEVICE...}",
	.doc = "Tell how a pool should be made for these blocks: entries of the index, segments, memory, wear. Nothing is changed, and no module is needed.\v"
	       "Example:\n  kvblk pool plan --model llama-3.1-70b --ranks 8 --capacity 14T --members 4",
	.children = cli_output_children,
};

bool pool_device_size(const char *path, uint64_t *size)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	int err = errno;

	if (fd >= 0)
		close(fd);
	errno = err;
	*size = end > 0 ? (uint64_t)end : 0;
	return end >= 0;
}

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
		       args->tokens, args->model->name, args->element, args->element > 1 ? "s" : "",
		       args->ranks, args->ranks > 1 ? "s" : "");
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
		.element = 2,
		.ranks = 1,
		.ask = { .dwpd = 1 },
	};
	struct plan plan;
	uint64_t block;
	char why[256];
	int ret;

	cli_parse(&plan_argp, argc, argv, &args);
	if (args.model) {
		block = plan_block_bytes(args.model, args.tokens, args.element, args.ranks);
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
	if (args.json)
		return print_json(&args, &plan);
	print_plan(&args, &plan);
	return cli_flush();
}
