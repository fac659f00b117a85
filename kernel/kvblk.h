/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kvblk: the map of the module. Data flows one way:
 *
 *   cdev (batches) -> req (one operation) -> index, segment (room) -> io (bios)
 *   -> member's device -> req completion, in the task that waits
 *
 * Beside it: reclaim makes room, member and restore bring devices up and down,
 * netlink, sysfs and stats are for operators.
 *
 * Locks, outermost first:
 *   kvblk_assembly_lock mutex: pools and members are made one by one
 *   pool->admin       mutex: members come and go, tunables that need more than
 *                     a store
 *   pool->lease_lock  mutex: leases; no memory is allocated under it but for
 *                     an xarray
 *   member->table_lock mutex: pages of the segment table on their way out
 *   index.tags_lock   mutex: room for caller tags is made; a leaf
 *   member->lock      spinlock: segment states and the lists they are on
 *   kvblk_pools_lock  mutex: the list of pools; a leaf, no I/O under it
 *   pool->kill_gate   spinlock: an entry makes room for another one, and its
 *                     record gets on the list of kills, as one step
 *   index stripes     spinlocks, see index.h
 *   pool->kill_lock   spinlock: the lists of kills
 *   file->lock        spinlock: operations in flight of an open file
 *   member->gate_lock spinlock, irq-safe: puts that wait for others
 *   batch->wq.lock    spinlock, irq-safe: completed operations of a batch
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

#include "compat.h"
#include "hash.h"
#include "index.h"
#include "policy.h"
#include "record.h"
#include "room.h"

#define KVBLK_NAME_MAX		32	/* pool names, NUL included */
#define KVBLK_MEMBERS_MAX	64
/*
 * Pool-wide segment numbers are handed to members in granules, so that the
 * member of a segment is found with one small array.
 */
#define KVBLK_GRANULE_SHIFT	10
#define KVBLK_GRANULES		1024
#define KVBLK_SEGS_MAX		(KVBLK_GRANULES << KVBLK_GRANULE_SHIFT)
#define KVBLK_SEGMENT_MIN	SZ_8M
#define KVBLK_SEGMENT_MAX	SZ_1G
#define KVBLK_SEGMENT_DEFAULT	SZ_256M
#define KVBLK_MEMBER_SEGS_MIN	8

/* ---- stats.c --------------------------------------------------------- */

/* Same order as the spec's attribute set "counter". */
enum kvblk_counter {
	KVBLK_C_PUTS,		/* stored */
	KVBLK_C_PUT_BYTES,
	KVBLK_C_PUT_EXISTS,
	KVBLK_C_PUT_BUSY,	/* -EALREADY */
	KVBLK_C_PUT_DECLINED,
	KVBLK_C_PUT_NOSPACE,
	KVBLK_C_PUT_ERRORS,
	KVBLK_C_GETS,		/* delivered */
	KVBLK_C_GET_BYTES,
	KVBLK_C_GET_MISSES,	/* all of them, failed checks included */
	KVBLK_C_GET_DIRECT,
	KVBLK_C_GET_BOUNCED,
	KVBLK_C_PUT_DIRECT,
	KVBLK_C_PUT_BOUNCED,
	KVBLK_C_DELETES,
	KVBLK_C_LOOKUPS,	/* calls */
	KVBLK_C_LOOKUP_KEYS,
	KVBLK_C_LOOKUP_HITS,
	KVBLK_C_CHECKSUM_FAILURES, /* payload or header, seen in kernel memory */
	KVBLK_C_REREADS,	/* mismatch in user pages, read again */
	KVBLK_C_READ_ERRORS,
	KVBLK_C_WRITE_ERRORS,
	KVBLK_C_DEADLINES,
	KVBLK_C_CANCELS,
	KVBLK_C_SEGS_OPENED,
	KVBLK_C_SEGS_SEALED,
	KVBLK_C_SEGS_RECLAIMED,
	KVBLK_C_REINSERTS,
	KVBLK_C_REINSERT_BYTES,
	KVBLK_C_DROPPED,	/* live blocks dropped by reclaim */
	KVBLK_C_EXPIRED,
	KVBLK_C_EVICTED,	/* thrown out by a full index */
	KVBLK_C_KILLS,		/* headers overwritten */
	KVBLK_C_RESTORED,	/* blocks found at restart */
	KVBLK_C_LEASES,
	KVBLK_C_PRODUCER_MISMATCHES, /* blocks that were not as their putter said */
	KVBLK_C_DEVICE_DIRECT,	/* operations on devices' memory */
	KVBLK_C_DEVICE_BOUNCED,
	KVBLK_C_DEVICE_FALLBACKS, /* direct transfers that failed, done again */
	KVBLK_C_DEVICE_READ_BYTES, /* by the CPU */
	KVBLK_COUNTERS,
};

enum kvblk_hist {
	KVBLK_H_PUT,
	KVBLK_H_GET,
	KVBLK_H_DELETE,
	KVBLK_H_LOOKUP,
	KVBLK_HISTS,
};

#define KVBLK_HIST_BUCKETS	40	/* bucket i: 2^i <= ns < 2^(i+1) */

/* One for each CPU; written by its CPU alone, summed by readers. */
struct kvblk_stats {
	u64 counters[KVBLK_COUNTERS];
	u64 hists[KVBLK_HISTS][KVBLK_HIST_BUCKETS];
	u32 next_member;		/* puts go round */
};

struct kvblk_file;
struct kvblk_pool;
struct kvblk_member;

/* Adds @n to a counter; any context. */
#define kvblk_count(pool, counter, n) \
	this_cpu_add((pool)->stats->counters[counter], n)
/* Notes a latency; any context. */
void kvblk_hist_add(struct kvblk_pool *pool, enum kvblk_hist hist, ktime_t start);
/* Sums all CPUs into @sum. */
void kvblk_stats_sum(struct kvblk_pool *pool, struct kvblk_stats *sum);

/* ---- segment.c: the log ---------------------------------------------- */

/* An open segment's summary in the making; page i lists records from 63 * i. */
struct kvblk_open {
	spinlock_t lock;		/* contents of pages */
	struct mutex writing;		/* pages on their way out */
	u32 nr_pages;			/* size of pages[] */
	u32 settled;			/* full pages' records that are on media */
	u32 listed;			/* all of so many records are */
	struct kvblk_d_summary *pages[];/* each set once, by cmpxchg */
};

/**
 * struct kvblk_segment - a stretch of a member
 * @gen: generation; the index holds its low 16 bits in pool->seg_gen too.
 *	Written by reclaim when a segment is retired
 * @refs: gets, deletes and copies that rely on the segment's bytes
 * @writers: puts with room in it, plus one while it is open
 * @cursor: see room.h
 * @open: while OPEN and until sealed, else NULL; if the seal could not be
 *	written, until the segment is retired
 * @state: &enum kvblk_segment_state; under member->lock
 * @class: &enum kvblk_class
 * @flags: KVBLK_SEGF_*; under member->lock
 * @stamp: see &kvblk_policy_seg.stamp; reclaim's after it was opened
 * @retired: waits for @refs to drain
 * @live_units: units of records whose entries point here, an estimate
 * @nr_records: SEALED: all records
 * @opened: pool-wide order of opening
 * @kills_durable: KVBLK_SEGF_KILLS is on media
 * @retiring_gen: generation to put into the table while @gen is still the old
 *	one; 0 if none
 * @reclaim_run: the last run of reclaim that could not reclaim it; reclaim's
 * @sweep_mark: pool->sweep_pass that must be over before reuse
 * @link: on one list of the member, under member->lock
 */
