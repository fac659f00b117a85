/* SPDX-License-Identifier: MIT */
/*
 * Files that kvblkd keeps over restarts, in the directory STATE_DIRECTORY or KEPT_DIRECTORY. The
 * rule: a file has its old or its new contents, also after a crash, and only root may read it.
 */
#ifndef KVBLKD_HOST_KEPT_H
#define KVBLKD_HOST_KEPT_H

#include <dirent.h>
#include <stddef.h>

#define KEPT_DIRECTORY	"/var/lib/kvblkd"
#define KEPT_PATH_LEN	512

/* Format the path of the file @name, which may be in a directory "FOLDER/NAME". Returns @buf. */
char *kept_path(const char *name, char buf[KEPT_PATH_LEN]);

/*
 * Wait for the lock of the directory, which "kvblk apply" and kvblkd take before they write.
 * Returns a descriptor to close, or a negative errno.
 */
int kept_lock(void);

/* Write @text to the file @name, and both to the disk. Returns 0 or a negative errno. */
int kept_write(const char *name, const char *text);

/*
 * Read the file @name to @buf, as a text. Returns 0, -ENOENT, -EFBIG without room for it, or
 * another negative errno.
 */
int kept_read(const char *name, char *buf, size_t size);

/* Remove the file @name, on the disk too. Returns 0, also if there is none, or a negative errno. */
int kept_remove(const char *name);

/* Open the directory @name. Returns NULL with errno if there is none. */
DIR *kept_list(const char *name);

#endif
