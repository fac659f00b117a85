// SPDX-License-Identifier: MIT
/* Chains of keys and the map of sessions, see chains.h: a hash table of lists, and one list by age. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <linux/kvblk.h>

#include "chains.h"

#define BUCKETS		4096u

/* ---- chains ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* false: @text is not @len bytes in hex digits. */
static bool read_hex(const char *text, uint8_t *to, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		to[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

static const char *read_key(const json_t *key, struct chain *chain)
{
	size_t digits = json_string_length(key);

	if (!json_is_string(key) || digits % 2 || digits < 2 || digits > 2 * KVBLK_KEY_MAX)
		return "a key must be a text of 2 to 1024 hex digits, an even number of them";
	if (!read_hex(json_string_value(key), chain->keys + chain->bytes, digits / 2))
		return "a key has a letter that is no hex digit";
	chain->lens[chain->nr++] = (uint16_t)(digits / 2);
	chain->bytes += digits / 2;
	return NULL;
}

static bool chain_alloc(struct chain *chain, size_t nr, size_t bytes)
{
	*chain = (struct chain){
		.lens = calloc(nr, sizeof(*chain->lens)),
		.keys = malloc(bytes),
	};
	if (chain->lens && chain->keys)
		return true;
	chain_free(chain);
	return false;
}

const char *chain_read(const json_t *list, struct chain *chain)
{
	size_t nr = json_array_size(list), bytes = 1, i;
	const char *wrong = NULL;
	const json_t *key;

	*chain = (struct chain){ 0 };
	if (!nr || nr > KVBLK_LOOKUP_MAX)
		return "keys must be a list of 1 to 65536 keys";
	json_array_foreach(list, i, key)
		bytes += json_string_length(key) / 2;
	if (!chain_alloc(chain, nr, bytes))
		return "there is no memory for the keys";
	for (i = 0; i < nr && !wrong; i++)
		wrong = read_key(json_array_get(list, i), chain);
	if (wrong)
		chain_free(chain);
	return wrong;
}

bool chain_copy(const struct chain *chain, struct chain *copy)
{
	if (!chain_alloc(copy, chain->nr, chain->bytes))
		return false;
	copy->nr = chain->nr;
	copy->bytes = chain->bytes;
	memcpy(copy->lens, chain->lens, chain->nr * sizeof(*chain->lens));
	memcpy(copy->keys, chain->keys, chain->bytes);
	return true;
}

void chain_free(struct chain *chain)
{
	free(chain->lens);
	free(chain->keys);
	*chain = (struct chain){ 0 };
}

/* ---- sessions ---- */

/**
 * struct entry - a session in the map
 * @older: named before it, NULL: none was
 * @newer: likewise, after it
 * @by_place: in its bucket
 * @bytes: that count for it
 */
struct entry {
	struct entry *older, *newer;
	LIST_ENTRY(entry) by_place;
	uid_t uid;
	size_t bytes;
	struct session session;
	char id[CHAINS_SESSION_MAX + 1];
};

struct sessions {
	struct sessions_rules rules;
	size_t nr;
	size_t bytes;
	struct entry *oldest, *newest;
	LIST_HEAD(bucket, entry) buckets[BUCKETS];
};

struct sessions *sessions_new(void)
{
	return calloc(1, sizeof(struct sessions));
}

static struct bucket *bucket_of(struct sessions *sessions, uid_t uid, const char *id)
{
	uint32_t hash = 2166136261u ^ (uint32_t)uid;

	for (; *id; id++)
		hash = (hash ^ (unsigned char)*id) * 16777619u;
	return &sessions->buckets[hash % BUCKETS];
}

static struct entry *find(struct sessions *sessions, uid_t uid, const char *id)
{
	struct entry *entry;

	LIST_FOREACH(entry, bucket_of(sessions, uid, id), by_place) {
		if (entry->uid == uid && !strcmp(entry->id, id))
			return entry;
	}
	return NULL;
}

static void add_newest(struct sessions *sessions, struct entry *entry)
{
	entry->older = sessions->newest;
	entry->newer = NULL;
	if (sessions->newest)
		sessions->newest->newer = entry;
	else
		sessions->oldest = entry;
	sessions->newest = entry;
}

static void take_out(struct sessions *sessions, struct entry *entry)
{
	if (sessions->oldest == entry)
		sessions->oldest = entry->newer;
	else
		entry->older->newer = entry->newer;
	if (sessions->newest == entry)
		sessions->newest = entry->older;
	else
		entry->newer->older = entry->older;
}

static void forget(struct sessions *sessions, struct entry *entry)
{
	take_out(sessions, entry);
	LIST_REMOVE(entry, by_place);
	sessions->nr--;
	sessions->bytes -= entry->bytes;
	chain_free(&entry->session.chain);
	free(entry);
}

static void make_room(struct sessions *sessions, size_t nr, size_t bytes)
{
	while (sessions->oldest && (sessions->nr + nr > sessions->rules.sessions ||
				    sessions->bytes + bytes > sessions->rules.bytes))
		forget(sessions, sessions->oldest);
}

void sessions_free(struct sessions *sessions)
{
	while (sessions->oldest)
		forget(sessions, sessions->oldest);
	free(sessions);
}

void sessions_configure(struct sessions *sessions, const struct sessions_rules *rules)
{
	sessions->rules = *rules;
	make_room(sessions, 0, 0);
}

bool sessions_is_id(const char *id)
{
	size_t len = strlen(id);

	if (!len || len > CHAINS_SESSION_MAX)
		return false;
	for (; *id; id++) {
		if (!isgraph((unsigned char)*id) || *id == '/')
			return false;
	}
	return true;
}

int sessions_set(struct sessions *sessions, uid_t uid, const char *id, const char *pool,
		 const struct chain *chain)
{
	size_t bytes = sizeof(struct entry) + chain->bytes + chain->nr * sizeof(*chain->lens);
	struct entry *entry, *old;

	if (!sessions->rules.sessions || bytes > sessions->rules.bytes)
		return -E2BIG;
	entry = calloc(1, sizeof(*entry));
	if (!entry || !chain_copy(chain, &entry->session.chain)) {
		free(entry);
		return -ENOMEM;
	}
	old = find(sessions, uid, id);
	if (old)
		forget(sessions, old);
	make_room(sessions, 1, bytes);
	entry->uid = uid;
	entry->bytes = bytes;
	snprintf(entry->id, sizeof(entry->id), "%s", id);
	snprintf(entry->session.pool, sizeof(entry->session.pool), "%s", pool);
	add_newest(sessions, entry);
	LIST_INSERT_HEAD(bucket_of(sessions, uid, id), entry, by_place);
	sessions->nr++;
	sessions->bytes += bytes;
	return 0;
}

const struct session *sessions_get(struct sessions *sessions, uid_t uid, const char *id)
{
	struct entry *entry = find(sessions, uid, id);

	if (!entry)
		return NULL;
	take_out(sessions, entry);
	add_newest(sessions, entry);
	return &entry->session;
}

size_t sessions_nr(const struct sessions *sessions)
{
	return sessions->nr;
}
