// SPDX-License-Identifier: MIT
/* Apply the configuration to the host, see apply.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "apply/apply.h"
#include "apply/host_state.h"
#include "apply/kmod.h"
#include "apply/newest.h"
#include "apply/silence.h"
#include "common/clock.h"
#include "common/signature.h"
#include "host/fabrics.h"
#include "host/kept.h"

#define WHY_LEN		512
#define LONGEST_SHIFT	6
/* seconds; longer than the module takes to read a member again and fail */
#define KEPT		600
/* limit of rounds; the usual order: modules, discovery, subsystems, pools, tunables */
#define ROUNDS		16
#define ADMIN_WAIT_MS	60000
/* seconds between two looks whether other nodes write; less than the least adopt_after */
#define BEATS_GAP	5
#define POLL_US		100000

/**
 * struct apply_known - a reported note, or a step that failed or was done
 * @next_known: next in the list, or NULL
 * @text: text of the step
 * @why: why the step failed, else ""
 * @failures: consecutive failures
 * @next: earliest time of the next try, seconds
 * @seen: the last plan contains the step
 * @done: done in this pass; if a later plan of the pass repeats the step, skip it
 * @may_fail: step->may_fail; such a record is kept after the step is done
 */
struct apply_known {
	struct apply_known *next_known;
	char *text;
	char why[WHY_LEN];
	unsigned int failures;
	int64_t next;
	bool seen;
	bool done;
	bool may_fail;
};

static struct apply_known *known_as(struct apply *apply, const char *text)
{
	struct apply_known *known = apply->known;

	while (known && strcmp(known->text, text) != 0)
		known = known->next_known;
	return known;
}

/* Add a record of @text. Returns NULL without memory: the step will be reported again. */
static struct apply_known *remember(struct apply *apply, const char *text)
{
	struct apply_known *known = calloc(1, sizeof(*known));

	if (known)
		known->text = strdup(text);
	if (!known || !known->text) {
		free(known);
		return NULL;
	}
	known->next_known = apply->known;
	apply->known = known;
	return known;
}

/*
 * Free the records of steps that were done or have left the plan; with @all, every record.
 * A record with @may_fail stays for KEPT seconds, because the step leaves the plan until
 * the module has finished and only then shows whether it helped.
 */
static void forget(struct apply *apply, bool all)
{
	struct apply_known **at = &apply->known, *known;

	while ((known = *at)) {
		if (!all && (known->may_fail ? clock_s() < known->next + KEPT :
					       known->seen && !known->done)) {
			known->done = false;
			at = &known->next_known;
			continue;
		}
		*at = known->next_known;
		free(known->text);
		free(known);
	}
}

void apply_forget(struct apply *apply)
{
	forget(apply, true);
	texts_free(&apply->settled);
	free(apply->since);
	apply->since = NULL;
	apply->nr_since = 0;
	silence_free(&apply->silences);
}

void apply_unsettle(struct apply *apply, const char *pool)
{
	static const uint8_t none[16];
	char name[PLAN_FOREIGN_LEN], tenant[PLAN_TENANT_LEN];
	size_t len, tenants, i = 0;

	texts_remove(&apply->settled, pool);
	/* up to the UUID */
	len = strcspn(plan_foreign(pool, none, name), "/");
	tenants = strlen(plan_tenant(pool, "", tenant));
	while (i < apply->settled.nr) {
		if (!strncmp(apply->settled.text[i], name, len + 1) ||
		    !strncmp(apply->settled.text[i], tenant, tenants))
			texts_remove(&apply->settled, apply->settled.text[i]);
		else
			i++;
	}
}

static void settle_one(struct apply *apply, const char *name)
{
	texts_remove(&apply->settled, name);
	texts_add(&apply->settled, name);
}

/* Returns whether one of @steps changes @tenant. */
static bool is_changing(const struct step *steps, const struct kvblk_tenant_state *tenant)
{
	for (; steps; steps = steps->next) {
		if (steps->kind == STEP_TENANT_SET && !strcmp(steps->pool, tenant->pool) &&
		    !strcmp(steps->value, tenant->name))
			return true;
	}
	return false;
}

