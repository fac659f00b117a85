// SPDX-License-Identifier: MIT
/*
 * kvblk apply: the host is brought to what the configuration describes. kvblkd does it,
 * in a process of its own that ends when it is done: what it takes - NVMe-oF, modules,
 * the file's syntax - is in one program, and no daemon has to run.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

enum {
	OPT_CONFIG = CLI_OPT_FIRST,
	OPT_DRY_RUN,
};

struct apply_args {
	bool json;
	bool dry_run;
	const char *config;
};

static error_t parse_apply(int key, char *arg, struct argp_state *state)
{
	struct apply_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->json;
		return 0;
	case OPT_CONFIG:
		args->config = arg;
		return 0;
	case OPT_DRY_RUN:
		args->dry_run = true;
		return 0;
	case ARGP_KEY_ARG:
		cli_usage(state, "\"%s\": there is nothing to give here; a file is given with --config", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option apply_options[] = {
	{ "config", OPT_CONFIG, "FILE", 0,
	  "The configuration is in FILE and FILE.d/*.conf (default: /etc/kvblk/kvblkd.conf)", 0 },
	{ "dry-run", OPT_DRY_RUN, NULL, 0, "Print what would be done, change nothing", 0 },
	{ 0 },
};

static const struct argp apply_argp = {
	.options = apply_options,
	.parser = parse_apply,
	.doc = "Bring this host to what kvblkd.conf describes, with the least change: load modules, connect to subsystems, import pools, add lost members, set tunables. Nothing is formatted, taken down or disconnected.\v"
	       "Example:\n  kvblk apply --dry-run",
	.children = cli_output_children,
};

int apply_main(int argc, char **argv)
{
	struct apply_args args = { 0 };
	const char *run[8] = { "kvblkd", "--apply" };
	size_t nr = 2;

	cli_parse(&apply_argp, argc, argv, &args);
	if (args.dry_run)
		run[nr++] = "--dry-run";
	if (args.json)
		run[nr++] = "--output=json";
	if (args.config) {
		run[nr++] = "--config";
		run[nr++] = args.config;
	}
	execvp("kvblkd", (char *const *)run);
	/* it may not be in the path of who asks for a dry run */
	if (errno == ENOENT)
		execv("/usr/sbin/kvblkd", (char *const *)run);
	return cli_fail("kvblkd, which does this, can't be run: %s%s", strerror(errno),
			errno == ENOENT ? "; is the package kvblkd installed?" : "");
}
