/* SPDX-License-Identifier: GPL-2.0 */
#ifndef KVBLK_ENTRY_H
#define KVBLK_ENTRY_H

#include <asm/byteorder.h>

#include "format/record.h"

/* Encode the summary entry of @rec at @unit, for records without an encoded header. */
static inline void kvblk_entry_encode(struct kvblk_d_entry *entry,
				      const struct kvblk_rec *rec, u32 unit)
{
	*entry = (struct kvblk_d_entry) {
		.id_hi = cpu_to_le64(rec->id.hi),
		.id_lo = cpu_to_le64(rec->id.lo),
		.seq = cpu_to_le64(rec->seq),
		.caller_tag = cpu_to_le64(rec->caller_tag),
		.parent = cpu_to_le64(rec->parent),
		.unit = cpu_to_le32(unit),
		.length = cpu_to_le32(rec->length),
		.expiry = cpu_to_le32(rec->expiry),
		.tenant = cpu_to_le16(rec->tenant),
		.priority = rec->priority,
		.flags = KVBLK_ENTF_VALID,
	};
}

#endif
