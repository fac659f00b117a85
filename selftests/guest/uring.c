// SPDX-License-Identifier: GPL-2.0
/*
 * io_uring: operations in the SQE, fixed buffers, deep queues, cancel and exit with operations in
 * flight; and registered memory, of the host or of a device (KV_MEMORY).
 *
 * usage: guest_uring NODE [TEST...]
 */
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "kv_test.h"
#include "kv_io.h"

#define LEN	65536u
#define FIRST	7000000ull	/* first key */
#define MS	1000000ull	/* ns */

static const char *node;
static int fd;
static uint8_t *bytes, *room;	/* at least 32 * LEN bytes each */
static uint64_t next_key = FIRST;

static struct io_uring new_ring(unsigned int entries, unsigned int flags)
{
	struct io_uring ring;
	int err = io_uring_queue_init(entries, &ring, flags);

	if (err) {
		errno = -err;
		kv_die("io_uring_queue_init");
	}
	return ring;
}

static void inline_op(struct io_uring *ring, const struct kvblk_op *op, uint64_t data)
{
	kv_sqe_op(ring, fd, op, NULL, data);
}

static int run_inline(struct io_uring *ring, const struct kvblk_op *op, uint64_t *extra)
{
	inline_op(ring, op, 0);
	io_uring_submit(ring);
	return kv_cqe(ring, extra).res;
}

TEST(inline_operations)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(next_key++);
	struct kvblk_piece put = kv_piece(bytes, LEN), get = kv_piece(room, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &put, 1);
	struct kvblk_op_ext ext;
	uint64_t extra;

	kv_tags(&op, &ext, 0x123456, 0);
	ASSERT_EQ(run_inline(&ring, &op, &extra), LEN, "put");
	op.ext = 0;
	EXPECT_EQ(run_inline(&ring, &op, &extra), -EEXIST, "put again");
	EXPECT_EQ(extra >> 32, LEN, "the length in the extra word");
	op = kv_op(KVBLK_OP_GET, &key, &get, 1);
	memset(room, KV_UNTOUCHED, LEN);
	EXPECT_EQ(run_inline(&ring, &op, &extra), LEN, "get");
	EXPECT_EQ(extra >> 32, LEN, "the length in the extra word");
	EXPECT(extra & (KVBLK_RES_DIRECT | KVBLK_RES_BOUNCED), "the way");
	EXPECT(!memcmp(room, bytes, LEN), "bytes");
	op.flags = KVBLK_OPF_LAYOUT;
	op.ext = kv_addr(&ext);
	EXPECT_EQ(run_inline(&ring, &op, &extra), LEN, "get of this layout");
	ext.layout_tag++;
	EXPECT_EQ(run_inline(&ring, &op, &extra), -ENOENT, "get of another layout");
	op.flags = 0;
	op.ext = 0;
	get.length = 100;
	EXPECT_EQ(run_inline(&ring, &op, &extra), -EMSGSIZE, "too small");
	EXPECT_EQ(extra >> 32, LEN, "the length in the extra word");
	op = kv_op(KVBLK_OP_DELETE, &key, NULL, 0);
	EXPECT_EQ(run_inline(&ring, &op, NULL), 0, "delete");
	EXPECT_EQ(run_inline(&ring, &op, NULL), -ENOENT, "delete again");
	io_uring_queue_exit(&ring);
}

/* An operation's result, written where the operation asks; res of the completion is always true. */
TEST(inline_results)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(next_key++);
	struct kvblk_piece piece = kv_piece(bytes, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
	struct { struct kvblk_result io; uint64_t more; } result = { .more = 1 };
	uint8_t *readonly = kv_alloc_host(PAGE);
	struct kvblk_op_ext ext;
	uint64_t extra;

	ASSERT_EQ(mprotect(readonly, PAGE, PROT_READ), 0, "mprotect");
	kv_tags(&op, &ext, 5, 6);
	op.cookie = 9;
#define BAD_RESULT(want, address, bytes)						\
	do {										\
		op.result = (address);							\
		op.result_size = (bytes);						\
		EXPECT_EQ(run_inline(&ring, &op, NULL), want, #address ", " #bytes);	\
		EXPECT_EQ(kv_size(fd, next_key - 1), 0, "stored with " #address);	\
	} while (0)
	BAD_RESULT(-EINVAL, kv_addr(&result), 0);
	BAD_RESULT(-EINVAL, kv_addr(&result), KVBLK_RESULT_SIZE_VER0 - 1);
	BAD_RESULT(-EINVAL, kv_addr(&result), KVBLK_STRUCT_MAX + 1);
	BAD_RESULT(-EINVAL, kv_addr(&result), UINT32_MAX);
	BAD_RESULT(-EINVAL, 0, sizeof(result.io));
	BAD_RESULT(-EFAULT, 8, sizeof(result.io));
	BAD_RESULT(-EFAULT, UINT64_MAX - 8, sizeof(result.io));
	BAD_RESULT(-EFAULT, kv_addr(readonly), sizeof(result.io));
	EXPECT_EQ(result.more, 1, "the word behind a refused result");

	/* a longer one, as of a later version */
	op.result = kv_addr(&result);
	op.result_size = sizeof(result);
	ASSERT_EQ(run_inline(&ring, &op, &extra), LEN, "put");
	kv_check_extra(extra, &result.io);
	EXPECT_EQ(result.io.res, LEN, "its result");
	EXPECT_EQ(result.io.cookie, 9, "its cookie");
	EXPECT_EQ(result.more, 0, "the end of a longer result");
	piece = kv_piece(room, LEN);
	op.opcode = KVBLK_OP_GET;
	op.ext = 0;
	ASSERT_EQ(run_inline(&ring, &op, &extra), LEN, "get");
	kv_check_extra(extra, &result.io);
	EXPECT_EQ(result.io.layout_tag, 5, "layout tag");
	EXPECT_EQ(result.io.caller_tag, 6, "caller tag");
	/* an error of parsing has a result, too */
	op.flags = 1u << 31;
	EXPECT_EQ(run_inline(&ring, &op, &extra), -EOPNOTSUPP, "an unknown flag");
	EXPECT_EQ(result.io.res, -EOPNOTSUPP, "its result");
	kv_delete(fd, next_key - 1);
	munmap(readonly, PAGE);
	io_uring_queue_exit(&ring);
}

/* Rings with small entries run batches and cancels. */
TEST(small_entries)
{
	struct io_uring ring = new_ring(8, 0);
	struct kv_key keys[2] = { kv_key(next_key), kv_key(next_key + 1) };
	struct kvblk_piece put = kv_piece(bytes, LEN);
	struct { struct kvblk_op op; uint64_t more; } ops[2] = {
		{ .op = kv_op(KVBLK_OP_PUT, &keys[0], &put, 1) },
		{ .op = kv_op(KVBLK_OP_PUT, &keys[1], &put, 1) },
	};
	struct { struct kvblk_result io; uint64_t more; } results[2] = { { .more = 1 } };
	struct { struct kvblk_submit_arg io; uint64_t more; } submit = {
		.io = {
			.size = sizeof(submit),
			.flags = KVBLK_SUBMIT_CHAIN | KVBLK_SUBMIT_INTERRUPTIBLE, .nr_ops = 2,
			.op_size = sizeof(ops[0]), .result_size = sizeof(results[0]),
			.ops = kv_addr(ops), .results = kv_addr(results),
		},
	};
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 54, .nr_found = 7 };

	for (unsigned int pass = 0; pass < 2; pass++) {
		kv_sqe_addr(&ring, fd, KVBLK_URING_SUBMIT, &submit, 0);
		io_uring_submit(&ring);
		EXPECT_EQ(kv_cqe(&ring, NULL).res, 0, "a chain");
		for (unsigned int i = 0; i < 2; i++) {
			EXPECT_EQ(results[i].io.res, pass ? -EEXIST : (int)LEN, "put %u", i);
			EXPECT_EQ(results[i].more, 0, "the end of a longer result");
			EXPECT_EQ(kv_size(fd, next_key + i), LEN, "it is there");
		}
	}
	kv_sqe_addr(&ring, fd, KVBLK_URING_CANCEL, &cancel, 0);
	io_uring_submit(&ring);
	EXPECT_EQ(kv_cqe(&ring, NULL).res, -ENOENT, "a cancel");
	EXPECT_EQ(cancel.nr_found, 0, "what it found");
	kv_delete(fd, next_key++);
	kv_delete(fd, next_key++);
	io_uring_queue_exit(&ring);
}

/* Submit a malformed command. Returns its result. */
static int bad(struct io_uring *ring, unsigned long command, uint64_t a, uint64_t b,
	       uint32_t cmd_flags)
{
	struct io_uring_sqe *sqe = kv_sqe(ring, fd, command, 0);

	memcpy(sqe->cmd, &a, 8);
	memcpy(sqe->cmd + 8, &b, 8);
	sqe->uring_cmd_flags = cmd_flags;
	io_uring_submit(ring);
	return kv_cqe(ring, NULL).res;
}

TEST(bad_commands)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct io_uring small = new_ring(8, 0);
	struct kvblk_info info = { .size = sizeof(info) };
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 1 };
	struct kvblk_submit_arg submit = { .size = sizeof(submit) };

	EXPECT_EQ(bad(&ring, 0, 0, 0, 0), -ENOTTY, "command 0");
	EXPECT_EQ(bad(&ring, _IO(KVBLK_IOC_TYPE, 0x43), 0, 0, 0), -ENOTTY, "command 0x43");
	EXPECT_EQ(bad(&ring, KVBLK_IOC_INFO, kv_addr(&info), 0, 0), -ENOTTY, "an ioctl");
	EXPECT_EQ(bad(&ring, KVBLK_IOC_SUBMIT, kv_addr(&submit), 0, 0), -ENOTTY,
		  "the ioctl of a batch");
	EXPECT_EQ(bad(&ring, KVBLK_URING_CANCEL, 0, 0, 0), -EFAULT, "cancel at NULL");
	EXPECT_EQ(bad(&ring, KVBLK_URING_CANCEL, kv_addr(&cancel), 1, 0), -EINVAL,
		  "a second word");
	EXPECT_EQ(bad(&ring, KVBLK_URING_CANCEL, kv_addr(&cancel), 0, 0), -ENOENT, "cancel");
	EXPECT_EQ(bad(&ring, KVBLK_URING_CANCEL, kv_addr(&cancel), 0, 4), -EINVAL,
		  "an unknown flag");
	EXPECT_EQ(bad(&ring, KVBLK_URING_SUBMIT, 0, 0, 0), -EFAULT, "no batch");
	EXPECT_EQ(bad(&ring, KVBLK_URING_SUBMIT, kv_addr(&submit), 1, 0), -EINVAL,
		  "a second word");
	EXPECT_EQ(bad(&ring, KVBLK_URING_SUBMIT, kv_addr(&submit), 0, 0), -EINVAL,
		  "an empty batch");
	EXPECT_EQ(bad(&ring, KVBLK_URING_OP, 0, 0, 0), -EOPNOTSUPP, "an empty operation");
	kv_sqe(&small, fd, KVBLK_URING_OP, 0);
	io_uring_submit(&small);
	EXPECT_EQ(kv_cqe(&small, NULL).res, -EINVAL, "inline in 64 bytes");
	io_uring_queue_exit(&small);
	io_uring_queue_exit(&ring);
}

