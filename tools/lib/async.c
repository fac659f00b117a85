// SPDX-License-Identifier: MIT
/*
 * Background batches: each thread runs one batch at a time.
 *
 * A queue (queue.c) needs no threads, but pinning, checksums and copies then take CPU
 * time of the caller's thread. A job belongs to the caller before submission and after
 * kvblk_async_take() or done(). In between it is in one list at most, under the lock.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kvblk.h"

struct jobs {
	struct kvblk_job *first, **end;
};

struct kvblk_async {
	struct kvblk *kv;
	int event;
	pthread_mutex_t lock;	/* protects the fields below */
	pthread_cond_t work;	/* signaled when @todo grows or @stop is set */
	struct jobs todo, finished;
	unsigned int nr_todo, nr_idle;
	unsigned int nr_threads, max_threads;
	bool stop;
	pthread_t threads[KVBLK_ASYNC_THREADS_MAX];
};

static void append(struct jobs *list, struct kvblk_job *job)
{
	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
}

static struct kvblk_job *take_first(struct jobs *list)
{
	struct kvblk_job *job = list->first;

	if (job) {
		list->first = job->next;
		if (!list->first)
			list->end = &list->first;
	}
	return job;
}

static int run(struct kvblk *kv, struct kvblk_job *job)
{
	if (job->run)
		return job->run(kv, job);
	return kvblk_mem_submit(kv, job->ops, job->nr_ops, job->results, job->flags);
}

/* Complete a job. Called with the lock held; releases the lock. */
static void finish(struct kvblk_async *async, struct kvblk_job *job)
{
	if (job->done) {
		pthread_mutex_unlock(&async->lock);
		job->done(job);
		return;
	}
	append(&async->finished, job);
	pthread_mutex_unlock(&async->lock);
	eventfd_write(async->event, 1);
}

static void *work(void *arg)
{
	struct kvblk_async *async = arg;
	struct kvblk_job *job;

	pthread_mutex_lock(&async->lock);
	for (;;) {
		async->nr_idle++;
		while (!async->todo.first && !async->stop)
			pthread_cond_wait(&async->work, &async->lock);
		async->nr_idle--;
		job = take_first(&async->todo);
		if (!job)
			break;
		async->nr_todo--;
		if (async->stop) {
			job->err = -ECANCELED;
		} else {
			pthread_mutex_unlock(&async->lock);
			job->err = run(async->kv, job);
			pthread_mutex_lock(&async->lock);
		}
		finish(async, job);
		pthread_mutex_lock(&async->lock);
	}
	pthread_mutex_unlock(&async->lock);
	return NULL;
}

/* Start a thread, with the lock held. All signals are blocked, because they are for the runtime. */
static int add_thread(struct kvblk_async *async)
{
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&async->threads[async->nr_threads], NULL, work, async);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!err)
		async->nr_threads++;
	return -err;
}

int kvblk_async_create(struct kvblk *kv, unsigned int nr_threads,
		       struct kvblk_async **handle)
{
	struct kvblk_async *async;
	int err;

	if (!nr_threads || nr_threads > KVBLK_ASYNC_THREADS_MAX)
		return -EINVAL;
	async = calloc(1, sizeof(*async));
	if (!async)
		return -ENOMEM;
	async->kv = kv;
	async->max_threads = nr_threads;
	async->todo.end = &async->todo.first;
	async->finished.end = &async->finished.first;
	pthread_mutex_init(&async->lock, NULL);
	pthread_cond_init(&async->work, NULL);
	async->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (async->event < 0) {
		err = -errno;
		goto free_handle;
	}
	/* start a thread now, so that no job can fail for want of a thread */
	pthread_mutex_lock(&async->lock);
	err = add_thread(async);
	pthread_mutex_unlock(&async->lock);
	if (err)
		goto close_event;
	*handle = async;
	return 0;

close_event:
	close(async->event);
free_handle:
	pthread_cond_destroy(&async->work);
	pthread_mutex_destroy(&async->lock);
	free(async);
	return err;
}

void kvblk_async_stop(struct kvblk_async *async)
{
	pthread_mutex_lock(&async->lock);
	async->stop = true;
	pthread_cond_broadcast(&async->work);
	pthread_mutex_unlock(&async->lock);
}

void kvblk_async_destroy(struct kvblk_async *async)
{
	if (!async)
		return;
	kvblk_async_stop(async);
	/* no thread is added after the stop */
	for (unsigned int i = 0; i < async->nr_threads; i++)
		pthread_join(async->threads[i], NULL);
	close(async->event);
	pthread_cond_destroy(&async->work);
	pthread_mutex_destroy(&async->lock);
	free(async);
}

void kvblk_async_submit(struct kvblk_async *async, struct kvblk_job *job)
{
	pthread_mutex_lock(&async->lock);
	append(&async->todo, job);
	pthread_cond_signal(&async->work);
	/* if no thread can be created, the job waits for an existing one */
	if (++async->nr_todo > async->nr_idle && async->nr_threads < async->max_threads)
		add_thread(async);
	pthread_mutex_unlock(&async->lock);
}

int kvblk_async_eventfd(const struct kvblk_async *async)
{
	return async->event;
}

struct kvblk_job *kvblk_async_take(struct kvblk_async *async)
{
	struct kvblk_job *job;
	eventfd_t count;

	pthread_mutex_lock(&async->lock);
	job = take_first(&async->finished);
	pthread_mutex_unlock(&async->lock);
	if (job)
		return job;
	/*
	 * The list is empty: reset the eventfd. A job that completed since may be in the
	 * count just read, and would be missed: look again.
	 */
	eventfd_read(async->event, &count);
	pthread_mutex_lock(&async->lock);
	job = take_first(&async->finished);
	pthread_mutex_unlock(&async->lock);
	return job;
}
