/* SPDX-License-Identifier: MIT */
/*
 * libkvblk for C++17: handles that free themselves, and batches that own what their
 * operations point to. Header only; kvblk.h has the meaning of each call, field and errno.
 *
 * - Pool, Memory, Queue and Lease are move-only. The last of them closes the node: they may
 *   be destroyed in any order, except that Memory must outlive operations that use it.
 * - Batch owns keys, pieces, extensions and results. A queue owns a batch while it is in
 *   flight, so that no caller can free what the kernel still uses.
 *
 * Nothing throws but the allocations of std: then all objects are as before the call. Functions
 * return std::error_code: those of a single block and of an operation are of result_category(),
 * for action(); all others are of std::generic_category(). Both compare with std::errc.
 *
 * Threads: as in C. Different objects are independent; a Pool and a Queue may be used by many
 * threads at once, but be moved, opened and destroyed by one alone; a Batch by one at a time.
 */
#ifndef LIBKVBLK_KVBLK_HPP
#define LIBKVBLK_KVBLK_HPP

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <kvblk.h>

/* not "kvblk", which is a structure of kvblk.h */
namespace libkvblk {

/* The category of results of operations: kvblk_result_text(). */
inline const std::error_category &result_category()
{
	static const struct Category : std::error_category {
		const char *name() const noexcept override
		{
			return "kvblk";
		}
		std::string message(int err) const override
		{
			return kvblk_result_text(-err);
		}
		std::error_condition default_error_condition(int err) const noexcept override
		{
			return { err, std::generic_category() };
		}
	} category;

	return category;
}

/* Returns the error of a result of an operation; no error for a byte count. */
inline std::error_code result_error(int res)
{
	return res < 0 ? std::error_code(-res, result_category()) : std::error_code();
}

/* Returns the error of what another call returned. */
inline std::error_code call_error(int err)
{
	return err < 0 ? std::error_code(-err, std::generic_category()) : std::error_code();
}

/* Returns what a runtime does about the result of an operation. */
inline enum kvblk_action action(const std::error_code &error)
{
	return kvblk_result_action(-error.value());
}

/* A structure of kvblk.h, cleared and with its size set. */
template <typename T> T sized()
{
	T value;

	KVBLK_INIT(&value);
	return value;
}

using Handle = std::shared_ptr<struct kvblk>;

/* Registered memory of the host, a PCI device or a GPU. */
class Memory {
	struct Unregister {
		Handle pool;
		void operator()(struct kvblk_mem *mem) const
		{
			kvblk_mem_unregister(mem);
		}
	};

	std::unique_ptr<struct kvblk_mem, Unregister> mem_;

	friend class Pool;

public:
	explicit operator bool() const
	{
		return !!mem_;
	}
	struct kvblk_mem *get() const
	{
		return mem_.get();
	}
	/* Returns the address, or the device pointer. */
	void *addr() const
	{
		return kvblk_mem_addr(get());
	}
	enum kvblk_mem_kind kind() const
	{
		auto info = sized<struct kvblk_mem_info>();

		kvblk_mem_get_info(get(), &info);
		return static_cast<enum kvblk_mem_kind>(info.kind);
	}
	/* Unregister the memory. */
	void reset()
	{
		*this = Memory();
	}
};

/* A lease, released by the destructor. */
class Lease {
	struct Held {
		Handle pool;
		uint64_t lease, end_ns;
		~Held()
		{
			kvblk_lease_release(pool.get(), lease);
		}
	};

	std::unique_ptr<Held> held_;

	friend class Pool;

public:
	/* Returns false if no block was leased. */
	explicit operator bool() const
	{
		return !!held_;
	}
	/* Returns when the lease ends by itself, as a CLOCK_MONOTONIC time; 0 without a lease. */
	uint64_t end_ns() const
	{
		return held_ ? held_->end_ns : 0;
	}
	/* Release the lease. */
	void reset()
	{
		held_.reset();
	}
};

/*
 * Operations with their keys, pieces, extensions and results. put(), get(), remove() and
 * prefetch() add an operation; piece(), ext() and last() complete the one added last. A batch
 * may run again and again. Derive from Batch to find the state of a request in Queue::wait().
 *
 * The data that pieces refer to is the caller's, as is Memory.
 */
class Batch {
	/* Offsets instead of addresses, which change while the batch grows. */
	struct Place {
		size_t key, piece;
		struct kvblk_op_ext *ext;
	};

