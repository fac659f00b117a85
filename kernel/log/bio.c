// SPDX-License-Identifier: GPL-2.0
/*
 * Bios. All I/O uses submit_bio() on the member's block device: queues, multipath, reconnects and
 * TLS are up to its driver. The rules:
 * - flash->ios counts bios before submission and at completion: the watchdog sees a silent device.
 * - No write reaches a fenced device: another node may own it. One whose reservation is rejected is
 *   fenced, and has not failed.
 * - Only the member's own works wait for a tag or a frozen queue, because deadlines, cancel and
 *   SIGKILL do not reach a submitter there. So bios are REQ_NOWAIT, and a work submits bios that
 *   would wait, in order. The work runs in the root cgroup, or else an exhausted budget stops all.
 */
#include <linux/major.h>
#include <linux/memremap.h>
#include <linux/sched/signal.h>

#include "log/log.h"
#include "trace.h"

#define BIO_BYTES	(4u << 20)	/* a limit, because the watchdog sees completed bios only */

/* A bio, and its range and flags, which drivers change in the bio, to submit it again. */
struct kvblk_bio {
	struct bvec_iter iter;
	blk_opf_t opf;
	struct bio bio;
};

static struct kvblk_bio *io_own(struct bio *bio)
{
	return container_of(bio, struct kvblk_bio, bio);
}

static struct workqueue_struct *io_wq;	/* not freezable: continues what tasks have submitted */

int kvblk_io_init(void)
{
	io_wq = alloc_workqueue("kvblk-io", WQ_UNBOUND | WQ_MEM_RECLAIM, WQ_MAX_ACTIVE);
	return io_wq ? 0 : -ENOMEM;
}

void kvblk_io_exit(void)
{
	destroy_workqueue(io_wq);
}

/* Notes failures in a row, or one at the end of a silence: more than a bad block. */
static noinline void io_failed(struct kvblk_flash *flash, bool write, bool first)
{
	u32 limit = READ_ONCE(flash->pool->tun.failing_run), run;

	/* a count of bios, to be compared with @done; @error_run below counts operations */
	this_cpu_inc(flash->ios->failed);
	if (write)
		this_cpu_inc(flash->ios->writes_failed);
	if (!first)
		return;
	run = atomic_inc_return(&flash->error_run[write]);
	if (!limit || (run < limit && !READ_ONCE(flash->suspect)))
		return;
	/* a full thin volume still reads; after a silence reads are unknown, too */
	if (write && !READ_ONCE(flash->suspect))
		WRITE_ONCE(flash->read_only, true);
	else
		WRITE_ONCE(flash->failing, true);
}

/*
 * Counts a completed bio, maybe in an interrupt: the watchdog reports. No failure of the member: an
 * unreadable place, pages changed during a get with protection information, another device's memory
 * (p2p), a discard. But an unwritable place is: no spare blocks are left.
 */
static void io_unaccount(struct kvblk_io *io, struct bio *bio)
{
	struct kvblk_io *whole = io->whole ?: io;
	struct kvblk_flash *flash = io->flash;
	bool write = op_is_write(bio_op(bio));
	blk_status_t status = bio->bi_status;

	this_cpu_inc(flash->ios->done);
	this_cpu_add(flash->ios->bytes_done, io_own(bio)->iter.bi_size);
	if (write)
		this_cpu_inc(flash->ios->writes);
	if (unlikely(status)) {
		/* not the errno, because a status unknown to this kernel maps to 0 */
		bool first = !cmpxchg(&whole->status, 0, status);

		/* an error of another device's memory proves nothing about the cache */
		if (bio_op(bio) == REQ_OP_WRITE && !whole->p2p)
			atomic_inc(&flash->write_errors);
		if (status == BLK_STS_RESV_CONFLICT && write && flash->fence.key)
			WRITE_ONCE(flash->fenced, true);
		else if (!whole->p2p && status != BLK_STS_PROTECTION &&
			 bio_op(bio) != REQ_OP_DISCARD &&
			 (status != BLK_STS_MEDIUM || bio_op(bio) != REQ_OP_READ))
			io_failed(flash, write, first);
	} else if (unlikely(atomic_read(&flash->error_run[write]))) {
		atomic_set(&flash->error_run[write], 0);
	}
	if (unlikely(READ_ONCE(flash->suspect)))
		WRITE_ONCE(flash->suspect, false);
}

