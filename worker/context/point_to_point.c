/* Point to point: how sends and receives are posted and end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/base/cleanup.h"
#include "worker/context/point_to_point_parts.h"

enum {
    OWN_COPY_MAX = 16 * 1024,          /* a longer message to oneself waits for its receive */
    OWN_COPIES_BYTES_MAX = 1024 * 1024 /* of all of them */
};

/* Finishing -------------------------------------------------------------------------------------
 */

void muster_message_request_finish_with(struct muster_message_request *request,
                                        muster_status status, const char *text)
{
    request->status = status;
    if (status != MUSTER_OK) {
        (void)snprintf(request->text, sizeof request->text, "%s", text);
    }
    TAILQ_REMOVE(&request->owner->pending, request, order);
    request->waits = false;
    bool *awake = request->awake;
    __atomic_store_n(&request->finished, true, __ATOMIC_SEQ_CST); /* now it may be freed */
    if (awake != NULL) { /* last: whoever clears it looks at `finished` after that */
        __atomic_store_n(awake, true, __ATOMIC_SEQ_CST);
    }
}

/* With the text of muster_last_error(). */
void muster_message_request_finish(struct muster_message_request *request, muster_status status)
{
    muster_message_request_finish_with(request, status,
                                       status != MUSTER_OK ? muster_last_error() : "");
}

void muster_message_transfer_done(struct muster_transfer *transfer)
{
    struct muster_message_request *request = transfer->owner;
    if (transfer->status == MUSTER_OK && request->dropped) {
        char text[MUSTER_ERROR_MAX];
        memcpy(text, request->text, sizeof text);
        muster_message_request_finish_with(request, MUSTER_INVALID, text);
    } else {
        muster_message_request_finish(request, transfer->status);
    }
}

void muster_stored_message_free(struct muster_point_to_point *messages,
                                struct stored_message *stored)
{
    if (stored->own_copy != NULL) {
        messages->own_bytes -= stored->announced.size_bytes;
        free(stored->own_copy);
    }
    free(stored);
}

/* Posting ---------------------------------------------------------------------------------------
 */

static muster_status post_send(struct muster_message_request *request)
{
    struct muster_point_to_point *messages = request->owner;
    const struct muster_context *context = messages->context;
    const struct muster_message_call *what = &request->what;
    struct message_peer *peer = &messages->peers[what->peer];
    uint64_t element_size_bytes = muster_type_size_bytes(what->type);
    request->call = muster_message_wire_call(what);
    request->transfer = (struct muster_transfer){
        .key = muster_message_key_of(context, peer->sent),
        .call = &request->call,
        .direction = MUSTER_SEND,
        .peer = muster_context_global_rank(context, what->peer),
        .data = (void *)what->in, /* only read */
        .size_bytes = what->count * element_size_bytes,
        .element_size_bytes = (uint32_t)element_size_bytes,
        .priority = what->priority,
        .done = muster_message_transfer_done,
        .owner = request,
    };
    TRY(muster_fabric_post_locked(context->fabric, &request->transfer));
    peer->sent++;
    muster_fabric_finish_posted_locked(context->fabric, &request->transfer);
    return MUSTER_OK;
}

/* Stores a copy of a message to oneself that has found no receive, if it is small: then its send is
 * done. */
static void copy_own(struct muster_message_request *request, struct stored_message *stored)
{
    struct muster_point_to_point *messages = request->owner;
    uint64_t size_bytes = stored->announced.size_bytes;
    if (size_bytes > OWN_COPY_MAX || messages->own_bytes + size_bytes > OWN_COPIES_BYTES_MAX) {
        return;
    }
    stored->own_copy = malloc(size_bytes + 1);
    if (stored->own_copy == NULL) {
        return; /* it waits for its receive */
    }
    if (size_bytes > 0) {
        memcpy(stored->own_copy, request->what.in, size_bytes);
    }
    messages->own_bytes += size_bytes;
    stored->own_send = NULL;
    muster_message_request_finish(request, MUSTER_OK);
}

static muster_status send_to_oneself(struct muster_message_request *request)
{
    struct muster_point_to_point *messages = request->owner;
    const struct muster_context *context = messages->context;
    const struct muster_message_call *what = &request->what;
    uint64_t number = messages->peers[what->peer].sent++;
    struct stored_message *stored = malloc(sizeof *stored);
    if (stored == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for a message to oneself");
    }
    *stored = (struct stored_message){
        .arrived = {.source = what->peer, .tag = what->tag, .number = number},
        .announced = {.peer = muster_context_global_rank(context, what->peer),
                      .key = muster_message_key_of(context, number),
                      .call = muster_message_wire_call(what),
                      .size_bytes = what->count * muster_type_size_bytes(what->type)},
        .own_send = request};
    muster_message_matching_add(&messages->matching, &stored->arrived);
    muster_messages_deliver(messages, what->peer);
    if (!request->finished) { /* so the message is still stored */
        copy_own(request, stored);
    }
    return MUSTER_OK;
}

