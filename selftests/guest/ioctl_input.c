// SPDX-License-Identifier: GPL-2.0
/*
 * Bad input of the ioctls: each field out of its range, bad pointers, huge counts and sums that
 * overflow. Each gets the errno that the top of <linux/kvblk.h> documents, and has no other
 * effect.
 *
 * usage: guest_ioctl_input NODE [TEST...]
 */
#include <sys/syscall.h>

#include "kv_test.h"
#include "kv_io.h"

#define LEN		5000u
#define CONTROL		3000000ull	/* a block that must stay unchanged */
#define FRESH		3000001ull	/* a key that must never have a block */
#define KERNEL_ADDR	0xffffffff81000000ull
#define NON_CANONICAL	0x8000000000000000ull

static const char *node;
static int fd;
static uint8_t *buf, *put_buf;
/* @readonly: a read-only page; @hole: an unmapped page */
static uint8_t *readonly, *hole;
static struct kvblk_info info;

/* Check that nothing changed: the control block is intact, the fresh key not present. */
static void check_unchanged(const char *after)
{
	memset(buf, KV_UNTOUCHED, LEN);
	if (EXPECT_EQ(kv_get(fd, CONTROL, buf, LEN).res, LEN,
		      "get of the control block after: %s", after))
		EXPECT_EQ(kv_wrong(kv_seed(CONTROL, 0), 0, buf, LEN), -1,
			  "bytes of the control block after: %s", after);
	EXPECT_EQ(kv_size(fd, FRESH), 0, "a block was stored by: %s", after);
}

/* A valid operation with everything it points to; each case spoils a part. */
struct fixture {
	struct kvblk_op op;
	struct kv_key key, parent;
	struct { struct kvblk_op_ext ext; uint64_t tail[2]; } e;
	struct kvblk_piece pieces[KVBLK_PIECES_MAX + 1];
};

static struct fixture f;

static void good_op(uint8_t opcode)
{
	f.key = kv_key(opcode == KVBLK_OP_PUT ? FRESH : CONTROL);
	f.parent = kv_key(FRESH + 1);
	for (unsigned int i = 0; i < ARRAY_SIZE(f.pieces); i++)
		f.pieces[i] = kv_piece(opcode == KVBLK_OP_PUT ? put_buf : buf,
				       LEN);
	f.op = kv_op(opcode, &f.key, f.pieces, 1);
	memset(&f.e, 0, sizeof(f.e));
	f.e.ext.size = sizeof(f.e.ext);
	if (opcode == KVBLK_OP_DELETE || opcode == KVBLK_OP_HINT) {
		f.op.pieces = 0;
		f.op.nr_pieces = 0;
	}
	if (opcode == KVBLK_OP_HINT)
		f.op.flags = KVBLK_OPF_DEMOTE;
}

#define PUT	(1 << KVBLK_OP_PUT)
#define GET	(1 << KVBLK_OP_GET)
#define DELETE	(1 << KVBLK_OP_DELETE)
#define HINT	(1 << KVBLK_OP_HINT)
#define ANY	(PUT | GET | DELETE | HINT)

struct op_case {
	const char *name;
	unsigned int ops;	/* opcodes to try the case on */
	int want;
	void (*spoil)(void);
};

static void check_errno(int got, int want, const char *name, unsigned int op)
{
	EXPECT_EQ(got, want, "opcode %u: %s", op, name);
}

#define SPOIL(name, statement)	static void name(void) { statement; }

SPOIL(opcode_0, f.op.opcode = 0)
SPOIL(prefetch_pieces, f.op.opcode = KVBLK_OP_PREFETCH)
SPOIL(prefetch_durable, f.op.opcode = KVBLK_OP_PREFETCH; f.op.pieces = f.op.nr_pieces = 0;
      f.op.flags = KVBLK_OPF_DURABLE)
SPOIL(durable, f.op.flags = KVBLK_OPF_DURABLE)
SPOIL(opcode_6, f.op.opcode = 6)
SPOIL(opcode_255, f.op.opcode = 255)
SPOIL(priority_4, f.op.priority = 4)
SPOIL(priority_1, f.op.priority = 1)
SPOIL(prefetch_priority_4, f.op.opcode = KVBLK_OP_PREFETCH; f.op.pieces = f.op.nr_pieces = 0;
      f.op.priority = 4)
SPOIL(key_len_0, f.op.key_len = 0)
SPOIL(key_len_513, f.op.key_len = 513)
SPOIL(key_len_max, f.op.key_len = UINT16_MAX)
SPOIL(key_null, f.op.key = 0)
SPOIL(key_hole, f.op.key = kv_addr(hole))
SPOIL(key_into_hole, f.op.key = kv_addr(hole - 8))
SPOIL(key_kernel, f.op.key = KERNEL_ADDR)
SPOIL(key_non_canonical, f.op.key = NON_CANONICAL)
SPOIL(key_wraps, f.op.key = UINT64_MAX - 3)
SPOIL(op_reserved, f.op.reserved = 1)
SPOIL(pieces_0, f.op.nr_pieces = 0)
SPOIL(pieces_1, f.op.nr_pieces = 1; f.op.pieces = kv_addr(f.pieces))
SPOIL(pieces_1025, f.op.nr_pieces = 1025)
SPOIL(pieces_max, f.op.nr_pieces = UINT16_MAX)
SPOIL(pieces_null, f.op.pieces = 0)
SPOIL(pieces_hole, f.op.pieces = kv_addr(hole))
SPOIL(pieces_into_hole, f.op.pieces = kv_addr(hole - 8))
SPOIL(pieces_kernel, f.op.pieces = KERNEL_ADDR)
SPOIL(pieces_wrap, f.op.pieces = UINT64_MAX - 7)
SPOIL(flag_9, f.op.flags = 1 << 9)
SPOIL(flag_31, f.op.flags = 1u << 31)
SPOIL(no_hint, f.op.flags = 0)
SPOIL(release_and_more, f.op.flags = KVBLK_OPF_RELEASE | KVBLK_OPF_DEMOTE)
SPOIL(release_priority, f.op.flags = KVBLK_OPF_RELEASE; f.op.priority = 1)
SPOIL(hint_priority_4, f.op.flags = KVBLK_OPF_PRIORITY; f.op.priority = 4)
SPOIL(retain_too_long, f.op.flags = KVBLK_OPF_RETAIN; f.op.ttl_s = KVBLK_RETAIN_MAX + 1)
SPOIL(flag_priority, f.op.flags = KVBLK_OPF_PRIORITY)
SPOIL(flag_retain, f.op.flags = KVBLK_OPF_RETAIN)
SPOIL(flag_demote, f.op.flags = KVBLK_OPF_DEMOTE)
SPOIL(flag_release, f.op.flags = KVBLK_OPF_RELEASE)
SPOIL(hint_absent, f.op.key = kv_addr(f.parent.bytes))
SPOIL(flag_and_key, f.op.flags = 1 << 9; f.op.key_len = 0)
SPOIL(flag_partial, f.op.flags = KVBLK_OPF_PARTIAL)
SPOIL(flag_layout, f.op.flags = KVBLK_OPF_LAYOUT)
SPOIL(flag_hard, f.op.flags = KVBLK_OPF_HARD_DEADLINE)
SPOIL(ttl, f.op.ttl_s = 1)
SPOIL(ttl_too_long, f.op.ttl_s = KVBLK_TTL_MAX + 1)
SPOIL(ttl_longest, f.op.ttl_s = UINT32_MAX)
SPOIL(op_result, f.op.result = kv_addr(buf); f.op.result_size = sizeof(struct kvblk_result))
SPOIL(op_result_size, f.op.result_size = sizeof(struct kvblk_result))
SPOIL(op_reserved2, f.op.reserved2 = 1)
SPOIL(offset, f.op.offset = 1)
SPOIL(length, f.op.length = 1)
SPOIL(piece_type_1, f.pieces[0].type = KVBLK_PIECE_REGISTERED)
SPOIL(piece_no_region, f.pieces[0].type = KVBLK_PIECE_REGISTERED; f.pieces[0].handle = 77)
SPOIL(piece_type_2, f.pieces[0].type = 2)
SPOIL(piece_type_all, f.pieces[0].type = UINT16_MAX)
SPOIL(piece_flag, f.pieces[0].flags = 1)
SPOIL(piece_flag_15, f.pieces[0].flags = 1 << 15)
SPOIL(piece_reserved, f.pieces[0].reserved = 1)
SPOIL(piece_second_reserved, f.op.nr_pieces = 2; f.pieces[1].reserved = 1u << 31)
SPOIL(piece_handle, f.pieces[0].handle = 1)
SPOIL(piece_length_0, f.pieces[0].length = 0)
SPOIL(piece_second_length_0, f.op.nr_pieces = 2; f.pieces[1].length = 0)
SPOIL(piece_type_in_middle, f.op.nr_pieces = 3; f.pieces[1].type = 2)
SPOIL(piece_null, f.pieces[0].addr = 0)
SPOIL(piece_hole, f.pieces[0] = kv_piece(hole, 100))
SPOIL(piece_into_hole, f.pieces[0].addr = kv_addr(hole) - LEN + 1)
SPOIL(piece_second_hole, f.op.nr_pieces = 2;
      f.pieces[1] = kv_piece(hole, 4096))
