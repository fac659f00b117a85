/* SPDX-License-Identifier: GPL-2.0 */
/* Structures that all layers share. A field belongs to the layer or lock that its comment names. */
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

/* Counters of a member, or of a pool without its members, per CPU. Only u64, see report/stats.c. */
struct kvblk_stats {
	u64 counters[KVBLK_COUNTERS];
	u64 hists[KVBLK_HISTS][KVBLK_HIST_BUCKETS];
};

/* Size classes of puts and gets, by bytes: up to one unit, then four times as many in each. */
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

struct kvblk_file;
struct kvblk_pool;
struct kvblk_member;
struct kvblk_flash;
struct kvblk_reservation;

/* ---- the log ---- */

/* Summary of an open segment while it fills; page i lists records from 63 * i. */
struct kvblk_open {
	spinlock_t lock;		/* protects the contents of pages */
	u32 nr_pages;
	u32 settled;			/* records on full pages on media; only log->checkpoint */
	u32 listed;			/* records if media lists all; only log->checkpoint */
	unsigned long *durable;		/* by unit: the record there survives a crash */
	struct kvblk_d_summary *pages[];/* each set once, by cmpxchg */
};

/* No two segments share a cache line. Gets use the first 64 bytes of theirs, puts the others. */
struct kvblk_segment {
	u64 gen;			/* pool->seg_gen: low 16 bits; reclaim, restore change it */
	atomic_t refs;			/* gets, deletes, copies that rely on the bytes */
	u16 flags;			/* KVBLK_SEGF_*; under log->lock */
	u8 state;			/* &enum kvblk_segment_state; under log->lock */
	u8 class;			/* &enum kvblk_class */
	bool retired;			/* waits for @refs to drain */
	bool retiring;			/* the next generation goes to the table; under log->lock */
	bool ranked;			/* in log->sealed; under log->lock */
	bool empty;			/* rank in log->sealed: no live units; under log->lock */
	bool kills_durable;		/* KVBLK_SEGF_KILLS is on media */
	bool unsaved;			/* the table on media may still list the segment as free */
	bool unread;			/* unreadable, or not read yet; written by restore */
	bool unknown;			/* table entry and its page unreadable; log->table_lock */
	u32 nr_records;			/* once SEALED */
	u32 rests_until;		/* jiffies until which reclaim skips it; only reclaim */
	u64 stamp;			/* &kvblk_policy_seg.stamp; constant while @ranked */
	u64 opened;			/* position in the member's order of opening */
	u64 sweep_mark;			/* pool->sweep_pass that must be reached before reuse */
	u64 reuse_from;			/* once retired: boottime ns, see kvblk_grace_end() */

	atomic64_t cursor __aligned(64); /* see log/cursor.h */
	atomic_t writers;		/* puts with a reservation; one more while open */
	atomic_t live_units;		/* units of records that have entries, an estimate */
	struct kvblk_open *open;	/* from OPEN to sealed; to retired if the seal failed */
	/* 0, or flash.write_errors before the first record in a volatile cache; cmpxchg, once */
	int cached;
	bool bare;			/* a crash before the seal loses records: no checksums */
	bool rests;			/* leases pin too much of the segment; only reclaim */
	bool in_emptied;		/* in log->emptied; by xchg() */
	struct llist_node emptied;	/* in log->emptied */
	union {				/* under log->lock */
		struct rb_node node;	/* in log->sealed while @ranked */
		struct list_head link;	/* on one list of the member */
	};
} __aligned(128);

static_assert(sizeof(struct kvblk_segment) == 128);

/* A reservation in an open segment, held until the record's I/O completes. */
struct kvblk_reservation {
	struct kvblk_member *member;	/* with a reference */
	struct kvblk_segment *seg;	/* holds seg->writers and seg->refs */
	u64 gen;
	u64 seq;
	u32 segment;			/* index in log->segs */
	u32 unit;
	u32 units;
	struct kvblk_d_entry *entry;	/* of the record in the segment's summary */
};

/* ---- members ---- */

/* Open segments of a member, so that CPUs do not contend; at most one segment in 32 is open. */
#define KVBLK_LOGS_NEW		8
#define KVBLK_LOG_HOT		KVBLK_LOGS_NEW
#define KVBLK_LOGS		(KVBLK_LOGS_NEW + 1)

/*
 * RESTORING: serves the blocks restored so far. DEAD: the device was removed, nothing is served.
 * UNRESTORED: nothing is served, but restore may be retried.
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

/* Rate limit of reports of one kind of error. */
struct kvblk_report {
	unsigned long next;		/* jiffies before which nothing is reported */
	atomic_t nr;			/* errors since the last report */
	u32 segment;			/* segment of the last error */
};

struct kvblk_ios {
	u64 submitted;
	u64 done;
	u64 failed;
	u64 writes;			/* completed writes */
	u64 writes_failed;
	u64 bytes;			/* submitted */
	u64 bytes_done;
	unsigned long get_at;		/* jiffies of the last get */
	u64 get_bytes;			/* of gets in that jiffy */
};

/* Bios that the device could not accept at once, in submission order. */
struct kvblk_queue {
	spinlock_t lock;		/* protects bios, nr; any context */
	struct bio_list bios;
	u32 nr;				/* number of @bios, plus the one that @work submits */
	struct work_struct work;	/* submits @bios; sleeps until the device accepts them */
};

/* Released writes of one cgroup; see log/write_throttle.c. */
struct kvblk_cgroup_queue {
	struct kvblk_member *member;
	const void *cgroup;		/* compared only: no reference is held */
	unsigned long poor_until;	/* jiffies until which it is assumed over its budget */
	struct list_head queued_ios;
	bool busy;			/* @queued_ios is not empty, or @work submits one */
	struct work_struct work;	/* submits @queued_ios; sleeps as the budget requires */
};

#define KVBLK_CGROUP_QUEUES	8

