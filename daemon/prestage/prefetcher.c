// SPDX-License-Identifier: MIT
/*
 * Background prefetches, see prefetcher.h. Each order opens a handle of the pool: cancel then
 * finds only its operations, and closing the handle ends its leases.
 *
 * Limits apply per user, and threads serve users in turn, batch by batch, so that the orders of
 * a user do not delay another user's. An order is in the list, under the lock, until it is
 * freed.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <time.h>

#include "common/thread.h"
#include "log/log.h"
#include "prestage/prefetcher.h"

#define BATCH_BYTES	(64ull << 20)	/* limit of a batch; no block is longer */
#define COOKIE		1
#define USERS		8	/* users that may each use the full limits; more users share them */
#define SECOND_NS	1000000000ull

enum order_phase {
	ORDER_WAITING,
	ORDER_RUNNING,
	ORDER_OVER,
};

/**
 * struct user - a user with orders
 * @uid: uid
 * @nr_held: orders that wait, run or hold a lease
 * @nr_over: complete orders without a lease
 * @nr_running: running orders
 * @turn: value of all.turn when a batch of this user last started
 * @bytes: memory of all these orders
 */
struct user {
	LIST_ENTRY(user) next;
	uid_t uid;
	unsigned int nr_held;
	unsigned int nr_over;
	unsigned int nr_running;
	uint64_t turn;
	uint64_t bytes;
};

/**
 * struct order - a list of blocks to prefetch
 *
 * all.lock protects the struct. While ORDER_RUNNING, only the order's thread accesses @err,
 * @sizes,
 * @at, @key and @got, without the lock. Only this thread writes @done, @leading, @leased and
 *	@bytes, under the lock.
 *
 * @memory: bytes charged to @user
 * @canceled: the thread of the order frees it
 * @kv: handle of the pool; NULL: not started, or no lease held
 * @lease_end: end of the lease in CLOCK_MONOTONIC
 * @err: error, or 0
 * @sizes: size of each key's block; NULL: not started
 * @at: first key of the next batch
 * @key: offset of that key in @want's keys
 * @got: result of each key
 * @done: number of keys completed, from the first
 * @leading: number of keys in memory without a gap, from the first
 * @leased: number of keys leased
 * @bytes: bytes loaded
 */
struct order {
	TAILQ_ENTRY(order) next;
	char id[PREFETCHER_ID_LEN];
	struct user *user;
	uint64_t memory;
	struct want want;
	enum order_phase phase;
	bool canceled;
	struct kvblk *kv;
	uint64_t lease_end;
	int err;
	uint32_t *sizes;
	unsigned int at;
	size_t key;
	struct kvblk_prestaged *got;
	unsigned int done;
	unsigned int leading;
	unsigned int leased;
	uint64_t bytes;
};

static struct {
	pthread_mutex_t lock;		/* protects the struct */
	pthread_cond_t changed;		/* signalled when an order waits or is canceled */
	TAILQ_HEAD(, order) orders;	/* oldest first */
	LIST_HEAD(, user) users;
	unsigned int nr_users;
	struct prefetcher_rules rules;
	struct prefetcher_counts counts;
	uint64_t turn;			/* number of batches started */
	unsigned int nr_threads, nr_idle;
	/* earliest start of the next batch under the bandwidth limit */
	uint64_t next_ns;
	bool ready;
} all = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.orders = TAILQ_HEAD_INITIALIZER(all.orders),
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

/* Functions up to next_waiting() need all.lock. */

static struct order *find(const char *id, uid_t uid)
{
	struct order *order;

	TAILQ_FOREACH(order, &all.orders, next) {
		if (!strcmp(order->id, id) && order->user->uid == uid && !order->canceled)
			return order;
	}
	return NULL;
}

/* Find or allocate the user @uid; call user_put() in the end. Returns NULL without memory. */
static struct user *user_get(uid_t uid)
{
	struct user *user;

	LIST_FOREACH(user, &all.users, next) {
		if (user->uid == uid)
			return user;
	}
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->uid = uid;
	LIST_INSERT_HEAD(&all.users, user, next);
	all.nr_users++;
	return user;
}

