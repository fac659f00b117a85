// SPDX-License-Identifier: MIT
/* The meaning of each result of an operation, and what a runtime does about it. */
#include "lib.h"

static const struct {
	int err;
	enum kvblk_action action;
	const char *text;
} results[] = {
	{ ENOENT,	KVBLK_DO_RECOMPUTE,	"no such block" },
	{ EEXIST,	KVBLK_DO_NOTHING,	"the block is stored already" },
	{ EALREADY,	KVBLK_DO_SKIP,		"another put of this key is in flight" },
	{ EBUSY,	KVBLK_DO_RETRY,		"a put of this key is in flight" },
	{ ENOBUFS,	KVBLK_DO_SKIP,		"declined by the pool's admission policy" },
	{ EDQUOT,	KVBLK_DO_SKIP,		"the tenant's quota is used up" },
	{ ENOSPC,	KVBLK_DO_SKIP,
	  "no space in the pool, and none can be made now" },
	{ ENOKEY,	KVBLK_DO_SKIP,		"the key of the encrypted tenant is missing" },
	{ EBADMSG,	KVBLK_DO_REPORT,	"the block differs from its checksums" },
	{ EFBIG,	KVBLK_DO_REPORT,
	  "the block is longer than a segment of the pool, or than staged memory's block_max" },
	{ EMSGSIZE,	KVBLK_DO_REPORT,	"the block is longer than the buffer" },
	{ ERANGE,	KVBLK_DO_REPORT,	"the offset is not within the block" },
	{ EIO,		KVBLK_DO_RECOMPUTE,	"the member, or the GPU, failed" },
	{ ETIME,	KVBLK_DO_RECOMPUTE,	"the deadline passed" },
	{ ECANCELED,	KVBLK_DO_SKIP,		"canceled" },
	{ EINTR,	KVBLK_DO_RETRY,		"interrupted by a signal" },
	{ EAGAIN,	KVBLK_DO_RETRY,		"too much is in flight" },
	{ ENOMEM,	KVBLK_DO_RETRY,		"out of memory" },
	{ ENXIO,	KVBLK_DO_REPORT,	"the registered memory is gone" },
	{ EXDEV,	KVBLK_DO_REPORT,
	  "pieces of different GPUs, or of staged and other memory, in one operation" },
	{ EFAULT,	KVBLK_DO_REPORT,	"a bad address" },
	{ EBADF,	KVBLK_DO_REPORT,
	  "the pool is not open for reading or not for writing" },
	{ EINVAL,	KVBLK_DO_REPORT,	"an invalid field of the operation" },
	{ E2BIG,	KVBLK_DO_REPORT,
	  "a structure has fields that the library or the kernel module does not know" },
	{ EOPNOTSUPP,	KVBLK_DO_REPORT,
	  "not supported by the kernel module or the pool" },
	{ ENODEV,	KVBLK_DO_REPORT,	"the pool is being destroyed, or the GPU is lost" },
};

const char *kvblk_result_text(int res)
{
	if (res >= 0)
		return "success";
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		if (results[i].err == -res)
			return results[i].text;
	}
	return "unknown error";
}

enum kvblk_action kvblk_result_action(int res)
{
	if (res >= 0)
		return KVBLK_DO_NOTHING;
	for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
		if (results[i].err == -res)
			return results[i].action;
	}
	return KVBLK_DO_REPORT;
}
