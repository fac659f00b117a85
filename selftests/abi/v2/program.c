// SPDX-License-Identifier: GPL-2.0
/*
 * A program of version 2: compiled with the header as it was released then
 * (abi/v2), it calls all that the header has, by the ioctls and by rings, and gets
 * what that header says, whatever the module's version is. It is built for 64 and for
 * 32 bits. Rule: it is not touched when the ABI grows, and uses nothing of guest/kv_io.h,
 * which is.
 *
 * usage: abi_v2 NODE [CHANGES]
 */
#include "freestanding.h"

#include <linux/io_uring.h>
#include <linux/kvblk.h>

#define LEN	100000u
#define CHUNKS	2u

#define EXPECT(cond, what)		expect(!!(cond), true, what, __LINE__)
#define EXPECT_EQ(got, want, what)	expect((int64_t)(got), (int64_t)(want), what, __LINE__)
#define ARRAY_SIZE(a)			(sizeof(a) / sizeof((a)[0]))

static int fd;
static const char *changes;	/* node of the change feed, or NULL */
static uint8_t *bytes, *room;	/* 4 * LEN of each, page-aligned */
static char keys[8][16];
static unsigned int failures;

static bool expect(int64_t got, int64_t want, const char *what, unsigned int line)
{
	if (got == want)
		return true;
	failures++;
	print("# line ");
	print_number(line);
	print(": ");
	print(what);
	print(": ");
	print_number((uint64_t)got);
	print(", not ");
	print_number((uint64_t)want);
	print("\n");
	return false;
}

static uint64_t addr(const void *p)
{
	return (uintptr_t)p;
}

static long call(unsigned long command, void *arg)
{
	return system_call(__NR_ioctl, fd, (long)command, (long)arg, 0, 0);
}

static struct kvblk_piece piece_of(const void *p, uint32_t len)
{
	return (struct kvblk_piece){ .type = KVBLK_PIECE_USER, .addr = addr(p), .length = len };
}

static struct kvblk_op op_of(uint8_t opcode, unsigned int key, const struct kvblk_piece *pieces,
			     uint16_t nr)
{
	memcpy(keys[key], "program abi-v2-", 15);
	keys[key][15] = (char)('0' + key);
	return (struct kvblk_op){
		.opcode = opcode,
		.key_len = sizeof(keys[key]),
		.nr_pieces = nr,
		.key = addr(keys[key]),
		.pieces = addr(pieces),
	};
}

static struct kvblk_result submit(const struct kvblk_op *op)
{
	struct kvblk_result result = { .res = -1 };
	struct kvblk_submit_arg arg = {
		.size = sizeof(arg), .nr_ops = 1, .op_size = sizeof(*op),
		.result_size = sizeof(result), .ops = addr(op), .results = addr(&result),
	};

	EXPECT_EQ(call(KVBLK_IOC_SUBMIT, &arg), 0, "submit");
	return result;
}

static struct kvblk_result run(uint8_t opcode, unsigned int key, void *p, uint32_t len)
{
	struct kvblk_piece piece = piece_of(p, len);
	struct kvblk_op op = op_of(opcode, key, &piece, 1);

	if (!p)
		op.pieces = op.nr_pieces = 0;
	return submit(&op);
}

static void test_sizes(void)
{
	EXPECT_EQ(sizeof(struct kvblk_info), KVBLK_INFO_SIZE_VER0, "info");
	EXPECT_EQ(sizeof(struct kvblk_op), KVBLK_OP_SIZE_VER0, "op");
	EXPECT_EQ(sizeof(struct kvblk_op_ext), KVBLK_OP_EXT_SIZE_VER0, "op_ext");
	EXPECT_EQ(sizeof(struct kvblk_result), KVBLK_RESULT_SIZE_VER0, "result");
	EXPECT_EQ(sizeof(struct kvblk_submit_arg), KVBLK_SUBMIT_SIZE_VER0, "submit");
	EXPECT_EQ(sizeof(struct kvblk_lookup), KVBLK_LOOKUP_SIZE_VER0, "lookup");
	EXPECT_EQ(sizeof(struct kvblk_lease_release_arg), KVBLK_LEASE_RELEASE_SIZE_VER0, "release");
	EXPECT_EQ(sizeof(struct kvblk_cancel_arg), KVBLK_CANCEL_SIZE_VER0, "cancel");
	EXPECT_EQ(sizeof(struct kvblk_reg_buf_arg), KVBLK_REG_BUF_SIZE_VER0, "reg_buf");
	EXPECT_EQ(sizeof(struct kvblk_unreg_buf_arg), KVBLK_UNREG_BUF_SIZE_VER0, "unreg_buf");
	EXPECT_EQ(sizeof(struct kvblk_drain_arg), KVBLK_DRAIN_SIZE_VER0, "drain");
	EXPECT_EQ(sizeof(struct kvblk_changes), KVBLK_CHANGES_SIZE_VER0, "changes");
	EXPECT_EQ(sizeof(struct kvblk_change), KVBLK_CHANGE_SIZE_VER0, "change");
}

