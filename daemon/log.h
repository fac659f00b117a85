/* SPDX-License-Identifier: MIT */
/* Lines for stderr, with the journal's levels where it listens. */
#ifndef KVBLKD_LOG_H
#define KVBLKD_LOG_H

/* syslog's levels */
enum log_line_level {
	LOG_LINE_WARNING	= 4,
	LOG_LINE_INFO		= 6,
};

void log_line(int level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
