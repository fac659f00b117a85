// SPDX-License-Identifier: MIT
/*
 * Blocks from and to memory of one kind, in a program that uses only libkvblk. Results are
 * compared in host memory.
 *
 * usage: library_memory NODE FROM KIND WAY [MOST]
 *
 * FROM  as for kvblk_mem_alloc()
 * KIND  expected kind: registered, addressed, staged
 * WAY   direct: whole pages go directly once the route is known; bounced: nothing may go
 *       directly; any
 * MOST  length of the longest block
 * Exit code 1: something was wrong, 2: there is no such memory.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kvblk.h>

#define ROOM		(8u << 20)
#define THREADS		4u
#define TRIES		300	/* tenths of a second until the route is known */

static const struct kvblk_mem_options options = { .size = sizeof(options), .block_max = 5u << 20 };
static struct kvblk *kv;
static struct kvblk_mem *mem, *host;
static bool may_be_direct;
static size_t most = ROOM;

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	_exit(1);
}

static void expect(const char *what, long got, long want)
{
	if (got != want)
		die("%s: %ld (%s), should be %ld", what, got, got < 0 ? strerror(-(int)got) : "-", want);
}

static void way_is_right(const char *what, uint32_t flags)
{
	if ((flags & KVBLK_RES_DIRECT && !may_be_direct) ||
	    !(flags & (KVBLK_RES_DIRECT | KVBLK_RES_BOUNCED)))
		die("%s: flags %x", what, flags);
}

static void pattern(unsigned char *p, size_t len, unsigned int seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)(i * 13 + i / 4096 + seed);
}

/* Submit a batch of one operation. */
static struct kvblk_result batch(uint8_t opcode, const char *key, const struct kvblk_piece *pieces, unsigned int nr)
{
	struct kvblk_result result;
	struct kvblk_op op;

	kvblk_prep_put(&op, key, strlen(key), pieces, nr);
	op.opcode = opcode;
	expect("batch", kvblk_submit(kv, &op, 1, &result, 0), 0);
	return result;
}

/* Run an operation on @len bytes at @at of @in. Returns its result, with -EFAULT outside the memory. */
static struct kvblk_result run(uint8_t opcode, const struct kvblk_mem *in, size_t at, size_t len, const char *key)
{
	struct kvblk_piece piece;
	int err = kvblk_prep_piece(&piece, in, at, len);

	return err ? (struct kvblk_result){ .res = err } : batch(opcode, key, &piece, 1);
}

/* Returns how operations reach the memory. */
static enum kvblk_mem_kind kind_of(const struct kvblk_mem *of)
{
	struct kvblk_mem_info info = { .size = sizeof(info) };

	expect("info", kvblk_mem_get_info(of, &info), 0);
	return info.kind;
}

static void put(const struct kvblk_mem *from, size_t at, size_t len, const char *key)
{
	expect(key, run(KVBLK_OP_PUT, from, at, len, key).res, (long)len);
}

static void get(const struct kvblk_mem *to, size_t at, size_t len, const char *key)
{
	expect(key, run(KVBLK_OP_GET, to, at, ROOM, key).res, (long)len);
}

static void drop(const char *key)
{
	expect("delete", kvblk_delete(kv, key, strlen(key)), 0);
}

/*
 * Put @len bytes from the host and get them into memory at @at, then put them from there and get
 * them into the host. Each thread has its own part of the host's memory, and keys. Returns the
 * result flags of both ways.
 */
