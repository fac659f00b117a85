/* SPDX-License-Identifier: MIT */
/*
 * The requests in flight, their operations in the queue, and the memory in use.
 *
 * Memory stays registered, and the pool open, while a request in flight uses either. A
 * waiter cancels repeatedly until all requests complete, because operations may be submitted
 * just after a cancel.
 */
#ifndef KVBLK_NIXL_FLIGHTS_H
#define KVBLK_NIXL_FLIGHTS_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "places.h"

namespace kvblk_nixl {

/* The part of a request that is in the list; insertion allocates nothing. */
struct Flight {
	std::atomic<bool> canceled{ false };	/* no more operations are submitted */
	std::vector<std::shared_ptr<Memory>> memory;	/* without duplicates */
	Flight *next = nullptr, *prev = nullptr;	/* protected by Flights::lock_ */

	virtual ~Flight() = default;

	/* An operation has completed; called in the order of completion. */
	virtual void completed(const struct kvblk_completion &completion) = 0;

	bool uses(const Memory *wanted) const
	{
		return std::any_of(memory.begin(), memory.end(),
				   [=](const auto &m) { return m.get() == wanted; });
	}
};

/* Operations that are submitted together; the queue copies them. */
struct Submission {
	Flight *flight = nullptr;
	const struct kvblk_op *ops = nullptr;
	uint32_t nr = 0;
	Submission *next = nullptr;	/* protected by Flights::lock_ */
};

class Flights {
	static constexpr std::chrono::milliseconds AGAIN{ 20 };

	struct kvblk_queue *const queue_;
	std::mutex lock_;	/* protects the fields below, and those marked with Flights::lock_ */
	std::condition_variable ended_;	/* a request has ended */
	std::condition_variable submitted_;	/* nr_submitted_ or stop_ was set */
	Flight *first_ = nullptr;
	Submission *waiting_ = nullptr, **last_waiting_ = &waiting_;	/* for room in the queue */
	size_t nr_submitted_ = 0;	/* operations in the queue */
	bool stop_ = false;
	std::thread collector_;	/* constant */

	/* Cancel the requests that use @memory, or all if NULL. Called with the lock held. */
	void cancel_users(const Memory *memory)
	{
		for (Flight *f = first_; f; f = f->next) {
			if (memory && !f->uses(memory))
				continue;
			f->canceled = true;
			cancel(f);
		}
	}

	/* Complete operations that were not submitted. */
	static void fail(const Submission &submission, int err)
	{
		const Submission s = submission;	/* the last completion may free the original */

		for (uint32_t i = 0; i < s.nr; i++) {
			struct kvblk_completion completion = {};

			completion.cookie = s.ops[i].cookie;
			completion.res = err;
			completion.left = s.nr - 1 - i;
			s.flight->completed(completion);
		}
	}

	/* Submit what waits, as far as the queue has room. Called with the lock held. */
	void submit_waiting(std::unique_lock<std::mutex> &guard)
	{
		while (Submission *s = waiting_) {
			const int err = s->flight->canceled ? -ECANCELED :
				kvblk_queue_submit(queue_, s->ops, s->nr, 0, s->flight);

			/* full, so there will be a completion, after which this is called again */
			if (err == -EAGAIN)
				break;
			waiting_ = s->next;
			if (!waiting_)
				last_waiting_ = &waiting_;
			if (!err) {
				nr_submitted_ += s->nr;
				submitted_.notify_one();
				continue;
			}
			guard.unlock();
			fail(*s, err);
			guard.lock();
		}
	}

	void collect()
	{
		struct kvblk_completion done[64];
		std::unique_lock<std::mutex> guard(lock_);

		for (;;) {
			submitted_.wait(guard, [this] { return nr_submitted_ || stop_; });
			if (!nr_submitted_)
				return;
			guard.unlock();
			const int nr = kvblk_queue_wait(queue_, done, std::size(done), 1, 0);

			for (int i = 0; i < nr; i++)
				static_cast<Flight *>(done[i].tag)->completed(done[i]);
			guard.lock();
			nr_submitted_ -= static_cast<size_t>(std::max(nr, 0));
			submit_waiting(guard);
		}
	}

public:
	/* Throws std::system_error. The queue outlives the object. */
	explicit Flights(struct kvblk_queue *queue) : queue_(queue)
	{
		sigset_t all, before;

		/* signals are for the threads of the runtime */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		try {
			collector_ = std::thread([this] { collect(); });
		} catch (...) {
			pthread_sigmask(SIG_SETMASK, &before, nullptr);
			throw;
		}
		pthread_sigmask(SIG_SETMASK, &before, nullptr);
	}

	/* Cancels all requests and waits for them. */
	~Flights()
	{
		std::unique_lock<std::mutex> guard(lock_);

		while (first_) {
			cancel_users(nullptr);
			ended_.wait_for(guard, AGAIN);
		}
		stop_ = true;
		submitted_.notify_one();
		guard.unlock();
		collector_.join();
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

	/* Submit operations, now or when the queue has room for them. */
	void submit(Submission *submission)
	{
		std::unique_lock<std::mutex> guard(lock_);

		submission->next = nullptr;
		*last_waiting_ = submission;
		last_waiting_ = &submission->next;
		submit_waiting(guard);
	}

	/* Cancel the operations of a request that are in the queue. */
	void cancel(Flight *flight)
	{
		kvblk_queue_cancel(queue_, flight);
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
};

} // namespace kvblk_nixl

#endif