u64 kvblk_flash_inflight(const struct kvblk_flash *flash, struct kvblk_ios *ios)
{
	struct kvblk_ios sum = {};
	int cpu;

	for_each_possible_cpu(cpu) {
		sum.done += READ_ONCE(per_cpu_ptr(flash->ios, cpu)->done);
		sum.bytes_done += READ_ONCE(per_cpu_ptr(flash->ios, cpu)->bytes_done);
		sum.failed += READ_ONCE(per_cpu_ptr(flash->ios, cpu)->failed);
		sum.writes += READ_ONCE(per_cpu_ptr(flash->ios, cpu)->writes);
		sum.writes_failed += READ_ONCE(per_cpu_ptr(flash->ios, cpu)->writes_failed);
	}
	/* read @done first, so that the difference is never negative */
	smp_rmb();
	for_each_possible_cpu(cpu) {
		sum.submitted += READ_ONCE(per_cpu_ptr(flash->ios, cpu)->submitted);
		sum.bytes += READ_ONCE(per_cpu_ptr(flash->ios, cpu)->bytes);
	}
	if (ios)
		*ios = sum;
	return sum.submitted - sum.done;
}

void kvblk_flash_look(struct kvblk_flash *flash, u64 now)
{
	struct kvblk_bandwidth *bw = &flash->bandwidth;
	struct kvblk_ios ios;

	/* another task's sample will do */
	if (!kvblk_bandwidth_due(bw, now) || !spin_trylock(&flash->bandwidth_lock))
		return;
	if (kvblk_bandwidth_due(bw, now)) {
		kvblk_flash_inflight(flash, &ios);
		/* @now may be long ago */
		kvblk_bandwidth_sample(bw, ktime_get_ns(), ios.bytes, ios.bytes_done,
				       READ_ONCE(flash->limited));
	}
	spin_unlock(&flash->bandwidth_lock);
}

static noinline void io_postpone(struct kvblk_flash *flash, struct bio *bio)
{
	struct kvblk_queue *queue = &flash->queues[op_is_write(bio_op(bio))];

	guard(spinlock_irqsave)(&queue->lock);
	bio_list_add(&queue->bios, bio);
	WRITE_ONCE(queue->nr, queue->nr + 1);
	/* under the lock, because the member may be freed once its queue is empty */
	queue_work(io_wq, &queue->work);
}

static bool io_would_wait(struct bio *bio)
{
	return io_own(bio)->opf & REQ_NOWAIT &&
	       (bio->bi_status == BLK_STS_AGAIN || bio->bi_status == BLK_STS_NOTSUPP);
}

static void io_end_bio(struct bio *bio)
{
	struct kvblk_io *io = bio->bi_private;

	if (unlikely(bio->bi_status) && io_would_wait(bio)) {
		io_postpone(io->flash, bio);
		return;
	}
	io_unaccount(io, bio);
	bio_put(bio);
	kvblk_io_end(io);
}

static bool io_same_owner(const struct page *page, const struct page *first)
{
	return (!is_pci_p2pdma_page(page) && !is_pci_p2pdma_page(first)) ||
	       zone_device_pages_have_same_pgmap(page, first);
}

/*
 * Returns the bytes that fit one bio, because the block layer does not split REQ_NOWAIT bios. A
 * work splits by rare limits, such as memory boundaries.
 */
static noinline u32 io_fits(const struct kvblk_io *io, const struct bio_vec *bv,
			    struct bvec_iter iter)
{
	struct block_device *bdev = io->flash->bdev;
	struct request_queue *queue = bdev_get_queue(bdev);
	u32 longest = queue_max_segment_size(queue), segments = 0, bytes = 0;
	u32 size = iter.bi_size >> SECTOR_SHIFT, even;
	u32 most = min(BIO_BYTES >> SECTOR_SHIFT, queue_max_sectors(queue));
	u32 physical = queue_physical_block_size(queue) >> SECTOR_SHIFT;
	sector_t start = iter.bi_sector + get_start_sect(bdev);
	const struct page *first = bv[iter.bi_idx].bv_page;

