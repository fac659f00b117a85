// SPDX-License-Identifier: MIT
/*
 * Exported metrics, see metrics.h. Counters and gauges are generated from the module's tables of
 * names, so a new one is exported without a change here. Metrics of members have names of their
 * own, or else a sum over a name would count twice.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kvblk_names.h>

#include "common/tunables.h"
#include "common/uuid.h"
#include "metrics/metrics.h"
#include "metrics/readiness.h"

/* Histogram buckets: 2^(LE_FIRST + 1) ns (1 us), with all below, to 2^(LE_LAST + 1) ns (69 s). */
#define LE_FIRST	9
#define LE_LAST		35
#define LABELS		6
#define NAME_LEN	80
#define TABLE_COLUMNS	72

enum metric_type {
	METRIC_GAUGE,
	METRIC_COUNTER,
	METRIC_INFO,
	METRIC_HISTOGRAM,
};

/**
 * struct metric - a metric family
 * @name: name, without the suffix of its type
 * @type: &enum metric_type
 * @help: help text
 * @labels: names of the labels
 */
struct metric {
	const char *name;
	enum metric_type type;
	const char *help;
	const char *labels[LABELS];
};

static const struct {
	const char *text;		/* type in format 0.0.4 */
	const char *openmetrics;
	const char *suffix;		/* suffix of a sample */
} types[] = {
	[METRIC_GAUGE] = { "gauge", "gauge", "" },
	[METRIC_COUNTER] = { "counter", "counter", "_total" },
	[METRIC_INFO] = { "gauge", "info", "_info" },
	[METRIC_HISTOGRAM] = { "histogram", "histogram", "_bucket" },
};

/* Output stream, with the metric family being written. */
struct out {
	FILE *to;
	enum metrics_format format;
	struct metric metric;
	char name[NAME_LEN];
};

static const char *unit_of(const struct metric *metric)
{
	static const char *const units[] = { "bytes", "seconds" };
	const char *last = strrchr(metric->name, '_');

	for (size_t i = 0; last && i < sizeof(units) / sizeof(units[0]); i++) {
		if (!strcmp(last + 1, units[i]))
			return units[i];
	}
	return NULL;
}

/* Print a row of the table of Documentation/metrics.rst, with the last column folded. */
static void print_row(const struct out *out)
{
	const struct metric *metric = &out->metric;
	const char *unit = unit_of(metric), *word = metric->help;
	size_t column = 0, len;

	fprintf(out->to, "   * - ``%s%s``\n     - %s\n     -%s%s\n     -", metric->name,
		metric->type == METRIC_HISTOGRAM ? "" : types[metric->type].suffix,
		types[metric->type].openmetrics, unit ? " " : "", unit ? unit : "");
	for (size_t i = 0; i < LABELS && metric->labels[i]; i++)
		fprintf(out->to, "%s%s", i ? ", " : " ", metric->labels[i]);
	fputs("\n     -", out->to);
	for (; *word; word += len + strspn(word + len, " ")) {
		len = strcspn(word, " ");
		if (column && column + 1 + len > TABLE_COLUMNS) {
			fputs("\n      ", out->to);
			column = 0;
		}
		column += 1 + len;
		fprintf(out->to, " %.*s", (int)len, word);
	}
	fputc('\n', out->to);
}

/* Print @text and escape all but printable ASCII, so that no device name breaks a scrape. */
static void print_escaped(const struct out *out, const char *text, bool quotes)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '\\' || (c == '"' && quotes))
			fprintf(out->to, "\\%c", c);
		else if (c < ' ' || c > '~')
			fprintf(out->to, "\\\\x%02x", c);
		else
			fputc(c, out->to);
	}
}

/* Start the family @metric. */
static void begin(struct out *out, const struct metric *metric)
{
	bool open = out->format == METRICS_OPENMETRICS;
	const char *suffix = open || metric->type == METRIC_HISTOGRAM ? "" :
			     types[metric->type].suffix;

	snprintf(out->name, sizeof(out->name), "%s", metric->name);
	out->metric = *metric;
	out->metric.name = out->name;
	if (out->format == METRICS_TABLE) {
		print_row(out);
		return;
	}
	fprintf(out->to, "# HELP %s%s ", metric->name, suffix);
	print_escaped(out, metric->help, open);
	fprintf(out->to, "\n# TYPE %s%s %s\n", metric->name, suffix,
		open ? types[metric->type].openmetrics : types[metric->type].text);
	if (open && unit_of(metric))
		fprintf(out->to, "# UNIT %s %s\n", metric->name, unit_of(metric));
}

/* Print name and labels of a sample; @le is the limit of a bucket, or NULL. */
static void print_name(const struct out *out, const char *suffix, const char *const *values,
		       const char *le)
{
	const char *separator = "{";

	fprintf(out->to, "%s%s", out->metric.name, suffix);
	for (size_t i = 0; i < LABELS && out->metric.labels[i]; i++) {
		fprintf(out->to, "%s%s=\"", separator, out->metric.labels[i]);
		print_escaped(out, values[i], true);
		fputc('"', out->to);
		separator = ",";
	}
	if (le)
		fprintf(out->to, "%sle=\"%s\"", separator, le);
	if (le || out->metric.labels[0])
		fputc('}', out->to);
}

