// SPDX-License-Identifier: MIT
/*
 * Fetch a block into memory of a GPU (cuda:0), another PCI device (0000:03:00.0), a
 * driver's node (/dev/node), or the host: the calls are the same. usage: memory POOL FROM
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kvblk.h>

#define LEN	(4u << 20)

int main(int argc, char **argv)
{
	static const char *const ways[] = {
		[KVBLK_MEM_REGISTERED] = "pinned once",
		[KVBLK_MEM_ADDRESSED] = "pinned each time",
		[KVBLK_MEM_STAGED] = "by way of pinned memory of the host",
	};
	static const char key[] = "example/memory";
	static unsigned char block[LEN], back[LEN];
	struct kvblk_put_options from;
	struct kvblk_mem *mem = NULL;
	struct kvblk_result result;
	struct kvblk_piece piece;
	size_t len = LEN;
	struct kvblk_op op;
	struct kvblk *kv;
	int err;

	if (argc != 3)
		return 2;
	memset(block, 'x', LEN);
	err = kvblk_open(argv[1], 0, &kv);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	err = kvblk_mem_alloc(kv, argv[2], LEN, NULL, &mem);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[2],
			err == -ENOMEM ? "no memory, or RLIMIT_MEMLOCK: raise it (ulimit -l)" : strerror(-err));
		kvblk_close(kv);
		return 1;
	}
	err = kvblk_put(kv, key, sizeof(key), block, LEN, NULL);
	if (!err || err == -EEXIST)
		err = kvblk_prep_piece(&piece, mem, 0, LEN);
	if (!err) {
		kvblk_prep_get(&op, key, sizeof(key), &piece, 1);
		err = kvblk_submit(kv, &op, 1, &result, 0);
	}
	if (!err && result.res < 0)
		err = result.res;
	if (!err) {
		printf("%d bytes are in %s: %s, %s\n", result.res, argv[2], ways[kvblk_mem_kind(mem)],
		       result.flags & KVBLK_RES_DIRECT ? "straight" : "through the kernel");
		/* store the block again under another key */
		KVBLK_INIT(&from);
		from.mem = mem;
		err = kvblk_put(kv, key, sizeof(key) - 1, kvblk_mem_addr(mem), LEN, &from);
	}
	if (!err)
		err = kvblk_get(kv, key, sizeof(key) - 1, back, &len, NULL);
	if (!err && memcmp(block, back, LEN) != 0)
		err = -EBADMSG;
	if (err)
		fprintf(stderr, "%s\n", kvblk_result_text(err));
	kvblk_delete(kv, key, sizeof(key));
	kvblk_delete(kv, key, sizeof(key) - 1);
	kvblk_mem_unregister(mem);
	kvblk_close(kv);
	return err ? 1 : 0;
}
