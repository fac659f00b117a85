// SPDX-License-Identifier: MIT
/*
 * Checksums that a GPU computes and verifies, in libkvblk: they are CRC-32C whatever the pieces and
 * the alignment, damage is a miss, and what the GPU cannot do, the kernel does.
 */
#include "mem_test.h"

/* An operation with checksums. */
struct summed {
	struct kvblk_op op;
	struct kvblk_op_ext ext;
	struct kvblk_piece piece;
	uint32_t sums[64];
};

static void summed(struct summed *s, uint8_t opcode, const void *key, struct kvblk_mem *mem, size_t at,
		   size_t len)
{
	assert_int_equal(kvblk_prep_piece(&s->piece, mem, at, len), 0);
	kvblk_prep_put(&s->op, key, 1, &s->piece, 1);
	s->op.opcode = opcode;
	s->op.flags = opcode == KVBLK_OP_GET ? KVBLK_OPF_CALLER_CHECKS : 0;
	kvblk_prep_ext(&s->op, &s->ext);
	s->ext.checksums = (uintptr_t)s->sums;
	s->ext.nr_checksums = (uint32_t)((len + UNIT - 1) / UNIT);
	memset(s->sums, 0xee, sizeof(s->sums));
}

MEM_TEST(test_gpu_checksums)
{
	static const size_t lens[] = { 1, 2, 3, 4, 5, 1023, 1024, 1025, 4096, 65535, 65536, 65537, 99999, 2 * MIB };
	struct summed s;

	for (int mode = 0; mode < 2; mode++) {
		struct kvblk_mem *mem;

		fake_mmap(mode);
		mem = vram(2 * MIB + 8);
		assert_int_equal(kind_of(mem), mode ? KVBLK_MEM_REGISTERED : KVBLK_MEM_STAGED);
		pattern(device(mem), 2 * MIB + 8, 1);
		for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			/* any alignment of begin and end */
			for (size_t at = 0; at < (lens[i] < MIB ? 5 : 2); at++) {
				summed(&s, KVBLK_OP_PUT, "a", mem, at, lens[i]);
				assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, NULL), 0);
				assert_true(matches(device(mem) + at, lens[i], s.sums));
				assert_int_equal(s.sums[s.ext.nr_checksums], 0xeeeeeeee);
			}
		}
		kvblk_mem_unregister(mem);
	}
}

/* Many pieces of two registrations, chunks of many pieces, and more than fit into a round. */
MEM_TEST(test_gpu_checksums_of_pieces)
{
	static struct kvblk_piece pieces[10][1000];
	static unsigned char bytes[200000];
	struct kvblk_mem *mems[2] = { vram(MIB), vram(MIB) };
	struct kvblk_op ops[10];
	struct kvblk_op_ext exts[10];
	uint32_t sums[10][4];
	int launches = fake_launches();

	pattern(device(mems[0]), MIB, 1);
	pattern(device(mems[1]), MIB, 2);
	for (unsigned int i = 0; i < 10; i++) {
		for (unsigned int j = 0; j < 1000; j++)
			assert_int_equal(kvblk_prep_piece(&pieces[i][j], mems[j % 2], i * 1000 + j * 7,
							  1 + (i + j) % 150), 0);
		kvblk_prep_put(&ops[i], "a", 1, pieces[i], 1000);
		kvblk_prep_ext(&ops[i], &exts[i]);
		exts[i].checksums = (uintptr_t)sums[i];
		exts[i].nr_checksums = (uint32_t)((length_of(&ops[i]) + UNIT - 1) / UNIT);
	}
	assert_int_equal(kvblk_gpu_checksums(kv, ops, 10, NULL), 0);
	assert_int_equal(fake_launches() - launches, 2);
	for (unsigned int i = 0; i < 10; i++) {
		size_t len = 0;

		for (unsigned int j = 0; j < 1000; j++) {
			memcpy(bytes + len, device(mems[j % 2]) + i * 1000 + j * 7, pieces[i][j].length);
			len += pieces[i][j].length;
		}
		assert_true(matches(bytes, len, sums[i]));
	}
	kvblk_mem_unregister(mems[0]);
	kvblk_mem_unregister(mems[1]);
}

