/* SPDX-License-Identifier: MIT */
/* Declarations shared by the files of libkvblk-admin and not exported. */
#ifndef LIBKVBLK_ADMIN_LIB_H
#define LIBKVBLK_ADMIN_LIB_H

#include <netlink/attr.h>
#include <netlink/handlers.h>
#include <time.h>

#include "lib/kvblk_admin.h"

static inline int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * Write the place of the block device at @path, as "NQN nsid N" or by its serial number;
 * "" if unknown.
 */
void kvblk_place_of(const char *path, char place[KVBLK_PLACE_LEN_MAX + 1]);

/* Translate libnl's error code, of either sign, to a negative errno. */
int kvblk_nl_errno(int nlerr);

/* Copy a string attribute, truncated to @len. Leaves @to unchanged if @attr is NULL. */
void kvblk_nl_string(char *to, size_t len, struct nlattr *attr);

/* Read a number of 4 or 8 bytes. Returns false and leaves @to unchanged if there is none. */
bool kvblk_nl_uint(uint64_t *to, struct nlattr *attr);

/* Returns the name of @n, of &enum kvblk_name_kind @kind, or NULL if there is none. */
const char *kvblk_find_name(unsigned int kind, unsigned int n);

/* Parse a message into @stats, which must be zeroed. Returns 0 or -EBADMSG. */
int kvblk_stats_parse(struct nlmsghdr *hdr, struct kvblk_stats *stats);

#endif
