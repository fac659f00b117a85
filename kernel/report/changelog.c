// SPDX-License-Identifier: GPL-2.0
/*
 * Changelog: changes of a pool's index, for readers that keep a copy of it elsewhere. Each reader
 * is an open node with a ring, which gets records of blocks that have a caller tag. The rule: puts
 * and deletes never wait for a reader. Records that find the ring full are counted, and no more are
 * stored until the LOST record was read.
 *
 * A token is SipHash-2-4-128 of the entry's name in the index, under a random key of this pool's
 * life, so it reveals neither key nor id. Names of entries differ, so tokens do. A token survives
 * reclaim, and a later block of the same key has the token again.
 */
#include <linux/cleanup.h>
#include <linux/fs.h>
#include <linux/poll.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "report/report.h"

#define READERS_MAX	16
#define WALK_RECORDS	64

/* An open node. */
struct reader {
	struct list_head link;		/* in pool->changelog.readers once started */
	struct kvblk_pool *pool;	/* referenced by the open node's cdev */
	wait_queue_head_t wait;
	struct mutex reading;		/* serializes reads; tail, and the walk */
	struct kvblk_change *ring;	/* @mask + 1 records; NULL: not started; set once */
	u32 record_size;		/* bytes of the caller's record; set before @ring */
	unsigned long mask;		/* set before @ring */
	unsigned long head;		/* records written; pool->changelog.lock */
	unsigned long tail;		/* records read */
	u64 seq;			/* of the last, maybe lost, record; pool->changelog.lock */
	u64 lost;			/* records lost after these; pool->changelog.lock */
	bool over;			/* the pool is destroyed; pool->changelog.lock */
	bool walking;			/* present blocks are still being reported */
	u64 bucket;			/* next one of the walk */
	/* present blocks, collected for one copy to user; here, so no read fails for memory */
	struct kvblk_change walked[WALK_RECORDS];
};

static struct kvblk_change record_of(const struct kvblk_pool *pool,
				     const struct kvblk_index_entry *entry, enum kvblk_change_op op)
{
	struct kvblk_id token = kvblk_tenant_hash(&pool->changelog.key, &entry->name,
						  sizeof(entry->name));

	return (struct kvblk_change) {
		.token = { token.hi, token.lo },
		.caller_tag = entry->slot.caller_tag,
		.length = entry->slot.len,
		.tenant = entry->slot.tenant,
		.op = op,
	};
}

/* ---- writing ---- */

static void reader_add(struct reader *reader, struct kvblk_change *record)
{
	unsigned long head = reader->head;

	record->seq = ++reader->seq;
	if (reader->lost || head - READ_ONCE(reader->tail) > reader->mask) {
		reader->lost++;
		return;
	}
	reader->ring[head & reader->mask] = *record;
	/* pairs with ring_read(): publish the record before the head */
	smp_store_release(&reader->head, head + 1);
}

void kvblk_changes_notify(struct kvblk_index *idx, const struct kvblk_index_entry *entry,
			  bool came)
{
	struct kvblk_pool *pool = container_of(idx, struct kvblk_pool, index);
	struct kvblk_change record;
	struct reader *reader;
	unsigned long head;

	if (!entry->slot.caller_tag)
		return;
	record = record_of(pool, entry, came ? KVBLK_CHANGE_STORED : KVBLK_CHANGE_REMOVED);
	guard(spinlock)(&pool->changelog.lock);
	list_for_each_entry(reader, &pool->changelog.readers, link) {
		head = reader->head;
		reader_add(reader, &record);
		/*
		 * Wake a reader whose ring was empty. The barrier in wq_has_sleeper() pairs with
		 * those of prepare_to_wait() and poll_wait().
		 */
		if (wq_has_sleeper(&reader->wait) && READ_ONCE(reader->tail) == head)
			wake_up_interruptible_poll(&reader->wait, EPOLLIN | EPOLLRDNORM);
	}
}

/* ---- reading ---- */

static bool reader_ready(struct reader *reader)
{
	return READ_ONCE(reader->walking) || READ_ONCE(reader->over) ||
	       READ_ONCE(reader->head) != READ_ONCE(reader->tail) || READ_ONCE(reader->lost);
}

/* Copy @nr records to @to, cut or zero-filled to the caller's size. Returns 0 or -EFAULT. */
static int records_copy(const struct reader *reader, void __user *to,
			const struct kvblk_change *from, size_t nr)
{
	size_t size = reader->record_size, known = min(size, sizeof(*from));

	if (size == sizeof(*from))
		return copy_to_user(to, from, nr * size) ? -EFAULT : 0;
	for (; nr; nr--, from++, to += size)
		if (copy_to_user(to, from, known) || clear_user(to + known, size - known))
			return -EFAULT;
	return 0;
}

