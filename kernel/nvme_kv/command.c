// SPDX-License-Identifier: GPL-2.0
/*
 * The node for NVMe key-value commands, by the ioctls and ring commands of the nvme driver. A
 * command becomes an operation or an index lookup. The rules:
 * - A command is copied once, and each field is checked unless the nvme driver ignores it. An
 *   invalid command has no effect.
 * - Commands complete as in the nvme driver: with an NVMe status above 0, or an errno below 0.
 * - Keys of commands are those of the tenant KVBLK_NVME_TENANT.
 * - A store to an existing key removes the old block durably before it writes: gets may miss
 *   meanwhile, but never find the old block later. See &enum kvblk_older.
 */
#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/nospec.h>
#include <linux/nvme.h>
#include <linux/ptrace.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "nvme_kv/nvme_kv.h"

/* Key Value Command Set Specification 1.0c: statuses, opcodes, options of a store. */
enum {
	SC_VALUE_SIZE		= 0x85,
	SC_KEY_SIZE		= 0x86,
	SC_NO_KEY		= 0x87,
	SC_KEY_EXISTS		= 0x89,

	OPC_STORE		= 0x01,
	OPC_RETRIEVE		= 0x02,
	OPC_LIST		= 0x06,
	OPC_DELETE		= 0x10,
	OPC_EXIST		= 0x14,

	STORE_MUST_EXIST	= BIT(0),
	STORE_MUST_NOT_EXIST	= BIT(1),
	STORE_UNCOMPRESSED	= BIT(2),
	RETRIEVE_RAW		= BIT(0),
};

struct call {
	const struct call_type *type;
	struct kvblk_file *file;
	struct io_uring_cmd *ring;	/* NULL for an ioctl */
	unsigned int issue_flags;	/* of @ring, else 0 */
	bool vec;			/* cmd.addr is an array of struct iovec */
	bool goes_on;			/* submit an operation */
	u8 options;
	u8 key_len;
	__le32 key[KVBLK_NVME_KEY_MAX / sizeof(__le32)];
	struct kvblk_id id;
	u64 deadline;			/* ktime_get_ns(), or 0 for none */
	u64 result;			/* result value of the completion */
	struct nvme_uring_cmd cmd;
};

/* Properties of an opcode. */
struct call_type {
	fmode_t mode;			/* FMODE_* of the open node; 0: no such opcode */
	u8 options;			/* accepted */
	bool data;			/* the command transfers data */
	bool keyless;			/* the key is optional */
	u8 op;				/* of the operation, enum kvblk_opcode, or 0 */
	/* or NULL. Returns 0, and may clear goes_on; a status; an errno, -EAGAIN: in a worker */
	int (*begin)(struct call *call);
};

/* ---- operations ---- */

static int status_of(int res)
{
	switch (res) {
	case -ENOENT:
		return SC_NO_KEY;
	case -EEXIST:
	case -EALREADY:
	case -EBUSY:
		/* another store of the key was faster: the caller may retry */
		return NVME_SC_CMD_INTERRUPTED;
	case -ENOBUFS:
	case -EDQUOT:
	case -ENOSPC:
		return NVME_SC_CAP_EXCEEDED;
	case -EFBIG:
		return SC_VALUE_SIZE;
	case -EMSGSIZE:
		return NVME_SC_SGL_INVALID_DATA;
	case -EIO:
		return NVME_SC_WRITE_FAULT;
	case -ETIME:
		return NVME_SC_ABORT_REQ;
	default:
		return min(res, 0);
	}
}

static struct kvblk_completion call_result(const struct kvblk_req *req,
					   const struct kvblk_result *result, bool user)
{
	bool exists = result->res == -EEXIST && req->type == &kvblk_op_put &&
		      req->write.older == KVBLK_OLDER_NONE;

	return (struct kvblk_completion) {
		.res = exists ? SC_KEY_EXISTS : status_of(result->res),
		.extra = req->type->writes && result->res >= 0 ? result->value_len : 0,
	};
}

