/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Bandwidth of a device, as seen: the bytes that completed in a second while the device was busy.
 * Pure logic, tested by selftests/host. The rules:
 * - Bytes are measured over a window, which ends when several queues of its start have completed,
 *   at a sample that saw bytes complete. Else an outage would count as part of a busy window.
 * - A device is busy in a window if bytes were in flight at all samples, and if as many bytes take
 *   BUSY_US. Else the device could do more than was asked of it, and only a higher rate counts.
 * - A window beyond LATE_US is an outage's, and does not count. If the one before it was as long,
 *   it is a slow device's, and counts.
 * - What was seen fades: the bandwidth doubles with each FADE_NS without a busy window, and then is
 *   unknown. Else a caller that avoids a slow device would never learn that it has recovered.
 */
#ifndef KVBLK_BANDWIDTH_H
#define KVBLK_BANDWIDTH_H

#include <linux/compiler.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/types.h>

#define KVBLK_BANDWIDTH_LOOK_NS	(5ull * 1000 * 1000)	/* least time between two samples */
#define KVBLK_BANDWIDTH_LEAST_US (50ull * 1000)		/* shortest window */
#define KVBLK_BANDWIDTH_MOST_US	(1000ull * 1000)	/* longest window, if bytes complete */
#define KVBLK_BANDWIDTH_LATE_US	(2500ull * 1000)	/* more than two ticks of the watchdog */
#define KVBLK_BANDWIDTH_QUEUES	4		/* queues that complete in a shorter window */
#define KVBLK_BANDWIDTH_BUSY_US	2000ull		/* more than a flash device takes for one read */
#define KVBLK_BANDWIDTH_FADE_NS	(10ull * 1000 * 1000 * 1000)
#define KVBLK_BANDWIDTH_FADES	20		/* doublings, then the bandwidth is unknown */

/* Written by one sample at a time; read at any time. */
struct kvblk_bandwidth {
	u64 looked_ns;			/* time of the last sample */
	u64 queued;			/* bytes in flight then */
	u64 done;			/* bytes completed until then */
	u64 start_ns;			/* start of the window; 0: no sample yet */
	u64 start_done;			/* bytes completed until then */
	u64 start_queued;		/* bytes in flight then */
	u64 least_queued;		/* least bytes in flight at a sample of the window */
	bool late;			/* the previous window was longer than LATE_US */
	u64 rate;			/* bytes a second in busy windows; 0: never busy */
	u64 busy_ns;			/* end of the last busy window */
};

/* Returns whether it is time for a sample at @now. */
static inline bool kvblk_bandwidth_due(const struct kvblk_bandwidth *bw, u64 now)
{
	/* another CPU's sample may be newer than @now */
	return (s64)(now - READ_ONCE(bw->looked_ns)) >= (s64)KVBLK_BANDWIDTH_LOOK_NS;
}

/* Returns the bandwidth at @now, bytes a second, or 0 if it is unknown. */
static inline u64 kvblk_bandwidth_rate(const struct kvblk_bandwidth *bw, u64 now)
{
	u64 fades = div64_u64(now - min(now, READ_ONCE(bw->busy_ns)), KVBLK_BANDWIDTH_FADE_NS);

	return fades < KVBLK_BANDWIDTH_FADES ? READ_ONCE(bw->rate) << fades : 0;
}

/*
 * Takes a sample at @now: bytes @submitted to the device so far, and @done. @limited: I/O waits for
 * what is in flight, so the device could do more, unless nothing else is known.
 */
static inline void kvblk_bandwidth_sample(struct kvblk_bandwidth *bw, u64 now, u64 submitted,
					  u64 done, bool limited)
{
	u64 queued = submitted - done, bytes = done - bw->start_done;
	u64 us = div64_u64(now - bw->start_ns, 1000), rate;
	bool stalled = bw->queued && done == bw->done, late = us > KVBLK_BANDWIDTH_LATE_US;

	WRITE_ONCE(bw->looked_ns, now);
	WRITE_ONCE(bw->queued, queued);
	bw->done = done;
	bw->least_queued = min(bw->least_queued, queued);
	if (bw->start_ns) {
		if (us < KVBLK_BANDWIDTH_LEAST_US || stalled ||
		    (us < KVBLK_BANDWIDTH_MOST_US &&
		     bytes < KVBLK_BANDWIDTH_QUEUES * bw->start_queued))
			return;
		rate = div64_u64(bytes * 1000000, us);
		if (bw->least_queued && (!late || bw->late) && !(limited && bw->rate) &&
		    bw->least_queued * 1000000 >= rate * KVBLK_BANDWIDTH_BUSY_US) {
			if (bw->rate && now - bw->busy_ns < KVBLK_BANDWIDTH_FADE_NS)
				rate = (bw->rate + rate) / 2;
			WRITE_ONCE(bw->rate, rate);
			WRITE_ONCE(bw->busy_ns, now);
		} else if (bw->rate && rate > bw->rate) {
			WRITE_ONCE(bw->rate, rate);
		}
		bw->late = late;
	}
	bw->start_ns = now;
	bw->start_done = done;
	bw->start_queued = queued;
	bw->least_queued = queued;
}

/*
 * Returns the microseconds at @now until @bytes that are read next have come, after all that is in
 * flight, at most 2^32 - 1; 0 if the bandwidth is unknown. @bytes: at most 2^43.
 */
static inline u32 kvblk_bandwidth_us(const struct kvblk_bandwidth *bw, u64 now, u64 bytes)
{
	u64 rate = kvblk_bandwidth_rate(bw, now), all = READ_ONCE(bw->queued) + bytes;

	return rate ? min_t(u64, div64_u64(all * 1000000, rate), U32_MAX) : 0;
}

#endif
