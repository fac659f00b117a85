// SPDX-License-Identifier: MIT
/*
 * Memory of all kinds in libkvblk: host memory, mappings of PCI memory, and device pointers.
 * Staged transfers are complete or fail, keep their order and their deadlines, and overlap with
 * copies; no failure leaves anything behind.
 */
#include "mem_test.h"

MEM_TEST(test_host)
{
	static unsigned char bytes[3 * MIB];
	struct kvblk_piece piece;
	struct kvblk_mem *mem;
	uint32_t flags;
	size_t len;

	assert_int_equal(kvblk_mem_register(kv, bytes + 3, sizeof(bytes) - 3, NULL, &mem), 0);
	assert_int_equal(kind_of(mem), KVBLK_MEM_REGISTERED);
	assert_ptr_equal(kvblk_mem_addr(mem), bytes + 3);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 10, 20), 0);
	assert_int_equal(piece.type, KVBLK_PIECE_REGISTERED);
	assert_int_equal(piece.addr, 10);
	assert_int_equal(piece.length, 20);
	pattern(bytes, MIB, 1);
	assert_int_equal(mem_put(mem, 97, MIB - 100, "a", &flags), 0);
	assert_int_equal(flags, KVBLK_RES_DIRECT);
	assert_int_equal(mem_put(mem, 97, MIB - 100, "a", NULL), -EEXIST);
	len = 2 * MIB - 3;
	assert_int_equal(mem_get(mem, MIB, &len, "a", &flags), 0);
	assert_int_equal(len, MIB - 100);
	assert_memory_equal(bytes + 3 + MIB, bytes + 100, MIB - 100);
	len = 5;
	assert_int_equal(mem_get(mem, 0, &len, "a", NULL), -EMSGSIZE);
	assert_int_equal(len, MIB - 100);
	assert_int_equal(mem_get(mem, 0, &len, "b", NULL), -ENOENT);
	kvblk_mem_unregister(mem);
	kvblk_mem_unregister(NULL);

	assert_int_equal(kvblk_mem_alloc(kv, "host", 5000, NULL, &mem), 0);
	memset(kvblk_mem_addr(mem), 1, 5000);
	kvblk_mem_unregister(mem);
}

MEM_TEST(test_bad_input)
{
	static char bytes[MIB];
	static const struct kvblk_mem_options bad[] = {
		{ .size = sizeof(bad[0]), .block_max = KVBLK_VALUE_MAX + 1 },
		{ .size = sizeof(bad[0]), .lanes = KVBLK_MEM_LANES_MAX + 1 },
		{ .size = sizeof(bad[0]) - 1 },
	};
	struct kvblk_mem *mem = NULL;
	struct kvblk_piece piece;
	size_t len = 1;

	assert_int_equal(kvblk_mem_register(NULL, bytes, 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, NULL, 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, bytes, 0, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, bytes, 1, NULL, NULL), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, bytes, (64ull << 30) + 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_register(kv, (void *)(UINTPTR_MAX - 10), 20, NULL, &mem), -EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(kvblk_mem_register(kv, bytes, 1, &bad[i], &mem), -EINVAL);
		assert_int_equal(kvblk_mem_alloc(kv, "host", 1, &bad[i], &mem), -EINVAL);
	}
	assert_int_equal(kvblk_mem_alloc(NULL, "host", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, NULL, 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "host", 0, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "host", 1, NULL, NULL), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:0x", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:1", 1, NULL, &mem), -ENODEV);
	assert_int_equal(kvblk_mem_alloc(kv, "00:01", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "00:01.0x", 1, NULL, &mem), -EINVAL);
	assert_int_equal(kvblk_mem_alloc(kv, "fffe:ff:1f.7", 1, NULL, &mem), -ENOENT);
	assert_int_equal(kvblk_mem_alloc(kv, "ff:1f.7", 1, NULL, &mem), -ENOENT);
	assert_int_equal(kvblk_mem_alloc(kv, "/nowhere", 1, NULL, &mem), -ENOENT);
	assert_int_equal(kvblk_mem_alloc(kv, "/dev/null", 1, NULL, &mem), -ENODEV);
	assert_null(mem);

	assert_int_equal(kvblk_mem_register(kv, bytes, 100, NULL, &mem), 0);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 0, 0), -EINVAL);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 0, 101), -EFAULT);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 101, 1), -EFAULT);
	assert_int_equal(kvblk_prep_piece(&piece, mem, SIZE_MAX, 1), -EFAULT);
	assert_int_equal(mem_put(mem, 0, 101, "a", NULL), -EFAULT);
	assert_int_equal(mem_get(mem, 100, &len, "a", NULL), -EFAULT);
	assert_int_equal(ops_seen, 0);
	kvblk_mem_unregister(mem);
}

