/* What users do with transfers: post, withdraw and abort. */
#include "worker/fabric/fabric.h"

#include "worker/base/epoch.h"
#include "worker/base/thread.h"
#include "worker/fabric/known_peers.h"
#include "worker/fabric/link.h"
#include "worker/trace/timeline.h"

#include <inttypes.h>

/* Posting ------------------------------------------------------------------------------------ */

static muster_status check_transfer(struct muster_fabric *fabric,
                                    const struct muster_transfer *transfer)
{
    if (transfer->key.generation > fabric->generation) {
        return muster_error_set(MUSTER_INVALID, "generation %" PRIu64 " has not begun",
                                muster_epoch_shown(transfer->key.generation));
    }
    if (transfer->key.generation <= fabric->revoked ||
        transfer->key.generation < fabric->generation) {
        return muster_fabric_over(fabric, transfer->key.generation);
    }
    if (muster_fabric_link_to(fabric, transfer->peer) == NULL) {
        return muster_error_set(MUSTER_INVALID, "rank %u: no other member of generation %" PRIu64,
                                transfer->peer, muster_epoch_shown(fabric->generation));
    }
    if (transfer->element_size_bytes == 0 ||
        transfer->element_size_bytes > MUSTER_ELEMENT_MAX_BYTES ||
        transfer->size_bytes % transfer->element_size_bytes != 0) {
        return muster_error_set(MUSTER_INVALID, "%" PRIu64 " bytes of elements of %u bytes",
                                transfer->size_bytes, transfer->element_size_bytes);
    }
    return MUSTER_OK;
}

static muster_status check_call(struct muster_fabric *fabric,
                                const struct muster_operation_id *operation,
                                const struct muster_call *call)
{
    const struct muster_signature *other =
        muster_signatures_note(&fabric->signatures, operation, call, MUSTER_SIGNATURE_HERE);
    if (other == NULL) {
        return MUSTER_OK;
    }
    if (other->rank == MUSTER_SIGNATURE_HERE || other->rank >= fabric->link_count) {
        return muster_error_set(MUSTER_INVALID, "one operation is called in two ways here");
    }
    return muster_link_compare_calls(fabric->links[other->rank], call, &other->call);
}

static muster_status check_ended(struct muster_fabric *fabric,
                                 const struct muster_transfer *transfer)
{
    struct muster_operation_id operation = muster_key_operation(&transfer->key);
    const char *reason = muster_ended_operations_aborted(&fabric->ended, &operation);
    if (reason != NULL) {
        return muster_error_set(MUSTER_INVALID, "%s", reason);
    }
    if (muster_ended_operations_withdrawn(&fabric->ended, &operation)) {
        return muster_error_set(MUSTER_INVALID, "operation %" PRIu64 " of context %u was withdrawn",
                                operation.sequence, operation.context);
    }
    return muster_key_is_announced(&transfer->key) ? MUSTER_OK
                                                   : check_call(fabric, &operation, transfer->call);
}

/* Opens an IDLE link. A link whose peer has left still serves receives of messages that have
 * arrived. */
static muster_status check_link(struct muster_link *link, const struct muster_transfer *transfer)
{
    if (link->state == MUSTER_LINK_IDLE) {
        muster_link_open(link);
    }
    bool closed = link->state == MUSTER_LINK_LOST || link->state == MUSTER_LINK_PEER_LEFT;
    bool arrived = closed && link->end != NULL && transfer->direction == MUSTER_RECEIVE &&
                   link->ops->has_arrived(link, &transfer->key);
    if (closed && !arrived) {
        return muster_error_set(MUSTER_REJOIN, "%s", link->reason);
    }
    uint32_t posted = transfer->direction == MUSTER_SEND ? link->sends : link->receives.count;
    if (posted >= MUSTER_POSTED_MAX) {
        return muster_error_set(MUSTER_INVALID, "more than %d transfers posted to rank %u",
                                MUSTER_POSTED_MAX, link->rank);
    }
    return MUSTER_OK;
}

