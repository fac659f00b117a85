// SPDX-License-Identifier: GPL-2.0
/*
 * Batches of operations. The rules:
 * - Structures and results are checked first, so a bad batch starts nothing.
 * - The submitter keeps all operations in flight, up to queue_bytes, and finishes them. It waits
 *   for space, for other operations or in a page fault only if no operation of the batch is in
 *   flight, or else both waits could depend on each other.
 * - A signal ends an interruptible batch: operations that have not begun are canceled, those in
 *   flight through kernel memory are detached, the rest is waited for.
 * - If the task is killed, or its ring's worker has to stop, operations in flight are detached and
 *   finished by a work; pages stay pinned until then. A get into shared memory is waited for.
 * - Prefetches are ordered by urgency, so completed ones are finished while others are submitted.
 *   The blocks of a batch of prefetches stay in DRAM until all are submitted, or else they would
 *   evict each other.
 */
#include <linux/sched/signal.h>
#include <linux/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "chardev/chardev.h"

/* of version 2: see ioctl.c */
static_assert(sizeof(struct kvblk_op) == KVBLK_OP_SIZE_VER0);
static_assert(sizeof(struct kvblk_result) == KVBLK_RESULT_SIZE_VER0);

static void batch_completed(struct kvblk_req *req)
{
	struct kvblk_batch *batch = req->batch;

	/* also for the wakeup, because the batch may end as soon as @req is listed */
	guard(spinlock_irqsave)(&batch->wq.lock);
	list_add_tail(&req->link, &batch->done);
	wake_up_locked(&batch->wq);
}

/* Wakes the batch to check a canceled request. Under file->lock, so the batch cannot end. */
static void batch_kick(struct kvblk_req *req)
{
	struct kvblk_batch *batch = req->batch;

	guard(spinlock_irq)(&batch->wq.lock);
	WRITE_ONCE(batch->kicked, true);
	wake_up_locked(&batch->wq);
}

/*
 * Detaches a request from its batch: reports @res now, and leaves the rest to a work. Returns false
 * if the request has completed.
 */
static bool req_detach(struct kvblk_batch *batch, u32 i, int res)
{
	struct kvblk_req *req = batch->reqs[i];
	struct kvblk_req *ghost = kvblk_req_alloc(req->pool, GFP_KERNEL | __GFP_NOFAIL);
	u32 charged = req->charged;

	ghost->op = req->op;
	/* read when the result is reported */
	ghost->type = req->type;
	ghost->fill_result = req->fill_result;
	ghost->result.cookie = req->op.cookie;
	ghost->result.res = res;
	scoped_guard(spinlock, &batch->file->lock)
		list_del_init(&req->file_link);
	if (!kvblk_req_detach(req)) {
		kvblk_req_free(ghost);
		return false;
	}
	/* @req may be freed by now */
	batch->nr_inflight--;
	batch->bytes_inflight -= charged;
	batch->reqs[i] = ghost;
	return true;
}

/* Returns the time to report the request, even if the device is silent. */
static u64 req_deadline(const struct kvblk_req *req)
{
	return req->op.flags & KVBLK_OPF_HARD_DEADLINE ? req->op.deadline_ns : U64_MAX;
}

/*
 * Returns whether a canceled or late request may be detached: in flight, and neither uses the
 * caller's memory, nor has written some, nor takes place all the same.
 */
static bool req_detachable(const struct kvblk_req *req)
{
	return atomic_read(&req->ownership.state) == KVBLK_REQ_INFLIGHT &&
	       !req->mem.direct && !req->partly && !req->type->commits;
}

/* Detaches canceled and late requests, if possible. */
static void batch_expire(struct kvblk_batch *batch)
{
	u64 now = ktime_get_ns();
	u32 i;

	if (READ_ONCE(batch->kicked)) {
		WRITE_ONCE(batch->kicked, false);
		batch->first_detach = 0;
	}
	if (now < batch->first_detach)
		return;
	for (i = 0; i < batch->nr_reqs; i++) {
		struct kvblk_req *req = batch->reqs[i];

		if (!req_detachable(req))
			continue;
		if (READ_ONCE(req->canceled))
			req_detach(batch, i, -ECANCELED);
		else if (req_deadline(req) <= now && req_detach(batch, i, -ETIME))
			kvblk_count(batch->file->pool, KVBLK_C_DEADLINES, 1);
	}
}

/* Returns whether @sig has an effect. Ignored signals are queued, too, if the task is traced. */
static bool signal_matters(const struct sighand_struct *sighand, int sig)
{
	const __sighandler_t handler = sighand->action[sig - 1].sa.sa_handler;

	return handler != SIG_IGN && (handler != SIG_DFL || !sig_kernel_ignore(sig));
}

