/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Structures that all layers share: pools, members, segments. Each field belongs to the
 * layer that its comment names, or is protected by the lock that it names.
 */
#ifndef KVBLK_TYPES_H
#define KVBLK_TYPES_H

/* ---- counters ---- */

/* documented in the spec, uapi/netlink/kvblk.yaml */
enum kvblk_counter {
#define X(name, NAME)	KVBLK_C_##NAME,
	KVBLK_COUNTER_TABLE(X)
#undef X
	KVBLK_COUNTERS,
};

enum kvblk_hist {
#define X(name, NAME)	KVBLK_H_##NAME,
	KVBLK_LATENCY_TABLE(X)
#undef X
	KVBLK_HISTS,
};

#define KVBLK_HIST_BUCKETS	40	/* bucket i: 2^i <= ns < 2^(i+1) */

/*
 * Counters of a member, or of a pool without its members. One per CPU; only that CPU
 * writes them, readers sum them. Must contain nothing but u64, see report/stats.c.
 */
struct kvblk_stats {
	u64 counters[KVBLK_COUNTERS];
	u64 hists[KVBLK_HISTS][KVBLK_HIST_BUCKETS];
};

/*
 * Size classes of puts and gets, by bytes transferred: up to one unit, then four times
 * as many for each class.
 */
#define KVBLK_SIZES		8
#define KVBLK_SIZE_MAX(size)	((u64)KVBLK_UNIT << 2 * (size))
#define KVBLK_SIZED_HISTS	2

static_assert(KVBLK_SIZE_MAX(KVBLK_SIZES - 1) == KVBLK_VALUE_MAX);
static_assert((int)KVBLK_H_PUT < KVBLK_SIZED_HISTS && (int)KVBLK_H_GET < KVBLK_SIZED_HISTS);

struct kvblk_size_stats {
	u64 ns;				/* sum of latencies */
	u64 hist[KVBLK_HIST_BUCKETS];
};

/* Counters of a pool, one per CPU as struct kvblk_stats. */
struct kvblk_pool_stats {
	struct kvblk_stats own;
	struct kvblk_size_stats sizes[KVBLK_SIZED_HISTS][KVBLK_SIZES];
	u32 next_member;		/* next slot of the round-robin for puts */
};

/*
 * Caller tag of blocks that were put through the NVMe node. The change feed skips these
 * blocks, because users of that node know of no tags.
 */
#define KVBLK_NVME_TAG		0x766b2d656d766eULL
/* Prefix of their keys, NUL included: the bytes of the tag. */
#define KVBLK_NVME_PREFIX	"nvme-kv"
#define KVBLK_NVME_PREFIX_LEN	sizeof(KVBLK_NVME_PREFIX)
/* Bytes after the prefix, at least 1. */
#define KVBLK_NVME_KEY_MAX	16

static inline bool kvblk_nvme_key(const u8 *key, u32 len)
{
	return len > KVBLK_NVME_PREFIX_LEN &&
	       len <= KVBLK_NVME_PREFIX_LEN + KVBLK_NVME_KEY_MAX &&
	       !memcmp(key, KVBLK_NVME_PREFIX, KVBLK_NVME_PREFIX_LEN);
}

struct kvblk_file;
struct kvblk_pool;
struct kvblk_member;
struct kvblk_flash;
struct kvblk_reservation;

/* ---- the log ---- */

/* Summary of an open segment while it fills; page i lists records from 63 * i. */
struct kvblk_open {
	spinlock_t lock;		/* protects the contents of pages */
	struct mutex writing;		/* held while pages are written */
	u32 nr_pages;
	u32 settled;			/* records on full pages that are on media */
	u32 listed;			/* number of records if all of them are listed on media */
	unsigned long *durable;		/* by unit: the record there survives a crash */
	struct kvblk_d_summary *pages[];/* each set once, by cmpxchg */
};

