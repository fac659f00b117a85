// SPDX-License-Identifier: MIT
/* Threads of a bench, see bench.h. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/clock.h"
#include "bench/pattern.h"
#include "cli/cli.h"

#define NS_PER_S	1000000000ull

struct bench;

struct worker {
	struct bench *bench;
	pthread_t thread;
	struct bench_queue *queue;
	struct kvblk_mem *mem;		/* registration of @buffer, or NULL */
	/* arrays of depth entries; @buffer is page-aligned */
	struct kvblk_op *ops;
	struct kvblk_piece *pieces;
	char *keys;
	unsigned char *buffer;
	/* free slots, and the start time of the operation in each slot */
	unsigned int *idle;
	unsigned int nr_idle;
	uint64_t *start_ns;
	uint64_t random;
	/* operations that this thread has to start, and has started */
	uint64_t nr_wanted;
	uint64_t nr_started;
	struct bench_result result;
	uint64_t end_ns;
};

struct bench {
	/* set before the threads start, then read-only */
	struct bench_opts opts;
	struct kvblk *kv;
	size_t slot_size;
	struct bench_mem mem;
	uint32_t run;
	struct worker *workers;

	pthread_barrier_t ready;
	_Atomic uint64_t start_ns;
	_Atomic bool failed;
};

/* Print the limit of locked memory: other locked memory of the user is unknown. Returns CLI_ERROR. */
static int no_locked_memory(const struct bench *bench)
{
	size_t bytes = bench->opts.nr_threads * bench->opts.depth * bench->slot_size;
	char text[2][32];
	struct rlimit limit;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	return cli_fail("%s cannot be registered: a user may have %s of locked memory (RLIMIT_MEMLOCK); raise that (ulimit -l), run as root, or choose less --depth, --size or --threads",
			cli_format_bytes(bytes, text[0], sizeof(text[0])),
			cli_format_bytes(limit.rlim_cur, text[1], sizeof(text[1])));
}

/* Print the first failure only: other threads usually fail for the same reason. */
static void fail(struct bench *bench, const char *what, int err)
{
	if (atomic_exchange(&bench->failed, true))
		return;
	if (err == -ENOENT)
		cli_fail("%s: a block was dropped meanwhile; the pool has no room for so many (--blocks)",
			 what);
	else if ((err == -EPERM || err == -ENOSYS) &&
		 strcmp(bench->opts.engine->name, "ioctl") != 0)
		cli_fail("%s: io_uring is forbidden here, by sysctl kernel.io_uring_disabled or by the container's seccomp profile; use --engine ioctl",
			 what);
	else
		cli_fail("%s: %s", what, kvblk_result_text(err));
}

static void write_hex(char *to, unsigned int digits, uint64_t value)
{
	while (digits--) {
		to[digits] = "0123456789abcdef"[value & 15];
		value >>= 4;
	}
}

/* Write the key without printf(), which takes as long as a small get. */
static void name_block(const struct bench *bench, char *key, uint32_t run,
		       uint64_t number)
{
	static const char form[] = "bench/--------/--------/------------";

	static_assert(sizeof(form) == BENCH_KEY_LEN + 1, "a key's length");
	memcpy(key, form, sizeof(form) - 1);
	write_hex(key + 6, 8, bench->opts.size);
	write_hex(key + 15, 8, run);
	write_hex(key + 24, 12, number);
}

static char *key_at(const struct worker *w, unsigned int slot)
{
	return w->keys + (size_t)slot * BENCH_KEY_LEN;
}

static uint64_t draw(struct worker *w, uint64_t below)
{
	/* xorshift64 */
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random % below;
}

static int start_put(struct worker *w, unsigned int slot, uint32_t run,
		     uint64_t number)
{
	struct kvblk_op *op = &w->ops[slot];

	name_block(w->bench, key_at(w, slot), run, number);
	kvblk_prep_put(op, key_at(w, slot), BENCH_KEY_LEN, &w->pieces[slot], 1);
	op->cookie = slot;
	return w->bench->opts.engine->start(w->queue, op);
}

static int start_get(struct worker *w, unsigned int slot)
{
	struct kvblk_op *op = &w->ops[slot];

	name_block(w->bench, key_at(w, slot), 0,
		   draw(w, w->bench->opts.nr_blocks));
	kvblk_prep_get(op, key_at(w, slot), BENCH_KEY_LEN, &w->pieces[slot], 1);
	op->cookie = slot;
	return w->bench->opts.engine->start(w->queue, op);
}