SPOIL(piece_kernel, f.pieces[0].addr = KERNEL_ADDR)
SPOIL(piece_non_canonical, f.pieces[0].addr = NON_CANONICAL)
SPOIL(piece_wraps, f.pieces[0].addr = UINT64_MAX - 100)
SPOIL(piece_readonly, f.pieces[0] = kv_piece(readonly, PAGE);
      f.op.nr_pieces = 2)
SPOIL(piece_sum_64m, f.pieces[0].length = (64 << 20) + 1)
SPOIL(piece_all, f.pieces[0].length = UINT32_MAX)
SPOIL(sum_wraps, f.op.nr_pieces = 2; f.pieces[0].length = UINT32_MAX;
      f.pieces[1].length = LEN + 1)
SPOIL(sum_wraps_twice, f.op.nr_pieces = 4;
      f.pieces[0].length = 1u << 31;
      f.pieces[1].length = 1u << 31;
      f.pieces[2].length = 4096)
SPOIL(sum_of_32_bits, f.op.nr_pieces = 1024;
      for (int i = 0; i < 1024; i++) f.pieces[i].length = 1u << 22)
SPOIL(sum_of_many, f.op.nr_pieces = 1024;
      for (int i = 0; i < 1024; i++) f.pieces[i].length = 1 << 17)

/* a spoiled extension: valid but for @statement */
#define SPOIL_EXT(name, statement)					\
static void name(void)							\
{									\
	struct kvblk_op_ext *ext = &f.e.ext;				\
									\
	f.op.ext = kv_addr(ext);					\
	statement;							\
}

SPOIL(ext_hole, f.op.ext = kv_addr(hole))
SPOIL(ext_into_hole, memcpy(hole - 8, &f.e.ext, 8); f.op.ext = kv_addr(hole - 8))
SPOIL(ext_kernel, f.op.ext = KERNEL_ADDR)
SPOIL(ext_non_canonical, f.op.ext = NON_CANONICAL)
SPOIL(ext_wraps, f.op.ext = UINT64_MAX - 3)
SPOIL_EXT(ext_size_0, ext->size = 0)
SPOIL_EXT(ext_size_short, ext->size--)
SPOIL_EXT(ext_size_page, ext->size = 8192)
SPOIL_EXT(ext_size_huge, ext->size = UINT32_MAX)
SPOIL_EXT(ext_tail, ext->size = sizeof(f.e); f.e.tail[1] = 1)
SPOIL_EXT(ext_flags, ext->flags = 1)
SPOIL_EXT(ext_flag_31, ext->flags = 1u << 31)
SPOIL_EXT(ext_reserved, ext->reserved = 1)
SPOIL_EXT(ext_hint_2, ext->hints = 1 << 2)
SPOIL_EXT(ext_hint_31, ext->hints = 1u << 31)
SPOIL_EXT(ext_continues, ext->hints = KVBLK_HINT_CONTINUES)
SPOIL_EXT(ext_missed, ext->hints = KVBLK_HINT_MISSED)
SPOIL_EXT(caller_tag, ext->caller_tag = 1)
SPOIL_EXT(layout_tag, ext->layout_tag = 1)
SPOIL_EXT(layout_wanted, ext->layout_tag = 1; f.op.flags = KVBLK_OPF_LAYOUT)
SPOIL_EXT(parent_513, ext->parent = kv_addr(f.parent.bytes); ext->parent_len = 513)
SPOIL_EXT(parent_huge, ext->parent = kv_addr(f.parent.bytes); ext->parent_len = UINT32_MAX)
SPOIL_EXT(parent_null, ext->parent_len = 16)
SPOIL_EXT(parent_hole, ext->parent = kv_addr(hole); ext->parent_len = 16)
SPOIL_EXT(parent_kernel, ext->parent = KERNEL_ADDR; ext->parent_len = 16)
SPOIL_EXT(parent_unasked, ext->parent = kv_addr(f.parent.bytes);
	  ext->parent_len = f.parent.len)
SPOIL_EXT(parent_no_len, ext->parent = kv_addr(f.parent.bytes))

/* a spoiled extension with space for one checksum */
#define SPOIL_SUMS(name, statement)	SPOIL_EXT(name,			\
	ext->checksums = kv_addr(buf + 3 * LEN);			\
	ext->nr_checksums = 1;						\
	statement)

