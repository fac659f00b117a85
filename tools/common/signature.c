// SPDX-License-Identifier: MIT
/* Signatures that libblkid finds on a device: see signature.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <blkid/blkid.h>

#include "common/signature.h"
#include "lib/kvblk_admin.h"

/*
 * Describe the last probe's signature in @what. Returns false if there is none outside the data
 * area.
 */
static bool take(blkid_probe probe, const char *at, const char *type, const char *kind,
		 const struct kvblk_found *found, char *what, size_t len)
{
	const char *offset, *name;
	uint64_t pos;

	if (blkid_probe_lookup_value(probe, at, &offset, NULL) ||
	    blkid_probe_lookup_value(probe, type, &name, NULL))
		return false;
	pos = strtoull(offset, NULL, 10);
	if (pos >= found->data_start && pos < found->data_end)
		return false;
	snprintf(what, len, "%s%s", name, kind);
	return true;
}

bool signature_find(const struct kvblk_found *found, char *what, size_t len)
{
	blkid_probe probe = blkid_new_probe_from_filename(found->path);
	bool there = false;

	if (!probe)
		return false;
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_TYPE | BLKID_SUBLKS_MAGIC);
	blkid_probe_enable_partitions(probe, 1);
	blkid_probe_set_partitions_flags(probe, BLKID_PARTS_MAGIC);
	while (!there && !blkid_do_probe(probe))
		there = take(probe, "SBMAGIC_OFFSET", "TYPE", "", found, what, len) ||
			take(probe, "PTMAGIC_OFFSET", "PTTYPE", " partition table", found,
			     what, len);
	blkid_free_probe(probe);
	return there;
}
