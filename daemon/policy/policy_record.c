// SPDX-License-Identifier: MIT
/* Lines of a record, see policy_record.h. */
#include <errno.h>
#include <jansson.h>

#include "policy/policy_file.h"
#include "policy/policy_record.h"

static json_t *pack_member(const struct policy_member *m)
{
	const struct smart *smart = &m->smart;

	return json_pack("{s:s, s:b, s:f, s:f, s:i, s:i, s:f, s:f, s:{s:b, s:b, s:i, s:i, s:i, s:i, s:f}}",
		"name", m->name, "up", m->up, "size", m->size, "segment_size", m->segment_size,
		"nr_segments", (int)m->nr_segments, "free_segments", (int)m->free_segments,
		"written", m->written, "reclaimed", m->reclaimed,
		"smart", "asked", smart->asked, "valid", smart->valid && smart->rated,
		"warning", (int)smart->warning, "used", (int)smart->used,
		"spare", (int)smart->spare, "spare_least", (int)smart->spare_least,
		"written", smart->written);
}

static json_t *pack_pool(const struct config_pool *pool)
{
	json_t *set = json_object();

	for (int i = 0; i < POLICY_TUNABLES; i++) {
		const char *text = pool->tunables[tunable_find(policy_tunables[i]) - tunables];

		if (text)
			json_object_set_new(set, policy_tunables[i], json_string(text));
	}
	return json_pack("{s:{s:f, s:I, s:I, s:I}, s:{s:I, s:I}, s:o}",
		"budget", "drive_writes", pool->budget.drive_writes,
		"bytes", (json_int_t)pool->budget.bytes,
		"life_days", (json_int_t)pool->budget.life_days,
		"interval", (json_int_t)pool->budget.interval,
		"reserve", "seconds", (json_int_t)pool->reserve.seconds,
		"most_permille", (json_int_t)pool->reserve.most_permille,
		"tunables", set);
}

int policy_record(FILE *to, unsigned int files, const struct policy_look *look,
		  const struct policy_verdict *verdict)
{
	json_t *members = json_array(), *lines = json_array(), *one;
	bool whole;

	for (size_t i = 0; i < look->nr_members; i++)
		json_array_append_new(members, pack_member(&look->members[i]));
	for (size_t i = 0; i < verdict->nr_lines; i++)
		json_array_append_new(lines, json_string(verdict->lines[i].text));
	one = json_pack("{s:s, s:i, s:o, s:f, s:I, s:f, s:o, s:o, s:o, s:o}",
		"pool", look->pool->name, "files", (int)files, "file", pack_pool(look->pool),
		"now_s", look->now_s, "assembly", (json_int_t)look->assembly,
		"written", look->written,
		"now", policy_pack_numbers(look->now, POLICY_TUNABLES), "members", members,
		"to", policy_pack_numbers(verdict->to, POLICY_TUNABLES), "lines", lines);
	whole = !json_dumpf(one, to, JSON_COMPACT) && fputc('\n', to) != EOF && !fflush(to);
	json_decref(one);
	return whole ? 0 : -EIO;
}