/* Copy up to @nr records of present blocks. Returns their number, 0 if the pool ends, or error. */
static ssize_t walk_read(struct reader *reader, void __user *to, size_t nr)
{
	struct kvblk_pool *pool = reader->pool;
	struct kvblk_index *idx = &pool->index;
	struct kvblk_index_entry entries[KVBLK_INDEX_BUCKET];
	struct kvblk_change *records = reader->walked;
	u32 now = kvblk_now(pool);
	u64 bucket = reader->bucket, nr_buckets;
	bool going = false;
	size_t have = 0, i, found;

	nr = min(nr, WALK_RECORDS);
	/* the blocks are freed with the pool */
	if (!kvblk_pool_enter(pool)) {
		WRITE_ONCE(reader->walking, false);
		return 0;
	}
	/* without an array of tags no entry has one */
	nr_buckets = kvblk_index_keeps_tags(idx) ? idx->nr_buckets : 0;
	while (bucket < nr_buckets && have + KVBLK_INDEX_BUCKET < nr) {
		found = kvblk_index_entries(idx, bucket++, now, entries);
		for (i = 0; i < found; i++)
			if (entries[i].slot.caller_tag)
				records[have++] = record_of(pool, &entries[i],
							    KVBLK_CHANGE_STORED);
		if (bucket % 1024)
			continue;
		cond_resched();
		going = percpu_ref_is_dying(&pool->users);
		if (have || going || signal_pending(current))
			break;
	}
	kvblk_pool_leave(pool);
	if (!have && bucket < nr_buckets) {
		reader->bucket = bucket;
		WRITE_ONCE(reader->walking, !going);
		return going ? 0 : -ERESTARTSYS;
	}
	if (bucket >= nr_buckets)
		records[have++] = (struct kvblk_change) { .op = KVBLK_CHANGE_CAUGHT_UP };
	if (records_copy(reader, to, records, have))
		return -EFAULT;
	reader->bucket = bucket;
	WRITE_ONCE(reader->walking, bucket < nr_buckets);
	return have;
}

/* Copy up to @nr records from the ring. Returns their number or -EFAULT. */
static ssize_t ring_read(struct reader *reader, void __user *to, size_t nr)
{
	unsigned long tail = reader->tail, at = tail & reader->mask, have;

	/* pairs with reader_add() */
	have = smp_load_acquire(&reader->head) - tail;
	have = min3(have, nr, reader->mask + 1 - at);
	if (records_copy(reader, to, &reader->ring[at], have))
		return -EFAULT;
	/* copy before the places are free, because reader_add() reuses them */
	smp_store_release(&reader->tail, tail + have);
	return have;
}

/* Copy a LOST record if the ring is empty. Returns 1, 0 if none were lost, or -EFAULT. */
static ssize_t lost_read(struct reader *reader, void __user *to)
{
	struct kvblk_change record = { .op = KVBLK_CHANGE_LOST };

	scoped_guard(spinlock, &reader->pool->changelog.lock) {
		if (!reader->lost || reader->head != reader->tail)
			return 0;
		record.token[0] = reader->lost;
		record.seq = reader->seq - reader->lost + 1;
	}
	if (records_copy(reader, to, &record, 1))
		return -EFAULT;
	/* records lost since the lock was dropped get a LOST record of their own */
	guard(spinlock)(&reader->pool->changelog.lock);
	reader->lost -= record.token[0];
	return 1;
}

static ssize_t reader_take(struct reader *reader, void __user *to, size_t nr)
{
	unsigned long waiting = READ_ONCE(reader->head) - reader->tail;
	ssize_t took;

	/*
	 * Read the ring before it fills up during a long walk. Mixing is safe, because an entry's
	 * last record is its current state.
	 */
	if (reader->walking && waiting <= reader->mask / 2) {
		took = walk_read(reader, to, nr);
		if (took)
			return took;
	}
	return ring_read(reader, to, nr) ?: lost_read(reader, to);
}

/* Return whether the ring, and what was set before it, may be used. */
static bool reader_started(const struct reader *reader)
{
	/* pairs with kvblk_changes_start() */
	return smp_load_acquire(&reader->ring);
}

