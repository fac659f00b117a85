// SPDX-License-Identifier: GPL-2.0
/*
 * Bios. Everything goes through submit_bio() on the member's block device:
 * queues, multipath, reconnects and TLS stay its driver's.
 *
 * The rule: each bio is counted in member->ios before its submission and at its
 * completion, so that the watchdog sees a silent device whatever it has been
 * asked for.
 */
#include <linux/memremap.h>
#include <linux/sched/signal.h>

#include "log.h"
#include "trace.h"

/* The watchdog sees what is done by the bio: not too long ones. */
#define BIO_BYTES	(4u << 20)

static void io_account(struct kvblk_member *member)
{
	this_cpu_inc(member->ios->submitted);
}

/* Many in a row, or the end of a silence, is more than a bad block. */
static noinline void io_failed(struct kvblk_member *member)
{
	u32 limit = READ_ONCE(member->pool->tun.failing_run);
	u32 run = atomic_inc_return(&member->error_run);

	this_cpu_inc(member->ios->failed);
	if (limit && (run >= limit || READ_ONCE(member->suspect)))
		WRITE_ONCE(member->failing, true);
}

/*
 * The watchdog reports; this may be an interrupt. One bad place is no failure of
 * the member, nor is what a caller writes to its pages during a get with
 * protection information, nor what the member can't do with another device's
 * memory (@p2p).
 */
static void io_unaccount(struct kvblk_member *member, blk_status_t status, bool p2p)
{
	this_cpu_inc(member->ios->done);
	if (unlikely(status)) {
		if (!p2p && status != BLK_STS_MEDIUM && status != BLK_STS_PROTECTION)
			io_failed(member);
	} else if (unlikely(atomic_read(&member->error_run))) {
		atomic_set(&member->error_run, 0);
	}
	if (unlikely(READ_ONCE(member->suspect)))
		WRITE_ONCE(member->suspect, false);
}

u64 kvblk_member_inflight(const struct kvblk_member *member, struct kvblk_ios *ios)
{
	struct kvblk_ios sum = {};
	int cpu;

	for_each_possible_cpu(cpu) {
		sum.done += READ_ONCE(per_cpu_ptr(member->ios, cpu)->done);
		sum.failed += READ_ONCE(per_cpu_ptr(member->ios, cpu)->failed);
	}
	/* what was submitted is no less than what is done */
	smp_rmb();
	for_each_possible_cpu(cpu)
		sum.submitted += READ_ONCE(per_cpu_ptr(member->ios, cpu)->submitted);
	if (ios)
		*ios = sum;
	return sum.submitted - sum.done;
}

static void io_drop(struct kvblk_io *io)
{
	if (atomic_dec_and_test(&io->pending))
		io->done(io);
}

static void io_end_bio(struct bio *bio)
{
	struct kvblk_io *io = bio->bi_private;

	io_unaccount(io->member, bio->bi_status, io->p2p);
	/* never the errno: a status unknown to this kernel maps to 0 */
	if (bio->bi_status)
		cmpxchg(&io->status, 0, bio->bi_status);
	bio_put(bio);
	io_drop(io);
}

void kvblk_io_start(struct kvblk_io *io, struct kvblk_member *member,
		    void (*done)(struct kvblk_io *io))
{
	io->member = member;
	io->status = 0;
	io->p2p = false;
	io->done = done;
	atomic_set(&io->pending, 1);
}

/* Bytes from @iter on that may be in one bio: see p2p.c. */
static u32 io_same_owner(const struct bio_vec *bv, struct bvec_iter iter)
{
	const struct page *first = bv[iter.bi_idx].bv_page;
	u32 bytes = 0;

	while (iter.bi_size) {
		struct bio_vec part = mp_bvec_iter_bvec(bv, iter);
		const struct page *page = bv[iter.bi_idx].bv_page;

		if ((is_pci_p2pdma_page(page) || is_pci_p2pdma_page(first)) &&
		    !zone_device_pages_have_same_pgmap(page, first))
			break;
		bytes += part.bv_len;
		bvec_iter_advance(bv, &iter, part.bv_len);
	}
	return bytes;
}

void kvblk_io_submit(struct kvblk_io *io, blk_opf_t opf, u64 pos,
		     const struct bio_vec *bv, u32 nr)
{
	struct bvec_iter iter = { .bi_sector = pos >> SECTOR_SHIFT };
	u32 left = 0, part, i;
	struct bio *bio;

	for (i = 0; i < nr; i++)
		left += bv[i].bv_len;
	for (; left; left -= part) {
		part = min(left, BIO_BYTES);
		iter.bi_size = part;
		if (io->p2p) {
			opf |= REQ_NOMERGE;
			part = io_same_owner(bv, iter);
			iter.bi_size = part;
		}
		bio = bio_alloc_bioset(io->member->bdev, 0, opf | REQ_ALLOC_CACHE,
				       GFP_NOIO, &io->member->pool->bios);
		/* as bio_iov_bvec_set() does it: the vectors are not the bio's */
		bio_set_flag(bio, BIO_CLONED);
		bio->bi_io_vec = (struct bio_vec *)bv;
		bio->bi_iter = iter;
		bio->bi_private = io;
		bio->bi_end_io = io_end_bio;
		atomic_inc(&io->pending);
		io_account(io->member);
		if (left > part) {
			bvec_iter_advance(bv, &iter, part);
			iter.bi_sector += part >> SECTOR_SHIFT;
		}
		submit_bio(bio);
	}
}