#define VALUES(...)	((const char *const[LABELS]){ __VA_ARGS__ })

/* A metric whose value is the uint64_t at @offset of an object. */
struct field {
	struct metric metric;
	size_t offset;
};

static uint64_t value_of(const void *object, const struct field *field)
{
	return *(const uint64_t *)((const char *)object + field->offset);
}

static void sample(const struct out *out, uint64_t number, const char *const *values)
{
	print_name(out, types[out->metric.type].suffix, values, NULL);
	fprintf(out->to, " %" PRIu64 "\n", number);
}

/* Print a histogram. Without a known @sum the count is left out, too, as OpenMetrics requires. */
static void histogram(const struct out *out, const struct kvblk_stats *stats,
		      unsigned int latency, bool sum, const char *const *values)
{
	uint64_t seen = 0;
	char le[32];

	if (!stats->nr_buckets[latency])
		return;
	for (unsigned int i = 0; i < stats->nr_buckets[latency]; i++) {
		seen += stats->latency[latency][i];
		if (i < LE_FIRST || i > LE_LAST)
			continue;
		/* inclusive limit: the last nanosecond of the bucket */
		snprintf(le, sizeof(le), "%.12g", (double)((2ull << i) - 1) / 1e9);
		print_name(out, "_bucket", values, le);
		fprintf(out->to, " %" PRIu64 "\n", seen);
	}
	print_name(out, "_bucket", values, "+Inf");
	fprintf(out->to, " %" PRIu64 "\n", seen);
	if (!sum)
		return;
	print_name(out, "_count", values, NULL);
	fprintf(out->to, " %" PRIu64 "\n", seen);
	print_name(out, "_sum", values, NULL);
	fprintf(out->to, " %" PRIu64 ".%09" PRIu64 "\n", stats->latency_ns[latency] / 1000000000,
		stats->latency_ns[latency] % 1000000000);
}

static void print_gauge(struct out *out, const char *name, const char *help, uint64_t value)
{
	begin(out, &(struct metric){ name, METRIC_GAUGE, help, { 0 } });
	if (out->format != METRICS_TABLE)
		sample(out, value, VALUES(NULL));
}

/* Print the process metrics, named as in Prometheus' client libraries. */
static void print_process(struct out *out, const struct metrics *metrics)
{
	print_gauge(out, "process_resident_memory_bytes", "Resident memory of kvblkd.", metrics->process_bytes);
	print_gauge(out, "process_open_fds", "Open file descriptors of kvblkd.", metrics->process_fds);
	begin(out, &(struct metric){ "process_cpu_seconds", METRIC_COUNTER, "CPU time that kvblkd has used.",
				     { 0 } });
	if (out->format != METRICS_TABLE)
		fprintf(out->to, "process_cpu_seconds_total %.6f\n", metrics->process_cpu_s);
}

static void print_daemon(struct out *out, const struct metrics *metrics)
{
	begin(out, &(struct metric){ "kvblk_build", METRIC_INFO, "1; the label is the version of kvblkd.",
				     { "version" } });
	if (out->format != METRICS_TABLE)
		sample(out, 1, VALUES(KVBLK_VERSION));
	print_gauge(out, "kvblk_up", "1 if the module is loaded and responds, else 0.", metrics->up);
	print_gauge(out, "kvblk_ready", "1 if /ready returns 200, else 0.", metrics->ready);
	print_gauge(out, "kvblkd_config_valid",
		    "1 if the configuration that kvblkd read last has no error, else 0. At the start kvblkd skips invalid settings; on a reload with errors it keeps the previous configuration.",
		    metrics->config_valid);
	print_gauge(out, "kvblkd_steps_failed",
		    "Steps towards the configured state that failed and are retried, such as a connection or an import.",
		    metrics->steps_failed);
	begin(out, &(struct metric){ "kvblk_scrape_duration_seconds", METRIC_GAUGE,
				     "Time to query the module.", { 0 } });
	if (out->format != METRICS_TABLE)
		fprintf(out->to, "kvblk_scrape_duration_seconds %.9f\n", metrics->seconds);
}

#define KV_EVENTS(field)	offsetof(struct kvevents_counts, field)

static const struct field kv_events_fields[] = {
	{ { "kvblk_kv_events_stored", METRIC_COUNTER, "Hashes that KV events reported as stored.", { 0 } },
	  KV_EVENTS(stored) },
	{ { "kvblk_kv_events_removed", METRIC_COUNTER, "Hashes that KV events reported as removed.", { 0 } },
	  KV_EVENTS(removed) },
	{ { "kvblk_kv_events_losses", METRIC_COUNTER,
	    "Overflows of a pool's change feed, each followed by a read of the whole pool.", { 0 } },
	  KV_EVENTS(lost) },
	{ { "kvblk_kv_events_untold", METRIC_COUNTER,
	    "Blocks whose tokens did not fit into token_bytes.", { 0 } },
	  KV_EVENTS(untold) },
	{ { "kvblk_kv_events_hashes", METRIC_GAUGE,
	    "Hashes with blocks in the pools, as reported to subscribers of KV events.", { 0 } },
	  KV_EVENTS(hashes) },
	{ { "kvblk_kv_events_token_bytes", METRIC_GAUGE, "Memory for the tokens of blocks.", { 0 } },
	  KV_EVENTS(token_bytes) },
};