/* Leave what the state shows alone from now on, except tenants whose @steps are to be retried. */
static void settle(struct apply *apply, const struct state *state, const struct step *steps)
{
	char name[PLAN_MODULE_LEN], member[PLAN_FOREIGN_LEN], owned[PLAN_TENANT_LEN];

	for (const struct kvblk_pool_state *pool = state->pools; pool; pool = pool->next)
		settle_one(apply, pool->name);
	for (const struct kvblk_member_state *foreign = state->foreign; foreign;
	     foreign = foreign->next)
		settle_one(apply, plan_foreign(foreign->pool, foreign->uuid, member));
	for (const struct kvblk_tenant_state *tenant = state->tenants; tenant; tenant = tenant->next) {
		if (!is_changing(steps, tenant))
			settle_one(apply, plan_tenant(tenant->pool, tenant->name, owned));
	}
	for (size_t i = 0; i < state->nr_controllers; i++)
		settle_one(apply, state->controllers[i].name);
	for (size_t i = 0; i < state->modules.nr; i++)
		settle_one(apply, plan_module(state->modules.text[i], name));
}

/* Returns how long each pool of @config has been missing, in seconds; NULL without memory. */
static int64_t *waited(struct apply *apply, const struct config *config,
		       const struct state *state)
{
	const struct kvblk_pool_state *pool;
	int64_t *seconds;

	if (!config->nr_pools)
		return NULL;
	if (apply->nr_since != config->nr_pools) {
		free(apply->since);
		apply->since = calloc(config->nr_pools, sizeof(*apply->since));
		apply->nr_since = apply->since ? config->nr_pools : 0;
	}
	seconds = calloc(config->nr_pools, sizeof(*seconds));
	for (size_t i = 0; seconds && i < apply->nr_since; i++) {
		for (pool = state->pools; pool; pool = pool->next) {
			if (!strcmp(pool->name, config->pools[i].name))
				break;
		}
		if (pool)
			apply->since[i] = 0;
		else if (!apply->since[i])
			apply->since[i] = clock_s();
		if (!pool)
			seconds[i] = clock_s() - apply->since[i];
	}
	return seconds;
}

static int set_value(const struct step *step, char *why)
{
	const char *path = step->paths.text[0];
	int fd = open(path, O_WRONLY | O_CLOEXEC), err = 0;

	if (fd < 0 || write(fd, step->value, strlen(step->value)) < 0)
		err = errno;
	if (fd >= 0)
		close(fd);
	if (err)
		snprintf(why, WHY_LEN, "cannot write %s to %s: %s", step->value, path,
			 strerror(err));
	return -err;
}

/* Wait for a request still in progress and describe its error in @why. Returns the error. */
static int admin_result(struct kvblk_admin *admin, int err, char *why)
{
	const char *message = kvblk_admin_message(admin);

	if (err == -EINPROGRESS) {
		err = kvblk_admin_wait(admin, ADMIN_WAIT_MS);
		message = "see the kernel log";
	}
	if (err == -EEXIST)
		snprintf(why, WHY_LEN, "%s", message);
	else if (err)
		snprintf(why, WHY_LEN, "%s%s%s", strerror(-err), *message ? ": " : "", message);
	return err;
}

/* Returns 0 if no device of @step holds another signature, -ENOTEMPTY otherwise. */
static int check_signatures(const struct step *step, char *why)
{
	struct kvblk_found *found;
	char what[64];
	int err = 0;

	for (size_t i = 0; i < step->paths.nr && !err; i++) {
		const char *path = step->paths.text[i];

		found = NULL;
		/* ignore scan errors: the module reports them */
		if (!kvblk_scan(&path, 1, &found) && found && found->data_end &&
		    signature_find(found, what, sizeof(what))) {
			snprintf(why, WHY_LEN, "%s also holds %s; if that is stale, remove it with wipefs",
				 path, what);
			err = -ENOTEMPTY;
		}
		kvblk_list_free(found);
	}
	return err;
}

static int import_pool(struct kvblk_admin *admin, const struct step *step, char *why)
{
	struct kvblk_member_spec *specs = calloc(step->paths.nr, sizeof(*specs));
	struct kvblk_pool_spec spec = {
		.size = sizeof(spec),
		.name = step->pool,
		.add_flags = step->degraded ? KVBLK_ADD_FLAG_DEGRADED :
			     step->kind == STEP_ADOPT ? KVBLK_ADD_FLAG_RENAME : 0,
		.preempt = step->kind == STEP_ADOPT ? step->node : NULL,
		.index_slots = step->index_slots,
		.members = specs,
		.nr_members = step->paths.nr,
	};
	int err;

	if (!specs) {
		snprintf(why, WHY_LEN, "out of memory");
		return -ENOMEM;
	}
	for (size_t i = 0; i < step->paths.nr; i++)
		specs[i] = (struct kvblk_member_spec){ .size = sizeof(*specs), .path = step->paths.text[i] };
	err = admin_result(admin, kvblk_pool_import(admin, &spec), why);
	free(specs);
	return err;
}

