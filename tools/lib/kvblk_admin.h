/* SPDX-License-Identifier: MIT */
/*
 * libkvblk-admin: query and change kvblk pools and their members.
 *
 * There are two kinds of handle:
 * - struct kvblk_admin: queries and changes pools, members and tenants. Changes need
 *   CAP_SYS_ADMIN.
 * - struct kvblk_feed: receives events and statistics of all pools.
 *
 * Calls return 0 or a negative errno unless their description says otherwise. A call that
 * fails has changed nothing, except as described. The library keeps no pointer of the
 * caller after a call, except as described. All lengths are bytes.
 *
 * A structure that the caller allocates begins with its size: set it to sizeof, and all
 * fields that you do not use to 0. Structures that the library allocates have no size and
 * may grow at their end.
 */
#ifndef LIBKVBLK_KVBLK_ADMIN_H
#define LIBKVBLK_KVBLK_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/kvblk.h>
#include <linux/kvblk_netlink.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kvblk_admin;
struct kvblk_feed;

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
 * struct kvblk_member_spec - a device to add as a member, or a member to remove
 * @size: sizeof(struct kvblk_member_spec)
 * @segment_size: bytes in a segment, a power of two from 8 MiB to 1 GiB; 0: chosen by the
 *	size of the device
 * @path: path of the block device, up to KVBLK_PATH_LEN_MAX printable ASCII characters
 * @name: name for a new member, spelled like a pool's name and unique in the pool;
 *	permanent. NULL: derived from the last component of @path or from the kernel's
 *	device name. A former member that returns keeps its name
 * @uuid: kvblk_member_remove(): identity of the member, 16 bytes; else NULL
 * @hinted: kvblk_member_follow(): find only blocks near those that the daemon of the node
 *	peers names; -EINVAL in other calls. Since version 1.1
 */
struct kvblk_member_spec {
	uint32_t size;
	uint32_t segment_size;
	const char *path;
	const char *name;
	const uint8_t *uuid;
	bool hinted;
};

/**
 * struct kvblk_pool_spec - parameters of kvblk_pool_create() and kvblk_pool_import()
 * @size: sizeof(struct kvblk_pool_spec)
 * @flags: &enum kvblk_pool_flag
 * @add_flags: &enum kvblk_add_flag, for all members
 * @nr_members: number of devices, 1 to 64
 * @name: 1 to KVBLK_NAME_LEN_MAX letters, digits, '.', '-', '_', starting with a letter
 *	or digit
 * @index_slots: entries of the index, 64 to 2^36; 0: the previous number, or by capacity
 *	for a new pool
 * @members: the devices; the @size of each is set
 * @pod: kvblk_pool_create(): name of the pod that the pool is part of, spelled like a
 *	pool's name; NULL: none
 * @pod_of: device that is a member of a pool of @pod, and is only read: the new pool gets
 *	its pod and seed. NULL: the pool begins a new pod
 * @preempt: kvblk_pool_import(): identity of the node that owns all members and is dead, 16
 *	bytes: its reservations are preempted. NULL: nobody's
 */
