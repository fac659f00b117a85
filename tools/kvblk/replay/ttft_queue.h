/* SPDX-License-Identifier: MIT */
/*
 * Servers with a queue in front of them, for ttft.h.
 *
 * The rule: requests that load from a tier at the same time have equal shares of its throughput,
 * and prestaging has what they leave. So the time of a load depends on the others, and events are
 * taken in the order of time.
 */
#ifndef KVBLK_REPLAY_TTFT_QUEUE_H
#define KVBLK_REPLAY_TTFT_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct ttft_load - speed at which blocks of a tier are loaded
 * @bytes_s: bytes a second, of all loads together; 0: not given
 * @latency_s: time until the first block, once a request
 */
struct ttft_load {
	double bytes_s;
	double latency_s;
};

/**
 * struct ttft_job - a request
 * @arrival_s: arrival, no earlier than the arrival of the job before
 * @dram: blocks found in memory
 * @flash: blocks found on flash
 * @compute_s: time to compute the other tokens
 */
struct ttft_job {
	double arrival_s;
	uint32_t dram;
	uint32_t flash;
	double compute_s;
};

/**
 * struct ttft_queue_opts - servers and tiers
 * @nr_servers: servers, each with one request at a time
 * @block: bytes of a block
 * @dram: loads from memory
 * @flash: loads from flash
 * @prestage: load the blocks of waiting requests from flash to memory, one request at a time
 */
struct ttft_queue_opts {
	unsigned int nr_servers;
	double block;
	struct ttft_load dram;
	struct ttft_load flash;
	bool prestage;
};

/*
 * Serve @nr jobs in order of arrival. Stores the time of each from its arrival to its first token
 * to @times_s, and the time that all servers together were busy to @busy_s. Returns 0 or -ENOMEM.
 */
int ttft_queue_run(const struct ttft_queue_opts *o, const struct ttft_job *jobs, size_t nr,
		   double *times_s, double *busy_s);

#endif
