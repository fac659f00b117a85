// SPDX-License-Identifier: GPL-2.0
/*
 * The bandwidth of a device, by samples of its counts: measured while busy, kept when idle, and
 * forgotten after a while; and the times of reads that it gives.
 */
#include <linux/limits.h>

#include "kvblk_test.h"
#include "log/bandwidth.h"

#define MS		(1000ull * 1000)	/* ns */
#define MIB		(1ull << 20)

/* A device that completes @rate bytes a second, in order, in bios of @bio bytes. */
static struct device {
	struct kvblk_bandwidth bw;
	u64 now;			/* ns */
	u64 submitted, done;
	u64 rate, bio;
	u64 left;			/* ns of work that did not complete a bio */
	bool limited;			/* as of kvblk_bandwidth_sample() */
} device;

static int setup(void **state)
{
	device = (struct device) { .now = 1000 * MS, .rate = 32 * MIB, .bio = MIB };
	return 0;
}

/* Lets @ms pass, with a sample each @every ms, and @depth bios in flight unless 0. */
static void pass(u64 ms, u64 every, u64 depth)
{
	u64 each = device.bio * 1000 * MS / device.rate, i;

	for (i = 1; i <= ms; i++) {
		if (device.submitted < device.done + depth * device.bio)
			device.submitted = device.done + depth * device.bio;
		device.now += MS;
		for (device.left += MS; device.left >= each && device.done < device.submitted;) {
			device.left -= each;
			device.done += device.bio;
			if (device.submitted < device.done + depth * device.bio)
				device.submitted = device.done + depth * device.bio;
		}
		if (device.done == device.submitted)
			device.left = 0;
		if (!(i % every) && kvblk_bandwidth_due(&device.bw, device.now))
			kvblk_bandwidth_sample(&device.bw, device.now, device.submitted,
					       device.done, device.limited);
	}
}

static u64 rate(void)
{
	return kvblk_bandwidth_rate(&device.bw, device.now);
}

static u64 ms_of(u64 bytes)
{
	return kvblk_bandwidth_us(&device.bw, device.now, bytes) / 1000;
}

#define assert_about(x, y)	assert_in_range(x, (y) * 7 / 10, (y) * 13 / 10)

TEST_WITH(unknown_bandwidth_gives_no_time, setup, NULL)
{
	assert_int_equal(ms_of(64 * MIB), 0);
	/* a read each 100 ms that takes 31 ms */
	for (u32 i = 0; i < 50; i++) {
		pass(1, 1, 1);
		pass(99, 7, 0);
	}
	assert_int_equal(rate(), 0);
	assert_int_equal(ms_of(64 * MIB), 0);
}

TEST_WITH(a_busy_device_is_measured, setup, NULL)
{
	static const u64 depths[] = { 1, 2, 8, 64 }, everies[] = { 5, 13, 50, 1000 };

	for (u32 i = 0; i < 4; i++)
		for (u32 j = 0; j < 4; j++) {
			setup(NULL);
			pass(10000, everies[j], depths[i]);
			/* at any time, although a bio takes longer than the time to a sample */
			for (u32 k = 0; k < 100; k++) {
				pass(97, everies[j] % 97, depths[i]);
				assert_about(rate(), 32 * MIB);
			}
			/* I/O in flight comes first */
			assert_about(ms_of(MIB), (depths[i] + 1) * 1000 / 32);
			assert_about(ms_of(64 * MIB), (depths[i] + 64) * 1000 / 32);
		}
}

TEST_WITH(the_queue_drains, setup, NULL)
{
	pass(5000, 10, 16);
	assert_about(ms_of(MIB), 17000ull / 32);
	pass(1000, 10, 0);
	assert_int_equal(device.bw.queued, 0);
	assert_about(ms_of(MIB), 1000ull / 32);
}

/* Small reads, each after the other: latency limits them, and says nothing about the bandwidth. */
TEST_WITH(latency_is_no_bandwidth, setup, NULL)
{
	device.rate = 40 * MIB;
	device.bio = 4096;
	pass(5000, 5, 1);
	assert_int_equal(rate(), 0);
	/* measured by others before: kept */
	device.rate = 4096 * MIB;
	device.bio = MIB;
	pass(5000, 5, 64);
	assert_about(rate(), 4096 * MIB);
	pass(100, 5, 0);
	device.rate = 40 * MIB;
	device.bio = 4096;
	pass(5000, 5, 1);
	assert_about(rate(), 4096 * MIB);
}

