// SPDX-License-Identifier: GPL-2.0
/*
 * Questions to the pool's kvblkd, which speaks to the other nodes of the pod, and anchors for it.
 * The layouts are those of the node "peers", see uapi/linux/kvblk.h. The rules:
 * - A question belongs to the caller that waits. The daemon's lists refer to it under @lock only,
 *   so a caller that gives up leaves nothing behind.
 * - Without a daemon there are no questions. A daemon that ends answers all of them: with nothing.
 * - Anchors that find the ring full wait for the daemon; puts do not wait, see pool/anchors.c.
 */
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "pool/pool.h"

#define QUESTIONS_MAX	64u		/* in flight, of a pool */
#define RING_ANCHORS	4096u		/* a power of two */
#define MSG_ANCHORS	((KVBLK_PEERS_MSG_MAX - sizeof(struct kvblk_peers_msg)) / \
			 sizeof(struct kvblk_anchor))

static_assert(sizeof(struct kvblk_peers) == KVBLK_PEERS_SIZE_VER0);
static_assert(sizeof(struct kvblk_peers_id) == KVBLK_ID_BYTES);

enum question_state {
	QUESTION_ASKED,			/* on the daemon's lists */
	QUESTION_ANSWERED,		/* complete once all @polls are */
	QUESTION_LOST,			/* the daemon ended */
};

union entry {
	struct kvblk_peers_id id;	/* until the answer */
	struct {
		u32 seg_base;		/* of a member that a hint named */
		u64 hint;		/* number that the member's poll must reach */
	} poll;
};

/* question_take() copies the entries as ids */
static_assert(sizeof(union entry) == KVBLK_ID_BYTES);

struct kvblk_question {
	struct list_head link;		/* daemon->asked or daemon->read while ASKED */
	struct kvblk_pool *pool;	/* outlives the question */
	struct kvblk_peers_msg msg;
	ktime_t end;
	u32 state;			/* &enum question_state; release, after what it is about */
	u32 nr_polls;
	s32 res;			/* of a delete */
	union entry entries[];		/* msg.nr of them, or @nr_polls */
};

/* An open node. */
struct kvblk_daemon {
	struct kvblk_pool *pool;	/* referenced by the open node's cdev */
	wait_queue_head_t wait;		/* readers */
	struct mutex reading;		/* serializes reads; @buffer */
	struct mutex writing;		/* serializes answers */
	bool started;			/* once; set after @ring */
	bool over;			/* the pool is destroyed; pool->peers.lock */
	struct list_head asked;		/* questions to read; pool->peers.lock */
	struct list_head read;		/* questions to answer; pool->peers.lock */
	u32 nr;				/* questions on both; pool->peers.lock */
	struct kvblk_anchor *ring;	/* RING_ANCHORS, or NULL without a span */
	u32 head;			/* anchors written; pool->peers.lock */
	u32 tail;			/* anchors read; pool->peers.lock */
	bool caught_up;			/* the first pass is over; pool->peers.lock */
	bool catches_up;		/* the message about that is to be read; pool->peers.lock */
	struct {
		struct kvblk_peers_msg head;
		u8 entries[KVBLK_PEERS_MSG_MAX - sizeof(struct kvblk_peers_msg)];
	} buffer;
};

/* ---- anchors ---- */

int kvblk_peers_note(struct kvblk_pool *pool, const struct kvblk_anchor *anchor)
{
	struct kvblk_daemon *daemon;

	guard(spinlock)(&pool->peers.lock);
	daemon = pool->peers.daemon;
	if (!daemon || !daemon->ring)
		return -ENODEV;
	if (daemon->head - daemon->tail >= RING_ANCHORS)
		return -EAGAIN;
	daemon->ring[daemon->head % RING_ANCHORS] = *anchor;
	WRITE_ONCE(daemon->head, daemon->head + 1);
	if (daemon->head - daemon->tail == 1)
		wake_up_interruptible_poll(&daemon->wait, EPOLLIN | EPOLLRDNORM);
	return 0;
}

void kvblk_peers_caught_up(struct kvblk_pool *pool, u64 session)
{
	struct kvblk_daemon *daemon;

	guard(spinlock)(&pool->peers.lock);
	daemon = pool->peers.daemon;
	if (!daemon || pool->peers.session != session || daemon->caught_up)
		return;
	daemon->caught_up = true;
	WRITE_ONCE(daemon->catches_up, true);
	wake_up_interruptible_poll(&daemon->wait, EPOLLIN | EPOLLRDNORM);
}

/* ---- questions ---- */

