// SPDX-License-Identifier: MIT
#include "request.h"

#include <algorithm>
#include <ctime>
#include <iomanip>
#include <new>
#include <sstream>

#include "common/nixl_log.h"

namespace kvblk_nixl {

namespace {

constexpr size_t JOB_BYTES = 4u << 20;	/* smaller jobs are not split among threads */
constexpr uint64_t WARN_AGAIN_NS = 10000000000;

uint64_t now_ns()
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

template <typename T> T *pointer(uint64_t address)
{
	return reinterpret_cast<T *>(static_cast<uintptr_t>(address));
}

/* Rank of a status; a request with several failures reports the highest. */
int rank(nixl_status_t status)
{
	static const nixl_status_t order[] = {
		NIXL_SUCCESS,	    NIXL_ERR_NOT_FOUND,	    NIXL_ERR_NOT_ALLOWED,
		NIXL_ERR_MISMATCH,  NIXL_ERR_CANCELED,	    NIXL_ERR_NOT_SUPPORTED,
		NIXL_ERR_INVALID_PARAM, NIXL_ERR_BACKEND,
	};

	return static_cast<int>(std::find(std::begin(order), std::end(order), status) -
				std::begin(order));
}

std::string hex(const uint8_t *bytes, size_t len)
{
	std::ostringstream text;

	text << std::hex << std::setfill('0');
	for (size_t i = 0; i < len; i++)
		text << std::setw(2) << static_cast<unsigned int>(bytes[i]);
	return text.str();
}

/*
 * True if a delete's result means that the old block is gone: with -EBUSY another put is in
 * flight.
 */
bool is_gone(int err)
{
	return err == -ENOENT || err == -EBUSY;
}

/* Rate limit of the log of failures. */
bool may_warn()
{
	static std::atomic<uint64_t> next{ 0 };
	const uint64_t now = now_ns();
	uint64_t expected = next.load();

	return now >= expected && next.compare_exchange_strong(expected, now + WARN_AGAIN_NS);
}

} // namespace

nixl_status_t Request::make(Context &context, nixl_xfer_op_t direction,
			    const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
			    std::unique_ptr<Request> &made, std::string &why)
{
	std::unique_ptr<Request> request(new Request(context, direction));
	const nixl_status_t status = request->plan(local, remote, why);

	if (status == NIXL_SUCCESS)
		made = std::move(request);
	return status;
}

nixl_status_t Request::plan(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
			    std::string &why)
{
	const auto nr = static_cast<size_t>(local.descCount());

	if (!nr || nr != static_cast<size_t>(remote.descCount())) {
		why = "the two sides have " + std::to_string(local.descCount()) + " and " +
		      std::to_string(remote.descCount()) + " descriptors";
		return NIXL_ERR_INVALID_PARAM;
	}
	overwrite_ = direction_ == NIXL_WRITE &&
		     (remote.getType() == BLK_SEG || context_.params.overwrite);
	for (size_t i = 0; i < nr; i++) {
		const auto *md = static_cast<const MemoryMD *>(local[i].metadataP);

		if (!remote[i].metadataP || !md || local[i].len != remote[i].len || !local[i].len) {
			why = "descriptor " + std::to_string(i) +
			      " is empty, not registered, or of two lengths";
			return NIXL_ERR_INVALID_PARAM;
		}
		if (!md->memory->contains(local[i].addr, local[i].len)) {
			why = "descriptor " + std::to_string(i) + " is not within its memory";
			return NIXL_ERR_INVALID_PARAM;
		}
		if (remote[i].addr + remote[i].len < remote[i].addr) {
			why = "descriptor " + std::to_string(i) + " goes beyond all offsets";
			return NIXL_ERR_INVALID_PARAM;
		}
		bytes_ += local[i].len;
		if (memory.empty() || memory.back() != md->memory)
			memory.push_back(md->memory);
		const nixl_status_t status = add(local[i], remote[i], why);

		if (status != NIXL_SUCCESS)
			return status;
	}
	std::sort(memory.begin(), memory.end());
	memory.erase(std::unique(memory.begin(), memory.end()), memory.end());
	const nixl_status_t status = finish_op(why);

	if (status == NIXL_SUCCESS)
		deal_out();
	return status;
}

/* Plan a descriptor: split it at objects and blocks. */
nixl_status_t Request::add(const nixlMetaDesc &local, const nixlMetaDesc &remote, std::string &why)
{
	const auto &place = *static_cast<const PlaceMD *>(remote.metadataP);
	const Memory &from = *static_cast<const MemoryMD *>(local.metadataP)->memory;
	const uint64_t blk_size = context_.params.blk_size;
	Target target = { &place, remote.devId, 0, remote.addr };
	uint32_t first = 0;
	size_t done = 0;

	while (done < local.len) {
		size_t length = local.len - done;
		nixl_status_t status;

		if (place.type == BLK_SEG) {
			target.block = (remote.addr + done) / blk_size;
			target.offset = (remote.addr + done) % blk_size;
			length = std::min<size_t>(length, blk_size - target.offset);
		}
		status = add_part(target, length, from, local.addr + done, why);
		if (status != NIXL_SUCCESS)
			return status;
		if (!done)
			first = batch_.size() - 1;
		done += length;
	}
	spans_.push_back({ first, batch_.size() - first });
	return NIXL_SUCCESS;
}

/* Returns true if a part continues the last operation. */
bool Request::continues(const Target &target)
{
	if (wishes_.empty() || target.place != target_.place || target.volume != target_.volume ||
	    target.block != target_.block)
		return false;
	return target.offset == target_.offset + wishes_.back().length &&
	       batch_.last().nr_pieces < KVBLK_PIECES_MAX;
}

nixl_status_t Request::add_part(const Target &target, size_t length, const Memory &from,
				uintptr_t addr, std::string &why)
{
	const bool more = continues(target);
	const size_t before = more ? wishes_.back().length : 0;

	if (target.offset > KVBLK_VALUE_MAX || length > KVBLK_VALUE_MAX ||
	    before + length > KVBLK_VALUE_MAX) {
		why = "no object is longer than " + std::to_string(KVBLK_VALUE_MAX) + " bytes";
		return NIXL_ERR_INVALID_PARAM;
	}
	if (!more) {
		nixl_status_t status = wishes_.empty() ? NIXL_SUCCESS : finish_op(why);

		if (status != NIXL_SUCCESS)
			return status;
		begin_op(target);
	}
	wishes_.back().length += static_cast<uint32_t>(length);
	if (from.mem)
		batch_.piece(from.mem, addr - from.addr, length);
	else
		batch_.piece(pointer<void>(addr), length);
	return NIXL_SUCCESS;
}

void Request::begin_op(const Target &target)
{
	const std::string key = target.place->type == BLK_SEG ?
					context_.keys.block(target.volume, target.block) :
					target.place->key;

	if (direction_ == NIXL_WRITE) {
		batch_.put(key);
		batch_.last().priority = static_cast<uint8_t>(context_.params.priority);
		batch_.last().ttl_s = context_.params.ttl_s;
	} else {
		batch_.get(key);
		if (context_.params.hard_deadline && context_.params.timeout_ms)
			batch_.last().flags = KVBLK_OPF_HARD_DEADLINE;
	}
	wishes_.push_back({ 0, false });
	target_ = target;
}

/* Complete the last operation: decide whether it covers its whole block. */
nixl_status_t Request::finish_op(std::string &why)
{
	Wish &wish = wishes_.back();
	struct kvblk_op &op = batch_.last();
	const bool is_volume = target_.place->type == BLK_SEG;
	const size_t len = is_volume ? context_.params.blk_size : target_.place->len;

	wish.whole = !target_.offset && wish.length == len;
	if (direction_ == NIXL_WRITE && (target_.offset || (is_volume && !wish.whole))) {
		why = is_volume ? "a volume is written in whole blocks: offset and length must be "
				  "multiples of blk_size=" + std::to_string(len) :
				  "an object is written as a whole, in up to " +
					  std::to_string(KVBLK_PIECES_MAX) +
					  " pieces: a write may not begin at byte " +
					  std::to_string(target_.offset);
		return NIXL_ERR_NOT_SUPPORTED;
	}
	if (direction_ == NIXL_READ && !wish.whole) {
		op.flags |= KVBLK_OPF_PARTIAL;
		op.offset = static_cast<uint32_t>(target_.offset);
		op.length = wish.length;
	}
	return NIXL_SUCCESS;
}

void Request::deal_out()
{
	const uint64_t nr_ops = batch_.size();
	const uint64_t least = (nr_ops + context_.batch - 1) / context_.batch;
	/* more jobs for long transfers, because the jobs' threads do copies and checksums */
	const uint64_t useful = std::min<uint64_t>(bytes_ / JOB_BYTES, context_.params.threads);
	const uint64_t nr = std::min(std::max(least, useful), nr_ops);

	batch_.seal();
	again_.resize(overwrite_ ? nr_ops : 0);
	jobs_.resize(nr);
	for (uint64_t i = 0, first = 0; i < nr; i++) {
		const uint64_t end = nr_ops * (i + 1) / nr;

		jobs_[i].first = static_cast<uint32_t>(first);
		jobs_[i].nr = static_cast<uint32_t>(end - first);
		for (; first < end; first++)
			batch_.ops()[first].cookie = i << 32 | first;
	}
}

nixl_status_t Request::post()
{
	const uint64_t timeout = context_.params.timeout_ms;
	const uint64_t deadline = timeout ? now_ns() + timeout * 1000000 : 0;

	if (state_.load(std::memory_order_acquire) != State::Idle)
		return NIXL_ERR_REPOST_ACTIVE;
	if (!context_.flights.begin(this)) {
		NIXL_ERROR << "memory of this transfer was deregistered since it was prepared";
		return NIXL_ERR_NOT_FOUND;
	}
	for (uint32_t i = 0; i < batch_.size(); i++)
		batch_.ops()[i].deadline_ns = deadline;
	running_.store(jobs_.size(), std::memory_order_relaxed);
	state_.store(State::Flying, std::memory_order_release);
	for (Job &job : jobs_) {
		job.stage = Stage::First;
		submit(job, batch_.ops() + job.first, job.nr);
	}
	return NIXL_IN_PROG;
}

void Request::submit(Job &job, const struct kvblk_op *ops, uint32_t nr)
{
	job.submission.flight = this;
	job.submission.ops = ops;
	job.submission.nr = nr;
	/* the request may be complete, and freed, afterwards */
	context_.flights.submit(&job.submission);
}

nixl_status_t Request::check() const
{
	if (state_.load(std::memory_order_acquire) == State::Flying)
		return NIXL_IN_PROG;
	return status_.load(std::memory_order_relaxed);
}

void Request::release()
{
	State expected = State::Flying;

	canceled = true;
	/* first, because afterwards the last job may free the request */
	if (state_.load(std::memory_order_acquire) == State::Flying)
		context_.flights.cancel(this);
	if (!state_.compare_exchange_strong(expected, State::Orphan))
		delete this;
}

void Request::completed(const struct kvblk_completion &c)
{
	Job &job = jobs_[c.cookie >> 32];
	struct kvblk_result &result = batch_.results()[static_cast<uint32_t>(c.cookie)];

	/* after a delete the result of the first put says what is next */
	if (job.stage != Stage::Delete || (c.res && !is_gone(c.res))) {
		result = {};
		result.res = c.res;
		result.flags = c.flags;
	}
	if (c.left || next_stage(job))
		return;
	if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1)
		end();
}

