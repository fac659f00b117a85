// SPDX-License-Identifier: MIT
/* kvblk tenant: key spaces of a pool, each with a device node of its own. */
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/confirm.h"
#include "cli/options.h"
#include "common/owner.h"
#include "pool/tenant_key.h"

#define MODE_DEFAULT	0660
#define MODE_MAX	0777
#define WEIGHT_MAX	10000
#define NODE_FIELDS	(KVBLK_TENANT_MODE | KVBLK_TENANT_UID | KVBLK_TENANT_GID)

struct tenant_args {
	struct cli_list list;
	bool yes;
	bool force;
	bool encrypt;
	const char *key_file;
	const char *pool;
	const char *name;
	struct kvblk_tenant_change change;
};

#define AT(field)	CLI_FIELD(struct tenant_args, field)
/* The field @field of the change, and the bit of it that the option sets. */
#define CHANGES(field, bit)							\
	.marks = offsetof(struct tenant_args, change.fields),			\
	.bits = KVBLK_TENANT_##bit,						\
	CLI_FIELD(struct tenant_args, change.field)

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

static void take_owner(struct argp_state *state, const char *text, void *field)
{
	if (!owner_user(text, field))
		cli_usage(state, "--owner %s: there is no such user", text);
}

static void take_group(struct argp_state *state, const char *text, void *field)
{
	if (!owner_group(text, field))
		cli_usage(state, "--group %s: there is no such group", text);
}

static void take_shared(struct argp_state *state, const char *text, void *field)
{
	if (!strcmp(text, "none"))
		text = "";
	else
		cli_check_name(state, "tenant", text);
	*(const char **)field = text;
}

static const struct cli_option arguments[] = {
	{ "POOL", 0, CLI_POOL, AT(pool), .required = true },
	{ "TENANT", 0, CLI_TENANT, AT(name), .required = true },
	{ 0 },
};

/* of a new tenant: mode 0660, owner and group root, no limit, weight 100, nothing shared */
static const struct cli_option change_options[] = {
	{ "mode", 0, CLI_CALL, CHANGES(mode, MODE), "OCTAL",
	  "Permission bits of the device node; 0660 unless set", .take = take_mode },
	{ "owner", 0, CLI_CALL, CHANGES(uid, UID), "USER",
	  "Owner of the device node, a name or a number; root unless set", .take = take_owner },
	{ "group", 0, CLI_CALL, CHANGES(gid, GID), "GROUP",
	  "Group of the device node, a name or a number; root unless set", .take = take_group },
	{ "quota-bytes", 0, CLI_SIZE, CHANGES(quota_bytes, QUOTA_BYTES), "SIZE",
	  "Most bytes of its blocks on members, with headers; 0: no limit" },
	{ "quota-bytes-soft", 0, CLI_SIZE, CHANGES(quota_bytes_soft, QUOTA_BYTES_SOFT), "SIZE",
	  "Bytes from which on its coldest blocks are dropped; 0: 15/16 of --quota-bytes" },
	{ "quota-blocks", 0, CLI_NUMBER, CHANGES(quota_blocks, QUOTA_BLOCKS), "N",
	  "Most blocks on members; 0: no limit" },
	{ "quota-blocks-soft", 0, CLI_NUMBER, CHANGES(quota_blocks_soft, QUOTA_BLOCKS_SOFT), "N",
	  "Blocks from which on its coldest are dropped; 0: 15/16 of --quota-blocks" },
	{ "quota-dram", 0, CLI_SIZE, CHANGES(quota_dram, QUOTA_DRAM), "SIZE",
	  "Most bytes of its blocks in memory; 0: no limit" },
	{ "weight", 0, CLI_NUMBER, CHANGES(weight, WEIGHT), "N",
	  "Share of bandwidth relative to other tenants, 1 to 10000; 100 unless set",
	  .min = 1, .max = WEIGHT_MAX },
	{ "shared", 0, CLI_CALL, CHANGES(shared, SHARED), "TENANT",
	  "Tenant whose blocks this one may read, too, or \"none\"", .take = take_shared },
	{ 0 },
};

static const struct cli_option create_options[] = {
	{ .rows = change_options },
	{ "encrypt", 0, CLI_FLAG, AT(encrypt), NULL, "Encrypt the payloads of blocks on members" },
	{ "key-file", 0, CLI_STRING, AT(key_file), "FILE",
	  "Key of 32 bytes; without it a random one, which ends with the pool's activation",
	  .with = "encrypt" },
	{ 0 },
};

static const struct cli_syntax create_syntax = {
	.options = create_options,
	.arguments = arguments,
	.usage = "POOL TENANT",
	.doc = "Create TENANT, an empty key space of POOL. Its device node is /dev/kvblk/POOL/TENANT.\v"
	       "Limits, weight and --shared hold until the pool is destroyed; kvblkd.conf(5) sets them again.\n\n"
	       "Example:\n  kvblk tenant create kv0 blue --owner vllm --mode 0600 --quota-bytes 500G",
};

