// SPDX-License-Identifier: MIT
/* Deletes between nodes, see deletes.h. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "common/thread.h"
#include "lib/kvblk_admin.h"
#include "pod/deletes.h"

#define ASKED		256	/* most open questions of this host */
#define JOBS		256	/* most open questions of all nodes to this host */
#define PEER_JOBS	64	/* most jobs of a node that wait */
#define THIS_HOST	UINT_MAX

_Static_assert(DELETEWIRE_TOPIC == BUS_TOPIC, "one length of topics");

/**
 * struct asked - an open question of this host
 * @number: number of the question
 * @nr: number of blocks
 * @at: time of the question, seconds
 * @fn: callback for the answer
 * @arg: argument of @fn
 */
struct asked {
	LIST_ENTRY(asked) next;
	uint64_t number;
	unsigned int nr;
	int64_t at;
	deletes_fn *fn;
	void *arg;
};

/**
 * struct job - a question to this host
 * @peer: number of the peer that sent it, or THIS_HOST
 * @at: time of arrival, seconds
 * @asker: asker
 * @pool: name of the pool
 * @nr: number of @ids
 * @ids: ids of the blocks
 * @answer: answer; @answer.nr is 0 until the thread has run the job
 */
struct job {
	TAILQ_ENTRY(job) next;
	unsigned int peer;
	int64_t at;
	uint8_t asker[16];
	char pool[KVBLK_NAME_LEN_MAX + 1];
	unsigned int nr;
	uint8_t ids[DELETEWIRE_IDS * DELETEWIRE_ID];
	struct deletewire_answer answer;
};

TAILQ_HEAD(jobs, job);

/**
 * struct deletes - questions of this host and to it
 * @lock: protects @waiting and @done
 * @arrived: signalled when @waiting gets a job
 * @waiting: jobs for the thread
 * @done: jobs that the thread has run
 * @done_fd: eventfd, written when @done gets a job
 * @nr_jobs: jobs that are not answered
 * @bus: connections to other nodes, or NULL
 * @asker: this host, as an asker
 * @asked: open questions of this host
 * @nr_asked: entries of @asked
 * @number: number of the last question
 */
static struct deletes {
	pthread_mutex_t lock;
	pthread_cond_t arrived;
	struct jobs waiting;
	struct jobs done;
	int done_fd;
	unsigned int nr_jobs;
	struct bus *bus;
	uint8_t asker[16];
	LIST_HEAD(, asked) asked;
	unsigned int nr_asked;
	uint64_t number;
} deletes = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.arrived = PTHREAD_COND_INITIALIZER,
	.waiting = TAILQ_HEAD_INITIALIZER(deletes.waiting),
	.done = TAILQ_HEAD_INITIALIZER(deletes.done),
};

/* Time in suspend counts, because askers do not wait for this host. */
static int64_t seconds_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return ts.tv_sec;
}

/* ---- questions of this host ---- */

static void end(struct asked *asked, const int32_t *results, unsigned int nr)
{
	LIST_REMOVE(asked, next);
	deletes.nr_asked--;
	asked->fn(asked->arg, results, nr);
	free(asked);
}

bool deletes_answered(const struct deletewire_answer *answer)
{
	struct asked *asked;

	LIST_FOREACH(asked, &deletes.asked, next) {
		if (asked->number != answer->number)
			continue;
		if (answer->nr && answer->nr != asked->nr)
			return false;
		end(asked, answer->results, answer->nr);
		return true;
	}
	/* too late */
	return true;
}

static void expire(int64_t before)
{
	struct asked *asked, *next;

	for (asked = LIST_FIRST(&deletes.asked); asked; asked = next) {
		next = LIST_NEXT(asked, next);
		if (asked->at < before)
			end(asked, NULL, 0);
	}
}

void deletes_expire(void)
{
	expire(seconds_now() - DELETES_SECONDS);
}

void deletes_use(struct bus *bus)
{
	uint8_t topic[BUS_TOPIC];

	deletes.bus = bus;
	if (!bus) {
		expire(INT64_MAX);
		return;
	}
	deletewire_answer_topic(deletes.asker, topic);
	bus_subscribe(bus, topic, true);
}

/* Returns the new question, NULL if there are too many or no memory. */
static struct asked *asked_new(unsigned int nr, deletes_fn *fn, void *arg)
{
	struct asked *asked = deletes.nr_asked < ASKED ? calloc(1, sizeof(*asked)) : NULL;

	if (!asked)
		return NULL;
	*asked = (struct asked){
		.number = ++deletes.number,
		.nr = nr,
		.at = seconds_now(),
		.fn = fn,
		.arg = arg,
	};
	LIST_INSERT_HEAD(&deletes.asked, asked, next);
	deletes.nr_asked++;
	return asked;
}

