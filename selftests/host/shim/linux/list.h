/* SPDX-License-Identifier: GPL-2.0 */
/* The subset of list.h that the pure code uses. */
#ifndef KVBLK_SHIM_LINUX_LIST_H
#define KVBLK_SHIM_LINUX_LIST_H

#include <linux/container_of.h>
#include <linux/types.h>

struct list_head {
	struct list_head *next, *prev;
};

static inline void INIT_LIST_HEAD(struct list_head *list)
{
	list->next = list;
	list->prev = list;
}

static inline bool list_empty(const struct list_head *list)
{
	return list->next == list;
}

static inline void list_add_tail(struct list_head *new, struct list_head *list)
{
	new->next = list;
	new->prev = list->prev;
	list->prev->next = new;
	list->prev = new;
}

static inline void list_del_init(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	INIT_LIST_HEAD(entry);
}

#define list_for_each_entry(at, list, member)				\
	for (at = container_of((list)->next, typeof(*(at)), member);	\
	     &(at)->member != (list);					\
	     at = container_of((at)->member.next, typeof(*(at)), member))

#define list_first_entry_or_null(list, type, member) \
	(list_empty(list) ? NULL : container_of((list)->next, type, member))

#endif
