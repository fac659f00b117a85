// SPDX-License-Identifier: MIT
/*
 * The plan: pools, members and tunables, see plan.h.
 *
 * A device is used only if its superblock names it a member of the pool, because the module
 * formats a blank device that is added.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "apply/plan_list.h"
#include "common/uuid.h"

#define UUID_LEN	16

bool same_uuid(const uint8_t a[16], const uint8_t b[16])
{
	return !memcmp(a, b, UUID_LEN);
}

const char *device_of(const struct state *state, const char *path)
{
	for (size_t i = 0; i < state->nr_links; i++) {
		if (!strcmp(state->links[i].path, path))
			return state->links[i].device;
	}
	return path;
}

/* Returns true if @member of the file, a UUID or a path, means the member @uuid on @path. */
static bool means(const struct state *state, const char *member, const uint8_t uuid[16],
		  const char *path)
{
	const char *device;

	if (*member != '/')
		return uuid_is(uuid, member);
	device = device_of(state, member);
	return device && path && !strcmp(device, path);
}

struct words {
	char *text;
	size_t len;
	FILE *to;
	size_t nr;
};

static bool words_begin(struct words *words, struct steps *steps)
{
	*words = (struct words){ 0 };
	words->to = open_memstream(&words->text, &words->len);
	steps->no_memory |= !words->to;
	return words->to;
}

static void words_add(struct words *words, const char *word)
{
	fprintf(words->to, "%s%s", words->nr++ ? ", " : "", word);
}

const struct kvblk_pool_state *plan_running(const struct state *state, const char *name)
{
	const struct kvblk_pool_state *pool = state->pools;

	while (pool && strcmp(pool->name, name) != 0)
		pool = pool->next;
	return pool;
}

static void plan_tunable(const struct config_pool *pool, const struct state_tunables *now,
			 const struct tunable *tunable, struct steps *steps)
{
	const char *value = pool->tunables[tunable - tunables];
	const char *was = now->value[tunable - tunables];
	char directory[64], whose[64];

	if (!value || !strcmp(value, was) || config_is_governed(pool, tunable->name))
		return;
	snprintf(directory, sizeof(directory), "/sys/class/kvblk/%s", pool->name);
	snprintf(whose, sizeof(whose), "pool %s", pool->name);
	add_setting(steps, tunable->name, whose, was, value, directory, tunable->name);
}

static void plan_tunables(const struct config_pool *pool, const struct state *state,
			  struct steps *steps)
{
	const struct tunable *low = tunable_find("low_permille");
	const struct tunable *high = tunable_find("high_permille");
	const struct state_tunables *now = state->tunables;
	const char *new_low = pool->tunables[low - tunables];
	bool high_first;
	size_t i;

	for (i = 0; i < state->nr_tunables && strcmp(now->pool, pool->name) != 0; i++)
		now++;
	if (i == state->nr_tunables || is_settled(state, pool->name))
		return;
	/* low must stay below high at each step */
	high_first = new_low && strtoul(new_low, NULL, 10) >=
				strtoul(now->value[high - tunables], NULL, 10);
	if (high_first)
		plan_tunable(pool, now, high, steps);
	for (i = 0; i < nr_tunables; i++) {
		if (!high_first || &tunables[i] != high)
			plan_tunable(pool, now, &tunables[i], steps);
	}
}

/* Returns the device that holds member @uuid, or NULL. Sets *twice if several devices do. */
static const struct kvblk_found *device_with(const struct state *state,
					     const struct kvblk_pool_state *pool,
					     const uint8_t uuid[16], bool *twice)
{
	const struct kvblk_found *found, *first = NULL;

	*twice = false;
	for (found = state->found; found; found = found->next) {
		if (found->silent || found->other_version || found->former ||
		    !same_uuid(found->pool_uuid, pool->uuid) || !same_uuid(found->uuid, uuid))
			continue;
		*twice = first;
		first = first ? first : found;
	}
	return first;
}

static bool is_lost(const struct kvblk_member_state *member)
{
	return member->state == KVBLK_MEMBER_STATUS_MISSING ||
	       member->state == KVBLK_MEMBER_STATUS_DEAD;
}