struct kvblk_pool_spec {
	uint32_t size;
	uint32_t flags;
	uint32_t add_flags;
	uint32_t nr_members;
	const char *name;
	uint64_t index_slots;
	const struct kvblk_member_spec *members;
	const char *pod;
	const char *pod_of;
	const uint8_t *preempt;
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
 * * -ENODATA, -EXDEV: @pod_of is no member, or its pool is in no pod or in another one
 * * -EINVAL, -ENOMEM
 * * -E2BIG: @spec sets a field that this library does not know
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
 * @spec: name and member devices, as found by kvblk_scan(). @flags, @segment_size, @pod and
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
 * * -EREMOTE: another node owns a member (KVBLK_ADD_FLAG_FORCE takes it); with @preempt, a
 *   node other than that one
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
 * @pod: name of the pod that the pool is part of; "": none
 * @pod_uuid: identity of the pod
 * @node: identity of @owner; zeroes: unknown
 * @own: this host is @owner: by @node, or by the hosts' names if an identity is unknown
 * @nr_tenants: number of tenants of the pool, with "default". Since version 1.1
 * @tenants: name, id, and whether payloads are encrypted, as recorded on this member. Since
 *	version 1.1
 * @seq: number of this superblock, which grows with each write. Since version 1.1
 *
 * Only the library allocates this structure, which may grow at its end. The fields report
 * what is on media; the kernel decides what is valid.
 */
struct kvblk_found {
	struct kvblk_found *next;
	const char *path;
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
	char pod[KVBLK_NAME_LEN_MAX + 1];
	uint8_t pod_uuid[16];
	uint8_t node[16];
	bool own;
	uint32_t nr_tenants;
	struct {
		char name[KVBLK_NAME_LEN_MAX + 1];
		uint16_t id;
		bool encrypted;
	} tenants[704];
	uint64_t seq;
};

/**
 * kvblk_scan() - find members on block devices
 * @paths: devices to read; NULL: all devices that no other device is built on
 * @nr_paths: number of devices
 * @list: set to a list, or NULL if no member was found; free the list with
 *	kvblk_list_free()
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
 * kvblk_host_id() - read the identity of this host as an owner of members
 * @id: set to the identity, as in &struct kvblk_found.node
 *
 * Reads /var/lib/kvblk/node or, without it, /etc/machine-id.
 *
 * Context: any thread.
 * Return: 0; -ENOENT if no file has an identity.
 */
int kvblk_host_id(uint8_t id[16]);

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
 * Resets the counters of struct kvblk_pool_state. The counters of kvblk_stats_list()
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
 * @has_use: the caller may read statistics, see kvblk_stats_list(). If not, fill levels
 *	and counters are 0: @free, @free_segments, @index_used, @index_evicted,
 *	@index_lacks, @leased_bytes, @cleared and the next four fields
 * @checksum_failures: checksum failures since the pool was assembled or cleared
 * @read_errors: failed reads since the pool was assembled or cleared
 * @write_errors: failed writes since the pool was assembled or cleared
 * @put_nospace: puts that failed with -ENOSPC since the pool was assembled or cleared
 * @cleared: time of the last kvblk_pool_clear(), seconds since 1970; 0: never
 * @unsure: members that may still hold blocks deleted now; deletes fail unless 0
 * @pod: name of the pod that the pool is part of; "": none
 * @pod_uuid: identity of the pod
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
	bool has_use;
	uint64_t checksum_failures;
	uint64_t read_errors;
	uint64_t write_errors;
	uint64_t put_nospace;
	uint64_t cleared;
	uint32_t unsure;
	char pod[KVBLK_NAME_LEN_MAX + 1];
	uint8_t pod_uuid[16];
};

/**
 * kvblk_pool_list() - query the state of one or all pools
 * @admin: the handle
 * @name: the pool; NULL for all pools
 * @list: set to a list, or NULL if there is no pool; free the list with kvblk_list_free()
 *
 * Fill levels and counters need a permission: see @has_use of &struct kvblk_pool_state.
 *
 * Context: one thread at a time.
 * Return: 0; -ENOENT if there is no such pool; -EINVAL if @name is not a valid name;
 * -EINTR if the state changed during ten attempts to read it; -ENOMEM; -EMSGSIZE;
 * -EBADMSG; -EIO if the netlink socket failed.
 */
int kvblk_pool_list(struct kvblk_admin *admin, const char *name,
		    struct kvblk_pool_state **list);

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
 * kvblk_member_follow() - read another node's member
 * @admin: the handle
 * @pool: name of the pool, which is in a pod
 * @spec: the device; @name: name of the member in this pool, or NULL
 *
 * Blocks on the device are found and got here. The device is never written. Ends with
 * kvblk_member_remove() or the pool.
 *
 * Context: one thread at a time.
 * Return: 0, or
 * * -EINVAL: the pool is in no pod
 * * -EXDEV: the device is not in this pod
 * * -EEXIST: the device is a member here or followed already
 * * -ENODATA: the device is not a member of a pool
 * * -ENOENT: no such pool or device
 * * -ENODEV: the pool is being destroyed
 * * others as kvblk_member_add()
 */
int kvblk_member_follow(struct kvblk_admin *admin, const char *pool,
			const struct kvblk_member_spec *spec);

/**
 * kvblk_member_remove() - remove a member
 * @admin: the handle
 * @pool: name of the pool
 * @spec: the member, by @name or by @uuid. Use @uuid for a missing member, because
 *	another member may have taken its name
 *
 * Gets of its blocks miss at once. The event KVBLK_EVENT_MEMBER_DOWN reports when the
 * device is free. If the removal could not be written to another member,
 * kvblk_admin_message() warns, and deletes fail until it is: see @unsure of &struct
 * kvblk_pool_state.
 *
 * Context: one thread at a time.
 * Return: 0; -ENOENT if there is no such pool or member; -EALREADY if it is being
 * removed; -ENODEV if the pool is being destroyed; -EPERM without CAP_SYS_ADMIN; -EINVAL
 * unless exactly one of @name and @uuid is set; -EINPROGRESS, -E2BIG, -ENOMEM, -EMSGSIZE
 * as for kvblk_pool_create().
 */
