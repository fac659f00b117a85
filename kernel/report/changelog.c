// SPDX-License-Identifier: GPL-2.0
/*
 * Changelog: changes of a pool's index, for readers that keep a copy of it elsewhere. Each reader
 * has a descriptor and a ring. The rule: puts and deletes never wait for a reader. Records that
 * find the ring full are counted, and no more are stored until the LOST record was read.
 */
#include <linux/anon_inodes.h>
#include <linux/cleanup.h>
#include <linux/fs.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "report/report.h"

#define READERS_MAX	16
#define WALK_RECORDS	64		/* of present blocks, collected for one copy to user */

/* An open changelog. changelog.lock: pool->changelog.lock. */
struct reader {
	struct list_head link;		/* in pool->changelog.journals */
	struct kvblk_pool *pool;	/* with a reference on its device */
	wait_queue_head_t wait;		/* tasks that read or poll */
	struct mutex reading;		/* serializes reads; tail, walking, bucket */
	struct kvblk_journal_record *ring;	/* @mask + 1 records */
	unsigned long mask;
	unsigned long head;		/* number of records written; changelog.lock */
	unsigned long tail;		/* number of records read */
	u64 seq;			/* of the last record, lost ones included; changelog.lock */
	u64 lost;			/* records lost after those in the ring; changelog.lock */
	bool over;			/* the pool is destroyed; changelog.lock */
	bool walking;			/* present blocks are still being reported */
	u64 bucket;			/* next one of the walk */
};

static struct kvblk_journal_record record_of(const struct kvblk_slot *slot,
					     enum kvblk_journal_op op)
{
	return (struct kvblk_journal_record) {
		.token = slot->place,
		.caller_tag = slot->caller_tag,
		.length = slot->len,
		.tenant = slot->tenant,
		.op = op,
	};
}

/* ---- writing ---- */

static void reader_add(struct reader *reader, struct kvblk_journal_record *record)
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

/* Return whether to wake the reader: the ring was empty, so it may sleep. */
static bool reader_wakes(struct reader *reader, unsigned long head)
{
	/* the barrier in wq_has_sleeper() pairs with those of prepare_to_wait() and poll_wait() */
	return wq_has_sleeper(&reader->wait) && READ_ONCE(reader->tail) == head;
}

/* Return whether to report @slot: users of the NVMe node have no tags. */
static bool is_reported(const struct kvblk_slot *slot)
{
	return slot->caller_tag != KVBLK_NVME_TAG;
}

void kvblk_journal_notify(struct kvblk_index *idx, const struct kvblk_slot *slot, bool came)
{
	struct kvblk_pool *pool = container_of(idx, struct kvblk_pool, index);
	struct kvblk_journal_record record =
		record_of(slot, came ? KVBLK_JOURNAL_STORED : KVBLK_JOURNAL_REMOVED);
	struct reader *reader;
	unsigned long head;

	if (!is_reported(slot))
		return;
	guard(spinlock)(&pool->changelog.lock);
	list_for_each_entry(reader, &pool->changelog.journals, link) {
		head = reader->head;
		reader_add(reader, &record);
		if (reader_wakes(reader, head))
			wake_up_interruptible_poll(&reader->wait, EPOLLIN | EPOLLRDNORM);
	}
}

/* ---- reading ---- */

static bool reader_ready(struct reader *reader)
{
	return READ_ONCE(reader->walking) || READ_ONCE(reader->over) ||
	       READ_ONCE(reader->head) != READ_ONCE(reader->tail) || READ_ONCE(reader->lost);
}

/*
 * Copy up to @nr records of present blocks to @to. Returns their number, 0 if the pool is being
 * destroyed, or an error.
 */
