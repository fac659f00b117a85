/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the rooms share: pools, members, segments. Each field belongs to the room
 * that its comment names, or to all under the lock that it names.
 */
#ifndef KVBLK_TYPES_H
#define KVBLK_TYPES_H

/* ---- counters ---- */

/* The spec says what they are: uapi/netlink/kvblk.yaml. */
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
 * Of a member, or what is a pool's and no member's. One for each CPU; written by its
 * CPU alone, summed by readers: u64 and nothing else, see report/stats.c.
 */
struct kvblk_stats {
	u64 counters[KVBLK_COUNTERS];
	u64 hists[KVBLK_HISTS][KVBLK_HIST_BUCKETS];
};

/*
 * Classes of puts and gets by the bytes that they move: up to one unit, and each
 * further class four times as many.
 */
#define KVBLK_SIZES		8
#define KVBLK_SIZE_MAX(size)	((u64)KVBLK_UNIT << 2 * (size))
#define KVBLK_SIZED_HISTS	2

static_assert(KVBLK_SIZE_MAX(KVBLK_SIZES - 1) == KVBLK_VALUE_MAX);
static_assert((int)KVBLK_H_PUT < KVBLK_SIZED_HISTS && (int)KVBLK_H_GET < KVBLK_SIZED_HISTS);

struct kvblk_size_stats {
	u64 ns;				/* that all of them took */
	u64 hist[KVBLK_HIST_BUCKETS];
};

/* Of each CPU, as struct kvblk_stats. */
struct kvblk_pool_stats {
	struct kvblk_stats own;
	struct kvblk_size_stats sizes[KVBLK_SIZED_HISTS][KVBLK_SIZES];
	u32 next_member;		/* puts go round */
};

/*
 * The caller tag of blocks that came by the node that takes NVMe commands. Its users
 * know of no tags, so journals do not tell of these blocks.
 */
#define KVBLK_NVME_TAG		0x766b2d656d766eULL
/* What their keys begin with, with the NUL: the bytes of the tag. */
#define KVBLK_NVME_PREFIX	"nvme-kv"
#define KVBLK_NVME_PREFIX_LEN	sizeof(KVBLK_NVME_PREFIX)
/* Bytes behind it, 1 at least. */
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

/* ---- the log ---- */

/* An open segment's summary in the making; page i lists records from 63 * i. */
struct kvblk_open {
	spinlock_t lock;		/* contents of pages */
	struct mutex writing;		/* pages on their way out */
	u32 nr_pages;			/* size of pages[] */
	u32 settled;			/* full pages' records that are on media */
	u32 listed;			/* all of so many records are */
	unsigned long *durable;		/* by unit: no crash loses the record that begins there */
	struct kvblk_d_summary *pages[];/* each set once, by cmpxchg */
};

/**
 * struct kvblk_segment - a stretch of a member
 * @gen: generation; the index holds its low 16 bits in pool->seg_gen too.
 *	Written by reclaim when a segment is retired
 * @refs: gets, deletes and copies that rely on the segment's bytes
 * @writers: puts with room in it, plus one while it is open
 * @cursor: see log/cursor.h
 * @open: while OPEN and until sealed, else NULL; if the seal could not be
 *	written, until the segment is retired
 * @state: &enum kvblk_segment_state; under member->lock
 * @class: &enum kvblk_class
 * @flags: KVBLK_SEGF_*; under member->lock
 * @stamp: see &kvblk_policy_seg.stamp; reclaim's after it was opened
 * @retired: waits for @refs to drain
 * @live_units: units of records whose entries point here, an estimate
 * @nr_records: SEALED: all records
 * @opened: the member's order of opening
 * @kills_durable: KVBLK_SEGF_KILLS is on media
 * @unsaved: the table on media may say that it is free
 * @bare: has records without checksums: until it is sealed, a crash loses them
 * @cached: 0, or it has records that the member's volatile cache may have alone until it
 *	is sealed: member->write_errors before the first of them. Set once, by cmpxchg
 * @retiring_gen: generation to put into the table while @gen is still the old
 *	one; 0 if none
 * @reclaim_run: the last run of reclaim that could not reclaim it; reclaim's
 * @rests: leases pin too much of it, and reclaim does not look at it before
 * @rests_until: jiffies; both are reclaim's
 * @sweep_mark: pool->sweep_pass that must be over before reuse
 * @unread: restore has not read it, or could not: it stays as it is on media; restore's
 * @unknown: nor could its entry of the table be read; all of a page are, or none;
 *	member->table_lock
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

/* ---- members ---- */

