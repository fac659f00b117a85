// SPDX-License-Identifier: MIT
/* kvblk pool: create, destroy, clear, list and show pools. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/confirm.h"
#include "cli/options.h"
#include "common/uuid.h"
#include "pool/member.h"
#include "pool/pool.h"
#include "pool/sizing.h"

/* smaller blocks are rare, so create does not warn of an index that suffices from here on */
#define BLOCK_SIZE_ASSUMED	(64u << 10)

struct create_args {
	struct cli_list list;
	bool yes;
	const char *name;
	uint32_t flags;
	uint32_t add_flags;
	uint32_t segment_size;
	uint64_t index_slots;
	uint32_t block_size;
	const char *pod;
	const char *pod_of;
	struct pool_devices devices;
};

#define AT(field) CLI_FIELD(struct create_args, field)

static const struct cli_option create_options[] = {
	{ "member", 0, CLI_CALL, AT(devices), "DEVICE", "Same as an argument DEVICE",
	  .take = pool_take_device },
	{ "name", 0, CLI_CALL, AT(devices), "NAME",
	  "Permanent name of a member; once for each DEVICE, in the same order (default: the last part of DEVICE)",
	  .take = pool_take_name },
	{ "format", 0, CLI_FLAG, AT(add_flags), NULL,
	  "Create new, empty members; asks before data on the devices is lost",
	  .bits = KVBLK_ADD_FLAG_FORMAT },
	{ "yes", 'y', CLI_FLAG, AT(yes), NULL, "Don't ask" },
	{ "strict", 0, CLI_FLAG, AT(flags), NULL,
	  "Move all blocks through kernel memory, never directly", .bits = KVBLK_POOL_FLAG_STRICT },
	{ "segment-size", 0, CLI_SEGMENT_SIZE, AT(segment_size), "BYTES",
	  "Size of the members' segments: 8M to 1G, a power of two (default: by the device's size)" },
	{ "index-slots", 0, CLI_NUMBER, AT(index_slots), "N",
	  "Maximum number of blocks in the pool (default: by its capacity)", 1, POOL_INDEX_MAX,
	  .without = "block-size" },
	{ "block-size", 0, CLI_SIZE, AT(block_size), "BYTES",
	  "Expected block size: choose the number of index slots accordingly, see kvblk pool plan",
	  1, KVBLK_VALUE_MAX },
	{ "pod", 0, CLI_POOL, AT(pod), "NAME",
	  "Make the pool part of the pod NAME, whose nodes read each other's blocks; without --seed-of, begin the pod" },
	{ "seed-of", 0, CLI_DEVICE, AT(pod_of), "DEVICE",
	  "Member of a pool of the pod, on any node: take the pod's identity and secret from it; it is only read",
	  .with = "pod" },
	{ "join", 0, CLI_DEVICE, AT(pod_of), "DEVICE", "Same as --seed-of", .with = "pod" },
	{ "force", 'f', CLI_FLAG, AT(add_flags), NULL,
	  "Use devices without reservations, too: nothing fences a second node that writes to them",
	  .bits = KVBLK_ADD_FLAG_FORCE, .with = "pod" },
	{ 0 },
};

static const struct cli_option create_arguments[] = {
	{ "NAME", 0, CLI_POOL, AT(name), .required = true },
	{ "DEVICE", 0, CLI_CALL, AT(devices), .take = pool_take_device, .repeat = true },
	{ 0 },
};

static void check_create(const struct argp_state *state, void *values)
{
	const struct pool_devices *devices = &((struct create_args *)values)->devices;

	if (!devices->nr)
		cli_usage(state, "missing DEVICE");
	if (devices->nr_names > devices->nr)
		cli_usage(state, "%zu names for %zu devices", devices->nr_names, devices->nr);
}

static const struct cli_syntax create_syntax = {
	.options = create_options,
	.arguments = create_arguments,
	.check = check_create,
	.usage = "NAME DEVICE...",
	.doc = "Create the pool NAME from DEVICEs. Blank devices become members; a device that holds data, including blocks of another pool, is refused without --format. To bring an existing pool back, use \"kvblk pool import\".\v"
	       "Example:\n  kvblk pool create kv0 --format /dev/nvme1n1 /dev/nvme2n1\n  kvblk pool create kv1 --pod rack7 --seed-of /dev/nvme1n1 /dev/nvme3n1",
};

/*
 * Returns the slots needed for blocks of @args->block_size; 0, the default, if a device
 * cannot be read.
 */
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
		/* the module reports what is wrong with the device */
		if (!pool_device_size(args->devices.specs[i].path, &ask.member_bytes[i]))
			return 0;
	}
	return plan_make(&ask, &plan, why, sizeof(why)) ? plan.index_slots : 0;
}

