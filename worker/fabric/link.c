/* What transports call: the states of a link, and the completion of transfers. */
#include "worker/fabric/link.h"
#include "worker/base/epoch.h"
#include "worker/fabric/address/address.h"
#include "worker/fabric/link_trace.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Links -------------------------------------------------------------------------------------- */

const char *muster_link_host(const struct muster_link *link)
{
    return link->peer.host[0] != '\0' ? link->peer.host : "not known";
}

struct muster_link *muster_fabric_find_link(struct muster_fabric *fabric, const char *member)
{
    struct muster_link *link = NULL;
    HASH_FIND_STR(fabric->by_member, member, link);
    return link;
}

static void use_transport(struct muster_link *link, uint32_t slot)
{
    link->ops = link->fabric->transports[slot].ops;
    link->transport = link->fabric->transports[slot].self;
    link->tried |= UINT32_C(1) << slot;
}

void muster_link_use_transport(struct muster_link *link, const void *transport)
{
    uint32_t slot = 0;
    while (link->fabric->transports[slot].self != transport) {
        slot++;
        assert(slot < MUSTER_TRANSPORTS_MAX);
    }
    link->tried = 0;
    use_transport(link, slot);
}

static bool choose_transport(struct muster_link *link)
{
    const struct muster_fabric *fabric = link->fabric;
    for (uint32_t i = 0; i < link->peer.address_count; i++) {
        for (uint32_t k = 0; k < fabric->transport_count; k++) {
            bool on_one_host = fabric->transports[k].ops->shares_memory;
            if ((link->tried >> k & 1) == 0 && !(on_one_host && link->peer.other_host) &&
                muster_address_has_scheme(link->peer.addresses[i],
                                          fabric->transports[k].ops->name)) {
                use_transport(link, k);
                return true;
            }
        }
    }
    return false;
}

void muster_link_open(struct muster_link *link)
{
    if (link->state != MUSTER_LINK_IDLE) {
        return;
    }
    link->tried = 0;
    if (!link->known) {
        link->fabric->seek(link);
        return;
    }
    if (!choose_transport(link)) {
        muster_link_fail(link, MUSTER_LINK_LOST, "none of its addresses can be used here");
        return;
    }
    link->ops->open(link);
}

void muster_link_mark(struct muster_link *link)
{
    if (!link->marked) {
        link->marked = true;
        link->next_marked = link->fabric->marked;
        link->fabric->marked = link;
    }
}

void muster_link_opened(struct muster_link *link)
{
    link->state = MUSTER_LINK_OPEN;
    link->opened++;
    link->fabric->figures.links_opened++;
    muster_link_mark(link);
    muster_link_notify(link);
}

void muster_link_notify(const struct muster_link *link)
{
    struct muster_fabric *fabric = link->fabric;
    for (struct muster_observer *each = fabric->observers; each != NULL; each = each->next) {
        each->notified = true;
    }
    if (fabric->observers != NULL) {
        muster_progress_wake_all(fabric);
    }
}

static void complete_all(struct muster_link *link, struct muster_transfer_list *transfers,
                         muster_status status, const char *reason)
{
    struct muster_transfer *transfer = NULL;
    while ((transfer = muster_transfer_list_pop(transfers)) != NULL) {
        (void)muster_error_set(status, "%s", reason);
        muster_transfer_complete(link, transfer, status);
    }
}

void muster_link_repost(struct muster_link *link, struct muster_transfer_list *sends)
{
    struct muster_transfer_list receives = {0};
    struct muster_transfer *transfer = NULL;
    if (link->state != MUSTER_LINK_OPENING && link->state != MUSTER_LINK_OPEN) {
        muster_transfer_table_splice(&link->receives, &receives);
        complete_all(link, &receives, MUSTER_REJOIN, link->reason);
        complete_all(link, sends, MUSTER_REJOIN, link->reason);
        return;
    }
    muster_transfer_table_splice(&link->receives, &receives);
    while ((transfer = muster_transfer_list_pop(&receives)) != NULL) {
        transfer->link_word = 0;
        muster_transfer_table_insert(&link->receives, transfer);
        link->ops->post_receive(link, transfer);
    }
    while ((transfer = muster_transfer_list_pop(sends)) != NULL) {
        transfer->link_word = 0;
        link->ops->post_send(link, transfer);
    }
}

void muster_link_try_next(struct muster_link *link, const char *what)
{
    struct muster_transfer_list sends = {0};
    link->ops->close(link, &sends);
    if (!link->known) { /* it has dialled this member */
        link->state = MUSTER_LINK_IDLE;
        muster_link_open(link);
    } else if (choose_transport(link)) {
        link->state = MUSTER_LINK_IDLE;
        link->ops->open(link);
    } else {
        muster_link_fail(link, MUSTER_LINK_LOST, what);
    }
    muster_link_repost(link, &sends);
}

