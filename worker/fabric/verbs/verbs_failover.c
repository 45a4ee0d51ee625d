/* Paths that fail: the queue pair is drained, its frames wait for other paths, and the link
 * continues, or ends with its last path. */
#include "worker/base/clock.h"
#include "worker/fabric/verbs/verbs_parts.h"

#include <sched.h>

enum { DRAIN_MS = 500 }; /* the device only flushes its own queues */

bool muster_verbs_drain(struct muster_verbs_path *path, const char *what)
{
    struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};
    int64_t deadline_ns = muster_clock_after_ms(DRAIN_MS);
    if (path->pair == NULL) {
        return true;
    }
    muster_verbs_note_failure(path, what); /* no receives are posted from now on */
    if (path->device->library->modify_qp(path->pair, &attributes, IBV_QP_STATE) != 0) {
        return false;
    }
    while (path->receives > 0 && muster_clock_ns() < deadline_ns) {
        muster_verbs_handle_all(path->verbs);
        (void)sched_yield();
    }
    return path->receives == 0;
}

uint32_t muster_verbs_count_usable(const struct muster_verbs_link *end)
{
    uint32_t count = 0;
    for (uint32_t place = 0; place < end->path_end; place++) {
        count += end->paths[place] != NULL && muster_verbs_path_is_usable(end->paths[place]);
    }
    return count;
}

/* A path of an open link has failed: the link continues with its other paths, or ends. False: the
 * link has ended. */
static bool lose_path(struct muster_verbs_path *path, const char *what)
{
    struct muster_verbs_link *end = path->end;
    struct muster_link *link = end->link;
    uint32_t others = muster_verbs_count_usable(end) - muster_verbs_path_is_usable(path);
    if (others == 0 || end->goodbye_queued || path->unrecoverable ||
        !muster_verbs_drain(path, what) || !muster_verbs_abandon_sends(path) ||
        !muster_verbs_abandon_receives(path)) {
        muster_link_fail(link,
                         end->goodbye_queued || path->peer_leaving ? MUSTER_LINK_PEER_LEFT
                                                                   : MUSTER_LINK_LOST,
                         what);
        return false;
    }
    muster_bundle_path_lost(&end->opening, &end->dialler, others, what);
    end->warned = false;
    muster_verbs_path_close(path);
    muster_verbs_vacate(end);
    return true;
}

bool muster_verbs_receive(struct muster_verbs_link *end)
{
    enum muster_verbs_delivery delivery = muster_verbs_deliver_frames(end);
    if (delivery == VERBS_DELIVERED_FRAME) {
        muster_link_mark(end->link);
    }
    for (uint32_t i = 0; delivery == VERBS_DELIVERED_NOTHING && i < end->path_end; i++) {
        struct muster_verbs_path *path = end->paths[i];
        if (path != NULL && path->pending.phase == MUSTER_PHASE_OPEN && path->failure[0] != '\0' &&
            !lose_path(path, path->failure)) {
            delivery = VERBS_DELIVERED_LAST;
        }
    }
    return delivery != VERBS_DELIVERED_LAST;
}

bool muster_verbs_connection_ended(struct muster_verbs_path *path, const char *what)
{
    struct muster_verbs_link *end = path->end;
    struct muster_link *link = end->link;
    enum muster_verbs_delivery delivery = VERBS_DELIVERED_FRAME;
    while (delivery == VERBS_DELIVERED_FRAME) {
        muster_verbs_handle_all(end->verbs);
        delivery = muster_verbs_deliver_frames(end);
    }
    if (delivery == VERBS_DELIVERED_LAST) {
        return link->end == end && link->state == MUSTER_LINK_OPEN;
    }
    return lose_path(path, what);
}
