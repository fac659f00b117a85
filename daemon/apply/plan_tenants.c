// SPDX-License-Identifier: MIT
/*
 * The plan: tenants of a pool, see plan.h. The rule: no step removes a tenant, or changes what the
 * file does not say.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "apply/plan_list.h"

char *plan_tenant(const char *pool, const char *name, char buf[PLAN_TENANT_LEN])
{
	/* neither pool names nor module names contain a slash */
	snprintf(buf, PLAN_TENANT_LEN, "tenant %s/%s", pool, name);
	return buf;
}

static const struct kvblk_tenant_state *tenant_of(const struct state *state, const char *pool,
						  const char *name)
{
	const struct kvblk_tenant_state *tenant = state->tenants;

	while (tenant && (strcmp(tenant->pool, pool) != 0 || strcmp(tenant->name, name) != 0))
		tenant = tenant->next;
	return tenant;
}

/* Returns the change to what the file says of @want, without its fields. */
static struct kvblk_tenant_change change_to(const struct config_tenant *want)
{
	return (struct kvblk_tenant_change){
		.size = sizeof(struct kvblk_tenant_change),
		.mode = want->mode ? (uint32_t)strtoul(want->mode, NULL, 8) : 0,
		.uid = want->uid < 0 ? 0 : (uint32_t)want->uid,
		.gid = want->gid < 0 ? 0 : (uint32_t)want->gid,
		.weight = (uint32_t)want->weight,
		.quota_bytes = (uint64_t)want->quota_bytes,
		.quota_bytes_soft = (uint64_t)want->quota_bytes_soft,
		.quota_blocks = (uint64_t)want->quota_blocks,
		.quota_blocks_soft = (uint64_t)want->quota_blocks_soft,
		.quota_dram = (uint64_t)want->quota_dram,
		.shared = want->shared,
	};
}

static void plan_create(const struct config_tenant *want, const struct kvblk_pool_state *pool,
			const char *master, struct steps *steps)
{
	struct step *step = add_step(steps, STEP_TENANT, "create %stenant %s of pool %s",
				     want->encrypted ? "encrypted " : "", want->name, pool->name);

	if (!step)
		return;
	step->change = change_to(want);
	step->master = want->encrypted ? master : NULL;
	memcpy(step->pool_uuid, pool->uuid, sizeof(step->pool_uuid));
	keep_text(steps, &step->pool, pool->name);
	keep_text(steps, &step->value, want->name);
}

static void plan_key(enum step_kind kind, const char *what, const struct kvblk_pool_state *pool,
		     const char *tenant, struct steps *steps)
{
	struct step *step = add_step(steps, kind, "%s of tenant %s of pool %s", what, tenant,
				     pool->name);

	if (!step)
		return;
	memcpy(step->pool_uuid, pool->uuid, sizeof(step->pool_uuid));
	keep_text(steps, &step->pool, pool->name);
	keep_text(steps, &step->value, tenant);
}

/* Plan to remove the kept keys of removed tenants. */
static void plan_key_removals(const struct kvblk_pool_state *pool, const struct state *state,
			      struct steps *steps)
{
	/* the list of an older module is empty */
	if (!tenant_of(state, pool->name, "default"))
		return;
	for (size_t i = 0; i < state->nr_keys; i++) {
		if (same_uuid(state->keys[i].pool_uuid, pool->uuid) &&
		    !tenant_of(state, pool->name, state->keys[i].tenant))
			plan_key(STEP_KEY_REMOVE, "remove the kept keys", pool,
				 state->keys[i].tenant, steps);
	}
}

/* Differences between the file and a tenant: as fields, and in words. */
struct difference {
	uint32_t fields;
	FILE *to;
};

/* Begin the words about @name, which differs. */
static void differs(struct difference *difference, uint32_t field, const char *name)
{
	fprintf(difference->to, "%s%s", difference->fields ? ", " : "", name);
	difference->fields |= field;
}

static void compare(struct difference *difference, uint32_t field, const char *name, int64_t want,
		    uint64_t now)
{
	if (want < 0 || (uint64_t)want == now)
		return;
	differs(difference, field, name);
	fprintf(difference->to, " from %" PRIu64 " to %" PRId64, now, want);
}

