// SPDX-License-Identifier: MIT
/* Pools found on devices: see found.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/adopt.h"
#include "common/signature.h"
#include "common/uuid.h"
#include "pool/found.h"
#include "pool/pool.h"

bool found_same_pool(const struct kvblk_found *a, const struct kvblk_found *b)
{
	return !a->former && !b->former &&
	       !memcmp(a->pool_uuid, b->pool_uuid, sizeof(a->pool_uuid));
}

static bool same_member(const struct kvblk_found *a, const struct kvblk_found *b)
{
	return found_same_pool(a, b) && !memcmp(a->uuid, b->uuid, sizeof(a->uuid));
}

const struct kvblk_found *found_next_pool(const struct kvblk_found *list,
					  const struct kvblk_found *pool)
{
	const struct kvblk_found *other;

	for (pool = pool ? pool->next : list; pool; pool = pool->next) {
		if (!adopt_is_member(pool))
			continue;
		for (other = list; !found_same_pool(other, pool);)
			other = other->next;
		if (other == pool)
			return pool;
	}
	return NULL;
}

void found_tell_others(const struct kvblk_found *list)
{
	for (; list; list = list->next) {
		if (list->silent)
			cli_fail("%s does not answer", list->path);
		else if (list->other_version)
			cli_fail("%s is of another version of kvblk", list->path);
		else if (list->former)
			cli_fail("%s was a member of pool %s, and holds something else now: left alone",
				 list->path, list->pool);
	}
}

const struct kvblk_found *found_newest(const struct kvblk_found *pool)
{
	return adopt_newest(pool, pool->pool_uuid);
}

const struct kvblk_found *found_member(const struct kvblk_found *pool, const uint8_t uuid[16])
{
	const struct kvblk_found *found;

	for (found = pool; found; found = found->next) {
		if (found_same_pool(found, pool) && !memcmp(found->uuid, uuid, 16))
			return found;
	}
	return NULL;
}

void found_tell_missing(const struct kvblk_found *pool)
{
	const struct kvblk_found *best = found_newest(pool);
	char uuid[40];

	for (uint32_t i = 0; i < best->nr_members; i++) {
		if (!found_member(pool, best->members[i].uuid))
			cli_fail("%s: member %s (%s) was not found%s%s", pool->pool,
				 best->members[i].name,
				 uuid_format(best->members[i].uuid, uuid),
				 *best->places[i] ? "; it was at: " : "", best->places[i]);
	}
}

bool found_foreign(const struct kvblk_found *pool)
{
	const struct kvblk_found *best = found_newest(pool);

	return *best->pod && !best->own;
}

/*
 * Add the members of @pool to @specs; with @spec->preempt, the members of the preempted node
 * only: the rest was away when the node became the owner. Returns an enum cli_exit.
 */
static int take_members(const struct kvblk_found *pool, struct kvblk_pool_spec *spec,
			struct kvblk_member_spec specs[POOL_MEMBERS_MAX])
{
	const struct kvblk_found *found, *copy;

	for (found = pool; found; found = found->next) {
		if (!found_same_pool(found, pool) ||
		    (spec->preempt && memcmp(found->node, spec->preempt, 16) != 0))
			continue;
		for (copy = pool; copy != found; copy = copy->next) {
			if (same_member(copy, found))
				return cli_fail("%s: %s and %s are copies of one member: give the devices to take",
						pool->pool, copy->path, found->path);
		}
		if (spec->nr_members == POOL_MEMBERS_MAX)
			return cli_fail("%s: more than %d members were found: give the devices to take",
					pool->pool, POOL_MEMBERS_MAX);
		specs[spec->nr_members].size = sizeof(specs[0]);
		specs[spec->nr_members++].path = found->path;
	}
	return CLI_OK;
}

int found_import(struct kvblk_admin *admin, const struct kvblk_found *pool,
		 const struct kvblk_pool_spec *devices)
{
	struct kvblk_pool_spec spec = *devices;
	struct kvblk_member_spec specs[POOL_MEMBERS_MAX] = { 0 };
	const struct kvblk_found *found;
	char what[64];
	int err;

	for (found = pool; found; found = found->next) {
		if (found_same_pool(found, pool) && signature_find(found, what, sizeof(what)))
			return cli_fail("%s: %s holds %s, too: if that is left over, remove it with wipefs",
					pool->pool, found->path, what);
	}
	if (!spec.nr_members) {
		spec.members = specs;
		if (take_members(pool, &spec, specs) != CLI_OK)
			return CLI_ERROR;
	}
	err = kvblk_pool_import(admin, &spec);
	if (!err)
		return CLI_OK;
	if (err == -ENODEV)
		found_tell_missing(pool);
	return cli_admin_fail(admin, err, pool->pool);
}