static int follow(struct kvblk_admin *admin, const struct step *step,
		  const struct kvblk_member_spec *spec, char *why)
{
	const struct kvblk_member_spec former = { .size = sizeof(former), .uuid = step->replaced };
	int err = 0;

	if (step->replaced)
		err = admin_result(admin, kvblk_member_remove(admin, step->pool, &former), why);
	/* unfollowed meanwhile, or by an earlier try */
	if (err && err != -ENOENT)
		return err;
	*why = '\0';
	return admin_result(admin, kvblk_member_follow(admin, step->pool, spec), why);
}

/* Open a connection to the module, or describe the error in @why. */
static int open_admin(struct kvblk_admin **admin, char *why)
{
	int err = kvblk_admin_open(admin);

	if (err)
		snprintf(why, WHY_LEN, "cannot connect to the module kvblk: %s", strerror(-err));
	return err;
}

static struct kept_key key_of(const struct step *step)
{
	struct kept_key key;

	memcpy(key.pool_uuid, step->pool_uuid, sizeof(key.pool_uuid));
	snprintf(key.tenant, sizeof(key.tenant), "%s", step->value);
	return key;
}

/* Returns 0 if the tenant is absent now, -EEXIST if present, or another negative errno. */
static int tenant_is_absent(struct kvblk_admin *admin, const struct step *step, char *why)
{
	struct kvblk_tenant_state *list = NULL;
	int err = kvblk_tenant_list(admin, step->pool, &list);

	if (!err && !list)
		err = -ENOENT;
	for (const struct kvblk_tenant_state *now = list; !err && now; now = now->next) {
		if (!strcmp(now->name, step->value))
			err = -EEXIST;
	}
	kvblk_list_free(list);
	if (err)
		snprintf(why, WHY_LEN, "%s", err == -EEXIST ? "the tenant is there again" :
			 strerror(-err));
	return err;
}

/*
 * Take the lock of the kept files, if the tenant is absent: since the plan, another process may have
 * created the tenant, with a new key. Returns the lock, or a negative errno described in @why.
 */
static int lock_kept(struct kvblk_admin *admin, const struct step *step, char *why)
{
	char path[KEPT_PATH_LEN];
	int err, lock = kept_lock();

	if (lock < 0) {
		snprintf(why, WHY_LEN, "%s: %s", kept_path("lock", path), strerror(-lock));
		return lock;
	}
	err = tenant_is_absent(admin, step, why);
	if (!err)
		return lock;
	close(lock);
	return err;
}

/*
 * Create an encrypted tenant with a new key. The lock keeps other processes from removing the key
 * before the tenant exists.
 */
static int create_encrypted(struct kvblk_admin *admin, const struct step *step,
			    struct kvblk_tenant_spec *spec, char *why)
{
	const struct kept_key key = key_of(step);
	int err = -ENOKEY, lock = lock_kept(admin, step, why);

	if (lock < 0)
		return lock;
	spec->key = tenant_key_make(&key, step->master, why, WHY_LEN);
	if (spec->key) {
		err = admin_result(admin, kvblk_tenant_create(admin, step->pool, spec), why);
		tenant_key_drop(spec->key);
	}
	close(lock);
	return err;
}

static int give_key(struct kvblk_admin *admin, const struct step *step, char *why)
{
	const struct kept_key key = key_of(step);
	int32_t serial = tenant_key_load(&key, why, WHY_LEN);
	int err;

	if (!serial)
		return -ENOKEY;
	err = admin_result(admin, kvblk_tenant_key(admin, step->pool, step->value, serial), why);
	tenant_key_drop(serial);
	return err;
}

static int remove_key(struct kvblk_admin *admin, const struct step *step, char *why)
{
	const struct kept_key key = key_of(step);
	int err, lock = lock_kept(admin, step, why);

	if (lock < 0)
		return lock;
	err = tenant_key_remove(&key);
	if (err)
		snprintf(why, WHY_LEN, "%s", strerror(-err));
	close(lock);
	return err;
}

static int change_tenant(const struct step *step, char *why)
{
	struct kvblk_tenant_spec spec = {
		.size = sizeof(spec),
		.mode = step->change.mode,
		.uid = step->change.uid,
		.gid = step->change.gid,
		.name = step->value,
	};
	struct kvblk_admin *admin;
	int err = open_admin(&admin, why);

	if (err)
		return err;
	if (step->kind == STEP_TENANT_KEY)
		err = give_key(admin, step, why);
	else if (step->kind == STEP_KEY_REMOVE)
		err = remove_key(admin, step, why);
	else if (step->master)
		err = create_encrypted(admin, step, &spec, why);
	else if (step->kind == STEP_TENANT)
		err = admin_result(admin, kvblk_tenant_create(admin, step->pool, &spec), why);
	else
		err = admin_result(admin, kvblk_tenant_set(admin, step->pool, step->value,
							   &step->change), why);
	kvblk_admin_close(admin);
	return err;
}

