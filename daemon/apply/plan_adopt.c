// SPDX-License-Identifier: MIT
/*
 * The plan: pools of lost nodes of a pod, see plan.h. The rule: nothing is adopted unless the
 * file says after how many seconds, and the pool through which this node is in the pod is up.
 * If several nodes try, the reservations decide.
 */
#include <inttypes.h>
#include <string.h>

#include "apply/plan_list.h"
#include "common/adopt.h"

static bool is_of(const struct kvblk_found *found, const uint8_t pool_uuid[16])
{
	return adopt_is_member(found) && !memcmp(found->pool_uuid, pool_uuid, 16);
}

/* Returns whether @member of the pool of @best is found once, and of the same node. */
static bool is_there(const struct state *state, const struct kvblk_found *best,
		     const uint8_t member[16])
{
	const struct kvblk_found *found;
	unsigned int nr = 0;

	for (found = state->found; found; found = found->next) {
		if (is_of(found, best->pool_uuid) && !memcmp(found->uuid, member, 16) &&
		    !memcmp(found->node, best->node, 16))
			nr++;
	}
	return nr == 1;
}

static bool is_whole(const struct state *state, const struct kvblk_found *best)
{
	for (uint32_t i = 0; i < best->nr_members; i++) {
		if (!is_there(state, best, best->members[i].uuid))
			return false;
	}
	return best->nr_members;
}

static bool is_taken(const struct config *config, const struct state *state, const char *name)
{
	for (size_t i = 0; i < config->nr_pools; i++) {
		if (!strcmp(config->pools[i].name, name))
			return true;
	}
	return adopt_taken(state->pools, state->found, name);
}

static void add_adopt(const struct config *config, const struct state *state, int64_t after,
		      const struct kvblk_found *best, struct steps *steps)
{
	char name[KVBLK_NAME_LEN_MAX + 1];
	const struct kvblk_found *found;
	unsigned int nr = 1;
	struct step *step;

	if (!is_whole(state, best)) {
		add_step(steps, STEP_NOTE, "pool %s of node %s: not adopted, because not all members are found once; see: kvblk pool import --scan",
			 best->pool, best->owner);
		return;
	}
	do {
		adopt_name(best, nr, name);
	} while (is_taken(config, state, name) && ++nr < ADOPT_NAMES);
	step = add_step(steps, STEP_ADOPT, "adopt pool %s of node %s in pod %s as %s: the node has written nothing for %" PRId64 " s",
			best->pool, best->owner, best->pod, name, after);
	if (!step)
		return;
	keep_text(steps, &step->pool, name);
	memcpy(step->node, best->node, sizeof(step->node));
	for (found = state->found; found; found = found->next) {
		if (is_of(found, best->pool_uuid) && !memcmp(found->node, best->node, 16))
			keep_path(steps, step, found->path);
	}
}

/* Returns the shortest time after which the file adopts pools of @pod; 0: never. */
static int64_t adopt_after(const struct config *config, const struct state *state,
			   const uint8_t pod[16])
{
	const struct kvblk_pool_state *pool;
	int64_t after, least = 0;

	for (size_t i = 0; i < config->nr_pools; i++) {
		after = config->pools[i].pod.adopt_after;
		for (pool = state->pools; after && pool; pool = pool->next) {
			if (!strcmp(pool->name, config->pools[i].name) && *pool->pod &&
			    !memcmp(pool->pod_uuid, pod, 16) && (!least || after < least))
				least = after;
		}
	}
	return least;
}

void plan_adopt(const struct config *config, const struct state *state, struct steps *steps)
{
	const struct kvblk_found *best;
	int64_t after;

	for (size_t i = 0; i < state->nr_silences; i++) {
		best = adopt_newest(state->found, state->silences[i].pool_uuid);
		/* of a pool that was stopped cleanly or adopted, an outdated member is watched */
		if (!best || best->own || best->clean)
			continue;
		after = adopt_after(config, state, best->pod_uuid);
		if (after && state->silences[i].seconds >= after)
			add_adopt(config, state, after, best, steps);
	}
}
