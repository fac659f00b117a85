// SPDX-License-Identifier: MIT
/*
 * The engine without NIXL, under ASan and UBSan on the emulated pool. Tests what NIXL's agent
 * hides (results of descriptors) or never does (concurrent calls), and GPU memory on a machine
 * without a GPU. Each test has its own keys.
 *
 * usage: test_engine [FAKE_LIBCUDA]; prints TAP
 */
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine.h"

using kvblk_nixl::status_of;

/* The functions of libnixl_build.so that the headers declare and this test calls. */
nixlBasicDesc::nixlBasicDesc(const uintptr_t &a, const size_t &n, const uint64_t &id) :
	addr(a), len(n), devId(id)
{
}
nixlBlobDesc::nixlBlobDesc(const uintptr_t &a, const size_t &n, const uint64_t &id,
			   const nixl_blob_t &info) :
	nixlBasicDesc(a, n, id), metaInfo(info)
{
}
template <class T> nixlDescList<T>::nixlDescList(const nixl_mem_t &t, const int &) : type(t)
{
}
template <class T> void nixlDescList<T>::resize(const size_t &nr)
{
	descs.resize(nr);
}
template <class T> void nixlDescList<T>::addDesc(const T &desc)
{
	descs.push_back(desc);
}
template <class T> int nixlDescList<T>::getIndex(const nixlBasicDesc &) const
{
	return -1;
}

namespace {

using kvblk_nixl::Engine;
using kvblk_nixl::Request;

#define CHECK(condition)                                                              \
	do {                                                                          \
		if (!(condition)) {                                                   \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition);      \
			failed = true;                                                \
		}                                                                     \
	} while (0)

std::atomic<bool> failed;
std::atomic<uint64_t> numbers{ 1 };

/* An engine and its caller's state. */
class Bench {
	nixl_b_params_t params_;
	nixlBackendInitParams init_;

public:
	std::unique_ptr<Engine> engine;

	explicit Bench(nixl_b_params_t params = {}) : params_(std::move(params))
	{
		params_["pool"] = "fake";
		init_.localAgent = "test";
		init_.type = "KVBLK";
		init_.customParams = &params_;
		engine = std::make_unique<Engine>(&init_);
	}

	nixlMetaDesc add(nixl_mem_t type, uintptr_t addr, size_t len, const std::string &name = "",
			 uint64_t id = 0)
	{
		nixlBackendMD *md = nullptr;

		CHECK(engine->registerMem(nixlBlobDesc(addr, len, id, name), type, md) ==
		      NIXL_SUCCESS);
		return nixlMetaDesc(addr, len, id, md);
	}

	nixlMetaDesc memory(std::vector<char> &bytes)
	{
		return add(DRAM_SEG, reinterpret_cast<uintptr_t>(bytes.data()), bytes.size());
	}

	nixlMetaDesc object(size_t len, const std::string &name = "")
	{
		const uint64_t id = numbers++;

		return add(OBJ_SEG, 0, len, name.empty() ? "test" + std::to_string(id) : name, id);
	}

	void remove(const nixlMetaDesc &desc)
	{
		CHECK(engine->deregisterMem(desc.metadataP) == NIXL_SUCCESS);
	}
};

/* A transfer; the destructor releases it. */
class Transfer {
	Bench &bench_;
	const nixl_xfer_op_t op_;
	nixl_meta_dlist_t local_, remote_;

public:
	nixlBackendReqH *handle = nullptr;
	nixl_status_t prepared = NIXL_ERR_NOT_POSTED;

	Transfer(Bench &bench, nixl_xfer_op_t op, nixl_mem_t from = DRAM_SEG,
		 nixl_mem_t to = OBJ_SEG) :
		bench_(bench), op_(op), local_(from), remote_(to)
	{
	}
	Transfer(const Transfer &) = delete;
	~Transfer()
	{
		release();
	}