void deletes_ask(const struct deletewire_question *question, const char *own, deletes_fn *fn,
		 void *arg)
{
	struct deletewire_question ours = *question;
	uint8_t topic[BUS_TOPIC], body[DELETEWIRE_QUESTION];
	struct asked *asked = deletes.bus || own ? asked_new(question->nr, fn, arg) : NULL;

	if (!asked) {
		fn(arg, NULL, 0);
		return;
	}
	ours.asker = deletes.asker;
	ours.number = asked->number;
	if (own) {
		deletes_take(&ours, own, THIS_HOST);
		return;
	}
	deletewire_question_topic(ours.pool, topic);
	bus_publish(deletes.bus, topic, body, deletewire_write_question(&ours, body));
}

/* ---- questions to this host ---- */

static void send_answer(const uint8_t asker[16], const struct deletewire_answer *answer)
{
	uint8_t topic[BUS_TOPIC], body[DELETEWIRE_ANSWER];

	if (!memcmp(asker, deletes.asker, sizeof(deletes.asker))) {
		deletes_answered(answer);
	} else if (deletes.bus) {
		deletewire_answer_topic(asker, topic);
		bus_publish(deletes.bus, topic, body, deletewire_write_answer(answer, body));
	}
}

static bool has_room(unsigned int peer)
{
	const struct job *job;
	unsigned int nr = 0;

	pthread_mutex_lock(&deletes.lock);
	TAILQ_FOREACH(job, &deletes.waiting, next)
		nr += job->peer == peer;
	pthread_mutex_unlock(&deletes.lock);
	return nr < PEER_JOBS && deletes.nr_jobs < JOBS;
}

void deletes_take(const struct deletewire_question *question, const char *pool, unsigned int peer)
{
	struct job *job = has_room(peer) ? calloc(1, sizeof(*job)) : NULL;

	if (!job) {
		const struct deletewire_answer none = { .number = question->number };

		send_answer(question->asker, &none);
		return;
	}
	job->peer = peer;
	job->at = seconds_now();
	memcpy(job->asker, question->asker, sizeof(job->asker));
	snprintf(job->pool, sizeof(job->pool), "%s", pool);
	job->nr = question->nr;
	memcpy(job->ids, question->ids, (size_t)question->nr * DELETEWIRE_ID);
	job->answer.number = question->number;
	deletes.nr_jobs++;
	pthread_mutex_lock(&deletes.lock);
	TAILQ_INSERT_TAIL(&deletes.waiting, job, next);
	pthread_cond_signal(&deletes.arrived);
	pthread_mutex_unlock(&deletes.lock);
}

/* Delete, unless the asker no longer waits: a later put of the block would be lost. */
static void run(struct job *job)
{
	struct kvblk_admin *admin = NULL;

	if (seconds_now() - job->at < DELETES_SECONDS && !kvblk_admin_open(&admin) &&
	    !kvblk_pool_delete(admin, job->pool, job->ids, job->nr, job->answer.results))
		job->answer.nr = job->nr;
	kvblk_admin_close(admin);
}

static void *work(void *arg)
{
	struct job *job;

	pthread_mutex_lock(&deletes.lock);
	for (;;) {
		job = TAILQ_FIRST(&deletes.waiting);
		if (!job) {
			pthread_cond_wait(&deletes.arrived, &deletes.lock);
			continue;
		}
		TAILQ_REMOVE(&deletes.waiting, job, next);
		pthread_mutex_unlock(&deletes.lock);
		run(job);
		pthread_mutex_lock(&deletes.lock);
		TAILQ_INSERT_TAIL(&deletes.done, job, next);
		eventfd_write(deletes.done_fd, 1);
	}
	return NULL;
}

static int on_done(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
	struct jobs done = TAILQ_HEAD_INITIALIZER(done);
	struct job *job;
	eventfd_t n;

	eventfd_read(fd, &n);
	pthread_mutex_lock(&deletes.lock);
	TAILQ_CONCAT(&done, &deletes.done, next);
	pthread_mutex_unlock(&deletes.lock);
	while ((job = TAILQ_FIRST(&done))) {
		TAILQ_REMOVE(&done, job, next);
		send_answer(job->asker, &job->answer);
		deletes.nr_jobs--;
		free(job);
	}
	return 0;
}

int deletes_start(sd_event *event)
{
	int err;

	if (getrandom(deletes.asker, sizeof(deletes.asker), 0) != sizeof(deletes.asker))
		return -errno;
	deletes.done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (deletes.done_fd < 0)
		return -errno;
	err = sd_event_add_io(event, NULL, deletes.done_fd, EPOLLIN, on_done, NULL);
	return err < 0 ? err : thread_start(work, NULL);
}
