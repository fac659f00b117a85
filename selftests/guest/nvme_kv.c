// SPDX-License-Identifier: GPL-2.0
/*
 * NVMe key-value commands on the NVMe node, through each path of the nvme driver: two forms of
 * the ioctl, vectors, commands of io_uring.
 *
 * usage: guest_nvme_kv NVME_NODE NODE [TEST...]
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <linux/nvme_ioctl.h>

#include "kv_test.h"
#include "kv_io.h"

#define STORE		0x01
#define RETRIEVE	0x02
#define LIST		0x06
#define DELETE		0x10
#define EXIST		0x14

#define INVALID_OPCODE	0x01
#define INVALID_FIELD	0x02
#define INVALID_NS	0x0b
#define ABORTED		0x07
#define DATA_LENGTH	0x0f
#define INTERRUPTED	0x21
#define VALUE_SIZE	0x85
#define KEY_SIZE	0x86
#define NO_KEY		0x87
#define KEY_EXISTS	0x89

#define MUST_EXIST	1
#define MUST_NOT_EXIST	2
#define UNCOMPRESSED	4

#define ROOM		(4ul << 20)

static const char *path, *native_path;
static int fd, native;
static uint8_t *bytes, *room;	/* ROOM bytes each */
static uint64_t next_key = 1;

enum way { IOCTL, IOCTL64, VECTOR, RING, SMALL_RING, RING_VECTOR, RING_FIXED, WAYS };

static const char *const way_names[] = {
	"ioctl", "ioctl64", "vector", "ring", "small ring", "ring's vector", "ring's buffer",
};

static struct io_uring rings[2];	/* with 32-byte completions, and with 16-byte ones */

static struct nvme_uring_cmd command(uint8_t opcode, const void *key, uint8_t len)
{
	struct nvme_uring_cmd cmd = { .opcode = opcode, .nsid = 1, .cdw11 = len };
	uint8_t whole[16] = { 0 };

	memcpy(whole, key, len < 16 ? len : 16);
	memcpy(&cmd.cdw2, whole, 4);
	memcpy(&cmd.cdw3, whole + 4, 4);
	memcpy(&cmd.cdw14, whole + 8, 4);
	memcpy(&cmd.cdw15, whole + 12, 4);
	return cmd;
}

static struct nvme_uring_cmd data_command(uint8_t opcode, const void *key, uint8_t len,
					  const void *data, uint32_t size)
{
	struct nvme_uring_cmd cmd = command(opcode, key, len);

	cmd.addr = kv_addr(data);
	cmd.data_len = size;
	cmd.cdw10 = size;
	return cmd;
}

static void ring_put(struct io_uring *ring, const struct nvme_uring_cmd *cmd, uint32_t op,
		     uint64_t data, bool fixed)
{
	struct io_uring_sqe *sqe = kv_sqe(ring, fd, op, data);

	memset(sqe->cmd, 0, 80);
	memcpy(sqe->cmd, cmd, sizeof(*cmd));
	/* ignored, but set by a known client */
	sqe->len = sizeof(*cmd);
	if (!fixed)
		return;
	sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
	/* index of the registered buffer that contains the address */
	sqe->buf_index = cmd->addr >= kv_addr(room) && cmd->addr < kv_addr(room + ROOM);
}

static int ring_run(struct io_uring *ring, const struct nvme_uring_cmd *cmd, uint32_t op,
		    uint64_t *result, bool fixed)
{
	ring_put(ring, cmd, op, 0, fixed);
	kv_ring_send(ring);
	return kv_cqe(ring, result).res;
}

/* Run @cmd in the form of path @way. Returns 0, an NVMe status, or -errno. */
static int run_at(int at, enum way way, const struct nvme_uring_cmd *cmd, uint64_t *result)
{
	struct nvme_passthru_cmd64 wide = { .result = ~0ull };
	struct nvme_passthru_cmd narrow = { .result = ~0u };
	struct nvme_uring_cmd copy = *cmd;
	struct iovec vec[4] = { { 0 } };
	int ret;

	*result = 0;
	if ((way == VECTOR || way == RING_VECTOR) && cmd->data_len) {
		vec[0].iov_base = (void *)(uintptr_t)cmd->addr;
		vec[0].iov_len = cmd->data_len / 3;
		vec[2].iov_base = (uint8_t *)vec[0].iov_base + vec[0].iov_len;
		vec[2].iov_len = cmd->data_len - vec[0].iov_len;
		copy.addr = kv_addr(vec);
		copy.data_len = 3;
	}
	memcpy(&wide, &copy, offsetof(struct nvme_passthru_cmd64, rsvd2));
	memcpy(&narrow, &copy, offsetof(struct nvme_passthru_cmd, result));
	switch (way) {
	case IOCTL:
		ret = ioctl(at, NVME_IOCTL_IO_CMD, &narrow);
		*result = narrow.result;
		return ret < 0 ? -errno : ret;
	case IOCTL64:
	case VECTOR:
		ret = ioctl(at, way == VECTOR ? NVME_IOCTL_IO64_CMD_VEC : NVME_IOCTL_IO64_CMD,
			    &wide);
		*result = wide.result;
		return ret < 0 ? -errno : ret;
	case RING:
		return ring_run(&rings[0], &copy, NVME_URING_CMD_IO, result, false);
	case SMALL_RING:
		return ring_run(&rings[1], &copy, NVME_URING_CMD_IO, NULL, false);
	case RING_VECTOR:
		return ring_run(&rings[0], &copy, NVME_URING_CMD_IO_VEC, result, false);
	default:
		return ring_run(&rings[0], &copy, NVME_URING_CMD_IO, result,
				cmd->data_len);
	}
}

static int run(enum way way, const struct nvme_uring_cmd *cmd, uint64_t *result)
{
	return run_at(fd, way, cmd, result);
}

static int store(enum way way, uint64_t nr, uint64_t tag, uint32_t len, uint8_t options)
{
	struct kv_key key = kv_key(nr * 8);
	struct nvme_uring_cmd cmd = data_command(STORE, key.bytes, 16, bytes, len);
	uint64_t result;

	kv_fill(kv_seed(nr, tag), 0, bytes, len);
	cmd.cdw11 |= options << 8;
	return run(way, &cmd, &result);
}

/* Retrieve block @nr into @size bytes of @room; check that nothing behind them is written. */
static int retrieve(enum way way, uint64_t nr, uint32_t size, uint64_t *result)
{
	struct kv_key key = kv_key(nr * 8);
	struct nvme_uring_cmd cmd = data_command(RETRIEVE, key.bytes, 16, room, size);
	int ret;

	memset(room, KV_UNTOUCHED, size + PAGE);
	ret = run(way, &cmd, result);
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, room + size, PAGE), -1, "behind the room");
	return ret;
}

static int simple(enum way way, uint8_t opcode, uint64_t nr)
{
	struct kv_key key = kv_key(nr * 8);
	struct nvme_uring_cmd cmd = command(opcode, key.bytes, 16);
	uint64_t result;

	return run(way, &cmd, &result);
}

static void expect_block(enum way way, uint64_t nr, uint64_t tag, uint32_t len)
{
	uint64_t result;

	EXPECT_EQ(retrieve(way, nr, len + 100, &result), 0, "%s: retrieve", way_names[way]);
	EXPECT_EQ(kv_wrong(kv_seed(nr, tag), 0, room, len), -1, "%s: bytes", way_names[way]);
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, room + len, 100), -1, "%s: the rest",
		  way_names[way]);
	if (way != SMALL_RING)
		EXPECT_EQ(result, len, "%s: the length", way_names[way]);
}

TEST(each_opcode)
{
	static const uint32_t lens[] = { 1, 511, 4096, 270336, 1048577 };
	uint64_t result;

	for (enum way way = 0; way < WAYS; way++) {
		for (unsigned int i = 0; i < ARRAY_SIZE(lens); i++) {
			uint32_t len = lens[i];
			uint64_t nr = next_key++;

			EXPECT_EQ(simple(way, EXIST, nr), NO_KEY, "%s: exists before", way_names[way]);
			EXPECT_EQ(retrieve(way, nr, len, &result), NO_KEY, "%s: a miss",
				  way_names[way]);
			EXPECT_EQ(kv_other_than(KV_UNTOUCHED, room, len), -1, "%s: a miss writes",
				  way_names[way]);
			EXPECT_EQ(simple(way, DELETE, nr), NO_KEY, "%s: delete of none",
				  way_names[way]);
			EXPECT_EQ(store(way, nr, 1, len, 0), 0, "%s: store of %u", way_names[way],
				  len);
			EXPECT_EQ(simple(way, EXIST, nr), 0, "%s: exists", way_names[way]);
			expect_block(way, nr, 1, len);
			EXPECT_EQ(simple(way, DELETE, nr), 0, "%s: delete", way_names[way]);
			EXPECT_EQ(simple(way, EXIST, nr), NO_KEY, "%s: exists after delete",
				  way_names[way]);
		}
	}
	PASSED("store, retrieve, exist, delete by %d ways", WAYS);
}

