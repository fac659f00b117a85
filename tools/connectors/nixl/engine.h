/* SPDX-License-Identifier: MIT */
/*
 * NIXL's backend: objects and volumes of a kvblk pool.
 *
 * As NIXL requires, any thread may call any function at any time, except the destructor. Calls
 * on transfers do not wait for the pool; registerMem(), deregisterMem() and queryMem() may.
 */
#ifndef KVBLK_NIXL_ENGINE_H
#define KVBLK_NIXL_ENGINE_H

#include <atomic>
#include <memory>

#include "request.h"

namespace kvblk_nixl {

class Engine : public nixlBackendEngine {
public:
	/* Throws std::exception with a message. */
	explicit Engine(const nixlBackendInitParams *init);

	static nixl_mem_list_t mems()
	{
		return { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG };
	}

	bool supportsRemote() const override
	{
		return false;
	}
	bool supportsLocal() const override
	{
		return true;
	}
	bool supportsNotif() const override
	{
		return false;
	}
	nixl_mem_list_t getSupportedMems() const override
	{
		return mems();
	}

	nixl_status_t registerMem(const nixlBlobDesc &desc, const nixl_mem_t &type,
				  nixlBackendMD *&out) override;
	nixl_status_t deregisterMem(nixlBackendMD *md) override;
	nixl_status_t loadLocalMD(nixlBackendMD *in, nixlBackendMD *&out) override
	{
		out = in;
		return NIXL_SUCCESS;
	}
	nixl_status_t unloadMD(nixlBackendMD *) override
	{
		return NIXL_SUCCESS;
	}
	nixl_status_t connect(const std::string &) override
	{
		return NIXL_SUCCESS;
	}
	nixl_status_t disconnect(const std::string &) override
	{
		return NIXL_SUCCESS;
	}

	nixl_status_t prepXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &remote_agent,
			       nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t *args = nullptr) const override;
	nixl_status_t postXfer(const nixl_xfer_op_t &operation, const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote, const std::string &remote_agent,
			       nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t *args = nullptr) const override;
	nixl_status_t checkXfer(nixlBackendReqH *handle) const override;
	nixl_status_t releaseReqH(nixlBackendReqH *handle) const override;
	nixl_status_t queryMem(const nixl_reg_dlist_t &descs,
			       std::vector<nixl_query_resp_t> &resp) const override;

private:
	nixl_status_t register_memory(const nixlBlobDesc &desc, nixl_mem_t type,
				      nixlBackendMD *&out);

	/* in the order of construction; each is constant or has its own lock */
	const Params params_;
	const Keys keys_;
	libkvblk::Pool pool_;
	libkvblk::Queue queue_;
	std::unique_ptr<Context> context_;
	Ids ids_;
	std::atomic<bool> warned_{ false };	/* the warning about unpinned memory was logged */
};

} // namespace kvblk_nixl

#endif
