// SPDX-License-Identifier: MIT
/* kvblk bench: options and report. What is measured is told in bench.h. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/cli.h"

#define NS_PER_S	1e9
#define MIB		1048576.0
#define SIZE_DEFAULT	(640u << 10)
#define DEPTH_DEFAULT	8
#define KEYS_DEFAULT	1000
#define SECONDS_DEFAULT	2
/* blocks of gets: enough that no cache on the way holds them, by default */
#define BLOCKS_BYTES	(256u << 20)
#define BLOCKS_MAX	65536

enum {
	OPT_OP = CLI_OPT_FIRST,
	OPT_SIZE,
	OPT_DEPTH,
	OPT_THREADS,
	OPT_SECONDS,
	OPT_COUNT,
	OPT_BLOCKS,
	OPT_ENGINE,
	OPT_MEM,
};

struct bench_args {
	bool json;
	bool op_given;
	struct bench_opts bench;
};

static const struct bench_engine *const engines[] = { &bench_uring, &bench_uring_fixed, &bench_ioctl };

static const char *const op_names[] = {
	[BENCH_PUT] = "put",
	[BENCH_GET] = "get",
	[BENCH_EXISTS] = "exists",
};

static const struct argp_option bench_options[] = {
	{ "op", OPT_OP, "OP", 0, "put, get or exists", 0 },
	{ "size", OPT_SIZE, "BYTES", 0, "Bytes in a block, with suffix K or M (640K)", 0 },
	{ "depth", OPT_DEPTH, "N", 0,
	  "Operations in flight for each thread (8); exists: keys in a lookup (1000)", 0 },
	{ "threads", OPT_THREADS, "N", 0, "Threads (1)", 0 },
	{ "seconds", OPT_SECONDS, "TIME", 0, "End after this time (2, unless there is a --count)", 0 },
	{ "count", OPT_COUNT, "N", 0, "End after so many operations", 0 },
	{ "blocks", OPT_BLOCKS, "N", 0,
	  "get, exists: different blocks (as many as make 256M, up to 65536)", 0 },
	{ "engine", OPT_ENGINE, "NAME", 0, "uring (the default), uring-fixed or ioctl", 0 },
	{ "mem", OPT_MEM, "host|gpu[:FILE]", 0,
	  "put, get: memory of the blocks: the host's (the default), or P2P memory of a PCI device, which mapping FILE gives, else the first with enough of it", 0 },
	{ 0 },
};

static void parse_op(const struct argp_state *state, const char *name,
		     struct bench_args *args)
{
	for (size_t i = 0; i < ARRAY_SIZE(op_names); i++) {
		if (strcmp(op_names[i], name) != 0)
			continue;
		args->bench.op = (enum bench_op)i;
		args->op_given = true;
		return;
	}
	cli_usage(state, "--op %s: must be put, get or exists", name);
}

static void parse_engine(const struct argp_state *state, const char *name,
			 struct bench_args *args)
{
	for (size_t i = 0; i < ARRAY_SIZE(engines); i++) {
		if (strcmp(engines[i]->name, name) != 0)
			continue;
		args->bench.engine = engines[i];
		return;
	}
	cli_usage(state, "--engine %s: must be uring, uring-fixed or ioctl", name);
}

static void parse_mem(const struct argp_state *state, const char *mem,
		      struct bench_opts *bench)
{
	bench->gpu = strcmp(mem, "host") != 0;
	bench->mem_file = NULL;
	if (!strncmp(mem, "gpu:", 4) && mem[4])
		bench->mem_file = mem + 4;
	else if (bench->gpu && strcmp(mem, "gpu") != 0)
		cli_usage(state, "--mem %s: must be host, gpu or gpu:FILE", mem);
}

/* What was not given, when all options are known. */
static void complete(const struct argp_state *state, struct bench_opts *bench)
{
	uint64_t flight;

	if (!bench->depth)
		bench->depth = bench->op == BENCH_EXISTS ? KEYS_DEFAULT :
							   DEPTH_DEFAULT;
	if (bench->op != BENCH_EXISTS && bench->depth > KVBLK_OPS_MAX)
		cli_usage(state, "--depth %u: at most %u, except for exists",
			  bench->depth, KVBLK_OPS_MAX);
	if (bench->seconds <= 0 && !bench->count)
		bench->seconds = SECONDS_DEFAULT;
	if (bench->op == BENCH_PUT && bench->nr_blocks)
		cli_usage(state, "--blocks is for get and exists; see --count");
	if (bench->op == BENCH_EXISTS && bench->gpu)
		cli_usage(state, "--mem is for put and get: exists moves no blocks");
	flight = bench->depth;
	if (bench->op == BENCH_GET)
		flight *= bench->nr_threads;
	if (bench->nr_blocks || bench->op == BENCH_PUT)
		return;
	bench->nr_blocks = BLOCKS_BYTES / bench->size;
	if (bench->nr_blocks > BLOCKS_MAX)
		bench->nr_blocks = BLOCKS_MAX;
	if (bench->nr_blocks < flight)
		bench->nr_blocks = flight;
}

