// SPDX-License-Identifier: MIT
/* Requests in JSON, see hint_json.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include <linux/kvblk.h>

#include "config/settings.h"
#include "prestage/hint_json.h"

#define SECOND_NS	1000000000ull

__attribute__((format(printf, 2, 3)))
static bool wrong(char why[WANTS_WHY_LEN], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, WANTS_WHY_LEN, format, args);
	va_end(args);
	return false;
}

/* Readers of a field. If the value is invalid, they return false and write a sentence to @why. */

static bool read_pool(const json_t *json, struct want *want, char *why)
{
	const char *name = json_string_value(json);

	if (!name || !is_pool_name(name))
		return wrong(why, "pool must be the name of a pool");
	snprintf(want->pool, sizeof(want->pool), "%s", name);
	return true;
}

static bool read_keys(const json_t *json, struct want *want, char *why)
{
	const char *sentence = chain_read(json, &want->chain);

	return sentence ? wrong(why, "%s", sentence) : true;
}

static bool read_session(const json_t *json, struct want *want, char *why)
{
	const char *id = json_string_value(json);

	if (!id || strlen(id) != json_string_length(json) || !sessions_is_id(id))
		return wrong(why, "session_id must be a string of 1 to %d characters without blanks and slashes",
			     CHAINS_SESSION_MAX);
	snprintf(want->session, sizeof(want->session), "%s", id);
	return true;
}

/* Read LMCache's mode: LOOKUP locks the blocks, which is a lease here; WARM does not. */
static bool read_mode(const json_t *json, struct want *want, char *why)
{
	const char *mode = json_string_value(json);

	if (!mode || (strcasecmp(mode, "warm") != 0 && strcasecmp(mode, "lookup") != 0))
		return wrong(why, "mode must be warm or lookup");
	if (!strcasecmp(mode, "warm"))
		want->lease_ms = 0;
	return true;
}

