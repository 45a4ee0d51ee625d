/* Point to point, the receiving side: what a message leads to that comes in or finds its receive,
 * and what the end of a link does to those who wait. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/context/point_to_point_parts.h"

static struct muster_message_request *request_of(struct muster_waiting_receive *waiting)
{
    return (struct muster_message_request *)waiting; /* its first member */
}

static uint32_t rank_of(const struct muster_point_to_point *messages, uint32_t global_rank)
{
    return global_rank < messages->global_count ? messages->ranks_by_global[global_rank]
                                                : UINT32_MAX;
}

/* A match ---------------------------------------------------------------------------------------
 */

/* "" if the message fits into the receive. */
static void describe_mismatch(const struct muster_message_request *request,
                              const struct stored_message *stored, char *ret_text, size_t size)
{
    const struct muster_call *call = &stored->announced.call;
    const struct muster_message_call *what = &request->what;
    uint32_t source = stored->announced.peer;
    ret_text[0] = '\0';
    if (call->type != what->type) {
        (void)snprintf(ret_text, size,
                       "the message of rank %u with tag %u has elements of type %s, and the "
                       "receive takes %s",
                       source, call->root, muster_type_name((muster_type)call->type),
                       muster_type_name(what->type));
    } else if (call->count > what->count) {
        (void)snprintf(ret_text, size,
                       "the message of rank %u with tag %u has %" PRIu64
                       " elements of type %s, "
                       "and the receive has room for %zu",
                       source, call->root, call->count, muster_type_name(what->type), what->count);
    } else if (stored->announced.size_bytes != call->count * muster_type_size_bytes(what->type)) {
        (void)snprintf(ret_text, size,
                       "the message of rank %u with tag %u has %" PRIu64
                       " elements of type %s "
                       "in %" PRIu64 " bytes",
                       source, call->root, call->count, muster_type_name(what->type),
                       stored->announced.size_bytes);
    }
}

static void drop_data(struct muster_transfer *transfer, uint64_t offset_bytes, const void *data,
                      size_t size_bytes)
{
    (void)transfer;
    (void)offset_bytes;
    (void)data;
    (void)size_bytes;
}

static void post_receive_of(struct muster_message_request *request,
                            const struct stored_message *stored)
{
    const struct muster_announcement *announced = &stored->announced;
    bool dropped = request->dropped;
    request->call = announced->call;
    request->transfer = (struct muster_transfer){
        .key = announced->key,
        .call = &request->call,
        .direction = MUSTER_RECEIVE,
        .peer = announced->peer,
        .data = request->what.out,
        .size_bytes = announced->size_bytes,
        .consume = dropped ? drop_data : NULL,
        .element_size_bytes = dropped ? 1 : (uint32_t)muster_type_size_bytes(request->what.type),
        .done = muster_message_transfer_done,
        .owner = request,
    };
    muster_status status =
        muster_fabric_post_locked(request->owner->context->fabric, &request->transfer);
    if (status != MUSTER_OK) {
        muster_message_request_finish(request, status);
    }
}

/* A message to oneself. */
static void receive_own(struct muster_message_request *request, struct stored_message *stored)
{
    const void *data = stored->own_send != NULL ? stored->own_send->what.in : stored->own_copy;
    if (!request->dropped && stored->announced.size_bytes > 0) {
        memcpy(request->what.out, data, stored->announced.size_bytes);
    }
    char text[MUSTER_ERROR_MAX];
    memcpy(text, request->text, sizeof text);
    muster_status status = request->dropped ? MUSTER_INVALID : MUSTER_OK;
    muster_message_request_finish_with(request, status, text);
    if (stored->own_send != NULL) {
        muster_message_request_finish_with(stored->own_send, status, text);
    }
}

muster_message muster_stored_message_describe(const struct stored_message *stored)
{
    const struct muster_call *call = &stored->announced.call;
    return (muster_message){.source = stored->arrived.source,
                            .tag = stored->arrived.tag,
                            .count = (size_t)call->count,
                            .type = (muster_type)call->type,
                            .taken = stored->taken};
}

/* The receive gets the message, which is freed. */
void muster_message_receive(struct muster_message_request *request, struct stored_message *stored)
{
    struct muster_point_to_point *messages = request->owner;
    const struct muster_context *context = messages->context;
    const struct muster_announcement *announced = &stored->announced;
    request->waits = false;
    request->message = muster_stored_message_describe(stored);
    describe_mismatch(request, stored, request->text, sizeof request->text);
    request->dropped = request->text[0] != '\0';
    bool own = stored->arrived.source == context->rank;
    bool refused = false;
    if (request->dropped && !own) {
        char reason[MUSTER_REASON_SIZE];
        (void)snprintf(reason, sizeof reason, "rank %u says: %.220s",
                       muster_context_global_rank(context, context->rank), request->text);
        refused =
            muster_fabric_refuse_locked(context->fabric, announced->peer, &announced->key, reason);
    }
    if (own) {
        receive_own(request, stored);
    } else if (refused) {
        char text[MUSTER_ERROR_MAX];
        memcpy(text, request->text, sizeof text);
        muster_message_request_finish_with(request, MUSTER_INVALID, text);
    } else {
        post_receive_of(request, stored);
    }
    muster_stored_message_free(messages, stored);
}

