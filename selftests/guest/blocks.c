// SPDX-License-Identifier: GPL-2.0
/*
 * Put, get, delete, prefetch or look up a range of numbered blocks, for scripts. Every byte that
 * a get returns is checked. Counts are printed as shell assignments. The exit code is 1 if a byte
 * was wrong or an error unexpected; stderr has the details.
 *
 * usage: guest_blocks NODE put|get|put,get|delete|prefetch|lookup|times|lease FIRST COUNT LEN [TAG]
 *	or: guest_blocks NODE hold  (keeps the node open until stdin ends)
 *
 * TAG: the caller tag to put, or to expect from a get. memory= counts operations served from host
 * memory, or written only there; foreign= gets from another node's member; remote= deletes and
 * prefetches of its blocks. A lease is for an hour, for each block separately, and requires
 * KV_STAY. times prints what one quiet lookup predicts for the first and the last block, in
 * microseconds. A lease reads two lines: at the first it prints the result of a lookup, at the second it
 * exits.
 *
 * Environment:
 *   KV_STAY         keep the process and its memory until a line or the end of stdin
 *   KV_STEP         block by block, each after a line or the end of stdin
 *   KV_DEADLINE_MS  hard deadline of gets
 *   KV_CHAIN        puts are chains of 32 blocks
 *   KV_DURABLE      puts are durable
 *   KV_MISSED       the first put of each 32 has the hint that a get of it missed
 */
#include <stdarg.h>

#include "kv_io.h"

#define BATCH	32u

static int fd;
static int bad;
static struct {
	unsigned int stored, exists, declined, full, quota, errors;
	unsigned int hits, misses, late, deleted, absent, memory, foreign, remote;
	unsigned long long bytes, slowest;
} n;

static void complain(uint64_t nr, const char *what, int res)
{
	if (bad++ < 10)
		fprintf(stderr, "block %llu: %s: %d (%s)\n",
			(unsigned long long)nr, what, res,
			res < 0 ? strerror(-res) : "no error");
}

static void put_result(uint64_t nr, const struct kvblk_result *res)
{
	switch (res->res) {
	case -EEXIST:
	case -EALREADY:
		n.exists++;
		break;
	case -ENOBUFS:
		n.declined++;
		break;
	case -ENOSPC:
		n.full++;
		break;
	case -EDQUOT:
		n.quota++;
		break;
	case -EIO:
		n.errors++;
		break;
	default:
		if (res->res <= 0) {
			complain(nr, "put", res->res);
			break;
		}
		n.stored++;
		n.memory += !!(res->flags & KVBLK_RES_MEMORY);
		n.bytes += (unsigned int)res->res;
	}
}

static void get_result(uint64_t nr, const struct kvblk_result *res,
		       const uint8_t *buf, size_t len, uint64_t tag)
{
	ssize_t wrong;

	if (res->res > 0) {
		n.hits++;
		n.memory += !!(res->flags & KVBLK_RES_MEMORY);
		n.foreign += !!(res->flags & KVBLK_RES_FOREIGN);
		n.bytes += (unsigned int)res->res;
		if (tag && res->caller_tag != tag)
			complain(nr, "A FORMER BLOCK, tag", (int)res->caller_tag);
		wrong = kv_wrong(kv_seed(nr, res->caller_tag), 0, buf,
				 (size_t)res->res);
		if (wrong >= 0)
			complain(nr, "WRONG BYTE at", (int)wrong);
		return;
	}
	if (res->res == -ETIME)
		n.late++;
	else
		n.misses++;
	if (res->res != -ENOENT && res->res != -ETIME)
		complain(nr, "get", res->res);
	wrong = kv_leaked(buf, len);
	if (wrong >= 0)
		complain(nr, "A MISS LEFT BYTES at", (int)wrong);
}

static void prefetch_result(uint64_t nr, const struct kvblk_result *res)
{
	n.hits += res->res > 0;
	n.exists += !res->res;
	n.misses += res->res == -ENOENT;
	n.full += res->res == -ENOSPC;
	n.remote += res->res == -EREMOTE;
	if (res->res < 0 && res->res != -ENOENT && res->res != -ENOSPC && res->res != -EREMOTE)
		complain(nr, "prefetch", res->res);
	if (res->res >= 0 && !(res->flags & KVBLK_RES_MEMORY))
		complain(nr, "prefetch, not in memory", res->res);
}