int kvblk_member_remove(struct kvblk_admin *admin, const char *pool,
			const struct kvblk_member_spec *spec);

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
 * @has_use: the caller may read statistics, see kvblk_stats_list(). If not,
 *	@free_segments, @ready_segments, @open_segments, @sealed_segments, @inflight,
 *	@restored and @unread_segments are 0
 * @fenced: @read_only, because the device's reservation is lost: another node may write
 * @hinted: kvblk_foreign_list(): only blocks near hinted ones are found, see &struct
 *	kvblk_member_spec
 * @owner: kvblk_foreign_list(): name of the node that owns the member; "" in other lists
 * @owner_node: identity of that node
 * @blocks: blocks of the foreign member that were found so far
 * @lacks: blocks of it that have no slot in the index at present
 * @gets: blocks delivered from the foreign member
 * @get_bytes: bytes of these
 * @get_misses: gets of its blocks that missed
 * @conflict: tenant of the pool that @owner has with another id, or whose id it gave to another
 *	tenant: its blocks are not shared; "" if there is none
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
	bool has_use;
	bool fenced;
	bool hinted;
	char owner[64];
	uint8_t owner_node[16];
	uint64_t blocks;
	uint64_t lacks;
	uint64_t gets;
	uint64_t get_bytes;
	uint64_t get_misses;
	char conflict[KVBLK_NAME_LEN_MAX + 1];
};

/**
 * kvblk_member_list() - query the state of the members of one or all pools
 * @admin: the handle
 * @pool: name of the pool; NULL for all pools
 * @list: set to a list, or NULL if there is no member; free the list with
 *	kvblk_list_free()
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_list().
 */
int kvblk_member_list(struct kvblk_admin *admin, const char *pool,
		      struct kvblk_member_state **list);

/**
 * kvblk_foreign_list() - query the members that one or all pools read from other nodes
 * @admin: the handle
 * @pool: name of the pool; NULL for all pools
 * @list: set to a list, or NULL if there is no foreign member; free the list with
 *	kvblk_list_free()
 *
 * Fields about segments in use and @slot are 0.
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_list(); -EOPNOTSUPP if the module knows no foreign members.
 */
int kvblk_foreign_list(struct kvblk_admin *admin, const char *pool,
		       struct kvblk_member_state **list);

/**
 * struct kvblk_tenant_spec - a tenant to create
 * @size: sizeof(struct kvblk_tenant_spec)
 * @mode: permission bits of the device node, up to 0777; 0: 0660
 * @uid: owner of the device node
 * @gid: group of the device node
 * @name: name of the tenant, spelled like a pool's name. The names "default", "nvme-kv",
 *	"changes" and "peers" are reserved
 * @key: serial number of a kernel key that the caller may search, of type logon, user,
 *	trusted or encrypted, with 32 bytes, which the module copies: payloads of the tenant's
 *	blocks are encrypted on members. 0: they are not
 *
 * Since version 1.1.
 */
struct kvblk_tenant_spec {
	uint32_t size;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	const char *name;
	int32_t key;
};

/**
 * kvblk_tenant_create() - create a tenant, a key space with a device node of its own
 * @admin: the handle
 * @pool: name of the pool
 * @spec: the tenant
 *
 * The tenant is empty, and stays in the pool until kvblk_tenant_remove(), also over imports.
 * When the call returns 0, the module has the node /dev/kvblk/POOL/NAME; devtmpfs shows it.
 * If a member could not record the tenant yet, kvblk_admin_message() warns: until then a
 * crash removes it. Since version 1.1.
 *
 * Context: one thread at a time.
 * Return: 0, or an errno that kvblk_admin_message() explains:
 * * -EEXIST: the name is in use or reserved
 * * -ENOENT: no such pool
 * * -ENODEV: the pool is being destroyed
 * * -ENOSPC: the pool has as many tenants as it can have, or no id is left
 * * -EIO: a member in use could not record that the id is given; there is no such tenant
 * * -EPERM: no CAP_SYS_ADMIN
 * * -ENOKEY, -EACCES, -EKEYEXPIRED, -EKEYREVOKED: the caller cannot use the key
 * * -EINVAL: the name is missing or misspelled, the key is of another type or length, @mode is above 0777, or @uid or @gid is
 *   4294967295
 * * -EOPNOTSUPP: the module knows no tenants
 * * -EINPROGRESS, -E2BIG, -ENOMEM, -EMSGSIZE as for kvblk_pool_create()
 */
