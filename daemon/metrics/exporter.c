// SPDX-License-Identifier: MIT
/* The exporter, see exporter.h. Pages use a snapshot taken at most once a second. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "http/http.h"
#include "kv_events/publisher.h"
#include "log/log.h"
#include "metrics/exporter.h"
#include "metrics/metrics.h"
#include "metrics/readiness.h"
#include "policy/policy_thread.h"

#define FRESH_NS	1000000000ull
#define RETRY_US	5000000ull
#define SOURCES		256

/**
 * struct exporter - the exporter
 * @event: the loop
 * @config: configuration in force
 * @facts: facts about the daemon
 * @http: listener, NULL: none
 * @listens: address and port of @http, or of the last try
 * @retry: timer, retries to listen
 * @told: the failure to listen was logged
 * @metrics: last snapshot and its metrics
 * @err: error of the last snapshot, or 0
 * @sources: engines whose KV events are read
 * @taken: time of the snapshot, monotonic ns; 0: never
 */
struct exporter {
	sd_event *event;
	const struct config *config;
	const struct exporter_facts *facts;
	struct http *http;
	struct config_metrics listens;
	sd_event_source *retry;
	bool told;
	struct metrics metrics;
	int err;
	struct kvfeed_source sources[SOURCES];
	uint64_t taken;
};

/* Values of the tunables by pool and row, read with the snapshot. */
static struct pool_tunables {
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char text[TUNABLES_MAX][TUNABLE_LEN];
} *tunables_read;
static size_t nr_tunables_read;

static void read_tunable(const char *pool, const char *name, char text[TUNABLE_LEN])
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/class/kvblk/%s/%s", pool, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (read(fd, text, TUNABLE_LEN - 1) < 0)
		*text = '\0';
	close(fd);
}

/* Read the tunables of all pools. Without memory none is exported. */
static void read_tunables(const struct kvblk_pool_state *pools)
{
	size_t nr = 0;

	for (const struct kvblk_pool_state *pool = pools; pool; pool = pool->next)
		nr++;
	free(tunables_read);
	tunables_read = calloc(nr + 1, sizeof(*tunables_read));
	nr_tunables_read = tunables_read ? nr : 0;
	for (size_t i = 0; i < nr_tunables_read; i++, pools = pools->next) {
		snprintf(tunables_read[i].pool, sizeof(tunables_read[i].pool), "%s", pools->name);
		for (size_t t = 0; t < nr_tunables; t++)
			read_tunable(pools->name, tunables[t].name, tunables_read[i].text[t]);
	}
}

/*
 * Find the value of a numeric tunable. Returns false for a word, as of integrity, and for -1, which
 * means no number.
 */
static bool tunable_of(const char *pool, const char *name, uint64_t *value)
{
	const char *text = "";
	char *rest;

	for (size_t i = 0; i < nr_tunables_read; i++) {
		if (!strcmp(tunables_read[i].pool, pool))
			text = tunables_read[i].text[tunable_find(name) - tunables];
	}
	*value = strtoull(text, &rest, 10);
	return isdigit((unsigned char)*text) && (!*rest || *rest == '\n');
}

static void take(struct exporter *exporter)
{
	struct metrics *metrics = &exporter->metrics;
	uint64_t now = snapshot_clock();
	struct kvblk_admin *admin;

	if (exporter->taken && now - exporter->taken < FRESH_NS)
		return;
	snapshot_free(&metrics->snapshot);
	exporter->err = kvblk_admin_open(&admin);
	if (!exporter->err) {
		exporter->err = snapshot_get_parts(admin, NULL, &metrics->snapshot);
		kvblk_admin_close(admin);
	}
	if (exporter->err)
		snapshot_free(&metrics->snapshot);
	read_tunables(metrics->snapshot.pools);
	metrics->up = !exporter->err;
	exporter->taken = snapshot_clock();
	metrics->seconds = (double)(exporter->taken - now) / 1e9;
}

static uint64_t count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint64_t nr = 0;

	while (dir && readdir(dir))
		nr++;
	if (dir)
		closedir(dir);
	/* ".", ".." and the directory itself */
	return nr > 3 ? nr - 3 : 0;
}

