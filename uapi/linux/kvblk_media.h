/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * kvblk: the superblock of a member, by which its pool is found. Everything is
 * little endian. Documentation/format.rst has the rest of what lies on media.
 *
 * A member begins with two copies, each of KVBLK_SB_BYTES. The valid one with the
 * higher @seq holds. A CRC is CRC32C as iSCSI has it (RFC 3720, appendix B.4).
 */
#ifndef _UAPI_LINUX_KVBLK_MEDIA_H
#define _UAPI_LINUX_KVBLK_MEDIA_H

#include <linux/types.h>

#define KVBLK_SB_MAGIC		0x31304b4c42564bULL	/* "KVBLK01" */
#define KVBLK_FORMAT_VERSION	1
#define KVBLK_SB_BYTES		65536
#define KVBLK_SB_OFFSET(copy)	((__u64)(copy) * KVBLK_SB_BYTES)
#define KVBLK_SB_TENANTS	704
#define KVBLK_SB_MEMBERS	64

/**
 * enum kvblk_sb_state - how the pool was left
 * @KVBLK_SB_CLEAN: stopped; all open segments were sealed
 * @KVBLK_SB_ACTIVE: in use, or stopped by a crash
 * @KVBLK_SB_ACTIVATING: about to be used; nothing has been written in this epoch
 */
enum kvblk_sb_state {
	KVBLK_SB_CLEAN	= 1,
	KVBLK_SB_ACTIVE	= 2,
	KVBLK_SB_ACTIVATING = 3,
};

/*
 * ro_compat: the pool is its node's part of a pod. Others read its members while
 * it writes, so whoever writes must keep @reuse_grace.
 */
#define KVBLK_SB_RO_POD		0x01

/*
 * incompat: headers of records are sealed in a shorter way, which other modules
 * take for damage. Set when a member is formatted.
 */
#define KVBLK_SB_IN_SHORT_CRC	0x01

/*
 * incompat: the pool has, or had, tenants except "default". Set with the first one and
 * kept: a member that another module adds would lack @next_tenant.
 */
#define KVBLK_SB_IN_TENANTS	0x02
/* A tenant is or was encrypted: headers of its records are longer. */
#define KVBLK_SB_IN_ENCRYPTED	0x04

/* Slot 0 is "default", no other slot is. */
struct kvblk_d_tenant {
	__le16 id;		/* 0 is "default"; never reused */
	__le16 flags;		/* KVBLK_TENANTF_* */
	__le16 mode;		/* permission bits of the device node */
	__le16 key_epoch;	/* encrypted: of the subkeys of new records */
	__le64 min_seq;		/* 0; later versions may write other values */
	__u8   name[32];
	__le32 uid;		/* owner of the device node, */
	__le32 gid;		/* both of the initial user namespace */
	__le64 key_check;	/* encrypted: tells another key, see format.rst */
};	/* 64 bytes */

#define KVBLK_TENANTF_USED	0x01 /* else: the slot is free */
#define KVBLK_TENANTF_ENCRYPTED	0x02 /* payloads are encrypted */

struct kvblk_d_member {
	__u8   uuid[16];	/* none of zeroes */
	__u8   name[32];	/* from format to removal; no other member's */
	__le64 incarnation;
};	/* 56 bytes */

/*
 * Where a member's device was last: a text in four parts, which end with a NUL.
 * A module that has no places takes each part for a free tenant slot, because of
 * @zero.
 */
#define KVBLK_SB_PLACE_PARTS	4
#define KVBLK_SB_PLACE_PART	60

struct kvblk_d_place {
	struct {
		__le32 zero;
		__u8   text[KVBLK_SB_PLACE_PART];
	} parts[KVBLK_SB_PLACE_PARTS];
};	/* 256 bytes */

struct kvblk_d_super {
	__le64 magic;
	__le32 crc;		/* crc32c of all 64 KiB, this field zero */
	__le16 version;
	__le16 state;		/* enum kvblk_sb_state */
	__le32 compat;
	__le32 ro_compat;
	__le32 incompat;
	__le32 pool_flags;
	__le64 seq;		/* newer copy wins */
	__le64 epoch;		/* of the pool, the newest that this member knows */
	__le64 incarnation;	/* random, made at format */
	__le64 birth;		/* pool's birth, seconds since 1970 */
	__u8   pool_uuid[16];
	__u8   member_uuid[16];
	__u8   seed[32];	/* the pool's secret */
	__u8   pool_name[32];
	__u8   owner[64];	/* node that has it, or had it last */
	__le64 size;		/* bytes of the member that are used */
	__le64 data_start;	/* bytes */
	__le32 segment_units;
	__le32 nr_segments;
	__le32 record_align;	/* bytes */
	__le32 reserved0;
	__le64 activation;	/* random, made with each assembly of the pool */
	__le64 prev_epoch;	/* of the pool's life before */
	__le64 prev_activation;
	__le64 time;		/* the pool's clock when this was written, seconds, and */
	__le64 wall;		/* the host's, since 1970 */
	__le64 list_seq;	/* newer list of members and tenants wins */
	__le32 nr_members;
	__le32 reserved1;
	struct kvblk_d_member members[KVBLK_SB_MEMBERS];
	__le64 index_slots;	/* of the pool's index; 0: not known */
	__u8   node[16];	/* id of the owner; zeroes: only its name is known */
	__u8   pod_uuid[16];	/* valid with KVBLK_SB_RO_POD */
	__u8   pod_name[32];	/* as pod_uuid */
	__le32 reuse_grace;	/* as pod_uuid: ms from retirement to reuse, at least */
	__le32 held_grace;	/* as pod_uuid: longest that followers may rely on, ms */
	__le32 next_tenant;	/* least id never given; 0: 1 */
	__u8   reserved[116];	/* pads the fixed part to 4096 */
	struct kvblk_d_tenant tenants[KVBLK_SB_TENANTS];
	struct kvblk_d_place places[KVBLK_SB_MEMBERS];	/* as members */
};

#endif /* _UAPI_LINUX_KVBLK_MEDIA_H */
