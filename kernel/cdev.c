// SPDX-License-Identifier: GPL-2.0
/*
 * The character device: ioctls, batches of operations, who waits for whom.
 *
 * The rules:
 * - Nothing of a bad ioctl is started: structures, results and pointers to
 *   arrays are checked first.
 * - All operations of a batch are in flight at once, up to queue_bytes. The
 *   submitter finishes them, in its own context. It blocks for room, for
 *   another operation or in a page fault only when nothing of its own is in
 *   flight, for what it waits for could wait for that.
 * - The wait is killable. What is in flight then is detached and ends in a
 *   work; pinned pages stay pinned until their bios are over.
 */
#include <linux/nospec.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "kvblk.h"
#include "trace.h"

/* Keys that a lookup takes in one go. */
#define LOOKUP_STEP	64
/*
 * Keys that are hashed, then prefetched: so that page walks of prefetches
 * overlap, which hashes in between keep apart.
 */
#define LOOKUP_TOGETHER	8

/* ---- batches ---- */

static bool batch_ready(struct kvblk_batch *batch)
{
	return !list_empty_careful(&batch->done) || READ_ONCE(batch->kicked);
}

static void req_settle(struct kvblk_batch *batch, struct kvblk_req *req)
{
	batch->nr_inflight--;
	batch->bytes_inflight -= req->charged;
}

/*
 * Takes an operation away from its bios: its result is told now, what is left
 * of it ends in a work. False: it is done already.
 */
static bool req_detach(struct kvblk_batch *batch, u32 i, int res)
{
	struct kvblk_req *req = batch->reqs[i];
	struct kvblk_req *ghost;
	u32 held;

	ghost = kvblk_req_alloc(GFP_KERNEL | __GFP_NOFAIL);
	ghost->op = req->op;
	ghost->result.cookie = req->op.cookie;
	ghost->result.res = res;
	INIT_LIST_HEAD(&ghost->file_link);
	percpu_ref_get(&req->pool->users);
	held = kvblk_req_detach(req);
	spin_lock(&batch->file->lock);
	list_del_init(&req->file_link);
	spin_unlock(&batch->file->lock);
	req_settle(batch, req);
	if (atomic_cmpxchg(&req->state, KVBLK_REQ_INFLIGHT,
			   KVBLK_REQ_DETACHED) == KVBLK_REQ_INFLIGHT) {
		/* @req belongs to its bios now */
		batch->reqs[i] = ghost;
		return true;
	}
	batch->nr_inflight++;
	batch->bytes_inflight += req->charged;
	atomic64_sub(held, &batch->file->detached);
	percpu_ref_put(&req->pool->users);
	kvblk_req_free(ghost);
	return false;
}

/* When it must be answered even if the device does not. */
static u64 req_deadline(const struct kvblk_req *req)
{
	if (!(req->op.flags & KVBLK_OPF_HARD_DEADLINE) || !req->op.deadline_ns)
		return U64_MAX;
	return req->op.deadline_ns;
}

/* Detaches what was canceled or is late, where memory allows it. */
static void batch_expire(struct kvblk_batch *batch)
{
	u64 now = ktime_get_ns();
	u32 i;

	WRITE_ONCE(batch->kicked, false);
	for (i = 0; i < batch->nr_reqs; i++) {
		struct kvblk_req *req = batch->reqs[i];
		bool late = req_deadline(req) <= now;

		if (atomic_read(&req->state) != KVBLK_REQ_INFLIGHT ||
		    req->mem.direct)
			continue;
		if (READ_ONCE(req->canceled))
			req_detach(batch, i, -ECANCELED);
		else if (late && req_detach(batch, i, -ETIME))
			kvblk_count(batch->file->pool, KVBLK_C_DEADLINES, 1);
	}
}

static long batch_timeout(struct kvblk_batch *batch)
{
	u64 first = U64_MAX, now = ktime_get_ns();
	u32 i;

	for (i = 0; i < batch->nr_reqs; i++) {
		struct kvblk_req *req = batch->reqs[i];

		if (atomic_read(&req->state) == KVBLK_REQ_INFLIGHT)
			first = min(first, req_deadline(req));
	}
	/* a ring's worker is told to give up in a way that wakes nobody */
	if (first == U64_MAX)
		return current->flags & PF_IO_WORKER ? HZ / 10 :
						       MAX_SCHEDULE_TIMEOUT;
	return first <= now ? 0 : nsecs_to_jiffies(first - now) + 1;
}