void muster_messages_deliver(struct muster_point_to_point *messages, uint32_t source)
{
    struct muster_message_match match;
    while (muster_message_matching_deliver(&messages->matching, source, &match)) {
        muster_message_receive(request_of(match.receive), (struct stored_message *)match.message);
    }
    muster_messages_wake_observers(messages);
}

/* The listener ----------------------------------------------------------------------------------
 */

/* The waiting receives that name this source, which may be MUSTER_ANY_SOURCE, end. */
static void finish_waiting(struct muster_point_to_point *messages, uint32_t source,
                           muster_status status, const char *text)
{
    struct muster_waiting_receive *waiting = NULL;
    while ((waiting = muster_message_matching_take_waiting(&messages->matching, source)) != NULL) {
        muster_message_request_finish_with(request_of(waiting), status, text);
    }
}

/* The number of a message is in its key: its ordinal, and above that its lane. */
void muster_messages_announced(struct muster_announcement_listener *listener,
                               const struct muster_announcement *announced)
{
    struct muster_point_to_point *messages = (struct muster_point_to_point *)listener;
    uint32_t source = rank_of(messages, announced->peer);
    uint64_t number = (uint64_t)announced->key.lane << 32 | announced->key.ordinal;
    if (messages->broken != MUSTER_OK || source == UINT32_MAX ||
        !muster_message_matching_is_new(&messages->matching, source, number)) {
        return;
    }
    struct stored_message *stored = malloc(sizeof *stored);
    if (stored == NULL) {
        messages->broken = MUSTER_FATAL;
        (void)snprintf(messages->broken_text, sizeof messages->broken_text,
                       "no memory for a message of rank %u", announced->peer);
        struct muster_waiting_receive *waiting = NULL;
        while ((waiting = TAILQ_FIRST(&messages->matching.waiting)) != NULL) {
            muster_message_matching_withdraw(&messages->matching, waiting);
            muster_message_request_finish_with(request_of(waiting), MUSTER_FATAL,
                                               messages->broken_text);
        }
        return;
    }
    *stored = (struct stored_message){
        .arrived = {.source = source, .tag = announced->call.root, .number = number},
        .announced = *announced};
    muster_message_matching_add(&messages->matching, &stored->arrived);
    muster_messages_deliver(messages, source);
}

/* Whether a receive from any source can get no message any more. */
static bool all_have_ended(const struct muster_point_to_point *messages)
{
    uint32_t others = messages->matching.size - 1;
    return messages->lost_rank != UINT32_MAX || (others > 0 && messages->ended_count == others);
}

/* Why a receive from this source, which finds no message, need not wait; NULL: it waits. */
const char *muster_messages_find_end(const struct muster_point_to_point *messages, uint32_t source)
{
    if (source == MUSTER_ANY_SOURCE) {
        if (!all_have_ended(messages)) {
            return NULL;
        }
        if (messages->lost_rank == UINT32_MAX) {
            return "all other ranks have left";
        }
        source = messages->lost_rank;
    }
    const struct message_peer *peer = &messages->peers[source];
    return !peer->has_ended ? NULL : peer->reason != NULL ? peer->reason : "its link has ended";
}

void muster_messages_link_ended(struct muster_announcement_listener *listener, uint32_t peer,
                                bool left, const char *reason)
{
    struct muster_point_to_point *messages = (struct muster_point_to_point *)listener;
    uint32_t rank = rank_of(messages, peer);
    if (rank == UINT32_MAX || messages->peers[rank].has_ended) {
        return;
    }
    messages->peers[rank].has_ended = true;
    messages->peers[rank].reason = strdup(reason);
    messages->ended_count++;
    if (!left && messages->lost_rank == UINT32_MAX) {
        messages->lost_rank = rank;
    }
    muster_messages_wake_observers(messages);
    finish_waiting(messages, rank, MUSTER_REJOIN, reason);
    if (all_have_ended(messages)) {
        finish_waiting(messages, MUSTER_ANY_SOURCE, MUSTER_REJOIN,
                       muster_messages_find_end(messages, MUSTER_ANY_SOURCE));
    }
}
