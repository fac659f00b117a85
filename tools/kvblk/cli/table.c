// SPDX-License-Identifier: MIT
/*
 * Lists for people and for scripts. The rule: with -H a line is only its cells and tabs
 * between them; with -p sizes are exact, in bytes.
 */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"

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
