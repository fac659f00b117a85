/* SPDX-License-Identifier: MIT */
/*
 * kvblk bench: what a pool gives. bench.c parses options and reports,
 * run.c has the threads, memory.c their memory, engine_uring.c and
 * engine_ioctl.c are the ways into the kernel that a thread's operations take.
 *
 * Each thread keeps as many operations in flight as the engine lets it, with
 * memory that is there before the clock starts, and that the CPU then keeps off.
 * An operation that fails, and a miss, fail the run: a figure is one of
 * operations that did what they should.
 */
#ifndef KVBLK_BENCH_H
#define KVBLK_BENCH_H

#include <stdint.h>
#include <sys/uio.h>

#include "bench/histogram.h"
#include "host/topo.h"
#include "lib/kvblk.h"

/* "bench/SIZE/RUN/NUMBER" in hex: a put run's blocks are its own */
#define BENCH_KEY_LEN	36

struct bench_queue;

/**
 * struct bench_engine - a way to have operations in flight
 * @name: as given to --engine
 * @registers: operations are on memory that was registered before
 * @create: a queue for up to @depth operations on @kv, for one thread, each of
 *	one piece within @memory. Returns 0 or a negative errno
 * @destroy: of a queue with nothing in flight
 * @start: take an operation, when less than @depth are in flight. It stays the
 *	caller's and must stay as it is until its result is there. Returns 0 or
 *	a negative errno
 * @reap: have all that was started under way, wait until at least one result
 *	is there. Returns how many are, with *@results set to them, good until
 *	the next call; or a negative errno. A result is its operation's by the
 *	cookie
 */
struct bench_engine {
	const char *name;
	bool registers;
	int (*create)(struct kvblk *kv, unsigned int depth,
		      const struct iovec *memory, struct bench_queue **queue);
	void (*destroy)(struct bench_queue *queue);
	int (*start)(struct bench_queue *queue, const struct kvblk_op *op);
	int (*reap)(struct bench_queue *queue,
		    const struct kvblk_result **results);
};

extern const struct bench_engine bench_uring;
extern const struct bench_engine bench_uring_fixed;
extern const struct bench_engine bench_ioctl;

/**
 * enum bench_op - what is measured
 * @BENCH_PUT: puts of blocks that are not there
 * @BENCH_GET: gets, in random order, of blocks that were put before the clock
 *	started
 * @BENCH_EXISTS: lookups of depth keys of such blocks
 */
enum bench_op {
	BENCH_PUT,
	BENCH_GET,
	BENCH_EXISTS,
};

/**
 * struct bench_opts - what to do
 * @pool: name or path of the node
 * @engine: the way into the kernel
 * @op: what to measure
 * @size: bytes in a block
 * @depth: operations in flight for each thread, or keys in a lookup
 * @nr_threads: threads
 * @seconds: end after this time; 0: when @count is done
 * @count: end after so many operations; 0: when the time is over
 * @nr_blocks: get, exists: different blocks
 * @gpu: the blocks' memory is a PCI device's
 * @mem_file: the file that gives it; NULL: any device's
 */
struct bench_opts {
	const char *pool;
	const struct bench_engine *engine;
	enum bench_op op;
	uint32_t size;
	unsigned int depth;
	unsigned int nr_threads;
	double seconds;
	uint64_t count;
	uint64_t nr_blocks;
	bool gpu;
	const char *mem_file;
};

/**
 * struct bench_result - what came out
 * @ns: from the first operation's start to the last one's end
 * @nr_ops: operations that ended in this time; exists: keys
 * @nr_direct: of those, without a bounce
 * @nr_bounced: of those, through kernel memory
 * @mem_device: address of the PCI device whose memory it was, or ""
 * @integrity: the pool checks checksums on gets
 * @time: from an operation's start to its end; exists: a lookup's
 */
struct bench_result {
	uint64_t ns;
	uint64_t nr_ops;
	uint64_t nr_direct;
	uint64_t nr_bounced;
	char mem_device[TOPO_NAME];
	bool integrity;
	struct hist time;
};

/**
 * struct bench_mem - where blocks' memory comes from
 * @fd: gives a device's memory to those who map it; -1: the host's
 * @device: the device's address
 */
struct bench_mem {
	int fd;
	char device[TOPO_NAME];
};

/*
 * Finds memory as @opts wants it, @bytes of it in all; says what there is not.
 * Returns an enum cli_exit; bench_mem_close() in any case.
 */
int bench_mem_open(const struct bench_opts *opts, uint64_t bytes,
		   struct bench_mem *mem);
void bench_mem_close(struct bench_mem *mem);

/* Page-aligned memory, for munmap(); or NULL, after a message */
void *bench_mem_map(const struct bench_mem *mem, size_t len);

/* Runs; says on stderr what fails. Returns an enum cli_exit. */
int bench_run(const struct bench_opts *opts, struct bench_result *result);

#endif
