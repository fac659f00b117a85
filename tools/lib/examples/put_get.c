// SPDX-License-Identifier: MIT
/* Store one block and fetch it again, with synchronous calls. usage: put_get POOL */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kvblk.h>

int main(int argc, char **argv)
{
	static const char key[] = "example/put_get";
	static char block[100000], back[100000];
	size_t len = sizeof(back);
	struct kvblk *kv;
	int err;

	if (argc != 2)
		return 2;
	memset(block, 'x', sizeof(block));
	err = kvblk_open(argv[1], 0, &kv);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1],
			err == -ENODEV ? "no such pool" : strerror(-err));
		return 1;
	}
	err = kvblk_put(kv, key, sizeof(key), block, sizeof(block), NULL);
	/* -EEXIST: the block was stored before */
	if (!err || err == -EEXIST)
		err = kvblk_get(kv, key, sizeof(key), back, &len, NULL);
	if (err)
		fprintf(stderr, "%s\n", kvblk_result_text(err));
	else if (len != sizeof(block) || memcmp(block, back, len) != 0)
		err = -EBADMSG;
	else
		printf("%zu bytes came back as they were\n", len);
	kvblk_delete(kv, key, sizeof(key));
	kvblk_close(kv);
	return err ? 1 : 0;
}