static struct kvblk_question *question_new(struct kvblk_pool *pool, u32 type, u32 room)
{
	struct kvblk_question *question = kzalloc(struct_size(question, entries, room),
						  GFP_KERNEL_ACCOUNT);

	if (!question)
		return NULL;
	INIT_LIST_HEAD(&question->link);
	question->pool = pool;
	question->msg.type = type;
	return question;
}

/* Hands a question to the daemon, to be answered until @end. Returns whether there was room. */
static bool question_ask(struct kvblk_question *question, ktime_t end)
{
	struct kvblk_peers_queue *queue = &question->pool->peers;
	struct kvblk_daemon *daemon;

	question->end = end;
	guard(spinlock)(&queue->lock);
	daemon = queue->over ? NULL : queue->daemon;
	if (!daemon || daemon->nr >= QUESTIONS_MAX)
		return false;
	question->msg.cookie = ++queue->cookie;
	list_add_tail(&question->link, &daemon->asked);
	daemon->nr++;
	wake_up_interruptible_poll(&daemon->wait, EPOLLIN | EPOLLRDNORM);
	return true;
}

/* Takes a question off its daemon's lists. */
static void question_end(struct kvblk_question *question, enum question_state state)
{
	struct kvblk_peers_queue *queue = &question->pool->peers;

	lockdep_assert_held(&queue->lock);
	list_del_init(&question->link);
	queue->daemon->nr--;
	/* pairs with kvblk_question_over(): the answer comes first */
	smp_store_release(&question->state, state);
	wake_up_all(&queue->wait);
}

static struct kvblk_question *question_find(struct kvblk_daemon *daemon, u64 cookie, u32 type)
{
	struct kvblk_question *question;

	lockdep_assert_held(&daemon->pool->peers.lock);
	list_for_each_entry(question, &daemon->read, link)
		if (question->msg.cookie == cookie && question->msg.type == type)
			return question;
	return NULL;
}

bool kvblk_question_over(const struct kvblk_question *question)
{
	/* pairs with question_end() */
	u32 state = smp_load_acquire(&question->state), i;

	if (state == QUESTION_LOST || ktime_compare(ktime_get(), question->end) >= 0)
		return true;
	for (i = 0; state == QUESTION_ANSWERED && i < question->nr_polls; i++)
		if (!kvblk_foreign_polled(question->pool, question->entries[i].poll.seg_base,
					  question->entries[i].poll.hint))
			return false;
	return state == QUESTION_ANSWERED;
}

long kvblk_question_wait(const struct kvblk_question *question, long step)
{
	s64 left = ktime_ms_delta(question->end, ktime_get());
	long most = left > 0 ? msecs_to_jiffies(left) + 1 : 1;

	return wait_event_killable_timeout(question->pool->peers.wait,
					   kvblk_question_over(question), min(step, most));
}

int kvblk_question_result(const struct kvblk_question *question)
{
	/* pairs with question_end() */
	return smp_load_acquire(&question->state) == QUESTION_ANSWERED ? question->res : -EREMOTE;
}

void kvblk_question_drop(struct kvblk_question *question)
{
	if (!question)
		return;
	scoped_guard(spinlock, &question->pool->peers.lock)
		if (!list_empty(&question->link))
			question_end(question, QUESTION_LOST);
	kfree(question);
}

int kvblk_peers_ask(struct kvblk_pool *pool, const struct kvblk_id *ids, u32 nr, ktime_t end)
{
	struct kvblk_question *question = question_new(pool, KVBLK_PEERS_ASK, KVBLK_ASK_IDS);
	long left;
	int ret;
	u32 i;

	for (i = 0; question && i < nr; i++)
		kvblk_id_pack(question->entries[i].id.id, ids[i]);
	if (question)
		question->msg.nr = nr;
	if (!question || !question_ask(question, end)) {
		kvblk_count(pool, KVBLK_C_ASKS_LOST, 1);
		kfree(question);
		return 0;
	}
	kvblk_count(pool, KVBLK_C_ASKS, 1);
	left = kvblk_question_wait(question, MAX_SCHEDULE_TIMEOUT);
	ret = left < 0 ? -EINTR : 0;
	/* pairs with question_end() */
	if (!ret && smp_load_acquire(&question->state) == QUESTION_ANSWERED) {
		kvblk_count(pool, KVBLK_C_ASKS_ANSWERED, 1);
		ret = question->nr_polls > 0;
	}
	kvblk_question_drop(question);
	return ret;
}