	Transfer &add(const nixlMetaDesc &local, size_t at, const nixlMetaDesc &remote,
		      size_t offset, size_t len)
	{
		local_.addDesc(nixlMetaDesc(local.addr + at, len, local.devId, local.metadataP));
		remote_.addDesc(
			nixlMetaDesc(remote.addr + offset, len, remote.devId, remote.metadataP));
		return *this;
	}

	nixl_status_t post()
	{
		if (!handle) {
			prepared = bench_.engine->prepXfer(op_, local_, remote_, "test", handle);
			if (prepared != NIXL_SUCCESS)
				return prepared;
		}
		return bench_.engine->postXfer(op_, local_, remote_, "test", handle);
	}

	nixl_status_t run()
	{
		nixl_status_t status = post();

		while (status == NIXL_IN_PROG) {
			std::this_thread::yield();
			status = bench_.engine->checkXfer(handle);
		}
		return status;
	}

	nixl_status_t descriptor(size_t i) const
	{
		return static_cast<Request *>(handle)->descriptor(i);
	}

	void release()
	{
		if (handle)
			CHECK(bench_.engine->releaseReqH(handle) == NIXL_SUCCESS);
		handle = nullptr;
	}
};

void fill(std::vector<char> &bytes, unsigned int seed)
{
	for (char &c : bytes)
		c = static_cast<char>((seed = seed * 1103515245 + 12345) >> 16);
}

void test_results_of_descriptors()
{
	Bench bench;
	std::vector<char> bytes(1000);
	const nixlMetaDesc memory = bench.memory(bytes);
	const nixlMetaDesc there = bench.object(100, "there"), longer = bench.object(150, "there");
	const nixlMetaDesc missing = bench.object(100);

	CHECK(Transfer(bench, NIXL_WRITE).add(memory, 0, there, 0, 100).run() == NIXL_SUCCESS);
	Transfer read(bench, NIXL_READ);

	/* the first and the fourth are neighbors only in the object */
	read.add(memory, 0, there, 0, 50).add(memory, 100, missing, 0, 100);
	read.add(memory, 200, longer, 0, 150).add(memory, 500, there, 50, 50);
	CHECK(read.run() == NIXL_ERR_MISMATCH);
	CHECK(read.descriptor(0) == NIXL_SUCCESS);
	CHECK(read.descriptor(1) == NIXL_ERR_NOT_FOUND);
	CHECK(read.descriptor(2) == NIXL_ERR_MISMATCH);
	CHECK(read.descriptor(3) == NIXL_SUCCESS);
	/* two descriptors of one operation share its result */
	Transfer both(bench, NIXL_READ);

	both.add(memory, 0, missing, 0, 50).add(memory, 300, missing, 50, 50);
	both.add(memory, 600, there, 0, 100);
	CHECK(both.run() == NIXL_ERR_NOT_FOUND);
	CHECK(both.descriptor(0) == NIXL_ERR_NOT_FOUND && both.descriptor(1) == NIXL_ERR_NOT_FOUND);
	CHECK(both.descriptor(2) == NIXL_SUCCESS);
	read.release();
	both.release();
	for (const auto &desc : { memory, there, longer, missing })
		bench.remove(desc);
}

/* A write that the library calls "skip" is no failure of the backend, whatever its errno. */
void test_statuses()
{
	CHECK(status_of(0) == NIXL_SUCCESS);
	for (int err = 1; err < 134; err++) {
		const nixl_status_t status = status_of(-err);

		CHECK(status != NIXL_SUCCESS);
		if (kvblk_result_action(-err) == KVBLK_DO_SKIP)
			CHECK(status == NIXL_ERR_NOT_ALLOWED || status == NIXL_ERR_CANCELED);
		else if (kvblk_result_action(-err) == KVBLK_DO_RETRY)
			CHECK(status == NIXL_ERR_BACKEND);
	}
	CHECK(status_of(-ENOSPC) == NIXL_ERR_NOT_ALLOWED && status_of(-EIO) == NIXL_ERR_BACKEND);
}