/**
 * struct kvblk_segment - a stretch of a member
 * @gen: generation; pool->seg_gen holds the low 16 bits. Written by reclaim when the
 *	segment is retired
 * @refs: gets, deletes and copies that rely on the segment's bytes
 * @writers: puts with a reservation, plus one while the segment is open
 * @cursor: see log/cursor.h
 * @open: set while OPEN and until sealed, else NULL; if the seal could not be written,
 *	until the segment is retired
 * @state: &enum kvblk_segment_state; under log->lock
 * @class: &enum kvblk_class
 * @flags: KVBLK_SEGF_*; under log->lock
 * @stamp: see &kvblk_policy_seg.stamp; written by reclaim once opened
 * @retired: waits for @refs to drain
 * @live_units: units of records that have entries, an estimate
 * @nr_records: number of records once SEALED
 * @opened: position in the member's order of opening
 * @kills_durable: KVBLK_SEGF_KILLS is on media
 * @unsaved: the table on media may still list the segment as free
 * @bare: some records have no checksums: a crash before the seal loses them
 * @cached: 0, or member->flash.write_errors before the first record that only the member's
 *	volatile cache may have until the seal; set once, by cmpxchg
 * @retiring_gen: generation for the table on media while @gen is the old one, or 0
 * @reclaim_run: last run of reclaim that could not reclaim the segment; only reclaim
 * @rests: leases pin too much of the segment; only reclaim
 * @rests_until: jiffies until which reclaim skips the segment if @rests; only reclaim
 * @sweep_mark: pool->sweep_pass that must be reached before reuse
 * @unread: restore has not read the segment or could not, and leaves it as it is on
 *	media; only restore
 * @unknown: the table entry could not be read either, nor any of its page;
 *	log->table_lock
 * @link: on one list of the member, under log->lock
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
	bool unsaved;
	bool bare;
	int cached;
	u32 nr_records;
	u64 opened;
	u64 retiring_gen;
	u32 reclaim_run;
	bool rests;
	unsigned long rests_until;
	u64 sweep_mark;
	bool unread;
	bool unknown;
	struct list_head link;
};

/* A reservation in an open segment, held until the record's I/O completes. */
struct kvblk_reservation {
	struct kvblk_member *member;	/* with a reference */
	struct kvblk_segment *seg;	/* holds seg->writers and seg->refs */
	u64 gen;
	u64 seq;
	u32 segment;			/* index in log->segs */
	u32 unit;
	u32 units;
	u32 index;			/* index of the record in the segment */
};

/* ---- members ---- */

/*
 * Open segments of a member. More than one lets puts of many CPUs proceed without
 * contention; at most one segment in 32 is open for that.
 */
#define KVBLK_LOGS_NEW		8
#define KVBLK_LOG_HOT		KVBLK_LOGS_NEW
#define KVBLK_LOGS		(KVBLK_LOGS_NEW + 1)

/*
 * RESTORING: reads summaries, serves no users. DEAD: the device was removed, nothing is
 * served. UNRESTORED: nothing is served, but restore may be retried.
 */
enum kvblk_member_state {
#define X(name, NAME)	KVBLK_MEMBER_##NAME,
	KVBLK_MEMBER_STATUS_TABLE(X)
#undef X
};

extern const char *const kvblk_member_state_names[];

/* Errors of a member that are reported to operators, in the order of the ABI. */
enum kvblk_member_error {
	KVBLK_ERROR_READ,
	KVBLK_ERROR_WRITE,
	KVBLK_ERROR_CHECKSUM,
	KVBLK_ERRORS,
};

/**
 * struct kvblk_report - rate limit of reports of one kind of error
 * @next: jiffies before which nothing is reported
 * @nr: errors since the last report
 * @segment: segment of the last error
 */
struct kvblk_report {
	unsigned long next;
	atomic_t nr;
	u32 segment;
};

struct kvblk_ios {
	u64 submitted;
	u64 done;
	u64 failed;
	u64 writes;			/* completed writes */
	u64 writes_failed;
};

/**
 * struct kvblk_queue - bios that the device could not accept at once, in submission order
 * @lock: lock of the queue
 * @bios: bios that wait
 * @nr: number of @bios, plus the one that @work submits
 * @work: submits @bios; sleeps until the device accepts them
 */
struct kvblk_queue {
	spinlock_t lock;		/* protects bios, nr; any context */
	struct bio_list bios;
	u32 nr;
	struct work_struct work;
};

/**
 * struct kvblk_cgroup_queue - released writes of one cgroup; see log/write_throttle.c
 * @member: member that the writes go to
 * @cgroup: compared, never dereferenced: no reference is held
 * @poor_until: jiffies until which the cgroup is assumed to be over its budget
 * @queued_ios: the queued writes
 * @busy: @queued_ios is not empty, or @work submits one
 * @work: submits @queued_ios; sleeps as long as the cgroup's budget requires
 */
struct kvblk_cgroup_queue {
	struct kvblk_member *member;
	const void *cgroup;
	unsigned long poor_until;
	struct list_head queued_ios;
	bool busy;
	struct work_struct work;
};