TEST(short_buffers)
{
	static const uint32_t sizes[] = { 1, 4095, 4096, 65536, 65537, 299999 };
	const uint32_t len = 300000;
	uint64_t nr = next_key++, result;

	ASSERT_EQ(store(IOCTL, nr, 1, len, 0), 0, "store");
	for (enum way way = 0; way < WAYS; way++) {
		for (unsigned int i = 0; i < ARRAY_SIZE(sizes); i++) {
			EXPECT_EQ(retrieve(way, nr, sizes[i], &result), 0, "%s: into %u",
				  way_names[way], sizes[i]);
			EXPECT_EQ(kv_wrong(kv_seed(nr, 1), 0, room, sizes[i]), -1, "%s: bytes of %u",
				  way_names[way], sizes[i]);
			if (way != SMALL_RING)
				EXPECT_EQ(result, len, "%s: the whole length", way_names[way]);
		}
		EXPECT_EQ(retrieve(way, nr, 0, &result), 0, "%s: into nothing", way_names[way]);
		if (way != SMALL_RING)
			EXPECT_EQ(result, len, "%s: the length alone", way_names[way]);
	}
	EXPECT_EQ(retrieve(IOCTL, next_key++, 0, &result), NO_KEY, "the length of none");
	simple(IOCTL, DELETE, nr);
}

TEST(replace)
{
	static const uint32_t lens[] = { 5000, 100, 1 << 20, 1 << 20, 77777 };

	for (enum way way = 0; way < WAYS; way++) {
		uint64_t nr = next_key++;

		for (unsigned int i = 0; i < ARRAY_SIZE(lens); i++) {
			EXPECT_EQ(store(way, nr, i, lens[i], 0), 0, "%s: store %u", way_names[way],
				  i);
			expect_block(way, nr, i, lens[i]);
		}
		EXPECT_EQ(simple(way, DELETE, nr), 0, "%s: delete", way_names[way]);
		EXPECT_EQ(simple(way, EXIST, nr), NO_KEY, "%s: an older one is back",
			  way_names[way]);
	}
}

TEST(store_options)
{
	for (enum way way = 0; way < WAYS; way++) {
		uint64_t nr = next_key++;

		EXPECT_EQ(store(way, nr, 1, 5000, MUST_EXIST), NO_KEY, "%s: must exist",
			  way_names[way]);
		EXPECT_EQ(simple(way, EXIST, nr), NO_KEY, "%s: it was stored", way_names[way]);
		EXPECT_EQ(store(way, nr, 2, 5000, MUST_NOT_EXIST), 0, "%s: must not exist",
			  way_names[way]);
		EXPECT_EQ(store(way, nr, 3, 6000, MUST_NOT_EXIST), KEY_EXISTS,
			  "%s: must not exist, and does", way_names[way]);
		expect_block(way, nr, 2, 5000);
		EXPECT_EQ(store(way, nr, 4, 7000, MUST_EXIST | UNCOMPRESSED), 0,
			  "%s: must exist, and does", way_names[way]);
		expect_block(way, nr, 4, 7000);
		EXPECT_EQ(store(way, nr, 5, 7000, MUST_EXIST | MUST_NOT_EXIST), INVALID_FIELD,
			  "%s: both", way_names[way]);
		expect_block(way, nr, 4, 7000);
		simple(way, DELETE, nr);
	}
}

TEST(key_lengths)
{
	const uint8_t key[17] = "0123456789abcdef";
	struct nvme_uring_cmd cmd;
	uint64_t result;

	/* keys of 1 to 16 bytes, each a prefix of the next */
	for (unsigned int len = 1; len <= 16; len++) {
		bytes[0] = (uint8_t)len;
		cmd = data_command(STORE, key, (uint8_t)len, bytes, 1);
		EXPECT_EQ(run(IOCTL, &cmd, &result), 0, "store under %u bytes", len);
	}
	for (unsigned int len = 1; len <= 16; len++) {
		cmd = data_command(RETRIEVE, key, (uint8_t)len, room, 1);
		EXPECT_EQ(run(IOCTL, &cmd, &result), 0, "retrieve by %u bytes", len);
		EXPECT_EQ(room[0], len, "the block of %u bytes", len);
		/* bytes behind the key are ignored */
		if (len < 13)
			cmd.cdw15 = 0xffffffff;
		EXPECT_EQ(run(IOCTL, &cmd, &result), 0, "bytes behind a key of %u", len);
		cmd = command(DELETE, key, (uint8_t)len);
		EXPECT_EQ(run(IOCTL, &cmd, &result), 0, "delete of %u bytes", len);
	}
	for (enum way way = 0; way < WAYS; way++) {
		static const uint8_t bad[] = { 0, 17, 18, 255 };

		for (unsigned int i = 0; i < ARRAY_SIZE(bad); i++) {
			cmd = command(EXIST, key, bad[i]);
			EXPECT_EQ(run(way, &cmd, &result), KEY_SIZE, "%s: exist, %u bytes",
				  way_names[way], bad[i]);
			cmd = command(DELETE, key, bad[i]);
			EXPECT_EQ(run(way, &cmd, &result), KEY_SIZE, "%s: delete, %u bytes",
				  way_names[way], bad[i]);
			cmd = data_command(STORE, key, bad[i], bytes, 10);
			EXPECT_EQ(run(way, &cmd, &result), KEY_SIZE, "%s: store, %u bytes",
				  way_names[way], bad[i]);
			cmd = data_command(RETRIEVE, key, bad[i], room, 10);
			EXPECT_EQ(run(way, &cmd, &result), KEY_SIZE, "%s: retrieve, %u bytes",
				  way_names[way], bad[i]);
		}
	}
}

/* The native node neither finds, changes nor removes blocks of this node, under any key or tag. */
TEST(key_space)
{
	struct kv_key key = kv_key(next_key++ * 8), prefixed = { .len = 24 };
	struct nvme_uring_cmd cmd = data_command(STORE, key.bytes, 16, bytes, 1000);
	struct kvblk_piece put = kv_piece(bytes + 5000, 2000), get = kv_piece(room, 2000);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &put, 1);
	struct kvblk_op_ext ext;
	uint64_t result;

	ASSERT_EQ(run(IOCTL, &cmd, &result), 0, "store");
	/* version 1 reserved this tag for this node, and the prefix below */
	kv_tags(&op, &ext, 0, 0x766b2d656d766e);
	EXPECT_EQ(kv_one(native, &op).res, 2000, "a put of the same key elsewhere");
	cmd = data_command(RETRIEVE, key.bytes, 16, room, 2000);
	EXPECT_EQ(run(IOCTL, &cmd, &result), 0, "retrieve");
	EXPECT_EQ(result, 1000, "its length");
	EXPECT(!memcmp(room, bytes, 1000), "its bytes");
	memcpy(prefixed.bytes, "nvme-kv", 8);
	memcpy(prefixed.bytes + 8, key.bytes, 16);
	op = kv_op(KVBLK_OP_GET, &prefixed, &get, 1);
	EXPECT_EQ(kv_one(native, &op).res, -ENOENT, "a get of the prefixed key");
	op = kv_op(KVBLK_OP_DELETE, &prefixed, NULL, 0);
	EXPECT_EQ(kv_one(native, &op).res, -ENOENT, "a delete of the prefixed key");
	cmd = command(DELETE, key.bytes, 16);
	EXPECT_EQ(run(IOCTL, &cmd, &result), 0, "delete");
	op = kv_op(KVBLK_OP_GET, &key, &get, 1);
	EXPECT_EQ(kv_one(native, &op).res, 2000, "the other block is there");
	op = kv_op(KVBLK_OP_DELETE, &key, NULL, 0);
	EXPECT_EQ(kv_one(native, &op).res, 0, "delete of the other block");
}