	if (queue->limits.chunk_sectors)
		most = min(most, blk_boundary_sectors_left(start, queue->limits.chunk_sectors));
	/* as get_max_io_size(): never split a physical block */
	start &= physical - 1;
	if (round_down(start + most, physical) > start)
		most = round_down(start + most, physical) - start;
	/* cut evenly, or else the last unit or two would take a command of their own */
	even = start + DIV_ROUND_UP(size, DIV_ROUND_UP(size, most));
	even = round_up(even, max(physical, KVBLK_UNIT >> SECTOR_SHIFT)) - start;
	if (!queue->limits.chunk_sectors)
		most = min(most, even);
	iter.bi_size = min(iter.bi_size, max(most << SECTOR_SHIFT, KVBLK_UNIT));
	while (iter.bi_size) {
		u32 part = mp_bvec_iter_len(bv, iter);

		segments += 1 + (part - 1) / longest;
		if (bytes && (segments > queue_max_segments(queue) ||
			      !io_same_owner(bv[iter.bi_idx].bv_page, first)))
			break;
		bytes += part;
		bvec_iter_advance(bv, &iter, part);
	}
	return bytes;
}

static void io_fill(struct bio *bio, struct kvblk_io *io, const struct bio_vec *bv)
{
	/* as bio_iov_bvec_set(): the bio does not own the vectors */
	bio_set_flag(bio, BIO_CLONED);
	bio->bi_io_vec = (struct bio_vec *)bv;
	bio->bi_iter = io_own(bio)->iter;
	bio->bi_private = io;
	bio->bi_end_io = io_end_bio;
}

static void io_go(const struct kvblk_flash *flash, struct bio *bio)
{
	if (unlikely(READ_ONCE(flash->fenced)) && op_is_write(bio_op(bio))) {
		bio->bi_status = BLK_STS_RESV_CONFLICT;
		bio_endio(bio);
	} else {
		submit_bio(bio);
	}
}

static void io_work(struct work_struct *work)
{
	struct kvblk_queue *queue = container_of(work, struct kvblk_queue, work);
	const struct bio_vec *bv;
	struct kvblk_io *io;
	struct bio *bio;
	u16 ioprio;

	for (;;) {
		scoped_guard(spinlock_irq, &queue->lock)
			bio = bio_list_pop(&queue->bios);
		if (!bio)
			return;
		io = bio->bi_private;
		bv = bio->bi_io_vec;
		ioprio = bio->bi_ioprio;
		io_own(bio)->opf &= ~REQ_NOWAIT;
		bio_reset(bio, io->flash->bdev, io_own(bio)->opf);
		bio->bi_ioprio = ioprio;
		io_fill(bio, io, bv);
		io_go(io->flash, bio);
		scoped_guard(spinlock_irq, &queue->lock)
			WRITE_ONCE(queue->nr, queue->nr - 1);
		cond_resched();
	}
}

int kvblk_io_flash_init(struct kvblk_flash *flash)
{
	struct kvblk_queue *queue;

	for (queue = flash->queues; queue < flash->queues + 2; queue++) {
		spin_lock_init(&queue->lock);
		bio_list_init(&queue->bios);
		INIT_WORK(&queue->work, io_work);
	}
	spin_lock_init(&flash->bandwidth_lock);
	return bioset_init(&flash->bios, 128, offsetof(struct kvblk_bio, bio), BIOSET_PERCPU_CACHE);
}

void kvblk_io_flash_exit(struct kvblk_flash *flash)
{
	cancel_work_sync(&flash->queues[0].work);
	cancel_work_sync(&flash->queues[1].work);
	bioset_exit(&flash->bios);
}

void kvblk_io_limits(struct kvblk_flash *flash)
{
	struct request_queue *queue = bdev_get_queue(flash->bdev);
	u32 physical = queue_physical_block_size(queue) >> SECTOR_SHIFT;
	u32 most = min(BIO_BYTES >> SECTOR_SHIFT, queue_max_sectors(queue));
	u32 segments;

	/* some releases of md take BLK_STS_AGAIN of a leg for a failure */
	WRITE_ONCE(flash->nowait, bdev_nowait(flash->bdev) &&
		   flash->bdev->bd_disk->major != MD_MAJOR ? REQ_NOWAIT : 0);
	most = most > physical && !queue->limits.chunk_sectors ?
	       (most - physical) << SECTOR_SHIFT : 0;
	segments = most / queue_max_segment_size(queue) + 1;
	WRITE_ONCE(flash->fits_bytes, most);
	WRITE_ONCE(flash->fits_segments,
		   queue_max_segments(queue) - min(queue_max_segments(queue), segments));
}

