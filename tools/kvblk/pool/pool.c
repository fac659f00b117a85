// SPDX-License-Identifier: MIT
/* kvblk pool: make, take down, list, show pools. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/confirm.h"
#include "common/uuid.h"
#include "pool/member.h"
#include "pool/pool.h"
#include "pool/sizing.h"

/* Smaller blocks are rare, so an index that is too small for them is not told. */
#define BLOCK_SIZE_ASSUMED	(64u << 10)

enum {
	OPT_FORMAT = CLI_OPT_FIRST,
	OPT_STRICT,
	OPT_SEGMENT_SIZE,
	OPT_INDEX_SLOTS,
	OPT_BLOCK_SIZE,
	OPT_MEMBER,
	OPT_NAME,
};

struct create_args {
	bool json;
	bool yes;
	const char *name;
	uint32_t flags;
	uint32_t add_flags;
	uint32_t segment_size;
	uint64_t index_slots;
	uint32_t block_size;
	struct pool_devices devices;
};

void pool_take_device(const struct argp_state *state, struct pool_devices *devices,
		      const char *device)
{
	struct kvblk_member_spec *more;

	if (devices->nr == POOL_MEMBERS_MAX)
		cli_usage(state, "device %s: a pool has at most %d members",
			   device, POOL_MEMBERS_MAX);
	member_check_device(state, device);
	for (size_t i = 0; i < devices->nr; i++) {
		if (!strcmp(devices->specs[i].path, device))
			cli_usage(state, "device %s is given twice", device);
	}
	more = reallocarray(devices->specs, devices->nr + 1, sizeof(*more));
	if (!more)
		exit(cli_fail("no memory for the list of devices"));
	devices->specs = more;
	devices->specs[devices->nr++] = (struct kvblk_member_spec){ .path = device };
}

static void take_name(const struct argp_state *state, struct pool_devices *devices,
		      const char *name)
{
	cli_check_name(state, "member", name);
	if (devices->nr_names == POOL_MEMBERS_MAX)
		cli_usage(state, "name %s: a pool has at most %d members", name, POOL_MEMBERS_MAX);
	devices->names[devices->nr_names++] = name;
}

uint64_t pool_index_slots(const struct argp_state *state, const char *text)
{
	return cli_number(state, "--index-slots", text, 1, 1ull << 36);
}

static error_t parse_create(int key, char *arg, struct argp_state *state)
{
	struct create_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->json;
		return 0;
	case OPT_FORMAT:
		args->add_flags |= KVBLK_ADD_FLAG_FORMAT;
		return 0;
	case 'y':
		args->yes = true;
		return 0;
	case OPT_STRICT:
		args->flags |= KVBLK_POOL_FLAG_STRICT;
		return 0;
	case OPT_MEMBER:
		pool_take_device(state, &args->devices, arg);
		return 0;
	case OPT_NAME:
		take_name(state, &args->devices, arg);
		return 0;
	case OPT_SEGMENT_SIZE:
		args->segment_size = member_segment_size(state, arg);
		return 0;
	case OPT_INDEX_SLOTS:
		args->index_slots = pool_index_slots(state, arg);
		return 0;
	case OPT_BLOCK_SIZE:
		args->block_size = (uint32_t)cli_size(state, "--block-size", arg, 1,
						      KVBLK_VALUE_MAX);
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num) {
			pool_take_device(state, &args->devices, arg);
			return 0;
		}
		cli_check_pool_name(state, arg);
		args->name = arg;
		return 0;
	case ARGP_KEY_END:
		if (!args->name)
			cli_usage(state, "which name? Give NAME and DEVICEs");
		if (!args->devices.nr)
			cli_usage(state, "which devices? Give at least one");
		if (args->devices.nr_names > args->devices.nr)
			cli_usage(state, "%zu names for %zu devices", args->devices.nr_names,
				  args->devices.nr);
		if (args->index_slots && args->block_size)
			cli_usage(state, "give --index-slots or --block-size, not both");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option create_options[] = {
	{ "member", OPT_MEMBER, "DEVICE", 0, "The same as an argument DEVICE", 0 },
	{ "name", OPT_NAME, "NAME", 0,
	  "Name of a member, for as long as it is one; once for each DEVICE, in their order (default: the last part of DEVICE)", 0 },
	{ "format", OPT_FORMAT, NULL, 0,
	  "Make new, empty members: what the devices hold is lost, which is asked about", 0 },
	{ "yes", 'y', NULL, 0, "Don't ask", 0 },
	{ "strict", OPT_STRICT, NULL, 0,
	  "All transfers go through kernel memory, none directly", 0 },
	{ "segment-size", OPT_SEGMENT_SIZE, "BYTES", 0,
	  "Segments of the members: 8M to 1G, a power of two (default: by the device's size)", 0 },
	{ "index-slots", OPT_INDEX_SLOTS, "N", 0,
	  "Most blocks the pool can hold (default: by its capacity)", 0 },
	{ "block-size", OPT_BLOCK_SIZE, "BYTES", 0,
	  "Blocks will have this size: as many index slots as they need, see kvblk pool plan", 0 },
	{ 0 },
};

