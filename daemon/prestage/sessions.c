// SPDX-License-Identifier: MIT
/*
 * Chains of keys and the map of sessions, see sessions.h. Each user has a list of sessions by
 * age and a tree by id. The tree is balanced, because clients choose the ids.
 */
#include <ctype.h>
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/kvblk.h>

#include "prestage/sessions.h"

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decode @len bytes of hex digits. Returns false if @text has another character. */
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
		return "a key must be a string of 2 to 1024 hex digits, an even number";
	if (!read_hex(json_string_value(key), chain->keys + chain->bytes, digits / 2))
		return "a key has a character that is not a hex digit";
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
		return "out of memory for the keys";
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

/**
 * struct mapped - a session in the map
 * @id: id; first field, because the tree compares it
 * @older: next older session of the owner
 * @newer: next newer session of the owner
 * @bytes: memory of the session
 */
struct mapped {
	char id[CHAINS_SESSION_MAX + 1];
	struct mapped *older, *newer;
	size_t bytes;
	struct session session;
};

/**
 * struct owner - sessions of a user
 * @oldest: session used longest ago
 * @newest: session used last
 * @by_id: tree of tsearch(3)
 * @nr: number of sessions
 * @bytes: memory of all sessions
 */
struct owner {
	uid_t uid;
	struct mapped *oldest, *newest;
	void *by_id;
	size_t nr;
	size_t bytes;
};

struct sessions {
	struct sessions_rules rules;
	size_t nr;
	size_t bytes;
	struct owner **owners;
	size_t nr_owners;
};

struct sessions *sessions_new(void)
{
	return calloc(1, sizeof(struct sessions));
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

static struct owner *find_owner(struct sessions *sessions, uid_t uid)
{
	for (size_t i = 0; i < sessions->nr_owners; i++) {
		if (sessions->owners[i]->uid == uid)
			return sessions->owners[i];
	}
	return NULL;
}

/* Free an owner without sessions. */
static void put_owner(struct sessions *sessions, struct owner *owner)
{
	size_t i = 0;

	if (owner->oldest)
		return;
	while (sessions->owners[i] != owner)
		i++;
	sessions->owners[i] = sessions->owners[--sessions->nr_owners];
	free(owner);
}

static struct mapped *find(struct owner *owner, const char *id)
{
	void **node = owner ? tfind(id, &owner->by_id, compare) : NULL;

	return node ? *node : NULL;
}

static void add_newest(struct owner *owner, struct mapped *entry)
{
	entry->older = owner->newest;
	entry->newer = NULL;
	if (owner->newest)
		owner->newest->newer = entry;
	else
		owner->oldest = entry;
	owner->newest = entry;
}

static void take_out(struct owner *owner, struct mapped *entry)
{
	if (owner->oldest == entry)
		owner->oldest = entry->newer;
	else
		entry->older->newer = entry->newer;
	if (owner->newest == entry)
		owner->newest = entry->older;
	else
		entry->newer->older = entry->older;
}

static void entry_free(struct mapped *entry)
{
	chain_free(&entry->session.chain);
	free(entry);
}

/* Drop a session, and its owner if it was the last. */
static void forget(struct sessions *sessions, struct owner *owner, struct mapped *entry)
{
	tdelete(entry->id, &owner->by_id, compare);
	take_out(owner, entry);
	owner->nr--;
	owner->bytes -= entry->bytes;
	sessions->bytes -= entry->bytes;
	sessions->nr--;
	entry_free(entry);
	put_owner(sessions, owner);
}

/*
 * Drop sessions until @nr sessions and @bytes fit. The victim is the oldest session of the user
 * with the most sessions, or the most bytes if bytes are short.
 */
static void make_room(struct sessions *sessions, size_t nr, size_t bytes)
{
	for (;;) {
		bool too_many = sessions->nr + nr > sessions->rules.sessions;
		struct owner *most;

		if (!sessions->nr || (!too_many && sessions->bytes + bytes <= sessions->rules.bytes))
			return;
		most = sessions->owners[0];
		for (size_t i = 1; i < sessions->nr_owners; i++) {
			struct owner *owner = sessions->owners[i];

			if (too_many ? owner->nr > most->nr : owner->bytes > most->bytes)
				most = owner;
		}
		forget(sessions, most, most->oldest);
	}
}

void sessions_free(struct sessions *sessions)
{
	sessions->rules = (struct sessions_rules){ 0 };
	make_room(sessions, 0, 0);
	free(sessions->owners);
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

static struct owner *add_owner(struct sessions *sessions, uid_t uid)
{
	struct owner **more = reallocarray(sessions->owners, sessions->nr_owners + 1, sizeof(struct owner *));
	struct owner *owner = more ? calloc(1, sizeof(*owner)) : NULL;

	if (more)
		sessions->owners = more;
	if (!owner)
		return NULL;
	owner->uid = uid;
	more[sessions->nr_owners++] = owner;
	return owner;
}

/* Add @entry. Takes ownership of @entry. Returns 0 or -ENOMEM. */
static int add(struct sessions *sessions, uid_t uid, struct mapped *entry)
{
	struct owner *owner = find_owner(sessions, uid);

	if (!owner)
		owner = add_owner(sessions, uid);
	if (owner && tsearch(entry, &owner->by_id, compare)) {
		add_newest(owner, entry);
		owner->nr++;
		owner->bytes += entry->bytes;
		sessions->bytes += entry->bytes;
		sessions->nr++;
		return 0;
	}
	entry_free(entry);
	if (owner)
		put_owner(sessions, owner);
	return -ENOMEM;
}

int sessions_set(struct sessions *sessions, uid_t uid, const char *id, const char *pool,
		 const struct chain *chain)
{
	size_t bytes = sizeof(struct mapped) + chain->bytes + chain->nr * sizeof(*chain->lens);
	struct mapped *entry, *old;

	if (!sessions->rules.sessions || bytes > sessions->rules.bytes)
		return -E2BIG;
	entry = calloc(1, sizeof(*entry));
	if (!entry || !chain_copy(chain, &entry->session.chain)) {
		free(entry);
		return -ENOMEM;
	}
	entry->bytes = bytes;
	snprintf(entry->id, sizeof(entry->id), "%s", id);
	snprintf(entry->session.pool, sizeof(entry->session.pool), "%s", pool);
	old = find(find_owner(sessions, uid), id);
	if (old)
		forget(sessions, find_owner(sessions, uid), old);
	make_room(sessions, 1, bytes);
	return add(sessions, uid, entry);
}

const struct session *sessions_get(struct sessions *sessions, uid_t uid, const char *id)
{
	struct owner *owner = find_owner(sessions, uid);
	struct mapped *entry = find(owner, id);

	if (!entry)
		return NULL;
	take_out(owner, entry);
	add_newest(owner, entry);
	return &entry->session;
}

size_t sessions_nr(const struct sessions *sessions)
{
	return sessions->nr;
}
