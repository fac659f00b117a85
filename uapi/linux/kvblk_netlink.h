/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause) */
/* Do not edit directly, auto-generated from: */
/*	uapi/netlink/kvblk.yaml */
/* YNL-GEN uapi header */
/* To regenerate run: uapi/netlink/regen KERNEL-SOURCE */

#ifndef _UAPI_LINUX_KVBLK_NETLINK_H
#define _UAPI_LINUX_KVBLK_NETLINK_H

#define KVBLK_FAMILY_NAME	"kvblk"
#define KVBLK_FAMILY_VERSION	1

#define KVBLK_NAME_LEN_MAX	31
#define KVBLK_PATH_LEN_MAX	4095
#define KVBLK_PLACE_LEN_MAX	239
#define KVBLK_DEVNODE_LEN_MAX	45
#define KVBLK_LATENCY_LEN_MAX	512

/**
 * enum kvblk_pool_flag - What a pool is made as.
 * @KVBLK_POOL_FLAG_STRICT: All transfers go through kernel memory, none
 *   directly.
 */
enum kvblk_pool_flag {
	KVBLK_POOL_FLAG_STRICT = 1,
};

/**
 * enum kvblk_add_flag - How to take a device as a member.
 * @KVBLK_ADD_FLAG_FORMAT: Make new, empty members, whatever the devices hold.
 *   Without it, only blank devices become new members. Not for pool-import.
 * @KVBLK_ADD_FLAG_FORCE: Take the device although another node owns it and did
 *   not let go of it in good order, or although it may be an old copy of the
 *   member.
 * @KVBLK_ADD_FLAG_DEGRADED: Import the pool without those members that are
 *   missing or out of date. For pool-import only.
 * @KVBLK_ADD_FLAG_RENAME: Bring the pool back under another name than that on
 *   its members. For pool-import only.
 */
enum kvblk_add_flag {
	KVBLK_ADD_FLAG_FORMAT = 1,
	KVBLK_ADD_FLAG_FORCE = 2,
	KVBLK_ADD_FLAG_DEGRADED = 4,
	KVBLK_ADD_FLAG_RENAME = 8,
};

/**
 * enum kvblk_member_status - What a member does.
 * @KVBLK_MEMBER_STATUS_RESTORING: It is finding its blocks again and does not
 *   serve yet.
 * @KVBLK_MEMBER_STATUS_UP: It serves.
 * @KVBLK_MEMBER_STATUS_DEAD: Its device is gone. Nothing of it is served.
 * @KVBLK_MEMBER_STATUS_REMOVING: It is on its way out.
 * @KVBLK_MEMBER_STATUS_MISSING: It belongs to the pool, but its device is not
 *   there. Of its attributes there are pool, name, uuid, state and place.
 * @KVBLK_MEMBER_STATUS_UNRESTORED: Its blocks could not be read, and are all
 *   there: member-add of its device tries again, as does the next import of
 *   the pool. Nothing of it is served.
 */
enum kvblk_member_status {
	KVBLK_MEMBER_STATUS_RESTORING,
	KVBLK_MEMBER_STATUS_UP,
	KVBLK_MEMBER_STATUS_DEAD,
	KVBLK_MEMBER_STATUS_REMOVING,
	KVBLK_MEMBER_STATUS_MISSING,
	KVBLK_MEMBER_STATUS_UNRESTORED,
};

/**
 * enum kvblk_route_status - How a member reaches a PCI device's memory.
 * @KVBLK_ROUTE_STATUS_UNKNOWN: Nothing was put from or got into the device's
 *   memory yet; then the way is tried out once.
 * @KVBLK_ROUTE_STATUS_DIRECT: The member transfers.
 * @KVBLK_ROUTE_STATUS_BOUNCE: Blocks go through kernel memory.
 * @KVBLK_ROUTE_STATUS_TRIAL: The device gives no memory to try the way with,
 *   so it is tried with the memory of callers, puts and gets each on their
 *   own.
 */
enum kvblk_route_status {
	KVBLK_ROUTE_STATUS_UNKNOWN,
	KVBLK_ROUTE_STATUS_DIRECT,
	KVBLK_ROUTE_STATUS_BOUNCE,
	KVBLK_ROUTE_STATUS_TRIAL,
};

