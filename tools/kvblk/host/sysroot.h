/* SPDX-License-Identifier: MIT */
/*
 * Files below a root: "" for sysfs and proc of this host, a directory for a test. The rule:
 * an unreadable file counts as missing.
 */
#ifndef KVBLK_TREE_H
#define KVBLK_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* no name that kvblk looks for is longer */
#define TREE_NAME	32

/* Write the path of a file below @root; "" if the path is too long. */
void tree_path(char path[PATH_MAX], const char *root, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Read the first line of the file; "" if the file is missing. */
void tree_text(const char *path, char *text, size_t len);

/*
 * Returns the number in the file, in @base, or 0; tree_int() returns @otherwise without a
 * number.
 */
uint64_t tree_number(const char *path, int base);
int tree_int(const char *path, int otherwise);

/*
 * Write the kernel's current name of the member's device, "" if unknown. The member's path
 * may lead to another device by now.
 */
void tree_member_block(const char *root, const char *pool, const char *member,
		       char block[TREE_NAME]);

/*
 * Returns the names in a directory, sorted with numbers by value, ended by NULL; NULL: no
 * directory.
 */
char **tree_names(const char *path);
void tree_free_names(char **names);

#endif