/* Free a user without orders. */
static void user_put(struct user *user)
{
	if (user->nr_held || user->nr_over)
		return;
	LIST_REMOVE(user, next);
	all.nr_users--;
	free(user);
}

/* Free an order that its user's nr_held or nr_over no longer includes. */
static void order_free(struct order *order)
{
	TAILQ_REMOVE(&all.orders, order, next);
	order->user->bytes -= order->memory;
	user_put(order->user);
	kvblk_close(order->kv);
	want_free(&order->want);
	free(order->sizes);
	free(order->got);
	free(order);
}

static void drop_over(struct order *order)
{
	if (order->kv)
		order->user->nr_held--;
	else
		order->user->nr_over--;
	order_free(order);
}

/* Drop the user's oldest complete order without a lease. Returns false if there is none. */
static bool forget_oldest(const struct user *user)
{
	struct order *order;

	TAILQ_FOREACH(order, &all.orders, next) {
		if (order->user == user && order->phase == ORDER_OVER && !order->kv) {
			drop_over(order);
			return true;
		}
	}
	return false;
}

static void forget_old(struct user *user)
{
	while (user->nr_over > all.rules.waiting && forget_oldest(user))
		;
}

/* Complete an order that holds no lease (any more): close the handle and free the keys. */
static void end_order(struct order *order)
{
	struct chain *chain = &order->want.chain;

	kvblk_close(order->kv);
	order->kv = NULL;
	order->user->nr_held--;
	order->user->nr_over++;
	order->user->bytes -= chain->bytes;
	order->memory -= chain->bytes;
	chain->bytes = 0;
	free(chain->keys);
	chain->keys = NULL;
}

/* Complete orders whose leases have ended. Returns the end of the next lease, 0 if none. */
static uint64_t end_leases(void)
{
	uint64_t now = now_ns(), first = 0;
	struct order *order;
	struct user *user, *next;

	TAILQ_FOREACH(order, &all.orders, next) {
		if (order->phase != ORDER_OVER || !order->kv)
			continue;
		if (order->lease_end <= now)
			end_order(order);
		else if (!first || order->lease_end < first)
			first = order->lease_end;
	}
	for (user = LIST_FIRST(&all.users); user; user = next) {
		next = LIST_NEXT(user, next);
		forget_old(user);
	}
	return first;
}

static void wait_until(uint64_t ns)
{
	struct timespec at = { (time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS) };

	if (ns)
		pthread_cond_timedwait(&all.changed, &all.lock, &at);
	else
		pthread_cond_wait(&all.changed, &all.lock);
}

/* Compare two waiting orders. Priority counts only between orders of the same user. */
static bool goes_before(const struct order *order, const struct order *other)
{
	if (order->user == other->user)
		return order->want.priority > other->want.priority;
	if (order->user->nr_running != other->user->nr_running)
		return order->user->nr_running < other->user->nr_running;
	return order->user->turn < other->user->turn;
}

/* Returns the next order to run, NULL if none waits. */
static struct order *next_waiting(void)
{
	struct order *order, *best = NULL;

	TAILQ_FOREACH(order, &all.orders, next) {
		if (order->phase == ORDER_WAITING && (!best || goes_before(order, best)))
			best = order;
	}
	return best;
}

/* Wait for the bandwidth limit. Returns false if the order was canceled. */
static bool may_go_on(const struct order *order)
{
	bool canceled;

	pthread_mutex_lock(&all.lock);
	while (!order->canceled && all.rules.bandwidth && all.next_ns > now_ns())
		wait_until(all.next_ns);
	canceled = order->canceled;
	pthread_mutex_unlock(&all.lock);
	return !canceled;
}

/* Account for a completed batch of @nr keys. */
static void account(struct order *order, unsigned int nr, const struct kvblk_prestage_sum *sum)
{
	uint64_t now = now_ns(), bytes = sum->loaded_bytes;

	pthread_mutex_lock(&all.lock);
	if (order->leading == order->done)
		order->leading += sum->nr_leading;
	order->done += nr;
	order->leased += sum->nr_leased;
	order->bytes += bytes;
	all.counts.bytes += bytes;
	if (all.next_ns < now)
		all.next_ns = now;
	if (all.rules.bandwidth)
		all.next_ns += (uint64_t)((double)bytes / (double)all.rules.bandwidth * 1e9);
	pthread_mutex_unlock(&all.lock);
}

