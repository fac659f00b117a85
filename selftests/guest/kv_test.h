/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Minimal test harness in the manner of kselftest: TAP on stdout, exit code 0 (passed), 1
 * (failed) or 4 (skipped).
 *
 * EXPECT() records a failure and continues, from any thread. ASSERT() ends the test, from the
 * test's own thread only. Both take a format after the condition that names what was tried.
 * PASSED() prints what a passing test has shown.
 */
#ifndef KV_TEST_H
#define KV_TEST_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KSFT_PASS	0
#define KSFT_FAIL	1
#define KSFT_SKIP	4

struct kv_test {
	const char *name;
	void (*run)(void);
	struct kv_test *next;
};

static struct kv_test *kv_tests;
static struct kv_test **kv_tests_end = &kv_tests;
static jmp_buf kv_test_end;
static atomic_uint kv_failures;
static bool kv_skipped;
static char kv_note[160];

#define TEST(test)							\
	static void test_##test(void);					\
	static struct kv_test kv_test_##test = { #test, test_##test, NULL };\
	static void __attribute__((constructor)) kv_register_##test(void)\
	{								\
		*kv_tests_end = &kv_test_##test;			\
		kv_tests_end = &kv_test_##test.next;			\
	}								\
	static void test_##test(void)

/* A loop over bytes may fail thousands of times: print the first failures only. */
#define KV_FAILURES_SHOWN	20

static inline void __attribute__((format(printf, 3, 4)))
kv_fail(const char *file, int line, const char *format, ...)
{
	char text[600];
	va_list args;

	if (atomic_fetch_add(&kv_failures, 1) >= KV_FAILURES_SHOWN)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	printf("# %s:%d: %s\n", file, line, text);
	fflush(stdout);
}

#define EXPECT(cond, format, ...)					\
	({								\
		bool kv_ok = (cond);					\
									\
		if (!kv_ok)						\
			kv_fail(__FILE__, __LINE__,			\
				"%s is not so: " format, #cond,		\
				##__VA_ARGS__);				\
		kv_ok;							\
	})

#define EXPECT_EQ(got, want, format, ...)				\
	({								\
		long long kv_got = (long long)(got);			\
		long long kv_want = (long long)(want);			\
									\
		if (kv_got != kv_want)					\
			kv_fail(__FILE__, __LINE__,			\
				"%s is %lld, not %lld: " format, #got,	\
				kv_got, kv_want, ##__VA_ARGS__);	\
		kv_got == kv_want;					\
	})

#define ASSERT(cond, format, ...)					\
	do {								\
		if (!EXPECT(cond, format, ##__VA_ARGS__))		\
			longjmp(kv_test_end, 1);			\
	} while (0)

#define ASSERT_EQ(got, want, format, ...)				\
	do {								\
		if (!EXPECT_EQ(got, want, format, ##__VA_ARGS__))	\
			longjmp(kv_test_end, 1);			\
	} while (0)

#define PASSED(format, ...)						\
	snprintf(kv_note, sizeof(kv_note), format, ##__VA_ARGS__)

#define SKIP(format, ...)						\
	do {								\
		PASSED(format, ##__VA_ARGS__);				\
		kv_skipped = true;					\
		longjmp(kv_test_end, 1);				\
	} while (0)

static inline bool kv_test_wanted(const char *name, int nr, char **names)
{
	for (int i = 0; i < nr; i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return !nr;
}

static void __attribute__((noinline)) kv_run_test(const struct kv_test *test)
{
	kv_failures = 0;
	kv_skipped = false;
	kv_note[0] = '\0';
	if (!setjmp(kv_test_end))
		test->run();
}

/* Run the tests listed in @names, or all if @nr is 0. Returns the exit code. */
static inline int kv_run_tests(int nr, char **names)
{
	unsigned int count = 0, failed = 0, skipped = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("TAP version 13");
	for (struct kv_test *test = kv_tests; test; test = test->next) {
		unsigned int shown;

		if (!kv_test_wanted(test->name, nr, names))
			continue;
		count++;
		kv_run_test(test);
		shown = kv_failures;
		if (shown > KV_FAILURES_SHOWN)
			printf("# and %u more\n", shown - KV_FAILURES_SHOWN);
		if (shown)
			failed++;
		else if (kv_skipped)
			skipped++;
		printf("%s %u %s%s%s\n", shown ? "not ok" : "ok", count,
		       test->name,
		       shown ? "" : kv_skipped ? " # SKIP " : " # ",
		       shown ? "" : kv_note);
	}
	printf("1..%u\n", count);
	if (nr && count != (unsigned int)nr) {
		printf("# %d names, but %u tests of these names\n", nr, count);
		return KSFT_FAIL;
	}
	return failed ? KSFT_FAIL : skipped == count ? KSFT_SKIP : KSFT_PASS;
}

#endif