	std::vector<struct kvblk_op> ops_;
	std::vector<Place> places_;
	std::vector<struct kvblk_piece> pieces_;
	std::vector<struct kvblk_result> results_;
	std::deque<struct kvblk_op_ext> exts_;
	std::string keys_;
	const struct kvblk_mem *last_mem_ = nullptr;	/* memory of the last piece */
	int err_ = 0;	/* of the first bad piece */
	std::atomic<unsigned int> nr_running_{ 0 };	/* operations in flight in a queue */

	friend class Queue;

	Batch &add(unsigned int opcode, std::string_view key)
	{
		struct kvblk_op op;

		kvblk_prep_put(&op, nullptr, key.size(), nullptr, 0);
		op.opcode = static_cast<uint8_t>(opcode);
		/* drop what an add() without memory left */
		places_.resize(ops_.size());
		results_.resize(ops_.size());
		places_.push_back({ keys_.size(), pieces_.size(), nullptr });
		results_.emplace_back();
		keys_.append(key);
		/* last, because the number of operations counts */
		ops_.push_back(op);
		return *this;
	}

	Batch &fail(int err)
	{
		err_ = err_ ? err_ : err;
		return *this;
	}

	Batch &piece(const struct kvblk_mem *mem, uintptr_t at, size_t len)
	{
		struct kvblk_piece piece;
		const int err = ops_.empty() ? -EINVAL : kvblk_prep_piece(&piece, mem, at, len);

		if (err)
			return fail(err);
		if (last().nr_pieces && mem == last_mem_) {
			struct kvblk_piece &before = pieces_.back();

			if (before.addr + before.length == piece.addr &&
			    before.length <= UINT32_MAX - piece.length) {
				before.length += piece.length;
				return *this;
			}
		}
		if (last().nr_pieces == KVBLK_PIECES_MAX)
			return fail(-EINVAL);
		pieces_.push_back(piece);
		last().nr_pieces++;
		last_mem_ = mem;
		return *this;
	}

public:
	Batch() = default;
	Batch(const Batch &) = delete;
	virtual ~Batch() = default;

	Batch &put(std::string_view key)
	{
		return add(KVBLK_OP_PUT, key);
	}
	Batch &get(std::string_view key)
	{
		return add(KVBLK_OP_GET, key);
	}
	Batch &remove(std::string_view key)
	{
		return add(KVBLK_OP_DELETE, key);
	}
	Batch &prefetch(std::string_view key)
	{
		return add(KVBLK_OP_PREFETCH, key);
	}
	/* @flags: KVBLK_OPF_RELEASE alone, or others of a hint; last() takes their values. */
	Batch &hint(std::string_view key, uint32_t flags)
	{
		add(KVBLK_OP_HINT, key);
		last().flags = flags;
		return *this;
	}

	/*
	 * Add a piece of registered memory, or of memory of the process. A piece that continues
	 * the one before it is merged with it. seal() returns the error of a bad piece.
	 */
	Batch &piece(const Memory &memory, size_t offset, size_t len)
	{
		/* without memory the offset would be an address of the process */
		return memory ? piece(memory.get(), offset, len) : fail(-EINVAL);
	}
	Batch &piece(void *addr, size_t len)
	{
		return piece(nullptr, reinterpret_cast<uintptr_t>(addr), len);
	}
	/* Only puts take constant data. */
	Batch &piece(const void *addr, size_t len)
	{
		if (ops_.empty() || last().opcode != KVBLK_OP_PUT)
			return fail(-EINVAL);
		return piece(nullptr, reinterpret_cast<uintptr_t>(addr), len);
	}

	/* Returns the last operation: its options are fields that may be set. */
	struct kvblk_op &last()
	{
		return ops_.back();
	}