/* Returns true if parts of @member were not restored: adding its device again retries that. */
static bool is_unread(const struct kvblk_member_state *member)
{
	return member->state == KVBLK_MEMBER_STATUS_UNRESTORED ||
	       (member->state == KVBLK_MEMBER_STATUS_UP && member->unread_segments);
}

static void plan_return(const struct kvblk_pool_state *pool, const struct state *state,
			const struct kvblk_member_state *member, struct steps *steps)
{
	const struct kvblk_found *found;
	struct step *step;
	char uuid[40];
	bool twice;

	found = device_with(state, pool, member->uuid, &twice);
	uuid_format(member->uuid, uuid);
	if (!found) {
		add_step(steps, STEP_NOTE, "pool %s: waiting for the device of member %s (%s)%s%s",
			 pool->name, member->name, uuid, *member->place ? ", last seen at: " : "",
			 member->place);
		return;
	}
	if (twice) {
		add_step(steps, STEP_NOTE, "pool %s: several devices are copies of member %s (%s); disconnect all but one",
			 pool->name, member->name, uuid);
		return;
	}
	step = add_step(steps, STEP_ADD, is_lost(member) ?
			"add %s to pool %s: lost member %s (%s)" :
			"add %s to pool %s: member %s (%s) was not restored completely",
			found->path, pool->name, member->name, uuid);
	if (step) {
		step->may_fail = !is_lost(member);
		keep_text(steps, &step->pool, pool->name);
		keep_path(steps, step, found->path);
	}
}

static void plan_members(const struct config_pool *wanted, const struct kvblk_pool_state *pool,
			 const struct state *state, struct steps *steps)
{
	const struct kvblk_member_state *member;
	size_t i;

	for (member = state->members; member; member = member->next) {
		if (!strcmp(member->pool, pool->name) && (is_lost(member) || is_unread(member)))
			plan_return(pool, state, member, steps);
	}
	for (i = 0; i < wanted->members.nr; i++) {
		for (member = state->members; member; member = member->next) {
			if (!strcmp(member->pool, pool->name) &&
			    means(state, wanted->members.text[i], member->uuid,
				  is_lost(member) ? NULL : device_of(state, member->path)))
				break;
		}
		if (!member && (*wanted->members.text[i] != '/' ||
				device_of(state, wanted->members.text[i])))
			add_step(steps, STEP_NOTE, "pool %s: %s is not a member; to add it, run: kvblk member add",
				 pool->name, wanted->members.text[i]);
	}
}

static bool is_of(const struct kvblk_found *found, const struct config_pool *pool)
{
	if (!plan_is_usable(found))
		return false;
	if (pool->uuid)
		return uuid_is(found->pool_uuid, pool->uuid);
	/* all pools of a pod may have one name: it means this node's own, never one to take over */
	return !strcmp(found->pool, pool->name) && (!*found->pod || found->own);
}

/* Add a note for each device that is a former member of @pool and must not be used. */
static void note_former(const struct config_pool *pool, const struct state *state,
			struct steps *steps)
{
	const struct kvblk_found *found;

	for (found = state->found; found; found = found->next) {
		if (found->former && !strcmp(found->pool, pool->name))
			add_step(steps, STEP_NOTE, "pool %s: ignoring %s, a former member that now holds other data",
				 pool->name, found->path);
	}
}

static const struct kvblk_found *next_of(const struct kvblk_found *found,
					 const struct config_pool *pool)
{
	while (found && !is_of(found, pool))
		found = found->next;
	return found;
}

/* Iterate over the found members of @pool. */
#define for_each_of(found, state, pool)						\
	for ((found) = next_of((state)->found, pool); found;			\
	     (found) = next_of((found)->next, pool))

/* Add a note for the pool of another node, which only its uuid selects. */
static void note_other(const struct config_pool *pool, const struct state *state,
		       struct steps *steps)
{
	const struct kvblk_found *found;

	for (found = state->found; found; found = found->next) {
		if (!plan_is_usable(found) || !*found->pod || found->own ||
		    strcmp(found->pool, pool->name) != 0)
			continue;
		add_step(steps, STEP_NOTE, "pool %s: node %s has a pool of this name; if it is to be imported here, select it with the setting uuid",
			 pool->name, found->owner);
		return;
	}
}

