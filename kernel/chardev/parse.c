// SPDX-License-Identifier: GPL-2.0
/* Parsing: makes requests of what callers wrote. Unused fields are 0, to get a meaning later. */
#include <linux/array_size.h>
#include <linux/nospec.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/time_namespace.h>
#include <linux/uaccess.h>

#include "request.h"

static const struct kvblk_op_type *const op_types[] = {
	[KVBLK_OP_PUT] = &kvblk_op_put,
	[KVBLK_OP_GET] = &kvblk_op_get,
	[KVBLK_OP_DELETE] = &kvblk_op_delete,
	[KVBLK_OP_PREFETCH] = &kvblk_op_prefetch,
	[KVBLK_OP_HINT] = &kvblk_op_hint,
};

int kvblk_struct_read(void *to, size_t size, size_t least, const void __user *from)
{
	u32 theirs;
	int err;

	if (get_user(theirs, (const u32 __user *)from))
		return -EFAULT;
	if (theirs > KVBLK_STRUCT_MAX)
		return -E2BIG;
	if (theirs < least)
		return -EINVAL;
	err = copy_struct_from_user(to, size, from, theirs);
	/* read once: the caller may have changed the size */
	*(u32 *)to = theirs;
	return err;
}

/* Returns what the caller's time namespace adds to CLOCK_MONOTONIC. */
static s64 timens_ns(void)
{
	struct timespec64 offset = {};

	timens_add_monotonic(&offset);
	return timespec64_to_ns(&offset);
}

u64 kvblk_time_out(u64 ns)
{
	return ns + timens_ns();
}

u64 kvblk_deadline(u64 theirs)
{
	s64 ns = timens_ns();

	if (ns <= 0)
		return theirs > U64_MAX + ns ? U64_MAX : theirs - ns;
	return theirs > (u64)ns ? theirs - ns : 1;
}

#define OP_FLAGS	(KVBLK_OPF_PARTIAL | KVBLK_OPF_LAYOUT | \
			 KVBLK_OPF_HARD_DEADLINE | KVBLK_OPF_DURABLE | KVBLK_OPF_HINTS | \
			 KVBLK_OPF_CALLER_CHECKS)

/* Returns whether each value of a hint has its flag. A release excludes other hints. */
static bool hint_check(const struct kvblk_op *op)
{
	return op->flags && (!(op->flags & KVBLK_OPF_RELEASE) || op->flags == KVBLK_OPF_RELEASE) &&
	       (!op->priority || op->flags & KVBLK_OPF_PRIORITY) &&
	       (!op->ttl_s || op->flags & KVBLK_OPF_RETAIN) && op->ttl_s <= KVBLK_RETAIN_MAX;
}

static int op_check(const struct kvblk_op_type *type, const struct kvblk_op *op,
		    fmode_t mode, const struct io_uring_cmd *cmd)
{
	bool fixed = cmd && (cmd->flags & IORING_URING_CMD_FIXED);
	bool payload = type && (type->reads || type->writes);

	if (!type || op->flags & ~OP_FLAGS)
		return -EOPNOTSUPP;
	if (type->mode & ~mode)
		return -EBADF;
	if (!op->key_len || op->key_len > KVBLK_KEY_MAX || op->flags & ~type->flags ||
	    op->priority > KVBLK_PRIORITY_MAX || op->ttl_s > KVBLK_TTL_MAX ||
	    op->reserved || op->reserved2)
		return -EINVAL;
	if (type == &kvblk_op_hint && !hint_check(op))
		return -EINVAL;
	if (!type->reads && type != &kvblk_op_hint &&
	    ((op->priority && type != &kvblk_op_prefetch) || op->ttl_s))
		return -EINVAL;
	/* uring.c checks those of a ring; a batch has an array */
	if (!cmd && (op->result || op->result_size))
		return -EINVAL;
	if (((op->flags & (KVBLK_OPF_LAYOUT | KVBLK_OPF_CALLER_CHECKS)) && !op->ext) ||
	    (!(op->flags & KVBLK_OPF_PARTIAL) && (op->offset || (op->length && !fixed))) ||
	    ((op->flags & KVBLK_OPF_HARD_DEADLINE) && !op->deadline_ns))
		return -EINVAL;
	if (fixed)
		return payload && !op->nr_pieces && op->length ? 0 : -EINVAL;
	if (payload ? !op->nr_pieces || op->nr_pieces > KVBLK_PIECES_MAX :
		      op->nr_pieces || op->pieces)
		return -EINVAL;
	return 0;
}

