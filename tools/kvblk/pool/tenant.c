// SPDX-License-Identifier: MIT
/* kvblk tenant: key spaces of a pool, each with a device node of its own. */
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/confirm.h"
#include "cli/options.h"

#define MODE_DEFAULT	0660
#define MODE_MAX	0777

struct tenant_args {
	struct cli_list list;
	bool yes;
	bool force;
	const char *pool;
	const char *name;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
};

#define AT(field)	CLI_FIELD(struct tenant_args, field)

static void take_mode(struct argp_state *state, const char *text, void *field)
{
	unsigned long mode = 0;

	/* not by strtoul() alone, which accepts a sign, blanks and a tail */
	if (strspn(text, "01234567") == strlen(text))
		mode = strtoul(text, NULL, 8);
	if (!mode || mode > MODE_MAX)
		cli_usage(state, "--mode %s: must be octal permission bits from 1 to 0777, like 0660", text);
	*(uint32_t *)field = (uint32_t)mode;
}

/* Read a number of a user or group. Returns false unless @text is one; -1 means none. */
static bool take_id(const char *text, uint32_t *id)
{
	unsigned long long number;

	if (!*text || strspn(text, "0123456789") != strlen(text))
		return false;
	errno = 0;
	number = strtoull(text, NULL, 10);
	*id = (uint32_t)number;
	return !errno && number < UINT32_MAX;
}

static void take_owner(struct argp_state *state, const char *text, void *field)
{
	const struct passwd *user = getpwnam(text);

	if (user)
		*(uint32_t *)field = user->pw_uid;
	else if (!take_id(text, field))
		cli_usage(state, "--owner %s: there is no such user", text);
}

static void take_group(struct argp_state *state, const char *text, void *field)
{
	const struct group *group = getgrnam(text);

	if (group)
		*(uint32_t *)field = group->gr_gid;
	else if (!take_id(text, field))
		cli_usage(state, "--group %s: there is no such group", text);
}

static const struct cli_option arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ "TENANT", 0, CLI_TENANT, AT(name), .required = true },
	{ 0 },
};

static const struct cli_option create_options[] = {
	{ "mode", 0, CLI_CALL, AT(mode), "OCTAL", "Permission bits of the device node (0660)",
	  .take = take_mode },
	{ "owner", 0, CLI_CALL, AT(uid), "USER", "Owner of the device node, a name or a number (root)",
	  .take = take_owner },
	{ "group", 0, CLI_CALL, AT(gid), "GROUP", "Group of the device node, a name or a number (root)",
	  .take = take_group },
	{ 0 },
};

static const struct cli_syntax create_syntax = {
	.options = create_options,
	.arguments = arguments,
	.usage = "POOL TENANT",
	.doc = "Create TENANT, an empty key space of POOL. Its device node is /dev/kvblk/POOL/TENANT.\v"
	       "Example:\n  kvblk tenant create kv0 blue --owner vllm --mode 0600",
};

/*
 * Report a change of the tenant in @args, which was @done or failed with @err. Returns
 * CLI_OK, CLI_DEGRADED with a warning of the module, or CLI_ERROR.
 */
static int report(struct kvblk_admin *admin, const struct tenant_args *args, const char *done,
		  int err)
{
	char subject[2 * KVBLK_NAME_LEN_MAX + 2];
	int ret;

	snprintf(subject, sizeof(subject), "%s/%s", args->pool, args->name);
	if (err)
		return cli_admin_fail(admin, err, subject);
	ret = cli_admin_warn(admin, subject);
	if (args->list.json &&
	    cli_print_json(json_pack("{s:s, s:s, s:b}", "pool", args->pool, "name", args->name,
				     done, 1)))
		return CLI_ERROR;
	return ret;
}

