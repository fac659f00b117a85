// SPDX-License-Identifier: MIT
/* The journal receives fields; without a journal stderr receives the same line. */
#include <stdbool.h>
#include <sys/uio.h>
#include <unistd.h>

#include "kvblk_test.h"
#include "log/log.h"

static bool journal;		/* the journal exists */
static char entry[4096];	/* fields that were sent, one per line */

int __wrap_access(const char *path, int mode);
int __wrap_sd_journal_sendv(const struct iovec *fields, int nr);

int __wrap_access(const char *path, int mode)
{
	assert_string_equal(path, "/run/systemd/journal/socket");
	assert_int_equal(mode, W_OK);
	return journal ? 0 : -1;
}

int __wrap_sd_journal_sendv(const struct iovec *fields, int nr)
{
	size_t len = 0;

	for (int i = 0; i < nr; i++)
		len += (size_t)snprintf(entry + len, sizeof(entry) - len, "%.*s\n", (int)fields[i].iov_len,
					(const char *)fields[i].iov_base);
	return 0;
}

static void log_one(const char *member, char said[256])
{
	int saved = dup(STDERR_FILENO);
	FILE *to = tmpfile();

	entry[0] = '\0';
	memset(said, 0, 256);
	fflush(stderr);
	dup2(fileno(to), STDERR_FILENO);
	log_of("kv0", member, LOG_LINE_WARNING, "it is %d", 5);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	close(saved);
	rewind(to);
	assert_true(fread(said, 1, 255, to) < 255);
	fclose(to);
}

TEST(test_fields)
{
	char said[256];

	journal = true;
	unsetenv("JOURNAL_STREAM");
	log_one("m0", said);
	assert_string_equal(said, "kvblkd: warning: it is 5\n");
	assert_string_equal(entry, "");
	setenv("JOURNAL_STREAM", "1:1", 1);
	log_one("m0", said);
	assert_string_equal(said, "");
	assert_string_equal(entry, "MESSAGE=it is 5\nPRIORITY=4\nSYSLOG_IDENTIFIER=kvblkd\nKVBLK_POOL=kv0\nKVBLK_MEMBER=m0\n");
	log_one("", said);
	assert_string_equal(entry, "MESSAGE=it is 5\nPRIORITY=4\nSYSLOG_IDENTIFIER=kvblkd\nKVBLK_POOL=kv0\n");
	journal = false;
	log_one("m0", said);
	assert_string_equal(said, "<4>it is 5\n");
	assert_string_equal(entry, "");
}

TEST_MAIN("log")
