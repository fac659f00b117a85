/* SPDX-License-Identifier: MIT */
/* uuids as text, for the command and the daemon. */
#ifndef KVBLK_UUID_H
#define KVBLK_UUID_H

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <strings.h>

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

/* Returns whether @text is @uuid in its usual form, in lower or upper case. */
static inline bool uuid_is(const uint8_t uuid[16], const char *text)
{
	char usual[40];

	return !strcasecmp(uuid_format(uuid, usual), text);
}

/* Parse a uuid in its usual form. Returns false if @text is none. */
static inline bool uuid_parse(const char *text, uint8_t uuid[16])
{
	for (int i = 0; i < 16; i++, text += 2) {
		if ((i == 4 || i == 6 || i == 8 || i == 10) && *text++ != '-')
			return false;
		if (!isxdigit((unsigned char)text[0]) || !isxdigit((unsigned char)text[1]))
			return false;
		sscanf(text, "%2hhx", &uuid[i]);
	}
	return !*text;
}

#endif
