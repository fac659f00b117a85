/* SPDX-License-Identifier: GPL-2.0 */
/* Transfers to and from devices' memory: direct (route.c), or through kernel memory (bounce.c). */
#ifndef KVBLK_P2P_H
#define KVBLK_P2P_H

#include "log/log.h"
#include "memory/memory.h"

/* ---- bounce.c ---- */

/* Size of a get's own chunk; each half is several chunks of the payload. */
#define KVBLK_BOUNCE_OWN_BYTES	SZ_512K

struct kvblk_bounce;
struct kvblk_req;

/*
 * Takes a chunk for a get that holds its segment. @wipe: clear bytes of other tenants, because the
 * get may be served unverified. Returns NULL if none is idle. May sleep.
 */
struct kvblk_bounce *kvblk_bounce_get(struct kvblk_req *req, bool wipe,
				      void (*completed)(struct kvblk_req *req));
/* As kvblk_bounce_get(), but allocates KVBLK_BOUNCE_OWN_BYTES. Returns NULL without memory. */
struct kvblk_bounce *kvblk_bounce_own(struct kvblk_req *req, bool wipe,
				      void (*completed)(struct kvblk_req *req));
void kvblk_bounce_put(struct kvblk_pool *pool, struct kvblk_bounce *b);
/* Frees idle chunks, except in the first @keep slots. */
void kvblk_bounce_trim(struct kvblk_pool *pool, u32 keep);
/* Starts to read the payload, from req->read.from to @end. The get reads the header. */
void kvblk_bounce_submit(struct kvblk_bounce *b, u32 end);
/* Has each part verified against @crcs, the checksums of the whole block. */
void kvblk_bounce_check(struct kvblk_bounce *b, const __le32 *crcs);
/*
 * Copies completed parts to the caller. @err: why the get must end, or 0. Returns 0; @err;
 * -EINPROGRESS: in flight again; -EIO: unreadable; -EBADMSG: damaged; -EFAULT: needs a page fault
 * or other memory. After an error, clear req->partly bytes. Context: the caller's, unless @err is
 * -EINTR.
 */
int kvblk_bounce_run(struct kvblk_bounce *b, int err);

/* ---- route.c ---- */

/* A member's route to a device's memory. @distance < 0: none; @why: cause of a bounce, or NULL. */
struct kvblk_way {
	const char *device;
	int distance;
	enum kvblk_route_state state;
	const char *why;
};

#ifdef CONFIG_PCI_P2PDMA
int kvblk_p2p_init(void);
void kvblk_p2p_exit(void);
/* Returns 0 if @flash reaches the memory of @req directly, or -EREMOTEIO; may start a probe. */
int kvblk_p2p_route(struct kvblk_req *req, struct kvblk_flash *flash);
/* Returns whether the route of @flash to the memory at @addr is known to bounce. */
bool kvblk_p2p_bounces(phys_addr_t addr, struct kvblk_flash *flash);
/* Stops direct transfers on the route if it may have caused the failure of @req. May sleep. */
void kvblk_p2p_failed(struct kvblk_req *req, struct kvblk_flash *flash);
/* Checks a get with media.trial. Returns -EAGAIN: read again through kernel memory; 0: compared. */
int kvblk_p2p_trial(struct kvblk_req *req);
void kvblk_p2p_trial_end(struct kvblk_req *req);
void kvblk_p2p_work(struct work_struct *work);
/* Calls @report for each provider's route from *@at on, incremented, until an error. May sleep. */
int kvblk_p2p_ways(struct kvblk_flash *flash, int *at,
		   int (*report)(const struct kvblk_way *way, void *arg), void *arg);
#else
static inline int kvblk_p2p_init(void) { return 0; }
static inline void kvblk_p2p_exit(void) {}
static inline int kvblk_p2p_route(struct kvblk_req *req, struct kvblk_flash *flash)
{
	return -EREMOTEIO;
}

static inline void kvblk_p2p_failed(struct kvblk_req *req, struct kvblk_flash *flash) {}
static inline bool kvblk_p2p_bounces(phys_addr_t addr, struct kvblk_flash *flash) { return true; }
static inline int kvblk_p2p_trial(struct kvblk_req *req) { return 0; }
static inline void kvblk_p2p_trial_end(struct kvblk_req *req) {}
static inline void kvblk_p2p_work(struct work_struct *work) {}
static inline int kvblk_p2p_ways(struct kvblk_flash *flash, int *at,
				 int (*report)(const struct kvblk_way *way, void *arg), void *arg)
{
	return 0;
}
#endif

#endif
