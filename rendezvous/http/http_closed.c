/*
 * What follows when a connection closes over which a request was held. It needs the lock of the
 * job, and the thread that sees the end reads the sockets of other jobs: the queue of the job does
 * it. If the client is back by then, its new request stands behind this in the same queue.
 */
#include "rendezvous/http/http_parts.h"

#include "worker/base/log.h"

#include <stddef.h>
#include <stdlib.h>

struct closed_connection {
    struct muster_queued queued; /* first */
    const struct muster_http *http;
    struct muster_held_id id;
};

/* In a thread of the queues. */
static void run_closed(struct muster_queued *queued)
{
    struct closed_connection *closed = (struct closed_connection *)queued;
    const struct muster_http *http = closed->http;
    if (muster_forwards_holds(&closed->id)) {
        muster_forwards_disconnected(http->forwards, &closed->id);
    } else if (muster_horovod_holds(&closed->id)) {
        muster_horovod_disconnected(http->horovod, &closed->id);
    } else {
        muster_rpc_disconnected(http->service, &closed->id);
    }
    free(closed);
}

void muster_http_connection_closed(void *user, const struct muster_held_id *id)
{
    const struct muster_http *http = user;
    struct closed_connection *closed = calloc(1, sizeof *closed);
    if (closed == NULL) { /* not lost: the request is held until its time is over, then the lease */
        muster_log(MUSTER_LOG_WARN, "job=%s member=%s its connection closed: no memory", id->job,
                   id->member);
        return;
    }
    closed->queued.run = run_closed;
    closed->http = http;
    closed->id = *id;
    muster_queues_add_for(http->queues, id->job, &closed->queued);
}