/* Finishes what is done; true if there was something. */
static bool batch_reap(struct kvblk_batch *batch)
{
	struct kvblk_req *req, *next;
	LIST_HEAD(done);

	spin_lock_irq(&batch->wq.lock);
	list_splice_init(&batch->done, &done);
	spin_unlock_irq(&batch->wq.lock);
	/* nothing else is held: whoever they wait for does not wait for us */
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
		if (kvblk_req_finish(req, !fatal_signal_pending(current))) {
			req_settle(batch, req);
			kvblk_req_trim(req);
		} else if (req->wants_fault) {
			list_add_tail(&req->link, &batch->faulting);
			batch->nr_faulting++;
		}
		cond_resched();
	}
	return true;
}

/* Waits until something is done, and finishes it. 0 or -EINTR. */
static int batch_wait(struct kvblk_batch *batch)
{
	while (!batch_reap(batch)) {
		if (!batch->nr_inflight)
			return 0;
		if (wait_event_killable_timeout(batch->wq, batch_ready(batch),
						batch_timeout(batch)) < 0 ||
		    kvblk_interrupted())
			return -EINTR;
		batch_expire(batch);
	}
	return 0;
}

/* After a fatal signal: nothing of this task may be needed any more. */
static void batch_abandon(struct kvblk_batch *batch)
{
	u32 i;

	for (i = 0; i < batch->nr_reqs; i++) {
		/* nobody vouches any more for the bytes of a put */
		WRITE_ONCE(batch->reqs[i]->canceled, true);
		if (atomic_read(&batch->reqs[i]->state) == KVBLK_REQ_INFLIGHT)
			req_detach(batch, i, -ECANCELED);
	}
	while (batch->nr_inflight) {
		if (!batch_reap(batch))
			wait_event(batch->wq, !list_empty_careful(&batch->done));
		/* read again, and in flight again */
		for (i = 0; i < batch->nr_reqs; i++)
			if (atomic_read(&batch->reqs[i]->state) ==
			    KVBLK_REQ_INFLIGHT)
				req_detach(batch, i, -ECANCELED);
	}
}

/*
 * Brings in the memory of @req and of what comes behind it, so that these need
 * not drain the batch too. 0 or -EINTR.
 */
static int batch_fault_in(struct kvblk_batch *batch, struct kvblk_req *req)
{
	u64 left = READ_ONCE(batch->file->pool->tun.queue_bytes);
	u32 i;

	for (i = 0; i < batch->nr_reqs; i++) {
		struct kvblk_req *each = batch->reqs[i];

		if (atomic_read(&each->state) != KVBLK_REQ_NEW || !each->src.parts ||
		    each->result.res || (each != req && each->bytes > left))
			continue;
		left -= min_t(u64, left, each->bytes);
		if (kvblk_src_fault_in(&each->src, each->op.opcode == KVBLK_OP_GET))
			return -EINTR;
	}
	return 0;
}

static int batch_run_one(struct kvblk_batch *batch, struct kvblk_req *req)
{
	u64 limit = READ_ONCE(batch->file->pool->tun.queue_bytes);
	int ret;

	req->charged = req->bytes;
	while (batch->nr_inflight &&
	       batch->bytes_inflight + req->charged > limit)
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
		/* first what is our own, then what is others' */
		while (batch->nr_inflight)
			if (batch_wait(batch))
				return -EINTR;
		if (req->wants_fault && batch_fault_in(batch, req))
			return -EINTR;
		ret = kvblk_interrupted() ? -EINTR : kvblk_req_wait(req);
		if (ret == -EINTR)
			return ret;
		if (ret)
			return kvblk_req_over(req, ret) != 1;
	}
}

/*
 * Asks the policy how much of a chain to write, and marks the puts behind it.
 * Puts that are not flagged as a chain are always admitted.
 */
