/* SPDX-License-Identifier: MIT */
/*
 * libkvblk: store and fetch KV blocks in kvblk pools.
 *
 * There are three kinds of handle:
 * - struct kvblk: an open device node, the data path of a runtime. The caller needs no
 *   privilege but membership in the group "kvblk". Queues and registered memory belong to
 *   this handle.
 * - struct kvblk_admin: queries and changes pools and members. Changes need
 *   CAP_SYS_ADMIN.
 * - struct kvblk_events: receives the events of all pools.
 *
 * Calls return 0 or a negative errno unless their description says otherwise. A call that
 * fails has changed nothing, except as described. The library keeps no pointer of the
 * caller after a call, except as described. All lengths are bytes.
 *
 * <linux/kvblk.h> defines the structures of the data path and the meaning of each errno.
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
 * kvblk_version() - return the version of the library
 *
 * Context: any thread.
 * Return: a constant string like "0.1.0".
 */
const char *kvblk_version(void);

/**
 * kvblk_strerror() - describe an errno of the data path
 * @err: the errno, positive or negative
 *
 * The text is specific to blocks: ENOENT is "no such block". kvblk_admin_message()
 * explains failed admin calls.
 *
 * Context: any thread.
 * Return: a constant string.
 */
const char *kvblk_strerror(int err);

/* The data path. */

struct kvblk;

/**
 * kvblk_open() - open a tenant's device node
 * @pool: name of a pool, which opens /dev/kvblk/POOL/default, or path of a node (any
 *	string that contains a '/')
 * @handle: set to the new handle; free the handle with kvblk_close()
 *
 * Many threads may use one handle at the same time. Leases belong to the handle.
 *
 * Context: any thread.
 * Return: 0; -ENODEV if the pool does not exist or is being destroyed; -EACCES if the
 * caller is not in the node's group; -ENOTTY if the path is not a kvblk node; -EINVAL,
 * -ENAMETOOLONG, -ENOMEM; another errno of open(2).
 */
int kvblk_open(const char *pool, struct kvblk **handle);

/**
 * kvblk_close() - close a handle
 * @kv: the handle, or NULL
 *
 * Ends the handle's leases. No other call may be running on the handle.
 *
 * Context: any thread, once.
 */
void kvblk_close(struct kvblk *kv);

/**
 * kvblk_fd() - return the descriptor behind a handle
 * @kv: the handle
 *
 * For ioctls that the library does not wrap. The handle owns the descriptor: do not close
 * it.
 *
 * Context: any thread.
 * Return: the descriptor.
 */
int kvblk_fd(const struct kvblk *kv);

/**
 * kvblk_info() - read limits and features of the pool
 * @kv: the handle
 * @info: filled in
 *
 * Context: any thread.
 * Return: 0; -ENODEV if the pool is being destroyed.
 */
int kvblk_info(struct kvblk *kv, struct kvblk_info *info);

/**
 * struct kvblk_put_options - optional properties of a block to put
 * @priority: 0 (evicted first) to KVBLK_PRIORITY_MAX
 * @ttl_s: time to live in seconds; 0: the block does not expire
 * @parent: key of the preceding block in the prefix chain, or NULL
 * @parent_len: length of @parent, or 0
 * @layout_tag: stored with the block and returned by gets
 * @caller_tag: stored with the block and returned by lookups
 * @deadline_ns: CLOCK_MONOTONIC time at which to give up; 0: no deadline
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
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @data: bytes of the block; must not change until the call returns
 * @len: 1 to KVBLK_VALUE_MAX
 * @options: options, or NULL
 *
 * Allocates no memory. Sleeps until the block is on the device or in the pool's memory
 * (see the tunable dram_bytes).
 *
 * Context: any thread.
 * Return: 0 if the block was stored; -EEXIST if the pool already has the block; -ENOBUFS
 * if the admission policy declined the block; -EALREADY, -ENOSPC, -EFBIG, -EIO, -ETIME,
 * -ECANCELED, -EINVAL, -ENOMEM, -EFAULT, -ENODEV, -EINTR as in <linux/kvblk.h>.
 */
int kvblk_put(struct kvblk *kv, const void *key, size_t key_len,
	      const void *data, size_t len,
	      const struct kvblk_put_options *options);

/**
 * kvblk_get() - fetch one block
 * @kv: the handle
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @buf: destination
 * @len: in: size of @buf, 1 to below 4 GiB; out: length of the block if the call returns
 *	0 or -EMSGSIZE
 *
 * Allocates no memory. Sleeps until the device has completed the read. If the call fails,
 * @buf holds zeroes or is unchanged.
 *
 * Context: any thread.
 * Return: 0; -ENOENT on a miss; -EMSGSIZE if @buf is too short; -ECANCELED, -EINVAL,
 * -ENOMEM, -EFAULT, -ENODEV, -EINTR as in <linux/kvblk.h>.
 */
int kvblk_get(struct kvblk *kv, const void *key, size_t key_len, void *buf,
	      size_t *len);

/**
 * kvblk_get_range() - fetch a part of one block
 * @kv: the handle
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @offset: first byte to fetch
 * @buf: destination
 * @len: in: bytes to fetch, 1 to below 4 GiB; out, if the call returns 0: bytes fetched,
 *	fewer at the end of the block
 *
 * Context: any thread.
 * Return: as kvblk_get(), without -EMSGSIZE; -ERANGE if @offset is not within the block.
 */
int kvblk_get_range(struct kvblk *kv, const void *key, size_t key_len,
		    uint32_t offset, void *buf, size_t *len);

/**
 * kvblk_delete() - remove one block durably
 * @kv: the handle
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 *
 * Context: any thread.
 * Return: 0; -ENOENT if there is no such block; -EBUSY while a put of the key is in
 * flight; -EIO if the member failed: the block may come back after a restart; -ECANCELED,
 * -EINVAL, -ENOMEM, -EFAULT, -ENODEV, -EINTR as in <linux/kvblk.h>.
 */
int kvblk_delete(struct kvblk *kv, const void *key, size_t key_len);

/**
 * kvblk_exists() - look up one block, without I/O
 * @kv: the handle
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @size: set to the length of the block, or 0 if there is no such block; may be NULL
 *
 * Context: any thread.
 * Return: 0 if the block is present; -ENOENT if not; -EINVAL, -ENOMEM, -EFAULT, -ENODEV.
 */
int kvblk_exists(struct kvblk *kv, const void *key, size_t key_len,
		 uint32_t *size);

/**
 * kvblk_submit() - run a batch of operations, all in flight at once
 * @kv: the handle
 * @ops: operations, filled in with kvblk_prep_put(), _get(), _delete()
 * @nr_ops: 1 to KVBLK_OPS_MAX
 * @results: filled in with a result for each operation, in the same order
 * @flags: &enum kvblk_submit_flags
 *
 * Allocates no memory. Sleeps until every operation has its result.
 *
 * Context: any thread.
 * Return: 0 if @results is valid, even if operations failed; otherwise an errno of the
 * whole ioctl, which has changed nothing unless the errno is -EINTR.
 */
int kvblk_submit(struct kvblk *kv, const struct kvblk_op *ops,
		 unsigned int nr_ops, struct kvblk_result *results,
		 unsigned int flags);

/**
 * kvblk_lookup() - look up many blocks, without I/O
 * @kv: the handle
 * @lookup: the request; the caller fills in all fields but @size. The call sets the out
 *	fields
 *
 * Context: any thread.
 * Return: 0, or an errno of the whole ioctl.
 */
int kvblk_lookup(struct kvblk *kv, struct kvblk_lookup *lookup);

/**
 * kvblk_lookup_prefix() - count the leading blocks of a prefix chain that are present
 * @kv: the handle
 * @keys: keys of equal length, packed one behind the other, first block first
 * @key_len: length of each key, 1 to KVBLK_KEY_MAX
 * @nr_keys: 1 to KVBLK_LOOKUP_MAX
 * @lease_ms: duration of a lease on the blocks found, up to KVBLK_LEASE_MS_MAX; 0: no
 *	lease
 * @nr_leading: set to the number of keys present before the first missing key
 * @lease: set to the lease, for kvblk_lease_release(), or to 0 if no block was leased;
 *	may be NULL
 *
 * Context: any thread.
 * Return: 0, or an errno of the whole ioctl.
 */
