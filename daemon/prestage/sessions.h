/* SPDX-License-Identifier: MIT */
/*
 * Chains of keys, and which session has which: a chain is a prompt's run of blocks, each
 * named by its prefix. Rule: the map has no more sessions, and no more bytes of keys,
 * than it may; of the user who has most of what is short, the session that was longest
 * not named goes first.
 */
#ifndef KVBLKD_CHAINS_H
#define KVBLKD_CHAINS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/kvblk_netlink.h>

#define CHAINS_SESSION_MAX	128	/* letters of a session's id */
#define CHAINS_POOL_LEN		(KVBLK_NAME_LEN_MAX + 1)

/**
 * struct chain - keys in the order in which they will be wanted
 * @nr: how many, 0: there is no chain
 * @bytes: of all keys
 * @lens: of each
 * @keys: one behind the other
 */
struct chain {
	unsigned int nr;
	size_t bytes;
	uint16_t *lens;
	uint8_t *keys;
};

/* Of a list of keys in hex digits; NULL, or what is wrong with it: a constant sentence. */
const char *chain_read(const json_t *list, struct chain *chain);
/* false: no memory. */
bool chain_copy(const struct chain *chain, struct chain *copy);
void chain_free(struct chain *chain);

/**
 * struct session - a session
 * @pool: where its blocks are
 * @chain: their keys
 */
struct session {
	char pool[CHAINS_POOL_LEN];
	struct chain chain;
};

/**
 * struct sessions_rules - of the map
 * @sessions: most there may be
 * @bytes: of all their keys together
 */
struct sessions_rules {
	size_t sessions;
	size_t bytes;
};

struct sessions;

/* NULL: no memory. */
struct sessions *sessions_new(void);
void sessions_free(struct sessions *sessions);

/* What is too much under new rules goes at once. */
void sessions_configure(struct sessions *sessions, const struct sessions_rules *rules);

/* Up to CHAINS_SESSION_MAX letters that can be seen, none of them a slash. */
bool sessions_is_id(const char *id);

/*
 * Session @id of user @uid has a copy of @chain from now on: 0; -E2BIG: it alone is more
 * than the map may have, and what the session had stays; -ENOMEM.
 */
int sessions_set(struct sessions *sessions, uid_t uid, const char *id, const char *pool,
		 const struct chain *chain);

/* NULL: not known (any more). Good until the next call. */
const struct session *sessions_get(struct sessions *sessions, uid_t uid, const char *id);

size_t sessions_nr(const struct sessions *sessions);

#endif