static int batch_admit(struct kvblk_batch *batch)
{
	struct kvblk_pool *pool = batch->file->pool;
	struct kvblk_policy_chain chain = { .chain = true };
	struct kvblk_req **absent, *before = NULL, *req;
	struct kvblk_id *ids;
	struct kvblk_slot slot;
	u32 i, nr = 0, n;

	ids = kvmalloc_array(batch->nr_reqs, sizeof(*ids), GFP_KERNEL | __GFP_NOWARN);
	absent = kvmalloc_array(batch->nr_reqs, sizeof(struct kvblk_req *),
				GFP_KERNEL | __GFP_NOWARN);
	if (!ids || !absent) {
		kvfree(ids);
		kvfree(absent);
		return -ENOMEM;
	}
	for (i = 0; i < batch->nr_reqs; i++) {
		req = batch->reqs[i];
		if (req->op.opcode != KVBLK_OP_PUT || req->result.res)
			continue;
		if (kvblk_block_present(pool, req->id, req->tenant, &slot)) {
			if (!nr)
				before = req;
			continue;
		}
		chain.priority = max(chain.priority, req->op.priority);
		ids[nr] = req->id;
		absent[nr++] = req;
	}
	if (nr) {
		req = absent[0];
		chain.ids = ids;
		chain.nr = nr;
		chain.parent = before ? before->id.lo : 0;
		if (!before && req->op.parent_len)
			chain.parent = req->parent.lo;
		chain.parent_present = before ||
			(chain.parent && kvblk_block_present(pool, req->parent,
							     req->tenant, &slot));
		n = kvblk_policy_admit(&pool->policy, &chain);
		for (; n < nr; n++)
			absent[n]->declined = true;
	}
	kvfree(ids);
	kvfree(absent);
	return 0;
}

static int ioctl_submit(struct kvblk_file *file, void *arg)
{
	struct kvblk_submit *sub = arg;
	struct kvblk_batch batch = {
		.file = file,
		.done = LIST_HEAD_INIT(batch.done),
		.faulting = LIST_HEAD_INIT(batch.faulting),
		.nr_reqs = sub->nr_ops,
	};
	bool chain = sub->flags & KVBLK_SUBMIT_CHAIN;
	void __user *ops = u64_to_user_ptr(sub->ops);
	void __user *results = u64_to_user_ptr(sub->results);
	struct kvblk_op op;
	struct kvblk_sigpipe sigpipe;
	int err = 0;
	u32 i;

	if (sub->flags & ~KVBLK_SUBMIT_CHAIN || sub->reserved || !sub->nr_ops ||
	    sub->nr_ops > KVBLK_OPS_MAX || sub->op_size < sizeof(op) ||
	    sub->op_size > PAGE_SIZE || sub->result_size > PAGE_SIZE ||
	    sub->result_size < sizeof(struct kvblk_result))
		return -EINVAL;
	/* results can be written, before anything happens */
	if (clear_user(results, (size_t)sub->nr_ops * sub->result_size))
		return -EFAULT;
	init_waitqueue_head(&batch.wq);
	batch.reqs = kvcalloc(sub->nr_ops, sizeof(*batch.reqs),
			      GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!batch.reqs)
		return -ENOMEM;
	for (i = 0; i < sub->nr_ops; i++) {
		err = copy_struct_from_user(&op, sizeof(op),
					    ops + (size_t)i * sub->op_size,
					    sub->op_size);
		if (err)
			goto free;
		batch.reqs[i] = kvblk_req_new(file, &op, NULL, 0);
		if (!batch.reqs[i]) {
			err = -ENOMEM;
			goto free;
		}
		batch.reqs[i]->batch = &batch;
		cond_resched();
	}
	err = chain ? batch_admit(&batch) : 0;
	if (err)
		goto free;

	spin_lock(&file->lock);
	for (i = 0; i < sub->nr_ops; i++)
		list_add_tail(&batch.reqs[i]->file_link, &file->reqs);
	spin_unlock(&file->lock);
	kvblk_sigpipe_block(&sigpipe);
	/* a chain is written last block first: its prefix outlives the rest */
	for (i = 0; i < sub->nr_ops && !err; i++) {
		struct kvblk_req *req = batch.reqs[chain ? sub->nr_ops - 1 - i : i];

		if (!req->result.res)
			err = batch_run_one(&batch, req);
	}
	while (!err && batch.nr_inflight)
		err = batch_wait(&batch);
	if (err)
		batch_abandon(&batch);
	kvblk_sigpipe_restore(&sigpipe);
	spin_lock(&file->lock);
	for (i = 0; i < sub->nr_ops; i++)
		list_del_init(&batch.reqs[i]->file_link);
	spin_unlock(&file->lock);

	for (i = 0; i < sub->nr_ops && !err; i++)
		if (copy_to_user(results + (size_t)i * sub->result_size,
				 &batch.reqs[i]->result,
				 sizeof(struct kvblk_result)))
			err = -EFAULT;
free:
	for (i = 0; i < sub->nr_ops && batch.reqs[i]; i++)
		kvblk_req_free(batch.reqs[i]);
	kvfree(batch.reqs);
	return err;
}

