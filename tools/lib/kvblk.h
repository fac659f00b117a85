/* SPDX-License-Identifier: MIT */
/*
 * libkvblk: KV blocks in and out of kvblk pools.
 *
 * Three kinds of handle. struct kvblk is an open device node: the data path,
 * for runtimes, which needs no privilege but membership in the group "kvblk".
 * struct kvblk_admin talks to the module about pools and members; what changes
 * something needs CAP_SYS_ADMIN. struct kvblk_events hears what happens. Queues
 * and registered memory belong to a struct kvblk.
 *
 * The rule of all calls: the answer is 0 or a negative errno, and an error has
 * changed nothing that its description does not name. What the caller passes
 * stays his: the library keeps no pointer after the call. Lengths are bytes.
 *
 * The structures of the data path and what each errno means are those of
 * <linux/kvblk.h>.
 */
#ifndef LIBKVBLK_KVBLK_H
#define LIBKVBLK_KVBLK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <linux/kvblk.h>
#include <linux/kvblk_netlink.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * kvblk_version() - version of the library
 *
 * Context: any thread. Return: a constant string like "0.1.0".
 */
const char *kvblk_version(void);

/**
 * kvblk_strerror() - an error of the data path in words
 * @err: an errno, negative or not
 *
 * Knows what the data path means by an errno ("no such block" for ENOENT).
 * For refusals of the admin calls see kvblk_admin_message().
 *
 * Context: any thread. Return: a constant string.
 */
const char *kvblk_strerror(int err);

/* The data path. */

struct kvblk;

/**
 * kvblk_open() - open a tenant's device node
 * @pool: a pool's name, for its node /dev/kvblk/POOL/default, or the path of a
 *	node (anything with a '/')
 * @handle: set to the new handle, which kvblk_close() frees
 *
 * A handle may be used by many threads at once. Leases belong to it.
 *
 * Context: any thread. Return: 0; -ENODEV: no such pool, or it is being
 * destroyed; -EACCES: the caller is not in the node's group; -ENOTTY: the path is
 * no kvblk node; -EINVAL, -ENAMETOOLONG, -ENOMEM; another errno of open(2).
 */
int kvblk_open(const char *pool, struct kvblk **handle);

/**
 * kvblk_close() - close a handle
 * @kv: the handle, or NULL
 *
 * Ends its leases. No other call may be running on the handle.
 *
 * Context: any thread, once.
 */
void kvblk_close(struct kvblk *kv);

/**
 * kvblk_fd() - the descriptor behind a handle
 * @kv: the handle
 *
 * For ioctls of one's own. It stays the handle's: don't close it.
 *
 * Context: any thread. Return: the descriptor.
 */
int kvblk_fd(const struct kvblk *kv);

/**
 * kvblk_info() - limits and features of the pool
 * @kv: the handle
 * @info: filled
 *
 * Context: any thread. Return: 0; -ENODEV: the pool is being destroyed.
 */
int kvblk_info(struct kvblk *kv, struct kvblk_info *info);

/**
 * struct kvblk_put_options - what a put may say about its block
 * @priority: 0 (drop first) to KVBLK_PRIORITY_MAX
 * @ttl_s: seconds until the block is gone, 0 for never
 * @parent: key of the block before this one in its prefix chain, or NULL
 * @parent_len: its length, or 0
 * @layout_tag: kept with the block, and told by gets
 * @caller_tag: kept with the block, and told by lookups
 * @deadline_ns: CLOCK_MONOTONIC time at which to give up, 0 for none
 */
struct kvblk_put_options {
	uint8_t priority;
	uint32_t ttl_s;
	const void *parent;
	size_t parent_len;
	uint64_t layout_tag;
	uint64_t caller_tag;
	uint64_t deadline_ns;
};

/**
 * kvblk_put() - store one block
 * @kv: the handle
 * @key: its key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @data: its bytes, not to be written to until the call is back
 * @len: 1 to KVBLK_VALUE_MAX
 * @options: or NULL
 *
 * Allocates nothing; sleeps until the device has the block, or the pool's memory
 * (see its tunable dram_bytes).
 *
 * Context: any thread. Return: 0: stored; -EEXIST: was there already (nothing
 * was written); -ENOBUFS: declined by the admission policy; -EALREADY,
 * -ENOSPC, -EFBIG, -EIO, -ETIME, -ECANCELED, -EINVAL, -ENOMEM, -EFAULT, -ENODEV,
 * -EINTR as in <linux/kvblk.h>.
 */
int kvblk_put(struct kvblk *kv, const void *key, size_t key_len,
	      const void *data, size_t len,
	      const struct kvblk_put_options *options);

/**
 * kvblk_get() - fetch one block
 * @kv: the handle
 * @key: its key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @buf: where to
 * @len: in: room at @buf, 1 to below 4 GiB; out: the block's length, on 0 and
 *	-EMSGSIZE
 *
 * Allocates nothing; sleeps until the device has answered. Unless it returns 0
 * the bytes at @buf are zeroes or untouched.
 *
 * Context: any thread. Return: 0; -ENOENT: a miss; -EMSGSIZE: @buf is too
 * short; -ECANCELED, -EINVAL, -ENOMEM, -EFAULT, -ENODEV, -EINTR as in
 * <linux/kvblk.h>.
 */
int kvblk_get(struct kvblk *kv, const void *key, size_t key_len, void *buf,
	      size_t *len);

/**
 * kvblk_get_range() - fetch a part of one block
 * @kv: the handle
 * @key: its key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @offset: first byte wanted
 * @buf: where to
 * @len: in: bytes wanted, 1 to below 4 GiB; out, on 0: bytes fetched, less at
 *	the end
 *
 * Context: any thread. Return: as kvblk_get() without -EMSGSIZE; -ERANGE: @offset
 * is at the block's end or behind it.
 */
int kvblk_get_range(struct kvblk *kv, const void *key, size_t key_len,
		    uint32_t offset, void *buf, size_t *len);

/**
 * kvblk_delete() - remove one block, durably
 * @kv: the handle
 * @key: its key
 * @key_len: 1 to KVBLK_KEY_MAX
 *
 * Context: any thread. Return: 0; -ENOENT: was not there; -EBUSY: is just
 * being written; -EIO: the member failed, the block may come back after a
 * restart; -ECANCELED, -EINVAL, -ENOMEM, -EFAULT, -ENODEV, -EINTR as in
 * <linux/kvblk.h>.
 */
int kvblk_delete(struct kvblk *kv, const void *key, size_t key_len);

/**
 * kvblk_exists() - ask for one block, without I/O
 * @kv: the handle
 * @key: its key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @size: set to the block's length, 0 for an absent one; or NULL
 *
 * Context: any thread. Return: 0: present; -ENOENT: absent; -EINVAL, -ENOMEM,
 * -EFAULT, -ENODEV.
 */
int kvblk_exists(struct kvblk *kv, const void *key, size_t key_len,
		 uint32_t *size);

/**
 * kvblk_submit() - run a batch of operations, all of them in flight at once
 * @kv: the handle
 * @ops: the operations; see kvblk_prep_put(), _get(), _delete()
 * @nr_ops: 1 to KVBLK_OPS_MAX
 * @results: filled with a result for each operation, in the same order
 * @flags: &enum kvblk_submit_flags
 *
 * Allocates nothing; sleeps until every operation has its result.
 *
 * Context: any thread. Return: 0: there are results, look at each; else an
 * error of the whole ioctl: nothing was done, except with -EINTR.
 */
int kvblk_submit(struct kvblk *kv, const struct kvblk_op *ops,
		 unsigned int nr_ops, struct kvblk_result *results,
		 unsigned int flags);

/**
 * kvblk_lookup() - ask for many blocks, without I/O
 * @kv: the handle
 * @lookup: the question, all fields but @size; its out fields are the answer
 *
 * Context: any thread. Return: 0 or an error of the whole ioctl.
 */
int kvblk_lookup(struct kvblk *kv, struct kvblk_lookup *lookup);

/**
 * kvblk_lookup_prefix() - how much of a prefix chain is present
 * @kv: the handle
 * @keys: keys of one length, packed one behind the other, first block first
 * @key_len: that length, 1 to KVBLK_KEY_MAX
 * @nr_keys: 1 to KVBLK_LOOKUP_MAX
 * @lease_ms: lease what is found for this long, up to KVBLK_LEASE_MS_MAX; 0:
 *	no lease
 * @nr_leading: set to the number of keys from the first on that are present
 * @lease: set to the lease, for kvblk_lease_release(); 0 when nothing was
 *	leased. May be NULL
 *
 * Context: any thread. Return: 0 or an error of the whole ioctl.
 */
int kvblk_lookup_prefix(struct kvblk *kv, const void *keys, size_t key_len,
			unsigned int nr_keys, unsigned int lease_ms,
			unsigned int *nr_leading, uint64_t *lease);

