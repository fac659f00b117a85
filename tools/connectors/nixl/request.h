/* SPDX-License-Identifier: MIT */
/*
 * A transfer: created by prepXfer(), started any number of times by postXfer(), queried by
 * checkXfer() and released by releaseReqH().
 *
 * Descriptors are converted to operations once. Neighbors in the same object, or in the same
 * block of a volume, become one operation with several pieces. Operations are distributed over
 * jobs, which threads of a queue run.
 *
 * The jobs own the request from a post until the last one completes. That one frees a request
 * that was released meanwhile.
 */
#ifndef KVBLK_NIXL_REQUEST_H
#define KVBLK_NIXL_REQUEST_H

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "flights.h"

namespace kvblk_nixl {

/* The engine's objects that requests use. */
struct Context {
	const Params &params;
	const Keys &keys;
	unsigned int batch;	/* most operations in a job */
	std::string pool;
	Flights flights;	/* last, because its destructor waits for requests */
};

class Request : public nixlBackendReqH, Flight {
public:
	/* Create a request. On failure returns an error and sets @why. */
	static nixl_status_t make(Context &context, nixl_xfer_op_t direction,
				  const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
				  std::unique_ptr<Request> &request, std::string &why);

	nixl_status_t post();
	nixl_status_t check() const;
	/* Release the request; invalidates the caller's pointer. Does not wait for the pool. */
	void release();

	/* Returns the status of one descriptor of a completed request. */
	nixl_status_t descriptor(size_t i) const;
	size_t nr_descriptors() const
	{
		return spans_.size();
	}

private:
	enum class State {
		Idle,	/* complete or never posted; the caller owns the request */
		Flying,	/* jobs own the request; the last one sets Idle */
		Orphan,	/* released; jobs own the request; the last one frees it */
	};

	/* Position in an object, or in a block of a volume. */
	struct Target {
		const PlaceMD *place;
		uint64_t volume, block;
		uint64_t offset;
	};

	/* Expected result of an operation. */
	struct Wish {
		uint32_t length;	/* bytes to transfer */
		bool whole;	/* the bytes are the whole block */
	};

	/* The operations of a descriptor. */
	struct Span {
		uint32_t first, nr;
	};

	/*
	 * What a job does. A block can't be changed in place: to replace it, delete the old one
	 * durably, then put again. Gets may miss meanwhile. No get finds the old block after
	 * the new one, or after a declined write.
	 */
	enum class Stage {
		First,	/* gets, or puts */
		Delete,	/* blocks that are replaced, or whose put was declined */
		Again,	/* puts, after the old block was deleted */
	};

	/* A range of the operations. */
	struct Job {
		uint32_t first, nr;
		Stage stage;
		Submission submission;	/* of the stage */
	};

	explicit Request(Context &context, nixl_xfer_op_t direction) :
		context_(context), direction_(direction)
	{
	}

	nixl_status_t plan(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
			   std::string &why);
	nixl_status_t add(const nixlMetaDesc &local, const nixlMetaDesc &remote, std::string &why);
	nixl_status_t add_part(const Target &target, size_t length, const Memory &from,
			       uintptr_t addr, std::string &why);
	bool continues(const Target &target);
	void begin_op(const Target &target);
	nixl_status_t finish_op(std::string &why);
	void deal_out();

	void completed(const struct kvblk_completion &completion) override;
	void submit(Job &job, const struct kvblk_op *ops, uint32_t nr);
	bool next_stage(Job &job);
	void end();
	nixl_status_t status_of(uint32_t i) const;
	void tell(nixl_status_t worst);

	Context &context_;
	const nixl_xfer_op_t direction_;
	bool overwrite_ = false;
	size_t bytes_ = 0;

	libkvblk::Batch batch_;	/* the operations; their cookies are job << 32 | operation */
	std::vector<Wish> wishes_;	/* of each operation */
	std::vector<Span> spans_;	/* of each descriptor */
	std::vector<Job> jobs_;
	std::vector<struct kvblk_op> again_;	/* of later stages; each job has its range */

	Target target_ = {};	/* during planning: of the last operation */

	std::atomic<State> state_{ State::Idle };
	std::atomic<nixl_status_t> status_{ NIXL_ERR_NOT_POSTED };
	std::atomic<size_t> running_{ 0 };	/* number of unfinished jobs */
};

} // namespace kvblk_nixl

#endif
