// SPDX-License-Identifier: MIT
/* The model of ttft.h: presets, options, arrivals and arithmetic. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "pool/sizing.h"
#include "replay/ttft.h"

#define MIB		1048576.0
#define BF16_BYTES	2
#define TOKENS		512	/* tokens in a block of the Mooncake traces */

/* hidden_size and intermediate_size of config.json; plan_models has the rest */
static const struct ttft_model {
	const char *name;
	unsigned int hidden;
	unsigned int ffn;
} models[] = {
	{ "llama-3.1-8b", 4096, 14336 },	/* meta-llama/Llama-3.1-8B */
	{ "llama-3.1-70b", 8192, 28672 },	/* meta-llama/Llama-3.1-70B */
	{ 0 },
};

/* peak of BF16 on the tensor cores, without sparsity */
static const struct ttft_gpu {
	const char *name;
	double flops;
} gpus[] = {
	{ "h100", 989.4e12 },	/* SXM5; NVIDIA H100 Tensor Core GPU Architecture, table 2 */
	{ "a100", 312e12 },	/* NVIDIA A100 Tensor Core GPU datasheet */
	{ 0 },
};

/* Parse "6000" or "6000,100us". */
static void take_load(const struct argp_state *state, const char *what, const char *text,
		      struct ttft_load *load)
{
	const char *comma = strchrnul(text, ',');
	char rate[32];

	snprintf(rate, sizeof(rate), "%.*s", (int)(comma - text), text);
	load->bytes_s = cli_real(state, what, rate, 1, 1e8) * MIB;
	load->latency_s = *comma ? cli_time(state, what, comma + 1, 1e-9, 10) : 0;
}

static void take_flash_load(struct argp_state *state, const char *text, void *field)
{
	take_load(state, "--flash-load", text, field);
}

static void take_dram_load(struct argp_state *state, const char *text, void *field)
{
	take_load(state, "--dram-load", text, field);
}

#define AT(field) CLI_FIELD(struct ttft_opts, field)

const struct cli_option ttft_options[] = {
	{ .help = "A model of the time to first token, with --simulate:" },
	{ "ttft", 0, CLI_ROW, AT(model), "MODEL",
	  "Model to compute: llama-3.1-8b or llama-3.1-70b",
	  .words = &models[0].name, .stride = sizeof(models[0]), .with = "simulate" },
	{ "flash-load", 0, CLI_CALL, AT(flash), "MIB_S[,TIME]",
	  "Throughput of all loads from flash, and latency (0)",
	  .take = take_flash_load, .with = "ttft" },
	{ "dram-load", 0, CLI_CALL, AT(dram), "MIB_S[,TIME]",
	  "Throughput of all loads from memory, and latency (0)",
	  .take = take_dram_load, .with = "ttft" },
	{ "gpu", 0, CLI_ROW, AT(gpu), "NAME", "h100 (the default) or a100",
	  .words = &gpus[0].name, .stride = sizeof(gpus[0]), .with = "ttft" },
	{ "gpus", 0, CLI_NUMBER, AT(nr_gpus), "N", "GPUs in each server (1)", 1, 1024,
	  .with = "ttft" },
	{ "servers", 0, CLI_NUMBER, AT(nr_servers), "N",
	  "Servers, each with one request at a time (1); also twice as many", 1, 1024,
	  .with = "ttft" },
	{ "mfu", 0, CLI_REAL, AT(mfu), "F", "Share of its peak that the GPU reaches (0.5)",
	  0.01, 1, .with = "ttft" },
	{ "tokens", 0, CLI_NUMBER, AT(tokens), "N", "Tokens in a block (512)", 1, 1 << 20,
	  .with = "ttft" },
	{ 0 },
};

void ttft_defaults(struct ttft_opts *o)
{
	*o = (struct ttft_opts){
		.gpu = &gpus[0], .nr_gpus = 1, .nr_servers = 1, .tokens = TOKENS, .mfu = 0.5,
	};
}

/*
 * Returns the operations to compute @nr tokens after @before others: two for each weight of
 * the layers, and four for each element of the queries and each token attended to.
 */
static double prefill_flops(const struct ttft_model *m, double before, double nr)
{
	const struct plan_model *plan = plan_find_model(m->name);
	double hidden = m->hidden, kv = (double)plan->kv_heads * plan->dim;
	double weights = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * m->ffn;

	return plan->layers * nr * (2 * weights + 4 * hidden * (before + nr / 2));
}

/*
 * Returns the time to compute a request of @nr blocks with @lead hits; at least one token is
 * computed.
 */