/**
 * kvblk_lease_release() - end a lease
 * @kv: the handle that it was got through
 * @lease: the lease
 *
 * Context: any thread. Return: 0; -ENOENT: no such lease (any more); -ENODEV: the
 * pool is being destroyed.
 */
int kvblk_lease_release(struct kvblk *kv, uint64_t lease);

/**
 * enum kvblk_prefetch_state - what became of a key of kvblk_prefetch()
 * @KVBLK_PREFETCH_LOADED: its block was brought into the host's memory
 * @KVBLK_PREFETCH_RESIDENT: it was there already
 * @KVBLK_PREFETCH_MISSING: the pool has no such block
 * @KVBLK_PREFETCH_CLIPPED: it was left out: behind @max_bytes, behind the first miss
 *	with @stop_at_miss, for want of memory, or canceled
 * @KVBLK_PREFETCH_EXPIRED: the deadline passed first
 */
enum kvblk_prefetch_state {
	KVBLK_PREFETCH_LOADED	= 1,
	KVBLK_PREFETCH_RESIDENT	= 2,
	KVBLK_PREFETCH_MISSING	= 3,
	KVBLK_PREFETCH_CLIPPED	= 4,
	KVBLK_PREFETCH_EXPIRED	= 5,
};

/**
 * kvblk_prefetch_state_name() - a state in a word
 * @state: &enum kvblk_prefetch_state
 *
 * Context: any thread. Return: a constant string like "loaded"; NULL: there is no such
 * state.
 */
static inline const char *kvblk_prefetch_state_name(unsigned int state)
{
	static const char *const names[] = { NULL, "loaded", "resident", "missing", "clipped",
					     "expired" };

	return state <= KVBLK_PREFETCH_EXPIRED ? names[state] : NULL;
}

/**
 * struct kvblk_prefetch_options - how far a prefetch goes
 * @max_bytes: most to bring into memory; from the first block that is too much on,
 *	none is. Blocks that are there already do not count. 0: no limit
 * @deadline_ns: CLOCK_MONOTONIC time at which to give up, 0 for none
 * @cookie: for kvblk_cancel(), 0: none
 * @lease_ms: lease what is in memory at the end for this long, up to
 *	KVBLK_LEASE_MS_MAX; 0: no lease
 * @stop_at_miss: the keys are a chain: what is behind the first miss is left out
 * @priority: 0 to KVBLK_PRIORITY_MAX: of what gets hold up, puts too, those with more go
 *	first
 */
struct kvblk_prefetch_options {
	uint64_t max_bytes;
	uint64_t deadline_ns;
	uint64_t cookie;
	uint32_t lease_ms;
	bool stop_at_miss;
	uint8_t priority;
};

/**
 * struct kvblk_prefetched - what became of one key
 * @state: &enum kvblk_prefetch_state
 * @length: of its block, 0: not known
 */
struct kvblk_prefetched {
	uint32_t state;
	uint32_t length;
};

/**
 * struct kvblk_prefetch_sum - what became of all keys
 * @nr_leading: from the first on, how many are in memory
 * @nr_here: how many are in memory
 * @nr_leased: how many are leased, from the first of those on
 * @loaded_bytes: that were brought there
 * @lease: for kvblk_lease_release(); 0 when nothing was leased
 */
struct kvblk_prefetch_sum {
	unsigned int nr_leading;
	unsigned int nr_here;
	unsigned int nr_leased;
	uint64_t loaded_bytes;
	uint64_t lease;
};

/**
 * kvblk_prefetch() - bring blocks that will be wanted soon into the host's memory
 * @kv: the handle
 * @keys: packed one behind the other, in the order in which they will be wanted
 * @key_lens: length of each, 1 to KVBLK_KEY_MAX
 * @nr_keys: 1 to KVBLK_LOOKUP_MAX
 * @options: or NULL
 * @prefetched: filled with what became of each key, in the same order
 * @sum: filled; or NULL
 *
 * Sleeps until the last one has come. Batches of KVBLK_OPS_MAX blocks are in flight;
 * gets of their members go first. Memory that is wanted for others takes them away
 * again, the coldest first; what is leased stays.
 *
 * Context: any thread. Return: 0: look at each key; -EOPNOTSUPP: the pool keeps no
 * blocks in the host's memory (see its tunable dram_bytes), or the module can't;
 * -EINVAL; -ENOMEM; an error of the whole ioctl, or -EBADF, -ENODEV, -EINTR of an
 * operation. With an error some blocks may have been brought in, and none is leased.
 */
int kvblk_prefetch(struct kvblk *kv, const void *keys, const uint16_t *key_lens,
		   unsigned int nr_keys, const struct kvblk_prefetch_options *options,
		   struct kvblk_prefetched *prefetched, struct kvblk_prefetch_sum *sum);

/**
 * kvblk_cancel() - cancel operations of this handle
 * @kv: the handle
 * @cookie: of the operations, not 0; those of kvblk_put() and the like have none
 * @nr_found: set to the number found in flight; or NULL
 *
 * They end with -ECANCELED in their own batch, when their memory is quiet; one that
 * is nearly over ends as it would have.
 *
 * Context: any thread. Return: 0; -ENOENT: none found; -EINVAL: @cookie is 0;
 * -ENODEV: the pool is being destroyed.
 */
int kvblk_cancel(struct kvblk *kv, uint64_t cookie, unsigned int *nr_found);

/**
 * kvblk_drain() - wait until the operations of this handle are over
 * @kv: the handle
 * @deadline_ns: CLOCK_MONOTONIC time at which to give up, 0 for none
 *
 * Those in flight when it is called, canceled and late ones included: from then on
 * neither their memory nor a device is used for them. Those of a queue are over when
 * they were taken by kvblk_queue_wait(): take them first.
 *
 * Context: any thread. Return: 0; -ETIME: the deadline passed first; -EINTR: a
 * signal; -ENODEV: the pool is being destroyed.
 */
int kvblk_drain(struct kvblk *kv, uint64_t deadline_ns);

/**
 * kvblk_journal_open() - what comes to the pool and goes, as it happens
 * @kv: the handle
 * @nr_records: that wait for a reader who is late: a power of two from
 *	KVBLK_JOURNAL_MIN to KVBLK_JOURNAL_MAX
 * @flags: of &enum kvblk_journal_flags
 *
 * The records are &struct kvblk_journal_record, taken with read(2), whole ones, with
 * room for at least 4; see the header linux/kvblk.h for what they say. The descriptor
 * is the caller's, to poll and to close; @kv may be closed meanwhile.
 *
 * Context: any thread. Return: the descriptor; -EPERM: without CAP_SYS_ADMIN; -EBADF:
 * the handle can't read; -EINVAL: @nr_records; -EOPNOTSUPP: @flags; -ENOTTY: this
 * module has no journals; -EMFILE: too many descriptors, or 16 journals of the pool;
 * -ENOMEM; -ENODEV: the pool is being destroyed.
 */
int kvblk_journal_open(struct kvblk *kv, uint32_t nr_records, uint32_t flags);

/**
 * kvblk_piece_user() - a piece of the process' own memory
 * @piece: filled
 * @addr: its address, any alignment
 * @len: its length, not 0, below 4 GiB
 */
static inline void kvblk_piece_user(struct kvblk_piece *piece, void *addr,
				    size_t len)
{
	memset(piece, 0, sizeof(*piece));
	piece->type = KVBLK_PIECE_USER;
	piece->addr = (uintptr_t)addr;
	/* what is far too long must be refused, not cut */
	piece->length = len <= UINT32_MAX ? (uint32_t)len : 0;
}

/**
 * kvblk_prep_put() - an operation that stores a block
 * @op: filled, with no options; set others of its fields afterwards
 * @key: its key; must stay until the batch is back, as must @pieces
 * @key_len: 1 to KVBLK_KEY_MAX
 * @pieces: its bytes
 * @nr_pieces: 1 to KVBLK_PIECES_MAX
 */
static inline void kvblk_prep_put(struct kvblk_op *op, const void *key,
				  size_t key_len,
				  const struct kvblk_piece *pieces,
				  unsigned int nr_pieces)
{
	memset(op, 0, sizeof(*op));
	op->opcode = KVBLK_OP_PUT;
	op->key = (uintptr_t)key;
	op->pieces = (uintptr_t)pieces;
	/* what is far too long must be refused, not cut */
	op->key_len = (uint16_t)(key_len < 0xffff ? key_len : 0xffff);
	op->nr_pieces = (uint16_t)(nr_pieces < 0xffff ? nr_pieces : 0xffff);
}

/**
 * kvblk_prep_get() - an operation that fetches a block
 * @op: filled, with no options; set others of its fields afterwards
 * @key: its key; must stay until the batch is back, as must @pieces
 * @key_len: 1 to KVBLK_KEY_MAX
 * @pieces: where to
 * @nr_pieces: 1 to KVBLK_PIECES_MAX
 */