static void batch(uint8_t opcode, uint64_t first, unsigned int count,
		  uint8_t *buf, size_t len, uint64_t tag)
{
	struct kv_key keys[BATCH];
	struct kvblk_piece pieces[BATCH];
	struct kvblk_op ops[BATCH];
	struct kvblk_result res[BATCH];
	const char *deadline = getenv("KV_DEADLINE_MS");
	const char *chain = getenv("KV_CHAIN"), *durable = getenv("KV_DURABLE");
	const char *missed = getenv("KV_MISSED");
	struct kvblk_op_ext exts[BATCH];
	uint32_t flags = opcode == KVBLK_OP_PUT && chain && *chain ? KVBLK_SUBMIT_CHAIN : 0;
	uint64_t start;
	int err;

	for (unsigned int i = 0; i < count; i++) {
		keys[i] = kv_key(first + i);
		pieces[i] = kv_piece(buf + i * len, len);
		ops[i] = kv_op(opcode, &keys[i], &pieces[i], 1);
		if (opcode == KVBLK_OP_PUT) {
			kv_fill(kv_seed(first + i, tag), 0, buf + i * len, len);
			kv_tags(&ops[i], &exts[i], 0, tag);
			if (durable && *durable)
				ops[i].flags = KVBLK_OPF_DURABLE;
			if (missed && *missed && !i)
				exts[i].hints = KVBLK_HINT_MISSED;
		} else if (opcode == KVBLK_OP_DELETE || opcode == KVBLK_OP_PREFETCH) {
			ops[i].pieces = 0;
			ops[i].nr_pieces = 0;
		} else if (deadline) {
			ops[i].flags = KVBLK_OPF_HARD_DEADLINE;
			ops[i].deadline_ns = (kv_now_ms() +
					      strtoull(deadline, NULL, 0)) * 1000000;
		}
	}
	if (opcode == KVBLK_OP_GET)
		memset(buf, KV_UNTOUCHED, count * len);
	start = kv_now_ms();
	err = kv_submit(fd, ops, res, count, flags);
	start = kv_now_ms() - start;
	if (start > n.slowest)
		n.slowest = start;
	if (err) {
		complain(first, "submit", err);
		return;
	}
	for (unsigned int i = 0; i < count; i++) {
		if (opcode == KVBLK_OP_PUT) {
			put_result(first + i, &res[i]);
		} else if (opcode == KVBLK_OP_GET) {
			get_result(first + i, &res[i], buf + i * len, len, tag);
		} else if (opcode == KVBLK_OP_PREFETCH) {
			prefetch_result(first + i, &res[i]);
		} else if (!res[i].res) {
			n.deleted++;
		} else if (res[i].res == -ENOENT) {
			n.absent++;
		} else if (res[i].res == -EIO) {
			n.errors++;
		} else if (res[i].res == -EREMOTE) {
			n.remote++;
		} else {
			complain(first + i, "delete", res[i].res);
		}
	}
}

/* Look up block @nr and lease it for @lease_ms (0: no lease). Returns the ioctl's result. */
static int look_for(uint64_t nr, uint32_t lease_ms, unsigned int *leased)
{
	struct kv_key key = kv_key(nr);
	struct kvblk_lookup io = {
		.size = sizeof(io),
		.flags = lease_ms ? KVBLK_LOOKUP_LEASE : 0,
		.nr_keys = 1,
		.keys = kv_addr(key.bytes),
		.key_stride = key.len,
		.lease_ms = lease_ms,
	};
	int err = kv_ioctl(fd, KVBLK_IOC_LOOKUP, &io);

	*leased += io.nr_leased;
	return err;
}

