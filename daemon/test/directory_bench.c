// SPDX-License-Identifier: MIT
/*
 * usage: directory_bench [cluster]
 *
 * Measure the directory against one Valkey server on this host, or with "cluster" against a cluster of
 * one: anchors published a second, anchors asked a second in questions of 64, the CPU time of both
 * sides for an anchor, and the server's memory for an anchor. Half of the anchors asked for exist.
 */
#include <sys/resource.h>
#include <time.h>

#include "log/log.h"
#include "pod/directory.h"
#include "valkey_server.h"

#define ANCHORS		1000000u
#define QUESTIONS	20000u

static const uint8_t pod[16] = "uuid of the pod.";
static struct valkey_server server;
static sd_event *event;
static struct directory *dir;
static unsigned int open_questions;
static uint64_t hints;

void log_line(int level, const char *format, ...)
{
}

static double seconds(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Returns the number behind @name in the reply to @command, or 0. */
static double server_info(const char *command, const char *name)
{
	redisReply *reply = redisCommand(server.control, command);
	const char *at = reply ? strstr(reply->str, name) : NULL;
	double value = at ? strtod(at + strlen(name), NULL) : 0;

	freeReplyObject(reply);
	return value;
}

static double server_cpu(void)
{
	return server_info("INFO cpu", "used_cpu_sys:") + server_info("INFO cpu", "used_cpu_user:");
}

static void fill_id(uint8_t id[16], uint64_t n)
{
	uint64_t mixed[2] = { n * 0x9e3779b97f4a7c15, ~n * 0xc2b2ae3d27d4eb4f };

	memcpy(id, mixed, 16);
}

/* Print the rate of @nr anchors since @times: real, own CPU, server's CPU. */
static void print_rate(const char *what, uint64_t nr, const double times[3])
{
	double n = (double)nr, real = seconds(CLOCK_MONOTONIC) - times[0];
	double own = seconds(CLOCK_PROCESS_CPUTIME_ID) - times[1], theirs = server_cpu() - times[2];

	printf("%-28s %9.0f /s, CPU of kvblkd %.2f us, of the server %.2f us each\n", what, n / real,
	       own / n * 1e6, theirs / n * 1e6);
}

static void start_times(double times[3])
{
	times[2] = server_cpu();
	times[1] = seconds(CLOCK_PROCESS_CPUTIME_ID);
	times[0] = seconds(CLOCK_MONOTONIC);
}

static void publish_all(void)
{
	struct kvblk_anchor anchors[64] = { 0 };
	struct directory_counts counts = { 0 };
	double times[3], memory = server_info("INFO memory", "used_memory:");

	start_times(times);
	for (uint64_t n = 0; n < ANCHORS;) {
		if (directory_has_room(dir)) {
			for (unsigned int i = 0; i < 64; i++)
				fill_id(anchors[i].id, n++);
			directory_publish(dir, pod, anchors, 64);
		}
		sd_event_run(event, directory_has_room(dir) ? 0 : 1000);
	}
	while (directory_counts(&counts) && counts.published + counts.dropped < ANCHORS)
		sd_event_run(event, 1000);
	print_rate("anchors published", counts.published, times);
	printf("%-28s %9.0f bytes\n", "memory of an anchor",
	       (server_info("INFO memory", "used_memory:") - memory) / (double)counts.published);
	printf("%-28s %9llu\n", "anchors dropped", (unsigned long long)counts.dropped);
}

static void on_answer(void *arg, const struct kvblk_anchor *answer, unsigned int nr)
{
	open_questions--;
	hints += nr;
}

/* Ask with @parallel questions at a time. */
static void ask_all(unsigned int parallel)
{
	struct directory_counts before = { 0 }, after = { 0 };
	struct kvblk_peers_id ids[DIRECTORY_IDS];
	double times[3];
	char what[64];

	directory_counts(&before);
	hints = 0;
	start_times(times);
	for (unsigned int sent = 0; sent < QUESTIONS || open_questions;) {
		while (sent < QUESTIONS && open_questions < parallel) {
			for (unsigned int i = 0; i < DIRECTORY_IDS; i++)
				fill_id(ids[i].id, (sent * 7919ull + i) % ANCHORS + (i & 1 ? ANCHORS : 0));
			open_questions++;
			sent++;
			directory_ask(dir, pod, ids, DIRECTORY_IDS, on_answer, NULL);
		}
		sd_event_run(event, 1000);
	}
	snprintf(what, sizeof(what), "anchors asked, %u parallel", parallel);
	print_rate(what, (uint64_t)QUESTIONS * DIRECTORY_IDS, times);
	directory_counts(&after);
	printf("%-28s %9.1f of 64 found, %llu of %u questions late\n", "",
	       (double)hints / QUESTIONS, (unsigned long long)(after.late - before.late), QUESTIONS);
}

static void on_lost(void *arg)
{
}

int main(int argc, char **argv)
{
	struct config_directory config = { .ask_ms = 1000, .ttl_s = 86400 };
	static const char *const cluster[] = { "--cluster-enabled", "yes", NULL };
	struct directory_counts counts = { 0 };

	if (!valkey_server_exists()) {
		fputs("directory_bench: " VALKEY_SERVER " is missing\n", stderr);
		return 2;
	}
	valkey_server_start(&server, argc > 1 ? cluster : NULL);
	if (argc > 1)
		freeReplyObject(redisCommand(server.control, "CLUSTER ADDSLOTSRANGE 0 16383"));
	/* a cluster refuses commands until it has looked for other nodes */
	while (argc > 1 && !server_info("CLUSTER INFO", "cluster_state:ok\r\ncluster_slots_assigned:"))
		usleep(10000);
	if (!texts_add(&config.servers, server.address) || sd_event_new(&event) < 0 ||
	    directory_open(event, &config, on_lost, NULL, &dir))
		return 1;
	while (directory_counts(&counts) && !counts.up)
		sd_event_run(event, 1000);
	publish_all();
	ask_all(1);
	ask_all(16);
	directory_close(dir);
	sd_event_unref(event);
	texts_free(&config.servers);
	valkey_server_stop(&server);
	return 0;
}
