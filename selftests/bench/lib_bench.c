// SPDX-License-Identifier: MIT
/*
 * usage: lib_bench POOL CASE SECONDS
 * The cost of a case of python_bench with libkvblk alone; prints batches per second.
 *
 * The rule: the same calls, on the same blocks, as python_bench makes; it has put them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvblk.h>

#define NR_KEYS		1000

static struct kvblk *kv;
static char *memory;
static char keys[NR_KEYS][36];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static _Noreturn void give_up(const char *what, int err)
{
	fprintf(stderr, "lib_bench: %s: %s\n", what, kvblk_result_text(err));
	exit(1);
}

/* Run @nr operations on blocks of @len; puts use new keys, which are deleted afterwards. */
static void batch(unsigned int opcode, unsigned int nr, size_t len)
{
	struct kvblk_result results[64];
	struct kvblk_piece pieces[64];
	struct kvblk_op ops[64];
	int err;

	for (unsigned int i = 0; i < nr; i++) {
		kvblk_prep_put(&ops[i], keys[i], sizeof(keys[i]), &pieces[i], 1);
		ops[i].opcode = (uint8_t)opcode;
		if (opcode == KVBLK_OP_DELETE)
			kvblk_prep_delete(&ops[i], keys[i], sizeof(keys[i]));
		else
			kvblk_prep_piece(&pieces[i], NULL, (uintptr_t)(memory + i * len), len);
	}
	err = kvblk_submit(kv, ops, nr, results, 0);
	for (unsigned int i = 0; i < nr && !err; i++)
		err = results[i].res < 0 ? results[i].res : 0;
	if (err)
		give_up("batch", err);
}

static void lookup(void)
{
	uint8_t bitmap[(NR_KEYS + 7) / 8];
	struct kvblk_lookup lookup = {
		.nr_keys = NR_KEYS,
		.key_stride = sizeof(keys[0]),
		.keys = (uintptr_t)keys,
		.bitmap = (uintptr_t)bitmap,
	};
	int err = kvblk_lookup_keys(kv, &lookup, sizeof(lookup));

	if (err)
		give_up("lookup", err);
}

int main(int argc, char **argv)
{
	double start, spent = 0, limit;
	unsigned long nr = 0;
	size_t len;
	int err;

	if (argc != 4) {
		fputs("usage: lib_bench POOL CASE SECONDS\n", stderr);
		return 2;
	}
	err = kvblk_open(argv[1], 0, &kv);
	if (err)
		give_up(argv[1], err);
	limit = atof(argv[3]);
	len = strstr(argv[2], "2M") ? 2 << 20 : 64 << 10;
	memory = aligned_alloc(4096, 32 * (64 << 10));
	memset(memory, 1, 32 * (64 << 10));
	for (int i = 0; i < NR_KEYS; i++)
		snprintf(keys[i], sizeof(keys[i]), "%.4s-%030d", argv[2], i);
	while (spent < limit) {
		start = now();
		if (!strcmp(argv[2], "get-2M"))
			batch(KVBLK_OP_GET, 1, len);
		else if (!strcmp(argv[2], "get-64K"))
			batch(KVBLK_OP_GET, 32, len);
		else if (!strcmp(argv[2], "put-2M"))
			batch(KVBLK_OP_PUT, 1, len);
		else if (!strcmp(argv[2], "put-64K"))
			batch(KVBLK_OP_PUT, 32, len);
		else
			lookup();
		spent += now() - start;
		nr++;
		if (!strncmp(argv[2], "put", 3))
			batch(KVBLK_OP_DELETE, strstr(argv[2], "2M") ? 1 : 32, 0);
	}
	printf("%.1f\n", (double)nr / spent);
	kvblk_close(kv);
	return 0;
}
