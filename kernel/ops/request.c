// SPDX-License-Identifier: GPL-2.0
/* Parts that all operations share: memory, media half, completion, waiting. See request.h. */
#include <linux/cgroup.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/topology.h>

#include "request.h"

#define WAIT_MS		10000	/* longest wait for space, invalidations or a ring's memory */

int kvblk_req_expire(struct kvblk_req *req)
{
	kvblk_count(req->pool, KVBLK_C_DEADLINES, 1);
	return kvblk_req_over(req, -ETIME);
}

/* ---- entries ---- */

bool kvblk_slot_expired(const struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	return slot->expiry && kvblk_expired(slot->expiry, kvblk_now(pool));
}

bool kvblk_slot_served(struct kvblk_pool *pool, const struct kvblk_slot *slot)
{
	struct kvblk_member *member;

	if (kvblk_slot_in_dram(slot))
		return true;
	if (kvblk_slot_foreign(slot))
		return kvblk_foreign_served(pool, slot);
	guard(rcu)();
	member = kvblk_member_of(pool, slot->seg);
	return member && kvblk_flash_may_read(&member->flash);
}

bool kvblk_slot_listed(struct kvblk_pool *pool, u16 tenant, const struct kvblk_slot *slot)
{
	return slot->state != KVBLK_SLOT_WRITING && slot->tenant == tenant &&
	       !kvblk_slot_expired(pool, slot);
}

bool kvblk_slot_present(struct kvblk_pool *pool, u16 tenant, const struct kvblk_slot *slot)
{
	return kvblk_slot_listed(pool, tenant, slot) && kvblk_slot_served(pool, slot);
}

bool kvblk_block_present(struct kvblk_pool *pool, struct kvblk_id id, u16 tenant,
			 struct kvblk_slot *slot)
{
	struct kvblk_pool *entered __free(kvblk_pool_leave) = kvblk_pool_enter(pool);

	return entered && kvblk_index_find(&pool->index, id, slot) &&
	       kvblk_slot_present(pool, tenant, slot);
}

int kvblk_req_shared(const struct kvblk_req *req, struct kvblk_id *id)
{
	const int shared = kvblk_tenant_shared(req->pool, req->tenant);
	siphash_key_t key;

	if (likely(shared < 0))
		return -1;
	kvblk_tenant_key_derive(&key, &req->pool->secret, shared);
	*id = kvblk_tenant_hash(&key, req->key, req->op.key_len);
	return shared;
}

/* ---- memory ---- */

/*
 * A request and a header of 4 KiB, page-aligned for devices with such a boundary. Lists are
 * constructed once, and are empty whenever a request is freed; kvblk_req_alloc() zeroes the rest.
 * The constructor keeps init_on_alloc from zeroing all 8 KiB. The free pointer follows the object.
 */
struct req_block {
	u8 header[KVBLK_UNIT];
	struct kvblk_req req;
	const void *payer;		/* cgroup that is charged: compared, never dereferenced */
	int nid;			/* the memory's node */
};

static_assert(sizeof(struct req_block) <= 2 * KVBLK_UNIT - sizeof(void *));

static struct kmem_cache *req_blocks;

#define IDLE_MAX	8		/* 64 KiB for each CPU that has used the pool */

/*
 * Free requests of a pool that a CPU keeps for its next operations, as the slab allocator takes
 * more instructions for each. Accessed by that CPU with preemption disabled, in task context only,
 * until the pool is released. A kept request stays charged, and so serves its cgroup only.
 */
struct kvblk_idle_reqs {
	u32 nr;
	struct req_block *blocks[IDLE_MAX];	/* the last freed has the highest index */
};

static void req_construct(void *block)
{
	struct kvblk_req *req = &((struct req_block *)block)->req;

	INIT_LIST_HEAD(&req->file_link);
	INIT_LIST_HEAD(&req->ownership.link);
}