static void look_at_process(struct metrics *metrics)
{
	FILE *statm = fopen("/proc/self/statm", "re");
	unsigned long size, resident;
	struct timespec cpu;

	if (statm && fscanf(statm, "%lu %lu", &size, &resident) == 2)
		metrics->process_bytes = (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
	if (statm)
		fclose(statm);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	metrics->process_cpu_s = (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9;
	metrics->process_fds = count_fds();
}

static void print_ready(const struct exporter *exporter, FILE *to)
{
	fputs("ready\n", to);
	ready_notes(exporter->config, &exporter->metrics.snapshot, to);
}

static void print_page(struct exporter *exporter, const char *path, const char *accept,
		       struct http_answer *answer, FILE *to)
{
	struct metrics *metrics = &exporter->metrics;
	bool page = !strcmp(path, "/metrics");
	enum metrics_format format = metrics_accepted(accept);

	answer->status = 200;
	answer->type = page ? metrics_type(format) : "text/plain; charset=utf-8";
	if (!strcmp(path, "/healthz")) {
		fputs("ok\n", to);
		return;
	}
	take(exporter);
	metrics->ready = !ready_reasons(exporter->config, &metrics->snapshot, exporter->err,
					page ? NULL : to);
	metrics->config_valid = exporter->facts->config_valid;
	metrics->steps_failed = exporter->facts->steps_failed;
	look_at_process(metrics);
	metrics->publishes = kvfeed_counts(&metrics->kv_events);
	metrics->sources = exporter->sources;
	metrics->nr_sources = kvfeed_sources(exporter->sources, SOURCES);
	metrics->prestages = prestage_counts(&metrics->prestage);
	metrics->has_directory = directory_counts(&metrics->directory);
	if (page)
		metrics_print(to, format, metrics);
	else if (metrics->ready)
		print_ready(exporter, to);
	else
		answer->status = 503;
}

static void on_get(void *arg, const struct http_request *request, struct http_answer *answer)
{
	static const char *const pages[] = { "/metrics", "/ready", "/healthz" };
	FILE *to;

	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		if (strcmp(request->path, pages[i]) != 0)
			continue;
		to = open_memstream(&answer->body, &answer->len);
		if (!to)
			return;
		print_page(arg, request->path, request->accept, answer, to);
		fclose(to);
	}
}

static int listen_there(struct exporter *exporter)
{
	const struct http_rules rules = {
		.answer = on_get,
		.arg = exporter,
		.pages = "not found; pages: /metrics, /ready, /healthz\n",
	};
	int fd = exporter->listens.address ? http_listen_ip(exporter->listens.address,
							    (unsigned int)exporter->listens.port) :
					     -ENOMEM;

	return fd < 0 ? fd : http_open(exporter->event, fd, &rules, &exporter->http);
}

static void start(struct exporter *exporter)
{
	const struct config_metrics *want = &exporter->config->metrics;
	int err;

	if (!want->address || exporter->http)
		return;
	free(exporter->listens.address);
	exporter->listens = (struct config_metrics){ strdup(want->address), want->port };
	err = listen_there(exporter);
	if (!err) {
		exporter->told = false;
		log_line(LOG_LINE_INFO, "metrics: listening on %s port %" PRId64, want->address,
			 want->port);
		return;
	}
	if (!exporter->told)
		log_line(LOG_LINE_WARNING, "metrics: cannot listen on %s port %" PRId64 ": %s; retrying every %d s",
			 want->address, want->port, strerror(-err), (int)(RETRY_US / 1000000));
	exporter->told = true;
	sd_event_source_set_time_relative(exporter->retry, RETRY_US);
	sd_event_source_set_enabled(exporter->retry, SD_EVENT_ONESHOT);
}

static int on_retry(sd_event_source *source, uint64_t us, void *arg)
{
	start(arg);
	return 0;
}

void exporter_follow(struct exporter *exporter)
{
	const struct config_metrics *want = &exporter->config->metrics;
	bool same = want->address && exporter->listens.address &&
		    !strcmp(want->address, exporter->listens.address) &&
		    want->port == exporter->listens.port;

	if (exporter->http && !same) {
		http_close(exporter->http);
		exporter->http = NULL;
		log_line(LOG_LINE_INFO, "metrics: no longer listening on %s port %" PRId64,
			 exporter->listens.address, exporter->listens.port);
	}
	exporter->told = exporter->told && same;
	sd_event_source_set_enabled(exporter->retry, SD_EVENT_OFF);
	start(exporter);
}

int exporter_new(sd_event *event, const struct config *config, const struct exporter_facts *facts,
		 struct exporter **handle)
{
	struct exporter *exporter = calloc(1, sizeof(*exporter));
	int err;

	if (!exporter)
		return -ENOMEM;
	exporter->event = event;
	exporter->config = config;
	exporter->facts = facts;
	exporter->metrics.smart = smart_of;
	exporter->metrics.tunable = tunable_of;
	exporter->metrics.budget_ratio = policy_budget_ratio;
	err = sd_event_add_time_relative(event, &exporter->retry, CLOCK_MONOTONIC, 0, 0, on_retry,
					 exporter);
	if (err < 0) {
		free(exporter);
		return err;
	}
	sd_event_source_set_enabled(exporter->retry, SD_EVENT_OFF);
	exporter_follow(exporter);
	*handle = exporter;
	return 0;
}
