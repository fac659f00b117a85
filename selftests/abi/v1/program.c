// SPDX-License-Identifier: GPL-2.0
/*
 * A program of version 1: compiled with the header as it was released then
 * (abi/v1), it calls all that the header has, by the ioctls and by rings, and gets
 * what that header says, whatever the module's version is. Rule: it is not touched
 * when the ABI grows, and uses nothing of guest/kv_io.h, which is.
 *
 * usage: abi_v1 NODE [TEST...]
 */
#include <fcntl.h>
#include <liburing.h>
#include <linux/kvblk.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../guest/kv_test.h"

#define LEN	100000u
#define CHUNKS	2u

static int fd;
static uint8_t *bytes, *room;	/* 4 * LEN of each, page-aligned */
static char keys[8][16];

static uint64_t addr(const void *p)
{
	return (uintptr_t)p;
}

static int call(unsigned long command, void *arg)
{
	return ioctl(fd, command, arg) < 0 ? -errno : 0;
}

static struct kvblk_piece piece_of(const void *p, uint32_t len)
{
	return (struct kvblk_piece){ .type = KVBLK_PIECE_USER, .addr = addr(p), .length = len };
}

static struct kvblk_op op_of(uint8_t opcode, unsigned int key, const struct kvblk_piece *pieces,
			     uint16_t nr)
{
	snprintf(keys[key], sizeof(keys[key]), "abi-v1-%u", key);
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
	struct kvblk_submit arg = {
		.size = sizeof(arg), .nr_ops = 1, .op_size = sizeof(*op),
		.result_size = sizeof(result), .ops = addr(op), .results = addr(&result),
	};
	int err = call(KVBLK_IOC_SUBMIT, &arg);

	EXPECT_EQ(err, 0, "submit");
	return result;
}

static struct kvblk_result run(uint8_t opcode, unsigned int key, void *p, uint32_t len)
{
	struct kvblk_piece piece = piece_of(p, len);
	struct kvblk_op op = op_of(opcode, key, &piece, 1);

	if (opcode == KVBLK_OP_DELETE)
		op.pieces = op.nr_pieces = 0;
	return submit(&op);
}

TEST(info)
{
	struct kvblk_info info = { .size = sizeof(info) };

	ASSERT_EQ(call(KVBLK_IOC_INFO, &info), 0, "info");
	EXPECT_EQ(info.size, sizeof(info), "size");
	EXPECT_EQ(info.tenant, 0, "tenant");
	EXPECT_EQ(info.pool_flags & KVBLK_POOL_STRICT, 0, "strict");
	EXPECT_EQ(info.integrity, KVBLK_CHECK_FULL, "integrity");
	EXPECT_EQ(info.checksum, KVBLK_CHECKSUM_CRC32C, "checksums");
	EXPECT_EQ(info.chunk_size, 65536, "chunk_size");
	EXPECT(info.key_max >= KVBLK_KEY_MAX && info.pieces_max >= KVBLK_PIECES_MAX &&
	       info.ops_max >= KVBLK_OPS_MAX && info.lookup_max >= KVBLK_LOOKUP_MAX &&
	       info.lease_ms_max >= KVBLK_LEASE_MS_MAX, "a limit is lower than it was");
	EXPECT(info.features & KVBLK_FEAT_LEASE && info.features & KVBLK_FEAT_CALLER_TAGS &&
	       info.features & KVBLK_FEAT_REGISTERED && info.features & KVBLK_FEAT_URING &&
	       info.features & KVBLK_FEAT_CHECKSUMS, "a feature has gone");
	EXPECT(info.value_max && info.dma_align && info.capacity && info.pool_name[0],
	       "nothing of the pool");
	PASSED("features %#llx", (unsigned long long)info.features);
}