#define DIRECTORY(field)	offsetof(struct directory_counts, field)

static const struct field directory_fields[] = {
	{ { "kvblkd_directory_servers", METRIC_GAUGE,
	    "Known servers of the directory of pods: those of the configuration, and the nodes of their cluster.",
	    { 0 } },
	  DIRECTORY(servers) },
	{ { "kvblkd_directory_up", METRIC_GAUGE,
	    "Servers of the directory that respond. Anchors of the others are misses.", { 0 } },
	  DIRECTORY(up) },
	{ { "kvblkd_directory_questions", METRIC_COUNTER,
	    "Questions of lookups to the directory, each of up to 64 anchors.", { 0 } },
	  DIRECTORY(questions) },
	{ { "kvblkd_directory_asked", METRIC_COUNTER, "Anchors in the questions.", { 0 } },
	  DIRECTORY(asked) },
	{ { "kvblkd_directory_answered", METRIC_COUNTER,
	    "Anchors that the directory found in time.", { 0 } },
	  DIRECTORY(answered) },
	{ { "kvblkd_directory_late", METRIC_COUNTER,
	    "Questions for which a server took longer than ask_ms.", { 0 } },
	  DIRECTORY(late) },
	{ { "kvblkd_directory_published", METRIC_COUNTER,
	    "Anchors that the directory stored for this host.", { 0 } },
	  DIRECTORY(published) },
	{ { "kvblkd_directory_dropped", METRIC_COUNTER,
	    "Anchors of this host that the directory did not store, because a server was down, slow or refused.",
	    { 0 } },
	  DIRECTORY(dropped) },
};

/* Print metrics without labels, with the values in @counts unless it is NULL. */
static void print_fields(struct out *out, const struct field *fields, size_t nr, const void *counts)
{
	for (size_t i = 0; i < nr; i++) {
		const struct metric *metric = &fields[i].metric;

		begin(out, metric);
		if (counts && out->format != METRICS_TABLE)
			fprintf(out->to, "%s%s %" PRIu64 "\n", metric->name, types[metric->type].suffix,
				value_of(counts, &fields[i]));
	}
}

static void print_sources(struct out *out, const struct metrics *metrics)
{
	begin(out, &(struct metric){ "kvblk_kv_events_source_connected", METRIC_GAUGE,
				     "1 if kvblkd is connected to the engine whose KV events it reads, else 0.",
				     { "source" } });
	for (size_t i = 0; i < metrics->nr_sources && out->format != METRICS_TABLE; i++)
		sample(out, metrics->sources[i].connected, VALUES(metrics->sources[i].endpoint));
}

static const char *const outcomes[] = {
#define X(NAME, name)	[PRESTAGE_##NAME] = name,
	PRESTAGE_OUTCOME_TABLE(X)
#undef X
};

#define PRESTAGE(field)	offsetof(struct prestage_counts, field)

static const struct field prestage_fields[] = {
	{ { "kvblk_prestage_bytes", METRIC_COUNTER, "Bytes that were loaded into memory for hints.", { 0 } },
	  PRESTAGE(prefetches.bytes) },
	{ { "kvblk_prestage_waiting", METRIC_GAUGE, "Queued hints.", { 0 } },
	  PRESTAGE(prefetches.waiting) },
	{ { "kvblk_prestage_sessions", METRIC_GAUGE, "Sessions whose keys are remembered.", { 0 } },
	  PRESTAGE(sessions) },
};

static void print_prestage(struct out *out, const struct metrics *metrics)
{
	const struct prestage_counts *counts = &metrics->prestage;
	bool values = metrics->prestages && out->format != METRICS_TABLE;

	begin(out, &(struct metric){ "kvblk_prestage_requests", METRIC_COUNTER,
				     "Requests and hints at the prestage socket, by outcome: accepted, clipped (accepted in part), deferred (too many are queued), rejected (invalid), missing (unknown session or blocks).",
				     { "outcome" } });
	for (int i = 0; i < PRESTAGE_OUTCOMES && values; i++)
		sample(out, counts->requests[i], VALUES(outcomes[i]));
	begin(out, &(struct metric){ "kvblk_prestage_blocks", METRIC_COUNTER,
				     "Blocks that hints named, by result: loaded, resident (already in memory), missing, clipped (beyond a limit of bytes), expired (after the deadline).",
				     { "result" } });
	for (unsigned int i = 1; i < PREFETCHER_STATES && values; i++)
		sample(out, counts->prefetches.blocks[i], VALUES(kvblk_prestage_state_name(i)));
	for (size_t i = 0; i < sizeof(prestage_fields) / sizeof(prestage_fields[0]); i++) {
		begin(out, &prestage_fields[i].metric);
		if (values)
			sample(out, value_of(counts, &prestage_fields[i]), VALUES(NULL));
	}
}

