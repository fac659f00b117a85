// SPDX-License-Identifier: GPL-2.0
/* Memory of large arrays that all CPUs read at random. */
#include <linux/gfp.h>
#include <linux/vmalloc.h>
#ifdef CONFIG_NUMA
#include <linux/mempolicy.h>
#include <linux/nodemask.h>
#include <linux/sched/task.h>
#endif

#include "index/index.h"

/* Allocate with huge pages if possible, because each lookup is a TLB miss, too. */
static void *array_vmalloc(u64 bytes)
{
	/* too large an index must fail with -ENOMEM, not invoke the OOM killer */
	return vmalloc_huge(bytes, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
}

#ifdef CONFIG_NUMA
/* Under the lock, because changes of cpusets and of the host's memory rebind the policy. */
static void task_policy_set(struct mempolicy *policy)
{
	task_lock(current);
	current->mempolicy = policy;
	task_unlock(current);
}

/*
 * Allocate from all CPUs' nodes in turn, or else lookups would have the bandwidth of one. Through a
 * policy of the task, because vmap() of pages of chosen nodes would not map huge pages.
 */
void *kvblk_index_array(u64 nr, size_t size)
{
	struct mempolicy policy = {
		.refcnt = ATOMIC_INIT(1),
		.mode = MPOL_INTERLEAVE,
		.w.cpuset_mems_allowed = node_states[N_MEMORY],
	};
	void *array;

	nodes_and(policy.nodes, node_states[N_CPU], node_states[N_NORMAL_MEMORY]);
	/* readers of /proc would keep a reference to the policy of another task */
	if (nodes_weight(policy.nodes) < 2 || !(current->flags & PF_KTHREAD) || current->mempolicy)
		return array_vmalloc(nr * size);
	task_policy_set(&policy);
	array = array_vmalloc(nr * size);
	task_policy_set(NULL);
	return array;
}
#else
void *kvblk_index_array(u64 nr, size_t size)
{
	return array_vmalloc(nr * size);
}
#endif