static void test_info(void)
{
	struct kvblk_info info = { .size = sizeof(info) };

	if (!EXPECT_EQ(call(KVBLK_IOC_INFO, &info), 0, "info"))
		return;
	EXPECT_EQ(info.size, sizeof(info), "size");
	EXPECT_EQ(info.tenant, 0, "tenant");
	EXPECT_EQ(info.pool_flags & KVBLK_POOL_STRICT, 0, "strict");
	EXPECT_EQ(info.integrity, KVBLK_CHECK_FULL, "integrity");
	EXPECT_EQ(info.checksum, KVBLK_CHECKSUM_CRC32C, "checksums");
	EXPECT_EQ(info.chunk_size, 65536, "chunk_size");
	EXPECT(info.key_max >= KVBLK_KEY_MAX && info.pieces_max >= KVBLK_PIECES_MAX &&
	       info.ops_max >= KVBLK_OPS_MAX && info.lookup_max >= KVBLK_LOOKUP_MAX &&
	       info.lease_ms_max >= KVBLK_LEASE_MS_MAX, "a limit is lower than it was");
	EXPECT(info.features & KVBLK_FEAT_URING, "io_uring has gone");
	EXPECT(info.value_max && info.dma_align && info.capacity && info.pool_name[0],
	       "nothing of the pool");
}

static void test_put_get_delete(void)
{
	struct kvblk_piece pieces[2] = {
		piece_of(bytes, 4096), piece_of(bytes + 4096, LEN - 4096),
	};
	struct kvblk_op op = op_of(KVBLK_OP_PUT, 0, pieces, 2);
	struct kvblk_op_ext ext = { .size = sizeof(ext), .layout_tag = 5, .caller_tag = 6 };
	struct kvblk_result res;

	op.priority = KVBLK_PRIORITY_MAX;
	op.ttl_s = KVBLK_TTL_MAX;
	op.cookie = 77;
	op.ext = addr(&ext);
	op.deadline_ns = UINT64_MAX;
	res = submit(&op);
	EXPECT_EQ(res.res, LEN, "put");
	EXPECT_EQ(res.cookie, 77, "cookie");
	EXPECT(res.flags & (KVBLK_RES_DIRECT | KVBLK_RES_BOUNCED), "the way");
	op.ttl_s++;
	EXPECT_EQ(submit(&op).res, -EINVAL, "a TTL above the limit");
	res = run(KVBLK_OP_PUT, 0, bytes, LEN - 1);
	EXPECT_EQ(res.res, -EEXIST, "put again");
	EXPECT(res.flags & KVBLK_RES_LEN_DIFFERS, "another length");
	EXPECT_EQ(res.value_len, LEN, "the length");

	memset(room, 0, LEN);
	res = run(KVBLK_OP_GET, 0, room, LEN);
	EXPECT_EQ(res.res, LEN, "get");
	EXPECT_EQ(res.layout_tag, 5, "layout tag");
	EXPECT_EQ(res.caller_tag, 6, "caller tag");
	EXPECT(!memcmp(room, bytes, LEN), "bytes");
	EXPECT_EQ(run(KVBLK_OP_GET, 0, room, LEN - 1).res, -EMSGSIZE, "get into too little room");

	pieces[0] = piece_of(room, LEN);
	op = op_of(KVBLK_OP_GET, 0, pieces, 1);
	op.flags = KVBLK_OPF_PARTIAL | KVBLK_OPF_LAYOUT | KVBLK_OPF_HARD_DEADLINE;
	op.deadline_ns = UINT64_MAX;
	op.offset = 70000;
	op.length = 1000;
	EXPECT_EQ(submit(&op).res, -EINVAL, "a layout without an extension");
	ext.caller_tag = 0;
	op.ext = addr(&ext);
	EXPECT_EQ(submit(&op).res, 1000, "get of a part");
	EXPECT(!memcmp(room, bytes + 70000, 1000), "bytes of a part");
	op.offset = LEN;
	EXPECT_EQ(submit(&op).res, -ERANGE, "get from behind the end");
	op.offset = 0;
	ext.layout_tag = 4;
	EXPECT_EQ(submit(&op).res, -ENOENT, "get of another layout");
	op.flags = 1u << 31;
	EXPECT_EQ(submit(&op).res, -EOPNOTSUPP, "a flag of no version");
	op = op_of(KVBLK_OP_GET, 0, pieces, 1);
	op.deadline_ns = 1;
	EXPECT_EQ(submit(&op).res, -ETIME, "get that is late");
	op = op_of(255, 0, pieces, 1);
	EXPECT_EQ(submit(&op).res, -EOPNOTSUPP, "an opcode of no version");
	op = op_of(KVBLK_OP_GET, 0, pieces, 1);
	op.reserved2 = 1;
	EXPECT_EQ(submit(&op).res, -EINVAL, "a reserved field");

	EXPECT_EQ(run(KVBLK_OP_DELETE, 0, NULL, 0).res, 0, "delete");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 0, NULL, 0).res, -ENOENT, "delete again");
	EXPECT_EQ(run(KVBLK_OP_GET, 0, room, LEN).res, -ENOENT, "get of what was deleted");
}