/* I/O of a tenant that waits for its share of a member; see log/write_throttle.c. */
struct kvblk_share {
	const struct kvblk_account *account;	/* of the tenant, or NULL: never used */
	u64 clock;			/* see log/share.h */
	u32 counted;			/* counted I/Os in flight */
	u32 writes;			/* puts and prefetches among @counted */
	bool wrote;			/* the I/O served last was one of these */
	struct list_head link;		/* in throttle->waiting_shares */
	struct list_head gets;		/* waiting, by arrival; removed by throttle->work only */
	struct list_head writes_queued;	/* puts and prefetches, as @gets */
};

#define KVBLK_SHARES	64

/* Providers of device memory that P2P is tried with; further ones bounce. */
#define KVBLK_PROVIDERS_MAX	16

/* How a member's I/O reaches a device's memory. */
enum kvblk_route_state {
	KVBLK_ROUTE_UNKNOWN,		/* not yet determined */
	KVBLK_ROUTE_DIRECT,		/* by P2P */
	KVBLK_ROUTE_BOUNCE,		/* by CPU copies */
	KVBLK_ROUTE_TRIAL,		/* by P2P in proven directions, otherwise by a trial */
};

#define KVBLK_PROVEN_GET	BIT(0)
#define KVBLK_PROVEN_PUT	BIT(1)

struct kvblk_route {
	u32 serial;			/* serial number of the provider, 0: none */
	u32 state;			/* &enum kvblk_route_state */
	u32 proven;			/* TRIAL: directions that moved the right bytes */
	u32 failures;			/* TRIAL: transfers of wrong bytes */
	u32 errors;			/* I/O errors that the route may have caused */
	unsigned long next;		/* TRIAL: jiffies before which no trial begins */
	const char *why;		/* reason for BOUNCE or for a new TRIAL, or NULL */
};

/* A flash's routes into device memory; see p2p/route.c. */
struct kvblk_flash_p2p {
	struct kvblk_route routes[KVBLK_PROVIDERS_MAX]; /* by provider; providers_lock */
	struct work_struct work;	/* tries out the route to @page */
	atomic_t busy;			/* @work is queued */
	struct page *page;		/* the provider's, with a reference; written while @busy */
	bool whole;			/* @page belongs to one caller as a whole */
	unsigned long next;		/* jiffies before which @work is not queued */
};

/* State of a member's watchdog and its @probe; see pool/watchdog.c. */
struct kvblk_watchdog {
	bool suspect_reported;		/* states in the last event; all layers may READ_ONCE() */
	bool failing_reported;
	bool read_only_reported;
	struct kvblk_ios seen;		/* the member's I/O at the last check */
	u64 seen_inflight;		/* bios in flight at the last check */
	unsigned long last_done;	/* jiffies of the last progress */
	struct work_struct probe;	/* tests whether a failing member responds well again */
	unsigned long probe_next;	/* jiffies before which @probe is not queued */
	unsigned long probe_gap;	/* jiffies after a failed probe */
	u32 probes_well;		/* consecutive successful probes */
};

/* The reservation that a pool in a pod takes on a device; see pool/fence.c. */
struct kvblk_fence {
	u64 key;			/* of this node, 0: none; set before the first write */
	bool lost;			/* another node writes, fenced for good; only @work */
	bool reported;			/* flash->fenced is reported; only @work */
	unsigned long next;		/* jiffies of the next check; only the watchdog */
	unsigned long early;		/* jiffies before which a rejected write starts no check */
	unsigned long gap;		/* jiffies to @early; only @work */
	struct work_struct work;	/* checks who holds the reservation */
};

/* Puts and prefetches that wait for gets, and I/O of several tenants; see log/write_throttle.c. */
struct kvblk_write_throttle {
	spinlock_t lock;		/* protects the fields below; any context */
	/* I/Os that wait, in order of arrival: &kvblk_queued_io.link; removed by @work only */
	struct list_head puts;
	struct list_head prefetches[KVBLK_PRIORITY_MAX + 1]; /* by priority */
	u64 waiting;			/* bytes of waiting puts and prefetches */
	u32 nr_waiting;			/* I/Os in @puts, @prefetches, @shares and @cgroup_queues */
	bool full;			/* @waiting exceeds the limit; READ_ONCE() without @lock */
	struct list_head counted;	/* released I/Os, oldest first: &kvblk_queued_io.counted */
	u64 bytes;			/* of @counted, without those of shares */
	unsigned long looked;		/* jiffies of the last throttle_look() */
	u64 done;			/* I/O of the member completed at @looked */
	unsigned long answered;		/* jiffies at which @done changed last */
	struct kvblk_cgroup_queue cgroup_queues[KVBLK_CGROUP_QUEUES]; /* released I/O */
	struct kvblk_share shares[KVBLK_SHARES];
	struct list_head waiting_shares;	/* shares that may have waiting I/O */
	u64 clock;			/* of the device, see log/share.h */
	u64 shared_bytes;		/* of @counted, of shares */
	/* both without @lock, READ_ONCE() */
	const struct kvblk_account *account;	/* of the last tenant seen */
	unsigned long mixed;		/* jiffies of the last I/O of another tenant than before */
	struct delayed_work work;
};

/* Records of a member to invalidate; see log/invalidate.c. */
struct kvblk_kills {
	struct list_head list;		/* @list and @nr: pool->kill_lock */
	u32 nr;				/* number of @list */
	bool full;			/* @nr is at its limit; written under pool->kill_lock */
	bool deletes_full;		/* @nr at deletes' limit; written under pool->kill_lock */
	unsigned long moved;		/* jiffies of the last removal from @list */
	unsigned long retry;		/* jiffies of the next retry; only @work */
	unsigned long gap;		/* jiffies between retries; only @work */
	struct work_struct work;
};

