/* SPDX-License-Identifier: MIT */
/*
 * The health of drives: SMART and endurance group logs of members, read now and then by
 * a thread of their own, because a device may be silent for minutes. Rule: a device
 * that is no NVMe drive has no such log, which is no error.
 */
#ifndef KVBLKD_SMART_H
#define KVBLKD_SMART_H

#include <stdbool.h>
#include <stddef.h>

/**
 * struct smart - what a drive tells of its health
 * @valid: it tells
 * @warning: critical warnings, a bit each, as in the SMART log
 * @used: percent of its life, may be over 100
 * @spare: percent of its spare blocks that are left
 * @spare_least: percent below which that is too few
 * @written: bytes written to it in its life
 */
struct smart {
	bool valid;
	unsigned int warning;
	unsigned int used;
	unsigned int spare;
	unsigned int spare_least;
	double written;
};

#endif
