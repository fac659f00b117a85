/* SPDX-License-Identifier: GPL-2.0 */
/*
 * cmocka with tests that register themselves, and with a summary as the last line:
 * "# name: N passed, N failed, N skipped".
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

#define KVBLK_TESTS_MAX	64

/* The registered tests, and the same tests as cmocka runs them. */
static struct CMUnitTest kvblk_tests[KVBLK_TESTS_MAX], kvblk_counted[KVBLK_TESTS_MAX];
static size_t kvblk_nr_tests, kvblk_test_next, kvblk_test_passed;

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

static inline void kvblk_test_add(struct CMUnitTest test)
{
	if (kvblk_nr_tests == KVBLK_TESTS_MAX)
		abort();
	kvblk_tests[kvblk_nr_tests] = test;
	test.test_func = kvblk_test_run;
	test.setup_func = kvblk_test_setup;
	kvblk_counted[kvblk_nr_tests++] = test;
}

/* Define and register a test with fixture functions, or NULL. Tests run in the file's order. */
#define TEST_WITH(test, setup, teardown)				\
	static void test(void **state);					\
	static void __attribute__((constructor)) kvblk_add_##test(void)	\
	{								\
		kvblk_test_add((struct CMUnitTest){			\
			#test, test, setup, teardown, NULL });		\
	}								\
	static void test(void **kvblk_state)

#define TEST(test)	TEST_WITH(test, NULL, NULL)

/* Run all tests, with fixture functions of the group or NULL. Returns the exit status. */
static inline int kvblk_run_tests(const char *name, CMFixtureFunction setup,
				  CMFixtureFunction teardown)
{
	int failed;

	/* Line buffered, or else stdout and cmocka's stderr are out of order in a pipe. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	failed = _cmocka_run_group_tests(name, kvblk_counted, kvblk_nr_tests, setup, teardown);
	printf("# %s: %zu passed, %d failed, %zu skipped\n", name,
	       kvblk_test_passed, failed, kvblk_nr_tests - kvblk_test_passed - failed);
	return failed != 0;
}

#define RUN_TESTS(name)	kvblk_run_tests(name, NULL, NULL)

#define TEST_MAIN(name)							\
	int main(void)							\
	{								\
		return RUN_TESTS(name);					\
	}

#endif
