/* Matching, the sending side: which frames are sent next, and what each post, grant and withdrawal
 * leads to. */
#include "worker/fabric/link_trace.h"
#include "worker/fabric/wire/match_parts.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* Queues ------------------------------------------------------------------------------------- */

unsigned char *muster_frame_queue_extend(struct muster_frame_queue *queue, size_t size)
{
    if (queue->start == queue->end) {
        queue->start = 0;
        queue->end = 0;
    }
    if (queue->end + size > queue->room) {
        size_t room = 2 * (queue->end + size);
        unsigned char *bytes = realloc(queue->bytes, room);
        if (bytes == NULL) {
            return NULL;
        }
        queue->bytes = bytes;
        queue->room = room;
    }
    queue->end += size;
    return queue->bytes + queue->end - size;
}

void muster_match_encode(struct muster_match *match, struct muster_frame *frame,
                         unsigned char ret_header[MUSTER_FRAME_SIZE])
{
    frame->credit = (uint32_t)match->eager_owed_bytes;
    match->eager_owed_bytes = 0;
    if (match->unchecked) {
        muster_frame_encode_unchecked(frame, ret_header);
    } else {
        muster_frame_encode(frame, ret_header);
    }
}

static void queue_control(struct muster_match *match, struct muster_frame *frame,
                          const char *payload)
{
    unsigned char *bytes =
        muster_frame_queue_extend(&match->control, MUSTER_FRAME_SIZE + frame->length);
    if (bytes == NULL) {
        match->broken = true;
    } else {
        muster_match_encode(match, frame, bytes);
        if (frame->length > 0) {
            memcpy(bytes + MUSTER_FRAME_SIZE, payload, frame->length);
        }
    }
    muster_link_mark(match->link);
}

static struct muster_frame frame_about(enum muster_frame_kind kind,
                                       const struct muster_transfer *transfer)
{
    return (struct muster_frame){
        .kind = kind, .key = transfer->key, .call = *transfer->call, .total = transfer->size_bytes};
}

void muster_match_queue_about(struct muster_match *match, enum muster_frame_kind kind,
                              const struct muster_transfer *transfer)
{
    struct muster_frame frame = frame_about(kind, transfer);
    queue_control(match, &frame, NULL);
}

static void queue_offer(struct muster_match *match, struct muster_transfer *transfer)
{
    unsigned char payload[MUSTER_OFFER_MAX];
    struct muster_frame frame = frame_about(MUSTER_FRAME_OFFER, transfer);
    if (match->get_ops != NULL && transfer->size_bytes > MUSTER_EAGER_MAX) {
        frame.length = match->get_ops->describe(match, transfer, payload);
    }
    queue_control(match, &frame, (const char *)payload);
}

static void queue_grant(struct muster_match *match, const struct muster_transfer *transfer)
{
    struct muster_frame frame = frame_about(MUSTER_FRAME_GRANT, transfer);
    frame.offset = match->get_ops != NULL ? MUSTER_GRANT_BY_GET : 0;
    queue_control(match, &frame, NULL);
}

void muster_match_retract_offer(struct muster_match *match, const struct muster_transfer *transfer)
{
    if (match->get_ops != NULL) {
        match->get_ops->retract(match, transfer);
    }
}

void muster_match_credit(struct muster_match *match, uint64_t bytes)
{
    match->eager_owed_bytes += bytes;
    if (match->eager_owed_bytes >= MUSTER_EAGER_WINDOW_BYTES / 4) {
        struct muster_frame frame = {.kind = MUSTER_FRAME_CREDIT};
        queue_control(match, &frame, NULL);
    }
}

/* Posting ------------------------------------------------------------------------------------ */

static uint64_t charge_of(const struct muster_transfer *transfer)
{
    return transfer->size_bytes + MUSTER_EAGER_CHARGE_BYTES;
}

static bool fits_eager_window(const struct muster_match *match,
                              const struct muster_transfer *transfer)
{
    return transfer->size_bytes <= MUSTER_EAGER_MAX &&
           match->eager_out_bytes + charge_of(transfer) <= MUSTER_EAGER_WINDOW_BYTES;
}

