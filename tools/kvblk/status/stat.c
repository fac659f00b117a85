// SPDX-License-Identifier: MIT
/*
 * kvblk stat: counters of pools and members, once since the pool was assembled, or as rates
 * for each interval.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "pool/member.h"
#include "status/rates.h"

struct stat_args {
	struct cli_list list;
	const char *pool;
	const char *member;
	double interval_s;	/* 0: print totals, once */
	uint64_t count;		/* 0: no limit */
};

/* Store the time of --watch: its value, else the next word if that is a time, else 1 s. */
static void take_interval(struct argp_state *state, const char *text, void *field)
{
	const char *next = state->next < state->argc ? state->argv[state->next] : NULL;
	double *seconds = field;

	*seconds = 1;
	if (!text && next && cli_is_time(next, seconds)) {
		state->next++;
		text = next;
	}
	if (text)
		*seconds = cli_time(state, "--watch", text, 0.1, 86400);
}

#define AT(field) CLI_FIELD(struct stat_args, field)

static const struct cli_option stat_options[] = {
	{ "watch", 'w', CLI_CALL, AT(interval_s), "TIME",
	  "Show rates, one line every second or every TIME, like 5 or 500ms", .optional = true,
	  .take = take_interval },
	{ "count", 0, CLI_NUMBER, AT(count), "N", "With --watch: end after N lines", 1,
	  .with = "watch" },
	{ 0 },
};

static const struct cli_option stat_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool) },
	{ "MEMBER", 0, CLI_STRING, AT(member), .without = "watch" },
	{ 0 },
};

static const struct cli_syntax stat_syntax = {
	.options = stat_options,
	.arguments = stat_arguments,
	.usage = "[POOL [MEMBER]]",
	.doc = "Show the counters of POOL, or of each pool, since its assembly, or of MEMBER since its arrival, and the current state.\v"
	       "Example:\n  kvblk stat kv0 --watch 5\n  kvblk stat kv0 nvme1n1\n\n"
	       "With --watch and -o json each line is a JSON object.",
};

static json_t *json_latency(const struct kvblk_stats *stats,
			    unsigned int latency)
{
	json_t *buckets = json_array();

	for (uint32_t i = 0; i < stats->nr_buckets[latency]; i++)
		json_array_append_new(buckets,
			json_integer((json_int_t)stats->latency[latency][i]));
	return json_pack("{s:I, s:I, s:I, s:o}",
		"p50_ns", (json_int_t)stat_quantile(stats, NULL, latency, 0.5),
		"p90_ns", (json_int_t)stat_quantile(stats, NULL, latency, 0.9),
		"p99_ns", (json_int_t)stat_quantile(stats, NULL, latency, 0.99),
		"log2_buckets", buckets);
}

/* Returns the numbers that the module reports, by name. */
static json_t *json_numbers(const uint64_t *numbers, const bool *has, unsigned int nr,
			    enum kvblk_name_kind kind)
{
	json_t *json = json_object();

	for (unsigned int i = 0; i < nr; i++) {
		if (has[i])
			json_object_set_new(json, kvblk_name(kind, i),
					    json_integer((json_int_t)numbers[i]));
	}
	return json;
}

static json_t *json_stats(const struct kvblk_stats *stats)
{
	json_t *latency = json_object(), *json;

	for (unsigned int i = 0; i < KVBLK_STATS_LATENCIES; i++) {
		if (stats->nr_buckets[i])
			json_object_set_new(latency, kvblk_name(KVBLK_NAME_LATENCY, i),
					    json_latency(stats, i));
	}
	json = json_pack("{s:s}", "pool", stats->pool);
	if (stats->member[0])
		json_object_set_new(json, "member", json_string(stats->member));
	json_object_set_new(json, "counters",
			    json_numbers(stats->counter, stats->has_counter,
					 KVBLK_STATS_COUNTERS, KVBLK_NAME_COUNTER));
	json_object_set_new(json, "gauges",
			    json_numbers(stats->gauge, stats->has_gauge,
					 KVBLK_STATS_GAUGES, KVBLK_NAME_GAUGE));
	json_object_set_new(json, "latency", latency);
	return json;
}