static unsigned int batch_of(const struct order *order)
{
	uint64_t bytes = 0;
	unsigned int nr = 0;

	for (; order->at + nr < order->want.chain.nr && nr < KVBLK_OPS_MAX; nr++) {
		bytes += order->sizes[order->at + nr];
		if (nr && bytes > BATCH_BYTES)
			break;
	}
	return nr;
}

/* Returns the state of the keys left out after this batch; 0 if the order continues. */
static uint32_t state_of_rest(const struct order *order, unsigned int at, unsigned int nr)
{
	uint32_t rest = 0;

	for (unsigned int i = at; i < at + nr; i++) {
		uint32_t state = order->got[i].state;

		if (state == KVBLK_PRESTAGE_EXPIRED || state == KVBLK_PRESTAGE_CLIPPED)
			return state;
		if (state == KVBLK_PRESTAGE_MISSING && order->want.stop_at_miss)
			rest = KVBLK_PRESTAGE_CLIPPED;
	}
	return rest;
}

static int run_batch(struct order *order, const uint8_t *key, unsigned int at, unsigned int nr)
{
	const struct kvblk_prestage_options options = {
		.size = sizeof(options),
		.max_bytes = order->want.max_bytes ? order->want.max_bytes - order->bytes : 0,
		.deadline_ns = order->want.deadline_ns,
		.cookie = COOKIE,
		.lease_ms = order->want.lease_ms,
		.stop_at_miss = order->want.stop_at_miss,
		.priority = (uint32_t)order->want.priority,
	};
	struct kvblk_prestage_sum sum = { .size = sizeof(sum) };
	int err = kvblk_prestage(order->kv, key, order->want.chain.lens + at, nr, &options,
				 order->got + at, &sum);

	if (!err)
		account(order, nr, &sum);
	return err;
}

/* Set the state of all keys that no batch covered. */
static void leave_out_rest(struct order *order, uint32_t state)
{
	for (; order->at < order->want.chain.nr; order->at++)
		order->got[order->at] = (struct kvblk_prestaged){ .state = state, .length = order->sizes[order->at] };
}

/* Run the next batch. Returns 1 if another follows, 0 if the order is complete, or -errno. */
static int run_next(struct order *order)
{
	const struct chain *chain = &order->want.chain;
	unsigned int nr = batch_of(order), end = order->at + nr;
	uint32_t rest;
	int err;

	if ((order->want.max_bytes && order->bytes >= order->want.max_bytes) || !may_go_on(order)) {
		leave_out_rest(order, KVBLK_PRESTAGE_CLIPPED);
		return 0;
	}
	err = run_batch(order, chain->keys + order->key, order->at, nr);
	if (err)
		return err;
	rest = state_of_rest(order, order->at, nr);
	while (order->at < end)
		order->key += chain->lens[order->at++];
	if (!rest)
		return order->at < chain->nr;
	leave_out_rest(order, rest);
	return 0;
}

static int begin(struct order *order)
{
	const struct chain *chain = &order->want.chain;
	struct kvblk_lookup lookup = {
		.nr_keys = chain->nr,
		.keys = (uintptr_t)chain->keys,
		.key_lens = (uintptr_t)chain->lens,
	};
	struct kvblk *kv = NULL;
	int err;

	order->sizes = calloc(chain->nr, sizeof(*order->sizes));
	if (!order->sizes)
		return -ENOMEM;
	lookup.sizes = (uintptr_t)order->sizes;
	err = kvblk_open(order->want.pool, KVBLK_OPEN_RDONLY, &kv);
	if (err)
		return err;
	pthread_mutex_lock(&all.lock);
	order->kv = kv;
	pthread_mutex_unlock(&all.lock);
	return kvblk_lookup_keys(kv, &lookup, sizeof(lookup));
}

/* Complete a run with all.lock held: the order now holds a lease, or is complete. */
static void finish(struct order *order)
{
	order->phase = ORDER_OVER;
	order->user->nr_running--;
	if (order->canceled) {
		order->user->nr_held--;
		order_free(order);
		return;
	}
	if (!order->err)
		order->done = order->want.chain.nr;
	for (unsigned int i = 0; i < order->want.chain.nr && !order->err; i++)
		all.counts.blocks[order->got[i].state]++;
	order->lease_end = now_ns() + order->want.lease_ms * 1000000ull;
	if (order->leased && !order->err)
		return;
	end_order(order);
	forget_old(order->user);
}