/* All bytes of an SQE that a command does not use. */
TEST(bad_entries)
{
	struct io_uring rings[] = {
		new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32), new_ring(8, 0),
	};
	static const size_t sizes[] = { 128, 64 };
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 1 };
	struct kv_key key = kv_key(next_key++);
	struct kvblk_piece put = kv_piece(bytes, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &put, 1);
	struct kvblk_result result;
	struct kvblk_submit_arg submit = {
		.size = sizeof(submit), .nr_ops = 1, .op_size = sizeof(op),
		.result_size = sizeof(result), .ops = kv_addr(&op), .results = kv_addr(&result),
	};
	struct iovec iov = { .iov_base = kv_alloc_host(LEN), .iov_len = LEN };

	for (unsigned int way = 0; way < 3 * ARRAY_SIZE(rings); way++) {
		struct io_uring *ring = &rings[way / 3];
		size_t size = sizes[way / 3];

		for (size_t at = 0; at < size; at++) {
			struct io_uring_sqe *sqe;
			bool inline_op = way % 3 == 2;

			/* bytes in use, or checked by io_uring itself */
			if (at < 2 || (at >= 4 && at < 12) || (at >= 28 && at < 40) ||
			    (at >= 42 && at < 44) || (at >= 48 && at < 56) ||
			    (inline_op && (at >= 48 || size == 64)))
				continue;
			sqe = inline_op ? kv_sqe_op(ring, fd, &op, NULL, 0) :
			      way % 3 ? kv_sqe_addr(ring, fd, KVBLK_URING_SUBMIT, &submit, 0) :
					kv_sqe_addr(ring, fd, KVBLK_URING_CANCEL, &cancel, 0);
			((uint8_t *)sqe)[at] = 1;
			io_uring_submit(ring);
			EXPECT_EQ(kv_cqe(ring, NULL).res, -EINVAL,
				  "way %u, a byte at %zu of an entry of %zu", way % 3, at, size);
		}
	}
	for (unsigned int bit = 1; bit < 32; bit++)
		EXPECT_EQ(bad(&rings[0], KVBLK_URING_SUBMIT, kv_addr(&submit), 0, 1u << bit),
			  -EINVAL, "uring_cmd_flags 1 << %u", bit);
	ASSERT_EQ(io_uring_register_buffers(&rings[0], &iov, 1), 0, "a fixed buffer");
	EXPECT_EQ(bad(&rings[0], KVBLK_URING_CANCEL, kv_addr(&cancel), 0, IORING_URING_CMD_FIXED),
		  -EINVAL, "a cancel on a fixed buffer");
	EXPECT_EQ(bad(&rings[0], KVBLK_URING_SUBMIT, kv_addr(&submit), 0, IORING_URING_CMD_FIXED),
		  -EINVAL, "a batch on a fixed buffer");
	EXPECT_EQ(bad(&rings[0], _IO(KVBLK_IOC_TYPE, 0x40), 0, 0, 0), -ENOTTY,
		  "an inline operation of another size");
	op.reserved2 = 1;
	EXPECT_EQ(run_inline(&rings[0], &op, NULL), -EINVAL, "reserved2");
	EXPECT_EQ(kv_size(fd, next_key - 1), 0, "nothing was stored");
	io_uring_queue_exit(&rings[0]);
	io_uring_queue_exit(&rings[1]);
}

/* Queue an operation on the ring's buffer 0. */
static void fixed_op(struct io_uring *ring, uint8_t opcode, const struct kv_key *key,
		     const void *addr, uint32_t len, uint32_t offset)
{
	struct kvblk_op op = kv_op(opcode, key, addr, 0);
	struct io_uring_sqe *sqe;

	op.length = len;
	op.offset = offset;
	if (offset)
		op.flags = KVBLK_OPF_PARTIAL;
	sqe = kv_sqe(ring, fd, KVBLK_URING_OP, 0);
	memcpy((uint8_t *)sqe + offsetof(struct io_uring_sqe, cmd), &op, sizeof(op));
	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
}

static int run_fixed(struct io_uring *ring, uint8_t opcode, uint64_t nr,
		     const void *addr, uint32_t len, uint32_t offset)
{
	struct kv_key key = kv_key(nr);

	fixed_op(ring, opcode, &key, addr, len, offset);
	io_uring_submit(ring);
	return kv_cqe(ring, NULL).res;
}

TEST(fixed_buffers)
{
	static const struct {
		uint32_t at, len;
	} cases[] = {
		{ 0, LEN }, { 512, LEN }, { 4, LEN }, { 1, 1 }, { 4095, 2 },
		{ 4096, 5000 }, { 100, 300001 }, { 0, 20 * LEN }, { 8192, 3 * LEN + 17 },
	};
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct iovec iov = { .iov_base = bytes, .iov_len = 64ul * LEN };
	uint8_t *into = bytes + 32 * LEN;

	if (kv_memory()) {
		int err = io_uring_register_buffers(&ring, &iov, 1);

		io_uring_queue_exit(&ring);
		ASSERT(err == -EFAULT || err == -EREMOTEIO, "register: %d", err);
		SKIP("a ring cannot have memory of a device: %s", strerror(-err));
	}
	ASSERT_EQ(io_uring_register_buffers(&ring, &iov, 1), 0, "register");
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		uint32_t at = cases[i].at, len = cases[i].len, off = len / 3;
		uint64_t nr = next_key++;

		EXPECT_EQ(run_fixed(&ring, KVBLK_OP_PUT, nr, bytes + at, len, 0), len,
			  "put of %u at %u", len, at);
		memset(into, KV_UNTOUCHED, 32 * LEN);
		EXPECT_EQ(run_fixed(&ring, KVBLK_OP_GET, nr, into + at, len, 0), len,
			  "get of %u at %u", len, at);
		EXPECT(!memcmp(into + at, bytes + at, len), "bytes of %u at %u", len, at);
		EXPECT_EQ(into[at + len], KV_UNTOUCHED, "the byte behind %u at %u", len, at);
		memset(into, KV_UNTOUCHED, 32 * LEN);
		if (off) {
			EXPECT_EQ(run_fixed(&ring, KVBLK_OP_GET, nr, into + 7, len - off, off),
				  len - off, "part of %u at %u", len, at);
			EXPECT(!memcmp(into + 7, bytes + at + off, len - off),
			       "bytes of part of %u at %u", len, at);
		}
		EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	}
	EXPECT_EQ(run_fixed(&ring, KVBLK_OP_PUT, next_key, bytes, 0, 0), -EINVAL, "no length");
	EXPECT_EQ(run_fixed(&ring, KVBLK_OP_DELETE, next_key, bytes, LEN, 0), -EINVAL, "delete");
	EXPECT_EQ(run_fixed(&ring, KVBLK_OP_PUT, next_key, bytes - 1, LEN, 0), -EFAULT,
		  "memory before the buffer");
	EXPECT_EQ(run_fixed(&ring, KVBLK_OP_PUT, next_key, bytes + 63 * LEN, 2 * LEN, 0),
		  -EFAULT, "memory behind the buffer");
	EXPECT_EQ(kv_size(fd, next_key), 0, "nothing was stored");
	ASSERT_EQ(io_uring_unregister_buffers(&ring), 0, "unregister");
	EXPECT_EQ(run_fixed(&ring, KVBLK_OP_PUT, next_key, bytes, LEN, 0), -EFAULT,
		  "a buffer that is gone");
	io_uring_queue_exit(&ring);
}

static int reg(const void *addr, uint64_t len, uint32_t *handle)
{
	struct kvblk_reg_buf_arg arg = {
		.size = sizeof(arg), .addr = kv_addr(addr), .length = len,
	};
	int err = kv_ioctl(fd, KVBLK_IOC_REG_BUF, &arg);

	*handle = arg.handle;
	return err;
}

static int unreg_by(uint32_t handle, uint32_t flags)
{
	struct kvblk_unreg_buf_arg arg = { .size = sizeof(arg), .flags = flags, .handle = handle };

	return kv_ioctl(fd, KVBLK_IOC_UNREG_BUF, &arg);
}

