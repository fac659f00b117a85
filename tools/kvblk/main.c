// SPDX-License-Identifier: MIT
/* kvblk: the table of commands. */
#include <stdio.h>
#include <string.h>

#include "pool/pool.h"

static const struct cli_verb commands[] = {
	{ "pool", pool_main, "create, destroy, list and show pools" },
	{ "member", member_main, "add, remove and list the devices of pools" },
	{ "tenant", tenant_main, "create, remove, clear and list the key spaces of pools" },
	{ "apply", apply_main, "bring this host to the state in kvblkd.conf" },
	{ "policy", policy_main, "decisions of kvblkd, with reasons" },
	{ "put", put_main, "store a block" },
	{ "get", get_main, "fetch a block" },
	{ "exists", exists_main, "show whether blocks are present" },
	{ "rm", rm_main, "remove blocks" },
	{ "prefetch", prefetch_main, "load blocks into memory before they are needed" },
	{ "hint", hint_main, "tell a pool what is known of blocks' future" },
	{ "keyspace", keyspace_main, "the secret salt of this deployment's keys" },
	{ "del", rm_main, NULL },
	{ "delete", rm_main, NULL },
	{ "remove", rm_main, NULL },
	{ "status", status_main, "health of all pools, with remedies" },
	{ "stat", stat_main, "counters and latencies of pools" },
	{ "stats", stat_main, NULL },
	{ "iostat", iostat_main, "rates of pools, a line each interval" },
	{ "top", top_main, "pools and members, live" },
	{ "topo", topo_main, "device memory that members reach directly" },
	{ "doctor", doctor_main, "check whether this host suits kvblk" },
	{ "events", events_main, "print events as they happen" },
	{ "replay", replay_main, "replay a trace of chat requests, or simulate it" },
	{ "report", report_main, "write an HTML page with plots of a run" },
	{ "bench", bench_main, "measure puts, gets and lookups of a pool" },
	/* verbs of "pool", accepted without the noun */
	{ "create", pool_create_main, NULL },
	{ "import", import_main, NULL },
	{ "destroy", pool_destroy_main, NULL },
	{ "export", pool_destroy_main, NULL },
	{ "clear", pool_clear_main, NULL },
	{ "list", pool_list_main, NULL },
	{ "ls", pool_list_main, NULL },
	{ "show", pool_show_main, NULL },
	{ "info", pool_show_main, NULL },
	{ "plan", pool_plan_main, NULL },
	{ 0 },
};

int main(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))) {
		printf("kvblk %s\n", kvblk_version());
		return cli_flush();
	}
	/* argp prints argv[0] in front of its messages */
	if (argc)
		argv[0] = (char *)(uintptr_t)"kvblk";
	return cli_run_verb(commands,
		"Each command takes -o json. The word \"pool\" may be left out: kvblk list.\n"
		"\nExample:\n"
		"  kvblk pool create kv0 --format /dev/nvme1n1 /dev/nvme2n1\n"
		"  kvblk put kv0 prefix/42 block.bin\n"
		"  kvblk get kv0 prefix/42 > copy.bin\n"
		"\nExit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such block,\n"
		"4 something needs a change, 5 nothing works; see status, doctor.\n",
		argc, argv);
}
