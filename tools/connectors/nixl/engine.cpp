// SPDX-License-Identifier: MIT
#include "engine.h"

#include <algorithm>
#include <stdexcept>

#include "common/nixl_log.h"

namespace kvblk_nixl {

/* most blocks of a volume per descriptor of a query */
static constexpr uint64_t VOLUME_QUERY_MAX = 1 << 20;

Engine::Engine(const nixlBackendInitParams *init) :
	nixlBackendEngine(init), params_(parse_params(*init->customParams)),
	keys_(params_, read_secret(params_))
{
	auto options = libkvblk::sized<struct kvblk_queue_options>();
	struct kvblk_info info;
	std::error_code error = pool_.open(params_.pool);

	if (error)
		throw std::runtime_error("pool " + params_.pool + " can't be opened: " +
					 (error == std::errc::no_such_device ? "no such pool" :
									      error.message()));
	error = pool_.info(info);
	if (error)
		throw std::runtime_error("pool " + params_.pool + ": " + error.message());
	check_nguid(params_.nguid, info);
	options.depth = std::min<uint32_t>(params_.num_tasks, KVBLK_QUEUE_DEPTH_MAX);
	options.threads = std::min(params_.threads, options.depth);
	error = queue_.create(pool_, &options);
	if (error)
		throw std::runtime_error("no threads for pool " + params_.pool + ": " +
					 error.message());
	context_.reset(new Context{ params_, keys_,
				    std::min(options.depth / options.threads, info.ops_max),
				    info.pool_name, Flights(queue_.get()) });
	if (params_.assume_success)
		NIXL_WARN << "query_mem_mode=assume_success is answered as actual: the pool is "
			     "asked, which takes no I/O";
	if (params_.ignore_read_not_found)
		NIXL_WARN << "ignore_read_not_found=true: a read of what is not there is reported "
			     "as done, and its memory is as it was before";
}

nixl_status_t Engine::registerMem(const nixlBlobDesc &desc, const nixl_mem_t &type,
				  nixlBackendMD *&out)
{
	const std::string key = type == OBJ_SEG ? keys_.object(desc.metaInfo, desc.devId) : "";

	switch (type) {
	case DRAM_SEG:
	case VRAM_SEG:
		return register_memory(desc, type, out);
	case BLK_SEG:
		out = new PlaceMD(type, "", 0, desc.devId);
		return NIXL_SUCCESS;
	case OBJ_SEG:
		if (key.empty()) {
			NIXL_ERROR << "the object's name of " << desc.metaInfo.size()
				   << " bytes is longer than "
				   << (params_.doca_keys ? Keys::DOCA_KEY_MAX : Keys::ID_MAX);
			return NIXL_ERR_INVALID_PARAM;
		}
		if (!ids_.add(desc.devId, key)) {
			NIXL_ERROR << "devId " << desc.devId << " stands for another object already, "
				   << "and a transfer names its object by devId: give each object "
				   << "one of its own";
			return NIXL_ERR_INVALID_PARAM;
		}
		out = new PlaceMD(type, key, desc.addr ? 0 : desc.len, desc.devId);
		return NIXL_SUCCESS;
	default:
		return NIXL_ERR_NOT_SUPPORTED;
	}
}

nixl_status_t Engine::register_memory(const nixlBlobDesc &desc, nixl_mem_t type,
				      nixlBackendMD *&out)
{
	auto memory = std::make_shared<Memory>();

	if (desc.addr + desc.len < desc.addr) {
		NIXL_ERROR << "memory of " << desc.len << " bytes goes beyond all addresses";
		return NIXL_ERR_INVALID_PARAM;
	}
	memory->addr = desc.addr;
	memory->len = desc.len;
	std::error_code error = pool_.add(reinterpret_cast<void *>(desc.addr), desc.len, memory->mem);

	/* host memory may also be pinned for each operation */
	if (type == DRAM_SEG && (error == std::errc::not_enough_memory ||
				 error == std::errc::no_space_on_device)) {
		if (!warned_.exchange(true))
			NIXL_WARN << "memory can't be pinned once (" << error.message()
				  << "), so each transfer pins it: raise RLIMIT_MEMLOCK (ulimit -l, "
				     "LimitMEMLOCK=, docker --ulimit memlock=-1)";
		error.clear();
	}
	if (error) {
		NIXL_ERROR << "memory of " << desc.len << " bytes can't be registered: "
			   << error.message();
		return error == std::errc::invalid_argument || error == std::errc::bad_address ?
			       NIXL_ERR_INVALID_PARAM :
			       NIXL_ERR_BACKEND;
	}
	out = new MemoryMD(std::move(memory));
	return NIXL_SUCCESS;
}

nixl_status_t Engine::deregisterMem(nixlBackendMD *md)
{
	if (auto *memory = dynamic_cast<MemoryMD *>(md)) {
		context_->flights.retire(memory->memory);
		memory->memory->mem.reset();
	}
	if (auto *place = dynamic_cast<PlaceMD *>(md); place && place->type == OBJ_SEG)
		ids_.remove(place->id);
	delete md;
	return NIXL_SUCCESS;
}

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &remote_agent,
			       nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const
{
	try {
		if ((local.getType() != DRAM_SEG && local.getType() != VRAM_SEG) ||
		    (remote.getType() != OBJ_SEG && remote.getType() != BLK_SEG))
			throw Refused{ NIXL_ERR_NOT_SUPPORTED,
				       "a transfer is between DRAM or VRAM of the local side, and "
				       "OBJ or BLK of the remote side" };
		if (remote_agent != localAgent)
			throw Refused{ NIXL_ERR_INVALID_PARAM, "objects and volumes are this "
				       "agent's own, not those of " + remote_agent };
		handle = new Request(*context_, operation, local, remote);
		return NIXL_SUCCESS;
	} catch (const Refused &refused) {
		NIXL_ERROR << "no transfer: " << refused.why;
		return refused.status;
	} catch (const std::bad_alloc &) {
		NIXL_ERROR << "no transfer: no memory";
		return NIXL_ERR_BACKEND;
	}
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &,
			       const nixl_meta_dlist_t &, const std::string &,
			       nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const
{
	return handle ? static_cast<Request *>(handle)->post() : NIXL_ERR_INVALID_PARAM;
}

nixl_status_t Engine::checkXfer(nixlBackendReqH *handle) const
{
	return handle ? static_cast<const Request *>(handle)->check() : NIXL_ERR_INVALID_PARAM;
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH *handle) const
{
	if (handle)
		static_cast<Request *>(handle)->release();
	return NIXL_SUCCESS;
}

nixl_status_t Engine::queryMem(const nixl_reg_dlist_t &descs,
			       std::vector<nixl_query_resp_t> &resp) const
{
	const bool volume = descs.getType() == BLK_SEG;
	const uint64_t blk_size = params_.blk_size;
	std::vector<size_t> ends;	/* end of each descriptor's keys */
	std::vector<std::string> keys;
	std::vector<uint32_t> sizes;

	if (!volume && descs.getType() != OBJ_SEG)
		return NIXL_ERR_NOT_SUPPORTED;
	for (const nixlBlobDesc &desc : descs) {
		if (!volume) {
			keys.push_back(keys_.object(desc.metaInfo, desc.devId));
			if (keys.back().empty())
				return NIXL_ERR_INVALID_PARAM;
		} else {
			const uint64_t last = desc.addr + (desc.len ? desc.len - 1 : 0);

			if (last < desc.addr ||
			    last / blk_size - desc.addr / blk_size > VOLUME_QUERY_MAX)
				return NIXL_ERR_INVALID_PARAM;
			for (uint64_t b = desc.addr / blk_size; b <= last / blk_size; b++)
				keys.push_back(keys_.block(desc.devId, b));
		}
		ends.push_back(keys.size());
	}
	const std::error_code error = pool_.lookup(keys, sizes);

	if (error) {
		NIXL_ERROR << "pool " << context_->pool << " can't be asked: " << error.message();
		return NIXL_ERR_BACKEND;
	}
	resp.clear();
	for (size_t i = 0, key = 0; i < ends.size(); i++) {
		uint64_t size = 0;
		bool all = true;

		for (; key < ends[i]; key++) {
			size += sizes[key];
			all = all && sizes[key];
		}
		resp.emplace_back();
		if (all)
			resp.back() = { { "size", std::to_string(size) } };
	}
	return NIXL_SUCCESS;
}

} // namespace kvblk_nixl
