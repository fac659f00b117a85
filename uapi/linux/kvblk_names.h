/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR BSD-3-Clause) */
/* Do not edit directly, auto-generated from: */
/*	uapi/netlink/kvblk.yaml */
/* YNL-GEN names, by uapi/netlink/regen KERNEL-SOURCE */

#ifndef _LINUX_KVBLK_NAMES_H
#define _LINUX_KVBLK_NAMES_H

/* X(name, the end of its KVBLK_A_COUNTER_), in the order of their numbers */
#define KVBLK_COUNTER_TABLE(X) \
	X("puts", PUTS) \
	X("put_bytes", PUT_BYTES) \
	X("put_exists", PUT_EXISTS) \
	X("put_busy", PUT_BUSY) \
	X("put_declined", PUT_DECLINED) \
	X("put_nospace", PUT_NOSPACE) \
	X("put_errors", PUT_ERRORS) \
	X("gets", GETS) \
	X("get_bytes", GET_BYTES) \
	X("get_misses", GET_MISSES) \
	X("get_direct", GET_DIRECT) \
	X("get_bounced", GET_BOUNCED) \
	X("put_direct", PUT_DIRECT) \
	X("put_bounced", PUT_BOUNCED) \
	X("deletes", DELETES) \
	X("lookups", LOOKUPS) \
	X("lookup_keys", LOOKUP_KEYS) \
	X("lookup_hits", LOOKUP_HITS) \
	X("checksum_failures", CHECKSUM_FAILURES) \
	X("rereads", REREADS) \
	X("read_errors", READ_ERRORS) \
	X("write_errors", WRITE_ERRORS) \
	X("deadlines", DEADLINES) \
	X("cancels", CANCELS) \
	X("segments_opened", SEGMENTS_OPENED) \
	X("segments_sealed", SEGMENTS_SEALED) \
	X("segments_reclaimed", SEGMENTS_RECLAIMED) \
	X("reinserts", REINSERTS) \
	X("reinsert_bytes", REINSERT_BYTES) \
	X("dropped", DROPPED) \
	X("expired", EXPIRED) \
	X("evicted", EVICTED) \
	X("kills", KILLS) \
	X("restored", RESTORED) \
	X("leases", LEASES) \
	X("producer_mismatches", PRODUCER_MISMATCHES) \
	X("device_direct", DEVICE_DIRECT) \
	X("device_bounced", DEVICE_BOUNCED) \
	X("device_fallbacks", DEVICE_FALLBACKS) \
	X("device_read_bytes", DEVICE_READ_BYTES) \
	X("put_exists_bytes", PUT_EXISTS_BYTES) \
	X("read_bytes", READ_BYTES) \
	X("write_bytes", WRITE_BYTES) \
	X("reclaimed_bytes", RECLAIMED_BYTES) \
	X("miss_absent", MISS_ABSENT) \
	X("miss_expired", MISS_EXPIRED) \
	X("miss_member", MISS_MEMBER) \
	X("miss_moved", MISS_MOVED) \
	X("miss_layout", MISS_LAYOUT) \
	X("miss_read_error", MISS_READ_ERROR) \
	X("miss_damaged", MISS_DAMAGED) \
	X("miss_unproven", MISS_UNPROVEN) \
	X("get_deadlines", GET_DEADLINES) \
	X("get_nomem", GET_NOMEM) \
	X("get_errors", GET_ERRORS) \
	X("lookup_unserved", LOOKUP_UNSERVED) \
	X("dram_puts", DRAM_PUTS) \
	X("dram_gets", DRAM_GETS) \
	X("dram_writes", DRAM_WRITES) \
	X("dram_drops", DRAM_DROPS) \
	X("dram_squeezed", DRAM_SQUEEZED) \
	X("prefetches", PREFETCHES) \
	X("foreign_gets", FOREIGN_GETS) \
	X("foreign_get_bytes", FOREIGN_GET_BYTES) \
	X("foreign_proofs", FOREIGN_PROOFS) \
	X("miss_foreign_moved", MISS_FOREIGN_MOVED) \
	X("miss_foreign_late", MISS_FOREIGN_LATE) \
	X("miss_foreign_member", MISS_FOREIGN_MEMBER) \
	X("touches", TOUCHES) \
	X("touches_lost", TOUCHES_LOST) \
	X("asks", ASKS) \
	X("asks_answered", ASKS_ANSWERED) \
	X("asks_lost", ASKS_LOST) \
	X("foreign_deletes", FOREIGN_DELETES) \
	X("foreign_deletes_refused", FOREIGN_DELETES_REFUSED) \
	X("foreign_lookup_hits", FOREIGN_LOOKUP_HITS) \
	X("foreign_put_exists", FOREIGN_PUT_EXISTS)