int kvblk_tenant_create(struct kvblk_admin *admin, const char *pool,
			const struct kvblk_tenant_spec *spec);

/**
 * enum kvblk_tenant_field - fields of struct kvblk_tenant_change, as bits
 * @KVBLK_TENANT_MODE: change @mode
 * @KVBLK_TENANT_UID: change @uid
 * @KVBLK_TENANT_GID: change @gid
 * @KVBLK_TENANT_WEIGHT: change @weight
 * @KVBLK_TENANT_QUOTA_BYTES: change @quota_bytes
 * @KVBLK_TENANT_QUOTA_BYTES_SOFT: change @quota_bytes_soft
 * @KVBLK_TENANT_QUOTA_BLOCKS: change @quota_blocks
 * @KVBLK_TENANT_QUOTA_BLOCKS_SOFT: change @quota_blocks_soft
 * @KVBLK_TENANT_QUOTA_DRAM: change @quota_dram
 * @KVBLK_TENANT_SHARED: change @shared
 */
enum kvblk_tenant_field {
	KVBLK_TENANT_MODE		= 1 << 0,
	KVBLK_TENANT_UID		= 1 << 1,
	KVBLK_TENANT_GID		= 1 << 2,
	KVBLK_TENANT_WEIGHT		= 1 << 3,
	KVBLK_TENANT_QUOTA_BYTES	= 1 << 4,
	KVBLK_TENANT_QUOTA_BYTES_SOFT	= 1 << 5,
	KVBLK_TENANT_QUOTA_BLOCKS	= 1 << 6,
	KVBLK_TENANT_QUOTA_BLOCKS_SOFT	= 1 << 7,
	KVBLK_TENANT_QUOTA_DRAM		= 1 << 8,
	KVBLK_TENANT_SHARED		= 1 << 9,
};

/**
 * struct kvblk_tenant_change - changes of a tenant
 * @size: sizeof(struct kvblk_tenant_change)
 * @fields: fields to change, of &enum kvblk_tenant_field; the others are ignored
 * @mode: permission bits of the device node, from 1 to 0777
 * @uid: owner of the device node
 * @gid: group of the device node
 * @weight: share of a member's bandwidth relative to that of other tenants, from 1 to 10000;
 *	100 unless set
 * @quota_bytes: most bytes of the tenant's blocks on members, with their headers; 0: no limit
 * @quota_bytes_soft: bytes from which on the tenant's coldest blocks are dropped; 0: 15/16 of
 *	@quota_bytes
 * @quota_blocks: most blocks of the tenant on members; 0: no limit
 * @quota_blocks_soft: blocks from which on the coldest are dropped; 0: 15/16 of @quota_blocks
 * @quota_dram: most bytes of the tenant's blocks in memory; 0: no limit
 * @shared: tenant of the pool whose blocks this one may read, too; NULL or "": none
 *
 * Since version 1.1.
 */
struct kvblk_tenant_change {
	uint32_t size;
	uint32_t fields;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint32_t weight;
	uint64_t quota_bytes;
	uint64_t quota_bytes_soft;
	uint64_t quota_blocks;
	uint64_t quota_blocks_soft;
	uint64_t quota_dram;
	const char *shared;
};

/**
 * kvblk_tenant_set() - change a tenant
 * @admin: the handle
 * @pool: name of the pool
 * @name: name of the tenant
 * @change: what to change
 *
 * Limits, weight and @shared are not on media: set them after each import. The tenant
 * "default" has limits, but no mode, owner or group: udev decides about its node. Warns as
 * kvblk_tenant_remove(). Since version 1.1.
 *
 * Context: one thread at a time.
 * Return: 0, or an errno that kvblk_admin_message() explains:
 * * -ENOENT: no such pool or tenant, or no tenant @shared
 * * -EINVAL: @name is missing or misspelled, @fields has an unknown bit, a value is out of its
 *   range, a soft limit is above its hard one, @shared is @name, or the node of "default"
 *   would change
 * * -EIO: a member in use could not record mode, owner or group; nothing has changed
 * * -ENODEV, -EPERM, -EOPNOTSUPP, -EINPROGRESS, -E2BIG, -ENOMEM, -EMSGSIZE as for
 *   kvblk_tenant_create()
 */