static inline void kvblk_prep_get(struct kvblk_op *op, const void *key,
				  size_t key_len,
				  const struct kvblk_piece *pieces,
				  unsigned int nr_pieces)
{
	kvblk_prep_put(op, key, key_len, pieces, nr_pieces);
	op->opcode = KVBLK_OP_GET;
}

/**
 * kvblk_prep_ext() - an operation says more: a parent, checksums, hints
 * @op: filled by kvblk_prep_put() or another one
 * @ext: empty afterwards, its fields are to be set; must stay until the batch is
 *	back
 */
static inline void kvblk_prep_ext(struct kvblk_op *op, struct kvblk_op_ext *ext)
{
	memset(ext, 0, sizeof(*ext));
	ext->size = sizeof(*ext);
	op->ext = (uintptr_t)ext;
}

/**
 * kvblk_prep_delete() - an operation that removes a block
 * @op: filled
 * @key: its key; must stay until the batch is back
 * @key_len: 1 to KVBLK_KEY_MAX
 */
static inline void kvblk_prep_delete(struct kvblk_op *op, const void *key,
				     size_t key_len)
{
	kvblk_prep_put(op, key, key_len, NULL, 0);
	op->opcode = KVBLK_OP_DELETE;
}

/* Queues: operations in flight, without a thread for each. */

struct kvblk_queue;
struct iovec;

#define KVBLK_QUEUE_DEPTH_MAX	16384

/**
 * enum kvblk_queue_flags - of kvblk_queue_create()
 * @KVBLK_QUEUE_CANCELABLE: kvblk_cancel() finds the operations by their cookies,
 *	other than 0. It costs each operation a lock of the open node
 * @KVBLK_QUEUE_ANY_THREAD: the queue belongs to no thread; one at a time may use
 *	it. Operations end when the thread that started them does. It costs each
 *	operation some more work of the kernel
 */
enum kvblk_queue_flags {
	KVBLK_QUEUE_CANCELABLE	= 1 << 0,
	KVBLK_QUEUE_ANY_THREAD	= 1 << 1,
};

/**
 * kvblk_queue_create() - a queue for up to so many operations
 * @kv: the handle; must stay open as long as the queue is there
 * @depth: most operations in flight, 1 to KVBLK_QUEUE_DEPTH_MAX
 * @flags: &enum kvblk_queue_flags
 * @queue: set to the new queue, which kvblk_queue_destroy() frees
 *
 * A queue is an io_uring. It belongs to the thread that makes it, unless it is
 * KVBLK_QUEUE_ANY_THREAD: all calls on it are that thread's (another one's system
 * calls end with -EEXIST). Any number of queues may share a handle.
 *
 * Context: any thread. Return: 0; -EINVAL; -ENOMEM; -ENOSYS, -EPERM: io_uring is
 * not there, or not allowed; another errno of io_uring_setup(2).
 */
int kvblk_queue_create(struct kvblk *kv, unsigned int depth, unsigned int flags,
		       struct kvblk_queue **queue);

/**
 * kvblk_queue_destroy() - free a queue
 * @queue: the queue, or NULL
 *
 * Operations in flight are canceled and give no result. Memory that a device
 * still writes to may change afterwards, so wait for gets first.
 *
 * Context: the queue's thread.
 */
void kvblk_queue_destroy(struct kvblk_queue *queue);

/**
 * kvblk_queue_register() - fixed buffers, for kvblk_queue_add_fixed()
 * @queue: the queue, before its first operation
 * @buffers: the memory; pinned, and counted as locked, until the queue goes
 * @nr: how many
 *
 * Context: the queue's thread. Return: 0; -EBUSY: there are some; -ENOMEM: no
 * memory, or RLIMIT_MEMLOCK; -EFAULT; -EINVAL.
 */
int kvblk_queue_register(struct kvblk_queue *queue, const struct iovec *buffers,
			 unsigned int nr);

/**
 * kvblk_queue_add() - take an operation
 * @queue: the queue
 * @op: copied. What it points to (key, pieces, their memory) must stay until its
 *	result is there. Its cookie comes back in the result
 *
 * Starts nothing: kvblk_queue_submit() and kvblk_queue_wait() do, all that were
 * added in one system call. Allocates nothing and takes no lock.
 *
 * Context: the queue's thread. Return: 0; -EAGAIN: as many as the queue's depth
 * are in flight.
 */
int kvblk_queue_add(struct kvblk_queue *queue, const struct kvblk_op *op);

/**
 * kvblk_queue_add_fixed() - take an operation on a fixed buffer
 * @queue: the queue
 * @op: a put or get without pieces: @pieces is an address in the buffer, @length
 *	the bytes to put, or the room for the get
 * @buffer: index of the buffer, as registered
 *
 * Nothing is pinned or copied for it.
 *
 * Context: the queue's thread. Return: as kvblk_queue_add(); -EINVAL.
 */
int kvblk_queue_add_fixed(struct kvblk_queue *queue, const struct kvblk_op *op,
			  unsigned int buffer);

/**
 * kvblk_queue_submit() - start what was added
 * @queue: the queue
 *
 * Context: the queue's thread. Return: 0, or an errno of io_uring_enter(2).
 */
int kvblk_queue_submit(struct kvblk_queue *queue);

/**
 * kvblk_queue_wait() - start what was added, and take results
 * @queue: the queue
 * @results: filled, in the order of completion. @caller_tag is 0 and @layout_tag
 *	has its low 48 bits; @value_len is told with errors
 * @max: room there, at least 1
 * @least: wait for so many (or all that are in flight, if those are fewer); 0:
 *	take what is there
 * @timeout_ms: wait no longer; -1: as long as it takes
 *
 * Allocates nothing and takes no lock.
 *
 * Context: the queue's thread; may sleep. Return: how many results there are,
 * fewer than @least after the timeout or a signal; -EINTR: a signal, and none;
 * -EINVAL; an errno of io_uring_enter(2).
 */
int kvblk_queue_wait(struct kvblk_queue *queue, struct kvblk_result *results,
		     unsigned int max, unsigned int least, int timeout_ms);

/**
 * kvblk_queue_inflight() - operations added whose results were not taken
 * @queue: the queue
 *
 * Context: the queue's thread. Return: how many.
 */
unsigned int kvblk_queue_inflight(const struct kvblk_queue *queue);

/**
 * kvblk_queue_eventfd() - a descriptor for event loops
 * @queue: the queue
 *
 * It becomes readable when there are new results; read it, then take them with
 * kvblk_queue_wait() and @least 0. It stays the queue's.
 *
 * Context: the queue's thread. Return: the descriptor; -EMFILE, -ENFILE, -ENOMEM.
 */
int kvblk_queue_eventfd(struct kvblk_queue *queue);

/* Batches in the background, for runtimes that have no thread to spare. */

struct kvblk_async;

#define KVBLK_ASYNC_THREADS_MAX	64

/**
 * struct kvblk_job - a batch in the background
 * @ops: the operations; they, their keys, pieces and memory must stay until the job
 *	is over
 * @nr_ops: 1 to KVBLK_OPS_MAX
 * @flags: &enum kvblk_submit_flags
 * @results: filled with a result for each operation, if @err is 0
 * @run: what to do instead of kvblk_mem_submit(), in a thread of the library; NULL for
 *	that. Its answer becomes @err
 * @done: called in a thread of the library when the job is over; the job is the
 *	caller's again, and may be freed there. NULL: kvblk_async_take() tells it
 * @err: set to what kvblk_mem_submit() or @run returned; -ECANCELED: the handle was
 *	destroyed before the job began
 * @next: the library's
 *
 * The caller owns the structure. It must not touch it from kvblk_async_submit() until
 * the job is over.
 */
struct kvblk_job {
	const struct kvblk_op *ops;
	unsigned int nr_ops;
	unsigned int flags;
	struct kvblk_result *results;
	int (*run)(struct kvblk *kv, struct kvblk_job *job);
	void (*done)(struct kvblk_job *job);
	int err;
	struct kvblk_job *next;
};

/**
 * kvblk_async_create() - threads that run batches
 * @kv: the handle; must stay open as long as they are there
 * @nr_threads: most batches that run at a time, 1 to KVBLK_ASYNC_THREADS_MAX. Others
 *	wait for one that ends, first come first served
 * @async: set to the new handle, which kvblk_async_destroy() frees
 *
 * Unlike those of a queue, operations belong to no thread of the caller, and what the
 * kernel does in their caller's context (pinning, checksums, copies) takes none of its
 * time. Each job costs a switch to another thread, some 10 microseconds: use it for
 * large blocks or batches. Threads start when they are needed. A child of fork(2)
 * has none of them, and must not use the handle.
 *
 * Context: any thread. Return: 0; -EINVAL: @nr_threads; -ENOMEM; -EAGAIN: no more
 * threads; -EMFILE, -ENFILE.
 */
int kvblk_async_create(struct kvblk *kv, unsigned int nr_threads,
		       struct kvblk_async **async);