void test_bad_transfers()
{
	Bench bench;
	std::vector<char> bytes(1000);
	const nixlMetaDesc memory = bench.memory(bytes), object = bench.object(2000);
	const nixlMetaDesc huge = bench.object(SIZE_MAX);
	nixlMetaDesc unknown = object;

	unknown.metadataP = nullptr;
	/* outside the memory or the longest object; not registered; empty */
	for (auto [at, offset, len] : { std::array<size_t, 3>{ 0, 0, 1001 }, { 1000, 0, 1 },
					{ 0, 0, 0 }, { SIZE_MAX, 0, 2 } })
		CHECK(Transfer(bench, NIXL_READ).add(memory, at, object, offset, len).run() ==
		      NIXL_ERR_INVALID_PARAM);
	CHECK(Transfer(bench, NIXL_READ).add(memory, 0, huge, SIZE_MAX - 1000, 1000).run() ==
	      NIXL_ERR_INVALID_PARAM);
	CHECK(Transfer(bench, NIXL_READ).add(memory, 0, unknown, 0, 10).run() ==
	      NIXL_ERR_INVALID_PARAM);
	CHECK(Transfer(bench, NIXL_READ).run() == NIXL_ERR_INVALID_PARAM);
	CHECK(Transfer(bench, NIXL_READ, DRAM_SEG, DRAM_SEG).add(memory, 0, memory, 0, 10).run() ==
	      NIXL_ERR_NOT_SUPPORTED);
	const nixlMetaDesc volume = bench.add(BLK_SEG, 0, SIZE_MAX);

	CHECK(Transfer(bench, NIXL_READ, DRAM_SEG, BLK_SEG)
		      .add(memory, 0, volume, SIZE_MAX - 9, 100).run() == NIXL_ERR_INVALID_PARAM);
	CHECK(Transfer(bench, NIXL_READ, DRAM_SEG, BLK_SEG)
		      .add(memory, 0, volume, SIZE_MAX - 99, 99).run() == NIXL_ERR_NOT_FOUND);
	for (const auto &desc : { memory, object, huge, volume })
		bench.remove(desc);
}

/* Threads that post, release, query and deregister at random. */
void test_storm()
{
	Bench bench(nixl_b_params_t{
		{ "threads", "3" }, { "num_tasks", "12" } });
	std::vector<std::thread> threads;
	std::atomic<unsigned int> done{ 0 }, released{ 0 };

	setenv("KVBLK_FAKE_DELAY_MS", "1", 1);
	for (unsigned int t = 0; t < 4; t++) {
		threads.emplace_back([&, t] {
			unsigned int dice = t;

			for (int turn = 0; turn < 60; turn++) {
				std::vector<char> from(20000), to(20000);
				std::vector<nixlMetaDesc> objects;

				fill(from, t * 1000 + static_cast<unsigned int>(turn));
				const nixlMetaDesc source = bench.memory(from);
				const nixlMetaDesc target = bench.memory(to);
				Transfer write(bench, NIXL_WRITE), read(bench, NIXL_READ);

				for (size_t i = 0; i < 10; i++) {
					objects.push_back(bench.object(
						2000, "storm" + std::to_string(t * 10 + i)));
					write.add(source, i * 2000, objects[i], 0, 2000);
					read.add(target, i * 2000, objects[i], 0, 2000);
				}
				dice = dice * 1103515245 + 12345;
				if (dice >> 16 & 1) {
					CHECK(write.run() == NIXL_SUCCESS);
					CHECK(read.run() == NIXL_SUCCESS);
					CHECK(from == to);
					done++;
				} else {
					CHECK(write.post() == NIXL_IN_PROG);
					CHECK(read.post() == NIXL_IN_PROG);
					released++;
				}
				if (dice >> 17 & 1) {
					write.release();
					read.release();
				}
				/* the memory is deregistered at once; a transfer may still exist */
				bench.remove(source);
				bench.remove(target);
				for (const auto &object : objects)
					bench.remove(object);
			}
		});
	}
	for (auto &thread : threads)
		thread.join();
	unsetenv("KVBLK_FAKE_DELAY_MS");
	CHECK(done > 50 && released > 50);
}