int kvblk_tenant_set(struct kvblk_admin *admin, const char *pool, const char *name,
		     const struct kvblk_tenant_change *change);

/**
 * kvblk_tenant_remove() - remove a tenant with its blocks and its node
 * @admin: the handle
 * @pool: name of the pool
 * @name: name of the tenant
 * @force: remove the tenant even if its node is open; openers then get -ENODEV
 *
 * No block of the tenant is found any more, here or after an import. Space on the members is
 * freed later, by reclaim. If a member could not record the removal yet,
 * kvblk_admin_message() warns: until then a crash can bring the tenant back. Since version
 * 1.1.
 *
 * Context: one thread at a time.
 * Return: 0; -ENOENT if there is no such pool or tenant; -EBUSY if its node is open;
 * -EINVAL if @name is "default" or misspelled; -ENODEV, -EPERM, -EOPNOTSUPP, -EINPROGRESS,
 * -ENOMEM, -EMSGSIZE as for kvblk_tenant_create().
 */
int kvblk_tenant_remove(struct kvblk_admin *admin, const char *pool, const char *name, bool force);

/**
 * kvblk_tenant_clear() - remove all blocks of a tenant at once
 * @admin: the handle
 * @pool: name of the pool
 * @name: name of the tenant
 * @force: clear the tenant even if its node is open; openers then get -ENODEV
 *
 * The tenant gets a new id and a new node of the same name, mode, owner and group. Open files
 * of the former node are of no further use. Warns as kvblk_tenant_remove(). Since version
 * 1.1.
 *
 * Context: one thread at a time.
 * Return: 0; -ENOSPC if no id is left; -EIO if a member in use could not record the change:
 * the tenant keeps its blocks then; others as kvblk_tenant_remove().
 */
int kvblk_tenant_clear(struct kvblk_admin *admin, const char *pool, const char *name, bool force);

#define KVBLK_TENANT_COUNTERS	16	/* most counters of a tenant */

/**
 * kvblk_tenant_key() - give the key of an encrypted tenant
 * @admin: the handle
 * @pool: name of the pool
 * @name: name of the tenant
 * @key: serial number of a kernel key, as &kvblk_tenant_spec.key
 *
 * A pool that was imported has no keys: until this call gets of the tenant are misses, and puts
 * fail with -ENOKEY. Since version 1.1.
 *
 * Context: one thread at a time.
 * Return: 0; -EKEYREJECTED if this is not the tenant's key; -EINVAL if the tenant is not
 * encrypted, or the key is of another type or length; -ENOENT if there is no such pool or
 * tenant; -ENOKEY and others of the key as for kvblk_tenant_create().
 */
int kvblk_tenant_key(struct kvblk_admin *admin, const char *pool, const char *name, int32_t key);

/**
 * struct kvblk_tenant_state - state of a tenant
 * @next: next entry of the list, or NULL
 * @pool: name of the pool
 * @name: name of the tenant
 * @id: number of the tenant in the pool, never given to another one; 0: "default"
 * @has_mode: @mode, @uid and @gid are known. If not, they are 0: udev decides who may open
 *	the nodes of "default" and "nvme-kv"
 * @encrypted: payloads of the tenant's blocks are encrypted on members
 * @locked: the key of an encrypted tenant is missing, see kvblk_tenant_key()
 * @mode: permission bits of the device node, as created or set
 * @uid: owner of the device node, as created or set
 * @gid: group of the device node, as created or set
 * @devnode: path of the device node, below /dev
 * @has_use: the caller may read statistics, see kvblk_stats_list(). If not, @openers is 0
 * @openers: number of times that the device node is open; in a pod, that of "default" has
 *	deletes of other nodes, too
 * @has_limits: the module knows limits. If not, @weight, quotas and @shared are 0 or ""
 * @has_used: the caller may read statistics, and the module knows what tenants use. If not,
 *	the used fields are 0
 * @has_counter: valid entries of @counter
 * @weight: share of bandwidth, see &struct kvblk_tenant_change
 * @quota_bytes: most bytes on members; 0: no limit
 * @quota_bytes_soft: bytes from which on blocks are dropped; 0: 15/16 of @quota_bytes
 * @quota_blocks: most blocks on members; 0: no limit
 * @quota_blocks_soft: blocks from which on blocks are dropped; 0: 15/16 of @quota_blocks
 * @quota_dram: most bytes in memory; 0: no limit
 * @used_bytes: bytes of the tenant's blocks on members, with their headers
 * @used_blocks: blocks of the tenant on members
 * @used_dram: bytes of the tenant's blocks in memory
 * @counter: indexed by KVBLK_A_TENANT_COUNTER_PUTS etc., since the pool was assembled or the
 *	tenant was created or cleared
 * @shared: tenant whose blocks this one may read, too; "": none
 *
 * Only the library allocates this structure, which may grow at its end. Since version 1.1.
 */
