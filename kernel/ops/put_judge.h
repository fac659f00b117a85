/* SPDX-License-Identifier: GPL-2.0 */
/* Verdict of a put on the entry of its key. Pure logic, tested by selftests/host. */
#ifndef KVBLK_PUT_JUDGE_H
#define KVBLK_PUT_JUDGE_H

#include <linux/types.h>

#include "index/index.h"

/* Effects of a put on older blocks of its key. */
enum kvblk_older {
	KVBLK_OLDER_STAYS,	/* fail if a block is present; identical older ones may come back */
	KVBLK_OLDER_NONE,	/* fail if a block is present; let no older record come back */
	KVBLK_OLDER_GOES,	/* replace a present block; let no older record come back */
	KVBLK_OLDER_MUST,	/* as KVBLK_OLDER_GOES, but -ENOENT if no block is present */
};

enum kvblk_put_verdict {
	KVBLK_PUT_WRITE,	/* no block is present: write one */
	KVBLK_PUT_EXPIRE,	/* remove the expired entry, then write */
	KVBLK_PUT_TAKE_OVER,	/* write in place of the entry: no get finds its block */
	KVBLK_PUT_REPLACE,	/* remove the older block, then write */
	KVBLK_PUT_DEMOTE,	/* have DRAM's block written to a member, then look up again */
	KVBLK_PUT_FLUSH,	/* make the present record durable, unless it is */
	KVBLK_PUT_EXISTS,	/* fail, because the block is present */
	KVBLK_PUT_BUSY,		/* fail, because another put owns the entry */
	KVBLK_PUT_FAIL,	/* fail: the older record must go, but its member does not respond */
	KVBLK_PUT_WAIT,		/* look up again when the entry has settled */
};

struct kvblk_put_case {
	u8 state;	/* of the entry; KVBLK_SLOT_FREE: none, and the rest of it is unused */
	bool served;	/* the entry's member responds, or the block is in DRAM only */
	bool expired;	/* the entry has expired */
	bool foreign;	/* the entry belongs to another tenant */
	bool in_dram;	/* the block is in DRAM only */
	bool same_length;	/* as the put */
	bool durable;	/* the caller wants the block durable */
	bool retried;	/* a write of the put failed: a present block is newer than the put */
	u8 older;	/* enum kvblk_older */
};

/*
 * Returns whether no older block of the key may come back after a put. A retried put does not
 * care: any block is newer, and an invalidation may be of the put's own failed write.
 */
static inline bool kvblk_put_clears(u8 older, bool retried)
{
	return older != KVBLK_OLDER_STAYS && !retried;
}

static inline bool kvblk_put_undurable(const struct kvblk_put_case *put)
{
	return put->durable && put->in_dram && !put->foreign;
}

static inline enum kvblk_put_verdict kvblk_put_judge(const struct kvblk_put_case *put)
{
	const bool clears = kvblk_put_clears(put->older, put->retried);

	if (put->state == KVBLK_SLOT_FREE)
		return KVBLK_PUT_WRITE;
	if (put->state == KVBLK_SLOT_MOVING && put->expired)
		return KVBLK_PUT_WAIT;
	if (!put->served) {
		/* another put takes over a block that cannot be read */
		if (put->state == KVBLK_SLOT_MOVING)
			return KVBLK_PUT_BUSY;
		return clears ? KVBLK_PUT_FAIL : KVBLK_PUT_TAKE_OVER;
	}
	if (put->state == KVBLK_SLOT_WRITING)
		return KVBLK_PUT_BUSY;
	if (put->expired)
		return KVBLK_PUT_EXPIRE;
	if (kvblk_put_undurable(put))
		return KVBLK_PUT_DEMOTE;
	if (clears && put->older != KVBLK_OLDER_NONE && !put->foreign)
		return KVBLK_PUT_REPLACE;
	/* a block of another length is not the caller's */
	if (put->durable && !put->in_dram && put->same_length)
		return KVBLK_PUT_FLUSH;
	return KVBLK_PUT_EXISTS;
}

#endif
