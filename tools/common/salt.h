/* SPDX-License-Identifier: MIT */
/*
 * Making the deployment's salt, for the command and the daemon: see Documentation/keys.rst. The
 * library reads the file, with kvblk_keyspace_salt().
 *
 * The rule: a file never changes, and exists only complete. Of two processes that make a file at
 * the same time, one succeeds, and both use the same salt.
 */
#ifndef KVBLK_SALT_H
#define KVBLK_SALT_H

#include <sys/types.h>

#define SALT_PRINT_LEN	16		/* hex digits of a fingerprint */

/*
 * Returns the group that may read a new salt, kvblk; -1 if the group is missing, or if the
 * caller is not root.
 */
gid_t salt_group(void);

/*
 * Make the file @path, and the directory, if missing. @group may read the file; -1: the owner
 * only. Returns 1 after making a file, 0 if a file existed, or a negative errno with the reason
 * in @why.
 */
int salt_make(const char *path, gid_t group, const char **why);

/* Write the fingerprint of @salt to @print. Equal salts have equal fingerprints. */
void salt_print(const char *salt, char print[SALT_PRINT_LEN + 1]);

#endif