/* Submit the next stage of a job. Returns false if there is none. */
bool Request::next_stage(Job &job)
{
	uint32_t nr = 0;

	if (!overwrite_ || job.stage == Stage::Again)
		return false;
	job.stage = job.stage == Stage::First ? Stage::Delete : Stage::Again;
	for (uint32_t i = job.first; i < job.first + job.nr; i++) {
		const struct kvblk_op &op = batch_.ops()[i];
		struct kvblk_op &next = again_[job.first + nr];
		const int res = batch_[i].res;

		if (res != -EEXIST && (res != -ENOBUFS || job.stage == Stage::Again))
			continue;
		next = op;
		if (job.stage == Stage::Delete) {
			kvblk_prep_delete(&next, pointer<void>(op.key), op.key_len);
			next.cookie = op.cookie;
			next.deadline_ns = op.deadline_ns;
		}
		nr++;
	}
	if (nr)
		submit(job, &again_[job.first], nr);
	return nr;
}

/* Complete the request after its last job. */
void Request::end()
{
	nixl_status_t worst = NIXL_SUCCESS;

	for (uint32_t i = 0; i < batch_.size(); i++) {
		const nixl_status_t status = status_of(i);

		if (rank(status) > rank(worst))
			worst = status;
	}
	if (worst != NIXL_SUCCESS && !canceled)
		tell(worst);
	status_.store(worst, std::memory_order_relaxed);
	context_.flights.end(this);
	/* the caller owns the request from here on, unless it was released */
	if (state_.exchange(State::Idle, std::memory_order_acq_rel) == State::Orphan)
		delete this;
}