TEST(put_get_delete)
{
	struct kvblk_piece pieces[2] = { piece_of(bytes, 4096), piece_of(bytes + 4096, LEN - 4096) };
	struct kvblk_op op = op_of(KVBLK_OP_PUT, 0, pieces, 2);
	struct kvblk_result res;

	op.priority = KVBLK_PRIORITY_MAX;
	op.ttl_s = 3600;
	op.cookie = 77;
	op.layout_tag = 5;
	op.caller_tag = 6;
	op.deadline_ns = UINT64_MAX;
	res = submit(&op);
	ASSERT_EQ(res.res, LEN, "put");
	EXPECT_EQ(res.cookie, 77, "cookie");
	EXPECT(res.flags & (KVBLK_RES_DIRECT | KVBLK_RES_BOUNCED), "the way");
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
	op.layout_tag = 5;
	op.deadline_ns = UINT64_MAX;
	op.offset = 70000;
	op.length = 1000;
	EXPECT_EQ(submit(&op).res, 1000, "get of a part");
	EXPECT(!memcmp(room, bytes + 70000, 1000), "bytes of a part");
	op.offset = LEN;
	EXPECT_EQ(submit(&op).res, -ERANGE, "get from behind the end");
	op.offset = 0;
	op.layout_tag = 4;
	EXPECT_EQ(submit(&op).res, -ENOENT, "get of another layout");
	op.flags = 1u << 31;
	EXPECT_EQ(submit(&op).res, -EOPNOTSUPP, "a flag of no version");
	op.flags = 0;
	op.length = 0;
	op.layout_tag = 0;
	op.deadline_ns = 1;
	EXPECT_EQ(submit(&op).res, -ETIME, "get that is late");
	op = op_of(255, 0, pieces, 1);
	EXPECT_EQ(submit(&op).res, -EOPNOTSUPP, "an opcode of no version");
	op = op_of(KVBLK_OP_GET, 0, pieces, 1);
	op.reserved = 1;
	EXPECT_EQ(submit(&op).res, -EINVAL, "a reserved field");

	EXPECT_EQ(run(KVBLK_OP_DELETE, 0, NULL, 0).res, 0, "delete");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 0, NULL, 0).res, -ENOENT, "delete again");
	EXPECT_EQ(run(KVBLK_OP_GET, 0, room, LEN).res, -ENOENT, "get of what was deleted");
}

TEST(prefetch)
{
	struct kvblk_op op = op_of(KVBLK_OP_PREFETCH, 0, NULL, 0);
	struct kvblk_info info = { .size = sizeof(info) };
	int res = submit(&op).res;

	ASSERT_EQ(call(KVBLK_IOC_INFO, &info), 0, "info");
	EXPECT_EQ(res, info.features & KVBLK_FEAT_PREFETCH ? -ENOENT : -EOPNOTSUPP,
		  "prefetch of an absent block");
}

