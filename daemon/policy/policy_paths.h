/* SPDX-License-Identifier: MIT */
/* Paths of kvblkd's policy files, read by "kvblk policy explain". */
#ifndef KVBLKD_POLICY_POLICY_PATHS_H
#define KVBLKD_POLICY_POLICY_PATHS_H

#define POLICY_DIR		"/run/kvblkd"
#define POLICY_MEMORY		"policy.json"
#define POLICY_DECISIONS	"decisions.jsonl"
/* locked while kvblkd runs */
#define POLICY_LOCK		"lock"

#endif