void test_gone_in_flight()
{
	std::vector<char> bytes(1000);
	auto bench = std::make_unique<Bench>();
	const nixlMetaDesc memory = bench->memory(bytes), object = bench->object(100);
	std::vector<std::unique_ptr<Transfer>> transfers;
	const auto start = std::chrono::steady_clock::now();

	/* longer than anything below, and than the deadline */
	setenv("KVBLK_FAKE_DELAY_MS", "20000", 1);
	for (int i = 0; i < 20; i++) {
		transfers.push_back(std::make_unique<Transfer>(*bench, NIXL_READ));
		CHECK(transfers.back()->add(memory, 0, object, 0, 100).post() == NIXL_IN_PROG);
	}
	/* release half of them; deregistration ends all that use the memory */
	for (int i = 0; i < 20; i += 2)
		transfers[static_cast<size_t>(i)]->release();
	bench->remove(memory);
	for (int i = 1; i < 20; i += 2)
		CHECK(bench->engine->checkXfer(transfers[static_cast<size_t>(i)]->handle) !=
		      NIXL_SUCCESS);
	CHECK(transfers[1]->post() < 0);
	const nixlMetaDesc again = bench->memory(bytes);

	transfers.clear();
	/* destroy the engine with a released transfer in flight, and with one not released */
	auto last = std::make_unique<Transfer>(*bench, NIXL_READ);

	CHECK(last->add(again, 0, object, 0, 100).post() == NIXL_IN_PROG);
	last->release();
	CHECK(last->post() == NIXL_IN_PROG);
	nixlBackendReqH *left = last->handle;

	last->handle = nullptr;
	bench->remove(object);
	/* memory can no longer be deregistered */
	static nixlBackendMD *volatile lost;

	lost = again.metadataP;
	CHECK(lost);
	bench.reset();
	delete left;
	unsetenv("KVBLK_FAKE_DELAY_MS");
	CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}