	/* Returns the extension of the last operation: parent, checksums, tags, hints. */
	struct kvblk_op_ext &ext()
	{
		if (!places_.back().ext) {
			exts_.emplace_back(sized<struct kvblk_op_ext>());
			places_.back().ext = &exts_.back();
		}
		return *places_.back().ext;
	}

	/* Remove all operations, keep the memory for others. */
	void clear()
	{
		ops_.clear();
		places_.clear();
		pieces_.clear();
		results_.clear();
		exts_.clear();
		keys_.clear();
		err_ = 0;
	}

	/*
	 * Point the operations to their keys, pieces and extensions. Pool::submit() and
	 * Queue::submit() do that; others that submit ops() have to. Returns the error of the
	 * first bad piece: as of kvblk_prep_piece(), or EINVAL if there are too many.
	 */
	std::error_code seal()
	{
		for (size_t i = 0; i < ops_.size(); i++) {
			ops_[i].key = reinterpret_cast<uintptr_t>(keys_.data() + places_[i].key);
			ops_[i].pieces = !ops_[i].nr_pieces ? 0 : reinterpret_cast<uintptr_t>(
				pieces_.data() + places_[i].piece);
			ops_[i].ext = reinterpret_cast<uintptr_t>(places_[i].ext);
		}
		return call_error(err_);
	}

	unsigned int size() const
	{
		return static_cast<unsigned int>(ops_.size());
	}
	struct kvblk_op *ops()
	{
		return ops_.data();
	}
	struct kvblk_result *results()
	{
		return results_.data();
	}
	/* Returns the key of operation @i, until the batch changes. */
	std::string_view key(size_t i) const
	{
		return std::string_view(keys_).substr(places_[i].key, ops_[i].key_len);
	}
	/* Returns the result of operation @i, once the batch is complete. */
	const struct kvblk_result &operator[](size_t i) const
	{
		return results_[i];
	}
	std::error_code error(size_t i) const
	{
		return result_error(results_[i].res);
	}
};

/* The leading blocks of a chain, as in struct kvblk_prefix. */
struct Prefix {
	unsigned int nr_leading = 0;
	Lease lease;
};

/* An open pool. */
class Pool {
	Handle kv_;

	std::error_code take(int err, struct kvblk *kv)
	{
		if (!err)
			kv_.reset(kv, kvblk_close);
		return call_error(err);
	}
	std::error_code take(int err, struct kvblk_mem *mem, Memory &memory) const
	{
		if (!err)
			memory.mem_ = { mem, Memory::Unregister{ kv_ } };
		return call_error(err);
	}

public:
	Pool() = default;
	Pool(Pool &&) = default;
	Pool &operator=(Pool &&) = default;

	std::error_code open(const std::string &pool, unsigned int flags = 0)
	{
		struct kvblk *kv = nullptr;
		const int err = kvblk_open(pool.c_str(), flags, &kv);

		return take(err, kv);
	}
	/* If the call succeeds, the pool owns the descriptor. */
	std::error_code open_fd(int fd)
	{
		struct kvblk *kv = nullptr;
		const int err = kvblk_open_fd(fd, &kv);

		return take(err, kv);
	}
	explicit operator bool() const
	{
		return !!kv_;
	}
	struct kvblk *get() const
	{
		return kv_.get();
	}
	const Handle &handle() const
	{
		return kv_;
	}
	std::error_code info(struct kvblk_info &info) const
	{
		return call_error(kvblk_get_info(get(), &info, sizeof(info)));
	}

	/* Register memory of the caller. */
	std::error_code add(void *addr, size_t len, Memory &memory,
			    const struct kvblk_mem_options *options = nullptr) const
	{
		struct kvblk_mem *mem = nullptr;
		const int err = kvblk_mem_register(get(), addr, len, options, &mem);

		return take(err, mem, memory);
	}
	/* Allocate memory: @from as for kvblk_mem_alloc(), such as "host" or "cuda:0". */
	std::error_code alloc(const std::string &from, size_t len, Memory &memory,
			      const struct kvblk_mem_options *options = nullptr) const
	{
		struct kvblk_mem *mem = nullptr;
		const int err = kvblk_mem_alloc(get(), from.c_str(), len, options, &mem);

		return take(err, mem, memory);
	}

