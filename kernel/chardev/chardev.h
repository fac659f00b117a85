/* SPDX-License-Identifier: GPL-2.0 */
/* The character device: ioctls and batches, commands of io_uring. */
#ifndef KVBLK_FRONT_H
#define KVBLK_FRONT_H

#include "request.h"

/* Operations submitted together; lives on the submitter's stack. */
struct kvblk_batch {
	struct kvblk_file *file;
	wait_queue_head_t wq;		/* its lock protects done and kicked */
	struct list_head done;
	bool kicked;			/* a cancel came */
	struct list_head faulting;	/* gets whose caller's memory is not resident */
	u32 nr_faulting;
	u32 nr_inflight;		/* those included */
	u32 nr_reqs;
	u64 bytes_inflight;
	struct kvblk_req **reqs;
};

extern const struct file_operations kvblk_fops;
extern const struct file_operations kvblk_nvme_fops;

/* An open node of the pool, a descriptor of it that is closed, and its end. */
int kvblk_file_open(struct kvblk_pool *pool, struct inode *inode, struct file *filp);
int kvblk_file_flush(struct file *filp, fl_owner_t id);
int kvblk_file_release(struct inode *inode, struct file *filp);

/* The results are the caller's by then. 0 or an error of the whole ioctl. */
int kvblk_batch_submit(struct kvblk_file *file, const struct kvblk_submit *sub);
/*
 * Operations without a ring, which are the caller's by then, each with its result:
 * others may stand in their places. 0 or -EINTR; of a @chain, -ENOMEM too.
 */
int kvblk_batch_run(struct kvblk_file *file, struct kvblk_req **reqs, u32 nr, bool chain);
/* An ioctl, of a ring too. May sleep. */
long kvblk_call(struct kvblk_file *file, unsigned int cmd, void __user *uarg);
int kvblk_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);
/*
 * Starts a ring's operation, or tells what is wrong with it; req->said is set.
 * -EIOCBQUEUED: it has the command; -EAGAIN: it has gone, a worker is to try anew.
 */
int kvblk_uring_run(struct io_uring_cmd *cmd, struct kvblk_req *req,
		    unsigned int issue_flags);
/* The ring or its task goes; under the ring's lock. */
int kvblk_uring_cancel(struct io_uring_cmd *cmd, unsigned int issue_flags);

#endif
