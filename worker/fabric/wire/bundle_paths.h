/*
 * The paths of an open link as a whole: which calls of a peer are for one more of them, what is
 * noted when one opens or is lost, and when a missing one is dialled again (wire/
 * pending_connections has the back-off). One end of a link keeps up the number of its paths: the
 * one that has dialled it.
 *
 * Threads: the fabric's lock.
 */
#ifndef MUSTER_WORKER_FABRIC_WIRE_BUNDLE_PATHS_H
#define MUSTER_WORKER_FABRIC_WIRE_BUNDLE_PATHS_H

#include "worker/fabric/wire/pending_connections.h"

struct muster_bundle_calls {
    uint32_t ticket; /* the dialler's: all calls of one opening carry it */
    uint32_t wanted; /* paths that this end dials for; 0: the link is not open, or the peer does */
};

/* The link's end, if it is open over the transport of this call: the call may be for one more path.
 * Otherwise NULL. */
void *muster_bundle_open_end(const struct muster_pending_connection *pending,
                             const struct muster_link *link);

/* One more path of an open link is open. */
void muster_bundle_path_opened(const struct muster_dialler *dialler);

/* The link goes on without a path that was open; so many are left. It is dialled again soon. */
void muster_bundle_path_lost(const struct muster_bundle_calls *calls,
                             struct muster_dialler *dialler, uint32_t left, const char *what);

/* A call for a path came to nothing; so many are open. It is dialled again, ever more rarely. */
void muster_bundle_path_missing(const struct muster_bundle_calls *calls,
                                struct muster_dialler *dialler, uint32_t open);

#endif
