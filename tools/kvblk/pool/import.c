// SPDX-License-Identifier: MIT
/* kvblk pool import: bring pools back, whatever their members are called now. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include "common/uuid.h"
#include "pool/found.h"
#include "pool/health.h"
#include "pool/member.h"
#include "pool/pool.h"

struct import_args {
	struct cli_list list;
	bool all;
	bool scan;
	const char *name;
	const char *new_name;
	uint32_t add_flags;
	uint64_t index_slots;
	struct pool_devices devices;
};

/* ---- the members after an import ---- */

/* time between two queries */
#define LOOK_US	20000

/*
 * Wait until no member is restoring, then return the members. Returns 0 or the module's
 * error.
 */
static int get_settled(struct kvblk_admin *admin, const char *name,
		       struct kvblk_member_state **members)
{
	const struct kvblk_member_state *member;
	int err;

	for (;;) {
		err = kvblk_member_list(admin, name, members);
		if (err)
			return err;
		for (member = *members; member; member = member->next) {
			if (member->state == KVBLK_MEMBER_STATUS_RESTORING)
				break;
		}
		if (!member)
			return 0;
		kvblk_list_free(*members);
		usleep(LOOK_US);
	}
}

static void print_members(const char *name, const struct kvblk_member_state *members)
{
	const struct kvblk_member_state *member;
	unsigned int nr = 0;

	for (member = members; member; member = member->next)
		nr++;
	printf("%s: %u member%s:", name, nr, nr == 1 ? "" : "s");
	for (member = members; member; member = member->next) {
		printf("%s %s ", member == members ? "" : ",", member->name);
		if (member->state != KVBLK_MEMBER_STATUS_UP)
			printf("%s", kvblk_name(KVBLK_NAME_MEMBER_STATUS, member->state));
		else if (member->formatted)
			printf("formatted (new)");
		else
			printf("restored (%" PRIu64 " block%s)", member->restored,
			       member->restored == 1 ? "" : "s");
	}
	printf("\n");
}

/* Report blocks that the index has no slots for; they are still on media. */
static int tell_lack(struct kvblk_admin *admin, const char *name)
{
	struct kvblk_pool_state *pool;
	int ret = CLI_OK, err;

	err = kvblk_pool_list(admin, name, &pool);
	if (err)
		return cli_admin_fail(admin, err, name);
	if (pool->index_lacks)
		ret = cli_fail("%s: %" PRIu64 " blocks do not fit into %" PRIu64 " index slots: they are misses, and deletes fail; destroy the pool, and import it with --index-slots %" PRIu64,
			       name, pool->index_lacks, pool->index_slots, index_needs(pool));
	kvblk_list_free(pool);
	return ret;
}

int pool_report(struct kvblk_admin *admin, const char *name, bool json)
{
	struct kvblk_member_state *members;
	int ret, err;

	err = get_settled(admin, name, &members);
	if (err)
		return cli_admin_fail(admin, err, name);
	if (json) {
		json_t *array = member_json(members);

		ret = cli_print_json(json_pack("{s:s, s:i, s:s++, s:o}",
			"name", name, "nr_members", (int)json_array_size(array),
			"node", "/dev/kvblk/", name, "/default",
			"members", array));
	} else {
		print_members(name, members);
		ret = cli_flush();
	}
	kvblk_list_free(members);
	return ret == CLI_OK ? tell_lack(admin, name) : ret;
}

/* ---- scan ---- */

static json_t *json_pool(const struct kvblk_found *pool)
{
	const struct kvblk_found *best = found_newest(pool), *found;
	json_t *devices = json_array(), *missing = json_array();
	char uuid[40], pod[40], node[40];

	for (found = pool; found; found = found->next) {
		if (found_same_pool(found, pool))
			json_array_append_new(devices, json_pack("{s:s, s:s, s:I, s:b, s:s, s:s}",
				"path", found->path,
				"uuid", uuid_format(found->uuid, uuid),
				"epoch", (json_int_t)found->epoch,
				"clean", (int)found->clean, "owner", found->owner,
				"node", uuid_format(found->node, node)));
	}
	for (uint32_t i = 0; i < best->nr_members; i++) {
		if (!found_member(pool, best->members[i].uuid))
			json_array_append_new(missing, json_pack("{s:s, s:s, s:s}",
				"name", best->members[i].name, "uuid",
				uuid_format(best->members[i].uuid, uuid),
				"place", best->places[i]));
	}
	return json_pack("{s:s, s:s, s:i, s:o, s:o, s:s*, s:s*}", "name", pool->pool,
			 "uuid", uuid_format(pool->pool_uuid, uuid),
			 "nr_members", (int)best->nr_members,
			 "devices", devices, "missing", missing,
			 "pod", *best->pod ? best->pod : NULL,
			 "pod_uuid", *best->pod ? uuid_format(best->pod_uuid, pod) : NULL);
}