MEM_TEST(test_what_cannot_be_pinned)
{
	char *hole = mmap(NULL, 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static char bytes[4096];
	struct kvblk_mem *mem = NULL;

	mprotect(hole, 4096, PROT_READ | PROT_WRITE);
	assert_int_equal(kvblk_mem_register(kv, hole, 2 * 4096, NULL, &mem), -EFAULT);
	assert_int_equal(kvblk_mem_register(kv, hole + 4096, 4096, NULL, &mem), -EFAULT);
	munmap(hole, 2 * 4096);
	for (const int *err = (const int[]){ -EFAULT, -ENOMEM, -ENOSPC, -ENODEV, 0 }; *err; err++) {
		region_error = *err;
		assert_int_equal(kvblk_mem_register(kv, bytes, 4096, NULL, &mem), *err);
		assert_int_equal(kvblk_mem_alloc(kv, "host", 4096, NULL, &mem), *err);
	}
	region_error = 0;
	fail_alloc = 0;
	assert_int_equal(kvblk_mem_register(kv, bytes, 4096, NULL, &mem), -ENOMEM);
}

/* Memory that the kernel does not pin for long: pinned for each operation. */
MEM_TEST(test_pinned_each_time)
{
	char path[] = "/tmp/kvblk-mem-test-XXXXXX";
	int fd = mkstemp(path);
	struct kvblk_piece piece;
	struct kvblk_mem *mem;
	uint32_t flags;
	size_t len = 4;

	assert_int_equal(ftruncate(fd, 8192), 0);
	region_error = -EXDEV;
	assert_int_equal(kvblk_mem_alloc(kv, path, 5000, NULL, &mem), 0);
	assert_int_equal(kind_of(mem), KVBLK_MEM_ADDRESSED);
	memcpy(kvblk_mem_addr(mem), "abcdefgh", 8);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 2, 3), 0);
	assert_int_equal(piece.type, KVBLK_PIECE_USER);
	assert_memory_equal((char *)(uintptr_t)piece.addr, "cde", 3);
	assert_int_equal(mem_put(mem, 4, 4, "a", &flags), 0);
	assert_int_equal(mem_get(mem, 4000, &len, "a", &flags), 0);
	assert_int_equal(flags, KVBLK_RES_DIRECT);
	assert_memory_equal((char *)kvblk_mem_addr(mem) + 4000, "efgh", 4);
	kvblk_mem_unregister(mem);
	close(fd);
	unlink(path);
}

MEM_TEST(test_staged)
{
	static const size_t lens[] = { 1, 4095, UNIT, UNIT + 1, 3 * UNIT - 1, 20 * UNIT };
	struct kvblk_mem *mem = vram(3 * MIB);
	struct kvblk_piece piece;
	uint32_t flags;
	char key = 'a';

	assert_int_equal(kind_of(mem), KVBLK_MEM_STAGED);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 3 * MIB - 1, 2), -EFAULT);
	assert_int_equal(kvblk_prep_piece(&piece, mem, 0, 1), 0);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++, key++) {
		size_t len = lens[i] + 5;

		pattern(device(mem) + 11, lens[i], (unsigned int)i);
		assert_int_equal(mem_put(mem, 11, lens[i], &key, &flags), 0);
		assert_int_equal(flags, KVBLK_RES_BOUNCED);
		assert_int_equal(blocks[(int)key].len, lens[i]);
		assert_memory_equal(blocks[(int)key].data, device(mem) + 11, lens[i]);
		memset(device(mem), 0xee, 3 * MIB);
		flags = 0;
		assert_int_equal(mem_get(mem, 77, &len, &key, &flags), 0);
		assert_int_equal(flags, KVBLK_RES_BOUNCED);
		assert_int_equal(len, lens[i]);
		assert_memory_equal(device(mem) + 77, blocks[(int)key].data, len);
		assert_true(all_are(device(mem), 77, 0xee));
		assert_true(all_are(device(mem) + 77 + len, 3 * MIB - 77 - len, 0xee));
	}
	kvblk_mem_unregister(mem);
}

MEM_TEST(test_staged_limits)
{
	struct kvblk_mem *mem = vram(3 * MIB);
	size_t len = 3 * MIB;

	assert_int_equal(mem_put(mem, 0, 20 * UNIT + 1, "a", NULL), -EFBIG);
	block_set('b', 20 * UNIT + 1);
	assert_int_equal(mem_get(mem, 0, &len, "b", NULL), -EFBIG);
	assert_int_equal(len, 3 * MIB);
	len = UNIT;
	assert_int_equal(mem_get(mem, 0, &len, "b", NULL), -EMSGSIZE);
	assert_int_equal(len, 20 * UNIT + 1);
	assert_int_equal(mem_get(mem, 0, &len, "c", NULL), -ENOENT);
	assert_true(all_are(device(mem), 3 * MIB, 0xdd));
	kvblk_mem_unregister(mem);
}

/* Batches: each block has three pieces, of two memories in turn. */

#define NR	12u

struct scattered {
	struct kvblk_mem *mems[2];
	struct kvblk_op ops[NR];
	struct kvblk_piece pieces[NR][3];
	struct kvblk_result results[NR];
	uint8_t keys[NR];
};

static const uint32_t piece_lens[3] = { 3 * UNIT, 1, UNIT + 77 };
#define LEN	((int)(4 * UNIT + 78))	/* four fit in half a lane */

/* Return the offset of piece @j of block @i; pieces do not touch. */
static size_t place(unsigned int i, unsigned int j)
{
	return (i * 3 + j) * (3 * UNIT + 100) + 5;
}

static void scatter(struct scattered *s, uint8_t opcode)
{
	memset(s->results, 0xaa, sizeof(s->results));
	for (unsigned int i = 0; i < NR; i++) {
		s->keys[i] = (uint8_t)(1 + i);
		for (unsigned int j = 0; j < 3; j++)
			assert_int_equal(kvblk_prep_piece(&s->pieces[i][j], s->mems[(i + j) % 2],
							  place(i, j), piece_lens[j]), 0);
		kvblk_prep_put(&s->ops[i], &s->keys[i], 1, s->pieces[i], 3);
		s->ops[i].opcode = opcode;
		s->ops[i].cookie = 100 + i;
	}
}

