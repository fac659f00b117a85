/* SPDX-License-Identifier: MIT */
/* Lines for the log: to stderr, or, with fields, to the journal where that has stderr. */
#ifndef KVBLKD_LOG_H
#define KVBLKD_LOG_H

/* syslog's levels */
enum log_line_level {
	LOG_LINE_WARNING	= 4,
	LOG_LINE_INFO		= 6,
};

void log_line(int level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* A line about a member of a pool, or about a pool ("" for the member): journalctl KVBLK_POOL=kv0 finds it. */
void log_of(const char *pool, const char *member, int level, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