/* Warn if the module's default index fills up before the flash does. */
static void warn_of_index(struct kvblk_admin *admin, const char *name)
{
	struct kvblk_pool_state *pool;
	char bytes[32];
	uint64_t block;

	if (kvblk_pool_list(admin, name, &pool) || !pool)
		return;
	block = plan_smallest_block(pool->capacity, pool->index_slots);
	if (block > BLOCK_SIZE_ASSUMED)
		cli_fail("%s: blocks below %s fill the index, %" PRIu64 " slots, before the flash; smaller ones need --block-size or --index-slots, see kvblk pool plan",
			 name, cli_format_bytes(block, bytes, sizeof(bytes)), pool->index_slots);
	kvblk_list_free(pool);
}

int pool_create_main(int argc, char **argv)
{
	struct create_args args = { 0 };
	struct kvblk_pool_spec spec;
	struct kvblk_admin *admin;
	int err, ret = CLI_OK;

	cli_parse(&create_syntax, argc, argv, &args);
	for (size_t i = 0; i < args.devices.nr; i++)
		args.devices.specs[i].segment_size = args.segment_size;
	for (size_t i = 0; i < args.devices.nr_names; i++)
		args.devices.specs[i].name = args.devices.names[i];
	if (args.block_size)
		args.index_slots = slots_for(&args);
	spec = (struct kvblk_pool_spec){
		.size = sizeof(spec),
		.name = args.name,
		.flags = args.flags,
		.add_flags = args.add_flags,
		.index_slots = args.index_slots,
		.members = args.devices.specs,
		.nr_members = args.devices.nr,
		.pod = args.pod,
		.pod_of = args.pod_of,
	};
	admin = cli_open_admin();
	if (args.add_flags & KVBLK_ADD_FLAG_FORMAT)
		ret = confirm_format(args.yes, args.name, spec.members, spec.nr_members);
	if (ret)
		goto close_admin;
	err = kvblk_pool_create(admin, &spec);
	if (err)
		ret = cli_admin_fail(admin, err, args.name);
	else
		ret = pool_report(admin, args.name, args.list.json);
	if (!ret && !args.index_slots)
		warn_of_index(admin, args.name);
close_admin:
	kvblk_admin_close(admin);
	free(args.devices.specs);
	return ret;
}

struct name_args {
	struct cli_list list;
	bool force;
	const char *name;
};

static const struct cli_option name_argument[] = {
	{ "NAME", 0, CLI_POOL, CLI_FIELD(struct name_args, name), .required = true },
	{ 0 },
};

static const struct cli_option destroy_options[] = {
	{ "force", 'f', CLI_FLAG, CLI_FIELD(struct name_args, force), NULL,
	  "Even if device nodes of the pool are open" },
	{ 0 },
};

static const struct cli_syntax destroy_syntax = {
	.options = destroy_options,
	.arguments = name_argument,
	.usage = "NAME",
	.doc = "Take the pool NAME down cleanly. The blocks stay on the members; \"kvblk pool import\" brings them back.\v"
	       "Example:\n  kvblk pool destroy kv0",
};