/* ---- lookups ---- */

/* What a lookup works with, and where it is. */
struct lookup {
	struct kvblk_file *file;
	struct kvblk_lookup *arg;
	u8 __user *keys;
	u8 *blob;			/* LOOKUP_STEP keys */
	struct kvblk_id *ids;		/* all keys when leasing, else a step */
	struct kvblk_slot *slots;	/* likewise */
	unsigned long *found;		/* all keys */
	bool hole;
};

/* Reads and looks up keys @first to @first + @n - 1. */
static int lookup_step(struct lookup *lu, u32 first, u32 n)
{
	struct kvblk_lookup *arg = lu->arg;
	struct kvblk_pool *pool = lu->file->pool;
	u32 base = arg->flags & KVBLK_LOOKUP_LEASE ? first : 0;
	u8 tick = kvblk_policy_tick(&pool->policy);
	u32 bytes = 0, at = 0, i, j, end;
	u32 sizes[LOOKUP_STEP] = {};
	u64 tags[LOOKUP_STEP] = {};
	u16 lens[LOOKUP_STEP];
	u64 entries;

	BUILD_BUG_ON(LOOKUP_STEP > 64);

	if (arg->key_lens) {
		if (copy_from_user(lens, u64_to_user_ptr(arg->key_lens) + first * 2ul,
				   n * 2ul))
			return -EFAULT;
	} else {
		for (i = 0; i < n; i++)
			lens[i] = arg->key_stride;
	}
	for (i = 0; i < n; i++) {
		if (!lens[i] || lens[i] > KVBLK_KEY_MAX)
			return -EINVAL;
		bytes += lens[i];
	}
	if (copy_from_user(lu->blob, lu->keys, bytes))
		return -EFAULT;
	lu->keys += bytes;
	for (i = 0; i < n; i = end) {
		end = min(i + LOOKUP_TOGETHER, n);
		for (j = i; j < end; j++) {
			lu->ids[base + j] = kvblk_tenant_hash(&lu->file->key,
							      lu->blob + at,
							      lens[j]);
			at += lens[j];
		}
		for (j = i; j < end; j++)
			kvblk_index_prefetch(&pool->index, lu->ids[base + j]);
	}
	entries = kvblk_index_find_many(&pool->index, &lu->ids[base], n,
					&lu->slots[base]);
	for (i = 0; i < n; i++) {
		struct kvblk_slot *slot = &lu->slots[base + i];

		if (!(entries & BIT_ULL(i)) ||
		    !kvblk_slot_present(pool, lu->file->tenant, slot)) {
			lu->hole = true;
			if (arg->flags & KVBLK_LOOKUP_PREFIX)
				break;
			continue;
		}
		__set_bit(first + i, lu->found);
		sizes[i] = slot->len;
		tags[i] = slot->caller_tag;
		arg->nr_present++;
		if (!lu->hole) {
			arg->nr_leading++;
			kvblk_index_touch(&pool->index, slot, tick);
		}
	}
	if (arg->sizes &&
	    copy_to_user(u64_to_user_ptr(arg->sizes) + first * 4ul, sizes, n * 4ul))
		return -EFAULT;
	if (arg->caller_tags &&
	    copy_to_user(u64_to_user_ptr(arg->caller_tags) + first * 8ul, tags,
			 n * 8ul))
		return -EFAULT;
	return 0;
}

/* Zeroes what the steps behind a hole would have filled. */
static int lookup_rest(struct kvblk_lookup *arg, u32 first)
{
	u32 n = arg->nr_keys - first;

	if ((arg->sizes &&
	     clear_user(u64_to_user_ptr(arg->sizes) + first * 4ul, n * 4ul)) ||
	    (arg->caller_tags &&
	     clear_user(u64_to_user_ptr(arg->caller_tags) + first * 8ul, n * 8ul)))
		return -EFAULT;
	return 0;
}