static void scattered_setup(struct scattered *s)
{
	for (unsigned int i = 0; i < 2; i++)
		s->mems[i] = vram(8 * MIB);
	/* both memories share one stage */
	assert_int_equal(nr_regions, 2);
	for (unsigned int i = 0; i < 2; i++)
		pattern(device(s->mems[i]), 8 * MIB, i);
}

static void scattered_end(struct scattered *s)
{
	for (unsigned int i = 0; i < 2; i++)
		kvblk_mem_unregister(s->mems[i]);
}

/* Check that block @i is in the pool and equal to the pieces; else the pieces must have @otherwise. */
static void check_pieces(const struct scattered *s, unsigned int i, bool there, unsigned char otherwise)
{
	const struct block *block = &blocks[s->keys[i]];
	size_t at = 0;

	for (unsigned int j = 0; j < 3; j++) {
		const unsigned char *p = device(s->mems[(i + j) % 2]) + place(i, j);

		if (there)
			assert_memory_equal(p, block->data + at, piece_lens[j]);
		else
			assert_true(all_are(p, piece_lens[j], otherwise));
		at += piece_lens[j];
	}
}

static void check_scattered(bool by_batch)
{
	struct scattered s;
	int copies_before;

	scattered_setup(&s);
	if (!by_batch)
		kvblk_cu.batch = NULL;
	scatter(&s, KVBLK_OP_PUT);
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	assert_int_equal(submits_seen, 3);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(batch_sizes[i], 4);
	for (unsigned int i = 0; i < NR; i++) {
		assert_int_equal(s.results[i].res, LEN);
		assert_int_equal(s.results[i].flags, KVBLK_RES_BOUNCED);
		assert_int_equal(s.results[i].cookie, 100 + i);
		assert_int_equal(blocks[s.keys[i]].len, LEN);
		check_pieces(&s, i, true, 0);
	}
	for (unsigned int i = 0; i < 2; i++)
		memset(device(s.mems[i]), 0xee, 8 * MIB);
	/* a missing block, and two of other lengths */
	free(blocks[3].data);
	blocks[3].data = NULL;
	block_set(6, LEN + 1);
	block_set(9, LEN - UNIT);
	scatter(&s, KVBLK_OP_GET);
	copies_before = fake_copies();
	submits_seen = 0;
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	/* the first load is copied to the device while the module works on the second */
	assert_int_equal(copies_seen[0], copies_before);
	assert_true(copies_seen[1] > copies_before);
	for (unsigned int i = 0; i < NR; i++) {
		int expected = i == 2 ? -ENOENT : i == 5 ? -EMSGSIZE : i == 8 ? LEN - (int)UNIT : LEN;

		assert_int_equal(s.results[i].res, expected);
		assert_int_equal(s.results[i].cookie, 100 + i);
		if (i == 8)
			continue;
		check_pieces(&s, i, expected > 0, 0xee);
	}
	/* a block shorter than its buffer fills the first pieces only */
	assert_memory_equal(device(s.mems[0]) + place(8, 0), blocks[9].data, 3 * UNIT);
	assert_memory_equal(device(s.mems[1]) + place(8, 1), blocks[9].data + 3 * UNIT, 1);
	assert_memory_equal(device(s.mems[0]) + place(8, 2), blocks[9].data + 3 * UNIT + 1, 77);
	assert_true(all_are(device(s.mems[0]) + place(8, 2) + 77, UNIT, 0xee));
	scatter(&s, KVBLK_OP_GET);
	s.ops[0].flags = KVBLK_OPF_PARTIAL;
	s.ops[0].offset = 100;
	memset(device(s.mems[0]), 0xee, 8 * MIB);
	s.ops[0].nr_pieces = 1;
	assert_int_equal(kvblk_submit(kv, s.ops, 1, s.results, 0), 0);
	assert_int_equal(s.results[0].res, 3 * UNIT);
	assert_memory_equal(device(s.mems[0]) + place(0, 0), blocks[1].data + 100, 3 * UNIT);
	assert_true(all_are(device(s.mems[0]) + place(0, 0) + 3 * UNIT, 100, 0xee));
	scattered_end(&s);
}

MEM_TEST(test_scattered)
{
	check_scattered(true);
}

/* Drivers before CUDA 12.8 have no batch copy. */
MEM_TEST(test_scattered_singly)
{
	check_scattered(false);
}

