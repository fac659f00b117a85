/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kvblk: the map of the module. A folder is a layer, one above the other:
 *
 *   main      loads and unloads the module
 *   admin     netlink, netlink_stats, sysfs: what operators use
 *   nvme_kv   command, identify, list: the interface of NVMe's key-value commands
 *   chardev   cdev, ioctl, batch, uring, parse: the interface of runtimes
 *   ops       table, put, get, delete, lease, drain; request: what they have in common
 *   pool      assemble, member, watchdog, superblock, pool: how pools come, serve
 *             and go
 *   p2p       route, bounce: ways into devices' memory
 *   dram      dram, demote: blocks that are in the host's memory
 *   log       segment, reclaim, restore, walk, invalidate, missing, write_throttle,
 *             payload, bio: records on members
 *   memory    pin, region: a caller's memory
 *   report    event, member_errors, stats, changelog: counters, events, errors
 *   policy    admission and reclaim       (these three: no pool, no I/O;
 *   index     where each block is          compiled for user space, too)
 *   format    record, hash: what is on media
 *
 * A layer calls itself and the layers below, and is called back through pointers:
 * struct kvblk_above, struct kvblk_op_type, and what is in struct kvblk_req, _io,
 * _turn and _bounce. selftests/layers checks that. A file is included by its path
 * from here: "log/log.h". The header of a layer has the layer's name; for ops that
 * is request.h, which p2p and dram may know. What all layers share is in types.h.
 *
 * Data flows one way:
 *
 *   batch, uring -> put, get, delete -> index, segment (room) -> io (bios) ->
 *   member's device -> put, get, delete, in the task that waits
 *
 * Locks, outermost first:
 *   flight->draining  mutex: somebody waits for a file's operations; only tried
 *   pool->admin       mutex: members come and go; no I/O under it
 *   pool->lease_lock  mutex: leases; no memory is allocated under it but for
 *                     an xarray
 *   member->table_lock mutex: pages of the segment table on their way out
 *   index.tags_lock   mutex: room for caller tags is made; a leaf
 *   member->lock      spinlock: segment states and the lists they are on
 *   kvblk_pools_lock  mutex: the list of pools; a leaf, no I/O under it
 *   dram node->lock   spinlock: its objects in their order; a leaf
 *   pool->dram.lock   spinlock: objects that are to be written now; a leaf
 *   pool->kill_gate   spinlock: an entry makes room for another one, and its
 *                     record gets on the list of kills, as one step
 *   index stripes     spinlocks, see index/index.h
 *   pool->journal_lock spinlock: journals and the heads of their rings; a leaf
 *   pool->kill_lock   spinlock: the lists of kills
 *   file->lock        spinlock: operations in flight of an open file
 *   pool->bounce_lock spinlock: chunks, and their gets; a leaf
 *   member->gate_lock spinlock, irq-safe: puts that wait for others
 *   batch->wq.lock    spinlock, irq-safe: completed operations of a batch
 *   landing->lock     spinlock, irq-safe: those of rings
 * Lookups take none of them, unless they lease: then lease_lock.
 *
 * Lifetimes: pool->users (percpu_ref) counts operations and background work in
 * a pool, member->ref (percpu_ref) I/O on a member, segment->refs what must
 * find a segment's bytes unchanged. Each is killed, drained, then freed.
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
#include "log/cursor.h"
#include "policy/policy.h"
#include "tunables.h"

#define KVBLK_NAME_MAX		32	/* pool names, NUL included */
#define KVBLK_MEMBERS_MAX	64
#define KVBLK_CLEARABLE		4	/* counters that an administrator may clear */

#include "types.h"

#endif