/**
 * enum kvblk_stats_scope - What each message of a dump of statistics is about.
 * @KVBLK_STATS_SCOPE_POOL: A pool.
 * @KVBLK_STATS_SCOPE_MEMBER: A member, missing ones excepted. Of its counters
 *   there are those of the set member-counter, of its latencies put and get.
 * @KVBLK_STATS_SCOPE_SIZE: A class of sizes, of a pool. Of its statistics
 *   there are the latencies of put and get.
 */
enum kvblk_stats_scope {
	KVBLK_STATS_SCOPE_POOL,
	KVBLK_STATS_SCOPE_MEMBER,
	KVBLK_STATS_SCOPE_SIZE,
};

/**
 * enum kvblk_event - What happened. Some carry an attribute that tells more.
 * @KVBLK_EVENT_POOL_UP: A pool was made.
 * @KVBLK_EVENT_POOL_DOWN: A pool was destroyed.
 * @KVBLK_EVENT_MEMBER_UP: A member serves. Carries blocks.
 * @KVBLK_EVENT_MEMBER_DOWN: A member was removed.
 * @KVBLK_EVENT_MEMBER_DEAD: A member's device is gone.
 * @KVBLK_EVENT_MEMBER_SUSPECT: A member does not answer; its blocks are misses
 *   until it does. Carries silence-ms.
 * @KVBLK_EVENT_MEMBER_ANSWERS: A suspect, failing, read-only or fenced member
 *   answers well again.
 * @KVBLK_EVENT_CHECKSUM: Blocks failed their checks: the first one, or those
 *   of the last minute. Carries segment. Without a member, blocks in the
 *   host's memory did.
 * @KVBLK_EVENT_READ_ERROR: A member failed reads: the first one, or those of
 *   the last minute. Carries segment.
 * @KVBLK_EVENT_WRITE_ERROR: A member failed writes: the first one, or those of
 *   the last minute. Carries segment.
 * @KVBLK_EVENT_RECLAIM_RATE: More segments are reclaimed than the tunable
 *   reclaim_event_rate says. Carries segments-reclaimed.
 * @KVBLK_EVENT_LOW_SPACE: A member fell below its low watermark for the first
 *   time since it came: from now on reclaim makes room. Normal once a pool is
 *   full. Carries free-segments.
 * @KVBLK_EVENT_RESTORE_FAILED: A member's blocks could not be found again.
 *   Carries error.
 * @KVBLK_EVENT_REQUEST_DONE: A request that was answered with -EINPROGRESS has
 *   ended. Carries request, and error, 0 if it succeeded. When it failed, the
 *   kernel's log has the sentence.
 * @KVBLK_EVENT_MEMBER_FAILING: A member answers with errors; its blocks are
 *   misses until it answers well for a while. Carries io-errors.
 * @KVBLK_EVENT_MEMBER_READ_ONLY: A member answers writes with errors, and
 *   reads well: its blocks are served, and puts go to other members, until it
 *   answers well for a while. Carries io-errors.
 * @KVBLK_EVENT_NO_SPACE: Puts found no room: the first ones, or those of the
 *   last minute. Carries puts.
 * @KVBLK_EVENT_MEMBER_FENCED: A member of a pool in a pod lost its reservation
 *   to another node, or its device lost it: its blocks are served, and nothing
 *   is written.
 */
enum kvblk_event {
	KVBLK_EVENT_POOL_UP = 1,
	KVBLK_EVENT_POOL_DOWN,
	KVBLK_EVENT_MEMBER_UP,
	KVBLK_EVENT_MEMBER_DOWN,
	KVBLK_EVENT_MEMBER_DEAD,
	KVBLK_EVENT_MEMBER_SUSPECT,
	KVBLK_EVENT_MEMBER_ANSWERS,
	KVBLK_EVENT_CHECKSUM,
	KVBLK_EVENT_READ_ERROR,
	KVBLK_EVENT_WRITE_ERROR,
	KVBLK_EVENT_RECLAIM_RATE,
	KVBLK_EVENT_LOW_SPACE,
	KVBLK_EVENT_RESTORE_FAILED,
	KVBLK_EVENT_REQUEST_DONE,
	KVBLK_EVENT_MEMBER_FAILING,
	KVBLK_EVENT_MEMBER_READ_ONLY,
	KVBLK_EVENT_NO_SPACE,
	KVBLK_EVENT_MEMBER_FENCED,
};

