/* SPDX-License-Identifier: MIT */
/*
 * Directory of the anchors of pods, on Valkey servers: id of a block -> member, segment, generation.
 * Entries and answers are hints: any may be missing or wrong, which costs a miss or a read. So nothing
 * here waits, retries or reports a failure to the caller; counters and the log do.
 *
 * All functions but directory_counts() belong to the thread of the event loop. Callbacks must not
 * call directory_close().
 */
#ifndef KVBLKD_POD_DIRECTORY_H
#define KVBLKD_POD_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include <linux/kvblk.h>

#include "config/config.h"

#define DIRECTORY_IDS		64u	/* most ids in a question */
#define DIRECTORY_LEASE_S	15u	/* seconds that a node is listed after directory_join() */
#define DIRECTORY_NODES		1024u	/* most nodes of a pod */
#define DIRECTORY_ENDPOINT	280u	/* bytes of a node's endpoint, with the final null byte */

/**
 * struct directory_node - a node of a pod
 * @id: node id
 * @endpoint: endpoint that the node announced
 */
struct directory_node {
	uint8_t id[16];
	char endpoint[DIRECTORY_ENDPOINT];
};

/**
 * struct directory_counts - counters since the start of kvblkd, and present numbers
 * @servers: known servers
 * @up: servers that answer
 * @questions: questions
 * @asked: ids in questions
 * @answered: ids for which a hint was returned
 * @late: questions that were answered without all servers' answers, because of ask_ms
 * @published: anchors that a server stored
 * @dropped: anchors that were not sent or not stored
 */
struct directory_counts {
	uint64_t servers;
	uint64_t up;
	uint64_t questions;
	uint64_t asked;
	uint64_t answered;
	uint64_t late;
	uint64_t published;
	uint64_t dropped;
};

/* Answer a question with @nr hints, in no order; @hints is valid during the call. */
typedef void directory_answer(void *arg, const struct kvblk_anchor *hints, unsigned int nr);

/* Report the live nodes of a pod, with the own one; @nodes is valid during the call. */
typedef void directory_nodes(void *arg, const struct directory_node *nodes, unsigned int nr);

/* Ask for all present anchors to be published again. */
typedef void directory_lost(void *arg);

struct directory;

/**
 * directory_open() - connect to the servers of a configuration
 * @event: the loop
 * @config: servers, ask_ms and ttl_s; copied
 * @lost: called when servers may lack anchors that were published before: one lost its contents, or
 *	was down while anchors were published; and each ttl_s / 2. At most once a minute
 * @arg: argument of @lost
 * @dir: set on success
 *
 * Connects, and connects again, in the background. @lost follows the first connection if anchors
 * were dropped before.
 *
 * Return: 0 or a negative errno.
 */
int directory_open(sd_event *event, const struct config_directory *config, directory_lost *lost,
		   void *arg, struct directory **dir);

/* Close @dir; NULL is ignored. Open questions are answered with what is known. */
void directory_close(struct directory *dir);

/**
 * directory_publish() - store anchors, each for ttl_s seconds
 * @dir: the directory
 * @pod: uuid of the pod
 * @anchors: anchors; copied
 * @nr: number of @anchors
 *
 * Drops and counts anchors whose server is down or does not keep up.
 */
void directory_publish(struct directory *dir, const uint8_t pod[16], const struct kvblk_anchor *anchors,
		       unsigned int nr);

/**
 * directory_has_room() - decide whether to publish more anchors now
 * @dir: the directory
 *
 * A caller with many anchors should wait a millisecond while there is no room, or else some are
 * dropped. A server that has stopped responding does not count.
 *
 * Return: false if directory_publish() might drop anchors of a server that keeps responding.
 */
bool directory_has_room(const struct directory *dir);

/**
 * directory_ask() - look up anchors
 * @dir: the directory
 * @pod: uuid of the pod
 * @ids: ids; copied
 * @nr: number of @ids, at most DIRECTORY_IDS: further ones are ignored
 * @fn: called once: with all answers, or after ask_ms with those that came; before the return if
 *	there is no server to ask
 * @arg: argument of @fn
 */
void directory_ask(struct directory *dir, const uint8_t pod[16], const struct kvblk_peers_id *ids,
		   unsigned int nr, directory_answer *fn, void *arg);

/**
 * directory_join() - announce this host to the nodes of a pod, and list them
 * @dir: the directory
 * @pod: uuid of the pod
 * @node: id of this node
 * @endpoint: text for the other nodes, shorter than DIRECTORY_ENDPOINT
 * @fn: called once with the live nodes if the server responds, else never
 * @arg: argument of @fn
 *
 * The announcement ends after DIRECTORY_LEASE_S seconds of the server's clock: repeat the call each
 * few seconds. A node that announces another endpoint is listed twice until the first one ends.
 */
void directory_join(struct directory *dir, const uint8_t pod[16], const uint8_t node[16],
		    const char *endpoint, directory_nodes *fn, void *arg);

/* Read the counters, from any thread. Returns false if there is no directory. */
bool directory_counts(struct directory_counts *counts);

#endif
