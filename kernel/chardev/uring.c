// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of io_uring. Each is a separate request: started when issued, finished in task work,
 * detached when the ring exits. The rules:
 * - Issue does not wait for space, other operations or a pager: it returns -EAGAIN, and io_uring
 *   issues the command again from a worker, which may wait. Task work does wait for pagers, as
 *   io_uring's own reads do: the media half has ended, and only users of the same ring wait, too.
 * - Bios, cancel and deadline compete by cmpxchg to change a request from INFLIGHT. The winner
 *   completes the command, the losers leave it alone.
 * - The bios hold a reference on the request, and the command holds one until completion, because a
 *   cancel may find the command on the ring's list. Only commands in flight, or of a worker, are on
 *   that list: one for which issue returns -EAGAIN must not be.
 * - The caller's memory is touched only in the caller's context, and not while the task exits.
 * - An operation is never detached, and so not on the ring's list, if the device writes to memory
 *   shared with other tasks (mem->shared); closing the node waits: kvblk_file_quiesce(). A worker
 *   lists the command before the memory is known, so workers use kernel memory.
 */
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "chardev/chardev.h"

/* Returns the place of the command's request, which is NULL if it has none. */
static struct kvblk_req **uring_req(struct io_uring_cmd *cmd)
{
	return io_uring_cmd_to_pdu(cmd, struct kvblk_req *);
}

static void uring_unlist(struct kvblk_req *req)
{
	if (!req->op.cookie)
		return;
	guard(spinlock)(&req->owner->lock);
	list_del_init(&req->file_link);
}

/* Zeroes the caller's result, or ends the operation before it starts. */
static noinline void result_begin(struct kvblk_req *req)
{
	struct kvblk_op *op = &req->op;

	if (!op->result || op->result_size < KVBLK_RESULT_SIZE_VER0 ||
	    op->result_size > KVBLK_STRUCT_MAX)
		req->result.res = -EINVAL;
	else if (clear_user(u64_to_user_ptr(op->result), op->result_size))
		req->result.res = -EFAULT;
	else
		return;
	op->result = 0;
}

/* Returns the completion with the operation's res, even if its result cannot be written. */
static struct kvblk_completion uring_result(const struct kvblk_req *req,
					    const struct kvblk_result *result, bool user)
{
	u64 extra = (u64)result->value_len << 32 | result->flags;
	const struct kvblk_op *op = &req->op;

	/* result_begin() accepts none shorter; a constant costs no check of hardened usercopy */
	if (unlikely(op->result) &&
	    (!user || copy_to_user(u64_to_user_ptr(op->result), result, sizeof(*result))))
		extra |= KVBLK_RES_UNREPORTED;
	return (struct kvblk_completion) { .res = result->res, .extra = extra };
}

static void uring_fill_cqe(struct io_uring_cmd *cmd, const struct kvblk_req *req,
			   const struct kvblk_result *result, bool user,
			   unsigned int issue_flags)
{
	struct kvblk_completion completion = req->fill_result(req, result, user);

	io_uring_cmd_done32(cmd, completion.res, completion.extra, issue_flags);
}

static void uring_done(struct io_uring_cmd *cmd, struct kvblk_req *req, bool user,
		       unsigned int issue_flags)
{
	uring_unlist(req);
	uring_fill_cqe(cmd, req, &req->result, user, issue_flags);
	kvblk_req_free(req);
}

static void uring_put(struct kvblk_req *req)
{
	if (refcount_dec_and_test(&req->refs))
		kvblk_req_free(req);
}

/* Returns whether the current task is the ring's and does not exit. */
static bool uring_user(void)
{
	return !(current->flags & (PF_EXITING | PF_KTHREAD)) &&
	       !(current->signal->flags & SIGNAL_GROUP_EXIT);
}

/* Completes the command of a detached request; the rest finishes by itself. */
static void uring_detached(struct io_uring_cmd *cmd, int res, bool user, unsigned int issue_flags)
{
	struct kvblk_req *req = *uring_req(cmd);
	struct kvblk_result result = { .cookie = req->op.cookie, .res = res };

	if (req->op.flags & KVBLK_OPF_HARD_DEADLINE)
		cancel_delayed_work_sync(&req->deadline);
	uring_unlist(req);
	uring_fill_cqe(cmd, req, &result, user, issue_flags);
	uring_put(req);
}

static void uring_canceled_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	uring_detached(cmd, -ECANCELED, uring_user(), issue_flags);
}

KVBLK_TASK_WORK(uring_canceled)

static void uring_late_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	uring_detached(cmd, -ETIME, uring_user(), issue_flags);
}

KVBLK_TASK_WORK(uring_late)

/*
 * Detaches a request; its bios finish the rest. Returns false if not in flight, in a ring's or
 * shared memory or, with @quiet, in any caller's memory, partly written, or too late to cancel.
 */