enum {
	KVBLK_A_POOL_NAME = 1,
	KVBLK_A_POOL_FLAGS,
	KVBLK_A_POOL_ADD_FLAGS,
	KVBLK_A_POOL_INDEX_SLOTS,
	KVBLK_A_POOL_MEMBER,
	KVBLK_A_POOL_FORCE,
	KVBLK_A_POOL_UUID,
	KVBLK_A_POOL_BIRTH,
	KVBLK_A_POOL_EPOCH,
	KVBLK_A_POOL_NR_MEMBERS,
	KVBLK_A_POOL_CAPACITY,
	KVBLK_A_POOL_FREE,
	KVBLK_A_POOL_NR_SEGMENTS,
	KVBLK_A_POOL_FREE_SEGMENTS,
	KVBLK_A_POOL_INDEX_USED,
	KVBLK_A_POOL_INDEX_EVICTED,
	KVBLK_A_POOL_INDEX_BYTES,
	KVBLK_A_POOL_LEASED_BYTES,
	KVBLK_A_POOL_VALUE_MAX,
	KVBLK_A_POOL_DEVNODE,
	KVBLK_A_POOL_TENANT,
	KVBLK_A_POOL_NODE,
	KVBLK_A_POOL_INDEX_LACKS,
	KVBLK_A_POOL_CLEARED,
	KVBLK_A_POOL_CHECKSUM_FAILURES,
	KVBLK_A_POOL_READ_ERRORS,
	KVBLK_A_POOL_WRITE_ERRORS,
	KVBLK_A_POOL_PUT_NOSPACE,
	KVBLK_A_POOL_UNSURE,
	KVBLK_A_POOL_POD,
	KVBLK_A_POOL_POD_OF,
	KVBLK_A_POOL_POD_UUID,

	__KVBLK_A_POOL_MAX,
	KVBLK_A_POOL_MAX = (__KVBLK_A_POOL_MAX - 1)
};

enum {
	KVBLK_A_MEMBER_POOL = 1,
	KVBLK_A_MEMBER_NAME,
	KVBLK_A_MEMBER_PATH,
	KVBLK_A_MEMBER_SEGMENT_SIZE,
	KVBLK_A_MEMBER_ADD_FLAGS,
	KVBLK_A_MEMBER_UUID,
	KVBLK_A_MEMBER_SLOT,
	KVBLK_A_MEMBER_STATE,
	KVBLK_A_MEMBER_SUSPECT,
	KVBLK_A_MEMBER_FAILING,
	KVBLK_A_MEMBER_SIZE,
	KVBLK_A_MEMBER_NR_SEGMENTS,
	KVBLK_A_MEMBER_FREE_SEGMENTS,
	KVBLK_A_MEMBER_READY_SEGMENTS,
	KVBLK_A_MEMBER_OPEN_SEGMENTS,
	KVBLK_A_MEMBER_SEALED_SEGMENTS,
	KVBLK_A_MEMBER_RECORD_ALIGN,
	KVBLK_A_MEMBER_INFLIGHT,
	KVBLK_A_MEMBER_INCARNATION,
	KVBLK_A_MEMBER_RESTORED,
	KVBLK_A_MEMBER_FORMATTED,
	KVBLK_A_MEMBER_PLACE,
	KVBLK_A_MEMBER_DEVICE,
	KVBLK_A_MEMBER_UNREAD_SEGMENTS,
	KVBLK_A_MEMBER_OWNER,
	KVBLK_A_MEMBER_OWNER_NODE,
	KVBLK_A_MEMBER_BLOCKS,
	KVBLK_A_MEMBER_LACKS,

	__KVBLK_A_MEMBER_MAX,
	KVBLK_A_MEMBER_MAX = (__KVBLK_A_MEMBER_MAX - 1)
};

enum {
	KVBLK_A_STATS_POOL = 1,
	KVBLK_A_STATS_TENANT,
	KVBLK_A_STATS_COUNTERS,
	KVBLK_A_STATS_LATENCY,
	KVBLK_A_STATS_MEMBER,
	KVBLK_A_STATS_GAUGES,
	KVBLK_A_STATS_SCOPE,
	KVBLK_A_STATS_SIZE_MAX,
	KVBLK_A_STATS_SEQ,
	KVBLK_A_STATS_TIME,

