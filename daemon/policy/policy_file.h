/* SPDX-License-Identifier: MIT */
/*
 * Files of the policy in kvblkd's runtime directory: its state, and its last decisions as lines
 * of JSON. A file is renamed into place when it is complete. A damaged file is reported and
 * ignored. The files report the use of pools, so only their owner and one group may read them.
 */
#ifndef KVBLKD_POLICY_POLICY_FILE_H
#define KVBLKD_POLICY_POLICY_FILE_H

#include <jansson.h>

#include "policy/policy.h"
#include "policy/policy_paths.h"

#define POLICY_POOLS	64
#define POLICY_KEPT	256	/* decisions kept, of all pools */

struct policy_file;

/*
 * Lock and open @dir, creating it. @group may read the files; -1: the owner only. The caller is a
 * member of the group. Returns 0 or -errno; -EBUSY: another kvblkd has the lock.
 */
int policy_file_open(struct policy_file **file, const char *dir, gid_t group);
void policy_file_close(struct policy_file *file);

/* Returns the number of pools loaded, -EBADMSG if the file is damaged, -ENOENT if missing. */
int policy_file_load(struct policy_file *file, struct policy_memory *pools, size_t most);

/* Returns 0 or a negative errno. */
int policy_file_save(struct policy_file *file, const struct policy_memory *pools, size_t nr);

/*
 * Append a decision of @time, seconds since 1970, and drop the oldest beyond POLICY_KEPT.
 * Returns 0 or a negative errno.
 */
int policy_file_tell(struct policy_file *file, double time, const char *pool,
		     const struct policy_line *line, const unsigned int *from,
		     const unsigned int *to);

/* Returns @numbers as a JSON array. */
json_t *policy_pack_numbers(const unsigned int *numbers, size_t nr);

#endif
