/* SPDX-License-Identifier: MIT */
/* Users and groups, by name or number, for the command and the daemon. */
#ifndef KVBLK_OWNER_H
#define KVBLK_OWNER_H

#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Read a number of a user or group. Returns false unless @text is one; -1 means none. */
static inline bool owner_number(const char *text, uint32_t *id)
{
	size_t digits = strspn(text, "0123456789");
	/* saturates */
	unsigned long long number = strtoull(text, NULL, 10);

	*id = (uint32_t)number;
	return digits && !text[digits] && number < UINT32_MAX;
}

/* Set @id to the number of the user @text. Returns false if there is none. */
static inline bool owner_user(const char *text, uint32_t *id)
{
	const struct passwd *user = getpwnam(text);

	if (user)
		*id = user->pw_uid;
	return user || owner_number(text, id);
}

/* Set @id to the number of the group @text. Returns false if there is none. */
static inline bool owner_group(const char *text, uint32_t *id)
{
	const struct group *group = getgrnam(text);

	if (group)
		*id = group->gr_gid;
	return group || owner_number(text, id);
}

#endif