struct kvblk_segment {
	u64 gen;
	atomic_t refs;
	atomic_t writers;
	atomic64_t cursor;
	struct kvblk_open *open;
	u8 state;
	u8 class;
	bool retired;
	u16 flags;
	u64 stamp;
	atomic_t live_units;
	bool kills_durable;
	u32 nr_records;
	u64 opened;
	u64 retiring_gen;
	u32 reclaim_run;
	u64 sweep_mark;
	struct list_head link;
};

/* Room in an open segment, held from reservation to completion. */
struct kvblk_room {
	struct kvblk_member *member;	/* holds member->ref */
	struct kvblk_segment *seg;	/* holds seg->writers and seg->refs */
	u64 gen;
	u64 seq;
	u32 segment;			/* of the member */
	u32 unit;
	u32 units;
	u32 index;			/* of the record in the segment */
};

/* ---- member.c -------------------------------------------------------- */

/*
 * Open segments of a member: puts of many CPUs don't meet on one, in a member
 * that has plenty (at most one in 32 is open for that).
 */
#define KVBLK_LOGS_NEW		8
#define KVBLK_LOG_HOT		KVBLK_LOGS_NEW
#define KVBLK_LOGS		(KVBLK_LOGS_NEW + 1)

enum kvblk_member_state {
	KVBLK_MEMBER_RESTORING,	/* reading summaries; no I/O for users */
	KVBLK_MEMBER_UP,
	KVBLK_MEMBER_DEAD,	/* device gone: nothing is served */
	KVBLK_MEMBER_REMOVING,
};

extern const char *const kvblk_member_state_names[];

/* Errors of a member that are reported to operators, in this order. */
enum kvblk_member_error {
	KVBLK_ERROR_READ,
	KVBLK_ERROR_WRITE,
	KVBLK_ERROR_CHECKSUM,
	KVBLK_ERRORS,
};

/**
 * struct kvblk_report - errors of one kind that are to be reported
 * @next: jiffies before which none is
 * @nr: since the last report
 * @segment: of the member, of the last one
 */
struct kvblk_report {
	unsigned long next;
	atomic_t nr;
	u32 segment;
};

struct kvblk_ios {
	u64 submitted;
	u64 done;
	u64 failed;			/* of those done */
};

/* Devices with memory that members are let at; more of them bounce. */
#define KVBLK_PROVIDERS_MAX	16

/**
 * enum kvblk_route_state - how a device's memory is reached
 * @KVBLK_ROUTE_UNKNOWN: nobody has asked yet
 * @KVBLK_ROUTE_DIRECT: by the member
 * @KVBLK_ROUTE_BOUNCE: by the CPU
 * @KVBLK_ROUTE_TRIAL: by the member where that is proven, else it is looked at
 */
enum kvblk_route_state {
	KVBLK_ROUTE_UNKNOWN,
	KVBLK_ROUTE_DIRECT,
	KVBLK_ROUTE_BOUNCE,
	KVBLK_ROUTE_TRIAL,
};

#define KVBLK_PROVEN_GET	BIT(0)
#define KVBLK_PROVEN_PUT	BIT(1)

/**
 * struct kvblk_route - of a provider to a member
 * @serial: of the provider, 0: none yet
 * @state: &enum kvblk_route_state
 * @proven: TRIAL: which directions were right, KVBLK_PROVEN_*
 * @failures: TRIAL: how often it was not right
 * @errors: I/O errors that the way may have caused
 * @next: TRIAL: jiffies before which it is not tried
 * @why: it bounces or is tried out anew, or NULL
 */
struct kvblk_route {
	u32 serial;
	u32 state;
	u32 proven;
	u32 failures;
	u32 errors;
	unsigned long next;
	const char *why;
};

/*
 * struct kvblk_member - a block device of a pool
 * @pool: its pool
 * @ref: I/O in flight and works; killed at removal
 * @slot: 1 + its place in pool->members, 0 while it has none
 * @name: last part of the device's path, unique in the pool
 * @path: as given
 * @state: &enum kvblk_member_state; changed by cmpxchg, READ_ONCE elsewhere
 * @suspect: silent for too long; set by the watchdog, cleared by completions
 * @failing: answers with errors; set by completions and by the watchdog,
 *	cleared by the watchdog when probes succeed
 * @error_run: errors since the last I/O that succeeded
 * @suspect_told: what the last event said; the watchdog's own
 * @seg_base: pool-wide number of segment 0
 * @segs: nr_segs of them
 * @incarnation: of this format
 * @ios: bios, each CPU's own
 * @lock: segment states, lists and counts below
 * @ready: opened on media for puts, waiting to take records
 * @free: FREE
 * @sealed: SEALED, oldest first
 * @retiring: retired, waiting for references to go
 * @current_seg: takes records: those of class NEW by CPU, and the last one, of
 *	class HOT. Read under @lock or by reservation, which holds seg->writers
 */
struct kvblk_member {
	struct kvblk_pool *pool;
	struct kvblk_route routes[KVBLK_PROVIDERS_MAX];	/* p2p.c's, as are */
	struct work_struct p2p_work;	/* tries one out, */
	atomic_t p2p_busy;		/* while it does, */
	phys_addr_t p2p_addr;		/* that to somebody's memory, */
	struct page *p2p_page;		/* this, with its ref, or NULL, */
	unsigned long p2p_next;		/* but not before */
	struct percpu_ref ref;
	struct completion ref_done;
	struct kobject *kobj;
	u32 slot;
	char name[32];
	char path[128];
	uuid_t uuid;
	u32 state;
	bool suspect;
	bool failing;
	atomic_t error_run;
	bool suspect_told;
	bool failing_told;		/* likewise */
	bool formatted;			/* just made; nothing to restore */
	u64 restored;			/* blocks found at restart */

	struct file *bdev_file;
	struct block_device *bdev;
	u64 size;
	u64 data_start;
	u32 segment_units;
	u32 nr_segs;
	u32 record_align;		/* bytes */
	u32 seg_base;
	struct kvblk_segment *segs;
	u64 incarnation;
	u64 sb_seq;
	u64 epoch;

	struct kvblk_ios __percpu *ios;
	unsigned long last_get;		/* its submission, jiffies; rough */
	u64 seen_done;			/* the watchdog's own, */
	u64 seen_inflight;		/* likewise, and */
	u64 seen_failed;		/* likewise */
	unsigned long last_done;	/* when it saw progress, jiffies */
	struct work_struct probe;	/* does it answer well again? Its own are */
	unsigned long probe_next;	/* jiffies before which it does not ask, */
	unsigned long probe_gap;	/* after a probe that failed, and */
	u32 probes_well;		/* in a row */
	struct kvblk_report reports[KVBLK_ERRORS];

	spinlock_t lock;		/* all down to closing */
	struct list_head ready;
	struct list_head free;
	struct list_head sealed;
	struct list_head retiring;
	u32 nr_logs;			/* of class NEW */
	struct kvblk_segment *current_seg[KVBLK_LOGS];
	u32 nr_free;
	u32 nr_ready;
	u32 nr_sealed;
	u32 nr_retiring;
	u32 nr_open;			/* current, ready and not yet sealed ones */
	struct list_head closing;	/* full, last writer gone: to be sealed */

	struct mutex table_lock;	/* table_seq, table_buf, page order */
	u64 *table_seq;			/* by page; under table_lock */
	struct kvblk_d_table *table_buf;/* under table_lock */

