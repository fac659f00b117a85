// SPDX-License-Identifier: MIT
/*
 * kvblk replay: options, progress and summary; replay.h describes a replay. --simulate
 * queries the module's policy instead and needs no pool.
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
#include "cli/options.h"
#include "replay/pod.h"
#include "replay/replay.h"
#include "replay/simulate.h"
#include "replay/trace.h"
#include "replay/ttft.h"

#define NS_PER_S		1000000000ull
#define BUFFER_DEFAULT		(64ull << 20)
#define BLOCK_SIZE_DEFAULT	(640u << 10)

struct replay_args {
	struct cli_list list;
	bool quiet;
	bool simulate;
	const char *trace;
	int kind;		/* synthetic traffic: index in kinds; -1: none */
	uint64_t seed;		/* seed of synthetic traffic */
	uint32_t requests;	/* requests of synthetic traffic; 0: the kind's default */
	double seconds;		/* time limit; 0: up to the end of the trace */
	size_t limit;		/* number of requests; 0: all */
	struct trace_synthetic_opts traffic;
	struct replay_opts replay;
	struct sim_opts sim;
	struct ttft_opts ttft;
	struct pod_opts pod;
};

static const char *const kinds[] = {
	"chat", "prompts", "long", "once", "scan", "documents", "week", NULL,
};

static const char *const dram_modes[] = {
	[SIM_DRAM_THROUGH] = "through",
	[SIM_DRAM_EVICT] = "evict",
	[SIM_DRAM_TOUCHED] = "touched",
	NULL,
};

static const char *const caches[] = {
	[SIM_POLICY] = "kvblk",
	[SIM_FIFO] = "fifo",
	[SIM_LRU] = "lru",
	[SIM_OPTIMUM] = "optimum",
	NULL,
};

#define AT(field) CLI_FIELD(struct replay_args, field)

static const struct cli_option replay_options[] = {
	{ .help = "What is replayed:" },
	{ "trace", 0, CLI_STRING, AT(trace), "FILE", "A trace in the Mooncake format; - is stdin",
	  .without = "synthetic" },
	{ "synthetic", 0, CLI_WORD, AT(kind), "KIND",
	  "Synthetic traffic: chat (the default), prompts, long, once, scan, documents or week",
	  .words = kinds, .optional = true },
	{ "requests", 0, CLI_NUMBER, AT(requests), "N",
	  "With --synthetic: number of requests (12000; week: 180000)", 1, 100000000, .with = "synthetic" },
	{ "seed", 0, CLI_NUMBER, AT(seed), "N", "With --synthetic: seed of the generator (1)",
	  .with = "synthetic" },
	{ "limit", 0, CLI_NUMBER, AT(limit), "N", "Only the first N requests", 1 },
	{ .help = "On a pool:" },
	{ "pool", 0, CLI_POOL, AT(replay.pool), "NAME", "The pool", .without = "simulate" },
	{ "verify", 0, CLI_FLAG, AT(replay.verify), NULL,
	  "Store bytes derived from the key, check every byte of a get",
	  .without = "simulate" },
	{ "block-size", 0, CLI_SIZE, AT(replay.block_size), "BYTES",
	  "Bytes in a block, with suffix K or M (640K)", 1, KVBLK_VALUE_MAX,
	  .without = "simulate" },
	{ "speed", 0, CLI_REAL, AT(replay.speed), "X",
	  "Seconds of the trace in a second: 1 is real time, 0 as fast as possible (0)", 0, 1e6,
	  .without = "simulate" },
	{ "threads", 0, CLI_NUMBER, AT(replay.nr_threads), "N", "Concurrent requests (1)", 1, 1024,
	  .without = "simulate" },
	{ "seconds", 0, CLI_TIME, AT(seconds), "TIME", "Stop after this time", 0.001, 1e7,
	  .without = "simulate" },
	{ "buffer", 0, CLI_SIZE, AT(replay.buffer_size), "BYTES",
	  "Memory of each thread; limits the size of batches (64M)", 4096, 1ull << 40,
	  .without = "simulate" },
	{ "quiet", 'q', CLI_FLAG, AT(quiet), NULL, "No progress line each second",
	  .without = "simulate" },
	{ .help = "Without a pool:" },
	{ "simulate", 0, CLI_FLAG, AT(simulate), NULL,
	  "Simulate the module's admission and reclaim, without I/O" },
	{ "capacity", 0, CLI_REAL, AT(sim.capacity), "F",
	  "Simulated capacity, as a share of the trace's distinct blocks (0.05)", 1e-6, 100,
	  .with = "simulate" },
	{ "dram", 0, CLI_REAL, AT(sim.dram), "F",
	  "Simulated dram_bytes, host memory in front of the flash, as a share of the distinct blocks (0)",
	  0, 100, .with = "simulate" },
	{ "dram-mode", 0, CLI_WORD, AT(sim.dram_mode), "MODE",
	  "Simulated tunable dram_mode: through, evict or touched (evict)",
	  .words = dram_modes, .with = "dram" },
	{ "dram-promote", 0, CLI_NUMBER, AT(sim.dram_promote), "N",
	  "Simulated tunable dram_promote, 0 or 1 (0)", 0, 1, .with = "dram" },
	{ "segments", 0, CLI_NUMBER, AT(sim.nr_segments), "N", "Simulated segments (1024)",
	  8, 1 << 20, .with = "simulate" },
	{ "batch", 0, CLI_NUMBER, AT(sim.batch), "N",
	  "Blocks put together; 0: all of a request (0)", 0, KVBLK_OPS_MAX,
	  .with = "simulate" },
	{ "admit-permille", 0, CLI_NUMBER, AT(sim.admit_permille), "N",
	  "Simulated tunable admit_permille (the module's default)", 0, 1000,
	  .with = "simulate" },
	{ "first-permille", 0, CLI_NUMBER, AT(sim.first_permille), "N",
	  "Simulated tunable first_permille, without first_duel (by first_duel)", 0, 1000,
	  .with = "simulate" },
	{ "reinsert-permille", 0, CLI_NUMBER, AT(sim.reinsert_permille), "N",
	  "Simulated tunable reinsert_permille (the module's default)", 0, 4000,
	  .with = "simulate" },
	{ "salt", 0, CLI_NUMBER, AT(sim.salt), "N",
	  "Change all simulated ids, to show the influence of chance (0)",
	  .with = "simulate" },
	{ "cache", 0, CLI_WORD, AT(sim.cache), "NAME",
	  "Cache to simulate: kvblk (the default); for comparison fifo, lru or optimum",
	  .words = caches, .with = "simulate" },
	{ "budget", 0, CLI_REAL, AT(sim.budget), "X",
	  "Writes allowed in a day of the trace, in capacities; enforced by the daemon's governor",
	  1e-3, 1e6, .with = "simulate", .without = "pod" },
	{ .at = offsetof(struct replay_args, ttft), .rows = ttft_options },
	{ .at = offsetof(struct replay_args, pod), .rows = pod_options },
	{ 0 },
};