static const struct bad {
	const char *name;
	uint8_t opcode;
	size_t at, size;
	uint64_t value;
	int want;
} bads[] = {
#define F(field)	offsetof(struct nvme_uring_cmd, field), \
			sizeof(((struct nvme_uring_cmd *)0)->field)
	{ "flags", STORE, F(flags), 1, -EINVAL },
	{ "flags", RETRIEVE, F(flags), 0x80, -EINVAL },
	{ "namespace 0", STORE, F(nsid), 0, -EINVAL },
	{ "namespace 2", RETRIEVE, F(nsid), 2, -EINVAL },
	{ "all namespaces", EXIST, F(nsid), 0xffffffff, -EINVAL },
	{ "metadata", STORE, F(metadata), 0x1000, INVALID_FIELD },
	{ "metadata", EXIST, F(metadata), 1, INVALID_FIELD },
	{ "metadata's length", RETRIEVE, F(metadata_len), 8, INVALID_FIELD },
	{ "a reserved option", STORE, F(cdw11), 16 | 8 << 8, INVALID_FIELD },
	{ "a reserved option", STORE, F(cdw11), 16 | 0x80 << 8, INVALID_FIELD },
	{ "a reserved option", RETRIEVE, F(cdw11), 16 | 2 << 8, INVALID_FIELD },
	{ "an option", DELETE, F(cdw11), 16 | 1 << 8, INVALID_FIELD },
	{ "an option", EXIST, F(cdw11), 16 | 1 << 8, INVALID_FIELD },
	{ "reserved bits", STORE, F(cdw11), 16 | 1 << 16, INVALID_FIELD },
	{ "reserved bits", EXIST, F(cdw11), 16 | 1u << 31, INVALID_FIELD },
	{ "data", DELETE, F(data_len), 4096, INVALID_FIELD },
	{ "an address", EXIST, F(addr), 4096, INVALID_FIELD },
	{ "an option", LIST, F(cdw11), 16 | 1 << 8, INVALID_FIELD },
	{ "metadata", LIST, F(metadata_len), 1, INVALID_FIELD },
	{ "no room", LIST, F(cdw10), 0, INVALID_FIELD },
	{ "little room", LIST, F(cdw10), 23, INVALID_FIELD },
	{ "less data than room", LIST, F(cdw10), 4097, DATA_LENGTH },
	{ "a key of 17 bytes", LIST, F(cdw11), 17, KEY_SIZE },
	{ "no memory", LIST, F(addr), 4096, -EFAULT },
	{ "no value", STORE, F(cdw10), 0, VALUE_SIZE },
	{ "a value of 64 MiB and a byte", STORE, F(cdw10), (64 << 20) + 1, VALUE_SIZE },
	{ "a value of 4 GiB", STORE, F(cdw10), 0xffffffff, VALUE_SIZE },
	{ "less data than value", STORE, F(cdw10), 4097, DATA_LENGTH },
	{ "less data than room", RETRIEVE, F(cdw10), 4097, DATA_LENGTH },
	{ "much less data than room", RETRIEVE, F(cdw10), 0xffffffff, DATA_LENGTH },
};

/* Run on all paths but vectors, where data_len has another meaning. */
TEST(bad_fields)
{
	struct kv_key key = kv_key(next_key * 8);
	uint64_t nr = next_key++, result;

	ASSERT_EQ(store(IOCTL, nr, 1, 4096, 0), 0, "store");
	for (enum way way = 0; way < WAYS; way++) {
		if (way == VECTOR || way == RING_VECTOR || way == RING_FIXED)
			continue;
		for (unsigned int i = 0; i < ARRAY_SIZE(bads); i++) {
			const struct bad *bad = &bads[i];
			struct nvme_uring_cmd cmd = bad->opcode < DELETE ?
				data_command(bad->opcode, key.bytes, 16, room, 4096) :
				command(bad->opcode, key.bytes, 16);

			memcpy((uint8_t *)&cmd + bad->at, &bad->value, bad->size);
			EXPECT_EQ(run(way, &cmd, &result), bad->want, "%s: %s of %#x",
				  way_names[way], bad->name, bad->opcode);
		}
		for (unsigned int opcode = 0; opcode < 256; opcode++) {
			struct nvme_uring_cmd cmd = command((uint8_t)opcode, key.bytes, 16);

			if (opcode == STORE || opcode == RETRIEVE || opcode == LIST ||
			    opcode == DELETE || opcode == EXIST)
				continue;
			EXPECT_EQ(run(way, &cmd, &result), INVALID_OPCODE, "%s: opcode %#x",
				  way_names[way], opcode);
		}
		expect_block(way, nr, 1, 4096);
	}
	simple(IOCTL, DELETE, nr);
}

TEST(bad_memory)
{
	uint8_t *hole = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kv_key key = kv_key(next_key * 8);
	uint64_t nr = next_key++, result;
	struct nvme_uring_cmd cmd;

	munmap(hole + PAGE, PAGE);
	for (enum way way = 0; way < WAYS; way++) {
		if (way == RING_FIXED)
			continue;
		cmd = data_command(STORE, key.bytes, 16, hole, 2 * PAGE);
		EXPECT_EQ(run(way, &cmd, &result), -EFAULT, "%s: store of a hole", way_names[way]);
		EXPECT_EQ(simple(way, EXIST, nr), NO_KEY, "%s: it is there", way_names[way]);
		cmd.addr = 0xffffffff00000000ull;
		EXPECT_EQ(run(way, &cmd, &result), -EFAULT, "%s: store of the kernel's",
			  way_names[way]);
	}
	ASSERT_EQ(store(IOCTL, nr, 1, 2 * PAGE, 0), 0, "store");
	for (enum way way = 0; way < WAYS; way++) {
		if (way == RING_FIXED)
			continue;
		cmd = data_command(RETRIEVE, key.bytes, 16, hole, 2 * PAGE);
		EXPECT_EQ(run(way, &cmd, &result), -EFAULT, "%s: retrieve into a hole",
			  way_names[way]);
		EXPECT_EQ(kv_leaked(hole, PAGE), -1, "%s: bytes", way_names[way]);
		expect_block(way, nr, 1, 2 * PAGE);
	}
	simple(IOCTL, DELETE, nr);
	EXPECT_EQ(ioctl(fd, NVME_IOCTL_IO_CMD, NULL), -1, "no command");
	EXPECT_EQ(errno, EFAULT, "no command");
	munmap(hole, PAGE);
}

TEST(bad_vectors)
{
	struct kv_key key = kv_key(next_key * 8);
	struct nvme_passthru_cmd64 wide;
	struct iovec *vec = calloc(1025, sizeof(*vec));
	uint64_t nr = next_key++;
	const struct {
		const char *name;
		const void *addr;
		uint32_t nr, size;
		int want;
	} cases[] = {
		{ "none", vec, 0, 4096, DATA_LENGTH },
		{ "too many", vec, 1025, 4096, DATA_LENGTH },
		{ "too little", vec, 4, 4097, DATA_LENGTH },
		{ "all empty", vec + 4, 100, 4096, DATA_LENGTH },
		{ "no memory", (void *)4096, 4, 4096, -EFAULT },
		{ "enough", vec, 1024, 4096, 0 },
	};

	for (unsigned int i = 0; i < 4; i++)
		vec[i] = (struct iovec){ bytes + i * 2000, 1024 };
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		struct nvme_uring_cmd cmd = data_command(STORE, key.bytes, 16, cases[i].addr,
							 cases[i].size);
		int ret;

		cmd.data_len = cases[i].nr;
		memset(&wide, 0, sizeof(wide));
		memcpy(&wide, &cmd, sizeof(cmd));
		ret = ioctl(fd, NVME_IOCTL_IO64_CMD_VEC, &wide);
		EXPECT_EQ(ret < 0 ? -errno : ret, cases[i].want, "%s", cases[i].name);
		EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_IO_VEC, NULL, false),
			  cases[i].want, "%s, of a ring", cases[i].name);
		EXPECT_EQ(simple(IOCTL, EXIST, nr), cases[i].want ? NO_KEY : 0, "%s: there",
			  cases[i].name);
	}
	simple(IOCTL, DELETE, nr);
	free(vec);
}