static ssize_t walk_read(struct reader *reader, struct kvblk_journal_record __user *to, size_t nr)
{
	struct kvblk_index *idx = &reader->pool->index;
	struct kvblk_slot slots[KVBLK_INDEX_BUCKET];
	struct kvblk_journal_record *records __free(kfree) = NULL;
	u32 now = kvblk_now(reader->pool);
	u64 bucket = reader->bucket, nr_buckets;
	bool going = false;
	size_t have = 0, i, found;

	nr = min(nr, WALK_RECORDS);
	records = kmalloc_array(nr, sizeof(*records), GFP_KERNEL);
	if (!records)
		return -ENOMEM;
	/* the blocks are freed with the pool */
	if (!kvblk_pool_enter(reader->pool)) {
		WRITE_ONCE(reader->walking, false);
		return 0;
	}
	/* without an array of tags no entry has one */
	nr_buckets = kvblk_index_keeps_tags(idx) ? idx->nr_buckets : 0;
	while (bucket < nr_buckets && have + KVBLK_INDEX_BUCKET < nr) {
		found = kvblk_index_tagged(idx, bucket++, now, slots);
		for (i = 0; i < found; i++)
			if (is_reported(&slots[i]))
				records[have++] = record_of(&slots[i], KVBLK_JOURNAL_STORED);
		if (bucket % 1024)
			continue;
		cond_resched();
		going = percpu_ref_is_dying(&reader->pool->users);
		if (have || going || signal_pending(current))
			break;
	}
	kvblk_pool_leave(reader->pool);
	if (!have && bucket < nr_buckets) {
		reader->bucket = bucket;
		WRITE_ONCE(reader->walking, !going);
		return going ? 0 : -ERESTARTSYS;
	}
	if (bucket >= nr_buckets)
		records[have++] = (struct kvblk_journal_record) {
			.op = KVBLK_JOURNAL_CAUGHT_UP,
		};
	if (copy_to_user(to, records, have * sizeof(*records)))
		return -EFAULT;
	reader->bucket = bucket;
	if (bucket >= nr_buckets)
		WRITE_ONCE(reader->walking, false);
	return have;
}

/* Copy up to @nr records from the ring to @to. Returns their number or -EFAULT. */
static ssize_t ring_read(struct reader *reader, struct kvblk_journal_record __user *to, size_t nr)
{
	unsigned long tail = reader->tail, at = tail & reader->mask, have;

	/* pairs with reader_add() */
	have = smp_load_acquire(&reader->head) - tail;

	have = min3(have, nr, reader->mask + 1 - at);
	if (copy_to_user(to, &reader->ring[at], have * sizeof(*to)))
		return -EFAULT;
	/* copy before the places are free, because reader_add() reuses them */
	smp_store_release(&reader->tail, tail + have);
	return have;
}

/* Copy a LOST record to @to if the ring is empty. Returns 1, 0 if none were lost, or -EFAULT. */
static ssize_t lost_read(struct reader *reader, struct kvblk_journal_record __user *to)
{
	struct kvblk_journal_record record = { .op = KVBLK_JOURNAL_LOST };

	scoped_guard(spinlock, &reader->pool->changelog.lock) {
		if (!reader->lost || reader->head != reader->tail)
			return 0;
		record.token = reader->lost;
		record.seq = reader->seq - reader->lost + 1;
	}
	if (copy_to_user(to, &record, sizeof(record)))
		return -EFAULT;
	/* records lost since the lock was dropped get a LOST record of their own */
	guard(spinlock)(&reader->pool->changelog.lock);
	reader->lost -= record.token;
	return 1;
}

static ssize_t reader_take(struct reader *reader, struct kvblk_journal_record __user *to, size_t nr)
{
	unsigned long waiting = READ_ONCE(reader->head) - reader->tail;
	ssize_t took;

	/*
	 * Read the ring before it fills up during a long walk. Mixing both is safe, because the
	 * last record of an entry is its current state.
	 */
	if (reader->walking && waiting <= reader->mask / 2) {
		took = walk_read(reader, to, nr);
		if (took)
			return took;
	}
	took = ring_read(reader, to, nr);
	return took ?: lost_read(reader, to);
}