int kvblk_lookup_prefix(struct kvblk *kv, const void *keys, size_t key_len,
			unsigned int nr_keys, unsigned int lease_ms,
			unsigned int *nr_leading, uint64_t *lease);

/**
 * kvblk_lease_release() - end a lease
 * @kv: the handle that took the lease
 * @lease: the lease
 *
 * Context: any thread.
 * Return: 0; -ENOENT if there is no such lease or it has ended; -ENODEV if the pool is
 * being destroyed.
 */
int kvblk_lease_release(struct kvblk *kv, uint64_t lease);

/**
 * enum kvblk_prefetch_state - result of one key of kvblk_prefetch()
 * @KVBLK_PREFETCH_LOADED: the block was loaded into host memory
 * @KVBLK_PREFETCH_RESIDENT: the block was in host memory before the call
 * @KVBLK_PREFETCH_MISSING: the pool has no such block
 * @KVBLK_PREFETCH_CLIPPED: the block was not loaded: it is beyond @max_bytes, it follows
 *	the first miss with @stop_at_miss, memory ran out, or the call was canceled
 * @KVBLK_PREFETCH_EXPIRED: the deadline passed before the block was loaded
 */
enum kvblk_prefetch_state {
	KVBLK_PREFETCH_LOADED	= 1,
	KVBLK_PREFETCH_RESIDENT	= 2,
	KVBLK_PREFETCH_MISSING	= 3,
	KVBLK_PREFETCH_CLIPPED	= 4,
	KVBLK_PREFETCH_EXPIRED	= 5,
};

/**
 * kvblk_prefetch_state_name() - return the name of a state
 * @state: &enum kvblk_prefetch_state
 *
 * Context: any thread.
 * Return: a constant string like "loaded", or NULL for an unknown state.
 */
static inline const char *kvblk_prefetch_state_name(unsigned int state)
{
	static const char *const names[] = { NULL, "loaded", "resident", "missing", "clipped",
					     "expired" };

	return state <= KVBLK_PREFETCH_EXPIRED ? names[state] : NULL;
}

/**
 * struct kvblk_prefetch_options - limits of a prefetch
 * @max_bytes: most bytes to load. The first block that exceeds the limit ends the
 *	loading. Blocks already in memory do not count. 0: no limit
 * @deadline_ns: CLOCK_MONOTONIC time at which to give up; 0: no deadline
 * @cookie: name of the operations for kvblk_cancel(); 0: none
 * @lease_ms: duration of a lease on the blocks in memory at the end, up to
 *	KVBLK_LEASE_MS_MAX; 0: no lease
 * @stop_at_miss: the keys are a chain: do not load blocks behind the first miss
 * @priority: 0 to KVBLK_PRIORITY_MAX. Gets delay prefetches; a prefetch or put of higher
 *	priority resumes first
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
 * struct kvblk_prefetched - result of one key
 * @state: &enum kvblk_prefetch_state
 * @length: length of the block, or 0 if unknown
 */
struct kvblk_prefetched {
	uint32_t state;
	uint32_t length;
};

/**
 * struct kvblk_prefetch_sum - totals of a prefetch
 * @nr_leading: keys before the first block that is not in memory
 * @nr_here: keys whose blocks are in memory
 * @nr_leased: keys that are leased: the first ones of those in memory
 * @loaded_bytes: bytes that the call loaded into memory
 * @lease: the lease, for kvblk_lease_release(), or 0 if no block was leased
 */
struct kvblk_prefetch_sum {
	unsigned int nr_leading;
	unsigned int nr_here;
	unsigned int nr_leased;
	uint64_t loaded_bytes;
	uint64_t lease;
};

/**
 * kvblk_prefetch() - load blocks into host memory before they are needed
 * @kv: the handle
 * @keys: keys packed one behind the other, in the order in which they will be needed
 * @key_lens: length of each key, 1 to KVBLK_KEY_MAX
 * @nr_keys: 1 to KVBLK_LOOKUP_MAX
 * @options: options, or NULL
 * @prefetched: filled in with the result of each key, in the same order
 * @sum: filled in with totals; may be NULL
 *
 * Sleeps until the last block is loaded. Up to KVBLK_OPS_MAX blocks are in flight at
 * once. Gets of the same member take precedence. The pool may evict a prefetched block
 * later, the coldest first, unless the block is leased.
 *
 * Context: any thread.
 * Return: 0: @prefetched is valid; -EOPNOTSUPP if the pool keeps no blocks in host memory
 * (tunable dram_bytes) or the module has no prefetch; -EINVAL; -ENOMEM; an errno of the
 * whole ioctl, or -EBADF, -ENODEV, -EINTR of an operation. After an error some blocks may
 * be in memory; none is leased.
 */
int kvblk_prefetch(struct kvblk *kv, const void *keys, const uint16_t *key_lens,
		   unsigned int nr_keys, const struct kvblk_prefetch_options *options,
		   struct kvblk_prefetched *prefetched, struct kvblk_prefetch_sum *sum);

/**
 * kvblk_cancel() - cancel operations of this handle
 * @kv: the handle
 * @cookie: cookie of the operations, not 0. Calls on one block, such as kvblk_put(), have
 *	no cookie
 * @nr_found: set to the number of operations found in flight; may be NULL
 *
 * A canceled operation completes with -ECANCELED in its own batch, once no device uses
 * its memory. An operation that is about to complete does so normally.
 *
 * Context: any thread.
 * Return: 0; -ENOENT if no operation was found; -EINVAL if @cookie is 0; -ENODEV if the
 * pool is being destroyed.
 */
int kvblk_cancel(struct kvblk *kv, uint64_t cookie, unsigned int *nr_found);

/**
 * kvblk_drain() - wait for all operations in flight on this handle
 * @kv: the handle
 * @deadline_ns: CLOCK_MONOTONIC time at which to give up; 0: no deadline
 *
 * Covers canceled and late operations, too. After the drain neither their memory nor a
 * device is in use for them. An operation of a queue is in flight until
 * kvblk_queue_wait() returns its result: collect the results first.
 *
 * Context: any thread.
 * Return: 0; -ETIME if the deadline passed; -EINTR on a signal; -ENODEV if the pool is
 * being destroyed.
 */
int kvblk_drain(struct kvblk *kv, uint64_t deadline_ns);

/**
 * kvblk_journal_open() - open a feed of the pool's block changes
 * @kv: the handle
 * @nr_records: records to buffer for a slow reader: a power of two from KVBLK_JOURNAL_MIN
 *	to KVBLK_JOURNAL_MAX
 * @flags: &enum kvblk_journal_flags
 *
 * read(2) returns whole records, &struct kvblk_journal_record; its buffer must hold at
 * least 4 of them. The caller owns the descriptor and may poll it. The descriptor stays
 * valid after @kv is closed.
 *
 * Context: any thread.
 * Return: the descriptor; -EPERM without CAP_SYS_ADMIN; -EBADF if the handle is not open
 * for reading; -EINVAL for a wrong @nr_records; -EOPNOTSUPP for unknown @flags; -ENOTTY
 * if the module has no change feeds; -EMFILE if there are too many descriptors or 16
 * feeds of the pool; -ENOMEM; -ENODEV if the pool is being destroyed.
 */
int kvblk_journal_open(struct kvblk *kv, uint32_t nr_records, uint32_t flags);

/**
 * kvblk_piece_user() - describe a piece of the process's own memory
 * @piece: filled in
 * @addr: address, any alignment
 * @len: length, not 0, below 4 GiB
 */
static inline void kvblk_piece_user(struct kvblk_piece *piece, void *addr,
				    size_t len)
{
	memset(piece, 0, sizeof(*piece));
	piece->type = KVBLK_PIECE_USER;
	piece->addr = (uintptr_t)addr;
	/* a truncated length would be accepted; 0 makes the kernel reject the piece */
	piece->length = len <= UINT32_MAX ? (uint32_t)len : 0;
}