/* A store with bad data leaves the block that it would replace unchanged. */
TEST(failed_stores)
{
	uint8_t *hole = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t longest = kv_info(native).value_max, len = 5000;
	struct iovec vecs[2] = { { bytes, 100 }, { bytes + 100, 3995 } };
	struct kv_key key = kv_key(next_key * 8);
	uint64_t nr = next_key++;
	const struct {
		const char *name;
		const void *addr;
		uint32_t op, size, data_len;
		bool fixed;
		int want;
	} cases[] = {
		{ "a hole", hole, NVME_URING_CMD_IO, 2 * PAGE, 2 * PAGE, false, -EFAULT },
		{ "the kernel's", (void *)0xffffffff00000000ull, NVME_URING_CMD_IO, 4096, 4096,
		  false, -EFAULT },
		{ "too long", bytes, NVME_URING_CMD_IO, longest + 1, longest + 1, false, VALUE_SIZE },
		{ "less data", bytes, NVME_URING_CMD_IO, 4097, 4096, false, DATA_LENGTH },
		{ "no vectors", (void *)4096, NVME_URING_CMD_IO_VEC, 4096, 2, false, -EFAULT },
		{ "short vectors", vecs, NVME_URING_CMD_IO_VEC, 4096, 2, false, DATA_LENGTH },
		{ "not in the ring's buffer", hole, NVME_URING_CMD_IO, 4096, 4096, true, -EFAULT },
	};

	ASSERT(longest < 64u << 20, "the pool takes %u bytes", longest);
	munmap(hole + PAGE, PAGE);
	ASSERT_EQ(store(IOCTL, nr, 1, len, 0), 0, "store");
	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		for (uint8_t options = 0; options <= MUST_EXIST; options++) {
			struct nvme_uring_cmd cmd = data_command(STORE, key.bytes, 16, cases[i].addr,
								 cases[i].size);
			struct nvme_passthru_cmd64 wide = { 0 };
			bool vec = cases[i].op == NVME_URING_CMD_IO_VEC;
			int ret;

			cmd.data_len = cases[i].data_len;
			cmd.cdw11 |= options << 8;
			ret = ring_run(&rings[0], &cmd, cases[i].op, NULL, cases[i].fixed);
			EXPECT_EQ(ret, cases[i].want, "%s, of a ring", cases[i].name);
			expect_block(RING, nr, 1, len);
			if (cases[i].fixed)
				continue;
			memcpy(&wide, &cmd, sizeof(cmd));
			ret = ioctl(fd, vec ? NVME_IOCTL_IO64_CMD_VEC : NVME_IOCTL_IO64_CMD, &wide);
			EXPECT_EQ(ret < 0 ? -errno : ret, cases[i].want, "%s", cases[i].name);
			expect_block(IOCTL, nr, 1, len);
		}
	}
	simple(IOCTL, DELETE, nr);
	munmap(hole, PAGE);
}

static void *delete_it(void *arg)
{
	return (void *)(intptr_t)simple(IOCTL64, DELETE, *(uint64_t *)arg);
}

/* A store with "must exist" does not bring back a block that is deleted meanwhile. */
TEST(store_meets_delete)
{
	unsigned int both = 0, late = 0;
	uint64_t nr = next_key++, end = kv_now_ms() + 2000;

	while (kv_now_ms() < end) {
		pthread_t thread;
		void *deleted;
		int stored;

		ASSERT_EQ(store(IOCTL, nr, 1, 5000, 0), 0, "store");
		ASSERT(!pthread_create(&thread, NULL, delete_it, &nr), "pthread_create");
		stored = store(IOCTL, nr, 2, 5000, MUST_EXIST);
		pthread_join(thread, &deleted);
		EXPECT(!stored || stored == NO_KEY, "store: %d", stored);
		if (!(intptr_t)deleted)
			EXPECT_EQ(simple(IOCTL, EXIST, nr), NO_KEY, "it is back");
		both += !stored && !(intptr_t)deleted;
		late += stored == NO_KEY;
		simple(IOCTL, DELETE, nr);
	}
	PASSED("%u deleted what was stored, %u were first", both, late);
}

TEST(other_ioctls)
{
	struct nvme_user_io io = { .opcode = RETRIEVE };
	struct kvblk_info info = { .size = sizeof(info) };
	struct nvme_passthru_cmd cmd = { .opcode = EXIST, .nsid = 1 };

	EXPECT_EQ(ioctl(fd, NVME_IOCTL_ID), 1, "the namespace");
	EXPECT_EQ(kv_ioctl(fd, NVME_IOCTL_SUBMIT_IO, &io), -ENOTTY, "I/O of blocks");
	EXPECT_EQ(kv_ioctl(fd, NVME_IOCTL_RESET, NULL), -ENOTTY, "reset");
	EXPECT_EQ(kv_ioctl(fd, NVME_IOCTL_RESCAN, NULL), -ENOTTY, "rescan");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, &info), -ENOTTY, "kvblk's own");
	EXPECT_EQ(kv_ioctl(native, NVME_IOCTL_IO_CMD, &cmd), -ENOTTY, "on the other node");
	EXPECT_EQ(kv_ioctl(native, NVME_IOCTL_ID, NULL), -ENOTTY, "on the other node");
}

/*
 * For 32-bit callers the nvme driver takes 32 bits of an address and no vectors, because their
 * iovec differs.
 */
TEST(callers_of_32_bits)
{
	struct low {
		struct nvme_passthru_cmd narrow;
		struct nvme_passthru_cmd64 wide;
		uint8_t data[3 * PAGE];
	} *low = kv_alloc_low(sizeof(*low));
	struct kv_key key = kv_key(next_key++ * 8);
	struct nvme_uring_cmd cmd = data_command(STORE, key.bytes, 16, low->data, 2 * PAGE);
	uint64_t garbage = 0xabcull << 32;

	if (kv_ioctl32(fd, NVME_IOCTL_ID, NULL) == -ENOSYS)
		SKIP("this kernel has no programs of 32 bits");
	EXPECT_EQ(kv_ioctl32(fd, NVME_IOCTL_ID, NULL), 1, "the namespace");
	EXPECT_EQ(kv_ioctl32(fd, NVME_IOCTL_RESET, NULL), -ENOTTY, "reset");
	kv_fill(7, 0, low->data, 2 * PAGE);
	cmd.addr |= garbage;
	memcpy(&low->narrow, &cmd, offsetof(struct nvme_passthru_cmd, result));
	EXPECT_EQ(kv_ioctl(fd, NVME_IOCTL_IO_CMD, &low->narrow), -EFAULT, "of 64 bits");
	EXPECT_EQ(kv_ioctl32(fd, NVME_IOCTL_IO_CMD, &low->narrow), 0, "store");
	memset(low->data, KV_UNTOUCHED, sizeof(low->data));
	cmd = data_command(RETRIEVE, key.bytes, 16, low->data, sizeof(low->data));
	cmd.addr |= garbage;
	memcpy(&low->wide, &cmd, offsetof(struct nvme_passthru_cmd64, rsvd2));
	EXPECT_EQ(kv_ioctl32(fd, NVME_IOCTL_IO64_CMD, &low->wide), 0, "retrieve");
	EXPECT_EQ(low->wide.result, 2 * PAGE, "its length");
	EXPECT_EQ(kv_wrong(7, 0, low->data, 2 * PAGE), -1, "its bytes");
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, low->data + 2 * PAGE, PAGE), -1, "behind it");
	low->wide.vec_cnt = 1;
	EXPECT_EQ(kv_ioctl32(fd, NVME_IOCTL_IO64_CMD_VEC, &low->wide), -EOPNOTSUPP, "a vector");
	cmd = command(DELETE, key.bytes, 16);
	memcpy(&low->narrow, &cmd, offsetof(struct nvme_passthru_cmd, result));
	EXPECT_EQ(kv_ioctl32(fd, NVME_IOCTL_IO_CMD, &low->narrow), 0, "delete");
	munmap(low, (sizeof(*low) + PAGE - 1) / PAGE * PAGE);
}

TEST(bad_ring_commands)
{
	struct kv_key key = kv_key(next_key++ * 8);
	struct nvme_uring_cmd cmd = command(EXIST, key.bytes, 16);
	struct kvblk_piece put = kv_piece(bytes, 4096);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &key, &put, 1);
	struct kvblk_result result;
	struct kvblk_submit_arg submit = {
		.size = sizeof(submit), .nr_ops = 1, .op_size = sizeof(op),
		.result_size = sizeof(result), .ops = kv_addr(&op), .results = kv_addr(&result),
	};
	struct io_uring narrow;

	ASSERT_EQ(io_uring_queue_init(4, &narrow, 0), 0, "a ring of small entries");
	kv_sqe_addr(&narrow, fd, NVME_URING_CMD_IO, &cmd, 0);
	kv_ring_send(&narrow);
	EXPECT_EQ(kv_cqe(&narrow, NULL).res, -EOPNOTSUPP, "a small entry");
	kv_sqe_addr(&narrow, fd, KVBLK_URING_SUBMIT, &submit, 0);
	kv_ring_send(&narrow);
	EXPECT(kv_cqe(&narrow, NULL).res < 0, "a batch of kvblk's own");
	io_uring_queue_exit(&narrow);
	EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_ADMIN_VEC, NULL, false), -ENOTTY,
		  "vectors of an admin command");
	EXPECT_EQ(ring_run(&rings[0], &cmd, 0, NULL, false), -ENOTTY, "command 0");
	EXPECT_EQ(ring_run(&rings[0], &cmd, KVBLK_URING_OP, NULL, false), -ENOTTY,
		  "an operation of kvblk's own");
	cmd = data_command(STORE, key.bytes, 16, bytes, 4096);
	EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_IO_VEC, NULL, true), -EOPNOTSUPP,
		  "vectors in a ring's buffer");
	cmd.addr = kv_addr(native_path);
	EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_IO, NULL, true), -EFAULT,
		  "not in the ring's buffer");
	EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_ADMIN, NULL, true), -EOPNOTSUPP,
		  "an admin command into a ring's buffer");
	cmd = data_command(LIST, key.bytes, 0, room, 4096);
	memset(room, KV_UNTOUCHED, PAGE);
	EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_IO, NULL, true), -EOPNOTSUPP,
		  "a list into a ring's buffer");
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, room, PAGE), -1, "it was written");
	cmd = data_command(RETRIEVE, key.bytes, 16, room, 0);
	EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_IO, NULL, true), -EOPNOTSUPP,
		  "nothing into a ring's buffer");
	cmd = command(EXIST, key.bytes, 16);
	EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_IO, NULL, true), -EOPNOTSUPP,
		  "exist with a ring's buffer");
	cmd = command(DELETE, key.bytes, 16);
	EXPECT_EQ(ring_run(&rings[0], &cmd, NVME_URING_CMD_IO, NULL, true), -EOPNOTSUPP,
		  "delete with a ring's buffer");
}