struct kvblk_question *kvblk_peers_delete(struct kvblk_pool *pool, struct kvblk_id id, u32 seg)
{
	struct kvblk_question *question = question_new(pool, KVBLK_PEERS_DELETE, 1);
	ktime_t end = ktime_add_ms(ktime_get(), READ_ONCE(pool->peers.delete_ms));
	const struct kvblk_foreign *foreign;

	if (!question)
		return NULL;
	question->msg.nr = 1;
	kvblk_id_pack(question->entries[0].id.id, id);
	scoped_guard(rcu) {
		foreign = kvblk_foreign_of(pool, seg);
		if (foreign) {
			export_uuid(question->msg.pool_uuid, &foreign->pool_uuid);
			memcpy(question->msg.node, foreign->node, sizeof(foreign->node));
		}
	}
	if (foreign && question_ask(question, end))
		return question;
	kfree(question);
	return NULL;
}

/* ---- reading ---- */

static bool daemon_ready(struct kvblk_daemon *daemon)
{
	return READ_ONCE(daemon->catches_up) || READ_ONCE(daemon->over) ||
	       READ_ONCE(daemon->head) != READ_ONCE(daemon->tail) ||
	       !list_empty_careful(&daemon->asked);
}

/* Copies the oldest question to the buffer. Returns the bytes of the entries, or 0. */
static u32 question_take(struct kvblk_daemon *daemon)
{
	struct kvblk_question *question;
	u32 bytes;

	guard(spinlock)(&daemon->pool->peers.lock);
	question = list_first_entry_or_null(&daemon->asked, struct kvblk_question, link);
	if (!question)
		return 0;
	list_move_tail(&question->link, &daemon->read);
	bytes = question->msg.nr * sizeof(struct kvblk_peers_id);
	daemon->buffer.head = question->msg;
	memcpy(daemon->buffer.entries, question->entries, bytes);
	return bytes;
}

/* Copies anchors to the buffer. Returns their number; 0: all present ones were read; or -EAGAIN. */
static int anchors_take(struct kvblk_daemon *daemon)
{
	struct kvblk_anchor *anchors = (void *)daemon->buffer.entries;
	u32 nr;

	guard(spinlock)(&daemon->pool->peers.lock);
	for (nr = 0; daemon->tail != daemon->head && nr < MSG_ANCHORS; nr++) {
		anchors[nr] = daemon->ring[daemon->tail % RING_ANCHORS];
		WRITE_ONCE(daemon->tail, daemon->tail + 1);
	}
	if (nr)
		return nr;
	if (!daemon->catches_up)
		return -EAGAIN;
	WRITE_ONCE(daemon->catches_up, false);
	return 0;
}

/* Fills the buffer. Returns the bytes of the message, or -EAGAIN if there is none. */
static int message_take(struct kvblk_daemon *daemon)
{
	int nr, bytes = question_take(daemon);

	if (bytes)
		return sizeof(daemon->buffer.head) + bytes;
	nr = anchors_take(daemon);
	if (nr < 0)
		return nr;
	daemon->buffer.head = (struct kvblk_peers_msg) { .type = KVBLK_PEERS_ANCHORS, .nr = nr };
	return sizeof(daemon->buffer.head) + nr * sizeof(struct kvblk_anchor);
}

static bool daemon_started(const struct kvblk_daemon *daemon)
{
	/* pairs with kvblk_peers_start() */
	return smp_load_acquire(&daemon->started);
}

ssize_t kvblk_peers_read(struct file *filp, char __user *buf, size_t len, loff_t *pos)
{
	struct kvblk_daemon *daemon = filp->private_data;
	bool wait = !(filp->f_flags & O_NONBLOCK);
	ssize_t took;

	if (!daemon_started(daemon) || len < KVBLK_PEERS_MSG_MAX)
		return -EINVAL;
	if (wait ? mutex_lock_interruptible(&daemon->reading) : !mutex_trylock(&daemon->reading))
		return wait ? -ERESTARTSYS : -EAGAIN;
	do {
		took = READ_ONCE(daemon->over) ? 0 : message_take(daemon);
		if (took != -EAGAIN || !wait)
			break;
		took = signal_pending(current) ? -ERESTARTSYS :
		       wait_event_interruptible(daemon->wait, daemon_ready(daemon));
	} while (!took);
	if (took > 0 && copy_to_user(buf, &daemon->buffer, took))
		took = -EFAULT;
	mutex_unlock(&daemon->reading);
	return took;
}