static void test_prefetch(void)
{
	struct kvblk_info info = { .size = sizeof(info) };
	int res;

	EXPECT_EQ(call(KVBLK_IOC_INFO, &info), 0, "info");
	EXPECT_EQ(run(KVBLK_OP_PREFETCH, 7, NULL, 0).res, -ENOENT, "prefetch of an absent block");
	EXPECT_EQ(run(KVBLK_OP_PUT, 7, bytes, LEN).res, LEN, "put");
	res = run(KVBLK_OP_PREFETCH, 7, NULL, 0).res;
	EXPECT(info.features & KVBLK_FEAT_DRAM ? res >= 0 : res == -EOPNOTSUPP, "prefetch");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 7, NULL, 0).res, 0, "delete");
}

static void test_extension(void)
{
	struct kvblk_piece piece = piece_of(bytes, LEN);
	struct kvblk_op op = op_of(KVBLK_OP_PUT, 1, &piece, 1);
	struct kvblk_op_ext ext = { .size = sizeof(ext) };
	uint32_t sums[CHUNKS + 1] = { 0 };
	struct kvblk_result res;

	op.ext = addr(&ext);
	ext.parent = addr("parent");
	EXPECT_EQ(submit(&op).res, -EINVAL, "a parent without a length");
	ext.parent_len = 6;
	ext.hints = KVBLK_HINT_CONTINUES | KVBLK_HINT_MISSED;
	EXPECT_EQ(submit(&op).res, LEN, "put with a parent and hints");
	op = op_of(KVBLK_OP_GET, 1, &piece, 1);
	piece = piece_of(room, LEN);
	ext = (struct kvblk_op_ext){ .size = sizeof(ext) };
	op.ext = addr(&ext);
	ext.checksums = addr(sums);
	ext.nr_checksums = CHUNKS;
	res = submit(&op);
	EXPECT_EQ(res.res, LEN, "get with room for checksums");
	EXPECT(res.flags & KVBLK_RES_CHECKSUMS, "they came");
	EXPECT(sums[0] && sums[1] && !sums[2], "as many as chunks");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 1, NULL, 0).res, 0, "delete");
	/* the producer's are those that the kernel has made */
	piece = piece_of(bytes, LEN);
	op.opcode = KVBLK_OP_PUT;
	EXPECT_EQ(submit(&op).res, LEN, "put with checksums");
	EXPECT_EQ(run(KVBLK_OP_GET, 1, room, LEN).res, LEN, "get that checks them");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 1, NULL, 0).res, 0, "delete");
	ext.reserved = 1;
	EXPECT_EQ(submit(&op).res, -EINVAL, "a reserved field");
	ext.reserved = 0;
	ext.hints = 1u << 31;
	EXPECT_EQ(submit(&op).res, -EOPNOTSUPP, "a hint of no version");
}

