// SPDX-License-Identifier: MIT
/*
 * kvblk replay: options, progress and summary. What a replay does is told in
 * replay.h; --simulate asks the module's policy instead and needs no pool.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/cli.h"
#include "replay/replay.h"
#include "replay/simulate.h"
#include "replay/trace.h"
#include "replay/ttft.h"

#define NS_PER_S		1000000000ull
#define BUFFER_DEFAULT		(64ull << 20)
#define BLOCK_SIZE_DEFAULT	(640u << 10)

enum {
	OPT_TRACE = CLI_OPT_FIRST,
	OPT_SYNTHETIC,
	OPT_REQUESTS,
	OPT_SEED,
	OPT_LIMIT,
	OPT_POOL,
	OPT_VERIFY,
	OPT_BLOCK_SIZE,
	OPT_SPEED,
	OPT_THREADS,
	OPT_SECONDS,
	OPT_BUFFER,
	OPT_SIMULATE,
	OPT_CAPACITY,
	OPT_DRAM,
	OPT_DRAM_MODE,
	OPT_DRAM_PROMOTE,
	OPT_SEGMENTS,
	OPT_BATCH,
	OPT_ADMIT_PERMILLE,
	OPT_FIRST_PERMILLE,
	OPT_REINSERT_PERMILLE,
	OPT_CACHE,
	OPT_SALT,
	OPT_BUDGET,
};

struct replay_args {
	bool json;
	bool quiet;
	bool synthetic;
	bool simulate;
	/* an option of the kind that was given, for the message; or NULL */
	const char *of_synthetic;
	const char *of_pool;
	const char *of_simulate;
	const char *trace;
	double seconds;		/* 0: to the end of the trace */
	size_t limit;		/* 0: none */
	uint32_t requests;	/* 0: as many as the traffic has by itself */
	const char *cache;
	const char *dram_mode;
	const char *of_dram;	/* as above */
	struct trace_synthetic_opts traffic;
	struct replay_opts replay;
	struct sim_opts sim;
	struct ttft_opts ttft;
};

static const struct argp_option replay_options[] = {
	{ NULL, 0, NULL, 0, "What is replayed:", 1 },
	{ "trace", OPT_TRACE, "FILE", 0,
	  "A trace of the Mooncake format; - for stdin", 1 },
	{ "synthetic", OPT_SYNTHETIC, "KIND", OPTION_ARG_OPTIONAL,
	  "Made-up traffic: chat (the default), prompts, long, once, scan, documents or week", 1 },
	{ "requests", OPT_REQUESTS, "N", 0, "With --synthetic: how many (12000; week: 180000)", 1 },
	{ "seed", OPT_SEED, "N", 0,
	  "With --synthetic: same seed, same traffic (1)", 1 },
	{ "limit", OPT_LIMIT, "N", 0, "Only the first N requests", 1 },
	{ NULL, 0, NULL, 0, "On a pool:", 2 },
	{ "pool", OPT_POOL, "NAME", 0, "The pool", 2 },
	{ "verify", OPT_VERIFY, NULL, 0,
	  "Store bytes that follow from the key, check each that comes back", 2 },
	{ "block-size", OPT_BLOCK_SIZE, "BYTES", 0,
	  "Bytes in a block, with suffix K or M (640K)", 2 },
	{ "speed", OPT_SPEED, "X", 0,
	  "Seconds of the trace in a second: 1 is real time, 0 as fast as possible (0)", 2 },
	{ "threads", OPT_THREADS, "N", 0, "Requests at a time (1)", 2 },
	{ "seconds", OPT_SECONDS, "TIME", 0, "Stop after this time", 2 },
	{ "buffer", OPT_BUFFER, "BYTES", 0,
	  "Memory of each thread, which bounds its batches (64M)", 2 },
	{ "quiet", 'q', NULL, 0, "No progress line each second", 2 },
	{ NULL, 0, NULL, 0, "Without a pool:", 3 },
	{ "simulate", OPT_SIMULATE, NULL, 0,
	  "Run the module's admission and reclaim over the trace, without I/O", 3 },
	{ "capacity", OPT_CAPACITY, "F", 0,
	  "Simulated capacity, as a share of the trace's distinct blocks (0.05)", 3 },
	{ "dram", OPT_DRAM, "F", 0,
	  "Simulated dram_bytes, memory in front of the flash, as a share of the distinct blocks (0)", 3 },
	{ "dram-mode", OPT_DRAM_MODE, "MODE", 0,
	  "Simulated tunable dram_mode: through, evict or touched (evict)", 3 },
	{ "dram-promote", OPT_DRAM_PROMOTE, "N", 0,
	  "Simulated tunable dram_promote, 0 or 1 (0)", 3 },
	{ "segments", OPT_SEGMENTS, "N", 0, "Simulated segments (256)", 3 },
	{ "batch", OPT_BATCH, "N", 0, "Blocks that are put together; 0: all of a request (0)", 3 },
	{ "admit-permille", OPT_ADMIT_PERMILLE, "N", 0,
	  "Simulated tunable admit_permille (the module's default)", 3 },
	{ "first-permille", OPT_FIRST_PERMILLE, "N", 0,
	  "Simulated tunable first_permille (the module's default)", 3 },
	{ "reinsert-permille", OPT_REINSERT_PERMILLE, "N", 0,
	  "Simulated tunable reinsert_permille (the module's default)", 3 },
	{ "salt", OPT_SALT, "N", 0,
	  "Other simulated ids for each N: what differs between them is chance (0)", 3 },
	{ "cache", OPT_CACHE, "NAME", 0,
	  "Simulate kvblk (the default), or for comparison fifo, lru or optimum", 3 },
	{ "budget", OPT_BUDGET, "X", 0,
	  "Writes allowed in a day of the trace, in capacities: the daemon's governor keeps to them", 3 },
	{ 0 },
};

