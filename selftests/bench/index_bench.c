// SPDX-License-Identifier: GPL-2.0
/*
 * The index at full size: its memory, how often it evicts a live entry, and its speed relative to
 * a bare loop that only touches the same cache lines.
 *
 * The rule: both sides of a comparison run over the same ids in the same order, prefetched
 * equally far ahead, alternating A B, B A. A pair gives a ratio, and the median counts.
 * Preparation (ids, deletions) is not timed.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <linux/kernel.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/prefetch.h>

#include "format/hash.h"
#include "index/index.h"

#define BATCH_MAX	256
#define THREADS_MAX	64
#define PAIRS_MAX	100000
#define ENTRIES_MAX	(1ULL << 30)
#define LINE		64
#define TOGETHER	8

/* Parameters of the module's lookups: see LOOKUP_STEP in chardev/ioctl.c. */
#define KEYS		1000
#define KEY_LEN		36
#define KEY_STEP	64

/* 256 KiB blocks in segments of 256 MiB. */
#define SEG_BLOCKS	1024
#define BLOCK_UNITS	64

static struct {
	u64 entries;
	double load;
	u64 batch;
	double seconds;
	u64 threads;
	bool json;
} opt = { 100000000, 0.85, 32, 5, 2, false };

/**
 * struct bench - an index and its keys
 * @idx: the index
 * @seg_gen: generations of the segments, all 0
 * @nr_segs: number of segments
 * @keys: keys in @idx in any order, and some evicted ones, which are not known
 * @nr_keys: number of @keys
 * @live: number of entries in @idx
 * @next: next new key
 * @seed: of random numbers
 * @ids: ids for the next measurement
 * @new_keys: keys of @ids
 * @nr_ids: number of @ids
 * @evicted: total of inserts that evicted
 */
struct bench {
	struct kvblk_index idx;
	u16 *seg_gen;
	u32 nr_segs;
	u32 *keys;
	u64 nr_keys;
	u64 live;
	u64 next;
	u64 seed;
	struct kvblk_id *ids;
	u32 *new_keys;
	u64 nr_ids;
	u64 evicted;
};

static void die(const char *what)
{
	fprintf(stderr, "index_bench: %s\n", what);
	exit(1);
}

static void *allocate(u64 nr, size_t each)
{
	void *p = calloc(nr, each);

	if (!p)
		die("not enough memory: ask for fewer --entries");
	return p;
}

