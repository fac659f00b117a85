/* SPDX-License-Identifier: MIT */
/* An emulated host: a tree of files below @root, which is made and removed around each test. */
#ifndef KVBLK_TEST_TREE_H
#define KVBLK_TEST_TREE_H

#include <sys/stat.h>
#include <unistd.h>

#include "kvblk_test.h"

static char root[] = "/tmp/kvblk_tree.XXXXXX";

static inline char *path_of(const char *path)
{
	static char full[512];

	snprintf(full, sizeof(full), "%s%s", root, path);
	return full;
}

/* Create a file and its parent directories. */
static inline void make(const char *path, const char *text)
{
	char *full = path_of(path), *slash;
	FILE *file;

	for (slash = strchr(full + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(full, 0755);
		*slash = '/';
	}
	file = fopen(full, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static inline int tree_make(void **state)
{
	memset(root + sizeof(root) - 7, 'X', 6);
	return mkdtemp(root) ? 0 : -1;
}

static inline int tree_remove(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

#endif
