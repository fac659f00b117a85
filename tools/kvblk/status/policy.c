// SPDX-License-Identifier: MIT
/*
 * kvblk policy explain: the last decisions of kvblkd for a pool, with reasons. The rule: the
 * command reads the daemon's runtime directory, one line of JSON a decision. It talks
 * neither to the daemon nor to the module.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "../../../daemon/policy/policy_paths.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "common/jsonl.h"

#define COUNT	20

struct policy_args {
	struct cli_list list;
	const char *pool;
	const char *dir;
	uint64_t count;
};

#define AT(field) CLI_FIELD(struct policy_args, field)

static const struct cli_option explain_options[] = {
	{ "count", 0, CLI_NUMBER, AT(count), "N", "Show the last N decisions (default: 20)", 1, UINT32_MAX },
	/* hidden, for tests */
	{ "dir", 0, CLI_STRING, AT(dir), "DIRECTORY" },
	{ 0 },
};

static const struct cli_option explain_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ 0 },
};

static const struct cli_syntax explain_syntax = {
	.options = explain_options,
	.arguments = explain_arguments,
	.list = true,
	.usage = "POOL",
	.doc = "Show the last decisions of kvblkd for POOL, oldest first: writes a day, the budget, changed tunables and the reason. See budget and reserve in kvblkd.conf(5). For root and the group kvblk-monitor.\v"
	       "Example:\n  kvblk policy explain kv0 --count 3",
};

/* ---- the daemon's files ---- */

/* Returns whether kvblkd runs: the daemon holds a lock on the file as long as it runs. */
static bool daemon_runs(int dir)
{
	int fd = openat(dir, POLICY_LOCK, O_RDONLY | O_CLOEXEC);
	bool runs = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;

	if (fd >= 0)
		close(fd);
	return runs;
}

/* Returns the last @count decisions for @pool. */
static json_t *load_decisions(int dir, const char *pool, uint64_t count)
{
	json_t *all = json_lines_load(dir, POLICY_DECISIONS), *found = json_array(), *one;
	const char *whose;
	size_t i;

	json_array_foreach(all, i, one) {
		whose = json_string_value(json_object_get(one, "pool"));
		if (whose && !strcmp(whose, pool))
			json_array_append(found, one);
	}
	json_decref(all);
	while (json_array_size(found) > count)
		json_array_remove(found, 0);
	return found;
}

/* Returns whether the caller may not read a file that exists. */
static bool is_denied(int dir, const char *name)
{
	return faccessat(dir, name, R_OK, AT_EACCESS) && errno == EACCES;
}

/* ---- output ---- */

/* "admit_permille 700 -> 645, first_permille ..." */
static void changes_text(const json_t *decision, char *buf, size_t len)
{
	json_t *from = json_object_get(decision, "from"), *to = json_object_get(decision, "to");
	const char *name;
	json_t *value;
	size_t at = 0;

	snprintf(buf, len, "-");
	json_object_foreach(to, name, value) {
		at += (size_t)snprintf(buf + at, len - at, "%s%s %lld -> %lld", at ? ", " : "", name,
				       (long long)json_integer_value(json_object_get(from, name)),
				       (long long)json_integer_value(value));
		if (at >= len)
			return;
	}
}

static void time_text(const struct cli_list *list, double seconds, char *buf, size_t len)
{
	time_t second = (time_t)seconds;
	struct tm tm;

	snprintf(buf, len, "%.0f", seconds);
	if (!list->exact && localtime_r(&second, &tm))
		strftime(buf, len, "%F %T", &tm);
}

static void bytes_text(const struct cli_list *list, const json_t *decision, const char *key,
		       char *buf, size_t len)
{
	double bytes = json_number_value(json_object_get(decision, key));

	snprintf(buf, len, "-");
	if (bytes > 0)
		cli_list_bytes(list, (uint64_t)bytes, buf, len);
}

static void print_decision(const struct cli_list *list, const struct cli_column *columns,
			   const json_t *decision)
{
	const char *kind = json_string_value(json_object_get(decision, "kind"));
	const char *reason = json_string_value(json_object_get(decision, "reason"));
	char when[32], written[32], budget[32], changes[256];
	const char *cells[] = { when, kind ? kind : "-", written, budget, changes,
				reason ? reason : "-" };

	time_text(list, json_number_value(json_object_get(decision, "time")), when, sizeof(when));
	bytes_text(list, decision, "written_a_day", written, sizeof(written));
	bytes_text(list, decision, "budget_a_day", budget, sizeof(budget));
	changes_text(decision, changes, sizeof(changes));
	cli_print_row(list, columns, cells);
}

static int print_decisions(const struct policy_args *args, json_t *decisions, bool runs)
{
	static const struct cli_column columns[] = {
		{ "TIME", -19 }, { "KIND", -8 }, { "WRITTEN/DAY", 11 }, { "BUDGET/DAY", 11 },
		{ "CHANGE", -26 }, { "REASON", -1 }, { 0 },
	};

	if (args->list.json)
		return cli_print_json(json_pack("{s:s, s:b, s:O}", "pool", args->pool,
						"daemon_runs", runs, "decisions", decisions));
	cli_print_head(&args->list, columns);
	for (size_t i = 0; i < json_array_size(decisions); i++)
		print_decision(&args->list, columns, json_array_get(decisions, i));
	return cli_flush();
}

static int explain_main(int argc, char **argv)
{
	struct policy_args args = { .dir = POLICY_DIR, .count = COUNT };
	json_t *decisions;
	int dir, ret;
	bool runs;

	cli_parse(&explain_syntax, argc, argv, &args);
	dir = open(args.dir, O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 && errno != ENOENT)
		return cli_fail("%s: %s", args.dir, strerror(errno));
	if (dir < 0)
		return cli_fail("%s: kvblkd is not running and left nothing in %s; start it: systemctl start kvblkd",
				args.pool, args.dir);
	if (is_denied(dir, POLICY_LOCK) || is_denied(dir, POLICY_DECISIONS)) {
		close(dir);
		return cli_fail("decisions are for root and the group kvblk-monitor (usermod -aG kvblk-monitor USER, then log in again)");
	}
	runs = daemon_runs(dir);
	decisions = load_decisions(dir, args.pool, args.count);
	close(dir);
	if (!json_array_size(decisions) && !args.list.json)
		ret = cli_fail(runs ? "%s: kvblkd has decided nothing: the pool is not up, or has neither budget nor reserve in kvblkd.conf(5)" :
				      "%s: kvblkd is not running and left no decision; start it: systemctl start kvblkd",
			       args.pool);
	else
		ret = print_decisions(&args, decisions, runs);
	if (ret == CLI_OK && !runs && !args.list.json)
		fprintf(stderr, "kvblk: kvblkd is not running: nothing is decided now\n");
	json_decref(decisions);
	return ret;
}

int policy_main(int argc, char **argv)
{
	static const struct cli_verb verbs[] = {
		{ "explain", explain_main, "show the decisions of kvblkd for a pool" },
		{ 0 },
	};

	return cli_run_verb(verbs, "Example:\n  kvblk policy explain kv0\n", argc, argv);
}
