/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * kvblk: key-value blocks on NVMe-oF namespaces, the data path's ABI, version 2.
 *
 * Every command takes one structure whose first member, @size, is the caller's
 * sizeof(). The kernel accepts a structure longer than it knows when the unknown
 * tail is zero (else -E2BIG), and reads a shorter one, of at least its
 * KVBLK_*_SIZE_VER0, as zero-extended. A structure with out fields is written back as
 * far as both sides know, with @size set to that number of bytes: the kernel does not
 * know a field that lies behind them.
 *
 * How the structures grow:
 *  - The argument of a command and &struct kvblk_op_ext begin with @size and get new
 *    fields at the end. So they have reserved fields only where alignment needs them.
 *  - &struct kvblk_result and &struct kvblk_change are arrays with a stride that the
 *    caller passes: they get new fields at the end, too.
 *  - &struct kvblk_op has the size of an SQE's command area and keeps it; new fields of
 *    an operation go into &struct kvblk_op_ext.
 *  - &struct kvblk_piece keeps its size; a new @type gives its fields another meaning.
 * The argument of a command with a verb's name ends in _arg, or else a function of a
 * library with that name would hide it in C++.
 * Addresses have 64 bits and are aligned, so that 32-bit callers have the same layout.
 * Lengths and counts have 32 bits, because KVBLK_VALUE_MAX and all other limits fit.
 *
 * What the kernel writes may have values that this header does not define: later versions
 * define further bits, enumerators and errnos. A caller ignores an unknown bit, takes an
 * unknown enumerator as the nearest weaker promise (a tier: present), and an unknown
 * errno of an operation as a failure of it alone.
 *
 * -EOPNOTSUPP means that this kernel does not know an opcode, a flag or a type; a
 * later version may. -EINVAL means that a known field does not fit: it is out of
 * its range, the operation does not take it, or it is reserved and not zero.
 *
 * Errors of a whole ioctl. Such a call has started and changed nothing, except as
 * -EFAULT and -EINTR say:
 *  -ENOTTY      unknown ioctl number
 *  -EFAULT      a structure or array can't be read, or results can't be written.
 *               A batch tests that by a write to its results before it starts. If
 *               the results can't be written at its end, its operations were done
 *               all the same. A cancel that can't be reported was done, too. A lease
 *               or a registered buffer that can't be reported is undone
 *  -E2BIG       a structure is longer than KVBLK_STRUCT_MAX; or it is longer than the
 *               kernel knows, and its tail is not zero
 *  -EOPNOTSUPP  an unknown flag or type
 *  -EINVAL      @size below KVBLK_*_SIZE_VER0, a field out of its range, a reserved
 *               field not zero, a count of zero or above the limit of KVBLK_IOC_INFO
 *  -ENOMEM      no memory for the batch, or for the lookup and its lease
 *  -EBADF       lookup, lease release: the node is not open for reading
 *  -ENODEV      the pool is being destroyed. What gives back or waits for what the
 *               file holds works all the same: KVBLK_IOC_LEASE_RELEASE,
 *               KVBLK_IOC_UNREG_BUF and KVBLK_IOC_DRAIN
 *  -EINTR       a signal. KVBLK_IOC_REG_BUF has registered nothing;
 *               KVBLK_IOC_DRAIN and KVBLK_UNREG_WAIT have only waited. A batch returns
 *               it to no one but a task that was killed, see &enum kvblk_submit_flags.
 *               As with read(2), such a task waits until no device writes to memory
 *               that others may use, see &struct kvblk_drain_arg
 *
 * Errors of a single operation (&struct kvblk_result.res):
 *  -ENOENT      get, delete: a miss: there is no such block, or a check failed; hint:
 *               there is no such block
 *  -ENXIO       no such registered buffer
 *  -EEXIST      put: the pool has the block, nothing was written
 *               (KVBLK_RES_LEN_DIFFERS: the stored block has another length)
 *  -EALREADY    put: another put of this key is in flight, or took the key over
 *               while this put's member did not answer
 *  -EBUSY       delete: a put of this key is in flight
 *  -ENOBUFS     put: declined by the admission policy, nothing was written
 *  -EDQUOT      put: the tenant's quota is used up, nothing was written
 *  -ENOSPC      put: no room, and none can be made (all blocks are leased, or
 *               no member is up); or a durable put's block is in memory and the
 *               members did not answer in time; or its former place is on a member
 *               that does not answer and has too many stale blocks already
 *  -ENOKEY      put: the tenant is encrypted, and the pool has not got its key
 *  -EBADMSG     put: the tenant is encrypted, and the payload differs from the
 *               checksums that were given, which are not stored; nothing was written
 *  -EFBIG       put: longer than a segment of this pool can hold
 *  -EMSGSIZE    get: the pieces are too short for the block, or the room for
 *               checksums is too small for its chunks; nothing was read, and
 *               &struct kvblk_result.value_len is the block's length
 *  -ERANGE      get: a partial get that begins behind the block's end
 *  -EIO         put: the member failed, no other member took the block, and the
 *               block is not stored; delete: the member failed, and the block may
 *               come back after a restart
 *  -EREMOTE     delete, put in place of an older block, prefetch: the block is on a
 *               member of another node of the pod, which alone can do that. A delete
 *               asks that node if a daemon is there, see &struct kvblk_peers; without
 *               an answer the block may be deleted all the same, as with -ETIME
 *  -ETIME       the deadline passed first
 *  -ECANCELED   a cancel or a signal came first, the ring was closed, or its task
 *               exited. A put is not stored. A delete has not begun, except if the
 *               ring was closed, its task exited, or the batch was canceled with
 *               IORING_OP_ASYNC_CANCEL: then it may happen
 *  -EOPNOTSUPP  an opcode, flag, hint or piece type that this kernel does not
 *               know, or a ring's buffer that is not in whole pages
 *  -EFAULT      key, extension, parent, checksums or pieces can't be read, @result
 *               can't be written, memory can't be pinned, or a piece is not within its
 *               buffer
 *  -EBADF       the node is not open for reading (get) or writing (put, delete, hint)
 *  -E2BIG       the extension is longer than KVBLK_STRUCT_MAX, or longer than the
 *               kernel knows, and its tail is not zero
 *  -EINVAL      a field is out of its range, or this opcode does not take it
 *  -ENOMEM      no memory for the operation, or too much memory is held by
 *               operations of this open file that were given up or do not end
 *  -ENODEV      the pool is being destroyed
 * When a get fails, the pieces hold zeroes or what was there before, never bytes
 * that failed a check. If the get's task was killed or exited, its ring was closed, or
 * its batch was canceled with IORING_OP_ASYNC_CANCEL, the pieces hold anything, and the
 * device may write to them until KVBLK_IOC_DRAIN has returned 0. If the room for
 * checksums can't be written, the result is -EFAULT although the block was delivered.
 */
#ifndef _UAPI_LINUX_KVBLK_H
#define _UAPI_LINUX_KVBLK_H

#include <linux/const.h>
#include <linux/ioctl.h>
#include <linux/types.h>

#define KVBLK_IOC_TYPE		0xDC

