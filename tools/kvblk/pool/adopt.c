// SPDX-License-Identifier: MIT
/*
 * kvblk pool adopt: take over the pool of a lost node of the pod. The rules:
 * - Pod and node name the pool, because the pools of all nodes may have the same name.
 * - A node that writes is not lost. A hanging node looks like a lost node: the module preempts
 *   the node's reservations, so that the devices reject late writes.
 * - The module compares the owner on each member with the given node. So of two nodes that
 *   adopt a pool at once, the second fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/confirm.h"
#include "cli/options.h"
#include "common/adopt.h"
#include "common/beat.h"
#include "common/uuid.h"
#include "pool/found.h"
#include "pool/pool.h"

struct adopt_args {
	struct cli_list list;
	bool yes;
	const char *pod;
	const char *owner;
	const char *pool;
	const char *name;
	uint32_t add_flags;
	uint64_t index_slots;
};

#define AT(field) CLI_FIELD(struct adopt_args, field)

static const struct cli_option adopt_options[] = {
	{ "name", 0, CLI_POOL, AT(name), "NEW",
	  "Name of the pool on this node (default: POOL-NODE)" },
	{ "degraded", 0, CLI_FLAG, AT(add_flags), NULL,
	  "Even if members are missing or out of date", .bits = KVBLK_ADD_FLAG_DEGRADED },
	{ "force", 'f', CLI_FLAG, AT(add_flags), NULL,
	  "Even if the node still writes, the devices have no reservations, or members may be old copies",
	  .bits = KVBLK_ADD_FLAG_FORCE },
	{ "index-slots", 0, CLI_NUMBER, AT(index_slots), "N",
	  "Maximum number of blocks in the pool (default: as before)", 1, POOL_INDEX_MAX },
	{ "yes", 'y', CLI_FLAG, AT(yes), NULL, "Don't ask" },
	{ 0 },
};

static const struct cli_option adopt_arguments[] = {
	{ "POD", 0, CLI_STRING, AT(pod), .required = true },
	{ "NODE", 0, CLI_STRING, AT(owner), .required = true },
	{ "POOL", 0, CLI_STRING, AT(pool) },
	{ 0 },
};

static const struct cli_syntax adopt_syntax = {
	.options = adopt_options,
	.arguments = adopt_arguments,
	.usage = "POD NODE [POOL]",
	.doc = "Take over the pool of NODE, a node of the pod POD that is lost: this node gets its blocks, and puts into it. NODE is a host name or an id, POD and POOL are a name or a uuid, as \"kvblk pool import --scan\" shows them; POOL chooses one of several pools. The reservations of NODE are preempted, so it cannot write, should it still run.\v"
	       "Example:\n  kvblk pool adopt rack7 node12",
};

/* ---- the pool ---- */

static bool meant(const struct kvblk_found *best, const struct adopt_args *args)
{
	return (!strcmp(best->pod, args->pod) || uuid_is(best->pod_uuid, args->pod)) &&
	       (!strcmp(best->owner, args->owner) || uuid_is(best->node, args->owner)) &&
	       (!args->pool || !strcmp(best->pool, args->pool) ||
		uuid_is(best->pool_uuid, args->pool));
}

/* Report why no pool was found: by the pod, the node or the pool on the command line. */
static int tell_none(const struct kvblk_found *list, const struct adopt_args *args)
{
	const struct kvblk_found *pool = NULL, *best;
	bool pod = false;

	found_tell_others(list);
	while ((pool = found_next_pool(list, pool))) {
		best = found_newest(pool);
		if (args->pool && !*best->pod && (!strcmp(best->pool, args->pool) ||
						  uuid_is(best->pool_uuid, args->pool)))
			return cli_fail("pool adopt: pool %s is in no pod: nothing fences its owner; see: kvblk pool import --force",
					best->pool);
		pod |= *best->pod && (!strcmp(best->pod, args->pod) ||
				      uuid_is(best->pod_uuid, args->pod));
	}
	if (!pod)
		return cli_fail("pool adopt: no member of a pool in pod %s was found; see: kvblk pool import --scan",
				args->pod);
	return cli_fail("pool adopt: node %s has no pool%s%s in pod %s; see: kvblk pool import --scan",
			args->owner, args->pool ? " " : "", args->pool ? args->pool : "", args->pod);
}

/* Returns the pool to adopt, or NULL after a message. */
static const struct kvblk_found *pool_meant(const struct kvblk_found *list,
					    const struct adopt_args *args)
{
	const struct kvblk_found *pool = NULL, *match = NULL;
	char uuid[40], other[40];

	while ((pool = found_next_pool(list, pool))) {
		if (!*found_newest(pool)->pod || !meant(found_newest(pool), args))
			continue;
		if (match) {
			cli_fail("pool adopt: node %s has several pools in pod %s, such as %s (%s) and %s (%s): give one, too",
				 args->owner, args->pod, match->pool,
				 uuid_format(match->pool_uuid, uuid), pool->pool,
				 uuid_format(pool->pool_uuid, other));
			return NULL;
		}
		match = pool;
	}
	if (!match) {
		tell_none(list, args);
		return NULL;
	}
	if (!found_newest(match)->own)
		return match;
	cli_fail("pool adopt: pool %s is this node's own: kvblk pool import %s",
		 match->pool, uuid_format(match->pool_uuid, uuid));
	return NULL;
}

