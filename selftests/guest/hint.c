// SPDX-License-Identifier: GPL-2.0
/*
 * Hint at a range of numbered blocks, for scripts. Counts are printed as shell assignments. The
 * exit code is 1 if a result was unexpected; stderr has the details.
 *
 * usage: guest_hint NODE FIRST COUNT [priority=N] [retain=SECONDS] [demote] [release]
 *	or: guest_hint NODE readonly FIRST  (a hint through a node open for reading fails)
 */
#include "kv_io.h"

#define BATCH	32u

static bool hint_of(const char *word, struct kvblk_op *op)
{
	if (!strcmp(word, "demote")) {
		op->flags |= KVBLK_OPF_DEMOTE;
	} else if (!strcmp(word, "release")) {
		op->flags |= KVBLK_OPF_RELEASE;
	} else if (!strncmp(word, "priority=", 9)) {
		op->flags |= KVBLK_OPF_PRIORITY;
		op->priority = (uint8_t)strtoul(word + 9, NULL, 0);
	} else if (!strncmp(word, "retain=", 7)) {
		op->flags |= KVBLK_OPF_RETAIN;
		op->ttl_s = (uint32_t)strtoul(word + 7, NULL, 0);
	} else {
		return false;
	}
	return true;
}

static int readonly(const char *node, uint64_t nr)
{
	struct kv_key key = kv_key(nr);
	struct kvblk_op op = kv_op(KVBLK_OP_HINT, &key, NULL, 0);
	int fd = open(node, O_RDONLY | O_CLOEXEC);
	int res;

	op.flags = KVBLK_OPF_RELEASE;
	res = kv_one(fd, &op).res;
	if (res == -EBADF)
		return 0;
	fprintf(stderr, "a hint through a node open for reading: %d\n", res);
	return 1;
}

int main(int argc, char **argv)
{
	struct kvblk_op hint = { .opcode = KVBLK_OP_HINT }, ops[BATCH];
	unsigned int count, n, hinted = 0, absent = 0, bad = 0;
	struct kvblk_result res[BATCH];
	struct kv_key keys[BATCH];
	uint64_t first;
	int fd;

	if (argc == 4 && !strcmp(argv[2], "readonly"))
		return readonly(argv[1], strtoull(argv[3], NULL, 0));
	for (int i = 4; i < argc; i++)
		bad += !hint_of(argv[i], &hint);
	if (argc < 5 || bad) {
		fprintf(stderr, "usage: %s NODE FIRST COUNT HINT...\n", argv[0]);
		return 2;
	}
	fd = kv_open(argv[1]);
	first = strtoull(argv[2], NULL, 0);
	count = (unsigned int)strtoul(argv[3], NULL, 0);
	for (; count; count -= n, first += n) {
		n = count < BATCH ? count : BATCH;
		for (unsigned int i = 0; i < n; i++) {
			keys[i] = kv_key(first + i);
			ops[i] = kv_op(KVBLK_OP_HINT, &keys[i], NULL, 0);
			ops[i].flags = hint.flags;
			ops[i].priority = hint.priority;
			ops[i].ttl_s = hint.ttl_s;
		}
		if (kv_submit(fd, ops, res, n, 0))
			kv_die("KVBLK_IOC_SUBMIT");
		for (unsigned int i = 0; i < n; i++) {
			hinted += !res[i].res && res[i].value_len;
			absent += res[i].res == -ENOENT;
			if (res[i].res && res[i].res != -ENOENT && !bad++)
				fprintf(stderr, "block %llu: hint: %d\n",
					(unsigned long long)(first + i), res[i].res);
		}
	}
	printf("hinted=%u absent=%u\n", hinted, absent);
	return bad != 0;
}
