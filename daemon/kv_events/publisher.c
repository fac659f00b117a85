// SPDX-License-Identifier: MIT
/* The exporter of KV events, see publisher.h. An error closes all; RETRY_US later it reopens. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <systemd/sd-event.h>
#include <unistd.h>
#include <zmq.h>

#include "common/thread.h"
#include "kv_events/publisher.h"
#include "kv_events/zmq_pub.h"
#include "kv_events/zmq_sub.h"
#include "lib/kvblk_admin.h"
#include "log/log.h"

#define RETRY_US	5000000ull
#define SECOND_US	1000000ull
#define READ_RECORDS	4096
#define PATIENCE_US	30000000ull	/* until a source without connection is logged */

/**
 * struct follower - reader of a pool's change feed
 * @name: name of the pool
 * @source: event source, owns the feed's descriptor; NULL: not open
 * @told: last error that was logged
 */
struct follower {
	const char *name;
	sd_event_source *source;
	int told;
};

/**
 * struct source - an engine
 * @endpoint: endpoint of the engine
 * @sub: subscription, NULL: not open yet
 * @told: invalid batches of this engine were logged
 */
struct source {
	const char *endpoint;
	struct zmqsub *sub;
	bool told;
};

/**
 * struct kvfeed - the exporter
 * @lock: protects @next, @has_next, @counts, @runs, @source_states and @nr_sources
 * @next: copy of the next configuration
 * @has_next: @next is valid
 * @counts: copy of @events' counters for other threads
 * @runs: @counts is valid
 * @source_states: states of @sources for other threads, updated each second
 * @nr_sources: entries of @source_states
 * @wake_fd: eventfd, written for a new configuration or pool; 0: there is no thread
 * @config: configuration in force
 * @event: loop of the thread
 * @retry: timer, opens what is not open
 * @repeat: timer, sends the last batch again
 * @look: timer, updates @source_states
 * @patience: runs of @look until missing sources are logged; 0: logged
 * @again: closing and opening again is scheduled
 * @told: last error that was logged
 * @context: context of ZeroMQ; NULL: not open
 */
static struct kvfeed {
	pthread_mutex_t lock;
	struct config_kv_events next;
	bool has_next;
	struct kvevents_counts counts;
	bool runs;
	struct kvfeed_source *source_states;
	size_t nr_sources;
	int wake_fd;