static void check_replay(const struct argp_state *state, void *values)
{
	struct replay_args *args = values;

	if (!args->trace && args->kind < 0 && args->pod.nr_nodes)
		args->kind = 0;
	if (!args->trace && args->kind < 0)
		cli_usage(state, "missing --trace or --synthetic");
	if (!args->replay.pool && !args->simulate)
		cli_usage(state, "missing --pool or --simulate");
	if (args->sim.cache != SIM_POLICY && (args->sim.budget || args->sim.dram || args->ttft.model))
		cli_usage(state, "--%s needs --cache kvblk",
			  args->sim.budget ? "budget" : args->sim.dram ? "dram" : "ttft");
	if (args->ttft.model && !args->ttft.flash.bytes_s)
		cli_usage(state, "--ttft needs --flash-load");
	if (args->ttft.model && args->sim.dram && !args->ttft.dram.bytes_s)
		cli_usage(state, "--ttft with --dram needs --dram-load");
	if (args->pod.nr_nodes && (args->sim.cache != SIM_POLICY || args->ttft.model))
		cli_usage(state, "--%s cannot be used with --pod",
			  args->ttft.model ? "ttft" : "cache");
	pod_check(state, &args->pod);
	if (args->kind >= 0)
		trace_synthetic_preset(kinds[args->kind], &args->traffic);
	args->traffic.seed = args->seed;
	if (args->requests)
		args->traffic.nr_reqs = args->requests;
	if (!args->pod.nr_nodes)
		return;
	if (args->traffic.nr_reqs > UINT32_MAX / args->pod.nr_nodes)
		cli_usage(state, "--requests %" PRIu32 ": too many for each of %" PRIu32 " nodes",
			  args->traffic.nr_reqs, args->pod.nr_nodes);
	args->traffic.nr_nodes = args->pod.nr_nodes;
	args->traffic.nr_reqs *= args->pod.nr_nodes;
}