/* Memory of a GPU; @mode as for fake_cuda_mmap(). */
void test_gpu(void *cuda, int mode)
{
	auto use = reinterpret_cast<void (*)(int)>(dlsym(cuda, "fake_cuda_mmap"));
	auto fail = reinterpret_cast<void (*)(const char *, int, int)>(dlsym(cuda, "fake_cuda_fail"));
	auto bytes_of = reinterpret_cast<char *(*)(uint64_t)>(dlsym(cuda, "fake_cuda_bytes"));
	struct kvblk *kv;
	struct kvblk_mem *owner;
	const size_t size = 1 << 20, part = 1 << 18;

	use(mode);
	CHECK(!kvblk_open("fake", 0, &kv) && !kvblk_mem_alloc(kv, "cuda:0", size, nullptr, &owner));
	const auto ptr = reinterpret_cast<uintptr_t>(kvblk_mem_addr(owner));
	{
		Bench bench;
		const nixlMetaDesc gpu = bench.add(VRAM_SEG, ptr, size);
		std::vector<char> pattern(size);
		std::vector<nixlMetaDesc> objects;
		Transfer write(bench, NIXL_WRITE, VRAM_SEG), read(bench, NIXL_READ, VRAM_SEG);

		for (size_t i = 0; i < 4; i++)
			objects.push_back(bench.object(part));
		for (size_t i = 0; i < 4; i++) {
			write.add(gpu, i * part, objects[i], 0, part);
			read.add(gpu, i * part, objects[3 - i], 0, part);
		}
		for (int turn = 0; turn < 3; turn++) {
			fill(pattern, static_cast<unsigned int>(turn));
			memcpy(bytes_of(ptr), pattern.data(), size);
			CHECK(write.run() == NIXL_SUCCESS);
			CHECK(read.run() == NIXL_SUCCESS);
			for (size_t i = 0; i < 4; i++)
				CHECK(!memcmp(bytes_of(ptr) + i * part,
					      pattern.data() + (3 - i) * part, part));
		}
		/* a read fails if its data may not be visible to the GPU */
		if (mode) {
			fail("cuFlushGPUDirectRDMAWrites", 1, 999);
			CHECK(read.run() == NIXL_ERR_BACKEND);
		}
		const nixlMetaDesc shorter = bench.object(part / 2), missing = bench.object(part);
		Transfer one(bench, NIXL_READ, VRAM_SEG), half(bench, NIXL_READ, VRAM_SEG),
			two(bench, NIXL_WRITE, VRAM_SEG), both(bench, NIXL_READ, VRAM_SEG);

		CHECK(one.add(gpu, 0, missing, 0, part).run() == NIXL_ERR_NOT_FOUND);
		CHECK(half.add(gpu, 0, objects[0], 16, 100).run() == NIXL_SUCCESS);
		CHECK(!memcmp(bytes_of(ptr), bytes_of(ptr) + 3 * part + 16, 100));
		two.add(gpu, 0, shorter, 0, 100).add(gpu, part, shorter, 100, part / 2 - 100);
		CHECK(two.run() == NIXL_SUCCESS);
		memcpy(pattern.data(), bytes_of(ptr), size);
		memset(bytes_of(ptr) + part, 0, part);
		both.add(gpu, 0, shorter, 0, 100).add(gpu, part, shorter, 100, part / 2 - 100);
		CHECK(both.run() == NIXL_SUCCESS);
		CHECK(!memcmp(bytes_of(ptr), pattern.data(), part + part / 2 - 100));
		setenv("KVBLK_FAKE_DECLINE", "1", 1);
		CHECK(write.run() == NIXL_ERR_NOT_ALLOWED);
		unsetenv("KVBLK_FAKE_DECLINE");
		CHECK(read.run() == NIXL_ERR_NOT_FOUND);
		/*
		 * another caller writes the same objects at the same time: missing ones, then
		 * present ones
		 */
		for (int turn = 0; turn < 2; turn++) {
			setenv("KVBLK_FAKE_BUSY", "1", 1);
			CHECK(write.run() == NIXL_SUCCESS);
			unsetenv("KVBLK_FAKE_BUSY");
			CHECK(write.run() == NIXL_SUCCESS);
		}
		for (Transfer *t : { &write, &read, &one, &half, &two, &both })
			t->release();
		bench.remove(gpu);
		for (const auto &object : objects)
			bench.remove(object);
		bench.remove(shorter);
		bench.remove(missing);
	}
	kvblk_mem_unregister(owner);
	kvblk_close(kv);
}

} // namespace

int main(int argc, char **argv)
{
	void *cuda = argc > 1 ? dlopen(argv[1], RTLD_NOW) : nullptr;
	int number = 0, nr_failed = 0;

	const std::pair<const char *, std::function<void()>> tests[] = {
		{ "results of descriptors", test_results_of_descriptors },
		{ "statuses of results", test_statuses },
		{ "transfers that can't be", test_bad_transfers },
		{ "threads that post, release and deregister", test_storm },
		{ "memory and engine go with transfers in flight", test_gone_in_flight },
		{ "a GPU's memory, staged", [=] { test_gpu(cuda, 0); } },
		{ "a GPU's memory, mapped", [=] { test_gpu(cuda, 1); } },
	};

	for (const auto &[what, test] : tests) {
		const bool skip = strstr(what, "GPU") && !cuda;

		failed = false;
		if (!skip)
			test();
		printf("%s %d nixl-engine: %s%s\n", failed ? "not ok" : "ok", ++number, what,
		       skip ? " # SKIP no fake libcuda.so.1 was given" : "");
		fflush(stdout);
		nr_failed += failed;
	}
	return nr_failed > 0;
}
