/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kvblk: the map of the module. A house of rooms, one above the other:
 *
 *   main    the module comes and goes
 *   admin   netlink, netlink_stats, sysfs: what operators use
 *   front   cdev, ioctl, batch, uring, parse: the interface of runtimes; nvme_kv,
 *           nvme_identify, nvme_list: that of those which know NVMe's key-value
 *           commands
 *   ops     table, put, get, delete, lease, flight; req: what they have in common
 *   pool    assembly, member, watch, super, pool: how pools come, serve and go
 *   p2p     p2p, bounce: ways into devices' memory
 *   log     segment, reclaim, restore, walk, kill, throttle, payload, io: records on
 *           members; dram: blocks that are in the host's memory
 *   mem     buf, region: a caller's memory
 *   report  event, health, stats, journal: counters, events, what comes and goes
 *   pure    index, policy, record, hash: no pool, no I/O; also for user space
 *
 * A room calls itself and rooms below, and is called back through pointers:
 * struct kvblk_above, struct kvblk_op_type, and what is in struct kvblk_req, _io,
 * _turn and _bounce. selftests/rooms holds it to that. Each room has a header of
 * its name; front's, ops', log's and mem's are front.h, op.h, log.h and mem.h. What
 * they share is in types.h.
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
 *   index stripes     spinlocks, see index.h
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
#include "geometry.h"
#include "hash.h"
#include "index.h"
#include "policy.h"
#include "record.h"
#include "room.h"
#include "tunables.h"

#define KVBLK_NAME_MAX		32	/* pool names, NUL included */
#define KVBLK_MEMBERS_MAX	64
#define KVBLK_CLEARABLE		4	/* counters that an administrator may clear */

#include "types.h"

#endif
