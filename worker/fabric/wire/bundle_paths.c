/* Paths that join an open link, are lost, and are dialled again: see bundle_paths.h. */
#include "worker/fabric/wire/bundle_paths.h"

#include "worker/base/clock.h"
#include "worker/base/log.h"
#include "worker/fabric/wire/match.h"

void *muster_bundle_open_end(const struct muster_pending_connection *pending,
                             const struct muster_link *link)
{
    bool here = link->state == MUSTER_LINK_OPEN && link->transport == pending->pending_list;
    return here ? link->end : NULL;
}

void muster_bundle_path_opened(const struct muster_dialler *dialler)
{
    struct muster_link *link = dialler->match->link;
    link->fabric->figures.connections_opened++;
    muster_link_mark(link);
}

void muster_bundle_path_lost(const struct muster_bundle_opening *opening,
                             struct muster_dialler *dialler, uint32_t left, const char *what)
{
    struct muster_link *link = dialler->match->link;
    link->fabric->figures.connections_lost++;
    muster_log(MUSTER_LOG_INFO, "peer=%u host=%s path lost, %u left: %s", link->rank,
               link->peer.host, left, what);
    if (opening->wanted > 1) {
        muster_dialler_path_lost(dialler);
    }
    muster_link_mark(link);
}

void muster_bundle_path_missing(const struct muster_bundle_opening *opening,
                                struct muster_dialler *dialler, uint32_t open)
{
    const struct muster_link *link = dialler->match->link;
    if (opening->wanted <= 1) {
        return;
    }
    if (dialler->failed_path_dials == MUSTER_PATH_RETRY_LOGGED &&
        dialler->redial_ns == MUSTER_NEVER) {
        muster_log(MUSTER_LOG_INFO, "peer=%u host=%s continues with %u of %u paths", link->rank,
                   link->peer.host, open, opening->wanted);
    }
    muster_dialler_retry_path(dialler);
}
