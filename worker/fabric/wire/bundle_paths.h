/*
 * The paths of an open link, as a set: finds out whether a peer's connection is one more of them,
 * counts and logs paths that open or are lost, and dials missing paths again (dialler.h has the
 * back-off). Only the end that has dialled a link dials its paths.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_BUNDLE_PATHS_H
#define MUSTER_WORKER_FABRIC_WIRE_BUNDLE_PATHS_H

#include "worker/fabric/wire/pending_connections.h"

/* One opening of a link. */
struct muster_bundle_opening {
    uint32_t ticket; /* chosen by the dialler; every hello for one of the paths carries it */
    uint32_t wanted; /* paths that this end keeps up; 0: the link is not open, or the peer dials */
};

/* The link's end, if the link is open over the transport of this connection, which may be one more
 * path of it; otherwise NULL. */
void *muster_bundle_open_end(const struct muster_pending_connection *pending,
                             const struct muster_link *link);

/* One more path of an open link has opened. */
void muster_bundle_path_opened(const struct muster_dialler *dialler);

/* An open path is lost, and `left` others are open: counts and logs the loss, and dials again soon.
 */
void muster_bundle_path_lost(const struct muster_bundle_opening *opening,
                             struct muster_dialler *dialler, uint32_t left, const char *what);

/* A path could not be opened, and `open` others are open: dials again after a back-off. */
void muster_bundle_path_missing(const struct muster_bundle_opening *opening,
                                struct muster_dialler *dialler, uint32_t open);

#endif
