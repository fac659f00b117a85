/* SPDX-License-Identifier: GPL-2.0 */
/* Comparisons that evaluate their arguments once. */
#ifndef KVBLK_SHIM_LINUX_MINMAX_H
#define KVBLK_SHIM_LINUX_MINMAX_H

#define min(a, b) ({				\
	__typeof__((a) + (b)) a_ = (a);		\
	__typeof__((a) + (b)) b_ = (b);		\
	a_ < b_ ? a_ : b_;			\
})
#define max(a, b) ({				\
	__typeof__((a) + (b)) a_ = (a);		\
	__typeof__((a) + (b)) b_ = (b);		\
	a_ > b_ ? a_ : b_;			\
})
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define max_t(type, a, b)	max((type)(a), (type)(b))
#define min3(a, b, c)		min(min(a, b), c)
#define max3(a, b, c)		max(max(a, b), c)
#define clamp(v, lo, hi)	min(max(v, lo), hi)
#define clamp_t(type, v, lo, hi) \
	clamp((type)(v), (type)(lo), (type)(hi))
#define swap(a, b) do {				\
	__auto_type swap_ = (a);		\
	(a) = (b);				\
	(b) = swap_;				\
} while (0)

#endif