/*
 * Open segments of a member: puts of many CPUs don't meet on one, in a member
 * that has plenty (at most one in 32 is open for that).
 */
#define KVBLK_LOGS_NEW		8
#define KVBLK_LOG_HOT		KVBLK_LOGS_NEW
#define KVBLK_LOGS		(KVBLK_LOGS_NEW + 1)

/*
 * RESTORING: reads summaries; no I/O for users. DEAD: the device is gone, nothing
 * is served. UNRESTORED: nothing is served either, but all is there for another try.
 */
enum kvblk_member_state {
#define X(name, NAME)	KVBLK_MEMBER_##NAME,
	KVBLK_MEMBER_STATUS_TABLE(X)
#undef X
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
	u64 writes;			/* of those done */
	u64 writes_failed;		/* of those */
};

/**
 * struct kvblk_queue - bios that the device had no room for, in their order
 * @lock: of @bios and @nr
 * @bios: those that wait
 * @nr: of them, and the one that is being submitted
 * @work: submits them, and waits as long as the device likes
 */
struct kvblk_queue {
	spinlock_t lock;		/* bios, nr; any context */
	struct bio_list bios;
	u32 nr;
	struct work_struct work;
};

/**
 * struct kvblk_lane - puts of one cgroup that leave the gate; see log/write_throttle.c
 * @member: whose gate
 * @cgroup: whose puts; to compare with, it may be gone
 * @poor_until: it is taken to be over its budget, jiffies
 * @turns: the puts
 * @busy: there are some, or @work submits one
 * @work: submits them, and sleeps as long as the cgroup's budget makes it
 */
struct kvblk_lane {
	struct kvblk_member *member;
	const void *cgroup;
	unsigned long poor_until;
	struct list_head turns;
	bool busy;
	struct work_struct work;
};