#define POOL_FIELD(field)	offsetof(struct kvblk_pool_state, field)

static const struct field pool_fields[] = {
	{ { "kvblk_capacity_bytes", METRIC_GAUGE,
	    "Bytes in the segments of all members that are up or restoring.", { "pool" } },
	  POOL_FIELD(capacity) },
	{ { "kvblk_free_bytes", METRIC_GAUGE,
	    "Bytes in empty segments of members that are up.", { "pool" } },
	  POOL_FIELD(free) },
	{ { "kvblk_index_entries", METRIC_GAUGE,
	    "Entries of the index: the upper limit of blocks in the pool.", { "pool" } },
	  POOL_FIELD(index_slots) },
	{ { "kvblk_index_bytes", METRIC_GAUGE, "Memory for the index.", { "pool" } },
	  POOL_FIELD(index_bytes) },
};

/* Returns 0 if no member serves, 2 if all serve and take puts, otherwise 1. */
static int health_of(const struct kvblk_pool_state *pool, const struct snapshot *snapshot)
{
	unsigned int serve = 0;
	bool all = true;

	for (const struct kvblk_member_state *m = snapshot->members; m; m = m->next) {
		if (strcmp(m->pool, pool->name) != 0)
			continue;
		serve += ready_serves(m);
		all = all && ready_serves(m) && !m->read_only;
	}
	return serve ? 1 + all : 0;
}

static void print_pools(struct out *out, const struct snapshot *snapshot)
{
	static const char *const healths[] = { "down", "degraded", "ok" };

	begin(out, &(struct metric){ "kvblk_pool_health", METRIC_GAUGE,
				     "1 for the present health of the pool, else 0: ok, degraded (some members do not serve, or accept no puts) or down (no member serves).",
				     { "pool", "health" } });
	for (const struct kvblk_pool_state *p = snapshot->pools; p; p = p->next) {
		for (int i = 0; i < 3; i++)
			sample(out, health_of(p, snapshot) == i, VALUES(p->name, healths[i]));
	}
	for (size_t i = 0; i < sizeof(pool_fields) / sizeof(pool_fields[0]); i++) {
		begin(out, &pool_fields[i].metric);
		for (const struct kvblk_pool_state *p = snapshot->pools; p; p = p->next)
			sample(out, value_of(p, &pool_fields[i]), VALUES(p->name));
	}
}

static void print_rules(struct out *out, const struct metrics *metrics)
{
	const struct kvblk_pool_state *p;
	uint64_t value;
	double ratio;

	begin(out, &(struct metric){ "kvblk_tunable", METRIC_GAUGE,
				     "Present values of the pool's numeric tunables.",
				     { "pool", "tunable" } });
	for (p = metrics->snapshot.pools; p; p = p->next) {
		for (size_t i = 0; i < nr_tunables; i++) {
			if (metrics->tunable(p->name, tunables[i].name, &value))
				sample(out, value, VALUES(p->name, tunables[i].name));
		}
	}
	begin(out, &(struct metric){ "kvblk_budget_ratio", METRIC_GAUGE,
				     "Write rate of the pool as a share of its budget: a mean over a quarter of a day with the default interval, 1 at the start. No sample for a pool without a budget.",
				     { "pool" } });
	for (p = metrics->snapshot.pools; p; p = p->next) {
		ratio = metrics->budget_ratio(p->name);
		if (ratio < 0)
			continue;
		print_name(out, "", VALUES(p->name), NULL);
		fprintf(out->to, " %.6g\n", ratio);
	}
}

static void print_members(struct out *out, const struct snapshot *snapshot)
{
	const struct kvblk_member_state *m;
	char uuid[40];

	begin(out, &(struct metric){ "kvblk_member", METRIC_INFO,
				     "1; the labels identify the member's drive: path, as it was added; device, the kernel's present name; uuid of the member; place, the NQN and namespace or the serial number, of a missing member the last one known.",
				     { "pool", "member", "path", "device", "uuid", "place" } });
	for (m = snapshot->members; m; m = m->next)
		sample(out, 1, VALUES(m->pool, m->name, m->path, m->device,
				      uuid_format(m->uuid, uuid), m->place));
	begin(out, &(struct metric){ "kvblk_member_state", METRIC_GAUGE,
				     "1 for the present state of the member, else 0: up, read-only (writes fail: its blocks are served, puts use other members), fenced (as read-only: its reservation is lost), or a state in which gets of its blocks miss: restoring, suspect (no response), failing (responds with errors), dead, removing, missing, unrestored (its blocks could not be read).",
				     { "pool", "member", "state" } });
	for (m = snapshot->members; m; m = m->next) {
		for (const char *const *c = ready_conditions; *c; c++)
			sample(out, !strcmp(ready_condition(m), *c), VALUES(m->pool, m->name, *c));
	}
	begin(out, &(struct metric){ "kvblk_member_size_bytes", METRIC_GAUGE,
				     "Size of the member's device.", { "pool", "member" } });
	for (m = snapshot->members; m; m = m->next) {
		if (m->state != KVBLK_MEMBER_STATUS_MISSING)
			sample(out, m->size, VALUES(m->pool, m->name));
	}
}