TEST(many_in_flight)
{
	const uint32_t nr = 64, len = 65536 - 512;
	uint64_t first = next_key, extra;
	struct nvme_uring_cmd cmd;

	next_key += nr;
	for (unsigned int i = 0; i < nr; i++) {
		struct kv_key key = kv_key((first + i) * 8);

		kv_fill(kv_seed(first + i, 9), 0, bytes + i * 65536, len);
		cmd = data_command(STORE, key.bytes, 16, bytes + i * 65536, len);
		cmd.timeout_ms = 30000;
		cmd.cdw11 |= MUST_NOT_EXIST << 8;
		/* ignored, but set by a known client */
		cmd.cdw12 = len / 512 - 1;
		ring_put(&rings[0], &cmd, NVME_URING_CMD_IO, i, false);
	}
	kv_ring_send(&rings[0]);
	for (unsigned int i = 0; i < nr; i++)
		EXPECT_EQ(kv_cqe(&rings[0], NULL).res, 0, "store");
	memset(room, KV_UNTOUCHED, nr * 65536ul);
	for (unsigned int i = 0; i < nr; i++) {
		struct kv_key key = kv_key((first + i) * 8);

		cmd = data_command(RETRIEVE, key.bytes, 16, room + i * 65536, 65536);
		ring_put(&rings[0], &cmd, NVME_URING_CMD_IO, i, false);
	}
	kv_ring_send(&rings[0]);
	for (unsigned int i = 0; i < nr; i++) {
		struct kv_cqe cqe = kv_cqe(&rings[0], &extra);

		EXPECT_EQ(cqe.res, 0, "retrieve");
		EXPECT_EQ(extra, len, "its length");
		EXPECT_EQ(kv_wrong(kv_seed(first + cqe.user_data, 9), 0,
				   room + cqe.user_data * 65536, len), -1, "its bytes");
	}
	for (unsigned int i = 0; i < nr; i++)
		EXPECT_EQ(simple(IOCTL, DELETE, first + i), 0, "delete");
}

#define SHARED		6u
#define SHARED_LEN	70000u
#define THREADS		4u

struct meeting {
	pthread_t thread;
	uint64_t seed, first;
	unsigned int stored, met, got, missed;
};

/* Check a block's length and bytes against the version in its first word. */
static void shared_check(const uint8_t *block, uint64_t nr, uint64_t len)
{
	uint64_t version;

	memcpy(&version, block, 8);
	EXPECT_EQ(len, 1000 + version % (SHARED_LEN - 1000), "the length of version %#llx",
		  (unsigned long long)version);
	EXPECT_EQ(kv_wrong(kv_seed(nr, version), 8, block + 8, len - 8), -1,
		  "bytes of version %#llx", (unsigned long long)version);
}

static void *meet(void *arg)
{
	struct meeting *me = arg;
	uint8_t *block = kv_alloc_host(SHARED_LEN);
	uint64_t end = kv_now_ms() + 3000;

	while (kv_now_ms() < end) {
		uint64_t nr = me->first + kv_below(&me->seed, SHARED), result, version;
		uint64_t what = kv_below(&me->seed, 10);
		enum way way = kv_below(&me->seed, 3) ? RING : IOCTL64;
		struct kv_key key = kv_key(nr * 8);
		struct nvme_uring_cmd cmd = command(DELETE, key.bytes, 16);
		uint32_t len = SHARED_LEN;
		int ret;

		if (what < 4) {
			version = kv_random(&me->seed);
			len = (uint32_t)(1000 + version % (SHARED_LEN - 1000));
			kv_fill(kv_seed(nr, version), 0, block, len);
			memcpy(block, &version, 8);
			cmd = data_command(STORE, key.bytes, 16, block, len);
		} else if (what < 9) {
			cmd = data_command(RETRIEVE, key.bytes, 16, block, len);
		}
		ret = way == RING ? ring_run(kv_ring(), &cmd, NVME_URING_CMD_IO, &result, false) :
				    run(way, &cmd, &result);
		if (cmd.opcode == RETRIEVE) {
			EXPECT(!ret || ret == NO_KEY, "retrieve: %d", ret);
			if (!ret)
				shared_check(block, nr, result);
			me->got += !ret;
			me->missed += ret != 0;
		} else if (cmd.opcode == STORE) {
			EXPECT(!ret || ret == INTERRUPTED, "store: %d", ret);
			me->stored += !ret;
			me->met += ret != 0;
		} else {
			EXPECT(!ret || ret == NO_KEY || ret == INTERRUPTED, "delete: %d", ret);
		}
	}
	return NULL;
}

TEST(threads)
{
	struct meeting all[THREADS] = { { 0 } };
	uint64_t seed = kv_run_seed();
	struct meeting sum = { 0 };

	for (unsigned int i = 0; i < THREADS; i++) {
		all[i].first = next_key;
		all[i].seed = kv_mix(seed + i);
		ASSERT(!pthread_create(&all[i].thread, NULL, meet, &all[i]), "pthread_create");
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		pthread_join(all[i].thread, NULL);
		sum.stored += all[i].stored;
		sum.met += all[i].met;
		sum.got += all[i].got;
		sum.missed += all[i].missed;
	}
	EXPECT(sum.stored && sum.got && sum.missed, "%u stored, %u got, %u missed", sum.stored,
	       sum.got, sum.missed);
	for (unsigned int i = 0; i < SHARED; i++)
		simple(IOCTL, DELETE, next_key++);
	PASSED("%u stored, %u met another one, %u got, %u missed", sum.stored, sum.met, sum.got,
	       sum.missed);
}

/* Commands permitted to an unprivileged process, by open mode. */
TEST(open_modes)
{
	static const struct {
		int mode;
		int store, retrieve;
	} cases[] = {
		{ O_RDONLY, -EACCES, 0 }, { O_WRONLY, 0, -EACCES }, { O_RDWR, 0, 0 },
	};
	struct kv_key key = kv_key(next_key * 8);
	uint64_t nr = next_key++, result;
	struct nvme_uring_cmd put = data_command(STORE, key.bytes, 16, bytes, 4096);
	struct nvme_uring_cmd get = data_command(RETRIEVE, key.bytes, 16, room, 4096);
	struct nvme_uring_cmd exist = command(EXIST, key.bytes, 16);
	struct nvme_uring_cmd delete = command(DELETE, key.bytes, 16);
	int status;

	for (unsigned int i = 0; i < ARRAY_SIZE(cases); i++) {
		int at = open(path, cases[i].mode | O_CLOEXEC);
		pid_t child;

		ASSERT(at >= 0, "open: %s", strerror(errno));
		ASSERT_EQ(store(IOCTL, nr, 1, 4096, 0), 0, "store");
		EXPECT_EQ(run_at(at, IOCTL, &put, &result), 0, "root's store, mode %d", cases[i].mode);
		EXPECT_EQ(run_at(at, IOCTL, &get, &result), 0, "root's retrieve");
		fflush(stdout);
		child = fork();
		if (!child) {
			bool ok = !setresuid(65534, 65534, 65534);

			ok = EXPECT(ok, "setresuid") &&
			     EXPECT_EQ(run_at(at, IOCTL, &put, &result), cases[i].store,
				       "store, mode %d", cases[i].mode);
			ok &= EXPECT_EQ(run_at(at, IOCTL64, &get, &result), cases[i].retrieve,
					"retrieve, mode %d", cases[i].mode);
			ok &= EXPECT_EQ(run_at(at, IOCTL, &exist, &result), cases[i].retrieve,
					"exist, mode %d", cases[i].mode);
			ok &= EXPECT_EQ(run_at(at, IOCTL, &delete, &result), cases[i].store,
					"delete, mode %d", cases[i].mode);
			_exit(!ok);
		}
		ASSERT_EQ(waitpid(child, &status, 0), child, "waitpid");
		EXPECT_EQ(status, 0, "mode %d", cases[i].mode);
		close(at);
	}
	simple(IOCTL, DELETE, nr);
}