ssize_t kvblk_changes_read(struct file *filp, char __user *buf, size_t len, loff_t *pos)
{
	struct reader *reader = filp->private_data;
	bool over, wait = !(filp->f_flags & O_NONBLOCK);
	size_t nr, done = 0;
	ssize_t took;

	if (!reader_started(reader))
		return -EINVAL;
	nr = min(len, INT_MAX) / reader->record_size;
	if (nr < KVBLK_INDEX_BUCKET + 1)
		return -EINVAL;
	if (wait ? mutex_lock_interruptible(&reader->reading) : !mutex_trylock(&reader->reading))
		return wait ? -ERESTARTSYS : -EAGAIN;
	for (;;) {
		/* check before the last records are read: pairs with kvblk_changes_end() */
		over = smp_load_acquire(&reader->over);
		took = reader_take(reader, buf + done * reader->record_size, nr - done);
		if (took > 0)
			done += took;
		/* walk_read() needs space for a whole bucket */
		if (took > 0 && nr - done > KVBLK_INDEX_BUCKET && !signal_pending(current))
			continue;
		/*
		 * Look again, or else an edge-triggered poll would miss the record of a writer that
		 * saw the old tail and did not wake. lost_read() took its lock: it is visible now.
		 */
		if (!took && !over && reader_ready(reader))
			continue;
		if (took || done || over)
			break;
		took = !wait ? -EAGAIN :
		       wait_event_interruptible(reader->wait, reader_ready(reader));
		if (took)
			break;
	}
	mutex_unlock(&reader->reading);
	return done ? done * reader->record_size : took;
}

__poll_t kvblk_changes_poll(struct file *filp, poll_table *table)
{
	struct reader *reader = filp->private_data;

	poll_wait(filp, &reader->wait, table);
	if (!reader_started(reader))
		return EPOLLERR;
	return (reader_ready(reader) ? EPOLLIN | EPOLLRDNORM : 0) |
	       (READ_ONCE(reader->over) ? EPOLLHUP : 0);
}

/* ---- open, start and release ---- */

static void listen(struct kvblk_pool *pool)
{
	lockdep_assert_held(&pool->changelog.lock);
	WRITE_ONCE(pool->index.listened, !list_empty(&pool->changelog.readers));
}

int kvblk_changes_open(struct kvblk_pool *pool, struct file *filp)
{
	struct reader *reader = kzalloc(sizeof(*reader), GFP_KERNEL_ACCOUNT);

	if (!reader)
		return -ENOMEM;
	INIT_LIST_HEAD(&reader->link);
	reader->pool = pool;
	mutex_init(&reader->reading);
	init_waitqueue_head(&reader->wait);
	filp->private_data = reader;
	return 0;
}

int kvblk_changes_release(struct inode *inode, struct file *filp)
{
	struct reader *reader = filp->private_data;

	scoped_guard(spinlock, &reader->pool->changelog.lock) {
		list_del_init(&reader->link);
		listen(reader->pool);
	}
	vfree(reader->ring);
	kfree(reader);
	return 0;
}

int kvblk_changes_start(struct file *filp, const struct kvblk_changes *arg)
{
	struct reader *reader = filp->private_data;
	struct kvblk_pool *pool = reader->pool;
	struct kvblk_change *ring __free(kvfree) =
		__vmalloc_array(arg->nr_records, sizeof(*ring), GFP_KERNEL_ACCOUNT | __GFP_NOWARN |
				__GFP_RETRY_MAYFAIL | __GFP_ZERO);

	if (!ring)
		return -ENOMEM;
	guard(spinlock)(&pool->changelog.lock);
	if (reader->ring)
		return -EBUSY;
	if (pool->changelog.over)
		return -ENODEV;
	if (list_count_nodes(&pool->changelog.readers) >= READERS_MAX)
		return -EMFILE;
	reader->record_size = arg->record_size;
	reader->mask = arg->nr_records - 1;
	reader->walking = arg->flags & KVBLK_CHANGES_PRESENT;
	/* pairs with reader_started() */
	smp_store_release(&reader->ring, no_free_ptr(ring));
	list_add_tail(&reader->link, &pool->changelog.readers);
	listen(pool);
	return 0;
}

void kvblk_changes_init(struct kvblk_pool *pool)
{
	spin_lock_init(&pool->changelog.lock);
	INIT_LIST_HEAD(&pool->changelog.readers);
	get_random_bytes(&pool->changelog.key, sizeof(pool->changelog.key));
}

void kvblk_changes_end(struct kvblk_pool *pool)
{
	struct reader *reader;

	guard(spinlock)(&pool->changelog.lock);
	pool->changelog.over = true;
	list_for_each_entry(reader, &pool->changelog.readers, link) {
		/* pairs with kvblk_changes_read(): publish the last records before the end */
		smp_store_release(&reader->over, true);
		wake_up_interruptible_poll(&reader->wait, EPOLLIN | EPOLLHUP);
	}
}
