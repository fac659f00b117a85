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

template <typename T> uint64_t address(const T *pointer)
{
	return reinterpret_cast<uintptr_t>(pointer);
}

template <typename T> T *pointer(uint64_t address)
{
	return reinterpret_cast<T *>(static_cast<uintptr_t>(address));
}

/* Takes arrays from a single allocation; only counts bytes if that is NULL. */
class Carver {
	std::byte *room_;
	size_t used_ = 0;

public:
	explicit Carver(std::byte *room) : room_(room)
	{
	}

	template <typename T> T *take(size_t nr)
	{
		static_assert(alignof(T) <= alignof(std::max_align_t));
		used_ = (used_ + alignof(T) - 1) / alignof(T) * alignof(T);
		T *array = room_ ? new (room_ + used_) T[nr]() : nullptr;

		used_ += nr * sizeof(T);
		return array;
	}

	size_t used() const
	{
		return used_;
	}
};

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

nixl_status_t Request::make(const Context &context, nixl_xfer_op_t direction,
			    const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
			    uint64_t cookie, std::unique_ptr<Request> &made, std::string &why)
{
	std::unique_ptr<Request> request(new Request(context, direction));
	nixl_status_t status;

	request->cookie = cookie;
	status = request->plan(local, remote, why);
	if (status == NIXL_SUCCESS)
		made = std::move(request);
	return status;
}

nixl_status_t Request::plan(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
			    std::string &why)
{
	const nixl_mem_t type = remote.getType();
	const size_t blk_size = context_.params.blk_size;
	size_t parts = 0, keys = 0;

	nr_descs_ = static_cast<size_t>(local.descCount());
	if (!nr_descs_ || nr_descs_ != static_cast<size_t>(remote.descCount())) {
		why = "the two sides have " + std::to_string(local.descCount()) + " and " +
		      std::to_string(remote.descCount()) + " descriptors";
		return NIXL_ERR_INVALID_PARAM;
	}
	overwrite_ = direction_ == NIXL_WRITE && (type == BLK_SEG || context_.params.overwrite);
	for (size_t i = 0; i < nr_descs_; i++) {
		const auto *place = static_cast<const PlaceMD *>(remote[i].metadataP);
		const auto *md = static_cast<const MemoryMD *>(local[i].metadataP);
		struct kvblk_piece piece;
		size_t nr = 1;

		if (!place || !md || local[i].len != remote[i].len || !local[i].len) {
			why = "descriptor " + std::to_string(i) +
			      " is empty, not registered, or of two lengths";
			return NIXL_ERR_INVALID_PARAM;
		}
		if (!md->memory->piece(local[i].addr, local[i].len, &piece)) {
			why = "descriptor " + std::to_string(i) + " is not within its memory";
			return NIXL_ERR_INVALID_PARAM;
		}
		if (remote[i].addr + remote[i].len < remote[i].addr) {
			why = "descriptor " + std::to_string(i) + " goes beyond all offsets";
			return NIXL_ERR_INVALID_PARAM;
		}
		if (type == BLK_SEG)
			nr = local[i].len / blk_size + 2;
		parts += nr;
		keys += nr * (type == BLK_SEG ? Keys::VOLUME_KEY_LEN : place->key.size());
		bytes_ += local[i].len;
		if (memory.empty() || memory.back() != md->memory)
			memory.push_back(md->memory);
	}
	std::sort(memory.begin(), memory.end());
	memory.erase(std::unique(memory.begin(), memory.end()), memory.end());

	auto carve = [&](std::byte *room) {
		Carver carver(room);
		const size_t again = overwrite_ ? parts : 0;

		ops_ = carver.take<struct kvblk_op>(parts);
		results_ = carver.take<struct kvblk_result>(parts);
		again_ = carver.take<struct kvblk_op>(again);
		again_results_ = carver.take<struct kvblk_result>(again);
		pieces_ = carver.take<struct kvblk_piece>(parts);
		wishes_ = carver.take<Wish>(parts);
		spans_ = carver.take<Span>(nr_descs_);
		jobs_ = carver.take<Job>(parts / context_.batch + 1 + context_.params.threads);
		again_of_ = carver.take<uint32_t>(again);
		keys_ = carver.take<uint8_t>(keys);
		return carver.used();
	};
	room_.reset(new std::byte[carve(nullptr)]);
	carve(room_.get());

	for (size_t i = 0; i < nr_descs_; i++) {
		nixl_status_t status = add(i, local[i], remote[i], why);

		if (status != NIXL_SUCCESS)
			return status;
	}
	nixl_status_t status = finish_op(why);

	if (status == NIXL_SUCCESS)
		deal_out();
	return status;
}