/**
 * kvblk_prep_put() - prepare an operation that stores a block
 * @op: filled in without options; set further fields afterwards
 * @key: the key; must stay valid until the batch completes, like @pieces
 * @key_len: 1 to KVBLK_KEY_MAX
 * @pieces: memory that holds the block
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
	/* saturate: a truncated count would be accepted, 0xffff is rejected */
	op->key_len = (uint16_t)(key_len < 0xffff ? key_len : 0xffff);
	op->nr_pieces = (uint16_t)(nr_pieces < 0xffff ? nr_pieces : 0xffff);
}

/**
 * kvblk_prep_get() - prepare an operation that fetches a block
 * @op: filled in without options; set further fields afterwards
 * @key: the key; must stay valid until the batch completes, like @pieces
 * @key_len: 1 to KVBLK_KEY_MAX
 * @pieces: destination
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
 * kvblk_prep_ext() - attach an extension to an operation: parent, checksums, hints
 * @op: prepared by kvblk_prep_put() or a similar call
 * @ext: cleared; set its fields afterwards. Must stay valid until the batch completes
 */
static inline void kvblk_prep_ext(struct kvblk_op *op, struct kvblk_op_ext *ext)
{
	memset(ext, 0, sizeof(*ext));
	ext->size = sizeof(*ext);
	op->ext = (uintptr_t)ext;
}

/**
 * kvblk_prep_delete() - prepare an operation that removes a block
 * @op: filled in
 * @key: the key; must stay valid until the batch completes
 * @key_len: 1 to KVBLK_KEY_MAX
 */
static inline void kvblk_prep_delete(struct kvblk_op *op, const void *key,
				     size_t key_len)
{
	kvblk_prep_put(op, key, key_len, NULL, 0);
	op->opcode = KVBLK_OP_DELETE;
}

/* Queues: asynchronous operations without a thread for each. */

struct kvblk_queue;
struct iovec;

#define KVBLK_QUEUE_DEPTH_MAX	16384

/**
 * enum kvblk_queue_flags - flags of kvblk_queue_create()
 * @KVBLK_QUEUE_CANCELABLE: kvblk_cancel() finds operations by their cookies, unless 0.
 *	Costs each operation a lock of the open node
 * @KVBLK_QUEUE_ANY_THREAD: any thread may use the queue, one at a time. An operation is
 *	canceled when the thread that submitted it exits. Costs each operation some CPU
 *	time in the kernel
 */
enum kvblk_queue_flags {
	KVBLK_QUEUE_CANCELABLE	= 1 << 0,
	KVBLK_QUEUE_ANY_THREAD	= 1 << 1,
};

/**
 * kvblk_queue_create() - create a queue
 * @kv: the handle; must stay open while the queue exists
 * @depth: most operations in flight, 1 to KVBLK_QUEUE_DEPTH_MAX
 * @flags: &enum kvblk_queue_flags
 * @queue: set to the new queue; free the queue with kvblk_queue_destroy()
 *
 * A queue is an io_uring. Without KVBLK_QUEUE_ANY_THREAD only the thread that created the
 * queue may use it: system calls of other threads fail with -EEXIST. A handle may have
 * any number of queues.
 *
 * Context: any thread.
 * Return: 0; -EINVAL; -ENOMEM; -ENOSYS or -EPERM if io_uring is missing or forbidden;
 * another errno of io_uring_setup(2).
 */
int kvblk_queue_create(struct kvblk *kv, unsigned int depth, unsigned int flags,
		       struct kvblk_queue **queue);

/**
 * kvblk_queue_destroy() - free a queue
 * @queue: the queue, or NULL
 *
 * Cancels operations in flight and drops their results. A device may still write to the
 * memory of such a get afterwards: wait for gets first.
 *
 * Context: the queue's thread.
 */
void kvblk_queue_destroy(struct kvblk_queue *queue);

/**
 * kvblk_queue_register() - register fixed buffers for kvblk_queue_add_fixed()
 * @queue: the queue, before its first operation
 * @buffers: the memory; pinned, and counted as locked, until the queue is destroyed
 * @nr: number of buffers
 *
 * Context: the queue's thread.
 * Return: 0; -EBUSY if the queue has buffers already; -ENOMEM if there is no memory or
 * RLIMIT_MEMLOCK is exceeded; -EFAULT; -EINVAL.
 */
int kvblk_queue_register(struct kvblk_queue *queue, const struct iovec *buffers,
			 unsigned int nr);

/**
 * kvblk_queue_add() - add an operation to the queue
 * @queue: the queue
 * @op: the operation; copied. The key, pieces and memory it points to must stay valid
 *	until its result is returned. The result carries its cookie
 *
 * Submits nothing: kvblk_queue_submit() and kvblk_queue_wait() submit all added
 * operations in one system call. Allocates no memory and takes no lock.
 *
 * Context: the queue's thread.
 * Return: 0; -EAGAIN if as many operations as the queue's depth are in flight.
 */
int kvblk_queue_add(struct kvblk_queue *queue, const struct kvblk_op *op);

/**
 * kvblk_queue_add_fixed() - add an operation on a fixed buffer
 * @queue: the queue
 * @op: a put or get without pieces: @pieces is an address in the buffer, @length the
 *	bytes to put or the size of the destination
 * @buffer: index of the registered buffer
 *
 * Neither pins nor copies memory.
 *
 * Context: the queue's thread.
 * Return: as kvblk_queue_add(); -EINVAL.
 */
int kvblk_queue_add_fixed(struct kvblk_queue *queue, const struct kvblk_op *op,
			  unsigned int buffer);

/**
 * kvblk_queue_submit() - submit the added operations
 * @queue: the queue
 *
 * Context: the queue's thread.
 * Return: 0, or an errno of io_uring_enter(2).
 */
int kvblk_queue_submit(struct kvblk_queue *queue);

/**
 * kvblk_queue_wait() - submit the added operations and collect results
 * @queue: the queue
 * @results: filled in, in the order of completion. @caller_tag is 0 and @layout_tag has
 *	only its low 48 bits. @value_len is set only if the operation failed
 * @max: size of @results, at least 1
 * @least: results to wait for, at most as many as are in flight; 0: do not wait
 * @timeout_ms: longest wait; -1: no limit
 *
 * Allocates no memory and takes no lock.
 *
 * Context: the queue's thread; may sleep.
 * Return: the number of results, fewer than @least after a timeout or a signal; -EINTR on
 * a signal without results; -EINVAL; an errno of io_uring_enter(2).
 */
int kvblk_queue_wait(struct kvblk_queue *queue, struct kvblk_result *results,
		     unsigned int max, unsigned int least, int timeout_ms);

/**
 * kvblk_queue_inflight() - count operations whose results were not collected yet
 * @queue: the queue
 *
 * Context: the queue's thread.
 * Return: the number of operations.
 */
unsigned int kvblk_queue_inflight(const struct kvblk_queue *queue);

/**
 * kvblk_queue_eventfd() - return a descriptor for event loops
 * @queue: the queue
 *
 * The descriptor becomes readable when there are new results. Read it, then collect the
 * results with kvblk_queue_wait() and @least 0. The queue owns the descriptor: do not
 * close it.
 *
 * Context: the queue's thread.
 * Return: the descriptor; -EMFILE, -ENFILE, -ENOMEM.
 */
int kvblk_queue_eventfd(struct kvblk_queue *queue);

/* Background batches, for runtimes that have no thread to spare. */

struct kvblk_async;

#define KVBLK_ASYNC_THREADS_MAX	64

