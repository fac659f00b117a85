// SPDX-License-Identifier: MIT
/* Options and output of a simulated pod. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "replay/pod.h"

static const char *const routes[] = {
	[POD_ROUND_ROBIN] = "rr",
	[POD_SESSION] = "session",
	[POD_PREFIX] = "prefix",
	NULL,
};

static const char *const sharings[] = {
	[POD_NONE] = "none",
	[POD_FOLLOW] = "follow",
	[POD_DIRECTORY] = "directory",
	NULL,
};

/* Parse "3" or "0-8", up to "@". Returns the end, or NULL. */
static const char *take_nodes(const char *text, struct pod_event *e)
{
	uint32_t *const nodes[] = { &e->first, &e->last };
	char *end;

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++, text = end + 1) {
		if (!isdigit((unsigned char)*text))
			return NULL;
		*nodes[i] = (uint32_t)strtoul(text, &end, 10);
		if (*end == '@')
			return end;
		if (*end != '-')
			return NULL;
	}
	return NULL;
}

/* Parse "3@60" or "0-8@10m". */
static void take_event(const struct argp_state *state, const char *what, const char *text,
		       struct pod_event *e)
{
	const char *at;

	*e = (struct pod_event){ .given = true };
	at = take_nodes(text, e);
	if (!at)
		cli_usage(state, "%s %s: must be nodes and a time, like 3@60 or 0-8@10m", what,
			  text);
	if (!memchr(text, '-', (size_t)(at - text)))
		e->last = e->first;
	e->at_s = cli_time(state, what, at + 1, 0, 1e7);
}

static void take_kill(struct argp_state *state, const char *text, void *field)
{
	take_event(state, "--kill", text, field);
}

static void take_restart(struct argp_state *state, const char *text, void *field)
{
	take_event(state, "--restart-rack", text, field);
}

#define AT(field) CLI_FIELD(struct pod_opts, field)

const struct cli_option pod_options[] = {
	{ .help = "A pod of nodes with a log each, with --simulate:" },
	{ "pod", 0, CLI_NUMBER, AT(nr_nodes), "N",
	  "Number of nodes, which share the capacity and the trace", 1, POD_NODES_MAX,
	  .with = "simulate" },
	{ "route", 0, CLI_WORD, AT(route), "HOW",
	  "Node of a request: rr (each in turn, the default), session or prefix",
	  .words = routes, .with = "pod" },
	{ "sharing", 0, CLI_WORD, AT(sharing), "HOW",
	  "What nodes know of other logs: none, follow (all, the default) or directory",
	  .words = sharings, .with = "pod" },
	{ "fresh", 0, CLI_TIME, AT(fresh_s), "TIME", "Time until others see a block (2s)", 0, 1e6,
	  .with = "pod" },
	{ "span", 0, CLI_NUMBER, AT(span), "N",
	  "With --sharing=directory: one of N blocks of a segment is published (16)", 1, 4096,
	  .with = "pod" },
	{ "hints", 0, CLI_REAL, AT(hints), "F",
	  "With --sharing=directory: index entries for others' blocks, as a share of a node's blocks (4)",
	  0, 1e4, .with = "pod" },
	{ "kill", 0, CLI_CALL, AT(kill), "N[-LAST]@TIME", "Nodes that fail, and when",
	  .take = take_kill, .with = "pod" },
	{ "adopt", 0, CLI_TIME, AT(adopt_s), "TIME",
	  "Time after --kill when other hosts run the logs (never)", 0, 1e7, .with = "kill" },
	{ "restart-rack", 0, CLI_CALL, AT(restart), "N[-LAST]@TIME",
	  "Nodes that restart with empty indexes, and when", .take = take_restart, .with = "pod" },
	{ "bandwidth", 0, CLI_SIZE, AT(bandwidth), "BYTES",
	  "Bytes of metadata that a restarted node reads in a second (1G)", 1, 1ull << 50,
	  .with = "restart-rack" },
	{ 0 },
};

static void check_event(const struct argp_state *state, const char *what,
			const struct pod_opts *o, const struct pod_event *e)
{
	if (!e->given)
		return;
	if (e->first > e->last || e->last >= o->nr_nodes)
		cli_usage(state, "%s: must be nodes from 0 to %u, the lower one first", what,
			  o->nr_nodes - 1);
}