/*
 * Questions of a flash to the log on it.
 * @write_probe: rewrites a page of the table, if any, to test whether the device writes. Returns 0
 *	or an errno. May sleep. NULL: the device is not written
 * @reserve: reserves @units that a probe of a route may overwrite. Returns 0 or an errno. NULL: the
 *	device is not written
 * @responds: continues work that waited for the device. Does not sleep
 */
struct kvblk_flash_ops {
	int (*write_probe)(struct kvblk_flash *flash);
	int (*reserve)(struct kvblk_flash *flash, u32 units, struct kvblk_reservation *resv);
	void (*responds)(struct kvblk_flash *flash);
};

/* A block device of a pool: device, geometry, I/O and health. */
struct kvblk_flash {
	struct kvblk_pool *pool;
	const struct kvblk_flash_ops *ops; /* set once */
	struct percpu_ref ref;		/* counts I/O in flight and works; killed at removal */
	struct completion ref_done;
	u32 slot;			/* 1 + index in pool->members; 0: none yet */
	char name[KVBLK_NAME_MAX];	/* in the member list; unique in the pool */
	char device[KVBLK_NAME_MAX];	/* kernel name of the device since boot */
	char place[KVBLK_PLACE_MAX];	/* location, given by the administrator, or "" */
	char *path;			/* as given by the administrator */
	uuid_t uuid;
	u32 state;			/* &enum kvblk_member_state; cmpxchg, READ_ONCE */
	/* no I/O completed for too long; set by the watchdog, cleared by completions */
	bool suspect;
	/* set by completions and the watchdog; cleared by the watchdog when probes succeed */
	bool failing;			/* reads fail */
	bool read_only;			/* writes fail: blocks are served, puts go elsewhere */
	/* without reservation: as read_only, and bio.c refuses writes; set by completions, fence */
	bool fenced;
	atomic_t error_run[2];		/* consecutive errors of reads, of writes */
	/* 1, plus failed writes and flushes; after one, no flush proves that caches were written */
	atomic_t write_errors;

	struct file *bdev_file;
	struct block_device *bdev;
	dev_t dev;
	u64 size;
	u64 data_start;
	u32 segment_units;
	u32 nr_segs;
	u32 record_align;		/* bytes */
	bool short_crc;			/* headers are written with KVBLK_RECF_SHORT_CRC */
	u32 seg_base;			/* pool-wide number of segment 0 */
	u64 incarnation;		/* random number of this format of the device */

	struct bio_set bios;
	blk_opf_t nowait;		/* REQ_NOWAIT if supported; log/bio.c */
	u32 fits_bytes;			/* largest bio that needs no split; log/bio.c */
	u32 fits_segments;		/* most vectors of such a bio; log/bio.c */
	struct kvblk_queue queues[2];	/* reads, writes */
	struct kvblk_ios __percpu *ios;	/* bios, by CPU */
	struct kvblk_stats __percpu *stats; /* pool->slots[], or the pool's own without @slot */
	bool foreign;			/* another node's: never written */
	struct kvblk_stats stats_before; /* values of @stats when the member was added */
	/* of the only tenant that has I/O lately, or NULL: I/O takes shares; READ_ONCE() */
	const struct kvblk_account *payer;
	bool limited;			/* I/O waits for shares; log/write_throttle.c */
	unsigned long last_get;		/* jiffies of the last get's submission, approximate */
	unsigned long burst_since;	/* jiffies */
	u64 burst;			/* most get_bytes of a CPU since @burst_since, about */
	u64 burst_before;		/* of the second before @burst_since */
	bool reads_in_task;		/* where the last part of a payload completed; record.c */
	struct kvblk_watchdog watchdog;
	spinlock_t bandwidth_lock;	/* protects writes to @bandwidth */
	struct kvblk_bandwidth bandwidth;
	struct kvblk_fence fence;
	struct kvblk_report reports[KVBLK_ERRORS];
	struct kvblk_flash_p2p p2p;
};

/* Records of a segment that reclaim copies to keep them. */
struct kvblk_kept {
	u32 segment;
	unsigned long units[];		/* bitmap of the records' first units */
};

/* Segments of a member, and the works that write, restore and reclaim them. */
struct kvblk_log {
	struct kvblk_segment *segs;	/* array of flash.nr_segs */

	struct kvblk_d_super *super;	/* superblock as last read or written; only its writer */
	u64 sb_seq;
	u64 epoch;			/* epoch to time: as in the superblock */
	u64 activation;
	u64 member_list_seq;		/* 0: of another activation */
	u64 time;
	struct work_struct super_work;	/* writes the pool's epoch to the superblock */

	spinlock_t lock;		/* protects segment states, ready to closing */
	struct list_head ready;		/* segments opened on media for puts, not yet in use */
	struct list_head free;
	/* sealed segments in the order of reclaim; not those set aside, nor reclaim's victim */
	struct rb_root_cached sealed;
	struct list_head failed;	/* set aside until the next run of reclaim */
	struct list_head resting;	/* set aside until their rests_until, the next one first */
	struct llist_head emptied;	/* segments whose live_units became 0; any context */
	struct list_head retiring;	/* retired, waiting for references to be dropped */
	u32 nr_logs;			/* open segments of class NEW */
	/* open for records: NEW by CPU, the last HOT; @lock, or a reservation's seg->writers */
	struct kvblk_segment *current_seg[KVBLK_LOGS];
	u32 nr_free;
	u32 nr_ready;
	u32 nr_sealed;
	u32 nr_retiring;
	u32 nr_open;			/* current, ready and not yet sealed segments */
	u64 opened;			/* number of the segment opened last */
	struct kvblk_kept __rcu *kept;	/* may be leased though MOVING; NULL or reclaim's; RCU */
	struct list_head closing;	/* full, without writers, to be sealed */

