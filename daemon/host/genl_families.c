// SPDX-License-Identifier: MIT
/* The genl controller's multicast group "notify", see genl_families.h. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <linux/genetlink.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>

#include "host/genl_families.h"

struct families {
	struct nl_sock *sock;
	/* argument and result of families_read(), for on_valid() */
	const char *name;
	bool found;
	enum family_change change;
};

static int on_valid(struct nl_msg *msg, void *arg)
{
	struct families *families = arg;
	struct nlattr *tb[CTRL_ATTR_MAX + 1];
	int cmd = genlmsg_hdr(nlmsg_hdr(msg))->cmd;

	if (cmd != CTRL_CMD_NEWFAMILY && cmd != CTRL_CMD_DELFAMILY)
		return NL_OK;
	if (genlmsg_parse(nlmsg_hdr(msg), 0, tb, CTRL_ATTR_MAX, NULL) ||
	    !tb[CTRL_ATTR_FAMILY_NAME] ||
	    nla_strcmp(tb[CTRL_ATTR_FAMILY_NAME], families->name) != 0)
		return NL_OK;
	families->found = true;
	families->change = cmd == CTRL_CMD_NEWFAMILY ? FAMILY_CAME :
						       FAMILY_GONE;
	return NL_OK;
}

int families_open(struct families **handle)
{
	struct families *families = calloc(1, sizeof(*families));
	int group, err = -ENOMEM;

	if (!families)
		return -ENOMEM;
	families->sock = nl_socket_alloc();
	if (!families->sock)
		goto free_handle;
	nl_socket_disable_seq_check(families->sock);
	err = -EPROTO;
	if (genl_connect(families->sock))
		goto free_socket;
	group = genl_ctrl_resolve_grp(families->sock, "nlctrl", "notify");
	if (group < 0 || nl_socket_set_nonblocking(families->sock) ||
	    nl_socket_modify_cb(families->sock, NL_CB_VALID, NL_CB_CUSTOM,
				on_valid, families) ||
	    nl_socket_add_membership(families->sock, group))
		goto free_socket;
	*handle = families;
	return 0;

free_socket:
	nl_socket_free(families->sock);
free_handle:
	free(families);
	return err;
}

int families_fd(const struct families *families)
{
	return nl_socket_get_fd(families->sock);
}

int families_read(struct families *families, const char *name,
		  enum family_change *change)
{
	int err;

	families->name = name;
	families->found = false;
	do {
		errno = 0;
		err = nl_recvmsgs_default(families->sock);
		if (err < 0 && errno == ENOBUFS) {
			/* notifications were lost: report a change, so that the caller checks */
			*change = FAMILY_CAME;
			return 0;
		}
		if (err < 0)
			return -EAGAIN;
	} while (!families->found);
	*change = families->change;
	return 0;
}