static json_t *json_size(const struct kvblk_stats *size)
{
	json_t *json = json_pack("{s:I}", "size_max", (json_int_t)size->size_max);
	json_t *latency;

	for (unsigned int i = 0; i < KVBLK_STATS_LATENCIES; i++) {
		if (!size->nr_buckets[i])
			continue;
		latency = json_latency(size, i);
		json_object_set_new(latency, "total_ns",
				    json_integer((json_int_t)size->latency_ns[i]));
		json_object_set_new(json, kvblk_name(KVBLK_NAME_LATENCY, i), latency);
	}
	return json;
}

static json_t *json_foreign(const struct kvblk_member_state *foreign)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:{s:I, s:I, s:I, s:I, s:I}}",
		"pool", foreign->pool, "member", foreign->name, "owner", foreign->owner,
		"state", member_condition(foreign), "counters",
		"blocks", (json_int_t)foreign->blocks,
		"lacks", (json_int_t)foreign->lacks,
		"gets", (json_int_t)foreign->gets,
		"get_bytes", (json_int_t)foreign->get_bytes,
		"get_misses", (json_int_t)foreign->get_misses);
}

/* the output of "kvblk stat" */
struct shown {
	struct kvblk_stats *pools;
	struct kvblk_stats *members;	/* of all pools, as @sizes and @foreign are */
	struct kvblk_stats *sizes;
	struct kvblk_member_state *foreign;
};

static json_t *json_pool(const struct kvblk_stats *pool, const struct shown *shown)
{
	json_t *json = json_stats(pool), *sizes = json_array(), *members = json_array();
	json_t *foreign = json_array();

	for (const struct kvblk_stats *s = shown->sizes; s; s = s->next) {
		if (!strcmp(s->pool, pool->pool))
			json_array_append_new(sizes, json_size(s));
	}
	for (const struct kvblk_stats *s = shown->members; s; s = s->next) {
		if (!strcmp(s->pool, pool->pool))
			json_array_append_new(members, json_stats(s));
	}
	for (const struct kvblk_member_state *f = shown->foreign; f; f = f->next) {
		if (!strcmp(f->pool, pool->pool))
			json_array_append_new(foreign, json_foreign(f));
	}
	json_object_set_new(json, "latency_by_size", sizes);
	json_object_set_new(json, "members", members);
	json_object_set_new(json, "foreign_members", foreign);
	return json;
}

static void print_numbers(const uint64_t *numbers, const bool *has, unsigned int nr,
			  enum kvblk_name_kind kind)
{
	const char *name;
	char text[32];

	for (unsigned int i = 0; i < nr; i++) {
		if (!has[i])
			continue;
		name = kvblk_name(kind, i);
		printf("  %-22s %20" PRIu64, name, numbers[i]);
		if (strstr(name, "bytes"))
			printf("  %s", cli_format_bytes(numbers[i], text, sizeof(text)));
		putchar('\n');
	}
}

/*
 * Print the latencies that the module reports; with @used, only of operations that happened.
 * @size: text behind the name, for latencies by size.
 */
static void print_latencies(const struct kvblk_stats *stats, const char *size, bool used)
{
	static const double quantiles[] = { 0.5, 0.9, 0.99, 0.999 };
	char text[32], name[64];

	for (unsigned int i = 0; i < KVBLK_STATS_LATENCIES; i++) {
		if (!stats->nr_buckets[i] ||
		    (used && !stat_quantile(stats, NULL, i, 1)))
			continue;
		snprintf(name, sizeof(name), "%s%s", kvblk_name(KVBLK_NAME_LATENCY, i), size);
		printf("  %-22s", name);
		for (size_t q = 0; q < ARRAY_SIZE(quantiles); q++)
			printf(" %10s",
			       cli_format_ns(stat_quantile(stats, NULL, i, quantiles[q]),
					     text, sizeof(text)));
		putchar('\n');
	}
}

static void print_sizes(const char *pool, const struct kvblk_stats *sizes)
{
	char size[40], text[32];

	for (; sizes; sizes = sizes->next) {
		if (strcmp(sizes->pool, pool) != 0)
			continue;
		snprintf(size, sizeof(size), ", up to %s",
			 cli_format_bytes(sizes->size_max, text, sizeof(text)));
		print_latencies(sizes, size, true);
	}
}