/**
 * kvblk_async_stop() - begin no more jobs
 * @async: the handle
 *
 * Jobs that have not begun end with -ECANCELED. kvblk_cancel() makes those short that
 * run; a job may have begun and not be in the kernel yet, so repeat it until all are
 * taken.
 *
 * Context: any thread.
 */
void kvblk_async_stop(struct kvblk_async *async);

/**
 * kvblk_async_destroy() - end the threads
 * @async: the handle, or NULL
 *
 * Stops, then waits for jobs that run: see kvblk_async_stop(). Jobs that are over and
 * were not taken are the caller's again.
 *
 * Context: once, in none of the threads, when no other call runs on the handle.
 */
void kvblk_async_destroy(struct kvblk_async *async);

/**
 * kvblk_async_submit() - hand over a job
 * @async: the handle
 * @job: the job
 *
 * Never waits for the device and allocates nothing but, at first, a thread.
 *
 * Context: any thread.
 */
void kvblk_async_submit(struct kvblk_async *async, struct kvblk_job *job);

/**
 * kvblk_async_eventfd() - a descriptor that is readable when a job is over
 * @async: the handle
 *
 * For poll(2) and the like: jobs without @done only. It stays the handle's: don't
 * read or close it.
 *
 * Context: any thread. Return: the descriptor.
 */
int kvblk_async_eventfd(const struct kvblk_async *async);

/**
 * kvblk_async_take() - a job that is over
 * @async: the handle
 *
 * Never sleeps: wait with poll(2) on kvblk_async_eventfd(), then take until there is
 * none.
 *
 * Context: any thread. Return: the job; NULL: there is none.
 */
struct kvblk_job *kvblk_async_take(struct kvblk_async *async);

/* Keys that no two runtimes, models or parallel layouts share. */

#define KVBLK_KEYSPACE_LEN	20	/* bytes of a key before the block's id */
#define KVBLK_BLOCK_ID_LEN	32	/* bytes of kvblk_block_id() */

/**
 * struct kvblk_keyspace - what the keys of one origin begin with
 * @digest: the first half of the SHA-256 of the origin's description
 */
struct kvblk_keyspace {
	uint8_t digest[16];
};

/**
 * struct kvblk_keyspace_spec - all that the bytes of a block depend on, but its tokens
 * @runtime: what lays the block out, with the version of its layout: "vllm-offload/1"
 * @model: the model and its revision, with adapters such as LoRA that are part of it
 * @tokenizer: the tokenizer and its revision, or NULL: the model's own
 * @dtype: type of the cache's elements: "bfloat16", "fp8_e4m3"
 * @layout: order and shape of a block's elements, in the runtime's words
 * @salt: separates those who must not share, such as tenants; or NULL
 * @block_tokens: tokens in a block, not 0
 * @tp_rank: rank among tensor parallel processes
 * @tp_size: how many there are; 0 is 1. If all hold the same bytes (MLA): rank 0 of 1
 * @pp_rank: pipeline stage
 * @pp_size: how many there are; 0 is 1
 * @cp_rank: rank among context parallel processes
 * @cp_size: how many there are; 0 is 1
 *
 * Texts are compared byte for byte. Documentation/keys.rst has the scheme and its test
 * vectors.
 */
struct kvblk_keyspace_spec {
	const char *runtime;
	const char *model;
	const char *tokenizer;
	const char *dtype;
	const char *layout;
	const char *salt;
	uint32_t block_tokens;
	uint32_t tp_rank, tp_size;
	uint32_t pp_rank, pp_size;
	uint32_t cp_rank, cp_size;
};

/**
 * kvblk_keyspace_init() - the key space of an origin
 * @space: filled
 * @spec: the origin
 *
 * Context: any thread. Return: 0; -EINVAL: no runtime, model, dtype, layout or number
 * of tokens, or a rank that is not below its size.
 */
int kvblk_keyspace_init(struct kvblk_keyspace *space,
			const struct kvblk_keyspace_spec *spec);

/**
 * kvblk_keyspace_key() - the key of a block
 * @space: its key space
 * @id: what the runtime or kvblk_block_id() calls the block; must name its tokens and
 *	all that come before them
 * @id_len: 1 to KVBLK_KEY_MAX - KVBLK_KEYSPACE_LEN
 * @key: filled
 * @key_len: in: room there; out: the key's length, KVBLK_KEYSPACE_LEN + @id_len
 *
 * Context: any thread. Return: 0; -EINVAL: @id_len; -EMSGSIZE: no room.
 */
int kvblk_keyspace_key(const struct kvblk_keyspace *space, const void *id, size_t id_len,
		       uint8_t *key, size_t *key_len);

/**
 * kvblk_block_id() - a block's id by its tokens, for runtimes that have none
 * @parent: id of the block before it in its prompt; NULL: it is the first
 * @tokens: its tokens
 * @nr_tokens: how many
 * @extra: what else the block depends on, such as a picture's hash; or NULL
 * @extra_len: bytes there, or 0
 * @id: filled; may be @parent
 *
 * SHA-256 of @parent (32 zeroes for NULL), @nr_tokens (64 bits, little endian), the
 * tokens (32 bits each, little endian) and @extra.
 *
 * Context: any thread.
 */
void kvblk_block_id(const uint8_t *parent, const uint32_t *tokens, size_t nr_tokens,
		    const void *extra, size_t extra_len, uint8_t id[KVBLK_BLOCK_ID_LEN]);

/* Memory for operations, by its address: the host's, a PCI device's, a GPU's. */

struct kvblk_mem;

#define KVBLK_MEM_PART_UNIT	65536u		/* bytes; a part has a multiple of it */
#define KVBLK_MEM_LANES_MAX	64

/**
 * enum kvblk_mem_kind - how operations reach memory
 * @KVBLK_MEM_REGISTERED: pinned once, when it was registered. A PCI device's: the
 *	drive reaches it itself where the kernel finds a way (KVBLK_RES_DIRECT)
 * @KVBLK_MEM_ADDRESSED: pinned for each operation: memory of more than one owner,
 *	or a PCI device's on a kernel without CONFIG_MMU_NOTIFIER
 * @KVBLK_MEM_STAGED: device memory of CUDA that the kernel can't reach: it is
 *	copied from and to pinned memory of the host
 */
enum kvblk_mem_kind {
	KVBLK_MEM_REGISTERED	= 1,
	KVBLK_MEM_ADDRESSED	= 2,
	KVBLK_MEM_STAGED	= 3,
};

/**
 * struct kvblk_mem_options - how memory is staged, if it has to be
 * @block_max: longest block, up to KVBLK_VALUE_MAX; each lane pins twice that. 0: what
 *	the pool takes, or 16 MiB, if that is less
 * @part_size: bytes of a block that are copied at once, a multiple of
 *	KVBLK_MEM_PART_UNIT up to KVBLK_VALUE_MAX; 0: 1 MiB
 * @lanes: calls at a time, up to KVBLK_MEM_LANES_MAX; others wait for them. 0: 2
 *
 * All memory of one context of CUDA that is registered with one handle and the same options
 * shares its lanes.
 */
struct kvblk_mem_options {
	size_t block_max;
	size_t part_size;
	unsigned int lanes;
};

/**
 * kvblk_mem_register() - make memory ready for operations of a handle
 * @kv: the handle; must stay open as long as the memory is registered
 * @addr: the memory, any alignment: a user address, or a device pointer of CUDA
 * @len: bytes, 1 to 64 GiB
 * @options: or NULL
 * @mem: set to the new handle, which kvblk_mem_unregister() frees
 *
 * Memory of the host is pinned, and counts as locked until it is unregistered and
 * operations that use it are over. So is a mapping of memory of a PCI device, which
 * counts as nobody's; when the mapping goes, operations fail with -ENXIO. Device
 * memory of CUDA is used through a mapping where the driver has one that the
 * kernel can pin, else it is staged. CUDA is only asked when the
 * process has loaded it. The memory must stay until it is unregistered.
 *
 * Context: any thread. Return: 0; -EINVAL; -ENOMEM: no memory, or
 * RLIMIT_MEMLOCK; -EFAULT: can't be pinned for writing, or ends within another
 * device's or none's; -ENOSPC: there are 65536; -ENOSYS: the CUDA driver is too
 * old; -ENODEV: the pool is being destroyed, or CUDA has lost the device; -EIO:
 * CUDA failed.
 */
int kvblk_mem_register(struct kvblk *kv, void *addr, size_t len,
		       const struct kvblk_mem_options *options, struct kvblk_mem **mem);

