// SPDX-License-Identifier: MIT
/*
 * Print statistics as they arrive, for scripts: one line per message, until killed.
 *
 * usage: library_stats
 *
 * Prints "SEQ TIME POOL pool|member|size NAME PUTS". NAME: name of the pool or member, or the
 * size limit of a class of blocks in bytes. PUTS: the counter, or the total of the class'
 * histogram. Exit code 1: something was wrong.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <kvblk_admin.h>

static void print(const struct kvblk_stats *stats)
{
	uint64_t puts = stats->counter[KVBLK_A_COUNTER_PUTS];

	printf("%" PRIu64 " %" PRIu64 " %s ", stats->seq, stats->time_ns, stats->pool);
	if (stats->size_max) {
		for (uint32_t i = 0; i < stats->nr_buckets[KVBLK_A_LATENCY_PUT]; i++)
			puts += stats->latency[KVBLK_A_LATENCY_PUT][i];
		printf("size %" PRIu64, stats->size_max);
	} else if (stats->member[0]) {
		printf("member %s", stats->member);
	} else {
		printf("pool %s", stats->pool);
	}
	printf(" %" PRIu64 "\n", puts);
	fflush(stdout);
}

int main(void)
{
	const struct kvblk_stats *stats;
	struct kvblk_feed *feed;
	struct pollfd ready = { .events = POLLIN };
	int err = kvblk_feed_open(KVBLK_FEED_STATS, &feed);

	ready.fd = err ? -1 : kvblk_feed_fd(feed);
	while (!err) {
		err = kvblk_feed_read(feed, NULL, &stats);
		if (!err)
			print(stats);
		else if (err == -EAGAIN)
			err = poll(&ready, 1, -1) < 0 ? -errno : 0;
	}
	printf("wrong: %s\n", strerror(-err));
	return 1;
}