	struct mutex table_lock;	/* protects table_seq to change_page, page writes */
	u64 *table_seq;			/* by page */
	struct kvblk_d_table *table_buf;
	struct kvblk_d_change_page *change_page; /* in a pod, else NULL */
	struct kvblk_d_change_page *change_page_buf; /* the copy in flight; only @checkpoint */
	unsigned long beaten;		/* jiffies of the last write of it; only @checkpoint */

	u64 reuse_from;			/* boottime ns before which no segment is opened, or 0 */
	u64 opens;			/* average of segments opened in a second, in 1/256 */
	u64 opened_seen;		/* @opened at @opens_seen; only @checkpoint */
	unsigned long opens_seen;	/* jiffies of the last update of @opens; only @checkpoint */
	u32 grace;			/* reuse_grace in the superblock, ms */
	bool formatted;			/* formatted by this import or add: nothing to restore */
	u64 restored;			/* blocks found by restore */
	u32 nr_unread;			/* unread segments; only restore */
	bool forfeit;			/* unread segments are given up; pool->admin */
	bool retry;			/* was UNRESTORED before; pool->admin */
	struct kvblk_missing *missing;	/* pool->missing_members' entry that restore filters by */
	struct work_struct restore;

	struct work_struct work;	/* opens and seals segments */
	struct work_struct reclaim_work;
	bool low_reported;		/* low-watermark event was sent; only reclaim */
	struct kvblk_write_throttle throttle;
	struct kvblk_kills kills;
	struct delayed_work checkpoint;
	unsigned long time_saved;	/* jiffies when media last got the pool's time */
	struct kvblk_anchor_segment *anchors; /* array of flash.nr_segs, or NULL; only its work */
	u64 anchors_session;		/* daemon that @anchors is about; only its work */
	/* bits of segments in which to look for anchors, or NULL; under @lock, read without */
	unsigned long *anchors_due;
};

/* Progress of the reports of a segment's anchors; see pool/anchors.c. */
struct kvblk_anchor_segment {
	u64 gen;
	u32 settled;			/* summary pages that need not be read again */
	u32 end;			/* unit behind the last record's first one */
	u32 nr;				/* records */
	bool whole;			/* sealed, and all was read */
};

/* A block device that a pool reads and writes, with its log. */
struct kvblk_member {
	struct kvblk_flash flash;
	struct kvblk_log log;
	struct kobject *kobj;
	struct work_struct remove;
	struct delayed_work dead;
	u8 found;			/* &enum kvblk_found, when the device was opened */
	bool unread_unsure;		/* in pool->unsure, see restore_use(); pool->admin */
	bool removing;			/* pool->admin */
	bool delisted;			/* removed from the member list; pool->admin */
	bool unsure;			/* dead or removed, in pool->unsure; pool->admin */
	bool outdated;			/* the epoch has advanced since; pool->admin */
};

/* A segment of a foreign member, as its owner's table shows it. Written by the poll and hints. */
struct kvblk_foreign_segment {
	u64 gen;			/* WRITE_ONCE, before foreign->until */
	u64 hinted;			/* generation of the last hint, or 0; written by hints */
	u64 opened;			/* position in the owner's order of opening */
	u16 flags;			/* KVBLK_SEGF_* */
	u8 state;			/* &enum kvblk_segment_state */
	bool whole;			/* sealed, and all its records are in the index */
	bool damaged;			/* sealed, and its summary could not be read */
	bool again;			/* scan all of it; WRITE_ONCE, set by hints */
	u32 settled;			/* summary pages that need not be read again */
	u32 scanned;			/* jiffies of the last scan; WRITE_ONCE */
	u32 lacks;			/* records without a free index slot */
};

/* Operations of a foreign member, by CPU. Only u64. */
struct kvblk_foreign_stats {
	u64 gets;
	u64 get_bytes;
	u64 misses;
};

struct kvblk_touches;

/* A member that another node of the pod owns; see pool/follow.c. */
struct kvblk_foreign {
	struct kvblk_flash flash;	/* open for reading only */
	struct list_head link;		/* pool->foreign.list; RCU, pool->admin */
	struct kvblk_foreign_segment *segs;	/* array of flash.nr_segs */
	u64 *until;			/* by table page: boottime ns at which belief ends */
	u64 all_until;			/* of all pages: as @until */
	u64 *table_mark;		/* by table page: seq and crc; only @poll */
	struct kvblk_foreign_stats __percpu *stats;
	uuid_t pool_uuid;		/* of the owner's pool */
	u8 node[16];			/* id of the owner */
	char owner[64];			/* name of the owner */
	/* the owner's tenants but "default", as last read; member_list_lock, written by @poll */
	struct kvblk_d_tenant *tenants;
	u32 nr_tenants;
	u32 next_tenant;		/* as in the superblock */
	u64 agreed_seq;			/* member_list_seq of @agreed, 0: compare; only @poll */
	u16 conflict;			/* id of a tenant in conflict, 0: none; member_list_lock */
	DECLARE_BITMAP(agreed, KVBLK_TENANT_IDS);	/* by id; see pool/agree.c; no lock */
	u64 super_read;			/* boottime ns of the last superblock read; READ_ONCE() */
	u64 changes_nr;			/* of the last change page; only @poll */
	u64 advanced;			/* boottime ns of the last new beat; only @poll */
	/* the last two beats, and the end of the belief that a later one brings; only @poll */
	struct {
		u64 beat;
		u64 until;
	} beats[2];
	u64 grace;			/* ns of belief after a proof; only @poll */
	s64 clock_lead;			/* seconds of the owner's clock before the pool's */
	s64 super_lead;			/* by the last superblock read; only @poll */
	s64 table_lead;			/* by the table, or S64_MIN; only @poll */
	u32 table_time;			/* of the last page 0 of the table; only @poll */
	u64 blocks;			/* found by polls; READ_ONCE */
	u64 lacks;			/* records without a free index slot; READ_ONCE */
	bool removing;			/* pool->admin */
	bool hinted;			/* scan hinted segments only; set once */
	u64 hint;			/* number of the last hint; release, after the segments */
	u64 polled;			/* @hint that the last poll has followed; release */
	struct delayed_work poll;
};