static const struct argp create_argp = {
	.options = create_options,
	.parser = parse_create,
	.args_doc = "NAME DEVICE...",
	.doc = "Make the new pool NAME out of DEVICEs. Blank devices become members; a device that holds anything, be it another pool's blocks, is refused without --format. A pool that was there comes back with \"kvblk pool import\".\v"
	       "Example:\n  kvblk pool create kv0 --format /dev/nvme1n1 /dev/nvme2n1",
	.children = cli_output_children,
};

/* Slots for blocks of @args->block_size; 0, the default, if the devices can't be looked at. */
static uint64_t slots_for(const struct create_args *args)
{
	struct plan_ask ask = {
		.nr_members = args->devices.nr,
		.segment_size = args->segment_size,
		.block_size = args->block_size,
	};
	struct plan plan;
	char why[256];

	for (size_t i = 0; i < args->devices.nr; i++) {
		/* what is wrong with a device the module tells */
		if (!pool_device_size(args->devices.specs[i].path, &ask.member_bytes[i]))
			return 0;
	}
	return plan_make(&ask, &plan, why, sizeof(why)) ? plan.index_slots : 0;
}

/* One line if the index that the module chose is full before the flash is. */
static void warn_of_index(struct kvblk_admin *admin, const char *name)
{
	struct kvblk_pool_state *pool;
	char bytes[32];
	uint64_t block;

	if (kvblk_pool_get(admin, name, &pool) || !pool)
		return;
	block = plan_smallest_block(pool->capacity, pool->index_slots);
	if (block > BLOCK_SIZE_ASSUMED)
		cli_fail("%s: blocks below %s fill the index, %" PRIu64 " slots, before the flash; smaller ones need --block-size or --index-slots, see kvblk pool plan",
			 name, cli_format_bytes(block, bytes, sizeof(bytes)), pool->index_slots);
	kvblk_pool_free(pool);
}

int pool_create_main(int argc, char **argv)
{
	struct create_args args = { 0 };
	struct kvblk_pool_spec spec;
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&create_argp, argc, argv, &args);
	for (size_t i = 0; i < args.devices.nr; i++)
		args.devices.specs[i].segment_size = args.segment_size;
	for (size_t i = 0; i < args.devices.nr_names; i++)
		args.devices.specs[i].name = args.devices.names[i];
	if (args.block_size)
		args.index_slots = slots_for(&args);
	spec = (struct kvblk_pool_spec){
		.name = args.name,
		.flags = args.flags,
		.add_flags = args.add_flags,
		.index_slots = args.index_slots,
		.members = args.devices.specs,
		.nr_members = args.devices.nr,
	};
	ret = cli_open_admin(&admin);
	if (ret)
		goto free_members;
	if (args.add_flags & KVBLK_ADD_FLAG_FORMAT)
		ret = confirm_format(args.yes, args.name, spec.members, spec.nr_members);
	if (ret)
		goto close_admin;
	err = kvblk_pool_create(admin, &spec);
	if (err)
		ret = cli_admin_fail(admin, err, args.name);
	else
		ret = pool_report(admin, args.name, args.json);
	if (!ret && !args.index_slots)
		warn_of_index(admin, args.name);
close_admin:
	kvblk_admin_close(admin);
free_members:
	free(args.devices.specs);
	return ret;
}

struct name_args {
	bool json;
	bool force;
	const char *name;
};