static uint64_t get_le(const uint8_t *at, unsigned int size)
{
	uint64_t value = 0;

	while (size--)
		value = value << 8 | at[size];
	return value;
}

struct listed {
	uint8_t len;
	uint8_t key[16];
};

static int list(enum way way, const struct listed *from, uint32_t size)
{
	struct nvme_uring_cmd cmd = data_command(LIST, from->key, from->len, room, size);
	uint64_t result;
	int ret;

	memset(room, KV_UNTOUCHED, size + PAGE);
	ret = run(way, &cmd, &result);
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, room + size, PAGE), -1, "behind the room");
	return ret;
}

/* Read the keys of a list from @room. Returns their number. */
static unsigned int list_read(struct listed *keys, unsigned int most)
{
	unsigned int nr = (unsigned int)get_le(room, 4);
	const uint8_t *at = room + 4;

	ASSERT(nr <= most, "%u keys, more than %u", nr, most);
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t len = get_le(at, 2);

		ASSERT(len && len <= 16, "a key of %u bytes", (unsigned int)len);
		keys[i] = (struct listed){ .len = (uint8_t)len };
		memcpy(keys[i].key, at + 2, len);
		EXPECT_EQ(kv_other_than(0, at + 2 + len, (4 - (2 + len) % 4) % 4), -1, "padding");
		at += (2 + len + 3) / 4 * 4;
	}
	return nr;
}

/* List all keys, in several commands. Returns their number. */
static unsigned int list_all(enum way way, uint32_t size, struct listed *keys, unsigned int most)
{
	struct listed from = { 0 };
	unsigned int nr = 0, got;

	do {
		ASSERT_EQ(list(way, &from, size), 0, "%s: list", way_names[way]);
		got = list_read(keys + nr, most - nr);
		if (nr && got)
			EXPECT(!memcmp(&keys[nr], &from, sizeof(from)), "it begins elsewhere");
		/* drop the first key, the last one of the previous list */
		if (nr && got) {
			memmove(keys + nr, keys + nr + 1, --got * sizeof(*keys));
			if (!got)
				break;
		}
		nr += got;
		if (nr)
			from = keys[nr - 1];
	} while (got);
	return nr;
}

static int listed_order(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct listed));
}

#define LISTED	700u

TEST(list_keys)
{
	struct listed *keys = calloc(LISTED * 2, sizeof(*keys)), *sorted, *mine, from = { 0 }, got[8];
	struct kvblk_piece piece = kv_piece(bytes, 1000);
	struct kv_key foreign = kv_key(next_key++ * 8);
	struct kvblk_op op = kv_op(KVBLK_OP_PUT, &foreign, &piece, 1);
	struct nvme_uring_cmd cmd;
	struct kvblk_op_ext ext;
	unsigned int nr;
	uint64_t result;

	sorted = calloc(LISTED * 2, sizeof(*keys));
	mine = calloc(LISTED, sizeof(*keys));
	ASSERT_EQ(list(IOCTL, &from, 4096), 0, "list of none");
	EXPECT_EQ(get_le(room, 4), 0, "keys of none");

	/* blocks of the native node are not listed, whatever tag they have */
	kv_tags(&op, &ext, 0, 0x766b2d656d766e);
	ASSERT_EQ(kv_one(native, &op).res, 1000, "a put elsewhere");
	ASSERT_EQ(list(IOCTL, &from, 4096), 0, "list");
	EXPECT_EQ(get_le(room, 4), 0, "keys of the native node");
	op = kv_op(KVBLK_OP_DELETE, &foreign, NULL, 0);
	EXPECT_EQ(kv_one(native, &op).res, 0, "delete");
	for (unsigned int i = 0; i < LISTED; i++) {
		struct kv_key key = kv_key((next_key + i) * 8);

		mine[i].len = (uint8_t)(4 + i % 13);
		memcpy(mine[i].key, &i, 4);
		memcpy(mine[i].key + 4, key.bytes, mine[i].len - 4u);
		cmd = data_command(STORE, mine[i].key, mine[i].len, bytes, 100);
		ASSERT_EQ(run(IOCTL, &cmd, &result), 0, "store %u", i);
	}
	qsort(mine, LISTED, sizeof(*mine), listed_order);
	for (enum way way = 0; way < WAYS; way++) {
		static const uint32_t sizes[] = { 4096, 1000, 1 << 20 };

		if (way == RING_FIXED)
			continue;
		for (unsigned int i = 0; i < ARRAY_SIZE(sizes); i++) {
			nr = list_all(way, sizes[i], keys, 2 * LISTED);
			EXPECT_EQ(nr, LISTED, "%s: keys in lists of %u bytes", way_names[way],
				  sizes[i]);
			memcpy(sorted, keys, nr * sizeof(*keys));
			qsort(sorted, nr, sizeof(*sorted), listed_order);
			EXPECT(!memcmp(sorted, mine, nr * sizeof(*mine)), "%s: which keys",
			       way_names[way]);
		}
	}
	/* a list from a deleted key starts with the next one */
	for (unsigned int i = 50; i < LISTED - 1; i += 100) {
		cmd = command(DELETE, keys[i].key, keys[i].len);
		EXPECT_EQ(run(IOCTL, &cmd, &result), 0, "delete");
		ASSERT_EQ(list(IOCTL, &keys[i], 24), 0, "list from there");
		EXPECT(list_read(got, ARRAY_SIZE(got)), "no key");
		EXPECT(!memcmp(got, &keys[i + 1], sizeof(*got)), "another key than the next one");
	}
	/* a list from the last key contains only that key */
	ASSERT_EQ(list(IOCTL, &keys[LISTED - 1], 4096), 0, "list from the last one");
	EXPECT_EQ(list_read(got, ARRAY_SIZE(got)), 1, "one key");
	for (unsigned int i = 0; i < LISTED; i++) {
		cmd = command(DELETE, mine[i].key, mine[i].len);
		run(IOCTL, &cmd, &result);
	}
	ASSERT_EQ(list(IOCTL, &keys[3], 4096), 0, "list from a key that is gone");
	EXPECT_EQ(get_le(room, 4), 0, "keys");
	free(keys);
	free(sorted);
	free(mine);
	PASSED("%u keys, each one once", LISTED);
}

#define CHURN_LEN	(4u << 20)
#define CHURN_MOST	400u

struct churn {
	unsigned int nr;	/* blocks to store */
	unsigned int failed;
	atomic_bool over;
};

static struct nvme_uring_cmd churn_command(uint8_t opcode, unsigned int nr)
{
	const uint32_t key[4] = { nr, 1, 2, 3 };

	return opcode == STORE ? data_command(opcode, key, 16, bytes, CHURN_LEN) :
				 command(opcode, key, 16);
}

static void *churn(void *arg)
{
	struct churn *churn = arg;

	for (unsigned int i = 0; i < churn->nr; i++) {
		struct nvme_uring_cmd cmd = churn_command(STORE, i);
		uint64_t result;

		churn->failed += !!run(IOCTL, &cmd, &result);
	}
	atomic_store(&churn->over, true);
	return NULL;
}

/* A block may be evicted before its header is read; the list omits only that block. */
TEST(list_meets_reclaim)
{
	struct churn arg = { .nr = (unsigned int)(2 * kv_info(native).capacity / CHURN_LEN) };
	struct listed keys[CHURN_MOST], from = { 0 };
	unsigned int lists = 0, most = 0, left = 0;
	pthread_t thread;

	ASSERT(arg.nr <= CHURN_MOST, "the pool is too large");
	ASSERT(!pthread_create(&thread, NULL, churn, &arg), "pthread_create");
	while (!atomic_load(&arg.over)) {
		int ret = list(lists % 2 ? IOCTL : IOCTL64, &from, PAGE);
		unsigned int nr = ret ? 0 : list_read(keys, CHURN_MOST);

		EXPECT_EQ(ret, 0, "list");
		for (unsigned int i = 0; i < nr; i++) {
			const struct listed *key = &keys[i];

			EXPECT(key->len == 16 && get_le(key->key, 4) < CHURN_MOST && get_le(key->key + 4, 4) == 1,
			       "a key that nobody stored");
			for (unsigned int j = 0; j < i; j++)
				EXPECT(memcmp(key, &keys[j], sizeof(*key)), "a key twice");
		}
		lists++;
		most = nr > most ? nr : most;
	}
	pthread_join(thread, NULL);
	EXPECT_EQ(arg.failed, 0, "failed stores of %u", arg.nr);
	EXPECT(lists > 10 && most > 10, "%u lists of up to %u keys", lists, most);
	for (unsigned int i = 0; i < arg.nr; i++) {
		struct nvme_uring_cmd cmd = churn_command(DELETE, i);
		uint64_t result;

		left += !run(IOCTL, &cmd, &result);
	}
	EXPECT(left && left < arg.nr, "of %u blocks %u are left", arg.nr, left);
	PASSED("%u lists of up to %u keys while %u blocks were stored", lists, most, arg.nr);
}