static int change_pool(const struct step *step, char *why)
{
	struct kvblk_member_spec spec = { .size = sizeof(spec), .path = step->paths.text[0] };
	struct kvblk_admin *admin;
	/* a followed device is only read */
	int err = step->kind == STEP_FOLLOW ? 0 : check_signatures(step, why);

	if (!err)
		err = open_admin(&admin, why);
	if (err)
		return err;
	spec.name = step->value;
	spec.hinted = step->hinted;
	if (step->kind == STEP_IMPORT || step->kind == STEP_ADOPT)
		err = import_pool(admin, step, why);
	else if (step->kind == STEP_FOLLOW)
		err = follow(admin, step, &spec, why);
	else
		err = admin_result(admin, kvblk_member_add(admin, step->pool, &spec, 0), why);
	kvblk_admin_close(admin);
	return err;
}

static int carry_out(const struct step *step, char *why)
{
	int err;

	*why = '\0';
	switch (step->kind) {
	case STEP_LOAD:
		err = modules_load(step->value);
		if (err)
			snprintf(why, WHY_LEN, "%s", err == -ENOENT ?
				 "this kernel has no such module" : strerror(-err));
		return err;
	case STEP_CONNECT:
		return fabrics_connect(step->fabric, why, WHY_LEN);
	case STEP_IMPORT:
	case STEP_ADOPT:
	case STEP_ADD:
	case STEP_FOLLOW:
		return change_pool(step, why);
	case STEP_SET:
		return set_value(step, why);
	case STEP_TENANT:
	case STEP_TENANT_SET:
	case STEP_TENANT_KEY:
	case STEP_KEY_REMOVE:
		return change_tenant(step, why);
	case STEP_NOTE:
		break;
	}
	return 0;
}

static void put_off(struct apply_known *known)
{
	known->next = clock_s() + (1 << (known->failures < LONGEST_SHIFT ? known->failures :
							LONGEST_SHIFT));
	if (known->next > clock_s() + APPLY_LONGEST_GAP)
		known->next = clock_s() + APPLY_LONGEST_GAP;
	known->failures++;
}

static void failed(struct apply *apply, const struct step *step, struct apply_known *known,
		   const char *why)
{
	if (!known || strcmp(known->why, why) != 0)
		apply->told(apply->arg, step, APPLY_FAILED, why);
	if (!known)
		known = remember(apply, step->text);
	if (!known)
		return;
	snprintf(known->why, sizeof(known->why), "%s", why);
	known->seen = true;
	known->may_fail = step->may_fail;
	put_off(known);
}

/* Carry out @step if it is due. Returns true if it succeeded: the host state has changed. */
static bool take(struct apply *apply, const struct step *step, bool dry_run)
{
	struct apply_known *known = known_as(apply, step->text);
	char why[WHY_LEN];

	if (known)
		known->seen = true;
	if (step->kind == STEP_NOTE) {
		if (!known)
			apply->told(apply->arg, step, APPLY_NOTE, "");
		known = known ? known : remember(apply, step->text);
		if (known)
			known->seen = true;
		return false;
	}
	if (dry_run) {
		apply->told(apply->arg, step, APPLY_PLANNED, "");
		return false;
	}
	if (known && (known->done || known->next > clock_s()))
		return false;
	if (known && known->may_fail && !*known->why) {
		snprintf(known->why, sizeof(known->why), "the member is still not restored");
		apply->told(apply->arg, step, APPLY_FAILED, known->why);
	}
	if (carry_out(step, why)) {
		failed(apply, step, known, why);
		return false;
	}
	if (!known || !known->may_fail)
		apply->told(apply->arg, step, APPLY_DONE, "");
	if (step->kind == STEP_CONNECT)
		apply->connected = clock_s();
	known = known ? known : remember(apply, step->text);
	if (!known)
		return true;
	known->done = true;
	known->may_fail = step->may_fail;
	if (known->may_fail)
		put_off(known);
	return true;
}

static bool is_patient(const struct apply *apply)
{
	return apply->connected && clock_s() < apply->connected + apply->patience;
}