TEST_WITH(the_bandwidth_follows_the_device, setup, NULL)
{
	device.rate = 2048 * MIB;
	pass(3000, 10, 32);
	assert_about(rate(), 2048 * MIB);
	device.rate = 32 * MIB;
	pass(8000, 10, 32);
	assert_about(rate(), 32 * MIB);
	device.rate = 2048 * MIB;
	pass(3000, 10, 32);
	assert_about(rate(), 2048 * MIB);
}

/* The first window without a completion is no bandwidth of 0. */
/* While I/O waits for what is in flight, only a higher rate counts, or a first one. */
TEST_WITH(a_limited_device_is_no_measure, setup, NULL)
{
	device.limited = true;
	pass(3000, 10, 1);
	assert_about(rate(), 32 * MIB);
	device.rate = 2048 * MIB;
	pass(3000, 10, 32);
	assert_about(rate(), 2048 * MIB);
	device.rate = 32 * MIB;
	pass(3000, 10, 1);
	assert_about(rate(), 2048 * MIB);
	device.limited = false;
	pass(8000, 10, 1);
	assert_about(rate(), 32 * MIB);
}

TEST_WITH(a_stall_is_no_measure, setup, NULL)
{
	pass(5000, 10, 8);
	assert_about(rate(), 32 * MIB);
	device.rate = 1;
	pass(5000, 10, 8);
	assert_about(rate(), 32 * MIB);
	assert_true(ms_of(MIB) > 0);
}

/* Between the ends of a window a device may be idle, which is not its bandwidth. */
TEST_WITH(an_idle_gap_is_no_measure, setup, NULL)
{
	pass(5000, 10, 8);
	assert_about(rate(), 32 * MIB);
	/* 4 MiB in 125 ms, then nothing until 330 ms: the longest window ends three times later */
	for (u32 i = 0; i < 25; i++) {
		pass(10, 5, 4);
		assert_about(rate(), 32 * MIB);
		pass(320, 5, 0);
	}
}

/* A device that stopped for a while is as fast as before. */
TEST_WITH(an_outage_is_no_measure, setup, NULL)
{
	static const u64 everies[] = { 5, 50 };

	for (u32 i = 0; i < 2; i++)
		for (u32 busy = 4000; busy < 5000; busy += 90) {
			setup(NULL);
			pass(busy, everies[i], 8);
			assert_about(rate(), 32 * MIB);
			device.rate = 1;
			pass(7000, everies[i], 8);
			device.rate = 32 * MIB;
			device.left = 0;
			for (u32 k = 0; k < 20; k++) {
				pass(100, everies[i], 8);
				assert_about(rate(), 32 * MIB);
			}
		}
}

/* A bio takes longer than the longest window. */
TEST_WITH(a_slow_device_is_measured, setup, NULL)
{
	static const u64 everies[] = { 5, 1000 };

	for (u32 i = 0; i < 2; i++) {
		setup(NULL);
		pass(5000, 10, 8);
		device.rate = MIB / 4;
		pass(60000, everies[i], 8);
		assert_about(rate(), MIB / 4);
	}
}

TEST_WITH(an_idle_device_is_forgotten, setup, NULL)
{
	u64 before, after;

	pass(5000, 10, 8);
	before = ms_of(256 * MIB);
	assert_about(before, 8000ull);
	pass(31000, 10, 0);
	after = ms_of(256 * MIB);
	assert_in_range(after, before / 16, before / 4);
	pass(300000, 10, 0);
	assert_int_equal(ms_of(256 * MIB), 0);
	pass(5000, 10, 8);
	assert_about(rate(), 32 * MIB);
}

TEST_WITH(times_are_bounded, setup, NULL)
{
	device.bw = (struct kvblk_bandwidth) { .rate = 1, .busy_ns = device.now };
	assert_int_equal(kvblk_bandwidth_us(&device.bw, device.now, 1), 1000000);
	assert_int_equal(kvblk_bandwidth_us(&device.bw, device.now, 1ull << 43), U32_MAX);
	/* a sample of another CPU may be newer than @now */
	assert_int_equal(kvblk_bandwidth_us(&device.bw, device.now - MS, 1), 1000000);
	device.bw.looked_ns = device.now;
	assert_false(kvblk_bandwidth_due(&device.bw, device.now - MS));
	assert_true(kvblk_bandwidth_due(&device.bw, device.now + KVBLK_BANDWIDTH_LOOK_NS));
}

TEST_MAIN("bandwidth")