static void print_stats(const struct kvblk_stats *stats)
{
	if (stats->member[0])
		printf("pool %s, member %s\n", stats->pool, stats->member);
	else
		printf("pool %s\n", stats->pool);
	print_numbers(stats->counter, stats->has_counter, KVBLK_STATS_COUNTERS,
		      KVBLK_NAME_COUNTER);
	puts("  now");
	print_numbers(stats->gauge, stats->has_gauge, KVBLK_STATS_GAUGES,
		      KVBLK_NAME_GAUGE);
	printf("  %-22s %10s %10s %10s %10s\n", "latency below", "p50", "p90",
	       "p99", "p99.9");
	print_latencies(stats, "", false);
}

static int show_foreign(const struct kvblk_member_state *foreign, bool json)
{
	char bytes[32];

	if (json)
		return cli_print_json(json_foreign(foreign));
	printf("pool %s, member %s of node %s, %s\n", foreign->pool, foreign->name,
	       foreign->owner, member_condition(foreign));
	printf("  %-22s %20" PRIu64 "\n", "blocks", foreign->blocks);
	printf("  %-22s %20" PRIu64 "\n", "lacks", foreign->lacks);
	printf("  %-22s %20" PRIu64 "\n", "gets", foreign->gets);
	printf("  %-22s %20" PRIu64 "  %s\n", "get_bytes", foreign->get_bytes,
	       cli_format_bytes(foreign->get_bytes, bytes, sizeof(bytes)));
	printf("  %-22s %20" PRIu64 "\n", "get_misses", foreign->get_misses);
	return cli_flush();
}

static int show_member(const struct shown *shown, const struct stat_args *args)
{
	const struct kvblk_stats *members = shown->members;
	const struct kvblk_member_state *foreign = shown->foreign;

	while (members && strcmp(members->member, args->member) != 0)
		members = members->next;
	while (foreign && strcmp(foreign->name, args->member) != 0)
		foreign = foreign->next;
	if (!members && foreign)
		return show_foreign(foreign, args->list.json);
	if (!members)
		return cli_fail("pool %s has no member %s: see \"kvblk member list %s\"",
				args->pool, args->member, args->pool);
	if (args->list.json)
		return cli_print_json(json_stats(members));
	print_stats(members);
	return cli_flush();
}

static int show_pools(const struct shown *shown, bool json)
{
	json_t *array = json_array();

	for (const struct kvblk_stats *pool = shown->pools; pool; pool = pool->next) {
		if (json) {
			json_array_append_new(array, json_pool(pool, shown));
			continue;
		}
		print_stats(pool);
		print_sizes(pool->pool, shown->sizes);
	}
	if (json)
		return cli_print_json(array);
	json_decref(array);
	return cli_flush();
}

static int show_once(struct kvblk_admin *admin, const struct stat_args *args)
{
	struct shown shown = { 0 };
	int err, ret;

	err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_POOL, args->pool, &shown.pools);
	if (!err)
		err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_MEMBER, args->pool,
				       &shown.members);
	if (!err)
		err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_SIZE, args->pool,
				       &shown.sizes);
	if (!err)
		err = kvblk_foreign_list(admin, args->pool, &shown.foreign);
	/* an older module has no pods */
	if (err == -EOPNOTSUPP)
		err = 0;
	if (err)
		ret = cli_admin_fail(admin, err, args->pool ? args->pool : "stat");
	else
		ret = args->member ? show_member(&shown, args) :
				     show_pools(&shown, args->list.json);
	kvblk_list_free(shown.pools);
	kvblk_list_free(shown.members);
	kvblk_list_free(shown.sizes);
	kvblk_list_free(shown.foreign);
	return ret;
}

struct interval {
	const struct kvblk_stats *now;
	const struct kvblk_stats *then;
	double seconds;
};

static double rate(const struct interval *in, unsigned int counter)
{
	return (double)(in->now->counter[counter] -
			in->then->counter[counter]) / in->seconds;
}

static uint64_t latency(const struct interval *in, unsigned int which, double q)
{
	return stat_quantile(in->now, in->then, which, q);
}