static void test_chain(void)
{
	struct kvblk_piece pieces[2] = { piece_of(bytes, 5000), piece_of(bytes + 8192, 6000) };
	struct kvblk_op ops[2] = {
		op_of(KVBLK_OP_PUT, 2, &pieces[0], 1), op_of(KVBLK_OP_PUT, 3, &pieces[1], 1),
	};
	struct kvblk_result results[2];
	struct kvblk_submit_arg arg = {
		.size = sizeof(arg), .flags = KVBLK_SUBMIT_CHAIN | KVBLK_SUBMIT_INTERRUPTIBLE,
		.nr_ops = 2, .op_size = sizeof(ops[0]), .result_size = sizeof(results[0]),
		.ops = addr(ops), .results = addr(results),
	};
	char packed[3 * sizeof(keys[0])];
	uint32_t sizes[3];
	uint64_t tags[3];
	uint8_t bitmap, tiers[3];
	struct kvblk_lookup lookup = {
		.size = sizeof(lookup),
		.flags = KVBLK_LOOKUP_LEASE | KVBLK_LOOKUP_PREFIX | KVBLK_LOOKUP_QUIET,
		.nr_keys = 3, .key_stride = sizeof(keys[0]), .keys = addr(packed),
		.bitmap = addr(&bitmap), .sizes = addr(sizes), .caller_tags = addr(tags),
		.tiers = addr(tiers), .lease_ms = 60000,
	};
	struct kvblk_lease_release_arg release = { .size = sizeof(release) };
	uint16_t lens[3] = { sizeof(keys[0]), sizeof(keys[0]), sizeof(keys[0]) };

	EXPECT_EQ(call(KVBLK_IOC_SUBMIT, &arg), 0, "a chain");
	EXPECT_EQ(results[0].res, 5000, "its first block");
	EXPECT_EQ(results[1].res, 6000, "its second block");
	memcpy(packed, keys[2], 2 * sizeof(keys[0]));
	memset(packed + 2 * sizeof(keys[0]), 'x', sizeof(keys[0]));
	EXPECT_EQ(call(KVBLK_IOC_LOOKUP, &lookup), 0, "lookup");
	EXPECT_EQ(lookup.size, sizeof(lookup), "size");
	EXPECT_EQ(lookup.nr_leading, 2, "leading blocks");
	EXPECT_EQ(lookup.nr_present, 2, "blocks");
	EXPECT_EQ(lookup.nr_leased, 2, "leased blocks");
	EXPECT(lookup.lease_end_ns > 60000000000, "the end of the lease");
	EXPECT_EQ(bitmap, 3, "bitmap");
	EXPECT(sizes[0] == 5000 && sizes[1] == 6000 && !sizes[2], "sizes");
	EXPECT(!tags[0] && !tags[1] && !tags[2], "caller tags");
	EXPECT(tiers[0] && tiers[1] && tiers[2] == KVBLK_TIER_NONE, "tiers");
	release.lease = lookup.lease;
	EXPECT_EQ(call(KVBLK_IOC_LEASE_RELEASE, &release), 0, "release");
	EXPECT_EQ(call(KVBLK_IOC_LEASE_RELEASE, &release), -ENOENT, "release again");
	lookup = (struct kvblk_lookup){
		.size = sizeof(lookup), .nr_keys = 3, .keys = addr(packed), .key_lens = addr(lens),
	};
	EXPECT_EQ(call(KVBLK_IOC_LOOKUP, &lookup), 0, "lookup by lengths");
	EXPECT_EQ(lookup.nr_present, 2, "blocks by lengths");
	EXPECT_EQ(lookup.lease, 0, "no lease");
	EXPECT_EQ(lookup.lease_end_ns, 0, "no end");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 2, NULL, 0).res, 0, "delete");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 3, NULL, 0).res, 0, "delete");
}

