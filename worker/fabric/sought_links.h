/*
 * Inside the fabric: links to members of which only the rank is known.
 *
 * Such a link is opened like any other when a transfer names its rank. It is OPENING then, and in
 * place of a transport it has a record, which accepts transfers and keeps them. It ends when the
 * member is added with its addresses, which are dialled then, or when the member dials this one:
 * the transfers are posted again, to the transport that opens the link.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_SOUGHT_LINKS_H
#define MUSTER_WORKER_FABRIC_SOUGHT_LINKS_H

#include "worker/fabric/link.h"

/* What a link has kept. */
struct muster_sought;

/* The link is IDLE, and its peer's addresses are not known: OPENING from now on; tells the finder.
 * LOST: there is no finder, or no memory. */
void muster_link_seek(struct muster_link *link);

/* Whether the link is OPENING in this way. */
bool muster_link_is_sought(const struct muster_link *link);

/* The link, which is sought, is IDLE for the moment: a transport may be given it. What it has kept
 * is the caller's, who calls the next function before it releases the lock. */
struct muster_sought *muster_link_stop_seeking(struct muster_link *link);

/* Opens the link, or seeks its peer again, unless it has been opened meanwhile, and posts what was
 * kept. If it cannot be opened, that ends with MUSTER_REJOIN. */
void muster_link_resume(struct muster_link *link, struct muster_sought *kept);

/* The peer has turned out to be the one of this other link, which has no transfers yet: it gets
 * those of the sought one, or of the IDLE one, which is then of no use any more. */
void muster_link_take_over(struct muster_link *link, struct muster_link *sought);

#endif