#define KVBLK_CGROUP_QUEUES	8

/* Providers of device memory that P2P is tried with; further ones bounce. */
#define KVBLK_PROVIDERS_MAX	16

/**
 * enum kvblk_route_state - how a member's I/O reaches a device's memory
 * @KVBLK_ROUTE_UNKNOWN: not yet determined
 * @KVBLK_ROUTE_DIRECT: by P2P
 * @KVBLK_ROUTE_BOUNCE: by CPU copies
 * @KVBLK_ROUTE_TRIAL: by P2P in proven directions, otherwise by a trial
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
 * struct kvblk_route - route between a provider and a member
 * @serial: serial number of the provider, 0: none
 * @state: &enum kvblk_route_state
 * @proven: TRIAL: directions that transferred the right bytes, KVBLK_PROVEN_*
 * @failures: TRIAL: transfers of wrong bytes
 * @errors: I/O errors that the route may have caused
 * @next: TRIAL: jiffies before which no trial begins
 * @why: reason for BOUNCE or for a new TRIAL, or NULL
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

/**
 * struct kvblk_flash_p2p - a flash's routes into device memory; see p2p/route.c
 * @routes: by provider; providers_lock
 * @work: tries out the route to @page
 * @busy: @work is queued
 * @page: page of the provider, with a reference; written while @busy
 * @whole: @page belongs to one caller as a whole
 * @next: jiffies before which @work is not queued
 */
struct kvblk_flash_p2p {
	struct kvblk_route routes[KVBLK_PROVIDERS_MAX];
	struct work_struct work;
	atomic_t busy;
	struct page *page;
	bool whole;
	unsigned long next;
};

/**
 * struct kvblk_watchdog - what the watchdog knows of a member; see pool/watchdog.c. Only the
 *	watchdog and @probe use it, except that READ_ONCE() of the three reports is for all
 * @suspect_reported: state in the last event
 * @failing_reported: state in the last event
 * @read_only_reported: state in the last event
 * @seen: the member's I/O at the last check
 * @seen_inflight: bios in flight at the last check
 * @last_done: jiffies of the last progress
 * @probe: tests whether a failing member responds well again
 * @probe_next: jiffies before which @probe is not queued
 * @probe_gap: jiffies after a failed probe
 * @probes_well: consecutive successful probes
 */
struct kvblk_watchdog {
	bool suspect_reported;
	bool failing_reported;
	bool read_only_reported;
	struct kvblk_ios seen;
	u64 seen_inflight;
	unsigned long last_done;
	struct work_struct probe;
	unsigned long probe_next;
	unsigned long probe_gap;
	u32 probes_well;
};

/**
 * struct kvblk_write_throttle - puts and prefetches that wait for gets; see
 *	log/write_throttle.c
 * @lock: protects all below, @full for writing; any context
 * @queue: I/Os that wait: &kvblk_queued_io.link
 * @puts: number of puts in @queue
 * @waiting: bytes in @queue and in @cgroup_queues
 * @full: @waiting exceeds the limit
 * @counted: released I/Os, oldest first: &kvblk_queued_io.counted
 * @bytes: bytes of @counted
 * @looked: jiffies of the last throttle_look()
 * @done: I/O of the member completed at @looked
 * @cgroup_queues: released puts, to be submitted for their cgroups
 * @work: releases I/Os
 */
struct kvblk_write_throttle {
	spinlock_t lock;		/* protects the fields below; any context */
	struct list_head queue;
	u32 puts;
	u64 waiting;
	bool full;
	struct list_head counted;
	u64 bytes;
	unsigned long looked;
	u64 done;
	struct kvblk_cgroup_queue cgroup_queues[KVBLK_CGROUP_QUEUES];
	struct delayed_work work;
};

/**
 * struct kvblk_kills - records of a member to invalidate; see log/invalidate.c
 * @list: the records; pool->kill_lock
 * @nr: number of @list; pool->kill_lock
 * @full: @nr is at its limit; written under pool->kill_lock
 * @deletes_full: the same for deletes; written under pool->kill_lock
 * @moved: jiffies of the last removal from @list
 * @retry: jiffies of the next retry; only @work
 * @gap: jiffies between retries; only @work
 * @work: invalidates the records
 */
struct kvblk_kills {
	struct list_head list;
	u32 nr;
	bool full;
	bool deletes_full;
	unsigned long moved;
	unsigned long retry;
	unsigned long gap;
	struct work_struct work;
};

