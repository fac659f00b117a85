// SPDX-License-Identifier: MIT
/*
 * kvblk keyspace: the deployment's salt, and prefixes of keys. Nothing prints the salt. A prefix
 * with the salt is a secret, too, because a prefix is sufficient to make keys.
 */
#include <errno.h>
#include <grp.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "common/salt.h"
#include "lib/kvblk_keys.h"

struct keyspace_args {
	struct cli_list list;
	bool make;
	const char *file;
	const char *group_name;
	gid_t group;
	struct kvblk_keyspace_spec spec;
};

#define AT(field) CLI_FIELD(struct keyspace_args, field)

static const struct cli_option keyspace_options[] = {
	{ "new", 0, CLI_FLAG, AT(make), NULL, "Make the file with a new salt, if there is none" },
	{ "group", 0, CLI_STRING, AT(group_name), "GROUP",
	  "Group that may read the new file (default: kvblk, if root makes it)", .with = "new" },
	{ "salt-file", 0, CLI_STRING, AT(file), "FILE",
	  "File of the salt, \"\": no salt (default: " KVBLK_SALT_FILE ")" },
	{ .help = "Print the first 20 bytes of the keys of this key space:" },
	{ "runtime", 0, CLI_STRING, AT(spec.runtime), "TEXT", "Program that defines the layout" },
	{ "model", 0, CLI_STRING, AT(spec.model), "TEXT", "Model and revision", .with = "runtime" },
	{ "tokenizer", 0, CLI_STRING, AT(spec.tokenizer), "TEXT", "Tokenizer", .with = "runtime" },
	{ "dtype", 0, CLI_STRING, AT(spec.dtype), "TEXT", "Type of the elements", .with = "runtime" },
	{ "layout", 0, CLI_STRING, AT(spec.layout), "TEXT", "Order and shape of the elements",
	  .with = "runtime" },
	{ "salt", 0, CLI_STRING, AT(spec.salt), "TEXT", "Salt of a tenant", .with = "runtime" },
	{ "block-tokens", 0, CLI_NUMBER, AT(spec.block_tokens), "N", "Tokens in a block", 1,
	  .with = "runtime" },
	{ "tp-rank", 0, CLI_NUMBER, AT(spec.tp_rank), "N", "Tensor parallel rank", .with = "runtime" },
	{ "tp-size", 0, CLI_NUMBER, AT(spec.tp_size), "N", "Tensor parallel processes", 1,
	  .with = "runtime" },
	{ "pp-rank", 0, CLI_NUMBER, AT(spec.pp_rank), "N", "Pipeline stage", .with = "runtime" },
	{ "pp-size", 0, CLI_NUMBER, AT(spec.pp_size), "N", "Pipeline stages", 1, .with = "runtime" },
	{ "cp-rank", 0, CLI_NUMBER, AT(spec.cp_rank), "N", "Context parallel rank", .with = "runtime" },
	{ "cp-size", 0, CLI_NUMBER, AT(spec.cp_size), "N", "Context parallel processes", 1,
	  .with = "runtime" },
	{ 0 },
};

static void check_keyspace(const struct argp_state *state, void *values)
{
	struct keyspace_args *args = values;
	const struct group *group;
	struct kvblk_keyspace space;

	if (args->make && !*args->file)
		cli_usage(state, "--new needs a --salt-file");
	if (args->spec.runtime && kvblk_keyspace_init(&space, &args->spec))
		cli_usage(state, "a key space needs --runtime, --model, --dtype, --layout and --block-tokens, and each rank must be below its size");
	args->group = salt_group();
	if (!args->group_name)
		return;
	group = getgrnam(args->group_name);
	if (!group)
		cli_usage(state, "--group %s: there is no such group", args->group_name);
	args->group = group->gr_gid;
}

static const struct cli_syntax keyspace_syntax = {
	.options = keyspace_options,
	.check = check_keyspace,
	.doc = "Show whether this host has the salt of the deployment, and its fingerprint. Connectors put the salt into their keys, so that nobody who lacks it can store a wrong block under a key that a runtime will use.\v"
	       "Example:\n  kvblk keyspace --new\n\n"
	       "kvblkd makes the file when it starts. Hosts that share blocks need copies of one file; equal files have equal fingerprints. An existing file is never changed.\n\n"
	       "Exits with 4 if there is no salt.",
};

/* Make the file. Returns an enum cli_exit. */
static int make_salt(const struct keyspace_args *args)
{
	const char *why;
	int ret = salt_make(args->file, args->group, &why);

	if (ret < 0)
		return cli_fail("%s: %s", args->file, why);
	if (!ret)
		return cli_fail("%s exists already and stays unchanged: all blocks stored with it would be lost",
				args->file);
	if (args->group == (gid_t)-1)
		cli_fail("%s: only its owner can read it; chgrp and chmod 0640 it for others", args->file);
	return CLI_OK;
}

/* Write the prefix of all keys of @spec to @prefix as hex digits. */
static void format_prefix(const struct kvblk_keyspace_spec *spec,
			  char prefix[2 * KVBLK_KEYSPACE_LEN + 1])
{
	uint8_t key[KVBLK_KEYSPACE_LEN + 1];
	struct kvblk_keyspace space;
	size_t len = sizeof(key);

	kvblk_keyspace_init(&space, spec);
	kvblk_keyspace_key(&space, "", 1, key, &len);
	for (size_t i = 0; i < KVBLK_KEYSPACE_LEN; i++)
		snprintf(prefix + 2 * i, 3, "%02x", key[i]);
}

static int print_keyspace(const struct keyspace_args *args, const char *print, const char *prefix)
{
	if (args->list.json)
		return cli_print_json(json_pack("{s:s, s:b, s:s?, s:s?}", "salt_file", args->file,
						"salted", !!print, "fingerprint", print,
						"prefix", prefix));
	printf("salt         %s\n", print ? args->file : "none");
	if (print)
		printf("fingerprint  %s\n", print);
	if (prefix)
		printf("prefix       %s\n", prefix);
	return cli_flush();
}

int keyspace_main(int argc, char **argv)
{
	struct keyspace_args args = {
		.file = KVBLK_SALT_FILE,
		.spec = { .size = sizeof(args.spec) },
	};
	char prefix[2 * KVBLK_KEYSPACE_LEN + 1];
	char salt[KVBLK_SALT_LEN + 1] = "";
	char print[SALT_PRINT_LEN + 1];
	const char *why;
	int err = 0, ret;

	cli_parse(&keyspace_syntax, argc, argv, &args);
	ret = args.make ? make_salt(&args) : CLI_OK;
	if (ret != CLI_OK)
		return ret;
	if (*args.file)
		err = kvblk_keyspace_salt(args.file, salt, &why);
	if (err && err != -ENOENT)
		return cli_fail("%s: %s", args.file, why);
	args.spec.secret = salt;
	if (*salt)
		salt_print(salt, print);
	if (args.spec.runtime)
		format_prefix(&args.spec, prefix);
	ret = print_keyspace(&args, *salt ? print : NULL, args.spec.runtime ? prefix : NULL);
	if (ret != CLI_OK || !err)
		return ret;
	cli_fail("%s: no such file, so anybody who can guess a key can store a wrong block under it; start kvblkd, run: kvblk keyspace --new, or copy the file of a host that shares blocks",
		 args.file);
	return CLI_DEGRADED;
}
