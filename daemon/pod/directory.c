// SPDX-License-Identifier: MIT
/*
 * The directory's client, see directory.h. A key's hash slot decides which server has it. Separate
 * servers share the slots evenly; the nodes of a cluster say who has which, at the connection and
 * when one of them redirects a command. All that waits is bounded: commands of a server, anchors of
 * a server's queue, questions.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "host/secret.h"
#include "log/log.h"
#include "pod/directory.h"
#include "pod/directory_wire.h"
#include "pod/valkey.h"

#define SERVERS		128u	/* configured and learned; fits into 8 bits, with NO_SERVER */
#define NO_SERVER	255u
#define ADDRESS_LEN	(CONFIG_IP_LEN + 8)
#define WINDOW		128u	/* anchors on the way to a server: more would delay questions */
#define QUEUED		16384u	/* anchors that wait for a server */
#define ROOM		1024u	/* least free places of a queue with room */
#define QUESTIONS	1024u
#define SECOND_US	1000000ull
#define DEAD_US		(2 * SECOND_US)	/* a server is dead if a command has no reply for so long */
#define ACCURACY_US	100ull
#define WAIT_MAX	10u	/* most seconds between two attempts to connect */
#define STEADY_SECONDS	10	/* a connection that lasted so long is retried at once */
#define LOST_SECONDS	60	/* least time between two calls of lost() */
#define TELL_SECONDS	60	/* least time between two lines about a server's errors */
#define WHY_LEN		160

/* Renew a node's lease by the server's clock, and return the members whose leases have not ended. */
#define JOIN_SCRIPT \
	"local now = tonumber(redis.call('TIME')[1]) " \
	"redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now) " \
	"redis.call('ZADD', KEYS[1], now + ARGV[1], ARGV[2]) " \
	"redis.call('EXPIRE', KEYS[1], ARGV[1]) " \
	"return redis.call('ZRANGE', KEYS[1], 0, ARGV[3])"

/**
 * enum server_state - state of a server
 * @SERVER_DOWN: no connection
 * @SERVER_GREETING: connecting, or waiting for the replies to the first commands
 * @SERVER_UP: usable
 */
enum server_state {
	SERVER_DOWN,
	SERVER_GREETING,
	SERVER_UP,
};

/* An anchor to publish. */
struct entry {
	char key[DIRWIRE_KEY];
	char value[DIRWIRE_VALUE];
};

/**
 * struct server - a server
 * @dir: the directory
 * @ip: IP address, without brackets
 * @port: port
 * @address: @ip and @port, as configured or for the log
 * @state: state
 * @conn: connection unless @state is SERVER_DOWN
 * @configured: in the configuration
 * @cluster: node of a cluster
 * @run_id: id of the server's process at the last connection, or ""
 * @stale: the server may lack anchors that were to be published
 * @refused: the server refused anchors because its cluster was down
 * @why: what the server refused during the greeting, or ""
 * @told_down: the log says that the server is down
 * @told: time of the last line about an error reply, seconds
 * @since: time at which @state became SERVER_UP, seconds
 * @wait: ticks until the next attempt to connect
 * @backoff: ticks between the last two attempts
 * @sets: SET commands without a reply
 * @queue: ring of anchors that wait until @sets is below WINDOW, or NULL
 * @first: place of the oldest anchor in @queue
 * @nr: anchors in @queue
 */
struct server {
	struct directory *dir;
	char ip[CONFIG_IP_LEN];
	int port;
	char address[ADDRESS_LEN];
	enum server_state state;
	struct valkey *conn;
	bool configured;
	bool cluster;
	char run_id[48];
	bool stale;
	bool refused;
	char why[WHY_LEN];
	bool told_down;
	int64_t told;
	int64_t since;
	unsigned int wait;
	unsigned int backoff;
	unsigned int sets;
	struct entry *queue;
	unsigned int first;
	unsigned int nr;
};

/**
 * struct lookup - a part of a question, in one command
 * @question: the question
 * @server: server that was asked
 * @first: first place in the question's @order
 * @nr: number of places
 */
struct lookup {
	struct question *question;
	struct server *server;
	unsigned int first;
	unsigned int nr;
};

