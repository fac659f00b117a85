/* SPDX-License-Identifier: MIT */
/*
 * kvblk bench: throughput and latency of a pool. bench.c parses options and reports, run.c
 * runs the threads, memory.c provides their memory. engine_uring.c and engine_ioctl.c are
 * the ways into the kernel.
 *
 * Each thread keeps as many operations in flight as its engine can. The memory is ready
 * before the clock starts, and the CPU does not touch it afterwards. A failed operation or a
 * miss fails the run, so that a figure counts only successful operations.
 */
#ifndef KVBLK_BENCH_H
#define KVBLK_BENCH_H

#include <stdint.h>

#include "bench/histogram.h"
#include "host/topo.h"
#include "lib/kvblk.h"

/* "bench/SIZE/RUN/NUMBER" in hex; each put run has its own blocks */
#define BENCH_KEY_LEN	36

struct bench_queue;

/**
 * struct bench_engine - a way to keep operations in flight
 * @name: value of --engine
 * @registers: operations use memory that was registered before
 * @create: create a queue for up to @depth operations on @kv, for one thread. Returns 0 or
 *	a negative errno
 * @destroy: destroy a queue with nothing in flight
 * @start: start an operation, if less than @depth are in flight. The caller keeps what the
 *	operation points to unchanged until its result arrives. Returns 0 or a negative errno
 * @reap: submit all started operations and wait for at least one result. Returns the number
 *	of results and sets *@results, valid until the next call; or returns a negative
 *	errno. The cookie identifies the operation of a result
 */
struct bench_engine {
	const char *name;
	bool registers;
	int (*create)(struct kvblk *kv, unsigned int depth, struct bench_queue **queue);
	void (*destroy)(struct bench_queue *queue);
	int (*start)(struct bench_queue *queue, const struct kvblk_op *op);
	int (*reap)(struct bench_queue *queue,
		    const struct kvblk_result **results);
};

extern const struct bench_engine bench_uring;
extern const struct bench_engine bench_uring_fixed;
extern const struct bench_engine bench_ioctl;

/**
 * enum bench_op - operations that can be measured
 * @BENCH_PUT: puts of new blocks
 * @BENCH_GET: gets, in random order, of blocks that were put before the clock started
 * @BENCH_EXISTS: lookups of depth keys of such blocks
 */
enum bench_op {
	BENCH_PUT,
	BENCH_GET,
	BENCH_EXISTS,
};

/**
 * struct bench_opts - options of a run
 * @pool: name of the pool, or path of the node
 * @engine: way into the kernel
 * @op: operation to measure
 * @size: bytes in a block
 * @depth: operations in flight for each thread, or keys in a lookup
 * @nr_threads: threads
 * @seconds: time limit; 0: run until @count is reached
 * @count: number of operations; 0: run until the time limit
 * @nr_blocks: get, exists: number of different blocks
 * @gpu: the blocks are in memory of a PCI device
 * @mem_file: file to map the device's memory from; NULL: any device
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
 * struct bench_result - result of a run
 * @ns: time from the first operation's start to the last one's end
 * @nr_ops: operations that ended in this time; exists: keys
 * @nr_direct: operations of @nr_ops without a bounce
 * @nr_bounced: operations of @nr_ops through kernel memory
 * @mem_device: address of the PCI device that provided the memory, or ""
 * @integrity: the pool verifies checksums on gets
 * @time: time from an operation's start to its end; exists: of a lookup
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
 * struct bench_mem - source of the blocks' memory
 * @fd: file to map the device's memory from; -1: host memory
 * @device: address of the device
 */
struct bench_mem {
	int fd;
	char device[TOPO_NAME];
};

/*
 * Find @bytes of memory of the kind that @opts asks for, or print the reason. Returns an
 * enum cli_exit. The caller calls bench_mem_close() in any case.
 */
int bench_mem_open(const struct bench_opts *opts, uint64_t bytes,
		   struct bench_mem *mem);
void bench_mem_close(struct bench_mem *mem);

/* Returns page-aligned memory, for munmap(); NULL after a message. */
void *bench_mem_map(const struct bench_mem *mem, size_t len);

/* Run the measurement; print failures to stderr. Returns an enum cli_exit. */
int bench_run(const struct bench_opts *opts, struct bench_result *result);

#endif
