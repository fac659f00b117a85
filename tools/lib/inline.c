// SPDX-License-Identifier: MIT
/* The inline calls of kvblk.h as functions, for languages that cannot inline C. */
#define KVBLK_INLINE
/* not sizeof: a later structure is longer than that of a program of version 1.0 */
#define KVBLK_EXT_SIZE	KVBLK_OP_EXT_SIZE_VER0
#include "kvblk.h"
