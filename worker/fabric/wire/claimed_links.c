/* Which link an accepted connection becomes, if any: what becomes of hellos that cross, and of
 * links whose peer was sought. */
#include "worker/fabric/wire/pending_connections.h"

#include "worker/base/clock.h"
#include "worker/fabric/sought_links.h"

#include <string.h>

static enum muster_verdict open_idle_link(struct muster_pending_connections *pending_list,
                                          struct muster_link *link)
{
    muster_link_use_transport(link, pending_list);
    return muster_pending_begin_link(pending_list, link) ? MUSTER_WELCOME : MUSTER_REFUSED_LOST;
}

/* The peer has been found: it has dialled this member. */
static enum muster_verdict open_sought_link(struct muster_pending_connections *pending_list,
                                            struct muster_link *link)
{
    struct muster_sought *kept = muster_link_stop_seeking(link);
    enum muster_verdict verdict = open_idle_link(pending_list, link);
    muster_link_resume(link, kept);
    return verdict;
}

/* A hello that finds an OPEN link is refused: it has crossed this member's own connection, which
 * the peer has accepted meanwhile. If the link is dead and only this member has not noticed yet,
 * the peer dials again. */
static enum muster_verdict verdict_for(struct muster_pending_connections *pending_list,
                                       struct muster_link *link)
{
    const struct muster_transport *ops = pending_list->ops;
    bool ours = link->transport == pending_list && link->end != NULL;
    switch (link->state) {
    case MUSTER_LINK_IDLE:
        return open_idle_link(pending_list, link);
    case MUSTER_LINK_OPENING:
        if (muster_link_is_sought(link)) {
            return open_sought_link(pending_list, link);
        }
        if (!ours) {
            return ops->connection.elsewhere;
        }
        return ops->connection.is_dialling(link) &&
                       strcmp(pending_list->fabric->member, link->peer.member) < 0
                   ? MUSTER_REFUSED_CROSSED
                   : MUSTER_WELCOME;
    case MUSTER_LINK_OPEN:
        return ours ? MUSTER_REFUSED_CROSSED : ops->connection.elsewhere;
    case MUSTER_LINK_PEER_LEFT:
    case MUSTER_LINK_LOST:
        break;
    }
    return MUSTER_REFUSED_LOST;
}

bool muster_pending_claim_link(struct muster_pending_connection *pending, struct muster_link *link)
{
    const struct muster_transport *ops = pending->pending_list->ops;
    enum muster_verdict verdict = verdict_for(pending->pending_list, link);
    if (verdict != MUSTER_WELCOME) {
        (void)ops->connection.answer(pending, verdict);
        ops->connection.close(pending);
        return false;
    }
    struct muster_dialler *end = link->end;
    end->redial_ns = MUSTER_NEVER;
    return true;
}

/* The peer sees the end of the connection, and also dials again. */
void muster_pending_answer_failed(struct muster_pending_connection *pending,
                                  struct muster_link *link)
{
    struct muster_dialler *end = link->end;
    pending->pending_list->ops->connection.close(pending);
    end->redial_ns = muster_clock_ns();
}

struct muster_hello muster_hello_to(const struct muster_link *link)
{
    const struct muster_fabric *fabric = link->fabric;
    struct muster_hello hello = {.generation = fabric->generation,
                                 .rank = muster_fabric_own_rank(fabric)};
    memcpy(hello.from, fabric->member, sizeof hello.from);
    memcpy(hello.to, link->peer.member, sizeof hello.to);
    memcpy(hello.token, fabric->token, sizeof hello.token);
    return hello;
}