/**
 * struct question - a question
 * @dir: the directory
 * @next: next question in @dir's list, with a later deadline
 * @fn: see directory_ask()
 * @arg: argument of @fn
 * @answered: @fn was called; the question is no longer in the list
 * @deadline: monotonic microseconds
 * @pending: lookups without a reply
 * @nr_ids: entries of @ids
 * @nr_hints: entries of @hints
 * @ids: ids
 * @keys: keys of the ids
 * @order: server, slot and place in @ids, sorted
 * @lookups: one for each server, or for each slot of a cluster
 * @hints: hints so far
 */
struct question {
	struct directory *dir;
	struct question *next;
	directory_answer *fn;
	void *arg;
	bool answered;
	uint64_t deadline;
	unsigned int pending;
	unsigned int nr_ids;
	unsigned int nr_hints;
	struct kvblk_peers_id ids[DIRECTORY_IDS];
	char keys[DIRECTORY_IDS][DIRWIRE_KEY];
	uint32_t order[DIRECTORY_IDS];
	struct lookup lookups[DIRECTORY_IDS];
	struct kvblk_anchor hints[DIRECTORY_IDS];
};

/**
 * struct join - a node's announcement
 * @server: server
 * @fn: see directory_join()
 * @arg: argument of @fn
 */
struct join {
	struct server *server;
	directory_nodes *fn;
	void *arg;
};

/**
 * struct directory - the directory
 * @event: the loop
 * @lost: see directory_open()
 * @arg: argument of @lost
 * @ask_us: see &struct config_directory
 * @ttl_s: likewise
 * @ttl: @ttl_s as text
 * @password_file: file with the password, or NULL
 * @closing: directory_close() has begun
 * @tick: timer, each second
 * @deadline: timer of the oldest question
 * @oldest: list of questions that are not answered
 * @newest: end of the list
 * @questions: number of questions, with those that were answered without all replies
 * @servers: servers; NULL: a free place
 * @slots: place in @servers by hash slot, or NO_SERVER
 * @orphaned: anchors were dropped because no server had their slots
 * @refreshing: a request for the slots has no reply
 * @refresh: the slots may have changed since the last request
 * @refreshed: server of the last request
 * @want_lost: @lost is to be called
 * @next_lost: earliest time of the next call of @lost, seconds
 * @next_ttl: time at which all anchors are published again, seconds
 */
struct directory {
	sd_event *event;
	directory_lost *lost;
	void *arg;
	uint64_t ask_us;
	int64_t ttl_s;
	char ttl[24];
	char *password_file;
	bool closing;
	sd_event_source *tick;
	sd_event_source *deadline;
	struct question *oldest;
	struct question *newest;
	unsigned int questions;
	struct server *servers[SERVERS];
	uint8_t slots[DIRWIRE_SLOTS];
	bool orphaned;
	bool refreshing;
	bool refresh;
	unsigned int refreshed;
	bool want_lost;
	int64_t next_lost;
	int64_t next_ttl;
};

/* Counters, and the number of directories. Changed by the loop's thread, read by any. */
static struct directory_counts counts;
static unsigned int opened;