	struct work_struct log_work;	/* open, seal */
	struct work_struct reclaim_work;
	u32 reclaim_run;		/* its own */
	spinlock_t gate_lock;		/* see req.c; any context */
	struct list_head gate;		/* puts that wait for others; gate_lock */
	u64 gate_bytes;			/* of those let through; gate_lock, */
	u64 gate_waiting;		/* of those that wait; likewise, and */
	unsigned long gate_moved;	/* when the last one was over, jiffies; */
	unsigned long gate_scanned;	/* when it was searched for canceled ones */
	struct work_struct gate_work;
	struct list_head kills;		/* pool->kill_lock, as are */
	u32 nr_kills;			/* those listed, and */
	bool kills_full;		/* too many of them */
	unsigned long kill_retry;	/* jiffies; kill_work's, as is */
	unsigned long kill_gap;		/* between two tries */
	struct work_struct kill_work;
	struct delayed_work checkpoint;
	struct work_struct restore;
	struct work_struct remove;
	struct delayed_work dead;
	bool removing;			/* under pool->admin */
	bool unsure;			/* counted in pool->unsure; pool->admin */
	bool outdated;			/* the epoch has moved on since; likewise */
	bool low_told;			/* the low watermark was crossed; reclaim_work's own */
};

/**
 * enum kvblk_check - a pool's policy of payload checksums
 * @KVBLK_CHECK_HEADER: none, the record's header is all that is checked
 * @KVBLK_CHECK_FULL: each payload has them, and is served only when they are right
 * @KVBLK_CHECK_PRODUCER: likewise, but for what goes straight to or from the
 *	memory of a PCI device: there they are the business of who makes and reads it
 */
enum kvblk_check {
	KVBLK_CHECK_HEADER,
	KVBLK_CHECK_FULL,
	KVBLK_CHECK_PRODUCER,
};

/**
 * struct kvblk_tunables - what sysfs changes; plain loads and stores
 * @low_permille: reclaim starts when fewer segments are free (free + ready), of all
 * @high_permille: reclaim stops at so many
 * @reinsert_permille: bytes written again, of bytes put
 * @admit_permille: first-touch chains admitted; see policy.h
 * @integrity: &enum kvblk_check
 * @queue_bytes: bytes that one batch keeps in flight
 * @put_window_bytes: of puts on a member at once, while gets come; 0: any
 * @suspect_ms: silence after which a member is suspect
 * @failing_run: errors in a row after which a member is failing; 0: any
 * @failing_permille: of a second's I/O, errors at which it is; 0: any
 * @discard: discard segments before reuse
 * @lease_keys_max: leased keys an open file may hold
 * @reclaim_event_rate: segments reclaimed a second, above which an event goes out
 * @bounce_chunks: see bounce.c
 */
struct kvblk_tunables {
	u32 low_permille;
	u32 high_permille;
	u32 reinsert_permille;
	u32 admit_permille;
	u32 integrity;
	u64 queue_bytes;
	u64 put_window_bytes;
	u32 suspect_ms;
	u32 failing_run;
	u32 failing_permille;
	u32 discard;
	u32 lease_keys_max;
	u32 reclaim_event_rate;
	u32 bounce_chunks;
};

/* Activations in the upper bits of a record's seq, records in the lower. */
#define KVBLK_SEQ_EPOCH_SHIFT	40

/* ---- pool.c ---------------------------------------------------------- */

#define KVBLK_BOUNCE_BYTES	SZ_1M
#define KVBLK_BOUNCES_MAX	64
#define KVBLK_BOUNCES		8

#define KVBLK_POOL_STRICT	BIT(0)	/* bounce everything */
#define KVBLK_KILL_BUCKETS	256

struct kvblk_pool {
	struct device dev;		/* /sys/class/kvblk/<name>, the node */
	struct cdev cdev;
	struct list_head link;		/* in kvblk_pools, under kvblk_pools_lock */
	char name[KVBLK_NAME_MAX];
	uuid_t uuid;
	u32 flags;
	u64 birth;			/* seconds since 1970 */
	u64 epoch;
	u64 activation;			/* random; see format.h */
	u64 prev_epoch;
	u64 prev_activation;
	u8 seed[32];
	struct kvblk_secret secret;

	struct percpu_ref users;
	struct completion users_done;
	bool dying;
	atomic_t open_files;

	struct mutex admin;		/* members */
	struct kvblk_member __rcu *members[KVBLK_MEMBERS_MAX];
	u32 nr_members;
	u64 align;			/* struct kvblk_align, read at once */
	u32 align_units;		/* largest record_align, in units */
	bool stable_writes;		/* puts must not change under way */
	bool device_seen;		/* somebody uses a device's memory */
	u8 granule[KVBLK_GRANULES];	/* member slot + 1, 0: free */
	u16 *seg_gen;			/* KVBLK_SEGS_MAX */

	struct kvblk_index index;
	struct kvblk_policy policy;
	struct kvblk_tunables tun;
	struct kvblk_stats __percpu *stats;

	atomic64_t seq;			/* of records */
	atomic64_t opened;		/* of segments */
	atomic_t restoring;		/* members not up yet */
	wait_queue_head_t restore_wait;
	wait_queue_head_t space_wait;
	atomic_t space_seq;		/* segments opened */
	wait_queue_head_t settle_wait;	/* a MOVING slot was let go */
	spinlock_t kill_gate;		/* see kill.c */
	spinlock_t kill_lock;		/* kills, the members' too */
	struct hlist_head kills[KVBLK_KILL_BUCKETS]; /* by token, kill_lock */
	bool pinned[KVBLK_GRANULES];	/* nothing there is evicted; kill_lock */
	atomic_t unsure;		/* what a lost member holds may come back */
	u32 nr_lost;			/* gone, but counted there; under admin */
	u32 now_floor;			/* time never goes back */

	struct bio_set bios;
	struct workqueue_struct *wq;
	struct kobject *members_dir;	/* sysfs members/ */
	struct delayed_work tick;
	struct work_struct supers_work;	/* superblocks with an old epoch */
	struct work_struct sweep_work;
	u64 sweep_at;			/* its own */
	u64 sweep_pass;
	u64 reclaimed_last;

	spinlock_t bounce_lock;		/* bounces */
	struct kvblk_bounce *bounces[KVBLK_BOUNCES_MAX];

	struct mutex lease_lock;	/* all leases */
	struct rhashtable lease_keys;
	struct rb_root_cached leases;	/* by their ends */
	struct work_struct lease_work;	/* ends them */
	u64 leased_bytes;
};

extern struct class kvblk_class;
extern dev_t kvblk_devt;
extern struct list_head kvblk_pools;
extern struct mutex kvblk_pools_lock;
extern struct mutex kvblk_assembly_lock;

struct netlink_ext_ack;

/* What an administrator asks for; filled by netlink. */
struct kvblk_member_spec {
	char path[128];
	dev_t dev;			/* what @path means to who asks */
	u32 segment_size;		/* bytes; 0: chosen */
};

#define KVBLK_ADD_FORMAT	BIT(0)	/* whatever is on it */
#define KVBLK_ADD_FORCE		BIT(1)	/* take it from its owner */

/*
 * All of these may sleep, take pool->admin where they need it, and put a
 * sentence into @extack on every error.
 *
 * kvblk_pool_create: -EEXIST name in use, -EINVAL bad name, and the errors of
 * kvblk_member_add. All members come, or nothing does.
 * kvblk_pool_destroy: -ENOENT; -EBUSY when its node is open and not @force.
 * kvblk_member_add: -EEXIST this member is active, -EBUSY device in use,
 * -EINVAL device unfit, -ENOTEMPTY it holds something else, -EUCLEAN damaged,
 * -EREMOTE owned by another node.
 * kvblk_member_remove: -ENOENT; asynchronous, an event tells the end.
 */
