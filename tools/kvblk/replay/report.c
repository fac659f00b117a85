// SPDX-License-Identifier: MIT
/* kvblk report: one HTML page from the output of iostat and replay, see report.h. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "replay/report.h"

struct report_args {
	struct cli_list list;
	const char *title;
	struct cli_words files;
};

/* limit of a rate, size or time */
#define VALUE_MAX	1e18

#define AT(field) CLI_FIELD(struct report_args, field)

static const struct cli_option report_options[] = {
	{ "title", 0, CLI_STRING, AT(title), "TEXT", "Heading of the page" },
	{ 0 },
};

static const struct cli_option report_arguments[] = {
	{ "FILE", 0, CLI_WORDS, AT(files) },
	{ 0 },
};

static void check_report(const struct argp_state *state, void *values)
{
	const struct report_args *args = values;

	if (args->list.json)
		cli_usage(state, "a report is HTML; its data are JSON already");
}

static const struct cli_syntax report_syntax = {
	.options = report_options,
	.arguments = report_arguments,
	.check = check_report,
	.usage = "[FILE...]",
	.doc = "Write one self-contained HTML page to stdout, with plots of the output of \"kvblk iostat -o json\" and \"kvblk replay -o json\" in FILEs, or on stdin: throughput, hit ratio, latencies and fill level of the pool.\v"
	       "Example:\n  kvblk iostat kv0 5 720 -o json > kv0.jsonl; kvblk report kv0.jsonl > kv0.html",
};

/* ---- input ---- */

/* columns of a run; names in the JSON of iostat */
enum value {
	TIME, PUT_MIB, GET_MIB, HIT, PUT50, PUT99, GET50, GET99, CAPACITY, FREE, USED, SLOTS,
	VALUES,
};

static const char *const value_names[VALUES] = {
	"time", "put_mib_s", "get_mib_s", "hit_ratio", "put_p50_ns", "put_p99_ns",
	"get_p50_ns", "get_p99_ns", "capacity", "free", "index_used", "index_slots",
};

/**
 * struct run - output of iostat for a pool
 * @next: next run
 * @pool: name of the pool
 * @nr: number of intervals
 * @room: allocated intervals
 * @y: the columns; NaN: no value
 */
struct run {
	struct run *next;
	char *pool;
	size_t nr;
	size_t room;
	double *y[VALUES];
};

/**
 * struct input - everything that was read
 * @runs: runs of iostat
 * @replays: results of replay, a JSON array
 */
struct input {
	struct run *runs;
	json_t *replays;
};

/* Returns the number called @name; NaN if it is missing or out of range. */
static double number(const json_t *json, const char *name)
{
	const json_t *value = json_object_get(json, name);
	double number = json_is_number(value) ? json_number_value(value) : NAN;

	return number >= 0 && number <= VALUE_MAX ? number : NAN;
}

static struct run *run_of(struct input *input, const char *pool)
{
	struct run **last = &input->runs;

	while (*last && strcmp((*last)->pool, pool) != 0)
		last = &(*last)->next;
	if (!*last) {
		*last = calloc(1, sizeof(**last));
		if (*last)
			(*last)->pool = strdup(pool);
	}
	return *last;
}

static bool run_grow(struct run *run)
{
	size_t room = run->room ? run->room * 2 : 256;
	double *more;

	for (int v = 0; run->nr == run->room && v < VALUES; v++) {
		more = reallocarray(run->y[v], room, sizeof(*more));
		if (!more)
			return false;
		run->y[v] = more;
	}
	if (run->nr == run->room)
		run->room = room;
	return true;
}

/* Add an interval. Returns NULL, or what is wrong with @line. */
static const char *take_interval(struct input *input, const json_t *line)
{
	struct run *run = run_of(input, json_string_value(json_object_get(line, "pool")));

	if (!run || !run->pool || !run_grow(run))
		return "no memory for it";
	for (int v = 0; v < VALUES; v++) {
		double value = number(line, value_names[v]);

		if (isnan(value) && !(v == HIT && json_is_null(json_object_get(line, value_names[v]))))
			return value_names[v];
		run->y[v][run->nr] = value;
	}
	/* no operation, no latency: a logarithm of 0 does not exist */
	for (int v = PUT50; v <= GET99; v++) {
		if (run->y[v][run->nr] <= 0)
			run->y[v][run->nr] = NAN;
	}
	if (run->nr && run->y[TIME][run->nr] <= run->y[TIME][run->nr - 1])
		return "time";
	run->y[HIT][run->nr] *= 100;
	run->nr++;
	return NULL;
}

/* Add one value of a file. Returns NULL, or what is wrong with the value. */
static const char *take(struct input *input, json_t *value)
{
	if (!json_is_object(json_object_get(value, "latency_ns")))
		return take_interval(input, value);
	json_array_append(input->replays, value);
	return NULL;
}

