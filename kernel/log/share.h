/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Order in which I/O of tenants that wait for a device is served, by weights. Pure logic, tested by
 * selftests/host. The rules:
 * - Each tenant has a clock, which an I/O advances by its bytes divided by the tenant's weight. The
 *   tenant whose clock is behind is next. So tenants that always wait get bytes by weight: none is
 *   behind or ahead by more than an I/O, as with deficit round robin. But a tenant that begins to
 *   wait does so for no round of the others, and large I/Os need no rounds without service.
 * - A tenant that begins to wait starts at the device's clock: that of the I/O served last. So a
 *   tenant does not save up a share while it has no I/O.
 */
#ifndef KVBLK_SHARE_H
#define KVBLK_SHARE_H

#include <linux/bits.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/types.h>

#define KVBLK_SHARE_LEAST	4096ull	/* bytes that a smaller I/O counts as */
#define KVBLK_SHARE_SHIFT	16	/* of clocks, so that weights divide short I/Os exactly */
#define KVBLK_SHARE_AHEAD	BIT_ULL(46)	/* more than an I/O of the least weight takes */

/* Returns whether clock @a is behind @b. */
static inline bool kvblk_share_behind(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* Sets the clock of a tenant that begins to wait. @device: the device's clock. */
static inline void kvblk_share_begin(u64 *clock, u64 device)
{
	/* behind, or stale since the device's clock has wrapped */
	if (*clock - device > KVBLK_SHARE_AHEAD)
		*clock = device;
}

/* Counts a tenant's I/O of @bytes that is served now. @weight: 1 to 10000. */
static inline void kvblk_share_serve(u64 *clock, u64 *device, u64 bytes, u32 weight)
{
	if (kvblk_share_behind(*device, *clock))
		*device = *clock;
	*clock += div_u64(max_t(u64, bytes, KVBLK_SHARE_LEAST) << KVBLK_SHARE_SHIFT, weight);
}

#endif
