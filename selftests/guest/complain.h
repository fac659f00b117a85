/* SPDX-License-Identifier: GPL-2.0 */
/* A program that goes on after a wrong result, tells the first ten, and exits with 1 in the end if @bad is not 0. */
#ifndef KVBLK_COMPLAIN_H
#define KVBLK_COMPLAIN_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_uint bad;

/* Say what is wrong; may be called by several threads. */
static void __attribute__((format(printf, 1, 2)))
complain(const char *format, ...)
{
	va_list args;
	char text[300];

	if (atomic_fetch_add(&bad, 1) >= 10)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	printf("# %s\n", text);
	fflush(stdout);
}

#endif
