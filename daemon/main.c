// SPDX-License-Identifier: MIT
/* kvblkd: the command line. loop.c runs the daemon, apply/apply_once.c runs --apply. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apply/apply_once.h"
#include "config/config.h"
#include "kvblk.h"
#include "loop.h"
#include "metrics/metrics.h"

enum {
	OPT_APPLY = 0x100,
	OPT_CHECK,
	OPT_CONFIG,
	OPT_DRY_RUN,
	OPT_METRICS,
	OPT_SETTINGS,
};

struct args {
	const char *config;
	bool apply;
	bool dry_run;
	bool json;
};

static int check_file(const char *path)
{
	struct config config;
	unsigned int errors = config_load(path, &config, stderr);

	config_free(&config);
	return errors ? EXIT_FAILURE : EXIT_SUCCESS;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct args *args = state->input;

	switch (key) {
	case OPT_APPLY:
		args->apply = true;
		return 0;
	case OPT_CONFIG:
		args->config = arg;
		return 0;
	case OPT_DRY_RUN:
		args->dry_run = true;
		return 0;
	case 'o':
		args->json = !strcmp(arg, "json");
		if (!args->json && strcmp(arg, "text") != 0)
			argp_error(state, "-o %s: unknown format; pass json or text", arg);
		return 0;
	case OPT_CHECK:
		exit(check_file(arg));
	case OPT_SETTINGS:
		config_print_settings(stdout);
		exit(EXIT_SUCCESS);
	case OPT_METRICS:
		metrics_print(stdout, METRICS_TABLE, &(struct metrics){ .up = false });
		exit(EXIT_SUCCESS);
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument \"%s\"", arg);
		return 0;
	case ARGP_KEY_END:
		if (!args->apply && (args->dry_run || args->json))
			argp_error(state, "--dry-run and -o require --apply");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "config", OPT_CONFIG, "FILE", 0,
	  "Read the configuration from FILE and FILE.d/*.conf (default: " CONFIG_PATH ")", 0 },
	{ "apply", OPT_APPLY, NULL, 0,
	  "Apply the configuration to the host once and exit, as \"kvblk apply\" does", 0 },
	{ "dry-run", OPT_DRY_RUN, NULL, 0, "With --apply: print the steps and change nothing", 0 },
	{ "output", 'o', "FORMAT", 0, "With --apply: output format, json or text (the default)", 0 },
	{ "check", OPT_CHECK, "FILE", 0,
	  "Check the configuration in FILE and FILE.d/*.conf, print its errors and exit", 0 },
	/* hidden: tests compare the man page and Documentation/metrics.rst with their output */
	{ "settings", OPT_SETTINGS, NULL, OPTION_HIDDEN, NULL, 0 },
	{ "metrics", OPT_METRICS, NULL, OPTION_HIDDEN, NULL, 0 },
	{ 0 },
};

static void print_version(FILE *to, struct argp_state *state)
{
	fprintf(to, "kvblkd %s\n", kvblk_version());
}

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.doc = "Keep this host in the state that kvblkd.conf describes, and log the events of its kvblk pools.\v"
	       "kvblkd runs in the foreground and logs to stderr, under systemd with priorities for the journal. SIGHUP reloads the configuration, SIGTERM and SIGINT stop kvblkd.\n\n"
	       "Example:\n  systemctl enable --now kvblkd; journalctl -fu kvblkd",
};

int main(int argc, char **argv)
{
	struct args args = { .config = CONFIG_PATH };

	argp_program_version_hook = print_version;
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (args.apply)
		return apply_once(args.config, args.dry_run, args.json);
	return loop(args.config);
}
