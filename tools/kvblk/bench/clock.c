// SPDX-License-Identifier: MIT
/* The time of operations. */
#include <time.h>

#include "bench/clock.h"

#define NS_PER_S	1000000000ull
#define CALIBRATE_NS	50000000ull
#define TRIES		8

static uint64_t system_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

#ifdef __x86_64__
#include <cpuid.h>
#include <x86intrin.h>

/* Advanced power management information of CPUID (AMD's and Intel's manuals) */
#define CPUID_POWER	0x80000007u
#define INVARIANT_TSC	(1u << 8)

/* A moment, by both clocks. */
struct moment {
	uint64_t ns, ticks;
};

/* 0: the counter's rate may change */
static double ns_per_tick;
static struct moment begin;

/* Read both clocks. Returns the closest pair of some tries, because a task can be preempted. */
static struct moment read_both(void)
{
	uint64_t least = UINT64_MAX;
	struct moment moment = { 0 };

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = __rdtsc(), ns = system_ns(), took = __rdtsc() - before;

		if (took < least) {
			least = took;
			moment = (struct moment){ .ns = ns, .ticks = before + took / 2 };
		}
	}
	return moment;
}

void clock_init(void)
{
	const struct timespec pause = { .tv_nsec = CALIBRATE_NS };
	unsigned int eax, ebx, ecx, edx;
	struct moment end;

	if (!__get_cpuid(CPUID_POWER, &eax, &ebx, &ecx, &edx) || !(edx & INVARIANT_TSC))
		return;
	begin = read_both();
	nanosleep(&pause, NULL);
	end = read_both();
	ns_per_tick = (double)(end.ns - begin.ns) / (double)(end.ticks - begin.ticks);
}

uint64_t clock_ns(void)
{
	if (ns_per_tick == 0)
		return system_ns();
	return begin.ns + (uint64_t)((double)(__rdtsc() - begin.ticks) * ns_per_tick);
}

#else

void clock_init(void)
{
}

uint64_t clock_ns(void)
{
	return system_ns();
}

#endif