void kvblk_req_pool_exit(struct kvblk_pool *pool)
{
	struct kvblk_idle_reqs *idle;
	int cpu;

	free_percpu(pool->completion_lists);
	if (!pool->idle_reqs)
		return;
	for_each_possible_cpu(cpu) {
		idle = per_cpu_ptr(pool->idle_reqs, cpu);
		while (idle->nr)
			kmem_cache_free(req_blocks, idle->blocks[--idle->nr]);
	}
	free_percpu(pool->idle_reqs);
}

int kvblk_req_pool_init(struct kvblk_pool *pool)
{
	struct kvblk_completion_list *completions;
	int cpu;

	pool->completion_lists = alloc_percpu(struct kvblk_completion_list);
	pool->idle_reqs = alloc_percpu(struct kvblk_idle_reqs);
	if (!pool->completion_lists || !pool->idle_reqs) {
		kvblk_req_pool_exit(pool);
		return -ENOMEM;
	}
	for_each_possible_cpu(cpu) {
		completions = per_cpu_ptr(pool->completion_lists, cpu);
		spin_lock_init(&completions->lock);
		INIT_LIST_HEAD(&completions->waiting);
		INIT_LIST_HEAD(&completions->sharing);
	}
	return 0;
}

int kvblk_req_init(void)
{
	struct kmem_cache_args args = {
		.align = KVBLK_UNIT,
		.ctor = req_construct,
		/* results are copied to callers in lengths that hardened usercopy checks */
		.useroffset = offsetof(struct req_block, req.result),
		.usersize = sizeof_field(struct kvblk_req, result),
		/* or else a deep queue would free and clear pages all the time */
		KVBLK_SHEAF_CAPACITY(32)
	};

	req_blocks = kmem_cache_create("kvblk_req", sizeof(struct req_block), &args, SLAB_ACCOUNT);
	return req_blocks ? 0 : -ENOMEM;
}

void kvblk_req_exit(void)
{
	kmem_cache_destroy(req_blocks);
}

/* Returns the cgroup that the task's allocations are charged to. */
static const void *current_payer(void)
{
#ifdef CONFIG_MEMCG
	guard(rcu)();
	return task_css(current, memory_cgrp_id);
#else
	return NULL;
#endif
}

/* Returns a request that this CPU has kept, or NULL. */
static struct req_block *idle_take(struct kvblk_pool *pool)
{
	struct kvblk_idle_reqs *idle = get_cpu_ptr(pool->idle_reqs);
	struct req_block *block = idle->nr ? idle->blocks[--idle->nr] : NULL;

	put_cpu_ptr(pool->idle_reqs);
	if (likely(!block || block->payer == current_payer()))
		return block;
	/* or else a container would pay for the operations of another one */
	kmem_cache_free(req_blocks, block);
	return NULL;
}

static struct req_block *block_new(gfp_t gfp)
{
	struct req_block *block = kmem_cache_alloc(req_blocks, gfp);

	if (!block)
		return NULL;
	block->payer = current_payer();
	block->nid = page_to_nid(virt_to_page(block));
	return block;
}

/* Keeps a free request for this CPU. Returns false if it keeps enough. */
static bool idle_keep(struct kvblk_pool *pool, struct req_block *block)
{
	struct kvblk_idle_reqs *idle;
	bool keep;

	/* or else KASAN would not see that a free request is used */
	if (IS_ENABLED(CONFIG_KASAN))
		return false;
	/* a task may have moved to another node since */
	if (block->nid != numa_mem_id())
		return false;
	idle = get_cpu_ptr(pool->idle_reqs);
	keep = idle->nr < IDLE_MAX;
	if (keep)
		idle->blocks[idle->nr++] = block;
	put_cpu_ptr(pool->idle_reqs);
	return keep;
}

struct kvblk_req *kvblk_req_alloc(struct kvblk_pool *pool, gfp_t gfp)
{
	struct req_block *block = idle_take(pool) ?: block_new(gfp);
	const size_t lists = offsetofend(struct kvblk_req, ownership.link);

	if (!block)
		return NULL;
	/* short vectors, pages and the key are written before they are read */
	memset((void *)&block->req + lists, 0, offsetof(struct kvblk_req, mem.few_bv) - lists);
	block->req.pool = pool;
	return &block->req;
}