/**
 * struct kvblk_job - a batch that a thread of the library runs
 * @ops: operations; must stay valid until the job completes, like their keys, pieces and
 *	memory
 * @nr_ops: 1 to KVBLK_OPS_MAX
 * @flags: &enum kvblk_submit_flags
 * @results: filled in with a result for each operation if @err is 0
 * @run: called in a thread of the library instead of kvblk_mem_submit(); its return value
 *	becomes @err. NULL: call kvblk_mem_submit()
 * @done: called in a thread of the library when the job completes. The caller owns the
 *	job again and may free it there. NULL: kvblk_async_take() returns the job
 * @err: return value of kvblk_mem_submit() or @run; -ECANCELED if the handle was stopped
 *	before the job began
 * @next: used by the library
 *
 * The caller allocates the structure and must not touch it between kvblk_async_submit()
 * and completion.
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
 * kvblk_async_create() - create a handle whose threads run batches
 * @kv: the handle of the pool; must stay open while @async exists
 * @nr_threads: most batches to run at once, 1 to KVBLK_ASYNC_THREADS_MAX. Further batches
 *	wait in FIFO order
 * @async: set to the new handle; free the handle with kvblk_async_destroy()
 *
 * Unlike a queue, this handle needs no CPU time of the caller's threads: pinning,
 * checksums and copies happen in its own threads. Each job costs a thread switch, about
 * 10 microseconds, so use it for large blocks or batches. Threads start on demand. A
 * child of fork(2) has none of these threads and must not use the handle.
 *
 * Context: any thread.
 * Return: 0; -EINVAL for a wrong @nr_threads; -ENOMEM; -EAGAIN if no thread can be
 * created; -EMFILE, -ENFILE.
 */
int kvblk_async_create(struct kvblk *kv, unsigned int nr_threads,
		       struct kvblk_async **async);

/**
 * kvblk_async_stop() - start no more jobs
 * @async: the handle
 *
 * Jobs that have not started complete with -ECANCELED. To shorten a running job, call
 * kvblk_cancel(). Repeat kvblk_cancel() until every job is collected, because a started
 * job may not have reached the kernel yet.
 *
 * Context: any thread.
 */
void kvblk_async_stop(struct kvblk_async *async);

/**
 * kvblk_async_destroy() - stop the threads and free the handle
 * @async: the handle, or NULL
 *
 * Stops, then waits for running jobs: see kvblk_async_stop(). Completed jobs that were
 * not collected belong to the caller again.
 *
 * Context: once, not in a thread of the handle, while no other call runs on the handle.
 */
void kvblk_async_destroy(struct kvblk_async *async);

/**
 * kvblk_async_submit() - queue a job
 * @async: the handle
 * @job: the job
 *
 * Never waits for the device. Allocates no memory except to start a thread.
 *
 * Context: any thread.
 */
void kvblk_async_submit(struct kvblk_async *async, struct kvblk_job *job);

/**
 * kvblk_async_eventfd() - return a descriptor that is readable when a job has completed
 * @async: the handle
 *
 * For poll(2) and event loops; reports only jobs without @done. The handle owns the
 * descriptor: do not read or close it.
 *
 * Context: any thread.
 * Return: the descriptor.
 */
int kvblk_async_eventfd(const struct kvblk_async *async);

/**
 * kvblk_async_take() - collect a completed job
 * @async: the handle
 *
 * Never sleeps: wait with poll(2) on kvblk_async_eventfd(), then call this until it
 * returns NULL.
 *
 * Context: any thread.
 * Return: the job, or NULL if no job has completed.
 */
struct kvblk_job *kvblk_async_take(struct kvblk_async *async);

/* Keys that no two runtimes, models or parallel layouts share. */

#define KVBLK_KEYSPACE_LEN	20	/* bytes of a key that precede the block's id */
#define KVBLK_BLOCK_ID_LEN	32	/* length of kvblk_block_id()'s result */

/**
 * struct kvblk_keyspace - common prefix of the keys of one origin
 * @digest: first half of the SHA-256 of the origin's description
 */
struct kvblk_keyspace {
	uint8_t digest[16];
};

/**
 * struct kvblk_keyspace_spec - everything the bytes of a block depend on, except its
 * tokens
 * @runtime: program that defines the block layout, and the layout's version:
 *	"vllm-offload/1"
 * @model: the model and its revision, including adapters such as LoRA
 * @tokenizer: the tokenizer and its revision; NULL: the model's own
 * @dtype: element type of the cache: "bfloat16", "fp8_e4m3"
 * @layout: order and shape of a block's elements, in the runtime's notation
 * @salt: separates users that must not share blocks, such as tenants; may be NULL
 * @block_tokens: tokens in a block, not 0
 * @tp_rank: rank among the tensor-parallel processes
 * @tp_size: number of tensor-parallel processes; 0 means 1. If all hold the same bytes
 *	(MLA), use rank 0 of 1
 * @pp_rank: pipeline stage
 * @pp_size: number of pipeline stages; 0 means 1
 * @cp_rank: rank among the context-parallel processes
 * @cp_size: number of context-parallel processes; 0 means 1
 *
 * Strings are compared byte by byte. Documentation/keys.rst describes the scheme and has
 * test vectors.
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
 * kvblk_keyspace_init() - compute the key space of an origin
 * @space: filled in
 * @spec: the origin
 *
 * Context: any thread.
 * Return: 0; -EINVAL if runtime, model, dtype, layout or block_tokens is missing, or a
 * rank is not below its size.
 */
int kvblk_keyspace_init(struct kvblk_keyspace *space,
			const struct kvblk_keyspace_spec *spec);

/**
 * kvblk_keyspace_key() - compute the key of a block
 * @space: the key space
 * @id: id of the block, from the runtime or kvblk_block_id(); must identify the block's
 *	tokens and all preceding tokens
 * @id_len: 1 to KVBLK_KEY_MAX - KVBLK_KEYSPACE_LEN
 * @key: filled in
 * @key_len: in: size of @key; out: length of the key, KVBLK_KEYSPACE_LEN + @id_len
 *
 * Context: any thread.
 * Return: 0; -EINVAL for a wrong @id_len; -EMSGSIZE if @key is too short.
 */
int kvblk_keyspace_key(const struct kvblk_keyspace *space, const void *id, size_t id_len,
		       uint8_t *key, size_t *key_len);

/**
 * kvblk_block_id() - compute a block's id from its tokens, for runtimes without block ids
 * @parent: id of the preceding block of the prompt; NULL for the first block
 * @tokens: the block's tokens
 * @nr_tokens: number of tokens
 * @extra: further input that the block depends on, such as the hash of an image; may be
 *	NULL
 * @extra_len: length of @extra, or 0
 * @id: filled in; may be @parent
 *
 * The id is the SHA-256 of @parent (32 zeroes for NULL), @nr_tokens (64 bits, little
 * endian), the tokens (32 bits each, little endian) and @extra.
 *
 * Context: any thread.
 */
void kvblk_block_id(const uint8_t *parent, const uint32_t *tokens, size_t nr_tokens,
		    const void *extra, size_t extra_len, uint8_t id[KVBLK_BLOCK_ID_LEN]);

/* Registered memory of the host, a PCI device or a GPU. */

struct kvblk_mem;

#define KVBLK_MEM_PART_UNIT	65536u		/* bytes; part_size is a multiple */
#define KVBLK_MEM_LANES_MAX	64

/**
 * enum kvblk_mem_kind - how operations reach memory
 * @KVBLK_MEM_REGISTERED: pinned once, at registration. For memory of a PCI device the
 *	drive transfers directly if the kernel allows P2P (KVBLK_RES_DIRECT)
 * @KVBLK_MEM_ADDRESSED: pinned for each operation: memory of more than one owner, or
 *	memory of a PCI device on a kernel without CONFIG_MMU_NOTIFIER
 * @KVBLK_MEM_STAGED: CUDA device memory that the kernel cannot reach: copied through
 *	pinned host memory
 */
enum kvblk_mem_kind {
	KVBLK_MEM_REGISTERED	= 1,
	KVBLK_MEM_ADDRESSED	= 2,
	KVBLK_MEM_STAGED	= 3,
};

/**
 * struct kvblk_mem_options - parameters of staging, ignored for other kinds of memory
 * @block_max: longest block, up to KVBLK_VALUE_MAX; each lane pins twice as many bytes.
 *	0: the pool's limit, at most 16 MiB
 * @part_size: bytes copied at once, a multiple of KVBLK_MEM_PART_UNIT up to
 *	KVBLK_VALUE_MAX; 0: 1 MiB
 * @lanes: calls that run at once, up to KVBLK_MEM_LANES_MAX; further calls wait. 0: 2
 *
 * Registrations of one CUDA context with one handle and equal options share their lanes.
 */
struct kvblk_mem_options {
	size_t block_max;
	size_t part_size;
	unsigned int lanes;
};

