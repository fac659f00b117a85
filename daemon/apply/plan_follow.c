// SPDX-License-Identifier: MIT
/*
 * The plan: members of the pod's other pools, which a pool follows, see plan.h.
 *
 * A followed device is opened exclusively unless a pool of this host has it. So a member of this
 * host's own pool is followed only while that pool is up, or else the pool could not be imported.
 */
#include <ctype.h>
#include <string.h>

#include "apply/plan_list.h"
#include "common/uuid.h"

char *plan_foreign(const char *pool, const uint8_t member[16], char buf[PLAN_FOREIGN_LEN])
{
	char uuid[40];

	/* neither pool names nor module names contain a slash */
	snprintf(buf, PLAN_FOREIGN_LEN, "foreign %s/%s", pool, uuid_format(member, uuid));
	return buf;
}

bool plan_follows(const struct config *config, const struct state *state)
{
	const struct kvblk_pool_state *pool;

	for (size_t i = 0; i < config->nr_pools; i++) {
		pool = plan_running(state, config->pools[i].name);
		if (pool && *pool->pod && config->pools[i].pod.follow)
			return true;
	}
	return false;
}

static bool is_lost(const struct kvblk_member_state *foreign)
{
	return foreign->state == KVBLK_MEMBER_STATUS_DEAD;
}

/* Returns whether @foreign was formatted by its owner since it is followed. */
static bool is_former(const struct kvblk_member_state *foreign)
{
	return foreign->state == KVBLK_MEMBER_STATUS_UNRESTORED;
}

/* Returns whether @foreign must be followed again. */
static bool has_ended(const struct kvblk_member_state *foreign)
{
	return is_lost(foreign) || is_former(foreign);
}

/* Returns whether @found is what the owner of @foreign formatted. */
static bool replaces(const struct state *state, const struct kvblk_found *found,
		     const struct kvblk_member_state *foreign)
{
	/* the path of a lost device may belong to another one by now */
	const char *device = is_former(foreign) ? device_of(state, foreign->path) : NULL;

	return device && !strcmp(device, found->path);
}

/* Returns the foreign member of @pool that @found is or replaces, or NULL. */
static const struct kvblk_member_state *foreign_as(const struct kvblk_pool_state *pool,
						   const struct state *state,
						   const struct kvblk_found *found)
{
	const struct kvblk_member_state *foreign, *former = NULL;

	for (foreign = state->foreign; foreign; foreign = foreign->next) {
		if (strcmp(foreign->pool, pool->name) != 0)
			continue;
		if (same_uuid(foreign->uuid, found->uuid))
			return foreign;
		if (replaces(state, found, foreign))
			former = foreign;
	}
	return former;
}

/* Returns whether @found is a member of another pool of the pod. */
static bool is_of_pod(const struct kvblk_pool_state *pool, const struct kvblk_found *found)
{
	return !found->silent && !found->other_version && !found->former && *found->pod &&
	       same_uuid(found->pod_uuid, pool->pod_uuid) &&
	       !same_uuid(found->pool_uuid, pool->uuid);
}

static const struct kvblk_found *copy_of(const struct kvblk_pool_state *pool,
					 const struct state *state,
					 const struct kvblk_found *found)
{
	const struct kvblk_found *other;

	for (other = state->found; other; other = other->next) {
		if (other != found && is_of_pod(pool, other) && same_uuid(other->uuid, found->uuid))
			return other;
	}
	return NULL;
}

static bool is_up(const struct state *state, const struct kvblk_found *found)
{
	const struct kvblk_pool_state *pool;

	for (pool = state->pools; pool; pool = pool->next) {
		if (same_uuid(pool->uuid, found->pool_uuid))
			return true;
	}
	return false;
}

static bool is_listed(const struct kvblk_member_state *member, const char *pool, const char *name,
		      const struct kvblk_member_state *except)
{
	for (; member; member = member->next) {
		if (member != except && !strcmp(member->pool, pool) && !strcmp(member->name, name))
			return true;
	}
	return false;
}

static bool is_planned(const struct steps *steps, const char *pool, const char *name)
{
	for (const struct step *step = steps->first; step; step = step->next) {
		if (step->kind == STEP_FOLLOW && step->value && !strcmp(step->pool, pool) &&
		    !strcmp(step->value, name))
			return true;
	}
	return false;
}

/*
 * Name @found by its device. If a member has this name, add the beginning of the UUID: kernel names
 * of devices change, but names of members are permanent.
 */
