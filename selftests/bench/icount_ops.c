// SPDX-License-Identifier: MIT
/*
 * icount_ops: operations for bench/icount to count the kernel's instructions of, between marks
 * that its QEMU plugin detects.
 *
 * usage: icount_ops ENGINE OP SIZE DEPTH OPS ROUNDS TARGET [MEMORY WAY]
 *	  icount_ops own|shared ENGINE OP SIZE DEPTH OPS ROUNDS TARGET [MEMORY WAY]
 *	  icount_ops run COMMAND...
 *
 * own		two processes at once, on a CPU each, with separate files and blocks
 * shared	two threads at once, on a CPU each, with a common file, memory and blocks
 * ENGINE	uring, uring-fixed, ioctl, ioctl-fixed: a pool, TARGET is its name;
 *		raw, raw-fixed: io_uring on the block device TARGET;
 *		lookup, lease: a pool; lease also leases the blocks and releases them
 * OP		get, put or delete of SIZE bytes; for raw engines read and write; lookup:
 *		of a prefix of DEPTH keys, for the engines lookup and lease
 * MEMORY	host, or the file that provides a PCI device's memory by mmap()
 * WAY		direct, bounced or memory: required flag of a pool's results; staged:
 *		gets go to host memory, and are copied to MEMORY in user space
 * run		count everything until COMMAND ends
 *
 * The rule: only operations are between the marks. DEPTH of them are submitted by one system
 * call, and complete before the next ones are submitted. Each run has the same sequence. A first
 * round is not counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kvblk.h"

/* no-operations unless the plugin is loaded */
#define START()	__asm__ volatile(".byte 0x0f, 0x1f, 0x80, 'k', 'v', 'b', 0" ::: "memory")
#define STOP()	__asm__ volatile(".byte 0x0f, 0x1f, 0x80, 'k', 'v', 'b', 1" ::: "memory")

#define KEY_LEN		33
#define HUGE_PAGE	(2u << 20)
/* size of the set of blocks that are got or read, and their maximum number */
#define BLOCKS_BYTES	(128u << 20)
#define BLOCKS_MAX	1024u
#define LEASE_MS	60000u
/* distance of two tasks' own blocks */
#define TASK_BLOCKS	(1u << 24)

struct run;

/* meeting of two tasks, in common memory */
static struct {
	atomic_uint nr_arrived;
	atomic_bool failed;
} *pair;

struct engine {
	const char *name;
	bool fixed;
	bool lookup;
	void (*create)(struct run *run);
	/* start the operation in slot @i */
	void (*start)(struct run *run, unsigned int i);
	/* wait for all started operations; exits on an error */
	void (*finish)(struct run *run);
};

struct run {
	const struct engine *engine;
	bool put;
	bool remove;
	uint32_t size;
	unsigned int depth;
	unsigned int nr_ops;
	unsigned int nr_rounds;
	const char *target;
	const char *memory;
	uint32_t way;			/* required flag of results, or 0 */
	bool staged;
	unsigned int task;		/* of two: 0 or 1 */
	uint64_t first;			/* number of the first block */

	unsigned char *buffer;		/* depth * size bytes */
	unsigned char *device;		/* staged: as many bytes of MEMORY */
	uint64_t nr_blocks;
	uint64_t *number;		/* number of the block in each slot */
	char (*key)[KEY_LEN + 1];
	char *prefix;			/* keys of a lookup, packed */
	uint64_t random;
	uint64_t nr_put;

	struct kvblk *kv;
	struct kvblk_mem *mem;
	struct kvblk_queue *queue;
	struct kvblk_op *ops;
	struct kvblk_piece *pieces;
	struct kvblk_result *results;
	struct kvblk_completion *completions;

	int fd;
	struct io_uring ring;
};

static _Noreturn void die(const char *what, int err)
{
	fprintf(stderr, "icount_ops: %s: %s\n", what, kvblk_result_text(err));
	if (pair)
		atomic_store(&pair->failed, true);
	exit(1);
}

/* Wait until both tasks arrive, without system calls. */
static void meet(void)
{
	unsigned int both;

	if (!pair)
		return;
	both = (atomic_fetch_add(&pair->nr_arrived, 1) / 2 + 1) * 2;
	while (atomic_load(&pair->nr_arrived) < both) {
		if (atomic_load(&pair->failed))
			_exit(1);
		__builtin_ia32_pause();
	}
}