static double now(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static u64 mix(u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static u64 below(u64 *seed, u64 limit)
{
	return mul_u64_u64_shr(mix(++*seed), limit, 64);
}

static struct kvblk_id id_of(u64 key)
{
	return (struct kvblk_id) {
		.hi = mix(2 * key),
		.lo = mix(2 * key + 1),
	};
}

static struct kvblk_slot slot_of(const struct bench *b, u64 key)
{
	return (struct kvblk_slot) {
		.seg = key / SEG_BLOCKS % b->nr_segs,
		.off = key % SEG_BLOCKS * BLOCK_UNITS,
		.len = BLOCK_UNITS * 4096 - 4096,
		.state = KVBLK_SLOT_LIVE,
	};
}

/*
 * Prefetch ids --batch ahead of id @i: several at once, so that their page walks overlap, but not
 * too many, because CPUs drop prefetches of long bursts.
 */
static void ahead_prefetch(const struct bench *b, u64 i)
{
	u64 at = i + opt.batch, end = min(at + TOGETHER, b->nr_ids);

	if (i % TOGETHER)
		return;
	for (; at < end; at++)
		kvblk_index_prefetch(&b->idx, b->ids[at]);
}

/* Look up the ids, several at once as LOOKUP does. Returns the number of hits. */
static u64 index_lookup(struct bench *b)
{
	struct kvblk_slot slots[TOGETHER];
	u64 found = 0, i;

	for (i = 0; i < b->nr_ids; i += TOGETHER) {
		ahead_prefetch(b, i);
		found += hweight64(kvblk_index_find_many(&b->idx, b->ids + i,
							 min(TOGETHER, b->nr_ids - i),
							 slots));
	}
	return found;
}

/*
 * Insert the ids, prefetched in two steps as a restart does. Returns the number of evicted live
 * entries.
 */
static u64 index_insert(struct bench *b)
{
	struct kvblk_slot slot, old;
	u64 evicted = 0, i;
	int ret;

	for (i = 0; i < b->nr_ids; i++) {
		ahead_prefetch(b, i);
		if (i + opt.batch / 2 < b->nr_ids)
			kvblk_index_prefetch_room(&b->idx,
						  b->ids[i + opt.batch / 2]);
		slot = slot_of(b, b->new_keys[i]);
		ret = kvblk_index_insert(&b->idx, b->ids[i], &slot, &old, true);
		if (ret < 0)
			die("an insert failed");
		evicted += ret;
	}
	return evicted;
}

/* Return the two lines of @id, computed as in index/index.c. */
static void lines_of(const struct bench *b, struct kvblk_id id, u8 *line[2])
{
	u64 one = mul_u64_u64_shr(id.hi, b->idx.nr_buckets, 64);
	u64 two = one ^ ((id.lo >> 8 | 1) & (b->idx.stripe_buckets - 1));

	line[0] = (u8 *)b->idx.buckets + one * LINE;
	line[1] = (u8 *)b->idx.buckets + two * LINE;
}

/* Baseline: read a word of each line. */
static u64 bare_read(struct bench *b)
{
	u64 sum = 0, i;
	u8 *line[2];

	for (i = 0; i < b->nr_ids; i++) {
		if (i + opt.batch < b->nr_ids) {
			lines_of(b, b->ids[i + opt.batch], line);
			prefetch(line[0]);
			prefetch(line[1]);
		}
		lines_of(b, b->ids[i], line);
		sum += READ_ONCE(*(u64 *)line[0]) + READ_ONCE(*(u64 *)line[1]);
	}
	return sum;
}

/* Baseline: write a byte of each line, but the same, because all bytes are in use. */
static u64 bare_write(struct bench *b)
{
	u8 *line[2];
	u64 i;

	for (i = 0; i < b->nr_ids; i++) {
		if (i + opt.batch < b->nr_ids) {
			lines_of(b, b->ids[i + opt.batch], line);
			prefetchw(line[0]);
			prefetchw(line[1]);
		}
		lines_of(b, b->ids[i], line);
		WRITE_ONCE(*line[0], READ_ONCE(*line[0]));
		WRITE_ONCE(*line[1], READ_ONCE(*line[1]));
	}
	return 0;
}

/* Set the ids to @nr new ones. */
static void ids_new(struct bench *b, u64 nr)
{
	for (b->nr_ids = 0; b->nr_ids < nr; b->nr_ids++) {
		b->new_keys[b->nr_ids] = b->next;
		b->ids[b->nr_ids] = id_of(b->next++);
	}
}

/* Set the ids to @nr random ones that are present. */
static void ids_present(struct bench *b, u64 nr)
{
	for (b->nr_ids = 0; b->nr_ids < nr; b->nr_ids++)
		b->ids[b->nr_ids] = id_of(b->keys[below(&b->seed, b->nr_keys)]);
}

/* Record that the ids were inserted, with @evicted evictions. */
static void ids_inserted(struct bench *b, u64 evicted)
{
	memcpy(b->keys + b->nr_keys, b->new_keys, b->nr_ids * sizeof(*b->keys));
	b->nr_keys += b->nr_ids;
	b->live += b->nr_ids - evicted;
	b->evicted += evicted;
}

/* Remove random entries until @live are left. */
static void leave(struct bench *b, u64 live)
{
	u32 going[BATCH_MAX];
	struct kvblk_slot slot;
	u64 at, i, nr;

	while (b->live > live) {
		nr = min3(opt.batch, b->live - live, b->nr_keys);
		for (i = 0; i < nr; i++) {
			at = below(&b->seed, b->nr_keys);
			going[i] = b->keys[at];
			b->keys[at] = b->keys[--b->nr_keys];
			kvblk_index_prefetch(&b->idx, id_of(going[i]));
		}
		for (i = 0; i < nr; i++) {
			slot = slot_of(b, going[i]);
			b->live -= kvblk_index_replace(&b->idx, id_of(going[i]),
						       &slot, NULL);
		}
	}
}

/**
 * struct result - a line of the results
 * @op: name of the measurement
 * @threads: number of readers
 * @ours: the index's figure
 * @theirs: the figure to compare with, or 0
 * @ratio: median
 * @low: minimum
 * @high: maximum
 * @unit: of @ours and @theirs
 */
struct result {
	const char *op;
	u64 threads;
	double ours;
	double theirs;
	double ratio;
	double low;
	double high;
	const char *unit;
};

static void tell(const struct result *r)
{
	if (!opt.json) {
		printf("%-22s %2llu %14.6g", r->op, r->threads, r->ours);
		if (r->theirs != 0)
			printf(" %14.6g %6.3f (%.3f to %.3f)", r->theirs,
			       r->ratio, r->low, r->high);
		printf(" %s\n", r->unit);
	} else {
		printf("{\"bench\": \"index\", \"op\": \"%s\", \"size\": %llu, \"depth\": %llu, \"threads\": %llu, \"transport\": \"memory\", \"load\": %.2f, \"ours\": %.8g",
		       r->op, opt.entries, opt.batch, r->threads, opt.load,
		       r->ours);
		if (r->theirs != 0)
			printf(", \"theirs\": %.8g, \"ratio\": %.3f, \"low\": %.3f, \"high\": %.3f",
			       r->theirs, r->ratio, r->low, r->high);
		printf(", \"unit\": \"%s\"}\n", r->unit);
	}
	fflush(stdout);
}

static int compare(const void *a, const void *b)
{
	double l = *(const double *)a, r = *(const double *)b;

	return (l > r) - (l < r);
}

/* Return the median of @nr values, which it sorts. */
static double median(double *v, u64 nr)
{
	qsort(v, nr, sizeof(*v), compare);
	return v[nr / 2];
}

/**
 * struct duel - a comparison, pair by pair
 * @ours: operations per second of the index
 * @theirs: operations per second of the bare loop
 * @ratio: ratio of each pair
 * @nr: number of pairs
 * @took: total CPU time of each side
 * @done: operations of each side
 */
struct duel {
	double ours[PAIRS_MAX];
	double theirs[PAIRS_MAX];
	double ratio[PAIRS_MAX];
	u64 nr;
	double took[2];
	u64 done;
};

/*
 * Run both sides over the ids, timed by CPU time, because other processes may run meanwhile.
 * Returns the result of the index's side.
 */
static u64 duel_pair(struct duel *d, struct bench *b, u64 (*ours)(struct bench *),
		     u64 (*theirs)(struct bench *))
{
	static volatile u64 sink;
	double took[2], start;
	u64 result = 0, i, first = d->nr & 1;

	for (i = 0; i < 2; i++) {
		start = now(CLOCK_THREAD_CPUTIME_ID);
		if (i == first)
			result = ours(b);
		else
			sink = theirs(b);
		took[i] = now(CLOCK_THREAD_CPUTIME_ID) - start;
	}
	(void)sink;
	d->took[0] += took[first];
	d->took[1] += took[!first];
	d->done += b->nr_ids;
	if (d->nr < PAIRS_MAX) {
		d->ours[d->nr] = (double)b->nr_ids / took[first];
		d->theirs[d->nr] = (double)b->nr_ids / took[!first];
		d->ratio[d->nr] = took[!first] / took[first];
		d->nr++;
	}
	return result;
}

/* Print a comparison. @whole: the pairs are parts of one run, not repetitions. */
static void duel_tell(struct duel *d, const char *op, bool whole)
{
	struct result r = { .op = op, .threads = 1, .unit = "keys/s" };

	r.ours = median(d->ours, d->nr);
	r.theirs = median(d->theirs, d->nr);
	r.ratio = median(d->ratio, d->nr);
	if (whole) {
		r.ours = (double)d->done / d->took[0];
		r.theirs = (double)d->done / d->took[1];
		r.ratio = d->took[1] / d->took[0];
	}
	r.low = d->ratio[0];
	r.high = d->ratio[d->nr - 1];
	tell(&r);
	d->nr = 0;
	d->took[0] = 0;
	d->took[1] = 0;
	d->done = 0;
}

static void fill(struct bench *b, struct duel *d, u64 step)
{
	while (b->live < opt.entries) {
		ids_new(b, min(step, opt.entries - b->live));
		ids_inserted(b, duel_pair(d, b, index_insert, bare_write));
	}
	duel_tell(d, "insert_fill", true);
}

/* Replace every entry once. */
static void churn(struct bench *b, u64 step)
{
	struct result r = {
		.op = "evictions", .threads = 1, .unit = "evictions/insert",
	};
	u64 before = b->evicted, done;

	for (done = 0; done < opt.entries; done += b->nr_ids) {
		leave(b, opt.entries - step);
		ids_new(b, step);
		ids_inserted(b, index_insert(b));
	}
	r.ours = (double)(b->evicted - before) / (double)done;
	tell(&r);
}

static void inserts(struct bench *b, struct duel *d, u64 step)
{
	double took = 0, start;

	while (took < opt.seconds) {
		leave(b, opt.entries - step);
		ids_new(b, step);
		start = now(CLOCK_MONOTONIC);
		ids_inserted(b, duel_pair(d, b, index_insert, bare_write));
		took += now(CLOCK_MONOTONIC) - start;
	}
	duel_tell(d, "insert", false);
}

static void lookups(struct bench *b, struct duel *d, u64 step, bool present)
{
	double took = 0, start;
	u64 found;

	while (took < opt.seconds) {
		if (present)
			ids_present(b, step);
		else
			ids_new(b, step);
		start = now(CLOCK_MONOTONIC);
		found = duel_pair(d, b, index_lookup, bare_read);
		took += now(CLOCK_MONOTONIC) - start;
		/* some of @keys were evicted */
		if (present ? found < step / 10 * 9 : found)
			die("a lookup lied");
	}
	duel_tell(d, present ? "lookup" : "lookup_miss", false);
}

/* Look up keys as the LOOKUP ioctl does: hash, prefetch and find them in steps. */
static u64 keys_lookup(struct bench *b, const siphash_key_t *secret,
		       const u8 *keys)
{
	u64 found = 0, first, nr, i, j, end;
	struct kvblk_slot slots[KEY_STEP];
	struct kvblk_id ids[KEY_STEP];

	for (first = 0; first < KEYS; first += nr) {
		nr = min(KEY_STEP, KEYS - first);
		for (i = 0; i < nr; i = end) {
			end = min(i + TOGETHER, nr);
			for (j = i; j < end; j++)
				ids[j] = kvblk_tenant_hash(secret, keys +
							   (first + j) * KEY_LEN,
							   KEY_LEN);
			for (j = i; b && j < end; j++)
				kvblk_index_prefetch(&b->idx, ids[j]);
		}
		if (b)
			found += hweight64(kvblk_index_find_many(&b->idx, ids,
								 nr, slots));
		else
			found += ids[nr - 1].lo & 1;
	}
	return found;
}

/* Measure the microseconds of 1,000 keys, relative to hashing alone. */
static void hashed_lookups(struct bench *b, struct duel *d)
{
	struct result r = { .op = "lookup_1000_keys", .threads = 1, .unit = "us" };
	siphash_key_t secret = { .key = { 1, 2 } };
	static u8 keys[KEYS * KEY_LEN];
	double until = now(CLOCK_MONOTONIC) + opt.seconds, t[3];
	u64 i;

	while (now(CLOCK_MONOTONIC) < until && d->nr < PAIRS_MAX) {
		for (i = 0; i < sizeof(keys); i++)
			keys[i] = below(&b->seed, 256);
		t[0] = now(CLOCK_THREAD_CPUTIME_ID);
		keys_lookup(b, &secret, keys);
		t[1] = now(CLOCK_THREAD_CPUTIME_ID);
		keys_lookup(NULL, &secret, keys);
		t[2] = now(CLOCK_THREAD_CPUTIME_ID);
		d->ours[d->nr] = (t[1] - t[0]) * 1e6;
		d->theirs[d->nr] = (t[2] - t[1]) * 1e6;
		d->ratio[d->nr] = (t[1] - t[0]) / (t[2] - t[1]);
		d->nr++;
	}
	r.ours = median(d->ours, d->nr);
	r.theirs = median(d->theirs, d->nr);
	r.ratio = median(d->ratio, d->nr);
	r.low = d->ratio[0];
	r.high = d->ratio[d->nr - 1];
	tell(&r);
	d->nr = 0;
}

/**
 * struct reader - a thread that looks up
 * @thread: the thread
 * @bench: copy with its own ids; buckets and stripes are shared
 * @stop: set at the end
 * @done: number of lookups
 * @cpu: CPU seconds of the lookups
 * @wall: wall-clock seconds
 */
struct reader {
	pthread_t thread;
	struct bench bench;
	bool *stop;
	u64 done;
	double cpu;
	double wall;
};

static void *reader_run(void *arg)
{
	struct reader *r = arg;
	double start = now(CLOCK_MONOTONIC);

	while (!READ_ONCE(*r->stop)) {
		index_lookup(&r->bench);
		r->done += r->bench.nr_ids;
	}
	r->cpu = now(CLOCK_THREAD_CPUTIME_ID);
	r->wall = now(CLOCK_MONOTONIC) - start;
	return NULL;
}

/**
 * struct writer - a thread that removes and inserts
 * @bench: the original, changed by no other thread meanwhile
 * @stop: set at the end
 * @step: entries at a time
 */
struct writer {
	struct bench *bench;
	bool *stop;
	u64 step;
};

static void *writer_run(void *arg)
{
	struct writer *w = arg;

	while (!READ_ONCE(*w->stop)) {
		leave(w->bench, opt.entries - w->step);
		ids_new(w->bench, w->step);
		ids_inserted(w->bench, index_insert(w->bench));
	}
	return NULL;
}

/* Measure the lookups of a reader per CPU second, with @nr readers; @alone: the figure with one. */
static double readers(struct bench *b, u64 nr, bool write, u64 step, double alone)
{
	struct result r = {
		.op = write ? "readers_and_writer" : "readers",
		.threads = nr, .unit = "keys/cpu-s",
	};
	struct reader *all = allocate(nr, sizeof(*all));
	bool stop = false;
	struct writer writer = { .bench = b, .stop = &stop, .step = step };
	struct timespec rest = {
		.tv_sec = (time_t)opt.seconds,
		.tv_nsec = (long)((opt.seconds - floor(opt.seconds)) * 1e9),
	};
	u64 done = 0, i;
	double cpu = 0;
	pthread_t other;

	for (i = 0; i < nr; i++) {
		all[i].stop = &stop;
		ids_present(b, step);
		all[i].bench = *b;
		all[i].bench.ids = allocate(step, sizeof(*b->ids));
		memcpy(all[i].bench.ids, b->ids, step * sizeof(*b->ids));
	}
	if (write && pthread_create(&other, NULL, writer_run, &writer))
		die("no thread");
	for (i = 0; i < nr; i++)
		if (pthread_create(&all[i].thread, NULL, reader_run, &all[i]))
			die("no thread");
	nanosleep(&rest, NULL);
	WRITE_ONCE(stop, true);
	for (i = 0; i < nr; i++) {
		pthread_join(all[i].thread, NULL);
		free(all[i].bench.ids);
		done += all[i].done;
		cpu += all[i].cpu;
	}
	if (write)
		pthread_join(other, NULL);
	free(all);
	r.ours = (double)done / cpu;
	r.theirs = alone;
	r.ratio = alone != 0 ? r.ours / alone : 0;
	r.low = r.ratio;
	r.high = r.ratio;
	tell(&r);
	return r.ours;
}

static void memory(struct bench *b, const char *op)
{
	struct result r = { .op = op, .unit = "bytes/entry" };

	r.ours = (double)kvblk_index_bytes(&b->idx) / (double)opt.entries;
	tell(&r);
}

static void bench_init(struct bench *b, u64 step)
{
	/* evicted keys stay in the array for a while */
	u64 room = opt.entries + opt.entries / 4 + 2 * step;

	*b = (struct bench) {
		.nr_segs = opt.entries / SEG_BLOCKS + 1,
		.ids = allocate(step, sizeof(*b->ids)),
		.new_keys = allocate(step, sizeof(*b->new_keys)),
		.keys = allocate(room, sizeof(*b->keys)),
	};
	b->seg_gen = allocate(b->nr_segs, sizeof(*b->seg_gen));
	if (kvblk_index_init(&b->idx, (u64)ceil((double)opt.entries / opt.load),
			     b->seg_gen, b->nr_segs))
		die("not enough memory for the index: ask for fewer --entries");
}

static void bench_run(void)
{
	/* far more than a cache holds, far less than the entries */
	u64 look = min(opt.entries, 4000000), nr;
	u64 step = clamp(opt.entries / 10, 1000, 1000000);
	struct duel *d = allocate(1, sizeof(*d));
	struct bench b;
	double alone;

	bench_init(&b, look);
	memory(&b, "bytes");
	fill(&b, d, step);
	lookups(&b, d, look, true);
	lookups(&b, d, look, false);
	churn(&b, step);
	inserts(&b, d, step);
	lookups(&b, d, look, true);
	hashed_lookups(&b, d);
	alone = readers(&b, 1, false, step, 0);
	for (nr = 2; nr <= opt.threads; nr *= 2)
		readers(&b, nr, false, step, alone);
	for (nr = 1; nr <= opt.threads; nr *= 2)
		readers(&b, nr, true, step, alone);
	if (kvblk_index_keep_tags(&b.idx))
		die("not enough memory for the tags");
	memory(&b, "bytes_with_tags");

	kvblk_index_destroy(&b.idx);
	free(b.seg_gen);
	free(b.keys);
	free(b.new_keys);
	free(b.ids);
	free(d);
}

static const char usage[] =
	"usage: index_bench [OPTION...]\n"
	"  --entries N     entries in the index, 10000 to 2^30 (100000000; takes 35 bytes and more for each)\n"
	"  --load L        how full it is, 0.1 to 0.95 (0.85)\n"
	"  --batch N       how many ids ahead a prefetch is, 1 to 256 (32)\n"
	"  --seconds S     time for each comparison, 0.1 to 3600 (5)\n"
	"  --threads N     most readers at a time, 1 to 64 (2)\n"
	"  -o, --output F  text or json\n";

static void wrong(const char *name, const char *value, const char *what)
{
	fprintf(stderr, "index_bench: --%s %s: %s\n", name, value, what);
	exit(2);
}

static double number(const char *name, const char *value, double low, double high)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(value, &end);
	if (errno || end == value || *end || !(v >= low && v <= high)) {
		char what[64];

		snprintf(what, sizeof(what), "must be a number from %g to %.10g",
			 low, high);
		wrong(name, value, what);
	}
	return v;
}

static u64 integer(const char *name, const char *value, u64 low, u64 high)
{
	double v = number(name, value, (double)low, (double)high);

	if (v != floor(v))
		wrong(name, value, "must be a whole number");
	return (u64)v;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "entries", required_argument, NULL, 'e' },
		{ "load", required_argument, NULL, 'l' },
		{ "batch", required_argument, NULL, 'b' },
		{ "seconds", required_argument, NULL, 's' },
		{ "threads", required_argument, NULL, 't' },
		{ "output", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
		switch (c) {
		case 'e':
			opt.entries = integer("entries", optarg, 10000, ENTRIES_MAX);
			break;
		case 'l':
			opt.load = number("load", optarg, 0.1, 0.95);
			break;
		case 'b':
			opt.batch = integer("batch", optarg, 1, BATCH_MAX);
			break;
		case 's':
			opt.seconds = number("seconds", optarg, 0.1, 3600);
			break;
		case 't':
			opt.threads = integer("threads", optarg, 1, THREADS_MAX);
			break;
		case 'o':
			if (strcmp(optarg, "json") && strcmp(optarg, "text"))
				wrong("output", optarg, "must be text or json");
			opt.json = optarg[0] == 'j';
			break;
		case 'h':
			fputs(usage, stdout);
			return 0;
		default:
			fputs(usage, stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "index_bench: %s: not an option\n", argv[optind]);
		fputs(usage, stderr);
		return 2;
	}
	bench_run();
	return 0;
}
