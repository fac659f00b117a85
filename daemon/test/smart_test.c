// SPDX-License-Identifier: MIT
/*
 * Deteriorating drives get a line each, and nothing waits for a silent one. The test replaces
 * fabrics_smart() and log_line().
 */
#include <pthread.h>
#include <semaphore.h>

#include "host/fabrics.h"
#include "kvblk_test.h"
#include "log/log.h"

static sem_t answer, asked;
static struct smart drive;
static char logged[512], first[512];

void fabrics_smart(const char *path, struct smart *smart)
{
	sem_post(&asked);
	sem_wait(&answer);
	if (!strcmp(path, "/dev/nvme0n1"))
		*smart = drive;
}

void log_line(int level, const char *format, ...)
{
	char *to = level == LOG_LINE_WARNING ? logged : first;
	va_list args;

	va_start(args, format);
	vsnprintf(to, sizeof(logged), format, args);
	va_end(args);
}

static const struct {
	struct smart was;
	struct smart is;
	const char *says;
} cases[] = {
#define WELL	.valid = true, .rated = true, .spare = 100, .spare_least = 10
	{ { 0 }, { 0 }, "" },
	{ { 0 }, { WELL }, "" },
	{ { WELL }, { 0 }, "" },
	{ { WELL, .used = 70 }, { WELL, .used = 79 }, "" },
	{ { WELL, .used = 79 }, { WELL, .used = 80 },
	  "80 % of the rated life used: plan to replace it, or give the pool a smaller budget" },
	{ { WELL, .used = 80 }, { WELL, .used = 89 }, "" },
	{ { WELL, .used = 80 }, { WELL, .used = 90 }, "90 % of the rated life used: plan to replace it, or give the pool a smaller budget" },
	{ { WELL, .used = 90 }, { WELL, .used = 104 }, "104 % of the rated life used: replace the drive" },
	{ { WELL, .used = 104 }, { WELL, .used = 120 }, "" },
	/* first reading */
	{ { 0 }, { WELL, .used = 95 }, "95 % of the rated life used: plan to replace it, or give the pool a smaller budget" },
	{ { WELL }, { .valid = true, .rated = true, .spare = 9, .spare_least = 10 },
	  "9 % of the spare blocks left, below the threshold of 10 %: replace the drive" },
	{ { .valid = true, .rated = true, .spare = 9, .spare_least = 10 }, { .valid = true, .rated = true, .spare = 8, .spare_least = 10 }, "" },
	/* the critical warning reports the same */
	{ { WELL }, { .valid = true, .rated = true, .spare = 9, .spare_least = 10, .warning = 1 },
	  "few spare blocks are left: replace the drive" },
	{ { WELL, .warning = 2 }, { WELL, .warning = 2 }, "" },
	/* nvmet's log has zeroes */
	{ { 0 }, { .valid = true, .spare_least = 0, .written = 5e9 }, "" },
	{ { WELL }, { .valid = true, .spare = 0, .spare_least = 10 }, "" },
	{ { WELL, .warning = 2 }, { WELL, .warning = 2 | 4 | 8, .used = 80 },
	  "reliability degraded: replace the drive; media is read-only: replace the drive; 80 % of the rated life used: plan to replace it, or give the pool a smaller budget" },
};

TEST(test_worse)
{
	char text[400];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(smart_worse(&cases[i].was, &cases[i].is, text, sizeof(text)),
				 *cases[i].says != '\0');
		assert_string_equal(text, cases[i].says);
	}
}

static struct kvblk_member_state members[] = {
	{ .next = &members[1], .pool = "kv0", .name = "a", .path = "/dev/disk/by-id/x", .uuid = { 1 },
	  .device = "nvme0n1", .state = KVBLK_MEMBER_STATUS_UP },
	{ .pool = "kv0", .name = "b", .path = "/dev/nullb0", .uuid = { 2 },
	  .state = KVBLK_MEMBER_STATUS_UP },
};

/* Let two devices respond; the reading then ends asynchronously. */
static void let_both_answer(void)
{
	sem_post(&answer);
	sem_wait(&asked);
	sem_post(&answer);
}

/* Start another reading and let both devices fail. */
static void look_again(void)
{
	static double now = 100 + 20 * SMART_SECONDS;

	do
		smart_look(members, now += SMART_SECONDS);
	while (sem_trywait(&asked));
	let_both_answer();
}

TEST(test_silent)
{
	int value;

	sem_init(&answer, 0, 0);
	sem_init(&asked, 0, 0);
	drive = (struct smart){ WELL, .used = 85, .written = 5e12 };
	smart_look(members, 100);
	sem_wait(&asked);
	/* the device is silent: nothing waits, and no second reading starts */
	assert_false(smart_of("kv0", "a").asked);
	smart_look(members, 100 + 10 * SMART_SECONDS);
	assert_false(smart_of("kv0", "b").asked);
	let_both_answer();
	while (!smart_of("kv0", "b").asked)
		sched_yield();
	assert_true(smart_of("kv0", "a").valid);
	assert_true(smart_of("kv0", "a").written == 5e12);
	assert_false(smart_of("kv0", "b").valid);
	assert_string_equal(first, "drive: pool kv0, member a, /dev/nvme0n1: 85 % of the rated life used, 4768371.6 MiB written");
	assert_string_equal(logged, "drive: pool kv0, member a, /dev/nvme0n1: 85 % of the rated life used: plan to replace it, or give the pool a smaller budget");
	/* no reading before the interval ends, and no repeated line */
	logged[0] = '\0';
	smart_look(members, 100 + SMART_SECONDS - 1);
	sem_getvalue(&asked, &value);
	assert_int_equal(value, 0);
	do
		smart_look(members, 100 + SMART_SECONDS);
	while (sem_trywait(&asked));
	/* silent now: the last reading stays */
	drive = (struct smart){ 0 };
	let_both_answer();
	assert_true(smart_of("kv0", "a").valid);
	assert_string_equal(logged, "");
	/* a drive under another device name, then another drive under the member's name */
	snprintf(members[0].device, sizeof(members[0].device), "nvme7n1");
	look_again();
	assert_true(smart_of("kv0", "a").valid);
	members[0].uuid[0] = 3;
	look_again();
	assert_false(smart_of("kv0", "a").valid);
}

TEST_MAIN("smart")
