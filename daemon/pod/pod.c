// SPDX-License-Identifier: MIT
/* The thread that speaks to other nodes, see pod.h. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <systemd/sd-event.h>
#include <unistd.h>
#include <zmq.h>

#include "common/clock.h"
#include "common/thread.h"
#include "lib/kvblk_admin.h"
#include "log/log.h"
#include "pod/bus.h"
#include "pod/deletes.h"
#include "pod/directory.h"
#include "pod/members.h"
#include "pod/own_pools.h"
#include "pod/peers_node.h"
#include "pod/pod.h"
#include "pod/touches.h"

#define SECOND_US	1000000ull
#define ACCURACY_US	10000ull
#define RETRY_SECONDS	5
#define TELL_SECONDS	60	/* least time between two lines about the module */

/**
 * struct pod_config - the parts of the configuration that concern other nodes
 * @peers: connections to other nodes
 * @directory: directory of anchors
 */
struct pod_config {
	struct config_peers peers;
	struct config_directory directory;
};

/**
 * struct pod - the thread
 * @lock: protects @next and @has_next
 * @next: copy of the next configuration
 * @has_next: @next is valid
 * @wake_fd: eventfd, written for a new configuration; 0: there is no thread
 * @config: configuration in force
 * @event: loop of the thread
 * @tick: timer, each second
 * @wait: ticks until the bus is opened again
 * @told: last error of opening the bus that was logged
 * @admin_error: last error of the module, or 0
 * @admin_told: time of the last line about @admin_error, seconds
 * @live: endpoints of nodes that the directory lists
 * @peers: endpoints of @bus: those of @config and @live
 * @bus: connections to the other nodes, or NULL
 * @directory: directory of anchors, or NULL
 * @admin: connection to the module, or NULL
 * @own: pools whose topics are subscribed to
 */
static struct pod {
	pthread_mutex_t lock;
	struct pod_config next;
	bool has_next;
	int wake_fd;

	struct pod_config config;
	sd_event *event;
	sd_event_source *tick;
	unsigned int wait;
	int told;
	int admin_error;
	int64_t admin_told;
	struct texts live;
	struct config_peers peers;
	struct bus *bus;
	struct directory *directory;
	struct kvblk_admin *admin;
	struct own_pools own;
} pod = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Close the connection. Log a new error, or one of a minute ago. The loop logs a missing module. */
static void admin_failed(int err)
{
	int64_t now = clock_s();

	if (err != -ENOENT && (err != pod.admin_error || now - pod.admin_told >= TELL_SECONDS)) {
		log_line(LOG_LINE_WARNING, "pod: cannot exchange touches with the module: %s; retrying",
			 strerror(-err));
		pod.admin_told = now;
	}
	pod.admin_error = err;
	kvblk_admin_close(pod.admin);
	pod.admin = NULL;
}

/* ---- pools of this host ---- */

static void subscribe(const struct own_pool *pool, bool on)
{
	uint8_t topic[BUS_TOPIC];

	touchwire_topic(pool->uuid, topic);
	bus_subscribe(pod.bus, topic, on);
	deletewire_question_topic(pool->uuid, topic);
	bus_subscribe(pod.bus, topic, on);
}

/* Subscribe to the topics of new pools in @list, and unsubscribe from topics of former pools. */
static void follow_pools(const struct kvblk_pool_state *list)
{
	struct own_pools now;

	own_pools_set(&now, list);
	for (size_t i = 0; pod.bus && i < now.nr; i++) {
		if (!own_pools_find(&pod.own, now.pools[i].uuid))
			subscribe(&now.pools[i], true);
	}
	for (size_t i = 0; pod.bus && i < pod.own.nr; i++) {
		if (!own_pools_find(&now, pod.own.pools[i].uuid))
			subscribe(&pod.own.pools[i], false);
	}
	pod.own = now;
}

/* ---- messages ---- */

static void take_touches(unsigned int peer, const struct touchwire *touches)
{
	const struct own_pool *own = own_pools_find(&pod.own, touches->pool);
	int err = 0;

	/* not subscribed to any more, or no module */
	if (own && pod.admin)
		err = touches_take(pod.admin, own->name, peer, touches);
	if (err)
		admin_failed(err);
}

/* Returns this host's pool that a question is about, or NULL. */
static const struct own_pool *asked_pool(const struct deletewire_question *question)
{
	uint8_t node[16];

	/* a node whose pool was adopted may still have it up */
	if (kvblk_host_id(node) || memcmp(node, question->node, sizeof(node)) != 0)
		return NULL;
	return own_pools_find(&pod.own, question->pool);
}

static bool on_message(void *arg, unsigned int peer, const uint8_t topic[BUS_TOPIC],
		       const void *body, size_t len)
{
	struct deletewire_question question;
	struct deletewire_answer answer;
	const struct own_pool *own;
	struct touchwire touches;

	if (touchwire_read(topic, BUS_TOPIC, body, len, &touches)) {
		take_touches(peer, &touches);
	} else if (deletewire_read_question(topic, BUS_TOPIC, body, len, &question)) {
		own = asked_pool(&question);
		if (own)
			deletes_take(&question, own->name, peer);
	} else {
		return deletewire_read_answer(topic, BUS_TOPIC, body, len, &answer) &&
		       deletes_answered(&answer);
	}
	return true;
}