SPOIL_SUMS(sums_good, )
SPOIL_SUMS(sums_0, ext->nr_checksums = 0)
SPOIL_SUMS(sums_2, ext->nr_checksums = 2)
SPOIL_SUMS(sums_too_many, ext->nr_checksums = KVBLK_CHECKSUMS_MAX + 1)
SPOIL_SUMS(sums_huge, ext->nr_checksums = (1u << 30) + 1)
SPOIL_SUMS(sums_wrap, ext->checksums = UINT64_MAX - 2)
SPOIL_SUMS(sums_null, ext->checksums = 0)
SPOIL_SUMS(sums_hole, ext->checksums = kv_addr(hole))
SPOIL_SUMS(sums_kernel, ext->checksums = KERNEL_ADDR)
SPOIL_SUMS(sums_readonly, ext->checksums = kv_addr(readonly))
SPOIL(checks_no_ext, f.op.flags = KVBLK_OPF_CALLER_CHECKS)
SPOIL_EXT(checks_no_sums, f.op.flags = KVBLK_OPF_CALLER_CHECKS)
SPOIL_SUMS(checks, f.op.flags = KVBLK_OPF_CALLER_CHECKS)
SPOIL_SUMS(checks_readonly, f.op.flags = KVBLK_OPF_CALLER_CHECKS;
	   ext->checksums = kv_addr(readonly))

static const struct op_case op_cases[] = {
	{ "opcode 0", PUT, -EOPNOTSUPP, opcode_0 },
	{ "a prefetch with memory", GET, -EINVAL, prefetch_pieces },
	{ "a durable prefetch", GET, -EINVAL, prefetch_durable },
	{ "a durable get or delete", GET | DELETE | HINT, -EINVAL, durable },
	{ "opcode 6", PUT, -EOPNOTSUPP, opcode_6 },
	{ "opcode 255", PUT | GET, -EOPNOTSUPP, opcode_255 },
	{ "priority 4", ANY, -EINVAL, priority_4 },
	{ "a priority", GET | DELETE | HINT, -EINVAL, priority_1 },
	{ "a prefetch of priority 4", GET, -EINVAL, prefetch_priority_4 },
	{ "key_len 0", ANY, -EINVAL, key_len_0 },
	{ "key_len 513", ANY, -EINVAL, key_len_513 },
	{ "key_len 65535", ANY, -EINVAL, key_len_max },
	{ "key NULL", ANY, -EFAULT, key_null },
	{ "key unmapped", ANY, -EFAULT, key_hole },
	{ "key half mapped", ANY, -EFAULT, key_into_hole },
	{ "key in the kernel", ANY, -EFAULT, key_kernel },
	{ "key not canonical", ANY, -EFAULT, key_non_canonical },
	{ "key at the end of the world", ANY, -EFAULT, key_wraps },
	{ "reserved", ANY, -EINVAL, op_reserved },
	{ "ext unmapped", ANY, -EFAULT, ext_hole },
	{ "ext half mapped", ANY, -EFAULT, ext_into_hole },
	{ "ext in the kernel", ANY, -EFAULT, ext_kernel },
	{ "ext not canonical", ANY, -EFAULT, ext_non_canonical },
	{ "ext at the end of the world", ANY, -EFAULT, ext_wraps },
	{ "ext of size 0", ANY, -EINVAL, ext_size_0 },
	{ "ext one byte short", ANY, -EINVAL, ext_size_short },
	{ "ext beyond a page", ANY, -E2BIG, ext_size_page },
	{ "ext of 4 GiB - 1", ANY, -E2BIG, ext_size_huge },
	{ "ext with a tail", ANY, -E2BIG, ext_tail },
	{ "ext with a flag", ANY, -EOPNOTSUPP, ext_flags },
	{ "ext with flag 1 << 31", ANY, -EOPNOTSUPP, ext_flag_31 },
	{ "ext with hint 1 << 2", ANY, -EOPNOTSUPP, ext_hint_2 },
	{ "ext with hint 1 << 31", ANY, -EOPNOTSUPP, ext_hint_31 },
	{ "ext with reserved", ANY, -EINVAL, ext_reserved },
	{ "a chain that goes on", GET | DELETE | HINT, -EINVAL, ext_continues },
	{ "a miss before", GET | DELETE | HINT, -EINVAL, ext_missed },
	{ "parent_len 513", PUT, -EINVAL, parent_513 },
	{ "parent_len 4 GiB - 1", PUT, -EINVAL, parent_huge },
	{ "parent NULL", ANY, -EINVAL, parent_null },
	{ "parent unmapped", PUT, -EFAULT, parent_hole },
	{ "parent in the kernel", PUT, -EFAULT, parent_kernel },
	{ "a parent", GET | DELETE | HINT, -EINVAL, parent_unasked },
	{ "a parent without length", ANY, -EINVAL, parent_no_len },
	{ "no pieces", PUT | GET, -EINVAL, pieces_0 },
	{ "a piece", DELETE | HINT, -EINVAL, pieces_1 },
	{ "1025 pieces", PUT | GET, -EINVAL, pieces_1025 },
	{ "65535 pieces", PUT | GET, -EINVAL, pieces_max },
	{ "pieces NULL", PUT | GET, -EFAULT, pieces_null },
	{ "pieces unmapped", PUT | GET, -EFAULT, pieces_hole },
	{ "pieces half mapped", PUT | GET, -EFAULT, pieces_into_hole },
	{ "pieces in the kernel", PUT | GET, -EFAULT, pieces_kernel },
	{ "pieces at the end of the world", PUT | GET, -EFAULT, pieces_wrap },
	{ "flag 1 << 9", ANY, -EOPNOTSUPP, flag_9 },
	{ "flag 1 << 31", ANY, -EOPNOTSUPP, flag_31 },
	{ "a flag that is not known yet, and a bad field", ANY, -EOPNOTSUPP, flag_and_key },
	{ "a hint of nothing", HINT, -EINVAL, no_hint },
	{ "RELEASE with DEMOTE", HINT, -EINVAL, release_and_more },
	{ "RELEASE with a priority", HINT, -EINVAL, release_priority },
	{ "a hint of priority 4", HINT, -EINVAL, hint_priority_4 },
	{ "RETAIN for more than a day", HINT, -EINVAL, retain_too_long },
	{ "a hint at an absent block", HINT, -ENOENT, hint_absent },
	{ "PRIORITY", PUT | GET | DELETE, -EINVAL, flag_priority },
	{ "RETAIN", PUT | GET | DELETE, -EINVAL, flag_retain },
	{ "DEMOTE", PUT | GET | DELETE, -EINVAL, flag_demote },
	{ "RELEASE", PUT | GET | DELETE, -EINVAL, flag_release },
	{ "PARTIAL", PUT | DELETE | HINT, -EINVAL, flag_partial },
	{ "LAYOUT without an extension", ANY, -EINVAL, flag_layout },
	{ "LAYOUT", PUT | DELETE | HINT, -EINVAL, layout_wanted },
	{ "another layout", GET, -ENOENT, layout_wanted },
	{ "a layout tag without LAYOUT", GET | DELETE | HINT, -EINVAL, layout_tag },
	{ "HARD_DEADLINE", PUT | DELETE | HINT, -EINVAL, flag_hard },
	{ "HARD_DEADLINE without a deadline", GET, -EINVAL, flag_hard },
	{ "a TTL", GET | DELETE | HINT, -EINVAL, ttl },
	{ "a TTL of 34 years and 1 s", ANY, -EINVAL, ttl_too_long },
	{ "a TTL of 136 years", ANY, -EINVAL, ttl_longest },
	{ "a result of its own in a batch", ANY, -EINVAL, op_result },
	{ "a size of no result", ANY, -EINVAL, op_result_size },
	{ "reserved2", ANY, -EINVAL, op_reserved2 },
	{ "an offset", ANY, -EINVAL, offset },
	{ "a length", ANY, -EINVAL, length },
	{ "a caller tag", GET | DELETE | HINT, -EINVAL, caller_tag },
	{ "registered memory without a handle", PUT | GET, -EINVAL, piece_type_1 },
	{ "a handle of no registered memory", PUT | GET, -ENXIO, piece_no_region },
	{ "a piece of type 2", PUT | GET, -EOPNOTSUPP, piece_type_2 },
	{ "a piece of type 65535", PUT | GET, -EOPNOTSUPP, piece_type_all },
	{ "a piece with a flag", PUT | GET, -EOPNOTSUPP, piece_flag },
	{ "a piece with flag 1 << 15", PUT | GET, -EOPNOTSUPP, piece_flag_15 },
	{ "a piece with reserved", PUT | GET, -EINVAL, piece_reserved },
	{ "a second piece with reserved", PUT | GET, -EINVAL, piece_second_reserved },
	{ "a handle with user memory", PUT | GET, -EINVAL, piece_handle },
	{ "an empty piece", PUT | GET, -EINVAL, piece_length_0 },
	{ "an empty second piece", PUT | GET, -EINVAL, piece_second_length_0 },
	{ "a piece of type 2 in the middle", PUT | GET, -EOPNOTSUPP,
	  piece_type_in_middle },
	{ "memory at NULL", PUT | GET, -EFAULT, piece_null },
	{ "memory unmapped", PUT, -EFAULT, piece_hole },
	{ "memory half mapped", PUT | GET, -EFAULT, piece_into_hole },
	{ "a second piece unmapped", PUT, -EFAULT, piece_second_hole },
	{ "memory in the kernel", PUT | GET, -EFAULT, piece_kernel },
	{ "memory not canonical", PUT | GET, -EFAULT, piece_non_canonical },
	{ "memory that wraps", PUT | GET, -EFAULT, piece_wraps },
	{ "read-only memory", GET, -EFAULT, piece_readonly },
	{ "64 MiB + 1", PUT, -EINVAL, piece_sum_64m },
	{ "2^32 - 1 bytes", PUT, -EINVAL, piece_all },
	{ "a sum that wraps", PUT | GET, -EINVAL, sum_wraps },
	{ "a sum that wraps to 4096", PUT | GET, -EINVAL, sum_wraps_twice },
	{ "a sum of 2^32", PUT | GET, -EINVAL, sum_of_32_bits },
	{ "1024 pieces of 128 KiB", PUT, -EINVAL, sum_of_many },
	{ "checksums", DELETE | HINT, -EINVAL, sums_good },
	{ "no checksums", ANY, -EINVAL, sums_0 },
	{ "more checksums than chunks", PUT, -EINVAL, sums_2 },
	{ "1025 checksums", PUT | GET, -EINVAL, sums_too_many },
	{ "2^30 + 1 checksums", PUT | GET, -EINVAL, sums_huge },
	{ "checksums that wrap", PUT | GET, -EFAULT, sums_wrap },
	{ "checksums at NULL", ANY, -EINVAL, sums_null },
	{ "checksums unmapped", PUT | GET, -EFAULT, sums_hole },
	{ "checksums in the kernel", PUT | GET, -EFAULT, sums_kernel },
	{ "room for checksums read-only", GET, -EFAULT, sums_readonly },
	{ "CALLER_CHECKS without an extension", ANY, -EINVAL, checks_no_ext },
	{ "CALLER_CHECKS without checksums", ANY, -EINVAL, checks_no_sums },
	{ "CALLER_CHECKS", PUT | DELETE | HINT, -EINVAL, checks },
	{ "CALLER_CHECKS with checksums read-only", GET, -EFAULT, checks_readonly },
};