/* Foreign members of a pool. */
struct kvblk_foreigners {
	struct list_head list;		/* RCU; written under pool->admin */
	struct xarray granules;		/* foreign members by granule; RCU */
	u64 super_wanted;		/* a read of a superblock before this is old; READ_ONCE() */
	DECLARE_BITMAP(agreed, KVBLK_TENANT_IDS);	/* ids that agreed with any member's */
	struct workqueue_struct *wq;	/* polls: the works of own members must not wait for them */
	struct kvblk_touches *touches;	/* see pool/touch.c; set once, by the first member */
};

/* Returns the member of a flash. Only for flash->ops of a member. */
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

/* A DRAM block; see dram/dram.c. */
struct kvblk_dram_block {
	struct rhash_head node;		/* in dram->blocks, by @rec.id */
	struct list_head lru;		/* in the list of node @nid, under the node's lock */
	struct list_head urgent;	/* in dram->urgent, with a reference; dram->lock */
	bool dead;			/* removed from dram->blocks; under the node's lock */
	refcount_t refs;		/* one for dram->blocks, one for each user */
	struct rcu_head rcu;
	struct kvblk_pool *pool;	/* charged for the memory; outlives the DRAM block */
	u32 seg;			/* @seg, @off, @gen: place in the block's index entry */
	u32 off;
	u16 gen;
	u8 heat;			/* of the entry when the block was last at the cold end */
	u8 tries;			/* failed writes */
	u8 avoid;			/* slot of the member that failed the last write, or 0 */
	bool unproven;			/* read from a member without verification */
	struct kvblk_account *account;	/* charged for the memory, too */
	bool continues;			/* the block before the chain was present */
	bool goes_on;			/* the chain continues in another batch */
	bool touched;			/* found by a get since it was last at the cold end */
	bool needed;			/* requested since it was put, or before */
	bool released;			/* by a hint, and not requested since; READ_ONCE() */
	int nid;
	u32 chain;			/* number of the batch that put the block's chain, or 0 */
	u64 offer_parent;		/* id.lo of the block before the chain or block, or 0 */
	struct kvblk_rec rec;		/* on media, present or future; owns rec.crcs, or NULL */
	u32 nr;				/* number of folios */
	struct bio_vec *bv;		/* one vector for the record's header, then one per folio */
	u8 key[];			/* @rec.key_len bytes */
};

/* Returns whether no member has the block. Otherwise @obj is a copy of a block at @seg. */
static inline bool kvblk_dram_block_is_home(const struct kvblk_dram_block *obj)
{
	return obj->seg == KVBLK_DRAM_SEG;
}

#define KVBLK_DRAM_ORDER	(ilog2(SZ_2M) - PAGE_SHIFT) /* largest folio: often a huge page */

/* DRAM blocks on one NUMA node. */
struct kvblk_dram_node {
	spinlock_t lock;		/* protects lru and bytes; taken in memory reclaim */
	struct list_head lru;		/* coldest first */
	u64 bytes;			/* bytes in lru */
	u64 stayed;			/* bytes kept by the current run; only dram.work */
	/* protects idle and idle_bytes; any context */
	spinlock_t idle_lock ____cacheline_aligned_in_smp;
	u64 idle_bytes;			/* bytes in idle; READ_ONCE() without @idle_lock */
	struct list_head idle[KVBLK_DRAM_ORDER + 1]; /* folios without a block, by order */
};