static error_t parse_name(int key, char *arg, struct argp_state *state)
{
	struct name_args *args = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &args->json;
		return 0;
	case 'f':
		args->force = true;
		return 0;
	case ARGP_KEY_ARG:
		cli_at_most(state, 1, arg);
		cli_check_pool_name(state, arg);
		args->name = arg;
		return 0;
	case ARGP_KEY_END:
		if (!args->name)
			cli_usage(state, "which pool? Give its NAME");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option destroy_options[] = {
	{ "force", 'f', NULL, 0, "Although its device nodes are open", 0 },
	{ 0 },
};

static const struct argp destroy_argp = {
	.options = destroy_options,
	.parser = parse_name,
	.args_doc = "NAME",
	.doc = "Take the pool NAME down in good order. Its blocks stay on its members and come back with \"kvblk pool import\".\v"
	       "Example:\n  kvblk pool destroy kv0",
	.children = cli_output_children,
};

int pool_destroy_main(int argc, char **argv)
{
	struct name_args args = { 0 };
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&destroy_argp, argc, argv, &args);
	ret = cli_open_admin(&admin);
	if (ret)
		return ret;
	err = kvblk_pool_destroy(admin, args.name, args.force);
	ret = err ? cli_admin_fail(admin, err, args.name) : cli_admin_warn(admin, args.name);
	if (!err && args.json && cli_print_json(json_pack("{s:s, s:b}", "name", args.name,
							  "destroyed", 1)))
		ret = CLI_ERROR;
	kvblk_admin_close(admin);
	return ret;
}

static const struct argp clear_argp = {
	.parser = parse_name,
	.args_doc = "NAME",
	.doc = "Count the errors of the pool NAME anew, in what \"kvblk status\" shows: those so far were looked at. The counters of \"kvblk stat\" go on.\v"
	       "Example:\n  kvblk pool clear kv0",
	.children = cli_output_children,
};

int pool_clear_main(int argc, char **argv)
{
	struct name_args args = { 0 };
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&clear_argp, argc, argv, &args);
	ret = cli_open_admin(&admin);
	if (ret)
		return ret;
	err = kvblk_pool_clear(admin, args.name);
	if (err)
		ret = cli_admin_fail(admin, err, args.name);
	else if (args.json)
		ret = cli_print_json(json_pack("{s:s, s:b}", "name", args.name, "cleared", 1));
	kvblk_admin_close(admin);
	return ret;
}

static json_t *json_pool(const struct kvblk_pool_state *pool)
{
	char uuid[40];

	return json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
			 " s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s+}",
		"name", pool->name,
		"uuid", uuid_format(pool->uuid, uuid),
		"strict", !!(pool->flags & KVBLK_POOL_FLAG_STRICT),
		"birth", (json_int_t)pool->birth,
		"epoch", (json_int_t)pool->epoch,
		"nr_members", (json_int_t)pool->nr_members,
		"capacity", (json_int_t)pool->capacity,
		"free", (json_int_t)pool->free,
		"nr_segments", (json_int_t)pool->nr_segments,
		"free_segments", (json_int_t)pool->free_segments,
		"index_slots", (json_int_t)pool->index_slots,
		"index_used", (json_int_t)pool->index_used,
		"index_evicted", (json_int_t)pool->index_evicted,
		"index_bytes", (json_int_t)pool->index_bytes,
		"leased_bytes", (json_int_t)pool->leased_bytes,
		"value_max", (json_int_t)pool->value_max,
		"unsure", (json_int_t)pool->unsure,
		"node", "/dev/", pool->devnode);
}

static void print_pools(const struct cli_list *list, const struct kvblk_pool_state *pool)
{
	static const struct cli_column columns[] = {
		{ "NAME", -16 }, { "MEMBERS", 7 }, { "CAPACITY", 12 }, { "FREE", 12 },
		{ "BLOCKS", 14 }, { "BLOCKS MAX", 14 }, { 0 },
	};
	char members[16], capacity[32], unused[32], used[32], slots[32];

	cli_print_head(list, columns);
	for (; pool; pool = pool->next) {
		const char *cells[] = { pool->name, members, capacity, unused, used, slots };

		snprintf(members, sizeof(members), "%u", pool->nr_members);
		cli_list_bytes(list, pool->capacity, capacity, sizeof(capacity));
		cli_list_bytes(list, pool->free, unused, sizeof(unused));
		snprintf(used, sizeof(used), "%" PRIu64, pool->index_used);
		snprintf(slots, sizeof(slots), "%" PRIu64, pool->index_slots);
		cli_print_row(list, columns, cells);
	}
}

static const struct argp list_argp = {
	.parser = cli_parse_nothing,
	.doc = "List the pools of this host.\v"
	       "Example:\n  kvblk pool list -Hp | cut -f 1,4",
	.children = cli_list_children,
};

int pool_list_main(int argc, char **argv)
{
	struct kvblk_pool_state *pools;
	struct kvblk_admin *admin;
	struct cli_list list = { 0 };
	json_t *array;
	int err, ret;

	cli_parse(&list_argp, argc, argv, &list);
	ret = cli_open_admin(&admin);
	if (ret)
		return ret;
	err = kvblk_pool_get(admin, NULL, &pools);
	if (err) {
		ret = cli_admin_fail(admin, err, "pool list");
		goto close_admin;
	}
	if (list.json) {
		array = json_array();
		for (struct kvblk_pool_state *p = pools; p; p = p->next)
			json_array_append_new(array, json_pool(p));
		ret = cli_print_json(array);
	} else {
		print_pools(&list, pools);
		ret = cli_flush();
	}
	kvblk_pool_free(pools);
close_admin:
	kvblk_admin_close(admin);
	return ret;
}