int kvblk_pool_create(const char *name, u32 pool_flags, u64 index_slots,
		      const struct kvblk_member_spec *specs, u32 nr_specs,
		      u32 add_flags, struct netlink_ext_ack *extack);
int kvblk_pool_destroy(const char *name, bool force,
		       struct netlink_ext_ack *extack);
/* Takes a reference on the pool's device (put_device(&pool->dev)), or NULL. */
struct kvblk_pool *kvblk_pool_find(const char *name);
int kvblk_member_add(struct kvblk_pool *pool,
		     const struct kvblk_member_spec *spec, u32 add_flags,
		     struct netlink_ext_ack *extack);
int kvblk_member_remove(struct kvblk_pool *pool, const char *name,
			struct netlink_ext_ack *extack);

/* Seconds since the pool's birth. */
u32 kvblk_now(const struct kvblk_pool *pool);
/* It is not earlier than @now: a clock that is set back revives nothing. */
void kvblk_now_raise(struct kvblk_pool *pool, u32 now);
/* Longest block that a member that is up can take. */
u32 kvblk_pool_value_max(struct kvblk_pool *pool);
/* Bytes of all members that serve, and of their free segments. */
u64 kvblk_pool_capacity(struct kvblk_pool *pool);
u64 kvblk_pool_free_bytes(struct kvblk_pool *pool);

static inline struct kvblk_pool *kvblk_dev_pool(struct device *dev)
{
	return container_of(dev, struct kvblk_pool, dev);
}

/* The member in slot *@i of pool->members or the next one behind; NULL: none. */
static inline struct kvblk_member *kvblk_next_member(struct kvblk_pool *pool, int *i)
{
	struct kvblk_member *member = NULL;

	for (; *i < KVBLK_MEMBERS_MAX && !member; (*i)++)
		member = rcu_dereference_check(pool->members[*i],
					       lockdep_is_held(&pool->admin));
	if (member)
		(*i)--;
	return member;
}

/* Under rcu_read_lock() or pool->admin. */
#define kvblk_for_each_member(pool, member, i)				\
	for ((i) = 0; ((member) = kvblk_next_member(pool, &(i))); (i)++)

/* ---- netlink.c ------------------------------------------------------- */

/* Same numbers as the spec's enum kvblk-event. */
enum kvblk_event_type {
	KVBLK_EV_POOL_UP = 1,
	KVBLK_EV_POOL_DOWN,
	KVBLK_EV_MEMBER_UP,		/* value: blocks restored */
	KVBLK_EV_MEMBER_DOWN,		/* removed; value: 0 */
	KVBLK_EV_MEMBER_DEAD,		/* device gone */
	KVBLK_EV_MEMBER_SUSPECT,	/* value: ms of silence */
	KVBLK_EV_MEMBER_ANSWERS,	/* no longer suspect */
	KVBLK_EV_CHECKSUM,		/* value: pool-wide segment number */
	KVBLK_EV_READ_ERROR,		/* value: segment */
	KVBLK_EV_WRITE_ERROR,
	KVBLK_EV_RECLAIM_RATE,		/* value: segments in the last second */
	KVBLK_EV_LOW_SPACE,		/* value: free segments of the member */
	KVBLK_EV_RESTORE_FAILED,	/* value: errno */
	KVBLK_EV_REQUEST_FAILED,	/* value: errno */
	KVBLK_EV_MEMBER_FAILING,	/* value: I/O errors in the last second */
};

int kvblk_netlink_init(void);
void kvblk_netlink_exit(void);
/* Sends an event; @member may be NULL. Any context; drops it when short of memory. */
void kvblk_event(struct kvblk_pool *pool, struct kvblk_member *member,
		 enum kvblk_event_type type, u64 value);

/* ---- sysfs.c --------------------------------------------------------- */

extern const struct attribute_group *kvblk_pool_groups[];
/* Makes and removes members/<name>/; may sleep. */
int kvblk_sysfs_pool_init(struct kvblk_pool *pool);	/* after device_add: members/ */
void kvblk_sysfs_pool_exit(struct kvblk_pool *pool);
int kvblk_sysfs_member_add(struct kvblk_member *member);
void kvblk_sysfs_member_del(struct kvblk_member *member);

/* ---- pool.c, member.c, restore.c: inside ------------------------------ */

/* What is on a device that is to become a member. */
enum kvblk_found {
	KVBLK_FOUND_BLANK,
	KVBLK_FOUND_MEMBER,
	KVBLK_FOUND_OTHER,
	KVBLK_FOUND_DAMAGED,
};

/* Opens the device and reads its superblocks into @sb. */
struct kvblk_member *kvblk_member_open(struct kvblk_pool *pool,
				       const struct kvblk_member_spec *spec,
				       struct kvblk_d_super *sb,
				       enum kvblk_found *found,
				       struct netlink_ext_ack *extack);
void kvblk_member_free(struct kvblk_member *member);
/* Geometry from @sb, or (NULL) a new one: memory only. */
int kvblk_member_setup(struct kvblk_member *member, const struct kvblk_d_super *sb,
		       u32 segment_size, struct netlink_ext_ack *extack);
/* Gives it segment numbers, formats it, writes its superblocks. pool->admin held. */
int kvblk_member_prepare(struct kvblk_member *member, u16 state,
			 struct netlink_ext_ack *extack);
/* Makes it active and visible, and starts to restore it. pool->admin held. */
int kvblk_member_start(struct kvblk_member *member, struct netlink_ext_ack *extack);
/* Stops background work; seals what is open, if the device takes it. */
void kvblk_member_stop(struct kvblk_member *member);
int kvblk_member_write_super(struct kvblk_member *member, u16 state);
/*
 * Tells the pool's epoch to the members that have an older one; pool->admin
 * held. When all have it, what lost members hold can't come back: pool->unsure.
 */
void kvblk_pool_write_supers(struct kvblk_pool *pool);
/* Another node has it, and it is not to be taken all the same: with a sentence. */
bool kvblk_super_owned(struct kvblk_member *member, const struct kvblk_d_super *sb,
		       u32 add_flags, struct netlink_ext_ack *extack);
/* The device is gone, or can't be used. Any context that may take a spinlock. */
void kvblk_member_dies(struct kvblk_member *member);
/* What members can take directly; pool->admin held. */
void kvblk_pool_limits(struct kvblk_pool *pool);
/* A member of this uuid is in use on this node; takes kvblk_pools_lock. */
bool kvblk_member_active(const u8 uuid[16]);
void kvblk_member_watch(struct kvblk_member *member);
void kvblk_member_probe(struct work_struct *work);
/*
 * Counts an error in @segment of the member. The first one is reported by an
 * event and a line in the log, those of the next minute by one more. Any context.
 */
void kvblk_member_error(struct kvblk_member *member, enum kvblk_member_error error,
			u32 segment);
/* Member that is restoring or up, with its ref (kvblk_member_put()), or NULL. */
struct kvblk_member *kvblk_member_get(struct kvblk_pool *pool, u32 seg);
static inline void kvblk_member_put(struct kvblk_member *member)
{
	percpu_ref_put(&member->ref);
}

/* Units that the record of a block of @length takes on it. */
static inline u32 kvblk_member_units(const struct kvblk_member *member, u32 length)
{
	return kvblk_record_units(length, member->record_align >> KVBLK_UNIT_SHIFT);
}

