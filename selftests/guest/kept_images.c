// SPDX-License-Identifier: GPL-2.0
/*
 * Put, get or delete the blocks of a list. Kept images of pools have such lists
 * (selftests/images), so the meaning of a line never changes:
 *
 *	NUMBER LENGTH TTL PRIORITY CALLER-TAG LAYOUT-TAG SUMS STATE
 *
 * The key is kv_key(NUMBER). The parent is the key of NUMBER - 1, except for every fourth block,
 * which has none. The bytes are kept_word()s. SUMS is 1 if the put passes checksums. A get of a
 * block whose STATE is "gone" must miss; any other must return its bytes, length and tags. '#'
 * begins a comment line.
 *
 * usage: guest_kept_images NODE put|get|delete <LIST
 *
 * Prints "here=N gone=N", the number of blocks handled. The exit code is 1 if a block was wrong;
 * each is reported.
 */
#include <inttypes.h>
#include <stdarg.h>

#include "kv_io.h"

#define LENGTH_MAX	(4u << 20)
#define SUM_BYTES	65536u

struct kept {
	uint64_t nr, caller_tag, layout_tag;
	uint32_t len, ttl;
	unsigned int priority, sums;
	bool gone;
};

static int fd;
static unsigned int here, gone, wrong;

/* Return the word that fills page @page: a single word, to keep the images small. */
static uint64_t kept_word(const struct kept *kept, uint64_t page)
{
	return kv_seed(kept->nr, kept->caller_tag) ^ page;
}

static void kept_fill(const struct kept *kept, uint8_t *buf)
{
	for (uint64_t at = 0; at < kept->len; at += sizeof(uint64_t)) {
		uint64_t word = kept_word(kept, at / PAGE);
		size_t left = kept->len - at;

		memcpy(buf + at, &word, left < sizeof(word) ? left : sizeof(word));
	}
}

static void complain(const struct kept *kept, const char *what, int res)
{
	wrong++;
	printf("block %" PRIu64 ": %s: %d (%s)\n", kept->nr, what, res,
	       res < 0 ? strerror(-res) : "no error");
}

static void put(const struct kept *kept, struct kvblk_op *op, const uint8_t *want)
{
	struct kv_key parent = kv_key(kept->nr - 1);
	uint32_t sums[LENGTH_MAX / SUM_BYTES], nr = 0;
	struct kvblk_op_ext ext;
	struct kvblk_result res;

	op->priority = (uint8_t)kept->priority;
	op->ttl_s = kept->ttl;
	kv_tags(op, &ext, kept->layout_tag, kept->caller_tag);
	if (kept->nr % 4) {
		ext.parent = kv_addr(parent.bytes);
		ext.parent_len = parent.len;
	}
	for (uint32_t at = 0; kept->sums && at < kept->len; at += SUM_BYTES) {
		uint32_t left = kept->len - at;

		sums[nr++] = kv_crc32c(want + at, left < SUM_BYTES ? left : SUM_BYTES);
	}
	ext.nr_checksums = nr;
	ext.checksums = nr ? kv_addr(sums) : 0;
	res = kv_one(fd, op);
	if (res.res == (int)kept->len)
		here++;
	else
		complain(kept, "put", res.res);
}

static void get(const struct kept *kept, const struct kvblk_op *op,
		const uint8_t *want, const uint8_t *got)
{
	struct kvblk_result res = kv_one(fd, op);

	if (kept->gone && res.res == -ENOENT)
		gone++;
	else if (kept->gone)
		complain(kept, "should be a miss", res.res);
	else if (res.res != (int)kept->len)
		complain(kept, "get", res.res);
	else if (memcmp(got, want, kept->len))
		complain(kept, "WRONG BYTES", res.res);
	else if (res.caller_tag != kept->caller_tag ||
		 res.layout_tag != kept->layout_tag)
		complain(kept, "wrong tags", res.res);
	else
		here++;
}

int main(int argc, char **argv)
{
	uint8_t *want = kv_alloc_host(LENGTH_MAX), *buf = kv_alloc_host(LENGTH_MAX);
	struct kept kept;
	char line[200], state[20];

	if (argc != 3)
		goto usage;
	fd = kv_open(argv[1]);
	while (fgets(line, sizeof(line), stdin)) {
		struct kvblk_piece piece;
		struct kv_key key;
		struct kvblk_op op;

		if (line[0] == '#')
			continue;
		if (sscanf(line, "%" SCNu64 " %u %u %u %" SCNi64 " %" SCNi64 " %u %19s",
			   &kept.nr, &kept.len, &kept.ttl, &kept.priority,
			   &kept.caller_tag, &kept.layout_tag, &kept.sums, state) != 8 ||
		    !kept.len || kept.len > LENGTH_MAX) {
			printf("no block: %s", line);
			return 2;
		}
		kept.gone = !strcmp(state, "gone");
		key = kv_key(kept.nr);
		kept_fill(&kept, want);
		if (!strcmp(argv[2], "put")) {
			piece = kv_piece(want, kept.len);
			op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
			put(&kept, &op, want);
		} else if (!strcmp(argv[2], "get")) {
			memset(buf, KV_UNTOUCHED, kept.len);
			piece = kv_piece(buf, LENGTH_MAX);
			op = kv_op(KVBLK_OP_GET, &key, &piece, 1);
			get(&kept, &op, want, buf);
		} else if (!strcmp(argv[2], "delete")) {
			struct kvblk_result res = kv_delete(fd, kept.nr);

			if (res.res)
				complain(&kept, "delete", res.res);
			else
				gone++;
		} else {
			goto usage;
		}
	}
	printf("here=%u gone=%u\n", here, gone);
	return wrong != 0;
usage:
	fprintf(stderr, "usage: %s NODE put|get|delete <LIST\n", argv[0]);
	return 2;
}
