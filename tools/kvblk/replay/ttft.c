// SPDX-License-Identifier: MIT
/* The model of ttft.h: presets, options and arithmetic. */
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
	  "Throughput and latency (0) of loads from flash",
	  .take = take_flash_load, .with = "ttft" },
	{ "dram-load", 0, CLI_CALL, AT(dram), "MIB_S[,TIME]", "Throughput and latency (0) of loads from memory",
	  .take = take_dram_load, .with = "ttft" },
	{ "gpu", 0, CLI_ROW, AT(gpu), "NAME", "h100 (the default) or a100",
	  .words = &gpus[0].name, .stride = sizeof(gpus[0]), .with = "ttft" },
	{ "gpus", 0, CLI_NUMBER, AT(nr_gpus), "N", "GPUs in each server (1)", 1, 1024,
	  .with = "ttft" },
	{ "servers", 0, CLI_NUMBER, AT(nr_servers), "N",
	  "Servers, each with one request at a time (1)", 1, 1024, .with = "ttft" },
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

static double load_s(const struct ttft_load *load, double bytes)
{
	return bytes > 0 ? load->latency_s + bytes / load->bytes_s : 0;
}

/**
 * struct queue - requests that wait for servers
 * @o: options
 * @block: bytes of a block
 * @prestage: load the blocks of waiting requests from flash to memory
 * @staging_s: time when the prestaging so far is complete
 * @free_s: time when each server is free
 * @busy_s: work of all servers
 */
struct queue {
	const struct ttft_opts *o;
	double block;
	bool prestage;
	double staging_s;
	double *free_s;
	double busy_s;
};

/* Returns how many of @nr blocks are in memory at @until_s, if loading may begin at @from_s. */
static double prestaged(struct queue *q, double nr, double from_s, double until_s)
{
	const struct ttft_load *flash = &q->o->flash;
	double begin_s = fmax(from_s, q->staging_s), blocks;

	if (begin_s >= until_s || !nr)
		return 0;
	q->staging_s = fmin(begin_s + load_s(flash, nr * q->block), until_s);
	blocks = floor((until_s - begin_s - flash->latency_s) * flash->bytes_s / q->block);
	return fmax(0, fmin(nr, blocks));
}

/* Returns the time to first token of a request that arrives at @now_s. */
static double serve(struct queue *q, const struct trace_req *req, const struct sim_found *found)
{
	double now_s = (double)req->timestamp_ms / 1000, start_s, work_s, *server = q->free_s;
	double dram = found->dram, flash = found->lead - found->dram, staged = 0;

	for (unsigned int i = 1; i < q->o->nr_servers; i++)
		if (q->free_s[i] < *server)
			server = &q->free_s[i];
	start_s = fmax(now_s, *server);
	if (q->prestage)
		staged = prestaged(q, flash, now_s, start_s);
	work_s = load_s(&q->o->dram, (dram + staged) * q->block) +
		 load_s(&q->o->flash, (flash - staged) * q->block) +
		 compute_s(q->o, req->nr, found->lead);
	*server = start_s + work_s;
	q->busy_s += work_s;
	return *server - now_s;
}

static int compare_times(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Fill @row with the results of one case. Returns 0 or -ENOMEM. */
static int run_queue(const struct ttft_opts *o, const struct trace *t,
		     const struct sim_found *found, bool prestage, struct ttft_row *row)
{
	uint64_t span_ms = t->reqs[t->nr_reqs - 1].timestamp_ms - t->reqs[0].timestamp_ms;
	struct queue q = {
		.o = o, .prestage = prestage,
		.block = (double)plan_block_bytes(plan_find_model(o->model->name), o->tokens,
						  BF16_BYTES, 1),
		.free_s = calloc(o->nr_servers, sizeof(*q.free_s)),
	};
	double *times = calloc(t->nr_reqs, sizeof(*times));
	size_t nr = 0;

	if (!q.free_s || !times) {
		free(q.free_s);
		free(times);
		return -ENOMEM;
	}
	for (size_t i = 0; i < t->nr_reqs; i++) {
		if (!t->reqs[i].nr)
			continue;
		times[nr] = serve(&q, &t->reqs[i], &found[i]);
		row->mean_s += times[nr++];
	}
	qsort(times, nr, sizeof(*times), compare_times);
	row->mean_s /= (double)nr;
	row->p50_s = times[(nr - 1) / 2];
	row->p99_s = times[(nr * 99 + 99) / 100 - 1];
	if (span_ms)
		row->load = q.busy_s / ((double)span_ms / 1000 * o->nr_servers);
	free(q.free_s);
	free(times);
	return 0;
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
	struct sim_result r = { 0 };
	int ret = found ? 0 : -ENOMEM;

	ttft->nr = 0;
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
		ret = ret ?: run_queue(o, t, found, cases[i].prestage, row);
		ttft->nr++;
	}
	free(found);
	return ret;
}

json_t *ttft_json(const struct ttft_opts *o, const struct ttft *ttft)
{
	json_t *rows = json_object();

	for (size_t i = 0; o->model && i < ttft->nr; i++)
		json_object_set_new(rows, ttft->rows[i].name,
			json_pack("{s:f, s:f, s:f, s:f, s:f}",
				"mean_s", ttft->rows[i].mean_s,
				"p50_s", ttft->rows[i].p50_s,
				"p99_s", ttft->rows[i].p99_s,
				"load", ttft->rows[i].load,
				"writes_per_block", ttft->rows[i].writes_per_block));
	return rows;
}

void ttft_print(const struct ttft_opts *o, const struct ttft *ttft)
{
	static const char * const head[] = { "mean", "p50", "p99" };
	char text[32];

	if (!o->model)
		return;
	printf("time to first token, %s, servers: %u of %u x %s\n%-24s", o->model->name,
	       o->nr_servers, o->nr_gpus, o->gpu->name, "");
	for (size_t i = 0; i < ARRAY_SIZE(head); i++)
		printf(" %10s", head[i]);
	printf(" %8s %12s\n", "load", "writes/block");
	for (size_t i = 0; i < ttft->nr; i++) {
		const struct ttft_row *row = &ttft->rows[i];
		const double times[] = { row->mean_s, row->p50_s, row->p99_s };

		printf("  %-22s", row->title);
		for (size_t j = 0; j < ARRAY_SIZE(times); j++)
			printf(" %10s", cli_format_ns((uint64_t)(times[j] * 1e9), text,
						      sizeof(text)));
		printf(" %8.3f %12.3f\n", row->load, row->writes_per_block);
	}
}