static void *need(void *p)
{
	if (!p)
		die("memory", -ENOMEM);
	return p;
}

/* Return the offset of slot @i in the tasks' memory. */
static size_t offset_of(const struct run *run, unsigned int i)
{
	return ((size_t)run->task * run->depth + i) * run->size;
}

static unsigned char *buffer_at(const struct run *run, unsigned int i)
{
	return run->buffer + offset_of(run, i);
}

/* Return the bytes of memory for the slots of all tasks. */
static size_t buffer_bytes(const struct run *run)
{
	return (size_t)run->size * run->depth * (pair ? 2 : 1);
}

static unsigned char *map_device(const struct run *run)
{
	int fd = open(run->memory, O_RDWR | O_CLOEXEC);
	void *p;

	if (fd < 0)
		die(run->memory, -errno);
	p = mmap(NULL, buffer_bytes(run), PROT_READ | PROT_WRITE,
		 MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		die(run->memory, -errno);
	close(fd);
	return p;
}

/* Allocate huge pages, because the placement of small ones differs from run to run. */
static void get_buffers(struct run *run)
{
	size_t len = buffer_bytes(run);
	size_t room = (len + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	bool host = strcmp(run->memory, "host") == 0;
	uintptr_t start;
	void *p;

	if (!host)
		run->device = map_device(run);
	if (!host && !run->staged) {
		run->buffer = run->device;
		memset(run->buffer, 0x5a, len);
		return;
	}
	p = mmap(NULL, room + HUGE_PAGE, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		die("memory", -errno);
	start = ((uintptr_t)p + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	run->buffer = (unsigned char *)start;
	if (madvise(run->buffer, room, MADV_HUGEPAGE))
		die("huge pages", -errno);
	memset(run->buffer, 0x5a, room);
}

/* Copy with a string instruction, which the plugin counts for each byte. */
static void copy(void *to, const void *from, size_t len)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(len) : : "memory");
}

static void pool_finish(struct run *run, int nr)
{
	for (int i = 0; i < nr; i++) {
		if (run->results[i].res < 0)
			die("an operation", run->results[i].res);
		if ((uint32_t)run->results[i].res != (run->remove ? 0 : run->size))
			die("a block's length", -EPROTO);
		if (run->way && !(run->results[i].flags & run->way))
			die("the way that a block went", -EREMOTEIO);
		if (run->staged)
			copy(run->device + run->results[i].cookie * run->size,
			     buffer_at(run, (unsigned int)run->results[i].cookie),
			     run->size);
	}
}

static void pool_op(struct run *run, unsigned int i)
{
	struct kvblk_op *op = &run->ops[i];

	/* gets and deletes of all engines share their blocks, puts use new keys */
	snprintf(run->key[i], sizeof(run->key[i]), "icount/%08x/%-8.8s/%08x",
		 run->size, run->put ? run->engine->name : "get",
		 (unsigned int)run->number[i]);
	if (run->put)
		kvblk_prep_put(op, run->key[i], KEY_LEN, &run->pieces[i], 1);
	else if (run->remove)
		kvblk_prep_delete(op, run->key[i], KEY_LEN);
	else
		kvblk_prep_get(op, run->key[i], KEY_LEN, &run->pieces[i], 1);
	op->cookie = i;
}

static void ioctl_finish(struct run *run)
{
	int err = kvblk_submit(run->kv, run->ops, run->depth, run->results, 0);

	if (err)
		die("kvblk_submit", err);
	pool_finish(run, (int)run->depth);
}

static void pool_open(struct run *run)
{
	int err = run->kv ? 0 : kvblk_open(run->target, 0, &run->kv);

	if (err)
		die(run->target, err);
	run->ops = need(calloc(run->depth, sizeof(*run->ops)));
	run->pieces = need(calloc(run->depth, sizeof(*run->pieces)));
	run->results = need(calloc(run->depth, sizeof(*run->results)));
	for (unsigned int i = 0; i < run->depth; i++)
		kvblk_prep_piece(&run->pieces[i], NULL, (uintptr_t)buffer_at(run, i), run->size);
}

/* Put the blocks for gets and deletes. */
static void pool_fill(struct run *run)
{
	for (uint64_t n = 0; n < run->nr_blocks; n++) {
		int err;

		run->number[0] = run->first + n;
		pool_op(run, 0);
		kvblk_prep_put(&run->ops[0], run->key[0], KEY_LEN, &run->pieces[0], 1);
		err = kvblk_submit(run->kv, run->ops, 1, run->results, 0);
		if (!err && run->results[0].res < 0 &&
		    run->results[0].res != -EEXIST)
			err = run->results[0].res;
		if (err)
			die("a put", err);
	}
}

/* Register the buffers with the file. */
static void register_regions(struct run *run)
{
	struct kvblk_mem_info info = { .size = sizeof(info) };
	int err = run->mem ? 0 : kvblk_mem_register(run->kv, run->buffer, buffer_bytes(run),
						    NULL, &run->mem);

	if (err)
		die("kvblk_mem_register", err);
	if (kvblk_mem_get_info(run->mem, &info) || info.kind != KVBLK_MEM_REGISTERED)
		die("kvblk_mem_register", -EXDEV);
	for (unsigned int i = 0; i < run->depth; i++)
		kvblk_prep_piece(&run->pieces[i], run->mem, offset_of(run, i), run->size);
}

static void pool_create(struct run *run)
{
	pool_open(run);
	/* in turn, so that the blocks of a task are neighbours */
	if (run->task)
		meet();
	if (!run->put)
		pool_fill(run);
	if (!run->task)
		meet();
}

static void ioctl_create(struct run *run)
{
	pool_create(run);
	if (run->engine->fixed)
		register_regions(run);
}

static void uring_create(struct run *run)
{
	const struct kvblk_queue_options options = {
		.size = sizeof(options),
		.depth = run->depth,
		.flags = KVBLK_QUEUE_ONE_THREAD | KVBLK_QUEUE_UNCANCELABLE,
	};
	int err;

	ioctl_create(run);
	run->completions = need(calloc(run->depth, sizeof(*run->completions)));
	err = kvblk_queue_create(run->kv, &options, &run->queue);
	if (err)
		die("a queue", err);
}

static void uring_finish(struct run *run)
{
	int err = kvblk_queue_submit(run->queue, run->ops, run->depth, 0, NULL);

	if (err)
		die("kvblk_queue_submit", err);
	for (unsigned int left = run->depth; left;) {
		int nr = kvblk_queue_wait(run->queue, run->completions, left, left, 0);

		if (nr < 0)
			die("kvblk_queue_wait", nr);
		for (int i = 0; i < nr; i++)
			run->results[i] = (struct kvblk_result){
				.cookie = run->completions[i].cookie,
				.res = run->completions[i].res,
				.flags = run->completions[i].flags,
			};
		pool_finish(run, nr);
		left -= (unsigned int)nr;
	}
}

/* Raw engine: a block device, as fio uses it. */

static void raw_create(struct run *run)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
			 IORING_SETUP_DEFER_TASKRUN,
	};
	struct iovec all = { run->buffer, buffer_bytes(run) };
	int err;

	run->fd = open(run->target, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (run->fd < 0)
		die(run->target, -errno);
	err = io_uring_queue_init_params(run->depth, &run->ring, &params);
	if (!err)
		err = io_uring_register_files(&run->ring, &run->fd, 1);
	if (!err && run->engine->fixed)
		err = io_uring_register_buffers(&run->ring, &all, 1);
	if (err)
		die("a ring", err);
}

static void raw_start(struct run *run, unsigned int i)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&run->ring);
	uint64_t at = run->number[i] % run->nr_blocks * run->size;
	void *buffer = buffer_at(run, i);

	if (run->engine->fixed && run->put)
		io_uring_prep_write_fixed(sqe, 0, buffer, run->size, at, 0);
	else if (run->engine->fixed)
		io_uring_prep_read_fixed(sqe, 0, buffer, run->size, at, 0);
	else if (run->put)
		io_uring_prep_write(sqe, 0, buffer, run->size, at);
	else
		io_uring_prep_read(sqe, 0, buffer, run->size, at);
	sqe->flags |= IOSQE_FIXED_FILE;
}

