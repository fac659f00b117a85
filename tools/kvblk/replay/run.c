// SPDX-License-Identifier: MIT
/* Threads of a replay, see replay.h. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bench/pattern.h"
#include "cli/cli.h"
#include "replay/replay.h"

#define LEASE_MS	60000u
#define NS_PER_S	1000000000ull
#define NS_PER_MS	1000000ull

struct worker {
	struct replay *replay;
	pthread_t thread;
	struct replay_tally *tally;
	/* memory for @nr_slots blocks, each page-aligned */
	unsigned char *buffer;
	struct kvblk_op *ops;
	struct kvblk_result *results;
	struct kvblk_piece *pieces;
	struct kvblk_op_ext *exts;
	/* keys of the current request, packed */
	char *keys;
};

struct replay {
	/* set before the threads start, then read-only */
	struct replay_opts opts;
	const struct trace *trace;
	struct kvblk *kv;
	struct worker *workers;
	unsigned int nr_started;
	unsigned int nr_slots;
	size_t slot_size;
	uint64_t start_ns;
	int done_fd;

	_Atomic size_t next;
	_Atomic unsigned int nr_running;
	_Atomic bool stopped;

	/* protects @failure, and sleeping on @stop_cond against a stop */
	pthread_mutex_t lock;
	pthread_cond_t stop_cond;
	struct replay_failure failure;
};

uint64_t replay_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

static void count(struct worker *w, enum replay_counter counter, uint64_t n)
{
	/* no locked add: there is a single writer */
	atomic_store_explicit(&w->tally->counter[counter],
			      replay_count(w->tally, counter) + n,
			      memory_order_relaxed);
}

static bool stopped(const struct replay *replay)
{
	return atomic_load_explicit(&replay->stopped, memory_order_relaxed);
}

static void stop_locked(struct replay *replay)
{
	atomic_store(&replay->stopped, true);
	pthread_cond_broadcast(&replay->stop_cond);
}

void replay_stop(struct replay *replay)
{
	pthread_mutex_lock(&replay->lock);
	stop_locked(replay);
	pthread_mutex_unlock(&replay->lock);
}

/* Record the failure and stop the replay; only the first failure counts. */
static void fail(struct replay *replay, const struct replay_failure *failure)
{
	pthread_mutex_lock(&replay->lock);
	if (!replay->failure.what)
		replay->failure = *failure;
	stop_locked(replay);
	pthread_mutex_unlock(&replay->lock);
}

static void call_failed(struct replay *replay, const char *what, int err)
{
	struct replay_failure failure = { .err = err, .what = what };

	fail(replay, &failure);
}

/* Sleep until the request is due. Returns false if the replay was stopped. */
static bool wait_until_due(struct worker *w, const struct trace_req *req)
{
	struct replay *replay = w->replay;
	uint64_t first_ms = replay->trace->reqs[0].timestamp_ms;
	uint64_t since_ms = 0, due_ns, now_ns;
	struct timespec due;

	if (replay->opts.speed <= 0)
		return !stopped(replay);
	/* the requests of a trace need not be in order of time */
	if (req->timestamp_ms > first_ms)
		since_ms = req->timestamp_ms - first_ms;
	due_ns = replay->start_ns +
		 (uint64_t)((double)since_ms * (double)NS_PER_MS /
			    replay->opts.speed);
	due.tv_sec = (time_t)(due_ns / NS_PER_S);
	due.tv_nsec = (long)(due_ns % NS_PER_S);

	pthread_mutex_lock(&replay->lock);
	while (!stopped(replay) && replay_now_ns() < due_ns)
		pthread_cond_timedwait(&replay->stop_cond, &replay->lock, &due);
	pthread_mutex_unlock(&replay->lock);

	now_ns = replay_now_ns();
	if (now_ns > due_ns)
		count(w, REPLAY_LATE_MS, (now_ns - due_ns) / NS_PER_MS);
	return !stopped(replay);
}

static char *key_at(const struct worker *w, uint32_t i)
{
	return w->keys + (size_t)i * REPLAY_KEY_LEN;
}

static unsigned char *slot_at(const struct worker *w, uint32_t slot)
{
	return w->buffer + slot * w->replay->slot_size;
}

static void name_blocks(struct worker *w, const struct trace_req *req)
{
	char key[REPLAY_KEY_LEN + 1];

	for (uint32_t i = 0; i < req->nr; i++) {
		/* blocks without --verify hold arbitrary bytes, so their names differ */
		snprintf(key, sizeof(key), "replay-%c/%08x/%016llx",
			 w->replay->opts.verify ? 'v' : 'n',
			 w->replay->opts.block_size,
			 (unsigned long long)req->ids[i]);
		memcpy(key_at(w, i), key, REPLAY_KEY_LEN);
	}
}

