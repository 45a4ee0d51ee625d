/* The slots that transports with frames and pending connections have in common. */
#include "worker/fabric/wire/common_link_operations.h"

#include <stdlib.h>
#include <utlist.h>

static struct muster_match *match_of(const struct muster_link *link)
{
    const struct muster_dialler *end = link->end;
    return end->match;
}

/* The transport's object ----------------------------------------------------------------------- */

void muster_common_link_stop(void *transport)
{
    muster_pending_connections_stop(transport);
}

void muster_common_link_woken(void *transport)
{
    (void)transport;
}

void muster_common_link_refresh(void *transport)
{
    struct muster_pending_connections *pending_list = transport;
    struct muster_dialler *each = NULL;
    struct muster_dialler *next = NULL;
    DL_FOREACH_SAFE(pending_list->diallers, each, next)
    {
        struct muster_link *link = each->match->link;
        if (link->state == MUSTER_LINK_OPEN && pending_list->ops->connection.is_closed(link)) {
            struct muster_transfer_list none = {0};
            link->ops->close(link, &none);
            link->state = MUSTER_LINK_IDLE;
        }
    }
}

void muster_common_link_begin_generation(void *transport)
{
    struct muster_pending_connections *pending_list = transport;
    struct muster_dialler *each = NULL;
    DL_FOREACH(pending_list->diallers, each)
    {
        muster_match_begin_generation(each->match);
    }
    muster_pending_connections_check_parked(pending_list);
}

int64_t muster_common_link_timers(void *transport, int64_t now_ns)
{
    return muster_pending_connections_timers(transport, now_ns);
}

/* A link -------------------------------------------------------------------------------------- */

void muster_common_link_open(struct muster_link *link)
{
    struct muster_pending_connections *pending_list = link->transport;
    if (muster_pending_begin_link(pending_list, link)) {
        pending_list->ops->connection.dial(link->end);
    }
}

void muster_common_link_post_send(struct muster_link *link, struct muster_transfer *transfer)
{
    muster_match_post_send(match_of(link), transfer);
}

void muster_common_link_post_receive(struct muster_link *link, struct muster_transfer *transfer)
{
    muster_match_post_receive(match_of(link), transfer);
}

void muster_common_link_abort(struct muster_link *link, const struct muster_operation_id *operation,
                              const char *reason)
{
    muster_match_abort(match_of(link), operation, reason);
}

void muster_common_link_send_signature(struct muster_link *link,
                                       const struct muster_operation_id *operation)
{
    muster_match_send_signature(match_of(link), operation);
}

void muster_common_link_announce(struct muster_link *link,
                                 const struct muster_operation_id *operation)
{
    muster_match_announce(match_of(link), operation);
}

bool muster_common_link_refuse(struct muster_link *link, const struct muster_message_key *key,
                               const char *reason)
{
    return muster_match_refuse(match_of(link), key, reason);
}

bool muster_common_link_has_arrived(const struct muster_link *link,
                                    const struct muster_message_key *key)
{
    return muster_unexpected_holds(&match_of(link)->unexpected, key);
}

void muster_common_link_destroy(struct muster_link *link, struct muster_transfer_list *ret_sends)
{
    struct muster_pending_connections *pending_list = link->transport;
    struct muster_dialler *end = link->end;
    muster_match_finish(end->match, ret_sends);
    DL_DELETE(pending_list->diallers, end);
    link->end = NULL;
    free(end);
}
