/* SPDX-License-Identifier: MIT */
/*
 * Files below a root: "" for this host's sysfs and proc, a directory for a test's.
 * The rule: what can't be read is as if it were not there.
 */
#ifndef KVBLK_TREE_H
#define KVBLK_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Names that are longer are nobody's that we look for. */
#define TREE_NAME	32

/* A path of @root's tree; one that is too long is that of nothing. */
void tree_path(char path[PATH_MAX], const char *root, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* The file's first line; "" when there is none. */
void tree_text(const char *path, char *text, size_t len);

/* The number in it, in this base, 0 when there is none; the same, or @otherwise. */
uint64_t tree_number(const char *path, int base);
int tree_int(const char *path, int otherwise);

/*
 * Writes the kernel's name of the member's device, "" when it is not known. It may not be
 * what its path leads to by now.
 */
void tree_member_block(const char *root, const char *pool, const char *member,
		       char block[TREE_NAME]);

/* The names in a directory, in the order that people expect, and NULL; NULL: none. */
char **tree_names(const char *path);
void tree_free_names(char **names);

#endif