/* Run a case alone, then between two good operations. */
static void try_op(const struct op_case *c, uint8_t opcode)
{
	struct kv_key key = kv_key(CONTROL);
	struct kvblk_piece piece = kv_piece(buf + 65536, LEN);
	struct kvblk_op ops[3];
	struct kvblk_result res[3];

	good_op(opcode);
	c->spoil();
	memset(buf, KV_UNTOUCHED, 2 * LEN);
	f.op.cookie = 0x1234567890;
	res[0] = kv_one(fd, &f.op);
	check_errno(res[0].res, c->want, c->name, opcode);
	EXPECT_EQ(res[0].cookie, 0x1234567890, "cookie of: %s", c->name);
	EXPECT_EQ(kv_leaked(buf, 2 * LEN), -1, "bytes came with: %s", c->name);

	ops[0] = kv_op(KVBLK_OP_GET, &key, &piece, 1);
	ops[1] = f.op;
	ops[2] = ops[0];
	EXPECT_EQ(kv_submit(fd, ops, res, 3, 0), 0, "a batch with: %s", c->name);
	EXPECT_EQ(res[0].res, LEN, "before: %s", c->name);
	check_errno(res[1].res, c->want, c->name, opcode);
	EXPECT_EQ(res[2].res, LEN, "behind: %s", c->name);
}

TEST(operations)
{
	unsigned int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(op_cases); i++) {
		for (uint8_t op = KVBLK_OP_PUT; op <= KVBLK_OP_HINT; op++) {
			if (!(op_cases[i].ops & 1 << op))
				continue;
			try_op(&op_cases[i], op);
			n++;
		}
		check_unchanged(op_cases[i].name);
	}
	PASSED("%u cases, alone and in the middle of a batch", n);
}

TEST(odd_but_good)
{
	good_op(KVBLK_OP_GET);
	f.pieces[0] = kv_piece(buf, 3000);
	f.pieces[1] = kv_piece(hole - PAGE, PAGE);
	f.op.nr_pieces = 2;
	EXPECT_EQ(kv_one(fd, &f.op).res, LEN, "pieces up to the end of a mapping");
	good_op(KVBLK_OP_GET);
	f.op.flags = KVBLK_OPF_HARD_DEADLINE;
	f.op.deadline_ns = UINT64_MAX;
	EXPECT_EQ(kv_one(fd, &f.op).res, LEN, "the latest deadline");
	good_op(KVBLK_OP_PUT);
	f.pieces[0] = kv_piece(readonly, PAGE);
	f.op.ttl_s = KVBLK_TTL_MAX;
	/* hints, tags and parents may all be absent; so may what a later version adds */
	f.op.ext = kv_addr(&f.e);
	f.e.ext.size = sizeof(f.e);
	EXPECT_EQ(kv_one(fd, &f.op).res, PAGE, "put from read-only memory");
	good_op(KVBLK_OP_DELETE);
	f.key = kv_key(FRESH);
	EXPECT_EQ(kv_one(fd, &f.op).res, 0, "delete of it");
	check_unchanged("odd but good input");
	PASSED("ends of mappings, read-only sources, the latest deadline");
}

