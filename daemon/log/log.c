// SPDX-License-Identifier: MIT
/* Log lines, see log.h. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
/* no location fields: they would name this file, not the caller */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>
#include <unistd.h>

#include "log/log.h"

#define LINE_LEN	512
#define FIELD_LEN	600
#define JOURNAL		"/run/systemd/journal/socket"

static void print_line(int level, const char *line)
{
	/* systemd sets JOURNAL_STREAM if stderr is the journal, which strips the level prefix */
	if (getenv("JOURNAL_STREAM"))
		fprintf(stderr, "<%d>%s\n", level, line);
	else
		fprintf(stderr, "kvblkd: %s%s\n",
			level == LOG_LINE_WARNING ? "warning: " : "", line);
}

void log_line(int level, const char *format, ...)
{
	char line[LINE_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	print_line(level, line);
}

/* Format one "NAME=value" field, cut at FIELD_LEN. */
static struct iovec field(char text[FIELD_LEN], const char *name, const char *value)
{
	int len = snprintf(text, FIELD_LEN, "%s=%s", name, value);

	return (struct iovec){ text, len < FIELD_LEN ? (size_t)len : FIELD_LEN - 1 };
}

/* Send an entry to the journal. Returns false if the journal did not accept it. */
static bool send_entry(const char *pool, const char *member, int level, const char *line)
{
	char texts[5][FIELD_LEN], priority[8];
	struct iovec fields[5];
	int nr = 0;

	/* sd_journal_sendv() reports success even if no journal is running */
	if (!getenv("JOURNAL_STREAM") || access(JOURNAL, W_OK))
		return false;
	snprintf(priority, sizeof(priority), "%d", level);
	fields[nr] = field(texts[nr], "MESSAGE", line);
	nr++;
	fields[nr] = field(texts[nr], "PRIORITY", priority);
	nr++;
	fields[nr] = field(texts[nr], "SYSLOG_IDENTIFIER", "kvblkd");
	nr++;
	fields[nr] = field(texts[nr], "KVBLK_POOL", pool);
	nr++;
	if (*member) {
		fields[nr] = field(texts[nr], "KVBLK_MEMBER", member);
		nr++;
	}
	return !sd_journal_sendv(fields, nr);
}

void log_of(const char *pool, const char *member, int level, const char *format, ...)
{
	char line[LINE_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (!send_entry(pool, member, level, line))
		print_line(level, line);
}
