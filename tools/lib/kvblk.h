/* SPDX-License-Identifier: MIT */
/*
 * libkvblk: store and fetch KV blocks in kvblk pools.
 *
 * There are three kinds of handle:
 * - struct kvblk: an open device node, the data path of a runtime. The caller needs no
 *   privilege but membership in the group "kvblk".
 * - struct kvblk_mem: registered memory of the host, a PCI device or a GPU.
 * - struct kvblk_queue: operations in flight, without a thread of the caller for each.
 * Memory and queues belong to a struct kvblk: free them before it.
 *
 * An operation is described by a kvblk_prep_*() call and its pieces of memory by
 * kvblk_prep_piece(). kvblk_submit() runs operations and waits; a queue runs operations
 * while the caller does other work. Both take any memory, chains and deadlines.
 *
 * Calls return 0 or a negative errno unless their description says otherwise. A call that
 * fails has changed nothing, except as described. The library keeps no pointer of the
 * caller after a call, except as described. All lengths are bytes. All deadlines are
 * CLOCK_MONOTONIC times in nanoseconds; 0: no deadline.
 *
 * Each structure that a caller allocates begins with its size, and may grow at its end:
 * KVBLK_INIT() clears a structure and sets its size. The library neither reads nor writes
 * behind that size. It refuses options that it does not know (-E2BIG), if they are set.
 *
 * <linux/kvblk.h> defines operations and results, and the meaning of each errno of an
 * operation. kvblk_keys.h makes keys, kvblk_admin.h manages pools.
 */
#ifndef LIBKVBLK_KVBLK_H
#define LIBKVBLK_KVBLK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <linux/kvblk.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVBLK_VERSION_MAJOR	1
#define KVBLK_VERSION_MINOR	1

/* The library exports the calls of this kind, too, for languages that cannot inline C. */
#ifndef KVBLK_INLINE
#define KVBLK_INLINE static inline
#define KVBLK_EXT_SIZE	sizeof(struct kvblk_op_ext)
#endif

/* Clear the structure at @x and set its size. */
#define KVBLK_INIT(x) \
	((void)(memset((x), 0, sizeof(*(x))), (x)->size = (uint32_t)sizeof(*(x))))

/**
 * kvblk_version() - return the version of the library
 *
 * Context: any thread.
 * Return: a constant string like "1.1".
 */
const char *kvblk_version(void);

/* Results. */

/**
 * enum kvblk_action - what a runtime does about the result of an operation
 * @KVBLK_DO_NOTHING: the operation did its work, or the block is stored already
 * @KVBLK_DO_RETRY: submit the operation again, later
 * @KVBLK_DO_SKIP: continue without: the pool does not take the block now, or another
 *	caller stores it
 * @KVBLK_DO_RECOMPUTE: get: a miss, compute the block; other operations: as
 *	KVBLK_DO_SKIP
 * @KVBLK_DO_REPORT: an error of the program or its environment, which remains until a
 *	person changes something: log the error, continue as for KVBLK_DO_RECOMPUTE
 *
 * Only KVBLK_DO_NOTHING means that a get has delivered its block.
 */
enum kvblk_action {
	KVBLK_DO_NOTHING	= 0,
	KVBLK_DO_RETRY		= 1,
	KVBLK_DO_SKIP		= 2,
	KVBLK_DO_RECOMPUTE	= 3,
	KVBLK_DO_REPORT		= 4,
};

/**
 * kvblk_result_text() - describe the result of an operation
 * @res: &struct kvblk_result.res or &struct kvblk_completion.res
 *
 * For results of operations, and what kvblk_put(), kvblk_get(), kvblk_delete() and
 * kvblk_exists() return. Use strerror(3) for other calls: there the same errno has another
 * meaning.
 *
 * Context: any thread.
 * Return: a constant string like "no such block".
 */
const char *kvblk_result_text(int res);

/**
 * kvblk_result_action() - return what a runtime does about the result of an operation
 * @res: as for kvblk_result_text()
 *
 * Context: any thread.
 * Return: the action; KVBLK_DO_REPORT for an unknown errno.
 */
enum kvblk_action kvblk_result_action(int res);

/* Pools. */

struct kvblk;

/**
 * enum kvblk_open_flags - flags of kvblk_open()
 * @KVBLK_OPEN_RDONLY: open for gets, prefetches, lookups and leases only; puts and
 *	deletes fail with -EBADF
 */
enum kvblk_open_flags {
	KVBLK_OPEN_RDONLY	= 1u << 0,
};

/**
 * kvblk_open() - open a tenant's device node
 * @pool: name of a pool, which opens /dev/kvblk/POOL/default, or path of a node (any
 *	string that contains a '/')
 * @flags: &enum kvblk_open_flags
 * @handle: set to the new handle; free the handle with kvblk_close()
 *
 * Many threads may use one handle at the same time. Leases belong to the handle.
 *
 * Context: any thread.
 * Return: 0; -ENODEV if the pool does not exist or is being destroyed; -EACCES if the
 * caller is not in the node's group; -ENOTTY if the path is not a kvblk node; -EINVAL,
 * -ENAMETOOLONG, -ENOMEM; another errno of open(2).
 */
int kvblk_open(const char *pool, unsigned int flags, struct kvblk **handle);