static bool verify(struct worker *w, uint32_t i, uint32_t slot,
		   const struct kvblk_result *result)
{
	uint64_t seed = pattern_seed(key_at(w, i), REPLAY_KEY_LEN);
	uint32_t len = (uint32_t)result->res;
	const unsigned char *block = slot_at(w, slot);
	struct replay_failure failure = { .what = "wrong byte" };
	size_t wrong = pattern_check(seed, block, len);

	count(w, REPLAY_VERIFIED, wrong);
	if (wrong == len && len == w->replay->opts.block_size)
		return true;
	memcpy(failure.key, key_at(w, i), REPLAY_KEY_LEN);
	failure.offset = wrong;
	failure.length = len;
	if (wrong < len) {
		failure.got = block[wrong];
		failure.want = pattern_byte(seed, wrong);
	}
	fail(w->replay, &failure);
	return false;
}

static void time_batch(struct worker *w, enum replay_time batch,
		       enum replay_time block, uint64_t start_ns, uint32_t nr)
{
	uint64_t ns = replay_now_ns() - start_ns;

	assert(nr);
	hist_add(&w->tally->time[batch], ns, 1);
	hist_add(&w->tally->time[block], ns / nr, nr);
}

/*
 * Get the blocks [@from, @from + @nr). Returns false to stop. *@leading: hits before the
 * first miss.
 */
static bool get_batch(struct worker *w, uint32_t from, uint32_t nr,
		      uint32_t *leading)
{
	uint64_t start_ns;
	bool hole = false;
	int err;

	for (uint32_t i = 0; i < nr; i++)
		kvblk_prep_get(&w->ops[i], key_at(w, from + i), REPLAY_KEY_LEN,
			       &w->pieces[i], 1);
	start_ns = replay_now_ns();
	err = kvblk_submit(w->replay->kv, w->ops, nr, w->results, 0);
	if (err) {
		call_failed(w->replay, "get", err);
		return false;
	}
	time_batch(w, REPLAY_GET_BATCH, REPLAY_GET_BLOCK, start_ns, nr);

	*leading = 0;
	count(w, REPLAY_GETS, nr);
	for (uint32_t i = 0; i < nr; i++) {
		const struct kvblk_result *result = &w->results[i];

		if (result->res < 0) {
			count(w, REPLAY_GET_MISSES, 1);
			hole = true;
			continue;
		}
		count(w, REPLAY_GET_BYTES, (uint64_t)result->res);
		if (result->flags & KVBLK_RES_DIRECT)
			count(w, REPLAY_DIRECT, 1);
		if (w->replay->opts.verify && !verify(w, from + i, i, result))
			return false;
		if (!hole)
			++*leading;
	}
	count(w, REPLAY_HITS, *leading);
	return true;
}

/*
 * Put the blocks [@from, @from + @nr) of @end. Returns false to stop. *@declined: the policy
 * declined some.
 */
static bool put_batch(struct worker *w, uint32_t from, uint32_t nr, uint32_t end,
		      bool *declined)
{
	uint64_t start_ns;
	int err;

	for (uint32_t i = 0; i < nr; i++) {
		const char *key = key_at(w, from + i);

		if (w->replay->opts.verify)
			pattern_fill(pattern_seed(key, REPLAY_KEY_LEN),
				     slot_at(w, i), w->replay->opts.block_size);
		kvblk_prep_put(&w->ops[i], key, REPLAY_KEY_LEN, &w->pieces[i], 1);
		kvblk_prep_ext(&w->ops[i], &w->exts[i]);
		w->exts[i].hints = from + nr < end ? KVBLK_HINT_CONTINUES : 0;
		if (!from && !i)
			continue;
		w->exts[i].parent = (uintptr_t)(key - REPLAY_KEY_LEN);
		w->exts[i].parent_len = REPLAY_KEY_LEN;
	}
	start_ns = replay_now_ns();
	err = kvblk_submit(w->replay->kv, w->ops, nr, w->results,
			   KVBLK_SUBMIT_CHAIN);
	if (err) {
		call_failed(w->replay, "put", err);
		return false;
	}
	time_batch(w, REPLAY_PUT_BATCH, REPLAY_PUT_BLOCK, start_ns, nr);

	*declined = false;
	for (uint32_t i = 0; i < nr; i++) {
		const struct kvblk_result *result = &w->results[i];

		switch (result->res) {
		case -ENOBUFS:
			*declined = true;
			count(w, REPLAY_DECLINED, 1);
			break;
		case -EEXIST:
		case -EALREADY:
			count(w, REPLAY_EXISTS, 1);
			break;
		default:
			if (result->res < 0) {
				count(w, REPLAY_PUT_ERRORS, 1);
				break;
			}
			count(w, REPLAY_PUTS, 1);
			count(w, REPLAY_PUT_BYTES, w->replay->opts.block_size);
			if (result->flags & KVBLK_RES_DIRECT)
				count(w, REPLAY_DIRECT, 1);
		}
	}
	return true;
}

