/* SPDX-License-Identifier: MIT */
/*
 * kvblk replay: the requests of a trace, executed as a runtime would. replay.c parses
 * options and reports, run.c executes the requests, bench/pattern.c generates and checks the
 * bytes, bench/histogram.c counts the times.
 *
 * A request looks up its blocks in prefix order with a lease, gets the leading blocks that
 * are present, puts the others as one chain, and releases the lease. The time between
 * requests is that of the trace, or none.
 */
#ifndef KVBLK_REPLAY_H
#define KVBLK_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench/histogram.h"
#include "lib/kvblk.h"
#include "replay/trace.h"

/* "replay-v/BLOCKSIZE/ID", both in hex: different runs share no block */
#define REPLAY_KEY_LEN	34

/**
 * struct replay_opts - options of a replay
 * @pool: name of the pool, or path of the node
 * @block_size: bytes in each block
 * @buffer_size: bytes of memory for each thread, at least one block
 * @speed: seconds of the trace in a second; 0: as fast as possible
 * @nr_threads: threads, each with one request at a time
 * @nr_reqs: number of requests, from the first one on
 * @verify: store the pattern, check every byte that a get returns
 */
struct replay_opts {
	const char *pool;
	uint32_t block_size;
	uint64_t buffer_size;
	double speed;
	unsigned int nr_threads;
	size_t nr_reqs;
	bool verify;
};

/**
 * enum replay_counter - counters
 * @REPLAY_REQUESTS: completed requests
 * @REPLAY_REFS: blocks of these requests
 * @REPLAY_HITS: blocks of the leading runs, got
 * @REPLAY_GETS: gets
 * @REPLAY_GET_MISSES: gets that missed although the lookup found the block
 * @REPLAY_PUTS: stored blocks
 * @REPLAY_DECLINED: blocks declined by the admission policy, with the rest of their chains,
 *	which is then not offered
 * @REPLAY_EXISTS: puts of blocks that existed or were being written
 * @REPLAY_PUT_ERRORS: puts that failed for another reason
 * @REPLAY_PUT_BYTES: stored bytes
 * @REPLAY_GET_BYTES: bytes got
 * @REPLAY_VERIFIED: bytes of @REPLAY_GET_BYTES that were checked
 * @REPLAY_DIRECT: blocks moved without a bounce
 * @REPLAY_LATE_MS: real time: sum of the delays with which requests began
 * @REPLAY_COUNTERS: number of counters
 */
enum replay_counter {
	REPLAY_REQUESTS,
	REPLAY_REFS,
	REPLAY_HITS,
	REPLAY_GETS,
	REPLAY_GET_MISSES,
	REPLAY_PUTS,
	REPLAY_DECLINED,
	REPLAY_EXISTS,
	REPLAY_PUT_ERRORS,
	REPLAY_PUT_BYTES,
	REPLAY_GET_BYTES,
	REPLAY_VERIFIED,
	REPLAY_DIRECT,
	REPLAY_LATE_MS,
	REPLAY_COUNTERS,
};

/**
 * enum replay_time - histograms
 * @REPLAY_GET_BATCH: time of a batch of gets
 * @REPLAY_GET_BLOCK: time of a batch of gets divided by its blocks, once for each block
 * @REPLAY_PUT_BATCH: time of a batch of puts
 * @REPLAY_PUT_BLOCK: time of a batch of puts divided by its blocks, once for each block
 * @REPLAY_LOOKUP: time of a lookup
 * @REPLAY_TIMES: number of histograms
 */
enum replay_time {
	REPLAY_GET_BATCH,
	REPLAY_GET_BLOCK,
	REPLAY_PUT_BATCH,
	REPLAY_PUT_BLOCK,
	REPLAY_LOOKUP,
	REPLAY_TIMES,
};

/**
 * struct replay_tally - counters and times; one thread writes, any thread reads
 * @counter: by &enum replay_counter
 * @time: by &enum replay_time
 */
struct replay_tally {
	_Atomic uint64_t counter[REPLAY_COUNTERS];
	struct hist time[REPLAY_TIMES];
};

/**
 * struct replay_failure - why a replay ended early
 * @err: negative errno of a call that failed as a whole, else 0
 * @what: the call, or "wrong byte"; NULL: no failure
 * @key: wrong byte: key of the block
 * @offset: wrong byte: offset in the block
 * @got: wrong byte: value read
 * @want: wrong byte: value stored
 * @length: wrong byte: length of the block read
 */
struct replay_failure {
	int err;
	const char *what;
	char key[REPLAY_KEY_LEN];
	uint64_t offset;
	uint8_t got;
	uint8_t want;
	uint32_t length;
};

struct replay;

/* Open the pool's node and start the threads. Returns NULL after a message on error. */
struct replay *replay_start(const struct replay_opts *opts,
			    const struct trace *trace);

/* Returns the time when the threads started, on the clock of replay_now_ns(). */
uint64_t replay_start_ns(const struct replay *replay);

/* Returns a file descriptor that is readable when all threads have finished. */
int replay_fd(const struct replay *replay);

/* Add up all threads' counters and times to @tally. */
void replay_tally(const struct replay *replay, struct replay_tally *tally);

/* Ask the threads to end after their current batch. */
void replay_stop(struct replay *replay);

/* Wait for the threads and free @replay. @failure: why the replay ended early. */
void replay_end(struct replay *replay, struct replay_tally *tally,
		struct replay_failure *failure);

static inline uint64_t replay_count(const struct replay_tally *tally,
				    enum replay_counter counter)
{
	return atomic_load_explicit(&tally->counter[counter],
				    memory_order_relaxed);
}

/* CLOCK_MONOTONIC */
uint64_t replay_now_ns(void);

#endif
