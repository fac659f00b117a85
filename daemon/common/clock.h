/* SPDX-License-Identifier: MIT */
/* CLOCK_MONOTONIC in whole units. */
#ifndef KVBLKD_CLOCK_H
#define KVBLKD_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static inline int64_t clock_s(void)
{
	return (int64_t)(clock_us() / 1000000);
}

#endif
