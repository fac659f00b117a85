/* SPDX-License-Identifier: MIT */
/*
 * The requests that are in flight, and the memory that they use.
 *
 * Rule: memory is not given back, and the pool is not closed, while a request in flight
 * uses it. Whoever waits for that cancels, and again until all is over, for a worker may
 * hand its batch to the kernel just after a cancel looked for it.
 */
#ifndef KVBLK_NIXL_FLIGHTS_H
#define KVBLK_NIXL_FLIGHTS_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "places.h"

namespace kvblk_nixl {

/* Of one request, a part of it; put into the list without allocating. */
struct Flight {
	uint64_t cookie = 0;
	std::atomic<bool> canceled{ false };	/* workers begin nothing more */
	std::vector<std::shared_ptr<Memory>> memory;	/* each once */
	Flight *next = nullptr, *prev = nullptr;	/* under Flights' lock */

	bool uses(const Memory *wanted) const
	{
		return std::any_of(memory.begin(), memory.end(),
				   [=](const auto &m) { return m.get() == wanted; });
	}
};

class Flights {
	static constexpr std::chrono::milliseconds AGAIN{ 20 };

	struct kvblk *kv_;
	std::mutex lock_;	/* protects what follows, and what says so */
	std::condition_variable ended_;	/* a flight */
	Flight *first_ = nullptr;

	/* With the lock held; NULL: all. */
	void cancel_users(const Memory *memory)
	{
		for (Flight *f = first_; f; f = f->next) {
			if (memory && !f->uses(memory))
				continue;
			f->canceled = true;
			kvblk_cancel(kv_, f->cookie, nullptr);
		}
	}

public:
	explicit Flights(struct kvblk *kv) : kv_(kv)
	{
	}

	/* false: some of its memory is not registered any more */
	bool begin(Flight *flight)
	{
		std::lock_guard<std::mutex> guard(lock_);

		for (const auto &m : flight->memory) {
			if (m->gone)
				return false;
		}
		for (const auto &m : flight->memory)
			m->users++;
		flight->canceled = false;
		flight->prev = nullptr;
		flight->next = first_;
		if (first_)
			first_->prev = flight;
		first_ = flight;
		return true;
	}

	void end(Flight *flight)
	{
		std::lock_guard<std::mutex> guard(lock_);

		for (const auto &m : flight->memory)
			m->users--;
		if (flight->next)
			flight->next->prev = flight->prev;
		(flight->prev ? flight->prev->next : first_) = flight->next;
		ended_.notify_all();
	}

	/* None begins any more that uses it, and those in flight are over. */
	void retire(Memory *memory)
	{
		std::unique_lock<std::mutex> guard(lock_);

		memory->gone = true;
		while (memory->users) {
			cancel_users(memory);
			ended_.wait_for(guard, AGAIN);
		}
	}

	/* All are over. */
	void stop()
	{
		std::unique_lock<std::mutex> guard(lock_);

		while (first_) {
			cancel_users(nullptr);
			ended_.wait_for(guard, AGAIN);
		}
	}
};

} // namespace kvblk_nixl

#endif
