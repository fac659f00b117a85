// SPDX-License-Identifier: MIT
/* Readiness of the host's pools, see readiness.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kvblk_names.h>

#include "metrics/readiness.h"

static const char *const states[] = {
#define X(name, NAME)	[KVBLK_MEMBER_STATUS_##NAME] = name,
	KVBLK_MEMBER_STATUS_TABLE(X)
#undef X
};

const char *const ready_conditions[] = {
#define X(name, NAME)	name,
	KVBLK_MEMBER_STATUS_TABLE(X)
#undef X
	"suspect", "failing", "read-only", "fenced", NULL
};

const char *ready_condition(const struct kvblk_member_state *member)
{
	const char *trouble = snapshot_trouble(member);

	if (trouble)
		return trouble;
	return member->state < sizeof(states) / sizeof(states[0]) ? states[member->state] :
								    "unknown";
}

bool ready_serves(const struct kvblk_member_state *member)
{
	return member->state == KVBLK_MEMBER_STATUS_UP && !member->suspect &&
	       (!member->failing || member->read_only);
}

/*
 * Returns the percentage of the pool that cannot be reclaimed: leased blocks and segments with
 * readers; without @stats leases only.
 */
static double ready_held(const struct kvblk_pool_state *pool, const struct kvblk_stats *stats)
{
	double held = 0;

	if (pool->capacity)
		held += (double)pool->leased_bytes / (double)pool->capacity;
	if (stats && pool->nr_segments)
		held += (double)stats->gauge[KVBLK_A_GAUGE_SEGMENTS_RETIRING] / pool->nr_segments;
	return 100 * held;
}

__attribute__((format(printf, 2, 3)))
static unsigned int reason(FILE *to, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (to)
		vfprintf(to, format, args);
	va_end(args);
	return 1;
}

/* Report each member of @pool that does not serve or is read-only. Returns their number. */
static unsigned int tell_members(const struct kvblk_pool_state *pool,
				 const struct snapshot *snapshot, FILE *to)
{
	unsigned int nr = 0;

	for (const struct kvblk_member_state *m = snapshot->members; m; m = m->next) {
		if (!strcmp(m->pool, pool->name) && (!ready_serves(m) || m->read_only))
			nr += reason(to, "pool %s: member %s is %s%s\n", pool->name, m->name,
				     ready_condition(m),
				     ready_serves(m) ? ": its blocks are served, puts use other members" : "");
	}
	return nr;
}

/* Returns the percentage of members that @ready requires; 0: one member is enough. */
static unsigned long share_of(const char *ready)
{
	if (!ready || !strcmp(ready, "any"))
		return 0;
	return strcmp(ready, "all") ? strtoul(ready, NULL, 10) : 100;
}

/* Report the members that do not serve, if too few serve. Returns the number of reasons. */
static unsigned int check_members(const struct kvblk_pool_state *pool, const char *ready,
				  const struct snapshot *snapshot, FILE *to)
{
	unsigned int nr = 0, serve = 0, reasons;

	for (const struct kvblk_member_state *m = snapshot->members; m; m = m->next) {
		nr += !strcmp(m->pool, pool->name);
		serve += !strcmp(m->pool, pool->name) && ready_serves(m);
	}
	if (serve && 100ul * serve >= share_of(ready) * nr)
		return 0;
	reasons = tell_members(pool, snapshot, to);
	return reasons ? reasons : reason(to, "pool %s has no member\n", pool->name);
}

static unsigned int check_pool(const struct kvblk_pool_state *pool, const struct config_pool *rules,
			       const struct snapshot *snapshot, FILE *to)
{
	unsigned int reasons = check_members(pool, rules->ready, snapshot, to);
	double held = ready_held(pool, snapshot_stats(snapshot->stats, pool->name, ""));

	if (rules->ready_below && held >= (double)rules->ready_below)
		reasons += reason(to, "pool %s: leases and readers hold %.1f %%, the limit ready_below is %d %%\n",
				  pool->name, held, (int)rules->ready_below);
	return reasons;
}

static const struct kvblk_pool_state *find_pool(const struct snapshot *snapshot,
						const char *name)
{
	const struct kvblk_pool_state *pool = snapshot->pools;

	while (pool && strcmp(pool->name, name) != 0)
		pool = pool->next;
	return pool;
}

unsigned int ready_reasons(const struct config *config, const struct snapshot *snapshot,
			   int err, FILE *to)
{
	static const struct config_pool none;
	const struct kvblk_pool_state *pool;
	unsigned int reasons = 0;

	if (err == -ENOENT)
		return reason(to, "the module kvblk is not loaded\n");
	if (err)
		return reason(to, "the module kvblk does not respond: %s\n", strerror(-err));
	for (size_t i = 0; i < config->nr_pools; i++) {
		pool = find_pool(snapshot, config->pools[i].name);
		reasons += pool ? check_pool(pool, &config->pools[i], snapshot, to) :
				  reason(to, "pool %s is not up\n", config->pools[i].name);
	}
	for (pool = config->nr_pools ? NULL : snapshot->pools; pool; pool = pool->next)
		reasons += check_pool(pool, &none, snapshot, to);
	return reasons;
}

void ready_notes(const struct config *config, const struct snapshot *snapshot, FILE *to)
{
	const struct kvblk_pool_state *pool;

	for (size_t i = 0; i < config->nr_pools; i++) {
		pool = find_pool(snapshot, config->pools[i].name);
		if (pool)
			tell_members(pool, snapshot, to);
	}
	for (pool = config->nr_pools ? NULL : snapshot->pools; pool; pool = pool->next)
		tell_members(pool, snapshot, to);
}
