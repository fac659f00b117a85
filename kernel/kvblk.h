/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The map of the module. Each folder is a layer, top down:
 *
 *   main      loads and unloads the module
 *   admin     netlink, netlink_stats, sysfs: interface of operators; monitor: who may read what
 *   nvme_kv   command, identify, list: interface of NVMe key-value commands
 *   chardev   cdev, ioctl, batch, uring, parse: interface of runtimes; changes: change feeds;
 *             peers: the daemon that speaks to other nodes; remote: deletes that those ask for
 *   read      read: gets; prefetch; source_record, source_dram, source_foreign: where blocks
 *             are; sink, sink_direct, sink_bounce, sink_dram: where payloads go; result
 *   ops       put, admit, delete, hint, lease, drain; request: what operations share
 *   pool      assemble, member, watchdog, fence, superblock, pool: life of pools and members;
 *             tenant, number: key spaces with nodes of their own; device numbers;
 *             follow: members of other nodes; touch: gets of their blocks, for the owners;
 *             peers: questions to other nodes; anchors: places of blocks for them
 *   p2p       route, bounce: transfers to and from device memory
 *   dram      dram, demote: blocks in host memory
 *   log       segment, reclaim, restore, scan, walk, invalidate, missing, write_throttle,
 *             record, bio: records on members; account, quota: what tenants use, and may use
 *   memory    pin, region: callers' memory; proof: checks of payloads
 *   report    event, member_errors, stats, changelog: counters, events, errors
 *   policy    admission and reclaim       (these three: no pool, no I/O;
 *   index     place of each block          compiled for user space, too)
 *   format    record, hash: format on media
 *
 * A layer calls itself and lower layers, and is called back through pointers: struct
 * kvblk_upper_ops, struct kvblk_op_type, and those in struct kvblk_req, _io, _queued_io and
 * _bounce. selftests/layers checks this. Files are included by their path from here: "log/log.h".
 * A layer's header has the layer's name; that of ops is request.h: p2p and dram may include it.
 *
 * A member is a flash, struct kvblk_flash (device, geometry, I/O, health), with a log on it, struct
 * kvblk_log (segments, superblock, works). bio.c and the watchdog know the flash only.
 *
 * Data flows one way: batch, uring -> put, get, delete -> index, segment (reservation) -> io (bios)
 * -> member's device -> put, get, delete, in the task that waits.
 *
 * Locks, outermost first:
 *   drainer->draining mutex: one drain of a file at a time; trylock only
 *   tenants.lock      mutex: creating and removing tenants, with the superblocks' I/O
 *   pool->admin       mutex: adding and removing members; no I/O under it
 *   file->lease_lock  mutex: leases of an open file; no memory is allocated under it except by an
 *                     xarray
 *   log->table_lock   mutex: writes of the segment table's pages
 *   index.tags_lock   mutex: allocation of caller tags; a leaf
 *   log->lock         spinlock: segment states and lists
 *   kvblk_pools_lock  mutex: the list of pools; a leaf, no I/O under it
 *   sysfs dirs_lock   mutex: directories whose files monitor_gid owns; a leaf
 *   dram node->lock   spinlock: the node's list of DRAM blocks; a leaf
 *   pool->dram.lock   spinlock: urgent DRAM blocks; a leaf
 *   lease list->lock  spinlock: the leased ids of a list of pool->lease.lists
 *   pool->lease.lock  spinlock: leases by deadline, leased DRAM blocks; a leaf
 *   touch_part->lock  spinlock: foreign blocks that were got; a leaf
 *   pool->kill_order  spinlock: replacing an entry and listing its invalidation, as one step
 *   index stripes     spinlocks, see index/index.h
 *   pool->peers.lock  spinlock: questions to the daemon, and anchors
 *   pool->changelog.lock spinlock: changelogs and the heads of their rings; a leaf
 *   pool->kill_lock   spinlock: lists of invalidations
 *   file->lock        spinlock: operations in flight of an open file
 *   pool->bounce.lock spinlock: bounce chunks and their gets; a leaf
 *   throttle->lock    spinlock, irq-safe: write throttle
 *   flash->bandwidth_lock spinlock: samples of the bandwidth; trylock only, a leaf
 *   duel.judge        mutex: the duel's sizes and verdict; trylock, or by a tunable's store
 *   policy.admissions_lock mutex: the tenants' admissions, with allocations for them; a leaf
 *   duel.lock         spinlock: the miniatures; requests only try it
 *   policy.lock       spinlock, bh-safe: the log's clock and budget; a leaf
 *   dram node->idle_lock spinlock, irq-safe: folios without a DRAM block; a leaf
 *   batch->wq.lock    spinlock, irq-safe: completed operations of a batch
 *   completions->lock spinlock, irq-safe: completed operations of rings
 * Lookups take none of them, except that leasing takes those of leases and index stripes.
 *
 * Lifetimes: pool->users (percpu_ref) counts operations and background work of a pool, flash->ref
 * (percpu_ref) I/O on a member, and segment->refs users that need a segment's bytes unchanged. Each
 * is killed, drained, then freed.
 */
#ifndef KVBLK_H
#define KVBLK_H

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/io_uring/cmd.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/percpu-refcount.h>
#include <linux/percpu_counter.h>
#include <linux/rhashtable.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/uio.h>
#include <linux/uuid.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <linux/kvblk.h>
#include <linux/kvblk_names.h>
#include <linux/kvblk_netlink.h>

#include "compat.h"
#include "format/geometry.h"
#include "format/hash.h"
#include "format/record.h"
#include "index/index.h"
#include "log/bandwidth.h"
#include "log/cursor.h"
#include "log/share.h"
#include "policy/duel.h"
#include "policy/policy.h"
#include "tunables.h"

#define KVBLK_NAME_MAX		32	/* pool name, NUL included */
#define KVBLK_MEMBERS_MAX	64
#define KVBLK_CLEARABLE		4	/* counters that an administrator may clear */

#include "types.h"

#endif