/**
 * struct kvblk_flash_ops - what a flash asks of the log on it
 * @write_probe: writes contents that are there already, so that the watchdog knows whether the
 *	device writes. Returns 0, also if there is nothing to write, or an errno. May sleep
 * @reserve: reserves @units that a probe of a route may overwrite, until the caller releases
 *	@resv. Returns 0 or an errno
 * @responds: continues work that waited for the device. Does not sleep
 */
struct kvblk_flash_ops {
	int (*write_probe)(struct kvblk_flash *flash);
	int (*reserve)(struct kvblk_flash *flash, u32 units, struct kvblk_reservation *resv);
	void (*responds)(struct kvblk_flash *flash);
};

/*
 * struct kvblk_flash - a block device of a pool: all that gets need, and no log
 * @ops: set once
 * @ref: counts I/O in flight and works; killed at removal
 * @slot: 1 + its index in pool->members, 0 while it has none
 * @name: last component of the device's path, unique in the pool
 * @path: as given by the administrator
 * @state: &enum kvblk_member_state; changed by cmpxchg, READ_ONCE elsewhere
 * @suspect: no I/O completed for too long; set by the watchdog, cleared by completions
 * @failing: reads fail; set by completions and the watchdog, cleared by the watchdog
 *	when probes succeed
 * @read_only: writes fail: blocks are served, puts use other members; set and cleared
 *	as @failing
 * @error_run: consecutive errors of reads, of writes
 * @write_errors: 1, plus failed writes and flushes. Some targets report a failed
 *	write-back only once, so after it no flush proves that the volatile cache was
 *	written
 * @seg_base: pool-wide number of segment 0
 * @incarnation: random number of this format of the device
 * @ios: bios, by CPU
 * @stats: pool->slots[], or the pool's own before the member has a slot
 * @stats_before: values of @stats when the member was added
 */
struct kvblk_flash {
	struct kvblk_pool *pool;
	const struct kvblk_flash_ops *ops;
	struct percpu_ref ref;
	struct completion ref_done;
	u32 slot;
	char name[KVBLK_NAME_MAX];	/* in the member list */
	char device[KVBLK_NAME_MAX];	/* kernel name of the device since boot */
	char place[KVBLK_PLACE_MAX];	/* location, given by the administrator, or "" */
	char *path;
	uuid_t uuid;
	u32 state;
	bool suspect;
	bool failing;
	bool read_only;
	atomic_t error_run[2];
	atomic_t write_errors;

	struct file *bdev_file;
	struct block_device *bdev;
	dev_t dev;
	u64 size;
	u64 data_start;
	u32 segment_units;
	u32 nr_segs;
	u32 record_align;		/* bytes */
	u32 seg_base;
	u64 incarnation;

	struct bio_set bios;
	blk_opf_t nowait;		/* REQ_NOWAIT if supported; log/bio.c */
	u32 fits_bytes;			/* largest bio that needs no split; log/bio.c */
	u32 fits_segments;		/* most vectors of such a bio; log/bio.c */
	struct kvblk_queue queues[2];	/* reads, writes */
	struct kvblk_ios __percpu *ios;
	struct kvblk_stats __percpu *stats;
	struct kvblk_stats stats_before;
	unsigned long last_get;		/* jiffies of the last get's submission, approximate */
	struct kvblk_watchdog watchdog;
	struct kvblk_report reports[KVBLK_ERRORS];
	struct kvblk_flash_p2p p2p;
};

/*
 * struct kvblk_log - segments of a member, and the works that write, restore and reclaim them
 * @segs: array of flash.nr_segs
 * @ready: segments opened on media for puts, not yet in use
 * @sealed: oldest first
 * @retiring: retired, waiting for references to be dropped
 * @current_seg: segments that take records: class NEW by CPU, the last one class HOT.
 *	Read under @lock or by reservation, which holds seg->writers
 */
struct kvblk_log {
	struct kvblk_segment *segs;

	struct kvblk_d_super *super;	/* superblock as last read or written; only its writer */
	u64 sb_seq;
	u64 epoch;			/* epoch to time: as in the superblock */
	u64 activation;
	u64 member_list_seq;
	u64 time;
	struct work_struct super_work;	/* writes the pool's epoch to the superblock */

