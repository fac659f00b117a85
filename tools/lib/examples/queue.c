// SPDX-License-Identifier: MIT
/*
 * Store and fetch many blocks without a thread for each: a queue of DEPTH operations on
 * registered memory, in an event loop of poll(2).
 * usage: queue POOL
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvblk.h>

#define NR	256u
#define DEPTH	32u
#define LEN	262144u

static char keys[NR][32];
static struct kvblk_piece pieces[DEPTH];
static unsigned char *memory;	/* DEPTH blocks */
static struct kvblk_mem *mem;

/* Submit operation @i of a pass; it uses block @at of the memory. */
static void start(struct kvblk_queue *queue, uint8_t opcode, unsigned int i, unsigned int at)
{
	struct kvblk_op op;

	snprintf(keys[i], sizeof(keys[i]), "example/queue/%u", i);
	if (kvblk_prep_piece(&pieces[at], mem, (size_t)at * LEN, LEN))
		abort();	/* the piece is within the memory */
	kvblk_prep_put(&op, keys[i], sizeof(keys[i]), &pieces[at], 1);
	op.opcode = opcode;
	if (opcode == KVBLK_OP_PUT)
		memset(memory + (size_t)at * LEN, (int)i, LEN);
	if (opcode == KVBLK_OP_DELETE)
		op.pieces = op.nr_pieces = 0;
	op.cookie = (uint64_t)i << 32 | at;
	if (kvblk_queue_submit(queue, &op, 1, 0, NULL))
		abort();	/* never more than DEPTH */
}

/* Run NR operations of one kind. Returns how many had the expected result. */
static unsigned int pass(struct kvblk_queue *queue, int event, uint8_t opcode)
{
	struct kvblk_completion done[DEPTH];
	unsigned int next = 0, good = 0, inflight = DEPTH;

	while (next < DEPTH) {
		start(queue, opcode, next, next);
		next++;
	}
	while (inflight) {
		struct pollfd fd = { .fd = event, .events = POLLIN };
		int nr;

		/* a runtime would handle its other events here */
		if (poll(&fd, 1, -1) < 0)
			continue;
		nr = kvblk_queue_wait(queue, done, DEPTH, 0, 0);
		for (int i = 0; i < nr; i++) {
			unsigned int at = done[i].cookie & 0xffffffff;
			const unsigned char *block = memory + (size_t)at * LEN;

			if (opcode == KVBLK_OP_DELETE)
				good += !done[i].res;
			else
				good += done[i].res == (int)LEN &&
					block[LEN / 2] == (unsigned char)(done[i].cookie >> 32);
			if (next < NR)
				start(queue, opcode, next++, at);
			else
				inflight--;
		}
	}
	return good;
}

int main(int argc, char **argv)
{
	const struct kvblk_queue_options options = { .size = sizeof(options), .depth = DEPTH };
	struct kvblk_queue *queue;
	unsigned int put, got, removed;
	struct kvblk *kv;
	int err, event;

	if (argc != 2)
		return 2;
	memory = aligned_alloc(4096, (size_t)DEPTH * LEN);
	if (!memory)
		return 1;
	err = kvblk_open(argv[1], 0, &kv);
	if (!err)
		err = kvblk_mem_register(kv, memory, (size_t)DEPTH * LEN, NULL, &mem);
	if (!err)
		err = kvblk_queue_create(kv, &options, &queue);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	event = kvblk_queue_eventfd(queue);
	put = pass(queue, event, KVBLK_OP_PUT);
	got = pass(queue, event, KVBLK_OP_GET);
	removed = pass(queue, event, KVBLK_OP_DELETE);
	printf("of %u blocks %u put, %u got, %u removed\n", NR, put, got, removed);
	kvblk_queue_destroy(queue);
	kvblk_mem_unregister(mem);
	kvblk_close(kv);
	free(memory);
	return put == NR && got == NR && removed == NR ? 0 : 1;
}
