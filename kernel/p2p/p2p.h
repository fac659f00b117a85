/* SPDX-License-Identifier: GPL-2.0 */
/* Ways into devices' memory: straight, or part by part. */
#ifndef KVBLK_P2P_H
#define KVBLK_P2P_H

#include "log/log.h"
#include "memory/memory.h"

/* ---- bounce.c ---- */

struct kvblk_bounce;
struct kvblk_req;

/*
 * For a get whose segment is held, or NULL: all are in use. May sleep. @landed: to be
 * called, in any context, when what kvblk_bounce_run() waits for is over.
 */
struct kvblk_bounce *kvblk_bounce_get(struct kvblk_req *req,
				      void (*landed)(struct kvblk_req *req));
void kvblk_bounce_put(struct kvblk_pool *pool, struct kvblk_bounce *b);
/* Frees what is idle, but @keep of them. */
void kvblk_bounce_trim(struct kvblk_pool *pool, u32 keep);
/* Begins to read the payload, from req->from to @end; the header is the get's. */
void kvblk_bounce_submit(struct kvblk_bounce *b, u32 end);
/* It is to be checked against these, of the whole block. */
void kvblk_bounce_check(struct kvblk_bounce *b, const __le32 *crcs);
/*
 * Copies what has landed; @err: it is to end with this, when it can. 0;
 * -EINPROGRESS: in flight again; -EIO, -EBADMSG: a part could not be read, or
 * is damaged; -EFAULT: not without a page fault; or @err. Where it is not 0, what
 * was copied is zero again. The caller's context, or @err is -EINTR: then parts
 * that were good stay.
 */
int kvblk_bounce_run(struct kvblk_bounce *b, int err);

/* ---- route.c ---- */

/* How a member reaches a device's memory; @distance: or negative; @why: or NULL. */
struct kvblk_way {
	const char *device;
	int distance;
	enum kvblk_route_state state;
	const char *why;
};

#ifdef CONFIG_PCI_P2PDMA
int kvblk_p2p_init(void);
void kvblk_p2p_exit(void);
/*
 * May @member transfer to and from @mem? 0; -EREMOTEIO: no, or nobody knows yet:
 * then it is tried out.
 */
int kvblk_p2p_route(struct kvblk_req *req, struct kvblk_member *member);
/* It is known that @member can't reach what is at @addr. */
bool kvblk_p2p_bounces(phys_addr_t addr, struct kvblk_member *member);
/* A transfer failed: there is no other that way if that may be why. May sleep. */
void kvblk_p2p_failed(struct kvblk_req *req, struct kvblk_member *member);
/*
 * A get with req->trial has landed: first where the caller wants it (-EAGAIN: now
 * through kernel memory), then there (0).
 */
int kvblk_p2p_trial(struct kvblk_req *req);
void kvblk_p2p_trial_end(struct kvblk_req *req);
void kvblk_p2p_work(struct work_struct *work);
/*
 * Calls @tell with the way to each provider from the *@at-th on, which moves with
 * them, until one returns an error. May sleep.
 */
int kvblk_p2p_ways(struct kvblk_member *member, u32 *at,
		   int (*tell)(const struct kvblk_way *way, void *arg), void *arg);
#else
static inline int kvblk_p2p_init(void) { return 0; }
static inline void kvblk_p2p_exit(void) {}
static inline int kvblk_p2p_route(struct kvblk_req *req,
				  struct kvblk_member *member)
{
	return -EREMOTEIO;
}

static inline void kvblk_p2p_failed(struct kvblk_req *req,
				    struct kvblk_member *member) {}
static inline bool kvblk_p2p_bounces(phys_addr_t addr, struct kvblk_member *member)
{
	return true;
}

static inline int kvblk_p2p_trial(struct kvblk_req *req) { return 0; }
static inline void kvblk_p2p_trial_end(struct kvblk_req *req) {}
static inline void kvblk_p2p_work(struct work_struct *work) {}
static inline int kvblk_p2p_ways(struct kvblk_member *member, u32 *at,
				 int (*tell)(const struct kvblk_way *way, void *arg),
				 void *arg)
{
	return 0;
}
#endif

#endif
