/* SPDX-License-Identifier: MIT */
/*
 * The plugin's parameters: texts that a user of NIXL gives at createBackend().
 *
 * Rule: each is a row of one table (params.cpp), with its default and its check; what
 * is not in the table, or does not fit, is refused with one sentence.
 */
#ifndef KVBLK_NIXL_PARAMS_H
#define KVBLK_NIXL_PARAMS_H

#include <cstdint>
#include <optional>
#include <string>

#include <kvblk.h>

#include "nixl_types.h"

namespace kvblk_nixl {

enum class KeyRule {
	Keyspace,	/* a key space of libkvblk, up to 492 bytes of the caller's */
	DocaMemos,	/* as DOCA_MEMOS makes them, in the space of NVMe's commands */
};

struct Params {
	std::string pool;	/* a name, or a node's path */
	std::string nguid;
	std::string salt;
	KeyRule key_rule = KeyRule::Keyspace;
	uint32_t threads = 0;
	uint32_t num_tasks = 0;
	uint32_t timeout_ms = 0;	/* 0: none */
	uint32_t ttl_s = 0;
	uint32_t priority = 0;
	uint32_t blk_size = 0;
	bool hard_deadline = false;
	bool overwrite = false;
	bool ignore_read_not_found = false;
	bool ignore_put_declined = false;
	bool assume_success = false;	/* asked for, but not done */
};

/* Throws std::invalid_argument with the sentence. */
Params parse_params(const nixl_b_params_t &texts);

/* Of all parameters, as getPluginParams() tells them; empty: not set. */
const nixl_b_params_t &default_params();

/* That @nguid, if there is one, is @info's pool; throws as above. */
void check_nguid(const std::string &nguid, const struct kvblk_info &info);

/* DOCA_MEMOS' rule for hexadecimal texts of up to 32 digits. */
std::optional<std::string> unhex(const std::string &text);

} // namespace kvblk_nixl

#endif
