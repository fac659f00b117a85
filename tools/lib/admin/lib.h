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

/* Read such a number, limited to 32 bits. Leaves @to unchanged if there is none. */
void kvblk_nl_u32(uint32_t *to, struct nlattr *attr);

/* Returns a new message with @command, or NULL. Ends what the handle knows of the last request. */
struct nl_msg *kvblk_request_new(struct kvblk_admin *admin, int command, int flags);

/*
 * Run a request that may continue after its reply, so that kvblk_admin_wait() can wait. Frees
 * @msg and returns @err if @err is the error of an attribute.
 */
int kvblk_request_run(struct kvblk_admin *admin, struct nl_msg *msg, int err);

/*
 * Copy a caller's structure, which begins with its size, to @to of @size bytes, zero-extended.
 * Returns 0; -EINVAL without a size; -E2BIG if it sets fields that this library does not know.
 */
int kvblk_read_sized(void *to, size_t size, const void *from);

struct replies;

/**
 * struct question - a request for a list
 * @command: the command
 * @dump: request a dump; the members of one pool are a dump, too
 * @names: string attributes of the request; entries whose name is NULL are skipped
 * @scope: scope of a statistics dump, else 0
 * @parse: parses a reply, whose @replies is for kvblk_reply_add(), to a state
 */
struct question {
	int command;
	bool dump;
	struct {
		int attr;
		const char *name;
	} names[2];
	uint32_t scope;
	int (*parse)(struct nlmsghdr *hdr, void *replies);
};

/* Returns the list that answers @question, or NULL. Sets *@err to 0 or a negative errno. */
void *kvblk_list_get(struct kvblk_admin *admin, const struct question *question, int *err);

/* Append a zeroed state of @size bytes, which begins with its link. Returns NULL without memory. */
void *kvblk_reply_add(struct replies *replies, size_t size);

/* Returns the name of @n, of &enum kvblk_name_kind @kind, or NULL if there is none. */
const char *kvblk_find_name(unsigned int kind, unsigned int n);

/*
 * Read the numbers of @nest with names of @kind to @to, and set @has of each. The index is the
 * number of the attribute. @nest may be NULL.
 */
void kvblk_nl_numbers(uint64_t *to, bool *has, unsigned int kind, struct nlattr *nest);

/* Parse a message into @stats, which must be zeroed. Returns 0 or -EBADMSG. */
int kvblk_stats_parse(struct nlmsghdr *hdr, struct kvblk_stats *stats);

#endif