int pool_destroy_main(int argc, char **argv)
{
	struct name_args args = { 0 };
	struct kvblk_admin *admin;
	int err, ret;

	cli_parse(&destroy_syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = kvblk_pool_destroy(admin, args.name, args.force);
	ret = err ? cli_admin_fail(admin, err, args.name) : cli_admin_warn(admin, args.name);
	if (!err && args.list.json && cli_print_json(json_pack("{s:s, s:b}", "name", args.name,
							  "destroyed", 1)))
		ret = CLI_ERROR;
	kvblk_admin_close(admin);
	return ret;
}

static const struct cli_syntax clear_syntax = {
	.arguments = name_argument,
	.usage = "NAME",
	.doc = "Reset the errors of the pool NAME that \"kvblk status\" shows, after they were investigated. The counters of \"kvblk stat\" continue.\v"
	       "Example:\n  kvblk pool clear kv0",
};

int pool_clear_main(int argc, char **argv)
{
	struct name_args args = { 0 };
	struct kvblk_admin *admin;
	int err, ret = CLI_OK;

	cli_parse(&clear_syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = kvblk_pool_clear(admin, args.name);
	if (err)
		ret = cli_admin_fail(admin, err, args.name);
	else if (args.list.json)
		ret = cli_print_json(json_pack("{s:s, s:b}", "name", args.name, "cleared", 1));
	kvblk_admin_close(admin);
	return ret;
}

static json_t *json_pool(const struct kvblk_pool_state *pool)
{
	char uuid[40], pod[40];

	return json_pack("{s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:o, s:I, s:o,"
			 " s:I, s:o, s:o, s:I, s:o, s:I, s:I, s:s+, s:s*, s:s*}",
		"name", pool->name,
		"uuid", uuid_format(pool->uuid, uuid),
		"strict", !!(pool->flags & KVBLK_POOL_FLAG_STRICT),
		"birth", (json_int_t)pool->birth,
		"epoch", (json_int_t)pool->epoch,
		"nr_members", (json_int_t)pool->nr_members,
		"capacity", (json_int_t)pool->capacity,
		"free", cli_json_use(pool->has_use, pool->free),
		"nr_segments", (json_int_t)pool->nr_segments,
		"free_segments", cli_json_use(pool->has_use, pool->free_segments),
		"index_slots", (json_int_t)pool->index_slots,
		"index_used", cli_json_use(pool->has_use, pool->index_used),
		"index_evicted", cli_json_use(pool->has_use, pool->index_evicted),
		"index_bytes", (json_int_t)pool->index_bytes,
		"leased_bytes", cli_json_use(pool->has_use, pool->leased_bytes),
		"value_max", (json_int_t)pool->value_max,
		"unsure", (json_int_t)pool->unsure,
		"node", "/dev/", pool->devnode,
		"pod", *pool->pod ? pool->pod : NULL,
		"pod_uuid", *pool->pod ? uuid_format(pool->pod_uuid, pod) : NULL);
}

static void print_pools(const struct cli_list *list, const struct kvblk_pool_state *pool)
{
	static const struct cli_column columns[] = {
		{ "NAME", -16 }, { "MEMBERS", 7 }, { "CAPACITY", 12 }, { "FREE", 12 },
		{ "BLOCKS", 14 }, { "BLOCKS MAX", 14 }, { 0 },
	};
	const char *none = list->bare ? "" : "-";
	char members[16], capacity[32], unused[32], used[32], slots[32];

	cli_print_head(list, columns);
	for (; pool; pool = pool->next) {
		const char *cells[] = {
			pool->name, members, capacity, pool->has_use ? unused : none,
			pool->has_use ? used : none, slots,
		};

		snprintf(members, sizeof(members), "%u", pool->nr_members);
		cli_list_bytes(list, pool->capacity, capacity, sizeof(capacity));
		cli_list_bytes(list, pool->free, unused, sizeof(unused));
		snprintf(used, sizeof(used), "%" PRIu64, pool->index_used);
		snprintf(slots, sizeof(slots), "%" PRIu64, pool->index_slots);
		cli_print_row(list, columns, cells);
	}
}

static const struct cli_syntax list_syntax = {
	.list = true,
	.doc = "List the pools of this host.\v"
	       "Example:\n  kvblk pool list -Hp | cut -f 1,4",
};

int pool_list_main(int argc, char **argv)
{
	struct kvblk_pool_state *pools;
	struct kvblk_admin *admin;
	struct cli_list list = { 0 };
	json_t *array;
	int err, ret;

	cli_parse(&list_syntax, argc, argv, &list);
	admin = cli_open_admin();
	err = kvblk_pool_list(admin, NULL, &pools);
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
	kvblk_list_free(pools);
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
	if (*pool->pod)
		printf("pod        %s, uuid %s\n", pool->pod, uuid_format(pool->pod_uuid, uuid));
	printf("formatted  %s, epoch %" PRIu64 "\n", birth, pool->epoch);
	if (pool->has_use) {
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
	} else {
		printf("capacity   %s, %u segments\n",
		       cli_format_bytes(pool->capacity, bytes, sizeof(bytes)), pool->nr_segments);
		printf("index      %" PRIu64 " entries, %s of memory\n", pool->index_slots,
		       cli_format_bytes(pool->index_bytes, bytes, sizeof(bytes)));
		printf("use        for root and the group kvblk-monitor\n");
	}
	printf("blocks     up to %s each\n",
	       cli_format_bytes(pool->value_max, bytes, sizeof(bytes)));
	if (pool->unsure)
		printf("deletes    fail: %u member%s may still hold the blocks\n", pool->unsure,
		       pool->unsure == 1 ? "" : "s");
	printf("\n");
	member_print(&(struct cli_list){ 0 }, members);
}

static const struct cli_syntax show_syntax = {
	.arguments = name_argument,
	.usage = "NAME",
	.doc = "Show the pool NAME and its members.\v"
	       "Example:\n  kvblk pool show kv0",
};

int pool_show_main(int argc, char **argv)
{
	struct kvblk_member_state *members = NULL;
	struct kvblk_pool_state *pool = NULL;
	struct name_args args = { 0 };
	struct kvblk_admin *admin;
	json_t *json;
	int err, ret;

	cli_parse(&show_syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = kvblk_pool_list(admin, args.name, &pool);
	if (!err)
		err = kvblk_member_list(admin, args.name, &members);
	if (err || !pool) {
		ret = cli_admin_fail(admin, err, args.name);
		goto free_all;
	}
	if (args.list.json) {
		json = json_pool(pool);
		json_object_set_new(json, "members", member_json(members));
		ret = cli_print_json(json);
	} else {
		print_pool(pool, members);
		ret = cli_flush();
	}
free_all:
	kvblk_list_free(members);
	kvblk_list_free(pool);
	kvblk_admin_close(admin);
	return ret;
}
