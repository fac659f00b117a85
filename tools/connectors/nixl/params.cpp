// SPDX-License-Identifier: MIT
#include "params.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "common/nixl_log.h"

#ifndef KVBLK_KEY_RULE
#define KVBLK_KEY_RULE "kvblk"
#endif

namespace kvblk_nixl {

namespace {

using Setter = std::function<std::string(Params &, const std::string &)>;

struct Row {
	const char *name;
	const char *fallback;
	Setter set;	/* returns "", or a description of valid values */
};

Setter number(uint32_t Params::*field, uint32_t least, uint32_t most, uint32_t unit = 1)
{
	return [=](Params &params, const std::string &text) -> std::string {
		const char *end = text.data() + text.size();
		uint32_t value = 0;
		auto [stop, error] = std::from_chars(text.data(), end, value);
		std::string wanted = "a number from " + std::to_string(least) + " to " +
				     std::to_string(most);

		if (unit > 1)
			wanted += " that is a multiple of " + std::to_string(unit);
		if (error != std::errc() || stop != end || value < least || value > most ||
		    value % unit)
			return wanted;
		params.*field = value;
		return "";
	};
}

/* Sets @field to @first if the text is @one, and to the opposite if the text is @other. */
Setter either(bool Params::*field, bool first = true, const std::string &one = "true",
	      const std::string &other = "false")
{
	return [=](Params &params, const std::string &text) -> std::string {
		if (text != one && text != other)
			return "\"" + one + "\" or \"" + other + "\"";
		params.*field = (text == one) == first;
		return "";
	};
}

Setter word(std::string Params::*field)
{
	return [=](Params &params, const std::string &text) -> std::string {
		/* libkvblk takes NUL-terminated strings */
		if (text.find('\0') != std::string::npos)
			return "a text without a NUL";
		params.*field = text;
		return "";
	};
}

/* A parameter with two names: ours, and that of the plugin that this one replaces. */
Setter alias(std::string Params::*field, const char *names)
{
	return [=](Params &params, const std::string &text) -> std::string {
		std::string &value = params.*field;

		if (text.empty())
			return "";
		if (!value.empty() && value != text)
			return std::string("the same as the other one of ") + names;
		return word(field)(params, text);
	};
}

const Row rows[] = {
	{ "pool", "", word(&Params::pool) },
	{ "device_name", "", alias(&Params::pool, "pool and device_name") },
	{ "nguid", "", word(&Params::nguid) },
	{ "salt", "", word(&Params::salt) },
	{ "bucket", "", alias(&Params::salt, "salt and bucket") },
	{ "salt_file", KVBLK_SALT_FILE, word(&Params::salt_file) },
	{ "active", "", word(&Params::active) },
	{ "key_rule", KVBLK_KEY_RULE, either(&Params::doca_keys, false, "kvblk", "doca_memos") },
	{ "query_mem_mode", "actual",
	  either(&Params::assume_success, false, "actual", "assume_success") },
	{ "threads", "4", number(&Params::threads, 1, KVBLK_QUEUE_THREADS_MAX) },
	{ "num_tasks", "8192", number(&Params::num_tasks, 1, UINT32_MAX) },
	{ "timeout_ms", "10000", number(&Params::timeout_ms, 0, 3600000) },
	{ "ttl_s", "0", number(&Params::ttl_s, 0, KVBLK_TTL_MAX) },
	{ "priority", "0", number(&Params::priority, 0, KVBLK_PRIORITY_MAX) },
	{ "blk_size", "65536", number(&Params::blk_size, 512, KVBLK_VALUE_MAX, 512) },
	{ "hard_deadline", "false", either(&Params::hard_deadline) },
	{ "overwrite", "true", either(&Params::overwrite) },
	{ "ignore_read_not_found", "false", either(&Params::ignore_read_not_found) },
	{ "ignore_put_declined", "false", either(&Params::ignore_put_declined) },
};

} // namespace

Params parse_params(const nixl_b_params_t &texts)
{
	Params params;

	for (const auto &text : texts) {
		if (!default_params().count(text.first))
			throw std::invalid_argument("there is no parameter \"" + text.first + "\"");
	}
	for (const Row &row : rows) {
		const auto given = texts.find(row.name);
		const std::string text = given == texts.end() ? row.fallback : given->second;
		const std::string wanted = row.set(params, text);

		if (!wanted.empty())
			throw std::invalid_argument("the parameter " + std::string(row.name) +
						    "=\"" + text + "\" is not " + wanted);
	}
	if (params.pool.empty())
		throw std::invalid_argument("the parameter pool is missing: a pool's name, "
					    "or the path of its node");
	if (params.doca_keys && !params.salt.empty())
		throw std::invalid_argument("key_rule=doca_memos leaves no place for a salt");
	return params;
}

std::string read_secret(const Params &params)
{
	static std::atomic<bool> warned;
	char salt[KVBLK_SALT_LEN + 1] = "";
	const char *why;
	int err;

	if (params.salt_file.empty())
		return "";
	err = kvblk_keyspace_salt(params.salt_file.c_str(), salt, &why);
	if (err && err != -ENOENT)
		throw std::runtime_error("the salt " + params.salt_file + " can't be used: " + why +
					 "; the parameter salt_file names another file (\"\": none)");
	if (err && !warned.exchange(true))
		NIXL_WARN << params.salt_file << ": no such file, so the keys have no secret, and "
			  << "anybody who can open the pool and guess a key can store a wrong block; "
			  << "start kvblkd first, or copy the file of a host that shares blocks";
	return salt;
}

nixl_b_params_t default_params()
{
	nixl_b_params_t texts;

	for (const Row &row : rows)
		texts[row.name] = row.fallback;
	return texts;
}

void check_nguid(const std::string &nguid, const struct kvblk_info &info)
{
	std::string digits = nguid;

	if (nguid.empty())
		return;
	digits.erase(std::remove(digits.begin(), digits.end(), '-'), digits.end());
	const std::string uuid = unhex(digits).value_or("");

	if (uuid.size() != sizeof(info.pool_uuid))
		throw std::invalid_argument("the parameter nguid=\"" + nguid +
					    "\" is not 32 hexadecimal digits");
	if (memcmp(uuid.data(), info.pool_uuid, uuid.size()))
		throw std::invalid_argument("the parameter nguid=\"" + nguid +
					    "\" is not the UUID of pool " + info.pool_name);
}

std::optional<std::string> unhex(const std::string &text)
{
	std::string bytes;

	if (text.empty() || text.size() % 2 || text.size() > 32)
		return std::nullopt;
	for (size_t i = 0; i < text.size(); i += 2) {
		const char *const end = text.data() + i + 2;
		unsigned char byte = 0;

		if (std::from_chars(end - 2, end, byte, 16).ptr != end)
			return std::nullopt;
		bytes += static_cast<char>(byte);
	}
	return bytes;
}

} // namespace kvblk_nixl