	spinlock_t lock;		/* protects segment states, ready to closing */
	struct list_head ready;
	struct list_head free;
	struct list_head sealed;
	struct list_head retiring;
	u32 nr_logs;			/* open segments of class NEW */
	struct kvblk_segment *current_seg[KVBLK_LOGS];
	u32 nr_free;
	u32 nr_ready;
	u32 nr_sealed;
	u32 nr_retiring;
	u32 nr_open;			/* current, ready and not yet sealed segments */
	u64 opened;			/* number of the segment opened last */
	struct list_head closing;	/* full, without writers, to be sealed */

	struct mutex table_lock;	/* protects table_seq, table_buf, order of page writes */
	u64 *table_seq;			/* by page */
	struct kvblk_d_table *table_buf;

	bool formatted;			/* formatted by this import or add: nothing to restore */
	u64 restored;			/* blocks found by restore */
	u32 nr_unread;			/* unread segments; only restore */
	bool forfeit;			/* unread segments are given up; pool->admin */
	bool retry;			/* was UNRESTORED before; pool->admin */
	struct kvblk_missing *missing;	/* pool->missing_members' entry that restore filters by */
	struct work_struct restore;

	struct work_struct work;	/* opens and seals segments */
	struct work_struct reclaim_work;
	u32 reclaim_run;		/* number of runs; only reclaim_work */
	bool low_reported;		/* low-watermark event was sent; only reclaim */
	struct kvblk_write_throttle throttle;
	struct kvblk_kills kills;
	struct delayed_work checkpoint;
	unsigned long time_saved;	/* jiffies when media last got the pool's time */
};

/* struct kvblk_member - a block device that a pool reads and writes, with its log */
struct kvblk_member {
	struct kvblk_flash flash;
	struct kvblk_log log;
	struct kobject *kobj;
	struct work_struct remove;
	struct delayed_work dead;
	bool unread_unsure;		/* in pool->unsure, see restore_count(); pool->admin */
	bool removing;			/* pool->admin */
	bool delisted;			/* removed from the member list; pool->admin */
	bool unsure;			/* dead or removed, in pool->unsure; pool->admin */
	bool outdated;			/* the epoch has advanced since; pool->admin */
};

/* Returns the member of a flash. Only for the log, which set flash->ops. */
static inline struct kvblk_member *kvblk_flash_member(struct kvblk_flash *flash)
{
	return container_of(flash, struct kvblk_member, flash);
}

/* ---- DRAM ---- */

/* Returns whether the block of an index entry is in DRAM only, and on no member. */
static inline bool kvblk_slot_in_dram(const struct kvblk_slot *slot)
{
	return slot->seg == KVBLK_DRAM_SEG;
}

/*
 * struct kvblk_dram_block - a DRAM block; see dram/dram.c
 * @node: in dram->blocks, by @rec.id
 * @lru: in its node's list, under the node's lock
 * @dead: removed from dram->blocks; under the node's lock
 * @urgent: in dram->urgent, with a reference; dram->lock
 * @refs: one for dram->blocks, one for each user
 * @pool: charged for the memory; outlives the DRAM block
 * @seg, @off, @gen: place in the index entry that this DRAM block belongs to
 * @nid: node of its list
 * @chain: number of the batch that put the block as part of a chain, or 0
 * @offer_parent: id.lo of the block before the chain, or before this block; 0: unknown
 * @continues: the block before the chain was present
 * @goes_on: the chain continues in another batch
 * @touched: found by a get since it was last at the cold end
 * @needed: requested since it was put, or before
 * @heat: heat of its entry when it was last at the cold end
 * @tries: failed writes
 * @avoid: slot of the member that failed the last write, or 0
 * @unproven: read from a member without verification
 * @rec: its record on media, present or future; @crcs is owned by the DRAM block, or
 *	NULL
 * @nr: number of folios
 * @bv: one vector for the record's header, then one per folio
 * @key: @rec.key_len bytes
 */
struct kvblk_dram_block {
	struct rhash_head node;
	struct list_head lru;
	struct list_head urgent;
	bool dead;
	refcount_t refs;
	struct rcu_head rcu;
	struct kvblk_pool *pool;
	u32 seg;
	u32 off;
	u16 gen;
	u8 heat;
	u8 tries;
	u8 avoid;
	bool unproven;
	bool continues;
	bool goes_on;
	bool touched;
	bool needed;
	int nid;
	u32 chain;
	u64 offer_parent;
	struct kvblk_rec rec;
	u32 nr;
	struct bio_vec *bv;
	u8 key[];
};