/* The state and the loss are recorded first, then the transport's end is closed, and the transfers
 * are completed last: their done functions find the link as it is from now on. */
void muster_link_fail(struct muster_link *link, enum muster_link_state state, const char *what)
{
    if (link->state == MUSTER_LINK_PEER_LEFT || link->state == MUSTER_LINK_LOST) {
        return;
    }
    struct muster_fabric *fabric = link->fabric;
    link->state = state;
    if (state == MUSTER_LINK_PEER_LEFT) {
        (void)snprintf(link->reason, sizeof link->reason, "rank %u (host %s) has left", link->rank,
                       muster_link_host(link));
    } else {
        (void)snprintf(link->reason, sizeof link->reason, "link to rank %u (host %s): %s",
                       link->rank, muster_link_host(link), what);
        fabric->figures.links_lost++;
    }
    bool is_member = link->rank != MUSTER_NO_RANK; /* else this generation does not need the link */
    if (state == MUSTER_LINK_LOST && is_member && !fabric->lost) {
        fabric->lost = true;
        fabric->lost_rank = link->rank;
        memcpy(fabric->lost_reason, link->reason, MUSTER_REASON_SIZE);
    }
    struct muster_transfer_list ended = {0};
    if (link->end != NULL && state == MUSTER_LINK_PEER_LEFT) {
        link->ops->peer_left(link, &ended);
    } else if (link->end != NULL) {
        link->ops->close(link, &ended);
    }
    muster_transfer_table_splice(&link->receives, &ended);
    muster_link_notify(link);
    /* A member that revokes the generation says why, and leaves after that. */
    bool revoked = fabric->generation != 0 && fabric->revoked >= fabric->generation;
    complete_all(link, &ended, MUSTER_REJOIN, revoked ? fabric->revoked_reason : link->reason);
    if (is_member) {
        muster_link_tell_listeners(link);
    }
    if (state == MUSTER_LINK_LOST && is_member) {
        muster_fabric_revoke_after_loss(fabric, link->reason);
    }
}

static muster_status check_told_rank(const struct muster_link *link)
{
    return link->told_generation != link->fabric->generation || link->told_rank == link->rank
               ? MUSTER_OK
               : muster_error_set(MUSTER_INVALID,
                                  "it says that it is rank %u in generation %" PRIu64
                                  ", where this member, rank %u, has it as rank %u",
                                  link->told_rank, muster_epoch_shown(link->told_generation),
                                  muster_fabric_own_rank(link->fabric), link->rank);
}

muster_status muster_link_told_rank(struct muster_link *link, uint64_t generation, uint32_t rank)
{
    if (generation >= link->told_generation) {
        link->told_generation = generation;
        link->told_rank = rank;
    }
    if (link->rank == MUSTER_NO_RANK) {
        return link->fabric->claim_rank(link);
    }
    return check_told_rank(link);
}

void muster_link_compare_rank(struct muster_link *link)
{
    if (check_told_rank(link) != MUSTER_OK) {
        char what[MUSTER_REASON_SIZE];
        (void)snprintf(what, sizeof what, "%.200s", muster_last_error());
        muster_link_fail(link, MUSTER_LINK_LOST, what);
    }
}

bool muster_is_out_of_descriptors(int error)
{
    return error == EMFILE || error == ENFILE;
}

void muster_link_out_of_descriptors(struct muster_link *link, const char *what)
{
    struct muster_fabric *fabric = link->fabric;
    char reason[MUSTER_REASON_SIZE];
    (void)snprintf(reason, sizeof reason,
                   "this process has no descriptor left for it (ulimit -n): %.180s", what);
    bool first_loss = !fabric->lost; /* which muster_fabric_lost_peer() would report */
    muster_link_fail(link, MUSTER_LINK_LOST, reason);
    if (first_loss) {
        memcpy(fabric->out_of_descriptors, link->reason, MUSTER_REASON_SIZE);
    }
}

/* Transfers ---------------------------------------------------------------------------------- */

static void record_completion(struct muster_link *link, struct muster_transfer *transfer,
                              muster_status status)
{
    struct muster_fabric_figures *figures = &link->fabric->figures;
    transfer->status = status;
    bool sent = transfer->direction == MUSTER_SEND;
    link->sends -= sent;
    if (status == MUSTER_OK) {
        transfer->moved_bytes = transfer->size_bytes;
        figures->messages_sent += sent;
        figures->messages_received += !sent;
        figures->bytes_sent += sent ? transfer->size_bytes : 0;
        figures->bytes_received += sent ? 0 : transfer->size_bytes;
        muster_link_add_message(link, transfer);
    }
}