/**
 * kvblk_mem_alloc() - fresh memory of the host, a PCI device or a GPU, registered
 * @kv: the handle; must stay open as long as the memory is there
 * @from: "host"; "0000:03:00.0" or "03:00.0", a PCI device with p2pmem/allocate in
 *	sysfs; a path (anything with a '/') to be mapped, as of a driver's node that
 *	gives memory of its device; "cuda:0", a device of CUDA by its number
 * @len: bytes, 1 to 64 GiB
 * @options: or NULL
 * @mem: set to the new handle, which kvblk_mem_unregister() frees, with the memory
 *
 * What is in it is not defined. Only "cuda:" loads CUDA.
 *
 * Context: any thread. Return: as kvblk_mem_register(); -ENOENT: no such device or
 * file, or the device gives none; -EACCES; -ELIBACC: there is no libcuda.so.1;
 * -ENODEV: no such device of CUDA; -ENOMEM: also: the device has no room; another
 * errno of open(2) or mmap(2).
 */
int kvblk_mem_alloc(struct kvblk *kv, const char *from, size_t len,
		    const struct kvblk_mem_options *options, struct kvblk_mem **mem);

/**
 * kvblk_mem_unregister() - let memory go
 * @mem: the handle, or NULL
 *
 * No call may be running on it, and no operation on its pieces unless it is
 * KVBLK_MEM_REGISTERED and was not allocated. It is the process' that made it: a
 * child of fork(2) must neither use nor free it, which would take it from both.
 *
 * Context: any thread, once.
 */
void kvblk_mem_unregister(struct kvblk_mem *mem);

/**
 * kvblk_mem_addr() - where the memory is
 * @mem: the handle
 *
 * Context: any thread. Return: its address, or its device pointer.
 */
void *kvblk_mem_addr(const struct kvblk_mem *mem);

/**
 * kvblk_mem_kind() - how operations reach the memory
 * @mem: the handle
 *
 * Context: any thread. Return: &enum kvblk_mem_kind.
 */
unsigned int kvblk_mem_kind(const struct kvblk_mem *mem);

/**
 * kvblk_mem_piece() - a piece of the memory, for batches and queues
 * @mem: the handle
 * @offset: into the memory
 * @len: bytes, not 0
 * @piece: filled, for operations of the same struct kvblk
 *
 * One of staged memory is for kvblk_mem_submit() and struct kvblk_async alone; anywhere
 * else its operation ends with -EOPNOTSUPP. It must lie within the memory as filled.
 *
 * Context: any thread. Return: 0; -EFAULT: not within the memory.
 */
int kvblk_mem_piece(const struct kvblk_mem *mem, size_t offset, size_t len,
		    struct kvblk_piece *piece);

/**
 * kvblk_mem_submit() - run a batch on memory of every kind
 * @kv: the handle
 * @ops: as for kvblk_submit()
 * @nr_ops: 1 to the pool's limit
 * @results: one each, in the order of @ops
 * @flags: &enum kvblk_submit_flags
 *
 * As kvblk_submit(), which it is unless there are pieces of staged memory. Those
 * operations go through the host's memory in loads, up to block_max bytes each, and the
 * device copies some while the kernel works on others. KVBLK_RES_BOUNCED is set for
 * them. A get that fails has changed nothing, unless CUDA failed. A chain is admitted
 * load by load, and what comes after a put that was declined is declined. What
 * kvblk_cancel() finds in the kernel takes with it what comes later with the same
 * cookie; while the device copies it may find nothing. Allocates nothing.
 *
 * Context: any thread. Return: as kvblk_submit(); 0 if any memory is staged, with all
 * errors in @results, also -EFBIG: longer than block_max; -EXDEV: pieces of two contexts
 * of CUDA, of staged and other memory, or registered with two sets of options; -EIO, or
 * another errno for an error of CUDA, also for later operations; -ENODEV: CUDA has lost
 * the device.
 */
int kvblk_mem_submit(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		     struct kvblk_result *results, unsigned int flags);

/**
 * kvblk_mem_put() - store one block out of the memory, whatever it is
 * @mem: the handle
 * @offset: of the block's bytes, which nobody may be writing to
 * @len: 1 to KVBLK_VALUE_MAX
 * @key: its key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @options: or NULL
 * @flags: set to &enum kvblk_result_flags; or NULL
 *
 * Allocates nothing; sleeps until the device has the block.
 *
 * Context: any thread. Return: as kvblk_put(); -EFAULT: not within the memory;
 * staged also -EFBIG: longer than @block_max; -EIO: CUDA failed; -ENODEV: CUDA has
 * lost the device.
 */
int kvblk_mem_put(struct kvblk_mem *mem, size_t offset, size_t len, const void *key,
		  size_t key_len, const struct kvblk_put_options *options,
		  uint32_t *flags);

/**
 * kvblk_mem_get() - fetch one block into the memory, whatever it is
 * @mem: the handle
 * @offset: where to
 * @len: in: room there; out: the block's length, on 0 and -EMSGSIZE
 * @key: its key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @flags: set to &enum kvblk_result_flags; or NULL
 *
 * Allocates nothing; sleeps until the block is there. Unless it returns 0 the
 * bytes are zeroes or untouched, or when CUDA failed not defined. A staged block
 * of more than one part is fetched in parts: see kvblk_mem_register(3).
 *
 * Context: any thread. Return: as kvblk_get(); -EFAULT: not within the memory;
 * staged also -EFBIG: the block is longer than @block_max; -EIO: CUDA failed;
 * -ENODEV: CUDA has lost the device.
 */
int kvblk_mem_get(struct kvblk_mem *mem, size_t offset, size_t *len, const void *key,
		  size_t key_len, uint32_t *flags);

/**
 * kvblk_mem_flush() - what gets have brought into the memory by its pieces is there
 * @mem: the handle
 *
 * After a batch or queue of gets, before a GPU works on what they brought: work that is
 * started after the call sees it. Nothing has to be done, and is, for memory of the host
 * and after kvblk_mem_get().
 *
 * Context: any thread. Return: 0; -EIO: CUDA failed; -ENODEV: CUDA has lost the device.
 */
int kvblk_mem_flush(const struct kvblk_mem *mem);

/* Pools and members. */

struct kvblk_admin;

/**
 * kvblk_admin_open() - connect to the module's administration
 * @handle: set to the new handle, which kvblk_admin_close() frees
 *
 * One thread at a time may use a handle; handles are independent.
 *
 * Context: any thread. Return: 0; -ENOENT: the module is not loaded, or this
 * is not the initial network namespace; -ENOMEM; -EIO and others: no socket.
 */
int kvblk_admin_open(struct kvblk_admin **handle);

/**
 * kvblk_admin_close() - disconnect
 * @admin: the handle, or NULL
 *
 * Context: one thread at a time, once.
 */
void kvblk_admin_close(struct kvblk_admin *admin);

/**
 * kvblk_admin_message() - why the last call on the handle was refused
 * @admin: the handle
 *
 * A sentence by the kernel that says what to change; after success, what it warns of.
 *
 * Context: one thread at a time. Return: the sentence, "" if there is none. It
 * is the handle's and is good until the next call on it.
 */
const char *kvblk_admin_message(const struct kvblk_admin *admin);

/**
 * kvblk_admin_request() - number of a request that goes on
 * @admin: the handle
 *
 * The event KVBLK_EVENT_REQUEST_DONE that tells its end has it, too, in its
 * number KVBLK_A_EVENT_REQUEST.
 *
 * Context: one thread at a time. Return: the number of the last call on the
 * handle if that returned -EINPROGRESS, until kvblk_admin_wait() has told its
 * end; else 0.
 */
uint64_t kvblk_admin_request(const struct kvblk_admin *admin);

/**
 * kvblk_admin_wait() - wait for the end of a request that goes on
 * @admin: the handle, whose last call returned -EINPROGRESS
 * @timeout_ms: wait no longer; negative: as long as it takes
 *
 * Context: one thread at a time; sleeps. Return: how the request ended: 0, or
 * an errno of that call, of which the kernel's log has the sentence;
 * -ETIMEDOUT: it goes on, wait again; -EINVAL: no request goes on; -EINTR: a
 * signal came, wait again; -ENOBUFS: events were lost, perhaps that one: look
 * how things are; -ENOMEM.
 */
int kvblk_admin_wait(struct kvblk_admin *admin, int timeout_ms);

/**
 * struct kvblk_member_spec - a device to become a member
 * @path: of the block device, up to KVBLK_PATH_LEN_MAX printable ASCII characters
 * @segment_size: bytes in its segments, a power of two from 8 MiB to 1 GiB;
 *	0: the device's size decides
 * @name: that a new member gets, as a pool's and no other member's, for as long as it
 *	is one; NULL: made of the last part of @path, or of the kernel's name of the
 *	device. One that comes back has its name already
 */
struct kvblk_member_spec {
	const char *path;
	uint32_t segment_size;
	const char *name;
};

/**
 * struct kvblk_pool_spec - a pool to be made
 * @name: 1 to KVBLK_NAME_LEN_MAX letters, digits, '.', '-', '_', the first one a
 *	letter or digit
 * @flags: &enum kvblk_pool_flag
 * @add_flags: &enum kvblk_add_flag, for all members
 * @index_slots: entries of the index, 64 to 2^36; 0: as many as before, or by the
 *	capacity if the pool is new
 * @members: the devices
 * @nr_members: how many, 1 to 64
 */
