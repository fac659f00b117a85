// SPDX-License-Identifier: MIT
/* Lines for stderr, see log.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "log.h"

void log_line(int level, const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	/* the journal says so in the environment and takes the level off */
	if (getenv("JOURNAL_STREAM"))
		fprintf(stderr, "<%d>%s\n", level, line);
	else
		fprintf(stderr, "kvblkd: %s%s\n",
			level == LOG_LINE_WARNING ? "warning: " : "", line);
}