struct batch {
	struct kvblk_submit_arg io;
	struct kvblk_op ops[2];
	struct kvblk_result res[2];
	uint8_t tail[64];	/* bytes behind the arrays, for sizes that are too large */
};

static struct batch b;
static struct kv_key fresh_keys[2];
static struct kvblk_piece fresh_piece;

static void good_batch(void)
{
	memset(&b, 0, sizeof(b));
	fresh_keys[0] = kv_key(FRESH);
	fresh_keys[1] = kv_key(FRESH + 1);
	fresh_piece = kv_piece(put_buf, LEN);
	for (int i = 0; i < 2; i++)
		b.ops[i] = kv_op(KVBLK_OP_PUT, &fresh_keys[i], &fresh_piece, 1);
	b.io = (struct kvblk_submit_arg){
		.size = sizeof(b.io),
		.nr_ops = 2,
		.op_size = sizeof(b.ops[0]),
		.result_size = sizeof(b.res[0]),
		.ops = kv_addr(b.ops),
		.results = kv_addr(b.res),
	};
}

struct call_case {
	const char *name;
	int want;
	void (*spoil)(void);
};

SPOIL(size_0, b.io.size = 0)
SPOIL(size_small, b.io.size = 39)
SPOIL(size_4, b.io.size = 4)
SPOIL(size_huge, b.io.size = UINT32_MAX)
SPOIL(size_page, b.io.size = 8192)
SPOIL(bad_flags, b.io.flags = 1 << 2)
SPOIL(bad_flag_beside, b.io.flags = KVBLK_SUBMIT_INTERRUPTIBLE | 1u << 31)
SPOIL(all_flags, b.io.flags = UINT32_MAX)
SPOIL(no_ops, b.io.nr_ops = 0)
SPOIL(ops_1025, b.io.nr_ops = KVBLK_OPS_MAX + 1)
SPOIL(ops_huge, b.io.nr_ops = UINT32_MAX)
SPOIL(op_size_0, b.io.op_size = 0)
SPOIL(op_size_79, b.io.op_size = 79)
SPOIL(op_size_4097, b.io.op_size = KVBLK_STRUCT_MAX + 1)
SPOIL(op_size_huge, b.io.op_size = UINT32_MAX)
SPOIL(result_size_0, b.io.result_size = 0)
SPOIL(result_size_39, b.io.result_size = 39)
SPOIL(result_size_4097, b.io.result_size = KVBLK_STRUCT_MAX + 1)
SPOIL(reserved, b.io.reserved = 1)
SPOIL(ops_null, b.io.ops = 0)
SPOIL(ops_hole, b.io.ops = kv_addr(hole))
SPOIL(ops_half, b.io.ops = kv_addr(hole) - sizeof(b.ops[0]))
SPOIL(ops_kernel, b.io.ops = KERNEL_ADDR)
SPOIL(ops_wrap, b.io.ops = UINT64_MAX - 40)
SPOIL(results_null, b.io.results = 0)
SPOIL(results_hole, b.io.results = kv_addr(hole))
SPOIL(results_half, b.io.results = kv_addr(hole) - sizeof(b.res[0]))
SPOIL(results_kernel, b.io.results = KERNEL_ADDR)
SPOIL(results_wrap, b.io.results = UINT64_MAX - 40)
SPOIL(results_readonly, b.io.results = kv_addr(readonly))

static const struct call_case submit_cases[] = {
	{ "size 0", -EINVAL, size_0 },
	{ "size one short", -EINVAL, size_small },
	{ "size 4", -EINVAL, size_4 },
	{ "size 4 GiB - 1", -E2BIG, size_huge },
	{ "size beyond a page", -E2BIG, size_page },
	{ "an unknown flag", -EOPNOTSUPP, bad_flags },
	{ "an unknown flag beside a known one", -EOPNOTSUPP, bad_flag_beside },
	{ "all flags", -EOPNOTSUPP, all_flags },
	{ "no operations", -EINVAL, no_ops },
	{ "1025 operations", -EINVAL, ops_1025 },
	{ "2^32 - 1 operations", -EINVAL, ops_huge },
	{ "op_size 0", -EINVAL, op_size_0 },
	{ "op_size 79", -EINVAL, op_size_79 },
	{ "op_size 4097", -EINVAL, op_size_4097 },
	{ "op_size 2^32 - 1", -EINVAL, op_size_huge },
	{ "result_size 0", -EINVAL, result_size_0 },
	{ "result_size 39", -EINVAL, result_size_39 },
	{ "result_size 4097", -EINVAL, result_size_4097 },
	{ "reserved", -EINVAL, reserved },
	{ "ops NULL", -EFAULT, ops_null },
	{ "ops unmapped", -EFAULT, ops_hole },
	{ "second op unmapped", -EFAULT, ops_half },
	{ "ops in the kernel", -EFAULT, ops_kernel },
	{ "ops that wrap", -EFAULT, ops_wrap },
	{ "results NULL", -EFAULT, results_null },
	{ "results unmapped", -EFAULT, results_hole },
	{ "second result unmapped", -EFAULT, results_half },
	{ "results in the kernel", -EFAULT, results_kernel },
	{ "results that wrap", -EFAULT, results_wrap },
	{ "results read-only", -EFAULT, results_readonly },
};

static void check_no_puts(const char *name)
{
	EXPECT_EQ(kv_size(fd, FRESH), 0, "first put was done with: %s", name);
	EXPECT_EQ(kv_size(fd, FRESH + 1), 0, "second put was done with: %s",
		  name);
	if (kv_size(fd, FRESH))
		kv_delete(fd, FRESH);
	if (kv_size(fd, FRESH + 1))
		kv_delete(fd, FRESH + 1);
}

TEST(submit)
{
	static const unsigned long zero[8];
	unsigned int n = 0;

	for (; n < ARRAY_SIZE(submit_cases); n++) {
		const struct call_case *c = &submit_cases[n];
		int err;

		good_batch();
		/* with a size too large, the kernel reads these bytes behind the structure */
		memset(b.tail, 1, sizeof(b.tail));
		memcpy(hole - 2 * sizeof(b.ops[0]), b.ops, sizeof(b.ops));
		c->spoil();
		err = kv_ioctl(fd, KVBLK_IOC_SUBMIT, &b.io);
		EXPECT_EQ(err, c->want, "submit with %s", c->name);
		check_no_puts(c->name);
	}
	EXPECT_EQ(memcmp(readonly, zero, sizeof(zero)), 0,
		  "read-only memory was written to");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_SUBMIT, NULL), -EFAULT, "submit of NULL");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_SUBMIT, hole), -EFAULT,
		  "submit of unmapped memory");
	good_batch();
	memcpy(hole - 8, &b.io, 8);
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_SUBMIT, hole - 8), -EFAULT,
		  "submit of half mapped memory");
	check_unchanged("submits");
	PASSED("%u cases", n + 3);
}