/* The change feed does not report blocks of this node, which have no tag. */
TEST(changes)
{
	struct kvblk_changes arg = {
		.size = sizeof(arg),
		.nr_records = KVBLK_CHANGES_MIN,
		.record_size = sizeof(struct kvblk_change),
	};
	uint64_t nr = next_key++, tagged = next_key++ * 8;
	struct kvblk_change records[16];
	char node[256];
	int feed;

	snprintf(node, sizeof(node), "%.*schanges", (int)(strrchr(path, '/') + 1 - path), path);
	for (int present = 0; present < 2; present++) {
		feed = open(node, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		ASSERT(feed >= 0, "%s: %s", node, strerror(errno));
		ASSERT_EQ(kv_ioctl(feed, KVBLK_IOC_CHANGES, &arg), 0, "start");
		ASSERT_EQ(store(IOCTL, nr, 1, 4096, 0), 0, "store");
		if (!present)
			ASSERT_EQ(kv_put_tagged(native, tagged, bytes, 4096, 7).res, 4096, "put");
		ASSERT_EQ(read(feed, records, sizeof(records)),
			  (1 + present) * sizeof(records[0]), "records");
		EXPECT_EQ(records[0].caller_tag, 7, "whose");
		if (present)
			EXPECT_EQ(records[1].op, KVBLK_CHANGE_CAUGHT_UP, "the end");
		close(feed);
		arg.flags |= KVBLK_CHANGES_PRESENT;
	}
	simple(IOCTL, DELETE, nr);
	kv_delete(native, tagged);
}

/* The tests below run while a member does not respond ("slow_"), after a run of "store". */

#define SLOW	999999ull
/* blocks in all: a list reads this many headers */
#define SLOW_KEYS	64

static int slow_store(void)
{
	int err = store(IOCTL, SLOW, 1, 65536, 0);

	for (uint64_t nr = SLOW + 1; !err && nr < SLOW + SLOW_KEYS; nr++)
		err = store(IOCTL, nr, 1, 4096, 0);
	return err;
}

static struct nvme_uring_cmd slow_retrieve(void)
{
	struct kv_key key = kv_key(SLOW * 8);

	return data_command(RETRIEVE, key.bytes, 16, room, 65536);
}

TEST(slow_list)
{
	struct listed none = { 0 };
	struct nvme_uring_cmd cmd = data_command(LIST, none.key, 0, room, 4096);
	uint64_t result, start = kv_now_ms();

	cmd.timeout_ms = 300;
	for (enum way way = 0; way < RING_FIXED; way++)
		EXPECT_EQ(run(way, &cmd, &result), ABORTED, "%s: list", way_names[way]);
	EXPECT(kv_now_ms() - start < 30000 * kv_slow(), "it took too long");
	/* exist is answered from the index, without I/O */
	EXPECT_EQ(simple(IOCTL, EXIST, SLOW), 0, "exist");
}

/* A killed process exits although the member does not respond. */
TEST(slow_killed)
{
	struct nvme_uring_cmd cmds[3] = { slow_retrieve() };
	struct listed none = { 0 };
	struct kv_key key = kv_key(SLOW * 8);
	uint64_t result;
	int status;

	cmds[1] = data_command(LIST, none.key, 0, room, 4096);
	/* a store that replaces: begins with a delete */
	cmds[2] = data_command(STORE, key.bytes, 16, bytes, 65536);
	for (unsigned int i = 0; i < ARRAY_SIZE(cmds); i++) {
		for (enum way way = 0; way < WAYS; way++) {
			pid_t child = fork();

			if (!child) {
				/* a child cannot use its parent's ring */
				if (io_uring_queue_init(8, &rings[0], IORING_SETUP_SQE128 |
							IORING_SETUP_CQE32) ||
				    io_uring_queue_init(8, &rings[1], IORING_SETUP_SQE128))
					_exit(2);
				run(way == RING_FIXED ? RING : way, &cmds[i], &result);
				_exit(1);
			}
			usleep(50000 * kv_slow());
			kill(child, SIGKILL);
			waitpid(child, &status, 0);
			EXPECT(WIFSIGNALED(status), "command %u, way %u ended by itself: %#x",
			       i, way, status);
			if (i == 2)
				break;
		}
	}
}

/* Header reads of an aborted list stay charged to the file until they complete. */
TEST(slow_lists)
{
	struct listed none = { 0 };
	struct nvme_uring_cmd cmd = data_command(LIST, none.key, 0, room, 4096);
	unsigned int given_up = 0;
	uint64_t result, start;
	int ret;

	/* long enough for the index lookup */
	cmd.timeout_ms = (uint32_t)(300 * kv_slow());
	while ((ret = run(IOCTL, &cmd, &result)) == ABORTED && given_up < 100)
		given_up++;
	/* queue_bytes is set to the size of two lists; the third list exceeds the limit */
	EXPECT_EQ(given_up, 3, "lists");
	EXPECT_EQ(ret, -ENOMEM, "one more");
	puts("# given up");
	fflush(stdout);
	cmd.timeout_ms = 0;
	for (start = kv_now_ms(); ret == -ENOMEM && kv_now_ms() - start < 60000 * kv_slow();) {
		usleep(10000);
		ret = run(IOCTL, &cmd, &result);
	}
	EXPECT_EQ(ret, 0, "a list when all are there");
	EXPECT(get_le(room, 4) >= SLOW_KEYS, "of %u keys", (unsigned int)get_le(room, 4));
}

/* Check that every store times out; @none: the result of a store with "must exist". */
static void stores_wait(int none)
{
	struct kv_key key = kv_key(SLOW * 8);
	struct nvme_uring_cmd cmd = data_command(STORE, key.bytes, 16, bytes, 4096);
	uint64_t result, start = kv_now_ms();

	for (enum way way = 0; way < WAYS; way++) {
		if (way == RING_FIXED)
			continue;
		cmd.timeout_ms = 300;
		for (uint32_t options = 0; options <= MUST_NOT_EXIST; options++) {
			cmd.cdw11 = 16 | options << 8;
			EXPECT_EQ(run(way, &cmd, &result),
				  options == MUST_EXIST ? none : ABORTED,
				  "%s: store, options %u", way_names[way], options);
		}
	}
	EXPECT(kv_now_ms() - start < 30000 * kv_slow(), "it took too long");
}

/*
 * A delete that is not yet durable holds up stores of its key, or else the block may come back
 * after a crash.
 */
TEST(slow_pending)
{
	pid_t child = fork();

	if (!child) {
		simple(IOCTL, DELETE, SLOW);
		_exit(1);
	}
	while (simple(IOCTL, EXIST, SLOW) != NO_KEY)
		usleep(1000);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	stores_wait(NO_KEY);
}

/* While a member is still being scanned for blocks, stores wait: it may have the key. */
TEST(import_pending)
{
	struct kv_key other = kv_key((SLOW + 2) * 8);
	struct nvme_uring_cmd cmd = command(DELETE, other.bytes, 16);
	uint64_t result;

	cmd.timeout_ms = 300;
	EXPECT_EQ(simple(IOCTL, EXIST, SLOW), NO_KEY, "exist");
	stores_wait(ABORTED);
	EXPECT_EQ(run(IOCTL, &cmd, &result), ABORTED, "delete");
}

TEST(import_over)
{
	expect_block(IOCTL, SLOW, 1, 65536);
	expect_block(IOCTL, SLOW + 1, 1, 4096);
	EXPECT_EQ(store(IOCTL, SLOW, 2, 8192, 0), 0, "store");
}

TEST(import_again)
{
	expect_block(IOCTL, SLOW, 2, 8192);
	expect_block(IOCTL, SLOW + 1, 1, 4096);
}

TEST(slow_ring_exit)
{
	struct nvme_uring_cmd cmd = slow_retrieve();
	pid_t child = fork();
	int status;

	if (!child) {
		struct io_uring ring;

		if (io_uring_queue_init(8, &ring, IORING_SETUP_SQE128 | IORING_SETUP_CQE32))
			_exit(2);
		ring_put(&ring, &cmd, NVME_URING_CMD_IO, 0, false);
		kv_ring_send(&ring);
		io_uring_queue_exit(&ring);
		_exit(0);
	}
	waitpid(child, &status, 0);
	EXPECT_EQ(status, 0, "the child's end");
}

static int identify(uint8_t cns, uint32_t nsid, uint8_t csi, bool by_ring)
{
	struct nvme_passthru_cmd cmd = {
		.opcode = 0x06,
		.nsid = nsid,
		.addr = kv_addr(room),
		.data_len = 4096,
		.cdw10 = cns,
		.cdw11 = (uint32_t)csi << 24,
	};
	struct nvme_uring_cmd ring = { 0 };
	int ret;

	memset(room, KV_UNTOUCHED, 2 * PAGE);
	if (by_ring) {
		memcpy(&ring, &cmd, offsetof(struct nvme_passthru_cmd, result));
		ret = ring_run(&rings[0], &ring, NVME_URING_CMD_ADMIN, NULL, false);
	} else {
		ret = ioctl(fd, NVME_IOCTL_ADMIN_CMD, &cmd);
		ret = ret < 0 ? -errno : ret;
	}
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, room + (ret ? 0 : PAGE), PAGE), -1,
		  "what is not identify's");
	return ret;
}