static const struct cli_syntax replay_syntax = {
	.options = replay_options,
	.check = check_replay,
	.doc = "Replay a trace of chat requests on a pool, as a runtime would: look up a prompt's blocks, get the leading blocks that are present, put the others.\v"
	       "Examples:\n"
	       "  kvblk replay --pool kv0 --trace chat.jsonl --verify --threads 4\n"
	       "  kvblk replay --pool kv0 --synthetic --requests 1000\n"
	       "  kvblk replay --simulate --capacity 0.1 --trace chat.jsonl -o json\n"
	       "  kvblk replay --simulate --pod 16 --sharing follow --trace chat.jsonl",
};

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Keep only the first @limit requests. Returns an enum cli_exit. */
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

	if (args->kind >= 0) {
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

/* Returns the blocks written on @day, as a share of the budget. */
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
	       dram_modes[args->sim.dram_mode]);
	printf("  hits          %" PRIu64 " of the above\n", r->dram_hits);
	printf("  evictions     %" PRIu64 " written, %" PRIu64 " dropped\n",
	       r->dram_writes, r->dram_drops);
	printf("  copies        %" PRIu64 " of blocks on flash\n", r->dram_copies);
}

static const char too_small[] =
	"the simulated capacity is too small for its segments; choose a larger --capacity or fewer --segments";

static int run_pod(const struct replay_args *args, const struct trace *trace)
{
	struct pod_result r;
	int err = pod_simulate(trace, &args->sim, &args->pod, &r);

	if (err == -EINVAL)
		return cli_fail("%s", too_small);
	if (err)
		return cli_fail("simulation: %s", strerror(-err));
	if (args->list.json)
		return cli_print_json(pod_json(&args->pod, trace, &r));
	pod_print(&args->pod, trace, &r);
	return cli_flush();
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
		return cli_fail("%s", too_small);
	if (err)
		return cli_fail("simulation: %s", strerror(-err));
	if (args->list.json)
		return cli_print_json(json_pack(
			"{s:s, s:f, s:I, s:f, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:f, s:o}",
			"cache", caches[args->sim.cache],
			"capacity", args->sim.capacity,
			"capacity_blocks", (json_int_t)r.capacity_blocks,
			"dram", args->sim.dram,
			"dram_mode", dram_modes[args->sim.dram_mode],
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
			"clock_step_s", ttft.clock_step_s,
			"ttft", ttft_json(&args->ttft, &ttft)));
	printf("cache           %s\n", caches[args->sim.cache]);
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

/* report of a replay on a pool */
struct report {
	const struct replay_args *args;
	const struct trace *trace;
	struct replay_tally tally;
	struct replay_failure failure;
	uint64_t start_ns;
	double seconds;
	bool interrupted;
	/* counters of the pool, as differences between start and end of the replay */
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
	/* a single call, because other programs may write to the terminal, too */
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

/* Read the pending signal and restore the default action for the next one. */
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

/* Wait for the end of the replay. Stop it after --seconds, or on a signal. */
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
			/* the next signal ends the process */
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

/* Read the pool's counters. Returns false if that fails. */
static bool pool_writes(const char *pool, uint64_t *put_bytes,
			uint64_t *reinsert_bytes)
{
	struct kvblk_admin *admin;
	struct kvblk_stats *stats;
	bool known = false;

	if (kvblk_admin_open(&admin))
		return false;
	if (!kvblk_stats_list(admin, KVBLK_STATS_SCOPE_POOL, pool, &stats) && stats) {
		*put_bytes = stats->counter[KVBLK_A_COUNTER_PUT_BYTES];
		*reinsert_bytes = stats->counter[KVBLK_A_COUNTER_REINSERT_BYTES];
		kvblk_list_free(stats);
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
				strerror(-failure->err));
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
	/* block the signals before the threads start: the threads inherit the mask */
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

	if (args->list.json) {
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
		.kind = -1,
		.seed = 1,
		.replay = {
			.block_size = BLOCK_SIZE_DEFAULT,
			.buffer_size = BUFFER_DEFAULT,
			.nr_threads = 1,
		},
		.sim = SIM_OPTS_DEFAULT,
		.pod = POD_OPTS_DEFAULT,
	};
	struct trace trace = { 0 };
	int ret;

	ttft_defaults(&args.ttft);
	cli_parse(&replay_syntax, argc, argv, &args);
	ret = load(&args, &trace);
	if (ret)
		return ret;
	args.replay.nr_reqs = trace.nr_reqs;
	if (args.pod.nr_nodes)
		ret = run_pod(&args, &trace);
	else if (args.simulate)
		ret = run_simulation(&args, &trace);
	else
		ret = run_replay(&args, &trace);
	trace_free(&trace);
	return ret;
}