TEST(longer_structures)
{
	struct { struct kvblk_submit_arg io; uint64_t tail[3]; } s;
	struct { struct kvblk_op op; uint64_t tail[2]; } ops[2];

	good_batch();
	memset(&s, 0, sizeof(s));
	s.io = b.io;
	s.io.size = sizeof(s);
	s.io.nr_ops = 1;
	s.tail[2] = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_SUBMIT, &s), -E2BIG,
		  "a longer structure with something in its tail");
	check_no_puts("a tail of a structure");

	memset(ops, 0, sizeof(ops));
	ops[0].op = b.ops[0];
	ops[1].op = b.ops[1];
	ops[1].tail[1] = 1ull << 63;
	s.tail[2] = 0;
	s.io.nr_ops = 2;
	s.io.op_size = sizeof(ops[0]);
	s.io.ops = kv_addr(ops);
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_SUBMIT, &s), -E2BIG,
		  "an operation with something in its tail");
	check_no_puts("a tail of an operation");

	ops[1].tail[1] = 0;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_SUBMIT, &s), 0, "tails of zeroes");
	EXPECT_EQ(b.res[0].res, LEN, "put with a tail of zeroes");
	EXPECT_EQ(kv_delete(fd, FRESH).res, 0, "delete");
	EXPECT_EQ(kv_delete(fd, FRESH + 1).res, 0, "delete");
	PASSED("zero tails are taken, others are -E2BIG");
}

static struct {
	struct kvblk_lookup io;
	uint64_t tail[8];
} l;
static uint8_t lookup_blob[64];
static uint16_t lookup_lens[2];
static uint64_t lookup_out[3][2];

static void good_lookup(void)
{
	struct kv_key key = kv_key(CONTROL);

	memcpy(lookup_blob, key.bytes, 16);
	memcpy(lookup_blob + 16, key.bytes, 16);
	lookup_lens[0] = key.len;
	lookup_lens[1] = key.len;
	memset(&l, 0, sizeof(l));
	l.io = (struct kvblk_lookup){
		.size = sizeof(l.io),
		.nr_keys = 2,
		.key_stride = key.len,
		.keys = kv_addr(lookup_blob),
		.bitmap = kv_addr(lookup_out[0]),
		.sizes = kv_addr(lookup_out[1]),
		.caller_tags = kv_addr(lookup_out[2]),
	};
}

static void with_lens(void)
{
	l.io.key_stride = 0;
	l.io.key_lens = kv_addr(lookup_lens);
}

SPOIL(l_size_0, l.io.size = 0)
SPOIL(l_size_20, l.io.size = 20)
SPOIL(l_size_short, l.io.size = KVBLK_LOOKUP_SIZE_VER0 - 1)
SPOIL(l_size_huge, l.io.size = UINT32_MAX)
SPOIL(l_tail, l.io.size = sizeof(l); l.tail[7] = 1)
SPOIL(l_flags, l.io.flags = 1 << 3)
SPOIL(l_no_keys, l.io.nr_keys = 0)
SPOIL(l_keys_65537, l.io.nr_keys = KVBLK_LOOKUP_MAX + 1)
SPOIL(l_keys_huge, l.io.nr_keys = UINT32_MAX)
SPOIL(l_stride_0, l.io.key_stride = 0)
SPOIL(l_stride_513, l.io.key_stride = 513)
SPOIL(l_stride_huge, l.io.key_stride = UINT32_MAX)
SPOIL(l_stride_and_lens, with_lens(); l.io.key_stride = 16)
SPOIL(l_len_0, with_lens(); lookup_lens[1] = 0)
SPOIL(l_len_513, with_lens(); lookup_lens[1] = 513)
SPOIL(l_keys_null, l.io.keys = 0)
SPOIL(l_keys_hole, l.io.keys = kv_addr(hole) - 16)
SPOIL(l_keys_kernel, l.io.keys = KERNEL_ADDR)
SPOIL(l_keys_wrap, l.io.keys = UINT64_MAX - 20)
SPOIL(l_lens_hole, with_lens(); l.io.key_lens = kv_addr(hole) - 2)
SPOIL(l_lens_kernel, with_lens(); l.io.key_lens = KERNEL_ADDR)
SPOIL(l_bitmap_kernel, l.io.bitmap = KERNEL_ADDR)
SPOIL(l_bitmap_readonly, l.io.bitmap = kv_addr(readonly))
SPOIL(l_sizes_hole, l.io.sizes = kv_addr(hole) - 4)
SPOIL(l_sizes_kernel, l.io.sizes = KERNEL_ADDR)
SPOIL(l_tags_hole, l.io.caller_tags = kv_addr(hole) - 8)
SPOIL(l_tags_readonly, l.io.caller_tags = kv_addr(readonly))
SPOIL(l_lease_no_ms, l.io.flags = KVBLK_LOOKUP_LEASE)
SPOIL(l_ms_no_lease, l.io.lease_ms = 1)
SPOIL(l_lease_too_long, l.io.flags = KVBLK_LOOKUP_LEASE;
      l.io.lease_ms = KVBLK_LEASE_MS_MAX + 1)
SPOIL(l_lease_huge, l.io.flags = KVBLK_LOOKUP_LEASE;
      l.io.lease_ms = UINT32_MAX)
SPOIL(l_tiers_readonly, l.io.tiers = kv_addr(readonly))
SPOIL(l_times_readonly, l.io.times = kv_addr(readonly))
SPOIL(l_times_hole, l.io.times = kv_addr(hole) - 4)
SPOIL(l_times_kernel, l.io.times = KERNEL_ADDR)