static void check_set(const struct argp_state *state, void *values)
{
	const struct tenant_args *args = values;

	if (!args->change.fields)
		cli_usage(state, "nothing to change: give an option, like --quota-bytes 500G");
}

static const struct cli_syntax set_syntax = {
	.options = change_options,
	.arguments = arguments,
	.check = check_set,
	.usage = "POOL TENANT",
	.doc = "Change TENANT of POOL: what is given; the rest stays. \"default\" and \"nvme-kv\" have limits, but udev decides about their device nodes.\v"
	       "Limits, weight and --shared hold until the pool is destroyed; kvblkd.conf(5) sets them again.\n\n"
	       "Example:\n  kvblk tenant set kv0 blue --quota-bytes 500G --weight 300",
};

/* Write POOL/TENANT of @args to @buf. Returns @buf. */
static const char *subject_of(const struct tenant_args *args, char buf[2 * KVBLK_NAME_LEN_MAX + 2])
{
	snprintf(buf, 2 * KVBLK_NAME_LEN_MAX + 2, "%s/%s", args->pool, args->name);
	return buf;
}

/*
 * Report a change of the tenant in @args, which was @done or failed with @err. Returns
 * CLI_OK, CLI_DEGRADED with a warning of the module, or CLI_ERROR.
 */
static int report(struct kvblk_admin *admin, const struct tenant_args *args, const char *done,
		  int err)
{
	char subject[2 * KVBLK_NAME_LEN_MAX + 2];
	int ret;

	subject_of(args, subject);
	if (err)
		return cli_admin_fail(admin, err, subject);
	ret = cli_admin_warn(admin, subject);
	if (args->list.json &&
	    cli_print_json(json_pack("{s:s, s:s, s:b}", "pool", args->pool, "name", args->name,
				     done, 1)))
		return CLI_ERROR;
	return ret;
}

/* Set the limits of the tenant in @args, which was just created. Returns as report() does. */
static int limit_created(struct kvblk_admin *admin, struct tenant_args *args)
{
	char subject[2 * KVBLK_NAME_LEN_MAX + 2], text[sizeof(subject) + 32];
	int err;

	args->change.fields &= ~NODE_FIELDS;
	if (!args->change.fields)
		return CLI_OK;
	err = kvblk_tenant_set(admin, args->pool, args->name, &args->change);
	if (!err)
		return CLI_OK;
	snprintf(text, sizeof(text), "%s was created, but has no limits",
		 subject_of(args, subject));
	return cli_admin_fail(admin, err, text);
}

static int create_main(int argc, char **argv)
{
	struct tenant_args args = { .change = { .size = sizeof(args.change), .mode = MODE_DEFAULT } };
	struct kvblk_tenant_spec spec;
	struct kvblk_admin *admin;
	int ret, limited;
	int32_t key;

	cli_parse(&create_syntax, argc, argv, &args);
	key = args.encrypt ? tenant_key_add(args.key_file) : 0;
	if (args.encrypt && !key)
		return CLI_ERROR;
	spec = (struct kvblk_tenant_spec){
		.size = sizeof(spec),
		.mode = args.change.mode,
		.uid = args.change.uid,
		.gid = args.change.gid,
		.name = args.name,
		.key = key,
	};
	admin = cli_open_admin();
	ret = report(admin, &args, "created", kvblk_tenant_create(admin, args.pool, &spec));
	if (ret != CLI_ERROR) {
		limited = limit_created(admin, &args);
		ret = limited ? limited : ret;
	}
	kvblk_admin_close(admin);
	return ret;
}

static int set_main(int argc, char **argv)
{
	struct tenant_args args = { .change = { .size = sizeof(args.change) } };
	struct kvblk_admin *admin;
	int ret;

	cli_parse(&set_syntax, argc, argv, &args);
	admin = cli_open_admin();
	ret = report(admin, &args, "set",
		     kvblk_tenant_set(admin, args.pool, args.name, &args.change));
	kvblk_admin_close(admin);
	return ret;
}

static const struct cli_option key_options[] = {
	{ "key-file", 0, CLI_STRING, AT(key_file), "FILE", "Key of 32 bytes", .required = true },
	{ 0 },
};

static const struct cli_syntax key_syntax = {
	.options = key_options,
	.arguments = arguments,
	.usage = "POOL TENANT",
	.doc = "Give the key of an encrypted tenant, because the pool was imported since. Without it gets are misses, and puts fail.\v"
	       "Example:\n  kvblk tenant key kv0 blue --key-file /run/keys/blue",
};