	/* One block, from and to memory of the process unless the options say otherwise. */
	std::error_code put(std::string_view key, const void *data, size_t len,
			    const struct kvblk_put_options *options = nullptr) const
	{
		return result_error(kvblk_put(get(), key.data(), key.size(), data, len, options));
	}
	/* @len: in: size of @buf; out: as for kvblk_get() */
	std::error_code get(std::string_view key, void *buf, size_t &len,
			    const struct kvblk_get_options *options = nullptr) const
	{
		return result_error(kvblk_get(get(), key.data(), key.size(), buf, &len, options));
	}
	std::error_code remove(std::string_view key) const
	{
		return result_error(kvblk_delete(get(), key.data(), key.size()));
	}
	std::error_code exists(std::string_view key, uint32_t *size = nullptr) const
	{
		return result_error(kvblk_exists(get(), key.data(), key.size(), size));
	}

	/* Run a batch and wait. Returns the error of the whole call; each result has its own. */
	std::error_code submit(Batch &batch, unsigned int flags = 0) const
	{
		const std::error_code error = batch.seal();

		return error ? error : call_error(kvblk_submit(get(), batch.ops(), batch.size(),
							       batch.results(), flags));
	}

	/*
	 * Look up many blocks, without I/O: @sizes gets the length of each, 0 if there is no
	 * such block. More keys than a lookup of the pool takes are looked up in several.
	 */
	std::error_code lookup(const std::vector<std::string> &keys,
			       std::vector<uint32_t> &sizes) const
	{
		std::vector<uint32_t> found(keys.size());
		struct kvblk_info limits;
		std::error_code error = info(limits);

		for (size_t first = 0, nr; !error && first < keys.size(); first += nr) {
			auto lookup = sized<struct kvblk_lookup>();
			std::vector<uint16_t> lens;
			std::string packed;

			nr = std::min<size_t>(keys.size() - first, std::max(limits.lookup_max, 1u));
			for (size_t i = first; i < first + nr; i++) {
				/* or else the length would be cut to 16 bits */
				if (keys[i].size() > KVBLK_KEY_MAX)
					return call_error(-EINVAL);
				packed += keys[i];
				lens.push_back(static_cast<uint16_t>(keys[i].size()));
			}
			lookup.nr_keys = static_cast<uint32_t>(nr);
			lookup.keys = reinterpret_cast<uintptr_t>(packed.data());
			lookup.key_lens = reinterpret_cast<uintptr_t>(lens.data());
			lookup.sizes = reinterpret_cast<uintptr_t>(&found[first]);
			error = call_error(kvblk_lookup_keys(get(), &lookup, sizeof(lookup)));
		}
		if (!error)
			sizes = std::move(found);
		return error;
	}

	/* Count leading blocks: @keys are packed one behind the other, each of @key_len bytes. */
	std::error_code lookup_prefix(std::string_view keys, size_t key_len, unsigned int lease_ms,
				      Prefix &prefix) const
	{
		struct kvblk_prefix found = sized<struct kvblk_prefix>();
		/* first, because without memory nobody would release the lease */
		std::unique_ptr<Lease::Held> held(new Lease::Held{ kv_, 0, 0 });
		const size_t nr = key_len ? keys.size() / key_len : 0;
		const int err = nr > KVBLK_LOOKUP_MAX ? -EINVAL :
			kvblk_lookup_prefix(get(), keys.data(), key_len,
					    static_cast<unsigned int>(nr), lease_ms, &found);

		prefix.nr_leading = err ? 0 : found.nr_leading;
		prefix.lease.reset();
		if (!err && found.lease) {
			held->lease = found.lease;
			held->end_ns = found.lease_end_ns;
			prefix.lease.held_ = std::move(held);
		}
		return call_error(err);
	}
};

/* Batches in flight while the caller does other work. */
class Queue {
	struct State {
		const Handle pool;
		struct kvblk_queue *queue = nullptr;
		std::mutex lock;
		/* protected by lock */
		std::unordered_map<Batch *, std::unique_ptr<Batch>> batches;