/* Returns whether a signal is pending that is more than a stop, and no debugger or freezer. */
static bool task_signaled(void)
{
	struct sighand_struct *sighand = rcu_dereference_protected(current->sighand, true);
	sigset_t pending;
	int sig;

	if (!task_sigpending(current))
		return false;
	guard(spinlock_irq)(&sighand->siglock);
	sigorsets(&pending, &current->pending.signal, &current->signal->shared_pending.signal);
	sigandnsets(&pending, &pending, &current->blocked);
	sigdelsetmask(&pending, SIG_KERNEL_STOP_MASK | rt_sigmask(SIGCONT));
	for (sig = 1; sig <= _NSIG; sig++)
		if (sigismember(&pending, sig) && signal_matters(sighand, sig))
			return true;
	return false;
}

static bool batch_interrupted(const struct kvblk_batch *batch)
{
	return kvblk_interrupted() || (batch->interruptible && task_signaled());
}

static long batch_timeout(struct kvblk_batch *batch)
{
	u64 first = batch->first_detach, now = ktime_get_ns();
	long most = MAX_SCHEDULE_TIMEOUT;
	u32 i;

	if (first <= now) {
		first = U64_MAX;
		/* only requests that batch_expire() detaches, or else the wait would spin */
		for (i = 0; i < batch->nr_reqs; i++)
			if (req_detachable(batch->reqs[i]))
				first = min(first, req_deadline(batch->reqs[i]));
	}
	/*
	 * Poll, because a ring's worker is asked to stop without being woken, and because task work
	 * and the freezer would end an interruptible sleep at once, again and again.
	 */
	if (batch->interruptible || current->flags & PF_IO_WORKER)
		most = HZ / 10;
	if (first == U64_MAX)
		return most;
	return first <= now ? 0 : min_t(u64, most, nsecs_to_jiffies(first - now) + 1);
}

/* Finishes completed requests, if any, and returns whether there were any. */
static bool batch_reap(struct kvblk_batch *batch)
{
	struct kvblk_req *req, *next;
	LIST_HEAD(done);

	scoped_guard(spinlock_irq, &batch->wq.lock)
		list_splice_init(&batch->done, &done);
	/* nothing else is in flight, so a pager cannot depend on the batch */
	if (list_empty(&done) && batch->nr_faulting == batch->nr_inflight) {
		list_splice_init(&batch->faulting, &done);
		batch->nr_faulting = 0;
		list_for_each_entry(req, &done, link)
			req->src.fault = true;
	}
	if (list_empty(&done))
		return false;
	list_for_each_entry_safe(req, next, &done, link) {
		list_del(&req->link);
		switch (req->type->finish(req, fatal_signal_pending(current) ?
					       KVBLK_BY_NOBODY : KVBLK_BY_CALLER)) {
		case 1:
			batch->nr_inflight--;
			batch->bytes_inflight -= req->charged;
			if (!req->parked)
				kvblk_req_trim(req);
			break;
		case -EAGAIN:
			list_add_tail(&req->link, &batch->faulting);
			batch->nr_faulting++;
		}
		cond_resched();
	}
	return true;
}

/* Waits until a request completes, and finishes the request. Returns 0 or -EINTR. */
static int batch_wait(struct kvblk_batch *batch)
{
	while (!batch_reap(batch)) {
		if (!batch->nr_inflight)
			return 0;
		if (batch_interrupted(batch) ||
		    wait_event_killable_timeout(batch->wq,
						!list_empty_careful(&batch->done) ||
						READ_ONCE(batch->kicked),
						batch_timeout(batch)) < 0)
			return -EINTR;
		batch_expire(batch);
	}
	return 0;
}

/* Ends the batch after a signal. Returns 0, or -EINTR if its task does not wait for the rest. */
static int batch_cancel(struct kvblk_batch *batch)
{
	int err = 0;
	u32 i;

	batch->interruptible = false;
	batch->first_detach = 0;
	for (i = 0; i < batch->nr_reqs; i++)
		WRITE_ONCE(batch->reqs[i]->canceled, true);
	while (!err && batch->nr_inflight) {
		/* each time, because a put that is retried is in flight again */
		batch_expire(batch);
		err = batch_wait(batch);
	}
	return err;
}