static void test_memory(void)
{
	struct kvblk_reg_buf_arg reg = {
		.size = sizeof(reg), .type = KVBLK_BUF_USER, .addr = addr(bytes), .length = LEN,
	};
	struct kvblk_unreg_buf_arg unreg = { .size = sizeof(unreg), .flags = KVBLK_UNREG_WAIT };
	struct kvblk_piece piece;
	struct kvblk_op op;

	EXPECT_EQ(call(KVBLK_IOC_REG_BUF, &reg), 0, "register");
	EXPECT(reg.handle, "a handle");
	piece = (struct kvblk_piece){
		.type = KVBLK_PIECE_REGISTERED, .handle = reg.handle, .addr = 1, .length = LEN - 1,
	};
	op = op_of(KVBLK_OP_PUT, 4, &piece, 1);
	EXPECT_EQ(submit(&op).res, LEN - 1, "put of registered memory");
	piece.length = LEN;
	EXPECT_EQ(submit(&op).res, -EFAULT, "put of a byte behind it");
	unreg.handle = reg.handle;
	EXPECT_EQ(call(KVBLK_IOC_UNREG_BUF, &unreg), 0, "unregister");
	EXPECT_EQ(call(KVBLK_IOC_UNREG_BUF, &unreg), -ENOENT, "unregister again");
	EXPECT_EQ(submit(&op).res, -ENXIO, "put of what is not registered");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 4, NULL, 0).res, 0, "delete");
}

static void test_cancel_and_drain(void)
{
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 9, .nr_found = 7 };
	struct kvblk_drain_arg drain = { .size = sizeof(drain), .deadline_ns = UINT64_MAX };

	EXPECT_EQ(call(KVBLK_IOC_CANCEL, &cancel), -ENOENT, "cancel of nothing");
	EXPECT_EQ(cancel.nr_found, 0, "found");
	cancel.cookie = 0;
	EXPECT_EQ(call(KVBLK_IOC_CANCEL, &cancel), -EINVAL, "cancel of what has no name");
	EXPECT_EQ(call(KVBLK_IOC_DRAIN, &drain), 0, "drain of nothing");
}

/* A ring without a library; one command at a time. */
static struct ring {
	int fd;
	bool wide;			/* 128-byte entries, 32-byte completions */
	uint8_t *rings, *sqes;
	struct io_uring_params p;
	uint64_t extra[2];		/* of the last completion */
} big, small;

static bool ring_setup(struct ring *ring, bool wide)
{
	struct io_uring_params *p = &ring->p;
	uint32_t size;

	ring->wide = wide;
	p->flags = wide ? IORING_SETUP_SQE128 | IORING_SETUP_CQE32 : 0;
	ring->fd = (int)system_call(__NR_io_uring_setup, 4, (long)p, 0, 0, 0);
	if (!EXPECT(ring->fd >= 0 && p->features & IORING_FEAT_SINGLE_MMAP, "a ring"))
		return false;
	size = p->cq_off.cqes + (p->cq_entries << (wide ? 5 : 4));
	if (size < p->sq_off.array + 4 * p->sq_entries)
		size = p->sq_off.array + 4 * p->sq_entries;
	ring->rings = map(size, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
	ring->sqes = map(p->sq_entries << (wide ? 7 : 6), MAP_SHARED, ring->fd, IORING_OFF_SQES);
	return EXPECT(ring->rings && ring->sqes, "memory of a ring");
}

/* Run @command with the @len bytes at @area. Returns the completion's res. */
static int ring_run(struct ring *ring, unsigned long command, const void *area, size_t len,
		    uint32_t flags, uint32_t sqe_len)
{
	const struct io_sqring_offsets *sq = &ring->p.sq_off;
	const struct io_cqring_offsets *cq = &ring->p.cq_off;
	uint32_t *sq_tail = (uint32_t *)(ring->rings + sq->tail);
	uint32_t *cq_head = (uint32_t *)(ring->rings + cq->head);
	uint32_t *cq_tail = (uint32_t *)(ring->rings + cq->tail);
	uint32_t at = *sq_tail & (ring->p.sq_entries - 1);
	uint8_t *raw = ring->sqes + (at << (ring->wide ? 7 : 6));
	struct io_uring_sqe sqe = {
		.opcode = IORING_OP_URING_CMD, .fd = fd, .cmd_op = (uint32_t)command,
		.uring_cmd_flags = flags, .len = sqe_len,
	};
	struct io_uring_cqe *cqe;
	long n;

	memset(raw, 0, ring->wide ? 128 : 64);
	memcpy(raw, &sqe, sizeof(sqe));
	memcpy(raw + 48, area, len);
	((uint32_t *)(ring->rings + sq->array))[at] = at;
	__atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
	n = system_call(__NR_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, 0);
	if (!EXPECT_EQ(n, 1, "io_uring_enter") ||
	    !EXPECT(__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) != *cq_head, "a completion"))
		return -1;
	at = *cq_head & (ring->p.cq_entries - 1);
	cqe = (struct io_uring_cqe *)(ring->rings + cq->cqes + (at << (ring->wide ? 5 : 4)));
	n = cqe->res;
	if (ring->wide)
		memcpy(ring->extra, cqe->big_cqe, sizeof(ring->extra));
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
	return (int)n;
}