#define KVBLK_LANES	8

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
 * @failing: answers reads with errors; set by completions and by the watchdog,
 *	cleared by the watchdog when probes succeed
 * @read_only: the same of writes: its blocks are served, puts go elsewhere
 * @error_run: errors since the last read, or write, that succeeded
 * @write_errors: 1, and writes and flushes that failed. Some targets tell a failed
 *	write-back once: what is in a volatile cache then is past it for no flush that
 *	follows
 * @suspect_told: what the last event said; the watchdog's own
 * @seg_base: pool-wide number of segment 0
 * @segs: nr_segs of them
 * @incarnation: of this format
 * @ios: bios, each CPU's own
 * @stats: pool->slots[], or before it has a slot the pool's own
 * @stats_before: what was in there when it came
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
	struct kvblk_route routes[KVBLK_PROVIDERS_MAX];	/* p2p/route.c's, as are */
	struct work_struct p2p_work;	/* tries one out, */
	atomic_t p2p_busy;		/* while it does, */
	struct page *p2p_page;		/* that to this one, with its ref, */
	bool p2p_whole;			/* which is the caller's as a whole, */
	unsigned long p2p_next;		/* but not before */
	struct percpu_ref ref;
	struct completion ref_done;
	struct kobject *kobj;
	u32 slot;
	char name[KVBLK_NAME_MAX];	/* the roster's */
	char device[KVBLK_NAME_MAX];	/* the kernel's name of the device, for this boot */
	char place[KVBLK_PLACE_MAX];	/* as an administrator's program told it, or "" */
	char *path;
	uuid_t uuid;
	u32 state;
	bool suspect;
	bool failing;
	bool read_only;
	atomic_t error_run[2];		/* of reads, of writes */
	atomic_t write_errors;
	bool suspect_told;
	bool failing_told;		/* likewise, as is */
	bool read_only_told;
	bool formatted;			/* just made; nothing to restore */
	u64 restored;			/* blocks found at restart */
	u32 nr_unread;			/* segments, see there; restore's */
	bool unread_unsure;		/* in pool->unsure, see restore_count(); pool->admin */
	bool forfeit;			/* segments still unread are given up; pool->admin */
	bool retry;			/* it was UNRESTORED before; pool->admin */

	struct file *bdev_file;
	struct block_device *bdev;
	dev_t dev;			/* of it */
	u64 size;
	u64 data_start;
	u32 segment_units;
	u32 nr_segs;
	u32 record_align;		/* bytes */
	u32 seg_base;
	struct kvblk_segment *segs;
	u64 incarnation;
	struct kvblk_d_super *super;	/* as read or written last; the writer's, as is */
	u64 sb_seq;
	u64 epoch;			/* that its superblock tells, as are */
	u64 activation;
	u64 roster_seq;
	u64 time;
	struct kvblk_absent *absent;	/* it is back, and that is not told yet */

	struct bio_set bios;
	blk_opf_t nowait;		/* REQ_NOWAIT, if it works; log/bio.c's, as are */
	u32 fits_bytes;			/* a bio that the device takes as it is, */
	u32 fits_segments;		/* with so many vectors, and */
	struct kvblk_queue queues[2];	/* of reads, of writes */
	struct kvblk_ios __percpu *ios;
	struct kvblk_stats __percpu *stats;
	struct kvblk_stats stats_before;
	unsigned long last_get;		/* its submission, jiffies; rough */
	struct kvblk_ios seen;		/* the watchdog's own, and */
	u64 seen_inflight;		/* likewise */
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
	u64 opened;			/* of the one that was opened last */
	struct list_head closing;	/* full, last writer gone: to be sealed */

	struct mutex table_lock;	/* table_seq, table_buf, page order */
	u64 *table_seq;			/* by page; under table_lock */
	struct kvblk_d_table *table_buf;/* under table_lock */

	struct work_struct log_work;	/* open, seal */
	struct work_struct reclaim_work;
	u32 reclaim_run;		/* its own */
	spinlock_t gate_lock;		/* see log/write_throttle.c; any context */
	struct list_head gate;		/* puts that wait for others; gate_lock, */
	u32 gate_puts;			/* puts among them that are no prefetches, */
	u64 gate_waiting;		/* bytes of all that wait, and of those in lanes, */
	bool gate_full;			/* there are too many, */
	struct list_head gate_counted;	/* those let through, the oldest first, */
	u64 gate_bytes;			/* bytes of them, */
	unsigned long gate_looked;	/* when all that wait were looked at, jiffies, */
	u64 gate_done;			/* I/O completed by then, */
	struct kvblk_lane lanes[KVBLK_LANES];
	struct delayed_work gate_work;
	struct list_head kills;		/* pool->kill_lock, as are */
	u32 nr_kills;			/* those listed, and */
	bool kills_full;		/* too many of them; for deletes: */
	bool deletes_full;
	unsigned long kills_moved;	/* when the last one ended, jiffies */
	unsigned long kill_retry;	/* jiffies; kill_work's, as is */
	unsigned long kill_gap;		/* between two tries */
	struct work_struct kill_work;
	struct delayed_work checkpoint;
	unsigned long time_saved;	/* the pool's clock, on the member, jiffies */
	struct work_struct restore;
	struct work_struct super_work;	/* its superblock has an old epoch */
	struct work_struct remove;
	struct delayed_work dead;
	bool removing;			/* under pool->admin */
	bool delisted;			/* likewise: it is no member any more */
	bool unsure;			/* died or left, and counted in pool->unsure; pool->admin */
	bool outdated;			/* the epoch has moved on since; likewise */
	bool low_told;			/* it fell below its low watermark once; reclaim's own */
};

