/* SPDX-License-Identifier: MIT */
/* Files of JSON, an object a line: kvblkd's decisions, which kvblk policy explain shows. */
#ifndef KVBLK_JSON_LINES_H
#define KVBLK_JSON_LINES_H

#include <jansson.h>

/*
 * An array of the objects in the file @name of the directory @dir; lines that are none
 * are dropped. A file that can't be read has none. NULL: there is no memory.
 */
json_t *json_lines_load(int dir, const char *name);

#endif