/**
 * kvblk_mem_register() - register memory for operations of a handle
 * @kv: the handle; must stay open while the memory is registered
 * @addr: the memory, any alignment: a user address or a CUDA device pointer
 * @len: bytes, 1 to 64 GiB
 * @options: options, or NULL
 * @mem: set to the new handle; free the handle with kvblk_mem_unregister()
 *
 * Host memory is pinned and counts as locked until it is unregistered and operations that
 * use it have completed. Mapped memory of a PCI device is pinned but does not count;
 * after the mapping is removed, operations fail with -ENXIO. CUDA device memory is used
 * through a mapping if the driver offers one that the kernel can pin, otherwise it is
 * staged. The library queries CUDA only if the process has loaded CUDA. The memory must
 * stay allocated until it is unregistered.
 *
 * Context: any thread.
 * Return:
 * * 0
 * * -EINVAL
 * * -ENOMEM: no memory, or RLIMIT_MEMLOCK is exceeded
 * * -EFAULT: the memory cannot be pinned for writing, or ends outside its device
 * * -ENOSPC: the handle has 65536 registered buffers
 * * -ENOSYS: the CUDA driver is too old
 * * -ENODEV: the pool is being destroyed, or CUDA has lost the device
 * * -EIO: CUDA failed
 */
int kvblk_mem_register(struct kvblk *kv, void *addr, size_t len,
		       const struct kvblk_mem_options *options, struct kvblk_mem **mem);

/**
 * kvblk_mem_alloc() - allocate and register memory of the host, a PCI device or a GPU
 * @kv: the handle; must stay open while the memory exists
 * @from: "host"; "0000:03:00.0" or "03:00.0": a PCI device with p2pmem/allocate in sysfs;
 *	a path (any string with a '/') to map, such as a driver's node that maps device
 *	memory; "cuda:0": a CUDA device by its ordinal
 * @len: bytes, 1 to 64 GiB
 * @options: options, or NULL
 * @mem: set to the new handle; kvblk_mem_unregister() frees the handle and the memory
 *
 * The content of the memory is undefined. Only "cuda:" loads CUDA.
 *
 * Context: any thread.
 * Return: as kvblk_mem_register(), and
 * * -ENOENT: no such device or file, or the device offers no memory
 * * -EACCES
 * * -ELIBACC: libcuda.so.1 was not found
 * * -ENODEV: no such CUDA device
 * * -ENOMEM: the device is out of memory
 * * another errno of open(2) or mmap(2)
 */
int kvblk_mem_alloc(struct kvblk *kv, const char *from, size_t len,
		    const struct kvblk_mem_options *options, struct kvblk_mem **mem);

/**
 * kvblk_mem_unregister() - unregister memory and free the handle
 * @mem: the handle, or NULL
 *
 * No call may be running on @mem. No operation may be using pieces of @mem, unless the
 * memory is KVBLK_MEM_REGISTERED and was not allocated by the library. Only the process
 * that made @mem may use or free it: a child of fork(2) would release the memory for its
 * parent, too.
 *
 * Context: any thread, once.
 */
void kvblk_mem_unregister(struct kvblk_mem *mem);

/**
 * kvblk_mem_addr() - return the address of the memory
 * @mem: the handle
 *
 * Context: any thread.
 * Return: the address, or the device pointer.
 */
void *kvblk_mem_addr(const struct kvblk_mem *mem);

/**
 * kvblk_mem_kind() - return how operations reach the memory
 * @mem: the handle
 *
 * Context: any thread.
 * Return: &enum kvblk_mem_kind.
 */
unsigned int kvblk_mem_kind(const struct kvblk_mem *mem);

/**
 * kvblk_mem_piece() - describe a piece of the memory for batches and queues
 * @mem: the handle
 * @offset: offset in the memory
 * @len: bytes, not 0
 * @piece: filled in, for operations of the same struct kvblk
 *
 * A piece of staged memory works only with kvblk_mem_submit() and struct kvblk_async, or
 * else the operation fails with -EOPNOTSUPP. Do not extend the piece beyond the memory.
 *
 * Context: any thread.
 * Return: 0; -EFAULT if the range is not within the memory.
 */
int kvblk_mem_piece(const struct kvblk_mem *mem, size_t offset, size_t len,
		    struct kvblk_piece *piece);

/**
 * kvblk_mem_submit() - run a batch on memory of any kind
 * @kv: the handle
 * @ops: as for kvblk_submit()
 * @nr_ops: 1 to the pool's limit
 * @results: one for each operation, in the order of @ops
 * @flags: &enum kvblk_submit_flags
 *
 * Equals kvblk_submit() unless pieces are staged. Allocates no memory.
 *
 * Staged operations are copied through host memory in loads of up to block_max bytes. The
 * device copies one load while the kernel works on the next. For such operations:
 * - KVBLK_RES_BOUNCED is set.
 * - A get that fails has changed nothing, unless CUDA failed.
 * - A chain is admitted load by load. If a put is declined, later puts of the chain are
 *   declined, too.
 * - If kvblk_cancel() finds an operation in the kernel, later operations with its cookie
 *   are canceled, too. It may find none while the device copies.
 *
 * Context: any thread.
 * Return: as kvblk_submit() if no memory is staged; otherwise 0 with all errors in
 * @results, including
 * * -EFBIG: longer than block_max
 * * -EXDEV: pieces of two CUDA contexts, of staged and other memory, or registered with
 *   different options
 * * -EIO, or another errno of CUDA, also for later operations
 * * -ENODEV: CUDA has lost the device
 */
int kvblk_mem_submit(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		     struct kvblk_result *results, unsigned int flags);

/**
 * kvblk_mem_put() - store one block from registered memory of any kind
 * @mem: the handle
 * @offset: offset of the block's bytes, which must not change until the call returns
 * @len: 1 to KVBLK_VALUE_MAX
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @options: options, or NULL
 * @flags: set to &enum kvblk_result_flags; may be NULL
 *
 * Allocates no memory. Sleeps until the put completes.
 *
 * Context: any thread.
 * Return: as kvblk_put(); -EFAULT if the range is not within the memory. For staged
 * memory also -EFBIG if the block is longer than @block_max, -EIO if CUDA failed, -ENODEV
 * if CUDA has lost the device.
 */
int kvblk_mem_put(struct kvblk_mem *mem, size_t offset, size_t len, const void *key,
		  size_t key_len, const struct kvblk_put_options *options,
		  uint32_t *flags);

/**
 * kvblk_mem_get() - fetch one block into registered memory of any kind
 * @mem: the handle
 * @offset: offset of the destination
 * @len: in: size of the destination; out: length of the block if the call returns 0 or
 *	-EMSGSIZE
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @flags: set to &enum kvblk_result_flags; may be NULL
 *
 * Allocates no memory. Sleeps until the block is in the destination. If the call fails,
 * the destination holds zeroes or is unchanged; if CUDA failed, its content is undefined.
 * A staged block longer than one part is fetched in parts: see kvblk_mem_register(3).
 *
 * Context: any thread.
 * Return: as kvblk_get(); -EFAULT if the range is not within the memory. For staged
 * memory also -EFBIG if the block is longer than @block_max, -EIO if CUDA failed, -ENODEV
 * if CUDA has lost the device.
 */
int kvblk_mem_get(struct kvblk_mem *mem, size_t offset, size_t *len, const void *key,
		  size_t key_len, uint32_t *flags);

/**
 * kvblk_mem_flush() - make the data of completed gets visible to the GPU
 * @mem: the handle
 *
 * Call this after a batch or queue of gets by pieces, before the GPU uses the data: GPU
 * work that starts after the call sees the data. Does nothing for host memory. Not needed
 * after kvblk_mem_get().
 *
 * Context: any thread.
 * Return: 0; -EIO if CUDA failed; -ENODEV if CUDA has lost the device.
 */
int kvblk_mem_flush(const struct kvblk_mem *mem);

/* Pools and members. */

struct kvblk_admin;

