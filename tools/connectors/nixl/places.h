/* SPDX-License-Identifier: MIT */
/*
 * The two sides of a transfer: memory of the process, and objects or volumes made of the pool's
 * blocks. NIXL registers them and passes them with descriptors.
 *
 * An object and a block of a volume never have equal keys, whatever names the caller chooses.
 */
#ifndef KVBLK_NIXL_PLACES_H
#define KVBLK_NIXL_PLACES_H

#include <endian.h>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <kvblk.hpp>

#include "backend/backend_engine.h"
#include "params.h"

namespace kvblk_nixl {

/* Registered memory. Requests hold references, because they may outlive the registration. */
struct Memory {
	uintptr_t addr = 0;
	size_t len = 0;
	libkvblk::Memory mem;	/* false if it could not be pinned */
	bool gone = false;	/* deregistration has started; protected by Flights::lock_ */

	bool contains(uintptr_t from, size_t length) const
	{
		return from >= addr && length <= len && from - addr <= len - length;
	}
};

class MemoryMD : public nixlBackendMD {
public:
	const std::shared_ptr<Memory> memory;

	explicit MemoryMD(std::shared_ptr<Memory> m) : nixlBackendMD(true), memory(std::move(m))
	{
	}
};

/* An object, or a volume. */
class PlaceMD : public nixlBackendMD {
public:
	const nixl_mem_t type;
	const std::string key;	/* OBJ_SEG: key of the object's block */
	const size_t len;	/* OBJ_SEG: length, if registered from offset 0; otherwise 0 */
	const uint64_t id;	/* devId */

	PlaceMD(nixl_mem_t t, std::string k, size_t l, uint64_t i)
		: nixlBackendMD(true), type(t), key(std::move(k)), len(l), id(i)
	{
	}
};

/*
 * Objects by devId. NIXL looks up a transfer's object by devId, address and length, not by
 * name, so two objects with one devId would be confused.
 */
class Ids {
	std::mutex lock_;
	/* keys, one for each registration; protected by lock_ */
	std::unordered_multimap<uint64_t, std::string> objects_;

public:
	/* Register an object. Returns false if another object has the id. */
	bool add(uint64_t id, const std::string &key)
	{
		std::lock_guard lock(lock_);
		const auto at = objects_.find(id);

		if (at != objects_.end() && at->second != key)
			return false;
		objects_.emplace(id, key);
		return true;
	}

	void remove(uint64_t id)
	{
		std::lock_guard lock(lock_);
		const auto at = objects_.find(id);

		if (at != objects_.end())
			objects_.erase(at);
	}
};

/* Makes keys of blocks. */
class Keys {
	const bool doca_;	/* as in Params */
	struct kvblk_keyspace by_name_, by_id_, volumes_;

	static std::string join(const struct kvblk_keyspace &space, const std::string &id)
	{
		std::string key(KVBLK_KEY_MAX, '\0');
		size_t len = key.size();

		/* empty if the id is too long */
		if (kvblk_keyspace_key(&space, id.data(), id.size(),
				       reinterpret_cast<uint8_t *>(key.data()), &len))
			return "";
		return key.substr(0, len);
	}

	static std::string bytes(uint64_t number)
	{
		number = htole64(number);
		return std::string(reinterpret_cast<const char *>(&number), sizeof(number));
	}

	void init(struct kvblk_keyspace *space, const std::string &layout, const std::string &salt,
		  const std::string &secret)
	{
		struct kvblk_keyspace_spec spec = {};

		spec.size = sizeof(spec);
		spec.runtime = "nixl/1";
		/* fixed: NIXL moves untyped bytes, whose meaning the object's name identifies */
		spec.model = "any";
		spec.dtype = "bytes";
		spec.block_tokens = 1;
		spec.layout = layout.c_str();
		spec.salt = salt.c_str();
		spec.secret = secret.c_str();
		kvblk_keyspace_init(space, &spec);
	}

public:
	static constexpr size_t DOCA_KEY_MAX = 16;
	static constexpr size_t ID_MAX = KVBLK_KEY_MAX - KVBLK_KEYSPACE_LEN;

	Keys(const Params &params, const std::string &secret) : doca_(params.doca_keys)
	{
		init(&by_name_, "object", params.salt, secret);
		init(&by_id_, "object by id", params.salt, secret);
		init(&volumes_, "volume, blocks of " + std::to_string(params.blk_size), params.salt,
		     secret);
	}

	/* Returns the key of an object, or "" if its name is too long. */
	std::string object(const std::string &name, uint64_t id) const
	{
		/* separates the keys from those of key spaces, which begin with "kvb1" */
		const std::string prefix("nvme-kv", 8);

		if (!doca_)
			return name.empty() ? join(by_id_, bytes(id)) : join(by_name_, name);
		if (name.empty())
			return prefix + bytes(id);
		if (auto raw = unhex(name))
			return prefix + *raw;
		return name.size() <= DOCA_KEY_MAX ? prefix + name : "";
	}

	/* Returns the key of a volume's block. */
	std::string block(uint64_t volume, uint64_t number) const
	{
		return join(volumes_, bytes(volume) + bytes(number));
	}
};

} // namespace kvblk_nixl

#endif
