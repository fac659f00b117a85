// SPDX-License-Identifier: MIT
#include "request.h"

#include <algorithm>
#include <chrono>

#include "common/nixl_log.h"

namespace kvblk_nixl {

namespace {

constexpr size_t PART_BYTES = 4u << 20;	/* smaller parts are not split among threads */
constexpr std::chrono::seconds WARN_AGAIN{ 10 };

using std::chrono::steady_clock;	/* CLOCK_MONOTONIC */

/* Results of operations as NIXL's statuses. A request reports its last one in this order. */
const struct Meaning {
	int res;
	nixl_status_t status;
} meanings[] = {
	{ 0, NIXL_SUCCESS },
	{ -ENOENT, NIXL_ERR_NOT_FOUND },
	{ -ENOBUFS, NIXL_ERR_NOT_ALLOWED },
	{ -EDQUOT, NIXL_ERR_NOT_ALLOWED },
	{ -ENOSPC, NIXL_ERR_NOT_ALLOWED },
	{ -EEXIST, NIXL_ERR_MISMATCH },
	{ -EMSGSIZE, NIXL_ERR_MISMATCH },
	{ -ERANGE, NIXL_ERR_MISMATCH },
	{ -ETIME, NIXL_ERR_CANCELED },
	{ -ECANCELED, NIXL_ERR_CANCELED },
	{ -EFBIG, NIXL_ERR_INVALID_PARAM },
	{ -EINVAL, NIXL_ERR_INVALID_PARAM },
};

/* Returns the row of a result, or the end of the table. */
const Meaning *meaning(int res)
{
	return std::find_if(std::begin(meanings), std::end(meanings),
			    [=](const Meaning &m) { return m.res == res; });
}

std::string hex(std::string_view bytes)
{
	static const char digits[] = "0123456789abcdef";
	std::string text;

	for (unsigned char c : bytes) {
		text += digits[c >> 4];
		text += digits[c & 15];
	}
	return text;
}

/* Rate limit of the log of failures. */
bool may_warn()
{
	static std::atomic<steady_clock::time_point> next;
	const auto now = steady_clock::now();
	auto expected = next.load();

	return now >= expected && next.compare_exchange_strong(expected, now + WARN_AGAIN);
}

} // namespace

nixl_status_t status_of(int res)
{
	const Meaning *row = meaning(res);

	if (row != std::end(meanings))
		return row->status;
	return kvblk_result_action(res) == KVBLK_DO_SKIP ? NIXL_ERR_NOT_ALLOWED : NIXL_ERR_BACKEND;
}

Request::Request(Context &context, nixl_xfer_op_t direction, const nixl_meta_dlist_t &local,
		 const nixl_meta_dlist_t &remote) :
	context_(context), direction_(direction),
	overwrite_(direction == NIXL_WRITE &&
		   (remote.getType() == BLK_SEG || context.params.overwrite))
{
	const int nr = local.descCount();
	uint64_t bytes = 0;

	if (!nr || nr != remote.descCount())
		throw Refused{ NIXL_ERR_INVALID_PARAM,
			       "the two sides have " + std::to_string(nr) + " and " +
				       std::to_string(remote.descCount()) + " descriptors" };
	for (int i = 0; i < nr; i++) {
		const auto *md = static_cast<const MemoryMD *>(local[i].metadataP);
		const char *why = nullptr;

		if (!remote[i].metadataP || !md || local[i].len != remote[i].len || !local[i].len)
			why = " is empty, not registered, or of two lengths";
		else if (!md->memory->contains(local[i].addr, local[i].len))
			why = " is not within its memory";
		else if (remote[i].addr + remote[i].len < remote[i].addr)
			why = " goes beyond all offsets";
		if (why)
			throw Refused{ NIXL_ERR_INVALID_PARAM,
				       "descriptor " + std::to_string(i) + why };
		memory.insert(md->memory);
		bytes += local[i].len;
		add(local[i], remote[i]);
	}
	finish_op();
	batch_.seal();
	again_.resize(overwrite_ ? batch_.size() : 0);
	const uint64_t least = (batch_.size() + context.batch - 1) / context.batch;

	/* more parts for long transfers, because the queue's threads do copies and checksums */
	parts_.resize(std::max(least, std::min<uint64_t>(bytes / PART_BYTES, context.params.threads)));
}

/* Plan a descriptor: split it at the blocks of a volume. */
void Request::add(const nixlMetaDesc &local, const nixlMetaDesc &remote)
{
	const auto &place = *static_cast<const PlaceMD *>(remote.metadataP);
	const Memory &from = *static_cast<const MemoryMD *>(local.metadataP)->memory;
	const uint64_t blk_size = context_.params.blk_size;
	uint32_t first = 0;

	for (size_t done = 0, length; done < local.len; done += length) {
		const uint64_t at = remote.addr + done;

		length = local.len - done;
		if (place.type == BLK_SEG)
			length = std::min<size_t>(length, blk_size - at % blk_size);
		extend(place, at, length);
		if (from.mem)
			batch_.piece(from.mem, local.addr + done - from.addr, length);
		else
			batch_.piece(reinterpret_cast<void *>(local.addr + done), length);
		if (!done)
			first = batch_.size() - 1;
	}
	spans_.push_back({ first, batch_.size() });
}

/* Add a part to the last operation if it continues that, else begin another operation. */
void Request::extend(const PlaceMD &place, uint64_t at, size_t length)
{
	const Params &params = context_.params;
	const bool is_volume = place.type == BLK_SEG;
	const uint64_t offset = is_volume ? at % params.blk_size : at;
	const bool more = &place == place_ && at == end_ && (!is_volume || offset) &&
			  batch_.last().nr_pieces < KVBLK_PIECES_MAX;

	if (offset > KVBLK_VALUE_MAX || length > KVBLK_VALUE_MAX - (more ? lengths_.back() : 0))
		throw Refused{ NIXL_ERR_INVALID_PARAM, "no object is longer than " +
			       std::to_string(KVBLK_VALUE_MAX) + " bytes" };
	if (!more) {
		if (place_)
			finish_op();
		begin_op(is_volume ? context_.keys.block(place.id, at / params.blk_size) :
				     place.key);
		place_ = &place;
		offset_ = offset;
	}
	lengths_.back() += static_cast<uint32_t>(length);
	end_ = at + length;
}

void Request::begin_op(const std::string &key)
{
	if (direction_ == NIXL_WRITE) {
		batch_.put(key);
		batch_.last().priority = static_cast<uint8_t>(context_.params.priority);
		batch_.last().ttl_s = context_.params.ttl_s;
	} else {
		batch_.get(key);
		if (context_.params.hard_deadline && context_.params.timeout_ms)
			batch_.last().flags = KVBLK_OPF_HARD_DEADLINE;
	}
	batch_.last().cookie = lengths_.size();
	lengths_.push_back(0);
}

/* Complete the last operation: decide whether it covers its whole block. */
void Request::finish_op()
{
	struct kvblk_op &op = batch_.last();
	const bool is_volume = place_->type == BLK_SEG;
	const size_t len = is_volume ? context_.params.blk_size : place_->len;
	const bool is_whole = !offset_ && lengths_.back() == len;

	if (direction_ == NIXL_READ && !is_whole) {
		op.flags |= KVBLK_OPF_PARTIAL;
		op.offset = static_cast<uint32_t>(offset_);
		op.length = lengths_.back();
	}
	if (direction_ == NIXL_WRITE && is_volume && !is_whole)
		throw Refused{ NIXL_ERR_NOT_SUPPORTED,
			       "a volume is written in whole blocks: offset and length must be "
			       "multiples of blk_size=" + std::to_string(len) };
	if (direction_ == NIXL_WRITE && offset_)
		throw Refused{ NIXL_ERR_NOT_SUPPORTED,
			       "an object is written as a whole, in up to " +
				       std::to_string(KVBLK_PIECES_MAX) +
				       " pieces: a write may not begin at byte " +
				       std::to_string(offset_) };
}

nixl_status_t Request::post()
{
	const std::chrono::milliseconds timeout(context_.params.timeout_ms);
	const std::chrono::nanoseconds end = steady_clock::now().time_since_epoch() + timeout;
	const uint64_t deadline = timeout.count() ? static_cast<uint64_t>(end.count()) : 0;

	if (state_.load(std::memory_order_acquire) != State::Idle)
		return NIXL_ERR_REPOST_ACTIVE;
	if (!context_.flights.begin(this)) {
		NIXL_ERROR << "memory of this transfer was deregistered since it was prepared";
		return NIXL_ERR_NOT_FOUND;
	}
	for (uint32_t i = 0; i < batch_.size(); i++)
		batch_.ops()[i].deadline_ns = deadline;
	stage_ = Stage::First;
	state_.store(State::Flying, std::memory_order_release);
	submit(batch_.ops(), batch_.size());
	return NIXL_IN_PROG;
}

/* Submit the operations of a stage. The request may be complete, and freed, afterwards. */
void Request::submit(const struct kvblk_op *ops, uint32_t nr)
{
	const uint64_t nr_parts = std::min<uint64_t>(parts_.size(), nr);
	Submission *part = parts_.data();

	running_.store(nr, std::memory_order_relaxed);
	for (uint64_t i = 0, first = 0, end; i < nr_parts; i++, part++, first = end) {
		end = nr * (i + 1) / nr_parts;
		*part = { this, ops + first, static_cast<uint32_t>(end - first), {} };
		context_.flights.submit(part);
	}
}

nixl_status_t Request::check() const
{
	return state_.load(std::memory_order_acquire) == State::Flying ?
		       NIXL_IN_PROG :
		       status_.load(std::memory_order_relaxed);
}

void Request::release()
{
	State expected = State::Flying;

	canceled = true;
	/* first, because afterwards the last operation may free the request */
	if (state_.load(std::memory_order_acquire) == State::Flying)
		context_.flights.cancel(this);
	if (!state_.compare_exchange_strong(expected, State::Orphan))
		delete this;
}

void Request::completed(uint64_t cookie, int res, uint32_t flags)
{
	struct kvblk_result &result = batch_.results()[cookie];

	/*
	 * After a delete the result of the first put says what is next. The old block is gone
	 * with -EBUSY, too: another put is in flight.
	 */
	if (stage_ != Stage::Delete || (res && res != -ENOENT && res != -EBUSY)) {
		result.res = res;
		result.flags = flags;
	}
	if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1 && !next_stage())
		end();
}

