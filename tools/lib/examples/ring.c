// SPDX-License-Identifier: MIT
/*
 * A prompt of NR blocks, as a runtime handles it: look up how many leading blocks the pool
 * has, with a lease; get those; compute the others, and put them as one chain. The blocks are
 * in registered memory, the operations in a ring, and the program in poll(2).
 *
 * The prompt comes twice: the second time nothing is left to compute.
 * usage: ring POOL
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <kvblk.h>

#define NR	64u
#define LEN	262144u
#define KEY	32u
#define TRIES	3

static char keys[NR][KEY];
static struct kvblk_piece pieces[NR];
static struct kvblk_op ops[NR];
static unsigned int tries[NR], nr_computed;
static unsigned char *memory;	/* of all blocks */

/* A model would compute keys and values here. */
static void compute(unsigned int i)
{
	memset(memory + (size_t)i * LEN, (int)i + 1, LEN);
	nr_computed++;
}

/* Do what a result asks for. Returns true if the operation is to be submitted again. */
static bool completed(const struct kvblk_completion *c)
{
	const unsigned int i = (unsigned int)c->cookie;

	switch (kvblk_result_action(c->res)) {
	case KVBLK_DO_NOTHING:
		return false;
	case KVBLK_DO_RETRY:
		/* a runtime would wait a little */
		if (++tries[i] < TRIES)
			return true;
		break;
	case KVBLK_DO_SKIP:
	case KVBLK_DO_RECOMPUTE:
		break;
	case KVBLK_DO_REPORT:
		fprintf(stderr, "block %u: %s\n", i, kvblk_result_text(c->res));
		break;
	}
	/* a block that was not put is computed again by whoever needs it next */
	if (ops[i].opcode == KVBLK_OP_GET)
		compute(i);
	return false;
}

/* Run @nr operations, from number @first on. Returns 0 or a negative errno. */
static int run(struct kvblk_queue *queue, unsigned int first, unsigned int nr, unsigned int flags)
{
	struct pollfd event = { .fd = kvblk_queue_eventfd(queue), .events = POLLIN };
	struct kvblk_completion done[16];
	int err = event.fd < 0 ? event.fd : 0;

	if (nr && !err)
		err = kvblk_queue_submit(queue, &ops[first], nr, flags, NULL);
	while (nr && !err) {
		int nr_done;

		/* a runtime would wait for its other events, too */
		if (poll(&event, 1, -1) < 0)
			continue;
		nr_done = kvblk_queue_wait(queue, done, 16, 0, 0);
		err = nr_done < 0 ? nr_done : 0;
		for (int i = 0; i < nr_done && !err; i++) {
			if (completed(&done[i]))
				err = kvblk_queue_submit(queue, &ops[done[i].cookie], 1, 0, NULL);
			else
				nr--;
		}
	}
	return err;
}

/* Handle the prompt. Returns 0 or a negative errno. */
static int prompt(struct kvblk *kv, struct kvblk_queue *queue)
{
	struct kvblk_prefix prefix;
	int err;

	memset(memory, 0, (size_t)NR * LEN);
	nr_computed = 0;
	KVBLK_INIT(&prefix);
	/* the lease keeps the blocks found until they are read */
	err = kvblk_lookup_prefix(kv, keys, KEY, NR, 10000, &prefix);
	if (err)
		return err;
	for (unsigned int i = 0; i < NR; i++) {
		if (i < prefix.nr_leading)
			kvblk_prep_get(&ops[i], keys[i], KEY, &pieces[i], 1);
		else
			kvblk_prep_put(&ops[i], keys[i], KEY, &pieces[i], 1);
		ops[i].cookie = i;
		tries[i] = 0;
	}
	err = run(queue, 0, prefix.nr_leading, 0);
	kvblk_lease_release(kv, prefix.lease);
	for (unsigned int i = prefix.nr_leading; i < NR; i++)
		compute(i);
	if (!err)
		err = run(queue, prefix.nr_leading, NR - prefix.nr_leading, KVBLK_SUBMIT_CHAIN);
	for (size_t i = 0; i < (size_t)NR * LEN && !err; i++) {
		if (memory[i] != i / LEN + 1)
			err = -EBADMSG;
	}
	printf("%u of %u blocks were in the pool, %u were computed\n", prefix.nr_leading, NR,
	       nr_computed);
	return err;
}

int main(int argc, char **argv)
{
	struct kvblk_queue *queue = NULL;
	struct kvblk_mem *mem = NULL;
	struct kvblk *kv;
	int err;

	if (argc != 2)
		return 2;
	err = kvblk_open(argv[1], 0, &kv);
	if (err) {
		fprintf(stderr, "%s: %s\n", argv[1], err == -ENODEV ? "no such pool" : strerror(-err));
		return 1;
	}
	/* kvblk_mem_register() takes memory that the program has already */
	err = kvblk_mem_alloc(kv, "host", (size_t)NR * LEN, NULL, &mem);
	for (unsigned int i = 0; i < NR && !err; i++) {
		/* a key stands for the prompt up to the block's end: see kvblk_keyspace_init(3) */
		snprintf(keys[i], KEY, "example/ring/%u", i);
		err = kvblk_prep_piece(&pieces[i], mem, (size_t)i * LEN, LEN);
	}
	if (!err)
		err = kvblk_queue_create(kv, NULL, &queue);
	if (!err) {
		memory = kvblk_mem_addr(mem);
		err = prompt(kv, queue);
	}
	if (!err)
		err = prompt(kv, queue);
	if (err)
		fprintf(stderr, "%s\n", strerror(-err));
	for (unsigned int i = 0; i < NR; i++)
		kvblk_delete(kv, keys[i], KEY);
	kvblk_queue_destroy(queue);
	kvblk_mem_unregister(mem);
	kvblk_close(kv);
	return err || nr_computed ? 1 : 0;
}