void muster_match_queue_matched(struct muster_match *match, struct muster_unexpected *unexpected)
{
    DL_APPEND(match->matched, unexpected);
    muster_link_mark(match->link);
}

/* A stored grant is handled first: the peer has posted the receive already. */
void muster_match_post_send(struct muster_match *match, struct muster_transfer *transfer)
{
    struct muster_unexpected *grant =
        match->unexpected.count > 0
            ? muster_unexpected_take(&match->unexpected, &transfer->key, true)
            : NULL;
    if (grant != NULL) {
        muster_transfer_table_insert(&match->waiting, transfer);
        if (grant->frame.offset == MUSTER_GRANT_BY_GET) {
            queue_offer(match, transfer);
        }
        muster_match_queue_matched(match, grant);
    } else if (fits_eager_window(match, transfer)) {
        transfer->link_word = MUSTER_WORD_EAGER;
        match->eager_out_bytes += charge_of(transfer);
        muster_transfer_list_insert(&match->ready, transfer);
        muster_link_mark(match->link);
    } else {
        muster_transfer_table_insert(&match->waiting, transfer);
        queue_offer(match, transfer);
    }
}

void muster_match_post_receive(struct muster_match *match, struct muster_transfer *transfer)
{
    struct muster_unexpected *unexpected =
        match->unexpected.count > 0
            ? muster_unexpected_take(&match->unexpected, &transfer->key, false)
            : NULL;
    if (unexpected != NULL) {
        muster_match_queue_matched(match, unexpected);
    } else if (transfer->size_bytes > MUSTER_EAGER_MAX) {
        transfer->link_word = match->get_ops != NULL ? 0 : MUSTER_WORD_GRANTED;
        queue_grant(match, transfer);
    }
}

void muster_match_abort(struct muster_match *match, const struct muster_operation_id *operation,
                        const char *reason)
{
    struct muster_frame frame = {
        .kind = MUSTER_FRAME_ABORT,
        .key = {.generation = operation->generation,
                .sequence = operation->sequence,
                .context = operation->context},
        .length = (uint32_t)strnlen(reason, MUSTER_REASON_SIZE - 1),
    };
    queue_control(match, &frame, reason);
}

/* Sends it also for a send that waits for a grant: the offer may have arrived after the operation
 * had ended at the peer, which then dropped it. */
void muster_match_send_signature(struct muster_match *match,
                                 const struct muster_operation_id *operation)
{
    const struct muster_transfer *transfer =
        muster_transfer_table_any(&match->link->receives, operation);
    if (transfer == NULL) {
        transfer = muster_transfer_table_any(&match->waiting, operation);
    }
    if (transfer != NULL) {
        muster_match_queue_about(match, MUSTER_FRAME_SIGNATURE, transfer);
    }
}

void muster_match_announce(struct muster_match *match, const struct muster_operation_id *operation)
{
    for (uint32_t i = 0; i < MUSTER_TRANSFER_BUCKETS && match->unexpected.count > 0; i++) {
        const struct muster_unexpected *each = NULL;
        DL_FOREACH(match->unexpected.buckets[i], each)
        {
            if (muster_operation_has(operation, &each->frame.key) &&
                each->frame.kind != MUSTER_FRAME_GRANT) {
                muster_link_announce(match->link, &each->frame.key, &each->frame.call,
                                     each->frame.total);
            }
        }
    }
}

bool muster_match_refuse(struct muster_match *match, const struct muster_message_key *key,
                         const char *reason)
{
    struct muster_unexpected *offer = muster_unexpected_take_offer(&match->unexpected, key);
    if (offer == NULL) {
        return false;
    }
    struct muster_frame frame = {.kind = MUSTER_FRAME_REFUSAL,
                                 .key = *key,
                                 .length = (uint32_t)strnlen(reason, MUSTER_REASON_SIZE - 1)};
    queue_control(match, &frame, reason);
    free(offer);
    return true;
}

void muster_match_goodbye(struct muster_match *match)
{
    struct muster_frame frame = {.kind = MUSTER_FRAME_GOODBYE};
    queue_control(match, &frame, NULL);
}

/* Withdrawing -------------------------------------------------------------------------------- */