static const struct call_case lookup_cases[] = {
	{ "size 0", -EINVAL, l_size_0 },
	{ "size 20", -EINVAL, l_size_20 },
	{ "size one short", -EINVAL, l_size_short },
	{ "size 4 GiB - 1", -E2BIG, l_size_huge },
	{ "a tail", -E2BIG, l_tail },
	{ "an unknown flag", -EOPNOTSUPP, l_flags },
	{ "no keys", -EINVAL, l_no_keys },
	{ "65537 keys", -EINVAL, l_keys_65537 },
	{ "2^32 - 1 keys", -EINVAL, l_keys_huge },
	{ "stride 0", -EINVAL, l_stride_0 },
	{ "stride 513", -EINVAL, l_stride_513 },
	{ "stride 2^32 - 1", -EINVAL, l_stride_huge },
	{ "stride and lengths", -EINVAL, l_stride_and_lens },
	{ "a length of 0", -EINVAL, l_len_0 },
	{ "a length of 513", -EINVAL, l_len_513 },
	{ "keys NULL", -EFAULT, l_keys_null },
	{ "second key unmapped", -EFAULT, l_keys_hole },
	{ "keys in the kernel", -EFAULT, l_keys_kernel },
	{ "keys that wrap", -EFAULT, l_keys_wrap },
	{ "second length unmapped", -EFAULT, l_lens_hole },
	{ "lengths in the kernel", -EFAULT, l_lens_kernel },
	{ "bitmap in the kernel", -EFAULT, l_bitmap_kernel },
	{ "bitmap read-only", -EFAULT, l_bitmap_readonly },
	{ "second size unmapped", -EFAULT, l_sizes_hole },
	{ "sizes in the kernel", -EFAULT, l_sizes_kernel },
	{ "second tag unmapped", -EFAULT, l_tags_hole },
	{ "tags read-only", -EFAULT, l_tags_readonly },
	{ "LEASE without lease_ms", -EINVAL, l_lease_no_ms },
	{ "lease_ms without LEASE", -EINVAL, l_ms_no_lease },
	{ "a lease of an hour and 1 ms", -EINVAL, l_lease_too_long },
	{ "a lease of 2^32 - 1 ms", -EINVAL, l_lease_huge },
	{ "tiers read-only", -EFAULT, l_tiers_readonly },
	{ "times read-only", -EFAULT, l_times_readonly },
	{ "second time unmapped", -EFAULT, l_times_hole },
	{ "times in the kernel", -EFAULT, l_times_kernel },
};

/* All cases also ask for a lease: an error must leave none behind. */
TEST(lookup)
{
	unsigned int n = 0;

	for (; n < ARRAY_SIZE(lookup_cases); n++) {
		const struct call_case *c = &lookup_cases[n];

		good_lookup();
		c->spoil();
		EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, &l.io), c->want,
			  "lookup with %s", c->name);
		good_lookup();
		l.io.flags = KVBLK_LOOKUP_LEASE;
		l.io.lease_ms = 3600000;
		c->spoil();
		if (c->want == -EFAULT)
			EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, &l.io), c->want,
				  "lookup with a lease and %s", c->name);
	}
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, NULL), -EFAULT, "NULL");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, hole), -EFAULT, "unmapped");
	good_lookup();
	with_lens();
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, &l.io), 0, "a good lookup");
	EXPECT_EQ(l.io.nr_present, 2, "what it finds");
	good_lookup();
	l.io.size = sizeof(l);
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, &l.io), 0, "a longer lookup");
	EXPECT_EQ(l.io.size, sizeof(l.io), "size that a lookup writes back");
	good_lookup();
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LOOKUP, readonly), -EINVAL,
		  "a structure of zeroes, read-only");
	check_unchanged("lookups");
	PASSED("%u cases", n + 3);
}

TEST(small_structures)
{
	struct { struct kvblk_info io; uint64_t tail[2]; } i = { 0 };
	struct { struct kvblk_lease_release_arg io; uint64_t tail[2]; } r = { 0 };
	struct { struct kvblk_cancel_arg io; uint64_t tail[2]; } c = { 0 };
	struct { struct kvblk_drain_arg io; uint64_t tail[2]; } d = { 0 };
	struct { struct kvblk_unreg_buf_arg io; uint64_t tail[2]; } u = { 0 };
	struct kvblk_info small;

	i.io.size = 0;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, &i), -EINVAL, "info: size 0");
	i.io.size = KVBLK_INFO_SIZE_VER0 - 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, &i), -EINVAL, "info: size one short");
	i.io.size = KVBLK_STRUCT_MAX + 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, &i), -E2BIG, "info: size 4097");
	i.io.size = sizeof(i.io);
	i.io.flags = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, &i), -EOPNOTSUPP, "info: a flag");
	i.io.flags = 0;
	i.io.size = sizeof(i);
	i.tail[1] = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, &i), -E2BIG, "info: a tail");
	i.tail[1] = 0;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, &i), 0, "info: a tail of zeroes");
	EXPECT_EQ(i.io.size, sizeof(i.io), "size that info writes back");
	EXPECT_EQ(i.tail[1], 0, "info wrote to the tail");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, NULL), -EFAULT, "info: NULL");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, (void *)KERNEL_ADDR), -EFAULT,
		  "info: in the kernel");
	small = (struct kvblk_info){ .size = sizeof(small) };
	memcpy(hole - sizeof(small) + 8, &small, sizeof(small) - 8);
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_INFO, hole - sizeof(small) + 8),
		  -EFAULT, "info: half mapped");

	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LEASE_RELEASE, &r), -EINVAL,
		  "lease release: size 0");
	r.io.size = sizeof(r.io);
	r.io.flags = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LEASE_RELEASE, &r), -EOPNOTSUPP,
		  "lease release: a flag");
	r.io.flags = 0;
	r.io.size = sizeof(r);
	r.tail[0] = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LEASE_RELEASE, &r), -E2BIG,
		  "lease release: a tail");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LEASE_RELEASE, hole), -EFAULT,
		  "lease release: unmapped");
	r.tail[0] = 0;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LEASE_RELEASE, &r), -EINVAL,
		  "lease release: lease 0");
	r.io.lease = UINT64_MAX;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_LEASE_RELEASE, &r), -ENOENT,
		  "lease release: the last lease");

	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &c), -EINVAL, "cancel: size 0");
	c.io.size = sizeof(c.io);
	c.io.flags = 2;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &c), -EOPNOTSUPP,
		  "cancel: a flag");
	c.io.flags = 0;
	c.io.reserved = 5;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &c), -EINVAL, "cancel: reserved");
	c.io.reserved = 0;
	c.io.size = sizeof(c);
	c.tail[1] = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &c), -E2BIG, "cancel: a tail");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, NULL), -EFAULT, "cancel: NULL");
	c.io.size = sizeof(c.io);
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &c), -EINVAL, "cancel: cookie 0");
	c.io.cookie = 1;
	c.io.nr_found = 77;
	c.io.size = sizeof(c);
	c.tail[1] = 0;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_CANCEL, &c), -ENOENT, "cancel: cookie 1");
	EXPECT_EQ(c.io.nr_found, 0, "cancel: found with -ENOENT");
	EXPECT_EQ(c.io.size, sizeof(c.io), "cancel: size with -ENOENT");

	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_DRAIN, &d), -EINVAL, "drain: size 0");
	d.io.size = sizeof(d.io) - 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_DRAIN, &d), -EINVAL, "drain: size one short");
	d.io.size = sizeof(d.io);
	d.io.flags = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_DRAIN, &d), -EOPNOTSUPP, "drain: a flag");
	d.io.flags = 0;
	d.io.size = sizeof(d);
	d.tail[0] = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_DRAIN, &d), -E2BIG, "drain: a tail");
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_DRAIN, NULL), -EFAULT, "drain: NULL");
	d.tail[0] = 0;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_DRAIN, &d), 0, "drain of nothing");
	d.io.deadline_ns = UINT64_MAX;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_DRAIN, &d), 0, "drain until the end of time");

	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_UNREG_BUF, &u), -EINVAL, "unregister: size 0");
	u.io.size = sizeof(u.io);
	u.io.flags = 2;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_UNREG_BUF, &u), -EOPNOTSUPP, "unregister: a flag");
	u.io.flags = 1u << 31;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_UNREG_BUF, &u), -EOPNOTSUPP,
		  "unregister: flag 1 << 31");
	u.io.flags = KVBLK_UNREG_WAIT;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_UNREG_BUF, &u), -ENOENT, "unregister: handle 0");
	u.io.reserved = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_UNREG_BUF, &u), -EINVAL, "unregister: reserved");
	u.io.reserved = 0;
	u.io.size = sizeof(u);
	u.tail[1] = 1;
	EXPECT_EQ(kv_ioctl(fd, KVBLK_IOC_UNREG_BUF, &u), -E2BIG, "unregister: a tail");
	check_unchanged("info, lease release, cancel, drain and unregister");
	PASSED("sizes, flags, tails and pointers of the five");
}