/* More pieces than one copy call takes. */
MEM_TEST(test_many_pieces)
{
	static struct kvblk_piece pieces[2][1000];
	struct kvblk_mem *mem = vram(2 * MIB);
	struct kvblk_result results[2];
	struct kvblk_op ops[2];

	pattern(device(mem), 2 * MIB, 3);
	for (unsigned int i = 0; i < 2000; i++)
		assert_int_equal(kvblk_prep_piece(&pieces[i % 2][i / 2], mem, i * 1000 + i % 7, 600 + i % 300), 0);
	for (unsigned int i = 0; i < 2; i++)
		kvblk_prep_put(&ops[i], i ? "b" : "a", 1, pieces[i], 1000);
	assert_int_equal(kvblk_submit(kv, ops, 2, results, 0), 0);
	memset(device(mem), 0, 2 * MIB);
	for (unsigned int i = 0; i < 2; i++) {
		size_t at = 0;

		assert_true(results[i].res > 600 * 1000);
		ops[i].opcode = KVBLK_OP_GET;
		for (unsigned int j = 0; j < 1000; j++)
			at += pieces[i][j].length;
		assert_int_equal(results[i].res, at);
	}
	assert_int_equal(kvblk_submit(kv, ops, 2, results, 0), 0);
	for (unsigned int i = 0; i < 2; i++) {
		const unsigned char *data = blocks[i ? 'b' : 'a'].data;

		for (unsigned int j = 0; j < 1000; j++) {
			assert_memory_equal(fake_bytes(pieces[i][j].addr), data, pieces[i][j].length);
			data += pieces[i][j].length;
		}
	}
	kvblk_mem_unregister(mem);
}

/* Puts, gets, and operations without device memory, interleaved. */
MEM_TEST(test_mixed_batch)
{
	static unsigned char bytes[100];
	static const uint8_t other = 'x';
	struct kvblk_piece host;
	struct scattered s;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	for (unsigned int i = 0; i < NR; i += 2) {
		s.ops[i].opcode = KVBLK_OP_GET;
		block_set(s.keys[i], LEN);
	}
	kvblk_prep_piece(&host, NULL, (uintptr_t)bytes, sizeof(bytes));
	kvblk_prep_put(&s.ops[7], &other, 1, &host, 1);
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	for (unsigned int i = 0; i < NR; i++) {
		assert_int_equal(s.results[i].res, i == 7 ? (int)sizeof(bytes) : LEN);
		if (i != 7)
			check_pieces(&s, i, true, 0);
	}
	assert_int_equal(blocks['x'].len, sizeof(bytes));
	/* a batch without device memory is passed to kvblk_submit() */
	submits_seen = 0;
	submit_error = -EINTR;
	assert_int_equal(kvblk_submit(kv, &s.ops[7], 1, s.results, 0), -EINTR);
	assert_int_equal(kvblk_submit(kv, s.ops, 0, s.results, 0), -EINTR);
	assert_int_equal(submits_seen, 2);
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	for (unsigned int i = 0; i < NR; i++)
		assert_int_equal(s.results[i].res, -EINTR);
	scattered_end(&s);
}

MEM_TEST(test_refused_in_batch)
{
	static unsigned char bytes[100];
	struct kvblk_mem *other;
	struct kvblk_piece late;
	struct scattered s;

	scattered_setup(&s);
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", MIB, NULL, &other), 0);
	for (unsigned int good = 0; good < NR; good++) {
		scatter(&s, KVBLK_OP_PUT);
		/* make all but one invalid, in six ways */
		for (unsigned int i = 0; i < NR; i++) {
			if (i == good)
				continue;
			switch (i % 6) {
			case 0:
				s.pieces[i][1].length = 0;
				break;
			case 1:
				kvblk_prep_piece(&s.pieces[i][2], NULL, (uintptr_t)bytes, sizeof(bytes));
				break;
			case 2:
				assert_int_equal(kvblk_prep_piece(&s.pieces[i][0], other, 0, 1), 0);
				assert_int_equal(kvblk_prep_piece(&s.pieces[i][1], s.mems[0], 0, 1), 0);
				break;
			case 3:
				s.pieces[i][0].length = 20 * UNIT;
				break;
			case 4:
				s.ops[i].opcode = KVBLK_OP_DELETE;
				break;
			case 5:
				s.pieces[i][0].handle = 12345;
				break;
			}
		}
		assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
		for (unsigned int i = 0; i < NR; i++) {
			static const int errs[] = { -EINVAL, -EXDEV, -EXDEV, -EFBIG, -EINVAL, -EINVAL };

			assert_int_equal(s.results[i].res, i == good ? LEN : errs[i % 6]);
			assert_int_equal(s.results[i].cookie, 100 + i);
		}
		free(blocks[s.keys[good]].data);
		blocks[s.keys[good]].data = NULL;
	}
	/* memory that was unregistered */
	assert_int_equal(kvblk_prep_piece(&late, other, 0, 1), 0);
	kvblk_mem_unregister(other);
	s.pieces[0][0] = late;
	assert_int_equal(kvblk_submit(kv, s.ops, 1, s.results, 0), 0);
	assert_int_equal(s.results[0].res, -EINVAL);
	scattered_end(&s);
}

/* A chain is kept when the batch is split into loads. */
MEM_TEST(test_chain)
{
	struct kvblk_op_ext ext, longer[2] = { { .size = sizeof(longer) } };
	struct scattered s;

	scattered_setup(&s);
	for (int with = 0; with < 3; with++) {
		scatter(&s, KVBLK_OP_PUT);
		if (with) {
			kvblk_prep_ext(&s.ops[0], &ext);
			ext.parent = (uintptr_t)"p";
			ext.parent_len = 1;
			ext.hints = KVBLK_HINT_MISSED;
		}
		/* an extension larger than this library's is passed unchanged */
		if (with == 2)
			s.ops[4].ext = (uintptr_t)longer;
		submits_seen = 0;
		assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, KVBLK_SUBMIT_CHAIN), 0);
		assert_int_equal(submits_seen, 3);
		assert_int_equal(parents_seen[0], with ? 'p' : 0);
		assert_int_equal(hints_seen[0], KVBLK_HINT_CONTINUES | (with ? KVBLK_HINT_MISSED : 0));
		assert_int_equal(parents_seen[1], with == 2 ? 0 : s.keys[3]);
		assert_int_equal(hints_seen[1], with == 2 ? 0 : hints_seen[0]);
		assert_int_equal(parents_seen[2], s.keys[7]);
		/* the hint of one put applies to all */
		assert_int_equal(hints_seen[2], with ? KVBLK_HINT_MISSED : 0);
		assert_true(!with || ext.hints == KVBLK_HINT_MISSED);
	}
	scattered_end(&s);
}