/**
 * kvblk_open_fd() - make a handle of an open descriptor
 * @fd: descriptor of a tenant's device node, for example received from another process.
 *	If the call succeeds, the handle owns the descriptor
 * @handle: set to the new handle; free the handle with kvblk_close()
 *
 * Processes that share an open file share its leases, registered memory and cookies.
 *
 * Context: any thread.
 * Return: 0; -ENOTTY if the descriptor is not of a kvblk node; -EBADF; -ENODEV if the
 * pool is being destroyed; -EINVAL, -ENOMEM.
 */
int kvblk_open_fd(int fd, struct kvblk **handle);

/**
 * kvblk_close() - close a handle
 * @kv: the handle, or NULL
 *
 * Ends the handle's leases. No other call may be running on the handle; memory and queues
 * of the handle must have been freed.
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
 * kvblk_get_info() - read limits and features of the pool
 * @kv: the handle
 * @info: filled in
 * @size: sizeof(*info)
 *
 * Context: any thread.
 * Return: 0; -EINVAL if @size is below KVBLK_INFO_SIZE_VER0; -ENODEV if the pool is being
 * destroyed.
 */
int kvblk_get_info(struct kvblk *kv, struct kvblk_info *info, size_t size);

/* Registered memory of the host, a PCI device or a GPU. */

struct kvblk_mem;

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
 * @size: sizeof(struct kvblk_mem_options)
 * @lanes: batches that run at once, up to KVBLK_MEM_LANES_MAX; further batches wait.
 *	0: 2
 * @block_max: longest block, up to KVBLK_VALUE_MAX; each lane pins twice as many bytes.
 *	0: the pool's limit, at most 16 MiB
 *
 * Registrations of one CUDA context with one handle and equal options share their lanes.
 */
struct kvblk_mem_options {
	uint32_t size;
	uint32_t lanes;
	uint64_t block_max;
};

/**
 * struct kvblk_mem_info - what kvblk_mem_get_info() reports
 * @size: in: sizeof(struct kvblk_mem_info); out: bytes filled in
 * @kind: &enum kvblk_mem_kind
 * @addr: the address, or the device pointer
 * @length: bytes
 * @block_max: staged memory: longest block; else 0: no limit but the pool's
 * @lanes: staged memory: batches that run at once; else 0
 * @reserved: 0
 */