static int get_by(int fd)
{
	return kv_get(fd, CONTROL, buf, LEN).res;
}

TEST(open_mode)
{
	static const struct {
		int mode, get, put, delete, look;
	} cases[] = {
		{ O_RDWR, LEN, LEN, 0, 0 },
		{ O_RDONLY, LEN, -EBADF, -EBADF, 0 },
		{ O_WRONLY, -EBADF, LEN, 0, -EBADF },
		/* access mode 3: neither read nor write, see open(2) */
		{ O_ACCMODE, -EBADF, -EBADF, -EBADF, -EBADF },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int way = open(node, cases[i].mode | O_CLOEXEC), mode = cases[i].mode;
		struct kvblk_lease_release_arg release = { .size = sizeof(release), .lease = 1 };
		struct kvblk_cancel_arg cancel = { .size = sizeof(cancel), .cookie = 1 };
		struct kvblk_info seen = { .size = sizeof(seen) };
		struct kvblk_reg_buf_arg reg = {
			.size = sizeof(reg), .addr = kv_addr(buf), .length = LEN,
		};
		struct kvblk_unreg_buf_arg unreg = { .size = sizeof(unreg) };

		ASSERT(way >= 0, "open with mode %d", mode);
		EXPECT_EQ(get_by(way), cases[i].get, "get, mode %d", mode);
		EXPECT_EQ(kv_put(way, FRESH, put_buf, LEN).res, cases[i].put,
			  "put, mode %d", mode);
		EXPECT_EQ(kv_size(fd, FRESH), cases[i].put > 0 ? LEN : 0,
			  "what was put, mode %d", mode);
		EXPECT_EQ(kv_delete(way, FRESH).res, cases[i].delete, "delete, mode %d", mode);
		EXPECT_EQ(kv_size(fd, FRESH), 0, "what was deleted, mode %d", mode);
		good_lookup();
		l.io.flags = KVBLK_LOOKUP_LEASE;
		l.io.lease_ms = 1000;
		EXPECT_EQ(kv_ioctl(way, KVBLK_IOC_LOOKUP, &l.io), cases[i].look,
			  "lookup, mode %d", mode);
		release.lease = cases[i].look ? 1 : l.io.lease;
		EXPECT_EQ(kv_ioctl(way, KVBLK_IOC_LEASE_RELEASE, &release), cases[i].look,
			  "release, mode %d", mode);
		EXPECT_EQ(kv_ioctl(way, KVBLK_IOC_INFO, &seen), 0, "info, mode %d", mode);
		EXPECT_EQ(kv_ioctl(way, KVBLK_IOC_CANCEL, &cancel), -ENOENT,
			  "cancel, mode %d", mode);
		EXPECT_EQ(kv_ioctl(way, KVBLK_IOC_REG_BUF, &reg), 0, "register, mode %d", mode);
		unreg.handle = reg.handle;
		EXPECT_EQ(kv_ioctl(way, KVBLK_IOC_UNREG_BUF, &unreg), 0,
			  "unregister, mode %d", mode);
		close(way);
	}
	check_unchanged("open modes");
	PASSED("read, write, both and neither");
}

TEST(no_such_ioctl)
{
	char byte;

	for (unsigned int nr = 0; nr < 256; nr++) {
		if (nr > (KVBLK_IOC_DRAIN & 0xff))
			EXPECT_EQ(kv_ioctl(fd, _IO(KVBLK_IOC_TYPE, nr), buf),
				  -ENOTTY, "ioctl number %u", nr);
	}
	EXPECT_EQ(kv_ioctl(fd, _IO(0xdd, 0), buf), -ENOTTY, "another type");
	EXPECT_EQ(kv_ioctl(fd, _IOWR(KVBLK_IOC_TYPE, 0, struct kvblk_info), buf),
		  -ENOTTY, "with direction and size");
	EXPECT_EQ(kv_ioctl(fd, 0x1268 /* BLKSSZGET */, buf), -ENOTTY,
		  "an ioctl of block devices");
	EXPECT(read(fd, &byte, 1) < 0, "read() reads something");
	EXPECT(write(fd, &byte, 1) < 0, "write() writes something");
	EXPECT(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED,
	       "mmap() maps something");
	check_unchanged("unknown ioctls");
	PASSED("-ENOTTY for all others; no read, write or mmap");
}

TEST(the_largest_of_all)
{
	struct kvblk_op *ops = calloc(KVBLK_OPS_MAX, sizeof(*ops));
	struct kvblk_result *res = calloc(KVBLK_OPS_MAX, sizeof(*res));

	/* 1024 gets of 1024 pieces, 64 GiB in sum: valid, since the limit is per operation */
	good_op(KVBLK_OP_GET);
	for (unsigned int i = 0; i < KVBLK_PIECES_MAX; i++)
		f.pieces[i] = kv_piece(buf, 65536);
	f.op.nr_pieces = KVBLK_PIECES_MAX;
	f.key = kv_key(FRESH);
	for (unsigned int i = 0; i < KVBLK_OPS_MAX; i++)
		ops[i] = f.op;
	ASSERT_EQ(kv_submit(fd, ops, res, KVBLK_OPS_MAX, 0), 0, "the batch");
	for (unsigned int i = 0; i < KVBLK_OPS_MAX; i++)
		EXPECT_EQ(res[i].res, -ENOENT, "get %u of an absent block", i);
	free(ops);
	free(res);
	check_unchanged("1024 gets of 1024 pieces");
	PASSED("1024 operations of 1024 pieces of 64 KiB");
}

int main(int argc, char **argv)
{
	uint8_t *three;

	fd = kv_open_node(argc, argv);
	node = argv[1];
	info = kv_info(fd);
	buf = kv_alloc(1 << 20);
	put_buf = kv_alloc(65 << 20);
	readonly = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	three = kv_alloc(3 * PAGE);
	hole = three + PAGE * 2;
	munmap(hole, PAGE);
	kv_fill(kv_seed(CONTROL, 0), 0, put_buf, LEN);
	if (kv_put(fd, CONTROL, put_buf, LEN).res != (int)LEN)
		kv_die("can't put the control block");
	return kv_run_tests(argc - 2, argv + 2);
}
