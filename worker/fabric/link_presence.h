/* Probes the members that keep this one waiting, and loses the link to one that is gone or cut off:
 * see address/presence.h. The leader runs it as a timer; dials are polled, so nothing blocks.
 *
 * An open link is better evidence than a dial, which a firewall may stop: only if nothing was
 * acknowledged over it lately (slot answers), or while it opens, the peer's port is dialled.
 *
 * Threads: the fabric's lock. */
#ifndef MUSTER_WORKER_FABRIC_LINK_PRESENCE_H
#define MUSTER_WORKER_FABRIC_LINK_PRESENCE_H

#include <stdint.h>

struct muster_fabric;
struct muster_link;

/* Returns when to be called again. */
int64_t muster_link_presence_timers(struct muster_fabric *fabric, int64_t now_ns);

/* The link is closed: ends its probe. */
void muster_link_presence_end(struct muster_link *link);

#endif