/* Submit the next stage. Returns false if there is none. */
bool Request::next_stage()
{
	uint32_t nr = 0;

	if (!overwrite_ || stage_ == Stage::Again)
		return false;
	stage_ = stage_ == Stage::First ? Stage::Delete : Stage::Again;
	for (uint32_t i = 0; i < batch_.size(); i++) {
		const struct kvblk_op &op = batch_.ops()[i];
		struct kvblk_op &next = again_[nr];
		const int res = batch_[i].res;

		if (res != -EEXIST && (res != -ENOBUFS || stage_ == Stage::Again))
			continue;
		next = op;
		if (stage_ == Stage::Delete) {
			kvblk_prep_delete(&next, batch_.key(i).data(), op.key_len);
			next.cookie = op.cookie;
			next.deadline_ns = op.deadline_ns;
		}
		nr++;
	}
	if (nr)
		submit(again_.data(), nr);
	return nr;
}

/* Complete the request after its last operation. */
void Request::end()
{
	const int err = worst(0, batch_.size());

	try {
		if (err && !canceled)
			tell(err);
	} catch (const std::bad_alloc &) {
		/* no memory for a line of the log: the status says enough */
	}
	status_.store(status_of(err), std::memory_order_relaxed);
	context_.flights.end(this);
	/* the caller owns the request from here on, unless it was released */
	if (state_.exchange(State::Idle, std::memory_order_acq_rel) == State::Orphan)
		delete this;
}