static bool call_fixed(const struct call *call)
{
	return call->ring && call->ring->flags & IORING_URING_CMD_FIXED;
}

/* Makes a request with the caller's vectors, as far as the command needs them. */
static struct kvblk_req *req_vec(const struct call *call, struct kvblk_op *op)
{
	u32 left = call->cmd.cdw10, nr = call->cmd.data_len, i;
	struct iovec *vec __free(kfree) =
		memdup_array_user(u64_to_user_ptr(call->cmd.addr), nr, sizeof(*vec));
	struct kvblk_piece *pieces __free(kvfree) = NULL;

	if (IS_ERR(vec))
		return ERR_CAST(vec);
	pieces = kvmalloc_array(nr, sizeof(*pieces), GFP_KERNEL_ACCOUNT);
	if (!pieces)
		return ERR_PTR(-ENOMEM);
	op->nr_pieces = 0;
	for (i = 0; i < nr && left; i++) {
		u32 length = min_t(size_t, vec[i].iov_len, left);

		if (!length)
			continue;
		pieces[op->nr_pieces++] = (struct kvblk_piece) {
			.addr = (u64)(unsigned long)vec[i].iov_base,
			.length = length,
		};
		left -= length;
	}
	if (left)
		return ERR_PTR(-EMSGSIZE);
	return kvblk_req_own(call->file, op, call->key, pieces, call->ring, call->issue_flags);
}

static struct kvblk_req *call_req(const struct call *call)
{
	struct kvblk_op op = {
		.opcode = call->type->op,
		.key_len = call->key_len,
		.deadline_ns = call->deadline,
	};
	struct kvblk_piece piece = {
		.addr = call->cmd.addr,
		.length = call->cmd.cdw10,
	};
	struct kvblk_req *req;

	if (op.opcode == KVBLK_OP_GET)
		op.flags = KVBLK_OPF_PARTIAL;
	if (call_fixed(call)) {
		op.pieces = piece.addr;
		op.length = piece.length;
	} else {
		op.nr_pieces = call->type->data;
	}
	req = call->vec && op.nr_pieces ? req_vec(call, &op) :
	      kvblk_req_own(call->file, &op, call->key, &piece, call->ring, call->issue_flags);
	if (IS_ERR_OR_NULL(req))
		return req ?: ERR_PTR(-ENOMEM);
	req->fill_result = call_result;
	if (op.opcode != KVBLK_OP_PUT)
		return req;
	req->write.older = KVBLK_OLDER_GOES;
	if (call->options & STORE_MUST_EXIST)
		req->write.older = KVBLK_OLDER_MUST;
	else if (call->options & STORE_MUST_NOT_EXIST)
		req->write.older = KVBLK_OLDER_NONE;
	return req;
}

/* ---- commands ---- */

/* Returns whether the memory at cmd.addr has cdw10 bytes. */
static bool data_fits(const struct call *call)
{
	const struct nvme_uring_cmd *cmd = &call->cmd;

	if (call->vec)
		return cmd->data_len && cmd->data_len <= KVBLK_PIECES_MAX;
	return cmd->cdw10 <= cmd->data_len;
}

static int store_begin(struct call *call)
{
	const u8 both = STORE_MUST_EXIST | STORE_MUST_NOT_EXIST;

	if ((call->options & both) == both)
		return NVME_SC_INVALID_FIELD;
	if (!call->cmd.cdw10 || call->cmd.cdw10 > KVBLK_VALUE_MAX)
		return SC_VALUE_SIZE;
	return data_fits(call) ? 0 : NVME_SC_SGL_INVALID_DATA;
}