static void name_of(const struct kvblk_pool_state *pool, const struct state *state,
		    const struct kvblk_found *found, const struct kvblk_member_state *replaced,
		    const struct steps *steps, char name[KVBLK_NAME_LEN_MAX + 1])
{
	const char *last = strrchr(found->path, '/');
	char uuid[40];

	last = last ? last + 1 : found->path;
	snprintf(name, KVBLK_NAME_LEN_MAX + 1, "%s", last);
	for (char *c = name; *c; c++) {
		if (!isalnum((unsigned char)*c) && (c == name || !strchr("-._", *c)))
			*c = c == name ? 'd' : '_';
	}
	if (is_listed(state->members, pool->name, name, NULL) ||
	    is_listed(state->foreign, pool->name, name, replaced) ||
	    is_planned(steps, pool->name, name))
		snprintf(name + strnlen(name, KVBLK_NAME_LEN_MAX - 9), 10, "-%.8s",
			 uuid_format(found->uuid, uuid));
}

static void add_follow(const struct kvblk_pool_state *pool, const struct state *state,
		       const struct kvblk_found *found, const struct kvblk_member_state *foreign,
		       bool hinted, struct steps *steps)
{
	char name[KVBLK_NAME_LEN_MAX + 1], uuid[40];
	struct step *step;

	name_of(pool, state, found, foreign, steps, name);
	step = add_step(steps, STEP_FOLLOW, "follow %s in pool %s: member %s of node %s%s%s",
			found->path, pool->name, uuid_format(found->uuid, uuid), found->owner,
			!foreign ? "" : is_lost(foreign) ? ", which was lost" :
			", which was formatted anew", hinted ? ", by the directory" : "");
	if (!step)
		return;
	step->hinted = hinted;
	keep_text(steps, &step->pool, pool->name);
	keep_text(steps, &step->value, name);
	/* of one UUID, the module drops the present entry; else its name may still be taken */
	if (foreign && !same_uuid(foreign->uuid, found->uuid))
		step->replaced = foreign->uuid;
	keep_path(steps, step, found->path);
}

static void plan_device(const struct kvblk_pool_state *pool, const struct state *state,
			const struct kvblk_found *found, bool hinted, struct steps *steps)
{
	const struct kvblk_member_state *foreign = foreign_as(pool, state, found);
	const struct kvblk_found *copy = copy_of(pool, state, found);
	char settled[PLAN_FOREIGN_LEN];

	if (foreign && !has_ended(foreign))
		return;
	if (!foreign && is_settled(state, plan_foreign(pool->name, found->uuid, settled)))
		add_step(steps, STEP_NOTE, "pool %s: %s of node %s was unfollowed; to follow it again, reload kvblkd or run: kvblk apply",
			 pool->name, found->path, found->owner);
	else if (copy)
		add_step(steps, STEP_NOTE, "pool %s: not following %s, because %s is a copy of the same member; disconnect one of them",
			 pool->name, found->path, copy->path);
	else if (found->own && !is_up(state, found))
		add_step(steps, STEP_NOTE, "pool %s: not following %s, because it is a member of pool %s of this node, which is not up",
			 pool->name, found->path, found->pool);
	else
		add_follow(pool, state, found, foreign, hinted, steps);
}

/* Returns whether a device holds @foreign, or replaces it. */
static bool is_back(const struct kvblk_pool_state *pool, const struct state *state,
		    const struct kvblk_member_state *foreign)
{
	const struct kvblk_found *found;

	for (found = state->found; found; found = found->next) {
		if (is_of_pod(pool, found) && (same_uuid(found->uuid, foreign->uuid) ||
					       replaces(state, found, foreign)))
			return true;
	}
	return false;
}

void plan_following(const struct kvblk_pool_state *pool, const struct state *state, bool hinted,
		    struct steps *steps)
{
	const struct kvblk_member_state *foreign;
	const struct kvblk_found *found;

	for (found = state->found; found; found = found->next) {
		if (is_of_pod(pool, found))
			plan_device(pool, state, found, hinted, steps);
	}
	for (foreign = state->foreign; foreign; foreign = foreign->next) {
		if (!strcmp(foreign->pool, pool->name) && has_ended(foreign) &&
		    !is_back(pool, state, foreign))
			add_step(steps, STEP_NOTE, "pool %s: followed member %s of node %s %s, and no device of the pod holds it now; to drop it, run: kvblk member unfollow %s %s",
				 pool->name, foreign->name, foreign->owner,
				 is_lost(foreign) ? "was lost" : "was formatted anew",
				 pool->name, foreign->name);
	}
}