static void count(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/* ---- servers ---- */

static void server_down(void *arg, const char *why);
static void server_connect(struct server *server);

/* Copy the text of an error reply without control characters. */
static void copy_text(char text[WHY_LEN], const redisReply *reply)
{
	size_t len = reply->len < WHY_LEN ? reply->len : WHY_LEN - 1;

	for (size_t i = 0; i < len; i++)
		text[i] = reply->str[i] >= ' ' && reply->str[i] <= '~' ? reply->str[i] : '?';
	text[len] = '\0';
}

/* Handle an error reply: note a redirection, log others. */
static void take_error(struct server *server, const redisReply *reply)
{
	int64_t now = clock_s();
	char text[WHY_LEN];

	if (!strncmp(reply->str, "MOVED ", 6)) {
		server->dir->refresh = true;
		return;
	}
	server->refused |= !strncmp(reply->str, "CLUSTERDOWN ", 12);
	if (server->told && now - server->told < TELL_SECONDS)
		return;
	server->told = now;
	copy_text(text, reply);
	log_line(LOG_LINE_WARNING, "directory: server %s refuses a command: %s", server->address, text);
}

/* Split "IP:PORT" or "[IP]:PORT". Returns false if it is neither. */
static bool split_address(const char *address, char ip[CONFIG_IP_LEN], int *port)
{
	const char *colon = strrchr(address, ':');
	size_t len = colon ? (size_t)(colon - address) : 0;

	if (len && *address == '[' && address[len - 1] == ']') {
		address++;
		len -= 2;
	}
	if (!len || len >= CONFIG_IP_LEN)
		return false;
	memcpy(ip, address, len);
	ip[len] = '\0';
	*port = (int)port_of(colon + 1);
	return *port > 0;
}

/* Returns the place of the server, a new one if there was none; NO_SERVER without memory or room. */
static unsigned int server_at(struct directory *dir, const char *ip, int port)
{
	unsigned int place = NO_SERVER;
	struct server *server;

	for (unsigned int i = 0; i < SERVERS; i++) {
		server = dir->servers[i];
		if (server && server->port == port && strcmp(server->ip, ip) == 0)
			return i;
		if (!server && place == NO_SERVER)
			place = i;
	}
	server = place == NO_SERVER ? NULL : calloc(1, sizeof(*server));
	if (!server)
		return NO_SERVER;
	server->dir = dir;
	snprintf(server->ip, sizeof(server->ip), "%s", ip);
	server->port = port;
	snprintf(server->address, sizeof(server->address), strchr(ip, ':') ? "[%s]:%d" : "%s:%d", ip, port);
	dir->servers[place] = server;
	count(&counts.servers, 1);
	server_connect(server);
	return place;
}

static void server_free(struct server *server)
{
	server_down(server, NULL);
	free(server->queue);
	free(server);
	count(&counts.servers, (uint64_t)-1);
}

static void drop_anchors(struct server *server, unsigned int nr)
{
	count(&counts.dropped, nr);
	server->stale |= nr > 0;
}

/* End the connection, and log @why unless the log says already that the server is down. */
static void server_down(void *arg, const char *why)
{
	struct server *server = arg;
	struct valkey *conn = server->conn;
	bool up = server->state == SERVER_UP;

	if (why && !server->told_down) {
		log_line(LOG_LINE_WARNING, "directory: no connection to server %s: %s; its anchors are misses until it responds",
			 server->address, *server->why ? server->why : why);
		server->told_down = true;
	}
	if (up)
		count(&counts.up, (uint64_t)-1);
	if (up && clock_s() - server->since >= STEADY_SECONDS)
		server->backoff = 0;
	server->backoff = server->backoff ? server->backoff * 2 : 1;
	if (server->backoff > WAIT_MAX)
		server->backoff = WAIT_MAX;
	server->wait = server->backoff;
	server->state = SERVER_DOWN;
	server->conn = NULL;
	server->why[0] = '\0';
	drop_anchors(server, server->nr);
	server->nr = 0;
	if (conn)
		valkey_close(conn);
}

static bool server_send(struct server *server, int argc, const char **argv, const size_t *len,
			valkey_reply *fn, void *arg)
{
	return server->conn && valkey_send(server->conn, argc, argv, len, fn, arg);
}

/* ---- hash slots ---- */

/* Find the server that an entry of CLUSTER SLOTS names; one without an address is @from itself. */
static unsigned int server_named(struct server *from, const redisReply *node)
{
	const redisReply *ip = node->elements >= 2 ? node->element[0] : NULL;
	const redisReply *port = ip ? node->element[1] : NULL;
	uint8_t bytes[16];

	if (!port || port->type != REDIS_REPLY_INTEGER || port->integer <= 0 || port->integer > 65535)
		return NO_SERVER;
	if (ip->type == REDIS_REPLY_NIL || (ip->type == REDIS_REPLY_STRING && !ip->len))
		return server_at(from->dir, from->ip, (int)port->integer);
	/* no host name, see is_server() in config.c */
	if (ip->type != REDIS_REPLY_STRING || strlen(ip->str) != ip->len ||
	    (inet_pton(AF_INET, ip->str, bytes) != 1 && inet_pton(AF_INET6, ip->str, bytes) != 1))
		return NO_SERVER;
	return server_at(from->dir, ip->str, (int)port->integer);
}

static void take_range(struct server *from, const redisReply *range, uint8_t slots[DIRWIRE_SLOTS])
{
	const redisReply *begin, *end;
	unsigned int place;

	if (range->type != REDIS_REPLY_ARRAY || range->elements < 3)
		return;
	begin = range->element[0];
	end = range->element[1];
	if (begin->type != REDIS_REPLY_INTEGER || end->type != REDIS_REPLY_INTEGER || begin->integer < 0 ||
	    end->integer < begin->integer || end->integer >= DIRWIRE_SLOTS ||
	    range->element[2]->type != REDIS_REPLY_ARRAY)
		return;
	place = server_named(from, range->element[2]);
	memset(slots + begin->integer, (int)place, (size_t)(end->integer - begin->integer) + 1);
}

/* Use the slots that a node of a cluster reports. */
static void take_slots(struct server *from, const redisReply *reply)
{
	struct directory *dir = from->dir;
	uint8_t slots[DIRWIRE_SLOTS];

	memset(slots, NO_SERVER, sizeof(slots));
	for (size_t i = 0; i < reply->elements; i++)
		take_range(from, reply->element[i], slots);
	for (unsigned int i = 0; i < DIRWIRE_SLOTS; i++) {
		unsigned int old = dir->slots[i];

		/* the new owner lacks what the old one could not be given */
		if (old != slots[i] && (old == NO_SERVER ? dir->orphaned : dir->servers[old]->stale))
			dir->want_lost = true;
	}
	memcpy(dir->slots, slots, sizeof(slots));
}

static bool on_slots(void *arg, const redisReply *reply)
{
	struct server *server = arg;

	server->dir->refreshing = false;
	if (reply && reply->type == REDIS_REPLY_ARRAY)
		take_slots(server, reply);
	return true;
}

static bool ask_slots(struct server *server, valkey_reply *fn)
{
	return server_send(server, 2, (const char *[]){ "CLUSTER", "SLOTS" }, (size_t[]){ 7, 5 }, fn, server);
}

/* Ask another server each time, because one may be cut off from the rest of the cluster. */
static void refresh_slots(struct directory *dir)
{
	for (unsigned int i = 1; i <= SERVERS && !dir->refreshing; i++) {
		unsigned int place = (dir->refreshed + i) % SERVERS;
		struct server *server = dir->servers[place];

		if (!server || server->state != SERVER_UP || !server->cluster)
			continue;
		dir->refreshed = place;
		dir->refreshing = ask_slots(server, on_slots);
		dir->refresh = false;
	}
}

/* Mark the servers that have slots. Returns true unless a slot has no server that is up. */
static bool find_owners(const struct directory *dir, bool owners[SERVERS])
{
	bool all_up = true;

	memset(owners, 0, SERVERS);
	for (unsigned int i = 0; i < DIRWIRE_SLOTS; i++) {
		if (dir->slots[i] == NO_SERVER)
			all_up = false;
		else
			owners[dir->slots[i]] = true;
	}
	for (unsigned int i = 0; i < SERVERS; i++)
		all_up &= !owners[i] || dir->servers[i]->state == SERVER_UP;
	return all_up;
}

static void share_slots(struct directory *dir, unsigned int nr)
{
	for (unsigned int i = 0; i < DIRWIRE_SLOTS; i++)
		dir->slots[i] = (uint8_t)(i * nr / DIRWIRE_SLOTS);
}

/* ---- connections ---- */

static bool greeting_failed(struct server *server, const redisReply *reply)
{
	if (reply && reply->type == REDIS_REPLY_ERROR)
		copy_text(server->why, reply);
	return false;
}

static bool on_password(void *arg, const redisReply *reply)
{
	return reply && reply->type == REDIS_REPLY_STATUS ? true : greeting_failed(arg, reply);
}

/* Compare the id of the server's process: a new process may have begun without anchors. */
static bool on_info(void *arg, const redisReply *reply)
{
	struct server *server = arg;
	const char *id = reply && reply->type == REDIS_REPLY_STRING ? strstr(reply->str, "run_id:") : NULL;
	char run_id[sizeof(server->run_id)];

	if (!id)
		return greeting_failed(server, reply);
	snprintf(run_id, sizeof(run_id), "%.*s", (int)strcspn(id, "\r\n"), id);
	server->stale |= *server->run_id && strcmp(server->run_id, run_id) != 0;
	memcpy(server->run_id, run_id, sizeof(run_id));
	return true;
}

/* Handle the last reply of the greeting. A separate server has no slots and reports an error. */
static bool on_greeted(void *arg, const redisReply *reply)
{
	struct server *server = arg;

	if (!reply)
		return false;
	if (reply->type == REDIS_REPLY_ERROR && !strstr(reply->str, "cluster support disabled"))
		return greeting_failed(server, reply);
	server->state = SERVER_UP;
	server->since = clock_s();
	server->cluster = reply->type == REDIS_REPLY_ARRAY;
	if (server->cluster)
		take_slots(server, reply);
	count(&counts.up, 1);
	log_line(LOG_LINE_INFO, "directory: connected to server %s", server->address);
	server->told_down = false;
	server->dir->want_lost |= server->stale;
	server->stale = false;
	return true;
}

static bool send_password(struct server *server)
{
	char password[SECRET_LEN];
	bool sent;

	if (!server->dir->password_file)
		return true;
	if (secret_read(server->dir->password_file, password, server->why, sizeof(server->why)))
		return false;
	sent = server_send(server, 2, (const char *[]){ "AUTH", password },
			   (size_t[]){ 4, strlen(password) }, on_password, server);
	explicit_bzero(password, sizeof(password));
	return sent;
}

static void server_connect(struct server *server)
{
	int err = valkey_open(server->dir->event, server->ip, server->port, server_down, server, &server->conn);

	if (err) {
		server_down(server, strerror(-err));
		return;
	}
	server->state = SERVER_GREETING;
	if (!send_password(server) ||
	    !server_send(server, 2, (const char *[]){ "INFO", "server" }, (size_t[]){ 4, 6 }, on_info, server) ||
	    !ask_slots(server, on_greeted))
		server_down(server, "out of memory");
}

/* ---- anchors ---- */

static void send_queued(struct server *server);

static bool on_set(void *arg, const redisReply *reply)
{
	struct server *server = arg;

	server->sets--;
	if (reply && reply->type == REDIS_REPLY_STATUS) {
		count(&counts.published, 1);
		server->dir->want_lost |= server->refused;
		server->refused = false;
	} else {
		if (reply && reply->type == REDIS_REPLY_ERROR)
			take_error(server, reply);
		drop_anchors(server, 1);
	}
	if (reply)
		send_queued(server);
	return true;
}

static void send_anchor(struct server *server, const struct entry *entry)
{
	const char *ttl = server->dir->ttl;
	bool sent = server_send(server, 5, (const char *[]){ "SET", entry->key, entry->value, "EX", ttl },
				(size_t[]){ 3, DIRWIRE_KEY, DIRWIRE_VALUE, 2, strlen(ttl) }, on_set, server);

	server->sets += sent;
	drop_anchors(server, !sent);
}

static void send_queued(struct server *server)
{
	while (server->nr && server->sets < WINDOW) {
		send_anchor(server, &server->queue[server->first]);
		server->first = (server->first + 1) % QUEUED;
		server->nr--;
	}
}

static void publish(struct server *server, const struct entry *entry)
{
	if (!server->queue && server->state == SERVER_UP)
		server->queue = calloc(QUEUED, sizeof(*server->queue));
	if (server->state != SERVER_UP || !server->queue || server->nr == QUEUED) {
		drop_anchors(server, 1);
		return;
	}
	server->queue[(server->first + server->nr++) % QUEUED] = *entry;
	send_queued(server);
}

void directory_publish(struct directory *dir, const uint8_t pod[16], const struct kvblk_anchor *anchors,
		       unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++) {
		struct entry entry;
		unsigned int place;

		dirwire_key(pod, anchors[i].id, entry.key);
		dirwire_value(&anchors[i], entry.value);
		place = dir->slots[dirwire_slot(entry.key, DIRWIRE_KEY)];
		if (place != NO_SERVER) {
			publish(dir->servers[place], &entry);
			continue;
		}
		count(&counts.dropped, 1);
		dir->orphaned = true;
	}
}