/* Serves gets and lookups, of what it has restored so far. */
static inline bool kvblk_member_ok(const struct kvblk_member *member)
{
	return READ_ONCE(member->state) <= KVBLK_MEMBER_UP &&
	       !READ_ONCE(member->suspect) && !READ_ONCE(member->failing);
}

/* The member that a pool-wide segment number belongs to, or NULL. RCU. */
static inline struct kvblk_member *kvblk_member_of(struct kvblk_pool *pool, u32 seg)
{
	u8 slot = READ_ONCE(pool->granule[seg >> KVBLK_GRANULE_SHIFT]);

	return slot ? rcu_dereference(pool->members[slot - 1]) : NULL;
}

/* Member @n, counted round and round. RCU. */
struct kvblk_member *kvblk_member_nth(struct kvblk_pool *pool, u32 n);

void kvblk_member_restore(struct work_struct *work);

/* ---- segment.c ------------------------------------------------------- */

static inline u64 kvblk_seg_pos(const struct kvblk_member *member, u32 segment,
				u32 unit)
{
	return member->data_start +
	       (((u64)segment * member->segment_units + unit) << KVBLK_UNIT_SHIFT);
}

/* A payload in @seg is checked, or not served. */
static inline bool kvblk_must_check(const struct kvblk_pool *pool,
				    const struct kvblk_segment *seg)
{
	return READ_ONCE(pool->tun.integrity) == KVBLK_CHECK_FULL ||
	       READ_ONCE(seg->flags) & KVBLK_SEGF_UNPROVEN;
}

static inline struct kvblk_place kvblk_place(const struct kvblk_member *member,
					     u32 segment, u64 gen, u32 unit)
{
	return (struct kvblk_place) {
		.incarnation = member->incarnation,
		.generation = gen,
		.segment = segment,
		.unit = unit,
	};
}

/* Persists the table page of @segment with what is in memory. May sleep. */
int kvblk_table_write(struct kvblk_member *member, u32 segment);
/*
 * Takes room for @units in the current segment of @class. 0, or -EAGAIN: the
 * segment is full and the next is not ready; kvblk_log_kick() was called.
 */
int kvblk_room_reserve(struct kvblk_member *member, u8 class, u32 units,
		       struct kvblk_room *room);
/*
 * Gives room back when the record's I/O is over. @rec: what became LIVE there,
 * NULL: nothing, the room is a hole.
 */
void kvblk_room_release(struct kvblk_room *room, const struct kvblk_rec *rec);
/* Opens a free segment now; reclaim's way to KVBLK_CLASS_HOT. May sleep. */
int kvblk_segment_open(struct kvblk_member *member, u8 class);
int kvblk_segment_seal(struct kvblk_member *member, struct kvblk_segment *seg);
struct kvblk_open *kvblk_open_alloc(struct kvblk_member *member);
void kvblk_open_free(struct kvblk_open *open);
/* The entry of record @index; allocates its page. May sleep. */
struct kvblk_d_entry *kvblk_open_entry(struct kvblk_open *open, u32 index);
void kvblk_log_kick(struct kvblk_member *member);
void kvblk_log_work(struct work_struct *work);
void kvblk_checkpoint_work(struct work_struct *work);
/* Closes all that take records; they are sealed when their writers are gone. */
void kvblk_log_close(struct kvblk_member *member);
/* Free segments, ready ones included. */
static inline u32 kvblk_member_avail(const struct kvblk_member *member)
{
	return READ_ONCE(member->nr_free) + READ_ONCE(member->nr_ready);
}

/*
 * Takes seg->refs of the segment that @slot lies in, if it is still of the
 * slot's generation and its member is up; @member gets its ref too.
 */
struct kvblk_segment *kvblk_segment_get(struct kvblk_pool *pool,
					const struct kvblk_slot *slot,
					struct kvblk_member **member, u64 *gen);
void kvblk_segment_put(struct kvblk_member *member, struct kvblk_segment *seg);

/* ---- io.c ------------------------------------------------------------ */

/*
 * Reads or writes @len bytes at @pos from or to @buf (page-aligned, kmalloc
 * or vmalloc) and waits. @opf: REQ_OP_* and flags.
 */
int kvblk_io_sync(struct kvblk_member *member, blk_opf_t opf, u64 pos,
		  void *buf, size_t len);
int kvblk_io_flush(struct kvblk_member *member);

/*
 * Around submissions in a task's own context: a target that dies must not kill
 * it by SIGPIPE.
 */
struct kvblk_sigpipe {
	sigset_t saved;
	bool was_pending;
	bool masked;			/* by us; @saved is what it was */
};

void kvblk_sigpipe_block(struct kvblk_sigpipe *shield);
void kvblk_sigpipe_restore(struct kvblk_sigpipe *shield);

/* Bios submitted and not completed, of all CPUs; in @ios (or NULL) the sums. */
u64 kvblk_member_inflight(const struct kvblk_member *member, struct kvblk_ios *ios);

/**
 * struct kvblk_io - bios in flight for one purpose
 * @member: their device
 * @pending: bios, plus one while they are being submitted
 * @status: the first error
 * @p2p: there are pages of PCI devices in it
 * @done: called when all are over, in any context
 */
struct kvblk_io {
	struct kvblk_member *member;
	atomic_t pending;
	blk_status_t status;
	bool p2p;
	void (*done)(struct kvblk_io *io);
};

void kvblk_io_start(struct kvblk_io *io, struct kvblk_member *member,
		    void (*done)(struct kvblk_io *io));
/*
 * Submits a bio over @nr vectors, one stretch of media from @pos on; the block
 * layer splits it as the device wants it. @bv stays as it is until @done.
 */
void kvblk_io_submit(struct kvblk_io *io, blk_opf_t opf, u64 pos,
		     const struct bio_vec *bv, u32 nr);
/* No more bios come. @done is called from here when all are over. */
void kvblk_io_end(struct kvblk_io *io);

/* ---- reclaim.c ------------------------------------------------------- */

void kvblk_reclaim_work(struct work_struct *work);

/* ---- kill.c ---------------------------------------------------------- */

/* Kills that a member lists before it is left alone; see kill.c. */
#define KVBLK_KILLS_MAX		4096

/*
 * struct kvblk_kill - a stale record that must not be found at a restart
 * @link: in member->kills until the header is overwritten
 * @node: in pool->kills, by @token, as long
 * @io: its write
 * @token: of its block's id; see kvblk_index_token()
 * @waiter: a delete's, ends with the first try or when the member stops
 *	answering; taken by xchg()
 * @held: its entry is about to leave the index, or not
 * @writer: its put is still under way, and lets it go (kvblk_kill_settle())
 * @settled: that put is over
 * @failed: the last try failed; the clock tries again
 */
struct kvblk_kill {
	struct list_head link;
	struct hlist_node node;
	struct kvblk_io io;
	u64 token;
	struct kvblk_member *member;	/* with its ref */
	struct kvblk_segment *seg;	/* with its ref */
	struct kvblk_io *waiter;
	struct kill_batch *batch;
	void *filler;
	struct bio_vec bv;		/* of @filler */
	u64 gen;
	u32 unit;
	u32 units;
	bool held;
	bool writer;
	bool settled;
	bool failed;
};

/* The durable mark that comes before a kill of what a summary may list. */
int kvblk_kill_mark(struct kvblk_member *member, struct kvblk_segment *seg,
		    u64 gen);
/*
 * Changes to the index that leave a stale record behind, and have it killed in
 * the background. Deletes of its id wait for that. Return as the functions of
 * index.h do. May sleep for memory.
 */
int kvblk_entry_insert(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *slot, struct kvblk_slot *old);
bool kvblk_entry_replace(struct kvblk_pool *pool, struct kvblk_id id,
			 const struct kvblk_slot *old,
			 const struct kvblk_slot *new);