static void drop_unexpected(struct muster_match *match, struct muster_unexpected *unexpected)
{
    uint64_t charge = muster_unexpected_charge(&unexpected->frame);
    match->unexpected_bytes -= charge;
    muster_match_credit(match, charge);
    free(unexpected);
}

static void drop_matched(struct muster_match *match, const struct muster_operation_id *operation)
{
    struct muster_unexpected *unexpected = NULL;
    struct muster_unexpected *next = NULL;
    DL_FOREACH_SAFE(match->matched, unexpected, next)
    {
        if (operation == NULL || muster_operation_has(operation, &unexpected->frame.key)) {
            DL_DELETE(match->matched, unexpected);
            drop_unexpected(match, unexpected);
        }
    }
}

/* Drops the gets of the operation; all gets if that is NULL. */
static void drop_gets(struct muster_match *match, const struct muster_operation_id *operation)
{
    struct muster_unexpected *get = NULL;
    struct muster_unexpected *next = NULL;
    DL_FOREACH_SAFE(match->gets, get, next)
    {
        if (operation == NULL || muster_operation_has(operation, &get->frame.key)) {
            DL_DELETE(match->gets, get);
            free(get);
        }
    }
}

/* A withdrawn EAGER send that is in no frame yet returns its part of the window; offers are
 * retracted before the caller may change the data; credit for dropped messages goes back to the
 * peer. */
void muster_match_withdraw(struct muster_match *match, const struct muster_operation_id *operation,
                           struct muster_transfer_list *ret_sends)
{
    struct muster_transfer_list ready = {0};
    muster_transfer_list_move(&match->ready, operation, &ready);
    for (const struct muster_transfer *each = ready.first; each != NULL; each = each->next) {
        match->eager_out_bytes -= (each->link_word & MUSTER_WORD_EAGER) != 0 ? charge_of(each) : 0;
    }
    muster_transfer_list_splice(&ready, ret_sends);
    muster_transfer_list_move(&match->draining, operation, ret_sends);
    struct muster_transfer_list waiting = {0};
    muster_transfer_table_move(&match->waiting, operation, &waiting);
    for (const struct muster_transfer *each = waiting.first; each != NULL; each = each->next) {
        muster_match_retract_offer(match, each);
    }
    muster_transfer_list_splice(&waiting, ret_sends);
    drop_gets(match, operation);
    uint64_t credit = muster_unexpected_drop(&match->unexpected, operation, 0);
    match->unexpected_bytes -= credit;
    muster_match_credit(match, credit);
    drop_matched(match, operation);
}

void muster_match_begin_generation(struct muster_match *match)
{
    drop_matched(match, NULL);
    drop_gets(match, NULL);
    uint64_t credit =
        muster_unexpected_drop(&match->unexpected, NULL, match->link->fabric->generation);
    match->unexpected_bytes -= credit;
    muster_match_credit(match, credit);
    if (match->link->state == MUSTER_LINK_OPEN) {
        const struct muster_fabric *fabric = match->link->fabric;
        struct muster_frame frame = {.kind = MUSTER_FRAME_RANK,
                                     .key.generation = fabric->generation,
                                     .call.root = muster_fabric_own_rank(fabric)};
        queue_control(match, &frame, NULL);
    }
}

void muster_match_peer_left(struct muster_match *match, struct muster_transfer_list *ret_sends)
{
    muster_transfer_list_splice(&match->ready, ret_sends);
    muster_transfer_list_splice(&match->draining, ret_sends);
    muster_transfer_table_splice(&match->waiting, ret_sends);
    drop_gets(match, NULL);
}

void muster_match_finish(struct muster_match *match, struct muster_transfer_list *ret_sends)
{
    muster_match_peer_left(match, ret_sends);
    (void)muster_unexpected_drop(&match->unexpected, NULL, UINT64_MAX);
    struct muster_unexpected *unexpected = NULL;
    struct muster_unexpected *next = NULL;
    DL_FOREACH_SAFE(match->matched, unexpected, next)
    {
        DL_DELETE(match->matched, unexpected);
        free(unexpected);
    }
    free(match->control.bytes);
    match->control = (struct muster_frame_queue){0};
}