void kvblk_io_end(struct kvblk_io *io)
{
	io_drop(io);
}

struct io_waiter {
	struct kvblk_io io;
	struct completion over;
};

static void io_wake(struct kvblk_io *io)
{
	complete(&container_of(io, struct io_waiter, io)->over);
}

/* Background work may wait as long as the device likes; nobody hangs on it. */
static int io_wait(struct io_waiter *waiter)
{
	kvblk_io_end(&waiter->io);
	wait_for_completion_state(&waiter->over, TASK_IDLE);
	return waiter->io.status ? -EIO : 0;
}

static int io_sync_vectors(struct kvblk_member *member, blk_opf_t opf, u64 pos,
			   const struct bio_vec *bv, u32 nr)
{
	struct io_waiter waiter;

	init_completion(&waiter.over);
	kvblk_io_start(&waiter.io, member, io_wake);
	kvblk_io_submit(&waiter.io, opf, pos, bv, nr);
	return io_wait(&waiter);
}

int kvblk_io_sync(struct kvblk_member *member, blk_opf_t opf, u64 pos,
		  void *buf, size_t len)
{
	struct bio_vec bv[64];
	u32 nr = 0, bytes = 0;
	int err = 0;

	if (!is_vmalloc_addr(buf)) {
		bvec_set_virt(&bv[0], buf, len);
		return io_sync_vectors(member, opf, pos, bv, 1);
	}
	while (len && !err) {
		u32 part = min_t(size_t, len, PAGE_SIZE - offset_in_page(buf));

		bvec_set_page(&bv[nr++], vmalloc_to_page(buf), part,
			      offset_in_page(buf));
		buf += part;
		bytes += part;
		len -= part;
		if (len && nr < ARRAY_SIZE(bv))
			continue;
		err = io_sync_vectors(member, opf, pos, bv, nr);
		pos += bytes;
		nr = 0;
		bytes = 0;
	}
	return err;
}

int kvblk_io_flush(struct kvblk_member *member)
{
	struct io_waiter waiter;
	struct bio *bio;

	if (!bdev_write_cache(member->bdev))
		return 0;
	init_completion(&waiter.over);
	kvblk_io_start(&waiter.io, member, io_wake);
	bio = bio_alloc_bioset(member->bdev, 0, REQ_OP_WRITE | REQ_PREFLUSH,
			       GFP_NOIO, &member->pool->bios);
	bio->bi_private = &waiter.io;
	bio->bi_end_io = io_end_bio;
	atomic_inc(&waiter.io.pending);
	io_account(member);
	submit_bio(bio);
	return io_wait(&waiter);
}

/*
 * nvme-tcp sends from the submitter's context, without MSG_NOSIGNAL: a target
 * that dies would kill the runtime by SIGPIPE. It is held back, and taken out
 * again if it was not there before; what is in the task's plug goes out before
 * that. Who ignores it, as Python does, or blocks it pays for no lock and keeps
 * his plug, and must go on with that until his operations end.
 */
void kvblk_sigpipe_block(struct kvblk_sigpipe *shield)
{
	const struct sighand_struct *sighand =
		rcu_dereference_protected(current->sighand, true);
	sigset_t sigpipe;

	shield->was_pending = sigismember(&current->pending.signal, SIGPIPE);
	shield->masked = !sigismember(&current->blocked, SIGPIPE) &&
			 READ_ONCE(sighand->action[SIGPIPE - 1].sa.sa_handler) !=
			 SIG_IGN;
	if (!shield->masked)
		return;
	siginitset(&sigpipe, sigmask(SIGPIPE));
	sigprocmask(SIG_BLOCK, &sigpipe, &shield->saved);
}

static noinline void sigpipe_out(struct kvblk_sigpipe *shield)
{
	struct sighand_struct *sighand =
		rcu_dereference_protected(current->sighand, true);
	struct blk_plug *plug = current->plug;
	kernel_siginfo_t info;
	enum pid_type type;
	sigset_t others;

	if (shield->masked && plug) {
		blk_finish_plug(plug);
		/* empty, and its owner's still */
		current->plug = plug;
	}
	if (!shield->was_pending &&
	    sigismember(&current->pending.signal, SIGPIPE)) {
		siginitsetinv(&others, sigmask(SIGPIPE));
		spin_lock_irq(&sighand->siglock);
		dequeue_signal(&others, &info, &type);
		spin_unlock_irq(&sighand->siglock);
	}
	if (shield->masked)
		sigprocmask(SIG_SETMASK, &shield->saved, NULL);
}

void kvblk_sigpipe_restore(struct kvblk_sigpipe *shield)
{
	if (shield->masked || sigismember(&current->pending.signal, SIGPIPE))
		sigpipe_out(shield);
}