static void parse_cache(const struct argp_state *state, const char *name,
			struct replay_args *args)
{
	static const struct {
		const char *name;
		enum sim_cache cache;
	} caches[] = {
		{ "kvblk", SIM_POLICY },
		{ "fifo", SIM_FIFO },
		{ "lru", SIM_LRU },
		{ "optimum", SIM_OPTIMUM },
	};

	for (size_t i = 0; i < ARRAY_SIZE(caches); i++) {
		if (strcmp(caches[i].name, name) != 0)
			continue;
		args->sim.cache = caches[i].cache;
		args->cache = caches[i].name;
		return;
	}
	cli_usage(state, "--cache %s: must be kvblk, fifo, lru or optimum",
		   name);
}

static void parse_dram_mode(const struct argp_state *state, const char *name,
			    struct replay_args *args)
{
	static const char * const modes[] = {
		[SIM_DRAM_THROUGH] = "through",
		[SIM_DRAM_EVICT] = "evict",
		[SIM_DRAM_TOUCHED] = "touched",
	};

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		if (strcmp(modes[i], name) != 0)
			continue;
		args->sim.dram_mode = i;
		args->dram_mode = modes[i];
		return;
	}
	cli_usage(state, "--dram-mode %s: must be through, evict or touched", name);
}

static error_t parse_source(int key, char *arg, struct argp_state *state,
			    struct replay_args *args)
{
	switch (key) {
	case OPT_TRACE:
		args->trace = arg;
		return 0;
	case OPT_SYNTHETIC:
		args->synthetic = true;
		/* the seed may have come before */
		if (arg) {
			uint64_t seed = args->traffic.seed;

			if (trace_synthetic_preset(arg, &args->traffic))
				cli_usage(state, "--synthetic=%s: must be chat, prompts, long, once, scan, documents or week",
					   arg);
			args->traffic.seed = seed;
		}
		return 0;
	case OPT_REQUESTS:
		args->requests = (uint32_t)cli_number(state, "--requests", arg, 1,
						      100000000);
		args->of_synthetic = "--requests";
		return 0;
	case OPT_SEED:
		args->traffic.seed = cli_number(state, "--seed", arg, 0,
						UINT64_MAX);
		args->of_synthetic = "--seed";
		return 0;
	case OPT_LIMIT:
		args->limit = cli_number(state, "--limit", arg, 1, SIZE_MAX);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_on_pool(int key, char *arg, struct argp_state *state,
			     struct replay_args *args)
{
	switch (key) {
	case OPT_POOL:
		cli_check_pool_name(state, arg);
		args->replay.pool = arg;
		args->of_pool = "--pool";
		return 0;
	case OPT_VERIFY:
		args->replay.verify = true;
		args->of_pool = "--verify";
		return 0;
	case OPT_BLOCK_SIZE:
		args->replay.block_size = (uint32_t)cli_size(state,
			"--block-size", arg, 1, KVBLK_VALUE_MAX);
		args->of_pool = "--block-size";
		return 0;
	case OPT_SPEED:
		args->replay.speed = cli_real(state, "--speed", arg, 0, 1e6);
		args->of_pool = "--speed";
		return 0;
	case OPT_THREADS:
		args->replay.nr_threads = (unsigned int)cli_number(state,
			"--threads", arg, 1, 1024);
		args->of_pool = "--threads";
		return 0;
	case OPT_SECONDS:
		args->seconds = cli_time(state, "--seconds", arg, 0.001, 1e7);
		args->of_pool = "--seconds";
		return 0;
	case OPT_BUFFER:
		args->replay.buffer_size = cli_size(state, "--buffer", arg,
						    4096, 1ull << 40);
		args->of_pool = "--buffer";
		return 0;
	case 'q':
		args->quiet = true;
		args->of_pool = "--quiet";
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t parse_simulated(int key, char *arg, struct argp_state *state,
			       struct replay_args *args)
{
	switch (key) {
	case OPT_SIMULATE:
		args->simulate = true;
		return 0;
	case OPT_CAPACITY:
		args->sim.capacity = cli_real(state, "--capacity", arg, 1e-6,
					      100);
		args->of_simulate = "--capacity";
		return 0;
	case OPT_DRAM:
		args->sim.dram = cli_real(state, "--dram", arg, 0, 100);
		args->of_simulate = "--dram";
		return 0;
	case OPT_DRAM_MODE:
		parse_dram_mode(state, arg, args);
		args->of_simulate = "--dram-mode";
		args->of_dram = "--dram-mode";
		return 0;
	case OPT_DRAM_PROMOTE:
		args->sim.dram_promote = cli_number(state, "--dram-promote", arg,
						    0, 1);
		args->of_simulate = "--dram-promote";
		args->of_dram = "--dram-promote";
		return 0;
	case OPT_SEGMENTS:
		args->sim.nr_segments = (uint32_t)cli_number(state,
			"--segments", arg, 8, 1 << 20);
		args->of_simulate = "--segments";
		return 0;
	case OPT_BATCH:
		args->sim.batch = (uint32_t)cli_number(state, "--batch", arg, 0, KVBLK_OPS_MAX);
		args->of_simulate = "--batch";
		return 0;
	case OPT_ADMIT_PERMILLE:
		args->sim.admit_permille = (int)cli_number(state,
			"--admit-permille", arg, 0, 1000);
		args->of_simulate = "--admit-permille";
		return 0;
	case OPT_FIRST_PERMILLE:
		args->sim.first_permille = (int)cli_number(state,
			"--first-permille", arg, 0, 1000);
		args->of_simulate = "--first-permille";
		return 0;
	case OPT_REINSERT_PERMILLE:
		args->sim.reinsert_permille = (int)cli_number(state,
			"--reinsert-permille", arg, 0, 4000);
		args->of_simulate = "--reinsert-permille";
		return 0;
	case OPT_CACHE:
		parse_cache(state, arg, args);
		args->of_simulate = "--cache";
		return 0;
	case OPT_SALT:
		args->sim.salt = cli_number(state, "--salt", arg, 0, UINT64_MAX);
		args->of_simulate = "--salt";
		return 0;
	case OPT_BUDGET:
		args->sim.budget = cli_real(state, "--budget", arg, 1e-3, 1e6);
		args->of_simulate = "--budget";
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void check_together(const struct argp_state *state,
			   const struct replay_args *args)
{
	if (!args->trace == !args->synthetic)
		cli_usage(state, "what to replay? Give --trace FILE or --synthetic, one of them");
	if (args->of_synthetic && !args->synthetic)
		cli_usage(state, "%s is for --synthetic", args->of_synthetic);
	if (args->simulate && args->of_pool)
		cli_usage(state, "%s is for replays on a pool, not for --simulate",
			   args->of_pool);
	if (args->sim.budget && args->sim.cache != SIM_POLICY)
		cli_usage(state, "--budget is for --cache kvblk");
	if (args->sim.dram && args->sim.cache != SIM_POLICY)
		cli_usage(state, "--dram is for --cache kvblk");
	if (args->of_dram && !args->sim.dram)
		cli_usage(state, "%s is for --dram", args->of_dram);
	if (args->ttft.model && args->sim.cache != SIM_POLICY)
		cli_usage(state, "--ttft is for --cache kvblk");
	if (args->ttft.model && args->sim.dram && !args->ttft.dram.bytes_s)
		cli_usage(state, "--ttft with --dram needs --dram-load");
	if (args->simulate)
		return;
	if (args->of_simulate || args->ttft.model)
		cli_usage(state, "%s is for --simulate", args->of_simulate ?: "--ttft");
	if (!args->replay.pool)
		cli_usage(state, "where to? Give --pool NAME, or --simulate");
}

static error_t parse_replay(int key, char *arg, struct argp_state *state)
{
	struct replay_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->json;
		state->child_inputs[1] = &args->ttft;
		return 0;
	case ARGP_KEY_ARG:
		cli_usage(state, "\"%s\": there is nothing to give here but options",
			   arg);
		return 0;
	case ARGP_KEY_END:
		check_together(state, args);
		if (args->requests)
			args->traffic.nr_reqs = args->requests;
		return 0;
	default:
		break;
	}
	if (key >= OPT_TRACE && key <= OPT_LIMIT)
		return parse_source(key, arg, state, args);
	if (key >= OPT_SIMULATE && key <= OPT_BUDGET)
		return parse_simulated(key, arg, state, args);
	return parse_on_pool(key, arg, state, args);
}

static const struct argp_child output_children[] = {
	{ &cli_output_argp, 0, NULL, -1 },
	{ &ttft_argp, 0, NULL, 4 },
	{ 0 },
};

static const struct argp replay_argp = {
	.options = replay_options,
	.parser = parse_replay,
	.doc = "Replay a trace of chat requests on a pool, as a runtime would make them: look up a prompt's blocks, get the leading ones that are here, put the others.\v"
	       "Examples:\n"
	       "  kvblk replay --pool kv0 --trace chat.jsonl --verify --threads 4\n"
	       "  kvblk replay --pool kv0 --synthetic --requests 1000\n"
	       "  kvblk replay --simulate --capacity 0.1 --trace chat.jsonl -o json",
	.children = output_children,
};

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Keeps the first @limit requests. */
static int cut_trace(struct trace *trace, size_t limit)
{
	uint64_t *ids, nr = 0;

	if (limit >= trace->nr_reqs)
		return CLI_OK;
	trace->nr_reqs = limit;
	trace->nr_refs = 0;
	for (size_t i = 0; i < limit; i++)
		trace->nr_refs += trace->reqs[i].nr;
	ids = calloc(trace->nr_refs ? trace->nr_refs : 1, sizeof(*ids));
	if (!ids)
		return cli_fail("no memory for the trace");
	for (size_t i = 0; i < limit; i++) {
		memcpy(ids + nr, trace->reqs[i].ids,
		       trace->reqs[i].nr * sizeof(*ids));
		nr += trace->reqs[i].nr;
	}
	qsort(ids, nr, sizeof(*ids), compare_ids);
	trace->nr_distinct = nr ? 1 : 0;
	for (uint64_t i = 1; i < nr; i++)
		trace->nr_distinct += ids[i] != ids[i - 1];
	free(ids);
	return CLI_OK;
}

static int load(const struct replay_args *args, struct trace *trace)
{
	const char *name = "--synthetic";
	struct trace_error bad = { 0 };
	int err, ret;

	if (args->synthetic) {
		err = trace_synthetic(&args->traffic, trace);
	} else {
		name = strcmp(args->trace, "-") != 0 ? args->trace : "stdin";
		err = trace_load(args->trace, trace, &bad);
	}
	if (err == -EBADMSG)
		return cli_fail("%s: line %zu is no request: %s; a line looks like {\"timestamp\": 0, \"hash_ids\": [1, 2, 3]}",
				name, bad.line, bad.why);
	if (err)
		return cli_fail("%s: %s", name, strerror(-err));
	ret = args->limit ? cut_trace(trace, args->limit) : CLI_OK;
	if (!ret && !trace->nr_refs)
		ret = cli_fail("%s: has no blocks", name);
	if (ret)
		trace_free(trace);
	return ret;
}

/* What was written on a day, as a share of the budget. */
static double of_budget(const struct replay_args *args, const struct sim_result *r,
			uint32_t day)
{
	return (double)r->days[day].writes / (double)r->capacity_blocks /
	       args->sim.budget;
}

static json_t *json_days(const struct replay_args *args, const struct sim_result *r)
{
	json_t *days = json_array();

	for (uint32_t i = 0; i < r->nr_days; i++)
		json_array_append_new(days, json_pack("{s:I, s:I, s:I, s:f, s:i, s:i, s:i}",
			"blocks", (json_int_t)r->days[i].refs,
			"hits", (json_int_t)r->days[i].hits,
			"writes", (json_int_t)r->days[i].writes,
			"of_budget", of_budget(args, r, i),
			"admit_permille", (int)r->days[i].admit_permille,
			"first_permille", (int)r->days[i].first_permille,
			"second_permille", (int)r->days[i].second_permille));
	return days;
}

static void print_dram(const struct replay_args *args, const struct sim_result *r)
{
	printf("memory          %" PRIu64 " blocks, dram_mode %s\n", r->dram_blocks,
	       args->dram_mode);
	printf("  hits          %" PRIu64 " of the above\n", r->dram_hits);
	printf("  evictions     %" PRIu64 " written, %" PRIu64 " dropped\n",
	       r->dram_writes, r->dram_drops);
	printf("  copies        %" PRIu64 " of blocks on flash\n", r->dram_copies);
}

static int run_simulation(const struct replay_args *args,
			  const struct trace *trace)
{
	struct sim_result r;
	struct ttft ttft = { 0 };
	int err;

	if (args->sim.dram && args->sim.dram * (double)trace->nr_distinct < 1)
		return cli_fail("--dram %g holds none of the trace's %" PRIu64 " blocks",
				args->sim.dram, trace->nr_distinct);
	err = simulate(trace, &args->sim, &r);
	if (!err && args->ttft.model)
		err = ttft_run(&args->ttft, trace, &args->sim, &ttft);
	if (err == -EINVAL)
		return cli_fail("the simulated capacity is too small for its segments; choose a larger --capacity or fewer --segments");
	if (err)
		return cli_fail("simulation: %s", strerror(-err));
	if (args->json)
		return cli_print_json(json_pack(
			"{s:s, s:f, s:I, s:f, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:o}",
			"cache", args->cache,
			"capacity", args->sim.capacity,
			"capacity_blocks", (json_int_t)r.capacity_blocks,
			"dram", args->sim.dram,
			"dram_mode", args->dram_mode,
			"dram_blocks", (json_int_t)r.dram_blocks,
			"requests", (json_int_t)r.requests,
			"blocks", (json_int_t)r.refs,
			"distinct_blocks", (json_int_t)trace->nr_distinct,
			"hits", (json_int_t)r.hits,
			"dram_hits", (json_int_t)r.dram_hits,
			"puts", (json_int_t)r.puts,
			"admitted", (json_int_t)r.admitted,
			"declined", (json_int_t)r.declined,
			"dram_writes", (json_int_t)r.dram_writes,
			"dram_drops", (json_int_t)r.dram_drops,
			"dram_copies", (json_int_t)r.dram_copies,
			"copies", (json_int_t)r.copies,
			"writes", (json_int_t)r.writes,
			"hit_ratio", r.hit_ratio,
			"writes_per_hit", r.writes_per_hit,
			"writes_per_block", r.writes_per_block,
			"days", json_days(args, &r),
			"ttft", ttft_json(&args->ttft, &ttft)));
	printf("cache           %s\n", args->cache);
	printf("capacity        %" PRIu64 " blocks, %.4g of the trace's %" PRIu64 " distinct ones\n",
	       r.capacity_blocks, args->sim.capacity, trace->nr_distinct);
	printf("requests        %" PRIu64 " with %" PRIu64 " blocks\n",
	       r.requests, r.refs);
	printf("hits            %" PRIu64 " in leading runs\n", r.hits);
	printf("puts            %" PRIu64 ": %" PRIu64 " admitted, %" PRIu64 " declined\n",
	       r.puts, r.admitted, r.declined);
	if (r.dram_blocks)
		print_dram(args, &r);
	printf("copies          %" PRIu64 " by reclaim\n", r.copies);
	printf("hit ratio       %.4f\n", r.hit_ratio);
	printf("writes per hit  %.3f, per block referenced %.3f\n",
	       r.writes_per_hit, r.writes_per_block);
	for (uint32_t i = 0; i < r.nr_days; i++)
		printf("day %-2" PRIu32 "          writes %.2f of the budget, hit ratio %.4f, admit_permille %u, first %u, second %u\n",
		       i + 1, of_budget(args, &r, i),
		       (double)r.days[i].hits / (double)(r.days[i].refs ?: 1),
		       r.days[i].admit_permille, r.days[i].first_permille,
		       r.days[i].second_permille);
	ttft_print(&args->ttft, &ttft);
	return cli_flush();
}

/* A replay on a pool, as it is reported. */
struct report {
	const struct replay_args *args;
	const struct trace *trace;
	struct replay_tally tally;
	struct replay_failure failure;
	uint64_t start_ns;
	double seconds;
	bool interrupted;
	/* of the pool, between start and end of the replay */
	bool has_writes;
	uint64_t pool_put_bytes;
	uint64_t pool_reinsert_bytes;
};

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static double mib_per_s(uint64_t bytes, double seconds)
{
	return seconds > 0 ? cli_mib((double)bytes) / seconds : 0;
}

static void print_progress(const struct report *report, uint64_t *moved_before,
			   uint64_t *ns_before)
{
	const struct replay_tally *t = &report->tally;
	const struct hist *get = &t->time[REPLAY_GET_BATCH];
	const struct hist *put = &t->time[REPLAY_PUT_BATCH];
	char get50[32], get99[32], put50[32], put99[32];
	char verified[48] = "", checked[32];
	uint64_t moved = replay_count(t, REPLAY_PUT_BYTES) +
			 replay_count(t, REPLAY_GET_BYTES);
	uint64_t hits = replay_count(t, REPLAY_HITS);
	uint64_t refs = replay_count(t, REPLAY_REFS);
	uint64_t ns = replay_now_ns();

	if (report->args->replay.verify)
		snprintf(verified, sizeof(verified), "  verified %s",
			 cli_format_bytes(replay_count(t, REPLAY_VERIFIED),
					  checked, sizeof(checked)));
	/* in one call: others may write to the terminal, too */
	fprintf(stderr,
		"%4.0f s  %" PRIu64 "/%zu requests  put %" PRIu64 "  got %" PRIu64
		"  missed %" PRIu64 "  hit %.1f %%  %.1f MiB/s  get p50 %s p99 %s  put p50 %s p99 %s%s\n",
		(double)(ns - report->start_ns) / (double)NS_PER_S,
		replay_count(t, REPLAY_REQUESTS), report->trace->nr_reqs,
		replay_count(t, REPLAY_PUTS), hits,
		refs > hits ? refs - hits : 0, 100 * ratio(hits, refs),
		mib_per_s(moved - *moved_before,
			  (double)(ns - *ns_before) / (double)NS_PER_S),
		cli_format_ns(hist_quantile(get, 0.5), get50, sizeof(get50)),
		cli_format_ns(hist_quantile(get, 0.99), get99, sizeof(get99)),
		cli_format_ns(hist_quantile(put, 0.5), put50, sizeof(put50)),
		cli_format_ns(hist_quantile(put, 0.99), put99, sizeof(put99)),
		verified);
	*moved_before = moved;
	*ns_before = ns;
}

/* Takes the pending signal, and lets the next one do what it does by default */
static void read_signal(int signal_fd)
{
	struct signalfd_siginfo info;
	sigset_t signals;

	if (read(signal_fd, &info, sizeof(info)) < 0)
		return;
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_UNBLOCK, &signals, NULL);
}

/* Waits for the end, or stops it: after --seconds, or on a signal. */
static void attend(struct replay *replay, struct report *report, int signal_fd)
{
	uint64_t tick_ns = report->start_ns, moved = 0;
	uint64_t ns = report->start_ns, now;
	uint64_t end_ns = UINT64_MAX;
	struct pollfd fds[] = {
		{ .fd = replay_fd(replay), .events = POLLIN },
		{ .fd = signal_fd, .events = POLLIN },
	};

	if (report->args->seconds > 0)
		end_ns = tick_ns + (uint64_t)(report->args->seconds *
					      (double)NS_PER_S);
	tick_ns += NS_PER_S;
	while (!(fds[0].revents & POLLIN)) {
		uint64_t wake_ns = tick_ns < end_ns ? tick_ns : end_ns;

		now = replay_now_ns();
		poll(fds, 2, wake_ns > now ?
			     (int)((wake_ns - now + 999999) / 1000000) : 0);
		if (fds[1].revents & POLLIN) {
			report->interrupted = true;
			replay_stop(replay);
			/* the next one ends the process as usual */
			fds[1].fd = -1;
			read_signal(signal_fd);
		}
		now = replay_now_ns();
		if (now >= end_ns) {
			replay_stop(replay);
			end_ns = UINT64_MAX;
		}
		if (now >= tick_ns) {
			while (tick_ns <= now)
				tick_ns += NS_PER_S;
			replay_tally(replay, &report->tally);
			if (!report->args->quiet)
				print_progress(report, &moved, &ns);
		}
	}
}

/* The pool's own counters, if they can be read. */
static bool pool_writes(const char *pool, uint64_t *put_bytes,
			uint64_t *reinsert_bytes)
{
	struct kvblk_admin *admin;
	struct kvblk_stats *stats;
	bool known = false;

	if (kvblk_admin_open(&admin))
		return false;
	if (!kvblk_stats_get(admin, pool, &stats) && stats) {
		*put_bytes = stats->counter[KVBLK_A_COUNTER_PUT_BYTES];
		*reinsert_bytes = stats->counter[KVBLK_A_COUNTER_REINSERT_BYTES];
		kvblk_stats_free(stats);
		known = true;
	}
	kvblk_admin_close(admin);
	return known;
}

static const struct {
	const char *name;
	const char *title;
} times[REPLAY_TIMES] = {
	[REPLAY_GET_BATCH] = { "get_batch", "get, a batch" },
	[REPLAY_GET_BLOCK] = { "get_block", "get, by block" },
	[REPLAY_PUT_BATCH] = { "put_batch", "put, a batch" },
	[REPLAY_PUT_BLOCK] = { "put_block", "put, by block" },
	[REPLAY_LOOKUP] = { "lookup", "lookup" },
};

static json_t *json_times(const struct replay_tally *tally)
{
	json_t *json = json_object();

	for (int i = 0; i < REPLAY_TIMES; i++) {
		const struct hist *h = &tally->time[i];

		json_object_set_new(json, times[i].name,
			json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}",
				"count", (json_int_t)hist_total(h),
				"p50", (json_int_t)hist_quantile(h, 0.5),
				"p90", (json_int_t)hist_quantile(h, 0.9),
				"p99", (json_int_t)hist_quantile(h, 0.99),
				"p99.9", (json_int_t)hist_quantile(h, 0.999),
				"max", (json_int_t)hist_quantile(h, 1)));
	}
	return json;
}

static void set_counter(json_t *json, const char *name,
			const struct replay_tally *tally,
			enum replay_counter counter)
{
	json_object_set_new(json, name,
		json_integer((json_int_t)replay_count(tally, counter)));
}

static double write_amplification(const struct report *report)
{
	return ratio(report->pool_put_bytes + report->pool_reinsert_bytes,
		     report->pool_put_bytes);
}

static json_t *json_report(const struct report *report)
{
	static const struct {
		const char *name;
		enum replay_counter counter;
	} counters[] = {
		{ "requests", REPLAY_REQUESTS },
		{ "blocks", REPLAY_REFS },
		{ "hits", REPLAY_HITS },
		{ "puts", REPLAY_PUTS },
		{ "put_bytes", REPLAY_PUT_BYTES },
		{ "declined", REPLAY_DECLINED },
		{ "exists", REPLAY_EXISTS },
		{ "put_errors", REPLAY_PUT_ERRORS },
		{ "gets", REPLAY_GETS },
		{ "get_bytes", REPLAY_GET_BYTES },
		{ "get_misses", REPLAY_GET_MISSES },
		{ "direct_blocks", REPLAY_DIRECT },
		{ "bytes_verified", REPLAY_VERIFIED },
	};
	const struct replay_tally *t = &report->tally;
	const struct replay_opts *opts = &report->args->replay;
	uint64_t put_bytes = replay_count(t, REPLAY_PUT_BYTES);
	uint64_t get_bytes = replay_count(t, REPLAY_GET_BYTES);
	uint64_t hits = replay_count(t, REPLAY_HITS);
	uint64_t refs = replay_count(t, REPLAY_REFS);
	json_t *json;

	json = json_pack("{s:s, s:I, s:i, s:f, s:b, s:f, s:I, s:b, s:s?}",
		"pool", opts->pool,
		"block_size", (json_int_t)opts->block_size,
		"threads", (int)opts->nr_threads,
		"speed", opts->speed,
		"verify", (int)opts->verify,
		"seconds", report->seconds,
		"requests_in_trace", (json_int_t)report->trace->nr_reqs,
		"interrupted", (int)report->interrupted,
		"failure", report->failure.what);
	for (size_t i = 0; i < ARRAY_SIZE(counters); i++)
		set_counter(json, counters[i].name, t, counters[i].counter);
	json_object_set_new(json, "misses",
		json_integer((json_int_t)(refs > hits ? refs - hits : 0)));
	json_object_set_new(json, "hit_ratio", json_real(ratio(hits, refs)));
	json_object_set_new(json, "put_mib_s",
			    json_real(mib_per_s(put_bytes, report->seconds)));
	json_object_set_new(json, "get_mib_s",
			    json_real(mib_per_s(get_bytes, report->seconds)));
	json_object_set_new(json, "mib_s",
		json_real(mib_per_s(put_bytes + get_bytes, report->seconds)));
	json_object_set_new(json, "write_amplification",
		report->has_writes && report->pool_put_bytes ?
		json_real(write_amplification(report)) : json_null());
	json_object_set_new(json, "mean_start_delay_ms",
		json_real(ratio(replay_count(t, REPLAY_LATE_MS),
				replay_count(t, REPLAY_REQUESTS))));
	json_object_set_new(json, "latency_ns", json_times(t));
	return json;
}

static void print_times(const struct replay_tally *tally)
{
	static const double quantiles[] = { 0.5, 0.9, 0.99, 0.999, 1 };
	char text[32];

	printf("%-14s %10s %10s %10s %10s %10s\n", "latency", "p50", "p90",
	       "p99", "p99.9", "max");
	for (int i = 0; i < REPLAY_TIMES; i++) {
		if (!hist_total(&tally->time[i]))
			continue;
		printf("  %-12s", times[i].title);
		for (size_t q = 0; q < ARRAY_SIZE(quantiles); q++)
			printf(" %10s",
			       cli_format_ns(hist_quantile(&tally->time[i],
							   quantiles[q]),
					     text, sizeof(text)));
		putchar('\n');
	}
}

static void print_report(const struct report *report)
{
	const struct replay_tally *t = &report->tally;
	const struct replay_opts *opts = &report->args->replay;
	uint64_t put_bytes = replay_count(t, REPLAY_PUT_BYTES);
	uint64_t get_bytes = replay_count(t, REPLAY_GET_BYTES);
	uint64_t hits = replay_count(t, REPLAY_HITS);
	uint64_t refs = replay_count(t, REPLAY_REFS);
	uint64_t moves = replay_count(t, REPLAY_PUTS) +
			 replay_count(t, REPLAY_GETS) -
			 replay_count(t, REPLAY_GET_MISSES);
	char bytes[32];

	printf("requests       %" PRIu64 " of %zu in %.1f s, %u thread%s, blocks of %s%s\n",
	       replay_count(t, REPLAY_REQUESTS), report->trace->nr_reqs,
	       report->seconds, opts->nr_threads,
	       opts->nr_threads > 1 ? "s" : "",
	       cli_format_bytes(opts->block_size, bytes, sizeof(bytes)),
	       report->interrupted ? ", interrupted" : "");
	if (opts->speed > 0)
		printf("speed          %g; requests began %.1f ms late on average\n",
		       opts->speed, ratio(replay_count(t, REPLAY_LATE_MS),
					  replay_count(t, REPLAY_REQUESTS)));
	printf("blocks         %" PRIu64 ": %" PRIu64 " hits, %" PRIu64 " misses\n",
	       refs, hits, refs > hits ? refs - hits : 0);
	printf("hit ratio      %.4f by leading runs\n", ratio(hits, refs));
	printf("puts           %" PRIu64 " stored (%s)",
	       replay_count(t, REPLAY_PUTS),
	       cli_format_bytes(put_bytes, bytes, sizeof(bytes)));
	printf(", %" PRIu64 " declined, %" PRIu64 " existed, %" PRIu64 " failed\n",
	       replay_count(t, REPLAY_DECLINED), replay_count(t, REPLAY_EXISTS),
	       replay_count(t, REPLAY_PUT_ERRORS));
	printf("gets           %" PRIu64 " (%s), %" PRIu64 " of them missed after their lookup\n",
	       replay_count(t, REPLAY_GETS),
	       cli_format_bytes(get_bytes, bytes, sizeof(bytes)),
	       replay_count(t, REPLAY_GET_MISSES));
	printf("throughput     %.1f MiB/s: put %.1f, get %.1f\n",
	       mib_per_s(put_bytes + get_bytes, report->seconds),
	       mib_per_s(put_bytes, report->seconds),
	       mib_per_s(get_bytes, report->seconds));
	printf("direct         %.1f %% of the blocks moved without a bounce\n",
	       100 * ratio(replay_count(t, REPLAY_DIRECT), moves));
	if (report->has_writes && report->pool_put_bytes)
		printf("write ampl.    %.3f (reclaim wrote %s again)\n",
		       write_amplification(report),
		       cli_format_bytes(report->pool_reinsert_bytes, bytes,
					sizeof(bytes)));
	if (opts->verify)
		printf("verified       %s, %s\n",
		       cli_format_bytes(replay_count(t, REPLAY_VERIFIED), bytes,
					sizeof(bytes)),
		       report->failure.what && !report->failure.err ?
		       "then a wrong byte" : "every byte right");
	print_times(t);
}

static int tell_failure(const struct replay_failure *failure,
			const struct replay_opts *opts)
{
	if (!failure->what)
		return CLI_OK;
	if (failure->err)
		return cli_fail("pool %s: %s: %s", opts->pool, failure->what,
				kvblk_strerror(failure->err));
	if (failure->offset == failure->length)
		return cli_fail("WRONG LENGTH: block %.*s came back with %u bytes, %u were put",
				REPLAY_KEY_LEN, failure->key, failure->length,
				opts->block_size);
	return cli_fail("WRONG BYTE: block %.*s, offset %" PRIu64 ": is 0x%02x, must be 0x%02x",
			REPLAY_KEY_LEN, failure->key, failure->offset,
			failure->got, failure->want);
}

static int run_replay(const struct replay_args *args, const struct trace *trace)
{
	struct report *report = calloc(1, sizeof(*report));
	uint64_t puts = 0, reinserts = 0;
	struct replay *replay;
	sigset_t signals;
	int signal_fd, ret;

	if (!report)
		return cli_fail("no memory");
	report->args = args;
	report->trace = trace;
	/* blocked before the threads start, so that they inherit it */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (signal_fd < 0) {
		ret = cli_fail("signalfd: %s", strerror(errno));
		goto free_report;
	}
	report->has_writes = pool_writes(args->replay.pool, &puts, &reinserts);

	replay = replay_start(&args->replay, trace);
	if (!replay) {
		ret = CLI_ERROR;
		goto close_signals;
	}
	report->start_ns = replay_start_ns(replay);
	attend(replay, report, signal_fd);
	replay_end(replay, &report->tally, &report->failure);
	report->seconds = (double)(replay_now_ns() - report->start_ns) /
			  (double)NS_PER_S;

	report->has_writes = report->has_writes &&
			     pool_writes(args->replay.pool,
					 &report->pool_put_bytes,
					 &report->pool_reinsert_bytes);
	report->pool_put_bytes -= puts;
	report->pool_reinsert_bytes -= reinserts;

	if (args->json) {
		ret = cli_print_json(json_report(report));
	} else {
		print_report(report);
		ret = cli_flush();
	}
	if (tell_failure(&report->failure, &args->replay))
		ret = CLI_ERROR;
close_signals:
	close(signal_fd);
free_report:
	free(report);
	return ret;
}

int replay_main(int argc, char **argv)
{
	struct replay_args args = {
		.cache = "kvblk",
		.dram_mode = "evict",
		.traffic = TRACE_SYNTHETIC_CHAT,
		.replay = {
			.block_size = BLOCK_SIZE_DEFAULT,
			.buffer_size = BUFFER_DEFAULT,
			.nr_threads = 1,
		},
		.sim = SIM_OPTS_DEFAULT,
	};
	struct trace trace = { 0 };
	int ret;

	ttft_defaults(&args.ttft);
	cli_parse(&replay_argp, argc, argv, &args);
	ret = load(&args, &trace);
	if (ret)
		return ret;
	args.replay.nr_reqs = trace.nr_reqs;
	if (args.simulate)
		ret = run_simulation(&args, &trace);
	else
		ret = run_replay(&args, &trace);
	trace_free(&trace);
	return ret;
}
