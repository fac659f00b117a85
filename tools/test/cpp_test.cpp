// SPDX-License-Identifier: MIT
/*
 * kvblk.hpp on libkvblk-fake, with rings and with threads; built with ASan and UBSan, and with
 * TSan. Prints TAP.
 */
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <new>
#include <numeric>
#include <poll.h>
#include <thread>

#include <kvblk.hpp>

namespace {

using libkvblk::Batch;
using libkvblk::Memory;
using libkvblk::Pool;
using libkvblk::Prefix;
using libkvblk::Queue;

std::atomic<bool> failed;

#define CHECK(condition)                                                         \
	do {                                                                     \
		if (!(condition)) {                                              \
			printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition); \
			failed = true;                                           \
		}                                                                \
	} while (0)

/* allocations of this thread that succeed; negative: all */
thread_local int allocations_left = -1;

std::string key(const char *test, size_t i)
{
	return "cpp/" + std::string(test) + "/" + std::to_string(i);
}

/* A request of a program: a batch with its own state. */
struct Request : Batch {
	static std::atomic<int> alive;
	const size_t number;
	std::vector<char> data;

	explicit Request(size_t n, size_t len = 1000) : number(n), data(len)
	{
		alive++;
	}
	~Request() override
	{
		alive--;
	}
};

std::atomic<int> Request::alive;

std::vector<std::unique_ptr<Batch>> wait_all(const Queue &queue, size_t nr)
{
	std::vector<std::unique_ptr<Batch>> done;

	while (done.size() < nr) {
		const size_t before = done.size();

		CHECK(!queue.wait(done));
		if (done.size() == before) {
			printf("# nothing is in flight\n");
			exit(1);
		}
	}
	return done;
}

void test_errors(unsigned int)
{
	Pool pool;
	std::error_code error = pool.open("/nonexistent/node");

	CHECK(error == std::errc::no_such_device && !pool && !pool.get());
	CHECK(error.category() == std::generic_category() && error.message() == strerror(ENODEV));
	CHECK(!pool.open("fake") && pool);
	error = pool.exists(key("errors", 0));
	CHECK(error == std::errc::no_such_file_or_directory);
	CHECK(error.category() == libkvblk::result_category());
	CHECK(error.message() == kvblk_result_text(-ENOENT));
	CHECK(libkvblk::action(error) == KVBLK_DO_RECOMPUTE);
	CHECK(libkvblk::action({}) == KVBLK_DO_NOTHING);
	CHECK(!libkvblk::result_error(4096) && !libkvblk::call_error(3));
}

void test_one_block(unsigned int)
{
	Pool pool;
	const std::string name = key("one", 0);
	char data[100] = "abc", back[200];
	size_t len = sizeof(back);
	uint32_t size = 0;
	struct kvblk_info info;

	CHECK(!pool.open("fake") && !pool.info(info) && info.value_max);
	CHECK(!pool.put(name, data, sizeof(data)));
	CHECK(pool.put(name, data, sizeof(data)) == std::errc::file_exists);
	CHECK(!pool.exists(name, &size) && size == sizeof(data));
	CHECK(!pool.get(name, back, len) && len == sizeof(data) && !memcmp(data, back, len));
	len = 10;
	CHECK(pool.get(name, back, len) == std::errc::message_size && len == sizeof(data));
	CHECK(!pool.remove(name));
	CHECK(pool.remove(name) == std::errc::no_such_file_or_directory);
}

