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
#include <set>
#include <sys/queue.h>
#include <system_error>

#include "places.h"

namespace kvblk_nixl {

/* The part of a request that is in the list; insertion allocates nothing. */
struct Flight {
	std::atomic<bool> canceled{ false };	/* no more operations are submitted */
	std::set<std::shared_ptr<Memory>> memory;
	TAILQ_ENTRY(Flight) flying;	/* protected by Flights::lock_ */

	virtual ~Flight() = default;

	/* An operation has completed; called in the order of completion. */
	virtual void completed(uint64_t cookie, int res, uint32_t flags) = 0;
};

/* Operations submitted together; the queue copies the array. */
struct Submission {
	Flight *flight;
	const struct kvblk_op *ops;
	uint32_t nr;
	STAILQ_ENTRY(Submission) waiting;	/* protected by Flights::lock_ */
};

class Flights {
	static constexpr std::chrono::milliseconds AGAIN{ 20 };

	struct kvblk_queue *const queue_;
	std::mutex lock_;	/* protects the fields below, and those marked with Flights::lock_ */
	std::condition_variable ended_;	/* a request has ended */
	std::condition_variable submitted_;	/* nr_submitted_ or stop_ was set */
	TAILQ_HEAD(, Flight) flying_ = TAILQ_HEAD_INITIALIZER(flying_);
	STAILQ_HEAD(, Submission) waiting_ = STAILQ_HEAD_INITIALIZER(waiting_);	/* for room */
	size_t nr_submitted_ = 0;	/* operations in the queue */
	bool stop_ = false;
	pthread_t collector_;	/* constant */

	/* Cancel the requests that use @memory, or all if NULL, and wait for them. */
	void cancel_users(std::unique_lock<std::mutex> &guard,
			  const std::shared_ptr<Memory> &memory)
	{
		for (bool found = true; found;) {
			Flight *f;

			found = false;
			TAILQ_FOREACH(f, &flying_, flying) {
				if (memory && !f->memory.count(memory))
					continue;
				f->canceled = true;
				cancel(f);
				found = true;
			}
			if (found)
				ended_.wait_for(guard, AGAIN);
		}
	}

	/* Complete operations without a submission. */
	static void fail(const Submission *s, int err)
	{
		/* by a separate count, because the last completion may free the submission */
		for (uint32_t left = s->nr; left--;)
			s->flight->completed(s->ops[left].cookie, err, 0);
	}

	/* Submit waiting operations, as far as the queue has room. Called with the lock held. */
	void submit_waiting(std::unique_lock<std::mutex> &guard)
	{
		while (Submission *s = STAILQ_FIRST(&waiting_)) {
			/* read and unlink first: once submitted, the request may reuse @s */
			const uint32_t nr = s->nr;

			STAILQ_REMOVE_HEAD(&waiting_, waiting);
			const int err = s->flight->canceled ? -ECANCELED :
				kvblk_queue_submit(queue_, s->ops, nr, 0, s->flight);

			/* full: the next completion submits again */
			if (err == -EAGAIN) {
				STAILQ_INSERT_HEAD(&waiting_, s, waiting);
				break;
			}
			if (!err) {
				nr_submitted_ += nr;
				submitted_.notify_one();
				continue;
			}
			guard.unlock();
			fail(s, err);
			guard.lock();
		}
	}

	/* Thread for completions, until stop_. */
	static void *collect(void *flights)
	{
		auto *const self = static_cast<Flights *>(flights);
		std::unique_lock<std::mutex> guard(self->lock_);
		struct kvblk_completion done[64];

		for (;;) {
			while (!self->nr_submitted_ && !self->stop_)
				self->submitted_.wait(guard);
			if (!self->nr_submitted_)
				return nullptr;
			guard.unlock();
			const int nr = kvblk_queue_wait(self->queue_, done, std::size(done), 1, 0);

			for (int i = 0; i < nr; i++)
				static_cast<Flight *>(done[i].tag)
					->completed(done[i].cookie, done[i].res, done[i].flags);
			guard.lock();
			self->nr_submitted_ -= static_cast<size_t>(std::max(nr, 0));
			self->submit_waiting(guard);
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
		const int err = pthread_create(&collector_, nullptr, collect, this);

		pthread_sigmask(SIG_SETMASK, &before, nullptr);
		if (err)
			throw std::system_error(err, std::generic_category(), "no thread");
	}

	/* Cancels all requests and waits for them. */
	~Flights()
	{
		std::unique_lock<std::mutex> guard(lock_);

		cancel_users(guard, nullptr);
		stop_ = true;
		submitted_.notify_one();
		guard.unlock();
		pthread_join(collector_, nullptr);
	}

	/* Add a request. Returns false if some of its memory is being deregistered. */
	bool begin(Flight *flight)
	{
		std::lock_guard<std::mutex> guard(lock_);

		for (const auto &m : flight->memory) {
			if (m->gone)
				return false;
		}
		flight->canceled = false;
		TAILQ_INSERT_HEAD(&flying_, flight, flying);
		return true;
	}

	void end(Flight *flight)
	{
		std::lock_guard<std::mutex> guard(lock_);

		TAILQ_REMOVE(&flying_, flight, flying);
		ended_.notify_all();
	}

	/* Submit operations, now or as soon as the queue has room. */
	void submit(Submission *submission)
	{
		std::unique_lock<std::mutex> guard(lock_);

		STAILQ_INSERT_TAIL(&waiting_, submission, waiting);
		submit_waiting(guard);
	}

	/* Cancel a request's operations in the queue. */
	void cancel(Flight *flight)
	{
		kvblk_queue_cancel(queue_, flight);
	}

	/* Refuse new requests that use @memory, and wait for those in flight. */
	void retire(const std::shared_ptr<Memory> &memory)
	{
		std::unique_lock<std::mutex> guard(lock_);

		memory->gone = true;
		cancel_users(guard, memory);
	}
};

} // namespace kvblk_nixl

#endif