static uint32_t trip(unsigned int thread, size_t at, size_t len)
{
	unsigned char *there = (unsigned char *)kvblk_mem_addr(host) + (size_t)thread * 2 * ROOM;
	unsigned char *back = there + ROOM;
	size_t offset = (size_t)thread * 2 * ROOM;
	struct kvblk_result result;
	char in[32], out[32];
	uint32_t all;

	snprintf(in, sizeof(in), "lib_memory/in/%u", thread);
	snprintf(out, sizeof(out), "lib_memory/out/%u", thread);
	pattern(there, len, thread + (unsigned int)(at + len));
	memset(back, 0, len);
	put(host, offset, len, in);
	result = run(KVBLK_OP_GET, mem, at, len, in);
	expect("get", result.res, (long)len);
	expect("length got", result.value_len, (long)len);
	way_is_right("get", result.flags);
	all = result.flags;
	result = run(KVBLK_OP_PUT, mem, at, len, out);
	expect("put", result.res, (long)len);
	way_is_right("put", result.flags);
	all |= result.flags << 8;
	get(host, offset + ROOM, len, out);
	for (size_t i = 0; i < len; i++) {
		if (there[i] != back[i])
			die("%zu bytes at %zu: byte %zu is %u, should be %u", len, at, i, back[i], there[i]);
	}
	drop(in);
	drop(out);
	return all;
}

static void sizes(void)
{
	static const size_t lens[] = { 1, 511, 4096, 65536, 65537, 300000, 1 << 20, (4 << 20) + 12345, 5 << 20 };
	static const size_t ats[] = { 0, 4096, 12345 };

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		for (size_t j = 0; lens[i] <= most && j < sizeof(ats) / sizeof(ats[0]); j++)
			trip(0, ats[j], lens[i]);
	}
}

/* Wait until whole pages go directly both ways. */
static void become_direct(void)
{
	const uint32_t both = KVBLK_RES_DIRECT | KVBLK_RES_DIRECT << 8;
	const struct timespec pause = { .tv_nsec = 100000000 };

	for (int i = 0; i < TRIES; i++) {
		if (trip(0, 0, 1 << 20) == both)
			return;
		nanosleep(&pause, NULL);
	}
	die("nothing went straight");
}

static void refusals(void)
{
	struct kvblk_get_options into = { .size = sizeof(into), .mem = mem };
	struct kvblk_put_options from = { .size = sizeof(from), .mem = mem };
	unsigned char *there = kvblk_mem_addr(mem);
	struct kvblk_result result;
	size_t len = ROOM;

	expect("get of what is absent", run(KVBLK_OP_GET, mem, 0, ROOM, "none").res, -ENOENT);
	expect("get of what is absent", kvblk_get(kv, "none", 4, there, &len, &into), -ENOENT);
	expect("get behind the end", run(KVBLK_OP_GET, mem, 1, ROOM, "none").res, -EFAULT);
	expect("get behind the end", kvblk_get(kv, "none", 4, there + 1, &len, &into), -EFAULT);
	expect("put behind the end", run(KVBLK_OP_PUT, mem, ROOM, 1, "none").res, -EFAULT);
	expect("put behind the end", kvblk_put(kv, "none", 4, there + ROOM, 1, &from), -EFAULT);
	put(host, 0, 100000, "small");
	result = run(KVBLK_OP_GET, mem, 0, 99999, "small");
	expect("get without room", result.res, -EMSGSIZE);
	expect("its length", result.value_len, 100000);
	len = 99999;
	expect("get without room", kvblk_get(kv, "small", 5, there, &len, &into), -EMSGSIZE);
	expect("its length", (long)len, 100000);
	drop("small");
	if (kind_of(mem) == KVBLK_MEM_STAGED)
		expect("put that is too long", run(KVBLK_OP_PUT, mem, 0, options.block_max + 1, "none").res, -EFBIG);
}

/* Returns whether the kernel refuses io_uring to all. */
static bool rings_disabled(void)
{
	FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
	char value = 0;

	if (file) {
		value = (char)fgetc(file);
		fclose(file);
	}
	return value == '2';
}