struct kvblk_tenant_state {
	struct kvblk_tenant_state *next;
	char pool[KVBLK_NAME_LEN_MAX + 1];
	char name[KVBLK_NAME_LEN_MAX + 1];
	uint32_t id;
	bool has_mode;
	bool encrypted;
	bool locked;
	bool has_use;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	char devnode[KVBLK_TENANT_DEVNODE_LEN_MAX + 1];
	bool has_limits;
	bool has_used;
	bool has_counter[KVBLK_TENANT_COUNTERS];
	uint32_t weight;
	uint64_t openers;
	uint64_t quota_bytes;
	uint64_t quota_bytes_soft;
	uint64_t quota_blocks;
	uint64_t quota_blocks_soft;
	uint64_t quota_dram;
	uint64_t used_bytes;
	uint64_t used_blocks;
	uint64_t used_dram;
	uint64_t counter[KVBLK_TENANT_COUNTERS];
	char shared[KVBLK_NAME_LEN_MAX + 1];
};

/**
 * kvblk_tenant_list() - query the tenants of one or all pools
 * @admin: the handle
 * @pool: name of the pool; NULL for all pools
 * @list: set to a list, or NULL if there is no pool; free the list with kvblk_list_free()
 *
 * The tenant "default" is the first one of each pool, "nvme-kv" the last one. Since version 1.1.
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_list(); -EOPNOTSUPP if the module knows no tenants.
 */
int kvblk_tenant_list(struct kvblk_admin *admin, const char *pool,
		      struct kvblk_tenant_state **list);

/**
 * struct kvblk_touched - blocks that a pool got from another node's members
 * @next: next entry of the list, or NULL
 * @pool: name of the pool
 * @owner_pool: identity of the pool that owns the blocks
 * @owner_node: identity of that pool's node
 * @nr: number of @ids
 * @ids: ids of the blocks, 16 bytes each, for kvblk_touch() on that node
 *
 * Only the library allocates this structure, which may grow at its end.
 */
struct kvblk_touched {
	struct kvblk_touched *next;
	char pool[KVBLK_NAME_LEN_MAX + 1];
	uint8_t owner_pool[16];
	uint8_t owner_node[16];
	uint32_t nr;
	const uint8_t *ids;
};

/**
 * kvblk_touched_list() - fetch the blocks that one or all pools got from other nodes' members
 * @admin: the handle
 * @pool: name of the pool; NULL for all pools
 * @list: set to a list, or NULL if there is no block; free the list with kvblk_list_free()
 *
 * A block is listed once, however often it was got since the last call, and the module
 * forgets it. An entry has blocks of one owner; an owner may have several entries. kvblkd
 * calls this each second if its configuration has peers: another caller deprives it of the
 * blocks.
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_list(); -EPERM without CAP_SYS_ADMIN; -EOPNOTSUPP if the module
 * knows no touches.
 */
int kvblk_touched_list(struct kvblk_admin *admin, const char *pool,
		       struct kvblk_touched **list);

/**
 * kvblk_touch() - count gets of other nodes as hits of a pool's blocks
 * @admin: the handle
 * @pool: name of the pool, which is part of a pod
 * @ids: ids of the blocks, 16 bytes each, see &struct kvblk_touched
 * @nr: number of ids, 1 to KVBLK_TOUCH_LEN_MAX / 16
 *
 * Ids of blocks that are not in the pool are ignored.
 *
 * Context: one thread at a time.
 * Return: 0; -ENOENT if there is no such pool; -ENODEV if it is being destroyed; -EINVAL if
 * it is in no pod, or if @nr is out of range; -EPERM without CAP_SYS_ADMIN; -EOPNOTSUPP if
 * the module knows no touches; -ENOMEM, -EMSGSIZE as for kvblk_pool_create().
 */
