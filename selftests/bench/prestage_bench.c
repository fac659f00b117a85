// SPDX-License-Identifier: MIT
/*
 * usage: prestage_bench POOL SIZE BLOCKS put|get|prefetch
 * A chain of blocks of a pool: put, got in one batch, or prefetched, while another thread polls
 * which blocks are in DRAM. Prints JSON: us until the last block; for a prefetch also until the
 * first block and the first eighth, and the number of blocks that arrived before an earlier one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kvblk.h>

#define BLOCKS_MAX	KVBLK_OPS_MAX
#define LOOK_US		50

static struct kvblk *kv;
static unsigned int nr;
static char keys[BLOCKS_MAX][16];
static uint16_t lens[BLOCKS_MAX];
static atomic_bool over;
static double start, first, eighth;
static unsigned int early;

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static _Noreturn void give_up(const char *what, int err)
{
	fprintf(stderr, "prestage_bench: %s: %s\n", what, kvblk_result_text(err));
	exit(1);
}

/* Look up which blocks are in DRAM. Returns the number of leading ones. */
static unsigned int look(uint8_t *tiers)
{
	struct kvblk_lookup lookup = {
		.nr_keys = nr,
		.keys = (uintptr_t)keys,
		.key_lens = (uintptr_t)lens,
		.tiers = (uintptr_t)tiers,
	};
	unsigned int leading = 0;
	int err = kvblk_lookup_keys(kv, &lookup, sizeof(lookup));

	if (err)
		give_up("lookup", err);
	while (leading < nr && tiers[leading] == KVBLK_TIER_MEMORY)
		leading++;
	return leading;
}

static void *watch(void *arg)
{
	uint8_t tiers[BLOCKS_MAX], seen[BLOCKS_MAX] = { 0 };
	unsigned int leading = 0;

	(void)arg;
	while (leading < nr && !atomic_load(&over)) {
		usleep(LOOK_US);
		leading = look(tiers);
		/* a lookup takes time, so count only blocks found by an earlier lookup, too */
		for (unsigned int i = leading; i < nr; i++) {
			if (tiers[i] == KVBLK_TIER_MEMORY)
				early += ++seen[i] == 2;
		}
		if (leading && first == 0)
			first = now_us() - start;
		if (leading >= (nr + 7) / 8 && eighth == 0)
			eighth = now_us() - start;
	}
	return NULL;
}

static void prefetch(void)
{
	struct kvblk_prestage_sum sum = { .size = sizeof(sum) };
	uint8_t tiers[BLOCKS_MAX];
	pthread_t watcher;
	double all;
	int err;

	if (look(tiers))
		give_up("they are in memory", -EEXIST);
	if (pthread_create(&watcher, NULL, watch, NULL))
		give_up("thread", -EAGAIN);
	start = now_us();
	err = kvblk_prestage(kv, keys, lens, nr, NULL, NULL, &sum);
	all = now_us() - start;
	atomic_store(&over, true);
	pthread_join(watcher, NULL);
	if (!err && sum.nr_here < nr)
		err = -ENOSPC;
	if (err)
		give_up("prefetch", err);
	/* the prefetch may end between two lookups */
	first = first > 0 && first < all ? first : all;
	eighth = eighth > 0 && eighth < all ? eighth : all;
	printf("{\"us\": %.0f, \"first_us\": %.0f, \"eighth_us\": %.0f, \"early\": %u}\n", all, first, eighth, early);
}

static void transfer(bool put, size_t size)
{
	static struct kvblk_result results[BLOCKS_MAX];
	static struct kvblk_piece pieces[BLOCKS_MAX];
	static struct kvblk_op ops[BLOCKS_MAX];
	char *memory = aligned_alloc(4096, nr * size);
	int err;

	if (!memory)
		give_up("memory", -ENOMEM);
	memset(memory, 1, nr * size);
	for (unsigned int i = 0; i < nr; i++) {
		kvblk_prep_piece(&pieces[i], NULL, (uintptr_t)(memory + i * size), size);
		kvblk_prep_put(&ops[i], keys[i], lens[i], &pieces[i], 1);
		ops[i].opcode = put ? KVBLK_OP_PUT : KVBLK_OP_GET;
	}
	start = now_us();
	err = kvblk_submit(kv, ops, nr, results, 0);
	for (unsigned int i = 0; i < nr && !err; i++)
		err = results[i].res < 0 ? results[i].res : 0;
	if (err)
		give_up(put ? "put" : "get", err);
	printf("{\"us\": %.0f}\n", now_us() - start);
	free(memory);
}

int main(int argc, char **argv)
{
	size_t size;
	int err;

	if (argc != 5 || (nr = (unsigned int)atoi(argv[3])) < 1 || nr > BLOCKS_MAX) {
		fprintf(stderr, "usage: prestage_bench POOL SIZE BLOCKS put|get|prefetch; up to %d BLOCKS\n", BLOCKS_MAX);
		return 2;
	}
	size = strtoul(argv[2], NULL, 0);
	err = kvblk_open(argv[1], 0, &kv);
	if (err)
		give_up(argv[1], err);
	for (unsigned int i = 0; i < nr; i++)
		lens[i] = (uint16_t)snprintf(keys[i], sizeof(keys[i]), "chain-%09u", i) + 1;
	if (!strcmp(argv[4], "prefetch"))
		prefetch();
	else
		transfer(!strcmp(argv[4], "put"), size);
	kvblk_close(kv);
	return 0;
}
