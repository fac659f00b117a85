// SPDX-License-Identifier: MIT
/* kvblk bench: options and report; bench.h describes the measurement. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "cli/cli.h"
#include "cli/options.h"

#define NS_PER_S	1e9
#define MIB		1048576.0
#define SIZE_DEFAULT	(640u << 10)
#define DEPTH_DEFAULT	8
#define KEYS_DEFAULT	1000
#define SECONDS_DEFAULT	2
/* default for gets: more blocks than any cache on the way holds */
#define BLOCKS_BYTES	(256u << 20)
#define BLOCKS_MAX	65536

struct bench_args {
	struct cli_list list;
	unsigned int engine;	/* index in engines */
	struct bench_opts bench;
};

static const struct bench_engine *const engines[] = { &bench_uring, &bench_uring_fixed, &bench_ioctl };
static const char *const engine_names[] = { "uring", "uring-fixed", "ioctl", NULL };

static const char *const op_names[] = {
	[BENCH_PUT] = "put",
	[BENCH_GET] = "get",
	[BENCH_EXISTS] = "exists",
	NULL,
};

static void take_mem(struct argp_state *state, const char *mem, void *field)
{
	struct bench_opts *bench = field;

	bench->gpu = strcmp(mem, "host") != 0;
	bench->mem_file = NULL;
	if (!strncmp(mem, "gpu:", 4) && mem[4])
		bench->mem_file = mem + 4;
	else if (bench->gpu && strcmp(mem, "gpu") != 0)
		cli_usage(state, "--mem %s: must be host, gpu or gpu:FILE", mem);
}

#define AT(field) CLI_FIELD(struct bench_args, field)

static const struct cli_option bench_options[] = {
	{ "op", 0, CLI_WORD, AT(bench.op), "OP", "Operation to measure: put, get or exists", .words = op_names,
	  .required = true },
	{ "size", 0, CLI_SIZE, AT(bench.size), "BYTES",
	  "Bytes in a block, with suffix K or M (640K)", 1, KVBLK_VALUE_MAX },
	{ "depth", 0, CLI_NUMBER, AT(bench.depth), "N",
	  "Operations in flight in each thread (8); exists: keys in a lookup (1000)",
	  1, KVBLK_LOOKUP_MAX },
	{ "threads", 0, CLI_NUMBER, AT(bench.nr_threads), "N", "Threads (1)", 1, 1024 },
	{ "seconds", 0, CLI_TIME, AT(bench.seconds), "TIME",
	  "End after this time (2, unless --count is given)", 0.01, 1e6 },
	{ "count", 0, CLI_NUMBER, AT(bench.count), "N", "End after this many operations",
	  1, UINT32_MAX },
	{ "blocks", 0, CLI_NUMBER, AT(bench.nr_blocks), "N",
	  "get, exists: number of different blocks (256M in all, at most 65536)", 1, UINT32_MAX },
	{ "engine", 0, CLI_WORD, AT(engine), "NAME", "uring (the default), uring-fixed or ioctl",
	  .words = engine_names },
	{ "mem", 0, CLI_CALL, AT(bench), "host|gpu[:FILE]",
	  "put, get: memory of the blocks: host memory (the default), or P2P memory of a PCI device, mapped from FILE, else of the first device with enough",
	  .take = take_mem },
	{ 0 },
};

static const struct cli_option bench_arguments[] = {
	{ "POOL", 0, CLI_NODE, AT(bench.pool), .required = true },
	{ 0 },
};

static void check_bench(const struct argp_state *state, void *values)
{
	struct bench_args *args = values;
	struct bench_opts *bench = &args->bench;
	uint64_t flight;

	bench->engine = engines[args->engine];

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

static const struct cli_syntax bench_syntax = {
	.options = bench_options,
	.arguments = bench_arguments,
	.check = check_bench,
	.usage = "POOL",
	.doc = "Measure puts, gets or lookups of POOL, the name of a pool or the path of a node.\v"
	       "Example:\n  kvblk bench kv0 --op get --size 2M --depth 32\n\n"
	       "Blocks that are put stay in the pool and may displace other blocks. "
	       "Exits with 1 if an operation fails or a get misses.",
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
			.size = SIZE_DEFAULT,
			.nr_threads = 1,
		},
	};
	struct bench_result result;
	int ret;

	cli_parse(&bench_syntax, argc, argv, &args);
	/* otherwise requests reach the device one by one: see uapi.rst */
	signal(SIGPIPE, SIG_IGN);
	ret = bench_run(&args.bench, &result);
	if (ret)
		return ret;
	return args.list.json ? cli_print_json(result_json(&args.bench, &result)) :
			   print_text(&args.bench, &result);
}
