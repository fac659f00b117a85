// SPDX-License-Identifier: GPL-2.0
/*
 * From what a caller wrote to an operation. Field by field, since each may mean
 * something one day.
 */
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "op.h"

static u64 piece_sum(const struct kvblk_piece *pieces, u32 nr, int *err)
{
	u64 sum = 0;
	u32 i;

	*err = 0;
	for (i = 0; i < nr; i++) {
		const struct kvblk_piece *p = &pieces[i];
		bool user = p->type == KVBLK_PIECE_USER;

		if (p->type == KVBLK_PIECE_DMABUF)
			*err = -EOPNOTSUPP;
		else if ((!user && p->type != KVBLK_PIECE_REGISTERED) ||
			 !user != !!p->handle || !p->length ||
			 p->addr + p->length < p->addr)
			*err = -EINVAL;
		else if (user && !access_ok(u64_to_user_ptr(p->addr), p->length))
			*err = -EFAULT;
		if (*err)
			return 0;
		sum = min_t(u64, sum + min_t(u64, p->length, 1ull << 32), 1ull << 32);
	}
	/* a get may offer more room than any block needs */
	if (sum > U32_MAX)
		*err = -EINVAL;
	return sum;
}

static int op_check(const struct kvblk_op_type *type, const struct kvblk_op *op,
		    bool fixed)
{
	bool payload = type && (type->reads || type->writes);
	bool partial = op->flags & KVBLK_OPF_PARTIAL;

	if (!type || !op->key_len || op->key_len > KVBLK_KEY_MAX ||
	    op->flags & ~type->flags)
		return -EINVAL;
	if (!type->reads && (op->priority || op->parent_len || op->parent ||
			     op->ttl_s || op->caller_tag))
		return -EINVAL;
	if (op->priority > KVBLK_PRIORITY_MAX || op->parent_len > KVBLK_KEY_MAX ||
	    (op->parent && !op->parent_len))
		return -EINVAL;
	if (!partial && (op->offset || (op->length && !fixed)))
		return -EINVAL;
	if (!type->reads && !(op->flags & KVBLK_OPF_LAYOUT) && op->layout_tag)
		return -EINVAL;
	if ((op->flags & KVBLK_OPF_HARD_DEADLINE) && !op->deadline_ns)
		return -EINVAL;
	if (fixed)
		return payload && !op->nr_pieces && op->length ? 0 : -EINVAL;
	if (payload ? !op->nr_pieces || op->nr_pieces > KVBLK_PIECES_MAX :
			 op->nr_pieces || op->pieces)
		return -EINVAL;
	return 0;
}

static int req_key(struct kvblk_req *req, const siphash_key_t *key)
{
	struct kvblk_op *op = &req->op;
	u8 *parent;

	/* op_check() saw the length; hardened usercopy would look for the slab */
	if (_copy_from_user(req->key, u64_to_user_ptr(op->key), op->key_len))
		return -EFAULT;
	req->id = kvblk_tenant_hash(key, req->key, op->key_len);
	if (!op->parent_len)
		return 0;
	parent = memdup_user(u64_to_user_ptr(op->parent), op->parent_len);
	if (IS_ERR(parent))
		return PTR_ERR(parent);
	req->parent = kvblk_tenant_hash(key, parent, op->parent_len);
	kfree(parent);
	return 0;
}

/* The last piece, when it is about checksums. */
static int req_crcs(struct kvblk_req *req, const struct kvblk_piece *p)
{
	if (p->handle || !p->length || p->length % sizeof(__le32) ||
	    p->length > KVBLK_CRCS_MAX || p->addr + p->length < p->addr)
		return -EINVAL;
	if (!p->addr || !access_ok(u64_to_user_ptr(p->addr), p->length))
		return -EFAULT;
	req->crcs_addr = p->addr;
	req->crcs_room = p->length;
	return 0;
}

/* The checksums that the producer gives for its block. */
static int req_crcs_read(struct kvblk_req *req)
{
	if (req->crcs_room != kvblk_nr_chunks(req->bytes) * sizeof(__le32))
		return -EINVAL;
	req->crcs = kmalloc(req->crcs_room, GFP_KERNEL_ACCOUNT);
	if (!req->crcs)
		return -ENOMEM;
	return copy_from_user(req->crcs, u64_to_user_ptr(req->crcs_addr),
			      req->crcs_room) ? -EFAULT : 0;
}