static bool uring_detach(struct kvblk_req *req, bool quiet)
{
	/* or else req->held and req->mem could belong to an earlier submission */
	guard(spinlock_irqsave)(&req->ownership.completions->lock);
	if (atomic_read_acquire(&req->ownership.state) != KVBLK_REQ_INFLIGHT ||
	    (req->mem.direct && (quiet || req->src.fixed || req->mem.shared)) ||
	    (quiet && (req->partly || req->type->commits)))
		return false;
	return kvblk_req_detach(req);
}

/* ---- completion ---- */

static void uring_finish_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kvblk_req *req = *uring_req(cmd);
	bool user = uring_user();
	int ret;

	/* otherwise in flight again or taken by kvblk_rescue_work(): queued again later */
	if (!kvblk_ownership_claim(&req->ownership))
		return;
	kvblk_req_resume(req);
	/* the task no longer guarantees the payload of a put */
	if (!user)
		WRITE_ONCE(req->canceled, true);
	while ((ret = req->type->finish(req, user ? KVBLK_BY_CALLER : KVBLK_BY_NOBODY))) {
		if (ret == 1) {
			if (req->op.flags & KVBLK_OPF_HARD_DEADLINE)
				cancel_delayed_work_sync(&req->deadline);
			uring_done(cmd, req, user, issue_flags);
			return;
		}
		req->src.fault = true;
	}
}

KVBLK_TASK_WORK(uring_finish)

#define LAZY_BYTES	(16u << 10)	/* verified in less time than a wakeup takes */

/*
 * Returns whether to wake a task that waits for more completions than this one: others may wait for
 * an entry, for space or the file's budget, or finishing takes long or submits I/O. If the works of
 * kvblk_rescue_work() change the request meanwhile, only a wakeup is early or late.
 */
static bool uring_urgent(const struct kvblk_req *req)
{
	if (!req->type->writes || !req->mem.direct || req->media.bounce || req->media.foreign ||
	    (req->mem.bytes > LAZY_BYTES && !req->media.sums))
		return true;
	/* no barrier: if a task begins to wait now, kvblk_rescue_work() ends the media half */
	return waitqueue_active(&req->pool->space_wait);
}

static void uring_completed(struct kvblk_req *req)
{
	if (uring_urgent(req))
		io_uring_cmd_complete_in_task(req->cmd, uring_finish);
	else
		io_uring_cmd_do_in_task_lazy(req->cmd, uring_finish);
}

static void uring_cancel_one(struct kvblk_req *req)
{
	lockdep_assert_held(&req->owner->lock);
	if (uring_detach(req, true))
		io_uring_cmd_complete_in_task(req->cmd, uring_canceled);
}

static void uring_deadline(struct work_struct *work)
{
	struct kvblk_req *req = container_of(to_delayed_work(work), struct kvblk_req, deadline);

	int state = atomic_read(&req->ownership.state);

	if (state == KVBLK_REQ_NEW || state == KVBLK_REQ_DONE) {
		/* not started, or perhaps in flight again: its task checks, or the next run does */
		schedule_delayed_work(&req->deadline, state == KVBLK_REQ_NEW ? 1 : HZ / 10);
	} else if (uring_detach(req, true)) {
		kvblk_count(req->pool, KVBLK_C_DEADLINES, 1);
		io_uring_cmd_complete_in_task(req->cmd, uring_late);
	}
}

/* ---- issue ---- */

int kvblk_uring_cancel(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kvblk_req *req = *uring_req(cmd);

	if (!req)
		return 0;
	WRITE_ONCE(req->canceled, true);
	if (uring_detach(req, false))
		uring_detached(cmd, -ECANCELED, false, issue_flags);
	return 0;
}

/* Starts the request until in flight or complete; only a worker waits. */
static int uring_start(struct kvblk_req *req, unsigned int issue_flags)
{
	struct kvblk_sigpipe sigpipe;
	int ret;

	if (!(issue_flags & IO_URING_F_NONBLOCK))
		req->src.fault = true;
	for (;;) {
		kvblk_sigpipe_block(&sigpipe);
		ret = kvblk_req_start(req);
		kvblk_sigpipe_restore(&sigpipe);
		if (ret != -EAGAIN || (issue_flags & IO_URING_F_NONBLOCK))
			return ret;
		ret = kvblk_interrupted() ? -EINTR : kvblk_req_wait(req);
		if (ret)
			return kvblk_req_over(req, ret == -EINTR ? -ECANCELED : ret);
	}
}