static error_t parse_bench(int key, char *arg, struct argp_state *state)
{
	struct bench_args *args = state->input;
	struct bench_opts *bench = &args->bench;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->json;
		return 0;
	case OPT_OP:
		parse_op(state, arg, args);
		return 0;
	case OPT_SIZE:
		bench->size = (uint32_t)cli_size(state, "--size", arg, 1,
						 KVBLK_VALUE_MAX);
		return 0;
	case OPT_DEPTH:
		bench->depth = (unsigned int)cli_number(state, "--depth", arg, 1,
							KVBLK_LOOKUP_MAX);
		return 0;
	case OPT_THREADS:
		bench->nr_threads = (unsigned int)cli_number(state, "--threads",
							     arg, 1, 1024);
		return 0;
	case OPT_SECONDS:
		bench->seconds = cli_time(state, "--seconds", arg, 0.01, 1e6);
		return 0;
	case OPT_COUNT:
		bench->count = cli_number(state, "--count", arg, 1, UINT32_MAX);
		return 0;
	case OPT_BLOCKS:
		bench->nr_blocks = cli_number(state, "--blocks", arg, 1,
					      UINT32_MAX);
		return 0;
	case OPT_ENGINE:
		parse_engine(state, arg, args);
		return 0;
	case OPT_MEM:
		parse_mem(state, arg, bench);
		return 0;
	case ARGP_KEY_ARG:
		cli_at_most(state, 1, arg);
		cli_check_pool_or_node(state, arg);
		bench->pool = arg;
		return 0;
	case ARGP_KEY_END:
		if (!bench->pool)
			cli_usage(state, "which pool? Give its name or its node");
		if (!args->op_given)
			cli_usage(state, "what to measure? Give --op");
		complete(state, bench);
		if (bench->engine->registers &&
		    (uint64_t)bench->depth * bench->size > 1u << 30)
			cli_usage(state, "--engine %s: at most 1G of --depth blocks of --size",
				  bench->engine->name);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp bench_argp = {
	.options = bench_options,
	.parser = parse_bench,
	.args_doc = "POOL",
	.doc = "Measure puts, gets or lookups of POOL, a pool's name or a node's path.\v"
	       "Example:\n  kvblk bench kv0 --op get --size 2M --depth 32\n\n"
	       "Blocks that it puts stay until they are dropped like others: other blocks may have to go for them. "
	       "Exits with 1 when an operation fails or a get misses.",
	.children = cli_output_children,
};

static json_t *result_json(const struct bench_opts *bench,
			   const struct bench_result *result)
{
	double seconds = (double)result->ns / NS_PER_S;
	double ops_s = (double)result->nr_ops / seconds;
	json_t *json;

	json = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:f, s:I, s:f, s:I, s:I, s:I}",
		"pool", bench->pool,
		"op", op_names[bench->op],
		"engine", bench->engine->name,
		"size", (json_int_t)bench->size,
		"depth", (json_int_t)bench->depth,
		"threads", (json_int_t)bench->nr_threads,
		"integrity", result->integrity,
		"seconds", seconds,
		"ops", (json_int_t)result->nr_ops,
		"ops_s", ops_s,
		"p50_ns", (json_int_t)hist_quantile(&result->time, 0.5),
		"p99_ns", (json_int_t)hist_quantile(&result->time, 0.99),
		"max_ns", (json_int_t)result->time.max);
	if (json && bench->op != BENCH_EXISTS) {
		json_object_set_new(json, "mib_s",
				    json_real(ops_s * bench->size / MIB));
		json_object_set_new(json, "direct_ops",
				    json_integer((json_int_t)result->nr_direct));
		json_object_set_new(json, "bounced_ops",
				    json_integer((json_int_t)result->nr_bounced));
		json_object_set_new(json, "mem",
				    json_string(bench->gpu ? "gpu" : "host"));
		json_object_set_new(json, "mem_device", bench->gpu ?
				    json_string(result->mem_device) : json_null());
	}
	return json;
}

static int print_text(const struct bench_opts *bench,
		      const struct bench_result *result)
{
	double seconds = (double)result->ns / NS_PER_S;
	double ops_s = (double)result->nr_ops / seconds;
	char text[3][32];

	cli_format_bytes(bench->size, text[0], sizeof(text[0]));
	if (bench->op == BENCH_EXISTS) {
		printf("exists     %u keys a lookup, %u threads\n", bench->depth,
		       bench->nr_threads);
		printf("throughput %.0f keys/s in %.2f s\n", ops_s, seconds);
	} else {
		printf("%-10s blocks of %s, depth %u, %u threads, %s, integrity %s\n",
		       op_names[bench->op], text[0], bench->depth,
		       bench->nr_threads, bench->engine->name,
		       result->integrity ? "on" : "off");
		printf("throughput %.1f MiB/s, %.0f ops/s in %.2f s\n",
		       ops_s * bench->size / MIB, ops_s, seconds);
		if (bench->gpu)
			printf("memory     P2P memory of %s\n", result->mem_device);
		else
			printf("memory     the host's\n");
		printf("direct     %.1f %% of the blocks moved without a bounce: %llu direct, %llu bounced\n",
		       100.0 * (double)result->nr_direct /
			       (double)result->nr_ops,
		       (unsigned long long)result->nr_direct,
		       (unsigned long long)result->nr_bounced);
	}
	printf("latency    p50 %s, p99 %s, max %s\n",
	       cli_format_ns(hist_quantile(&result->time, 0.5), text[0],
			     sizeof(text[0])),
	       cli_format_ns(hist_quantile(&result->time, 0.99), text[1],
			     sizeof(text[1])),
	       cli_format_ns(result->time.max, text[2], sizeof(text[2])));
	return cli_flush();
}

int bench_main(int argc, char **argv)
{
	struct bench_args args = {
		.bench = {
			.engine = &bench_uring,
			.size = SIZE_DEFAULT,
			.nr_threads = 1,
		},
	};
	struct bench_result result;
	int ret;

	cli_parse(&bench_argp, argc, argv, &args);
	/* else requests go to the device one by one: see uapi.rst */
	signal(SIGPIPE, SIG_IGN);
	ret = bench_run(&args.bench, &result);
	if (ret)
		return ret;
	return args.json ? cli_print_json(result_json(&args.bench, &result)) :
			   print_text(&args.bench, &result);
}