	__KVBLK_A_STATS_MAX,
	KVBLK_A_STATS_MAX = (__KVBLK_A_STATS_MAX - 1)
};

enum {
	KVBLK_A_COUNTER_PUTS = 1,
	KVBLK_A_COUNTER_PUT_BYTES,
	KVBLK_A_COUNTER_PUT_EXISTS,
	KVBLK_A_COUNTER_PUT_BUSY,
	KVBLK_A_COUNTER_PUT_DECLINED,
	KVBLK_A_COUNTER_PUT_NOSPACE,
	KVBLK_A_COUNTER_PUT_ERRORS,
	KVBLK_A_COUNTER_GETS,
	KVBLK_A_COUNTER_GET_BYTES,
	KVBLK_A_COUNTER_GET_MISSES,
	KVBLK_A_COUNTER_GET_DIRECT,
	KVBLK_A_COUNTER_GET_BOUNCED,
	KVBLK_A_COUNTER_PUT_DIRECT,
	KVBLK_A_COUNTER_PUT_BOUNCED,
	KVBLK_A_COUNTER_DELETES,
	KVBLK_A_COUNTER_LOOKUPS,
	KVBLK_A_COUNTER_LOOKUP_KEYS,
	KVBLK_A_COUNTER_LOOKUP_HITS,
	KVBLK_A_COUNTER_CHECKSUM_FAILURES,
	KVBLK_A_COUNTER_REREADS,
	KVBLK_A_COUNTER_READ_ERRORS,
	KVBLK_A_COUNTER_WRITE_ERRORS,
	KVBLK_A_COUNTER_DEADLINES,
	KVBLK_A_COUNTER_CANCELS,
	KVBLK_A_COUNTER_SEGMENTS_OPENED,
	KVBLK_A_COUNTER_SEGMENTS_SEALED,
	KVBLK_A_COUNTER_SEGMENTS_RECLAIMED,
	KVBLK_A_COUNTER_REINSERTS,
	KVBLK_A_COUNTER_REINSERT_BYTES,
	KVBLK_A_COUNTER_DROPPED,
	KVBLK_A_COUNTER_EXPIRED,
	KVBLK_A_COUNTER_EVICTED,
	KVBLK_A_COUNTER_KILLS,
	KVBLK_A_COUNTER_RESTORED,
	KVBLK_A_COUNTER_LEASES,
	KVBLK_A_COUNTER_PRODUCER_MISMATCHES,
	KVBLK_A_COUNTER_DEVICE_DIRECT,
	KVBLK_A_COUNTER_DEVICE_BOUNCED,
	KVBLK_A_COUNTER_DEVICE_FALLBACKS,
	KVBLK_A_COUNTER_DEVICE_READ_BYTES,
	KVBLK_A_COUNTER_PUT_EXISTS_BYTES,
	KVBLK_A_COUNTER_READ_BYTES,
	KVBLK_A_COUNTER_WRITE_BYTES,
	KVBLK_A_COUNTER_RECLAIMED_BYTES,
	KVBLK_A_COUNTER_MISS_ABSENT,
	KVBLK_A_COUNTER_MISS_EXPIRED,
	KVBLK_A_COUNTER_MISS_MEMBER,
	KVBLK_A_COUNTER_MISS_MOVED,
	KVBLK_A_COUNTER_MISS_LAYOUT,
	KVBLK_A_COUNTER_MISS_READ_ERROR,
	KVBLK_A_COUNTER_MISS_DAMAGED,
	KVBLK_A_COUNTER_MISS_UNPROVEN,
	KVBLK_A_COUNTER_GET_DEADLINES,
	KVBLK_A_COUNTER_GET_NOMEM,
	KVBLK_A_COUNTER_GET_ERRORS,
	KVBLK_A_COUNTER_LOOKUP_UNSERVED,
	KVBLK_A_COUNTER_DRAM_PUTS,
	KVBLK_A_COUNTER_DRAM_GETS,
	KVBLK_A_COUNTER_DRAM_WRITES,
	KVBLK_A_COUNTER_DRAM_DROPS,
	KVBLK_A_COUNTER_DRAM_SQUEEZED,
	KVBLK_A_COUNTER_PREFETCHES,

