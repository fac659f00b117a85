/* SPDX-License-Identifier: MIT */
/*
 * Log-linear histograms of times: 32 steps in each power of two, so a percentile is at most
 * 3 % too high. One thread adds, any thread reads.
 */
#ifndef KVBLK_HIST_H
#define KVBLK_HIST_H

#include <stdatomic.h>
#include <stdint.h>

#define HIST_STEPS_SHIFT	5
#define HIST_STEPS		(1u << HIST_STEPS_SHIFT)
#define HIST_OCTAVES		40	/* up to 2^44 ns, some hours */
#define HIST_BUCKETS		((HIST_OCTAVES + 1) * HIST_STEPS)

/**
 * struct hist - a histogram; all zeroes is an empty one
 * @count: samples by bucket
 * @max: largest sample, ns
 */
struct hist {
	_Atomic uint64_t count[HIST_BUCKETS];
	_Atomic uint64_t max;
};

/* Add @n samples of @ns. Only the writer's thread may call this function. */
void hist_add(struct hist *h, uint64_t ns, uint64_t n);

/* Add the samples of @from to @to. @from may grow meanwhile. */
void hist_merge(struct hist *to, const struct hist *from);

uint64_t hist_total(const struct hist *h);

/* Returns an upper bound, in ns, of the quantile @q (0 to 1); 0 for an empty histogram. */
uint64_t hist_quantile(const struct hist *h, double q);

#endif