static int key_main(int argc, char **argv)
{
	struct tenant_args args = { 0 };
	struct kvblk_admin *admin;
	int32_t key;
	int ret;

	cli_parse(&key_syntax, argc, argv, &args);
	key = tenant_key_add(args.key_file);
	if (!key)
		return CLI_ERROR;
	admin = cli_open_admin();
	ret = report(admin, &args, "unlocked", kvblk_tenant_key(admin, args.pool, args.name, key));
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

	if (!strcmp(args->name, "default") || !strcmp(args->name, "nvme-kv"))
		cli_usage(state, "the tenant \"%s\" is part of each pool: it cannot be removed or cleared",
			  args->name);
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
	.doc = "List the tenants of POOL, or of all pools. MODE, OWNER and GROUP are those of the device node; those of \"default\" and \"nvme-kv\" are up to udev. OPENERS is how many times the node is open, USED and QUOTA are bytes on members. -o json has more limits, and counters.\v"
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

/* Write @bytes, or "none" for no limit, to @buf. */
static void write_quota(const struct cli_list *list, uint64_t bytes, char *buf, size_t len)
{
	if (bytes || list->exact)
		cli_list_bytes(list, bytes, buf, len);
	else
		snprintf(buf, len, "none");
}

static void print_tenants(const struct cli_list *list, const struct kvblk_tenant_state *tenant)
{
	static const struct cli_column columns[] = {
		{ "POOL", -10 }, { "TENANT", -16 }, { "ID", 5 }, { "MODE", -4 }, { "OWNER", -10 },
		{ "GROUP", -10 }, { "OPENERS", 7 }, { "USED", 10 }, { "QUOTA", 10 }, { "WEIGHT", 6 },
		{ 0 },
	};
	const char *none = list->bare ? "" : "-";
	char id[16], mode[16], owner[40], group[40], openers[24], used[32], quota[32], weight[16];

	cli_print_head(list, columns);
	for (; tenant; tenant = tenant->next) {
		const bool known = tenant->has_mode;
		const char *cells[] = {
			tenant->pool, tenant->name, id, known ? mode : none, known ? owner : none,
			known ? group : none, tenant->has_use ? openers : none,
			tenant->has_used ? used : none, tenant->has_limits ? quota : none,
			tenant->has_limits ? weight : none,
		};
		const struct passwd *user = known ? getpwuid(tenant->uid) : NULL;
		const struct group *members = known ? getgrgid(tenant->gid) : NULL;

		snprintf(id, sizeof(id), "%" PRIu32, tenant->id);
		snprintf(mode, sizeof(mode), "%04" PRIo32, tenant->mode);
		write_id(list, user ? user->pw_name : NULL, tenant->uid, owner);
		write_id(list, members ? members->gr_name : NULL, tenant->gid, group);
		snprintf(openers, sizeof(openers), "%" PRIu64, tenant->openers);
		cli_list_bytes(list, tenant->used_bytes, used, sizeof(used));
		write_quota(list, tenant->quota_bytes, quota, sizeof(quota));
		snprintf(weight, sizeof(weight), "%" PRIu32, tenant->weight);
		cli_print_row(list, columns, cells);
	}
}

/* The counters of @tenant, or null if it has none. */
static json_t *json_counters(const struct kvblk_tenant_state *tenant)
{
	json_t *counters = json_object();

	for (unsigned int i = 0; i < KVBLK_TENANT_COUNTERS; i++) {
		if (tenant->has_counter[i])
			json_object_set_new(counters, kvblk_name(KVBLK_NAME_TENANT_COUNTER, i),
					    json_integer((json_int_t)tenant->counter[i]));
	}
	if (json_object_size(counters))
		return counters;
	json_decref(counters);
	return json_null();
}

static json_t *json_tenants(const struct kvblk_tenant_state *tenant)
{
	json_t *array = json_array();
	char mode[16];

	for (; tenant; tenant = tenant->next) {
		const bool known = tenant->has_mode, limits = tenant->has_limits;
		const bool used = tenant->has_used;

		snprintf(mode, sizeof(mode), "%04" PRIo32, tenant->mode);
		json_array_append_new(array, json_pack("{s:s, s:s, s:I, s:s?, s:o, s:o, s:o, s:b, s:b, s:s+,"
			" s:o, s:o, s:o, s:o, s:o, s:o, s:s?, s:o, s:o, s:o, s:o}",
			"pool", tenant->pool,
			"name", tenant->name,
			"id", (json_int_t)tenant->id,
			"mode", known ? mode : NULL,
			"uid", cli_json_use(known, tenant->uid),
			"gid", cli_json_use(known, tenant->gid),
			"openers", cli_json_use(tenant->has_use, tenant->openers),
			"encrypted", tenant->encrypted,
			"locked", tenant->locked,
			"node", "/dev/", tenant->devnode,
			"weight", cli_json_use(limits, tenant->weight),
			"quota_bytes", cli_json_use(limits, tenant->quota_bytes),
			"quota_bytes_soft", cli_json_use(limits, tenant->quota_bytes_soft),
			"quota_blocks", cli_json_use(limits, tenant->quota_blocks),
			"quota_blocks_soft", cli_json_use(limits, tenant->quota_blocks_soft),
			"quota_dram", cli_json_use(limits, tenant->quota_dram),
			"shared", limits ? tenant->shared : NULL,
			"used_bytes", cli_json_use(used, tenant->used_bytes),
			"used_blocks", cli_json_use(used, tenant->used_blocks),
			"used_dram", cli_json_use(used, tenant->used_dram),
			"counters", json_counters(tenant)));
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
		{ "set", set_main, "change limits, weight and device node of a tenant" },
		{ "key", key_main, "give the key of an encrypted tenant" },
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