static void raw_finish(struct run *run)
{
	struct io_uring_cqe *cqe;
	unsigned int head, nr = 0;
	int err = io_uring_submit_and_wait(&run->ring, run->depth);

	if (err < 0)
		die("io_uring_submit_and_wait", err);
	io_uring_for_each_cqe(&run->ring, head, cqe) {
		if (cqe->res != (int)run->size)
			die("a transfer", cqe->res < 0 ? cqe->res : -EIO);
		nr++;
	}
	if (nr != run->depth)
		die("completions", -EPROTO);
	io_uring_cq_advance(&run->ring, nr);
}

/* Engines lookup and lease: the keys of a prefix, from a random block on. */

static void lookup_create(struct run *run)
{
	pool_create(run);
	run->prefix = need(malloc((size_t)run->depth * KEY_LEN));
}

static void lookup_start(struct run *run, unsigned int i)
{
	/* distinct blocks, because a block that is leased already costs less */
	run->number[i] = run->first + (run->number[0] - run->first + i) % run->nr_blocks;
	pool_op(run, i);
	memcpy(run->prefix + (size_t)i * KEY_LEN, run->key[i], KEY_LEN);
}

static uint64_t lookup(struct run *run, unsigned int lease_ms)
{
	struct kvblk_prefix found = { .size = sizeof(found) };
	int err = kvblk_lookup_prefix(run->kv, run->prefix, KEY_LEN, run->depth,
				      lease_ms, &found);

	if (err)
		die("kvblk_lookup_prefix", err);
	if (found.nr_leading != run->depth)
		die("a lookup", -ENOENT);
	return found.lease;
}