/* Returns the member with the newest metadata; NULL and a note if no import is possible. */
static const struct kvblk_found *newest(const struct config_pool *pool,
					const struct state *state, struct steps *steps)
{
	const struct kvblk_found *found, *other, *best = NULL;

	for_each_of(found, state, pool) {
		if (best && !same_uuid(best->pool_uuid, found->pool_uuid)) {
			add_step(steps, STEP_NOTE, "pool %s: two pools have this name; select one with the setting uuid",
				 pool->name);
			return NULL;
		}
		for (other = next_of(found->next, pool); other; other = next_of(other->next, pool)) {
			if (!same_uuid(other->uuid, found->uuid))
				continue;
			add_step(steps, STEP_NOTE, "pool %s: %s and %s are copies of one member; disconnect one of them",
				 pool->name, found->path, other->path);
			return NULL;
		}
		if (!best || found->epoch > best->epoch ||
		    (found->epoch == best->epoch && found->roster_seq > best->roster_seq))
			best = found;
	}
	if (!best && pool->pod.name)
		add_step(steps, STEP_NOTE, "pool %s: waiting for its members, none found; to create a new pool, run: kvblk pool create %s --pod %s%s%s",
			 pool->name, pool->name, pool->pod.name,
			 pool->pod.seed_of ? " --seed-of " : "",
			 pool->pod.seed_of ? pool->pod.seed_of : "");
	else if (!best)
		add_step(steps, STEP_NOTE, "pool %s: waiting for its members, none found; to create a new pool, run: kvblk pool create",
			 pool->name);
	if (!best && !pool->uuid)
		note_other(pool, state, steps);
	return best;
}

/* Returns whether the pool, in @pod or in none (""), is in the pod of the file; adds a note if not. */
static bool pod_fits(const struct config_pool *wanted, const char *pod, struct steps *steps)
{
	if (!wanted->pod.name || !strcmp(wanted->pod.name, pod))
		return true;
	add_step(steps, STEP_NOTE, "pool %s: it is in %s%s, but the file says pod %s; correct the file, or create the pool anew",
		 wanted->name, *pod ? "pod " : "no pod", pod, wanted->pod.name);
	return false;
}

static bool is_found(const struct config_pool *pool, const struct state *state,
		     const uint8_t uuid[16])
{
	const struct kvblk_found *found;

	for_each_of(found, state, pool) {
		if (same_uuid(found->uuid, uuid))
			return true;
	}
	return false;
}

/* List members that the superblock or the file names but no device holds. */
static void list_missing(const struct config_pool *pool, const struct state *state,
			 const struct kvblk_found *best, struct words *missing)
{
	const struct kvblk_found *found;
	const char *member;

	for (uint32_t i = 0; i < best->nr_members; i++) {
		if (!is_found(pool, state, best->members[i].uuid))
			words_add(missing, best->members[i].name);
	}
	for (size_t i = 0; i < pool->members.nr; i++) {
		bool known = false;

		member = pool->members.text[i];
		for (uint32_t j = 0; j < best->nr_members; j++)
			known |= means(state, member, best->members[j].uuid, NULL);
		for_each_of(found, state, pool)
			known |= means(state, member, found->uuid, device_of(state, found->path));
		if (!known)
			words_add(missing, member);
	}
}

static void add_import(const struct config_pool *pool, const struct state *state,
		       bool degraded, const char *missing, struct steps *steps)
{
	const struct kvblk_found *found;
	struct words paths;
	struct step *step;

	if (!words_begin(&paths, steps))
		return;
	for_each_of(found, state, pool)
		words_add(&paths, found->path);
	fclose(paths.to);
	step = degraded ?
		add_step(steps, STEP_IMPORT, "import pool %s from %s, degraded: %s missing after %" PRId64 " s",
			 pool->name, paths.text, missing, pool->degraded_after) :
		add_step(steps, STEP_IMPORT, "import pool %s from %s", pool->name, paths.text);
	free(paths.text);
	if (!step)
		return;
	step->degraded = degraded;
	step->index_slots = (uint64_t)pool->index_slots;
	keep_text(steps, &step->pool, pool->name);
	for_each_of(found, state, pool)
		keep_path(steps, step, found->path);
}