static int unreg(uint32_t handle)
{
	return unreg_by(handle, 0);
}

static int drain(int fd, uint64_t deadline_ns)
{
	struct kvblk_drain_arg arg = { .size = sizeof(arg), .deadline_ns = deadline_ns };

	return kv_ioctl(fd, KVBLK_IOC_DRAIN, &arg);
}

static struct kvblk_piece reg_piece(uint32_t handle, uint64_t at, uint32_t len)
{
	return (struct kvblk_piece){
		.type = KVBLK_PIECE_REGISTERED, .handle = handle,
		.addr = at, .length = len,
	};
}

static int run_pieces(uint8_t opcode, uint64_t nr, const struct kvblk_piece *pieces,
		      uint16_t nr_pieces)
{
	struct kv_key key = kv_key(nr);
	struct kvblk_op op = kv_op(opcode, &key, pieces, nr_pieces);

	return kv_one(fd, &op).res;
}

TEST(registered_memory)
{
	uint8_t *memory = kv_alloc_host(16 * LEN), *other = kv_alloc_host(LEN);
	struct kvblk_piece pieces[3];
	uint32_t a, b;
	uint64_t nr = next_key++;

	kv_fill(kv_seed(nr, 0), 0, memory, 16 * LEN);
	ASSERT_EQ(reg(memory, 16 * LEN, &a), 0, "register");
	ASSERT_EQ(reg(other + 100, LEN - 200, &b), 0, "register an odd one");
	EXPECT(a && b && a != b, "handles %u and %u", a, b);
	for (unsigned int shift = 0; shift < 2; shift++) {
		/* shift 0 goes direct, shift 1 is bounced for its alignment */
		pieces[0] = reg_piece(a, shift, 3 * LEN);
		ASSERT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), 3 * LEN, "put, +%u", shift);
		pieces[0] = reg_piece(a, 4 * LEN + shift, LEN);
		pieces[1] = kv_piece(room, LEN);
		pieces[2] = reg_piece(a, 8 * LEN, LEN);
		memset(room, KV_UNTOUCHED, LEN);
		ASSERT_EQ(run_pieces(KVBLK_OP_GET, nr, pieces, 3), 3 * LEN, "get, +%u", shift);
		EXPECT(!memcmp(memory + 4 * LEN + shift, memory + shift, LEN), "first third");
		EXPECT(!memcmp(room, memory + shift + LEN, LEN), "second third");
		EXPECT(!memcmp(memory + 8 * LEN, memory + shift + 2 * LEN, LEN), "last third");
		EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	}
	pieces[0] = reg_piece(b, 0, LEN - 200);
	EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), LEN - 200, "put of an odd one");
	EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	pieces[0] = reg_piece(b, 1, LEN - 200);
	EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), -EFAULT, "one byte too many");
	pieces[0] = reg_piece(b, LEN, 1);
	EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), -EFAULT, "behind the end");
	pieces[0] = reg_piece(a, 0, LEN);
	pieces[1] = reg_piece(77, 0, LEN);
	EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 2), -ENXIO, "an unknown handle");

	/* the handle refers to the pages, not to what is mapped there now */
	munmap(memory, 16 * LEN);
	pieces[0] = reg_piece(a, 0, LEN);
	EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), LEN, "put of what was unmapped");
	EXPECT_EQ(kv_get(fd, nr, room, LEN).res, LEN, "get");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, room, 1), -1, "its first byte");
	EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");

	EXPECT_EQ(unreg(a), 0, "unregister");
	EXPECT_EQ(unreg(a), -ENOENT, "unregister again");
	EXPECT_EQ(unreg(0), -ENOENT, "unregister 0");
	EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), -ENXIO, "a handle that is gone");
	EXPECT_EQ(unreg_by(b, KVBLK_UNREG_WAIT), 0, "unregister, waiting for nobody");
	EXPECT_EQ(unreg_by(b, KVBLK_UNREG_WAIT), -ENOENT, "unregister again");
	EXPECT_EQ(kv_size(fd, nr), 0, "nothing was stored");
}

#define MANY	40	/* regions, more than the kernel finds without its tree */

/* Each handle refers to its own region, and to none once that has ended. */
TEST(many_regions)
{
	uint8_t *memory = kv_alloc_host(2 * MANY * LEN);
	struct kvblk_piece pieces[MANY];
	uint64_t nr = next_key++;
	uint32_t handles[MANY];

	kv_fill(kv_seed(nr, 0), 0, memory, MANY * LEN);
	for (unsigned int i = 0; i < MANY; i++) {
		ASSERT_EQ(reg(memory + i * LEN, LEN, &handles[i]), 0, "register %u", i);
		pieces[i] = reg_piece(handles[i], 0, LEN);
	}
	ASSERT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, MANY), MANY * LEN, "put");
	EXPECT_EQ(kv_get(fd, nr, memory + MANY * LEN, MANY * LEN).res, MANY * LEN, "get");
	EXPECT(!memcmp(memory, memory + MANY * LEN, MANY * LEN), "what was put from all");
	EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	for (unsigned int i = 0; i < MANY; i += 2)
		EXPECT_EQ(unreg_by(handles[i], i % 4 ? KVBLK_UNREG_WAIT : 0), 0, "unregister %u", i);
	/* likely a grace period: the kernel has freed the regions, and KASAN sees a later use */
	usleep(200000);
	for (unsigned int i = 0; i < MANY; i++) {
		if (i % 2) {
			ASSERT_EQ(run_pieces(KVBLK_OP_PUT, nr, &pieces[i], 1), LEN, "put %u", i);
			EXPECT_EQ(kv_get(fd, nr, room, LEN).res, LEN, "get %u", i);
			EXPECT(!memcmp(room, memory + i * LEN, LEN), "what was put from %u", i);
			EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete %u", i);
			EXPECT_EQ(unreg(handles[i]), 0, "unregister %u", i);
		}
		EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, &pieces[i], 1), -ENXIO, "%u is gone", i);
	}
	EXPECT_EQ(kv_size(fd, nr), 0, "nothing was stored");
}

static uint64_t pinned_kb(void)
{
	unsigned long long kb = 0;
	char line[200];
	FILE *status = fopen("/proc/self/status", "r");

	while (status && fgets(line, sizeof(line), status))
		if (sscanf(line, "VmPin: %llu", &kb) == 1)
			break;
	if (status)
		fclose(status);
	return kb;
}

TEST(registered_device_memory)
{
	uint8_t *host = kv_alloc_host(8 * LEN), *both = kv_alloc_host(8 * LEN);
	uint64_t locked = pinned_kb(), nr = next_key++;
	struct kvblk_piece pieces[3];
	uint32_t handle, other;

	if (!kv_memory() || strchr(kv_memory(), ','))
		SKIP("KV_MEMORY names no single device");
	kv_stripes(both + 5 * LEN, LEN, kv_memory());
	EXPECT_EQ(reg(both, 8 * LEN, &handle), -EXDEV, "in the middle of the host's");
	EXPECT_EQ(reg(both + 5 * LEN, 2 * LEN, &handle), -EXDEV, "the host's behind it");
	EXPECT_EQ(handle, 0, "the handle of a refused one");
	ASSERT_EQ(reg(bytes, 16 * LEN, &handle), 0, "a device's memory");
	ASSERT_EQ(reg(bytes + 100, LEN, &other), 0, "at an odd address");
	EXPECT_EQ(pinned_kb(), locked, "a device's is no locked memory");

	kv_fill(kv_seed(nr, 0), 0, host, 3 * LEN);
	memcpy(bytes, host, 3 * LEN);
	for (unsigned int shift = 0; shift < 2; shift++) {
		pieces[0] = reg_piece(handle, shift, 3 * LEN);
		ASSERT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), 3 * LEN, "put, +%u", shift);
		pieces[0] = reg_piece(handle, 4 * LEN + shift, LEN);
		pieces[1] = kv_piece(host + 4 * LEN, LEN);
		pieces[2] = reg_piece(handle, 8 * LEN, LEN);
		memset(bytes + 4 * LEN, KV_UNTOUCHED, 5 * LEN);
		ASSERT_EQ(run_pieces(KVBLK_OP_GET, nr, pieces, 3), 3 * LEN, "get, +%u", shift);
		EXPECT(!memcmp(bytes + 4 * LEN + shift, bytes + shift, LEN), "first third");
		EXPECT(!memcmp(host + 4 * LEN, bytes + shift + LEN, LEN), "second third");
		EXPECT(!memcmp(bytes + 8 * LEN, bytes + shift + 2 * LEN, LEN), "last third");
		EXPECT_EQ(bytes[5 * LEN + shift], KV_UNTOUCHED, "the byte behind the first");
		EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	}
	pieces[0] = reg_piece(other, 0, LEN);
	EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), LEN, "put of an odd one");
	EXPECT_EQ(kv_get(fd, nr, host + 4 * LEN, LEN).res, LEN, "get");
	EXPECT(!memcmp(host + 4 * LEN, bytes + 100, LEN), "what was put");
	EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	pieces[0] = reg_piece(other, 1, LEN);
	EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), -EFAULT, "one byte too many");

	EXPECT_EQ(unreg(handle), 0, "unregister");
	EXPECT_EQ(unreg(handle), -ENOENT, "unregister again");
	EXPECT_EQ(unreg(other), 0, "unregister");

	/* the registration ends when any part of the mapping ends */
	for (unsigned int i = 0; i < 3; i++) {
		uint8_t *p = kv_alloc_host(4 * LEN), *to = kv_alloc_host(4 * LEN);

		kv_stripes(p, 4 * LEN, kv_memory());
		ASSERT_EQ(reg(p, 4 * LEN, &handle), 0, "register");
		pieces[0] = reg_piece(handle, 0, LEN);
		EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), LEN, "put");
		switch (i) {
		case 0:
			munmap(p, 4 * LEN);
			break;
		case 1:
			mmap(p + 2 * LEN, LEN, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			break;
		default:
			mremap(p, 4 * LEN, 4 * LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to);
		}
		EXPECT_EQ(run_pieces(KVBLK_OP_GET, nr, pieces, 1), -ENXIO, "get, way %u", i);
		pieces[0] = reg_piece(handle, 1, 1);
		EXPECT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), -ENXIO, "put, way %u", i);
		EXPECT_EQ(unreg(handle), 0, "unregister, way %u", i);
		EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
		munmap(p, 4 * LEN);
		munmap(to, 4 * LEN);
	}
	kv_fill(kv_seed(1, 1), 0, bytes, 32 * LEN);
	PASSED("straight and bounced, alone and beside the host's");
}