/* Looks up the block; sets the result of a retrieve to its length. Returns 0 or SC_NO_KEY. */
static int call_look(struct call *call)
{
	struct kvblk_pool *pool = call->file->pool;
	struct kvblk_slot slot;
	bool there = kvblk_block_present(pool, call->id, call->file->tenant, &slot);

	kvblk_count(pool, KVBLK_C_LOOKUPS, 1);
	kvblk_count(pool, KVBLK_C_LOOKUP_KEYS, 1);
	kvblk_count(pool, KVBLK_C_LOOKUP_HITS, there ? 1 : 0);
	kvblk_count(pool, KVBLK_C_FOREIGN_LOOKUP_HITS, there && kvblk_slot_foreign(&slot) ? 1 : 0);
	if (!there || !kvblk_pool_enter(pool))
		return SC_NO_KEY;
	kvblk_block_touch(pool, call->id, &slot);
	kvblk_pool_leave(pool);
	if (call->type->op == KVBLK_OP_GET)
		call->result = slot.len;
	return 0;
}

static int retrieve_begin(struct call *call)
{
	if (call->cmd.cdw10)
		return data_fits(call) ? 0 : NVME_SC_SGL_INVALID_DATA;
	call->goes_on = false;
	return call_fixed(call) ? -EOPNOTSUPP : call_look(call);
}

/* Copies @len bytes at @from to the caller. Returns 0, a status, or an errno. */
static int call_answer(const struct call *call, const void *from, size_t len)
{
	struct iovec fast[UIO_FASTIOV], *vec = fast;
	void __user *user = u64_to_user_ptr(call->cmd.addr);
	struct iov_iter iter;
	ssize_t room;
	int status = 0;

	if (!call->vec)
		return copy_to_user(user, from, len) ? -EFAULT : 0;
	room = import_iovec(ITER_DEST, user, call->cmd.data_len, ARRAY_SIZE(fast), &vec, &iter);
	if (room < 0)
		return room;
	if (room < call->cmd.cdw10)
		status = NVME_SC_SGL_INVALID_DATA;
	else if (copy_to_iter(from, len, &iter) != len)
		status = -EFAULT;
	kfree(vec);
	return status;
}

static int list_begin(struct call *call)
{
	void *keys __free(kvfree) = NULL;
	u32 size = min(call->cmd.cdw10, KVBLK_NVME_LIST_MAX);
	int ret;

	if (size < KVBLK_NVME_LIST_MIN)
		return NVME_SC_INVALID_FIELD;
	if (!data_fits(call))
		return NVME_SC_SGL_INVALID_DATA;
	if (call->issue_flags & IO_URING_F_NONBLOCK)
		return -EAGAIN;
	keys = kvzalloc(size, GFP_KERNEL_ACCOUNT);
	if (!keys)
		return -ENOMEM;
	ret = kvblk_nvme_list(call->file, call->key_len ? &call->id : NULL,
			      call->deadline, keys, size);
	return ret < 0 ? status_of(ret) : call_answer(call, keys, ret);
}

static const struct call_type call_types[] = {
	[OPC_STORE] = {
		.mode = FMODE_WRITE,
		.options = STORE_MUST_EXIST | STORE_MUST_NOT_EXIST | STORE_UNCOMPRESSED,
		.data = true,
		.op = KVBLK_OP_PUT,
		.begin = store_begin,
	},
	[OPC_RETRIEVE] = {
		.mode = FMODE_READ,
		.options = RETRIEVE_RAW,
		.data = true,
		.op = KVBLK_OP_GET,
		.begin = retrieve_begin,
	},
	[OPC_LIST] = { .mode = FMODE_READ, .data = true, .keyless = true, .begin = list_begin },
	[OPC_DELETE] = { .mode = FMODE_WRITE, .op = KVBLK_OP_DELETE },
	[OPC_EXIST] = { .mode = FMODE_READ, .begin = call_look },
};

static void call_key(struct call *call, u8 len)
{
	call->key[0] = cpu_to_le32(call->cmd.cdw2);
	call->key[1] = cpu_to_le32(call->cmd.cdw3);
	call->key[2] = cpu_to_le32(call->cmd.cdw14);
	call->key[3] = cpu_to_le32(call->cmd.cdw15);
	call->key_len = len;
	call->id = kvblk_tenant_hash(&call->file->key, call->key, len);
}