/* Get the leading blocks. Returns the number of hits; clears *@going on a stop. */
static uint32_t get_leading(struct worker *w, uint32_t found, bool *going)
{
	uint32_t done = 0;

	while (done < found) {
		uint32_t nr = found - done, leading;

		if (nr > w->replay->nr_slots)
			nr = w->replay->nr_slots;
		*going = get_batch(w, done, nr, &leading);
		if (!*going)
			return done;
		done += leading;
		if (leading < nr)
			break;
	}
	return done;
}

static bool put_rest(struct worker *w, uint32_t from, uint32_t end)
{
	bool declined = false;

	while (from < end && !declined) {
		uint32_t nr = end - from;

		if (nr > w->replay->nr_slots)
			nr = w->replay->nr_slots;
		if (!put_batch(w, from, nr, end, &declined))
			return false;
		from += nr;
	}
	/* blocks after a declined one are useless: a hole ends a prefix */
	count(w, REPLAY_DECLINED, end - from);
	return true;
}

static bool run_request(struct worker *w, const struct trace_req *req)
{
	struct kvblk_prefix found = { .size = sizeof(found) };
	struct kvblk *kv = w->replay->kv;
	uint32_t leading;
	uint64_t start_ns;
	bool going = true;
	int err;

	name_blocks(w, req);
	start_ns = replay_now_ns();
	err = kvblk_lookup_prefix(kv, w->keys, REPLAY_KEY_LEN, req->nr,
				  LEASE_MS, &found);
	if (err) {
		call_failed(w->replay, "lookup", err);
		return false;
	}
	hist_add(&w->tally->time[REPLAY_LOOKUP], replay_now_ns() - start_ns, 1);
	/* count references before hits, so that a reader never sees more hits than blocks */
	count(w, REPLAY_REFS, req->nr);

	leading = get_leading(w, found.nr_leading, &going);
	if (going)
		going = put_rest(w, leading, req->nr);
	/* -ENOENT: the lease expired during the request */
	err = kvblk_lease_release(kv, found.lease);
	if (err && err != -ENOENT && going) {
		call_failed(w->replay, "lease release", err);
		return false;
	}
	if (!going)
		return false;
	count(w, REPLAY_REQUESTS, 1);
	return true;
}

static void *worker_thread(void *arg)
{
	struct worker *w = arg;
	struct replay *replay = w->replay;
	const struct trace_req *req;
	size_t i;

	for (;;) {
		i = atomic_fetch_add(&replay->next, 1);
		if (i >= replay->opts.nr_reqs)
			break;
		req = &replay->trace->reqs[i];
		if (!wait_until_due(w, req))
			break;
		if (req->nr && !run_request(w, req))
			break;
	}
	if (atomic_fetch_sub(&replay->nr_running, 1) == 1)
		eventfd_write(replay->done_fd, 1);
	return NULL;
}

static bool prepare_worker(struct worker *w, uint32_t most_blocks)
{
	struct replay *replay = w->replay;
	size_t bytes = replay->nr_slots * replay->slot_size;
	uint32_t nr = replay->nr_slots;

	w->tally = calloc(1, sizeof(*w->tally));
	w->ops = calloc(nr, sizeof(*w->ops));
	w->results = calloc(nr, sizeof(*w->results));
	w->pieces = calloc(nr, sizeof(*w->pieces));
	w->exts = calloc(nr, sizeof(*w->exts));
	w->keys = calloc(most_blocks ? most_blocks : 1, REPLAY_KEY_LEN);
	w->buffer = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (w->buffer == MAP_FAILED)
		w->buffer = NULL;
	if (!w->tally || !w->ops || !w->results || !w->pieces || !w->exts ||
	    !w->keys || !w->buffer)
		return false;
	for (uint32_t i = 0; i < nr; i++)
		kvblk_prep_piece(&w->pieces[i], NULL, (uintptr_t)slot_at(w, i),
				 replay->opts.block_size);
	return true;
}

static void free_worker(struct worker *w)
{
	if (w->buffer)
		munmap(w->buffer, w->replay->nr_slots * w->replay->slot_size);
	free(w->keys);
	free(w->exts);
	free(w->pieces);
	free(w->results);
	free(w->ops);
	free(w->tally);
}

static void free_replay(struct replay *replay)
{
	if (replay->workers) {
		for (unsigned int i = 0; i < replay->opts.nr_threads; i++)
			free_worker(&replay->workers[i]);
	}
	free(replay->workers);
	if (replay->done_fd >= 0)
		close(replay->done_fd);
	kvblk_close(replay->kv);
	pthread_cond_destroy(&replay->stop_cond);
	pthread_mutex_destroy(&replay->lock);
	free(replay);
}