/* Detaches all requests after a fatal signal, because the task's memory is freed. */
static void batch_abandon(struct kvblk_batch *batch)
{
	u32 i;

	for (;;) {
		/* repeat, because a get that is read again is in flight again */
		for (i = 0; i < batch->nr_reqs; i++) {
			/* the task no longer guarantees the payload of a put */
			WRITE_ONCE(batch->reqs[i]->canceled, true);
			if (atomic_read(&batch->reqs[i]->ownership.state) == KVBLK_REQ_INFLIGHT &&
			    !batch->reqs[i]->mem.shared)
				req_detach(batch, i, -ECANCELED);
		}
		if (!batch->nr_inflight)
			return;
		if (!batch_reap(batch))
			wait_event_idle(batch->wq, !list_empty_careful(&batch->done));
	}
}

/* Returns the length of the block that a get would find, or 0. */
static u32 block_len(const struct kvblk_req *req)
{
	struct kvblk_slot slot;
	struct kvblk_id id;
	int shared;

	if (kvblk_block_present(req->pool, req->id, req->tenant, &slot))
		return slot.len;
	shared = kvblk_req_shared(req, &id);
	return shared >= 0 && kvblk_block_present(req->pool, id, shared, &slot) ? slot.len : 0;
}

/* Returns how many bytes of the caller's buffer, which may be larger, the operation will touch. */
static u32 req_needs(const struct kvblk_req *req)
{
	u32 len, bytes = req->bytes;

	if (!req->type->writes)
		return bytes;
	len = block_len(req);
	if (req->op.length)
		bytes = min(bytes, req->op.length);
	return min(bytes, len - min(len, req->op.offset));
}

/* Takes page faults for @req and later requests in one go. Returns 0 or -EINTR. */
static int batch_fault_in(struct kvblk_batch *batch, struct kvblk_req *req)
{
	u64 left = kvblk_file_limit(batch->file);
	u32 i, bytes;

	for (i = 0; i < batch->nr_reqs; i++) {
		struct kvblk_req *each = batch->reqs[i];

		if (atomic_read(&each->ownership.state) != KVBLK_REQ_NEW || !each->src.parts ||
		    each->result.res)
			continue;
		bytes = req_needs(each);
		if (each != req && bytes > left)
			continue;
		left -= min_t(u64, left, bytes);
		if (kvblk_src_fault_in(&each->src, bytes, each->type->writes))
			return -EINTR;
	}
	return 0;
}

/* Makes the prefetched blocks evictable, the end of each chain first. */
static void batch_unpark(struct kvblk_batch *batch)
{
	u32 i;

	for (i = batch->nr_reqs; i-- > 0;) {
		struct kvblk_req *req = batch->reqs[i];

		req->parks = false;
		if (!req->parked)
			continue;
		req->parked = false;
		kvblk_dram_block_queue(req->pool, req->block);
		kvblk_req_trim(req);
		percpu_ref_put(&req->pool->users);
	}
}

static int batch_run_one(struct kvblk_batch *batch, struct kvblk_req *req)
{
	u64 limit = kvblk_file_limit(batch->file);
	int ret;

	/* a prefetch has no caller's memory, but moves the block */
	req->charged = req->type == &kvblk_op_prefetch ? block_len(req) : req->bytes;
	while (batch->nr_inflight && batch->bytes_inflight + req->charged > limit)
		if (batch_wait(batch))
			return -EINTR;
	for (;;) {
		ret = kvblk_req_start(req);
		if (!ret) {
			batch->nr_inflight++;
			batch->bytes_inflight += req->charged;
			return 0;
		}
		if (ret == 1) {
			kvblk_req_trim(req);
			return 0;
		}
		/* complete the batch's own operations before waiting for other tasks' */
		while (batch->nr_inflight)
			if (batch_wait(batch))
				return -EINTR;
		if (req->wants_fault && batch_fault_in(batch, req))
			return -EINTR;
		/* other tasks may wait for the memory of the prefetched blocks */
		batch_unpark(batch);
		ret = batch_interrupted(batch) ? -EINTR : kvblk_req_wait(req);
		if (ret == -EINTR)
			return ret;
		if (ret)
			return kvblk_req_over(req, ret) != 1;
	}
}

static bool batch_prefetches(const struct kvblk_batch *batch)
{
	u32 i;

	for (i = 0; i < batch->nr_reqs; i++)
		if (batch->reqs[i]->type != &kvblk_op_prefetch)
			return false;
	return true;
}

