// SPDX-License-Identifier: MIT
/* kvblk status: the state of all pools on one screen, with findings and remedies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "common/uuid.h"
#include "pool/health.h"
#include "status/rates.h"

struct status_args {
	struct cli_list list;
	const char *pool;
};

static const struct cli_option status_arguments[] = {
	{ "POOL", 0, CLI_POOL, CLI_FIELD(struct status_args, pool) },
	{ 0 },
};

static const struct cli_syntax status_syntax = {
	.arguments = status_arguments,
	.list = true,
	.usage = "[POOL]",
	.doc = "Show the health of POOL, or of each pool, with findings and remedies, one line each.\v"
	       "Example:\n  kvblk status -H || kvblk status | mail -s kvblk root\n\n"
	       "Exits with 4 if a part of a pool does not serve, with 5 if a pool serves nothing.",
};

static json_t *json_report(const struct kvblk_pool_state *pool,
			   const struct health_report *report)
{
	json_t *findings = json_array();
	const bool in_pod = *pool->pod;
	json_t *json;
	char pod[40];

	for (size_t i = 0; i < report->nr_findings; i++) {
		const struct finding *f = &report->findings[i];

		json_array_append_new(findings, json_pack("{s:s, s:s, s:s, s:s}",
			"health", health_name(f->health), "member", f->member,
			"what", f->what, "do", f->act));
	}
	json = json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:o, s:s*, s:s*}",
		"pool", pool->name, "health", health_name(report->health),
		"members_up", (int)report->nr_up,
		"nr_members", (int)report->nr_members,
		"capacity", (json_int_t)pool->capacity,
		"free", (json_int_t)pool->free,
		"index_used", (json_int_t)pool->index_used,
		"index_slots", (json_int_t)pool->index_slots,
		"findings", findings,
		"pod", in_pod ? pool->pod : NULL,
		"pod_uuid", in_pod ? uuid_format(pool->pod_uuid, pod) : NULL);
	if (!in_pod)
		return json;
	json_object_set_new(json, "foreign_members_up", json_integer(report->nr_foreign_up));
	json_object_set_new(json, "nr_foreign_members", json_integer(report->nr_foreign));
	return json;
}

static void print_row(const struct cli_list *list, const struct cli_column *columns,
		      const struct kvblk_pool_state *pool, const struct health_report *report)
{
	char members[32], capacity[32], unused[32], used[32], index[32];
	const char *cells[] = {
		pool->name, health_name(report->health), members, capacity, unused, used, index,
	};

	snprintf(members, sizeof(members), "%u of %u", report->nr_up, report->nr_members);
	cli_list_bytes(list, pool->capacity, capacity, sizeof(capacity));
	cli_list_bytes(list, pool->free, unused, sizeof(unused));
	snprintf(used, sizeof(used), "%" PRIu64, pool->index_used);
	snprintf(index, sizeof(index), list->bare ? "%.0f" : "%.0f %%",
		 pool->index_slots ? 100.0 * (double)pool->index_used / (double)pool->index_slots : 0);
	cli_print_row(list, columns, cells);
}

static void print_findings(const struct kvblk_pool_state *pool, const struct health_report *report)
{
	char uuid[40];

	if (*pool->pod)
		printf("%s: part of pod %s, uuid %s; follows %u members of other nodes, %u of them up\n",
		       pool->name, pool->pod, uuid_format(pool->pod_uuid, uuid),
		       report->nr_foreign, report->nr_foreign_up);
	for (size_t i = 0; i < report->nr_findings; i++)
		printf("%s: %s; %s\n", pool->name, report->findings[i].what,
		       report->findings[i].act);
}

static int show(const struct snapshot *snapshot, const struct cli_list *list)
{
	static const struct cli_column columns[] = {
		{ "POOL", -16 }, { "HEALTH", -9 }, { "UP", 8 }, { "CAPACITY", 12 },
		{ "FREE", 12 }, { "BLOCKS", 12 }, { "INDEX", 6 }, { 0 },
	};
	struct health_report report;
	enum health worst = HEALTH_OK;
	json_t *array = json_array();
	int ret;

	if (!list->json && snapshot->pools)
		cli_print_head(list, columns);
	for (const struct kvblk_pool_state *p = snapshot->pools; p; p = p->next) {
		health_of(p, snapshot, &report);
		worst = report.health > worst ? report.health : worst;
		if (list->json)
			json_array_append_new(array, json_report(p, &report));
		else
			print_row(list, columns, p, &report);
	}
	if (list->json) {
		ret = cli_print_json(json_pack("{s:s, s:o}", "health", health_name(worst),
					       "pools", array));
		return ret ? ret : (int)health_exit(worst);
	}
	json_decref(array);
	if (!snapshot->pools && !list->bare)
		printf("no pools; what can be imported tells: kvblk pool import --scan\n");
	for (const struct kvblk_pool_state *p = snapshot->pools; p && !list->bare; p = p->next) {
		health_of(p, snapshot, &report);
		print_findings(p, &report);
	}
	ret = cli_flush();
	return ret ? ret : (int)health_exit(worst);
}

int status_main(int argc, char **argv)
{
	struct status_args args = { 0 };
	struct snapshot snapshot;
	struct kvblk_admin *admin;
	int ret;

	cli_parse(&status_syntax, argc, argv, &args);
	admin = cli_open_admin();
	ret = snapshot_take(admin, args.pool, &snapshot);
	if (ret == CLI_OK)
		ret = show(&snapshot, &args.list);
	snapshot_free(&snapshot);
	kvblk_admin_close(admin);
	return ret;
}