/* Returns whether a 32-bit program issued the command; a ring's worker may execute it. */
static bool call_compat(const struct call *call)
{
	return call->ring ? call->issue_flags & IO_URING_F_COMPAT : in_compat_syscall();
}

/* Clears the upper half of a 32-bit address, which is undefined, as in the driver. */
static void call_compat_addr(struct call *call)
{
	if (call_compat(call))
		call->cmd.addr = (compat_uptr_t)call->cmd.addr;
}

/* Checks a command and executes all but its operation. Returns as call_type.begin. */
static int call_begin(struct call *call)
{
	const struct nvme_uring_cmd *cmd = &call->cmd;
	const struct call_type *type;
	u8 len = cmd->cdw11;

	call->options = cmd->cdw11 >> 8;
	if (cmd->flags || cmd->nsid != KVBLK_NVME_NSID)
		return -EINVAL;
	if (cmd->opcode >= ARRAY_SIZE(call_types))
		return NVME_SC_INVALID_OPCODE;
	type = &call_types[array_index_nospec(cmd->opcode, ARRAY_SIZE(call_types))];
	if (!type->mode)
		return NVME_SC_INVALID_OPCODE;
	call->type = type;
	call->goes_on = type->op;
	/* as in the driver: tools with CAP_SYS_ADMIN open for reading, and store */
	if (type->mode & ~call->file->mode && !capable(CAP_SYS_ADMIN))
		return -EACCES;
	/* without data cdw10 is ignored; cdw12 and cdw13 are reserved, but some clients set them */
	if (cmd->metadata || cmd->metadata_len || cmd->cdw11 >> 16 ||
	    call->options & ~type->options || (!type->data && (cmd->addr || cmd->data_len)))
		return NVME_SC_INVALID_FIELD;
	if ((!len && !type->keyless) || len > KVBLK_NVME_KEY_MAX)
		return SC_KEY_SIZE;
	/* vectors of 32-bit callers have another layout */
	if (call->vec && call_compat(call))
		return -EOPNOTSUPP;
	if (call_fixed(call) && !(type->data && type->op))
		return -EOPNOTSUPP;
	if (kvblk_file_ended(call->file))
		return -ENODEV;
	call_key(call, len);
	if (cmd->timeout_ms)
		call->deadline = ktime_get_ns() + (u64)cmd->timeout_ms * NSEC_PER_MSEC;
	return type->begin ? type->begin(call) : 0;
}

/* ---- ioctls ---- */

#define CALL_HEAD	offsetofend(struct nvme_uring_cmd, timeout_ms)

static_assert(offsetofend(struct nvme_passthru_cmd, timeout_ms) == CALL_HEAD);
static_assert(offsetofend(struct nvme_passthru_cmd64, timeout_ms) == CALL_HEAD);
static_assert(offsetof(struct nvme_uring_cmd, data_len) ==
	      offsetof(struct nvme_passthru_cmd64, vec_cnt));

static int call_sync(struct call *call)
{
	struct kvblk_completion completion;
	int status = call_begin(call);
	struct kvblk_req *req;

	if (status || !call->goes_on)
		return status;
	req = call_req(call);
	if (IS_ERR(req))
		return status_of(PTR_ERR(req));
	status = kvblk_batch_run(call->file, &req, 1, 0);
	if (!status) {
		completion = call_result(req, &req->result, true);
		status = completion.res;
		call->result = completion.extra;
	}
	kvblk_req_free(req);
	return status;
}

