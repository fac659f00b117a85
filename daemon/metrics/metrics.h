/* SPDX-License-Identifier: MIT */
/*
 * What kvblkd exports: the text of a scrape, a function of what the module tells. Rule:
 * a metric is said once, in metrics.c; its documentation is made by the same code.
 */
#ifndef KVBLKD_METRICS_H
#define KVBLKD_METRICS_H

#include <stdio.h>

#include "common/snapshot.h"
#include "host/smart.h"
#include "kv_events/block_set.h"
#include "kv_events/publisher.h"
#include "prestage/hint_socket.h"

/**
 * enum metrics_format - how metrics are written
 * @METRICS_TEXT: Prometheus' text format 0.0.4
 * @METRICS_OPENMETRICS: OpenMetrics 1.0
 * @METRICS_TABLE: no values, but the rows of the table in Documentation/metrics.rst
 */
enum metrics_format {
	METRICS_TEXT,
	METRICS_OPENMETRICS,
	METRICS_TABLE,
};

/**
 * struct metrics - what a scrape tells
 * @snapshot: empty unless @up
 * @up: the module is loaded and has answered
 * @ready: as readiness.h has it
 * @seconds: that @snapshot took
 * @config_valid: as &struct exporter_facts has it
 * @steps_failed: likewise
 * @smart: what a member's drive told of its health last, smart_of()
 * @tunable: a tunable of a pool that is a number, to its last argument; false: it is none
 * @budget_ratio: what is written to a pool, as a share of its budget; negative: it has none
 * @process_bytes: memory of kvblkd
 * @process_cpu_s: time that kvblkd has run
 * @process_fds: descriptors that kvblkd has open
 * @publishes: KV events
 * @kv_events: which, if it does
 * @sources: engines that KV events come from
 * @nr_sources: of them
 * @prestages: takes hints
 * @prestage: which, if it does
 */
struct metrics {
	struct snapshot snapshot;
	bool up;
	bool ready;
	double seconds;
	bool config_valid;
	unsigned int steps_failed;
	struct smart (*smart)(const char *pool, const char *member);
	bool (*tunable)(const char *pool, const char *name, uint64_t *value);
	double (*budget_ratio)(const char *pool);
	uint64_t process_bytes;
	double process_cpu_s;
	uint64_t process_fds;
	bool publishes;
	struct kvevents_counts kv_events;
	const struct kvfeed_source *sources;
	size_t nr_sources;
	bool prestages;
	struct prestage_counts prestage;
};

void metrics_print(FILE *to, enum metrics_format format, const struct metrics *metrics);

/* The format that a header Accept prefers; NULL: there is none. */
enum metrics_format metrics_accepted(const char *accept);

const char *metrics_type(enum metrics_format format);

#endif