/* Another process with the file reaches the memory without a mapping of its own. */
TEST(registered_device_memory_of_another)
{
	uint64_t nr = next_key++;
	struct kvblk_piece piece;
	uint32_t handle;
	int status = 1;
	pid_t pid;

	if (!kv_memory() || strchr(kv_memory(), ','))
		SKIP("KV_MEMORY names no single device");
	kv_fill(kv_seed(nr, 0), 0, bytes, LEN);
	ASSERT_EQ(reg(bytes, 2 * LEN, &handle), 0, "register");
	pid = fork();
	if (!pid) {
		kv_ring_forget();
		munmap(bytes, 32 * LEN);
		/* an odd offset makes the CPU copy */
		piece = reg_piece(handle, 0, LEN);
		if (run_pieces(KVBLK_OP_PUT, nr, &piece, 1) != LEN)
			_exit(2);
		piece = reg_piece(handle, LEN - 1, LEN);
		_exit(run_pieces(KVBLK_OP_GET, nr, &piece, 1) != LEN ? 3 : 0);
	}
	waitpid(pid, &status, 0);
	EXPECT_EQ(status, 0, "a child's put and get");
	EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, bytes + LEN - 1, LEN), -1, "what it got");
	EXPECT_EQ(unreg(handle), 0, "unregister");
	kv_delete(fd, nr);
	kv_fill(kv_seed(1, 1), 0, bytes, 32 * LEN);
}

static int to_driver(const char *file, const char *device)
{
	char path[100];
	int to, err = 0;

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/kvblk_testgpu/%s", file);
	to = open(path, O_WRONLY);
	if (to < 0 || write(to, device, strlen(device)) < 0)
		err = -errno;
	close(to);
	return err;
}

/* KV_UNBIND: the device's address. Unbinding its driver must not wait for a mere registration. */
TEST(registered_device_goes)
{
	const char *device = getenv("KV_UNBIND");
	uint8_t *p = kv_alloc_host(4 * LEN), *host = kv_alloc_host(LEN);
	uint32_t handle, again, of_host, odd;
	struct kvblk_piece pieces[2];
	uint64_t nr = next_key++;

	if (!device)
		SKIP("KV_UNBIND names no device");
	kv_fill(kv_seed(nr, 0), 0, host, LEN);
	ASSERT_EQ(reg(host, LEN, &of_host), 0, "register the host's");
	for (unsigned int i = 0; i < 2; i++) {
		kv_stripes(p, 4 * LEN, kv_memory());
		ASSERT_EQ(reg(p, 4 * LEN, &handle), 0, "register a device's");
		ASSERT_EQ(reg(p + 1, 100, &odd), 0, "some of it again");
		pieces[0] = reg_piece(of_host, 0, LEN);
		ASSERT_EQ(run_pieces(KVBLK_OP_PUT, nr, pieces, 1), LEN, "put");
		pieces[0] = reg_piece(handle, LEN, LEN);
		ASSERT_EQ(run_pieces(KVBLK_OP_GET, nr, pieces, 1), LEN, "get");
		ASSERT_EQ(to_driver("unbind", device), 0, "unbind");
		EXPECT_EQ(run_pieces(KVBLK_OP_GET, nr, pieces, 1), -ENXIO, "get into what is gone");
		pieces[1] = pieces[0];
		pieces[0] = reg_piece(of_host, 0, LEN);
		EXPECT_EQ(run_pieces(KVBLK_OP_GET, nr, pieces, 2), -ENXIO, "get partly into it");
		EXPECT_EQ(run_pieces(KVBLK_OP_GET, nr, pieces, 1), LEN, "get into the host's");
		EXPECT_EQ(kv_wrong(kv_seed(nr, 0), 0, host, LEN), -1, "the host's");
		EXPECT_EQ(reg(p, LEN, &again), -EFAULT, "register what is gone");
		ASSERT_EQ(reg(host, LEN, &again), 0, "register the host's again");
		EXPECT(again != handle && again != odd, "a handle that was not given back is another's");
		EXPECT_EQ(unreg(again), 0, "unregister");
		EXPECT_EQ(unreg(handle), 0, "unregister what is gone");
		EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
		ASSERT_EQ(to_driver("bind", device), 0, "bind");
	}
	EXPECT_EQ(unreg(of_host), 0, "unregister");
}

/* Set the lock limit to @most and drop privileges, because CAP_IPC_LOCK lifts the limit. */
static void may_lock(size_t most)
{
	struct rlimit limit;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	limit.rlim_cur = most;
	if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(65534) || setuid(65534))
		_exit(2);
}

/* Return field @what of /proc/self/smaps, in kB, for the mapping at @p. */
static size_t smaps_kb(const void *p, const char *what)
{
	unsigned long start = 0, end;
	char line[200], name[40];
	size_t kb, found = 0;
	FILE *maps = fopen("/proc/self/smaps", "r");

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long from;

		if (sscanf(line, "%lx-%lx", &from, &end) == 2 && strchr(line, '-') < strchr(line, ' '))
			start = kv_addr(p) >= from && kv_addr(p) < end;
		else if (start && sscanf(line, "%39[^:]: %zu kB", name, &kb) == 2 && !strcmp(name, what))
			found = kb;
	}
	if (maps)
		fclose(maps);
	return found;
}

TEST(bad_registrations)
{
	uint8_t *room = kv_alloc_host(4 * LEN);
	struct kvblk_reg_buf_arg arg = { .size = sizeof(arg), .addr = kv_addr(room), .length = LEN };
	const uint8_t *readonly = mmap(NULL, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t handle;
	int status;

	EXPECT_EQ(reg(room, 0, &handle), -EINVAL, "no length");
	EXPECT_EQ(reg(room, (64ull << 30) + 1, &handle), -EINVAL, "too long");
	EXPECT_EQ(reg((void *)(UINTPTR_MAX - 100), 200, &handle), -EINVAL, "wraps");
	EXPECT_EQ(reg(NULL, LEN, &handle), -EFAULT, "at NULL");
	EXPECT_EQ(reg(readonly, LEN, &handle), -EFAULT, "read-only");
	arg.flags = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_REG_BUF, &arg), -EOPNOTSUPP, "a flag");
	arg.flags = 0;
	arg.type = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_REG_BUF, &arg), -EOPNOTSUPP, "type 1");
	arg.type = UINT32_MAX;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_REG_BUF, &arg), -EOPNOTSUPP, "an unknown type");
	arg.type = KVBLK_BUF_USER;
	arg.reserved2 = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_REG_BUF, &arg), -EINVAL, "the last reserved field");
	arg.reserved2 = 0;
	arg.handle = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_REG_BUF, &arg), -EINVAL, "a handle");
	arg.handle = 0;
	arg.reserved = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_REG_BUF, &arg), -EINVAL, "a reserved field");

	/* locked memory is accounted, and returned by unregister */
	if (!fork()) {
		may_lock(4 * LEN);
		for (unsigned int i = 0; i < 50; i++) {
			if (reg(room, 4 * LEN, &handle))
				_exit(3);
			if (reg(room, 4096, &arg.handle) != -ENOMEM)
				_exit(4);
			/*
			 * the limit is per user: a child is rejected, too, since the file keeps
			 * the pages
			 */
			if (!fork())
				_exit(reg(room, 4096, &arg.handle) != -ENOMEM);
			if (wait(&status) < 0 || status)
				_exit(6);
			if (unreg(handle))
				_exit(5);
		}
		_exit(0);
	}
	wait(&status);
	EXPECT_EQ(status, 0, "the child that may lock 256 KiB");
}

/* A page that occurs several times in a region is accounted each time. */
TEST(one_page_often)
{
	uint8_t *often = kv_map(64 * PAGE, 0);
	int memory = memfd_create("page", MFD_CLOEXEC), status;
	uint32_t handle;

	if (memory < 0 || ftruncate(memory, PAGE))
		kv_die("memfd");
	for (size_t at = 0; at < 64 * PAGE; at += PAGE)
		if (mmap(often + at, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			 memory, 0) == MAP_FAILED)
			kv_die("mmap");
	if (!fork()) {
		may_lock(64 * PAGE);
		if (reg(often, 64 * PAGE, &handle))
			_exit(3);
		_exit(reg(often, 64 * PAGE, &handle) != -ENOMEM);
	}
	wait(&status);
	EXPECT_EQ(status, 0, "the child that may lock 64 pages");
	close(memory);
}