static int create_main(int argc, char **argv)
{
	struct tenant_args args = { .mode = MODE_DEFAULT };
	struct kvblk_tenant_spec spec;
	struct kvblk_admin *admin;
	int ret;

	cli_parse(&create_syntax, argc, argv, &args);
	spec = (struct kvblk_tenant_spec){
		.size = sizeof(spec),
		.mode = args.mode,
		.uid = args.uid,
		.gid = args.gid,
		.name = args.name,
	};
	admin = cli_open_admin();
	ret = report(admin, &args, "created", kvblk_tenant_create(admin, args.pool, &spec));
	kvblk_admin_close(admin);
	return ret;
}

static const struct cli_option end_options[] = {
	{ "yes", 'y', CLI_FLAG, AT(yes), NULL, "Don't ask whether the blocks may be lost" },
	{ "force", 'f', CLI_FLAG, AT(force), NULL,
	  "Even if the device node is open; who has it open gets ENODEV" },
	{ 0 },
};

static void check_end(const struct argp_state *state, void *values)
{
	const struct tenant_args *args = values;

	if (!strcmp(args->name, "default"))
		cli_usage(state, "the tenant \"default\" is part of each pool: it cannot be removed or cleared");
}

static const struct cli_syntax remove_syntax = {
	.options = end_options,
	.arguments = arguments,
	.check = check_end,
	.usage = "POOL TENANT",
	.doc = "Remove TENANT from POOL with its device node and all its blocks, after confirmation.\v"
	       "Example:\n  kvblk tenant remove kv0 blue",
};

static const struct cli_syntax clear_syntax = {
	.options = end_options,
	.arguments = arguments,
	.check = check_end,
	.usage = "POOL TENANT",
	.doc = "Remove all blocks of TENANT at once, after confirmation. The tenant stays, with a new device node of the same name.\v"
	       "Example:\n  kvblk tenant clear kv0 blue",
};

/* Ask about the blocks of the tenant in @args, which is in @tenants. */
static int confirm_end(const struct tenant_args *args, const struct kvblk_tenant_state *tenants)
{
	char subject[2 * KVBLK_NAME_LEN_MAX + 32], lost[128];

	while (tenants && strcmp(tenants->name, args->name) != 0)
		tenants = tenants->next;
	if (!tenants)
		return cli_fail("%s: pool %s has no such tenant; see: kvblk tenant list %s",
				args->name, args->pool, args->pool);
	snprintf(subject, sizeof(subject), "tenant %s of pool %s", tenants->name, tenants->pool);
	snprintf(lost, sizeof(lost), "  all its blocks\n");
	if (args->force && tenants->openers)
		snprintf(lost, sizeof(lost), "  all its blocks, and %" PRIu64 " open file%s of its node\n",
			 tenants->openers, tenants->openers == 1 ? "" : "s");
	return confirm(args->yes, subject, lost);
}

/* Run a verb that ends the life of a tenant's blocks. */
static int run_end(const struct cli_syntax *syntax, const char *done, int argc, char **argv,
		   int (*end)(struct kvblk_admin *admin, const char *pool, const char *name,
			      bool force))
{
	struct kvblk_tenant_state *tenants = NULL;
	struct tenant_args args = { 0 };
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = kvblk_tenant_list(admin, args.pool, &tenants);
	ret = err ? cli_admin_fail(admin, err, args.pool) : confirm_end(&args, tenants);
	if (ret == CLI_OK)
		ret = report(admin, &args, done, end(admin, args.pool, args.name, args.force));
	kvblk_list_free(tenants);
	kvblk_admin_close(admin);
	return ret;
}

static int remove_main(int argc, char **argv)
{
	return run_end(&remove_syntax, "removed", argc, argv, kvblk_tenant_remove);
}

static int clear_main(int argc, char **argv)
{
	return run_end(&clear_syntax, "cleared", argc, argv, kvblk_tenant_clear);
}

static const struct cli_option list_arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool) },
	{ 0 },
};

static const struct cli_syntax list_syntax = {
	.arguments = list_arguments,
	.list = true,
	.usage = "[POOL]",
	.doc = "List the tenants of POOL, or of all pools. OPENERS is how many times the device node is open. MODE, OWNER and GROUP are those of the node as the tenant was created; those of \"default\" are up to udev.\v"
	       "Example:\n  kvblk tenant list kv0 -H | cut -f 2",
};