static uint32_t most_blocks(const struct replay *replay)
{
	uint32_t most = 0;

	for (size_t i = 0; i < replay->opts.nr_reqs; i++) {
		if (replay->trace->reqs[i].nr > most)
			most = replay->trace->reqs[i].nr;
	}
	return most;
}

/*
 * Open the pool and check its limits against the trace and the options. Returns an enum
 * cli_exit.
 */
static int open_pool(struct replay *replay)
{
	const struct replay_opts *opts = &replay->opts;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct kvblk_info info;
	char limit[32];
	uint32_t most;
	uint64_t slots;
	int err;

	replay->kv = cli_open_pool(opts->pool);
	err = kvblk_get_info(replay->kv, &info, sizeof(info));
	if (!err && !info.ops_max)
		err = -EPROTO;
	if (err) {
		cli_fail("pool %s: %s", opts->pool, strerror(-err));
		return -1;
	}
	if (opts->block_size > info.value_max) {
		cli_fail("pool %s takes blocks of up to %s; choose a smaller --block-size",
			 opts->pool,
			 cli_format_bytes(info.value_max, limit, sizeof(limit)));
		return -1;
	}
	for (size_t i = 0; i < opts->nr_reqs; i++) {
		if (replay->trace->reqs[i].nr <= info.lookup_max)
			continue;
		cli_fail("request %zu of the trace has more blocks than one lookup takes (%u)",
			 i + 1, info.lookup_max);
		return -1;
	}
	replay->slot_size = (opts->block_size + page - 1) / page * page;
	slots = opts->buffer_size / replay->slot_size;
	/* do not allocate memory that no batch can use */
	most = most_blocks(replay);
	if (slots > most)
		slots = most;
	if (slots > info.ops_max)
		slots = info.ops_max;
	replay->nr_slots = slots ? (unsigned int)slots : 1;
	return 0;
}

static int start_threads(struct replay *replay)
{
	unsigned int nr = replay->opts.nr_threads;
	uint32_t most = most_blocks(replay);

	replay->workers = calloc(nr, sizeof(*replay->workers));
	if (!replay->workers)
		return cli_fail("no memory for %u threads", nr);
	for (unsigned int i = 0; i < nr; i++) {
		replay->workers[i].replay = replay;
		if (!prepare_worker(&replay->workers[i], most))
			return cli_fail("no memory for the buffers of %u threads; choose a smaller --buffer or fewer --threads",
					nr);
	}
	/* wait_until_due() notices a stop before the last start */
	atomic_store(&replay->nr_running, nr);
	replay->start_ns = replay_now_ns();
	for (unsigned int i = 0; i < nr; i++) {
		int err = pthread_create(&replay->workers[i].thread, NULL,
					 worker_thread, &replay->workers[i]);

		if (err) {
			replay_stop(replay);
			for (unsigned int j = 0; j < i; j++)
				pthread_join(replay->workers[j].thread, NULL);
			return cli_fail("cannot start %u threads: %s", nr,
					strerror(err));
		}
	}
	replay->nr_started = nr;
	return 0;
}

struct replay *replay_start(const struct replay_opts *opts,
			    const struct trace *trace)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	pthread_condattr_t attr;

	if (!replay) {
		cli_fail("no memory");
		return NULL;
	}
	replay->opts = *opts;
	replay->trace = trace;
	pthread_mutex_init(&replay->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&replay->stop_cond, &attr);
	pthread_condattr_destroy(&attr);

	replay->done_fd = eventfd(0, EFD_CLOEXEC);
	if (replay->done_fd < 0) {
		cli_fail("eventfd: %s", strerror(errno));
		goto free_all;
	}
	if (open_pool(replay) || start_threads(replay))
		goto free_all;
	return replay;

free_all:
	free_replay(replay);
	return NULL;
}

uint64_t replay_start_ns(const struct replay *replay)
{
	return replay->start_ns;
}

int replay_fd(const struct replay *replay)
{
	return replay->done_fd;
}

void replay_tally(const struct replay *replay, struct replay_tally *tally)
{
	memset(tally, 0, sizeof(*tally));
	for (unsigned int i = 0; i < replay->nr_started; i++) {
		const struct replay_tally *from = replay->workers[i].tally;

		for (int c = 0; c < REPLAY_COUNTERS; c++)
			tally->counter[c] += replay_count(from, c);
		for (int t = 0; t < REPLAY_TIMES; t++)
			hist_merge(&tally->time[t], &from->time[t]);
	}
}

void replay_end(struct replay *replay, struct replay_tally *tally,
		struct replay_failure *failure)
{
	for (unsigned int i = 0; i < replay->nr_started; i++)
		pthread_join(replay->workers[i].thread, NULL);
	replay_tally(replay, tally);
	*failure = replay->failure;
	free_replay(replay);
}