/* Registering one byte pins and accounts the whole huge page. */
TEST(huge_region)
{
	size_t huge = 2u << 20;
	uint8_t *room = kv_map(2 * huge, 0);
	uint32_t handle;
	int status;

	room += -kv_addr(room) % huge;
	if (madvise(room, huge, MADV_HUGEPAGE))
		SKIP("no huge pages here");
	room[0] = 1;
	if (smaps_kb(room, "AnonHugePages") != huge >> 10)
		SKIP("no huge page to be had");
	if (!fork()) {
		/* a fresh one: fork() shares the parent's, and copies it in small pages */
		if (munmap(room, huge) || mmap(room, huge, PROT_READ | PROT_WRITE,
					       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != room ||
		    madvise(room, huge, MADV_HUGEPAGE))
			_exit(1);
		room[0] = 1;
		if (smaps_kb(room, "AnonHugePages") != huge >> 10)
			_exit(77);
		may_lock(huge / 2);
		if (reg(room, 1, &handle) != -ENOMEM)
			_exit(3);
		_exit(0);
	}
	wait(&status);
	if (status == 77 << 8)
		SKIP("no huge page to be had");
	EXPECT_EQ(status, 0, "the child that may lock half a huge page");
}

/* Short puts, each record invalidated by a write of its own: more than a member can list. */
TEST(canceled_puts)
{
	enum { NR = 512, ROUNDS = 10 };
	struct io_uring ring = new_ring(NR, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kvblk_piece piece = kv_piece(bytes, 1);
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 58 };
	unsigned int canceled = 0;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		static struct kv_key keys[NR];

		for (unsigned int i = 0; i < NR; i++) {
			struct kvblk_op op;

			keys[i] = kv_key(next_key++);
			op = kv_op(KVBLK_OP_PUT, &keys[i], &piece, 1);
			op.cookie = 58;
			inline_op(&ring, &op, i);
		}
		io_uring_submit(&ring);
		kv_ioctl(fd, KVBLK_IOC_CANCEL, &cancel);
		for (unsigned int i = 0; i < NR; i++) {
			int res = kv_cqe(&ring, NULL).res;

			EXPECT(res == 1 || res == -ECANCELED, "a put: %d", res);
			canceled += res == -ECANCELED;
		}
	}
	for (uint64_t nr = next_key - NR * ROUNDS; nr < next_key; nr++)
		kv_delete(fd, nr);
	PASSED("%u of %u were canceled", canceled, NR * ROUNDS);
	io_uring_queue_exit(&ring);
}

TEST(ten_thousand)
{
	enum { NR = 10000, SIZE = 4096 };
	struct io_uring ring = new_ring(4096, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key *keys = calloc(NR, sizeof(*keys));
	struct kvblk_piece *pieces = calloc(NR, sizeof(*pieces));
	uint8_t *buf = kv_alloc((size_t)NR * SIZE);
	uint64_t first = next_key;

	next_key += NR;
	for (unsigned int pass = 0; pass < 3; pass++) {
		static const uint8_t what[] = { KVBLK_OP_PUT, KVBLK_OP_GET, KVBLK_OP_DELETE };
		unsigned int sent = 0, done = 0;

		for (unsigned int i = 0; i < NR && pass == 0; i++)
			kv_fill(kv_seed(first + i, 0), 0, buf + (size_t)i * SIZE, SIZE);
		if (pass == 1)
			memset(buf, KV_UNTOUCHED, (size_t)NR * SIZE);
		while (done < NR) {
			struct kv_cqe cqe;

			while (sent < NR && io_uring_sq_space_left(&ring) && sent - done < 8000) {
				struct kvblk_op op;

				keys[sent] = kv_key(first + sent);
				pieces[sent] = kv_piece(buf + (size_t)sent * SIZE, SIZE);
				op = kv_op(what[pass], &keys[sent], &pieces[sent], 1);
				if (pass == 2)
					op.pieces = op.nr_pieces = 0;
				inline_op(&ring, &op, sent++);
			}
			io_uring_submit(&ring);
			cqe = kv_cqe(&ring, NULL);
			EXPECT_EQ(cqe.res, pass == 2 ? 0 : SIZE, "operation %llu of pass %u",
				  (unsigned long long)cqe.user_data, pass);
			done++;
		}
	}
	for (unsigned int i = 0; i < NR; i++)
		EXPECT_EQ(kv_wrong(kv_seed(first + i, 0), 0, buf + (size_t)i * SIZE, SIZE), -1,
			  "bytes of %u", i);
	io_uring_queue_exit(&ring);
	free(keys);
	free(pieces);
	munmap(buf, (size_t)NR * SIZE);
}

static void *unreg_waits(void *handle)
{
	return (void *)(intptr_t)unreg_by((uint32_t)(uintptr_t)handle, KVBLK_UNREG_WAIT);
}

/* Start @nr threads that wait for registered memory in use by a ring that is not reaped. */
static void many_wait(unsigned int nr, int ready)
{
	struct io_uring ring = new_ring(1024, IORING_SETUP_SQE128 | IORING_SETUP_CQE32 |
					IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	uint8_t *memory = kv_alloc_host(LEN);
	pthread_attr_t attr;

	fd = kv_open(node);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 16);
	for (unsigned int i = 0; i < nr; i++) {
		struct kv_key key = kv_key(FIRST - 3);
		struct kvblk_piece piece;
		struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &piece, 1);
		pthread_t thread;
		uint32_t handle;

		if (reg(memory, PAGE, &handle))
			kv_die("register %u", i);
		piece = reg_piece(handle, 0, PAGE);
		inline_op(&ring, &op, i);
		io_uring_submit(&ring);
		if (pthread_create(&thread, &attr, unreg_waits, (void *)(uintptr_t)handle))
			kv_die("thread %u", i);
	}
	usleep(200000);
	if (write(ready, "", 1) != 1)
		kv_die("write");
	pause();
}

/* Return the shortest of five times of 200 gets into registered memory, in ms. */
static uint64_t gets_take(const struct kvblk_piece *piece)
{
	uint64_t least = UINT64_MAX;

	for (unsigned int round = 0; round < 5; round++) {
		uint64_t start = kv_now_ms();

		for (unsigned int i = 0; i < 200; i++)
			EXPECT_EQ(run_pieces(KVBLK_OP_GET, FIRST - 3, piece, 1), PAGE, "get");
		start = kv_now_ms() - start;
		if (start < least)
			least = start;
	}
	return least;
}

/* Many waiters for memory do not slow another process' gets into its own. */
TEST(waiting_for_memory)
{
	uint64_t alone, beside;
	struct kvblk_piece piece;
	uint32_t handle;
	int ready[2];
	pid_t child;
	char c;

	ASSERT_EQ(kv_put(fd, FIRST - 3, bytes, PAGE).res, PAGE, "put");
	ASSERT_EQ(reg(kv_alloc_host(PAGE), PAGE, &handle), 0, "register");
	piece = reg_piece(handle, 0, PAGE);
	alone = gets_take(&piece);
	if (pipe(ready))
		kv_die("pipe");
	child = fork();
	if (!child)
		many_wait(500, ready[1]);
	close(ready[1]);
	ASSERT_EQ(read(ready[0], &c, 1), 1, "they wait");
	beside = gets_take(&piece);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(ready[0]);
	EXPECT(beside <= 3 * alone + 10, "200 gets: %llu ms, alone %llu ms",
	       (unsigned long long)beside, (unsigned long long)alone);
	EXPECT_EQ(unreg(handle), 0, "unregister");
	kv_delete(fd, FIRST - 3);
}

/* The slow_ tests run on a device that takes ten minutes, longer than any test. */

TEST(slow_hard_deadline)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece get = kv_piece(room, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &get, 1);

	memset(room, KV_UNTOUCHED, LEN);
	op.flags = KVBLK_OPF_HARD_DEADLINE;
	op.deadline_ns = (kv_now_ms() + 300) * MS;
	EXPECT_EQ(run_inline(&ring, &op, NULL), -ETIME, "get");
	EXPECT_EQ(kv_leaked(room, LEN), -1, "no byte came");
	io_uring_queue_exit(&ring);
}

/* The result is written where the operation asks, whatever ends the operation. */
TEST(slow_result)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece bounced = kv_piece(room + 1, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &bounced, 1);
	struct kvblk_result *result = kv_alloc_host(PAGE);
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 56 };
	uint64_t extra;

	op.cookie = 56;
	result->res = 12345;
	kv_sqe_op(&ring, fd, &op, result, 0);
	io_uring_submit(&ring);
	EXPECT_EQ(kv_ring_call(fd, KVBLK_URING_CANCEL, &cancel), 0, "cancel by a ring");
	EXPECT_EQ(cancel.nr_found, 1, "canceled");
	EXPECT_EQ(kv_cqe(&ring, NULL).res, -ECANCELED, "the get");
	EXPECT_EQ(result->res, -ECANCELED, "the result of a canceled get");
	EXPECT_EQ(result->cookie, 56, "its cookie");

	result->res = 12345;
	op.flags = KVBLK_OPF_HARD_DEADLINE;
	op.deadline_ns = (kv_now_ms() + 300) * MS;
	kv_sqe_op(&ring, fd, &op, result, 0);
	io_uring_submit(&ring);
	EXPECT_EQ(kv_cqe(&ring, &extra).res, -ETIME, "a get with a deadline");
	EXPECT_EQ(result->res, -ETIME, "the result of a late get");
	EXPECT_EQ(result->cookie, 56, "its cookie");
	EXPECT_EQ(extra, 0, "its extra word");

	/* the caller learns the end even if the result's memory was unmapped meanwhile */
	op.deadline_ns = (kv_now_ms() + 300) * MS;
	kv_sqe_op(&ring, fd, &op, result, 0);
	io_uring_submit(&ring);
	munmap(result, PAGE);
	EXPECT_EQ(kv_cqe(&ring, &extra).res, -ETIME, "a get whose result can't be written");
	EXPECT_EQ(extra, KVBLK_RES_UNREPORTED, "its extra word");
	io_uring_queue_exit(&ring);
}