	struct config_kv_events config;
	sd_event *event;
	sd_event_source *retry;
	sd_event_source *repeat;
	sd_event_source *look;
	unsigned int patience;
	bool again;
	int told;
	void *context;
	struct kvevents_rules rules;
	struct kvevents *events;
	struct zmqpub_rules pub_rules;
	struct zmqpub *pub;
	struct follower followers[KVEVENTS_POOLS];
	struct source *sources;
} feed = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void arm(sd_event_source *timer, uint64_t us)
{
	sd_event_source_set_time_relative(timer, us);
	sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

/* Log an error and schedule a restart of the exporter. */
static void fail(int err)
{
	if (err != feed.told)
		log_line(LOG_LINE_WARNING, "kv_events: %s; restarting in %d s", strerror(-err),
			 (int)(RETRY_US / 1000000));
	feed.told = err;
	/* a later error must not postpone the restart */
	if (!feed.again)
		arm(feed.retry, RETRY_US);
	feed.again = true;
}

/* Restart the timer that repeats the last batch. */
static void arm_repeat(void)
{
	if (feed.config.repeat)
		arm(feed.repeat, (uint64_t)feed.config.repeat * SECOND_US);
}

static int on_repeat(sd_event_source *source, uint64_t us, void *arg)
{
	zmqpub_repeat(feed.pub);
	arm_repeat();
	return 0;
}

/* Publish a batch. Always returns true: fail() handles errors. */
static bool publish(void *arg, const struct kvwire_bytes *batch)
{
	int err = zmqpub_send(feed.pub, batch);

	arm_repeat();
	if (err)
		fail(err);
	return true;
}

static size_t shares(void *arg)
{
	return kvevents_shares(feed.events);
}

static int share(void *arg, size_t number, size_t nr, kvevents_publish_fn *to, void *to_arg)
{
	return kvevents_share(feed.events, number, nr, to, to_arg);
}

/* Complete a turn of the loop, whose result is @err: copy the counters, publish pending events. */
static void settle(int err)
{
	pthread_mutex_lock(&feed.lock);
	feed.counts = *kvevents_counts(feed.events);
	pthread_mutex_unlock(&feed.lock);
	if (!err)
		err = kvevents_flush(feed.events);
	if (err)
		fail(err);
}

static void learn(void *arg, const struct kvwire_block *block)
{
	int *err = arg;

	if (!*err)
		*err = kvevents_learn(feed.events, block);
}

static void on_batch(void *arg, const void *batch, size_t len)
{
	struct source *source = arg;
	int err = 0;

	if (feed.again)
		return;
	if (kvwire_read(batch, len, learn, &err) && !source->told) {
		log_line(LOG_LINE_WARNING, "kv_events: source %s sent a message that is no batch of event maps; message ignored",
			 source->endpoint);
		source->told = true;
	}
	settle(err);
}

/* Update the sources' states. Log missing ones late, because engines may start after kvblkd. */
static int on_look(sd_event_source *source, uint64_t us, void *arg)
{
	bool last = feed.patience && !--feed.patience;

	pthread_mutex_lock(&feed.lock);
	for (size_t i = 0; i < feed.nr_sources; i++)
		feed.source_states[i].connected = zmqsub_connected(feed.sources[i].sub);
	pthread_mutex_unlock(&feed.lock);
	for (size_t i = 0; last && i < feed.nr_sources; i++) {
		if (!zmqsub_connected(feed.sources[i].sub))
			log_line(LOG_LINE_WARNING, "kv_events: source %s does not respond; check that its engine is up and that kvblkd may connect to it",
				 feed.sources[i].endpoint);
	}
	arm(feed.look, SECOND_US);
	return 0;
}

static int open_sources(void)
{
	const struct texts *texts = &feed.config.sources;
	struct kvfeed_source *states;
	int err = 0;

	feed.sources = calloc(texts->nr + 1, sizeof(*feed.sources));
	states = calloc(texts->nr + 1, sizeof(*states));
	if (!feed.sources || !states) {
		free(states);
		return -ENOMEM;
	}
	for (size_t i = 0; i < texts->nr && !err; i++) {
		feed.sources[i].endpoint = texts->text[i];
		snprintf(states[i].endpoint, sizeof(states[i].endpoint), "%s", texts->text[i]);
		err = zmqsub_open(feed.event, feed.context, texts->text[i], on_batch, &feed.sources[i],
				  &feed.sources[i].sub);
	}
	if (err || !texts->nr) {
		free(states);
		return err;
	}
	pthread_mutex_lock(&feed.lock);
	feed.source_states = states;
	feed.nr_sources = texts->nr;
	pthread_mutex_unlock(&feed.lock);
	feed.patience = PATIENCE_US / SECOND_US;
	arm(feed.look, SECOND_US);
	return 0;
}

static void stop_following(struct follower *follower)
{
	follower->source = sd_event_source_disable_unref(follower->source);
}

static int on_changes(sd_event_source *source, int fd, uint32_t revents, void *arg);

static int open_changes(const char *pool)
{
	const struct kvblk_changes changes = {
		.size = sizeof(changes),
		.flags = KVBLK_CHANGES_PRESENT,
		.nr_records = (uint32_t)feed.config.changes,
		.record_size = sizeof(struct kvblk_change),
	};

	return kvblk_changes_open(pool, O_NONBLOCK, &changes);
}

static void start_following(struct follower *follower)
{
	int fd = open_changes(follower->name), err = fd;

	if (fd >= 0) {
		err = sd_event_add_io(feed.event, &follower->source, fd, EPOLLIN, on_changes, follower);
		if (err < 0)
			close(fd);
		else
			sd_event_source_set_io_fd_own(follower->source, true);
	}
	if (err >= 0) {
		kvevents_begin(feed.events, (unsigned int)(follower - feed.followers));
		log_line(LOG_LINE_INFO, "kv_events: following pool %s", follower->name);
	} else if (err != -ENODEV && err != follower->told) {
		log_line(LOG_LINE_WARNING, "kv_events: cannot follow pool %s: %s; retrying",
			 follower->name, strerror(-err));
	}
	follower->told = err < 0 ? err : 0;
}

/* Open the change feeds that are not open. Retry while one is missing. */
static void look_for_pools(void)
{
	bool missing = false;

	/* the retry timer belongs to the restart */
	if (feed.again)
		return;
	for (size_t i = 0; i < feed.config.pools.nr; i++) {
		struct follower *follower = &feed.followers[i];

		follower->name = feed.config.pools.text[i];
		if (!follower->source)
			start_following(follower);
		missing |= !follower->source;
	}
	if (missing)
		arm(feed.retry, RETRY_US);
}

/* Returns as kvevents_record(). */
static int take_records(struct follower *follower, const struct kvblk_change *records, size_t nr)
{
	int err = 0;

	for (size_t i = 0; i < nr && !err; i++)
		err = kvevents_record(feed.events, (unsigned int)(follower - feed.followers), &records[i]);
	return err;
}

static int on_changes(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	static struct kvblk_change records[READ_RECORDS];
	struct follower *follower = arg;
	ssize_t len;
	int err;

	if (feed.again) {
		stop_following(follower);
		return 0;
	}
	len = read(fd, records, sizeof(records));
	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (len <= 0) {
		/* treat the end and any error alike: the pool was destroyed, or its feed is unusable */
		log_line(LOG_LINE_INFO, "kv_events: the change feed of pool %s has ended", follower->name);
		stop_following(follower);
		settle(kvevents_end(feed.events, (unsigned int)(follower - feed.followers)));
		look_for_pools();
		return 0;
	}
	err = take_records(follower, records, (size_t)len / sizeof(*records));
	if (err == -ENOBUFS) {
		log_line(LOG_LINE_WARNING, "kv_events: the change feed of pool %s overflowed; reading the whole pool",
			 follower->name);
		stop_following(follower);
		look_for_pools();
		/* pool destroyed: no new feed will report what was removed */
		err = follower->source ? 0 : kvevents_end(feed.events, (unsigned int)(follower - feed.followers));
	}
	settle(err);
	return 0;
}

static void close_all(void)
{
	sd_event_source_set_enabled(feed.repeat, SD_EVENT_OFF);
	sd_event_source_set_enabled(feed.retry, SD_EVENT_OFF);
	sd_event_source_set_enabled(feed.look, SD_EVENT_OFF);
	for (size_t i = 0; i < KVEVENTS_POOLS; i++) {
		stop_following(&feed.followers[i]);
		feed.followers[i].told = 0;
	}
	for (size_t i = 0; feed.sources && i < feed.config.sources.nr; i++)
		zmqsub_close(feed.sources[i].sub);
	free(feed.sources);
	feed.sources = NULL;
	zmqpub_close(feed.pub);
	feed.pub = NULL;
	kvevents_free(feed.events);
	feed.events = NULL;
	if (feed.context)
		zmq_ctx_term(feed.context);
	feed.context = NULL;
	pthread_mutex_lock(&feed.lock);
	feed.runs = false;
	free(feed.source_states);
	feed.source_states = NULL;
	feed.nr_sources = 0;
	pthread_mutex_unlock(&feed.lock);
}

static int open_parts(void)
{
	const struct config_kv_events *config = &feed.config;
	int err;

	feed.rules = (struct kvevents_rules){ config->medium, config->hash_only, (uint32_t)config->parts,
					      (size_t)config->token_bytes };
	feed.pub_rules = (struct zmqpub_rules){
		.endpoint = config->endpoint,
		.replay = config->replay,
		.topic = config->topic,
		.buffer_bytes = (size_t)config->buffer_bytes,
		.shares = shares,
		.share = share,
	};
	feed.context = zmq_ctx_new();
	feed.events = kvevents_new(&feed.rules, publish, NULL);
	if (!feed.context || !feed.events)
		return -ENOMEM;
	err = zmqpub_open(feed.event, feed.context, &feed.pub_rules, &feed.pub);
	return err ? err : open_sources();
}

static void open_all(void)
{
	const struct config_kv_events *config = &feed.config;
	int err;

	feed.again = false;
	if (!config->endpoint)
		return;
	err = open_parts();
	if (err) {
		if (err != feed.told)
			log_line(LOG_LINE_WARNING, "kv_events: cannot publish at %s and %s: %s; retrying every %d s",
				 config->endpoint, config->replay, zmq_strerror(-err),
				 (int)(RETRY_US / 1000000));
		feed.told = err;
		close_all();
		feed.again = true;
		arm(feed.retry, RETRY_US);
		return;
	}
	feed.told = 0;
	log_line(LOG_LINE_INFO, "kv_events: publishing at %s", config->endpoint);
	if (!config->pools.nr)
		log_line(LOG_LINE_WARNING, "kv_events: neither kv_events nor the configuration has pools; nothing to publish");
	pthread_mutex_lock(&feed.lock);
	feed.runs = true;
	pthread_mutex_unlock(&feed.lock);
	/* publishes AllBlocksCleared: events of an earlier run are void */
	settle(0);
	look_for_pools();
}

static int on_retry(sd_event_source *source, uint64_t us, void *arg)
{
	if (feed.again) {
		close_all();
		open_all();
	} else {
		look_for_pools();
	}
	return 0;
}

#define TEXT(field)	offsetof(struct config_kv_events, field)

static const size_t own_texts[] = { TEXT(endpoint), TEXT(replay), TEXT(topic), TEXT(medium) };
static const size_t own_lists[] = { TEXT(pools), TEXT(sources) };

#define OWN_TEXTS	(sizeof(own_texts) / sizeof(own_texts[0]))
#define OWN_LISTS	(sizeof(own_lists) / sizeof(own_lists[0]))

static char **text_of(const struct config_kv_events *config, size_t i)
{
	return (char **)((uintptr_t)config + own_texts[i]);
}

static struct texts *list_of(const struct config_kv_events *config, size_t i)
{
	return (struct texts *)((uintptr_t)config + own_lists[i]);
}

static void free_config(struct config_kv_events *config)
{
	for (size_t i = 0; i < OWN_TEXTS; i++)
		free(*text_of(config, i));
	for (size_t i = 0; i < OWN_LISTS; i++)
		texts_free(list_of(config, i));
	*config = (struct config_kv_events){ 0 };
}

/* Copy the configuration. Without pools of its own, the exporter gets all configured pools. */
static bool copy_config(struct config_kv_events *to, const struct config *config)
{
	const struct config_kv_events *from = &config->kv_events;
	bool whole = true;

	*to = *from;
	for (size_t i = 0; i < OWN_TEXTS; i++)
		whole &= text_copy(text_of(to, i), *text_of(from, i));
	for (size_t i = 0; i < OWN_LISTS; i++)
		whole &= texts_copy(list_of(to, i), list_of(from, i));
	for (size_t i = 0; from->endpoint && !from->pools.nr && i < config->nr_pools && i < KVEVENTS_POOLS; i++)
		whole &= texts_add(&to->pools, config->pools[i].name);
	return whole;
}

static bool same_config(const struct config_kv_events *a, const struct config_kv_events *b)
{
	for (size_t i = 0; i < OWN_TEXTS; i++) {
		if (!text_same(*text_of(a, i), *text_of(b, i)))
			return false;
	}
	for (size_t i = 0; i < OWN_LISTS; i++) {
		if (!texts_same(list_of(a, i), list_of(b, i)))
			return false;
	}
	return a->hash_only == b->hash_only && a->parts == b->parts && a->buffer_bytes == b->buffer_bytes &&
	       a->token_bytes == b->token_bytes && a->changes == b->changes && a->repeat == b->repeat;
}

static void take_config(struct config_kv_events *config)
{
	if (same_config(&feed.config, config)) {
		free_config(config);
		return;
	}
	if (feed.pub)
		log_line(LOG_LINE_INFO, "kv_events: no longer publishing at %s", feed.config.endpoint);
	close_all();
	free_config(&feed.config);
	feed.config = *config;
	feed.told = 0;
	open_all();
}

static int on_wake(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct config_kv_events config = { 0 };
	bool taken;
	eventfd_t n;

	eventfd_read(fd, &n);
	pthread_mutex_lock(&feed.lock);
	taken = feed.has_next;
	if (taken)
		config = feed.next;
	feed.next = (struct config_kv_events){ 0 };
	feed.has_next = false;
	pthread_mutex_unlock(&feed.lock);
	if (taken)
		take_config(&config);
	if (feed.pub)
		look_for_pools();
	return 0;
}

static void *work(void *arg)
{
	int err = sd_event_new(&feed.event);

	if (err >= 0)
		err = sd_event_add_io(feed.event, NULL, feed.wake_fd, EPOLLIN, on_wake, NULL);
	if (err >= 0)
		err = sd_event_add_time_relative(feed.event, &feed.retry, CLOCK_MONOTONIC, 0, 0, on_retry, NULL);
	if (err >= 0)
		err = sd_event_add_time_relative(feed.event, &feed.repeat, CLOCK_MONOTONIC, 0, 0, on_repeat, NULL);
	if (err >= 0)
		err = sd_event_add_time_relative(feed.event, &feed.look, CLOCK_MONOTONIC, 0, 0, on_look, NULL);
	if (err >= 0) {
		sd_event_source_set_enabled(feed.look, SD_EVENT_OFF);
		sd_event_source_set_enabled(feed.retry, SD_EVENT_OFF);
		sd_event_source_set_enabled(feed.repeat, SD_EVENT_OFF);
		err = sd_event_loop(feed.event);
	}
	log_line(LOG_LINE_WARNING, "kv_events: publisher stopped: %s", strerror(-err));
	return NULL;
}

static int start(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), err;

	if (fd < 0)
		return -errno;
	feed.wake_fd = fd;
	err = thread_start(work, NULL);
	if (err) {
		close(fd);
		feed.wake_fd = 0;
	}
	return err;
}