/*
 * Removes the entry; @waiter (kvblk_io_start() was called) ends when its record
 * is killed, or could not be. -EAGAIN: the entry is not @old any more; -ENOMEM.
 * May sleep.
 */
int kvblk_entry_delete(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *old, struct kvblk_io *waiter);
/* A record that never was an entry, or is none any more. */
void kvblk_kill_later(struct kvblk_pool *pool, struct kvblk_id id,
		      const struct kvblk_slot *slot);
/* The put whose slot was taken over is done, and its record is to be killed. */
void kvblk_kill_settle(struct kvblk_pool *pool, struct kvblk_id id,
		       const struct kvblk_slot *slot);
/*
 * 0: no stale record of @id is left; 1: one waits for its kill
 * (pool->settle_wait tells); -EIO: it can't be killed now.
 */
int kvblk_kill_barrier(struct kvblk_pool *pool, struct kvblk_id id);
void kvblk_kill_work(struct work_struct *work);
/*
 * Each second, and when members leave: retries failed kills whose time has
 * come, gives up needless ones, and fails deletes that wait for a member that
 * does not answer. No sleep.
 */
void kvblk_kill_retry(struct kvblk_pool *pool);
/* The member lists as many kills as it may. */
static inline bool kvblk_kills_full(const struct kvblk_member *member)
{
	return READ_ONCE(member->kills_full);
}

/* The same of the member that @slot lies on. */
bool kvblk_slot_kills_full(struct kvblk_pool *pool, const struct kvblk_slot *slot);

/* ---- region.c: registered memory --------------------------------------- */

#define KVBLK_REGION_MAX	(64ull << 30)
#define KVBLK_REGIONS_MAX	65536

/**
 * struct kvblk_region - memory that a file has registered; see region.c
 * @refs: the file's, and of operations
 * @device: it is a PCI device's
 * @gone: it can't be used any more, for its mapping has gone
 * @nr_pages: in @pages
 * @mm: whose memory it is: of the host's, whose locked memory
 * @addr: where he has mapped it, or had
 * @length: bytes
 * @pins: of a device's: why pages are pinned: it is not gone, and uses
 * @notifier: of a device's, tells when the mapping goes
 * @run: pages side by side, from each one on
 * @pages: pinned
 */
struct kvblk_region {
	refcount_t refs;
	bool device;
	bool gone;
	u32 nr_pages;
	u64 addr;
	u64 length;
	struct mm_struct *mm;
	refcount_t pins;
#ifdef CONFIG_MMU_NOTIFIER
	struct mmu_interval_notifier notifier;
#endif
	u32 *run;
	struct page *pages[];
};

/*
 * Pins @length bytes at @addr of the caller; the host's count as his locked
 * memory. -EINVAL, -ENOMEM (RLIMIT_MEMLOCK too), -EFAULT, -EXDEV (not all of the
 * host or of one device), -ENOSPC (too many regions), -EINTR. May sleep.
 */
int kvblk_region_add(struct kvblk_file *file, u64 addr, u64 length, u32 *handle);
/* -ENOENT. Operations under way keep it. May sleep. */
int kvblk_region_remove(struct kvblk_file *file, u32 handle);
void kvblk_region_remove_all(struct kvblk_file *file);
void kvblk_region_put(struct kvblk_region *region);
/* A device's: its pages stay pinned until kvblk_region_unuse(). False: it is gone. */
bool kvblk_region_use(struct kvblk_region *region);
void kvblk_region_unuse(struct kvblk_region *region);

/* A &struct kvblk_piece, resolved where it lies: NULL: @addr is a user address. */
struct kvblk_part {
	struct kvblk_region *region;
	u64 addr;
	u64 length;
};

/*
 * Makes parts of pieces, which have been checked, where they lie. -ENXIO: no
 * such region; -ERANGE: not within it. To be put in any case.
 */
int kvblk_parts_resolve(struct kvblk_file *file, struct kvblk_part *parts, u32 nr);
void kvblk_parts_put(struct kvblk_part *parts, u32 nr);

/* ---- buf.c: a caller's memory ----------------------------------------- */

/* Bytes of the checksums of the longest block. */
#define KVBLK_CRCS_MAX		((KVBLK_VALUE_MAX >> KVBLK_CHUNK_SHIFT) * 4)

/* A buffer of the ring's, imported by io_uring_cmd_import_fixed(). */
#define KVBLK_FIXED	((struct kvblk_region *)1)

/*
 * struct kvblk_src - the memory that an operation names
 * @parts: nr of them
 * @fixed: what KVBLK_FIXED is
 * @fault: page faults may be taken; without, what is not resident is -EFAULT
 */
struct kvblk_src {
	struct kvblk_part *parts;
	const struct iov_iter *fixed;
	u32 nr;
	bool fault;
};

/* A ring's buffer has gaps at page boundaries only: a block driver's may have others. */
bool kvblk_fixed_whole(const struct kvblk_src *src);

/* 256 KiB, wherever they begin; a request and a header fill 8 KiB */
#define KVBLK_FEW_PAGES		80

/*
 * struct kvblk_mem - the payload of an operation as the device sees it
 * @bv: vectors, @nr of them; bv[0] is left free for the record's header
 * @media_bytes: bytes in bv[1..], a multiple of 4 KiB
 * @bytes: payload bytes in them; the rest is padding
 * @pages: pinned, to be unpinned
 * @direct: the caller's memory; else kernel pages, one run for each vector
 * @p2p: some of it is a PCI device's: the CPU keeps off it
 * @tail: a kernel page for the end that is no multiple of a logical block
 * @tail_user: where the payload bytes in @tail belong
 * @used: those of the first @nr_used parts that are a device's regions are in use
 */
struct kvblk_mem {
	struct bio_vec *bv;
	struct page **pages;
	struct page *tail;
	struct bio_vec tail_user;
	const struct kvblk_src *used;
	u32 nr_used;
	u32 nr;
	u32 nr_pages;
	u32 media_bytes;
	u32 bytes;
	bool direct;
	bool dirty;
	bool p2p;
	struct bio_vec few_bv[KVBLK_FEW_PAGES + 2];	/* room for short ones */
	struct page *few_pages[KVBLK_FEW_PAGES];
};

/**
 * struct kvblk_align - what lets every member of a pool transfer directly
 * @addr_mask: bits of addresses that must be 0
 * @len_mask: the same of lengths, the last one excepted
 */
struct kvblk_align {
	u32 addr_mask;
	u32 len_mask;
};

/* One look, for both fields must be of one time. */
static inline struct kvblk_align kvblk_pool_align(const struct kvblk_pool *pool)
{
	u64 align = READ_ONCE(pool->align);

	return (struct kvblk_align) { .addr_mask = align >> 32, .len_mask = align };
}

/* The caller's memory lets every member of the pool transfer directly. */
bool kvblk_src_fits(const struct kvblk_src *src, u32 bytes, struct kvblk_align align);
/*
 * Brings in what is user memory, as far as it is there, and touches no byte.
 * May take as long as a user-space pager likes. 0 or -EINTR.
 */
int kvblk_src_fault_in(const struct kvblk_src *src, bool write);
/*
 * The first @bytes of the caller's memory, pinned. 0; -EFAULT: it is not there, or
 * not now; -ENXIO: its region is gone; -ENOMEM. Takes no page faults.
 */
int kvblk_mem_map(struct kvblk_mem *mem, const struct kvblk_src *src, u32 bytes,
		  bool write, struct kvblk_align align);
