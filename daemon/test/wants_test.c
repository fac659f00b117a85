// SPDX-License-Identifier: MIT
/*
 * Keys in hex, the map of sessions, and requests with flipped bits, which are at most rejected;
 * run under sanitizers. prestage_test.py checks the texts of rejections.
 */
#include <errno.h>

#include "kvblk_test.h"
#include "prestage/hint_json.h"

#define USER	1000
#define OTHER	1001

static void chain_of(const char *text, struct chain *chain)
{
	json_t *json = json_loads(text, 0, NULL);

	assert_null(chain_read(json, chain));
	json_decref(json);
}

TEST(test_keys)
{
	struct chain chain, copy;

	chain_of("[\"00fF\", \"0a\", \"61626364\"]", &chain);
	assert_int_equal(chain.nr, 3);
	assert_int_equal(chain.bytes, 7);
	assert_int_equal(chain.lens[0] * 100 + chain.lens[1] * 10 + chain.lens[2], 214);
	assert_memory_equal(chain.keys, "\0\xff\nabcd", 7);
	assert_true(chain_copy(&chain, &copy));
	chain_free(&chain);
	assert_null(chain.keys);
	assert_memory_equal(copy.keys, "\0\xff\nabcd", 7);
	chain_free(&copy);
}

/* Add @nr sessions "0", "1", ... with @bytes bytes of keys each. */
static void fill(struct sessions *sessions, int nr, size_t bytes)
{
	struct chain chain = {
		.nr = 1, .bytes = bytes, .lens = (uint16_t[]){ (uint16_t)bytes },
		.keys = calloc(1, bytes),
	};
	char id[16];

	for (int i = 0; i < nr; i++) {
		snprintf(id, sizeof(id), "%d", i);
		assert_int_equal(sessions_set(sessions, USER, id, "kv0", &chain), 0);
	}
	free(chain.keys);
}

TEST(test_sessions)
{
	struct sessions_rules rules = { .sessions = 100, .bytes = 1 << 20 };
	struct sessions *sessions = sessions_new();
	const struct session *session;
	struct chain chain;

	chain_of("[\"616263\"]", &chain);
	/* no sessions are allowed before rules are set */
	assert_int_equal(sessions_set(sessions, USER, "s", "kv0", &chain), -E2BIG);
	sessions_configure(sessions, &rules);
	assert_null(sessions_get(sessions, USER, "s"));
	assert_int_equal(sessions_set(sessions, USER, "s", "kv0", &chain), 0);
	assert_null(sessions_get(sessions, OTHER, "s"));
	assert_int_equal(sessions_set(sessions, OTHER, "s", "kv1", &chain), 0);
	session = sessions_get(sessions, USER, "s");
	assert_string_equal(session->pool, "kv0");
	assert_memory_equal(session->chain.keys, "abc", 3);
	assert_string_equal(sessions_get(sessions, OTHER, "s")->pool, "kv1");
	chain_free(&chain);

	/* the other user's session is older, but that user has fewer */
	fill(sessions, 100, 10);
	assert_int_equal(sessions_nr(sessions), 100);
	assert_null(sessions_get(sessions, USER, "s"));
	assert_null(sessions_get(sessions, USER, "0"));
	assert_non_null(sessions_get(sessions, OTHER, "s"));
	/* using a session keeps it; setting it again does not add one */
	assert_non_null(sessions_get(sessions, USER, "1"));
	fill(sessions, 1, 20);
	assert_int_equal(sessions_nr(sessions), 100);
	assert_null(sessions_get(sessions, USER, "2"));
	rules.sessions = 3;
	sessions_configure(sessions, &rules);
	assert_int_equal(sessions_nr(sessions), 3);
	assert_int_equal(sessions_get(sessions, USER, "0")->chain.bytes, 20);
	assert_non_null(sessions_get(sessions, USER, "1"));
	assert_non_null(sessions_get(sessions, OTHER, "s"));
	sessions_free(sessions);
}

TEST(test_bytes)
{
	struct sessions_rules rules = { .sessions = 1000000, .bytes = 10000 };
	struct sessions *sessions = sessions_new();
	size_t nr;

	sessions_configure(sessions, &rules);
	fill(sessions, 1000, 512);
	nr = sessions_nr(sessions);
	assert_in_range(nr, 5, 10000 / 512);
	rules.bytes /= 2;
	sessions_configure(sessions, &rules);
	assert_in_range(sessions_nr(sessions), 2, (nr + 1) / 2);
	assert_non_null(sessions_get(sessions, USER, "999"));
	sessions_free(sessions);
}