/* Plan a descriptor: split it at objects and blocks. */
nixl_status_t Request::add(size_t desc, const nixlMetaDesc &local, const nixlMetaDesc &remote,
			   std::string &why)
{
	const auto &place = *static_cast<const PlaceMD *>(remote.metadataP);
	const Memory &from = *static_cast<const MemoryMD *>(local.metadataP)->memory;
	const uint64_t blk_size = context_.params.blk_size;
	Target target = { &place, remote.devId, 0, remote.addr };
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
			spans_[desc].first = nr_ops_ - 1;
		done += length;
	}
	spans_[desc].nr = nr_ops_ - spans_[desc].first;
	return NIXL_SUCCESS;
}

/* Returns true if a part continues the last operation. */
bool Request::continues(const Target &target) const
{
	if (!nr_ops_ || target.place != target_.place || target.volume != target_.volume ||
	    target.block != target_.block)
		return false;
	return target.offset == target_.offset + wishes_[nr_ops_ - 1].length &&
	       ops_[nr_ops_ - 1].nr_pieces < KVBLK_PIECES_MAX;
}

nixl_status_t Request::add_part(const Target &target, size_t length, const Memory &from,
				uintptr_t addr, std::string &why)
{
	struct kvblk_piece piece, *last = nr_pieces_ ? &pieces_[nr_pieces_ - 1] : nullptr;
	const bool more = continues(target);
	const size_t before = more ? wishes_[nr_ops_ - 1].length : 0;

	if (target.offset > KVBLK_VALUE_MAX || length > KVBLK_VALUE_MAX ||
	    before + length > KVBLK_VALUE_MAX) {
		why = "no object is longer than " + std::to_string(KVBLK_VALUE_MAX) + " bytes";
		return NIXL_ERR_INVALID_PARAM;
	}
	from.piece(addr, length, &piece);
	if (!more) {
		nixl_status_t status = nr_ops_ ? finish_op(why) : NIXL_SUCCESS;

		if (status != NIXL_SUCCESS)
			return status;
		begin_op(target);
	}
	struct kvblk_op &op = ops_[nr_ops_ - 1];

	wishes_[nr_ops_ - 1].length += static_cast<uint32_t>(length);
	if (more && last_from_ == &from && last->addr + last->length == piece.addr) {
		last->length += piece.length;
		return NIXL_SUCCESS;
	}
	last_from_ = &from;
	pieces_[nr_pieces_++] = piece;
	op.nr_pieces++;
	return NIXL_SUCCESS;
}

void Request::begin_op(const Target &target)
{
	const std::string block = target.place->type == BLK_SEG ?
					  context_.keys.block(target.volume, target.block) :
					  "";
	const std::string &key = block.empty() ? target.place->key : block;
	struct kvblk_op *op = &ops_[nr_ops_];

	memcpy(keys_ + keys_len_, key.data(), key.size());
	if (direction_ == NIXL_WRITE) {
		kvblk_prep_put(op, keys_ + keys_len_, key.size(), pieces_ + nr_pieces_, 0);
		op->priority = static_cast<uint8_t>(context_.params.priority);
		op->ttl_s = context_.params.ttl_s;
	} else {
		kvblk_prep_get(op, keys_ + keys_len_, key.size(), pieces_ + nr_pieces_, 0);
		if (context_.params.hard_deadline && context_.params.timeout_ms)
			op->flags = KVBLK_OPF_HARD_DEADLINE;
	}
	op->cookie = cookie;
	keys_len_ += key.size();
	wishes_[nr_ops_] = { 0, false };
	nr_ops_++;
	target_ = target;
}