#define FOREIGN(field)	offsetof(struct kvblk_member_state, field)
#define OF_FOREIGN	{ "pool", "member" }

static const struct field foreign_fields[] = {
	{ { "kvblk_foreign_member_blocks", METRIC_COUNTER,
	    "Blocks of the foreign member that were entered into the index.", OF_FOREIGN },
	  FOREIGN(blocks) },
	{ { "kvblk_foreign_member_lacks", METRIC_COUNTER,
	    "Blocks of the foreign member that the index had no free slot for: they are misses here.",
	    OF_FOREIGN },
	  FOREIGN(lacks) },
	{ { "kvblk_foreign_member_gets", METRIC_COUNTER,
	    "Blocks delivered from the foreign member.", OF_FOREIGN },
	  FOREIGN(gets) },
	{ { "kvblk_foreign_member_get_bytes", METRIC_COUNTER,
	    "Bytes of the blocks delivered from the foreign member.", OF_FOREIGN },
	  FOREIGN(get_bytes) },
	{ { "kvblk_foreign_member_misses", METRIC_COUNTER,
	    "Gets of the foreign member's blocks that missed.", OF_FOREIGN },
	  FOREIGN(get_misses) },
};

/* Returns whether a foreign member may be in the condition, which an own member may be in. */
static bool is_foreign(const char *condition)
{
	return strcmp(condition, "missing") != 0 && strcmp(condition, "read-only") != 0 &&
	       strcmp(condition, "fenced") != 0;
}

/* Print the members of other nodes. All numbers count from the time when following began. */
static void print_foreign(struct out *out, const struct snapshot *snapshot)
{
	const struct kvblk_member_state *m;
	char uuid[40];

	begin(out, &(struct metric){ "kvblk_foreign_member", METRIC_INFO,
				     "1; the labels identify a member of another node of the pod that the pool follows: owner, the node that owns it; device, the kernel's present name here; uuid of the member; place, the NQN and namespace or the serial number.",
				     { "pool", "member", "owner", "device", "uuid", "place" } });
	for (m = snapshot->foreign; m; m = m->next)
		sample(out, 1, VALUES(m->pool, m->name, m->owner, m->device,
				      uuid_format(m->uuid, uuid), m->place));
	begin(out, &(struct metric){ "kvblk_foreign_member_state", METRIC_GAUGE,
				     "1 for the present state of the foreign member, else 0: up, or a state in which gets of its blocks miss: restoring (its blocks are being found), suspect (no response), failing (responds with errors), dead (its device is lost), removing, unrestored (formatted anew by its owner, or of another version).",
				     { "pool", "member", "state" } });
	for (m = snapshot->foreign; m; m = m->next) {
		for (const char *const *c = ready_conditions; *c; c++) {
			if (is_foreign(*c))
				sample(out, !strcmp(ready_condition(m), *c), VALUES(m->pool, m->name, *c));
		}
	}
	begin(out, &(struct metric){ "kvblk_foreign_member_size_bytes", METRIC_GAUGE,
				     "Size of the foreign member's device.", OF_FOREIGN });
	for (m = snapshot->foreign; m; m = m->next)
		sample(out, m->size, VALUES(m->pool, m->name));
	for (size_t i = 0; i < sizeof(foreign_fields) / sizeof(foreign_fields[0]); i++) {
		begin(out, &foreign_fields[i].metric);
		for (m = snapshot->foreign; m; m = m->next) {
			if (m->has_use)
				sample(out, value_of(m, &foreign_fields[i]), VALUES(m->pool, m->name));
		}
	}
}

#define TENANT(field)	offsetof(struct kvblk_tenant_state, field)
#define OF_TENANT	{ "pool", "tenant" }

static const struct field used_fields[] = {
	{ { "kvblk_tenant_used_bytes", METRIC_GAUGE,
	    "Bytes that blocks of the tenant take on members, with their headers.", OF_TENANT },
	  TENANT(used_bytes) },
	{ { "kvblk_tenant_used_blocks", METRIC_GAUGE, "Blocks of the tenant on members.",
	    OF_TENANT },
	  TENANT(used_blocks) },
	{ { "kvblk_tenant_used_dram_bytes", METRIC_GAUGE,
	    "Bytes that blocks of the tenant take in memory.", OF_TENANT },
	  TENANT(used_dram) },
};