/* Returns why operation @i failed; 0 if it succeeded, or if that counts as success. */
int Request::failure(uint32_t i) const
{
	const struct kvblk_result &result = batch_[i];
	const Params &params = context_.params;
	const int res = result.res;

	/* a get may return fewer bytes than requested */
	if (res >= 0)
		return static_cast<uint32_t>(res) == lengths_[i] ? 0 : -EMSGSIZE;
	/* overwrite_: a later write of another caller */
	if (res == -EEXIST && (overwrite_ || !(result.flags & KVBLK_RES_LEN_DIFFERS)))
		return 0;
	if (res == -ENOENT && direction_ == NIXL_READ && params.ignore_read_not_found)
		return 0;
	if (res == -EALREADY || (res == -ENOBUFS && params.ignore_put_declined))
		return 0;
	return res;
}

/* Returns the failure that a status of several operations is made of, or 0. */
int Request::worst(uint32_t first, uint32_t end) const
{
	int worst = 0;

	for (; first < end; first++)
		worst = std::max(worst, failure(first),
				 [](int a, int b) { return meaning(a) < meaning(b); });
	return worst;
}

nixl_status_t Request::descriptor(size_t i) const
{
	return status_of(worst(spans_[i].first, spans_[i].end));
}

/* Log failed descriptors, because NIXL has only one status per request. */
void Request::tell(int err)
{
	const char *what = direction_ == NIXL_READ ? "read" : "write";
	size_t nr_failed = 0;

	for (size_t i = 0; i < spans_.size(); i++) {
		const nixl_status_t status = descriptor(i);

		if (status == NIXL_SUCCESS)
			continue;
		nr_failed++;
		NIXL_DEBUG << what << " of descriptor " << i << ": status " << status << ", first key "
			   << hex(batch_.key(spans_[i].first));
	}
	if (status_of(err) != NIXL_ERR_NOT_FOUND && may_warn())
		NIXL_WARN << "pool " << context_.pool << ": " << what << " of " << nr_failed << " of "
			  << spans_.size() << " descriptors failed: " << kvblk_result_text(err) << " (errno "
			  << -err << "); the next such lines are left out for 10 s";
}

} // namespace kvblk_nixl