/*
 * Return the kind of a DRAM block. A home is the only place of its block, which leaves for a
 * member or is lost. A copy is of a block at @seg of a member, and is dropped at any time.
 */
static inline bool kvblk_dram_block_is_home(const struct kvblk_dram_block *obj)
{
	return obj->seg == KVBLK_DRAM_SEG;
}

static inline bool kvblk_dram_block_is_copy(const struct kvblk_dram_block *obj)
{
	return !kvblk_dram_block_is_home(obj);
}

/* DRAM blocks on one NUMA node. */
struct kvblk_dram_node {
	spinlock_t lock;		/* protects lru and bytes; taken in memory reclaim */
	struct list_head lru;		/* coldest first */
	u64 bytes;			/* bytes in lru */
	u64 stayed;			/* bytes kept by the current run; only dram.work */
};

/**
 * struct kvblk_dram - DRAM blocks of a pool
 * @blocks: all DRAM blocks, by id
 * @nodes: nr_node_ids of them
 * @bytes: size of all DRAM blocks, including new ones
 * @serial: last number used as a place
 * @chains: last chain number
 * @lock: a leaf
 * @urgent: DRAM blocks to write to a member now, because a task waits or a lease pins
 *	them
 * @shrinker: drops blocks under memory pressure
 * @rest: jiffies before which no block can be evicted
 * @work: evicts
 * @run: batch of blocks that @work decides on; only @work
 * @stages: batch of blocks that @work writes; only @work
 * @left: batches that @work no longer waits for, because their members are silent
 * @report: blocks that were damaged in DRAM
 * @homes: node of recent chains: high half &kvblk_dram_block.chain, low half node
 * @closing: the pool is going away: leases pin nothing
 */
struct kvblk_dram {
	struct rhashtable blocks;
	struct kvblk_dram_node *nodes;
	atomic64_t bytes;
	atomic_t serial;
	atomic_t chains;
	spinlock_t lock;		/* protects urgent */
	struct list_head urgent;
	struct shrinker *shrinker;
	unsigned long rest;
	struct work_struct work;
	struct run *run;
	struct stages *stages;
	atomic_t left;
	struct kvblk_report report;
	u64 homes[64];
	bool closing;
};

/* Values set through sysfs, read with plain loads. */
struct kvblk_tunables {
#define X(name, type, standard, least, most)	type name;
	KVBLK_TUNABLES(X)
#undef X
};

/* ---- pools ---- */

#define KVBLK_BOUNCE_BYTES	SZ_1M

#define KVBLK_KILL_BUCKETS	256

/* Places of leased blocks: KVBLK_LEASE_MEMORY, or 1 + the slot of the member. */
#define KVBLK_LEASE_MEMORY	0
#define KVBLK_LEASE_PLACES	(KVBLK_MEMBERS_MAX + 1)

/**
 * struct kvblk_align - alignment that every member of a pool can transfer directly
 * @addr_mask: bits that must be 0 in addresses
 * @len_mask: bits that must be 0 in lengths, except in the last one
 * @both: reads both at once
 */
struct kvblk_align {
	union {
		struct {
			u32 addr_mask;
			u32 len_mask;
		};
		u64 both;
	};
};

/**
 * struct kvblk_opener - process that has the node open
 * @link: in pool->openers
 * @pid: pid of that process, with a reference
 * @comm: name of that process
 */
struct kvblk_opener {
	struct list_head link;
	struct pid *pid;
	char comm[TASK_COMM_LEN];
};

/**
 * struct kvblk_changelog - change feeds of a pool; see report/changelog.c
 * @lock: protects all below, and the rings of the journals; a leaf
 * @journals: open journals
 * @over: no journal may be opened
 */
struct kvblk_changelog {
	spinlock_t lock;		/* protects the fields below */
	struct list_head journals;
	bool over;
};

/**
 * struct kvblk_bounces - chunks of memory that gets read into first; see p2p/bounce.c
 * @lock: protects @chunks
 * @chunks: allocated ones, or NULL
 */
struct kvblk_bounces {
	spinlock_t lock;		/* protects chunks */
	struct kvblk_bounce *chunks[KVBLK_BOUNCES_MAX];
};