/* The link to a named source is opened, so that its death is noticed. */
static muster_status post_receive(struct muster_message_request *request)
{
    struct muster_point_to_point *messages = request->owner;
    const struct muster_context *context = messages->context;
    uint32_t source = request->what.peer;
    request->waiting = (struct muster_waiting_receive){.source = source, .tag = request->what.tag};
    if (source != MUSTER_ANY_SOURCE && source != context->rank) {
        muster_fabric_open_locked(context->fabric, context->generation,
                                  muster_context_global_rank(context, source));
    }
    struct muster_arrived_message *message =
        muster_message_matching_post(&messages->matching, &request->waiting);
    if (message != NULL) {
        muster_message_receive(request, (struct stored_message *)message);
        return MUSTER_OK;
    }
    request->waits = true;
    const char *ended = muster_messages_find_end(messages, source);
    if (ended != NULL) {
        muster_message_matching_withdraw(&messages->matching, &request->waiting);
        return muster_error_set(MUSTER_REJOIN, "%s", ended);
    }
    return MUSTER_OK;
}

/* Takes it out of the taken ones; NULL: it is not there. */
static struct stored_message *find_taken(struct muster_point_to_point *messages, uint64_t number)
{
    struct muster_arrived_message *each = NULL;
    TAILQ_FOREACH(each, &messages->taken, order)
    {
        struct stored_message *stored = (struct stored_message *)each; /* its first member */
        if (stored->taken == number) {
            TAILQ_REMOVE(&messages->taken, each, order);
            return stored;
        }
    }
    return NULL;
}

static muster_status post_taken(struct muster_message_request *request)
{
    struct stored_message *stored = find_taken(request->owner, request->what.taken);
    if (stored == NULL) {
        return muster_error_set(MUSTER_INVALID,
                                "message %llu was not taken here, or has been received",
                                (unsigned long long)request->what.taken);
    }
    muster_message_receive(request, stored);
    return MUSTER_OK;
}

static muster_status post(struct muster_message_request *request)
{
    const struct muster_point_to_point *messages = request->owner;
    if (messages->broken != MUSTER_OK) {
        return muster_error_set(messages->broken, "%s", messages->broken_text);
    }
    if (request->what.direction == MUSTER_RECEIVE) {
        return request->what.taken != 0 ? post_taken(request) : post_receive(request);
    }
    return request->what.peer == messages->context->rank ? send_to_oneself(request)
                                                         : post_send(request);
}

bool muster_message_request_start(struct muster_point_to_point *messages,
                                  const struct muster_message_call *what, bool *awake,
                                  struct muster_message_request *request)
{
    struct muster_fabric *fabric = messages->context->fabric;
    request->what = *what;
    request->context = messages->context;
    request->owner = messages;
    request->waits = false;
    request->dropped = false;
    request->awake = awake;
    request->finished = false;
    request->status = MUSTER_OK;
    request->suspect = UINT32_MAX;
    request->text[0] = '\0';
    muster_fabric_begin_posting(fabric);
    TAILQ_INSERT_TAIL(&messages->pending, request, order);
    muster_status status = post(request);
    if (status != MUSTER_OK) {
        muster_message_request_finish(request, status);
    }
    bool finished = request->finished;
    muster_fabric_end_posting(fabric);
    return finished;
}

/* The end ---------------------------------------------------------------------------------------
 */

/* All that is under way ends, and what has arrived is dropped. The transfers have been withdrawn.
 */
static void finish_all_locked(struct muster_point_to_point *messages)
{
    struct muster_message_request *request = NULL;
    struct muster_arrived_message *message = NULL;
    while ((request = TAILQ_FIRST(&messages->pending)) != NULL) {
        if (request->waits) {
            muster_message_matching_withdraw(&messages->matching, &request->waiting);
        }
        muster_message_request_finish_with(request, messages->broken, messages->broken_text);
    }
    while ((message = muster_message_matching_take_any(&messages->matching)) != NULL) {
        muster_stored_message_free(messages, (struct stored_message *)message);
    }
    while ((message = TAILQ_FIRST(&messages->taken)) != NULL) {
        TAILQ_REMOVE(&messages->taken, message, order);
        muster_stored_message_free(messages, (struct stored_message *)message);
    }
    muster_messages_wake_observers(messages);
}