static int print_interval(const struct interval *in)
{
	char p50[32], p99[32];

	printf("%-12s %9.1f %10.1f %9.1f %10.1f %9.1f %9.1f %9.1f %9s %9s %9.1f\n",
	       in->now->pool, rate(in, KVBLK_A_COUNTER_PUTS),
	       cli_mib(rate(in, KVBLK_A_COUNTER_PUT_BYTES)),
	       rate(in, KVBLK_A_COUNTER_GETS),
	       cli_mib(rate(in, KVBLK_A_COUNTER_GET_BYTES)),
	       rate(in, KVBLK_A_COUNTER_GET_MISSES),
	       rate(in, KVBLK_A_COUNTER_PUT_DECLINED),
	       rate(in, KVBLK_A_COUNTER_SEGMENTS_RECLAIMED),
	       cli_format_ns(latency(in, KVBLK_A_LATENCY_GET, 0.5), p50, sizeof(p50)),
	       cli_format_ns(latency(in, KVBLK_A_LATENCY_GET, 0.99), p99, sizeof(p99)),
	       rate(in, KVBLK_A_COUNTER_FOREIGN_GETS));
	return cli_flush();
}

static int print_interval_json(const struct interval *in)
{
	struct timespec now;
	json_t *rates = json_object();

	clock_gettime(CLOCK_REALTIME, &now);
	for (unsigned int i = 0; i < KVBLK_STATS_COUNTERS; i++) {
		if (in->now->has_counter[i])
			json_object_set_new(rates, kvblk_name(KVBLK_NAME_COUNTER, i),
					    json_real(rate(in, i)));
	}
	return cli_print_json_line(json_pack("{s:f, s:s, s:f, s:o, s:I, s:I, s:I, s:I}",
		"time", (double)now.tv_sec + (double)now.tv_nsec / 1e9,
		"pool", in->now->pool, "seconds", in->seconds,
		"per_second", rates,
		"get_p50_ns", (json_int_t)latency(in, KVBLK_A_LATENCY_GET, 0.5),
		"get_p99_ns", (json_int_t)latency(in, KVBLK_A_LATENCY_GET, 0.99),
		"put_p50_ns", (json_int_t)latency(in, KVBLK_A_LATENCY_PUT, 0.5),
		"put_p99_ns", (json_int_t)latency(in, KVBLK_A_LATENCY_PUT, 0.99)));
}

static int watch(struct kvblk_admin *admin, const struct stat_args *args)
{
	struct kvblk_stats *then = NULL, *list;
	uint64_t then_ns = snapshot_clock(), next_ns = then_ns, read_ns;
	int err, ret = CLI_OK;

	err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_POOL, args->pool, &then);
	for (uint64_t line = 0; !err && !ret; line++) {
		if (args->count && line == args->count)
			break;
		if (!args->list.json && line % 20 == 0)
			printf("%-12s %9s %10s %9s %10s %9s %9s %9s %9s %9s %9s\n",
			       "POOL", "PUT/s", "PUT MiB/s", "GET/s", "GET MiB/s",
			       "MISS/s", "DECL/s", "RECL/s", "GET p50", "GET p99",
			       "FOREIGN/s");
		interval_wait(&next_ns, args->interval_s);
		err = kvblk_stats_list(admin, KVBLK_STATS_SCOPE_POOL, args->pool, &list);
		if (err)
			break;
		read_ns = snapshot_clock();
		for (struct kvblk_stats *s = list; s && !ret; s = s->next) {
			struct interval in = {
				.now = s,
				.then = snapshot_stats(then, s->pool, ""),
				.seconds = (double)(read_ns - then_ns) /
					   (double)NS_PER_S,
			};

			/* no rates yet: the pool is new */
			if (!in.then || stat_restarted(s, in.then))
				continue;
			ret = args->list.json ? print_interval_json(&in) :
					   print_interval(&in);
		}
		kvblk_list_free(then);
		then = list;
		then_ns = read_ns;
	}
	kvblk_list_free(then);
	if (err)
		ret = cli_admin_fail(admin, err,
				     args->pool ? args->pool : "stat");
	return ret;
}

int stat_main(int argc, char **argv)
{
	struct stat_args args = { 0 };
	struct kvblk_admin *admin;
	int ret;

	cli_parse(&stat_syntax, argc, argv, &args);
	admin = cli_open_admin();
	if (args.interval_s > 0)
		ret = watch(admin, &args);
	else
		ret = show_once(admin, &args);
	kvblk_admin_close(admin);
	return ret;
}
