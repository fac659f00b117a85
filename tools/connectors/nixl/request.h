/* SPDX-License-Identifier: MIT */
/*
 * A transfer: what prepXfer() makes, postXfer() starts any number of times, checkXfer()
 * asks and releaseReqH() lets go.
 *
 * Descriptors become operations once. Those that are neighbors in the same object, or in
 * the same block of a volume, become one operation with several pieces. Operations are
 * dealt out to jobs, which threads of libkvblk run (kvblk_async_submit()).
 *
 * Rule: from a post until its last job is over, the request is the workers'. If it is
 * released meanwhile, the last of them frees it.
 */
#ifndef KVBLK_NIXL_REQUEST_H
#define KVBLK_NIXL_REQUEST_H

#include <atomic>
#include <memory>
#include <string>

#include "flights.h"

namespace kvblk_nixl {

/* Of an engine, for its requests; constant after its constructor. */
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
	/* With why it can't be done in @why, and NULL: a status below 0. */
	static nixl_status_t make(const Context &context, nixl_xfer_op_t direction,
				  const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
				  uint64_t cookie, std::unique_ptr<Request> &request, std::string &why);

	nixl_status_t post();
	nixl_status_t check() const;
	/* The caller's pointer is not good any more. Never waits. */
	void release();

	/* Of one descriptor, of a request that is over. */
	nixl_status_t descriptor(size_t i) const;
	size_t nr_descriptors() const
	{
		return nr_descs_;
	}

private:
	enum class State {
		Idle,	/* over, or never posted: the caller's */
		Flying,	/* the workers', who leave it Idle */
		Orphan,	/* the workers', who free it */
	};

	/* Bytes of an object, or of a block of a volume. */
	struct Target {
		const PlaceMD *place;
		uint64_t volume, block;
		uint64_t offset;
	};

	/* What the kernel's operation does not say. */
	struct Wish {
		uint32_t length;	/* bytes to come or to go */
		bool whole;	/* they are all that the block has */
	};

	/* The operations that a descriptor takes part in. */
	struct Span {
		uint32_t first, nr;
	};

	struct Job {
		struct kvblk_job job;	/* the first, for the callbacks */
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

	/* one allocation, and what lies in it */
	std::unique_ptr<std::byte[]> room_;
	struct kvblk_op *ops_ = nullptr;
	struct kvblk_result *results_ = nullptr;
	Wish *wishes_ = nullptr;
	struct kvblk_piece *pieces_ = nullptr;
	Span *spans_ = nullptr;
	Job *jobs_ = nullptr;
	struct kvblk_op *again_ = nullptr;	/* overwrite_: for replace() */
	struct kvblk_result *again_results_ = nullptr;
	uint32_t *again_of_ = nullptr;
	uint8_t *keys_ = nullptr;
	uint32_t nr_ops_ = 0, nr_pieces_ = 0, nr_jobs_ = 0;
	size_t nr_descs_ = 0, keys_len_ = 0;

	/* while it is planned: of the last operation, and of the last piece */
	Target target_ = {};
	const Memory *last_from_ = nullptr;

	std::atomic<State> state_{ State::Idle };
	std::atomic<nixl_status_t> status_{ NIXL_ERR_NOT_POSTED };
	std::atomic<uint32_t> running_{ 0 };	/* jobs */
};

} // namespace kvblk_nixl

#endif