static double compute_s(const struct ttft_opts *o, uint32_t nr, uint32_t lead)
{
	double all = (double)nr * o->tokens, before = (double)lead * o->tokens;

	if (before > all - 1)
		before = all - 1;
	return prefill_flops(o->model, before, all - before) /
	       (o->gpu->flops * o->nr_gpus * o->mfu);
}

/* smallest step of a clock, the largest deviation from it, and the fewest times that show it */
#define STEP_MIN_MS	100
#define STEP_PERMILLE	10
#define STEP_TIMES	4

/*
 * Returns the step of the clock in seconds, or 0: a clock steps if the times of arrival are
 * multiples of one, more or less, and each is that of two requests or more on average.
 */
static double clock_step(const struct trace *t)
{
	uint64_t step = UINT64_MAX, steps = 0, span = 0;
	size_t times = 1;

	for (size_t i = 1; i < t->nr_reqs; i++) {
		uint64_t gap = t->reqs[i].timestamp_ms - t->reqs[i - 1].timestamp_ms;

		if (t->reqs[i].timestamp_ms < t->reqs[i - 1].timestamp_ms)
			return 0;
		times += gap > 0;
		if (gap && gap < step)
			step = gap;
	}
	if (times < STEP_TIMES || t->nr_reqs < 2 * times || step < STEP_MIN_MS)
		return 0;
	for (size_t i = 1; i < t->nr_reqs; i++) {
		uint64_t gap = t->reqs[i].timestamp_ms - t->reqs[i - 1].timestamp_ms;
		uint64_t nr = (gap + step / 2) / step;
		uint64_t off = gap > nr * step ? gap - nr * step : nr * step - gap;

		if (off * 1000 > nr * step * STEP_PERMILLE)
			return 0;
		steps += nr;
		span += gap;
	}
	return round((double)span / (double)steps) / 1000;
}

/*
 * Set the time of arrival of each request. Those with the same time are spread over the step of
 * the clock, because they arrived at any time within it.
 */