/* Only a leading part of a chain is admitted, however it is split; gets are not part of it. */
MEM_TEST(test_declined_chain)
{
	struct scattered s;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	for (unsigned int i = 1; i < NR; i += 3) {
		s.ops[i].opcode = KVBLK_OP_GET;
		block_set(s.keys[i], LEN);
	}
	/* put, get, two puts, get, ... */
	end_at = 4;
	end_result = -ENOBUFS;
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, KVBLK_SUBMIT_CHAIN), 0);
	for (unsigned int i = 0; i < NR; i++) {
		if (i % 3 == 1 || i < 3)
			assert_int_equal(s.results[i].res, LEN);
		else
			assert_int_equal(s.results[i].res, -ENOBUFS);
		if (s.results[i].res == LEN)
			check_pieces(&s, i, true, 0);
	}
	/* a get between two puts is not a parent */
	assert_int_equal(parents_seen[2], s.keys[0]);
	scattered_end(&s);
}

/* A get's buffer may be larger than a lane, and than any block. */
MEM_TEST(test_much_room)
{
	struct kvblk_mem *mem = vram(3 * MIB);
	struct kvblk_result result;
	struct kvblk_piece piece;
	struct kvblk_op op;

	assert_int_equal(kvblk_prep_piece(&piece, mem, 0, 3 * MIB), 0);
	kvblk_prep_get(&op, "a", 1, &piece, 1);
	for (int longer = 0; longer < 2; longer++) {
		block_set('a', 20 * UNIT + (uint32_t)longer);
		assert_int_equal(kvblk_submit(kv, &op, 1, &result, 0), 0);
		assert_int_equal(result.res, longer ? -EFBIG : 20 * (int)UNIT);
		assert_int_equal(result.value_len, 20 * UNIT + (uint32_t)longer);
		if (!longer)
			assert_memory_equal(device(mem), blocks['a'].data, 20 * UNIT);
	}
	block_set('a', 21 * UNIT);
	op.flags = KVBLK_OPF_PARTIAL;
	op.offset = 3;
	assert_int_equal(kvblk_submit(kv, &op, 1, &result, 0), 0);
	assert_int_equal(result.res, -EFBIG);
	op.length = 5 * UNIT;
	assert_int_equal(kvblk_submit(kv, &op, 1, &result, 0), 0);
	assert_int_equal(result.res, 5 * UNIT);
	assert_memory_equal(device(mem), blocks['a'].data + 3, 5 * UNIT);
	op.opcode = KVBLK_OP_PUT;
	assert_int_equal(kvblk_submit(kv, &op, 1, &result, 0), 0);
	assert_int_equal(result.res, -EFBIG);
	kvblk_mem_unregister(mem);
}

/* Memory with equal options shares one stage, even if the pool's value_max changes. */
MEM_TEST(test_one_stage)
{
	struct kvblk_mem *mems[2];

	for (unsigned int i = 0; i < 2; i++) {
		value_max = i ? 4 * MIB : 8 * MIB;
		assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", MIB, NULL, &mems[i]), 0);
		assert_int_equal(nr_regions, 2);
	}
	kvblk_mem_unregister(mems[0]);
	assert_int_equal(nr_regions, 2);
	kvblk_mem_unregister(mems[1]);
	value_max = 8 * MIB;
}

/* After a cancel in the kernel, later loads are not submitted, except for other cookies. */
MEM_TEST(test_canceled_batch)
{
	struct scattered s;
	unsigned int nr = 0;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	for (unsigned int i = 0; i < NR; i++)
		s.ops[i].cookie = i == 11 ? 8 : 7;
	/* fail in the first of three loads; the second has been copied by then */
	end_at = 2;
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
	for (unsigned int i = 0; i < NR; i++)
		nr += s.results[i].res == -ECANCELED;
	assert_int_equal(nr, 8);
	for (unsigned int i = 4; i < 11; i++)
		assert_int_equal(s.results[i].res, -ECANCELED);
	assert_int_equal(s.results[3].res, LEN);
	assert_int_equal(s.results[11].res, LEN);
	assert_null(blocks[s.keys[4]].data);
	assert_null(blocks[s.keys[10]].data);
	scattered_end(&s);
}