static void print_found(const struct kvblk_found *pool)
{
	const struct kvblk_found *best = found_newest(pool), *found;
	char uuid[40];

	printf("pool %s, uuid %s, %u member%s\n", pool->pool,
	       uuid_format(pool->pool_uuid, uuid), best->nr_members,
	       best->nr_members == 1 ? "" : "s");
	if (*best->pod) {
		printf("  of pod %s, uuid %s\n", best->pod, uuid_format(best->pod_uuid, uuid));
		printf("  of node %s%s, id %s\n", best->owner, best->own ? " (this one)" : "",
		       uuid_format(best->node, uuid));
	}
	for (found = pool; found; found = found->next) {
		if (found_same_pool(found, pool))
			printf("  %-24s %s, epoch %" PRIu64 ", %s, by %s\n", found->path,
			       uuid_format(found->uuid, uuid), found->epoch,
			       found->clean ? "clean" : "in use, or stopped by a crash",
			       found->owner);
	}
	for (uint32_t i = 0; i < best->nr_members; i++) {
		if (!found_member(pool, best->members[i].uuid))
			printf("  %-24s %s, missing%s%s\n", best->members[i].name,
			       uuid_format(best->members[i].uuid, uuid),
			       *best->places[i] ? "; it was at: " : "", best->places[i]);
	}
}

static int scan_main(const struct kvblk_found *list, bool json)
{
	const struct kvblk_found *pool = NULL;
	json_t *array;

	found_tell_others(list);
	if (!json) {
		while ((pool = found_next_pool(list, pool)))
			print_found(pool);
		return cli_flush();
	}
	array = json_array();
	while ((pool = found_next_pool(list, pool)))
		json_array_append_new(array, json_pool(pool));
	return cli_print_json(array);
}

/* ---- import ---- */

static int import_pool(struct kvblk_admin *admin, const struct kvblk_found *pool,
		       const struct import_args *args)
{
	struct kvblk_pool_spec spec = {
		.size = sizeof(spec),
		.name = args->new_name ? args->new_name : pool->pool,
		.add_flags = args->add_flags,
		.index_slots = args->index_slots,
		.members = args->devices.specs,
		.nr_members = args->devices.nr,
	};

	return found_import(admin, pool, &spec);
}

/**
 * struct named - the pools of a name
 * @pool: the pool to import, or NULL
 * @twice: two pools have the name
 * @foreign: a pool of another node of a pod, or NULL; not to import by name
 */
struct named {
	const struct kvblk_found *pool;
	bool twice;
	const struct kvblk_found *foreign;
};

/* Find a pool by name or uuid. */
static struct named pool_named(const struct kvblk_found *list, const char *name)
{
	const struct kvblk_found *pool = NULL;
	struct named named = { 0 };

	while ((pool = found_next_pool(list, pool))) {
		if (uuid_is(pool->pool_uuid, name))
			return (struct named){ .pool = pool };
		if (strcmp(pool->pool, name) != 0)
			continue;
		if (found_foreign(pool)) {
			named.foreign = pool;
			continue;
		}
		named.twice = named.pool;
		named.pool = pool;
	}
	return named;
}

static int import_one(struct kvblk_admin *admin, const struct kvblk_found *list,
		      const struct import_args *args)
{
	struct named named = pool_named(list, args->name);
	const struct kvblk_found *pool = named.pool;
	int ret;

	if (!pool)
		found_tell_others(list);
	if (!pool && named.foreign)
		return cli_fail("%s: this pool of pod %s is of node %s, not of this one: if that node is lost, or has destroyed its pool for this one to take, run: kvblk pool adopt %s %s",
				args->name, named.foreign->pod, found_newest(named.foreign)->owner,
				named.foreign->pod, found_newest(named.foreign)->owner);
	if (!pool)
		return cli_fail("%s: no member of this pool was found; see: kvblk pool import --scan",
				args->name);
	if (named.twice)
		return cli_fail("%s: there are two pools of this name, give a uuid; see: kvblk pool import --scan",
				args->name);
	ret = import_pool(admin, pool, args);
	found_tell_others(list);
	return ret == CLI_OK ? pool_report(admin, args->new_name ? args->new_name : pool->pool,
					   args->list.json) : ret;
}

static bool is_up(const struct kvblk_pool_state *up, const struct kvblk_found *pool)
{
	for (; up; up = up->next) {
		if (!memcmp(up->uuid, pool->pool_uuid, sizeof(up->uuid)))
			return true;
	}
	return false;
}

/* Returns whether another pool has the same name. */
static bool has_twin(const struct kvblk_found *list, const struct kvblk_found *pool)
{
	const struct kvblk_found *other = NULL;

	while ((other = found_next_pool(list, other))) {
		if (other != pool && !strcmp(other->pool, pool->pool) && !found_foreign(other))
			return true;
	}
	return false;
}

