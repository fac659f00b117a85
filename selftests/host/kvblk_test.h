/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cmocka with a summary as the last line: "# name: N passed, N failed, N skipped".
 *
 * cmocka reports only the number of failures. So each test runs behind a function that counts the
 * tests that return: a failed or skipped test leaves by longjmp().
 */
#ifndef KVBLK_TEST_H
#define KVBLK_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct CMUnitTest *kvblk_tests;
static size_t kvblk_test_next, kvblk_test_passed;

/* Called by cmocka before every test: find out which test is next. */
static int kvblk_test_setup(void **state)
{
	const struct CMUnitTest *test = &kvblk_tests[kvblk_test_next++];

	return test->setup_func ? test->setup_func(state) : 0;
}

static void kvblk_test_run(void **state)
{
	kvblk_tests[kvblk_test_next - 1].test_func(state);
	kvblk_test_passed++;
}

/* Run @nr @tests. Returns the exit status for main(). */
static int kvblk_run_tests(const char *name, const struct CMUnitTest *tests,
			   size_t nr)
{
	struct CMUnitTest *counted = calloc(nr, sizeof(*counted));
	int failed;

	if (!counted)
		return 1;
	/* Line buffered, or else stdout and cmocka's stderr are out of order in a pipe. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	memcpy(counted, tests, nr * sizeof(*counted));
	for (size_t i = 0; i < nr; i++) {
		counted[i].test_func = kvblk_test_run;
		counted[i].setup_func = kvblk_test_setup;
	}
	kvblk_tests = tests;
	failed = _cmocka_run_group_tests(name, counted, nr, NULL, NULL);
	printf("# %s: %zu passed, %d failed, %zu skipped\n", name,
	       kvblk_test_passed, failed, nr - kvblk_test_passed - failed);
	free(counted);
	return failed != 0;
}

#define RUN_TESTS(name, tests) \
	kvblk_run_tests(name, tests, sizeof(tests) / sizeof((tests)[0]))

#endif
