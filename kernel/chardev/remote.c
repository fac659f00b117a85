// SPDX-License-Identifier: GPL-2.0
/*
 * Deletes that other nodes of the pod ask for. An id is all that they send, so the batch is the
 * kernel's own, of a file that no task has open. The rule: only records of own members. The asking
 * node decides whether the tenant is the same on both, see pool/agree.c.
 */
#include <linux/slab.h>

#include "chardev/chardev.h"

#define REMOTE_TIME	(5 * NSEC_PER_SEC)	/* longest wait of a delete before it begins */

int kvblk_delete_ids(struct kvblk_pool *pool, const u8 *ids, u32 nr, s32 *results)
{
	struct kvblk_req **reqs = kvcalloc(nr, sizeof(*reqs), GFP_KERNEL);
	struct kvblk_file *file = kvblk_file_new(pool, 0, FMODE_WRITE);
	u64 deadline = ktime_get_ns() + REMOTE_TIME;
	int err = reqs ? PTR_ERR_OR_ZERO(file) : -ENOMEM;
	u32 i;

	for (i = 0; i < nr && !err; i++) {
		struct kvblk_id id = kvblk_id_unpack(ids + i * KVBLK_ID_BYTES);

		reqs[i] = kvblk_req_delete(file, id, deadline);
		err = reqs[i] ? 0 : -ENOMEM;
	}
	err = err ?: kvblk_batch_run(file, reqs, nr, 0);
	for (i = 0; reqs && i < nr && reqs[i]; i++) {
		results[i] = reqs[i]->result.res;
		kvblk_req_free(reqs[i]);
	}
	kvfree(reqs);
	if (!IS_ERR(file))
		kvblk_file_free(file);
	return err;
}