static int start_one(struct worker *w, unsigned int slot)
{
	const struct bench *bench = w->bench;
	uint64_t number = w->nr_started++;

	if (bench->opts.op == BENCH_GET)
		return start_get(w, slot);
	number = number * bench->opts.nr_threads +
		 (uint64_t)(w - bench->workers);
	return start_put(w, slot, bench->run, number);
}

/*
 * Reap results; count those that ended since *@now, and advance *@now. Returns 0 or a
 * negative errno.
 */
static int reap(struct worker *w, uint64_t *now)
{
	const struct kvblk_result *results;
	int nr = w->bench->opts.engine->reap(w->queue, &results);

	*now = clock_ns();
	for (int i = 0; i < nr; i++) {
		const struct kvblk_result *result = &results[i];
		unsigned int slot = (unsigned int)result->cookie;

		w->idle[w->nr_idle++] = slot;
		if (result->res < 0)
			return result->res;
		if ((uint32_t)result->res != w->bench->opts.size)
			return -EPROTO;
		hist_add(&w->result.time, *now - w->start_ns[slot], 1);
		w->result.nr_ops++;
		if (result->flags & KVBLK_RES_DIRECT)
			w->result.nr_direct++;
		if (result->flags & KVBLK_RES_BOUNCED)
			w->result.nr_bounced++;
	}
	return nr < 0 ? nr : 0;
}

/*
 * Run puts and gets. The clock is read once a reap; operations started after a reap have its
 * time as start time.
 */
static int run_blocks(struct worker *w, uint64_t now, uint64_t deadline)
{
	unsigned int depth = w->bench->opts.depth;
	int err = 0;

	for (;;) {
		while (!err && w->nr_idle && now < deadline &&
		       w->nr_started < w->nr_wanted &&
		       !atomic_load_explicit(&w->bench->failed,
					     memory_order_relaxed)) {
			unsigned int slot = w->idle[--w->nr_idle];

			w->start_ns[slot] = now;
			err = start_one(w, slot);
		}
		if (err || w->nr_idle == depth)
			break;
		err = reap(w, &now);
	}
	w->end_ns = now;
	return err;
}

static int run_lookups(struct worker *w, uint64_t now, uint64_t deadline)
{
	const struct bench_opts *opts = &w->bench->opts;
	struct kvblk_lookup lookup = {
		.nr_keys = opts->depth,
		.key_stride = BENCH_KEY_LEN,
		.keys = (uintptr_t)w->keys,
	};
	uint64_t then, first = draw(w, opts->nr_blocks);
	int err;

	/* the keys exist, as those of a runtime usually do: the kernel has to look each up */
	for (unsigned int i = 0; i < opts->depth; i++)
		name_block(w->bench, key_at(w, i), 0,
			   (first + i) % opts->nr_blocks);
	while (now < deadline && w->nr_started < w->nr_wanted &&
	       !atomic_load_explicit(&w->bench->failed, memory_order_relaxed)) {
		then = now;
		err = kvblk_lookup_keys(w->bench->kv, &lookup, sizeof(lookup));
		now = clock_ns();
		if (!err && lookup.nr_present != opts->depth)
			err = -ENOENT;
		if (err)
			return err;
		hist_add(&w->result.time, now - then, 1);
		w->nr_started += opts->depth;
		w->result.nr_ops += opts->depth;
	}
	w->end_ns = now;
	return 0;
}

static void *worker_thread(void *arg)
{
	static const char *const names[] = {
		[BENCH_PUT] = "put", [BENCH_GET] = "get", [BENCH_EXISTS] = "exists",
	};
	struct worker *w = arg;
	struct bench *bench = w->bench;
	uint64_t start, deadline = UINT64_MAX;
	int err;

	pthread_barrier_wait(&bench->ready);
	if (w == bench->workers)
		atomic_store(&bench->start_ns, clock_ns());
	pthread_barrier_wait(&bench->ready);
	start = atomic_load(&bench->start_ns);
	if (bench->opts.seconds > 0)
		deadline = start + (uint64_t)(bench->opts.seconds * (double)NS_PER_S);
	if (bench->opts.op == BENCH_EXISTS)
		err = run_lookups(w, start, deadline);
	else
		err = run_blocks(w, start, deadline);
	if (err)
		fail(bench, names[bench->opts.op], err);
	return NULL;
}