static struct req_block *req_block(struct kvblk_req *req)
{
	return container_of(req, struct req_block, req);
}

/* Clears the magic of a stale header, or else a get could take it for one it has read. */
int kvblk_req_header_alloc(struct kvblk_req *req, u32 length)
{
	u64 *header = (u64 *)req_block(req)->header;

	req->header_bytes = kvblk_header_bytes(kvblk_req_encrypted(req), length);
	if (req->header_bytes > KVBLK_UNIT)
		header = (u64 *)__get_free_pages(GFP_KERNEL_ACCOUNT, get_order(req->header_bytes));
	if (!header)
		return -ENOMEM;
	*header = 0;
	req->header = header;
	return 0;
}

void kvblk_file_put(struct kvblk_file *file)
{
	if (refcount_dec_and_test(&file->refs))
		kfree(file);
}

int kvblk_req_hold(struct kvblk_req *req, u32 bytes, bool must)
{
	struct kvblk_file *file = req->owner;

	if (must || !req->cmd) {
		kvblk_budget_add(&file->budget, bytes);
	} else if (!kvblk_budget_take(&file->budget, bytes, kvblk_file_limit(file))) {
		req->wants_memory = bytes;
		return -EAGAIN;
	}
	refcount_inc(&file->refs);
	req->held = bytes;
	return 0;
}

static void req_let_go(struct kvblk_req *req)
{
	struct kvblk_file *file = req->owner;

	if (!req->held)
		return;
	kvblk_budget_give(&file->budget, req->held);
	req->held = 0;
	kvblk_file_put(file);
}

int kvblk_req_dram_block(struct kvblk_req *req, u32 length)
{
	struct kvblk_dram_block *obj;
	int err = kvblk_req_hold(req, length, false);

	if (err)
		return err;
	/* a put copies all bytes, but a device may write less than it reports */
	obj = kvblk_dram_block_new(req->pool, req->account, length, req->op.key_len,
				   req->type->reads);
	if (!obj) {
		req_let_go(req);
		return -ENOSPC;
	}
	memcpy(obj->key, req->key, req->op.key_len);
	req->block = obj;
	req->coming = true;
	req->mem.bv = obj->bv;
	req->mem.nr = obj->nr + 1;
	req->mem.bytes = length;
	req->mem.media_bytes = round_up(length, KVBLK_UNIT);
	return 0;
}

bool kvblk_dram_block_describe(struct kvblk_dram_block *obj, const struct kvblk_rec *rec)
{
	u32 bytes = kvblk_crcs_bytes(rec->length);
	__le32 *crcs;

	obj->rec = *rec;
	obj->rec.key = obj->key;
	obj->rec.crcs = NULL;
	if (rec->integrity == KVBLK_INTEGRITY_NONE)
		return true;
	crcs = kmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (crcs && rec->crcs)
		memcpy(crcs, rec->crcs, bytes);
	obj->rec.crcs = crcs;
	return crcs;
}

noinline void kvblk_req_dram_block_drop(struct kvblk_req *req)
{
	struct kvblk_dram_block *obj = req->block;

	if (req->mem.bv == obj->bv)
		memset(&req->mem, 0, offsetof(struct kvblk_mem, few_bv));
	req->block = NULL;
	kvblk_dram_block_put(obj);
	req->coming = false;
}

void kvblk_req_mem_drop(struct kvblk_req *req)
{
	if (req->block)
		kvblk_req_dram_block_drop(req);
	if (req->mem.nr)
		kvblk_mem_free(&req->mem);
	req_let_go(req);
}

void kvblk_req_buffers_drop(struct kvblk_req *req)
{
	kvblk_req_mem_drop(req);
	if (req->header && req->header_bytes > KVBLK_UNIT)
		free_pages((unsigned long)req->header, get_order(req->header_bytes));
	req->header = NULL;
}

int kvblk_req_mem_alloc(struct kvblk_req *req, u32 bytes, bool must)
{
	int err = kvblk_req_hold(req, bytes, must);

	if (err)
		return err;
	/* a put copies all bytes, but a device may write less than it reports */
	err = kvblk_mem_alloc(&req->mem, bytes, req->type->reads);
	if (err)
		kvblk_req_mem_drop(req);
	return err;
}