static void lookup_finish(struct run *run)
{
	lookup(run, 0);
}

static void lease_finish(struct run *run)
{
	int err = kvblk_lease_release(run->kv, lookup(run, LEASE_MS));

	if (err)
		die("kvblk_lease_release", err);
}

static const struct engine engines[] = {
	{ .name = "uring", .create = uring_create, .start = pool_op, .finish = uring_finish },
	{ .name = "uring-fixed", .fixed = true,
	  .create = uring_create, .start = pool_op, .finish = uring_finish },
	{ .name = "ioctl", .create = ioctl_create, .start = pool_op, .finish = ioctl_finish },
	{ .name = "ioctl-fixed", .fixed = true,
	  .create = ioctl_create, .start = pool_op, .finish = ioctl_finish },
	{ .name = "lookup", .lookup = true,
	  .create = lookup_create, .start = lookup_start, .finish = lookup_finish },
	{ .name = "lease", .lookup = true,
	  .create = lookup_create, .start = lookup_start, .finish = lease_finish },
	{ .name = "raw", .create = raw_create, .start = raw_start, .finish = raw_finish },
	{ .name = "raw-fixed", .fixed = true,
	  .create = raw_create, .start = raw_start, .finish = raw_finish },
};

static uint64_t draw(struct run *run)
{
	if (run->put || run->remove)
		return run->nr_put++;
	/* xorshift64 */
	run->random ^= run->random << 13;
	run->random ^= run->random >> 7;
	run->random ^= run->random << 17;
	return run->first + run->random % run->nr_blocks;
}

static void run_round(struct run *run)
{
	for (unsigned int done = 0; done < run->nr_ops; done += run->depth) {
		for (unsigned int i = 0; i < run->depth; i++) {
			run->number[i] = draw(run);
			run->engine->start(run, i);
		}
		run->engine->finish(run);
	}
}

static void *run_rounds(void *arg)
{
	struct run *run = arg;

	run->number = need(calloc(run->depth, sizeof(*run->number)));
	run->key = need(calloc(run->depth, sizeof(*run->key)));
	run->engine->create(run);
	run_round(run);
	for (unsigned int i = 0; i < run->nr_rounds; i++) {
		meet();
		if (!run->task)
			START();
		meet();
		run_round(run);
		meet();
		if (!run->task)
			STOP();
	}
	return NULL;
}

static void pin(unsigned int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		die("sched_setaffinity", -errno);
}

static void *second_task(void *run)
{
	pin(1);
	return run_rounds(run);
}