struct kvblk_dram {
	bool used;			/* there has been a block; or else gets need not look */
	struct kvblk_dram_node *nodes;	/* nr_node_ids of them */
	u32 __percpu *serials;		/* next number of each CPU's batch */
	/* all DRAM blocks, by id; each put writes the end of it */
	struct rhashtable blocks;
	atomic_t chains;		/* last chain number */
	/* size of all DRAM blocks, also new ones; each put reads it, small ones rarely write it */
	struct percpu_counter bytes ____cacheline_aligned_in_smp;
	/* size of all idle folios, within dram_bytes, too; each put reads it, few write it */
	atomic64_t idle ____cacheline_aligned_in_smp;
	atomic_t serial;		/* first number of the next batch, see serial_next() */
	/* protects urgent; a leaf */
	spinlock_t lock ____cacheline_aligned_in_smp;
	struct list_head urgent;	/* to write now: a task waits or a lease pins them */
	struct shrinker *shrinker;	/* drops blocks under memory pressure */
	unsigned long rest;		/* jiffies before which no block can be evicted */
	struct work_struct work;	/* evicts */
	struct run *run;		/* batch of blocks that @work decides on; only @work */
	struct stages *stages;		/* batch of blocks that @work writes; only @work */
	atomic_t left;			/* batches not waited for, as their members are silent */
	struct kvblk_report report;	/* blocks that were damaged in DRAM */
	u64 homes[64];			/* of recent chains: high half block->chain, low: node */
	bool closing;			/* the pool is going away: leases pin nothing */
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

/* Places of leased blocks: KVBLK_LEASE_*, or 1 + the slot of the member. */
#define KVBLK_LEASE_MEMORY	0
#define KVBLK_LEASE_FOREIGN	(KVBLK_MEMBERS_MAX + 1)
#define KVBLK_LEASE_PLACES	(KVBLK_MEMBERS_MAX + 2)

/* Alignment that every member of a pool can transfer directly. */
struct kvblk_align {
	union {
		struct {
			u32 addr_mask;	/* bits that must be 0 in addresses */
			u32 len_mask;	/* bits that must be 0 in lengths, except in the last one */
		};
		u64 both;		/* for one load or store */
	};
};

struct kvblk_opener {
	struct list_head link;		/* in pool->openers */
	struct pid *pid;		/* with a reference */
	char comm[TASK_COMM_LEN];
	u16 tenant;
	bool ended;			/* the tenant was removed; READ_ONCE() without the lock */
};

/* Limits of a tenant, as an administrator has set them; 0: none. */
struct kvblk_tenant_limits {
	u64 bytes;			/* on members */
	u64 bytes_soft;
	u64 blocks;			/* on members */
	u64 blocks_soft;
	u64 dram;			/* bytes */
	u32 weight;			/* share of a member's bandwidth */
};

/* Counters of a tenant, by CPU, in the order of the nest tenant-counter. Only u64. */
struct kvblk_tenant_counters {
	u64 puts;
	u64 put_bytes;
	u64 hits;
	u64 hit_bytes;
	u64 misses;
	u64 over_quota;
	u64 quota_drops;
};

/* Kinds of usage that are limited: units of records on members, and number of records. */
enum kvblk_account_kind {
	KVBLK_ACCOUNT_UNITS,
	KVBLK_ACCOUNT_BLOCKS,
	KVBLK_ACCOUNT_KINDS,
};

/* Account of a tenant; see log/account.c. Never freed before the pool. */
struct kvblk_account {
	struct list_head link;		/* tenants->accounts or ->closed; RCU, tenants->lock */
	u16 id;				/* of the tenant; READ_ONCE() */
	bool limited;			/* @hard or @soft limits something; READ_ONCE() */
	/* fields READ_ONCE(); written under tenants->lock */
	struct kvblk_tenant_limits limits;
	u64 hard[KVBLK_ACCOUNT_KINDS];	/* of @used with @held, U64_MAX: none; as @limits */
	u64 soft[KVBLK_ACCOUNT_KINDS];
	struct kvblk_tenant_counters __percpu *counters;
	struct percpu_counter dram;	/* bytes of DRAM blocks */
	/* by granule: rows of its segments, or NULL; RCU, tenants->lock */
	atomic64_t __rcu *rows[KVBLK_GRANULES];
	/* sums of all rows: puts write this line */
	atomic64_t used[KVBLK_ACCOUNT_KINDS] ____cacheline_aligned_in_smp;
	/* reserved by puts in flight of limited tenants */
	atomic64_t held[KVBLK_ACCOUNT_KINDS];
};

/* A tenant other than "default" and its node; see pool/tenant.c. */
struct kvblk_tenant {
	struct device dev;
	struct cdev cdev;
	struct list_head link;		/* in pool->tenants.list */
	struct kvblk_pool *pool;	/* with a reference on its device */
	struct kvblk_number *number;	/* of @dev */
	struct kvblk_d_tenant entry;	/* as in superblocks */
};

#define KVBLK_POOL_TENANTS	(KVBLK_SB_TENANTS + 1)

/* Tenants of a pool; see pool/tenant.c. */
struct kvblk_tenants {
	struct mutex lock;		/* serializes changes, with their I/O; protects @list */
	struct list_head list;
	/*
	 * Array of KVBLK_POOL_TENANTS: KVBLK_SB_TENANTS as on media, then "nvme-kv";
	 * member_list_lock, written under @lock, too.
	 */
	struct kvblk_d_tenant *table;
	u32 next_id;			/* least id never given; as @table */
	bool encrypts;			/* a tenant is or was encrypted; as @table */
	/* by id: in use; read without a lock, written under openers_lock */
	DECLARE_BITMAP(live, KVBLK_TENANT_IDS);
	u32 *openers;			/* by id: open files; openers_lock, READ_ONCE() */
	/* by id: account of each tenant in use, or NULL; RCU, written under @lock */
	struct kvblk_account __rcu **account;
	struct list_head accounts;	/* all of @account; RCU, written under @lock */
	struct list_head closed;	/* accounts without a tenant, to be used again; @lock */
	struct work_struct quota_work;	/* drops blocks above soft limits */
	/* by id: 1 + id of the tenant that its reads find, too, or 0; @lock, READ_ONCE() */
	u16 *shared;
	/* by id: admission of each tenant except "default"; RCU, written under @lock */
	struct xarray admissions;
	/* by id: encrypted, also of removed tenants; set before the id is in use, then constant */
	DECLARE_BITMAP(encrypted, KVBLK_TENANT_IDS);
	struct xarray keys;		/* by id: struct kvblk_key; changed under @lock */
	struct kobject *dir;		/* sysfs tenants/, from pool_up() to pool_down() */
};

/* Change feeds of a pool; see report/changelog.c. */
struct kvblk_changelog {
	siphash_key_t key;		/* of tokens; random, never stored */
	spinlock_t lock;		/* protects the fields below, rings of readers; a leaf */
	struct list_head readers;	/* started ones */
	bool over;			/* no reader may start */
};

struct kvblk_daemon;

/* Questions to the daemon that speaks to other nodes; see pool/peers.c. */
struct kvblk_peers_queue {
	spinlock_t lock;		/* protects the fields below, lists of the daemon */
	struct kvblk_daemon *daemon;	/* NULL: none */
	bool over;			/* the pool is destroyed: no daemon may start */
	u64 session;			/* number of the daemon; READ_ONCE() without @lock */
	struct delayed_work anchors;	/* reports anchors while @span is not 0 */
	u32 span;			/* the daemon's, 0: none; READ_ONCE() without @lock */
	u32 ask_ms;			/* the daemon's; READ_ONCE() without @lock */
	u32 delete_ms;			/* the daemon's, 0: none; READ_ONCE() without @lock */
	u64 cookie;			/* of the last question */
	u64 hint;			/* number of the last answer with hints */
	wait_queue_head_t wait;		/* callers of questions; woken by polls, too */
};

/* Chunks of memory that gets read into first; see p2p/bounce.c. */
struct kvblk_bounces {
	spinlock_t lock;		/* protects chunks */
	struct kvblk_bounce *chunks[KVBLK_BOUNCES_MAX]; /* allocated ones, or NULL */
};

/* Leases of a pool; see ops/lease.c. */
struct kvblk_leases {
	u32 list_mask;			/* number of @lists - 1 */
	struct kvblk_lease_list *lists;	/* leased ids by hash; NULL before the first lease */
	struct work_struct work;	/* ends leases at their deadlines */
	/* @total and the first of @bytes are in one line, because both change together */
	atomic64_t total ____cacheline_aligned_in_smp; /* sum of @bytes */
	atomic64_t bytes[KVBLK_LEASE_PLACES];	/* leased bytes by place, see ops/lease.c */
	/* protects the fields below; a leaf */
	spinlock_t lock ____cacheline_aligned_in_smp;
	struct rb_root_cached by_end;	/* leases by deadline */
	struct list_head in_memory;	/* leased keys of blocks that only DRAM holds */
	u32 nr_in_memory;		/* number of @in_memory; READ_ONCE() without @lock */
};

/* The last activation of a member that wrote more than superblocks. */
struct kvblk_life {
	u64 epoch;
	u64 activation;
};

/* Device nodes of a pool. */
enum kvblk_node {
	KVBLK_NODE_BLOCKS,
	KVBLK_NODE_NVME,		/* takes NVMe commands */
	KVBLK_NODE_CHANGES,		/* change feeds */
	KVBLK_NODE_PEERS,		/* the daemon that speaks to other nodes */
	KVBLK_NODES,
};

struct kvblk_pool {
	struct device dev;
	struct cdev cdevs[KVBLK_NODES];
	struct kvblk_number *number;	/* of @dev and @cdevs */
	struct list_head link;		/* kvblk_pools; kvblk_pools_lock */
	char name[KVBLK_NAME_MAX];
	uuid_t uuid;
	u32 flags;
	u64 birth;			/* creation, seconds since 1970 */
	u64 epoch;
	u64 activation;			/* random; see format/format.h */
	struct kvblk_life prev_life;
	u8 seed[32];
	u8 node[16];			/* id of this host, zeroes: unknown */
	u8 pod[16];			/* uuid of the pod, zeroes: none */
	char pod_name[KVBLK_NAME_MAX];
	u32 grace;			/* largest reuse_grace that a follower may rely on, ms */
	u64 grace_until;		/* boottime ns at which @grace ends, or 0; only tick */
	u64 index_slots;		/* as in superblocks; 0: not all blocks fit */
	bool index_evicts;		/* restore may evict blocks and invalidate them on media */
	atomic64_t index_lacks;		/* blocks that restore found no index slot for */
	struct kvblk_secret secret;

