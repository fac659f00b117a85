// SPDX-License-Identifier: MIT
/* Log-linear histograms, see histogram.h. */
#include "bench/histogram.h"

static unsigned int bucket_of(uint64_t ns)
{
	unsigned int shift, bucket;

	if (ns < HIST_STEPS)
		return (unsigned int)ns;
	shift = 63 - (unsigned int)__builtin_clzll(ns) - HIST_STEPS_SHIFT;
	bucket = (shift + 1) * HIST_STEPS +
		 (unsigned int)((ns >> shift) & (HIST_STEPS - 1));
	return bucket < HIST_BUCKETS ? bucket : HIST_BUCKETS - 1;
}

/* Returns the largest value that falls into the bucket. */
static uint64_t bucket_top(unsigned int bucket)
{
	unsigned int shift;

	if (bucket < HIST_STEPS)
		return bucket;
	shift = bucket / HIST_STEPS - 1;
	return ((uint64_t)(HIST_STEPS + bucket % HIST_STEPS + 1) << shift) - 1;
}

static void bump(_Atomic uint64_t *value, uint64_t n)
{
	/* no locked add: there is a single writer */
	atomic_store_explicit(value,
			      atomic_load_explicit(value, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static uint64_t read_count(const _Atomic uint64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

void hist_add(struct hist *h, uint64_t ns, uint64_t n)
{
	bump(&h->count[bucket_of(ns)], n);
	if (ns > read_count(&h->max))
		atomic_store_explicit(&h->max, ns, memory_order_relaxed);
}

void hist_merge(struct hist *to, const struct hist *from)
{
	uint64_t max = read_count(&from->max);

	for (unsigned int i = 0; i < HIST_BUCKETS; i++)
		bump(&to->count[i], read_count(&from->count[i]));
	if (max > read_count(&to->max))
		atomic_store_explicit(&to->max, max, memory_order_relaxed);
}

uint64_t hist_total(const struct hist *h)
{
	uint64_t total = 0;

	for (unsigned int i = 0; i < HIST_BUCKETS; i++)
		total += read_count(&h->count[i]);
	return total;
}

uint64_t hist_quantile(const struct hist *h, double q)
{
	uint64_t total = hist_total(h), max = read_count(&h->max), seen = 0;
	uint64_t rank;

	if (!total)
		return 0;
	rank = (uint64_t)(q * (double)total);
	if (rank >= total)
		rank = total - 1;
	for (unsigned int i = 0; i < HIST_BUCKETS; i++) {
		seen += read_count(&h->count[i]);
		if (seen > rank)
			return bucket_top(i) < max ? bucket_top(i) : max;
	}
	return max;
}