TEST(identify_data)
{
	struct kvblk_info info = kv_info(native);

	for (int by_ring = 0; by_ring < 2; by_ring++) {
		EXPECT_EQ(identify(0x01, 0, 0, by_ring), 0, "controller");
		EXPECT(!memcmp(room + 24, "kvblk t ", 8), "its model");
		EXPECT_EQ(get_le(room + 516, 4), 1, "its namespaces");
		EXPECT_EQ(get_le(room + 280, 8), info.capacity, "its capacity");
		EXPECT(!strncmp((char *)room + 768, "nqn.2014-08.org.nvmexpress:uuid:", 32),
		       "its name");
		EXPECT_EQ(identify(0x05, 1, 1, by_ring), 0, "key-value namespace");
		EXPECT_EQ(get_le(room, 8), info.capacity, "its size");
		EXPECT(get_le(room + 16, 8) <= info.capacity, "what is used of it");
		EXPECT_EQ(room[25], 0, "one format");
		EXPECT(!memcmp(room + 48, info.pool_uuid, 16), "its NGUID");
		EXPECT_EQ(get_le(room + 72, 2), 16, "longest key");
		EXPECT_EQ(get_le(room + 76, 4), info.value_max, "longest value");
		EXPECT_EQ(get_le(room + 80, 4), 0, "number of keys");
		EXPECT_EQ(identify(0x00, 1, 0, by_ring), 0, "namespace");
		EXPECT_EQ(get_le(room, 8) * 4096, info.capacity, "its blocks");
		EXPECT_EQ(room[130], 12, "their size");
		EXPECT_EQ(identify(0x02, 0, 0, by_ring), 0, "active namespaces");
		EXPECT_EQ(get_le(room, 8), 1, "namespace 1 alone");
		EXPECT_EQ(identify(0x02, 1, 0, by_ring), 0, "active namespaces behind 1");
		EXPECT_EQ(get_le(room, 8), 0, "none");
		EXPECT_EQ(identify(0x07, 0, 1, by_ring), 0, "key-value namespaces");
		EXPECT_EQ(get_le(room, 8), 1, "namespace 1 alone");
		EXPECT_EQ(identify(0x07, 0, 0, by_ring), 0, "namespaces of blocks");
		EXPECT_EQ(get_le(room, 8), 0, "none");
		EXPECT_EQ(identify(0x03, 1, 0, by_ring), 0, "descriptors");
		EXPECT_EQ(get_le(room, 4), 0x1003, "a UUID");
		EXPECT(!memcmp(room + 4, info.pool_uuid, 16), "the pool's");
		EXPECT_EQ(get_le(room + 20, 4), 0x0104, "a command set");
		EXPECT_EQ(room[24], 1, "key-value");
		EXPECT_EQ(get_le(room + 25, 8), 0, "the end");
		EXPECT_EQ(identify(0x06, 0, 1, by_ring), 0, "key-value controller");
		EXPECT_EQ(identify(0x08, 1, 0, by_ring), 0, "independent of command sets");
		EXPECT_EQ(room[14], 1, "ready");
		EXPECT_EQ(identify(0x1c, 0, 0, by_ring), 0, "command sets");
		EXPECT_EQ(get_le(room, 8), 2, "key-value");
		EXPECT_EQ(get_le(room + 8, 8), 0, "and no other");

		EXPECT_EQ(identify(0x00, 2, 0, by_ring), INVALID_NS, "namespace 2");
		EXPECT_EQ(identify(0x05, 0, 1, by_ring), INVALID_NS, "namespace 0");
		EXPECT_EQ(identify(0x05, 1, 0, by_ring), INVALID_FIELD, "as one of blocks");
		EXPECT_EQ(identify(0x05, 1, 2, by_ring), INVALID_FIELD, "as one of zones");
		EXPECT_EQ(identify(0x06, 0, 0, by_ring), INVALID_FIELD, "blocks' controller");
		EXPECT_EQ(identify(0x13, 0, 0, by_ring), INVALID_FIELD, "controllers");
		EXPECT_EQ(identify(0xff, 0, 0, by_ring), INVALID_FIELD, "what there is not");
	}
}

TEST(bad_admin_commands)
{
	struct nvme_passthru_cmd64 good = {
		.opcode = 0x06,
		.addr = kv_addr(room),
		.data_len = 4096,
		.cdw10 = 1,
	}, cmd = good;

	memset(room, KV_UNTOUCHED, PAGE);
	for (unsigned int opcode = 0; opcode < 256; opcode++) {
		cmd.opcode = (uint8_t)opcode;
		if (opcode != good.opcode)
			EXPECT_EQ(ioctl(fd, NVME_IOCTL_ADMIN64_CMD, &cmd), INVALID_OPCODE,
				  "opcode %#x", opcode);
	}
	cmd = good;
	cmd.flags = 1;
	EXPECT_EQ(kv_ioctl(fd, NVME_IOCTL_ADMIN64_CMD, &cmd), -EINVAL, "flags");
	cmd = good;
	cmd.metadata = 8;
	EXPECT_EQ(ioctl(fd, NVME_IOCTL_ADMIN64_CMD, &cmd), INVALID_FIELD, "metadata");
	cmd = good;
	cmd.metadata_len = 8;
	EXPECT_EQ(ioctl(fd, NVME_IOCTL_ADMIN64_CMD, &cmd), INVALID_FIELD, "metadata's length");
	cmd = good;
	cmd.data_len = 4095;
	EXPECT_EQ(ioctl(fd, NVME_IOCTL_ADMIN64_CMD, &cmd), DATA_LENGTH, "too little data");
	EXPECT_EQ(kv_other_than(KV_UNTOUCHED, room, PAGE), -1, "bytes");
	cmd = good;
	cmd.addr = 4096;
	EXPECT_EQ(kv_ioctl(fd, NVME_IOCTL_ADMIN64_CMD, &cmd), -EFAULT, "no memory");
	EXPECT_EQ(ioctl(fd, NVME_IOCTL_ADMIN64_CMD, &good), 0, "a good one");
}

int main(int argc, char **argv)
{
	struct iovec iov[2];

	if (argc < 3) {
		fprintf(stderr, "usage: %s NVME_NODE NODE [TEST...]\n", argv[0]);
		return KSFT_FAIL;
	}
	path = argv[1];
	native_path = argv[2];
	fd = kv_open(path);
	native = kv_open(native_path);
	bytes = kv_alloc_host(ROOM + PAGE);
	room = kv_alloc_host(ROOM + PAGE);
	if (io_uring_queue_init(64, &rings[0], IORING_SETUP_SQE128 | IORING_SETUP_CQE32) ||
	    io_uring_queue_init(8, &rings[1], IORING_SETUP_SQE128))
		kv_die("io_uring_queue_init");
	/* register both buffers; a ring command names either */
	iov[0] = (struct iovec){ bytes, ROOM + PAGE };
	iov[1] = (struct iovec){ room, ROOM + PAGE };
	if (io_uring_register_buffers(&rings[0], iov, 2))
		kv_die("io_uring_register_buffers");
	if (argc > 3 && !strcmp(argv[3], "store"))
		return slow_store() ? KSFT_FAIL : KSFT_PASS;
	return kv_run_tests(argc - 3, argv + 3);
}
