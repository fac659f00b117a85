// SPDX-License-Identifier: MIT
/* kvblk doctor: options and output, see doctor.h. */
#include <stdio.h>
#include <unistd.h>

#include "cli/options.h"
#include "host/doctor.h"

static const struct cli_syntax doctor_syntax = {
	.list = true,
	.doc = "Check this host for reasons that make kvblk slow or fail: kernel, module, locked memory, io_uring, P2P memory, group and nodes, timeouts of NVMe controllers, pools. Print remedies, change nothing.\v"
	       "Example:\n  kvblk doctor || kvblk doctor -o json\n\n"
	       "Exits with 4 if something needs a change, with 5 if kvblk cannot work.",
};

static json_t *json_doctor(const struct doctor *doctor)
{
	json_t *array = json_array();

	for (size_t i = 0; i < doctor->nr; i++) {
		const struct doctor_line *line = &doctor->lines[i];

		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:s}",
			"check", line->check, "verdict", doctor_verdict(line->health),
			"what", line->what, "do", line->act));
	}
	return json_pack("{s:s, s:o}", "verdict", doctor_verdict(doctor->health), "checks", array);
}

static void print_doctor(const struct cli_list *list, const struct doctor *doctor)
{
	static const struct cli_column columns[] = {
		{ "VERDICT", -8 }, { "CHECK", -9 }, { "WHAT", -1 }, { 0 },
	};
	/* scripts get all cells in one line */
	static const struct cli_column bare[] = {
		{ "VERDICT", 0 }, { "CHECK", 0 }, { "WHAT", 0 }, { "DO", 0 }, { 0 },
	};

	cli_print_head(list, columns);
	for (size_t i = 0; i < doctor->nr; i++) {
		const struct doctor_line *line = &doctor->lines[i];
		const char *cells[] = {
			doctor_verdict(line->health), line->check, line->what, line->act,
		};

		cli_print_row(list, list->bare ? bare : columns, cells);
		if (*line->act && !list->bare)
			printf("%*s-> %s\n", 19, "", line->act);
	}
}

int doctor_main(int argc, char **argv)
{
	/* static, because the text may be too large for the stack */
	static struct doctor doctor;
	struct cli_list list = { 0 };
	struct kvblk_admin *admin = NULL;
	struct snapshot snapshot = { 0 };
	bool told;
	int ret;

	cli_parse(&doctor_syntax, argc, argv, &list);
	/* without the module, or outside its network namespace, check the rest */
	told = !kvblk_admin_open(&admin) && !snapshot_get(admin, NULL, &snapshot);
	doctor_look("", kvblk_version(), told ? &snapshot : NULL, &doctor);
	snapshot_free(&snapshot);
	kvblk_admin_close(admin);
	if (list.json) {
		ret = cli_print_json(json_doctor(&doctor));
	} else {
		print_doctor(&list, &doctor);
		ret = cli_flush();
	}
	return ret ? ret : (int)health_exit(doctor.health);
}