/* Puts with the GPU's checksums, gets that the GPU verifies: damage is a miss, whoever did it. */
MEM_TEST(test_gpu_verify)
{
	struct kvblk_result results[3];
	struct summed put, gets[3];
	struct kvblk_op ops[3];

	for (int mode = 0; mode < 2; mode++) {
		struct kvblk_mem *mem;

		fake_mmap(mode);
		mem = vram(4 * MIB);
		pattern(device(mem), MIB, 1);
		for (int i = 0; i < 3; i++) {
			summed(&put, KVBLK_OP_PUT, &"abc"[i], mem, (size_t)i, 100000);
			assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), 0);
			assert_int_equal(kvblk_submit(kv, &put.op, 1, results, 0), 0);
			assert_int_equal(results[0].res, 100000);
		}
		for (int i = 0; i < 3; i++) {
			summed(&gets[i], KVBLK_OP_GET, &"abc"[i], mem, MIB + (size_t)i * 128 * 1024, 100000);
			ops[i] = gets[i].op;
		}
		/* wrong in the pool; wrong in the first transfer only */
		blocks['b'].data[99999] ^= 1;
		torn = 1;
		assert_int_equal(kvblk_submit(kv, ops, 3, results, 0), 0);
		for (int i = 0; i < 3; i++) {
			assert_int_equal(results[i].res, 100000);
			assert_true(results[i].flags & KVBLK_RES_CHECKSUMS);
		}
		submits_seen = 0;
		assert_int_equal(kvblk_gpu_verify(kv, ops, 3, results, sizeof(results[0]), NULL), 0);
		assert_int_equal(submits_seen, 1);
		assert_int_equal(results[0].res, 100000);
		assert_int_equal(results[1].res, -ENOENT);
		assert_int_equal(results[2].res, 100000);
		assert_memory_equal(device(mem) + MIB, device(mem), 100000);
		assert_memory_equal(device(mem) + MIB + 2 * 128 * 1024, device(mem) + 2, 100000);
		/* the second chunk; then bytes that the kernel has checked */
		ops[2].flags |= KVBLK_OPF_PARTIAL;
		ops[2].offset = UNIT;
		blocks['c'].data[UNIT] ^= 1;
		assert_int_equal(kvblk_submit(kv, &ops[2], 1, results, 0), 0);
		assert_int_equal(results[0].res, 100000 - UNIT);
		assert_int_equal(kvblk_gpu_verify(kv, &ops[2], 1, results, sizeof(results[0]), NULL), 0);
		assert_int_equal(results[0].res, -ENOENT);
		ops[2].offset = UNIT + 1;
		assert_int_equal(kvblk_submit(kv, &ops[2], 1, results, 0), 0);
		assert_int_equal(kvblk_gpu_verify(kv, &ops[2], 1, results, sizeof(results[0]), NULL), 0);
		assert_int_equal(results[0].res, 100000 - UNIT - 1);
		kvblk_mem_unregister(mem);
		for (int i = 0; i < 3; i++) {
			free(blocks[(int)"abc"[i]].data);
			blocks[(int)"abc"[i]].data = NULL;
		}
	}
}