static void check_extra(const struct kvblk_result *result)
{
	EXPECT_EQ(big.extra[0], (uint64_t)result->value_len << 32 | result->flags, "extra word");
	EXPECT_EQ(big.extra[1], 0, "second extra word");
}

static void test_rings(void)
{
	struct kvblk_piece piece = piece_of(bytes, LEN);
	struct kvblk_op op = op_of(KVBLK_OP_PUT, 5, &piece, 1);
	struct kvblk_op_ext ext = { .size = sizeof(ext), .layout_tag = 0xabcdef };
	struct { void *base; size_t len; } iov = { room, LEN };
	struct kvblk_result result = { .res = -1 };
	struct kvblk_submit_arg batch = {
		.size = sizeof(batch), .nr_ops = 1, .op_size = sizeof(op),
		.result_size = sizeof(result), .ops = addr(&op), .results = addr(&result),
	};
	struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 9, .nr_found = 7 };
	uint64_t at_batch = addr(&batch), at_cancel = addr(&cancel);

	if (!ring_setup(&big, true) || !ring_setup(&small, false))
		return;
	op.ext = addr(&ext);
	op.result = addr(&result);
	op.result_size = sizeof(result);
	EXPECT_EQ(ring_run(&big, KVBLK_URING_OP, &op, sizeof(op), 0, 0), LEN, "put in an entry");
	EXPECT_EQ(result.res, LEN, "its result");
	EXPECT(result.flags & (KVBLK_RES_DIRECT | KVBLK_RES_BOUNCED), "the way");
	check_extra(&result);

	piece = piece_of(room, LEN);
	op = op_of(KVBLK_OP_GET, 5, &piece, 1);
	memset(room, 0, LEN);
	EXPECT_EQ(ring_run(&small, KVBLK_URING_SUBMIT, &at_batch, sizeof(at_batch), 0, 0), 0,
		  "a batch");
	EXPECT_EQ(result.res, LEN, "its get");
	EXPECT_EQ(result.layout_tag, 0xabcdef, "its layout tag");
	EXPECT(!memcmp(room, bytes, LEN), "its bytes");
	EXPECT_EQ(ring_run(&small, KVBLK_URING_CANCEL, &at_cancel, sizeof(at_cancel), 0, 0), -ENOENT,
		  "cancel of nothing");
	EXPECT_EQ(cancel.nr_found, 0, "found");

	EXPECT_EQ(system_call(__NR_io_uring_register, big.fd, IORING_REGISTER_BUFFERS, (long)&iov, 1,
			      0), 0, "a fixed buffer");
	op = op_of(KVBLK_OP_GET, 5, NULL, 0);
	op.pieces = addr(room);
	op.length = LEN;
	op.result = addr(&result);
	op.result_size = sizeof(result);
	memset(room, 0, LEN);
	EXPECT_EQ(ring_run(&big, KVBLK_URING_OP, &op, sizeof(op), IORING_URING_CMD_FIXED, 0), LEN,
		  "get into a fixed buffer");
	EXPECT_EQ(result.layout_tag, 0xabcdef, "its layout tag");
	check_extra(&result);
	EXPECT(!memcmp(room, bytes, LEN), "its bytes");
	op.result = 8;
	EXPECT_EQ(ring_run(&big, KVBLK_URING_OP, &op, sizeof(op), IORING_URING_CMD_FIXED, 0),
		  -EFAULT, "a result that can't be written");

	EXPECT_EQ(ring_run(&big, KVBLK_URING_OP, &op, sizeof(op), 0, 1), -EINVAL,
		  "a field that is not used");
	EXPECT_EQ(ring_run(&small, KVBLK_URING_OP, &op, 16, 0, 0), -EINVAL,
		  "an operation in a small entry");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 5, NULL, 0).res, 0, "delete");
	system_call(__NR_close, big.fd, 0, 0, 0, 0);
	system_call(__NR_close, small.fd, 0, 0, 0, 0);
}