int kvblk_uring_run(struct io_uring_cmd *cmd, struct kvblk_req *req, unsigned int issue_flags)
{
	const struct kvblk_op *op = &req->op;
	struct kvblk_file *file = req->owner;
	bool cancelable;
	int ret = 1;

	if (op->flags & KVBLK_OPF_HARD_DEADLINE)
		INIT_DELAYED_WORK(&req->deadline, uring_deadline);
	refcount_set(&req->refs, 2);
	req->completed = uring_completed;
	req->release = uring_put;
	req->cancel = uring_cancel_one;
	req->ownership.completions = raw_cpu_ptr(file->pool->completion_lists);
	*uring_req(cmd) = req;
	/* an operation on a ring's buffer cannot be detached */
	cancelable = !req->src.fixed;
	req->revocable = cancelable && !(issue_flags & IO_URING_F_NONBLOCK);
	if (req->revocable)
		io_uring_cmd_mark_cancelable(cmd, issue_flags);
	if (!req->result.res) {
		if (op->cookie) {
			scoped_guard(spinlock, &file->lock)
				list_add_tail(&req->file_link, &file->reqs);
		}
		if (op->flags & KVBLK_OPF_HARD_DEADLINE)
			schedule_delayed_work(&req->deadline, 1 +
					      nsecs_to_jiffies(op->deadline_ns -
							       min(op->deadline_ns,
								   ktime_get_ns())));
		ret = uring_start(req, issue_flags);
	}
	if (!ret) {
		/* under the ring's lock, so the command cannot complete before the mark */
		if (cancelable && (issue_flags & IO_URING_F_NONBLOCK) && !req->mem.shared)
			io_uring_cmd_mark_cancelable(cmd, issue_flags);
		return -EIOCBQUEUED;
	}
	if (op->flags & KVBLK_OPF_HARD_DEADLINE)
		cancel_delayed_work_sync(&req->deadline);
	if (ret != 1) {
		uring_unlist(req);
		/* the cancel was reported as successful */
		if (READ_ONCE(req->canceled))
			ret = kvblk_req_over(req, -ECANCELED);
	}
	if (ret == 1) {
		uring_done(cmd, req, true, issue_flags);
		return -EIOCBQUEUED;
	}
	*uring_req(cmd) = NULL;
	kvblk_req_free(req);
	return ret;
}

static int uring_op(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kvblk_file *file = cmd->file->private_data;
	struct kvblk_req *req;

	if (!(issue_flags & IO_URING_F_SQE128))
		return -EINVAL;
	if (kvblk_file_ended(file))
		return -ENODEV;
	req = kvblk_req_new(file, (const void *)cmd->sqe->cmd, cmd, issue_flags);
	if (!req)
		return -ENOMEM;
	if (unlikely(req->op.result || req->op.result_size))
		result_begin(req);
	req->fill_result = uring_result;
	return kvblk_uring_run(cmd, req, issue_flags);
}

/* Checks unused fields that io_uring does not check. */
static bool sqe_is_clear(const struct io_uring_cmd *cmd)
{
	const struct io_uring_sqe *sqe = cmd->sqe;
	u32 flags = cmd->flags & IORING_URING_CMD_MASK;

	if (READ_ONCE(sqe->addr) | READ_ONCE(sqe->len) | READ_ONCE(sqe->file_index))
		return false;
	return !flags ? !READ_ONCE(sqe->buf_index) : flags == IORING_URING_CMD_FIXED;
}

/* Runs a command that takes only the address of its structure, as its ioctl. */
static int uring_call(struct io_uring_cmd *cmd, unsigned int ioctl, unsigned int issue_flags)
{
	const size_t head = offsetof(struct io_uring_sqe, cmd) + sizeof(u64);
	size_t size = sizeof(*cmd->sqe) << !!(issue_flags & IO_URING_F_SQE128);

	if (memchr_inv((const u8 *)cmd->sqe + head, 0, size - head) ||
	    cmd->flags & IORING_URING_CMD_FIXED)
		return -EINVAL;
	/* read once, because the ring is shared with its owner */
	return kvblk_call(cmd->file->private_data, ioctl,
			  u64_to_user_ptr(READ_ONCE(*(const u64 *)cmd->sqe->cmd)));
}

static int uring_issue(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	if (!kvblk_sqe_own(cmd) || !sqe_is_clear(cmd))
		return -EINVAL;
	switch (cmd->cmd_op) {
	case KVBLK_URING_OP:
		return uring_op(cmd, issue_flags);
	case KVBLK_URING_SUBMIT:
		/* a batch waits, so a worker runs it */
		return issue_flags & IO_URING_F_NONBLOCK ? -EAGAIN :
		       uring_call(cmd, KVBLK_IOC_SUBMIT, issue_flags);
	case KVBLK_URING_CANCEL:
		/* at once, or else it would queue behind workers that wait */
		return uring_call(cmd, KVBLK_IOC_CANCEL, issue_flags);
	default:
		return -ENOTTY;
	}
}

int kvblk_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	int ret;

	if (issue_flags & IO_URING_F_CANCEL)
		return kvblk_uring_cancel(cmd, issue_flags);
	ret = uring_issue(cmd, issue_flags);
	if (ret == -EAGAIN)
		kvblk_sqe_keep(cmd);
	return ret;
}
