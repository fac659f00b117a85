// SPDX-License-Identifier: MIT
/* The nodes "peers", see peers_node.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <unistd.h>

#include "log/log.h"
#include "pod/peers_node.h"

#define RETRY_SECONDS	5
#define TURN_MESSAGES	16	/* so as not to stall the loop */
#define ROOM_US		1000ull	/* until a directory may have room again */

/* a message of any length, aligned as its head */
union message {
	struct kvblk_peers_msg head;
	uint8_t bytes[KVBLK_PEERS_MSG_MAX];
};

/**
 * struct peers_question - a question of the module that is not answered
 * @node: the node; NULL: closed
 * @cookie: name of the question
 * @answer: type of the answer
 * @size: bytes of an entry of the answer
 */
struct peers_question {
	LIST_ENTRY(peers_question) next;
	struct peers_node *node;
	uint64_t cookie;
	uint32_t answer;
	size_t size;
};

/**
 * struct peers_node - the node of a pool
 * @pool: the pool
 * @source: event source, owns @fd; NULL: not open
 * @room: timer, reads on after the anchors found no room
 * @fd: the open node
 * @wait: calls of peers_node_follow() until the next attempt to open
 * @again: to be opened anew
 * @told: last error that was logged
 * @rules: arguments, and what to do with messages, since the node was opened
 * @questions: open questions
 */
struct peers_node {
	LIST_ENTRY(peers_node) next;
	struct own_pool pool;
	sd_event_source *source;
	sd_event_source *room;
	int fd;
	unsigned int wait;
	bool again;
	int told;
	struct peers_rules rules;
	LIST_HEAD(, peers_question) questions;
};

static LIST_HEAD(, peers_node) nodes = LIST_HEAD_INITIALIZER(nodes);

static void close_node(struct peers_node *node)
{
	struct peers_question *question;

	while ((question = LIST_FIRST(&node->questions))) {
		LIST_REMOVE(question, next);
		question->node = NULL;
	}
	node->source = sd_event_source_disable_unref(node->source);
	node->room = sd_event_source_disable_unref(node->room);
}

static void remove_node(struct peers_node *node)
{
	close_node(node);
	LIST_REMOVE(node, next);
	free(node);
}

/* ---- messages ---- */

/* Returns 0 or a negative errno. */
static int write_answer(const struct peers_question *question, const void *entries, unsigned int nr)
{
	union message message = {
		.head = { .type = question->answer, .nr = nr, .cookie = question->cookie },
	};
	size_t len = nr * question->size;

	if (len > sizeof(message) - sizeof(message.head))
		return -EINVAL;
	if (nr)
		memcpy(message.bytes + sizeof(message.head), entries, len);
	len += sizeof(message.head);
	return write(question->node->fd, &message, len) == (ssize_t)len ? 0 : -errno;
}

void peers_answer(struct peers_question *question, const void *entries, unsigned int nr)
{
	struct peers_node *node = question->node;
	int err = 0;

	if (node) {
		LIST_REMOVE(question, next);
		err = write_answer(question, entries, nr);
	}
	/* -ENOENT: too late; -ENODEV: the pool is destroyed */
	if (err && err != -ENOENT && err != -ENODEV) {
		log_of(node->pool.name, "", LOG_LINE_WARNING, "pod: the module refuses an answer: %s; answer ignored",
		       strerror(-err));
		/* or else the caller waits for its longest time */
		if (nr)
			write_answer(question, NULL, 0);
	}
	free(question);
}

/* Returns the question of a message, whose answer has @type and entries of @size bytes; or NULL. */
static struct peers_question *question_new(struct peers_node *node,
					   const struct kvblk_peers_msg *msg, uint32_t type,
					   size_t size)
{
	struct peers_question *question = calloc(1, sizeof(*question));

	if (!question)
		return NULL;
	*question = (struct peers_question){
		.node = node,
		.cookie = msg->cookie,
		.answer = type,
		.size = size,
	};
	LIST_INSERT_HEAD(&node->questions, question, next);
	return question;
}

/* Take a message with entries at @entries. Returns false if the module should not have sent it. */
static bool take_entries(struct peers_node *node, const struct kvblk_peers_msg *msg,
			 const void *entries)
{
	const struct peers_rules *rules = &node->rules;
	struct peers_question *question;

	switch (msg->type) {
	case KVBLK_PEERS_DELETE:
		question = question_new(node, msg, KVBLK_PEERS_DELETED,
					sizeof(struct kvblk_peers_result));
		if (question)
			rules->delete(question, msg, entries);
		return true;
	case KVBLK_PEERS_ASK:
		if (!rules->ask)
			return false;
		question = question_new(node, msg, KVBLK_PEERS_HINTS, sizeof(struct kvblk_anchor));
		if (question)
			rules->ask(question, node->pool.pod, entries, msg->nr);
		return true;
	case KVBLK_PEERS_ANCHORS:
		if (rules->anchors)
			rules->anchors(node->pool.pod, entries, msg->nr);
		return rules->anchors;
	default:
		/* of a later module */
		return true;
	}
}

/* Take a message of @len bytes. Returns 0 or a negative errno. */
static int take_message(struct peers_node *node, const union message *message, size_t len)
{
	static const size_t sizes[] = {
		[KVBLK_PEERS_ANCHORS] = sizeof(struct kvblk_anchor),
		[KVBLK_PEERS_ASK] = sizeof(struct kvblk_peers_id),
		[KVBLK_PEERS_DELETE] = sizeof(struct kvblk_peers_id),
	};
	const struct kvblk_peers_msg *msg = &message->head;
	size_t size = 0;

	if (len < sizeof(*msg))
		return -EBADMSG;
	if (msg->type < sizeof(sizes) / sizeof(sizes[0]))
		size = sizes[msg->type];
	if (size && len != sizeof(*msg) + msg->nr * size)
		return -EBADMSG;
	/* only anchors may have none: all present blocks were reported */
	if (!msg->nr && size && msg->type != KVBLK_PEERS_ANCHORS)
		return -EBADMSG;
	return take_entries(node, msg, message->bytes + sizeof(*msg)) ? 0 : -EBADMSG;
}

