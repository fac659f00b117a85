/* SPDX-License-Identifier: GPL-2.0 */
/* A program that goes on after a wrong result, and exits with 1 in the end if @wrong is not 0. */
#ifndef KVBLK_WANT_H
#define KVBLK_WANT_H

#include <stdarg.h>
#include <stdio.h>

static int wrong;

#define WANT(got, want, ...) want_eq((long long)(got), (long long)(want), #got, __VA_ARGS__)

static void __attribute__((format(printf, 4, 5)))
want_eq(long long got, long long want, const char *what, const char *format, ...)
{
	va_list args;

	if (got == want)
		return;
	wrong++;
	printf("%s is %lld, not %lld: ", what, got, want);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

#endif