static int read_text(struct input *input, const char *name, const char *text)
{
	unsigned int line = 1;
	const char *wrong;
	json_error_t error;
	json_t *value;

	for (;;) {
		for (; isspace((unsigned char)*text); text++)
			line += *text == '\n';
		if (!*text)
			return CLI_OK;
		value = json_loads(text, JSON_DISABLE_EOF_CHECK, &error);
		if (!value)
			return cli_fail("%s:%u: no JSON: %s", name,
					line + (unsigned int)error.line - 1, error.text);
		if (!json_is_string(json_object_get(value, "pool"))) {
			json_decref(value);
			return cli_fail("%s:%u: neither kvblk iostat nor kvblk replay printed this with -o json",
					name, line);
		}
		wrong = take(input, value);
		json_decref(value);
		if (wrong)
			return cli_fail("%s:%u: no line of kvblk iostat -o json, which go up in time: \"%s\" is missing or wrong",
					name, line, wrong);
		/* the error's position is behind the text that was read */
		for (int i = 0; i < error.position; i++)
			line += *text++ == '\n';
	}
}

static int read_file(struct input *input, const char *name, FILE *in)
{
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	int ret;

	len = getdelim(&text, &room, '\0', in);
	if (len < 0 && ferror(in))
		ret = cli_fail("%s: %s", name, strerror(errno));
	else
		ret = len < 0 ? CLI_OK : read_text(input, name, text);
	free(text);
	return ret;
}

static int read_all(struct input *input, const struct report_args *args)
{
	int ret = CLI_OK;
	FILE *in;

	if (!args->files.nr)
		return read_file(input, "stdin", stdin);
	for (size_t i = 0; i < args->files.nr && ret == CLI_OK; i++) {
		in = fopen(args->files.words[i], "re");
		if (!in)
			return cli_fail("%s: %s", args->files.words[i], strerror(errno));
		ret = read_file(input, args->files.words[i], in);
		fclose(in);
	}
	return ret;
}

static void free_input(struct input *input)
{
	struct run *next;

	for (struct run *run = input->runs; run; run = next) {
		next = run->next;
		for (int v = 0; v < VALUES; v++)
			free(run->y[v]);
		free(run->pool);
		free(run);
	}
	json_decref(input->replays);
}

/* ---- the page ---- */

static const char head[] =
	"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	"<meta name=\"viewport\" content=\"width=device-width\">\n<style>\n"
	"body { font: 15px/1.5 sans-serif; color: #222; background: #fff; max-width: 960px; margin: 2em auto; padding: 0 1em }\n"
	"h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid #ccc }\n"
	"table { border-collapse: collapse } th, td { text-align: right; padding: .1em .8em .1em 0 } th:first-child { text-align: left }\n"
	"svg { width: 100%; height: auto; margin: .8em 0; font: 12px sans-serif }\n"
	"svg path { fill: none; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round }\n"
	"svg .title { font-size: 14px; font-weight: bold } svg .grid { stroke: #e4e4e4 }\n"
	"svg .y { text-anchor: end; fill: #666 } svg .x { text-anchor: middle; fill: #666 } svg .bar { fill: #444; font-size: 11px }\n"
	"</style>\n<title>";

static double mean(const double *y, size_t nr)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < nr; i++) {
		if (!isnan(y[i])) {
			sum += y[i];
			n++;
		}
	}
	return n ? sum / (double)n : NAN;
}

static double largest(const double *y, size_t nr)
{
	double most = NAN;

	for (size_t i = 0; i < nr; i++) {
		if (!isnan(y[i]) && !(most >= y[i]))
			most = y[i];
	}
	return most;
}

static void row(FILE *to, const char *name, const char *format, double value)
{
	fprintf(to, "<tr><th>%s</th><td>", name);
	if (isnan(value))
		fputs("&ndash;", to);
	else
		fprintf(to, format, value);
	fputs("</td></tr>\n", to);
}

static void row_ns(FILE *to, const char *name, double ns)
{
	char text[32] = "&ndash;";

	if (!isnan(ns))
		cli_format_ns((uint64_t)ns, text, sizeof(text));
	fprintf(to, "<tr><th>%s</th><td>%s</td></tr>\n", name, text);
}