__poll_t kvblk_peers_poll(struct file *filp, poll_table *table)
{
	struct kvblk_daemon *daemon = filp->private_data;

	poll_wait(filp, &daemon->wait, table);
	if (!daemon_started(daemon))
		return EPOLLERR;
	return (daemon_ready(daemon) ? EPOLLIN | EPOLLRDNORM : 0) |
	       (READ_ONCE(daemon->over) ? EPOLLHUP : 0);
}

/* ---- answering ---- */

/* Passes hints to the members that they name. Returns -ENOENT if nothing waits for them. */
static int hints_take(struct kvblk_daemon *daemon, u64 cookie, const struct kvblk_anchor *anchors,
		      u32 nr)
{
	struct kvblk_peers_queue *queue = &daemon->pool->peers;
	u32 bases[KVBLK_ASK_IDS], base, nr_bases = 0, i, j;
	struct kvblk_question *question;
	u64 hint;

	scoped_guard(spinlock, &queue->lock) {
		if (!question_find(daemon, cookie, KVBLK_PEERS_ASK))
			return -ENOENT;
		hint = ++queue->hint;
	}
	/* not under the lock, because a pod may have a thousand members */
	for (i = 0; i < nr; i++) {
		base = kvblk_foreign_hint(daemon->pool, &anchors[i], hint);
		for (j = 0; j < nr_bases && bases[j] != base; j++)
			;
		/* members beyond the room are polled, too, but not waited for */
		if (base && j == nr_bases && nr_bases < ARRAY_SIZE(bases))
			bases[nr_bases++] = base;
	}
	guard(spinlock)(&queue->lock);
	question = question_find(daemon, cookie, KVBLK_PEERS_ASK);
	if (!question)
		return -ENOENT;
	for (i = 0; i < nr_bases; i++) {
		question->entries[i].poll.seg_base = bases[i];
		question->entries[i].poll.hint = hint;
	}
	question->nr_polls = nr_bases;
	question_end(question, QUESTION_ANSWERED);
	return 0;
}

/* Returns what a delete reports for @res of its owner, or 1 if no delete returns that. */
static int delete_result(s32 res)
{
	switch (res) {
	case 0:
	case -ENOENT:
	case -EBUSY:
	case -EIO:
		return res;
	/* the owner's trouble, not the caller's */
	case -EREMOTE:
	case -ENODEV:
	case -ENOMEM:
	case -ETIME:
	case -ECANCELED:
		return -EREMOTE;
	default:
		return 1;
	}
}

static int deleted_take(struct kvblk_daemon *daemon, u64 cookie,
			const struct kvblk_peers_result *results, u32 nr)
{
	struct kvblk_question *question;
	int res = nr ? delete_result(results->res) : -EREMOTE;

	if (res > 0)
		return -EINVAL;
	guard(spinlock)(&daemon->pool->peers.lock);
	question = question_find(daemon, cookie, KVBLK_PEERS_DELETE);
	if (!question)
		return -ENOENT;
	if (nr && nr != question->msg.nr)
		return -EINVAL;
	question->res = res;
	question_end(question, QUESTION_ANSWERED);
	return 0;
}

/* Returns whether @msg of @bytes is one whole answer. */
static bool answer_valid(const struct kvblk_peers_msg *msg, size_t bytes)
{
	const struct kvblk_anchor *anchor = (const void *)(msg + 1);
	u32 i;

	if (memchr_inv(msg->pool_uuid, 0, sizeof(msg->pool_uuid)) ||
	    memchr_inv(msg->node, 0, sizeof(msg->node)))
		return false;
	bytes -= sizeof(*msg);
	if (msg->type == KVBLK_PEERS_DELETED)
		return msg->nr <= KVBLK_ASK_IDS &&
		       bytes == msg->nr * sizeof(struct kvblk_peers_result);
	if (msg->type != KVBLK_PEERS_HINTS || msg->nr > MSG_ANCHORS ||
	    bytes != msg->nr * sizeof(*anchor))
		return false;
	for (i = 0; i < msg->nr; i++)
		if (anchor[i].reserved)
			return false;
	return true;
}

