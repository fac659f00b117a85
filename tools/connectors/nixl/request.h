/* SPDX-License-Identifier: MIT */
/*
 * A transfer: created by prepXfer(), started any number of times by postXfer(), queried by
 * checkXfer() and released by releaseReqH().
 *
 * Descriptors are converted to operations once. Neighbors in the same object, or in the same
 * block of a volume, become one operation with several pieces. Operations are distributed over
 * jobs, which threads of libkvblk run (kvblk_async_submit()).
 *
 * Workers own the request from a post until the last job completes. The last worker frees a
 * request that was released meanwhile.
 */
#ifndef KVBLK_NIXL_REQUEST_H
#define KVBLK_NIXL_REQUEST_H

#include <atomic>
#include <memory>
#include <string>

#include "flights.h"

namespace kvblk_nixl {

/* The engine's objects that requests use; constant after the engine's constructor. */
struct Context {
	const Params &params;
	const Keys &keys;
	struct kvblk *kv;
	struct kvblk_async *async;
	Flights &flights;
	unsigned int batch;	/* most operations in a job */
	std::string pool;
};

class Request : public nixlBackendReqH, Flight {
public:
	/* Create a request. On failure returns an error and sets @why. */
	static nixl_status_t make(const Context &context, nixl_xfer_op_t direction,
				  const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
				  uint64_t cookie, std::unique_ptr<Request> &request, std::string &why);

	nixl_status_t post();
	nixl_status_t check() const;
	/* Release the request; invalidates the caller's pointer. Never waits. */
	void release();

	/* Returns the status of one descriptor of a completed request. */
	nixl_status_t descriptor(size_t i) const;
	size_t nr_descriptors() const
	{
		return nr_descs_;
	}

private:
	enum class State {
		Idle,	/* complete or never posted; the caller owns the request */
		Flying,	/* workers own the request, and set Idle at the end */
		Orphan,	/* released; workers own and free the request */
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

	struct Job {
		struct kvblk_job job;	/* first member, for the callbacks */
		Request *request;
		uint32_t first, nr;
	};

	explicit Request(const Context &context, nixl_xfer_op_t direction) :
		context_(context), direction_(direction)
	{
	}

	nixl_status_t plan(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
			   std::string &why);
	nixl_status_t add(size_t desc, const nixlMetaDesc &local, const nixlMetaDesc &remote,
			  std::string &why);
	nixl_status_t add_part(const Target &target, size_t length, const Memory &from,
			       uintptr_t addr, std::string &why);
	bool continues(const Target &target) const;
	void begin_op(const Target &target);
	nixl_status_t finish_op(std::string &why);
	void deal_out();

	static int run_job(struct kvblk *kv, struct kvblk_job *job);
	static void job_done(struct kvblk_job *job);
	int run(struct kvblk *kv, const Job &job);
	int flush() const;
	void replace(struct kvblk *kv, const Job &job);
	void end();
	nixl_status_t status_of(uint32_t i) const;
	void tell(nixl_status_t worst) const;

	const Context &context_;
	const nixl_xfer_op_t direction_;
	bool overwrite_ = false;
	size_t bytes_ = 0;

	/* a single allocation, with the arrays */
	std::unique_ptr<std::byte[]> room_;
	struct kvblk_op *ops_ = nullptr;
	struct kvblk_result *results_ = nullptr;
	Wish *wishes_ = nullptr;
	struct kvblk_piece *pieces_ = nullptr;
	Span *spans_ = nullptr;
	Job *jobs_ = nullptr;
	struct kvblk_op *again_ = nullptr;	/* used by replace() if overwrite_ is set */
	struct kvblk_result *again_results_ = nullptr;
	uint32_t *again_of_ = nullptr;
	uint8_t *keys_ = nullptr;
	uint32_t nr_ops_ = 0, nr_pieces_ = 0, nr_jobs_ = 0;
	size_t nr_descs_ = 0, keys_len_ = 0;

	/* during planning: target of the last operation, memory of the last piece */
	Target target_ = {};
	const Memory *last_from_ = nullptr;

	std::atomic<State> state_{ State::Idle };
	std::atomic<nixl_status_t> status_{ NIXL_ERR_NOT_POSTED };
	std::atomic<uint32_t> running_{ 0 };	/* number of unfinished jobs */
};

} // namespace kvblk_nixl

#endif