/* a limit of 0 is none */
static const struct field limit_fields[] = {
	{ { "kvblk_tenant_quota_bytes", METRIC_GAUGE,
	    "Limit of kvblk_tenant_used_bytes. Missing if there is none, as the other limits.",
	    OF_TENANT },
	  TENANT(quota_bytes) },
	{ { "kvblk_tenant_quota_blocks", METRIC_GAUGE, "Limit of kvblk_tenant_used_blocks.",
	    OF_TENANT },
	  TENANT(quota_blocks) },
	{ { "kvblk_tenant_quota_dram_bytes", METRIC_GAUGE,
	    "Limit of kvblk_tenant_used_dram_bytes.", OF_TENANT },
	  TENANT(quota_dram) },
};

#define TENANT_COUNTERS	(KVBLK_A_TENANT_COUNTER_MAX + 1)
#define TENANT_COUNTER(text, NAME)	[KVBLK_A_TENANT_COUNTER_##NAME] = text,
static const char *const tenant_counter_names[TENANT_COUNTERS] = {
	KVBLK_TENANT_COUNTER_TABLE(TENANT_COUNTER)
};
static const char *const tenant_counter_docs[TENANT_COUNTERS] = {
	KVBLK_TENANT_COUNTER_DOC_TABLE(TENANT_COUNTER)
};

static void print_tenants(struct out *out, const struct snapshot *snapshot)
{
	const struct kvblk_tenant_state *t;
	char full[NAME_LEN];

	for (size_t i = 0; i < sizeof(used_fields) / sizeof(used_fields[0]); i++) {
		begin(out, &used_fields[i].metric);
		for (t = snapshot->tenants; t; t = t->next) {
			if (t->has_used)
				sample(out, value_of(t, &used_fields[i]), VALUES(t->pool, t->name));
		}
	}
	for (size_t i = 0; i < sizeof(limit_fields) / sizeof(limit_fields[0]); i++) {
		begin(out, &limit_fields[i].metric);
		for (t = snapshot->tenants; t; t = t->next) {
			if (value_of(t, &limit_fields[i]))
				sample(out, value_of(t, &limit_fields[i]), VALUES(t->pool, t->name));
		}
	}
	for (unsigned int i = 1; i < TENANT_COUNTERS; i++) {
		snprintf(full, sizeof(full), "kvblk_tenant_%s", tenant_counter_names[i]);
		begin(out, &(struct metric){ full, METRIC_COUNTER, tenant_counter_docs[i], OF_TENANT });
		for (t = snapshot->tenants; t; t = t->next) {
			if (t->has_counter[i])
				sample(out, t->counter[i], VALUES(t->pool, t->name));
		}
	}
}

static double drive_used(const struct smart *smart)
{
	return smart->used / 100.0;
}

static double drive_spare(const struct smart *smart)
{
	return smart->spare / 100.0;
}

static double drive_warnings(const struct smart *smart)
{
	return smart->warning;
}

static double drive_written(const struct smart *smart)
{
	return smart->written;
}

static double drive_time(const struct smart *smart)
{
	return (double)smart->time;
}

#define OF_MEMBER	{ "pool", "member" }

static const struct {
	struct metric metric;
	double (*value)(const struct smart *smart);
	bool rated;		/* only for a drive that reports wear */
} drive_fields[] = {
	{ { "kvblk_member_drive_used_ratio", METRIC_GAUGE,
	    "Used share of the drive's life; may exceed 1. All metrics of drives are read every ten minutes, from NVMe drives only. A Linux target reports no used life, spare blocks or warnings.",
	    OF_MEMBER }, drive_used, true },
	{ { "kvblk_member_drive_spare_ratio", METRIC_GAUGE,
	    "Remaining share of the drive's spare blocks.", OF_MEMBER }, drive_spare, true },
	{ { "kvblk_member_drive_warnings", METRIC_GAUGE,
	    "Critical warnings of the drive, bits as in the SMART log; 0: none.",
	    OF_MEMBER }, drive_warnings, true },
	{ { "kvblk_member_drive_written_bytes", METRIC_COUNTER,
	    "Bytes written to the drive during its life.", OF_MEMBER }, drive_written, false },
	{ { "kvblk_member_drive_read_timestamp_seconds", METRIC_GAUGE,
	    "Time of the drive's last response, in seconds since 1970. The other metrics of the drive keep the values of this response.",
	    OF_MEMBER }, drive_time, false },
};

static void print_drives(struct out *out, const struct metrics *metrics)
{
	struct smart smart;

	for (size_t i = 0; i < sizeof(drive_fields) / sizeof(drive_fields[0]); i++) {
		begin(out, &drive_fields[i].metric);
		for (const struct kvblk_member_state *m = metrics->snapshot.members; m; m = m->next) {
			smart = metrics->smart(m->pool, m->name);
			if (!smart.valid || (drive_fields[i].rated && !smart.rated))
				continue;
			print_name(out, types[out->metric.type].suffix, VALUES(m->pool, m->name), NULL);
			fprintf(out->to, " %.15g\n", drive_fields[i].value(&smart));
		}
	}
}

#define COUNTERS	(KVBLK_A_COUNTER_MAX + 1)
#define GAUGES		(KVBLK_A_GAUGE_MAX + 1)