TEST(slow_cancel)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece bounced = kv_piece(room + 1, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &bounced, 1);
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 55 };

	op.cookie = 55;
	inline_op(&ring, &op, 0);
	io_uring_submit(&ring);
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &cancel), 0, "cancel");
	EXPECT_EQ(cancel.nr_found, 1, "canceled");
	EXPECT_EQ(kv_cqe(&ring, NULL).res, -ECANCELED, "the get");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &cancel), -ENOENT, "cancel again");
	io_uring_queue_exit(&ring);
}

static void *cancel_all(void *arg)
{
	struct kvblk_cancel_arg *cancel = arg;

	return (void *)(intptr_t)ioctl(fd, KVBLK_IOC_CANCEL, cancel);
}

/* Two concurrent cancels, of interleaved operations: each finds all of its own. */
TEST(slow_cancels)
{
	enum { NR = 1000 };
	struct io_uring ring = new_ring(1024, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece bounced = kv_piece(room + 1, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &bounced, 1);
	struct kvblk_cancel_arg cancels[2];
	pthread_t threads[2];

	for (unsigned int i = 0; i < NR; i++) {
		op.cookie = 60 + i % 2;
		inline_op(&ring, &op, i);
	}
	io_uring_submit(&ring);
	for (unsigned int i = 0; i < 2; i++) {
		cancels[i] = (struct kvblk_cancel_arg){ .size = sizeof(cancels[i]), .cookie = 60 + i };
		ASSERT_EQ(pthread_create(&threads[i], NULL, cancel_all, &cancels[i]), 0, "a thread");
	}
	for (unsigned int i = 0; i < 2; i++) {
		void *err;

		pthread_join(threads[i], &err);
		EXPECT_EQ((intptr_t)err, 0, "cancel %u", i);
		EXPECT_EQ(cancels[i].nr_found, NR / 2, "found by cancel %u", i);
	}
	for (unsigned int i = 0; i < NR; i++)
		EXPECT_EQ(kv_cqe(&ring, NULL).res, -ECANCELED, "a get");
	io_uring_queue_exit(&ring);
}

/* Operations abandoned by one file do not limit another file. */
TEST(slow_bystander)
{
	struct kv_key slow = kv_key(FIRST - 1), absent = kv_key(next_key);
	size_t much = 16u << 20;
	struct kvblk_piece offer = kv_piece(kv_alloc_host(much), much);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &slow, &offer, 1);
	struct kvblk_result res;
	int other = kv_open(node);

	op.flags = KVBLK_OPF_HARD_DEADLINE;
	/* 320 MiB of buffers for blocks of 64 KiB */
	for (unsigned int i = 0; i < 20; i++) {
		op.deadline_ns = (kv_now_ms() + 20) * MS;
		ASSERT_EQ(kv_submit(other, &op, &res, 1, 0), 0, "submit");
		EXPECT_EQ(res.res, -ETIME, "get %u", i);
	}
	op = kv_op(KVBLK_OP_GET, &absent, &offer, 1);
	ASSERT_EQ(kv_submit(fd, &op, &res, 1, 0), 0, "submit");
	EXPECT_EQ(res.res, -ENOENT, "a get of another file");
	ASSERT_EQ(kv_submit(other, &op, &res, 1, 0), 0, "submit");
	EXPECT_EQ(res.res, -ENOENT, "a get of the same file");
	close(other);
	munmap((void *)(uintptr_t)offer.addr, much);
}

static unsigned int in_flight(void)
{
	unsigned int nr = 0;
	FILE *file;
	glob_t found;

	if (glob("/sys/class/kvblk/*/members/*/inflight", 0, NULL, &found))
		kv_die("no member in sysfs");
	file = fopen(found.gl_pathv[0], "r");
	if (!file || fscanf(file, "%u", &nr) != 1)
		kv_die("can't read %s", found.gl_pathv[0]);
	fclose(file);
	globfree(&found);
	return nr;
}

/* The put of a killed process is dropped, because its memory may be reused before the write. */
TEST(slow_killed_put)
{
	unsigned int before = in_flight();
	uint64_t end = kv_now_ms() + 60000 * kv_slow();
	pid_t child = fork();

	if (!child) {
		struct kv_key key = kv_key(FIRST - 2);
		struct kvblk_piece piece = kv_piece(bytes, LEN);
		struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &piece, 1);
		struct kvblk_result res;

		kv_submit(fd, &op, &res, 1, 0);
		_exit(0);
	}
	while (in_flight() == before)
		ASSERT(kv_now_ms() < end, "the put is in flight");
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* Runs after the device has responded. */
TEST(killed_put_is_absent)
{
	uint64_t end = kv_now_ms() + 60000 * kv_slow();
	struct kvblk_result res = { .res = -EBUSY };

	/* the key is busy until the put completes */
	while (res.res == -EBUSY && kv_now_ms() < end)
		res = kv_delete(fd, FIRST - 2);
	EXPECT_EQ(res.res, -ENOENT, "delete of a killed put's block");
}

/* With queue_bytes of 1 MiB: the limit on kernel memory of a file's operations. */
TEST(slow_memory)
{
	enum { NR = 64, MOST = (1 << 20) / LEN };
	struct io_uring ring = new_ring(NR, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece bounced = kv_piece(room + 1, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &bounced, 1);
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 57 };
	unsigned int before = in_flight(), ended = 0;
	uint64_t end = kv_now_ms() + 60000 * kv_slow();
	struct io_uring_cqe *cqe;

	op.cookie = 57;
	for (unsigned int i = 0; i < NR; i++)
		inline_op(&ring, &op, i);
	io_uring_submit(&ring);
	while (in_flight() < before + MOST)
		ASSERT(kv_now_ms() < end, "%u gets in flight", in_flight() - before);
	/* allow time for more to start, which would be a bug */
	usleep(500000);
	EXPECT(in_flight() <= before + MOST + 2, "%u gets of 64 KiB in flight with room for %u",
	       in_flight() - before, MOST);
	while (ended < NR) {
		ASSERT(kv_now_ms() < end, "%u of %u canceled gets ended", ended, NR);
		kv_ioctl(fd, KVBLK_IOC_CANCEL, &cancel);
		usleep(20000);
		while (!io_uring_peek_cqe(&ring, &cqe)) {
			/* -ENOMEM: queued for 10 s before the cancel */
			EXPECT(cqe->res == -ECANCELED || cqe->res == -ENOMEM,
			       "a get: %d", cqe->res);
			io_uring_cqe_seen(&ring, cqe);
			ended++;
		}
	}
	io_uring_queue_exit(&ring);
}

/* Kill and close of a ring do not wait for the device. */
TEST(slow_exit)
{
	for (unsigned int way = 0; way < 3; way++) {
		pid_t child = fork();
		int status;

		if (!child) {
			struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
			struct kv_key keys[2] = { kv_key(FIRST - 1), kv_key(next_key + way) };
			struct kvblk_piece pieces[2] = {
				kv_piece(kv_alloc(LEN), LEN), kv_piece(kv_alloc(LEN), LEN),
			};
			struct kvblk_op op = kv_op(KVBLK_OP_GET, &keys[0], &pieces[0], 1);

			inline_op(&ring, &op, 0);
			op = kv_op(KVBLK_OP_PUT, &keys[1], &pieces[1], 1);
			inline_op(&ring, &op, 1);
			io_uring_submit(&ring);
			/* way 2: exit with the ring open */
			if (way == 0)
				io_uring_queue_exit(&ring);
			if (way == 1)
				raise(SIGKILL);
			_exit(0);
		}
		waitpid(child, &status, 0);
		EXPECT(way == 1 ? WIFSIGNALED(status) : !status, "way %u: %#x", way, status);
	}
	next_key += 3;
}

static void on_alarm(int signal)
{
}

/* Interrupt blocking calls every 300 ms; @on false stops it. */
static void alarms(bool on)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval timer = {
		.it_value.tv_usec = on ? 300000 : 0, .it_interval.tv_usec = on ? 300000 : 0,
	};

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

enum { INTERRUPTED = 64 };

static struct interrupted {
	struct kv_key keys[3];
	struct kvblk_piece bounced;
	struct kvblk_op ops[INTERRUPTED];
	struct kvblk_result res[INTERRUPTED];
	struct kvblk_submit_arg submit;
} interrupted;

/*
 * Prepare a batch: a get that misses, a put and gets through kernel memory. Not all have begun if
 * queue_bytes is small.
 */
static struct kvblk_submit_arg *interrupted_batch(void)
{
	struct interrupted *in = &interrupted;

	in->keys[0] = kv_key(next_key++);
	in->keys[1] = kv_key(next_key++);
	in->keys[2] = kv_key(FIRST - 1);
	in->bounced = kv_piece(room + 1, LEN);
	in->ops[0] = kv_op(KVBLK_OP_GET, &in->keys[0], &in->bounced, 1);
	in->ops[1] = kv_op(KVBLK_OP_PUT, &in->keys[1], &in->bounced, 1);
	for (unsigned int i = 2; i < INTERRUPTED; i++)
		in->ops[i] = kv_op(KVBLK_OP_GET, &in->keys[2], &in->bounced, 1);
	memset(in->res, 0xff, sizeof(in->res));
	in->submit = (struct kvblk_submit_arg){
		.size = sizeof(in->submit), .flags = KVBLK_SUBMIT_INTERRUPTIBLE,
		.nr_ops = INTERRUPTED, .op_size = sizeof(in->ops[0]),
		.result_size = sizeof(in->res[0]), .ops = kv_addr(in->ops),
		.results = kv_addr(in->res),
	};
	return &in->submit;
}