/* Keep the newest state of the pool of @found, or note why that failed. */
static void keep_newest_of(struct apply *apply, const struct kvblk_found *found,
			   const struct state *state)
{
	char text[WHY_LEN], path[KEPT_PATH_LEN];
	const struct step note = { .kind = STEP_NOTE, .text = text };
	int err = newest_keep(found->pool_uuid, state);

	if (!err)
		return;
	snprintf(text, sizeof(text), "pool %s: cannot write %.300s: %s; a rollback of a member may go unnoticed",
		 found->pool, newest_path(found->pool_uuid, path), strerror(-err));
	take(apply, &note, false);
}

/* Keep the newest states of the pools of @config with encrypted tenants, except untrusted ones. */
static void keep_newest(struct apply *apply, const struct config *config, const struct state *state)
{
	const struct kvblk_found *found;
	const struct config_pool *want;

	for (want = config->pools; want < config->pools + config->nr_pools; want++) {
		for (found = plan_keeps(want) ? state->found : NULL; found; found = found->next) {
			if (plan_is_usable(found) && !strcmp(found->pool, want->name) &&
			    (!*found->pod || found->own) &&
			    !plan_is_rolled_back(want, found->pool_uuid, UINT64_MAX, 0, state, NULL))
				keep_newest_of(apply, found, state);
		}
	}
}

static int take_round(struct apply *apply, const struct config *config, bool dry_run,
		      bool *again, bool *waits)
{
	bool patient = is_patient(apply);
	struct state state = { 0 };
	struct step *steps = NULL;
	int err = state_read(config, &state);

	*again = false;
	*waits = false;
	for (struct apply_known *known = apply->known; known; known = known->next_known)
		known->seen = false;
	state.settled = apply->settled;
	state.waited = waited(apply, config, &state);
	if (!err && plan_needs_beats(config))
		err = silence_watch(&apply->silences, &state, clock_s());
	if (!err)
		err = plan(config, &state, &steps);
	for (const struct step *step = steps; step; step = step->next) {
		/* hold the note back: its cause may end with this round */
		if (step->kind == STEP_NOTE && (*again || patient)) {
			*waits = true;
			continue;
		}
		*again |= take(apply, step, dry_run);
	}
	if (!err && !*again && !dry_run)
		settle(apply, &state, steps);
	if (!err && !dry_run)
		keep_newest(apply, config, &state);
	apply->follows = !err && plan_follows(config, &state);
	steps_free(steps);
	free(state.waited);
	free(state.silences);
	state_free(&state);
	return err;
}

static bool keeps_any(const struct config *config)
{
	for (size_t i = 0; i < config->nr_pools; i++) {
		if (plan_keeps(&config->pools[i]))
			return true;
	}
	return false;
}

/* Limit result->next to the earliest time at which a pool may be imported degraded. */
static void wait_for_pools(const struct apply *apply, const struct config *config,
			   struct apply_result *result)
{
	int64_t left;

	for (size_t i = 0; i < apply->nr_since && i < config->nr_pools; i++) {
		if (!apply->since[i] || config->pools[i].degraded_after < 0)
			continue;
		left = apply->since[i] + config->pools[i].degraded_after - clock_s();
		if (left >= 0 && (result->next < 0 || left < result->next))
			result->next = left;
	}
}

int apply(struct apply *apply, const struct config *config, bool dry_run,
	  struct apply_result *result)
{
	bool again = true, waits = false;
	int err = 0, rounds = 0;

	*result = (struct apply_result){ .next = -1 };
	while (!err && (again || waits) && rounds < ROUNDS) {
		err = take_round(apply, config, dry_run, &again, &waits);
		if (again)
			rounds++;
		else if (waits)
			usleep(POLL_US);
	}
	if (err)
		return err;
	for (const struct apply_known *known = apply->known; known; known = known->next_known) {
		int64_t left = known->next > clock_s() ? known->next - clock_s() : 0;

		if (!known->seen || (known->done && !known->may_fail))
			continue;
		result->nr_failed += !!*known->why;
		result->nr_notes += !*known->why && !known->may_fail;
		if ((*known->why || known->may_fail) && (result->next < 0 || left < result->next))
			result->next = left;
	}
	wait_for_pools(apply, config, result);
	if (keeps_any(config) && (result->next < 0 || result->next > PLAN_KEEP_GAP))
		result->next = PLAN_KEEP_GAP;
	if (apply->follows && (result->next < 0 || result->next > PLAN_FOLLOW_GAP))
		result->next = PLAN_FOLLOW_GAP;
	if (plan_needs_beats(config) && (result->next < 0 || result->next > BEATS_GAP))
		result->next = BEATS_GAP;
	forget(apply, false);
	return 0;
}