	struct percpu_ref users;
	struct completion users_done;
	bool dying;
	/* protects openers, and dying and tenants.live when these are written */
	spinlock_t openers_lock;
	struct list_head openers;
	struct kvblk_tenants tenants;
	struct kvblk_changelog changelog;
	struct kvblk_peers_queue peers;

	struct mutex admin;		/* protects members */
	struct kvblk_member __rcu *members[KVBLK_MEMBERS_MAX];
	u32 nr_members;
	struct kvblk_member __rcu *dense[KVBLK_MEMBERS_MAX]; /* @nr_members, without holes */
	struct list_head coming;	/* members being added: see pool/member.c */
	struct kvblk_align align;	/* accessed as .both, by one load or store */
	u32 align_units;		/* largest record_align, in units */
	bool stable_writes;		/* the payload of a put must not change during the write */
	bool device_seen;		/* device memory has been used */
	struct kvblk_foreigners foreign;
	u8 granule[KVBLK_GRANULES + 1];	/* member->flash.slot, or 0: free; the last is DRAM's, 0 */
	u16 *seg_gen;			/* KVBLK_OWN_SEGS entries; in a pod KVBLK_INDEX_SEGS */

	struct kvblk_index index;
	struct kvblk_policy policy;
	struct kvblk_duel duel;
	struct kvblk_tunables tun;
	struct kvblk_dram dram;
	struct kvblk_pool_stats __percpu *stats;
	/* by slot; set once, under admin; kept after removal, so that sums never decrease */
	struct kvblk_stats __percpu *slots[KVBLK_MEMBERS_MAX];
	u64 cleared[KVBLK_CLEARABLE];	/* values of clearable counters when cleared */
	u64 cleared_at;			/* seconds since 1970, or 0 */

