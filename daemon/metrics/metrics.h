/* SPDX-License-Identifier: MIT */
/* Metrics of kvblkd. metrics.c defines each metric and generates its documentation. */
#ifndef KVBLKD_METRICS_METRICS_H
#define KVBLKD_METRICS_METRICS_H

#include <stdio.h>

#include "common/snapshot.h"
#include "host/smart.h"
#include "kv_events/block_set.h"
#include "kv_events/publisher.h"
#include "pod/directory.h"
#include "prestage/hint_socket.h"

/**
 * enum metrics_format - output formats
 * @METRICS_TEXT: Prometheus' text format 0.0.4
 * @METRICS_OPENMETRICS: OpenMetrics 1.0
 * @METRICS_TABLE: rows of the table in Documentation/metrics.rst, without values
 */
enum metrics_format {
	METRICS_TEXT,
	METRICS_OPENMETRICS,
	METRICS_TABLE,
};

/**
 * struct metrics - inputs of a scrape
 * @snapshot: snapshot of the module, empty unless @up
 * @up: the module is loaded and responded
 * @ready: the pools are ready, see readiness.h
 * @seconds: duration of the snapshot
 * @config_valid: see &struct exporter_facts
 * @steps_failed: see &struct exporter_facts
 * @smart: returns the health of a member's drive: smart_of()
 * @tunable: reads a tunable of a pool; returns false if it is not a number
 * @budget_ratio: returns the bytes written to a pool as a share of its budget; negative: no
 *	budget
 * @process_bytes: resident memory of kvblkd
 * @process_cpu_s: CPU time of kvblkd
 * @process_fds: open descriptors of kvblkd
 * @publishes: KV events are published
 * @kv_events: counters of KV events, if @publishes
 * @sources: engines whose KV events are read
 * @nr_sources: entries of @sources
 * @prestages: prefetch hints are accepted
 * @prestage: counters of hints, if @prestages
 * @has_directory: pods have a directory
 * @directory: counters of the directory, if @has_directory
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
	bool has_directory;
	struct directory_counts directory;
};

void metrics_print(FILE *to, enum metrics_format format, const struct metrics *metrics);

/* Returns the format that the header @accept prefers; NULL: no header. */
enum metrics_format metrics_accepted(const char *accept);

const char *metrics_type(enum metrics_format format);

#endif