static int req_key(struct kvblk_req *req)
{
	/* op_check() has checked the length; hardened usercopy does not know the slab */
	if (_copy_from_user(req->key, u64_to_user_ptr(req->op.key), req->op.key_len))
		return -EFAULT;
	req->id = kvblk_tenant_hash(&req->owner->key, req->key, req->op.key_len);
	return 0;
}

static_assert(sizeof(struct kvblk_op_ext) == KVBLK_OP_EXT_SIZE_VER0);
static_assert(KVBLK_VALUE_MAX >> KVBLK_CHUNK_SHIFT == KVBLK_CHECKSUMS_MAX);

static int ext_check(const struct kvblk_req *req, const struct kvblk_op_ext *ext)
{
	const struct kvblk_op_type *type = req->type;

	if (ext->flags || ext->hints & ~(KVBLK_HINT_CONTINUES | KVBLK_HINT_MISSED))
		return -EOPNOTSUPP;
	if (!type->reads && (ext->parent || ext->hints || ext->caller_tag ||
			     (ext->layout_tag && !(req->op.flags & KVBLK_OPF_LAYOUT))))
		return -EINVAL;
	if (ext->checksums ? !type->reads && !type->writes :
			     req->op.flags & KVBLK_OPF_CALLER_CHECKS)
		return -EINVAL;
	if (!ext->parent != !ext->parent_len || ext->parent_len > KVBLK_KEY_MAX ||
	    !ext->checksums != !ext->nr_checksums ||
	    ext->nr_checksums > KVBLK_CHECKSUMS_MAX || ext->reserved)
		return -EINVAL;
	return 0;
}

static noinline int req_ext(struct kvblk_req *req)
{
	struct kvblk_op_ext ext;
	u8 *parent;
	int err;

	err = kvblk_struct_read(&ext, sizeof(ext), KVBLK_OP_EXT_SIZE_VER0,
				u64_to_user_ptr(req->op.ext));
	if (!err)
		err = ext_check(req, &ext);
	if (err)
		return err;
	if (ext.parent_len) {
		parent = memdup_user(u64_to_user_ptr(ext.parent), ext.parent_len);
		if (IS_ERR(parent))
			return PTR_ERR(parent);
		req->write.parent = kvblk_tenant_hash(&req->owner->key, parent, ext.parent_len);
		kfree(parent);
	}
	if (req->type->reads) {
		req->write.hints = ext.hints;
		req->write.layout_tag = ext.layout_tag;
		req->write.caller_tag = ext.caller_tag;
	} else if (req->op.flags & KVBLK_OPF_LAYOUT) {
		req->read.layout_tag = ext.layout_tag;
	}
	req->crcs_addr = ext.checksums;
	req->crcs_room = ext.nr_checksums * sizeof(__le32);
	return access_ok(u64_to_user_ptr(req->crcs_addr), req->crcs_room) ? 0 : -EFAULT;
}

static int req_crcs(struct kvblk_req *req)
{
	void __user *user = u64_to_user_ptr(req->crcs_addr);

	/* check early what a get does last */
	if (!req->type->reads)
		return fault_in_safe_writeable(user, req->crcs_room) ? -EFAULT : 0;
	if (req->crcs_room != kvblk_crcs_bytes(req->bytes))
		return -EINVAL;
	req->crcs = kmalloc(req->crcs_room, GFP_KERNEL_ACCOUNT);
	if (!req->crcs)
		return -ENOMEM;
	return copy_from_user(req->crcs, user, req->crcs_room) ? -EFAULT : 0;
}

static int req_parts(struct kvblk_req *req, const struct kvblk_piece *pieces, u32 nr)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < nr; i++) {
		const struct kvblk_piece *p = &pieces[i];
		bool user = p->type == KVBLK_PIECE_USER;

		if (p->type > KVBLK_PIECE_REGISTERED || p->flags)
			return -EOPNOTSUPP;
		if (!user != !!p->handle || !p->length || p->reserved)
			return -EINVAL;
		if (user && !access_ok(u64_to_user_ptr(p->addr), p->length))
			return -EFAULT;
		sum += p->length;
	}
	req->bytes = sum;
	/* the buffer of a get may be larger than any block */
	if (sum > U32_MAX)
		return -EINVAL;
	req->src.parts = &req->part;
	if (nr > 1)
		req->src.parts = kvcalloc(nr, sizeof(struct kvblk_part),
					  GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!req->src.parts)
		return -ENOMEM;
	req->src.nr = nr;
	return kvblk_src_resolve(&req->owner->regions, pieces, &req->src);
}