_Static_assert((KVBLK_PEERS_MSG_MAX - sizeof(struct kvblk_peers_msg)) / DELETEWIRE_ID ==
	       DELETEWIRE_IDS, "a question has as many blocks as the module's");

static void on_deleted(void *question, const int32_t *results, unsigned int nr)
{
	peers_answer(question, results, nr);
}

static void on_delete(struct peers_question *question, const struct kvblk_peers_msg *msg,
		      const struct kvblk_peers_id *ids)
{
	const struct deletewire_question to = {
		.pool = msg->pool_uuid,
		.node = msg->node,
		.ids = ids[0].id,
		.nr = msg->nr,
	};
	/* an adopted pool is one of this host's, and foreign to the others */
	const struct own_pool *own = asked_pool(&to);

	deletes_ask(&to, own ? own->name : NULL, on_deleted, question);
}

static void on_hints(void *question, const struct kvblk_anchor *hints, unsigned int nr)
{
	peers_answer(question, hints, nr);
}

static void on_ask(struct peers_question *question, const uint8_t pod_uuid[16],
		   const struct kvblk_peers_id *ids, unsigned int nr)
{
	directory_ask(pod.directory, pod_uuid, ids, nr, on_hints, question);
}

static void on_anchors(const uint8_t pod_uuid[16], const struct kvblk_anchor *anchors,
		       unsigned int nr)
{
	directory_publish(pod.directory, pod_uuid, anchors, nr);
}

static bool has_room(void)
{
	return directory_has_room(pod.directory);
}

static void on_lost(void *arg)
{
	log_line(LOG_LINE_INFO, "pod: publishing the anchors of all blocks");
	peers_node_again();
}

/* Without a directory, the module reports no anchors and does not ask. */
static struct peers_rules rules_now(void)
{
	struct peers_rules rules = {
		.args = {
			.size = sizeof(rules.args),
			.delete_ms = DELETES_SECONDS * 1000,
		},
		.delete = on_delete,
	};

	if (pod.directory) {
		rules.args.span = (uint32_t)pod.config.directory.span;
		rules.args.ask_ms = (uint32_t)pod.config.directory.ask_ms;
		rules.ask = on_ask;
		rules.anchors = on_anchors;
		rules.has_room = has_room;
	}
	return rules;
}

/* Fetch pools and touches from the module, and publish. Returns 0 or a negative errno. */
static int exchange(void)
{
	const struct peers_rules rules = rules_now();
	struct kvblk_pool_state *pools = NULL;
	int err = pod.admin ? 0 : kvblk_admin_open(&pod.admin);

	if (!err)
		err = kvblk_pool_list(pod.admin, NULL, &pools);
	if (err)
		return err;
	follow_pools(pools);
	kvblk_list_free(pools);
	peers_node_follow(pod.event, &pod.own, &rules);
	return pod.bus ? touches_publish(pod.admin, pod.bus) : 0;
}

/* ---- configuration ---- */

static void close_bus(void)
{
	deletes_use(NULL);
	bus_close(pod.bus);
	pod.bus = NULL;
	texts_free(&pod.peers.peers);
}

static void close_all(void)
{
	peers_node_close();
	directory_close(pod.directory);
	pod.directory = NULL;
	close_bus();
	texts_free(&pod.live);
	pod.own.nr = 0;
	kvblk_admin_close(pod.admin);
	pod.admin = NULL;
}

static int open_peers(void)
{
	const struct texts *named = &pod.config.peers.peers;
	bool whole = texts_copy(&pod.peers.peers, named);

	pod.peers.listen = pod.config.peers.listen;
	for (size_t i = 0; i < pod.live.nr; i++) {
		if (!texts_has(named, pod.live.text[i]))
			whole &= texts_add(&pod.peers.peers, pod.live.text[i]);
	}
	return whole ? bus_open(pod.event, &pod.peers, on_message, NULL, &pod.bus) : -ENOMEM;
}

static void open_bus(void)
{
	const struct config_peers *config = &pod.peers;
	int err = open_peers();

	if (!err) {
		pod.told = 0;
		/* or else the next tick subscribes to no topic */
		pod.own.nr = 0;
		deletes_use(pod.bus);
		log_line(LOG_LINE_INFO, "pod: publishing at %s, following %zu peers",
			 config->listen, config->peers.nr);
		return;
	}
	if (err != pod.told)
		log_line(LOG_LINE_WARNING, "pod: cannot publish at %s or follow the peers: %s; retrying every %d s",
			 config->listen, zmq_strerror(-err), RETRY_SECONDS);
	close_bus();
	pod.told = err;
	pod.wait = RETRY_SECONDS;
}

static void open_directory(void)
{
	int err = directory_open(pod.event, &pod.config.directory, on_lost, NULL, &pod.directory);

	if (err)
		log_line(LOG_LINE_WARNING, "pod: cannot use the directory: %s; directory ignored", strerror(-err));
}