TEST(extension)
{
	struct kvblk_piece piece = piece_of(bytes, LEN);
	struct kvblk_op op = op_of(KVBLK_OP_PUT, 1, &piece, 1);
	struct kvblk_op_ext ext = { .size = sizeof(ext) };
	uint32_t sums[CHUNKS + 1] = { 0 };
	struct kvblk_result res;

	op.ext = addr(&ext);
	ext.parent = addr("parent");
	ext.parent_len = 6;
	ext.session = 1234;
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

TEST(chain)
{
	struct kvblk_piece pieces[2] = { piece_of(bytes, 5000), piece_of(bytes + 8192, 6000) };
	struct kvblk_op ops[2] = {
		op_of(KVBLK_OP_PUT, 2, &pieces[0], 1), op_of(KVBLK_OP_PUT, 3, &pieces[1], 1),
	};
	struct kvblk_result results[2];
	struct kvblk_submit arg = {
		.size = sizeof(arg), .flags = KVBLK_SUBMIT_CHAIN, .nr_ops = 2,
		.op_size = sizeof(ops[0]), .result_size = sizeof(results[0]),
		.ops = addr(ops), .results = addr(results),
	};
	char packed[3 * sizeof(keys[0])];
	uint32_t sizes[3];
	uint64_t tags[3];
	uint8_t bitmap;
	struct kvblk_lookup lookup = {
		.size = sizeof(lookup), .flags = KVBLK_LOOKUP_LEASE | KVBLK_LOOKUP_PREFIX,
		.nr_keys = 3, .key_stride = sizeof(keys[0]), .keys = addr(packed),
		.bitmap = addr(&bitmap), .sizes = addr(sizes), .caller_tags = addr(tags),
		.lease_ms = 60000,
	};
	struct kvblk_lease_release release = { .size = sizeof(release) };
	uint16_t lens[3] = { sizeof(keys[0]), sizeof(keys[0]), sizeof(keys[0]) };

	ASSERT_EQ(call(KVBLK_IOC_SUBMIT, &arg), 0, "a chain");
	EXPECT_EQ(results[0].res, 5000, "its first block");
	EXPECT_EQ(results[1].res, 6000, "its second block");
	memcpy(packed, keys[2], sizeof(packed));
	memset(packed + 2 * sizeof(keys[0]), 'x', sizeof(keys[0]));
	ASSERT_EQ(call(KVBLK_IOC_LOOKUP, &lookup), 0, "lookup");
	EXPECT_EQ(lookup.size, sizeof(lookup), "size");
	EXPECT_EQ(lookup.nr_leading, 2, "leading blocks");
	EXPECT_EQ(lookup.nr_present, 2, "blocks");
	EXPECT_EQ(lookup.nr_leased, 2, "leased blocks");
	EXPECT_EQ(bitmap, 3, "bitmap");
	EXPECT(sizes[0] == 5000 && sizes[1] == 6000 && !sizes[2], "sizes");
	EXPECT(!tags[0] && !tags[1] && !tags[2], "caller tags");
	release.lease = lookup.lease;
	EXPECT_EQ(call(KVBLK_IOC_LEASE_RELEASE, &release), 0, "release");
	EXPECT_EQ(call(KVBLK_IOC_LEASE_RELEASE, &release), -ENOENT, "release again");
	lookup = (struct kvblk_lookup){
		.size = sizeof(lookup), .nr_keys = 3, .keys = addr(packed), .key_lens = addr(lens),
	};
	ASSERT_EQ(call(KVBLK_IOC_LOOKUP, &lookup), 0, "lookup by lengths");
	EXPECT_EQ(lookup.nr_present, 2, "blocks by lengths");
	EXPECT_EQ(lookup.lease, 0, "no lease");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 2, NULL, 0).res, 0, "delete");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 3, NULL, 0).res, 0, "delete");
}

TEST(memory)
{
	struct kvblk_reg_buf reg = {
		.size = sizeof(reg), .type = KVBLK_BUF_USER, .addr = addr(bytes), .length = LEN,
	};
	struct kvblk_unreg_buf unreg = { .size = sizeof(unreg), .flags = KVBLK_UNREG_WAIT };
	struct kvblk_reg_buf dmabuf = {
		.size = sizeof(dmabuf), .type = KVBLK_BUF_DMABUF, .fd = fd, .length = LEN,
	};
	struct kvblk_piece piece;
	struct kvblk_op op;

	ASSERT_EQ(call(KVBLK_IOC_REG_BUF, &reg), 0, "register");
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
	EXPECT(call(KVBLK_IOC_REG_BUF, &dmabuf) < 0, "what is no dma-buf was registered");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 4, NULL, 0).res, 0, "delete");
}

TEST(cancel_and_drain)
{
	struct kvblk_cancel cancel = { .size = sizeof(cancel), .cookie = 9 };
	struct kvblk_drain drain = { .size = sizeof(drain), .deadline_ns = UINT64_MAX };

	EXPECT_EQ(call(KVBLK_IOC_CANCEL, &cancel), -ENOENT, "cancel of nothing");
	cancel.cookie = 0;
	EXPECT_EQ(call(KVBLK_IOC_CANCEL, &cancel), -EINVAL, "cancel of what has no name");
	EXPECT_EQ(call(KVBLK_IOC_DRAIN, &drain), 0, "drain of nothing");
}

/* A command with the @len bytes at @area; its entry, which is not submitted yet. */
static struct io_uring_sqe *prepare(struct io_uring *ring, unsigned long command,
				    const void *area, size_t len)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	uint8_t *raw = (uint8_t *)sqe;

	memset(raw, 0, sizeof(*sqe) << !!(ring->flags & IORING_SETUP_SQE128));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = (uint32_t)command;
	memcpy(raw + 48, area, len);
	return sqe;
}