static int ioctl_cmd(struct kvblk_file *file, void __user *user, unsigned int ioctl)
{
	struct call call = {
		.file = file,
		.vec = ioctl == NVME_IOCTL_IO64_CMD_VEC,
	};
	bool admin = ioctl == NVME_IOCTL_ADMIN_CMD || ioctl == NVME_IOCTL_ADMIN64_CMD;
	struct nvme_passthru_cmd __user *short_form = user;
	struct nvme_passthru_cmd64 __user *form = user;
	int status;

	if (copy_from_user(&call.cmd, user, CALL_HEAD))
		return -EFAULT;
	call_compat_addr(&call);
	status = admin ? kvblk_nvme_admin(file, &call.cmd) : call_sync(&call);
	if (status < 0)
		return status;
	if (ioctl == NVME_IOCTL_IO_CMD || ioctl == NVME_IOCTL_ADMIN_CMD ?
	    put_user(call.result, &short_form->result) : put_user(call.result, &form->result))
		return -EFAULT;
	return status;
}

static long nvme_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	switch (cmd) {
	case NVME_IOCTL_ID:
		force_successful_syscall_return();
		return KVBLK_NVME_NSID;
	case NVME_IOCTL_ADMIN_CMD:
	case NVME_IOCTL_ADMIN64_CMD:
	case NVME_IOCTL_IO_CMD:
	case NVME_IOCTL_IO64_CMD:
	case NVME_IOCTL_IO64_CMD_VEC:
		return ioctl_cmd(filp->private_data, (void __user *)arg, cmd);
	default:
		return -ENOTTY;
	}
}

/* ---- rings ---- */

static int ring_admin(struct call *call)
{
	if (call_fixed(call))
		return -EOPNOTSUPP;
	/* the copy to the caller's memory may sleep, so a worker must do it */
	if (call->issue_flags & IO_URING_F_NONBLOCK)
		return -EAGAIN;
	return kvblk_nvme_admin(call->file, &call->cmd);
}

static int ring_issue(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct call call = {
		.file = cmd->file->private_data,
		.ring = cmd,
		.issue_flags = issue_flags,
		.vec = cmd->cmd_op == NVME_URING_CMD_IO_VEC,
	};
	struct kvblk_req *req;
	int status;

	if (!kvblk_sqe_own(cmd))
		return -EINVAL;
	if (!(issue_flags & IO_URING_F_SQE128) ||
	    (cmd->flags & IORING_URING_CMD_MASK & ~IORING_URING_CMD_FIXED) ||
	    (call.vec && cmd->flags & IORING_URING_CMD_FIXED))
		return -EOPNOTSUPP;
	if (cmd->cmd_op != NVME_URING_CMD_IO && cmd->cmd_op != NVME_URING_CMD_IO_VEC &&
	    cmd->cmd_op != NVME_URING_CMD_ADMIN)
		return -ENOTTY;
	call.cmd = *(const struct nvme_uring_cmd *)cmd->sqe->cmd;
	/* read the command once, because user space may change it */
	barrier();
	call_compat_addr(&call);
	status = cmd->cmd_op == NVME_URING_CMD_ADMIN ? ring_admin(&call) : call_begin(&call);
	if (status < 0)
		return status;
	if (status || !call.goes_on) {
		io_uring_cmd_done32(cmd, status, call.result, issue_flags);
		return -EIOCBQUEUED;
	}
	req = call_req(&call);
	return IS_ERR(req) ? status_of(PTR_ERR(req)) : kvblk_uring_run(cmd, req, issue_flags);
}

static int nvme_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	int ret;

	if (issue_flags & IO_URING_F_CANCEL)
		return kvblk_uring_cancel(cmd, issue_flags);
	ret = ring_issue(cmd, issue_flags);
	if (ret == -EAGAIN)
		kvblk_sqe_keep(cmd);
	return ret;
}

/* ---- the node ---- */

static int nvme_open(struct inode *inode, struct file *filp)
{
	return kvblk_file_open(kvblk_inode_pool(inode, KVBLK_NODE_NVME), KVBLK_NVME_TENANT,
			       inode, filp);
}

const struct file_operations kvblk_nvme_fops = {
	.owner = THIS_MODULE,
	.open = nvme_open,
	.flush = kvblk_file_flush,
	.release = kvblk_file_release,
	.unlocked_ioctl = nvme_ioctl,
	.uring_cmd = nvme_uring_cmd,
	.compat_ioctl = compat_ptr_ioctl,
};