/**
 * kvblk_admin_open() - connect to the module's administration
 * @handle: set to the new handle; free the handle with kvblk_admin_close()
 *
 * Only one thread at a time may use a handle. Handles are independent.
 *
 * Context: any thread.
 * Return: 0; -ENOENT if the module is not loaded or this is not the initial network
 * namespace; -ENOMEM; -EIO and others if no socket can be opened.
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
 * kvblk_admin_message() - return the kernel's message on the last call of the handle
 * @admin: the handle
 *
 * After an error the message says what to change; after success it is a warning.
 *
 * Context: one thread at a time.
 * Return: the message, or "". The handle owns the string, which is valid until the next
 * call on the handle.
 */
const char *kvblk_admin_message(const struct kvblk_admin *admin);

/**
 * kvblk_admin_request() - return the number of a request in progress
 * @admin: the handle
 *
 * The event KVBLK_EVENT_REQUEST_DONE reports the completion and carries the same number
 * in KVBLK_A_EVENT_REQUEST.
 *
 * Context: one thread at a time.
 * Return: the number of the last call if it returned -EINPROGRESS and kvblk_admin_wait()
 * has not reported its completion; otherwise 0.
 */
uint64_t kvblk_admin_request(const struct kvblk_admin *admin);

/**
 * kvblk_admin_wait() - wait for a request in progress
 * @admin: the handle, whose last call returned -EINPROGRESS
 * @timeout_ms: longest wait; negative: no limit
 *
 * Context: one thread at a time; sleeps.
 * Return: the result of the request: 0, or an errno of that call, explained in the kernel
 * log. Otherwise
 * * -ETIMEDOUT: the request is still in progress, wait again
 * * -EINVAL: no request is in progress
 * * -EINTR: a signal arrived, wait again
 * * -ENOBUFS: events were lost, perhaps this one: query the state instead
 * * -ENOMEM
 */
int kvblk_admin_wait(struct kvblk_admin *admin, int timeout_ms);

/**
 * struct kvblk_member_spec - a device to add as a member
 * @path: path of the block device, up to KVBLK_PATH_LEN_MAX printable ASCII characters
 * @segment_size: bytes in a segment, a power of two from 8 MiB to 1 GiB; 0: chosen by the
 *	size of the device
 * @name: name for a new member, spelled like a pool's name and unique in the pool;
 *	permanent. NULL: derived from the last component of @path or from the kernel's
 *	device name. A former member that returns keeps its name
 */
struct kvblk_member_spec {
	const char *path;
	uint32_t segment_size;
	const char *name;
};

/**
 * struct kvblk_pool_spec - parameters of kvblk_pool_create() and kvblk_pool_import()
 * @name: 1 to KVBLK_NAME_LEN_MAX letters, digits, '.', '-', '_', starting with a letter
 *	or digit
 * @flags: &enum kvblk_pool_flag
 * @add_flags: &enum kvblk_add_flag, for all members
 * @index_slots: entries of the index, 64 to 2^36; 0: the previous number, or by capacity
 *	for a new pool
 * @members: the devices
 * @nr_members: number of devices, 1 to 64
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
 * kvblk_pool_create() - create a pool
 * @admin: the handle
 * @spec: parameters of the pool
 *
 * Adds all members, empty, or none. When the call returns 0, the pool accepts puts.
 *
 * Context: one thread at a time.
 * Return: 0, or an errno that kvblk_admin_message() explains:
 * * -EEXIST: the name is in use
 * * -EBUSY: a device is in use
 * * -ENOTEMPTY: a device is a member of a pool or holds other data (*)
 * * -EUCLEAN: a device is a damaged member (*)
 * * -EPROTONOSUPPORT: a device is a member of another version of kvblk (*)
 * * -EPERM: no CAP_SYS_ADMIN
 * * -EINPROGRESS: a device is slow and the request continues; wait with
 *   kvblk_admin_wait()
 * * -ENOSPC: too many segments
 * * -EIO: a device cannot be read or written
 * * -EINVAL, -ENOMEM
 * * -EMSGSIZE: the request exceeds a socket's buffer
 * * an errno of opening a device
 *
 * (*): KVBLK_ADD_FLAG_FORMAT overwrites the device.
 */
int kvblk_pool_create(struct kvblk_admin *admin,
		      const struct kvblk_pool_spec *spec);

/**
 * kvblk_pool_import() - assemble an existing pool from its members
 * @admin: the handle
 * @spec: name and member devices, as found by kvblk_scan(). @flags, @segment_size and
 *	KVBLK_ADD_FLAG_FORMAT are not allowed
 *
 * All members must be present and up to date, or else the import fails; with
 * KVBLK_ADD_FLAG_DEGRADED it skips the others. KVBLK_ADD_FLAG_RENAME renames the pool to
 * the name in @spec. The members get the identity of this host, from /var/lib/kvblk/node
 * or /etc/machine-id. The import formats nothing. When the call returns 0, the pool
 * accepts puts. The blocks of a member are back when its state is KVBLK_MEMBER_STATUS_UP.
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_create(), and
 * * -ENODEV: a member is missing
 * * -ESTALE: a member is out of date, or contradicts the others
 * * -ENODATA: a device is not a member
 * * -EXDEV: a device is a member of another pool
 * * -EEXIST: the name or a member is in use, or two devices are the same member
 * * -EBUSY: a device is in use otherwise
 * * -EUCLEAN: a member is damaged
 * * -EPROTONOSUPPORT: a member has another version
 * * -EREMOTE: another node owns a member (KVBLK_ADD_FLAG_FORCE takes it)
 * * -ENOSPC: fewer index slots than the pool had (KVBLK_ADD_FLAG_FORCE drops the blocks
 *   that do not fit)
 */
int kvblk_pool_import(struct kvblk_admin *admin,
		      const struct kvblk_pool_spec *spec);

/**
 * struct kvblk_found - a member found on a block device
 * @next: next entry of the list, or NULL
 * @path: path of the device
 * @pool: name of its pool
 * @owner: node that owns the member, or owned it last
 * @pool_uuid: identity of the pool
 * @uuid: identity of the member
 * @epoch: epoch of the pool, as recorded on this member
 * @roster_seq: sequence number of @members; a higher number is newer
 * @clean: the pool was stopped cleanly
 * @nr_members: number of members of the pool, as recorded on this member
 * @members: identity and name of each member of the pool
 * @other_version: written by another version of kvblk; only @path is valid
 * @silent: the device did not respond; only @path is valid
 * @former: the device is no longer a member: its first superblock was overwritten by
 *	other data
 * @data_start: byte offset of the first segment
 * @data_end: byte offset of the end of the last segment
 * @places: last known place of each entry of @members; "" if unknown
 *
 * Only the library allocates this structure, which may grow at its end. The fields report
 * what is on media; the kernel decides what is valid.
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
 * @paths: devices to read; NULL: all devices that no other device is built on
 * @nr_paths: number of devices
 * @list: set to a list, or NULL if no member was found; free the list with
 *	kvblk_scan_free()
 *
 * Reads the first 128 KiB of up to 64 devices at once. Needs no kernel module. Each group
 * of devices gets 5 seconds; without io_uring the wait is as long as the driver's. A
 * device that does not respond is listed as silent and keeps 128 KiB of this process's
 * memory, because its read may still complete. The timeout does not cover open(2), which
 * some drivers delay: SCSI, while the host adapter recovers.
 *
 * Context: any thread; sleeps.
 * Return: 0; -EACCES if no device may be read; -EMFILE, -ENFILE if there are no
 * descriptors for 64 devices; -ENOMEM; an errno of a device in @paths, -ETIMEDOUT if it
 * does not respond.
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
 * kvblk_pool_destroy() - stop a pool cleanly
 * @admin: the handle
 * @name: the pool
 * @force: stop the pool even if its nodes are open
 *
 * The blocks stay on the members; kvblk_pool_import() restores them. If the clean stop
 * could not be written to a member, kvblk_admin_message() warns, and the next import
 * recovers as after a crash.
 *
 * Context: one thread at a time.
 * Return: 0; -ENOENT if there is no such pool; -EBUSY if its nodes are open; -EALREADY if
 * it is being destroyed; -EPERM without CAP_SYS_ADMIN; -EINPROGRESS, -EINVAL, -ENOMEM,
 * -EMSGSIZE as for kvblk_pool_create().
 */
int kvblk_pool_destroy(struct kvblk_admin *admin, const char *name, bool force);

