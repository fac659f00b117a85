/* SPDX-License-Identifier: GPL-2.0 */
/* Verdict of a put on the entry of its key. Pure logic, tested by selftests/host. */
#ifndef KVBLK_PUT_JUDGE_H
#define KVBLK_PUT_JUDGE_H

#include <linux/types.h>

#include "index/index.h"

/**
 * enum kvblk_older - what a put does about older blocks of its key
 * @KVBLK_OLDER_STAYS: fail if a block is present. An older record may come back later:
 *	blocks of a key are identical
 * @KVBLK_OLDER_NONE: fail if a block is present, and let no older record come back
 * @KVBLK_OLDER_GOES: replace a block that is present, and let no older record come back
 * @KVBLK_OLDER_MUST: as KVBLK_OLDER_GOES, but -ENOENT if no block is present
 */
enum kvblk_older {
	KVBLK_OLDER_STAYS,
	KVBLK_OLDER_NONE,
	KVBLK_OLDER_GOES,
	KVBLK_OLDER_MUST,
};

/**
 * enum kvblk_put_verdict - what to do about the entry
 * @KVBLK_PUT_WRITE: no block is present: write one
 * @KVBLK_PUT_EXPIRE: remove the expired entry, then write
 * @KVBLK_PUT_TAKE_OVER: write in place of the entry, because no get finds its block
 * @KVBLK_PUT_REPLACE: remove the older block, then write
 * @KVBLK_PUT_DEMOTE: have the block written from DRAM to a member, then look up again
 * @KVBLK_PUT_FLUSH: make the present record durable, unless it is
 * @KVBLK_PUT_EXISTS: fail, because the block is present
 * @KVBLK_PUT_BUSY: fail, because another put owns the entry
 * @KVBLK_PUT_FAIL: fail, because the older record must go, but its member does not respond
 * @KVBLK_PUT_WAIT: look up again when the entry has settled
 */
enum kvblk_put_verdict {
	KVBLK_PUT_WRITE,
	KVBLK_PUT_EXPIRE,
	KVBLK_PUT_TAKE_OVER,
	KVBLK_PUT_REPLACE,
	KVBLK_PUT_DEMOTE,
	KVBLK_PUT_FLUSH,
	KVBLK_PUT_EXISTS,
	KVBLK_PUT_BUSY,
	KVBLK_PUT_FAIL,
	KVBLK_PUT_WAIT,
};

/**
 * struct kvblk_put_case - a put, and the entry of its key
 * @state: &enum kvblk_slot_state, KVBLK_SLOT_FREE without an entry; the rest of the entry is
 *	then unused
 * @served: the entry's member responds, or the block is in DRAM only
 * @expired: the entry has expired
 * @foreign: the entry belongs to another tenant
 * @in_dram: the block is in DRAM only
 * @same_length: both blocks have the same length
 * @durable: the caller wants the block durable
 * @retried: a write of the put failed, and any block that is present is newer than the put
 * @older: &enum kvblk_older
 */
struct kvblk_put_case {
	u8 state;
	bool served;
	bool expired;
	bool foreign;
	bool in_dram;
	bool same_length;
	bool durable;
	bool retried;
	u8 older;
};

/*
 * Returns whether no older block of the key may come back after a put. A retried put does not
 * care: any block is newer, and an invalidation may be of the put's own failed write.
 */
static inline bool kvblk_put_clears(u8 older, bool retried)
{
	return older != KVBLK_OLDER_STAYS && !retried;
}

/* Returns whether a durable put found its block in DRAM only. */
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