#define COUNTER(text, NAME)	[KVBLK_A_COUNTER_##NAME] = text,
#define GAUGE(text, NAME)	[KVBLK_A_GAUGE_##NAME] = text,
static const char *const counter_names[COUNTERS] = { KVBLK_COUNTER_TABLE(COUNTER) };
static const char *const member_counter_names[COUNTERS] = { KVBLK_MEMBER_COUNTER_TABLE(COUNTER) };
static const char *const counter_docs[COUNTERS] = { KVBLK_COUNTER_DOC_TABLE(COUNTER) };
static const char *const gauge_names[GAUGES] = { KVBLK_GAUGE_TABLE(GAUGE) };
static const char *const gauge_docs[GAUGES] = { KVBLK_GAUGE_DOC_TABLE(GAUGE) };

/* Fill in the labels: pool, then the member if there is one, then @third. */
static const char *const *values_of(const struct kvblk_stats *stats, const char *values[LABELS],
				    const char *third)
{
	values[0] = stats->pool;
	values[1] = *stats->member ? stats->member : third;
	values[2] = third;
	return values;
}

/* Counters and gauges of pools, or with @members of members; @prefix starts their names. */
struct numbers {
	const char *prefix;
	const struct kvblk_stats *stats;
	bool members;
};

/* Print the numbers named @group* as one metric, the rest of the name as the last label. */
static void print_group(struct out *out, const struct numbers *numbers, bool counters,
			const char *const *names, const char *group, struct metric metric)
{
	const char *values[LABELS];
	unsigned int nr = counters ? COUNTERS : GAUGES;

	begin(out, &metric);
	for (const struct kvblk_stats *s = numbers->stats; s; s = s->next) {
		for (unsigned int i = 0; i < nr; i++) {
			if (names[i] && !strncmp(names[i], group, strlen(group)) &&
			    (counters ? s->has_counter[i] : s->has_gauge[i]))
				sample(out, counters ? s->counter[i] : s->gauge[i],
				       values_of(s, values, names[i] + strlen(group)));
		}
	}
}

static void print_number(struct out *out, const struct numbers *numbers, const char *name,
			 enum metric_type type, const char *help, unsigned int i)
{
	const char *values[LABELS];
	char full[NAME_LEN];
	struct metric metric = { full, type, help, { "pool", numbers->members ? "member" : NULL } };

	snprintf(full, sizeof(full), "%s%s", numbers->prefix, name);
	begin(out, &metric);
	for (const struct kvblk_stats *s = numbers->stats; s; s = s->next) {
		if (type == METRIC_COUNTER ? s->has_counter[i] : s->has_gauge[i])
			sample(out, type == METRIC_COUNTER ? s->counter[i] : s->gauge[i],
			       values_of(s, values, ""));
	}
}

static void print_counters(struct out *out, const struct numbers *numbers)
{
	const char *const *names = numbers->members ? member_counter_names : counter_names;

	for (unsigned int i = 0; i < COUNTERS; i++) {
		if (names[i] && strncmp(names[i], "miss_", 5) != 0)
			print_number(out, numbers, names[i], METRIC_COUNTER, counter_docs[i], i);
	}
	if (!numbers->members)
		print_group(out, numbers, true, names, "miss_", (struct metric){
			"kvblk_misses", METRIC_COUNTER,
			"Gets that missed, by reason: absent, expired, member (which does not serve), moved, layout, read_error, damaged, unproven; of blocks of other nodes: foreign_moved, foreign_late, foreign_member.",
			{ "pool", "reason" } });
}

/* Returns true for gauges of members. Leases, index and memory exist for pools only. */
static bool is_members(unsigned int gauge)
{
	return gauge != KVBLK_A_GAUGE_LEASED_BYTES && gauge != KVBLK_A_GAUGE_INDEX_USED &&
	       gauge != KVBLK_A_GAUGE_DRAM_BYTES;
}

static void print_gauges(struct out *out, const struct numbers *numbers)
{
	char full[NAME_LEN];
	struct metric segments = { full, METRIC_GAUGE,
		"Segments by state: free, ready (to receive records), open, sealed (full), retiring (reclaimed, with readers).",
		{ "pool", numbers->members ? "member" : "state", numbers->members ? "state" : NULL } };

	for (unsigned int i = 0; i < GAUGES; i++) {
		if (gauge_names[i] && strncmp(gauge_names[i], "segments", 8) != 0 &&
		    (!numbers->members || is_members(i)))
			print_number(out, numbers, gauge_names[i], METRIC_GAUGE, gauge_docs[i], i);
	}
	snprintf(full, sizeof(full), "%ssegments", numbers->prefix);
	print_group(out, numbers, false, gauge_names, "segments_", segments);
}

#define LATENCY(text, NAME)	[KVBLK_A_LATENCY_##NAME] = text,
static const char *const latency_names[] = { KVBLK_LATENCY_TABLE(LATENCY) };
#define LATENCIES	(sizeof(latency_names) / sizeof(latency_names[0]))