/* Allocates kernel pages for @bytes. */
int kvblk_mem_alloc(struct kvblk_mem *mem, u32 bytes);
/* Copies between bounce pages, from byte @skip on, and the caller. */
int kvblk_mem_copy_in(struct kvblk_mem *mem, const struct kvblk_src *src);
/* Writes @bytes from byte @skip of the caller's memory on. 0, -EFAULT, -ENXIO. */
int kvblk_src_write(const struct kvblk_src *src, u32 skip, void *from, u32 bytes);
/* Clears what can be reached of the first @bytes. */
void kvblk_src_zero(const struct kvblk_src *src, u32 bytes);
/* The same at an address of his; without @fault, none is taken. */
int kvblk_user_write(u64 addr, const void *from, u32 bytes, bool fault);
/* A device's memory is in it, as far as the parts' first pages tell: at @addr. */
bool kvblk_src_device(const struct kvblk_src *src, bool write, phys_addr_t *addr);
/* The page at @user is a device's, which GUP finds with FOLL_ flags @gup: at @addr. */
bool kvblk_user_device(u64 user, unsigned int gup, phys_addr_t *addr);
int kvblk_mem_copy_out(struct kvblk_mem *mem, u32 skip, u32 bytes,
		       const struct kvblk_src *src);
/* After a direct read: copies the tail to where it belongs. */
void kvblk_mem_tail_out(struct kvblk_mem *mem);
void kvblk_mem_zero(struct kvblk_mem *mem);
void kvblk_mem_free(struct kvblk_mem *mem);
/* crc32c of each chunk of @mem->bytes; the first begins at vector 1. */
void kvblk_mem_crcs(const struct kvblk_mem *mem, __le32 *crcs);
/* All chunks agree with @crcs. */
bool kvblk_mem_check(const struct kvblk_mem *mem, const __le32 *crcs);
/* The same of @bytes in the kernel. */
bool kvblk_data_check(const void *data, u32 bytes, const __le32 *crcs);

/* ---- bounce.c: gets into devices' memory, part by part ------------------ */

struct kvblk_bounce;
struct kvblk_req;

/* For a get whose segment is held, or NULL: all are in use. May sleep. */
struct kvblk_bounce *kvblk_bounce_get(struct kvblk_req *req);
void kvblk_bounce_put(struct kvblk_pool *pool, struct kvblk_bounce *b);
/* Frees what is idle, but @keep of them. */
void kvblk_bounce_trim(struct kvblk_pool *pool, u32 keep);
/* Begins to read the payload, from req->from to @end; the header is the get's. */
void kvblk_bounce_submit(struct kvblk_bounce *b, u32 end);
/* It is to be checked against these, of the whole block. */
void kvblk_bounce_check(struct kvblk_bounce *b, const __le32 *crcs);
/*
 * Copies what has landed; @err: it is to end with this, when it can. 0;
 * -EINPROGRESS: in flight again; -EIO, -EBADMSG: a part could not be read, or
 * is damaged; -EFAULT: not without a page fault; or @err. Where it is not 0, what
 * was copied is zero again. The caller's context, or @err is -EINTR: then parts
 * that were good stay.
 */
int kvblk_bounce_run(struct kvblk_bounce *b, int err);

/* ---- p2p.c: memory of PCI devices -------------------------------------- */

#ifdef CONFIG_PCI_P2PDMA
int kvblk_p2p_init(void);
void kvblk_p2p_exit(void);
/*
 * May @member transfer to and from @mem? 0; -EREMOTEIO: no, or nobody knows yet:
 * then it is tried out.
 */
int kvblk_p2p_route(struct kvblk_req *req, struct kvblk_member *member);
/* It is known that @member can't reach what is at @addr. */
bool kvblk_p2p_bounces(phys_addr_t addr, struct kvblk_member *member);
/* A transfer failed: there is no other that way if that may be why. May sleep. */
void kvblk_p2p_failed(struct kvblk_req *req, struct kvblk_member *member);
/*
 * A get with req->trial has landed: first where the caller wants it (-EAGAIN: now
 * through kernel memory), then there (0).
 */
int kvblk_p2p_trial(struct kvblk_req *req);
void kvblk_p2p_trial_end(struct kvblk_req *req);
void kvblk_p2p_work(struct work_struct *work);
/* A line for each provider: its address, distance, route, and why it bounces. */
ssize_t kvblk_p2p_show(struct kvblk_member *member, char *buf);
#else
static inline int kvblk_p2p_init(void) { return 0; }
static inline void kvblk_p2p_exit(void) {}
static inline int kvblk_p2p_route(struct kvblk_req *req,
				  struct kvblk_member *member)
{
	return -EREMOTEIO;
}

static inline void kvblk_p2p_failed(struct kvblk_req *req,
				    struct kvblk_member *member) {}
static inline bool kvblk_p2p_bounces(phys_addr_t addr, struct kvblk_member *member)
{
	return true;
}

static inline int kvblk_p2p_trial(struct kvblk_req *req) { return 0; }
static inline void kvblk_p2p_trial_end(struct kvblk_req *req) {}
static inline void kvblk_p2p_work(struct work_struct *work) {}
static inline ssize_t kvblk_p2p_show(struct kvblk_member *member, char *buf)
{
	return 0;
}
#endif

/* ---- req.c: operations ------------------------------------------------ */

/*
 * struct kvblk_file - an open node
 * @refs: the file's, and of operations that hold kernel memory
 * @held: bytes of kernel memory that payloads of its operations take
 * @held_moved: when some of them were given back, jiffies
 * @held_wait: for them to become less
 * @detached: those of operations that were given up, and whose device goes on
 */
struct kvblk_file {
	refcount_t refs;
	atomic64_t held;
	unsigned long held_moved;
	wait_queue_head_t held_wait;
	atomic64_t detached;
	struct kvblk_pool *pool;
	u16 tenant;
	siphash_key_t key;
	struct xarray regions;
	spinlock_t lock;		/* reqs */
	struct list_head reqs;		/* of batches under way */
	struct xarray leases;		/* by id; pool->lease_lock, as are */
	u64 next_lease;
	u32 nr_leased;
	u64 leased_bytes;
};

/* Operations submitted together; lives on the submitter's stack. */
struct kvblk_batch {
	struct kvblk_file *file;
	wait_queue_head_t wq;		/* its lock protects done and kicked */
	struct list_head done;
	bool kicked;			/* a cancel came */
	struct list_head faulting;	/* gets whose caller's memory is not resident */
	u32 nr_faulting;
	u32 nr_inflight;		/* those included */
	u32 nr_reqs;
	u64 bytes_inflight;
	struct kvblk_req **reqs;
};

/**
 * enum kvblk_req_state - who owns an operation
 * @KVBLK_REQ_NEW: the submitter
 * @KVBLK_REQ_INFLIGHT: its bios; the submitter may only detach it
 * @KVBLK_REQ_DONE: the submitter again, through batch->done or task work
 * @KVBLK_REQ_COPYING: a worker that takes the page faults of a ring's get
 * @KVBLK_REQ_DETACHED: its bios, then a work of its own, which frees it: the
 *	submitter was killed or would not wait
 */
enum kvblk_req_state {
	KVBLK_REQ_NEW,
	KVBLK_REQ_INFLIGHT,
	KVBLK_REQ_DONE,
	KVBLK_REQ_COPYING,
	KVBLK_REQ_DETACHED,
};