/* Queue the order again, with all.lock held, so that other users get a turn. */
static void set_aside(struct order *order)
{
	order->phase = ORDER_WAITING;
	order->user->nr_running--;
	all.counts.waiting++;
}

static void *work(void *arg)
{
	struct order *order;
	uint64_t lease;
	int more;

	pthread_mutex_lock(&all.lock);
	for (;;) {
		lease = end_leases();
		order = all.nr_threads - all.nr_idle <= all.rules.parallel ? next_waiting() : NULL;
		if (!order) {
			all.nr_idle++;
			wait_until(lease);
			all.nr_idle--;
			continue;
		}
		order->phase = ORDER_RUNNING;
		order->user->nr_running++;
		order->user->turn = ++all.turn;
		all.counts.waiting--;
		pthread_mutex_unlock(&all.lock);
		more = order->sizes ? 0 : begin(order);
		if (!more)
			more = run_next(order);
		order->err = more < 0 ? more : 0;
		if (order->err)
			log_line(LOG_LINE_WARNING, "prestage: pool %s: a prefetch failed: %s",
				 order->want.pool, kvblk_result_text(order->err));
		pthread_mutex_lock(&all.lock);
		if (more > 0 && !order->canceled)
			set_aside(order);
		else
			finish(order);
	}
	return NULL;
}

/* Start a thread unless enough are idle; needs all.lock. Returns 0 if there is any thread. */
static int add_thread(void)
{
	int err;

	if (all.nr_idle > all.counts.waiting || all.nr_threads >= all.rules.parallel)
		return 0;
	err = thread_start(work, NULL);
	all.nr_threads += !err;
	return all.nr_threads ? 0 : err;
}

void prefetcher_configure(const struct prefetcher_rules *rules)
{
	pthread_condattr_t attr;

	pthread_mutex_lock(&all.lock);
	if (!all.ready) {
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&all.changed, &attr);
		pthread_condattr_destroy(&attr);
		all.ready = true;
	}
	all.rules = *rules;
	end_leases();
	pthread_cond_broadcast(&all.changed);
	pthread_mutex_unlock(&all.lock);
}

static uint64_t memory_of(const struct chain *chain)
{
	return sizeof(struct order) + chain->bytes +
	       chain->nr * (sizeof(*chain->lens) + sizeof(uint32_t) + sizeof(struct kvblk_prestaged));
}

static struct order *order_new(struct want *want)
{
	struct order *order = calloc(1, sizeof(*order));
	uint64_t number;

	if (!order)
		return NULL;
	order->got = calloc(want->chain.nr, sizeof(*order->got));
	if (!order->got || getrandom(&number, sizeof(number), 0) != sizeof(number)) {
		free(order->got);
		free(order);
		return NULL;
	}
	snprintf(order->id, sizeof(order->id), "%016" PRIx64, number);
	order->memory = memory_of(&want->chain);
	order->want = *want;
	want->chain = (struct chain){ 0 };
	return order;
}

/* Make space for an order of @memory bytes; needs all.lock. Returns 0, -EAGAIN or -E2BIG. */
static int make_room(const struct user *user, uint64_t memory)
{
	uint64_t most = all.nr_users > USERS ? all.rules.bytes / all.nr_users * USERS : all.rules.bytes;

	if (memory > all.rules.bytes)
		return -E2BIG;
	if (user->nr_held > all.rules.waiting)
		return -EAGAIN;
	while (user->bytes + memory > most) {
		if (!forget_oldest(user))
			return -EAGAIN;
	}
	return 0;
}

/* Add an order that nr_held already includes; needs all.lock. Returns as prefetcher_order(). */
static int add_order(struct want *want, struct user *user, char id[PREFETCHER_ID_LEN])
{
	struct order *order;
	int err = make_room(user, memory_of(&want->chain));

	if (!err)
		err = add_thread();
	if (err)
		return err;
	order = order_new(want);
	if (!order)
		return -ENOMEM;
	order->user = user;
	user->bytes += order->memory;
	memcpy(id, order->id, sizeof(order->id));
	TAILQ_INSERT_TAIL(&all.orders, order, next);
	all.counts.waiting++;
	pthread_cond_broadcast(&all.changed);
	return 0;
}