#define KVBLK_STRUCT_MAX	4096u		/* bytes in a structure or a stride */
#define KVBLK_KEY_MAX		512		/* bytes in a key */
#define KVBLK_VALUE_MAX		(64u << 20)	/* bytes in a block */
#define KVBLK_PIECES_MAX	1024		/* pieces in an operation */
#define KVBLK_OPS_MAX		1024		/* operations in a batch */
#define KVBLK_LOOKUP_MAX	65536		/* keys in a lookup */
#define KVBLK_LEASE_MS_MAX	3600000		/* longest lease: an hour */
#define KVBLK_TTL_MAX		0x40000000u	/* longest time to live, seconds: 34 years */
#define KVBLK_RETAIN_MAX	86400u		/* longest time to retain a block, seconds: a day */
#define KVBLK_PRIORITY_MAX	3
#define KVBLK_CHECKSUMS_MAX	1024		/* checksums of an operation */
#define KVBLK_CHANGES_MIN	1024		/* unread records that a change feed holds */
#define KVBLK_CHANGES_MAX	4194304		/* likewise, at most */
#define KVBLK_PEERS_MSG_MAX	4096		/* bytes in a message of the node "peers" */
#define KVBLK_PEERS_SPAN_MAX	4096		/* blocks for each anchor */
#define KVBLK_PEERS_WAIT_MAX	60000		/* longest wait for an answer, ms */

/* Least sizes that a kernel accepts: those of the first version with the structure. */
#define KVBLK_INFO_SIZE_VER0		120
#define KVBLK_OP_SIZE_VER0		80
#define KVBLK_OP_EXT_SIZE_VER0		56
#define KVBLK_RESULT_SIZE_VER0		40
#define KVBLK_SUBMIT_SIZE_VER0		40
#define KVBLK_LOOKUP_SIZE_VER0		96
#define KVBLK_LEASE_RELEASE_SIZE_VER0	16
#define KVBLK_CANCEL_SIZE_VER0		24
#define KVBLK_REG_BUF_SIZE_VER0		40
#define KVBLK_UNREG_BUF_SIZE_VER0	16
#define KVBLK_DRAIN_SIZE_VER0		16
#define KVBLK_CHANGES_SIZE_VER0		16
#define KVBLK_CHANGE_SIZE_VER0		48
#define KVBLK_PEERS_SIZE_VER0		24

/*
 * What a kernel or a pool may lack: bits of &struct kvblk_info.features. All else that
 * this header documents works on every kernel with version 2.
 *  P2P    transfers between PCI devices: the kernel has CONFIG_PCI_P2PDMA
 *  URING  io_uring commands, see KVBLK_URING_OP: the kernel has CONFIG_IO_URING
 *  DRAM   the pool keeps blocks in the host's memory now (tunable dram_bytes): &enum
 *         kvblk_dram_mode, KVBLK_OP_PREFETCH
 *  HINT   KVBLK_OP_HINT: the kernel is of a later version than the first with version 2
 *  TIMES  &struct kvblk_lookup.times: likewise
 *  CALLER_CHECKS
 *         KVBLK_OPF_CALLER_CHECKS: likewise
 */
#define KVBLK_FEAT_P2P		_BITULL(0)
#define KVBLK_FEAT_URING	_BITULL(1)
#define KVBLK_FEAT_DRAM		_BITULL(2)
#define KVBLK_FEAT_HINT		_BITULL(3)
#define KVBLK_FEAT_TIMES	_BITULL(4)
#define KVBLK_FEAT_CALLER_CHECKS	_BITULL(5)

/**
 * enum kvblk_info_pool_flags - bits of &struct kvblk_info.pool_flags
 * @KVBLK_POOL_STRICT: every transfer is bounced, none is direct; netlink's
 *	KVBLK_POOL_FLAG_STRICT
 */
enum kvblk_info_pool_flags {
	KVBLK_POOL_STRICT	= 1U << 0,
};

/**
 * enum kvblk_check - policy of a pool for payload checksums
 * @KVBLK_CHECK_HEADER: new records have no payload checksums; gets check only
 *	the header of such a record
 * @KVBLK_CHECK_FULL: each payload has checksums, and a get succeeds only when they
 *	are right
 * @KVBLK_CHECK_PRODUCER: as KVBLK_CHECK_FULL, except for payloads that go straight
 *	to or from the memory of a PCI device: there the producer of the block makes the
 *	checksums, and the reader checks them
 */
enum kvblk_check {
	KVBLK_CHECK_HEADER	= 0,
	KVBLK_CHECK_FULL	= 1,
	KVBLK_CHECK_PRODUCER	= 2,
};

/**
 * enum kvblk_dram_mode - how a pool with host memory (tunable dram_bytes) stores puts
 * @KVBLK_DRAM_THROUGH: write the block to a member, keep a copy in memory
 * @KVBLK_DRAM_EVICT: complete when the block is in memory. When memory runs short, the
 *	pool evicts the coldest block: to a member if a caller asked for the block since
 *	its put, or if the pool admits the chain of the block; else the block is dropped
 * @KVBLK_DRAM_TOUCHED: as KVBLK_DRAM_EVICT, but write only blocks that a caller asked for
 *
 * Blocks that are only in memory are lost when the host stops without destroying its
 * pools, or runs short of memory: gets of such blocks miss. A deleted block does not
 * come back.
 */
enum kvblk_dram_mode {
	KVBLK_DRAM_THROUGH	= 0,
	KVBLK_DRAM_EVICT	= 1,
	KVBLK_DRAM_TOUCHED	= 2,
};

/**
 * struct kvblk_info - argument of KVBLK_IOC_INFO
 * @size: sizeof(struct kvblk_info)
 * @flags: in: must be 0
 * @tenant: out: tenant id of this node, 0 for "default"
 * @pool_flags: out: the pool's state, &enum kvblk_info_pool_flags
 * @features: out: what the kernel and the pool can do now, KVBLK_FEAT_*
 * @value_max: out: longest block that this pool takes now, bytes
 * @key_max: out: longest key, bytes
 * @pieces_max: out: most pieces in an operation
 * @ops_max: out: most operations in a batch
 * @lookup_max: out: most keys in a lookup
 * @dma_align: out: pieces whose addresses and lengths are multiples of this
 *	(the last length excepted) are not bounced
 * @chunk_size: out: bytes that one payload checksum covers, the last one of a
 *	block excepted
 * @lease_ms_max: out: longest lease, milliseconds
 * @capacity: out: bytes in the segments of all members that are up or restoring
 * @pool_uuid: out: the pool's identity
 * @pool_name: out: its name, NUL-terminated
 * @checksum: out: &enum kvblk_checksum
 * @integrity: out: the pool's policy now, &enum kvblk_check
 *
 * Context: any thread. Return: 0 or an error of the whole ioctl.
 *
 * 120 bytes. @tenant has 32 bits here and in the change feed, although ids have fewer
 * today. Grows at the end.
 */
struct kvblk_info {
	__u32 size;
	__u32 flags;
	__u32 tenant;
	__u32 pool_flags;
	__aligned_u64 features;
	__u32 value_max;
	__u32 key_max;
	__u32 pieces_max;
	__u32 ops_max;
	__u32 lookup_max;
	__u32 dma_align;
	__u32 chunk_size;
	__u32 lease_ms_max;
	__aligned_u64 capacity;
	__u8 pool_uuid[16];
	char pool_name[32];
	__u32 checksum;
	__u32 integrity;
};