int kvblk_batch_run(struct kvblk_file *file, struct kvblk_req **reqs, u32 nr, u32 flags)
{
	struct kvblk_batch batch = {
		.file = file,
		.interruptible = flags & KVBLK_SUBMIT_INTERRUPTIBLE,
		.done = LIST_HEAD_INIT(batch.done),
		.faulting = LIST_HEAD_INIT(batch.faulting),
		.first_detach = U64_MAX,
		.nr_reqs = nr,
		.reqs = reqs,
	};
	bool prefetches = batch_prefetches(&batch), chain = flags & KVBLK_SUBMIT_CHAIN;
	struct kvblk_sigpipe sigpipe;
	struct blk_plug plug;
	int err;
	u32 i;

	init_waitqueue_head(&batch.wq);
	for (i = 0; i < nr; i++) {
		reqs[i]->parks = prefetches;
		reqs[i]->batch = &batch;
		reqs[i]->completed = batch_completed;
		reqs[i]->release = kvblk_req_free;
		reqs[i]->cancel = batch_kick;
		batch.first_detach = min(batch.first_detach, req_deadline(reqs[i]));
	}
	err = chain ? kvblk_puts_admit(file->pool, reqs, nr) : 0;
	if (err)
		return err;

	scoped_guard(spinlock, &file->lock)
		for (i = 0; i < nr; i++)
			if (reqs[i]->op.cookie)
				list_add_tail(&reqs[i]->file_link, &file->reqs);
	kvblk_sigpipe_block(&sigpipe);
	/* issue the commands together; a sleep issues those so far */
	if (nr > 1)
		blk_start_plug(&plug);
	/* last block first, because a chain's prefix must outlive the rest */
	for (i = 0; i < nr; i++) {
		struct kvblk_req *req = reqs[chain ? nr - 1 - i : i];

		/* check here, too, because operations that complete at once never wait */
		if (!req->result.res && !err)
			err = batch_interrupted(&batch) ? -EINTR : batch_run_one(&batch, req);
		if (!req->result.res && err)
			kvblk_req_over(req, -ECANCELED);
		if (prefetches)
			batch_reap(&batch);
	}
	if (nr > 1)
		blk_finish_plug(&plug);
	if (prefetches)
		batch_unpark(&batch);
	while (!err && batch.nr_inflight)
		err = batch_wait(&batch);
	if (err && !fatal_signal_pending(current))
		err = batch_cancel(&batch);
	if (err)
		batch_abandon(&batch);
	kvblk_sigpipe_restore(&sigpipe);
	scoped_guard(spinlock, &file->lock)
		for (i = 0; i < nr; i++)
			list_del_init(&reqs[i]->file_link);
	/* a worker that had to stop still reports what its ring's operations did */
	return fatal_signal_pending(current) ? err : 0;
}

int kvblk_batch_submit(struct kvblk_file *file, void *arg)
{
	const struct kvblk_submit_arg *sub = arg;
	void __user *ops = u64_to_user_ptr(sub->ops);
	void __user *results = u64_to_user_ptr(sub->results);
	void __user *user;
	struct kvblk_req **reqs;
	struct kvblk_op op;
	int err = 0;
	u32 i;

	if (sub->flags & ~(KVBLK_SUBMIT_CHAIN | KVBLK_SUBMIT_INTERRUPTIBLE))
		return -EOPNOTSUPP;
	if (sub->reserved || !sub->nr_ops || sub->nr_ops > KVBLK_OPS_MAX ||
	    sub->op_size < KVBLK_OP_SIZE_VER0 || sub->op_size > KVBLK_STRUCT_MAX ||
	    sub->result_size < KVBLK_RESULT_SIZE_VER0 || sub->result_size > KVBLK_STRUCT_MAX)
		return -EINVAL;
	if (clear_user(results, (size_t)sub->nr_ops * sub->result_size))
		return -EFAULT;
	reqs = kvcalloc(sub->nr_ops, sizeof(*reqs), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!reqs)
		return -ENOMEM;
	for (i = 0; i < sub->nr_ops && !err; i++) {
		user = ops + (size_t)i * sub->op_size;
		/* the common size is a constant, which costs no check of hardened usercopy */
		if (likely(sub->op_size == sizeof(op)))
			err = copy_from_user(&op, user, sizeof(op)) ? -EFAULT : 0;
		else
			err = copy_struct_from_user(&op, sizeof(op), user, sub->op_size);
		if (err)
			break;
		reqs[i] = kvblk_req_new(file, &op, NULL, 0);
		err = reqs[i] ? 0 : -ENOMEM;
		cond_resched();
	}
	err = err ?: kvblk_batch_run(file, reqs, sub->nr_ops, sub->flags);
	for (i = 0; i < sub->nr_ops && !err; i++)
		/* a constant as above: no caller's result is shorter */
		if (copy_to_user(results + (size_t)i * sub->result_size, &reqs[i]->result,
				 sizeof(struct kvblk_result)))
			err = -EFAULT;
	for (i = 0; i < sub->nr_ops && reqs[i]; i++)
		kvblk_req_free(reqs[i]);
	kvfree(reqs);
	return err;
}