/* A get writes them last: what can't be written is told before it begins. */
static int req_crcs_there(const struct kvblk_req *req)
{
	return fault_in_safe_writeable(u64_to_user_ptr(req->crcs_addr),
				       req->crcs_room) ? -EFAULT : 0;
}

/* Checks pieces, and makes parts of them. */
static int req_parts(struct kvblk_req *req, struct kvblk_file *file,
		     const struct kvblk_piece *pieces, u32 nr)
{
	int err = 0;

	if (nr > 1 && pieces[nr - 1].type == KVBLK_PIECE_CHECKSUMS)
		err = req_crcs(req, &pieces[--nr]);
	if (!err)
		req->bytes = piece_sum(pieces, nr, &err);
	if (err)
		return err;
	req->src.parts = &req->part;
	if (nr > 1)
		req->src.parts = kvcalloc(nr, sizeof(struct kvblk_part),
					  GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!req->src.parts)
		return -ENOMEM;
	req->src.nr = nr;
	return kvblk_parts_resolve(&file->regions, pieces, req->src.parts, nr);
}

static int req_pieces(struct kvblk_req *req, struct kvblk_file *file)
{
	const void __user *user = u64_to_user_ptr(req->op.pieces);
	u32 nr = req->op.nr_pieces;
	struct kvblk_piece one, *pieces;
	int err = -EFAULT;

	if (nr == 1)
		return copy_from_user(&one, user, sizeof(one)) ? -EFAULT :
		       req_parts(req, file, &one, 1);
	pieces = kvmalloc_array(nr, sizeof(*pieces), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!pieces)
		return -ENOMEM;
	if (!copy_from_user(pieces, user, nr * sizeof(*pieces)))
		err = req_parts(req, file, pieces, nr);
	kvfree(pieces);
	return err;
}

/* One part, which is the ring's buffer. */
static int req_fixed(struct kvblk_req *req, struct io_uring_cmd *cmd,
		     unsigned int issue_flags)
{
	struct kvblk_op *op = &req->op;
	int err;

	err = io_uring_cmd_import_fixed(op->pieces, op->length,
					req->type->writes ? ITER_DEST : ITER_SOURCE,
					&req->fixed, cmd, issue_flags);
	if (err)
		return err;
	req->part.kind = KVBLK_PART_FIXED;
	req->part.length = op->length;
	req->src.parts = &req->part;
	req->src.nr = 1;
	req->src.fixed = &req->fixed;
	req->bytes = op->length;
	return kvblk_fixed_whole(&req->src) ? 0 : -EOPNOTSUPP;
}

struct kvblk_req *kvblk_req_new(struct kvblk_file *file, const struct kvblk_op *op,
				struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	bool fixed = cmd && (cmd->flags & IORING_URING_CMD_FIXED);
	struct kvblk_req *req;
	int err;

	req = kvblk_req_alloc(GFP_KERNEL);
	if (!req)
		return NULL;
	req->op = *op;
	/* one look: a ring is shared with its owner */
	barrier();
	op = &req->op;
	req->type = kvblk_op_type(op->opcode);
	err = op_check(req->type, op, fixed);
	req->pool = file->pool;
	req->owner = file;
	req->cmd = cmd;
	req->tenant = file->tenant;
	req->start = ktime_get();
	req->result.cookie = op->cookie;
	if (!err)
		err = req_key(req, &file->key);
	if (!err && op->ttl_s) {
		/* never early: the running second does not count */
		u64 expiry = (u64)kvblk_now(req->pool) + op->ttl_s + 1;

		/* 136 years after the pool's birth nothing expires */
		req->expiry = expiry > U32_MAX ? 0 : expiry;
	}
	if (!err && fixed)
		err = req_fixed(req, cmd, issue_flags);
	else if (!err && op->nr_pieces)
		err = req_pieces(req, file);
	if (!err && req->type->reads && req->bytes > KVBLK_VALUE_MAX)
		err = -EINVAL;
	if (!err && req->crcs_addr)
		err = req->type->reads ? req_crcs_read(req) : req_crcs_there(req);
	req->result.res = err;
	return req;
}
