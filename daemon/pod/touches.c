// SPDX-License-Identifier: MIT
/* Touches between nodes, see touches.h. */
#include <errno.h>
#include <string.h>

#include "pod/touches.h"

_Static_assert(TOUCHWIRE_IDS * TOUCHWIRE_ID == KVBLK_TOUCH_LEN_MAX, "the module takes each message");
_Static_assert(TOUCHWIRE_TOPIC == BUS_TOPIC, "one length of topics");

/* messages taken of each peer since touches_admit() */
static unsigned int taken[POD_PEERS];

int touches_publish(struct kvblk_admin *admin, struct bus *bus)
{
	struct kvblk_touched *list = NULL;
	int err = kvblk_touched_list(admin, NULL, &list);

	for (const struct kvblk_touched *t = list; t; t = t->next) {
		uint8_t topic[TOUCHWIRE_TOPIC];

		touchwire_topic(t->owner_pool, topic);
		if (t->nr)
			bus_publish(bus, topic, t->ids, (size_t)t->nr * TOUCHWIRE_ID);
	}
	kvblk_list_free(list);
	return err;
}

int touches_take(struct kvblk_admin *admin, const char *pool, unsigned int peer,
		 const struct touchwire *touches)
{
	int err;

	/* limit the work that a peer can cause */
	if (taken[peer] == BUS_QUEUED)
		return 0;
	taken[peer]++;
	err = kvblk_touch(admin, pool, touches->ids, touches->nr);
	/* the pool may have been destroyed or created anew since the last tick */
	return err == -ENOENT || err == -ENODEV || err == -EINVAL ? 0 : err;
}

void touches_admit(void)
{
	memset(taken, 0, sizeof(taken));
}
