// SPDX-License-Identifier: MIT
/* Read a trace line by line, so that a file of any size takes only the memory of its ids. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "replay/trace.h"

/* ms, 30,000 years: a larger timestamp is in another unit */
#define TIMESTAMP_MAX	1e15

/* Record why a line is no request. Returns -EBADMSG. */
__attribute__((format(printf, 2, 3))) static int bad(struct trace_error *e,
						     const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(e->why, sizeof(e->why), format, args);
	va_end(args);
	return -EBADMSG;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * Refuse an id that appears twice in a request: an id names a block with everything before
 * it.
 */
static int check_ids(const uint64_t *ids, size_t nr, struct trace_error *e)
{
	uint64_t *sorted = calloc(nr ? nr : 1, sizeof(*sorted));
	int ret = sorted ? 0 : -ENOMEM;

	if (!ret && nr)
		memcpy(sorted, ids, nr * sizeof(*sorted));
	if (!ret)
		qsort(sorted, nr, sizeof(*sorted), by_value);
	for (size_t i = 1; !ret && i < nr; i++)
		if (sorted[i] == sorted[i - 1])
			ret = bad(e, "the id %" PRIu64 " comes twice, and an id names a block with all before it",
				  sorted[i]);
	free(sorted);
	return ret;
}

/* Read a timestamp in milliseconds. Returns 0 or -EBADMSG. */
static int read_time(json_t *when, uint64_t *ms, struct trace_error *e)
{
	double value = json_number_value(when);

	if (!json_is_number(when))
		return bad(e, "there is no timestamp that is a number");
	if (value < 0 || value > TIMESTAMP_MAX)
		return bad(e, "the timestamp %g is not 0 to %g, in milliseconds", value,
			   TIMESTAMP_MAX);
	if (value != floor(value))
		return bad(e, "the timestamp %.10g is no whole number of milliseconds; seconds have to be multiplied by 1000",
			   value);
	*ms = (uint64_t)value;
	return 0;
}

/* Add the request in @text; skip a blank line. Returns 0 or a negative errno. */
static int add_line(struct trace_builder *b, const char *text, size_t len,
		    struct trace_error *e)
{
	json_t *root, *ids, *id;
	json_error_t why;
	uint64_t ms = 0;
	int ret;
	size_t i;

	if (strspn(text, " \t\r\n") == len)
		return 0;
	root = json_loadb(text, len, 0, &why);
	if (!root && json_error_code(&why) == json_error_numeric_overflow)
		return bad(e, "a number is too large: ids are up to %" PRId64 " (63 bits)", INT64_MAX);
	if (!root)
		return bad(e, "no JSON object: %s", why.text);
	ids = json_object_get(root, "hash_ids");
	ret = json_is_array(ids) ? read_time(json_object_get(root, "timestamp"), &ms, e) :
				   bad(e, "there is no array hash_ids");
	for (i = 0; !ret && i < json_array_size(ids); i++) {
		id = json_array_get(ids, i);
		ret = json_is_integer(id) ?
		      trace_add_id(b, (uint64_t)json_integer_value(id)) :
		      bad(e, "the id at place %zu is no whole number", i + 1);
	}
	if (!ret)
		ret = check_ids(b->ids + b->nr_taken, b->nr_ids - b->nr_taken, e);
	if (!ret)
		ret = trace_add_req(b, ms);
	json_decref(root);
	return ret;
}

int trace_load(const char *path, struct trace *t, struct trace_error *e)
{
	bool from_stdin = !strcmp(path, "-");
	struct trace_builder b = { 0 };
	char *text = NULL;
	size_t room = 0;
	ssize_t len;
	FILE *f;
	int ret = 0;

	*t = (struct trace){ 0 };
	*e = (struct trace_error){ 0 };
	f = from_stdin ? stdin : fopen(path, "re");
	if (!f)
		return -errno;
	while (!ret && (len = getline(&text, &room, f)) >= 0) {
		e->line++;
		ret = add_line(&b, text, (size_t)len, e);
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