static bool read_number(const json_t *json, const char *name, uint64_t least, uint64_t most, uint64_t *value, char *why)
{
	if (!json_is_integer(json) || json_integer_value(json) < (json_int_t)least ||
	    (uint64_t)json_integer_value(json) > most)
		return wrong(why, "%s must be a number from %" PRIu64 " to %" PRIu64, name, least, most);
	*value = (uint64_t)json_integer_value(json);
	return true;
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Convert the deadline to CLOCK_MONOTONIC. A past one becomes 1, because 0 means none. */
static bool read_deadline(const json_t *json, struct want *want, char *why)
{
	double seconds = json_number_value(json);
	uint64_t real = clock_ns(CLOCK_REALTIME), at;

	if (!(seconds > 0 && seconds < 1e10))
		return wrong(why, "deadline must be a time in seconds since 1970");
	at = (uint64_t)(seconds * 1e9);
	want->deadline_ns = at > real ? clock_ns(CLOCK_MONOTONIC) + (at - real) : 1;
	return true;
}

static bool read_stop(const json_t *json, struct want *want, char *why)
{
	if (!json_is_boolean(json))
		return wrong(why, "stop_at_miss must be true or false");
	want->stop_at_miss = json_is_true(json);
	return true;
}

static bool read_rule(const char *name, const json_t *json, uint64_t lease_ms, struct want *want,
		      char *why)
{
	uint64_t lease = 0;

	if (!strcmp(name, "session_id"))
		return read_session(json, want, why);
	if (!strcmp(name, "mode"))
		return read_mode(json, want, why);
	if (!strcmp(name, "max_bytes"))
		return read_number(json, name, 1, INT64_MAX, &want->max_bytes, why);
	if (!strcmp(name, "deadline"))
		return read_deadline(json, want, why);
	if (!strcmp(name, "stop_at_miss"))
		return read_stop(json, want, why);
	if (!strcmp(name, "priority"))
		return read_number(json, name, 0, KVBLK_PRIORITY_MAX, &want->priority, why);
	if (strcmp(name, "lease_ms") != 0)
		return wrong(why, "unknown field \"%.40s\"; known fields: pool, keys, session_id, mode, lease_ms, max_bytes, deadline, priority, stop_at_miss",
			     name);
	if (!read_number(json, name, 1, lease_ms, &lease, why))
		return false;
	if (!want->lease_ms)
		return wrong(why, "lease_ms requires the mode lookup");
	want->lease_ms = (uint32_t)lease;
	return true;
}

bool want_read(const json_t *json, uint32_t lease_ms, struct want *want, char why[WANTS_WHY_LEN])
{
	const json_t *mode = json_object_get(json, "mode"), *value;
	void *at = json_object_iter((json_t *)(uintptr_t)json);
	bool good = true;

	*want = (struct want){ 0 };
	if (!json_is_object(json))
		return wrong(why, "the request must be a JSON object");
	/* set first: lease_ms depends on the mode */
	want->lease_ms = mode ? lease_ms : 0;
	if (mode && !read_mode(mode, want, why))
		return false;
	for (; at && good; at = json_object_iter_next((json_t *)(uintptr_t)json, at)) {
		const char *name = json_object_iter_key(at);

		value = json_object_iter_value(at);
		if (!strcmp(name, "pool"))
			good = read_pool(value, want, why);
		else if (!strcmp(name, "keys"))
			good = read_keys(value, want, why);
		else
			good = read_rule(name, value, lease_ms, want, why);
	}
	if (good && !want->chain.nr && !*want->session)
		return wrong(why, "keys or session_id is missing");
	return good;
}

bool want_read_keys(const json_t *json, struct want *want, char why[WANTS_WHY_LEN])
{
	const json_t *pool = json_object_get(json, "pool"), *keys = json_object_get(json, "keys");

	*want = (struct want){ 0 };
	if (!json_is_object(json) || json_object_size(json) != (size_t)!!pool + !!keys)
		return wrong(why, "the request must be a JSON object with pool and keys");
	if (!keys)
		return wrong(why, "keys is missing");
	return (!pool || read_pool(pool, want, why)) && read_keys(keys, want, why);
}

bool want_read_hint(const json_t *json, bool retains, struct want *want, char why[WANTS_WHY_LEN])
{
	const json_t *seconds = json_object_get(json, "seconds"), *pool = json_object_get(json, "pool");
	const json_t *keys = json_object_get(json, "keys"), *session = json_object_get(json, "session_id");

	*want = (struct want){ 0 };
	if (json_object_size(json) != (size_t)!!pool + !!keys + !!session + (retains && seconds))
		return wrong(why, "unknown field; known fields: pool, keys, session_id%s", retains ? ", seconds" : "");
	if (!keys && !session)
		return wrong(why, "keys or session_id is missing");
	if (retains && !seconds)
		return wrong(why, "seconds is missing");
	return (!pool || read_pool(pool, want, why)) && (!keys || read_keys(keys, want, why)) &&
	       (!session || read_session(session, want, why)) &&
	       (!retains || read_number(seconds, "seconds", 0, KVBLK_RETAIN_MAX, &want->retain_s, why));
}

void want_free(struct want *want)
{
	chain_free(&want->chain);
}

static bool has_text(const json_t *json, const char *name)
{
	return json_string_length(json_object_get(json, name)) > 0;
}

static bool check_action(const json_t *action, size_t i, char *why)
{
	static const char *const texts[] = { "action_id", "action_type", "action_version" };

	for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
		if (!has_text(action, texts[t]))
			return wrong(why, "actions[%zu].%s must be a string", i, texts[t]);
	}
	if (!json_is_object(json_object_get(action, "payload")))
		return wrong(why, "actions[%zu].payload must be an object", i);
	return true;
}

bool hints_check(const json_t *json, char why[WANTS_WHY_LEN])
{
	const json_t *actions = json_object_get(json, "actions"), *action;
	const char *version = json_string_value(json_object_get(json, "protocol_version"));
	size_t i;

	if (!json_is_object(json))
		return wrong(why, "the request must be a JSON object");
	if (!version || strcmp(version, "0.1") != 0)
		return wrong(why, "protocol_version must be \"0.1\"");
	if (!has_text(json, "message_id"))
		return wrong(why, "message_id must be a string");
	if (!json_is_array(actions) || !json_array_size(actions) || json_array_size(actions) > 1024)
		return wrong(why, "actions must be a list of 1 to 1024 actions");
	json_array_foreach(actions, i, action) {
		if (!check_action(action, i, why))
			return false;
	}
	return true;
}