static void print_pool(const struct kvblk_pool_state *pool,
		       const struct kvblk_member_state *members)
{
	char bytes[32], more[32], uuid[40], birth[32] = "";
	time_t born = (time_t)pool->birth;
	struct tm tm;

	if (localtime_r(&born, &tm))
		strftime(birth, sizeof(birth), "%F %T", &tm);
	printf("pool       %s%s\n", pool->name,
	       pool->flags & KVBLK_POOL_FLAG_STRICT ? " (strict)" : "");
	printf("node       /dev/%s\n", pool->devnode);
	printf("uuid       %s\n", uuid_format(pool->uuid, uuid));
	printf("formatted  %s, epoch %" PRIu64 "\n", birth, pool->epoch);
	printf("capacity   %s, %s free (%u of %u segments)\n",
	       cli_format_bytes(pool->capacity, bytes, sizeof(bytes)),
	       cli_format_bytes(pool->free, more, sizeof(more)),
	       pool->free_segments, pool->nr_segments);
	printf("index      %" PRIu64 " of %" PRIu64 " entries used, %s of memory, %" PRIu64 " blocks evicted\n",
	       pool->index_used, pool->index_slots,
	       cli_format_bytes(pool->index_bytes, bytes, sizeof(bytes)),
	       pool->index_evicted);
	printf("leased     %s\n",
	       cli_format_bytes(pool->leased_bytes, bytes, sizeof(bytes)));
	printf("blocks     up to %s each\n",
	       cli_format_bytes(pool->value_max, bytes, sizeof(bytes)));
	if (pool->unsure)
		printf("deletes    fail: %u member%s may still hold the blocks\n", pool->unsure,
		       pool->unsure == 1 ? "" : "s");
	printf("\n");
	member_print(&(struct cli_list){ 0 }, members);
}

static const struct argp show_argp = {
	.parser = parse_name,
	.args_doc = "NAME",
	.doc = "Show the pool NAME and its members.\v"
	       "Example:\n  kvblk pool show kv0",
	.children = cli_output_children,
};

int pool_show_main(int argc, char **argv)
{
	struct kvblk_member_state *members = NULL;
	struct kvblk_pool_state *pool = NULL;
	struct name_args args = { 0 };
	struct kvblk_admin *admin;
	json_t *json;
	int err, ret;

	cli_parse(&show_argp, argc, argv, &args);
	ret = cli_open_admin(&admin);
	if (ret)
		return ret;
	err = kvblk_pool_get(admin, args.name, &pool);
	if (!err)
		err = kvblk_member_get(admin, args.name, &members);
	if (err || !pool) {
		ret = cli_admin_fail(admin, err, args.name);
		goto free_all;
	}
	if (args.json) {
		json = json_pool(pool);
		json_object_set_new(json, "members", member_json(members));
		ret = cli_print_json(json);
	} else {
		print_pool(pool, members);
		ret = cli_flush();
	}
free_all:
	kvblk_member_free(members);
	kvblk_pool_free(pool);
	kvblk_admin_close(admin);
	return ret;
}

int pool_main(int argc, char **argv)
{
	static const struct cli_verb verbs[] = {
		{ "plan", pool_plan_main, "tell how a pool should be made for given blocks" },
		{ "create", pool_create_main, "make a new pool" },
		{ "import", import_main, "bring a pool back with its blocks" },
		{ "destroy", pool_destroy_main, "take a pool down; its blocks stay on its members" },
		{ "rm", pool_destroy_main, NULL },
		{ "delete", pool_destroy_main, NULL },
		{ "export", pool_destroy_main, NULL },
		{ "list", pool_list_main, "list the pools of this host" },
		{ "ls", pool_list_main, NULL },
		{ "show", pool_show_main, "show a pool and its members" },
		{ "info", pool_show_main, NULL },
		{ "status", status_main, NULL },
		{ "clear", pool_clear_main, "count a pool's errors anew, in what status shows" },
		{ "get", tunable_get_main, "print tunables of a pool" },
		{ "set", tunable_set_main, "set tunables of a pool" },
		{ 0 },
	};

	return cli_run_verb(verbs,
		"Example:\n  kvblk pool create kv0 --format /dev/nvme1n1 /dev/nvme2n1\n"
		"  kvblk pool import kv0   # after a restart\n",
		argc, argv);
}