struct kvblk_pool_spec {
	const char *name;
	uint32_t flags;
	uint32_t add_flags;
	uint64_t index_slots;
	const struct kvblk_member_spec *members;
	size_t nr_members;
};

/**
 * kvblk_pool_create() - make a new pool
 * @admin: the handle
 * @spec: what to make
 *
 * All members come, empty, or nothing does. When it returns, the pool takes puts.
 *
 * Context: one thread at a time. Return: 0; -EEXIST: the name is in use; -EBUSY: a
 * device is in use; -ENOTEMPTY: a device is a member of some pool or holds something
 * else; -EUCLEAN: it is a damaged member; -EPROTONOSUPPORT: it is one of another
 * version (KVBLK_ADD_FLAG_FORMAT takes all of these); -EPERM: no CAP_SYS_ADMIN;
 * -EINPROGRESS: a device takes its time, the request goes on, and kvblk_admin_wait()
 * waits for its end; -ENOSPC: too many segments; -EIO: a device can't be read or written; -EINVAL;
 * -ENOMEM; -EMSGSIZE: the request is too long for a socket's buffer; an errno of
 * opening a device. kvblk_admin_message() tells more.
 */
int kvblk_pool_create(struct kvblk_admin *admin,
		      const struct kvblk_pool_spec *spec);

/**
 * kvblk_pool_import() - bring a pool back
 * @admin: the handle
 * @spec: its name, and the devices that are its members (kvblk_scan() finds them);
 *	@flags, @add_flags' format and @segment_size are not for it
 *
 * All members must be there and up to date, unless @add_flags has
 * KVBLK_ADD_FLAG_DEGRADED: then those that are not are left out. With
 * KVBLK_ADD_FLAG_RENAME the pool gets the name @spec has. The members get the identity
 * of this host, of /var/lib/kvblk/node or else of /etc/machine-id. Nothing is
 * formatted. When it returns, the pool takes puts; blocks that its members hold are
 * back when each member's state is KVBLK_MEMBER_STATUS_UP.
 *
 * Context: one thread at a time. Return: 0; -ENODEV: a member is missing; -ESTALE: one
 * is out of date, or contradicts the others; -ENODATA: a device is no member; -EXDEV:
 * it is one of another pool; -EEXIST: the name or a member is in use, or two devices
 * are the same member; -EBUSY: a device is in use otherwise; -EUCLEAN: a member is
 * damaged; -EPROTONOSUPPORT: it is of another version; -EREMOTE: another node owns it
 * (KVBLK_ADD_FLAG_FORCE takes it); -ENOSPC: fewer index slots than the pool had
 * (KVBLK_ADD_FLAG_FORCE drops what does not fit); others as of kvblk_pool_create().
 */
int kvblk_pool_import(struct kvblk_admin *admin,
		      const struct kvblk_pool_spec *spec);

/**
 * struct kvblk_found - a member that was found on a block device
 * @next: the next one of the list, or NULL
 * @path: of the device
 * @pool: name of its pool
 * @owner: the node that has it, or had it last
 * @pool_uuid: identity of its pool
 * @uuid: its own
 * @epoch: of the pool, as far as it knows
 * @roster_seq: the higher, the newer is @members
 * @clean: its pool was stopped in good order
 * @nr_members: members that the pool has, as far as it knows
 * @members: their identities and names
 * @other_version: of another version of kvblk; nothing else is known but @path
 * @silent: the device did not answer; nothing else is known but @path
 * @former: it was a member: something else was written where its first superblock was
 * @data_start: where its segments begin, bytes
 * @data_end: where they end
 * @places: as @members: where each was last, "" if nobody told
 *
 * May get more fields at its end: only the library makes these. What is told here is
 * what is written there; the kernel alone decides what it believes.
 */
struct kvblk_found {
	struct kvblk_found *next;
	char *path;
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char owner[64];
	uint8_t pool_uuid[16];
	uint8_t uuid[16];
	uint64_t epoch;
	uint64_t roster_seq;
	bool clean;
	uint32_t nr_members;
	struct {
		uint8_t uuid[16];
		char name[KVBLK_NAME_LEN_MAX + 1];
	} members[64];
	bool other_version;
	bool silent;
	bool former;
	uint64_t data_start;
	uint64_t data_end;
	char places[64][KVBLK_PLACE_LEN_MAX + 1];
};

/**
 * kvblk_scan() - find members on block devices
 * @paths: devices to look at; NULL: all that no other device is made of
 * @nr_paths: how many
 * @list: set to a list, NULL when there is none; kvblk_scan_free() frees it
 *
 * Reads the first 128 KiB of each, of 64 devices at once, and needs no module. Waits 5
 * seconds for what was asked at once (without io_uring as long as the driver takes);
 * a device that has not answered then is in the list as silent, and keeps 128 KiB of
 * this process's memory, where its answer may still land. Before that each is opened,
 * which some drivers answer late: SCSI's, while the host adapter recovers.
 *
 * Context: any thread; sleeps. Return: 0; -EACCES: no device may be read; -EMFILE,
 * -ENFILE: no descriptors for 64 devices; -ENOMEM; an errno of a device in @paths,
 * -ETIMEDOUT if it does not answer.
 */
int kvblk_scan(const char *const *paths, size_t nr_paths, struct kvblk_found **list);

/**
 * kvblk_scan_free() - free a list of found members
 * @list: the list, or NULL
 *
 * Context: any thread.
 */
void kvblk_scan_free(struct kvblk_found *list);

/**
 * kvblk_pool_destroy() - take a pool down in good order
 * @admin: the handle
 * @name: the pool
 * @force: although its nodes are open
 *
 * The pool's blocks stay on the members and come back with kvblk_pool_import(). If a member
 * could not be told that the pool is down, kvblk_admin_message() says so; then the next
 * import is as after a crash.
 *
 * Context: one thread at a time. Return: 0; -ENOENT: no such pool; -EBUSY:
 * its nodes are open; -EALREADY: it is being destroyed; -EPERM: no
 * CAP_SYS_ADMIN; -EINPROGRESS, -EINVAL, -ENOMEM, -EMSGSIZE as of
 * kvblk_pool_create().
 */
int kvblk_pool_destroy(struct kvblk_admin *admin, const char *name, bool force);

/**
 * kvblk_pool_clear() - begin to count a pool's errors anew
 * @admin: the handle
 * @name: the pool's name
 *
 * The ones of struct kvblk_pool_state; the counters of kvblk_stats_get() go on.
 *
 * Context: one thread at a time. Return: 0; -ENOENT: no such pool; -EPERM: no
 * CAP_SYS_ADMIN; -ENOMEM, -EMSGSIZE; -EOPNOTSUPP: the module can't.
 */
int kvblk_pool_clear(struct kvblk_admin *admin, const char *name);

/**
 * struct kvblk_pool_state - a pool as it is
 * @next: the next one of the list, or NULL
 * @name: its name
 * @uuid: its identity
 * @flags: &enum kvblk_pool_flag
 * @birth: when it was formatted, seconds since 1970
 * @epoch: grows when it is assembled, and when a member is removed or dies
 * @nr_members: members, whatever their state
 * @capacity: bytes in the segments of all members that are up or restoring
 * @free: bytes in those that hold nothing, of members that are up
 * @nr_segments: segments of all members that are up or restoring
 * @free_segments: those that hold nothing, of members that are up
 * @index_slots: entries of the index
 * @index_used: of those, in use; dropped blocks included until they are swept
 * @index_evicted: blocks that had to go because the index was full
 * @index_bytes: memory that it takes
 * @leased_bytes: bytes of blocks under lease
 * @value_max: bytes in the longest block it takes now, 0: no member is up
 * @devnode: path of the default tenant's node, below /dev
 * @index_lacks: blocks that an import found and that do not fit into the index: they
 *	are misses, and deletes are -EIO, until it is imported with more slots
 * @has_errors: the module tells the next ones
 * @checksum_failures: checksum failures since the pool was assembled or cleared
 * @read_errors: failed reads, likewise
 * @write_errors: failed writes, likewise
 * @put_nospace: puts that found no room, likewise
 * @cleared: when it was cleared, seconds since 1970; 0: never
 * @unsure: members that may still hold what is deleted now: deletes fail unless it is 0
 *
 * May get more fields at its end: only the library makes these.
 */
struct kvblk_pool_state {
	struct kvblk_pool_state *next;
	char name[KVBLK_NAME_LEN_MAX + 1];
	uint8_t uuid[16];
	uint32_t flags;
	uint32_t nr_members;
	uint64_t birth;
	uint64_t epoch;
	uint64_t capacity;
	uint64_t free;
	uint32_t nr_segments;
	uint32_t free_segments;
	uint64_t index_slots;
	uint64_t index_used;
	uint64_t index_evicted;
	uint64_t index_bytes;
	uint64_t leased_bytes;
	uint32_t value_max;
	char devnode[64];
	uint64_t index_lacks;
	bool has_errors;
	uint64_t checksum_failures;
	uint64_t read_errors;
	uint64_t write_errors;
	uint64_t put_nospace;
	uint64_t cleared;
	uint32_t unsure;
};