nixl_status_t Request::status_of(uint32_t i) const
{
	const struct kvblk_result &result = batch_[i];
	const Params &params = context_.params;

	switch (result.res) {
	case -ENOENT:
		return direction_ == NIXL_READ && params.ignore_read_not_found ?
			       NIXL_SUCCESS :
			       NIXL_ERR_NOT_FOUND;
	case -EEXIST:
		/* overwrite_: a later write of another caller */
		return overwrite_ || !(result.flags & KVBLK_RES_LEN_DIFFERS) ? NIXL_SUCCESS :
									      NIXL_ERR_MISMATCH;
	case -EALREADY:
		return NIXL_SUCCESS;
	case -ENOBUFS:
		return params.ignore_put_declined ? NIXL_SUCCESS : NIXL_ERR_NOT_ALLOWED;
	case -EMSGSIZE:
	case -ERANGE:
		return NIXL_ERR_MISMATCH;
	case -ETIME:
	case -ECANCELED:
		return NIXL_ERR_CANCELED;
	case -EFBIG:
	case -EINVAL:
		return NIXL_ERR_INVALID_PARAM;
	default:
		break;
	}
	if (result.res < 0)
		return NIXL_ERR_BACKEND;
	/* a get may return fewer bytes than requested */
	return static_cast<uint32_t>(result.res) == wishes_[i].length ? NIXL_SUCCESS :
									NIXL_ERR_MISMATCH;
}