struct kvblk_mem_info {
	uint32_t size;
	uint32_t kind;
	uint64_t addr;
	uint64_t length;
	uint64_t block_max;
	uint32_t lanes;
	uint32_t reserved;
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
 * * -EINVAL, -E2BIG
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
 * No operation may be using pieces of @mem, unless the memory is host memory that the
 * caller allocated and its kind is KVBLK_MEM_REGISTERED. Only the process that made @mem
 * may free it: a child of fork(2) would release the memory for its parent, too.
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
 * kvblk_mem_get_info() - describe registered memory
 * @mem: the handle
 * @info: filled in; the caller sets @size
 *
 * Context: any thread.
 * Return: 0; -EINVAL if @info->size is too small.
 */
int kvblk_mem_get_info(const struct kvblk_mem *mem, struct kvblk_mem_info *info);

/* Operations. */

/**
 * kvblk_prep_piece() - describe a piece of memory of an operation
 * @piece: filled in, for operations of the struct kvblk of @mem
 * @mem: registered memory; NULL: memory of the process, which is pinned for the operation
 * @at: offset in @mem; without @mem the address, any alignment
 * @len: bytes, 1 to below 4 GiB
 *
 * Context: any thread.
 * Return: 0; -EINVAL if @len is 0 or too large; -EFAULT if the range is not within @mem.
 */
int kvblk_prep_piece(struct kvblk_piece *piece, const struct kvblk_mem *mem, uintptr_t at,
		     size_t len);

/**
 * kvblk_prep_put() - prepare an operation that stores a block
 * @op: filled in without options; set further fields afterwards
 * @key: the key; must stay valid until the operation completes, like @pieces
 * @key_len: 1 to KVBLK_KEY_MAX
 * @pieces: memory that holds the block
 * @nr_pieces: 1 to KVBLK_PIECES_MAX
 */
KVBLK_INLINE void kvblk_prep_put(struct kvblk_op *op, const void *key, size_t key_len,
				 const struct kvblk_piece *pieces, unsigned int nr_pieces)
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
 * @key: the key; must stay valid until the operation completes, like @pieces
 * @key_len: 1 to KVBLK_KEY_MAX
 * @pieces: destination
 * @nr_pieces: 1 to KVBLK_PIECES_MAX
 */
KVBLK_INLINE void kvblk_prep_get(struct kvblk_op *op, const void *key, size_t key_len,
				 const struct kvblk_piece *pieces, unsigned int nr_pieces)
{
	kvblk_prep_put(op, key, key_len, pieces, nr_pieces);
	op->opcode = KVBLK_OP_GET;
}

/**
 * kvblk_prep_delete() - prepare an operation that removes a block
 * @op: filled in
 * @key: the key; must stay valid until the operation completes
 * @key_len: 1 to KVBLK_KEY_MAX
 */
KVBLK_INLINE void kvblk_prep_delete(struct kvblk_op *op, const void *key, size_t key_len)
{
	kvblk_prep_put(op, key, key_len, NULL, 0);
	op->opcode = KVBLK_OP_DELETE;
}

/**
 * kvblk_prep_prefetch() - prepare an operation that loads a block into host memory
 * @op: filled in without options; set further fields afterwards
 * @key: the key; must stay valid until the operation completes
 * @key_len: 1 to KVBLK_KEY_MAX
 *
 * kvblk_prestage() loads many blocks with limits.
 */
KVBLK_INLINE void kvblk_prep_prefetch(struct kvblk_op *op, const void *key, size_t key_len)
{
	kvblk_prep_put(op, key, key_len, NULL, 0);
	op->opcode = KVBLK_OP_PREFETCH;
}

/**
 * kvblk_prep_hint() - prepare an operation that tells the pool about a block's future
 * @op: filled in; with KVBLK_OPF_PRIORITY set @priority afterwards, with KVBLK_OPF_RETAIN
 *	set @ttl_s
 * @key: the key; must stay valid until the operation completes
 * @key_len: 1 to KVBLK_KEY_MAX
 * @flags: KVBLK_OPF_PRIORITY, KVBLK_OPF_RETAIN, KVBLK_OPF_DEMOTE, or KVBLK_OPF_RELEASE alone
 *
 * kvblk_hint_keys() is for many blocks.
 */
KVBLK_INLINE void kvblk_prep_hint(struct kvblk_op *op, const void *key, size_t key_len,
				  unsigned int flags)
{
	kvblk_prep_put(op, key, key_len, NULL, 0);
	op->opcode = KVBLK_OP_HINT;
	op->flags = flags;
}

/**
 * kvblk_prep_ext() - attach an extension to an operation: parent, checksums, tags, hints
 * @op: prepared by kvblk_prep_put() or a similar call
 * @ext: cleared; set its fields afterwards. Must stay valid until the operation completes
 *
 * The exported function clears and sets the size of version 1.0, because it does not know
 * what its caller has allocated: set @size of &struct kvblk_op_ext for later fields.
 */
KVBLK_INLINE void kvblk_prep_ext(struct kvblk_op *op, struct kvblk_op_ext *ext)
{
	memset(ext, 0, KVBLK_EXT_SIZE);
	ext->size = (uint32_t)KVBLK_EXT_SIZE;
	op->ext = (uintptr_t)ext;
}

/**
 * kvblk_submit_sized() - run a batch of operations, all in flight at once, and wait
 * @kv: the handle
 * @ops: operations, prepared with kvblk_prep_*()
 * @nr_ops: 1 to KVBLK_OPS_MAX
 * @results: filled in with a result for each operation, in the same order
 * @result_size: bytes from one result to the next: sizeof(*results)
 * @flags: &enum kvblk_submit_flags
 *
 * Takes pieces of any memory. Sleeps until every operation has its result. When a get
 * into memory of a GPU has completed, GPU work that starts after the call sees the data.
 *
 * Operations on staged memory are copied through host memory in loads of up to block_max
 * bytes. The device copies one load while the kernel works on the next. For such
 * operations:
 * - Deadlines and kvblk_cancel() hold while the batch waits for a lane, too.
 * - KVBLK_RES_BOUNCED is set.
 * - A get that fails has changed nothing, unless CUDA failed.
 * - A chain is admitted load by load. If a put is declined, later puts of the chain are
 *   declined, too.
 * - With KVBLK_SUBMIT_INTERRUPTIBLE, a signal ends the batch only while the kernel works on
 *   a load.
 *
 * A batch that fits into one load has no overlap. Operations on staged and on other memory,
 * or on memory of several CUDA contexts, run as batches one after another: each is its own
 * chain, and kvblk_cancel() finds only the operations of the one that is running.
 *
 * Allocates no memory if @result_size is that of the library.
 *
 * Context: any thread.
 * Return: 0 if @results is valid, even if operations failed; otherwise an errno of the
 * whole ioctl, which has changed nothing unless the errno is -EINTR. With staged memory,
 * @results can have
 * * -EFBIG: longer than block_max
 * * -EXDEV: pieces of two CUDA contexts, of staged and other memory, or registered with
 *   different options
 * * -EIO, or another errno of CUDA, also for later operations
 * * -ENODEV: CUDA has lost the device
 */
int kvblk_submit_sized(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		       struct kvblk_result *results, size_t result_size, unsigned int flags);

/**
 * kvblk_submit() - run a batch of operations, all in flight at once, and wait
 * @kv: the handle
 * @ops: operations, prepared with kvblk_prep_*()
 * @nr_ops: 1 to KVBLK_OPS_MAX
 * @results: filled in with a result for each operation, in the same order
 * @flags: &enum kvblk_submit_flags
 *
 * Context: any thread.
 * Return: as kvblk_submit_sized().
 */
static inline int kvblk_submit(struct kvblk *kv, const struct kvblk_op *ops,
			       unsigned int nr_ops, struct kvblk_result *results,
			       unsigned int flags)
{
	return kvblk_submit_sized(kv, ops, nr_ops, results, sizeof(*results), flags);
}

/**
 * kvblk_cancel() - cancel operations of this handle
 * @kv: the handle
 * @cookie: cookie of the operations, not 0. Calls on one block, such as kvblk_put(), have
 *	no cookie; operations of a queue are canceled by kvblk_queue_cancel()
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
 * @deadline_ns: when to give up
 *
 * Covers canceled and late operations, too. After the drain neither their memory nor a
 * device is in use for them. An operation of a queue with KVBLK_QUEUE_ONE_THREAD is in
 * flight until kvblk_queue_wait() returns its completion: collect the completions first.
 *
 * Context: any thread.
 * Return: 0; -ETIME if the deadline passed; -EINTR on a signal.
 */
int kvblk_drain(struct kvblk *kv, uint64_t deadline_ns);

/* One block. */

/**
 * struct kvblk_put_options - optional properties of a block to put
 * @size: sizeof(struct kvblk_put_options)
 * @flags: KVBLK_OPF_DURABLE, or 0
 * @ttl_s: time to live in seconds, up to KVBLK_TTL_MAX; 0: the block does not expire
 * @priority: 0 (evicted first) to KVBLK_PRIORITY_MAX
 * @deadline_ns: when to give up
 * @mem: registered memory that holds the data; NULL: memory of the process
 * @parent: key of the preceding block in the prefix chain, or NULL
 * @parent_len: length of @parent, or 0
 * @layout_tag: stored with the block and returned by gets
 * @caller_tag: stored with the block and returned by lookups
 */
struct kvblk_put_options {
	uint32_t size;
	uint32_t flags;
	uint32_t ttl_s;
	uint32_t priority;
	uint64_t deadline_ns;
	const struct kvblk_mem *mem;
	const void *parent;
	size_t parent_len;
	uint64_t layout_tag;
	uint64_t caller_tag;
};

/**
 * struct kvblk_get_options - options of a get
 * @size: sizeof(struct kvblk_get_options)
 * @flags: KVBLK_OPF_PARTIAL, KVBLK_OPF_LAYOUT, KVBLK_OPF_HARD_DEADLINE, or 0
 * @offset: with KVBLK_OPF_PARTIAL: first byte to fetch; else 0
 * @reserved: 0
 * @deadline_ns: when to give up
 * @mem: registered memory that holds the destination; NULL: memory of the process
 * @layout_tag: with KVBLK_OPF_LAYOUT: a block with another tag is a miss; else 0
 */
struct kvblk_get_options {
	uint32_t size;
	uint32_t flags;
	uint32_t offset;
	uint32_t reserved;
	uint64_t deadline_ns;
	const struct kvblk_mem *mem;
	uint64_t layout_tag;
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
 * Sleeps until the block is on the device or in the pool's memory (see the tunable
 * dram_bytes).
 *
 * Context: any thread.
 * Return: 0 if the block was stored; -EEXIST if the pool already has the block; otherwise
 * a result for kvblk_result_text(), or an errno of the whole ioctl; -E2BIG.
 */
int kvblk_put(struct kvblk *kv, const void *key, size_t key_len, const void *data, size_t len,
	      const struct kvblk_put_options *options);

/**
 * kvblk_get() - fetch one block, or a part of it
 * @kv: the handle
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @buf: destination
 * @len: in: size of @buf, below 4 GiB; 0: read nothing and return -EMSGSIZE if there is a
 *	block. Out: bytes fetched; if the call returns -EMSGSIZE, the length of the block
 * @options: options, or NULL
 *
 * With KVBLK_OPF_PARTIAL the call fetches as many bytes from the offset on as @buf and the
 * block have. Sleeps until the device has completed the read. If the call fails, @buf
 * holds zeroes or is unchanged.
 *
 * Context: any thread.
 * Return: 0; -ENOENT on a miss; -EMSGSIZE if @buf is too short; -ERANGE if the offset is
 * not within the block; otherwise a result for kvblk_result_text(), or an errno of the
 * whole ioctl; -E2BIG.
 */
int kvblk_get(struct kvblk *kv, const void *key, size_t key_len, void *buf, size_t *len,
	      const struct kvblk_get_options *options);

/**
 * kvblk_delete() - remove one block durably
 * @kv: the handle
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 *
 * Context: any thread.
 * Return: 0; -ENOENT if there is no such block; -EBUSY while a put of the key is in
 * flight; -EIO if the member failed: the block may come back after a restart; otherwise a
 * result for kvblk_result_text(), or an errno of the whole ioctl.
 */
int kvblk_delete(struct kvblk *kv, const void *key, size_t key_len);

/**
 * kvblk_exists() - look up one block, without I/O
 * @kv: the handle
 * @key: the key
 * @key_len: 1 to KVBLK_KEY_MAX
 * @size: set to the length of the block, or 0 if there is no such block; may be NULL
 *
 * Refreshes the block: as after a get, the pool evicts the block later. Use
 * kvblk_lookup_keys() with KVBLK_LOOKUP_QUIET to leave its age as it is.
 *
 * Context: any thread.
 * Return: 0 if the block is present; -ENOENT if not; -EINVAL, -ENOMEM, -EFAULT, -ENODEV.
 */
int kvblk_exists(struct kvblk *kv, const void *key, size_t key_len, uint32_t *size);

/* Queues: operations in flight while the caller does other work. */

struct kvblk_queue;

#define KVBLK_QUEUE_DEPTH_MAX	16384
#define KVBLK_QUEUE_THREADS_MAX	64

/**
 * enum kvblk_queue_flags - flags of a queue
 * @KVBLK_QUEUE_ONE_THREAD: only the thread that created the queue uses it; submissions and
 *	waits of others fail with -EEXIST. Other threads may cancel and stop. Saves CPU time
 *	in a queue without threads
 * @KVBLK_QUEUE_UNCANCELABLE: kvblk_queue_cancel() finds only submissions that have not
 *	begun. Saves each operation a lock of the open node
 * @KVBLK_QUEUE_DEFER: submissions begin in the thread's next call on the queue other than
 *	kvblk_queue_submit(), at the latest in kvblk_queue_wait(), which starts them and waits
 *	for completions by one system call. Until they have begun, deadlines have no effect,
 *	kvblk_drain() does not cover them, and kvblk_queue_cancel() of another thread may miss
 *	them, or any thread's with KVBLK_QUEUE_UNCANCELABLE. What kvblk_queue_stop() of
 *	another thread misses is canceled in the queue's next call, or completes if it was
 *	just beginning. Requires KVBLK_QUEUE_ONE_THREAD; no effect on submissions that threads
 *	of the library run
 */
enum kvblk_queue_flags {
	KVBLK_QUEUE_ONE_THREAD		= 1u << 0,
	KVBLK_QUEUE_UNCANCELABLE	= 1u << 1,
	KVBLK_QUEUE_DEFER		= 1u << 2,
};

/**
 * struct kvblk_queue_options - properties of a queue
 * @size: sizeof(struct kvblk_queue_options)
 * @depth: most operations in flight, up to KVBLK_QUEUE_DEPTH_MAX; 0: 1024
 * @threads: 0: the queue is an io_uring. Else threads of the library run the submissions,
 *	each at most one at a time, up to KVBLK_QUEUE_THREADS_MAX; they start on demand
 * @flags: &enum kvblk_queue_flags
 *
 * An io_uring takes no thread switch, but pinning, checksums and copies take CPU time of
 * the thread that submits. A queue with threads takes none of it, and a switch of about 10
 * microseconds for each submission: use it for large blocks or batches. Results are the
 * same.
 */
struct kvblk_queue_options {
	uint32_t size;
	uint32_t depth;
	uint32_t threads;
	uint32_t flags;
};

/**
 * struct kvblk_completion - result of one operation of a queue
 * @tag: tag of the submission
 * @cookie: cookie of the operation
 * @res: as in &struct kvblk_result
 * @flags: as in &struct kvblk_result
 * @value_len: the block's length where it is known, else 0
 * @index: number of the operation in its submission
 * @left: operations of the submission whose completions have not been returned yet; 0:
 *	this is the last one
 * @reserved: 0
 * @layout_tag: get: the block's layout tag
 * @caller_tag: get: the block's caller tag
 *
 * Grows at the end: the caller passes the bytes from one completion to the next.
 */
struct kvblk_completion {
	void *tag;
	uint64_t cookie;
	int32_t res;
	uint32_t flags;
	uint32_t value_len;
	uint32_t index;
	uint32_t left;
	uint32_t reserved;
	uint64_t layout_tag;
	uint64_t caller_tag;
};

/**
 * kvblk_queue_create() - create a queue
 * @kv: the handle; must stay open while the queue exists
 * @options: options, or NULL
 * @queue: set to the new queue; free the queue with kvblk_queue_destroy()
 *
 * A handle may have any number of queues. Any thread may use a queue, many at the same
 * time, unless KVBLK_QUEUE_ONE_THREAD is set. In a queue without threads, an operation is
 * canceled when the thread that submitted it exits: a device may write to the memory of a
 * get until kvblk_drain() has returned 0. A child of fork(2) must not use the queue.
 *
 * Context: any thread.
 * Return: 0; -EINVAL, -E2BIG; -ENOMEM; -EMFILE, -ENFILE; -EAGAIN if no thread can be
 * created; without threads -ENOSYS or -EPERM if io_uring is missing or forbidden, or
 * another errno of io_uring_setup(2).
 */
int kvblk_queue_create(struct kvblk *kv, const struct kvblk_queue_options *options,
		       struct kvblk_queue **queue);

/**
 * kvblk_queue_submit() - submit operations
 * @queue: the queue
 * @ops: the operations; copied. Keys, pieces, extensions and memory that an operation
 *	points to must stay valid until its completion is returned
 * @nr_ops: 1 to KVBLK_OPS_MAX, at most the queue's depth
 * @flags: KVBLK_SUBMIT_CHAIN, or 0
 * @tag: the caller's name for the submission; returned in completions; need not be unique
 *
 * Takes pieces of any memory. Never waits for the device. The operations of a chain, and
 * those of one submission to a queue with threads or on staged memory, complete together.
 *
 * A submission to a queue with threads begins when a thread is free, in order; staged
 * memory uses threads in any queue. The deadline of an operation that has not begun takes
 * effect when it begins.
 *
 * Context: any thread.
 * Return: 0; -EAGAIN if the queue is full: nothing was submitted, collect completions
 * first; -ECANCELED if the queue was stopped; -EEXIST, see KVBLK_QUEUE_ONE_THREAD;
 * -EINVAL; -ENOMEM.
 */
int kvblk_queue_submit(struct kvblk_queue *queue, const struct kvblk_op *ops,
		       unsigned int nr_ops, unsigned int flags, void *tag);

/**
 * kvblk_queue_wait_sized() - collect completions
 * @queue: the queue
 * @completions: filled in, in the order of completion
 * @completion_size: bytes from one completion to the next: sizeof(*completions)
 * @max: most completions to return, at least 1
 * @least: completions to wait for, at most as many as there are operations in flight; 0:
 *	do not wait
 * @deadline_ns: when to give up
 *
 * When a get into memory of a GPU has completed, GPU work that starts after the call sees
 * the data.
 *
 * Context: any thread; may sleep.
 * Return: the number of completions, fewer than @least after the deadline or a signal, or
 * if other threads collect completions, too; -EINTR on a signal without completions;
 * -EEXIST, see KVBLK_QUEUE_ONE_THREAD; -EINVAL; an errno of io_uring_enter(2).
 */
int kvblk_queue_wait_sized(struct kvblk_queue *queue, struct kvblk_completion *completions,
			   size_t completion_size, unsigned int max, unsigned int least,
			   uint64_t deadline_ns);

/**
 * kvblk_queue_wait() - collect completions
 * @queue: the queue
 * @completions: filled in, in the order of completion
 * @max: most completions to return, at least 1
 * @least: completions to wait for, at most as many as there are operations in flight; 0:
 *	do not wait
 * @deadline_ns: when to give up
 *
 * Context: any thread; may sleep.
 * Return: as kvblk_queue_wait_sized().
 */
static inline int kvblk_queue_wait(struct kvblk_queue *queue,
				   struct kvblk_completion *completions, unsigned int max,
				   unsigned int least, uint64_t deadline_ns)
{
	return kvblk_queue_wait_sized(queue, completions, sizeof(*completions), max, least,
				      deadline_ns);
}

/**
 * kvblk_queue_eventfd() - return a descriptor for event loops
 * @queue: the queue
 *
 * The descriptor is readable while there are completions to collect, or submissions that
 * KVBLK_QUEUE_DEFER has deferred: when it is, call kvblk_queue_wait() with @least 0, once or
 * until it returns 0. The queue owns the descriptor: do not read or close it.
 *
 * Context: any thread.
 * Return: the descriptor; -EMFILE, -ENFILE, -ENOMEM; -EEXIST, see KVBLK_QUEUE_ONE_THREAD.
 */
int kvblk_queue_eventfd(struct kvblk_queue *queue);

/**
 * kvblk_queue_cancel() - cancel submissions
 * @queue: the queue
 * @tag: tag of the submissions
 *
 * Operations that have not begun complete with -ECANCELED at once, others once no device
 * uses their memory. An operation that is about to complete does so normally. Each
 * operation has its completion.
 *
 * Context: any thread; may sleep for some milliseconds.
 * Return: 0; -ENOENT if no operation was found that can be canceled.
 */
int kvblk_queue_cancel(struct kvblk_queue *queue, void *tag);

/**
 * kvblk_queue_drain() - wait until no operation is in flight
 * @queue: the queue
 * @deadline_ns: when to give up
 *
 * Afterwards neither memory nor a device is in use for operations submitted before the
 * call. Their completions stay in the queue.
 *
 * Context: any thread; may sleep.
 * Return: 0; -ETIME if the deadline passed; -EINTR on a signal; -EEXIST, see
 * KVBLK_QUEUE_ONE_THREAD; an errno of io_uring_enter(2).
 */
int kvblk_queue_drain(struct kvblk_queue *queue, uint64_t deadline_ns);

/**
 * kvblk_queue_stop() - refuse new submissions and cancel those in flight
 * @queue: the queue
 *
 * Later submissions return -ECANCELED. Operations in flight are canceled as by
 * kvblk_queue_cancel(). Their completions can be collected, so that each submission
 * ends before kvblk_queue_destroy().
 *
 * Context: any thread; may sleep for some milliseconds.
 */
void kvblk_queue_stop(struct kvblk_queue *queue);

/**
 * kvblk_queue_destroy() - stop a queue and free it
 * @queue: the queue, or NULL
 *
 * Cancels operations in flight and waits until they have completed, so that no device
 * uses their memory. Drops their completions.
 *
 * Context: once, while no other call runs on the queue; with KVBLK_QUEUE_ONE_THREAD the
 * thread of the queue. Sleeps.
 */
void kvblk_queue_destroy(struct kvblk_queue *queue);

/* Lookups, leases, prestaging. */

/**
 * kvblk_lookup_keys() - look up many blocks, without I/O
 * @kv: the handle
 * @lookup: the request; the caller fills in all fields but @size. The call sets the out
 *	fields
 * @size: sizeof(*lookup)
 *
 * Context: any thread.
 * Return: 0, or an errno of the whole ioctl.
 */
int kvblk_lookup_keys(struct kvblk *kv, struct kvblk_lookup *lookup, size_t size);

/**
 * struct kvblk_prefix - what kvblk_lookup_prefix() finds
 * @size: in: sizeof(struct kvblk_prefix); out: bytes filled in
 * @nr_leading: keys present before the first missing key; with a lease, not more than
 *	@nr_leased
 * @nr_leased: keys leased, from the first on; 0 without a lease
 * @reserved: 0
 * @lease: the lease, for kvblk_lease_release(); 0 if no block was leased
 * @lease_end_ns: when the lease ends by itself; 0 without a lease
 */
struct kvblk_prefix {
	uint32_t size;
	uint32_t nr_leading;
	uint32_t nr_leased;
	uint32_t reserved;
	uint64_t lease;
	uint64_t lease_end_ns;
};

/**
 * kvblk_lookup_prefix() - count the leading blocks of a prefix chain that are present
 * @kv: the handle
 * @keys: keys of equal length, packed one behind the other, first block first
 * @key_len: length of each key, 1 to KVBLK_KEY_MAX
 * @nr_keys: 1 to KVBLK_LOOKUP_MAX
 * @lease_ms: duration of a lease on the blocks found, up to KVBLK_LEASE_MS_MAX; 0: no
 *	lease
 * @prefix: filled in; the caller sets @size
 *
 * Refreshes the leading blocks that are present, with or without a lease: as after a get,
 * the pool evicts them later. Use kvblk_lookup_keys() with KVBLK_LOOKUP_PREFIX and
 * KVBLK_LOOKUP_QUIET to leave their age as it is.
 *
 * Context: any thread.
 * Return: 0; -EINVAL; an errno of the whole ioctl.
 */
int kvblk_lookup_prefix(struct kvblk *kv, const void *keys, size_t key_len,
			unsigned int nr_keys, unsigned int lease_ms,
			struct kvblk_prefix *prefix);

/**
 * kvblk_lease_release() - end a lease
 * @kv: the handle that took the lease
 * @lease: the lease; 0: do nothing
 *
 * Context: any thread.
 * Return: 0; -ENOENT if there is no such lease or it has ended.
 */
int kvblk_lease_release(struct kvblk *kv, uint64_t lease);

/**
 * enum kvblk_prestage_state - result of one key of kvblk_prestage()
 * @KVBLK_PRESTAGE_LOADED: the block was loaded into host memory
 * @KVBLK_PRESTAGE_RESIDENT: the block was in host memory before the call
 * @KVBLK_PRESTAGE_MISSING: the pool has no such block
 * @KVBLK_PRESTAGE_CLIPPED: the block was not loaded: it is beyond @max_bytes, it follows
 *	the first miss with @stop_at_miss, memory ran out, or the call was canceled
 * @KVBLK_PRESTAGE_EXPIRED: the deadline passed before the block was loaded
 */
enum kvblk_prestage_state {
	KVBLK_PRESTAGE_LOADED	= 1,
	KVBLK_PRESTAGE_RESIDENT	= 2,
	KVBLK_PRESTAGE_MISSING	= 3,
	KVBLK_PRESTAGE_CLIPPED	= 4,
	KVBLK_PRESTAGE_EXPIRED	= 5,
};

/**
 * kvblk_prestage_state_name() - return the name of a state
 * @state: &enum kvblk_prestage_state
 *
 * Context: any thread.
 * Return: a constant string like "loaded"; "unknown" for an unknown state.
 */
const char *kvblk_prestage_state_name(unsigned int state);

/**
 * struct kvblk_prestage_options - limits of prestaging
 * @size: sizeof(struct kvblk_prestage_options)
 * @lease_ms: duration of a lease on the blocks in memory at the end, up to
 *	KVBLK_LEASE_MS_MAX; 0: no lease
 * @max_bytes: most bytes to load. The first block that exceeds the limit ends the
 *	loading. Blocks already in memory do not count. 0: no limit
 * @deadline_ns: when to give up
 * @cookie: name of the operations for kvblk_cancel(); 0: none
 * @priority: 0 to KVBLK_PRIORITY_MAX. Gets delay prefetches; a prefetch or put of higher
 *	priority resumes first
 * @stop_at_miss: not 0: the keys are a chain: do not load blocks behind the first miss
 */
struct kvblk_prestage_options {
	uint32_t size;
	uint32_t lease_ms;
	uint64_t max_bytes;
	uint64_t deadline_ns;
	uint64_t cookie;
	uint32_t priority;
	uint32_t stop_at_miss;
};

/**
 * struct kvblk_prestaged - result of one key
 * @state: &enum kvblk_prestage_state
 * @length: length of the block, or 0 if unknown
 *
 * 8 bytes, because there is one for each key. Keeps its size.
 */
struct kvblk_prestaged {
	uint32_t state;
	uint32_t length;
};

/**
 * struct kvblk_prestage_sum - totals of prestaging
 * @size: in: sizeof(struct kvblk_prestage_sum); out: bytes filled in
 * @nr_leading: keys before the first block that is not in memory
 * @nr_here: keys whose blocks are in memory
 * @nr_leased: keys that are leased: the first ones of those in memory
 * @loaded_bytes: bytes that the call loaded into memory
 * @lease: the lease, for kvblk_lease_release(), or 0 if no block was leased
 * @lease_end_ns: when the lease ends by itself; 0 without a lease
 */
struct kvblk_prestage_sum {
	uint32_t size;
	uint32_t nr_leading;
	uint32_t nr_here;
	uint32_t nr_leased;
	uint64_t loaded_bytes;
	uint64_t lease;
	uint64_t lease_end_ns;
};

/**
 * kvblk_prestage() - load blocks into host memory before they are needed
 * @kv: the handle
 * @keys: keys packed one behind the other, in the order in which they will be needed
 * @key_lens: length of each key, 1 to KVBLK_KEY_MAX
 * @nr_keys: 1 to KVBLK_LOOKUP_MAX
 * @options: options, or NULL
 * @prestaged: filled in with the result of each key, in the same order; may be NULL
 * @sum: filled in with totals, the caller sets @size; may be NULL without a lease
 *
 * Sleeps until the last block is loaded. Up to KVBLK_OPS_MAX blocks are in flight at
 * once. Gets of the same member take precedence. The pool may evict a prefetched block
 * later, the coldest first, unless the block is leased.
 *
 * Context: any thread.
 * Return: 0: @prestaged is valid; -EOPNOTSUPP if the pool keeps no blocks in host memory
 * (tunable dram_bytes); -EINVAL, -E2BIG; -ENOMEM; an errno of the whole ioctl, or -EBADF,
 * -ENODEV, -EINTR of an operation. After an error some blocks may be in memory; none is
 * leased.
 */
int kvblk_prestage(struct kvblk *kv, const void *keys, const uint16_t *key_lens,
		   unsigned int nr_keys, const struct kvblk_prestage_options *options,
		   struct kvblk_prestaged *prestaged, struct kvblk_prestage_sum *sum);

/* Checksums by a GPU. */

/**
 * kvblk_gpu_checksums() - compute the checksums of puts on the GPU that holds their blocks
 * @kv: the handle
 * @ops: puts of memory that is registered with @kv; the extension of each has @checksums, an
 *	array of @nr_checksums words: one for each begun &struct kvblk_info.chunk_size bytes
 * @nr_ops: operations
 * @stream: CUstream: the computation waits for what was submitted to it before; NULL: the
 *	blocks are complete
 *
 * Fills in the arrays, so that the puts carry the checksums of their producer: the kernel
 * computes none, and a device can transfer the blocks directly for any integrity of the pool.
 * Waits for the GPU. All memory must be of one CUDA context.
 *
 * Context: any thread; may sleep. The first call for a registration loads code into the GPU.
 * Return: 0; -EXDEV if a piece is not in memory of a GPU, or in another context; -EOPNOTSUPP if
 * CUDA cannot load the code; -EINVAL, -ENOMEM, -ENODEV; -EIO if CUDA failed. After an error the
 * arrays are undefined: put without them.
 */
int kvblk_gpu_checksums(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
			void *stream);

/**
 * kvblk_gpu_verify() - verify completed gets on the GPU that holds their blocks
 * @kv: the handle
 * @ops: operations of one submission; those of gets as submitted, with extensions that have
 *	@checksums
 * @nr_ops: operations
 * @results: their results; those of gets are replaced if a get had to be repeated
 * @result_size: bytes from one result to the next: sizeof(*results)
 * @stream: as for kvblk_gpu_checksums()
 *
 * For gets with KVBLK_OPF_CALLER_CHECKS, and for gets with checksums into device memory: no one
 * has checked a block with KVBLK_RES_CHECKSUMS. A get whose block does not match is
 * repeated through kernel memory, and verified by the kernel, which removes damaged blocks; so is
 * one that the GPU cannot verify, unless the kernel has verified it already. The result is that
 * of the repeated get. Other results are left alone.
 *
 * Context: any thread; may sleep, as kvblk_submit() does.
 * Return: 0: each get whose result is a length has delivered a verified block, if the block has
 * checksums; -EINVAL.
 */
int kvblk_gpu_verify(struct kvblk *kv, const struct kvblk_op *ops, unsigned int nr_ops,
		     struct kvblk_result *results, size_t result_size, void *stream);

/**
 * struct kvblk_hint - what a caller knows of blocks' future
 * @size: sizeof(struct kvblk_hint)
 * @flags: KVBLK_OPF_PRIORITY, KVBLK_OPF_RETAIN, KVBLK_OPF_DEMOTE, or KVBLK_OPF_RELEASE alone,
 *	see &enum kvblk_op_flags
 * @priority: with KVBLK_OPF_PRIORITY: 0 to KVBLK_PRIORITY_MAX; else 0
 * @retain_s: with KVBLK_OPF_RETAIN: seconds, up to KVBLK_RETAIN_MAX, 0: no longer; else 0
 */
struct kvblk_hint {
	uint32_t size;
	uint32_t flags;
	uint32_t priority;
	uint32_t retain_s;
};

/**
 * kvblk_hint_keys() - tell the pool what is known of blocks' future
 * @kv: the handle, open for writing
 * @keys: keys packed one behind the other; those of a chain first block first
 * @key_lens: length of each key, 1 to KVBLK_KEY_MAX
 * @nr_keys: 1 to KVBLK_LOOKUP_MAX
 * @hint: the hint, the same for all keys
 * @nr_present: set to the number of keys whose blocks the pool has; may be NULL
 *
 * Does no I/O. Hints are advice: see &enum kvblk_op_flags. Keys without a block are skipped.
 *
 * Context: any thread.
 * Return: 0; -EOPNOTSUPP if the kernel does not know hints or one of the flags (see
 * KVBLK_FEAT_HINT); -EBADF if the handle is open for reading only; -EINVAL, -E2BIG, -ENODEV,
 * -ENOMEM, -EINTR. After an error the first keys may have the hint.
 */
int kvblk_hint_keys(struct kvblk *kv, const void *keys, const uint16_t *key_lens,
		    unsigned int nr_keys, const struct kvblk_hint *hint,
		    unsigned int *nr_present);

#ifdef __cplusplus
}
#endif

#endif