void pod_check(const struct argp_state *state, const struct pod_opts *o)
{
	check_event(state, "--kill", o, &o->kill);
	check_event(state, "--restart-rack", o, &o->restart);
	if (o->kill.given && o->kill.last - o->kill.first + 1 == o->nr_nodes)
		cli_usage(state, "--kill: must leave a node");
}

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

static json_t *json_phases(const struct pod_result *r)
{
	json_t *phases = json_array();

	for (uint32_t i = 0; i < r->nr_phases; i++) {
		const struct pod_phase *p = &r->phases[i];

		json_array_append_new(phases, json_pack("{s:s, s:f, s:I, s:I, s:I, s:I, s:I, s:f}",
			"name", p->name,
			"from_s", p->from_s,
			"blocks", (json_int_t)p->refs,
			"hits", (json_int_t)p->hits,
			"admitted", (json_int_t)p->puts,
			"writes", (json_int_t)p->writes,
			"duplicates", (json_int_t)p->duplicates,
			"hit_ratio", ratio((double)p->hits, (double)p->refs)));
	}
	return phases;
}

json_t *pod_json(const struct pod_opts *o, const struct trace *t, const struct pod_result *r)
{
	const struct sim_result *all = &r->all;
	json_t *json = json_pack(
		"{s:I, s:s, s:s, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
		"nodes", (json_int_t)o->nr_nodes,
		"route", routes[o->route],
		"sharing", sharings[o->sharing],
		"fresh_s", o->fresh_s,
		"seconds", r->seconds,
		"capacity_blocks", (json_int_t)all->capacity_blocks,
		"requests", (json_int_t)all->requests,
		"blocks", (json_int_t)all->refs,
		"distinct_blocks", (json_int_t)t->nr_distinct,
		"hits", (json_int_t)all->hits,
		"foreign_hits", (json_int_t)r->foreign_hits,
		"puts", (json_int_t)all->puts,
		"admitted", (json_int_t)all->admitted,
		"declined", (json_int_t)all->declined,
		"copies", (json_int_t)all->copies,
		"hit_ratio", all->hit_ratio,
		"writes_per_hit", all->writes_per_hit,
		"writes_per_block", all->writes_per_block);
	json_t *more = json_pack(
		"{s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:f, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o}",
		"writes", (json_int_t)all->writes,
		"duplicates", (json_int_t)r->duplicates,
		"duplicate_share", ratio((double)r->duplicates, (double)all->writes),
		"busiest_reads", r->busiest_reads,
		"busiest_writes", r->busiest_writes,
		"index_entries", (json_int_t)r->index_entries,
		"index_bytes", (json_int_t)r->index_bytes,
		"index_find_ns", r->index_find_ns,
		"touches_told", (json_int_t)r->touches,
		"refresh_bytes_s", ratio(r->refresh_bytes, r->seconds),
		"questions", (json_int_t)r->questions,
		"keys", (json_int_t)r->keys,
		"pages_read", (json_int_t)r->pages,
		"stale_answers", (json_int_t)r->stale,
		"published", (json_int_t)r->published,
		"published_bytes", (json_int_t)r->published * POD_PUBLISHED_BYTES,
		"restart_bytes", (json_int_t)r->restart_bytes,
		"restart_s", r->restart_s,
		"phases", json_phases(r));

	json_object_set_new(more, "directory_keys", json_integer((json_int_t)r->directory_keys));
	json_object_set_new(more, "dram_blocks", json_integer((json_int_t)all->dram_blocks));
	json_object_set_new(more, "dram_hits", json_integer((json_int_t)all->dram_hits));
	json_object_set_new(more, "dram_writes", json_integer((json_int_t)all->dram_writes));
	json_object_set_new(more, "dram_drops", json_integer((json_int_t)all->dram_drops));
	json_object_update(json, more);
	json_decref(more);
	return json;
}

