/* SPDX-License-Identifier: MIT */
/* Files with a secret. */
#ifndef KVBLKD_HOST_SECRET_H
#define KVBLKD_HOST_SECRET_H

#include <stddef.h>

#define SECRET_LEN	512

/*
 * Read the first line of the file @path, which only the file's owner may be able to read. On
 * failure @secret is wiped, of an earlier secret too, and the reason is written to @why, which has @len
 * bytes. Returns 0 or -1.
 */
int secret_read(const char *path, char secret[SECRET_LEN], char *why, size_t len)
	__attribute__((nonnull));

#endif
