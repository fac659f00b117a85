/* SPDX-License-Identifier: MIT */
/* Log lines: to stderr, or with fields to the journal if stderr is the journal. */
#ifndef KVBLKD_LOG_LOG_H
#define KVBLKD_LOG_LOG_H

/* syslog's levels */
enum log_line_level {
	LOG_LINE_WARNING	= 4,
	LOG_LINE_INFO		= 6,
};

void log_line(int level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Log a line about @member of @pool ("" for the pool), for journalctl KVBLK_POOL=kv0. */
void log_of(const char *pool, const char *member, int level, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
