/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Differences between the supported kernels; no other file has #if for them. Each shim names the
 * version that makes it obsolete. Kbuild detects features in the target's headers, not by version.
 */
#ifndef KVBLK_COMPAT_H
#define KVBLK_COMPAT_H

/*
 * 6.14: a command that is issued again uses a copy of the SQE. In older kernels the ring's owner
 * may have reused the SQE for another command; kvblk_sqe_own() rejects obvious cases. Linked
 * commands, and those behind IOSQE_IO_DRAIN, are affected at first issue: only IOSQE_ASYNC helps.
 */
#ifndef KVBLK_HAVE_STABLE_SQE
#include <linux/io_uring_types.h>

static inline void kvblk_sqe_keep(struct io_uring_cmd *cmd)
{
	struct io_kiocb *req = cmd_to_io_kiocb(cmd);

	if (cmd->sqe == req->async_data)
		return;
	memcpy(req->async_data, cmd->sqe, sizeof(*cmd->sqe) <<
	       !!(req->ctx->flags & IORING_SETUP_SQE128));
	cmd->sqe = req->async_data;
}

static inline bool kvblk_sqe_own(const struct io_uring_cmd *cmd)
{
	const struct io_uring_sqe *sqe = cmd->sqe;

	return READ_ONCE(sqe->opcode) == IORING_OP_URING_CMD &&
	       READ_ONCE(sqe->cmd_op) == cmd->cmd_op &&
	       READ_ONCE(sqe->user_data) == cmd_to_io_kiocb(cmd)->cqe.user_data;
}
#else
static inline void kvblk_sqe_keep(struct io_uring_cmd *cmd) {}
static inline bool kvblk_sqe_own(const struct io_uring_cmd *cmd)
{
	return true;
}
#endif

/* 6.15: io_uring_cmd_import_fixed() takes the issue flags */
#ifndef KVBLK_HAVE_IMPORT_FIXED_FLAGS
#define io_uring_cmd_import_fixed(ubuf, len, rw, iter, cmd, issue_flags) \
	((void)(issue_flags), io_uring_cmd_import_fixed(ubuf, len, rw, iter, cmd))
#endif

/* 6.18: io_uring_cmd_done32() completes with an extra word */
#ifndef KVBLK_HAVE_CMD_DONE32
#define io_uring_cmd_done32	io_uring_cmd_done
#endif

/* 6.18: a cache keeps as many free objects for each CPU as it asks for */
#ifdef KVBLK_HAVE_SHEAF_CAPACITY
#define KVBLK_SHEAF_CAPACITY(nr)	.sheaf_capacity = (nr),
#else
#define KVBLK_SHEAF_CAPACITY(nr)
#endif

/* 6.19: task work gets a struct io_tw_req. KVBLK_TASK_WORK(name) makes name_cmd() task work. */
#ifdef KVBLK_HAVE_IO_TW_REQ
#define KVBLK_TASK_WORK(name)						\
static void name(struct io_tw_req req, io_tw_token_t token)		\
{									\
	name##_cmd(io_uring_cmd_from_tw(req), IO_URING_CMD_TASK_WORK_ISSUE_FLAGS); \
}
#else
#define KVBLK_TASK_WORK(name)						\
static void name(struct io_uring_cmd *cmd, unsigned int issue_flags)	\
{									\
	name##_cmd(cmd, issue_flags);					\
}
#endif

#endif