/* CUDA fails at every call: no get succeeds without its bytes, no put with wrong ones. */
MEM_TEST(test_batch_failures)
{
	static const char *const names[] = { "cuMemcpyBatchAsync", "cuStreamSynchronize", "cuCtxPushCurrent_v2",
					     "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2" };
	unsigned int nr_failed = 0, nr_good = 0;
	struct scattered s;

	scattered_setup(&s);
	for (size_t name = 0; name < sizeof(names) / sizeof(names[0]); name++) {
		/* without batch copy, the driver uses the last two */
		if (name == 3)
			kvblk_cu.batch = NULL;
		for (int nth = 1; nth < 40; nth++) {
			scatter(&s, KVBLK_OP_PUT);
			for (unsigned int i = 0; i < NR; i++) {
				if (i / 4 % 2 != (unsigned int)nth % 2) {
					s.ops[i].opcode = KVBLK_OP_GET;
					block_set(s.keys[i], LEN);
				} else {
					free(blocks[s.keys[i]].data);
					blocks[s.keys[i]].data = NULL;
				}
			}
			fake_fail(names[name], nth, 999);
			assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, 0), 0);
			fake_fail("", 0, 0);
			for (unsigned int i = 0; i < NR; i++) {
				assert_true(s.results[i].res == LEN || s.results[i].res == -EIO);
				if (s.results[i].res == LEN)
					check_pieces(&s, i, true, 0);
				else if (s.ops[i].opcode == KVBLK_OP_PUT)
					assert_null(blocks[s.keys[i]].data);
				nr_failed += s.results[i].res != LEN;
				nr_good += s.results[i].res == LEN;
			}
		}
	}
	assert_true(nr_failed > 100 && nr_good > 100);
	scattered_end(&s);
}

/* No permission to lock memory. */
MEM_TEST(test_without_region)
{
	struct kvblk_mem *mem;
	size_t len = 3 * MIB;

	region_error = -ENOMEM;
	mem = vram(3 * MIB);
	block_set('a', 19 * UNIT + 3);
	assert_int_equal(mem_get(mem, 0, &len, "a", NULL), 0);
	assert_memory_equal(device(mem), blocks['a'].data, len);
	assert_int_equal(mem_put(mem, 0, 100, "b", NULL), 0);
	kvblk_mem_unregister(mem);
}

/* A copy still running disables only the lane of the copy. */
MEM_TEST(test_lost_lanes)
{
	struct kvblk_mem *mem = vram(3 * MIB);
	size_t len = 3 * MIB;

	block_set('a', 20 * UNIT);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(mem_get(mem, 0, &len, "a", NULL), 0);
		/* the last wait of a batch of one load */
		fake_fail("cuStreamSynchronize", 3, 999);
		assert_int_equal(mem_get(mem, 0, &len, "a", NULL), -EIO);
		fake_fail("", 0, 0);
	}
	assert_int_equal(mem_get(mem, 0, &len, "a", NULL), -EIO);
	assert_int_equal(mem_put(mem, 0, 1, "b", NULL), -EIO);
	kvblk_mem_unregister(mem);
}

/* A batch of two gets, run by a thread. */
struct runner {
	pthread_t id;
	struct kvblk_piece piece;
	struct kvblk_op ops[2];
	struct kvblk_result results[2];
	uint64_t end;
};

static void *run_batch(void *arg)
{
	struct runner *r = arg;

	assert_int_equal(kvblk_submit(kv, r->ops, 2, r->results, 0), 0);
	r->end = now_ns();
	return NULL;
}

static void runner_start(struct runner *r, struct kvblk_mem *mem, uint64_t cookie)
{
	*r = (struct runner){ 0 };
	assert_int_equal(kvblk_prep_piece(&r->piece, mem, 0, 20 * UNIT), 0);
	for (int i = 0; i < 2; i++) {
		kvblk_prep_get(&r->ops[i], "a", 1, &r->piece, 1);
		r->ops[i].cookie = cookie + (uint64_t)i;
	}
	assert_int_equal(pthread_create(&r->id, NULL, run_batch, r), 0);
}

static void gate_wait(unsigned int nr)
{
	pthread_mutex_lock(&pool_lock);
	while (nr_at_gate < nr)
		pthread_cond_wait(&pool_changed, &pool_lock);
	pthread_mutex_unlock(&pool_lock);
}

static void gate_open(void)
{
	pthread_mutex_lock(&pool_lock);
	gate = false;
	pthread_cond_broadcast(&pool_changed);
	pthread_mutex_unlock(&pool_lock);
}

/* Cancel operations in a stage, as soon as there are any. */
static void cancel_waiting(uint64_t cookie)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	unsigned int nr = 77;

	while (kvblk_cancel(kv, cookie, &nr)) {
		assert_int_equal(nr, 0);
		nanosleep(&pause, NULL);
	}
	assert_int_equal(nr, 1);
}

/* All lanes are busy: operations keep their deadlines, and can be canceled. */
MEM_TEST(test_wait_for_lane)
{
	struct kvblk_mem *mem = vram(3 * MIB);
	struct runner busy[2], waiting;
	struct kvblk_result results[3];
	struct kvblk_op ops[3];
	uint64_t start;

	block_set('a', 20 * UNIT);
	gate = true;
	runner_start(&busy[0], mem, 10);
	runner_start(&busy[1], mem, 20);
	gate_wait(2);
	start = now_ns();
	for (unsigned int i = 0; i < 3; i++) {
		ops[i] = busy[0].ops[0];
		ops[i].flags = KVBLK_OPF_HARD_DEADLINE;
		ops[i].deadline_ns = start + (2 - i) * 20000000ull;
	}
	assert_int_equal(kvblk_submit(kv, ops, 3, results, 0), 0);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(results[i].res, -ETIME);
	assert_true(now_ns() - start >= 40000000 && now_ns() - start < 5000000000);
	/* of two operations, cancel the second */
	runner_start(&waiting, mem, 30);
	cancel_waiting(31);
	/* of the busy ones, the second operation has not been submitted */
	cancel_waiting(11);
	gate_open();
	for (int i = 0; i < 2; i++)
		pthread_join(busy[i].id, NULL);
	pthread_join(waiting.id, NULL);
	assert_int_equal(busy[0].results[0].res, 20 * UNIT);
	assert_int_equal(busy[0].results[1].res, -ECANCELED);
	assert_int_equal(busy[1].results[1].res, 20 * UNIT);
	assert_int_equal(waiting.results[0].res, 20 * UNIT);
	assert_int_equal(waiting.results[1].res, -ECANCELED);
	kvblk_mem_unregister(mem);
}

