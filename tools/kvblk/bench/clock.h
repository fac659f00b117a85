/* SPDX-License-Identifier: MIT */
/* The time of operations, for benchmarks. */
#ifndef KVBLK_CLOCK_H
#define KVBLK_CLOCK_H

#include <stdint.h>

/*
 * Measure the rate of the CPU's time-stamp counter, which takes 50 ms. Call it once, before
 * clock_ns() and before other threads start.
 */
void clock_init(void);

/*
 * Return monotonic time in ns, from the time-stamp counter if its rate is constant, as fio does:
 * on some machines clock_gettime() is a system call, which takes longer than a small operation.
 */
uint64_t clock_ns(void);

#endif