void kvfeed_wake(void)
{
	if (feed.wake_fd)
		eventfd_write(feed.wake_fd, 1);
}

void kvfeed_configure(const struct config *config)
{
	struct config_kv_events copy;
	int err = 0;

	/* no thread yet, and none is needed */
	if (!config->kv_events.endpoint && !feed.wake_fd)
		return;
	if (!copy_config(&copy, config))
		err = -ENOMEM;
	else if (!feed.wake_fd)
		err = start();
	if (err) {
		log_line(LOG_LINE_WARNING, "kv_events: cannot apply the configuration: %s; configuration ignored", strerror(-err));
		free_config(&copy);
		return;
	}
	pthread_mutex_lock(&feed.lock);
	free_config(&feed.next);
	feed.next = copy;
	feed.has_next = true;
	pthread_mutex_unlock(&feed.lock);
	kvfeed_wake();
}

bool kvfeed_counts(struct kvevents_counts *counts)
{
	bool runs;

	pthread_mutex_lock(&feed.lock);
	*counts = feed.counts;
	runs = feed.runs;
	pthread_mutex_unlock(&feed.lock);
	return runs;
}

size_t kvfeed_sources(struct kvfeed_source *sources, size_t most)
{
	size_t nr;

	pthread_mutex_lock(&feed.lock);
	nr = feed.nr_sources < most ? feed.nr_sources : most;
	if (nr)
		memcpy(sources, feed.source_states, nr * sizeof(*sources));
	pthread_mutex_unlock(&feed.lock);
	return nr;
}
