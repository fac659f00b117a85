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
	X("lookup_unserved", LOOKUP_UNSERVED)

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
	X("index_used", INDEX_USED)

/* X(name, the end of its KVBLK_A_LATENCY_), in the order of their numbers */
#define KVBLK_LATENCY_TABLE(X) \
	X("put", PUT) \
	X("get", GET) \
	X("delete", DELETE) \
	X("lookup", LOOKUP)

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
	X("member-failing", MEMBER_FAILING)

/* X(name, the end of its KVBLK_A_EVENT_), in the order of their numbers */
#define KVBLK_EVENT_NUMBER_TABLE(X) \
	X("blocks", BLOCKS) \
	X("silence_ms", SILENCE_MS) \
	X("segment", SEGMENT) \
	X("segments_reclaimed", SEGMENTS_RECLAIMED) \
	X("free_segments", FREE_SEGMENTS) \
	X("io_errors", IO_ERRORS) \
	X("error", ERROR) \
	X("request", REQUEST)

/* X(name, the end of its KVBLK_MEMBER_STATUS_), in the order of their numbers */
#define KVBLK_MEMBER_STATUS_TABLE(X) \
	X("restoring", RESTORING) \
	X("up", UP) \
	X("dead", DEAD) \
	X("removing", REMOVING) \
	X("missing", MISSING)

/* X(name, the end of its KVBLK_ROUTE_STATUS_), in the order of their numbers */
#define KVBLK_ROUTE_STATUS_TABLE(X) \
	X("unknown", UNKNOWN) \
	X("direct", DIRECT) \
	X("bounce", BOUNCE) \
	X("trial", TRIAL)

#endif