static void arrive(const struct trace *t, double step_s, double *arrival_s)
{
	double latest_s = 0;
	size_t first, end;

	for (first = 0; first < t->nr_reqs; first = end) {
		uint64_t ms = t->reqs[first].timestamp_ms;

		for (end = first; end < t->nr_reqs && t->reqs[end].timestamp_ms == ms; end++)
			;
		for (size_t i = first; i < end; i++) {
			double share = (double)(i - first) / (double)(end - first);

			latest_s = fmax(latest_s, (double)ms / 1000 + step_s * share);
			arrival_s[i] = latest_s;
		}
	}
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Serve @nr jobs, at least one. Returns 0 or -ENOMEM. */
static int run_queue(const struct ttft_queue_opts *o, const struct ttft_job *jobs, size_t nr,
		     struct ttft_times *times)
{
	double span_s = jobs[nr - 1].arrival_s - jobs[0].arrival_s, busy_s;
	double *each = calloc(nr + 1, sizeof(*each));
	int ret = each ? ttft_queue_run(o, jobs, nr, each, &busy_s) : -ENOMEM;

	if (!ret) {
		qsort(each, nr, sizeof(*each), compare_times);
		for (size_t i = 0; i < nr; i++)
			times->mean_s += each[i] / (double)nr;
		times->p50_s = each[(nr - 1) / 2];
		times->p99_s = each[(nr * 99 + 99) / 100 - 1];
		if (span_s > 0)
			times->load = busy_s / (span_s * o->nr_servers);
	}
	free(each);
	return ret;
}

/* Fill @row with the times of a case. Returns 0 or -ENOMEM. */
static int run_case(const struct ttft_opts *o, const struct trace *t, const double *arrival_s,
		    const struct sim_found *found, bool prestage, struct ttft_row *row)
{
	struct ttft_queue_opts queue = {
		.block = (double)plan_block_bytes(plan_find_model(o->model->name), o->tokens,
						  BF16_BYTES, 1),
		.dram = o->dram, .flash = o->flash, .prestage = prestage,
	};
	struct ttft_job *jobs = calloc(t->nr_reqs, sizeof(*jobs));
	int ret = jobs ? 0 : -ENOMEM;
	size_t nr = 0;

	for (size_t i = 0; !ret && i < t->nr_reqs; i++) {
		if (!t->reqs[i].nr)
			continue;
		jobs[nr++] = (struct ttft_job){
			.arrival_s = arrival_s[i],
			.dram = found[i].dram,
			.flash = found[i].lead - found[i].dram,
			.compute_s = compute_s(o, t->reqs[i].nr, found[i].lead),
		};
	}
	for (unsigned int i = 0; !ret && i < TTFT_LOADS; i++) {
		queue.nr_servers = o->nr_servers << i;
		ret = run_queue(&queue, jobs, nr, &row->times[i]);
	}
	free(jobs);
	return ret;
}

static const struct {
	const char *name;
	const char *title;
	bool flash;
	bool dram;
	bool user;
	bool prestage;
} cases[TTFT_ROWS] = {
	{ "none", "no tier", .flash = false },
	{ "flash", "flash", .flash = true },
	{ "dram", "flash, memory", .flash = true, .dram = true },
	{ "prestage", "  and prestage", .flash = true, .dram = true, .prestage = true },
	{ "user_lru", "flash, a runtime's LRU", .flash = true, .dram = true, .user = true },
};

int ttft_run(const struct ttft_opts *o, const struct trace *t,
	     const struct sim_opts *sim, struct ttft *ttft)
{
	struct sim_found *found = calloc(t->nr_reqs, sizeof(*found));
	double *arrival_s = calloc(t->nr_reqs, sizeof(*arrival_s));
	struct sim_result r = { 0 };
	int ret = found && arrival_s ? 0 : -ENOMEM;

	ttft->nr = 0;
	ttft->clock_step_s = clock_step(t);
	if (!ret)
		arrive(t, ttft->clock_step_s, arrival_s);
	for (size_t i = 0; !ret && i < TTFT_ROWS; i++) {
		struct ttft_row *row = &ttft->rows[ttft->nr];
		struct sim_opts opts = *sim;

		if (cases[i].dram && !sim->dram)
			continue;
		opts.found = found;
		if (!cases[i].dram)
			opts.dram = 0;
		if (cases[i].user)
			opts.dram_mode = SIM_DRAM_USER;
		if (cases[i].flash && !cases[i].prestage)
			ret = simulate(t, &opts, &r);
		*row = (struct ttft_row){ .name = cases[i].name, .title = cases[i].title,
					  .writes_per_block = r.writes_per_block };
		ret = ret ?: run_case(o, t, arrival_s, found, cases[i].prestage, row);
		ttft->nr++;
	}
	free(found);
	free(arrival_s);
	return ret;
}

static json_t *json_times(const struct ttft_times *times)
{
	return json_pack("{s:f, s:f, s:f, s:f}", "mean_s", times->mean_s, "p50_s", times->p50_s,
			 "p99_s", times->p99_s, "load", times->load);
}

json_t *ttft_json(const struct ttft_opts *o, const struct ttft *ttft)
{
	json_t *rows = json_object();

	for (size_t i = 0; o->model && i < ttft->nr; i++) {
		const struct ttft_row *row = &ttft->rows[i];
		json_t *json = json_times(&row->times[TTFT_HEAVY]);

		json_object_set_new(json, "light", json_times(&row->times[TTFT_LIGHT]));
		json_object_set_new(json, "writes_per_block", json_real(row->writes_per_block));
		json_object_set_new(rows, row->name, json);
	}
	return rows;
}

void ttft_print(const struct ttft_opts *o, const struct ttft *ttft)
{
	static const char * const head[] = { "mean", "p50", "p99" };
	char text[32];

	if (!o->model)
		return;
	printf("time to first token, %s, %u x %s a server", o->model->name, o->nr_gpus,
	       o->gpu->name);
	if (ttft->clock_step_s > 0)
		printf("; the trace's clock steps by %g s, arrivals are spread within",
		       ttft->clock_step_s);
	printf("\n%-24s", "");
	for (unsigned int load = 0; load < TTFT_LOADS; load++)
		printf("  servers: %-29u", o->nr_servers << load);
	printf("\n%-24s", "");
	for (unsigned int load = 0; load < TTFT_LOADS; load++) {
		for (size_t i = 0; i < ARRAY_SIZE(head); i++)
			printf(" %9s", head[i]);
		printf(" %8s ", "load");
	}
	printf(" writes/block\n");
	for (size_t i = 0; i < ttft->nr; i++) {
		const struct ttft_row *row = &ttft->rows[i];

		printf("  %-22s", row->title);
		for (unsigned int load = 0; load < TTFT_LOADS; load++) {
			const struct ttft_times *at = &row->times[load];
			const double times[] = { at->mean_s, at->p50_s, at->p99_s };

			for (size_t j = 0; j < ARRAY_SIZE(times); j++)
				printf(" %9s", cli_format_ns((uint64_t)(times[j] * 1e9), text,
							     sizeof(text)));
			printf(" %8.3f ", at->load);
		}
		printf(" %12.3f\n", row->writes_per_block);
	}
}