/*
 * Put the missing blocks of gets and lookups, before the clock starts. Returns 0 or an
 * error.
 */
static int put_blocks(struct worker *w)
{
	struct bench *bench = w->bench;
	uint64_t number = 0, now;
	unsigned int slot;
	uint32_t size;
	char key[BENCH_KEY_LEN];
	int err = 0;

	while (!err && (number < bench->opts.nr_blocks ||
			w->nr_idle < bench->opts.depth)) {
		if (number == bench->opts.nr_blocks || !w->nr_idle) {
			err = reap(w, &now);
			continue;
		}
		name_block(bench, key, 0, number);
		err = kvblk_exists(bench->kv, key, BENCH_KEY_LEN, &size);
		if (err == -ENOENT) {
			slot = w->idle[--w->nr_idle];
			w->start_ns[slot] = 0;
			err = start_put(w, slot, 0, number);
		}
		number++;
	}
	memset(&w->result, 0, sizeof(w->result));
	return err;
}

static int prepare_worker(struct worker *w, unsigned int number)
{
	struct bench *bench = w->bench;
	const struct bench_opts *opts = &bench->opts;
	size_t bytes = opts->depth * bench->slot_size;
	int err;

	w->random = (number + 1) * 0x9e3779b97f4a7c15ull;
	w->nr_wanted = UINT64_MAX;
	if (opts->count)
		w->nr_wanted = opts->count / opts->nr_threads +
			       (number < opts->count % opts->nr_threads);
	w->ops = calloc(opts->depth, sizeof(*w->ops));
	w->pieces = calloc(opts->depth, sizeof(*w->pieces));
	w->keys = calloc(opts->depth, BENCH_KEY_LEN);
	w->idle = calloc(opts->depth, sizeof(*w->idle));
	w->start_ns = calloc(opts->depth, sizeof(*w->start_ns));
	w->buffer = bench_mem_map(&bench->mem, bytes);
	if (!w->buffer)
		return CLI_ERROR;
	if (opts->engine->registers) {
		err = kvblk_mem_register(bench->kv, w->buffer, bytes, NULL, &w->mem);
		if (err == -ENOMEM && !opts->gpu)
			return no_locked_memory(bench);
		if (err)
			return cli_fail("memory%s%s cannot be registered: %s",
					opts->gpu ? " of " : "", bench->mem.device,
					strerror(-err));
	}
	if (!w->ops || !w->pieces || !w->keys || !w->idle || !w->start_ns)
		goto no_memory;
	for (unsigned int i = 0; i < opts->depth; i++) {
		unsigned char *slot = w->buffer + i * bench->slot_size;

		pattern_fill(w->random + i, slot, opts->size);
		/* cannot fail: the slot is within the memory */
		kvblk_prep_piece(&w->pieces[i], w->mem,
				 w->mem ? i * bench->slot_size : (uintptr_t)slot, opts->size);
		w->idle[w->nr_idle++] = i;
	}
	if (!opts->engine->create(bench->kv, opts->depth, &w->queue))
		return CLI_OK;

no_memory:
	return cli_fail("no memory for %u threads of %u blocks each; choose less --depth or --threads",
			opts->nr_threads, opts->depth);
}

static void free_worker(struct worker *w)
{
	if (w->queue)
		w->bench->opts.engine->destroy(w->queue);
	kvblk_mem_unregister(w->mem);
	if (w->buffer)
		munmap(w->buffer, w->bench->opts.depth * w->bench->slot_size);
	free(w->start_ns);
	free(w->idle);
	free(w->keys);
	free(w->pieces);
	free(w->ops);
}