/* Without a GPU, gets are repeated unless the kernel has verified them. */
MEM_TEST(test_gpu_verify_without)
{
	static unsigned char bytes[2 * MIB];
	static const struct {
		uint32_t flags, offset;
		bool repeated;
	} cases[] = {
		{ KVBLK_OPF_CALLER_CHECKS, 0, true },
		{ 0, 0, true },
		{ KVBLK_OPF_CALLER_CHECKS | KVBLK_OPF_HARD_DEADLINE, 0, true },
		{ KVBLK_OPF_HARD_DEADLINE, 0, false },
		{ KVBLK_OPF_CALLER_CHECKS | KVBLK_OPF_PARTIAL, UNIT, true },
		{ KVBLK_OPF_CALLER_CHECKS | KVBLK_OPF_PARTIAL, UNIT + 1, false },
	};
	struct kvblk_result result;
	struct kvblk_mem *mem;
	struct summed s;

	assert_int_equal(kvblk_mem_register(kv, bytes, sizeof(bytes), NULL, &mem), 0);
	summed(&s, KVBLK_OP_PUT, "a", mem, 0, 100000);
	s.sums[0] = kv_crc32c(bytes, UNIT);
	s.sums[1] = kv_crc32c(bytes + UNIT, 100000 - UNIT);
	assert_int_equal(kvblk_submit(kv, &s.op, 1, &result, 0), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (info_error = 0; info_error >= -EIO; info_error -= EIO) {
			summed(&s, KVBLK_OP_GET, "a", mem, MIB, 100000);
			s.op.flags = cases[i].flags;
			s.op.offset = cases[i].offset;
			assert_int_equal(kvblk_submit(kv, &s.op, 1, &result, 0), 0);
			submits_seen = 0;
			assert_int_equal(kvblk_gpu_verify(kv, &s.op, 1, &result, sizeof(result), NULL), 0);
			/* if the size of chunks is unknown, no chunk is known to be a partial one */
			assert_int_equal(submits_seen, cases[i].repeated || (info_error && cases[i].offset));
			assert_int_equal(result.res, 100000 - (int)cases[i].offset);
		}
		info_error = 0;
	}
	kvblk_mem_unregister(mem);
}

/* Operations that the pool refused, with more pieces than a round has parts, are skipped. */
MEM_TEST(test_gpu_verify_refused)
{
	static struct kvblk_piece pieces[UINT16_MAX];
	struct kvblk_mem *mem = vram(MIB);
	struct kvblk_result results[2];
	struct summed put, gets[2];
	struct kvblk_op ops[2];

	summed(&put, KVBLK_OP_PUT, "a", mem, 0, 5000);
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), 0);
	assert_int_equal(kvblk_submit(kv, &put.op, 1, results, 0), 0);
	for (int i = 0; i < 2; i++) {
		summed(&gets[i], KVBLK_OP_GET, "a", mem, 8192, 5000);
		ops[i] = gets[i].op;
		assert_int_equal(kvblk_submit(kv, &ops[i], 1, &results[i], 0), 0);
	}
	ops[1].pieces = (uintptr_t)pieces;
	ops[1].nr_pieces = UINT16_MAX;
	results[1].res = -EINVAL;
	assert_int_equal(kvblk_gpu_verify(kv, ops, 2, results, sizeof(results[0]), NULL), 0);
	assert_int_equal(results[0].res, 5000);
	assert_int_equal(results[1].res, -EINVAL);
	kvblk_mem_unregister(mem);
}

/* Registrations of the same memory share a summer; the end of the first does not free the summer. */
MEM_TEST(test_gpu_checksums_overlap)
{
	struct kvblk_mem *mem = vram(MIB), *over[2];
	struct summed s;

	pattern(device(mem), MIB, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(kvblk_mem_register(kv, kvblk_mem_addr(mem), MIB, &small, &over[i]), 0);
		summed(&s, KVBLK_OP_PUT, "a", over[i], 0, 5000);
		assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, NULL), 0);
	}
	assert_ptr_equal(over[0]->summer, over[1]->summer);
	for (int i = 0; i < 2; i++) {
		summed(&s, KVBLK_OP_PUT, "a", over[i], 0, 5000);
		assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, NULL), 0);
		assert_true(matches(device(mem), 5000, s.sums));
		kvblk_mem_unregister(over[i]);
	}
	kvblk_mem_unregister(mem);
}

