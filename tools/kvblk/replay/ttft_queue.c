// SPDX-License-Identifier: MIT
/* The servers of ttft_queue.h, from one event to the next. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "replay/ttft_queue.h"

#define NO_JOB	SIZE_MAX

/* steps of a job; a latency and the computation take seconds, loads take bytes */
enum step {
	DRAM_LATENCY,
	DRAM_LOAD,
	FLASH_LATENCY,
	FLASH_LOAD,
	COMPUTE,
	STEPS,
};

/**
 * struct worker - a server, or the prestager
 * @job: job at work, or NO_JOB
 * @step: current step
 * @left: rest of each step, in seconds or bytes
 */
struct worker {
	size_t job;
	unsigned int step;
	double left[STEPS];
};

/**
 * struct queue - jobs, servers and the prestager
 * @o: options
 * @jobs: jobs in order of arrival
 * @nr: entries of @jobs
 * @arrived: jobs that have arrived
 * @started: jobs that a server has taken
 * @next_stage: first job that the prestager has not taken
 * @done: jobs with a first token
 * @staged: blocks of each job that were prestaged
 * @workers: the prestager, then the servers
 * @now_s: time
 */
struct queue {
	const struct ttft_queue_opts *o;
	const struct ttft_job *jobs;
	size_t nr;
	size_t arrived;
	size_t started;
	size_t next_stage;
	size_t done;
	uint32_t *staged;
	struct worker *workers;
	double now_s;
};

/* Skip steps that are complete. Returns whether none is left. */
static bool complete(struct worker *w)
{
	while (w->step < STEPS && w->left[w->step] <= 0)
		w->step++;
	return w->step == STEPS;
}

static void begin(struct worker *w, const struct queue *q, size_t job, double dram, double flash,
		  double compute_s)
{
	*w = (struct worker){
		.job = job,
		.left = {
			[DRAM_LATENCY] = dram > 0 ? q->o->dram.latency_s : 0,
			[DRAM_LOAD] = dram * q->o->block,
			[FLASH_LATENCY] = flash > 0 ? q->o->flash.latency_s : 0,
			[FLASH_LOAD] = flash * q->o->block,
			[COMPUTE] = compute_s,
		},
	};
}

/* End the prestaging of the current job; only whole blocks count. */
static void stage_end(struct queue *q, struct worker *stager)
{
	uint32_t left = (uint32_t)ceil(stager->left[FLASH_LOAD] / q->o->block - 1e-6);

	q->staged[stager->job] = q->jobs[stager->job].flash - left;
	stager->job = NO_JOB;
}

/* Begin to prestage the next waiting job, if the prestager is idle. */
static void stage_next(struct queue *q, struct worker *stager)
{
	if (stager->job != NO_JOB && complete(stager))
		stage_end(q, stager);
	if (q->next_stage < q->started)
		q->next_stage = q->started;
	for (; stager->job == NO_JOB && q->next_stage < q->arrived; q->next_stage++)
		if (q->jobs[q->next_stage].flash)
			begin(stager, q, q->next_stage, 0, q->jobs[q->next_stage].flash, 0);
}

/* Let an idle server take the next waiting job. */
static void start(struct queue *q, struct worker *server)
{
	const struct ttft_job *job = &q->jobs[q->started];
	struct worker *stager = q->workers;
	uint32_t staged;

	if (stager->job == q->started)
		stage_end(q, stager);
	staged = q->staged[q->started];
	begin(server, q, q->started++, job->dram + staged, job->flash - staged, job->compute_s);
}

/* Complete and begin what is due now. */
static void take_events(struct queue *q, double *times_s)
{
	while (q->arrived < q->nr && q->jobs[q->arrived].arrival_s <= q->now_s)
		q->arrived++;
	for (unsigned int i = 1; i <= q->o->nr_servers; i++) {
		struct worker *w = &q->workers[i];

		/* a job without work is complete at once */
		while (w->job != NO_JOB || q->started < q->arrived) {
			if (w->job == NO_JOB)
				start(q, w);
			if (!complete(w))
				break;
			times_s[w->job] = q->now_s - q->jobs[w->job].arrival_s;
			w->job = NO_JOB;
			q->done++;
		}
	}
	if (q->o->prestage)
		stage_next(q, q->workers);
}

/*
 * Returns the seconds that a unit of @w's current step takes, with @loads of the servers in each
 * step. Prestaging waits while a server loads from flash.
 */
static double pace(const struct queue *q, const struct worker *w, const unsigned int *loads)
{
	if (w == q->workers && w->step == FLASH_LOAD)
		return loads[FLASH_LOAD] ? INFINITY : 1 / q->o->flash.bytes_s;
	switch (w->step) {
	case DRAM_LOAD:
		return loads[DRAM_LOAD] / q->o->dram.bytes_s;
	case FLASH_LOAD:
		return loads[FLASH_LOAD] / q->o->flash.bytes_s;
	default:
		return 1;
	}
}

/* Work until the next step is complete or a job arrives. Returns the busy time of all servers. */
static double work(struct queue *q)
{
	double until_s = q->arrived < q->nr ? q->jobs[q->arrived].arrival_s : INFINITY;
	double step_s = until_s - q->now_s, busy_s = 0;
	unsigned int loads[STEPS] = { 0 };

	for (unsigned int i = 1; i <= q->o->nr_servers; i++)
		if (q->workers[i].job != NO_JOB)
			loads[q->workers[i].step]++;
	for (unsigned int i = 0; i <= q->o->nr_servers; i++) {
		const struct worker *w = &q->workers[i];

		if (w->job != NO_JOB)
			step_s = fmin(step_s, w->left[w->step] * pace(q, w, loads));
	}
	for (unsigned int i = 0; i <= q->o->nr_servers; i++) {
		struct worker *w = &q->workers[i];
		double left_s;

		if (w->job == NO_JOB)
			continue;
		left_s = w->left[w->step] * pace(q, w, loads);
		/* the step that ends first leaves nothing, whatever the rounding */
		if (left_s <= step_s)
			w->left[w->step] = 0;
		else
			w->left[w->step] *= 1 - step_s / left_s;
		busy_s += i ? step_s : 0;
	}
	q->now_s = q->now_s + step_s < until_s ? q->now_s + step_s : until_s;
	return busy_s;
}

int ttft_queue_run(const struct ttft_queue_opts *o, const struct ttft_job *jobs, size_t nr,
		   double *times_s, double *busy_s)
{
	struct queue q = {
		.o = o, .jobs = jobs, .nr = nr,
		.staged = calloc(nr, sizeof(*q.staged)),
		.workers = calloc(o->nr_servers + 1, sizeof(*q.workers)),
	};
	int ret = q.staged && q.workers ? 0 : -ENOMEM;

	for (unsigned int i = 0; !ret && i <= o->nr_servers; i++)
		q.workers[i].job = NO_JOB;
	*busy_s = 0;
	while (!ret) {
		take_events(&q, times_s);
		if (q.done == nr)
			break;
		*busy_s += work(&q);
	}
	free(q.staged);
	free(q.workers);
	return ret;
}