/**
 * enum kvblk_checksum - algorithm of payload checksums
 * @KVBLK_CHECKSUM_CRC32C: CRC32C as iSCSI has it (RFC 3720, appendix B.4): all
 *	ones at first, inverted at the end, a little-endian word in memory
 */
enum kvblk_checksum {
	KVBLK_CHECKSUM_CRC32C	= 1,
};

/**
 * enum kvblk_piece_type - kind of a piece of memory
 * @KVBLK_PIECE_USER: @addr is a user address of the calling process
 * @KVBLK_PIECE_REGISTERED: @handle is a registered buffer (KVBLK_IOC_REG_BUF)
 *	and @addr an offset into it
 */
enum kvblk_piece_type {
	KVBLK_PIECE_USER	= 0,
	KVBLK_PIECE_REGISTERED	= 1,
};

/**
 * struct kvblk_piece - one stretch of the caller's memory
 * @type: &enum kvblk_piece_type
 * @flags: must be 0
 * @handle: 0 for KVBLK_PIECE_USER
 * @addr: address or offset, any alignment
 * @length: bytes, not 0
 * @reserved: must be 0
 *
 * 24 bytes, the least for a handle, an address and a length, because an operation has
 * up to KVBLK_PIECES_MAX of them. Keeps its size.
 */
struct kvblk_piece {
	__u16 type;
	__u16 flags;
	__u32 handle;
	__aligned_u64 addr;
	__u32 length;
	__u32 reserved;
};

/**
 * enum kvblk_opcode - kind of an operation
 * @KVBLK_OP_PUT: store the pieces under the key
 * @KVBLK_OP_GET: fetch the block, or a part of it, into the pieces
 * @KVBLK_OP_DELETE: remove the block; durable when it completes
 * @KVBLK_OP_PREFETCH: read the block into host memory, before a get; gets of the same
 *	member go first. Takes the fields of a get, but no pieces. The result is the
 *	length of the block, or 0 if the block was in memory already; -ENOSPC: no memory
 *	is free now; -EOPNOTSUPP: the pool lacks KVBLK_FEAT_DRAM; other errors as of a
 *	get. The pool evicts prefetched blocks when memory runs short, the coldest first
 * @KVBLK_OP_HINT: tell the pool what the caller knows of the block's future, by at least
 *	one of the flags KVBLK_OPF_PRIORITY, _RETAIN, _DEMOTE, _RELEASE. Takes a key and no
 *	pieces. The result is 0, with the block's length in &struct kvblk_result.value_len;
 *	-ENOENT: there is no such block. Does no I/O and does not wait
 *
 * Hints inform the choice of what is evicted, and promise nothing. They hold until the
 * block leaves the pool or the host restarts: the media keeps the put's priority, or the
 * one at the time when a block in memory is written to a member. A put of the same key
 * that finds the block does not change them. A hint on a block of another node
 * (KVBLK_TIER_FOREIGN) only changes how long this node remembers where the block is.
 *
 * As with read(2) and write(2), gets, prefetches, lookups and leases need a node
 * that is open for reading, puts, deletes and hints one that is open for writing. All
 * other calls work on any open node: each operation decides what may be done with
 * registered memory.
 */
enum kvblk_opcode {
	KVBLK_OP_PUT		= 1,
	KVBLK_OP_GET		= 2,
	KVBLK_OP_DELETE		= 3,
	KVBLK_OP_PREFETCH	= 4,
	KVBLK_OP_HINT		= 5,
};

/**
 * enum kvblk_op_flags - &struct kvblk_op.flags
 * @KVBLK_OPF_PARTIAL: get: fetch @length bytes from @offset, or as many as the
 *	block has; without this flag the get fetches the whole block, which must fit
 * @KVBLK_OPF_LAYOUT: get, prefetch: a block whose layout tag is not
 *	&struct kvblk_op_ext.layout_tag is a miss. Needs an extension, else -EINVAL
 * @KVBLK_OPF_HARD_DEADLINE: get with a @deadline_ns: go through kernel memory
 *	and complete on time. Without this flag a get that is past its deadline
 *	completes when the device no longer owns the caller's memory
 * @KVBLK_OPF_DURABLE: put: complete when a crash of the host can't lose the block,
 *	in every &enum kvblk_dram_mode: the record has checksums and is past the
 *	member's volatile cache. Holds for -EEXIST, too, unless the length differs.
 *	-EIO: the flush of a block that existed has failed
 * @KVBLK_OPF_PRIORITY: hint: the block's priority becomes @priority, as if it had been put
 *	with it
 * @KVBLK_OPF_RETAIN: hint: for the next @ttl_s seconds, treat the block as one of priority
 *	KVBLK_PRIORITY_MAX; @ttl_s 0: no longer. A block with a time to live is retained
 *	until it expires, whatever the number of seconds. Reclaim keeps retained blocks as
 *	far as the tunable reinsert_permille allows, so they can't fill the pool for good
 * @KVBLK_OPF_DEMOTE: hint: the block need not be in the host's memory. A copy of a
 *	member's block is dropped; a block that is only in memory is written to a member in
 *	the background, and leaves memory then
 * @KVBLK_OPF_RELEASE: hint: no caller will ask for the block again. Its priority becomes
 *	0, it counts as never asked for, and is no longer retained: it is evicted before
 *	others, and not written when it leaves memory. A later get or lookup refreshes the
 *	block as any other. Not with another flag
 * @KVBLK_OPF_CALLER_CHECKS: get: if KVBLK_RES_CHECKSUMS is reported, the caller checks the
 *	bytes, wherever they went. So the kernel may skip its own check, which reads each
 *	byte once more. A caller that finds a mismatch gets again without the flag and with
 *	KVBLK_OPF_HARD_DEADLINE: the kernel removes a damaged block only if it finds the
 *	damage itself, in kernel memory. Needs &struct kvblk_op_ext.checksums, else -EINVAL
 */
enum kvblk_op_flags {
	KVBLK_OPF_PARTIAL	= 1U << 0,
	KVBLK_OPF_LAYOUT	= 1U << 1,
	KVBLK_OPF_HARD_DEADLINE	= 1U << 2,
	KVBLK_OPF_DURABLE	= 1U << 3,
	KVBLK_OPF_PRIORITY	= 1U << 4,
	KVBLK_OPF_RETAIN	= 1U << 5,
	KVBLK_OPF_DEMOTE	= 1U << 6,
	KVBLK_OPF_RELEASE	= 1U << 7,
	KVBLK_OPF_CALLER_CHECKS	= 1U << 8,
};