/* Open the pool and check the options against its limits. Returns an enum cli_exit. */
static int open_pool(struct bench *bench, struct bench_result *result)
{
	const struct bench_opts *opts = &bench->opts;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	struct kvblk_info info;
	unsigned int most;
	char limit[32];
	int err;

	bench->kv = cli_open_pool(opts->pool);
	err = kvblk_get_info(bench->kv, &info, sizeof(info));
	if (err)
		return cli_fail("pool %s: %s", opts->pool, strerror(-err));
	if (opts->size > info.value_max)
		return cli_fail("pool %s takes blocks of up to %s; choose a smaller --size",
				opts->pool,
				cli_format_bytes(info.value_max, limit,
						 sizeof(limit)));
	most = opts->op == BENCH_EXISTS ? info.lookup_max : info.ops_max;
	if (opts->depth > most)
		return cli_fail("pool %s takes up to %u operations or keys at once; choose a smaller --depth",
				opts->pool, most);
	if (opts->op != BENCH_PUT &&
	    opts->nr_blocks > info.capacity / opts->size)
		return cli_fail("pool %s has no room for %llu blocks; choose less --blocks",
				opts->pool, (unsigned long long)opts->nr_blocks);
	result->integrity = info.integrity != KVBLK_CHECK_HEADER;
	bench->slot_size = (opts->size + page - 1) / page * page;
	return CLI_OK;
}

static int run_threads(struct bench *bench)
{
	unsigned int nr = bench->opts.nr_threads;
	int err;

	pthread_barrier_init(&bench->ready, NULL, nr);
	for (unsigned int i = 0; i < nr; i++) {
		err = pthread_create(&bench->workers[i].thread, NULL,
				     worker_thread, &bench->workers[i]);
		if (err) {
			/*
			 * started threads wait at the barrier for the missing ones and
			 * cannot be stopped
			 */
			cli_fail("cannot start %u threads: %s", nr, strerror(err));
			exit(CLI_ERROR);
		}
	}
	for (unsigned int i = 0; i < nr; i++)
		pthread_join(bench->workers[i].thread, NULL);
	pthread_barrier_destroy(&bench->ready);
	return atomic_load(&bench->failed) ? CLI_ERROR : CLI_OK;
}

static void sum_up(const struct bench *bench, struct bench_result *result)
{
	uint64_t end = 0;

	for (unsigned int i = 0; i < bench->opts.nr_threads; i++) {
		const struct worker *w = &bench->workers[i];

		result->nr_ops += w->result.nr_ops;
		result->nr_direct += w->result.nr_direct;
		result->nr_bounced += w->result.nr_bounced;
		hist_merge(&result->time, &w->result.time);
		if (w->end_ns > end)
			end = w->end_ns;
	}
	result->ns = end - atomic_load(&bench->start_ns);
}

int bench_run(const struct bench_opts *opts, struct bench_result *result)
{
	struct bench bench = { .opts = *opts, .mem.fd = -1 };
	int ret, err;

	memset(result, 0, sizeof(*result));
	clock_init();
	/* a name that no earlier run had; 0 is the run of the blocks that stay */
	bench.run = (uint32_t)(clock_ns() / 1000 * 2654435761u) | 1;
	bench.workers = calloc(opts->nr_threads, sizeof(*bench.workers));
	if (!bench.workers)
		return cli_fail("no memory for %u threads", opts->nr_threads);
	ret = open_pool(&bench, result);
	if (ret == CLI_OK)
		ret = bench_mem_open(opts, (uint64_t)opts->nr_threads *
						   opts->depth * bench.slot_size,
				     &bench.mem);
	memcpy(result->mem_device, bench.mem.device, sizeof(bench.mem.device));
	for (unsigned int i = 0; ret == CLI_OK && i < opts->nr_threads; i++) {
		bench.workers[i].bench = &bench;
		ret = prepare_worker(&bench.workers[i], i);
	}
	if (ret == CLI_OK && opts->op != BENCH_PUT) {
		err = put_blocks(&bench.workers[0]);
		if (err)
			ret = cli_fail("put: %s", kvblk_result_text(err));
	}
	if (ret == CLI_OK)
		ret = run_threads(&bench);
	if (ret == CLI_OK)
		sum_up(&bench, result);
	if (ret == CLI_OK && !result->nr_ops)
		ret = cli_fail("no operation was done in time; choose more --seconds");
	for (unsigned int i = 0; i < opts->nr_threads; i++) {
		if (bench.workers[i].bench)
			free_worker(&bench.workers[i]);
	}
	free(bench.workers);
	bench_mem_close(&bench.mem);
	kvblk_close(bench.kv);
	return ret;
}