static void compare_all(struct difference *difference, const struct config_tenant *want,
			const struct kvblk_tenant_state *now)
{
	const uint32_t mode = change_to(want).mode;

	if (want->mode && mode != now->mode) {
		differs(difference, KVBLK_TENANT_MODE, "mode");
		fprintf(difference->to, " from %04" PRIo32 " to %04" PRIo32, now->mode, mode);
	}
	compare(difference, KVBLK_TENANT_UID, "owner", want->uid, now->uid);
	compare(difference, KVBLK_TENANT_GID, "group", want->gid, now->gid);
	compare(difference, KVBLK_TENANT_QUOTA_BYTES, "quota_bytes", want->quota_bytes,
		now->quota_bytes);
	compare(difference, KVBLK_TENANT_QUOTA_BYTES_SOFT, "quota_bytes_soft",
		want->quota_bytes_soft, now->quota_bytes_soft);
	compare(difference, KVBLK_TENANT_QUOTA_BLOCKS, "quota_blocks", want->quota_blocks,
		now->quota_blocks);
	compare(difference, KVBLK_TENANT_QUOTA_BLOCKS_SOFT, "quota_blocks_soft",
		want->quota_blocks_soft, now->quota_blocks_soft);
	compare(difference, KVBLK_TENANT_QUOTA_DRAM, "quota_dram", want->quota_dram,
		now->quota_dram);
	compare(difference, KVBLK_TENANT_WEIGHT, "weight", want->weight, now->weight);
	if (want->shared && strcmp(want->shared, now->shared) != 0) {
		differs(difference, KVBLK_TENANT_SHARED, "shared");
		fprintf(difference->to, " from \"%s\" to \"%s\"", now->shared, want->shared);
	}
}

/* Plan one change of all that differs: a limit at a time could put a soft one above its hard one. */
static void plan_change(const struct config_tenant *want, const struct kvblk_tenant_state *now,
			struct steps *steps)
{
	struct difference difference = { 0 };
	struct step *step;
	char *words;
	size_t len;

	difference.to = open_memstream(&words, &len);
	steps->no_memory |= !difference.to;
	if (!difference.to)
		return;
	compare_all(&difference, want, now);
	fclose(difference.to);
	step = difference.fields ? add_step(steps, STEP_TENANT_SET, "set tenant %s of pool %s: %s",
					    now->name, now->pool, words) : NULL;
	free(words);
	if (!step)
		return;
	step->change = change_to(want);
	step->change.fields = difference.fields;
	keep_text(steps, &step->pool, now->pool);
	keep_text(steps, &step->value, now->name);
}

static bool is_listed(const struct config_pool *wanted, const char *name)
{
	const struct config_tenant *want = wanted->tenants.item;

	for (size_t i = 0; i < wanted->tenants.nr; i++) {
		if (!strcmp(want[i].name, name))
			return true;
	}
	return false;
}

/* Plan the steps from the tenant @now to @want. */
static void plan_tenant_now(const struct config_tenant *want, const struct config_pool *wanted,
			    const struct kvblk_pool_state *pool,
			    const struct kvblk_tenant_state *now, const struct state *state,
			    struct steps *steps)
{
	char settled[PLAN_TENANT_LEN];

	if (!now->encrypted && plan_is_secret(wanted, pool->uuid, state, now->name)) {
		add_step(steps, STEP_NOTE, "tenant %s of pool %s: not trusted: it is not encrypted, which it must be: the superblock may have been forged; remove the tenant, or correct the file",
			 now->name, pool->name);
		return;
	}
	if (want->encrypted && now->locked)
		plan_key(STEP_TENANT_KEY, "give the key", pool, now->name, steps);
	if (!is_settled(state, plan_tenant(pool->name, now->name, settled)))
		plan_change(want, now, steps);
}

void plan_tenants(const struct config *config, const struct config_pool *wanted,
		  const struct kvblk_pool_state *pool, const struct state *state,
		  struct steps *steps)
{
	const struct config_tenant *want = wanted->tenants.item;
	const struct kvblk_tenant_state *now;
	char settled[PLAN_TENANT_LEN];

	/* the module does not report the number of the list */
	if (plan_is_rolled_back(wanted, pool->uuid, pool->epoch, UINT64_MAX, state, steps))
		return;
	plan_key_removals(pool, state, steps);

	/* all of them first, because a change may name a tenant to share */
	for (size_t i = 0; i < wanted->tenants.nr; i++) {
		if (tenant_of(state, pool->name, want[i].name))
			continue;
		if (is_settled(state, plan_tenant(pool->name, want[i].name, settled)))
			add_step(steps, STEP_NOTE, "tenant %s of pool %s was removed; to create it again, reload kvblkd or run: kvblk apply",
				 want[i].name, pool->name);
		else
			plan_create(&want[i], pool, config->master_key, steps);
	}
	for (size_t i = 0; i < wanted->tenants.nr; i++) {
		now = tenant_of(state, pool->name, want[i].name);
		if (now)
			plan_tenant_now(&want[i], wanted, pool, now, state, steps);
	}
	for (now = state->tenants; now && wanted->tenants.nr; now = now->next) {
		if (!strcmp(now->pool, pool->name) && now->has_mode &&
		    !is_listed(wanted, now->name))
			add_step(steps, STEP_NOTE, "tenant %s of pool %s is not in the file; it stays unchanged",
				 now->name, pool->name);
	}
}
