/* SPDX-License-Identifier: GPL-2.0 */
/* Interfaces for operators: generic netlink and sysfs. */
#ifndef KVBLK_ADMIN_H
#define KVBLK_ADMIN_H

#include "p2p/p2p.h"
#include "pool/pool.h"

struct genl_family;
struct sk_buff;
struct sock;

/* Parameter monitor_gid: the group that may monitor, in the initial user namespace. */
extern unsigned int kvblk_monitor_group;
/* Return that group, or INVALID_GID. */
kgid_t kvblk_monitor_gid(void);
/* Return whether the sender of @request, and the opener of its socket, may monitor. */
bool kvblk_may_monitor(const struct sk_buff *request);
/* A netlink_filter_fn. Returns 0, for @sk to get the message, if its opener may monitor. */
int kvblk_monitor_filter(struct sock *sk, struct sk_buff *skb, void *data);

int kvblk_netlink_init(struct genl_family *family);
void kvblk_netlink_exit(void);
/* Multicast the statistics of a pool; function of pool->stats_work. */
void kvblk_nl_stats_work(struct work_struct *work);

extern const struct attribute_group *kvblk_pool_groups[];
int kvblk_sysfs_pool_init(struct kvblk_pool *pool);
void kvblk_sysfs_pool_exit(struct kvblk_pool *pool);
int kvblk_sysfs_member_add(struct kvblk_member *member);
/* Remove the member's directory and wait for its readers. */
void kvblk_sysfs_member_del(struct kvblk_member *member);
/* Returns 0 or an error. pool->tenants.lock, as for the next one. */
int kvblk_sysfs_tenant_add(struct kvblk_pool *pool, const char *name, u16 tenant);
/* Remove the tenant's directory, if any, and wait for its readers. */
void kvblk_sysfs_tenant_del(struct kvblk_pool *pool, u16 tenant);
/* Give the monitors' files to kvblk_monitor_gid(), which has changed. */
void kvblk_sysfs_monitor(void);

#endif