/* Fails a write to another node's member, which all of its readers trust. Returns true. */
static noinline bool io_refuse(struct kvblk_io *io)
{
	WARN_ONCE(1, "kvblk: write to foreign member %s refused\n", io->flash->name);
	cmpxchg(&(io->whole ?: io)->status, 0, BLK_STS_IOERR);
	return true;
}

static __always_inline void io_submit_bio(struct kvblk_io *io, blk_opf_t opf,
					  const struct bio_vec *bv, const struct bvec_iter *iter)
{
	struct kvblk_flash *flash = io->flash;
	struct bio *bio;

	if (unlikely(flash->foreign && op_is_write(opf)) && io_refuse(io))
		return;
	bio = bio_alloc_bioset(flash->bdev, 0, opf, GFP_NOIO, &flash->bios);
	io_own(bio)->iter = *iter;
	/* not @opf, because a bio of the reserve is without REQ_ALLOC_CACHE, to return there */
	io_own(bio)->opf = bio->bi_opf;
	bio->bi_ioprio = io->ioprio;
	io_fill(bio, io, bv);
	atomic_inc(&io->pending);
	this_cpu_inc(flash->ios->submitted);
	this_cpu_add(flash->ios->bytes, iter->bi_size);
	if (op_is_write(bio->bi_opf))
		kvblk_count_at(flash->stats, KVBLK_C_WRITE_BYTES, iter->bi_size);
	else
		kvblk_count_at(flash->stats, KVBLK_C_READ_BYTES, iter->bi_size);
	if (unlikely(READ_ONCE(flash->queues[op_is_write(bio->bi_opf)].nr)))
		io_postpone(flash, bio);
	else
		io_go(flash, bio);
}

/* Submits bios that the device need not split. */
static noinline void io_submit_cut(struct kvblk_io *io, blk_opf_t opf, const struct bio_vec *bv,
				   const struct bvec_iter *whole)
{
	struct bvec_iter iter = *whole;
	u32 left = iter.bi_size, part;

	if (io->p2p)
		opf |= REQ_NOMERGE;
	for (; left; left -= part) {
		iter.bi_size = left;
		part = io_fits(io, bv, iter);
		iter.bi_size = part;
		/* a bio that a limit cut cannot merge with the next: do not look for a merge */
		io_submit_bio(io, part < left ? opf | REQ_NOMERGE : opf, bv, &iter);
		bvec_iter_advance(bv, &iter, part);
		iter.bi_sector += part >> SECTOR_SHIFT;
	}
}

void kvblk_io_submit_iter(struct kvblk_io *io, blk_opf_t opf, const struct bio_vec *bv,
			  const struct bvec_iter *iter, u32 nr)
{
	struct kvblk_flash *flash = io->flash;

	opf |= REQ_ALLOC_CACHE | READ_ONCE(flash->nowait) | (io->alone ? REQ_NOMERGE : 0);
	if (likely(iter->bi_size <= READ_ONCE(flash->fits_bytes) && !io->p2p &&
		   nr <= READ_ONCE(flash->fits_segments)))
		io_submit_bio(io, opf, bv, iter);
	else
		io_submit_cut(io, opf, bv, iter);
}

void kvblk_io_submit(struct kvblk_io *io, blk_opf_t opf, u64 pos, const struct bio_vec *bv, u32 nr)
{
	struct bvec_iter iter = { .bi_sector = pos >> SECTOR_SHIFT };
	u32 i;

	for (i = 0; i < nr; i++)
		iter.bi_size += bv[i].bv_len;
	kvblk_io_submit_iter(io, opf, bv, &iter, nr);
}

void kvblk_io_start_part(struct kvblk_io *io, struct kvblk_io *whole,
			 void (*done)(struct kvblk_io *io))
{
	kvblk_io_start(io, whole->flash, done);
	io->whole = whole;
	io->ioprio = whole->ioprio;
	io->alone = whole->alone;
	atomic_inc(&whole->pending);
}

