// SPDX-License-Identifier: MIT
/*
 * kvblk apply: bring the host to the configured state. kvblkd does the work, in a process
 * that ends afterwards: NVMe-oF, modules and the file's syntax are implemented only there.
 * No daemon has to run.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/options.h"

struct apply_args {
	struct cli_list list;
	bool dry_run;
	const char *config;
};

#define AT(field) CLI_FIELD(struct apply_args, field)

static const struct cli_option apply_options[] = {
	{ "config", 0, CLI_STRING, AT(config), "FILE",
	  "Read FILE and FILE.d/*.conf (default: /etc/kvblk/kvblkd.conf)" },
	{ "dry-run", 0, CLI_FLAG, AT(dry_run), NULL, "Print the steps, change nothing" },
	{ 0 },
};

static const struct cli_syntax apply_syntax = {
	.options = apply_options,
	.doc = "Bring this host to the state in kvblkd.conf with the fewest changes: load modules, connect to subsystems, import pools, add missing members, set tunables. Nothing is formatted, taken down or disconnected.\v"
	       "Example:\n  kvblk apply --dry-run",
};

int apply_main(int argc, char **argv)
{
	struct apply_args args = { 0 };
	const char *run[8] = { "kvblkd", "--apply" };
	size_t nr = 2;

	cli_parse(&apply_syntax, argc, argv, &args);
	if (args.dry_run)
		run[nr++] = "--dry-run";
	if (args.list.json)
		run[nr++] = "--output=json";
	if (args.config) {
		run[nr++] = "--config";
		run[nr++] = args.config;
	}
	execvp("kvblkd", (char *const *)run);
	/* a dry run needs no root, and an ordinary user's PATH may lack /usr/sbin */
	if (errno == ENOENT)
		execv("/usr/sbin/kvblkd", (char *const *)run);
	return cli_fail("cannot run kvblkd: %s%s", strerror(errno),
			errno == ENOENT ? "; is the package kvblkd installed?" : "");
}
