// SPDX-License-Identifier: MIT
/*
 * Reads a trace line by line: a file of any size takes no more memory than
 * its ids.
 */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

/* Adds the request that @text holds; a blank line is none. */
static int add_line(struct trace_builder *b, const char *text, size_t len)
{
	json_t *root, *ids, *id, *when;
	int ret = 0;
	size_t i;

	if (strspn(text, " \t\r\n") == len)
		return 0;
	root = json_loadb(text, len, 0, NULL);
	ids = json_object_get(root, "hash_ids");
	when = json_object_get(root, "timestamp");
	if (!json_is_array(ids) || !json_is_number(when) ||
	    json_number_value(when) < 0 || json_number_value(when) > 1e15)
		ret = -EBADMSG;
	for (i = 0; !ret && i < json_array_size(ids); i++) {
		id = json_array_get(ids, i);
		ret = json_is_integer(id) ?
		      trace_add_id(b, (uint64_t)json_integer_value(id)) :
		      -EBADMSG;
	}
	if (!ret)
		ret = trace_add_req(b, (uint64_t)json_number_value(when));
	json_decref(root);
	return ret;
}

int trace_load(const char *path, struct trace *t, size_t *line)
{
	bool from_stdin = !strcmp(path, "-");
	struct trace_builder b = { 0 };
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	FILE *f;
	int ret = 0;

	*t = (struct trace){ 0 };
	*line = 0;
	f = from_stdin ? stdin : fopen(path, "re");
	if (!f)
		return -errno;
	while (!ret && (len = getline(&text, &room, f)) >= 0) {
		++*line;
		ret = add_line(&b, text, (size_t)len);
	}
	if (!ret && !feof(f))
		ret = -errno;
	free(text);
	if (!from_stdin)
		fclose(f);
	if (!ret)
		return trace_finish(&b, t);
	trace_discard(&b);
	return ret;
}