/* A caller's stream is none of the other callers' business. */
MEM_TEST(test_gpu_checksums_stream)
{
	struct kvblk_mem *mem = vram(MIB);
	struct summed s;
	void *stream;

	pattern(device(mem), MIB, 1);
	summed(&s, KVBLK_OP_PUT, "a", mem, 0, 5000);
	assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, NULL), 0);
	assert_int_equal(kvblk_cu_enter(mem->summer->context), 0);
	assert_int_equal(kvblk_cu.stream_create(&stream, STREAM_NON_BLOCKING), 0);
	kvblk_cu_leave();
	for (int i = 0; i < 3; i++) {
		memset(s.sums, 0, sizeof(s.sums));
		fake_fail(i == 1 ? "cuStreamSynchronize" : "", 1, 999);
		assert_int_equal(kvblk_gpu_checksums(kv, &s.op, 1, stream), i == 1 ? -EIO : 0);
		assert_int_equal(matches(device(mem), 5000, s.sums), i != 1);
	}
	assert_int_equal(kvblk_cu_enter(mem->summer->context), 0);
	kvblk_cu.stream_destroy(stream);
	kvblk_cu_leave();
	kvblk_mem_unregister(mem);
}

/* If CUDA refuses a call, puts go without checksums, and the kernel verifies gets. */
MEM_TEST(test_gpu_checksums_fail)
{
	static const char *const calls[] = { "cuCtxPushCurrent_v2", "cuMemHostRegister_v2", "cuModuleLoadData",
					     "cuModuleGetFunction", "cuMemAlloc_v2", "cuStreamCreate",
					     "cuMemcpyHtoDAsync_v2",
					     "cuLaunchKernel", "cuMemcpyDtoHAsync_v2" };
	static unsigned char bytes[4096];
	struct kvblk_result result;
	struct kvblk_mem *mem, *host;
	struct summed put, get;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		fake_mmap(1);
		mem = vram(MIB);
		memset(device(mem), 7, MIB);
		summed(&put, KVBLK_OP_PUT, "a", mem, 0, 4096);
		fake_fail(calls[i], 1, 999);
		assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EIO);
		assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), 0);
		assert_int_equal(kvblk_submit(kv, &put.op, 1, &result, 0), 0);
		kvblk_mem_unregister(mem);

		mem = vram(MIB);
		summed(&get, KVBLK_OP_GET, "a", mem, 4096, 4096);
		for (int good = 0; good < 2; good++) {
			torn = 1;
			assert_int_equal(kvblk_submit(kv, &get.op, 1, &result, 0), 0);
			fake_fail(good ? "" : calls[i], 1, 999);
			assert_int_equal(kvblk_gpu_verify(kv, &get.op, 1, &result, sizeof(result), NULL), 0);
			assert_int_equal(result.res, 4096);
			assert_true(all_are(device(mem) + 4096, 4096, 7));
		}
		kvblk_mem_unregister(mem);
		free(blocks['a'].data);
		blocks['a'].data = NULL;
	}
	missing = "cuLaunchKernel";
	driver_state = -ENXIO;
	mem = vram(MIB);
	summed(&put, KVBLK_OP_PUT, "a", mem, 0, 4096);
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EOPNOTSUPP);
	kvblk_mem_unregister(mem);

	missing = NULL;
	driver_state = -ENXIO;
	mem = vram(MIB);
	assert_int_equal(kvblk_mem_register(kv, bytes, sizeof(bytes), NULL, &host), 0);
	summed(&put, KVBLK_OP_PUT, "a", host, 0, 4096);
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EXDEV);
	summed(&put, KVBLK_OP_PUT, "a", mem, 0, 4096);
	put.ext.nr_checksums = 2;
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EINVAL);
	put.op.ext = 0;
	assert_int_equal(kvblk_gpu_checksums(kv, &put.op, 1, NULL), -EINVAL);
	kvblk_mem_unregister(mem);
	kvblk_mem_unregister(host);
}

int main(void)
{
	return mem_tests_run("gpu_sums_test");
}