/* X(name, the end of its KVBLK_A_COUNTER_), in the order of their numbers */
#define KVBLK_MEMBER_COUNTER_TABLE(X) \
	X("puts", PUTS) \
	X("put_bytes", PUT_BYTES) \
	X("gets", GETS) \
	X("get_bytes", GET_BYTES) \
	X("get_direct", GET_DIRECT) \
	X("get_bounced", GET_BOUNCED) \
	X("put_direct", PUT_DIRECT) \
	X("put_bounced", PUT_BOUNCED) \
	X("checksum_failures", CHECKSUM_FAILURES) \
	X("rereads", REREADS) \
	X("read_errors", READ_ERRORS) \
	X("write_errors", WRITE_ERRORS) \
	X("segments_opened", SEGMENTS_OPENED) \
	X("segments_sealed", SEGMENTS_SEALED) \
	X("segments_reclaimed", SEGMENTS_RECLAIMED) \
	X("reinserts", REINSERTS) \
	X("reinsert_bytes", REINSERT_BYTES) \
	X("dropped", DROPPED) \
	X("kills", KILLS) \
	X("restored", RESTORED) \
	X("producer_mismatches", PRODUCER_MISMATCHES) \
	X("read_bytes", READ_BYTES) \
	X("write_bytes", WRITE_BYTES) \
	X("reclaimed_bytes", RECLAIMED_BYTES)

/* X(name, the end of its KVBLK_A_GAUGE_), in the order of their numbers */
#define KVBLK_GAUGE_TABLE(X) \
	X("inflight", INFLIGHT) \
	X("queued", QUEUED) \
	X("waiting_bytes", WAITING_BYTES) \
	X("waiting_kills", WAITING_KILLS) \
	X("segments", SEGMENTS) \
	X("segments_free", SEGMENTS_FREE) \
	X("segments_ready", SEGMENTS_READY) \
	X("segments_open", SEGMENTS_OPEN) \
	X("segments_sealed", SEGMENTS_SEALED) \
	X("segments_retiring", SEGMENTS_RETIRING) \
	X("leased_bytes", LEASED_BYTES) \
	X("index_used", INDEX_USED) \
	X("dram_bytes", DRAM_BYTES)

/* X(name, the end of its KVBLK_A_TENANT_COUNTER_), in the order of their numbers */
#define KVBLK_TENANT_COUNTER_TABLE(X) \
	X("puts", PUTS) \
	X("put_bytes", PUT_BYTES) \
	X("hits", HITS) \
	X("hit_bytes", HIT_BYTES) \
	X("misses", MISSES) \
	X("over_quota", OVER_QUOTA) \
	X("quota_drops", QUOTA_DROPS)

/* X(name, the end of its KVBLK_A_LATENCY_), in the order of their numbers */
#define KVBLK_LATENCY_TABLE(X) \
	X("put", PUT) \
	X("get", GET) \
	X("delete", DELETE) \
	X("lookup", LOOKUP) \
	X("foreign-get", FOREIGN_GET)

/* X(name, the end of its KVBLK_EVENT_), in the order of their numbers */
#define KVBLK_EVENT_TABLE(X) \
	X("pool-up", POOL_UP) \
	X("pool-down", POOL_DOWN) \
	X("member-up", MEMBER_UP) \
	X("member-down", MEMBER_DOWN) \
	X("member-dead", MEMBER_DEAD) \
	X("member-suspect", MEMBER_SUSPECT) \
	X("member-answers", MEMBER_ANSWERS) \
	X("checksum", CHECKSUM) \
	X("read-error", READ_ERROR) \
	X("write-error", WRITE_ERROR) \
	X("reclaim-rate", RECLAIM_RATE) \
	X("low-space", LOW_SPACE) \
	X("restore-failed", RESTORE_FAILED) \
	X("request-done", REQUEST_DONE) \
	X("member-failing", MEMBER_FAILING) \
	X("member-read-only", MEMBER_READ_ONLY) \
	X("no-space", NO_SPACE) \
	X("member-fenced", MEMBER_FENCED)

/* X(name, the end of its KVBLK_A_EVENT_), in the order of their numbers */
#define KVBLK_EVENT_NUMBER_TABLE(X) \
	X("blocks", BLOCKS) \
	X("silence_ms", SILENCE_MS) \
	X("segment", SEGMENT) \
	X("segments_reclaimed", SEGMENTS_RECLAIMED) \
	X("free_segments", FREE_SEGMENTS) \
	X("io_errors", IO_ERRORS) \
	X("error", ERROR) \
	X("request", REQUEST) \
	X("puts", PUTS)

