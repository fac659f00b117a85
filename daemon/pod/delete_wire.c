// SPDX-License-Identifier: MIT
/* The messages' format, see delete_wire.h. */
#include <endian.h>
#include <string.h>

#include "pod/delete_wire.h"

#define QUESTION	"kvblkd01"
#define ANSWER		"kvblka01"
#define MAGIC_LEN	(sizeof(QUESTION) - 1)
#define QUESTION_HEAD	40
#define ANSWER_HEAD	8
#define ERRNO_MAX	4095	/* as the kernel's MAX_ERRNO */

_Static_assert(sizeof(QUESTION) == sizeof(ANSWER) && MAGIC_LEN + 16 == DELETEWIRE_TOPIC,
	       "a topic has no other bytes");

static void write_topic(const char *magic, const uint8_t uuid[16], uint8_t topic[DELETEWIRE_TOPIC])
{
	memcpy(topic, magic, MAGIC_LEN);
	memcpy(topic + MAGIC_LEN, uuid, 16);
}

/* Check the topic, and that @len is @head and @least to DELETEWIRE_IDS entries of @size bytes. */
static bool is_message(const char *magic, const void *topic, size_t topic_len, size_t len,
		       size_t head, size_t least, size_t size)
{
	return topic_len == DELETEWIRE_TOPIC && !memcmp(topic, magic, MAGIC_LEN) &&
	       len >= head + least * size && (len - head) % size == 0 &&
	       len <= head + DELETEWIRE_IDS * size;
}

static uint64_t read_number(const uint8_t *body)
{
	uint64_t number;

	memcpy(&number, body, sizeof(number));
	return le64toh(number);
}

static void write_number(uint8_t *body, uint64_t number)
{
	number = htole64(number);
	memcpy(body, &number, sizeof(number));
}

void deletewire_question_topic(const uint8_t uuid[16], uint8_t topic[DELETEWIRE_TOPIC])
{
	write_topic(QUESTION, uuid, topic);
}

void deletewire_answer_topic(const uint8_t asker[16], uint8_t topic[DELETEWIRE_TOPIC])
{
	write_topic(ANSWER, asker, topic);
}

size_t deletewire_write_question(const struct deletewire_question *question,
				 uint8_t body[DELETEWIRE_QUESTION])
{
	memcpy(body, question->node, 16);
	memcpy(body + 16, question->asker, 16);
	write_number(body + 32, question->number);
	memcpy(body + QUESTION_HEAD, question->ids, (size_t)question->nr * DELETEWIRE_ID);
	return QUESTION_HEAD + (size_t)question->nr * DELETEWIRE_ID;
}

size_t deletewire_write_answer(const struct deletewire_answer *answer,
			       uint8_t body[DELETEWIRE_ANSWER])
{
	write_number(body, answer->number);
	for (unsigned int i = 0; i < answer->nr; i++) {
		uint32_t result = htole32((uint32_t)answer->results[i]);

		memcpy(body + ANSWER_HEAD + i * sizeof(result), &result, sizeof(result));
	}
	return ANSWER_HEAD + answer->nr * sizeof(uint32_t);
}

bool deletewire_read_question(const void *topic, size_t topic_len, const void *body, size_t len,
			      struct deletewire_question *question)
{
	const uint8_t *bytes = body;

	if (!is_message(QUESTION, topic, topic_len, len, QUESTION_HEAD, 1, DELETEWIRE_ID))
		return false;
	*question = (struct deletewire_question){
		.pool = (const uint8_t *)topic + MAGIC_LEN,
		.node = bytes,
		.asker = bytes + 16,
		.number = read_number(bytes + 32),
		.ids = bytes + QUESTION_HEAD,
		.nr = (unsigned int)((len - QUESTION_HEAD) / DELETEWIRE_ID),
	};
	return true;
}

bool deletewire_read_answer(const void *topic, size_t topic_len, const void *body, size_t len,
			    struct deletewire_answer *answer)
{
	const uint8_t *bytes = body;

	if (!is_message(ANSWER, topic, topic_len, len, ANSWER_HEAD, 0, sizeof(uint32_t)))
		return false;
	answer->number = read_number(bytes);
	answer->nr = (unsigned int)((len - ANSWER_HEAD) / sizeof(uint32_t));
	for (unsigned int i = 0; i < answer->nr; i++) {
		uint32_t result;

		memcpy(&result, bytes + ANSWER_HEAD + i * sizeof(result), sizeof(result));
		answer->results[i] = (int32_t)le32toh(result);
		if (answer->results[i] > 0 || answer->results[i] < -ERRNO_MAX)
			return false;
	}
	return true;
}