/*
 * Import all pools that are not up, except pools of other nodes of a pod. All imports are
 * started before the first pool is awaited, so a pool with many blocks does not delay the
 * others.
 */
static int import_all(struct kvblk_admin *admin, const struct kvblk_found *list,
		      const struct import_args *args)
{
	struct kvblk_pool_state *before, *after;
	const struct kvblk_found *pool = NULL;
	int ret = CLI_OK, err;

	found_tell_others(list);
	err = kvblk_pool_list(admin, NULL, &before);
	if (err)
		return cli_admin_fail(admin, err, "pool import");
	while ((pool = found_next_pool(list, pool))) {
		if (is_up(before, pool) || found_foreign(pool))
			continue;
		if (has_twin(list, pool))
			ret = cli_fail("%s: there are two pools of this name, neither is imported; see: kvblk pool import --scan; import UUID --name NEW renames one",
				       pool->pool);
		else if (import_pool(admin, pool, args) != CLI_OK)
			ret = CLI_ERROR;
	}
	err = kvblk_pool_list(admin, NULL, &after);
	if (err) {
		kvblk_list_free(before);
		return cli_admin_fail(admin, err, "pool import");
	}
	while ((pool = found_next_pool(list, pool))) {
		if (!is_up(before, pool) && is_up(after, pool) &&
		    pool_report(admin, pool->pool, args->list.json) != CLI_OK)
			ret = CLI_ERROR;
	}
	kvblk_list_free(before);
	kvblk_list_free(after);
	return ret;
}

/* Accept a name or a uuid. */
static void take_pool(struct argp_state *state, const char *name, void *field)
{
	uint8_t uuid[16];

	if (!uuid_parse(name, uuid))
		cli_check_name(state, "pool", name);
	*(const char **)field = name;
}

static void check_import(const struct argp_state *state, void *values)
{
	struct import_args *args = values;

	if (!!args->name + args->all + args->scan != 1)
		cli_usage(state, "give either NAME, --all or --scan");
	if (args->new_name)
		args->add_flags |= KVBLK_ADD_FLAG_RENAME;
}

#define AT(field) CLI_FIELD(struct import_args, field)

static const struct cli_option import_options[] = {
	{ "all", 0, CLI_FLAG, AT(all), NULL, "Import all pools found that are not up" },
	{ "scan", 0, CLI_FLAG, AT(scan), NULL, "Show the pools found, import nothing" },
	{ "degraded", 0, CLI_FLAG, AT(add_flags), NULL,
	  "Even if members are missing or out of date", .bits = KVBLK_ADD_FLAG_DEGRADED },
	{ "force", 'f', CLI_FLAG, AT(add_flags), NULL,
	  "Take members that another node owns and did not release cleanly, or that may be old copies",
	  .bits = KVBLK_ADD_FLAG_FORCE },
	{ "index-slots", 0, CLI_NUMBER, AT(index_slots), "N",
	  "Maximum number of blocks in the pool (default: as before)", 1, POOL_INDEX_MAX },
	{ "name", 0, CLI_POOL, AT(new_name), "NEW", "Rename the pool",
	  .with = "NAME" },
	{ 0 },
};

static const struct cli_option import_arguments[] = {
	{ "NAME", 0, CLI_CALL, AT(name), .take = take_pool },
	{ "DEVICE", 0, CLI_CALL, AT(devices), .take = pool_take_device, .repeat = true },
	{ 0 },
};

static const struct cli_syntax import_syntax = {
	.options = import_options,
	.arguments = import_arguments,
	.check = check_import,
	.usage = "NAME [DEVICE...]\n--all\n--scan",
	.doc = "Bring the pool NAME, a name or uuid, back with its blocks. Members are found by their superblocks, whatever the devices are called now; with DEVICEs, only on these. Nothing is formatted. A missing or outdated member is an error without --degraded.\v"
	       "Example:\n  kvblk pool import kv0",
};

int import_main(int argc, char **argv)
{
	const char *paths[POOL_MEMBERS_MAX];
	struct import_args args = { 0 };
	struct kvblk_found *list = NULL;
	struct kvblk_admin *admin;
	int err, ret = CLI_ERROR;

	cli_parse(&import_syntax, argc, argv, &args);
	for (size_t i = 0; i < args.devices.nr; i++)
		paths[i] = args.devices.specs[i].path;
	err = kvblk_scan(args.devices.nr ? paths : NULL, args.devices.nr, &list);
	if (err) {
		cli_fail("cannot read the devices: %s", strerror(-err));
		goto out;
	}
	if (args.scan) {
		ret = scan_main(list, args.list.json);
		goto out;
	}
	admin = cli_open_admin();
	ret = args.all ? import_all(admin, list, &args) : import_one(admin, list, &args);
	kvblk_admin_close(admin);
out:
	kvblk_list_free(list);
	free(args.devices.specs);
	return ret;
}