/*
 * struct kvblk_req - one operation
 * @io: its bios
 * @state: &enum kvblk_req_state
 * @canceled: WRITE_ONCE by KVBLK_IOC_CANCEL
 * @wants_fault: the caller's memory is not resident. It may stay so for as long
 *	as a user-space pager likes, so nothing is held when src.fault is set
 * @header: of the record, header_units of 4 KiB, physically contiguous
 * @slot: the entry found (get, delete) or made (put)
 * @member: with its ref, while I/O is under way (put: room.member)
 * @seg: with its ref, likewise
 * @from: get: first payload byte read, a multiple of the chunk size
 * @want: get: bytes for the caller
 */
struct kvblk_req {
	struct kvblk_io io;
	struct kvblk_pool *pool;	/* pool->users is held while detached */
	struct kvblk_batch *batch;	/* or */
	struct io_uring_cmd *cmd;	/* with pool->users */
	refcount_t refs;		/* cmd: the command, and its bios or copy */
	struct kvblk_file *owner;	/* is there while it is open, or @held */
	struct kvblk_file *file;	/* cmd: while on file->reqs */
	struct list_head file_link;	/* file->reqs */
	struct list_head link;		/* batch->done, or member->gate */
	struct work_struct work;
	atomic_t state;
	bool canceled;
	bool wants_fault;
	bool declined;
	u16 tenant;
	u32 header_units;
	u32 bytes;			/* of all pieces */
	u32 from;
	u32 want;
	u32 expiry;
	u32 charged;			/* in batch->bytes_inflight */
	u32 held;			/* in owner->held, with a reference to it */
	u32 wants_memory;		/* cmd: more than owner->held leaves */
	u64 align;			/* put: pool->align that @mem is for, */
	bool stable;			/* and pool->stable_writes */
	u8 integrity;			/* of the record */
	bool gated;			/* a put, in gate_bytes or at the gate */
	bool no_p2p;			/* a put: not straight from a device's memory */
	bool stale;			/* a delete: an older record may come back */
	u8 tries;			/* a put: writes that failed, */
	u8 avoid;			/* the last one by the member in this slot */
	bool device;			/* a device's memory is in it */
	bool looked;			/* a get: its header is the block's */
	bool delivered;			/* a get: all but the checksums */
	ktime_t start;
	struct kvblk_op op;
	struct kvblk_result result;
	struct kvblk_id id;
	struct kvblk_id parent;
	struct kvblk_src src;
	struct iov_iter fixed;
	struct mm_struct *mm;		/* COPYING */
	struct delayed_work deadline;	/* cmd: HARD_DEADLINE */
	u64 result_addr;		/* cmd: where the result goes, or 0 */
	void *header;
	struct kvblk_slot slot;
	struct kvblk_room room;
	struct kvblk_member *member;
	struct kvblk_segment *seg;
	u64 gen;			/* of seg */
	struct kvblk_part part;		/* src.parts, when it is one */
	u64 crcs_addr;			/* where the caller has checksums, or 0 */
	u32 crcs_room;			/* bytes there */
	__le32 *crcs;			/* a put: what was there */
	struct kvblk_bounce *bounce;	/* a get's */
	struct kvblk_trial *trial;	/* a get's; p2p.c's */
	u32 space_seq;
	ktime_t waiting;		/* since, 0: not yet */
	struct kvblk_mem mem;		/* its few_bv and what follows: not zeroed */
	u8 key[KVBLK_KEY_MAX];
};

int kvblk_req_init(void);
void kvblk_req_exit(void);
/* A request that is all zero. NULL: no memory. May sleep, if @gfp says so. */
struct kvblk_req *kvblk_req_alloc(gfp_t gfp);
/*
 * A new operation, as @op says; @cmd: for a ring, with its buffer where it has
 * IORING_URING_CMD_FIXED. NULL: no memory. What is wrong with it is in
 * req->result.res. May sleep.
 */
struct kvblk_req *kvblk_req_new(struct kvblk_file *file, const struct kvblk_op *op,
				struct io_uring_cmd *cmd, unsigned int issue_flags);
/* Bytes of puts that @member may have in flight now; U64_MAX: any. */
u64 kvblk_put_window(const struct kvblk_member *member);
/* Lets puts in that waited for others. */
void kvblk_gate_work(struct work_struct *work);
/*
 * Starts an operation. 0: in flight; 1: over, see req->result; -EAGAIN: must
 * wait for room, for another operation or for the caller's memory
 * (kvblk_req_wait()), then be started again.
 */
int kvblk_req_start(struct kvblk_req *req);
/* After -EAGAIN, with nothing of the batch in flight. 0 or -EINTR. */
int kvblk_req_wait(struct kvblk_req *req);
/*
 * In task context, after the bios: checks, copies, index. True: over; false:
 * in flight again, or req->wants_fault: to be finished again, with
 * req->src.fault. @user: the submitter's memory can be touched.
 */
bool kvblk_req_finish(struct kvblk_req *req, bool user);
/* What kvblk_req_finish() left in flight is over; any context. */
void kvblk_req_landed(struct kvblk_req *req);
/*
 * It is about to be given up: adds what it holds, which is returned, to its
 * file's @detached until it is over. Any context.
 */
u32 kvblk_req_detach(struct kvblk_req *req);
void kvblk_req_free(struct kvblk_req *req);
/* Gives memory back as soon as it is over; a batch may be long. */
void kvblk_req_trim(struct kvblk_req *req);
/* An entry that the index told: a get of this tenant would find it. Any context. */
bool kvblk_slot_present(struct kvblk_pool *pool, u16 tenant,
			const struct kvblk_slot *slot);
/* The block is in the index, and a get would find it. Process context. */
bool kvblk_block_present(struct kvblk_pool *pool, struct kvblk_id id, u16 tenant,
			 struct kvblk_slot *slot);
/* Who waits in the kernel is to give up: killed, or a worker of a ring that goes. */
static inline bool kvblk_interrupted(void)
{
	return fatal_signal_pending(current) ||
	       ((current->flags & PF_IO_WORKER) &&
		test_thread_flag(TIF_NOTIFY_SIGNAL));
}

/* Ends an operation that has no result yet. */
static inline int kvblk_req_over(struct kvblk_req *req, int res)
{
	req->result.res = res;
	return 1;
}

/* ---- cdev.c, uring.c, lease.c ------------------------------------------ */

extern const struct file_operations kvblk_fops;

void kvblk_file_put(struct kvblk_file *file);

/* An ioctl, of a ring too. May sleep. */
long kvblk_call(struct kvblk_file *file, unsigned int cmd, void __user *uarg);
int kvblk_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);
int kvblk_uring_init(void);
void kvblk_uring_exit(void);
/* Gives up a ring's request: the command does, and what it was detached from. */
void kvblk_uring_put(struct kvblk_req *req);
/* The bios of a ring's operation are over; any context. */
void kvblk_uring_landed(struct kvblk_req *req);
/*
 * Under file->lock: ends a ring's operation now, with -ECANCELED, if its memory
 * is the kernel's. Else it ends when its bios do.
 */
void kvblk_uring_cancel_one(struct kvblk_req *req);

int kvblk_lease_init(struct kvblk_pool *pool);
void kvblk_lease_exit(struct kvblk_pool *pool);
/*
 * Leases the entries in @slots (those with @take set) under a new id, from the
 * first one on until one can't be leased. Returns how many. May sleep.
 */
u32 kvblk_lease_take(struct kvblk_file *file, const struct kvblk_id *ids,
		     struct kvblk_slot *slots, const unsigned long *take, u32 nr,
		     u32 ms, u64 *lease);
int kvblk_lease_drop(struct kvblk_file *file, u64 lease);
void kvblk_lease_drop_all(struct kvblk_file *file);

#endif
