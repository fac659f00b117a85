// SPDX-License-Identifier: MIT
/*
 * The policy's thread, see policy_thread.h. The thread also triggers the reading of drive
 * health. Its state is saved after each look, so that the daemon may be killed at any time: time
 * without a daemon counts like any other.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/snapshot.h"
#include "common/thread.h"
#include "log/log.h"
#include "policy/policy_file.h"
#include "policy/policy_record.h"
#include "policy/policy_thread.h"

struct ratio {
	char pool[POLICY_NAME_LEN];
	double value;
};

/**
 * struct policy_run - state of the thread
 * @lock: protects @next, @has_next, @woken, @ratios and @nr_ratios
 * @wake: signalled when @has_next or @woken is set
 * @next: next configuration
 * @has_next: @next is valid
 * @woken: a look is requested
 * @ratios: bytes written to pools, as a share of their budgets
 * @nr_ratios: entries of @ratios
 * @config: configuration in force; pools only
 * @file: saved state
 * @pools: state of the pools that have a policy
 * @nr_pools: entries of @pools
 * @lost: the saved state was damaged
 * @told: last file error that was logged
 * @record: stream to record looks and decisions, or NULL
 * @files: number of configurations taken
 */
static struct policy_run {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct config next;
	bool has_next;
	bool woken;
	struct ratio ratios[POLICY_POOLS];
	size_t nr_ratios;
	struct config config;
	struct policy_file *file;
	struct policy_memory pools[POLICY_POOLS];
	size_t nr_pools;
	bool lost;
	int told;
	FILE *record;
	unsigned int files;
} run = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Returns a time that advances while the daemon does not run and while the host is suspended. */
static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void free_pools(struct config *config)
{
	for (size_t i = 0; i < config->nr_pools; i++) {
		free(config->pools[i].name);
		for (size_t t = 0; t < nr_tunables; t++)
			free(config->pools[i].tunables[t]);
	}
	free(config->pools);
	*config = (struct config){ 0 };
}

/* Copy names, tunables, budgets and reserves. */
static bool copy_pools(struct config *to, const struct config *from)
{
	bool whole = true;

	to->pools = calloc(from->nr_pools + 1, sizeof(*to->pools));
	for (size_t i = 0; to->pools && i < from->nr_pools; i++) {
		const struct config_pool *pool = &from->pools[i];
		struct config_pool *copy = &to->pools[to->nr_pools++];

		copy->name = strdup(pool->name);
		whole &= !!copy->name;
		for (size_t t = 0; t < nr_tunables; t++) {
			copy->tunables[t] = pool->tunables[t] ? strdup(pool->tunables[t]) : NULL;
			whole &= !pool->tunables[t] || copy->tunables[t];
		}
		copy->budget = pool->budget;
		copy->reserve = pool->reserve;
	}
	return to->pools && whole;
}

void policy_configure(const struct config *config)
{
	struct config copy = { 0 };

	if (!copy_pools(&copy, config)) {
		log_line(LOG_LINE_WARNING, "policy: out of memory; keeping the previous configuration");
		free_pools(&copy);
		return;
	}
	pthread_mutex_lock(&run.lock);
	free_pools(&run.next);
	run.next = copy;
	run.has_next = true;
	pthread_cond_signal(&run.wake);
	pthread_mutex_unlock(&run.lock);
}

void policy_wake(void)
{
	pthread_mutex_lock(&run.lock);
	run.woken = true;
	pthread_cond_signal(&run.wake);
	pthread_mutex_unlock(&run.lock);
}

/* Returns the configuration of the pool; by default one without budget and reserve. */
static const struct config_pool *pool_called(const char *name)
{
	static struct config_pool none = { .budget = { .interval = (int64_t)GOVERNOR_STEP } };

	for (size_t i = 0; i < run.config.nr_pools; i++) {
		if (!strcmp(run.config.pools[i].name, name))
			return &run.config.pools[i];
	}
	none.name = (char *)(uintptr_t)name;
	return &none;
}

static bool has_policy(const struct config_pool *pool)
{
	return config_has_budget(pool) || pool->reserve.seconds;
}

static int open_tunable(const char *pool, int i, int flags)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/class/kvblk/%s/%s", pool, policy_tunables[i]);
	return open(path, flags | O_CLOEXEC);
}