ssize_t kvblk_peers_write(struct file *filp, const char __user *buf, size_t len, loff_t *pos)
{
	struct kvblk_daemon *daemon = filp->private_data;
	struct kvblk_peers_msg *msg __free(kfree) = NULL;
	int err;

	if (!daemon_started(daemon) || len < sizeof(*msg) || len > KVBLK_PEERS_MSG_MAX)
		return -EINVAL;
	if (READ_ONCE(daemon->over))
		return -ENODEV;
	msg = kmalloc(len, GFP_KERNEL_ACCOUNT);
	if (!msg)
		return -ENOMEM;
	if (copy_from_user(msg, buf, len))
		return -EFAULT;
	if (!answer_valid(msg, len))
		return -EINVAL;
	if (mutex_lock_interruptible(&daemon->writing))
		return -ERESTARTSYS;
	err = msg->type == KVBLK_PEERS_HINTS ?
	      hints_take(daemon, msg->cookie, (void *)(msg + 1), msg->nr) :
	      deleted_take(daemon, msg->cookie, (void *)(msg + 1), msg->nr);
	mutex_unlock(&daemon->writing);
	return err ?: len;
}

/* ---- open, start and release ---- */

int kvblk_peers_open(struct kvblk_pool *pool, struct file *filp)
{
	struct kvblk_daemon *daemon = kvzalloc(sizeof(*daemon), GFP_KERNEL_ACCOUNT);

	if (!daemon)
		return -ENOMEM;
	daemon->pool = pool;
	init_waitqueue_head(&daemon->wait);
	mutex_init(&daemon->reading);
	mutex_init(&daemon->writing);
	INIT_LIST_HEAD(&daemon->asked);
	INIT_LIST_HEAD(&daemon->read);
	filp->private_data = daemon;
	return 0;
}

static void span_set(struct kvblk_peers_queue *queue, u32 span, u32 ask_ms, u32 delete_ms)
{
	lockdep_assert_held(&queue->lock);
	WRITE_ONCE(queue->span, span);
	WRITE_ONCE(queue->ask_ms, ask_ms);
	WRITE_ONCE(queue->delete_ms, delete_ms);
}

int kvblk_peers_start(struct file *filp, const struct kvblk_peers *arg)
{
	struct kvblk_daemon *daemon = filp->private_data;
	struct kvblk_peers_queue *queue = &daemon->pool->peers;
	struct kvblk_anchor *ring __free(kvfree) = NULL;

	if (!kvblk_pool_in_pod(daemon->pool))
		return -ENOTCONN;
	if (arg->span) {
		ring = kvmalloc_array(RING_ANCHORS, sizeof(*ring), GFP_KERNEL_ACCOUNT);
		if (!ring)
			return -ENOMEM;
	}
	guard(spinlock)(&queue->lock);
	/* dying also until the last step of an import that may fail */
	if (queue->over || READ_ONCE(daemon->pool->dying))
		return -ENODEV;
	if (queue->daemon)
		return -EBUSY;
	daemon->ring = no_free_ptr(ring);
	queue->daemon = daemon;
	/* pairs with daemon_started() */
	smp_store_release(&daemon->started, true);
	WRITE_ONCE(queue->session, queue->session + 1);
	span_set(queue, arg->span, arg->ask_ms, arg->delete_ms);
	if (arg->span)
		mod_delayed_work(daemon->pool->foreign.wq, &queue->anchors, 0);
	return 0;
}

/* Ends all questions of the pool's daemon without an answer. */
static void questions_lose(struct kvblk_peers_queue *queue)
{
	struct kvblk_daemon *daemon = queue->daemon;
	struct kvblk_question *question, *next;

	list_splice_tail_init(&daemon->asked, &daemon->read);
	list_for_each_entry_safe(question, next, &daemon->read, link)
		question_end(question, QUESTION_LOST);
	span_set(queue, 0, 0, 0);
}

int kvblk_peers_release(struct inode *inode, struct file *filp)
{
	struct kvblk_daemon *daemon = filp->private_data;
	struct kvblk_peers_queue *queue = &daemon->pool->peers;

	scoped_guard(spinlock, &queue->lock) {
		if (queue->daemon == daemon) {
			questions_lose(queue);
			queue->daemon = NULL;
		}
	}
	kvfree(daemon->ring);
	kvfree(daemon);
	return 0;
}

void kvblk_peers_init(struct kvblk_pool *pool)
{
	spin_lock_init(&pool->peers.lock);
	init_waitqueue_head(&pool->peers.wait);
}

void kvblk_peers_end(struct kvblk_pool *pool)
{
	struct kvblk_peers_queue *queue = &pool->peers;

	scoped_guard(spinlock, &queue->lock) {
		queue->over = true;
		if (!queue->daemon)
			break;
		questions_lose(queue);
		WRITE_ONCE(queue->daemon->over, true);
		wake_up_interruptible_poll(&queue->daemon->wait, EPOLLIN | EPOLLHUP);
	}
	cancel_delayed_work_sync(&queue->anchors);
}