		explicit State(Handle handle) : pool(std::move(handle))
		{
		}
		~State()
		{
			/* before the batches, because it waits until their memory is quiet */
			kvblk_queue_destroy(queue);
		}

		std::unique_ptr<Batch> remove(Batch *batch)
		{
			const std::lock_guard<std::mutex> guard(lock);
			const auto at = batches.find(batch);
			auto found = std::move(at->second);

			batches.erase(at);
			return found;
		}
	};

	std::unique_ptr<State> state_;

public:
	/* @options: as for kvblk_queue_create() */
	std::error_code create(const Pool &pool, const struct kvblk_queue_options *options = nullptr)
	{
		auto state = std::make_unique<State>(pool.handle());
		const int err = kvblk_queue_create(pool.get(), options, &state->queue);

		if (!err)
			state_ = std::move(state);
		return call_error(err);
	}
	explicit operator bool() const
	{
		return !!state_;
	}
	/*
	 * For the calls of kvblk.h. Submit and wait either by those or by submit() and wait(), not by
	 * both.
	 */
	struct kvblk_queue *get() const
	{
		return state_ ? state_->queue : nullptr;
	}
	/* Destroy the queue and the batches in flight, once no device uses their memory. */
	void reset()
	{
		state_.reset();
	}

	/*
	 * Submit a batch. If the call succeeds, the queue owns the batch until wait() returns it;
	 * otherwise @batch is unchanged. Returns resource_unavailable_try_again if the queue is
	 * full, and others of kvblk_queue_submit().
	 */
	std::error_code submit(std::unique_ptr<Batch> &batch, unsigned int flags = 0) const
	{
		Batch *const b = batch.get();
		std::error_code error = b->seal();

		if (error)
			return error;
		b->nr_running_ = b->size();
		{
			/* before the submission, because another thread may wait for it */
			const std::lock_guard<std::mutex> guard(state_->lock);

			/* not emplace(), which loses the batch without memory */
			state_->batches[b] = std::move(batch);
		}
		error = call_error(kvblk_queue_submit(get(), b->ops(), b->size(), flags, b));
		if (error)
			batch = state_->remove(b);
		return error;
	}
	/* Cancel a batch that wait() has not returned, by its address before submit(). */
	std::error_code cancel(const Batch *batch) const
	{
		return call_error(kvblk_queue_cancel(get(), const_cast<Batch *>(batch)));
	}

	/*
	 * Append complete batches to @done: wait until there is one, until @deadline_ns, or until
	 * nothing is in flight; with @block false not at all.
	 */
	std::error_code wait(std::vector<std::unique_ptr<Batch>> &done, uint64_t deadline_ns = 0,
			     bool block = true) const
	{
		struct kvblk_completion completions[32];
		const size_t before = done.size();
		int nr;

		/* first, because a completion is returned only once */
		if (done.capacity() - before < std::size(completions))
			done.reserve(2 * before + std::size(completions));
		do {
			nr = kvblk_queue_wait(get(), completions, 32, block, deadline_ns);
			for (int i = 0; i < nr; i++) {
				const struct kvblk_completion &c = completions[i];
				auto *const batch = static_cast<Batch *>(c.tag);

				batch->results_[c.index] = { c.cookie, c.res, c.flags, c.value_len, 0,
							     c.layout_tag, c.caller_tag };
				/* other threads may have written other results */
				if (batch->nr_running_.fetch_sub(1, std::memory_order_acq_rel) == 1)
					done.push_back(state_->remove(batch));
			}
		} while (nr > 0 && done.size() == before);
		return call_error(nr);
	}
	/* Returns a descriptor that is readable while wait() has something to do. */
	int event_fd() const
	{
		return kvblk_queue_eventfd(get());
	}
};

} // namespace libkvblk

#endif
