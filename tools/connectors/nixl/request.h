/* SPDX-License-Identifier: MIT */
/*
 * A transfer: created by prepXfer(), started any number of times by postXfer(), queried by
 * checkXfer() and released by releaseReqH().
 *
 * Descriptors are converted to operations once. Neighbors in the same object, or in the same
 * block of a volume, become one operation with several pieces. Operations are submitted in parts,
 * which threads of a queue run.
 *
 * The operations own the request from a post until the last one completes. That one frees a
 * request that was released meanwhile.
 */
#ifndef KVBLK_NIXL_REQUEST_H
#define KVBLK_NIXL_REQUEST_H

#include <atomic>
#include <string>
#include <vector>

#include "flights.h"

namespace kvblk_nixl {

/* Returns NIXL's status for the result of an operation, 0 or -errno. */
nixl_status_t status_of(int res);

/* The engine's objects for requests. */
struct Context {
	const Params &params;
	const Keys &keys;
	unsigned int batch;	/* most operations in a submission */
	std::string pool;
	Flights flights;	/* last, because its destructor waits for requests */
};

/* Why there can't be such a transfer. */
struct Refused {
	nixl_status_t status;
	std::string why;
};

class Request : public nixlBackendReqH, Flight {
public:
	/* Throws Refused, std::bad_alloc. */
	Request(Context &context, nixl_xfer_op_t direction, const nixl_meta_dlist_t &local,
		const nixl_meta_dlist_t &remote);

	nixl_status_t post();
	nixl_status_t check() const;
	/* Release the request; invalidates the caller's pointer. Does not wait for the pool. */
	void release();

	/* Returns the status of one descriptor of a completed request. */
	nixl_status_t descriptor(size_t i) const;

private:
	enum class State {
		Idle,	/* complete or never posted; the caller owns the request */
		Flying,	/* operations own the request; the last one sets Idle */
		Orphan,	/* released; operations own the request; the last one frees it */
	};

	/* The operations of a descriptor. */
	struct Span {
		uint32_t first, end;
	};

	/*
	 * Steps of a post. A block can't be changed in place: to replace it, delete the old one
	 * durably, then put again. Gets may miss meanwhile. No get finds the old block after
	 * the new one, or after a declined write.
	 */
	enum class Stage {
		First,	/* gets, or puts */
		Delete,	/* replaced blocks, and blocks with a declined put */
		Again,	/* puts, after the old block was deleted */
	};

	void add(const nixlMetaDesc &local, const nixlMetaDesc &remote);
	void extend(const PlaceMD &place, uint64_t at, size_t length);
	void begin_op(const std::string &key);
	void finish_op();

	void submit(const struct kvblk_op *ops, uint32_t nr);
	void completed(uint64_t cookie, int res, uint32_t flags) override;
	bool next_stage();
	void end();
	int failure(uint32_t i) const;
	int worst(uint32_t first, uint32_t end) const;
	void tell(int err);

	Context &context_;
	const nixl_xfer_op_t direction_;
	const bool overwrite_;

	libkvblk::Batch batch_;	/* the operations; their cookies are their numbers */
	std::vector<uint32_t> lengths_;	/* bytes for each operation to transfer */
	std::vector<Span> spans_;	/* of each descriptor */
	std::vector<Submission> parts_;	/* of the stage */
	std::vector<struct kvblk_op> again_;	/* the operations of later stages */

	/* during planning, of the last operation: */
	const PlaceMD *place_ = nullptr;
	uint64_t offset_ = 0;	/* in the object, or in the block of a volume */
	uint64_t end_ = 0;	/* where the next byte would be, in the object or volume */

	std::atomic<State> state_{ State::Idle };
	std::atomic<nixl_status_t> status_{ NIXL_ERR_NOT_POSTED };
	Stage stage_ = Stage::First;
	std::atomic<size_t> running_{ 0 };	/* incomplete operations of the stage */
};

} // namespace kvblk_nixl

#endif
