/* SPDX-License-Identifier: MIT */
/*
 * kvblk replay: a trace's requests as a runtime would make them. replay.c
 * parses options and reports, run.c does the requests, bench/pattern.c makes
 * and checks the bytes, bench/histogram.c counts the times.
 *
 * A request looks up its blocks in prefix order with a lease, gets the leading
 * ones that are present, puts the others as one chain, releases the lease. The
 * time between requests is the trace's, or none.
 */
#ifndef KVBLK_REPLAY_H
#define KVBLK_REPLAY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench/histogram.h"
#include "lib/kvblk.h"
#include "replay/trace.h"

/* "replay-v/BLOCKSIZE/ID", both in hex: runs that differ share no block */
#define REPLAY_KEY_LEN	34

/**
 * struct replay_opts - what to do
 * @pool: name or path of the node
 * @block_size: bytes in each block
 * @buffer_size: bytes of memory for each thread, at least one block
 * @speed: trace seconds in a second; 0: as fast as possible
 * @nr_threads: threads, each with one request at a time
 * @nr_reqs: requests to do, from the first on
 * @verify: store the pattern, check every byte that comes back
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
 * enum replay_counter - what is counted
 * @REPLAY_REQUESTS: requests done
 * @REPLAY_REFS: blocks they referenced
 * @REPLAY_HITS: of those, got as a part of the leading run
 * @REPLAY_GETS: gets done
 * @REPLAY_GET_MISSES: of those, misses, although the lookup found the block
 * @REPLAY_PUTS: blocks stored
 * @REPLAY_DECLINED: blocks declined by the admission policy, and the rest of
 *	their chains, which is not offered then
 * @REPLAY_EXISTS: puts of blocks that were here or on their way already
 * @REPLAY_PUT_ERRORS: puts that failed otherwise
 * @REPLAY_PUT_BYTES: bytes stored
 * @REPLAY_GET_BYTES: bytes got
 * @REPLAY_VERIFIED: of those, checked
 * @REPLAY_DIRECT: blocks moved without a bounce
 * @REPLAY_LATE_MS: real time: how much later than due requests began, summed
 * @REPLAY_COUNTERS: their number
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
 * enum replay_time - what is timed
 * @REPLAY_GET_BATCH: a batch of gets
 * @REPLAY_GET_BLOCK: the same by its number of blocks, once for each
 * @REPLAY_PUT_BATCH: a batch of puts
 * @REPLAY_PUT_BLOCK: the same by its number of blocks, once for each
 * @REPLAY_LOOKUP: a lookup
 * @REPLAY_TIMES: their number
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
 * struct replay_tally - what happened; one writer, read any time
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
 * @key: wrong byte: the block
 * @offset: wrong byte: where
 * @got: wrong byte: what came
 * @want: wrong byte: what was stored
 * @length: wrong byte: the block's length as it came
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

/* Opens the pool's node and starts the threads. NULL and a message on error. */
struct replay *replay_start(const struct replay_opts *opts,
			    const struct trace *trace);

/* When the threads started, of replay_now_ns()'s clock. */
uint64_t replay_start_ns(const struct replay *replay);

/* Readable when all threads are through. */
int replay_fd(const struct replay *replay);

/* Sums up what happened so far to @tally. */
void replay_tally(const struct replay *replay, struct replay_tally *tally);

/* Lets the threads end after the batch that they are at. */
void replay_stop(struct replay *replay);

/* Waits for the threads, frees; @failure tells why it ended early. */
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