/**
 * struct kvblk_op - one operation
 * @opcode: &enum kvblk_opcode
 * @priority: put: 0 (evicted first) to KVBLK_PRIORITY_MAX; prefetch: 0 to
 *	KVBLK_PRIORITY_MAX, higher ones are read first when prefetches wait for gets;
 *	hint with KVBLK_OPF_PRIORITY: as of a put; else 0
 * @key_len: bytes at @key, 1 to KVBLK_KEY_MAX
 * @nr_pieces: put, get: 1 to KVBLK_PIECES_MAX; else 0
 * @reserved: must be 0
 * @flags: &enum kvblk_op_flags
 * @ttl_s: put: time to live of the block in seconds, 1 to KVBLK_TTL_MAX, which may be
 *	exceeded by two; 0: the block does not expire; hint with KVBLK_OPF_RETAIN: 0 to
 *	KVBLK_RETAIN_MAX; else 0
 * @cookie: the caller's name for this operation, returned in the result and
 *	used by KVBLK_IOC_CANCEL; need not be unique. 0: no name, the operation
 *	can't be canceled
 * @key: user address of the key
 * @ext: user address of a &struct kvblk_op_ext, or 0
 * @pieces: user address of @nr_pieces &struct kvblk_piece; their lengths add
 *	up to the block's length (put, 1 to KVBLK_VALUE_MAX) or to the room
 *	there is (get, below 4 GiB)
 * @offset: partial get: first byte wanted; else 0
 * @length: partial get: bytes wanted, 0 for as many as the pieces hold; else 0
 * @deadline_ns: CLOCK_MONOTONIC time, as the caller reads it in its time namespace,
 *	at which the operation is given up; 0 for none
 * @result: KVBLK_URING_OP: user address of a &struct kvblk_result, or 0; in a batch: 0
 * @result_size: bytes at @result, KVBLK_RESULT_SIZE_VER0 to KVBLK_STRUCT_MAX; 0 without
 *	@result. The kernel sets bytes behind what it knows to zero
 * @reserved2: must be 0
 *
 * 80 bytes, because that is the command area of a 128-byte SQE. So an operation does not
 * grow: new fields go into &struct kvblk_op_ext, which few operations need. 16 bits
 * suffice for @key_len and @nr_pieces, whose limits have 10 bits. @flags has room for 23
 * more.
 */
struct kvblk_op {
	__u8  opcode;
	__u8  priority;
	__u16 key_len;
	__u16 nr_pieces;
	__u16 reserved;
	__u32 flags;
	__u32 ttl_s;
	__aligned_u64 cookie;
	__aligned_u64 key;
	__aligned_u64 ext;
	__aligned_u64 pieces;
	__u32 offset;
	__u32 length;
	__aligned_u64 deadline_ns;
	__aligned_u64 result;
	__u32 result_size;
	__u32 reserved2;
};

/**
 * enum kvblk_hints - &struct kvblk_op_ext.hints
 * @KVBLK_HINT_CONTINUES: put: the chain (see &enum kvblk_submit_flags) continues in
 *	the next batch, so that its last block here is not the end of a prompt
 * @KVBLK_HINT_MISSED: put: a caller asked for the block before, and missed, so that a
 *	write is worthwhile. Runtimes that put blocks when their own memory evicts
 *	them set the hint for blocks that were used there
 *
 * Hints inform the admission policy and promise nothing. In a chain, the hint of one
 * put holds for all puts.
 */
enum kvblk_hints {
	KVBLK_HINT_CONTINUES	= 1U << 0,
	KVBLK_HINT_MISSED	= 1U << 1,
};

/**
 * struct kvblk_op_ext - extension of an operation: &struct kvblk_op.ext
 * @size: sizeof(struct kvblk_op_ext)
 * @flags: must be 0
 * @parent: put: user address of the key of the block before this one in its
 *	chain, or 0; else 0
 * @parent_len: bytes at @parent, 1 to KVBLK_KEY_MAX; 0 without @parent
 * @nr_checksums: 1 to KVBLK_CHECKSUMS_MAX; 0 without @checksums
 * @checksums: put, get: user address of @nr_checksums words of 32 bits, or 0;
 *	else 0. A word is the &enum kvblk_checksum of a chunk of &struct
 *	kvblk_info.chunk_size bytes, the last one of a block excepted.
 *	Put: checksums that the block's producer made, one for each chunk. The
 *	kernel stores them instead of its own and does not check them. If they are
 *	wrong, a get that checks the block misses.
 *	Get: room for at least the checksums of the chunks that the get touches.
 *	The kernel fills them in if the block has checksums, and reports
 *	KVBLK_RES_CHECKSUMS. In that case the caller has to check the bytes if the
 *	get went straight into device memory, or has KVBLK_OPF_CALLER_CHECKS.
 * @layout_tag: put: stored with the block; with KVBLK_OPF_LAYOUT: the tag that the
 *	block must have; else 0
 * @caller_tag: put: stored with the block, reported by lookups, gets and the change
 *	feed; else 0. The kernel gives it no meaning; a block put without a tag has tag 0
 * @hints: put: &enum kvblk_hints; else 0
 * @reserved: must be 0
 *
 * Grows at the end. 64 bits for the tags, so that they hold hashes or addresses.
 */
struct kvblk_op_ext {
	__u32 size;
	__u32 flags;
	__aligned_u64 parent;
	__u32 parent_len;
	__u32 nr_checksums;
	__aligned_u64 checksums;
	__aligned_u64 layout_tag;
	__aligned_u64 caller_tag;
	__u32 hints;
	__u32 reserved;
};

/**
 * enum kvblk_result_flags - &struct kvblk_result.flags
 * @KVBLK_RES_DIRECT: the device moved the bytes from or to the caller's memory
 * @KVBLK_RES_BOUNCED: the bytes went through kernel memory
 * @KVBLK_RES_LEN_DIFFERS: with -EEXIST: the stored block has another length
 * @KVBLK_RES_CHECKSUMS: get: the room for checksums has been filled in
 * @KVBLK_RES_DEVICE_READ: put: the CPU read a device's memory across its bus,
 *	word by word. To be faster, let the device copy the block to host memory and
 *	put from there
 * @KVBLK_RES_MEMORY: put: the block is in host memory and on no member yet; get: the
 *	block was read from host memory. Set with KVBLK_RES_BOUNCED
 * @KVBLK_RES_UNREPORTED: only in a 32-byte completion of KVBLK_URING_OP: @result was
 *	not written, because its memory changed since the start of the operation, or
 *	because the ring is being closed or its task exits, so that no task of the caller
 *	completes the operation. The completion's res is the operation's all the same
 * @KVBLK_RES_FOREIGN: get: the block was read from a member of another node of the pod
 *
 * Later versions define further bits: ignore unknown ones.
 */
enum kvblk_result_flags {
	KVBLK_RES_DIRECT	= 1U << 0,
	KVBLK_RES_BOUNCED	= 1U << 1,
	KVBLK_RES_LEN_DIFFERS	= 1U << 2,
	KVBLK_RES_CHECKSUMS	= 1U << 3,
	KVBLK_RES_DEVICE_READ	= 1U << 4,
	KVBLK_RES_MEMORY	= 1U << 5,
	KVBLK_RES_UNREPORTED	= 1U << 6,
	KVBLK_RES_FOREIGN	= 1U << 7,
};

/**
 * struct kvblk_result - result of one operation
 * @cookie: the operation's cookie
 * @res: bytes stored or fetched (delete, hint: 0), or a negative errno as listed at
 *	the top of this file
 * @flags: &enum kvblk_result_flags
 * @value_len: the block's length where it is known, else 0
 * @reserved: 0
 * @layout_tag: get: the block's layout tag
 * @caller_tag: get: the block's caller tag
 *
 * Grows at the end: the caller passes the bytes from one result to the next. @res has
 * 32 bits, as an io_uring completion, because KVBLK_VALUE_MAX fits.
 */
struct kvblk_result {
	__aligned_u64 cookie;
	__s32 res;
	__u32 flags;
	__u32 value_len;
	__u32 reserved;
	__aligned_u64 layout_tag;
	__aligned_u64 caller_tag;
};