/**
 * struct kvblk_leases - leases of a pool; see ops/lease.c
 * @lock: protects all leases of the pool
 * @keys: leased ids
 * @holds: leased ids by file
 * @by_end: leases by deadline
 * @over: the index is about to be freed
 * @in_memory: leased keys of blocks that only DRAM holds
 * @nr_in_memory: number of @in_memory
 * @bytes: leased bytes by place, see ops/lease.c
 * @total: sum of @bytes; READ_ONCE() without @lock
 * @work: ends leases at their deadlines
 */
struct kvblk_leases {
	struct mutex lock;		/* protects the fields below */
	struct rhashtable keys;
	struct rhashtable holds;
	struct rb_root_cached by_end;
	bool over;
	struct list_head in_memory;
	u32 nr_in_memory;
	u64 bytes[KVBLK_LEASE_PLACES];
	u64 total;
	struct work_struct work;
};

struct kvblk_pool {
	struct device dev;
	struct cdev cdev;
	struct cdev nvme_cdev;
	struct list_head link;		/* kvblk_pools; kvblk_pools_lock */
	char name[KVBLK_NAME_MAX];
	uuid_t uuid;
	u32 flags;
	u64 birth;			/* creation, seconds since 1970 */
	u64 epoch;
	u64 activation;			/* random; see format/format.h */
	u64 prev_epoch;
	u64 prev_activation;
	u8 seed[32];
	u8 node[16];			/* id of this host, zeroes: unknown */
	u64 index_slots;		/* as in superblocks; 0: not all blocks fit */
	bool index_evicts;		/* restore may evict blocks and invalidate them on media */
	atomic64_t index_lacks;		/* blocks that restore found no index slot for */
	struct kvblk_secret secret;

	struct percpu_ref users;
	struct completion users_done;
	bool dying;
	spinlock_t openers_lock;	/* protects openers, and dying when it is set */
	struct list_head openers;
	struct kvblk_changelog changelog;

	struct mutex admin;		/* protects members */
	struct kvblk_member __rcu *members[KVBLK_MEMBERS_MAX];
	u32 nr_members;
	struct list_head coming;	/* members being added: see pool/member.c */
	struct kvblk_align align;	/* accessed as .both, by one load or store */
	u32 align_units;		/* largest record_align, in units */
	bool stable_writes;		/* the payload of a put must not change during the write */
	bool device_seen;		/* device memory has been used */
	u8 granule[KVBLK_GRANULES + 1];	/* member->flash.slot, or 0: free; the last is DRAM's, 0 */
	u16 *seg_gen;			/* KVBLK_DRAM_SEG + 1 entries */

	struct kvblk_index index;
	struct kvblk_policy policy;
	struct kvblk_tunables tun;
	struct kvblk_dram dram;
	struct kvblk_pool_stats __percpu *stats;
	/* by slot; set once, under admin; kept after removal, so that sums never decrease */
	struct kvblk_stats __percpu *slots[KVBLK_MEMBERS_MAX];
	u64 cleared[KVBLK_CLEARABLE];	/* values of clearable counters when cleared */
	u64 cleared_at;			/* seconds since 1970, or 0 */

	atomic64_t seq;			/* sequence number of records */
	atomic_t restoring;		/* members still being restored */
	wait_queue_head_t restore_wait;
	wait_queue_head_t space_wait;
	atomic_t space_seq;		/* incremented when puts may find space */
	wait_queue_head_t delete_wait;	/* woken when deletes_full of a member ends */
	wait_queue_head_t settle_wait;	/* woken when MOVING slots settle, invalidations end */
	spinlock_t kill_order;		/* see log/invalidate.c */
	spinlock_t kill_lock;		/* protects kills, those of members too */
	struct hlist_head kills[KVBLK_KILL_BUCKETS]; /* by token; kill_lock */
	bool pinned[KVBLK_GRANULES + 1];	/* granules without eviction; kill_lock */
	atomic_t unsure;		/* reasons why a deleted block could come back */
	bool refused;			/* a delete failed because of unsure; any context */
	u32 nr_lost;			/* removed members still in unsure; admin */
	spinlock_t member_list_lock;	/* protects the member list and missing_members */
	struct kvblk_d_member member_list[KVBLK_SB_MEMBERS];
	struct kvblk_d_place *places;	/* parallel to member_list */
	u32 member_list_nr;
	u64 member_list_seq;		/* changes with the member list */
	struct list_head missing_members;	/* members of the list that are missing; RCU */
	u64 clock;			/* the pool's time in seconds at clock_boot */
	u64 clock_boot;			/* time since boot, ns */
	bool expires;			/* some block has a TTL, so the time must be saved */