/* Get a block by a queue, a ring for @threads 0. Returns false if there can be no ring. */
static bool queue(const struct kvblk_op *op, unsigned int threads, size_t len)
{
	const struct kvblk_queue_options how = { .size = sizeof(how), .depth = 4, .threads = threads };
	struct kvblk_completion done;
	struct kvblk_queue *q;

	if (!threads && rings_disabled()) {
		expect("queue without io_uring", kvblk_queue_create(kv, &how, &q), -EPERM);
		return false;
	}
	expect("queue", kvblk_queue_create(kv, &how, &q), 0);
	expect("submit", kvblk_queue_submit(q, op, 1, 0, &done), 0);
	expect("wait", kvblk_queue_wait(q, &done, 1, 1, 0), 1);
	expect("get of a queue", done.res, (long)len);
	if (done.tag != &done || done.index || done.left)
		die("a completion of another submission");
	kvblk_queue_destroy(q);
	return true;
}

/* Transfer the same bytes by separate pieces, in batches and by queues. */
static void pieces(void)
{
	unsigned char *there = kvblk_mem_addr(host), *back = there + ROOM;
	struct kvblk_piece piece, of_host, apart[3];
	struct kvblk_op op;
	size_t len = most < 500000 ? most : 500000;
	const size_t lens[] = { len / 2, 1, len - len / 2 - 1 };

	pattern(there, len, 9);
	expect("piece", kvblk_prep_piece(&of_host, host, 0, len), 0);
	expect("piece", kvblk_prep_piece(&piece, mem, 8192, len), 0);
	expect("put of a batch", batch(KVBLK_OP_PUT, "pieces", &of_host, 1).res, (long)len);
	for (unsigned int i = 0; i < 3; i++)
		expect("piece", kvblk_prep_piece(&apart[i], mem, (2 - i) * (len / 2 + 4097), lens[i]), 0);
	expect("get to three pieces", batch(KVBLK_OP_GET, "pieces", apart, 3).res, (long)len);
	expect("put of three pieces", batch(KVBLK_OP_PUT, "apart", apart, 3).res, (long)len);
	get(host, ROOM, len, "apart");
	if (memcmp(there, back, len) != 0)
		die("three pieces came back as others");
	drop("apart");
	for (unsigned int threads = 0; threads < 2; threads++) {
		kvblk_prep_get(&op, "pieces", 6, &piece, 1);
		if (!queue(&op, threads, len))
			continue;
		drop("pieces");
		put(mem, 8192, len, "pieces");
		memset(back, 0, len);
		get(host, ROOM, len, "pieces");
		if (memcmp(there, back, len) != 0)
			die("pieces came back as others");
	}
	drop("pieces");
}

static void *worker(void *arg)
{
	unsigned int thread = (unsigned int)(uintptr_t)arg;

	for (size_t i = 1; i <= 10 && i * 150000 <= most; i++)
		trip(thread, (size_t)thread * (ROOM / THREADS), i * 150000);
	return NULL;
}

static void threads(void)
{
	pthread_t ids[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		expect("thread", pthread_create(&ids[i], NULL, worker, (void *)i), 0);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_join(ids[i], NULL);
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "", "registered", "addressed", "staged" };
	int err;

	if (argc != 5 && argc != 6)
		die("usage: see the top of memory.c");
	may_be_direct = strcmp(argv[4], "bounced") != 0;
	if (argc > 5)
		most = strtoull(argv[5], NULL, 10);
	expect("open", kvblk_open(argv[1], 0, &kv), 0);
	expect("memory of the host", kvblk_mem_alloc(kv, "host", (size_t)THREADS * 2 * ROOM, NULL, &host), 0);
	err = kvblk_mem_alloc(kv, argv[2], ROOM, &options, &mem);
	if (err) {
		printf("%s: %s\n", argv[2], strerror(-err));
		return 2;
	}
	printf("%s: %s\n", argv[2], kinds[kind_of(mem)]);
	if (strcmp(kinds[kind_of(mem)], argv[3]) != 0)
		die("should be %s", argv[3]);
	refusals();
	sizes();
	pieces();
	threads();
	if (!strcmp(argv[4], "direct"))
		become_direct();
	kvblk_mem_unregister(mem);
	kvblk_mem_unregister(host);
	kvblk_close(kv);
	return 0;
}