/**
 * enum kvblk_submit_flags - &struct kvblk_submit_arg.flags
 * @KVBLK_SUBMIT_CHAIN: the puts of this batch are consecutive blocks of one chain,
 *	first block first. A chain is the run of blocks of a prompt; the key of a block
 *	names the prefix up to and including the block. The pool admits a leading part
 *	of the chain, which may be nothing or all
 * @KVBLK_SUBMIT_INTERRUPTIBLE: a signal that has a handler or kills the task ends the
 *	batch. Operations that have not begun, and those in flight through kernel memory,
 *	end with -ECANCELED. A transfer between a device and the caller's memory ends
 *	with -ECANCELED or its own result when the device has completed it, a delete in
 *	flight with its own result. The call then returns 0 with all results. Stops,
 *	continues, debuggers and the freezer do not end the batch. Without this flag
 *	only a fatal signal ends a batch
 *
 * The call returns within 0.2 seconds after the signal, unless
 *  - a delete, or a transfer between a device and the caller's memory, is in flight: no
 *    I/O is recalled. The device completes it, or its driver ends it (for NVMe over
 *    Fabrics after io_timeout, and fast_io_fail_tmo without a connection);
 *  - the kernel needs a page of the caller: then when the pager provides it.
 */
enum kvblk_submit_flags {
	KVBLK_SUBMIT_CHAIN		= 1U << 0,
	KVBLK_SUBMIT_INTERRUPTIBLE	= 1U << 1,
};

/**
 * struct kvblk_submit_arg - argument of KVBLK_IOC_SUBMIT and KVBLK_URING_SUBMIT
 * @size: sizeof(struct kvblk_submit_arg)
 * @flags: &enum kvblk_submit_flags
 * @nr_ops: operations, 1 to KVBLK_OPS_MAX
 * @op_size: bytes from one operation to the next, KVBLK_OP_SIZE_VER0 to
 *	KVBLK_STRUCT_MAX; bytes behind what the kernel knows must be zero
 * @result_size: bytes from one result to the next, KVBLK_RESULT_SIZE_VER0 to
 *	KVBLK_STRUCT_MAX; bytes behind what the kernel knows are set to zero
 * @reserved: must be 0
 * @ops: user address of the operations
 * @results: user address of the results, one for each operation, same order
 *
 * All operations are in flight at once; the call returns when each has its
 * result. The call may sleep. It returns 0 when there are results, even if
 * operations failed, so look at each result. Operations of a batch on the same key
 * are not ordered.
 *
 * Grows at the end. 32 bits for count and strides, because KVBLK_OPS_MAX may grow, and
 * KVBLK_STRUCT_MAX bounds a stride.
 */
struct kvblk_submit_arg {
	__u32 size;
	__u32 flags;
	__u32 nr_ops;
	__u32 op_size;
	__u32 result_size;
	__u32 reserved;
	__aligned_u64 ops;
	__aligned_u64 results;
};

/**
 * enum kvblk_lookup_flags - &struct kvblk_lookup.flags
 * @KVBLK_LOOKUP_LEASE: lease what is found, see @lease_ms
 * @KVBLK_LOOKUP_PREFIX: stop at the first absent key; nothing behind it is
 *	reported or leased
 * @KVBLK_LOOKUP_QUIET: do not refresh what is found
 */
enum kvblk_lookup_flags {
	KVBLK_LOOKUP_LEASE	= 1U << 0,
	KVBLK_LOOKUP_PREFIX	= 1U << 1,
	KVBLK_LOOKUP_QUIET	= 1U << 2,
};

/**
 * enum kvblk_tier - where a block is
 * @KVBLK_TIER_NONE: nowhere
 * @KVBLK_TIER_MEMBER: on a member
 * @KVBLK_TIER_MEMORY: in the host's memory, and perhaps on a member, too
 * @KVBLK_TIER_FOREIGN: on a member of another node of the pod
 */
enum kvblk_tier {
	KVBLK_TIER_NONE		= 0,
	KVBLK_TIER_MEMBER	= 1,
	KVBLK_TIER_MEMORY	= 2,
	KVBLK_TIER_FOREIGN	= 3,
};

/**
 * struct kvblk_lookup - argument of KVBLK_IOC_LOOKUP
 * @size: sizeof(struct kvblk_lookup)
 * @flags: &enum kvblk_lookup_flags
 * @nr_keys: 1 to KVBLK_LOOKUP_MAX
 * @key_stride: bytes from one key to the next in the blob when @key_lens is
 *	0: all keys have this length, 1 to KVBLK_KEY_MAX. With @key_lens: 0
 * @keys: user address of the keys, packed one behind the other
 * @key_lens: user address of a __u16 length for each key, or 0
 * @bitmap: user address of (nr_keys + 7) / 8 bytes; bit i (of byte i / 8, LSB
 *	first) is set when key i is present; or 0
 * @sizes: user address of a __u32 for each key: the block's length, 0 for an
 *	absent one; or 0
 * @caller_tags: user address of a __u64 for each key, 0 for an absent one; or 0
 * @tiers: user address of a byte for each key: &enum kvblk_tier; or 0
 * @lease_ms: with KVBLK_LOOKUP_LEASE: 1 to KVBLK_LEASE_MS_MAX; else 0
 * @nr_leading: out: present keys before the first absent one
 * @nr_present: out: present keys
 * @nr_leased: out: keys leased, from the first on. Less than @nr_present if the open
 *	file reaches a limit on leases (keys; bytes of a member; bytes of host memory),
 *	or if a block is evicted or deleted during the lookup
 * @lease: out: the lease's id, 0 when nothing was leased. A lease ends with
 *	KVBLK_IOC_LEASE_RELEASE, at @lease_end_ns, or when the file is closed
 * @lease_end_ns: out: CLOCK_MONOTONIC time, as the caller reads it in its time
 *	namespace, at which the lease ends; 0 without @lease
 * @times: user address of a __u32 for each key: microseconds until the blocks of all
 *	present keys up to this one have been read, if gets of all of them are submitted
 *	now; 0 for an absent one; or 0. See KVBLK_FEAT_TIMES
 *
 * A predicted time is what the member has in flight, and the bytes of the blocks, at the
 * bandwidth that the member had when it was busy last; the slowest member counts. So the
 * times never decrease from one present key to the next. Blocks in the host's memory add
 * nothing, nor do those of a member whose bandwidth is unknown, because it was not busy
 * for some minutes. The prediction is no promise: it knows no later I/O, of others either.
 *
 * Does no I/O; may wait for the daemon of a pod if a key is absent, see &struct
 * kvblk_peers. A leased block stays readable until the lease ends, unless its
 * member fails, the block expires, or a caller deletes the block. A block of another
 * node (KVBLK_TIER_FOREIGN) is kept by the pod's reuse grace only: a lease that
 * includes one ends within it, some seconds, whatever @lease_ms. A get may miss before,
 * if the block's owner has reclaimed it and this node has seen that.
 *
 * Refreshes the present blocks before the first absent one: as after a get, the pool
 * evicts them later, and &enum kvblk_dram_mode counts them as asked for. Other found
 * blocks, and all with KVBLK_LOOKUP_QUIET, keep their age. The counters of the pool count
 * every lookup.
 *
 * Grows at the end. 32 bits for the counts, because KVBLK_LOOKUP_MAX may grow.
 */