/* Report the missing members of the pool, unless they may be. Returns an enum cli_exit. */
static int check_whole(const struct kvblk_found *pool, const struct adopt_args *args)
{
	const struct kvblk_found *best = found_newest(pool);
	uint32_t missing = 0;

	for (uint32_t i = 0; i < best->nr_members; i++)
		missing += !found_member(pool, best->members[i].uuid);
	if (!missing || args->add_flags & KVBLK_ADD_FLAG_DEGRADED)
		return CLI_OK;
	found_tell_missing(pool);
	return cli_fail("%s: %u of %u members are missing: connect them, or pass --degraded",
			pool->pool, missing, best->nr_members);
}

/* ---- the owner ---- */

/* an owner writes a beat each second */
#define BEATS_MS	5000
#define BEATS_GAP_MS	100

/* Returns a member with new beats, or NULL if no member has a new beat for some seconds. */
static const struct kvblk_found *written(const struct kvblk_found *pool)
{
	const struct kvblk_found *members[POOL_MEMBERS_MAX], *found;
	uint64_t first[POOL_MEMBERS_MAX], beat;
	size_t nr = 0;

	/* no beat follows a clean stop */
	for (found = pool; found && nr < POOL_MEMBERS_MAX; found = found->next) {
		if (found_same_pool(found, pool) && !found->clean &&
		    beat_read(found, &first[nr]))
			members[nr++] = found;
	}
	for (int waited = 0; nr && waited < BEATS_MS; waited += BEATS_GAP_MS) {
		usleep(BEATS_GAP_MS * 1000);
		for (size_t i = 0; i < nr; i++) {
			if (beat_read(members[i], &beat) && beat != first[i])
				return members[i];
		}
	}
	return NULL;
}

/* ---- the name ---- */

/* Choose a free name for a pool, POOL-NODE. Returns false if no name is free. */
static bool choose_name(const struct kvblk_pool_state *up, const struct kvblk_found *list,
			const struct kvblk_found *best, char name[KVBLK_NAME_LEN_MAX + 1])
{
	for (unsigned int nr = 1; nr < ADOPT_NAMES; nr++) {
		adopt_name(best, nr, name);
		if (!adopt_taken(up, list, name))
			return true;
	}
	return false;
}

/* ---- the command ---- */

static int ask(const struct adopt_args *args, const struct kvblk_found *pool, const char *name)
{
	const struct kvblk_found *best = found_newest(pool), *found;
	char *text = NULL, uuid[40];
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	int ret;

	if (!to)
		return cli_fail("no memory for the list of devices");
	fprintf(to, "  pool %s of node %s (id %s), in pod %s, becomes this node's pool %s\n",
		best->pool, best->owner, uuid_format(best->node, uuid), best->pod, name);
	for (found = pool; found; found = found->next) {
		if (found_same_pool(found, pool))
			fprintf(to, "  %s: %s\n", found->path, found->clean ? "stopped cleanly" :
				"in use, or left in a crash: its reservation is preempted");
	}
	fprintf(to, "  node %s cannot write there any more, should it still run\n", best->owner);
	fclose(to);
	ret = confirm_plan(args->yes, best->pool, text);
	free(text);
	return ret;
}

static int adopt(struct kvblk_admin *admin, const struct kvblk_found *list,
		 const struct kvblk_found *pool, const struct adopt_args *args)
{
	const struct kvblk_found *best = found_newest(pool), *beats;
	char name[KVBLK_NAME_LEN_MAX + 1];
	struct kvblk_pool_spec spec = {
		.size = sizeof(spec),
		.name = args->name ? args->name : name,
		.add_flags = args->add_flags | KVBLK_ADD_FLAG_RENAME,
		.index_slots = args->index_slots,
		.preempt = best->node,
	};
	struct kvblk_pool_state *up;
	bool named;
	int ret;

	ret = kvblk_pool_list(admin, NULL, &up);
	if (ret)
		return cli_admin_fail(admin, ret, "pool adopt");
	named = args->name || choose_name(up, list, best, name);
	kvblk_list_free(up);
	if (!named)
		return cli_fail("%s: no name is free: pass --name", best->pool);
	ret = check_whole(pool, args);
	if (ret != CLI_OK)
		return ret;
	beats = args->add_flags & KVBLK_ADD_FLAG_FORCE ? NULL : written(pool);
	if (beats)
		return cli_fail("%s: node %s is up, it writes to %s: stop it, or pass --force to take its pool away",
				best->pool, best->owner, beats->path);
	ret = ask(args, pool, spec.name);
	if (ret == CLI_OK)
		ret = found_import(admin, pool, &spec);
	return ret == CLI_OK ? pool_report(admin, spec.name, args->list.json) : ret;
}

int adopt_main(int argc, char **argv)
{
	const struct kvblk_found *pool;
	struct adopt_args args = { 0 };
	struct kvblk_found *list = NULL;
	struct kvblk_admin *admin;
	int err, ret = CLI_ERROR;

	cli_parse(&adopt_syntax, argc, argv, &args);
	admin = cli_open_admin();
	err = kvblk_scan(NULL, 0, &list);
	if (err)
		cli_fail("cannot read the devices: %s", strerror(-err));
	pool = err ? NULL : pool_meant(list, &args);
	if (pool)
		ret = adopt(admin, list, pool, &args);
	kvblk_list_free(list);
	kvblk_admin_close(admin);
	return ret;
}