bool kvblk_req_detach(struct kvblk_req *req)
{
	u32 held = READ_ONCE(req->held);

	/* first, because the request may be freed once detached */
	refcount_inc(&req->drainer->refs);
	if (held)
		atomic64_add(held, &req->owner->budget.detached);
	if (kvblk_ownership_detach(&req->ownership))
		return true;
	atomic64_sub(held, &req->owner->budget.detached);
	kvblk_drainer_put(req->drainer);
	return false;
}

void kvblk_req_bounce_end(struct kvblk_req *req)
{
	if (!req->media.bounce)
		return;
	kvblk_bounce_put(req->pool, req->media.bounce);
	req->media.bounce = NULL;
	req_let_go(req);
	/* set by bounce_prepare() only to prevent a quiet detach */
	req->mem.direct = false;
}

static noinline void req_trim_more(struct kvblk_req *req)
{
	kvblk_req_bounce_end(req);
	kvblk_p2p_trial_end(req);
	kfree(req->crcs);
	req->crcs = NULL;
	kvblk_question_drop(req->question);
	req->question = NULL;
}

/* Flat, because each operation calls it. */
__flatten void kvblk_req_trim(struct kvblk_req *req)
{
	if (unlikely(req->device || req->crcs || req->question))
		req_trim_more(req);
	kvblk_req_buffers_drop(req);
	kvblk_parts_put(req->src.parts, req->src.nr);
	if (req->src.parts != &req->part)
		kvfree(req->src.parts);
	req->src.parts = NULL;
}

void kvblk_req_free(struct kvblk_req *req)
{
	struct kvblk_drainer *drainer = req->drainer;

	kvblk_req_trim(req);
	if (drainer) {
		kvblk_drainer_leave(drainer, req->drain_phase);
		if (unlikely(atomic_read(&req->ownership.state) == KVBLK_REQ_DETACHED))
			kvblk_drainer_put(drainer);
	}
	/* last, or else the fields above would have to be saved across calls */
	if (!idle_keep(req->pool, req_block(req)))
		kmem_cache_free(req_blocks, req_block(req));
}

/* ---- the media half ---- */

static noinline void media_foreign_end(struct kvblk_media *media)
{
	if (media->proof) {
		free_pages((unsigned long)media->proof->slots, 1);
		kfree(media->proof);
	}
	media->proof = NULL;
	percpu_ref_put(&media->foreign->flash.ref);
	media->foreign = NULL;
}

void kvblk_media_end(struct kvblk_req *req)
{
	struct kvblk_media *media = &req->media;

	if (media->seg)
		kvblk_segment_put(media->member, media->seg);
	media->seg = NULL;
	if (unlikely(media->foreign))
		media_foreign_end(media);
	if (media->sums)
		kvfree(media->sums);
	media->sums = NULL;
	if (!media->begun)
		return;
	media->begun = false;
	percpu_ref_put(&req->pool->users);
}

/* Finishes a detached operation. */
static void req_work(struct work_struct *work)
{
	struct kvblk_req *req = container_of(work, struct kvblk_req, work);
	/* valid while @held is not 0, which may change here */
	struct kvblk_file *file = req->owner;
	u32 held = req->held;

	if (held)
		refcount_inc(&file->refs);
	/* if the operation is in flight again, its completion queues this work again */
	if (req->type->finish(req, KVBLK_BY_NOBODY) == 1) {
		if (held)
			atomic64_sub(held, &file->budget.detached);
		req->release(req);
	}
	if (held)
		kvblk_file_put(file);
}

/*
 * Others may use shared memory after the caller has exited, see kvblk_mem_map(). An ioctl returns
 * when the device has finished with it. For a ring, closing the node waits, at exit at the latest.
 */
static noinline void sharing_begin(struct kvblk_req *req)
{
	struct kvblk_completion_list *completions = req->ownership.completions;
	struct kvblk_media *media = &req->media;

	guard(spinlock_irqsave)(&completions->lock);
	media->files = current->files;
	media->number = ++completions->nr_shared;
	list_add_tail(&media->sharing, &completions->sharing);
}

