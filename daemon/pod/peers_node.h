/* SPDX-License-Identifier: MIT */
/*
 * The node /dev/kvblk/POOL/peers of each pool in a pod, through which the module asks other nodes;
 * see KVBLK_IOC_PEERS. All functions belong to the pod's thread.
 */
#ifndef KVBLKD_POD_PEERS_NODE_H
#define KVBLKD_POD_PEERS_NODE_H

#include <stdbool.h>
#include <systemd/sd-event.h>

#include <linux/kvblk.h>

#include "pod/own_pools.h"

struct peers_question;

/**
 * struct peers_rules - arguments of KVBLK_IOC_PEERS, and what to do with messages
 * @args: arguments
 * @delete: take a KVBLK_PEERS_DELETE with these entries; call peers_answer() once, perhaps
 *	before the return
 * @ask: likewise, take a KVBLK_PEERS_ASK of a pool of this pod; NULL if @args.span is 0, as are
 *	the next two
 * @anchors: take a KVBLK_PEERS_ANCHORS of a pool of this pod
 * @has_room: decide whether @anchors may be called now; if not, the node waits
 */
struct peers_rules {
	struct kvblk_peers args;
	void (*delete)(struct peers_question *question, const struct kvblk_peers_msg *msg,
		       const struct kvblk_peers_id *ids);
	void (*ask)(struct peers_question *question, const uint8_t pod[16],
		    const struct kvblk_peers_id *ids, unsigned int nr);
	void (*anchors)(const uint8_t pod[16], const struct kvblk_anchor *anchors, unsigned int nr);
	bool (*has_room)(void);
};

/*
 * Open the nodes of the pools that have none open, and close the nodes of others. Call each second.
 * Errors are logged, and the open is repeated. Open nodes keep the rules of their open.
 */
void peers_node_follow(sd_event *event, const struct own_pools *pools,
		       const struct peers_rules *rules);

/*
 * Open all nodes anew, so that the module reports the anchors of all present blocks again. A node
 * follows when no delete waits for an answer.
 */
void peers_node_again(void);

/* Close all nodes: the module ends what waits for answers. */
void peers_node_close(void);

/* Answer with @nr entries. Frees the question, whose node may be closed. */
void peers_answer(struct peers_question *question, const void *entries, unsigned int nr);

#endif