static int complete(struct io_uring *ring, uint64_t *extra)
{
	struct io_uring_cqe *cqe;
	int res;

	io_uring_submit(ring);
	if (io_uring_wait_cqe(ring, &cqe))
		return -1;
	res = cqe->res;
	if (extra)
		*extra = cqe->big_cqe[0];
	io_uring_cqe_seen(ring, cqe);
	return res;
}

TEST(rings)
{
	struct kvblk_piece piece = piece_of(bytes, LEN);
	struct kvblk_op op = op_of(KVBLK_OP_PUT, 5, &piece, 1);
	struct kvblk_info info = { .size = sizeof(info) };
	struct iovec iov = { .iov_base = room, .iov_len = LEN };
	struct kvblk_result result = { .res = -1 };
	struct kvblk_uring_op ptr = {
		.size = sizeof(ptr), .op_size = sizeof(op), .result_size = sizeof(result),
		.op = addr(&op), .result = addr(&result),
	};
	uint64_t at_ptr = addr(&ptr), at_info = addr(&info), extra;
	struct io_uring big, small;
	struct io_uring_sqe *sqe;

	ASSERT_EQ(io_uring_queue_init(4, &big, IORING_SETUP_SQE128 | IORING_SETUP_CQE32), 0,
		  "a ring of 128-byte entries");
	ASSERT_EQ(io_uring_queue_init(4, &small, 0), 0, "a ring of 64-byte entries");
	op.layout_tag = 0xabcdef;
	prepare(&big, KVBLK_URING_OP, &op, sizeof(op));
	EXPECT_EQ(complete(&big, &extra), LEN, "put in an entry");
	EXPECT(extra & (KVBLK_RES_DIRECT | KVBLK_RES_BOUNCED), "the way");

	piece = piece_of(room, LEN);
	op = op_of(KVBLK_OP_GET, 5, &piece, 1);
	memset(room, 0, LEN);
	prepare(&small, KVBLK_URING_OP_PTR, &at_ptr, sizeof(at_ptr));
	EXPECT_EQ(complete(&small, NULL), LEN, "get by its address");
	EXPECT_EQ(result.res, LEN, "its result");
	EXPECT_EQ(result.layout_tag, 0xabcdef, "its layout tag");
	EXPECT(!memcmp(room, bytes, LEN), "its bytes");

	ASSERT_EQ(io_uring_register_buffers(&big, &iov, 1), 0, "a fixed buffer");
	op = op_of(KVBLK_OP_GET, 5, NULL, 0);
	op.pieces = addr(room);
	op.length = LEN;
	memset(room, 0, LEN);
	sqe = prepare(&big, KVBLK_URING_OP, &op, sizeof(op));
	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
	EXPECT_EQ(complete(&big, &extra), LEN, "get into a fixed buffer");
	EXPECT_EQ(extra >> 16, 0xabcdef, "its layout tag");
	EXPECT(!memcmp(room, bytes, LEN), "its bytes");

	prepare(&small, KVBLK_IOC_INFO, &at_info, sizeof(at_info));
	EXPECT_EQ(complete(&small, NULL), 0, "an ioctl");
	EXPECT_EQ(info.chunk_size, 65536, "what it brings");
	sqe = prepare(&big, KVBLK_URING_OP, &op, sizeof(op));
	sqe->len = 1;
	EXPECT_EQ(complete(&big, NULL), -EINVAL, "a field that is not used");
	EXPECT_EQ(run(KVBLK_OP_DELETE, 5, NULL, 0).res, 0, "delete");
	io_uring_queue_exit(&big);
	io_uring_queue_exit(&small);
}

static uint8_t *map(void)
{
	return mmap(NULL, 4 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s NODE [TEST...]\n", argv[0]);
		return KSFT_FAIL;
	}
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	bytes = map();
	room = map();
	if (fd < 0 || bytes == MAP_FAILED || room == MAP_FAILED) {
		perror(argv[1]);
		return KSFT_FAIL;
	}
	for (uint32_t i = 0; i < 4 * LEN; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 24);
	return kv_run_tests(argc - 2, argv + 2);
}