static void check_interrupted(const char *how)
{
	EXPECT_EQ(interrupted.res[0].res, -ENOENT, "%s: a miss", how);
	for (unsigned int i = 1; i < INTERRUPTED; i++)
		EXPECT_EQ(interrupted.res[i].res, -ECANCELED, "%s: operation %u", how, i);
}

static void one_alarm(unsigned int ms)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerval timer = { .it_value.tv_usec = ms * 1000 };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
}

/* A signal ends an interruptible batch, with all results; a stop does not. */
TEST(slow_interrupted)
{
	struct kvblk_submit_arg *submit = interrupted_batch();
	uint64_t start = kv_now_ms(), took;
	struct kvblk_op op = interrupted.ops[2];
	int status, files[3];
	pid_t child;

	/* a file for each part, because abandoned operations hold some of its memory */
	files[0] = fd;
	files[1] = kv_open(node);
	files[2] = kv_open(node);
	one_alarm(300);
	EXPECT_EQ(ioctl(fd, KVBLK_IOC_SUBMIT, submit), 0, "the batch");
	took = kv_now_ms() - start;
	EXPECT(took >= 250 && took < 300 + 2000 * kv_slow(), "it took %llu ms",
	       (unsigned long long)took);
	check_interrupted("SIGALRM");
	EXPECT_EQ(kv_size(fd, next_key - 1), 0, "a canceled put is stored");

	fd = files[1];
	op.flags = KVBLK_OPF_HARD_DEADLINE;
	start = kv_now_ms();
	op.deadline_ns = (start + 800) * MS;
	one_alarm(100);
	EXPECT_EQ(kv_one(fd, &op).res, -ETIME, "a get without the flag");
	EXPECT(kv_now_ms() - start >= 750, "it ended by the signal");

	fd = files[2];
	/* before the fork, because later tests need other keys than the child's */
	submit = interrupted_batch();
	start = kv_now_ms();
	child = fork();
	if (!child) {
		one_alarm(900);
		if (ioctl(fd, KVBLK_IOC_SUBMIT, submit))
			_exit(1);
		_exit(kv_now_ms() - start < 850 ? 2 : interrupted.res[5].res != -ECANCELED ? 3 : 0);
	}
	/* a task in the batch does not stop before the batch ends, so do not wait for that */
	for (unsigned int i = 0; i < 3; i++) {
		usleep(100000);
		kill(child, SIGSTOP);
		usleep(150000);
		kill(child, SIGCONT);
	}
	waitpid(child, &status, 0);
	EXPECT_EQ(status, 0, "a batch during SIGSTOP and SIGCONT, until SIGALRM");
	fd = files[0];
	close(files[1]);
	close(files[2]);
}

/* IORING_OP_ASYNC_CANCEL ends a batch in a ring, with all results. */
TEST(slow_batch_canceled)
{
	struct io_uring ring = new_ring(8, 0);
	unsigned int before = in_flight();
	uint64_t end = kv_now_ms() + 60000 * kv_slow();
	struct io_uring_sqe *sqe;

	kv_sqe_addr(&ring, fd, KVBLK_URING_SUBMIT, interrupted_batch(), 1);
	io_uring_submit(&ring);
	while (in_flight() == before)
		ASSERT(kv_now_ms() < end, "the batch is in flight");
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_cancel64(sqe, 1, 0);
	sqe->user_data = 2;
	io_uring_submit(&ring);
	for (unsigned int i = 0; i < 2; i++) {
		struct kv_cqe cqe = kv_cqe(&ring, NULL);

		/* the cancel finds a batch that already runs */
		EXPECT_EQ(cqe.res, cqe.user_data == 1 ? 0 : -EALREADY, "command %llu",
			  (unsigned long long)cqe.user_data);
	}
	check_interrupted("IORING_OP_ASYNC_CANCEL");
	io_uring_queue_exit(&ring);
}

/* A drain waits until the device has completed the abandoned operations. */
TEST(slow_drain)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece get = kv_piece(room, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &get, 1);
	unsigned int before = in_flight();
	int other = kv_open(node);

	op.flags = KVBLK_OPF_HARD_DEADLINE;
	op.deadline_ns = (kv_now_ms() + 100) * MS;
	EXPECT_EQ(kv_one(fd, &op).res, -ETIME, "get by the ioctl");
	op.deadline_ns = (kv_now_ms() + 100) * MS;
	EXPECT_EQ(run_inline(&ring, &op, NULL), -ETIME, "get by the ring");
	EXPECT(in_flight() > before, "the device works on");
	EXPECT_EQ(drain(other, 0), 0, "drain of another file");
	EXPECT_EQ(drain(fd, 1), -ETIME, "drain that is late");
	EXPECT_EQ(drain(fd, (kv_now_ms() + 300) * MS), -ETIME, "drain for a while");
	alarms(true);
	EXPECT_EQ(drain(fd, 0), -EINTR, "drain with a signal");
	alarms(false);
	close(other);
	io_uring_queue_exit(&ring);
}

/*
 * Kinds of a get's memory, and how the caller ends: killed, except for "closed", which closes its
 * descriptors.
 */
static const char *const ghosts[] = {
	"ioctl, shared memory", "ioctl, the address space of another process",
	"ring, shared memory", "ring, its worker", "ring, registered memory", "ring, fixed buffer",
	"ring, closed",
};

static struct io_uring ghost_ring;

/* Get the block into @memory, then wait to be killed. */
static int ghost_get(void *arg)
{
	unsigned int way = (unsigned int)((uintptr_t)arg & 7);
	uint8_t *memory = (uint8_t *)((uintptr_t)arg & ~7ul);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece piece = kv_piece(memory, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &piece, 1);
	struct iovec iov = { .iov_base = memory, .iov_len = LEN };
	struct kvblk_result res;
	uint32_t handle;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/*
	 * touch the memory: fork() copies no page tables of shared mappings, and a fault would
	 * move the get to a worker
	 */
	memset(memory, KV_UNTOUCHED, LEN);
	if (way < 2) {
		kv_submit(fd, &op, &res, 1, 0);
		return 0;
	}
	ghost_ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	if (way == 4) {
		if (reg(memory, LEN, &handle))
			return 1;
		piece = reg_piece(handle, 0, LEN);
	}
	if (way == 5) {
		if (io_uring_register_buffers(&ghost_ring, &iov, 1))
			return 1;
		fixed_op(&ghost_ring, KVBLK_OP_GET, &key, memory, LEN, 0);
	} else {
		inline_op(&ghost_ring, &op, 0);
	}
	if (way == 3)
		ghost_ring.sq.sqes->flags |= IOSQE_ASYNC;
	io_uring_submit(&ghost_ring);
	if (way == 6) {
		io_uring_queue_exit(&ghost_ring);
		close(fd);
		return 0;
	}
	pause();
	return 0;
}

/*
 * After the caller's end neither the device nor the CPU writes to the get's memory, which may
 * belong to another process by then. Prints "killed" as the signal for the device to respond.
 */
TEST(slow_ghosts)
{
	enum { NR = ARRAY_SIZE(ghosts) };
	uint8_t *memory[NR], *stack = kv_map(16 * PAGE, 0);
	unsigned int before = in_flight();
	uint64_t end = kv_now_ms() + 60000 * kv_slow();
	pid_t child[NR];

	for (unsigned int way = 0; way < NR; way++) {
		memory[way] = way == 1 ? kv_alloc_host(LEN) :
			mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		ASSERT(memory[way] != MAP_FAILED, "memory for %s", ghosts[way]);
	}
	for (unsigned int way = 0; way < NR; way++) {
		void *arg = (void *)(memory[way] + way);

		child[way] = way == 1 ? clone(ghost_get, stack + 16 * PAGE, CLONE_VM | SIGCHLD, arg) :
					fork();
		if (!child[way])
			_exit(ghost_get(arg));
		/* the header is read with the block, or on its own */
		while (in_flight() < before + way + 1)
			ASSERT(kv_now_ms() < end, "%s: the get is in flight", ghosts[way]);
	}
	for (unsigned int way = 0; way < NR; way++)
		kill(child[way], SIGKILL);
	puts("# killed");
	for (unsigned int way = 0; way < NR; way++) {
		waitpid(child[way], NULL, 0);
		memset(memory[way], 0x5a, LEN);
	}
	while (in_flight())
		ASSERT(kv_now_ms() < end, "the gets end");
	/* time for late writes; if it is too short, the test only proves less */
	usleep(300000);
	for (unsigned int way = 0; way < NR; way++) {
		size_t at = 0;

		while (at < LEN && memory[way][at] == 0x5a)
			at++;
		EXPECT(at == LEN, "%s: byte %zu of another one's memory is %#x", ghosts[way], at,
		       memory[way][at]);
	}
}

/* The member is suspect: it has the space, but does not respond. */
TEST(suspect_large_put)
{
	enum { LARGE = 6 << 20 };
	uint8_t *large = kv_alloc_host(16 << 20);

	EXPECT_EQ(kv_put(fd, next_key, large, LARGE).res, -ENOSPC, "put of 6 MiB");
	EXPECT_EQ(kv_put(fd, next_key, large, LEN).res, -ENOSPC, "put of 64 KiB");
	EXPECT_EQ(kv_put(fd, next_key, large, 16 << 20).res, -EFBIG,
		  "put of more than a segment");
	munmap(large, 16 << 20);
}

static void *delete_one(void *nr)
{
	struct kv_key key = kv_key(*(uint64_t *)nr);
	struct kvblk_op op = kv_op(KVBLK_OP_DELETE, &key, NULL, 0);

	op.cookie = 70;
	return (void *)(intptr_t)kv_one(fd, &op).res;
}

/*
 * Runs later: the device responds after five seconds. A cancel of a delete that has begun is too
 * late: the delete reports what it did.
 */