static void sharing_end(struct kvblk_req *req)
{
	guard(spinlock_irqsave)(&req->ownership.completions->lock);
	list_del(&req->media.sharing);
	req->media.files = NULL;
}

static bool sharing(struct kvblk_completion_list *completions, const struct kvblk_file *file,
		    const void *files, u64 until)
{
	const struct kvblk_req *req;

	guard(spinlock_irq)(&completions->lock);
	list_for_each_entry(req, &completions->sharing, media.sharing) {
		if (req->media.number > until)
			break;
		if (req->owner == file && req->media.files == files)
			return true;
	}
	return false;
}

void kvblk_file_quiesce(struct kvblk_file *file, const void *files)
{
	struct kvblk_completion_list *completions;
	unsigned long step;
	u64 until;
	int cpu;

	for_each_possible_cpu(cpu) {
		completions = per_cpu_ptr(file->pool->completion_lists, cpu);
		until = READ_ONCE(completions->nr_shared);
		for (step = 1; sharing(completions, file, files, until);
		     step = min(2 * step, msecs_to_jiffies(20) + 1))
			schedule_timeout_idle(step);
	}
}

#define COMPLETED_PAGES	((64u << 20) >> PAGE_SHIFT)	/* pinned until a work rescues, by CPU */

/* Puts a ring's operation on the completion list. Returns whether to notify the task. */
static bool req_land(struct kvblk_req *req)
{
	/* before the request is listed, because its task may free it from then on */
	if (READ_ONCE(req->ownership.completions->pages) > COMPLETED_PAGES)
		queue_work(req->pool->wq, &req->pool->rescue_work);
	return kvblk_ownership_queue(&req->ownership, jiffies, req->mem.nr_pages);
}

static void media_completed(struct kvblk_io *io)
{
	struct kvblk_req *req = container_of(io, struct kvblk_req, media.io);

	if (unlikely(req->media.files))
		sharing_end(req);
	kvblk_throttle_leave(&req->media.queued);
	if (!kvblk_ownership_done(&req->ownership)) {
		INIT_WORK(&req->work, req_work);
		queue_work(req->pool->wq, &req->work);
		return;
	}
	if (req->batch || req_land(req))
		req->completed(req);
}

void kvblk_req_completed(struct kvblk_req *req)
{
	media_completed(&req->media.io);
}

void kvblk_req_pass(struct kvblk_req *req)
{
	if (!req->woken)
		return;
	req->woken = false;
	kvblk_space_passes(req->pool);
}

void kvblk_media_submit(struct kvblk_req *req, struct kvblk_flash *flash)
{
	kvblk_req_pass(req);
	kvblk_io_start(&req->media.io, flash, media_completed);
	req->media.io.p2p = req->mem.p2p;
	if (unlikely(req->mem.shared) && req->cmd)
		sharing_begin(req);
	/* release: a cancel that detaches the request must see its memory */
	atomic_set_release(&req->ownership.state, KVBLK_REQ_INFLIGHT);
}

/* ---- ring operations whose task does not run ---- */

#define LANDED_PATIENCE		HZ	/* time of a task until the media half is ended for it */

void kvblk_req_waited(struct kvblk_req *req, unsigned long waited)
{
	req->start = min_t(ktime_t, ktime_get(), req->start + jiffies_to_nsecs(waited - 1));
	req->ownership.since += waited;
}

void kvblk_rescue_work(struct work_struct *work)
{
	struct kvblk_pool *pool = container_of(work, struct kvblk_pool, rescue_work);
	struct kvblk_ownership *ownership;
	struct kvblk_req *req;
	int cpu, ret;

	for_each_possible_cpu(cpu)
		while ((ownership = kvblk_ownership_take(per_cpu_ptr(pool->completion_lists, cpu),
							 jiffies - LANDED_PATIENCE,
							 COMPLETED_PAGES))) {
			req = container_of(ownership, struct kvblk_req, ownership);
			kvblk_req_resume(req);
			ret = req->type->finish(req, KVBLK_BY_MEMBER);
			/* only the result is left, and the task may never run */
			if (ret == 1)
				kvblk_req_buffers_drop(req);
			if (ret && kvblk_ownership_give_back(ownership))
				req->completed(req);
			cond_resched();
		}
}

