// SPDX-License-Identifier: MIT
/*
 * Blocks whose parts lie apart, one for each layer of a model, from and to memory of a GPU
 * (cuda:0), another PCI device (0000:03:00.0), a driver's node (/dev/node), or the host: the
 * calls are the same.
 * usage: scatter POOL FROM
 */
#include <cstring>
#include <iostream>

#include <kvblk.hpp>

constexpr size_t LAYERS = 32, BLOCKS = 16, PART = 8192;

/* Where block @i has its part of a layer: layers lie side by side, as in a runtime's cache. */
static size_t part(size_t layer, size_t i)
{
	return (layer * BLOCKS + i) * PART;
}

static std::string key(const char *what, size_t i)
{
	return "example/scatter/" + std::string(what) + "/" + std::to_string(i);
}

/* Submit a batch and wait. Returns the batch, or nothing after an error. */
static std::unique_ptr<libkvblk::Batch> run(const libkvblk::Queue &queue,
					    std::unique_ptr<libkvblk::Batch> batch)
{
	std::vector<std::unique_ptr<libkvblk::Batch>> done;
	/* the queue owns the batch; a runtime would do other work until it comes back */
	std::error_code error = queue.submit(batch, KVBLK_SUBMIT_CHAIN);

	while (!error && done.empty())
		error = queue.wait(done);
	for (size_t i = 0; !error && i < done[0]->size(); i++) {
		/* whatever was not done is skipped or computed again; here it is an error */
		if (libkvblk::action(done[0]->error(i)) != KVBLK_DO_NOTHING)
			error = done[0]->error(i);
	}
	if (error) {
		std::cerr << error.message() << "\n";
		return nullptr;
	}
	return std::move(done[0]);
}

/* Put blocks from the host, get them into @cache, put them from there, and get them back. */
static bool trip(const libkvblk::Queue &queue, const libkvblk::Memory &cache, const char *name)
{
	static const char *const kinds[] = { "", "pinned once", "pinned each time", "staged" };
	std::vector<char> source(LAYERS * BLOCKS * PART), back(source.size());
	std::unique_ptr<libkvblk::Batch> batches[4];
	uint32_t flags = ~0u;

	for (size_t i = 0; i < source.size(); i++)
		source[i] = static_cast<char>(i / PART * 7 + i);
	for (auto &batch : batches)
		batch = std::make_unique<libkvblk::Batch>();
	for (size_t i = 0; i < BLOCKS; i++) {
		batches[0]->put(key("in", i));
		batches[1]->get(key("in", i));
		batches[2]->put(key("out", i));
		batches[3]->get(key("out", i));
		for (size_t layer = 0; layer < LAYERS; layer++) {
			batches[0]->piece(&source[part(layer, i)], PART);
			batches[1]->piece(cache, part(layer, i), PART);
			batches[2]->piece(cache, part(layer, i), PART);
			batches[3]->piece(&back[part(layer, i)], PART);
		}
	}
	for (auto &batch : batches) {
		batch = run(queue, std::move(batch));
		if (!batch)
			return false;
	}
	for (size_t i = 0; i < BLOCKS; i++)
		flags &= (*batches[1])[i].flags;
	std::cout << BLOCKS << " blocks of " << LAYERS << " parts went through " << name << ": "
		  << kinds[cache.kind()] << ", "
		  << (flags & KVBLK_RES_DIRECT ? "straight" : "through the kernel") << "\n";
	return source == back;
}

int main(int argc, char **argv)
{
	auto options = libkvblk::sized<struct kvblk_queue_options>();
	libkvblk::Memory cache;
	libkvblk::Queue queue;
	libkvblk::Pool pool;

	if (argc != 3)
		return 2;
	std::error_code error = pool.open(argv[1]);

	if (error) {
		std::cerr << argv[1] << ": " << error.message() << "\n";
		return 1;
	}
	/* pool.add() registers memory that the program has already */
	error = pool.alloc(argv[2], LAYERS * BLOCKS * PART, cache);
	if (error) {
		std::cerr << argv[2] << ": " << (error == std::errc::not_enough_memory ?
			"no memory, or RLIMIT_MEMLOCK: raise it (ulimit -l)" : error.message()) << "\n";
		return 1;
	}
	/* threads take the CPU time of pinning, checksums and copies; without them: a ring */
	options.threads = 4;
	error = queue.create(pool, &options);
	if (error) {
		std::cerr << error.message() << "\n";
		return 1;
	}
	const bool good = trip(queue, cache, argv[2]);

	for (size_t i = 0; i < BLOCKS; i++) {
		pool.remove(key("in", i));
		pool.remove(key("out", i));
	}
	return good ? 0 : 1;
}