/* Take all.lock. Returns the user with nr_held incremented, NULL without memory. */
static struct user *user_begin(uid_t uid)
{
	struct user *user;

	pthread_mutex_lock(&all.lock);
	end_leases();
	user = user_get(uid);
	if (user)
		user->nr_held++;
	return user;
}

/* Release all.lock. @stays: the order was added. */
static void user_end(struct user *user, bool stays)
{
	if (user) {
		user->nr_held -= !stays;
		user_put(user);
	}
	pthread_mutex_unlock(&all.lock);
}

int prefetcher_room(const struct chain *chain, uid_t uid)
{
	struct user *user = user_begin(uid);
	int err = user ? make_room(user, memory_of(chain)) : -ENOMEM;

	user_end(user, false);
	return err;
}

int prefetcher_order(struct want *want, uid_t uid, char id[PREFETCHER_ID_LEN])
{
	struct user *user = user_begin(uid);
	int err = user ? add_order(want, user, id) : -ENOMEM;

	user_end(user, !err);
	return err;
}

/* Report the completed keys: their number by state, and the state of each. */
static void tell_keys(const struct order *order, json_t *json)
{
	static const char *const fields[] = { "", "found_keys", "resident_keys", "missing_keys",
					      "clipped_keys", "expired_keys" };
	json_int_t nr[PREFETCHER_STATES] = { 0 };
	json_t *results = json_array();

	for (unsigned int i = 0; i < order->done; i++) {
		nr[order->got[i].state]++;
		json_array_append_new(results, json_string(kvblk_prestage_state_name(order->got[i].state)));
	}
	for (int i = 1; i < PREFETCHER_STATES; i++)
		json_object_set_new(json, fields[i], json_integer(nr[i]));
	json_object_set_new(json, "leading_keys", json_integer(order->leading));
	json_object_set_new(json, "leased_keys", json_integer(order->kv ? order->leased : 0));
	json_object_set_new(json, "loaded_bytes", json_integer((json_int_t)order->bytes));
	json_object_set_new(json, "results", results);
}

json_t *prefetcher_tell(const char *id, uid_t uid)
{
	const struct order *order;
	json_t *json = NULL;

	pthread_mutex_lock(&all.lock);
	end_leases();
	order = find(id, uid);
	if (order)
		json = json_pack("{s:s, s:s, s:s, s:I}", "request_id", id, "pool", order->want.pool,
				 "status", order->phase != ORDER_OVER ? "pending" :
					   order->err ? "failed" : "completed",
				 "total_keys", (json_int_t)order->want.chain.nr);
	if (json && order->phase == ORDER_OVER && order->err)
		json_object_set_new(json, "error", json_string(kvblk_result_text(order->err)));
	else if (json)
		tell_keys(order, json);
	pthread_mutex_unlock(&all.lock);
	return json;
}

/* Cancel an order, with all.lock held. A running order is freed by its thread. */
static void cancel(struct order *order)
{
	order->canceled = true;
	if (order->phase == ORDER_RUNNING) {
		if (order->kv)
			kvblk_cancel(order->kv, COOKIE, NULL);
		pthread_cond_broadcast(&all.changed);
		return;
	}
	all.counts.waiting--;
	order->user->nr_held--;
	order_free(order);
}

const char *prefetcher_drop(const char *id, uid_t uid)
{
	const char *done = NULL;
	struct order *order;

	pthread_mutex_lock(&all.lock);
	order = find(id, uid);
	if (order && order->phase == ORDER_OVER) {
		drop_over(order);
		done = "released";
	} else if (order) {
		cancel(order);
		done = "canceled";
	}
	pthread_mutex_unlock(&all.lock);
	return done;
}

void prefetcher_counts(struct prefetcher_counts *counts)
{
	pthread_mutex_lock(&all.lock);
	*counts = all.counts;
	pthread_mutex_unlock(&all.lock);
}
