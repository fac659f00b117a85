// SPDX-License-Identifier: MIT
/*
 * Nodes that the directory lists, see members.h. The rule: only a round in which all pods were
 * answered changes the list, so that a server that is down ends no connection.
 */
#include <string.h>

#include "lib/kvblk_admin.h"
#include "pod/members.h"

#define ROUND_SECONDS	5u	/* below the lease, see directory.h */

/**
 * struct members - the current round
 * @heard: endpoints so far
 * @asked: announcements
 * @answered: answers
 * @wait: ticks until the next round
 */
static struct members {
	struct texts heard;
	unsigned int asked;
	unsigned int answered;
	unsigned int wait;
} members;

static void on_nodes(void *arg, const struct directory_node *nodes, unsigned int nr)
{
	uint8_t own[16];

	if (kvblk_host_id(own))
		return;
	members.answered++;
	for (unsigned int i = 0; i < nr && members.heard.nr < POD_PEERS; i++) {
		if (memcmp(nodes[i].id, own, sizeof(own)) != 0 &&
		    config_is_peer(nodes[i].endpoint) &&
		    !texts_has(&members.heard, nodes[i].endpoint))
			texts_add(&members.heard, nodes[i].endpoint);
	}
}

/* Returns whether the endpoint has an address of this host. */
static bool is_reachable(const char *listen)
{
	return !strstr(listen, "//*:") && !strstr(listen, "//0.0.0.0:") && !strstr(listen, "//[::]:");
}

/* End the round. Returns whether @live has changed. */
static bool round_end(struct texts *live)
{
	bool same = members.heard.nr == live->nr;

	if (!members.asked || members.answered < members.asked)
		return false;
	for (size_t i = 0; same && i < live->nr; i++)
		same = texts_has(&members.heard, live->text[i]);
	if (same)
		return false;
	texts_free(live);
	*live = members.heard;
	members.heard = (struct texts){ 0 };
	return true;
}

bool members_tick(struct directory *dir, const struct own_pools *own, const char *listen,
		  struct texts *live)
{
	uint8_t node[16];
	bool changed;

	if (members.wait) {
		members.wait--;
		return false;
	}
	members.wait = ROUND_SECONDS - 1;
	changed = round_end(live);
	texts_free(&members.heard);
	members = (struct members){ .wait = members.wait };
	if (!is_reachable(listen) || kvblk_host_id(node))
		return changed;
	for (size_t i = 0; i < own->nr; i++) {
		members.asked++;
		directory_join(dir, own->pools[i].pod, node, listen, on_nodes, NULL);
	}
	return changed;
}