/* ---- the host's memory ---- */

/*
 * struct kvblk_object - a block in the host's memory; see dram/dram.c
 * @node: dram->objects, by @rec.id
 * @lru: of its node, under the node's lock, as is
 * @dead: it was removed
 * @urgent: dram->urgent, with a reference; dram->lock
 * @refs: the table's, until it is removed, and of who looks at it
 * @pool: that counts it, and is there as long
 * @seg: its entry's place, if it counts, with
 * @off: likewise, and
 * @gen: likewise
 * @nid: of its list
 * @chain: the batch that it was put by, if that was a chain; 0: none
 * @offer_parent: id.lo of the block before that chain, or before it; 0: not known
 * @continues: that block was there
 * @goes_on: the chain's next blocks come in another batch
 * @touched: a get has found it since it was last at the cold end
 * @needed: it was asked for since it was put, or before
 * @heat: its entry's when it was last at the cold end
 * @tries: writes of it that failed
 * @avoid: slot of the member that failed the last of them, or 0
 * @unproven: it was read from a member, and nobody has checked it
 * @rec: what its record tells, or will; its @crcs are the object's own, or NULL
 * @nr: folios
 * @bv: one for the record's header, and one for each folio
 * @key: of the block, @rec.key_len bytes
 */
struct kvblk_object {
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

/* Of a NUMA node. */
struct kvblk_dram_node {
	spinlock_t lock;		/* lru, bytes; in memory reclaim, too */
	struct list_head lru;		/* the coldest first */
	u64 bytes;			/* of those in it */
	u64 stayed;			/* the work's own */
};

/**
 * struct kvblk_dram - a pool's blocks in the host's memory
 * @objects: all, by id
 * @nodes: nr_node_ids of them
 * @bytes: that they take, and those which are coming
 * @serial: of the last one
 * @chains: of the last one
 * @lock: @urgent; a leaf
 * @urgent: objects that somebody waits for to be on a member
 * @shrinker: lets memory pressure in
 * @rest: jiffies before which there is nothing that could go
 * @work: makes room; the next two are its own
 * @run: what it looks at
 * @stages: what it writes
 * @left: others that it did not wait for, since their members are silent
 * @report: blocks that were damaged in there
 * @homes: of the last chains: &kvblk_object.chain, and in the low half its list's node
 * @closing: the pool is going: leases pin nothing
 */
struct kvblk_dram {
	struct rhashtable objects;
	struct kvblk_dram_node *nodes;
	atomic64_t bytes;
	atomic_t serial;
	atomic_t chains;
	spinlock_t lock;		/* urgent */
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

/* What sysfs changes; plain loads and stores. */
struct kvblk_tunables {
#define X(name, type, standard, least, most)	type name;
	KVBLK_TUNABLES(X)
#undef X
};

/* ---- pools ---- */

#define KVBLK_BOUNCE_BYTES	SZ_1M

#define KVBLK_KILL_BUCKETS	256

/* Where leased blocks are: KVBLK_LEASE_MEMORY, or 1 + the slot of their member. */
#define KVBLK_LEASE_MEMORY	0
#define KVBLK_LEASE_PLACES	(KVBLK_MEMBERS_MAX + 1)

/**
 * struct kvblk_align - what lets every member of a pool transfer directly
 * @addr_mask: bits of addresses that must be 0
 * @len_mask: the same of lengths, the last one excepted
 * @both: for one look at them
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
 * struct kvblk_opener - who has the node open
 * @link: pool->openers
 * @pid: of the process that opened it, with a reference
 * @comm: its name
 */
struct kvblk_opener {
	struct list_head link;
	struct pid *pid;
	char comm[TASK_COMM_LEN];
};

struct kvblk_pool {
	struct device dev;		/* /sys/class/kvblk/<name>, the node */
	struct cdev cdev;
	struct cdev nvme_cdev;		/* the node that takes NVMe commands */
	struct list_head link;		/* in kvblk_pools, under kvblk_pools_lock */
	char name[KVBLK_NAME_MAX];
	uuid_t uuid;
	u32 flags;
	u64 birth;			/* seconds since 1970 */
	u64 epoch;
	u64 activation;			/* random; see format/format.h */
	u64 prev_epoch;
	u64 prev_activation;
	u8 seed[32];
	u8 node[16];			/* id of this node, zeroes: not known */
	u64 index_slots;		/* that superblocks tell, 0: not all blocks fit */
	bool index_evicts;		/* restore may evict, and kill on flash */
	atomic64_t index_lacks;		/* blocks that restore found no slot for */
	struct kvblk_secret secret;