static int req_pieces(struct kvblk_req *req)
{
	const void __user *user = u64_to_user_ptr(req->op.pieces);
	struct kvblk_piece one, *pieces;
	u32 nr = req->op.nr_pieces;
	int err;

	if (nr == 1)
		return copy_from_user(&one, user, sizeof(one)) ? -EFAULT : req_parts(req, &one, 1);
	pieces = kvmalloc_array(nr, sizeof(*pieces), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!pieces)
		return -ENOMEM;
	err = copy_from_user(pieces, user, nr * sizeof(*pieces)) ? -EFAULT :
	      req_parts(req, pieces, nr);
	kvfree(pieces);
	return err;
}

static int req_fixed(struct kvblk_req *req, unsigned int issue_flags)
{
	struct kvblk_op *op = &req->op;
	int err;

	err = io_uring_cmd_import_fixed(op->pieces, op->length,
					req->type->writes ? ITER_DEST : ITER_SOURCE,
					&req->fixed, req->cmd, issue_flags);
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

/* Makes a request. @mode: FMODE_* that the caller is granted. Errors are in req->result.res. */
static struct kvblk_req *req_begin(struct kvblk_file *file, const struct kvblk_op *op,
				   fmode_t mode, struct io_uring_cmd *cmd)
{
	struct kvblk_req *req = kvblk_req_alloc(file->pool, GFP_KERNEL);

	if (!req)
		return NULL;
	req->op = *op;
	/* read once, because the ring is shared with its owner */
	barrier();
	op = &req->op;
	if (op->opcode < ARRAY_SIZE(op_types))
		req->type = op_types[array_index_nospec(op->opcode, ARRAY_SIZE(op_types))];
	req->result.res = op_check(req->type, op, mode, cmd);
	req->owner = file;
	kvblk_drainer_enter(req);
	req->cmd = cmd;
	req->tenant = file->tenant;
	req->account = file->account;
	req->start = ktime_get();
	req->result.cookie = op->cookie;
	return req;
}

/* Takes the memory of @pieces, or of op->pieces if NULL, or the ring's buffer. */
static int req_memory(struct kvblk_req *req, const struct kvblk_piece *pieces,
		      unsigned int issue_flags)
{
	u32 nr = req->op.nr_pieces;
	int err = 0;

	if (req->cmd && (req->cmd->flags & IORING_URING_CMD_FIXED))
		err = req_fixed(req, issue_flags);
	else if (nr)
		err = pieces ? req_parts(req, pieces, nr) : req_pieces(req);
	return !err && req->type->reads && req->bytes > KVBLK_VALUE_MAX ? -EINVAL : err;
}

/* Flat, because each operation calls it, and a single piece then needs no loop. */
__flatten struct kvblk_req *kvblk_req_new(struct kvblk_file *file, const struct kvblk_op *op,
					  struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kvblk_req *req = req_begin(file, op, file->mode, cmd);
	int err;

	if (!req)
		return NULL;
	op = &req->op;
	err = req->result.res;
	if (op->deadline_ns)
		req->op.deadline_ns = kvblk_deadline(op->deadline_ns);
	if (!err)
		err = req_key(req);
	if (!err && unlikely(op->ext))
		err = req_ext(req);
	if (!err && op->ttl_s && req->type->reads) {
		/* never expires early: the running second does not count */
		req->expiry = kvblk_now(req->pool) + op->ttl_s + 1 ?: 1;
		if (!READ_ONCE(req->pool->expires))
			WRITE_ONCE(req->pool->expires, true);
	}
	if (!err)
		err = req_memory(req, NULL, issue_flags);
	if (!err && req->crcs_addr)
		err = req_crcs(req);
	req->result.res = err;
	return req;
}

struct kvblk_req *kvblk_req_own(struct kvblk_file *file, const struct kvblk_op *op,
				const void *key, const struct kvblk_piece *pieces,
				struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kvblk_req *req = req_begin(file, op, FMODE_READ | FMODE_WRITE, cmd);

	if (!req)
		return NULL;
	if (!req->result.res) {
		memcpy(req->key, key, op->key_len);
		req->id = kvblk_tenant_hash(&file->key, req->key, op->key_len);
		req->result.res = req_memory(req, pieces, issue_flags);
	}
	return req;
}

struct kvblk_req *kvblk_req_delete(struct kvblk_file *file, struct kvblk_id id, u64 deadline_ns)
{
	const struct kvblk_op op = {
		.opcode = KVBLK_OP_DELETE,
		.deadline_ns = deadline_ns,
	};
	struct kvblk_req *req = req_begin(file, &op, FMODE_WRITE, NULL);

	if (!req)
		return NULL;
	/* op_check() refuses an operation without a key, whose id is known here */
	req->result.res = 0;
	req->id = id;
	req->erase.own_only = true;
	return req;
}
