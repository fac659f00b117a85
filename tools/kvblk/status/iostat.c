// SPDX-License-Identifier: MIT
/* kvblk iostat: one line for each pool and interval, with its rates. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "pool/health.h"
#include "status/rates.h"

/* lines between two headings, about a screen */
#define LINES		22

struct iostat_args {
	struct cli_list list;
	const char *pool;
	double interval_s;
	uint64_t count;		/* 0: no limit */
};

#define AT(field) CLI_FIELD(struct iostat_args, field)

static const struct cli_option iostat_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool) },
	{ "INTERVAL", 0, CLI_TIME, AT(interval_s), .min = 0.1, .max = 86400 },
	{ "COUNT", 0, CLI_NUMBER, AT(count), .min = 1 },
	{ 0 },
};

static const struct cli_syntax iostat_syntax = {
	.arguments = iostat_arguments,
	.list = true,
	.usage = "[POOL] [INTERVAL [COUNT]]",
	.doc = "Print the rates of POOL, or of each pool, after each INTERVAL, a time like 5 or 500ms; end after COUNT intervals. Without INTERVAL, print the rates of one second.\v"
	       "Example:\n  kvblk iostat kv0 5 -o json >> kv0.jsonl; kvblk report kv0.jsonl > kv0.html\n\n"
	       "With -o json each line is a JSON object.",
};

static const struct cli_column columns[] = {
	{ "TIME", -8 }, { "POOL", -10 }, { "PUT/s", 8 }, { "MiB/s", 8 }, { "GET/s", 8 },
	{ "MiB/s", 8 }, { "HIT %", 6 }, { "PUT p50", 8 }, { "p99", 8 }, { "GET p50", 8 },
	{ "p99", 8 }, { 0 },
};

static char *format_latency(const struct cli_list *list, uint64_t ns, char *buf, size_t len)
{
	if (list->exact)
		snprintf(buf, len, "%" PRIu64, ns);
	else if (ns)
		cli_format_ns(ns, buf, len);
	else
		snprintf(buf, len, "-");
	return buf;
}

static void print_line(const struct cli_list *list, const char *pool, const struct rates *r)
{
	char time_text[32] = "", put[32], put_bytes[32], get[32], get_bytes[32], hit[32] = "-";
	char latency[4][32];
	const char *cells[] = {
		time_text, pool, put, put_bytes, get, get_bytes, hit,
		format_latency(list, r->put_p50_ns, latency[0], sizeof(latency[0])),
		format_latency(list, r->put_p99_ns, latency[1], sizeof(latency[1])),
		format_latency(list, r->get_p50_ns, latency[2], sizeof(latency[2])),
		format_latency(list, r->get_p99_ns, latency[3], sizeof(latency[3])),
	};
	time_t now = time(NULL);
	struct tm tm;

	if (list->exact)
		snprintf(time_text, sizeof(time_text), "%lld", (long long)now);
	else if (localtime_r(&now, &tm))
		strftime(time_text, sizeof(time_text), "%T", &tm);
	snprintf(put, sizeof(put), "%.1f", r->put_s);
	snprintf(get, sizeof(get), "%.1f", r->get_s);
	snprintf(put_bytes, sizeof(put_bytes), list->exact ? "%.0f" : "%.1f",
		 list->exact ? r->put_bytes_s : cli_mib(r->put_bytes_s));
	snprintf(get_bytes, sizeof(get_bytes), list->exact ? "%.0f" : "%.1f",
		 list->exact ? r->get_bytes_s : cli_mib(r->get_bytes_s));
	if (r->hit_ratio >= 0)
		snprintf(hit, sizeof(hit), "%.1f", 100 * r->hit_ratio);
	cli_print_row(list, columns, cells);
}

static int print_json(const struct snapshot *snapshot, const struct kvblk_pool_state *pool,
		      const struct rates *r)
{
	struct health_report report;
	struct timespec now;

	health_of(pool, snapshot, &report);
	clock_gettime(CLOCK_REALTIME, &now);
	return cli_print_json_line(json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f,"
					     " s:o, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I}",
		"time", (double)now.tv_sec + (double)now.tv_nsec / 1e9,
		"pool", pool->name, "seconds", r->seconds,
		"put_s", r->put_s, "put_mib_s", cli_mib(r->put_bytes_s),
		"get_s", r->get_s, "get_mib_s", cli_mib(r->get_bytes_s),
		"miss_s", r->miss_s, "declined_s", r->declined_s,
		"reclaimed_s", r->reclaimed_s,
		"hit_ratio", r->hit_ratio < 0 ? json_null() : json_real(r->hit_ratio),
		"put_p50_ns", (json_int_t)r->put_p50_ns,
		"put_p99_ns", (json_int_t)r->put_p99_ns,
		"get_p50_ns", (json_int_t)r->get_p50_ns,
		"get_p99_ns", (json_int_t)r->get_p99_ns,
		"health", health_name(report.health),
		"capacity", (json_int_t)pool->capacity,
		"free", (json_int_t)pool->free,
		"index_used", (json_int_t)pool->index_used,
		"index_slots", (json_int_t)pool->index_slots));
}

/* Print one line for each pool; *@lines counts the lines since the first heading. */
static int print_interval(const struct iostat_args *args, const struct snapshot *now,
			  const struct snapshot *then, unsigned int *lines)
{
	struct rates rates;
	int ret;

	for (const struct kvblk_pool_state *p = now->pools; p; p = p->next) {
		if (!snapshot_rates(now, then, p->name, &rates))
			continue;
		if (args->list.json) {
			ret = print_json(now, p, &rates);
			if (ret)
				return ret;
			continue;
		}
		if ((*lines)++ % LINES == 0)
			cli_print_head(&args->list, columns);
		print_line(&args->list, p->name, &rates);
	}
	return cli_flush();
}

int iostat_main(int argc, char **argv)
{
	struct iostat_args args = { 0 };
	struct snapshot then, now;
	struct kvblk_admin *admin;
	unsigned int lines = 0;
	uint64_t next_ns;
	int ret;

	cli_parse(&iostat_syntax, argc, argv, &args);
	if (!(args.interval_s > 0)) {
		args.interval_s = 1;
		args.count = 1;
	}
	admin = cli_open_admin();
	ret = snapshot_take(admin, args.pool, &then);
	next_ns = then.ns;
	for (uint64_t i = 0; ret == CLI_OK && (!args.count || i < args.count); i++) {
		interval_wait(&next_ns, args.interval_s);
		ret = snapshot_take(admin, args.pool, &now);
		if (ret == CLI_OK)
			ret = print_interval(&args, &now, &then, &lines);
		snapshot_free(&then);
		then = now;
	}
	snapshot_free(&then);
	kvblk_admin_close(admin);
	return ret;
}