/* Nothing is posted any more from when it is broken; the transfers are withdrawn without the lock;
 * then nobody else touches the requests. */
static void break_messages(struct muster_point_to_point *messages)
{
    const struct muster_context *context = messages->context;
    muster_fabric_withdraw(context->fabric, context->generation, messages->listener.context,
                           MUSTER_ANNOUNCED_SEQUENCE);
    muster_fabric_begin_posting(context->fabric);
    finish_all_locked(messages);
    muster_fabric_end_posting(context->fabric);
}

void muster_message_request_give_up(struct muster_message_request *request, muster_status status)
{
    struct muster_point_to_point *messages = request->owner;
    struct muster_fabric *fabric = messages->context->fabric;
    const struct muster_context *context = messages->context;
    uint32_t peer = request->what.peer;
    muster_fabric_begin_posting(fabric);
    bool finished = request->finished;
    if (!finished && messages->broken == MUSTER_OK) {
        messages->broken = status == MUSTER_RETRY ? MUSTER_REJOIN : status;
        (void)snprintf(messages->broken_text, sizeof messages->broken_text, "%.400s",
                       muster_last_error());
        if (status == MUSTER_RETRY && peer != MUSTER_ANY_SOURCE) {
            request->suspect =
                peer != context->rank ? muster_context_global_rank(context, peer) : UINT32_MAX;
            (void)snprintf(messages->broken_text, sizeof messages->broken_text,
                           "the deadline passed while rank %u waited for rank %u",
                           muster_context_global_rank(context, context->rank),
                           muster_context_global_rank(context, peer));
        }
    }
    muster_fabric_end_posting(fabric);
    if (!finished) {
        break_messages(messages);
    }
}

muster_status muster_point_to_point_create(struct muster_context *context,
                                           struct muster_point_to_point **ret_messages)
{
    uint32_t size = context->topology.ranks;
    uint32_t most = muster_context_global_rank(context, 0);
    for (uint32_t i = 1; i < size; i++) {
        most = muster_context_global_rank(context, i) > most
                   ? muster_context_global_rank(context, i)
                   : most;
    }
    struct muster_point_to_point *messages = calloc(1, sizeof *messages);
    if (messages == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory for messages of context %s",
                                context->name);
    }
    messages->context = context;
    messages->lost_rank = UINT32_MAX;
    messages->global_count = most + 1; /* ranks are far below 2^32 */
    TAILQ_INIT(&messages->pending);
    TAILQ_INIT(&messages->observers);
    TAILQ_INIT(&messages->taken);
    messages->peers = calloc(size, sizeof *messages->peers);
    messages->ranks_by_global = malloc(messages->global_count * sizeof *messages->ranks_by_global);
    if (muster_message_matching_init(&messages->matching, size) != MUSTER_OK ||
        messages->peers == NULL || messages->ranks_by_global == NULL) {
        muster_message_matching_finish(&messages->matching);
        free(messages->peers);
        free(messages->ranks_by_global);
        free(messages);
        return muster_error_set(MUSTER_FATAL, "no memory for messages of context %s",
                                context->name);
    }
    memset(messages->ranks_by_global, 0xff,
           messages->global_count * sizeof *messages->ranks_by_global);
    for (uint32_t i = 0; i < size; i++) {
        messages->ranks_by_global[muster_context_global_rank(context, i)] = i;
    }
    messages->listener =
        (struct muster_announcement_listener){.generation = context->generation,
                                              .context = context->number | MUSTER_ANNOUNCED_CONTEXT,
                                              .announced = muster_messages_announced,
                                              .link_ended = muster_messages_link_ended};
    muster_fabric_listen(context->fabric, &messages->listener);
    *ret_messages = messages;
    return MUSTER_OK;
}

void muster_point_to_point_destroy(struct muster_point_to_point *messages)
{
    if (messages == NULL) {
        return;
    }
    struct muster_fabric *fabric = messages->context->fabric;
    muster_fabric_unlisten(fabric, &messages->listener);
    if (messages->broken == MUSTER_OK) {
        messages->broken = MUSTER_REJOIN;
    }
    break_messages(messages);
    for (uint32_t i = 0; i < messages->matching.size; i++) {
        free(messages->peers[i].reason);
    }
    muster_message_matching_finish(&messages->matching);
    free(messages->peers);
    free(messages->ranks_by_global);
    free(messages);
}