/* Returns 1 if there was a message, 0 if there is none, or a negative errno. */
static int read_message(struct peers_node *node)
{
	union message message;
	ssize_t len = read(node->fd, &message, sizeof(message));
	int err;

	if (len < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	/* the pool is destroyed */
	if (!len)
		return -ENODEV;
	err = take_message(node, &message, (size_t)len);
	return err ? err : 1;
}

static int on_room(sd_event_source *source, uint64_t us, void *arg)
{
	const struct peers_node *node = arg;

	sd_event_source_set_enabled(node->source, SD_EVENT_ON);
	return 0;
}

/* Returns true if the next message may be read. If not, reads on after a while. */
static bool has_room(struct peers_node *node)
{
	if (!node->rules.has_room || node->rules.has_room())
		return true;
	sd_event_source_set_enabled(node->source, SD_EVENT_OFF);
	sd_event_source_set_time_relative(node->room, ROOM_US);
	sd_event_source_set_enabled(node->room, SD_EVENT_ONESHOT);
	return false;
}

static int on_readable(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct peers_node *node = arg;
	int got = 1;

	for (int i = 0; i < TURN_MESSAGES && got > 0 && has_room(node); i++)
		got = read_message(node);
	if (got >= 0)
		return 0;
	if (got != -ENODEV)
		log_of(node->pool.name, "", LOG_LINE_WARNING, "pod: cannot read the module's questions: %s; retrying in %d s",
		       strerror(-got), RETRY_SECONDS);
	close_node(node);
	node->wait = RETRY_SECONDS;
	return 0;
}

/* ---- opening ---- */

/* Returns 0 or a negative errno. */
static int open_node(sd_event *event, struct peers_node *node)
{
	char path[sizeof("/dev/kvblk//peers") + KVBLK_NAME_LEN_MAX];
	int err;

	snprintf(path, sizeof(path), "/dev/kvblk/%s/peers", node->pool.name);
	node->fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (node->fd < 0)
		return -errno;
	err = ioctl(node->fd, KVBLK_IOC_PEERS, &node->rules.args) ? -errno : 0;
	if (!err)
		err = sd_event_add_time_relative(event, &node->room, CLOCK_MONOTONIC, 0, 0, on_room,
						 node);
	if (err >= 0)
		err = sd_event_add_io(event, &node->source, node->fd, EPOLLIN, on_readable, node);
	if (err < 0) {
		node->room = sd_event_source_disable_unref(node->room);
		close(node->fd);
		return err;
	}
	sd_event_source_set_enabled(node->room, SD_EVENT_OFF);
	sd_event_source_set_io_fd_own(node->source, true);
	node->again = false;
	return 0;
}

/* Open the node, unless it is too early for another attempt. */
static void try_node(sd_event *event, struct peers_node *node)
{
	int err;

	if (node->wait) {
		node->wait--;
		return;
	}
	err = open_node(event, node);
	node->wait = err ? RETRY_SECONDS - 1 : 0;
	/* an older module has no such node, a pool may be destroyed meanwhile */
	if (err && err != -ENOENT && err != -ENODEV && err != -ENXIO && err != node->told)
		log_of(node->pool.name, "", LOG_LINE_WARNING, "pod: cannot take the module's questions: %s; retrying every %d s",
		       err == -EBUSY ? "another daemon does" : strerror(-err), RETRY_SECONDS);
	node->told = err;
}

/* Returns true if a delete waits for an answer, which a close would end. */
static bool has_deletes(const struct peers_node *node)
{
	const struct peers_question *question;

	LIST_FOREACH(question, &node->questions, next) {
		if (question->answer == KVBLK_PEERS_DELETED)
			return true;
	}
	return false;
}

static struct peers_node *find_node(const uint8_t uuid[16])
{
	struct peers_node *node;

	LIST_FOREACH(node, &nodes, next) {
		if (!memcmp(node->pool.uuid, uuid, sizeof(node->pool.uuid)))
			return node;
	}
	return NULL;
}

static void add_node(const struct own_pool *pool)
{
	struct peers_node *node = calloc(1, sizeof(*node));

	/* without memory: added later */
	if (!node)
		return;
	node->pool = *pool;
	LIST_INIT(&node->questions);
	LIST_INSERT_HEAD(&nodes, node, next);
}

void peers_node_follow(sd_event *event, const struct own_pools *pools,
		       const struct peers_rules *rules)
{
	struct peers_node *node, *next;

	for (size_t i = 0; i < pools->nr; i++) {
		if (!find_node(pools->pools[i].uuid))
			add_node(&pools->pools[i]);
	}
	for (node = LIST_FIRST(&nodes); node; node = next) {
		next = LIST_NEXT(node, next);
		if (!own_pools_find(pools, node->pool.uuid)) {
			remove_node(node);
			continue;
		}
		if (node->again && !has_deletes(node))
			close_node(node);
		if (!node->source) {
			node->rules = *rules;
			try_node(event, node);
		}
	}
}

void peers_node_again(void)
{
	struct peers_node *node;

	LIST_FOREACH(node, &nodes, next)
		node->again = node->source;
}

void peers_node_close(void)
{
	struct peers_node *node, *next;

	for (node = LIST_FIRST(&nodes); node; node = next) {
		next = LIST_NEXT(node, next);
		remove_node(node);
	}
}