TEST(slow_deletes)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 70 };
	uint64_t first = next_key, end = kv_now_ms() + 60000 * kv_slow();
	struct kv_key keys[2] = { kv_key(first), kv_key(first + 1) };
	struct kvblk_piece piece = kv_piece(bytes, LEN);
	struct kvblk_op ops[2] = {
		kv_op(KVBLK_OP_PUT, &keys[0], &piece, 1), kv_op(KVBLK_OP_PUT, &keys[1], &piece, 1),
	};
	struct kvblk_result res[2];
	pthread_t thread;
	void *batch;

	next_key += 2;
	ASSERT_EQ(kv_submit(fd, ops, res, 2, 0), 0, "puts");
	ASSERT(res[0].res == LEN && res[1].res == LEN, "puts: %d %d", res[0].res, res[1].res);
	ASSERT_EQ(pthread_create(&thread, NULL, delete_one, &first), 0, "a thread");
	ops[1] = kv_op(KVBLK_OP_DELETE, &keys[1], NULL, 0);
	ops[1].cookie = 70;
	inline_op(&ring, &ops[1], 0);
	io_uring_submit(&ring);
	/* a delete that has begun has removed its entry */
	while (kv_size(fd, first) || kv_size(fd, first + 1))
		ASSERT(kv_now_ms() < end, "the deletes begin");
	EXPECT_EQ(ioctl(fd, KVBLK_IOC_CANCEL, &cancel), 0, "cancel");
	EXPECT_EQ(cancel.nr_found, 2, "found");
	EXPECT_EQ(kv_cqe(&ring, NULL).res, 0, "the delete of the ring");
	pthread_join(thread, &batch);
	EXPECT_EQ((intptr_t)batch, 0, "the delete of the batch");
	io_uring_queue_exit(&ring);
}

TEST(slow_drained)
{
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece get = kv_piece(room, LEN);
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &get, 1);
	uint64_t start = kv_now_ms();
	struct io_uring_cqe *cqe;

	/* a task that waits runs the task work of its own ring */
	inline_op(&ring, &op, 0);
	io_uring_submit(&ring);
	EXPECT_EQ(drain(fd, 0), 0, "drain");
	EXPECT(kv_now_ms() - start >= 4000, "it took %llu ms",
	       (unsigned long long)(kv_now_ms() - start));
	ASSERT_EQ(io_uring_peek_cqe(&ring, &cqe), 0, "a completion");
	EXPECT_EQ(cqe->res, LEN, "the get");
	io_uring_cqe_seen(&ring, cqe);

	/* the get returns at its deadline, the device continues */
	start = kv_now_ms();
	op.flags = KVBLK_OPF_HARD_DEADLINE;
	op.deadline_ns = (start + 100) * MS;
	EXPECT_EQ(kv_one(fd, &op).res, -ETIME, "get with a deadline");
	EXPECT_EQ(drain(fd, (kv_now_ms() + 100) * MS), -ETIME, "drain for a while");
	EXPECT_EQ(drain(fd, 0), 0, "drain after it");
	EXPECT(kv_now_ms() - start >= 4000, "that took %llu ms",
	       (unsigned long long)(kv_now_ms() - start));
	io_uring_queue_exit(&ring);
}

static void *unreg_waiting(void *handle)
{
	return (void *)(intptr_t)unreg_by(*(uint32_t *)handle, KVBLK_UNREG_WAIT);
}

TEST(slow_unregister_waiting)
{
	uint8_t *memory = kv_alloc_host(LEN);
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece piece;
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &piece, 1);
	uint64_t end = kv_now_ms() + 60000 * kv_slow();
	struct io_uring_cqe *cqe;
	pthread_t thread;
	uint32_t handle;
	void *err;
	int res;

	for (unsigned int way = 0; way < 2; way++) {
		ASSERT_EQ(reg(memory, LEN, &handle), 0, "register");
		piece = reg_piece(handle, 0, LEN);
		memset(memory, KV_UNTOUCHED, LEN);
		inline_op(&ring, &op, 0);
		io_uring_submit(&ring);
		if (way) {
			/* a task that waits for its own ring */
			alarms(true);
			EXPECT_EQ(unreg_by(handle, KVBLK_UNREG_WAIT), -EINTR, "with a signal");
			alarms(false);
			EXPECT_EQ(run_pieces(KVBLK_OP_GET, FIRST - 1, &piece, 1), -ENXIO,
				  "a get after it");
			EXPECT_EQ(unreg_by(handle, KVBLK_UNREG_WAIT), 0, "once more");
		} else {
			ASSERT_EQ(pthread_create(&thread, NULL, unreg_waiting, &handle), 0,
				  "a thread");
			do
				res = run_pieces(KVBLK_OP_PUT, FIRST - 1, &piece, 1);
			while (res == -EEXIST && kv_now_ms() < end);
			EXPECT_EQ(res, -ENXIO, "use while somebody waits");
			EXPECT_EQ(unreg_by(handle, KVBLK_UNREG_WAIT), -EBUSY, "one who waits, too");
			kv_cqe(&ring, NULL);
			pthread_join(thread, &err);
			EXPECT_EQ((intptr_t)err, 0, "unregister, waiting");
		}
		if (way) {
			ASSERT_EQ(io_uring_peek_cqe(&ring, &cqe), 0, "a completion");
			EXPECT_EQ(cqe->res, LEN, "the get");
			io_uring_cqe_seen(&ring, cqe);
		}
		EXPECT_EQ(kv_wrong(kv_seed(FIRST - 1, 0), 0, memory, LEN), -1, "its bytes");
		EXPECT_EQ(unreg(handle), -ENOENT, "the handle");
	}
	io_uring_queue_exit(&ring);
}

TEST(slow_unregister)
{
	uint8_t *memory = kv_alloc_host(LEN);
	struct io_uring ring = new_ring(8, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
	struct kv_key key = kv_key(FIRST - 1);
	struct kvblk_piece piece;
	struct kvblk_op op = kv_op(KVBLK_OP_GET, &key, &piece, 1);
	uint32_t handle;

	ASSERT_EQ(reg(memory, LEN, &handle), 0, "register");
	piece = reg_piece(handle, 0, LEN);
	inline_op(&ring, &op, 0);
	io_uring_submit(&ring);
	EXPECT_EQ(unreg(handle), 0, "unregister in flight");
	EXPECT_EQ(kv_cqe(&ring, NULL).res, LEN, "the get");
	EXPECT_EQ(kv_wrong(kv_seed(FIRST - 1, 0), 0, memory, LEN), -1, "its bytes");
	io_uring_queue_exit(&ring);
}

enum { PARTS_BYTES = 4 << 20, PART_BYTES = 512 << 10 };

static struct kvblk_op part_op;

static void *part_get(void *result)
{
	*(struct kvblk_result *)result = kv_one(fd, &part_op);
	return NULL;
}

/*
 * A get into device memory is read in parts. The first part becomes unreachable, the last part
 * fails, and the block is deleted before the get is read again: no byte of it stays.
 */
TEST(slow_parts)
{
	const uint64_t nr = next_key++;
	struct kv_key key = kv_key(nr);
	uint8_t *block = kv_alloc_host(PARTS_BYTES), *device, *first;
	uint64_t end = kv_now_ms() + 60000 * kv_slow();
	struct kvblk_result res = { .res = 0 };
	struct kvblk_piece pieces[3];
	pthread_t thread;

	if (!kv_memory())
		SKIP("this is for a device's memory");
	first = mmap(NULL, PART_BYTES, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ASSERT(first != MAP_FAILED, "shared memory");
	device = kv_alloc(PARTS_BYTES - 2 * PART_BYTES);
	kv_fill(kv_seed(nr, 0), 0, block, PARTS_BYTES);
	memset(first, KV_UNTOUCHED, PART_BYTES);
	pieces[0] = kv_piece(first, PART_BYTES);
	pieces[1] = kv_piece(device, PARTS_BYTES - 2 * PART_BYTES);
	/* untouched, so that the first attempt fails without a page fault */
	pieces[2] = kv_piece(kv_map(PART_BYTES, 0), PART_BYTES);
	ASSERT_EQ(kv_put(fd, nr, block, PARTS_BYTES).res, PARTS_BYTES, "put");
	part_op = kv_op(KVBLK_OP_GET, &key, pieces, 3);
	ASSERT_EQ(pthread_create(&thread, NULL, part_get, &res), 0, "a thread");
	while (*(volatile uint8_t *)first == KV_UNTOUCHED &&
	       *(volatile uint8_t *)(first + 1) == KV_UNTOUCHED)
		ASSERT(kv_now_ms() < end, "the first part");
	/* unmaps the first part; its page keeps the bytes */
	ASSERT_EQ(madvise(first, PART_BYTES, MADV_DONTNEED), 0, "madvise");
	EXPECT_EQ(kv_delete(fd, nr).res, 0, "delete");
	pthread_join(thread, NULL);
	EXPECT_EQ(res.res, -ENOENT, "the get");
	EXPECT_EQ(kv_leaked(first, PART_BYTES), -1, "a part of the block");
}

int main(int argc, char **argv)
{
	fd = kv_open_node(argc, argv);
	node = argv[1];
	bytes = kv_alloc(64ul * LEN);
	room = kv_alloc(32ul * LEN);
	kv_fill(kv_seed(1, 1), 0, bytes, 32 * LEN);
	if (argc > 2 && !strcmp(argv[2], "store")) {
		/* the block of the slow tests */
		kv_fill(kv_seed(FIRST - 1, 0), 0, room, LEN);
		return kv_put(fd, FIRST - 1, room, LEN).res == LEN ? KSFT_PASS : KSFT_FAIL;
	}
	return kv_run_tests(argc - 2, argv + 2);
}