	__KVBLK_A_COUNTER_MAX,
	KVBLK_A_COUNTER_MAX = (__KVBLK_A_COUNTER_MAX - 1)
};

enum {
	KVBLK_A_GAUGE_INFLIGHT = 1,
	KVBLK_A_GAUGE_QUEUED,
	KVBLK_A_GAUGE_WAITING_BYTES,
	KVBLK_A_GAUGE_WAITING_KILLS,
	KVBLK_A_GAUGE_SEGMENTS,
	KVBLK_A_GAUGE_SEGMENTS_FREE,
	KVBLK_A_GAUGE_SEGMENTS_READY,
	KVBLK_A_GAUGE_SEGMENTS_OPEN,
	KVBLK_A_GAUGE_SEGMENTS_SEALED,
	KVBLK_A_GAUGE_SEGMENTS_RETIRING,
	KVBLK_A_GAUGE_LEASED_BYTES,
	KVBLK_A_GAUGE_INDEX_USED,
	KVBLK_A_GAUGE_DRAM_BYTES,

	__KVBLK_A_GAUGE_MAX,
	KVBLK_A_GAUGE_MAX = (__KVBLK_A_GAUGE_MAX - 1)
};

enum {
	KVBLK_A_LATENCY_PUT = 1,
	KVBLK_A_LATENCY_GET,
	KVBLK_A_LATENCY_DELETE,
	KVBLK_A_LATENCY_LOOKUP,
	KVBLK_A_LATENCY_PUT_NS,
	KVBLK_A_LATENCY_GET_NS,

	__KVBLK_A_LATENCY_MAX,
	KVBLK_A_LATENCY_MAX = (__KVBLK_A_LATENCY_MAX - 1)
};

enum {
	KVBLK_A_ROUTE_POOL = 1,
	KVBLK_A_ROUTE_MEMBER,
	KVBLK_A_ROUTE_DEVICE,
	KVBLK_A_ROUTE_DISTANCE,
	KVBLK_A_ROUTE_STATE,
	KVBLK_A_ROUTE_WHY,

	__KVBLK_A_ROUTE_MAX,
	KVBLK_A_ROUTE_MAX = (__KVBLK_A_ROUTE_MAX - 1)
};

enum {
	KVBLK_A_EVENT_TYPE = 1,
	KVBLK_A_EVENT_POOL,
	KVBLK_A_EVENT_MEMBER,
	KVBLK_A_EVENT_TIME,
	KVBLK_A_EVENT_BLOCKS,
	KVBLK_A_EVENT_SILENCE_MS,
	KVBLK_A_EVENT_SEGMENT,
	KVBLK_A_EVENT_SEGMENTS_RECLAIMED,
	KVBLK_A_EVENT_FREE_SEGMENTS,
	KVBLK_A_EVENT_IO_ERRORS,
	KVBLK_A_EVENT_ERROR,
	KVBLK_A_EVENT_REQUEST,
	KVBLK_A_EVENT_UUID,
	KVBLK_A_EVENT_PLACE,
	KVBLK_A_EVENT_PUTS,

	__KVBLK_A_EVENT_MAX,
	KVBLK_A_EVENT_MAX = (__KVBLK_A_EVENT_MAX - 1)
};

enum {
	KVBLK_CMD_POOL_CREATE = 1,
	KVBLK_CMD_POOL_IMPORT,
	KVBLK_CMD_POOL_DESTROY,
	KVBLK_CMD_POOL_GET,
	KVBLK_CMD_MEMBER_ADD,
	KVBLK_CMD_MEMBER_REMOVE,
	KVBLK_CMD_MEMBER_GET,
	KVBLK_CMD_STATS_GET,
	KVBLK_CMD_ROUTE_GET,
	KVBLK_CMD_EVENT_NTF,
	KVBLK_CMD_STATS_NTF,
	KVBLK_CMD_POOL_CLEAR,
	KVBLK_CMD_MEMBER_FOLLOW,
	KVBLK_CMD_FOREIGN_GET,

	__KVBLK_CMD_MAX,
	KVBLK_CMD_MAX = (__KVBLK_CMD_MAX - 1)
};

#define KVBLK_MCGRP_EVENTS	"events"
#define KVBLK_MCGRP_STATS	"stats"

#endif /* _UAPI_LINUX_KVBLK_NETLINK_H */