	/* sequence number of records: each put writes its line */
	atomic64_t seq ____cacheline_aligned_in_smp;
	/* members still being restored */
	atomic_t restoring ____cacheline_aligned_in_smp;
	wait_queue_head_t restore_wait;
	wait_queue_head_t space_wait;	/* exclusive: see kvblk_space_appears() */
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
	/* protects the member list, missing_members and the table of tenants */
	spinlock_t member_list_lock;
	struct kvblk_d_member member_list[KVBLK_SB_MEMBERS];
	struct kvblk_d_place *places;	/* parallel to member_list */
	u32 member_list_nr;
	u64 member_list_seq;		/* changes with the member list and the tenants */
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
	struct kvblk_idle_reqs __percpu *idle_reqs;
	struct work_struct rescue_work;	/* ends media halves of tasks that do not run */
	struct kvblk_bounces bounce;
	struct kvblk_leases lease;
};

static inline struct kvblk_pool *kvblk_dev_pool(struct device *dev)
{
	return container_of(dev, struct kvblk_pool, dev);
}

/* Returns the pool of an open node of kind @node. */
#define kvblk_inode_pool(inode, node)	\
	container_of((inode)->i_cdev, struct kvblk_pool, cdevs[node])

static inline struct kvblk_align kvblk_pool_align(const struct kvblk_pool *pool)
{
	return (struct kvblk_align) { .both = READ_ONCE(pool->align.both) };
}

/* Returns the first member at pool->members[@i] or later, or NULL. */
static inline struct kvblk_member *kvblk_member_from(struct kvblk_pool *pool, u32 i)
{
	struct kvblk_member *member = NULL;

	for (; i < KVBLK_MEMBERS_MAX && !member; i++)
		member = rcu_dereference_check(pool->members[i], lockdep_is_held(&pool->admin) ||
					       percpu_ref_is_zero(&pool->users));
	return member;
}

/* Iterates under RCU or pool->admin, or once pool->users is drained. Must not free @member. */
#define kvblk_for_each_member(pool, member)				\
	for ((member) = kvblk_member_from(pool, 0); (member);		\
	     (member) = kvblk_member_from(pool, (member)->flash.slot))

/*
 * Keeps index, policy and DRAM blocks until kvblk_pool_leave(). Returns NULL if the pool goes away.
 * Do not wait for user memory meanwhile, or else "pool destroy" waits, too.
 */
static inline struct kvblk_pool *kvblk_pool_enter(struct kvblk_pool *pool)
{
	return percpu_ref_tryget_live(&pool->users) ? pool : NULL;
}

static inline void kvblk_pool_leave(struct kvblk_pool *pool)
{
	if (pool)
		percpu_ref_put(&pool->users);
}

DEFINE_FREE(kvblk_pool_leave, struct kvblk_pool *, kvblk_pool_leave(_T))

/* Returns whether other nodes may read the pool's members. */
static inline bool kvblk_pool_in_pod(const struct kvblk_pool *pool)
{
	return pool->pod_name[0];
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

static inline bool kvblk_flash_may_write(const struct kvblk_flash *flash)
{
	return kvblk_flash_may_read(flash) && !READ_ONCE(flash->read_only) &&
	       !READ_ONCE(flash->fenced);
}

/* Returns whether background work should end: the device is not in use, or its pool goes away. */
static inline bool kvblk_flash_leaves(const struct kvblk_flash *flash)
{
	return !kvblk_flash_in_use(flash) || percpu_ref_is_dying(&flash->pool->users);
}

/* Returns 0: the device works; 1: reads fail; 2: only writes fail; 3: fenced. For operators. */
static inline u32 kvblk_flash_fails(const struct kvblk_flash *flash)
{
	return READ_ONCE(flash->failing) ? 1 : READ_ONCE(flash->fenced) ? 3 :
	       READ_ONCE(flash->read_only) ? 2 : 0;
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
	u8 slot = seg < KVBLK_OWN_SEGS ? READ_ONCE(pool->granule[seg >> KVBLK_GRANULE_SHIFT]) : 0;

	return slot ? rcu_dereference(pool->members[slot - 1]) : NULL;
}

/* Returns whether the block of an index entry is on another node's member. */
static inline bool kvblk_slot_foreign(const struct kvblk_slot *slot)
{
	return slot->seg >= KVBLK_FOREIGN_SEG;
}

/*
 * Returns the admission of a tenant, or NULL if the tenant was removed. Context: RCU, or else a
 * removal of the tenant could free the admission.
 */
static inline struct kvblk_admission *kvblk_admission_of(struct kvblk_pool *pool, u16 tenant)
{
	return tenant ? xa_load(&pool->tenants.admissions, tenant) : &pool->policy.own;
}

/* Touches the index entry of a requested block that is present. Process context, pool entered. */
static inline void kvblk_block_touch(struct kvblk_pool *pool, struct kvblk_id id,
				     const struct kvblk_slot *slot)
{
	u8 tick = kvblk_policy_tick(&pool->policy);

	/* a lookup and the get that follows it are one request */
	if (slot->heat != tick && kvblk_index_touch(&pool->index, slot, tick) &&
	    !kvblk_slot_foreign(slot))
		kvblk_duel_touch(&pool->duel, id);
}

/* Returns the foreign member of a pool-wide segment number, or NULL. Context: RCU. */
static inline struct kvblk_foreign *kvblk_foreign_of(struct kvblk_pool *pool, u32 seg)
{
	return xa_load(&pool->foreign.granules, (seg - KVBLK_FOREIGN_SEG) >> KVBLK_GRANULE_SHIFT);
}

/* Returns the member's number of a slot's segment. */
static inline u32 kvblk_slot_segment(const struct kvblk_flash *flash, const struct kvblk_slot *slot)
{
	return slot->seg - flash->seg_base;
}

/* Returns the pool-wide number of a member's segment. */
static inline u32 kvblk_segment_number(const struct kvblk_member *member,
				       const struct kvblk_segment *seg)
{
	return member->flash.seg_base + (seg - member->log.segs);
}

static inline u64 kvblk_flash_segment_bytes(const struct kvblk_flash *flash)
{
	return (u64)flash->segment_units << KVBLK_UNIT_SHIFT;
}

/* Returns whether payloads of the tenant are encrypted on members. */
static inline bool kvblk_tenant_encrypted(const struct kvblk_pool *pool, u16 tenant)
{
	return test_bit(tenant, pool->tenants.encrypted);
}

static inline u32 kvblk_slot_header_bytes(const struct kvblk_pool *pool,
					  const struct kvblk_slot *slot)
{
	return kvblk_header_bytes(kvblk_tenant_encrypted(pool, slot->tenant), slot->len);
}

/* Returns the units of a record of the tenant on a member. */
static inline u32 kvblk_flash_units(const struct kvblk_flash *flash, u16 tenant, u32 length)
{
	return kvblk_record_units(kvblk_tenant_encrypted(flash->pool, tenant), length,
				  flash->record_align >> KVBLK_UNIT_SHIFT);
}

static inline u32 kvblk_slot_units(const struct kvblk_flash *flash, const struct kvblk_slot *slot)
{
	return kvblk_flash_units(flash, slot->tenant, slot->len);
}

#endif
