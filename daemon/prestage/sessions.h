/* SPDX-License-Identifier: MIT */
/*
 * Chains of keys, and the map from sessions to chains. A chain is the sequence of a prompt's
 * blocks, each named by its prefix. The numbers of sessions and bytes are limited. If a limit is
 * reached, the user with the most sessions or bytes loses the session used longest ago.
 */
#ifndef KVBLKD_PRESTAGE_SESSIONS_H
#define KVBLKD_PRESTAGE_SESSIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/kvblk_netlink.h>

#define CHAINS_SESSION_MAX	128	/* longest session id */
#define CHAINS_POOL_LEN		(KVBLK_NAME_LEN_MAX + 1)

/**
 * struct chain - keys in the order of use
 * @nr: number of keys, 0: no chain
 * @bytes: bytes of all keys
 * @lens: length of each key
 * @keys: the keys, concatenated
 */
struct chain {
	unsigned int nr;
	size_t bytes;
	uint16_t *lens;
	uint8_t *keys;
};

/* Parse a list of keys in hex digits. Returns NULL, or a sentence about the error. */
const char *chain_read(const json_t *list, struct chain *chain);
/* Returns false without memory. */
bool chain_copy(const struct chain *chain, struct chain *copy);
void chain_free(struct chain *chain);

/**
 * struct session - a session
 * @pool: pool of the blocks
 * @chain: keys of the blocks
 */
struct session {
	char pool[CHAINS_POOL_LEN];
	struct chain chain;
};

/**
 * struct sessions_rules - limits of the map
 * @sessions: most sessions
 * @bytes: memory of all keys
 */
struct sessions_rules {
	size_t sessions;
	size_t bytes;
};

struct sessions;

/* Returns NULL without memory. */
struct sessions *sessions_new(void);
void sessions_free(struct sessions *sessions);

/* Set the limits and drop what exceeds them. */
void sessions_configure(struct sessions *sessions, const struct sessions_rules *rules);

/* Accept up to CHAINS_SESSION_MAX printable characters without blanks and slashes. */
bool sessions_is_id(const char *id);

/*
 * Store a copy of @chain as session @id of user @uid. Returns 0, -ENOMEM, or -E2BIG if the chain
 * alone exceeds the map's limit; with -E2BIG the session's previous chain stays.
 */
int sessions_set(struct sessions *sessions, uid_t uid, const char *id, const char *pool,
		 const struct chain *chain);

/* Returns the session, valid until the next call; NULL if it is unknown. */
const struct session *sessions_get(struct sessions *sessions, uid_t uid, const char *id);

size_t sessions_nr(const struct sessions *sessions);

#endif