struct io_waiter {
	struct kvblk_io io;
	struct completion over;
};

static void io_wake(struct kvblk_io *io)
{
	complete(&container_of(io, struct io_waiter, io)->over);
}

static int io_errno(blk_status_t status)
{
	switch (status) {
	case BLK_STS_OK:
		return 0;
	case BLK_STS_TRANSPORT:
		return -ENOLINK;
	case BLK_STS_TIMEOUT:
		return -ETIMEDOUT;
	case BLK_STS_OFFLINE:
		return -ENODEV;
	case BLK_STS_AGAIN:
		return -EAGAIN;
	case BLK_STS_RESOURCE:
	case BLK_STS_DEV_RESOURCE:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

/* Waits in TASK_IDLE, because background work may wait long without a hung-task report. */
static int io_wait(struct io_waiter *waiter)
{
	kvblk_io_end(&waiter->io);
	wait_for_completion_state(&waiter->over, TASK_IDLE);
	return io_errno(waiter->io.status);
}

static int io_sync_vectors(struct kvblk_flash *flash, blk_opf_t opf, u64 pos,
			   const struct bio_vec *bv, u32 nr)
{
	struct io_waiter waiter;

	init_completion(&waiter.over);
	kvblk_io_start(&waiter.io, flash, io_wake);
	kvblk_io_submit(&waiter.io, opf, pos, bv, nr);
	return io_wait(&waiter);
}

int kvblk_io_sync(struct kvblk_flash *flash, blk_opf_t opf, u64 pos, void *buf, size_t len)
{
	struct bio_vec bv[64];
	int err = 0;

	if (!is_vmalloc_addr(buf)) {
		bvec_set_virt(&bv[0], buf, len);
		return io_sync_vectors(flash, opf, pos, bv, 1);
	}
	while (len && !err) {
		u32 nr, part, bytes = 0;

		for (nr = 0; nr < ARRAY_SIZE(bv) && bytes < len; nr++) {
			part = min_t(size_t, len - bytes, PAGE_SIZE - offset_in_page(buf));
			bvec_set_page(&bv[nr], vmalloc_to_page(buf), part, offset_in_page(buf));
			buf += part;
			bytes += part;
		}
		err = io_sync_vectors(flash, opf, pos, bv, nr);
		pos += bytes;
		len -= bytes;
	}
	return err;
}

#define READ_TRIES	3		/* at a bad place */
#define READ_WAITS	10		/* for a device out of reach, seconds */

int kvblk_io_read(struct kvblk_flash *flash, u64 pos, void *buf, size_t len)
{
	u32 tries = 0, waits = 0;
	int err;

	for (;;) {
		err = kvblk_io_sync(flash, REQ_OP_READ | REQ_META, pos, buf, len);
		if (!err || kvblk_flash_leaves(flash))
			return err;
		if (err == -EIO ? ++tries == READ_TRIES : waits++ == READ_WAITS)
			return err;
		if (err != -EIO)
			wait_event_timeout(flash->pool->settle_wait, kvblk_flash_leaves(flash), HZ);
	}
}

static int reader_read(const struct kvblk_reader *reader, u64 pos, void *buf, size_t len)
{
	return kvblk_io_read(reader->device, pos, buf, len);
}

static int reader_read_units(const struct kvblk_reader *reader, u32 segment, const u32 *units,
			     u32 nr, void *buf)
{
	struct bio_vec bv[KVBLK_SUMMARY_ENTRIES];
	struct io_waiter waiter;
	u32 i;

	init_completion(&waiter.over);
	kvblk_io_start(&waiter.io, reader->device, io_wake);
	for (i = 0; i < nr; i++, buf += KVBLK_UNIT) {
		bvec_set_page(&bv[i], vmalloc_to_page(buf), KVBLK_UNIT, offset_in_page(buf));
		kvblk_io_submit(&waiter.io, REQ_OP_READ | REQ_META,
				kvblk_reader_pos(reader, segment, units[i]), &bv[i], 1);
	}
	return io_wait(&waiter);
}

static void reader_bad(const struct kvblk_reader *reader, u32 segment)
{
	kvblk_flash_error(reader->device, KVBLK_ERROR_READ, segment);
}

static const struct kvblk_reader_ops reader_ops = {
	.read = reader_read,
	.read_units = reader_read_units,
	.bad = reader_bad,
};

struct kvblk_reader kvblk_flash_reader(struct kvblk_flash *flash)
{
	return (struct kvblk_reader) {
		.ops = &reader_ops,
		.device = flash,
		.secret = &flash->pool->secret,
		.incarnation = flash->incarnation,
		.data_start = flash->data_start,
		.segment_units = flash->segment_units,
		.nr_segs = flash->nr_segs,
		.align_units = flash->record_align >> KVBLK_UNIT_SHIFT,
	};
}

static int io_sync_bare(struct kvblk_flash *flash, blk_opf_t opf, u64 pos, u32 bytes)
{
	struct io_waiter waiter;
	struct bio *bio;

	init_completion(&waiter.over);
	kvblk_io_start(&waiter.io, flash, io_wake);
	if (unlikely(flash->foreign) && io_refuse(&waiter.io))
		return io_wait(&waiter);
	bio = bio_alloc_bioset(flash->bdev, 0, opf, GFP_NOIO, &flash->bios);
	io_own(bio)->opf = 0;
	io_own(bio)->iter.bi_size = 0;
	bio->bi_iter.bi_sector = pos >> SECTOR_SHIFT;
	bio->bi_iter.bi_size = bytes;
	bio->bi_private = &waiter.io;
	bio->bi_end_io = io_end_bio;
	atomic_inc(&waiter.io.pending);
	this_cpu_inc(flash->ios->submitted);
	io_go(flash, bio);
	return io_wait(&waiter);
}

int kvblk_io_flush(struct kvblk_flash *flash)
{
	return bdev_write_cache(flash->bdev) ?
	       io_sync_bare(flash, REQ_OP_WRITE | REQ_PREFLUSH, 0, 0) : 0;
}

void kvblk_io_discard(struct kvblk_flash *flash, u64 pos, u32 bytes)
{
	if (bdev_max_discard_sectors(flash->bdev))
		io_sync_bare(flash, REQ_OP_DISCARD, pos, bytes);
}

static noinline void sigpipe_mask(struct kvblk_sigpipe *shield)
{
	sigset_t sigpipe;

	siginitset(&sigpipe, sigmask(SIGPIPE));
	sigprocmask(SIG_BLOCK, &sigpipe, &shield->saved);
}

/*
 * Blocks SIGPIPE: nvme-tcp sends in the submitter's context without MSG_NOSIGNAL; a dying target
 * would kill the runtime. A new SIGPIPE is removed after a flush of the plug. A task that blocks or
 * ignores SIGPIPE until its operations complete, as Python does, takes no lock and keeps its plug.
 */
void kvblk_sigpipe_block(struct kvblk_sigpipe *shield)
{
	const struct sighand_struct *sighand = rcu_dereference_protected(current->sighand, true);

	shield->was_pending = sigismember(&current->pending.signal, SIGPIPE);
	shield->masked = !sigismember(&current->blocked, SIGPIPE) &&
			 READ_ONCE(sighand->action[SIGPIPE - 1].sa.sa_handler) != SIG_IGN;
	if (shield->masked)
		sigpipe_mask(shield);
}

void kvblk_sigpipe_out(struct kvblk_sigpipe *shield)
{
	struct sighand_struct *sighand = rcu_dereference_protected(current->sighand, true);
	struct blk_plug *plug = current->plug;
	kernel_siginfo_t info;
	enum pid_type type;
	sigset_t others;

	if (shield->masked && plug) {
		blk_finish_plug(plug);
		/* the plug is empty, and still on its owner's stack */
		current->plug = plug;
	}
	if (!shield->was_pending && sigismember(&current->pending.signal, SIGPIPE)) {
		siginitsetinv(&others, sigmask(SIGPIPE));
		spin_lock_irq(&sighand->siglock);
		dequeue_signal(&others, &info, &type);
		spin_unlock_irq(&sighand->siglock);
	}
	if (shield->masked)
		sigprocmask(SIG_SETMASK, &shield->saved, NULL);
}