static void test_changes(void)
{
	struct kvblk_changes arg = {
		.size = sizeof(arg), .flags = KVBLK_CHANGES_PRESENT, .nr_records = KVBLK_CHANGES_MIN,
		.record_size = sizeof(struct kvblk_change),
	};
	struct kvblk_piece piece = piece_of(bytes, LEN);
	struct kvblk_op op = op_of(KVBLK_OP_PUT, 6, &piece, 1);
	struct kvblk_op_ext ext = { .size = sizeof(ext), .caller_tag = 7 };
	struct kvblk_change record[16] = { 0 };
	unsigned int seen = 0, ends = 0;
	long feed, n;

	if (!changes)
		return;
	feed = system_call(__NR_open, (long)changes, O_RDONLY | O_NONBLOCK, 0, 0, 0);
	if (!EXPECT(feed >= 0, "open of the change feed"))
		return;
	EXPECT_EQ(system_call(__NR_ioctl, feed, KVBLK_IOC_CHANGES, (long)&arg, 0, 0), 0, "start");
	op.ext = addr(&ext);
	EXPECT_EQ(submit(&op).res, LEN, "put");
	for (unsigned int tries = 0; tries < 100 && (!seen || !ends); tries++) {
		n = system_call(__NR_read, feed, (long)record, sizeof(record), 0, 0);
		for (long i = 0; i < n / (long)sizeof(record[0]); i++) {
			ends += record[i].op == KVBLK_CHANGE_CAUGHT_UP;
			if (record[i].op != KVBLK_CHANGE_STORED)
				continue;
			seen++;
			EXPECT_EQ(record[i].caller_tag, 7, "caller tag");
			EXPECT_EQ(record[i].length, LEN, "length");
			EXPECT_EQ(record[i].tenant, 0, "tenant");
			EXPECT(record[i].token[0] || record[i].token[1], "token");
		}
	}
	EXPECT(seen && ends == 1, "records of the block and of the end");
	system_call(__NR_close, feed, 0, 0, 0, 0);
	EXPECT_EQ(run(KVBLK_OP_DELETE, 6, NULL, 0).res, 0, "delete");
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "sizes", test_sizes },
	{ "info", test_info },
	{ "put_get_delete", test_put_get_delete },
	{ "prefetch", test_prefetch },
	{ "extension", test_extension },
	{ "chain", test_chain },
	{ "memory", test_memory },
	{ "cancel_and_drain", test_cancel_and_drain },
	{ "rings", test_rings },
	{ "changes", test_changes },
};

int main(int argc, char **argv)
{
	bool failed = false;

	if (argc < 2) {
		print("usage: abi_v2 NODE [CHANGES]\n");
		return 2;
	}
	changes = argc > 2 ? argv[2] : NULL;
	fd = (int)system_call(__NR_open, (long)argv[1], O_RDWR, 0, 0, 0);
	bytes = map(4 * LEN, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	room = map(4 * LEN, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || !bytes || !room) {
		print("no node, or no memory\n");
		return 2;
	}
	for (uint32_t i = 0; i < 4 * LEN; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 24);
	for (unsigned int i = 0; i < ARRAY_SIZE(tests); i++) {
		failures = 0;
		tests[i].run();
		failed |= failures;
		print(failures ? "not ok " : "ok ");
		print(tests[i].name);
		print("\n");
	}
	return failed;
}