static void write_charts(FILE *to, struct run *run)
{
	const struct chart charts[] = {
		{ "Throughput, MiB/s", CHART_MIB_S, run->nr, run->y[TIME],
		  { { "put", run->y[PUT_MIB] }, { "get", run->y[GET_MIB] } } },
		{ "Hit ratio", CHART_PERCENT, run->nr, run->y[TIME], { { "hits", run->y[HIT] } } },
		{ "Latency of gets, upper bounds", CHART_NS, run->nr, run->y[TIME],
		  { { "p50", run->y[GET50] }, { "p99", run->y[GET99] } } },
		{ "Latency of puts, upper bounds", CHART_NS, run->nr, run->y[TIME],
		  { { "p50", run->y[PUT50] }, { "p99", run->y[PUT99] } } },
		/* computed from the sizes below */
		{ "How full the pool is", CHART_PERCENT, run->nr, run->y[TIME],
		  { { "flash", run->y[FREE] }, { "index", run->y[USED] } } },
	};

	for (size_t i = 0; i < run->nr; i++) {
		run->y[FREE][i] = run->y[CAPACITY][i] > 0 ?
			100 - 100 * run->y[FREE][i] / run->y[CAPACITY][i] : NAN;
		run->y[USED][i] = run->y[SLOTS][i] > 0 ?
			100 * run->y[USED][i] / run->y[SLOTS][i] : NAN;
	}
	for (size_t i = 0; i < ARRAY_SIZE(charts); i++)
		chart_draw(to, &charts[i]);
}

static void write_run(FILE *to, struct run *run)
{
	time_t from = (time_t)run->y[TIME][0], until = (time_t)run->y[TIME][run->nr - 1];
	char begin[32] = "", end[32] = "";
	struct tm tm;

	if (localtime_r(&from, &tm))
		strftime(begin, sizeof(begin), "%F %T", &tm);
	if (localtime_r(&until, &tm))
		strftime(end, sizeof(end), "%F %T", &tm);
	fputs("<h2>Pool ", to);
	chart_text(to, run->pool);
	fprintf(to, "</h2>\n<p>%s to %s, %zu intervals</p>\n<table>\n", begin, end, run->nr);
	row(to, "put, mean", "%.1f MiB/s", mean(run->y[PUT_MIB], run->nr));
	row(to, "get, mean", "%.1f MiB/s", mean(run->y[GET_MIB], run->nr));
	row(to, "hit ratio, mean of intervals", "%.1f %%", mean(run->y[HIT], run->nr));
	row_ns(to, "get p99, worst interval", largest(run->y[GET99], run->nr));
	row_ns(to, "put p99, worst interval", largest(run->y[PUT99], run->nr));
	fputs("</table>\n", to);
	write_charts(to, run);
}

static void write_replay(FILE *to, json_t *replay)
{
	static const char *const quantiles[] = { "p50", "p90", "p99", "p99.9" };
	struct chart_bar bars[16] = { 0 };
	json_t *latency;
	const char *name;
	size_t nr = 0;

	fputs("<h2>Replay on pool ", to);
	chart_text(to, json_string_value(json_object_get(replay, "pool")));
	fputs("</h2>\n<table>\n", to);
	row(to, "requests", "%.0f", number(replay, "requests"));
	row(to, "time", "%.1f s", number(replay, "seconds"));
	row(to, "block size", "%.0f B", number(replay, "block_size"));
	row(to, "hit ratio by leading runs", "%.1f %%", 100 * number(replay, "hit_ratio"));
	row(to, "put", "%.1f MiB/s", number(replay, "put_mib_s"));
	row(to, "get", "%.1f MiB/s", number(replay, "get_mib_s"));
	row(to, "write amplification", "%.3f", number(replay, "write_amplification"));
	fputs("</table>\n", to);
	json_object_foreach(json_object_get(replay, "latency_ns"), name, latency) {
		if (nr == ARRAY_SIZE(bars) || !(number(latency, "count") > 0))
			continue;
		bars[nr].name = name;
		for (size_t q = 0; q < ARRAY_SIZE(quantiles); q++)
			bars[nr].values[q] = number(latency, quantiles[q]);
		nr++;
	}
	if (nr)
		chart_draw_bars(to, "Latency", bars, nr);
}

static void write_page(FILE *to, const struct input *input, const char *title)
{
	json_t *replay;
	size_t i;

	fputs(head, to);
	chart_text(to, title);
	fputs("</title>\n</head>\n<body>\n<h1>", to);
	chart_text(to, title);
	fputs("</h1>\n", to);
	json_array_foreach(input->replays, i, replay)
		write_replay(to, replay);
	for (struct run *run = input->runs; run; run = run->next)
		write_run(to, run);
	fprintf(to, "<p>kvblk %s</p>\n</body>\n</html>\n", kvblk_version());
}

int report_main(int argc, char **argv)
{
	struct report_args args = { .title = "kvblk report" };
	struct input input = { .replays = json_array() };
	int ret;

	cli_parse(&report_syntax, argc, argv, &args);
	if (isatty(STDOUT_FILENO))
		ret = cli_fail("a report is HTML: send it to a file, > report.html");
	else
		ret = read_all(&input, &args);
	if (ret == CLI_OK && !input.runs && !json_array_size(input.replays))
		ret = cli_fail("there is nothing to report: no line was read");
	if (ret == CLI_OK) {
		write_page(stdout, &input, args.title);
		ret = cli_flush();
	}
	free_input(&input);
	return ret;
}