/* Print the predicted times of the first and the last of @count blocks from @first on. */
static int times(uint64_t first, unsigned int count)
{
	uint32_t *us = calloc(count, sizeof(*us));
	uint16_t *lens = calloc(count, sizeof(*lens));
	uint8_t *keys = malloc((size_t)count * KVBLK_KEY_MAX), *at = keys;
	struct kvblk_lookup io = {
		.size = sizeof(io), .flags = KVBLK_LOOKUP_QUIET, .nr_keys = count,
		.keys = kv_addr(keys), .key_lens = kv_addr(lens), .times = kv_addr(us),
	};

	for (unsigned int i = 0; i < count; i++) {
		struct kv_key key = kv_key(first + i);

		lens[i] = key.len;
		memcpy(at, key.bytes, key.len);
		at += key.len;
	}
	if (kv_ioctl(fd, KVBLK_IOC_LOOKUP, &io))
		complain(first, "lookup", -1);
	printf("present=%u first_us=%u last_us=%u\n", io.nr_present, us[0], us[count - 1]);
	free(us);
	free(lens);
	free(keys);
	return bad != 0;
}

int main(int argc, char **argv)
{
	static const char *const verbs[] = { "", "put", "get", "delete", "prefetch" };
	uint64_t first, start, tag;
	const unsigned int step = getenv("KV_STEP") ? 1 : BATCH;
	unsigned int count;
	size_t len;
	uint8_t *buf;

	if (argc == 3 && !strcmp(argv[2], "hold")) {
		fd = kv_open(argv[1]);
		puts("open");
		fflush(stdout);
		return getchar() == EOF ? 0 : 0;
	}
	if (argc < 6) {
		fprintf(stderr, "usage: %s NODE put|get|delete|lookup FIRST COUNT LEN [TAG]\n",
			argv[0]);
		return 2;
	}
	fd = kv_open(argv[1]);
	first = strtoull(argv[3], NULL, 0);
	count = (unsigned int)strtoul(argv[4], NULL, 0);
	len = strtoul(argv[5], NULL, 0);
	tag = argc > 6 ? strtoull(argv[6], NULL, 0) : 0;
	if (!strcmp(argv[2], "lookup")) {
		unsigned int present = 0;

		for (unsigned int i = 0; i < count; i++)
			present += kv_size(fd, first + i) > 0;
		printf("present=%u\n", present);
		return 0;
	}
	if (!strcmp(argv[2], "times"))
		return times(first, count);
	if (!strcmp(argv[2], "lease")) {
		unsigned int leased = 0;

		for (unsigned int i = 0; i < count; i++)
			if (look_for(first + i, KVBLK_LEASE_MS_MAX, &leased))
				complain(first + i, "lease", -1);
		printf("leased=%u\n", leased);
		fflush(stdout);
		if (getenv("KV_STAY") && getchar() != EOF) {
			printf("lookup=%d\n", look_for(first, 0, &leased));
			fflush(stdout);
			getchar();
		}
		return bad != 0;
	}
	buf = kv_alloc(BATCH * len);
	start = kv_now_ms();
	for (unsigned int i = 0; i < count; i += step) {
		unsigned int nr = count - i < step ? count - i : step;

		if (step == 1)
			getchar();
		for (uint8_t op = KVBLK_OP_PUT; op <= KVBLK_OP_PREFETCH; op++) {
			/* a probe must not see the memory just put change and change back */
			size_t at = step == 1 && op == KVBLK_OP_GET ? len : 0;

			if (strstr(argv[2], verbs[op]))
				batch(op, first + i, nr, buf + at, len, tag);
		}
	}
	printf("stored=%u exists=%u declined=%u full=%u quota=%u errors=%u hits=%u misses=%u late=%u deleted=%u absent=%u memory=%u foreign=%u remote=%u bytes=%llu slowest=%llu took=%llu bad=%d\n",
	       n.stored, n.exists, n.declined, n.full, n.quota, n.errors, n.hits,
	       n.misses, n.late, n.deleted, n.absent, n.memory, n.foreign, n.remote, n.bytes, n.slowest,
	       (unsigned long long)(kv_now_ms() - start), bad);
	fflush(stdout);
	if (getenv("KV_STAY"))
		getchar();
	return bad != 0;
}
