// SPDX-License-Identifier: MIT
/* kvblk: the one command. Picks the noun's function. */
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct cli_verb nouns[] = {
	{ "pool", pool_main, "create, destroy, list and show pools" },
	{ "member", member_main, "add, remove and list the devices of pools" },
	{ "put", put_main, "store a block" },
	{ "get", get_main, "fetch a block" },
	{ "exists", exists_main, "tell whether blocks are here" },
	{ "rm", rm_main, "remove blocks" },
	{ "stat", stat_main, "counters and latencies of pools" },
	{ "topo", topo_main, "which devices' memory members reach directly" },
	{ "events", events_main, "print what happens, as it happens" },
	{ "replay", replay_main, "replay a trace of chat requests, or simulate it" },
	{ "bench", bench_main, "measure puts, gets and lookups of a pool" },
	{ 0 },
};

static void print_help(FILE *to)
{
	fputs("Usage: kvblk COMMAND [OPTION...] [ARGUMENT...]\n"
	      "KV-cache blocks on pools of NVMe-oF namespaces.\n\n", to);
	for (const struct cli_verb *noun = nouns; noun->name; noun++)
		fprintf(to, "  %-8s %s\n", noun->name, noun->summary);
	fputs("\n\"kvblk COMMAND --help\" tells a command's options. Each takes -o json.\n"
	      "\nExample:\n"
	      "  kvblk pool create kv0 --format /dev/nvme1n1 /dev/nvme2n1\n"
	      "  kvblk put kv0 prefix/42 block.bin\n"
	      "  kvblk get kv0 prefix/42 > copy.bin\n"
	      "\nExit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such block.\n",
	      to);
}

int main(int argc, char **argv)
{
	const struct cli_verb *noun;
	char name[32];

	if (argc < 2) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help")) {
		print_help(stdout);
		return cli_flush();
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("kvblk %s\n", kvblk_version());
		return cli_flush();
	}
	for (noun = nouns; noun->name; noun++) {
		if (strcmp(noun->name, argv[1]) != 0)
			continue;
		/* what argp calls the program in its messages */
		snprintf(name, sizeof(name), "kvblk %s", noun->name);
		argv[1] = name;
		return noun->run(argc - 1, argv + 1);
	}
	fprintf(stderr, "kvblk: there is no command \"%s\"; see: kvblk --help\n",
		argv[1]);
	return CLI_USAGE;
}