struct kvblk_lookup {
	__u32 size;
	__u32 flags;
	__u32 nr_keys;
	__u32 key_stride;
	__aligned_u64 keys;
	__aligned_u64 key_lens;
	__aligned_u64 bitmap;
	__aligned_u64 sizes;
	__aligned_u64 caller_tags;
	__aligned_u64 tiers;
	__u32 lease_ms;
	__u32 nr_leading;
	__u32 nr_present;
	__u32 nr_leased;
	__aligned_u64 lease;
	__aligned_u64 lease_end_ns;
	__aligned_u64 times;
};

/**
 * struct kvblk_lease_release_arg - argument of KVBLK_IOC_LEASE_RELEASE
 * @size: sizeof(struct kvblk_lease_release_arg)
 * @flags: must be 0
 * @lease: the lease's id, from a lookup through the same open file; not 0
 *
 * Return: 0, or -ENOENT when there is no such lease, or it has ended.
 *
 * Grows at the end. 64 bits for @lease, because an id is never used twice.
 */
struct kvblk_lease_release_arg {
	__u32 size;
	__u32 flags;
	__aligned_u64 lease;
};

/**
 * struct kvblk_cancel_arg - argument of KVBLK_IOC_CANCEL and KVBLK_URING_CANCEL
 * @size: sizeof(struct kvblk_cancel_arg)
 * @flags: must be 0
 * @cookie: of the operations, submitted through the same open file; not 0
 * @nr_found: out: operations in flight with this cookie
 * @reserved: must be 0
 *
 * A canceled operation completes with -ECANCELED when no device owns its memory: at
 * once, or when the device has completed the I/O. A put with result -ECANCELED is not
 * stored. Too late to cancel are a get whose bytes are being delivered and a delete that
 * has begun: such an operation completes with its own result.
 *
 * Return: 0, or -ENOENT when @nr_found is 0; the structure is written back in both cases.
 *
 * Grows at the end. 64 bits for @cookie, so that it can hold an address of the caller.
 */
struct kvblk_cancel_arg {
	__u32 size;
	__u32 flags;
	__aligned_u64 cookie;
	__u32 nr_found;
	__u32 reserved;
};

/**
 * struct kvblk_drain_arg - argument of KVBLK_IOC_DRAIN
 * @size: sizeof(struct kvblk_drain_arg)
 * @flags: must be 0
 * @deadline_ns: as in &struct kvblk_op
 *
 * Waits for all operations of this open file that are in flight at the call: until
 * each has its result, and until abandoned operations (canceled, past a hard deadline,
 * of a killed task or a closed ring) no longer use memory or device. The call does not
 * wait for operations of other files, for later operations, or for operations that a
 * ring has not issued yet.
 *
 * Until then the device may still write to the memory of an abandoned operation. Only
 * operations on anonymous memory of the caller's own address space, registered or not,
 * are abandoned, because the kernel reuses such memory only after the device is done.
 * Other memory that a get writes to may have other users when the caller has exited:
 * shared mappings, files, devices, buffers of a ring or registered by another process,
 * an address space that processes share (CLONE_VM). The kernel waits for such a get: a
 * task that is killed in an ioctl waits there; close(2) of the node, which an exit
 * implies, waits for the gets of rings. So keep a descriptor of the node open while a
 * ring uses the node through a registered file alone.
 *
 * An operation of a ring is complete when the ring's task has run its task work. With
 * IORING_SETUP_DEFER_TASKRUN the task does so when reaping: a task that drains while its
 * own such ring has operations in flight waits until the deadline. A task that waits for
 * n completions of such a ring reaps gets when there are n, so that wait must not depend
 * on a task that drains, or that unregisters with KVBLK_UNREG_WAIT.
 *
 * Return: 0; -ETIME: the deadline passed first; -EINTR: a signal.
 *
 * Grows at the end. 64 bits of nanoseconds, as all times of this header.
 */
struct kvblk_drain_arg {
	__u32 size;
	__u32 flags;
	__aligned_u64 deadline_ns;
};

/**
 * enum kvblk_buf_type - kind of memory to register
 * @KVBLK_BUF_USER: memory of the calling process
 */
enum kvblk_buf_type {
	KVBLK_BUF_USER		= 0,
};

/**
 * struct kvblk_reg_buf_arg - argument of KVBLK_IOC_REG_BUF
 * @size: sizeof(struct kvblk_reg_buf_arg)
 * @flags: must be 0
 * @type: &enum kvblk_buf_type
 * @reserved: must be 0
 * @addr: user address of the memory, any alignment
 * @length: bytes, 1 to 64 GiB
 * @handle: in: 0; out: name of the buffer in this open file, not 0
 * @reserved2: must be 0
 *
 * The pages stay pinned, and count as locked memory of the caller's user, until
 * KVBLK_IOC_UNREG_BUF or the file's release, and then until operations on the
 * pages complete. The pages count as io_uring's buffers do: for all processes of
 * the user together, and a huge page as a whole. Operations on registered memory
 * pin and fault nothing. The handle names the pages that were mapped at @addr at
 * the time of the call, even if other memory is mapped there later.
 *
 * Memory of one PCI device (its P2PDMA pages) does not count as locked memory. It
 * stays registered only while it is mapped: until the mapping is removed or moved,
 * the process exits, or the device's driver unbinds. From then on operations on it
 * fail with -ENXIO, and the caller still has to unregister the handle. Before the
 * driver frees such memory or unbinds, the driver waits for operations in flight,
 * and for nothing else.
 *
 * Return: 0; -EOPNOTSUPP: an unknown flag or type; -EINVAL: a field out of range;
 * -ENOMEM: no memory, or the limit on locked memory (RLIMIT_MEMLOCK); -EFAULT: not
 * memory that can be pinned for writing; -EXDEV: memory of the host and of a
 * device, or of two devices, or of a device on a kernel without
 * CONFIG_MMU_NOTIFIER; -ENOSPC: the file has 65536 regions; -EINTR: a signal, try
 * again.
 *
 * Grows at the end. @length has 64 bits, because a region may be longer than a block;
 * @handle has 32, as &struct kvblk_piece.handle.
 */
struct kvblk_reg_buf_arg {
	__u32 size;
	__u32 flags;
	__u32 type;
	__u32 reserved;
	__aligned_u64 addr;
	__aligned_u64 length;
	__u32 handle;
	__u32 reserved2;
};

/**
 * enum kvblk_unreg_flags - &struct kvblk_unreg_buf_arg.flags
 * @KVBLK_UNREG_WAIT: return when no operation uses the memory any more. From the
 *	call on, operations that name the handle fail with -ENXIO, also after -EINTR.
 *	After -EINTR the handle still exists: the caller can wait again, or
 *	unregister without this flag. Rings count as for &struct kvblk_drain_arg.
 */
enum kvblk_unreg_flags {
	KVBLK_UNREG_WAIT	= 1U << 0,
};

/**
 * struct kvblk_unreg_buf_arg - argument of KVBLK_IOC_UNREG_BUF
 * @size: sizeof(struct kvblk_unreg_buf_arg)
 * @flags: &enum kvblk_unreg_flags
 * @handle: a registered buffer of this open file
 * @reserved: must be 0
 *
 * Return: 0; -ENOENT: no such buffer, or it has been unregistered; with
 * KVBLK_UNREG_WAIT: -EINTR: a signal; -EBUSY: another thread already waits.
 *
 * Grows at the end. 32 bits for @handle, as &struct kvblk_piece.handle.
 */
