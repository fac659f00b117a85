// SPDX-License-Identifier: GPL-2.0
/*
 * Permission to monitor, that is to read counters, fill levels, routes and events: for tasks with
 * CAP_SYS_ADMIN in the initial user namespace, and for members of the group monitor_gid. The rule:
 * no other user has it, because exact numbers of hits reveal which blocks, and so which prompts,
 * other users have.
 *
 * Netlink checks the opener of the socket, too, or else a privileged program could be made to write
 * a request to another user's socket. Everybody may join a multicast group, because a family's
 * bind() cannot refuse; kvblk_monitor_filter() decides who gets a message. Files: see sysfs.c.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/net.h>
#include <linux/netlink.h>
#include <linux/uidgid.h>
#include <net/sock.h>

#include "admin/admin.h"

/* at first no group; not 0, because an administrator may have chosen root's group */
unsigned int kvblk_monitor_group = (gid_t)-1;

kgid_t kvblk_monitor_gid(void)
{
	return make_kgid(&init_user_ns, READ_ONCE(kvblk_monitor_group));
}

static bool task_may_monitor(void)
{
	/* without audit, because most commands of other users need no counters */
	return in_egroup_p(kvblk_monitor_gid()) ||
	       ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
}

/* @sk is open: its caller has a request of it, or has found it in a multicast group. */
static bool opener_may_monitor(const struct sock *sk)
{
	const struct cred *old = override_creds(sk->sk_socket->file->f_cred);
	bool may = task_may_monitor();

	revert_creds(old);
	return may;
}

bool kvblk_may_monitor(const struct sk_buff *request)
{
	return task_may_monitor() && opener_may_monitor(NETLINK_CB(request).sk);
}

int kvblk_monitor_filter(struct sock *sk, struct sk_buff *skb, void *data)
{
	return !opener_may_monitor(sk);
}