static int ioctl_lookup(struct kvblk_file *file, void *data)
{
	struct kvblk_lookup *arg = data;
	struct kvblk_pool *pool = file->pool;
	bool lease = arg->flags & KVBLK_LOOKUP_LEASE;
	struct lookup lu = { .file = file, .arg = arg };
	ktime_t start = ktime_get();
	u32 nr = arg->nr_keys, room, i, n;
	int err = -ENOMEM;

	if (arg->flags & ~(KVBLK_LOOKUP_LEASE | KVBLK_LOOKUP_PREFIX) ||
	    arg->reserved || arg->reserved2 || !nr || nr > KVBLK_LOOKUP_MAX ||
	    !arg->key_lens == !arg->key_stride || arg->key_stride > KVBLK_KEY_MAX ||
	    !arg->lease_ms == lease || arg->lease_ms > KVBLK_LEASE_MS_MAX)
		return -EINVAL;
	arg->nr_leading = 0;
	arg->nr_present = 0;
	arg->nr_leased = 0;
	arg->lease = 0;

	room = lease ? nr : min(nr, LOOKUP_STEP);
	lu.keys = u64_to_user_ptr(arg->keys);
	lu.blob = kvmalloc_array(LOOKUP_STEP, KVBLK_KEY_MAX, GFP_KERNEL | __GFP_NOWARN);
	lu.ids = kvmalloc_array(room, sizeof(*lu.ids), GFP_KERNEL | __GFP_NOWARN);
	lu.slots = kvmalloc_array(room, sizeof(*lu.slots), GFP_KERNEL | __GFP_NOWARN);
	lu.found = kvcalloc(BITS_TO_LONGS(nr), sizeof(long), GFP_KERNEL | __GFP_NOWARN);
	if (!lu.blob || !lu.ids || !lu.slots || !lu.found)
		goto out;
	err = 0;
	for (i = 0; i < nr && !err; i += n) {
		n = min(nr - i, LOOKUP_STEP);
		err = lookup_step(&lu, i, n);
		cond_resched();
		if (lu.hole && (arg->flags & KVBLK_LOOKUP_PREFIX)) {
			if (!err && i + n < nr)
				err = lookup_rest(arg, i + n);
			break;
		}
	}
	/* little endian by bytes, as the ABI says */
	for (i = 0; arg->bitmap && i < DIV_ROUND_UP(nr, 8) && !err; i++)
		if (put_user((u8)bitmap_get_value8(lu.found, i * 8),
			     (u8 __user *)u64_to_user_ptr(arg->bitmap) + i))
			err = -EFAULT;
	if (err)
		goto out;
	kvblk_count(pool, KVBLK_C_LOOKUPS, 1);
	kvblk_count(pool, KVBLK_C_LOOKUP_KEYS, nr);
	kvblk_count(pool, KVBLK_C_LOOKUP_HITS, arg->nr_present);
	if (lease && arg->nr_present)
		arg->nr_leased = kvblk_lease_take(file, lu.ids, lu.slots, lu.found,
						  nr, arg->lease_ms, &arg->lease);
	kvblk_hist_add(pool, KVBLK_H_LOOKUP, start);
	trace_kvblk_lookup(pool->name, nr, arg->nr_leading);
out:
	kvfree(lu.blob);
	kvfree(lu.ids);
	kvfree(lu.slots);
	kvfree(lu.found);
	return err;
}

static void undo_lookup(struct kvblk_file *file, const void *data)
{
	const struct kvblk_lookup *arg = data;

	if (arg->lease)
		kvblk_lease_drop(file, arg->lease);
}

/* ---- the rest ---- */

static int ioctl_info(struct kvblk_file *file, void *data)
{
	struct kvblk_info *info = data;
	struct kvblk_pool *pool = file->pool;
	struct kvblk_align align = kvblk_pool_align(pool);

	if (info->flags)
		return -EINVAL;
	*info = (struct kvblk_info) {
		.size = sizeof(*info),
		.version = 1,
		.tenant = file->tenant,
		.features = KVBLK_FEAT_LEASE | KVBLK_FEAT_CALLER_TAGS |
			    KVBLK_FEAT_REGISTERED | KVBLK_FEAT_URING |
			    KVBLK_FEAT_CHECKSUMS |
			    (IS_ENABLED(CONFIG_PCI_P2PDMA) ? KVBLK_FEAT_P2P : 0) |
			    (READ_ONCE(pool->tun.integrity) ? KVBLK_FEAT_INTEGRITY : 0) |
			    (pool->flags & KVBLK_POOL_STRICT ? KVBLK_FEAT_STRICT : 0),
		.value_max = kvblk_pool_value_max(pool),
		.key_max = KVBLK_KEY_MAX,
		.pieces_max = KVBLK_PIECES_MAX,
		.ops_max = KVBLK_OPS_MAX,
		.lookup_max = KVBLK_LOOKUP_MAX,
		.dma_align = (align.addr_mask | align.len_mask) + 1,
		.chunk_size = 1u << KVBLK_CHUNK_SHIFT,
		.lease_ms_max = KVBLK_LEASE_MS_MAX,
		.capacity = kvblk_pool_capacity(pool),
		.checksum = KVBLK_CHECKSUM_CRC32C,
	};
	memcpy(info->pool_uuid, &pool->uuid, sizeof(info->pool_uuid));
	strscpy(info->pool_name, pool->name, sizeof(info->pool_name));
	return 0;
}