/**
 * kvblk_pool_clear() - reset the error counters of a pool
 * @admin: the handle
 * @name: the pool
 *
 * Resets the counters of struct kvblk_pool_state. The counters of kvblk_stats_get()
 * continue.
 *
 * Context: one thread at a time.
 * Return: 0; -ENOENT if there is no such pool; -EPERM without CAP_SYS_ADMIN; -ENOMEM,
 * -EMSGSIZE; -EOPNOTSUPP if the module is too old.
 */
int kvblk_pool_clear(struct kvblk_admin *admin, const char *name);

/**
 * struct kvblk_pool_state - state of a pool
 * @next: next entry of the list, or NULL
 * @name: name of the pool
 * @uuid: identity of the pool
 * @flags: &enum kvblk_pool_flag
 * @birth: time of creation, seconds since 1970
 * @epoch: grows when the pool is assembled, and when a member is removed or dies
 * @nr_members: number of members in any state
 * @capacity: bytes in the segments of all members that are up or restoring
 * @free: bytes in free segments of members that are up
 * @nr_segments: segments of all members that are up or restoring
 * @free_segments: free segments of members that are up
 * @index_slots: entries of the index
 * @index_used: entries in use, including dropped blocks that the sweeper has not cleared
 *	yet
 * @index_evicted: blocks evicted because the index was full
 * @index_bytes: memory of the index
 * @leased_bytes: bytes of leased blocks
 * @value_max: length of the longest block that a put can store now; 0: no member is up
 * @devnode: path of the default tenant's node, below /dev
 * @index_lacks: blocks that an import found but the index had no slot for. They miss, and
 *	deletes fail with -EIO, until the pool is imported with more slots
 * @has_errors: the module reports the next four fields
 * @checksum_failures: checksum failures since the pool was assembled or cleared
 * @read_errors: failed reads since the pool was assembled or cleared
 * @write_errors: failed writes since the pool was assembled or cleared
 * @put_nospace: puts that failed with -ENOSPC since the pool was assembled or cleared
 * @cleared: time of the last kvblk_pool_clear(), seconds since 1970; 0: never
 * @unsure: members that may still hold blocks deleted now; deletes fail unless 0
 *
 * Only the library allocates this structure, which may grow at its end.
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
 * kvblk_pool_get() - query the state of one or all pools
 * @admin: the handle
 * @name: the pool; NULL for all pools
 * @list: set to a list, or NULL if there is no pool; free the list with kvblk_pool_free()
 *
 * Context: one thread at a time.
 * Return: 0; -ENOENT if there is no such pool; -EINVAL if @name is not a valid name;
 * -EINTR if the state changed during ten attempts to read it; -ENOMEM; -EMSGSIZE;
 * -EBADMSG; -EIO if the netlink socket failed.
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
 * @pool: name of the pool
 * @spec: the device
 * @add_flags: &enum kvblk_add_flag
 *
 * The new member is empty, unless it is a member that was missing while the pool was up:
 * then it keeps the blocks that were neither put nor deleted in the meantime.
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_create(), and
 * * -ESTALE: the device is an outdated member of this pool (KVBLK_ADD_FLAG_FORMAT adds it
 *   as a new member)
 * * -EREMOTE: another node owns the member (KVBLK_ADD_FLAG_FORCE takes it)
 * * -EEXIST: the member is active already
 * * -ENOENT: no such pool or device
 * * -ENOSPC: also if the pool has 64 members, missing ones included
 * * -ENODEV: the pool is being destroyed
 */
int kvblk_member_add(struct kvblk_admin *admin, const char *pool,
		     const struct kvblk_member_spec *spec, uint32_t add_flags);

/**
 * kvblk_member_remove() - remove a member
 * @admin: the handle
 * @pool: name of the pool
 * @member: name of the member
 *
 * Gets of its blocks miss at once. The event KVBLK_EVENT_MEMBER_DOWN reports when the
 * device is free. If the removal could not be written to another member,
 * kvblk_admin_message() warns, and deletes fail until it is: see @unsure of &struct
 * kvblk_pool_state.
 *
 * Context: one thread at a time.
 * Return: 0; -ENOENT if there is no such pool or member; -EALREADY if it is being
 * removed; -ENODEV if the pool is being destroyed; -EPERM without CAP_SYS_ADMIN;
 * -EINPROGRESS, -EINVAL, -ENOMEM, -EMSGSIZE as for kvblk_pool_create().
 */
int kvblk_member_remove(struct kvblk_admin *admin, const char *pool,
			const char *member);

/**
 * kvblk_member_remove_uuid() - remove a member by its identity
 * @admin: the handle
 * @pool: name of the pool
 * @uuid: identity of the member
 *
 * Like kvblk_member_remove(), but safe for a missing member, whose name another member
 * may have taken.
 *
 * Context: one thread at a time.
 * Return: as kvblk_member_remove().
 */
int kvblk_member_remove_uuid(struct kvblk_admin *admin, const char *pool,
			     const uint8_t uuid[16]);

/**
 * struct kvblk_member_state - state of a member
 * @next: next entry of the list, or NULL
 * @pool: name of the pool
 * @name: name of the member in the pool, permanent
 * @path: path of the device, as it was added
 * @uuid: identity of the member
 * @slot: number of the member in the pool
 * @state: &enum kvblk_member_status
 * @suspect: no I/O has completed for too long
 * @failing: I/O fails; see @read_only
 * @size: bytes of the device
 * @segment_size: bytes in a segment
 * @nr_segments: number of segments
 * @free_segments: segments that hold no blocks
 * @ready_segments: segments opened on media that wait for records
 * @open_segments: segments that take records or wait to be sealed
 * @sealed_segments: segments that are full and sealed
 * @record_align: alignment of records, bytes
 * @inflight: I/Os submitted and not completed
 * @incarnation: random number drawn when the member was formatted
 * @restored: blocks restored when the member came up
 * @formatted: the member was new and empty when it came up
 * @read_only: @failing, but only writes fail: gets of its blocks succeed
 * @place: current or last place of the device: "NQN nsid N", or its serial number; "" if
 *	unknown
 * @device: kernel name of the device; "" if the device was removed
 * @unread_segments: segments that could not be read when the member came up; gets of
 *	their blocks miss
 *
 * A KVBLK_MEMBER_STATUS_MISSING member has only @pool, @name, @uuid, @state and @place.
 * The pair @pool, @name is unique in a list. Only the library allocates this structure,
 * which may grow at its end.
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
 * kvblk_member_get() - query the state of the members of one or all pools
 * @admin: the handle
 * @pool: name of the pool; NULL for all pools
 * @list: set to a list, or NULL if there is no member; free the list with
 *	kvblk_member_free()
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_get().
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

#define KVBLK_STATS_COUNTERS	128	/* most counters */
#define KVBLK_STATS_GAUGES	64	/* most gauges */
#define KVBLK_STATS_LATENCIES	8	/* most histograms */
#define KVBLK_STATS_BUCKETS	64	/* most buckets of a histogram */

/**
 * struct kvblk_stats - counters of a pool since its assembly, or of a member since it
 * came up
 * @next: next entry of the list, or NULL
 * @pool: name of the pool
 * @member: name of the member; "" for statistics of the pool
 * @counter: indexed by KVBLK_A_COUNTER_PUTS etc.; counters never decrease
 * @has_counter: valid entries of @counter: a member has fewer than a pool
 * @gauge: current values, indexed by KVBLK_A_GAUGE_INFLIGHT etc.
 * @has_gauge: valid entries of @gauge
 * @latency: indexed by KVBLK_A_LATENCY_PUT etc.; bucket i counts operations of 2^i to
 *	2^(i+1) - 1 ns, the last bucket also longer ones
 * @nr_buckets: buckets of each histogram; 0 if the histogram is missing
 * @size_max: upper limit, in bytes, of this size class; the limit of the next smaller
 *	class is the lower one. 0 if this is not a size class
 * @latency_ns: total ns of all puts or gets of this size class
 * @seq: kvblk_stats_read(): sequence number of the pool's messages, from 1; a gap means
 *	lost messages
 * @time_ns: kvblk_stats_read(): time of the sample, nanoseconds since 1970; equal in all
 *	messages of one sample of a pool
 *
 * Only the library allocates this structure, which may grow at its end.
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
 * kvblk_stats_get() - query the statistics of one or all pools
 * @admin: the handle
 * @pool: name of the pool; NULL for all pools
 * @list: set to a list, or NULL if there is no pool; free the list with
 *	kvblk_stats_free()
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_get().
 */