/* Sending ------------------------------------------------------------------------------------ */

static void set_payload(const struct muster_transfer *transfer, uint64_t offset,
                        struct muster_outgoing *outgoing)
{
    bool in_ranges = transfer->ranges != NULL;
    outgoing->data = in_ranges ? NULL : (unsigned char *)transfer->data + offset;
    outgoing->ranges = transfer->ranges;
    outgoing->ranges_at_bytes = transfer->ranges_at_bytes + offset;
    outgoing->offset_bytes = offset;
}

static void segment_frame(struct muster_match *match, struct muster_transfer *transfer,
                          struct muster_outgoing *outgoing)
{
    uint64_t offset = transfer->link_word;
    uint64_t left = transfer->size_bytes - offset;
    uint32_t most = match->payload_max != 0 ? match->payload_max : MUSTER_FRAME_PAYLOAD_MAX;
    most = muster_link_segment_bytes(match->link, most, transfer->element_size_bytes);
    outgoing->size = (uint32_t)(left < most ? left : most);
    set_payload(transfer, offset, outgoing);
    outgoing->last = outgoing->size == left;
    transfer->link_word = offset + outgoing->size;
    struct muster_frame frame = {.kind = MUSTER_FRAME_SEGMENT,
                                 .key = transfer->key,
                                 .call = *transfer->call,
                                 .offset = offset,
                                 .total = transfer->size_bytes,
                                 .length = outgoing->size};
    muster_match_encode(match, &frame, outgoing->header);
}

static void eager_frame(struct muster_match *match, struct muster_transfer *transfer,
                        struct muster_outgoing *outgoing)
{
    outgoing->size = (uint32_t)transfer->size_bytes;
    set_payload(transfer, 0, outgoing);
    outgoing->last = true;
    outgoing->charge_bytes = (uint32_t)charge_of(transfer);
    struct muster_frame frame = {.kind = MUSTER_FRAME_EAGER,
                                 .key = transfer->key,
                                 .call = *transfer->call,
                                 .total = transfer->size_bytes,
                                 .length = outgoing->size};
    muster_match_encode(match, &frame, outgoing->header);
}

uint64_t muster_match_taken(const struct muster_transfer *transfer)
{
    return transfer->link_word & ~MUSTER_WORD_EAGER;
}

bool muster_match_next(struct muster_match *match, struct muster_outgoing *ret_outgoing)
{
    struct muster_transfer *transfer = muster_transfer_list_pop(&match->ready);
    if (transfer == NULL) {
        return false;
    }
    ret_outgoing->transfer = transfer;
    ret_outgoing->charge_bytes = 0;
    ret_outgoing->started_ns = muster_link_clock(match->link);
    transfer->begun_ns = transfer->begun_ns != 0 ? transfer->begun_ns : ret_outgoing->started_ns;
    if ((transfer->link_word & MUSTER_WORD_EAGER) != 0) {
        eager_frame(match, transfer, ret_outgoing);
    } else {
        segment_frame(match, transfer, ret_outgoing);
    }
    /* The other sends of its priority have their turn before this one's next segment. */
    muster_transfer_list_insert(ret_outgoing->last ? &match->draining : &match->ready, transfer);
    return true;
}

void muster_match_sent(struct muster_match *match, const struct muster_outgoing *outgoing)
{
    struct muster_transfer *transfer = outgoing->transfer;
    if (transfer == NULL) {
        return;
    }
    match->link->activity++;
    muster_link_add_part(match->link, transfer,
                         (struct muster_link_part){MUSTER_TIMELINE_SEND_SEGMENT,
                                                   outgoing->started_ns, transfer->moved_bytes,
                                                   outgoing->size});
    transfer->moved_bytes += outgoing->size;
    if (outgoing->last) {
        muster_transfer_list_remove(&match->draining, transfer);
        if (match->posting) {
            muster_transfer_complete_later(match->link, transfer);
        } else {
            muster_transfer_complete(match->link, transfer, MUSTER_OK);
        }
    }
}

void muster_match_unsent(struct muster_match *match, const struct muster_outgoing *outgoing)
{
    match->eager_out_bytes -= outgoing->charge_bytes;
}