static ssize_t journal_read(struct file *filp, char __user *buf, size_t len, loff_t *pos)
{
	struct reader *reader = filp->private_data;
	struct kvblk_journal_record __user *to = (void __user *)buf;
	size_t nr = min(len, INT_MAX) / sizeof(*to), done = 0;
	bool over, wait = !(filp->f_flags & O_NONBLOCK);
	ssize_t took;

	if (nr < KVBLK_INDEX_BUCKET + 1)
		return -EINVAL;
	if (wait ? mutex_lock_interruptible(&reader->reading) : !mutex_trylock(&reader->reading))
		return wait ? -ERESTARTSYS : -EAGAIN;
	for (;;) {
		/* check before the last records are read: pairs with kvblk_journals_end() */
		over = smp_load_acquire(&reader->over);
		took = reader_take(reader, to + done, nr - done);
		if (took > 0)
			done += took;
		/* walk_read() needs space for a whole bucket */
		if (took > 0 && nr - done > KVBLK_INDEX_BUCKET && !signal_pending(current))
			continue;
		if (took || done || over)
			break;
		took = -EAGAIN;
		if (!wait)
			break;
		took = wait_event_interruptible(reader->wait, reader_ready(reader));
		if (took)
			break;
	}
	mutex_unlock(&reader->reading);
	return done ? done * sizeof(*to) : took;
}

static __poll_t journal_poll(struct file *filp, poll_table *table)
{
	struct reader *reader = filp->private_data;

	poll_wait(filp, &reader->wait, table);
	return (reader_ready(reader) ? EPOLLIN | EPOLLRDNORM : 0) |
	       (READ_ONCE(reader->over) ? EPOLLHUP : 0);
}

/* ---- open and release ---- */

static void listen(struct kvblk_pool *pool)
{
	lockdep_assert_held(&pool->changelog.lock);
	WRITE_ONCE(pool->index.listened, !list_empty(&pool->changelog.journals));
}

static int journal_release(struct inode *inode, struct file *filp)
{
	struct reader *reader = filp->private_data;
	struct kvblk_pool *pool = reader->pool;

	scoped_guard(spinlock, &pool->changelog.lock) {
		list_del_init(&reader->link);
		listen(pool);
	}
	vfree(reader->ring);
	kfree(reader);
	put_device(&pool->dev);
	return 0;
}

static const struct file_operations journal_fops = {
	.owner = THIS_MODULE,
	.read = journal_read,
	.poll = journal_poll,
	.release = journal_release,
	.llseek = noop_llseek,
};

static int reader_join(struct kvblk_pool *pool, struct reader *reader)
{
	guard(spinlock)(&pool->changelog.lock);
	if (pool->changelog.over)
		return -ENODEV;
	if (list_count_nodes(&pool->changelog.journals) >= READERS_MAX)
		return -EMFILE;
	list_add_tail(&reader->link, &pool->changelog.journals);
	listen(pool);
	return 0;
}

int kvblk_journal_open(struct kvblk_pool *pool, const struct kvblk_journal *arg)
{
	struct reader *reader;
	int ret = -ENOMEM;

	reader = kzalloc(sizeof(*reader), GFP_KERNEL_ACCOUNT);
	if (!reader)
		return -ENOMEM;
	reader->ring = __vmalloc_array(arg->nr_records, sizeof(*reader->ring),
				       GFP_KERNEL_ACCOUNT | __GFP_NOWARN |
				       __GFP_RETRY_MAYFAIL | __GFP_ZERO);
	if (!reader->ring)
		goto free;
	reader->mask = arg->nr_records - 1;
	reader->pool = pool;
	reader->walking = arg->flags & KVBLK_JOURNAL_PRESENT;
	mutex_init(&reader->reading);
	init_waitqueue_head(&reader->wait);
	ret = reader_join(pool, reader);
	if (ret)
		goto free;
	get_device(&pool->dev);
	ret = anon_inode_getfd("[kvblk-journal]", &journal_fops, reader,
			       O_RDONLY | O_CLOEXEC |
			       (arg->flags & KVBLK_JOURNAL_NONBLOCK ? O_NONBLOCK : 0));
	if (ret >= 0)
		return ret;
	scoped_guard(spinlock, &pool->changelog.lock) {
		list_del(&reader->link);
		listen(pool);
	}
	put_device(&pool->dev);
free:
	vfree(reader->ring);
	kfree(reader);
	return ret;
}

void kvblk_journals_end(struct kvblk_pool *pool)
{
	struct reader *reader;

	guard(spinlock)(&pool->changelog.lock);
	pool->changelog.over = true;
	list_for_each_entry(reader, &pool->changelog.journals, link) {
		/* pairs with journal_read(): publish the last records before the end */
		smp_store_release(&reader->over, true);
		wake_up_interruptible_poll(&reader->wait, EPOLLIN | EPOLLHUP);
	}
}