int kvblk_touch(struct kvblk_admin *admin, const char *pool, const void *ids, size_t nr);

/**
 * kvblk_pool_delete() - delete blocks of a pool because another node of the pod asks
 * @admin: the handle
 * @pool: name of the pool, which is part of a pod
 * @ids: ids of the blocks, 16 bytes each, as for kvblk_touch()
 * @nr: number of ids, 1 to KVBLK_TOUCH_LEN_MAX / 16
 * @results: set to the outcome for each id, in order: 0, once the block is durably deleted;
 *	-ENOENT: the pool has no such block on members of its own; or another errno of a
 *	delete. Undefined unless the call returns 0
 *
 * Context: one thread at a time.
 * Return: 0; -EINPROGRESS if a device is slow: the deletes go on, and their results are
 * lost; -EBADMSG if the reply has another number of results; else as kvblk_touch().
 */
int kvblk_pool_delete(struct kvblk_admin *admin, const char *pool, const uint8_t *ids,
		      unsigned int nr, int32_t *results);

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
 * @seq: kvblk_feed_read(): sequence number of the pool's messages, from 1; a gap means
 *	lost messages
 * @time_ns: kvblk_feed_read(): time of the sample, nanoseconds since 1970; equal in all
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
 * kvblk_stats_list() - query the statistics of pools, members or size classes
 * @admin: the handle
 * @scope: &enum kvblk_stats_scope: pools, their members, or the latencies of puts and
 *	gets by size class
 * @pool: name of the pool; NULL for all pools
 * @list: set to a list, or NULL if it is empty; free the list with kvblk_list_free()
 *
 * Statistics tell what others store and hit. Therefore the kernel gives them only to
 * CAP_SYS_ADMIN and to members of the group kvblk-monitor.
 *
 * Context: one thread at a time.
 * Return: as kvblk_pool_list(); -EPERM if the caller is neither; -EINVAL or -ERANGE also
 * if the module does not know @scope.
 */
int kvblk_stats_list(struct kvblk_admin *admin, enum kvblk_stats_scope scope,
		     const char *pool, struct kvblk_stats **list);

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
 * kvblk_route_list() - query how a member reaches the memory of PCI devices
 * @admin: the handle
 * @pool: name of the pool
 * @member: name of the member
 * @list: set to a list, or NULL if it is empty; free the list with kvblk_list_free()
 *
 * Attempts no transfer. Lists each PCI device whose driver has set up P2PDMA. The list is
 * empty without CONFIG_PCI_P2PDMA.
 *
 * Context: one thread at a time.
 * Return: as kvblk_stats_list(); -ENOENT also if there is no such member, or it is dead or
 * being removed.
 */
int kvblk_route_list(struct kvblk_admin *admin, const char *pool,
		     const char *member, struct kvblk_route_state **list);

/**
 * kvblk_list_free() - free a list of any kind
 * @list: the list, or NULL
 *
 * Context: any thread.
 */
void kvblk_list_free(void *list);

/**
 * enum kvblk_name_kind - numbers that have names
 * @KVBLK_NAME_COUNTER: KVBLK_A_COUNTER_PUTS etc.: "put_bytes"
 * @KVBLK_NAME_GAUGE: KVBLK_A_GAUGE_INFLIGHT etc.: "segments_free"
 * @KVBLK_NAME_LATENCY: KVBLK_A_LATENCY_PUT etc.: "put"
 * @KVBLK_NAME_MEMBER_STATUS: &enum kvblk_member_status: "up"
 * @KVBLK_NAME_ROUTE_STATUS: &enum kvblk_route_status: "direct"
 * @KVBLK_NAME_EVENT: &enum kvblk_event: "member-dead"
 * @KVBLK_NAME_EVENT_NUMBER: KVBLK_A_EVENT_BLOCKS etc.: "blocks"
 * @KVBLK_NAME_TENANT_COUNTER: KVBLK_A_TENANT_COUNTER_PUTS etc.: "puts". Since version 1.1
 */
enum kvblk_name_kind {
	KVBLK_NAME_COUNTER		= 1,
	KVBLK_NAME_GAUGE		= 2,
	KVBLK_NAME_LATENCY		= 3,
	KVBLK_NAME_MEMBER_STATUS	= 4,
	KVBLK_NAME_ROUTE_STATUS		= 5,
	KVBLK_NAME_EVENT		= 6,
	KVBLK_NAME_EVENT_NUMBER		= 7,
	KVBLK_NAME_TENANT_COUNTER	= 8,
};