	struct workqueue_struct *wq;
	struct kobject *members_dir;
	struct delayed_work tick;
	struct work_struct stats_work;
	u64 stats_seq;			/* of the last message */
	u32 stats_age;			/* seconds since stats_work was queued; only tick */
	struct work_struct sweep_work;
	u64 sweep_at;			/* next index position; only sweep_work */
	u64 sweep_pass;
	u64 reclaimed_last;
	u64 nospace_reported;		/* puts without space that were reported; only tick */
	unsigned long nospace_next;	/* jiffies of the next such report; only tick */
	struct kvblk_completion_list __percpu *completion_lists;
	struct work_struct rescue_work;	/* ends media halves of tasks that do not run */
	struct kvblk_bounces bounce;
	struct kvblk_leases lease;
};

static inline struct kvblk_pool *kvblk_dev_pool(struct device *dev)
{
	return container_of(dev, struct kvblk_pool, dev);
}

static inline struct kvblk_align kvblk_pool_align(const struct kvblk_pool *pool)
{
	return (struct kvblk_align) { .both = READ_ONCE(pool->align.both) };
}

/* Returns the first member at slot *@i of pool->members or later, or NULL. */
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

/* Iterates under rcu_read_lock() or pool->admin. */
#define kvblk_for_each_member(pool, member, i)				\
	for ((i) = 0; ((member) = kvblk_next_member(pool, &(i))); (i)++)

/*
 * Keeps the pool's index, policy and DRAM blocks until kvblk_pool_leave(). Returns
 * false if the pool is going away. A caller that waits for user memory must not hold
 * them, or else "pool destroy" waits with it.
 */
static inline bool kvblk_pool_enter(struct kvblk_pool *pool)
{
	return percpu_ref_tryget_live(&pool->users);
}

static inline void kvblk_pool_leave(struct kvblk_pool *pool)
{
	percpu_ref_put(&pool->users);
}

/* ---- what a member's state permits ---- */

/* Returns whether the device is being restored or up. */
static inline bool kvblk_flash_in_use(const struct kvblk_flash *flash)
{
	u32 state = READ_ONCE(flash->state);

	return state == KVBLK_MEMBER_RESTORING || state == KVBLK_MEMBER_UP;
}

/* Returns whether gets and lookups may use the device's blocks: those restored so far. */
static inline bool kvblk_flash_may_read(const struct kvblk_flash *flash)
{
	return kvblk_flash_in_use(flash) && !READ_ONCE(flash->suspect) &&
	       !READ_ONCE(flash->failing);
}

/* Returns whether the device takes writes. */
static inline bool kvblk_flash_may_write(const struct kvblk_flash *flash)
{
	return kvblk_flash_may_read(flash) && !READ_ONCE(flash->read_only);
}

/* Returns whether background work should end, because the device or its pool goes away. */
static inline bool kvblk_flash_leaves(const struct kvblk_flash *flash)
{
	return !kvblk_flash_in_use(flash) || percpu_ref_is_dying(&flash->pool->users);
}

/* Returns 0 if the device works, 1 if reads fail, 2 if only writes fail; for operators. */
static inline u32 kvblk_flash_fails(const struct kvblk_flash *flash)
{
	return READ_ONCE(flash->failing) ? 1 : READ_ONCE(flash->read_only) ? 2 : 0;
}

/* Returns whether restore is complete, so that the log takes records. */
static inline bool kvblk_member_is_up(const struct kvblk_member *member)
{
	return READ_ONCE(member->flash.state) == KVBLK_MEMBER_UP;
}

/* Returns whether the member's epoch counts when the pool's epoch is determined. */
static inline bool kvblk_member_stays(const struct kvblk_member *member)
{
	return kvblk_flash_in_use(&member->flash) && !READ_ONCE(member->removing);
}

/* Returns the member of a pool-wide segment number, or NULL. Context: RCU. */
static inline struct kvblk_member *kvblk_member_of(struct kvblk_pool *pool, u32 seg)
{
	u8 slot = READ_ONCE(pool->granule[seg >> KVBLK_GRANULE_SHIFT]);

	return slot ? rcu_dereference(pool->members[slot - 1]) : NULL;
}

/* Returns the units of a record for a block of @length bytes. */
static inline u32 kvblk_flash_units(const struct kvblk_flash *flash, u32 length)
{
	return kvblk_record_units(length, flash->record_align >> KVBLK_UNIT_SHIFT);
}

#endif