static bool is_active(const struct pod_config *config)
{
	return config->peers.listen || config->directory.engine;
}

static void arm(void)
{
	sd_event_source_set_time_relative(pod.tick, SECOND_US);
	sd_event_source_set_enabled(pod.tick,
				    is_active(&pod.config) ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

static int on_tick(sd_event_source *source, uint64_t us, void *arg)
{
	int err;

	if (!pod.bus && pod.wait && !--pod.wait)
		open_bus();
	touches_admit();
	deletes_expire();
	err = exchange();
	if (err)
		admin_failed(err);
	if (pod.directory && pod.bus &&
	    members_tick(pod.directory, &pod.own, pod.config.peers.listen, &pod.live)) {
		close_bus();
		open_bus();
	}
	arm();
	return 0;
}

static void free_config(struct pod_config *config)
{
	free(config->peers.listen);
	texts_free(&config->peers.peers);
	free(config->directory.engine);
	texts_free(&config->directory.servers);
	free(config->directory.password_file);
	*config = (struct pod_config){ 0 };
}

/* Returns false without memory; free_config() is needed in any case. */
static bool copy_config(struct pod_config *to, const struct config *from)
{
	bool whole;

	*to = (struct pod_config){ .directory = from->directory };
	whole = text_copy(&to->peers.listen, from->pod.listen);
	whole &= texts_copy(&to->peers.peers, &from->pod.peers);
	whole &= text_copy(&to->directory.engine, from->directory.engine);
	whole &= texts_copy(&to->directory.servers, &from->directory.servers);
	whole &= text_copy(&to->directory.password_file, from->directory.password_file);
	return whole;
}

static bool same_config(const struct pod_config *a, const struct pod_config *b)
{
	const struct config_directory *da = &a->directory, *db = &b->directory;

	return text_same(a->peers.listen, b->peers.listen) &&
	       texts_same(&a->peers.peers, &b->peers.peers) &&
	       text_same(da->engine, db->engine) && texts_same(&da->servers, &db->servers) &&
	       text_same(da->password_file, db->password_file) && da->span == db->span &&
	       da->ask_ms == db->ask_ms && da->ttl_s == db->ttl_s;
}

static void take_config(struct pod_config *config)
{
	if (same_config(&pod.config, config)) {
		free_config(config);
		return;
	}
	if (pod.bus)
		log_line(LOG_LINE_INFO, "pod: no longer publishing at %s", pod.config.peers.listen);
	close_all();
	free_config(&pod.config);
	pod.config = *config;
	pod.told = 0;
	pod.wait = 0;
	if (pod.config.peers.listen)
		open_bus();
	if (pod.config.directory.engine)
		open_directory();
	arm();
}

static int on_wake(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct pod_config config = { 0 };
	bool taken;
	eventfd_t n;

	eventfd_read(fd, &n);
	pthread_mutex_lock(&pod.lock);
	taken = pod.has_next;
	if (taken)
		config = pod.next;
	pod.next = (struct pod_config){ 0 };
	pod.has_next = false;
	pthread_mutex_unlock(&pod.lock);
	if (taken)
		take_config(&config);
	return 0;
}

static void *work(void *arg)
{
	int err = sd_event_new(&pod.event);

	if (err >= 0)
		err = sd_event_add_io(pod.event, NULL, pod.wake_fd, EPOLLIN, on_wake, NULL);
	if (err >= 0)
		err = sd_event_add_time_relative(pod.event, &pod.tick, CLOCK_MONOTONIC, 0, ACCURACY_US,
						 on_tick, NULL);
	if (err >= 0)
		err = deletes_start(pod.event);
	if (err >= 0) {
		sd_event_source_set_enabled(pod.tick, SD_EVENT_OFF);
		err = sd_event_loop(pod.event);
	}
	log_line(LOG_LINE_WARNING, "pod: connections to other nodes have ended: %s", strerror(-err));
	return NULL;
}

static int start(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), err;

	if (fd < 0)
		return -errno;
	pod.wake_fd = fd;
	err = thread_start(work, NULL);
	if (err) {
		close(fd);
		pod.wake_fd = 0;
	}
	return err;
}

void pod_configure(const struct config *config)
{
	struct pod_config copy;
	bool whole = copy_config(&copy, config);
	int err = 0;

	/* no thread yet, and none is needed */
	if (whole && !is_active(&copy) && !pod.wake_fd) {
		free_config(&copy);
		return;
	}
	if (!whole)
		err = -ENOMEM;
	else if (!pod.wake_fd)
		err = start();
	if (err) {
		log_line(LOG_LINE_WARNING, "pod: cannot apply the configuration: %s; configuration ignored",
			 strerror(-err));
		free_config(&copy);
		return;
	}
	pthread_mutex_lock(&pod.lock);
	free_config(&pod.next);
	pod.next = copy;
	pod.has_next = true;
	pthread_mutex_unlock(&pod.lock);
	eventfd_write(pod.wake_fd, 1);
}