/**
 * kvblk_name() - return the name of a number
 * @kind: &enum kvblk_name_kind
 * @n: the number
 *
 * Every number that a structure of this library reports as valid has a name: statistics
 * and numbers of events that the library does not know are skipped.
 *
 * Context: any thread.
 * Return: a constant string; "unknown" if @kind has no such number.
 */
const char *kvblk_name(unsigned int kind, unsigned int n);

/* Subscriptions. */

/**
 * enum kvblk_feed_group - kinds of messages, as bits
 * @KVBLK_FEED_EVENTS: events of all pools
 * @KVBLK_FEED_STATS: statistics of all pools whose tunable stats_seconds is not 0: at
 *	that interval of the pool, of each member and of each size class
 */
enum kvblk_feed_group {
	KVBLK_FEED_EVENTS	= 1 << 0,
	KVBLK_FEED_STATS	= 1 << 1,
};

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
 * kvblk_feed_open() - subscribe to messages of all pools
 * @groups: &enum kvblk_feed_group, one or more
 * @handle: set to the new handle; free the handle with kvblk_feed_close()
 *
 * The handle receives messages from this call on. Only one thread at a time may use a
 * handle. Needs CAP_SYS_ADMIN or the group kvblk-monitor: see kvblk_stats_list().
 *
 * Context: any thread.
 * Return: 0; -EPERM; -ENOENT if the module is not loaded or has no such group, or this is
 * not the initial network namespace; -EINVAL for no or unknown @groups; -ENOMEM; -EIO and
 * others if no socket can be opened.
 */
int kvblk_feed_open(unsigned int groups, struct kvblk_feed **handle);

/**
 * kvblk_feed_close() - unsubscribe
 * @feed: the handle, or NULL
 *
 * Context: one thread at a time, once.
 */
void kvblk_feed_close(struct kvblk_feed *feed);

/**
 * kvblk_feed_fd() - return a descriptor that is readable when there is a message
 * @feed: the handle
 *
 * For poll(2) and event loops. The handle owns the descriptor: do not read or close it.
 *
 * Context: any thread.
 * Return: the descriptor.
 */
int kvblk_feed_fd(const struct kvblk_feed *feed);

/**
 * kvblk_feed_read() - read the next message
 * @feed: the handle
 * @notice: set to the message if it is an event, else to NULL; may be NULL if the feed
 *	receives no events
 * @stats: set to the message if it is statistics, else to NULL; may be NULL if the feed
 *	receives no statistics
 *
 * Never sleeps: wait with poll(2) on kvblk_feed_fd(). The handle owns the message, which
 * is valid until the next call.
 *
 * Context: one thread at a time.
 * Return: 0; -EAGAIN if there is no message now; -ENOBUFS if messages were lost because
 * the reader is too slow: query the state, then continue to read; -ENOMEM.
 */
int kvblk_feed_read(struct kvblk_feed *feed, const struct kvblk_notice **notice,
		    const struct kvblk_stats **stats);

/**
 * kvblk_event_text() - describe an event in a sentence
 * @notice: the event
 * @buf: filled in, NUL-terminated
 * @len: size of @buf; 256 is enough
 *
 * Context: any thread.
 */
void kvblk_event_text(const struct kvblk_notice *notice, char *buf, size_t len);

/**
 * kvblk_changes_open() - open the feed of a pool's block changes
 * @pool: name of a pool, which opens /dev/kvblk/POOL/changes, or path of a node (any
 *	string that contains a '/')
 * @flags: 0 or O_NONBLOCK, for reads
 * @changes: parameters of the feed
 *
 * read(2) returns whole records, &struct kvblk_change, each &struct
 * kvblk_changes.record_size bytes behind the previous one. The buffer must hold at least
 * 4 of them. The caller owns the descriptor and may poll it. The node's group,
 * kvblk-monitor, decides who may read it.
 *
 * Context: any thread.
 * Return: the descriptor; -ENODEV if there is no such pool; -EACCES if the caller is not
 * in the node's group; -ENOTTY if @pool is the path of another file; -EINVAL,
 * -ENAMETOOLONG; another errno of open(2) or of KVBLK_IOC_CHANGES, see <linux/kvblk.h>.
 */
int kvblk_changes_open(const char *pool, int flags, const struct kvblk_changes *changes);

#ifdef __cplusplus
}
#endif

#endif
