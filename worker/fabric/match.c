#include "worker/fabric/match.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* transfer->link_word of a send: the offset of the next segment, and EAGER; of a receive: GRANTED.
 */
#define WORD_EAGER (UINT64_C(1) << 63)
enum { WORD_GRANTED = 1 };

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

/* Every frame that goes out carries the credit there is. */
static void encode(struct muster_match *match, struct muster_frame *frame, unsigned char *bytes)
{
    frame->credit = (uint32_t)match->eager_owed_bytes;
    match->eager_owed_bytes = 0;
    if (match->local) {
        muster_frame_encode_local(frame, bytes);
    } else {
        muster_frame_encode(frame, bytes);
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
        encode(match, frame, bytes);
        if (frame->length > 0) {
            memcpy(bytes + MUSTER_FRAME_SIZE, payload, frame->length);
        }
    }
    muster_link_mark(match->link);
}

static void queue_about(struct muster_match *match, enum muster_frame_kind kind,
                        const struct muster_transfer *transfer)
{
    struct muster_frame frame = {
        .kind = kind, .key = transfer->key, .call = *transfer->call, .total = transfer->size_bytes};
    queue_control(match, &frame, NULL);
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

static bool may_go_eagerly(const struct muster_match *match, const struct muster_transfer *transfer)
{
    return transfer->size_bytes <= MUSTER_EAGER_MAX &&
           match->eager_out_bytes + charge_of(transfer) <= MUSTER_EAGER_WINDOW_BYTES;
}

static void make_due(struct muster_match *match, struct muster_early *early)
{
    DL_APPEND(match->due, early);
    muster_link_mark(match->link);
}

void muster_match_post_send(struct muster_match *match, struct muster_transfer *transfer)
{
    struct muster_early *grant =
        match->early.count > 0 ? muster_early_take(&match->early, &transfer->key, true) : NULL;
    if (grant != NULL) {
        muster_transfer_table_insert(&match->waiting, transfer);
        make_due(match, grant);
    } else if (may_go_eagerly(match, transfer)) {
        transfer->link_word = WORD_EAGER;
        match->eager_out_bytes += charge_of(transfer);
        muster_transfer_list_append(&match->ready, transfer);
        muster_link_mark(match->link);
    } else {
        muster_transfer_table_insert(&match->waiting, transfer);
        queue_about(match, MUSTER_FRAME_OFFER, transfer);
    }
}

void muster_match_post_receive(struct muster_match *match, struct muster_transfer *transfer)
{
    struct muster_early *early =
        match->early.count > 0 ? muster_early_take(&match->early, &transfer->key, false) : NULL;
    if (early != NULL) {
        make_due(match, early);
    } else if (transfer->size_bytes > MUSTER_EAGER_MAX) {
        transfer->link_word = WORD_GRANTED;
        queue_about(match, MUSTER_FRAME_GRANT, transfer);
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

void muster_match_goodbye(struct muster_match *match)
{
    struct muster_frame frame = {.kind = MUSTER_FRAME_GOODBYE};
    queue_control(match, &frame, NULL);
}

/* Taking back -------------------------------------------------------------------------------- */

static void drop_early(struct muster_match *match, struct muster_early *early)
{
    uint64_t charge = muster_early_charge(&early->frame);
    match->early_bytes -= charge;
    muster_match_credit(match, charge);
    free(early);
}

static void drop_due(struct muster_match *match, const struct muster_operation_id *operation)
{
    struct muster_early *early = NULL;
    struct muster_early *next = NULL;
    DL_FOREACH_SAFE(match->due, early, next)
    {
        if (operation == NULL || muster_operation_has(operation, &early->frame.key)) {
            DL_DELETE(match->due, early);
            drop_early(match, early);
        }
    }
}

void muster_match_withdraw(struct muster_match *match, const struct muster_operation_id *operation,
                           struct muster_transfer_list *ret_sends)
{
    struct muster_transfer_list ready = {0};
    muster_transfer_list_move(&match->ready, operation, &ready);
    for (const struct muster_transfer *each = ready.first; each != NULL; each = each->next) {
        match->eager_out_bytes -= (each->link_word & WORD_EAGER) != 0 ? charge_of(each) : 0;
    }
    muster_transfer_list_splice(&ready, ret_sends);
    muster_transfer_list_move(&match->leaving, operation, ret_sends);
    muster_transfer_table_move(&match->waiting, operation, ret_sends);
    uint64_t credit = muster_early_drop(&match->early, operation, 0);
    match->early_bytes -= credit;
    muster_match_credit(match, credit);
    drop_due(match, operation);
}

void muster_match_begin_generation(struct muster_match *match)
{
    drop_due(match, NULL);
    uint64_t credit = muster_early_drop(&match->early, NULL, match->link->fabric->generation);
    match->early_bytes -= credit;
    muster_match_credit(match, credit);
}

void muster_match_left(struct muster_match *match, struct muster_transfer_list *ret_sends)
{
    muster_transfer_list_splice(&match->ready, ret_sends);
    muster_transfer_list_splice(&match->leaving, ret_sends);
    muster_transfer_table_splice(&match->waiting, ret_sends);
}

void muster_match_finish(struct muster_match *match, struct muster_transfer_list *ret_sends)
{
    muster_match_left(match, ret_sends);
    (void)muster_early_drop(&match->early, NULL, UINT64_MAX);
    struct muster_early *early = NULL;
    struct muster_early *next = NULL;
    DL_FOREACH_SAFE(match->due, early, next)
    {
        DL_DELETE(match->due, early);
        free(early);
    }
    free(match->control.bytes);
    match->control = (struct muster_frame_queue){0};
}

/* Going out ---------------------------------------------------------------------------------- */

static void next_segment(struct muster_match *match, struct muster_transfer *transfer,
                         struct muster_outgoing *outgoing)
{
    uint64_t offset = transfer->link_word;
    uint64_t left = transfer->size_bytes - offset;
    uint32_t most = match->payload_max != 0 ? match->payload_max : MUSTER_FRAME_PAYLOAD_MAX;
    most = muster_link_segment_bytes(match->link, most, transfer->element_size_bytes);
    outgoing->size = (uint32_t)(left < most ? left : most);
    outgoing->data = (unsigned char *)transfer->data + offset;
    outgoing->last = outgoing->size == left;
    transfer->link_word = offset + outgoing->size;
    struct muster_frame frame = {.kind = MUSTER_FRAME_SEGMENT,
                                 .key = transfer->key,
                                 .call = *transfer->call,
                                 .offset = offset,
                                 .total = transfer->size_bytes,
                                 .length = outgoing->size};
    encode(match, &frame, outgoing->header);
}

static void whole_message(struct muster_match *match, struct muster_transfer *transfer,
                          struct muster_outgoing *outgoing)
{
    outgoing->size = (uint32_t)transfer->size_bytes;
    outgoing->data = transfer->data;
    outgoing->last = true;
    outgoing->charge_bytes = (uint32_t)charge_of(transfer);
    struct muster_frame frame = {.kind = MUSTER_FRAME_EAGER,
                                 .key = transfer->key,
                                 .call = *transfer->call,
                                 .total = transfer->size_bytes,
                                 .length = outgoing->size};
    encode(match, &frame, outgoing->header);
}

bool muster_match_next(struct muster_match *match, struct muster_outgoing *ret_outgoing)
{
    struct muster_transfer *transfer = muster_transfer_list_pop(&match->ready);
    if (transfer == NULL) {
        return false;
    }
    ret_outgoing->transfer = transfer;
    ret_outgoing->charge_bytes = 0;
    if ((transfer->link_word & WORD_EAGER) != 0) {
        whole_message(match, transfer, ret_outgoing);
    } else {
        next_segment(match, transfer, ret_outgoing);
    }
    /* The others have their turn before this one's next segment. */
    muster_transfer_list_append(ret_outgoing->last ? &match->leaving : &match->ready, transfer);
    return true;
}

void muster_match_sent(struct muster_match *match, const struct muster_outgoing *outgoing)
{
    struct muster_transfer *transfer = outgoing->transfer;
    if (transfer == NULL) {
        return;
    }
    transfer->moved_bytes += outgoing->size;
    if (outgoing->last) {
        muster_transfer_list_remove(&match->leaving, transfer);
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

/* Coming in ---------------------------------------------------------------------------------- */

/* A receive ends with INVALID because the peer says something else. */
static bool fits(struct muster_match *match, struct muster_transfer *receive,
                 const struct muster_frame *frame)
{
    muster_status status = muster_transfer_check(match->link, receive, &frame->call, frame->total);
    if (status != MUSTER_OK) {
        muster_transfer_table_remove(&match->link->receives, receive);
        muster_transfer_complete(match->link, receive, status);
    }
    return status == MUSTER_OK;
}

static bool is_stale(struct muster_match *match, const struct muster_frame *frame)
{
    bool stale = muster_fabric_stale(match->link->fabric, &frame->key);
    match->link->fabric->figures.stale_dropped += stale;
    return stale;
}

static void place_in(struct muster_arrival *arrival, struct muster_transfer *receive)
{
    arrival->receive = receive;
    arrival->place = receive->consume != NULL ? MUSTER_PLACE_CONSUME : MUSTER_PLACE_DATA;
}

static muster_status eager_header(struct muster_match *match, struct muster_arrival *arrival)
{
    const struct muster_frame *frame = &arrival->frame;
    struct muster_transfer *receive =
        muster_transfer_table_find(&match->link->receives, &frame->key);
    if (receive != NULL) {
        if (receive->link_word == WORD_GRANTED && receive->size_bytes == frame->total) {
            return muster_error_set(MUSTER_INVALID, "an eager message that was offered before");
        }
        if (fits(match, receive, frame)) {
            place_in(arrival, receive);
        }
        return MUSTER_OK;
    }
    if (is_stale(match, frame)) {
        return MUSTER_OK;
    }
    uint64_t charge = muster_early_charge(frame);
    if (match->early_bytes + charge > MUSTER_EAGER_WINDOW_BYTES) {
        return muster_error_set(MUSTER_INVALID, "more early messages than were agreed");
    }
    arrival->early = muster_early_create(frame);
    if (arrival->early == NULL) {
        return muster_error_set(MUSTER_INVALID, "out of memory for an early message");
    }
    arrival->place = MUSTER_PLACE_EARLY;
    return MUSTER_OK;
}

static muster_status segment_header(struct muster_match *match, struct muster_arrival *arrival)
{
    const struct muster_frame *frame = &arrival->frame;
    struct muster_transfer *receive =
        muster_transfer_table_find(&match->link->receives, &frame->key);
    if (receive == NULL) {
        match->link->fabric->figures.stale_dropped++; /* withdrawn, or it has failed */
        return MUSTER_OK;
    }
    if (receive->link_word != WORD_GRANTED || receive->size_bytes != frame->total ||
        receive->moved_bytes != frame->offset) {
        return muster_error_set(MUSTER_INVALID, "a segment that was not granted");
    }
    place_in(arrival, receive);
    return MUSTER_OK;
}

muster_status muster_match_header(struct muster_match *match, const struct muster_frame *frame,
                                  struct muster_arrival *arrival)
{
    if (frame->credit > match->eager_out_bytes) {
        return muster_error_set(MUSTER_INVALID, "credit for more than was sent");
    }
    match->eager_out_bytes -= frame->credit;
    arrival->frame = *frame;
    arrival->place = MUSTER_PLACE_NOWHERE;
    arrival->left = frame->length;
    arrival->receive = NULL;
    arrival->early = NULL;
    arrival->carried = 0;
    switch (frame->kind) {
    case MUSTER_FRAME_EAGER:
        return eager_header(match, arrival);
    case MUSTER_FRAME_SEGMENT:
        return segment_header(match, arrival);
    case MUSTER_FRAME_ABORT:
        memset(arrival->text, 0, sizeof arrival->text);
        arrival->place = MUSTER_PLACE_TEXT;
        return MUSTER_OK;
    case MUSTER_FRAME_OFFER:
    case MUSTER_FRAME_GRANT:
    case MUSTER_FRAME_CREDIT:
    case MUSTER_FRAME_GOODBYE:
        break;
    }
    return MUSTER_OK;
}

static muster_status keep_early(struct muster_match *match, struct muster_early *early)
{
    if (early == NULL || !muster_early_insert(&match->early, early)) {
        free(early);
        return muster_error_set(MUSTER_INVALID, "more than %d early frames", MUSTER_EARLY_MAX);
    }
    const struct muster_frame frame = early->frame;
    muster_link_heard(match->link, &frame.key, &frame.call); /* may drop what was kept */
    return MUSTER_OK;
}

static muster_status offered(struct muster_match *match, const struct muster_frame *frame)
{
    struct muster_transfer *receive =
        muster_transfer_table_find(&match->link->receives, &frame->key);
    if (receive == NULL) {
        return is_stale(match, frame) ? MUSTER_OK : keep_early(match, muster_early_create(frame));
    }
    if (fits(match, receive, frame) && receive->link_word != WORD_GRANTED) {
        receive->link_word = WORD_GRANTED;
        queue_about(match, MUSTER_FRAME_GRANT, receive);
    }
    return MUSTER_OK;
}

static muster_status granted(struct muster_match *match, const struct muster_frame *frame)
{
    struct muster_transfer *send = muster_transfer_table_find(&match->waiting, &frame->key);
    if (send == NULL) {
        return is_stale(match, frame) ? MUSTER_OK : keep_early(match, muster_early_create(frame));
    }
    muster_status status = muster_transfer_check(match->link, send, &frame->call, frame->total);
    muster_transfer_table_remove(&match->waiting, send);
    if (status != MUSTER_OK) {
        muster_transfer_complete(match->link, send, status);
        return MUSTER_OK;
    }
    send->link_word = 0;
    muster_transfer_list_append(&match->ready, send);
    muster_link_mark(match->link);
    return MUSTER_OK;
}

static void complete_receive(struct muster_match *match, struct muster_transfer *receive)
{
    muster_transfer_table_remove(&match->link->receives, receive);
    muster_transfer_complete(match->link, receive, MUSTER_OK);
}

static muster_status eager_arrived(struct muster_match *match, struct muster_arrival *arrival)
{
    struct muster_early *early = TAKE(arrival->early);
    if (early == NULL) {
        muster_match_credit(match, muster_early_charge(&arrival->frame));
        return MUSTER_OK;
    }
    match->early_bytes += muster_early_charge(&early->frame);
    if (muster_transfer_table_find(&match->link->receives, &early->frame.key) != NULL) {
        make_due(match, early); /* posted while it came in */
        return MUSTER_OK;
    }
    return keep_early(match, early);
}

muster_status muster_match_arrived(struct muster_match *match, struct muster_arrival *arrival)
{
    struct muster_operation_id operation = muster_key_operation(&arrival->frame.key);
    struct muster_transfer *receive = TAKE(arrival->receive);
    if (arrival->carried > 0) {
        return muster_error_set(MUSTER_INVALID, "a segment that ends within an element");
    }
    if (receive != NULL && receive->moved_bytes == receive->size_bytes) {
        complete_receive(match, receive);
    }
    switch (arrival->frame.kind) {
    case MUSTER_FRAME_EAGER:
        return eager_arrived(match, arrival);
    case MUSTER_FRAME_OFFER:
        return offered(match, &arrival->frame);
    case MUSTER_FRAME_GRANT:
        return granted(match, &arrival->frame);
    case MUSTER_FRAME_ABORT:
        muster_link_aborted(match->link, &operation, arrival->text);
        return MUSTER_OK;
    case MUSTER_FRAME_SEGMENT:
    case MUSTER_FRAME_CREDIT:
    case MUSTER_FRAME_GOODBYE:
        break;
    }
    return MUSTER_OK;
}

/* Early ones that are due -------------------------------------------------------------------- */

static void deliver(struct muster_match *match, const struct muster_early *early,
                    unsigned char *piece)
{
    struct muster_link *link = match->link;
    struct muster_arrival arrival = {.frame = early->frame};
    struct muster_transfer *receive =
        muster_transfer_table_find(&link->receives, &early->frame.key);
    if (receive == NULL || !fits(match, receive, &early->frame)) {
        return;
    }
    if (receive->link_word == WORD_GRANTED) {
        match->broken = true; /* it was offered too */
        return;
    }
    arrival.piece = piece;
    arrival.left = early->frame.length;
    place_in(&arrival, receive);
    muster_arrival_take(match, &arrival, early->data, arrival.left);
    complete_receive(match, receive);
}

bool muster_match_progress(struct muster_match *match, unsigned char *piece)
{
    while (match->due != NULL) {
        struct muster_early *early = match->due;
        DL_DELETE(match->due, early);
        muster_status status = MUSTER_OK;
        switch (early->frame.kind) {
        case MUSTER_FRAME_OFFER:
            status = offered(match, &early->frame);
            break;
        case MUSTER_FRAME_GRANT:
            status = granted(match, &early->frame);
            break;
        default:
            match->early_bytes -= muster_early_charge(&early->frame);
            muster_match_credit(match, muster_early_charge(&early->frame));
            deliver(match, early, piece);
        }
        free(early);
        match->broken = match->broken || status != MUSTER_OK;
    }
    if (match->broken) {
        muster_link_fail(match->link, MUSTER_LINK_LOST,
                         "out of memory for its frames, or they contradict each other");
        return false;
    }
    return true;
}
