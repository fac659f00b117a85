/* SPDX-License-Identifier: GPL-2.0 */
/* The character device: ioctls, batches, io_uring commands. */
#ifndef KVBLK_CHARDEV_H
#define KVBLK_CHARDEV_H

#include "request.h"

/* Operations submitted together; lives on the submitter's stack. */
struct kvblk_batch {
	struct kvblk_file *file;
	wait_queue_head_t wq;		/* wq.lock protects done and kicked */
	struct list_head done;
	bool kicked;			/* an operation was canceled */
	bool interruptible;		/* a signal that has a handler ends the batch, too */
	struct list_head faulting;	/* gets whose memory is not resident */
	u32 nr_faulting;
	u32 nr_inflight;		/* includes nr_faulting */
	u32 nr_reqs;
	u64 bytes_inflight;
	u64 first_detach;	/* least hard deadline; 0 once an operation was canceled */
	struct kvblk_req **reqs;
};

extern const struct file_operations kvblk_fops;
extern const struct file_operations kvblk_tenant_fops;
extern const struct file_operations kvblk_nvme_fops;
extern const struct file_operations kvblk_changes_fops;
extern const struct file_operations kvblk_peers_fops;

/* Makes an open file of the kernel or of a node. Returns it, or an ERR_PTR(): ENOMEM, ENODEV. */
struct kvblk_file *kvblk_file_new(struct kvblk_pool *pool, u16 tenant, fmode_t mode);
/* Ends a file that no caller uses. May sleep. */
void kvblk_file_free(struct kvblk_file *file);
/* Opens a node of @tenant. Returns 0, -ENOMEM or -ENODEV. */
int kvblk_file_open(struct kvblk_pool *pool, u16 tenant, struct inode *inode, struct file *filp);
int kvblk_file_flush(struct file *filp, fl_owner_t id);
int kvblk_file_release(struct inode *inode, struct file *filp);

/* Runs the batch of a struct kvblk_submit_arg and copies its results. Returns 0 or an error. */
int kvblk_batch_submit(struct kvblk_file *file, void *arg);
/*
 * Runs operations together. @flags: &enum kvblk_submit_flags. The caller owns @reqs afterwards,
 * each with its result; detached ones are replaced. Returns 0, -EINTR: killed, -ENOMEM: a chain's.
 */
int kvblk_batch_run(struct kvblk_file *file, struct kvblk_req **reqs, u32 nr, u32 flags);
/*
 * Deletes own blocks of any tenant that another node's delete may name, as a user's delete does.
 * Ids of other blocks are -ENOENT. Returns 0 with @results, or an error. May sleep.
 */
int kvblk_delete_ids(struct kvblk_pool *pool, const u8 *ids, u32 nr, s32 *results);
/* Runs an ioctl, also as a ring's command. May sleep. */
long kvblk_call(struct kvblk_file *file, unsigned int cmd, void __user *uarg);
int kvblk_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);
/*
 * Starts a ring's operation, or completes it with the error in its result; req->fill_result must be
 * set. Returns -EIOCBQUEUED: the request owns the command; -EAGAIN: freed, issue from a worker.
 */
int kvblk_uring_run(struct io_uring_cmd *cmd, struct kvblk_req *req, unsigned int issue_flags);
/* Cancels a command because its ring or task exits; called under the ring's lock. */
int kvblk_uring_cancel(struct io_uring_cmd *cmd, unsigned int issue_flags);

#endif
