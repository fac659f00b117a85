// SPDX-License-Identifier: MIT
/* The inline calls of kvblk.h as functions, for languages that cannot inline C. */
#define KVBLK_INLINE
#include "kvblk.h"