static void print_directory(const struct pod_result *r)
{
	double questions = (double)r->questions, seconds = r->seconds;

	printf("questions       %.2f a request, %.1f a second; %.2f keys each, %.1f keys a second\n",
	       ratio(questions, (double)r->all.requests), ratio(questions, seconds),
	       ratio((double)r->keys, questions), ratio((double)r->keys, seconds));
	printf("answers         %.2f summary pages a question; %.2f segments that were reused since\n",
	       ratio((double)r->pages, questions), ratio((double)r->stale, questions));
	printf("published       %" PRIu64 " entries, %.0f bytes a second, %" PRIu64 " keys\n",
	       r->published, ratio((double)(r->published * POD_PUBLISHED_BYTES), seconds),
	       r->directory_keys);
}

static void print_phases(const struct pod_result *r)
{
	printf("%-10s %10s %10s %8s %12s %10s\n", "phase", "from", "blocks", "hits", "writes/hit",
	       "duplicates");
	for (uint32_t i = 0; i < r->nr_phases; i++) {
		const struct pod_phase *p = &r->phases[i];

		printf("%-10s %8.1f s %10" PRIu64 " %8.4f %12.3f %8.2f %%\n", p->name, p->from_s,
		       p->refs, ratio((double)p->hits, (double)p->refs),
		       ratio((double)p->writes, (double)p->hits),
		       100 * ratio((double)p->duplicates, (double)p->writes));
	}
}

void pod_print(const struct pod_opts *o, const struct trace *t, const struct pod_result *r)
{
	const struct sim_result *all = &r->all;
	double writes = (double)all->writes;
	char bytes[32];

	printf("pod             %" PRIu32 " nodes, route %s, sharing %s, blocks seen after %g s\n",
	       o->nr_nodes, routes[o->route], sharings[o->sharing], o->fresh_s);
	printf("capacity        %" PRIu64 " blocks a node, in all %.4g of the trace's %" PRIu64 " distinct ones\n",
	       all->capacity_blocks / o->nr_nodes,
	       ratio((double)all->capacity_blocks, (double)t->nr_distinct), t->nr_distinct);
	printf("requests        %" PRIu64 " with %" PRIu64 " blocks in %.0f s\n", all->requests,
	       all->refs, r->seconds);
	printf("hits            %" PRIu64 " in leading runs, %" PRIu64 " of them in other logs\n",
	       all->hits, r->foreign_hits);
	printf("puts            %" PRIu64 ": %" PRIu64 " admitted, %" PRIu64 " declined\n",
	       all->puts, all->admitted, all->declined);
	printf("copies          %" PRIu64 " by reclaim\n", all->copies);
	printf("hit ratio       %.4f\n", all->hit_ratio);
	printf("writes per hit  %.3f, per block referenced %.3f\n", all->writes_per_hit,
	       all->writes_per_block);
	printf("duplicates      %" PRIu64 ", %.2f %% of the writes\n", r->duplicates,
	       100 * ratio((double)r->duplicates, writes));
	printf("busiest log     %.2f of the mean reads, %.2f of the mean writes\n",
	       r->busiest_reads, r->busiest_writes);
	printf("index           %" PRIu64 " entries on a node, %s, %.1f bytes an entry, %.0f ns a lookup\n",
	       r->index_entries, cli_format_bytes(r->index_bytes, bytes, sizeof(bytes)),
	       ratio((double)r->index_bytes, (double)r->index_entries), r->index_find_ns);
	printf("refresh         %.0f bytes of metadata a second on a node; %.1f touches told a second\n",
	       ratio(r->refresh_bytes, r->seconds), ratio((double)r->touches, r->seconds));
	if (all->dram_blocks)
		printf("memory          %" PRIu64 " blocks in all: %" PRIu64 " hits, %" PRIu64 " evictions written, %" PRIu64 " dropped\n",
		       all->dram_blocks, all->dram_hits, all->dram_writes, all->dram_drops);
	if (o->sharing == POD_DIRECTORY)
		print_directory(r);
	if (o->restart.given)
		printf("restart         a node reads %s in %.3g s\n",
		       cli_format_bytes(r->restart_bytes, bytes, sizeof(bytes)), r->restart_s);
	if (r->nr_phases > 1)
		print_phases(r);
}
