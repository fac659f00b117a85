/* SPDX-License-Identifier: MIT */
/* Signatures of file systems, partition tables, RAID, LVM etc., for the daemon and the command. */
#ifndef KVBLKD_SIGNATURE_H
#define KVBLKD_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>

struct kvblk_found;

/**
 * signature_find() - look for data that other programs wrote to a member's device
 * @found: the member. Signatures within its segments are ignored: they are data of blocks
 * @what: set to a description
 * @len: size of @what
 *
 * Return: true if a signature was found.
 */
bool signature_find(const struct kvblk_found *found, char *what, size_t len);

#endif