struct kvblk_unreg_buf_arg {
	__u32 size;
	__u32 flags;
	__u32 handle;
	__u32 reserved;
};

/**
 * enum kvblk_changes_flags - bits of &struct kvblk_changes.flags
 * @KVBLK_CHANGES_PRESENT: begin with records of all present blocks
 */
enum kvblk_changes_flags {
	KVBLK_CHANGES_PRESENT	= 1U << 0,
};

/**
 * struct kvblk_changes - argument of KVBLK_IOC_CHANGES
 * @size: sizeof(struct kvblk_changes)
 * @flags: &enum kvblk_changes_flags; -EOPNOTSUPP: an unknown one
 * @nr_records: unread records that the feed holds: a power of two from
 *	KVBLK_CHANGES_MIN to KVBLK_CHANGES_MAX. The memory, sizeof(struct kvblk_change)
 *	of the kernel for each, is charged to the caller
 * @record_size: bytes from one record to the next, KVBLK_CHANGE_SIZE_VER0 to
 *	KVBLK_STRUCT_MAX; bytes behind what the kernel knows are set to zero
 *
 * Starts the feed of an open /dev/kvblk/POOL/changes: the changes from the call on of
 * the pool's blocks that have a caller tag, of all tenants except that of the node for
 * NVMe commands. The node knows no other command. Its owner and group decide who may
 * read it; no capability is needed. Each open of the node has a feed of its own.
 *
 * read() returns whole &struct kvblk_change, each @record_size bytes behind the previous
 * one. It waits until there is one, but not on a file with O_NONBLOCK. poll() reports
 * EPOLLIN when read() would not wait. A record that can't be copied (-EFAULT) is not lost.
 * Errors of read():
 *  -EINVAL  the feed was not started (poll() reports EPOLLERR), or the buffer is too short
 *	     for 4 records
 *  -EAGAIN  O_NONBLOCK: there is no record, or another thread is reading
 *  -EINTR   a signal came before the first record
 * An open node does not delay the end of its pool. At the end poll() reports EPOLLHUP, and
 * read() returns 0 after the last record.
 *
 * With KVBLK_CHANGES_PRESENT the records add up to the set of tokens in the pool: STORED
 * adds a token, or changes its fields; REMOVED removes one, if it is in the set. When all
 * records were read, the last one of a token is its state. For a block that reclaim
 * dropped, that expired, or whose member failed, REMOVED is reported when the index frees
 * the entry: up to half a minute later.
 *
 * Puts and deletes do not wait for readers. If the feed is full, it drops records until all
 * unread ones were read; then KVBLK_CHANGE_LOST has their number. The reader no longer
 * knows the set, and opens the node again.
 *
 * Return: 0; -EBUSY: the feed was started before; -EMFILE: the pool has 16 feeds;
 * -ENODEV: the pool is destroyed; -ENOMEM; -EINVAL.
 *
 * Grows at the end. 32 bits for both counts, because KVBLK_CHANGES_MAX is far below.
 */
struct kvblk_changes {
	__u32 size;
	__u32 flags;
	__u32 nr_records;
	__u32 record_size;
};

/**
 * enum kvblk_change_op - kind of a record
 * @KVBLK_CHANGE_STORED: the block is in the pool; may be repeated for a block
 * @KVBLK_CHANGE_REMOVED: the block is not in the pool any more
 * @KVBLK_CHANGE_CAUGHT_UP: all blocks present at the start of the feed have been
 *	reported; records of later changes may come before and after
 * @KVBLK_CHANGE_LOST: records are missing here, because the feed was full: &struct
 *	kvblk_change.token[0] of them, from the number &struct kvblk_change.seq on
 */
enum kvblk_change_op {
	KVBLK_CHANGE_STORED	= 1,
	KVBLK_CHANGE_REMOVED	= 2,
	KVBLK_CHANGE_CAUGHT_UP	= 3,
	KVBLK_CHANGE_LOST	= 4,
};

/**
 * struct kvblk_change - a change of a block
 * @seq: number of the record in this feed, from 1 on. Lost records have numbers, LOST has
 *	that of the first of them. 0 for blocks that were present at the start, and for
 *	CAUGHT_UP, which have no place among the changes
 * @token: identifies the block while the pool is up, the same in all feeds: a hash of 128
 *	bits (SipHash-2-4) of the part of the block's id that the pool keeps in memory, which
 *	no two of its blocks have in common. The key of the hash is random, and new whenever
 *	the pool is created or imported, so a token says nothing about the block's key. A
 *	block has its token also after reclaim moved it, and when it is stored again
 * @caller_tag: of the put
 * @length: of the block, bytes
 * @tenant: owner of the block
 * @op: &enum kvblk_change_op; skip records with an unknown one
 * @reserved: 0
 *
 * 48 bytes in version 2: @token has 128 bits, so that sets of tokens are right, because
 * hashes of 64 bits of a billion blocks collide; @op has the 32 bits that alignment
 * leaves. Grows at the end, see &struct kvblk_changes.record_size.
 */
struct kvblk_change {
	__aligned_u64 seq;
	__aligned_u64 token[2];
	__aligned_u64 caller_tag;
	__u32 length;
	__u32 tenant;
	__u32 op;
	__u32 reserved;
};

/**
 * struct kvblk_peers - argument of KVBLK_IOC_PEERS
 * @size: sizeof(struct kvblk_peers)
 * @flags: 0; -EOPNOTSUPP: another value
 * @span: one of @span records of a segment is an anchor, and so is the first block of each
 *	run of puts. Up to KVBLK_PEERS_SPAN_MAX; 0: no directory, so no anchors are reported
 *	and lookups do not ask
 * @ask_ms: longest wait of a lookup for an answer, 1 to KVBLK_PEERS_WAIT_MAX milliseconds;
 *	0 if @span is 0
 * @delete_ms: longest wait of a delete for an answer, 1 to KVBLK_PEERS_WAIT_MAX milliseconds
 * @reserved: 0
 *
 * Makes the open node /dev/kvblk/POOL/peers the daemon that speaks to other nodes of the
 * pod. The node has no other command. Root owns the node; an open needs CAP_SYS_ADMIN. At
 * the close, or when the process dies, all questions end without an answer.
 *
 * read() returns one message: &struct kvblk_peers_msg and the entries that its @nr
 * announces. Without a message read() waits, but not with O_NONBLOCK. poll() reports
 * EPOLLIN when read() would not wait. write() takes one message, the answer to a question
 * that was read. Errors of both:
 *  -EINVAL  KVBLK_IOC_PEERS was not called; read(): a buffer below KVBLK_PEERS_MSG_MAX;
 *	     write(): not one whole answer, a reserved field is not 0, or a result that no
 *	     delete has
 *  -EAGAIN  O_NONBLOCK: there is no message
 *  -EINTR   a signal
 *  -ENOENT  write(): no caller waits for this answer
 *  -ENODEV  write(): the pool is destroyed; read() returns 0 then, poll() EPOLLHUP
 *  -ENOMEM  write()
 *  -EFAULT  a bad address; a message that read() could not copy is lost
 *
 * 64 questions wait at most. Beyond that, lookups do not ask, and deletes fail with
 * -EREMOTE. Each second new anchors are reported, unless 4,096 have not been read yet; the
 * anchors of all present blocks come first.
 *
 * Return: 0; -EBUSY: the pool has a daemon; -ENOTCONN: the pool is in no pod; -ENODEV: the
 * pool is destroyed; -ENOMEM; -EINVAL: a value is out of range.
 *
 * Grows at the end.
 */
