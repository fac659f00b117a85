/* SPDX-License-Identifier: MIT */
/*
 * Files of the policy in kvblkd's runtime directory: what it remembers, and its last
 * decisions, a line of JSON each. Rule: a file appears under its name only when it is
 * whole; one that is damaged is told of and ignored.
 */
#ifndef KVBLKD_POLICY_FILE_H
#define KVBLKD_POLICY_FILE_H

#include <jansson.h>

#include "policy/policy.h"
#include "policy/policy_paths.h"

#define POLICY_POOLS	64
#define POLICY_KEPT	256	/* decisions, of all pools */

struct policy_file;

/*
 * Opens what is in @dir, and makes it if need be. 0, or a negative errno: -EBUSY:
 * another daemon has it.
 */
int policy_file_open(struct policy_file **file, const char *dir);
void policy_file_close(struct policy_file *file);

/*
 * Brings back what was remembered: how many pools, or -EBADMSG: it is damaged; -ENOENT:
 * there is nothing.
 */
int policy_file_load(struct policy_file *file, struct policy_memory *pools, size_t most);

/* 0 or a negative errno. */
int policy_file_save(struct policy_file *file, const struct policy_memory *pools, size_t nr);

/*
 * Appends a decision: when, in seconds since 1970, and what was set and is set. The
 * oldest one goes when there are too many. 0 or a negative errno.
 */
int policy_file_tell(struct policy_file *file, double time, const char *pool,
		     const struct policy_line *line, const unsigned int *from,
		     const unsigned int *to);

/* An array of @numbers, as the record has them, too. */
json_t *policy_pack_numbers(const unsigned int *numbers, size_t nr);

#endif