/* Complete the last operation: decide whether it covers its whole block. */
nixl_status_t Request::finish_op(std::string &why)
{
	Wish &wish = wishes_[nr_ops_ - 1];
	struct kvblk_op &op = ops_[nr_ops_ - 1];
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
	uint64_t nr = (nr_ops_ + context_.batch - 1) / context_.batch;
	/* more jobs for long transfers, because the jobs' threads do copies and checksums */
	uint64_t useful = std::max<uint64_t>(bytes_ / JOB_BYTES, nr);

	nr = std::max<uint64_t>(nr, std::min<uint64_t>(useful, context_.params.threads));
	nr = std::min<uint64_t>(nr, nr_ops_);
	nr_jobs_ = static_cast<uint32_t>(nr);
	for (uint64_t i = 0; i < nr; i++) {
		Job &job = jobs_[i];

		job.request = this;
		job.first = static_cast<uint32_t>(nr_ops_ * i / nr);
		job.nr = static_cast<uint32_t>(nr_ops_ * (i + 1) / nr) - job.first;
		job.job.run = run_job;
		job.job.done = job_done;
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
	for (uint32_t i = 0; i < nr_ops_; i++)
		ops_[i].deadline_ns = deadline;
	running_.store(nr_jobs_, std::memory_order_relaxed);
	state_.store(State::Flying, std::memory_order_release);
	for (uint32_t i = 0, nr = nr_jobs_; i < nr; i++)
		kvblk_async_submit(context_.async, &jobs_[i].job);
	return NIXL_IN_PROG;
}

nixl_status_t Request::check() const
{
	if (state_.load(std::memory_order_acquire) == State::Flying)
		return NIXL_IN_PROG;
	return status_.load(std::memory_order_relaxed);
}

void Request::release()
{
	struct kvblk *kv = context_.kv;
	const uint64_t name = cookie;
	State expected = State::Flying;

	canceled = true;
	if (state_.compare_exchange_strong(expected, State::Orphan)) {
		/* a worker may free the request from here on */
		kvblk_cancel(kv, name, nullptr);
		return;
	}
	delete this;
}

int Request::run_job(struct kvblk *kv, struct kvblk_job *job)
{
	const auto *self = reinterpret_cast<const Job *>(job);

	return self->request->run(kv, *self);
}

int Request::run(struct kvblk *kv, const Job &job)
{
	int err;

	if (canceled)
		return -ECANCELED;
	err = kvblk_mem_submit(kv, ops_ + job.first, job.nr, results_ + job.first, 0);
	if (!err && overwrite_)
		replace(kv, job);
	if (!err && direction_ == NIXL_READ)
		err = flush();
	return err;
}

/* Make the data read visible to GPU work that starts after the call. */
int Request::flush() const
{
	for (const auto &m : memory) {
		int err = m->mem ? kvblk_mem_flush(m->mem) : 0;

		if (err)
			return err;
	}
	return 0;
}

/*
 * Replace existing blocks: delete them durably, then put them again, because a block cannot be
 * changed in place. Gets may miss meanwhile. No get finds the old block after the new one, or
 * after a declined write.
 */
void Request::replace(struct kvblk *kv, const Job &job)
{
	struct kvblk_op *ops = again_ + job.first;
	struct kvblk_result *results = again_results_ + job.first;
	uint32_t *of = again_of_ + job.first, nr = 0, nr_puts = 0;
	int err;

	for (uint32_t i = job.first; i < job.first + job.nr; i++) {
		if (results_[i].res != -EEXIST && results_[i].res != -ENOBUFS)
			continue;
		kvblk_prep_delete(&ops[nr], pointer<void>(ops_[i].key), ops_[i].key_len);
		ops[nr].cookie = ops_[i].cookie;
		ops[nr].deadline_ns = ops_[i].deadline_ns;
		of[nr++] = i;
	}
	if (!nr)
		return;
	err = kvblk_submit(kv, ops, nr, results, 0);
	for (uint32_t i = 0; i < nr; i++) {
		struct kvblk_result &result = results_[of[i]];
		const int res = err ? err : results[i].res;

		if (res && !is_gone(res)) {
			result = {};
			result.res = res;
		} else if (result.res == -EEXIST) {
			ops[nr_puts] = ops_[of[i]];
			of[nr_puts++] = of[i];
		}
	}
	if (!nr_puts)
		return;
	err = kvblk_mem_submit(kv, ops, nr_puts, results, 0);
	for (uint32_t i = 0; i < nr_puts; i++) {
		results_[of[i]] = err ? kvblk_result{} : results[i];
		if (err)
			results_[of[i]].res = err;
	}
}

void Request::job_done(struct kvblk_job *job)
{
	const auto *self = reinterpret_cast<const Job *>(job);
	Request *request = self->request;

	for (uint32_t i = self->first; job->err && i < self->first + self->nr; i++) {
		request->results_[i] = {};
		request->results_[i].res = job->err;
	}
	if (request->running_.fetch_sub(1, std::memory_order_acq_rel) == 1)
		request->end();
}

/* Complete the request after its last job. */
void Request::end()
{
	nixl_status_t worst = NIXL_SUCCESS;

	for (uint32_t i = 0; i < nr_ops_; i++) {
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
	const struct kvblk_result &result = results_[i];
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
void Request::tell(nixl_status_t worst) const
{
	const char *what = direction_ == NIXL_READ ? "read" : "write";
	size_t nr_failed = 0;
	int res = 0;

	for (uint32_t i = 0; i < nr_ops_ && !res; i++) {
		if (status_of(i) == worst)
			res = results_[i].res < 0 ? results_[i].res : -EMSGSIZE;
	}
	for (size_t i = 0; i < nr_descs_; i++) {
		const nixl_status_t status = descriptor(i);
		const struct kvblk_op &op = ops_[spans_[i].first];

		if (status == NIXL_SUCCESS)
			continue;
		nr_failed++;
		NIXL_DEBUG << what << " of descriptor " << i << ": status " << status << ", first key "
			   << hex(pointer<uint8_t>(op.key), op.key_len);
	}
	if (worst != NIXL_ERR_NOT_FOUND && may_warn())
		NIXL_WARN << "pool " << context_.pool << ": " << what << " of " << nr_failed << " of "
			  << nr_descs_ << " descriptors failed: " << kvblk_strerror(res) << " (errno "
			  << -res << "); the next such lines are left out for 10 s";
}

} // namespace kvblk_nixl
