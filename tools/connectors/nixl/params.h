/* SPDX-License-Identifier: MIT */
/*
 * The plugin's parameters: strings that a user of NIXL passes to createBackend().
 *
 * Each is a row of one table (params.cpp), with default and check. An unknown or invalid
 * parameter is rejected with a message.
 */
#ifndef KVBLK_NIXL_PARAMS_H
#define KVBLK_NIXL_PARAMS_H

#include <cstdint>
#include <optional>
#include <string>

#include <kvblk.h>
#include <kvblk_keys.h>

#include "nixl_types.h"

namespace kvblk_nixl {

struct Params {
	std::string pool;	/* name, or path of a node */
	std::string nguid;
	std::string salt;
	std::string salt_file;	/* of the deployment's salt; empty: none */
	std::string active;	/* ignored: SGLang passes its marker of the active plugin */
	bool doca_keys = false;	/* as in DOCA_MEMOS, with a prefix that no key space has */
	uint32_t threads = 0;
	uint32_t num_tasks = 0;
	uint32_t timeout_ms = 0;	/* 0: no timeout */
	uint32_t ttl_s = 0;
	uint32_t priority = 0;
	uint32_t blk_size = 0;
	bool hard_deadline = false;
	bool overwrite = false;
	bool ignore_read_not_found = false;
	bool ignore_put_declined = false;
	bool assume_success = false;	/* accepted, but has no effect */
};

/* Throws std::invalid_argument with a message. */
Params parse_params(const nixl_b_params_t &texts);

/*
 * Read the deployment's salt. Returns "", with one warning, if there is no file. Throws
 * std::runtime_error if the salt can't be used.
 */
std::string read_secret(const Params &params);

/* Defaults of all parameters, for getPluginParams(); empty: not set. */
nixl_b_params_t default_params();

/* Check that @nguid, if set, is @info's pool. Throws std::invalid_argument. */
void check_nguid(const std::string &nguid, const struct kvblk_info &info);

/* Decode a hexadecimal string of up to 32 digits by the rule of DOCA_MEMOS. */
std::optional<std::string> unhex(const std::string &text);

} // namespace kvblk_nixl

#endif