	struct percpu_ref users;
	struct completion users_done;
	bool dying;
	spinlock_t openers_lock;	/* openers; dying is set under it */
	struct list_head openers;	/* of the node */
	spinlock_t journal_lock;	/* the next two, and their rings; see report/changelog.c */
	struct list_head journals;	/* that are open */
	bool journals_over;		/* none may be opened */

	struct mutex admin;		/* members */
	struct kvblk_member __rcu *members[KVBLK_MEMBERS_MAX];
	u32 nr_members;
	struct list_head coming;	/* members on their way: see pool/member.c */
	struct kvblk_align align;	/* read and written at once */
	u32 align_units;		/* largest record_align, in units */
	bool stable_writes;		/* puts must not change under way */
	bool device_seen;		/* somebody uses a device's memory */
	u8 granule[KVBLK_GRANULES + 1];	/* member slot + 1, 0: free; the last is no member's */
	u16 *seg_gen;			/* KVBLK_DRAM_SEG + 1 */

	struct kvblk_index index;
	struct kvblk_policy policy;
	struct kvblk_tunables tun;
	struct kvblk_dram dram;
	struct kvblk_pool_stats __percpu *stats;
	/* by slot, of all members that have had it; made once, under admin */
	struct kvblk_stats __percpu *slots[KVBLK_MEMBERS_MAX];
	u64 cleared[KVBLK_CLEARABLE];	/* what an administrator has seen of those counters, */
	u64 cleared_at;			/* seconds since 1970, or 0 */

	atomic64_t seq;			/* of records */
	atomic_t restoring;		/* members not up yet */
	wait_queue_head_t restore_wait;
	wait_queue_head_t space_wait;
	atomic_t space_seq;		/* moves when puts may find room anew */
	wait_queue_head_t delete_wait;	/* member->deletes_full is none any more */
	wait_queue_head_t settle_wait;	/* a MOVING slot was let go */
	spinlock_t kill_gate;		/* see log/invalidate.c */
	spinlock_t kill_lock;		/* kills, the members' too */
	struct hlist_head kills[KVBLK_KILL_BUCKETS]; /* by token, kill_lock */
	bool pinned[KVBLK_GRANULES + 1];	/* nothing there is evicted; kill_lock */
	atomic_t unsure;		/* what a lost member holds may come back */
	bool refused;			/* a delete failed for that; any context */
	u32 nr_lost;			/* gone, but counted there; under admin */
	spinlock_t roster_lock;		/* the roster, absents */
	struct kvblk_d_member roster[KVBLK_SB_MEMBERS];
	struct kvblk_d_place *places;	/* as roster */
	u32 roster_nr;
	u64 roster_seq;			/* moves with each change of it */
	struct list_head absents;	/* members of the roster that are away; RCU */
	u64 clock;			/* the pool's time, seconds, at */
	u64 clock_boot;			/* this time since boot, ns */
	bool expires;			/* some block does: the time is to be saved */