/**
 * kvblk_pool_get() - how a pool is, or all of them
 * @admin: the handle
 * @name: the pool; NULL for all
 * @list: set to a list, NULL when there is none; kvblk_pool_free() frees it
 *
 * Context: one thread at a time. Return: 0; -ENOENT: no such pool; -EINVAL: no
 * name of a pool; -EINTR: it changed while it was read, ten times; -ENOMEM;
 * -EMSGSIZE; -EBADMSG; -EIO: the kernel can't be talked to.
 */
int kvblk_pool_get(struct kvblk_admin *admin, const char *name,
		   struct kvblk_pool_state **list);

/**
 * kvblk_pool_free() - free a list of pools
 * @list: the list, or NULL
 *
 * Context: any thread.
 */
void kvblk_pool_free(struct kvblk_pool_state *list);

/**
 * kvblk_member_add() - add a device to a pool
 * @admin: the handle
 * @pool: the pool's name
 * @spec: the device
 * @add_flags: &enum kvblk_add_flag
 *
 * It begins empty, unless it is a member that was away while the pool was up: then
 * it keeps those blocks that were neither put nor deleted meanwhile.
 *
 * Context: one thread at a time. Return: as kvblk_pool_create(); -ESTALE: a member of
 * this pool that is out of date (KVBLK_ADD_FLAG_FORMAT makes it a new one); -EREMOTE:
 * another node owns it (KVBLK_ADD_FLAG_FORCE takes it); -EEXIST: it is active already;
 * -ENOENT: no such pool or device; -ENOSPC: also 64 members, missing ones included;
 * -ENODEV: the pool is being destroyed.
 */
int kvblk_member_add(struct kvblk_admin *admin, const char *pool,
		     const struct kvblk_member_spec *spec, uint32_t add_flags);

/**
 * kvblk_member_remove() - remove a member
 * @admin: the handle
 * @pool: the pool's name
 * @member: the member's name
 *
 * Its blocks are misses at once. The event KVBLK_EVENT_MEMBER_DOWN tells when
 * the device is free. If another member could not be told, kvblk_admin_message() says
 * so, and deletes fail until it is: see @unsure of &struct kvblk_pool_state.
 *
 * Context: one thread at a time. Return: 0; -ENOENT: no such pool or member;
 * -EALREADY: it is being removed; -ENODEV: the pool is being destroyed; -EPERM:
 * no CAP_SYS_ADMIN; -EINPROGRESS, -EINVAL, -ENOMEM, -EMSGSIZE as of
 * kvblk_pool_create().
 */
int kvblk_member_remove(struct kvblk_admin *admin, const char *pool,
			const char *member);

/**
 * kvblk_member_remove_uuid() - remove a member by its identity
 * @admin: the handle
 * @pool: the pool's name
 * @uuid: the member's identity
 *
 * The same as kvblk_member_remove(). A name of a member that is missing may be that of
 * another one by now.
 *
 * Context: one thread at a time. Return: as kvblk_member_remove().
 */
int kvblk_member_remove_uuid(struct kvblk_admin *admin, const char *pool,
			     const uint8_t uuid[16]);

/**
 * struct kvblk_member_state - a member as it is
 * @next: the next one of the list, or NULL
 * @pool: the pool's name
 * @name: its name in the pool, the same for as long as it is a member
 * @path: of its device, as it was added
 * @uuid: its identity
 * @slot: its place among the members
 * @state: &enum kvblk_member_status
 * @suspect: it does not answer
 * @failing: it answers with errors; see @read_only
 * @size: bytes of the device
 * @segment_size: bytes in a segment
 * @nr_segments: segments
 * @free_segments: those that hold nothing
 * @ready_segments: those opened on media, waiting to take records
 * @open_segments: those that take records or wait to be sealed
 * @sealed_segments: those that are full and closed
 * @record_align: records begin at multiples of so many bytes
 * @inflight: I/Os submitted and not completed
 * @incarnation: a random number drawn when it was formatted
 * @restored: blocks that it brought back when it came up
 * @formatted: it was new and empty when it came up
 * @read_only: @failing, but only writes: its blocks are served
 * @place: where its device is, or was last: "NQN nsid N", or by its serial number; ""
 *	if nobody told
 * @device: the kernel's name of its device; "": that is gone
 * @unread_segments: segments that could not be read then; their blocks are misses
 *
 * KVBLK_MEMBER_STATUS_MISSING: of these there are @pool, @name, @uuid, @state and
 * @place. No two of a list have the same @pool and @name.
 * May get more fields at its end: only the library makes these.
 */
struct kvblk_member_state {
	struct kvblk_member_state *next;
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char name[KVBLK_NAME_LEN_MAX + 1];
	char path[KVBLK_PATH_LEN_MAX + 1];
	uint8_t uuid[16];
	uint32_t slot;
	uint32_t state;
	bool suspect;
	bool failing;
	uint64_t size;
	uint32_t segment_size;
	uint32_t nr_segments;
	uint32_t free_segments;
	uint32_t ready_segments;
	uint32_t open_segments;
	uint32_t sealed_segments;
	uint32_t record_align;
	uint32_t inflight;
	uint64_t incarnation;
	uint64_t restored;
	bool formatted;
	bool read_only;
	char place[KVBLK_PLACE_LEN_MAX + 1];
	char device[KVBLK_NAME_LEN_MAX + 1];
	uint32_t unread_segments;
};

/**
 * kvblk_member_get() - how the members of a pool are, or all of all pools
 * @admin: the handle
 * @pool: the pool's name; NULL for all
 * @list: set to a list, NULL when there is none; kvblk_member_free() frees it
 *
 * Context: one thread at a time. Return: as kvblk_pool_get().
 */
int kvblk_member_get(struct kvblk_admin *admin, const char *pool,
		     struct kvblk_member_state **list);

/**
 * kvblk_member_free() - free a list of members
 * @list: the list, or NULL
 *
 * Context: any thread.
 */
void kvblk_member_free(struct kvblk_member_state *list);

#define KVBLK_STATS_COUNTERS	128	/* room for counters */
#define KVBLK_STATS_GAUGES	64	/* room for gauges */
#define KVBLK_STATS_LATENCIES	8	/* room for histograms */
#define KVBLK_STATS_BUCKETS	64	/* room for buckets of one */

/**
 * struct kvblk_stats - what a pool has counted since its assembly, or a member since
 *	it came
 * @next: the next one of the list, or NULL
 * @pool: the pool's name
 * @member: the member's name; "": the statistics are of the pool
 * @counter: by KVBLK_A_COUNTER_PUTS and the like; none ever goes back
 * @has_counter: which of them there are: a member has fewer than a pool
 * @gauge: what is so now, by KVBLK_A_GAUGE_INFLIGHT and the like
 * @has_gauge: which of them there are
 * @latency: by KVBLK_A_LATENCY_PUT and the like; bucket i counts what took
 *	2^i to 2^(i+1) - 1 ns, the last one of @nr_buckets what took longer, too
 * @nr_buckets: buckets of each histogram, 0 for one that is not there
 * @size_max: of a class of sizes: most bytes that a put or get moved, more than that
 *	of the class before; else 0
 * @latency_ns: of a class of sizes: ns that all puts or gets took
 * @seq: of kvblk_stats_read(): number of the message, of those about the pool, from 1
 *	on; others are lost between two that do not follow each other
 * @time_ns: of kvblk_stats_read(): when, nanoseconds since 1970; the same in all
 *	messages about the pool that came together
 *
 * May get more fields at its end: only the library makes these.
 */
struct kvblk_stats {
	struct kvblk_stats *next;
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char member[KVBLK_NAME_LEN_MAX + 1];
	uint64_t counter[KVBLK_STATS_COUNTERS];
	bool has_counter[KVBLK_STATS_COUNTERS];
	uint64_t gauge[KVBLK_STATS_GAUGES];
	bool has_gauge[KVBLK_STATS_GAUGES];
	uint64_t latency[KVBLK_STATS_LATENCIES][KVBLK_STATS_BUCKETS];
	uint32_t nr_buckets[KVBLK_STATS_LATENCIES];
	uint64_t size_max;
	uint64_t latency_ns[KVBLK_STATS_LATENCIES];
	uint64_t seq;
	uint64_t time_ns;
};

/**
 * kvblk_stats_get() - statistics of a pool, or of all of them
 * @admin: the handle
 * @pool: the pool's name; NULL for all
 * @list: set to a list, NULL when there is none; kvblk_stats_free() frees it
 *
 * Context: one thread at a time. Return: as kvblk_pool_get().
 */
int kvblk_stats_get(struct kvblk_admin *admin, const char *pool,
		    struct kvblk_stats **list);

