/* SPDX-License-Identifier: MIT */
/* Signatures of file systems, partition tables, RAID, LVM and others; for the command, too. */
#ifndef KVBLKD_SIGNATURE_H
#define KVBLKD_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>

struct kvblk_found;

/**
 * signature_find() - look for what somebody else has written to a member's device
 * @found: the member; what lies in its segments is its own, whatever it looks like
 * @what: set to a text for it
 * @len: room there
 *
 * Return: true if there is something.
 */
bool signature_find(const struct kvblk_found *found, char *what, size_t len);

#endif
