// SPDX-License-Identifier: MIT
/* JSON Lines files: see jsonl.h. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/jsonl.h"

json_t *json_lines_load(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	FILE *from = fd >= 0 ? fdopen(fd, "r") : NULL;
	json_t *lines = json_array(), *one;
	char *line = NULL;
	size_t len = 0;

	if (fd >= 0 && !from)
		close(fd);
	while (from && getline(&line, &len, from) > 0) {
		one = json_loads(line, 0, NULL);
		if (json_is_object(one))
			json_array_append(lines, one);
		json_decref(one);
	}
	free(line);
	if (from)
		fclose(from);
	return lines;
}