nixl_status_t Request::descriptor(size_t i) const
{
	nixl_status_t worst = NIXL_SUCCESS;

	for (uint32_t op = spans_[i].first; op < spans_[i].first + spans_[i].nr; op++) {
		if (rank(status_of(op)) > rank(worst))
			worst = status_of(op);
	}
	return worst;
}

/* Log failed descriptors, because NIXL has only one status per request. */
void Request::tell(nixl_status_t worst)
{
	const char *what = direction_ == NIXL_READ ? "read" : "write";
	size_t nr_failed = 0;
	int res = 0;

	for (uint32_t i = 0; i < batch_.size() && !res; i++) {
		if (status_of(i) == worst)
			res = batch_[i].res < 0 ? batch_[i].res : -EMSGSIZE;
	}
	for (size_t i = 0; i < spans_.size(); i++) {
		const nixl_status_t status = descriptor(i);
		const struct kvblk_op &op = batch_.ops()[spans_[i].first];

		if (status == NIXL_SUCCESS)
			continue;
		nr_failed++;
		NIXL_DEBUG << what << " of descriptor " << i << ": status " << status << ", first key "
			   << hex(pointer<uint8_t>(op.key), op.key_len);
	}
	if (worst != NIXL_ERR_NOT_FOUND && may_warn())
		NIXL_WARN << "pool " << context_.pool << ": " << what << " of " << nr_failed << " of "
			  << spans_.size() << " descriptors failed: " << kvblk_result_text(res) << " (errno "
			  << -res << "); the next such lines are left out for 10 s";
}

} // namespace kvblk_nixl
