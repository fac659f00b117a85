/* SPDX-License-Identifier: MIT */
/* JSON Lines files: kvblkd's decisions, which "kvblk policy explain" shows. */
#ifndef KVBLK_JSON_LINES_H
#define KVBLK_JSON_LINES_H

#include <jansson.h>

/*
 * Load the JSON objects in file @name of directory @dir; other lines are skipped. Returns an
 * array, empty if the file cannot be read, or NULL if there is no memory.
 */
json_t *json_lines_load(int dir, const char *name);

#endif
