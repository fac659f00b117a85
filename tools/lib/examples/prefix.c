// SPDX-License-Identifier: MIT
/*
 * Store a prompt of NR blocks as one chain, then look the chain up with a lease, as a
 * runtime would.
 * usage: prefix POOL
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvblk.h>

#define NR	16u
#define LEN	65536u
#define KEY	32u

int main(int argc, char **argv)
{
	static char keys[NR][KEY], blocks[NR][LEN];
	static struct kvblk_piece pieces[NR];
	static struct kvblk_op ops[NR];
	static struct kvblk_result results[NR];
	unsigned int stored = 0;
	struct kvblk_prefix prefix;
	struct kvblk *kv;
	int err;

	if (argc != 2)
		return 2;
	err = kvblk_open(argv[1], 0, &kv);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	for (unsigned int i = 0; i < NR; i++) {
		snprintf(keys[i], KEY, "example/prefix/%u", i);
		memset(blocks[i], (int)i, LEN);
		kvblk_prep_piece(&pieces[i], NULL, (uintptr_t)blocks[i], LEN);
		kvblk_prep_put(&ops[i], keys[i], KEY, &pieces[i], 1);
	}
	err = kvblk_submit(kv, ops, NR, results, KVBLK_SUBMIT_CHAIN);
	for (unsigned int i = 0; i < NR && !err; i++)
		stored += results[i].res == (int)LEN || results[i].res == -EEXIST;
	KVBLK_INIT(&prefix);
	if (!err)
		err = kvblk_lookup_prefix(kv, keys, KEY, NR, 1000, &prefix);
	if (err) {
		fprintf(stderr, "%s\n", strerror(-err));
		kvblk_close(kv);
		return 1;
	}
	printf("%u of %u blocks are there; the first %u need not be computed\n",
	       stored, NR, prefix.nr_leading);
	/* a runtime would fetch the blocks here: they stay until the lease ends */
	kvblk_lease_release(kv, prefix.lease);
	for (unsigned int i = 0; i < NR; i++)
		kvblk_delete(kv, keys[i], KEY);
	kvblk_close(kv);
	return prefix.nr_leading == NR ? 0 : 1;
}