void muster_transfer_complete(struct muster_link *link, struct muster_transfer *transfer,
                              muster_status status)
{
    record_completion(link, transfer, status);
    transfer->state = MUSTER_TRANSFER_DONE;
    link->fabric->completed_any = true;
    if (transfer->done != NULL) {
        transfer->done(transfer);
    }
}

void muster_transfer_complete_later(struct muster_link *link, struct muster_transfer *transfer)
{
    record_completion(link, transfer, MUSTER_OK);
    muster_transfer_list_append(&link->fabric->completed, transfer);
}

muster_status muster_link_compare_calls(const struct muster_link *link,
                                        const struct muster_call *here,
                                        const struct muster_call *there)
{
    char text[MUSTER_REASON_SIZE];
    if (!muster_call_matches(here, there, text, sizeof text)) {
        return muster_error_set(MUSTER_INVALID, "rank %u (host %s) calls differently: %s",
                                link->rank, muster_link_host(link), text);
    }
    return MUSTER_OK;
}

muster_status muster_transfer_check(const struct muster_link *link,
                                    const struct muster_transfer *transfer,
                                    const struct muster_call *call, uint64_t size_bytes)
{
    TRY(muster_link_compare_calls(link, transfer->call, call));
    if (transfer->size_bytes != size_bytes) {
        return muster_error_set(MUSTER_INVALID,
                                "rank %u (host %s) differs in a message's size: %" PRIu64
                                " bytes here, %" PRIu64 " there",
                                link->rank, muster_link_host(link), transfer->size_bytes,
                                size_bytes);
    }
    return MUSTER_OK;
}

/* Ends the operation's transfers on all links, not only on this one: it may have transfers with
 * other peers. */
void muster_link_aborted(struct muster_link *link, const struct muster_operation_id *operation,
                         const char *reason)
{
    struct muster_fabric *fabric = link->fabric;
    if (muster_operation_id_is_revocation(operation)) {
        muster_fabric_revoked_by_peer(fabric, operation->generation, reason);
        return;
    }
    if (operation->generation < fabric->generation ||
        muster_ended_operations_withdrawn(&fabric->ended, operation) ||
        !muster_ended_operations_abort(&fabric->ended, operation, reason)) {
        return;
    }
    for (uint32_t i = 0; i < fabric->link_count; i++) {
        struct muster_link *each = fabric->links[i];
        if (each == NULL || each->end == NULL) {
            continue;
        }
        struct muster_transfer_list ended = {0};
        each->ops->withdraw(each, operation, &ended);
        muster_transfer_table_move(&each->receives, operation, &ended);
        complete_all(each, &ended, MUSTER_INVALID, reason);
    }
}

uint32_t muster_fabric_own_rank(const struct muster_fabric *fabric)
{
    return fabric->rank;
}

/* Notifies the peer first, with this member's rank; then ends the transfers here. */
void muster_link_check_signature(struct muster_link *link, const struct muster_message_key *key,
                                 const struct muster_call *call)
{
    struct muster_operation_id operation = muster_key_operation(key);
    if (key->generation != link->fabric->generation || muster_key_is_announced(key)) {
        return; /* the peer may have another rank in another generation */
    }
    const struct muster_signature *other =
        muster_signatures_note(&link->fabric->signatures, &operation, call, link->rank);
    if (other == NULL || muster_link_compare_calls(link, &other->call, call) == MUSTER_OK) {
        return;
    }
    /* The operation may have ended at this member: then it has no transfer whose failure would
     * notify the peer. */
    char reason[MUSTER_REASON_SIZE];
    (void)snprintf(reason, sizeof reason, "rank %u says: %s", muster_fabric_own_rank(link->fabric),
                   muster_last_error());
    link->ops->abort(link, &operation, reason);
    (void)snprintf(reason, sizeof reason, "%s", muster_last_error());
    muster_link_aborted(link, &operation, reason);
}

bool muster_fabric_stale(const struct muster_fabric *fabric, const struct muster_message_key *key)
{
    struct muster_operation_id operation = muster_key_operation(key);
    return key->generation < fabric->generation ||
           (key->generation == fabric->generation &&
            (muster_ended_operations_withdrawn(&fabric->ended, &operation) ||
             muster_ended_operations_aborted(&fabric->ended, &operation) != NULL));
}

uint32_t muster_link_segment_bytes(const struct muster_link *link, uint32_t most,
                                   uint32_t element_size_bytes)
{
    uint32_t bound = link->fabric->segment_bytes;
    uint32_t bytes = bound < most ? bound : most;
    return bytes / element_size_bytes * element_size_bytes;
}