static int ioctl_lease_release(struct kvblk_file *file, void *data)
{
	struct kvblk_lease_release *arg = data;

	if (arg->flags)
		return -EINVAL;
	return kvblk_lease_drop(file, arg->lease);
}

static int ioctl_reg_buf(struct kvblk_file *file, void *data)
{
	struct kvblk_reg_buf *arg = data;

	if (arg->flags || arg->reserved || arg->handle)
		return -EINVAL;
	return kvblk_region_add(file, arg->addr, arg->length, &arg->handle);
}

static void undo_reg_buf(struct kvblk_file *file, const void *data)
{
	const struct kvblk_reg_buf *arg = data;

	kvblk_region_remove(file, arg->handle);
}

static int ioctl_unreg_buf(struct kvblk_file *file, void *data)
{
	struct kvblk_unreg_buf *arg = data;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	return kvblk_region_remove(file, arg->handle);
}

static int ioctl_cancel(struct kvblk_file *file, void *data)
{
	struct kvblk_cancel *arg = data;
	struct kvblk_req *req, *next;
	struct kvblk_batch *batch;

	if (arg->flags || arg->reserved)
		return -EINVAL;
	arg->nr_canceled = 0;
	spin_lock(&file->lock);
	list_for_each_entry_safe(req, next, &file->reqs, file_link) {
		if (req->op.cookie != arg->cookie || req->canceled ||
		    atomic_read(&req->state) == KVBLK_REQ_DONE)
			continue;
		WRITE_ONCE(req->canceled, true);
		arg->nr_canceled++;
		if (req->cmd) {
			kvblk_uring_cancel_one(req);
			continue;
		}
		/* the batch can't end while its requests are on this list */
		batch = req->batch;
		spin_lock_irq(&batch->wq.lock);
		WRITE_ONCE(batch->kicked, true);
		wake_up_locked(&batch->wq);
		spin_unlock_irq(&batch->wq.lock);
	}
	spin_unlock(&file->lock);
	kvblk_count(file->pool, KVBLK_C_CANCELS, arg->nr_canceled);
	return arg->nr_canceled ? 0 : -ENOENT;
}

/*
 * struct ioctl_def - a row of the dispatch table
 * @size: of the structure
 * @least: up to its last field of version 1
 * @out: the structure is written back
 * @run: does it
 * @undo: takes back what @run did, when that can't be written back; or NULL
 */
struct ioctl_def {
	unsigned int size;
	unsigned int least;
	bool out;
	int (*run)(struct kvblk_file *file, void *arg);
	void (*undo)(struct kvblk_file *file, const void *arg);
};

static const struct ioctl_def ioctls[] = {
	[_IOC_NR(KVBLK_IOC_INFO)] = {
		sizeof(struct kvblk_info), 8, true, ioctl_info },
	[_IOC_NR(KVBLK_IOC_SUBMIT)] = {
		sizeof(struct kvblk_submit), sizeof(struct kvblk_submit), false,
		ioctl_submit },
	[_IOC_NR(KVBLK_IOC_LOOKUP)] = {
		sizeof(struct kvblk_lookup), sizeof(struct kvblk_lookup), true,
		ioctl_lookup, undo_lookup },
	[_IOC_NR(KVBLK_IOC_LEASE_RELEASE)] = {
		sizeof(struct kvblk_lease_release),
		sizeof(struct kvblk_lease_release), false, ioctl_lease_release },
	[_IOC_NR(KVBLK_IOC_CANCEL)] = {
		sizeof(struct kvblk_cancel), sizeof(struct kvblk_cancel), true,
		ioctl_cancel },
	[_IOC_NR(KVBLK_IOC_REG_BUF)] = {
		sizeof(struct kvblk_reg_buf), sizeof(struct kvblk_reg_buf), true,
		ioctl_reg_buf, undo_reg_buf },
	[_IOC_NR(KVBLK_IOC_UNREG_BUF)] = {
		sizeof(struct kvblk_unreg_buf), sizeof(struct kvblk_unreg_buf),
		false, ioctl_unreg_buf },
};