bool directory_has_room(const struct directory *dir)
{
	for (unsigned int i = 0; i < SERVERS; i++) {
		const struct server *server = dir->servers[i];

		if (server && server->nr > QUEUED - ROOM && valkey_age(server->conn) < dir->ask_us)
			return false;
	}
	return true;
}

/* ---- questions ---- */

static void unlink_question(struct question *question)
{
	struct directory *dir = question->dir;
	struct question **at = &dir->oldest, *last = NULL;

	for (; *at != question; at = &(*at)->next)
		last = *at;
	*at = question->next;
	if (dir->newest == question)
		dir->newest = last;
}

/* Answer with the hints so far. The replies that are missing are ignored. */
static void answer(struct question *question)
{
	unlink_question(question);
	question->answered = true;
	count(&counts.answered, question->nr_hints);
	question->fn(question->arg, question->hints, question->nr_hints);
}

static void lookup_done(struct lookup *lookup)
{
	struct question *question = lookup->question;

	if (--question->pending)
		return;
	if (!question->answered)
		answer(question);
	question->dir->questions--;
	free(question);
}

static bool on_values(void *arg, const redisReply *reply)
{
	struct lookup *lookup = arg;
	struct question *question = lookup->question;
	bool right = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == lookup->nr;

	if (reply && reply->type == REDIS_REPLY_ERROR)
		take_error(lookup->server, reply);
	for (unsigned int i = 0; right && !question->answered && i < lookup->nr; i++) {
		const redisReply *value = reply->element[i];
		unsigned int id = question->order[lookup->first + i] % DIRECTORY_IDS;
		struct kvblk_anchor *hint = &question->hints[question->nr_hints];

		if (value->type != REDIS_REPLY_STRING || !dirwire_read(value->str, value->len, hint))
			continue;
		memcpy(hint->id, question->ids[id].id, sizeof(hint->id));
		question->nr_hints++;
	}
	right |= !reply || reply->type == REDIS_REPLY_ERROR;
	lookup_done(lookup);
	return right;
}