/* A signal ends an interruptible batch, also the loads not yet submitted. */
MEM_TEST(test_interrupted_batch)
{
	struct scattered s;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	end_at = 2;
	assert_int_equal(kvblk_submit(kv, s.ops, NR, s.results, KVBLK_SUBMIT_INTERRUPTIBLE), 0);
	for (unsigned int i = 0; i < NR; i++)
		assert_int_equal(s.results[i].res, i == 1 || i >= 4 ? -ECANCELED : LEN);
	scattered_end(&s);
}

/* Results of a program built with a longer structure. */
MEM_TEST(test_longer_results)
{
	struct { struct kvblk_result result; uint64_t more; } results[NR];
	struct scattered s;

	scattered_setup(&s);
	scatter(&s, KVBLK_OP_PUT);
	memset(results, 0xaa, sizeof(results));
	assert_int_equal(kvblk_submit_sized(kv, s.ops, NR, &results[0].result, sizeof(results[0]), 0), 0);
	for (unsigned int i = 0; i < NR; i++) {
		assert_int_equal(results[i].result.res, LEN);
		assert_int_equal(results[i].result.cookie, 100 + i);
		assert_int_equal(results[i].more, 0);
	}
	scattered_end(&s);
}

/* A pointer allocated by the caller, with and without a context of its own. */
MEM_TEST(test_register_pointer)
{
	struct kvblk_mem *owner = vram(2 * MIB), *mem = NULL;
	char *ptr = kvblk_mem_addr(owner);
	size_t len = MIB;

	block_set('a', 3 * UNIT + 1);
	for (int i = 0; i < 3; i++) {
		if (i == 1)
			setenv("KVBLK_FAKE_CUDA_NO_CONTEXT", "1", 1);
		fake_managed((uintptr_t)ptr, i == 2);
		assert_int_equal(kvblk_mem_register(kv, ptr + 100, MIB, NULL, &mem), 0);
		assert_int_equal(kind_of(mem), KVBLK_MEM_STAGED);
		memset(device(owner), 0xee, 2 * MIB);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", NULL), 0);
		assert_memory_equal(device(owner) + 100, blocks['a'].data, len);
		kvblk_mem_unregister(mem);
	}
	fake_managed((uintptr_t)ptr, false);
	mem = NULL;
	assert_int_equal(kvblk_mem_register(kv, ptr + MIB, MIB + 1, NULL, &mem), -EFAULT);
	assert_null(mem);
	kvblk_mem_unregister(owner);
}

MEM_TEST(test_mapped)
{
	struct kvblk_piece piece;
	struct kvblk_mem *mem;
	uint32_t flags;
	size_t len;

	fake_mmap(1);
	block_set('a', 3 * UNIT + 1);
	for (int mixed = 0; mixed < 2; mixed++) {
		region_error = mixed ? -EXDEV : 0;
		mem = vram(MIB);
		assert_int_equal(kind_of(mem), mixed ? KVBLK_MEM_ADDRESSED : KVBLK_MEM_REGISTERED);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", &flags), 0);
		assert_int_equal(flags, KVBLK_RES_DIRECT);
		assert_memory_equal(device(mem), blocks['a'].data, len);
		assert_int_equal(kvblk_prep_piece(&piece, mem, 5, 6), 0);
		/* a failed flush fails the get, because the device may not see the data */
		fake_fail("cuFlushGPUDirectRDMAWrites", 1, 999);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", &flags), -EIO);
		fake_fail("cuFlushGPUDirectRDMAWrites", 1, CUDA_NOT_SUPPORTED);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", &flags), 0);
		kvblk_mem_unregister(mem);
	}
	region_error = 0;
	/* a bad mapping is treated as none */
	for (int mode = 2; mode <= 3; mode++) {
		fake_mmap(mode);
		mem = vram(MIB);
		assert_int_equal(kind_of(mem), KVBLK_MEM_STAGED);
		/* staged memory needs no flush */
		fake_fail("cuFlushGPUDirectRDMAWrites", 1, 999);
		len = MIB;
		assert_int_equal(mem_get(mem, 0, &len, "a", NULL), 0);
		fake_fail("cuFlushGPUDirectRDMAWrites", 0, 0);
		kvblk_mem_unregister(mem);
	}
	fake_mmap(1);
	for (int nth = 1; nth <= 2; nth++) {
		fake_fail(nth == 1 ? "cuDeviceGetAttribute" : "cuCtxPushCurrent_v2", nth, 999);
		mem = vram(MIB);
		assert_int_equal(kind_of(mem), KVBLK_MEM_STAGED);
		kvblk_mem_unregister(mem);
	}
}

