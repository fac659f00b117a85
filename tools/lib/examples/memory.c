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
	struct kvblk_mem *mem = NULL;
	size_t len = LEN;
	uint32_t flags;
	struct kvblk *kv;
	int err;

	if (argc != 3)
		return 2;
	memset(block, 'x', LEN);
	err = kvblk_open(argv[1], &kv);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], kvblk_strerror(err));
		return 1;
	}
	err = kvblk_mem_alloc(kv, argv[2], LEN, NULL, &mem);
	if (err)
		fprintf(stderr, "%s: ", argv[2]);
	if (!err)
		err = kvblk_put(kv, key, sizeof(key), block, LEN, NULL);
	if (!err || err == -EEXIST)
		err = kvblk_mem_get(mem, 0, &len, key, sizeof(key), &flags);
	if (!err) {
		printf("%zu bytes are in %s: %s, %s\n", len, argv[2], ways[kvblk_mem_kind(mem)],
		       flags & KVBLK_RES_DIRECT ? "straight" : "through the kernel");
		/* store the block again under another key */
		err = kvblk_mem_put(mem, 0, len, key, sizeof(key) - 1, NULL, NULL);
	}
	if (!err)
		err = kvblk_get(kv, key, sizeof(key) - 1, back, &len);
	if (!err && memcmp(block, back, LEN) != 0)
		err = -EBADMSG;
	if (err)
		fprintf(stderr, "%s\n", kvblk_strerror(err));
	kvblk_delete(kv, key, sizeof(key));
	kvblk_delete(kv, key, sizeof(key) - 1);
	kvblk_mem_unregister(mem);
	kvblk_close(kv);
	return err ? 1 : 0;
}