void kvblk_req_count_device(struct kvblk_req *req)
{
	bool direct = req->mem.direct;

	kvblk_count(req->pool, direct ? KVBLK_C_DEVICE_DIRECT : KVBLK_C_DEVICE_BOUNCED, 1);
	if (req->type->reads && !direct)
		req->result.flags |= KVBLK_RES_DEVICE_READ;
}

bool kvblk_req_known_device(struct kvblk_req *req, phys_addr_t *addr)
{
	return READ_ONCE(req->pool->device_seen) &&
	       kvblk_src_device(&req->src, req->type->writes, addr);
}

void kvblk_req_saw_device(struct kvblk_req *req)
{
	req->device = true;
	if (!READ_ONCE(req->pool->device_seen))
		WRITE_ONCE(req->pool->device_seen, true);
}

/* ---- starting and waiting ---- */

static int req_start(struct kvblk_req *req)
{
	if (READ_ONCE(req->canceled))
		return kvblk_req_over(req, -ECANCELED);
	if (kvblk_file_ended(req->owner))
		return kvblk_req_over(req, -ENODEV);
	return req->type->start(req);
}

int kvblk_req_start(struct kvblk_req *req)
{
	int ret = req_start(req);

	if (ret) {
		kvblk_req_pass(req);
		kvblk_media_end(req);
	}
	return ret;
}

long kvblk_req_wait_space(struct kvblk_req *req, long step)
{
	struct kvblk_pool *pool = req->pool;
	/* a prefetch needs no segment: puts that wait for one would not pass its wakeup on */
	bool exclusive = req->type->reads;
	/* wait_event_killable_timeout(), but exclusive */
	long left = ___wait_event(pool->space_wait,
				  ___wait_cond_timeout(atomic_read(&pool->space_seq) !=
						       req->space_seq),
				  TASK_KILLABLE, exclusive, step,
				  __ret = schedule_timeout(__ret));

	req->woken = exclusive && left > 0;
	/* a write throttle that makes progress will have space */
	if (left > 0 && req->throttled)
		req->waiting = ktime_get();
	return left;
}

long kvblk_req_wait_restore(struct kvblk_req *req, long step)
{
	struct kvblk_pool *pool = req->pool;

	req->waiting = ktime_get();
	return wait_event_killable_timeout(pool->restore_wait,
					   !atomic_read(&pool->restoring), step);
}

static bool file_has_memory(const struct kvblk_req *req)
{
	return kvblk_budget_fits(&req->owner->budget, req->wants_memory,
				 kvblk_file_limit(req->owner));
}

static bool req_stuck(const struct kvblk_req *req)
{
	return ktime_ms_delta(ktime_get(), req->waiting) > WAIT_MS &&
	       time_after(jiffies, READ_ONCE(req->owner->budget.moved) + msecs_to_jiffies(WAIT_MS));
}

/* Waits in steps, so that kvblk_req_start() sees deadlines, cancels and suspect members. */
int kvblk_req_wait(struct kvblk_req *req)
{
	const long step = msecs_to_jiffies(100);
	long left;

	if (req->wants_fault) {
		/* the next start reports any failure */
		req->wants_fault = false;
		req->src.fault = true;
		return 0;
	}
	if (!req->waiting)
		req->waiting = ktime_get();
	if (req->wants_memory) {
		left = wait_event_killable_timeout(req->owner->budget.wait,
						   file_has_memory(req), step);
		req->wants_memory = 0;
		if (left < 0)
			return -EINTR;
		return req_stuck(req) ? -ENOMEM : 0;
	}

	left = req->type->wait(req, step);
	if (left < 0)
		return -EINTR;
	if (ktime_ms_delta(ktime_get(), req->waiting) <= WAIT_MS)
		return 0;
	kvblk_req_pass(req);
	return req->type->give_up ? req->type->give_up(req) : -EIO;
}