int kvblk_stats_get(struct kvblk_admin *admin, const char *pool,
		    struct kvblk_stats **list);

/**
 * kvblk_stats_list() - query the statistics of pools, members or size classes
 * @admin: the handle
 * @scope: pools, as kvblk_stats_get(); their members; or the latencies of puts and gets
 *	by size class
 * @pool: name of the pool; NULL for all pools
 * @list: set to a list, or NULL if it is empty; free the list with kvblk_stats_free()
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_get(); -EINVAL or -ERANGE also if the module does not know
 * @scope.
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
 * kvblk_stats_open() - subscribe to the statistics of all pools
 * @handle: set to the new handle; free the handle with kvblk_stats_close()
 *
 * Each pool whose tunable stats_seconds is not 0 sends its statistics at that interval:
 * of the pool, of each member and of each size class. Only one thread at a time may use a
 * handle.
 *
 * Context: any thread.
 * Return: 0; -ENOENT if the module is not loaded or has no such group, or this is not the
 * initial network namespace; -ENOMEM; -EIO and others if no socket can be opened.
 */
int kvblk_stats_open(struct kvblk_stats_feed **handle);

/**
 * kvblk_stats_close() - unsubscribe
 * @feed: the handle, or NULL
 *
 * Context: one thread at a time, once.
 */
void kvblk_stats_close(struct kvblk_stats_feed *feed);

/**
 * kvblk_stats_fd() - return a descriptor that is readable when there are statistics
 * @feed: the handle
 *
 * For poll(2) and event loops. The handle owns the descriptor: do not read or close it.
 *
 * Context: any thread.
 * Return: the descriptor.
 */
int kvblk_stats_fd(const struct kvblk_stats_feed *feed);

/**
 * kvblk_stats_read() - read the next message
 * @feed: the handle
 * @stats: set to the message, which the handle owns and which is valid until the next
 *	call
 *
 * Never sleeps: wait with poll(2) on kvblk_stats_fd().
 *
 * Context: one thread at a time.
 * Return: 0; -EAGAIN if there is no message now; -ENOBUFS if messages were lost because
 * the reader is too slow: continue to read; -ENOMEM.
 */
int kvblk_stats_read(struct kvblk_stats_feed *feed, const struct kvblk_stats **stats);

/**
 * struct kvblk_route_state - path between a member and the memory of a PCI device
 * @next: next entry of the list, or NULL
 * @pool: name of the pool
 * @member: name of the member
 * @device: PCI address of a device that has published its memory
 * @distance: P2P distance between the two; -1: there is no path, or the member's PCI
 *	device is unknown
 * @state: &enum kvblk_route_status
 * @why: reason why transfers bounce, such as "queue"; "" if they do not
 *
 * Only the library allocates this structure, which may grow at its end.
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
 * kvblk_route_get() - query how a member reaches the memory of PCI devices
 * @admin: the handle
 * @pool: name of the pool
 * @member: name of the member
 * @list: set to a list, or NULL if it is empty; free the list with kvblk_route_free()
 *
 * Attempts no transfer. Lists each PCI device whose driver has set up P2PDMA. The list is
 * empty without CONFIG_PCI_P2PDMA.
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_get(); -ENOENT also if there is no such member, or it is dead or
 * being removed.
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
 * kvblk_counter_name() - return the name of a counter
 * @counter: KVBLK_A_COUNTER_PUTS etc.
 *
 * Context: any thread.
 * Return: a constant string like "put_bytes", or NULL for an unknown counter.
 */
const char *kvblk_counter_name(unsigned int counter);

/**
 * kvblk_gauge_name() - return the name of a gauge
 * @gauge: KVBLK_A_GAUGE_INFLIGHT etc.
 *
 * Context: any thread.
 * Return: a constant string like "segments_free", or NULL for an unknown gauge.
 */
const char *kvblk_gauge_name(unsigned int gauge);

/**
 * kvblk_latency_name() - return the name of a latency histogram
 * @latency: KVBLK_A_LATENCY_PUT etc.
 *
 * Context: any thread.
 * Return: a constant string like "put", or NULL for an unknown histogram.
 */
const char *kvblk_latency_name(unsigned int latency);

/**
 * kvblk_member_status_name() - return the name of a member's state
 * @state: &enum kvblk_member_status
 *
 * Context: any thread.
 * Return: a constant string like "up"; "unknown" for an unknown state.
 */
const char *kvblk_member_status_name(unsigned int state);

/**
 * kvblk_route_status_name() - return the name of a route's state
 * @state: &enum kvblk_route_status
 *
 * Context: any thread.
 * Return: a constant string like "direct"; NULL for an unknown state, because "unknown"
 * is a valid one.
 */
const char *kvblk_route_status_name(unsigned int state);

/* Events. */

struct kvblk_events;

#define KVBLK_NOTICE_NUMBERS	32	/* most numbers of an event */

/**
 * struct kvblk_notice - an event
 * @type: &enum kvblk_event
 * @pool: name of the pool
 * @member: name of the member; "" if the event is not about a single member
 * @time_ns: time of the event, nanoseconds since 1970
 * @has: valid entries of @number, as bits KVBLK_A_EVENT_BLOCKS etc.
 * @number: indexed by KVBLK_A_EVENT_BLOCKS etc.; 0 if the event does not carry the number
 * @uuid: identity of the member; zeroes if unknown
 * @place: current or last place of the member's device; "" if unknown
 *
 * Only the library allocates this structure, which may grow at its end.
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
 * kvblk_events_open() - subscribe to the events of all pools
 * @handle: set to the new handle; free the handle with kvblk_events_close()
 *
 * The handle receives events from this call on. Only one thread at a time may use a
 * handle.
 *
 * Context: any thread.
 * Return: 0; -ENOENT if the module is not loaded or this is not the initial network
 * namespace; -ENOMEM; -EIO and others if no socket can be opened.
 */
int kvblk_events_open(struct kvblk_events **handle);

/**
 * kvblk_events_close() - unsubscribe
 * @events: the handle, or NULL
 *
 * Context: one thread at a time, once.
 */
void kvblk_events_close(struct kvblk_events *events);

/**
 * kvblk_events_fd() - return a descriptor that is readable when there is an event
 * @events: the handle
 *
 * For poll(2) and event loops. The handle owns the descriptor: do not read or close it.
 *
 * Context: any thread.
 * Return: the descriptor.
 */
int kvblk_events_fd(const struct kvblk_events *events);

/**
 * kvblk_events_read() - read the next event
 * @events: the handle
 * @notice: set to the event, which the handle owns and which is valid until the next call
 *
 * Never sleeps: wait with poll(2) on kvblk_events_fd().
 *
 * Context: one thread at a time.
 * Return: 0; -EAGAIN if there is no event now; -ENOBUFS if events were lost because the
 * reader is too slow: query the state, then continue to read; -ENOMEM.
 */
int kvblk_events_read(struct kvblk_events *events,
		      const struct kvblk_notice **notice);

/**
 * kvblk_event_name() - return the name of an event type
 * @type: type of the event
 *
 * Context: any thread.
 * Return: a constant string like "member-dead"; "unknown" for an unknown type.
 */
const char *kvblk_event_name(unsigned int type);

/**
 * kvblk_event_number_name() - return the name of a number that events carry
 * @number: KVBLK_A_EVENT_BLOCKS etc.
 *
 * Context: any thread.
 * Return: a constant string like "blocks", or NULL for an unknown number.
 */
const char *kvblk_event_number_name(unsigned int number);

/**
 * kvblk_event_text() - describe an event in a sentence
 * @notice: the event
 * @buf: filled in, NUL-terminated
 * @len: size of @buf; 256 is enough
 *
 * Context: any thread.
 */
void kvblk_event_text(const struct kvblk_notice *notice, char *buf, size_t len);

#ifdef __cplusplus
}
#endif

#endif