/* However many sessions a user has, other users keep theirs. */
TEST(test_users)
{
	struct sessions_rules rules = { .sessions = 100, .bytes = 1 << 20 };
	struct sessions *sessions = sessions_new();
	uint16_t len = 1;
	uint8_t key = 1;
	const struct chain chain = { .nr = 1, .bytes = 1, .lens = &len, .keys = &key };

	sessions_configure(sessions, &rules);
	assert_int_equal(sessions_set(sessions, OTHER, "theirs", "kv0", &chain), 0);
	fill(sessions, 1000, 1);
	assert_int_equal(sessions_nr(sessions), rules.sessions);
	assert_non_null(sessions_get(sessions, OTHER, "theirs"));
	assert_null(sessions_get(sessions, USER, "theirs"));
	assert_non_null(sessions_get(sessions, USER, "999"));
	assert_null(sessions_get(sessions, USER, "0"));
	sessions_free(sessions);
}

/*
 * The victim is the user with the most sessions if sessions are short, with the most bytes if
 * bytes are short.
 */
TEST(test_most)
{
	struct sessions_rules rules = { .sessions = 10, .bytes = 1 << 20 };
	struct sessions *sessions = sessions_new();
	uint8_t *key = calloc(1, 10000);
	uint16_t len = 10000;
	const struct chain chain = { .nr = 1, .bytes = len, .lens = &len, .keys = key };

	sessions_configure(sessions, &rules);
	assert_int_equal(sessions_set(sessions, OTHER, "long", "kv0", &chain), 0);
	fill(sessions, 20, 1);
	assert_non_null(sessions_get(sessions, OTHER, "long"));
	assert_int_equal(sessions_nr(sessions), 10);
	rules.bytes = 10000;
	sessions_configure(sessions, &rules);
	assert_null(sessions_get(sessions, OTHER, "long"));
	assert_int_equal(sessions_nr(sessions), 9);
	sessions_free(sessions);
	free(key);
}

static const char *const requests[] = {
	"{\"pool\": \"kv0\", \"keys\": [\"00ff\", \"abcdef\"], \"session_id\": \"s-1\", \"mode\": \"lookup\","
	" \"lease_ms\": 500, \"max_bytes\": 1000000, \"deadline\": 1795000000.5, \"priority\": 2,"
	" \"stop_at_miss\": true}",
	"{\"pool\": \"kv0\", \"keys\": [\"00ff\", \"abcdef\"]}",
	"{\"protocol_version\": \"0.1\", \"message_id\": \"m\", \"actions\": [{\"action_id\": \"a\", \"action_type\":"
	" \"kv_hint.prefetch.v1\", \"action_version\": \"1\", \"payload\": {\"keys\": [\"aa\"]}}]}",
};

/* Returns true if any reader accepts @json. */
static bool taken(const json_t *json)
{
	char why[WANTS_WHY_LEN] = "";
	struct want want;
	bool is;

	is = want_read(json, 60000, &want, why);
	want_free(&want);
	is |= want_read_keys(json, &want, why);
	want_free(&want);
	is |= json_is_object(json) && want_read_hint(json, true, &want, why);
	want_free(&want);
	is |= hints_check(json, why);
	assert_true(is || *why);
	return is;
}

TEST(test_mutated)
{
	static const char bits[] = "{}[]:,\"\\ 0-9aefltE.\x80";
	const char *rounds = getenv("KVBLK_FUZZ");
	char text[400];
	json_t *json;

	srandom(1);
	for (long i = rounds ? atol(rounds) : 20000; i > 0; i--) {
		size_t len = strlen(requests[i % 3]);

		memcpy(text, requests[i % 3], len);
		for (long changes = random() % 4; changes; changes--)
			text[(size_t)random() % len] = bits[(size_t)random() % (sizeof(bits) - 1)];
		json = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
		if (json)
			taken(json);
		json_decref(json);
	}
	for (int i = 0; i < 3; i++) {
		json = json_loads(requests[i], 0, NULL);
		assert_true(taken(json));
		json_decref(json);
	}
}

TEST(test_values)
{
	json_t *json = json_loads(requests[0], 0, NULL);
	char why[WANTS_WHY_LEN];
	struct want want;

	assert_true(want_read(json, 60000, &want, why));
	assert_string_equal(want.pool, "kv0");
	assert_string_equal(want.session, "s-1");
	assert_int_equal(want.chain.nr, 2);
	assert_int_equal(want.lease_ms, 500);
	assert_int_equal(want.max_bytes, 1000000);
	assert_true(want.deadline_ns && want.stop_at_miss);
	assert_int_equal(want.priority, 2);
	want_free(&want);
	/* default: the longest lease; no lease without LOOKUP */
	json_object_del(json, "lease_ms");
	assert_true(want_read(json, 60000, &want, why));
	assert_int_equal(want.lease_ms, 60000);
	want_free(&want);
	json_object_set_new(json, "mode", json_string("WARM"));
	assert_true(want_read(json, 60000, &want, why));
	assert_int_equal(want.lease_ms, 0);
	want_free(&want);
	json_decref(json);
}

TEST_MAIN("wants")