/* Write the name @name of a user or group, or its number @id, to @buf. */
static void write_id(const struct cli_list *list, const char *name, uint32_t id, char buf[40])
{
	if (name && !list->exact)
		snprintf(buf, 40, "%s", name);
	else
		snprintf(buf, 40, "%" PRIu32, id);
}

static void print_tenants(const struct cli_list *list, const struct kvblk_tenant_state *tenant)
{
	static const struct cli_column columns[] = {
		{ "POOL", -12 }, { "TENANT", -16 }, { "ID", 6 }, { "MODE", -5 }, { "OWNER", -10 },
		{ "GROUP", -10 }, { "OPENERS", 7 }, { "NODE", -1 }, { 0 },
	};
	const char *none = list->bare ? "" : "-";
	char id[16], mode[16], owner[40], group[40], openers[24], node[128];

	cli_print_head(list, columns);
	for (; tenant; tenant = tenant->next) {
		const bool known = tenant->has_mode;
		const char *cells[] = {
			tenant->pool, tenant->name, id, known ? mode : none, known ? owner : none,
			known ? group : none, tenant->has_use ? openers : none, node,
		};
		const struct passwd *user = known ? getpwuid(tenant->uid) : NULL;
		const struct group *members = known ? getgrgid(tenant->gid) : NULL;

		snprintf(id, sizeof(id), "%" PRIu32, tenant->id);
		snprintf(mode, sizeof(mode), "%04" PRIo32, tenant->mode);
		write_id(list, user ? user->pw_name : NULL, tenant->uid, owner);
		write_id(list, members ? members->gr_name : NULL, tenant->gid, group);
		snprintf(openers, sizeof(openers), "%" PRIu64, tenant->openers);
		snprintf(node, sizeof(node), "/dev/%s", tenant->devnode);
		cli_print_row(list, columns, cells);
	}
}

static json_t *json_tenants(const struct kvblk_tenant_state *tenant)
{
	json_t *array = json_array();
	char mode[16];

	for (; tenant; tenant = tenant->next) {
		const bool known = tenant->has_mode;

		snprintf(mode, sizeof(mode), "%04" PRIo32, tenant->mode);
		json_array_append_new(array, json_pack("{s:s, s:s, s:I, s:s?, s:o, s:o, s:o, s:s+}",
			"pool", tenant->pool,
			"name", tenant->name,
			"id", (json_int_t)tenant->id,
			"mode", known ? mode : NULL,
			"uid", cli_json_use(known, tenant->uid),
			"gid", cli_json_use(known, tenant->gid),
			"openers", cli_json_use(tenant->has_use, tenant->openers),
			"node", "/dev/", tenant->devnode));
	}
	return array;
}

static int list_main(int argc, char **argv)
{
	struct kvblk_tenant_state *tenants = NULL;
	struct tenant_args args = { 0 };
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&list_syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = kvblk_tenant_list(admin, args.pool, &tenants);
	if (err) {
		ret = cli_admin_fail(admin, err, args.pool ? args.pool : "tenant list");
	} else if (args.list.json) {
		ret = cli_print_json(json_tenants(tenants));
	} else {
		print_tenants(&args.list, tenants);
		ret = cli_flush();
	}
	kvblk_list_free(tenants);
	kvblk_admin_close(admin);
	return ret;
}

int tenant_main(int argc, char **argv)
{
	static const struct cli_verb verbs[] = {
		{ "create", create_main, "create a tenant" },
		{ "remove", remove_main, "remove a tenant and its blocks" },
		{ "rm", remove_main, NULL },
		{ "delete", remove_main, NULL },
		{ "clear", clear_main, "remove all blocks of a tenant" },
		{ "list", list_main, "list tenants" },
		{ "ls", list_main, NULL },
		{ 0 },
	};

	return cli_run_verb(verbs,
		"Example:\n  kvblk tenant create kv0 blue --owner vllm --mode 0600\n"
		"  kvblk put kv0/blue prefix/42 block.bin\n",
		argc, argv);
}
