/* SPDX-License-Identifier: MIT */
/* Where kvblkd leaves its decisions, and where "kvblk policy explain" finds them. */
#ifndef KVBLKD_POLICY_PLACE_H
#define KVBLKD_POLICY_PLACE_H

#define POLICY_DIR		"/run/kvblkd"
#define POLICY_MEMORY		"policy.json"
#define POLICY_DECISIONS	"decisions.jsonl"
/* is locked while a daemon runs */
#define POLICY_LOCK		"lock"

#endif