/* X(name, the end of its KVBLK_MEMBER_STATUS_), in the order of their numbers */
#define KVBLK_MEMBER_STATUS_TABLE(X) \
	X("restoring", RESTORING) \
	X("up", UP) \
	X("dead", DEAD) \
	X("removing", REMOVING) \
	X("missing", MISSING) \
	X("unrestored", UNRESTORED)

/* X(name, the end of its KVBLK_ROUTE_STATUS_), in the order of their numbers */
#define KVBLK_ROUTE_STATUS_TABLE(X) \
	X("unknown", UNKNOWN) \
	X("direct", DIRECT) \
	X("bounce", BOUNCE) \
	X("trial", TRIAL)

/* X(what it is, the end of its KVBLK_A_COUNTER_) */
#define KVBLK_COUNTER_DOC_TABLE(X) \
	X("Blocks stored.", PUTS) \
	X("Bytes of the blocks stored.", PUT_BYTES) \
	X("Puts of blocks that were there already.", PUT_EXISTS) \
	X("Puts of blocks that another put was writing.", PUT_BUSY) \
	X("Puts declined by the admission policy.", PUT_DECLINED) \
	X("Puts that found no room.", PUT_NOSPACE) \
	X("Puts that failed in any other way.", PUT_ERRORS) \
	X("Blocks delivered.", GETS) \
	X("Bytes of the blocks delivered.", GET_BYTES) \
	X("Gets of blocks that are not here, failed checks included: the sum of the miss- counters. A get that has begun ends in one of gets, get-misses, get-deadlines, get-nomem and get-errors.", GET_MISSES) \
	X("Gets that the device wrote into the caller's memory.", GET_DIRECT) \
	X("Gets that went through kernel memory.", GET_BOUNCED) \
	X("Puts that the device read from the caller's memory.", PUT_DIRECT) \
	X("Puts that went through kernel memory.", PUT_BOUNCED) \
	X("Blocks deleted.", DELETES) \
	X("Lookup calls.", LOOKUPS) \
	X("Keys that lookups asked for.", LOOKUP_KEYS) \
	X("Keys that lookups found.", LOOKUP_HITS) \
	X("Headers or payloads that failed their check in kernel memory.", CHECKSUM_FAILURES) \
	X("Payloads read again because a check failed in the caller's memory.", REREADS) \
	X("Reads that a member failed.", READ_ERRORS) \
	X("Writes that a member failed.", WRITE_ERRORS) \
	X("Operations whose deadline passed.", DEADLINES) \
	X("Operations cancelled.", CANCELS) \
	X("Segments opened for writing.", SEGMENTS_OPENED) \
	X("Segments filled and closed.", SEGMENTS_SEALED) \
	X("Segments reclaimed.", SEGMENTS_RECLAIMED) \
	X("Blocks that reclaim wrote again.", REINSERTS) \
	X("Bytes of the blocks that reclaim wrote again.", REINSERT_BYTES) \
	X("Live blocks that reclaim dropped.", DROPPED) \
	X("Blocks whose time to live was over.", EXPIRED) \
	X("Blocks that had to go because the index was full.", EVICTED) \
	X("Headers overwritten on media.", KILLS) \
	X("Blocks found again when members came up.", RESTORED) \
	X("Leases granted.", LEASES) \
	X("Blocks that did not agree with the checksums of whoever put them.", PRODUCER_MISMATCHES) \
	X("Puts and gets between a member and a device's memory.", DEVICE_DIRECT) \
	X("Puts and gets of a device's memory through the CPU.", DEVICE_BOUNCED) \
	X("Direct transfers of a device's memory that failed and were done again through the CPU.", DEVICE_FALLBACKS) \
	X("Bytes of a device's memory that the CPU read across the bus.", DEVICE_READ_BYTES) \
	X("Bytes of put-exists, which were not written again.", PUT_EXISTS_BYTES) \
	X("Bytes of reads that were submitted to members, whatever for.", READ_BYTES) \
	X("Bytes of writes that were submitted to members, whatever for: what their flash wears by. Divided by put-bytes it is the write amplification.", WRITE_BYTES) \
	X("Bytes in the segments of segments-reclaimed.", RECLAIMED_BYTES) \
	X("Gets of blocks that are not here, or that a put is writing yet.", MISS_ABSENT) \
	X("Gets of blocks whose time to live was over.", MISS_EXPIRED) \
	X("Gets of blocks on a member that does not serve: dead, leaving, suspect or failing.", MISS_MEMBER) \
	X("Gets of blocks that were replaced, deleted or dropped meanwhile.", MISS_MOVED) \
	X("Gets of blocks with another layout tag than was asked for.", MISS_LAYOUT) \
	X("Gets that their member could not read.", MISS_READ_ERROR) \
	X("Gets of blocks that failed their checks, those of producer-mismatches included.", MISS_DAMAGED) \
	X("Gets of blocks that have no checksums and must be checked.", MISS_UNPROVEN) \
	X("Gets that ended because their deadline had passed.", GET_DEADLINES) \
	X("Gets that found no memory.", GET_NOMEM) \
	X("Gets that failed in any other way, such as for want of room or because they were canceled.", GET_ERRORS) \
	X("Keys of blocks that lookups did not count as hits because their member does not serve.", LOOKUP_UNSERVED) \
	X("Blocks stored in memory only.", DRAM_PUTS) \
	X("Blocks delivered from memory.", DRAM_GETS) \
	X("Blocks that left memory for a member.", DRAM_WRITES) \
	X("Blocks that left memory for good, not being asked for, declined by the policy, or for want of room on the members.", DRAM_DROPS) \
	X("Blocks that were dropped because the host was short of memory.", DRAM_SQUEEZED) \
	X("Blocks that prefetches brought into memory.", PREFETCHES) \
	X("Blocks delivered from other nodes' members. Also counted by gets.", FOREIGN_GETS) \
	X("Bytes of the blocks of foreign-gets.", FOREIGN_GET_BYTES) \
	X("Reads of a segment table that a get of another node's block needed, because it came late or has no checksum to be checked.", FOREIGN_PROOFS) \
	X("Gets of blocks that another node had moved or dropped, which this node did not know yet.", MISS_FOREIGN_MOVED) \
	X("Gets of another node's blocks that took longer than the reuse grace, and whose segment was reused meanwhile or could not be proven.", MISS_FOREIGN_LATE) \
	X("Gets of blocks on another node's member that does not respond.", MISS_FOREIGN_MEMBER) \
	X("Blocks that other nodes got and that touch counted as hits here.", TOUCHES) \
	X("Gets of other nodes' blocks that their owners will not hear of, because touched-get had not fetched the earlier ones.", TOUCHES_LOST) \
	X("Lookups with a miss that asked the daemon of the node peers where the blocks are.", ASKS) \
	X("Of these, those that were answered in time, with hints or without.", ASKS_ANSWERED) \
	X("Lookups with a miss that did not ask, because too many questions waited for an answer.", ASKS_LOST) \
	X("Blocks of other nodes that their owners deleted for this one.", FOREIGN_DELETES) \
	X("Deletes of other nodes' blocks that ended with -EREMOTE: no daemon, no answer of the owner in time, or too many questions.", FOREIGN_DELETES_REFUSED) \
	X("Keys of lookups whose blocks are on other nodes' members. Also counted by lookup-hits.", FOREIGN_LOOKUP_HITS) \
	X("Puts of blocks that other nodes' members had already. Also counted by put-exists.", FOREIGN_PUT_EXISTS)