/* Handles are freed in the right order, whatever the order in which the caller drops them. */
void test_lifetimes(unsigned int threads)
{
	auto options = libkvblk::sized<struct kvblk_queue_options>();
	std::vector<std::unique_ptr<Batch>> done;
	Memory memory, other;
	Queue queue;
	Prefix prefix;
	int fd, fd2;

	options.threads = threads;
	{
		Pool pool, second;

		CHECK(!pool.open("fake") && !second.open("fake"));
		fd = kvblk_fd(pool.get());
		fd2 = kvblk_fd(second.get());
		CHECK(!pool.alloc("host", 4096, memory) && !second.alloc("host", 4096, other));
		CHECK(!queue.create(second, &options));
		Pool moved(std::move(pool));

		CHECK(!pool && moved && kvblk_fd(moved.get()) == fd);
		CHECK(!moved.lookup_prefix(key("lifetimes", 0), 12, 1000, prefix));
	}
	/* the objects that are left hold the pools */
	CHECK(fcntl(fd, F_GETFD) >= 0 && fcntl(fd2, F_GETFD) >= 0);
	prefix.lease.reset();
	std::unique_ptr<Batch> batch = std::make_unique<Batch>();

	memset(other.addr(), 'x', 4096);
	batch->put(key("lifetimes", threads)).piece(other, 0, 4096);
	batch->remove(key("lifetimes", 9));
	CHECK(!queue.submit(batch) && !batch);
	done = wait_all(queue, 1);
	CHECK(done.size() == 1 && (*done[0])[0].res == 4096);
	/* assignment unregisters the old memory before it lets go of its pool */
	memory = std::move(other);
	CHECK(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
	CHECK(memory && !other && memory.kind() == KVBLK_MEM_REGISTERED);
	queue.reset();
	CHECK(!queue && fcntl(fd2, F_GETFD) >= 0);
	memory.reset();
	CHECK(fcntl(fd2, F_GETFD) < 0 && errno == EBADF);
}

/* Scatter lists of layers, from and to both kinds of memory. */
void test_batch(unsigned int)
{
	const size_t nr = 100, layers = 8, len = 512;
	std::vector<char> source(nr * layers * len), back(source.size());
	Pool pool;
	Memory memory;
	Batch batch;

	std::iota(source.begin(), source.end(), 0);
	CHECK(!pool.open("fake") && !pool.alloc("host", source.size(), memory));
	auto *const there = static_cast<char *>(memory.addr());

	/* layers of all blocks are side by side, as in the memory of a runtime */
	memcpy(there, source.data(), source.size());
	for (size_t i = 0; i < nr; i++) {
		batch.put(key("batch", i)).last().cookie = i;
		for (size_t layer = 0; layer < layers; layer++)
			batch.piece(memory, (layer * nr + i) * len, len);
		batch.ext().layout_tag = 7;
		CHECK(batch.last().nr_pieces == layers);
	}
	CHECK(!pool.submit(batch, KVBLK_SUBMIT_CHAIN) && batch.size() == nr);
	for (size_t i = 0; i < nr; i++) {
		CHECK(batch[i].res == static_cast<int>(layers * len) && batch[i].cookie == i);
		CHECK(batch.key(i) == key("batch", i));
	}
	/* again: a batch keeps its operations */
	CHECK(!pool.submit(batch));
	CHECK(batch.error(nr - 1) == std::errc::file_exists);
	batch.clear();
	for (size_t i = 0; i < nr; i++) {
		batch.get(key("batch", i)).last().flags = KVBLK_OPF_LAYOUT;
		batch.ext().layout_tag = i ? 7 : 8;
		for (size_t layer = 0; layer < layers; layer++)
			batch.piece(&back[(layer * nr + i) * len], len);
	}
	CHECK(!pool.submit(batch));
	CHECK(batch.error(0) == std::errc::no_such_file_or_directory);
	for (size_t i = 1; i < nr; i++)
		CHECK(!batch.error(i) && batch[i].layout_tag == 7);
	for (size_t layer = 0; layer < layers; layer++) {
		const auto first = static_cast<ptrdiff_t>((layer * nr + 1) * len);

		CHECK(std::equal(source.begin() + first,
				 source.begin() + first + static_cast<ptrdiff_t>((nr - 1) * len),
				 back.begin() + first));
	}
	batch.clear();
	for (size_t i = 0; i < nr; i++)
		batch.remove(key("batch", i));
	CHECK(!pool.submit(batch) && !batch.error(0) && !batch.error(nr - 1));
}

void test_pieces(unsigned int)
{
	std::vector<char> data(8192);
	Pool pool;
	Memory memory;
	Batch batch;

	CHECK(!pool.open("fake") && !pool.alloc("host", 4096, memory));
	/* adjacent pieces of one memory are merged, others are not */
	batch.put("a").piece(memory, 0, 100).piece(memory, 100, 50).piece(memory, 200, 10);
	CHECK(batch.last().nr_pieces == 2);
	batch.put("b").piece(memory, 210, 10).piece(data.data(), 220).piece(&data[220], 10);
	CHECK(batch.last().nr_pieces == 2);
	CHECK(!batch.seal());
	/* memory of the process may have the address that is an offset in registered memory */
	batch.clear();
	batch.get("a").piece(memory, 0, 100).piece(reinterpret_cast<void *>(uintptr_t{ 100 }), 10);
	CHECK(batch.last().nr_pieces == 2 && !batch.seal());
	batch.clear();
	batch.put("a").piece(memory, 4000, 97);
	CHECK(batch.seal() == std::errc::bad_address);
	CHECK(pool.submit(batch) == std::errc::bad_address);
	batch.clear();
	batch.put("a");
	for (size_t i = 0; i < KVBLK_PIECES_MAX; i++)
		batch.piece(&data[2 * i], 1);
	batch.piece(&data[2 * KVBLK_PIECES_MAX - 1], 1);
	CHECK(batch.last().nr_pieces == KVBLK_PIECES_MAX && !batch.seal());
	batch.piece(&data[2 * KVBLK_PIECES_MAX + 1], 1);
	CHECK(batch.last().nr_pieces == KVBLK_PIECES_MAX);
	CHECK(batch.seal() == std::errc::invalid_argument);
	batch.clear();
	batch.put("a").piece(static_cast<const char *>(data.data()), 1);
	CHECK(!batch.seal());
	batch.get("a").piece(static_cast<const char *>(data.data()), 1);
	CHECK(batch.seal() == std::errc::invalid_argument);
	batch.clear();
	batch.piece(data.data(), 1);
	CHECK(batch.seal() == std::errc::invalid_argument);
	/* memory that was moved away is not memory of the process */
	batch.clear();
	memory.reset();
	batch.put("a").piece(memory, 4096, 1);
	CHECK(batch.seal() == std::errc::invalid_argument);
}

/* A batch stays whole if an allocation fails. */
void test_no_memory(unsigned int)
{
	static char data[3];
	Pool pool;
	Queue queue;

	CHECK(!pool.open("fake") && !queue.create(pool));
	for (int n = 0; n < 60; n++) {
		std::unique_ptr<Batch> batch = std::make_unique<Batch>();
		std::vector<std::unique_ptr<Batch>> done;
		bool threw = false;

		allocations_left = n;
		try {
			for (int i = 0; i < 10; i++) {
				batch->get("a key that is longer than a short string");
				batch->piece(data, 1).piece(data + 2, 1).ext();
			}
		} catch (const std::bad_alloc &) {
			threw = true;
		}
		allocations_left = -1;
		CHECK(threw || n > 10);
		batch->get("last").piece(data + 1, 1);
		CHECK(!batch->seal());
		const struct kvblk_op &op = batch->ops()[batch->size() - 1];

		CHECK(!memcmp(reinterpret_cast<char *>(static_cast<uintptr_t>(op.key)), "last", 4));
		CHECK(op.nr_pieces == 1 &&
		      reinterpret_cast<const struct kvblk_piece *>(
			      static_cast<uintptr_t>(op.pieces))->addr ==
			      reinterpret_cast<uintptr_t>(data + 1));
		for (int m = 0; batch; m++) {
			allocations_left = m;
			try {
				CHECK(!queue.submit(batch));
			} catch (const std::bad_alloc &) {
				CHECK(batch && batch->size());
			}
			allocations_left = -1;
		}
		for (int m = 0; done.empty(); m++) {
			allocations_left = m;
			try {
				CHECK(!queue.wait(done));
			} catch (const std::bad_alloc &) {
			}
			allocations_left = -1;
		}
		CHECK(done[0]->error(done[0]->size() - 1) == std::errc::no_such_file_or_directory);
	}
}

/* Keys of different lengths, more than a lookup takes. */
void test_lookup(unsigned int)
{
	const size_t nr = KVBLK_LOOKUP_MAX + 10;
	const std::vector<size_t> present = { 0, 9, KVBLK_LOOKUP_MAX - 1, KVBLK_LOOKUP_MAX, nr - 1 };
	std::vector<uint32_t> sizes = { 7 }, expected(nr);
	std::vector<std::string> keys;
	char data[100] = {};
	Pool pool;

	CHECK(!pool.open("fake"));
	for (size_t i = 0; i < nr; i++)
		keys.push_back(key("lookup", i));
	for (size_t i : present) {
		expected[i] = static_cast<uint32_t>(i % 99 + 1);
		CHECK(!pool.put(keys[i], data, expected[i]));
	}
	CHECK(!pool.lookup(keys, sizes) && sizes == expected);
	/* an error leaves the result of an earlier call */
	for (size_t len : { KVBLK_KEY_MAX + 1, UINT16_MAX + 2 }) {
		keys.back() = std::string(len, 'k');
		CHECK(pool.lookup(keys, sizes) == std::errc::invalid_argument && sizes == expected);
	}
	CHECK(!pool.lookup({}, sizes) && sizes.empty());
	for (size_t i : present)
		CHECK(!pool.remove(key("lookup", i)));
}

void test_lease(unsigned int)
{
	std::string keys;
	char data[64] = {};
	size_t len = sizeof(data);
	Prefix prefix, nothing;
	Pool pool;

	CHECK(!pool.open("fake"));
	for (size_t i = 0; i < 4; i++) {
		keys += key("lease", i);
		CHECK(i == 3 || !pool.put(key("lease", i), data, sizeof(data)));
	}
	const size_t key_len = key("lease", 0).size();

	CHECK(!pool.lookup_prefix(keys, key_len, 0, prefix));
	CHECK(prefix.nr_leading == 3 && !prefix.lease && !prefix.lease.end_ns());
	/* the fake pool's gets miss unless a lease is held */
	setenv("KVBLK_FAKE_LEASE", "1", 1);
	CHECK(!pool.lookup_prefix(keys, key_len, 10000, prefix));
	CHECK(prefix.nr_leading == 3 && prefix.lease && prefix.lease.end_ns());
	CHECK(!pool.get(key("lease", 0), data, len));
	Prefix moved = std::move(prefix);

	CHECK(!prefix.lease && !pool.get(key("lease", 1), data, len));
	moved.lease.reset();
	CHECK(pool.get(key("lease", 1), data, len) == std::errc::no_such_file_or_directory);
	CHECK(!pool.lookup_prefix(key("lease", 3), key_len, 1000, nothing) && !nothing.lease);
	CHECK(!pool.lookup_prefix(keys, key_len, 1000, moved) && moved.lease);
	/* an error leaves no lease of an earlier call */
	CHECK(pool.lookup_prefix("", key_len, 1000, moved) && !moved.lease && !moved.nr_leading);
	CHECK(pool.lookup_prefix(keys, 0, 1000, moved) == std::errc::invalid_argument);
	unsetenv("KVBLK_FAKE_LEASE");
	for (size_t i = 0; i < 3; i++)
		CHECK(!pool.remove(key("lease", i)));
}

/* Threads that submit to one queue, and that wait for whatever completes. */
void test_queue(unsigned int nr_threads)
{
	const size_t nr = 200, per_batch = 5, callers = 4;
	auto options = libkvblk::sized<struct kvblk_queue_options>();
	std::vector<std::thread> threads;
	std::atomic<size_t> nr_done{ 0 };
	Pool pool;
	Queue queue;

	options.threads = nr_threads;
	options.depth = 64;
	CHECK(!pool.open("fake") && !queue.create(pool, &options));
	for (size_t t = 0; t < callers; t++) {
		threads.emplace_back([&, t] {
			std::vector<std::unique_ptr<Batch>> done;

			for (size_t i = t; i < nr || nr_done < nr; i += callers) {
				std::unique_ptr<Batch> batch;

				if (i < nr) {
					auto request = std::make_unique<Request>(i);

					memset(request->data.data(), static_cast<int>(i), 1000);
					for (size_t j = 0; j < per_batch; j++)
						request->put(key("queue", i * per_batch + j))
							.piece(&request->data[j * 200], 200);
					batch = std::move(request);
				}
				std::error_code error = batch ? queue.submit(batch) : std::error_code();

				while (error == std::errc::resource_unavailable_try_again) {
					CHECK(batch && batch->size() == per_batch);
					CHECK(!queue.wait(done));
					error = queue.submit(batch);
				}
				CHECK(!error && !batch);
				CHECK(!queue.wait(done, 0, i >= nr));
				for (const auto &d : done) {
					for (size_t j = 0; j < per_batch; j++)
						CHECK((*d)[j].res == 200);
				}
				nr_done += done.size();
				done.clear();
			}
		});
	}
	for (auto &thread : threads)
		thread.join();
	CHECK(nr_done == nr && !Request::alive);
	/* each stored block is that of its thread */
	for (size_t i = 0; i < nr * per_batch; i += 37) {
		unsigned char back[200];
		size_t len = sizeof(back);

		CHECK(!pool.get(key("queue", i), back, len) && len == 200);
		CHECK(back[0] == static_cast<unsigned char>(i / per_batch));
	}
	for (size_t i = 0; i < nr * per_batch; i++)
		CHECK(!pool.remove(key("queue", i)));
}

void test_event_loop(unsigned int threads)
{
	auto options = libkvblk::sized<struct kvblk_queue_options>();
	std::vector<std::unique_ptr<Batch>> done;
	Pool pool;
	Queue queue;

	options.threads = threads;
	CHECK(!pool.open("fake") && !queue.create(pool, &options));
	struct pollfd event = { queue.event_fd(), POLLIN, 0 };

	CHECK(!queue.wait(done, 0, false) && done.empty());
	/* nothing is in flight: do not wait for ever */
	CHECK(!queue.wait(done) && done.empty());
	for (size_t i = 0; i < 50; i++) {
		std::unique_ptr<Batch> batch = std::make_unique<Request>(i);

		batch->get(key("loop", i)).piece(static_cast<Request &>(*batch).data.data(), 1000);
		CHECK(!queue.submit(batch));
	}
	while (done.size() < 50) {
		if (poll(&event, 1, 5000) != 1) {
			CHECK(!"no event");
			break;
		}
		CHECK(!queue.wait(done, 0, false));
	}
	for (const auto &d : done)
		CHECK(d->error(0) == std::errc::no_such_file_or_directory);
	CHECK(poll(&event, 1, 0) == 0);
}

/* Batches in flight are canceled, and freed once they are quiet. */
void test_in_flight(unsigned int threads)
{
	const auto start = std::chrono::steady_clock::now();
	auto options = libkvblk::sized<struct kvblk_queue_options>();
	std::vector<std::unique_ptr<Batch>> done;
	Pool pool;
	Queue queue;

	options.threads = threads;
	options.depth = 20;
	setenv("KVBLK_FAKE_DELAY_MS", "20000", 1);
	CHECK(!pool.open("fake") && !queue.create(pool, &options));
	std::unique_ptr<Batch> one = std::make_unique<Request>(0);
	const Batch *const name = one.get();

	one->put(key("flight", 0)).piece(static_cast<Request &>(*one).data.data(), 1000);
	CHECK(!queue.submit(one));
	CHECK(!queue.wait(done, 1) && done.empty());	/* a deadline that has passed */
	CHECK(!queue.cancel(name));
	done = wait_all(queue, 1);
	CHECK(done.size() == 1 && done[0].get() == name);
	CHECK(done[0]->error(0) == std::errc::operation_canceled);
	CHECK(queue.cancel(name) == std::errc::no_such_file_or_directory);
	done.clear();
	for (size_t i = 0; i <= 20; i++) {
		std::unique_ptr<Batch> batch = std::make_unique<Request>(i);

		batch->put(key("flight", i)).piece(static_cast<Request &>(*batch).data.data(), 1000);
		const std::error_code error = queue.submit(batch);

		/* a full queue does not take the batch */
		CHECK(i < 20 ? !error && !batch :
			       error == std::errc::resource_unavailable_try_again && batch);
	}
	CHECK(Request::alive == 20);
	queue = Queue();
	CHECK(!Request::alive);
	unsetenv("KVBLK_FAKE_DELAY_MS");
	CHECK(pool.exists(key("flight", 1)) == std::errc::no_such_file_or_directory);
	CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

} // namespace

void *operator new(size_t size)
{
	void *memory = allocations_left ? malloc(size) : nullptr;

	if (!memory)
		throw std::bad_alloc();
	if (allocations_left > 0)
		allocations_left--;
	return memory;
}

/* not inlined, or else g++ 12 sees free() of what new returned, and warns */
[[gnu::noinline]] void operator delete(void *memory) noexcept
{
	free(memory);
}

[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept
{
	free(memory);
}

int main()
{
	static const struct {
		const char *what;
		void (*run)(unsigned int threads);
		bool is_queue;
	} tests[] = {
		{ "errors", test_errors, false },
		{ "one block", test_one_block, false },
		{ "batches with scatter lists", test_batch, false },
		{ "pieces", test_pieces, false },
		{ "no memory", test_no_memory, false },
		{ "lookups", test_lookup, false },
		{ "leases", test_lease, false },
		{ "handles that outlive their pool", test_lifetimes, true },
		{ "threads share a queue", test_queue, true },
		{ "an event loop", test_event_loop, true },
		{ "batches in flight", test_in_flight, true },
	};
	int number = 0, nr_failed = 0;

	for (const auto &test : tests) {
		for (unsigned int threads = test.is_queue ? 0 : 3; threads <= 3; threads += 3) {
			failed = false;
			test.run(threads);
			printf("%s %d cpp: %s%s\n", failed ? "not ok" : "ok", ++number, test.what,
			       !test.is_queue ? "" : threads ? ", threads" : ", a ring");
			fflush(stdout);
			nr_failed += failed;
		}
	}
	return nr_failed > 0;
}