/**
 * kvblk_stats_list() - statistics of what a pool, or all of them, consist of
 * @admin: the handle
 * @scope: of what: pools, as kvblk_stats_get(), each of their members, or the
 *	latencies of puts and gets by class of sizes
 * @pool: the pool's name; NULL for all
 * @list: set to a list, NULL when there is none; kvblk_stats_free() frees it
 *
 * Context: one thread at a time. Return: as kvblk_pool_get(); -EINVAL, -ERANGE: also
 * a module that does not know @scope.
 */
int kvblk_stats_list(struct kvblk_admin *admin, enum kvblk_stats_scope scope,
		     const char *pool, struct kvblk_stats **list);

/**
 * kvblk_stats_free() - free a list of statistics
 * @list: the list, or NULL
 *
 * Context: any thread.
 */
void kvblk_stats_free(struct kvblk_stats *list);

struct kvblk_stats_feed;

/**
 * kvblk_stats_open() - listen to the statistics of all pools
 * @handle: set to the new handle, which kvblk_stats_close() frees
 *
 * They come from each pool whose tunable stats_seconds in sysfs is not 0, as often as
 * that says: those of the pool, of each member and of each class of sizes. One thread
 * at a time may use a handle.
 *
 * Context: any thread. Return: 0; -ENOENT: the module is not loaded or has no such
 * group, or this is not the initial network namespace; -ENOMEM; -EIO and others: no
 * socket.
 */
int kvblk_stats_open(struct kvblk_stats_feed **handle);

/**
 * kvblk_stats_close() - stop listening
 * @feed: the handle, or NULL
 *
 * Context: one thread at a time, once.
 */
void kvblk_stats_close(struct kvblk_stats_feed *feed);

/**
 * kvblk_stats_fd() - a descriptor that is readable when there are statistics
 * @feed: the handle
 *
 * For poll(2) and the like. It stays the handle's: don't read or close it.
 *
 * Context: any thread. Return: the descriptor.
 */
int kvblk_stats_fd(const struct kvblk_stats_feed *feed);

/**
 * kvblk_stats_read() - the next message
 * @feed: the handle
 * @stats: set to it; it is the handle's and good until the next call
 *
 * Never sleeps: wait with poll(2) on kvblk_stats_fd().
 *
 * Context: one thread at a time. Return: 0; -EAGAIN: there is none now; -ENOBUFS:
 * some were lost, for they were not read fast enough; go on reading; -ENOMEM.
 */
int kvblk_stats_read(struct kvblk_stats_feed *feed, const struct kvblk_stats **stats);

/**
 * struct kvblk_route_state - how a member reaches a PCI device's memory
 * @next: the next one of the list, or NULL
 * @pool: the pool's name
 * @member: the member's name
 * @device: PCI address of a device that has published its memory
 * @distance: steps between the two; -1: there is no way, or kvblk can't tell the
 *	member's PCI device
 * @state: &enum kvblk_route_status
 * @why: the reason why the route bounces, as "queue"; "": there is none
 *
 * May get more fields at its end: only the library makes these.
 */
struct kvblk_route_state {
	struct kvblk_route_state *next;
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char member[KVBLK_NAME_LEN_MAX + 1];
	char device[KVBLK_NAME_LEN_MAX + 1];
	int32_t distance;
	uint32_t state;
	char why[KVBLK_NAME_LEN_MAX + 1];
};

/**
 * kvblk_route_get() - which PCI devices' memory a member reaches, and how
 * @admin: the handle
 * @pool: the pool's name
 * @member: the member's name
 * @list: set to a list, NULL when there is none; kvblk_route_free() frees it
 *
 * Nothing is tried out. There is no route to a device that nobody went to yet and
 * that gives the module no memory; none at all without CONFIG_PCI_P2PDMA.
 *
 * Context: one thread at a time. Return: as kvblk_pool_get(); -ENOENT: also no such
 * member, or it is dead or being removed.
 */
int kvblk_route_get(struct kvblk_admin *admin, const char *pool,
		    const char *member, struct kvblk_route_state **list);

/**
 * kvblk_route_free() - free a list of routes
 * @list: the list, or NULL
 *
 * Context: any thread.
 */
void kvblk_route_free(struct kvblk_route_state *list);

/**
 * kvblk_counter_name() - name of a counter, as "put_bytes"
 * @counter: KVBLK_A_COUNTER_PUTS and the like
 *
 * Context: any thread. Return: a constant string; NULL: not a counter.
 */
const char *kvblk_counter_name(unsigned int counter);

/**
 * kvblk_gauge_name() - name of a gauge, as "segments_free"
 * @gauge: KVBLK_A_GAUGE_INFLIGHT and the like
 *
 * Context: any thread. Return: a constant string; NULL: not a gauge.
 */
const char *kvblk_gauge_name(unsigned int gauge);

/**
 * kvblk_latency_name() - name of a latency histogram, as "put"
 * @latency: KVBLK_A_LATENCY_PUT and the like
 *
 * Context: any thread. Return: a constant string; NULL: not a histogram.
 */
const char *kvblk_latency_name(unsigned int latency);

/**
 * kvblk_member_status_name() - name of a member's state, as "up"
 * @state: &enum kvblk_member_status
 *
 * Context: any thread. Return: a constant string, "unknown" for a new state.
 */
const char *kvblk_member_status_name(unsigned int state);

/**
 * kvblk_route_status_name() - name of a route's state, as "direct"
 * @state: &enum kvblk_route_status
 *
 * Context: any thread. Return: a constant string; NULL for a new state, since
 * "unknown" is one of them.
 */
const char *kvblk_route_status_name(unsigned int state);

/* What happens. */

struct kvblk_events;

#define KVBLK_NOTICE_NUMBERS	32	/* room for numbers */

/**
 * struct kvblk_notice - something that happened
 * @type: &enum kvblk_event
 * @pool: the pool's name
 * @member: the member's name, "" when no single one is concerned
 * @time_ns: when, nanoseconds since 1970
 * @has: bit KVBLK_A_EVENT_BLOCKS and the like: it carries this number
 * @number: by KVBLK_A_EVENT_BLOCKS and the like; 0 where it carries none
 * @uuid: the member's identity, zeroes when it is not told
 * @place: where the member's device is, or was last; "" if nobody told
 *
 * May get more fields at its end: only the library makes these.
 */
struct kvblk_notice {
	uint32_t type;
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char member[KVBLK_NAME_LEN_MAX + 1];
	uint64_t time_ns;
	uint32_t has;
	uint64_t number[KVBLK_NOTICE_NUMBERS];
	uint8_t uuid[16];
	char place[KVBLK_PLACE_LEN_MAX + 1];
};

/**
 * kvblk_events_open() - listen to the events of all pools
 * @handle: set to the new handle, which kvblk_events_close() frees
 *
 * One thread at a time may use a handle. What happens from now on is heard.
 *
 * Context: any thread. Return: 0; -ENOENT: the module is not loaded, or this
 * is not the initial network namespace; -ENOMEM; -EIO and others: no socket.
 */
int kvblk_events_open(struct kvblk_events **handle);

/**
 * kvblk_events_close() - stop listening
 * @events: the handle, or NULL
 *
 * Context: one thread at a time, once.
 */
void kvblk_events_close(struct kvblk_events *events);

/**
 * kvblk_events_fd() - a descriptor that is readable when there is an event
 * @events: the handle
 *
 * For poll(2) and the like. It stays the handle's: don't read or close it.
 *
 * Context: any thread. Return: the descriptor.
 */
int kvblk_events_fd(const struct kvblk_events *events);

/**
 * kvblk_events_read() - the next event
 * @events: the handle
 * @notice: set to it; it is the handle's and good until the next call
 *
 * Never sleeps: wait with poll(2) on kvblk_events_fd().
 *
 * Context: one thread at a time. Return: 0; -EAGAIN: there is none now;
 * -ENOBUFS: events were lost, for they were not read fast enough: what is
 * known may be out of date; go on reading; -ENOMEM.
 */
int kvblk_events_read(struct kvblk_events *events,
		      const struct kvblk_notice **notice);

/**
 * kvblk_event_name() - name of an event's type, as "member-dead"
 * @type: of the event
 *
 * Context: any thread. Return: a constant string, "unknown" for a new type.
 */
const char *kvblk_event_name(unsigned int type);

/**
 * kvblk_event_number_name() - name of a number that events carry, as "blocks"
 * @number: KVBLK_A_EVENT_BLOCKS and the like
 *
 * Context: any thread. Return: a constant string; NULL: not such a number.
 */
const char *kvblk_event_number_name(unsigned int number);

/**
 * kvblk_event_text() - an event in a sentence
 * @notice: the event
 * @buf: filled, NUL-terminated
 * @len: room there; 256 is enough
 *
 * Context: any thread.
 */
void kvblk_event_text(const struct kvblk_notice *notice, char *buf, size_t len);

#ifdef __cplusplus
}
#endif

#endif
