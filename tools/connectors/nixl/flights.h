/* SPDX-License-Identifier: MIT */
/*
 * The requests in flight, and the memory in use.
 *
 * Memory stays registered, and the pool open, while a request in flight uses either. A
 * waiter cancels repeatedly until all requests complete, because a worker may submit its batch
 * to the kernel just after a cancel.
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

/* The part of a request that is in the list; insertion allocates nothing. */
struct Flight {
	uint64_t cookie = 0;
	std::atomic<bool> canceled{ false };	/* workers submit no more batches */
	std::vector<std::shared_ptr<Memory>> memory;	/* without duplicates */
	Flight *next = nullptr, *prev = nullptr;	/* protected by Flights::lock_ */

	bool uses(const Memory *wanted) const
	{
		return std::any_of(memory.begin(), memory.end(),
				   [=](const auto &m) { return m.get() == wanted; });
	}
};

class Flights {
	static constexpr std::chrono::milliseconds AGAIN{ 20 };

	struct kvblk *kv_;
	std::mutex lock_;	/* protects the fields below, and those marked with Flights::lock_ */
	std::condition_variable ended_;	/* a request has ended */
	Flight *first_ = nullptr;

	/* Cancel the requests that use @memory, or all if NULL. Called with the lock held. */
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

	/* Add a request. Returns false if some of its memory is being deregistered. */
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

	/* Refuse new requests that use @memory, and wait for those in flight. */
	void retire(Memory *memory)
	{
		std::unique_lock<std::mutex> guard(lock_);

		memory->gone = true;
		while (memory->users) {
			cancel_users(memory);
			ended_.wait_for(guard, AGAIN);
		}
	}

	/* Cancel all requests and wait for them. */
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
