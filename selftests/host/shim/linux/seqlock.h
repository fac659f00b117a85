/* SPDX-License-Identifier: GPL-2.0 */
/* Sequence counters; protected data is read with READ_ONCE(). */
#ifndef KVBLK_SHIM_LINUX_SEQLOCK_H
#define KVBLK_SHIM_LINUX_SEQLOCK_H

#include <sched.h>

#include <linux/spinlock.h>

typedef struct {
	unsigned int sequence;
} seqcount_t;

typedef seqcount_t seqcount_spinlock_t;

static inline void seqcount_init(seqcount_t *s)
{
	s->sequence = 0;
}

#define seqcount_spinlock_init(s, lock) \
	do { (void)(lock); seqcount_init(s); } while (0)

static inline unsigned int read_seqcount_begin(const seqcount_t *s)
{
	unsigned int seq;

	/* Yield: this reader may have preempted the writer. */
	while ((seq = __atomic_load_n(&s->sequence, __ATOMIC_ACQUIRE)) & 1)
		sched_yield();
	return seq;
}

static inline int read_seqcount_retry(const seqcount_t *s, unsigned int start)
{
	smp_rmb();
	return READ_ONCE(s->sequence) != start;
}

static inline void write_seqcount_begin(seqcount_t *s)
{
	WRITE_ONCE(s->sequence, s->sequence + 1);
	smp_wmb();
}

static inline void write_seqcount_end(seqcount_t *s)
{
	smp_wmb();
	WRITE_ONCE(s->sequence, s->sequence + 1);
}

#endif