	struct workqueue_struct *wq;
	struct kobject *members_dir;	/* sysfs members/ */
	struct delayed_work tick;
	struct work_struct stats_work;	/* tells listeners; its own is */
	u64 stats_seq;			/* of the last message; and the tick's */
	u32 stats_age;			/* seconds since it was queued */
	struct work_struct sweep_work;
	u64 sweep_at;			/* its own */
	u64 sweep_pass;
	u64 reclaimed_last;
	u64 nospace_told;		/* puts without room, as an event told them; the tick's, */
	unsigned long nospace_next;	/* and the next one not before, jiffies */
	struct kvblk_landing __percpu *landings;
	struct work_struct rescue_work;	/* ends media halves of tasks that don't come */

	spinlock_t bounce_lock;		/* bounces */
	struct kvblk_bounce *bounces[KVBLK_BOUNCES_MAX];

	struct mutex lease_lock;	/* all leases */
	struct rhashtable lease_keys;	/* and */
	struct rhashtable lease_holds;	/* which files hold them; see ops/lease.c */
	struct rb_root_cached leases;	/* by their ends */
	bool leases_over;		/* the index is about to be freed */
	struct list_head leases_memory;	/* keys of blocks in memory, */
	u32 nr_leases_memory;		/* their number, */
	u64 leased[KVBLK_LEASE_PLACES];	/* bytes by place, see ops/lease.c, and */
	u64 leased_bytes;		/* the sum */
	struct work_struct lease_work;	/* ends them */
};

static inline struct kvblk_pool *kvblk_dev_pool(struct device *dev)
{
	return container_of(dev, struct kvblk_pool, dev);
}

static inline struct kvblk_align kvblk_pool_align(const struct kvblk_pool *pool)
{
	return (struct kvblk_align) { .both = READ_ONCE(pool->align.both) };
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

/*
 * Keeps the pool's index, policy and objects until kvblk_pool_leave(). Returns false if
 * the pool is going. A caller that waits for user memory must not hold them, or else
 * "pool destroy" waits with it.
 */
static inline bool kvblk_pool_enter(struct kvblk_pool *pool)
{
	return percpu_ref_tryget_live(&pool->users);
}

static inline void kvblk_pool_leave(struct kvblk_pool *pool)
{
	percpu_ref_put(&pool->users);
}

/* Serves gets and lookups, of what it has restored so far. */
static inline bool kvblk_member_ok(const struct kvblk_member *member)
{
	return READ_ONCE(member->state) <= KVBLK_MEMBER_UP &&
	       !READ_ONCE(member->suspect) && !READ_ONCE(member->failing);
}

/* And takes writes. */
static inline bool kvblk_member_writable(const struct kvblk_member *member)
{
	return kvblk_member_ok(member) && !READ_ONCE(member->read_only);
}

/* Is one of those whose epoch says what the pool is. */
static inline bool kvblk_member_stays(const struct kvblk_member *member)
{
	return READ_ONCE(member->state) <= KVBLK_MEMBER_UP &&
	       !READ_ONCE(member->removing);
}

/* For operators: 0: it fails nothing; 1: reads, too; 2: writes alone. */
static inline u32 kvblk_member_fails(const struct kvblk_member *member)
{
	return READ_ONCE(member->failing) ? 1 : READ_ONCE(member->read_only) ? 2 : 0;
}

/* The member that a pool-wide segment number belongs to, or NULL. RCU. */
static inline struct kvblk_member *kvblk_member_of(struct kvblk_pool *pool, u32 seg)
{
	u8 slot = READ_ONCE(pool->granule[seg >> KVBLK_GRANULE_SHIFT]);

	return slot ? rcu_dereference(pool->members[slot - 1]) : NULL;
}

/* Units that the record of a block of @length takes on it. */
static inline u32 kvblk_member_units(const struct kvblk_member *member, u32 length)
{
	return kvblk_record_units(length, member->record_align >> KVBLK_UNIT_SHIFT);
}

#endif