muster_status muster_fabric_post_locked(struct muster_fabric *fabric,
                                        struct muster_transfer *transfer)
{
    TRY(check_transfer(fabric, transfer));
    TRY(check_ended(fabric, transfer));
    struct muster_link *link = fabric->links[transfer->peer];
    TRY(check_link(link, transfer));
    transfer->state = MUSTER_TRANSFER_POSTED;
    transfer->status = MUSTER_OK;
    transfer->moved_bytes = 0;
    transfer->link_word = 0;
    transfer->posted_ns = muster_timeline_clock(fabric->timeline);
    transfer->begun_ns = 0;
    if (transfer->direction == MUSTER_SEND) {
        link->sends++;
        link->ops->post_send(link, transfer);
    } else {
        muster_transfer_table_insert(&link->receives, transfer);
        fabric->awaited = link;
        link->ops->post_receive(link, transfer);
    }
    return MUSTER_OK;
}

void muster_fabric_begin_posting(struct muster_fabric *fabric)
{
    muster_mutex_lock(&fabric->lock);
}

void muster_fabric_end_posting(struct muster_fabric *fabric)
{
    if (fabric->leading) {
        muster_fabric_wake(fabric);
    }
    muster_mutex_unlock(&fabric->lock);
}

muster_status muster_fabric_post(struct muster_fabric *fabric, struct muster_transfer *transfer)
{
    muster_fabric_begin_posting(fabric);
    muster_status status = muster_fabric_post_locked(fabric, transfer);
    muster_fabric_end_posting(fabric);
    return status;
}

void muster_fabric_open_locked(struct muster_fabric *fabric, uint64_t generation, uint32_t peer)
{
    struct muster_link *link =
        generation == fabric->generation ? muster_fabric_link_to(fabric, peer) : NULL;
    if (link != NULL) {
        muster_link_open(link);
    }
}

bool muster_fabric_reads_devices(struct muster_fabric *fabric, uint64_t generation,
                                 const uint32_t *ranks, size_t count)
{
    AUTO_LOCK(&fabric->lock);
    bool reads = fabric->generation == generation;
    for (size_t i = 0; i < count && reads; i++) {
        const struct muster_link *link = fabric->links[ranks[i]];
        reads = link != NULL && link->state == MUSTER_LINK_OPEN && link->ops->reads_devices;
    }
    return reads;
}

/* Withdrawing -------------------------------------------------------------------------------- */

/* The leader pauses first, so that no transport uses the transfers' memory. */
void muster_fabric_withdraw(struct muster_fabric *fabric, uint64_t generation, uint32_t context,
                            uint64_t sequence)
{
    struct muster_operation_id operation = {
        .generation = generation, .context = context, .sequence = sequence};
    AUTO_LOCK(&fabric->lock);
    muster_fabric_quiesce(fabric);
    struct muster_transfer_list withdrawn = {0};
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *link = fabric->links[i];
        if (link != NULL && link->end != NULL) {
            muster_transfer_table_move(&link->receives, &operation, &withdrawn);
            uint32_t before = withdrawn.count;
            link->ops->withdraw(link, &operation, &withdrawn);
            link->sends -= withdrawn.count - before;
        }
    }
    muster_transfer_list_move(&fabric->completed, &operation, &withdrawn);
    struct muster_transfer *transfer = NULL;
    while ((transfer = muster_transfer_list_pop(&withdrawn)) != NULL) {
        transfer->state = MUSTER_TRANSFER_IDLE;
    }
    if (generation == fabric->generation) {
        muster_ended_operations_withdraw(&fabric->ended, &operation);
    }
}

void muster_fabric_abort(struct muster_fabric *fabric, uint32_t peer, uint64_t generation,
                         uint32_t context, uint64_t sequence, const char *reason)
{
    struct muster_operation_id operation = {
        .generation = generation, .context = context, .sequence = sequence};
    AUTO_LOCK(&fabric->lock);
    struct muster_link *link =
        generation == fabric->generation ? muster_fabric_link_to(fabric, peer) : NULL;
    if (link == NULL) {
        return;
    }
    if (link->state == MUSTER_LINK_IDLE) {
        muster_link_open(link);
    }
    if (link->end != NULL) {
        link->ops->abort(link, &operation, reason);
    }
    if (fabric->leading) {
        muster_fabric_wake(fabric);
    }
}
