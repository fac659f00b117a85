// SPDX-License-Identifier: MIT
/*
 * The plan: pools with encrypted tenants that are older than the kept state, or with superblocks that
 * deny the encryption, see plan.h. The rule: such a pool is neither imported nor given keys, because
 * a drive or target may have been rolled back or forged.
 */
#include <inttypes.h>
#include <string.h>

#include "apply/newest.h"
#include "apply/plan_list.h"
#include "common/uuid.h"

bool plan_keeps(const struct config_pool *pool)
{
	const struct config_tenant *tenants = pool->tenants.item;

	for (size_t i = 0; i < pool->tenants.nr; i++) {
		if (tenants[i].encrypted)
			return true;
	}
	return false;
}

bool plan_is_usable(const struct kvblk_found *found)
{
	return !found->silent && !found->other_version && !found->former;
}

bool plan_is_older(uint64_t epoch, uint64_t list_seq, uint64_t other_epoch,
		   uint64_t other_list_seq)
{
	return epoch < other_epoch || (epoch == other_epoch && list_seq < other_list_seq);
}

static const struct state_newest *newest_of(const struct state *state, const uint8_t uuid[16])
{
	for (size_t i = 0; i < state->nr_newest; i++) {
		if (same_uuid(state->newest[i].pool_uuid, uuid))
			return &state->newest[i];
	}
	return NULL;
}

/* Returns the kept number of the member's superblock, 0 for a new member. */
static uint64_t seen_seq(const struct state_newest *newest, const uint8_t member[16])
{
	for (size_t i = 0; i < newest->nr_members; i++) {
		if (same_uuid(newest->members[i].uuid, member))
			return newest->members[i].seq;
	}
	return 0;
}

#define ACCEPT	"a drive or its target may have been rolled back; to accept that, remove"

static bool note_member(const struct config_pool *wanted, const struct state *state,
			const struct state_newest *newest, struct steps *steps)
{
	const struct kvblk_found *found;
	char path[KEPT_PATH_LEN];
	uint64_t seq;

	for (found = state->found; found; found = found->next) {
		if (!plan_is_usable(found) || !same_uuid(found->pool_uuid, newest->pool_uuid))
			continue;
		seq = seen_seq(newest, found->uuid);
		/* the copies differ by one, and the newer copy may be unreadable now */
		if (found->seq + 1 >= seq)
			continue;
		if (steps)
			add_step(steps, STEP_NOTE, "pool %s: not trusted: %s is at superblock %" PRIu64 ", but was at %" PRIu64 " before: " ACCEPT " %s and reload kvblkd",
				 wanted->name, found->path, found->seq, seq,
				 newest_path(newest->pool_uuid, path));
		return true;
	}
	return false;
}

bool plan_is_rolled_back(const struct config_pool *wanted, const uint8_t uuid[16], uint64_t epoch,
			 uint64_t list_seq, const struct state *state, struct steps *steps)
{
	const struct state_newest *newest = plan_keeps(wanted) ? newest_of(state, uuid) : NULL;
	char path[KEPT_PATH_LEN];

	if (!newest)
		return false;
	if (note_member(wanted, state, newest, steps))
		return true;
	if (!plan_is_older(epoch, list_seq, newest->epoch, newest->list_seq))
		return false;
	if (steps)
		add_step(steps, STEP_NOTE, "pool %s: not trusted: it is at epoch %" PRIu64 ", but was at %" PRIu64 " before, or its members and tenants have changed since: its newest members are missing, or " ACCEPT " %s and reload kvblkd",
			 wanted->name, epoch, newest->epoch, newest_path(uuid, path));
	return true;
}

bool plan_is_secret(const struct config_pool *wanted, const uint8_t uuid[16],
		    const struct state *state, const char *tenant)
{
	const struct config_tenant *want = wanted->tenants.item;

	for (size_t i = 0; i < wanted->tenants.nr; i++) {
		if (want[i].encrypted && !strcmp(want[i].name, tenant))
			return true;
	}
	for (size_t i = 0; i < state->nr_keys; i++) {
		if (same_uuid(state->keys[i].pool_uuid, uuid) &&
		    !strcmp(state->keys[i].tenant, tenant))
			return true;
	}
	return false;
}

bool plan_is_forged(const struct config_pool *wanted, const struct kvblk_found *best,
		    const struct state *state, struct steps *steps)
{
	for (uint32_t i = 0; i < best->nr_tenants; i++) {
		if (best->tenants[i].encrypted ||
		    !plan_is_secret(wanted, best->pool_uuid, state, best->tenants[i].name))
			continue;
		add_step(steps, STEP_NOTE, "pool %s: not trusted: by %s the tenant %s is not encrypted, which it must be: the superblock may have been forged; if the tenant is to be plain, correct the file",
			 wanted->name, best->path, best->tenants[i].name);
		return true;
	}
	return false;
}