/* Ask for the ids from the place @first of the order on that have one server, or one slot. */
static unsigned int send_lookup(struct question *question, unsigned int first, struct server *server)
{
	uint32_t same = server->cluster ? ~(DIRECTORY_IDS - 1) : ~(DIRECTORY_IDS * DIRWIRE_SLOTS - 1);
	struct lookup *lookup = &question->lookups[first];
	const char *argv[1 + DIRECTORY_IDS] = { "MGET" };
	size_t len[1 + DIRECTORY_IDS] = { 4 };
	unsigned int nr = 0;

	*lookup = (struct lookup){ question, server, first, 0 };
	for (const uint32_t *order = &question->order[first];
	     first + nr < question->nr_ids && !((order[0] ^ order[nr]) & same);) {
		argv[1 + nr] = question->keys[order[nr] % DIRECTORY_IDS];
		len[1 + nr++] = DIRWIRE_KEY;
	}
	lookup->nr = nr;
	if (server->state == SERVER_UP)
		question->pending += server_send(server, (int)nr + 1, argv, len, on_values, lookup);
	return nr;
}

static int compare(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

_Static_assert(((uint64_t)NO_SERVER * DIRWIRE_SLOTS + DIRWIRE_SLOTS) * DIRECTORY_IDS < 1ull << 32,
	       "a place of the order fits");

static void send_lookups(struct question *question, const uint8_t pod[16])
{
	struct directory *dir = question->dir;

	for (unsigned int i = 0; i < question->nr_ids; i++) {
		unsigned int slot;

		dirwire_key(pod, question->ids[i].id, question->keys[i]);
		slot = dirwire_slot(question->keys[i], DIRWIRE_KEY);
		question->order[i] = (dir->slots[slot] * DIRWIRE_SLOTS + slot) * DIRECTORY_IDS + i;
	}
	qsort(question->order, question->nr_ids, sizeof(question->order[0]), compare);
	for (unsigned int i = 0; i < question->nr_ids;) {
		unsigned int place = question->order[i] / DIRECTORY_IDS / DIRWIRE_SLOTS;

		/* the rest has no server */
		if (place == NO_SERVER)
			break;
		i += send_lookup(question, i, dir->servers[place]);
	}
}

static void link_question(struct question *question)
{
	struct directory *dir = question->dir;

	question->deadline = clock_us() + dir->ask_us;
	if (dir->newest) {
		dir->newest->next = question;
	} else {
		dir->oldest = question;
		sd_event_source_set_time(dir->deadline, question->deadline);
		sd_event_source_set_enabled(dir->deadline, SD_EVENT_ONESHOT);
	}
	dir->newest = question;
}

void directory_ask(struct directory *dir, const uint8_t pod[16], const struct kvblk_peers_id *ids,
		   unsigned int nr, directory_answer *fn, void *arg)
{
	struct question *question = NULL;

	if (nr > DIRECTORY_IDS)
		nr = DIRECTORY_IDS;
	count(&counts.questions, 1);
	count(&counts.asked, nr);
	if (!dir->closing && dir->questions < QUESTIONS)
		question = malloc(sizeof(*question));
	if (question) {
		memset(question, 0, offsetof(struct question, ids));
		question->dir = dir;
		question->fn = fn;
		question->arg = arg;
		question->nr_ids = nr;
		memcpy(question->ids, ids, nr * sizeof(*ids));
		send_lookups(question, pod);
	}
	if (!question || !question->pending) {
		free(question);
		fn(arg, NULL, 0);
		return;
	}
	dir->questions++;
	link_question(question);
}

static int on_deadline(sd_event_source *source, uint64_t us, void *arg)
{
	struct directory *dir = arg;

	while (dir->oldest && dir->oldest->deadline <= clock_us()) {
		count(&counts.late, 1);
		answer(dir->oldest);
	}
	if (dir->oldest) {
		sd_event_source_set_time(source, dir->oldest->deadline);
		sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
	}
	return 0;
}

/* ---- nodes ---- */

static bool on_nodes(void *arg, const redisReply *reply)
{
	struct join *join = arg;
	struct directory_node *nodes = NULL;
	unsigned int nr = 0;

	if (reply && reply->type == REDIS_REPLY_ERROR)
		take_error(join->server, reply);
	if (reply && reply->type == REDIS_REPLY_ARRAY)
		nodes = calloc(reply->elements + 1, sizeof(*nodes));
	for (size_t i = 0; nodes && i < reply->elements && nr < DIRECTORY_NODES; i++) {
		const redisReply *node = reply->element[i];

		nr += node->type == REDIS_REPLY_STRING && dirwire_read_node(node->str, node->len, &nodes[nr]);
	}
	if (nodes)
		join->fn(join->arg, nodes, nr);
	free(nodes);
	free(join);
	return true;
}

void directory_join(struct directory *dir, const uint8_t pod[16], const uint8_t node[16],
		    const char *endpoint, directory_nodes *fn, void *arg)
{
	char key[DIRWIRE_NODES_KEY], member[16 + DIRECTORY_ENDPOINT], lease[16], last[16];
	struct join *join;
	unsigned int place;
	size_t len = strlen(endpoint);

	dirwire_nodes_key(pod, key);
	place = dir->slots[dirwire_slot(key, sizeof(key))];
	if (place == NO_SERVER || dir->servers[place]->state != SERVER_UP || len >= DIRECTORY_ENDPOINT)
		return;
	join = malloc(sizeof(*join));
	if (!join)
		return;
	*join = (struct join){ dir->servers[place], fn, arg };
	memcpy(member, node, 16);
	memcpy(member + 16, endpoint, len + 1);
	snprintf(lease, sizeof(lease), "%u", DIRECTORY_LEASE_S);
	snprintf(last, sizeof(last), "%u", DIRECTORY_NODES - 1);
	if (!server_send(join->server, 7, (const char *[]){ "EVAL", JOIN_SCRIPT, "1", key, lease, member, last },
			 (size_t[]){ 4, strlen(JOIN_SCRIPT), 1, sizeof(key), strlen(lease), 16 + len, strlen(last) },
			 on_nodes, join))
		free(join);
}

/* ---- the directory ---- */

static bool on_pong(void *arg, const redisReply *reply)
{
	return true;
}

/* Detect a dead server, also while nothing else is sent; connect again. */
static void look_at(struct server *server)
{
	uint64_t age = server->conn ? valkey_age(server->conn) : 0;

	if (age > DEAD_US)
		server_down(server, "no response");
	else if (server->state == SERVER_DOWN && !--server->wait)
		server_connect(server);
	else if (server->state == SERVER_UP && !age)
		server_send(server, 1, (const char *[]){ "PING" }, (size_t[]){ 4 }, on_pong, server);
}

static void call_lost(struct directory *dir)
{
	int64_t now = clock_s();

	if (now >= dir->next_ttl)
		dir->want_lost = true;
	if (!dir->want_lost || now < dir->next_lost)
		return;
	dir->want_lost = false;
	dir->orphaned = false;
	dir->next_lost = now + LOST_SECONDS;
	dir->next_ttl = now + dir->ttl_s / 2;
	dir->lost(dir->arg);
}

static int on_tick(sd_event_source *source, uint64_t us, void *arg)
{
	struct directory *dir = arg;
	bool owners[SERVERS];

	for (unsigned int i = 0; i < SERVERS; i++) {
		if (dir->servers[i])
			look_at(dir->servers[i]);
	}
	/* look_at() changes no slots: those of a greeting come later */
	if (!find_owners(dir, owners) || dir->refresh)
		refresh_slots(dir);
	for (unsigned int i = 0; i < SERVERS; i++) {
		if (!dir->servers[i] || owners[i] || dir->servers[i]->configured)
			continue;
		server_free(dir->servers[i]);
		dir->servers[i] = NULL;
	}
	call_lost(dir);
	sd_event_source_set_time_relative(source, SECOND_US);
	sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
	return 0;
}

static int add_servers(struct directory *dir, const struct texts *servers)
{
	char ip[CONFIG_IP_LEN];
	unsigned int place;
	int port;

	for (size_t i = 0; i < servers->nr; i++) {
		if (!split_address(servers->text[i], ip, &port))
			return -EINVAL;
		place = server_at(dir, ip, port);
		if (place == NO_SERVER)
			return -ENOMEM;
		/* written in two ways, such as with zeroes before the port */
		if (place != i)
			return -EEXIST;
		dir->servers[i]->configured = true;
	}
	share_slots(dir, (unsigned int)servers->nr);
	return 0;
}

int directory_open(sd_event *event, const struct config_directory *config, directory_lost *lost,
		   void *arg, struct directory **handle)
{
	struct directory *dir = calloc(1, sizeof(*dir));
	int err;

	if (!dir)
		return -ENOMEM;
	__atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED);
	dir->event = event;
	dir->lost = lost;
	dir->arg = arg;
	dir->ask_us = (uint64_t)config->ask_ms * 1000;
	dir->ttl_s = config->ttl_s;
	dir->next_ttl = clock_s() + config->ttl_s / 2;
	snprintf(dir->ttl, sizeof(dir->ttl), "%" PRId64, config->ttl_s);
	dir->password_file = config->password_file ? strdup(config->password_file) : NULL;
	err = !config->password_file || dir->password_file ? add_servers(dir, &config->servers) : -ENOMEM;
	if (!err)
		err = sd_event_add_time_relative(event, &dir->tick, CLOCK_MONOTONIC, SECOND_US, 0, on_tick, dir);
	if (err >= 0)
		err = sd_event_add_time(event, &dir->deadline, CLOCK_MONOTONIC, 0, ACCURACY_US, on_deadline, dir);
	if (err < 0) {
		directory_close(dir);
		return err;
	}
	sd_event_source_set_enabled(dir->deadline, SD_EVENT_OFF);
	*handle = dir;
	return 0;
}

void directory_close(struct directory *dir)
{
	if (!dir)
		return;
	dir->closing = true;
	/* answers may make the caller publish, which must not find a freed server */
	memset(dir->slots, NO_SERVER, sizeof(dir->slots));
	sd_event_source_disable_unref(dir->tick);
	sd_event_source_disable_unref(dir->deadline);
	for (unsigned int i = 0; i < SERVERS; i++) {
		if (dir->servers[i])
			server_free(dir->servers[i]);
	}
	free(dir->password_file);
	free(dir);
	__atomic_fetch_sub(&opened, 1, __ATOMIC_RELAXED);
}

bool directory_counts(struct directory_counts *copy)
{
	const uint64_t *from = (const uint64_t *)&counts;
	uint64_t *to = (uint64_t *)copy;

	for (size_t i = 0; i < sizeof(counts) / sizeof(*from); i++)
		to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
	return __atomic_load_n(&opened, __ATOMIC_RELAXED) > 0;
}