static bool is_by_size(unsigned int latency)
{
	return latency == KVBLK_A_LATENCY_PUT || latency == KVBLK_A_LATENCY_GET;
}

static void print_latencies(struct out *out, const struct snapshot *snapshot)
{
	char size[24];

	begin(out, &(struct metric){ "kvblk_transfer_seconds", METRIC_HISTOGRAM,
				     "Puts and gets by the bytes that they transferred: at most size_max, and more than the previous class.",
				     { "pool", "op", "size_max" } });
	for (const struct kvblk_stats *s = snapshot->size_stats; s; s = s->next) {
		snprintf(size, sizeof(size), "%" PRIu64, s->size_max);
		for (unsigned int i = 0; i < LATENCIES; i++) {
			if (latency_names[i])
				histogram(out, s, i, true, VALUES(s->pool, latency_names[i], size));
		}
	}
	begin(out, &(struct metric){ "kvblk_request_seconds", METRIC_HISTOGRAM,
				     "Deletes, lookup calls, and gets of blocks of other nodes. Buckets only, because the module keeps no sum.",
				     { "pool", "op" } });
	for (const struct kvblk_stats *s = snapshot->stats; s; s = s->next) {
		for (unsigned int i = 0; i < LATENCIES; i++) {
			if (latency_names[i] && !is_by_size(i))
				histogram(out, s, i, false, VALUES(s->pool, latency_names[i]));
		}
	}
	begin(out, &(struct metric){ "kvblk_member_transfer_seconds", METRIC_HISTOGRAM,
				     "Puts and gets of a member. Buckets only, because the module keeps no sum.",
				     { "pool", "member", "op" } });
	for (const struct kvblk_stats *s = snapshot->member_stats; s; s = s->next) {
		for (unsigned int i = 0; i < LATENCIES; i++) {
			if (latency_names[i])
				histogram(out, s, i, false,
					  VALUES(s->pool, s->member, latency_names[i]));
		}
	}
}

void metrics_print(FILE *to, enum metrics_format format, const struct metrics *metrics)
{
	const struct snapshot *snapshot = &metrics->snapshot;
	const struct numbers pools = { "kvblk_", snapshot->stats, false };
	const struct numbers members = { "kvblk_member_", snapshot->member_stats, true };
	struct out out = { .to = to, .format = format };

	print_daemon(&out, metrics);
	print_fields(&out, kv_events_fields, sizeof(kv_events_fields) / sizeof(kv_events_fields[0]),
		     metrics->publishes ? &metrics->kv_events : NULL);
	print_sources(&out, metrics);
	print_prestage(&out, metrics);
	print_fields(&out, directory_fields, sizeof(directory_fields) / sizeof(directory_fields[0]),
		     metrics->has_directory ? &metrics->directory : NULL);
	print_pools(&out, snapshot);
	print_rules(&out, metrics);
	print_gauges(&out, &pools);
	print_counters(&out, &pools);
	print_members(&out, snapshot);
	print_drives(&out, metrics);
	print_gauges(&out, &members);
	print_counters(&out, &members);
	print_foreign(&out, snapshot);
	print_tenants(&out, snapshot);
	print_latencies(&out, snapshot);
	print_process(&out, metrics);
	if (format == METRICS_OPENMETRICS)
		fputs("# EOF\n", to);
}

const char *metrics_type(enum metrics_format format)
{
	return format == METRICS_OPENMETRICS ?
	       "application/openmetrics-text; version=1.0.0; charset=utf-8" :
	       "text/plain; version=0.0.4; charset=utf-8";
}

/* Weigh a range of Accept, such as "text/plain;version=0.0.4;q=0.3". */
static void weigh(char *range, double *open, double *text)
{
	char *rest = range, *type = strsep(&rest, ";"), *parameter;
	bool other = false;
	double q = 1, *best;

	while ((parameter = strsep(&rest, ";"))) {
		parameter += strspn(parameter, " \t");
		if (!strncasecmp(parameter, "q=", 2))
			q = strtod(parameter + 2, NULL);
		if (!strncasecmp(parameter, "version=", 8))
			other = strncmp(parameter + 8 + (parameter[8] == '"'), "1.0.0", 5) != 0;
	}
	type += strspn(type, " \t");
	type[strcspn(type, " \t")] = '\0';
	if (!strcasecmp(type, "application/openmetrics-text"))
		best = other ? NULL : open;
	else if (!strcasecmp(type, "text/plain") || !strcasecmp(type, "text/*") ||
		 !strcmp(type, "*/*"))
		best = text;
	else
		best = NULL;
	if (best && q > *best && q <= 1)
		*best = q;
}

enum metrics_format metrics_accepted(const char *accept)
{
	char copy[1024], *rest = copy, *range;
	double open = 0, text = 0;

	snprintf(copy, sizeof(copy), "%s", accept ? accept : "");
	while ((range = strsep(&rest, ",")))
		weigh(range, &open, &text);
	return open > 0 && open >= text ? METRICS_OPENMETRICS : METRICS_TEXT;
}