/* Run the rounds in two processes, or in two threads with a common file. */
static int run_pair(struct run *run, bool shared)
{
	struct run other;
	pthread_t thread;
	pid_t child;
	int status;

	if (shared) {
		get_buffers(run);
		pool_open(run);
		if (run->engine->fixed)
			register_regions(run);
	}
	other = *run;
	other.task = 1;
	other.random ^= 0x9e3779b97f4a7c15ull;
	/* puts are of new blocks always, and each block is deleted once */
	if (!shared || run->put || run->remove) {
		other.first = TASK_BLOCKS;
		other.nr_put = TASK_BLOCKS;
	}
	pin(0);
	if (shared) {
		if (pthread_create(&thread, NULL, second_task, &other))
			die("pthread_create", -EAGAIN);
		run_rounds(run);
		pthread_join(thread, NULL);
		return 0;
	}
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		get_buffers(&other);
		second_task(&other);
		exit(0);
	}
	if (child < 0)
		die("fork", -errno);
	get_buffers(run);
	run_rounds(run);
	return waitpid(child, &status, 0) == child && !status ? 0 : 1;
}

static int run_command(char **argv)
{
	pid_t child;
	int status;

	START();
	child = fork();
	if (!child) {
		execvp(argv[0], argv);
		die(argv[0], -errno);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		die("fork", -errno);
	STOP();
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static unsigned int number(const char *what, const char *text)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*end || !value || value > UINT32_MAX / 2) {
		fprintf(stderr, "icount_ops: %s %s: must be a number\n", what, text);
		exit(2);
	}
	return (unsigned int)value;
}

static bool parse_way(struct run *run, const char *way)
{
	run->staged = strcmp(way, "staged") == 0;
	if (run->staged || strcmp(way, "direct") == 0)
		run->way = KVBLK_RES_DIRECT;
	else if (strcmp(way, "bounced") == 0)
		run->way = KVBLK_RES_BOUNCED;
	else if (strcmp(way, "memory") == 0)
		run->way = KVBLK_RES_MEMORY;
	else
		fprintf(stderr, "icount_ops: no way %s\n", way);
	return run->way;
}

int main(int argc, char **argv)
{
	struct run run = { .random = 88172645463325252ull };
	bool shared = argc > 1 && strcmp(argv[1], "shared") == 0;

	if (argc > 2 && strcmp(argv[1], "run") == 0)
		return run_command(argv + 2);
	if (shared || (argc > 1 && strcmp(argv[1], "own") == 0)) {
		pair = mmap(NULL, sizeof(*pair), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (pair == MAP_FAILED)
			return 1;
		argc--;
		argv++;
	}
	if (argc != 8 && argc != 10) {
		fprintf(stderr, "usage: icount_ops [own|shared] ENGINE OP SIZE DEPTH OPS ROUNDS TARGET [MEMORY WAY]\n"
				"       icount_ops run COMMAND...\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
		if (strcmp(argv[1], engines[i].name) == 0)
			run.engine = &engines[i];
	}
	run.put = strcmp(argv[2], "put") == 0;
	run.remove = strcmp(argv[2], "delete") == 0;
	if (!run.engine || run.engine->lookup != (strcmp(argv[2], "lookup") == 0) ||
	    (!run.put && !run.remove && !run.engine->lookup && strcmp(argv[2], "get") != 0)) {
		fprintf(stderr, "icount_ops: no engine %s, or no operation %s\n",
			argv[1], argv[2]);
		return 2;
	}
	run.size = number("SIZE", argv[3]);
	run.depth = number("DEPTH", argv[4]);
	run.nr_ops = number("OPS", argv[5]);
	run.nr_rounds = number("ROUNDS", argv[6]);
	run.target = argv[7];
	run.memory = argc > 8 ? argv[8] : "host";
	if (argc > 9 && !parse_way(&run, argv[9]))
		return 2;
	if (run.nr_ops % run.depth) {
		fprintf(stderr, "icount_ops: OPS must be a multiple of DEPTH\n");
		return 2;
	}
	run.nr_blocks = BLOCKS_BYTES / run.size;
	if (run.nr_blocks > BLOCKS_MAX)
		run.nr_blocks = BLOCKS_MAX;
	/* each block is deleted once */
	if (run.remove)
		run.nr_blocks = (uint64_t)run.nr_ops * (run.nr_rounds + 1);
	/* as in Python: see uapi.rst */
	signal(SIGPIPE, SIG_IGN);
	if (pair)
		return run_pair(&run, shared);
	get_buffers(&run);
	run_rounds(&run);
	return 0;
}