MEM_TEST(test_old_drivers)
{
	struct kvblk_mem *owner = vram(MIB), *mem = NULL;
	size_t nr = sizeof(functions) / sizeof(functions[0]);

	for (size_t i = 0; i < nr; i++) {
		bool needed = i < nr - NR_OPTIONAL;

		missing = functions[i].name;
		driver_state = -ENXIO;
		if (i)
			assert_int_equal(kvblk_mem_register(kv, kvblk_mem_addr(owner), MIB, &small, &mem),
					 needed ? -ENOSYS : 0);
		if (!needed) {
			kvblk_mem_unregister(mem);
			continue;
		}
		assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", MIB, &small, &mem), -ENOSYS);
		/* host memory does not depend on CUDA */
		assert_int_equal(kvblk_mem_alloc(kv, "host", MIB, &small, &mem), 0);
		kvblk_mem_unregister(mem);
	}
	missing = NULL;
	driver_state = -ENXIO;
	assert_int_equal(driver_get(false), 0);
	kvblk_mem_unregister(owner);
}

/* Every CUDA function fails once, at every call. */
MEM_TEST(test_every_failure)
{
	static const int results[] = { 999, CUDA_OUT_OF_MEMORY, CUDA_INVALID_VALUE, CUDA_DEINITIALIZED,
				       CUDA_NOT_PERMITTED, CUDA_NOT_SUPPORTED };
	static const char *const undo[] = { "cuDevicePrimaryCtxRelease_v2", "cuCtxPopCurrent_v2",
					    "cuMemFree_v2", "cuMemHostUnregister", "cuStreamDestroy_v2" };
	unsigned int nr_failed = 0;

	block_set('a', 5 * UNIT);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		/* the fifth call is part of the teardown */
		int end = !strcmp(functions[i].name, "cuCtxPushCurrent_v2") ? 5 : 12;
		bool is_undo = false;

		for (size_t j = 0; j < sizeof(undo) / sizeof(undo[0]); j++)
			is_undo |= !strcmp(undo[j], functions[i].name);
		if (is_undo)
			continue;
		for (int nth = 1; nth < end; nth++) {
			struct kvblk_mem *mem = NULL;
			size_t len = MIB;
			int err;

			fake_fail(functions[i].name, nth, results[nth % 6]);
			err = kvblk_mem_alloc(kv, "cuda:0", MIB, &small, &mem);
			if (!err) {
				err = mem_put(mem, 0, UNIT, "b", NULL);
				assert_true(!err == !!blocks['b'].data);
				err |= mem_get(mem, 0, &len, "a", NULL);
			} else {
				assert_null(mem);
			}
			nr_failed += !!err;
			kvblk_mem_unregister(mem);
			fake_fail("", 0, 0);
			assert_int_equal(fake_leaks() + nr_regions, 0);
			free(blocks['b'].data);
			blocks['b'].data = NULL;
		}
	}
	assert_true(nr_failed >= 15);
}

MEM_TEST(test_no_memory)
{
	struct kvblk_mem *mem = NULL;
	int nr = 0;

	for (;; nr++) {
		fail_alloc = nr;
		if (!kvblk_mem_alloc(kv, "cuda:0", MIB, &small, &mem))
			break;
		assert_null(mem);
		assert_int_equal(fake_leaks() + nr_regions, 0);
	}
	assert_true(nr > 5);
	fail_alloc = -1;
	kvblk_mem_unregister(mem);
	info_error = -ENODEV;
	mem = NULL;
	assert_int_equal(kvblk_mem_alloc(kv, "cuda:0", MIB, &small, &mem), -ENODEV);
}

#define THREADS	8

static struct kvblk_mem *shared;

static void *worker(void *arg)
{
	unsigned int id = (unsigned int)(uintptr_t)arg;
	unsigned char key = (unsigned char)(100 + id);
	size_t at = (size_t)id * 4 * UNIT, len;
	long wrong = 0;

	for (unsigned int i = 0; i < 40; i++) {
		wrong += mem_put(shared, at, 4 * UNIT - 7, &key, NULL) != (i ? -EEXIST : 0);
		len = 4 * UNIT;
		wrong += !!mem_get(shared, at, &len, &key, NULL);
		wrong += len != 4 * UNIT - 7 || memcmp(device(shared) + at, blocks[key].data, len) != 0;
	}
	return (void *)wrong;
}

MEM_TEST(test_threads)
{
	pthread_t threads[THREADS];

	shared = vram((size_t)THREADS * 4 * UNIT);
	pattern(device(shared), (size_t)THREADS * 4 * UNIT, 3);
	for (unsigned int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, worker, (void *)(uintptr_t)i);
	for (unsigned int i = 0; i < THREADS; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		assert_ptr_equal(wrong, NULL);
	}
	kvblk_mem_unregister(shared);
}

/* Without CUDA, host memory works and "cuda:0" returns -ELIBACC. */
static int without_cuda(void)
{
	static char bytes[4096];
	struct kvblk_mem *mem = NULL;
	int good;

	fail_alloc = -1;
	good = kvblk_mem_alloc(kv, "cuda:0", 1, NULL, &mem) == -ELIBACC &&
	       !kvblk_mem_register(kv, bytes, sizeof(bytes), NULL, &mem);
	if (good)
		kvblk_mem_unregister(mem);
	return good;
}

int main(void)
{
	if (!without_cuda()) {
		printf("not ok - memory without CUDA\n");
		return 1;
	}
	return mem_tests_run("mem_test");
}
