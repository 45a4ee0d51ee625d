/* Messages that their receiver does not know beforehand: their listeners, which are told when one
 * has arrived. */
#include "worker/fabric/fabric.h"

#include "worker/base/thread.h"
#include "worker/fabric/link.h"

#include <utlist.h>

void muster_link_announce(struct muster_link *link, const struct muster_message_key *key,
                          const struct muster_call *call, uint64_t size_bytes)
{
    const struct muster_fabric *fabric = link->fabric;
    const struct muster_operation_id operation = muster_key_operation(key);
    if (!muster_key_is_announced(key) || key->generation != fabric->generation ||
        muster_ended_operations_withdrawn(&fabric->ended, &operation)) {
        return;
    }
    const struct muster_announcement message = {
        .peer = link->rank, .key = *key, .call = *call, .size_bytes = size_bytes};
    struct muster_announcement_listener *each = NULL;
    LL_FOREACH(fabric->listeners, each)
    {
        if (each->context == key->context && each->generation == key->generation) {
            each->announced(each, &message);
            return;
        }
    }
}

static void tell_end(struct muster_announcement_listener *listener, const struct muster_link *link)
{
    if (listener->generation == link->fabric->generation) {
        listener->link_ended(listener, link->rank, link->state == MUSTER_LINK_PEER_LEFT,
                             link->reason);
    }
}

void muster_link_tell_listeners(const struct muster_link *link)
{
    struct muster_announcement_listener *each = NULL;
    LL_FOREACH(link->fabric->listeners, each)
    {
        tell_end(each, link);
    }
}

void muster_fabric_listen(struct muster_fabric *fabric,
                          struct muster_announcement_listener *listener)
{
    const struct muster_operation_id operation = {.generation = listener->generation,
                                                  .sequence = MUSTER_ANNOUNCED_SEQUENCE,
                                                  .context = listener->context};
    AUTO_LOCK(&fabric->lock);
    LL_PREPEND(fabric->listeners, listener);
    for (uint32_t i = 0; listener->generation == fabric->generation && i < fabric->link_count;
         i++) {
        struct muster_link *link = fabric->links[i];
        if (link == NULL) {
            continue;
        }
        if (link->end != NULL) {
            link->ops->announce(link, &operation);
        }
        if (link->state == MUSTER_LINK_LOST || link->state == MUSTER_LINK_PEER_LEFT) {
            tell_end(listener, link);
        }
    }
}

void muster_fabric_unlisten(struct muster_fabric *fabric,
                            struct muster_announcement_listener *listener)
{
    AUTO_LOCK(&fabric->lock);
    LL_DELETE(fabric->listeners, listener);
}

void muster_fabric_finish_posted_locked(struct muster_fabric *fabric,
                                        struct muster_transfer *transfer)
{
    if (fabric->completed.last == transfer) {
        muster_transfer_list_remove(&fabric->completed, transfer);
        transfer->state = MUSTER_TRANSFER_DONE;
        transfer->done(transfer);
    }
}

bool muster_fabric_refuse_locked(struct muster_fabric *fabric, uint32_t peer,
                                 const struct muster_message_key *key, const char *reason)
{
    struct muster_link *link = fabric->links[peer];
    return link->end != NULL && link->ops->refuse(link, key, reason);
}