/* Room for any of the structures. */
union ioctl_arg {
	struct kvblk_info info;
	struct kvblk_submit submit;
	struct kvblk_lookup lookup;
	struct kvblk_lease_release lease_release;
	struct kvblk_cancel cancel;
	struct kvblk_reg_buf reg_buf;
	struct kvblk_unreg_buf unreg_buf;
};

long kvblk_call(struct kvblk_file *file, unsigned int cmd, void __user *uarg)
{
	unsigned int nr = _IOC_NR(cmd);
	const struct ioctl_def *def;
	union ioctl_arg arg = {};
	u32 size;
	long ret;

	if (_IOC_TYPE(cmd) != KVBLK_IOC_TYPE || nr >= ARRAY_SIZE(ioctls))
		return -ENOTTY;
	nr = array_index_nospec(nr, ARRAY_SIZE(ioctls));
	def = &ioctls[nr];
	if (cmd != _IO(KVBLK_IOC_TYPE, nr))
		return -ENOTTY;
	if (get_user(size, (u32 __user *)uarg))
		return -EFAULT;
	if (size < def->least || size > PAGE_SIZE)
		return size > PAGE_SIZE ? -E2BIG : -EINVAL;
	ret = copy_struct_from_user(&arg, def->size, uarg, size);
	if (ret)
		return ret;
	if (!percpu_ref_tryget_live(&file->pool->users))
		return -ENODEV;
	ret = def->run(file, &arg);
	percpu_ref_put(&file->pool->users);
	if (!ret && def->out && copy_to_user(uarg, &arg, min(size, def->size))) {
		if (def->undo)
			def->undo(file, &arg);
		ret = -EFAULT;
	}
	return ret;
}

static long kvblk_ioctl(struct file *filp, unsigned int cmd, unsigned long param)
{
	return kvblk_call(filp->private_data, cmd, (void __user *)param);
}

static int kvblk_open_node(struct inode *inode, struct file *filp)
{
	struct kvblk_pool *pool = container_of(inode->i_cdev, struct kvblk_pool, cdev);
	struct kvblk_file *file;

	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	/* before the check: destroy looks at it after marking the pool */
	atomic_inc(&pool->open_files);
	smp_mb__after_atomic(); /* pairs with kvblk_pool_destroy() */
	if (READ_ONCE(pool->dying)) {
		atomic_dec(&pool->open_files);
		kfree(file);
		return -ENODEV;
	}
	refcount_set(&file->refs, 1);
	file->held_moved = jiffies;
	init_waitqueue_head(&file->held_wait);
	file->pool = pool;
	kvblk_tenant_key_derive(&file->key, &pool->secret, file->tenant);
	xa_init_flags(&file->regions, XA_FLAGS_ALLOC1);
	spin_lock_init(&file->lock);
	INIT_LIST_HEAD(&file->reqs);
	xa_init(&file->leases);
	get_device(&pool->dev);
	filp->private_data = file;
	return nonseekable_open(inode, filp);
}

void kvblk_file_put(struct kvblk_file *file)
{
	if (refcount_dec_and_test(&file->refs))
		kfree(file);
}

static int kvblk_release_node(struct inode *inode, struct file *filp)
{
	struct kvblk_file *file = filp->private_data;
	struct kvblk_pool *pool = file->pool;

	kvblk_lease_drop_all(file);
	kvblk_region_remove_all(file);
	kvblk_file_put(file);
	atomic_dec(&pool->open_files);
	put_device(&pool->dev);
	return 0;
}

const struct file_operations kvblk_fops = {
	.owner = THIS_MODULE,
	.open = kvblk_open_node,
	.release = kvblk_release_node,
	.unlocked_ioctl = kvblk_ioctl,
	.uring_cmd = kvblk_uring_cmd,
	.compat_ioctl = compat_ptr_ioctl,
};
