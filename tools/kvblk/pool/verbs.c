// SPDX-License-Identifier: MIT
/* kvblk pool: the table of its verbs. */
#include "pool/pool.h"

int pool_main(int argc, char **argv)
{
	static const struct cli_verb verbs[] = {
		{ "plan", pool_plan_main, "compute the properties of a pool for given blocks" },
		{ "create", pool_create_main, "create a pool" },
		{ "import", import_main, "bring a pool back with its blocks" },
		{ "adopt", adopt_main, "take over the pool of a lost node of the pod" },
		{ "destroy", pool_destroy_main, "take a pool down; the blocks stay on the members" },
		{ "rm", pool_destroy_main, NULL },
		{ "delete", pool_destroy_main, NULL },
		{ "export", pool_destroy_main, NULL },
		{ "list", pool_list_main, "list the pools of this host" },
		{ "ls", pool_list_main, NULL },
		{ "show", pool_show_main, "show a pool and its members" },
		{ "info", pool_show_main, NULL },
		{ "status", status_main, NULL },
		{ "clear", pool_clear_main, "reset a pool's errors, as shown by status" },
		{ "get", tunable_get_main, "print tunables of a pool" },
		{ "set", tunable_set_main, "set tunables of a pool" },
		{ 0 },
	};

	return cli_run_verb(verbs,
		"Example:\n  kvblk pool create kv0 --format /dev/nvme1n1 /dev/nvme2n1\n"
		"  kvblk pool import kv0   # after a restart\n",
		argc, argv);
}