static void plan_import(const struct config_pool *pool, const struct state *state,
			int64_t waited, struct steps *steps)
{
	const struct kvblk_found *best = newest(pool, state, steps);
	struct words missing;
	bool may_import;

	note_former(pool, state, steps);
	if (!best)
		return;
	if (strcmp(best->pool, pool->name) != 0) {
		add_step(steps, STEP_NOTE, "pool %s: the pool with this UUID has the name %s",
			 pool->name, best->pool);
		return;
	}
	if (!pod_fits(pool, best->pod, steps) || plan_is_forged(pool, best, state, steps) ||
	    !words_begin(&missing, steps))
		return;
	list_missing(pool, state, best, &missing);
	fclose(missing.to);
	may_import = !missing.nr || (pool->degraded_after >= 0 && waited >= pool->degraded_after);
	if (may_import && plan_is_rolled_back(pool, best->pool_uuid, best->epoch, best->roster_seq,
					      state, steps))
		goto free_words;
	if (!missing.nr)
		add_import(pool, state, false, "", steps);
	else if (may_import)
		add_import(pool, state, true, missing.text, steps);
	else if (pool->degraded_after >= 0)
		add_step(steps, STEP_NOTE, "pool %s: waiting for %s; degraded import after %" PRId64 " s",
			 pool->name, missing.text, pool->degraded_after);
	else
		add_step(steps, STEP_NOTE, "pool %s: waiting for %s; to import the pool without, run: kvblk pool import %s --degraded",
			 pool->name, missing.text, pool->name);
free_words:
	free(missing.text);
}

static const struct config_pool *wanted(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->nr_pools; i++) {
		if (!strcmp(config->pools[i].name, name))
			return &config->pools[i];
	}
	return NULL;
}

bool plan_needs_beats(const struct config *config)
{
	for (size_t i = 0; i < config->nr_pools; i++) {
		if (config->pools[i].pod.adopt_after)
			return true;
	}
	return false;
}

bool plan_needs_scan(const struct config *config, const struct state *state)
{
	const struct kvblk_member_state *member;

	if (plan_follows(config, state) || plan_needs_beats(config))
		return true;
	for (size_t i = 0; i < config->nr_pools; i++) {
		if (!plan_running(state, config->pools[i].name))
			return true;
	}
	for (member = state->members; member; member = member->next) {
		if ((is_lost(member) || is_unread(member)) && wanted(config, member->pool))
			return true;
	}
	return false;
}

void plan_pools(const struct config *config, const struct state *state, struct steps *steps)
{
	const struct kvblk_pool_state *pool;

	for (size_t i = 0; i < config->nr_pools; i++) {
		const struct config_pool *want = &config->pools[i];

		pool = plan_running(state, want->name);
		if (!pool && is_settled(state, want->name)) {
			add_step(steps, STEP_NOTE, "pool %s was taken down; to import it again, reload kvblkd or run: kvblk apply",
				 want->name);
		} else if (!pool) {
			plan_import(want, state, state->waited ? state->waited[i] : 0, steps);
		} else if (want->uuid && !uuid_is(pool->uuid, want->uuid)) {
			add_step(steps, STEP_NOTE, "pool %s: another pool of this name is up; to take it down, run: kvblk pool destroy %s",
				 want->name, want->name);
		} else if (pod_fits(want, pool->pod, steps)) {
			plan_members(want, pool, state, steps);
			if (*pool->pod && want->pod.follow)
				plan_following(pool, state, config->directory.engine, steps);
			plan_tunables(want, state, steps);
			plan_tenants(config, want, pool, state, steps);
		}
	}
	for (pool = state->pools; pool; pool = pool->next) {
		if (config->nr_pools && !wanted(config, pool->name))
			add_step(steps, STEP_NOTE, "pool %s is up but not in the file; it stays unchanged",
				 pool->name);
	}
}
