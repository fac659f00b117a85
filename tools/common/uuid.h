/* SPDX-License-Identifier: MIT */
/* uuids as text, for the command and the daemon. */
#ifndef KVBLK_UUID_H
#define KVBLK_UUID_H

#include <stdint.h>
#include <stdio.h>

/* Writes @uuid in its usual form to @buf. Returns @buf. */
static inline char *uuid_format(const uint8_t uuid[16], char buf[40])
{
	char *to = buf;

	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*to++ = '-';
		to += sprintf(to, "%02x", uuid[i]);
	}
	return buf;
}

#endif