static bool read_tunable(const char *pool, int i, unsigned int *value)
{
	int fd = open_tunable(pool, i, O_RDONLY);
	char text[TUNABLE_LEN] = "";
	bool is = fd >= 0 && read(fd, text, sizeof(text) - 1) > 0;

	if (fd >= 0)
		close(fd);
	*value = (unsigned int)strtoul(text, NULL, 10);
	return is;
}

static int write_tunable(const char *pool, int i, unsigned int value)
{
	int fd = open_tunable(pool, i, O_WRONLY);
	int err = fd < 0 || dprintf(fd, "%u", value) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

static void set_one(struct policy_memory *m, const struct policy_look *look,
		    const struct policy_verdict *verdict, int i)
{
	int err;

	if (verdict->to[i] == look->now[i])
		return;
	err = write_tunable(m->pool, i, verdict->to[i]);
	if (!err)
		return;
	m->set[i] = look->now[i];
	log_line(LOG_LINE_WARNING, "pool %s: cannot set %s to %u: %s", m->pool,
		 policy_tunables[i], verdict->to[i], strerror(-err));
}

/* Set all tunables, in an order that keeps low_permille below high_permille at each step. */
static void set_all(struct policy_memory *m, const struct policy_look *look,
		    const struct policy_verdict *verdict)
{
	bool rises = verdict->to[POLICY_LOW] > look->now[POLICY_LOW];

	for (int i = 0; i < POLICY_LOW; i++)
		set_one(m, look, verdict, i);
	set_one(m, look, verdict, rises ? POLICY_HIGH : POLICY_LOW);
	set_one(m, look, verdict, rises ? POLICY_LOW : POLICY_HIGH);
}

static void tell_line(const struct policy_memory *m, const struct policy_verdict *verdict,
		      const struct policy_line *line)
{
	char changes[256] = "";
	struct timespec ts;
	size_t len = 0;
	int err;

	for (int i = line->moves; i < (int)line->moves + line->nr_moves; i++) {
		if (verdict->to[i] != verdict->from[i])
			len += (size_t)snprintf(changes + len, sizeof(changes) - len,
						"%s %s from %u to %u", len ? "," : ":",
						policy_tunables[i], verdict->from[i],
						verdict->to[i]);
	}
	log_of(m->pool, "", line->warning ? LOG_LINE_WARNING : LOG_LINE_INFO, "pool %s: %s%s",
	       m->pool, line->text, changes);
	clock_gettime(CLOCK_REALTIME, &ts);
	err = policy_file_tell(run.file, (double)ts.tv_sec + (double)ts.tv_nsec / 1e9, m->pool,
			       line, verdict->from, verdict->to);
	if (err && err != run.told)
		log_line(LOG_LINE_WARNING, "policy: cannot write a decision to " POLICY_DECISIONS ": %s",
			 strerror(-err));
	run.told = err;
}

static void look_at_member(const struct kvblk_member_state *state,
			   const struct kvblk_stats *stats, struct policy_member *member)
{
	*member = (struct policy_member){
		.up = state->state == KVBLK_MEMBER_STATUS_UP && !state->suspect && !state->failing,
		.size = (double)state->size,
		.segment_size = (double)state->segment_size,
		.nr_segments = state->nr_segments,
		.free_segments = state->free_segments + state->ready_segments,
		.written = (double)stats->counter[KVBLK_A_COUNTER_WRITE_BYTES],
		.reclaimed = (double)stats->counter[KVBLK_A_COUNTER_RECLAIMED_BYTES],
	};
	snprintf(member->name, sizeof(member->name), "%s", state->name);
	member->smart = smart_of(state->pool, state->name);
}

static bool look_at(const struct kvblk_pool_state *pool, const struct snapshot *snapshot,
		    struct policy_look *look)
{
	const struct kvblk_stats *stats = snapshot_stats(snapshot->stats, pool->name, "");
	bool whole = !!stats;

	*look = (struct policy_look){
		.now_s = now_s(),
		.pool = pool_called(pool->name),
		.assembly = pool->epoch,
		.written = whole ? (double)stats->counter[KVBLK_A_COUNTER_WRITE_BYTES] : 0,
	};
	for (int i = 0; whole && i < POLICY_TUNABLES; i++)
		whole = read_tunable(pool->name, i, &look->now[i]);
	for (const struct kvblk_member_state *m = snapshot->members; whole && m; m = m->next) {
		if (strcmp(m->pool, pool->name) != 0 || look->nr_members == POLICY_MEMBERS)
			continue;
		stats = snapshot_stats(snapshot->member_stats, pool->name, m->name);
		if (stats)
			look_at_member(m, stats, &look->members[look->nr_members++]);
	}
	return whole;
}

static struct policy_memory *memory_of(const char *pool)
{
	struct policy_memory *m = run.pools;

	while (m < run.pools + run.nr_pools && strcmp(m->pool, pool) != 0)
		m++;
	if (m < run.pools + run.nr_pools)
		return m;
	if (run.nr_pools == POLICY_POOLS)
		return NULL;
	*m = (struct policy_memory){ .lost = run.lost };
	snprintf(m->pool, sizeof(m->pool), "%s", pool);
	run.nr_pools++;
	return m;
}

static void record(const struct policy_look *look, const struct policy_verdict *verdict)
{
	int err = run.record ? policy_record(run.record, run.files, look, verdict) : 0;

	if (!err)
		return;
	log_line(LOG_LINE_WARNING, "policy: cannot write the record: %s; recording stopped", strerror(-err));
	fclose(run.record);
	run.record = NULL;
}

/* Returns the bytes written as a share of the budget, -1 if the budget is unknown. */
static double ratio_of(const struct policy_memory *m, const struct policy_look *look)
{
	char why[POLICY_TEXT_LEN];
	double budget = policy_budget(m, look, why, sizeof(why));

	return m->governed && m->governor.started && budget > 0 && !isinf(budget) ?
		       m->governor.rate * GOVERNOR_DAY * m->stretch / budget : -1;
}

/* Decide on a pool, apply the result, and set @ratio to the share of the budget written. */
static void decide(const struct kvblk_pool_state *pool, const struct snapshot *snapshot,
		   struct ratio *ratio)
{
	static struct policy_look look;
	static struct policy_verdict verdict;
	struct policy_memory *m = memory_of(pool->name);

	/* look_at() fails if the pool vanishes meanwhile */
	if (!m || !look_at(pool, snapshot, &look))
		return;
	policy_decide(m, &look, &verdict);
	ratio->value = ratio_of(m, &look);
	record(&look, &verdict);
	set_all(m, &look, &verdict);
	for (size_t i = 0; i < verdict.nr_lines; i++)
		tell_line(m, &verdict, &verdict.lines[i]);
}

/* Publish the ratios of all pools for other threads. */
static void publish_ratios(const struct ratio *ratios, size_t nr)
{
	pthread_mutex_lock(&run.lock);
	memcpy(run.ratios, ratios, nr * sizeof(*ratios));
	run.nr_ratios = nr;
	pthread_mutex_unlock(&run.lock);
}

double policy_budget_ratio(const char *pool)
{
	double value = -1;

	pthread_mutex_lock(&run.lock);
	for (size_t i = 0; i < run.nr_ratios; i++) {
		if (!strcmp(run.ratios[i].pool, pool))
			value = run.ratios[i].value;
	}
	pthread_mutex_unlock(&run.lock);
	return value;
}

/* Drop the state of pools that have no policy any more. */
static void forget(void)
{
	size_t kept = 0;

	for (size_t i = 0; i < run.nr_pools; i++) {
		const struct policy_memory *m = &run.pools[i];

		if (m->governed || m->reserved || has_policy(pool_called(m->pool)))
			run.pools[kept++] = *m;
	}
	run.nr_pools = kept;
}

static bool is_remembered(const char *pool)
{
	for (size_t i = 0; i < run.nr_pools; i++) {
		if (!strcmp(run.pools[i].pool, pool))
			return true;
	}
	return false;
}

static void look_at_all(void)
{
	static struct ratio ratios[POLICY_POOLS];
	const struct kvblk_pool_state *pool;
	struct snapshot snapshot;
	struct kvblk_admin *admin;
	int err = kvblk_admin_open(&admin);
	size_t nr = 0;

	/* no module, no pools */
	if (err)
		return;
	err = snapshot_get_parts(admin, NULL, &snapshot);
	if (!err)
		smart_look(snapshot.members, now_s());
	for (pool = err ? NULL : snapshot.pools; pool; pool = pool->next) {
		if (nr == POLICY_POOLS || (!has_policy(pool_called(pool->name)) && !is_remembered(pool->name)))
			continue;
		ratios[nr].value = -1;
		snprintf(ratios[nr].pool, sizeof(ratios[nr].pool), "%s", pool->name);
		decide(pool, &snapshot, &ratios[nr++]);
	}
	publish_ratios(ratios, nr);
	snapshot_free(&snapshot);
	kvblk_admin_close(admin);
	run.lost = false;
	forget();
	err = policy_file_save(run.file, run.pools, run.nr_pools);
	if (err && err != run.told)
		log_line(LOG_LINE_WARNING, "policy: cannot write " POLICY_MEMORY ": %s; a restart would lose the policy's history",
			 strerror(-err));
	run.told = err;
}

/* Returns the seconds until the next look. Without a policy only the drives' health is read. */
static int64_t tick(void)
{
	int64_t next = run.nr_pools ? POLICY_TICK : SMART_SECONDS;

	for (size_t i = 0; i < run.config.nr_pools; i++) {
		const struct config_pool *pool = &run.config.pools[i];

		if (has_policy(pool) && next > POLICY_TICK)
			next = POLICY_TICK;
		if (has_policy(pool) && pool->budget.interval < next)
			next = pool->budget.interval;
	}
	return next;
}

static void take(const struct config *config)
{
	free_pools(&run.config);
	run.config = *config;
	run.files++;
	for (size_t i = 0; i < run.nr_pools; i++)
		policy_reread(&run.pools[i], pool_called(run.pools[i].pool));
}

static void wait_for_turn(void)
{
	struct config next = { 0 };
	struct timespec until;
	bool taken;
	int err = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += tick();
	pthread_mutex_lock(&run.lock);
	while (!run.woken && !run.has_next && err != ETIMEDOUT)
		err = pthread_cond_timedwait(&run.wake, &run.lock, &until);
	run.woken = false;
	taken = run.has_next;
	if (taken)
		next = run.next;
	run.next = (struct config){ 0 };
	run.has_next = false;
	pthread_mutex_unlock(&run.lock);
	if (taken)
		take(&next);
}

static void *work(void *arg)
{
	for (;;) {
		wait_for_turn();
		look_at_all();
	}
	return NULL;
}

static const char *directory(void)
{
	const char *dir = getenv("RUNTIME_DIRECTORY");

	return dir ? dir : POLICY_DIR;
}

int policy_open(gid_t group)
{
	int err = policy_file_open(&run.file, directory(), group);

	if (err && err != -EBUSY)
		log_line(LOG_LINE_WARNING, "policy: cannot open %s: %s; policy disabled", directory(), strerror(-err));
	return err == -EBUSY ? err : 0;
}

static void load(void)
{
	int nr = policy_file_load(run.file, run.pools, POLICY_POOLS);

	run.lost = nr < 0 && nr != -ENOENT;
	run.nr_pools = nr > 0 ? (size_t)nr : 0;
	if (run.lost)
		log_line(LOG_LINE_WARNING, "%s/" POLICY_MEMORY " is damaged; the policy starts without history", directory());
	for (size_t i = 0; i < run.nr_pools; i++)
		log_line(LOG_LINE_INFO, "pool %s: policy resumed; upper limits: admit_permille %u, first_permille %u, second_permille %u",
			 run.pools[i].pool, run.pools[i].bound[POLICY_ADMIT],
			 run.pools[i].bound[POLICY_FIRST], run.pools[i].bound[POLICY_SECOND]);
}

static void start_record(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	run.record = fd >= 0 ? fdopen(fd, "a") : NULL;
	if (!run.record)
		log_line(LOG_LINE_WARNING, "policy: cannot open the record %s: %s; recording disabled", path,
			 strerror(errno));
}

void policy_start(void)
{
	const char *path = getenv("KVBLKD_RECORD");
	pthread_condattr_t clock;

	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&run.wake, &clock);
	pthread_condattr_destroy(&clock);
	if (!run.file)
		return;
	load();
	if (path)
		start_record(path);
	if (thread_start(work, NULL))
		log_line(LOG_LINE_WARNING, "policy: cannot create a thread; policy disabled");
}
