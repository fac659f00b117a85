/* SPDX-License-Identifier: MIT */
/*
 * Deletes between the kvblkd of a pod's nodes. A question and its answer have two frames each,
 * and numbers are little-endian:
 *   question  topic   24 bytes: "kvblkd", two decimal digits of the version, the uuid of the
 *                     owner's pool
 *             body    owner's node id (16), asker (16), number of the question (8), and 16 bytes
 *                     for each of 1 to 253 blocks, as the module's KVBLK_PEERS_DELETE has them
 *   answer    topic   24 bytes: "kvblka", two digits of the version, the asker
 *             body    number of the question (8), and 4 bytes for each block: 0 or a negative
 *                     errno. None: the owner did not delete
 * An owner subscribes to the questions about its pools. An asker makes up 16 random bytes, and
 * subscribes to the answers to these.
 */
#ifndef KVBLKD_POD_DELETE_WIRE_H
#define KVBLKD_POD_DELETE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DELETEWIRE_TOPIC	24
#define DELETEWIRE_ID		16
#define DELETEWIRE_IDS		253
#define DELETEWIRE_QUESTION	(40 + DELETEWIRE_IDS * DELETEWIRE_ID)	/* longest body, bytes */
#define DELETEWIRE_ANSWER	(8 + DELETEWIRE_IDS * 4)		/* longest body, bytes */

/**
 * struct deletewire_question - a question
 * @pool: uuid of the owner's pool
 * @node: id of the owner's node
 * @asker: asker
 * @number: number of the question
 * @ids: ids of blocks
 * @nr: number of ids
 */
struct deletewire_question {
	const uint8_t *pool;
	const uint8_t *node;
	const uint8_t *asker;
	uint64_t number;
	const uint8_t *ids;
	unsigned int nr;
};

/**
 * struct deletewire_answer - an answer
 * @number: number of the question
 * @results: results of the blocks, in the order of the question
 * @nr: number of results
 */
struct deletewire_answer {
	uint64_t number;
	int32_t results[DELETEWIRE_IDS];
	unsigned int nr;
};

/* Write the topic of questions about the pool with @uuid. */
void deletewire_question_topic(const uint8_t uuid[16], uint8_t topic[DELETEWIRE_TOPIC]);

/* Write the topic of answers to @asker. */
void deletewire_answer_topic(const uint8_t asker[16], uint8_t topic[DELETEWIRE_TOPIC]);

/* Write a question's body. Returns its length in bytes. */
size_t deletewire_write_question(const struct deletewire_question *question,
				 uint8_t body[DELETEWIRE_QUESTION]);

/* Write an answer's body. Returns its length in bytes. */
size_t deletewire_write_answer(const struct deletewire_answer *answer,
			       uint8_t body[DELETEWIRE_ANSWER]);

/* Parse two frames, which must outlive @question. Returns false if they are no question. */
bool deletewire_read_question(const void *topic, size_t topic_len, const void *body, size_t len,
			      struct deletewire_question *question);

/* Parse two frames. Returns false if they are no answer. */
bool deletewire_read_answer(const void *topic, size_t topic_len, const void *body, size_t len,
			    struct deletewire_answer *answer);

#endif
