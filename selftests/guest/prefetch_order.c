// SPDX-License-Identifier: GPL-2.0
/*
 * Prefetches delayed by a get: a batch of a get, eight prefetches, and a shorter prefetch of
 * higher priority.
 *
 * usage: guest_prefetch_order NODE put|run
 *
 * put stores the blocks: the last with SHORT bytes, the rest with LONG. run submits the batch.
 * The exit code is 1 if a block was missing.
 */
#include <stdarg.h>

#include "kv_io.h"

#define NR	10
#define LONG	100000
#define SHORT	50000

int main(int argc, char **argv)
{
	struct kvblk_result results[NR];
	struct kvblk_op ops[NR];
	struct kv_key keys[NR];
	struct kvblk_piece piece;
	void *buf = kv_alloc(LONG);
	bool put;
	int fd;

	if (argc != 3 || (strcmp(argv[2], "put") && strcmp(argv[2], "run"))) {
		fprintf(stderr, "usage: guest_prefetch_order NODE put|run\n");
		return 2;
	}
	put = !strcmp(argv[2], "put");
	fd = kv_open(argv[1]);
	for (int i = 0; i < NR; i++) {
		keys[i] = kv_key(90000 + i);
		if (put && kv_put(fd, 90000 + i, buf, i < NR - 1 ? LONG : SHORT).res < 0)
			return 1;
		ops[i] = kv_op(KVBLK_OP_PREFETCH, &keys[i], NULL, 0);
		ops[i].pieces = 0;
	}
	if (put)
		return 0;
	piece = kv_piece(buf, LONG);
	ops[0] = kv_op(KVBLK_OP_GET, &keys[0], &piece, 1);
	ops[NR - 1].priority = KVBLK_PRIORITY_MAX;
	if (kv_submit(fd, ops, results, NR, 0))
		return 1;
	for (int i = 0; i < NR; i++)
		if (results[i].res <= 0)
			return 1;
	return 0;
}
