// SPDX-License-Identifier: MIT
/*
 * Lists for eyes and for scripts. The rule: with -H a line is its cells and tabs
 * between them, nothing else; with -p numbers are bytes, not rounded.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"

static error_t parse_list(int key, char *arg, struct argp_state *state)
{
	struct cli_list *list = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &list->json;
		return 0;
	case 'H':
		list->bare = true;
		return 0;
	case 'p':
		list->exact = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option list_options[] = {
	{ NULL, 'H', NULL, 0, "For scripts: no headings, cells separated by one tab", 0 },
	{ NULL, 'p', NULL, 0, "For scripts: exact numbers, sizes in bytes", 0 },
	{ 0 },
};

const struct argp cli_list_argp = {
	.options = list_options,
	.parser = parse_list,
	.children = cli_output_children,
};

const struct argp_child cli_list_children[] = {
	{ &cli_list_argp, 0, NULL, 0 },
	{ 0 },
};

void cli_print_row(const struct cli_list *list, const struct cli_column *columns,
		   const char *const *cells)
{
	for (size_t i = 0; columns[i].title; i++) {
		bool last = !columns[i + 1].title;

		if (list->bare)
			printf("%s%s", cells[i], last ? "\n" : "\t");
		else if (last && columns[i].width < 0)
			printf("%s\n", cells[i]);
		else
			printf("%*s%s", columns[i].width, cells[i], last ? "\n" : " ");
	}
}

void cli_print_head(const struct cli_list *list, const struct cli_column *columns)
{
	const char *titles[CLI_COLUMNS_MAX];

	for (size_t i = 0; columns[i].title; i++)
		titles[i] = columns[i].title;
	if (!list->bare)
		cli_print_row(list, columns, titles);
}

char *cli_list_bytes(const struct cli_list *list, uint64_t bytes, char *buf, size_t len)
{
	if (!list->exact)
		return cli_format_bytes(bytes, buf, len);
	snprintf(buf, len, "%" PRIu64, bytes);
	return buf;
}