struct kvblk_peers {
	__u32 size;
	__u32 flags;
	__u32 span;
	__u32 ask_ms;
	__u32 delete_ms;
	__u32 reserved;
};

/**
 * enum kvblk_peers_type - kind of a message
 * @KVBLK_PEERS_ANCHORS: from the module: some blocks of own members that other nodes can
 *	read now. Entries: &struct kvblk_anchor. None: those of all present blocks were
 *	reported
 * @KVBLK_PEERS_ASK: from the module: a lookup misses blocks. Entries: &struct
 *	kvblk_peers_id, the first missing blocks, at most 64
 * @KVBLK_PEERS_HINTS: to the module: the answer to KVBLK_PEERS_ASK. Entries: &struct
 *	kvblk_anchor, as the owner reported it. May have none
 * @KVBLK_PEERS_DELETE: from the module: blocks of one owner to delete. Entries: &struct
 *	kvblk_peers_id
 * @KVBLK_PEERS_DELETED: to the module: the answer to KVBLK_PEERS_DELETE. Entries: &struct
 *	kvblk_peers_result for each block, in order. None: the owner can't be reached
 */
enum kvblk_peers_type {
	KVBLK_PEERS_ANCHORS	= 1,
	KVBLK_PEERS_ASK		= 2,
	KVBLK_PEERS_HINTS	= 3,
	KVBLK_PEERS_DELETE	= 4,
	KVBLK_PEERS_DELETED	= 5,
};

/**
 * struct kvblk_peers_msg - head of a message
 * @type: &enum kvblk_peers_type; skip messages with an unknown one
 * @nr: number of entries behind this structure
 * @cookie: names a question and its answer. 0 in KVBLK_PEERS_ANCHORS
 * @pool_uuid: KVBLK_PEERS_DELETE: the owner's pool; else 0
 * @node: KVBLK_PEERS_DELETE: the owner's node id; else 0
 *
 * A message with its entries has at most KVBLK_PEERS_MSG_MAX bytes.
 */
struct kvblk_peers_msg {
	__u32 type;
	__u32 nr;
	__aligned_u64 cookie;
	__u8 pool_uuid[16];
	__u8 node[16];
};

/**
 * struct kvblk_peers_id - a block
 * @id: the block's id, the same on all nodes of a pod
 */
struct kvblk_peers_id {
	__u8 id[16];
};

/**
 * struct kvblk_anchor - place of an anchor
 * @id: the block's id
 * @member: uuid of the member
 * @generation: of the segment; a segment with another one has lost the block
 * @segment: number of the segment in the member
 * @reserved: 0
 */
struct kvblk_anchor {
	__u8 id[16];
	__u8 member[16];
	__aligned_u64 generation;
	__u32 segment;
	__u32 reserved;
};

/**
 * struct kvblk_peers_result - outcome of a delete
 * @res: 0, -ENOENT, -EBUSY or -EIO, which the delete reports. Or -EREMOTE, -ENODEV,
 *	-ENOMEM, -ETIME or -ECANCELED of the owner: the delete reports -EREMOTE
 */
struct kvblk_peers_result {
	__s32 res;
};

/*
 * The rule for numbers: a command that takes the address of a structure has a
 * number without a size, because the structure begins with its size and may grow. A
 * command that carries the structure itself has the structure's size in its number.
 */
#define KVBLK_IOC_INFO		_IO(KVBLK_IOC_TYPE, 0x00)
#define KVBLK_IOC_SUBMIT	_IO(KVBLK_IOC_TYPE, 0x01)
#define KVBLK_IOC_LOOKUP	_IO(KVBLK_IOC_TYPE, 0x02)
#define KVBLK_IOC_LEASE_RELEASE	_IO(KVBLK_IOC_TYPE, 0x03)
#define KVBLK_IOC_CANCEL	_IO(KVBLK_IOC_TYPE, 0x04)
#define KVBLK_IOC_REG_BUF	_IO(KVBLK_IOC_TYPE, 0x05)
#define KVBLK_IOC_UNREG_BUF	_IO(KVBLK_IOC_TYPE, 0x06)
#define KVBLK_IOC_DRAIN		_IO(KVBLK_IOC_TYPE, 0x07)
#define KVBLK_IOC_CHANGES	_IO(KVBLK_IOC_TYPE, 0x08)	/* of the node "changes" */
#define KVBLK_IOC_PEERS		_IO(KVBLK_IOC_TYPE, 0x09)	/* of the node "peers" */

/*
 * Commands of io_uring: IORING_OP_URING_CMD on the node, with cmd_op
 *  KVBLK_URING_OP      runs the &struct kvblk_op in the command area of a 128-byte SQE
 *  KVBLK_URING_SUBMIT  runs the batch of the &struct kvblk_submit_arg whose address is in the
 *                      first 8 bytes of the command area. A worker of the ring runs it;
 *                      IORING_OP_ASYNC_CANCEL ends it as a signal ends an interruptible
 *                      one, but at once: use KVBLK_IOC_DRAIN before its memory is reused
 *  KVBLK_URING_CANCEL  as KVBLK_IOC_CANCEL, with the address of the &struct kvblk_cancel_arg
 *                      in the first 8 bytes of the command area
 * All other fields of the SQE must be zero (else -EINVAL): the rest of the command
 * area, which has 80 bytes in a 128-byte SQE; addr, len, file_index;
 * uring_cmd_flags except IORING_URING_CMD_FIXED; buf_index without that flag.
 *
 * The completion's res of KVBLK_URING_OP is &struct kvblk_result.res, always; that of
 * the other commands is 0 or an error of the whole ioctl. With IORING_SETUP_CQE32 the
 * first extra word has the result's @flags in its low and @value_len in its high 32 bits;
 * the second is 0. More is in &struct kvblk_op.result, which the kernel sets to zero when the
 * operation starts (-EFAULT: it can't, nothing was done) and fills in before the
 * completion. A command that is refused before it becomes an operation has no result: its
 * res is an error of the whole ioctl, and @result holds zeroes or what was there before.
 * All memory that an operation or a batch points to must stay valid until the completion.
 *
 * IORING_URING_CMD_FIXED, with KVBLK_URING_OP: the operation's memory is one registered
 * buffer of the ring (sqe->buf_index): nr_pieces is 0, pieces is the address in the
 * buffer, and length is the bytes to put, or the room for the get.
 *
 * When a ring is closed or its process exits, its operations end at once, except those
 * on fixed buffers and gets into memory that others may use (see &struct kvblk_drain_arg),
 * which wait for the device. In a worker of the ring, as with IOSQE_ASYNC, such a get
 * goes through kernel memory. When only a thread exits, operations that it submitted end
 * with -ECANCELED, but perhaps not before the device has completed them.
 */
#define KVBLK_URING_OP		_IOWR(KVBLK_IOC_TYPE, 0x40, struct kvblk_op)
#define KVBLK_URING_SUBMIT	_IO(KVBLK_IOC_TYPE, 0x41)
#define KVBLK_URING_CANCEL	_IO(KVBLK_IOC_TYPE, 0x42)

#endif /* _UAPI_LINUX_KVBLK_H */
