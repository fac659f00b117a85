// SPDX-License-Identifier: GPL-2.0
/* Results of gets: counters and the trace. */
#include "read/read.h"
#include "trace.h"

static_assert(KVBLK_COUNTERS <= U8_MAX);

static void count_failed(struct kvblk_req *req, int err)
{
	struct kvblk_pool *pool = req->pool;

	if (err == -ENOENT) {
		kvblk_count(pool, KVBLK_C_GET_MISSES, 1);
		this_cpu_inc(req->account->counters->misses);
		kvblk_count(pool, req->read.miss, 1);
	} else if (err == -ETIME) {
		kvblk_count(pool, KVBLK_C_DEADLINES, 1);
		kvblk_count(pool, KVBLK_C_GET_DEADLINES, 1);
	} else if (err == -EINTR && !READ_ONCE(req->canceled) && kvblk_req_late(req)) {
		/* detached because it was late, and reported as -ETIME */
		kvblk_count(pool, KVBLK_C_GET_DEADLINES, 1);
	} else if (err == -ENOMEM) {
		kvblk_count(pool, KVBLK_C_GET_NOMEM, 1);
	} else {
		kvblk_count(pool, KVBLK_C_GET_ERRORS, 1);
	}
}

/* Counts a delivered foreign block. No earlier, or else a get that is read again counts twice. */
static void count_foreign(struct kvblk_req *req)
{
	const struct kvblk_foreign *foreign;

	kvblk_count(req->pool, KVBLK_C_FOREIGN_GETS, 1);
	kvblk_count(req->pool, KVBLK_C_FOREIGN_GET_BYTES, req->read.want);
	kvblk_hist_add(req->pool, KVBLK_H_FOREIGN_GET, req->start);
	guard(rcu)();
	/* the reference is returned, so the member may be followed no longer */
	foreign = kvblk_foreign_of(req->pool, req->slot.seg);
	if (foreign) {
		this_cpu_inc(foreign->stats->gets);
		this_cpu_add(foreign->stats->get_bytes, req->read.want);
	}
}

int kvblk_read_fail(struct kvblk_req *req, int err)
{
	count_failed(req, err);
	return kvblk_req_over(req, err);
}

int kvblk_read_over(struct kvblk_req *req, int err)
{
	struct kvblk_stats __percpu *stats = req->media.stats;
	struct kvblk_pool *pool = req->pool;
	u32 want = req->read.want;

	if (!err) {
		kvblk_count_at(stats, KVBLK_C_GETS, 1);
		kvblk_count_at(stats, KVBLK_C_GET_BYTES, want);
		this_cpu_inc(req->account->counters->hits);
		this_cpu_add(req->account->counters->hit_bytes, want);
		kvblk_hist_add_at(pool, stats, KVBLK_H_GET, want, req->start);
		if (unlikely(req->result.flags & KVBLK_RES_FOREIGN))
			count_foreign(req);
		err = want;
	} else {
		req->result.flags = 0;
		count_failed(req, err);
	}
	trace_kvblk_get(pool->name, req->id.lo, req->slot.len, err, req->result.flags, req->start);
	req->read.state = KVBLK_READ_DONE;
	/* -EINTR is internal: others may still see the completion of a task that exits */
	return kvblk_req_over(req, err == -EINTR ? -ECANCELED : err);
}