/* X(what it is, the end of its KVBLK_A_GAUGE_) */
#define KVBLK_GAUGE_DOC_TABLE(X) \
	X("I/Os submitted to members and not completed.", INFLIGHT) \
	X("I/Os submitted that the device had no room for yet.", QUEUED) \
	X("Bytes of puts that wait for gets to go first.", WAITING_BYTES) \
	X("Headers that are to be overwritten.", WAITING_KILLS) \
	X("All segments. Once the member is up each is in one of the next five states.", SEGMENTS) \
	X("Segments that hold nothing.", SEGMENTS_FREE) \
	X("Segments opened on media, waiting to take records.", SEGMENTS_READY) \
	X("Segments that take records or wait to be sealed.", SEGMENTS_OPEN) \
	X("Segments that are full and closed.", SEGMENTS_SEALED) \
	X("Segments that were reclaimed and still have readers, or in a pod may have readers on other nodes for the reuse grace.", SEGMENTS_RETIRING) \
	X("Bytes of blocks under lease. Of a pool, not of a member.", LEASED_BYTES) \
	X("Entries of the index in use. Of a pool, not of a member.", INDEX_USED) \
	X("Memory that holds blocks. Of a pool, not of a member.", DRAM_BYTES)

/* X(what it is, the end of its KVBLK_A_TENANT_COUNTER_) */
#define KVBLK_TENANT_COUNTER_DOC_TABLE(X) \
	X("Blocks stored.", PUTS) \
	X("Bytes of the blocks stored.", PUT_BYTES) \
	X("Blocks read.", HITS) \
	X("Bytes of the blocks read.", HIT_BYTES) \
	X("Gets without a block.", MISSES) \
	X("Puts that failed with -EDQUOT.", OVER_QUOTA) \
	X("Blocks dropped to meet the quota.", QUOTA_DROPS)

#endif
